# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Tokenizers are trained as Hugging Face's library trains them, to the last byte of the file, by any
# number of threads; what cannot be trained on is named.
. "$(dirname "$0")/lib.sh"
made=$golden/tokenizer_training

trained() { # NAME FLAGS AND FILES...
    name=$1
    shift
    for threads in 1 3; do
        run 0 "$name" "$mics" tokenize --train "$@" --threads $threads --out "$name-$threads.json"
        cmp "$made/$name.json" "$name-$threads.json" || fail "$name: other bytes than tokenizers'"
    done
}

trained text 900 --special '<|endoftext|>' "$made/text.txt"
contains text.out 'text-3.json: vocabulary 900'
no_line text.err
trained rows 700 --special '<|endoftext|>' "$made/rows.jsonl"
trained frequent 4000 --min-frequency 5 --special '<|endoftext|>' --special '[PAD]' --special '你"\' \
    "$made/text.txt" "$made/repeats.txt"
contains frequent.err 'and not 4000: no pair is left that the texts have 5 times'
trained repeats 100000 "$made/repeats.txt"
contains repeats.err 'and not 100000: no pair is left that the texts have 1 times'
contains repeats.err 'has no special token, so nothing will separate documents'

# Texts over more than one batch give the merges of the same texts by one thread.
for copy in 1 2 3 4 5 6 7 8 9; do
    cat "$made/text.txt" "$made/text.txt" "$made/text.txt" "$made/text.txt" "$made/text.txt" "$made/text.txt" \
        "$made/text.txt" "$made/text.txt" "$made/text.txt"
done >long.txt
[ "$(wc -c <long.txt)" -gt 2500000 ] || fail "long.txt is of one batch"
for threads in 1 4; do
    run 0 long "$mics" tokenize --train 1500 --special "<e>" --threads $threads --out long-$threads.json long.txt
done
cmp long-1.json long-4.json || fail "the number of threads changes the merges"
gzip -k long.txt
run 0 packed "$mics" tokenize --train 1500 --special "<e>" --out packed.json long.txt.gz
cmp long-1.json packed.json || fail "a packed file gives other merges"

# The program reads it: texts come back from tokens, and end where documents do.
run 0 use "$mics" tokenize text.txt --tokenizer text-1.json --out shard.bin --json
contains use.out '"vocabulary": 900'

# ---- what cannot be trained on ----

refused() { # TEXT FLAGS AND FILES...
    text=$1
    shift
    run 2 refused "$mics" tokenize "$@"
    contains refused.err "$text"
    one_line refused.err
    [ ! -e no.json ] || fail "$* left a file"
}

: >empty.txt
refused 'has no space for 256 bytes and 1 special tokens; give at least 257' \
    --train 256 --special "<e>" "$made/text.txt" --out no.json
refused 'the special token "" is empty or given twice' --train 300 --special '' "$made/text.txt" --out no.json
refused '"<e>" is empty or given twice' --train 300 --special "<e>" --special "<e>" "$made/text.txt" --out no.json
refused '--special goes only with --train' --special "<e>" "$made/text.txt" --out no.json
refused '--tokenizer goes not with --train' --train 300 --tokenizer bytes "$made/text.txt" --out no.json
refused '--out tokenizer.json is missing' --train 300 "$made/text.txt"
refused 'text-1.json: exists, and is not overwritten' --train 300 "$made/text.txt" --out text-1.json
printf 'one\ntwo \377\n' >latin.txt
refused 'latin.txt, line 2: byte 5 of its text, 0xff, is no UTF-8' --train 300 latin.txt --out no.json
run 0 passed "$mics" tokenize --train 300 --skip-bad-lines 1 --special "<e>" latin.txt "$made/text.txt" --out passed.json
contains passed.err 'latin.txt: 1 bad lines are passed over'
run 2 nothing "$mics" tokenize --train 300 empty.txt --out no.json
contains nothing.err 'empty.txt: has no text, and is left out'
contains nothing.err 'the files have no text to train on'
[ ! -e no.json ] || fail "a tokenizer without text"
exit 0
