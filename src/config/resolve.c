// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Batch sizes and sharding, which depend on how many ranks there are.
#include "base/size.h"
#include "config/keys.h"
#include "mics/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char train_key[] = "train_batch_size";
static const char micro_key[] = "train_micro_batch_size_per_gpu";
static const char steps_key[] = "gradient_accumulation_steps";
static const char zero_key[] = "zero_optimization";
static const char shard_key[] = "zero_optimization.mics_shard_size";
static const char hpz_key[] = "zero_optimization.zero_hpz_partition_size";
static const char sdp_key[] = "sharded_data_parallel_degree";
static const char hybrid_key[] = "hybrid_shard_degree";
static const char fsdp_key[] = "fsdp_sharding_strategy";
static const char degree_key[] = "data_parallel_shard_degree";
static const char replicate_key[] = "data_parallel_replicate_degree";
static const char sequence_key[] = "sharding.sequence";

// ---- batch ----

typedef struct batch {
    int64_t train, micro, steps;
} batch;

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

// What `ranks` of this part are: each takes sequences of its own.
static const char *ranks_text(const config *run)
{
    return run->run.sequence > 1 ? "data ranks (ranks / sharding.sequence)" : "ranks";
}

// Whether the file's micro-batch and micro-steps, where it gives both, are of some number of ranks.
static bool is_of_kept_batch(const config *run)
{
    int64_t of_rank = 0;
    if (run->kept_train == 0 || (run->train_batch != 0 && run->train_batch != run->kept_train))
        return false;
    if (run->micro_batch == 0 || run->micro_steps == 0)
        return true;
    return mics_size_mul(run->micro_batch, run->micro_steps, &of_rank) == MICS_OK &&
           run->kept_train % of_rank == 0;
}

// The stored global batch on another number of ranks: the micro-batch stays where it divides what a
// rank gets, else it is the next smaller one that does. So memory does not grow. Where ranks do not
// divide the batch, rows count nothing anyway, and up to an eighth more may do so.
static mics_status resolve_kept(const config *run, int32_t ranks, batch *batch_out)
{
    enum { SPARE = 8 };
    const int64_t train = run->kept_train, of_rank = divide_up(train, ranks);
    const int64_t most = of_rank + (train % ranks != 0 ? of_rank / SPARE : 0);
    int64_t micro = run->micro_batch != 0 ? run->micro_batch : run->kept_micro;
    micro = micro < of_rank ? micro : of_rank;
    while (divide_up(of_rank, micro) * micro > most)
        micro--;
    *batch_out = (batch){train, micro, divide_up(of_rank, micro)};
    return MICS_OK;
}

// Rows that no sequence is left for stand in the last micro-step alone.
static mics_status check_rows(const config *run, const batch *b, int32_t ranks)
{
    const int64_t needed = divide_up(b->train, b->micro * ranks);
    if (needed == b->steps)
        return MICS_OK;
    return mics_json_fail(run->run.json, steps_key, MICS_ERR_INVALID,
                          "%" PRId64 " micro-steps of %d %s are more than train_batch_size "
                          "%" PRId64 " has sequences for; at most %" PRId64 " would work",
                          b->steps, (int)ranks, ranks_text(run), b->train, needed);
}

// DeepSpeed's rules: what is not given comes from the others, micro-steps being 1 in doubt. Where two
// are given the third is rounded up.
static mics_status resolve_given(const config *run, int32_t ranks, batch *batch_out)
{
    batch b = {run->train_batch, run->micro_batch, run->micro_steps};
    int64_t unit = 0;
    if (b.train != 0 && b.micro != 0 && b.steps == 0) {
        MICS_TRY(mics_size_mul(b.micro, ranks, &unit));
        b.steps = divide_up(b.train, unit);
    }
    if (b.steps == 0)
        b.steps = 1;
    const bool rounds = b.train != 0 && (run->micro_batch == 0 || run->micro_steps == 0);
    if (b.micro == 0) {
        MICS_TRY(mics_size_mul(b.steps, ranks, &unit));
        b.micro = divide_up(b.train, unit);
    }
    MICS_TRY(mics_size_mul(b.micro, b.steps, &unit));
    MICS_TRY(mics_size_mul(unit, ranks, &unit));
    if (rounds)
        MICS_TRY(check_rows(run, &b, ranks));
    else if (b.train != 0 && b.train != unit)
        return mics_json_fail(run->run.json, train_key, MICS_ERR_INVALID,
                              "%" PRId64 " is not %s %" PRId64 " x %s %" PRId64
                              " x %d %s = %" PRId64 "; leave one of the three out",
                              b.train, micro_key, b.micro, steps_key, b.steps, (int)ranks,
                              ranks_text(run), unit);
    b.train = b.train != 0 ? b.train : unit;
    *batch_out = b;
    return MICS_OK;
}

