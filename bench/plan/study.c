// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Models, clusters, and ZeRO-3 as it ran then.
#include "study.h"
#include "base/json.h"
#include "mics/log.h"
#include "model/from_config.h"
#include <string.h>

enum { CONFIG_MAX_BYTES = 1 << 20 };

static mics_status open_cluster(study *s, const char *text, const char *name)
{
    mics_json *json = NULL;
    if (text == NULL)
        return mics_cluster_find(name, &s->cluster);
    MICS_TRY(mics_json_parse(s->memory, "cluster", text, strlen(text), &json));
    const mics_status status = mics_cluster_parse(json, &s->cluster);
    mics_json_close(json);
    return status;
}

mics_status study_open(study *s, const char *config, int64_t length, const char *cluster,
                       const char *name)
{
    mics_json *json = NULL;
    *s = (study){.length = length};
    MICS_TRY(mics_memory_open(&s->memory));
    MICS_TRY(open_cluster(s, cluster, name));
    MICS_TRY(mics_json_load(s->memory, config, CONFIG_MAX_BYTES, &json));
    const mics_status status = mics_model_from_config(s->memory, json, false, &s->model);
    mics_json_close(json);
    MICS_TRY(status);
    s->layers = s->model->unit_count - 2;
    s->width = (double)s->model->hidden;
    s->vocab = (double)s->model->vocab;
    return MICS_OK;
}

void study_close(study *s)
{
    mics_model_close(s->model);
    mics_memory_close(s->memory);
}

double study_flops(const study *s, double sequences)
{
    const double l = s->layers, h = s->width, length = (double)s->length;
    return 96 * sequences * length * l * h * h * (1 + length / (6 * h) + s->vocab / (16 * l * h));
}

mics_plan_request study_request(const study *s, int32_t nodes, int64_t global_batch)
{
    return (mics_plan_request){.model = s->model,
                               .cluster = s->cluster,
                               .nodes = nodes,
                               .length = s->length,
                               .global_batch = global_batch,
                               .precision = MICS_PRECISION_MIXED,
                               .math = MICS_MATH_FP16,
                               .accelerator = true,
                               .param_persistence_threshold = 16384};
}

// ---- the smallest group that fits ----

static bool is_degree(int32_t p, int32_t ranks, int32_t per_node)
{
    return ranks % p == 0 && (per_node % p == 0 || p % per_node == 0);
}

static mics_status search_one(mics_planner *planner, const mics_plan_space *space,
                              mics_plan_entry *entry_out)
{
    mics_plan_result *result = NULL;
    MICS_TRY(mics_planner_search(planner, space, 1, &result));
    *entry_out = result->count > 0 ? result->entries[0] : result->nearest;
    mics_plan_result_close(result);
    return MICS_OK;
}

mics_status study_smallest(const study *s, int32_t nodes, int64_t global_batch, int64_t micro_batch,
                           mics_plan_family family, bool paper, mics_plan_entry *entry_out)
{
    const mics_plan_request request = study_request(s, nodes, global_batch);
    const int32_t per_node = mics_cluster_ranks_per_node(&s->cluster), ranks = nodes * per_node;
    mics_plan_space space = {.family = family,
                             .micro_batch = micro_batch,
                             .layered_micro_steps = 1,
                             .recompute_given = micro_batch > 0,
                             .recompute = {.units = MICS_RECOMPUTE_ALL},
                             .collectives_given = paper,
                             .gather_two_stage = true,
                             .sums_by_ring = paper,
                             .all_reduces = paper};
    mics_planner *planner = NULL;
    mics_status status = mics_planner_open(s->memory, &request, &planner);
    entry_out->fits = false;
    for (int32_t ahead = 1; status == MICS_OK && !entry_out->fits && ahead >= 0; ahead--) {
        space.prefetch_least = ahead;
        for (int32_t p = 1; status == MICS_OK && !entry_out->fits && p <= ranks; p++) {
            space.params = p;
            if (is_degree(p, ranks, per_node))
                status = search_one(planner, &space, entry_out);
        }
    }
    mics_planner_close(planner);
    return status;
}
