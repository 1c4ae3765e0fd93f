#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/chat: small models with chat templates, chats, and the losses of TRL's runs on them.

    pip install torch transformers==5.24 tokenizers==0.23.3 trl==1.16 datasets
    tools/make_chat_golden.py [OUT]         # OUT: tests/golden/chat of this repository

For each family: a folder as save_pretrained writes it, with a tokenizer that was trained on the chats, and a
chat template with {% generation %}. TRL's SFTTrainer trains it on chats.jsonl on the CPU, in float32, unpacked,
with assistant_only_loss. Batches are those of `mics train` with the same seed: chat number n of an epoch is
that which mics_rng_permute gives (src/base/rng.h, src/io/data/sample.c).

FAMILY/losses.json has the loss of each step before its update: the mean over all tokens of the assistant in
the global batch. FAMILY/samples.json has what a chat becomes: ids, cut off behind LENGTH tokens, and which of
them the assistant wrote, as digits.
"""

import json
import pathlib
import sys
import tempfile

import torch
from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from make_trainer_golden import ORDER_STREAM, permute

SEED, STEPS, BATCH, ACCUMULATION, LENGTH, VOCAB = 11, 20, 4, 2, 128, 420

# ---- chats ----

THINGS = ["a brass kettle", "the north gate", "my grandmother's caf\u00e9", "a canal lock", "the slow train",
          "an old almanac", "the r\u00edo seco", "a glass float"]
PLACES = ["Lisboa", "K\u00f8benhavn", "\u4eac\u90fd", "Harwich", "Tromso", "Valpara\u00edso"]
SYSTEMS = ["You answer in one short sentence.", "You are a patient clerk.\nCount before you speak.",
           "Be brief \U0001f642"]


def count(n):
    return "%d, %d and %d" % (n, n + n % 5 + 1, 3 * n)


def opening(n):
    thing, place = THINGS[n % len(THINGS)], PLACES[n % len(PLACES)]
    asked = ["What is %s doing in %s?" % (thing, place), "Add %s." % count(n),
             "Write the word for %s backwards, please" % thing,
             "  Is %s far from here?\nI have %d minutes." % (place, 4 + n % 9)][n % 4]
    told = ["It waits there, as %s does." % THINGS[(n + 3) % len(THINGS)],
            "That makes %d." % (n + n + n % 5 + 1 + 3 * n), "%s!" % thing[::-1],
            "Not far:\n- %d steps to the quay\n- then %d stairs" % (17 * n % 90 + 3, n % 7 + 1)][n % 4]
    return asked, told


def more(n, turn):
    asked = ["And then?", "Why is that?", "Say it again for %s." % PLACES[(n + turn) % len(PLACES)]][(n + turn) % 3]
    told = "Because %s and %s were counted as %s%s" % (
        THINGS[(n + turn) % len(THINGS)], THINGS[(n * turn + 1) % len(THINGS)], count(n + turn),
        "." if turn % 2 else ", and nobody minded; " * (n % 4) + "so it stays.")
    return asked, told


def make_chats():
    """48: of one to four turns, a third with a system's words; some are longer than LENGTH tokens."""
    chats = []
    for n in range(48):
        messages = []
        if n % 3 == 1:
            messages.append(("system", SYSTEMS[n // 3 % len(SYSTEMS)]))
        for turn in range((1, 2, 1, 3, 2, 1, 4)[n % 7]):
            asked, told = opening(n) if turn == 0 else more(n, turn)
            messages += [("user", asked), ("assistant", told)]
        chats.append({"messages": [{"role": role, "content": content} for role, content in messages]})
    return chats


# ---- tokenizers and templates ----

CHATML = """{%- for message in messages %}
{%- if loop.first and message['role'] != 'system' %}{{ '<|im_start|>system\\nYou are a helpful clerk.<|im_end|>\\n' }}{% endif %}
{{- '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['role'] == 'assistant' %}{% generation %}{{ message['content'] | trim + '<|im_end|>' }}{% endgeneration %}
{%- else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

INST = """{{- bos_token }}
{%- for message in messages %}
{%- if message['role'] == 'system' %}{{ '[SYS] ' ~ message['content'] ~ ' [/SYS]' }}
{%- elif message['role'] == 'user' %}{{ '[INST] ' ~ message['content'] | trim ~ ' [/INST]' }}
{%- else %}{% generation %}{{ ' ' ~ message['content'] ~ eos_token }}{% endgeneration %}{% endif %}
{%- endfor %}"""

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CHATML_TOKENS = dict(unk_token=None, bos_token=None, eos_token="<|im_end|>", pad_token="<|pad|>")
INST_TOKENS = dict(unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>")
STYLES = {"chatml": (CHATML, CHATML_TOKENS, ["<|pad|>", "<|im_start|>", "<|im_end|>"]),
          "inst": (INST, INST_TOKENS, ["<unk>", "<s>", "</s>", "<pad>"])}


def make_tokenizer(style, chats):
    """Byte-level BPE; that of "inst" puts <s> before a text, which a chat has from its template already."""
    template, tokens, specials = STYLES[style]
    tokenizer = Tokenizer(models.BPE(unk_token=tokens["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if style == "chatml":  # as Qwen's, which transformers gives a qwen2 model whatever the file says
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(QWEN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=specials, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator((m["content"] for c in chats for m in c["messages"]), trainer)
    if tokens["bos_token"]:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, model_max_length=LENGTH,
                                   clean_up_tokenization_spaces=False, **{k: v for k, v in tokens.items() if v})


# ---- models ----

SHAPE = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=LENGTH)
GROUPED = dict(SHAPE, num_key_value_heads=2)
FAMILIES = {
    "llama": ("inst", dict(GROUPED)),
    "qwen2": ("chatml", dict(GROUPED, tie_word_embeddings=True)),
    "qwen3": ("chatml", dict(GROUPED, head_dim=16)),
    "mistral": ("inst", dict(GROUPED, sliding_window=40, head_dim=12)),
    "gpt2": ("chatml", dict(n_embd=48, n_layer=2, n_head=4, n_positions=LENGTH, resid_pdrop=0.0, embd_pdrop=0.0,
                            attn_pdrop=0.0)),
    "gpt_neox": ("chatml", dict(SHAPE, rotary_pct=0.5)),
    # Without the balancing loss, which TRL would add.
    "mixtral": ("inst", dict(GROUPED, intermediate_size=48, num_local_experts=4, num_experts_per_tok=2,
                             router_aux_loss_coef=0.0)),
}


def make_model(family, shape, tokenizer):
    torch.manual_seed(len(family))
    config = AutoConfig.for_model(family, vocab_size=len(tokenizer), bos_token_id=tokenizer.bos_token_id,
                                  eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, **shape)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.03 * torch.randn_like(weight))
    return model.float()


# ---- runs ----

class Order(torch.utils.data.Sampler):
    """One epoch after another."""

    def __init__(self, chats):
        self.chats, self.epoch = chats, 0

    def __len__(self):
        return self.chats

    def __iter__(self):
        stream, self.epoch = ORDER_STREAM | self.epoch, self.epoch + 1
        return iter([permute(SEED, stream, self.chats, i) for i in range(self.chats)])


class Watched(SFTTrainer):
    """Keeps losses, and of the first step what it was computed of."""

    def _get_train_sampler(self, *_):
        return Order(len(self.train_dataset))

    def training_step(self, model, inputs, *args, **kwargs):
        if len(self.micro) < ACCUMULATION:
            self.first.append({key: value.clone() for key, value in inputs.items()})
        loss = super().training_step(model, inputs, *args, **kwargs)
        self.micro.append(loss.item())
        return loss


def sample(tokenizer, chat):
    """The ids and the mask that transformers gives a chat, cut off."""
    said = tokenizer.apply_chat_template(chat["messages"], return_assistant_tokens_mask=True, return_dict=True)
    return said["input_ids"][:LENGTH], said["assistant_masks"][:LENGTH]


@torch.no_grad()
def token_mean(model, batches):
    """The mean over all labels of a step, which TRL is to give."""
    total, count = 0.0, 0
    for batch in batches:
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1].double()
        labels = batch["labels"][:, 1:]
        total += torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100,
                                                   reduction="sum").item()
        count += (labels != -100).sum().item()
    return total / count


def train(folder, samples, chats):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype="float32")
    with tempfile.TemporaryDirectory() as out:
        args = SFTConfig(
            output_dir=out, use_cpu=True, bf16=False, report_to=[], save_strategy="no", disable_tqdm=True,
            dataloader_pin_memory=False, max_steps=STEPS, per_device_train_batch_size=BATCH,
            gradient_accumulation_steps=ACCUMULATION, learning_rate=1e-3, lr_scheduler_type="constant",
            weight_decay=0.0, max_grad_norm=1.0, max_length=LENGTH, packing=False, assistant_only_loss=True,
            shuffle_dataset=False, gradient_checkpointing=False, seed=SEED)
        trainer = Watched(model=model, args=args, train_dataset=Dataset.from_list(chats), processing_class=tokenizer)
        assert not trainer.aux_loss_enabled
        have = [(row["input_ids"], row["labels"]) for row in trainer.train_dataset]
        assert have == [(ids, [i if m else -100 for i, m in zip(ids, mask)]) for ids, mask in samples]
        trainer.micro, trainer.first = [], []
        trainer.train()
    losses = [sum(trainer.micro[i * ACCUMULATION:(i + 1) * ACCUMULATION]) for i in range(STEPS)]
    start = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype="float32").eval()
    assert abs(token_mean(start, trainer.first) - losses[0]) < 1e-5
    for number, batch in enumerate(trainer.first):  # the order
        for at, row in enumerate(batch["input_ids"]):
            ids, _ = samples[permute(SEED, ORDER_STREAM, len(chats), number * BATCH + at)]
            assert row[:len(ids)].tolist() == ids
    return losses


def write_family(family, out, chats):
    style, shape = FAMILIES[family]
    tokenizer = make_tokenizer(style, chats)
    make_model(family, shape, tokenizer).save_pretrained(out)
    tokenizer.save_pretrained(out)
    samples = [sample(tokenizer, chat) for chat in chats]
    assert all(1 in mask and mask[0] == 0 for _, mask in samples)
    assert 4 <= sum(len(ids) == LENGTH for ids, _ in samples) < 32
    losses = train(out, samples, chats)
    rows = ",\n".join('{"ids": %s, "assistant": "%s"}' % (json.dumps(ids, separators=(",", ":")), "".join(map(str, mask)))
                      for ids, mask in samples)
    (out / "samples.json").write_text("[\n%s\n]\n" % rows)
    (out / "losses.json").write_text("[\n%s\n]\n" % ",\n".join("%.9g" % loss for loss in losses))
    print("%s: %.5f to %.5f" % (family, losses[0], losses[-1]))


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "tests/golden/chat"
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    chats = make_chats()
    (out / "chats.jsonl").write_text("".join(json.dumps(chat, ensure_ascii=False) + "\n" for chat in chats))
    for family in FAMILIES:
        write_family(family, out / family, chats)


if __name__ == "__main__":
    main()
