// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics eval: loss and perplexity of a checkpoint on texts. Every token but the first is predicted
// exactly once: whole windows in batches, then the windows that fill no batch, then the tokens that
// fill no window.
#include "args.h"
#include "base/file.h"
#include "base/text.h"
#include "cli.h"
#include "mics/device.h"
#include "mics/engine.h"
#include "mics/size.h"
#include "run/files.h"
#include "run/import.h"
#include "run/load.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char about[] =
    "Prints loss and perplexity of a checkpoint on texts or token shards, taken as one stream.\n"
    "CHECKPOINT is a step's folder, or that of a run (its newest checkpoint is taken).";
static const char notes[] =
    "The stream is cut into windows of --sequence tokens; each token is predicted from those "
    "before\n"
    "it in its window, and every token but the first of the stream counts once.";

enum { BATCH_TOKENS = 2048 }; // of a whole batch, about

typedef struct eval_options {
    cli_list arguments, data;
    bool json;
    int64_t sequence; // 0: what the model was trained with
} eval_options;

// Where the next window begins, and what was found so far.
typedef struct evaluation {
    const run_saved *saved;
    const mics_corpus *corpus;
    int64_t next;              // first token of the next window
    int64_t sequences, length; // of the running part
    double loss_sum;           // over predicted tokens
    int64_t predicted;
} evaluation;

static cli_parsed parse(mics_memory *memory, int argc, char **argv, eval_options *options)
{
    const cli_option table[] = {
        {"data", CLI_MANY, "FILES...", "texts, or .bin token shards", &options->data, 0, 0},
        {"sequence", CLI_INT, "N", "tokens of a window; default: as in training",
         &options->sequence, 1, 0},
        {"json", CLI_FLAG, NULL, "print one JSON object", &options->json, 0, 0},
    };
    const cli_spec spec = {
        .verb = "eval",
        .arguments = "CHECKPOINT",
        .about = about,
        .options = table,
        .option_count = sizeof table / sizeof table[0],
        .min_arguments = 1,
        .max_arguments = 1,
        .notes = notes,
    };
    cli_parsed parsed = cli_parse(memory, &spec, argc, argv, &options->arguments);
    if (parsed == CLI_PARSED_RUN && options->data.count == 0) {
        mics_fail(MICS_ERR_INVALID, "mics eval: --data FILES is missing");
        return CLI_PARSED_WRONG;
    }
    return parsed;
}

// ---- one part: some batches of one shape ----

// Row by row: inputs are the window, targets its successors.
static mics_status read_windows(void *ctx, int32_t micro_step, int32_t *inputs_out,
                                int32_t *targets_out)
{
    evaluation *self = ctx;
    (void)micro_step;
    for (int64_t row = 0; row < self->sequences; row++) {
        mics_corpus_read(self->corpus, self->next, self->length, inputs_out + row * self->length);
        mics_corpus_read(self->corpus, self->next + 1, self->length,
                         targets_out + row * self->length);
        self->next += self->length;
    }
    return MICS_OK;
}

static mics_status run_batches(evaluation *self, mics_engine *engine, int64_t batches)
{
    mics_batch_source source = {.read = read_windows, .ctx = self};
    MICS_TRY(run_params_fill(self->saved->model, self->saved->checkpoint, engine));
    for (int64_t batch = 0; batch < batches; batch++) {
        mics_step_result result;
        int64_t tokens = self->sequences * self->length;
        MICS_TRY(mics_engine_eval(engine, &source, &result));
        self->loss_sum += result.loss * (double)tokens;
        self->predicted += tokens;
    }
    return MICS_OK;
}

static mics_status open_schedule(const evaluation *self, mics_schedule **schedule_out)
{
    mics_machine machine;
    MICS_TRY(mics_machine_read(&machine));
    mics_schedule_spec spec = {
        .model = self->saved->model,
        .batch = {.sequences = self->sequences, .length = self->length, .threads = machine.cores},
        .micro_steps = 1,
        .recompute = true, // nothing is kept from unit to unit
        .evaluation_only = true,
    };
    MICS_TRY(mics_mesh_init(1, 1, (mics_sharding){1, 1, 1}, &spec.mesh));
    MICS_TRY(mics_schedule_open(self->saved->memory, &spec, schedule_out));
    size_t needed = (*schedule_out)->ledger.total;
    if (needed <= machine.memory_available_bytes)
        return MICS_OK;
    char text[2][32];
    return mics_fail(
        MICS_ERR_MEMORY, "%s: evaluation needs %s of memory, %s are available", self->saved->path,
        mics_size_text((double)needed, text[0], sizeof text[0]),
        mics_size_text((double)machine.memory_available_bytes, text[1], sizeof text[1]));
}

static mics_status open_comm(mics_memory *memory, mics_thread_world **world_out,
                             mics_comm **comm_out)
{
    mics_comm *inner = NULL;
    MICS_TRY(mics_thread_world_open(memory, 1, 1, world_out));
    MICS_TRY(mics_comm_thread_open(memory, *world_out, 0, &inner));
    mics_status status = mics_comm_count_open_take(memory, inner, 1, comm_out);
    if (status != MICS_OK)
        mics_comm_close(inner);
    return status;
}