static bool is_titan(const config *run)
{
    return mics_config_given(run, degree_key) || mics_config_given(run, replicate_key);
}

// A file of our own words, which leaves more to "auto" than another engine's.
static bool is_own(const config *run)
{
    return !mics_config_given(run, zero_key) && run->sdp_degree == 0 && run->hybrid_degree == 0 &&
           run->fsdp_strategy == NULL && !is_titan(run);
}

// Whether how a global batch is cut is left to the planner.
static bool is_cut_open(const config *run)
{
    return is_own(run) && run->train_batch != 0 && run->micro_batch == 0 && run->micro_steps == 0;
}

// What an earlier start of the run chose, on as many ranks: the planner is not asked again.
static mics_status resolve_chosen(config *run, int32_t ranks, batch *b)
{
    const batch given = *b;
    MICS_TRY(resolve_kept(run, ranks, b));
    run->keeps_batch = b->micro != given.micro;
    return MICS_OK;
}

static const char *adopted_at(const config *run, const char *path)
{
    return run->adopted[mics_config_find(path)];
}

// A resumed run keeps its global batch where the file leaves a choice.
static mics_status resolve_batch(config *run, int32_t ranks, batch *batch_out)
{
    static const char *const keys[] = {train_key, micro_key, steps_key};
    const bool keeps = is_of_kept_batch(run);
    batch b = {0};
    const bool muted = mics_log_mute(true);
    mics_log_mute(muted || keeps);
    mics_status status = resolve_given(run, ranks, &b);
    mics_log_mute(muted);
    const bool says_nothing = run->micro_batch == 0 && run->micro_steps == 0;
    run->keeps_batch = keeps && (status != MICS_OK || b.train != run->kept_train ||
                                 (says_nothing && ranks != run->kept_ranks / run->kept_sequence));
    if (run->keeps_batch)
        status = resolve_kept(run, ranks, &b);
    else if (status == MICS_OK && keeps && is_cut_open(run))
        status = resolve_chosen(run, ranks, &b);
    MICS_TRY(status);
    run->run.batch_auto = is_cut_open(run) && !keeps && run->run.outer.every == 0;
    if (b.steps > INT32_MAX)
        return mics_json_fail(run->run.json, train_key, MICS_ERR_INVALID,
                              "would take %" PRId64 " micro-steps; take a larger micro-batch",
                              b.steps);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        mics_config_set_origin(run, keys[i],
                               run->keeps_batch               ? "checkpoint"
                               : run->run.batch_auto && i > 0 ? "auto: the fastest that fits"
                                                              : adopted_at(run, keys[i]));
    *batch_out = b;
    return MICS_OK;
}

// Recomputation is left to the planner together with the micro-batch; offload is found anew.
static void resolve_recompute(config *run)
{
    static const char recompute_key[] = "run.recompute", offload_key[] = "run.offload_activations";
    const bool given = mics_config_given(run, offload_key);
    run->run.offload_auto = given && !mics_config_valued(run, offload_key);
    run->run.offload_units = run->run.offload_auto ? 0 : run->run.offload_units;
    mics_config_set_origin(run, offload_key, given ? NULL : "default");
    const int32_t index = mics_config_find(recompute_key);
    run->run.recompute_auto =
        (mics_config_given(run, recompute_key) || (run->run.batch_auto && run->kept_train == 0)) &&
        !mics_config_valued(run, recompute_key);
    if (run->run.recompute_auto)
        run->run.recompute = mics_recompute_all(false);
    mics_config_set_origin(run, recompute_key,
                           run->run.recompute_auto            ? "auto: the fastest that fits"
                           : run->states[index] == KEY_ABSENT ? "default"
                                                              : run->adopted[index]);
}

