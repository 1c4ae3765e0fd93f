# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Dumped arguments of Hugging Face's Trainer train here to the losses that the Trainer had with them (tests/golden/trainer),
# within 2e-6 in each step, at the same learning rates. Prints a row a file.
. "$(dirname "$0")/lib.sh"
trainer=$golden/trainer
echo "| arguments | model | steps | largest difference of a loss | of a learning rate |"
echo "|---|---|---|---|---|"
while read -r name kind; do
    run 0 "$name" "$mics" train "$trainer/$name.json" --model "$trainer/$kind" --data "$trainer/tokens.bin" \
        --out "out-$name" --set model.init="$trainer/$kind" --set data.sequence_length=16 \
        --set run.validation_batches=0 --set run.threads=1
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "lr": \([^,]*\),.*/\1 \2 \3/p' "out-$name/metrics.jsonl" >ours.txt
    sed -n "s/^$name //p" "$trainer/losses.txt" >theirs.txt
    paste -d ' ' theirs.txt ours.txt | awk -v name="$name" -v kind="$kind" '
        function far(a, b) { return a > b ? a - b : b - a }
        NF != 6 || $1 != $4 { print name ": step " $1 " beside step " $4 > "/dev/stderr"; bad = 1; exit }
        far($2, $5) > 2e-6 { print name ": step " $1 ": loss " $5 " here, " $2 " there" > "/dev/stderr"; bad = 1 }
        far($3, $6) > 1e-6 * $3 { print name ": step " $1 ": rate " $6 " here, " $3 " there" > "/dev/stderr"; bad = 1 }
        far($2, $5) > loss { loss = far($2, $5) }
        far($3, $6) > rate { rate = far($3, $6) }
        END {
            if (bad || NR == 0)
                exit 1
            printf "| `%s` | %s | %d | %.1e | %.0e |\n", name, kind, NR, loss, rate
        }' || fail "$name: losses are not the same"
done <"$trainer/models.txt"
[ "$(wc -l <"$trainer/models.txt")" -ge 18 ] || fail "fewer than 18 files"
