#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Compares a run's event files with its metrics.jsonl, by TensorBoard's own reader.

usage: tools/check_tensorboard.py FOLDER METRICS    (pip install tensorboard)

Exits with 1 when a figure differs from the one in METRICS rounded to fp32, or is missing.
"""
import json
import sys

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

NAMES = {
    "train/learning_rate": "lr",
    "communication/exposed_ms": "exposed_comm_ms",
    "memory/peak_bytes": "memory_peak_bytes",
    "validation/loss": "validation_loss",
}


def main(folder, metrics):
    with open(metrics, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    lines = [line for line in lines if "stopped" not in line]  # the end of the run is no figure
    names = {name for line in lines for name, value in line.items() if value is not None}
    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    tags = {NAMES.get(tag, tag.split("/")[1]): tag for tag in events.Tags()["scalars"]}
    wrong = sorted(names - {"step"} ^ set(tags))
    for name in sorted(names & set(tags)):
        want = [(line["step"], np.float32(line[name])) for line in lines if line.get(name) is not None]
        got = [(event.step, np.float32(event.value)) for event in events.Scalars(tags[name])]
        if got != want:
            wrong.append(name)
    print(f"{len(tags)} scalars, {len(lines)} lines:", "wrong: " + ", ".join(wrong) if wrong else "equal")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]) if len(sys.argv) == 3 else __doc__)
