# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_check_sass.sh TOOLS: tools/check_sass.sh on machine code that is made up, by a cuobjdump that
# prints a file.
tools=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
mkdir bin none

fail() {
    echo "test_check_sass: $1" >&2
    exit 1
}
printf '#!/bin/sh\ncat "%s/sass"\n' "$work" >bin/cuobjdump
printf '#!/bin/sh\n' >bin/nvdisasm
chmod +x bin/*
echo plugin >plugin.so
cat >list <<'EOF'
# a comment
wide<float, 4> | LDG.128>=1 STG.128>=2 STG.16<=1
any<*          | STG.8<=0
EOF

# Two kernels for each of two chips. The first wide one has the stores that its arguments are.
code() {
    for chip in sm_80 sm_90; do
        printf 'code for %s\n\t\tFunction : _Z4wideIfLi4EEvPf\n' "$chip"
        printf '        /*0010*/   LDG.E.128.CONSTANT R4, [R2.64] ;  /* 0x1 */\n        /*0020*/   @P0 STG.E.128 [R2.64], R4 ;\n'
        for store in "$@"; do
            printf '        /*0030*/   %s [R2.64], R4 ;\n' "$store"
        done
        printf '\t\tFunction : _ZN12_GLOBAL__N_13anyIiEEvPi\n        /*0010*/   STG.E desc[UR4][R2.64], R5 ;\n'
    done
}
check() { # STATUS TEXT: what the script must end with, and say
    PATH="$work/bin:$PATH" sh "$tools/check_sass.sh" --list list plugin.so >out 2>&1
    status=$?
    [ "$status" = "$1" ] || fail "ended with $status, expected $1: $(cat out)"
    grep -qF "$2" out || fail "did not say \"$2\": $(cat out)"
}

command -v c++filt >/dev/null || { echo "skipped: no c++filt"; exit 77; }
code STG.E.128 STG.E.U16 >sass
check 0 "4 kernels of 4 have the widths that are listed"
code STG.E.U16 STG.E.U16 >sass
check 1 "wide<float, 4>, sm_80: 1 of STG.128, and STG.128>=2 is listed"
check 1 "wide<float, 4>, sm_90: 2 of STG.16, and STG.16<=1 is listed"
code STG.E.128 STG.E.64 STG.E.U8 >sass
check 0 "4 kernels of 4" # what is not listed may be
echo 'gone<int> | STG.8<=0' >>list
check 1 "there is no kernel gone<int>"
echo 'any<int> | STG.12<=0' >>list
check 1 '"STG.12<=0" is not a bound'
: >list
check 1 "lists nothing"

# The tools are there, or the machine has none.
for name in sh sed mktemp rm dirname awk cat; do
    ln -s "$(command -v "$name")" "none/$name"
done
CUDA_HOME="$work/none" PATH="$work/none" sh "$tools/check_sass.sh" plugin.so >out 2>&1 || fail "without tools: $(cat out)"
[ "$(wc -l <out)" = 1 ] || fail "without tools: $(cat out)"
PATH="$work/bin:$PATH" sh "$tools/check_sass.sh" missing.so >out 2>&1
[ $? = 2 ] || fail "a missing plugin: $(cat out)"
