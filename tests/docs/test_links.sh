#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_links.sh ROOT: prints each link of a page that leads to no file, or to no heading of one, and each file of the
# repository that a page names, in `...`, and that is not there.
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
    case $page in CHANGELOG.md | bench/results/*) continue ;; esac # of their time
    for file in $(sed '/^```/,/^```/d' "$page" |
        grep -oE '`(src|include|tests|tools|docs|bench|examples|configs|cmake)/[A-Za-z0-9_./*-]+`' | tr -d '`' | sort -u); do
        # shellcheck disable=SC2086 # patterns are meant
        if ! ls -d $file >/dev/null 2>&1 && [ ! -e "$(dirname "$page")/$file" ]; then
            echo "$page: there is no $file"
            wrong=$((wrong + 1))
        fi
    done
done
echo "$pages pages, $wrong links or names of files that lead nowhere"
[ "$pages" -gt 5 ] && [ "$wrong" = 0 ]
