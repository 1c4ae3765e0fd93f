// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Schedules for a run, their memory, and what would fit when they do not.
#include "sizing.h"
#include "base/nccl.h"
#include "base/network.h"
#include "base/size.h"
#include "base/text.h"
#include "mics/core/device.h"
#include "mics/core/engine.h"
#include "mics/log.h"
#include "plan/offers/planning.h"
#include "run/auto.h"
#include "run/layered.h"
#include "run/run_schedule.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 640 };

// Appends to a line as far as it holds more.
MICS_PRINTF(2, 3) static void append(char text[TEXT_BYTES], const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    mics_text_vformat(text + used, TEXT_BYTES - used, format, args);
    va_end(args);
}

// What NCCL has of a GPU, of all ranks that share it; 0 where they go through the host.
static size_t nccl_bytes(int32_t ranks, int32_t ranks_here, int32_t sharers)
{
    if (sharers > 1 && (!mics_nccl_may_share() || sharers > MICS_NCCL_MAX_SHARERS))
        return 0;
    const mics_nccl_ctas ctas = mics_nccl_read_ctas(sharers, mics_network_bytes_per_s(NULL));
    return mics_nccl_reserve(ranks, ranks_here, &ctas) * (size_t)sharers;
}

// What a GPU has for arenas: less what NCCL has, and what the context and the libraries' own
// take, some 1.5 GiB on an H200 with CUDA 13 (assumed), of small ones all together an eighth.
static size_t gpu_bytes(int32_t ranks, int32_t ranks_here, int32_t sharers)
{
    mics_device_info info;
    if (mics_cuda_device_info(0, &info) != MICS_OK)
        return 0;
    const size_t reserve = ((size_t)3 << 29) + nccl_bytes(ranks, ranks_here, sharers);
    const size_t eighth = info.memory_total_bytes / 8;
    return info.memory_total_bytes - (reserve < eighth ? reserve : eighth);
}

// Memory that a rank may have, of all that its machine has.
static size_t share_bytes(const mics_machine *machine, int32_t ranks, int32_t ranks_here,
                          const run_accelerator *accelerator, size_t *available_out)
{
    if (!accelerator->used) {
        *available_out = machine->memory_available_bytes;
        return machine->memory_available_bytes / (size_t)ranks_here;
    }
    const int32_t devices = accelerator->devices;
    if (devices == 0) {
        *available_out = SIZE_MAX;
        return SIZE_MAX;
    }
    const int32_t sharers = (ranks_here + devices - 1) / devices; // of the fullest GPU
    const size_t bytes = gpu_bytes(ranks, ranks_here, sharers);
    *available_out = bytes * (size_t)(ranks_here < devices ? ranks_here : devices);
    return bytes / (size_t)sharers;
}

// Of a machine's own memory, what others take: the system, and processes beside the run (assumed).
enum { OTHERS_SHARE = 8 };

// What a choice may count on, the same in each start of a run.
static size_t auto_bytes(const mics_machine *machine, int32_t ranks_here,
                         const run_accelerator *accelerator, size_t equal)
{
    const size_t total = machine->memory_total_bytes;
    const size_t share =
        accelerator->used ? equal : (total - total / OTHERS_SHARE) / (size_t)ranks_here;
    return share == SIZE_MAX ? SIZE_MAX : share - (size_t)(MICS_PLAN_RESERVE * (double)share);
}

mics_status run_budget_read(const mics_run *run, int32_t ranks, int32_t nodes, int32_t ranks_here,
                            const run_accelerator *accelerator, run_budget *budget_out)
{
    mics_machine machine;
    MICS_TRY(mics_machine_read(&machine));
    int32_t share = machine.cores / ranks_here;
    bool set = run->memory_limit_bytes > 0;
    size_t available = 0;
    const size_t equal = share_bytes(&machine, ranks, ranks_here, accelerator, &available);
    *budget_out = (run_budget){
        .ranks = ranks,
        .nodes = nodes,
        .ranks_here = ranks_here,
        .limit_bytes = set ? (size_t)run->memory_limit_bytes : equal,
        .auto_bytes = set ? (size_t)run->memory_limit_bytes
                          : auto_bytes(&machine, ranks_here, accelerator, equal),
        .host_bytes = machine.memory_available_bytes / (size_t)ranks_here,
        .available_bytes = available,
        .accelerator = *accelerator,
        .dtype = run->precision == MICS_RUN_PRECISION_BF16   ? MICS_DTYPE_BF16
                 : run->precision == MICS_RUN_PRECISION_FP16 ? MICS_DTYPE_FP16
                                                             : MICS_DTYPE_FP32,
        .limit_is_set = set,
        .threads = run->threads > 0 ? run->threads : (share > 0 ? share : 1),
        .shares = true,
    };
    return MICS_OK;
}

