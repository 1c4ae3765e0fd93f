// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Models as data: units (what is gathered together), each a short list of ops (op.h) over named
// tensors.
//
// All activations are per token: tensor t of a unit is a row-major (N, width) matrix, N = batch *
// sequence. Tensor 0 of a unit is its input (width 0: token ids); its output is the next unit's
// input.
#ifndef MICS_MODEL_H
#define MICS_MODEL_H

#include "mics/memory.h"
#include "mics/op.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A document of JSON: what a builder's description is read as.
typedef struct mics_json mics_json;

enum { MICS_NAME_BYTES = 96 };

typedef enum mics_init_kind { MICS_INIT_ZEROS, MICS_INIT_ONES, MICS_INIT_NORMAL } mics_init_kind;

// Rows of a Hugging Face tensor that a parameter holds; a vector's rows are its elements.
typedef struct mics_param_part {
    char name[MICS_NAME_BYTES]; // of the tensor
    int64_t tensor_row;         // first row there
    int64_t row;                // first row here
    int64_t rows;
} mics_param_part;

typedef struct mics_param {
    char name[MICS_NAME_BYTES]; // Hugging Face's, where one tensor is the parameter
    // By tensor, and within a tensor by its rows. mics_model_finish gives a parameter without parts
    // one, of its own name.
    mics_param_part *parts;
    int32_t part_count;
    // Files may have it as slice stack_index of one tensor of this name, (stack_count, rows,
    // columns), in place of the parts. "": none.
    char stack[MICS_NAME_BYTES];
    int32_t stack_index, stack_count;
    int32_t dims;
    int64_t shape[2];
    int64_t elems;
    int64_t offset; // in the unit's flat buffer, elements; a multiple of 16
    mics_init_kind init;
    double init_std;
    bool decay;   // weight decay applies
    bool frozen;  // never changes: no gradient, no optimizer state
    bool adapter; // of an adapter: the base's files do not have it
    bool hidden;  // matrices of a hidden layer, neither of the embedding nor the LM head's; set by
                  // mics_model_finish
} mics_param;

typedef struct mics_tensor {
    const char *name; // static text
    int64_t width;    // elements a token
    bool wide;        // fp32 in every precision
    bool fixed;       // no trained parameter leads to it: it has no gradient
} mics_tensor;

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
    // Of so many experts, whose parameters lie one expert's behind the other's, each expert's alike:
    // a unit without ops and tensors, which ops of the computing unit before it use. 0: any other.
    int32_t experts;
    // All its parameters are frozen: they are gathered, and that is all. mics_model_freeze makes a
    // unit that has both kinds two.
    bool frozen;
    bool companion; // of frozen parameters alone, without ops, of the unit before it
} mics_unit;

typedef struct mics_model {
    mics_memory *memory;
    char architecture[MICS_NAME_BYTES]; // "gpt2"
    mics_unit *units;
    int32_t unit_count;
    int64_t vocab;     // token ids are below it
    int64_t positions; // longest sequence
    int64_t hidden;    // hidden size: of the residual stream
    // An encoder, whose attention sees both ways: its targets are tokens that its input hides
    // (masked language modelling). Set by mics_model_finish.
    bool masked;
    mics_rotary_spec *rotaries; // each once, whatever the number of ops that use it
    int32_t rotary_count;
    uint32_t masks; // of dropout and routers, of all ops (mics_op.mask)
    bool tied;      // the LM head's weight is a table of another unit; set by mics_model_finish
    // Whose units' arrays these are, where they are the same; NULL: its own (mics_model_spread).
    const struct mics_model *base;
    bool adds_experts;  // mics_model_add_param adds to the unit of experts that was begun last
    mics_status status; // first failure of a builder call
} mics_model;

// ---- made from a configuration ----

/* Builds the model that a Hugging Face config.json describes (docs/config.md has the families).
 *
 * Errors name file, line and key.
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT; MICS_ERR_INVALID; MICS_ERR_UNSUPPORTED (another
 *          model_type, or a key that cannot be honoured); MICS_ERR_MEMORY.
 * Owns:    close with mics_model_close.
 */
mics_status mics_model_load(mics_memory *memory, const char *path, mics_model **model_out);

/* Closes; NULL is allowed. */
void mics_model_close(mics_model *model);

/* What a program's own builder reads of its description (mics_model_builder), at a dotted path.
 *
 * Units:   as the description has it.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: it is absent, or of another type; the output is
 *          untouched then.
 * Owns:    the text lives as long as the description.
 */
mics_status mics_description_int(const mics_json *description, const char *path,
                                 int64_t *value_out);
mics_status mics_description_real(const mics_json *description, const char *path,
                                  double *value_out);
mics_status mics_description_text(const mics_json *description, const char *path,
                                  const char **text_out);
mics_status mics_description_bool(const mics_json *description, const char *path, bool *value_out);

/* Elements of a list, or members of an object, at a dotted path of a description. */
int32_t mics_description_count(const mics_json *description, const char *path);

/* Whether a description has a value at a dotted path. */
bool mics_description_has(const mics_json *description, const char *path);

/* Parameters, padding excluded; those of tied tables once. */
int64_t mics_model_param_count(const mics_model *model);

