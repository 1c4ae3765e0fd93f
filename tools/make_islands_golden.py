#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/islands: a small Llama that four replicas train with local steps.

The reference is plain PyTorch in float64 on the CPU: the model below, torch.optim's AdamW and Muon
(with iterations in float64 where torch rounds to bf16), and loops over replicas. Results are stored
as float32. The tests read the files and need no Python. tests/golden/README.md says what each
tensor is.

A meeting: DiLoCo, arXiv:2311.08105, algorithm 1, with the mean over replicas weighted by tokens.
Fragments and overlap: Streaming DiLoCo, arXiv:2501.18512, in the form of docs/local-steps.md; means
of the optimizer's states: DES-LOC, arXiv:2505.22549.

    pip install torch numpy safetensors
    tools/make_islands_golden.py [OUT]         # OUT: tests/golden of this repository
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy, silu
from torch.optim import _muon

from make_optimizer_golden import orthogonal

REPLICAS, SEQUENCES, TOKENS, PERIODS = 4, 2, 13, 20  # sequences of a replica
LR, BETAS, EPS, WEIGHT_DECAY, MAX_NORM, MUON_MOMENTUM = 3e-3, (0.9, 0.95), 1e-6, 0.1, 1.0, 0.95
VOCAB, HIDDEN, INNER, LAYERS, HEADS, PAIRS, NORM_EPS, THETA = 29, 18, 23, 3, 3, 1, 1e-5, 100.0
HEAD = HIDDEN // HEADS

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCAB,
          "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
          "num_attention_heads": HEADS, "num_key_value_heads": PAIRS, "hidden_act": "silu",
          "max_position_embeddings": 19, "rms_norm_eps": NORM_EPS, "rope_theta": THETA,
          "tie_word_embeddings": False}

PLAIN = dict(muon=False, every=4, fragments=1, overlap=0, moments_every=0, lr=0.7, momentum=0.9)
CASES = {"adamw": PLAIN,
         "adamw_beside": PLAIN | dict(fragments=2, overlap=2),
         "muon": PLAIN | dict(muon=True, every=3),
         "muon_beside": PLAIN | dict(muon=True, every=5, fragments=2, overlap=2),
         "moments": PLAIN | dict(fragments=2, overlap=1, moments_every=2),
         "average": PLAIN | dict(every=1, lr=1.0, momentum=0.0)}


# ---- the model ----


def shapes():
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (HIDDEN,)
        for name, rows in (("q", HEADS * HEAD), ("k", PAIRS * HEAD), ("v", PAIRS * HEAD)):
            yield f"{at}self_attn.{name}_proj.weight", (rows, HIDDEN)
        yield at + "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD)
        yield at + "post_attention_layernorm.weight", (HIDDEN,)
        yield at + "mlp.gate_proj.weight", (INNER, HIDDEN)
        yield at + "mlp.up_proj.weight", (INNER, HIDDEN)
        yield at + "mlp.down_proj.weight", (HIDDEN, INNER)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def make_weights(generator):
    """By name; no gain that a wrong kernel could ignore."""
    noise = {name: torch.randn(shape, generator=generator) for name, shape in shapes()}
    return {n: 1 + 0.2 * w if w.dim() == 1 else 0.12 * w for n, w in noise.items()}


def unit_of(name):
    """Units of the model in their order: embedding, layers, final norm and head."""
    if "embed_tokens" in name:
        return 0
    return 1 + (int(name.split(".")[2]) if ".layers." in name else LAYERS)


def rms_norm(x, gain):
    return gain * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + NORM_EPS)


def rotate(x):
    """Rotary position embedding of (B, heads, T, HEAD): the two halves of a head are the pairs."""
    rates = THETA ** (-torch.arange(0, HEAD, 2, dtype=x.dtype) / HEAD)
    angles = torch.arange(x.size(2), dtype=x.dtype)[:, None] * rates
    a, b = x.chunk(2, -1)
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


