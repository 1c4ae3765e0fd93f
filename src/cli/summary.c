// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What `mics train` prints before and after.
#include "base/file.h"
#include "base/nccl.h"
#include "base/utf8.h"
#include "cli.h"
#include "io/report/printer.h"
#include "io/report/terminal.h"
#include "mics/core/ledger.h"
#include "run/settings.h"
#include "schedule/rules.h"
#include "train.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLE_TOKENS = 320 };

// ---- before ----

// Whoever names a folder, or the config.json beside weights, may have wanted them.
static void print_why_random(const mics_run *run)
{
    char folder[MICS_FOLDER_BYTES];
    mics_run_folder_of(run->model_config, folder);
    if (run->weights_beside && run->init_open)
        printf("; model.config names a file: --model %s starts from the weights beside it", folder);
    else if (run->weights_beside)
        printf("; model.init is \"random\", so not those in %s", folder);
    else if (run->model_folder)
        printf("; %s has no model.safetensors", folder);
}

static void print_start(const mics_job *job, const mics_job_facts *facts)
{
    if (facts->from_memory) {
        printf("start     step %lld, resumed from node memory, no checkpoint read from disk\n",
               (long long)facts->start_step);
    } else if (facts->checkpoint != NULL) {
        printf("start     step %lld, resumed from %s\n", (long long)facts->start_step,
               facts->checkpoint);
    } else if (facts->imported) {
        printf("start     weights of %s\n", mics_job_run(job)->model_init);
    } else {
        printf("start     random weights, seed %llu", (unsigned long long)mics_job_run(job)->seed);
        print_why_random(mics_job_run(job));
        printf("\n");
    }
}

// More than one pass over a text is worth a word: losses fall for another reason then.
static void print_epochs(double epochs, const char *of)
{
    if (epochs > 1)
        printf(", %.*f epochs%s", epochs < 10 ? 1 : 0, epochs, of);
}

static void print_sources(const mics_job *job, const mics_job_facts *facts)
{
    for (int32_t i = 0; i < facts->sources; i++) {
        const mics_job_source source = mics_job_source_get(job, i);
        printf("          %.2f %% of %s: %lld tokens", 100 * source.share, source.path,
               (long long)source.tokens);
        print_epochs(source.epochs, " of it");
        printf("\n");
    }
}

// Chats, whose lengths leave padding.
static void print_samples(const mics_job *job, const mics_job_facts *facts)
{
    const double places =
        (double)facts->sequences *
        (double)mics_run_length(mics_job_run(job), mics_job_model(job)->positions);
    const bool pairs = mics_run_sequences_each(mics_job_run(job)) > 1;
    printf("%s%lld in %lld sequences%s, %.1f %% of them padding; of their tokens %.1f %% count",
           pairs ? "pairs     " : "samples   ", (long long)facts->samples,
           (long long)facts->sequences, mics_job_run(job)->packing ? ", packed" : "",
           100 * (1 - (double)facts->sequence_tokens / places),
           100 * (double)facts->counted_tokens / (double)facts->kept_tokens);
    if (facts->chat_template != NULL)
        printf("; template of %s", facts->chat_template);
    if (facts->cut > 0)
        printf("; %lld are cut to data.sequence_length", (long long)facts->cut);
    if (facts->left_out > 0)
        printf("; %lld longer ones are left out", (long long)facts->left_out);
    if (facts->silent > 0)
        printf("; of %lld no token counts", (long long)facts->silent);
    printf("\n");
}

static void print_data(const mics_job *job, const mics_job_facts *facts)
{
    printf("data      %lld tokens (%s)", (long long)facts->train_tokens,
           facts->tokenizer != NULL ? facts->tokenizer : "shards of an unknown tokenizer");
    if (facts->validation_tokens > 0)
        printf(", validation on %lld more", (long long)facts->validation_tokens);
    else if (facts->held_out_windows > 0)
        printf(", %lld %s of them held out for validation", (long long)facts->held_out_windows,
               mics_run_sequences_each(mics_job_run(job)) > 1 ? "pairs"
               : facts->samples > 0                           ? "sequences"
                                                              : "windows");
    if (facts->sources == 0)
        print_epochs(facts->train_epochs, " in all");
    printf("\n");
    print_sources(job, facts);
    if (facts->samples > 0)
        print_samples(job, facts);
}

