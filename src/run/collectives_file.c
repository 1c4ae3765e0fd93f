// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// OUT/collectives.json: the times of collectives, for who measures them next.
#include "base/file.h"
#include "base/text.h"
#include "collectives.h"
#include "mics/json.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FORMAT = 2, FILE_BYTES_MAX = 64 * 1024, INTS = 5, TEXTS = 6, SAID_BYTES = 48 };

static const char file_name[] = "collectives.json";
static const char *const op_keys[MICS_MEASURE_OPS] = {
    [MICS_MEASURE_GATHER] = "gather", [MICS_MEASURE_REDUCE] = "reduce"};
static const char *const time_keys[MICS_ALGORITHMS] = {[MICS_ALGORITHM_RING] = "ring_us",
                                                       [MICS_ALGORITHM_TWO_STAGE] = "two_stage_us",
                                                       [MICS_ALGORITHM_LIBRARY] = "library_us"};

// A time above this is none: 11 days, in microseconds. Nor is a unit above this one.
static const double TIME_MAX_US = 1e12;
static const int64_t TIMED_BYTES_MAX = (int64_t)1 << 50;

static const char other_hosts[] = "other hosts", another_mpi[] = "another MPI";

// What a file says that it is for. `of`: what it is for if one differs.
typedef struct file_key {
    struct {
        const char *path, *of;
        int64_t value;
    } ints[INTS];
    struct {
        const char *path, *of, *value;
    } texts[TEXTS];
} file_key;

static file_key key_of(const run_collectives_key *key)
{
    const mics_schedule_spec *spec = &key->schedule->spec;
    const mics_mesh *mesh = &spec->mesh;
    const run_place *place = key->place;
    return (file_key){.ints = {{"mesh.ranks", "another mesh", mesh->ranks},
                               {"mesh.ranks_per_node", "another mesh", mesh->ranks_per_node},
                               {"mesh.params", "another sharding", mesh->sharding.params},
                               {"mesh.grads", "another sharding", mesh->sharding.grads},
                               {"library", "another transport", key->library}},
                      .texts = {{"transport.name", "another transport", place->transport},
                                {"transport.version", another_mpi, place->version},
                                {"hosts.hash", other_hosts, place->hosts},
                                {"machines.hash", "other machines", place->machines},
                                {"wires.gather", "other numbers on the wire",
                                 mics_comm_dtype_text(spec->params_dtype.inter)},
                                {"wires.reduce", "other numbers on the wire",
                                 mics_comm_dtype_text(spec->grads_dtype.inter)}}};
}

// ---- reading ----

static mics_status fail(const mics_json *json, const char *path, const char *what)
{
    return mics_json_fail(json, path, MICS_ERR_FORMAT, "%s; the collectives are measured again",
                          what);
}

// What stands at a path, as far as a line may show it.
static const char *said(const mics_json *json, const char *path, char text[SAID_BYTES])
{
    const mics_json_value *value = mics_json_at(json, path);
    const bool there = value != NULL && mics_json_type_of(value) == MICS_JSON_STRING;
    snprintf(text, SAID_BYTES, "%s", there ? mics_json_string(value) : "?");
    for (char *c = text; *c != '\0'; c++) {
        if (*c < ' ' || *c > '~')
            *c = '?';
    }
    return text;
}

// The reason with names, where there are some.
static void tell(const mics_json *json, const run_place *place, const char *of, char *reason)
{
    char first[SAID_BYTES], last[SAID_BYTES];
    if (strcmp(of, other_hosts) == 0)
        snprintf(reason, RUN_REASON_BYTES, "%s (%s ... %s, not %.40s ... %.40s)", of,
                 said(json, "hosts.first", first), said(json, "hosts.last", last),
                 place->first_host, place->last_host);
    else if (strcmp(of, another_mpi) == 0)
        snprintf(reason, RUN_REASON_BYTES, "%s (%s, not %.80s)", of,
                 said(json, "transport.version", first), place->version);
    else
        snprintf(reason, RUN_REASON_BYTES, "%s", of);
}