def attention(w, at, x):
    batch, length, _ = x.shape
    q, k, v = ((x @ w[f"{at}self_attn.{name}_proj.weight"].T).view(batch, length, -1, HEAD)
               .transpose(1, 2) for name in "qkv")
    k, v = (y.repeat_interleave(HEADS // PAIRS, 1) for y in (rotate(k), v))
    scores = rotate(q) @ k.transpose(2, 3) / HEAD ** 0.5
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(later, -torch.inf).softmax(-1) @ v
    return mixed.transpose(1, 2).reshape(batch, length, -1) @ w[at + "self_attn.o_proj.weight"].T


def mlp(w, at, x):
    gate, up, down = (w[f"{at}mlp.{name}_proj.weight"].T for name in ("gate", "up", "down"))
    return (silu(x @ gate) * (x @ up)) @ down


def loss_of(w, inputs, targets):
    """Mean over the targets that count; those below 0 do not."""
    x = w["model.embed_tokens.weight"][inputs]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        x = x + attention(w, at, rms_norm(x, w[at + "input_layernorm.weight"]))
        x = x + mlp(w, at, rms_norm(x, w[at + "post_attention_layernorm.weight"]))
    logits = rms_norm(x, w["model.norm.weight"]) @ w["lm_head.weight"].T
    return cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


# ---- local steps ----


class Replica:
    def __init__(self, weights, muon):
        self.weights = {n: torch.nn.Parameter(w.clone()) for n, w in weights.items()}
        self.counted = [0] * (LAYERS + 2)  # by unit: since it met
        matrices = [w for n, w in self.weights.items() if muon and ".layers." in n and w.dim() == 2]
        rest = [w for w in self.weights.values() if not any(w is m for m in matrices)]
        groups = [{"params": [w for w in rest if w.dim() == 2], "weight_decay": WEIGHT_DECAY},
                  {"params": [w for w in rest if w.dim() == 1], "weight_decay": 0.0}]
        self.optimizers = [torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)]
        if muon:
            self.optimizers.append(torch.optim.Muon(
                matrices, lr=LR, weight_decay=WEIGHT_DECAY, momentum=MUON_MOMENTUM,
                adjust_lr_fn="match_rms_adamw"))

    def find_gradients(self, inputs, targets):
        loss = loss_of(self.weights, inputs, targets)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights.values(), MAX_NORM)
        count = int((targets >= 0).sum())
        self.counted = [c + count for c in self.counted]
        return loss.item()

    def states(self, name):
        """What optimizers keep of a weight, by their names for it."""
        weight = self.weights[name]
        found = next(o.state[weight] for o in self.optimizers if weight in o.state)
        return {key: value for key, value in found.items() if key != "step"}

    def update(self):
        for optimizer in self.optimizers:
            optimizer.step()


def offsets(case, elems):
    """By unit: of a period, the step behind which it meets. Fragments are consecutive units of about
    equal elements; over `overlap` steps a fragment's units follow each other in the same way."""
    before = [sum(elems[:u]) for u in range(len(elems))]
    fragments = [int((b + e / 2) / sum(elems) * case["fragments"]) for b, e in zip(before, elems)]
    found = []
    for unit, fragment in enumerate(fragments):
        begin = case["every"] * fragment // case["fragments"]
        own = [u for u, f in enumerate(fragments) if f == fragment]
        share = (before[unit] - before[own[0]]) / sum(elems[u] for u in own)
        found.append((begin + int(share * case["overlap"])) % case["every"])
    assert sorted(set(fragments)) == list(range(case["fragments"]))
    return found


