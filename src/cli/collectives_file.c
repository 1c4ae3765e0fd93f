// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// OUT/collectives.json: the times of collectives, for who measures them next.
#include "base/file.h"
#include "base/text.h"
#include "collectives.h"
#include "mics/json.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { FORMAT = 1, FILE_BYTES_MAX = 64 * 1024, INTS = 6, TEXTS = 3 };

static const char file_name[] = "collectives.json";
static const char *const op_keys[MICS_MEASURE_OPS] = {
    [MICS_MEASURE_GATHER] = "gather", [MICS_MEASURE_REDUCE] = "reduce"};
static const char *const time_keys[MICS_ALGORITHMS] = {[MICS_ALGORITHM_RING] = "ring_us",
                                                       [MICS_ALGORITHM_TWO_STAGE] = "two_stage_us",
                                                       [MICS_ALGORITHM_LIBRARY] = "library_us"};

// A time above this is none: 11 days, in microseconds.
static const double TIME_MAX_US = 1e12;

// What a file says that it is for.
typedef struct file_key {
    struct {
        const char *path;
        int64_t value;
    } ints[INTS];
    struct {
        const char *path, *value;
    } texts[TEXTS];
} file_key;

static file_key key_of(const cli_collectives_key *key)
{
    const mics_schedule_spec *spec = &key->schedule->spec;
    const mics_mesh *mesh = &spec->mesh;
    return (file_key){.ints = {{"format", FORMAT},
                               {"mesh.ranks", mesh->ranks},
                               {"mesh.ranks_per_node", mesh->ranks_per_node},
                               {"mesh.params", mesh->sharding.params},
                               {"mesh.grads", mesh->sharding.grads},
                               {"library", key->library}},
                      .texts = {{"transport", key->transport},
                                {"wires.gather", mics_wire_text(spec->gather_wire)},
                                {"wires.reduce", mics_wire_text(spec->reduce_wire)}}};
}

// ---- reading ----

static mics_status fail(const mics_json *json, const char *path, const char *what)
{
    return mics_json_fail(json, path, MICS_ERR_FORMAT, "%s; the collectives are measured again",
                          what);
}

// Whether the file is for this key; FORMAT when it does not say.
static mics_status compare_key(const mics_json *json, const cli_collectives_key *key,
                               bool *same_out)
{
    const file_key expected = key_of(key);
    bool same = true;
    for (int i = 0; i < INTS; i++) {
        const mics_json_value *value = mics_json_at(json, expected.ints[i].path);
        if (value == NULL || mics_json_type_of(value) != MICS_JSON_INT)
            return fail(json, expected.ints[i].path, "is no number of a table of times");
        same = same && mics_json_int(value) == expected.ints[i].value;
    }
    for (int i = 0; i < TEXTS; i++) {
        const mics_json_value *value = mics_json_at(json, expected.texts[i].path);
        if (value == NULL || mics_json_type_of(value) != MICS_JSON_STRING)
            return fail(json, expected.texts[i].path, "is no name in a table of times");
        same = same && strcmp(mics_json_string(value), expected.texts[i].value) == 0;
    }
    *same_out = same;
    return MICS_OK;
}

static bool is_number(const mics_json_value *value)
{
    const mics_json_type type = mics_json_type_of(value);
    return value != NULL && (type == MICS_JSON_INT || type == MICS_JSON_REAL);
}

static mics_status read_timing(const mics_json *json, const mics_json_value *value,
                               const cli_collectives_key *key, mics_measure_op op,
                               size_t most_bytes, mics_timing *timing)
{
    const mics_json_value *bytes = mics_json_get(value, "timed_bytes");
    if (bytes == NULL || mics_json_type_of(bytes) != MICS_JSON_INT || mics_json_int(bytes) < 0 ||
        (uint64_t)mics_json_int(bytes) > most_bytes)
        return fail(json, "rows", "holds timed_bytes that cannot be");
    timing->bytes = (size_t)mics_json_int(bytes);
    for (int a = 0; timing->bytes > 0 && a < MICS_ALGORITHMS; a++) {
        const mics_json_value *us = mics_json_get(value, time_keys[a]);
        if (!mics_measure_candidate(key->schedule, op, (mics_algorithm)a, key->library))
            continue;
        if (!is_number(us) || !(mics_json_real(us) > 0 && mics_json_real(us) <= TIME_MAX_US))
            return fail(json, "rows", "holds a time that is none");
        timing->us[a] = mics_json_real(us);
    }
    return MICS_OK;
}

