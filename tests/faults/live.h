// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A whole training whose ranks are threads of this process, or an MPI launcher's processes, with one
// bit of one rank's live state flipped on the way: in what it holds between steps, or in what a
// kernel reads or has written in the middle of one. What the run then says is counted, and what it
// comes to can be compared.
//
// Works in the current folder, which has to be a new one.
#pragma once

#include "engine/internal.h"
#include "engine/state.h"
#include "mics/log.h"
#include "mics/run.h"
#include "run/job.h"
#include "run/trainer.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LIVE_MAX_STEPS = 64, LIVE_MAX_SETS = 24 };

// In place of a bit: not a number, 60 or 300 times the number.
enum { LIVE_NAN = -1, LIVE_LARGE = -2, LIVE_HUGE = -3 };

typedef enum live_kind {
    LIVE_NONE,
    // Between steps.
    LIVE_MASTERS,
    LIVE_MOMENTS,
    LIVE_PARAMS, // of another owner, in this rank's parameter shard
    LIVE_HELD,   // masters, or moments in fewer bits too, where computation has them
    LIVE_FROZEN, // parameters of a frozen unit, where computation has them
    // In a step.
    LIVE_GRADS,       // after the second hop, of a replica, before it updates with them
    LIVE_GATHERED,    // parameters, before a linear op reads them
    LIVE_ACTIVATIONS, // that a linear op has made
    LIVE_MICRO_GRADS, // of a weight, before the first hop
    LIVE_LOSS,        // of a micro-step: its sign
    LIVE_KINDS,
    // No flip: the rank is lost in a step's backward, behind all updates, or in its own update.
    LIVE_LOST,
    LIVE_LOST_UPDATING
} live_kind;

typedef struct live_flip {
    live_kind kind;
    int32_t rank;
    int64_t after; // step: between it and the next, or in the next
    int32_t unit;  // modulo the units; in a step: the call of a kernel
    int64_t elem;  // modulo the elements
    int32_t bit;   // 0 to 31, or what becomes of the number
    int32_t times; // in a step: so many calls in turn; 0: 1
} live_flip;

typedef struct live_run {
    // What is run.
    int32_t ranks, nodes; // ranks 0: the launcher's
    mics_sharding sharding;
    int64_t steps;
    const char *sets[LIVE_MAX_SETS];
    live_flip flip;
    const char *out, *resume;
    const char *command; // run by the shell where the bit is flipped
    bool saves;          // behind it, before the next step
    int32_t
        ends_loading; // behind the flip, rank 0 ends the world the n-th time that it loads; 0: no
    // What came of it.
    mics_status status;
    int32_t due; // units whose update was due where the bit was flipped
    int64_t step;
    double losses[LIVE_MAX_STEPS + 1]; // by step, the newest
    uint64_t digest;                   // of masters and moments of this process' ranks
    int32_t heard_steps;               // a step that was run again counts again
    int32_t errors, warnings;
    int32_t skipped;                 // steps left out as spikes
    char error[1024], warning[1024]; // the newest
    int64_t
        saved[LIVE_MAX_STEPS + 1]; // by step, as losses: the newest that is saved then, for stops
    char rewound[1024];            // the newest line about going back
    mics_job *flipped;             // while it trains on
} live_run;

// ---- a kernel table that flips ----

typedef struct live_armed {
    const mics_kernels *base;
    mics_kernels table;
    mics_op_kernels linear;
    live_flip flip;
    int32_t calls, left;   // until the flip; flips left
    const double *updated; // where the squares of gradients are summed that updates take
    const mics_job *job;
    mics_comm *comm; // that a lost rank's threads end
} live_armed;

// One at a time; only the victim's thread of computation uses it while ranks train.
static live_armed live_arm;

static inline void live_flip_bit(void *data, int64_t elem, int32_t bit)
{
    uint32_t word;
    float value;
    char *at = (char *)data + elem * (int64_t)sizeof word;
    memcpy(&word, at, sizeof word);
    memcpy(&value, at, sizeof value);
    value = bit == LIVE_NAN ? NAN : value * (bit == LIVE_HUGE ? -300 : -60);
    word ^= (uint32_t)1 << (bit < 0 ? 0 : bit % 32);
    memcpy(at, bit < 0 ? (const void *)&value : (const void *)&word, sizeof word);
}

static inline void live_hit(live_kind kind, const void *data, int64_t elems)
{
    if (live_arm.flip.kind != kind || live_arm.left == 0 || data == NULL || elems == 0 ||
        live_arm.calls-- > 0)
        return;
    live_arm.left--;
    live_arm.calls = 0;
    union {
        const void *read;
        void *write;
    } at = {.read = data};
    live_flip_bit(at.write, live_arm.flip.elem % elems, live_arm.flip.bit);
}

