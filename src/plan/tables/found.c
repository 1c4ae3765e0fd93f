// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The plans of one cluster: times, memory, and the reasons.
#include "plan/tables/found.h"
#include "plan/search/baseline.h"
#include "plan/tables/offer.h"
#include "plan/tables/tables.h"
#include "plan/tables/words.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ROWS = 128, REASON_INDENT = 12 };

// ---- an entry ----

// Milliseconds, in a column where they have a heading.
static report_cell ms(const char *key, const char *heading, double us)
{
    return cell_column(key != NULL ? cell_number(key, us * 1e-3) : (report_cell){.kind = CELL_TEXT},
                       9, heading, us < 99.95e3 ? "%.2f" : "%.0f", us * 1e-3);
}

static void print_times(printer *r, const mics_plan_entry *e, bool wide)
{
    const double other_us =
        (wide ? e->exposed_all_to_all_us + e->exposed_other_us : e->update_us) + e->exposed_copy_us;
    PRINTER_ROW(r, ms("step_ms", "step ms", e->step_us), ms("compute_ms", "compute", e->compute_us),
                ms("exposed_comm_ms", wide ? NULL : "comm", e->exposed_us - e->exposed_copy_us),
                ms("exposed_param_sync_ms", NULL, e->exposed_param_sync_us),
                ms("exposed_gather_ms", NULL, e->exposed_gather_us),
                ms(NULL, wide ? "gather" : NULL, e->exposed_param_sync_us + e->exposed_gather_us),
                ms("exposed_reduce_ms", wide ? "reduce" : NULL, e->exposed_reduce_us),
                ms("exposed_second_hop_ms", wide ? "2nd hop" : NULL, e->exposed_second_hop_us),
                ms("update_ms", wide ? "update" : NULL, e->update_us));
    if (e->choice.experts > 1 || e->choice.sequence > 1)
        PRINTER_ROW(r, ms("exposed_all_to_all_ms", NULL, e->exposed_all_to_all_us));
    if (e->choice.offload_units > 0)
        PRINTER_ROW(r, ms("exposed_copy_ms", NULL, e->exposed_copy_us));
    PRINTER_ROW(r, ms("exposed_other_ms", NULL, e->exposed_other_us),
                ms("overhead_ms", NULL, e->overhead_us),
                ms(NULL, "other", other_us + e->overhead_us));
}

static void print_rates(printer *r, const mics_plan *plan, const mics_plan_entry *e, bool wide)
{
    const bool priced = plan->cluster.usd_per_node_hour > 0;
    const bool rated = e->fits || wide || r->headings; // else there is no speed, nor price
    PRINTER_ROW(r,
                cell_column(cell_number("tflops_per_gpu", e->tflops_per_gpu), 8,
                            wide ? "TFLOP/s" : NULL, "%.1f", e->tflops_per_gpu),
                cell_column(cell_number("hardware_tflops_per_gpu", e->hardware_tflops_per_gpu), 7,
                            wide ? "hw" : NULL, "%.1f", e->hardware_tflops_per_gpu),
                cell_column(cell_number("mfu", e->mfu), 7, "MFU % ", "%.1f ", 100 * e->mfu),
                cell_column(cell_number("tokens_per_s", e->tokens_per_s), 10,
                            rated ? "tokens/s" : NULL, "%s", plan_table_rate(e->tokens_per_s).text),
                cell_column(cell_number("usd_per_gtoken", priced ? e->usd_per_gtoken : NAN), 10,
                            rated ? "USD/Gtok" : NULL, "%s",
                            priced ? plan_table_rate(e->usd_per_gtoken).text : "-"));
    if (!e->fits && !r->headings)
        printer_text(r, wide ? "%14s" : "%20s", "does not fit");
}

static report_cell gib(const char *heading, double bytes)
{
    return CELL_SHOWN(9, heading, "%.2f", bytes / (1 << 30));
}

