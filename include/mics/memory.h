// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Tagged, counted allocation. Every module takes the mics_memory that it allocates from, so a test
// can count what is live, compare peaks with the planner's figure, and make the n-th allocation
// fail.
#ifndef MICS_MEMORY_H
#define MICS_MEMORY_H

#include "mics/status.h"
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// What a block is for. The memory ledger of a schedule has one figure per tag; totals end before
// MICS_MEM_OFFLOAD.
#define MICS_MEMORY_TAG_LIST(X)                                                                    \
    X(MICS_MEM_PARAMS, "parameters")                                                               \
    X(MICS_MEM_GRADS, "gradients")                                                                 \
    X(MICS_MEM_OPTIMIZER, "optimizer state")                                                       \
    X(MICS_MEM_GATHER, "gather slots")                                                             \
    X(MICS_MEM_REDUCE, "reduce slots")                                                             \
    X(MICS_MEM_ACTIVATIONS, "activations")                                                         \
    X(MICS_MEM_WORKSPACE, "workspace")                                                             \
    X(MICS_MEM_COMM, "communication buffers")                                                      \
    X(MICS_MEM_MESSAGES, "message buffers")                                                        \
    X(MICS_MEM_DATA, "batch")                                                                      \
    X(MICS_MEM_OUTER, "anchors and meetings")                                                      \
    X(MICS_MEM_NODE, "copies in node memory")                                                      \
    X(MICS_MEM_OFFLOAD, "offloaded activations")                                                   \
    X(MICS_MEM_HOST, "host bookkeeping")

typedef enum mics_memory_tag {
#define MICS_MEMORY_TAG_ENUM(name, text) name,
    MICS_MEMORY_TAG_LIST(MICS_MEMORY_TAG_ENUM)
#undef MICS_MEMORY_TAG_ENUM
        MICS_MEM_TAGS
} mics_memory_tag;

// Every block starts on such a boundary (one cache line, one AVX-512 register) and counts as its
// size rounded up to it.
enum { MICS_ALIGNMENT = 64 };

typedef struct mics_memory mics_memory;

// All in bytes, blocks rounded up to MICS_ALIGNMENT. `total` is of the memory that ranks
// compute in: without MICS_MEM_OFFLOAD, and MICS_MEM_HOST (names, tables: only counted).
typedef struct mics_memory_stats {
    size_t now[MICS_MEM_TAGS];
    size_t peak[MICS_MEM_TAGS];
    size_t total_now;
    size_t total_peak;
    int64_t allocations; // calls of mics_alloc since opening, failed ones included
    int64_t live_blocks;
} mics_memory_stats;

/* Text of a tag ("gather slots"); never NULL. */
const char *mics_memory_tag_text(mics_memory_tag tag);

/* Opens an allocator.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY.
 * Owns:    *memory_out belongs to the caller; end it with mics_memory_close.   Threads: any.
 */
mics_status mics_memory_open(mics_memory **memory_out);

/* Closes an allocator; NULL is allowed. Blocks still live are reported as an error line and stay
 * valid.
 *
 * Returns: the number of blocks that were never freed (tests demand 0).
 */
int64_t mics_memory_close(mics_memory *memory);

/* Peaks are what is held now: what comes is measured by itself. */
void mics_memory_reset_peaks(mics_memory *memory);

/* Makes the allocation number `countdown` from now (1 = the next) fail with MICS_ERR_MEMORY, once;
 * 0 switches this off. For tests.
 *
 * Needs:   countdown >= 0.
 * Threads: any.
 */
void mics_memory_fail_after(mics_memory *memory, int64_t countdown);

/* Allocates zeroed, 64-byte aligned memory.
 *
 * Needs:   memory not NULL. bytes = 0 gives a valid block of no use.
 * Returns: MICS_OK; MICS_ERR_MEMORY (logged with tag and size; *block_out untouched).
 * Owns:    the block is the caller's; give it back with mics_free to the same allocator.
 * Threads: any.
 */
mics_status mics_alloc(mics_memory *memory, mics_memory_tag tag, size_t bytes, void **block_out);

/* Allocates zeroed elements, tagged MICS_MEM_HOST: MICS_NEW(memory, count, &list) takes their size
 * from the pointer that it fills in.
 *
 * pointer_out: the address of a pointer to such elements.
 * Units:   elem_bytes: bytes.
 * Needs:   count >= 0; 0 gives a valid block of no use.
 * Returns: MICS_OK; MICS_ERR_MEMORY, also if the size overflows (*pointer_out untouched).
 * Owns:    the block is the caller's; give it back with mics_free.      Threads: any.
 */
mics_status mics_new(mics_memory *memory, size_t count, size_t elem_bytes, void *pointer_out);
#define MICS_NEW(memory, count, pointer)                                                           \
    mics_new(memory, (size_t)(count), sizeof **(pointer), /* NOLINT(bugprone-sizeof-expression) */ \
             pointer)

/* Gives a block back; NULL is allowed. Threads: any. */
void mics_free(mics_memory *memory, void *block);

/* Grows or shrinks a block, moving it; new bytes are zero. *block may be NULL (then it is
 * mics_alloc).
 *
 * Needs:   *block NULL or from this allocator; bytes = 0 gives a valid block of no use.
 * Returns: MICS_OK; MICS_ERR_MEMORY (*block untouched and still valid).   Threads: any.
 */
mics_status mics_realloc(mics_memory *memory, mics_memory_tag tag, size_t bytes, void **block);

/* Counts a block that lies elsewhere, in a device's memory, as mics_alloc would count it; unbook:
 * it is gone.
 *
 * Needs:   what is unbooked was booked, by the same tag and bytes.
 * Returns: MICS_OK; MICS_ERR_MEMORY (told to fail; nothing is counted).   Threads: any.
 */
mics_status mics_memory_book(mics_memory *memory, mics_memory_tag tag, size_t bytes);
void mics_memory_unbook(mics_memory *memory, mics_memory_tag tag, size_t bytes);

/* Copies a string into a block tagged MICS_MEM_HOST.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY.         Owns: the caller frees *copy_out with mics_free.
 */
mics_status mics_strdup(mics_memory *memory, const char *text, char **copy_out);

/* A snapshot of the counters. Threads: any. */
void mics_memory_stats_get(const mics_memory *memory, mics_memory_stats *stats_out);

/* `bytes` as a block counts it: rounded up to MICS_ALIGNMENT, and at least that.
 *
 * The one rule that planner and allocator share.
 * Needs:   bytes <= SIZE_MAX - MICS_ALIGNMENT.
 */
size_t mics_memory_block_bytes(size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
