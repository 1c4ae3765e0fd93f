# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# The event files of a mixture that was stopped in mid-epoch, read by TensorBoard's own reader: every
# figure is that of metrics.jsonl. PYTHON: an interpreter with the package tensorboard.
. "$(dirname "$0")/lib.sh"

python=${PYTHON:-python3}
"$python" -c 'import tensorboard' 2>/dev/null || {
    echo "skipped: $python has no tensorboard"
    exit 77
}
head -c 3000 text.txt | tr a-z b-za >other.txt
mixture='data.train=[{"path": "text.txt", "weight": 3}, {"path": "other.txt", "weight": 1}]'
train() { # FLAGS...
    "$mics" train run.json --ranks 4 --set "$mixture" --set run.tensorboard=events --set run.validate_every=2 "$@"
}
run 0 first train --steps 3
run 0 second train --steps 8
contains second.out "resumed from out/checkpoints/step-00000003"
run 0 compared "$python" "$golden/../../tools/check_tensorboard.py" events out/metrics.jsonl
contains compared.out ": equal"
cat compared.out