// Gather slots and the like are small beside the rest and stand together.
static void print_memory(printer *r, const mics_plan_entry *e)
{
    const size_t *bytes = e->memory.bytes;
    const size_t buffers = bytes[MICS_MEM_WORKSPACE] + bytes[MICS_MEM_COMM] +
                           bytes[MICS_MEM_MESSAGES] + bytes[MICS_MEM_DATA] + bytes[MICS_MEM_NODE];
    PRINTER_ROW(r, cell_int("memory_bytes", (int64_t)e->memory.total));
    printer_open(r, "memory", '{', false);
    for (int tag = 0; r->json && tag < MICS_MEM_TAGS; tag++) {
        if (tag != MICS_MEM_HOST)
            PRINTER_ROW(r,
                        cell_int(mics_memory_tag_text((mics_memory_tag)tag), (int64_t)bytes[tag]));
    }
    PRINTER_ROW(r, gib("params", (double)bytes[MICS_MEM_PARAMS]),
                gib("grads", (double)bytes[MICS_MEM_GRADS]),
                gib("optim.", (double)(bytes[MICS_MEM_OPTIMIZER] + bytes[MICS_MEM_OUTER])),
                gib("slots", (double)(bytes[MICS_MEM_GATHER] + bytes[MICS_MEM_REDUCE])),
                gib("activ.", (double)bytes[MICS_MEM_ACTIVATIONS]), gib("buffers", (double)buffers),
                gib("total", (double)e->memory.total), gib("reserve", e->reserve_bytes),
                cell_rounded("reserve", e->reserve_bytes));
    printer_close(r);
    PRINTER_ROW(r, gib(r->headings ? NULL : "", fabs(e->spare_bytes)),
                cell_rounded("spare_bytes", e->spare_bytes));
    if (!r->headings)
        printer_text(r, e->tight ? " tight" : e->fits ? " to spare" : " MISSING");
}

void plan_table_entry(printer *r, const char *key, const mics_plan *plan,
                      const mics_plan_entry *entry)
{
    if (entry == NULL) {
        PRINTER_ROW(r, cell_null(key));
        return;
    }
    printer_open(r, key, '{', false);
    plan_table_choice(r, entry);
    PRINTER_ROW(r, cell_flag("fits", entry->fits), cell_flag("tight", entry->tight));
    print_memory(r, entry);
    print_times(r, entry, false);
    print_rates(r, plan, entry, false);
    PRINTER_ROW(r, cell_int("sent_intra_bytes", entry->sent.intra),
                cell_int("sent_inter_bytes", entry->sent.inter), cell_words("why", entry->why));
    printer_close(r);
}

// ---- tables ----

// A line of the tables, and what it is in JSON.
typedef struct row {
    short_text label;             // "": in JSON alone
    const char *key;              // NULL in a list
    const mics_plan_entry *entry; // NULL: there is none
} row;

typedef struct rows {
    row items[MAX_ROWS];
    int32_t count, plans; // the first `plans` are the planner's; then the baselines
} rows;

static void add_row(rows *all, const char *label, const char *key, const mics_plan_entry *entry)
{
    if (all->count == MAX_ROWS)
        return;
    all->items[all->count++] = (row){text_of("%s", label), key, entry};
}

static void list_rows(const mics_plan_found *found, rows *all)
{
    for (int32_t i = 0; i < found->result->count; i++)
        add_row(all, text_of("%d", (int)i + 1).text, NULL, &found->result->entries[i]);
    all->plans = all->count;
    for (int b = 0; b < MICS_PLAN_BASELINES; b++) {
        const char *name = mics_plan_baseline_text((mics_plan_baseline)b);
        add_row(all, name, name, &found->baselines[b]);
    }
    add_row(all, found->file.outer.every > 0 ? "" : "run file", "run_file",
            found->has_file ? &found->file : NULL);
    add_row(all, "", "min_replicas_2", found->has_twice ? &found->twice : NULL);
    add_row(all, "too large", "faster_but_too_large",
            found->result->has_faster ? &found->result->faster : NULL);
}

