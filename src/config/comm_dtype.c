// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Communication dtypes, and which keys of run.comm_dtype would have no effect.
#include "config/keys.h"
#include <stdio.h>
#include <string.h>

static const char params_key[] = "run.comm_dtype.params";
static const char boundary_key[] = "run.comm_dtype.boundary";
static const char intra_key[] = "run.comm_dtype.bf16_intra_node";

void mics_config_fill_comm_dtypes(config *run)
{
    const mics_comm_dtype own = MICS_COMM_FP32;
    const mics_comm_dtype intra = run->bf16_intra_node ? MICS_COMM_BF16 : own;
    // communication_data_type is of all gradients, wherever they are sent.
    const bool typed = run->comm_type != NULL && strcmp(run->comm_type, "fp32") != 0;
    const mics_comm_dtype grads_intra = typed ? MICS_COMM_BF16 : intra;
    run->run.delta_sync = strcmp(run->params_dtype, "delta") == 0;
    run->run.params_dtype = (mics_comm_dtypes){
        intra, run->run.delta_sync ? own : mics_config_comm_dtype(run->params_dtype)};
    run->run.grads_dtype =
        (mics_comm_dtypes){grads_intra, mics_config_comm_dtype(run->grads_dtype)};
    run->run.boundary_auto = strcmp(run->asked_boundary, "auto") == 0;
    const bool open = strcmp(run->boundary_dtype, "auto") == 0;
    run->run.boundary_dtype = (mics_comm_dtypes){
        grads_intra, open ? MICS_COMM_FP32 : mics_config_comm_dtype(run->boundary_dtype)};
}

// Gradients of a bf16 run have no more than bf16's bits to lose. A GPU's reductions of fp32 are
// NCCL's. In one ring over nodes of several ranks each would send to every other one: more bytes
// than fp32 has.
void mics_config_settle_boundary(config *run, int32_t ranks_per_node)
{
    const bool ring = run->run.collectives == MICS_COLLECTIVES_RING && ranks_per_node > 1;
    const bool mixed =
        run->run.precision == MICS_RUN_PRECISION_BF16 && run->run.device == MICS_RUN_DEVICE_CPU;
    if (!run->run.boundary_auto)
        return;
    if (run->run.rounded_sums) {
        mics_config_set_origin(run, boundary_key, "auto: sent as data_types.grad_accum_dtype");
        return;
    }
    run->boundary_dtype = mixed && !ring ? "bf16" : "fp32";
    mics_config_set_origin(run, boundary_key,
                           !mixed ? "auto: fp32"
                           : ring ? "auto: fp32 in one ring"
                                  : "auto: bf16 as run.precision");
    mics_config_fill_comm_dtypes(run);
}

// ---- keys without effect ----

// Which links something is sent over.
typedef struct links {
    bool intra, inter;
} links;

typedef struct reach {
    int32_t ranks, per_node;
    mics_sharding sharding;
    bool stages; // collectives over several nodes run in two
} reach;

// The links of a collective from degree `inner` to degree `outer`.
static links links_of(const reach *r, int32_t inner, int32_t outer)
{
    const int32_t k = r->per_node;
    if (inner == outer)
        return (links){false, false};
    return (links){.intra = inner < k && (outer <= k || r->stages), .inter = outer > k};
}

static links both(links a, links b)
{
    return (links){a.intra || b.intra, a.inter || b.inter};
}

// The parameter sync carries rounded numbers where gathers round all that they bring.
static links params_links(const reach *r, mics_comm_dtypes dtypes)
{
    const mics_sharding s = r->sharding;
    const links gathers = links_of(r, 1, s.params);
    const mics_comm_dtype rounds = s.params > r->per_node ? dtypes.inter : dtypes.intra;
    return s.params > 1 && rounds != MICS_COMM_FP32
               ? both(gathers, links_of(r, s.params, s.optimizer))
               : gathers;
}

// What a key is about, and which sharding would have it.
typedef struct dtype_key {
    const char *path, *said;
    links links;
    const char *what, *needs;
} dtype_key;

static mics_status refuse(const config *run, const reach *r, const char *path, const char *said,
                          const char *why, const char *instead)
{
    const mics_sharding s = r->sharding;
    return mics_json_fail(run->run.json, path, MICS_ERR_INVALID,
                          "%s would have no effect: with P|G|O = %d|%d|%d on %d ranks, %d a node, "
                          "%s; leave it out%s",
                          said, (int)s.params, (int)s.grads, (int)s.optimizer, (int)r->ranks,
                          (int)r->per_node, why, instead);
}

static mics_status check_inter(const config *run, const reach *r, const dtype_key *of)
{
    char said[16], why[96], instead[96] = "";
    // communication_data_type says two keys at once, of which one may well have no effect.
    const bool counts =
        mics_config_given(run, of->path) && (run->comm_type == NULL || of->path == params_key);
    if (!counts || strcmp(of->said, "fp32") == 0 || of->links.inter)
        return MICS_OK;
    snprintf(said, sizeof said, "\"%s\"", of->said);
    snprintf(why, sizeof why, "%s not sent inter-node", of->what);
    if (of->links.intra)
        snprintf(instead, sizeof instead, ", or set %s, for intra-node links", intra_key);
    else if (r->ranks > r->per_node)
        snprintf(instead, sizeof instead, ", or take a sharding with %s", of->needs);
    return refuse(run, r, of->path, said, why, instead);
}