// Whether the file is for this key, and else what it is for; FORMAT when it does not say.
static mics_status compare_key(const mics_json *json, const run_collectives_key *key, char *reason)
{
    const file_key expected = key_of(key);
    const char *of = NULL;
    const mics_json_value *format = mics_json_at(json, "format");
    if (format == NULL || mics_json_type_of(format) != MICS_JSON_INT)
        return fail(json, "format", "is no number of a table of times");
    if (mics_json_int(format) != FORMAT) {
        snprintf(reason, RUN_REASON_BYTES, "another version of this program");
        return MICS_OK;
    }
    for (int i = 0; i < INTS; i++) {
        const mics_json_value *value = mics_json_at(json, expected.ints[i].path);
        if (value == NULL || mics_json_type_of(value) != MICS_JSON_INT)
            return fail(json, expected.ints[i].path, "is no number of a table of times");
        if (of == NULL && mics_json_int(value) != expected.ints[i].value)
            of = expected.ints[i].of;
    }
    for (int i = 0; i < TEXTS; i++) {
        const mics_json_value *value = mics_json_at(json, expected.texts[i].path);
        if (value == NULL || mics_json_type_of(value) != MICS_JSON_STRING)
            return fail(json, expected.texts[i].path, "is no name in a table of times");
        if (of == NULL && strcmp(mics_json_string(value), expected.texts[i].value) != 0)
            of = expected.texts[i].of;
    }
    if (of != NULL)
        tell(json, key->place, of, reason);
    return MICS_OK;
}

static bool is_number(const mics_json_value *value)
{
    const mics_json_type type = mics_json_type_of(value);
    return value != NULL && (type == MICS_JSON_INT || type == MICS_JSON_REAL);
}

// The size of the units comes first: other ones are of another model.
static mics_status read_timing(const mics_json *json, const mics_json_value *value,
                               const run_collectives_key *key, mics_measure_op op,
                               mics_timing *timing, bool *same_out)
{
    const mics_json_value *unit = mics_json_get(value, "unit_bytes");
    if (unit == NULL || mics_json_type_of(unit) != MICS_JSON_INT)
        return fail(json, "rows", "holds times without unit_bytes");
    *same_out = mics_json_int(unit) == (int64_t)timing->unit_bytes;
    if (!*same_out)
        return MICS_OK;
    const mics_json_value *bytes = mics_json_get(value, "timed_bytes");
    if (bytes == NULL || mics_json_type_of(bytes) != MICS_JSON_INT || mics_json_int(bytes) < 0 ||
        mics_json_int(bytes) > TIMED_BYTES_MAX)
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
static mics_status read_rows(const mics_json *json, const run_collectives_key *key,
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
        *same_out = mics_json_int(most) == (int64_t)to->max_bytes;
        for (int op = 0; *same_out && op < MICS_MEASURE_OPS; op++) {
            const mics_json_value *timing = mics_json_get(row, op_keys[op]);
            *same_out = (timing != NULL) == to->of[op].wanted;
            if (*same_out && timing != NULL)
                MICS_TRY(
                    read_timing(json, timing, key, (mics_measure_op)op, &to->of[op], same_out));
        }
    }
    return MICS_OK;
}

static mics_status read_file(mics_memory *memory, const char *path, const run_collectives_key *key,
                             mics_timings *timings, char *reason)
{
    mics_json *json = NULL;
    bool same = true;
    MICS_TRY(mics_json_load(memory, path, FILE_BYTES_MAX, &json));
    mics_status status = compare_key(json, key, reason);
    if (status == MICS_OK && reason[0] == '\0')
        status = read_rows(json, key, timings, &same);
    if (!same)
        snprintf(reason, RUN_REASON_BYTES, "another model");
    mics_json_close(json);
    return status;
}

