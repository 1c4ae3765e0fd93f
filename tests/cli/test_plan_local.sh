# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# mics plan --local: rows of local steps, apart from the plans; a run file with what a row says is explained and
# planned with the same figures.
. "$(dirname "$0")/lib.sh"

cat >small.json <<'END'
{"model_type": "gpt2", "n_layer": 6, "n_head": 8, "n_embd": 512, "n_positions": 256, "vocab_size": 4000}
END
cat >slow.json <<'END'
{"name": "slow", "accelerator": {"memory_gib": 8, "tflops_fp32": 1, "memory_gb_per_s": 100},
 "tiers": {"node": {"fan_out": 2, "gb_per_s": 10}, "network": {"gbit_per_s": 1, "latency_us": 50}}}
END
sed 's/"gbit_per_s": 1,/"gbit_per_s": 100,/' slow.json >fast.json
sed 's/"gbit_per_s": 1,/"gbit_per_s": 0.01,/' slow.json >crawling.json
cat >plan.json <<'END'
{"model": {"config": "small.json"}, "data": {"train": ["nowhere.bin"], "sequence_length": 256}, "train_batch_size": 64,
 "run": {"steps": 1, "device": "cpu", "precision": "fp32", "threads": 1}}
END
value() { # KEY FILE: the first
    sed -n 's/.*"'"$1"'": "\{0,1\}\([^",}]*\).*/\1/p' "$2" | head -n 1
}
row() { # NAME H: of NAME.out into NAME.H
    grep '"outer": {"every": '"$2"',' "$1.out" >"$1.$2"
    [ "$(wc -l <"$1.$2")" = 1 ] || fail "$1.out has no row with H = $2"
}

# ---- apart, and only where it is asked for ----
run 0 plain "$mics" plan plan.json --cluster slow.json:4
run 0 with "$mics" plan plan.json --cluster slow.json:4 --local
grep -q "Local steps\|outer" plain.out && fail "local steps are planned unasked"
diff plain.out with.out | grep -q '^<' && fail "--local changes the plans"
contains with.out "Local steps, another training than the plans above"
contains with.out "arXiv:2503.09799"

# ---- what a row says is a run file ----
run 0 slow "$mics" plan plan.json --cluster slow.json:4 --local --json
for every in 10 30 100; do
    row slow $every
    outer=$(sed 's/.*"outer": \({[^}]*}\).*/\1/' slow.$every)
    params=$(value params slow.$every) grads=$(value grads slow.$every) optimizer=$(value optimizer slow.$every)
    [ "$(value gather slow.$every)" = ring ] && collectives=ring || collectives=two-stage
    cat >as.json <<END
{"model": {"config": "small.json"}, "data": {"train": ["nowhere.bin"], "sequence_length": 256}, "train_batch_size": 64,
 "train_micro_batch_size_per_gpu": $(value micro_batch slow.$every), "outer": $outer,
 "sharding": {"params": $params, "grads": $grads, "optimizer": $optimizer},
 "run": {"steps": 1, "device": "cpu", "precision": "fp32", "threads": 1, "prefetch": $(value prefetch slow.$every),
         "recompute": $(value recompute slow.$every), "collectives": "$collectives",
         "layered_micro_steps": $(value layered_micro_steps slow.$every)}}
END
    run 0 explained "$mics" explain as.json --ranks 8 --nodes 4 --json
    [ "$(value total explained.out)" = "$(value memory_bytes slow.$every)" ] ||
        fail "H = $every: $(value total explained.out) bytes are explained, $(value memory_bytes slow.$every) planned"
    contains explained.out "\"sent_bytes_of_a_period\": {\"intra\": $(value period_intra_bytes slow.$every), \"inter\": $(
        value period_inter_bytes slow.$every)"
    run 0 file "$mics" plan as.json --cluster slow.json:4 --json
    grep '"run_file": {' file.out >file.row
    for key in memory_bytes step_ms meeting_ms period_inter_bytes; do
        [ "$(value $key file.row)" = "$(value $key slow.$every)" ] ||
            fail "H = $every: $key $(value $key file.row) of the run file, $(value $key slow.$every) of the row"
    done
done
run 0 text "$mics" plan as.json --cluster slow.json:4
contains text.out "run file  $params|$grads|$optimizer R2"
contains text.err "outer: plans are of synchronous training"

# ---- from which network on ----
run 0 fast "$mics" plan plan.json --cluster fast.json:4 --local --json
for name in slow fast; do # each with the meetings that its own network wants
    pays=$(value pays_up_to_gbit_per_s $name.out)
    awk -v p="$pays" 'BEGIN { exit !(p > 1 && p < 100) }' || fail "$name: pays up to $pays Gb/s"
done
# Where meetings are not hidden they are rounded, or rarer.
run 0 crawling "$mics" plan plan.json --cluster crawling.json:4 --local --json
row crawling 10
row crawling 100
[ "$(value dtype crawling.10)" = int4 ] || fail "H = 10 meets in $(value dtype crawling.10)"
[ "$(value take crawling.out)" = 100 ] || fail "H = $(value take crawling.out) is taken"

# ---- where there are none ----
refused() { # TEXT ARGUMENTS...
    text=$1
    shift
    run 2 refused "$mics" plan plan.json --local "$@"
    one_line refused.err
    contains refused.err "$text"
}
refused "local steps are of several nodes, in bf16 or fp32, and not of pairs; these plans are of 1 node, in fp32" \
    --cluster slow.json:1
refused "these plans are of 4 nodes, in fp16" --cluster slow.json:4 --precision fp16
refused "--local is of one cluster and number of nodes" --cluster slow.json:4 --cluster slow.json:8
refused "--local is of one cluster and number of nodes" --cluster slow.json --sweep nodes=2,4
sed 's/"memory_gib": 8/"memory_gib": 0.75/' slow.json >tight.json
run 0 tight "$mics" plan plan.json --cluster tight.json:2 --local --set run.memory_limit=260000000
contains tight.out "no islands of whole nodes hold the state"
exit 0
