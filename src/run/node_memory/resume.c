// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Going on from copies in node memory: what all processes together have of the newest, and a
// checkpoint folder that stands for it on each node.
//
// Every process learns every other's findings, so all decide alike. A process answers for the files
// whose number modulo the processes of its node is its own: so each is hashed once on a node. A file
// that one process fails to read counts as not found; nobody waits for it.
#include "run/save/resume.h"
#include "base/file.h"
#include "base/free.h"
#include "found.h"
#include "io/checkpoint/node.h"
#include "mics/log.h"
#include "node_memory.h"
#include "run/identity.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_KEYS = 8,     // copies that a node tells of, the newest
    MAX_PLACES = 255, // copies on one machine, among which a place counts
    MAX_FOLDER_NAME = 64,
};

// ---- processes ----

static int32_t processes_of(const mics_job *job)
{
    return job->world->mpi ? job->world->ranks : 1;
}

static int32_t group_of(const mics_job *job)
{
    return job->world->mpi ? run_world_node_ranks(job->world) : 1;
}

static bool leads(const mics_job *job)
{
    return job->world->first % group_of(job) == 0;
}

static mics_status broadcast(const mics_job *job, int32_t root, void *buffer, size_t bytes)
{
    return job->world->mpi && bytes > 0
               ? mics_comm_broadcast(job->world->here[0].rank.comm, root, buffer, bytes)
               : MICS_OK;
}

// Whether all processes could; the same on all.
static mics_status all_could(const mics_job *job, mics_status mine, bool *all_out)
{
    int64_t worst = (int64_t)mine;
    MICS_TRY(run_world_max(job->world, &worst, 1));
    *all_out = worst == MICS_OK;
    return MICS_OK;
}

// In setup the first process logs for all; but defects of a node's memory are seen, and logged, by the
// processes of that node only.
static bool begin_own_log(const mics_job *job, bool speaks)
{
    mics_log_set_quiet(!speaks);
    if (job->world->mpi)
        mics_log_set_rank(job->world->first);
    return mics_log_demote(true);
}

static void end_own_log(const mics_job *job, bool before)
{
    mics_log_demote(before);
    mics_log_set_rank(-1);
    mics_log_set_quiet(job->world->first != 0);
}

// ---- who has what ----

// Whether the newest checkpoint in OUT is of the run that made the copies, or of one before it.
static mics_status find_owner(const mics_job *job, const run_identity *identity, bool *own_out)
{
    char *dir = NULL, *newest = NULL;
    mics_checkpoint *checkpoint = NULL;
    *own_out = true;
    MICS_TRY(mics_file_join(job->memory, job->run->out, "checkpoints", &dir));
    const bool muted = mics_log_mute(true); // what is wrong there is said when it is chosen
    mics_status status = mics_checkpoint_latest(job->memory, dir, &newest);
    if (status == MICS_OK && newest != NULL)
        status = mics_checkpoint_open(job->memory, newest, &checkpoint);
    mics_log_mute(muted);
    if (checkpoint != NULL)
        *own_out = run_identity_has(identity, mics_checkpoint_meta_get(checkpoint)->run_id);
    if (!*own_out)
        mics_log(MICS_LOG_WARNING,
                 "%s: is another run's checkpoint, so copies of this folder's run in node memory "
                 "(%s) are passed over",
                 newest, identity->id);
    mics_checkpoint_close(checkpoint);
    mics_free(job->memory, newest);
    mics_free(job->memory, dir);
    return status == MICS_ERR_MEMORY ? status : MICS_OK;
}

static mics_status take_id(mics_job *job)
{
    run_identity *identity = NULL;
    bool own = false;
    mics_status status = run_identity_read(job->memory, job->run->out, &identity);
    if (status != MICS_OK)
        return status == MICS_ERR_MEMORY ? status : MICS_OK;
    if (run_identity_is_copied(identity, job->run->out))
        mics_log(MICS_LOG_WARNING,
                 "%s: was copied from another folder; copies in node memory are that one's, and "
                 "passed over",
                 job->run->out);
    else if (identity->id[0] != '\0')
        status = find_owner(job, identity, &own);
    if (own)
        memcpy(job->node.id, identity->id, sizeof job->node.id);
    mics_free(job->memory, identity);
    return status;
}

