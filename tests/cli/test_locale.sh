# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# The library in a program whose locale has decimal commas ($2 is preloaded, and sets it): what it
# reads and writes has points.
. "$(dirname "$0")/lib.sh"
setter=$2
mkdir locales
localedef -i de_DE -f UTF-8 locales/de_DE.UTF-8 >localedef.out 2>&1
comma() { # COMMAND...
    LOCPATH=$work/locales LC_ALL=de_DE.UTF-8 LD_PRELOAD=$setter "$@"
}
MICS_TEST_LOCALE=1 comma cat /dev/null >shown.out 2>&1
grep -qx '0,5' shown.out || { echo "no locale with decimal commas can be made here"; exit 77; }

# Numbers of every kind of file, and of keys that are set.
sets="--set optimizer.params.eps=1.5e-7 --set optimizer.params.betas=[0.85,0.955] --steps 4"
run 0 point "$mics" train run.json --ranks 2 --out point $sets
run 0 comma comma "$mics" train run.json --ranks 2 --out comma $sets
same_losses point comma
same_weights point/checkpoints/step-00000004 comma/checkpoints/step-00000004
sed 's/"comma"/"point"/' comma/resolved.json >left.txt
cmp left.txt point/resolved.json || fail "resolved.json: $(diff left.txt point/resolved.json)"
for key in loss lr grad_norm validation_loss; do
    sed -n "s/.*\"$key\": \([^,}]*\).*/\1/p" point/metrics.jsonl >left.txt
    sed -n "s/.*\"$key\": \([^,}]*\).*/\1/p" comma/metrics.jsonl >right.txt
    cmp left.txt right.txt || fail "metrics.jsonl: $key: $(diff left.txt right.txt)"
done
grep -q '[0-9],[0-9]' comma/metrics.jsonl && fail "metrics.jsonl has decimal commas"

# What was written with commas set is read without, and the other way.
run 0 onward "$mics" train run.json --ranks 2 --out comma $sets --steps 6
run 0 onward comma "$mics" train run.json --ranks 2 --out point $sets --steps 6
same_losses point comma

# A traced step, a cluster file and a plan.
run 0 traced comma "$mics" train run.json --ranks 2 --out traced --steps 2 --set run.trace_step=2
grep -q '"ts": *[0-9]*,[0-9]*, *"' traced/trace.json && fail "trace.json has decimal commas"
run 0 plan "$mics" plan run.json --cluster "$golden/cluster/bench.json:2" --sweep nodes=2 --svg point.svg
run 0 plan comma "$mics" plan run.json --cluster "$golden/cluster/bench.json:2" --sweep nodes=2 --svg comma.svg
[ ! -f point.svg ] || cmp point.svg comma.svg || fail "a chart has decimal commas"

# Errors too.
run 2 wrong comma "$mics" train run.json --ranks 2 --set gradient_clipping=-0.5
contains wrong.err "-0.5"
