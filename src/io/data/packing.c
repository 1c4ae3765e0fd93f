// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How many rows an epoch has is known when all its windows were packed; which epoch a row is of, when
// those before it were. Both are kept once they are known, windows of two epochs, as ranks ask for rows
// on both sides of an epoch's end in any order; and the rows of the newest window.
#include "io/data/packing.h"
#include "base/free.h"
#include "base/rng.h"
#include "io/data/data.h"
#include "mics/log.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// The order of a window's rows; io/data/sample.c has the other streams.
static const uint64_t row_stream = (uint64_t)0x5C << 56;
enum { PART_SHIFT = 40 };

typedef struct placed {
    int64_t sample, place; // place: in the epoch's order
    int64_t tokens;
    int32_t next; // in the same row; -1: the last
} placed;

typedef struct row {
    int32_t first, last; // of `placed`
    int64_t left;        // tokens
    int32_t next;        // with as much left; -1: none
} row;

struct mics_packing {
    mics_memory *memory;
    mics_packing_spec spec;
    int64_t *usable; // (count) samples that are not left out; NULL: all
    int64_t count;   // of them
    mics_packing_facts facts;
    pthread_mutex_t lock; // of what follows
    // Row numbers: where epoch e begins, and in numbered[e % 2] window w of epoch e.
    int64_t *epochs;
    int64_t known, capacity, window_count;
    struct {
        int64_t *windows;
        int64_t epoch;
    } numbered[2];
    // The newest window.
    int64_t packed_epoch, packed_window;
    placed *placed; // (MICS_PACKING_WINDOW)
    row *rows;      // (MICS_PACKING_WINDOW)
    int32_t row_count;
    int32_t *open;  // (sequence + 1) the first row with so many tokens left; -1: none
    uint64_t *some; // (sequence / 64 + 1) whether there is one
};

static int64_t tokens_of(const mics_packing *p, int64_t sample)
{
    const int64_t tokens = p->spec.begins[sample + 1] - p->spec.begins[sample];
    return tokens < p->spec.sequence ? tokens : p->spec.sequence;
}

// The sample at a place of an epoch's order.
static int64_t sample_at(const mics_packing *p, int64_t epoch, int64_t place)
{
    const int64_t index =
        mics_sample_index(p->spec.seed, p->spec.part, p->count, epoch * p->count + place);
    return p->usable != NULL ? p->usable[index] : index;
}

// ---- rows with space ----

static void list_row(mics_packing *p, int32_t at)
{
    row *of = &p->rows[at];
    of->next = p->open[of->left];
    p->open[of->left] = at;
    p->some[of->left / 64] |= UINT64_C(1) << of->left % 64;
}

static void unlist_row(mics_packing *p, int32_t at)
{
    const int64_t left = p->rows[at].left;
    p->open[left] = p->rows[at].next; // it is the first
    if (p->open[left] < 0)
        p->some[left / 64] &= ~(UINT64_C(1) << left % 64);
}

// The row that so many tokens fill best; -1: none has the space.
static int32_t best_row(const mics_packing *p, int64_t tokens)
{
    uint64_t word = p->some[tokens / 64] & ~UINT64_C(0) << tokens % 64;
    for (int64_t at = tokens / 64;; word = p->some[at]) {
        if (word != 0)
            return p->open[at * 64 + __builtin_ctzll(word)];
        if (++at > p->spec.sequence / 64)
            return -1;
    }
}

// ---- a window ----

