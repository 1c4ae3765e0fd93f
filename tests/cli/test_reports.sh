# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# run.tensorboard and run.prometheus: written beside metrics.jsonl, gone on with by a resumed run, and
# refused before training where they cannot be written. tests/io/report reads the records.
. "$(dirname "$0")/lib.sh"

out=out
train() { # STATUS NAME STEPS FLAGS...
    status=$1 name=$2 steps=$3
    shift 3
    run "$status" "$name" "$mics" train run.json --ranks 2 --out "$out" --steps "$steps" \
        --set run.checkpoint_every=2 "$@"
}
count() {
    find events -name 'events.out.tfevents.*' | wc -l
}

reports="--set run.tensorboard=events --set run.prometheus=mics.prom"
# shellcheck disable=SC2086
train 0 first 2 $reports
[ "$(count)" = 1 ] || fail "$(count) event files after one run"
contains mics.prom 'mics_step{run="out"} 2'
loss=$(sed -n 's/.*"step": 2, "loss": \([^,]*\),.*/\1/p' out/metrics.jsonl)
contains mics.prom "mics_loss{run=\"out\"} $loss"
# shellcheck disable=SC2086
train 0 again 4 $reports
[ "$(count)" = 2 ] || fail "$(count) event files after a run that went on"
contains mics.prom 'mics_step{run="out"} 4'
train 0 without 6
[ "$(count)" = 2 ] || fail "an event file that nobody asked for"
contains mics.prom 'mics_step{run="out"} 4'

# Charts are no reason to lose a run; a file of somebody else's is one not to begin.
echo text >file
train 0 nowhere 8 --set run.tensorboard=file/events
contains nowhere.err 'file/events lacks what could not be written; training goes on'
[ "$(grep -c 'training goes on' nowhere.err)" = 1 ] || fail "said more than once"
echo mine >mine.prom
train 2 mine 10 --set run.prometheus=mine.prom
contains mine.err 'mine.prom: is there, and no run wrote it'
[ "$(cat mine.prom)" = mine ] || fail "mine.prom was overwritten"
train 2 ending 10 --set run.prometheus=out/metrics.jsonl
contains ending.err 'files that end in .prom'

# The table has the names and digits of metrics.jsonl, also after a resume; one of somebody else's is
# left alone.
train 0 table 12 --set run.csv=figures.csv --set run.validate_every=1
names=$(sed -n '/"loss"/{s/": [^,}]*//g;s/[{}" ]//g;p;q;}' out/metrics.jsonl)
[ "$(head -n 1 figures.csv)" = "$names,validation_loss" ] || fail "the header is not $names"
train 0 rows 14 --set run.csv=figures.csv --set run.validate_every=1 --resume out/checkpoints/step-00000010
sed -n '/"step": 1[0-4], "loss"/{s/"[a-z_]*": //g;s/[{} ]//g;s/null//g;s/$/,/;p;}' out/metrics.jsonl >left.txt
grep -E '^1[1-4],[0-9]' figures.csv >right.txt
[ -s left.txt ] || fail "no steps"
grep -E '^1[1-4],' left.txt | diff - right.txt || fail "figures.csv and metrics.jsonl differ"
grep -E '"step": 14, "validation_loss"' out/metrics.jsonl | sed 's/.*: //;s/}//' >left.txt
sed -n 's/^14,,.*,//p' figures.csv | diff left.txt - || fail "validation of step 14"
printf 'a,b\n1,2\n' >mine.csv
train 2 mine_csv 16 --set run.csv=mine.csv
out=deep train 0 deep 2 --set run.csv=new/folder/figures.csv
[ "$(grep -c '^[12],[0-9]' new/folder/figures.csv)" = 2 ] || fail "no figures in a new folder"
out=deep_again train 0 deep_again 3 --set run.csv=new/folder/figures.csv
contains deep_again.err 'new/folder/figures.csv.old'
[ "$(grep -c '^[12],[0-9]' new/folder/figures.csv.old)" = 2 ] || fail "another run's rows are lost"
out=deep_third train 0 deep_third 4 --set run.csv=new/folder/figures.csv
contains deep_third.err 'new/folder/figures.csv.old2'
[ "$(grep -c '^[1-9],[0-9]' new/folder/figures.csv.old)" = 2 ] || fail "the first run's rows are lost"
[ "$(grep -c '^[1-9],[0-9]' new/folder/figures.csv.old2)" = 3 ] || fail "the second run's rows are lost"
contains mine_csv.err 'mine.csv: is there, and its first line is not the header'
[ "$(cat mine.csv)" = "$(printf 'a,b\n1,2')" ] || fail "mine.csv was overwritten"
