// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Merging the bytes of one piece, lowest rank first and leftmost among equals.
//
// A piece of n bytes is a list of symbols, each known by the position of its first byte, and a heap
// of the merges that were possible when they were pushed: O(n log n), so that a piece of a megabyte
// is merged in less than a second. Short pieces repeat: their tokens are kept in a cache.
//
// Invariants while merging:
//   1. token[p] >= 0 exactly for the positions p where a symbol begins; next[p] is where it ends.
//   2. A heap entry is still possible exactly when a symbol begins at its position and the next
//      symbol ends where the entry says, because symbols only grow.
#include "io/data/bpe.h"
#include "mics/log.h"
#include <string.h>
#include <xxhash.h>

enum {
    MAX_PIECE = 1 << 30,
    CACHED_BYTES = 24,
    CACHED_TOKENS = 8,
    CACHE_SLOTS = 1 << 14 // 1 MiB: a second-level cache's size
};

typedef struct candidate {
    int32_t rank;
    int32_t at;  // first byte of the left symbol
    int32_t end; // behind the last byte of the right one
    int32_t merged;
} candidate;

typedef struct cache_slot {
    char piece[CACHED_BYTES];
    uint8_t bytes; // 0: empty
    uint8_t count;
    int32_t tokens[CACHED_TOKENS];
} cache_slot;

struct mics_bpe_merger {
    const mics_bpe *bpe;
    int32_t capacity;                 // bytes of the longest piece that the arrays hold
    int32_t *token, *next, *previous; // (capacity)
    candidate *heap;                  // (2 * capacity): n - 1 at first, two more for each merge
    int32_t heap_count;
    cache_slot *cache; // (CACHE_SLOTS)
};

mics_status mics_bpe_merger_open(const mics_bpe *bpe, mics_bpe_merger **merger_out)
{
    mics_bpe_merger *merger = NULL;
    MICS_TRY(MICS_NEW(bpe->memory, 1, &merger));
    merger->bpe = bpe;
    *merger_out = merger;
    return MICS_OK;
}

static void free_arrays(mics_bpe_merger *merger)
{
    mics_memory *memory = merger->bpe->memory;
    mics_free(memory, merger->token);
    mics_free(memory, merger->next);
    mics_free(memory, merger->previous);
    mics_free(memory, merger->heap);
    merger->token = merger->next = merger->previous = NULL;
    merger->heap = NULL;
    merger->capacity = 0;
}

void mics_bpe_merger_close(mics_bpe_merger *merger)
{
    if (merger == NULL)
        return;
    free_arrays(merger);
    mics_free(merger->bpe->memory, merger->cache);
    mics_free(merger->bpe->memory, merger);
}

static mics_status reserve(mics_bpe_merger *merger, size_t bytes)
{
    if (bytes <= (size_t)merger->capacity)
        return MICS_OK;
    size_t capacity = 256;
    while (capacity < bytes)
        capacity *= 2;
    free_arrays(merger);
    mics_memory *memory = merger->bpe->memory;
    MICS_TRY(MICS_NEW(memory, capacity, &merger->token));
    MICS_TRY(MICS_NEW(memory, capacity, &merger->next));
    MICS_TRY(MICS_NEW(memory, capacity, &merger->previous));
    MICS_TRY(MICS_NEW(memory, 2 * capacity, &merger->heap));
    merger->capacity = (int32_t)capacity;
    return MICS_OK;
}

// ---- the heap ----

