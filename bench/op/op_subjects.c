// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The subjects of op_speed. An op's buffers, FLOPs and workspace are its descriptor's; its bytes are
// those of what a pass reads and writes, each once.
#include "op_subjects.h"
#include "ops/activation/cases.h"
#include "ops/attention/cases.h"
#include "ops/embedding/cases.h"
#include "ops/gelu/cases.h"
#include "ops/head_norm/cases.h"
#include "ops/layernorm/cases.h"
#include "ops/linear/cases.h"
#include "ops/lm_head/cases.h"
#include "ops/lora/cases.h"
#include "ops/rmsnorm/cases.h"
#include "ops/rotary/cases.h"
#include "ops/sigmoid_gate/cases.h"
#include <stdio.h>

// ---- kernels over shards ----

enum { BLOCKS = 3 }; // that are summed

static void run_accumulate(const bench *b, int64_t elems, void *const *p)
{
    b->table->accumulate(&b->at, p[0], p[1], elems);
}

static void run_sum_losses(const bench *b, int64_t elems, void *const *p)
{
    b->table->sum_losses(&b->at, p[1], p[0], elems);
}

static void run_sum_squares(const bench *b, int64_t elems, void *const *p)
{
    b->table->sum_squares(&b->at, p[1], p[0], elems);
}

static void run_adamw(const bench *b, int64_t elems, void *const *p)
{
    const mics_optimizer optimizer = mics_optimizer_standard(MICS_OPTIMIZER_ADAMW);
    const mics_optimizer_update update = {.optimizer = &optimizer,
                                          .lr = 1e-4F,
                                          .grad_scale = 1,
                                          .decays = true,
                                          .step = 1,
                                          .rows = 1,
                                          .columns = elems,
                                          .elems = elems,
                                          .params = p[0],
                                          .masters = p[1],
                                          .states = {p[2], p[3]},
                                          .grads = p[4]};
    b->table->update[optimizer.kind](&b->at, &update);
}

static void run_sum_blocks(const bench *b, int64_t elems, void *const *p)
{
    b->table->sum_blocks(&b->at, p[0], p[1], p[2], BLOCKS, elems, elems, true);
}

static void run_sum_blocks_rounded(const bench *b, int64_t elems, void *const *p)
{
    b->table->sum_blocks_rounded(&b->at, p[0], p[1], p[2], BLOCKS, elems, elems);
}

static void run_round(const bench *b, int64_t elems, void *const *p)
{
    b->table->round(&b->at, p[0], p[1], elems);
}

static void run_widen(const bench *b, int64_t elems, void *const *p)
{
    b->table->widen(&b->at, p[0], p[1], elems);
}

static const shard_kernel shard_kernels[] = {
    {"widen", "fx", "11", OF_SHARD, run_widen}, // of fp32 a copy
    {"accumulate", "xx", "21", OF_ROWS, run_accumulate},
    {"sum_losses", "fd", "10", OF_TOKENS, run_sum_losses},
    {"sum_squares", "fd", "10", OF_SHARD, run_sum_squares},
    {"adamw_update", "xff+f", "12221", OF_SHARD, run_adamw},
    {"sum_blocks", "fxb", "211", OF_SHARD, run_sum_blocks},
    {"sum_blocks_rounded", "xxb", "111", OF_SHARD, run_sum_blocks_rounded},
    {"round", "xf", "11", OF_SHARD, run_round}};

static int64_t buffer_bytes(const bench *b, const subject *s, int i)
{
    const int64_t elem = (int64_t)mics_dtype_bytes(b->at.dtype);
    switch (s->shards->holds[i]) {
    case 'x':
        return elem * s->N;
    case 'b':
        return elem * s->N * BLOCKS;
    case 'd':
        return (int64_t)sizeof(double);
    default:
        return (int64_t)sizeof(float) * s->N;
    }
}

static void fill(bench *b, char holds, void *to, int64_t bytes)
{
    const random_kind kind = holds == 'f'   ? RANDOM_FP32
                             : holds == '+' ? RANDOM_POSITIVE
                                            : RANDOM_DTYPE;
    if (holds != 'd') // the device's memory is zeros
        random_source_fill(&b->random, kind, to, bytes);
}

static void run_shards(bench *b, const subject *s, measure_layout *layout, bool first)
{
    void *p[BUFFERS] = {NULL};
    for (int i = 0; s->shards->holds[i] != '\0'; ++i) {
        const int64_t bytes = buffer_bytes(b, s, i);
        p[i] = measure_take(layout, false, bytes);
        if (first && p[i] != NULL)
            fill(b, s->shards->holds[i], p[i], bytes);
    }
    if (p[0] != NULL && !first)
        s->shards->run(b, s->N, p);
}

