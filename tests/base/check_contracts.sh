#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# check_contracts.sh ROOT [NOT_YET]: whether every prototype of ROOT/include/mics, and of headers that modules
# of ROOT/src show to each other, has its contract. Prints
# each that has not, with what it lacks. NOT_YET names headers, one a line, that may fail until they are
# mended; one that no longer fails must leave that list.
#
# A prototype's comment stands right before it. Prototypes without a blank line between them share one.
#   comment   always
#   Returns   mics_status: a line "Returns:". A pointer: that, or what it says of NULL. bool: that, or
#             "Whether ..." to begin with
#   Owns      something is opened (_open), taken over (_take), or given out (**x_out)
#   Needs     numbers are passed by value, which may be wrong
#   Shapes    arrays of numbers are passed: pointers to float, and to other numbers unless they end in _out
#   Units     floating-point numbers are passed or returned, and no name says the unit
set -u
root=$1
not_yet=${2:-/dev/null}
cd "$root" || exit 1

# Headers that users do not get, and that one module of src shows to the others.
faces="src/base/json.h src/config/config.h src/io/data/data.h src/model/from_config.h src/ops/kernels.h
    src/plan/cost/cluster.h src/plan/cost/cost.h src/plan/cost/software.h src/plan/goodput/goodput.h src/plan/offers/planning.h
    src/plan/search/plan.h src/plan/search/baseline.h src/plan/search/estimate.h src/plan/simulate/simulate.h src/schedule/layered.h
    src/schedule/rules.h"

for file in include/mics/*.h include/mics/core/*.h $faces; do
    [ -f "$file" ] && echo "$file"
done | awk -v not_yet="$not_yet" '
BEGIN {
    unit = "(_|^)(bytes|elems|s|us|ms|ns|seconds|flops|tokens|gib|mib|ranks|usd)(_out)?$"
    number = "(u?int(8|16|32|64)?_t|size_t|int|long|unsigned|double|float)"
    while ((getline text < not_yet) > 0)
        if (text !~ /^#/ && text != "")
            excused[text] = 1
}
function lack(what) {
    lacks = lacks (lacks == "" ? "" : ", ") what
}
# One parameter: what it asks of the contract.
function weigh(parameter, name, pointers) {
    gsub(/(^|[^a-zA-Z_])(const|restrict|struct)([^a-zA-Z_]|$)/, " ", parameter)
    name = parameter
    gsub(/\[[^]]*\]/, "*", parameter)
    sub(/[ *]*(\[[^]]*\])*[ ]*$/, "", name)
    sub(/\[.*$/, "", name)
    sub(/^.*[ *]/, "", name)
    pointers = gsub(/\*/, "*", parameter)
    if (pointers == 2 && name ~ /_out$/)
        owns = 1
    if (pointers == 0 && parameter ~ ("^ *" number " "))
        needs = 1
    if (pointers == 1 && parameter ~ ("^ *" number "[ *]") && (name !~ /_out$/ || parameter ~ /^ *float/))
        shapes = 1
    if (parameter ~ /^ *(double|float)[ *]/ && pointers < 2 && name !~ unit && name !~ /_per_/)
        units = 1
}
function check(signature, line, head, name, type, list, i, count, parts) {
    prototypes++
    sub(/^(static|inline|extern)[ ]+/, "", signature)
    sub(/^(static|inline|extern)[ ]+/, "", signature)
    head = signature
    sub(/[ ]*\(.*$/, "", head)
    name = head
    sub(/^.*[ *]/, "", name)
    type = substr(head, 1, length(head) - length(name))
    list = signature
    sub(/^[^(]*\(/, "", list)
    sub(/\)[^)]*$/, "", list)
    sub(/\) *MICS_PRINTF.*$/, "", list)
    owns = name ~ /_open(_|$)/ || name ~ /_take(_|$)/
    needs = shapes = 0
    units = type ~ /^(double|float) *$/ && name !~ unit && name !~ /_per_/
    count = split(list, parts, ",")
    for (i = 1; i <= count; i++)
        weigh(parts[i])
    lacks = ""
    if (comment == "")
        lack("a comment")
    if (type ~ /mics_status/ && comment !~ /Returns:/)
        lack("Returns:")
    if (type ~ /\*/ && comment !~ /Returns:|NULL/)
        lack("Returns: or what it says of NULL")
    if (type ~ /bool/ && comment !~ /Returns:|^[^a-zA-Z]*Whether/)
        lack("Returns: or \"Whether\"")
    if (owns && comment !~ /Owns:/)
        lack("Owns:")
    if (needs && comment !~ /Needs|needs/)
        lack("Needs:")
    if (shapes && comment !~ /Shapes:/)
        lack("Shapes:")
    if (units && comment !~ /Units:/)
        lack("Units:")
    if (lacks == "")
        return
    wrong[file] = wrong[file] "\n" file ":" line ": " name " lacks " lacks
    failures[file]++
}
# A whole declaration of the file; only prototypes count.
function declaration(text, line) {
    gsub(/[ \t]+/, " ", text)
    sub(/[{;].*$/, "", text)
    sub(/ *$/, "", text)
    if (text ~ /^(typedef|struct|union|enum|static const|_Static_assert|extern const)/ || text !~ /\(/)
        return
    check(text, line)
}
function read_header(line, text, depth, statement, begin, was_comment, opened) {
    comment = statement = ""
    line = depth = was_comment = 0
    while ((getline text < file) > 0) {
        line++
        if (statement == "") {
            if (in_comment) {
                comment = comment "\n" text
                in_comment = text !~ /\*\//
                continue
            }
            if (text ~ /^[ \t]*$/) {
                comment = ""
                was_comment = 0
                continue
            }
            if (in_macro || text ~ /^#/) {
                in_macro = text ~ /\\$/
                continue
            }
            if (text ~ /^\/\//) {
                comment = (was_comment ? comment "\n" : "") text
                was_comment = 1
                continue
            }
            if (text ~ /^\/\*/) {
                comment = text
                in_comment = text !~ /\*\//
                continue
            }
            if (text ~ /^extern "C"/ || text ~ /^[}]/)
                continue
            was_comment = 0
            begin = line
        }
        sub(/\/\/.*$/, "", text)
        gsub(/\/\*([^*]|\*[^\/])*\*\//, "", text)
        statement = statement " " text
        sub(/^ +/, "", statement)
        opened = gsub(/[{]/, "{", text)
        depth += opened - gsub(/[}]/, "}", text)
        if (depth == 0 && (text ~ /;[ \t]*$/ || (text ~ /[}][ \t]*$/ && statement !~ /^typedef/))) {
            declaration(statement, begin)
            statement = ""
        }
    }
    close(file)
}
{
    file = $0
    files++
    read_header()
    base = file
    sub(/^.*\//, "", base)
    lacking += base in excused ? 0 : failures[file]
    if (!(base in excused) && failures[file] > 0)
        print substr(wrong[file], 2)
    if (base in excused && failures[file] == 0) {
        print file ": has all its contracts now; take it off " not_yet
        lacking++
    }
    if (base in excused)
        later += failures[file]
}
END {
    if (prototypes == 0)
        print "nothing to check"
    else
        printf "%d prototypes in %d headers: %d lack something, %d more in headers not yet done\n", prototypes, files,
            lacking, later
    exit prototypes == 0 || lacking > 0
}'
