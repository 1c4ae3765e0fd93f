#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Sends a run's metrics.jsonl to Weights & Biases, while it trains or afterwards.

usage: tools/wandb_follow.py OUT [--project NAME] [--once]    (pip install wandb; wandb login)

OUT is the run's folder (run.out). The W&B run is named after it, and what was sent is noted in
OUT/wandb.json: started again, the script goes on there with the same W&B run. It ends when the run's
last step was sent, at once with --once, or by Ctrl-C. W&B takes no step a second time: what a run
trains again after it went back is not sent.
"""
import argparse
import json
import os
import sys
import time
import uuid

WAIT_S = 2
# The validation of the last step comes after its figures.
LAST_WAIT_S = 10


def read_json(path, default):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return default


class Follower:
    """Reads whole lines of a file that grows, or is replaced when its run resumes."""

    def __init__(self, path):
        self.path, self.file, self.inode = path, None, None

    def lines(self):
        try:
            facts = os.stat(self.path)
        except FileNotFoundError:
            return
        if self.file is None or facts.st_ino != self.inode or facts.st_size < self.file.tell():
            if self.file is not None:
                self.file.close()
            self.file = open(self.path, encoding="utf-8")
            self.inode = facts.st_ino
        while True:
            begin = self.file.tell()
            line = self.file.readline()
            if not line.endswith("\n"):
                self.file.seek(begin)
                return
            yield json.loads(line)


class Sender:
    """Sends each figure of each step once."""

    def __init__(self, run, path, state):
        self.run, self.path, self.state = run, path, state

    def send(self, line):
        step = line.pop("step")
        sent = self.state["names"] if step == self.state["step"] else []
        if step < self.state["step"]:
            return
        figures = {name: value for name, value in line.items() if value is not None and name not in sent}
        if figures:
            self.run.log(figures, step=step)
            self.state.update(step=step, names=sorted(set(sent) | set(figures)))

    def save(self):
        aside = self.path + ".tmp"
        with open(aside, "w", encoding="utf-8") as file:
            json.dump(self.state, file)
        os.replace(aside, self.path)


def follow(out, once, sender):
    follower, quiet_since = Follower(os.path.join(out, "metrics.jsonl")), time.monotonic()
    steps = read_json(os.path.join(out, "resolved.json"), {}).get("run", {}).get("steps")
    while True:
        before = dict(sender.state)
        for line in follower.lines():
            sender.send(line)
        if sender.state != before:
            quiet_since = time.monotonic()
            sender.save()
        ended = steps is not None and sender.state["step"] >= steps or "stopped" in sender.state["names"]
        if once or (ended and time.monotonic() - quiet_since > LAST_WAIT_S):
            return
        time.sleep(WAIT_S)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("--project", default="mics")
    parser.add_argument("--once", action="store_true", help="send what is there, and end")
    arguments = parser.parse_args()
    if not os.path.isdir(arguments.out):
        return f"{arguments.out}: is no folder; give the run's output folder (run.out)"
    try:
        import wandb
    except ImportError:
        return "the package wandb is missing: pip install wandb"
    path = os.path.join(arguments.out, "wandb.json")
    state = read_json(path, {"id": uuid.uuid4().hex[:12], "step": -1, "names": []})
    run = wandb.init(project=arguments.project, name=os.path.basename(os.path.abspath(arguments.out)),
                     id=state["id"], resume="allow",
                     config=read_json(os.path.join(arguments.out, "resolved.json"), {}))
    sender = Sender(run, path, state)
    try:
        follow(arguments.out, arguments.once, sender)
    except KeyboardInterrupt:
        print("stopped; start it again to go on", file=sys.stderr)
    finally:
        sender.save()
        run.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