// ---- sharding ----

static bool fits(int64_t degree, int64_t below, int32_t ranks, int32_t ranks_per_node)
{
    return degree >= below && degree <= ranks && degree % below == 0 && ranks % degree == 0 &&
           (ranks_per_node % degree == 0 || degree % ranks_per_node == 0);
}

bool mics_sharding_candidate(int32_t ranks, int32_t nodes, int32_t index,
                             mics_sharding *sharding_out)
{
    if (ranks < 1 || nodes < 1 || ranks % nodes != 0)
        return false;
    for (int32_t degree = 1; degree <= ranks; degree++) {
        if (fits(degree, 1, ranks, ranks / nodes) && index-- == 0) {
            *sharding_out = (mics_sharding){degree, degree, degree};
            return true;
        }
    }
    return false;
}

bool mics_prefetch_candidate(int32_t index, int32_t *prefetch_out)
{
    enum { DEEPEST = 3 }; // units; more take memory and hide little more
    if (index < 0 || index > DEEPEST)
        return false;
    *prefetch_out = DEEPEST - index;
    return true;
}

static mics_status check_degree(const config *run, const char *path, int64_t degree, int64_t below,
                                const char *below_name, int32_t ranks, int32_t ranks_per_node)
{
    if (fits(degree, below, ranks, ranks_per_node))
        return MICS_OK;
    char sizes[256];
    size_t used = 0;
    sizes[0] = '\0';
    for (int64_t size = below; size <= ranks; size += below) {
        if (!fits(size, below, ranks, ranks_per_node))
            continue;
        int written =
            snprintf(sizes + used, sizeof sizes - used, "%s%" PRId64, used == 0 ? "" : ", ", size);
        if (written < 0 || (size_t)written >= sizeof sizes - used)
            break;
        used += (size_t)written;
    }
    char why[64] = "would straddle nodes unevenly";
    if (degree > ranks || ranks % degree != 0)
        snprintf(why, sizeof why, "does not divide the ranks%s",
                 run->run.outer.every > 0 ? " of an island" : "");
    else if (degree % below != 0)
        snprintf(why, sizeof why, "is no multiple of %s = %" PRId64, below_name, below);
    return mics_json_fail(
        run->run.json, path, MICS_ERR_INVALID, "%" PRId64 " %s (%d rank%s, %d a node); %s%s%s",
        degree, why, (int)ranks, ranks == 1 ? "" : "s", (int)ranks_per_node,
        used != 0 ? "these would work: " : "no size would work", sizes,
        degree > ranks ? "; --ranks or a launcher such as mpirun gives more ranks" : "");
}

// The sharding that is asked for and the keys that its degrees come from.
typedef struct request {
    int64_t params, grads, optimizer;
    const char *paths[3];
    const char *origin; // shown by explain; NULL: the file says the degrees themselves
} request;

static request request_mics(int64_t degree, const char *path, const char *origin)
{
    return (request){degree, degree, degree, {path, path, path}, origin};
}

static request request_native(const config *run)
{
    request r = {.paths = {"sharding.params", "sharding.grads", "sharding.optimizer"}};
    r.params = run->params != 0 ? run->params : 1;
    r.grads = run->grads != 0 ? run->grads : r.params;
    r.optimizer = run->optimizer_degree != 0 ? run->optimizer_degree : r.grads;
    return r;
}

