// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a family's name says of a model that is planned by its shapes: what its config.json need not
// say, since Hugging Face's class does. Checked with the parameters that transformers 5.24 counts.
#include "base/text.h"
#include "model/shapes.h"
#include <string.h>

// Objects within a config.json whose keys count like its own: a language model's of one that sees
// images too, and DBRX's.
static const char *const objects[] = {"text_config", "attn_config", "ffn_config"};

const mics_json_value *shapes_find(const mics_json *config, const char *key)
{
    const mics_json_value *root = mics_json_root(config);
    const mics_json_value *value = mics_json_get(root, key);
    for (size_t i = 0; value == NULL && i < sizeof objects / sizeof *objects; i++)
        value = mics_json_get(mics_json_get(root, objects[i]), key);
    return value;
}

const char *shapes_type(const mics_json *config)
{
    return mics_json_string(shapes_find(config, "model_type"));
}

bool shapes_is(const mics_json *config, const char *type)
{
    const char *said = shapes_type(config);
    return said != NULL && strcmp(said, type) == 0;
}

// Whether the family is one of those of a list, as in "a|b".
static bool is_among(const mics_json *config, const char *list)
{
    return mics_text_is_among(shapes_type(config), list);
}

// Encoder-decoders, layers with states in place of attention, parameters in common, of other sizes
// by layer, or none that a plan knows.
bool shapes_is_other(const mics_json *config)
{
    static const char types[] =
        "t5|mt5|umt5|jamba|mamba|mamba2|bamba|zamba|zamba2|falcon_mamba|rwkv|falcon_h1|"
        "nemotron_h|albert|minimax|qwen3_next|xlnet|recurrent_gemma|deberta|deberta-v2|lfm2|"
        "lfm2_moe|reformer|kimi_linear|longformer|big_bird|xlstm|gemma3n|fnet|gemma3n_text|"
        "funnel|convbert|squeezebert|mobilebert|luke|jetmoe|moshi|gemma4|gemma4_text|"
        "gemma4_unified|gemma4_unified_text|cpmant|hrm_text|git|neomme|rembert|roc_bert|"
        "granitemoehybrid";
    return is_among(config, types);
}

// Those of decoders; encoders have a list of their own.
bool shapes_is_known(const mics_json *config)
{
    static const char types[] =
        "apertus|arcee|baichuan|bert-generation|biogpt|bitnet|bloom|chatglm|codegen|cohere|"
        "cohere2|cohere2_moe|dbrx|deepseek_v2|deepseek_v3|deepseek_v32|dots1|ernie4_5|"
        "ernie4_5_moe|exaone4|falcon|gemma|gemma2|gemma3|gemma3_text|glm|glm4|glm4_moe|gpt-sw3|"
        "gpt2|gpt_bigcode|gpt_neo|gpt_neox|gpt_neox_japanese|gpt_oss|gptj|granite|granitemoe|"
        "granitemoeshared|grok-1|helium|hunyuan|hunyuan_v1_dense|hunyuan_v1_moe|kimi_k2|llama|"
        "llama4|llama4_text|minicpm3|minimax_m2|ministral|mistral|mixtral|modernbert-decoder|mpt|"
        "nemotron|olmo|olmo2|olmo3|olmoe|openai-gpt|opt|persimmon|phi|phi3|phimoe|qwen|qwen2|"
        "qwen2_moe|qwen2_vl|qwen2_5_vl|qwen3|qwen3_moe|qwen3_vl_text|qwen3_vl_moe_text|seed_oss|"
        "smollm3|stablelm|starcoder2|vaultgemma|xglm|youtu";
    // Of a language model within one that sees images too.
    const char *within = mics_json_string(mics_json_at(config, "text_config.model_type"));
    return is_among(config, types) || shapes_is_encoder(config) ||
           mics_text_is_among(within, types);
}

