// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A device with memory of its own that is the CPU's: each call is done at once, and counted. Its kernels
// compute in fp32 by the CPU's kernels on numbers that are widened before and rounded after, so it
// is the reference for tables in two bytes. It says nothing about streams: the emulated plugin does.
#pragma once

#include "base/clock.h"
#include "fixture.h"
#include "mics/core/device.h"
#include "ops/kernels.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- the device ----

enum { LATER_ALIGN = 256 };

typedef struct later {
    mics_device base;
    mics_device *host;
    size_t bytes, most; // of blocks now, and at most
    double *event_us;
    int32_t events;
} later;

static void later_require(bool condition)
{
    if (!condition)
        abort();
}

// Its size and where it begins for the C library stand before a block.
typedef struct later_block {
    void *whole;
    size_t bytes;
} later_block;

// Zeros that nobody writes: of the 32 MiB that products may take on a GPU hardly any are touched.
static mics_status later_alloc(void *ctx, size_t bytes, void **block_out)
{
    later *self = (later *)ctx;
    void *whole = calloc(1, bytes + 2 * LATER_ALIGN);
    if (whole == NULL)
        return mics_fail(MICS_ERR_MEMORY, "no %zu bytes for a device", bytes);
    char *block = (char *)(((uintptr_t)whole / LATER_ALIGN + 2) * LATER_ALIGN);
    memcpy(block - sizeof(later_block), &(later_block){whole, bytes}, sizeof(later_block));
    self->bytes += bytes;
    self->most = self->bytes > self->most ? self->bytes : self->most;
    *block_out = block;
    return MICS_OK;
}

static void later_free(void *ctx, void *block)
{
    later *self = (later *)ctx;
    later_block of;
    if (block == NULL)
        return;
    memcpy(&of, (char *)block - sizeof of, sizeof of);
    self->bytes -= of.bytes;
    free(of.whole);
}

static mics_status later_alloc_host(void *ctx, size_t bytes, void **block_out)
{
    later *self = (later *)ctx;
    return self->host->ops->alloc(self->host->ctx, bytes, block_out);
}

static void later_free_host(void *ctx, void *block)
{
    later *self = (later *)ctx;
    self->host->ops->free(self->host->ctx, block);
}

static void later_copy(void *ctx, int32_t stream, void *to, const void *from, size_t bytes)
{
    (void)ctx, (void)stream;
    memcpy(to, from, bytes);
}

static void later_zero(void *ctx, int32_t stream, void *to, size_t bytes)
{
    (void)ctx, (void)stream;
    memset(to, 0, bytes);
}

static void later_record(void *ctx, int32_t stream, int32_t event)
{
    later *self = (later *)ctx;
    (void)stream;
    later_require(event >= 0 && event < self->events);
    self->event_us[event] = mics_clock_us();
}

static void later_wait(void *ctx, int32_t stream, int32_t event)
{
    later *self = (later *)ctx;
    (void)stream;
    later_require(event >= 0 && event < self->events);
}

static mics_status later_poll(void *ctx, int32_t event, bool *done_out)
{
    later_wait(ctx, 0, event);
    *done_out = true;
    return MICS_OK;
}

static double later_event_us(void *ctx, int32_t event)
{
    return ((later *)ctx)->event_us[event];
}

static mics_status later_synchronize(void *ctx, int32_t stream)
{
    (void)ctx, (void)stream;
    return MICS_OK;
}

static mics_status later_check(void *ctx)
{
    (void)ctx;
    return MICS_OK;
}

static void later_range_begin(void *ctx, const char *name)
{
    (void)ctx, (void)name;
}

static void later_range_end(void *ctx)
{
    (void)ctx;
}

static void later_close(void *ctx)
{
    later *self = (later *)ctx;
    later_require(self->bytes == 0);
    mics_device_close(self->host);
    free(self->event_us);
    free(self);
}

