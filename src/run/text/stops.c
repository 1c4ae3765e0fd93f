// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "stops.h"
#include "mics/log.h"
#include <errno.h>
#include <stdint.h>
#include <string.h>

static mics_status append(run_stops *held, mics_memory *memory, const char *bytes, size_t count)
{
    if (held->capacity - held->count < count) {
        const size_t capacity = 2 * (held->count + count);
        char *larger = NULL;
        MICS_TRY(MICS_NEW(memory, capacity, &larger));
        if (held->count > 0)
            memcpy(larger, held->bytes, held->count);
        mics_free(memory, held->bytes);
        held->bytes = larger;
        held->capacity = capacity;
    }
    if (count > 0)
        memcpy(held->bytes + held->count, bytes, count);
    held->count += count;
    return MICS_OK;
}

// Writes the first `count` bytes; the others stay.
static mics_status write_first(run_stops *held, size_t count, FILE *out)
{
    const bool good = fwrite(held->bytes, 1, count, out) == count && fflush(out) == 0;
    held->count -= count;
    memmove(held->bytes, held->bytes + count, held->count);
    return good ? MICS_OK
                : mics_fail(mics_status_of_errno(errno), "writing the text: %s", strerror(errno));
}

// Whether a stop begins at a place, as far as there are bytes; *whole_out: all of one is there.
static bool may_stop_at(const run_stops *held, const mics_sampling *sampling, size_t at,
                        bool *whole_out)
{
    const size_t left = held->count - at;
    bool may = false;
    for (int32_t i = 0; i < sampling->stop_count; i++) {
        const size_t bytes = strlen(sampling->stops[i]);
        const size_t there = bytes < left ? bytes : left;
        if (memcmp(held->bytes + at, sampling->stops[i], there) == 0) {
            may = true;
            *whole_out = *whole_out || there == bytes;
        }
    }
    return may;
}

mics_status run_stops_write(run_stops *held, mics_memory *memory, const mics_sampling *sampling,
                            const char *bytes, size_t count, FILE *out, bool *stopped_out)
{
    size_t hold = SIZE_MAX; // first byte that may begin a stop
    MICS_TRY(append(held, memory, bytes, count));
    for (size_t at = 0; at < held->count && !*stopped_out; at++) {
        if (may_stop_at(held, sampling, at, stopped_out))
            hold = *stopped_out || at < hold ? at : hold;
    }
    if (held->count == 0)
        return MICS_OK;
    MICS_TRY(write_first(held, hold < held->count ? hold : held->count, out));
    if (*stopped_out)
        held->count = 0;
    return MICS_OK;
}

mics_status run_stops_end(run_stops *held, FILE *out)
{
    return held->count > 0 ? write_first(held, held->count, out) : MICS_OK;
}

void run_stops_fini(run_stops *held, mics_memory *memory)
{
    mics_free(memory, held->bytes);
}
