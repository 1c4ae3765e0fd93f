# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Copies in node memory under an MPI launcher ($2...), with a folder a "node": a node is lost in mid-run and
# replaced by an empty one, nodes change places, ranks become fewer. The run goes on from memory, without its
# checkpoints on disk, with the losses of a run that never stopped. And kills at any instant, with threads.
. "$(dirname "$0")/lib.sh"
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
zero3="--set sharding.params=4 --set sharding.grads=4 --set sharding.optimizer=4"
end=100000

# Ranks 0 and 1 are on node 0, 2 and 3 on node 1, whose memory is below shm/.
cat >node.sh <<'SH'
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
echo $$ >"pids/$rank"
MICS_SHM_DIR=shm/$((rank / 2))
export MICS_SHM_DIR
exec "$@"
SH
mkdir -p shm/0 shm/1

newest_copy() { # [MACHINE]: prints the step of the newest copy in memory, of one machine or all, if there is one
    cat shm/${1:-[01]}/mics-*/node-*/slot-*/manifest.json 2>copies.err |
        sed -n 's/^  "step": \([0-9]*\),/\1/p' | sort -n | tail -n 1
}
has_copy() { # STEP: of that step or later
    [ "$(newest_copy)" -ge "$1" ] 2>copies.err
}
wait_for_copy() { # STEP
    await $launcher "a copy of step $1" has_copy "$1"
}
# start OUT FLAGS...: in the background, until a copy is STEPS steps further on
start() {
    out=$1
    shift
    rm -rf pids && mkdir pids
    "$@" sh node.sh "$mics" train run.json --nodes 2 --steps $end --out "$out" $zero3 \
        --set run.memory_checkpoint_every=2 --set run.checkpoint_every=5 >"$out.out" 2>"$out.err" </dev/null &
    launcher=$!
}
kill_all() { # as a node does that goes away, and takes the job with it
    kill -9 "$(cat pids/3)" "$(cat pids/2)" 2>copies.err
    wait $launcher && fail "a killed run should fail"
    for pid in $(cat pids/*); do
        while grep -qs '^State:.[^ZX]' "/proc/$pid/status"; do
            sleep 0.05
        done
    done
}
done_steps() { # OUT
    sed -n '$s/^{"step": \([0-9]*\).*/\1/p' "$1/metrics.jsonl"
}

run_name=lost
start lost "$@"
wait_for_copy 6
kill_all
rm -rf shm/1/* # node 1 is replaced by a machine that has nothing
mv lost/checkpoints lost/gone # and nothing can be read from disk
kept=$(newest_copy)
done=$(done_steps lost)
[ $((done - kept)) -le 3 ] || fail "step $done is done, the newest copy is of step $kept"

start lost "$@"
wait_for_copy $((kept + 2))
contains lost.out "start     step $kept, resumed from node memory"
ls shm/0/mics-*/ shm/1/mics-*/ | grep resume && fail "what stood for the checkpoint is left over"
kill_all
# Both machines are there, in another order.
mv shm/0 shm/2 && mv shm/1 shm/0 && mv shm/2 shm/1
rm -rf lost/checkpoints
kept=$(newest_copy)
start lost "$@"
wait_for_copy $((kept + 2))
contains lost.out "start     step $kept, resumed from node memory"
kill_all
rm -rf lost/checkpoints
kept=$(newest_copy)
last=$((kept + 3))

# Fewer ranks, on one machine that has all of it: 2 ranks with the same batch. The other machine may have
# been killed one copy later.
cp -r lost lost.all && cp -r shm shm.all
kept_there=$(newest_copy 1)
cat >one.sh <<'SH'
MICS_SHM_DIR=shm.all/1
export MICS_SHM_DIR
exec "$@"
SH
run 0 fewer sh one.sh "$mics" train run.json --ranks 2 --steps $last --out lost \
    --set gradient_accumulation_steps=4 --set train_batch_size=16 --set run.memory_checkpoint_every=2
contains fewer.out "start     step $kept_there, resumed from node memory"
rm -rf lost/* && cp -r lost.all/. lost

run 0 lost "$@" sh node.sh "$mics" train run.json --nodes 2 --steps $last --out lost $zero3
contains lost.out "start     step $kept, resumed from node memory"
run 0 whole "$mics" train run.json --ranks 4 --nodes 2 --steps $last --out whole $zero3
same_losses whole lost
same_weights "$(ls -d whole/checkpoints/step-* | tail -n 1)" "$(ls -d lost/checkpoints/step-* | tail -n 1)"
[ -z "$(ls shm/0 shm/1 | grep mics-)" ] || fail "a finished run left copies in memory"

# Islands (outer): the node that comes gets its island's own state, and all that they agreed on.
all_ranks=$zero3
zero3="--set sharding.params=1 --set sharding.grads=1 --set sharding.optimizer=2 --set outer.every=4 --set outer.ranks=2"
start islands "$@"
wait_for_copy 6
kill_all
rm -rf shm/1/* islands/checkpoints
kept=$(newest_copy)
last=$((kept + 3))
run 0 islands "$@" sh node.sh "$mics" train run.json --nodes 2 --steps $last --out islands $zero3
contains islands.out "start     step $kept, resumed from node memory"
run 0 together "$mics" train run.json --ranks 4 --nodes 2 --steps $last --out together $zero3 \
    --set run.memory_checkpoint_every=2 --set run.checkpoint_every=5
same_losses together islands
same_weights "$(ls -d together/checkpoints/step-* | tail -n 1)" \
    "$(ls -d islands/checkpoints/step-* | tail -n 1)"
zero3=$all_ranks

# Both nodes lost: from disk, and the damaged copy of one is told of, if it is newer. A step that is saved in both
# ways is read from disk, so a kill that came right then is tried again, as is one in the middle of a save.
newest=0 copy=0
until [ "$newest" -gt 0 ] && [ "$copy" -gt "$newest" ]; do
    [ "$copy" -lt 100 ] || fail "copies are never newer than checkpoints"
    start disk "$@"
    wait_for_copy $((copy > 6 ? copy + 2 : 8))
    kill_all
    newest=$(cat disk/checkpoints/latest 2>copies.err | sed 's/.*step-0*//') copy=$(newest_copy)
    [ "$(ls disk/checkpoints/*/manifest.json 2>copies.err | tail -n 1)" = \
        "disk/checkpoints/$(cat disk/checkpoints/latest 2>copies.err)/manifest.json" ] || newest=
    newest=${newest:-0} copy=${copy:-0}
done
rm -rf shm/1/*
slot=$(grep -l "\"step\": $(newest_copy)," shm/0/mics-*/node-*/slot-*/manifest.json)
for file in shm/0/mics-*/node-*/slot-*/rank-00001.safetensors; do
    # Bytes move by one: a single byte that is written may be there already.
    cp "$file" before
    tail -c 2999 before | head -c 64 | dd of="$file" bs=1 seek=$(($(wc -c <"$file") - 3000)) conv=notrunc 2>dd.err
    cmp -s before "$file" && fail "$file was not damaged"
