# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""What describes a run to the library and the program: a file, and keys that override single ones."""

import contextlib
import json
import os
import tempfile


def _text_of(value):
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    return json.dumps(value, default=os.fspath)


def sets_of(keys):
    """{"run.steps": 20} as KEY=VALUE, as --set takes it: a text or path as it is, anything else as JSON."""
    if not isinstance(keys, dict):
        raise TypeError(f'set is a dictionary, as {{"run.seed": 2}}, and not {type(keys).__name__}')
    return [f"{key}={_text_of(value)}" for key, value in keys.items()]


def has_key(run, path):
    for key in path.split("."):
        run = run.get(key) if isinstance(run, dict) else None
    return run is not None


@contextlib.contextmanager
def file_of(run):
    """The path of a run file, and what an error's text calls it: a dictionary is written into one."""
    if not isinstance(run, dict):
        yield os.fspath(run), lambda text: text
        return
    with tempfile.TemporaryDirectory(prefix="mics-") as folder:
        path = os.path.join(folder, "run.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(run, file, indent=2)
        yield path, lambda text: text.replace(path, "run")
