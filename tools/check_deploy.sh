#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: tools/check_deploy.sh [--fetch]     checks each file of deploy/ by its own tool or schema
#
# A line a file says by what it was checked; "unchecked" where the tool is missing. Ends with 1 if a check finds something,
# or would not have found a key that does not exist.
#
#   hadolint, shellcheck, apt-get     found by their names
#   PYTHON (python3), SKY_PYTHON, PCLUSTER_PYTHON     with jsonschema and PyYAML; with skypilot; with aws-parallelcluster
#   CRDS     a folder with mpijobs.yaml and jobsets.yaml, the custom resources; --fetch gets them from GitHub
set -u
cd "$(dirname "$0")/.." || exit 1
python=${PYTHON:-python3} failures=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
crds=${CRDS:-$work}
if [ "${1:-}" = --fetch ]; then
    curl -sSfL -o "$crds/mpijobs.yaml" \
        https://raw.githubusercontent.com/kubeflow/mpi-operator/v0.6.0/manifests/base/kubeflow.org_mpijobs.yaml
    curl -sSfL -o "$crds/jobsets.yaml" \
        https://raw.githubusercontent.com/kubernetes-sigs/jobset/v0.8.0/config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml
fi

failed() {
    echo "FAILED    $*"
    failures=$((failures + 1))
}

# check FILE TOOL COMMAND...: 3 and 127 say that the tool is not there.
check() {
    local file=$1 tool=$2
    shift 2
    "$@" >"$work/out" 2>&1
    case $? in
    0) echo "checked   $file, by $tool" ;;
    3 | 127) echo "unchecked $file: no $tool here" ;;
    *) failed "$file, by $tool" && cat "$work/out" ;;
    esac
}

# manifest FILE TOOL KEY COMMAND... -: the file stands in place of -; with KEY spelled wrongly it must be refused.
manifest() {
    local file=$1 tool=$2 key=$3
    shift 3
    check "$file" "$tool" "${@/#-/$file}"
    grep -q "^checked" <<<"$(check "$file" "$tool" "${@/#-/$file}")" || return
    sed "s/\<$key:/${key}s:/" "$file" >"$work/wrong.yaml"
    cmp -s "$file" "$work/wrong.yaml" && failed "$file has no key $key"
    "${@/#-/$work/wrong.yaml}" >/dev/null 2>&1 && failed "$file: $tool takes ${key}s for $key"
}

# The shell in a file of another kind: lines behind those that match BEGIN, as far as they are indented as much.
shell_of() { # BEGIN FILE
    awk -v begin="$1" '
        inside && $0 != "" && match($0, /[^ ]/) <= from { inside = 0 }
        inside { print }
        $0 ~ begin { inside = 1; from = match($0, /[^ ]/) }' "$2"
}
embedded() { # FILE BEGIN
    { echo '#!/bin/bash' && shell_of "$2" "$1"; } >"$work/embedded.sh"
    [ "$(wc -l <"$work/embedded.sh")" -gt 1 ] || failed "$1 has no shell behind $2"
    check "$1, its shell" shellcheck shellcheck -S info "$work/embedded.sh"
}

packages_of() { # FILE: what it installs by apt-get
    awk '{
        for (i = 1; i <= NF; i++) {
            if ($i == "install" && $(i - 1) == "apt-get") inside = 1
            else if ($i == "&&") inside = 0
            else if (inside && $i !~ /^-|^\\$/) print $i
        }
        if ($NF != "\\") inside = 0
    }' "$1" | sort -u
}
installable() { # FILE
    command -v apt-get >/dev/null && grep -q '^VERSION_ID="12"' /etc/os-release || return 3
    apt-cache show openssh-server >/dev/null 2>&1 || return 3 # no lists of packages
    # shellcheck disable=SC2046
    apt-get -s install $(packages_of "$1")
}

check deploy/docker/Dockerfile hadolint hadolint deploy/docker/Dockerfile
check "deploy/docker/Dockerfile, its packages" "apt-get of Debian 12" installable deploy/docker/Dockerfile
check "deploy/apptainer/mics.def, its packages" "apt-get of Debian 12" installable deploy/apptainer/mics.def
embedded deploy/apptainer/mics.def '^%post'
echo "unchecked deploy/apptainer/mics.def: its recipe, which only apptainer build knows"
for crd in mpijob jobset; do
    if [ -s "$crds/${crd}s.yaml" ]; then
        manifest deploy/kubernetes/$crd.yaml "the CRD's schema" containers \
            "$python" tools/check_manifest.py crd - "$crds/${crd}s.yaml"
    else
        echo "unchecked deploy/kubernetes/$crd.yaml: no CRD here (--fetch)"
    fi
    embedded deploy/kubernetes/$crd.yaml '^ *- [|]$'
done
manifest deploy/skypilot/mics.yaml "SkyPilot's schema" num_nodes "${SKY_PYTHON:-$python}" tools/check_manifest.py sky -
embedded deploy/skypilot/mics.yaml '^run: [|]$'
manifest deploy/parallelcluster/cluster.yaml "ParallelCluster's schema" MaxCount \
    "${PCLUSTER_PYTHON:-$python}" tools/check_manifest.py pcluster -
for script in deploy/ssh/train.sh deploy/slurm/train.sbatch; do
    check $script shellcheck shellcheck $script
done
echo "also      deploy/slurm/train.sbatch, on a Slurm of two nodes: tests/deploy/test_slurm.sh"
[ $failures = 0 ]
