# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# Sums what `gcov --stdout` says of many objects into a table by folder of src. For tools/coverage,
# which gives -v root=CHECKOUT/ -v wanted="[FOLDER=]PERCENT..." -v missed=PATH. Exits with status 1
# where less than what is wanted ran.
#
# A line of gcov is COUNT:NUMBER:TEXT; COUNT is "-" where there is no code, and "#####" or "====="
# where it did not run. Number 0 has what is said of the file. A source that is in several objects,
# such as a header, comes several times.

function percent(path) {
    return lines[path] == 0 ? 0 : 100 * ran[path] / lines[path]
}

# Says where less ran of a path than is wanted.
function judge(path, least) {
    if (path in lines && percent(path) >= least)
        return
    printf "coverage: %.1f %% of %s ran, %s %% are wanted\n", percent(path), path, least
    status = 1
}

function row(name, path) {
    return sprintf("%-16s %7d %7d %7.1f %%", name, lines[path], ran[path], percent(path))
}

# Counts a line of the file for it and for every folder above it.
function count(path, runs) {
    do {
        lines[path]++
        ran[path] += runs > 0
    } while (sub(/\/[^\/]*$/, "", path))
}

BEGIN {
    FS = ":"
    sorted = "LC_ALL=C sort -t: -k1,1 -k2,2n"
}

$2 + 0 == 0 && $3 == "Source" {
    source = substr($0, index($0, ":Source:") + 8)
    if (index(source, root) == 1)
        source = substr(source, length(root) + 1)
    # A compiler cache makes it relative to the folder that it was compiled in.
    sub(/^([.][.]\/)+/, "", source)
    # Notes of a source that was moved or removed since stay in the build.
    counted = source ~ /^src\// && (getline ignored < (root source)) >= 0
    close(root source)
}

counted && $2 + 0 > 0 && $1 ~ /[0-9#=]/ {
    runs[source ":" $2 + 0] += $1 !~ /[#=]/
}

END {
    for (at in runs) {
        path = at
        sub(/:.*/, "", path)
        count(path, runs[at])
        if (missed != "" && runs[at] == 0 && (index(at, missed "/") == 1 || path == missed))
            print at | sorted
    }
    close(sorted)
    printf "%-16s %7s %7s\n", "folder", "lines", "ran"
    for (path in lines) {
        if (path ~ /^src\/[^\/]*$/)
            print row(path, path) | sorted
    }
    close(sorted)
    print row("all", "src")
    status = 0
    n = split(wanted, want, " ")
    for (i = 1; i <= n; i++) {
        path = index(want[i], "=") ? want[i] : "src=" want[i]
        least = path
        sub(/=.*/, "", path)
        sub(/.*=/, "", least)
        if (path != "each") {
            judge(path, least + 0)
            continue
        }
        for (folder in lines) {
            if (folder ~ /^src\/[^\/]*$/)
                judge(folder, least + 0)
        }
    }
    exit status
}