bool run_collectives_read(mics_memory *memory, const char *dir, const run_collectives_key *key,
                          mics_timings *timings, char reason[RUN_REASON_BYTES])
{
    char *path = NULL;
    mics_timings read = *timings;
    const bool demoted = mics_log_demote(true);
    reason[0] = '\0';
    mics_status status = mics_file_join(memory, dir, file_name, &path);
    const bool there = status == MICS_OK && access(path, F_OK) == 0;
    if (there)
        status = read_file(memory, path, key, &read, reason);
    mics_log_demote(demoted);
    mics_free(memory, path);
    if (status != MICS_OK)
        reason[0] = '\0';
    if (!there || status != MICS_OK || reason[0] != '\0')
        return false;
    *timings = read;
    return true;
}

// ---- writing ----

static void write_timing(mics_text *text, mics_measure_op op, const mics_timing *timing)
{
    char number[32];
    mics_text_printf(text, ", \"%s\": {\"unit_bytes\": %zu, \"timed_bytes\": %zu", op_keys[op],
                     timing->unit_bytes, timing->bytes);
    for (int a = 0; a < MICS_ALGORITHMS; a++) {
        if (timing->us[a] > 0)
            mics_text_printf(text, ", \"%s\": %s", time_keys[a],
                             mics_text_real(timing->us[a], number, sizeof number));
    }
    mics_text_printf(text, "}");
}

static void write_place(mics_text *text, const run_place *place)
{
    mics_text_printf(text, "{\n  \"format\": %d,\n  \"transport\": {\"name\": ", FORMAT);
    mics_text_quoted(text, place->transport);
    mics_text_printf(text, ", \"version\": ");
    mics_text_quoted(text, place->version);
    mics_text_printf(text, "},\n  \"hosts\": {\"first\": ");
    mics_text_quoted(text, place->first_host);
    mics_text_printf(text, ", \"last\": ");
    mics_text_quoted(text, place->last_host);
    mics_text_printf(text, ", \"hash\": \"%s\"},\n  \"machines\": {\"processor\": ", place->hosts);
    mics_text_quoted(text, place->processor);
    mics_text_printf(text, ", \"network_mbit\": %lld, \"hash\": \"%s\"},\n",
                     (long long)place->network_mbit, place->machines);
}

static void write_text(mics_text *text, const run_collectives_key *key, const mics_timings *timings)
{
    const mics_schedule_spec *spec = &key->schedule->spec;
    const mics_mesh *mesh = &spec->mesh;
    write_place(text, key->place);
    mics_text_printf(text,
                     "  \"library\": %d,\n"
                     "  \"mesh\": {\"ranks\": %d, \"ranks_per_node\": %d, \"params\": %d, "
                     "\"grads\": %d},\n"
                     "  \"wires\": {\"gather\": \"%s\", \"reduce\": \"%s\"},\n  \"rows\": [",
                     (int)key->library, (int)mesh->ranks, (int)mesh->ranks_per_node,
                     (int)mesh->sharding.params, (int)mesh->sharding.grads,
                     mics_comm_dtype_text(spec->params_dtype.inter),
                     mics_comm_dtype_text(spec->grads_dtype.inter));
    for (int32_t i = 0; i < timings->row_count; i++) {
        const mics_timing_row *row = &timings->rows[i];
        mics_text_printf(text, "%s\n    {\"most_bytes\": %zu", i > 0 ? "," : "", row->max_bytes);
        for (int op = 0; op < MICS_MEASURE_OPS; op++) {
            if (row->of[op].wanted)
                write_timing(text, (mics_measure_op)op, &row->of[op]);
        }
        mics_text_printf(text, "}");
    }
    mics_text_printf(text, "\n  ]\n}\n");
}

void run_collectives_write(mics_memory *memory, const char *dir, const run_collectives_key *key,
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
