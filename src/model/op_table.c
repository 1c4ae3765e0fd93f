// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The one table of op kinds: what each reads in backward, costs, and needs as workspace.
//
// Shapes: N tokens = B sequences of T; I inputs, O outputs, V vocabulary, C width, H heads, D head
// dimension. Workspaces are those that the kernels ask for: in op.h, or on accelerators, in
// op_table.h.
#include "mics/model.h"
#include "mics/size.h"

// Contracts with the kernels (op.h): rows are summed in this many blocks; attention works in square
// tiles.
enum { SUM_BLOCKS = 16, ATTENTION_TILE = 64 };

// Contracts with an accelerator's kernels: bytes that matrix products may take, what parts of a
// workspace begin on, and the most blocks in which rows are summed.
enum {
    PRODUCT_BYTES = 32 << 20,
    PART_BYTES = 256,
    ACCELERATOR_BIAS_BLOCKS = 64,
    ACCELERATOR_NORM_BLOCKS = 512
};

// Rows of logits at a time on an accelerator: full tiles for every multiprocessor whatever the
// vocabulary, in whole tiles.
enum { ACCELERATOR_ROWS = 4096, ACCELERATOR_TILE = 128 };

// Logits are held for so many floats' worth of rows at a time: large enough that a chunk's matrix
// products run at full speed although each passes over the whole table once.
static const int64_t classifier_floats = (int64_t)16 << 20;

static const mics_op_info infos[MICS_OP_KINDS] = {
    [MICS_OP_EMBEDDING] = {.name = "embedding"},
    [MICS_OP_LAYERNORM] = {.name = "layernorm",
                           .backward_reads_in = true,
                           .backward_reads_params = true,
                           .backward_in_place = true,
                           .backward_adds = true},
    [MICS_OP_LINEAR] = {.name = "linear",
                        .backward_adds = true,
                        .backward_reads_in = true,
                        .backward_reads_params = true},
    [MICS_OP_GELU] = {.name = "gelu",
                      .backward_reads_in = true,
                      .backward_in_place = true,
                      .backward_adds = true},
    [MICS_OP_ATTENTION] = {.name = "attention",
                           .backward_reads_in = true,
                           .backward_reads_out = true},
    [MICS_OP_ADD] = {.name = "add"},
    [MICS_OP_CLASSIFIER] = {.name = "classifier",
                            .backward_reads_in = true,
                            .backward_reads_params = true,
                            .fused_loss = true},
};

const mics_op_info *mics_op_info_get(mics_op_kind kind)
{
    return &infos[kind];
}

// On an accelerator. The weight's gradient of several chunks is summed in fp32 where numbers have 2
// bytes, V C floats, so that it is rounded once; one chunk whose logits take no more memory than a
// smaller chunk's and that sum needs no sum and passes over the table once.
static int64_t accelerator_rows(int64_t tokens, int64_t width, int64_t elem_bytes)
{
    const int64_t instead =
        elem_bytes < (int64_t)sizeof(float) ? width * (int64_t)sizeof(float) / elem_bytes : 0;
    if (tokens <= ACCELERATOR_ROWS + instead)
        return tokens;
    const int64_t chunks = (tokens + ACCELERATOR_ROWS - 1) / ACCELERATOR_ROWS;
    return mics_size_round_up((tokens + chunks - 1) / chunks, ACCELERATOR_TILE);
}

// On the processor: within the budget, at least two chunks, all of nearly the same size.
static int64_t processor_rows(int64_t tokens, int64_t vocab)
{
    int64_t most = classifier_floats / vocab;
    int64_t chunks = most > 0 ? (tokens + most - 1) / most : tokens;
    if (chunks < 2)
        chunks = 2;
    return (tokens + chunks - 1) / chunks;
}

static mics_op_cost linear_cost(double tokens, double inputs, double outputs)
{
    double product = 2 * tokens * inputs * outputs;
    double matrix = inputs * outputs, rows = tokens * (inputs + outputs);
    return (mics_op_cost){.flops_forward = product,
                          .flops_backward = 2 * product,
                          .bytes_forward = 4 * (matrix + rows),
                          .bytes_backward = 4 * (2 * matrix + 2 * rows)};
}

static mics_op_cost attention_cost(const mics_op *op, mics_batch batch, int64_t width)
{
    const double tokens = (double)(batch.sequences * batch.length);
    const int64_t head_dim = width / op->heads;
    // Half of T x T is computed: two products forward, five backward (one of them the recomputed
    // scores).
    const double product = tokens * (double)(batch.length + 1) * (double)width;
    const int64_t columns = mics_size_round_up(head_dim, 16);
    const int64_t tile_floats =
        batch.threads * (int64_t)ATTENTION_TILE * (2 * ATTENTION_TILE + 8 * columns + 4);
    return (mics_op_cost){.flops_forward = 2 * product,
                          .flops_backward = 5 * product,
                          .bytes_forward = 4 * tokens * 4 * (double)width,
                          .bytes_backward = 4 * tokens * 8 * (double)width,
                          .workspace_forward = tile_floats,
                          .workspace_backward = tile_floats};
}

