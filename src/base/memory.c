// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Tagged, counted allocation.
//
// now[tag]: sum of mics_memory_block_bytes(size) over the tag's live blocks. A block's header lies
// MICS_ALIGNMENT bytes before what the caller sees.
//
// Invariants (guarded by `mutex`), checked by is_balanced:
//   1. total_now is the sum of now[tag] over all tags but MICS_MEM_HOST and MICS_MEM_OFFLOAD.
//   2. Peaks are never below now.
//   3. Live blocks are not negative in number, and none is smaller than MICS_ALIGNMENT.
#include "mics/memory.h"
#include "base/assert.h"
#include "mics/log.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// A page of the larger size on x86-64 and most ARM.
enum { LARGE_PAGE = 2 * 1024 * 1024 };

struct mics_memory {
    pthread_mutex_t mutex;
    mics_memory_stats stats;
    int64_t countdown; // 0: off; 1: the next allocation fails
};

typedef struct block_header {
    void *base;   // of what the system gave
    size_t bytes; // as asked for
    mics_memory_tag tag;
} block_header;

_Static_assert(sizeof(block_header) <= MICS_ALIGNMENT,
               "the header must fit before an aligned block");

static block_header *header_of(void *block)
{
    return (block_header *)((char *)block - MICS_ALIGNMENT);
}

const char *mics_memory_tag_text(mics_memory_tag tag)
{
    static const char *const texts[] = {
#define MICS_MEMORY_TAG_TEXT(name, text) text,
        MICS_MEMORY_TAG_LIST(MICS_MEMORY_TAG_TEXT)
#undef MICS_MEMORY_TAG_TEXT
    };
    return (unsigned)tag < MICS_MEM_TAGS ? texts[tag] : "unknown";
}

size_t mics_memory_block_bytes(size_t bytes)
{
    size_t rounded = (bytes + MICS_ALIGNMENT - 1) / MICS_ALIGNMENT * MICS_ALIGNMENT;
    return rounded == 0 ? MICS_ALIGNMENT : rounded;
}

mics_status mics_memory_open(mics_memory **memory_out)
{
    mics_memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL)
        return mics_fail(MICS_ERR_MEMORY, "no memory for an allocator's counters");
    if (pthread_mutex_init(&memory->mutex, NULL) != 0) {
        free(memory);
        return mics_fail(MICS_ERR_MEMORY, "no mutex for an allocator");
    }
    *memory_out = memory;
    return MICS_OK;
}

int64_t mics_memory_close(mics_memory *memory)
{
    if (memory == NULL)
        return 0;
    int64_t live = memory->stats.live_blocks;
    for (int tag = 0; live != 0 && tag < MICS_MEM_TAGS; tag++) {
        if (memory->stats.now[tag] != 0)
            mics_log(MICS_LOG_ERROR, "memory: %zu bytes of %s were never freed",
                     memory->stats.now[tag], mics_memory_tag_text((mics_memory_tag)tag));
    }
    pthread_mutex_destroy(&memory->mutex);
    free(memory);
    return live;
}

void mics_memory_reset_peaks(mics_memory *memory)
{
    mics_memory_stats *stats = &memory->stats;
    pthread_mutex_lock(&memory->mutex);
    memcpy(stats->peak, stats->now, sizeof stats->peak);
    stats->total_peak = stats->total_now;
    pthread_mutex_unlock(&memory->mutex);
}

void mics_memory_fail_after(mics_memory *memory, int64_t countdown)
{
    pthread_mutex_lock(&memory->mutex);
    memory->countdown = countdown;
    pthread_mutex_unlock(&memory->mutex);
}

// Counts a call, and fails the one that a test wants to fail.
static mics_status count_call(mics_memory *memory, mics_memory_tag tag, size_t bytes)
{
    pthread_mutex_lock(&memory->mutex);
    memory->stats.allocations++;
    const bool fails = memory->countdown != 0 && --memory->countdown == 0;
    pthread_mutex_unlock(&memory->mutex);
    return fails ? mics_fail(MICS_ERR_MEMORY, "cannot allocate %zu bytes of %s: told to fail",
                             bytes, mics_memory_tag_text(tag))
                 : MICS_OK;
}

static bool is_balanced(const mics_memory_stats *stats)
{
    size_t total = 0, least = 0;
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++) {
        total += tag < MICS_MEM_OFFLOAD ? stats->now[tag] : 0;
        least += stats->now[tag] / MICS_ALIGNMENT;
        if (stats->peak[tag] < stats->now[tag])
            return false;
    }
    return stats->total_now == total && stats->total_peak >= total && stats->live_blocks >= 0 &&
           (size_t)stats->live_blocks <= least;
}

