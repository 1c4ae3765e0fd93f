#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# Lines of code, scripts and pages by folder, against another commit. A folder that grew by more than
# 10 % is marked: such growth wants a sentence in the commit that brings it.
#
#   tools/ledger.sh [COMMIT]     against COMMIT: origin/main, or main where there is no such branch
set -euo pipefail
cd "$(dirname "$0")/.."
kinds=('*.c' '*.h' '*.cu' '*.cuh' '*.cpp' '*.sh' '*.awk' '*.py' '*.cmake' '*CMakeLists.txt' '*.md' Makefile .ci tools)

find_base() {
    local base
    for base in "$@" origin/main main; do
        git rev-parse -q --verify "$base^{commit}" && return
        [ $# -eq 0 ] || break
    done
    echo "ledger: no commit ${1:-origin/main or main}" >&2
    return 1
}

# "PATH:LINES" of each text file, of the tree at a commit or, without one, of the files as they lie here.
lines_of() { # [COMMIT]
    git grep --no-color -Ic '' "$@" -- "${kinds[@]}" | sed "${1:+s/^$1://}"
}

base=$(find_base "$@")
{
    lines_of "$base" | sed 's/^/old:/'
    lines_of | sed 's/^/new:/'
} | awk -F: '
    # Modules are folders of src, of src/plan and of src/io; the folders of tests too.
    function folder(path, part, depth, n, i, name) {
        n = split(path, part, "/")
        depth = part[1] == "src" || part[1] == "tests" ? part[2] == "plan" || part[2] == "io" ? 3 : 2 : 1
        name = n > 1 ? part[1] : "."
        for (i = 2; i <= depth && i < n; i++)
            name = name "/" part[i]
        return name
    }
    function row(name,    old, new, more) {
        old = lines["old", name]
        new = lines["new", name]
        more = old == 0 ? "new" : sprintf("%+.1f %%%s", 100 * (new - old) / old, 10 * (new - old) > old ? "  <- over 10 %" : "")
        return sprintf("%-20s %8d %8d %+8d  %s", name, old, new, new - old, more)
    }
    {
        name = folder($2)
        lines[$1, name] += $3
        names[name]
        lines[$1, "total"] += $3
        if (name ~ /^src\//)
            lines[$1, "src in all"] += $3
    }
    END {
        printf "%-20s %8s %8s %8s\n", "lines in", "before", "now", "change"
        fflush()
        for (name in names)
            print row(name) | "sort"
        close("sort")
        print row("src in all")
        print row("total")
    }'
