#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that transformers and mics read the same model and the same tokens from one folder.

    pip install torch transformers tokenizers==0.23.3 && tools/check_exports.py build/mics

For each family: transformers makes a small random model and saves it in several files, with a tokenizer
of tests/golden/tokenizers beside it, as folders are downloaded. "mics convert" exports it.
Read back by Auto classes, the export must have the same bits in all tensors, the same logits, and the
ids that `tokenizers` gives for hostile texts. "mics generate" must write what model.generate
does, from the folder and from the export. No test runs this: the tests need no Python.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import make_tokenizer_families as families

TOKENIZERS = pathlib.Path(__file__).parent.parent / "tests/golden/tokenizers"
PROMPTS = ["the words of the day", "", "Yesterday\u2019s 4 caf\u00e9s,\n  at night"]
NEW_TOKENS = 24
SHAPE = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=128)
GROUPED = dict(SHAPE, num_key_value_heads=2)

# Tokenizer, tokens that begin and end a text, and the model.
CASES = {
    "gpt2": ("gpt2", None, "<|endoftext|>", dict(
        model_type="gpt2", n_embd=48, n_layer=2, n_head=4, n_positions=128)),
    "gpt_neox": ("neox", None, "<|endoftext|>", dict(SHAPE, model_type="gpt_neox", hidden_size=64)),
    "llama2": ("llama2", "<s>", "</s>", dict(GROUPED, model_type="llama")),
    "llama2_metaspace": ("metaspace", "<s>", "</s>", dict(GROUPED, model_type="llama")),
    "llama3": ("llama3", "<|begin_of_text|>", "<|end_of_text|>", dict(
        GROUPED, model_type="llama", rope_parameters=dict(
            rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
            high_freq_factor=4.0, original_max_position_embeddings=32))),
    "mistral": ("mistral", "<s>", "</s>", dict(GROUPED, model_type="mistral", sliding_window=16)),
    "qwen2": ("qwen2", None, "<|im_end|>", dict(GROUPED, model_type="qwen2")),
    "mixtral": ("llama2", "<s>", "</s>", dict(GROUPED, model_type="mixtral", num_local_experts=4, num_experts_per_tok=2)),
    "qwen2_moe": ("qwen2", None, "<|im_end|>", dict(
        GROUPED, model_type="qwen2_moe", num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
        shared_expert_intermediate_size=40)),
    "qwen3_moe": ("qwen2", None, "<|im_end|>", dict(
        GROUPED, model_type="qwen3_moe", num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, head_dim=24)),
    "qwen3": ("qwen2", None, "<|im_end|>", dict(GROUPED, model_type="qwen3", head_dim=24)),
}


def make(name, folder):
    tokenizer_name, begin, end, shape = CASES[name]
    tokenizer = Tokenizer.from_file(str(TOKENIZERS / (tokenizer_name + ".json")))
    torch.manual_seed(5)
    config = AutoConfig.for_model(
        **shape, vocab_size=tokenizer.get_vocab_size(), tie_word_embeddings=name in ("gpt2", "qwen3"),
        bos_token_id=tokenizer.token_to_id(begin) if begin else None,
        eos_token_id=tokenizer.token_to_id(end), pad_token_id=None)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for param in model.parameters():  # logits far enough from each other that no rounding swaps them
        if param.dim() > 1:
            torch.nn.init.normal_(param, std=0.3)
    model.save_pretrained(folder, max_shard_size="60KB")
    shutil.copy(TOKENIZERS / (tokenizer_name + ".json"), folder / "tokenizer.json")
    return model.eval(), tokenizer


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True)
    if done.returncode != 0:
        sys.exit(done.stderr.decode())
    return done.stdout


def check_tokens(folder, tokenizer):
    read = AutoTokenizer.from_pretrained(folder)
    if len(read) != tokenizer.get_vocab_size():
        sys.exit("%s: %d tokens, not %d" % (folder, len(read), tokenizer.get_vocab_size()))
    for index in range(families.TEXTS):
        if index % 4 == 3:
            continue  # no UTF-8
        text = families.hostile(index).decode()
        if read(text).input_ids != tokenizer.encode(text).ids:
            sys.exit("%s: other ids for %r" % (folder, text))
    return read


@torch.no_grad()
def check_model(folder, model):
    read = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype="float32")
    expected, have = model.state_dict(), read.state_dict()
    if expected.keys() != have.keys() or not all(torch.equal(expected[k], have[k]) for k in have):
        sys.exit("%s: other tensors" % folder)
    ids = torch.arange(60).reshape(2, 30)
    if not torch.equal(model(ids).logits, read(ids).logits):
        sys.exit("%s: other logits" % folder)
    if read.generation_config.eos_token_id != model.generation_config.eos_token_id:
        sys.exit("%s: another eos_token_id" % folder)


def same_text(have, expected):
    """Decoders take away a space at the begin, and differ in what they show for bytes that are no UTF-8."""
    have, expected = have.lstrip(" "), expected.lstrip(" ")
    whole = expected.find("\ufffd")
    return have == expected if whole < 0 else have[:whole] == expected[:whole]


@torch.no_grad()
def check_text(mics, folder, model, read, prompt):
    ids = read(prompt, return_tensors="pt").input_ids
    if ids.numel() == 0:
        return  # model.generate needs a token to begin with
    out = model.generate(ids, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0)[0]
    new = out[ids.shape[1]:].tolist()
    if new and new[-1] == model.generation_config.eos_token_id:
        new.pop()
    expected = read.decode(new, clean_up_tokenization_spaces=False)
    text = run(mics, "generate", folder, "--prompt", prompt, "--tokens", NEW_TOKENS,
               "--temperature", 0).decode(errors="replace")
    have = text[len(prompt):-1]
    if not same_text(have, expected):
        sys.exit("%s: %r goes on with %r, not %r" % (folder, prompt, have, expected))


def check(mics, name, place):
    folder, export = place / name, place / (name + "_export")
    model, tokenizer = make(name, folder)
    run(mics, "convert", folder, export)
    check_model(export, model)
    read = check_tokens(export, tokenizer)
    for prompt in PROMPTS:
        check_text(mics, folder, model, read, prompt)
        check_text(mics, export, model, read, prompt)
    print("%s: same tensors, logits, ids and text" % name)


def main():
    with tempfile.TemporaryDirectory() as place:
        for name in CASES:
            check(sys.argv[1], name, pathlib.Path(place))


if __name__ == "__main__":
    main()
