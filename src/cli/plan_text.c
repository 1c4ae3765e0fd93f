// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics plan prints for people: times, memory, and the reasons.
#include "base/size.h"
#include "plan.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ROWS = 128, REASON_INDENT = 12 };

// One line of the tables.
typedef struct row {
    char label[32];
    const mics_plan_entry *entry;
} row;

typedef struct rows {
    row items[MAX_ROWS];
    int32_t count, plans; // the first `plans` are the planner's
} rows;

static void add_row(rows *all, const char *label, const mics_plan_entry *entry)
{
    if (all->count == MAX_ROWS)
        return;
    row *r = &all->items[all->count++];
    snprintf(r->label, sizeof r->label, "%s", label);
    r->entry = entry;
}

static void list_rows(const mics_plan_found *found, rows *all)
{
    char label[32];
    for (int32_t i = 0; i < found->result->count; i++) {
        snprintf(label, sizeof label, "%d", (int)i + 1);
        add_row(all, label, &found->result->entries[i]);
    }
    all->plans = all->count;
    for (int b = found->uneven ? MICS_PLAN_MEGATRON : 0; b < MICS_PLAN_BASELINES; b++)
        add_row(all, mics_plan_baseline_text((mics_plan_baseline)b), &found->baselines[b]);
    if (found->has_file)
        add_row(all, "run file", &found->file);
    if (found->result->has_faster)
        add_row(all, "too large", &found->result->faster);
}

// ---- times ----

// How gathers and reductions run: r ring, 2 two stages, - none.
static void print_batch(const mics_plan_entry *entry)
{
    const mics_plan_choice *c = &entry->choice;
    const bool family = entry->pipeline.stages == 0;
    printf("%5lld x %-5d %3s ", (long long)c->micro_batch, (int)c->micro_steps,
           c->recompute ? "yes" : "no");
    if (family)
        printf("%3d %3d  %c%c ", (int)c->prefetch, (int)cli_plan_layered(c),
               c->sharding.params == 1 ? '-' : (c->gather_two_stage ? '2' : 'r'),
               c->sharding.grads == 1 ? '-' : (c->reduce_two_stage ? '2' : 'r'));
    else
        printf("  -   -  -- ");
}

static void print_ms(double us)
{
    printf(us < 99.95e3 ? "%9.2f" : "%9.0f", us * 1e-3);
}

// Large figures whole, not as powers of ten.
static void print_figure(double value)
{
    printf(value < 9999.5 ? "%10.4g" : "%10.0f", value);
}

static void print_price(const mics_plan *plan, const mics_plan_entry *e)
{
    if (plan->cluster.usd_per_node_hour > 0)
        print_figure(e->usd_per_gtoken);
    else
        printf("%10s", "-");
}

static void print_wide(const mics_plan *plan, const mics_plan_entry *e)
{
    print_ms(e->exposed_param_sync_us + e->exposed_gather_us);
    print_ms(e->exposed_reduce_us);
    print_ms(e->exposed_second_hop_us);
    print_ms(e->update_us);
    print_ms(e->exposed_all_to_all_us + e->exposed_other_us + e->overhead_us);
    printf("%8.1f%7.1f%6.1f ", e->tflops_per_gpu, e->hardware_tflops_per_gpu, 100 * e->mfu);
    print_figure(e->tokens_per_s);
    print_price(plan, e);
    printf("%s\n", e->fits ? "" : "  does not fit");
}

// What does not fit has no price.
static void print_narrow(const mics_plan *plan, const mics_plan_entry *e)
{
    print_ms(e->exposed_us);
    print_ms(e->update_us + e->overhead_us);
    printf("%6.1f ", 100 * e->mfu);
    if (e->fits) {
        print_figure(e->tokens_per_s);
        print_price(plan, e);
        printf("\n");
    } else {
        printf("%20s\n", "does not fit");
    }
}

static void print_time(const mics_plan *plan, const row *r, bool wide)
{
    const mics_plan_entry *e = r->entry;
    char text[CLI_PLAN_DEGREES_BYTES];
    printf("%-9s %-16s ", r->label, cli_plan_degrees(e, text));
    if (e->choice.micro_batch == 0) {
        printf("%s\n", e->why);
        return;
    }
    print_batch(e);
    print_ms(e->step_us);
    print_ms(e->compute_us);
    (wide ? print_wide : print_narrow)(plan, e);
}

static void print_times(const mics_plan *plan, const rows *all, bool wide)
{
    printf("\n%-9s %-16s %13s %3s %3s %3s %3s %9s%9s", "", "P|G|O", "micro-batches", "rec", "pre",
           "lay", "g/r", "step ms", "compute");
    if (wide)
        printf("%9s%9s%9s%9s%9s%8s%7s", "gather", "reduce", "2nd hop", "update", "other", "TFLOP/s",
               "hw");
    else
        printf("%9s%9s", "comm", "other");
    printf("%6s %10s%10s\n", "MFU %", "tokens/s", "USD/Gtok");
    for (int32_t i = 0; i < all->count; i++) {
        if (i == all->plans && i > 0)
            printf("\n");
        print_time(plan, &all->items[i], wide);
    }
}

