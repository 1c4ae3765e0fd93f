// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"
#include "io/data/chats.h"
#include "io/data/files.h"
#include "io/data/records.h"
#include "io/data/text_window.h"
#include "mics/log.h"

typedef struct walk {
    mics_status (*take)(void *ctx, mics_row *row);
    void *ctx;
    const char *const *columns;
    mics_text_window window;
    mics_records records;
    mics_buffer space;
    int64_t line;
    int64_t skips; // bad rows that are left to pass over
    bool first, last;
} walk;

// Fills the window until it has a record; 0 bytes: there is none.
static mics_status find_record(walk *w, size_t *bytes_out)
{
    mics_text_window *window = &w->window;
    *bytes_out = 0;
    for (;;) {
        MICS_TRY(mics_text_window_fill(window));
        if (window->filled == 0)
            return MICS_OK;
        *bytes_out = mics_records_next(&w->records, window->bytes, window->filled, window->ended);
        if (*bytes_out > 0 || window->ended)
            return MICS_OK;
        MICS_TRY(mics_text_window_widen(window));
    }
}

static mics_status read_record(walk *w, size_t bytes)
{
    const mics_text_window *window = &w->window;
    char name[MICS_RECORD_NAME];
    mics_record record = {0};
    mics_records_name(&w->records, w->line, name, sizeof name);
    mics_status status =
        mics_record_read(&w->records, window->bytes, bytes, w->line, w->first, &w->space, &record);
    if (status == MICS_OK && record.json != NULL) {
        mics_row row = {.name = name, .value = mics_json_root(record.json)};
        status = w->take(w->ctx, &row);
        w->last = row.last;
    }
    mics_record_fini(&record);
    return status;
}

static mics_status take_record(walk *w, size_t bytes)
{
    mics_text_window *window = &w->window;
    const bool before = w->skips > 0 && mics_log_demote(true);
    mics_status status = read_record(w, bytes);
    if (w->skips > 0) {
        mics_log_demote(before);
        const bool bad = status == MICS_ERR_FORMAT || status == MICS_ERR_INVALID;
        w->skips -= bad;
        status = bad ? MICS_OK : status;
    }
    w->line += mics_records_lines(window->bytes, bytes);
    w->first = false;
    mics_text_window_drop(window, bytes);
    return status;
}

static mics_status walk_records(walk *w)
{
    const mics_content *content = &w->window.reader.content;
    size_t bytes = 0;
    if (w->window.reader.bytes == 0)
        return MICS_OK;
    MICS_TRY(mics_reader_find_content(&w->window.reader, w->columns));
    if (content->kind != MICS_TEXT_LINES && content->kind != MICS_TEXT_ARRAY)
        return MICS_OK;
    w->records.kind = content->kind;
    w->records.rows = w->window.reader.parquet != NULL;
    w->line = 1;
    w->first = true;
    MICS_TRY(mics_text_window_rewind(&w->window, 0));
    if (content->marked)
        MICS_TRY(mics_text_window_pass(&w->window, MICS_MARK_BYTES));
    MICS_TRY(find_record(w, &bytes));
    while (bytes > 0 && !w->last) {
        MICS_TRY(take_record(w, bytes));
        if (!w->last)
            MICS_TRY(find_record(w, &bytes));
    }
    return MICS_OK;
}

static mics_status walk_file(walk *w, mics_memory *memory, const char *path)
{
    w->records = (mics_records){.memory = memory, .path = path};
    mics_status status = mics_text_window_open(memory, path, &w->window);
    if (status == MICS_OK)
        status = walk_records(w);
    mics_text_window_close(&w->window);
    return status;
}

mics_status mics_rows_walk(mics_memory *memory, const mics_rows_spec *spec,
                           mics_status (*take)(void *ctx, mics_row *row), void *ctx)
{
    mics_files files = {.memory = memory};
    walk w = {.take = take,
              .ctx = ctx,
              .columns = spec->columns,
              .space.memory = memory,
              .skips = spec->skip_bad_lines};
    mics_status status = MICS_OK;
    for (int32_t i = 0; status == MICS_OK && i < spec->count; i++)
        status = mics_files_add(&files, spec->patterns[i], i);
    for (int64_t i = 0; status == MICS_OK && i < files.count && !w.last; i++) {
        if (!mics_text_ends(files.items[i].path, ".bin"))
            status = walk_file(&w, memory, files.items[i].path);
    }
    mics_buffer_fini(&w.space);
    mics_files_fini(&files);
    return status;
}
