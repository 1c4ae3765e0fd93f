// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Saving a checkpoint.
//
// Ranks write straight into the step's folder, which counts for nothing until manifest.json is
// renamed into it. That one rename is the commit, on any file system, also when the step was saved
// before: the new rank files then have names of another generation, the old manifest lists the old
// files until the moment when the new one lists the new files, and neither is ever half there.
// (Writing a folder aside and renaming the folder would leave a moment without either, since a
// folder that is not empty cannot be renamed over.)
//
// Order, each step on disk before the next:
//   1. rank 0: folders; removes left-overs of failed saves, which may be what filled the disk.
//   2. each writer: its rank file aside, fsync, rename, fsync of the folder.
//   3. rank 0: reads all headers back and checks that the shards tile every unit; tokenizer.json,
//      config.json; fsync of the folder; manifest.json aside, fsync, read back, rename, fsync of
//      the folder; `latest` aside, fsync, rename, fsync; only then it removes what is no longer
//      needed.
// Only rank 0 commits, and only when every rank's file is on disk. Ranks agree on that between the
// parts (mics_checkpoint_save), or rank 0 looks for the files (mics_checkpoint_save_is_written): a
// file has its name only once it is on disk, and mics_checkpoint_clean has removed those of earlier
// saves. Files of a save that failed are listed nowhere, and will not be, so they can be removed.
#include "base/file.h"
#include "base/free.h"
#include "base/text.h"
#include "io/checkpoint/catalog.h"
#include "io/checkpoint/folder.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/rank_file.h"
#include "io/checkpoint/store.h"
#include "mics/core/checkpoint.h"
#include "mics/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

typedef struct mics_checkpoint_saving save_job;
struct mics_checkpoint_saving {
    mics_memory *memory;
    mics_checkpoint_writer writer_of, *writer;
    mics_checkpoint_meta meta_of, *meta;
    char *folder;       // dir/step-...
    int64_t generation; // -1: not found out yet
    bool committed;     // the manifest's rename was tried
    int32_t found;      // of a bucket: rank files that are there, those before
    // Rank 0 while it commits:
    mics_manifest manifest; // its arrays are the job's
    mics_ckpt_name *names;  // of the rank files
    mics_ckpt_name tokenizer_name;
    mics_catalog catalog;
};

static mics_status agree(const save_job *job, mics_status mine)
{
    const mics_checkpoint_writer *writer = job->writer;
    return writer->agree != NULL ? writer->agree(writer->agree_ctx, mine) : mine;
}

static mics_status check_arguments(const save_job *job)
{
    const mics_checkpoint_writer *writer = job->writer;
    const mics_checkpoint_meta *meta = job->meta;
    if (writer->dir == NULL || writer->dir[0] == '\0' || writer->rank < 0 || writer->writers < 1 ||
        writer->keep < 0)
        return mics_fail(MICS_ERR_INVALID,
                         "checkpoint: needs a folder, rank >= 0, writers >= 1 and keep >= 0; rank "
                         "is %d, writers %d, keep %d",
                         (int)writer->rank, (int)writer->writers, (int)writer->keep);
    if (meta->step < 0 || meta->samples < 0 || meta->model_json == NULL || meta->tokenizer == NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "checkpoint: needs step and samples that are not negative, the model's "
                         "config and a tokenizer");
    if (meta->precision == NULL || meta->optimizer == NULL || meta->sharding.params < 1 ||
        meta->sharding.grads < 1 || meta->sharding.optimizer < 1 || meta->layered_micro_steps < 1)
        return mics_fail(MICS_ERR_INVALID,
                         "checkpoint: needs precision, optimizer, sharding and layered micro-steps "
                         "as the run has them");
    const mics_checkpoint_outer *outer = &meta->outer;
    if (outer->islands > 1 && (outer->windows < 1 || outer->counted == NULL || outer->every < 1 ||
                               outer->fragments < 1 || outer->met < 0))
        return mics_fail(MICS_ERR_INVALID,
                         "checkpoint: of %d islands needs a period, and what counted in it",
                         (int)outer->islands);
    return MICS_OK;
}