static void print_device(const mics_job_facts *facts)
{
    if (!facts->accelerator) {
        printf("device    cpu, %s%s%s%s%s\n", facts->numbers, facts->hint != NULL ? "; " : "",
               facts->hint != NULL ? facts->hint : "", facts->no_device != NULL ? "; no GPU: " : "",
               facts->no_device != NULL ? facts->no_device : "");
        return;
    }
    printf("device    cuda, %s; %d GPU%s on this machine: %s, %s", facts->numbers,
           (int)facts->devices, text_plural(facts->devices), facts->device_name,
           text_size((double)facts->device_memory_bytes).text);
    if (facts->ranks_here > facts->devices)
        printf(", shared by %d ranks%s", (int)facts->ranks_here,
               mics_nccl_may_share() ? "" : ", whose collectives go through the host's memory");
    printf("\n");
}

static void print_ranks(const mics_job *job, const mics_job_facts *facts)
{
    const mics_mesh *mesh = &mics_job_schedule(job)->spec.mesh;
    char name[64];
    printf("ranks     %d on %d node%s, %s: parameters over %d, gradients over %d, optimizer over "
           "%d; %s, %d thread%s each\n",
           (int)facts->ranks, (int)facts->nodes, text_plural(facts->nodes),
           mics_mesh_name(mesh, name, sizeof name), (int)mesh->sharding.params,
           (int)mesh->sharding.grads, (int)mesh->sharding.optimizer,
           facts->mpi ? "MPI processes" : "threads of this process", (int)facts->threads,
           text_plural(facts->threads));
}

// What "auto" brings and costs, where there was a choice.
static void print_layered(const mics_job *job, const mics_layered_choice *layered)
{
    const mics_schedule_spec *spec = &mics_job_schedule(job)->spec;
    if (!layered->automatic || spec->micro_steps == 1 ||
        spec->mesh.ranks == spec->mesh.ranks_per_node)
        return;
    printf("layered   %d micro-batch%s in flight (run.layered_micro_steps \"auto\"): ",
           (int)layered->number, layered->number == 1 ? "" : "es");
    if (layered->number == 1)
        printf("a second one takes %s, and the state of a rank %s\n",
               text_size((double)layered->each_bytes).text,
               text_size((double)layered->state_bytes).text);
    else if (layered->inter_bytes < layered->inter_bytes_of_one)
        printf("%s between nodes a step, not %s; ", text_size((double)layered->inter_bytes).text,
               text_size((double)layered->inter_bytes_of_one).text);
    else
        printf("the second hop overlaps with all their backwards; ");
    if (layered->number > 1)
        printf("%s more memory a rank\n", text_size((double)layered->more_bytes).text);
}

void cli_print_beginning(const mics_job *job)
{
    const mics_run *run = mics_job_run(job);
    const mics_model *model = mics_job_model(job);
    const mics_schedule *schedule = mics_job_schedule(job);
    const mics_job_facts facts = mics_job_facts_get(job);
    char replicas[400];
    printf("model     %s, %.2f million parameters, %d units (%s)\n", model->architecture,
           (double)mics_model_param_count(model) / 1e6, (int)model->unit_count, run->model_config);
    print_ranks(job, &facts);
    if (schedule->spec.mesh.islands > 1)
        printf("islands   %s\n", cli_islands_text(job, replicas, sizeof replicas));
    if (facts.ranks > 1)
        printf("replicas  %s\n", cli_replicas_text(job, replicas, sizeof replicas));
    print_device(&facts);
    printf("batch     %lld %s of %lld tokens a step: %d micro-step%s of %lld on %d rank%s",
           (long long)run->global_batch,
           mics_run_sequences_each(run) > 1 ? "pairs of sequences" : "sequences",
           (long long)mics_run_length(run, model->positions), (int)run->micro_steps,
           text_plural(run->micro_steps), (long long)run->micro_batch, (int)facts.ranks,
           text_plural(facts.ranks));
    if (run->sequence > 1)
        printf(", %d of them a sequence", (int)run->sequence);
    if (schedule->spec.layered_micro_steps > 1)
        printf(", layered %d at a time", (int)schedule->spec.layered_micro_steps);
    printf("\n");
    print_layered(job, &facts.layered);
    if (run->phase_count > 0)
        printf("phase     %d of %d: steps %lld to %lld\n", (int)run->phase + 1,
               (int)run->phase_count, (long long)run->phase_begin + 1,
               (long long)mics_run_phase_end(run));
    print_data(job, &facts);
    printf("memory    %s a rank\n", text_size((double)schedule->ledger.total).text);
    print_start(job, &facts);
    printf("\n");
    fflush(stdout);
}

