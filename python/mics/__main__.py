# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""python -m mics VERB: the program."""

from ._program import main

main()
