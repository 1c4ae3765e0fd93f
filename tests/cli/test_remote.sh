# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Models and data of a hub (hf://) and of plain URLs, from a server of files on this machine ($2): what is
# downloaded, once, goes on where it broke, is checked, is found again offline; what errors say, and that
# no secret is kept.
. "$(dirname "$0")/lib.sh"
stub=$2
unset HF_TOKEN HF_HUB_CACHE HF_HUB_OFFLINE http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
export HF_HOME="$work/hf" XDG_CACHE_HOME="$work/cache" no_proxy=127.0.0.1

case $("$mics" tokenize http://127.0.0.1:1/x --out x.bin 2>&1) in *"libcurl, which downloads"* | *"libcrypto, which checks"*) exit 77 ;; esac
mkdir site
"$stub" site port &
server=$!
trap 'kill $server 2>/dev/null; [ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT
await $server "the server's port" test -s port
url=http://127.0.0.1:$(cat port)
export HF_ENDPOINT="$url/"

# ---- a hub: the API's list of files, and files by commit ----

commit=0123456789abcdef0123456789abcdef01234567
run 0 made "$mics" train run.json --ranks 2
run 0 folder "$mics" convert out folder
rm -rf out
split_text() { # the text as two JSON Lines files
    awk -v part="$1" 'NR % 2 == part {printf "{\"text\": \"%s\"}\n", $0}' text.txt
}
# list FOLDER [LFS]: its files as the hub lists them
list() {
    (cd "$1" && find . -type f | sed 's,^\./,,' | LC_ALL=C sort) | while read -r file; do
        bytes=$(wc -c <"$1/$file")
        sha256=$(sha256sum "$1/$file" | cut -d ' ' -f 1)
        blob=$(printf '%.40s' "$(printf '%s' "$file $sha256" | sha256sum)")
        case $file in
        *.safetensors | *.bin | *.jsonl) lfs=", \"lfs\": {\"sha256\": \"$sha256\", \"size\": $bytes}" ;;
        *) lfs= ;;
        esac
        echo "${comma:-} {\"rfilename\": \"$file\", \"size\": $bytes, \"blobId\": \"$blob\"$lfs}"
        comma=,
    done
}
# offer KIND/ REPO FOLDER: on the hub
offer() {
    mkdir -p "site/$1$2/resolve" "site/api/${1:-models/}$2/revision"
    rm -rf "site/$1$2/resolve/$commit"
    cp -r "$3" "site/$1$2/resolve/$commit"
    echo "{\"id\": \"$2\", \"sha\": \"$commit\", \"siblings\": [$(list "$3")]}" >"site/api/${1:-models/}$2/revision/main"
    cp "site/api/${1:-models/}$2/revision/main" "site/api/${1:-models/}$2/revision/$commit"
}
mkdir -p folder/onnx set/data
echo x >folder/onnx/model.onnx
echo x >folder/consolidated.safetensors
split_text 0 >set/data/train-0.jsonl
split_text 1 >set/data/train-1.jsonl
cp set/data/train-1.jsonl set/data/test-0.jsonl
echo '# a set' >set/README.md
offer "" lark/small folder
offer datasets/ lark/lines set

asked() { # PATH: how often the server was asked for it
    grep -cF " $1 " site/requests.log
}

# What a run would be needs no weights, though that there are some.
run 0 explain "$mics" explain --model hf://lark/small --data 'hf://datasets/lark/lines/data/train-*.jsonl'
contains explain.out "auto: the weights in model.config's folder"
run 0 plan "$mics" plan hf://lark/small --cluster p4d.24xlarge:1
run 0 inspect "$mics" explain hf://lark/small --steps 3 --set model.init=random --data text.txt
[ "$(asked "/lark/small/resolve/$commit/model.safetensors")" = 0 ] || fail "weights were downloaded to explain or plan"
[ "$(asked "/datasets/lark/lines/resolve/$commit/data/train-0.jsonl")" = 0 ] || fail "data was downloaded to explain"
[ "$(asked "/lark/small/resolve/$commit/config.json")" = 1 ] || fail "the configuration was not downloaded, once"

