// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// OUT/collectives.json: times of an earlier run, for a schedule that they may be of.
#include "fuzz.h"
#include "mics/json.h"
#include "mics/model.h"
#include "mics/schedule.h"
#include "run/collectives.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static mics_memory *kept; // of the schedule
static mics_model *model;
static mics_schedule *schedule;

static void close_schedule(void)
{
    mics_schedule_close(schedule);
    mics_model_close(model);
    mics_memory_close(kept);
}

// Two nodes of two ranks that share everything, so that gathers and reductions have candidates.
static void set_up(void)
{
    static const char config[] =
        "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 1, \"n_embd\": 4, "
        "\"n_positions\": 4, \"vocab_size\": 8}";
    mics_json *json = NULL;
    const mics_sharding sharding = {4, 4, 4};
    mics_schedule_spec spec = {.batch = {.sequences = 1, .length = 4, .threads = 1},
                               .micro_steps = 1};
    bool good = mics_memory_open(&kept) == MICS_OK &&
                mics_json_parse(kept, "config", config, strlen(config), &json) == MICS_OK &&
                mics_model_from_config(kept, json, true, &model) == MICS_OK &&
                mics_mesh_init(4, 2, sharding, &spec.mesh) == MICS_OK;
    spec.model = model;
    good = good && mics_schedule_open(kept, &spec, &schedule) == MICS_OK;
    mics_json_close(json);
    fuzz_check(good && atexit(close_schedule) == 0, "the schedule");
}

static void check_times(const mics_timings *timings)
{
    for (int32_t row = 0; row < timings->row_count; row++) {
        for (int op = 0; op < MICS_MEASURE_OPS; op++) {
            for (int a = 0; a < MICS_ALGORITHMS; a++) {
                const double us = timings->rows[row].of[op].us[a];
                fuzz_check(isfinite(us) && us >= 0, "a time that is none");
            }
        }
    }
    mics_collective_choice choices[MICS_CHOICES];
    fuzz_check(mics_measure_choose(timings, true, choices) == timings->row_count, "the choices");
}

static const run_place place = {.transport = "threads",
                                .first_host = "here",
                                .last_host = "here",
                                .hosts = "0000000000000001",
                                .machines = "0000000000000002"};

// What is written is read.
static void check_written(mics_memory *memory, const run_collectives_key *key)
{
    char reason[RUN_REASON_BYTES];
    mics_timings timings;
    mics_measure_plan(schedule, false, &timings);
    fuzz_check(timings.row_count > 0, "nothing is to be chosen");
    for (int32_t row = 0; row < timings.row_count; row++) {
        for (int op = 0; op < MICS_MEASURE_OPS; op++) {
            mics_timing *timing = &timings.rows[row].of[op];
            timing->bytes = timing->unit_bytes;
            for (int a = 0; a < MICS_ALGORITHMS; a++)
                timing->us[a] = 1 + a;
        }
    }
    run_collectives_write(memory, fuzz_path(NULL), key, &timings);
    fuzz_check(run_collectives_read(memory, fuzz_path(NULL), key, &timings, reason),
               "what was written is not read");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const bool first = kept == NULL;
    if (first)
        set_up();
    mics_memory *memory = fuzz_begin();
    char reason[RUN_REASON_BYTES];
    mics_timings timings;
    const run_collectives_key key = {.schedule = schedule, .place = &place};
    if (first)
        check_written(memory, &key);
    mics_measure_plan(schedule, false, &timings);
    fuzz_write("collectives.json", data, bytes);
    if (run_collectives_read(memory, fuzz_path(NULL), &key, &timings, reason))
        check_times(&timings);
    fuzz_check(fuzz_good(MICS_OK), "an error line");
    fuzz_end(memory);
    return 0;
}