// Whether on any rank here the update of the step before is due.
static inline bool live_updates(const mics_job *job)
{
    bool any = false;
    for (int32_t i = 0; i < job->world->here_count; i++) {
        mics_engine *engine = job->trainers[i].context.engine;
        pthread_mutex_lock(&engine->mutex);
        any = any || engine->pending.left > 0;
        pthread_mutex_unlock(&engine->mutex);
    }
    return any;
}

static inline void live_lose(live_kind kind)
{
    if (live_arm.flip.kind != kind || live_arm.left == 0)
        return;
    live_arm.left--;
    while (kind == LIVE_LOST && live_updates(live_arm.job))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    mics_comm_abort(live_arm.comm, NULL);
}

static inline void live_update(const mics_exec *at, const mics_optimizer_update *call)
{
    live_lose(LIVE_LOST_UPDATING);
    live_arm.base->update[call->optimizer->kind](at, call);
}

static inline void live_sum_squares(const mics_exec *at, double *sum, const float *x, int64_t elems)
{
    if (sum == live_arm.updated)
        live_hit(LIVE_GRADS, x, elems);
    live_arm.base->sum_squares(at, sum, x, elems);
}

static inline void live_sum_losses(const mics_exec *at, double *sum, const float *loss_N, int64_t N)
{
    live_arm.base->sum_losses(at, sum, loss_N, N);
    if (live_arm.flip.kind == LIVE_LOSS && live_arm.left > 0 && live_arm.left-- > 0)
        *sum = -10 * *sum;
}

static inline void live_forward(const mics_op_call *call)
{
    live_hit(LIVE_GATHERED, call->params[0], (int64_t)call->shape.in[0] * call->shape.out);
    live_arm.base->ops[MICS_OP_LINEAR]->forward(call);
    live_hit(LIVE_ACTIVATIONS, call->out, call->shape.N * call->shape.out);
}

static inline void live_backward(const mics_op_call *call)
{
    live_lose(LIVE_LOST);
    live_arm.base->ops[MICS_OP_LINEAR]->backward(call);
    live_hit(LIVE_MICRO_GRADS, call->dparams[0], (int64_t)call->shape.in[0] * call->shape.out);
}

static inline void live_arm_engine(const mics_job *job, mics_engine *engine, const live_flip *flip)
{
    live_arm.job = job;
    live_arm.base = engine->ops;
    live_arm.table = *engine->ops;
    live_arm.linear = *engine->ops->ops[MICS_OP_LINEAR];
    live_arm.linear.forward = live_forward;
    live_arm.linear.backward = live_backward;
    live_arm.linear.pairs = NULL;
    live_arm.table.ops[MICS_OP_LINEAR] = &live_arm.linear;
    live_arm.table.sum_squares = live_sum_squares;
    live_arm.table.sum_losses = live_sum_losses;
    for (size_t i = 0; i < sizeof live_arm.table.update / sizeof live_arm.table.update[0]; i++)
        live_arm.table.update[i] = live_update;
    live_arm.flip = *flip;
    live_arm.comm = engine->spec.comm;
    if (flip->kind >= LIVE_LOST) // what is lost keeps nothing
        engine->spec.world_ends = NULL;
    live_arm.updated = &engine->sums->updated_squares;
    live_arm.calls = flip->unit;
    live_arm.left = flip->times > 0 ? flip->times : 1;
    engine->ops = &live_arm.table;
}

// ---- between steps: all ranks wait ----

// An element of the parameter shard that is another rank's to update; the shard's first where there
// is none.
static inline int64_t live_others_elem(const mics_engine_optimizer_shard *held, int64_t elem)
{
    const int64_t all = held->shard.end - held->shard.begin;
    for (int64_t i = 0; i < all; i++) {
        const int64_t at = (elem + i) % all, in_unit = held->shard.begin + at;
        if (in_unit < held->range.begin || in_unit >= held->range.end)
            return at;
    }
    return 0;
}

// An even element is of masters, an odd one of moments.
static inline void live_flip_held(const mics_engine *engine, const live_flip *flip)
{
    const int32_t units = engine->schedule->spec.model->unit_count;
    // A device may be in the update still.
    (void)engine->device->ops->synchronize(engine->device->ctx, MICS_STREAM_COMPUTE);
    for (int32_t i = 0; i < units; i++) {
        const int32_t unit = (flip->unit + i) % units;
        const optimizer_shard held = optimizer_shard_of(engine, unit);
        const int64_t elems = held.range.end - held.range.begin;
        if (elems == 0)
            continue;
        const mics_state_part part = state_part(engine, unit, 0, 0, elems);
        const bool of_moments = flip->elem % 2 != 0;
        const size_t bytes =
            (size_t)elems * (of_moments ? mics_state_elem_bytes(part.dtype) : sizeof(float));
        char *at = of_moments ? part.held : (char *)held.masters;
        at[(size_t)flip->elem / 2 % bytes] ^= (char)(1 << flip->bit % 8);
        return;
    }
}

