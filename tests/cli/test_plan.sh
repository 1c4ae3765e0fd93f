# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# mics plan: what it prints for people and for machines, its sweeps and pictures, what it refuses, and
# "sharding": "auto". Run files for planning name data that does not exist.
. "$(dirname "$0")/lib.sh"
# Under sanitizers: each kind of plan once. In `make test` few clusters: neither the catalogue nor all sizes of one.
once() { [ "${MICS_TEST_PLAN:-}" = once ]; }
few() { [ "${MICS_TEST_PLAN:-}" = few ] || once; }

cat >bert.json <<'END'
{"model_type": "gpt2", "n_layer": 24, "n_head": 16, "n_embd": 2048, "n_positions": 512, "vocab_size": 32008}
END
cat >plan.json <<'END'
{"model": {"config": "bert.json"}, "data": {"train": ["nowhere.bin"]}, "run": {"steps": 1}, "train_batch_size": 1024}
END

# ---- tables ----
run 0 text "$mics" plan plan.json --cluster p4d.24xlarge:4 --top 3
for word in "1.275 billion parameters" "4 nodes of p4d.24xlarge: 32 ranks" ddp zero1 zero2 zero3 mics mics+ hpz megatron \
    "limited by" "slower:" "Memory of a rank" "6 FLOPs a token"; do
    contains text.out "$word"
done
run 0 again "$mics" plan plan.json --cluster p4d.24xlarge:4 --top 3
cmp text.out again.out || fail "two plans of the same differ"

# Tables have at most 120 columns, and with --wide every figure; the answer is a sentence.
narrow() { # FILE
    tail -n +2 "$1" | awk 'length($0) > 120 { print; exit 1 }' || fail "a line of more than 120 columns in $1"
}
narrow text.out
sed 's/"n_embd": 2048/"n_embd": 4096/' bert.json >tight.json
run 0 tight "$mics" plan plan.json --cluster p4d.24xlarge:4 --top 1 --set model.config=tight.json
narrow tight.out
grep -qE '^ddp .* does not fit$' tight.out || fail "ddp fits, or nobody says that it does not"
run 0 wide "$mics" plan plan.json --cluster p4d.24xlarge:4 --top 3 --wide
contains wide.out "2nd hop"
contains wide.out "TFLOP/s"

# ---- the answer, and what it costs ----
first() { # FILE: the sentence, whose other lines are indented
    awk 'NR > 1 && !/^  / { exit } { sub(/^ +/, ""); printf "%s%s", (NR > 1 ? " " : ""), $0 } END { print "" }' "$1"
}
first text.out | grep -qE '^Take .*: [0-9.]+ m?s \([0-9.]+ to [0-9.]+\) a step, .* for 1e9 tokens, .* to spare' ||
    fail "no answer first: $(first text.out)"
contains text.out "Its kind is A100 bf16 data: plans of"
says() { # FILE WORDS, which lines may cut
    tr '\n' ' ' <"$1" | grep -qF -- "$2" || fail "$1 does not say: $2"
}
run 0 whole "$mics" plan plan.json --cluster p4d.24xlarge:4 --top 1 --tokens 300e9 --days 1
first whole.out | grep -qE ' days \(.* and \$[0-9,]+ \(.* for 300B tokens' || fail "no days and dollars: $(first whole.out)"
contains whole.out "It does not meet 24.0 h."
run 0 few "$mics" plan plan.json --cluster p6-b200.48xlarge:4 --top 1
says few.out "Few are of this kind: the range is wider."
run 0 money "$mics" plan plan.json --cluster p4d.24xlarge:4 --top 1 --budget 1000
first money.out | grep -qE 'and \$1,000 for [0-9.]+B \([0-9.]+B to [0-9.]+B\) tokens' || fail "no range of tokens: $(first money.out)"

# Of two limits the one that is not met.
one_of_two() {
    run 0 missed "$mics" plan plan.json --cluster p4d.24xlarge:4 --top 1 --tokens 300e9 --days 300 --budget 100
    contains missed.out "It does not meet \$100."
    run 0 missed "$mics" plan plan.json --cluster p4d.24xlarge:4 --top 1 --tokens 300e9 --days 1 --budget 100
    contains missed.out "It does not meet 24.0 h or \$100."
}
once || one_of_two
run 0 most "$mics" plan plan.json --cluster p4d.24xlarge:4 --top 1 --tokens 1e18 --days 1e18 --budget 1e18 --json
grep -qE 'nan|inf[,}]' most.out && fail "a number that is no JSON"

run 0 few "$mics" plan plan.json --cluster p4d.24xlarge:2 --top 1 --tokens 300
one_line few.err
contains few.err "warning: --tokens 300 is that many tokens; billions are 300B"

