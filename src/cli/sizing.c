// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Schedules for a run, their memory, and what would fit when they do not.
#include "sizing.h"
#include "mics/log.h"
#include "mics/size.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 640 };

// What a trial changes of the run.
typedef struct variant {
    mics_sharding sharding;
    int64_t micro_batch;
    int32_t micro_steps;
    bool recompute;
} variant;

// Appends to a line as far as there is room.
MICS_PRINTF(2, 3) static void append(char text[TEXT_BYTES], const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, TEXT_BYTES - used, format, args);
    va_end(args);
}

mics_status cli_room_read(const mics_run *run, int32_t ranks, int32_t nodes, int32_t ranks_here,
                          cli_room *room_out)
{
    mics_machine machine;
    MICS_TRY(mics_machine_read(&machine));
    int32_t share = machine.cores / ranks_here;
    bool set = run->memory_limit_bytes > 0;
    *room_out = (cli_room){
        .ranks = ranks,
        .nodes = nodes,
        .ranks_here = ranks_here,
        .limit_bytes = set ? (size_t)run->memory_limit_bytes
                           : machine.memory_available_bytes / (size_t)ranks_here,
        .available_bytes = machine.memory_available_bytes,
        .limit_is_set = set,
        .threads = run->threads > 0 ? run->threads : (share > 0 ? share : 1),
    };
    return MICS_OK;
}

static variant variant_of(const mics_run *run)
{
    return (variant){.sharding = run->sharding,
                     .micro_batch = run->micro_batch,
                     .micro_steps = run->micro_steps,
                     .recompute = run->recompute};
}

static mics_status open_variant(mics_memory *memory, const mics_run *run, const mics_model *model,
                                const cli_room *room, const variant *as, mics_schedule **out)
{
    mics_schedule_spec spec = {
        .model = model,
        .batch = {.sequences = as->micro_batch,
                  .length = run->sequence_length > 0 ? run->sequence_length : model->positions,
                  .threads = room->threads},
        .micro_steps = as->micro_steps,
        .prefetch = run->prefetch,
        .recompute = as->recompute,
        .hierarchical = run->hierarchical,
        .comm_staging_bytes = room->staging_bytes,
    };
    MICS_TRY(mics_mesh_init(room->ranks, room->nodes, as->sharding, &spec.mesh));
    return mics_schedule_open(memory, &spec, out);
}

mics_status cli_schedule_open(mics_memory *memory, mics_run *run, const mics_model *model,
                              const cli_room *room, mics_schedule **schedule_out)
{
    if (run->sequence_length > model->positions)
        return mics_json_fail(run->json, "data.sequence_length", MICS_ERR_INVALID,
                              "is %lld, but %s has %lld positions; at most that many work",
                              (long long)run->sequence_length, run->model_config,
                              (long long)model->positions);
    variant as = variant_of(run);
    for (int32_t index = 0;; index++) {
        mics_sharding next;
        mics_schedule *schedule = NULL;
        bool more = run->sharding_auto &&
                    mics_sharding_candidate(room->ranks, room->nodes, index + 1, &next);
        if (run->sharding_auto)
            (void)mics_sharding_candidate(room->ranks, room->nodes, index, &as.sharding);
        MICS_TRY(open_variant(memory, run, model, room, &as, &schedule));
        if (!more || schedule->ledger.total <= room->limit_bytes) {
            run->sharding = as.sharding;
            *schedule_out = schedule;
            return MICS_OK;
        }
        mics_schedule_close(schedule);
    }
}

// Tries one change and adds its words to the list of what fits.
static void suggest(mics_memory *memory, const mics_run *run, const mics_model *model,
                    const cli_room *room, const variant *as, const char *words,
                    char text[TEXT_BYTES])
{
    mics_schedule *schedule = NULL;
    if (open_variant(memory, run, model, room, as, &schedule) != MICS_OK)
        return;
    char size[32];
    if (schedule->ledger.total <= room->limit_bytes)
        append(text, "%s%s (%s)", text[0] != '\0' ? ", or " : "", words,
               mics_size_text((double)schedule->ledger.total, size, sizeof size));
    mics_schedule_close(schedule);
}

static void suggest_all(mics_memory *memory, const mics_run *run, const mics_model *model,
                        const cli_room *room, char text[TEXT_BYTES])
{
    char words[96];
    variant as = variant_of(run);
    for (int32_t index = 0; text[0] == '\0'; index++) {
        if (!mics_sharding_candidate(room->ranks, room->nodes, index, &as.sharding))
            break;
        int32_t p = as.sharding.params;
        snprintf(words, sizeof words,
                 "\"sharding\": {\"params\": %d, \"grads\": %d, \"optimizer\": %d}", (int)p, (int)p,
                 (int)p);
        suggest(memory, run, model, room, &as, words, text);
    }
    as = variant_of(run);
    as.recompute = true;
    if (!run->recompute)
        suggest(memory, run, model, room, &as, "run.recompute true", text);
    as = variant_of(run);
    as.micro_batch = 1;
    as.micro_steps = (int32_t)(run->micro_batch * run->micro_steps);
    snprintf(words, sizeof words,
             "train_micro_batch_size_per_gpu 1 with gradient_accumulation_steps %d",
             (int)as.micro_steps);
    if (run->micro_batch > 1)
        suggest(memory, run, model, room, &as, words, text);
    as.recompute = true;
    as.sharding = (mics_sharding){room->ranks, room->ranks, room->ranks};
    if (text[0] == '\0')
        suggest(memory, run, model, room, &as,
                "all of: sharding over all ranks, run.recompute true, micro-batches of 1", text);
}

mics_status cli_check_memory(mics_memory *memory, const mics_run *run,
                             const mics_schedule *schedule, const cli_room *room)
{
    const mics_memory_ledger *ledger = &schedule->ledger;
    if (ledger->total <= room->limit_bytes)
        return MICS_OK;
    char table[TEXT_BYTES] = "", fits[TEXT_BYTES] = "", size[32], needed[32], there[32], all[32];
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++) {
        if (ledger->bytes[tag] > 0)
            append(table, "%s%s %s", table[0] != '\0' ? ", " : "",
                   mics_memory_tag_text((mics_memory_tag)tag),
                   mics_size_text((double)ledger->bytes[tag], size, sizeof size));
    }
    suggest_all(memory, run, schedule->spec.model, room, fits);
    mics_size_text((double)ledger->total, needed, sizeof needed);
    mics_size_text((double)room->limit_bytes, there, sizeof there);
    mics_size_text((double)room->available_bytes, all, sizeof all);
    if (room->limit_is_set)
        snprintf(size, sizeof size, "run.memory_limit is ");
    else
        snprintf(size, sizeof size, "there is ");
    return mics_fail(
        MICS_ERR_MEMORY,
        "a rank needs %s (%s), but %s%s (%s available to %d ranks here); what fits: %s", needed,
        table, size, there, all, (int)room->ranks_here,
        fits[0] != '\0' ? fits : "nothing on these ranks; use more nodes");
}