// The ID that the run's copies have, of the first process: "" where there are none. `looks`: they
// would be taken.
static mics_status read_id(mics_job *job, bool looks)
{
    mics_status status = MICS_OK;
    const bool before = mics_log_demote(true), muted = mics_log_mute(!looks);
    if (job->world->first == 0)
        status = take_id(job);
    mics_log_mute(muted);
    mics_log_demote(before);
    MICS_TRY(run_world_agree(job->world, status));
    return broadcast(job, 0, job->node.id, sizeof job->node.id);
}

// The copies on this machine; none where the folder cannot be read.
static void scan(mics_job *job, mics_node_copies *copies)
{
    const bool before = begin_own_log(job, leads(job));
    if (mics_node_scan(job->memory, job->node.root, copies) != MICS_OK)
        *copies = (mics_node_copies){0};
    end_own_log(job, before);
}

static int compare_keys(const void *left, const void *right)
{
    return mics_node_compare(left, right);
}

// Every different key that some process has, newest first. The caller frees *keys_out.
static mics_status gather_keys(mics_job *job, const mics_node_copies *copies,
                               mics_node_key **keys_out, int32_t *count_out)
{
    mics_node_key mine[MAX_KEYS] = {{0}};
    mics_node_key *keys = NULL;
    const int32_t total = processes_of(job) * MAX_KEYS;
    int32_t told = 0, count = 0;
    for (int32_t i = 0; i < copies->count && i < MAX_PLACES && told < MAX_KEYS; i++) {
        if (told == 0 || mics_node_compare(&mine[told - 1], &copies->list[i].key) != 0)
            mine[told++] = copies->list[i].key;
    }
    MICS_TRY(run_world_agree(job->world, MICS_NEW(job->memory, total, &keys)));
    const mics_status status = run_world_gather(job->world, mine, sizeof mine, keys);
    if (status != MICS_OK)
        mics_free(job->memory, keys);
    MICS_TRY(status);
    qsort(keys, (size_t)total, sizeof *keys, compare_keys);
    for (int32_t i = 0; i < total; i++) {
        if (keys[i].files > 0 && (count == 0 || mics_node_compare(&keys[count - 1], &keys[i]) != 0))
            keys[count++] = keys[i];
    }
    *keys_out = keys;
    *count_out = count;
    return MICS_OK;
}

// Where this process finds the files that it answers for.
static void find_places(mics_job *job, const run_found_copy *found, uint8_t *mine)
{
    const bool before = begin_own_log(job, true);
    const int32_t own = job->world->first % found->group;
    for (int32_t file = own; file < found->key.files; file += found->group) {
        for (int32_t i = 0; i < found->copies.count && i < MAX_PLACES && mine[file] == 0; i++) {
            bool good = false;
            if (mics_node_compare(&found->copies.list[i].key, &found->key) == 0 &&
                mics_node_check_file(job->memory, &found->copies.list[i], file, &good) == MICS_OK &&
                good)
                mine[file] = (uint8_t)(i + 1);
        }
    }
    end_own_log(job, before);
}

// The first process that has a file; -1: none.
static int32_t holder_of(const run_found_copy *found, int32_t file)
{
    for (int32_t p = 0; p < found->processes; p++) {
        if (*run_found_at(found, p, file) != 0)
            return p;
    }
    return -1;
}

// *missing_out: files that no process has.
static mics_status gather_places(mics_job *job, run_found_copy *found, int32_t *missing_out)
{
    const size_t files = (size_t)found->key.files;
    uint8_t *mine = NULL;
    mics_status status = MICS_NEW(job->memory, files, &mine);
    if (status == MICS_OK)
        status = MICS_NEW(job->memory, files * (size_t)found->processes, &found->places);
    status = run_world_agree(job->world, status);
    if (status == MICS_OK) {
        find_places(job, found, mine);
        status = run_world_gather(job->world, mine, files, found->places);
    }
    mics_free(job->memory, mine);
    MICS_TRY(status);
    *missing_out = 0;
    for (int32_t file = 0; file < found->key.files; file++)
        *missing_out += holder_of(found, file) < 0;
    return MICS_OK;
}

// ---- the folder that stands for it ----