# A price that nobody knows is within no budget.
run 0 unpriced "$mics" plan plan.json --cluster selene:2 --top 1 --tokens 1e9 --budget 1000
contains unpriced.out "It does not meet \$1,000: no such price is known."
run 0 unpriced "$mics" plan plan.json --cluster selene:2 --top 1 --tokens 1e9 --budget 1000 --json
contains unpriced.out '"usd": null, "meets_goal": false'

# A config.json alone; several clusters.
cat >lonely.json <<'END'
{"name": "lonely", "accelerator": {"memory_gib": 32, "tflops_fp32": 10, "tflops_fp8": 90, "memory_gb_per_s": 500},
 "tiers": {"node": {"fan_out": 4, "gb_per_s": 20}}}
END
run 0 bare "$mics" plan bert.json --cluster p4d.24xlarge:4 --top 1
contains bare.out "8192 sequences of 512 tokens a step" # 4 Mi tokens
run 0 raised "$mics" plan bert.json --cluster p4d.24xlarge:3 --top 1
contains raised.out "x 24 ranks = 8208 sequences"
contains raised.out "would be 8192 sequences: raised to what 24 ranks can share evenly"
[ -s bare.err ] && fail "a config.json is planned with words on standard error"
# A family that cannot be trained: planned by its shapes, and the plan says so.
cat >phimoe.json <<'END'
{"model_type": "phimoe", "hidden_size": 1024, "intermediate_size": 3584, "num_attention_heads": 16, "num_key_value_heads": 4,
 "num_hidden_layers": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000}
END
run 0 shapes "$mics" plan phimoe.json --cluster p5.48xlarge:1 --top 1
contains shapes.out "cannot train model_type phimoe yet"
contains shapes.out "each layer's 8 experts are gathered like other parameters, or where a row says E, tokens travel:"
first shapes.out | grep -q "^mics cannot run this (model_type phimoe is planned by its shapes). As planned:" || fail "advice to take what cannot be trained"
says shapes.out "Its kind is H100 bf16 experts: plans of its 1 row were"
run 0 untrainable "$mics" plan phimoe.json --cluster p5.48xlarge:1 --top 1 --json
contains untrainable.out '"trainable": false'
contains untrainable.out '"kind": "H100 bf16 experts", "kind_rows": 1'
narrow shapes.out
# Paths are as long as they are; a family that nobody knows is taken for a decoder, with a warning.
mkdir -p a/folder/whose/name/is/long/so/that/the/line/of/the/model/has/more/columns/than/a/table
sed 's/phimoe/novel/' phimoe.json >a/folder/whose/name/is/long/so/that/the/line/of/the/model/has/more/columns/than/a/table/novel.json
run 0 novel "$mics" plan a/folder/whose/name/is/long/so/that/the/line/of/the/model/has/more/columns/than/a/table/novel.json \
    --cluster p5.48xlarge:1 --top 1
narrow novel.out
one_line novel.err
contains novel.err "model_type: novel is not known, and taken for a decoder with causal attention, no learned positions, gated"
contains novel.err "of 3584 or 8 experts, and an LM head of its own"
sed 's/"model_type": "phimoe", //' phimoe.json >typeless.json
# Where nothing of the family fits, the rival that does is named: in one answer, of several clusters and of a sweep.
cat >broad.json <<'END'
{"model_type": "phi3", "hidden_size": 24576, "intermediate_size": 106496, "num_attention_heads": 192, "num_key_value_heads": 8,
 "num_hidden_layers": 16, "vocab_size": 32000, "hidden_act": "silu"}
END
run 2 broad "$mics" plan broad.json --cluster p5.48xlarge:8
contains broad.err "; megatron t8"
run 0 broad "$mics" plan broad.json --cluster p5.48xlarge:8 --cluster p6-b300.48xlarge:8
narrow broad.out
says broad.out "nothing fits: zero3, S = 8 lacks the least"
contains broad.out "; megatron t8"
run 0 broad "$mics" plan broad.json --cluster p5.48xlarge --sweep nodes=8,16
narrow broad.out
contains broad.out "; megatron t8"
# Ranks may keep different experts.
sed 's/phimoe/mixtral/' phimoe.json >mixtral.json
cat >cpus.json <<'END'
{"name": "cpus", "pipelined": false, "rings": 1, "accelerator": {"memory_gib": 64, "tflops_fp32": 0.5, "memory_gb_per_s": 20},
 "tiers": {"node": {"fan_out": 2, "gb_per_s": 1}, "network": {"gbit_per_s": 1}}}