# From a name to a trained model; the same numbers as from a folder.
run 0 hub "$mics" train --model hf://lark/small --data 'hf://datasets/lark/lines/data/train-*.jsonl' --steps 3
contains hub.out "step 3/3"
contains hub.out "weights of"
[ -d runs/small ] || fail "the run is not called small"
[ ! -e hf/hub/datasets--lark--lines/snapshots/$commit/data/test-0.jsonl ] || fail "test data was downloaded"
[ ! -e hf/hub/models--lark--small/snapshots/$commit/consolidated.safetensors ] || fail "other weights were downloaded"
run 0 local "$mics" train --model folder --data 'set/data/train-*.jsonl' --steps 3 --out local
same_losses runs/small local
contains runs/small/resolved.json "snapshots/$commit"
[ "$(cat hf/hub/models--lark--small/refs/main)" = $commit ] || fail "the ref is not that of huggingface_hub"
weights=site/lark/small/resolve/$commit/model.safetensors
sha256=$(sha256sum $weights | cut -d ' ' -f 1)
cmp $weights hf/hub/models--lark--small/blobs/"$sha256" || fail "the blob is not called by its hash"
[ "$(readlink hf/hub/models--lark--small/snapshots/$commit/model.safetensors)" = ../../blobs/"$sha256" ] ||
    fail "no link as huggingface_hub makes it"

# A second run asks for the commit alone, and offline for nothing.
: >site/requests.log
run 0 again "$mics" train --model hf://lark/small --data 'hf://datasets/lark/lines/data/train-*.jsonl' --steps 3 --out again
[ "$(grep -c . site/requests.log)" = 2 ] || fail "asked for more than two lists: $(cat site/requests.log)"
: >site/requests.log
HF_HUB_OFFLINE=1 run 0 offline "$mics" train --model hf://lark/small --data text.txt --steps 3 --out offline
[ ! -s site/requests.log ] || fail "asked although offline"
run 2 never "$mics" train --offline --model hf://lark/other --data text.txt
contains never.err "hf://lark/other: was not downloaded before"
one_line never.err

# What huggingface_hub left is found, which keeps no list; a cache that is lost is filled by a run's paths.
rm -rf hf/hub/models--lark--small/.mics
HF_HUB_OFFLINE=1 run 0 foreign "$mics" generate hf://lark/small --prompt a --tokens 2
rm hf/hub/models--lark--small/snapshots/$commit/model.safetensors
HF_HUB_OFFLINE=1 run 2 part "$mics" generate hf://lark/small --prompt a --tokens 2
contains part.err "hf://lark/small: was not downloaded before"
rm -rf hf
run 0 refilled "$mics" train runs/small/resolved.json --out refilled
same_losses refilled local

# Ranks of several processes: each file is downloaded once.
rm -rf hf
: >site/requests.log
for rank in 1 2 3; do
    "$mics" tokenize 'hf://datasets/lark/lines/data' --out shard$rank.bin >rank$rank.out 2>&1 &
    eval "rank$rank=\$!"
done
for rank in 1 2 3; do
    eval "wait \$rank$rank" || fail "process $rank: $(cat rank$rank.out)"
done
[ "$(asked "/datasets/lark/lines/resolve/$commit/data/train-0.jsonl")" = 1 ] || fail "downloaded twice"
cmp shard1.bin shard2.bin || fail "processes read other data"

# A connection that breaks is taken up where it broke, in this process or the next.
echo 5000 >$weights.cut
run 0 broken "$mics" generate hf://lark/small --prompt a --tokens 2
contains site/requests.log "GET /lark/small/resolve/$commit/model.safetensors bytes=5000- 206"
rm -rf hf/hub/models--lark--small/blobs/"$sha256"
head -c 7000 $weights >hf/hub/models--lark--small/blobs/"$sha256".incomplete
run 0 later "$mics" generate hf://lark/small --prompt a --tokens 2
contains site/requests.log "GET /lark/small/resolve/$commit/model.safetensors bytes=7000- 206"

# What came must be what the hub promised, and is not kept.
rm -rf hf
cp $weights good
printf 'X' | dd of=$weights bs=1 seek=2000 conv=notrunc 2>/dev/null
run 2 changed "$mics" generate hf://lark/small --prompt a --tokens 2
contains changed.err "hf://lark/small/model.safetensors: what came has the SHA-256"
one_line changed.err
[ ! -e hf/hub/models--lark--small/blobs/"$sha256".incomplete ] || fail "damaged bytes were kept"
cp good $weights
run 0 mended "$mics" generate hf://lark/small --prompt a --tokens 2

