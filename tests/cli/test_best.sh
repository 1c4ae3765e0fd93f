# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# run.keep_best, run.stop_after_no_improvement and run.sample_every. Training on one letter makes the
# loss on another one rise from the first steps on, so the first validation is the best.
. "$(dirname "$0")/lib.sh"

head -c 20000 /dev/zero | tr '\0' a >a.txt
head -c 20000 /dev/zero | tr '\0' b >b.txt
train() { # STATUS NAME OUT FLAGS...
    status=$1 name=$2 out=$3
    shift 3
    run "$status" "$name" "$mics" train run.json --ranks 2 --out "$out" --steps 40 \
        --set data.train=a.txt --set data.validation=b.txt --set run.validation_batches=2 \
        --set run.validate_every=2 --set run.checkpoint_every=3 --set run.keep_checkpoints=1 "$@"
}
best="--set run.keep_best=true --set run.stop_after_no_improvement=3"

# shellcheck disable=SC2086
train 0 whole whole $best
contains whole.out 'ended     after step 8 of 40: the validation loss has not improved in 3 validations'
contains whole.out 'after step 2, which is kept: whole/checkpoints/best names it'
[ "$(cat whole/checkpoints/best)" = step-00000002 ] || fail "best names another step"
[ "$(ls whole/checkpoints)" = "$(printf 'best\nlatest\nstep-00000002\nstep-00000008')" ] ||
    fail "other checkpoints than the best and the newest: $(ls whole/checkpoints)"
loss=$(sed -n 's/^{"step": 2, "validation_loss": \(.*\)}$/\1/p' whole/metrics.jsonl)
contains whole/metrics.jsonl '{"step": 8, "stopped": "no improvement", "best_step": 2'
contains whole/metrics.jsonl "\"best_validation_loss\": $loss}"
run 0 verify "$mics" verify whole

# The best by its name, and the same loss there as training found.
run 0 eval "$mics" eval whole/checkpoints/best --data b.txt --json
contains eval.out '"step": 2'

# Started again it trains no step and says the same; with more patience it goes on.
# shellcheck disable=SC2086
train 0 again whole $best
contains again.out 'ended     after step 8 of 40'
[ "$(grep -c '"stopped"' whole/metrics.jsonl)" = 1 ] || fail "the end is told twice"
train 0 patient whole --set run.keep_best=true --set run.stop_after_no_improvement=5
contains patient.out 'ended     after step 12 of 40'
[ -d whole/checkpoints/step-00000002 ] || fail "the best was pruned"

# A run that is stopped and goes on counts as one that never was.
# shellcheck disable=SC2086
run 0 half "$mics" train run.json --ranks 2 --out parts --steps 5 --set data.train=a.txt \
    --set data.validation=b.txt --set run.validation_batches=2 --set run.validate_every=2 \
    --set run.checkpoint_every=3 --set run.keep_checkpoints=1 $best
# shellcheck disable=SC2086
train 0 rest parts $best
contains rest.out 'ended     after step 8 of 40'
[ "$(cat parts/checkpoints/best)" = step-00000002 ] || fail "best names another step"
same_losses parts parts
sed -n '/"step": [1-8],/p' whole/metrics.jsonl | grep -c '"loss"' >left.txt
sed -n '/"step": [1-8],/p' parts/metrics.jsonl | grep -c '"loss"' >right.txt
cmp left.txt right.txt || fail "other steps"

# What it cannot do is said before anything runs.
train 2 never never --set run.keep_best=true --set run.validate_every=0
contains never.err 'run.validate_every is 0'
train 2 nothing nothing --set run.stop_after_no_improvement=2 --set run.validation_batches=0
contains nothing.err 'run.validation_batches is 0'

# Texts of the model, in the log and as lines; a run that resumes has each once.
sample() { # NAME STEPS
    run 0 "$1" "$mics" train run.json --ranks 2 --out texts --steps "$2" --set run.sample_every=2 \
        --set 'run.sample_prompt="The "'
}
sample texts 4
contains texts.out 'after step 2 the model writes'
grep -q '^in all .* exact$' texts.out || fail "the text's model counts as the run's memory"
contains texts/samples.jsonl '{"step": 4, "prompt": "The ", "text": "'
sample more 6
[ "$(wc -l <texts/samples.jsonl)" = 3 ] || fail "texts of steps 2, 4 and 6 are missing or twice"