static request request_zero(const config *run, int32_t ranks)
{
    static const char stage_key[] = "zero_optimization.stage";
    if (run->shard_size > 0)
        return request_mics(run->shard_size, shard_key, "auto: zero_optimization.mics_shard_size");
    request r = {.params = run->zero_stage == 3 ? ranks : 1,
                 .grads = run->zero_stage >= 2 ? ranks : 1,
                 .optimizer = run->zero_stage >= 1 ? ranks : 1,
                 .paths = {stage_key, stage_key, stage_key},
                 .origin = "auto: zero_optimization.stage"};
    if (run->hpz_size > 1) {
        r.params = run->hpz_size;
        r.paths[0] = hpz_key;
        r.origin = "auto: zero_optimization.zero_hpz_partition_size";
    }
    return r;
}

// FSDP's strategies; what it keeps gathered after forward is what is not sharded.
static request request_fsdp(const config *run, int32_t ranks, int32_t ranks_per_node)
{
    const char *strategy = run->fsdp_strategy;
    const bool hybrid = strncmp(strategy, "hybrid", 6) == 0;
    const int64_t degree = strcmp(strategy, "no_shard") == 0 ? 1 : hybrid ? ranks_per_node : ranks;
    const bool whole =
        strcmp(strategy, "shard_grad_op") == 0 || strcmp(strategy, "hybrid_shard_zero2") == 0;
    return (request){whole ? 1 : degree,
                     degree,
                     degree,
                     {fsdp_key, fsdp_key, fsdp_key},
                     "auto: fsdp_sharding_strategy"};
}

static mics_status request_titan(const config *run, int32_t ranks, request *out)
{
    const int64_t replicas = run->replicate_degree > 0 ? run->replicate_degree : 1;
    const int64_t left = ranks / replicas / run->run.sequence;
    const int64_t degree = run->shard_degree > 0 ? run->shard_degree : left;
    if (degree * replicas * run->run.sequence != ranks)
        return mics_json_fail(
            run->run.json, mics_config_given(run, degree_key) ? degree_key : replicate_key,
            MICS_ERR_INVALID,
            "%" PRId64 " shards x %" PRId64
            " replicas x %d of a sequence are not %d ranks; leave one of the first two out",
            degree, replicas, (int)run->run.sequence, (int)ranks);
    *out = request_mics(degree * run->run.sequence, degree_key, "auto: data_parallel_shard_degree");
    return MICS_OK;
}

// sharding.sequence alone is no degree of states: it stands beside "auto", and the words of others.
static bool says_sequence_alone(const config *run)
{
    return mics_config_given(run, sequence_key) && !mics_config_given(run, "sharding.params") &&
           !mics_config_given(run, "sharding.grads") &&
           !mics_config_given(run, "sharding.optimizer") &&
           !mics_config_given(run, "sharding.experts");
}

static bool is_native(const config *run)
{
    return mics_config_valued(run, "sharding") && !says_sequence_alone(run);
}

static bool is_auto(const config *run)
{
    return !is_native(run) && is_own(run);
}

static bool fits_sequence(int64_t sequence, int64_t params, int32_t ranks_per_node)
{
    return ranks_per_node % sequence == 0 && (params % sequence == 0 || sequence % params == 0);
}

// What was chosen for as many ranks, and is possible on these nodes.
static bool keeps_sharding(const config *run, int32_t ranks, int32_t ranks_per_node)
{
    const int64_t *of = run->kept_degrees, experts = of[3] > 0 ? of[3] : 1;
    return is_auto(run) && run->kept_ranks == ranks && of[0] >= 1 && of[1] >= 1 && of[2] >= 1 &&
           of[2] <= ranks / run->run.min_replicas && fits(of[0], 1, ranks, ranks_per_node) &&
           fits(of[1], of[0], ranks, ranks_per_node) && fits(of[2], of[1], ranks, ranks_per_node) &&
           of[0] % experts == 0 && fits(experts, 1, ranks, ranks_per_node) &&
           fits_sequence(run->run.sequence, of[0], ranks_per_node);
}

static request request_kept(const config *run)
{
    return (request){run->kept_degrees[0],
                     run->kept_degrees[1],
                     run->kept_degrees[2],
                     {"sharding", "sharding", "sharding"},
                     "checkpoint"};
}