static mics_status check_shards(const save_job *job, const mics_optimizer_shard *shards,
                                int32_t count)
{
    const mics_checkpoint_writer *writer = job->writer;
    if (writer->rank >= writer->writers && count != 0)
        return mics_fail(MICS_ERR_INVALID, "checkpoint: rank %d passes shards, but only %d write",
                         (int)writer->rank, (int)writer->writers);
    return mics_rank_file_check(shards, count);
}

static mics_status init(save_job *job)
{
    MICS_TRY(check_arguments(job));
    return mics_file_join(job->memory, job->writer->dir, mics_ckpt_step_name(job->meta->step).text,
                          &job->folder);
}

static mics_status prepare(save_job *job, const mics_optimizer_shard *shards, int32_t count)
{
    MICS_TRY(init(job));
    MICS_TRY(check_shards(job, shards, count));
    if (job->writer->rank != 0)
        return MICS_OK;
    MICS_TRY(mics_store_make_dirs(job->memory, job->writer->dir));
    MICS_TRY(mics_ckpt_remove_leftovers(job->memory, job->writer->dir, job->meta->step));
    return mics_store_make_dirs(job->memory, job->folder);
}

// Beside a damaged manifest lie files of a generation that nobody knows, and rank 0 must not take
// them for those of this save. All writers read the same bytes.
static mics_status generation_beside(mics_memory *memory, const char *path, int64_t *generation_out)
{
    enum { FIRST = 1000, MANY = 1000000 };
    char *text = NULL;
    size_t bytes = 0;
    MICS_TRY(mics_store_read_whole(memory, path, MICS_FILE_MAX_WHOLE, &text, &bytes));
    *generation_out = FIRST + (int64_t)(XXH3_64bits(text, bytes) % MANY);
    mics_free(memory, text);
    return MICS_OK;
}

// One more than the manifest's generation; 0 without a manifest. Only a manifest that is surely not
// there counts as none: the files of one that is there must not be written over.
static mics_status read_generation(mics_memory *memory, const char *path, int64_t *generation_out)
{
    mics_manifest manifest = {0};
    int64_t bytes = -1;
    *generation_out = 0;
    MICS_TRY(mics_store_length(path, &bytes));
    if (bytes < 0)
        return MICS_OK;
    mics_status status = mics_manifest_try_load(memory, path, &manifest);
    if (status == MICS_ERR_FORMAT) {
        mics_log(MICS_LOG_WARNING, "%s: is replaced", path);
        return generation_beside(memory, path, generation_out);
    }
    MICS_TRY(status);
    *generation_out = manifest.generation + 1;
    mics_manifest_fini(memory, &manifest);
    return MICS_OK;
}

// Every writer finds the same generation, because none commits before all have written.
static mics_status find_generation(save_job *job)
{
    char *path = NULL;
    int64_t generation = 0;
    MICS_TRY(mics_file_join(job->memory, job->folder, MICS_MANIFEST_NAME, &path));
    mics_status status = read_generation(job->memory, path, &generation);
    mics_free(job->memory, path);
    if (status == MICS_OK)
        job->generation = generation;
    return status;
}

// The name of a rank's file while it is written: one that nobody lists.
static mics_ckpt_name aside_name(int32_t rank, int64_t generation)
{
    mics_ckpt_name name = mics_ckpt_rank_name(rank, generation);
    snprintf(strrchr(name.text, '.'), sizeof MICS_RANK_FILE_PART, MICS_RANK_FILE_PART);
    return name;
}

