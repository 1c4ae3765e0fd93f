// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which ways there are to cut a model over tensor-, context- and expert-parallel ranks and stages,
// and what would work in place of one that is none.
#include "base/text.h"
#include "plan/search/baseline.h"
#include "plan/search/megatron.h"
#include <string.h>

enum { MAX_NAMED = 10 };

// ---- sizes ----

static int32_t key_value_heads(const mics_model *model)
{
    const mics_unit *layer = &model->units[1];
    for (int32_t o = 0; o < layer->op_count; o++) {
        if (layer->ops[o].heads.key_value > 0)
            return (int32_t)layer->ops[o].heads.key_value;
    }
    return 0;
}

static int32_t experts_of(const mics_model *model)
{
    for (int32_t u = 1; u < model->unit_count - 1; u++) {
        for (int32_t o = 0; o < model->units[u].op_count; o++) {
            if (model->units[u].ops[o].experts.count > 0)
                return model->units[u].ops[o].experts.count;
        }
    }
    return 0;
}

cut_sizes cut_sizes_of(const mics_planner *planner)
{
    const mics_model *model = planner->request.model;
    const int32_t layers =
        not_modelled_text(planner) != NULL ? 0 : mics_model_computing_units(model) - 2;
    return (cut_sizes){.ranks = planner->ranks,
                       .per_node = planner->ranks_per_node,
                       .layers = layers > 0 ? layers : 0,
                       .heads = layers > 0 ? key_value_heads(model) : 0,
                       .experts = layers > 0 ? experts_of(model) : 0,
                       .length = planner->request.length};
}

layer_elems cut_layer_elems(const mics_model *model)
{
    const int32_t layers = mics_model_computing_units(model) - 2;
    double dense = 0, experts = 0;
    for (int32_t u = 1; u < model->unit_count - 1; u++) {
        const mics_unit *unit = &model->units[u];
        *(unit->experts == 0 ? &dense : &experts) += (double)unit->elems;
    }
    return (layer_elems){.dense = dense / layers, .experts = experts / layers};
}

// ---- what is possible ----

static bool divides(int64_t part, int64_t whole)
{
    return whole % part == 0;
}

static bool spreads_evenly(const cut_sizes *s, int32_t e, int32_t stage_ranks)
{
    return e == 1 || (s->experts > 0 && divides(e, s->experts) && divides(e, stage_ranks) &&
                      (e <= s->per_node || divides(s->per_node, e)));
}

bool cut_is_possible(const cut_sizes *s, const mics_plan_pipeline *p)
{
    const int64_t together = (int64_t)p->tensor * p->context * p->stages;
    return s->layers > 0 && s->heads > 0 && divides(p->tensor, s->per_node) &&
           divides(p->tensor, s->heads) && together <= s->ranks && divides(together, s->ranks) &&
           (p->context == 1 || divides(2 * (int64_t)p->context, s->length)) &&
           (int64_t)p->stages * p->chunks <= s->layers + (p->chunks > 1 ? TABLES : 0) &&
           (p->stages > 1 || p->chunks == 1) && spreads_evenly(s, p->expert, s->ranks / p->stages);
}

// ---- what would work ----

typedef enum axis { TENSOR, STAGES, CHUNKS, CONTEXT, EXPERT, AXES } axis;

static int32_t *degree_at(mics_plan_pipeline *p, axis which)
{
    int32_t *const degrees[AXES] = {[TENSOR] = &p->tensor,
                                    [STAGES] = &p->stages,
                                    [CHUNKS] = &p->chunks,
                                    [CONTEXT] = &p->context,
                                    [EXPERT] = &p->expert};
    return degrees[which];
}

// The largest that a degree may have, whatever the others are.
static int32_t largest(const cut_sizes *s, axis which)
{
    const int32_t most[AXES] = {[TENSOR] = s->per_node,
                                [STAGES] = s->layers < s->ranks ? s->layers : s->ranks,
                                [CHUNKS] = s->layers,
                                [CONTEXT] = s->ranks,
                                [EXPERT] = s->experts > 1 ? s->experts : 1};
    return most[which];
}

