#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""A training step of the same GPT-2 in PyTorch, as fast as its users get it: compiled, fused attention, fused AdamW.

usage: torch_gpt2.py CONFIG.json [--length T] [--sequences B] [--steps N] [--params fp32|bf16] [--no-compile]

Prints one line of JSON: tokens_per_s, step_ms (median, first steps left out), mfu (6 N + 12 layers T C FLOPs a token; N
without the position table, the tied table once, as `mics train` counts), memory_peak_bytes. --params fp32 keeps fp32
parameters and computes under autocast to bf16, as is usual; bf16 keeps them and AdamW's moments in bf16, which is faster than
anything that keeps masters. Both are worth beating. It is a bench, not part of the product, which needs no Python.
"""
import argparse
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

PEAK_FLOPS = 989e12  # bf16, dense, H100 and H200 SXM


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


class GPT2(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, eps = config["n_embd"], config.get("layer_norm_epsilon", 1e-5)
        self.tokens = nn.Embedding(config["vocab_size"], width)
        self.positions = nn.Embedding(config["n_positions"], width)
        inner = config.get("n_inner") or 4 * width
        self.blocks = nn.ModuleList(Block(width, config["n_head"], inner, eps) for _ in range(config["n_layer"]))
        self.norm = nn.LayerNorm(width, eps=eps)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, inputs, targets):
        x = self.tokens(inputs) + self.positions.weight[: inputs.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.tokens.weight.t()  # tied
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))


def flops_per_token(model, config, length):
    counted = sum(p.numel() for p in model.parameters()) - model.positions.weight.numel()
    return 6 * counted + 12 * config["n_layer"] * length * config["n_embd"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--params", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    with open(args.config, encoding="utf-8") as file:
        config = json.load(file)
    config["n_positions"] = max(config["n_positions"], args.length)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = GPT2(config).to(device)
    if args.params == "bf16":
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=cuda)
    run = model if args.no_compile else torch.compile(model)
    shape = (args.sequences, args.length)
    inputs = torch.randint(config["vocab_size"], shape, device=device)
    targets = torch.randint(config["vocab_size"], shape, device=device)
    times = []
    for step in range(args.steps + 3):
        if cuda:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.params == "fp32"):
            loss = run(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if cuda:
            torch.cuda.synchronize()
        if step >= 3:
            times.append(time.perf_counter() - begin)
    seconds = statistics.median(times)
    rate = args.sequences * args.length / seconds
    print(json.dumps({
        "peer": f"torch {torch.__version__}", "params": args.params, "compiled": not args.no_compile,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "tokens_per_s": round(rate, 1), "step_ms": round(seconds * 1e3, 3),
        "mfu": round(rate * flops_per_token(model, config, args.length) / PEAK_FLOPS, 4) if cuda else None,
        "memory_peak_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "loss": round(loss.item(), 4),
    }))
    return 0


if __name__ == "__main__":
    sys.exit(main())
