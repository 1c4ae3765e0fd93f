#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/lora.sh     an adapter's training on an emulated cloud, beside PEFT with FSDP2; needs root
#
# An adapter on all linears of a Llama of 127 million parameters, NODES x 2 ranks, one micro-step of SEQUENCES x LENGTH
# tokens a rank, both sides in PRECISION. Links are divided by NODES, since these share one machine's cores (dilation;
# see weak.sh). Parts:
#
#   bytes   the links' counters beside the ledger of mics(2) (bytes.sh), and the adapter's all-reduce alone
#   speed   ROUNDS rounds, in turns: `apart`, nodes that train at once, each for itself, without a network; at each of
#           RATES mics(2); and in TORCH_ROUNDS of them PEFT with FSDP2 over all ranks and gloo (fsdp.py)
#
# Ratios are of a round. MiB are the peak of a rank: of mics what it allocated, and a rank's half of the parameters that
# the node's ranks share counts once; of PEFT what was resident in steps, less what its imports had taken.
#
#   PYTHON=python3 (with torch, transformers and peft)   PARTS="bytes speed"   RATES="1000 200" (Mbit/s, before dilation)
#   NODES=4  RANK=16  PRECISION=bf16  SEQUENCES=2  LENGTH=256  ROUNDS=3  STEPS=6  TORCH_ROUNDS=1  TORCH_STEPS=2
. "$(dirname "$0")/lib.sh"
read -ra parts <<<"${PARTS:-bytes speed}"
read -ra rates <<<"${RATES:-1000 200}"
read -ra more <<<"${SETTINGS:-}"
config=${CONFIG:-configs/llama-120m.json} rank=${RANK:-16} precision=${PRECISION:-bf16}
sequences=${SEQUENCES:-2} length=${LENGTH:-256} steps=${STEPS:-6} of_nodes=${NODES:-4}
settings=("model.config=$config" model.init=random "adapter.r=$rank" "adapter.lora_alpha=$((2 * rank))"
    "run.precision=$precision" ${more[@]+"${more[@]}"})
shape=("train_micro_batch_size_per_gpu=$sequences" "data.sequence_length=$length" "run.steps=$steps")
export MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1

# Bytes of one step, beside what an all-reduce of the adapter alone over the nodes sends.
show_bytes() {
    local trained
    NODES=$of_nodes MICRO_STEPS=1 SETTINGS="${settings[*]}" "$(dirname "$0")/bytes.sh" "mics($per_node)" || return 1
    trained=$("$mics" explain bench/cloud/run.json --lora "$rank" --set "model.config=$config" --json 2>/dev/null |
        sed -n 's/.*"trained_parameters": \([0-9]*\).*/\1/p')
    awk -v trained="$trained" -v nodes="$of_nodes" -v bytes="$([ "$precision" = fp32 ] && echo 4 || echo 2)" 'BEGIN {
        printf "%-14s %12.2f   2 x (%d - 1) x %d parameters x %d bytes\n", "adapter alone", \
            2 * (nodes - 1) * trained * bytes / 1048576, nodes, trained, bytes }'
}

# A row: tokens/s, step ms, MiB of a rank.
figures() { # NAME
    echo "$(median "$1" tokens_per_s) $(median "$1" step_ms) $(mib_of "$1")"
}

measure_apart() {
    local node
    "$cloud" down && standing=
    train_apart "$of_nodes" run "mics($per_node)" 1 "${settings[@]}" "${shape[@]}" || return 1
    for ((node = 0; node < of_nodes; node++)); do
        figures "run$node"
    done | awk '{ rate += $1; step += $2; mib = $3 } END { print rate, step / NR, mib }'
}

measure_mics() { # MBIT
    up "$of_nodes" "$(($1 / of_nodes))mbit"
    train run "mics($per_node)" 1 "${settings[@]}" "${shape[@]}" && figures run
}

measure_peft() { # MBIT
    up "$of_nodes" "$(($1 / of_nodes))mbit"
    "$cloud" run -r "$per_node" "${PYTHON:-python3}" bench/cloud/fsdp.py "$config" zero3 --lora "$rank" \
        --precision "$precision" --sequences "$sequences" --length "$length" --micro-steps 1 --warm-up 1 \
        --steps "${TORCH_STEPS:-2}" 2>"$work/torch.log" >"$work/torch" ||
        { tail -n 5 "$work/torch.log" >&2 && return 1; }
    awk -v tokens=$((sequences * length * of_nodes * per_node)) '{ print tokens / $1 * 1000, $1, $2 - $3 }' "$work/torch"
}

case_of_round() { # ROUND CASE MBIT COMMAND...: a row "ROUND CASE MBIT TOKENS/S MS MIB" in $work/rows
    local row
    row=$("${@:4}") || { echo "$2 at $3: failed, left out" >&2 && return; }
    echo "$1 $2 $3 $row" | tee -a "$work/rows" >&2
}

run_rounds() {
    local round mbit
    for round in $(seq "${ROUNDS:-3}"); do
        case_of_round "$round" apart - measure_apart
        for mbit in "${rates[@]}"; do
            case_of_round "$round" mics "$mbit" measure_mics "$mbit"
            [ "$round" -gt "${TORCH_ROUNDS:-1}" ] || case_of_round "$round" peft "$mbit" measure_peft "$mbit"
        done
    done
}

# Of each case medians over the rounds, and its ratio to nodes apart, and to PEFT at the same rate, with their ranges.
summarise() {
    printf '%-12s %10s %10s %8s   %-28s %s\n' 'case at Mbit/s' tokens/s step_ms MiB 'of apart' 'times PEFT + FSDP2'
    awk '!seen[$2 " " $3]++ { print $2, $3 }' "$work/rows" | while read -r kind mbit; do
        of_case() { # AWK-EXPRESSION: its median, least and most over rounds; 0 where a round has none
            awk -v kind="$kind" -v mbit="$mbit" '{ rate[$1, $2, $3] = $4; ms[$1, $2, $3] = $5; mib[$1, $2, $3] = $6 }
                END { for (round = 1; round <= 99; round++) {
                    own = rate[round, kind, mbit]; apart = rate[round, "apart", "-"]; peft = rate[round, "peft", mbit]
                    if (own) { value = '"$1"'; if (value) print value }
                } }' "$work/rows" | spread
        }
        echo "$kind $mbit|$(of_case own)|$(of_case 'ms[round, kind, mbit]')|$(of_case 'mib[round, kind, mbit]')|$(
            of_case 'apart ? own / apart * 100 : 0')|$(of_case 'peft ? own / peft : 0')"
    done | awk -F '|' '
        function with_range(of, unit,    v) {
            return split(of, v, " ") ? sprintf("%.1f%s (%.1f to %.1f)", v[1], unit, v[2], v[3]) : "-"
        }
        { printf "%-14s %10.1f %10.0f %8.0f   %-28s %s\n", $1, $2, $3, $4, with_range($5, "%"), with_range($6, "") }'
}

grep -m 1 'model name' /proc/cpuinfo
echo "$config, r $rank, $precision, $of_nodes nodes x $per_node, $sequences x $length tokens a rank"
: >"$work/rows"
status=0
case " ${parts[*]} " in *" bytes "*) show_bytes || status=1 ;; esac
case " ${parts[*]} " in *" speed "*) run_rounds && summarise ;; esac
exit $status
