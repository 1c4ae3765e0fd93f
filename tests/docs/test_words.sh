#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_words.sh ROOT: prints each line of a page that has a word of ours where the field has one, each line
# of prose over 100 columns, and each sentence of more than 30 words.
set -u
cd "$1" || exit 1

# Rows "USES OURS=THE FIELD'S", which say how often the code may still use them; pages use none.
words=$(sed -n '/^\[pages and code\]/,/^\[code\]/s/^[0-9]* //p' tools/lint/words.txt)

# Without code, tables of what a key was called before, and keys' rows, which are the program's own texts (test_config).
prose() { # PAGE
    sed -e '/^ *```/,/^ *```/s/.*//' \
        -e '/^ *| was | is |/,/^ *$/s/.*//' -e '/^| `[a-z_0-9.]*` | .* | .* |/s/.*//' -e 's/`products\.bin`//' "$1"
}

old_words() { # PAGE
    echo "$words" | while IFS='=' read -r ours theirs; do
        prose "$1" | grep -nwiE -- "$ours" | sed "s|^|$1:|; s|\$|   (say: $theirs)|"
    done
}

# Rows of tables cannot be broken.
long_lines() { # PAGE
    prose "$1" | awk -v page="$1" '
        length > 100 && !/^ *\|/ { print page ":" NR ": has " length " columns" }'
}

# A sentence, or a part of it between colons or semicolons; an item of a list is one by itself.
long_sentences() { # PAGE
    prose "$1" | awk -v page="$1" '
        function end(    parts, words, i, n) {
            gsub(/\]\([^)]*\)/, "]", text)
            n = split(text, parts, /[.!?:;]["`*)]*( |$)/)
            for (i = 1; i <= n; i++)
                if (split(parts[i], words, /[ \t]+/) > 30)
                    print page ": more than 30 words: " parts[i]
            text = ""
        }
        /^ *$/ || /^ *\|/ || /^#/ || /^    / { end(); next }
        /^ *([-*]|[0-9]+\.) / { end() }
        { text = text " " $0 }
        END { end() }'
}

count=0
found=$(mktemp)
trap 'rm -f "$found"' EXIT
for page in *.md docs/*.md tests/*/*.md tests/*/*/*.md examples/*/*.md; do
    [ -f "$page" ] || continue
    count=$((count + 1))
    { old_words "$page"; long_lines "$page"; long_sentences "$page"; } >>"$found"
done
cat "$found"
echo "$count pages, $(wc -l <"$found") lines to mend"
[ "$count" -gt 15 ] && [ -n "$words" ] && [ ! -s "$found" ]