// What all nodes must have of a copy to open it: its texts, from the first process that has its file 0,
// and the head of each file, from the first that has the file.
typedef struct outline {
    char *texts;          // manifest, NUL, tokenizer, NUL
    unsigned char *heads; // of all processes, each `heads_bytes` long: its files' heads in order
    int64_t manifest_bytes, tokenizer_bytes, heads_bytes;
    mics_manifest parsed;
} outline;

static const char *tokenizer_of(const outline *parts)
{
    return parts->texts + parts->manifest_bytes + 1;
}

// By the process that has the copy.
static mics_status read_texts(mics_job *job, const mics_node_copy *copy, outline *out)
{
    const char *manifest = mics_json_text(copy->manifest.json);
    const char *name = copy->manifest.tokenizer.name;
    char *path = NULL, *tokenizer = NULL;
    size_t bytes = 0;
    mics_status status = MICS_OK;
    out->manifest_bytes = (int64_t)strlen(manifest);
    if (name != NULL)
        MICS_TRY(mics_file_join(job->memory, copy->folder, name, &path));
    if (name != NULL)
        status = mics_file_read_whole(job->memory, path, MICS_FILE_MAX_WHOLE, &tokenizer, &bytes);
    out->tokenizer_bytes = (int64_t)bytes;
    if (status == MICS_OK)
        status = MICS_NEW(job->memory, out->manifest_bytes + out->tokenizer_bytes + 2, &out->texts);
    if (status == MICS_OK)
        memcpy(out->texts, manifest, (size_t)out->manifest_bytes);
    if (status == MICS_OK && bytes > 0)
        memcpy(out->texts + out->manifest_bytes + 1, tokenizer, bytes);
    mics_free(job->memory, tokenizer);
    mics_free(job->memory, path);
    return status;
}

static mics_status share_texts(mics_job *job, const run_found_copy *found, outline *out,
                               bool *all_out)
{
    const int32_t root = holder_of(found, 0);
    mics_status status = MICS_OK;
    if (root == job->world->first)
        status = read_texts(job, &found->copies.list[*run_found_at(found, root, 0) - 1], out);
    int64_t sizes[] = {out->manifest_bytes, out->tokenizer_bytes};
    MICS_TRY(run_world_max(job->world, sizes, 2));
    out->manifest_bytes = sizes[0];
    out->tokenizer_bytes = sizes[1];
    const int64_t bytes = sizes[0] + sizes[1] + 2;
    if (root != job->world->first)
        status = MICS_NEW(job->memory, bytes, &out->texts);
    MICS_TRY(all_could(job, status, all_out));
    return *all_out ? broadcast(job, root, out->texts, (size_t)bytes) : MICS_OK;
}

// Appends the heads of the files that this process is the first to have.
static mics_status collect_heads(mics_job *job, const run_found_copy *found, unsigned char **mine,
                                 int64_t *bytes_out)
{
    void *heads = NULL;
    for (int32_t file = 0; file < found->key.files; file++) {
        unsigned char *head = NULL;
        int64_t bytes = 0;
        const int32_t me = job->world->first;
        if (holder_of(found, file) != me)
            continue;
        mics_status status = mics_node_read_head(
            job->memory, run_found_folder(found, *run_found_at(found, me, file)), file, &head,
            &bytes);
        if (status == MICS_OK)
            status = mics_realloc(job->memory, MICS_MEM_HOST, (size_t)(*bytes_out + bytes), &heads);
        *mine = heads;
        if (status == MICS_OK)
            memcpy(*mine + *bytes_out, head, (size_t)bytes);
        mics_free(job->memory, head);
        MICS_TRY(status);
        *bytes_out += bytes;
    }
    return MICS_OK;
}

static mics_status share_heads(mics_job *job, const run_found_copy *found, outline *out,
                               bool *all_out)
{
    unsigned char *mine = NULL;
    int64_t bytes = 0;
    mics_status status = collect_heads(job, found, &mine, &bytes);
    int64_t most = bytes;
    void *grown = mine;
    mics_status gathered = run_world_max(job->world, &most, 1);
    if (status == MICS_OK)
        status = mics_realloc(job->memory, MICS_MEM_HOST, (size_t)most + 1, &grown);
    if (status == MICS_OK)
        status = MICS_NEW(job->memory, most * found->processes + 1, &out->heads);
    out->heads_bytes = most;
    if (gathered == MICS_OK)
        gathered = all_could(job, status, all_out);
    if (gathered == MICS_OK && *all_out)
        gathered = run_world_gather(job->world, grown, (size_t)most, out->heads);
    mics_free(job->memory, grown);
    return gathered;
}