static subject over_shards(const bench *b, const shard_kernel *kernel, int64_t elems)
{
    subject s = {.shards = kernel, .N = elems};
    snprintf(s.name, sizeof s.name, "%s", kernel->name);
    for (int i = 0; kernel->moves[i] != '\0'; ++i)
        s.bytes += (double)(buffer_bytes(b, &s, i) * (kernel->moves[i] - '0'));
    return s;
}

subject subject_copy(const bench *b, int64_t elems)
{
    return over_shards(b, &shard_kernels[0], elems);
}

// ---- ops ----

static mics_op_call call_of(const bench *b, const mics_op_case *of)
{
    mics_op_call call = {.at = &b->at,
                         .shape = of->shape,
                         .routes = b->routes,
                         .tokens = b->tokens,
                         .order = b->order,
                         .targets = of->op.kind == MICS_OP_LM_HEAD ? b->tokens : NULL,
                         .add_din = of->add_din,
                         .add_params = {of->add_params[0]},
                         .loss_scale = of->loss_scale,
                         .chunk_rows = of->chunk_rows};
    call.shape.op = &of->op;
    return call;
}

// An op's forward pass comes first, for what its backward reads: probabilities of any numbers would
// be none, say.
static void run_op(const bench *b, const subject *s, const mics_op_call *call, bool backward)
{
    const mics_op_kernels *kernels = b->table->ops[s->of.op.kind];
    (backward ? kernels->backward : kernels->forward)(call);
}

static mics_status run_pair(const bench *b, const subject *s, measure_layout *layout,
                            mics_op_call *call)
{
    mics_op_call with = call_of(b, &s->with);
    MICS_TRY(measure_op_lay(layout, &with));
    if (!s->backward)
        with.in[0] = call->out;
    if (layout->base[0] != NULL)
        (s->backward ? s->pair->backward : s->pair->forward)(call, &with);
    return MICS_OK;
}

mics_status subject_run(bench *b, const subject *s, measure_layout *layout, bool first)
{
    if (s->shards != NULL) {
        run_shards(b, s, layout, first);
        return MICS_OK;
    }
    mics_op_call call = call_of(b, &s->of);
    MICS_TRY(measure_op_lay(layout, &call));
    if (s->pair != NULL)
        return run_pair(b, s, layout, &call);
    const bool loss = mics_op_def_get(s->of.op.kind)->loss;
    if (layout->base[0] != NULL && !(first && loss))
        run_op(b, s, &call, s->backward && !first);
    return MICS_OK;
}

// ---- what a pass moves ----

static double params_moved(const bench *b, const mics_op_case *of, bool backward)
{
    const mics_op_shape *s = &of->shape;
    const bool read = !backward || mics_op_def_get(of->op.kind)->backward_reads_params;
    double moved = 0;
    for (int p = 0; p < MICS_OP_PARAMS; ++p) {
        // Of a table that tokens are looked up in, the rows that they may name.
        const int64_t all = s->params[p][0] * (s->expert_elems > 0 ? of->op.experts.count : 1);
        const int64_t named = s->in[0] == 0 && s->N < all ? s->N : all;
        const int64_t written = !backward ? 0 : of->add_params[p] ? 2 * named : all;
        moved += (double)((read * named + written) * (s->params[p][1] > 0 ? s->params[p][1] : 1));
    }
    return moved * (double)mics_dtype_bytes(b->dtype);
}

// Logits are made, read twice and written once as they become gradients, and read by two GEMMs
// (src/ops/lm_head/def.c).
static double moved(const bench *b, const mics_op_case *of, bool backward)
{
    const mics_op_shape *s = &of->shape;
    const mics_op_def *def = mics_op_def_get(of->op.kind);
    int64_t out = 0, stats = 0, row = s->out * (1 + (backward && def->backward_reads_out));
    for (int i = 0; i < MICS_OP_INPUTS; ++i)
        row += !backward || mics_op_keeps_in(s, i) ? s->in[i] : 0;
    if (backward)
        row += (of->add_din ? 2 : 1) * s->in[0] + (def->backward_second ? s->in[1] : 0);
    if (def->loss)
        row += 6 * s->vocab;
    def->make(s, &out, &stats);
    return (double)(s->N * row) * (double)mics_dtype_bytes(b->dtype) +
           (double)(s->N * (stats + def->loss) * (int64_t)sizeof(float)) +
           params_moved(b, of, backward);
}

// ---- the list ----