static request make_request(const config *run, int32_t ranks, int32_t ranks_per_node)
{
    if (is_native(run))
        return request_native(run);
    if (mics_config_given(run, zero_key))
        return request_zero(run, ranks);
    if (run->sdp_degree != 0)
        return request_mics(run->sdp_degree, sdp_key, "auto: sharded_data_parallel_degree");
    if (run->hybrid_degree != 0)
        return request_mics(run->hybrid_degree, hybrid_key, "auto: hybrid_shard_degree");
    if (run->fsdp_strategy != NULL)
        return request_fsdp(run, ranks, ranks_per_node);
    if (keeps_sharding(run, ranks, ranks_per_node))
        return request_kept(run);
    return request_mics(1, "sharding",
                        strcmp(run->run.cluster, "none") != 0
                            ? "auto: planned for run.cluster"
                            : "auto: the fastest that fits, on usual links");
}

// run.min_replicas against the ranks, and against a sharding that the file says.
static mics_status check_replicas(const config *run, const request *r, int32_t ranks)
{
    static const char replicas_key[] = "run.min_replicas";
    const int32_t least = run->run.min_replicas;
    const int64_t copies = r->optimizer >= 1 ? ranks / r->optimizer : 0;
    if (least > ranks)
        return mics_json_fail(run->run.json, replicas_key, MICS_ERR_INVALID,
                              "%d copies of every state need %d ranks, and there are %d; 1 to %d "
                              "would work",
                              (int)least, (int)least, (int)ranks, (int)ranks);
    if (copies >= least)
        return MICS_OK;
    return mics_json_fail(run->run.json, replicas_key, MICS_ERR_INVALID,
                          "is %d, but with optimizer state over %" PRId64
                          " of %d ranks it exists %" PRId64 " times; take at most %" PRId64
                          ", optimizer state over at most %d ranks, or \"sharding\": \"auto\"",
                          (int)least, r->optimizer, (int)ranks, copies, copies,
                          (int)(ranks / least));
}

// Nearest ranks keep different experts: they divide P, and fit nodes.
static mics_status check_experts(const config *run, const request *r, int32_t ranks,
                                 int32_t ranks_per_node)
{
    static const char experts_key[] = "sharding.experts";
    char sizes[128] = "";
    size_t used = 0;
    if (r->params % run->experts == 0 && fits(run->experts, 1, ranks, ranks_per_node))
        return MICS_OK;
    for (int32_t e = 1; e <= r->params && used + 16 < sizeof sizes; e++) {
        if (r->params % e == 0 && fits(e, 1, ranks, ranks_per_node))
            used += (size_t)snprintf(sizes + used, sizeof sizes - used, used == 0 ? "%d" : ", %d",
                                     (int)e);
    }
    return mics_json_fail(run->run.json, experts_key, MICS_ERR_INVALID,
                          "%" PRId64 " must divide params (P) = %" PRId64
                          ", and not straddle nodes unevenly (%d ranks, %d a node); these would "
                          "work: %s",
                          run->experts, r->params, (int)ranks, (int)ranks_per_node, sizes);
}

// Where P is open the planner's fits: 1 does with all.
static mics_status check_sequence(const config *run, const request *r, int32_t ranks_per_node)
{
    char sizes[128] = "";
    size_t used = 0;
    if (run->run.sequence > 1 && run->run.preference.kind != MICS_PREFERENCE_NONE)
        return mics_json_fail(run->run.json, sequence_key, MICS_ERR_UNSUPPORTED,
                              "is %d, but both answers of a pair stay on one rank; use 1",
                              (int)run->run.sequence);
    if (fits_sequence(run->run.sequence, r->params, ranks_per_node))
        return MICS_OK;
    for (int32_t s = 1; s <= ranks_per_node && used + 16 < sizeof sizes; s++) {
        if (fits_sequence(s, r->params, ranks_per_node))
            used += (size_t)snprintf(sizes + used, sizeof sizes - used, used == 0 ? "%d" : ", %d",
                                     (int)s);
    }
    return mics_json_fail(run->run.json, sequence_key, MICS_ERR_INVALID,
                          "%d must divide the ranks of a node, %d, and divide params (P) "
                          "= %" PRId64 " or be a multiple of it; these would work: %s",
                          (int)run->run.sequence, (int)ranks_per_node, r->params, sizes);
}

