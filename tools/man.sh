#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# man.sh PROGRAM: the man page, on standard output, made of what the program's --help says. So it has every flag.
set -eu
program=$1
help() { # VERB...
    MICS_CUDA_PLUGIN=none "$program" "$@" --help
}
roff() {
    sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^[.']/\\\\\\&&/"
}
verbs=$(help | sed -n '/^usage/,/lists a verb/s/^  \([a-z][a-z]*\)  *.*/\1/p')
[ "$(echo "$verbs" | wc -l)" -gt 9 ] || { echo "man.sh: $program --help lists no verbs" >&2; exit 1; }
version=$("$program" --version | sed 's/^mics //; s/[ ,].*//')

printf '.\\" Made by tools/man.sh of what --help prints.\n.TH MICS 1 "" "mics %s" "User Commands"\n.SH NAME\n' "$version"
printf 'mics \\- trains transformers with MiCS sharding on clusters of unequal links\n.SH SYNOPSIS\n'
for verb in $verbs; do
    help "$verb" | sed -n 's/^\(usage:\|      \) *\(mics .*\)/\2/p' | roff | sed 's/$/\n.br/'
done
cat <<'END'
.SH DESCRIPTION
.B mics
trains transformers. Parameters, gradients and optimizer state are sharded over groups of ranks that
are as small as memory allows, so that slow inter\-node links carry as little as possible. One JSON
or YAML file describes a run; its keys are DeepSpeed's where the meaning is the same, and
.B mics explain RUN.json \-\-keys
lists them.
.SH COMMANDS
END
# A verb of two words has its flags under both.
for verb in $verbs; do
    for part in "$verb" $(help "$verb" | sed -n "s/^\(usage:\|      \) mics $verb \([a-z]*\).*/$verb:\2/p" | grep ':.' || true); do
        # shellcheck disable=SC2046 # two words
        help $(echo "$part" | tr ':' ' ') | roff | awk -v name="$(echo "$part" | tr ':' ' ')" '
            function words_of(row,    w) { split(row, w, " "); return w[1] " " w[2] }
            NR == 1 { print ".SS " name; next }
            /^usage:|^       mics/ { next }
            /^flags:$/ { flags = 1; next }
            flags && /^  \\-\\-/ {
                line = $0
                gsub(/\\-/, "-", line)
                left = substr(line, 3, 26)
                if (substr(line, 29, 1) != " " || split(left, words, " ") > 2)
                    left = words_of(line)
                text = substr(line, 3 + length(left))
                sub(/^ +/, "", text)
                sub(/ +$/, "", left)
                gsub(/-/, "\\-", left)
                gsub(/-/, "\\-", text)
                print ".TP\n.B " left "\n" text
                next
            }
            flags && /^$/ { print ".PP"; next }
            { print }'
    done
done
cat <<'END'
.SH FILES
.TP
.I OUT/metrics.jsonl
One JSON object a step.
.TP
.I OUT/checkpoints/
One folder a saved step.
.TP
.I OUT/trace.json
A Chrome trace of the steps that
.B run.trace_step
names.
.TP
.I run.tensorboard, run.csv, run.prometheus
The same figures for TensorBoard, as a table, and for Prometheus' node exporter.
.SH EXIT STATUS
0 when all went well, 1 when the run failed, 2 when usage or configuration is wrong, 75 when the run
was asked to stop (a signal, OUT/stop, run.max_hours) and its state is saved.
Errors are one line on standard error.
.SH EXAMPLES
.nf
mics explain examples/demo.json \-\-ranks 4 \-\-nodes 2
mics train examples/demo.json \-\-ranks 4 \-\-nodes 2
mpirun \-n 4 mics train examples/demo.json \-\-nodes 2
.fi
.SH SEE ALSO
.BR mpirun (1)
.PP
MiCS: Near\-linear Scaling for Training Gigantic Model on Public Cloud, PVLDB 16(1), 2022,
arXiv:2205.00119.
END
