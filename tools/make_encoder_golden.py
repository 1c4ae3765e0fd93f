#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/{bert,roberta}_*: small random encoders, and what training them on masked
tokens must give.

The reference is Hugging Face transformers' BertForMaskedLM and RobertaForMaskedLM, run on the CPU
in float64 with eager attention and no dropout, as tools/make_gpt2_golden.py has it.

    pip install torch numpy safetensors transformers
    tools/make_encoder_golden.py [OUT]            # OUT: tests/golden of this repository
"""

import pathlib
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForMaskedLM

import make_decoder_golden as decoder
import make_gpt2_golden as gpt2

VOCAB, MASK = 97, 4

# Odd numbers on purpose; a vocabulary that is no multiple of anything.
VARIANTS = {
    "bert_small": dict(
        model_type="bert", seed=50, batch=3, tokens=17, max_norm=1.0, hidden_size=24,
        intermediate_size=31, num_hidden_layers=2, num_attention_heads=3,
        max_position_embeddings=19, type_vocab_size=2),
    "bert_tanh": dict(
        model_type="bert", seed=51, batch=2, tokens=11, max_norm=1.5, hidden_size=40,
        intermediate_size=23, num_hidden_layers=1, num_attention_heads=1,
        max_position_embeddings=11, type_vocab_size=3, hidden_act="gelu_new",
        layer_norm_eps=1e-5),
    "roberta_small": dict(
        model_type="roberta", seed=52, batch=2, tokens=15, max_norm=1.0, hidden_size=30,
        intermediate_size=37, num_hidden_layers=2, num_attention_heads=5, pad_token_id=1,
        max_position_embeddings=20, type_vocab_size=1, layer_norm_eps=1e-5),
    "roberta_tanh": dict(
        model_type="roberta", seed=53, batch=2, tokens=9, max_norm=1.5, hidden_size=16,
        intermediate_size=21, num_hidden_layers=1, num_attention_heads=2, pad_token_id=1,
        max_position_embeddings=12, type_vocab_size=1, hidden_act="gelu_new",
        layer_norm_eps=1e-5),
}


def make_model(variant, generator):
    """A float32-representable model: no weight, bias or gain that a wrong kernel could ignore."""
    fields = {key: value for key, value in variant.items() if key not in decoder.OWN}
    config = AutoConfig.for_model(**fields, vocab_size=VOCAB, bos_token_id=0, eos_token_id=2,
                                  hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = AutoModelForMaskedLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = 0.08 * torch.randn(weight.shape, generator=generator)
            is_gain = "norm" in name.lower() and name.endswith("weight")
            is_large = any(part in name for part in ("query", "key", "intermediate"))
            weight.copy_(1.0 + 2.0 * noise if is_gain else 4.0 * noise if is_large else noise)
    return model


def make_batches(variant, generator):
    """Texts of which some tokens are hidden, and those as targets; -100 elsewhere."""
    text, _ = gpt2.make_batches(variant | {"vocab_size": VOCAB}, generator)
    text = torch.where(text < 5, text + 5, text)
    hidden = torch.rand(text.shape, generator=generator) < 0.3
    hidden[..., 1] = True
    shown = torch.rand(text.shape, generator=generator) < 0.2
    return torch.where(hidden & ~shown, MASK, text), torch.where(hidden, text, -100)


def check_folder(folder, inputs, logits):
    """That transformers reads the folder as the model that it was written from."""
    model = AutoModelForMaskedLM.from_pretrained(folder, attn_implementation="eager",
                                                 dtype=torch.float64).eval()
    with torch.no_grad():
        off = (model(inputs).logits - logits).abs().max()
    assert off < 1e-5, f"{folder}: read again, logits differ by {off}"


def save_as_on_the_hub(folder):
    """As in the first published files: gammas and betas, the other task's head, tied tensors twice."""
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        tensors = {n: file.get_tensor(n) for n in file.keys()}
    width = tensors["cls.predictions.transform.dense.bias"].shape[0]
    old = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
           for n, t in tensors.items()}
    old |= {"bert.pooler.dense.weight": torch.zeros(width, width),
            "bert.pooler.dense.bias": torch.zeros(width),
            "cls.seq_relationship.weight": torch.zeros(2, width),
            "cls.seq_relationship.bias": torch.zeros(2),
            "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"].clone(),
            "cls.predictions.decoder.bias": tensors["cls.predictions.bias"].clone()}
    save_file(old, path, metadata={"format": "pt"})


def make(folder, variant):
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(variant["seed"])
    model = make_model(variant, generator)
    inputs, targets = make_batches(variant, generator)
    weights = {n: w.detach().clone() for n, w in model.named_parameters()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    decoder.save_config(folder, model.config, variant | {"old": False})
    golden = {"inputs": inputs, "targets": targets}
    golden |= gpt2.train(model.double(), inputs, targets, variant["max_norm"])
    check_folder(folder, inputs[0], golden["logits"])
    if folder.name == "bert_tanh":
        save_as_on_the_hub(folder)
    golden = {n: t.to(torch.float32).contiguous() for n, t in golden.items()
              if not n.startswith("final.")}
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
