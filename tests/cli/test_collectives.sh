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
[ "$(grep -c '^  gather .* measured$' measured.out)" = 2 ] || fail "both sizes of gathers should be measured"
[ "$(grep -c '^  gather .* GB/s' measured.out)" = 2 ] || fail "two sizes of gathers are due"
[ "$(grep -c '^  reduce .* GB/s' measured.out)" = 2 ] || fail "two sizes of reductions are due"
table=measured/collectives.json
for key in '"format": 2,' '"transport": {"name": "threads", "version": ""}' '"hosts": {"first": "' \
    '"machines": {"processor": "' '"ranks_per_node": 2' '"two_stage_us": '; do
    contains $table "$key"
done
# Units are timed as large as they are, not as their row.
grep -q '"most_bytes": 65536, "gather": {"unit_bytes": \([0-9]*\), "timed_bytes": \1, "ring_us": ' $table ||
    fail "a row without its units' own size: $(cat $table)"

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
[ "$(grep -c '^  gather .* two-stage  measured$' two.out)" = 2 ] || fail "gathers in two stages are due"
[ "$(grep -c '^  gather .* ring       measured$' ring.out)" = 2 ] || fail "gathers in one ring are due"
[ "$(grep -c '^  reduce .* two-stage  measured ("measured" would take ring)$' ring.out)" = 2 ] ||
    fail "reductions in two stages are due"
cmp ring.json ring/collectives.json || fail "a table that was taken was written again"
same_losses two ring
same_weights two/checkpoints/step-00000003 ring/checkpoints/step-00000003
[ "$(sent two)" -lt "$(sent ring)" ] || fail "a ring sends more between nodes: $(sent two), $(sent ring)"

# "measured" takes both.
planted both ring
run 0 both train both --set run.collectives=measured
[ "$(grep -c '^  reduce .* ring       measured$' both.out)" = 2 ] || fail "reductions in one ring are due"
[ "$(sent ring)" -lt "$(sent both)" ] || fail "rings send more between nodes: $(sent ring), $(sent both)"
grep -E ' (B|KiB|MiB) .*[^t]$' both.out | grep -q 'intra-node\|inter-node\|in all' &&
    fail "a prediction was not exact"

# Going on takes what the run took before.
run 0 onward train ring --steps 5
contains onward.out "slowest rank; from ring/collectives.json"
[ "$(grep -c '^  gather .* ring       measured$' onward.out)" = 2 ] || fail "gathers in one ring are due"

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
spoil huge 's/"timed_bytes": [0-9]*/"timed_bytes": 99999999999999999999/'
spoil units 's/"unit_bytes": [0-9]*/"unit_bytes": "all"/'
spoil hosts 's/"hosts": {/"hosts": 7, "old": {/'
spoil binary '1s/.*/\x01\xff{/'
spoil format 's/"format": 2/"format": "2"/'
spoil formats '/"format"/d'
spoil mesh 's/"ranks_per_node": 2, //'

# Of another mesh, model, wire, transport or place: measured again, which the table says.
other() { # NAME WHAT SED-SCRIPT FLAGS...
    name=$1 what=$2 script=$3
    shift 3
    rm -rf other
    mkdir other
    sed "$script" $table >other/collectives.json
    run 0 "$name" train other --steps 1 "$@"
    [ -s "$name.err" ] && fail "$name.err is not empty"
    [ "$(grep -c "measured again in .* s, as collectives.json is of $what" "$name.out")" = 1 ] ||
        fail "$name: no line says that it was of $what"
    contains other/collectives.json '"format": 2'
    run 0 "$name-again" train other --steps 2 "$@"
    contains "$name-again.out" "slowest rank; from other/collectives.json"
}
other grads 'another sharding$' '' --set sharding.params=2
other wire 'other numbers on the wire$' '' --set run.comm_dtype.params=bf16
other transport 'another transport$' 's/"threads"/"mpi"/'
other mpi 'another MPI (Some MPI v9, not ' 's/"version": "/"version": "Some MPI v9/'
other hosts 'other hosts (far-0 ... far-7, not .* ... ' \
    's/"first": "[^"]*", "last": "[^"]*", "hash": "[^"]*"/"first": "far-0", "last": "far-7", "hash": "0"/'
other hostile 'other hosts (??\[31mred ... ?, not ' \
    's/"first": "[^"]*", "last": "[^"]*", "hash": "[^"]*"/"first": "\\n\\u001b[31mred", "last": 3, "hash": "0"/'
other machines 'other machines$' 's/\("network_mbit".*"hash": "\)[^"]*/\1fff/'
other sizes 'another model$' 's/"most_bytes": 65536/"most_bytes": 131072/'
other units 'another model$' 's/"unit_bytes": [0-9]*/"unit_bytes": 4096/'
other fewer 'another model$' '/"most_bytes": 65536/d; s/}},$/}}/'
other later 'another version of this program$' 's/"format": 2/"format": 3/'
other earlier 'another version of this program$' '2,$d; 1s/.*/{"format": 1, "transport": "threads", "rows": []}/'

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
