// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Plans of published rows, at their sharding and batch.
#include "rows.h"
#include "base/json.h"
#include "mics/log.h"
#include "plan/search/baseline.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 1 << 16 };

#define TRY_MATMUL(matmul)                                                                         \
    {matmul, 0.55}, {matmul, 0.65},                                                                \
    {                                                                                              \
        matmul, 0.75                                                                               \
    }
const constants tried[TRIED] = {TRY_MATMUL(0.92), TRY_MATMUL(0.96), TRY_MATMUL(1.0),
                                TRY_MATMUL(1.04), TRY_MATMUL(1.08), TRY_MATMUL(1.12)};

static int64_t number(const mics_json_value *object, const char *key)
{
    return mics_json_int(mics_json_get(object, key));
}

static const char *text_at(const mics_json_value *object, const char *key)
{
    const char *text = mics_json_string(mics_json_get(object, key));
    return text != NULL ? text : "";
}

// ---- cluster ----

// The text of the object that stands under "cluster" in a line.
static size_t cluster_text(const char *line, const char **text_out)
{
    const char *at = strstr(line, "\"cluster\":");
    size_t bytes = 0;
    int depth = 0;
    *text_out = at = at != NULL ? strchr(at, '{') : "";
    if (at == NULL)
        return 0;
    do {
        depth += at[bytes] == '{' ? 1 : (at[bytes] == '}' ? -1 : 0);
    } while (at[bytes++] != '\0' && depth > 0);
    return bytes;
}

static mics_status set(mics_json *json, const char *path, const mics_json_value *value)
{
    char text[NAME_BYTES];
    if (!mics_json_is_number(value))
        return mics_json_set(json, path, mics_json_string(value));
    snprintf(text, sizeof text, "%.12g", mics_json_real(value));
    return mics_json_set(json, path, text);
}

// What a row says of its accelerator beside the catalogue's.
static mics_status override(const mics_json_value *line, mics_json *cluster)
{
    const mics_json_value *changed = mics_json_get(mics_json_get(line, "override"), "accelerator");
    const mics_json_value *value = NULL;
    const char *key = NULL;
    while (changed != NULL && (value = mics_json_next(changed, &key)) != NULL) {
        char path[2 * NAME_BYTES];
        snprintf(path, sizeof path, "accelerator.%s", key);
        MICS_TRY(set(cluster, path, value));
    }
    return MICS_OK;
}

static mics_status open_cluster(const rows *all, const mics_json_value *line, const char *text,
                                const mics_software *software, mics_cluster *cluster_out)
{
    const char *of_cluster = NULL;
    const size_t bytes = cluster_text(text, &of_cluster);
    mics_json *json = NULL;
    MICS_TRY(mics_json_parse(all->memory, "cluster", of_cluster, bytes, &json));
    mics_status status = override(line, json);
    if (status == MICS_OK)
        status = sources_set(&all->rules, line, json);
    for (int32_t i = 0; status == MICS_OK && i < all->set_count; i++) {
        char path[NAME_BYTES] = "";
        const char *equals = strchr(all->sets[i], '=');
        snprintf(path, sizeof path, "%.*s", (int)(equals - all->sets[i]), all->sets[i]);
        status = mics_json_set(json, path, equals + 1);
    }
    if (status == MICS_OK)
        status = mics_cluster_parse(json, cluster_out);
    // What a row or its source says counts more than its software.
    const mics_cluster own = *cluster_out;
    if (status == MICS_OK)
        mics_software_apply(software, cluster_out);
    if (status == MICS_OK && mics_json_at(json, "accelerator.kernels") != NULL)
        memcpy(cluster_out->accelerator.kernels, own.accelerator.kernels,
               sizeof own.accelerator.kernels);
    if (status == MICS_OK && mics_json_at(json, "accelerator.attention") != NULL)
        cluster_out->accelerator.attention_efficiency = own.accelerator.attention_efficiency;
    mics_json_close(json);
    return status;
}

// ---- plan ----

