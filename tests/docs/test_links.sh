#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_links.sh ROOT: prints each link of a page that leads to no file, or to no heading of one.
set -u
cd "$1" || exit 1

# Headings of a page as the anchors that readers see: lower case, blanks as dashes, no punctuation.
anchors() { # PAGE
    sed -n 's/^##* *//p' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

pages=0 wrong=0
for page in *.md docs/*.md bench/results/*.md tests/*/*.md tests/*/*/*.md examples/*/*.md; do
    [ -f "$page" ] || continue
    pages=$((pages + 1))
    for link in $(sed '/^```/,/^```/d' "$page" | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//' | grep -vE '^(https?|mailto):'); do
        file=${link%%#*} anchor=
        case $link in *#*) anchor=${link#*#} ;; esac
        target=$page
        [ -z "$file" ] || target=$(dirname "$page")/$file
        if [ ! -e "$target" ]; then
            echo "$page: ($link) leads to no file"
            wrong=$((wrong + 1))
        elif [ -n "$anchor" ] && ! anchors "$target" | grep -qxF -- "$anchor"; then
            echo "$page: ($link) leads to no heading of $target"
            wrong=$((wrong + 1))
        fi
    done
done
echo "$pages pages, $wrong links that lead nowhere"
[ "$pages" -gt 5 ] && [ "$wrong" = 0 ]
