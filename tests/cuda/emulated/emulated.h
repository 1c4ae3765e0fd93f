// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the emulation's files share: how work is enqueued, and memory is known.
#pragma once

#include "cuda_runtime.h"
#include <functional>

namespace mics_emulated
{

// ---- for libraries that are emulated on top (matrix products, collectives) ----

// Enqueues `work` on a stream; it runs on the stream's thread, after all that was enqueued before. `name` is a literal.
cudaError_t enqueue(cudaStream_t stream, const char *name, std::function<void()> work);

// Work that waits for another stream, rank or process calls this about once a millisecond while it waits: everything that has
// been enqueued in this process may then run, as it would on a chip, so that nobody waits in a circle.
void waiting();

// Fails the device as an error inside a kernel does: every later call returns `error`, what is enqueued is not run.
void fail_device(cudaError_t error);
bool device_failed();

// ---- memory ----

enum memory_kind { MEMORY_PAGEABLE, MEMORY_PINNED, MEMORY_DEVICE };
// Whose memory [pointer, pointer + bytes) is. What begins in a block and runs past its end is a defect.
memory_kind memory_of(const void *pointer, size_t bytes, const char *what);
// Counts who has told a library of (part of) a device block, by +1 and -1; a block that somebody has may not be freed.
void keep_block(const void *pointer, int by);
// A library takes memory of a device without cudaMalloc, or gives it back.
void take_memory(int device, ptrdiff_t bytes);
// Looks at what lies around every device block; a changed byte is a defect, told with the name of what ran last.
void check_guards(const char *after);

// ---- kernels ----

// Runs all blocks of a grid on the calling thread.
void run_grid(const launch_shape &shape, int order, const std::function<void()> &thread_main);

// Ends the process, as `defect`, outside of kernels.
[[noreturn]] void defect_in(const char *where, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

double now_us();

} // namespace mics_emulated