static mics_status check_intra(const config *run, const reach *r, links all)
{
    const mics_run_precision precision = run->run.precision;
    const bool mixed = // parameters are sent as they are held
        precision == MICS_RUN_PRECISION_BF16 || precision == MICS_RUN_PRECISION_FP16;
    if (!run->bf16_intra_node || !mics_config_given(run, intra_key))
        return MICS_OK;
    if (!all.intra)
        return refuse(run, r, intra_key, "true", "nothing is sent intra-node",
                      r->per_node > 1 && !r->stages ? ", or take run.collectives \"two-stage\""
                                                    : "");
    if (!mixed && r->sharding.params > r->per_node && strcmp(run->params_dtype, "fp32") == 0)
        return mics_json_fail(run->run.json, intra_key, MICS_ERR_INVALID,
                              "parameters as bf16 intra-node and fp32 inter-node would save "
                              "where it costs least; write %s \"bf16\" too",
                              params_key);
    return MICS_OK;
}

// Rounded sums are sent as they are held, and gradients that are split are added up in fp32.
static mics_status check_sums(const config *run, const reach *r)
{
    static const char path[] = "data_types.grad_accum_dtype";
    if (!run->run.rounded_sums)
        return MICS_OK;
    if (r->sharding.grads > 1)
        return mics_json_fail(run->run.json, path, MICS_ERR_UNSUPPORTED,
                              "sums in %s are of gradients that are not split, and sharding.grads "
                              "is %d; use \"fp32\", or sharding.params and sharding.grads 1",
                              run->sum_dtype, (int)r->sharding.grads);
    if (!run->run.boundary_auto &&
        (mics_config_given(run, boundary_key) || run->comm_type != NULL) &&
        strcmp(run->boundary_dtype, run->sum_dtype) != 0)
        return mics_json_fail(run->run.json, boundary_key, MICS_ERR_INVALID,
                              "\"%s\" would have no effect: sums in %s (%s) are sent as they are; "
                              "leave it out, or sum in \"fp32\"",
                              run->boundary_dtype, run->sum_dtype, path);
    return MICS_OK;
}

// Changes are coded of numbers in bf16, by CPUs.
static mics_status check_delta(const config *run)
{
    if (!run->run.delta_sync)
        return MICS_OK;
    if (run->run.precision != MICS_RUN_PRECISION_BF16)
        return mics_json_fail(run->run.json, params_key, MICS_ERR_INVALID,
                              "\"delta\" is for parameters in bf16, and run.precision is \"%s\"; "
                              "leave it out, or take run.precision \"bf16\"",
                              mics_run_precision_text(run->run.precision));
    if (run->run.device == MICS_RUN_DEVICE_CUDA)
        return mics_json_fail(run->run.json, params_key, MICS_ERR_UNSUPPORTED,
                              "\"delta\": this version codes parameter sync on CPUs only; leave it "
                              "out, or set run.device to \"cpu\"");
    return MICS_OK;
}

// A run of one rank sends nothing, whatever it says: such files are tried out on one.
mics_status mics_run_check_comm_dtypes(const mics_run *public_run, int32_t ranks, int32_t nodes)
{
    const config *run = (const config *)public_run; // invariant 1 of keys.h
    const mics_run_island island = mics_run_island_of(&run->run, ranks, nodes);
    const reach r = {.ranks = island.ranks,
                     .per_node = island.ranks / island.nodes,
                     .sharding = run->run.sharding,
                     .stages = run->run.collectives != MICS_COLLECTIVES_RING};
    const mics_sharding s = r.sharding;
    const bool delta = run->run.delta_sync;
    const links params = params_links(&r, run->run.params_dtype);
    const links synced = {.inter = links_of(&r, s.params, s.optimizer).inter};
    const dtype_key keys[] = {
        {.path = params_key,
         .said = run->params_dtype,
         .links = delta ? synced : params,
         .what = delta ? "what is updated is" : "parameters are",
         .needs = delta ? "O above P, over several nodes" : "P over several nodes"},
        {.path = "run.comm_dtype.grads",
         .said = run->grads_dtype,
         .links = links_of(&r, 1, s.grads),
         .what = "gradients of a micro-step are",
         .needs = "G over several nodes"},
        {.path = boundary_key,
         .said = run->boundary_dtype,
         .links = both(links_of(&r, s.grads, s.optimizer), links_of(&r, s.optimizer, r.ranks)),
         .what = "gradients at the accumulation boundary are",
         .needs = "G below the number of ranks"},
    };
    links all = params;
    if (r.ranks == 1)
        return MICS_OK;
    MICS_TRY(check_sums(run, &r));
    MICS_TRY(check_delta(run));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        MICS_TRY(check_inter(run, &r, &keys[i]));
        all = both(all, keys[i].links);
    }
    return check_intra(run, &r, all);
}
