# shellcheck shell=bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Builds what needs a GPU, and packs it. Sourced by run.sh.

readonly PACK_BYTES=$((20 * 1024 * 1024)) NCCL_BYTES=$((24 * 1024 * 1024)) # at most, of either archive

build() { # ARCHITECTURES OPTION...
    local architectures=$1 log targets
    shift
    log=$(mktemp)
    mapfile -t targets <<<"$(cuda_tests)"
    if cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DMICS_CUDA=ON -DMICS_CUDA_ARCHITECTURES="$architectures" \
        -DMICS_TESTS=ON -DMICS_BENCH=ON "$@" >"$log" 2>&1 &&
        cmake --build "$build" -j "${JOBS:-$(nproc)}" --target mics_cli mics_cuda "${targets[@]}" "${benches[@]}" \
            >"$log" 2>&1; then
        rm -f "$log"
        return
    fi
    tail -n 20 "$log" >&2
    rm -f "$log"
    die 1 "the build in $build failed"
}

# The libraries that programs need and a bare system with CUDA lacks. It has the C and C++ libraries and zlib; others come
# with the driver, the toolkit or PyTorch.
libraries_of() { # PROGRAM...
    ldd "$@" | awk '$3 ~ /^\// { print $3 }' | sort -u |
        grep -vE '/(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s|libz|libcuda[a-z]*|libcublas[^/]*|libnccl)\.so'
}

# What is larger than it may be is an error. The first file is the first of the archive, so that it can be taken out without
# reading all of it.
compress() { # FOLDER FIRST ARCHIVE MOST_BYTES
    local bytes
    tar -C "$1" --owner=0 --group=0 -cf - "$2" --exclude="$2" mics-gpu | xz -9e -T1 >"$3" || die 1 "$3 cannot be written"
    bytes=$(stat -c %s "$3")
    echo "$3: $((bytes / 1024)) KiB"
    [ "$bytes" -le "$4" ] || { rm "$3"; die 1 "$3 would have more than $(($4 / 1024)) KiB"; }
}

# NCCL's machine code for other chips is most of it.
pack_nccl() { # ARCHIVE
    local lib=$stage/nccl/mics-gpu/lib
    mkdir -p "$lib"
    python3 bench/gpu/one_chip.py "$NCCL_LIBRARY" 90 "$lib/libnccl.so.2" && strip --strip-unneeded "$lib/libnccl.so.2" ||
        die 1 "NCCL_LIBRARY=$NCCL_LIBRARY cannot be packed"
    compress "$stage/nccl" mics-gpu/lib "$1" $NCCL_BYTES
}

# Runs from the checkout, with a build folder of its own.
pack() { # [FILE]
    local archive stage tree name path
    [ -z "${NCCL_LIBRARY:-}" ] || [ -f "$NCCL_LIBRARY" ] || die 2 "no file at NCCL_LIBRARY=$NCCL_LIBRARY"
    build=$(absolute "${BUILD:-build-pack}") archive=$(absolute "${1:-$build/mics-gpu.tar.xz}")
    # MPI is what a machine with one GPU has no use for, and often lacks.
    build 90-real -DMICS_MPI=OFF -DMICS_TEST_DATA=tests/golden
    stage=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$stage'" EXIT
    tree=$stage/mics-gpu
    mkdir -p "$tree/bin" "$tree/lib" "$(dirname "$archive")"
    for name in mics libmics_cuda.so $(cuda_tests) "${benches[@]}"; do
        path=$(program_in "$build" "$name")
        [ -n "$path" ] || die 1 "$name was not built in $build"
        if ! cp "$path" "$tree/bin/" || ! strip --strip-unneeded "$tree/bin/$name"; then
            die 1 "$name cannot be packed"
        fi
    done
    libraries_of "$tree"/bin/* | xargs -r cp -L -t "$tree/lib" || die 1 "the libraries cannot be packed"
    cp "$script" "$tree/run.sh"
    cp --parents -r bench/gpu/*.json bench/gpu/torch_*.py bench/gpu/phases.sh bench/gpu/steps.sh configs/gpt2-tiny.json examples/demo.json examples/corpus \
        tests/cli/lib.sh tests/cuda/test_train_cuda.sh tests/golden "$tree/" ||
        die 1 "the run files cannot be packed"
    git describe --always --dirty 2>/dev/null >"$tree/PACKED" || echo unknown >"$tree/PACKED"
    echo "$(cat "$tree/PACKED"), $(find "$tree/bin" -type f | wc -l) programs"
    compress "$stage" mics-gpu/run.sh "$archive" $PACK_BYTES
    rm -f "${archive%.tar.xz}-nccl.tar.xz" # of another build
    [ -z "${NCCL_LIBRARY:-}" ] || pack_nccl "${archive%.tar.xz}-nccl.tar.xz"
}