// Whether there is a cut with the degrees that are above 0, whatever the others. Those that are
// free are 1, but chunks of more than one need stages.
static bool exists(const cut_sizes *s, const mics_plan_pipeline *degrees)
{
    mics_plan_pipeline p = *degrees;
    for (int which = 0; which < AXES; which++) {
        int32_t *degree = degree_at(&p, (axis)which);
        *degree = *degree > 0 ? *degree : 1;
    }
    if (degrees->stages > 0 || p.chunks == 1)
        return cut_is_possible(s, &p);
    for (p.stages = 2; p.stages <= largest(s, STAGES); p.stages++) {
        if (cut_is_possible(s, &p))
            return true;
    }
    return false;
}

// "1, 2, 4 or 8"; the first ones, where there are many.
static void name_those(const cut_sizes *s, mics_plan_pipeline degrees, axis which, char *text,
                       size_t bytes)
{
    int32_t good[MAX_NAMED + 1], count = 0;
    int32_t *degree = degree_at(&degrees, which);
    text[0] = '\0';
    for (*degree = 1; *degree <= largest(s, which) && count <= MAX_NAMED; (*degree)++) {
        if (exists(s, &degrees))
            good[count++] = *degree;
    }
    for (int32_t i = 0; i < count; i++) {
        const size_t used = strlen(text);
        if (i == MAX_NAMED) {
            mics_text_format(text + used, bytes - used, " ...");
            break;
        }
        const bool last = i == count - 1;
        mics_text_format(text + used, bytes - used, "%s%d", i == 0 ? "" : (last ? " or " : ", "),
                         (int)good[i]);
    }
}

// Why a degree is none that works, by itself or beside others.
static void explain_axis(const cut_sizes *s, const mics_plan_pipeline *degrees, axis which,
                         bool alone, char *text, size_t bytes)
{
    static const char *const names[AXES] = {[TENSOR] = "tensor-parallel ranks",
                                            [STAGES] = "pipeline stages",
                                            [CHUNKS] = "chunks of a stage",
                                            [CONTEXT] = "context-parallel ranks",
                                            [EXPERT] = "expert-parallel ranks"};
    static const char *const rules[AXES] = {
        [TENSOR] = "they divide a node's ranks, and the key-value heads",
        [STAGES] = "with t and c they divide the ranks, and each has a layer",
        [CHUNKS] = "each has a layer, and one stage has one chunk",
        [CONTEXT] = "2 x c divides a sequence's tokens, and with t and p c divides the ranks",
        [EXPERT] =
            "they divide the experts and the ranks of a stage, within a node or whole nodes"};
    mics_plan_pipeline own = {0}, asked = *degrees;
    char good[96];
    *degree_at(&own, which) = *degree_at(&asked, which);
    name_those(s, alone ? own : asked, which, good, sizeof good);
    mics_text_format(text, bytes, "no cut into %d %s%s: %s; %s", (int)*degree_at(&asked, which),
                     names[which], alone ? "" : " beside the other degrees", rules[which],
                     good[0] != '\0' ? good : "none");
    const size_t used = strlen(text);
    mics_text_format(text + used, bytes - used, " would work");
}

void mics_planner_no_cut(const mics_planner *planner, const mics_plan_pipeline *degrees, char *text,
                         size_t bytes)
{
    const cut_sizes sizes = cut_sizes_of(planner);
    mics_plan_pipeline asked = *degrees;
    int last = -1;
    text[0] = '\0';
    if (exists(&sizes, degrees))
        return;
    if (sizes.layers == 0 || sizes.heads == 0) {
        const char *why = not_modelled_text(planner);
        mics_text_format(text, bytes, "%s",
                         why != NULL ? why
                                     : "the model has no layers with attention that could be cut");
        return;
    }
    for (int which = 0; which < AXES; which++) {
        mics_plan_pipeline own = {0};
        *degree_at(&own, (axis)which) = *degree_at(&asked, (axis)which);
        last = *degree_at(&asked, (axis)which) > 0 ? which : last;
        if (!exists(&sizes, &own)) {
            explain_axis(&sizes, degrees, (axis)which, true, text, bytes);
            return;
        }
    }
    explain_axis(&sizes, degrees, (axis)last, false, text, bytes);
}
