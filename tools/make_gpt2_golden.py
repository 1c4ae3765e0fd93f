#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/gpt2*: small random GPT-2 models and what training them must give.

The reference is GPT2LMHeadModel of Hugging Face transformers, run on the CPU in float64 with eager
attention and no dropout; results are stored as float32. The tests read the files and need no
Python. tests/golden/README.md says what each tensor is.

    pip install torch numpy safetensors transformers
    tools/make_gpt2_golden.py [OUT]            # OUT: tests/golden of this repository
"""

import json
import pathlib
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

STEPS = 20
LR, BETAS, EPS, WEIGHT_DECAY = 1e-3, (0.9, 0.95), 1e-8, 0.1

# Odd numbers on purpose: nothing is a multiple of a vector register, a block or a rank count.
# max_norm lies below all gradient norms of the first and the last, amid those of the second.
VARIANTS = {
    "gpt2": dict(seed=20, batch=3, tokens=17, tied=True, max_norm=1.0, n_layer=3, n_head=5,
                 n_embd=40, n_positions=24, vocab_size=101),
    "gpt2_untied": dict(seed=21, batch=2, tokens=9, tied=False, max_norm=1.4, n_layer=2, n_head=3,
                        n_embd=15, n_positions=11, vocab_size=37),
    "gpt2_hub": dict(seed=22, batch=2, tokens=7, tied=True, max_norm=1.0, n_layer=1, n_head=2,
                     n_embd=10, n_positions=13, vocab_size=29),
    "gpt2_gelu": dict(seed=23, batch=2, tokens=7, tied=True, max_norm=1.0, n_layer=2, n_head=2,
                      n_embd=10, n_positions=13, vocab_size=29, activation="gelu"),
    "gpt2_relu": dict(seed=24, batch=2, tokens=7, tied=True, max_norm=1.0, n_layer=2, n_head=2,
                      n_embd=10, n_positions=13, vocab_size=29, activation="relu"),
    "gpt2_silu": dict(seed=25, batch=2, tokens=7, tied=True, max_norm=1.0, n_layer=2, n_head=2,
                      n_embd=10, n_positions=13, vocab_size=29, activation="silu"),
}


def make_model(variant, generator):
    """A float32-representable model: no weight, bias or gain that a wrong kernel could ignore."""
    config = GPT2Config(
        vocab_size=variant["vocab_size"], n_positions=variant["n_positions"],
        n_embd=variant["n_embd"], n_layer=variant["n_layer"], n_head=variant["n_head"],
        activation_function=variant.get("activation", "gelu_new"),
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        tie_word_embeddings=variant["tied"], attn_implementation="eager")
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = 0.08 * torch.randn(weight.shape, generator=generator)
            is_gain = ".ln_" in name and name.endswith("weight")
            weight.copy_(1.0 + 2.0 * noise if is_gain else noise)
    return model


def make_batches(variant, generator):
    """Inputs and targets (STEPS, batch, tokens): a linear rule with noise, so that it can be learnt."""
    vocab = variant["vocab_size"]
    text = torch.empty(STEPS, variant["batch"], variant["tokens"] + 1, dtype=torch.long)
    text[..., 0] = torch.randint(vocab, text.shape[:-1], generator=generator)
    for t in range(1, text.shape[-1]):
        noise = torch.randint(vocab, text.shape[:-1], generator=generator)
        is_noise = torch.rand(text.shape[:-1], generator=generator) < 0.2
        text[..., t] = torch.where(is_noise, noise, (5 * text[..., t - 1] + 7) % vocab)
    return text[..., :-1].contiguous(), text[..., 1:].contiguous()


def loss_of(model, inputs, targets):
    """Logits and mean cross-entropy over all positions; the targets are already shifted."""
    logits = model(inputs).logits
    return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_optimizer(model):
    """Decay on matrices (embeddings included), none on biases and layernorms."""
    weights = list(model.parameters())
    groups = [{"params": [w for w in weights if w.dim() >= 2], "weight_decay": WEIGHT_DECAY},
              {"params": [w for w in weights if w.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)


def train(model, inputs, targets, max_norm, beside=lambda model, inputs: 0.0):
    """Runs STEPS steps in float64 and returns what the tests compare. The objective is the loss and
    what stands beside it."""
    golden = {"hyper": torch.tensor([LR, *BETAS, EPS, WEIGHT_DECAY, max_norm])}
    losses, norms = [], []
    optimizer = make_optimizer(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        logits, loss = loss_of(model, inputs[step], targets[step])
        (loss + beside(model, inputs[step])).backward()
        if step == 0:
            golden["logits"], golden["loss"] = logits.detach(), loss.detach().reshape(1)
            golden |= {f"grad.{n}": w.grad.clone() for n, w in model.named_parameters()}
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm))
        losses.append(loss.detach())
        optimizer.step()
    golden["losses"], golden["grad_norms"] = torch.stack(losses), torch.stack(norms)
    golden |= {f"final.{n}": w.detach() for n, w in model.named_parameters()}
    return golden


def save_as_on_the_hub(folder, config):
    """Renames as in the files of the "gpt2" repository: no prefix, and a causal mask a layer."""
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        tensors = {n.removeprefix("transformer."): file.get_tensor(n) for n in file.keys()}
    mask = torch.ones(config.n_positions, config.n_positions).tril()[None, None]
    tensors |= {f"h.{layer}.attn.bias": mask.clone() for layer in range(config.n_layer)}
    save_file(tensors, path, metadata={"format": "pt"})


def save_config(folder, config):
    """config.json without the versions of the tools that made it."""
    fields = config.to_diff_dict() | {
        "architectures": ["GPT2LMHeadModel"], "n_ctx": config.n_positions,
        "activation_function": config.activation_function,
        "layer_norm_epsilon": config.layer_norm_epsilon,
        "initializer_range": config.initializer_range,
        "tie_word_embeddings": config.tie_word_embeddings}
    for key in ("transformers_version", "dtype", "torch_dtype", "_attn_implementation"):
        fields.pop(key, None)
    (folder / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")


def make(folder, variant):
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(variant["seed"])
    model = make_model(variant, generator)
    inputs, targets = make_batches(variant, generator)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_config(folder, model.config)
    if folder.name == "gpt2_hub":
        save_as_on_the_hub(folder, model.config)
    golden = {"inputs": inputs, "targets": targets}
    golden |= train(model.double(), inputs, targets, variant["max_norm"])
    golden = {n: t.to(torch.float32).contiguous() for n, t in golden.items()}
    save_file(golden, folder / "golden.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)
    print(f"{folder}: loss {golden['losses'][0]:.4f} to {golden['losses'][-1]:.4f}, "
          f"gradient norm {golden['grad_norms'].min():.3f} to {golden['grad_norms'].max():.3f}, "
          f"{sum(f.stat().st_size for f in folder.iterdir())} bytes")


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    for name, variant in VARIANTS.items():
        make(out / name, variant)


if __name__ == "__main__":
    main()
