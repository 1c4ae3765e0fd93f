# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_findings.sh MICS EMULATED: what is missing for GPUs is said in one line; "auto" then trains on the CPU, and "cuda"
# ends with status 2 before anything is done.
program=$1
emulated=$2
. "$(dirname "$0")/../cli/lib.sh"

# What the emulation's settings, or MICS_CUDA_PLUGIN, take away.
lacking() { # NAME TEXT [VARIABLE=VALUE...]
    name=$1
    text=$2
    shift 2
    run 0 "doctor-$name" env "$@" "$program" doctor
    grep '^GPU ' "doctor-$name.out" >"gpu-$name.txt"
    one_line "gpu-$name.txt"
    contains "gpu-$name.txt" "none can be used: "
    contains "gpu-$name.txt" "$text"
    run 0 "json-$name" env "$@" "$program" doctor --json
    contains "json-$name.out" '"usable": false'
    run 2 "cuda-$name" env "$@" "$program" train run.json --out "cuda-$name" --ranks 2 --set run.device=cuda
    one_line "cuda-$name.err"
    contains "cuda-$name.err" "run.device"
    contains "cuda-$name.err" "$text"
    [ ! -e "cuda-$name" ] || fail "$name: something was done"
    run 2 "fp16-$name" env "$@" "$program" train run.json --out "cuda-$name" --ranks 2 --set fp16.enabled=true
    one_line "fp16-$name.err"
    contains "fp16-$name.err" "fp16.enabled=false"
}

# auto trains as if there were no GPUs at all.
trains() { # NAME LINE [VARIABLE=VALUE...]
    name=$1
    line=$2
    shift 2
    run 0 "auto-$name" env "$@" "$program" train run.json --out "auto-$name" --ranks 2 --steps 1 --set run.validation_batches=0
    [ -z "$(lines_of "auto-$name.err")" ] || fail "auto-$name.err is not empty"
    contains "auto-$name.out" "$line"
}

lacking off 'MICS_CUDA_PLUGIN is "none"' MICS_CUDA_PLUGIN=none
trains off "device    cpu, fp32" MICS_CUDA_PLUGIN=none
lacking absent "nothing.so, which MICS_CUDA_PLUGIN names, is not there" MICS_CUDA_PLUGIN="$work/nothing.so"
echo "no library" >text.so
lacking text "text.so cannot be opened" MICS_CUDA_PLUGIN="$work/text.so"
lacking driver "no NVIDIA driver is found" MICS_CUDA_PLUGIN="$emulated" MICS_EMULATED_DRIVER=0
trains driver "no GPU: no NVIDIA driver is found" MICS_CUDA_PLUGIN="$emulated" MICS_EMULATED_DRIVER=0
lacking old "the NVIDIA driver is for CUDA 12.4, and 13.0 is needed" \
    MICS_CUDA_PLUGIN="$emulated" MICS_EMULATED_DRIVER=12.4
lacking none "shows this process no GPU; in a container" MICS_CUDA_PLUGIN="$emulated" MICS_EMULATED_DEVICES=0
lacking hidden 'CUDA_VISIBLE_DEVICES is "7"' \
    MICS_CUDA_PLUGIN="$emulated" MICS_EMULATED_DEVICES=0 CUDA_VISIBLE_DEVICES=7
lacking mode "prohibited compute mode" MICS_CUDA_PLUGIN="$emulated" MICS_EMULATED_DENIED=2
lacking volta "compute capability 7.0, and 8.0" MICS_CUDA_PLUGIN="$emulated" MICS_EMULATED_CAPABILITY=7
# A plugin of another version: the name of its build, changed to one of the same length.
LC_ALL=C sed 's/\(0\.[0-9]*\.[0-9]*\)-[0-9a-f]\{8\}\x00/\1-ffffffff\x00/g' "$emulated" >other.so
cmp -s other.so "$emulated" && fail "the plugin's build could not be changed"
lacking other "-ffffffff, but this is " MICS_CUDA_PLUGIN="$work/other.so"
trains other "device    cpu, fp32" MICS_CUDA_PLUGIN="$work/other.so"

# What a run would take is the same where there is a GPU and where there is none; only why differs.
for flags in "" "--set run.precision=fp16"; do
    run 0 here env MICS_CUDA_PLUGIN="$emulated" "$program" explain run.json --ranks 4 --nodes 2 --json --set run.device=cuda $flags
    run 0 away env MICS_CUDA_PLUGIN=none "$program" explain run.json --ranks 4 --nodes 2 --json --set run.device=cuda $flags
    grep -v '"device": {' here.out >here.txt
    grep -v '"device": {' away.out >away.txt
    cmp here.txt away.txt || fail "explain needs a GPU"
done
contains here.out '"why": "run.device is \"cuda\", and 1 GPU is here: '
run 0 auto_here env MICS_CUDA_PLUGIN="$emulated" "$program" explain run.json --ranks 2
contains auto_here.out 'cuda, bf16 with fp32 masters; run.device is "auto", and 1 GPU is here: '
contains auto_here.out "host, to load and save"

# GPUs that are there, but not for this process: known when one is opened.
export MICS_CUDA_PLUGIN="$emulated"
run 2 denied env MICS_EMULATED_DENIED=1 "$program" train run.json --out denied --ranks 2 --set run.device=cuda
one_line denied.err
contains denied.err "may not be used by this process"

# Beside the program and in ../lib; without NCCL one GPU serves, and several are refused.
mkdir -p bin lib
unset MICS_CUDA_PLUGIN
cp "$program" bin/mics
cp "$emulated" lib/libmics_cuda.so
run 0 beside bin/mics doctor
contains beside.out "lib/libmics_cuda.so, built for 13.0; driver for 13.0"
run 0 links env MICS_EMULATED_DEVICES=4 MICS_NCCL_LIBRARY=nowhere.so bin/mics doctor
contains links.out "GPU 3 "
contains links.out "links     6 pairs: 2 by NVLink, 4 by PCIe directly"
contains links.out "NCCL      not found"
run 0 old env MICS_EMULATED_NCCL=21805 bin/mics doctor
contains old.out "NCCL      2.18.5"
run 0 staged env MICS_EMULATED_DEVICES=2 MICS_NCCL_LIBRARY=nowhere.so bin/mics train run.json --ranks 2 \
    --out staged --steps 1 --set run.validation_batches=0
one_line staged.err
contains staged.err "which is slow: rank 0 has no NCCL that will do: nowhere.so"
run 0 older env MICS_EMULATED_DEVICES=2 MICS_EMULATED_NCCL=21805 bin/mics train run.json --ranks 2 \
    --out older --steps 1 --set run.validation_batches=0
one_line older.err
contains older.err "rank 0 has no NCCL that will do: it is of version 2.18, and 2.22 or newer is needed"
exit 0