done
[ -n "$slot" ] || fail "no slot is of the newest copy"
last=$(($(newest_copy) + 3)) # copies of the last step or later are not looked at
run 0 disk "$@" sh node.sh "$mics" train run.json --nodes 2 --steps $last --out disk $zero3 \
    --set run.memory_checkpoint_every=2
contains disk.out "start     step $newest, resumed from disk/checkpoints"
contains disk.err "differ from their checksum"
contains disk.err "is not whole: 1 of its 4 files are on none of these nodes, or damaged"

# Killed at any instant, also while a copy is made: what is there is whole.
export MICS_SHM_DIR=shm/0
rm -rf shm/0/*
for delay in 0.31 0.17 0.23 0.37 0.41; do
    "$mics" train run.json --ranks 4 --nodes 2 --steps $end --out torn $zero3 --set run.checkpoint_every=0 \
        --set run.memory_checkpoint_every=1 >torn.out 2>torn.err </dev/null &
    pid=$!
    await $pid "a step" grep -qs "^{" torn/metrics.jsonl
    sleep $delay
    kill -9 $pid || fail "the run ended before it was killed"
    wait $pid
    done=$(done_steps torn)
    kept=$(newest_copy)
    [ "${done:-0}" -le 1 ] || [ $((done - kept)) -le 1 ] ||
        fail "step $done is done, the newest copy is of step $kept"
    grep -v 'run.collectives' torn.err >other.err
    no_line other.err
done
last=$((kept + 3))
run 0 torn "$mics" train run.json --ranks 4 --nodes 2 --steps $last --out torn $zero3 \
    --set run.memory_checkpoint_every=1
contains torn.out "resumed from node memory"
run 0 whole "$mics" train run.json --ranks 4 --nodes 2 --steps $last --out unbroken $zero3
same_losses unbroken torn