static mics_status run_part(evaluation *self, int64_t sequences, int64_t length, int64_t batches)
{
    mics_memory *memory = self->saved->memory;
    mics_schedule *schedule = NULL;
    mics_thread_world *world = NULL;
    mics_comm *comm = NULL;
    mics_engine *engine = NULL;
    mics_status status = MICS_OK;
    if (sequences == 0 || length == 0 || batches == 0)
        return MICS_OK;
    self->sequences = sequences;
    self->length = length;
    MICS_TRY_OUT(open_schedule(self, &schedule));
    MICS_TRY_OUT(open_comm(memory, &world, &comm));
    mics_engine_spec spec = {.memory = memory, .schedule = schedule, .comm = comm};
    MICS_TRY_OUT(mics_engine_open(&spec, &engine));
    MICS_TRY_OUT(run_batches(self, engine, batches));
out:
    mics_engine_close(engine);
    mics_comm_close(comm);
    mics_thread_world_close(world);
    mics_schedule_close(schedule);
    return status;
}

// ---- the whole ----

static mics_status evaluate(evaluation *self, int64_t length)
{
    int64_t tokens = mics_corpus_tokens(self->corpus);
    if (tokens < 2)
        return mics_fail(MICS_ERR_INVALID, "--data: %lld tokens; at least 2 are needed",
                         (long long)tokens);
    int64_t windows = mics_sample_count(tokens, length), tail = tokens - 1 - windows * length;
    int64_t batch = BATCH_TOKENS / length > 0 ? BATCH_TOKENS / length : 1;
    MICS_TRY(run_part(self, batch, length, windows / batch));
    MICS_TRY(run_part(self, windows % batch, length, 1));
    return run_part(self, 1, tail, 1);
}

static void print_result(const evaluation *self, const eval_options *options, int64_t length)
{
    double loss = self->loss_sum / (double)self->predicted, bits = loss / log(2);
    // Only where a token is a byte.
    bool bytes =
        self->saved->tokenizer != NULL && strcmp(self->saved->meta->tokenizer, "bytes") == 0;
    if (options->json) {
        printf("{\"checkpoint\": ");
        mics_text_write_quoted(stdout, self->saved->path);
        printf(", \"step\": %lld, \"sequence\": %lld, \"tokens\": %lld, "
               "\"loss\": %.9g, \"perplexity\": %.9g",
               (long long)self->saved->meta->step, (long long)length, (long long)self->predicted,
               loss, exp(loss));
        if (bytes)
            printf(", \"bits_per_byte\": %.9g", bits);
        printf("}\n");
        return;
    }
    printf("%s, step %lld\n", self->saved->path, (long long)self->saved->meta->step);
    printf("loss %.6f, perplexity %.4f", loss, exp(loss));
    if (bytes)
        printf(", %.4f bits per byte", bits);
    printf(" over %lld tokens in windows of %lld\n", (long long)self->predicted, (long long)length);
}

static mics_status choose_length(const run_saved *saved, int64_t asked, int64_t *length_out)
{
    if (asked > saved->model->positions)
        return mics_fail(MICS_ERR_INVALID, "--sequence %lld: the model has %lld positions",
                         (long long)asked, (long long)saved->model->positions);
    *length_out = asked > 0 ? asked : saved->sequence;
    return MICS_OK;
}

// A text has no tokens for a model whose tokenizer nobody knows.
static mics_status check_data(const run_saved *saved, const cli_list *data)
{
    for (int32_t i = 0; i < data->count && saved->tokenizer == NULL; i++) {
        if (!run_is_shard(data->items[i]))
            return mics_fail(MICS_ERR_INVALID,
                             "%s: is a text, but %s was trained on token shards without a "
                             "data.tokenizer; give shards (.bin)",
                             data->items[i], saved->path);
    }
    return MICS_OK;
}

static mics_status run_eval(mics_memory *memory, const eval_options *options, bool *running_out)
{
    run_saved saved = {0};
    mics_temp_dir cache = {0};
    mics_corpus *corpus = NULL;
    int64_t length = 0;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(run_saved_init(memory, options->arguments.items[0], &saved));
    MICS_TRY_OUT(check_data(&saved, &options->data));
    MICS_TRY_OUT(choose_length(&saved, options->sequence, &length));
    MICS_TRY_OUT(mics_temp_dir_init(&cache));
    MICS_TRY_OUT(mics_corpus_open(memory, options->data.items, options->data.count, saved.tokenizer,
                                  (int32_t)saved.model->vocab, cache.path, &corpus));
    evaluation self = {.saved = &saved, .corpus = corpus};
    *running_out = true;
    mics_log_hold(false);
    MICS_TRY_OUT(run_saved_speak(evaluate(&self, length)));
    print_result(&self, options, length);
out:
    mics_corpus_close(corpus);
    mics_temp_dir_fini(&cache);
    run_saved_fini(&saved);
    return status;
}

int cmd_eval(int argc, char **argv)
{
    mics_memory *memory = NULL;
    eval_options options = {0};
    bool running = false;
    if (mics_memory_open(&memory) != MICS_OK)
        return CLI_EXIT_FAILED;
    cli_parsed parsed = parse(memory, argc, argv, &options);
    mics_status status = parsed == CLI_PARSED_WRONG ? MICS_ERR_INVALID : MICS_OK;
    if (parsed == CLI_PARSED_RUN)
        status = run_eval(memory, &options, &running);
    mics_free(memory, options.arguments.items);
    mics_free(memory, options.data.items);
    mics_memory_close(memory);
    return cli_exit_status(status, running);
}
