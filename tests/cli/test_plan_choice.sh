# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# mics plan: attention's kernel, memory that is left free, fixed degrees of megatron's plan, batches that
# only it can run, and what it says of faster baselines.
. "$(dirname "$0")/lib.sh"

cat >bert.json <<'END'
{"model_type": "gpt2", "n_layer": 24, "n_head": 16, "n_embd": 2048, "n_positions": 512, "vocab_size": 32008}
END
cat >plan.json <<'END'
{"model": {"config": "bert.json"}, "data": {"train": ["nowhere.bin"]}, "run": {"steps": 1}, "train_batch_size": 1024}
END
refused() { # TEXT ARGUMENTS...
    refused_text=$1
    shift
    run 2 refused "$mics" plan "$@"
    one_line refused.err
    [ -s refused.out ] && fail "printed although refused: $*"
    contains refused.err "$refused_text"
}
step() { # FILE: seconds of the answer's step
    sed -n 's/.*"step_s": {"typical": \([0-9.e+-]*\),.*/\1/p' "$1" | head -1
}
less() { # A B
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a + 0 < b + 0) }' || fail "$1 is not below $2"
}

# ---- attention ----
run 0 own "$mics" plan plan.json --cluster p5.48xlarge:2 --top 1 --json
contains own.out '"attention": "flash2"'
run 0 third "$mics" plan plan.json --cluster p5.48xlarge:2 --top 1 --json --attention flash3
contains third.out '"attention": "flash3"'
run 0 unfused "$mics" plan plan.json --cluster p5.48xlarge:2 --top 1 --json --attention unfused
less "$(step third.out)" "$(step own.out)"
less "$(step own.out)" "$(step unfused.out)"
run 0 said "$mics" plan plan.json --cluster p5.48xlarge:2 --top 1 --attention cudnn
contains said.out "attention by cudnn"
refused "--kernels quick is not known; separate and fused are" plan.json --cluster p5.48xlarge:2 --kernels quick
refused "--attention flash4 is not known; unfused, flash1, flash2, flash3 and cudnn are" plan.json --cluster p5.48xlarge:2 \
    --attention flash4
refused "no rates of it are known on A100-SXM4-40GB; of unfused, flash1, flash2 and cudnn" plan.json \
    --cluster p4d.24xlarge:2 --attention flash3
cat >mine.json <<'END'
{"name": "mine", "accelerator": {"memory_gib": 8, "tflops_fp32": 10, "memory_gb_per_s": 500},
 "tiers": {"node": {"fan_out": 4, "gb_per_s": 20}, "network": {"gbit_per_s": 10}}}
END
refused "are known on mine; of no kernel by its name" plan.json --cluster mine.json:2 --attention flash2
run 0 noted "$mics" plan plan.json --cluster p4d.24xlarge:2 --cluster p5.48xlarge:2 --attention flash3
contains noted.out "no rates of attention flash3 are known on A100-SXM4-40GB"

# ---- memory that is left free ----
memory() { # FILE
    sed -n 's/.*"ranks": [0-9]*, "memory_bytes": \([0-9]*\),.*/\1/p' "$1"
}
run 0 usual "$mics" plan plan.json --cluster p4d.24xlarge:2 --top 1 --json
contains usual.out '"left_free_bytes": 408021893,' # 1 % of 38 GiB
run 0 none "$mics" plan plan.json --cluster p4d.24xlarge:2 --top 1 --json --reserve 0
contains none.out '"left_free_bytes": 0,'
run 0 much "$mics" plan plan.json --cluster p4d.24xlarge:2 --top 1 --json --reserve 1.5
[ "$(memory none.out)" -eq $(($(memory much.out) + 1610612736)) ] || fail "--reserve 1.5 does not leave 1.5 GiB free"
run 0 free "$mics" plan plan.json --cluster p4d.24xlarge:2 --top 1 --reserve 1.5
contains free.out "36.5 GiB of memory each for the run (1.50 GiB left free)"
refused "--reserve: a rank of p4d.24xlarge has 38.0 GiB for the run" plan.json --cluster p4d.24xlarge:2 --reserve 38
refused "--reserve -1" plan.json --cluster p4d.24xlarge:2 --reserve -1

# ---- megatron's degrees ----
run 0 cut "$mics" plan plan.json --cluster p4d.24xlarge:2 --top 1 --json --tensor 4 --pipeline 2 --virtual 3
contains cut.out '"pipeline": {"tensor": 4, "context": 1, "stages": 2, "data": 2, "chunks": 3, "expert": 1,'
run 0 ring "$mics" plan plan.json --cluster p4d.24xlarge:2 --top 1 --tensor 2 --context 2 --pipeline 1
contains ring.out "megatron t2c2 p1 d4: "
refused "no cut into 3 tensor-parallel ranks: they divide a node's ranks, and the key-value heads; 1, " \
    plan.json --cluster p4d.24xlarge:2 --tensor 3
refused "no cut into 3 context-parallel ranks" plan.json --cluster p4d.24xlarge:2 --context 3
refused "no cut into 2 expert-parallel ranks" plan.json --cluster p4d.24xlarge:2 --expert 2
refused "beside the other degrees" plan.json --cluster p4d.24xlarge:2 --tensor 4 --context 8
refused "--tensor 0" plan.json --cluster p4d.24xlarge:2 --tensor 0

# ---- a batch that the ranks do not divide ----
run 0 uneven "$mics" plan plan.json --cluster p4d.24xlarge:2 --set train_batch_size=24
grep -q "24 sequences" uneven.out || fail "24 sequences on 16 ranks have no plan"
run 0 gap "$mics" plan plan.json --cluster p4d.24xlarge --sweep nodes=1,2 --set train_batch_size=24
grep -qE '^ +2 +16 .*[0-9] x [0-9]' gap.out || fail "a sweep leaves 24 sequences on 16 ranks out"

# ---- what mics cannot run and is faster, and where the paper's sharding loses to ZeRO-3 ----
cat >large.json <<'END'
{"model_type": "gpt2", "n_layer": 96, "n_head": 96, "n_embd": 12288, "n_positions": 2048, "vocab_size": 51200}
END
large="--set model.config=large.json --set train_batch_size=1536"
run 0 losing "$mics" plan plan.json --cluster p4d.24xlarge --sweep nodes=64 $large
tr '\n' ' ' <losing.out >losing.txt
contains losing.txt "slower than zero3, as its states take"
contains losing.txt "memory is left for micro-batch 1 x 3, not 3 x 1"
run 0 rivals "$mics" plan plan.json --cluster p4d.24xlarge:64 --cluster p4d.24xlarge:32 $large
grep -qE '^megatron t.* would take .* s; mics cannot run it' rivals.out || fail "no faster baseline of the best cluster"
run 0 rivals "$mics" plan plan.json --cluster p4d.24xlarge:64 --cluster p4d.24xlarge:32 $large --json
contains rivals.out '"faster_baseline": "megatron t'
