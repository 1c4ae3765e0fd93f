# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# data.document_mask: a document is trained and evaluated as if it stood alone, on every mesh, from
# texts, JSON Lines and shards; and where nobody can tell documents apart it is refused.
. "$(dirname "$0")/lib.sh"

# Positions are relative here, so what stands before a document makes no difference.
cat >model.json <<'JSON'
{"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "initializer_range": 0.1,
 "max_position_embeddings": 96, "tie_word_embeddings": true}
JSON
awk '{ gsub(/["\\]/, ""); printf "{\"text\": \"%s\"}\n", substr($0, 1, 5 + NR % 40) }' text.txt >docs.jsonl
train() { # STATUS NAME FLAGS...
    status=$1 name=$2
    shift 2
    run "$status" "$name" "$mics" train run.json --out "$name" --set data.train=docs.jsonl "$@"
}
masked='data.document_mask=true'
near() { # OUT OUT: losses that differ by roundings
    losses "$1" >left.txt
    losses "$2" >right.txt
    awk 'NR == FNR { loss[$1] = $2; next }
         { d = ($2 - loss[$1]) / $2; if (!($1 in loss) || d > 1e-5 || d < -1e-5) exit 1 }
         END { exit FNR < 8 }' left.txt right.txt || fail "the losses of $1 and $2 differ"
}

train 0 open --ranks 2
train 0 one --ranks 1 --set "$masked" --set 'sharding={"params": 1}'
train 0 two --ranks 2 --set "$masked"
train 0 four --ranks 4 --nodes 2 --set "$masked" --set 'sharding={"params": 2, "grads": 2, "optimizer": 4}'
contains two.out exact
near one two
near one four
losses open >left.txt
losses two >right.txt
cmp -s left.txt right.txt && fail "the mask hides nothing"

# Stopped and resumed, also by a file that does not say it.
train 0 parts --ranks 2 --steps 3 --set "$masked"
train 0 parts --ranks 2
same_losses two parts
same_weights two/checkpoints/step-00000008 parts/checkpoints/step-00000008

# Shards with the same tokens give the same bits.
run 0 tokenize "$mics" tokenize docs.jsonl --out docs.bin
run 0 shards "$mics" train run.json --ranks 2 --out shards --set data.train=docs.bin --set "$masked"
same_losses two shards

# Nobody knows the separator, or it is nowhere.
sed 's/"vocab_size": 256/"vocab_size": 300/' model.json >other.json
run 2 unknown "$mics" train run.json --ranks 2 --out unknown --set data.train=docs.bin \
    --set model.config=other.json --set "$masked"
contains unknown.err "data.document_mask: all data are token shards"
awk 'BEGIN { for (i = 0; i < 4000; i++) printf "%cX", 97 + i % 7 }' | tr X '\000' >none.bin
run 2 none "$mics" train run.json --ranks 2 --out none --set data.train=none.bin \
    --set data.dtype=uint16 --set "$masked"
contains none.err "none.bin has no documents: token 0"
contains none.err "without --add-special-tokens"
run 2 beside "$mics" train run.json --ranks 2 --out beside --set 'data.train=["docs.bin", "none.bin"]' \
    --set data.dtype=uint16 --set "$masked"
contains beside.err "none.bin has no documents: token 0"
for out in unknown none beside; do
    one_line $out.err
    [ ! -e $out/metrics.jsonl ] || fail "a step was done"
done
run 0 explain "$mics" explain run.json --ranks 2 --set "$masked"
grep -q 'data.document_mask  *true' explain.out || fail "explain does not show it"

# Documents of one sequence are evaluated as apart: the loss of both is the mean of theirs, by tokens.
# A document predicts the separator behind it, which in a text is a NUL byte.
printf '{"text": "the lark at break of day\\u0000"}\n' >a.jsonl
printf 'hymns at gate' >b.txt
printf '{"text": "the lark at break of day"}\n{"text": "hymns at gate"}\n' >both.jsonl
run 0 both "$mics" eval two --data both.jsonl --sequence 64 --json
run 0 first "$mics" eval two --data a.jsonl --sequence 64 --json
run 0 second "$mics" eval two --data b.txt --sequence 64 --json
field() { sed -n "s/.*\"$2\": \([^,}]*\).*/\1/p" "$1"; }
for name in both first second; do
    echo "$(field $name.out loss) $(field $name.out tokens)"
done | awk '{ loss[NR] = $1; tokens[NR] = $2 }
     END { want = (loss[2] * tokens[2] + loss[3] * tokens[3]) / tokens[1]
           d = loss[1] / want - 1
           exit !(tokens[1] == tokens[2] + tokens[3] && d < 1e-5 && d > -1e-5) }' ||
    fail "documents of one sequence are not evaluated as apart"
run 0 unmasked "$mics" eval open --data both.jsonl --json
run 0 text "$mics" generate two --prompt "the " --tokens 8