static bool before(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(mics_bpe_merger *merger, candidate item)
{
    candidate *heap = merger->heap;
    int32_t i = merger->heap_count++;
    while (i > 0 && before(&item, &heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = item;
}

static candidate pop(mics_bpe_merger *merger)
{
    candidate *heap = merger->heap;
    candidate top = heap[0], last = heap[--merger->heap_count];
    int32_t i = 0, child = 1;
    while (child < merger->heap_count) {
        if (child + 1 < merger->heap_count && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &last))
            break;
        heap[i] = heap[child];
        i = child;
        child = 2 * i + 1;
    }
    heap[i] = last;
    return top;
}

// ---- merging ----

// Pushes the merge of the symbol at `at` with its right neighbour, if there is one.
static void consider(mics_bpe_merger *merger, int32_t at, int32_t bytes)
{
    int32_t right = merger->next[at];
    if (right >= bytes)
        return;
    const mics_bpe_pair *pair =
        mics_bpe_find_pair(merger->bpe, merger->token[at], merger->token[right]);
    if (pair != NULL)
        push(merger,
             (candidate){
                 .rank = pair->rank, .at = at, .end = merger->next[right], .merged = pair->merged});
}

static void merge_all(mics_bpe_merger *merger, int32_t bytes)
{
    while (merger->heap_count > 0) {
        candidate item = pop(merger);
        int32_t at = item.at, right = merger->next[at];
        if (merger->token[at] < 0 || right >= bytes || merger->next[right] != item.end)
            continue;
        merger->token[at] = item.merged;
        merger->token[right] = -1;
        merger->next[at] = item.end;
        if (item.end < bytes)
            merger->previous[item.end] = at;
        consider(merger, at, bytes);
        if (at > 0)
            consider(merger, merger->previous[at], bytes);
    }
}

static mics_status merge_piece(mics_bpe_merger *merger, const char *piece, size_t bytes,
                               mics_token_list *list)
{
    const mics_bpe *bpe = merger->bpe;
    int32_t whole = bpe->ignore_merges ? mics_bpe_find_word(bpe, piece, bytes) : -1;
    if (whole >= 0)
        return mics_token_list_append(list, &whole, 1);
    if (bytes > MAX_PIECE)
        return mics_fail(MICS_ERR_INVALID,
                         "%zu bytes without a place to cut are more than a tokenizer merges (%d)",
                         bytes, MAX_PIECE);
    MICS_TRY(reserve(merger, bytes));
    int32_t length = (int32_t)bytes;
    for (int32_t i = 0; i < length; i++) {
        merger->token[i] = bpe->byte_token[(unsigned char)piece[i]];
        merger->next[i] = i + 1;
        merger->previous[i] = i - 1;
    }
    merger->heap_count = 0;
    for (int32_t i = 0; i < length; i++)
        consider(merger, i, length);
    merge_all(merger, length);
    int32_t count = 0; // tokens move to the front of their own array
    for (int32_t i = 0; i < length; i = merger->next[i])
        merger->token[count++] = merger->token[i];
    return mics_token_list_append(list, merger->token, count);
}

static void remember(cache_slot *slot, const char *piece, size_t bytes, const int32_t *tokens,
                     int64_t count)
{
    memcpy(slot->piece, piece, bytes);
    memcpy(slot->tokens, tokens, (size_t)count * sizeof *tokens);
    slot->bytes = (uint8_t)bytes;
    slot->count = (uint8_t)count;
}

mics_status mics_bpe_merge(mics_bpe_merger *merger, const char *piece, size_t bytes,
                           mics_token_list *list)
{
    if (bytes > CACHED_BYTES)
        return merge_piece(merger, piece, bytes, list);
    if (merger->cache == NULL)
        MICS_TRY(MICS_NEW(merger->bpe->memory, CACHE_SLOTS, &merger->cache));
    cache_slot *slot = &merger->cache[XXH3_64bits(piece, bytes) % CACHE_SLOTS];
    if (slot->bytes == bytes && memcmp(slot->piece, piece, bytes) == 0)
        return mics_token_list_append(list, slot->tokens, slot->count);
    int64_t begin = list->count;
    MICS_TRY(merge_piece(merger, piece, bytes, list));
    if (list->count - begin <= CACHED_TOKENS)
        remember(slot, piece, bytes, list->tokens + begin, list->count - begin);
    return MICS_OK;
}
