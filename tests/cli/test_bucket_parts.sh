# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Checkpoints on their way to a bucket of a server on this machine ($2), in parts, through lost answers; nothing secret is said.
. "$(dirname "$0")/bucket.sh"

sed 's/"n_embd": 32/"n_embd": 320/; s/"n_layer": 2/"n_layer": 3/' model.json >big.json
one_step="--set model.config=big.json --steps 1 --set train_batch_size=4 --set data.sequence_length=8 --set run.validation_batches=0"
# Word splitting is meant.
# shellcheck disable=SC2086
big() { # OUT BUCKET FLAGS...
    train "$@" $one_step
}
# shellcheck disable=SC2086
run 0 big_local "$mics" train run.json --ranks 2 --out big_local $one_step
: >site/requests.log
fault PUT partNumber=2 503 SlowDown
fault PUT partNumber=1 0 none
fault POST uploadId= 0 none
fault POST uploads= 500 InternalError
run 0 big big big s3://bucket/big
no_faults
same_weights big_local/checkpoints/step-00000001 site/bucket/big/step-00000001
grep -q 'PUT .*partNumber=3' site/requests.log || fail "the model is too small for parts"
[ -z "$(ls site/uploads)" ] || fail "uploads are left"

# A part that is refused ends the upload, and the save; a run that only that save would have ended fails.
fault PUT partNumber=2 403 AccessDenied
run 1 refused big refused s3://bucket/refused
contains refused.err "rank-0000"
contains refused.err "PUT: the server says 403 AccessDenied: as told; look at the credentials"
[ ! -e site/bucket/refused ] || fail "a part of a checkpoint is left: $(find site/bucket/refused)"
[ -z "$(ls site/uploads)" ] || fail "its upload is left"

# A server that swallows what cleans up after a failed save is asked once, and not for long: the line says what is left.
# Tries without a limit would end otherwise: "Operation too slow", and only then.
fault PUT partNumber=2 403 AccessDenied
fault DELETE rank-0000 -1 none
fault DELETE rank-0000 -1 none
: >site/requests.log
run 1 swallowed big swallowed s3://bucket/swallowed
no_faults
[ "$(grep -c '^DELETE .* -1$' site/requests.log)" = 2 ] || fail "asked more than once: $(grep DELETE site/requests.log)"
grep -q 'warning: .*rank-0000.*: no answer came from .* timed out after .*; what was uploaded of it is left there until the next start' \
    swallowed.err || fail "no line of the upload that is left"
grep -q 'warning: .*rank-0000.*: no answer came from .* timed out after .*; it is left there until a later save or start removes it' \
    swallowed.err || fail "no line of the file that is left"
run 0 restarted big swallowed s3://bucket/swallowed
[ -z "$(ls site/uploads)" ] || fail "the next start left an upload"
same_weights big_local/checkpoints/step-00000001 site/bucket/swallowed/step-00000001

no_secret big refused swallowed
