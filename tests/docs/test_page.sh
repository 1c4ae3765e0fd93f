#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_page.sh ROOT PROGRAM PAGE: runs every shell block of docs/PAGE.md in turn, in a folder that looks like the repository.
set -u
root=$1 program=$2 page=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
mkdir -p build bench/plan
ln -s "$program" build/mics
cp -r "$root/configs" "$root/examples" .
cp -r "$root/bench/plan/configs" bench/plan

# A launcher may be missing, or refuse this user or so many ranks: then its commands are left out.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export MICS_CUDA_PLUGIN="${MICS_CUDA_PLUGIN:-none}" PATH="$work/build:$PATH"
launcher=cat
if ! mpirun -n 2 build/mics --help >/dev/null 2>&1 || ! build/mics doctor | grep -q '^MPI .*[0-9]'; then
    launcher='grep -v ^mpirun'
fi
{
    echo 'set -eux'
    sed -n '/^```sh$/,/^```$/p' "$root/docs/$page.md" | sed '/^```/d' | $launcher
} >commands.sh
# Sequences of a quarter of the length and half of the steps show the same in a quarter of the time.
halve() { # FILE
    awk '{
        line = ""
        while (match($0, /(steps|_every)[":]* [0-9]+/)) {
            words = substr($0, RSTART, RLENGTH)
            number = words
            sub(/.* /, "", number)
            sub(/ .*/, "", words)
            line = line substr($0, 1, RSTART - 1) words " " (number + 0 >= 40 ? number / 2 : number)
            $0 = substr($0, RSTART + RLENGTH)
        }
        print line $0
    }' "$1" >halved
    mv halved "$1"
}
sed -i 's/"sequence_length": 64\b/"sequence_length": 16/' commands.sh
halve commands.sh
halve examples/chat.json
# RUN.json stands for the reader's own file.
sed -i '/RUN\.json/d' commands.sh
[ "$(wc -l <commands.sh)" -gt 3 ] || { echo "docs/$page.md has no commands" >&2; exit 1; }
sh commands.sh >log 2>&1 </dev/null && exit
tail -n 30 log >&2
echo "FAILED: docs/$page.md: the last command above" >&2
exit 1