static mics_status write_shards(save_job *job, const mics_optimizer_shard *shards, int32_t count)
{
    const mics_checkpoint_writer *writer = job->writer;
    const mics_rank_file_id id = {job->meta->step, writer->rank, writer->writers};
    char *path = NULL, *aside = NULL;
    mics_status status = MICS_OK;
    if (writer->rank >= writer->writers)
        return MICS_OK;
    MICS_TRY(find_generation(job));
    MICS_TRY_OUT(mics_file_join(job->memory, job->folder,
                                mics_ckpt_rank_name(writer->rank, job->generation).text, &path));
    if (mics_remote_is_bucket(path))
        MICS_TRY_OUT(mics_rank_file_write(job->memory, path, id, shards, count, &writer->listener));
    if (mics_remote_is_bucket(path))
        goto out;
    MICS_TRY_OUT(mics_file_join(job->memory, job->folder,
                                aside_name(writer->rank, job->generation).text, &aside));
    MICS_TRY_OUT(mics_rank_file_write(job->memory, aside, id, shards, count, &writer->listener));
    status = mics_file_rename(aside, path);
    if (status != MICS_OK)
        unlink(aside);
    // On a cluster's file system, another node's sync of the folder may not cover this one's file.
    // Rank 0 may have found it by then, so it stays also where that fails.
    if (status == MICS_OK)
        status = mics_file_sync_dir(job->folder);
out:
    mics_free(job->memory, aside);
    mics_free(job->memory, path);
    return status;
}

// ---- rank 0: the commit ----

static mics_status list_files(save_job *job)
{
    int32_t writers = job->writer->writers;
    mics_manifest *manifest = &job->manifest;
    MICS_TRY(MICS_NEW(job->memory, writers, &job->names));
    MICS_TRY(MICS_NEW(job->memory, writers, &manifest->files));
    manifest->file_count = writers;
    for (int32_t i = 0; i < writers; i++) {
        job->names[i] = mics_ckpt_rank_name(i, job->generation);
        manifest->files[i].name = job->names[i].text;
    }
    return MICS_OK;
}

// A file that its rank has written and that is not here lies on a disk of that rank's node.
static mics_status check_shared(const save_job *job, int32_t rank)
{
    char *path = NULL;
    int64_t bytes = -1;
    MICS_TRY(mics_file_join(job->memory, job->folder, job->names[rank].text, &path));
    mics_status status = mics_store_length(path, &bytes);
    if (status == MICS_OK && bytes < 0)
        status = mics_fail(MICS_ERR_IO,
                           "%s: rank %d has written it, but rank 0 does not find it; checkpoints "
                           "need a file system that all nodes share, or a bucket "
                           "(run.checkpoint_dir)",
                           path, (int)rank);
    mics_free(job->memory, path);
    return status;
}

// Reads back what all ranks wrote, and describes it in the manifest.
static mics_status describe(save_job *job)
{
    mics_manifest *manifest = &job->manifest;
    mics_catalog *catalog = &job->catalog;
    manifest->meta = *job->meta;
    MICS_TRY(list_files(job));
    for (int32_t i = 0; i < manifest->file_count; i++)
        MICS_TRY(check_shared(job, i));
    MICS_TRY(mics_catalog_load(job->memory, job->folder, manifest, job->meta->step, catalog));
    for (int32_t i = 0; i < manifest->file_count; i++) {
        manifest->files[i].bytes = catalog->files[i].file_bytes;
        manifest->files[i].hash = catalog->files[i].header_hash;
    }
    MICS_TRY(MICS_NEW(job->memory, catalog->unit_count, &manifest->units));
    manifest->unit_count = catalog->unit_count;
    for (int32_t i = 0; i < catalog->unit_count; i++)
        manifest->units[i] = (mics_manifest_unit){catalog->units[i].name, catalog->units[i].elems};
    manifest->generation = job->generation;
    mics_ckpt_newest_found newest;
    MICS_TRY(mics_ckpt_newest(job->memory, job->writer->dir, &newest));
    manifest->serial = newest.serial + 1;
    return MICS_OK;
}