static mics_status set_prefetch(mics_memory *memory, mics_run *run, const mics_model *model,
                                const run_budget *budget, int32_t prefetch,
                                mics_schedule **schedule)
{
    mics_schedule_close(*schedule);
    *schedule = NULL;
    run->prefetch = prefetch;
    return run_schedule_make(memory, run, model, budget, schedule);
}

// The deepest prefetch whose schedule fits beside what saves need, or the last; *schedule is made
// anew.
static mics_status choose_prefetch(mics_memory *memory, mics_run *run, const mics_model *model,
                                   const run_budget *budget, mics_schedule **schedule)
{
    bool fits = false;
    int32_t depth = 0;
    MICS_TRY(set_prefetch(memory, run, model, budget, 0, schedule));
    const size_t limit = run_budget_auto_bytes(budget) - run_save_copy_room(run, *schedule, budget);
    for (int32_t index = 0; !fits && mics_prefetch_candidate(index, &depth); index++) {
        MICS_TRY(set_prefetch(memory, run, model, budget, depth, schedule));
        fits = (*schedule)->ledger.total <= limit;
    }
    return MICS_OK;
}

// Ranks on CPUs compute in host memory. Tests have them copy all the same.
static bool can_offload(const run_budget *budget)
{
    return budget->accelerator.used || getenv("MICS_OFFLOAD_ON_CPU") != NULL;
}

static mics_status check_offload_device(const mics_run *run, const run_budget *budget)
{
    if (run->offload_units == 0 || can_offload(budget))
        return MICS_OK;
    return mics_json_fail(run->json, "run.offload_activations", MICS_ERR_UNSUPPORTED,
                          "is %d, but these ranks compute on CPUs, and host memory is where their "
                          "activations are; 0 works, or run.device \"cuda\"",
                          (int)run->offload_units);
}

static mics_status check_offload_bytes(const mics_run *run, const run_budget *budget, size_t bytes)
{
    if (bytes <= budget->host_bytes)
        return MICS_OK;
    return mics_json_fail(run->json, "run.offload_activations", MICS_ERR_MEMORY,
                          "%d units take %zu MiB of host memory a rank, and %zu are available; "
                          "take fewer",
                          (int)run->offload_units, bytes >> 20, budget->host_bytes >> 20);
}

static mics_status open_first(mics_memory *memory, mics_run *run, const mics_model *model,
                              const run_budget *budget, mics_schedule **schedule_out)
{
    const bool open = ((run->sharding_auto || (run->sharding_open && run->early_gathers_auto)) &&
                       budget->ranks > 1) ||
                      run->batch_auto || run->recompute_auto || run->recompute_open ||
                      (run->offload_auto && budget->accelerator.used);
    return open ? run_plan_auto(memory, run, model, budget, schedule_out)
                : run_schedule_make(memory, run, model, budget, schedule_out);
}

// What a sharding that was chosen has no use for is no error: another number of ranks may have one.
static mics_status check_comm_dtypes(const mics_run *run, const run_budget *budget)
{
    const bool before = mics_log_demote(run->sharding_auto);
    const mics_status status = mics_run_check_comm_dtypes(run, budget->ranks, budget->nodes);
    (void)mics_log_demote(before);
    return run->sharding_auto && status == MICS_ERR_INVALID ? MICS_OK : status;
}

static void settle_early(mics_run *run, const mics_schedule *schedule)
{
    const bool early = schedule->spec.early_gathers;
    if (run->early_gathers && !run->early_gathers_auto && !early)
        mics_log(MICS_LOG_WARNING,
                 "run.early_gathers: true changes nothing here: it is for sharding.optimizer below "
                 "the %d ranks, and run.comm_dtype.boundary \"fp32\"",
                 (int)schedule->spec.mesh.ranks);
    run->early_gathers = early;
    run->early_gathers_auto = false;
}

