// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Opening and closing what a process' ranks share.
#include "job.h"
#include "base/file.h"
#include "base/free.h"
#include "base/text.h"
#include "io/data/chats.h"
#include "mics/log.h"
#include "rows.h"
#include "run/followers/best.h"
#include "run/model.h"
#include "run/model_files.h"
#include "run/ranks/gpu.h"
#include "run/run_json.h"
#include "run/run_schedule.h"
#include "run/save/base.h"
#include "run/save/import.h"
#include "run/save/resume.h"
#include "run/save/saved.h"
#include "share.h"
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

mics_status run_job_open_model(mics_job *job, int32_t ranks, int32_t nodes, int32_t ranks_here,
                               size_t staging_bytes)
{
    mics_run *run = job->run;
    MICS_TRY(mics_run_resolve(run, ranks, nodes));
    MICS_TRY(run_rows_settle(job->memory, run));
    MICS_TRY(run_best_check(run));
    MICS_TRY(run_job_build_model(job));
    const run_accelerator accelerator = run_gpu_accelerator(run);
    MICS_TRY(run_budget_read(run, ranks, nodes, ranks_here, &accelerator, &job->budget));
    // What a transport holds on the host is not of the GPU's memory.
    job->budget.staging_bytes = accelerator.used ? 0 : staging_bytes;
    return MICS_OK;
}

mics_status run_job_open_schedule(mics_job *job)
{
    MICS_TRY(run_schedule_open(job->memory, job->run, job->model, &job->budget, &job->schedule,
                               &job->layered));
    const int32_t states = mics_optimizer_def_get(job->run->optimizer.kind)->states;
    job->save_copy_bytes = run_share_copy_bytes(job->schedule, states);
    job->saves_behind = run_saves_behind(job->run) &&
                        run_fits_save_copy(job->schedule, &job->budget, job->save_copy_bytes);
    return MICS_OK;
}

// ---- data ----

static bool only_shards(const mics_run *run)
{
    bool shards = true;
    for (int32_t i = 0; i < run->train_count; i++)
        shards = shards && run_is_shard(run->train[i]);
    for (int32_t i = 0; i < run->validation_count; i++)
        shards = shards && run_is_shard(run->validation[i]);
    return shards;
}

// A program's default holds where the tokenizer puts something around a text.
static void settle_frame(mics_job *job)
{
    mics_token_frame frame = {0};
    char folder[MICS_FOLDER_BYTES];
    mics_run_folder_of(job->run->tokenizer, folder);
    if (job->world->first == 0)
        run_warn_of_frame(job->memory, folder, job->tokenizer);
    const bool before =
        mics_log_demote(true); // why there is none, where it asks for what is not known
    if (job->tokenizer == NULL || mics_tokenizer_frame(job->tokenizer, &frame) != MICS_OK ||
        frame.before_count + frame.after_count == 0)
        job->run->add_special_tokens = false;
    mics_log_demote(before);
}

// Of a folder's weights, by whatever other file tells what its tokens are.
static const char *other_tokenizer(mics_memory *memory, const char *folder)
{
    static const char *const names[] = {"tekken.json", "tokenizer.model", "spiece.model",
                                        "vocab.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = NULL;
        const bool there =
            mics_file_join(memory, folder, names[i], &path) == MICS_OK && access(path, F_OK) == 0;
        mics_free(memory, path);
        if (there)
            return names[i];
    }
    return NULL;
}

// The folder whose model texts are for, where its weights or its vocabulary were made with another
// tokenizer than bytes; "": there is none. A model of exactly 256 tokens may be one of bytes.
static void find_pretrained(const mics_job *job, char folder[MICS_FOLDER_BYTES])
{
    enum { BYTES = 256 };
    const mics_run *run = job->run;
    const bool random = strcmp(run->model_init, "random") == 0;
    if (!random)
        snprintf(folder, MICS_FOLDER_BYTES, "%s", run->model_init);
    else
        mics_run_folder_of(run->model_config, folder);
    if (random && (!run->weights_beside || job->model->vocab == BYTES))
        folder[0] = '\0';
}