/* Finds the parameter that holds a Hugging Face tensor, by its name or the one that
 * mics_tensor_other_name gives.
 *
 * Returns: {-1, -1} when there is none.
 */
mics_param_ref mics_model_find_param(const mics_model *model, const char *name);

/* Under what other names published files may hold a tensor: without the leading "transformer.",
 * "model." or "gpt_neox." where the base model was saved; "lm_head.weight" for "embed_out.weight";
 * "LayerNorm.gamma" and "LayerNorm.beta" for "LayerNorm.weight" and "LayerNorm.bias"; "mlp.gate"
 * for "block_sparse_moe.gate".
 *
 * Needs:   a name of less than MICS_NAME_BYTES bytes; index 0 for the first, then 1, and so on.
 * Returns: whether there is one of this index, in other_out, which changes in any case.
 */
bool mics_tensor_other_name(const char *name, int32_t index, char other_out[MICS_NAME_BYTES]);

// A whole Hugging Face tensor that a parameter holds, alone or beside others.
typedef struct mics_param_tensor {
    const char *name;
    int32_t dims;
    int64_t shape[2];
    int32_t part, part_count; // of the parameter's parts: its rows, in order and without a gap
} mics_param_tensor;

/* Walks the tensors of a parameter: begin with *part_in_out 0.
 *
 * Needs:   a model that mics_model_finish has passed.
 * Returns: whether there is another; then tensor_out has it, and *part_in_out is the first part
 *          after it.
 */
bool mics_param_next_tensor(const mics_param *param, int32_t *part_in_out,
                            mics_param_tensor *tensor_out);

/* Rows of a parameter that are one matrix: those of one tensor, in whatever order. As
 * mics_param_next_tensor: begin with *part_in_out 0.
 *
 * Needs:   a parameter that is `hidden`.
 * Returns: whether there is another; then *row_out is its first row here, of *rows_out.
 */
bool mics_param_next_matrix(const mics_param *param, int32_t *part_in_out, int64_t *row_out,
                            int64_t *rows_out);

/* Elements of a row of a parameter: 1 for a vector. */
static inline int64_t mics_param_row_elems(const mics_param *param)
{
    return param->dims > 1 ? param->shape[1] : 1;
}

/* Whether a unit computes, or has parameters alone. */
static inline bool mics_unit_computes(const mics_unit *unit)
{
    return unit->experts == 0 && !unit->companion;
}

/* Units that compute. */
int32_t mics_model_computing_units(const mics_model *model);

/* The parameters of an expert of a unit of experts: number e's are e times as many further on. */
static inline int32_t mics_unit_expert_params(const mics_unit *unit)
{
    return unit->param_count / unit->experts;
}

/* Elements from an expert's parameters to the next one's. Needs: a unit of experts. */
static inline int64_t mics_unit_expert_elems(const mics_unit *unit)
{
    return unit->elems / unit->experts;
}

// What an op is run on.
typedef struct mics_batch {
    int64_t sequences; // B
    int64_t length;    // T; of ranks that share sequences the part that one has
    int32_t threads;   // of the rank; workspaces depend on it
    // Bytes of a number that an accelerator computes in, 4 or 2; 0: on the CPU. A schedule fills it
    // in by its own precision.
    int32_t accelerator_bytes;
    bool cpu_bf16; // on the CPU, by mics_kernels.bf16; a schedule fills it in too
    bool library;  // on an accelerator: ops by a library's kernels where they can (mics_op_shape)
} mics_batch;

/* Parameters that train, padding excluded. */
int64_t mics_model_trained_count(const mics_model *model);

/* What stands where there is no parameter. */
static inline mics_param_ref mics_param_none(void)
{
    mics_param_ref none = {-1, -1};
    return none;
}

/* The parameter that `ref`, which must not be none, refers to.     Returns: never NULL. */
static inline const mics_param *mics_model_param(const mics_model *model, mics_param_ref ref)
{
    return &model->units[ref.unit].params[ref.param];
}

// ---- what ops cost ----

/* Whether some op looks at segments.      Needs: a model that mics_model_finish has passed. */
bool mics_model_reads_segments(const mics_model *model);

/* An op with its sizes: what descriptors (op.h) answer for. It points to the unit's name and to the
 * op.
 */
mics_op_shape mics_op_shape_get(const mics_model *model, const mics_unit *unit, const mics_op *op,
                                mics_batch batch);

/* Cost of one op of a unit on a batch. */
mics_op_cost mics_op_cost_get(const mics_model *model, const mics_unit *unit, const mics_op *op,
                              mics_batch batch);

/* FLOPs a token that model FLOPs utilisation counts: 6 * (parameters in GEMMs) + 6 * layers * T
 * * C for causal attention (forward and backward), C being query heads * head dimension, without
 * recomputation. A third less for each gradient that nobody wants; of a window less is counted.
 *
 * Needs:   length >= 1.
 * Units:   FLOPs a token.
 * Source:  mics_op_def.model_flops.
 */
double mics_model_flops_per_token(const mics_model *model, int64_t length);

#ifdef __cplusplus
}
#endif
#endif
