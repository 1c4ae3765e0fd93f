# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# All ranks stopped together for longer than run.comm_timeout_s, as on a suspended machine: nobody is
# late. As threads, or under a launcher ($2...).
. "$(dirname "$0")/lib.sh"
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

cat >rank.sh <<'SH'
echo $$ >"pids/$$"
exec "$@"
SH
mkdir pids
threads="--ranks 4"
[ $# -gt 0 ] && threads=
"$@" sh rank.sh "$mics" train run.json $threads --nodes 2 --steps 1000000 --set run.checkpoint_every=0 \
    --set run.comm_timeout_s=2.5 --set run.validation_batches=0 >paused.out 2>paused.err </dev/null &
run_name=paused
started=$!
trap 'kill -9 $(ls pids) 2>/dev/null; [ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT
steps() {
    wc -l <out/metrics.jsonl
}
went_on() {
    [ "$(steps)" -gt $((before + 20)) ]
}
await $started "a step" [ -s out/metrics.jsonl ]
for seconds in 3.6 3.7; do
    (cd pids && kill -STOP *)
    sleep $seconds
    before=$(steps)
    (cd pids && kill -CONT *)
    await $started "steps after a pause" went_on
done
(cd pids && kill -TERM *)
wait $started
contains paused.err "stopped by SIGTERM after step"