static const mics_device_ops later_ops = {
    .name = "later",
    .alloc = later_alloc,
    .free = later_free,
    .alloc_host = later_alloc_host,
    .free_host = later_free_host,
    .copy = later_copy,
    .zero = later_zero,
    .record = later_record,
    .wait = later_wait,
    .poll = later_poll,
    .event_us = later_event_us,
    .synchronize = later_synchronize,
    .check = later_check,
    .range_begin = later_range_begin,
    .range_end = later_range_end,
    .close = later_close,
};

static inline mics_status later_open(int32_t events, mics_device **device_out)
{
    later *self = (later *)calloc(1, sizeof *self);
    later_require(self != NULL);
    self->event_us = (double *)calloc((size_t)events, sizeof(double));
    later_require(self->event_us != NULL);
    self->events = events;
    self->base = (mics_device){.ops = &later_ops, .ctx = self};
    MICS_TRY(mics_device_cpu_open(0, &self->host));
    *device_out = &self->base;
    return MICS_OK;
}

// ---- bf16 and fp16 ----

static inline float later_from_fp16(uint16_t number)
{
    const int exponent = number >> 10 & 31, steps = number & 1023;
    double magnitude = exponent == 0 ? ldexp(steps, -24) : ldexp(1024 + steps, exponent - 25);
    if (exponent == 31)
        magnitude = steps == 0 ? INFINITY : NAN;
    return (float)((number & 0x8000) != 0 ? -magnitude : magnitude);
}

static void later_narrow(const mics_exec *at, void *out, const float *x, int64_t elems)
{
    if (at->dtype == MICS_DTYPE_FP32)
        memmove(out, x, (size_t)elems * sizeof(float));
    else if (at->dtype == MICS_DTYPE_BF16)
        mics_kernels_get(NULL)->pack_bf16((uint16_t *)out, x, elems);
    for (int64_t i = 0; at->dtype == MICS_DTYPE_FP16 && i < elems; i++)
        ((uint16_t *)out)[i] = fixture_fp16(x[i]);
}

static void later_widen(const mics_exec *at, float *out, const void *x, int64_t elems)
{
    if (at->dtype == MICS_DTYPE_FP32)
        memmove(out, x, (size_t)elems * sizeof(float));
    else if (at->dtype == MICS_DTYPE_BF16)
        mics_kernels_get(NULL)->unpack_bf16(out, (const uint16_t *)x, elems);
    for (int64_t i = 0; at->dtype == MICS_DTYPE_FP16 && i < elems; i++)
        out[i] = later_from_fp16(((const uint16_t *)x)[i]);
}

// The same numbers in fp32; the caller frees. NULL for NULL.
static float *later_in(const mics_exec *at, const void *x, int64_t elems)
{
    if (x == NULL)
        return NULL;
    float *wide = (float *)aligned_alloc(64, ((size_t)elems * sizeof(float) / 64 + 1) * 64);
    later_require(wide != NULL);
    later_widen(at, wide, x, elems);
    return wide;
}

static void later_out(const mics_exec *at, void *out, float *wide, int64_t elems)
{
    if (out != NULL)
        later_narrow(at, out, wide, elems);
    free(wide);
}

// ---- kernels ----

static int64_t later_elems(const mics_op_call *c, int p)
{
    const int64_t *shape = c->shape.params[p];
    return shape[0] * (shape[1] > 0 ? shape[1] : 1);
}

static void later_check_order(const mics_op_call *c)
{
    const int32_t *tokens = c->tokens, *order = c->order;
    for (int64_t n = 0; n < c->shape.N; n++) { // it is the order that kernels rely on
        later_require(order[n] >= 0 && order[n] < c->shape.N);
        later_require(n == 0 || tokens[order[n - 1]] < tokens[order[n]] ||
                      (tokens[order[n - 1]] == tokens[order[n]] && order[n - 1] < order[n]));
    }
}

