# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Collectives by measurement: when they are timed, that the times are kept and taken again, and what becomes of a file
# of times that is damaged, hostile, or of another run.
. "$(dirname "$0")/lib.sh"

train() { # OUT FLAGS...
    out=$1
    shift
    "$mics" train run.json --ranks 4 --nodes 2 --steps 3 --out "$out" --set run.validation_batches=0 \
        --set sharding.params=4 --set sharding.grads=4 --set sharding.optimizer=4 "$@"
}
sent() { # OUT: bytes between nodes in a step
    sed -n '1s/.*"sent_inter_bytes": \([0-9]*\),.*/\1/p' "$1/metrics.jsonl"
}

# Measured, with a table, and kept.
run 0 measured train measured
[ -s measured.err ] && fail "measured.err is not empty"
contains measured.out "us a unit on the slowest rank; measured in"
[ "$(grep -c '^  gather .* GB/s' measured.out)" = 2 ] || fail "two sizes of gathers are due"
[ "$(grep -c '^  reduce .* GB/s' measured.out)" = 2 ] || fail "two sizes of reductions are due"
table=measured/collectives.json
for key in '"format": 1,' '"transport": "threads"' '"ranks_per_node": 2' '"gather": {"timed_bytes": 65536, "ring_us": ' \
    '"two_stage_us": '; do
    contains $table "$key"
done

# planted OUT ALGORITHM: a folder in which that algorithm is by far the fastest.
planted() {
    rm -rf "$1"
    mkdir "$1"
    sed "s/\"\([a-z_]*\)_us\": [0-9.e+-]*/\"\1_us\": 5000/g; s/\"$2_us\": 5000/\"$2_us\": 50/g" $table \
        >"$1/collectives.json"
    cp "$1/collectives.json" "$1.json"
}

# Taken again rather than measured. The algorithm of gathers changes what travels, but no bit of what is computed.
planted two two_stage
run 0 two train two
planted ring ring
run 0 ring train ring
contains two.out "slowest rank; from two/collectives.json"
contains ring.out "slowest rank; from ring/collectives.json"
[ "$(grep -c '^  gather .* two-stage$' two.out)" = 2 ] || fail "gathers in two stages are due"
[ "$(grep -c '^  gather .* ring$' ring.out)" = 2 ] || fail "gathers in one ring are due"
[ "$(grep -c '^  reduce .* two-stage ("measured" would take ring)$' ring.out)" = 2 ] ||
    fail "reductions in two stages are due"
cmp ring.json ring/collectives.json || fail "a table that was taken was written again"
same_losses two ring
same_weights two/checkpoints/step-00000003 ring/checkpoints/step-00000003
[ "$(sent two)" -lt "$(sent ring)" ] || fail "a ring sends more between nodes: $(sent two), $(sent ring)"

# "measured" takes both.
planted both ring
run 0 both train both --set run.collectives=measured
[ "$(grep -c '^  reduce .* ring$' both.out)" = 2 ] || fail "reductions in one ring are due"
[ "$(sent ring)" -lt "$(sent both)" ] || fail "rings send more between nodes: $(sent ring), $(sent both)"
grep -E ' (B|KiB|MiB) .*[^t]$' both.out | grep -q 'inside nodes\|between nodes\|in all' &&
    fail "a prediction was not exact"

# Going on takes what the run took before.
run 0 onward train ring --steps 5
contains onward.out "slowest rank; from ring/collectives.json"
[ "$(grep -c '^  gather .* ring$' onward.out)" = 2 ] || fail "gathers in one ring are due"

# Damaged or hostile: one warning, a new measurement, and a whole file.
spoil() { # NAME SED-SCRIPT
    rm -rf spoiled
    mkdir spoiled
    sed "$2" $table >spoiled/collectives.json
    run 0 "$1" train spoiled --steps 1
    [ "$(grep -c '^mics: warning: ' "$1.err")" = 1 ] || fail "$1: one warning is due"
    [ "$(wc -l <"$1.err")" = 1 ] || fail "$1: one line is due"
    contains "$1.err" "spoiled/collectives.json"
    contains "$1.out" "measured in"
    contains spoiled/collectives.json '"ranks_per_node": 2'
}
spoil truncated '5,$d'
run 0 again train spoiled --steps 2
contains again.out "from spoiled/collectives.json"
spoil empty 'd'
spoil text '1s/.*/these are no times/'
spoil deep '1s/.*/{"format": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[/'
spoil negative 's/"ring_us": [0-9.e+-]*/"ring_us": -1/'
spoil nothing 's/"two_stage_us": [0-9.e+-]*/"two_stage_us": 0/'
spoil endless 's/"ring_us": [0-9.e+-]*/"ring_us": 1e300/'
spoil words 's/"ring_us": [0-9.e+-]*/"ring_us": "soon"/'
spoil missing 's/"ring_us": [0-9.e+-]*, //'
spoil bytes 's/"timed_bytes": [0-9]*/"timed_bytes": 9223372036854775807/'
spoil rows 's/"rows": \[/"rows": 3, "old": [/'
spoil row 's/"most_bytes": [0-9]*/"most_bytes": null/'
spoil format 's/"format": 1/"format": "1"/'
spoil mesh 's/"ranks_per_node": 2, //'

# Of another mesh, model, wire or transport: measured again, which the table says.
other() { # NAME SED-SCRIPT FLAGS...
    name=$1 script=$2
    shift 2
    rm -rf other
    mkdir other
    sed "$script" $table >other/collectives.json
    run 0 "$name" train other --steps 1 "$@"
    [ -s "$name.err" ] && fail "$name.err is not empty"
    contains "$name.out" "as collectives.json was of another mesh or model"
}
other grads '' --set sharding.params=2
other wire '' --set run.wire.gather=bf16
other transport 's/"threads"/"mpi"/'
other sizes 's/"most_bytes": 65536/"most_bytes": 131072/'
other fewer '/"most_bytes": 65536/d; s/}},$/}}/'
other later 's/"format": 1/"format": 2/'

# Nothing to choose, or chosen already: nothing is timed, printed or written.
nothing() { # NAME FLAGS...
    name=$1
    shift
    rm -rf nothing
    run 0 "$name" train nothing --steps 1 "$@"
    ! grep -q 'collectives, us' "$name.out" || fail "$name: a table was printed"
    [ ! -e nothing/collectives.json ] || fail "$name: a table was written"
}
nothing inside --set sharding.params=2 --set sharding.grads=2
nothing lonely --nodes 4
nothing one_node --nodes 1
nothing fixed_ring --set run.collectives=ring
nothing fixed_two --set run.collectives=two-stage