// Padding stands at positions of the model, too.
static mics_status check_sequence(const mics_run *run, const mics_model *model)
{
    const int64_t length = mics_run_length(run, model->positions), over = length % run->sequence;
    if (over == 0 || length - over + run->sequence <= model->positions)
        return MICS_OK;
    return mics_json_fail(run->json, "data.sequence_length", MICS_ERR_INVALID,
                          "%lld tokens are padded to a multiple of sharding.sequence %d, and %s "
                          "has %lld positions; %lld works",
                          (long long)length, (int)run->sequence, run->model_config,
                          (long long)model->positions, (long long)(length - over));
}

mics_status run_schedule_open(mics_memory *memory, mics_run *run, const mics_model *model,
                              const run_budget *budget, mics_schedule **schedule_out,
                              mics_layered_choice *layered_out)
{
    if (run->sequence_length > model->positions)
        return mics_json_fail(run->json, "data.sequence_length", MICS_ERR_INVALID,
                              "is %lld, but %s has %lld positions; at most that many work",
                              (long long)run->sequence_length, run->model_config,
                              (long long)model->positions);
    if (run->max_sequence_length > 0) // rows of explain and checkpoints say what it became
        run->sequence_length = mics_run_length(run, model->positions);
    MICS_TRY(check_sequence(run, model));
    MICS_TRY(check_offload_device(run, budget));
    // What is chosen counts only where all of it succeeds. A copy is not for functions of config.h.
    mics_run as = *run;
    mics_layered_choice layered = {.automatic = false};
    mics_schedule *schedule = NULL;
    mics_status status = MICS_OK;
    if (!run->sharding_auto)
        MICS_TRY(mics_run_check_comm_dtypes(run, budget->ranks, budget->nodes));
    if (run->layered_auto)
        as.layered_micro_steps = 0; // what was kept, or chosen before, counts below
    MICS_TRY(open_first(memory, &as, model, budget, &schedule));
    if (run->layered_auto)
        MICS_TRY_OUT(run_layered_choose(memory, &as, model, budget, &schedule, &layered));
    if (run->prefetch_auto)
        MICS_TRY_OUT(choose_prefetch(memory, &as, model, budget, &schedule));
    run->sharding = as.sharding;
    run->experts = as.experts;
    run->micro_batch = as.micro_batch;
    run->micro_steps = as.micro_steps;
    run->recompute = as.recompute;
    run->recompute_open = as.recompute_open;
    run->offload_units = as.offload_units;
    run->prefetch = as.prefetch;
    settle_early(run, schedule);
    if (run->layered_auto) {
        mics_run_resolve_layered(run, as.layered_micro_steps, layered.why);
        run_layered_warn(run, &layered, schedule, budget);
    }
    MICS_TRY_OUT(check_comm_dtypes(run, budget));
    MICS_TRY_OUT(check_offload_bytes(run, budget, schedule->ledger.bytes[MICS_MEM_OFFLOAD]));
    *schedule_out = schedule;
    *layered_out = layered;
    return MICS_OK;
out:
    mics_schedule_close(schedule);
    return status;
}

bool run_fits_save_copy(const mics_schedule *schedule, const run_budget *budget, size_t copy_bytes)
{
    if (budget->accelerator.used)
        return mics_engine_copy_bytes(schedule) + copy_bytes +
                   schedule->ledger.bytes[MICS_MEM_OFFLOAD] <=
               budget->host_bytes;
    const size_t states =
        mics_engine_copies_states(schedule) ? mics_engine_copy_bytes(schedule) : 0;
    return schedule->ledger.total + states + copy_bytes <= budget->limit_bytes;
}

// ---- advice ----

// A search for what fits, and the words of what it found.
typedef struct search {
    mics_memory *memory;
    const mics_run *run;
    const mics_model *model;
    const run_budget *budget;
    char text[TEXT_BYTES];
} search;