END
run 0 spread "$mics" plan mixtral.json --cluster cpus.json:2 --top 3 --set data.sequence_length=16 --set train_batch_size=4
first spread.out | grep -q ', E = 4' || fail "E = 4 should be best: $(first spread.out)"
contains spread.out "or where a row says E, tokens travel"
contains spread.out "4|4|4 E4"
contains spread.out "tokens travel to experts on 4 ranks"
run 0 spread_json "$mics" plan mixtral.json --cluster cpus.json:2 --set data.sequence_length=16 --set train_batch_size=4 --json
contains spread_json.out '"experts": 4'
contains spread_json.out '"exposed_all_to_all_ms": '
narrow spread.out
run 0 several "$mics" plan bert.json --cluster p4d.24xlarge:4 --cluster p5.48xlarge:2 --tokens 1e12
first several.out | grep -qE '^(p4d.24xlarge:4|p5.48xlarge:2)\. Take ' || fail "no cluster is chosen: $(first several.out)"
[ "$(grep -cE '^[* ]  p(4d|5)' several.out)" = 2 ] || fail "two clusters should be two rows"
run 0 offers "$mics" plan bert.json --cluster p4d.24xlarge --tokens 1e12 --days 30 --json
[ "$(grep -c '"cluster": "p4d.24xlarge"' offers.out)" = 7 ] || fail "1 to 64 nodes should be seven offers"
contains offers.out '"pareto": true'
contains offers.out '"choice": {"name": "'
for key in params grads optimizer micro_batch accumulation layered_micro_steps recompute prefetch gather reduce pipeline \
    global_batch batch_asked spare_bytes; do
    contains offers.out "\"$key\": "
done
narrow several.out
run 0 grown "$mics" plan bert.json --cluster p4d.24xlarge:3 --cluster p4d.24xlarge:4 --tokens 1e12 --days 1
narrow grown.out
grep -qE '^[* ] !p4d.24xlarge:3 .* 8208\+ ' grown.out || fail "no sign at the raised batch, or at the missed goal"
grep -qE '^[* ] !p4d.24xlarge:4 .* 8192  ' grown.out || fail "a sign at a batch that was not raised"
contains grown.out "+: raised from 8192 sequences"
run 0 spread "$mics" plan bert.json --cluster p4d.24xlarge:3 --cluster p4d.24xlarge:4 --wide --pipeline 7
contains spread.out "to spare"
contains spread.out "p4d.24xlarge:3: megatron: no cut into 7 pipeline stages"
sizes=p4d.24xlarge
few && sizes=p4d.24xlarge:4
run 0 front "$mics" plan bert.json --cluster $sizes --cluster p5.48xlarge:2 --tokens 1e12 --days 30 --svg front.svg
contains front.svg "bert: time and price"
[ "$(grep -c '<circle' front.svg)" = "$(grep -c '^\*[ x][ !]' front.out)" ] || fail "the picture's front is not the table's"
run 0 hours "$mics" plan bert.json --cluster p4d.24xlarge:1 --cluster p5.48xlarge:2 --svg hours.svg
contains hours.svg "1B tokens; typical times; prices of 20"
grep -qE ">(hours|minutes)<" hours.svg || fail "no unit at the axis of time"
run 2 priceless "$mics" plan bert.json --cluster selene:1 --cluster selene:2 --svg none.svg
contains priceless.err "no price is known of any of these clusters"
run 0 tokens "$mics" plan bert.json --cluster p4d.24xlarge:4 --cluster p5.48xlarge:2 --budget 1000
narrow tokens.out
grep -qE '^   cluster .* a step +tokens +time +USD +$' tokens.out || fail "no column of tokens"
grep -qE '^[* ]  p5.48xlarge:2 .* [0-9.]+B +[0-9.]+ (h|days) +1,000 +~? *$' tokens.out || fail "no tokens for a budget"
# What one of them cannot do is a note; where none can it is an error.
run 0 noted "$mics" plan bert.json --cluster p5.48xlarge:1 --cluster p4d.24xlarge:2 --cluster lonely.json:2 --precision fp8
first noted.out | grep -q '^p5.48xlarge:1\. mics cannot run this (GEMMs in fp8 can be planned, not trained)\. ' || fail "a cluster without fp8 stops the others: $(first noted.out)"
contains noted.out "A100-SXM4-40GB has no tflops_fp8"
contains noted.out "the cluster has fewer than 2 nodes"
run 2 none "$mics" plan bert.json --cluster p4d.24xlarge:1 --cluster p4d.24xlarge:2 --precision fp8
contains none.err "no cluster can be planned; p4d.24xlarge:1: A100-SXM4-40GB has no tflops_fp8"
run 2 none "$mics" plan bert.json --cluster p5.48xlarge:1 --cluster p4d.24xlarg:2
contains none.err "did you mean p4d.24xlarge"
run 0 list "$mics" plan --list
run 0 machines "$mics" plan --list --json
[ "$(grep -c '{"name": ' machines.out)" = "$(($(wc -l <list.out) - 2))" ] || fail "--list and --list --json differ"
contains machines.out '{"name": "p4d.24xlarge", "gpus_per_node": 8, "gpu": "A100-SXM4-40GB", "gbit_per_s_per_node": 400, "cannot_run": null, "prices": [{"kind": "on-demand", "usd_per_node_hour": '
contains machines.out '"prices": []}'
contains machines.out '"cannot_run": "an AMD GPU'
run 0 eight "$mics" plan plan.json --cluster p5.48xlarge:4 --top 1 --precision fp8
contains eight.out "GEMMs in fp8"
says eight.out "Its kind is H100 fp8 data: plans of its 9 rows were"
run 0 theirs "$mics" plan plan.json --cluster p5.48xlarge:4 --top 1 --software hf-2023 --tokens 1B
contains theirs.out "rows of other systems and the run file's: as hf-2023 runs them"
contains theirs.out " for 1B tokens"
says theirs.out " min ("
contains list.out "p5.48xlarge"