// Over the ranks of an island, or all.
static mics_status resolve_sharding(const config *run, mics_run_island island, request *out)
{
    const int32_t ranks = island.ranks, ranks_per_node = ranks / island.nodes;
    request r = {0};
    MICS_TRY(mics_config_check_outer(run, island.ranks, is_auto(run)));
    if (is_titan(run))
        MICS_TRY(request_titan(run, ranks, &r));
    else
        r = make_request(run, ranks, ranks_per_node);
    MICS_TRY(check_degree(run, r.paths[0], r.params, 1, "1", ranks, ranks_per_node));
    MICS_TRY(check_degree(run, r.paths[1], r.grads, r.params, "params (P)", ranks, ranks_per_node));
    MICS_TRY(
        check_degree(run, r.paths[2], r.optimizer, r.grads, "grads (G)", ranks, ranks_per_node));
    MICS_TRY(check_experts(run, &r, ranks, ranks_per_node));
    MICS_TRY(check_sequence(run, &r, ranks_per_node));
    MICS_TRY(check_replicas(run, &r, ranks));
    *out = r;
    return MICS_OK;
}

static const char sums_key[] = "data_types.grad_accum_dtype";

static mics_status resolve_sums(config *run)
{
    const char *precision = mics_run_precision_text(run->run.precision);
    const mics_optimizer_def *def = mics_optimizer_def_get(run->run.optimizer.kind);
    run->run.rounded_sums = strcmp(run->sum_dtype, "fp32") != 0;
    if (!run->run.rounded_sums)
        return MICS_OK;
    if (run->run.precision != MICS_RUN_PRECISION_AUTO && strcmp(precision, run->sum_dtype) != 0)
        return mics_json_fail(run->run.json, sums_key, MICS_ERR_INVALID,
                              "sums in %s are of gradients in %s, and run.precision is %s; use "
                              "\"fp32\", or that precision",
                              run->sum_dtype, run->sum_dtype, precision);
    if (def->matrix_workspace != NULL)
        return mics_json_fail(run->run.json, sums_key, MICS_ERR_UNSUPPORTED,
                              "%s takes gradients in fp32; use \"fp32\", or AdamW, SGD or Lion",
                              def->name);
    return MICS_OK;
}

mics_status mics_run_resolve(mics_run *public_run, int32_t ranks, int32_t nodes)
{
    config *run = (config *)public_run; // invariant 1 of keys.h
    request sharding = {0};
    batch sizes = {0};
    if (ranks < 1 || nodes < 1 || ranks % nodes != 0)
        return mics_fail(MICS_ERR_INVALID,
                         "%d ranks cannot be spread evenly over %d nodes; give --nodes a divisor",
                         (int)ranks, (int)nodes);
    MICS_TRY(mics_config_resolve_outer(run, ranks, nodes, &run->run.outer_ranks));
    const mics_run_island island = mics_run_island_of(&run->run, ranks, nodes);
    MICS_TRY(resolve_sharding(run, island, &sharding));
    MICS_TRY(resolve_batch(run, ranks / run->run.sequence, &sizes));
    MICS_TRY(resolve_sums(run));
    resolve_recompute(run);
    run->run.global_batch = sizes.train;
    run->run.micro_batch = sizes.micro;
    run->run.micro_steps = (int32_t)sizes.steps;
    run->run.sharding = (mics_sharding){(int32_t)sharding.params, (int32_t)sharding.grads,
                                        (int32_t)sharding.optimizer};
    const bool keeps = keeps_sharding(run, island.ranks, island.ranks / island.nodes);
    run->run.experts =
        (int32_t)(keeps && run->kept_degrees[3] > 0 ? run->kept_degrees[3] : run->experts);
    run->run.sharding_open = is_auto(run) && run->run.outer.every == 0;
    run->run.sharding_auto = run->run.sharding_open && !keeps;
    if (run->run.sharding_auto && run->run.rounded_sums && ranks > 1)
        return mics_json_fail(run->run.json, sums_key, MICS_ERR_UNSUPPORTED,
                              "sums in %s are of gradients that are not split, and sharding is "
                              "\"auto\"; give sharding.params and sharding.grads 1, or use "
                              "\"fp32\"",
                              run->sum_dtype);
    run->run.kept_sharding =
        (mics_sharding){(int32_t)run->kept_degrees[0], (int32_t)run->kept_degrees[1],
                        (int32_t)run->kept_degrees[2]};
    run->run.kept_experts = (int32_t)(run->kept_degrees[3] > 0 ? run->kept_degrees[3] : 1);
    run->run.kept_ranks = (int32_t)run->kept_ranks;
    run->run.prefetch = run->prefetch; // what was chosen for another mesh counts no more
    run->run.layered_micro_steps = run->layered_micro_steps; // nor this
    run->run.early_gathers = run->early_gathers;
    run->run.early_gathers_auto = !mics_config_valued(run, "run.early_gathers");
    mics_config_set_origin(run, "run.layered_micro_steps", NULL);
    run->sharding_origin = sharding.origin;
    mics_config_settle_boundary(run, island.ranks / island.nodes);
    return MICS_OK;
}

