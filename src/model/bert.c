// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// BERT and RoBERTa as data: Devlin et al., 2019, arXiv:1810.04805; Liu et al., 2019,
// arXiv:1907.11692; with the configuration keys, tensor names and dropouts of Hugging Face's
// BertForMaskedLM and RobertaForMaskedLM. Weights are (outputs, inputs). One parameter holds the
// rows of query, key and value.
//
// The two have other names; RoBERTa's positions begin behind the row of its padding token, and its
// head's GELU is always the exact one.
#include "mics/builder.h"
#include "model/builders.h"
#include <stdio.h>
#include <string.h>

enum { MODULE_BYTES = 2 * MICS_NAME_BYTES };

// How a family calls its modules.
typedef struct spelling {
    const char *architecture, *body;
    const char *transform, *transform_norm; // of the head
    const char *decoder;                    // has the bias of the logits
    bool padded_positions;
    bool exact_head; // its GELU is the exact one, whatever hidden_act says
} spelling;

typedef struct shape {
    const spelling *names;
    int64_t layers, heads, hidden, inner, vocab, types;
    int64_t position_rows, first_position;
    double eps, init_std;
    float dropout, attention_dropout;
    bool exact_gelu;
} shape;

// ---- configuration ----

// What another model than these would say.
static void refuse_others(config_reader *reader)
{
    config_require(reader, "position_embedding_type", "absolute");
    config_require(reader, "hidden_act", "gelu|gelu_new|gelu_pytorch_tanh");
    static const char *const off[] = {"is_decoder", "add_cross_attention"};
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        if (config_bool(reader, off[i], false))
            reader->status = mics_json_fail(reader->json, off[i], MICS_ERR_UNSUPPORTED,
                                            "only false can be honoured: each token of an encoder "
                                            "sees all others");
    }
    if (!config_bool(reader, "tie_word_embeddings", true))
        reader->status = mics_json_fail(reader->json, "tie_word_embeddings", MICS_ERR_UNSUPPORTED,
                                        "only true can be honoured: the head's weight is the table "
                                        "of words");
}

static mics_status read_shape(config_reader *reader, bool ignore_dropout, const spelling *of,
                              shape *shape_out)
{
    const int64_t limit = (int64_t)1 << 31;
    shape s = {
        .names = of,
        .layers = config_int(reader, "num_hidden_layers", 1, CONFIG_MAX_LAYERS, 12),
        .heads = config_int(reader, "num_attention_heads", 1, 100000, 12),
        .hidden = config_int(reader, "hidden_size", 1, 1 << 24, 768),
        .inner = config_int(reader, "intermediate_size", 1, 1 << 26, 3072),
        .vocab = config_int(reader, "vocab_size", 2, limit - 1, -1),
        .types = config_int(reader, "type_vocab_size", 1, 1 << 20, 2),
        .position_rows = config_int(reader, "max_position_embeddings", 1, limit, 512),
        .eps = config_real(reader, "layer_norm_eps", 0, 1, 1e-12),
        .init_std = config_real(reader, "initializer_range", 0, 100, 0.02),
        .dropout = config_dropout(reader, "hidden_dropout_prob", ignore_dropout),
        .attention_dropout = config_dropout(reader, "attention_probs_dropout_prob", ignore_dropout),
        .exact_gelu = true,
    };
    const char *activation = mics_json_string(mics_json_at(reader->json, "hidden_act"));
    s.exact_gelu = activation == NULL || strcmp(activation, "gelu") == 0;
    if (of->padded_positions)
        s.first_position = config_int(reader, "pad_token_id", 0, s.vocab - 1, 1) + 1;
    refuse_others(reader);
    if (reader->status == MICS_OK && s.hidden % s.heads != 0)
        reader->status = mics_json_fail(reader->json, "num_attention_heads", MICS_ERR_INVALID,
                                        "%lld heads do not divide hidden_size = %lld",
                                        (long long)s.heads, (long long)s.hidden);
    if (reader->status == MICS_OK && s.position_rows <= s.first_position)
        reader->status = mics_json_fail(
            reader->json, "max_position_embeddings", MICS_ERR_INVALID,
            "is %lld, but positions begin behind row %lld, pad_token_id; a sequence of n tokens "
            "needs n + %lld",
            (long long)s.position_rows, (long long)s.first_position - 1,
            (long long)s.first_position);
    *shape_out = s;
    return reader->status;
}

// ---- layers ----

static int32_t linear(mics_model *model, const shape *s, const char *layer, const char *name,
                      int32_t in, int64_t inputs, int64_t outputs)
{
    const model_linear_spec spec = {inputs, outputs, s->init_std, true, true};
    return model_linear(model, layer, name, in, &spec);
}

// The newest parameter holds the rows of three modules.
static void made_of_heads(mics_model *model, const shape *s, const char *layer, const char *kind)
{
    static const char *const modules[] = {"query", "key", "value"};
    char name[MODULE_BYTES];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.attention.self.%s.%s", layer, modules[i], kind);
        mics_model_add_part(model, name, i * s->hidden, s->hidden);
    }
}