# ---- what mics cannot run is no advice ----
run 0 amd "$mics" plan plan.json --cluster nd-mi300x-v5:2 --top 1 --tokens 1e9
first amd.out | grep -q '^mics cannot run this (MI300X-192GB is an AMD GPU' || fail "advice to rent AMD GPUs: $(first amd.out)"
grep -q Take amd.out && fail "advice to rent AMD GPUs"
run 0 amd "$mics" plan plan.json --cluster nd-mi300x-v5:2 --top 1 --json
contains amd.out '"cannot_run": "MI300X-192GB is an AMD GPU'
run 0 mixed "$mics" plan plan.json --cluster nd-mi300x-v5:2 --cluster p3dn.24xlarge:2 --cluster p5.48xlarge:2 --svg mixed.svg
first mixed.out | grep -q '^p5.48xlarge:2\. Take ' || fail "no advice to rent what mics runs on"
[ "$(grep -cE '^ x[! ](Standard_ND96isr_MI300X_v5|p3dn.24xlarge):2 ' mixed.out)" = 2 ] || fail "no sign at what mics cannot run"
grep -q MI300X mixed.svg && fail "drawn though mics cannot run it"

# ---- kinds of prices, their months, and how old they are ----
export SOURCE_DATE_EPOCH=1796000000 # 2026-11-30
run 0 prices "$mics" plan --list
grep -qE '^p5e.48xlarge .* 39.80 reserved 2026-05$' prices.out || fail "p5e is not reserved, or its price not of 2026-05"
grep -qE '^p5en.48xlarge .* 63.30 on-demand 2026-08, 27.20 spot 2026-08$' prices.out || fail "no price of spot nodes"
grep -qE '^runpod-h100-8 .* 0.1 .* 31.92 on-demand 2026-11, 21.52 marketplace 2026-11$' prices.out || fail "no marketplace"
grep -qE '^p6-b200.48xlarge .* 113.93 on-demand 2025-12 ~$' prices.out || fail "no sign at an old price"
cat >priced.json <<'END'
{"base": "p4d.24xlarge", "usd_per_node_hour": {"value": 20, "date": "2026-06"}, "marketplace_usd_per_node_hour": 10}
END
usd() { # FLAGS...
    run 0 usd "$mics" plan plan.json --cluster priced.json:2 --top 1 --tokens 1e9 --json "$@"
    sed -n 's/.*"usd": {"typical": \([0-9]*\).*/\1/p' usd.out
}
usd >/dev/null
contains usd.out '"price": "on-demand", "price_date": "2026-06"'
usd --price marketplace >/dev/null
contains usd.out '"price": "marketplace", "price_date": null'
run 0 usd "$mics" plan plan.json --cluster priced.json:2 --top 1
contains usd.out "The price is on-demand, as of 2026-06."
SOURCE_DATE_EPOCH=1799000000 run 0 usd "$mics" plan plan.json --cluster priced.json:2 --top 1 # 2027-01
contains usd.out "The price is on-demand, as of 2026-06: older than six months."
run 0 usd "$mics" plan plan.json --cluster priced.json:2 --top 1 --price reserved
grep -q "The price is" usd.out && fail "a price that is not known"
unset SOURCE_DATE_EPOCH

