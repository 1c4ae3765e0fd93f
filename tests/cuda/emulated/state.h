// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What runtime.cpp, stream.cpp and memory.cpp share.
#pragma once

#include "emulated.h"
#include <mutex>

namespace mics_emulated
{

// From the environment, read once; ../README.md lists them.
struct emulated_settings {
    int devices;
    int driver; // 13000
    size_t memory_bytes;
    int major;           // of the compute capability
    size_t shared_bytes; // that a block may ask for
    bool prohibited;     // by their compute mode
    bool denied;         // GPUs are there, but not for this process
    bool eager;          // everything runs as soon as it is enqueued
    bool lazy;           // nothing runs before somebody waits for it
    unsigned seed;       // of what is neither
    long fail_at;        // the n-th kernel fails; 0: none
    int threads;         // order of threads in all launches; 0: each launch draws one
};
const emulated_settings &settings();

// Dynamic shared memory: what a launch may have unasked, and what the largest chips grant (compute
// capability 9.0, 227 KiB).
constexpr size_t SHARED_UNASKED = 49152, SHARED_MOST = 232448;

int current_device();
// Why a call that needs a device cannot be made; the device's own failure too.
cudaError_t entry_error();
// Keeps what a call returns as the thread's newest error.
cudaError_t note(cudaError_t error);
// Calls that may wait for a device, or ask how far it is, break the capture of their thread, and of the stream that they are about
// (NULL: of none), as on a chip.
cudaError_t refused_by_capture(cudaStream_t about);
// Lets all streams run and waits for those of the thread's device.
void wait_for_all();

} // namespace mics_emulated
