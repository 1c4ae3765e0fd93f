# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# mics train and explain, with ranks as threads: what they print, write and refuse to write over.
. "$(dirname "$0")/lib.sh"

run 0 train "$mics" train run.json --ranks 4 --nodes 2
[ -s train.err ] && fail "train.err is not empty"
contains train.out "4 on 2 nodes, mics(2)"
contains train.out "validation loss"
contains train.out "before training"
contains train.out "checkpoint step 4 written to out/checkpoints/step-00000004"
contains train.out "saving step 8"
contains train.out "checkpoint step 8 written to out/checkpoints/step-00000008"
contains train.out "what the model writes"
contains train.out "stored in out"
# Rows of memory and bytes: every prediction was exact.
[ "$(grep -c 'exact$' train.out)" -ge 10 ] || fail "rows of predictions are missing"
grep -E ' (B|KiB|MiB) .*[^t]$' train.out | grep -q 'intra-node\|inter-node\|in all' &&
    fail "a prediction was not exact"

[ "$(losses out | wc -l)" = 8 ] || fail "metrics.jsonl lacks steps"
for key in step loss lr grad_norm tokens tokens_per_s step_ms mfu memory_peak_bytes \
    sent_intra_bytes sent_inter_bytes exposed_comm_ms exposed_gather_ms exposed_reduce_ms \
    exposed_second_hop_ms exposed_agree_ms; do
    [ "$(grep -c "\"$key\": " out/metrics.jsonl)" -ge 8 ] || fail "metrics.jsonl lacks $key"
done
# The parts of the exposed time are all of it.
tr -d '"{},' <out/metrics.jsonl | awk '/exposed/ {
    for (i = 1; i < NF; i += 2)
        value[$i] = $(i + 1)
    rest = value["exposed_comm_ms:"] - value["exposed_gather_ms:"] - value["exposed_reduce_ms:"]
    rest -= value["exposed_second_hop_ms:"] + value["exposed_agree_ms:"]
    wrong += !(value["exposed_comm_ms:"] > 0 && rest < 1e-6 && rest > -1e-6)
    lines++
}
END { exit wrong > 0 || lines != 8 }' || fail "exposed times do not add up"
[ "$(grep -c validation_loss out/metrics.jsonl)" = 2 ] || fail "two validations are due"
first=$(losses out | sed -n '1s/.* \([0-9]*\).*/\1/p')
last=$(losses out | sed -n '$s/.* \([0-9]*\).*/\1/p')
[ "$last" -lt "$first" ] || fail "the loss did not fall: $first to $last"
[ -f out/checkpoints/step-00000004/manifest.json ] || fail "no checkpoint at step 4"

# Once more: it is done, and nothing changes.
cp -r out before
run 0 again "$mics" train run.json --ranks 4 --nodes 2
contains again.out "holds the finished run"
contains again.out "to train further: --steps"
diff -r out before || fail "a finished run was changed"
run 2 none "$mics" train run.json --ranks 4 --nodes 2 --resume none
one_line none.err
contains none.err "holds checkpoints"
diff -r out before || fail "a refused run was changed"

# No validation: no losses of it anywhere, no numbers that are none, and all of the text trains,
# also beside a validation text.
run 0 unvalidated "$mics" train run.json --ranks 2 --out unvalidated --set run.validation_batches=0
grep -v '^  | ' unvalidated.out | cat - unvalidated/metrics.jsonl | grep -qi 'validation\|nan' &&
    fail "a validation that is none was shown"
[ "$(losses unvalidated | wc -l)" = 8 ] || fail "metrics.jsonl lacks steps"
run 0 ignored "$mics" train run.json --ranks 2 --out ignored --set run.validation_batches=0 \
    --set 'data.validation=["text.txt"]'
same_losses unvalidated ignored
one_line ignored.err
contains ignored.err 'data.validation is not used: run.validation_batches is 0'
run 0 never "$mics" train run.json --ranks 2 --out never --steps 1 --set run.validation_batches=0 \
    --set run.validate_every=1
contains never.err 'run.validate_every is not used'
run 0 beside "$mics" train run.json --ranks 2 --out beside --set 'data.validation=["text.txt"]'
same_losses unvalidated beside

