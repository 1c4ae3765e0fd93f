// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What failures and checkpoints cost a plan: bytes and rates become the seconds that goodput.h asks
// for, as this library saves (saving.c, node_memory.c) and resumes.
#include "plan/offers/planning.h"
#include <math.h>

static const double day_s = 86400, hour_s = 3600;

// What a cluster file need not say.
//   Failures: of an accelerator and day, between Llama 3's 0.00047 (419 in 54 days on 16384 H100,
//     arXiv:2407.21783) and the 0.00064 of two clusters of A100 (arXiv:2410.21680).
//   The range: those two clusters, 2.34 and 6.50 in 1000 node-days, beside Llama 3's 3.8.
//   Checkpoints: 2 TB/s sustained for 2048 nodes (Llama 3, section 3.1.1, 2024-07).
//   Restart: 11 minutes from one attempt to the next, median, on 63 nodes (arXiv:2605.09370,
//   2026-05).
//   Host: assumed, of 8 GPUs that copy at once into page-locked memory which is new each time.
static const double usual_failures_per_day = 0.0005;
static const double few_failures = 0.6, many_failures = 1.7;
static const double usual_checkpoint_bytes_per_s = 1e9;
static const double usual_restart_s = 600;
static const double usual_host_bytes_per_s = 4e9;
// Copies in node memory do not spare checkpoints: one an hour.
static const double checkpoint_beside_memory_s = 3600;
// A simulated training is as long as so many failures take.
static const double simulated_failures = 2000;
static const uint64_t simulation_seed = 1;
static const double max_preemptions_per_node_day = 1e4;

// A figure that the caller gives, or the cluster, or nobody.
static double pick(double given, double cluster, double usual)
{
    if (given < 0)
        return 0;
    return given > 0 ? given : (cluster > 0 ? cluster : usual);
}

// One plan's seconds, and what they follow from.
typedef struct loss_model {
    double nodes, ranks, per_node; // as factors
    double failures_per_s;
    double state_bytes;     // of a checkpoint
    double rank_bytes;      // that a rank holds of it
    double node_bytes;      // that a node holds of it, once
    double node_base_bytes; // that a node reads of frozen weights when it starts
    double copied_bytes;    // of a rank, to its host, before it can save
    double share_bytes;     // that a rank writes into a checkpoint
    double disk_s, host_s;  // a second for each byte: of all nodes together, of a rank
    double node_disk_s, network_s;
    double restart_s, step_s;
    bool partners; // no state is on two nodes, unless partner nodes keep copies
} loss_model;

static loss_model model_of(const mics_plan *plan, int32_t nodes, const mics_plan_entry *entry,
                           const mics_plan_losses *losses)
{
    const mics_cluster *c = &plan->cluster;
    const mics_sharding *s = &entry->choice.sharding;
    const double params = (double)mics_model_trained_count(plan->model);
    const double frozen = (double)mics_model_param_count(plan->model) - params;
    const double per_node = mics_cluster_ranks_per_node(c), ranks = per_node * nodes;
    const double disk = pick(losses->checkpoint_bytes_per_s, c->checkpoint_bytes_per_s,
                             usual_checkpoint_bytes_per_s);
    const mics_optimizer_def *def = mics_optimizer_def_get(plan->run->optimizer.kind);
    // Plans of tensor and pipeline parallelism have no degrees: each state exists once.
    const double owners = s->optimizer > 0 ? s->optimizer : ranks;
    loss_model m = {.nodes = nodes, .ranks = ranks, .per_node = per_node};
    m.state_bytes = params * 4 * (1 + def->states);
    m.rank_bytes = m.state_bytes / owners;
    m.node_bytes = m.state_bytes * fmin(per_node / owners, 1);
    m.node_base_bytes = 2 * frozen * fmin(per_node / fmax(s->params, 1), 1); // files are in 16 bits
    m.share_bytes = m.state_bytes / ranks;
    // A GPU's rank copies its parameter shard in fp32 and its optimizer shard (host_copy.c).
    if (plan->accelerator)
        m.copied_bytes = m.rank_bytes + params * 4 / (s->params > 0 ? s->params : ranks);
    m.node_disk_s = disk > 0 ? 1 / disk : 0;
    m.disk_s = m.node_disk_s / nodes;
    m.host_s = 1 / pick(0, c->host_bytes_per_s, usual_host_bytes_per_s);
    if (c->node_tier + 1 < c->tier_count) {
        const mics_tier *network = &c->tiers[c->node_tier + 1];
        m.network_s = 1 / (network->bytes_per_s * network->efficiency);
    }
    m.restart_s = pick(losses->restart_s, c->restart_s, usual_restart_s);
    m.step_s = entry->step_us * 1e-6;
    m.partners = owners >= ranks && nodes > 1;
    return m;
}

static mics_goodput_spec spec_of(const loss_model *m, const mics_plan_saves *saves)
{
    return (mics_goodput_spec){.failures_per_s = m->failures_per_s,
                               .blocked_s = saves->blocked_s,
                               .commit_s = saves->blocked_s + saves->write_s,
                               .restart_s = saves->restart_s,
                               .step_s = m->step_s};
}

