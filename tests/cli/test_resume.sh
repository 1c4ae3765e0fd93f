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

# So it does with int8 on the second hop: what rounding took away goes neither into a checkpoint nor beyond one. The
# optimizer over more ranks than the gradients, and replicas.
packed() { # OUT FLAGS...
    out=$1
    shift
    (cd whole && exec "$mics" train run.json --ranks 8 --nodes 2 --out "$out" --set sharding.optimizer=4 \
        --set run.validation_batches=0 --set run.comm_dtype.bf16_intra_node=true "$@")
}
run 0 packed packed packed --set run.comm_dtype.boundary=int8
grep -q 'exact$' packed.out || fail "predicted and measured are missing"
contains packed.out "message buffers"
run 0 halved packed halved --set run.comm_dtype.boundary=bf16
run 0 first packed packed_parts --set run.comm_dtype.boundary=int8 --steps 4
run 0 second packed packed_parts --set run.comm_dtype.boundary=int8
contains second.out "resumed from packed_parts/checkpoints/step-00000004"
same_losses whole/packed whole/packed_parts
same_weights whole/packed/checkpoints/step-00000008 whole/packed_parts/checkpoints/step-00000008
losses whole/packed >left.txt
losses whole/halved >right.txt
diff left.txt right.txt >/dev/null && fail "int8 should change the last digits of losses"

# What a file of the Trainer's says of resuming, which a flag goes before.
asks() { # resume_from_checkpoint FLAGS...
    sed "s|^{|{\"resume_from_checkpoint\": $1,|" run.json >parts/asks.json
    shift
    (cd parts && exec "$mics" train asks.json --ranks 4 --nodes 2 "$@")
}
run 2 asked asks true --out asked --steps 2
contains asked.err 'resume_from_checkpoint: is given, and asked has no checkpoint; leave it out'
run 0 asked asks false --out asked --steps 2
run 2 anew asks false --out asked --steps 3
contains anew.err 'asked: holds checkpoints, which are not overwritten, whatever resume_from_checkpoint says'
run 0 asked asks true --out asked --steps 3
contains asked.out 'resumed from asked/checkpoints/step-00000002'
run 0 named asks '"asked/checkpoints/step-00000003"' --out named --steps 4
contains named.out 'resumed from asked/checkpoints/step-00000003'
run 0 flag asks false --out asked --steps 4 --resume auto
contains flag.out 'resumed from asked/checkpoints/step-00000003'

# A signal: the step that was done last is saved, one line says so, and the run goes on from there.
(cd signal && exec "$mics" train run.json --ranks 4 --nodes 2 --steps 100000 \
    --set run.checkpoint_every=0 --set run.log_every=1) >signal.out 2>signal.err &
pid=$!
await $pid "step 2" grep -qs '^step 2/' signal.out
kill -INT $pid
wait $pid
[ $? = 75 ] || fail "a stopped run should exit with 75"
one_line signal.err
contains signal.err "mics: stopped by SIGINT after step"
stopped=$(sed -n 's/.*SIGINT after step \([0-9]*\),.*/\1/p' signal.err)
[ -f "signal/out/checkpoints/latest" ] || fail "nothing was saved"
run 0 onward train signal --steps $((stopped + 2))
run 0 straight train whole --steps $((stopped + 2)) --out straight
same_losses whole/straight signal/out

# A tokenizer whose file is changed while the run goes on: what was read at the start is saved, and
# only that one is gone on with.
cp "$golden/tokenizer/gpt2.json" whole/words.json
sed 's/"vocab_size": 256/"vocab_size": 1024/' model.json >whole/words_model.json
words() { # FLAGS...
    cd whole && exec "$mics" train run.json --ranks 2 --out words --set run.checkpoint_every=0 \
        --set run.log_every=1 --set model.config=words_model.json \
        --set data.tokenizer=words.json "$@"
}
(words --steps 100000) >words.out 2>words.err &
pid=$!
await $pid "step 2" grep -qs '^step 2/' words.out
sed 's/"version":"1.0"/"version":"1.1"/' whole/words.json >whole/edited.json
mv whole/edited.json whole/words.json
kill -INT $pid
wait $pid
stopped=$(sed -n 's/.*SIGINT after step \([0-9]*\),.*/\1/p' words.err)
cmp "$golden/tokenizer/gpt2.json" whole/words/checkpoints/step-*/tokenizer.json ||
    fail "the tokenizer that was saved is not the one that was read"
