# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Files that change or are damaged under a run: named errors, and never numbers made of them.
. "$(dirname "$0")/lib.sh"

# ---- a corpus that changes while it is read ----

# changed NAME FLAGS...: starts a long run on two token shards, changes one by the commands in $how when two steps are
# done, and wants one line that names the file.
run 0 shard "$mics" tokenize text.txt --out whole.bin
changed() {
    run_name=$1
    shift
    cp whole.bin corpus.bin
    cp whole.bin held.bin
    touch -d 2020-01-01 corpus.bin held.bin
    "$mics" train run.json --ranks 2 --out "$run_name" --steps 100000 --set run.log_every=1 \
        --set run.checkpoint_every=0 --set 'data.train=["corpus.bin"]' "$@" >"$run_name.out" 2>"$run_name.err" &
    pid=$!
    await $pid "$run_name: step 2" grep -qs '^step 2/' "$run_name.out"
    kill -STOP $pid
    await $pid "$run_name stands still" stands_still $pid
    eval "$how"
    kill -CONT $pid
    wait $pid
    status=$?
    [ $status = 1 ] || fail "$run_name: exit status $status, expected 1"
    # Each rank that cannot read says so.
    sed 's/rank [01]: //' "$run_name.err" | grep -v -e 'its tokens are compared' -e 'data.validation has a text of' | sort -u >errors
    one_line errors
    contains "$run_name.err" "mics: error: "
}
# The state before the batch that could not be read is saved, and with the restored file the run resumes.
resumes() { # OUT FLAGS...
    cp whole.bin corpus.bin
    cp whole.bin held.bin
    last=$(sed -n '$s/^{"step": \([0-9]*\).*/\1/p' "$1/metrics.jsonl")
    [ -d "$1/checkpoints/$(printf 'step-%08d' "$last")" ] || fail "$1: step $last is not saved: $(ls "$1/checkpoints")"
    run 0 again "$mics" train run.json --ranks 2 --out "$1" --steps $((last + 2)) --set run.checkpoint_every=0 \
        --set 'data.train=["corpus.bin"]' ${2:-} ${3:-}
    contains again.out "start     step $last, resumed"
}
how='truncate -s 2000 corpus.bin' changed cut
contains cut.err "corpus.bin: was changed after it was opened: it had $(wc -c <whole.bin) bytes and has 2000; restore it"
how='truncate -s 2000 held.bin' changed held --set 'data.validation=["held.bin"]' --set run.validate_every=1
contains held.err "held.bin: was changed after it was opened"
resumes held --set 'data.validation=["held.bin"]'
how='cat text.txt >>corpus.bin' changed longer
contains longer.err "corpus.bin: was changed after it was opened"
zeros='dd if=/dev/zero of=corpus.bin bs=1024 seek=1 count=4 conv=notrunc 2>/dev/null'
how=$zeros changed written
contains written.err "corpus.bin: was changed after it was opened: it has other tokens, written later; restore it"
resumes written
# Where somebody sets the time back as well, another time tells.
how="$zeros; touch -d 2020-01-01 corpus.bin" changed hidden
contains hidden.err "it has other tokens"

# Touched alone, it has the tokens that it had.
cp whole.bin corpus.bin
"$mics" train run.json --ranks 2 --out touched --steps 100000 --set run.log_every=1 \
    --set 'data.train=["corpus.bin"]' >touched.out 2>touched.err &
pid=$!
run_name=touched
await $pid "touched: step 2" grep -qs '^step 2/' touched.out
touch corpus.bin
await $pid "a comparison" grep -q "corpus.bin: has the tokens that it had" touched.err
kill -INT $pid
wait $pid
[ $? = 75 ] || fail "touched: exit status"

# ---- mics verify ----