class Meetings:
    def __init__(self, case, weights, replicas):
        self.case, self.replicas = case, replicas
        self.anchor = {n: w.clone() for n, w in weights.items()}
        self.momentum = {n: torch.zeros_like(w) for n, w in weights.items()}
        elems = [0] * (LAYERS + 2)
        for name, weight in weights.items():
            elems[unit_of(name)] += weight.numel()
        self.offsets = offsets(case, elems)
        self.meetings = [0] * (LAYERS + 2)  # by unit: that there were
        self.means = {}  # by name: of the states that meet now

    def due(self, step):
        """Units that the state after this step meets in."""
        return [u for u, offset in enumerate(self.offsets)
                if step > 0 and step % self.case["every"] == offset]

    def meet(self, units):
        """The outer step of these units, from the masters that there are."""
        lr, mu = self.case["lr"], self.case["momentum"]
        for name, anchor in self.anchor.items():
            counts = [r.counted[unit_of(name)] for r in self.replicas]
            if unit_of(name) not in units or sum(counts) == 0:
                continue
            change = sum(c / sum(counts) * (anchor - r.weights[name].detach())
                         for c, r in zip(counts, self.replicas))
            self.momentum[name] = mu * self.momentum[name] + change
            self.anchor[name] = anchor - lr * (change + mu * self.momentum[name])
        for replica in self.replicas:
            replica.counted = [0 if u in units else c for u, c in enumerate(replica.counted)]

    def mean_states(self, units):
        """Each `moments_every`-th meeting of a unit, with its tokens before the outer step."""
        every = self.case["moments_every"]
        self.meetings = [count + (u in units) for u, count in enumerate(self.meetings)]
        self.means = {}
        for name in self.anchor:
            unit = unit_of(name)
            if unit not in units or every == 0 or self.meetings[unit] % every != 0:
                continue
            counts = [r.counted[unit] for r in self.replicas]
            states = [r.states(name) for r in self.replicas]
            self.means[name] = {key: sum(c / sum(counts) * s[key] for c, s in zip(counts, states))
                                for key in states[0]}

    def adopt(self, units):
        with torch.no_grad():
            for replica in self.replicas:
                for name, weight in replica.weights.items():
                    if unit_of(name) in units:
                        weight.copy_(self.anchor[name])
                for name, means in self.means.items():
                    for key, mean in means.items():
                        replica.states(name)[key].copy_(mean)


def train(case, weights, inputs, targets):
    """Losses (steps, replicas), and what replicas agree on in the end, where all units meet."""
    replicas = [Replica(weights, case["muon"]) for _ in range(REPLICAS)]
    meetings = Meetings(case, weights, replicas)
    losses = []
    for step in range(PERIODS * case["every"]):
        units = meetings.due(step)
        meetings.mean_states(units)
        meetings.meet(units)
        if case["overlap"] == 0:
            meetings.adopt(units)
        losses.append([r.find_gradients(inputs[step, i], targets[step, i])
                       for i, r in enumerate(replicas)])
        if case["overlap"] > 0:
            meetings.adopt(units)
        for replica in replicas:
            replica.update()
    meetings.meet(range(LAYERS + 2))
    return torch.tensor(losses), meetings.anchor


# ---- files ----


def make_batches(generator):
    """Inputs and targets (steps, replicas, sequences, tokens): a linear rule with noise. Of each next
    replica fewer targets count."""
    steps = PERIODS * max(case["every"] for case in CASES.values())
    text = torch.empty(steps, REPLICAS, SEQUENCES, TOKENS + 1, dtype=torch.long)
    text[..., 0] = torch.randint(VOCAB, text.shape[:-1], generator=generator)
    for t in range(1, text.shape[-1]):
        noise = torch.randint(VOCAB, text.shape[:-1], generator=generator)
        is_noise = torch.rand(text.shape[:-1], generator=generator) < 0.2
        text[..., t] = torch.where(is_noise, noise, (5 * text[..., t - 1] + 7) % VOCAB)
    targets = text[..., 1:].clone()
    share = torch.arange(REPLICAS)[:, None, None] / (REPLICAS + 1)
    targets[torch.rand(targets.shape, generator=generator) < share] = -1
    return text[..., :-1], targets


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"
    folder = (pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default) / "islands"
    folder.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    _muon._zeropower_via_newtonschulz = orthogonal
    generator = torch.Generator().manual_seed(60)
    weights = make_weights(generator)
    inputs, targets = make_batches(generator)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    golden = {"inputs": inputs, "targets": targets, "hyper": torch.tensor(
        [LR, *BETAS, EPS, WEIGHT_DECAY, MAX_NORM, MUON_MOMENTUM], dtype=torch.float64)}
    for name, case in CASES.items():
        losses, agreed = train(case, {n: w.double() for n, w in weights.items()}, inputs, targets)
        golden[f"{name}.outer"] = torch.tensor([float(value) for value in case.values()])
        golden[f"{name}.losses"] = losses
        golden |= {f"{name}.{n}": w for n, w in agreed.items()}
        print(f"{name}: losses {losses[0].mean():.4f} to {losses[-1].mean():.4f}")
    save_file({n: t.to(torch.float32).contiguous() for n, t in golden.items()},
              folder / "golden.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)


if __name__ == "__main__":
    main()