(words --steps $((stopped + 1))) >edited.out 2>edited.err && fail "another tokenizer was accepted"
one_line edited.err
contains edited.err "tokenizer"
cp "$golden/tokenizer/gpt2.json" whole/words.json
(words --steps $((stopped + 1))) >restored.out || fail "the right tokenizer was refused"
contains restored.out "step $stopped, resumed"
run 0 exported "$mics" convert whole/words whole/words_exported
cmp "$golden/tokenizer/gpt2.json" whole/words_exported/tokenizer.json ||
    fail "the tokenizer that was exported is not the one that was saved"

# From another folder, into a new one; and on another mesh with the same global batch.
run 0 named train whole --resume ../whole/out/checkpoints/step-00000004 --out named
losses whole/out | tail -n 4 >left.txt
losses whole/named >right.txt
diff left.txt right.txt || fail "losses of a run resumed by name differ"
run 0 mesh sh -c "cd parts && exec $mics train run.json --ranks 2 --steps 10 \
    --set gradient_accumulation_steps=4"
contains mesh.out "resumed from out/checkpoints/step-00000008"
run 0 mesh train parts --steps 12 --set run.param_persistence_threshold=10000 --set sharding.optimizer=4
contains mesh.out "resumed from out/checkpoints/step-00000010"

# On fewer and on more ranks the run file's micro-batch and micro-steps give way to the global batch.
(cd whole && sed '/"train_batch_size"/d; s/"gradient_accumulation_steps": 2/"train_micro_batch_size_per_gpu": 2, &/' \
    run.json >elastic.json)
elastic() { # STATUS NAME RANKS OUT STEPS
    run "$1" "$2" sh -c "cd whole && exec $mics train elastic.json --ranks $3 --out $4 --steps $5"
}
close_losses() { # OUT OUT: within 1e-4 of each other
    losses "whole/$1" >left.txt
    losses "whole/$2" >right.txt
    paste left.txt right.txt | awk 'function far(d) { return d > 1e-4 || d < -1e-4 }
        $1 != $3 || far($2 - $4) { bad = 1 } END { exit bad || NR < 8 }' || fail "losses of $1 and $2 differ"
}
elastic 0 wide 4 wide 8
elastic 0 first 4 fewer 4
elastic 0 fewer 2 fewer 6
contains fewer.err "train_batch_size 16 kept from fewer/checkpoints/step-00000004: micro-batch 2 x 4 micro-steps x 2 ranks"
elastic 0 more 8 fewer 8
contains more.err "train_batch_size 16 kept from fewer/checkpoints/step-00000006: micro-batch 2 x 1 micro-steps x 8 ranks"
close_losses wide fewer
(cd whole && sed -i 's/"sharding": {.*}/"sharding": {"params": 1}/' elastic.json)
elastic 0 wide 4 wide 11
elastic 0 three 3 fewer 10
contains three.err "train_batch_size 16 kept from fewer/checkpoints/step-00000008: micro-batch 2 x 3 micro-steps x 3 ranks"
contains three.err "2 of 18 rows of a step count nothing: 16 sequences on 3 ranks"
elastic 0 six 6 fewer 11
contains six.err "train_batch_size 16 kept from fewer/checkpoints/step-00000010: micro-batch 1 x 3 micro-steps x 6 ranks"
contains six.err "2 of 18 rows of a step count nothing: 16 sequences on 6 ranks"
close_losses wide fewer

# What the checkpoint resolved counts where the run file says nothing: a run that began when defaults were others.
other_defaults() { # OUT FLAGS...
    out=$1
    shift
    (cd whole && exec "$mics" train run.json --ranks 4 --nodes 2 --out "$out" "$@")
}
defaults="--set optimizer.params.eps=1e-3 --set optimizer.params.betas=[0.8,0.9] --set run.layered_micro_steps=2 \
    --set scheduler.params.cos_min_ratio=0.5 --set sharding.params=4 --set sharding.grads=4 --set sharding.optimizer=4"