// ---- ways to save ----

static mics_plan_saves save_waiting(const loss_model *m)
{
    const double read_s =
        (m->node_bytes + m->node_base_bytes) * m->node_disk_s + m->rank_bytes * m->host_s;
    return (mics_plan_saves){.possible = true,
                             .blocked_s = m->copied_bytes * m->host_s + m->state_bytes * m->disk_s,
                             .restart_s = m->restart_s + read_s};
}

static mics_plan_saves save_behind(const loss_model *m)
{
    mics_plan_saves saves = save_waiting(m);
    saves.write_s = m->state_bytes * m->disk_s;
    saves.blocked_s = (m->copied_bytes + m->share_bytes) * m->host_s;
    return saves;
}

// All between two steps: the copy, its file, and where no other node has it the partner's.
static mics_plan_saves save_memory(const loss_model *m)
{
    const double file_bytes = m->node_bytes / m->per_node;
    mics_plan_saves saves = {.possible = m->nodes > 1};
    if (!saves.possible)
        return saves;
    saves.blocked_s = (m->copied_bytes + file_bytes) * m->host_s;
    if (m->partners)
        saves.blocked_s += m->node_bytes * m->network_s + file_bytes * m->host_s;
    // The node that is new gets its part from others.
    saves.restart_s = m->restart_s + (m->node_bytes + m->node_base_bytes) * m->network_s +
                      m->rank_bytes * m->host_s;
    return saves;
}

// Checkpoints beside copies in memory block training too.
static void add_checkpoints(mics_goodput *g, const mics_plan_saves *behind)
{
    const double every_s = fmax(checkpoint_beside_memory_s, behind->write_s);
    const double kept = 1 / (1 + g->goodput * behind->blocked_s / every_s);
    g->goodput *= kept;
    g->restarting *= kept;
    g->redone *= kept;
    g->saving = g->saving * kept + (1 - kept);
}

static mics_goodput best_of(const loss_model *m, const mics_plan_saves saves[], int saving)
{
    const mics_goodput_spec spec = spec_of(m, &saves[saving]);
    mics_goodput best = mics_goodput_best(&spec);
    if (saving == MICS_PLAN_SAVE_MEMORY && m->failures_per_s > 0)
        add_checkpoints(&best, &saves[MICS_PLAN_SAVE_BEHIND]);
    return best;
}

static void fill_saves(const loss_model *m, mics_plan_saves saves[MICS_PLAN_SAVINGS])
{
    saves[MICS_PLAN_SAVE_WAITING] = save_waiting(m);
    saves[MICS_PLAN_SAVE_BEHIND] = save_behind(m);
    saves[MICS_PLAN_SAVE_MEMORY] = save_memory(m);
    for (int i = 0; i < MICS_PLAN_SAVINGS; i++) {
        if (saves[i].possible)
            saves[i].best = best_of(m, saves, i);
    }
}

// ---- failures ----

// What is said for this machine, or for its accelerator, or usual.
static void find_failures(const mics_plan *plan, const loss_model *m, double given,
                          mics_plan_goodput *result)
{
    const mics_cluster *c = &plan->cluster;
    const double published = c->accelerator.failures_per_day * m->per_node;
    const bool said = given != 0 || c->failures_per_node_day > 0;
    result->failures_per_node_day =
        pick(given, c->failures_per_node_day,
             published > 0 ? published : usual_failures_per_day * m->per_node);
    result->failures_source = said ? "given" : published > 0 ? "published" : "assumed";
}

static double goodput_with(const loss_model *model, const mics_plan_goodput *of, double factor)
{
    loss_model m = *model;
    m.failures_per_s *= factor;
    return best_of(&m, of->saves, of->saving).goodput;
}

static void find_range(const loss_model *m, mics_plan_goodput *result)
{
    const double typical = result->saves[result->saving].best.goodput;
    result->goodput = (mics_plan_range){typical, typical, typical};
    if (result->failures_source[0] == 'g') // what is given has no range
        return;
    result->goodput.low = goodput_with(m, result, many_failures);
    result->goodput.high = goodput_with(m, result, few_failures);
}

// Of copies in memory nothing: checkpoints beside them are no event of the simulation.
static void simulate(const loss_model *m, mics_plan_goodput *result)
{
    const mics_plan_saves *saves = &result->saves[result->saving];
    const mics_goodput_spec spec = spec_of(m, saves);
    const mics_goodput *best = &saves->best;
    if (m->failures_per_s <= 0 || best->goodput <= 0 || result->saving == MICS_PLAN_SAVE_MEMORY)
        return;
    const double failure_s = best->goodput / m->failures_per_s; // work until one
    result->simulated = mics_goodput_simulate(&spec, best->interval_s,
                                              simulated_failures * failure_s, simulation_seed);
}

// ---- the run file's own interval ----

