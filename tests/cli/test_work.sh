# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Long work: interrupted it ends with a word and leaves no file; --quiet and --json; a run that was
# refused leaves nothing that marks the folder as its own.
. "$(dirname "$0")/lib.sh"

run 0 train "$mics" train run.json --ranks 2
yes "the lark at break of day arising" | head -c 20000000 >long.txt
takes_signals() { # PID: SIGTERM is blocked, for a thread that waits for it
    grep -qs '^SigBlk:.*[4-7c-f]...$' "/proc/$1/status"
}
interrupt() { # NAME WORD COMMAND...
    name=$1 word=$2
    run_name=$name
    shift 2
    "$@" >"$name.out" 2>"$name.err" </dev/null &
    pid=$!
    await $pid "$name takes signals" takes_signals $pid
    sleep 0.5 # into its work
    kill -TERM $pid || fail "$name ended before it was interrupted"
    wait $pid
    [ $? = 143 ] || fail "$name: not ended by SIGTERM"
    contains "$name.err" "mics: stopped by SIGTERM; $word"
    [ ! -s "$name.out" ] || fail "$name: half a result"
}
interrupt generate 'the text is not complete' "$mics" generate out --samples 2 --tokens 100000000
interrupt eval 'no loss was found' "$mics" eval out --data long.txt --sequence 8

# Results alone on standard output, and nothing at all where nobody wants to read it.
run 0 quiet "$mics" convert out converted --quiet
[ ! -s quiet.out ] && [ ! -s quiet.err ] || fail "convert --quiet prints"
run 0 json "$mics" convert out again --json --dtype bf16
contains json.out '{"folder": "again", "checkpoint": "out/checkpoints/step-00000008", "step": 8, "parameters": '
contains json.out '"dtype": "bf16"}'
run 0 trained "$mics" train run.json --ranks 2 --out j --steps 3 --json
contains trained.out '{"step": 3, "steps": 3, "start_step": 0, "ranks": 2, "nodes": 1, "out": "j", "checkpoint": "j/checkpoints/step-00000003"'
contains trained.err 'checkpoint step 3 written'
run 0 still "$mics" train run.json --ranks 2 --out j --steps 3 --quiet
run 0 more "$mics" train run.json --ranks 2 --out j --steps 4 --quiet
run 0 shard "$mics" tokenize text.txt --out quiet.bin --quiet
run 0 good "$mics" verify out --quiet
for name in still more shard good; do
    [ ! -s $name.out ] && [ ! -s $name.err ] || fail "$name --quiet prints $(cat $name.out $name.err)"
done
run 0 finished "$mics" train run.json --ranks 2 --out j --steps 4 --json --quiet
contains finished.out '{"step": 4, "steps": 4, "start_step": 4'
[ ! -s finished.err ] || fail "train --json --quiet prints progress"
run 0 tokens "$mics" tokenize text.txt --out shard.bin --json
contains tokens.out '{"shard": "shard.bin", "tokens": '
run 0 texts "$mics" generate out --prompt 'the "lark"' --tokens 5 --samples 2 --seed 7 --json
contains texts.out '"prompt": "the \"lark\"", "prompt_tokens": 10, "tokens": 10,'
contains texts.out '{"seed": 8, "text": "'
[ ! -s texts.err ] || fail "generate --json: $(cat texts.err)"
if command -v python3 >/dev/null; then
    for file in json texts trained finished tokens; do
        python3 -m json.tool $file.out >/dev/null || fail "$file.out is no JSON"
    done
fi

# Refused for its data, then for its file of gauges: the folder is as before, and a run may begin there.
run 2 missing "$mics" train run.json --ranks 2 --out refused --set 'data.train=nowhere*.txt'
[ ! -e refused/lock ] || fail "a refused run left refused/lock"
echo mine >mine.prom
run 2 gauges "$mics" train run.json --ranks 2 --out refused --set run.prometheus=mine.prom
[ ! -e refused/lock ] && [ ! -e refused/resolved.json ] || fail "a refused run left $(ls refused)"
run 0 taken "$mics" train run.json --ranks 2 --out refused

# A key of a text is unset by null, as others are.
run 0 unset "$mics" explain run.json --ranks 2 --set data.tokenizer=null --json
contains unset.out '{"key": "data.tokenizer", "value": "\"bytes\"", "origin": "default"}'