run 0 kept "$mics" train run.json --ranks 2 --out kept
run 0 verify "$mics" verify kept
contains verify.out "kept/checkpoints/step-00000004: good: step 4, 4 files, "
contains verify.out "kept/checkpoints/step-00000008: good: step 8, 4 files, "
contains verify.out "kept/checkpoints/latest: good"
contains verify.out "kept/metrics.jsonl: good: "
no_line verify.err
run 0 verify "$mics" verify kept/checkpoints/step-00000004/
one_line verify.out
run 0 verify "$mics" verify "$golden/checkpoint/step-00000008"
contains verify.out "good: step 8, 6 files, "
damage() { # FILE OFFSET
    printf '\252' | dd of="kept/$1" bs=1 seek="$2" conv=notrunc 2>dd.err
}
damage checkpoints/step-00000004/rank-00000.safetensors 5000
damage checkpoints/step-00000008/rank-00001.safetensors 100
rm kept/checkpoints/step-00000008/config.json
echo step-00000012 >kept/checkpoints/latest
sed '3d' kept/metrics.jsonl >lines && sed -n 3p kept/metrics.jsonl >>lines && printf '{"step": 9' >>lines
cp lines kept/metrics.jsonl
run 1 verify "$mics" verify kept
one_line verify.err
contains verify.err "mics: error: kept: 6 problems; 0 of 2 checkpoints are good"
contains verify.out "step-00000004/rank-00000.safetensors: offset 1856: 18432 bytes (1 checksum) of unit embed, state param, differ"
contains verify.out "step-00000008/rank-00001.safetensors: offset 73: the header differs from its checksum"
contains verify.out "step-00000008/config.json: cannot open"
contains verify.out "latest: does not name one of the 2 checkpoints"
contains verify.out "metrics.jsonl, line 11: is cut short"
grep -q 'metrics.jsonl, line 10: step [0-9]* stands behind step 8' verify.out || fail "the order of lines is checked"
run 1 verify "$mics" verify kept --json
one_line verify.out
contains verify.out '"checkpoints": 2, "good_checkpoints": 0, "bytes": '
contains verify.out '"path": "kept/checkpoints/step-00000004", "step": 4, "files": 4, '
run 2 verify "$mics" verify nowhere
run 2 verify "$mics" verify .
contains verify.err "holds no checkpoint"

# ---- files that are not whole when a signal ends the program ----

mkdir tmp
for _ in 1 2 3 4; do cat text.txt text.txt text.txt text.txt; done >large.txt
for _ in 1 2 3 4 5 6; do cat large.txt large.txt large.txt >larger.txt && mv larger.txt large.txt; done
has_parts() {
    [ -n "$(ls large.bin.parts 2>/dev/null)" ]
}
# Tried again where it was done before the signal came.
stop_tokenize() { # SIGNAL: leaves the status
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        rm -rf large.bin*
        TMPDIR=$work/tmp "$mics" tokenize large.txt --out large.bin >signal.out 2>signal.err &
        pid=$!
        until has_parts || [ -e large.bin ]; do
            sleep 0.005
        done
        kill -"$1" $pid
        wait $pid
        status=$?
        [ $status = 0 ] || break
    done
}
for signal in TERM INT; do
    stop_tokenize $signal
    [ $status -gt 128 ] || fail "tokenize should end by SIG$signal, not with $status"
    [ -z "$(ls tmp)" ] || fail "tokenize left $(ls tmp/*)"
    [ "$(ls -d large.bin*)" = large.bin.parts ] || fail "tokenize left $(ls -d large.bin*)"
done
run 0 signal "$mics" tokenize large.txt --out large.bin
[ "$(ls -d large.bin*)" = large.bin ] || fail "tokenize left $(ls -d large.bin*)"

# What a killed run left aside goes when the next one begins; files of others stay.
run 0 left "$mics" train run.json --ranks 2 --out left --steps 4
touch left/metrics.jsonl.0123456789abcdef.tmp left/checkpoints/latest.0123456789abcdef.tmp \
    left/checkpoints/step-00000004/manifest.json.0123456789abcdef.tmp left/other.json.0123456789abcdef.tmp \
    left/metrics.jsonl.tmp
run 0 left "$mics" train run.json --ranks 2 --out left
[ "$(find left -name '*.tmp' | sort | tr '\n' ' ')" = \
    "left/metrics.jsonl.tmp left/other.json.0123456789abcdef.tmp " ] ||
    fail "other files than those of a killed run are left, or too few: $(find left -name '*.tmp')"
# A link under a name of ours is replaced, and what it points to is not written to.
echo mine >mine
cp -r left linked
rm linked/checkpoints/step-00000008/manifest.json linked/metrics.jsonl
ln -sf "$work/mine" linked/checkpoints/step-00000008/rank-00000.safetensors
run 0 linked "$mics" train run.json --ranks 2 --out linked
[ "$(cat mine)" = mine ] || fail "a link was followed"
[ -f linked/checkpoints/step-00000008/rank-00000.safetensors ] && [ ! -L linked/checkpoints/step-00000008/rank-00000.safetensors ] ||
    fail "the link should be a file now"
exit 0
