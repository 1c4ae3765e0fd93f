#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# bench/chats.sh MICS: how fast chats become samples, and how many a second train, packed and padded, in turns.
# The chats are those of examples/chats.jsonl, again and again, the model is that of examples/chat, with random weights.
set -eu
mics=$(realpath "$1")
examples=$(realpath "$(dirname "$0")/../examples")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
i=0
while [ $((i += 1)) -le 250 ]; do cat "$examples/chats.jsonl"; done >chats.jsonl
chats=$(wc -l <chats.jsonl)

run() { # OUT STEPS FLAGS...
    out=$1 steps=$2
    shift 2
    "$mics" train --model "$examples/chat" --data chats.jsonl --out "$out" --steps "$steps" --set run.device=cpu \
        --set run.validation_batches=0 --set data.sequence_length=256 --set model.init=random --set train_micro_batch_size_per_gpu=8 "$@" >"$out.txt" 2>"$out.err"
}
seconds() { # COMMAND...
    begun=$(date +%s%N)
    "$@"
    echo "$begun $(date +%s%N)" | awk '{ printf "%.3f", ($2 - $1) / 1e9 }'
}
for round in 1 2 3; do
    first=$(seconds run cold 1)
    again=$(rm -rf cold/checkpoints cold/metrics.jsonl && seconds run cold 1 --resume none)
    printf '%s\n' "$first $again" | awk -v chats="$chats" -v mib="$(wc -c <chats.jsonl)" '{
        printf "chats to samples: %.0f chats/s, %.1f MB/s (%.2f s with the cache, %.2f s without)\n",
            chats / ($1 - $2), mib / ($1 - $2) / 1e6, $2, $1 }'
    for packing in true false; do
        out=packed-$packing
        run $out 60 --set data.packing=$packing
        step_ms=$(sed -n 's/.*"step_ms": \([0-9.]*\).*/\1/p' $out/metrics.jsonl | sort -n | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }')
        grep '^samples' $out.txt | awk -v packing=$packing -v ms="$step_ms" '{
            printf "packing %s: %.0f samples/s (median step %.2f ms of 8 sequences, %d samples in %d)\n",
                packing, 8000 / ms * $2 / $4, ms, $2, $4 }'
    done
    rm -rf cold packed-*
done
