# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""The program `mics` that comes with the library: what it prints as JSON, and itself as a command."""

import json
import logging
import os
import re
import subprocess
import sys

from . import _run
from ._library import PROGRAM, Error, log

_MAX_ARGUMENT = 30000  # characters; Linux takes 128 KiB
_LEVELS = {"error": logging.ERROR, "warning": logging.WARNING}


def _flag(name, value):
    name = "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [name]
    if isinstance(value, (list, tuple)):
        return [part for each in value for part in _flag(name[2:], each)]
    if isinstance(value, float):
        value = format(value, ".17g")
    return [f"{name}={os.fspath(value) if hasattr(value, '__fspath__') else value}"]


def _said(text):
    """Lines of the program's log: (level, text)."""
    for line in text.splitlines():
        found = re.match(r"mics: (?:(error|warning): )?(.*)", line)
        if found is not None:
            yield _LEVELS.get(found[1], logging.INFO), found[2]


def run(verb, arguments, flags=None, sets=None, renamed=lambda text: text, standard_input=None):
    """Runs a verb with --json. Returns what it printed.

    What does not fit is printed all the same, with an error's line, which then goes to the log.
    """
    command = [str(PROGRAM), *verb.split(), "--json"]
    for name, value in (flags or {}).items():
        command += _flag(name, value)
    command += [f"--set={text}" for text in _run.sets_of(sets or {})]
    done = subprocess.run(
        [*command, "--", *map(os.fspath, arguments)],
        input=standard_input,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    lines = [(level, renamed(text)) for level, text in _said(done.stderr)]
    try:
        printed = json.loads(done.stdout)
    except ValueError:
        printed = None
    if printed is None or (done.returncode != 0 and not any(level == logging.ERROR for level, _ in lines)):
        errors = [text for level, text in lines if level == logging.ERROR]
        raise Error(
            errors[0] if errors else f"mics {verb} ended with status {done.returncode}: {done.stderr.strip()}"
        )
    for level, text in lines:
        log.log(level, "%s", text)
    return printed


def explain(run_, *, ranks=1, nodes=None, set=None, **flags):  # pylint: disable=redefined-builtin
    """What training would do, and nothing is run: keys, memory, bytes, the schedule of a step.

    run_: as of mics.train, or a model's folder; flags: those of `mics explain`, as data=[...], lora=16.
    Returns: what `mics explain --json` prints.
    """
    with _run.file_of(run_) as (path, renamed):
        return run("explain", [path], {"ranks": ranks, "nodes": nodes, **flags}, set, renamed)


def plan(run_, cluster, *, set=None, **flags):  # pylint: disable=redefined-builtin
    """The best sharding and batch for a cluster, with step time and price.

    run_: a run as of mics.train, or a config.json; cluster: "p4d.24xlarge:8", or several.
    flags: those of `mics plan`, as tokens=300e9, global_batch=512.
    Returns: what `mics plan --json` prints.
    """
    with _run.file_of(run_) as (path, renamed):
        return run("plan", [path], {"cluster": cluster, **flags}, set, renamed)


def generate(checkpoint, prompt="", *, tokens=200, samples=None, **flags):
    """Text that continues a prompt; a list of texts where `samples` says how many.

    checkpoint: a run's folder, a step's, or one from Hugging Face; flags: those of `mics generate`, as
    temperature=0.7, top_p=0.9, stop=["\\n"], seed=2.
    """
    if prompt is not None and not isinstance(prompt, str):
        raise TypeError(f"prompt is a text, and not {type(prompt).__name__}")
    long = prompt is not None and len(prompt) > _MAX_ARGUMENT
    said = {"prompt_file": "-"} if long else {"prompt": prompt}
    given = {**said, "tokens": tokens, "samples": samples, "quiet": True, **flags}
    printed = run("generate", [checkpoint], given, standard_input=prompt if long else None)
    texts = [text["text"] for text in printed["texts"]]
    return texts[0] if samples is None else texts


def main():
    """The command `mics`."""
    os.execv(PROGRAM, ["mics", *sys.argv[1:]])