static int32_t attention(mics_model *model, const shape *s, const char *layer, int32_t in)
{
    char module[MODULE_BYTES];
    snprintf(module, sizeof module, "%s.attention.self.qkv", layer);
    const mics_param_ref weight =
        model_matrix(model, module, 3 * s->hidden, s->hidden, s->init_std);
    made_of_heads(model, s, layer, "weight");
    const mics_param_ref bias = model_vector(model, module, "bias", 3 * s->hidden, MICS_INIT_ZEROS);
    made_of_heads(model, s, layer, "bias");
    mics_op op = mics_op_of(MICS_OP_ATTENTION, mics_op_linear(model, in, weight, bias, true),
                            mics_param_none(), mics_param_none());
    op.heads = (mics_heads){s->heads, s->heads, s->hidden / s->heads};
    op.dropout = s->attention_dropout;
    op.both_ways = true;
    return mics_model_add_op(model, op);
}

// Of what a module gives: dense layer, dropout, sum with what the module was given, LayerNorm.
static int32_t join(mics_model *model, const shape *s, const char *layer, const char *name,
                    int32_t x, int64_t inputs, int32_t given)
{
    char module[MODULE_BYTES];
    snprintf(module, sizeof module, "%s.%s", layer, name);
    x = linear(model, s, module, "dense", x, inputs, s->hidden);
    x = mics_op_add(model, given, model_dropout(model, x, s->dropout));
    return model_layernorm(model, module, "LayerNorm", x, s->hidden, s->eps);
}

static void build_layer(mics_model *model, const shape *s, int64_t index)
{
    char layer[MICS_NAME_BYTES];
    snprintf(layer, sizeof layer, "layer.%lld", (long long)index);
    mics_model_unit(model, layer, s->hidden);
    snprintf(layer, sizeof layer, "%s.encoder.layer.%lld", s->names->body, (long long)index);
    int32_t x = attention(model, s, layer, 0);
    const int32_t middle = join(model, s, layer, "attention.output", x, s->hidden, 0);
    x = linear(model, s, layer, "intermediate.dense", middle, s->hidden, s->inner);
    x = mics_op_gelu(model, x, s->exact_gelu);
    mics_model_unit_end(model, join(model, s, layer, "output", x, s->inner, middle));
}

static mics_param_ref build_embeddings(mics_model *model, const shape *s)
{
    static const char *const tables[] = {"word", "position", "token_type"};
    const int64_t rows[] = {s->vocab, s->position_rows, s->types};
    char module[MODULE_BYTES];
    mics_op op = mics_op_of(MICS_OP_EMBEDDING, -1, mics_param_none(), mics_param_none());
    mics_model_unit(model, "embed", 0);
    for (int i = 0; i < 3; i++) {
        snprintf(module, sizeof module, "%s.embeddings.%s_embeddings", s->names->body, tables[i]);
        op.params[i] = model_matrix(model, module, rows[i], s->hidden, s->init_std);
    }
    op.first_position = s->first_position;
    snprintf(module, sizeof module, "%s.embeddings", s->names->body);
    const int32_t x = model_layernorm(model, module, "LayerNorm", mics_model_add_op(model, op),
                                      s->hidden, s->eps);
    mics_model_unit_end(model, model_dropout(model, x, s->dropout));
    return op.params[0];
}

static void build(mics_model *model, const shape *s)
{
    const spelling *of = s->names;
    const mics_param_ref words = build_embeddings(model, s);
    for (int64_t layer = 0; layer < s->layers; layer++)
        build_layer(model, s, layer);
    mics_model_unit(model, "head", s->hidden);
    int32_t x = linear(model, s, of->transform, "dense", 0, s->hidden, s->hidden);
    x = mics_op_gelu(model, x, of->exact_head || s->exact_gelu);
    x = model_layernorm(model, of->transform, of->transform_norm, x, s->hidden, s->eps);
    const mics_param_ref bias = model_vector(model, of->decoder, "bias", s->vocab, MICS_INIT_ZEROS);
    mics_model_add_op(model, mics_op_of(MICS_OP_LM_HEAD, x, words, bias));
    mics_model_unit_end(model, -1);
}

// ---- the families ----

static mics_status build_encoder(mics_memory *memory, config_reader *reader, bool ignore_dropout,
                                 const spelling *of, mics_model **model_out)
{
    shape s;
    MICS_TRY(read_shape(reader, ignore_dropout, of, &s));
    MICS_TRY(mics_model_open(memory,
                             &(mics_model_spec){.architecture = of->architecture,
                                                .vocab = s.vocab,
                                                .positions = s.position_rows - s.first_position,
                                                .hidden = s.hidden},
                             model_out));
    build(*model_out, &s);
    return MICS_OK;
}

mics_status build_bert(mics_memory *memory, config_reader *reader, bool ignore_dropout,
                       mics_model **model_out)
{
    static const spelling bert = {.architecture = "bert",
                                  .body = "bert",
                                  .transform = "cls.predictions.transform",
                                  .transform_norm = "LayerNorm",
                                  .decoder = "cls.predictions"};
    return build_encoder(memory, reader, ignore_dropout, &bert, model_out);
}

mics_status build_roberta(mics_memory *memory, config_reader *reader, bool ignore_dropout,
                          mics_model **model_out)
{
    static const spelling roberta = {.architecture = "roberta",
                                     .body = "roberta",
                                     .transform = "lm_head",
                                     .transform_norm = "layer_norm",
                                     .decoder = "lm_head",
                                     .padded_positions = true,
                                     .exact_head = true};
    return build_encoder(memory, reader, ignore_dropout, &roberta, model_out);
}
