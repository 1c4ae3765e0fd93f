# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# run.collectives "auto": when gathers are timed, that the choice is said, runs, stands in resolved.json and is kept; and
# that no choice changes a bit.
. "$(dirname "$0")/lib.sh"

steps=3 nodes=2
train() { # OUT FLAGS...
    out=$1
    shift
    "$mics" train run.json --ranks 4 --nodes "$nodes" --steps "$steps" --out "$out" --set run.validation_batches=0 \
        --set sharding.params=4 --set sharding.grads=4 --set sharding.optimizer=4 "$@"
}
sent() { # OUT: bytes between nodes in a step
    sed -n '1s/.*"sent_inter_bytes": \([0-9]*\),.*/\1/p' "$1/metrics.jsonl"
}
chosen() { # OUT: what resolved.json says
    sed -n 's/.*"collectives": "\([a-z-]*\)".*/\1/p' "$1/resolved.json"
}

# Both ways: a ring sends more between nodes, and the same bits come out.
run 0 two train two --set run.collectives=two-stage
run 0 rings train rings --set run.collectives=ring-gathers
[ -s two.err ] || [ -s rings.err ] && fail "what was said is not timed"
same_losses two rings
same_weights two/checkpoints/step-00000003 rings/checkpoints/step-00000003
[ "$(sent two)" -lt "$(sent rings)" ] || fail "a ring sends more between nodes: $(sent two), $(sent rings)"

# Timed: one line says what runs, in the bytes too, and resolved.json has it.
run 0 timed train timed
one_line timed.err
case $(chosen timed) in
    two-stage) like=two said="two stages" ;;
    ring-gathers) like=rings said="one ring" ;;
    *) fail "resolved.json has $(chosen timed)" ;;
esac
contains timed.err "run.collectives: gathers in $said: "
[ "$(sent timed)" = "$(sent $like)" ] || fail "$said send $(sent $like) bytes between nodes, and it sent $(sent timed)"
grep -E ' (B|KiB|MiB) .*[^t]$' timed.out | grep -q 'intra-node\|inter-node\|in all' && fail "a prediction was not exact"
same_losses two timed

# Going on keeps it: whatever was chosen, nothing is timed again, unless the run file asks for it.
steps=5 run 0 onward train timed
! grep -q "gathers in" onward.err || fail "timed again"
[ "$(chosen timed)" = "$(chosen two)" ] || [ $like = rings ] || fail "resolved.json has $(chosen timed) now"
steps=5 run 0 kept train rings
[ "$(chosen rings)" = ring-gathers ] || fail "ring-gathers became $(chosen rings)"
contains kept.err 'run.collectives "ring-gathers"'
grep -q "\"step\": 5,.*\"sent_inter_bytes\": $(sent rings)," rings/metrics.jsonl || fail "gathers no longer run in rings"
steps=6 run 0 again train timed --set run.collectives=auto
contains again.err "run.collectives: gathers in "

# Nothing to choose, or chosen already: nothing is timed.
nothing() { # NAME FLAGS...
    name=$1
    shift
    rm -rf nothing
    steps=1 run 0 "$name" train nothing "$@"
    ! grep -q 'gathers in' "$name.err" || fail "$name: gathers were timed"
}
nothing inside --set sharding.params=2 --set sharding.grads=2
nodes=4 nothing lonely
nodes=1 nothing one_node
nothing fixed_ring --set run.collectives=ring
