#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/lr.json: learning rates of Hugging Face's and DeepSpeed's own schedulers.

usage: make_lr_golden.py lr_schedules.py > tests/golden/lr.json

Needs torch and transformers; lr_schedules.py is deepspeed/runtime/lr_schedules.py of a source
archive, which is read without DeepSpeed itself.
"""
import importlib.util
import json
import logging
import sys
import types

import torch
import transformers

STEPS = 40


def deepspeed_schedules(path):
    """DeepSpeed's module with its logger replaced."""
    package = types.ModuleType("deepspeed")
    utils = types.ModuleType("deepspeed.utils")
    utils.logger = logging.getLogger("deepspeed")
    utils.logger.setLevel(logging.ERROR)
    package.utils = utils
    sys.modules["deepspeed"], sys.modules["deepspeed.utils"] = package, utils
    spec = importlib.util.spec_from_file_location("lr_schedules", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def optimizer_of(lr):
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=lr)


def rates_of(optimizer, scheduler, steps):
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def of_trainer(name, warmup, kwargs, ours, lr=3e-4, steps=STEPS):
    optimizer = optimizer_of(lr)
    scheduler = transformers.get_scheduler(
        name, optimizer, num_warmup_steps=warmup, num_training_steps=steps,
        scheduler_specific_kwargs=dict(kwargs))
    params = dict(ours)
    if name != "constant":
        params["warmup_num_steps"] = warmup
    return {"type": name, "lr": lr, "steps": steps, "params": params,
            "rates": rates_of(optimizer, scheduler, steps)}


def of_deepspeed(module, name, params, lr=3e-4, steps=STEPS):
    optimizer = optimizer_of(lr)
    scheduler = getattr(module, name)(optimizer, **params)
    ours = {key: value for key, value in params.items()}
    return {"type": name, "lr": lr, "steps": steps, "params": ours,
            "rates": rates_of(optimizer, scheduler, steps)}


def main():
    schedules = deepspeed_schedules(sys.argv[1])
    cycle = {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3, "cycle_momentum": False}
    cases = [
        of_trainer("linear", 0, {}, {}),
        of_trainer("linear", 7, {}, {}),
        of_trainer("cosine", 5, {}, {}),
        of_trainer("cosine", 5, {"num_cycles": 1.5}, {"num_cycles": 1.5}),
        of_trainer("cosine_with_restarts", 4, {}, {}),
        of_trainer("cosine_with_restarts", 4, {"num_cycles": 3}, {"num_cycles": 3}),
        of_trainer("polynomial", 6, {}, {}),
        of_trainer("polynomial", 6, {"lr_end": 1e-5, "power": 2.0}, {"lr_end": 1e-5, "power": 2.0}),
        of_trainer("constant", 0, {}, {}),
        of_trainer("constant_with_warmup", 9, {}, {}),
        of_trainer("inverse_sqrt", 8, {}, {}),
        of_trainer("inverse_sqrt", 0, {}, {}),
        of_trainer("inverse_sqrt", 8, {"timescale": 20}, {"timescale": 20}),
        of_trainer("warmup_stable_decay", 5, {"num_decay_steps": 12}, {"decay_num_steps": 12}),
        of_trainer("warmup_stable_decay", 5,
                   {"num_decay_steps": 12, "num_stable_steps": 10, "min_lr_ratio": 0.1,
                    "warmup_type": "cosine", "decay_type": "1-sqrt"},
                   {"decay_num_steps": 12, "stable_num_steps": 10, "min_ratio": 0.1,
                    "warmup_type": "cosine", "decay_type": "1-sqrt"}),
        of_trainer("warmup_stable_decay", 6,
                   {"num_decay_steps": 9, "warmup_type": "1-sqrt", "decay_type": "linear"},
                   {"decay_num_steps": 9, "warmup_type": "1-sqrt", "decay_type": "linear"}),
        of_trainer("cosine_with_min_lr", 5, {"min_lr": 3e-5}, {"min_lr": 3e-5}),
        of_trainer("cosine_with_min_lr", 5, {"min_lr_rate": 0.2, "num_cycles": 0.75},
                   {"min_ratio": 0.2, "num_cycles": 0.75}),
        of_deepspeed(schedules, "WarmupLR", {"warmup_max_lr": 3e-4, "warmup_num_steps": 8}),
        of_deepspeed(schedules, "WarmupLR", {"warmup_min_lr": 1e-5, "warmup_max_lr": 3e-4,
                                             "warmup_num_steps": 8, "warmup_type": "linear"}),
        of_deepspeed(schedules, "WarmupDecayLR", {"total_num_steps": 30, "warmup_max_lr": 3e-4,
                                                  "warmup_num_steps": 6}),
        of_deepspeed(schedules, "WarmupCosineLR", {"total_num_steps": 41, "warmup_min_ratio": 0.1,
                                                   "warmup_num_steps": 6, "cos_min_ratio": 0.05}),
        of_deepspeed(schedules, "OneCycle", dict(cycle, cycle_first_step_size=10)),
        of_deepspeed(schedules, "OneCycle",
                     dict(cycle, cycle_first_step_size=9, cycle_second_step_size=14,
                          decay_step_size=5, decay_lr_rate=0.5)),
    ]
    lines = ",\n".join(json.dumps(case) for case in cases)
    sys.stdout.write('{"transformers": "%s", "cases": [\n%s\n]}\n'
                     % (transformers.__version__, lines))


if __name__ == "__main__":
    main()
