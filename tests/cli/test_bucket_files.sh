# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Models and data that are read from a bucket (s3://), of a server on this machine ($2): what is downloaded, once, goes
# on where it broke, is checked, is found again offline; what errors say, and that no secret is kept.
. "$(dirname "$0")/lib.sh"
stub=$2
unset AWS_PROFILE AWS_ENDPOINT_URL_S3 HF_HUB_OFFLINE http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=s3cr3t AWS_SESSION_TOKEN=t0ken AWS_REGION=eu-central-1 no_proxy=127.0.0.1
export HOME="$work" XDG_CACHE_HOME="$work/cache"
case $("$mics" tokenize http://127.0.0.1:1/x --out x.bin 2>&1) in *"libcurl, which downloads"* | *"libcrypto, which checks"*) exit 77 ;; esac

mkdir -p site/bucket/models site/bucket/data/deep site/faults
"$stub" site port &
server=$!
trap 'kill $server 2>/dev/null; [ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT
await $server "the server's port" test -s port
AWS_ENDPOINT_URL=http://127.0.0.1:$(cat port)
export AWS_ENDPOINT_URL
asked() { # LINE: how often the server had such a request
    grep -c "$1" site/requests.log
}

run 0 made "$mics" train run.json --ranks 2
run 0 folder "$mics" convert out folder
rm -rf out
cp -r folder site/bucket/models/small
echo x >site/bucket/models/small/consolidated.safetensors
jsonl() { # the text as two JSON Lines files
    awk -v part="$1" 'NR % 2 == part {printf "{\"text\": \"%s\"}\n", $0}' text.txt
}
mkdir set
jsonl 0 | gzip >'set/train 0+&.jsonl.gz'
jsonl 1 >set/train-1.jsonl
jsonl 1 >set/test.jsonl
cp set/* site/bucket/data
jsonl 0 >site/bucket/data/deep/x.jsonl
cp run.json text.txt site/bucket

# ---- models and data ----

# What a run would be needs no weights and no data.
run 0 explain "$mics" explain --model s3://bucket/models/small --data 's3://bucket/data/train*'
contains explain.out "auto: the weights in model.config's folder"
[ "$(asked 'GET.*model.safetensors')" = 0 ] || fail "weights were downloaded to explain"
[ "$(asked 'GET.*train-1')" = 0 ] || fail "data was downloaded to explain"

# The same numbers as from folders.
run 0 bucket "$mics" train --model s3://bucket/models/small/ --data 's3://bucket/data/train*' --steps 3 --out bucket
contains bucket.out "weights of"
run 0 local "$mics" train --model folder --data 'set/train*' --steps 3 --out local
same_losses bucket local
[ "$(asked 'GET.*/test.jsonl')$(asked 'GET.*/deep/x.jsonl')$(asked 'GET.*consolidated')" = 000 ] || fail "more was downloaded"
# A run file, a tokenizer, an object, a folder with folders.
run 0 file "$mics" train s3://bucket/run.json --ranks 2 --steps 3 --out file \
    --set data.train=s3://bucket/text.txt --set data.tokenizer=s3://bucket/models/small/tokenizer.json
run 0 same "$mics" train run.json --ranks 2 --steps 3 --out same --set data.tokenizer=folder/tokenizer.json
same_losses file same
run 0 tokens "$mics" tokenize s3://bucket/data --out tokens.bin
run 0 local_tokens "$mics" tokenize site/bucket/data --out local_tokens.bin
cmp tokens.bin local_tokens.bin || fail "a folder of a bucket is another text"
run 0 generate "$mics" generate s3://bucket/models/small --prompt the --tokens 4
run 0 from_local "$mics" generate folder --prompt the --tokens 4
cmp generate.out from_local.out || fail "it writes another text"

# Once; and offline nobody is asked.
[ "$(asked 'GET.*model.safetensors - 200')$(asked 'GET.*text.txt - 200')" = 11 ] || fail "downloaded twice"
: >site/requests.log
run 0 offline "$mics" generate --offline s3://bucket/models/small --prompt the --tokens 4
cmp generate.out offline.out || fail "offline it writes another text"
run 0 resumed "$mics" train bucket/resolved.json --steps 4 --out bucket --offline
run 2 never "$mics" tokenize s3://bucket/never.txt --offline --out never.bin
contains never.err "s3://bucket/never.txt: was not downloaded before"
one_line never.err
[ ! -s site/requests.log ] || fail "asked although offline: $(cat site/requests.log)"
# A newer object is downloaded, alone; a cache that is lost in part is filled by a run's paths.
echo '{"text": "more"}' >>site/bucket/data/train-1.jsonl
run 0 newer "$mics" tokenize 's3://bucket/data/train*' --out newer.bin
[ "$(grep -c 'GET /bucket/data/train.* - 200' site/requests.log)" = 1 ] || fail "not the newer object alone: $(cat site/requests.log)"
rm -rf cache/mics/s3--*/blobs cache/mics/s3--*/snapshots
jsonl 1 >site/bucket/data/train-1.jsonl # of another time, so of another ETag
run 2 changed "$mics" train bucket/resolved.json --steps 5 --out changed
contains changed.err "train-1.jsonl: has changed since it was listed; try again"
run 0 refilled "$mics" generate s3://bucket/models/small --prompt the --tokens 4
cmp generate.out refilled.out || fail "from a new cache it writes another text"
run 0 lora "$mics" train --model folder --data text.txt --lora 2 --steps 1 --out lora
run 0 adapter "$mics" convert lora site/bucket/models/adapter
run 0 adapted "$mics" generate s3://bucket/models/small --adapter s3://bucket/models/adapter --prompt the --tokens 4
run 0 adapted_local "$mics" generate folder --adapter site/bucket/models/adapter --prompt the --tokens 4
cmp adapted.out adapted_local.out || fail "with an adapter it writes another text"
[ "$(asked 'GET.*adapter_model.safetensors - 200')" = 1 ] || fail "the adapter was not downloaded, once"

# ---- broken and damaged ----

# A connection that breaks is taken up where it broke, in this process or the next.
rm -rf cache
echo GET small/model.safetensors 0 5000 >site/faults/1
run 0 broken "$mics" generate s3://bucket/models/small --prompt the --tokens 4
cmp generate.out broken.out || fail "a download that broke is another model"
grep -q 'GET /bucket/models/small/model.safetensors bytes=[1-9][0-9]*- 206' site/requests.log || fail "all came anew"
blob=$(readlink -f cache/mics/s3--*/snapshots/*/small/model.safetensors)
rm "$blob"
head -c 7000 folder/model.safetensors >"$blob".incomplete
run 0 later "$mics" generate s3://bucket/models/small --prompt the --tokens 4
contains site/requests.log "model.safetensors bytes=7000- 206"
cmp generate.out later.out || fail "a download that went on is another model"
# A checksum that S3 has is compared; one of parts is not that of the bytes.
digest() { # FILE
    python3 -c 'import base64, hashlib, sys; print(base64.b64encode(hashlib.sha256(open(sys.argv[1], "rb").read()).digest()).decode())' "$1"
}
if [ "$(digest text.txt 2>/dev/null | wc -c)" = 45 ]; then
    rm -rf cache
    echo "x-amz-checksum-sha256: $(digest site/bucket/text.txt)" >site/head
    run 0 checked "$mics" tokenize s3://bucket/text.txt --out checked.bin
fi
rm -rf cache
echo "x-amz-checksum-crc64nvme: AAAAAAAAAAA=-3" >site/head
run 0 of_parts "$mics" tokenize s3://bucket/text.txt --out of_parts.bin
rm -rf cache
echo "x-amz-checksum-crc64nvme: AAAAAAAAAAA=" >site/head
run 2 damaged "$mics" tokenize s3://bucket/text.txt --out damaged.bin
contains damaged.err "s3://bucket/text.txt: what came has the crc64nvme: "
one_line damaged.err
[ -z "$(find cache -name '*.incomplete')" ] || fail "damaged bytes were kept"
rm site/head

# ---- what is refused ----

refused() { # TEXT URL
    run 2 refused "$mics" tokenize "$2" --out refused.bin
    contains refused.err "$1"
    one_line refused.err
}
refused "s3://bucket/data/y*.jsonl: there is no such object; s3://bucket/data/ holds: test.jsonl train 0+&.jsonl.gz train-1.jsonl deep/" 's3://bucket/data/y*.jsonl'
refused "s3://bucket/nothing: there is no such object; s3://bucket/ holds: run.json text.txt data/ models/" s3://bucket/nothing
refused "the server says 404 NoSuchBucket" s3://none/x.txt
refused "s3://bucket: must be as s3://BUCKET/KEY" s3://bucket
refused "must be as s3://BUCKET/KEY" 's3://b*/x.txt'
refused "no file can have that name" s3://bucket/..
run 2 no_model "$mics" train --model s3://bucket/data --data text.txt
contains no_model.err "s3://bucket/data: there is no such object, and no model below it"
AWS_ACCESS_KEY_ID='' run 2 nobody "$mics" tokenize s3://bucket/text.txt --out nobody.bin
contains nobody.err "no credentials were found: set AWS_ACCESS_KEY_ID"
mv cache known
AWS_SESSION_TOKEN=wr0ng run 2 token "$mics" tokenize s3://bucket/text.txt --out token.bin
contains token.err "the server says 403 AccessDenied"
mv known cache

# ---- a server that is away, and secrets ----

run 0 there "$mics" tokenize s3://bucket/text.txt --out there.bin
kill $server
run 0 away "$mics" tokenize s3://bucket/text.txt --out away.bin
contains away.err "warning: s3://bucket/text.txt: what was downloaded before is taken"
cmp there.bin away.bin || fail "another text"
rm -rf cache
run 1 gone "$mics" tokenize s3://bucket/text.txt --out gone.bin
contains gone.err "no answer came from 127.0.0.1"
! grep -rE 's3cr3t|t0ken|wr0ng' ./*.out ./*.err bucket file known cache 2>/dev/null || fail "a secret is kept"