// FLOPs of GEMMs alone: others are done elsewhere than what the rate is of.
static void add_pass(const bench *b, const char *prefix, const mics_op_case *of, bool backward,
                     subject *s)
{
    const mics_op_def *def = mics_op_def_get(of->op.kind);
    const mics_op_cost cost = def->cost(&of->shape);
    const bool alone = def->backward_passes; // it has one pass
    *s = (subject){.of = *of, .backward = backward, .N = of->shape.N, .I = of->shape.in[0]};
    s->of.shape.op = &s->of.op;
    s->of.chunk_rows = cost.chunk_rows;
    s->O = def->loss ? of->shape.vocab : of->shape.out;
    s->bytes = moved(b, of, backward);
    if (def->model_flops != NULL)
        s->flops = backward ? cost.flops_backward : cost.flops_forward;
    snprintf(s->name, sizeof s->name, "%s%s%s", prefix, def->name,
             alone      ? ""
             : backward ? "_backward"
                        : "_forward");
}

static mics_op_case placed(const bench *b, mics_op_case of)
{
    of.shape.unit = "op_speed";
    of.shape.threads = b->at.threads;
    of.shape.cpu_bf16 = b->on_cpu && b->dtype == MICS_DTYPE_BF16;
    of.shape.accelerator_bytes = b->on_cpu ? 0 : (int32_t)mics_dtype_bytes(b->dtype);
    of.shape.library = b->library;
    return of;
}

// Both passes, as far as the op has them; a loss has forward's work in backward.
static subject *add(const bench *b, const char *prefix, mics_op_case of, subject *at)
{
    const mics_op_kernels *kernels = b->table->ops[of.op.kind];
    of = placed(b, of);
    of.shape.op = &of.op;
    if (kernels->forward != NULL && !mics_op_def_get(of.op.kind)->loss)
        add_pass(b, prefix, &of, false, at++);
    if (kernels->forward != NULL && kernels->backward != NULL)
        add_pass(b, prefix, &of, true, at++);
    return at;
}

// A linear and a gelu behind it, or before it in backward: what lies between is not moved again.
static subject *add_pairs(const bench *b, subject *at)
{
    const int64_t N = b->N, C = b->C, up[] = {N, C, 4 * C}, down[] = {N, 4 * C, C};
    const mics_op_pair *pair = b->table->ops[MICS_OP_LINEAR]->pairs;
    mics_op_case gelu = placed(b, gelu_case(N, 1, false));
    gelu.shape.in[0] = gelu.shape.out = 4 * C;
    gelu.shape.op = &gelu.op;
    while (pair != NULL && pair->forward != NULL && pair->next != MICS_OP_GELU)
        pair++;
    for (int backward = 0; pair != NULL && pair->forward != NULL && backward < 2; ++backward) {
        mics_op_case linear = placed(b, linear_case(backward ? down : up, false, true));
        linear.shape.op = &linear.op;
        add_pass(b, "", &linear, backward, at);
        at->pair = pair;
        at->with = gelu;
        at->bytes += moved(b, &gelu, backward) -
                     (double)((1 + backward) * N * 4 * C) * (double)mics_dtype_bytes(b->dtype);
        snprintf(at->name, sizeof at->name, "linear_gelu_%s", backward ? "backward" : "forward");
        at++;
    }
    return at;
}

subject subject_gemm(const bench *b, int64_t side)
{
    const int64_t cube[] = {side, side, side};
    mics_op_case of = placed(b, linear_case(cube, false, false));
    subject s;
    of.shape.op = &of.op;
    add_pass(b, "", &of, false, &s);
    return s;
}

// ---- a mixture, as Mixtral's ----

static mics_op_case of_experts(const bench *b, mics_op_kind kind, int64_t in, int64_t out)
{
    const mics_experts e = {.count = 8, .chosen = 2};
    mics_op_case of = {.op = {.kind = kind, .experts = e, .router = {.normalised = true}},
                       .loss_scale = 1};
    of.shape = (mics_op_shape){.B = b->N / b->T, .T = b->T, .N = b->N, .in = {in}, .out = out};
    return of;
}

static mics_op_case router_case(const bench *b)
{
    mics_op_case of = of_experts(b, MICS_OP_ROUTER, b->C, 0);
    of.shape.out = of.op.experts.chosen;
    of.shape.params[0][0] = of.op.experts.count;
    of.shape.params[0][1] = b->C;
    return of;
}