// Runs an op of the CPU's on the same numbers in fp32.
static void later_run(const mics_op_call *c, bool backward)
{
    const mics_op_kernels *cpu = mics_kernels_get(NULL)->ops[c->shape.op->kind];
    const int64_t N = c->shape.N, out_elems = N * c->shape.out, in_elems = N * c->shape.in[0];
    float *in[MICS_OP_INPUTS], *params[MICS_OP_PARAMS], *dparams[MICS_OP_PARAMS];
    float *out = later_in(c->at, c->out, out_elems);
    float *dout = later_in(c->at, c->dout, out_elems), *din = later_in(c->at, c->din, in_elems);
    mics_op_call wide = *c;
    for (int i = 0; i < MICS_OP_INPUTS; i++)
        wide.in[i] = in[i] = later_in(c->at, c->in[i], N * c->shape.in[i]);
    for (int p = 0; p < MICS_OP_PARAMS; p++) {
        wide.params[p] = params[p] = later_in(c->at, c->params[p], later_elems(c, p));
        wide.dparams[p] = dparams[p] = later_in(c->at, c->dparams[p], later_elems(c, p));
    }
    wide.out = out;
    wide.dout = dout;
    wide.din = din;
    if (backward && c->shape.in[0] == 0)
        later_check_order(c);
    (backward ? cpu->backward : cpu->forward)(&wide);
    later_out(c->at, backward ? NULL : c->out, out, out_elems);
    later_out(c->at, backward ? c->din : NULL, din, in_elems);
    free(dout);
    for (int i = 0; i < MICS_OP_INPUTS; i++)
        free(in[i]);
    for (int p = 0; p < MICS_OP_PARAMS; p++) {
        later_out(c->at, backward ? c->dparams[p] : NULL, dparams[p], later_elems(c, p));
        free(params[p]);
    }
}

static void later_forward(const mics_op_call *call)
{
    later_run(call, false);
}

static void later_backward(const mics_op_call *call)
{
    later_run(call, true);
}

// Two in one, as a GPU has them: what lies between is not written backwards.
static void later_linear_gelu_forward(const mics_op_call *linear, const mics_op_call *gelu)
{
    later_forward(linear);
    later_forward(gelu);
}

static void later_linear_gelu_backward(const mics_op_call *linear, const mics_op_call *gelu)
{
    mics_op_call first = *linear, next = *gelu;
    first.din = gelu->din;
    next.dout = gelu->din;
    later_backward(&first);
    later_backward(&next);
}

// The sum in place of what lies between, which is spoiled: nobody may read it.
static void later_linear_add_forward(const mics_op_call *linear, const mics_op_call *add)
{
    const size_t bytes = (size_t)linear->shape.N * mics_dtype_bytes(linear->at->dtype);
    const char *in = (const char *)linear->in[0], *out = (const char *)add->out;
    later_require(out + bytes * (size_t)add->shape.out <= in ||
                  in + bytes * (size_t)linear->shape.in[0] <= out);
    later_forward(linear);
    later_forward(add);
    if (linear->out != add->out)
        memset(linear->out, 0xff, bytes * (size_t)linear->shape.out);
}

static const mics_op_pair later_pairs[] = {
    {.next = MICS_OP_GELU,
     .forward = later_linear_gelu_forward,
     .backward = later_linear_gelu_backward},
    {.next = MICS_OP_ADD, .forward = later_linear_add_forward, .skips_between = true},
    {.forward = NULL}};
static const mics_op_kernels later_op = {.forward = later_forward, .backward = later_backward};
static const mics_op_kernels later_linear = {
    .forward = later_forward, .backward = later_backward, .pairs = later_pairs};

static void later_accumulate(const mics_exec *at, void *y, const void *x, int64_t elems)
{
    float *wide_y = later_in(at, y, elems), *wide_x = later_in(at, x, elems);
    mics_kernels_get(NULL)->accumulate(at, wide_y, wide_x, elems);
    later_out(at, y, wide_y, elems);
    free(wide_x);
}

static void later_sum_losses(const mics_exec *at, double *sum, const float *loss_N, int64_t N)
{
    mics_kernels_get(NULL)->sum_losses(at, sum, loss_N, N);
}

static void later_sum_squares(const mics_exec *at, double *sum, const float *x, int64_t elems)
{
    mics_kernels_get(NULL)->sum_squares(at, sum, x, elems);
}

static void later_sum_squares_rounded(const mics_exec *at, double *sum, const void *x,
                                      int64_t elems)
{
    float *wide = later_in(at, x, elems);
    later_sum_squares(at, sum, wide, elems);
    free(wide);
}

