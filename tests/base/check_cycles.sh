#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# check_cycles.sh ROOT [OBJECTS...]: circles. Prints the edges of each, and fails where there is one.
#
#   Headers and sources under ROOT must not include each other in a circle. Files of one folder must not
#   call each other in one either, so that a module reads downwards: with OBJECTS, folders of what the
#   compiler made of them (.../src/MODULE/FILE.c.o), nm says who uses a name that another file defines.
#   Data counts as functions do, for a table is called through.
set -u
root=$1
shift

# Folders whose files still call each other in a circle.
allowed='^src/(run|config|io/data)$'

# Of lines "GROUP FROM TO" those that are on a circle of their group, or between two.
circles() {
    awk '
    { edge[$0] = 1 }
    END {
        do {
            removed = 0
            split("", begins)
            split("", ends)
            for (e in edge) {
                split(e, p, " ")
                begins[p[1] " " p[2]] = ends[p[1] " " p[3]] = 1
            }
            for (e in edge) {
                split(e, p, " ")
                if ((p[1] " " p[3]) in begins && (p[1] " " p[2]) in ends)
                    continue
                delete edge[e]
                removed++
            }
        } while (removed > 0)
        for (e in edge) {
            split(e, p, " ")
            print p[2] " " p[1] " " p[3]
        }
    }' | sort
}

includes() {
    cd "$root" || exit 1
    find include src -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | xargs grep -H '^#[ 	]*include[ 	]*"' /dev/null |
        awk '
        {
            split($0, part, "\"")
            file = $0
            sub(/:.*/, "", file)
            from[NR] = file
            name[NR] = part[2]
            known[file] = 1
        }
        END {
            for (i = 1; i <= NR; i++) {
                folder = from[i]
                sub(/[^\/]*$/, "", folder)
                n = split(folder name[i] "|include/" name[i] "|src/" name[i], to, "|")
                for (k = 1; k <= n; k++) # who includes nothing is on no circle
                    if (to[k] in known)
                        print "includes", from[i], to[k]
            }
        }'
}

calls() {
    find "$@" -path '*src/*.o' | xargs nm -A -P | awk -v allowed="$allowed" -v root="$root" '
    function is_there(file, line, read) { # a build folder keeps the objects of files that are gone
        read = (getline line < (root "/" file))
        close(root "/" file)
        return read >= 0
    }
    {
        file = $1
        sub(/\.o:.*/, "", file)
        sub(/CMakeFiles\/[^\/]*\.dir\//, "", file)
        sub(/^(.*\/)?src\//, "src/", file)
        if (!(file in there))
            there[file] = is_there(file)
        if (!there[file])
            next
        if ($3 ~ /^[TDRBV]$/)
            owner[$2] = file
        else if ($3 == "U")
            uses[file " " $2] = 1
    }
    END {
        for (u in uses) {
            split(u, p, " ")
            if (!(p[2] in owner) || owner[p[2]] == p[1])
                continue
            folder = p[1]
            other = owner[p[2]]
            sub(/\/[^\/]*$/, "", folder)
            sub(/\/[^\/]*$/, "", other)
            if (folder == other && folder !~ allowed)
                print "calls", p[1], owner[p[2]]
        }
    }'
}

{
    (includes) | circles
    [ $# -gt 0 ] && calls "$@" | circles
} | awk '{ print } END { exit NR > 0 }'
