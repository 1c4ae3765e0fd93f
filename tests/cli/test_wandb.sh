# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# tools/wandb_follow.py against a module that notes what it is given: every figure once, also when the
# script is started again.
tools=$(cd "$(dirname "$0")/../../tools" && pwd) || exit 1
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || exit 77

mkdir stub
cat >stub/wandb.py <<'PYTHON'
import json


class Run:
    def log(self, figures, step):
        with open("sent.jsonl", "a") as file:
            file.write(json.dumps({"step": step, **figures}) + "\n")

    def finish(self):
        pass


def init(project, name, id, resume, config):
    with open("runs.txt", "a") as file:
        file.write(f"{project} {name} {id} {resume} {config['run']['seed']}\n")
    return Run()
PYTHON
export PYTHONPATH="$work/stub" PYTHONDONTWRITEBYTECODE=1
follow() {
    run 0 "follow$1" python3 "$tools/wandb_follow.py" out --project trial --once
}
train() { # NAME STEPS
    run 0 "$1" "$mics" train run.json --ranks 2 --steps "$2" --set run.validate_every=2
}
train first 4
follow 1
follow again
train more 8
follow 2
[ "$(sort -u runs.txt | wc -l)" = 1 ] || fail "several runs: $(cat runs.txt)"
grep -q '^trial out .* allow 3$' runs.txt || fail "the run is $(cat runs.txt)"
python3 - <<'PYTHON' || fail "what was sent is not what metrics.jsonl has"
import json


def figures(path):
    found = {}
    for line in open(path):
        line = json.loads(line)
        for name, value in line.items():
            if name != "step" and value is not None:
                assert path != "sent.jsonl" or (line["step"], name) not in found, "sent twice"
                found[line["step"], name] = value
    return found


assert figures("sent.jsonl") == figures("out/metrics.jsonl")
PYTHON
run 1 nowhere python3 "$tools/wandb_follow.py" elsewhere
contains nowhere.err 'elsewhere: is no folder'