static mics_op_cost classifier_cost(const mics_model *model, const mics_op *op, mics_batch batch)
{
    const int64_t tokens = batch.sequences * batch.length;
    const int64_t width = mics_model_param(model, op->params[0])->shape[1];
    mics_op_cost cost = linear_cost((double)tokens, (double)width, (double)model->vocab);
    cost.flops_backward += cost.flops_forward; // its forward's work is done there
    cost.classifier_rows = batch.accelerator_bytes > 0
                               ? accelerator_rows(tokens, width, batch.accelerator_bytes)
                               : processor_rows(tokens, model->vocab);
    cost.workspace_forward = cost.classifier_rows * model->vocab;
    cost.workspace_backward = cost.workspace_forward;
    return cost;
}

// ---- workspaces on accelerators ----

static int64_t part_floats(int64_t bytes)
{
    return mics_size_round_up(bytes, PART_BYTES) / (int64_t)sizeof(float);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// Logits whose rows begin on 16 bytes, then the sum of the weight's gradient, then what products
// take.
static void place_classifier(const mics_model *model, const mics_op *op, mics_batch batch,
                             mics_op_cost *cost)
{
    const int64_t tokens = batch.sequences * batch.length, bytes = batch.accelerator_bytes;
    const int64_t width = mics_model_param(model, op->params[0])->shape[1];
    const int64_t row = mics_size_round_up(model->vocab * bytes, 16);
    const bool summed = cost->classifier_rows < tokens && bytes < (int64_t)sizeof(float);
    cost->workspace_forward = part_floats(row * cost->classifier_rows) + part_floats(PRODUCT_BYTES);
    cost->workspace_backward =
        cost->workspace_forward +
        (summed ? part_floats(model->vocab * width * (int64_t)sizeof(float)) : 0);
}

static void place_on_accelerator(const mics_model *model, const mics_op *op, mics_batch batch,
                                 int64_t in, int64_t out, mics_op_cost *cost)
{
    const int64_t tokens = batch.sequences * batch.length, products = part_floats(PRODUCT_BYTES);
    cost->workspace_forward = cost->workspace_backward = 0;
    switch (op->kind) {
    case MICS_OP_LINEAR: // one after the other: products, and sums of the bias's gradient
        cost->workspace_forward = products;
        cost->workspace_backward =
            larger(products,
                   out * smaller((tokens + ACCELERATOR_BIAS_BLOCKS - 1) / ACCELERATOR_BIAS_BLOCKS,
                                 ACCELERATOR_BIAS_BLOCKS));
        break;
    case MICS_OP_ATTENTION: // a number for each query of each head
        cost->workspace_backward = tokens * op->heads;
        break;
    case MICS_OP_CLASSIFIER:
        place_classifier(model, op, batch, cost);
        break;
    case MICS_OP_LAYERNORM:
        cost->workspace_backward = 2 * in * smaller(tokens, ACCELERATOR_NORM_BLOCKS);
        break;
    default: // the others need none
        break;
    }
}

mics_op_cost mics_op_cost_get(const mics_model *model, const mics_unit *unit, const mics_op *op,
                              mics_batch batch)
{
    const int64_t tokens = batch.sequences * batch.length;
    const int64_t in = op->in[0] >= 0 ? unit->tensors[op->in[0]].width : 0;
    const int64_t out = op->out >= 0 ? unit->tensors[op->out].width : 0;
    const double touched = 4 * (double)tokens * (double)(in + out);
    mics_op_cost cost = {.bytes_forward = touched, .bytes_backward = 2 * touched};
    switch (op->kind) {
    case MICS_OP_LINEAR:
        cost = linear_cost((double)tokens, (double)in, (double)out);
        cost.workspace_backward = SUM_BLOCKS * out;
        break;
    case MICS_OP_ATTENTION:
        cost = attention_cost(op, batch, out);
        break;
    case MICS_OP_CLASSIFIER:
        cost = classifier_cost(model, op, batch);
        break;
    case MICS_OP_LAYERNORM:
        cost.flops_forward = 8 * (double)tokens * (double)in;
        cost.flops_backward = 14 * (double)tokens * (double)in;
        cost.workspace_backward = 2 * SUM_BLOCKS * in;
        break;
    case MICS_OP_GELU:
        cost.flops_forward = 12 * (double)tokens * (double)in;
        cost.flops_backward = 20 * (double)tokens * (double)in;
        break;
    default: // embedding and add move memory only
        break;
    }
    if (batch.accelerator_bytes > 0)
        place_on_accelerator(model, op, batch, in, out, &cost);
    return cost;
}
