#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/trainer: files of TrainingArguments, and the losses of the Trainer's own runs.

    pip install torch numpy safetensors transformers accelerate
    tools/make_trainer_golden.py [OUT]         # OUT: tests/golden/trainer of this repository

Each run is Hugging Face's Trainer on the CPU, in float32, from the same weights; its arguments are
dumped as they are (to_json_string). Batches are those of `mics train` with the same seed: an epoch's
windows in the order of src/base/rng.c. A line of losses.txt is NAME STEP LOSS LR; the loss of a step
is the mean over its micro-steps, before the update.
"""

import json
import pathlib
import sys
import tempfile

import numpy
import torch
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Trainer,
                          TrainingArguments)

TOKENS, VOCAB, SEQUENCE, WINDOWS = 641, 61, 16, 40
ORDER_STREAM = 0x5A << 56  # src/io/data/sample.c
MASK = (1 << 32) - 1


# ---- the order of windows, as src/base/rng.c has it ----

def philox(key, counter):
    k0, k1 = key & MASK, key >> 32
    c0, c1, c2, c3 = counter
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK, (p0 >> 32) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


def bits(seed, stream, index):
    c0, c1, _, _ = philox(seed, (index & MASK, index >> 32, stream & MASK, stream >> 32))
    return c0 | c1 << 32


def permute(seed, stream, count, index):
    half = 1
    while half < 32 and 1 << 2 * half < count:
        half += 1
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for turn in range(6):
            left, right = right, left ^ (bits(seed, stream, right << 3 | turn) & mask)
        index = left << half | right
        if index < count:
            return index


class Order(torch.utils.data.Sampler):
    """One epoch after another."""

    def __init__(self, seed):
        self.seed, self.epoch = seed, 0

    def __len__(self):
        return WINDOWS

    def __iter__(self):
        stream, self.epoch = ORDER_STREAM | self.epoch, self.epoch + 1
        return iter([permute(self.seed, stream, WINDOWS, i) for i in range(WINDOWS)])


# ---- models and tokens ----

def make_model(name):
    torch.manual_seed(len(name))
    ids = dict(bos_token_id=0, eos_token_id=0)
    if name == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(
            vocab_size=VOCAB, n_positions=24, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, **ids))
    else:
        model = LlamaForCausalLM(LlamaConfig(
            vocab_size=VOCAB, max_position_embeddings=24, hidden_size=16, intermediate_size=40,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, **ids))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    return model


def make_tokens():
    """A linear rule with noise, so that it can be learnt."""
    generator = torch.Generator().manual_seed(5)
    noise = torch.randint(VOCAB, (TOKENS,), generator=generator)
    tokens = noise.clone()
    for i in range(1, TOKENS):
        tokens[i] = noise[i] if i % 5 == 0 else (3 * tokens[i - 1] + 1) % VOCAB
    return tokens


def write_tokens(path, tokens):
    """llm.c's format: 256 words of a header, then 16 bits a token."""
    head = numpy.zeros(256, dtype="<i4")
    head[:3] = 20240520, 1, len(tokens)
    path.write_bytes(head.tobytes() + tokens.numpy().astype("<u2").tobytes())


# ---- runs ----

