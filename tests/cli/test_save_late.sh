# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# A disk ($2, preloaded) that brings the name of one rank's file to disk long after rank 0 has found the file, and one that
# loses a file which its rank has written.
. "$(dirname "$0")/lib.sh"
slow=$2
train() { # OUT VARIABLE=VALUE FLAGS...: with that disk
    out=$1 disk=$2
    shift 2
    env LD_PRELOAD="$slow" MICS_TEST_FILE=step-00000010/rank-00002.safetensors "$disk" timeout -s KILL 60 \
        "$mics" train run.json --ranks 4 --nodes 2 --steps 30 --set run.checkpoint_every=10 --set run.log_every=1 \
        --set run.validation_batches=0 --set run.keep_checkpoints=0 --out "$out" "$@"
}
run 0 straight "$mics" train run.json --ranks 4 --nodes 2 --steps 30 --set run.checkpoint_every=10 \
    --set run.validation_batches=0 --set run.keep_checkpoints=0 --out straight

# Rank 0 has committed step 10 while rank 2 is not done with it: its part of step 20 comes all the same.
run 0 late train late MICS_TEST_FOLDER_S=3
same_losses late straight
for step in 10 20 30; do
    same_weights straight/checkpoints/step-000000$step late/checkpoints/step-000000$step
done

# All ranks have said that they have written, so nothing comes any more: the save fails soon, by name, and training goes on.
run 0 lost train lost MICS_TEST_LOSES=1 --set run.comm_timeout_s=1
contains lost.err "step-00000010/rank-00002.safetensors: rank 2 has written it, but rank 0 does not find it"
contains lost.err "step 10 could not be saved; training goes on"
same_losses lost straight
[ -e lost/checkpoints/step-00000010 ] && fail "something is left of step 10"
same_weights straight/checkpoints/step-00000030 lost/checkpoints/step-00000030
