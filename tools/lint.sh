#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# Static checks over the files that git tracks. Ends with status 1 if any finds something.
#
#   tools/lint.sh format         clang-format in check mode; lines of a source, and of what README.md has a newcomer read
#   tools/lint.sh words          words of ours where the field has one, beyond what tools/lint/words.txt allows
#   tools/lint.sh tidy BUILD [COMMIT]
#                                clang-tidy; BUILD is a folder configured by CMake
#   tools/lint.sh cppcheck [COMMIT]
#   tools/lint.sh since tidy|cppcheck COMMIT
#                                the sources that the tool looks at with this commit
#   tools/lint.sh spills BUILD   registers that nvcc spills, by BUILD/nvcc.log, beyond tools/lint/spills.txt
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}

check_format() {
    git ls-files -z '*.c' '*.h' '*.cu' '*.cuh' | xargs -0 clang-format --dry-run -Werror
    git ls-files -z 'src/*' | xargs -0 wc -l | awk '
        $2 != "total" && $1 > 600 { print $2 ": " $1 " lines, where 600 are the most"; bad = 1 }
        END { exit bad }'
    sed -n '/read in this order/,/^What a new op/p' README.md | grep -oE '(docs|include|src)/[a-z0-9_/]+\.(md|[ch])' | sort -u |
        xargs cat | awk 'END { if (NR > 5000) print "what README.md says to read: " NR " lines, where 5000 are the most"; exit NR > 5000 }'
}

# The text of the tree and the names of its files; what others wrote, and what happened once, is left out.
words_text() {
    local files=(include src tests examples bench tools '*.md' ':!CHANGELOG.md' ':!bench/results' ':!examples/corpus' ':!examples/chats.jsonl' ':!examples/chat/tokenizer.json'
        ':!tests/golden' ':!tests/fuzz/corpus' ':!tests/docs/test_words.sh' ':!tools/lint/words.txt')
    git ls-files "${files[@]}"
    git ls-files -z "${files[@]}" | xargs -0 cat --
}