# Redirections, to where tokens do not go; and tokens, which are in no line.
rm -rf hf
mkdir -p site/cdn
mv $weights site/cdn/weights
echo "http://localhost:$(cat port)/cdn/weights?signature=s3cr3t" >$weights.location
echo t0ken >site/api/models/lark/small/revision/main.token
HF_TOKEN=t0ken run 0 token "$mics" generate hf://lark/small --prompt a --tokens 2
contains site/requests.log "GET /cdn/weights - 200 -"
! grep -rE 's3cr3t|t0ken' token.out token.err hf/hub || fail "a secret was kept"
rm -rf hf
run 2 private "$mics" generate hf://lark/small --prompt a --tokens 2
contains private.err "hf://lark/small: the hub says 401: it has another name, or is private and HF_TOKEN is not set"
HF_TOKEN=wrong run 2 refused "$mics" generate hf://lark/small --prompt a --tokens 2
contains refused.err "your token may not read it"
rm site/api/models/lark/small/revision/main.token

# ---- what is refused ----

mkdir -p site/api/models/lark/gated/revision
echo 403 >site/api/models/lark/gated/revision/main.status
echo GatedRepo >site/api/models/lark/gated/revision/main.code
run 2 gated "$mics" generate hf://lark/gated --prompt a
contains gated.err "hf://lark/gated: the hub says 403: it is gated: ask for access, and set HF_TOKEN ($url/lark/gated)"
one_line gated.err
echo 404 >site/api/models/lark/small/revision/v9.status
echo RevisionNotFound >site/api/models/lark/small/revision/v9.code
run 2 revision "$mics" generate hf://lark/small@v9 --prompt a
contains revision.err "the hub says 404: there is no such revision"
run 2 whole "$mics" train --model hf://lark/small --data hf://datasets/lark/lines
contains whole.err "is a whole repository; name files of it"
contains whole.err "/datasets/lark/lines/tree/0123456789ab lists what there is"
run 2 missing "$mics" train --model hf://lark/small --data hf://datasets/lark/lines/train.jsonl
contains missing.err "there is no such file; $url/datasets/lark/lines/tree/0123456789ab lists what there is"
run 2 name "$mics" train --model hf://small --data text.txt
contains name.err "must be as hf://ORG/NAME"
run 2 scheme "$mics" train --model gs://small/x --data text.txt
contains scheme.err "gs://: is not read; hf://, s3:// and https:// are"
run 2 out "$mics" train run.json --out https://x/y
contains out.err "run.out: is remote, and only what is read may be"
MICS_CURL_LIBRARY=none.so run 2 no_curl "$mics" train --model hf://lark/small --data text.txt
contains no_curl.err "libcurl, which downloads, cannot be opened"
one_line no_curl.err

# A server's names lead nowhere else.
mkdir -p site/api/models/lark/bad/revision
echo "{\"sha\": \"$commit\", \"siblings\": [{\"rfilename\": \"../../../x.json\", \"size\": 1,
 \"blobId\": \"$commit\"}]}" >site/api/models/lark/bad/revision/main
run 2 bad "$mics" generate hf://lark/bad --prompt a
contains bad.err "lists a file (../../../x.json) without name, hash or size"
echo '<html>' >site/api/models/lark/bad/revision/main
rm -rf hf
run 2 html "$mics" generate hf://lark/bad --prompt a

# More than any disk has, and less than was promised.
sed 's/"size": [0-9]*/"size": 900000000000000000/' site/api/datasets/lark/lines/revision/main >huge
mkdir -p site/datasets/lark/huge site/api/datasets/lark/huge/revision
cp -r site/datasets/lark/lines/resolve site/datasets/lark/huge
cp huge site/api/datasets/lark/huge/revision/main
run 1 huge "$mics" tokenize hf://datasets/lark/huge/data --out huge.bin
contains huge.err "PiB are to come, and "
one_line huge.err
sed 's/"size": [0-9]*/"size": 12345/' huge >site/api/datasets/lark/huge/revision/main
run 2 short "$mics" tokenize hf://datasets/lark/huge/data --out short.bin
contains short.err "and 12345 were promised"

# Pickles alone are no weights.
mkdir pickles
cp folder/config.json pickles
echo x >pickles/pytorch_model.bin
offer "" lark/pickles pickles
run 2 pickles "$mics" train --model hf://lark/pickles --data text.txt --tokenizer bytes
contains pickles.err "holds pytorch_model.bin and no model.safetensors"