static inline void live_flip_frozen(const mics_engine *engine, const live_flip *flip)
{
    const mics_schedule *schedule = engine->schedule;
    const int32_t units = schedule->spec.model->unit_count;
    for (int32_t i = 0; i < units; i++) {
        const int32_t unit = (flip->unit + i) % units;
        const int64_t elems = schedule->padded_elems[unit] / schedule->sharding[unit].params;
        if (mics_schedule_trains(schedule, unit))
            continue;
        char *at = elem_at(engine, shard_at(engine, unit), flip->elem % elems);
        *at ^= (char)(1 << flip->bit % 8);
        return;
    }
}

static inline void live_flip_state(mics_job *job, mics_engine *engine, const live_flip *flip)
{
    const int32_t units = job->model->unit_count;
    for (int32_t i = 0; i < units; i++) { // small units may be none of this rank's
        const mics_engine_optimizer_shard held =
            mics_engine_optimizer_shard_get(engine, (flip->unit + i) % units);
        const int64_t elems = held.range.end - held.range.begin;
        if (elems == 0)
            continue;
        if (flip->kind == LIVE_MASTERS)
            live_flip_bit(held.params, flip->elem % elems, flip->bit);
        else if (flip->kind == LIVE_MOMENTS)
            live_flip_bit(held.states[flip->elem % 2], flip->elem / 2 % elems, flip->bit);
        else
            live_flip_bit(held.shard_params, live_others_elem(&held, flip->elem), flip->bit);
        return;
    }
}

static inline void live_flip_now(mics_job *job, const live_flip *flip)
{
    const int32_t here = flip->rank - job->world->first;
    if (flip->kind == LIVE_NONE || here < 0 || here >= job->world->here_count)
        return;
    run_trainer *trainer = &job->trainers[here];
    mics_engine *engine = trainer->context.engine;
    run_saver *saver = &trainer->followers.saving.saver;
    run_saver_await_staged(&saver->saves[RUN_BACKGROUND]); // it reads the state
    if (flip->kind == LIVE_HELD)
        live_flip_held(engine, flip);
    else if (flip->kind == LIVE_FROZEN)
        live_flip_frozen(engine, flip);
    else if (flip->kind >= LIVE_GRADS)
        live_arm_engine(job, engine, flip);
    else
        live_flip_state(job, engine, flip);
}

// ---- what is heard ----

// Ranks may speak at once.
static inline void live_line(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    live_run *run = (live_run *)ctx;
    (void)rank;
    pthread_mutex_lock(&lock);
    if (getenv("LIVE_SAYS") != NULL)
        fprintf(stderr, "  [%d] %s\n", (int)level, line);
    if (level == MICS_LOG_ERROR && run->errors++ >= 0)
        snprintf(run->error, sizeof run->error, "%s", line);
    if (level == MICS_LOG_WARNING && run->warnings++ >= 0)
        snprintf(run->warning, sizeof run->warning, "%s", line);
    if (strstr(line, "the run goes back to step") != NULL)
        snprintf(run->rewound, sizeof run->rewound, "%s", line);
    run->skipped += strstr(line, "the step is left out") != NULL;
    pthread_mutex_unlock(&lock);
}

static inline void live_step(void *ctx, const mics_metrics *metrics)
{
    live_run *run = (live_run *)ctx;
    run->heard_steps++;
    if (metrics->step > LIVE_MAX_STEPS)
        return;
    run->losses[metrics->step] = metrics->loss;
    if (run->flipped == NULL)
        return;
    const int64_t saved = run->flipped->trainers[0].progress.saved;
    if (saved == atomic_load(&run->flipped->standing.saved))
        run->saved[metrics->step] = saved != RUN_NO_STEP ? saved : 0;
}

static inline void live_work(void *ctx, const char *what, int64_t done, int64_t total)
{
    live_run *run = (live_run *)ctx;
    (void)done;
    (void)total;
    if (run->flipped != NULL && strcmp(what, "saving") != 0 && run->ends_loading > 0 &&
        --run->ends_loading == 0)
        mics_comm_abort(run->flipped->trainers[0].context.rank->comm, NULL);
}

static inline uint64_t live_digest(const mics_job *job)
{
    const mics_kernels *kernels = mics_kernels_get(NULL);
    uint64_t digest = 0, hash = 0;
    for (int32_t rank = 0; rank < job->world->here_count; rank++) {
        for (int32_t unit = 0; unit < job->model->unit_count; unit++) {
            const mics_engine_optimizer_shard held =
                mics_engine_optimizer_shard_get(job->trainers[rank].context.engine, unit);
            const size_t bytes = (size_t)(held.range.end - held.range.begin) * sizeof(float);
            const float *const parts[] = {held.params, held.states[0], held.states[1]};
            for (int part = 0; part < 3 && parts[part] != NULL; part++) {
                kernels->hash(NULL, &hash, parts[part], bytes);
                digest = (digest ^ hash) * 1099511628211u + 1;
            }
        }
    }
    return digest;
}

