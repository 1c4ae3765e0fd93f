#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that transformers and mics read the same model and the same tokens from one folder.

    pip install torch transformers tokenizers==0.23.3 && tools/check_exports.py build/mics

For each family: transformers makes a small random model and saves it in several files, with a tokenizer
of tests/golden/tokenizers beside it, as folders are downloaded. "mics convert" exports it.
Read back by Auto classes, the export must have the same bits in all tensors, the same logits, and the
ids that `tokenizers` gives for hostile texts. "mics generate" must write what model.generate
does, from the folder and from the export.

For each family of tests/golden/chat: "mics train" starts from the folder, at a rate of 0 and at a real one.
The folder is then taken away, and the runs are exported. Each export has the folder's files, tokens, chats
and generation_config. At 0 it has its logits; at the other rate transformers' loss is that of "mics eval".
No test runs this: the tests need no Python.
"""

import json
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


# ---- tuned models ----

CHATS = pathlib.Path(__file__).parent.parent / "tests/golden/chat"
TEXT = "Not far: 17 steps to the quay, then 4 stairs.\n" * 60


def check_same_use(folder, export):
    """Bytes of the files, ids, special tokens and chats."""
    for path in folder.glob("**/*"):
        if path.is_file() and path.name not in ("config.json", "model.safetensors"):
            if path.read_bytes() != (export / path.relative_to(folder)).read_bytes():
                sys.exit("%s: another %s" % (export, path.name))
    expected, have = AutoTokenizer.from_pretrained(folder), AutoTokenizer.from_pretrained(export)
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "unk_token_id", "all_special_ids"):
        if getattr(expected, name) != getattr(have, name):
            sys.exit("%s: another %s" % (export, name))
    if expected.get_vocab() != have.get_vocab() or expected(TEXT).input_ids != have(TEXT).input_ids:
        sys.exit("%s: other ids" % export)
    for line in (CHATS / "chats.jsonl").read_text().splitlines():
        messages = json.loads(line)["messages"]
        for how in (dict(tokenize=False), dict(return_dict=True, return_assistant_tokens_mask=True)):
            if expected.apply_chat_template(messages, **how) != have.apply_chat_template(messages, **how):
                sys.exit("%s: another chat for %s" % (export, line))
    return have


@torch.no_grad()
def check_tuned_model(folder, export, rate):
    shape = dict(attn_implementation="eager", dtype="float32")
    model, read = (AutoModelForCausalLM.from_pretrained(path, **shape).eval() for path in (folder, export))
    kept, have = json.loads((folder / "config.json").read_text()), json.loads((export / "config.json").read_text())
    lost = [key for key in kept if have.get(key) != kept[key]]
    if lost or read.generation_config.to_dict() != model.generation_config.to_dict():
        sys.exit("%s: another config.json or generation_config.json: %s" % (export, lost))
    ids = torch.arange(60).reshape(2, 30)
    if torch.equal(model(ids).logits, read(ids).logits) != (rate == 0):
        sys.exit("%s: logits %s at a rate of %g" % (export, "differ" if rate == 0 else "are the same", rate))
    return read


@torch.no_grad()
def check_loss(mics, place, export, model):
    """Of windows that overlap by a token, as mics cuts them; <s> stands before the text."""
    length = 64
    (place / "text.txt").write_text(TEXT)
    said = json.loads(run(mics, "eval", export, "--data", place / "text.txt", "--json", "--sequence", length))
    before = AutoTokenizer.from_pretrained(export)(TEXT).input_ids
    total, count = 0.0, 0
    for at in range(0, len(before) - 1, length):
        row = torch.tensor([before[at:at + length + 1]])
        logits = model(row[:, :-1]).logits.double()
        total += torch.nn.functional.cross_entropy(logits[0], row[0, 1:], reduction="sum").item()
        count += row.shape[1] - 1
    if said["tokens"] != count or abs(said["loss"] - total / count) > 1e-4:
        sys.exit("%s: loss %.6f of %d tokens, in transformers %.6f of %d" % (
            export, said["loss"], said["tokens"], total / count, count))


def check_tuned(mics, family, place):
    folder, started = place / "kept" / family, place / "started"
    shutil.copytree(CHATS / family, folder, ignore=shutil.ignore_patterns("losses.json", "samples.json"))
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates/short.jinja").write_text("{{ messages[-1]['content'] }}")
    (folder / "special_tokens_map.json").write_text("{}\n")
    (place / "train.txt").write_text(TEXT)
    for rate in (0, 1e-3):
        out, export = place / ("%s_%g" % (family, rate)), place / ("%s_%g_export" % (family, rate))
        shutil.copytree(folder, started)
        run(mics, "train", "--model", started, "--data", place / "train.txt", "--steps", 3, "--out", out, "--set",
            "optimizer.params.lr=%g" % rate, "--set", "train_micro_batch_size_per_gpu=2", "--set",
            "run.validation_batches=0")
        shutil.rmtree(started)
        run(mics, "convert", out, export)
        check_same_use(folder, export)
        check_loss(mics, place, export, check_tuned_model(folder, export, rate))
    print("%s: tuned: same files, ids, chats, logits and loss" % family)


def main():
    with tempfile.TemporaryDirectory() as place:
        for name in CASES:
            check(sys.argv[1], name, pathlib.Path(place))
        for path in sorted(CHATS.iterdir()):
            if path.is_dir():
                check_tuned(sys.argv[1], path.name, pathlib.Path(place))


if __name__ == "__main__":
    main()
