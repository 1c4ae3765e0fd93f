# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# A rank that is slow under an MPI launcher ($2...): it is stopped for half of the time. The log names it, once;
# metrics.jsonl and mics watch do, too; and the losses are those of a run without it.
. "$(dirname "$0")/lib.sh"
shift
case $("$1" --version 2>&1) in
*"Open MPI"* | *OpenRTE* | *PRRTE*) ;;
*)
    echo "not Open MPI: ranks have no known numbers" >&2
    exit 77
    ;;
esac
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
cat >rank.sh <<'SH'
echo $$ >"pids/${OMPI_COMM_WORLD_RANK:-0}"
exec "$@"
SH
mkdir pids
# Steps that are long beside the time that it takes to stop and continue a process.
sed -e 's/"train_batch_size": 16/"train_batch_size": 640/' -e 's/_steps": 2,$/_steps": 80,/' \
    -e 's/"steps": 8/"steps": 1000000/; s/"checkpoint_every": 4/"checkpoint_every": 0/' run.json >long.json
"$@" sh rank.sh "$mics" train long.json --nodes 2 --out slow >slow.out 2>slow.err </dev/null &
launcher=$!
run_name=slow
is_told() {
    grep -q "the others wait .* for rank 3 on $(hostname); look there" slow.err
}
has_steps() { # OUT STEPS
    [ -s "$1/metrics.jsonl" ] && [ "$(wc -l <"$1/metrics.jsonl")" -ge "$2" ]
}
await $launcher "the first step" has_steps slow 1
victim=$(cat pids/3)
turns=0
until is_told; do
    kill -STOP "$victim" && sleep 0.05 && kill -CONT "$victim" || fail "rank 3 has ended"
    sleep 0.05
    turns=$((turns + 1))
    [ $turns -lt 3000 ] || fail "rank 3 is not named"
done
"$mics" watch slow --once >watch.txt
touch slow/stop
wait $launcher
[ "$(grep -c 'for rank 3 on' slow.err)" = 1 ] || fail "it is told more than once: $(cat slow.err)"
grep -q 'the others wait [0-9]* ms a step for rank 3' watch.txt || fail "mics watch names no rank: $(cat watch.txt)"
grep -q '"slowest_rank": 3, "slowest_wait_ms": [0-9]' slow/metrics.jsonl || fail "metrics.jsonl does not name it"

run 75 fast "$mics" train long.json --ranks 4 --nodes 2 --set run.straggler_warn=0 \
    --set run.max_hours=0.0005 --out fast
losses fast >fast.txt
losses slow | head -n "$(wc -l <fast.txt)" >slow.txt
head -n "$(wc -l <slow.txt)" fast.txt | cmp -s - slow.txt || fail "other losses: $(diff fast.txt slow.txt | head)"
