// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A mixture's ops among the subjects: a router, and experts of C and 2 C. Buffers are, as far as a
// subject has them: weights of the router, input, the op's weight, stats of the router, output or
// the input's gradient, the output's gradient, the weight's, the router's weights'.
#include "op_calls.h"
#include "op_subjects.h"
#include <string.h>

// The first numbers of the experts' weights serve as a router's where there is no other.
static mics_op_call router_call(const bench *b, const subject *s, const void *tokens,
                                void *const *p)
{
    return (mics_op_call){.at = &b->at,
                          .shape = {.B = s->N / b->T,
                                    .T = b->T,
                                    .N = s->N,
                                    .in = {b->C},
                                    .out = BENCH_EXPERTS.chosen,
                                    .params = {{BENCH_EXPERTS.count, b->C}}},
                          .in = {tokens},
                          .params = {p[2]},
                          .out = p[0],
                          .stats = p[3]};
}

static void run_router_forward(const bench *b, const subject *s, void *const *p)
{
    op_experts_forward(b->table, MICS_OP_ROUTER, BENCH_EXPERTS, router_call(b, s, p[1], p));
}

static void run_router_backward(const bench *b, const subject *s, void *const *p)
{
    mics_op_call call = router_call(b, s, p[1], p);
    call.dout = p[0];
    call.din = p[4];
    call.dparams[0] = p[5];
    call.loss_scale = 1;
    op_experts_backward(b->table, MICS_OP_ROUTER, BENCH_EXPERTS, call);
}

// in: tokens (I) to rows (O each); out: rows (I each) to tokens (O).
static mics_op_call experts_call(const bench *b, const subject *s, mics_op_kind kind,
                                 void *const *p)
{
    const int64_t E = BENCH_EXPERTS.count, k = BENCH_EXPERTS.chosen;
    const bool in = kind == MICS_OP_EXPERTS_IN;
    return (mics_op_call){.at = &b->at,
                          .shape = {.B = s->N / b->T,
                                    .T = b->T,
                                    .N = s->N,
                                    .in = {in ? s->I : k * s->I, k},
                                    .out = in ? k * s->O : s->O,
                                    .params = {{E * s->O, s->I}}},
                          .in = {p[1], p[0]},
                          .params = {p[2]},
                          .routes = p[3]};
}

static void experts_forward(const bench *b, const subject *s, mics_op_kind kind, void *const *p)
{
    mics_op_call call = experts_call(b, s, kind, p);
    call.out = p[4];
    op_experts_forward(b->table, kind, BENCH_EXPERTS, call);
}

static void experts_backward(const bench *b, const subject *s, mics_op_kind kind, void *const *p)
{
    mics_op_call call = experts_call(b, s, kind, p);
    call.din = p[4];
    call.dout = p[5];
    call.dparams[0] = p[6];
    call.din_second = kind == MICS_OP_EXPERTS_OUT ? p[7] : NULL;
    op_experts_backward(b->table, kind, BENCH_EXPERTS, call);
}

static void run_experts_in_forward(const bench *b, const subject *s, void *const *p)
{
    experts_forward(b, s, MICS_OP_EXPERTS_IN, p);
}

static void run_experts_in_backward(const bench *b, const subject *s, void *const *p)
{
    experts_backward(b, s, MICS_OP_EXPERTS_IN, p);
}

static void run_experts_out_forward(const bench *b, const subject *s, void *const *p)
{
    experts_forward(b, s, MICS_OP_EXPERTS_OUT, p);
}

static void run_experts_out_backward(const bench *b, const subject *s, void *const *p)
{
    experts_backward(b, s, MICS_OP_EXPERTS_OUT, p);
}

// Stats by tokens that a subject has as its output, or as that one's gradient.
static void route_by_output(const bench *b, const subject *s, void *const *p)
{
    const void *tokens = s->run == run_experts_out_forward ? p[4] : p[5];
    op_experts_forward(b->table, MICS_OP_ROUTER, BENCH_EXPERTS, router_call(b, s, tokens, p));
}

// Bytes are each tensor once.
int subjects_list_experts(const bench *b, subject *out)
{
    const int64_t N = b->N, C = b->C, E = BENCH_EXPERTS.count, k = BENCH_EXPERTS.chosen;
    const int64_t s = (int64_t)mics_dtype_bytes(b->dtype), x = N * C * s, w = 2 * E * C * C * s;
    const int64_t rows = N * k * 2 * C * s, gates = N * k * s, stats = 4 * N * (E + 2 + 2 * k);
    const int64_t scorer = E * C * s;
    const double scores = 2.0 * (double)(N * C * E), flops = 4.0 * (double)(N * k * C * C);
    const subject list[] = {
        {"router_forward",
         b->dtype,
         (double)(x + scorer + gates + stats),
         scores,
         {gates, x, scorer, stats},
         N,
         C,
         E,
         run_router_forward},
        {"router_backward",
         b->dtype,
         (double)(2 * x + 2 * scorer + gates + stats),
         2 * scores,
         {gates, x, scorer, stats, x, scorer},
         N,
         C,
         E,
         run_router_backward},
        {"experts_in_forward",
         b->dtype,
         (double)(x + w + rows),
         flops,
         {gates, x, w, stats, rows},
         N,
         C,
         2 * C,
         run_experts_in_forward},
        {"experts_in_backward",
         b->dtype,
         (double)(2 * x + 2 * w + rows),
         2 * flops,
         {gates, x, w, stats, x, rows, w},
         N,
         C,
         2 * C,
         run_experts_in_backward},
        {"experts_out_forward",
         b->dtype,
         (double)(x + w + rows),
         flops,
         {gates, rows, w, stats, x},
         N,
         2 * C,
         C,
         run_experts_out_forward},
        {"experts_out_backward",
         b->dtype,
         (double)(x + 2 * w + 2 * rows),
         2 * flops,
         {gates, rows, w, stats, rows, x, w, gates},
         N,
         2 * C,
         C,
         run_experts_out_backward},
    };
    memcpy(out, list, sizeof list);
    return (int)(sizeof list / sizeof *list);
}

static const subject_content contents[] = {
    {run_router_forward, "xxxf", NULL},
    {run_router_backward, "xxxfxx", run_router_forward},
    {run_experts_in_forward, "xxxfx", run_router_forward},
    {run_experts_in_backward, "xxxfxxx", run_router_forward},
    {run_experts_out_forward, "xxxfx", route_by_output},
    {run_experts_out_backward, "xxxfxxxx", route_by_output},
};

subject_content subject_content_of_experts(const subject *s)
{
    for (size_t i = 0; i < sizeof contents / sizeof *contents; ++i)
        if (contents[i].run == s->run)
            return contents[i];
    return (subject_content){s->run, "", NULL};
}