static void write_rows(printer *r, const mics_plan *plan, const mics_plan_found *found,
                       const rows *all)
{
    const int32_t baselines_end = all->plans + MICS_PLAN_BASELINES;
    const mics_plan_entry *faster = mics_plan_faster_baseline(found);
    printer_open(r, "plans", '[', true);
    for (int32_t i = 0; i < all->count; i++) {
        if (i == all->plans) {
            printer_close(r);
            printer_open(r, "baselines", '{', true);
        } else if (i == baselines_end) {
            printer_close(r);
            PRINTER_ROW(r, cell_words("faster_baseline", faster != NULL ? faster->name : NULL));
        }
        const mics_plan_entry *entry = all->items[i].entry; // of megatron perhaps without a cut
        plan_table_entry(r, all->items[i].key, plan,
                         entry != NULL && entry->choice.micro_batch > 0 ? entry : NULL);
    }
}

typedef struct table {
    const mics_plan *plan;
    bool memory, wide;
} table;

static void print_line(printer *r, const table *t, const row *line)
{
    const mics_plan_entry *e = line->entry;
    PRINTER_ROW(r, CELL_SHOWN(-10, "", "%s ", line->label.text),
                CELL_SHOWN(-17, t->memory ? "" : "P|G|O", "%s ", plan_table_degrees(e).text));
    if (e->choice.micro_batch == 0 && !r->headings) {
        printer_text(r, "%s\n", e->why);
        return;
    }
    if (t->memory) {
        print_memory(r, e);
    } else {
        plan_table_choice(r, e);
        print_times(r, e, t->wide);
        print_rates(r, t->plan, e, t->wide);
    }
    printer_text(r, "\n");
}

static void print_table(printer *r, const table *t, const rows *all)
{
    const mics_plan_entry any = {.fits = true};
    r->headings = true;
    print_line(r, t, &(row){.entry = &any});
    r->headings = false;
    for (int32_t i = 0; i < all->count; i++) {
        const row *line = &all->items[i];
        if (i == all->plans && i > 0)
            printer_text(r, "\n");
        if (line->label.text[0] != '\0' && line->entry != NULL &&
            (!t->memory || line->entry->choice.micro_batch > 0))
            print_line(r, t, line);
    }
}

// ---- the whole ----

static void print_ranks(printer *r, const mics_plan *plan, const mics_plan_found *found,
                        int32_t nodes)
{
    const int32_t ranks = mics_planner_ranks(found->planner);
    const double bytes = mics_planner_memory_bytes(found->planner);
    const double usd = plan->cluster.usd_per_node_hour;
    const bool left = plan->run->memory_limit_bytes == 0 && plan->reserve_bytes > 0;
    printer_wrapped(
        r, 0, "%d node%s of %s: %d ranks, %s of memory each for the run%s%s", (int)nodes,
        text_plural(nodes), plan->cluster.name, (int)ranks, text_size(bytes).text,
        left ? text_of(" (%s left free)", text_size(plan->reserve_bytes).text).text : "",
        usd > 0 ? text_of(", %.2f USD/h together", usd * nodes).text : "");
    if (plan->cluster.note[0] != '\0' && strcmp(plan->cluster.note, "catalogue") != 0)
        printer_wrapped(r, 0, "figures of %s: %s", plan->cluster.name, plan->cluster.note);
    PRINTER_OBJECT(r, "cluster", cell_words("name", plan->cluster.name), cell_int("nodes", nodes),
                   cell_words("note", plan->cluster.note), cell_int("ranks", ranks),
                   cell_rounded("memory_bytes", bytes),
                   cell_rounded("left_free_bytes", plan->reserve_bytes),
                   cell_rounded("tight_below_bytes", plan->margin_bytes),
                   cell_number("usd_per_node_hour", usd > 0 ? usd : NAN));
}

// "41.94 million".
static short_text text_params(int64_t count)
{
    const double params = (double)count;
    return text_of("%.4g %s", params * (count < 1000000000 ? 1e-6 : 1e-9),
                   count < 1000000000 ? "million" : "billion");
}