// "bytes" is the default of new models, and what somebody may ask for.
static mics_status check_bytes(const mics_job *job)
{
    char folder[MICS_FOLDER_BYTES];
    find_pretrained(job, folder);
    if (folder[0] == '\0')
        return MICS_OK;
    const char *other = other_tokenizer(job->memory, folder);
    return mics_json_fail(
        job->run->json, "data.tokenizer", MICS_ERR_INVALID,
        "is missing, and %s has weights but no tokenizer.json%s%s%s, so nobody knows which tokens "
        "its "
        "texts are; make one: python -c \"from transformers import AutoTokenizer as T; "
        "T.from_pretrained('%s').save_pretrained('OUT')\", and give --tokenizer OUT; --tokenizer "
        "bytes trains it on bytes",
        folder, other != NULL ? " (it has " : "", other != NULL ? other : "",
        other != NULL ? ")" : "", folder);
}

// A tokenizer that a folder brought along and that no data need: for what is written of the model.
static mics_status take_along(mics_job *job)
{
    mics_run *run = job->run;
    const bool demoted = mics_log_demote(true);
    const mics_status status = mics_tokenizer_open(job->memory, run->tokenizer, &job->tokenizer);
    mics_log_demote(demoted);
    if (status == MICS_ERR_MEMORY)
        return status;
    if (status == MICS_OK && mics_tokenizer_vocab(job->tokenizer) <= job->model->vocab)
        return MICS_OK;
    mics_log(MICS_LOG_WARNING, "%s: is passed over%s; no texts are written of this run",
             run->tokenizer, status == MICS_OK ? ", as it has more tokens than the model" : "");
    mics_tokenizer_close(job->tokenizer);
    job->tokenizer = NULL;
    run->tokenizer = "bytes";
    return MICS_OK;
}

mics_status run_job_find_bytes(mics_job *job, bool *exported_out)
{
    const mics_run *run = job->run;
    *exported_out = false;
    if (run->tokenizer_open && strcmp(run->tokenizer, "bytes") != 0)
        MICS_TRY(run_is_byte_tokenizer(job->memory, run->tokenizer, exported_out));
    job->run->tokenizer = *exported_out ? "bytes" : run->tokenizer;
    return MICS_OK;
}

static mics_status open_tokenizer(mics_job *job)
{
    const mics_run *run = job->run;
    const bool shards = only_shards(run);
    const bool bytes = strcmp(run->tokenizer, "bytes") == 0;
    bool exported = false;
    MICS_TRY(run_job_find_bytes(job, &exported));
    if (run->special_tokens_open && (shards || job->model->masked))
        job->run->add_special_tokens = false;
    if (shards && run->add_special_tokens)
        return mics_json_fail(run->json, "data.add_special_tokens", MICS_ERR_INVALID,
                              "all data are token shards, which are taken as they are; \"mics "
                              "tokenize --add-special-tokens\" makes such ones");
    if (run_tokens_unknown(run->tokenizer, shards, job->model->vocab))
        return MICS_OK; // nothing is read or written as text
    if (run->tokenizer_open && shards && !bytes && !exported)
        return take_along(job);
    if (run->tokenizer_open && !shards && bytes)
        MICS_TRY(check_bytes(job));
    MICS_TRY(mics_tokenizer_open(job->memory, run->tokenizer, &job->tokenizer));
    if (run->special_tokens_open)
        settle_frame(job);
    if (run->add_special_tokens)
        MICS_TRY(mics_tokenizer_frame_texts(job->tokenizer, "data.add_special_tokens"));
    int32_t vocab = mics_tokenizer_vocab(job->tokenizer);
    if (vocab <= job->model->vocab)
        return MICS_OK;
    return mics_json_fail(run->json, "data.tokenizer", MICS_ERR_INVALID,
                          "%s has %d tokens, but the model's vocab_size is %lld (%s); take a "
                          "model with as many, another tokenizer, or token shards (.bin) alone",
                          run->tokenizer, (int)vocab, (long long)job->model->vocab,
                          run->model_config);
}