bool shapes_is_encoder(const mics_json *config)
{
    static const char types[] =
        "bert|roberta|xlm-roberta|camembert|electra|distilbert|modernbert|data2vec-text|ernie|"
        "megatron-bert|mpnet|nomic_bert|roberta-prelayernorm|xlm-roberta-xl|roformer|esm|"
        "eurobert|gte|ibert";
    return is_among(config, types) && !mics_json_bool(shapes_find(config, "is_decoder"));
}

bool shapes_has_positions(const mics_json *config)
{
    static const char types[] =
        "bert|electra|distilbert|opt|gpt_bigcode|gpt_neo|biogpt|gpt-sw3|openai-gpt|megatron-bert|"
        "ernie|bert-generation|mpnet";
    return is_among(config, types) || shapes_pads_positions(config);
}

bool shapes_pads_positions(const mics_json *config)
{
    static const char types[] =
        "roberta|xlm-roberta|camembert|data2vec-text|roberta-prelayernorm|xlm-roberta-xl|ibert";
    return is_among(config, types);
}

bool shapes_is_tied(const mics_json *config)
{
    static const char types[] =
        "bert|bert-generation|biogpt|bloom|camembert|cohere|cohere2|cohere2_moe|data2vec-text|"
        "distilbert|electra|ernie|ernie4_5|ernie4_5_moe|esm|falcon|gpt-sw3|gpt_bigcode|gpt_neo|"
        "gpt_neox_japanese|gte|ibert|megatron-bert|minicpm3|modernbert|modernbert-decoder|mpnet|"
        "mpt|nomic_bert|openai-gpt|opt|roberta|roberta-prelayernorm|roformer|smollm3|starcoder2|"
        "vaultgemma|xglm|xlm-roberta|xlm-roberta-xl|youtu";
    const mics_json_value *said = shapes_find(config, "tie_word_embeddings");
    const char *type = shapes_type(config);
    if (said != NULL || type == NULL)
        return mics_json_bool(said);
    return strncmp(type, "gemma", 5) == 0 || is_among(config, types);
}

// The activation's name tells, but for some families: SiLU stands between the matrices of gated
// layers, others in plain ones.
bool shapes_is_gated(const mics_json *config)
{
    static const char plain[] = "bloom|codegen|esm|falcon|mpt|gpt_neox";
    static const char gated[] =
        "gemma|gemma2|gemma3|gemma3_text|modernbert|modernbert-decoder|vaultgemma|bitnet|gte|"
        "grok-1|gpt_oss";
    // Where no activation is said.
    static const char silent[] =
        "bert|gpt_bigcode|gpt_neo|gptj|nemotron|opt|phi|persimmon|roberta|starcoder2|gpt2|"
        "camembert|distilbert|electra|biogpt|xglm|arcee|apertus|ernie|xlm-roberta|openai-gpt";
    static const char *const keys[] = {"hidden_act", "hidden_activation", "activation_function",
                                       "activation"};
    if (is_among(config, plain) || is_among(config, gated))
        return is_among(config, gated);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *name = mics_json_string(shapes_find(config, keys[i]));
        if (name != NULL)
            return strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0 ||
                   strstr(name, "glu") != NULL;
    }
    return !is_among(config, silent);
}

int64_t shapes_default(const mics_json *config, const char *key, int64_t fallback)
{
    static const struct {
        const char *type, *key;
        int64_t size;
    } defaults[] = {
        {"gemma", "head_dim", 256},
        {"gemma2", "head_dim", 256},
        {"gemma3", "head_dim", 256},
        {"gemma3_text", "head_dim", 256},
        {"gemma3", "vocab_size", 262208},
        {"gemma3_text", "vocab_size", 262208},
        {"gemma3", "num_attention_heads", 8},
        {"gemma3_text", "num_attention_heads", 8},
        {"gemma3", "num_key_value_heads", 4},
        {"gemma3_text", "num_key_value_heads", 4},
        {"gemma3", "max_position_embeddings", 131072},
        {"gemma3_text", "max_position_embeddings", 131072},
    };
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        if (shapes_is(config, defaults[i].type) && strcmp(key, defaults[i].key) == 0)
            return defaults[i].size;
    }
    return fallback;
}
