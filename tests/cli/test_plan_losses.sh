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
says() { # FILE PATTERN, which lines may cut
    tr '\n' ' ' <"$1" | grep -qE "$2" || fail "$1 does not say: $2"
}
says usual.out '^.* Failures and checkpoints take [0-9.]+ % of the time \([0-9.]+ to [0-9.]+\) on 4 nodes: 0.00512 failures a node and'
says usual.out 'day \(published\), one in [0-9.]+ days, and a save every [0-9.]+ (s|min|h) \(run.checkpoint_every [0-9]+\)\.'
grep -q "Spot" usual.out && fail "spot nodes that nobody asked for"

# What is given has no range, and 0 is none.
plan given --failures-per-node-day 2
says given.out "on 4 nodes: 2 failures a node and day \(given\), one in 3.00 h,"
grep -qE "take [0-9.]+ % of the time on 4 nodes" given.out || fail "a range of what is given"
plan none --failures-per-node-day 0 --tokens 1e9
contains none.out "Failures and checkpoints take 0 % of the time on 4 nodes: 0 failures a node and day (given)."
plan often --failures-per-node-day 2 --tokens 1e9
[ "$(sed '/^Failures/,$d' none.out)" = "$(sed '/^Failures/,$d' often.out)" ] && fail "failures cost neither time nor money"
plan slow --failures-per-node-day 2 --checkpoint-bandwidth 0.001 --restart-seconds 0
sed -n "/^Failures/,+1p" given.out >fast.txt
sed -n "/^Failures/,+1p" slow.out | cmp -s - fast.txt && fail "the disk's bandwidth does not count"

# The run file's own interval, and copies in node memory.
plan own --set run.checkpoint_every=100000
contains own.out "The run file's run.checkpoint_every 100000 is every "
plan memory --set run.memory_checkpoint_every=10
contains memory.out "(run.memory_checkpoint_every "

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
says file.out "2 failures a node and day \(given\)"
contains file.out "Spot nodes at \$7 an hour, 0.5 preemptions a node and day"
