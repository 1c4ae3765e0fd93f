#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: deploy/ssh/train.sh HOSTS RUN.json [FLAGS OF mics train...]
#
# HOSTS: lines "node0 slots=8". ssh to them asks for nothing, and program and files have the same paths there. A run
# that is lost with a rank or a node is started again after PAUSE seconds (10), up to TRIES times (20), and resumes;
# Ctrl-C and SIGTERM save and end it.
#
#   MICS        the program (mics)
#   MPI_FLAGS   further flags of mpirun: "-x NCCL_SOCKET_IFNAME=eth0 --mca btl_tcp_if_include eth0", "--bind-to none"
set -u
usage() {
    sed -n '5s/^# //p' "$0" >&2
    echo "train.sh: $1" >&2
    exit 2
}
[ $# -ge 2 ] || usage "HOSTS and RUN.json are needed"
hosts=$1
shift
[ -r "$hosts" ] || usage "$hosts: cannot be read; it has lines such as: node0 slots=8"
ranks=$(awk -F 'slots=' '!/^ *(#|$)/ { n += NF > 1 ? $2 : 1 } END { print n + 0 }' "$hosts")
[ "$ranks" -gt 0 ] || usage "$hosts: names no host; it has lines such as: node0 slots=8"
mics=$(command -v "${MICS:-mics}") || usage "no program ${MICS:-mics}; set MICS to its path"
command -v mpirun >/dev/null || usage "no mpirun here"
mics=$(realpath "$mics") # the path on every node
read -ra flags <<<"${MPI_FLAGS:-}"
[ "$(id -u)" != 0 ] || flags+=(--allow-run-as-root) # as ssh to such nodes often is
stopping=
for ((try = 1; try <= ${TRIES:-20}; try++)); do
    # A group of its own: a Ctrl-C goes to this script alone, which passes on what mpirun does not end its ranks for.
    setsid mpirun -n "$ranks" --hostfile "$hosts" --mca odls_base_sigkill_timeout 10 "${flags[@]}" \
        "$mics" train --resume auto "$@" &
    run=$!
    trap 'stopping=1; kill -USR1 $run 2>/dev/null' TERM INT
    wait $run
    status=$?
    while kill -0 $run 2>/dev/null; do
        wait $run
        status=$?
    done
    # 0: done; 2: nothing that another try would mend; 75: stopped, and saved.
    case $status in
    0 | 2 | 75) exit $status ;;
    esac
    [ -z "$stopping" ] || exit $status
    echo "ended with $status; try $((try + 1)) in ${PAUSE:-10} s" >&2
    sleep "${PAUSE:-10}"
    [ -z "$stopping" ] || exit $status
done
exit "$status"