static void print_model(printer *r, const mics_plan *plan, int64_t batch)
{
    const int64_t count = mics_model_param_count(plan->model);
    const int64_t trained = mics_model_trained_count(plan->model);
    const mics_plan_request request = mics_plan_request_get(plan, 1);
    printer_wrapped(r, 0, "%s: %s parameters%s, %lld %ssequences of %lld tokens a step, %s",
                    plan->run->model_config, text_params(count).text,
                    trained < count ? text_of(", trains %s", text_params(trained).text).text : "",
                    (long long)batch,
                    plan->run->preference.kind != MICS_PREFERENCE_NONE ? "pairs of " : "",
                    (long long)plan->length, mics_plan_precision_text(plan));
    if (plan->run->phase_count > 0)
        printer_wrapped(r, 0, "phase %d of %d, whose steps have most tokens",
                        (int)plan->run->phase + 1, (int)plan->run->phase_count);
    PRINTER_OBJECT(
        r, "model", cell_words("config", plan->run->model_config), cell_int("parameters", count),
        cell_int("trained_parameters", trained), cell_int("sequence_length", plan->length),
        cell_words("precision", mics_precision_text(request.precision)),
        cell_words("math", mics_math_text(request.math)), cell_flag("trainable", !plan->by_shapes),
        cell_words("attention", plan->attention));
}

static void print_choices(printer *r, const mics_plan *plan, const mics_plan_result *result)
{
    const char *kernels = plan->cluster.accelerator.kernels;
    printer_text(r, "%lld choices, %lld fit, %lld simulated%s%s%s%s; the best of each sharding:\n",
                 (long long)result->space, (long long)result->fitting, (long long)result->simulated,
                 plan->attention != NULL ? "; attention by " : "",
                 plan->attention != NULL ? plan->attention : "",
                 kernels[0] != '\0' ? "; kernels " : "", kernels);
    if (plan->software != NULL)
        printer_text(r, "rows of other systems and the run file's: as %s runs them\n",
                     plan->software->name);
    PRINTER_OBJECT(r, "choices", cell_int("all", result->space), cell_int("fit", result->fitting),
                   cell_int("simulated", result->simulated));
}

static void print_head(printer *r, const mics_plan *plan, const mics_plan_found *found)
{
    const int32_t ranks = mics_planner_ranks(found->planner);
    const int32_t nodes = ranks / mics_cluster_ranks_per_node(&plan->cluster);
    const int64_t batch = mics_plan_request_get(plan, nodes).global_batch;
    const int64_t asked = mics_plan_batch_asked(plan, nodes);
    print_model(r, plan, batch);
    PRINTER_ROW(r, cell_int("global_batch", batch));
    if (batch > asked)
        printer_text(
            r,
            "some 4 million tokens a step would be %lld sequences: raised to what %d ranks "
            "can share evenly\n",
            (long long)asked, (int)ranks);
    if (plan->by_shapes)
        printer_wrapped(r, 0, "planned by its shapes: this version cannot train model_type %s yet",
                        plan->model->architecture);
    if (plan->experts > 0)
        printer_text(
            r,
            "each layer's %d experts are gathered like other parameters, or where a row says "
            "E, tokens travel:\nE ranks keep different ones (sharding.experts)\n",
            (int)plan->experts);
    print_ranks(r, plan, found, nodes);
    print_choices(r, plan, found->result);
}

static void print_reasons(const printer *r, const rows *all)
{
    printer_text(r, "\nWhy\n");
    for (int32_t i = 0; i < all->count; i++) {
        const row *line = &all->items[i];
        if (line->label.text[0] == '\0' || line->entry == NULL || line->entry->why[0] == '\0')
            continue;
        printer_text(r, "  %-9s ", line->label.text);
        printer_wrapped(r, REASON_INDENT, "%s: %s", line->entry->name, line->entry->why);
    }
}

static const char footnotes[] =
    "\nP|G|O: ranks that share out parameters, gradients and optimizer state; micro-batches: "
    "sequences of one x micro-steps;\n"
    "rec: layers recomputed, yes: all; a, m, b: and in the others attention, mlp or both; pre: "
    "units gathered ahead;\n"
    "lay: layered micro-steps; g/r: gathers and reductions by ring (r) or in two stages (2); e: "
    "early replica gathers;\n"
    "S: ranks that share each sequence.\n";

