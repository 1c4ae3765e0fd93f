#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: deploy/ssh/train.sh HOSTS RUN.json [FLAGS OF mics train...]
#
# HOSTS: lines "node0 slots=8". ssh to them asks for nothing, and program and files have the same paths there. A run that
# is lost with a rank or a node is started again, up to TRIES times (20), and resumes; Ctrl-C and SIGTERM save and end it.
set -u
hosts=$1
shift
ranks=$(awk -F 'slots=' '!/^ *(#|$)/ { n += NF > 1 ? $2 : 1 } END { print n + 0 }' "$hosts")
mics=$(command -v "${MICS:-mics}") || { echo "no program mics; set MICS to its path" >&2; exit 2; }
root=()
[ "$(id -u)" != 0 ] || root=(--allow-run-as-root) # as ssh to such nodes often is
stopping=
for ((try = 1; try <= ${TRIES:-20}; try++)); do
    # A group of its own: a Ctrl-C goes to this script alone, which passes on what mpirun does not end its ranks for.
    setsid mpirun "${root[@]}" -n "$ranks" --hostfile "$hosts" --mca odls_base_sigkill_timeout 10 \
        "$mics" train "$@" --resume auto &
    run=$!
    trap 'stopping=1; kill -USR1 $run' TERM INT
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
    echo "ended with $status; try $((try + 1))" >&2
done
exit "$status"