# ---- the catalogue in one table ----
machines=$(($(wc -l <list.out) - 2))
few || {
    run 0 all "$mics" plan plan.json --cluster all:2 --tokens 300e9 --days 30
    narrow all.out
    [ "$(grep -cE '^[* ][x ][! ][A-Za-z0-9_.-]+:2 ' all.out)" = "$machines" ] || fail "not all of the catalogue"
    contains all.out "~: a price older than six months"
}
once || {
    run 0 two_json "$mics" plan plan.json --cluster p4d.24xlarge:2 --cluster p5.48xlarge:2 --tokens 300e9 --days 30 --json
    run 0 one_json "$mics" plan plan.json --cluster p5.48xlarge:2 --tokens 300e9 --days 30 --json
    run 0 sweep_json "$mics" plan plan.json --cluster p5.48xlarge --sweep nodes=2 --json
    steps() { sed -n "s/.*$2.*\"step_s\": {\"typical\": \([0-9.e-]*\),.*/\1/p" "$1" | head -1; }
    [ -n "$(steps two_json.out p5.48xlarge)" ] || fail "no time of p5"
    [ "$(steps two_json.out p5.48xlarge)" = "$(steps one_json.out p5.48xlarge)" ] || fail "the table is not the plan"
    [ "$(steps sweep_json.out '"plan"')" = "$(steps one_json.out p5.48xlarge)" ] || fail "the sweep is not the plan"
}
few || {
    # Also where host memory holds activations of the best plan.
    hosted="$golden/../../bench/plan/configs/bert-10b.json --cluster g5.48xlarge"
    run 0 one_json "$mics" plan ${hosted}:8 --set train_batch_size=8192 --top 1 --json
    run 0 sweep_json "$mics" plan $hosted --set train_batch_size=8192 --sweep nodes=8 --json
    contains one_json.out '"offload_units": '
    [ "$(steps sweep_json.out '"plan"')" = "$(steps one_json.out g5.48xlarge)" ] || fail "the sweep is not the plan"
}
once || {
    run 0 short "$mics" plan plan.json --cluster all:2 --planning-seconds 0.000001
    [ "$(grep -c 'the time for planning was over' short.out)" = "$((machines - 1))" ] || fail "planned without time"
}
few || {
    run 0 sizes "$mics" plan plan.json --cluster all --tokens 300e9 --days 10 --top 1 --planning-seconds 0.000001
    [ "$(grep -cE '^[* ][x ][! ][A-Za-z0-9_.-]+:[0-9]+ ' sizes.out)" = "$machines" ] || fail "not one size of each"
}

# ---- JSON ----
run 0 json "$mics" plan plan.json --cluster P4D.24xlarge:4 --json
for key in answer plans baselines ddp zero1 zero2 zero3 mics mics+ hpz megatron params grads optimizer micro_batch accumulation \
    recompute fits memory_bytes step_ms exposed_comm_ms tflops_per_gpu mfu tokens_per_s usd_per_gtoken why; do
    contains json.out "\"$key\":"
done
grep -qE 'nan|inf[,}]' json.out && fail "a number that is no JSON"

# A price that nobody knows, fp32, and the run file's own sharding.
run 0 free "$mics" plan plan.json --cluster selene:2 --json --precision tf32 \
    --set 'sharding={"params": 8, "grads": 8, "optimizer": 16}' --set train_micro_batch_size_per_gpu=4
contains free.out '"usd_per_gtoken": null'
contains free.out '"math": "tf32"'
contains free.out '"run_file": {"name": "mics+(8)"'

# Numbers are the run file's where it names them, unless --precision does.
numbers() { # MATH ARGUMENTS...
    numbers_math=$1
    shift
    run 0 numbers "$mics" plan plan.json --cluster p4d.24xlarge:2 --json --top 1 "$@"
    contains numbers.out "\"math\": \"$numbers_math\""
}
all_numbers() {
    numbers bf16
    numbers fp32 --set run.precision=fp32
    numbers fp32 --set bf16.enabled=false
    numbers fp32 --set run.device=cpu
    numbers tf32 --set run.precision=fp32 --precision tf32
    numbers bf16 --set run.precision=fp32 --precision auto
}
once || all_numbers
numbers fp16 --set fp16.enabled=true

# ---- cluster files ----
cat >cluster.json <<'END'
{"name": "mine", "nodes": 2, "accelerator": {"memory_gib": 8, "tflops_fp32": 10, "memory_gb_per_s": 500},
 "tiers": {"node": {"fan_out": 4, "gb_per_s": 20}, "network": {"gbit_per_s": 10}}}
END
run 0 file "$mics" plan plan.json --cluster cluster.json
contains file.out "2 nodes of mine: 8 ranks"
run 0 nodes "$mics" plan plan.json --cluster cluster.json:4
contains nodes.out "4 nodes of mine: 16 ranks"