# Validations are no part of step_ms: here they are nearly all of the time, where the machine does not stand still in a step.
has_short_steps() {
    rm -rf often
    begin=$(date +%s%N)
    run 0 often "$mics" train run.json --ranks 1 --out often --set run.validate_every=1 \
        --set run.validation_batches=50 --set sharding=null
    taken=$(($(date +%s%N) - begin))
    sed -n 's/.*"step_ms": \([0-9.e+]*\).*/\1/p' often/metrics.jsonl | awk -v taken="$taken" '
        { sum += $1 * 1e6 } END { exit !(NR == 8 && sum > 0 && sum < taken / 2) }'
}
has_short_steps || has_short_steps || has_short_steps || fail "step_ms counts validations"

# The same run file gives the same bits, in two ways of saying it.
run 0 twice "$mics" train run.json --ranks 4 --nodes=2 --out twice
same_losses out twice
run 0 resolved "$mics" train out/resolved.json --ranks=4 --nodes 2 --out resolved
same_losses out resolved

# Other meshes and shardings: the same losses to the digits that differing sums leave alone.
for mesh in "1 1 1 1 1" "2 1 1 2 2" "4 1 4 4 4" "4 2 2 2 4" "8 4 2 4 8"; do
    set -- $mesh
    run 0 mesh "$mics" train run.json --ranks "$1" --nodes "$2" --out "mesh$1$2$3$4$5" \
        --set sharding.params="$3" --set sharding.grads="$4" --set sharding.optimizer="$5" \
        --set gradient_accumulation_steps=1
    losses "mesh$1$2$3$4$5" >other.txt
    losses out | paste -d ' ' - other.txt |
        awk '{ d = $2 - $4; if (d < 0) d = -d; if (d > 1e-4 * $2) { print; bad = 1 } }
             END { exit bad }' || fail "losses of mesh $mesh differ"
done

# Small units whole on every rank: the embeddings and the head, or all units.
for below in 10000 16384; do
    run 0 small "$mics" train run.json --ranks 4 --nodes 2 --out "small$below" \
        --set run.param_persistence_threshold=$below --set sharding.optimizer=4
    [ "$(grep -c 'exact$' small.out)" -ge 9 ] || fail "rows of predictions are missing"
    losses "small$below" >other.txt
    losses out | paste -d ' ' - other.txt |
        awk '{ d = $2 - $4; if (d < 0) d = -d; if (d > 1e-4 * $2) { print; bad = 1 } }
             END { exit bad }' || fail "losses with small units whole differ"
done
grep -q "gather slots" small.out && fail "nothing is gathered where all units are whole"

# Replica gathers run early where there are replicas, which changes no loss; else that is said.
run 0 late "$mics" train run.json --ranks 4 --nodes 2 --out late --set run.early_gathers=false
run 0 early "$mics" train run.json --ranks 4 --nodes 2 --out early --set run.early_gathers=true
[ -s early.err ] && fail "early.err is not empty"
losses late >late.losses
losses early | cmp -s - late.losses || fail "early replica gathers change losses"
run 0 soon "$mics" explain run.json --ranks 4 --nodes 2 --set run.early_gathers=true --all-steps
run 0 then "$mics" explain run.json --ranks 4 --nodes 2 --set run.early_gathers=false --all-steps
order() { # FILE: which of these is listed first
    sed -nE 's/^ +[0-9]+ +[a-z]+ +(replica gather|backward) .*/\1/p' "$1" | awk 'NR == 1'
}
[ "$(order soon.out)" = backward ] || fail "an early replica gather is ahead of backward"
[ "$(order then.out)" = "replica gather" ] || fail "a late replica gather is behind backward"
run 0 whole "$mics" train run.json --ranks 2 --out whole --set run.early_gathers=true
contains whole.err "run.early_gathers: true changes nothing here"

# A tiny model's micro-batch: more than 1, as each call of an op costs time, most where threads wake for
# it; and with one thread what its cache holds.
cat >tiny.json <<END
{"model": {"config": "$golden/../../configs/gpt2-tiny.json"},
 "data": {"train": ["$golden/../../examples/corpus/sonnets-*.txt"], "tokenizer": "bytes", "sequence_length": 64},
 "run": {"steps": 1, "device": "cpu", "precision": "fp32"}, "train_batch_size": 16}
END
run 0 alone "$mics" explain tiny.json --set run.threads=1
grep -q '^  train_micro_batch_size_per_gpu  *[248] ' alone.out || fail "one thread's micro-batch is none of 2, 4 and 8"
run 0 woken "$mics" explain tiny.json --set run.threads=2
grep -qE '^  train_micro_batch_size_per_gpu  *(8|16) ' woken.out || fail "two threads' micro-batch is below 8"

