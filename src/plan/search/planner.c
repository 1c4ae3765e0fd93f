// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A planner from outside: what is asked for is checked, and the space's axes are listed.
#include "plan/search/planner.h"
#include "base/free.h"
#include "mics/builder.h"
#include "mics/log.h"
#include "plan/search/baseline.h"
#include "plan/search/choice.h"
#include "plan/search/probe.h"

// A step has fewer sequences and tokens than that: sizes multiplied stay far from overflow.
static const int64_t max_tokens = (int64_t)1 << 40;

// ---- checks ----

static mics_status check_request(const mics_plan_request *request, int32_t *ranks_out)
{
    const mics_model *model = request->model;
    int32_t ranks = 0;
    MICS_TRY(mics_cluster_ranks(&request->cluster, request->nodes, &ranks));
    if (request->length < 1 || request->length > model->positions)
        return mics_fail(MICS_ERR_INVALID,
                         "sequences of %lld tokens: the model has %lld positions; 1 to %lld work",
                         (long long)request->length, (long long)model->positions,
                         (long long)model->positions);
    if (request->global_batch < 1 || request->global_batch > max_tokens / request->length)
        return mics_fail(MICS_ERR_INVALID,
                         "a global batch of %lld sequences of %lld tokens: 1 to %lld work",
                         (long long)request->global_batch, (long long)request->length,
                         (long long)(max_tokens / request->length));
    if ((unsigned)request->precision >= MICS_PRECISIONS || (unsigned)request->math >= MICS_MATHS)
        return mics_fail(MICS_ERR_INVALID, "precision: fp32 or mixed, in fp32, tf32, bf16 or fp16");
    *ranks_out = ranks;
    return MICS_OK;
}

// ---- axes ----

static bool is_degree(int32_t degree, int32_t ranks, int32_t per_node)
{
    return ranks % degree == 0 && (per_node % degree == 0 || degree % per_node == 0);
}

static void list_degrees(mics_planner *planner)
{
    for (int32_t degree = 1; degree <= planner->ranks; degree++) {
        if (is_degree(degree, planner->ranks, planner->ranks_per_node) &&
            planner->degree_count < MAX_DEGREES)
            planner->degrees[planner->degree_count++] = degree;
    }
}

// Divisors of a rank's share, and the run file's own.
static mics_status list_micro_batches(mics_planner *planner)
{
    const int64_t share = rank_share(planner), own = planner->request.micro_batch;
    int32_t count = 0;
    void *block = NULL;
    for (int64_t size = 1; size <= share / size; size++)
        count += share % size != 0 ? 0 : (size == share / size ? 1 : 2);
    const bool adds = own > 0 && own < share && share % own != 0;
    MICS_TRY(mics_alloc(planner->memory, MICS_MEM_HOST, (size_t)(count + adds) * sizeof(int64_t),
                        &block));
    planner->micro_batches = block;
    planner->micro_batch_count = count;
    int32_t low = 0, high = count;
    for (int64_t size = 1; size <= share / size; size++) {
        if (share % size != 0)
            continue;
        planner->micro_batches[low++] = size;
        if (size != share / size)
            planner->micro_batches[--high] = share / size;
    }
    if (!adds)
        return MICS_OK;
    int32_t at = planner->micro_batch_count++;
    for (; planner->micro_batches[at - 1] > own; at--)
        planner->micro_batches[at] = planner->micro_batches[at - 1];
    planner->micro_batches[at] = own;
    return MICS_OK;
}

static mics_status open_tables(mics_planner *planner)
{
    void *block = NULL;
    list_degrees(planner);
    MICS_TRY(list_micro_batches(planner));
    MICS_TRY(mics_alloc(planner->memory, MICS_MEM_HOST,
                        (size_t)planner->micro_batch_count * sizeof(batch_probe *), &block));
    planner->batches = block;
    MICS_TRY(mics_alloc(planner->memory, MICS_MEM_HOST,
                        2 * (size_t)planner->degree_count * sizeof(boundary_probe), &block));
    planner->boundaries = block;
    return probe_classes(planner);
}

static void close_planner(mics_planner *planner)
{
    mics_memory *memory = planner->memory;
    close_structures(planner);
    MICS_FREE_ALL(memory, planner->micro_batches, planner->classes, planner->class_of);
    close_batches(planner);
    mics_free(memory, planner->boundaries);
    mics_free(memory, planner);
}

