#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""How far trainings in bf16 are from fp32: mics with either run.residual_dtype, and PyTorch's autocast, alone and with
parameters rounded to bf16 for forward and backward, as those of mics are.

usage: residual_noise.py MICS CONFIG.json [--layers N] [--seeds N] [--steps N] [--sequences B] [--length T] [--lr R]

A seed has one model by transformers, from which all trainings start, and one batch, which each step takes: so that mics
and PyTorch see the same tokens. AdamW without decay, no clipping, on the CPU. Each program is compared with itself in
fp32. Prints, of each training in bf16: how far the first step's loss and gradient norm are, relative, as the root of the
mean square over seeds; the same of all steps' losses, as the median over seeds; and the first seed's curves.
Needs torch, transformers and a CPU with bf16.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import torch
import transformers

AUTOCAST = "torch, autocast"
ROUNDED = {"autocast, vectors in bf16": 1, "autocast, all weights in bf16": 2}
TRAININGS = {"mics, same": "same", "mics, fp32 residual": "fp32"}


class Rounded:
    """Within it, parameters are what bf16 has of them, as in mics; those of one dimension, or all. Steps take the whole."""

    def __init__(self, model, dims):
        self.parameters = [p for p in model.parameters() if p.dim() <= dims]

    def __enter__(self):
        self.masters = [p.data for p in self.parameters]
        for p in self.parameters:
            p.data = p.data.bfloat16().float()

    def __exit__(self, *_):
        for p, master in zip(self.parameters, self.masters):
            p.data = master


def train_torch(folder, tokens, arguments, autocast, rounded_dims=0):
    """Losses, and norms of gradients."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    losses, norms = [], []
    for _ in range(arguments.steps):
        with Rounded(model, rounded_dims):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                logits = model(input_ids=tokens[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf")).item())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses, norms


def train_mics(folder, arguments, precision, residual):
    with tempfile.TemporaryDirectory() as out:
        run = {
            "model": {"config": str(folder / "config.json"), "init": str(folder)},
            "data": {"train": [str(folder / "tokens.bin")], "dtype": "uint8", "tokenizer": "bytes",
                     "sequence_length": arguments.length},
            "run": {"steps": arguments.steps, "out": out + "/run", "device": "cpu", "threads": 1, "precision": precision,
                    "residual_dtype": residual, "validation_batches": 0, "checkpoint_every": 0},
            "train_micro_batch_size_per_gpu": arguments.sequences,
            "optimizer": {"type": "AdamW", "params": {"lr": arguments.lr}},
        }
        path = pathlib.Path(out, "run.json")
        path.write_text(json.dumps(run))
        subprocess.run([arguments.mics, "train", str(path)], check=True, capture_output=True)
        lines = pathlib.Path(out, "run", "metrics.jsonl").read_text().splitlines()
    steps = [row for row in map(json.loads, lines) if "grad_norm" in row]
    return [row["loss"] for row in steps], [row["grad_norm"] for row in steps]


def root_mean_square(values):
    return (sum(value * value for value in values) / len(values)) ** 0.5


def make_seed(folder, config, seed, arguments):
    """A model, and the tokens of a batch: one text, with the token that the last one predicts."""
    torch.manual_seed(seed)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    sequences, length = arguments.sequences, arguments.length
    texts = sorted(pathlib.Path(__file__).parents[2].glob("examples/corpus/*.txt"))
    corpus = b"".join(path.read_bytes() for path in texts)
    begin = seed * 1009 % (len(corpus) - sequences * length - 1)
    text = corpus[begin:begin + sequences * length + 1]
    (folder / "tokens.bin").write_bytes(text)
    return torch.tensor([list(text[s * length:(s + 1) * length + 1]) for s in range(sequences)])


def run_seed(seed, config, arguments):
    """By training: losses and norms less those of fp32, relative. And the largest gap of both programs in fp32."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tokens = make_seed(folder, config, seed, arguments)
        exact = train_torch(folder, tokens, arguments, False)
        ours = train_mics(folder, arguments, "fp32", "same")
        got = {AUTOCAST: (train_torch(folder, tokens, arguments, True), exact)}
        for label, dims in ROUNDED.items():
            got[label] = (train_torch(folder, tokens, arguments, True, dims), exact)
        for label, residual in TRAININGS.items():
            got[label] = (train_mics(folder, arguments, "bf16", residual), ours)
    off = {label: [[a / b - 1 for a, b in zip(*pair)] for pair in zip(have, own)] for label, (have, own) in got.items()}
    return off, max(abs(a / b - 1) for a, b in zip(exact[0], ours[0]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mics")
    parser.add_argument("config")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-4)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    config = transformers.AutoConfig.from_pretrained(arguments.config)
    if arguments.layers is not None:
        config.num_hidden_layers = arguments.layers
    seeds = []
    for seed in range(1, arguments.seeds + 1):
        off, gap = run_seed(seed, config, arguments)
        seeds.append(off)
        print(f"seed {seed}: fp32 of both {gap:.1e} apart; losses off by " +
              ", ".join(f"{root_mean_square(losses):.2e} ({label})" for label, (losses, _) in off.items()), flush=True)
    for label in seeds[0]:
        loss, norm = (root_mean_square([off[label][i][0] for off in seeds]) for i in range(2))
        noises = [root_mean_square(off[label][0]) for off in seeds]
        ratio = statistics.median(a / root_mean_square(off[AUTOCAST][0]) for a, off in zip(noises, seeds))
        print(f"{label}: first loss {loss:.2e}, first norm {norm:.2e}; {arguments.steps} losses "
              f"{statistics.median(noises):.2e}, {ratio:.2f} of autocast's")
    print("step: losses off, of the first seed: " + ", ".join(seeds[0]))
    for step in range(arguments.steps):
        print(f"{step + 1}: " + ", ".join(f"{losses[step]:+.6f}" for losses, _ in seeds[0].values()))


if __name__ == "__main__":
    main()
