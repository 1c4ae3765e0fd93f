#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/optimizers.json: 20 steps of optimizers in fp64.

usage: make_optimizer_golden.py > tests/golden/optimizers.json

SGD, AdamW and Muon are torch.optim's, Muon with iterations in fp64 where torch rounds to bf16. Lion is the pseudo-code of its authors (arXiv:2302.06675,
algorithm 2). Element i begins at cos(i); step t (from 1) has the gradient
0.3 * p + sin(0.7 * i + 1.3 * t), or 0 where i % 7 is 3. Needs torch.
"""
import json
import sys

import torch
from torch.optim import _muon

ELEMS, STEPS = 37, 20


def gradient(p, step):
    i = torch.arange(p.numel(), dtype=torch.float64).reshape(p.shape)
    return torch.where(i % 7 == 3, torch.zeros(()).double(),
                       0.3 * p + torch.sin(0.7 * i + 1.3 * step))


class Lion(torch.optim.Optimizer):
    """The authors' algorithm 2."""

    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state, g = self.state[p], p.grad
                m = state.setdefault("exp_avg", torch.zeros_like(p))
                update = torch.sign(beta1 * m + (1 - beta1) * g)
                p -= group["lr"] * (update + group["weight_decay"] * p)
                state["exp_avg"] = beta2 * m + (1 - beta2) * g


def orthogonal(grad, ns_coefficients, ns_steps, eps):
    """torch's _zeropower_via_newtonschulz, but for the bf16."""
    a, b, c = ns_coefficients
    tall = grad.size(0) > grad.size(1)
    x = grad.T if tall else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(ns_steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


def case(name, cls, lr, weight_decay, settings, shape=(ELEMS,)):
    elems = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    p = torch.nn.Parameter(torch.cos(elems).reshape(shape))
    optimizer = cls([p], lr=lr, weight_decay=weight_decay, **settings)
    with torch.no_grad():
        for step in range(1, STEPS + 1):
            p.grad = gradient(p, step)
            optimizer.step()
    here = {"momentum_buffer": "exp_avg"} if name == "Muon" else {}
    states = {here.get(key, key): value.flatten().tolist() for key, value in optimizer.state[p].items()
              if key != "step" and value is not None}
    return {"type": name, "lr": lr, "weight_decay": weight_decay,
            "params": settings, "shape": shape, "final": p.flatten().tolist(), "states": states}


def main():
    sgd, lion = torch.optim.SGD, Lion
    _muon._zeropower_via_newtonschulz = orthogonal
    muon, plain = torch.optim.Muon, {"momentum": 0.9, "nesterov": False, "ns_steps": 3}
    cases = [
        case("AdamW", torch.optim.AdamW, 1e-2, 0.1, {"betas": (0.9, 0.95), "eps": 1e-8}),
        case("SGD", sgd, 1e-2, 0.0, {"momentum": 0.0}),
        case("SGD", sgd, 1e-2, 0.1, {"momentum": 0.9}),
        case("SGD", sgd, 1e-2, 0.1, {"momentum": 0.9, "nesterov": True}),
        case("Lion", lion, 1e-2, 0.1, {"betas": (0.9, 0.99)}),
        case("Lion", lion, 3e-3, 0.0, {"betas": (0.95, 0.98)}),
        case("Muon", muon, 1e-2, 0.1, {}, (6, 10)),
        case("Muon", muon, 1e-2, 0.1, {"adjust_lr_fn": "match_rms_adamw"}, (12, 5)),
        case("Muon", muon, 1e-2, 0.0, plain, (12, 5)),
        case("Muon", muon, 1e-2, 0.0, plain, (7, 7)),
    ]
    sys.stdout.write('{"torch": "%s", "elems": %d, "steps": %d, "cases": [\n%s\n]}\n'
                     % (torch.__version__, ELEMS, STEPS, ",\n".join(map(json.dumps, cases))))


if __name__ == "__main__":
    main()
