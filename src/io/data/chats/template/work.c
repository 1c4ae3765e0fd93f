// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The arena, the limits and the output of a compilation or render.
#include "io/data/chats/template/work.h"
#include "base/text.h"
#include <string.h>

enum { BLOCK_BYTES = 32 << 10, ALIGNMENT = 16 };

typedef struct mics_block {
    struct mics_block *next;
    size_t used, bytes; // of `data`
    _Alignas(ALIGNMENT) char data[];
} mics_block;

void mics_work_init(mics_work *work, mics_memory *memory, const char *name,
                    const mics_template_limits *limits)
{
    *work = (mics_work){.memory = memory, .name = name};
    if (limits != NULL)
        work->limits = *limits;
    mics_template_limits *all = &work->limits;
    all->steps = all->steps > 0 ? all->steps : 50000000;
    all->memory_bytes = all->memory_bytes > 0 ? all->memory_bytes : (size_t)512 << 20;
    all->output_bytes = all->output_bytes > 0 ? all->output_bytes : (size_t)64 << 20;
    all->depth = all->depth > 0 ? all->depth : 1000;
}

void mics_work_fini(mics_work *work)
{
    while (work->blocks != NULL) {
        mics_block *next = work->blocks->next;
        mics_free(work->memory, work->blocks);
        work->blocks = next;
    }
}

void mics_work_raise(mics_work *work, mics_status status, const char *format, ...)
{
    char what[1024];
    va_list args;
    va_start(args, format);
    mics_text_vformat(what, sizeof what, format, args);
    va_end(args);
    work->status = mics_fail(status, "%s%s%s:%d: %s", work->chat != NULL ? work->chat : "",
                             work->chat != NULL ? ": " : "", work->name, (int)work->line, what);
    longjmp(work->failed, 1);
}

void mics_work_try(mics_work *work, mics_status status)
{
    if (status == MICS_OK)
        return;
    work->status = status;
    longjmp(work->failed, 1);
}

void mics_work_spend(mics_work *work, int64_t steps)
{
    work->steps += steps;
    if (work->steps > work->limits.steps)
        mics_work_raise(work, MICS_ERR_INVALID, "takes more than %lld steps, the limit of steps",
                        (long long)work->limits.steps);
}

void mics_work_enter(mics_work *work)
{
    if (++work->depth > work->limits.depth)
        mics_work_raise(work, MICS_ERR_INVALID, "is nested deeper than %d, the limit of depth",
                        (int)work->limits.depth);
}

void *mics_work_alloc(mics_work *work, size_t bytes)
{
    mics_block *block = work->blocks;
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (block == NULL || bytes > block->bytes - block->used) {
        const size_t whole = bytes > BLOCK_BYTES / 4 ? bytes : BLOCK_BYTES;
        if (whole > work->limits.memory_bytes ||
            work->arena_bytes > work->limits.memory_bytes - whole)
            mics_work_raise(work, MICS_ERR_INVALID,
                            "needs more than %zu bytes for its values, the limit of memory",
                            work->limits.memory_bytes);
        void *fresh = NULL;
        mics_work_try(work, mics_alloc(work->memory, MICS_MEM_HOST, sizeof *block + whole, &fresh));
        work->arena_bytes += whole;
        block = fresh;
        block->bytes = whole;
        // A large one stands behind the block that is being filled.
        mics_block **at =
            whole == BLOCK_BYTES || work->blocks == NULL ? &work->blocks : &work->blocks->next;
        block->next = *at;
        *at = block;
    }
    void *start = block->data + block->used;
    block->used += bytes;
    return start;
}

void mics_work_write(mics_work *work, const char *text, size_t bytes)
{
    const size_t written = work->out->bytes - work->out_begin;
    if (bytes > work->limits.output_bytes || written > work->limits.output_bytes - bytes)
        mics_work_raise(work, MICS_ERR_INVALID, "writes more than %zu bytes, the limit of output",
                        work->limits.output_bytes);
    mics_work_spend(work, (int64_t)(bytes / 64));
    if (bytes > 0)
        mics_work_try(work, mics_buffer_append(work->out, text, bytes));
}

void mics_work_put(mics_work *work, const char *text)
{
    mics_work_write(work, text, strlen(text));
}

mics_value mics_work_cut(mics_work *work, size_t begin)
{
    const size_t bytes = work->out->bytes - begin;
    char *copy = mics_work_alloc(work, bytes);
    if (bytes > 0)
        memcpy(copy, work->out->data + begin, bytes);
    work->out->bytes = begin;
    return MICS_STRING(copy, bytes);
}

mics_value mics_list(mics_work *work, mics_value_type type)
{
    return (mics_value){.type = type, .list = mics_work_alloc(work, sizeof(mics_value_list))};
}

void mics_list_add(mics_work *work, mics_value list, mics_value item)
{
    mics_value_list *l = list.list;
    mics_work_spend(work, 1);
    if (l->count == l->capacity) {
        const int64_t capacity = l->capacity > 0 ? 2 * l->capacity : 4;
        mics_value *items = mics_work_alloc(work, (size_t)capacity * sizeof *items);
        if (l->count > 0)
            memcpy(items, l->items, (size_t)l->count * sizeof *items);
        l->items = items;
        l->capacity = capacity;
    }
    l->items[l->count++] = item;
}
