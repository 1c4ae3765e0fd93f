// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Models as data: units (what is gathered together), each a short list of ops over named tensors,
// and one table that knows every kind of op: FLOPs, bytes, workspace, and what backward reads.
//
// All activations are per token: tensor t of a unit is a row-major (N, width) matrix, N = batch *
// sequence. Tensor 0 of a unit is its input (width 0: token ids); its output is the next unit's
// input.
#ifndef MICS_MODEL_H
#define MICS_MODEL_H

#include "mics/json.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MICS_NAME_BYTES = 96, MICS_OP_INPUTS = 2, MICS_OP_PARAMS = 2 };

typedef enum mics_op_kind {
    MICS_OP_EMBEDDING,  // tokens -> x; params: token table (V, C), position table (P, C) or none
    MICS_OP_LAYERNORM,  // params: weight (C), bias (C); stats: mean and reciprocal deviation
    MICS_OP_LINEAR,     // params: weight (I, O) or (O, I), bias (O) or none
    MICS_OP_GELU,       // tanh form
    MICS_OP_ATTENTION,  // causal; in: q, k, v side by side (3 C); stats: log-sum-exp a head
    MICS_OP_ADD,        // in[0] + in[1]
    MICS_OP_CLASSIFIER, // params: weight (V, C); no output tensor: the loss of each token
    MICS_OP_KINDS
} mics_op_kind;

typedef enum mics_init_kind { MICS_INIT_ZEROS, MICS_INIT_ONES, MICS_INIT_NORMAL } mics_init_kind;

typedef struct mics_param {
    char name[MICS_NAME_BYTES]; // Hugging Face's
    int32_t dims;
    int64_t shape[2];
    int64_t elems;
    int64_t offset; // in the unit's flat buffer, elements; a multiple of 16
    mics_init_kind init;
    double init_std;
    bool decay; // weight decay applies
} mics_param;

typedef struct mics_param_ref {
    int32_t unit, param; // unit -1: none
} mics_param_ref;

typedef struct mics_tensor {
    const char *name; // static text
    int64_t width;    // elements a token
} mics_tensor;

typedef struct mics_op {
    mics_op_kind kind;
    int32_t in[MICS_OP_INPUTS]; // tensors of the unit; -1: none
    int32_t out;                // -1: none (classifier)
    int32_t stats;              // -1: none
    mics_param_ref params[MICS_OP_PARAMS];
    bool weight_out_in; // linear: weight is (O, I)
    int64_t heads;      // attention
    float eps;          // layernorm
} mics_op;

typedef struct mics_unit {
    char name[MICS_NAME_BYTES];
    mics_param *params;
    int32_t param_count;
    mics_tensor *tensors;
    int32_t tensor_count;
    mics_op *ops;
    int32_t op_count;
    int32_t out;   // tensor that is the unit's output; -1 for the last unit
    int64_t elems; // of the flat buffer, tensors aligned, no padding for a mesh
} mics_unit;

typedef struct mics_model {
    mics_memory *memory;
    char architecture[MICS_NAME_BYTES]; // "gpt2"
    mics_unit *units;
    int32_t unit_count;
    int64_t vocab;      // token ids are below it
    int64_t positions;  // longest sequence
    int64_t width;      // of the residual stream
    bool tied;          // classifier weight is the token table
    mics_status status; // first failure of a builder call
} mics_model;

// ---- made from a configuration ----

/* Builds the model that a Hugging Face config.json describes (model_type "gpt2").
 *
 * Errors name file, line and key. A key that changes the model and cannot be honoured (dropout that
 * is not 0, another activation) is an error; `allow_dropout` says that the caller has decided to
 * train without it. An absent dropout key counts as 0.
 * Returns: MICS_OK; MICS_ERR_INVALID; MICS_ERR_UNSUPPORTED (other model_type); MICS_ERR_MEMORY.
 * Owns:    close with mics_model_close.
 */
mics_status mics_model_from_config(mics_memory *memory, const mics_json *config, bool allow_dropout,
                                   mics_model **model_out);
void mics_model_close(mics_model *model);

/* Parameters, padding excluded; those of tied tables once. */
int64_t mics_model_param_count(const mics_model *model);

/* Finds a parameter by its Hugging Face name; the hub's names without the leading "transformer."
 * count too.
 *
 * Returns: {-1, -1} when there is none.
 */
