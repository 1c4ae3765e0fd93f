# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# What a program of before wrote goes on with this one: a run folder with checkpoints of version 1 and
# a token cache, a cluster file, times of collectives (tests/golden/before).
. "$(dirname "$0")/lib.sh"

before=$golden/before
fresh() { # FOLDER: a copy of the run of before
    rm -rf "$1"
    cp -r "$before" "$1"
    chmod -R u+w "$1"
}

# A run file without the keys that have other names now: a resume takes them from its checkpoint.
cat >again.json <<'JSON'
{
  "model": {"config": "model.json"},
  "data": {"train": ["text.txt"], "sequence_length": 16},
  "run": {"steps": 8, "seed": 3, "out": "out", "checkpoint_every": 4, "validation_batches": 2, "threads": 1},
  "train_batch_size": 32,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.1}},
  "scheduler": {"type": "WarmupCosineLR",
                "params": {"warmup_num_steps": 2, "total_num_steps": 100}},
  "gradient_clipping": 1.0,
  "sharding": {"params": 2, "grads": 2, "optimizer": 4}
}
JSON
fresh same

train() { # FOLDER RANKS FLAGS...
    folder=$1
    ranks=$2
    shift 2
    cp again.json "$folder/again.json"
    (cd "$folder" && exec "$mics" train again.json --ranks "$ranks" --nodes 2 "$@")
}

# near LEFT RIGHT: the same steps, and losses within 1e-3, what bf16 on the second hop can differ by.
near() {
    paste -d' ' "$1" "$2" | awk '
        $1 != $3 || NF != 4 { exit 1 }
        { difference = $2 / $4 - 1; if (difference > 1e-3 || difference < -1e-3) exit 1 }
        END { if (NR == 0) exit 1 }'
}

cache=$(ls -i same/out/cache)

# On the mesh of before: first from version 1, then from the version 2 that this saved.
run 0 first train same 4 --steps 10
contains first.out "resumed from out/checkpoints/step-00000008"
grep -q '"version": 2' same/out/checkpoints/step-00000010/manifest.json || fail "saved another version than 2"
grep -q '"sharding": {"params": 2, "grads": 2, "optimizer": 4}' same/out/checkpoints/step-00000010/manifest.json ||
    fail "the manifest lacks the sharding"
grep -q '"layered_micro_steps": 2' same/out/checkpoints/step-00000010/manifest.json ||
    fail "the manifest lacks the layered micro-steps"
run 0 second train same 4 --steps 12
contains second.out "resumed from out/checkpoints/step-00000010"
losses same/out | sed -n '9,12p' >found.txt
near found.txt "$before/losses.txt" || fail "losses of step 9 to 12 are not those of before"
# Another machine's mathematics library may round otherwise. Where the validation of before has the same digits again,
# it does not, and then training has them too; but for layered micro-steps, which before were reduced one by one.
digits=$(grep '"step": 8, "validation_loss"' same/out/metrics.jsonl | sort -u | wc -l)
[ "$digits" = 1 ] || echo "digits of this machine differ; losses are compared within 1e-3"

# The token cache is used as it is: the file is neither written anew nor joined by another.
[ "$(ls -i same/out/cache)" = "$cache" ] || fail "the token cache was made again"

# From the older step, as the run of before went on itself.
fresh older
run 0 older train older 4 --resume out/checkpoints/step-00000004 --steps 8 --set run.layered_micro_steps=1
losses older/out | sed -n '5,8p' >found.txt
losses "$before/out" | sed -n '5,8p' >expected.txt
near found.txt expected.txt || fail "losses of step 5 to 8 are not those of before"
[ "$digits" != 1 ] || diff found.txt expected.txt || fail "digits of losses of step 5 to 8 differ"

# A checkpoint of before there was layered accumulation: one micro-step after the other, as then.
fresh unlayered
sed -i 's/    \\"breadth\\": 2,\\n//' unlayered/out/checkpoints/step-00000004/manifest.json
"$2" unlayered/out/checkpoints/step-00000004/manifest.json || fail "the manifest was not sealed"
! grep -q breadth unlayered/out/checkpoints/step-00000004/manifest.json || fail "the key is still there"
run 0 unlayered train unlayered 4 --resume out/checkpoints/step-00000004 --steps 8
losses unlayered/out | sed -n '5,8p' >unlayered.txt
diff found.txt unlayered.txt || fail "without the key micro-steps were layered"
grep -q '"layered_micro_steps": 1,' unlayered/out/resolved.json || fail "resolved.json should say 1"

# On another mesh.
fresh other
run 0 other train other 8 --steps 12 --set sharding.params=4 --set sharding.grads=4 --set sharding.optimizer=8
losses other/out | sed -n '9,12p' >found.txt
near found.txt "$before/losses.txt" || fail "losses on another mesh are not those of before"

# eval, convert, and what was converted.
fresh read
run 0 eval "$mics" eval read/out --data read/text.txt --json
sed 's/.*"loss": \([^,]*\),.*/8 \1/' eval.out >found.txt
sed 's/^/8 /' "$before/eval.txt" >expected.txt
near found.txt expected.txt || fail "eval gives $(cat found.txt), before $(cat expected.txt)"
run 0 convert "$mics" convert read/out read/exported
[ -s read/exported/model.safetensors ] || fail "nothing was converted"

# A cluster file that mics bench of before wrote, and times of collectives that train of before kept, which nobody reads
# any more.
run 0 plan sh -c 'cd read && exec "$1" plan ../again.json --cluster cluster.json:2' plan "$mics"
contains plan.out "2 nodes of cluster"
mkdir -p read/measured
cp "$before/collectives.json" read/measured/collectives.json
run 0 measured train read 4 --resume none --out measured --steps 2 --set sharding.params=4 --set sharding.grads=4 \
    --set run.param_persistence_threshold=0 --set run.validation_batches=0
contains measured.err "run.collectives: gathers in "
cmp "$before/collectives.json" read/measured/collectives.json || fail "collectives.json of before was touched"