static mics_status store_tokenizer_text(save_job *job, const char *text, size_t bytes)
{
    job->tokenizer_name = mics_ckpt_tokenizer_name(job->generation);
    job->manifest.tokenizer =
        (mics_manifest_file){job->tokenizer_name.text, (int64_t)bytes, XXH3_64bits(text, bytes)};
    return mics_store_replace(job->memory, job->folder, job->tokenizer_name.text, text, bytes);
}

static mics_status store_tokenizer(save_job *job)
{
    const mics_checkpoint_meta *meta = job->meta;
    if (strcmp(meta->tokenizer, "bytes") == 0)
        return MICS_OK;
    if (meta->tokenizer_text != NULL)
        return store_tokenizer_text(job, meta->tokenizer_text, meta->tokenizer_bytes);
    char *text = NULL;
    size_t bytes = 0;
    MICS_TRY(
        mics_file_read_whole(job->memory, meta->tokenizer, MICS_FILE_MAX_WHOLE, &text, &bytes));
    mics_status status = store_tokenizer_text(job, text, bytes);
    mics_free(job->memory, text);
    return status;
}

// Writes the manifest aside, reads it back as a later start will, and only then lets it count.
static mics_status rename_manifest(save_job *job, const mics_text *text)
{
    mics_memory *memory = job->memory;
    mics_manifest check = {0};
    if (mics_remote_is_bucket(job->folder)) {
        job->committed = true;
        return mics_store_replace(memory, job->folder, MICS_MANIFEST_NAME, text->bytes, text->used);
    }
    mics_file_aside aside = {0};
    char *target = NULL;
    int fd = -1;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_file_join(memory, job->folder, MICS_MANIFEST_NAME, &target));
    MICS_TRY_OUT(mics_file_begin_aside(memory, target, (int64_t)text->used, &aside, &fd));
    status = mics_file_write_at(fd, aside.path, text->bytes, text->used, 0);
    MICS_TRY_OUT(mics_file_close_written(fd, aside.path, status));
    MICS_TRY_OUT(mics_manifest_load(memory, aside.path, &check));
    job->committed = true;
    status = mics_file_place(memory, &aside, target);
out:
    mics_file_drop(memory, &aside);
    mics_manifest_fini(memory, &check);
    mics_free(memory, target);
    return status;
}

static mics_status store_manifest(save_job *job)
{
    mics_text text = {.memory = job->memory};
    mics_manifest_write(&job->manifest, &text);
    mics_status status = mics_text_status(&text);
    if (status == MICS_OK)
        status = rename_manifest(job, &text);
    mics_text_fini(&text);
    return status;
}

static mics_status store_name(mics_memory *memory, const char *dir, const char *name, int64_t step)
{
    mics_text text = {.memory = memory};
    mics_text_printf(&text, "%s\n", mics_ckpt_step_name(step).text);
    mics_status status = mics_text_status(&text);
    if (status == MICS_OK)
        status = mics_store_replace(memory, dir, name, text.bytes, text.used);
    mics_text_fini(&text);
    MICS_TRY(status);
    return mics_store_sync_dir(dir);
}

mics_status mics_checkpoint_name_best(mics_memory *memory, const char *dir, int64_t step)
{
    char *path = NULL;
    if (step >= 0)
        return store_name(memory, dir, MICS_BEST_NAME, step);
    MICS_TRY(mics_file_join(memory, dir, MICS_BEST_NAME, &path));
    const mics_status status = mics_store_remove(path);
    mics_free(memory, path);
    return status;
}

// Removes what is no longer needed. The checkpoint is on disk: nothing here can fail the save.
static void tidy(const save_job *job)
{
    const mics_checkpoint_writer *writer = job->writer;
    bool before = mics_log_demote(true);
    mics_ckpt_remove_unlisted(job->memory, job->folder, &job->manifest, true);
    if (writer->keep > 0 && mics_ckpt_prune(job->memory, writer->dir, writer->keep, job->meta->step,
                                            INT64_MAX) != MICS_OK)
        mics_log(MICS_LOG_WARNING, "%s: old checkpoints were not removed", writer->dir);
    mics_log_demote(before);
}

