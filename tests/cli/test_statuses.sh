# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# The table of docs/cli.md with what `mics train` ends with, by phase: each row that names this test is provoked, and has the
# status that the row gives. A row that names another test needs that file; one that names none is not tried anywhere.
. "$(dirname "$0")/lib.sh"
tests=${golden%/golden}
page=${tests%/tests}/docs/cli.md
train="$mics train run.json --ranks 2"
# What reads them splits words.
small="--set run.validation_batches=0 --set run.log_every=1"
long="--steps 100000 $small"

# Starts a training in the background, and waits until it is past its third step.
begin() { # FLAGS...
    # shellcheck disable=SC2086
    $train $long "$@" >begun.out 2>begun.err </dev/null &
    pid=$!
    await $pid "a step" grep -qs '"step": 3,' out/metrics.jsonl
}

# The way of each row: its name's words with underscores. Ends with the program's status.
start_help() { "$mics" train --help; }
start_an_unknown_flag() { $train --stepz 3; }
start_an_unknown_key_in_the_run_file() { $train --set run.stepz=3; }
start_OUT_lies_below_a_file() { $train --out text.txt/out; }
loading_a_file_that_is_missing() { $train --set model.config=none.json; }
loading_weights_that_are_damaged() {
    mkdir weights
    cp "$golden/gpt2/config.json" weights
    head -c 3000 "$golden/gpt2/model.safetensors" >weights/model.safetensors
    $train --model weights --set model.init=weights --set data.sequence_length=16 --set data.tokenizer=bytes
}
loading_a_checkpoint_given_by_name_that_is_damaged() {
    $train $small || return
    truncate -s 1000 out/checkpoints/step-00000008/rank-00001.safetensors
    $train --steps 12 --resume out/checkpoints/step-00000008 --out resumed
}
loading_the_state_is_larger_than_run_memory_limit() { $train --set run.memory_limit=100000; }
loading_all_steps_are_done() {
    $train $small && $train $small
}
tokenizing_a_text_that_cannot_be_read() {
    printf '{"text": "good"}\n{"text": bad\n' >texts.jsonl
    $train --data texts.jsonl
}
tokenizing_more_tokens_than_ulimit_f_lets_a_file_have() {
    awk 'BEGIN { for (i = 0; i < 40000; i++) printf "lark %d\n", i }' >large.txt
    (ulimit -f 64 && $train --data large.txt)
}
training_the_last_step() { $train; }
training_a_signal() {
    for signal in TERM INT HUP USR1 USR2; do
        rm -rf out
        begin
        kill -$signal $pid
        wait $pid
        status=$?
        [ $status = 75 ] || return $status
    done
    return $status
}
training_OUT_stop() {
    begin
    : >out/stop
    wait $pid
}
training_run_max_hours() { $train $long --set run.max_hours=0.0003; }
training_a_loss_that_is_not_finite() { $train --set optimizer.type=SGD --set optimizer.params.lr=1e6 --set gradient_clipping=0; }
training_the_data_changes() {
    "$mics" tokenize text.txt --out tokens.bin || return
    begin --set 'data.train=["tokens.bin"]'
    truncate -s 2000 tokens.bin
    wait $pid
}
training_SIGKILL() {
    begin
    kill -KILL $pid
    wait $pid
}
saving_no_space_for_the_last_step() { (ulimit -f 100 && $train --set run.grace_s=1); }
saving_no_space_to_stop() {
    (ulimit -f 100 && exec $train $long --set run.grace_s=1 --set run.checkpoint_every=0) >begun.out 2>begun.err </dev/null &
    pid=$!
    await $pid "a step" grep -qs '"step": 3,' out/metrics.jsonl
    kill -TERM $pid
    wait $pid
}

sed -n '/^<!-- statuses -->$/,/^<!-- \/statuses -->$/p' "$page" | sed -n 's/^| \([a-z].*\) |$/\1/p' | tail -n +2 >rows
tried=0 named=0 open=0
while IFS='|' read -r phase what status by; do
    phase=$(echo $phase) status=$(echo $status) by=$(echo $by)
    case $by in
    '`tests/cli/test_statuses.sh`') ;;
    '') open=$((open + 1)) && continue ;;
    *)
        for file in $(echo "$by" | tr -d '`,'); do
            [ -f "$tests/${file#tests/}" ] || fail "$page: no test $file"
        done
        named=$((named + 1))
        continue
        ;;
    esac
    way=${phase}_$(echo "${what%%:*}" | tr -d '`,-' | tr -s ' ./' '___' | sed 's/^_//;s/_$//')
    rm -rf out
    # shellcheck disable=SC2086
    ($way) >way.out 2>way.err </dev/null
    got=$?
    [ $got = "$status" ] || { tail -n 5 way.out way.err begun.err 2>/dev/null; fail "$way: status $got, where the table has $status"; }
    [ "$got" != 2 ] && [ "$got" != 1 ] || grep -qs '^mics: error: ' way.err begun.err || fail "$way: no line of an error"
    tried=$((tried + 1))
done <rows
echo "$tried rows tried, $named of other tests, $open of none"
[ $tried = "$(grep -c '^[a-z]*_[A-Za-z_]*() {' "$tests/cli/test_statuses.sh")" ] || fail "a way has no row"