static void book(mics_memory *memory, mics_memory_tag tag, size_t bytes)
{
    mics_memory_stats *stats = &memory->stats;
    pthread_mutex_lock(&memory->mutex);
    stats->live_blocks++;
    stats->now[tag] += bytes;
    if (stats->now[tag] > stats->peak[tag])
        stats->peak[tag] = stats->now[tag];
    if (tag < MICS_MEM_OFFLOAD)
        stats->total_now += bytes;
    if (stats->total_now > stats->total_peak)
        stats->total_peak = stats->total_now;
    MICS_ASSERT(is_balanced(stats));
    pthread_mutex_unlock(&memory->mutex);
}

static void unbook(mics_memory *memory, mics_memory_tag tag, size_t bytes)
{
    pthread_mutex_lock(&memory->mutex);
    memory->stats.live_blocks--;
    memory->stats.now[tag] -= bytes;
    if (tag < MICS_MEM_OFFLOAD)
        memory->stats.total_now -= bytes;
    MICS_ASSERT(is_balanced(&memory->stats));
    pthread_mutex_unlock(&memory->mutex);
}

// Arenas are read whole, by kernels and by other processes that copy from them: looking small pages
// up costs much of that. The kernel may say no; nothing depends on it.
static void ask_for_large_pages(char *base, size_t bytes)
{
    const size_t before = (LARGE_PAGE - (uintptr_t)base % LARGE_PAGE) % LARGE_PAGE;
    const size_t pages = bytes > before ? (bytes - before) / LARGE_PAGE : 0;
    if (pages > 0)
        (void)madvise(base + before, pages * LARGE_PAGE, MADV_HUGEPAGE);
}

mics_status mics_alloc(mics_memory *memory, mics_memory_tag tag, size_t bytes, void **block_out)
{
    if (bytes > SIZE_MAX - 3 * MICS_ALIGNMENT)
        return mics_fail(MICS_ERR_MEMORY, "cannot allocate %zu bytes of %s", bytes,
                         mics_memory_tag_text(tag));
    size_t counted = mics_memory_block_bytes(bytes);
    MICS_TRY(count_call(memory, tag, bytes));
    // calloc leaves new pages of the system untouched: they are zeroed when they are first used, and
    // by the threads that use them, not here one after the other.
    char *base = calloc(1, counted + 2 * MICS_ALIGNMENT);
    if (base == NULL)
        return mics_fail(MICS_ERR_MEMORY, "cannot allocate %zu bytes of %s: the system has no more",
                         bytes, mics_memory_tag_text(tag));
    book(memory, tag, counted);
    ask_for_large_pages(base, counted + 2 * MICS_ALIGNMENT);
    char *block = base + 2 * MICS_ALIGNMENT - (uintptr_t)base % MICS_ALIGNMENT;
    *header_of(block) = (block_header){.base = base, .bytes = bytes, .tag = tag};
    *block_out = block;
    return MICS_OK;
}

mics_status mics_new(mics_memory *memory, size_t count, size_t elem_bytes, void *pointer_out)
{
    void *block = NULL;
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, elem_bytes, &bytes))
        return mics_fail(MICS_ERR_MEMORY, "cannot allocate %zu times %zu bytes", count, elem_bytes);
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, bytes, &block));
    memcpy(pointer_out, &block, sizeof block);
    return MICS_OK;
}

void mics_free(mics_memory *memory, void *block)
{
    if (block == NULL)
        return;
    block_header *header = header_of(block);
    unbook(memory, header->tag, mics_memory_block_bytes(header->bytes));
    free(header->base);
}

mics_status mics_memory_book(mics_memory *memory, mics_memory_tag tag, size_t bytes)
{
    MICS_TRY(count_call(memory, tag, bytes));
    book(memory, tag, mics_memory_block_bytes(bytes));
    return MICS_OK;
}

void mics_memory_unbook(mics_memory *memory, mics_memory_tag tag, size_t bytes)
{
    unbook(memory, tag, mics_memory_block_bytes(bytes));
}

mics_status mics_realloc(mics_memory *memory, mics_memory_tag tag, size_t bytes, void **block)
{
    void *grown = NULL;
    MICS_TRY(mics_alloc(memory, tag, bytes, &grown));
    if (*block != NULL) {
        size_t old_bytes = header_of(*block)->bytes;
        memcpy(grown, *block, old_bytes < bytes ? old_bytes : bytes);
        mics_free(memory, *block);
    }
    *block = grown;
    return MICS_OK;
}

mics_status mics_strdup(mics_memory *memory, const char *text, char **copy_out)
{
    size_t bytes = strlen(text) + 1;
    void *copy = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, bytes, &copy));
    memcpy(copy, text, bytes);
    *copy_out = copy;
    return MICS_OK;
}

void mics_memory_stats_get(const mics_memory *memory, mics_memory_stats *stats_out)
{
    // The mutex is the one part of a counter that reading changes.
    mics_memory *unlocked = (mics_memory *)memory;
    pthread_mutex_lock(&unlocked->mutex);
    *stats_out = memory->stats;
    pthread_mutex_unlock(&unlocked->mutex);
}