// ---- after ----

// What is no character, or steers a terminal, becomes a point.
static void print_sample(const char *text, size_t bytes, FILE *out)
{
    fprintf(out, "  | ");
    for (size_t at = 0; at < bytes;) {
        const int32_t length = mics_utf8_char(text + at, bytes - at);
        if (text[at] == '\n')
            fprintf(out, "\n  | ");
        else if (length > 0 && !mics_terminal_is_control(text + at, length))
            fwrite(text + at, 1, (size_t)length, out);
        else
            fputc('.', out);
        at += length > 0 ? (size_t)length : 1;
    }
}

void cli_print_sample_of_step(mics_progress *progress, int64_t step, const char *text, size_t bytes)
{
    char *lines = NULL;
    size_t used = 0;
    FILE *out = open_memstream(&lines, &used);
    if (out == NULL)
        return; // samples.jsonl has it
    print_sample(text, bytes, out);
    fclose(out);
    mics_progress_note(progress, "after step %lld the model writes\n%s", (long long)step, lines);
    free(lines);
}

// A prompt for a model of chats names the tokens of its template.
static mics_status print_text(mics_saved *saved, const mics_run *run)
{
    const mics_sampling sampling = {.tokens = SAMPLE_TOKENS,
                                    .temperature = 0.8,
                                    .top_k = 40,
                                    .seed = run->seed,
                                    .special_tokens = run->rows};
    char *text = NULL;
    size_t bytes = 0;
    MICS_TRY(mics_saved_load(saved, mics_saved_facts_get(saved).dtype));
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return mics_fail(MICS_ERR_MEMORY, "no memory for a sample of text");
    const mics_status status = mics_saved_generate(saved, run->sample_prompt, &sampling, out);
    fclose(out);
    if (status == MICS_OK) {
        printf("\nwhat the model writes (temperature 0.8):\n");
        print_sample(text, bytes, stdout);
        printf("\n");
    }
    free(text);
    return status;
}

// Its frozen weights came from other nodes.
static bool lacks_base(const mics_job *job)
{
    const mics_model *model = mics_job_model(job);
    const char *init = mics_job_run(job)->model_init;
    return mics_model_trained_count(model) < mics_model_param_count(model) &&
           strcmp(init, "random") != 0 && !mics_file_is_there(init);
}

// The whole model in one process, so only where it is small beside the machine.
static mics_status sample(mics_memory *memory, const mics_job *job, const mics_job_facts *facts)
{
    mics_saved *saved = NULL;
    bool large = false;
    if (facts->tokenizer == NULL)
        return MICS_OK;
    if (lacks_base(job)) {
        printf("\n(no sample of text: %s is not there)\n", mics_job_run(job)->model_init);
        return MICS_OK;
    }
    MICS_TRY(mics_saved_open(memory, facts->checkpoints_dir, NULL, &saved));
    if (mics_saved_facts_get(saved).model->masked) { // it writes no text
        mics_saved_close(saved);
        return MICS_OK;
    }
    mics_status status = mics_saved_is_large(saved, &large);
    if (status == MICS_OK && large)
        printf("\n(no sample of text: the model is large beside this machine)\n");
    else if (status == MICS_OK)
        status = print_text(saved, mics_job_run(job));
    mics_saved_close(saved);
    return status;
}

