# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# The program under an MPI launcher ($2...): the same losses as with threads, one voice for errors,
# and what happens when a rank is killed.
. "$(dirname "$0")/lib.sh"
shift
# More ranks than cores, and root in a container, are things Open MPI has to be told of.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

run 0 threads "$mics" train run.json --ranks 4 --nodes 2 --out threads
run 0 mpi "$@" "$mics" train run.json --nodes 2 --out mpi
same_losses threads mpi
same_weights threads/checkpoints/step-00000008 mpi/checkpoints/step-00000008
contains mpi.out "MPI processes"
# So do phases, and a batch that ranks do not divide.
sed 's/"steps": 8, //; s/"train_batch_size"/"phases": [{"steps": 3}, {"steps": 3, "train_batch_size": 18},\
    {"steps": 2, "data": {"sequence_length": 16}}], &/' run.json >phases.json
run 0 phases "$mics" train phases.json --ranks 4 --nodes 2 --out phases
run 0 mpi_phases "$@" "$mics" train phases.json --nodes 2 --out mpi_phases
same_losses phases mpi_phases
same_weights phases/checkpoints/step-00000008 mpi_phases/checkpoints/step-00000008
contains phases.err "2 of 20 rows of a step count nothing"
for begun in "phase 2 of 3 begins behind step 3" "phase 3 of 3 begins behind step 6" "2 of 20 rows of a step count nothing"; do
    [ "$(grep -c "$begun" phases.err)" = "$(grep -c "$begun" mpi_phases.err)" ] || fail "who says \"$begun\"?"
done
[ "$(grep -c '"phase": 2}' mpi_phases/metrics.jsonl)" = 3 ] || fail "metrics.jsonl does not say the phase"
# Gathers move the same numbers either way; a ring's sums have another order than two stages'.
zero3="--set sharding.params=4 --set sharding.grads=4 --set sharding.optimizer=4"
for collectives in ring two-stage ring-gathers auto; do
    run 0 "$collectives" "$@" "$mics" train run.json --nodes 2 --steps 4 --out "$collectives" $zero3 \
        --set run.collectives=$collectives
done
same_losses two-stage ring-gathers
same_losses two-stage auto
same_weights two-stage/checkpoints/step-00000004 ring-gathers/checkpoints/step-00000004
cmp -s ring/checkpoints/step-00000004/rank-00000.safetensors \
    two-stage/checkpoints/step-00000004/rank-00000.safetensors && fail "ring and two-stage are the same"
grep -q 'exact$' mpi.out || fail "predicted and measured are missing"

# The data of one rank's file are damaged: all ranks pass that checkpoint over, and one line says so.
cp -r mpi hurt
printf XXXX | dd of=hurt/checkpoints/step-00000008/rank-00001.safetensors bs=1 seek=5000 conv=notrunc 2>dd.err
run 0 hurt "$@" "$mics" train run.json --nodes 2 --out hurt --steps 9
contains hurt.err "step-00000008/rank-00001.safetensors: offset "
[ "$(grep -c 'resumes from hurt/checkpoints/step-00000004 instead of step 8' hurt.err)" = 1 ] ||
    fail "the checkpoint that is taken instead should be named once"
losses threads >left.txt
losses hurt | head -n 8 >right.txt
diff left.txt right.txt || fail "losses after the damage differ"

# Ranks that are bound to cores of their own share as many as there are of those.
if command -v taskset >bound.out && [ "$(uname)" = Linux ]; then
    cat >bound.sh <<'END'
cores=$(sed -n 's/^Cpus_allowed_list:[[:blank:]]*//p' /proc/self/status)
first=${cores%%[,-]*} last=${cores##*[,-]}
[ $((${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}} % 2)) = 0 ] || first=$last
exec taskset -c "$first" "$@"
END
    run 0 bound "$@" sh bound.sh "$mics" bench comm --nodes 2 --seconds 0.1 --out bound.json
    grep -q "\"cores\": $([ "$(nproc)" = 1 ] && echo 1 || echo 2)," bound.json ||
        fail "4 ranks on 2 cores: $(grep cores bound.json)"
