#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/shapes: sizes of published models, and the parameters that transformers counts.

usage: tools/make_shapes_golden.py [FOLDER]

Each file is a config.json with one key more, "counted": the parameters of transformers' own model of
it, made on torch's meta device, so without memory. Encoders have their head for masked tokens.
"""
import json
import os
import sys

import torch
import transformers

LLAMA = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
DEEPSEEK = {
    "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
    "num_experts_per_tok": 8, "n_shared_experts": 1, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}
GPT_OSS = {
    "hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "num_experts_per_tok": 4, "vocab_size": 201088, "tie_word_embeddings": False,
}
# Name: transformers' classes, the model's own model_type where it has none there, and sizes.
MODELS = {
    "mixtral-8x7b": ("Mixtral", None, {**LLAMA, "intermediate_size": 14336, "num_key_value_heads": 8,
                                       "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000}),
    "deepseek-v3": ("DeepseekV3", None, {**DEEPSEEK, "num_attention_heads": 128, "num_key_value_heads": 128,
                                         "n_routed_experts": 256, "first_k_dense_replace": 3, "vocab_size": 129280}),
    "kimi-k2": ("DeepseekV3", "kimi_k2", {**DEEPSEEK, "num_attention_heads": 64, "num_key_value_heads": 64,
                                          "n_routed_experts": 384, "first_k_dense_replace": 1, "vocab_size": 163840}),
    "qwen3-30b-a3b": ("Qwen3Moe", None, {
        "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "num_hidden_layers": 48, "num_experts": 128,
        "num_experts_per_tok": 8, "vocab_size": 151936, "tie_word_embeddings": False}),
    "gemma-2-9b": ("Gemma2", None, {
        "hidden_size": 3584, "intermediate_size": 14336, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 256, "num_hidden_layers": 42, "vocab_size": 256000}),
    "gemma-3-1b": ("Gemma3", "gemma3_text", {
        "hidden_size": 1152, "intermediate_size": 6912, "num_attention_heads": 4, "num_key_value_heads": 1,
        "head_dim": 256, "num_hidden_layers": 26, "vocab_size": 262144}),
    "phi-3-mini": ("Phi3", None, {
        "hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 32,
        "num_hidden_layers": 32, "vocab_size": 32064}),
    "phi-2": ("Phi", None, {
        "hidden_size": 2560, "intermediate_size": 10240, "num_attention_heads": 32, "num_hidden_layers": 32,
        "vocab_size": 51200}),
    "falcon-7b": ("Falcon", None, {
        "hidden_size": 4544, "num_attention_heads": 71, "multi_query": True, "num_hidden_layers": 32,
        "vocab_size": 65024, "bias": False, "parallel_attn": True, "new_decoder_architecture": False}),
    "falcon-40b": ("Falcon", None, {
        "hidden_size": 8192, "num_attention_heads": 128, "num_kv_heads": 8, "num_hidden_layers": 60,
        "vocab_size": 65024, "bias": False, "parallel_attn": True, "new_decoder_architecture": True}),
    "bloom-7b1": ("Bloom", None, {"hidden_size": 4096, "n_head": 32, "n_layer": 30, "vocab_size": 250880}),
    "opt-6.7b": ("OPT", None, {**LLAMA, "ffn_dim": 16384, "vocab_size": 50272, "max_position_embeddings": 2048,
                               "word_embed_proj_dim": 4096}),
    "bert-large": ("Bert", None, {
        "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
        "vocab_size": 30522, "max_position_embeddings": 512}),
    "command-r": ("Cohere", None, {
        "hidden_size": 8192, "intermediate_size": 22528, "num_attention_heads": 64, "num_key_value_heads": 64,
        "num_hidden_layers": 40, "vocab_size": 256000}),
    "olmo-2-7b": ("Olmo2", None, {**LLAMA, "intermediate_size": 11008, "num_key_value_heads": 32, "vocab_size": 100352}),
    "gpt-oss-20b": ("GptOss", None, {**GPT_OSS, "num_hidden_layers": 24, "num_local_experts": 32}),
    "gpt-oss-120b": ("GptOss", None, {**GPT_OSS, "num_hidden_layers": 36, "num_local_experts": 128}),
    "llama-4-scout": ("Llama4", "llama4_text", {
        "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_attention_heads": 40,
        "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 48, "num_local_experts": 16,
        "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "vocab_size": 202048}),
    "glm-4.5-air": ("Glm4Moe", None, {
        "hidden_size": 4096, "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_attention_heads": 96,
        "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 46, "n_routed_experts": 128,
        "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 1, "vocab_size": 151552,
        "attention_bias": True, "use_qk_norm": False}),
    "starcoder2-7b": ("Starcoder2", None, {
        "hidden_size": 4608, "intermediate_size": 18432, "num_attention_heads": 36, "num_key_value_heads": 4,
        "num_hidden_layers": 32, "vocab_size": 49152}),
    "apertus-8b": ("Apertus", None, {
        "hidden_size": 4096, "intermediate_size": 21504, "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_hidden_layers": 32, "hidden_act": "xielu", "vocab_size": 131072, "tie_word_embeddings": False}),
    "arcee-4b": ("Arcee", None, {
        "hidden_size": 2560, "intermediate_size": 18432, "num_attention_heads": 20, "num_key_value_heads": 4,
        "num_hidden_layers": 36, "hidden_act": "relu2", "vocab_size": 128004, "tie_word_embeddings": False}),
    "dbrx": ("Dbrx", None, {
        "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352, "tie_word_embeddings": False,
        "attn_config": {"kv_n_heads": 8, "rope_theta": 500000},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}}),
    "deepseek-v2-lite": ("DeepseekV2", None, {
        "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 27,
        "num_attention_heads": 16, "num_key_value_heads": 16, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_experts_per_tok": 6, "first_k_dense_replace": 1, "q_lora_rank": None, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 102400}),
    "distilbert": ("DistilBert", None, {
        "dim": 768, "hidden_dim": 3072, "n_heads": 12, "n_layers": 6, "max_position_embeddings": 512,
        "vocab_size": 30522}),
    # As published: the rest is the class's.
    "gemma-3-27b": ("Gemma3", "gemma3_text", {
        "hidden_size": 5376, "intermediate_size": 21504, "num_attention_heads": 32, "num_key_value_heads": 16,
        "head_dim": 128, "num_hidden_layers": 62, "sliding_window": 1024}),
    "llama-4-maverick": ("Llama4", "llama4_text", {
        "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_attention_heads": 40,
        "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 48, "num_local_experts": 128,
        "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "vocab_size": 202048}),
    "minicpm3-4b": ("MiniCPM3", None, {
        "hidden_size": 2560, "intermediate_size": 6400, "num_attention_heads": 40, "num_key_value_heads": 40,
        "num_hidden_layers": 62, "q_lora_rank": 768, "kv_lora_rank": 256, "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32, "vocab_size": 73448}),
    "modernbert-base": ("ModernBert", None, {
        "hidden_size": 768, "intermediate_size": 1152, "num_attention_heads": 12, "num_hidden_layers": 22,
        "hidden_activation": "gelu", "vocab_size": 50368, "local_attention": 128, "global_attn_every_n_layers": 3}),
    "xlm-roberta-large": ("XLMRoberta", None, {
        "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
        "max_position_embeddings": 514, "vocab_size": 250002}),
}
ENCODERS = ["Bert", "DistilBert", "ModernBert", "XLMRoberta"]


def config_class(name, model_type):
    text = model_type is not None and model_type.endswith("_text")
    return getattr(transformers, f"{name}{'Text' if text else ''}Config")


def count(name, model_type, sizes):
    config = config_class(name, model_type)(**sizes)
    with torch.device("meta"):
        head = "MaskedLM" if name in ENCODERS else "CausalLM"
        model = getattr(transformers, f"{name}For{head}")(config)
    # parameters() names what is tied once.
    return config.model_type, sum(parameter.numel() for parameter in model.parameters())


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/shapes"
    os.makedirs(folder, exist_ok=True)
    for file, (name, model_type, sizes) in MODELS.items():
        own_type, counted = count(name, model_type, sizes)
        text = {"model_type": model_type or own_type, **sizes, "counted": counted}
        with open(os.path.join(folder, file + ".json"), "w", encoding="utf-8") as out:
            json.dump(text, out, indent=1)
            out.write("\n")


main()