static mics_status open_masking(mics_job *job)
{
    const mics_run *run = job->run;
    if (!job->model->masked)
        return MICS_OK;
    if (run->add_special_tokens)
        return mics_json_fail(run->json, "data.add_special_tokens", MICS_ERR_INVALID,
                              "is of no use for %s: its samples stand between the tokenizer's "
                              "special tokens already; leave the key out",
                              run->model_config);
    if (run->sample_every > 0)
        return mics_json_fail(run->json, "run.sample_every", MICS_ERR_INVALID,
                              "%s is an encoder, which writes no text; leave the key out",
                              run->model_config);
    return run_masking_init(job->memory, job->tokenizer, "data.tokenizer", &job->masking);
}

static mics_status open_chats(mics_job *job)
{
    const mics_run *run = job->run;
    if (run->rows && job->model->masked)
        return mics_json_fail(run->json, "data.train", MICS_ERR_UNSUPPORTED,
                              "%s has chats, and %s is an encoder, which continues no text; a "
                              "field of texts is named by data.text_field",
                              run->train[0], run->model_config);
    return run_rows_open(job->memory, run, job->tokenizer, &job->chats);
}

// Folders of shards, which are not known as such by their names: "bytes" is then only a default.
static mics_status check_texts(const mics_job *job)
{
    const int64_t texts = mics_corpus_texts(job->train) +
                          (job->validation != NULL ? mics_corpus_texts(job->validation) : 0);
    if (job->tokenizer == NULL ||
        !run_tokens_unknown(job->run->tokenizer, texts == 0, job->model->vocab))
        return MICS_OK;
    return mics_json_fail(job->run->json, "data.tokenizer", MICS_ERR_INVALID,
                          "is \"bytes\", but all data are token shards; name the tokenizer.json "
                          "that they were made with, or the files themselves, as FOLDER/*.bin");
}

// The token that documents begin with, where attention stays within them; else any.
static mics_status find_document(const mics_job *job, int32_t *token_out)
{
    static const char key[] = "data.document_mask";
    const mics_run *run = job->run;
    *token_out = 0;
    if (!run->document_mask)
        return MICS_OK;
    if (job->tokenizer == NULL)
        return mics_json_fail(run->json, key, MICS_ERR_INVALID,
                              "all data are token shards, and nobody knows which token stands "
                              "between documents; name the tokenizer.json that they were made with "
                              "in data.tokenizer");
    *token_out = mics_tokenizer_document(job->tokenizer);
    if (*token_out >= 0)
        return MICS_OK;
    return mics_json_fail(run->json, key, MICS_ERR_INVALID,
                          "%s has no token that stands between documents (<|endoftext|>, "
                          "<|end_of_text|>, </s> or <eos>); take another tokenizer, or leave "
                          "data.document_mask out",
                          run->tokenizer);
}

// Where a text ends, and another begins, is then nowhere in the stream.
static void log_no_separator(const mics_job *job, int64_t texts)
{
    const mics_run *run = job->run;
    if (texts > 0 && job->world->first == 0 && !job->model->masked && !run->add_special_tokens &&
        mics_tokenizer_separator(job->tokenizer) < 0)
        mics_log(MICS_LOG_INFO,
                 "%s has no token that stands between texts (<|endoftext|>, <|end_of_text|>, </s> "
                 "or <eos>), so they follow one another; \"data.add_special_tokens\": true puts "
                 "what its post_processor has around each",
                 run->tokenizer);
}

// Each source on its own: among others nobody would notice that the mask hides nothing there.
static mics_status check_documents(const mics_job *job, const char *const *paths, int32_t count,
                                   const mics_corpus *corpus, int32_t token)
{
    const mics_run *run = job->run;
    for (int32_t i = 0; i < count && run->document_mask && corpus != NULL; i++) {
        int64_t begin = 0, tokens = 0;
        mics_corpus_source(corpus, i, &begin, &tokens);
        if (tokens > 0 && mics_corpus_counted(corpus, i) == 0)
            return mics_json_fail(run->json, "data.document_mask", MICS_ERR_INVALID,
                                  "%s has no documents: token %d of %s, which begins one, is "
                                  "nowhere among its %lld tokens; make the shards with it between "
                                  "documents (mics tokenize %s --add-special-tokens), or leave "
                                  "data.document_mask out",
                                  paths[i], (int)token, run->tokenizer, (long long)tokens,
                                  run->add_special_tokens ? "with" : "without");
    }
    return MICS_OK;
}

