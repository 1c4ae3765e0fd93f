# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# The benches on the cloud ($2): names of shardings become the settings that they stand for, ledger, counted bytes and
# links agree, and defaults.sh's tables have the ratios and bounds of the rows that they are made of.
. "$(dirname "$0")/../cli/lib.sh"
cloud=$2
source_dir=$(cd "$(dirname "$2")/.." && pwd)
export CLOUD="f$$"
trap '"$cloud" down; [ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT

cat >rows <<'ROWS'
steps zero3-ring@1 1 30 4000 3900 80 - - - - 8|8|8 -
steps zero3-ring@4 1 40 3000 2900 110 - - - - 8|8|8 -
steps mics(2) 1 140 900 700 130 600 600 200 150 2|2|2 610
steps zero3-ring@1 2 30 4000 3900 80 - - - - 8|8|8 -
steps zero3-ring@4 2 40 3000 2900 110 - - - - 8|8|8 -
steps mics(2) 2 160 800 500 130 500 600 300 150 2|2|2 540
weak16 apart 1 10000 1000 2 50 - - - - - -
weak16 auto 1 9300 1100 100 50 80 1300 2000 100 1|1|8 95
ROWS
awk -f "$source_dir/bench/cloud/defaults.awk" rows >tables || fail "defaults.awk: status $?"
row() { # WORDS...: there is a line with these words in this order
    pattern=$(printf '%s' "$*" | sed 's/\./\\./g; s/ / .*/g')
    grep -q "^$pattern" tables || fail "no line '$*' in: $(cat tables)"
}
# Over the best prefetch, within a round; bounds are 600 - 200 + 150 and 600 - 300 + 150, and a unit's where all can be hidden.
row 'steps mics(2) 150 (140 to 160) 3.75 (3.50 to 4.00)'
row 'weak16 auto 1|1|8 93.0 (93.0 to 93.0)'
row 'steps mics(2) 575.0 550.0 500.0 1.10 (1.09 to 1.11)'
row 'weak16 auto 1|1|8 95.0 80.0 100.0 0.80'

"$cloud" check >check.out 2>check.err
case $? in
0) ;;
3) cat check.err && exit 77 ;;
*) fail "cloud check: $(cat check.err)" ;;
esac

# The small noise of a start weighs nothing with 13 million parameters; what a busy machine sends again does.
BUILD=$(dirname "$mics")
export BUILD
run 0 bytes env NODES=2 MICRO_STEPS=2 MARGIN=3 KEEP=1 TMPDIR="$work" "$source_dir/bench/cloud/bytes.sh" \
    zero3-ring 'mics(2):2@1'
[ "$(grep -c '%$' bytes.out)" = 2 ] || fail "rows of two shardings are missing: $(cat bytes.out)"
resolved() { # KEY VALUE: of the last sharding's run
    grep -q "\"$1\": $2\b" "$work"/tmp.*/run/resolved.json || fail "no $1 $2 in resolved.json"
}
resolved layered_micro_steps 2
resolved prefetch 1
resolved params 2

run 1 unknown env NODES=2 "$source_dir/bench/cloud/bytes.sh" 'mics2'
contains unknown.err "unknown sharding mics2"
