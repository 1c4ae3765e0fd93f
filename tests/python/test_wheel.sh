# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_wheel.sh ROOT BUILD PLUGIN: the wheel is built in BUILD and installed where nothing else is, a run's first
# loss comes in under 60 s, and the package's tests pass, without NumPy and, where it is to be had, with it.
set -eu
root=$1 build=$2 plugin=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MICS_WHEEL_BUILD=$build PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
unset PYTHONPATH

skip() {
    echo "skipped: $1"
    exit 77
}

python3 -m venv "$work/venv" 2>/dev/null || skip "python3 makes no environments (python3-venv)"
status=0
wheel=$("$root/tools/wheel.sh" "$work") || status=$?
[ $status -ne 77 ] || skip "no auditwheel"
[ $status -eq 0 ] || exit 1

case $wheel in */mics-*-py3-none-manylinux_2_36_x86_64.whl) ;; *) echo "$wheel: of another name"; exit 1 ;; esac
python3 -m zipfile -l "$wheel" | grep -q '^mics.libs/libdnnl' || { echo "libdnnl is not inside"; exit 1; }

cat >"$work/first.py" <<END
import os, mics
os.chdir("$root")
def end(step):
    raise StopIteration
print(mics.train("examples/demo.json", ranks=2, out="$work/first", on_step=end).metrics["loss"])
END
began=$(date +%s%N)
"$work/venv/bin/pip" install --quiet --no-index "$wheel"
"$work/venv/bin/python" "$work/first.py"
took=$((($(date +%s%N) - began) / 1000000))
echo "$wheel: $(stat -c %s "$wheel") bytes; from pip install to the first loss $took ms"
[ $took -lt 60000 ] || { echo "that is more than 60 s"; exit 1; }

! [ -e "$plugin" ] || export MICS_CUDA_PLUGIN=$plugin
package_tests() {
    (cd "$work" && "venv/bin/python" -m unittest discover "$root/python/tests")
}
package_tests
if "$work/venv/bin/pip" install --quiet numpy; then
    package_tests
else
    echo "no NumPy to be had: arrays were Python's own alone"
fi
