// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Merging the bytes or characters of one piece, lowest rank first and leftmost among equals.
//
// A piece of n bytes is a list of symbols, each known by the position of its first byte, and a heap
// of the merges that were possible when they were pushed: O(n log n), so that a piece of a megabyte
// is merged in less than a second. Short pieces repeat: their tokens are kept in a cache.
//
// token[p]: -1 where a symbol has been merged away. Symbols only grow, so a heap entry is still
// possible exactly where a symbol begins and the next one ends as the entry says.
//
// Invariant, checked by is_linked: at a symbol's beginning p, token[p] >= 0, next[p] is the next
// symbol's beginning or the piece's end, and previous[p] the one before or -1.
#include "base/assert.h"
#include "base/free.h"
#include "base/utf8.h"
#include "io/data/tokenizer/bpe.h"
#include "mics/log.h"
#include <string.h>
#include <xxhash.h>

enum {
    MAX_PIECE = 1 << 29, // so that the heap has 2^30 entries, and their places fit into 31 bits
    CACHED_BYTES = 24,
    CACHED_TOKENS = 8,
    CACHE_SLOTS = 1 << 14 // 1 MiB: a second-level cache's size
};

typedef struct candidate {
    int32_t rank;
    int32_t at;  // first byte of the left symbol
    int32_t end; // where the symbol behind the right one begins
    int32_t merged;
} candidate;

typedef struct cache_slot {
    char word[CACHED_BYTES];
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
    char *space;       // of WordPiece (mics_wordpiece_cut)
};

static void free_arrays(mics_bpe_merger *merger)
{
    mics_memory *memory = merger->bpe->memory;
    MICS_FREE_ALL(memory, merger->token, merger->next, merger->previous, merger->heap);
    merger->token = merger->next = merger->previous = NULL;
    merger->heap = NULL;
    merger->capacity = 0;
}

void mics_bpe_merger_close(mics_bpe_merger *merger)
{
    if (merger == NULL)
        return;
    free_arrays(merger);
    MICS_FREE_ALL(merger->bpe->memory, merger->cache, merger->space, merger);
}

mics_status mics_bpe_merger_open(const mics_bpe *bpe, mics_bpe_merger **merger_out)
{
    mics_bpe_merger *merger = NULL;
    MICS_TRY(MICS_NEW(bpe->memory, 1, &merger));
    merger->bpe = bpe;
    mics_status status = MICS_OK;
    if (bpe->wordpiece.prefix != NULL)
        status = MICS_NEW(bpe->memory, mics_wordpiece_space(bpe), &merger->space);
    if (status != MICS_OK) {
        mics_bpe_merger_close(merger);
        return status;
    }
    *merger_out = merger;
    return MICS_OK;
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
        if (merger->previous[at] >= 0)
            consider(merger, merger->previous[at], bytes);
    }
}

// The symbols of a word before any is merged.
typedef struct symbols {
    mics_bpe_merger *merger;
    int32_t first, last; // -1: none yet
} symbols;

static void add_symbol(symbols *s, int32_t at, int32_t token)
{
    mics_bpe_merger *merger = s->merger;
    merger->token[at] = token;
    merger->previous[at] = s->last;
    if (s->last >= 0)
        merger->next[s->last] = at;
    else
        s->first = at;
    s->last = at;
}

static void add_bytes(symbols *s, const char *text, int32_t begin, int32_t end)
{
    for (int32_t at = begin; at < end; at++)
        add_symbol(s, at, s->merger->bpe->byte_token[(unsigned char)text[at]]);
}

static void add_chars(symbols *s, const char *text, int32_t bytes)
{
    const mics_bpe *bpe = s->merger->bpe;
    bool was_unknown = false;
    for (int32_t at = 0, end = 0; at < bytes; at = end) {
        const int32_t length = mics_utf8_char(text + at, (size_t)(bytes - at));
        end = at + (length > 0 ? length : 1);
        const int32_t token = mics_bpe_find_word(bpe, text + at, (size_t)(end - at));
        if (token >= 0)
            add_symbol(s, at, token);
        else if (bpe->has_bytes)
            add_bytes(s, text, at, end);
        else if (bpe->unknown >= 0 && !(was_unknown && bpe->fuse_unknown))
            add_symbol(s, at, bpe->unknown);
        was_unknown = token < 0;
    }
}