# ---- GPUs: the memory of a run there, to the byte; its schedule is explained where there is none ----
explained() { # FLAGS...: run.device and its bytes, as mics explain has them without a GPU
    run 0 explained "$mics" explain plan.json --ranks 16 --nodes 2 --json --set train_micro_batch_size_per_gpu=4 \
        --set run.prefetch=1 --set run.memory_limit=40802189312 "$@" # what p4d's cards have for a run
    bytes=$(sed -n 's/.*"memory_bytes": {.*"total": \([0-9]*\)}.*/\1/p' explained.out)
    [ -n "$bytes" ] || fail "no memory is explained"
}
every="1,1,1 1,1,16 1,8,8 2,4,8 8,8,16 16,16,16"
once && every=2,4,8
for degrees in $every; do
    sharding="sharding={\"params\": ${degrees%%,*}, \"grads\": $(echo $degrees | cut -d, -f2), \"optimizer\": ${degrees##*,}}"
    for precision in bf16 fp32; do
        explained --set run.device=cuda --set "$sharding" --set run.precision=$precision
        contains explained.out '"device": {"name": "cuda", "precision": "'$precision'"'
        run 0 planned "$mics" plan plan.json --cluster p4d.24xlarge:2 --json --top 1 --set "$sharding" \
            --set train_micro_batch_size_per_gpu=4 --set run.prefetch=1 --set run.precision=$precision
        grep '"run_file"' planned.out >planned_file.txt
        contains planned_file.txt "\"memory_bytes\": $bytes,"
    done
done
cuda=$bytes
explained --set "$sharding" # run.device "auto"
contains explained.out '"device": {"name": "cpu", "precision": "fp32", "why": "run.device is \"auto\", and no GPU can be used here: '
[ "$bytes" != "$cuda" ] || fail "a GPU's memory is the CPU's"
run 0 processor "$mics" plan plan.json --cluster p4d.24xlarge:2 --json --top 1 --set "$sharding" --set run.device=cpu \
    --set train_micro_batch_size_per_gpu=4 --set run.prefetch=1 --set run.threads=1
explained --set "$sharding" --set run.threads=1
grep '"run_file"' processor.out >planned_file.txt
contains planned_file.txt "\"memory_bytes\": $bytes,"
run 0 gpu "$mics" explain plan.json --ranks 16 --nodes 2 --set run.device=cuda --set train_micro_batch_size_per_gpu=1
contains gpu.err '"sharding": "auto": no GPU here says what memory a rank may have'
contains gpu.out "there is no GPU here that says what a rank may use"
contains gpu.out 'cuda, bf16 with fp32 masters; run.device is "cuda", though none can be used here: '
run 0 gpu "$mics" explain plan.json --ranks 16 --nodes 2 --set run.device=cuda --set train_micro_batch_size_per_gpu=1 \
    --set run.cluster=p4d.24xlarge
contains gpu.err '"sharding": "auto" for p4d.24xlarge: zero1'
# What a rank may have is known, and less than a card of the cluster has: that counts.
run 0 gpu "$mics" explain plan.json --ranks 16 --nodes 2 --set run.device=cuda --set train_micro_batch_size_per_gpu=1 \
    --set run.cluster=p4d.24xlarge --set run.memory_limit=6442450944
contains gpu.err '"sharding": "auto" for p4d.24xlarge: '
contains gpu.out "fits: a rank may use 6.00 GiB (run.memory_limit)"
run 2 gpu "$mics" train plan.json --set run.device=cuda --out nothing
one_line gpu.err

