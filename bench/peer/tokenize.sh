#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# mics tokenize beside Hugging Face's tokenizers package, on the same JSON Lines packed with Zstandard: MB of text a second,
# on one thread and on all cores, in one run; the ids must be the same.
#
# usage: tokenize.sh MICS TOKENIZER.json      SIZE (bytes of JSON Lines, 1e9), ROUNDS (1), PYTHON (with tokenizers, numpy)
#        and THREADS (all cores) are read from the environment. The text is kept as TEXTS (a .jsonl.zst file) if that is set.
#        texts.py 20000000 | train_tokenizer.py gpt2.json makes such a tokenizer.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mics=$(realpath "${1:?usage: tokenize.sh MICS TOKENIZER.json}")
tokenizer=$(realpath "${2:?usage: tokenize.sh MICS TOKENIZER.json}")
python=${PYTHON:-python3} size=${SIZE:-1000000000} rounds=${ROUNDS:-1} threads=${THREADS:-$(nproc)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
texts=${TEXTS:-$work/texts.jsonl.zst}
case $texts in *.jsonl.zst) ;; *) echo "TEXTS must end in .jsonl.zst" >&2; exit 2 ;; esac

grep -m 1 'model name' /proc/cpuinfo
[ -e "$texts" ] || "$python" "$here/texts.py" "$size" | zstd -q -1 -o "$texts"
bytes=$(zstd -dcq "$texts" | wc -c)
echo "$bytes bytes of JSON Lines, $(stat -c %s "$texts") packed; $threads threads"
for round in $(seq "$rounds"); do
    for n in 1 "$threads"; do
        rm -f "$work/mics.bin"
        start=$(date +%s.%N)
        "$mics" tokenize "$texts" --tokenizer "$tokenizer" --out "$work/mics.bin" --threads "$n" >/dev/null
        end=$(date +%s.%N)
        echo "$start $end" | awk -v b="$bytes" -v n="$n" -v r="$round" \
            '{ s = $2 - $1; printf "round %d, mics, %d threads: %.1f s, %.1f MB/s, %.1f MB/s a thread\n", r, n, s, b / s / 1e6, b / s / 1e6 / n }'
        RAYON_NUM_THREADS=$n TOKENIZERS_PARALLELISM=$([ "$n" = 1 ] && echo false || echo true) \
            "$python" "$here/hf_tokenize.py" "$texts" "$tokenizer" "$work/theirs.bin" "$bytes" "$n" | sed "s/^/round $round, /"
        tail -c +1025 "$work/mics.bin" | cmp - "$work/theirs.bin" && echo "round $round: the same ids"
    done
done
