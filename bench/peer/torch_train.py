#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Training steps of a causal language model by transformers and PyTorch, on the CPU, as fast as their users get them:
attention by scaled_dot_product_attention, fused AdamW, gradients clipped.

usage: torch_train.py CONFIG.json [--sequences B] [--length T] [--steps N] [--threads K] [--dtype fp32|bf16] [--compile]
                      [--dropout P]

Prints the median milliseconds of a step; the first two are left out. bf16 is autocast over fp32 parameters. --dropout sets
every dropout that the configuration knows; else they are as it says.
"""
import argparse
import statistics
import time

import torch
import transformers

WARM_UP_STEPS = 2


def make_model(arguments):
    config = transformers.AutoConfig.from_pretrained(arguments.config)
    if arguments.dropout is not None:
        for key in ("attention_dropout", "hidden_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop"):
            if hasattr(config, key):
                setattr(config, key, arguments.dropout)
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    return model.train(), config


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--dropout", type=float)
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    model, config = make_model(arguments)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    run = torch.compile(model) if arguments.compile else model
    shape = (arguments.sequences, arguments.length)
    times = []
    for _ in range(arguments.steps + WARM_UP_STEPS):
        tokens = torch.randint(config.vocab_size, shape)
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.dtype == "bf16"):
            loss = run(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        times.append((time.perf_counter() - begin) * 1e3)
    print(f"{statistics.median(times[WARM_UP_STEPS:]):.1f}")


if __name__ == "__main__":
    main()