static void find_file(const mics_plan *plan, const loss_model *m, mics_plan_goodput *result)
{
    const mics_run *run = plan->run;
    const bool memory =
        run->memory_checkpoint_every > 0 && result->saves[MICS_PLAN_SAVE_MEMORY].possible;
    const int64_t steps = memory ? run->memory_checkpoint_every : run->checkpoint_every;
    if (memory)
        result->saving = MICS_PLAN_SAVE_MEMORY;
    if (steps <= 0 || steps == MICS_STEPS_UNKNOWN)
        return;
    const mics_goodput_spec spec = spec_of(m, &result->saves[result->saving]);
    result->file = mics_goodput_at(&spec, (double)steps * m->step_s);
    result->file.steps = steps;
    if (result->saving == MICS_PLAN_SAVE_MEMORY)
        add_checkpoints(&result->file, &result->saves[MICS_PLAN_SAVE_BEHIND]);
}

// ---- spot ----

// At the best interval, on nodes that are preempted so often. Where the whole state is written
// within the notice, and within run.grace_s, nothing is lost; else a preemption is as a failure.
static mics_goodput spot_best(const loss_model *m, const mics_plan_goodput *result,
                              double preemptions_per_node_day)
{
    const mics_plan_saves *saves = &result->saves[result->saving];
    mics_goodput_spec spec = spec_of(m, saves);
    const double rate = preemptions_per_node_day * m->nodes / day_s;
    loss_model more = *m;
    if (!result->spot_saves_in_time) {
        more.failures_per_s += rate;
        return best_of(&more, result->saves, result->saving);
    }
    spec.preemptions_per_s = rate;
    spec.final_save_s = result->saves[MICS_PLAN_SAVE_WAITING].blocked_s;
    // A preemption counts in memory as on disk: the state is in both.
    mics_goodput best = mics_goodput_best(&spec);
    if (result->saving == MICS_PLAN_SAVE_MEMORY && m->failures_per_s > 0)
        add_checkpoints(&best, &result->saves[MICS_PLAN_SAVE_BEHIND]);
    return best;
}

// The preemptions with which spot nodes cost what others do; their goodput only falls with them.
static double find_break_even(const mics_plan *plan, const loss_model *m,
                              const mics_plan_goodput *result)
{
    const double usd = plan->cluster.usd_per_node_hour;
    const double wanted = result->goodput.typical * result->spot_usd_per_node_hour / usd;
    double low = 0, high = max_preemptions_per_node_day;
    if (spot_best(m, result, 0).goodput < wanted)
        return -1;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        if (spot_best(m, result, middle).goodput >= wanted)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void find_spot(const mics_plan *plan, const loss_model *m, const mics_plan_losses *losses,
                      mics_plan_goodput *result)
{
    const mics_cluster *c = &plan->cluster;
    result->spot_usd_per_node_hour =
        pick(losses->spot_usd_per_node_hour, c->prices[MICS_PRICE_SPOT], 0);
    if (result->spot_usd_per_node_hour <= 0)
        return;
    result->preemptions_per_node_day =
        pick(losses->preemptions_per_node_day, c->preemptions_per_node_day, 0);
    result->preemptions_known =
        result->preemptions_per_node_day > 0 || losses->preemptions_per_node_day < 0;
    result->spot_waits_step = plan->accelerator;
    // A GPU's state can be saved between steps alone.
    result->spot_save_s =
        result->saves[MICS_PLAN_SAVE_WAITING].blocked_s + (plan->accelerator ? m->step_s : 0);
    result->spot_notice_s = fmin(c->preemption_notice_s, plan->run->grace_s);
    result->spot_saves_in_time = result->spot_save_s < result->spot_notice_s;
    if (result->preemptions_known)
        result->spot = spot_best(m, result, result->preemptions_per_node_day);
    if (c->usd_per_node_hour <= 0)
        return;
    if (fmin(result->spot.goodput, result->goodput.typical) >= MICS_PLAN_MIN_GOODPUT)
        result->spot_price_ratio = result->spot_usd_per_node_hour / c->usd_per_node_hour *
                                   result->goodput.typical / result->spot.goodput;
    result->break_even = find_break_even(plan, m, result);
}

// ---- from outside ----

mics_plan_goodput mics_plan_goodput_get(const mics_plan *plan, int32_t nodes,
                                        const mics_plan_entry *entry,
                                        const mics_plan_losses *losses)
{
    loss_model m = model_of(plan, nodes, entry, losses);
    mics_plan_goodput result = {.saving = MICS_PLAN_SAVE_BEHIND, .state_bytes = m.state_bytes};
    find_failures(plan, &m, losses->failures_per_node_day, &result);
    m.failures_per_s = result.failures_per_node_day * nodes / day_s;
    if (m.failures_per_s > 0)
        result.failure_hours = 1 / m.failures_per_s / hour_s;
    fill_saves(&m, result.saves);
    find_file(plan, &m, &result);
    find_range(&m, &result);
    simulate(&m, &result);
    find_spot(plan, &m, losses, &result);
    return result;
}
