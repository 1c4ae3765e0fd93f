#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# check_runpath.sh FOLDERS FILE...: where programs and libraries have the loader look (RUNPATH or RPATH).
# An element is $ORIGIN, a path below it, or one of FOLDERS (separated by colons, may be empty).
# Exits 77 (skipped) when there is no readelf.
set -u
folders=$1
shift
[ $# -gt 0 ] || { echo "usage: check_runpath.sh FOLDERS FILE..."; exit 2; }
command -v readelf >/dev/null 2>&1 || { echo "skipped: no readelf"; exit 77; }

wrong=0
say() {
    echo "$file: $1"
    wrong=$((wrong + 1))
}

# One element; an empty one, at either end too, is the current directory.
# shellcheck disable=SC2016 # The loader expands $ORIGIN, not the shell.
check_element() {
    case $1 in
    '') say "empty element, which is the current directory" ;;
    '$ORIGIN' | '$ORIGIN/'*) ;;
    /*) case :$folders: in *":$1:"*) ;; *) say "\"$1\" is a folder of the machine that built it" ;; esac ;;
    *) say "\"$1\" is relative to the current directory" ;;
    esac
}

for file in "$@"; do
    dynamic=$(LC_ALL=C readelf -dW "$file") || exit 1
    rest=$(printf '%s\n' "$dynamic" | sed -n 's/.*(R\(UN\)\{0,1\}PATH).*\[\(.*\)\]$/\2:/p' | tr -d '\n')
    while [ -n "$rest" ]; do
        check_element "${rest%%:*}"
        rest=${rest#*:}
    done
done
[ "$wrong" -eq 0 ] || { echo "$wrong elements are wrong"; exit 1; }
