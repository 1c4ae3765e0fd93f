# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# deploy/slurm/train.sbatch on a Slurm of two nodes that are this machine: a job is preempted by one that may, saves, is
# queued again, resumes, and ends with the losses of a run that nothing stopped.
skip() {
    echo "skipped: $*"
    exit 77
}
[ "$(id -u)" = 0 ] || skip "Slurm's daemons are started as root"
for tool in slurmctld slurmd munged sbatch squeue mpirun; do
    command -v $tool >/dev/null || skip "no $tool here (apt-get install slurm-wlm munge)"
done
deploy=$(cd "$(dirname "$0")/../../deploy" && pwd)
cli=$(cd "$(dirname "$0")/../cli" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
. "$cli/lib.sh"

# ---- a cluster ----

host=$(hostname -s)
mkdir state munge tmp-fake1 tmp-fake2
chmod 755 "$work"
chmod 700 munge
dd if=/dev/urandom of=munge/key bs=128 count=1 2>/dev/null
chmod 600 munge/key
cat >slurm.conf <<CONF
ClusterName=test
SlurmctldHost=$host
SlurmctldPort=$((20000 + $$ % 10000))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$work/munge/socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
TmpFS=$work/tmp-%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdParameters=config_overrides
MailProg=/bin/true
NodeName=fake1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((30000 + $$ % 10000)) CPUs=4
NodeName=fake2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((40000 + $$ % 10000)) CPUs=4
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=120
PartitionName=high Nodes=ALL PriorityTier=9 PreemptMode=OFF
CONF
export SLURM_CONF="$work/slurm.conf"
daemons=
start() { # NAME COMMAND...: a daemon in the foreground
    name=$1
    shift
    "$@" >"$name.start" 2>&1 &
    daemons="$daemons $!"
    eval "$name=\$!"
}
stop() {
    scancel --user root 2>/dev/null
    # shellcheck disable=SC2086
    [ -z "$daemons" ] || { kill $daemons; wait $daemons; } 2>/dev/null
    [ -n "${KEEP:-}" ] || rm -rf "$work"
}
trap stop EXIT
start munged munged -F --force --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
    --log-file="$work/munge/log" --seed-file="$work/munge/seed"
await "$munged" "munge's socket" [ -S munge/socket ]
start slurmctld slurmctld -D
start fake1 slurmd -D -N fake1
start fake2 slurmd -D -N fake2
is_up() { [ "$(sinfo -h -p low -t idle -o %D 2>/dev/null)" = 2 ]; }
await "$slurmctld" "two idle nodes" is_up
case $(srun --mpi=list 2>&1) in
*pmix*) ;;
*) skip "Slurm without pmix" ;;
esac

# ---- the run that nothing stops, and the job ----

steps=1500
cat >mics <<SH
#!/bin/sh
exec "$mics" "\$@"
SH
chmod +x mics
export PATH="$work:$PATH"
run 0 whole "$mics" train run.json --ranks 2 --nodes 2 --steps $steps --out whole --set run.checkpoint_every=400

job=$(sbatch --parsable --partition low --nodes 2 --ntasks-per-node 1 --gpus-per-node 0 --cpus-per-task 1 --output job.log \
    "$deploy/slurm/train.sbatch" run.json --nodes 2 --steps $steps --out out --set run.checkpoint_every=400 \
    --set run.grace_s=60) || fail "sbatch"
has_ended() { scontrol -o show job "$job" 2>/dev/null | grep -qE 'JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)'; }
trains() { [ "$(losses out 2>/dev/null | wc -l)" -ge 20 ] || has_ended; }
is_state() { # JOB STATE
    [ "$(squeue -h -j "$1" -o %T 2>/dev/null)" = "$2" ]
}
await "$slurmctld" "steps of the job" trains
other=$(sbatch --parsable --partition high --nodes 2 --output other.log --wrap \
    "while [ ! -e '$work/go' ]; do sleep 0.2; done") || fail "sbatch of the other job"
await "$slurmctld" "the other job in its place" is_state "$other" RUNNING
grep -q 'stopped by' job.log || fail "the job did not stop as asked: $(cat job.log)"
stopped=$(losses out | tail -n 1 | cut -d ' ' -f 1)
[ "$stopped" -lt $steps ] || fail "the job was done before it was preempted"
await "$slurmctld" "the job in the queue again" is_state "$job" PENDING
touch go
scontrol update "JobId=$job" StartTime=now || fail "scontrol" # Slurm lets a queued-again job wait for two minutes
await "$slurmctld" "the end of the job" has_ended
grep -q "^start *step $stopped, resumed from" job.log || fail "the job did not resume from step $stopped: $(cat job.log)"
grep -q "validation loss .* after step $steps" job.log || fail "the job did not end well: $(cat job.log)"
same_losses whole out
echo "preempted behind step $stopped of $steps, and resumed"
exit 0
