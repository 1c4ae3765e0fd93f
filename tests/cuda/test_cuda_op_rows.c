// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Kernels over rows: embedding, layernorm, softmax with cross-entropy. Shapes: see mics/kernels.h.
#include "cuda_op.h"
#include <math.h>
#include <string.h>

static const mics_kernels *table(void)
{
    cu_device();
    const mics_kernels *found = mics_kernels_cuda();
    if (!found)
        fail_msg("the plugin has no kernels");
    return found;
}

// ---- the table ----

// C++ fills the structures by position: each entry must be the one of its name.
static void entries_are_where_they_belong(void **state)
{
    (void)state;
    const mics_kernels *t = table();
    assert_string_equal(t->name, "cuda");
#define ASSERT_ENTRY(entry)                                                                        \
    do {                                                                                           \
        void (*function)(void), (*in_table)(void);                                                 \
        cu_symbol("mics_cuda_" #entry, &function);                                                 \
        memcpy(&in_table, &t->entry, sizeof in_table);                                             \
        if (function != in_table)                                                                  \
            fail_msg("the table has another function as " #entry);                                 \
    } while (0)
    ASSERT_ENTRY(accumulate);
    ASSERT_ENTRY(sum_losses);
    ASSERT_ENTRY(sum_squares);
    ASSERT_ENTRY(sum_squares_rounded);
    ASSERT_ENTRY(pack_state);
    ASSERT_ENTRY(unpack_state);
    ASSERT_ENTRY(sum_blocks);
    ASSERT_ENTRY(sum_blocks_rounded);
    ASSERT_ENTRY(round);
    ASSERT_ENTRY(widen);
#undef ASSERT_ENTRY
#define ASSERT_OP(NAME, op)                                                                        \
    assert_ptr_equal(t->ops[MICS_OP_##NAME], mics_plugin_symbol("mics_cuda_" #op "_kernels"));
    MICS_OPS(ASSERT_OP)
#undef ASSERT_OP
    void (*adamw)(const mics_exec *, const mics_optimizer_update *);
    cu_symbol("mics_cuda_adamw_update", &adamw);
    assert_true(t->update[MICS_OPTIMIZER_ADAMW] == adamw);
    for (int kind = 0; kind < MICS_OP_KINDS; kind++) {
        const bool none = mics_op_def_get((mics_op_kind)kind)->travels;
        assert_true((t->ops[kind]->forward == NULL) == none);
        assert_true((t->ops[kind]->backward == NULL) ==
                    (none || mics_op_def_get((mics_op_kind)kind)->backward_passes));
    }
}

static void tokens_are_sorted(void **state)
{
    (void)state;
    const int32_t tokens[] = {3, 0, 3, 6, 0, 3, 1};
    const int32_t want[] = {1, 4, 6, 0, 2, 5, 3};
    int32_t order[7], counts[8];
    mics_op_sort_tokens(order, tokens, 7, 7, counts);
    assert_memory_equal(order, want, sizeof want);
    mics_op_sort_tokens(order, tokens + 1, 1, 1, counts);
    assert_int_equal(order[0], 0);
}

// ---- embedding ----

typedef struct embedding {
    void *y, *dwte, *dwpe;
    const void *wte, *wpe, *dy;
    const int32_t *tokens, *order;
    int64_t N, T, C, V, P;
    bool add_wte, add_wpe;
} embedding;

// What a case is of. `offset`: elements by which buffers begin off 256 bytes.
typedef struct embedding_shape {
    int64_t N, T, C, V, offset;
    int tokens; // 0 random, 1 all the same, 2 each another, else each as often
} embedding_shape;

static void run_embedding_forward(const mics_exec *at, const void *args)
{
    const embedding *e = args;
    op_embedding_forward(table(), at, e->y, e->tokens, e->wte, e->wpe, e->N, e->T, e->C);
}

static void run_embedding_backward(const mics_exec *at, const void *args)
{
    const embedding *e = args;
    op_embedding_backward(table(), at, e->dwte, e->dwpe, e->dy, e->tokens, e->order, e->N, e->T,
                          e->C, e->V, e->P, e->add_wte, e->add_wpe);
}

static void embedding_forward_case(mics_dtype dtype, const embedding_shape *s, bool positions)
{
    cu_case c;
    cu_begin(&c, dtype, 0, "embedding_forward N=%d T=%d C=%d V=%d at %d wpe %d", (int)s->N,
             (int)s->T, (int)s->C, (int)s->V, (int)s->offset, positions);
    const int64_t N = s->N, C = s->C;
    cu_buffer *tokens = cu_ints(&c, "tokens", N, s->V);
    cu_buffer *wte = cu_input(&c, "wte", (int)dtype, s->V * C, s->offset, 1.0);
    cu_buffer *wpe =
        positions ? cu_input(&c, "wpe", (int)dtype, (s->T + 2) * C, s->offset, 1.0) : NULL;
    cu_buffer *y = cu_output(&c, "y", (int)dtype, N * C, s->offset);
    double *want = cu_doubles(&c, N * C), *magnitude = cu_doubles(&c, N * C);
    for (int64_t i = 0; i < N * C; ++i) {
        const double a = wte->values[(int64_t)tokens->values[i / C] * C + i % C];
        const double b = wpe ? wpe->values[i / C % s->T * C + i % C] : 0.0;
        want[i] = a + b;
        magnitude[i] = fabs(a) + fabs(b);
    }
    cu_expect(y, want, magnitude, CU_TOLERANCE);
    const embedding e = {.y = y->data,
                         .tokens = tokens->data,
                         .wte = wte->data,
                         .wpe = wpe ? wpe->data : NULL,
                         .N = N,
                         .T = s->T,
                         .C = C};
    cu_run(&c, run_embedding_forward, &e);
    cu_end(&c);
}

static void choose_tokens(cu_buffer *tokens, const embedding_shape *s)
{
    for (int64_t n = 0; n < s->N && s->tokens > 0; ++n)
        tokens->values[n] = (double)(s->tokens == 1   ? s->V / 2
                                     : s->tokens == 2 ? n * 7 % s->V
                                                      : (n + 5) / s->tokens % s->V);
    cu_changed(tokens);
}

// Positions by token, in a buffer.
static cu_buffer *sorted(cu_case *c, const cu_buffer *tokens, int64_t V)
{
    int32_t *plain = (int32_t *)(void *)cu_doubles(c, tokens->elems);
    int32_t *order_N = (int32_t *)(void *)cu_doubles(c, tokens->elems);
    int32_t *counts_V = (int32_t *)(void *)cu_doubles(c, V + 1);
    for (int64_t n = 0; n < tokens->elems; ++n)
        plain[n] = (int32_t)tokens->values[n];
    mics_op_sort_tokens(order_N, plain, tokens->elems, V, counts_V);
    cu_buffer *order = cu_ints(c, "order", tokens->elems, 1);
    for (int64_t n = 0; n < tokens->elems; ++n)
        order->values[n] = order_N[n];
    cu_changed(order);
    return order;
}

static void embedding_backward_case(mics_dtype dtype, const embedding_shape *s, bool positions,
                                    bool add_wte, bool add_wpe)
{
    cu_case c;
    cu_begin(&c, dtype, 0, "embedding_backward N=%d T=%d C=%d V=%d at %d wpe %d add %d %d",
             (int)s->N, (int)s->T, (int)s->C, (int)s->V, (int)s->offset, positions, add_wte,
             add_wpe);
    const int64_t N = s->N, C = s->C, V = s->V, P = s->T + 2;
    cu_buffer *tokens = cu_ints(&c, "tokens", N, V);
    choose_tokens(tokens, s);
    cu_buffer *order = sorted(&c, tokens, V);
    cu_buffer *dy = cu_input(&c, "dy", (int)dtype, N * C, s->offset, 1.0);
    cu_buffer *dwte = cu_inout(&c, "dwte", (int)dtype, V * C, s->offset, add_wte);
    cu_buffer *dwpe =
        positions ? cu_inout(&c, "dwpe", (int)dtype, P * C, s->offset, add_wpe) : NULL;
    double *wte = cu_doubles(&c, V * C), *wte_sum = cu_doubles(&c, V * C);
    double *wpe = cu_doubles(&c, P * C), *wpe_sum = cu_doubles(&c, P * C);
    for (int64_t i = 0; add_wte && i < V * C; ++i) {
        wte[i] = dwte->values[i];
        wte_sum[i] = fabs(wte[i]);
    }
    for (int64_t i = 0; dwpe && add_wpe && i < P * C; ++i) {
        wpe[i] = dwpe->values[i];
        wpe_sum[i] = fabs(wpe[i]);
    }
    for (int64_t i = 0; i < N * C; ++i) {
        const int64_t token = (int64_t)tokens->values[i / C] * C + i % C;
        const int64_t position = i / C % s->T * C + i % C;
        wte[token] += dy->values[i];
        wte_sum[token] += fabs(dy->values[i]);
        wpe[position] += dy->values[i];
        wpe_sum[position] += fabs(dy->values[i]);
    }
    cu_expect(dwte, wte, wte_sum, CU_TOLERANCE);
    if (dwpe)
        cu_expect(dwpe, wpe, wpe_sum, CU_TOLERANCE);
    const embedding e = {.dwte = dwte->data,
                         .dwpe = dwpe ? dwpe->data : NULL,
                         .dy = dy->data,
                         .tokens = tokens->data,
                         .order = order->data,
                         .N = N,
                         .T = s->T,
                         .C = C,
                         .V = V,
                         .P = P,
                         .add_wte = add_wte,
                         .add_wpe = add_wpe};
    cu_run(&c, run_embedding_backward, &e);
    cu_end(&c);
}

static void embedding_and_gradient(void **state)
{
    (void)state;
    // N need not be a multiple of T: the last sequence may be short.
    static const embedding_shape shapes[] = {
        {1, 1, 1, 1, 0, 0},      {6, 3, 17, 7, 0, 0},     {15, 5, 8, 2, 0, 0},
        {17, 17, 64, 9, 0, 2},   {21, 10, 64, 30, 1, 0},  {65, 16, 264, 5, 0, 0},
        {300, 32, 16, 3, 0, 1},  {9, 4, 130, 11, 0, 2},   {600, 7, 8, 2, 0, 0},
        {4, 4, 2100, 6, 0, 0},   {31, 8, 40, 3, 0, 1},    {200, 50, 264, 9, 0, 30},
        {200, 50, 16, 9, 0, 31}, {200, 50, 16, 9, 0, 32}, {30, 30, 5, 1, 0, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
        for (int dtype = 0; dtype < MICS_DTYPES; ++dtype)
            for (int flags = 0; flags < 8; ++flags) {
                if (flags < 2)
                    embedding_forward_case((mics_dtype)dtype, &shapes[i], flags);
                if (flags == 0 || flags == 7 || (flags + (int)i) % 3 == 0)
                    embedding_backward_case((mics_dtype)dtype, &shapes[i], flags & 1, flags & 2,
                                            flags & 4);
            }
}

// ---- layernorm ----

static const double EPS = 1e-5;

typedef struct layernorm {
    void *y, *dx, *dweight, *dbias;
    float *stats;
    const void *x, *weight, *bias, *dy;
    int64_t N, C;
    bool add_dx, add_params;
} layernorm;

static void run_layernorm_forward(const mics_exec *at, const void *args)
{
    const layernorm *l = args;
    op_layernorm_forward(table(), at, l->y, l->stats, l->x, l->weight, l->bias, (float)EPS, l->N,
                         l->C);
}

static void run_layernorm_backward(const mics_exec *at, const void *args)
{
    const layernorm *l = args;
    op_layernorm_backward(table(), at, l->dx, l->dweight, l->dbias, l->dy, l->x, l->stats,
                          l->weight, l->N, l->C, l->add_dx, l->add_params);
}

// Kernels sum a row in whatever order; rounding grows with the root of its length.
static double row_tolerance(int64_t C)
{
    return CU_TOLERANCE * (1 + sqrt((double)C) / 16);
}

// Mean, 1 / deviation and mean of |x| of each row, in fp64.
static void row_stats(double *stats, double *mean_abs, const double *x, int64_t N, int64_t C)
{
    for (int64_t n = 0; n < N; ++n) {
        double sum = 0, sum_abs = 0, squares = 0;
        for (int64_t i = 0; i < C; ++i) {
            sum += x[n * C + i];
            sum_abs += fabs(x[n * C + i]);
        }
        for (int64_t i = 0; i < C; ++i)
            squares += (x[n * C + i] - sum / (double)C) * (x[n * C + i] - sum / (double)C);
        stats[2 * n] = sum / (double)C;
        stats[2 * n + 1] = 1 / sqrt(squares / (double)C + (double)(float)EPS);
        mean_abs[n] = sum_abs / (double)C;
    }
}

static void layernorm_forward_case(mics_dtype dtype, int64_t N, int64_t C, int64_t offset,
                                   double shift)
{
    cu_case c;
    cu_begin(&c, dtype, 0, "layernorm_forward N=%d C=%d at %d shift %g", (int)N, (int)C,
             (int)offset, shift);
    cu_buffer *x = cu_input(&c, "x", (int)dtype, N * C, offset, 2.0);
    for (int64_t i = 0; i < N * C; ++i)
        x->values[i] += shift;
    cu_changed(x);
    cu_buffer *weight = cu_input(&c, "weight", (int)dtype, C, offset, 1.0);
    cu_buffer *bias = cu_input(&c, "bias", (int)dtype, C, offset, 1.0);
    cu_buffer *y = cu_output(&c, "y", (int)dtype, N * C, offset);
    cu_buffer *stats = cu_output(&c, "stats", MICS_DTYPE_FP32, N * 2, 0);
    double *mean_abs = cu_doubles(&c, N);
    double *stats_want = cu_doubles(&c, 2 * N), *stats_sum = cu_doubles(&c, 2 * N);
    double *y_want = cu_doubles(&c, N * C), *y_sum = cu_doubles(&c, N * C);
    row_stats(stats_want, mean_abs, x->values, N, C);
    for (int64_t i = 0; i < N * C; ++i) {
        const int64_t n = i / C;
        const double mean = stats_want[2 * n], scale = stats_want[2 * n + 1];
        y_want[i] = (x->values[i] - mean) * scale * weight->values[i % C] + bias->values[i % C];
        y_sum[i] = (fabs(x->values[i]) + mean_abs[n]) * scale * fabs(weight->values[i % C]) +
                   fabs(bias->values[i % C]);
        stats_sum[2 * n] = mean_abs[n];
        stats_sum[2 * n + 1] = scale;
    }
    cu_expect(y, y_want, y_sum, row_tolerance(C));
    cu_expect(stats, stats_want, stats_sum, row_tolerance(C));
    const layernorm l = {.y = y->data,
                         .stats = stats->data,
                         .x = x->data,
                         .weight = weight->data,
                         .bias = bias->data,
                         .N = N,
                         .C = C};
    cu_run(&c, run_layernorm_forward, &l);
    cu_end(&c);
}

// What backward must give, each number with the sum of its absolute terms.
typedef struct layernorm_wide {
    const double *x, *dy, *weight;
    double *stats, *mean_abs, *dx, *dweight, *dbias, *dx_sum, *dweight_sum, *dbias_sum;
    int64_t N, C;
} layernorm_wide;

static void wide_row(const layernorm_wide *w, int64_t n)
{
    const int64_t C = w->C;
    const double mean = w->stats[2 * n], scale = w->stats[2 * n + 1], count = (double)C;
    double sum = 0, sum_normal = 0, abs_sum = 0, abs_normal = 0;
    for (int64_t i = 0; i < C; ++i) {
        const double dy = w->dy[n * C + i], x = w->x[n * C + i], normal = (x - mean) * scale;
        const double normal_sum = (fabs(x) + w->mean_abs[n]) * scale;
        sum += dy * w->weight[i];
        sum_normal += dy * w->weight[i] * normal;
        abs_sum += fabs(dy * w->weight[i]);
        abs_normal += fabs(dy * w->weight[i]) * normal_sum;
        w->dweight[i] += dy * normal;
        w->dweight_sum[i] += fabs(dy) * normal_sum;
        w->dbias[i] += dy;
        w->dbias_sum[i] += fabs(dy);
    }
    for (int64_t i = 0; i < C; ++i) {
        const double g = w->dy[n * C + i] * w->weight[i], x = w->x[n * C + i];
        const double normal = (x - mean) * scale, normal_sum = (fabs(x) + w->mean_abs[n]) * scale;
        w->dx[n * C + i] += scale * (g - sum / count - normal * sum_normal / count);
        w->dx_sum[n * C + i] +=
            scale * (fabs(g) + abs_sum / count + normal_sum * abs_normal / count);
    }
}

// An array's values before the run, if it is added to, and their absolutes.
static void begin_with(const cu_buffer *buffer, bool add, double *want, double *sum)
{
    for (int64_t i = 0; add && i < buffer->elems; ++i) {
        want[i] = buffer->values[i];
        sum[i] = fabs(buffer->values[i]);
    }
}

static void layernorm_backward_case(mics_dtype dtype, int64_t N, int64_t C, int64_t offset,
                                    int flags)
{
    const bool add_dx = flags & 1, add_params = flags & 2, alias = flags & 4;
    const size_t workspace =
        op_workspace_bytes(dtype, MICS_OP_LAYERNORM, (mics_op_shape){.N = N, .in = {C}, .out = C});
    cu_case c;
    cu_begin(&c, dtype, workspace, "layernorm_backward N=%d C=%d at %d add %d %d alias %d", (int)N,
             (int)C, (int)offset, add_dx, add_params, alias);
    cu_buffer *x = cu_input(&c, "x", (int)dtype, N * C, offset, 2.0);
    cu_buffer *weight = cu_input(&c, "weight", (int)dtype, C, offset, 1.0);
    cu_buffer *stats = cu_input(&c, "stats", MICS_DTYPE_FP32, N * 2, 0, 1.0);
    cu_buffer *dy = cu_input(&c, "dy", (int)dtype, N * C, offset, 1.0);
    cu_buffer *dx = alias ? dy : cu_inout(&c, "dx", (int)dtype, N * C, offset, add_dx);
    dx->role = alias ? CU_INOUT : dx->role;
    cu_buffer *dweight = cu_inout(&c, "dweight", (int)dtype, C, offset, add_params);
    cu_buffer *dbias = cu_inout(&c, "dbias", (int)dtype, C, offset, add_params);
    layernorm_wide w = {.weight = weight->values, .x = x->values, .N = N, .C = C};
    double *dy_values = cu_doubles(&c, N * C); // dx may come to lie over them
    memcpy(dy_values, dy->values, (size_t)(N * C) * sizeof *dy_values);
    w.dy = dy_values;
    w.stats = cu_doubles(&c, 2 * N), w.mean_abs = cu_doubles(&c, N);
    w.dx = cu_doubles(&c, N * C), w.dx_sum = cu_doubles(&c, N * C);
    w.dweight = cu_doubles(&c, C), w.dweight_sum = cu_doubles(&c, C);
    w.dbias = cu_doubles(&c, C), w.dbias_sum = cu_doubles(&c, C);
    row_stats(w.stats, w.mean_abs, x->values, N, C);
    memcpy(stats->values, w.stats, (size_t)(2 * N) * sizeof *w.stats);
    cu_changed(stats);
    begin_with(dx, add_dx, w.dx, w.dx_sum);
    begin_with(dweight, add_params, w.dweight, w.dweight_sum);
    begin_with(dbias, add_params, w.dbias, w.dbias_sum);
    for (int64_t n = 0; n < N; ++n)
        wide_row(&w, n);
    cu_expect(dx, w.dx, w.dx_sum, row_tolerance(C));
    cu_expect(dweight, w.dweight, w.dweight_sum, row_tolerance(C));
    cu_expect(dbias, w.dbias, w.dbias_sum, CU_TOLERANCE);
    const layernorm l = {.dx = dx->data,
                         .dweight = dweight->data,
                         .dbias = dbias->data,
                         .dy = dy->data,
                         .x = x->data,
                         .stats = stats->data,
                         .weight = weight->data,
                         .N = N,
                         .C = C,
                         .add_dx = add_dx,
                         .add_params = add_params};
    cu_run(&c, run_layernorm_backward, &l);
    cu_end(&c);
}

// Lengths of rows for each kernel that there is: teams of a warp to whole blocks, one to eight
// packs a thread, plain loops.
static void layernorm_and_gradient(void **state)
{
    (void)state;
    static const int64_t channels[] = {1,    2,    3,    8,    17,   64,    65,    130,
                                       256,  264,  768,  1001, 1024, 1032,  1600,  2056,
                                       3072, 4104, 6000, 8192, 8200, 12288, 16384, 16392};
    static const int64_t rows[] = {1, 3, 17, 2};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; ++i)
        for (int dtype = 0; dtype < MICS_DTYPES; ++dtype) {
            const int64_t N = channels[i] > 2000 ? 1 + (int64_t)i % 3 : rows[i % 4];
            const int64_t offset = i % 5 == 3;
            layernorm_forward_case((mics_dtype)dtype, N, channels[i], offset, 0.0);
            layernorm_backward_case((mics_dtype)dtype, N, channels[i], offset,
                                    ((int)i + dtype) % 8);
        }
}

// Rows enough that each block has several, of each team, and flags in all combinations.
static void layernorm_of_many_rows(void **state)
{
    (void)state;
    layernorm_forward_case(MICS_DTYPE_BF16, 300, 8, 0, 0.0);
    layernorm_forward_case(MICS_DTYPE_FP32, 3, 768, 0, 1000.0);
    layernorm_backward_case(MICS_DTYPE_BF16, 4200, 8, 0, 0);
    layernorm_backward_case(MICS_DTYPE_FP32, 1100, 132, 0, 3);
    layernorm_backward_case(MICS_DTYPE_FP16, 800, 1032, 0, 0);
    layernorm_backward_case(MICS_DTYPE_BF16, 400, 2056, 0, 2);
    layernorm_backward_case(MICS_DTYPE_FP32, 600, 3, 0, 0);
    for (int flags = 0; flags < 8; ++flags) {
        layernorm_backward_case(MICS_DTYPE_BF16, 33, 72, 0, flags);
        layernorm_backward_case(MICS_DTYPE_BF16, 33, 70, 0, flags);
    }
}

// ---- softmax and cross-entropy ----

static void (*cross_entropy)(const mics_exec *at, const mics_cuda_logits *logits);

static void run_cross_entropy(const mics_exec *at, const void *args)
{
    cross_entropy(at, args);
}

enum { LOSS_ALONE, IN_PLACE, APART };

// What a row's losses and gradients must be.
typedef struct entropy_wide {
    double *loss, *loss_sum, *slopes, *slopes_sum;
} entropy_wide;

static void entropy_row(const entropy_wide *w, const double *logits, int64_t target, double scale,
                        int64_t r, int64_t V)
{
    double highest = -(double)INFINITY, sum = 0;
    for (int64_t v = 0; v < V; ++v)
        highest = fmax(highest, logits[v]);
    for (int64_t v = 0; v < V; ++v)
        sum += exp(logits[v] - highest);
    w->loss[r] = log(sum) - (logits[target] - highest);
    w->loss_sum[r] = log(sum) + fabs(logits[target]) + fabs(highest) + 1;
    for (int64_t v = 0; v < V; ++v) {
        const double below = fmin(highest - logits[v], 1e4), share = exp(-below) / sum;
        w->slopes[v] = scale * (share - (v == target));
        w->slopes_sum[v] = fabs(scale) * (share * (1 + below) + (v == target));
    }
}

static void entropy_case(mics_dtype dtype, mics_dtype logits_dtype, int64_t R, int64_t V,
                         int64_t stride, int kind, double spread)
{
    CU_ENTRY(cross_entropy);
    cu_case c;
    cu_begin(&c, dtype, 0, "cross_entropy of %s R=%d V=%d stride %d kind %d spread %g",
             mics_dtype_text(logits_dtype), (int)R, (int)V, (int)stride, kind, spread);
    const double scale = 0.37;
    cu_buffer *targets = cu_ints(&c, "targets", R, V);
    cu_buffer *logits = cu_input(&c, "logits", (int)logits_dtype, R * stride, 0, spread);
    if (spread > 100 && V > 2) { // a row that is certain, and one that excludes a word
        targets->values[0] = 1;
        cu_changed(targets);
        logits->values[1] = 30000;
        logits->values[(R - 1) * stride] = -(double)INFINITY;
        cu_changed(logits);
    }
    cu_buffer *loss = cu_output(&c, "loss", MICS_DTYPE_FP32, R, 0);
    cu_buffer *slopes = kind == APART      ? cu_output(&c, "slopes", (int)dtype, R * stride, 0)
                        : kind == IN_PLACE ? logits
                                           : NULL;
    logits->role = kind == IN_PLACE ? CU_INOUT : CU_INPUT;
    entropy_wide w = {cu_doubles(&c, R), cu_doubles(&c, R), cu_doubles(&c, R * stride),
                      cu_doubles(&c, R * stride)};
    for (int64_t i = 0; i < R * stride; ++i)
        w.slopes[i] = (double)NAN; // behind V, nothing is written
    for (int64_t r = 0; r < R; ++r) {
        const entropy_wide row = {w.loss, w.loss_sum, w.slopes + r * stride,
                                  w.slopes_sum + r * stride};
        entropy_row(&row, logits->values + r * stride, (int64_t)targets->values[r],
                    (double)(float)scale, r, V);
    }
    const double quick = logits_dtype == MICS_DTYPE_FP32 ? CU_TOLERANCE : CU_QUICK;
    cu_expect(loss, w.loss, w.loss_sum, quick);
    if (slopes)
        cu_expect(slopes, w.slopes, w.slopes_sum, quick);
    const mics_cuda_logits args = {.logits = logits->data,
                                   .logits_dtype = logits_dtype,
                                   .gradients = slopes ? slopes->data : NULL,
                                   .targets = targets->data,
                                   .loss = loss->data,
                                   .scale = (float)scale,
                                   .R = R,
                                   .V = V,
                                   .stride = stride};
    cu_run(&c, run_cross_entropy, &args);
    cu_end(&c);
}

static void losses_and_gradients(void **state)
{
    (void)state;
    static const int64_t words[] = {1, 2, 7, 8, 50, 256, 257, 1000, 1024, 1025, 1032, 5003};
    for (size_t i = 0; i < sizeof words / sizeof *words; ++i)
        for (int dtype = 0; dtype < MICS_DTYPES; ++dtype) {
            const int64_t V = words[i], R = V > 1000 ? 3 : 1 + (int64_t)i * 3 % 20;
            const int64_t padded = (V + 7) / 8 * 8, stride = i % 3 == 2 ? V : padded + 8;
            const mics_dtype type = (mics_dtype)dtype;
            for (int kind = LOSS_ALONE; kind <= APART; ++kind)
                entropy_case(type, type, R, V, stride, kind, 3.0);
            if (type != MICS_DTYPE_FP32)
                entropy_case(type, MICS_DTYPE_FP32, R, V, stride, APART, 3.0);
            entropy_case(type, type, R, V, stride, IN_PLACE, 1000.0);
        }
    entropy_case(MICS_DTYPE_BF16, MICS_DTYPE_BF16, 2, 50257, 50304, IN_PLACE, 3.0);
    entropy_case(MICS_DTYPE_FP32, MICS_DTYPE_FP32, 1, 50257, 50257, IN_PLACE, 10.0);
    entropy_case(MICS_DTYPE_BF16, MICS_DTYPE_BF16, 70, 24, 24, IN_PLACE, 1.0);
}

// A logit that is no number must not pass for a loss.
static void losses_of_no_number(void **state)
{
    (void)state;
    CU_ENTRY(cross_entropy);
    static const int64_t words[] = {40, 4000};
    for (int i = 0; i < 4; ++i) {
        const int64_t V = words[i / 2];
        cu_case c;
        cu_begin(&c, MICS_DTYPE_BF16, 0, "cross_entropy of no number V=%d", (int)V);
        cu_buffer *targets = cu_ints(&c, "targets", 1, V);
        cu_buffer *logits = cu_input(&c, "logits", MICS_DTYPE_BF16, V, 0, 1.0);
        logits->values[V - 3] = i % 2 ? (double)NAN : (double)INFINITY;
        cu_changed(logits);
        cu_buffer *loss = cu_output(&c, "loss", MICS_DTYPE_FP32, 1, 0);
        const mics_cuda_logits args = {.logits = logits->data,
                                       .logits_dtype = MICS_DTYPE_BF16,
                                       .targets = targets->data,
                                       .loss = loss->data,
                                       .R = 1,
                                       .V = V,
                                       .stride = V};
        cu_run(&c, run_cross_entropy, &args);
        assert_true(!isfinite(loss->values[0]));
        cu_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_are_where_they_belong), cmocka_unit_test(tokens_are_sorted),
        cmocka_unit_test(embedding_and_gradient),        cmocka_unit_test(layernorm_and_gradient),
        cmocka_unit_test(layernorm_of_many_rows),        cmocka_unit_test(losses_and_gradients),
        cmocka_unit_test(losses_of_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
