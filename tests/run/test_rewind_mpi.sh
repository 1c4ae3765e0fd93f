# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Runs test_rewind_mpi ($1) under a launcher ($2...) in a new folder.
test=$1
shift
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"$test" "$work" prepare || exit 1
for name in undisturbed whole damaged lost; do
    "$@" "$test" "$work" $name >"$work/out" 2>&1
    status=$?
    [ "$status" = 77 ] && exit 77
    for rank in 0 1 2 3; do
        cmp "$work/undisturbed.rank-$rank" "$work/$name.rank-$rank" >>"$work/out" 2>&1 || status=1
    done
    if [ "$status" != 0 ]; then
        echo "FAILED: $name"
        cat "$work/out"
        exit 1
    fi
done
