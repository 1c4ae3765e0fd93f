# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Stopping and going on gives the bits of a run that never stopped.
. "$(dirname "$0")/lib.sh"

mkdir whole parts signal
for folder in whole parts signal; do
    cp model.json text.txt run.json $folder
done
train() { # FOLDER FLAGS...
    folder=$1
    shift
    (cd "$folder" && exec "$mics" train run.json --ranks 4 --nodes 2 "$@")
}

run 0 whole train whole
run 0 first train parts --steps 3
run 0 second train parts
contains second.out "resumed from out/checkpoints/step-00000003"
same_losses whole/out parts/out
same_weights whole/out/checkpoints/step-00000008 parts/out/checkpoints/step-00000008

# A signal: the step is finished and saved, one line says so, and the run goes on from there.
(cd signal && exec "$mics" train run.json --ranks 4 --nodes 2 --steps 3000 \
    --set run.checkpoint_every=0 --set run.log_every=1) >signal.out 2>signal.err &
pid=$!
for _ in $(seq 300); do
    grep -qs '^step 2/' signal.out && break
    sleep 0.1
done
run 2 second_writer train signal
one_line second_writer.err
contains second_writer.err "another run writes there"
kill -INT $pid
wait $pid
[ $? = 1 ] || fail "a stopped run should exit with 1"
one_line signal.err
contains signal.err "stopped by SIGINT after step"
stopped=$(sed -n 's/.*SIGINT after step \([0-9]*\),.*/\1/p' signal.err)
[ -f "signal/out/checkpoints/latest" ] || fail "nothing was saved"
run 0 onward train signal --steps $((stopped + 2))
run 0 straight train whole --steps $((stopped + 2)) --out straight
same_losses whole/straight signal/out

# From another folder, into a new one; and on another mesh with the same global batch.
run 0 named train whole --resume ../whole/out/checkpoints/step-00000004 --out named
losses whole/out | tail -n 4 >left.txt
losses whole/named >right.txt
diff left.txt right.txt || fail "losses of a run resumed by name differ"
run 0 mesh sh -c "cd parts && exec $mics train run.json --ranks 2 --steps 10 \
    --set gradient_accumulation_steps=4"
contains mesh.out "resumed from out/checkpoints/step-00000008"

# Another run does not go on from this one's checkpoints, and says what differs.
refuse() { # TEXT FLAGS...
    text=$1
    shift
    run 2 refused train whole --steps 9 "$@"
    one_line refused.err
    contains refused.err "$text"
}
sed 's/hymns/psalms/' text.txt >whole/other.txt
sed 's/"n_head": 2/"n_head": 4/' model.json >whole/heads.json
cp -r whole/out before
refuse "run.seed" --set run.seed=4
refuse "train_batch_size" --set train_batch_size=32
refuse "data.sequence_length" --set data.sequence_length=16
refuse "training text" --set 'data.train=["other.txt"]'
refuse "n_head" --set model.config=heads.json
run 2 refused train whole --steps 7
one_line refused.err
contains refused.err "step 8 already"
rm -rf before/cache whole/out/cache # texts that were read are kept as tokens
diff -r whole/out before || fail "a refused run was changed"
exit 0