// Memory of a variant; false when there is no schedule for it. What is wrong with a variant that
// nobody asked for is nobody's error.
static bool try_variant(const search *self, const mics_run *as, size_t *bytes_out)
{
    mics_schedule *schedule = NULL;
    const bool muted = mics_log_mute(true);
    const mics_status status =
        run_schedule_make(self->memory, as, self->model, self->budget, &schedule);
    mics_log_mute(muted);
    const bool can =
        status == MICS_OK && schedule->ledger.bytes[MICS_MEM_OFFLOAD] <= self->budget->host_bytes;
    if (can)
        *bytes_out = schedule->ledger.total;
    mics_schedule_close(schedule);
    return can;
}

// Tries one change and adds its words to the list of what fits.
static bool suggest(search *self, const mics_run *as, const char *words)
{
    char size[32];
    size_t bytes = 0;
    if (!try_variant(self, as, &bytes) || bytes > self->budget->limit_bytes)
        return false;
    append(self->text, "%s%s (%s)", self->text[0] != '\0' ? ", or " : "", words,
           mics_size_text((double)bytes, size, sizeof size));
    return true;
}

// The largest micro-batch that fits, by halves, so that the global batch stays what it is.
static bool suggest_micro_batch(search *self, mics_run as, const char *words)
{
    char text[224];
    while (as.micro_batch % 2 == 0 && as.micro_steps <= INT32_MAX / 2) {
        as.micro_batch /= 2;
        as.micro_steps *= 2;
        snprintf(text, sizeof text,
                 "%strain_micro_batch_size_per_gpu %lld with gradient_accumulation_steps %d", words,
                 (long long)as.micro_batch, (int)as.micro_steps);
        if (suggest(self, &as, text))
            return true;
    }
    if (as.micro_batch == 1 || as.micro_batch > INT32_MAX / as.micro_steps)
        return false;
    as.micro_steps *= (int32_t)as.micro_batch;
    as.micro_batch = 1;
    snprintf(text, sizeof text,
             "%strain_micro_batch_size_per_gpu 1 with gradient_accumulation_steps %d", words,
             (int)as.micro_steps);
    return suggest(self, &as, text);
}

// The fewest ranks that share out sequences so that it fits; the global batch stays what it is.
static void suggest_sequence(search *self)
{
    char words[96];
    mics_run as = *self->run;
    const int64_t length = mics_run_length(&as, self->model->positions);
    const mics_run_island island =
        mics_run_island_of(&as, self->budget->ranks, self->budget->nodes);
    const int32_t per_node = island.ranks / island.nodes, before = as.sequence;
    while (++as.sequence <= per_node && self->run->micro_steps <= INT32_MAX / per_node) {
        const int32_t p = as.sharding.params, s = as.sequence;
        if (per_node % s != 0 || s % before != 0 || (p % s != 0 && s % p != 0) || length % s != 0)
            continue;
        as.micro_steps = self->run->micro_steps * (as.sequence / before);
        snprintf(words, sizeof words, "sharding.sequence %d with gradient_accumulation_steps %d",
                 (int)as.sequence, (int)as.micro_steps);
        if (suggest(self, &as, words))
            return;
    }
}

// The fewest further layers recomputed that fit, or all that there is to recompute.
static void suggest_recompute(search *self)
{
    const int32_t layers = mics_model_computing_units(self->model) - 2;
    mics_run as = *self->run;
    const char *quote = mics_recomputes(as.recompute) ? "\"" : "";
    char form[MICS_RECOMPUTE_BYTES], words[80];
    while (as.recompute.units < layers) {
        as.recompute.units++;
        snprintf(words, sizeof words, "run.recompute %s%s%s", quote,
                 mics_recompute_text(as.recompute, *quote == '\0', form), quote);
        if (suggest(self, &as, words))
            return;
    }
    as.recompute = mics_recompute_all(true);
    if (self->run->recompute.units != MICS_RECOMPUTE_ALL)
        suggest(self, &as, "run.recompute true");
}

// The fewest further units in host memory that fit.
static void suggest_offload(search *self)
{
    mics_run as = *self->run;
    char words[48];
    while (can_offload(self->budget) && as.offload_units < self->model->unit_count) {
        snprintf(words, sizeof words, "run.offload_activations %d", (int)++as.offload_units);
        if (suggest(self, &as, words))
            return;
    }
}

// run.memory_limit, where it is what stands in the way.
static void suggest_limit(search *self, size_t needed)
{
    const run_budget *budget = self->budget;
    const size_t mib = (size_t)1 << 20;
    if (budget->limit_is_set && needed <= budget->available_bytes / (size_t)budget->ranks_here)
        append(self->text, "raise run.memory_limit to %zuMiB", (needed + mib - 1) / mib);
}