static mics_status print_memory(const mics_job *job, const int64_t *measured)
{
    mics_compare_row rows[MICS_MEM_TAGS + 1];
    int32_t count = 0;
    const mics_memory_ledger *ledger = &mics_job_schedule(job)->ledger;
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

// Each rank has checked in each step that it sent what the schedule says, so the totals that are
// printed as measured are.
static mics_status print_bytes(const mics_job *job)
{
    const mics_schedule *schedule = mics_job_schedule(job);
    const mics_bytes sent = mics_schedule_all_bytes(schedule, MICS_PHASE_TRAIN);
    const mics_bytes met = mics_schedule_meeting_bytes(schedule);
    const mics_compare_row rows[] = {{"intra-node", sent.intra, sent.intra},
                                     {"inter-node", sent.inter, sent.inter},
                                     {"a period's meetings, intra-node", met.intra, met.intra},
                                     {"a period's meetings, inter-node", met.inter, met.inter}};
    if (mics_schedule_codes_any(schedule)) {
        printf("bytes sent in a step, all ranks together: at most %lld intra-node, %lld "
               "inter-node; what changes took is in metrics.jsonl\n",
               (long long)sent.intra, (long long)sent.inter);
        return MICS_OK;
    }
    return mics_compare_print(stdout, "bytes sent in a step, all ranks together", rows,
                              schedule->spec.mesh.islands > 1 ? 4 : 2);
}

// What reads the checkpoint: the best one's, where it is kept.
static void print_next(const mics_job *job, const mics_job_facts *facts)
{
    const bool masked = mics_job_schedule(job)->spec.model->masked;
    char name[32] = "best", path[4096], word[4200];
    if (facts->best_step == 0 || !mics_job_run(job)->keep_best)
        snprintf(name, sizeof name, "step-%08lld", (long long)facts->saved_step);
    snprintf(path, sizeof path, "%s/%s", facts->checkpoints_dir, name);
    printf("next      %s generate %s %s\n", program_invocation_name,
           mics_terminal_word(path, word, sizeof word),
           masked                    ? "--fill TEXT"
           : mics_job_run(job)->rows ? "--special-tokens --prompt TEXT"
                                     : "--prompt TEXT");
}

mics_status cli_print_end(mics_memory *memory, const mics_job *job)
{
    const mics_job_facts facts = mics_job_facts_get(job);
    const mics_run *run = mics_job_run(job);
    printf("\n");
    if (!isnan(facts.validation_first))
        printf("validation loss %.4f before, %.4f after step %lld\n", facts.validation_first,
               facts.validation_last, (long long)facts.step);
    if (facts.no_improvement)
        printf("ended     after step %lld of %lld: the validation loss has not improved in %lld "
               "validations (run.stop_after_no_improvement)\n",
               (long long)facts.step, (long long)run->steps,
               (long long)run->stop_after_no_improvement);
    if (facts.best_step > 0)
        printf("best      validation loss %.4f after step %lld%s%s%s\n", facts.best_loss,
               (long long)facts.best_step, run->keep_best ? ", which is kept: " : "",
               run->keep_best ? facts.checkpoints_dir : "", run->keep_best ? "/best names it" : "");
    else if (facts.no_improvement)
        printf("best      none: no validation loss is a number\n");
    MICS_TRY(sample(memory, job, &facts));
    printf("\n");
    MICS_TRY(print_memory(job, facts.peak_bytes));
    printf("\n");
    MICS_TRY(print_bytes(job));
    char out[4200];
    const bool bucket = mics_remote_is_bucket(facts.checkpoints_dir);
    printf("\nstored in %s: metrics.jsonl, resolved.json, %s%s (newest: step %lld)\n",
           mics_terminal_word(run->out, out, sizeof out), bucket ? "and in " : "checkpoints/",
           bucket ? facts.checkpoints_dir : "", (long long)facts.saved_step);
    printf("report    %s report %s\n", program_invocation_name,
           mics_terminal_word(run->out, out, sizeof out));
    if (facts.saved_step > 0)
        print_next(job, &facts);
    return MICS_OK;
}

void cli_print_end_json(const mics_job *job, const char *stopped)
{
    const mics_job_facts facts = mics_job_facts_get(job);
    const mics_run *run = mics_job_run(job);
    const bool best = facts.best_step > 0;
    char checkpoint[4096];
    printer r = {.json = true};
    snprintf(checkpoint, sizeof checkpoint, "%s/step-%08lld", facts.checkpoints_dir,
             (long long)facts.saved_step);
    PRINTER_OBJECT(&r, NULL, cell_int("step", facts.step), cell_int("steps", run->steps),
                   cell_int("start_step", facts.start_step), cell_int("ranks", facts.ranks),
                   cell_int("nodes", facts.nodes), cell_words("out", run->out),
                   cell_words("checkpoint", facts.saved_step > 0 ? checkpoint : NULL),
                   cell_words("resumed_from", facts.checkpoint), cell_words("stopped_by", stopped),
                   cell_flag("ended_early", facts.no_improvement),
                   cell_number("validation_loss_before", facts.validation_first),
                   cell_number("validation_loss", facts.validation_last),
                   best ? cell_int("best_step", facts.best_step) : cell_null("best_step"),
                   cell_number("best_validation_loss", best ? facts.best_loss : NAN),
                   cell_int("memory_peak_bytes", facts.peak_bytes[MICS_MEM_TAGS]));
}
