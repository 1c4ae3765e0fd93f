# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# What the program prints, word for word and figure for figure: plans, explained runs, and the summary of
# a training without its times and losses. tests/golden/printed has it. After a change that is meant:
#   UPDATE=1 sh tests/cli/test_printed.sh build-ci/mics      and read the diff before you commit it
. "$(dirname "$0")/lib.sh"
printed=$golden/printed
export SOURCE_DATE_EPOCH=1796000000 # prices are as old as on that day, 2026-11-30

# same NAME: NAME.out is what the golden file NAME.txt holds.
same() {
    if [ -n "${UPDATE:-}" ]; then
        cp "$1.out" "$printed/$1.txt" || fail "cannot write $printed/$1.txt"
    fi
    diff "$printed/$1.txt" "$1.out" >difference.txt ||
        fail "$1 prints something else (UPDATE=1 takes it over): $(head -n 12 difference.txt)"
}

# ---- plans ----
cat >large.json <<'END'
{"model_type": "gpt2", "n_layer": 24, "n_head": 16, "n_embd": 2048, "n_positions": 512, "vocab_size": 32008}
END
cat >plan.json <<'END'
{"model": {"config": "large.json"}, "data": {"train": ["nowhere.bin"]}, "run": {"steps": 1}, "train_batch_size": 1024}
END
run 0 plan "$mics" plan plan.json --cluster p4d.24xlarge:4 --top 3
same plan
run 0 plan_json "$mics" plan plan.json --cluster p3dn.24xlarge:2 --json --top 2
same plan_json
run 0 sweep "$mics" plan plan.json --cluster p4d.24xlarge --sweep nodes=1..6
same sweep
run 0 sweep_p "$mics" plan plan.json --cluster p4d.24xlarge:2 --sweep P
same sweep_p
# What mics cannot run, and what misses the goal.
run 0 sweep_fp8 "$mics" plan plan.json --cluster p5.48xlarge --sweep nodes=1,16 --precision fp8 --tokens 100B --days 1
same sweep_fp8
run 0 clusters_fp8 "$mics" plan plan.json --cluster p5.48xlarge:1 --cluster p5.48xlarge:16 --precision fp8 \
    --tokens 100B --days 1
same clusters_fp8
# So large that tensor and pipeline parallelism count, and no node holds it.
cat >huge.json <<'END'
{"model_type": "gpt2", "n_layer": 96, "n_head": 96, "n_embd": 12288, "n_positions": 2048, "vocab_size": 51200}
END
run 0 plan_huge "$mics" plan plan.json --cluster p4d.24xlarge:32 --top 2 --set model.config=huge.json \
    --set train_batch_size=1536
same plan_huge

# ---- explained runs: on the same memory and cores everywhere ----
explain() { # NAME FLAGS...
    name=$1
    shift
    run 0 "$name" "$mics" explain run.json --set run.memory_limit=1073741824 --set run.device=cpu "$@"
    same "$name"
}
explain explain --ranks 8 --nodes 2 --set 'sharding={"params": 4, "grads": 4, "optimizer": 8}'
explain explain_json --ranks 8 --nodes 2 --json --set 'sharding={"params": 8, "grads": 8, "optimizer": 8}' \
    --set run.collectives=two-stage
explain explain_steps --ranks 4 --nodes 2 --all-steps --set 'sharding={"params": 4, "grads": 4, "optimizer": 4}' \
    --set run.layered_micro_steps=2 --set run.collectives=ring
explain explain_outer --ranks 4 --nodes 2 --set 'sharding={"params": 2}' \
    --set 'outer={"every": 30, "fragments": 2, "overlap_steps": 3, "dtype": "int8"}'

# ---- a training's summary ----
run 0 training "$mics" train run.json --ranks 4 --nodes 2 --set 'sharding={"params": 2, "grads": 2, "optimizer": 4}' \
    --set run.memory_limit=1073741824 --set run.device=cpu --set run.collectives=two-stage
sed -n '/^memory of a rank/,/^in all/p; /^bytes sent/,$p' training.out |
    sed -e 's/[0-9][0-9.]* \(ms\|s\|tokens\/s\)\b/N \1/g' -e "s|$work|OUT|g" \
        -e "s|^next      $mics |next      mics |" -e "s|^report    $mics |report    mics |" >summary.out
[ -s summary.out ] || fail "no summary is printed"
grep -qi ' 0 B *0 B\|0 bytes *0 bytes' summary.out && fail "a row of nothing is printed"
same summary
# The sample is of 320 tokens, which are bytes here; each is printed as one, and a newline ends it.
bytes=$(sed -n '/^what the model writes/,/^$/s/^  | //p' training.out | wc -c)
[ "$bytes" = 321 ] || fail "the sample has $bytes bytes"
exit 0
