// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The resolved run as a run file: the rows of its keys, nested again.
#include "run/run_json.h"
#include "base/text.h"
#include "job.h"
#include <stdlib.h>
#include <string.h>

// A key and its value as JSON; both borrowed.
typedef struct row_text {
    const char *key;
    char value[sizeof((mics_run_row *)0)->value];
} row_text;

// By sections: "." comes before all else, so that what stands in one section is adjacent.
static int compare_rows(const void *a, const void *b)
{
    const char *left = ((const row_text *)a)->key, *right = ((const row_text *)b)->key;
    while (*left != '\0' && *left == *right) {
        left++;
        right++;
    }
    int l = *left == '.' ? 1 : (unsigned char)*left, r = *right == '.' ? 1 : (unsigned char)*right;
    return l - r;
}

// weights: NULL: none.
static void write_sources(mics_text *out, const char *const *texts, const double *weights,
                          int32_t count)
{
    char number[40];
    mics_text_printf(out, "[");
    for (int32_t i = 0; i < count; i++) {
        mics_text_printf(out, "%s%s", i > 0 ? ", " : "", weights != NULL ? "{\"path\": " : "");
        mics_text_quoted(out, texts[i]);
        if (weights != NULL)
            mics_text_printf(out, ", \"weight\": %s}",
                             mics_text_real(weights[i], number, sizeof number));
    }
    mics_text_printf(out, "]");
}

// Rows cut long values; paths are the ones that get long, so they come from the run itself.
static void write_value(mics_text *out, const mics_run *run, const row_text *row)
{
    const struct {
        const char *key, *text;
    } texts[] = {{"model.config", run->model_config},
                 {"model.init", run->model_init},
                 {"data.tokenizer", run->tokenizer},
                 {"data.chat_template", run->chat_template},
                 {"run.cluster", run->cluster},
                 {"run.tensorboard", run->tensorboard},
                 {"run.prometheus", run->prometheus},
                 {"run.csv", run->csv},
                 {"run.sample_prompt", run->sample_prompt},
                 {"run.out", run->out},
                 {"adapter.init", run->adapter_init}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (strcmp(row->key, texts[i].key) == 0 && texts[i].text != NULL) {
            mics_text_quoted(out, texts[i].text);
            return;
        }
    }
    if (strcmp(row->key, "data.template_variables") == 0)
        mics_json_write(out, mics_json_at(run->json, row->key));
    else if (strcmp(row->key, run->rows ? "data.text_field" : "data.packing") == 0)
        mics_text_printf(out,
                         "null"); // the first would make texts of chats, and no texts are packed
    else if (strcmp(row->key, "phases") == 0)
        mics_text_printf(out, "%s", run->phases_text);
    else if (strcmp(row->key, "data.train") == 0)
        write_sources(out, run->train, run->train_weights, run->train_count);
    else if (strcmp(row->key, "model.trainable") == 0)
        write_sources(out, run->trainable, NULL, run->trainable_count);
    else if (strcmp(row->key, "adapter.target_modules") == 0 && run->lora.target_count > 0)
        write_sources(out, run->lora.targets, NULL, run->lora.target_count);
    else if (strcmp(row->key, "adapter.modules_to_save") == 0)
        write_sources(out, run->lora.saved, NULL, run->lora.saved_count);
    else if (strcmp(row->key, "data.validation") == 0)
        write_sources(out, run->validation, NULL, run->validation_count);
    else
        mics_text_printf(out, "%s", row->value);
}

// Length of the section that two keys share, its last "." included.
static size_t shared_section(const char *a, const char *b)
{
    size_t shared = 0;
    for (size_t i = 0; a[i] != '\0' && a[i] == b[i]; i++) {
        if (a[i] == '.')
            shared = i + 1;
    }
    return shared;
}

static int depth_of(const char *key, size_t length)
{
    int depth = 0;
    for (size_t i = 0; i < length && key[i] != '\0'; i++)
        depth += key[i] == '.';
    return depth;
}

static void indent(mics_text *out, int depth)
{
    mics_text_printf(out, "\n%*s", 2 * (depth + 1), "");
}

