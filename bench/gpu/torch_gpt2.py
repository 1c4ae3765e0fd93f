#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""A training step of the same GPT-2 in PyTorch, as fast as its users get it: compiled, fused attention, fused AdamW.

usage: torch_gpt2.py CONFIG.json [--length T] [--sequences B] [--steps N] [--seconds S] [--params fp32|bf16]
                     [--pad-vocab M] [--peak-tflops F] [--no-compile]

Prints one line of JSON. Where nothing could be timed it says why on standard error and ends with status 1.

    step_ms      median wall clock from the start of a step to the start of the next, with step_ms_least and
                 step_ms_most of the `steps` timed; the first three are left out. As `mics train`, each step reads its loss
    tokens_per_s B T / step_ms
    mfu          model FLOPs in step_ms over F TFLOP/s, counted as mics_model_flops_per_token (src/model/model.c) counts
                 them for `mics train`: a token 6 FLOPs a parameter of matrix products (the tied table once; no embeddings,
                 norms, biases, and no padding) and 6 x layers x T x C for causal attention
    ready_s      from the start of the program to the end of the first step, compilation included

The model is made on the GPU, and compiled block by block: all blocks share the code of one, so compilation takes seconds
and not minutes. --params fp32 keeps fp32 parameters and computes under autocast to bf16, as is usual; bf16 keeps them and
AdamW's moments in bf16, which is faster than anything that keeps masters. Both are worth beating. --pad-vocab rounds the
table's rows up to a multiple of M: 8, the default, is what ours does to a row of logits (16 bytes, src/ops/lm_head/cuda.c);
64 makes the 50304 that many pad GPT-2's 50257 to. Tokens are uniform and new at each step. --seconds: the program ends by
itself within S seconds of its start, with the steps timed until then.