// ---- memory ----

// Gather slots and the like are small beside the rest and stand together.
static void print_memory_row(const row *r)
{
    const mics_plan_entry *e = r->entry;
    const size_t *bytes = e->memory.bytes;
    const double gib = 1.0 / (1 << 30);
    const size_t buffers = bytes[MICS_MEM_WORKSPACE] + bytes[MICS_MEM_COMM] +
                           bytes[MICS_MEM_MESSAGES] + bytes[MICS_MEM_DATA] + bytes[MICS_MEM_NODE];
    char text[CLI_PLAN_DEGREES_BYTES];
    if (e->choice.micro_batch == 0)
        return;
    printf("%-9s %-16s %9.2f%9.2f%9.2f%9.2f%9.2f%9.2f%9.2f%9.2f%9.2f", r->label,
           cli_plan_degrees(e, text), gib * (double)bytes[MICS_MEM_PARAMS],
           gib * (double)bytes[MICS_MEM_GRADS], gib * (double)bytes[MICS_MEM_OPTIMIZER],
           gib * (double)(bytes[MICS_MEM_GATHER] + bytes[MICS_MEM_REDUCE]),
           gib * (double)bytes[MICS_MEM_ACTIVATIONS], gib * (double)buffers,
           gib * (double)e->memory.total, gib * e->reserve_bytes, gib * fabs(e->spare_bytes));
    printf(" %s\n", e->fits ? "to spare" : "MISSING");
}

static void print_memory(const rows *all)
{
    printf("\nMemory of a rank, GiB\n%-26s %9s%9s%9s%9s%9s%9s%9s%9s\n", "", "params", "grads",
           "optim.", "slots", "activ.", "buffers", "total", "reserve");
    for (int32_t i = 0; i < all->count; i++) {
        if (i == all->plans && i > 0)
            printf("\n");
        print_memory_row(&all->items[i]);
    }
}

// ---- the whole ----

static void print_experts(const mics_plan *plan)
{
    if (plan->experts == 0)
        return;
    printf("each layer's %d experts are gathered like other parameters, or where a row says E, "
           "tokens travel:\nE ranks keep different ones (sharding.experts)\n",
           (int)plan->experts);
}

static void print_ranks(const mics_plan *plan, const mics_plan_found *found, int32_t nodes)
{
    char memory[32], left[64] = "", price[64] = "";
    if (plan->run->memory_limit_bytes == 0 && plan->reserve_bytes > 0)
        snprintf(left, sizeof left, " (%s left free)",
                 mics_size_text(plan->reserve_bytes, memory, sizeof memory));
    if (plan->cluster.usd_per_node_hour > 0)
        snprintf(price, sizeof price, ", %.2f USD/h together",
                 plan->cluster.usd_per_node_hour * nodes);
    cli_plan_say("%d node%s of %s: %d ranks, %s of memory each for the run%s%s", (int)nodes,
                 nodes == 1 ? "" : "s", plan->cluster.name, (int)mics_planner_ranks(found->planner),
                 mics_size_text(mics_planner_memory_bytes(found->planner), memory, sizeof memory),
                 left, price);
}

static void print_head(const mics_plan *plan, const mics_plan_found *found)
{
    const int32_t ranks = mics_planner_ranks(found->planner);
    const int32_t nodes = ranks / mics_cluster_ranks_per_node(&plan->cluster);
    const double params = (double)mics_model_param_count(plan->model);
    const int64_t batch = mics_plan_request_get(plan, nodes).global_batch;
    const int64_t asked = mics_plan_batch_asked(plan, nodes);
    cli_plan_say("%s: %.4g %s parameters, %lld sequences of %lld tokens a step, %s",
                 plan->run->model_config, params * (params < 1e9 ? 1e-6 : 1e-9),
                 params < 1e9 ? "million" : "billion", (long long)batch, (long long)plan->length,
                 cli_plan_precision_text(plan));
    if (batch > asked)
        printf("some 4 million tokens a step would be %lld sequences: raised to what %d ranks can "
               "share evenly\n",
               (long long)asked, (int)ranks);
    if (plan->by_shapes)
        cli_plan_say("planned by its shapes: this version cannot train model_type %s yet",
                     plan->model->architecture);
    print_experts(plan);
    print_ranks(plan, found, nodes);
    printf("%lld choices, %lld fit, %lld simulated", (long long)found->result->space,
           (long long)found->result->fitting, (long long)found->result->simulated);
    if (plan->attention != NULL)
        printf("; attention by %s", plan->attention);
    if (plan->cluster.accelerator.kernels[0] != '\0')
        printf("; kernels %s", plan->cluster.accelerator.kernels);
    printf("; the best of each sharding:\n");
}

