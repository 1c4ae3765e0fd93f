# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Reads the list, then machine code with C++ names, and compares; see check_sass.sh.
#
# A line of the list: kernel's name without what is in round brackets | bounds, such as LDG.128>=4
# STG.16<=2. Widths are in bits. A name ends with * where what follows does not matter.

function bounds_of(text, parts, n, i)
{
    n = split(text, parts, /[ \t]+/)
    for (i = 1; i <= n; i++)
        if (parts[i] != "" && parts[i] !~ /^(LDG|STG)[.](8|16|32|64|128|256)(>=|<=)[0-9]+$/) {
            printf "check_sass: %s: \"%s\" is not a bound; such as LDG.128>=4 is\n", list, parts[i]
            failed = 1
        }
    return text
}

function width_of(op)
{
    if (op ~ /[.]256/) return 256
    if (op ~ /[.]128/) return 128
    if (op ~ /[.]64/) return 64
    if (op ~ /[.][US]16/) return 16
    if (op ~ /[.][US]8/) return 8
    return 32
}

function matches(pattern, name)
{
    if (pattern ~ /[*]$/)
        return substr(name, 1, length(pattern) - 1) == substr(pattern, 1, length(pattern) - 1)
    return name == pattern
}

function check(at, bounds, parts, n, i, bound, field, limit, has)
{
    n = split(bounds, parts, /[ \t]+/)
    for (i = 1; i <= n; i++) {
        bound = parts[i]
        if (bound == "") continue
        field = bound
        sub(/[<>]=.*/, "", field)
        limit = bound
        sub(/.*=/, "", limit)
        has = count[at, field] + 0
        if (bound ~ />=/ ? has < limit + 0 : has > limit + 0) {
            printf "check_sass: %s, %s: %d of %s, and %s is listed\n", name_of[at], arch_of[at], has, field, bound
            failed = 1
        }
    }
}

BEGIN {
    while ((getline line < list) > 0) {
        if (line ~ /^[ \t]*(#|$)/) continue
        bar = index(line, "|")
        name = substr(line, 1, bar - 1)
        gsub(/^[ \t]+|[ \t]+$/, "", name)
        patterns[++listed] = name
        wanted[listed] = bounds_of(substr(line, bar + 1))
    }
    if (!listed) {
        printf "check_sass: %s lists nothing\n", list
        failed = 1
    }
}

/^[ \t]*code for sm_/ { arch = $3 }
/Function : / {
    name = $0
    sub(/.*Function : /, "", name)
    sub(/^void /, "", name)
    gsub(/\(anonymous namespace\)::/, "", name)
    sub(/\(.*/, "", name)
    name_of[++kernels] = name
    arch_of[kernels] = arch
}
/[ \t](LDG|STG)[.]/ {
    match($0, /(LDG|STG)[.A-Z0-9]*/)
    op = substr($0, RSTART, RLENGTH)
    count[kernels, substr(op, 1, 3) "." width_of(op)]++
}

END {
    for (p = 1; p <= listed; p++) {
        found = 0
        for (k = 1; k <= kernels; k++)
            if (matches(patterns[p], name_of[k])) {
                check(k, wanted[p])
                found++
            }
        if (!found) {
            printf "check_sass: there is no kernel %s\n", patterns[p]
            failed = 1
        }
        checked += found
    }
    if (!failed)
        printf "check_sass: %d kernels of %d have the widths that are listed\n", checked, kernels
    exit failed
}
