# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# What the tests of `mics train` on GPUs share; sourced with the program as $1, in place of ../cli/lib.sh.
. "$(dirname "$0")/../cli/lib.sh"

# Sanitizers see in one layer what is wrong in two.
sed -i "s/\"n_layer\": 2/\"n_layer\": ${MICS_TEST_LAYERS:-2}/" model.json
short="--set data.sequence_length=8 --set train_batch_size=8 --set run.validation_batches=1"
train() { # STATUS NAME ARGUMENTS...: trains into NAME, on the GPU unless run.device says otherwise
    expected=$1
    out=$2
    shift 2
    # Word splitting is meant.
    # shellcheck disable=SC2086
    run "$expected" "$out" "$mics" train run.json --out "$out" --steps 4 $short "$@"
}

# The losses of A are those of B within a relative difference.
near() { # DIFFERENCE A B
    losses "$2" >left.txt
    losses "$3" >right.txt
    [ "$(wc -l <left.txt)" = 4 ] || fail "$2 has not 4 losses"
    paste -d ' ' left.txt right.txt | awk -v most="$1" '
        { d = ($2 - $4) / $4; if (d < 0) d = -d; if (d > most) wrong = wrong " " $0 }
        END { if (wrong != "") print wrong; exit wrong != "" }' || fail "losses of $2 and $3 differ"
}

exact() { # OUT: predicted memory and bytes were what was measured
    [ "$(grep -c 'exact$' "$1.out")" -ge 8 ] || fail "rows of predictions are missing in $1"
    grep -E ' (B|KiB|MiB) .*[^t]$' "$1.out" | grep -q 'intra-node\|inter-node\|in all' &&
        fail "a prediction of $1 was not exact"
}
