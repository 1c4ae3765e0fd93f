// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/explain.h"
#include "mics/core/ledger.h"
#include "schedule/rules.h"
#include <math.h>
#include <string.h>

// A column as wide as its longest entry, within bounds.
static int width_of(int width, const char *text, int max)
{
    const int length = (int)strlen(text);
    return length > width ? (length < max ? length : max) : width;
}

void explain_keys(printer *r, const mics_run *run, bool all)
{
    int keys = 0, values = 0;
    for (int32_t i = 0; i < mics_run_row_count(run); i++) {
        const mics_run_row row = mics_run_row_at(run, i);
        keys = width_of(keys, row.key, 40);
        values = width_of(values, row.value, 24);
    }
    printer_text(r, all ? "\nkeys\n" : "\nkeys that are not defaults (all: --keys)\n");
    printer_open(r, "keys", '[', true);
    for (int32_t i = 0; i < mics_run_row_count(run); i++) {
        const mics_run_row row = mics_run_row_at(run, i);
        // Values as text: long ones are cut, and then no JSON.
        PRINTER_OBJECT(r, NULL, cell_words("key", row.key), cell_words("value", row.value),
                       cell_words("origin", row.origin));
        if (!all && strcmp(row.origin, "default") == 0)
            continue;
        printer_text(r, "  %-*s  ", keys, row.key);
        printer_wrapped(r, keys + 4, "%-*s  %s%s", values, row.value, row.origin,
                        row.hint ? "; no effect here" : "");
        printer_text(r, all ? "      " : "");
        if (all)
            printer_wrapped(r, 6, "%s", row.help);
    }
    printer_close(r);
}

void explain_foreign_keys(printer *r)
{
    printer_text(r,
                 "Keys of other programs' files without a counterpart here. \"any\": it changes no "
                 "result, and has no effect.\n\"off\": it would change results, so it may stand "
                 "there switched off, or as \"auto\".\n\n");
    printer_open(r, "foreign_keys", '[', true);
    for (int32_t i = 0; mics_run_foreign(i).key != NULL; i++) {
        const mics_run_foreign_row row = mics_run_foreign(i);
        printer_text(r, "  %-52s  ", row.key);
        printer_wrapped(r, 56, "%-8s %s", row.taken, row.why);
        PRINTER_OBJECT(r, NULL, cell_words("key", row.key), cell_words("taken", row.taken),
                       cell_words("why", row.why));
    }
    printer_close(r);
}

double explain_most_bytes(const mics_job *job)
{
    double most = (double)mics_job_schedule(job)->ledger.total;
    for (int32_t i = 0; i < mics_job_facts_get(job).phases; i++)
        most = fmax(most, (double)mics_job_phase_get(job, i).memory_bytes);
    return most;
}

void explain_answer(const printer *r, const mics_job *job)
{
    const mics_schedule *schedule = mics_job_schedule(job);
    const mics_bytes sent = mics_schedule_all_bytes(schedule, MICS_PHASE_TRAIN);
    const mics_job_facts facts = mics_job_facts_get(job);
    const mics_mesh *mesh = &schedule->spec.mesh;
    const int32_t ranks = mics_mesh_world(mesh), nodes = ranks / mesh->ranks_per_node;
    char name[64];
    mics_mesh_name(mesh, name, sizeof name);
    printer_wrapped(r, 0,
                    "%s, %.3g million parameters, on %d rank%s (%d node%s of %d): %s, %s on %s",
                    mics_job_model(job)->architecture,
                    (double)mics_model_param_count(mics_job_model(job)) / 1e6, (int)ranks,
                    text_plural(ranks), (int)nodes, text_plural(nodes), (int)mesh->ranks_per_node,
                    name, facts.numbers, facts.device);
    const double most = explain_most_bytes(job), limit = (double)facts.limit_bytes;
    const bool known = facts.limit_bytes != SIZE_MAX, fits = most <= limit;
    printer_text(r, "%s a rank%s%s\n", text_size(most).text,
                 !known ? ""
                 : fits ? ", which fits into "
                        : ", which DOES NOT FIT into ",
                 known ? text_size(limit).text : "");
    printer_text(r, "a step sends %s%s intra-node and %s inter-node, all ranks together\n",
                 mics_schedule_codes_any(schedule) ? "at most " : "",
                 text_size((double)sent.intra).text, text_size((double)sent.inter).text);
}
