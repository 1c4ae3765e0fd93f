# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# mics generate: prompts from files and standard input, what is drawn from, and texts that end a text.
. "$(dirname "$0")/lib.sh"

generate() { # STATUS NAME FLAGS...
    status=$1 name=$2
    shift 2
    run "$status" "$name" "$mics" generate out --tokens 60 "$@"
}
same() { # NAME OTHER
    cmp -s "$1.out" "$2.out" || fail "$1 and $2 wrote different texts"
}

run 0 train "$mics" train run.json --ranks 2 --steps 2 --out out

# Prompts.
printf 'To be,\nor' >prompt.txt
generate 0 flag --prompt "$(cat prompt.txt)"
generate 0 file --prompt-file prompt.txt
same flag file
"$mics" generate out --tokens 60 --prompt-file - <prompt.txt >input.out 2>input.err || fail "standard input: $(cat input.err)"
same flag input
: >empty.txt
generate 0 none
generate 0 empty --prompt-file empty.txt
same none empty
generate 2 both --prompt a --prompt-file prompt.txt
contains both.err '--prompt contradicts --prompt-file'
printf '%0300d' 7 >long.txt
generate 0 long --prompt-file long.txt
contains long.err 'the prompt has 300 tokens, and the model positions for'
grep -q warning file.err && fail "a short prompt is too long"
printf 'a\0b' >nul.txt
generate 2 nul --prompt-file nul.txt
contains nul.err 'nul.txt: a prompt is text, and byte 1 is a NUL'
generate 2 lost --prompt-file nothing.txt
contains lost.err 'nothing.txt: cannot open'

# Settings that are off change nothing; the likeliest token alone is temperature 0.
generate 0 plain --prompt To
generate 0 off --prompt To --top-p 1 --min-p 0 --repetition-penalty 1
same plain off
generate 0 cold --prompt To --temperature 0
generate 0 narrow --prompt To --top-p 0.000001
same cold narrow
[ -s cold.err ] && fail "a line of what changes nothing: $(cat cold.err)"
generate 0 drawn --prompt To --temperature 0 --top-k 5 --seed 3
same cold drawn
contains drawn.err '--top-k changes nothing at --temperature 0'
contains drawn.err '--seed changes nothing at --temperature 0'
generate 0 sharp --prompt To --min-p 1
same cold sharp
generate 0 fresh --prompt To --temperature 0 --repetition-penalty 1000
cmp -s cold.out fresh.out && fail "a repetition penalty changed nothing"
[ "$(tail -c +3 fresh.out | head -c 20 | fold -w 1 | sort | uniq -d | wc -l)" = 0 ] ||
    fail "a byte came again under a repetition penalty of 1000: $(cat fresh.out)"
for share in 1.5 0 -1; do
    generate 2 share --prompt To --top-p $share
    contains share.err '--top-p'
done

# A stop ends the text before it, wherever it is cut; the first of several counts.
generate 0 line --prompt To --temperature 0
byte=$(tail -c +13 line.out | head -c 1)
generate 0 stop --prompt To --temperature 0 --stop 'no such text' --stop "$byte"
tail -c +3 stop.out | grep -qF -- "$byte" && fail "--stop '$byte' is in the text"
[ "$(wc -c <stop.out)" -lt "$(wc -c <line.out)" ] || fail "--stop '$byte' did not end the text"
generate 0 many --prompt To --samples 2 --stop "$byte"
contains many.out '---- seed 2 ----'
generate 2 nothing --prompt To --stop ''
contains nothing.err '--stop: needs a text'