static mics_status commit(save_job *job)
{
    if (job->writer->rank != 0)
        return MICS_OK;
    MICS_TRY(describe(job));
    MICS_TRY(store_tokenizer(job));
    MICS_TRY(mics_store_replace(job->memory, job->folder, "config.json", job->meta->model_json,
                                strlen(job->meta->model_json)));
    MICS_TRY(mics_store_sync_dir(job->folder));
    MICS_TRY(store_manifest(job));
    MICS_TRY(mics_store_sync_dir(job->folder));
    MICS_TRY(store_name(job->memory, job->writer->dir, MICS_LATEST_NAME, job->meta->step));
    tidy(job);
    return MICS_OK;
}

// Returns: false: it cannot be removed now.
static bool discard_file(const save_job *job, const char *name)
{
    char *path = NULL;
    if (mics_file_join(job->memory, job->folder, name, &path) != MICS_OK)
        return false;
    const bool bucket = mics_remote_is_bucket(path), muted = mics_log_mute(!bucket);
    const bool before = mics_log_demote(true);
    const mics_status status =
        bucket ? remote_s3_remove(path, "it is left there until a later save or start removes it")
               : mics_store_remove(path);
    mics_log_demote(before);
    mics_log_mute(muted);
    mics_free(job->memory, path);
    return status == MICS_OK;
}

// Rank 0 removes what a failed save left of itself. A file of another rank that comes later, and what
// cannot be removed, goes with the next save. No other rank removes its file: rank 0 may have found it,
// and be about to list it. A bucket that does not answer is asked once: the other ranks wait.
static void discard(const save_job *job)
{
    const bool bucket = mics_remote_is_bucket(job->folder);
    if (job->writer->rank != 0)
        return;
    for (int32_t i = 0; i < job->writer->writers; i++) {
        if (!bucket)
            (void)discard_file(job, aside_name(i, job->generation).text);
        if (!discard_file(job, mics_ckpt_rank_name(i, job->generation).text) && bucket)
            return;
    }
    (void)discard_file(job, mics_ckpt_tokenizer_name(job->generation).text);
    if (job->generation == 0)
        (void)discard_file(job, "config.json");
    rmdir(job->folder);
}

static void job_fini(save_job *job)
{
    mics_memory *memory = job->memory;
    mics_catalog_fini(memory, &job->catalog);
    MICS_FREE_ALL(memory, job->manifest.files, job->manifest.units, job->names, job->folder);
}

static save_job job_of(mics_memory *memory, const mics_checkpoint_writer *writer,
                       const mics_checkpoint_meta *meta)
{
    return (save_job){.memory = memory, .writer_of = *writer, .meta_of = *meta, .generation = -1};
}

// What the job points to moves with it.
static void job_settle(save_job *job)
{
    job->writer = &job->writer_of;
    job->meta = &job->meta_of;
}

mics_status mics_checkpoint_save(mics_memory *memory, const mics_checkpoint_writer *writer,
                                 const mics_checkpoint_meta *meta,
                                 const mics_optimizer_shard *shards, int32_t count)
{
    save_job job = job_of(memory, writer, meta);
    job_settle(&job);
    mics_status status = agree(&job, prepare(&job, shards, count));
    if (status == MICS_OK)
        status = agree(&job, write_shards(&job, shards, count));
    if (status == MICS_OK)
        status = agree(&job, commit(&job));
    if (status != MICS_OK && writer->rank == 0 && job.generation >= 0 && !job.committed)
        discard(&job);
    job_fini(&job);
    return status;
}

// ---- in parts ----

mics_status mics_checkpoint_clean(mics_memory *memory, const char *dir)
{
    return mics_ckpt_clean(memory, dir);
}

