#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Training steps of a LoRA adapter by PEFT, transformers and PyTorch, on the CPU: as torch_train.py, with the model frozen.

usage: peft_train.py CONFIG.json [--rank R] [--sequences B] [--length T] [--steps N] [--threads K] [--base fp32|bf16]
                     [--compile]

Prints the median milliseconds of a step, the first two left out, and two numbers of MiB: the peak of resident memory,
and what was resident behind the imports. The base is held in --base, the adapter in fp32; bf16 is autocast.
"""
import argparse
import statistics
import time

import peft
import torch
import transformers

WARM_UP_STEPS = 2


def resident(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(name))


def make_model(arguments):
    config = transformers.AutoConfig.from_pretrained(arguments.config)
    config.use_cache = False
    dtype = torch.bfloat16 if arguments.base == "bf16" else torch.float32
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=dtype)
    settings = peft.LoraConfig(task_type="CAUSAL_LM", r=arguments.rank, lora_alpha=2 * arguments.rank,
                               target_modules="all-linear")
    return peft.get_peft_model(model, settings).train(), config


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--base", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    imported = resident("VmRSS")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    model, config = make_model(arguments)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0, fused=True)
    run = torch.compile(model) if arguments.compile else model
    times = []
    for _ in range(arguments.steps + WARM_UP_STEPS):
        tokens = torch.randint(config.vocab_size, (arguments.sequences, arguments.length))
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16):
            loss = run(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        times.append((time.perf_counter() - begin) * 1e3)
    print(f"{statistics.median(times[WARM_UP_STEPS:]):.1f} {resident('VmHWM'):.0f} {imported:.0f}")


if __name__ == "__main__":
    main()
