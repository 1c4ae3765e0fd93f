#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Training steps of a GPT-2 shape by PyTorch's FSDP2 over gloo, on CPUs: a rank of what fsdp.sh starts.

usage: fsdp.py CONFIG.json KIND [--sequences B] [--length T] [--micro-steps S] [--steps N] [--ranks-per-node K]

KIND: zero3 shards over all ranks, hsdp over the ranks of a node with replicas on the others. A suffix says what is
saved of communication, at the cost of memory:

    (none)     parameters are gathered for forward and again for backward, gradients reduced in every micro-step; of
               hsdp gradients cross nodes once a step
    -keep      parameters stay gathered between forward and backward
    -once      parameters are gathered, and gradients reduced, once a step; whole gradients are kept until then

Rank 0 prints the median milliseconds of a step, the first two left out, and its peak of resident memory in MiB.
"""
import argparse
import os
import resource
import statistics
import time

import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WARM_UP_STEPS = 2


def shard(model, mesh, keep):
    """Units as mics has them: embeddings and head together, and each layer."""
    for layer in model.transformer.h:
        fully_shard(layer, mesh=mesh, reshard_after_forward=not keep)
    return fully_shard(model, mesh=mesh, reshard_after_forward=not keep)


def train_step(model, optimizer, arguments, vocabulary):
    once = arguments.kind.endswith("-once")
    for micro_step in range(arguments.micro_steps):
        last = micro_step == arguments.micro_steps - 1
        if once:
            model.set_requires_gradient_sync(last)
            model.set_reshard_after_backward(last)
        elif arguments.kind.startswith("hsdp"):
            model.set_requires_all_reduce(last)
        tokens = torch.randint(vocabulary, (arguments.sequences, arguments.length))
        loss = model(input_ids=tokens, labels=tokens).loss
        (loss / arguments.micro_steps).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("kind")
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--length", type=int, default=4)
    parser.add_argument("--micro-steps", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--ranks-per-node", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rank, ranks = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    if arguments.kind.startswith("hsdp"):
        shape = (ranks // arguments.ranks_per_node, arguments.ranks_per_node)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (ranks,))
    config = transformers.AutoConfig.from_pretrained(arguments.config)
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").train()
    model = shard(model, mesh, arguments.kind.endswith(("-keep", "-once")))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
    times = []
    for _ in range(arguments.steps + WARM_UP_STEPS):
        dist.barrier()
        begin = time.perf_counter()
        train_step(model, optimizer, arguments, config.vocab_size)
        times.append(time.perf_counter() - begin)
    dist.barrier()
    if rank == 0:
        mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{statistics.median(times[WARM_UP_STEPS:]) * 1e3:.1f} {mib:.0f}")
    dist.destroy_process_group()


main()