// ---- before the ranks are known ----

static mics_status check_zero(const config *run)
{
    const mics_json *json = run->run.json;
    if (run->shard_size == 0)
        return mics_json_fail(json, shard_key, MICS_ERR_INVALID, "must be -1 (off), or 1 or more");
    if (run->shard_size > 0 && run->zero_stage != 3)
        return mics_json_fail(json, shard_key, MICS_ERR_INVALID,
                              "needs \"stage\": 3, and the stage is %" PRId64, run->zero_stage);
    if (run->hpz_size > 1 && run->zero_stage != 3)
        return mics_json_fail(json, hpz_key, MICS_ERR_INVALID,
                              "needs \"stage\": 3, and the stage is %" PRId64, run->zero_stage);
    if (run->hpz_size > 1 && run->shard_size > 0)
        return mics_json_fail(json, hpz_key, MICS_ERR_INVALID,
                              "cannot stand together with mics_shard_size: hpz(p) shards gradients "
                              "and optimizer over all ranks, mics(p) over p; leave one out");
    return MICS_OK;
}

static mics_status check_one_source(const config *run)
{
    static const char *const sources[] = {"sharding", zero_key,   sdp_key,      hybrid_key,
                                          fsdp_key,   degree_key, replicate_key};
    const char *first = NULL;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        if (!mics_config_given(run, sources[i]) || (i == 0 && says_sequence_alone(run)))
            continue;
        const bool titan = first == degree_key && sources[i] == replicate_key;
        if (first != NULL && !titan &&
            !(first == sdp_key && run->sdp_degree == run->hybrid_degree)) {
            // Of what was set and what the file says, the file's is the one to take away.
            bool was_set = mics_json_line(run->run.json, first) == 0;
            return mics_json_fail(run->run.json, sources[i], MICS_ERR_INVALID,
                                  "cannot stand together with %s: each says the whole sharding; "
                                  "leave one out, as with --set %s=null",
                                  first, was_set ? sources[i] : first);
        }
        first = sources[i];
    }
    if (run->sdp_hierarchical && run->sdp_degree == 0 && run->hybrid_degree == 0)
        return mics_json_fail(run->run.json, "sdp_hierarchical_allgather", MICS_ERR_INVALID,
                              "needs sharded_data_parallel_degree");
    return MICS_OK;
}

mics_status mics_config_check_sources(config *run)
{
    if (run->train_batch == 0 && run->micro_batch == 0)
        return mics_json_fail(run->run.json, micro_key, MICS_ERR_INVALID,
                              "is missing: give it, or train_batch_size, as a number");
    MICS_TRY(check_zero(run));
    return check_one_source(run);
}
