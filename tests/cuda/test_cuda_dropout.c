// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Dropout on a GPU: the bits of the CPU's masks.
#include "cuda_op.h"
#include "masks.h"
#include <math.h>
#include <string.h>

typedef struct dropout {
    void *to;
    const void *from;
    int64_t B, T, C;
    op_dropout by; // with the device's draw
    bool add;
} dropout;

static void run_forward(const mics_exec *at, const void *args)
{
    const dropout *d = args;
    op_dropout_forward(mics_kernels_cuda(), at, d->to, d->from, d->B, d->T, d->C, d->by);
}

static void run_backward(const mics_exec *at, const void *args)
{
    const dropout *d = args;
    op_dropout_backward(mics_kernels_cuda(), at, d->to, d->from, d->B, d->T, d->C, d->by, d->add);
}

// A pass over (B, T, C) numbers that begin at element `offset`; backward may be in place.
typedef struct pass {
    mics_dtype dtype;
    int64_t B, T, C, offset;
    float probability;
    bool backward, add, in_place, draws;
} pass;

static const mics_dropout_draw host_draw = {.key = {0x12345678, 0x9abcdef0}, .sequence = 77};

static cu_buffer *device_draw(cu_case *c)
{
    cu_buffer *draw = cu_ints(c, "draw", sizeof host_draw / sizeof(int32_t), 1);
    int32_t words[sizeof host_draw / sizeof(int32_t)];
    memcpy(words, &host_draw, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; ++i)
        draw->values[i] = words[i];
    cu_changed(draw);
    return draw;
}

static void check(const pass *p)
{
    const int64_t elems = p->B * p->T * p->C;
    const uint32_t mask = 5;
    cu_case c;
    cu_begin(&c, p->dtype, 0, "dropout B=%d T=%d C=%d at %d p=%g backward %d add %d in place %d",
             (int)p->B, (int)p->T, (int)p->C, (int)p->offset, (double)p->probability, p->backward,
             p->add, p->in_place);
    cu_buffer *draw = device_draw(&c);
    cu_buffer *from = p->in_place
                          ? cu_inout(&c, "from and to", (int)p->dtype, elems, p->offset, true)
                          : cu_input(&c, "from", (int)p->dtype, elems, p->offset, 1.0);
    cu_buffer *to =
        p->in_place ? from : cu_inout(&c, "to", (int)p->dtype, elems, p->offset, p->add);
    double *want = cu_doubles(&c, elems), *sum = cu_doubles(&c, elems);
    for (int64_t i = 0; i < elems; ++i) {
        const int64_t n = i / p->C;
        want[i] = from->values[i] * mask_factor(p->draws ? &host_draw : NULL, p->probability, mask,
                                                n / p->T, n % p->T, i % p->C);
        sum[i] = fabs(want[i]) + (p->add ? fabs(to->values[i]) : 0);
        want[i] += p->add ? to->values[i] : 0;
    }
    cu_expect(to, want, sum, CU_TOLERANCE);
    const dropout d = {.to = to->data,
                       .from = from->data,
                       .B = p->B,
                       .T = p->T,
                       .C = p->C,
                       .by = {p->probability, mask, p->draws ? draw->data : NULL},
                       .add = p->add};
    cu_run(&c, p->backward ? run_backward : run_forward, &d);
    cu_end(&c);
}

static void dropout_matches(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {{1, 1, 1, 0},    {2, 3, 5, 0},   {2, 9, 64, 0},
                                        {1, 33, 65, 1},  {3, 5, 128, 1}, {2, 35, 96, 0},
                                        {1, 2, 2056, 0}, {1, 1, 4099, 0}};
    static const float probabilities[] = {0.1F, 0.5F, 0.999999F};
    cu_device();
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); ++i)
        for (int dtype = 0; dtype < MICS_DTYPES; ++dtype) {
            pass p = {.dtype = (mics_dtype)dtype,
                      .B = shapes[i][0],
                      .T = shapes[i][1],
                      .C = shapes[i][2],
                      .offset = shapes[i][3],
                      .probability = probabilities[(i + dtype) % 3],
                      .draws = true};
            check(&p);
            p.backward = true;
            p.add = (i + dtype) % 2;
            check(&p);
            p.add = false;
            p.in_place = true;
            check(&p);
            p.backward = p.in_place = p.draws = false; // an evaluation
            check(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(dropout_matches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