// ---- a run ----

/* Writes the model and the text that every run reads. */
static inline int live_prepare(void)
{
    static const char model[] =
        "{\"model_type\": \"gpt2\", \"n_embd\": 16, \"n_head\": 2, \"n_layer\": 2, "
        "\"n_positions\": 16, \"vocab_size\": 256, \"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0, "
        "\"resid_pdrop\": 0.0}";
    FILE *file = fopen("model.json", "w");
    if (file == NULL)
        return 1;
    fputs(model, file);
    fclose(file);
    file = fopen("text.txt", "w");
    if (file == NULL)
        return 1;
    for (int i = 0; i < 6000; i++)
        fputc("the lark at break of day arising"[(i * 7 + i / 31) % 32], file);
    return fclose(file);
}

static inline mics_status live_train(mics_job *job, live_run *run)
{
    if (run->flip.after > 0)
        MICS_TRY(mics_job_train(job, run->flip.after));
    run->due = job->trainers[0].context.engine->pending.left;
    live_flip_now(job, &run->flip);
    run->flipped = job;
    if (run->command != NULL && system(run->command) != 0)
        return MICS_ERR_IO;
    if (run->saves)
        MICS_TRY(mics_job_save(job));
    return mics_job_train(job, 0);
}

/* Trains the run; what came of it stands in `run` then. Its folder `out` goes, unless `keep`. */
static inline void live_go(live_run *run, bool keep)
{
    static const char *const texts[] = {"text.txt"};
    mics_memory *memory = NULL;
    mics_job *job = NULL;
    const char *sets[LIVE_MAX_SETS + 9] = {
        "run.validation_batches=0", "run.threads=1",          "run.device=cpu",
        "run.comm_timeout_s=60",    "run.share_params=false", "run.param_persistence_threshold=0",
        "run.scrub_every=0",        "run.straggler_warn=0"};
    int32_t count = 8;
    char command[256];
    for (int i = 0; i < LIVE_MAX_SETS && run->sets[i] != NULL; i++)
        sets[count++] = run->sets[i];
    const char *out = run->out != NULL ? run->out : "out";
    const mics_run_values values = {.model_config = "model.json",
                                    .train = texts,
                                    .train_count = 1,
                                    .sequence_length = 8,
                                    .steps = run->steps,
                                    .seed = 3,
                                    .out = out,
                                    .micro_batch = 1,
                                    .micro_steps = 2,
                                    .learning_rate = 3e-3,
                                    .sharding = run->sharding};
    const mics_job_spec spec = {.memory = NULL,
                                .values = &values,
                                .sets = sets,
                                .set_count = count,
                                .ranks = run->ranks,
                                .nodes = run->nodes > 0 ? run->nodes : 1,
                                .resume = run->resume != NULL ? run->resume : "none",
                                .callbacks = {.ctx = run, .step = live_step, .work = live_work}};
    mics_job_spec with = spec;
    run->heard_steps = run->errors = run->warnings = 0;
    run->skipped = 0;
    run->flipped = NULL;
    run->error[0] = run->warning[0] = run->rewound[0] = '\0';
    live_arm = (live_armed){.base = NULL};
    mics_log_set_sink(live_line, run);
    run->status = mics_memory_open(&memory);
    with.memory = memory;
    if (run->status == MICS_OK)
        run->status = mics_job_open(&with, &job);
    if (run->status == MICS_OK)
        run->status = live_train(job, run);
    if (job != NULL && job->trainers != NULL) {
        for (int32_t rank = 0; run->status == MICS_OK && rank < job->world->here_count; rank++)
            run->status = mics_engine_download(job->trainers[rank].context.engine);
        run->step = job->trainers[0].progress.step;
        run->digest = live_digest(job);
    }
    (void)mics_job_close(job);
    mics_log_set_sink(NULL, NULL);
    if (memory != NULL && mics_memory_close(memory) != 0 && run->status == MICS_OK)
        run->status = MICS_ERR_MEMORY; // a leak
    if (keep)
        return;
    snprintf(command, sizeof command, "rm -rf '%s'", out);
    if (system(command) != 0)
        run->status = MICS_ERR_IO;
}

/* Whether two runs came to the same bits: of the state, and of the losses from `from` on. */
static inline bool live_same(const live_run *a, const live_run *b, int64_t from)
{
    return a->digest == b->digest && a->step == b->step &&
           memcmp(&a->losses[from], &b->losses[from],
                  (size_t)(a->steps - from + 1) * sizeof a->losses[0]) == 0;
}