fi

# A mistake that all processes find is said once.
"$@" "$mics" train run.json --nodes 2 --set run.stepz=3 >wrong.out 2>wrong.err </dev/null &&
    fail "a wrong key was accepted"
[ "$(grep -c '^mics: error' wrong.err)" = 1 ] || fail "one error line is due"
contains wrong.err "run.stepz"
"$@" "$mics" train run.json --ranks 3 >wrong.out 2>wrong.err </dev/null &&
    fail "wrong ranks were accepted"
[ "$(grep -c '^mics: error' wrong.err)" = 1 ] || fail "one error line is due"
"$@" "$mics" train run.json --rankz 3 >wrong.out 2>wrong.err </dev/null &&
    fail "a wrong flag was accepted"
[ "$(grep -c '^mics: error' wrong.err)" = 1 ] || fail "one error line is due"

# A mistake that one process alone finds is said by that one, with its rank.
mkdir elsewhere
cat >apart.sh <<'SH'
[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-none}}" = 2 ] && cd elsewhere
exec "$@"
SH
"$@" sh apart.sh "$mics" train "$work/run.json" --nodes 2 --out "$work/apart" \
    >wrong.out 2>wrong.err </dev/null && fail "a rank without its files went unnoticed"
[ "$(grep -c '^mics: error' wrong.err)" = 1 ] || fail "one error line is due"
contains wrong.err "mics: error: rank 2: "

# SIGTERM to the ranks: the step that was done last is saved, and the run goes on from there.
cat >rank.sh <<'SH'
echo "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-none}}" >"pids/$$"
exec "$@"
SH
start() { # FLAGS...: mpirun in the background, until steps are seen
    rm -rf pids killed.out && mkdir pids
    "$@" >killed.out 2>killed.err </dev/null &
    launcher=$!
    await $launcher "a step" grep -qs '^step' killed.out
}
start "$@" sh rank.sh "$mics" train run.json --nodes 2 --steps 100000 --out stopped \
    --set run.checkpoint_every=0 --set run.log_every=1
(cd pids && kill -TERM *)
wait $launcher && fail "a stopped run should not exit with 0"
contains killed.err "stopped by SIGTERM after step"
stopped=$(sed -n 's/.*SIGTERM after step \([0-9]*\),.*/\1/p' killed.err)
run 0 onward "$@" "$mics" train run.json --nodes 2 --steps $((stopped + 1)) --out stopped
contains onward.out "step $stopped, resumed"

# SIGUSR1 to the launcher reaches the ranks, and kills none: docs/cluster.md. The step is longer than the grace, so the step
# before is saved in the middle of it, by ranks that have no word for one another.
if "$1" --version 2>&1 | grep -q 'Open MPI'; then
    start "$@" "$mics" train run.json --nodes 2 --steps 20 --out forwarded --set run.checkpoint_every=0 \
        --set run.log_every=1 --set train_batch_size=6400 --set gradient_accumulation_steps=800 \
        --set run.validation_batches=0
    kill -USR1 $launcher
    wait $launcher
    [ $? = 75 ] || fail "mpirun should report that the run was stopped"
    # Step 1, or a later one where this script was late.
    stopped=$(sed -n 's/.*stopped by SIGUSR1 after step \([0-9]*\), which is saved.*/\1/p' killed.err)
    [ -n "$stopped" ] || fail "no step is said to be saved"
    run 0 onward "$@" "$mics" train run.json --nodes 2 --steps $((stopped + 1)) --out forwarded --set train_batch_size=6400 \
        --set gradient_accumulation_steps=800 --set run.validation_batches=0
    contains onward.out "step $stopped, resumed"
fi

# A second signal ends a rank at once, and it says what is safe: here another one is stopped, so nobody can save.
start "$@" sh rank.sh "$mics" train run.json --nodes 2 --steps 100000 --out twice --set run.checkpoint_every=0 \
    --set run.log_every=1 --set run.grace_s=1000