# Automatic sharding: the fastest that fits, said with what keeping every state twice costs.
sed 's/"n_embd": 32/"n_embd": 128/' model.json >wide.json
explain_auto() { # NAME FLAGS...
    name=$1
    shift
    run 0 "$name" "$mics" explain run.json --ranks 8 --nodes 2 --set model.config=wide.json \
        --set sharding='"auto"' "$@"
}
mesh_line() { # NAME: "8 ranks, 2 nodes of 4: NAME"
    sed -n 's/^  8 ranks, 2 nodes of 4: //p' "$1.out"
}
explain_auto auto
contains auto.err '"sharding": "auto" for usual links (run.cluster names yours): '"$(mesh_line auto), "
contains auto.err "masters and moments exist once: run.min_replicas=2 would take "
tr -s ' \n' ' ' <auto.out >auto.line
contains auto.line "optimizer 1; parameters are compared every 100 steps and before each save; masters and moments are hashed from update to update; run.min_replicas=2 would keep"
total=$(sed -n 's/^  in all .* \([0-9]*\) B$/\1/p' auto.out | head -n 1)
explain_auto twice --set run.min_replicas=2
contains auto.err "would take $(mesh_line twice), "
contains twice.out "optimizer 2; "
grep -q "exist once" twice.err && fail "every state exists twice"
explain_auto all --set run.min_replicas=8
contains all.out "8 ranks, 2 nodes of 4: ddp"
run 2 many "$mics" explain run.json --ranks 8 --set sharding='"auto"' --set run.min_replicas=9
contains many.err "9 copies of every state need 9 ranks, and there are 8; 1 to 8 would work"
# A communication dtype that the chosen sharding has no use for: a warning; of a given one an error.
explain_auto idle --set run.comm_dtype.grads=bf16 --set run.min_replicas=8
contains idle.err 'warning: run.json, --set run.comm_dtype.grads: "bf16" would have no effect'
contains idle.out "8 ranks, 2 nodes of 4: ddp"
run 2 idle "$mics" explain run.json --ranks 8 --nodes 2 --set sharding='{"params": 1}' \
    --set run.comm_dtype.grads=bf16
contains idle.err 'error: run.json, --set run.comm_dtype.grads: "bf16" would have no effect'
# In one ring rounding rules out gradients over nodes of several ranks, and not the whole plan.
explain_auto rounded --set run.comm_dtype.grads=bf16 --set run.collectives=ring
contains rounded.out "  fits: "
explain_auto tight --set run.memory_limit=$((total - 1))
[ "$(mesh_line tight)" != "$(mesh_line auto)" ] || fail "it does not fit there"
contains tight.out "  fits: "
# It is kept for as many ranks, whatever would be chosen today; for others, or more copies, it is
# chosen anew.
auto="--set sharding=\"auto\" --nodes 2"
run 0 auto "$mics" train run.json $auto --ranks 4 --steps 2 --out auto
run 0 resolved "$mics" train auto/resolved.json --ranks 4 --nodes 2 --out resolved_auto
same_losses auto resolved_auto
cp -r auto fewer
cp -r auto copies
run 0 goes_on "$mics" train run.json $auto --ranks 4 --steps 4 --out auto --set run.cluster=none
grep -q '"sharding": "auto"' goes_on.err && fail "it should be kept: nothing is chosen"
run 0 fewer "$mics" train run.json $auto --ranks 2 --steps 4 --out fewer
contains fewer.err '"sharding": "auto" is chosen anew: the checkpoint'
contains fewer.err "is of 4 ranks, and there are 2"
run 0 copies "$mics" train run.json $auto --ranks 4 --steps 4 --out copies --set run.min_replicas=4
contains copies.err "does not do for 2 nodes and run.min_replicas 4"
contains copies.out "4 on 2 nodes, ddp"