mics_status subject_routes(bench *b)
{
    const mics_op_case of = placed(b, router_case(b));
    const mics_op_kernels *kernels = b->table->ops[of.op.kind];
    mics_op_call call = call_of(b, &of);
    measure_layout sizes = {.bytes = {0}};
    void *block = NULL;
    MICS_TRY(measure_op_lay(&sizes, &call));
    const size_t bytes = sizes.bytes[0] + sizes.bytes[1];
    MICS_TRY(b->device->ops->alloc(b->device->ctx, bytes, &block));
    random_source_fill(&b->random, RANDOM_DTYPE, block, (int64_t)bytes);
    measure_layout layout = {.base = {block, (char *)block + sizes.bytes[0]}};
    MICS_TRY(measure_op_lay(&layout, &call));
    kernels->forward(&call);
    b->routes = call.stats;
    return MICS_OK;
}

// in: tokens (I) to rows (O each); out: rows (I each) to tokens (O).
static mics_op_case experts(const bench *b, mics_op_kind kind, int64_t I, int64_t O)
{
    mics_op_case of = of_experts(b, kind, I, O);
    const int64_t k = of.op.experts.chosen;
    *(kind == MICS_OP_EXPERTS_IN ? &of.shape.out : &of.shape.in[0]) *= k;
    of.shape.in[1] = k;
    of.shape.params[0][0] = O;
    of.shape.params[0][1] = I;
    of.shape.expert_elems = I * O;
    return of;
}

static subject *add_decoder(const bench *b, mics_heads heads, subject *at)
{
    const int64_t N = b->N, C = b->C, B = N / b->T;
    const mics_op_case swiglu = {.op = {.kind = MICS_OP_SWIGLU},
                                 .shape = {.B = B, .T = b->T, .N = N, .in = {4 * C}, .out = 2 * C}};
    at = add(b, "exact_", gelu_case(4 * N * C, 1, true), at);
    at = add(b, "", activation_case(4 * N * C, 1, MICS_ACTIVATION_SILU), at);
    at = add(b, "", swiglu, at);
    at =
        add(b, "", rotary_case(&(rotary_shape){.B = B, .T = b->T, .heads = heads}, &b->rotary), at);
    at = add(b, "", head_norm_case(N, heads), at);
    return add(b, "", sigmoid_gate_case(N, C, 1), at);
}

static subject *add_gemms(const bench *b, mics_heads heads, subject *at)
{
    const int64_t N = b->N, C = b->C;
    const int64_t shapes[][3] = {{N, C, 3 * C}, {N, C, C}, {N, C, 4 * C}, {N, 4 * C, C}};
    mics_op_case head = lm_head_case((const int64_t[]){N, C, b->V, 0});
    head.loss_scale = 1e-4F;
    const attention_shape attention = {.B = N / b->T, .T = b->T, .heads = heads};
    at = add(b, "", attention_case(&attention), at);
    at = add(b, "", head, at);
    for (int i = 0; i < 4; ++i)
        at = add(b, "", linear_case(shapes[i], false, true), at);
    at = add_pairs(b, at);
    at = add(b, "", lora_case(N, C, C, 16, 1), at);
    at = add(b, "", router_case(b), at);
    at = add(b, "", experts(b, MICS_OP_EXPERTS_IN, C, 2 * C), at);
    return add(b, "", experts(b, MICS_OP_EXPERTS_OUT, 2 * C, C), at);
}

int subjects_list(const bench *b, subject *subjects_out)
{
    const int64_t N = b->N, C = b->C;
    const mics_heads heads = {b->H, b->H, C / b->H};
    const mics_op_case sum = {.op = {.kind = MICS_OP_ADD},
                              .shape = {.N = N * C, .in = {1, 1}, .out = 1}};
    mics_op_case embedding = embedding_case(N, b->T, C, b->V, true);
    mics_op_case layernorm = layernorm_case(N, C), rmsnorm = rmsnorm_case(N, C);
    embedding.add_params[0] = layernorm.add_din = rmsnorm.add_din = true;
    subject *at = add(b, "", embedding, subjects_out);
    at = add(b, "", layernorm, at);
    at = add(b, "", rmsnorm, at);
    at = add(b, "", gelu_case(4 * N * C, 1, false), at);
    at = add(b, "", sum, at);
    for (size_t i = 0; i < sizeof shard_kernels / sizeof *shard_kernels; ++i) {
        const int64_t sizes[] = {[OF_SHARD] = b->shard, [OF_ROWS] = N * C, [OF_TOKENS] = N};
        *at++ = over_shards(b, &shard_kernels[i], sizes[shard_kernels[i].elems]);
    }
    at = add_decoder(b, heads, at);
    return (int)(add_gemms(b, heads, at) - subjects_out);
}