static const char footnote_wide[] =
    "gather, reduce, 2nd hop: time that computation waits for them; gather holds parameter sync; "
    "other: all-to-alls,\n"
    "agreement, overhead, and megatron's bubble, collectives and sends. hw: TFLOP/s with "
    "recomputation.\n";

static const char footnote_narrow[] =
    "comm: time that computation waits for communication (megatron: and the bubble); other: update "
    "and overhead;\n"
    "--wide shows each, and TFLOP/s.\n";

static const char footnote_frozen[] =
    "Of frozen parameters MFU counts 4 FLOPs, and 2 below the first that trains: gradients that "
    "nobody wants are not\ncomputed.\n";

static const char footnotes_end[] =
    "MFU counts 6 FLOPs a token and parameter of GEMMs, and 6 x layers x length x hidden size for "
    "causal attention,\n"
    "without recomputation (PaLM, appendix B).\n"
    "docs/plan.md says what is modelled, and what is not.\n";

static void print_answer(printer *r, const mics_plan *plan, const mics_plan_found *found,
                         const mics_plan_goal *goal)
{
    mics_plan_offer offer =
        mics_plan_offer_get(plan, plan->nodes, &found->result->entries[0], goal);
    const mics_plan_entry *faster = mics_plan_faster_baseline(found);
    if (faster != NULL)
        snprintf(offer.faster, sizeof offer.faster, "%s", faster->name);
    offer.faster_us = faster != NULL ? faster->step_us : 0;
    plan_table_answer(r, &offer, goal, "");
    plan_table_offer(r, "answer", &offer);
}

// Whoever trains an adapter asks what frozen weights cost on slow links.
static void print_sent(const printer *r, const mics_plan_found *found, int32_t nodes)
{
    const mics_plan_entry *best = &found->result->entries[0],
                          *zero3 = &found->baselines[MICS_PLAN_ZERO3],
                          *mics = &found->baselines[MICS_PLAN_MICS];
    printer_text(r, "\n");
    printer_wrapped(r, 0,
                    "Sent inter-node, a step and node: %s %s; zero3 (FSDP full shard) %s; %s (the "
                    "smallest groups of HSDP) %s.",
                    best->name, text_size((double)best->sent.inter / nodes).text,
                    text_size((double)zero3->sent.inter / nodes).text, mics->name,
                    text_size((double)mics->sent.inter / nodes).text);
}

// Where the best plan keeps some states once, what keeping them twice costs.
static void print_replicas(const printer *r, const mics_plan_found *found)
{
    const int32_t ranks = mics_planner_ranks(found->planner);
    const mics_plan_entry *best = found->result->entries, *twice = &found->twice;
    if (ranks == 1 || best->choice.sharding.optimizer < ranks)
        return;
    const double more_us = twice->step_us - best->step_us;
    short_text cost = {"nothing that keeps them twice fits"};
    if (found->has_twice)
        cost =
            text_of("%s, %c%s a step (%+.3g %%)", twice->name, more_us < 0 ? '-' : '+',
                    plan_table_duration(fabs(more_us) * 1e-6).text, 100 * more_us / best->step_us);
    printer_text(r, "\n");
    printer_wrapped(r, 0,
                    "%s keeps masters and moments once, so they cannot be compared or repaired. "
                    "run.min_replicas 2: %s.",
                    best->name, cost.text);
}

// What local steps cost others: validation losses over those of synchronous training.
static const char reported_losses[] =
    "2, 4 and 8 islands with H = 30 -0.1 %, +0.3 % and +1.1 % (2.4 billion parameters; "
    "arXiv:2503.09799, table 4); 2 and 4 islands with H = 30 -0.4 % and +0.4 %, with H = 100 +0.4 "
    "% "
    "and +1.6 % (1 billion parameters, in 4 bits; arXiv:2501.18512, tables 5 and 6)";

