# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Address space that is too small, at any size: the run trains, or ends with an error line of ours. Below the
# first sizes the program does not load; how much is enough is the machine's matter (stacks of threads, arenas of
# malloc a core), so sizes grow until the run trains.
. "$(dirname "$0")/lib.sh"

loaded=0 refused=0
size=40000
while [ $loaded -lt 2 ] && [ $size -lt 16000000 ]; do
    rm -rf out
    run_name=limited
    (ulimit -c 0; ulimit -v $size && exec "$mics" train run.json --ranks 2 --steps 2) \
        >limited.out 2>limited.err </dev/null
    status=$?
    case $status in
    0) loaded=$((loaded + 1)) ;;
    127) ;; # ld.so has said why
    *)
        [ "$(grep -c '^mics: error: ' limited.err)" = 1 ] ||
            fail "ulimit -v $size: status $status without an error line of ours"
        refused=$((refused + 1))
        ;;
    esac
    size=$((size + size / 7))
done
[ $loaded -gt 0 ] || fail "no size was large enough"
[ $refused -gt 0 ] || fail "no size was too small"
