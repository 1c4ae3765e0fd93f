// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Times calls: operands that lie elsewhere in memory from call to call, as those of layer after layer
// do, and the median of several samples. What an op reads and writes follows from its descriptor.
#include "base/clock.h"
#include "base/size.h"
#include "measure/internal.h"
#include <math.h>
#include <string.h>

void *measure_take(measure_layout *layout, bool writes, int64_t bytes)
{
    char *const base = layout->base[writes];
    void *const operand = base != NULL ? base + layout->bytes[writes] : NULL;
    layout->bytes[writes] += (size_t)mics_size_round_up(bytes, 64);
    return operand;
}

// An operand of `bytes`, if there is one, to the pointer at `to`.
static void lay(measure_layout *layout, void *to, bool writes, int64_t bytes)
{
    void *const operand = bytes > 0 ? measure_take(layout, writes, bytes) : NULL;
    memcpy(to, &operand, sizeof operand); // all kinds of pointers
}

mics_status measure_op_lay(measure_layout *layout, mics_op_call *c)
{
    const mics_op_shape *s = &c->shape;
    const mics_op_def *def = mics_op_def_get(s->op->kind);
    const int64_t elem = (int64_t)mics_dtype_bytes(c->at->dtype), fp32 = (int64_t)sizeof(float);
    const int64_t row = s->N * (s->op->wide ? fp32 : elem);
    int64_t out = 0, stats = 0;
    MICS_TRY(def->make(s, &out, &stats));
    for (int i = 0; i < MICS_OP_INPUTS; i++)
        lay(layout, &c->in[i], false, row * s->in[i]);
    for (int p = 0; p < MICS_OP_PARAMS; p++) {
        const int64_t one = s->params[p][0] * (s->params[p][1] > 0 ? s->params[p][1] : 1);
        const int64_t elems = s->expert_elems > 0 ? s->expert_elems * s->op->experts.count : one;
        lay(layout, &c->params[p], false, elems * elem);
        lay(layout, &c->dparams[p], true, elems * elem);
    }
    lay(layout, &c->out, true, row * s->out);
    lay(layout, &c->losses, true, def->loss ? s->N * fp32 : 0);
    lay(layout, &c->stats, true, s->N * stats * fp32);
    lay(layout, &c->dout, false, row * s->out);
    lay(layout, &c->din, true, row * s->in[0]);
    lay(layout, &c->din_second, true, def->backward_second ? row * s->in[1] : 0);
    return MICS_OK;
}

static mics_status sample(measure_timer *self, int32_t calls, int32_t mark)
{
    for (int32_t i = 0; i < calls; i++)
        MICS_TRY(self->call(self->ctx, self->calls++));
    return self->mark(self->ctx, mark);
}

// So many calls that a sample of them lasts long enough; what one takes by the clock on the wall.
static mics_status warm_up(measure_timer *self, double *once_us_out)
{
    double us = 0, begin_us = 0;
    for (int twice = 0; twice < 2; twice++) {
        begin_us = mics_clock_us();
        MICS_TRY(sample(self, self->warm_ups, 0));
        MICS_TRY(self->read(self->ctx, 0, &us));
    }
    *once_us_out = (mics_clock_us() - begin_us) / self->warm_ups;
    self->repeats = (int32_t)fmin(self->sample_us / *once_us_out + 1, self->max_repeats);
    return MICS_OK;
}

mics_status measure_timer_run(measure_timer *self)
{
    double at_us[MEASURE_MAX_SAMPLES + 1], us[MEASURE_MAX_SAMPLES], once_us = 0;
    const double begin_us = mics_clock_us();
    int32_t count = 0;
    self->calls = 0;
    self->repeats = 1;
    if (self->warm_ups > 0)
        MICS_TRY(warm_up(self, &once_us));
    if (self->allowed_us > 0 && once_us * self->min_samples >= self->allowed_us)
        self->min_samples = 1;
    MICS_TRY(self->mark(self->ctx, 0));
    do
        MICS_TRY(sample(self, self->repeats, ++count));
    while (count < MEASURE_MAX_SAMPLES &&
           (count < self->min_samples || mics_clock_us() - begin_us < self->allowed_us));
    // The last first: a device that has to renew the event that it measures from does so at the
    // oldest distance.
    for (int32_t i = count; i >= 0; i--)
        MICS_TRY(self->read(self->ctx, i, &at_us[i]));
    for (int32_t i = 0; i < count; i++)
        us[i] = (at_us[i + 1] - at_us[i]) / self->repeats;
    self->median_us = measure_median(us, count);
    self->least_us = us[0]; // it sorts them
    self->most_us = us[count - 1];
    return MICS_OK;
}