static mics_sharding sharding_of(const char *name, int32_t ranks)
{
    const int32_t n = ranks;
    if (strcmp(name, "zero1") == 0)
        return (mics_sharding){1, 1, n};
    if (strcmp(name, "zero2") == 0)
        return (mics_sharding){1, n, n};
    if (strncmp(name, "mics", 4) == 0) {
        const int32_t p = (int32_t)strtol(name + 4, NULL, 10);
        return (mics_sharding){p, p, p};
    }
    return (mics_sharding){n, n, n};
}

// What a plan is asked for.
typedef struct asked {
    const char *way; // sharding, or "megatron"
    mics_plan_pipeline pipeline;
    int64_t micro_batch;
    int32_t micro_steps;
    bool recompute_open; // megatron: the faster that fits
    double recompute;    // share of the layers
} asked;

static asked asked_of(const rows *all, const mics_json_value *line, int64_t batch,
                      mics_megatron_era era)
{
    const mics_json_value *degrees = mics_json_get(line, "parallel");
    const mics_json_value *given = degrees != NULL ? degrees : mics_json_get(line, "cut");
    const mics_json_value *recompute = sources_recompute(&all->rules, line);
    const int64_t micro_batch = number(line, "micro_batch"), gpus = number(line, "gpus");
    return (asked){.way = degrees != NULL ? text_at(degrees, "kind") : text_at(line, "sharding"),
                   .pipeline = {.tensor = (int32_t)number(given, "t"),
                                .stages = (int32_t)number(given, "p"),
                                .chunks = (int32_t)number(given, "v"),
                                .context = (int32_t)number(given, "c"),
                                .expert = (int32_t)number(given, "e"),
                                .era = era},
                   // 22B on one node with 4 sequences: all at once.
                   .micro_batch = degrees == NULL && batch == 4 ? 4 : micro_batch,
                   .micro_steps =
                       (int32_t)(batch / gpus / micro_batch > 0 ? batch / gpus / micro_batch : 1),
                   .recompute_open = recompute == NULL,
                   .recompute = mics_json_real(recompute)};
}

// What it takes at the published batch, recomputed or not.
static mics_status step_us(mics_planner *planner, const asked *a, bool recompute, double *us_out)
{
    mics_plan_entry entry;
    if (strcmp(a->way, "megatron") == 0) {
        const mics_plan_space space = {.recompute_given = !a->recompute_open,
                                       .recompute = mics_recompute_all(recompute),
                                       .micro_batch = a->micro_batch,
                                       .pipeline = a->pipeline};
        MICS_TRY(mics_planner_baseline(planner, &space, MICS_PLAN_MEGATRON, &entry));
    } else {
        const mics_plan_choice choice = {.sharding =
                                             sharding_of(a->way, mics_planner_ranks(planner)),
                                         .micro_batch = a->micro_batch,
                                         .micro_steps = a->micro_steps,
                                         .prefetch = 1,
                                         .recompute = mics_recompute_all(recompute),
                                         .sums_by_ring = true,
                                         .all_reduces = true};
        MICS_TRY(mics_planner_evaluate(planner, &choice, &entry));
    }
    if (!(entry.step_us > 0))
        return mics_fail(MICS_ERR_INVALID, "%s has no such cut", a->way);
    *us_out = entry.step_us;
    return MICS_OK;
}

// A share of the layers recomputed takes that share of the difference.
static mics_status predict(mics_planner *planner, const asked *a, double *us_out)
{
    double kept = 0, again = 0;
    if (a->recompute < 1)
        MICS_TRY(step_us(planner, a, false, &kept));
    if (a->recompute > 0)
        MICS_TRY(step_us(planner, a, true, &again));
    *us_out = (1 - a->recompute) * kept + a->recompute * again;
    return MICS_OK;
}

static mics_status tokens_per_s(const rows *all, const mics_plan_request *wanted, const asked *a,
                                const constants *c, double *out)
{
    mics_plan_request request = *wanted;
    mics_planner *planner = NULL;
    mics_accelerator *chip = &request.cluster.accelerator;
    double us = 0;
    int32_t ranks = 0;
    if (c != NULL) {
        chip->matmul_kept *= c->matmul;
        chip->fp8_kept *= c->matmul;
        chip->attention_kept *= c->matmul;
        chip->memory_kept = c->memory;
    }
    MICS_TRY(mics_planner_open(all->memory, &request, &planner));
    ranks = mics_planner_ranks(planner);
    const mics_status status = predict(planner, a, &us);
    mics_planner_close(planner);
    *out = (double)(request.global_batch * request.length) / ranks / us * 1e6;
    return status;
}

