#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""How far losses in bf16 are from fp32's: of mics with either run.residual_dtype, and of PyTorch's autocast.

usage: residual_noise.py MICS CONFIG.json [--seeds N] [--steps N] [--sequences B] [--length T] [--lr R]

A seed has one model by transformers, from which all trainings start, and one batch, which each step takes: so that mics
and PyTorch see the same tokens. AdamW without decay, no clipping, on the CPU. A training's noise is the root of the mean
square, over steps, of its loss less its own program's loss in fp32. Prints a line a seed, medians, and the first seed's curves.
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

TRAININGS = {"bf16, same": ("bf16", "same"), "bf16, fp32 residual": ("bf16", "fp32")}


def torch_losses(folder, tokens, arguments, autocast):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    losses = []
    for _ in range(arguments.steps):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = model(input_ids=tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def mics_losses(mics, folder, arguments, precision, residual):
    with tempfile.TemporaryDirectory() as out:
        run = {
            "model": {"config": str(folder / "config.json"), "init": str(folder)},
            "data": {"train": [str(folder / "tokens.bin")], "dtype": "uint8", "tokenizer": "bytes",
                     "sequence_length": arguments.length},
            "run": {"steps": arguments.steps, "out": out + "/run", "device": "cpu", "precision": precision,
                    "residual_dtype": residual, "validation_batches": 0, "checkpoint_every": 0},
            "train_micro_batch_size_per_gpu": arguments.sequences,
            "optimizer": {"type": "AdamW", "params": {"lr": arguments.lr}},
        }
        path = pathlib.Path(out, "run.json")
        path.write_text(json.dumps(run))
        subprocess.run([mics, "train", str(path)], check=True, capture_output=True)
        lines = pathlib.Path(out, "run", "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines if '"loss"' in line]


def noise(losses, exact):
    return (sum((a - b) ** 2 for a, b in zip(losses, exact)) / len(exact)) ** 0.5


def make_seed(folder, config, seed, arguments):
    """A model and the tokens of a batch, one after the other, with the token that the last one predicts."""
    torch.manual_seed(seed)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    sequences, length = arguments.sequences, arguments.length
    corpus = b"".join(path.read_bytes() for path in sorted(pathlib.Path(__file__).parents[2].glob("examples/corpus/*.txt")))
    begin = seed * 1009 % (len(corpus) - sequences * length - 1)
    text = corpus[begin:begin + sequences * length + 1]
    (folder / "tokens.bin").write_bytes(text)
    return torch.tensor([list(text[s * length:(s + 1) * length + 1]) for s in range(sequences)])


def run_seed(seed, config, arguments):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tokens = make_seed(folder, config, seed, arguments)
        exact = {"torch": torch_losses(folder, tokens, arguments, False),
                 "mics": mics_losses(arguments.mics, folder, arguments, "fp32", "same")}
        curves = {"torch, autocast": (torch_losses(folder, tokens, arguments, True), exact["torch"])}
        for label, (precision, residual) in TRAININGS.items():
            curves[label] = (mics_losses(arguments.mics, folder, arguments, precision, residual), exact["mics"])
    return exact, curves


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mics")
    parser.add_argument("config")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    config = transformers.AutoConfig.from_pretrained(arguments.config)
    noises, apart, first = {}, 0.0, None
    for seed in range(1, arguments.seeds + 1):
        exact, curves = run_seed(seed, config, arguments)
        apart = max(apart, max(abs(a - b) for a, b in zip(exact["torch"], exact["mics"])))
        first = first or (exact, curves)
        for label, (losses, own) in curves.items():
            noises.setdefault(label, []).append(noise(losses, own))
        print(f"seed {seed}: " + ", ".join(f"{label} {values[-1]:.2e}" for label, values in noises.items()), flush=True)
    print(f"fp32: mics and torch are {apart:.1e} apart at most")
    for label, values in noises.items():
        ratio = statistics.median(a / b for a, b in zip(values, noises["torch, autocast"]))
        print(f"{label}: noise {statistics.median(values):.2e}, of autocast's {ratio:.2f}")
    print("step  fp32  " + "  ".join(first[1]))
    for step in range(arguments.steps):
        print(f"{step + 1}  {first[0]['mics'][step]:.5f}  " +
              "  ".join(f"{losses[step] - own[step]:+.5f}" for losses, own in first[1].values()))


if __name__ == "__main__":
    main()
