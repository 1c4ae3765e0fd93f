// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How many micro-batches are in flight where nobody says it.
#include "schedule/layered.h"
#include "mics/core/schedule.h"
#include "schedule/rules.h"

// A slot of bf16 numbers is off by some 2^-9 of the sum for each time that one is added: 8 times
// stay below a third of a percent, and fp16 loses 3 of its bits' range.
enum { MAX_ROUNDED = 8 };

static bool writes(const mics_unit *writer, int32_t unit)
{
    for (int32_t o = 0; o < writer->op_count; o++) {
        for (int i = 0; i < MICS_OP_PARAMS; i++) {
            if (writer->ops[o].params[i].unit == unit)
                return true;
        }
    }
    return false;
}

bool mics_layered_holds(const mics_model *model, int32_t unit)
{
    int32_t writers = 0;
    for (int32_t u = 0; u < model->unit_count; u++)
        writers += writes(&model->units[u], unit);
    return writers > 1 && !model->units[unit].frozen;
}

// Gradients that each micro-batch in flight has until its last backward wrote them (grad_key).
static size_t held_bytes(const mics_schedule *schedule)
{
    const mics_precision precision = schedule->spec.precision;
    const bool slots =
        precision == MICS_PRECISION_MIXED && !mics_schedule_rounds_sums(&schedule->spec);
    int64_t elems = 0;
    for (int32_t u = 0; slots && u < schedule->spec.model->unit_count; u++) {
        if (schedule->sharding[u].grads == 1 && mics_layered_holds(schedule->spec.model, u))
            elems += schedule->padded_elems[u];
    }
    return (size_t)elems * mics_precision_bytes(precision, MICS_MEM_REDUCE);
}

mics_layered_need mics_schedule_layered_need(const mics_schedule *schedule)
{
    const mics_schedule_spec *spec = &schedule->spec;
    const size_t *bytes = schedule->ledger.bytes;
    return (mics_layered_need){
        .micro_steps = spec->micro_steps,
        .crosses_nodes = spec->mesh.ranks > spec->mesh.ranks_per_node,
        .rounds = spec->precision == MICS_PRECISION_MIXED && spec->mesh.sharding.grads > 1,
        .state_bytes = bytes[MICS_MEM_PARAMS] + bytes[MICS_MEM_GRADS] + bytes[MICS_MEM_OPTIMIZER],
        .each_bytes = (size_t)schedule->in_flight_elems *
                          mics_precision_bytes(spec->precision, MICS_MEM_ACTIVATIONS) +
                      (size_t)schedule->data_elems * sizeof(int32_t) + held_bytes(schedule)};
}

int32_t mics_layered_auto(const mics_layered_need *need, const char **why_out)
{
    const size_t each = need->each_bytes > 0 ? need->each_bytes : 1;
    const size_t fill = need->state_bytes / each; // that take as much as the state
    const int32_t micro_steps = need->micro_steps;
    int32_t most = fill < MICS_LAYERED_MAX - 2 ? (int32_t)fill + 2 : MICS_LAYERED_MAX;
    *why_out = "auto: as many as at most double the state and a micro-batch";
    if (need->rounds && most > MAX_ROUNDED) {
        most = MAX_ROUNDED;
        *why_out = "auto: more would add gradients in 16 bits too often";
    }
    if (micro_steps <= most)
        *why_out = "auto: all, as they at most double the state and a micro-batch";
    if (micro_steps == 1)
        *why_out = "auto: there is one micro-step";
    else if (!need->crosses_nodes) {
        most = 1;
        *why_out = "auto: nothing is sent between nodes";
    }
    return mics_schedule_layered_micro_steps(micro_steps, most);
}
