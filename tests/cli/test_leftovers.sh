# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# What SIGKILL leaves of files that are written aside, just before they get their names ($2, preloaded, sees to that): the next
# start removes it, and nothing that another process still writes.
. "$(dirname "$0")/lib.sh"
disk=$2
killed_at() { # FILE COMMAND...: the process dies before that file has its name, and leaves it under another one
    file=$1
    shift
    run 137 killed env LD_PRELOAD="$disk" MICS_TEST_KILLS=1 MICS_TEST_FILE="$file" "$@"
}
left() { # FOLDER: names that are no file's own
    find "$1" -name '*.tmp' -o -name '*.partial' -o -name '*.part.safetensors' | sort
}
some_left() { # FOLDER
    [ -n "$(left "$1")" ] || fail "the kill left nothing in $1"
}
none_left() { # FOLDER
    [ -z "$(left "$1")" ] || fail "still there: $(left "$1")"
}
mkdir reports
cat >train.sh <<'SH'
exec "$MICS" train run.json --ranks 2 --set sharding.params=2 --set run.csv=reports/rows.csv \
    --set run.prometheus=reports/run.prom --set run.sample_every=4 "$@"
SH
export MICS="$mics"

# A run's: in its folder, and where else its reports go.
for name in out/run-id out/resolved.json reports/rows.csv reports/run.prom out/checkpoints/latest \
    step-00000004/rank-00001.safetensors step-00000004/manifest.json; do
    rm -rf out reports
    mkdir reports
    killed_at $name sh train.sh
    some_left .
    run 0 again sh train.sh
    none_left .
done
steps=8
for name in metrics samples; do
    steps=$((steps + 2))
    head -n 2 out/$name.jsonl | cut -c -20 >>out/$name.jsonl # which a start repairs
    killed_at out/$name.jsonl sh train.sh --steps $steps
    some_left out
    run 0 again sh train.sh --steps $steps
    none_left .
done
# Of a state saved aside, and of what tells how fast the disk is.
mkdir -p out/aside/step-00000003
: >out/aside/step-00000003/rank-00001.part.safetensors
: >out/speed-12.tmp
run 0 aside sh train.sh --steps 14
none_left .
[ -e out/aside/step-00000003 ] && fail "a state that was not saved whole is still there"

# Somebody else's process writes there, too: what it holds stays.
alive=reports/rows.csv.0123456789abcdef.tmp
: >reports/other.csv.0123456789abcdef.tmp
exec 9>$alive
flock -n 9 || fail "flock"
run 0 beside sh train.sh --steps 16
exec 9>&-
[ -e $alive ] || fail "what a process writes was removed"
[ -e reports/other.csv.0123456789abcdef.tmp ] || fail "another table's was removed"
rm reports/*.tmp

# A converted model, and tokens.
killed_at model.safetensors "$mics" convert out model
some_left model
rm model/*.json
run 0 model "$mics" convert out model
none_left model
killed_at tokens.bin "$mics" tokenize text.txt --out tokens.bin
some_left .
run 0 tokens "$mics" tokenize text.txt --out tokens.bin
none_left .