static int longer_first(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    if (x->tokens != y->tokens)
        return x->tokens > y->tokens ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

static void place(mics_packing *p, int32_t at)
{
    placed *item = &p->placed[at];
    int32_t to = best_row(p, item->tokens);
    item->next = -1;
    if (to >= 0) {
        unlist_row(p, to);
        p->placed[p->rows[to].last].next = at;
    } else {
        to = p->row_count++;
        p->rows[to] = (row){.first = at, .left = p->spec.sequence};
    }
    p->rows[to].last = at;
    p->rows[to].left -= item->tokens;
    list_row(p, to);
}

static void pack_window(mics_packing *p, int64_t epoch, int64_t window)
{
    const int64_t first = window * MICS_PACKING_WINDOW, left = p->count - first;
    const int32_t count = left < MICS_PACKING_WINDOW ? (int32_t)left : MICS_PACKING_WINDOW;
    if (p->packed_epoch == epoch && p->packed_window == window)
        return;
    for (int32_t i = 0; i < count; i++) {
        const int64_t sample = sample_at(p, epoch, first + i);
        p->placed[i] =
            (placed){.sample = sample, .place = first + i, .tokens = tokens_of(p, sample)};
    }
    qsort(p->placed, (size_t)count, sizeof *p->placed, longer_first);
    p->row_count = 0;
    for (int32_t i = 0; i < count; i++)
        place(p, i);
    for (int32_t i = 0; i < p->row_count; i++)
        p->open[p->rows[i].left] = -1;
    memset(p->some, 0, (size_t)(p->spec.sequence / 64 + 1) * sizeof *p->some);
    p->packed_epoch = epoch;
    p->packed_window = window;
}

// ---- epochs ----

// Packs an epoch, to know where its windows begin; *rows_out: its rows.
static int64_t number_windows(mics_packing *p, int64_t epoch)
{
    int64_t *windows = p->numbered[epoch % 2].windows;
    for (int64_t w = 0; w < p->window_count; w++) {
        pack_window(p, epoch, w);
        windows[w + 1] = windows[w] + p->row_count;
    }
    p->numbered[epoch % 2].epoch = epoch;
    return windows[p->window_count];
}

// Knows where one more epoch ends.
static mics_status number_epoch(mics_packing *p)
{
    if (p->known + 1 == p->capacity) {
        void *block = p->epochs;
        MICS_TRY(mics_realloc(p->memory, MICS_MEM_HOST, 2 * (size_t)p->capacity * sizeof *p->epochs,
                              &block));
        p->epochs = block;
        p->capacity *= 2;
    }
    p->epochs[p->known + 1] = p->epochs[p->known] + number_windows(p, p->known);
    p->known++;
    return MICS_OK;
}

// The last of `count` ascending numbers, the first 0, that is not above `at`.
static int64_t find(const int64_t *begins, int64_t count, int64_t at)
{
    int64_t low = 0, high = count;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (begins[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void copy_row(const mics_packing *p, int64_t index, int64_t *samples_out, int64_t *count_out)
{
    const uint64_t stream = row_stream | (uint64_t)p->spec.part << PART_SHIFT |
                            (uint64_t)(p->packed_epoch * p->window_count + p->packed_window);
    const uint64_t at =
        mics_rng_permute(p->spec.seed, stream, (uint64_t)p->row_count, (uint64_t)index);
    *count_out = 0;
    for (int32_t i = p->rows[at].first; i >= 0; i = p->placed[i].next)
        samples_out[(*count_out)++] = p->placed[i].sample;
}

mics_status mics_packing_row(mics_packing *packing, int64_t number, int64_t *samples_out,
                             int64_t *count_out)
{
    mics_packing *p = packing;
    mics_status status = MICS_OK;
    if (!p->spec.packs) {
        samples_out[0] = sample_at(p, number / p->count, number % p->count);
        *count_out = 1;
        return MICS_OK;
    }
    pthread_mutex_lock(&p->lock);
    while (status == MICS_OK && p->epochs[p->known] <= number)
        status = number_epoch(p);
    if (status == MICS_OK) {
        const int64_t epoch = find(p->epochs, p->known, number);
        const int64_t *windows = p->numbered[epoch % 2].windows;
        if (p->numbered[epoch % 2].epoch != epoch)
            (void)number_windows(p, epoch);
        number -= p->epochs[epoch];
        const int64_t window = find(windows, p->window_count, number);
        pack_window(p, epoch, window);
        copy_row(p, number - windows[window], samples_out, count_out);
    }
    pthread_mutex_unlock(&p->lock);
    return status;
}

// ---- opening ----

// Whether a sample, or an answer of a pair, is longer than a row; *tokens_out: of its rows.
static bool is_long(const mics_packing *p, int64_t sample, int64_t *tokens_out)
{
    const int64_t each = p->spec.pairs ? 2 : 1, *begins = p->spec.begins + sample * each;
    bool is_long = false;
    *tokens_out = 0;
    for (int64_t i = 0; i < each; i++) {
        is_long = is_long || begins[i + 1] - begins[i] > p->spec.sequence;
        *tokens_out += tokens_of(p, sample * each + i);
    }
    return is_long;
}

// Counts what is too long, and leaves it out where it is asked to.
static mics_status find_usable(mics_packing *p)
{
    const mics_packing_spec *spec = &p->spec;
    int64_t longer = 0, tokens = 0;
    for (int64_t i = 0; i < spec->count; i++) {
        const bool is_longer = is_long(p, i, &tokens);
        longer += is_longer;
        p->facts.tokens += is_longer && spec->drops_long ? 0 : tokens;
    }
    p->count = spec->count;
    if (!spec->drops_long || longer == 0) {
        p->facts.cut = longer;
        return MICS_OK;
    }
    p->facts.left_out = longer;
    MICS_TRY(MICS_NEW(p->memory, spec->count - longer + 1, &p->usable));
    p->count = 0;
    for (int64_t i = 0; i < spec->count; i++) {
        if (!is_long(p, i, &tokens))
            p->usable[p->count++] = i;
    }
    if (p->count > 0)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "data.too_long: all %lld samples are longer than a data.sequence_length of "
                     "%lld, and would be left out; make it longer, or take \"truncate\"",
                     (long long)spec->count, (long long)spec->sequence);
}

static mics_status make_space(mics_packing *p)
{
    p->window_count = (p->count + MICS_PACKING_WINDOW - 1) / MICS_PACKING_WINDOW;
    p->capacity = 2;
    MICS_TRY(MICS_NEW(p->memory, p->capacity, &p->epochs));
    for (int i = 0; i < 2; i++) {
        MICS_TRY(MICS_NEW(p->memory, p->window_count + 1, &p->numbered[i].windows));
        p->numbered[i].epoch = -1;
    }
    MICS_TRY(MICS_NEW(p->memory, MICS_PACKING_WINDOW, &p->placed));
    MICS_TRY(MICS_NEW(p->memory, MICS_PACKING_WINDOW, &p->rows));
    MICS_TRY(MICS_NEW(p->memory, p->spec.sequence + 1, &p->open));
    MICS_TRY(MICS_NEW(p->memory, p->spec.sequence / 64 + 1, &p->some));
    memset(p->open, -1, (size_t)(p->spec.sequence + 1) * sizeof *p->open);
    return MICS_OK;
}

mics_status mics_packing_open(mics_memory *memory, const mics_packing_spec *spec,
                              mics_packing **packing_out)
{
    mics_packing *p = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &p));
    *p = (mics_packing){.memory = memory, .spec = *spec, .packed_epoch = -1};
    (void)pthread_mutex_init(&p->lock, NULL);
    mics_status status = find_usable(p);
    if (status == MICS_OK && spec->packs)
        status = make_space(p);
    if (status == MICS_OK && spec->packs)
        status = number_epoch(p);
    if (status != MICS_OK) {
        mics_packing_close(p);
        return status;
    }
    p->facts.samples = p->count;
    p->facts.rows = spec->packs ? p->epochs[1] : p->count;
    *packing_out = p;
    return MICS_OK;
}

void mics_packing_close(mics_packing *packing)
{
    if (packing == NULL)
        return;
    (void)pthread_mutex_destroy(&packing->lock);
    MICS_FREE_ALL(packing->memory, packing->usable, packing->epochs, packing->numbered[0].windows,
                  packing->numbered[1].windows, packing->placed, packing->rows, packing->open,
                  packing->some, packing);
}

mics_packing_facts mics_packing_facts_get(const mics_packing *packing)
{
    return packing->facts;
}