# A file that gives the global batch alone: how it is cut, and recomputation, are chosen with the
# sharding, kept by a run that goes on with other memory, and never beyond the memory.
sed '/gradient_accumulation_steps/d; s/"train_batch_size": 16/"train_batch_size": 64/' run.json >cut.json
grep -q '"train_batch_size": 64' cut.json || fail "cut.json should have a global batch alone"
cut="--ranks 4 --nodes 2 --set sharding=\"auto\""
run 0 cut "$mics" train cut.json $cut --steps 2 --out cut
contains cut.err ", micro-batch 16 x 1 micro-steps, "
run 0 open "$mics" explain cut.json $cut
total=$(sed -n 's/^  in all .* \([0-9]*\) B$/\1/p' open.out | head -n 1)
run 0 less "$mics" explain cut.json $cut --set run.memory_limit=$((total / 3))
contains less.out "  fits: "
grep -q 'train_micro_batch_size_per_gpu  *16 ' less.out && fail "a smaller micro-batch should be chosen"
run 0 cut "$mics" train cut.json $cut --steps 4 --out cut --set run.memory_limit=$((total * 2))
grep -q "micro-batch" cut.err && fail "the micro-batch should be kept"
grep -q '"train_micro_batch_size_per_gpu": 16$' cut/resolved.json || fail "16 should be kept"
run 2 none "$mics" train cut.json $cut --out none --set run.memory_limit=200KiB
one_line none.err
run 2 none "$mics" explain cut.json $cut --set run.memory_limit=200KiB
contains none.err "the run does not fit: "

# Automatic prefetch: the deepest that fits; a depth that is given and does not is told so.
sed 's/"n_layer": 2/"n_layer": 8/' model.json >deep.json
explain_deep() { # NAME FLAGS...
    name=$1
    shift
    run 0 "$name" "$mics" explain run.json --ranks 4 --set model.config=deep.json \
        --set run.share_params=false "$@"
}
limit=1GiB
for depth in 3 2 1 0; do
    explain_deep deep --set run.memory_limit=$limit
    grep -q "run.prefetch  *$depth  *auto: the deepest" deep.out || fail "prefetch should be $depth"
    contains deep.out "  fits: "
    total=$(sed -n 's/^  in all .* \([0-9]*\) B$/\1/p' deep.out | head -n 1)
    [ $depth -gt 0 ] && limit=$((total - 1))
done
run 2 given "$mics" train run.json --ranks 4 --set model.config=deep.json \
    --set run.share_params=false --set run.memory_limit=$total --set run.prefetch=3
one_line given.err
contains given.err "or run.prefetch 0 ("
run 0 taken "$mics" train run.json --ranks 4 --set model.config=deep.json --out taken --steps 2 \
    --set run.share_params=false --set run.memory_limit=$total --set run.prefetch='"auto"'
run 0 ahead "$mics" train run.json --ranks 4 --set model.config=deep.json --out ahead --steps 2
same_losses taken ahead
# Layered micro-steps: the same bits; memory that is not there for it is told so.
wide="--ranks 4 --set run.steps=2 --set sharding.params=2 --set sharding.grads=2 --set sharding.optimizer=2"
wide="$wide --set train_micro_batch_size_per_gpu=1 --set gradient_accumulation_steps=4 --set run.prefetch=1"
run 0 narrow "$mics" train run.json $wide --out narrow
run 0 wide "$mics" train run.json $wide --out wide --set run.layered_micro_steps=3
same_losses wide narrow
contains wide.out "4 micro-steps of 1 on 4 ranks, layered 2 at a time"
run 0 wide "$mics" explain run.json $wide --set run.layered_micro_steps=3
contains wide.out "2 of 4 micro-steps are layered"
wide_total=$(sed -n 's/^  in all .* \([0-9]*\) B$/\1/p' wide.out | head -n 1)
grep -q "\"memory_peak_bytes\": $wide_total[,}]" wide/metrics.jsonl || fail "memory is not $wide_total bytes"
run 2 wide "$mics" train run.json $wide --out none --set run.layered_micro_steps=3 --set run.memory_limit=$((wide_total - 1))
one_line wide.err
contains wide.err "run.layered_micro_steps 1 ("

# Left open: one on one node; on several as many as at most double state and a micro-batch, and the same bits as that number.
grep -q '"layered_micro_steps": 1,' narrow/resolved.json || fail "nothing is layered on one node"
nodes="--nodes 2 --set data.sequence_length=8"
run 0 open "$mics" train run.json $wide $nodes --out open
contains open.out "layered 4 at a time"
contains open.out "layered   4 micro-batches in flight (run.layered_micro_steps \"auto\"): the second hop overlaps"
grep -q '"layered_micro_steps": 4,' open/resolved.json || fail "4 of 4 should be chosen"
run 0 said "$mics" train run.json $wide $nodes --out said --set run.layered_micro_steps=4
same_losses open said
! grep -q '"auto"' said.out || fail "a number that is given is not chosen"
run 0 open "$mics" explain run.json $wide $nodes
contains open.out "  4 of 4 micro-steps (auto: all, as they at most double the state and a micro-batch)"
total=$(sed -n 's/^  in all .* \([0-9]*\) B$/\1/p' open.out | head -n 1)
grep -q "\"memory_peak_bytes\": $total[,}]" open/metrics.jsonl || fail "memory is not $total bytes"
# Fewer bytes where groups cross nodes.
run 0 cross "$mics" train run.json $wide $nodes --out cross --set sharding.params=4 --set sharding.grads=4 --set sharding.optimizer=4 \
    --set run.param_persistence_threshold=0
