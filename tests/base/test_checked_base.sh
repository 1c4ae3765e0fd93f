#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_checked_base.sh SOURCE: which commit .ci/run compares with, in clones of a small repository: on main, on a branch, told by
# CI_BASE, and where history is missing; what a full run reports; and which sources tidy and cppcheck look at with that commit.
set -u
command -v git >/dev/null && command -v bash >/dev/null || { echo "skipped: needs git and bash"; exit 77; }
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CI_BASE CI_FULL
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

commit() { # prints what it made
    git add -A && git commit -q --allow-empty -m "a change" && git rev-parse HEAD
}

compares_with() { # COMMIT WHERE: `all` for everything
    said=$(bash .ci/run base 2>&1) || fail "$2: $said"
    case $1 in
    all) expected="compares with nothing: all is looked at" ;;
    *) expected="compares with $1" ;;
    esac
    [ "$(printf '%s\n' "$said" | sed -n 2p)" = "$expected" ] || fail "$2: \"$said\", expected \"$expected\""
}

git init -q -b main "$work/origin" && cd "$work/origin" || fail "no repository"
mkdir -p .ci bench/results
cp "$source/.ci/run" .ci/run
first=$(commit)
compares_with all "nothing names a commit"
echo "$first" >.ci/checked
second=$(commit)
compares_with "$first" "main"
third=$(commit)
CI_BASE=$second compares_with "$second" "CI_BASE"
CI_FULL=1 compares_with all "a full run"

echo "$third" >.ci/checked
fourth=$(commit)
compares_with "$third" "main, moved on"
echo 0123456789012345678901234567890123456789 >.ci/checked
compares_with all "a commit that is not there"
echo "$third" >.ci/checked

# ---- a full run's report ----
report=bench/results/ci_full.txt
sed -i 's/^main "\$@"$//' .ci/run
cat >>.ci/run <<'END'
phase_deps() { :; }
phase_format() { :; }
phase_build() { :; }
phase_asan() { echo "100% tests passed, $(cat asan) of them"; }
phase_tsan() { [ -e tsan ] && echo "100% tests passed"; }
main "$@"
END
printf 'build-ci/\nsaid\n' >.gitignore
echo 7 >asan
fifth=$(commit)
full_run() { # PHASE...
    CI_FULL=1 bash .ci/run "$@" >said 2>&1
}
reports() { # PHASE COMMIT FINDING
    grep -A 1 "^== $1: $2 .* s\$" $report | tail -n 1 | grep -q "$3" || fail "no row of $1 at $2: $3; $(cat $report)"
}
full_run asan tsan && fail "a phase that fails passes"
reports asan "$fifth" "7 of them"
grep -q '^== tsan' $report && fail "a phase that failed is reported"
echo 8 >asan
full_run asan && fail "a full run of a tree that differs from its commit"
grep -q "this tree differs from it" said || fail "it does not say so: $(cat said)"
git checkout -q asan
echo >tsan
sixth=$(commit)
full_run tsan || fail "$(cat said)"
reports asan "$fifth" "7 of them"
reports tsan "$sixth" "100% tests passed"
full_run tsan && grep -q "== tsan: has passed" said || fail "a phase is run again: $(cat said)"
git reset -q --hard "$fourth"

git checkout -q -b branch
commit >/dev/null
compares_with "$fourth" "a branch of a repository without a remote"
git clone -q "$work/origin" "$work/clone" && cd "$work/clone" || fail "no clone"
compares_with "$fourth" "a branch of a clone that has no branch main of its own" # origin's HEAD is the branch
cd "$work/origin" && git checkout -q main
git clone -q --depth 1 "file://$work/origin" "$work/shallow" && cd "$work/shallow" || fail "no shallow clone"
compares_with all "a shallow clone"
git fetch -q --unshallow || fail "no history"
compares_with "$third" "the clone with its history"

# ---- sources that tools look at ----
looks_at() { # TOOL "SOURCE..." WHERE
    said=$(bash tools/lint.sh since "$1" "$base" 2>&1) || fail "$3: $said"
    [ "$(printf '%s' "$said" | tr '\n' ' ')" = "$2" ] || fail "$1, $3: \"$said\", expected \"$2\""
}
mkdir -p src tools/lint
cp "$source/tools/lint.sh" tools/
cp "$source/tools/lint/analyzer.h" "$source/tools/lint/cppcheck.txt" tools/lint/
for row in one:a two:a three:b four:b; do
    echo "#include \"${row#*:}.h\"" >"src/${row%:*}.c"
done
touch src/a.h src/b.h
base=$(commit)
all="src/four.c src/one.c src/three.c src/two.c"
looks_at tidy "" "nothing differs"
echo "int a;" | tee -a src/a.h >>src/two.c
looks_at tidy src/two.c "a source differs, and a header that it includes"
echo "int b;" >>src/b.h
commit >/dev/null
looks_at tidy "src/two.c src/four.c" "a header differs, and no source that includes it"
looks_at cppcheck "src/two.c src/four.c" "a header differs, and no source that includes it"
base=$(git rev-parse HEAD)
echo "# a comment" >>tools/lint.sh
looks_at tidy "" "a comment of lint.sh differs"
sed -i 's/clang-tidy --quiet/clang-tidy/' tools/lint.sh
looks_at tidy "$all" "clang-tidy is called otherwise"
looks_at cppcheck "" "clang-tidy is called otherwise"
sed -i 's/--std=c11/--std=c17/' tools/lint.sh
looks_at cppcheck "$all" "cppcheck is called otherwise"
