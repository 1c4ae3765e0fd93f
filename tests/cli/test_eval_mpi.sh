# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# mics eval under an MPI launcher ($2...): the digits of one process, printed once, and errors once.
. "$(dirname "$0")/lib.sh"
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

run 0 train "$mics" train run.json --ranks 2
eval_both() { # NAME FLAGS...
    name=$1
    shift
    run 0 "$name.one" "$mics" eval out --json "$@"
    # shellcheck disable=SC2086
    run 0 "$name.many" $launch "$mics" eval out --json "$@"
    one_line "$name.many.out"
    contains "$name.many.out" '"ranks": 4'
    sed 's/"ranks": [0-9]*, //' "$name.one.out" >left.txt
    sed 's/"ranks": [0-9]*, //' "$name.many.out" | diff left.txt - || fail "$name: another loss"
}
launch=$*
eval_both whole --data text.txt
eval_both odd --data text.txt --sequence 7
head -c 40 text.txt >short.txt
eval_both short --data short.txt # fewer windows than ranks
# shellcheck disable=SC2086
run_name=nowhere
$launch "$mics" eval nowhere --data text.txt >nowhere.out 2>nowhere.err && fail "no checkpoint is no error"
[ "$(grep -c 'mics: error' nowhere.err)" = 1 ] || fail "said by several ranks, or none"

# Another file at the same path on each node.
cat >elsewhere.sh <<'SH'
folder=$(mktemp -d "$PWD/node-XXXXXX") && cp text.txt "$folder" && echo $$ >>"$folder/text.txt" && cd "$folder" &&
    exec "$1" eval ../out --data text.txt
SH
run_name=elsewhere
# shellcheck disable=SC2086
$launch sh elsewhere.sh "$mics" >elsewhere.out 2>elsewhere.err && fail "other data on each node are no error"
contains elsewhere.err 'has other data'
[ "$(grep -c 'mics: error' elsewhere.err)" = 1 ] || fail "said by several ranks, or none"