grep -q 'layered   . micro-batches in flight .*: .* between nodes a step, not .*; .* more memory a rank' cross.out ||
    fail "what layered accumulation brings is not said"
# Memory that is not there makes it fewer, which is told; a run that goes on keeps the number.
unsaved="--set run.checkpoint_every=0"
run 0 less "$mics" train run.json $wide $nodes $unsaved --steps 1 --out less --set run.memory_limit=$((total - 1))
contains less.err 'warning: run.layered_micro_steps "auto": 2, as 4 do not fit into '
contains less.out "layered 2 at a time"
run 0 less "$mics" train run.json $wide $nodes --out less
contains less.out "layered 2 at a time"
run 0 two "$mics" train run.json $wide $nodes --out two --set run.layered_micro_steps=2
same_losses less two
# So does memory that saves need if they are not to stop training, unless one in flight leaves none for it either.
in_all() { # LAYERED: bytes of a rank
    run 0 in_all "$mics" explain run.json $wide $nodes --set run.layered_micro_steps=$1
    sed -n 's/^  in all .* \([0-9]*\) B$/\1/p' in_all.out | head -n 1
}
one=$(in_all 1)
two=$(in_all 2)
copy=$("$mics" explain run.json $wide $nodes --json | sed -n 's/.*"save_copy_bytes": \([0-9]*\).*/\1/p')
[ "$copy" -gt 0 ] || fail "saves should not stop training"
[ $((two + copy)) -ge "$total" ] || fail "4 should leave no room for the copy at the limit of 2 with it"
run 0 room "$mics" explain run.json $wide $nodes --set run.memory_limit=$((two + copy))
contains room.out "  2 of 4 micro-steps (auto: as many as fit the memory)"
contains room.err " of it for saves while training goes on"
run 0 room "$mics" explain run.json $wide $nodes $unsaved --set run.memory_limit=$((two + copy))
contains room.out "  4 of 4 micro-steps (auto: all"
run 0 room "$mics" explain run.json $wide $nodes --set run.memory_limit=$((one + copy - 1))
contains room.out "  2 of 4 micro-steps (auto: as many as fit the memory)"
# A run that goes on with less memory takes fewer, and says so; with as much it keeps its bits.
run 0 goes "$mics" train run.json $wide $nodes --steps 1 --out goes
cp -r goes same
run 0 goes "$mics" train run.json $wide $nodes --out goes --set run.memory_limit=$((total - 1))
contains goes.err "warning: run.layered_micro_steps: 2, as 4, which the checkpoint has, do not fit into "
contains goes.out "layered 2 at a time"
grep -q '"layered_micro_steps": 2,' goes/resolved.json || fail "2 should be kept from here on"
run 0 same "$mics" train run.json $wide $nodes --out same --set run.memory_limit=$total
contains same.out "layered 4 at a time"
grep -q "layered_micro_steps" same.err && fail "4 fit"
same_losses open same

run 2 deep "$mics" explain run.json --ranks 4 --set model.config=deep.json \
    --set run.share_params=false --set run.memory_limit=$((total - 1))
contains deep.err "the run does not fit: a rank needs "
grep -q "run.prefetch  *0  *auto: the deepest" deep.out || fail "prefetch should be 0"
contains deep.out "DOES NOT FIT"

run 0 explain "$mics" explain run.json --ranks 4 --nodes 2
grep -q "partition group *2 ranks: 0, 1 (of rank 0)" explain.out || fail "groups are unclear"
grep -q "replication group *2 ranks: 0, 2 (of rank 0)" explain.out || fail "groups are unclear"
grep -q "  1 rank" explain.out && fail "a group of one rank is none"
contains explain.out "replica scatter"
contains explain.out "train_batch_size"
run 0 json "$mics" explain run.json --ranks 4 --nodes 2 --json
contains json.out '"sent_bytes"'