static mics_status divide(mics_job *job, int32_t document)
{
    const mics_run *run = job->run;
    const run_sources sources = {run->train, run->train_weights, run->train_count};
    if (job->chats != NULL)
        return run_samples_divide_chats(job->memory, run, job->train, job->validation,
                                        run_job_sequence(job), run->validation_batches > 0,
                                        &job->train_samples, &job->validation_samples);
    MICS_TRY(check_documents(job, run->train, run->train_count, job->train, document));
    MICS_TRY(
        check_documents(job, run->validation, run->validation_count, job->validation, document));
    MICS_TRY(run_samples_divide(job->memory, &sources, job->train, job->validation,
                                job->model->masked ? &job->masking : NULL, run->seed,
                                run_job_sequence(job), run->validation_batches > 0,
                                &job->train_samples, &job->validation_samples));
    job->train_samples.document = job->validation_samples.document = document;
    return MICS_OK;
}

static mics_status open_corpora(mics_job *job)
{
    const mics_run *run = job->run;
    char *cache = NULL;
    int32_t document = 0;
    MICS_TRY(find_document(job, &document));
    MICS_TRY(mics_file_join(job->memory, run->out, "cache", &cache));
    mics_corpus_spec spec = {.patterns = run->train,
                             .pattern_count = run->train_count,
                             .vocab = (int32_t)job->model->vocab,
                             .tokenizer = job->tokenizer,
                             .cache_dir = cache,
                             .chats = job->chats,
                             .sequence = run_job_sequence(job),
                             .text_field = run->text_field,
                             .special_tokens = strcmp(run->special_tokens, "parse") == 0,
                             .skip_bad_lines = run->skip_bad_lines,
                             .dtype = strcmp(run->data_dtype, "none") != 0 ? run->data_dtype : NULL,
                             .threads = run->threads * job->world->ranks_here,
                             .counted = document};
    mics_status status = mics_corpus_open(job->memory, &spec, &job->train);
    spec.patterns = run->validation;
    spec.pattern_count = run->validation_count;
    if (status == MICS_OK && run->validation_count > 0 && run->validation_batches > 0)
        status = mics_corpus_open(job->memory, &spec, &job->validation);
    mics_free(job->memory, cache);
    MICS_TRY(status);
    MICS_TRY(check_texts(job));
    if (job->chats == NULL)
        log_no_separator(job, mics_corpus_texts(job->train));
    return divide(job, document);
}

// A run that goes on can have its frozen weights from ranks of other nodes. One that lacks references
// begins once more.
static mics_status open_import(mics_job *job)
{
    const char *init = job->run->model_init, *adapter = job->run->adapter_init;
    const bool random = strcmp(init, "random") == 0;
    const bool goes_on = job->checkpoint != NULL && job->references.lacking_count == 0;
    const bool elsewhere = goes_on && job->world->mpi && !mics_file_is_there(init);
    if (!random && (!goes_on || (run_base_is_frozen(job->model) && !elsewhere)))
        MICS_TRY(run_import_open(job->memory, job->model, init, &job->import));
    return !goes_on && job->run->lora.rank > 0 && strcmp(adapter, "none") != 0
               ? run_import_open_adapter(job->memory, job->model, adapter, &job->adapter)
               : MICS_OK;
}

