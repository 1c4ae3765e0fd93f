// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The families of decoders, each with the defaults of its configuration class in transformers.
#include "model/decoder.h"

#define LIKE_LLAMA .vocab = 32000, .hidden = 4096, .layers = 32, .heads = 32
#define LIKE_QWEN .vocab = 151936, .positions = 32768
// Layers may be dense.
#define QWEN_EXPERTS                                                                               \
    .module = "mlp", .gate = "gate_proj", .up = "up_proj", .down = "down_proj",                    \
    .inner_key = "moe_intermediate_size", .some_layers = true

// clang-format off

// Llama 1 to 3: Grattafiori et al., The Llama 3 herd of models, 2024, arXiv:2407.21783.
static const decoder_family llama = {
    .architecture = "llama", LIKE_LLAMA, .inner = 11008, .positions = 2048,
    .heads_divide = true, .bias_keys = true, .mlp_bias_key = true};

// Mistral: Jiang et al., Mistral 7B, 2023, arXiv:2310.06825. Its attention may see a window.
static const decoder_family mistral = {
    .architecture = "mistral", LIKE_LLAMA, .inner = 14336, .key_value_heads = 8,
    .positions = 4096 * 32, .window = true};

// Qwen 2 and 2.5: Yang et al., Qwen2 technical report, 2024, arXiv:2407.10671. q, k and v have
// biases.
static const decoder_family qwen2 = {
    .architecture = "qwen2", LIKE_QWEN, .hidden = 4096, .inner = 22016, .layers = 32,
    .heads = 32, .key_value_heads = 32, .qkv_bias = true, .layer_types = true};

// Qwen 3: Yang et al., Qwen3 technical report, 2025, arXiv:2505.09388. Query and key heads are
// normalised.
static const decoder_family qwen3 = {
    .architecture = "qwen3", LIKE_QWEN, .hidden = 4096, .inner = 22016, .layers = 32,
    .heads = 32, .key_value_heads = 32, .head_dim = 128, .bias_keys = true, .head_norm = true,
    .layer_types = true};

// Mixtral: Jiang et al., Mixtral of experts, 2024, arXiv:2401.04088. Nothing is ever dropped.
static const mixture_family mixtral_experts = {
    .module = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2",
    .inner_key = "intermediate_size", .inner = 14336, .experts = 8, .chosen = 2,
    .normalised = true};
static const decoder_family mixtral = {
    .architecture = "mixtral", LIKE_LLAMA, .inner = 14336, .key_value_heads = 8,
    .positions = 4096 * 32, .eps = 1e-5, .theta = 1e6, .window = true,
    .experts = &mixtral_experts};

// Qwen 1.5's and 2's mixtures of experts: Yang et al., Qwen2 technical report, 2024,
// arXiv:2407.10671. Beside its experts a layer has a shared one.
static const mixture_family qwen2_moe_experts = {
    QWEN_EXPERTS, .inner = 1408, .experts = 60, .chosen = 4,
    .shared_key = "shared_expert_intermediate_size", .shared = 5632};
static const decoder_family qwen2_moe = {
    .architecture = "qwen2_moe", LIKE_QWEN, .hidden = 2048, .inner = 5632, .layers = 24,
    .heads = 16, .key_value_heads = 16, .qkv_bias_key = true, .no_window = true,
    .experts = &qwen2_moe_experts};

// Qwen 3's mixtures of experts: Yang et al., Qwen3 technical report, 2025, arXiv:2505.09388.
static const mixture_family qwen3_moe_experts = {
    QWEN_EXPERTS, .inner = 768, .experts = 128, .chosen = 8};
static const decoder_family qwen3_moe = {
    .architecture = "qwen3_moe", LIKE_QWEN, .hidden = 2048, .inner = 6144, .layers = 24,
    .heads = 32, .key_value_heads = 4, .bias_keys = true, .head_norm = true, .no_window = true,
    .experts = &qwen3_moe_experts};

// clang-format on

#define BUILDER(family)                                                                            \
    mics_status build_##family(mics_memory *memory, config_reader *reader, bool ignore_dropout,    \
                               mics_model **model_out)                                             \
    {                                                                                              \
        return decoder_build(memory, reader, &family, ignore_dropout, model_out);                  \
    }
BUILDER(llama)
BUILDER(mistral)
BUILDER(qwen2)
BUILDER(qwen3)
BUILDER(mixtral)
BUILDER(qwen2_moe)
BUILDER(qwen3_moe)