run 0 then other_defaults then $defaults
run 0 first other_defaults kept $defaults --steps 4
run 0 second other_defaults kept --set sharding=auto
contains second.err "kept from kept/checkpoints/step-00000004, as the run file does not say it: "
contains second.out "layered 2 at a time"
contains second.err "optimizer.params.eps 0.001"
contains second.out "4 on 2 nodes, zero3"
same_losses whole/then whole/kept
same_weights whole/then/checkpoints/step-00000008 whole/kept/checkpoints/step-00000008
grep -q '"eps": 0.001' whole/kept/resolved.json || fail "resolved.json should hold what was kept"

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
refuse_edited() { # TEXT SED: the run file says it, not --set
    sed "$2" run.json >whole/edited.json
    run 2 refused sh -c "cd whole && exec $mics train edited.json --ranks 4 --nodes 2 --steps 9 --out out"
    one_line refused.err
    contains refused.err "$1"
}
by_set="restore it, begin a phase with it by --set, or begin anew"
refuse_edited "was made with run.seed 3, this run has 4; $by_set" 's/"seed": 3/"seed": 4/'
refuse_edited "was made with train_batch_size 16, this run has 32; $by_set" 's/"train_batch_size": 16/"train_batch_size": 32/'
refuse_edited "was made with data.sequence_length 32, this run has 16; $by_set" 's/"sequence_length": 32/"sequence_length": 16/'
refuse_edited "other training text (data.train) than this run's; $by_set" 's/text.txt/other.txt/'
refuse_edited "phases: out/checkpoints/step-00000008 was made in a phase from step 0 on, and this one is from step 5 on" \
    's/"train_batch_size"/"phases": [{"steps": 5}, {"run": {"seed": 4}}], &/'
refuse "n_head" --set model.config=heads.json
refuse "held out" --set run.validation_batches=0
run 2 refused train whole --steps 7
one_line refused.err
contains refused.err "step 8 already"
rm -rf before/cache whole/out/cache # texts that were read are kept as tokens
diff -r whole/out before || fail "a refused run was changed"

# Damaged checkpoints: the newest whole one counts; with none left, nothing is begun over them.
rm before/checkpoints/step-00000008/rank-00001.safetensors
(cd whole && cp -r ../before older && cp -r older lost)
run 0 older train whole --out older --steps 5
contains older.out "resumed from older/checkpoints/step-00000004"
head -c 50 before/checkpoints/step-00000004/manifest.json \
    >whole/lost/checkpoints/step-00000004/manifest.json
cp -r whole/lost kept
for how in auto none lost lost/checkpoints/step-00000004; do
    run 2 lost train whole --out lost --steps 9 --resume $how
    [ "$(grep -c '^mics: error: ' lost.err)" = 1 ] || fail "one error line is due"
    contains lost.err "step-0000000"
    rm -rf whole/lost/cache
    diff -r whole/lost kept || fail "a damaged run was changed by --resume $how"
done

# Damaged bytes in the newest step. Asked for by name it is refused, and the error names an older one; else the newest
# that is good is gone on from, and what is saved then is the newest, whatever its step.
run 0 torn train whole --out torn --steps 8
printf XXXX | dd of=whole/torn/checkpoints/step-00000008/rank-00000.safetensors bs=1 seek=5000 \
    conv=notrunc 2>/dev/null
run 2 torn train whole --out torn --steps 9 --resume torn/checkpoints/step-00000008
contains torn.err "changed: run.steps 8 -> 9"
one_line torn.err
contains torn.err "--resume torn/checkpoints/step-00000004"
run 0 back train whole --out torn --steps 9
contains back.err "mics: warning: rank 0: torn/checkpoints/step-00000008/rank-00000.safetensors: offset "
contains back.err "differ from their checksum"
contains back.err "resumes from torn/checkpoints/step-00000004 instead of step 8"
losses whole/out >left.txt
losses whole/torn | head -n 8 >right.txt
diff left.txt right.txt || fail "losses after the way back differ"
cat whole/out/checkpoints/step-00000008/rank-* >left.bin # a step saved again has other file names
cat whole/torn/checkpoints/step-00000008/rank-* >right.bin
cmp left.bin right.bin || fail "the way back should lead to the same weights"
exit 0