mics_param_ref mics_model_find_param(const mics_model *model, const char *name);

static inline const mics_param *mics_model_param(const mics_model *model, mics_param_ref ref)
{
    return &model->units[ref.unit].params[ref.param];
}

// ---- for builders: calls after a failure do nothing, and mics_model_finish returns the first
// failure ----

typedef struct mics_param_spec {
    int32_t dims; // 1 or 2
    int64_t shape[2];
    mics_init_kind init;
    double init_std;
    bool decay;
} mics_param_spec;

mics_status mics_model_open(mics_memory *memory, const char *architecture, mics_model **model_out);

/* Begins the next unit, with an input of `input_width` elements a token (0: token ids). Returns its
 * index. */
int32_t mics_model_unit(mics_model *model, const char *name, int64_t input_width);

/* Adds a parameter to the newest unit. */
mics_param_ref mics_model_add_param(mics_model *model, const char *name,
                                    const mics_param_spec *spec);

// Each adds an op to the newest unit and returns the tensor it makes.
int32_t mics_op_embedding(mics_model *model, mics_param_ref tokens, mics_param_ref positions);
int32_t mics_op_layernorm(mics_model *model, int32_t in, mics_param_ref weight, mics_param_ref bias,
                          float eps);
int32_t mics_op_linear(mics_model *model, int32_t in, mics_param_ref weight, mics_param_ref bias,
                       bool weight_out_in);
int32_t mics_op_gelu(mics_model *model, int32_t in);
int32_t mics_op_attention(mics_model *model, int32_t in, int64_t heads);
int32_t mics_op_add(mics_model *model, int32_t a, int32_t b);
void mics_op_classifier(mics_model *model, int32_t in, mics_param_ref weight);

/* Ends the newest unit; `out` is what the next one reads (-1 after the classifier). */
void mics_model_unit_end(mics_model *model, int32_t out);

/* Checks the whole: shapes agree, every parameter is used, exactly one classifier ends it.
 *
 * Returns: MICS_OK or the builder's first failure, logged with unit and op.
 */
mics_status mics_model_finish(mics_model *model);

static inline mics_param_ref mics_param_none(void)
{
    mics_param_ref none = {-1, -1};
    return none;
}

// ---- the op table ----

// What an op is run on.
typedef struct mics_batch {
    int64_t sequences; // B
    int64_t length;    // T
    int32_t threads;   // of the rank; workspaces depend on it
    // Bytes of a number that an accelerator computes in, 4 or 2; 0: on the processor. A schedule fills
    // it in by its own precision.
    int32_t accelerator_bytes;
} mics_batch;

typedef struct mics_op_info {
    const char *name;
    bool backward_reads_in;     // its inputs' values are saved for backward
    bool backward_reads_out;    // and its output's
    bool backward_reads_params; // and the parameters' values, which must be gathered then
    bool backward_in_place;     // the input's gradient may lie where the output's was
    bool backward_adds;         // the kernel can add to the input's gradient
    bool fused_loss;            // backward also does forward's work: training runs no forward
} mics_op_info;

typedef struct mics_op_cost {
    double flops_forward, flops_backward;          // multiply and add count as 2
    double bytes_forward, bytes_backward;          // memory touched, each operand once
    int64_t workspace_forward, workspace_backward; // floats
    int64_t classifier_rows;                       // rows of logits at a time (classifier only)
} mics_op_cost;

/* The table's row. Needs a valid kind. */
const mics_op_info *mics_op_info_get(mics_op_kind kind);

/* Cost of one op of a unit on a batch.
 *
 * Source:  Narayanan et al., SC21, arXiv:2104.04473, appendix, op by op (causal attention counts
 * the half it computes).
 */
mics_op_cost mics_op_cost_get(const mics_model *model, const mics_unit *unit, const mics_op *op,
                              mics_batch batch);

/* FLOPs a token that model FLOPs utilisation counts: 6 * (parameters in matrix products) + 6 *
 * layers * T * C for causal attention (forward and backward), without recomputation.
 *
 * Source:  Chowdhery et al., PaLM, 2022, arXiv:2204.02311, appendix B, halved for the causal mask.
 */
double mics_model_flops_per_token(const mics_model *model, int64_t length);

#ifdef __cplusplus
}
#endif
#endif