// From the start on: the folder may change, and be missing where the run is exported. What stands beside
// a file that is not called as in such folders belongs to others.
static mics_status read_model_files(mics_job *job)
{
    const mics_run *run = job->run;
    const bool weights = strcmp(run->model_init, "random") != 0,
               bytes = strcmp(run->tokenizer, "bytes") == 0;
    const bool tokens = bytes ? weights && run->tokenizer_open
                              : mics_text_ends(run->tokenizer, "tokenizer.json") ||
                                    mics_text_ends(run->tokenizer, "vocab.txt");
    char of_tokens[MICS_FOLDER_BYTES], of_weights[MICS_FOLDER_BYTES];
    const char *jinja = mics_chats_template_asked(job->chats);
    const char *kept =
        job->checkpoint != NULL ? mics_checkpoint_meta_get(job->checkpoint)->model_files : NULL;
    if (kept != NULL && jinja == NULL)
        return MICS_OK;
    if (kept != NULL)
        return run_model_files_change(job->memory, job->checkpoint_path, kept, jinja,
                                      &job->model_files);
    mics_run_folder_of(bytes ? run->model_init : run->tokenizer, of_tokens);
    mics_run_folder_of(run->model_init, of_weights);
    const bool muted = mics_log_mute(job->world->first != 0); // the first process tells
    const run_model_folders from = {.tokens = tokens ? of_tokens : NULL,
                                    .weights = weights ? of_weights : NULL,
                                    .chat_template = jinja,
                                    .vocabulary = job->tokenizer == NULL};
    const mics_status status = run_model_files_read(job->memory, &from, true, &job->model_files);
    mics_log_mute(muted);
    return status;
}

mics_status run_job_write_resolved(mics_job *job)
{
    const char *out = job->run->out;
    mics_free(job->memory, job->run_json);
    job->run_json = NULL;
    MICS_TRY(run_run_text(job->memory, job->run, &job->run_json));
    if (job->world->first != 0 || job->finished)
        return MICS_OK;
    MICS_TRY(
        mics_file_replace(job->memory, out, "resolved.json", job->run_json, strlen(job->run_json)));
    MICS_TRY(run_job_write_about(job));
    return mics_file_sync_dir(out);
}

static run_folder_role role_of(const run_world *world)
{
    if (!world->mpi)
        return RUN_FOLDER_ALONE;
    return world->first == 0 ? RUN_FOLDER_FIRST : RUN_FOLDER_OTHER;
}

mics_status run_job_open_data(mics_job *job)
{
    MICS_TRY(mics_run_check_files(job->run, job->checkpoint != NULL));
    MICS_TRY(open_tokenizer(job));
    MICS_TRY(open_masking(job));
    MICS_TRY(open_chats(job));
    MICS_TRY(run_folder_lock(job->memory, job->run->out, role_of(job->world),
                             job->newest_path != NULL, &job->out));
    MICS_TRY(open_corpora(job));
    MICS_TRY(mics_run_resolve_epochs(job->run, job->train_samples.windows));
    MICS_TRY(run_job_resume(job));
    if (job->checkpoint == NULL)
        MICS_TRY(open_import(job));
    MICS_TRY(run_references_open(job));
    if (job->checkpoint != NULL)
        MICS_TRY(open_import(job));
    return read_model_files(job);
}

void run_job_close_parts(mics_job *job)
{
    run_folder_unlock(&job->out);
    mics_safetensors_close(job->import);
    mics_safetensors_close(job->adapter);
    mics_checkpoint_close(job->checkpoint);
    run_references_close(job);
    run_samples_fini(job->memory, &job->train_samples);
    run_samples_fini(job->memory, &job->validation_samples);
    mics_corpus_close(job->validation);
    mics_corpus_close(job->train);
    mics_chats_close(job->chats);
    run_masking_fini(&job->masking);
    mics_tokenizer_close(job->tokenizer);
    mics_schedule_close(job->schedule);
    mics_model_close(job->model);
    mics_json_close(job->config);
    MICS_FREE_ALL(job->memory, job->run_json, job->checkpoint_path, job->newest_path,
                  job->model_files);
    mics_json_close(job->passed_run);
    for (int32_t i = 0; i < job->passed_count; i++)
        mics_free(job->memory, job->passed_why[i]);
    MICS_FREE_ALL(job->memory, job->passed_why, job->passed, job->checkpoints_dir,
                  job->quarantine_dir);
    job->import = NULL;
    job->adapter = NULL;
    job->checkpoint = NULL;
    job->train = job->validation = NULL;
    job->tokenizer = NULL;
    job->chats = NULL;
    job->schedule = NULL;
    job->model = NULL;
    job->config = NULL;
    job->passed_run = NULL;
    job->run_json = job->checkpoint_path = job->newest_path = job->model_files = NULL;
    job->checkpoints_dir = job->quarantine_dir = NULL;
    job->passed_why = NULL;
    job->passed = NULL;
    job->passed_count = 0;
    job->masking = (run_masking){0};
}
