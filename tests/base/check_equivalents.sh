# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Usage: check_equivalents.sh ROOT: each change that tools/mutants.equivalent lists is one that can be made of the sources as they
# are. A run of the mutants, hours in a full one, would else end before it begins.
set -eu
cd "$1"
find src -name '*.c' | sort | xargs env LC_ALL=C awk -v seed=1 -v equivalents=tools/mutants.equivalent -f tools/mutants.awk >/dev/null
