# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# mics completion: what bash and fish offer; of zsh's script the syntax. Shells that are missing are left out.
. "$(dirname "$0")/lib.sh"

for shell in bash zsh fish; do
    run 0 $shell "$mics" completion $shell
    command -v $shell >/dev/null || continue
    $shell -n $shell.out 2>$shell.err || fail "$shell: $(cat $shell.err)"
done
for verb in train plan generate completion; do
    contains bash.out "'$verb') flags='--"
    contains zsh.out "'$verb') _arguments"
    contains fish.out "-a $verb -d"
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
if command -v fish >/dev/null; then
    fish -c 'source fish.out; complete -C "mics tr"; complete -C "mics generate --precision "' >offered 2>&1
    contains offered train
    contains offered bf16
fi