mics_status mics_checkpoint_save_open(mics_memory *memory, const mics_checkpoint_writer *writer,
                                      const mics_checkpoint_meta *meta,
                                      mics_checkpoint_saving **saving_out)
{
    save_job *job = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &job));
    *job = job_of(memory, writer, meta);
    job_settle(job);
    mics_status status = init(job);
    if (status == MICS_OK)
        status = mics_store_make_dirs(memory, job->folder);
    if (status == MICS_OK) {
        *saving_out = job;
        return MICS_OK;
    }
    job_fini(job);
    mics_free(memory, job);
    return status;
}

mics_status mics_checkpoint_save_write(mics_checkpoint_saving *saving,
                                       const mics_optimizer_shard *shards, int32_t count)
{
    MICS_TRY(check_shards(saving, shards, count));
    return write_shards(saving, shards, count);
}

// Those found once are not asked for again.
static bool has_objects(mics_checkpoint_saving *saving)
{
    const bool muted = mics_log_mute(true);
    char *path = NULL;
    int64_t bytes = 0;
    while (bytes >= 0 && saving->found < saving->writer->writers &&
           mics_file_join(saving->memory, saving->folder,
                          mics_ckpt_rank_name(saving->found, saving->generation).text,
                          &path) == MICS_OK) {
        if (mics_store_length(path, &bytes) != MICS_OK)
            bytes = -1;
        saving->found += bytes >= 0;
        mics_free(saving->memory, path);
    }
    mics_log_mute(muted);
    return saving->found == saving->writer->writers;
}

// Opened, the folder is read anew over a network: a client may remember that a file was missing.
bool mics_checkpoint_save_is_written(mics_checkpoint_saving *saving)
{
    if (mics_remote_is_bucket(saving->folder))
        return saving->generation >= 0 && has_objects(saving);
    const int fd = open(saving->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool all = fd >= 0 && saving->generation >= 0;
    for (int32_t i = 0; all && i < saving->writer->writers; i++)
        all = faccessat(fd, mics_ckpt_rank_name(i, saving->generation).text, F_OK, 0) == 0;
    if (fd >= 0)
        close(fd);
    return all;
}

mics_status mics_checkpoint_save_commit(mics_checkpoint_saving *saving)
{
    return commit(saving);
}

// `latest` is what a commit writes last.
bool mics_checkpoint_save_is_committed(const mics_checkpoint_saving *saving)
{
    enum { MAX_BYTES = 256 };
    char *path = NULL, *manifest = NULL, *latest = NULL;
    const mics_ckpt_name name = mics_ckpt_step_name(saving->meta->step);
    size_t bytes = 0;
    int64_t next = 0;
    const bool muted = mics_log_mute(true);
    mics_status status =
        mics_file_join(saving->memory, saving->writer->dir, MICS_LATEST_NAME, &path);
    if (status == MICS_OK)
        status = mics_store_read_whole(saving->memory, path, MAX_BYTES, &latest, &bytes);
    if (status == MICS_OK && (strncmp(latest, name.text, strlen(name.text)) != 0))
        status = MICS_ERR_IO; // it names another step
    if (status == MICS_OK)
        status = mics_file_join(saving->memory, saving->folder, MICS_MANIFEST_NAME, &manifest);
    if (status == MICS_OK)
        status = read_generation(saving->memory, manifest, &next);
    mics_log_mute(muted);
    MICS_FREE_ALL(saving->memory, path, latest, manifest);
    return status == MICS_OK && next > saving->generation;
}

void mics_checkpoint_save_close(mics_checkpoint_saving *saving, bool failed)
{
    if (saving == NULL)
        return;
    if (failed && saving->generation >= 0 && !saving->committed)
        discard(saving);
    mics_memory *memory = saving->memory;
    job_fini(saving);
    mics_free(memory, saving);
}

// A run that went back comes to later steps again. Other ranks may be saving one by now, in the folder
// of what was saved there before.
mics_status mics_checkpoint_prune(mics_memory *memory, const char *dir, int32_t keep, int64_t step)
{
    return keep > 0 ? mics_ckpt_prune(memory, dir, keep, step, step) : MICS_OK;
}