kill -STOP "$(ls pids | sed -n 2p)"
(cd pids && kill -USR1 *)
# A signal within a second of the first is the same request.
for _ in $(seq 100); do
    sleep 1.5
    (cd pids && kill -INT * 2>/dev/null)
    grep -qs 'nothing is saved yet' killed.err && break
done
(cd pids && kill -9 * 2>/dev/null)
wait $launcher && fail "a rank that is told twice should fail"
contains killed.err "asked again before that was done; nothing is saved yet"

# Killing one rank ends the others long before a collective is late, and the run goes on from its last complete
# checkpoint, with the losses of a run that never stopped. It saves after each step, so that most kills hit it
# while it saves.
kill_one() { # PID
    kill -9 "$1" || fail "the run ended before it was killed"
    begin=$(date +%s)
    wait $launcher && fail "a killed run should fail"
    [ $(($(date +%s) - begin)) -le 120 ] || fail "survivors took too long to end"
    for pid in $(ls pids); do
        await "$pid" "the end of process $pid" is_gone "$pid"
    done
    # We, or the launcher, or what the MPI library says when its peer is gone.
    grep -q 'resume auto goes on from step\|nothing is saved yet\|[Ss]ignal\|No such process' \
        killed.err killed.out || fail "nobody said what happened"
}
for delay in 0 0.11; do
    start "$@" sh rank.sh "$mics" train run.json --nodes 2 --steps 100000 --out killed --set run.comm_timeout_s=600 \
        --set run.checkpoint_every=1 --set run.log_every=1 --set run.keep_checkpoints=1
    sleep $delay
    kill_one "$(ls pids | head -n 1)"
done

goes_on() { # OUT LAUNCHER...: from its newest checkpoint, with the losses of an unbroken run
    out=$1
    shift
    newest=$(sed 's/.*step-0*//' "$out/checkpoints/latest")
    run 0 onward "$@" "$mics" train run.json --nodes 2 --steps $((newest + 5)) --out "$out"
    contains onward.out "step $newest, resumed from $out/checkpoints"
    run 0 whole "$mics" train run.json --ranks 4 --nodes 2 --steps $((newest + 5)) \
        --out "whole-$out"
    same_losses "whole-$out" "$out"
}
goes_on killed "$@"

# Certainly in the middle of a save: the newest step's folder has no manifest, and a rank that is
# stopped before its part is whole keeps it so. The model is large enough for a save to take its time.
sed -i 's/"n_embd": 32/"n_embd": 256/' model.json
unfinished() { # prints the folder of a save that is under way
    newest=torn/checkpoints/$(ls torn/checkpoints | grep step | tail -n 1)
    [ ! -f "$newest/manifest.json" ] && echo "$newest"
}
lacks_a_part() { # FOLDER: the victim's, but for a file aside
    ! ls "$1"/rank-0000"$(cat "pids/$victim")"*.safetensors 2>/dev/null | grep -v '\.part\.safetensors$' | grep -q .
}
start "$@" sh rank.sh "$mics" train run.json --nodes 2 --steps 100000 --out torn --set run.comm_timeout_s=600 \
    --set run.checkpoint_every=1 --set run.log_every=1
await $launcher "a checkpoint" [ -f torn/checkpoints/latest ]
victim=$(ls pids | sed -n 2p)
torn=
for _ in $(seq 20000); do
    torn=$(unfinished) || continue
    kill -STOP "$victim" || fail "the run ended before it was killed"
    await $launcher "the victim stands still" stands_still "$victim"
    [ "$(unfinished)" = "$torn" ] && lacks_a_part "$torn" && break
    torn=
    kill -CONT "$victim"
done
[ -n "$torn" ] || fail "no save was seen under way"
kill_one "$victim"
[ -f "$torn/manifest.json" ] && fail "a save counts that a rank did not live to finish"
grep -q "${torn##*/}" torn/checkpoints/latest && fail "latest names a save that was cut short"
goes_on torn "$@"
exit 0
