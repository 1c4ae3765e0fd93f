// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/report/figures.h"
#include <math.h>

static metrics_figure real(const char *name, const char *tag, const char *help, double value)
{
    return (metrics_figure){.name = name, .tag = tag, .help = help, .value = value};
}

static metrics_figure count(const char *name, const char *tag, const char *help, int64_t value)
{
    return (metrics_figure){
        .name = name, .tag = tag, .help = help, .counted = true, .count = value};
}

void metrics_figures(const mics_metrics *m, metrics_figure figures_out[METRICS_FIGURES])
{
    const metrics_figure figures[METRICS_FIGURES] = {
        real("loss", "train/loss", "mean loss of the step, nats a token", m->loss),
        real("lr", "train/learning_rate", "learning rate", m->lr),
        real("grad_norm", "train/grad_norm", "gradient norm before clipping", m->grad_norm),
        count("tokens", "train/tokens", "tokens trained on so far", m->tokens),
        real("tokens_per_s", "speed/tokens_per_s", "tokens a second", m->tokens_per_s),
        real("step_ms", "speed/step_ms", "time of a step, ms", m->step_ms),
        real("mfu", "speed/mfu", "share of the machine's peak FLOP/s", m->mfu),
        count("memory_peak_bytes", "memory/peak_bytes", "most memory that a rank has held so far",
              m->memory_peak_bytes),
        count("sent_intra_bytes", "communication/sent_intra_bytes", "sent inside nodes in the step",
              m->sent_intra_bytes),
        count("sent_inter_bytes", "communication/sent_inter_bytes",
              "sent between nodes in the step", m->sent_inter_bytes),
        real("exposed_comm_ms", "communication/exposed_ms",
             "time that computation waited for collectives, ms", m->exposed_comm_ms),
        real("exposed_gather_ms", "communication/exposed_gather_ms",
             "of it for gathers and parameter sync, ms", m->exposed_gather_ms),
        real("exposed_reduce_ms", "communication/exposed_reduce_ms", "of it for the first hop, ms",
             m->exposed_reduce_ms),
        real("exposed_second_hop_ms", "communication/exposed_second_hop_ms",
             "of it for the second hop, ms", m->exposed_second_hop_ms),
        real("exposed_agree_ms", "communication/exposed_agree_ms", "of it for loss and norm, ms",
             m->exposed_agree_ms),
        real("exposed_copy_ms", "communication/exposed_copy_ms",
             "time that computation waited for activations from and to host memory, ms",
             m->exposed_copy_ms),
        real("save_ms", "speed/save_ms", "time that training waited for saving, ms", m->save_ms),
        real("slowest_rank", "speed/slowest_rank", "rank that the others wait for",
             m->slowest_rank < 0 ? NAN : (double)m->slowest_rank),
        real("slowest_wait_ms", "speed/slowest_wait_ms", "how long in a step, ms",
             m->slowest_rank < 0 ? NAN : m->slowest_wait_ms),
    };
    for (int32_t i = 0; i < METRICS_FIGURES; i++)
        figures_out[i] = figures[i];
}
