#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/lora: small models, adapters of PEFT's, and the losses of training them.

    pip install torch numpy safetensors transformers==5.24 peft==0.21.2 accelerate
    tools/make_lora_golden.py [OUT]         # OUT: tests/golden/lora of this repository

A folder FAMILY is a model as save_pretrained writes it. CASE/adapter is an adapter of one of them before
training, as PEFT saves it, with a B that is not 0. It is trained for 20 steps by torch's AdamW on the CPU in
float32, on windows of tests/golden/trainer/tokens.bin in the order of `mics train` with the same seed.
CASE/case.json has the family and the loss of each step before its update, CASE/final.safetensors the adapter
after the last one, and CASE/merged.safetensors those tensors of merge_and_unload, before training, that are not
the model's own.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from make_trainer_golden import ORDER_STREAM, SEQUENCE, VOCAB, WINDOWS, make_tokens, permute

SEED, STEPS, BATCH, RATE = 11, 20, 8, 5e-3

SHAPE = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=24)
GROUPED = dict(SHAPE, num_key_value_heads=2)
FAMILIES = {
    "llama": dict(GROUPED),
    "qwen2": dict(GROUPED, tie_word_embeddings=True),
    "qwen3": dict(GROUPED, head_dim=12),
    "mistral": dict(GROUPED, sliding_window=9),
    "gpt2": dict(n_embd=32, n_layer=2, n_head=4, n_positions=24, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    "gpt_neox": dict(SHAPE, rotary_pct=0.5),
    "mixtral": dict(GROUPED, intermediate_size=40, num_local_experts=4, num_experts_per_tok=2,
                    router_aux_loss_coef=0.0),
}

# Name, family, and arguments of LoraConfig.
CASES = [
    ("llama_all", "llama", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    ("llama_rs", "llama", dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj"], use_rslora=True)),
    ("llama_saved", "llama", dict(r=4, lora_alpha=4, target_modules=["k_proj", "down_proj"],
                                  modules_to_save=["lm_head", "embed_tokens"])),
    ("llama_layer", "llama", dict(r=2, lora_alpha=4, target_modules=["layers.1.self_attn.v_proj", "o_proj"])),
    ("qwen2_mlp", "qwen2", dict(r=4, lora_alpha=16, target_modules=["gate_proj", "up_proj"])),
    ("qwen2_q", "qwen2", dict(r=8, target_modules=["q_proj"])),
    ("qwen3_some", "qwen3", dict(r=4, lora_alpha=8, target_modules=["k_proj", "o_proj", "up_proj"],
                                 modules_to_save=["norm"])),
    ("mistral_all", "mistral", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    ("gpt2_all", "gpt2", dict(r=4, lora_alpha=8, target_modules="all-linear", fan_in_fan_out=True)),
    ("gpt2_attn", "gpt2", dict(r=4, lora_alpha=8, target_modules=["c_attn"], fan_in_fan_out=True, use_rslora=True)),
    ("gpt_neox_all", "gpt_neox", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    ("gpt_neox_qkv", "gpt_neox", dict(r=4, lora_alpha=8, target_modules=["query_key_value", "dense_4h_to_h"])),
    # To PEFT "all-linear" is also the router and the experts there.
    ("mixtral_attn", "mixtral", dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])),
]


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)


def make_model(family, out):
    torch.manual_seed(len(family))
    config = AutoConfig.for_model(family, vocab_size=VOCAB, bos_token_id=0, eos_token_id=0,
                                  **FAMILIES[family])
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    model.float().save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)


def save_adapter(model, out, family):
    """Without what the machine and the order of a set bring in."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        folder = pathlib.Path(folder)
        config = json.loads((folder / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = family
        config["target_modules"] = sorted(config["target_modules"])
        out.mkdir(parents=True)
        (out / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
        shutil.copy(folder / "adapter_model.safetensors", out)


def batches(tokens):
    for step in range(STEPS):
        rows = []
        for at in range(step * BATCH, (step + 1) * BATCH):
            window = permute(SEED, ORDER_STREAM | at // WINDOWS, WINDOWS, at % WINDOWS)
            rows.append(tokens[window * SEQUENCE:(window + 1) * SEQUENCE + 1])
        yield torch.stack(rows)


def train(model, tokens):
    """As `mics train` does it: no weight decay, no clipping, the mean over all predictions."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE, weight_decay=0.0)
    losses = []
    for rows in batches(tokens):
        logits = model(input_ids=rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def make_case(name, family, settings, base, out, tokens):
    torch.manual_seed(len(name))
    model = get_peft_model(load(base), LoraConfig(task_type="CAUSAL_LM", **settings))
    with torch.no_grad():
        for path, weight in model.named_parameters():
            if "lora_B" in path:
                weight.add_(0.05 * torch.randn_like(weight))
    save_adapter(model, out / "adapter", family)
    merged = PeftModel.from_pretrained(load(base), out / "adapter").merge_and_unload().state_dict()
    own = load(base).state_dict()
    changed = {key: value.clone().contiguous() for key, value in merged.items() if not torch.equal(value, own[key])}
    save_file(changed, out / "merged.safetensors")
    losses = train(model, tokens)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        save_file(load_file(folder + "/adapter_model.safetensors"), out / "final.safetensors")
    (out / "case.json").write_text(json.dumps({"family": family, "losses": [float("%.9g" % x) for x in losses]}) + "\n")
    print("%s: %.5f to %.5f, %d tensors, %d merged" % (name, losses[0], losses[-1], len(load_file(
        out / "final.safetensors")), len(changed)))


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "tests/golden/lora"
    torch.set_num_threads(1)
    shutil.rmtree(out, ignore_errors=True)
    tokens = make_tokens()
    for family in FAMILIES:
        make_model(family, out / family)
    for name, family, settings in CASES:
        make_case(name, family, settings, out / family, out / name, tokens)


if __name__ == "__main__":
    main()