# ---- sweeps ----
run 0 sweep "$mics" plan plan.json --cluster p4d.24xlarge --sweep nodes=1..6 --svg curve.svg
[ "$(grep -cE '^ +[0-9]+ +[0-9]+ ' sweep.out)" = 4 ] || fail "1, 2, 4 and 6 nodes should be four rows"
grep -qE '^ +6 +48 .*[0-9] x [0-9]' sweep.out || fail "1024 sequences on 48 ranks have no plan" # some rows count nothing
narrow sweep.out
run 0 sweep_wide "$mics" plan plan.json --cluster p4d.24xlarge --sweep nodes=1,2 --wide --tensor 3
contains sweep_wide.out "zero1"
[ "$(grep -c "no cut into 3 tensor-parallel ranks" sweep_wide.out)" = 1 ] || fail "a dash without a reason, or with many"
# A goal: days and price of each point, and which miss it.
run 0 cost "$mics" plan plan.json --cluster p4d.24xlarge --sweep nodes=1,4 --tokens 300e9 --days 10
narrow cost.out
grep -qE '^nodes .* time +USD ' cost.out || fail "no days and dollars in a sweep"
grep -qE '^ +1 +8 .*[0-9]!' cost.out || fail "no sign that one node misses the goal"
grep -qE '^ +4 +32 .*!' cost.out && fail "four nodes meet the goal"
run 0 cost "$mics" plan plan.json --cluster p4d.24xlarge --sweep nodes=1,4 --tokens 300e9 --days 10 --json
[ "$(grep -c '"days": {"typical": .*"meets_goal": ' cost.out)" = 2 ] || fail "a sweep's JSON has no days"
contains curve.svg "</svg>"
contains curve.svg "best plan"
run 0 list "$mics" plan plan.json --cluster p4d.24xlarge --sweep nodes=2,4 --json
contains list.out '"size": 4'
run 0 params "$mics" plan plan.json --cluster p4d.24xlarge:2 --sweep P --svg params.svg
contains params.svg "sharded over"
[ "$(grep -cE '^ +[0-9]+ +16 ' params.out)" = 5 ] || fail "P = 1, 2, 4, 8 and 16 should be five rows"

# ---- what is refused: one line, status 2, nothing on standard output ----
refused() { # TEXT ARGUMENTS...
    refused_text=$1
    shift
    run 2 refused "$mics" plan "$@"
    one_line refused.err
    [ -s refused.out ] && fail "printed although refused: $*"
    contains refused.err "$refused_text"
}
refused "typeless.json: model_type: missing from a model's configuration" typeless.json --cluster p5.48xlarge:1
refused "--list prints the whole catalogue; remove H100" --list H100
refused "needs --cluster" plan.json
refused "--cluster all does not say how many nodes; write all:8" plan.json --cluster all --tokens 1e9
refused "--price cheap is not known; on-demand, reserved and marketplace are" plan.json --cluster p4d.24xlarge:2 --price cheap
refused "spot nodes stand beside them" plan.json --cluster p4d.24xlarge:2 --price spot
refused "of one cluster" plan.json --cluster p4d.24xlarge:4 --cluster p4d.24xlarge:8 --sweep P
refused "missing: RUN.json" --cluster p4d.24xlarge:8
refused "p4d.24xlarge" plan.json --cluster p4d.24xlarg:8
refused "does not say how many nodes" plan.json --cluster p4d.24xlarge
refused "p4d.24xlarge:0" plan.json --cluster p4d.24xlarge:0
refused "a number of nodes" plan.json --cluster p4d.24xlarge:x
refused "a number of nodes" plan.json --cluster p4d.24xlarge:
refused "a number of nodes" plan.json --cluster p4d.24xlarge:-2
refused "nowhere.json" plan.json --cluster nowhere.json:2
refused "--precision fp6 is not known" plan.json --cluster p4d.24xlarge:4 --precision fp6
refused "--software hf is not known; mics, torchtitan-2024" plan.json --cluster p5.48xlarge:4 --software hf
refused "A100-SXM4-40GB has no tflops_fp8" plan.json --cluster p4d.24xlarge:4 --precision fp8
refused "has 512 positions" plan.json --cluster p4d.24xlarge:4 --set data.sequence_length=513
refused "has 512 positions" plan.json --cluster p4d.24xlarge --sweep nodes=1,2 --set data.sequence_length=513
for sweep in nodes nodes= nodes=0 nodes=1.. nodes=4..2 nodes=2,2 nodes=1,x nodes=-1 nodes=99999999 P8 p; do
    refused "powers of two" plan.json --cluster p4d.24xlarge:4 --sweep "$sweep"
done
refused "--sweep P has no row of megatron" plan.json --cluster p4d.24xlarge:4 --sweep P --tensor 2
refused "--svg draws a sweep" plan.json --cluster p4d.24xlarge:4 --svg x.svg
refused "at least 1" plan.json --cluster p4d.24xlarge:4 --top 0
for limit in --days --budget; do
    refused "$limit 0: needs a number above 0 and at most 1000000000000000000" plan.json --cluster p4d.24xlarge:4 $limit 0
done
for goal in --tokens --days --budget; do
    refused "at most 1000000000000000000" plan.json --cluster p4d.24xlarge:4 $goal 1e300
done
run 2 disk "$mics" plan plan.json --cluster p4d.24xlarge --sweep nodes=1,2 --svg nowhere/x.svg
one_line disk.err
contains disk.err "nowhere/x.svg"

