#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# Static checks over the files that git tracks. Ends with status 1 if any finds something.
#
#   tools/lint.sh format         clang-format in check mode
#   tools/lint.sh tidy BUILD     clang-tidy; BUILD is a folder configured by CMake
#   tools/lint.sh cppcheck
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}

check_format() {
    git ls-files -z '*.c' '*.h' | xargs -0 clang-format --dry-run -Werror
}

# Files that the build did not compile (another processor's kernels) are left out, since nothing
# says how to compile them. Files that define what analyzer.h stands in for go without it.
check_tidy() {
    local build=$1 analyzer=(--extra-arg=-include "--extra-arg=$PWD/tools/lint/analyzer.h")
    sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$build/compile_commands.json" | sort -u |
        grep "^$PWD/src/.*\.c$" >"$build/tidy.list"
    local plain='/src/base/\(log\|json\)\.c$'
    {
        grep -v "$plain" "$build/tidy.list" |
            xargs -P "$jobs" -n 2 clang-tidy --quiet -p "$build" "${analyzer[@]}" &&
            grep "$plain" "$build/tidy.list" | xargs -P "$jobs" -n 1 clang-tidy --quiet -p "$build"
    } 2>"$build/tidy.err" || { grep -v 'warnings\? generated' "$build/tidy.err" >&2; return 1; }
}

check_cppcheck() {
    cppcheck --quiet -j "$jobs" --std=c11 --language=c --library=posix --inline-suppr \
        --enable=warning,performance,portability --suppress=missingIncludeSystem \
        --suppressions-list=tools/lint/cppcheck.txt --error-exitcode=1 \
        -D_GNU_SOURCE -I include -I src src
}

case ${1:-} in
format) check_format ;;
tidy) check_tidy "${2:?tools/lint.sh tidy BUILD}" ;;
cppcheck) check_cppcheck ;;
*) sed -n '5,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
