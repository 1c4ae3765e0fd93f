# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# run.trace_step: what is in the trace ($2 looks), that it changes nothing, and what happens when it cannot be written.
. "$(dirname "$0")/lib.sh"
check_trace=$2

entries() { # FLAGS...: of the schedule
    "$mics" explain run.json "$@" | sed -n 's/^schedule of a step: \([0-9]*\) entries.*/\1/p'
}

# What is fastest is not for this test to find.
sed -i 's/"threads": 1,/"threads": 1, "collectives": "two-stage",/' run.json
across='sharding={"params": 4, "grads": 4, "optimizer": 4}'

# Collectives on both streams: groups of four ranks on two nodes.
run 0 plain "$mics" train run.json --ranks 4 --nodes 2 --set "$across" --out plain
run 0 traced "$mics" train run.json --ranks 4 --nodes 2 --set "$across" --out traced \
    --set run.trace_step=3 --set run.trace_steps=2
no_line traced.err
same_losses plain traced
[ -e plain/trace.json ] && fail "a trace that nobody asked for"
"$check_trace" traced/trace.json 4 "$(entries --ranks 4 --nodes 2 --set "$across")" 3 2 ||
    fail "the trace is not as it should be"
ls traced/*.tmp >left.out 2>&1 && fail "the trace was not put into place"
contains traced.out "trace of steps 3 to 4 written to traced/trace.json"
contains traced.out "ui.perfetto.dev"
contains traced.out "computation waited"
contains traced.out "waited least"
contains traced.out "at least, whatever the order of collectives: "
contains traced/trace.json '"name": "gather inter h.1", "cat": "gather inter"'
contains traced/trace.json '"name": "backward head"'
contains traced/trace.json '"name": "agree"'

# The second hop: mics(2), its last step; units apart.
run 0 hop "$mics" train run.json --ranks 4 --nodes 2 --out hop --set run.trace_step=8 \
    --set run.coalesce_below=0
"$check_trace" hop/trace.json 4 "$(entries --ranks 4 --nodes 2 --set run.coalesce_below=0)" 8 1 || fail "hop/trace.json is wrong"
contains hop.out "trace of step 8 written to hop/trace.json"
contains hop/trace.json '"name": "replica scatter h.0"'

# One rank is traced too; it has no other node.
run 0 alone "$mics" train run.json --ranks 1 --out alone --set run.trace_step=2 \
    --set sharding=null --set 'sharding={"params": 1}'
contains alone/trace.json '"name": "compute"'
grep -q '"inter"' alone/trace.json && fail "a rank alone has no other node"
# What lies between two steps is in step_ms and not in the engine's own figure.
sed -n 's/.*"step_us": \([0-9.e+]*\).*/\1/p' alone/trace.json >engine.txt
sed -n 's/^{"step": 2,.*"step_ms": \([0-9.e+]*\).*/\1/p' alone/metrics.jsonl |
    paste -d ' ' - engine.txt |
    awk '$1 * 1000 > $2 && $2 > 0 { right++ } END { exit !(NR == 1 && right == 1) }' ||
    fail "step_ms of step 2 has no gap before the step in it"

# A run that goes on traces what is still to come, and nothing when that is nothing.
run 0 begin "$mics" train run.json --ranks 2 --steps 4 --out onward --set run.trace_step=0
run 0 onward "$mics" train run.json --ranks 2 --steps 6 --out onward --set run.trace_step=4 \
    --set run.trace_steps=3
contains onward.out "trace of steps 5 to 6 written"
cp onward/trace.json before.json
run 0 past "$mics" train run.json --ranks 2 --steps 8 --out onward --set run.trace_step=4
grep -q 'trace of' past.out && fail "a step that is over was traced"
cmp before.json onward/trace.json || fail "the trace was touched"

# Steps that do not come are refused; a trace that cannot be written ends the run on all ranks.
run 2 late "$mics" train run.json --ranks 2 --out late --set run.trace_step=9
one_line late.err
contains late.err "run.trace_step: traces steps 9 to 9, but the run ends after step 8"
mkdir -p blocked/trace.json
run 1 blocked "$mics" train run.json --ranks 4 --nodes 2 --out blocked --set run.trace_step=2
one_line blocked.err
contains blocked.err "cannot rename to blocked/trace.json"
exit 0