sed 's/"memory_gib": 8/"memory_gib": -8/' cluster.json >negative.json
sed 's/"gbit_per_s": 10//' cluster.json >missing.json
refused "negative.json" plan.json --cluster negative.json:2
refused "memory_gib" plan.json --cluster negative.json:2
refused "network" plan.json --cluster missing.json:2
echo '{"tiers": {' >cut_cluster.json
refused "cut_cluster.json" plan.json --cluster cut_cluster.json:2

# More sequences and ranks than numbers hold.
sed 's/"fan_out": 4/"fan_out": 1048576/' cluster.json >wide_cluster.json
many="--set train_batch_size=null --set train_micro_batch_size_per_gpu=1048576 --set gradient_accumulation_steps=1048576"
refused "global batch of" plan.json --cluster wide_cluster.json:8 $many
refused "fewer than 1048576 nodes" plan.json --cluster wide_cluster.json --sweep nodes=1048576 $many

# A model that fits nowhere, and how many nodes would do; one that no number of nodes holds.
sed 's/"n_layer": 24/"n_layer": 40/; s/"n_embd": 2048/"n_embd": 16384/' bert.json >huge.json
refused "such nodes would do" plan.json --cluster p4d.24xlarge:4 --set model.config=huge.json
contains refused.err "fits nowhere on 4 nodes of p4d.24xlarge"
sed 's/"n_embd": 2048/"n_embd": 60000/' bert.json >wide.json
refused "no number of such nodes would do" plan.json --cluster p3dn.24xlarge:4 --set model.config=wide.json
sed 's/"hidden_size": 1024/"hidden_size": 16384/; s/3584/65536/' phimoe.json >huge_phimoe.json
refused "fits nowhere on 1 node" huge_phimoe.json --cluster p4d.24xlarge:1
# Experts that mics would have to gather fit where they are spread.
sed 's/"hidden_size": 1024/"hidden_size": 8192/; s/3584/28672/; s/"num_local_experts": 8/"num_local_experts": 64/' \
    phimoe.json >many_experts.json
few || {
    refused "a step; mics cannot run it" many_experts.json --cluster p4d.24xlarge:64
    grep -q '; megatron t[0-9c]* p[0-9]* d[0-9]*e[0-9]* .*would take' refused.err || fail "no plan of spread experts"
}
refused "32 such nodes would do (with a batch of at least 256)" many_experts.json --cluster p5.48xlarge:4
refused "no point of the sweep" plan.json --cluster p4d.24xlarge --sweep nodes=1,2 --set model.config=huge.json

# ---- "sharding": "auto" ----
cat >pair.json <<'END'
{"name": "pair", "cores": 2, "accelerator": {"memory_gib": 4, "tflops_fp32": 0.1, "memory_gb_per_s": 10},
 "tiers": {"node": {"fan_out": 2, "gb_per_s": 5, "latency_us": 20}, "network": {"gbit_per_s": 1, "latency_us": 100}}}
END
auto="--ranks 4 --nodes 2 --steps 2 --set zero_optimization=null --set sharding=null"
run 0 auto "$mics" train run.json $auto --set run.cluster=pair.json --out auto
contains auto.err '"sharding": "auto" for pair.json: '
contains auto.err "limited by"
[ "$(grep -c '"auto"' auto.err)" = 1 ] || fail "what was chosen is said once"
run 0 smallest "$mics" train run.json $auto --out smallest
contains smallest.err '"sharding": "auto" for usual links (run.cluster names yours): ' 
run 0 explained "$mics" explain run.json --ranks 4 --nodes 2 --set zero_optimization=null --set sharding=null --set run.cluster=pair.json
contains explained.out "auto: planned for run.cluster"
run 2 other "$mics" train run.json $auto --set run.cluster=p4d.24xlarge --out other
contains other.err "has 8 ranks a node, and this run 2"
run 2 other "$mics" train run.json $auto --set run.cluster=pair.json:3 --out other
contains other.err "pair.json:3 is of 3 nodes, and this run has 2"
run 2 unknown "$mics" train run.json $auto --set run.cluster=nowhere --out other
contains unknown.err "nowhere"
# A colon in a path is no number of nodes.
sed 's/"cores": 2/"cores": 2, "nodes": 3/' pair.json >of:three.json
run 0 colon "$mics" train run.json $auto --set run.cluster=of:three.json --out colon
run 2 other "$mics" train run.json $auto --set run.cluster=of:three.json:3 --out other
contains other.err "is of 3 nodes, and this run has 2"

# What is null is not given.
cat >nulls.json <<'END'
{"model": {"config": "bert.json"}, "data": {"train": null}, "run": {"steps": null}, "max_steps": null,
 "num_train_epochs": null, "train_batch_size": 1024}
END
run 0 nulls "$mics" plan nulls.json --cluster p4d.24xlarge:4 --top 1