# How collectives run, on which wires, and what stays whole.
across="--ranks 8 --nodes 4 --set sharding.params=4 --set sharding.grads=4"
run 0 two "$mics" explain run.json $across --set sharding.optimizer=4
grep -q "gather  *two-stage  *fp32  *partition group  *4 units of 64 to 12704 elements" two.out ||
    fail "gathers should run in two stages"
grep -q "reduce  *two-stage  *fp32  *gradient group" two.out || fail "so should reductions"
for kind in scatter gather; do
    grep -q "replica $kind  *ring  *fp32  *replication group" two.out || fail "a replica $kind is due"
done
grep -q "gather inter" two.out || fail "the first stage should be listed"
grep -q "elements in all stay" two.out && fail "no unit should stay whole"
run 0 rings "$mics" explain run.json $across --set sharding.optimizer=8 --set run.collectives=ring \
    --set run.param_persistence_threshold=10000 --set run.comm_dtype.params=bf16 --set run.comm_dtype.boundary=int8
grep -q "gather  *ring  *bf16  *partition group  *2 units of 12704 elements" rings.out ||
    fail "gathers should run in rings"
grep -q "scatter  *direct  *int8" rings.out || fail "the second hop should be int8"
contains rings.out "2 units of 9280 elements in all stay whole on every rank"
run 0 gathers "$mics" explain run.json $across --set sharding.optimizer=4 --set run.collectives=ring-gathers
grep -q "gather  *ring  *fp32" gathers.out || fail "gathers should run in rings"
grep -q "reduce  *two-stage" gathers.out || fail "reductions should not"
run 0 json "$mics" explain run.json --json $across --set sharding.optimizer=8 \
    --set run.param_persistence_threshold=10000 --set run.comm_dtype.boundary=int8
contains json.out '"kind": "gather", "algorithm": "two-stage", "dtype": "fp32"'
contains json.out '"whole": {"units": 2, "elems": 9280}'
grep -q '"kind": "scatter inter", "unit": [0-9]*, "units": 2, .*"dtype": "int8", "algorithm": "two-stage"' \
    json.out || fail "small units should share a message of int8 between nodes"
[ -d explained ] && fail "explain wrote something"

# Token shards alone, of a tokenizer that nobody named: no text is read or written.
run 0 shard "$mics" tokenize text.txt --out bytes.bin
sed 's/"vocab_size": 256/"vocab_size": 200/' model.json >other.json
shards="--set model.config=other.json --set data.train=[\"bytes.bin\"]"
run 0 shards "$mics" train run.json --ranks 2 --out shards --steps 2 $shards
contains shards.out "shards of an unknown tokenizer"
grep -q "what the model writes" shards.out && fail "there is no text to sample"
run 0 further "$mics" train run.json --ranks 2 --out shards --steps 3 $shards
run 0 eval "$mics" eval shards --data bytes.bin
grep -q "per byte" eval.out && fail "bits per byte of what is no bytes"
run 2 eval "$mics" eval shards --data text.txt
contains eval.err "text.txt: is a text"
run 2 generate "$mics" generate shards
contains generate.err "data.tokenizer"
run 0 convert "$mics" convert shards shards_out
run 0 bytes "$mics" train run.json --ranks 2 --out bytes --steps 2 --set 'data.train=["bytes.bin"]'
contains bytes.out "what the model writes"

run 0 version "$mics" --version
run 0 help "$mics" --help
for verb in train explain generate eval tokenize convert verify doctor; do
    contains help.out "$verb"
    run 0 verb "$mics" "$verb" --help
    contains verb.out "usage: mics $verb"
    run 0 verb "$mics" help "$verb"
done
run 0 doctor "$mics" doctor
contains doctor.out "GFLOP/s"
cp doctor.out doctor.text
run 0 doctor "$mics" doctor --json
contains doctor.out '"advice"'
if grep -q 'no OpenMP' doctor.text; then
    contains doctor.out '"openmp": false'
else
    contains doctor.out '"openmp": true'
fi
# What a file says for another engine, and has no effect here, is named once.
run 0 hints "$mics" train run.json --ranks 2 --steps 1 --out hints --set wandb='{"enabled": true}' \
    --set wall_clock_breakdown=true
contains hints.err "without effect here (mics explain says why): wall_clock_breakdown, wandb"
[ "$(grep -c 'without effect' hints.err)" = 1 ] || fail "hints should be named once"
exit 0
