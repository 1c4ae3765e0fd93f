#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/dpo: pairs of answers, and what TRL's DPOTrainer makes of them.

    pip install torch transformers==5.24 trl==1.16 peft==0.21.2 datasets
    tools/make_dpo_golden.py [OUT]         # OUT: tests/golden/dpo of this repository

Models and tokenizers are those of tests/golden/chat. Each KIND.jsonl has pairs in one of TRL's formats;
FAMILY/KIND.json has the ids of the two answers behind their prompt, cut off behind LENGTH tokens, and
where the answers begin. FAMILY/CASE.json has the losses of 20 steps before their updates, with what
else TRL logs of each, on the CPU in float32; a step has ACCUMULATION micro-steps of BATCH pairs. Pair
number n of an epoch is that which mics_rng_permute gives. Label smoothing is the conservative one,
which TRL 1.16 has as a sum of two losses: a sigmoid is the other way round less its argument.

An adapter is the one that training begins with; the reference has it too, where it is not a new one.
"""

import json
import pathlib
import sys
import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

from make_chat_golden import PLACES, SYSTEMS, THINGS, Order, more, opening
from make_trainer_golden import permute  # noqa: F401 (what Order draws by)

STEPS, BATCH, ACCUMULATION, LENGTH, HELD = 20, 2, 2, 96, 8
METRICS = ["loss", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins",
           "logps/chosen", "logps/rejected"]


# ---- pairs ----

def refusal(n):
    return ["I cannot say.", "No.", "%s is none of my business, and %s neither." % (
        THINGS[n % len(THINGS)].capitalize(), PLACES[(n + 1) % len(PLACES)]),
            "Perhaps, perhaps not; " * (n % 5 + 3) + "who knows?"][n % 4]


def make_conversations(first, count):
    """With a system's words, and a turn before, in some."""
    pairs = []
    for n in range(first, first + count):
        asked, told = opening(n)
        prompt = [{"role": "system", "content": SYSTEMS[n // 3 % len(SYSTEMS)]}] if n % 3 == 1 else []
        if n % 6 == 2:
            before, answer = more(n, 1)
            prompt += [{"role": "user", "content": before}, {"role": "assistant", "content": answer[:16]}]
        prompt.append({"role": "user", "content": asked})
        answers = [[{"role": "assistant", "content": text}] for text in (told, refusal(n))]
        if n % 5 == 4:
            answers.reverse()
        pairs.append({"prompt": prompt, "chosen": answers[0], "rejected": answers[1]})
    return pairs


def make_texts(count):
    """Prompts that end in a space, answers that begin with one, and some that end with </s> already."""
    pairs = []
    for n in range(count):
        asked, told = opening(n)
        space = n % 2 == 0
        chosen, rejected = told.strip(), refusal(n)
        pairs.append({"prompt": "Q: %s\nA:%s" % (asked, " " if space else ""),
                      "chosen": ("" if space else " ") + chosen + ("</s>" if n % 6 == 1 else ""),
                      "rejected": ("" if space else " ") + rejected})
    return pairs


def implied(pair):
    return {"chosen": pair["prompt"] + pair["chosen"], "rejected": pair["prompt"] + pair["rejected"]}


def without_prompt(pairs):
    ends = [{"chosen": "One caf\u00e9 here", "rejected": "One caf\u00ea here"},  # alike but for half of a letter
            {"chosen": "The same", "rejected": "The same and more"}]
    return [implied(pair) for pair in pairs] + (ends if isinstance(pairs[0]["prompt"], str) else [])


# ---- runs ----

class Watched(DPOTrainer):
    """Keeps what is logged, losses with all their digits."""

    def _get_train_sampler(self, *_):
        return Order(len(self.train_dataset))

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.micro.append(loss.item())
        return loss

    def log(self, logs, start_time=None):
        super().log(logs, start_time)
        if "loss" in logs:
            logs["loss"] = sum(self.micro[-ACCUMULATION:])
            self.steps.append([logs[name] for name in METRICS])


def arguments(out, **settings):
    return DPOConfig(
        output_dir=out, use_cpu=True, bf16=False, report_to=[], save_strategy="no", disable_tqdm=True,
        dataloader_pin_memory=False, max_steps=STEPS, per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH, gradient_accumulation_steps=ACCUMULATION, learning_rate=1e-3,
        lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=1.0, max_length=LENGTH,
        gradient_checkpointing=False, logging_steps=1, **settings)


LORA = dict(r=4, lora_alpha=8, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
CASES = {
    "dpo": dict(beta=0.3),
    "ipo": dict(beta=0.5, loss_type="ipo"),
    "smooth": dict(beta=0.3, loss_type=["sigmoid", "robust"], label_smoothing=0.25, loss_weights=[1.2, -0.2]),
    "lora": dict(beta=0.3),
    "lora_tuned": dict(beta=0.3),
}


def load(base):
    return AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager", dtype="float32")


def make_adapter(base, tuned, out):
    """The one of a family that its runs begin with; `tuned`: B is not 0."""
    torch.manual_seed(19 + tuned)
    model = get_peft_model(load(base), LoraConfig(**LORA))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if tuned and "lora_B" in name:
                weight.add_(0.05 * torch.randn_like(weight))
    model.save_pretrained(out)
    (out / "README.md").unlink(missing_ok=True)
    config = json.loads((out / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "../../chat/" + base.name
    (out / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")


def train(case, base, pairs, held, out):
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = load(base)
    if case.startswith("lora"):
        make_adapter(base, case == "lora_tuned", out / case)
        model = PeftModel.from_pretrained(model, out / case, is_trainable=True)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Watched(model=model, args=arguments(folder, **CASES[case]), train_dataset=Dataset.from_list(pairs),
                          eval_dataset=Dataset.from_list(held), processing_class=tokenizer)
        trainer.micro, trainer.steps = [], []
        before = trainer.evaluate()
        trainer.train()
        after = trainer.evaluate()
    eval_lines = [[found["eval_" + name] for name in METRICS] for found in (before, after)]
    lines = ",\n".join(json.dumps([float("%.9g" % value) for value in row]) for row in trainer.steps)
    ends = ",\n".join(json.dumps([float("%.9g" % value) for value in row]) for row in eval_lines)
    (out / (case + ".json")).write_text('{"metrics": %s,\n"steps": [\n%s],\n"eval": [\n%s]}\n' % (
        json.dumps(METRICS), lines, ends))
    print("%s %s: %.5f to %.5f" % (base.name, case, trainer.steps[0][0], trainer.steps[-1][0]))


def write_samples(base, kind, pairs, out):
    tokenizer = AutoTokenizer.from_pretrained(base)
    with tempfile.TemporaryDirectory() as folder:
        trainer = DPOTrainer(model=load(base), args=arguments(folder), train_dataset=Dataset.from_list(pairs),
                             processing_class=tokenizer)
    rows = [{"begin": len(row["prompt_ids"]),
             "chosen": (row["prompt_ids"] + row["chosen_ids"])[:LENGTH],
             "rejected": (row["prompt_ids"] + row["rejected_ids"])[:LENGTH]} for row in trainer.train_dataset]
    assert len(rows) == len(pairs), [row["begin"] for row in rows]  # none is dropped
    (out / (kind + ".json")).write_text(
        "[\n%s\n]\n" % ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows))
    return rows


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "tests/golden/dpo"
    torch.set_num_threads(1)
    pairs, held, texts = make_conversations(0, 24), make_conversations(40, HELD), make_texts(12)
    kinds = {"prompts": pairs, "implicit": without_prompt(pairs[:12]), "texts": texts, "plain": without_prompt(texts)}
    out.mkdir(parents=True, exist_ok=True)
    for kind, rows in dict(kinds, held=held).items():
        (out / (kind + ".jsonl")).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    for family in ("llama", "qwen3"):
        base = here / "tests/golden/chat" / family
        (out / family).mkdir(exist_ok=True)
        for kind, rows in kinds.items():
            samples = write_samples(base, kind, rows, out / family)
            if kind == "prompts":
                assert 2 <= sum(len(row[side]) == LENGTH for row in samples for side in ("chosen", "rejected")) < 24
        for case in CASES:
            train(case, base, pairs, held, out / family)


if __name__ == "__main__":
    main()
