# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# mics bench --for MODEL: a cluster file of one node, or of several, and what plans make of it. Times are tiny here, so
# figures are only plausible.
. "$(dirname "$0")/lib.sh"

measure() { # STATUS NAME ARGUMENTS...
    measure_status=$1
    measure_name=$2
    shift 2
    run "$measure_status" "$measure_name" "$mics" bench --minutes 0.002 --force "$@" # so short a time says little
}

planned() { # NAME CLUSTER ARGUMENTS...: the run file's own step, ms
    planned_name=$1
    planned_cluster=$2
    shift 2
    run 0 "$planned_name" "$mics" plan run.json --cluster "$planned_cluster" --json "$@"
    sed -n 's/^ *"run_file".*"step_ms": \([0-9.]*\),.*/\1/p' "$planned_name.out"
}

cat >offer.json <<'JSON'
{"name": "racks", "usd_per_node_hour": 12.5, "jitter": 0.02, "rings": 4,
 "accelerator": {"memory_gib": 4, "tflops_fp32": 1000, "memory_gb_per_s": 10000, "failures_per_day": 0.25,
                 "matmul_kept": 0.5, "step_low": 0.9, "step_high": 1.2},
 "tiers": {"node": {"fan_out": 2, "gb_per_s": 900}, "network": {"gbit_per_s": 0.05, "latency_us": 77}}}
JSON

# ---- one node of an offer: what is not measured stays, what is measured replaces it ----
measure 0 node --for run.json --ranks 2 --cluster offer.json --out node.json
contains node.out "node.json written"
contains node.out "intra-node: latency"
contains node.out "fastest GEMM"
for text in '"name": "node"' '"usd_per_node_hour": 12.5' '"jitter": 0.02' '"rings": 4' '"failures_per_day": 0.25' \
    '"latency_us": 77' '"gb_per_s": 0.00625' '"device": "cpu"' '"matmul_efficiency": [[' '"ramp": [[1024, ' \
    'network and prices as racks, not measured; links: mics bench, 20' ', model.json, 4 x 32 tokens'; do
    contains node.json "$text"
done
grep -q 'matmul_kept\|step_low\|"gb_per_s": 900' node.json && fail "rates of the offer stand where others were measured"
planned offer offer.json:2 >offer.ms
planned measured node.json:2 >measured.ms
[ "$(cat offer.ms)" != "$(cat measured.ms)" ] || fail "a plan takes no notice of what was measured"
contains measured.out '"note": "network and prices as racks, not measured; links: mics bench, 20'
run 0 text "$mics" plan run.json --cluster node.json:2
contains text.out "figures of node: network and prices as racks, not measured; links: mics bench, 20"
contains text.out "Times are from rates as the cluster file gives them."

# Twice the GEMMs' rate is a faster step, so it is the file's that counts.
sed 's/"matmul_efficiency": .*/"matmul_efficiency": 1e-6,/' node.json >slow.json
planned slow slow.json:2 >slow.ms
awk 'NR == FNR { fast = $1; next } { exit !($1 > 2 * fast) }' measured.ms slow.ms || fail "slow GEMMs make no slow step"

# ---- a config.json and its folder stand for a run ----
measure 0 bare --for model.json --set data.sequence_length=16 --out bare.json
contains bare.json ', model.json, 1 x 16 tokens'
contains bare.err "bare.json describes one node: measure on two (mpirun), or give the machine with --cluster"
mkdir folder
cp model.json folder/config.json
measure 0 folder --for folder --out folder.json
contains folder.json ', config.json, 1 x 32 tokens'
run 2 alone "$mics" plan run.json --cluster bare.json:2
contains alone.err 'add a tier "network"'

# ---- several nodes: the network is measured too ----
measure 0 nodes --for run.json --ranks 4 --nodes 2 --cluster offer.json --out nodes.json
contains nodes.out "inter-node: latency"
contains nodes.json "prices as racks, not measured; links: mics bench, 20"
contains nodes.json '"rings": 1'
grep -q '"latency_us": 77' nodes.json && fail "the offer's network stands where one was measured"

# ---- what is wrong ----
wrong() { # TEXT ARGUMENTS...: one line, exit status 2, and no file
    wrong_text=$1
    shift
    measure 2 wrong --out none.json "$@"
    one_line wrong.err
    grep -q '^mics: error: ' wrong.err || fail "no error line: $*"
    contains wrong.err "$wrong_text"
    [ ! -e none.json ] || fail "a file was written: $*"
}
wrong "--for is missing"
wrong "nowhere.json" --for nowhere.json
wrong "did you mean --minutes" --for run.json --minute 3
wrong "unknown cluster" --for run.json --ranks 2 --cluster p4d.24xlarg
wrong "describes GPUs, A100-SXM4-40GB, and these ranks compute on CPUs" --for run.json --ranks 8 --cluster p4d.24xlarge
wrong "nodes of 2 ranks, and these have 4" --for run.json --ranks 4 --cluster offer.json
wrong "run.stepz" --for run.json --set run.stepz=1
sed 's/"jitter"/"jiter"/' offer.json >key.json
wrong "unknown key; did you mean jitter?" --for run.json --ranks 2 --cluster key.json
sed 's/"device": "cpu"/"device": "tpu"/' node.json >device.json
wrong "accelerator.device: must be cpu or cuda, not tpu" --for run.json --ranks 2 --cluster device.json
run 2 cuda "$mics" plan run.json --cluster node.json:2 --set run.device=cuda
contains cuda.err "node.json:2 was measured on CPUs, and the plan is for GPUs (fp32, run.device cuda)"
sed 's/"device": "cpu"/"device": "cuda"/' node.json >gpu.json
run 2 cpu "$mics" plan run.json --cluster gpu.json:2 --set run.device=cpu
contains cpu.err "gpu.json:2 was measured on GPUs, and the plan is for CPUs (fp32, run.device cpu)"
exit 0