// Chip, precision and what the ranks share beside data: "H100 fp8 tensor".
static void write_kind(const mics_plan_request *request, const asked *a, row *out)
{
    const mics_plan_pipeline *p = &a->pipeline;
    const mics_model *model = request->model;
    const char *ways = p->context > 1  ? "context"
                       : p->stages > 1 ? "pipeline"
                       : p->tensor > 1 ? "tensor"
                                       : "data";
    for (int32_t u = 0; u < model->unit_count; u++)
        ways = model->units[u].experts > 0 ? "experts" : ways;
    snprintf(out->kind, sizeof out->kind, "%.*s %s %s", (int)strcspn(out->chip, "-"), out->chip,
             mics_math_text(request->math), ways);
}

static mics_status plan_row(rows *all, const mics_json_value *line, const char *text, row *out)
{
    const int64_t gpus = number(line, "gpus"), batch = number(line, "batch");
    const mics_software *software = mics_software_find(out->software);
    mics_model *model = NULL;
    mics_plan_request request = {
        .nodes = (int32_t)number(line, "nodes"),
        .length = sources_length(line),
        .precision = MICS_PRECISION_MIXED,
        .math = strcmp(text_at(line, "precision"), "fp8") == 0 ? MICS_MATH_FP8 : MICS_MATH_BF16,
        .accelerator = true};
    if (software == NULL)
        return mics_fail(MICS_ERR_INVALID, "software %s is not known", out->software);
    request.global_batch =
        batch > 0 ? batch : gpus * number(line, "micro_batch") * number(line, "accumulation");
    MICS_TRY(open_cluster(all, line, text, software, &request.cluster));
    const asked a = asked_of(all, line, request.global_batch, software->era);
    MICS_TRY(sources_model(&all->rules, all->memory, all->configs, line, &model));
    request.model = model;
    request.software = software;
    const int64_t sizes[] = {model->unit_count, model->hidden, request.length, model->vocab};
    memcpy(out->shape, sizes, sizeof sizes);
    snprintf(out->chip, sizeof out->chip, "%s", request.cluster.accelerator.name);
    write_kind(&request, &a, out);
    mics_status status = tokens_per_s(all, &request, &a, NULL, &out->predicted);
    for (int i = 0; all->fits && status == MICS_OK && i < TRIED; i++)
        status = tokens_per_s(all, &request, &a, &tried[i], &out->with[i]);
    mics_model_close(model);
    return status;
}

// ---- the file ----

static void copy_text(const mics_json_value *line, const char *key, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "%s", text_at(line, key));
}

static mics_status read_line(rows *all, const char *text)
{
    mics_json *json = NULL;
    if (all->count == MAX_ROWS)
        return mics_fail(MICS_ERR_INVALID, "more than %d rows", MAX_ROWS);
    MICS_TRY(mics_json_parse(all->memory, "row", text, strlen(text), &json));
    const mics_json_value *line = mics_json_root(json);
    row *r = &all->items[all->count++];
    copy_text(line, "id", r->id);
    copy_text(line, "group", r->group);
    copy_text(line, "source", r->source);
    snprintf(r->software, sizeof r->software, "%s", sources_software(&all->rules, line));
    r->measured = mics_json_real(mics_json_get(line, "tokens_per_s_gpu"));
    const mics_status status = plan_row(all, line, text, r);
    if (status != MICS_OK)
        (void)mics_fail(status, "%s cannot be planned", r->id);
    mics_json_close(json);
    return status;
}

mics_status rows_read(rows *all, const char *path)
{
    static char text[MAX_LINE];
    FILE *file = fopen(path, "r");
    mics_status status = MICS_OK;
    if (file == NULL)
        return mics_fail(MICS_ERR_IO, "%s cannot be read", path);
    while (status == MICS_OK && fgets(text, sizeof text, file) != NULL) {
        if (text[0] == '{')
            status = read_line(all, text);
    }
    fclose(file);
    return status;
}
