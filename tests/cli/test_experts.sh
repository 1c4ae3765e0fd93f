# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# A mixture of experts through every command: a stop and another mesh, export, import of it, evaluation; sized and
# planned for GPUs.
. "$(dirname "$0")/lib.sh"

repo=$(cd "$golden/../.." && pwd)
ln -s "$repo/configs" configs
ln -s "$repo/examples" examples
train() { # NAME RANKS STEPS FLAGS...
    name=$1 ranks=$2 steps=$3
    shift 3
    run 0 "$name" "$mics" train examples/mixtral.json --ranks "$ranks" --steps "$steps" --out out --set run.checkpoint_every=0 \
        --set run.validate_every=0 --set train_batch_size=16 --set "gradient_accumulation_steps=$((8 / ranks))" "$@"
}
loss() { sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$1"; }

train four 4 6
train two 2 10
contains two.out "resumed from out/checkpoints/step-00000006"
[ "$(grep -c '"router_entropy": [0-9].*"router_fullest": [0-9].*"router_balance": [0-9]' out/metrics.jsonl)" = 10 ] ||
    fail "a step has no figures of its routers"
run 0 eval "$mics" eval out --data text.txt --json --sequence 64
run 0 convert "$mics" convert out exported
contains exported/config.json '"MixtralForCausalLM"'
run 0 evaluated "$mics" eval exported --data text.txt --json --sequence 64
[ -n "$(loss eval.out)" ] && [ "$(loss evaluated.out)" = "$(loss eval.out)" ] || fail "the export's loss differs"
run 0 again "$mics" convert exported twice
for file in exported/*; do
    cmp "$file" "twice/${file##*/}" || fail "$file is not the same in twice"
done
run 0 import "$mics" train examples/mixtral.json --ranks 2 --steps 1 --out imported --set model.init=exported

# GShard's recipe: the same losses of two ranks, and over a stop on four; an evaluation takes its own capacity.
gshard() { # RANKS STEPS OUT FLAGS...
    ranks=$1 steps=$2 out=$3
    shift 3
    run 0 "gshard$ranks" "$mics" train examples/gshard.json --ranks "$ranks" --steps "$steps" --out "$out" --set run.validate_every=0 \
        --set run.checkpoint_every=0 --set train_batch_size=16 --set "gradient_accumulation_steps=$((8 / ranks))" "$@"
}
gshard 2 6 alone
gshard 4 4 split
gshard 2 6 split
# Spread over ranks: the same, with blocks for what the capacity lets experts take, as told before and as counted.
gshard 8 6 spread --nodes 4 --set zero_optimization=null --set 'sharding={"params": 8, "experts": 8}'
grep -aE '[0-9] [KMG]?i?B +[0-9.]+ [KMG]?i?B' gshard8.out >sizes.txt
[ "$(grep -c ' exact$' sizes.txt)" = "$(wc -l <sizes.txt)" ] && grep -q "inter-node" sizes.txt || fail "bytes or memory are not exact"
losses spread >spread.txt
losses alone >alone.txt
paste -d' ' alone.txt spread.txt | awk '$1 != $3 || ($2 - $4) ^ 2 > 1e-8 { bad = 1 } END { exit bad || NR != 6 }' ||
    fail "losses differ where experts are spread"
losses alone >alone.txt
losses split >split.txt
paste -d' ' alone.txt split.txt | awk '$1 != $3 || ($2 - $4) ^ 2 > 1e-8 { bad = 1 } END { exit bad || NR != 6 }' ||
    fail "losses differ"
[ "$(grep -c '"router_dropped": 0\.[0-9]' alone/metrics.jsonl)" = 6 ] || fail "nothing is dropped"
run 0 gshard_eval "$mics" eval split --data text.txt --json --sequence 64
run 0 gshard_convert "$mics" convert split gshard_exported
contains gshard_exported/config.json '"expert_eval_capacity_factor": 2'
run 0 gshard_again "$mics" eval gshard_exported --data text.txt --json --sequence 64
[ -n "$(loss gshard_eval.out)" ] && [ "$(loss gshard_again.out)" = "$(loss gshard_eval.out)" ] || fail "the export's loss differs"
sed 's/"expert_eval_capacity_factor": 2[.0]*/"expert_eval_capacity_factor": 0.5/' gshard_exported/config.json >config.tmp
mv config.tmp gshard_exported/config.json
run 0 gshard_less "$mics" eval gshard_exported --data text.txt --json --sequence 64
[ "$(loss gshard_less.out)" != "$(loss gshard_eval.out)" ] || fail "an evaluation has no capacity"

# Figures are only plausible; sanitizers see what is read and written.
run 0 bench "$mics" bench compute examples/mixtral.json --ranks 2 --seconds 0.1 --force --out links.json
contains links.json '"matmul_efficiency": [['

run 0 gpu "$mics" explain examples/mixtral.json --ranks 4 --set run.device=cuda --set run.precision=bf16
contains gpu.out "workspace"
run 0 gpu "$mics" explain examples/gshard.json --ranks 4 --set run.device=cuda --set run.precision=bf16
run 0 plan "$mics" plan configs/mixtral-tiny.json --cluster p4d.24xlarge:1 --top 1 --json
contains plan.out '"trainable": true'
