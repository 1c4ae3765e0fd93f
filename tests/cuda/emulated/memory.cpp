// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Device memory and page-locked memory of the host.
//
// A device block ends at most 255 bytes before a page that cannot be touched, so most accesses past
// its end fault at once; the bytes between, and those before it in its first page, hold a pattern
// that is looked at after each kernel. New blocks are filled with 0xff: NaN in every format.
#include "emulated.h"
#include "state.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace mics_emulated
{

namespace
{

struct memory_block {
    size_t bytes;
    memory_kind kind;
    int device;
    unsigned char *map;
    size_t map_bytes; // with the two pages around
    int kept = 0;     // registrations
};

const unsigned char GUARD = 0xa5;

std::mutex blocks_mutex;

// Never destroyed: streams may run until the process ends.
std::map<uintptr_t, memory_block> &blocks()
{
    static auto *all = new std::map<uintptr_t, memory_block>();
    return *all;
}

size_t page_bytes()
{
    static const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    return bytes;
}

std::map<int, size_t> libraries; // bytes, by device

size_t used_bytes(int device)
{
    size_t sum = libraries[device];
    for (const auto &entry : blocks())
        if (entry.second.kind == MEMORY_DEVICE && entry.second.device == device)
            sum += entry.second.bytes;
    return sum;
}

// Which byte between two addresses, less than a page apart, is not the pattern's; -1: none. All blocks are looked at after each
// kernel, so the library's comparison goes first.
ptrdiff_t changed_byte(const unsigned char *from, const unsigned char *to)
{
    // Never destroyed: a device may be closed as the program exits.
    static const auto &pattern = *new std::vector<unsigned char>(page_bytes(), GUARD);
    if (std::memcmp(from, pattern.data(), (size_t)(to - from)) == 0)
        return -1;
    return std::find_if(from, to, [](unsigned char byte) { return byte != GUARD; }) - from;
}

// Byte of the surroundings that changed, as an offset from the block's begin; 0 when none did.
ptrdiff_t changed_guard(uintptr_t start, const memory_block &block)
{
    const unsigned char *begin = reinterpret_cast<const unsigned char *>(start);
    const unsigned char *low = block.map + page_bytes();
    const unsigned char *high = block.map + block.map_bytes - page_bytes();
    const ptrdiff_t below = changed_byte(low, begin);
    if (below >= 0)
        return low + below - begin;
    const ptrdiff_t above = changed_byte(begin + block.bytes, high);
    return above >= 0 ? (ptrdiff_t)block.bytes + above : 0;
}

void check_block(uintptr_t start, const memory_block &block, const char *after)
{
    const ptrdiff_t at = block.kind == MEMORY_DEVICE ? changed_guard(start, block) : 0;
    if (at != 0)
        defect_in(after,
                  "a block of %zu bytes of device memory was written to outside, at byte %td",
                  block.bytes, at);
}

cudaError_t take(void **block_out, size_t bytes, memory_kind kind)
{
    const size_t page = page_bytes(), held = (bytes + 255) / 256 * 256;
    const size_t map_bytes = (held + page - 1) / page * page + 2 * page;
    void *map = mmap(nullptr, map_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    unsigned char *low = static_cast<unsigned char *>(map), *high = low + map_bytes - page;
    unsigned char *begin = high - held;
    std::memset(low + page, GUARD, (size_t)(begin - low) - page);
    std::memset(begin, 0xff, bytes);
    std::memset(begin + bytes, GUARD, held - bytes);
    mprotect(low, page, PROT_NONE);
    mprotect(high, page, PROT_NONE);
    blocks()[reinterpret_cast<uintptr_t>(begin)] = {bytes, kind,      current_device(),
                                                    low,   map_bytes, 0};
    *block_out = begin;
    return cudaSuccess;
}

cudaError_t give(void *block, memory_kind kind)
{
    if (block == nullptr)
        return cudaSuccess;
    if (cudaError_t error = refused_by_capture(nullptr))
        return error;
    wait_for_all(); // as the interface does: nothing in flight may still use it
    std::lock_guard<std::mutex> lock(blocks_mutex);
    auto entry = blocks().find(reinterpret_cast<uintptr_t>(block));
    if (entry == blocks().end() || entry->second.kind != kind)
        return cudaErrorInvalidValue;
    check_block(entry->first, entry->second, kind == MEMORY_DEVICE ? "cudaFree" : "cudaFreeHost");
    if (entry->second.kept != 0)
        defect_in("cudaFree", "a block of %zu bytes is registered with %d communicators",
                  entry->second.bytes, entry->second.kept);
    munmap(entry->second.map, entry->second.map_bytes);
    blocks().erase(entry);
    return cudaSuccess;
}

} // namespace

memory_kind memory_of(const void *pointer, size_t bytes, const char *what)
{
    std::lock_guard<std::mutex> lock(blocks_mutex);
    const uintptr_t at = reinterpret_cast<uintptr_t>(pointer);
    auto entry = blocks().upper_bound(at);
    if (entry == blocks().begin())
        return MEMORY_PAGEABLE;
    --entry;
    const uintptr_t end = entry->first + entry->second.bytes;
    if (at > end || (at == end && bytes > 0))
        return MEMORY_PAGEABLE;
    if (bytes > end - at)
        defect_in(what, "%zu bytes from byte %zu of a block of %zu", bytes,
                  (size_t)(at - entry->first), entry->second.bytes);
    return entry->second.kind;
}

void keep_block(const void *pointer, int by)
{
    std::lock_guard<std::mutex> lock(blocks_mutex);
    (--blocks().upper_bound(reinterpret_cast<uintptr_t>(pointer)))->second.kept += by;
}

void take_memory(int device, ptrdiff_t bytes)
{
    std::lock_guard<std::mutex> lock(blocks_mutex);
    libraries[device] += static_cast<size_t>(bytes);
}

void check_guards(const char *after)
{
    std::lock_guard<std::mutex> lock(blocks_mutex);
    for (const auto &entry : blocks())
        check_block(entry.first, entry.second, after);
}

void check_argument(const char *kernel, int index, const void *pointer)
{
    if (pointer != nullptr && memory_of(pointer, 0, kernel) == MEMORY_PAGEABLE)
        defect_in(kernel,
                  "argument %d points to memory that is neither the device's nor page-locked",
                  index);
}

} // namespace mics_emulated

using namespace mics_emulated;

extern "C" {

cudaError_t cudaMalloc(void **block, size_t bytes)
{
    if (cudaError_t error = entry_error())
        return note(error);
    if (cudaError_t error = refused_by_capture(nullptr))
        return note(error);
    std::lock_guard<std::mutex> lock(blocks_mutex);
    if (bytes == 0) {
        *block = nullptr;
        return cudaSuccess;
    }
    const size_t total = settings().memory_bytes;
    if (bytes > total || used_bytes(current_device()) > total - bytes)
        return note(cudaErrorMemoryAllocation);
    return note(take(block, bytes, MEMORY_DEVICE));
}

cudaError_t cudaFree(void *block)
{
    return note(give(block, MEMORY_DEVICE));
}

cudaError_t cudaHostAlloc(void **block, size_t bytes, unsigned)
{
    if (cudaError_t error = entry_error())
        return note(error);
    if (cudaError_t error = refused_by_capture(nullptr))
        return note(error);
    std::lock_guard<std::mutex> lock(blocks_mutex);
    return note(take(block, bytes, MEMORY_PINNED));
}

cudaError_t cudaMallocHost(void **block, size_t bytes)
{
    return cudaHostAlloc(block, bytes, 0);
}

cudaError_t cudaFreeHost(void *block)
{
    return note(give(block, MEMORY_PINNED));
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    if (cudaError_t error = entry_error())
        return note(error);
    std::lock_guard<std::mutex> lock(blocks_mutex);
    *total_bytes = settings().memory_bytes;
    *free_bytes =
        settings().memory_bytes - std::min(used_bytes(current_device()), settings().memory_bytes);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    const memory_kind kind = memory_of(pointer, 0, "cudaPointerGetAttributes");
    *attributes = {kind == MEMORY_DEVICE   ? cudaMemoryTypeDevice
                   : kind == MEMORY_PINNED ? cudaMemoryTypeHost
                                           : cudaMemoryTypeUnregistered,
                   kind == MEMORY_PAGEABLE ? -1 : current_device(),
                   kind == MEMORY_PAGEABLE ? nullptr : const_cast<void *>(pointer),
                   kind == MEMORY_DEVICE ? nullptr : const_cast<void *>(pointer)};
    return cudaSuccess;
}
}
