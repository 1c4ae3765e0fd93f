# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# What is due behind a step, and what a run that was stopped or killed there left out: the next start makes up for it.
. "$(dirname "$0")/lib.sh"
train() { # NAME OUT FLAGS...
    name=$1 out=$2
    shift 2
    run 0 "$name" "$mics" train run.json --ranks 2 --set sharding.params=2 --set run.sample_every=4 \
        --set run.validate_every=4 --set run.keep_best=true --out "$out" "$@"
}
validations() { # OUT
    sed -n 's/^{"step": \([0-9]*\), "validation_loss": \([^,}]*\).*/\1 \2/p' "$1/metrics.jsonl" | sort -n | uniq
}
as_straight() { # OUT
    same_losses straight "$1"
    validations straight >left.txt
    validations "$1" >right.txt
    diff left.txt right.txt || fail "validations of $1 are not those of an undisturbed run"
    diff straight/samples.jsonl "$1/samples.jsonl" || fail "texts of $1 are not those of an undisturbed run"
    diff straight/checkpoints/best "$1/checkpoints/best" || fail "the best step of $1 is not that of an undisturbed run"
}
train straight straight
[ "$(wc -l <straight/samples.jsonl)" = 2 ] || fail "two texts are due"

# Killed while it validates its last step, which is saved: nothing of that is in the reports, nor is the step the best.
cp -r straight killed
grep -v '^{"step": 8, "validation_loss"' straight/metrics.jsonl >killed/metrics.jsonl
grep -v '^{"step": 8,' straight/samples.jsonl >killed/samples.jsonl
echo step-00000004 >killed/checkpoints/best
train again killed
as_straight killed
train done killed
contains done.out "holds the finished run"

# Killed while it writes the last text.
cp -r straight untold
grep -v '^{"step": 8,' straight/samples.jsonl >untold/samples.jsonl
train text untold
as_straight untold

# Nobody's texts are drawn of a finished run that has none, and one without reports stays finished.
cp -r straight without
rm without/metrics.jsonl without/samples.jsonl
train none without
contains none.out "holds the finished run"
[ -e without/samples.jsonl ] && fail "a finished run was opened again"

# Stopped with a step behind which a text is due.
cp -r straight stopped
rm -r stopped/checkpoints/step-00000008
echo step-00000004 >stopped/checkpoints/latest
grep '^{"step": [0-4],' straight/metrics.jsonl | grep -v '"step": 4, "validation' >stopped/metrics.jsonl
: >stopped/samples.jsonl
train onward stopped
as_straight stopped
