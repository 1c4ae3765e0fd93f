// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What rows a run's files have: those of the first file decide.
#include "base/text.h"
#include "io/data/chats/chats.h"
#include "io/data/files.h"
#include "io/data/records.h"
#include "io/data/text_window.h"
#include <string.h>

// Fills the window until it has the first record, which is behind `*from`; 0 bytes: there is none.
static mics_status first_record(const mics_records *records, mics_text_window *window, size_t *bytes_out)
{
    *bytes_out = 0;
    for (;;) {
        MICS_TRY(mics_text_window_fill(window));
        if (window->filled == 0)
            return MICS_OK;
        *bytes_out = mics_records_next(records, window->bytes, window->filled, window->ended);
        if (*bytes_out > 0 || window->ended)
            return MICS_OK;
        MICS_TRY(mics_text_window_widen(window));
    }
}

static mics_status look_at(const mics_chats_spec *spec, mics_text_window *window, bool *found_out)
{
    const mics_content *content = &window->reader.content;
    mics_records records = {.memory = window->reader.memory, .path = window->reader.path};
    mics_record record = {0};
    mics_buffer space = {.memory = window->reader.memory};
    size_t bytes = 0;
    mics_status status = MICS_OK;
    bool looked = false;
    int64_t line = 1;
    if (window->reader.bytes == 0)
        return MICS_OK;
    MICS_TRY(mics_reader_find_content(&window->reader));
    if (content->kind != MICS_TEXT_LINES && content->kind != MICS_TEXT_ARRAY)
        return MICS_OK;
    records.kind = content->kind;
    MICS_TRY(mics_text_window_rewind(window, 0));
    if (content->marked)
        MICS_TRY(mics_text_window_pass(window, MICS_MARK_BYTES));
    while (status == MICS_OK && !looked) {
        MICS_TRY(first_record(&records, window, &bytes));
        if (bytes == 0)
            break;
        status = mics_record_read(&records, window->bytes, bytes, line, true, &space, &record);
        looked = record.json != NULL;
        *found_out = status == MICS_OK && looked && mics_chats_are(spec, mics_json_root(record.json));
        mics_record_fini(&record);
        line += mics_records_lines(window->bytes, bytes);
        mics_text_window_drop(window, bytes);
    }
    mics_buffer_fini(&space);
    return status;
}

mics_status mics_chats_find(mics_memory *memory, const mics_chats_spec *spec,
                            const char *const *patterns, int32_t count, bool *found_out)
{
    mics_files files = {.memory = memory};
    mics_status status = MICS_OK;
    *found_out = false;
    for (int32_t i = 0; status == MICS_OK && i < count && files.count == 0; i++)
        status = mics_files_add(&files, patterns[i], i);
    if (status == MICS_OK && files.count > 0 && !mics_text_ends(files.items[0].path, ".bin")) {
        mics_text_window window;
        status = mics_text_window_open(memory, files.items[0].path, &window);
        if (status == MICS_OK)
            status = look_at(spec, &window, found_out);
        mics_text_window_close(&window);
    }
    mics_files_fini(&files);
    return status;
}
