# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# What the tests on an emulated cloud ($2) share; sourced with the program as $1, in place of ../cli/lib.sh.
. "$(dirname "$0")/../cli/lib.sh"
cloud=$2
# Of its own name, so that it neither meets nor ends somebody's cloud; the name is in the environment of
# every process of the cloud.
export CLOUD="t$$"
trap '"$cloud" down; [ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT

"$cloud" check >check.out 2>check.err
case $? in
0) ;;
3) cat check.err && exit 77 ;;
*) fail "cloud check: $(cat check.err)" ;;
esac
