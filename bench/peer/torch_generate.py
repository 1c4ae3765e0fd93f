#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Text generation by transformers and PyTorch, on the CPU, as their users get it: model.generate with a key-value cache,
attention by scaled_dot_product_attention, random weights.

usage: torch_generate.py CONFIG.json [--prompt P] [--tokens N] [--samples K] [--threads T] [--dtype fp32|bf16]

Prints tokens/s after the first token, and prompt tokens/s until it.
"""
import argparse
import time

import torch
import transformers


def seconds(model, prompt, tokens, samples):
    begin = time.perf_counter()
    with torch.inference_mode():
        model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=True, temperature=0.8, top_k=40,
                       num_return_sequences=samples, max_new_tokens=tokens, min_new_tokens=tokens, pad_token_id=0)
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    config = transformers.AutoConfig.from_pretrained(arguments.config)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    model = model.to(torch.bfloat16 if arguments.dtype == "bf16" else torch.float32)
    prompt = torch.randint(config.vocab_size, (1, arguments.prompt))
    seconds(model, prompt, 4, arguments.samples)
    first = min(seconds(model, prompt, 1, arguments.samples) for _ in range(3))
    whole = seconds(model, prompt, arguments.tokens, arguments.samples)
    rate = (arguments.tokens - 1) * arguments.samples / (whole - first)
    print(f"{rate:.1f} {arguments.prompt / first:.0f}")


if __name__ == "__main__":
    main()