static void suggest_all(search *self, size_t needed)
{
    char words[128];
    const mics_run *run = self->run;
    const mics_run_island island =
        mics_run_island_of(run, self->budget->ranks, self->budget->nodes);
    suggest_limit(self, needed);
    mics_run as = *run;
    as.prefetch = 0;
    if (run->prefetch > 0)
        suggest(self, &as, "run.prefetch 0");
    as = *run;
    as.memory_checkpoint_every = 0;
    if (run->memory_checkpoint_every > 0)
        suggest(self, &as, "run.memory_checkpoint_every 0");
    as = *run;
    as.layered_micro_steps = 1;
    if (run->layered_micro_steps > 1)
        suggest(self, &as, "run.layered_micro_steps 1");
    as = *run;
    for (int32_t index = 0;
         mics_sharding_candidate(island.ranks, island.nodes, index, &as.sharding) &&
         island.ranks / as.sharding.params >= run->min_replicas;
         index++) {
        int32_t p = as.sharding.params;
        snprintf(words, sizeof words,
                 "\"sharding\": {\"params\": %d, \"grads\": %d, \"optimizer\": %d}", (int)p, (int)p,
                 (int)p);
        if (suggest(self, &as, words))
            break;
    }
    suggest_recompute(self);
    suggest_offload(self);
    if (!suggest_micro_batch(self, *run, "") && run->preference.kind == MICS_PREFERENCE_NONE)
        suggest_sequence(self);
    as.sharding = (mics_sharding){island.ranks, island.ranks, island.ranks};
    as.recompute = mics_recompute_all(true);
    as.layered_micro_steps = 1;
    if (self->text[0] != '\0' && run->min_replicas == 1)
        return;
    as.min_replicas = 1;
    const int said = snprintf(words, sizeof words, "%s%srun.recompute true%s",
                              run->min_replicas > 1 ? "run.min_replicas 1, " : "",
                              island.ranks > 1 ? "sharding over all ranks, " : "",
                              run->layered_micro_steps > 1 ? ", run.layered_micro_steps 1" : "");
    if (suggest(self, &as, words))
        return;
    snprintf(words + said, sizeof words - (size_t)said, ", ");
    suggest_micro_batch(self, as, words);
}

static void ledger_text(const mics_memory_ledger *ledger, char text[TEXT_BYTES])
{
    char size[32];
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++) {
        if (ledger->bytes[tag] > 0)
            append(text, "%s%s %s", text[0] != '\0' ? ", " : "",
                   mics_memory_tag_text((mics_memory_tag)tag),
                   mics_size_text((double)ledger->bytes[tag], size, sizeof size));
    }
}

mics_status run_check_memory(mics_memory *memory, const mics_run *run,
                             const mics_schedule *schedule, const run_budget *budget)
{
    const mics_memory_ledger *ledger = &schedule->ledger;
    if (ledger->total <= budget->limit_bytes)
        return MICS_OK;
    char table[TEXT_BYTES] = "", needed[32], there[32], all[32];
    // Variants spread the model that was given, each in its own way.
    const mics_model *model =
        schedule->spread != NULL ? schedule->spread->base : schedule->spec.model;
    search fits = {.memory = memory, .run = run, .model = model, .budget = budget, .text = ""};
    ledger_text(ledger, table);
    suggest_all(&fits, ledger->total);
    mics_size_text((double)ledger->total, needed, sizeof needed);
    mics_size_text((double)budget->limit_bytes, there, sizeof there);
    mics_size_text((double)budget->available_bytes, all, sizeof all);
    return mics_fail(MICS_ERR_MEMORY,
                     "a rank needs %s (%s), but %s%s (the machine%s %s available for %d "
                     "rank%s); what fits: %s",
                     needed, table, budget->limit_is_set ? "run.memory_limit is " : "there is ",
                     there, budget->accelerator.used ? "'s GPUs have" : " has", all,
                     (int)budget->ranks_here, budget->ranks_here == 1 ? "" : "s",
                     fits.text[0] != '\0' ? fits.text : "nothing on these ranks; use more nodes");
}
