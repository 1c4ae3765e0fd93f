# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# mics plan: what it says of failures, checkpoints and spot nodes, and which figures it refuses.
. "$(dirname "$0")/lib.sh"

cat >model.json <<'END'
{"model_type": "gpt2", "n_layer": 24, "n_head": 16, "n_embd": 2048, "n_positions": 512, "vocab_size": 32008}
END
plan() { # NAME FLAGS...
    name=$1
    shift
    run 0 "$name" "$mics" plan model.json --cluster p4d.24xlarge:4 --top 1 --set train_batch_size=1024 "$@"
}

plan usual
grep -qE '^Goodput [0-9.]+ % \([0-9.]+ to [0-9.]+\): a failure every [0-9.]+ days on 4 nodes \(published: ' usual.out ||
    fail "no goodput: $(sed -n 2p usual.out)"
grep -qE '^Saves every [0-9.]+ (s|min|h) \(run.checkpoint_every [0-9]+\) take [0-9.]+ %, restarts [0-9.]+ %, lost work' usual.out ||
    fail "no interval: $(sed -n 3p usual.out)"
contains usual.out "Goodput with copies in node memory: "
grep -q "Spot" usual.out && fail "spot nodes that nobody asked for"

# What is given has no range, and 0 is none.
plan given --failures-per-node-day 2
contains given.out "a failure every 3 h on 4 nodes (given: 2 a node and day)"
plan none --failures-per-node-day 0 --tokens 1e9
contains none.out "Goodput 100 %: no failures are expected."
plan often --failures-per-node-day 2 --tokens 1e9
[ "$(sed '/^Goodput/,$d' none.out)" = "$(sed '/^Goodput/,$d' often.out)" ] && fail "failures cost neither time nor money"
plan slow --failures-per-node-day 2 --checkpoint-bandwidth 0.001 --restart-seconds 0
sed -n "/^Goodput/,+2p" given.out >fast.txt
sed -n "/^Goodput/,+2p" slow.out | cmp -s - fast.txt && fail "the disk's bandwidth does not count"

# The run file's own interval, and copies in node memory.
plan own --set run.checkpoint_every=100000
contains own.out "The run file's run.checkpoint_every 100000 is every "
plan memory --set run.memory_checkpoint_every=10
contains memory.out "(run.memory_checkpoint_every "
contains memory.out "Goodput with checkpoints alone: "

# Spot nodes.
plan spot --spot-price 7
contains spot.out "Spot nodes at \$7 an hour; cheaper up to "
plan preempted --spot-price 7 --preemptions-per-node-day 0.1
contains preempted.out "0.1 preemptions a node and day: goodput "
tr '\n' ' ' <preempted.out | grep -q "Spot nodes .* with saves every .* (run.checkpoint_every [0-9]*), [0-9.]* % of the price" ||
    fail "no interval on spot nodes"
awk 'length($0) > 120 { print; exit 1 }' preempted.out || fail "a line of more than 120 columns"
plan dear --spot-price 70
contains dear.out "never cheaper"

# JSON.
plan json --spot-price 7 --json
for key in goodput simulated losses failures_per_node_day failures_source failure_hours checkpoint_bytes saving waiting behind \
    memory steps interval_s blocked_s write_s restart_s restarting redone file_goodput spot break_even_preemptions_per_node_day; do
    contains json.out "\"$key\":"
done
grep -qE 'nan|inf[,}]' json.out && fail "a number that is no JSON"
plan worst --failures-per-node-day 10000 --tokens 1e12 --json
grep -qE 'nan|inf[,}]' worst.out && fail "a number that is no JSON"

# What is refused.
refuse() { # SAID FLAGS...
    said=$1
    shift
    run 2 refused "$mics" plan model.json --cluster p4d.24xlarge:4 "$@"
    contains refused.err "$said"
}
refuse "--failures-per-node-day" --failures-per-node-day -1
refuse "--failures-per-node-day" --failures-per-node-day many
refuse "--checkpoint-bandwidth" --checkpoint-bandwidth 0
refuse "--restart-seconds" --restart-seconds 1e9
refuse "--spot-price" --spot-price -3
refuse "--preemptions-per-node-day" --preemptions-per-node-day 1e6
cat >cluster.json <<'END'
{"base": "p4d.24xlarge", "failures_per_node_day": -1}
END
run 2 refused "$mics" plan model.json --cluster cluster.json:4
contains refused.err "cluster.json:1: failures_per_node_day: must be 0 to 10000, not -1"
cat >cluster.json <<'END'
{"base": "p4d.24xlarge", "failures_per_node_day": 2, "restart_s": 60, "checkpoint_gb_per_s": 0.5, "host_gb_per_s": 10,
 "spot_usd_per_node_hour": 7, "preemptions_per_node_day": 0.5, "preemption_notice_s": 30}
END
run 0 file "$mics" plan model.json --cluster cluster.json:4 --top 1
contains file.out "(given: 2 a node and day)"
contains file.out "Spot nodes at \$7 an hour, 0.5 preemptions a node and day"