# ---- plain URLs ----

cp text.txt site/text.txt
sed 's,"text.txt","'"$url"'/text.txt?sig=s3cr3t",' run.json >plain.json
grep -q s3cr3t plain.json || fail "run.json names no text.txt"
: >site/requests.log
run 0 plain "$mics" train plain.json --steps 3 --ranks 2 --out plain
run 0 same "$mics" train run.json --steps 3 --ranks 2 --out same
same_losses plain same
! grep -rE 's3cr3t' plain plain.out plain.err || fail "a signature was kept"
# Its first byte is asked for in each run, and all of it once; a newer signature changes nothing.
sed 's/s3cr3t/s3cr3t2/' plain.json >signed.json
run 0 resumed "$mics" train signed.json --steps 5 --ranks 2 --out plain
contains resumed.out "step 5/5"
! grep -q 'changed: data' resumed.err || fail "the same text is another: $(cat resumed.err)"
run 0 twice "$mics" train signed.json --steps 3 --ranks 2 --out twice
[ "$(grep -c 'GET /text.txt - 200' site/requests.log)" = 1 ] || fail "downloaded twice"
# Phases and keys that nobody reads keep no secret, nor what explains them.
user=$(echo "$url" | sed 's,//,//user:s3cr3t@,')
sed 's,"data": {[^}]*},"phases": [{"steps": 2\, "data": {"train": ["'"$url"'/text.txt?sig=s3cr3t"\, "'"$user"'/text.txt"]}}\, {"steps": 1}],' run.json >phases.json
grep -q '"phases".*s3cr3t' phases.json || fail "phases.json has no phases"
run 0 phases "$mics" train phases.json --steps 3 --ranks 2 --out phases
run 0 shown "$mics" explain signed.json --ranks 2 --set hub_model_id="$url/x?sig=s3cr3t"
! grep -rE 's3cr3t|user:' phases phases.out phases.err shown.out shown.err plain || fail "a signature was kept"
run 2 wrong "$mics" train signed.json --set "data.train$url?s3cr3t" --out wrong
! grep s3cr3t wrong.err || fail "a signature is in an error"
{ cat text.txt; echo more; } >site/text.txt
run 0 newer "$mics" train plain.json --steps 3 --ranks 2 --out newer
[ "$(grep -c 'GET /text.txt - 200' site/requests.log)" = 2 ] || fail "the newer text was not downloaded"
[ "$(cat cache/mics/*/*/text.txt | wc -c)" = "$(cat text.txt site/text.txt | wc -c)" ] || fail "not both texts are there"
run 1 several "$mics" train --offline plain.json --steps 3 --ranks 2 --out several
contains several.err "2 versions are in $work/cache/mics/"
one_line several.err
for old in cache/mics/*/*/text.txt; do
    cmp -s site/text.txt "$old" || rm "$old"
done
run 0 alone "$mics" train --offline plain.json --steps 3 --ranks 2 --out alone
same_losses alone newer
run 2 gone "$mics" tokenize "$url/gone.txt" --out gone.bin
contains gone.err "$url/gone.txt: the server says 404: there is no such file"
# A run file of its own, and a broken connection to a file of which only the ETag is known.
cp run.json site/small.json
head -c 300000 /dev/urandom | od -An -tx1 >site/long.txt
echo 100000 >site/long.txt.cut
run 0 long "$mics" tokenize "$url/long.txt" --out long.bin
contains site/requests.log "GET /long.txt bytes=100000- 206"
cmp site/long.txt cache/mics/*/*/long.txt || fail "the long text is not whole"
run 0 file "$mics" train "$url/small.json" --steps 3 --ranks 2 --out file
same_losses file same

# What was downloaded is gone, and nobody knows the URL.
mv cache gone
run 2 lost "$mics" train plain/resolved.json --ranks 2 --out lost
contains lost.err "/text.txt: is gone, and its URL is not kept"
one_line lost.err
mv gone cache

# Without the server what is there is taken, and said.
kill $server
run 0 dark "$mics" train plain.json --steps 3 --ranks 2 --out dark
contains dark.err "warning: $url/text.txt: no answer came: "
same_losses dark newer
rm -rf cache
run 1 darker "$mics" train plain.json --steps 3 --ranks 2 --out darker
contains darker.err "$url/text.txt: no answer came: "
one_line darker.err