static void write_rows(mics_text *out, const mics_run *run, const row_text *rows, int32_t count)
{
    const char *previous = "";
    int depth = 0;
    mics_text_printf(out, "{");
    for (int32_t i = 0; i < count; i++) {
        const char *key = rows[i].key;
        size_t shared = shared_section(previous, key);
        for (int open = depth_of(key, shared); depth > open; depth--) {
            indent(out, depth - 1);
            mics_text_printf(out, "}");
        }
        if (i > 0)
            mics_text_printf(out, ",");
        const char *part = key + shared;
        for (const char *dot; (dot = strchr(part, '.')) != NULL; part = dot + 1) {
            indent(out, depth++);
            mics_text_printf(out, "\"%.*s\": {", (int)(dot - part), part);
        }
        indent(out, depth);
        mics_text_printf(out, "\"%s\": ", part);
        write_value(out, run, &rows[i]);
        previous = key;
    }
    for (; depth > 0; depth--) {
        indent(out, depth - 1);
        mics_text_printf(out, "}");
    }
    mics_text_printf(out, "\n}\n");
}

// A section that also stands as a value ("sharding": "auto"), resolved by rows below it.
static bool is_section_of(const char *key, const char *other)
{
    size_t length = strlen(key);
    return strncmp(key, other, length) == 0 && other[length] == '.';
}

static bool is_degree_of_others(const row_text *row)
{
    return strcmp(row->key, "sharded_data_parallel_degree") == 0 ||
           strcmp(row->key, "hybrid_shard_degree") == 0 ||
           strcmp(row->key, "fsdp_sharding_strategy") == 0 ||
           strcmp(row->key, "data_parallel_shard_degree") == 0 ||
           strcmp(row->key, "data_parallel_replicate_degree") == 0;
}

// Keys that say nothing when the text is read as a run file, or say again what another key was
// resolved to, and might contradict it.
static bool is_silent(const row_text *row)
{
    return strcmp(row->value, "null") == 0 ||                          // as if it were absent
           strcmp(row->key, "steps_per_print") == 0 ||                 // run.log_every
           strcmp(row->key, "zero_optimization.overlap_comm") == 0 ||  // run.prefetch
           strcmp(row->key, "bf16.enabled") == 0 ||                    // run.precision
           strcmp(row->key, "fp16.enabled") == 0 ||                    // run.precision
           (is_degree_of_others(row) && strcmp(row->value, "0") == 0); // "auto", which is off
}

// Keys that say the whole sharding in the words of others.
static bool is_foreign_sharding(const row_text *row)
{
    return !is_silent(row) &&
           (strncmp(row->key, "zero_optimization.", 18) == 0 || is_degree_of_others(row));
}

// sharding.sequence stands beside the words of others.
static bool is_sharding(const row_text *row)
{
    return (strncmp(row->key, "sharding.", 9) == 0 || strcmp(row->key, "sharding") == 0) &&
           strcmp(row->key, "sharding.sequence") != 0;
}

static int32_t collect_rows(const mics_run *run, row_text *rows)
{
    int32_t count = 0, kept = 0;
    bool foreign = false; // sharding given in DeepSpeed's words: both at once would be an error
    for (int32_t i = 0; i < mics_run_row_count(run); i++) {
        mics_run_row row = mics_run_row_at(run, i);
        rows[count].key = row.key;
        memcpy(rows[count++].value, row.value, sizeof row.value);
        foreign = foreign || is_foreign_sharding(&rows[count - 1]);
    }
    qsort(rows, (size_t)count, sizeof *rows, compare_rows);
    for (int32_t i = 0; i < count; i++) {
        bool section = i + 1 < count && is_section_of(rows[i].key, rows[i + 1].key);
        if (!section && !is_silent(&rows[i]) && !(foreign && is_sharding(&rows[i])))
            rows[kept++] = rows[i];
    }
    return kept;
}

mics_status run_run_text(mics_memory *memory, const mics_run *run, char **text_out)
{
    row_text *rows = NULL;
    mics_text text = {.memory = memory};
    MICS_TRY(MICS_NEW(memory, mics_run_row_count(run), &rows));
    write_rows(&text, run, rows, collect_rows(run, rows));
    mics_free(memory, rows);
    const mics_status status = mics_text_status(&text);
    if (status == MICS_OK)
        *text_out = text.bytes;
    else
        mics_text_fini(&text);
    return status;
}