void mics_planner_close(mics_planner *planner)
{
    while (planner != NULL) {
        mics_planner *next = planner->next;
        close_planner(planner);
        planner = next;
    }
}

// ---- from outside ----

static mics_status open_planner(mics_memory *memory, const mics_plan_request *request,
                                int32_t experts, int32_t sequence, mics_planner **planner_out)
{
    int32_t ranks = 0;
    void *block = NULL;
    MICS_TRY(check_request(request, &ranks));
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, sizeof(mics_planner), &block));
    mics_planner *planner = block;
    const mics_accelerator *device = &request->cluster.accelerator;
    planner->memory = memory;
    planner->experts = experts;
    planner->sequence = sequence;
    planner->request = *request;
    planner->request.cluster = mics_cluster_on_nodes(&request->cluster, request->nodes);
    planner->world = ranks;
    planner->ranks = request->outer.every > 0 ? request->outer_ranks : ranks;
    planner->ranks_per_node = mics_cluster_ranks_per_node(&request->cluster);
    planner->available_bytes = request->memory_bytes > 0
                                   ? request->memory_bytes
                                   : device->memory_bytes - device->reserve_bytes;
    planner->limit_bytes = planner->available_bytes;
    // Libraries whose ring steps overlap choose trees where those are faster.
    planner->simulate =
        (mics_simulate_options){.math = request->math, .trees = request->cluster.pipelined};
    if (planner->request.threads < 1)
        planner->request.threads = 1;
    const mics_status status = open_tables(planner);
    if (status != MICS_OK) {
        mics_planner_close(planner);
        return status;
    }
    *planner_out = planner;
    return MICS_OK;
}

mics_status mics_planner_open(mics_memory *memory, const mics_plan_request *request,
                              mics_planner **planner_out)
{
    return open_planner(memory, request, 1, 1, planner_out);
}

bool can_spread(const mics_planner *planner, int32_t experts)
{
    return experts == 1 || mics_model_can_spread(planner->request.model, experts);
}

// The first one holds the others.
bool can_cut(const mics_planner *planner, int32_t sequence)
{
    const mics_plan_request *request = &planner->request;
    return sequence == 1 ||
           (planner->ranks_per_node % sequence == 0 &&
            request->preference.kind == MICS_PREFERENCE_NONE &&
            mics_model_can_cut_sequences(request->model, sequence) &&
            ((request->length - 1) / sequence + 1) * sequence <= request->model->positions);
}

mics_status planner_of(mics_planner *planner, int32_t experts, int32_t sequence,
                       mics_planner **of_out)
{
    const int32_t wanted = experts > 0 ? experts : 1, cut = sequence > 0 ? sequence : 1;
    mics_planner *first = planner->first != NULL ? planner->first : planner, *of = first;
    while (of != NULL && (of->experts != wanted || of->sequence != cut))
        of = of->next;
    if (of == NULL) {
        mics_planner *whole = NULL;
        if (cut > 1)
            MICS_TRY(planner_of(first, wanted, 1, &whole));
        MICS_TRY(open_planner(planner->memory, &planner->request, wanted, cut, &of));
        of->first = first;
        of->whole = whole;
        of->next = first->next;
        first->next = of;
    }
    *of_out = of;
    return MICS_OK;
}

int32_t mics_planner_ranks(const mics_planner *planner)
{
    return planner->world;
}

double mics_planner_memory_bytes(const mics_planner *planner)
{
    return planner->available_bytes;
}

const char *mics_plan_baseline_text(mics_plan_baseline baseline)
{
    static const char *const texts[MICS_PLAN_BASELINES] = {
        [MICS_PLAN_DDP] = "ddp",     [MICS_PLAN_ZERO1] = "zero1",
        [MICS_PLAN_ZERO2] = "zero2", [MICS_PLAN_ZERO3] = "zero3",
        [MICS_PLAN_MICS] = "mics",   [MICS_PLAN_MICS_PLUS] = "mics+",
        [MICS_PLAN_HPZ] = "hpz",     [MICS_PLAN_MEGATRON] = "megatron",
    };
    return (unsigned)baseline < MICS_PLAN_BASELINES ? texts[baseline] : "?";
}