// The head of a file among those that all processes sent.
static mics_status find_head(const run_found_copy *found, const outline *from, int32_t file,
                             const unsigned char **head_out, int64_t *bytes_out)
{
    const int32_t holder = holder_of(found, file);
    const unsigned char *at = from->heads + holder * from->heads_bytes;
    int64_t left = from->heads_bytes;
    for (int32_t before = 0; before < file; before++) {
        const int64_t bytes =
            holder_of(found, before) == holder ? mics_node_head_bytes(at, left) : 0;
        at += bytes;
        left -= bytes;
    }
    *head_out = at;
    *bytes_out = mics_node_head_bytes(at, left);
    return *bytes_out > 0
               ? MICS_OK
               : mics_fail(MICS_ERR_FORMAT, "node memory: file %d has no head", (int)file);
}

static mics_status place_files(mics_job *job, const run_found_copy *found, const outline *from)
{
    const int32_t node = job->world->first / found->group;
    for (int32_t file = 0; file < found->key.files; file++) {
        const unsigned char *head = NULL;
        int64_t bytes = 0;
        const int32_t place = run_found_place(found, node, file);
        if (place > 0) {
            MICS_TRY(
                mics_node_link(job->memory, run_found_folder(found, place), file, found->folder));
            continue;
        }
        MICS_TRY(find_head(found, from, file, &head, &bytes));
        MICS_TRY(mics_node_write_stub(job->memory, found->folder, file, head, bytes,
                                      from->parsed.files[file].bytes));
    }
    return MICS_OK;
}

// By the first process of each node.
static mics_status make_folder(mics_job *job, const run_found_copy *found, outline *from)
{
    char *path = NULL;
    if (!leads(job))
        return MICS_OK;
    MICS_TRY(mics_node_make_root(job->node.root));
    if (mkdir(found->folder, 0700) != 0)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot make the folder: %s",
                         found->folder, strerror(errno));
    MICS_TRY(mics_file_replace(job->memory, found->folder, MICS_MANIFEST_NAME, from->texts,
                               (size_t)from->manifest_bytes));
    MICS_TRY(mics_file_join(job->memory, found->folder, MICS_MANIFEST_NAME, &path));
    mics_status status = mics_manifest_load(job->memory, path, &from->parsed);
    mics_free(job->memory, path);
    MICS_TRY(status);
    if (from->parsed.file_count != found->key.files)
        return mics_fail(MICS_ERR_FORMAT, "node memory: a manifest of %d files, not %d",
                         (int)from->parsed.file_count, (int)found->key.files);
    if (from->parsed.tokenizer.name != NULL)
        MICS_TRY(mics_file_replace(job->memory, found->folder, from->parsed.tokenizer.name,
                                   tokenizer_of(from), (size_t)from->tokenizer_bytes));
    return place_files(job, found, from);
}

// The name is of this start only: another start, which is refused as the output folder is locked, must
// not touch it.
static mics_status name_folder(mics_job *job, run_found_copy *found)
{
    enum { SHOWN = 12 };
    char name[MAX_FOLDER_NAME], mark[MICS_NODE_ID_BYTES] = "";
    mics_status status = MICS_OK;
    if (job->world->first == 0)
        status = mics_node_draw_id(mark);
    MICS_TRY(run_world_agree(job->world, status));
    MICS_TRY(broadcast(job, 0, mark, sizeof mark));
    snprintf(name, sizeof name, "resume-%.*s-%d", SHOWN, mark,
             (int)run_world_node_number(job->world, job->world->first));
    return run_world_agree(job->world,
                           mics_file_join(job->memory, job->node.root, name, &found->folder));
}

