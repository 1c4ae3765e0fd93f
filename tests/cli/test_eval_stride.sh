# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# mics eval --stride: windows that overlap, of which each counts what the ones before did not, against
# evaluations of single windows.
. "$(dirname "$0")/lib.sh"

run 0 train "$mics" train run.json --ranks 2 --steps 3 --out out

# The losses of tokens FROM to TO of the text in one window, all together: of a shard of llm.c's format.
octal() { # NUMBER: as 4 bytes in escapes
    printf '\\%03o\\%03o\\%03o\\%03o' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24))
}
shard() { # NAME FROM TOKENS
    {
        # shellcheck disable=SC2059
        printf "$(octal 20240520)$(octal 1)$(octal "$3")"
        head -c 1012 /dev/zero
        tail -c +$((1025 + 2 * $2)) tokens.bin | head -c $((2 * $3))
    } >"$1"
}
total() { # FROM TO
    shard window.bin "$1" $(($2 - $1 + 1))
    run 0 window "$mics" eval out --data window.bin --sequence $(($2 - $1)) --json
    sed -n 's/.*"tokens": \([0-9]*\).*"loss": \([0-9.e+-]*\).*/\1 \2/p' window.out | awk '{ printf "%.12g", $1 * $2 }'
}
run 0 tokenize "$mics" tokenize text.txt --tokenizer bytes --out tokens.bin

# 60 tokens are predicted in windows of 32, every 10: [0, 32), [10, 42), [20, 52), and [30, 60) of which 8 are left.
shard whole.bin 0 61
run 0 stride "$mics" eval out --data whole.bin --sequence 32 --stride 10 --json
contains stride.out '"tokens": 60'
contains stride.out '"stride": 10'
expected="$(total 0 32) $(total 10 42) -$(total 10 32) $(total 20 52) -$(total 20 42) $(total 30 60) -$(total 30 52)"
sed -n 's/.*"loss": \([0-9.e+-]*\).*/\1/p' stride.out >loss
# shellcheck disable=SC2086
printf '%s\n' $expected | awk -v loss="$(cat loss)" '{ sum += $1 } END { d = sum / 60 - loss; exit !(d < 1e-6 && d > -1e-6) }' ||
    fail "the loss is $(cat loss), the windows' are $expected"

# A stride of the window's length is none.
run 0 plain "$mics" eval out --data text.txt --sequence 32 --json
run 0 whole "$mics" eval out --data text.txt --sequence 32 --stride 32 --json
cmp -s plain.out whole.out || fail "a stride of a whole window changes the loss"
run 2 wide "$mics" eval out --data text.txt --sequence 32 --stride 33
contains wide.err "--stride 33: would leave tokens out between windows of 32"
