// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What must be the same on all processes, as rows.
#include "base/text.h"
#include "run/save/import.h"
#include "run/save/resume.h"
#include "same.h"
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { TEXT_BYTES = 256 };

static void add_int(mics_text *rows, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    run_same_add(rows, key, text);
}

// Of contents, which have no shorter name.
static void add_hash(mics_text *rows, const char *key, uint64_t hash)
{
    char text[32];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    run_same_add(rows, key, text);
}

static uint64_t hash_text(const char *text)
{
    return text != NULL ? XXH3_64bits(text, strlen(text)) : 0;
}

// ---- the program ----

// Anything that lies in the object that this code is linked into.
static const char here;

typedef struct build_search {
    uintptr_t address; // in the object
    char text[2 * 32 + 1];
} build_search;

// NT_GNU_BUILD_ID of a PT_NOTE segment, in hexadecimal.
static void read_notes(const char *note, size_t bytes, char *text, size_t capacity)
{
    while (bytes > sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) head;
        memcpy(&head, note, sizeof head);
        const size_t name = (head.n_namesz + (size_t)3) & ~(size_t)3;
        const size_t data = (head.n_descsz + (size_t)3) & ~(size_t)3;
        const size_t whole = sizeof head + name + data;
        if (whole > bytes)
            return;
        const char *id = note + sizeof head + name;
        const bool found = head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 &&
                           memcmp(note + sizeof head, "GNU", 4) == 0;
        for (size_t i = 0; found && i < head.n_descsz && 2 * i + 2 < capacity; i++)
            snprintf(text + 2 * i, 3, "%02x", (unsigned)(unsigned char)id[i]);
        note += whole;
        bytes -= whole;
    }
}

static int search_object(struct dl_phdr_info *info, size_t size, void *ctx)
{
    build_search *search = ctx;
    bool holds = false;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        holds = holds || (part->p_type == PT_LOAD &&
                          search->address - (info->dlpi_addr + part->p_vaddr) < part->p_memsz);
    }
    for (int i = 0; holds && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_NOTE) // NOLINTNEXTLINE(performance-no-int-to-ptr)
            read_notes((const char *)(info->dlpi_addr + part->p_vaddr), part->p_memsz, search->text,
                       sizeof search->text);
    }
    return holds;
}

// Version, and the linker's identifier of the program or library that this code is in.
static void add_program(mics_text *rows)
{
    char text[TEXT_BYTES];
    build_search search = {.address = (uintptr_t)&here};
    dl_iterate_phdr(search_object, &search);
    snprintf(text, sizeof text, "mics %s%s%s", MICS_VERSION,
             search.text[0] != '\0' ? " build " : "", search.text);
    run_same_add(rows, "the program", text);
}

// ---- run file and model ----

// Files count by what they hold; budgets are settled among all machines.
static bool may_differ(const char *key)
{
    return mics_text_is_among(
        key, "model|model.config|model.init|data|data.train|data.validation|data.tokenizer|run|"
             "run.cluster|run.memory_limit|run.threads");
}

static void add_keys(mics_text *rows, const mics_run *run)
{
    for (int32_t i = 0; i < mics_run_row_count(run); i++) {
        const mics_run_row row = mics_run_row_at(run, i);
        if (!row.hint && !may_differ(row.key))
            run_same_add(rows, row.key, row.value);
    }
}

static void write_value(mics_text *text, const mics_json_value *value)
{
    const char *key = NULL;
    const mics_json_value *member;
    char number[32];
    switch (mics_json_type_of(value)) {
    case MICS_JSON_NULL:
        mics_text_printf(text, "null");
        break;
    case MICS_JSON_BOOL:
        mics_text_printf(text, mics_json_bool(value) ? "true" : "false");
        break;
    case MICS_JSON_INT:
    case MICS_JSON_REAL: // 1 and 1.0 are one number
        mics_text_printf(text, "%s", mics_text_real(mics_json_real(value), number, sizeof number));
        break;
    case MICS_JSON_STRING:
        mics_text_quoted(text, mics_json_string(value));
        break;
    case MICS_JSON_ARRAY:
        for (int32_t i = 0; i < mics_json_count(value); i++) {
            mics_text_printf(text, i == 0 ? "[" : ", ");
            write_value(text, mics_json_element(value, i));
        }
        mics_text_printf(text, mics_json_count(value) > 0 ? "]" : "[]");
        break;
    case MICS_JSON_OBJECT:
        mics_text_printf(text, "{");
        while ((member = mics_json_next(value, &key)) != NULL) {
            mics_text_quoted(text, key);
            mics_text_printf(text, ": ");
            write_value(text, member);
            mics_text_printf(text, ", ");
        }
        mics_text_printf(text, "}");
        break;
    }
}

// The model's config by its keys.
static void add_config(mics_text *rows, const mics_json *config)
{
    const char *key = NULL;
    const mics_json_value *value;
    while ((value = mics_json_next(mics_json_root(config), &key)) != NULL) {
        if (run_config_is_remark(key))
            continue;
        mics_text_printf(rows, "model.config: ");
        mics_text_quoted(rows, key);
        mics_text_printf(rows, "\t");
        write_value(rows, value);
        mics_text_printf(rows, "\n");
    }
}

// What the builder of a program's own model made.
static uint64_t hash_model(const mics_model *model)
{
    uint64_t hash = hash_text(model->architecture);
    for (int32_t i = 0; i < model->unit_count; i++) {
        const mics_unit *unit = &model->units[i];
        const int64_t of[] = {(int64_t)hash, unit->elems, unit->param_count, unit->op_count,
                              (int64_t)hash_text(unit->name)};
        hash = XXH3_64bits(of, sizeof of);
    }
    return hash;
}

