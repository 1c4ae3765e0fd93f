# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# The man page that is built has each flag of each verb, and no line that a reader of man pages trips over.
. "$(dirname "$0")/lib.sh"
root=$golden/../..
run 0 page sh "$root/tools/man.sh" "$mics"
verbs=$("$mics" --help | sed -n '/lists a verb/q; s/^  \([a-z][a-z]*\)  *.*/\1/p')
for verb in $verbs "bench comm" "bench compute"; do
    # shellcheck disable=SC2086 # two words
    "$mics" $verb --help | sed -n "s/^  \(--[a-z0-9-]*\).*/$verb \1/p"
done | sort >flags.txt
sed 's/\\-/-/g' page.out | awk '/^\.SS / { verb = substr($0, 5) } /^\.B --/ { print verb, $2 }' | sort >shown.txt
[ "$(wc -l <flags.txt)" -gt 100 ] || fail "these flags are too few to be all: $(cat flags.txt)"
diff flags.txt shown.txt >difference.txt || fail "the page has other flags: $(cat difference.txt)"
if command -v groff >/dev/null 2>&1; then
    run 0 shown groff -man -Tascii -ww page.out
    [ ! -s shown.err ] || fail "groff warns: $(head -n 3 shown.err)"
    contains shown.out "mpirun -n 4 mics train examples"
fi
