# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# mics bench: cluster files made and merged, other figures kept, and what is wrong said in one line. Times are
# tiny here, so figures are only plausible.
. "$(dirname "$0")/lib.sh"

seconds=0.1 # so short a time says little
bench() { # STATUS NAME ARGUMENTS...
    bench_status=$1
    bench_name=$2
    bench_verb=$3
    shift 3
    run "$bench_status" "$bench_name" "$mics" bench "$bench_verb" --seconds "$seconds" --force "$@"
}

# value FILE KEY: the first figure behind a key.
value() {
    sed -n "s/.*\"$2\": \\([^,]*\\),*\$/\\1/p" "$1" | head -n 1
}

same() { # FILE FILE KEY...
    same_a=$1
    same_b=$2
    shift 2
    for key in "$@"; do
        [ "$(value "$same_a" "$key")" = "$(value "$same_b" "$key")" ] ||
            fail "$key of $same_a and $same_b differ"
    done
}

# ---- a new file has both halves ----
bench 0 compute compute run.json --ranks 4 --nodes 2 --out links.json
contains compute.out "links.json written"
contains compute.out "inter-node: latency"
contains compute.out "all-gather, two stages"
contains compute.out "fastest GEMM"
contains compute.err "intra-node"
for key in '"node": {' '"network": {' '"fan_out": 2' '"ramp": [[1024, ' '"core_us_per_mb": ' \
    '"tflops_fp32": ' '"matmul_efficiency": [[' '"step_overhead_us": ' 'links: mics bench, 20' \
    'computation: mics bench, 20'; do
    contains links.json "$key"
done
bench 0 compute compute run.json --ranks 2 --out node.json
bench 0 quiet compute run.json --ranks 2 --out node.json --quiet
# A machine that is busy with other tests disturbs a measurement: that warning stands with --quiet too.
grep -v 'the figures predict .* --force asks$' quiet.err >quiet.rest
[ ! -s quiet.out ] && [ ! -s quiet.rest ] || fail "bench --quiet says: $(cat quiet.out quiet.rest)"
grep -q '"network"' node.json && fail "a network was measured in one node"

[ "${MICS_TEST_BENCH:-}" != once ] || exit 0

# ---- an existing file keeps what was not measured ----
sed -e 's/"name": "links"/"name": "ours"/' -e 's/"note": "/"note": "prices of 2026-11; /' \
    -e 's/"step_overhead_us": .*/"usd_per_node_hour": 12.5,\n  "step_overhead_us": 77,/' links.json >ours.json
cp ours.json before.json
bench 0 update comm --ranks 4 --nodes 2 --out ours.json
contains update.out "ours.json updated"
same before.json ours.json name usd_per_node_hour step_overhead_us tflops_fp32 update_gb_per_s
contains ours.json "prices of 2026-11; computation: mics bench"
[ "$(grep -o 'links: ' ours.json | wc -l)" = 1 ] || fail "the note has the links not once"
cp ours.json before.json
bench 0 update compute --config model.json --sequence 16 --batch 2 --ranks 4 --nodes 2 --out ours.json
same before.json ours.json name usd_per_node_hour
for file in before ours; do
    sed -n '/"tiers"/,$p' $file.json >$file.tiers
done
diff before.tiers ours.tiers || fail "computation changed the links"
[ "$(value ours.json step_overhead_us)" != 77 ] || fail "the step's overhead was not measured"

# A rack beyond the network stays.
sed -e 's/"network": {/"network": {\n      "fan_out": 4,/' \
    -e 's/^    }$/    },\n    "core": {"gbit_per_s": 100}/' links.json >racks.json
bench 0 racks comm --ranks 4 --nodes 2 --out racks.json
contains racks.json '"core": {'
contains racks.json '"fan_out": 4'

# ---- one rank alone ----
bench 0 one compute --config model.json --out one.json
contains one.json '"fan_out": 1'

