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
    for _ in $(seq 300); do
        grep -qs '^step 2/' "$run_name.out" && break
        sleep 0.05
    done
    kill -STOP $pid
    eval "$how"
    kill -CONT $pid
    wait $pid
    status=$?
    [ $status = 1 ] || fail "$run_name: exit status $status, expected 1"
    one_line "$run_name.err"
    contains "$run_name.err" "mics: error: "
}
how='truncate -s 2000 corpus.bin' changed cut
contains cut.err "corpus.bin: was changed after it was opened: it had $(wc -c <whole.bin) bytes and has 2000; restore it"
how='truncate -s 2000 held.bin' changed held --set 'data.validation=["held.bin"]' --set run.validate_every=1
contains held.err "held.bin: was changed after it was opened"
how='cat text.txt >>corpus.bin' changed longer
contains longer.err "corpus.bin: was changed after it was opened"
zeros='dd if=/dev/zero of=corpus.bin bs=1024 seek=1 count=4 conv=notrunc 2>/dev/null'
how=$zeros changed written
contains written.err "bytes and has $(wc -c <whole.bin), written later"
# Where somebody sets the time back as well, a token that the model does not have is noticed still.
how="tr '\\000-\\377' '\\377' <whole.bin | dd of=corpus.bin bs=1024 skip=1 seek=1 conv=notrunc 2>/dev/null
    touch -d 2020-01-01 corpus.bin" changed hidden
contains hidden.err "corpus.bin: token 65535 at index"
exit 0