// *all_out: it stands on every node.
static mics_status assemble(mics_job *job, run_found_copy *found, bool *all_out)
{
    outline parts = {0};
    MICS_TRY(name_folder(job, found));
    const bool before = begin_own_log(job, leads(job));
    mics_status status = share_texts(job, found, &parts, all_out);
    if (status == MICS_OK && *all_out)
        status = share_heads(job, found, &parts, all_out);
    if (status == MICS_OK && *all_out)
        status = all_could(job, make_folder(job, found, &parts), all_out);
    end_own_log(job, before);
    mics_manifest_fini(job->memory, &parts.parsed);
    mics_free(job->memory, parts.texts);
    mics_free(job->memory, parts.heads);
    return status;
}

// ---- looking for a copy ----

static void log_incomplete(const mics_job *job, const run_found_copy *found, int32_t missing)
{
    if (job->world->first == 0)
        mics_log(MICS_LOG_WARNING,
                 "node memory: step %lld is not whole: %d of its %d files are on none of these "
                 "nodes, or damaged",
                 (long long)found->key.step, (int)missing, (int)found->key.files);
}

// Takes the first key whose copy is whole; found->key.files is 0 when there is none.
static mics_status choose(mics_job *job, run_found_copy *found, const mics_node_key *keys,
                          int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        int32_t missing = 0;
        bool stands = false;
        if (keys[i].step > job->run->steps) // what is past the last step no run resumes from
            continue;
        found->key = keys[i];
        MICS_TRY(gather_places(job, found, &missing));
        if (missing == 0)
            MICS_TRY(assemble(job, found, &stands));
        else
            log_incomplete(job, found, missing);
        if (stands)
            return MICS_OK;
        mics_free(job->memory, found->places);
        mics_free(job->memory, found->folder);
        found->places = NULL;
        found->folder = NULL;
    }
    found->key = (mics_node_key){0};
    return MICS_OK;
}

static mics_status look(mics_job *job)
{
    mics_node_key *keys = NULL;
    int32_t count = 0;
    run_found_copy *found = NULL;
    MICS_TRY(run_world_agree(job->world, MICS_NEW(job->memory, 1, &found)));
    job->node.found = found;
    found->processes = processes_of(job);
    found->group = group_of(job);
    scan(job, &found->copies);
    MICS_TRY(gather_keys(job, &found->copies, &keys, &count));
    const mics_status status = choose(job, found, keys, count);
    mics_free(job->memory, keys);
    if (status == MICS_OK && found->key.files == 0)
        run_node_forget_found(job);
    return status;
}

mics_status run_node_memory_find(mics_job *job, const char *resume)
{
    MICS_TRY(read_id(job, strcmp(resume, "auto") == 0));
    if (job->node.id[0] == '\0')
        return MICS_OK;
    MICS_TRY(
        run_world_agree(job->world, mics_node_root(job->memory, job->node.id, &job->node.root)));
    if (strcmp(resume, "auto") != 0)
        return MICS_OK;
    mics_comm *comm = job->world->here[0].rank.comm;
    if (job->world->mpi)
        MICS_TRY(mics_comm_set_timeout(comm, run_job_files_timeout_s(job)));
    const mics_status status = look(job);
    if (status == MICS_OK && job->world->mpi)
        return mics_comm_set_timeout(comm, job->run->comm_timeout_s);
    return status;
}

mics_status run_node_memory_find_again(mics_job *job)
{
    return job->node.root != NULL ? look(job) : MICS_OK;
}

void run_node_forget_found(mics_job *job)
{
    run_found_copy *found = job->node.found;
    if (found == NULL)
        return;
    if (found->folder != NULL)
        mics_node_remove(found->folder);
    mics_node_copies_fini(job->memory, &found->copies);
    MICS_FREE_ALL(job->memory, found->places, found->folder, found);
    job->node.found = NULL;
    job->node.passed = false;
}

int64_t run_node_memory_step(const mics_job *job)
{
    const run_node_memory *node = &job->node;
    return node->found != NULL && !node->passed ? node->found->key.step : -1;
}

int32_t run_node_memory_next_slot(const mics_job *job)
{
    return (job->node.found->key.slot + 1) % MICS_NODE_SLOTS;
}

void run_node_memory_take(mics_job *job, bool takes)
{
    run_node_memory *node = &job->node;
    node->taken = takes;
    if (!takes)
        return;
    node->serial = node->found->key.serial + 1;
    node->slot = run_node_memory_next_slot(job);
}

const char *run_node_memory_path(const mics_job *job)
{
    return job->node.found != NULL ? job->node.found->folder : NULL;
}
