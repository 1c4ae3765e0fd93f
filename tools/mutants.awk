# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# Lists what tools/mutants may change in C files, in an order drawn by -v seed=N, one line each:
#   file <tab> line <tab> column <tab> what stands there <tab> what takes its place
#
# Left out: comments, texts, preprocessor lines, the arguments of asserts, of mics_log and of
# mics_fail, {0}, and ++ in the head of a `for`, where nearly every test would see it.
# Binary operators are told from unary ones and from pointers by clang-format's spaces around them.
#
# -v equivalents=LIST names changes that nobody can notice, which are drawn but not printed: a line
# holds a file, a tab and the changed line without its indentation. A line of a file that is read
# here and that no change makes is an error.

function offer(old, new,    changed) {
    if (quiet)
        return
    offers[++count] = FILENAME "\t" FNR "\t" at "\t" old "\t" new
    changed = substr($0, 1, at - 1) new substr($0, at + length(old))
    sub(/^[ \t]+/, "", changed)
    if ((FILENAME "\t" changed) in listed)
        left_out[count] = listed[FILENAME "\t" changed] = 1
}

# Reads the list; what is listed of a file that is not read here has no meaning.
function read_equivalents(    line) {
    while ((getline line < equivalents) > 0) {
        if (line ~ /^src\//)
            listed[line] = 0
    }
    close(equivalents)
}

# Names what is listed and made by no change of the files read.
function check_equivalents(    line) {
    for (line in listed) {
        if (listed[line] == 0 && substr(line, 1, index(line, "\t") - 1) in files) {
            print "mutants: " equivalents " lists what no change makes: " line >"/dev/stderr"
            status = 1
        }
    }
    return status
}

# Small numbers move by one; of large ones, where one more is seldom seen, half is taken.
function offer_number(text,    digits, suffix) {
    match(text, /[uUlLfF]*$/)
    digits = substr(text, 1, RSTART - 1)
    suffix = substr(text, RSTART)
    if (text ~ /^0[xX]/)
        offer(text, "(" text " + 1)")
    else if (text ~ /[.eE]/)
        offer(text, digits + 0 == 0 ? "1.0" suffix : "(2 * " text ")")
    else if (digits + 0 == 1)
        offer(text, "0" suffix)
    else if (digits + 0 < 16)
        offer(text, (digits + 1) suffix)
    else
        offer(text, "(" text " / 2)")
}

function offer_operator(op) {
    if (op == "++" || op == "--") {
        if (!loop)
            offer(op, swapped[op])
    } else if (op == "!") {
        offer(op, "")
    } else if (before == " " && after ~ /^( |$)/) {
        offer(op, swapped[op])
    }
}

# The longest operator that `text` begins with; "" if none is of interest.
function operator_of(text,    n) {
    for (n = 3; n > 0; n--) {
        if (substr(text, 1, n) in swapped || substr(text, 1, n) in passed)
            return substr(text, 1, n)
    }
    return ""
}

function open_paren() {
    depth++
    if (!quiet && previous ~ /^(assert|static_assert|_Static_assert|mics_log|mics_fail)$/)
        quiet = depth
    if (!loop && previous == "for")
        loop = depth
}

function close_paren() {
    if (quiet == depth)
        quiet = 0
    if (loop == depth)
        loop = 0
    depth--
}

# Takes one token off the line; returns its length.
function take(text,    op, word) {
    if (match(text, /^[A-Za-z_][A-Za-z0-9_]*/)) {
        word = substr(text, 1, RLENGTH)
        if (word == "true" || word == "false")
            offer(word, word == "true" ? "false" : "true")
        previous = word
        return length(word)
    }
    if (match(text, /^"([^"\\]|\\.)*"/) || match(text, /^'([^'\\]|\\.)*'/)) {
        previous = "text"
        return RLENGTH
    }
    if (match(text, /^0[xX][0-9A-Fa-f]+[uUlL]*/) ||
        match(text, /^[0-9]+([.][0-9]*)?([eE][-+]?[0-9]+)?[uUlLfF]*/)) {
        word = substr(text, 1, RLENGTH)
        if (previous != "{" || substr(text, RLENGTH + 1, 1) != "}")
            offer_number(word)
        previous = "number"
        return length(word)
    }
    if (substr(text, 1, 1) == "(")
        open_paren()
    else if (substr(text, 1, 1) == ")")
        close_paren()
    op = operator_of(text)
    after = substr(text, length(op) + 1, 1)
    if (op in swapped)
        offer_operator(op)
    previous = substr(text, 1, 1)
    return op == "" ? 1 : length(op)
}

# Park and Miller's generator, exact in doubles: awks agree on it, as they don't on rand().
function draw(below) {
    state = state * 16807 % 2147483647
    return int(state / 2147483647 * below)
}

BEGIN {
    n = split("< <=  > >=  == !=  && ||  + -  * /  += -=  *= /=  ++ --  << >>  & |  &= |=", pair)
    for (i = 1; i < n; i += 2) {
        swapped[pair[i]] = pair[i + 1]
        swapped[pair[i + 1]] = pair[i]
    }
    swapped["%"] = "*"
    swapped["!"] = ""
    n = split("-> <<= >>= ... %= ^= ^ =", pass)
    for (i = 1; i <= n; i++)
        passed[pass[i]] = 1
    if (equivalents != "")
        read_equivalents()
}

FNR == 1 {
    files[FILENAME] = 1
    comment = continued = depth = quiet = loop = 0
}

!comment && (continued || /^[ \t]*#/) {
    continued = /\\$/
    next
}

{
    for (at = 1; at <= length($0);) {
        rest = substr($0, at)
        if (comment) {
            end = index(rest, "*/")
            if (end == 0)
                break
            comment = 0
            at += end + 1
        } else if (rest ~ /^\/\//) {
            break
        } else if (rest ~ /^\/[*]/) {
            comment = 1
            at += 2
        } else if (rest ~ /^[ \t]/) {
            at++
        } else {
            before = at == 1 ? " " : substr($0, at - 1, 1)
            at += take(rest)
        }
    }
}

END {
    if (check_equivalents() != 0)
        exit 2
    state = seed % 2147483646 + 1
    # The first numbers of near seeds are near each other.
    for (i = 0; i < 16; i++)
        draw(1)
    for (i = count; i > 0; i--) {
        j = draw(i) + 1
        if (!(j in left_out))
            print offers[j]
        offers[j] = offers[i]
        delete left_out[j]
        if (i in left_out)
            left_out[j] = 1
    }
}