CASES = [
    ("defaults", "gpt2", dict()),
    ("cosine_warmup", "gpt2", dict(lr_scheduler_type="cosine", warmup_steps=4)),
    ("constant", "gpt2", dict(lr_scheduler_type="constant")),
    ("constant_warmup", "gpt2", dict(lr_scheduler_type="constant_with_warmup", warmup_steps=5)),
    ("warmup_share", "gpt2", dict(warmup_steps=0.25)),
    ("polynomial", "gpt2", dict(lr_scheduler_type="polynomial", warmup_steps=2,
                                lr_scheduler_kwargs={"lr_end": 1e-5, "power": 2.0})),
    ("restarts", "gpt2", dict(lr_scheduler_type="cosine_with_restarts", warmup_steps=2,
                              lr_scheduler_kwargs={"num_cycles": 3})),
    ("cosine_min", "llama", dict(lr_scheduler_type="cosine_with_min_lr", warmup_steps=2,
                                 lr_scheduler_kwargs={"min_lr_rate": 0.1})),
    ("inverse_sqrt", "llama", dict(lr_scheduler_type="inverse_sqrt", warmup_steps=3)),
    ("stable_decay", "llama", dict(
        lr_scheduler_type="warmup_stable_decay", warmup_steps=3,
        lr_scheduler_kwargs={"num_stable_steps": 4, "num_decay_steps": 5, "min_lr_ratio": 0.1})),
    ("accumulated", "gpt2", dict(per_device_train_batch_size=2, gradient_accumulation_steps=4)),
    ("clipped", "gpt2", dict(max_grad_norm=0.05)),
    ("unclipped", "llama", dict(max_grad_norm=0.0)),
    ("decayed", "llama", dict(weight_decay=0.3, adam_beta1=0.8, adam_beta2=0.95,
                              adam_epsilon=1e-6)),
    ("sgd", "gpt2", dict(optim="sgd", learning_rate=0.1, weight_decay=0.01)),
    ("fused", "llama", dict(optim="adamw_torch_fused", seed=7, weight_decay=0.1)),
    ("recomputed", "gpt2", dict(gradient_checkpointing=True, lr_scheduler_type="cosine")),
    ("epochs", "gpt2", dict(max_steps=-1, num_train_epochs=3, per_device_train_batch_size=4,
                            gradient_accumulation_steps=2, seed=1 << 20)),
]


class Watched(Trainer):
    """Keeps losses and rates; takes windows in the order of mics."""

    def _get_train_sampler(self, *_):
        return Order(self.args.seed)

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.micro.append((loss.item(), self.optimizer.param_groups[0]["lr"]))
        return loss


def train(name, kind, settings, tokens, weights, out):
    settings = dict(dict(per_device_train_batch_size=8, max_steps=12, learning_rate=2e-3), **settings)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, use_cpu=True, report_to=[], save_strategy="no",
                                 disable_tqdm=True, dataloader_pin_memory=False, **settings)
        model = make_model(kind)
        model.load_state_dict(weights[kind])
        windows = [{"input_ids": tokens[i * SEQUENCE:(i + 1) * SEQUENCE + 1]} for i in range(WINDOWS)]
        for window in windows:
            window["labels"] = window["input_ids"].clone()
            window["labels"][0] = -100  # nothing predicts it, but the Trainer would divide by it too
        trainer = Watched(model=model, args=args, train_dataset=windows)
        trainer.micro = []
        trainer.train()
        dump = args.to_json_string().replace(json.dumps(folder)[1:-1], "out")
    each = settings.get("gradient_accumulation_steps", 1)
    lines = []
    for step in range(len(trainer.micro) // each):
        parts = trainer.micro[step * each:(step + 1) * each]
        lines.append(f"{name} {step + 1} {sum(p[0] for p in parts):.9g} {parts[0][1]:.9g}\n")
    (out / f"{name}.json").write_text(json.dumps(json.loads(dump), separators=(",", ":")) + "\n")
    return lines


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "tests/golden/trainer"
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    tokens, weights, lines = make_tokens(), {}, []
    write_tokens(out / "tokens.bin", tokens)
    for kind in ("gpt2", "llama"):
        model = make_model(kind)
        model.save_pretrained(out / kind)
        (out / kind / "generation_config.json").unlink(missing_ok=True)
        weights[kind] = model.state_dict()
    for name, kind, settings in CASES:
        lines += train(name, kind, settings, tokens, weights, out)
    (out / "losses.txt").write_text("".join(lines))
    (out / "models.txt").write_text("".join(f"{name} {kind}\n" for name, kind, _ in CASES))


if __name__ == "__main__":
    main()
