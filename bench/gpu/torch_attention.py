#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Causal attention in PyTorch, as its users call it: scaled_dot_product_attention, forward and backward, in bf16.

usage: torch_attention.py C,H,T,B...        channels, heads, length and sequences of each shape

Prints for each shape one line of JSON for each of PyTorch's fused backends (cudnn, flash) that takes it, and on standard
error why another did not. Where none does, the exit status is 1.

    forward_us, backward_us     medians of SAMPLES samples by CUDA events, each of several calls behind each other

Queries, keys and values are slices of one tensor of B x T rows of 3 C, as a step's GEMM leaves them, and the same numbers at
each call: a shape that is worth timing does not fit in the chip's cache. Nothing is compiled. It is a bench, not part of the
product, which needs no Python.
"""
import argparse
import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

SAMPLES, CALLS, WARM_UP_CALLS = 15, 5, 3
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def parse():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].replace("usage: ", ""))
    parser.add_argument("shapes", nargs="+")
    shapes = {}
    for shape in parser.parse_args().shapes:
        try:
            channels, heads, length, sequences = shapes[shape] = [int(number) for number in shape.split(",")]
        except ValueError:
            parser.error(f"{shape} is not four numbers with commas between them")
        if min(channels, heads, length, sequences) < 1 or channels % heads:
            parser.error(f"{shape}: all are at least 1, and the channels whole heads")
    return shapes


def median_us(call):
    for _ in range(WARM_UP_CALLS):
        call()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(SAMPLES + 1)]
    events[0].record()
    for event in events[1:]:
        for _ in range(CALLS):
            call()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:])) * 1e3 / CALLS


def time_backend(backend, shape):
    c, h, t, b = shape
    qkv = torch.randn(b, t, 3, h, c // h, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    doutput = torch.randn(b, t, h, c // h, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
    with sdpa_kernel(backend):
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        forward_us = median_us(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
        output = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        backward_us = median_us(lambda: torch.autograd.grad(output, (q, k, v), doutput, retain_graph=True))
    return forward_us, backward_us


def main():
    shapes = parse()
    if not torch.cuda.is_available():
        print("torch_attention.py: PyTorch sees no GPU", file=sys.stderr)
        return 1
    timed = 0
    for text, shape in shapes.items():
        for name, backend in BACKENDS.items():
            try:
                forward_us, backward_us = time_backend(backend, shape)
            except RuntimeError as error:
                print(f"torch_attention.py: {text}, {name}: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            print(json.dumps({"shape": text, "backend": name, "forward_us": round(forward_us, 2),
                              "backward_us": round(backward_us, 2)}), flush=True)
            timed += 1
    return 0 if timed else 1


if __name__ == "__main__":
    sys.exit(main())