It is a bench, not part of the product, which needs no Python.
"""
import time

START = time.monotonic()

import argparse
import json
import os
import statistics
import sys
import threading

import torch
import torch.nn.functional as F
from torch import nn

WARM_UP_STEPS = 3
MIN_TIMED_STEPS = 5
BATCHES = 8  # made beforehand; steps take them in turn
PEAK_TFLOPS = 989  # bf16, dense, H100 and H200 SXM
COMPILES_BLOCKS_SINCE = (2, 5)  # before, PyTorch compiles every block anew, and after the eighth none


class Block(nn.Module):
    def __init__(self, width, heads, inner, eps):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=eps)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=eps)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Head(nn.Module):
    """The last norm, the logits by the tied table, and the loss."""

    def __init__(self, width, eps):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=eps)

    def forward(self, x, table, targets):
        logits = self.norm(x) @ table.t()
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))


class GPT2(nn.Module):
    def __init__(self, config, table_rows):
        super().__init__()
        width, eps = config["n_embd"], config.get("layer_norm_epsilon", 1e-5)
        self.tokens = nn.Embedding(table_rows, width)
        self.positions = nn.Embedding(config["n_positions"], width)
        self.blocks = nn.ModuleList(
            Block(width, config["n_head"], inner_width(config), eps) for _ in range(config["n_layer"]))
        self.head = Head(width, eps)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def compile_parts(self):
        for part in (*self.blocks, self.head):
            part.compile(dynamic=False, fullgraph=True)

    def forward(self, inputs, targets):
        x = self.tokens(inputs) + self.positions.weight[: inputs.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x, self.tokens.weight, targets)


def inner_width(config):
    return config.get("n_inner") or 4 * config["n_embd"]


def flops_per_token(config, length):
    width, layers = config["n_embd"], config["n_layer"]
    block = 4 * width * width + 2 * width * inner_width(config)
    products = layers * block + config["vocab_size"] * width
    return 6 * products + 6 * layers * length * width


class Budget:
    """Ends the program when its seconds are over, whatever it is doing."""

    def __init__(self, seconds):
        self.seconds, self.doing = seconds, "being set up"
        if seconds is not None:
            timer = threading.Timer(max(0.0, self.left_s()), self.give_up)
            timer.daemon = True
            timer.start()

    def left_s(self):
        return START + self.seconds - time.monotonic()

    # Keeps a little to print and to end in.
    def has(self, seconds):
        return self.seconds is None or self.left_s() > seconds + min(5.0, 0.05 * self.seconds)

    def give_up(self):
        print(f"torch_gpt2.py: the {self.seconds:g} s of --seconds are over while {self.doing}", file=sys.stderr,
              flush=True)
        os._exit(1)


def parse():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].replace("usage: ", ""))
    parser.add_argument("config")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--params", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--pad-vocab", type=int, default=8)
    parser.add_argument("--peak-tflops", type=float, default=PEAK_TFLOPS)
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    for name in ("length", "sequences", "pad_vocab"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if args.steps < MIN_TIMED_STEPS:
        parser.error(f"--steps must be at least {MIN_TIMED_STEPS}, for a median")
    return args


def make_batches(config, args, device):
    tokens = torch.randint(config["vocab_size"], (BATCHES, args.sequences, args.length + 1), device=device)
    return [(batch[:, :-1].contiguous(), batch[:, 1:].contiguous()) for batch in tokens]


def make_model(config, args, device):
    rows = -(-config["vocab_size"] // args.pad_vocab) * args.pad_vocab
    with torch.device(device):
        model = GPT2(config, rows)
    if args.params == "bf16":
        model = model.to(torch.bfloat16)
    if not args.no_compile:
        model.compile_parts()
    return model


def run_step(model, optimizer, batch, args, device):
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.params == "fp32"):
        loss = model(*batch)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()  # waits for the step, as a loop that reports its loss does


def time_steps(model, optimizer, batches, args, device, budget):
    """The starts of all steps and the end of the last, and the last loss."""
    starts, loss = [time.monotonic()], None
    for step in range(WARM_UP_STEPS + args.steps):
        budget.doing = f"running step {step + 1}" + (", which compiles" if step == 0 and not args.no_compile else "")
        longest = max((end - begin for begin, end in zip(starts[1:], starts[2:])), default=0)
        if len(starts) - 1 >= WARM_UP_STEPS + MIN_TIMED_STEPS and not budget.has(2 * longest):
            break
        loss = run_step(model, optimizer, batches[step % BATCHES], args, device)
        starts.append(time.monotonic())
    return starts, loss


def main():
    args = parse()
    budget = Budget(args.seconds)
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if not args.no_compile and version < COMPILES_BLOCKS_SINCE:
        print(f"torch_gpt2.py: PyTorch {torch.__version__} cannot compile block by block; 2.5 or newer can, and "
              "--no-compile goes without", file=sys.stderr)
        return 1
    with open(args.config, encoding="utf-8") as file:
        config = json.load(file)
    config["n_positions"] = max(config["n_positions"], args.length)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    batches = make_batches(config, args, device)
    model = make_model(config, args, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=cuda)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    starts, loss = time_steps(model, optimizer, batches, args, device, budget)
    times = [end - begin for begin, end in zip(starts[WARM_UP_STEPS:], starts[WARM_UP_STEPS + 1:])]
    seconds = statistics.median(times)
    rate = args.sequences * args.length / seconds
    print(json.dumps({
        "peer": f"torch {torch.__version__}", "params": args.params, "compiled": not args.no_compile,
        "device": torch.cuda.get_device_name() if cuda else "cpu", "table_rows": model.tokens.num_embeddings,
        "tokens_per_s": round(rate, 1), "step_ms": round(seconds * 1e3, 3),
        "step_ms_least": round(min(times) * 1e3, 3), "step_ms_most": round(max(times) * 1e3, 3), "steps": len(times),
        "mfu": round(rate * flops_per_token(config, args.length) / (args.peak_tflops * 1e12), 4) if cuda else None,
        "memory_peak_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "loss": round(loss, 4), "ready_s": round(starts[1] - START, 1),
    }), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
