# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# What the tests of the program share; sourced with the program as $1. They run in a folder of their
# own, with a small model (2 layers of 32, sharded although they are), a text, and the run file run.json.
set -u
mics=$1
# Where there is a GPU, these tests are of the CPU all the same.
export MICS_CUDA_PLUGIN="${MICS_CUDA_PLUGIN:-none}"
# As the program has it, which would start a second time to set it (src/cli/environment.c).
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-500}"
golden=$(cd "$(dirname "$0")/../golden" && pwd) || exit 1
run_name=none
work=$(mktemp -d)
[ -n "${KEEP:-}" ] || trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

fail() {
    echo "FAILED: $*" >&2
    for log in "$work/$run_name.out" "$work/$run_name.err"; do
        [ -s "$log" ] && echo "--- the newest run's ${log##*.}" >&2 && tail -n 30 "$log" >&2
    done
    exit 1
}

# run STATUS NAME COMMAND...: runs it, keeps NAME.out and NAME.err, and checks the exit status.
run() {
    run_expected=$1
    run_name=$2
    shift 2
    "$@" >"$run_name.out" 2>"$run_name.err" </dev/null
    run_status=$?
    [ "$run_status" = "$run_expected" ] ||
        fail "$run_name: exit status $run_status, expected $run_expected: $*"
}

contains() { # FILE TEXT
    grep -qF -- "$2" "$1" || fail "$1 lacks: $2"
}

# The lines of a file, but for those that are due after seconds, so on a machine that is slow or stands still, and of
# run.json's scheduler, which is longer or shorter than some runs.
lines_of() { # FILE
    grep -v '^mics: .*\(tokenizing .* s left\|verifying .*: .* of .*\|another run writes there; waits up to .*\|changed: .* -> .*\|the scheduler ends with step .*\|the warm-up of .*\|warning: .*: was copied from another folder.*\)$' "$1"
}

one_line() { # FILE
    [ "$(lines_of "$1" | wc -l)" = 1 ] || fail "$1 should have one line: $(cat "$1")"
}

no_line() { # FILE
    [ -z "$(lines_of "$1")" ] || fail "$1 should have no line: $(cat "$1")"
}

# Dead, or a zombie that waits for its parent.
is_gone() { # PID
    ! grep -qs '^State:.[^ZX]' "/proc/$1/status"
}

# Waits until a command holds, as it will while that process lives. In turns, as what passes while the machine stands still is
# no more than one: they end hangs, after five minutes at least.
await() { # PID WHAT COMMAND...
    await_pid=$1 await_what=$2
    shift 2
    await_turns=0
    until "$@"; do
        # It may have come to hold at the very end.
        if is_gone "$await_pid"; then
            "$@" && return
            fail "not seen before process $await_pid had ended: $await_what"
        fi
        await_turns=$((await_turns + 1))
        [ $await_turns -lt 6000 ] || fail "not seen in five minutes: $await_what"
        sleep 0.05
    done
}

# Whether a process of ours, and all its threads, stand still after SIGSTOP.
stands_still() { # PID
    ! cat /proc/"$1"/task/*/stat 2>/dev/null | grep -qv ') [TtZX] '
}

# Steps and losses of a run, with all digits.
losses() { # OUT
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"
}

same_losses() { # OUT OUT
    losses "$1" >left.txt
    losses "$2" >right.txt
    [ -s left.txt ] || fail "$1 has no losses"
    diff left.txt right.txt || fail "losses of $1 and $2 differ"
}

# Manifests differ: they name the output folder and count saves.
same_weights() { # FOLDER FOLDER
    for file in "$1"/rank-*; do
        cmp "$file" "$2/${file##*/}" || fail "$file is not the same in $2"
    done
}

awk 'BEGIN {
    split("the lark at break of day arising from sullen earth sings hymns at gate of heaven", word)
    for (i = 1; i < 1500; i++)
        printf "%s%s", word[(i * i + int(i / 7)) % 15 + 1], i % 8 ? " " : "\n"
}' >text.txt
cat >model.json <<'JSON'
{"model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 32, "n_head": 2, "n_layer": 2,
 "n_positions": 32, "vocab_size": 256, "layer_norm_epsilon": 1e-05, "initializer_range": 0.02,
 "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "tie_word_embeddings": true}
JSON
cat >run.json <<'JSON'
{
  "model": {"config": "model.json"},
  "data": {"train": ["text.txt"], "sequence_length": 32},
  "run": {"steps": 8, "seed": 3, "out": "out", "checkpoint_every": 4, "validation_batches": 2,
          "threads": 1, "comm_timeout_s": 60, "param_persistence_threshold": 0},
  "train_batch_size": 16,
  "gradient_accumulation_steps": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.1}},
  "scheduler": {"type": "WarmupCosineLR",
                "params": {"warmup_num_steps": 2, "total_num_steps": 100}},
  "gradient_clipping": 1.0,
  "sharding": {"params": 2, "grads": 2, "optimizer": 2}
}
JSON