static void print_meetings(const printer *r, const mics_plan_entry *best, const rows *all)
{
    for (int32_t i = 0; i < all->count; i++) {
        const mics_plan_entry *e = all->items[i].entry;
        printer_text(r, "  %-9s ", all->items[i].label.text);
        printer_wrapped(r, REASON_INDENT,
                        "outer.overlap_steps %d, outer.dtype %s: %.3g times as fast as plan 1; "
                        "meetings add %.2g %% to a step, and send %s inter-node a period; %s",
                        (int)e->outer.overlap_steps, mics_comm_dtype_text(e->outer.dtype),
                        best->step_us / e->step_us, 100 * e->meeting_us / e->step_us,
                        text_size((double)e->met.inter).text, e->why);
    }
}

static void print_take(printer *r, const mics_plan_local *local)
{
    const int32_t every = local->entries[local->take].outer.every;
    const bool pays = local->gbit_per_s > 0;
    const short_text upto = text_of("networks of up to %g", local->gbit_per_s);
    printer_wrapped(r, 0, "H = %d is 5 %% faster than synchronous plans on %s Gb/s a node.",
                    (int)every, pays ? upto.text : "no network of 0.1 to 3200");
    printer_wrapped(r, 0,
                    "Validation loss over that of synchronous training, as papers report: %s.",
                    reported_losses);
    PRINTER_ROW(r, cell_int("take", every),
                cell_number("pays_up_to_gbit_per_s", pays ? local->gbit_per_s : NAN),
                cell_words("reported_losses", reported_losses));
}

// Another training than that of the plans, so apart from them.
static void print_local(printer *r, const mics_plan *plan, const mics_plan_found *found, bool wide)
{
    const mics_plan_local *local = &found->local;
    rows all = {.count = 0};
    for (int32_t i = 0; i < local->count; i++)
        add_row(&all, text_of("H = %d", (int)local->entries[i].outer.every).text, NULL,
                &local->entries[i]);
    if (!r->json && found->has_file && found->file.outer.every > 0)
        add_row(&all, "run file", NULL, &found->file);
    if (!local->asked && all.count == 0)
        return;
    printer_text(r, "\nLocal steps, another training than the plans above\n%s",
                 all.count == 0 ? "no islands of whole nodes hold the state\n" : "");
    printer_open(r, "local_steps", '{', true);
    printer_open(r, "plans", '[', true);
    for (int32_t i = 0; r->json && i < all.count; i++)
        plan_table_entry(r, NULL, plan, all.items[i].entry);
    printer_close(r);
    if (!r->json && all.count > 0) {
        print_table(r, &(table){.plan = plan, .wide = wide}, &all);
        print_table(r, &(table){.plan = plan, .memory = true}, &all);
        print_meetings(r, found->result->entries, &all);
    }
    if (local->count > 0)
        print_take(r, local);
    printer_close(r);
}

void plan_table_found(printer *r, const mics_plan *plan, const mics_plan_found *found,
                      const mics_plan_goal *goal, bool wide)
{
    const bool frozen = mics_model_trained_count(plan->model) < mics_model_param_count(plan->model);
    rows all = {.count = 0};
    list_rows(found, &all);
    printer_open(r, NULL, '{', true);
    print_answer(r, plan, found, goal);
    print_head(r, plan, found);
    if (r->json) {
        write_rows(r, plan, found, &all);
        print_local(r, plan, found, wide);
    } else {
        printer_text(r, "\n");
        print_table(r, &(table){.plan = plan, .wide = wide}, &all);
        if (frozen && plan->nodes > 1)
            print_sent(r, found, plan->nodes);
        print_replicas(r, found);
        printer_text(r, "\nMemory of a rank, GiB\n");
        print_table(r, &(table){.plan = plan, .memory = true}, &all);
        print_reasons(r, &all);
        print_local(r, plan, found, wide);
        printer_text(r, "%s%s%s%s", footnotes, wide ? footnote_wide : footnote_narrow,
                     frozen ? footnote_frozen : "", footnotes_end);
    }
    printer_close(r);
}
