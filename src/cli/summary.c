// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What `mics train` prints before and after.
#include "cli.h"
#include "mics/device.h"
#include "mics/size.h"
#include "run/gpu.h"
#include "run/load.h"
#include "run/sampler.h"
#include "trainer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLE_TOKENS = 320 };

static int64_t param_bytes(const mics_model *model)
{
    return mics_model_param_count(model) * (int64_t)sizeof(float);
}

// ---- before ----

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

static void print_start(const mics_job *job)
{
    if (job->checkpoint != NULL)
        printf("start     step %lld, resumed from %s\n", (long long)job->start_step,
               job->checkpoint_path);
    else if (job->import != NULL)
        printf("start     weights of %s\n", job->run->model_init);
    else
        printf("start     random weights, seed %llu\n", (unsigned long long)job->run->seed);
}

static void print_validation(const mics_job *job)
{
    if (job->validation != NULL)
        printf(", validation on %lld more", (long long)mics_corpus_tokens(job->validation));
    else if (job->validation_samples.windows > 0)
        printf(", %lld windows of them held out for validation",
               (long long)job->validation_samples.windows);
}

void cli_print_beginning(const mics_job *job)
{
    const mics_run *run = job->run;
    const mics_schedule *schedule = job->schedule;
    char name[64], memory[32];
    const mics_mesh *mesh = &schedule->spec.mesh;
    int32_t nodes = mesh->ranks / mesh->ranks_per_node;
    printf("model     %s, %.2f million parameters, %d units (%s)\n", job->model->architecture,
           (double)mics_model_param_count(job->model) / 1e6, (int)job->model->unit_count,
           run->model_config);
    printf("ranks     %d on %d node%s, %s: parameters over %d, gradients over %d, optimizer over "
           "%d; %s, %d thread%s each\n",
           (int)mesh->ranks, (int)nodes, plural(nodes), mics_mesh_name(mesh, name, sizeof name),
           (int)mesh->sharding.params, (int)mesh->sharding.grads, (int)mesh->sharding.optimizer,
           run_world_is_mpi(job->world) ? "MPI processes" : "threads of this process",
           (int)job->room.threads, plural(job->room.threads));
    run_gpu_print(job);
    printf("batch     %lld sequences of %lld tokens a step: %d micro-step%s of %lld on %d rank%s",
           (long long)run->global_batch, (long long)run_job_sequence(job), (int)run->micro_steps,
           plural(run->micro_steps), (long long)run->micro_batch, (int)mesh->ranks,
           plural(mesh->ranks));
    if (schedule->spec.breadth > 1)
        printf(", %d side by side", (int)schedule->spec.breadth);
    printf("\n");
    printf("data      %lld tokens (%s)", (long long)mics_corpus_tokens(job->train),
           job->tokenizer != NULL ? run->tokenizer : "shards of an unknown tokenizer");
    print_validation(job);
    printf("\nmemory    %s a rank\n",
           mics_size_text((double)schedule->ledger.total, memory, sizeof memory));
    print_start(job);
    run_collectives_print(job, stdout);
    printf("\n");
    fflush(stdout);
}

// ---- after ----

// Bytes of the character at `text`: of a whole UTF-8 sequence, else 1.
static size_t character_bytes(const char *text, size_t bytes)
{
    const unsigned char *c = (const unsigned char *)text;
    size_t length = c[0] >= 0xf0 && c[0] < 0xf5 ? 4 : c[0] >= 0xe0 ? 3 : c[0] >= 0xc2 ? 2 : 1;
    if (c[0] >= 0xf5 || length > bytes)
        return 1;
    for (size_t i = 1; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80)
            return 1;
    }
    return length;
}

// What is no character, or steers a terminal, becomes a point.
static void print_sample(const char *text, size_t bytes)
{
    printf("  | ");
    for (size_t i = 0, length; i < bytes; i += length) {
        unsigned char c = (unsigned char)text[i];
        length = character_bytes(text + i, bytes - i);
        if (c == '\n')
            printf("\n  | ");
        else if (length > 1 || (c >= 0x20 && c < 0x7f))
            printf("%.*s", (int)length, text + i);
        else
            putchar('.');
    }
    printf("\n");
}

// The whole model in one process, so only where it is small beside the machine.
static mics_status sample(const mics_job *job)
{
    mics_machine machine;
    run_saved saved = {0};
    run_sampling sampling = {
        .tokens = SAMPLE_TOKENS, .temperature = 0.8, .top_k = 40, .seed = job->run->seed};
    char *text = NULL;
    size_t bytes = 0;
    if (job->tokenizer == NULL)
        return MICS_OK;
    MICS_TRY(mics_machine_read(&machine));
    if (param_bytes(job->model) > (int64_t)(machine.memory_available_bytes / 4)) {
        printf("\n(no sample of text: the model is large beside this machine)\n");
        return MICS_OK;
    }
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return mics_fail(MICS_ERR_MEMORY, "no memory for a sample of text");
    mics_status status = run_saved_init(job->memory, job->checkpoints_dir, &saved);
    if (status == MICS_OK)
        status = run_saved_read_params(&saved);
    if (status == MICS_OK)
        status = run_sample_text(&saved, "\n", &sampling, out);
    fclose(out);
    if (status == MICS_OK) {
        printf("\nwhat the model writes (temperature 0.8):\n");
        print_sample(text, bytes);
    }
    free(text);
    run_saved_fini(&saved);
    return status;
}

static mics_status print_memory(const mics_job *job, const int64_t measured[MICS_MEM_TAGS + 1])
{
    mics_compare_row rows[MICS_MEM_TAGS + 1];
    int32_t count = 0;
    const mics_memory_ledger *ledger = &job->schedule->ledger;
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++) {
        bool counts = tag != MICS_MEM_HOST && (ledger->bytes[tag] > 0 || measured[tag] > 0);
        if (counts)
            rows[count++] = (mics_compare_row){mics_memory_tag_text((mics_memory_tag)tag),
                                               (int64_t)ledger->bytes[tag], measured[tag]};
    }
    rows[count++] = (mics_compare_row){"in all", (int64_t)ledger->total, measured[MICS_MEM_TAGS]};
    return mics_compare_print(stdout, "memory of a rank, peak (the largest of all ranks)", rows,
                              count);
}

// Each rank has checked in each step that it sent what the schedule says (check_sent), so the
// totals that are printed as measured are.
static mics_status print_bytes(const mics_job *job)
{
    mics_bytes sent = mics_schedule_all_bytes(job->schedule, MICS_PHASE_TRAIN);
    mics_compare_row rows[] = {{"inside nodes", sent.intra, sent.intra},
                               {"between nodes", sent.inter, sent.inter}};
    return mics_compare_print(stdout, "bytes sent in a step, all ranks together", rows, 2);
}

mics_status cli_print_end(const cli_trainer *trainer, const int64_t measured[MICS_MEM_TAGS + 1])
{
    const mics_job *job = trainer->job;
    const char *out = job->run->out;
    printf("\n");
    if (!isnan(trainer->validation_first))
        printf("validation loss %.4f before, %.4f after step %lld\n", trainer->validation_first,
               trainer->validation_last, (long long)job->run->steps);
    MICS_TRY(sample(job));
    printf("\n");
    MICS_TRY(print_memory(job, measured));
    printf("\n");
    MICS_TRY(print_bytes(job));
    printf("\nstored in %s: metrics.jsonl, run.json, checkpoints/ (newest: step %lld)\n", out,
           (long long)trainer->saved_step);
    return MICS_OK;
}
