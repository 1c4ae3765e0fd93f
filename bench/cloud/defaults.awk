# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Tables of defaults.sh's rows: PART SHARDING ROUND TOKENS/S STEP_MS EXPOSED_MS MIB HOP_EXPOSED LINK COMPUTE UNIT MEMBER
# HOP_EXPOSED_OF_RANK_0. MEMBER is P|G|O. Figures may be "-".

# The median of a list in `text`, a number a word; its least and most are left in low and high.
function median(text,    n, i, j, swap, list) {
    n = split(text, list, " ")
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && list[j] + 0 < list[j - 1] + 0; j--) {
            swap = list[j]; list[j] = list[j - 1]; list[j - 1] = swap
        }
    low = list[1] + 0; high = list[n] + 0
    return n % 2 ? list[(n + 1) / 2] + 0 : (list[n / 2] + list[n / 2 + 1]) / 2
}

function ranged(text, form,    middle) {
    if (text == "")
        return "-"
    middle = median(text)
    return sprintf(form " (" form " to " form ")", middle, low, high)
}

# A column's figures over the rounds.
function column(part, kind, field,    round, text) {
    for (round = 1; round <= rounds; round++)
        if ((part, kind, round, field) in value)
            text = text " " value[part, kind, round, field]
    return text
}

# Of each round: a sharding's tokens/s over those of another.
function over(part, kind, base, scale,    round, text) {
    for (round = 1; round <= rounds; round++)
        if ((part, kind, round, 4) in value && (part, base, round, 4) in value)
            text = text " " scale * value[part, kind, round, 4] / value[part, base, round, 4]
    return text
}

# Of each round: what was waited for the second hop over its bound; leaves the median bound in `bound`.
function over_bound(part, kind,    round, text, bounds, least) {
    for (round = 1; round <= rounds; round++)
        if ((part, kind, round, 9) in value && value[part, kind, round, 11] > 0) {
            least = value[part, kind, round, 9] - value[part, kind, round, 10]
            least = (least > 0 ? least : 0) + value[part, kind, round, 11]
            bounds = bounds " " least
            text = text " " value[part, kind, round, 8] / least
        }
    bound = bounds == "" ? 0 : median(bounds)
    return text
}

# What the others are compared with: nodes apart, or else the zero3-ring of the highest median.
function base_of(part,    i, kind, most, best) {
    for (i = 1; i <= cases[part]; i++) {
        kind = name[part, i]
        if (kind == "apart")
            return kind
        if (kind ~ /^zero3-ring/ && median(column(part, kind, 4)) > most) {
            most = median(column(part, kind, 4))
            best = kind
        }
    }
    return best
}

# A sharding's speed beside what the others are compared with.
function compared(part, kind, base) {
    if (base == "")
        return ""
    return base == "apart" ? ranged(over(part, kind, base, 100), "%.1f") : ranged(over(part, kind, base, 1), "%.2f")
}

# A sharding's name, and the member of the family that auto took.
function called(part, kind) {
    return kind == "auto" && (part, kind) in member ? kind " " member[part, kind] : kind
}

function print_speeds(part,    i, kind, base, head) {
    base = base_of(part)
    if (base != "")
        head = base == "apart" ? "% of apart" : "times " base
    printf "\n%-7s %-13s %22s %10s %10s %8s   %s\n", "part", "sharding", "tokens/s", "step_ms", "exposed", "MiB", head
    for (i = 1; i <= cases[part]; i++) {
        kind = name[part, i]
        printf "%-7s %-13s %22s %10.1f %10.1f %8.1f   %s\n", part, called(part, kind),
            ranged(column(part, kind, 4), "%.0f"), median(column(part, kind, 5)), median(column(part, kind, 6)),
            median(column(part, kind, 7)), compared(part, kind, base)
    }
}

function print_hop(part, kind,    ratio) {
    ratio = over_bound(part, kind)
    if (bound == 0) {
        printf "%-7s %-13s %9s %9s %9s %9s %9s %9s   %s\n", part, called(part, kind), "-", "-", "-", "-", "-", "-", "-"
        return
    }
    printf "%-7s %-13s %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f   %s\n", part, called(part, kind),
        median(column(part, kind, 13)), median(column(part, kind, 8)),
        median(column(part, kind, 9)), median(column(part, kind, 10)), median(column(part, kind, 11)), bound,
        ranged(ratio, "%.2f")
}

function print_hops(    p, i, kind) {
    printf "\n%-7s %-13s %9s %9s %9s %9s %9s %9s   %s\n", "hop, ms", "sharding", "rank 0", "exposed", "link",
        "compute", "unit", "bound", "exposed / bound"
    for (p = 1; p <= parts; p++)
        for (i = 1; i <= cases[part_name[p]]; i++) {
            kind = name[part_name[p], i]
            if (kind != "apart" && kind !~ /^zero3/)
                print_hop(part_name[p], kind)
        }
}

{
    if (!($1 in cases))
        part_name[++parts] = $1
    if (!(($1, $2) in seen))
        name[$1, ++cases[$1]] = $2
    seen[$1, $2] = 1
    rounds = $3 > rounds ? $3 + 0 : rounds
    if ($12 != "-")
        member[$1, $2] = $12
    for (field = 4; field <= NF; field++)
        if (field != 12 && $field != "-")
            value[$1, $2, $3, field] = $field + 0
}

END {
    for (p = 1; p <= parts; p++)
        print_speeds(part_name[p])
    if (parts)
        print_hops()
}