static bool is_linked(const mics_bpe_merger *merger, int32_t first, int32_t bytes)
{
    int32_t before = -1, at = first;
    while (at < bytes && merger->token[at] >= 0 && merger->previous[at] == before &&
           merger->next[at] > at) {
        before = at;
        at = merger->next[at];
    }
    return at == bytes;
}

static mics_status merge_word(mics_bpe_merger *merger, const char *word, size_t bytes,
                              mics_token_list *list)
{
    if (bytes > MAX_PIECE)
        return mics_fail(MICS_ERR_INVALID,
                         "%zu bytes without a place to cut are more than a tokenizer merges (%d)",
                         bytes, MAX_PIECE);
    if (merger->bpe->wordpiece.prefix != NULL)
        return mics_wordpiece_cut(merger->bpe, word, bytes, merger->space, list);
    MICS_TRY(reserve(merger, bytes));
    const int32_t length = (int32_t)bytes;
    symbols s = {.merger = merger, .first = -1, .last = -1};
    if (merger->bpe->byte_level)
        add_bytes(&s, word, 0, length);
    else
        add_chars(&s, word, length);
    if (s.last < 0)
        return MICS_OK;
    merger->next[s.last] = length;
    merger->heap_count = 0;
    for (int32_t i = s.first; i < length; i = merger->next[i])
        consider(merger, i, length);
    merge_all(merger, length);
    MICS_ASSERT(is_linked(merger, s.first, length));
    int32_t count = 0; // tokens move to the front of their own array
    for (int32_t i = s.first; i < length; i = merger->next[i])
        merger->token[count++] = merger->token[i];
    return mics_token_list_append(list, merger->token, count);
}

static void remember(cache_slot *slot, const char *word, size_t bytes, const int32_t *tokens,
                     int64_t count)
{
    memcpy(slot->word, word, bytes);
    if (count > 0)
        memcpy(slot->tokens, tokens, (size_t)count * sizeof *tokens);
    slot->bytes = (uint8_t)bytes;
    slot->count = (uint8_t)count;
}

static mics_status merge_cached(mics_bpe_merger *merger, const char *word, size_t bytes,
                                mics_token_list *list)
{
    if (bytes > CACHED_BYTES)
        return merge_word(merger, word, bytes, list);
    if (merger->cache == NULL)
        MICS_TRY(MICS_NEW(merger->bpe->memory, CACHE_SLOTS, &merger->cache));
    cache_slot *slot = &merger->cache[XXH3_64bits(word, bytes) % CACHE_SLOTS];
    if (slot->bytes == bytes && memcmp(slot->word, word, bytes) == 0)
        return mics_token_list_append(list, slot->tokens, slot->count);
    int64_t begin = list->count;
    MICS_TRY(merge_word(merger, word, bytes, list));
    if (list->count - begin <= CACHED_TOKENS)
        remember(slot, word, bytes, list->tokens + begin, list->count - begin);
    return MICS_OK;
}

mics_status mics_bpe_merge(mics_bpe_merger *merger, const char *piece, size_t bytes,
                           mics_token_list *list)
{
    const mics_bpe *bpe = merger->bpe;
    if (bpe->ignore_merges && bytes <= bpe->longest_word) {
        const int32_t whole = mics_bpe_find_word(bpe, piece, bytes);
        if (whole >= 0)
            return mics_token_list_append(list, &whole, 1);
    }
    size_t begin = 0;
    for (size_t at = 1; at < bytes && bpe->joints != NULL; at++) {
        if (((unsigned char)piece[at] & 0xC0) != 0x80 && mics_bpe_is_cut(bpe, piece, bytes, at)) {
            MICS_TRY(merge_cached(merger, piece + begin, at - begin, list));
            begin = at;
        }
    }
    return merge_cached(merger, piece + begin, bytes - begin, list);
}
