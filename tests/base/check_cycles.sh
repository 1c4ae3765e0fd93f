#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# check_cycles.sh ROOT [OBJECTS]: circles. Prints each, and fails where there is one.
#
#   Headers and sources under ROOT must not include each other in a circle. Files of one folder must not
#   call each other in one either, so that a module reads downwards: with OBJECTS, a folder of what the
#   compiler made of them (.../src/MODULE/FILE.c.o), who uses a name that who defines is read by nm.
#   Data counts as functions do, for a table is called through.
set -u
cd "$1" || exit 1

# Lines "FROM TO GROUP": keeps what is on a circle of its group, or between two.
peel() {
    awk '
    { edge[$1 " " $2 " " $3] = 1 }
    END {
        do {
            removed = 0
            split("", out)
            split("", in_)
            for (e in edge) { split(e, p, " "); out[p[1] " " p[3]] = in_[p[2] " " p[3]] = 1 }
            for (e in edge) {
                split(e, p, " ")
                if (!((p[2] " " p[3]) in out) || !((p[1] " " p[3]) in in_)) { delete edge[e]; removed++ }
            }
        } while (removed > 0)
        for (e in edge) { split(e, p, " "); print p[3] ": " p[1] " -> " p[2] }
    }' | sort
}

includes() {
    find include src -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | while read -r file; do
        awk -v file="$file" '
        function exists(path, line) {
            if ((getline line < path) < 0) return 0
            close(path)
            return 1
        }
        /^#[ \t]*include[ \t]*"/ {
            split($0, part, "\"")
            folder = file; sub(/[^\/]*$/, "", folder)
            n = split(folder part[2] "|include/" part[2] "|src/" part[2], to, "|")
            for (i = 1; i <= n; i++)
                if (exists(to[i])) { print file, to[i], "includes"; break }
        }' "$file"
    done
}

calls() {
    find "$1" -name '*.o' -path '*/src/*' | while read -r object; do
        nm -P "$object" | awk -v object="$object" '{
            file = object; sub(/^.*\/src\//, "src/", file); sub(/\.o$/, "", file)
            print file, $1, $2
        }'
    done | awk '
    $3 ~ /^[TDRBV]$/ { owner[$2] = $1 }
    $3 == "U" { uses[$1 " " $2] = 1 }
    END {
        for (u in uses) {
            split(u, p, " ")
            if (!(p[2] in owner) || owner[p[2]] == p[1]) continue
            folder = p[1]; sub(/\/[^\/]*$/, "", folder)
            other = owner[p[2]]; sub(/\/[^\/]*$/, "", other)
            if (folder == other) print p[1], owner[p[2]], "calls"
        }
    }'
}

{
    includes | peel
    [ $# -gt 1 ] && calls "$2" | peel
} | awk '{ print } END { exit NR > 0 }'
