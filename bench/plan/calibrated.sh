#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/plan/calibrated.sh [NODES...]     plans for NODES (4 8) nodes, calibrated on one of them, beside real runs; needs root
#
# On an emulated cloud with links of RATE_MBIT. The calibration sees one node alone, while as many others as there will be
# train for themselves. The network is not measured: its rate is the one that was asked for. What its messages cost the
# node's CPUs, and how late they are beside computation, are those of loopback as slow as a link (`mics bench comm`, whose
# two ranks count as two nodes). `mics bench --for` measures the rest. Then `mics train` measures, and `mics plan` predicts,
# zero3, mics(2), mics+(2) and hpz(2) with 1 and 4 micro-steps, all of a step in flight. Ends with the median and largest
# error for each number of nodes. Exit status 1: a median is above 10 %. Some 20 minutes of a machine that does nothing else.
#
#   RATE_MBIT=1000  STEPS=6  MICRO_STEPS="1 4"  MINUTES=1: of each calibration   SECONDS_EACH=15: of loopback
#   SHARDINGS="zero3 mics(2) mics+(2) hpz(2)"
#   FORCE=1             takes calibrations that mispredict a step twofold
#   RESULTS=FILE        keeps measured steps there, and cluster files in FILE.NODES.json, and takes those that are there
. "$(dirname "$0")/../cloud/lib.sh"
[ $# -gt 0 ] || set -- 4 8
rate=${RATE_MBIT:-1000} steps=${STEPS:-6} minutes=${MINUTES:-1} seconds=${SECONDS_EACH:-15}
read -ra micro_steps <<<"${MICRO_STEPS:-1 4}"
read -ra shardings <<<"${SHARDINGS:-zero3 mics(2) mics+(2) hpz(2)}"
open_results "per_node $per_node rate $rate steps $steps minutes $minutes seconds $seconds"
load_cloud=${CLOUD:0:12}l
trap 'CLOUD=$load_cloud "$cloud" down; "$cloud" down; [ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT

say() { # WORDS...
    printf 'after %d:%02d: %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*" >&2
}

# Nodes that train for themselves until unload, as soon as they do.
load() { # NODES
    CLOUD=$load_cloud "$cloud" up "$1" none
    CLOUD=$load_cloud "$cloud" run -r "$per_node" "$mics" train bench/cloud/run.json --out "$work/load" --resume none \
        --set sharding.params="$per_node" --set sharding.grads="$per_node" --set sharding.optimizer="$per_node" \
        --set train_micro_batch_size_per_gpu=2 --set gradient_accumulation_steps=4 --set run.steps=1000000 \
        --set run.checkpoint_every=0 >"$work/load.log" 2>&1 &
    loading=$!
    until grep -qs '"step": 2,' "$work/load/metrics.jsonl"; do
        kill -0 $loading 2>/dev/null || { tail -n 5 "$work/load.log" >&2 && return 1; }
        sleep 0.2
    done
}

unload() {
    CLOUD=$load_cloud "$cloud" down
    wait $loading || true
    rm -rf "$work/load"
}

bench() { # ARGUMENTS...: on one node
    "$cloud" run -r "$per_node" "$mics" bench "$@" --threads 1 ${FORCE:+--force} >"$work/bench.log" 2>&1 ||
        { tail -n 5 "$work/bench.log" >&2 && return 1; }
}

# Loopback as slow as the link, both ways at once, and with its packets: what a message costs a CPU depends on both.
slow_loopback() {
    "$cloud" run -r 1 bash -c "ip link set lo mtu 9000 &&
        tc qdisc replace dev lo root tbf rate $((2 * rate))mbit burst 256kb limit 8mb"
}

loopback() { # NODES FILE: the ranks of a node as nodes of their own; beside so many everything takes as many times as long
    rm -f "$2"
    OMPI_MCA_btl=self,tcp bench comm --nodes "$per_node" --seconds $((seconds * $1)) --out "$2"
}

# What interrupts work and what loopback carries: "TICKS BYTES".
worked_for() {
    echo "$(awk '/^cpu / { print $7 + $8 }' /proc/stat) $("$cloud" run -r 1 awk '/lo:/ { print $10 }' /proc/net/dev)"
}

# Loopback of an idle node, in idle.json, and in interrupts what the CPUs work for a MB in none of its threads, us.
loopback_alone() {
    local before
    before=$(worked_for)
    loopback 1 "$work/idle.json" || return 1
    echo "$before $(worked_for)" | awk -v tick="$(getconf CLK_TCK)" \
        '{ print ($3 - $1) * 1e6 / tick / (($4 - $2) / 1e6) }' >"$work/interrupts"
}

# figure FILE KEY: of its network; of a curve that for the most threads.
figure() {
    sed -n '/"network": {/,$p' "$1" | sed -n "s/^ *\"$2\": \(.*[0-9]\)]*,*\$/\1/p" | sed 's/.*, //' | head -n 1
}

# The machine as whoever rents it out describes it, and what loopback says of messages. Latencies are those of an idle node,
# and what they are later under load is counted beside computation. Threads work less for a MB on a loaded node, where more
# of it waits for them whenever they run.
offer() { # IDLE LOADED
    local idle late core
    idle=$(figure "$1" latency_us)
    late=$(echo "$(figure "$2" latency_us) $(figure "$2" beside_us)" | awk -v idle="$idle" '{ print $1 + $2 - idle }')
    core=$(echo "$(figure "$2" core_us_per_mb) $(cat "$work/interrupts")" | awk '{ print $1 + $2 }')
    cat <<END
{"name": "emulated", "cores": $(nproc),
 "accelerator": {"memory_gib": 1, "tflops_fp32": 0.1, "memory_gb_per_s": 10, "device": "cpu"},
 "tiers": {"node": {"fan_out": $per_node, "gb_per_s": 1},
           "network": {"gbit_per_s": $(awk "BEGIN { print $rate / 1000 }"), "latency_us": $idle, "beside_us": $late,
                       "core_us_per_mb": $core}}}
END
}

calibrate() { # NODES FILE: the cluster file, unless it is there
    kept_row "cluster $1" >/dev/null && [ -s "$2" ] && return 0
    up 1 "${rate}mbit"
    slow_loopback || return 1
    say "one node alone: loopback"
    [ -s "$work/idle.json" ] || loopback_alone || return 1
    load $(($1 - 1)) || return 1
    say "one node of $1: loopback"
    loopback "$1" "$work/loaded.json" || return 1
    offer "$work/idle.json" "$work/loaded.json" >"$work/offer.json"
    say "one node of $1: mics bench --for"
    bench --for bench/cloud/run.json --set train_micro_batch_size_per_gpu=2 --minutes "$minutes" \
        --cluster "$work/offer.json" --out "$2" || return 1
    unload
    case_row "cluster $1" echo "$2" >/dev/null
}

planned() { # FILE SHARDING MICRO_STEPS: step time of the run file's own plan, ms
    # shellcheck disable=SC2046
    "$mics" plan bench/cloud/run.json --cluster "$1:$nodes" --precision fp32 --json $(settings_of "$2:$3") \
        --set gradient_accumulation_steps="$3" --set run.prefetch=1 --set run.collectives=two-stage \
        --set train_micro_batch_size_per_gpu=2 2>/dev/null |
        sed -n 's/^ *"run_file".*"step_ms": \([0-9.]*\),.*/\1/p'
}

measure() { # SHARDING MICRO_STEPS: prints the step time, ms
    say "$nodes nodes, $2 micro-steps, $1"
    train run "$1:$2" "$2" "run.steps=$steps" run.prefetch=1 run.collectives=two-stage train_micro_batch_size_per_gpu=2 ||
        return 1
    median run step_ms
}

SECONDS=0
for n in "$@"; do
    calibrate "$n" "${results:-$work/cluster}.$n.json"
done
printf '%-6s %-6s %-10s %12s %12s %8s\n' nodes micro sharding measured planned error
for n in "$@"; do
    up "$n" "${rate}mbit"
    for s in "${micro_steps[@]}"; do
        for kind in "${shardings[@]}"; do
            step_ms=$(case_row "$n $s $kind" measure "$kind" "$s")
            echo "$n $s $kind $step_ms $(planned "${results:-$work/cluster}.$n.json" "$kind" "$s")" | tee -a "$work/cases" |
                awk '{ printf "%-6s %-6s %-10s %12.1f %12.1f %+7.1f%%\n", $1, $2, $3, $4, $5, 100 * ($5 / $4 - 1) }'
        done
    done
done
awk '
    NF != 5 { print "no figures: " $0; bad = 1; next }
    { error = 100 * ($5 / $4 - 1); print $1, error < 0 ? -error : error }' "$work/cases" | sort -g -k1,1 -k2,2 | awk '
    function finish() {
        if (!n) return
        middle = (of[int((n + 1) / 2)] + of[int(n / 2) + 1]) / 2
        printf "%d nodes: %d cases, error %.1f %% (median), %.1f %% (largest)\n", nodes, n, middle, of[n]
        bad = bad || middle > 10
    }
    NF != 2 { print; bad = 1; next }
    $1 != nodes { finish(); nodes = $1; n = 0 }
    { of[++n] = $2 }
    END { finish(); exit bad }'
