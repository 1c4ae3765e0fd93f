# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_ctypes.sh ROOT: what Python says of structures and functions is what the headers declare, and a
# difference is seen.
set -u
cd "$1" || exit 1
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
python3 tools/check_ctypes.py || exit 1

# Each change makes a copy declare something that the headers do not.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/tools"
cp tools/check_ctypes.py "$copy/tools"
cp -r include "$copy"
differs() { # SED NAME
    rm -rf "$copy/python"
    cp -r python "$copy"
    sed -i "$1" "$copy/python/mics/_library.py"
    cmp -s python/mics/_library.py "$copy/python/mics/_library.py" && { echo "$1 changes nothing"; exit 1; }
    (cd "$copy" && python3 tools/check_ctypes.py) >"$copy/log" 2>&1 && { echo "$1: not seen"; exit 1; }
    grep -q "$2" "$copy/log" || { cat "$copy/log"; exit 1; }
}
differs 's/("ranks", _int32)/("ranks", _int64)/' mics_job_spec
differs 's/("save_s", _real)/("save_s", _int64)/' "mics_job_standing.save_s is no int64_t"
differs '/("saving", /d' mics_job_callbacks
differs 's/int64_t steps);/int32_t steps);/' mics_job_train