check_words() {
    local text row most ours theirs uses case status=0
    text=$(mktemp)
    words_text >"$text"
    while IFS= read -r row; do
        theirs=${row##*=} ours=${row%=*} case=-i
        most=${ours%% *} ours=${ours#* }
        [[ $ours != *[A-Z]* ]] || case=
        uses=$({ LC_ALL=C grep -aoE $case -- "(^|[^A-Za-z])($ours)([^A-Za-z]|\$)" "$text" || true; } | wc -l)
        if [ "$uses" -gt "$most" ]; then
            echo "words: $ours: $uses uses, where tools/lint/words.txt allows $most (say: $theirs); git grep -nE $case '$ours'"
            status=1
        elif [ "$uses" -lt "$most" ]; then
            echo "words: $ours: $uses uses left; lower the $most in tools/lint/words.txt"
        fi
    done < <(grep '^[0-9]' tools/lint/words.txt)
    rm -f "$text"
    return $status
}

# Whether what a tool is told, and so may find anywhere, differs since a commit.
told_since() { # tidy|cppcheck COMMIT
    local files=(.clang-tidy tools/lint/analyzer.h cmake/MicsCompile.cmake)
    local told='/[a]nalyzer=(\|[x]args .*clang-tidy/p; /^commands_once() {/,/^}/p'
    if [ "$1" = cppcheck ]; then
        files=(tools/lint/cppcheck.txt)
        told='/^ *cppcheck --quiet/,/[^\\]$/p'
    fi
    ! git diff --quiet "$2" -- "${files[@]}" ||
        ! cmp -s <(git show "$2:tools/lint.sh" | sed -n "$told") <(sed -n "$told" tools/lint.sh)
}

# Sources of src that differ since a commit; and of each file that differs, and that none of them includes, one source that
# does. All, where what the tool is told differs. With COMMIT, tidy and cppcheck look at these alone.
sources_since() { # tidy|cppcheck COMMIT
    local base=$2 sources
    mapfile -t sources < <(git ls-files 'src/*.c')
    if told_since "$1" "$base"; then
        printf '%s\n' "${sources[@]}"
        return
    fi
    "${CC:-cc}" -x c -MM -MG -D_GNU_SOURCE -Iinclude -Isrc "${sources[@]}" |
        awk 'NR == FNR { changed[$0]; next }
             { more = sub(/\\$/, ""); rule = rule " " $0 }
             more { next }
             {
                 count = split(rule, part, " ")
                 rule = ""
                 source = part[2]
                 if (!(source in changed))
                     others[++other_count] = source
                 else
                     print source
                 for (i = 3; i <= count; i++)
                     if (part[i] in changed && source in changed)
                         seen[part[i]]
                     else if (part[i] in changed)
                         includes[source] = includes[source] " " part[i]
             }
             END {
                 for (other = 1; other <= other_count; other++) {
                     count = split(includes[others[other]], part, " ")
                     fresh = 0
                     for (i = 1; i <= count; i++)
                         if (!(part[i] in seen)) {
                             seen[part[i]]
                             fresh = 1
                         }
                     if (fresh)
                         print others[other]
                 }
             }' <(git diff --name-only "$base" --) -
}

# clang-tidy checks a file once for each command that compiles it, and a kernel has one for each dtype and
# instruction set. Instruction sets differ in flags and in the number of lanes alone: of each dtype the
# last command stays, which is of the widest registers.
commands_once() {
    awk '/^ *"directory": / { directory = $0 }
         /^ *"command": / { command = $0 }
         /^ *"file": / {
             sub(/,$/, "")
             key = $0 (command ~ / -DMICS_ELEM_BF16 / ? "bf16" : "")
             if (!(key in entry))
                 keys[++count] = key
             entry[key] = "{\n" directory "\n" command "\n" $0 "\n}"
         }
         END {
             print "["
             for (i = 1; i <= count; i++)
                 print entry[keys[i]] (i < count ? "," : "")
             print "]"
         }' "$1"
}

# Files that the build did not compile (another processor's kernels) are left out, since nothing
# says how to compile them. Files that define what analyzer.h stands in for go without it.
check_tidy() {
    local build=$1 base=${2:-} analyzer=(--extra-arg=-include "--extra-arg=$PWD/tools/lint/analyzer.h")
    mkdir -p "$build/tidy"
    commands_once "$build/compile_commands.json" >"$build/tidy/compile_commands.json"
    sed -n 's/^ *"file": "\(.*\)"$/\1/p' "$build/tidy/compile_commands.json" | sort -u |
        grep "^$PWD/src/.*\.c$" >"$build/tidy.list"
    if [ -n "$base" ]; then
        sources_since tidy "$base" | sed "s|^|$PWD/|" | sort | comm -12 - "$build/tidy.list" >"$build/tidy.since"
        mv "$build/tidy.since" "$build/tidy.list"
        echo "tidy: $(wc -l <"$build/tidy.list") sources differ since $base"
    fi
    local plain='/src/base/\(log\|json\)\.c$'
    {
        sed "\\#$plain#d" "$build/tidy.list" |
            xargs -r -P "$jobs" -n 2 clang-tidy --quiet -p "$build/tidy" "${analyzer[@]}" &&
            sed -n "\\#$plain#p" "$build/tidy.list" | xargs -r -P "$jobs" -n 1 clang-tidy --quiet -p "$build/tidy"
    } 2>"$build/tidy.err" || { grep -v 'warnings\? generated' "$build/tidy.err" >&2; return 1; }
}

check_cppcheck() {
    local sources=(src)
    if [ $# -gt 0 ]; then
        mapfile -t sources < <(sources_since cppcheck "$1")
        echo "cppcheck: ${#sources[@]} sources differ since $1"
        [ ${#sources[@]} -gt 0 ] || return 0
    fi
    cppcheck --quiet -j "$jobs" --std=c11 --language=c --library=posix --inline-suppr \
        --enable=warning,performance,portability --suppress=missingIncludeSystem \
        --suppressions-list=tools/lint/cppcheck.txt --error-exitcode=1 \
        -D_GNU_SOURCE -I include -I src "${sources[@]}"
}

# The table is of one release of nvcc; another one's spills are shown, and fail nothing.
check_spills() {
    local build=$1 table=tools/lint/spills.txt release
    release=$(sed -n 's/^set(CMAKE_CUDA_COMPILER_VERSION "\([0-9]*[.][0-9]*\).*/\1/p' "$build"/CMakeFiles/*/CMakeCUDACompiler.cmake)
    # Of names the result, namespaces and arguments are dropped; what stays is "sm_90 BYTES kernel<arguments>".
    awk '/Compiling entry function/ { gsub(/\047/, ""); kernel = $(NF - 2); chip = $NF }
         /bytes spill stores/ { split($0, part, ","); print chip, part[2] + part[3], kernel; kernel = "" }' "$build/nvcc.log" |
        c++filt | sed -e 's/ void / /' -e 's/(anonymous namespace):://g' -e 's/(.*//' | sort -k1,1 -k3 >"$build/spills.txt"
    [ -s "$build/spills.txt" ] || { echo "spills: $build/nvcc.log tells of no kernel" >&2; return 1; }
    awk -v table="$table" -v release="$release" -v all="$build/spills.txt" '
        function name(i, text) { for (i = 3; i <= NF; i++) text = text " " $i; return $1 text }
        FILENAME == table && /^nvcc / { of = $2 }
        FILENAME == table && /^sm_/ { allowed[name()] = $2 }
        FILENAME == all { kernels++ }
        FILENAME == all && $2 > allowed[name()] + 0 { print "spills: beyond " table ": " $0; beyond++ }
        FILENAME == all && $2 < allowed[name()] + 0 { print "spills: fewer than " table " has: " $0 }
        END {
            if (of != release) print "spills: the table is of nvcc " of ", this is " release ": nothing fails"
            print "spills: " kernels " kernels, " beyond + 0 " beyond the table"
            exit beyond > 0 && of == release
        }' "$table" "$build/spills.txt"
}

case ${1:-} in
format) check_format ;;
words) check_words ;;
tidy) check_tidy "${2:?tools/lint.sh tidy BUILD}" "${3:-}" ;;
cppcheck) check_cppcheck "${@:2}" ;;
since) sources_since "${2:?tools/lint.sh since tidy|cppcheck COMMIT}" "${3:?tools/lint.sh since tidy|cppcheck COMMIT}" ;;
spills) check_spills "${2:?tools/lint.sh spills BUILD}" ;;
*) sed -n '5,18s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
