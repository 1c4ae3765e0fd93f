# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""mics trains transformers with nested sharding; docs/python.md has what can be done from Python.

import mics
result = mics.train("run.json", ranks=2, on_step=lambda step: print(step["loss"]))
print(mics.generate(result.folder, "Shall I"))
"""

from ._files import Checkpoint, metrics, weights
from ._library import Error
from ._program import explain, generate, plan
from ._training import Result, train

__version__ = "0.1.0"
__all__ = ["Checkpoint", "Error", "Result", "explain", "generate", "metrics", "plan", "train", "weights"]