static void add_checkpoint(mics_text *rows, const mics_job *job)
{
    char text[TEXT_BYTES] = "none";
    if (job->checkpoint != NULL) {
        const mics_checkpoint_meta *meta = mics_checkpoint_meta_get(job->checkpoint);
        const int64_t of[] = {meta->samples, (int64_t)meta->seed, (int64_t)meta->corpus_hash,
                              (int64_t)hash_text(meta->model_json),
                              (int64_t)hash_text(meta->run_json)};
        snprintf(text, sizeof text, "step %lld (%016" PRIx64 ")", (long long)meta->step,
                 (uint64_t)XXH3_64bits(of, sizeof of));
    }
    run_same_add(rows, "the checkpoint to resume from", text);
}

void run_same_list_run(mics_text *rows, const mics_job *job)
{
    add_program(rows);
    add_int(rows, "--nodes", job->world->nodes);
    add_checkpoint(rows, job);
    add_keys(rows, job->run);
    add_config(rows, job->config);
    add_hash(rows, "the model's units", hash_model(job->model));
}

// ---- data ----

static void add_corpus(mics_text *rows, const char *key, const mics_corpus *corpus, uint64_t hash)
{
    char text[TEXT_BYTES] = "none";
    if (corpus != NULL)
        snprintf(text, sizeof text, "%lld tokens (%016" PRIx64 ")",
                 (long long)mics_corpus_tokens(corpus), hash);
    run_same_add(rows, key, text);
}

static void add_tokenizer(mics_text *rows, const mics_tokenizer *tokenizer)
{
    size_t bytes = 0;
    const char *text = mics_tokenizer_text(tokenizer, &bytes);
    if (text != NULL)
        add_hash(rows, "data.tokenizer", XXH3_64bits(text, bytes));
    else
        run_same_add(rows, "data.tokenizer", tokenizer != NULL ? "bytes" : "unknown");
}

// All elements would take each rank as long as loading the whole model.
mics_status run_same_hash_weights(const mics_safetensors *import, uint64_t *hash_out)
{
    enum { SAMPLE = 256 };
    float sample[SAMPLE];
    uint64_t hash = 0;
    for (int32_t i = 0; i < mics_safetensors_count(import); i++) {
        const mics_tensor_info *tensor = mics_safetensors_at(import, i);
        const bool real = strcmp(tensor->dtype, "F32") == 0 || strcmp(tensor->dtype, "F16") == 0 ||
                          strcmp(tensor->dtype, "BF16") == 0;
        const int64_t count = !real ? 0 : tensor->elems < SAMPLE ? tensor->elems : SAMPLE;
        MICS_TRY(mics_safetensors_read(import, tensor->name, 0, count, sample));
        const int64_t of[] = {(int64_t)hash, tensor->elems,
                              (int64_t)XXH3_64bits(tensor->name, strlen(tensor->name)),
                              (int64_t)XXH3_64bits(tensor->dtype, strlen(tensor->dtype)),
                              (int64_t)XXH3_64bits(sample, (size_t)count * sizeof *sample)};
        hash = XXH3_64bits(of, sizeof of);
    }
    *hash_out = hash;
    return MICS_OK;
}

static mics_status add_weights(mics_text *rows, const mics_job *job)
{
    uint64_t hash = 0;
    const bool begins = job->import != NULL && job->checkpoint == NULL;
    if (begins)
        MICS_TRY(run_same_hash_weights(job->import, &hash));
    if (begins)
        add_hash(rows, "model.init", hash);
    else
        run_same_add(rows, "model.init", job->checkpoint != NULL ? "the checkpoint" : "random");
    return MICS_OK;
}

static uint64_t hash_step(uint64_t hash, const mics_step *step)
{
    const int64_t of[] = {(int64_t)hash,
                          step->kind,
                          step->stream,
                          step->unit,
                          step->micro_step,
                          step->wait[MICS_STREAM_COMPUTE],
                          step->wait[MICS_STREAM_INTRA],
                          step->wait[MICS_STREAM_INTER],
                          step->wait[MICS_STREAM_COPY],
                          step->use_count,
                          step->in_flight,
                          step->stage,
                          step->axis,
                          step->algorithm,
                          step->dtype.held,
                          step->dtype.sent,
                          step->block_elems,
                          step->member_at,
                          step->member_count};
    return XXH3_64bits(of, sizeof of);
}

static uint64_t hash_schedule(const mics_schedule *schedule)
{
    uint64_t hash = 0;
    for (int phase = 0; phase < MICS_PHASES; phase++) {
        for (int32_t i = 0; i < schedule->lists[phase].count; i++)
            hash = hash_step(hash, &schedule->lists[phase].steps[i]);
    }
    return hash;
}

mics_status run_same_list_data(mics_text *rows, const mics_job *job)
{
    add_corpus(rows, "data.train", job->train, run_samples_hash(&job->train_samples));
    add_corpus(rows, "data.validation", job->validation,
               job->validation != NULL ? mics_corpus_hash(job->validation) : 0);
    add_tokenizer(rows, job->tokenizer);
    MICS_TRY(add_weights(rows, job));
    if (job->references.file != NULL)
        add_hash(rows, "references in run.out", job->references.file->hash);
    add_hash(rows, "run.out (the lock in it)", job->out.mark);
    add_hash(rows, "the schedule", hash_schedule(job->schedule));
    return MICS_OK;
}