# ---- JSON ----
bench 0 json comm --ranks 4 --nodes 2 --out links.json --json
for key in '{"file": "links.json"' '"transport": "threads"' '"rank_gb_per_s": [[1024, ' \
    '"collectives": [{"collective": ' '"cluster": {'; do
    contains json.out "$key"
done
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys; json.load(open("json.out")); json.load(open("links.json"))' ||
        fail "what is printed is no JSON"
fi

# ---- wall clock ----
# Of 6 seconds in all at least half are used, and no more than 15, on a machine that has time for it and does not stand still.
for _ in 1 2 3; do
    begun=$(date +%s)
    seconds=6 bench 0 clock compute --config model.json --sequence 16 --batch 2 --ranks 2 --out clock.json
    took=$(($(date +%s) - begun))
    [ "$took" -ge 3 ] || fail "6 seconds of measuring took $took"
    [ "$took" -gt 15 ] || break
done
[ "$took" -le 15 ] || [ "$(cut -d . -f 1 /proc/loadavg)" -ge "$(nproc)" ] || fail "6 seconds of measuring took $took"
contains clock.out "a step at the end: measured"

# ---- help, and what is wrong ----
run 0 help "$mics" bench --help
contains help.out "mics bench compute [RUN.json]"
run 0 help "$mics" bench comm --help
contains help.out "--seconds S"

wrong() { # TEXT ARGUMENTS...: one line, exit status 2, and no file touched
    wrong_text=$1
    shift
    cp links.json kept.json
    run 2 wrong "$mics" bench "$@"
    one_line wrong.err
    grep -q '^mics: error: ' wrong.err || fail "no error line: $*"
    contains wrong.err "$wrong_text"
    cmp links.json kept.json || fail "a file was touched: $*"
}
wrong "say what to measure"
wrong 'did you mean "comm"' com
wrong 'did you mean "compute"' computing
wrong "did you mean --seconds" comm --second 3
wrong "one rank has no links" comm
wrong "do not divide" comm --ranks 4 --nodes 3
wrong "a number of at least 0" comm --seconds -1
wrong "measures nothing" comm --ranks 2 --seconds 0
wrong "one argument too many" comm run.json
wrong "--config stands in place" compute run.json --config model.json
wrong "nowhere.json" compute nowhere.json
wrong "nowhere.json" compute --config nowhere.json
wrong "32 positions" compute --config model.json --sequence 33
wrong "run.stepz" compute run.json --set run.stepz=1
wrong "give an --out that can be written" comm --ranks 2 --out nowhere/cluster.json
wrong "is no file's name" comm --ranks 2 --out .
wrong "nodes of 2 ranks, and these have 4" comm --ranks 4 --out links.json
wrong "nodes of 2 ranks, and these have 4" compute --config model.json --ranks 4 --out links.json
head -c 200 links.json >cut.json
wrong "cut.json:" comm --ranks 2 --out cut.json
contains wrong.err "give another --out"
echo '{"tiers": 3}' >odd.json
wrong "odd.json" compute run.json --ranks 2 --out odd.json
mkdir folder
wrong "folder" comm --ranks 2 --out folder

# ---- disks ----
mkdir disk
on_disk() { # MOUNT-OPTIONS ARGUMENTS...
    on_disk_options=$1
    shift
    unshare -rm sh -c 'mount -t tmpfs -o "$0" none disk && exec "$@"' "$on_disk_options" "$@"
}
if on_disk size=64k true 2>/dev/null; then
    run 1 disk on_disk size=4k sh -c \
        'head -c 4096 /dev/zero >disk/full; exec "$0" bench comm --ranks 2 --seconds 0.1 --force --out disk/out.json' "$mics"
    contains disk.err "No space left"
    run 1 disk on_disk ro "$mics" bench comm --ranks 2 --seconds 0.1 --out disk/out.json
    contains disk.err "Read-only"
fi
exit 0
