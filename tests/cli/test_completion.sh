# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# mics completion: what bash and fish offer, and what zsh's functions are given. Shells that are missing are left out.
. "$(dirname "$0")/lib.sh"

for shell in bash zsh fish; do
    run 0 $shell "$mics" completion $shell
    command -v $shell >/dev/null || continue
    $shell -n $shell.out 2>$shell.err || fail "$shell: $(cat $shell.err)"
done
for verb in train plan generate completion; do
    for shell in bash zsh fish; do
        contains $shell.out "$verb	--help	none	-	this text"
    done
done
run 2 other "$mics" completion csh
contains other.err 'csh: bash, zsh and fish are known'

offers() { # WHAT COMMAND WORD...: the last word is what was typed so far
    what=$1
    shift
    bash -c '. ./bash.out; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _mics; echo "${COMPREPLY[*]}"' - "$@" >offered
    grep -qF -- "$what" offered || fail "$*: offers $(cat offered), not $what"
}
if command -v bash >/dev/null; then
    offers 'train' mics tr
    offers '--ranks' mics train --ra
    offers '--help' mics train run.json --h
    offers 'run.json' mics train run
    offers 'fp32 bf16' mics generate --precision ''
    offers 'comm compute' mics bench ''
    offers '--seconds' mics bench comm --s
    offers 'bash zsh fish' mics completion ''
fi
if command -v zsh >/dev/null; then
    zsh -fc 'compdef() { :; }; _describe() { print -rl $others; }; _arguments() { print -rl -- "$@"; }
        . ./zsh.out
        words=(mics tr) CURRENT=2; _mics
        words=(mics generate --precision "") CURRENT=4; _mics
        words=(mics bench "") CURRENT=3; _mics
        words=(mics bench comm --s) CURRENT=4; _mics' >offered 2>&1
    contains offered 'train:trains a model'
    contains offered '*--precision[of weights in memory; default\: as they are stored]:fp32|bf16:(fp32 bf16)'
    contains offered 'comm:links intra-node and inter-node'
    contains offered '*--seconds[of wall clock, in all; default 20]:S:'
fi
if command -v fish >/dev/null; then
    fish -c 'source fish.out; for typed in "tr" "generate --precision " "bench " "bench comm --s"
        complete -C "mics $typed"; end' >offered 2>&1
    for word in train bf16 compute seconds; do
        contains offered $word
    done
fi
