# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# mics report and mics watch: the page's figures are those of metrics.jsonl with all their digits, texts of
# runs are no markup, nothing of the network is asked for, and what is no run is said to be none.
. "$(dirname "$0")/lib.sh"

name='a"<b>&c'
run 0 train "$mics" train run.json --ranks 4 --nodes 2 --out "$name" --set run.device=cpu --set run.trace_step=3 \
    --set run.validate_every=4 --set run.sample_every=8 --set 'sharding={"params": 2, "grads": 2, "optimizer": 4}'
contains train.out "report    $mics report '$name'"
printf '%s\n' '{"step": 8, "prompt": "<script>alert(1)</script>", "text": "</pre><img src=x>"}' >>"$name/samples.jsonl"
run 0 report "$mics" report "$name"
contains report.out "$name/report.html: 1 run"
page=$name/report.html
for text in '<script>alert' '</pre><img' "$name"; do
    grep -qF -- "$text" "$page" && fail "$text is markup of the page"
done
contains "$page" '&lt;/pre&gt;&lt;img src=x&gt;'
grep -oE '(src|href)=|url\(|@import|https?:' "$page" | grep -v '^src=$' >network.txt
[ ! -s network.txt ] || fail "the page asks for $(sort -u network.txt)"

# figures FIGURE: its values on the page, and those of metrics.jsonl.
figures() {
    sed -n "s/.*data-name=\"$1\" data-mean=\"\([^\"]*\)\".*/\1/p" "$page" | tr ' ' '\n' | grep -v '^-$' >left.txt
    sed -n "s/.*\"$1\": \([^,}]*\).*/\1/p" "$name/metrics.jsonl" | grep -v null >right.txt
    [ -s right.txt ] || fail "metrics.jsonl has no $1"
    diff left.txt right.txt || fail "$1 of the page is not that of metrics.jsonl"
}
for figure in loss validation_loss lr grad_norm tokens_per_s step_ms memory_peak_bytes sent_intra_bytes sent_inter_bytes \
    exposed_comm_ms exposed_gather_ms exposed_second_hop_ms; do
    figures $figure
done
contains "$page" ', as predicted' # of memory and bytes
contains "$page" 'Step 3 of rank 0 by its streams'
[ "$(grep -c '^<rect' "$page")" = "$(grep -c '"ph": "X", "pid": 0,' "$name/trace.json")" ] ||
    fail "not all entries of rank 0 are drawn"
contains "$page" 'waits least for collectives'
contains "$page" '&quot;train_micro_batch_size_per_gpu&quot;'
contains "$page" '&quot;cores&quot;'

# Several beside each other; what differs between their run files is marked.
run 0 other "$mics" train run.json --ranks 2 --out other --set run.seed=4
run 0 both "$mics" report other "$name" --out both.html --json
contains both.out '"runs": 2'
contains both.html 'loss of other'
contains both.html '<mark>    &quot;seed&quot;: 3,'
[ "$(grep -c '<mark>' both.html)" -le 14 ] || fail "more is marked than differs"
run 0 again "$mics" report other "$name" -o both.html # a page of ours is replaced

run 1 nowhere "$mics" report other --out nowhere/page.html
contains nowhere.err 'nowhere: No such file or directory; give an --out that can be written'
# Without a checkpoint a run's other files are what is verified.
cp -r other bare && rm -r bare/checkpoints
run 0 bare "$mics" verify bare
contains bare.err 'bare: holds no checkpoint'

# A million lines are thinned out.
awk 'BEGIN { for (i = 1; i <= 5000; i++) printf "{\"step\": %d, \"loss\": %d}\n", i, i == 4321 ? 99 : 2 }' >long.txt
mkdir long && mv long.txt long/metrics.jsonl
run 0 long "$mics" report long
contains long/report.html 'Thinned out: its lines are means of 8 steps each'
grep -o 'data-max="[^"]*"' long/report.html | grep -q ' 99 ' || fail "the spike is not seen"

# ---- watch ----
run 0 watch "$mics" watch "$name"
contains watch.out "step 8/8  loss $(printf %.4f "$(losses "$name" | sed -n 's/^8 //p')")"
contains watch.out "validation loss"
run 0 once "$mics" watch long --once
contains once.out 'step 5000/5000  loss 2.0000'
# It ends with the run, and takes no half of a line.
mkdir live
echo '{"run": {"steps": 3}}' >live/resolved.json
printf '{"step": 1, "loss": 1}\n{"step": 2, "lo' >live/metrics.jsonl
"$mics" watch live >live.out 2>&1 &
watcher=$!
await $watcher "the first step" grep -q 'step 1/3  loss 1.0000' live.out
printf 'ss": 2}\n{"step": 3, "loss": 0.5}\n' >>live/metrics.jsonl
wait $watcher || fail "watch ended with $?"
contains live.out 'step 3/3  loss 0.5000'

# ---- what is none ----
mkdir empty foreign
: >empty/metrics.jsonl
echo 'step,loss' >foreign/metrics.jsonl
echo mine >mine.html
wrong() { # TEXT ARGUMENTS...
    text=$1
    shift
    run 2 wrong "$mics" "$@"
    one_line wrong.err
    contains wrong.err "$text"
}
wrong 'nowhere/metrics.jsonl: is not there; give the folder of a run' report nowhere
wrong 'is not there; give the folder of a run' watch run.json
wrong 'empty: no step is done yet' report empty
wrong "foreign/metrics.jsonl: no line is of a run's metrics" report foreign
wrong 'mine.html: is there, and is no page of mics report' report other --out mine.html
[ "$(cat mine.html)" = mine ] || fail "mine.html was overwritten"
run 0 empty "$mics" watch empty --once
contains empty.out 'no step is done yet'