static void later_hash(const mics_exec *at, uint64_t *hash_out, const void *x, size_t bytes)
{
    mics_kernels_get(NULL)->hash(at, hash_out, x, bytes);
}

static void later_update(const mics_exec *at, const mics_optimizer_update *update)
{
    mics_optimizer_update wide = *update;
    float *grads = later_in(at, update->rounded_grads, update->elems);
    wide.params = NULL;
    wide.rounded_grads = NULL;
    if (grads != NULL)
        wide.grads = grads;
    mics_kernels_get(NULL)->update[update->optimizer->kind](at, &wide);
    free(grads);
    if (update->params != NULL)
        later_narrow(at, update->params, update->masters, update->elems);
}

static void later_sum_blocks(const mics_exec *at, float *sum, const void *own, const void *blocks,
                             int32_t count, int64_t stride, int64_t elems, bool add)
{
    float *wide = later_in(at, own, elems);
    const size_t bytes = (size_t)stride * mics_dtype_bytes(at->dtype);
    for (int32_t block = 0; block < count; block++) {
        float *other = later_in(at, (const char *)blocks + (size_t)block * bytes, elems);
        mics_kernels_get(NULL)->accumulate(at, wide, other, elems);
        free(other);
    }
    for (int64_t i = 0; i < elems; i++)
        sum[i] = add ? sum[i] + wide[i] : wide[i];
    free(wide);
}

static void later_sum_blocks_rounded(const mics_exec *at, void *out, const void *own,
                                     const void *blocks, int32_t count, int64_t stride,
                                     int64_t elems)
{
    float *wide = later_in(at, own, elems);
    later_sum_blocks(at, wide, own, blocks, count, stride, elems, false);
    later_out(at, out, wide, elems);
}

#define LATER_OP(NAME, op)                                                                         \
    [MICS_OP_##NAME] = MICS_OP_##NAME == MICS_OP_LINEAR ? &later_linear : &later_op,
#define LATER_UPDATE(NAME, optimizer) [MICS_OPTIMIZER_##NAME] = later_update,
static void later_pack_state(const mics_exec *at, const mics_state_part *part, const float *values,
                             const mics_state_draw *draw)
{
    mics_kernels_get(NULL)->pack_state(at, part, values, draw);
}

static void later_unpack_state(const mics_exec *at, float *values, const mics_state_part *part)
{
    mics_kernels_get(NULL)->unpack_state(at, values, part);
}

static void later_meet_change(const mics_exec *at, float *message, const float *anchor,
                              const float *held, float weight, int64_t elems)
{
    mics_kernels_get(NULL)->meet_change(at, message, anchor, held, weight, elems);
}

static void later_meet_step(const mics_exec *at, const mics_outer_step *step)
{
    mics_kernels_get(NULL)->meet_step(at, step);
}

static void later_meet_adopt(const mics_exec *at, float *held, float *anchor, const float *message,
                             int64_t elems)
{
    mics_kernels_get(NULL)->meet_adopt(at, held, anchor, message, elems);
}

static void later_meet_round(const mics_exec *at, uint16_t *packed, const float *values,
                             float *residual, int64_t elems)
{
    mics_kernels_get(NULL)->meet_round(at, packed, values, residual, elems);
}

static const mics_kernels later_table = {
    .name = "later",
    .ops = {MICS_OPS(LATER_OP)},
    .accumulate = later_accumulate,
    .sum_losses = later_sum_losses,
    .sum_squares = later_sum_squares,
    .sum_squares_rounded = later_sum_squares_rounded,
    .update = {MICS_OPTIMIZERS(LATER_UPDATE)},
    .pack_state = later_pack_state,
    .unpack_state = later_unpack_state,
    .sum_blocks = later_sum_blocks,
    .sum_blocks_rounded = later_sum_blocks_rounded,
    .round = later_narrow,
    .widen = later_widen,
    .hash = later_hash,
    .meet_change = later_meet_change,
    .meet_step = later_meet_step,
    .meet_adopt = later_meet_adopt,
    .meet_round = later_meet_round,
};