static void print_reasons(const rows *all)
{
    printf("\nWhy\n");
    for (int32_t i = 0; i < all->count; i++) {
        const mics_plan_entry *entry = all->items[i].entry;
        char text[sizeof entry->name + sizeof entry->why + 4];
        if (entry->why[0] == '\0')
            continue;
        snprintf(text, sizeof text, "%s: %s", entry->name, entry->why);
        printf("  %-9s ", all->items[i].label);
        cli_plan_wrapped(text, REASON_INDENT);
    }
}

static const char footnotes[] =
    "\nP|G|O: ranks that share out parameters, gradients and optimizer state; micro-batches: "
    "sequences of one x micro-steps;\n"
    "rec: recomputed; pre: units gathered ahead; lay: layered micro-steps; g/r: gathers and "
    "reductions by ring (r)\n"
    "or in two stages (2).\n";

static const char footnote_wide[] =
    "gather, reduce, 2nd hop: time that computation waits for them; gather holds parameter sync; "
    "other: all-to-alls,\n"
    "agreement, overhead, and megatron's bubble, collectives and sends. hw: TFLOP/s with "
    "recomputation.\n";

static const char footnote_narrow[] =
    "comm: time that computation waits for communication (megatron: and the bubble); other: update "
    "and overhead;\n"
    "--wide shows each, and TFLOP/s.\n";

static const char footnotes_end[] =
    "MFU counts 6 FLOPs a token and parameter of GEMMs, and 6 x layers x length x hidden size for "
    "causal attention,\n"
    "without recomputation (PaLM, appendix B).\n"
    "Prices are the cluster file's, or the catalogue's, on demand. docs/plan.md says what is "
    "modelled, and what is not.\n";

static void print_answer(const mics_plan *plan, const mics_plan_found *found,
                         const mics_plan_goal *goal)
{
    const mics_plan_offer offer =
        mics_plan_offer_get(plan, plan->nodes, &found->result->entries[0], goal);
    const mics_plan_entry *faster = mics_plan_faster_baseline(found);
    cli_plan_answer(&offer, goal, "", faster != NULL ? faster->name : "",
                    faster != NULL ? faster->step_us : 0);
}

// Where the best plan keeps some states once, what keeping them twice costs.
static void print_replicas(const mics_plan_found *found)
{
    const mics_plan_entry *best = &found->result->entries[0], *twice = &found->twice;
    const double more_us = twice->step_us - best->step_us;
    if (best->choice.sharding.optimizer < mics_planner_ranks(found->planner) ||
        mics_planner_ranks(found->planner) == 1)
        return;
    char cost[sizeof twice->name + 64] = "nothing that keeps them twice fits";
    if (found->has_twice)
        snprintf(cost, sizeof cost, "%s, %+.4g ms a step (%+.2g %%)", twice->name, more_us * 1e-3,
                 100 * more_us / best->step_us);
    printf("\n");
    cli_plan_say("%s keeps masters and moments once, so they cannot be compared or repaired. "
                 "run.min_replicas 2: %s.",
                 best->name, cost);
}

// The batch is no multiple of the ranks, as all plans of mics need it.
static void print_uneven(const mics_plan *plan, const mics_plan_found *found)
{
    const int64_t ranks = mics_planner_ranks(found->planner);
    const int64_t batch = mics_plan_request_get(plan, plan->nodes).global_batch;
    const int64_t less = batch - batch % ranks, more = less + ranks;
    const mics_plan_entry *rival = &found->baselines[MICS_PLAN_MEGATRON];
    char below[32] = "", text[CLI_PLAN_FIGURE_BYTES];
    if (batch > ranks)
        snprintf(below, sizeof below, "%lld or ", (long long)less);
    cli_plan_say(
        "mics has no plan: %d ranks cannot share %lld sequences evenly; %s%lld would work.",
        (int)ranks, (long long)batch, below, (long long)more);
    cli_plan_say("%s, micro-batch %lld x %d, would take %s s a step; mics cannot run it.",
                 rival->name, (long long)rival->choice.micro_batch, (int)rival->choice.micro_steps,
                 cli_plan_figure(rival->step_us * 1e-6, text));
    printf("\n");
}

void cli_plan_text(const mics_plan *plan, const mics_plan_found *found, const mics_plan_goal *goal,
                   bool wide)
{
    rows all = {.count = 0};
    list_rows(found, &all);
    if (found->uneven)
        print_uneven(plan, found);
    else
        print_answer(plan, found, goal);
    print_head(plan, found);
    print_times(plan, &all, wide);
    if (!found->uneven)
        print_replicas(found);
    print_memory(&all);
    print_reasons(&all);
    fputs(footnotes, stdout);
    fputs(wide ? footnote_wide : footnote_narrow, stdout);
    fputs(footnotes_end, stdout);
}