// Rows must be those of the plan: a model with units of other sizes wants others.
static mics_status read_rows(const mics_json *json, const cli_collectives_key *key,
                             mics_timings *timings, bool *same_out)
{
    const mics_json_value *rows = mics_json_at(json, "rows");
    if (rows == NULL || mics_json_type_of(rows) != MICS_JSON_ARRAY)
        return fail(json, "rows", "is no list");
    *same_out = mics_json_count(rows) == timings->row_count;
    for (int32_t i = 0; *same_out && i < timings->row_count; i++) {
        const mics_json_value *row = mics_json_element(rows, i);
        const mics_json_value *most = mics_json_get(row, "most_bytes");
        mics_timing_row *to = &timings->rows[i];
        if (most == NULL || mics_json_type_of(most) != MICS_JSON_INT)
            return fail(json, "rows", "holds a row without most_bytes");
        *same_out = mics_json_int(most) == (int64_t)to->most_bytes;
        for (int op = 0; *same_out && op < MICS_MEASURE_OPS; op++) {
            const mics_json_value *timing = mics_json_get(row, op_keys[op]);
            *same_out = (timing != NULL) == to->of[op].wanted;
            if (*same_out && timing != NULL)
                MICS_TRY(read_timing(json, timing, key, (mics_measure_op)op, to->most_bytes,
                                     &to->of[op]));
        }
    }
    return MICS_OK;
}

static mics_status read_file(mics_memory *memory, const char *path, const cli_collectives_key *key,
                             mics_timings *timings, bool *same_out)
{
    mics_json *json = NULL;
    MICS_TRY(mics_json_load(memory, path, FILE_BYTES_MAX, &json));
    mics_status status = compare_key(json, key, same_out);
    if (status == MICS_OK && *same_out)
        status = read_rows(json, key, timings, same_out);
    mics_json_close(json);
    return status;
}

bool cli_collectives_read(mics_memory *memory, const char *dir, const cli_collectives_key *key,
                          mics_timings *timings, bool *other_out)
{
    char *path = NULL;
    mics_timings read = *timings;
    bool same = false;
    const bool demoted = mics_log_demote(true);
    mics_status status = mics_file_join(memory, dir, file_name, &path);
    const bool there = status == MICS_OK && access(path, F_OK) == 0;
    if (there)
        status = read_file(memory, path, key, &read, &same);
    mics_log_demote(demoted);
    mics_free(memory, path);
    *other_out = there && status == MICS_OK && !same;
    if (!there || status != MICS_OK || !same)
        return false;
    *timings = read;
    return true;
}

// ---- writing ----

static void write_timing(mics_text *text, mics_measure_op op, const mics_timing *timing)
{
    char number[32];
    mics_text_printf(text, ", \"%s\": {\"timed_bytes\": %zu", op_keys[op], timing->bytes);
    for (int a = 0; a < MICS_ALGORITHMS; a++) {
        if (timing->us[a] > 0)
            mics_text_printf(text, ", \"%s\": %s", time_keys[a],
                             mics_text_real(timing->us[a], number, sizeof number));
    }
    mics_text_printf(text, "}");
}

static void write_text(mics_text *text, const cli_collectives_key *key, const mics_timings *timings)
{
    const mics_schedule_spec *spec = &key->schedule->spec;
    const mics_mesh *mesh = &spec->mesh;
    mics_text_printf(text,
                     "{\n  \"format\": %d,\n  \"transport\": \"%s\",\n  \"library\": %d,\n"
                     "  \"mesh\": {\"ranks\": %d, \"ranks_per_node\": %d, \"params\": %d, "
                     "\"grads\": %d},\n"
                     "  \"wires\": {\"gather\": \"%s\", \"reduce\": \"%s\"},\n  \"rows\": [",
                     FORMAT, key->transport, (int)key->library, (int)mesh->ranks,
                     (int)mesh->ranks_per_node, (int)mesh->sharding.params,
                     (int)mesh->sharding.grads, mics_wire_text(spec->gather_wire),
                     mics_wire_text(spec->reduce_wire));
    for (int32_t i = 0; i < timings->row_count; i++) {
        const mics_timing_row *row = &timings->rows[i];
        mics_text_printf(text, "%s\n    {\"most_bytes\": %zu", i > 0 ? "," : "", row->most_bytes);
        for (int op = 0; op < MICS_MEASURE_OPS; op++) {
            if (row->of[op].wanted)
                write_timing(text, (mics_measure_op)op, &row->of[op]);
        }
        mics_text_printf(text, "}");
    }
    mics_text_printf(text, "\n  ]\n}\n");
}

void cli_collectives_write(mics_memory *memory, const char *dir, const cli_collectives_key *key,
                           const mics_timings *timings)
{
    mics_text text = {.memory = memory};
    const bool demoted = mics_log_demote(true);
    write_text(&text, key, timings);
    if (mics_text_status(&text) == MICS_OK)
        (void)mics_file_replace(memory, dir, file_name, text.bytes, text.used);
    mics_log_demote(demoted);
    mics_text_fini(&text);
}
