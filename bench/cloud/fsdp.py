#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Training steps of a GPT-2 or Llama shape by PyTorch's FSDP2 over gloo, on CPUs: a rank of what fsdp.sh or lora.sh starts.

usage: fsdp.py CONFIG.json KIND [--sequences B] [--length T] [--micro-steps S] [--steps N] [--warm-up W]
               [--ranks-per-node K] [--lora R] [--precision fp32|bf16]

KIND: zero3 shards over all ranks, hsdp over the ranks of a node with replicas on the others. A suffix says what is
saved of communication, at the cost of memory:

    (none)     parameters are gathered for forward and again for backward, gradients reduced in every micro-step; of
               hsdp gradients cross nodes once a step
    -keep      parameters stay gathered between forward and backward
    -once      parameters are gathered, and gradients reduced, once a step; whole gradients are kept until then

--lora trains an adapter of PEFT's on all linears. Then the unit of embeddings and head stays gathered between forward and
backward, as is FSDP2's default. In bf16 the frozen base is stored in bf16, what is trained in fp32, and gathers, GEMMs and
reductions are in bf16.

Rank 0 prints the median milliseconds of a step, the first W (2) left out, its peak of resident memory in MiB in steps, and
how much of that was resident after the imports.
"""
import argparse
import ctypes
import os
import statistics
import time

import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def resident_mib(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(name))


def forget_peak():
    """What the whole model took before it was sharded is given back, and VmHWM counts from here."""
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")


def make_model(arguments, config):
    dtype = torch.bfloat16 if arguments.lora and arguments.precision == "bf16" else torch.float32
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=dtype)
    if arguments.lora:
        import peft
        settings = peft.LoraConfig(task_type="CAUSAL_LM", r=arguments.lora, lora_alpha=2 * arguments.lora,
                                   target_modules="all-linear")
        model = peft.get_peft_model(model, settings)
    return model.train()


def shard(model, mesh, arguments):
    """Units as mics has them: embeddings and head together, and each layer."""
    keep = arguments.kind.endswith(("-keep", "-once"))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if arguments.precision == "bf16" else None)
    base = model.get_base_model() if arguments.lora else model
    for layer in base.transformer.h if hasattr(base, "transformer") else base.model.layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=not keep, mp_policy=policy)
    root = None if arguments.lora else not keep
    return fully_shard(model, mesh=mesh, reshard_after_forward=root, mp_policy=policy)


def trained(model):
    return [weight for weight in model.parameters() if weight.requires_grad]


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
    torch.nn.utils.clip_grad_norm_(trained(model), 1.0)
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
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--ranks-per-node", type=int, default=2)
    parser.add_argument("--lora", type=int, default=0)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    arguments = parser.parse_args()
    imported = resident_mib("VmRSS")
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
    model = shard(make_model(arguments, config), mesh, arguments)
    optimizer = torch.optim.AdamW(trained(model), lr=1e-4, weight_decay=0.1)
    forget_peak()
    times = []
    for _ in range(arguments.steps + arguments.warm_up):
        dist.barrier()
        begin = time.perf_counter()
        train_step(model, optimizer, arguments, config.vocab_size)
        times.append(time.perf_counter() - begin)
    dist.barrier()
    if rank == 0:
        milliseconds = statistics.median(times[arguments.warm_up:]) * 1e3
        print(f"{milliseconds:.1f} {resident_mib('VmHWM'):.0f} {imported:.0f}")
    dist.destroy_process_group()


main()
