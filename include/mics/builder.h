// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Making models, op by op, and changing a finished one: for ranks that share experts or sequences, by
// adapters, by freezing.
#ifndef MICS_BUILDER_H
#define MICS_BUILDER_H

#include "mics/model.h"

#ifdef __cplusplus
extern "C" {
#endif

// Calls after a failure do nothing, and mics_model_finish returns the first failure.

typedef struct mics_param_spec {
    int32_t dims; // 1 or 2
    int64_t shape[2];
    mics_init_kind init;
    double init_std;
    bool decay;
} mics_param_spec;

// What holds for the whole model.
typedef struct mics_model_spec {
    const char *architecture; // a name for it, such as "gpt2"
    int64_t vocab;            // token ids are below it
    int64_t positions;        // longest sequence, in tokens
    int64_t hidden;           // hidden size: of the residual stream
} mics_model_spec;

/* Opens a model without units, for the calls below.
 *
 * Needs:   an architecture of 1 to MICS_NAME_BYTES - 1 bytes; 2 <= vocab <= INT32_MAX; positions
 *          and hidden >= 1.
 * Returns: MICS_OK; MICS_ERR_INVALID if a need is not met, logged; MICS_ERR_MEMORY.
 * Owns:    close with mics_model_close; borrows memory.
 */
mics_status mics_model_open(mics_memory *memory, const mics_model_spec *spec,
                            mics_model **model_out);

/* Begins the next unit, with an input of `input_width` elements a token (0: token ids).
 *
 * Needs:   input_width >= 0; what the unit before gives, which mics_model_finish checks.
 * Returns: its index; -1 after a failure.
 */
int32_t mics_model_unit(mics_model *model, const char *name, int64_t input_width);

/* Begins a unit of `count` experts behind the newest unit, whose ops will use them. Parameters are
 * added to it, one expert's behind the other's, until mics_model_experts_end; ops still to the
 * newest unit. Ops name the first expert's parameter.
 *
 * Needs:   count >= 1; a newest unit; each expert's parameters alike, which mics_model_finish
 *          checks.
 * Returns: its index; -1 after a failure.
 */
int32_t mics_model_experts(mics_model *model, const char *name, int32_t count);
void mics_model_experts_end(mics_model *model);

/* Adds a parameter to the newest unit, or to the unit of experts that is being added to.
 *
 * Returns: a reference to it, for ops; none after a failure.
 */
mics_param_ref mics_model_add_param(mics_model *model, const char *name,
                                    const mics_param_spec *spec);

/* Says which tensor `rows` rows of the newest parameter are, from row `row` on. Rows of one tensor
 * are given one after the other, from its first to its last. Without any such call the parameter is
 * one tensor of its own name.
 *
 * Needs:   in the end each row of the parameter given once, and each tensor by one parameter, which
 *          mics_model_finish checks.
 */
void mics_model_add_part(mics_model *model, const char *tensor, int64_t row, int64_t rows);

/* Says that files may have the newest parameter as slice `index` of a tensor of three dimensions,
 * which holds `count` such parameters.
 *
 * Needs:   a parameter of two dimensions; 0 <= index < count.
 */
void mics_model_add_stack(mics_model *model, const char *tensor, int32_t index, int32_t count);

/* Adds an op of any kind to the newest unit: `op` has its kind, inputs, parameters and attributes.
 * Inputs and parameters that the kind does not have are ignored; one that may be absent is
 * mics_param_none().
 *
 * Returns: the tensor that it makes; -1 for the loss, and after a failure.
 */
int32_t mics_model_add_op(mics_model *model, mics_op op);

/* An op without attributes, for mics_model_add_op.
 *
 * Needs:   nothing; mics_model_add_op checks.
 */
static inline mics_op mics_op_of(mics_op_kind kind, int32_t in, mics_param_ref first,
                                 mics_param_ref second)
{
    const mics_op op = {kind,
                        {in, -1},
                        -1,
                        -1,
                        {first, second, mics_param_none()},
                        false,
                        false,
                        {0, 0, 0},
                        0,
                        false,
                        false,
                        0,
                        0,
                        0,
                        0,
                        {0, 0, 0, 0, 0},
                        {false, 0, 0, 0, false},
                        -1,
                        0,
                        0,
                        0,
                        MICS_ACTIVATION_RELU,
                        {0, 0, 0, {0, 0, 0}, {0, 0, 0}},
                        false,
                        0,
                        false};
    return op;
}

/* The same for some kinds. An embedding's positions and a linear's bias may be none.
 *
 * Needs:   inputs are tensors of the newest unit (0: its input); those of attention, rotary and
 *          head_norm hold q, k and v of `heads` (mics_heads_width), that of swiglu gate and up side
 *          by side. eps >= 0, window >= 0, 0 <= dropout < 1.
 * Units:   eps is of the square of activations; window is in tokens, 0 for none; dropout is a
 *          probability: of attention's, or of the numbers.
 */
static inline int32_t mics_op_embedding(mics_model *model, mics_param_ref tokens,
                                        mics_param_ref positions)
{
    return mics_model_add_op(model, mics_op_of(MICS_OP_EMBEDDING, -1, tokens, positions));
}
static inline int32_t mics_op_layernorm(mics_model *model, int32_t in, mics_param_ref weight,
                                        mics_param_ref bias, float eps)
{
    mics_op op = mics_op_of(MICS_OP_LAYERNORM, in, weight, bias);
    op.eps = eps;
    return mics_model_add_op(model, op);
}
static inline int32_t mics_op_rmsnorm(mics_model *model, int32_t in, mics_param_ref weight,
                                      float eps)
{
    mics_op op = mics_op_of(MICS_OP_RMSNORM, in, weight, mics_param_none());
    op.eps = eps;
    return mics_model_add_op(model, op);
}
static inline int32_t mics_op_linear(mics_model *model, int32_t in, mics_param_ref weight,
                                     mics_param_ref bias, bool weight_out_in)
{
    mics_op op = mics_op_of(MICS_OP_LINEAR, in, weight, bias);
    op.weight_out_in = weight_out_in;
    return mics_model_add_op(model, op);
}
static inline int32_t mics_op_gelu(mics_model *model, int32_t in, bool exact)
{
    mics_op op = mics_op_of(MICS_OP_GELU, in, mics_param_none(), mics_param_none());
    op.exact = exact;
    return mics_model_add_op(model, op);
}
static inline int32_t mics_op_activation(mics_model *model, int32_t in, mics_activation activation)
{
    mics_op op = mics_op_of(MICS_OP_ACTIVATION, in, mics_param_none(), mics_param_none());
    op.activation = activation;
    return mics_model_add_op(model, op);
}
static inline int32_t mics_op_swiglu(mics_model *model, int32_t in)
{
    return mics_model_add_op(model,
                             mics_op_of(MICS_OP_SWIGLU, in, mics_param_none(), mics_param_none()));
}
static inline int32_t mics_op_head_norm(mics_model *model, int32_t in, mics_heads heads,
                                        mics_param_ref query_weight, mics_param_ref key_weight,
                                        float eps)
{
    mics_op op = mics_op_of(MICS_OP_HEAD_NORM, in, query_weight, key_weight);
    op.heads = heads;
    op.eps = eps;
    return mics_model_add_op(model, op);
}
static inline int32_t mics_op_attention(mics_model *model, int32_t in, mics_heads heads,
                                        int64_t window, float dropout)
{
    mics_op op = mics_op_of(MICS_OP_ATTENTION, in, mics_param_none(), mics_param_none());
    op.heads = heads;
    op.window = window;
    op.dropout = dropout;
    return mics_model_add_op(model, op);
}
static inline int32_t mics_op_dropout(mics_model *model, int32_t in, float dropout)
{
    mics_op op = mics_op_of(MICS_OP_DROPOUT, in, mics_param_none(), mics_param_none());
    op.dropout = dropout;
    return mics_model_add_op(model, op);
}
static inline int32_t mics_op_add(mics_model *model, int32_t a, int32_t b)
{
    mics_op op = mics_op_of(MICS_OP_ADD, a, mics_param_none(), mics_param_none());
    op.in[1] = b;
    return mics_model_add_op(model, op);
}
static inline void mics_op_lm_head(mics_model *model, int32_t in, mics_param_ref weight)
{
    mics_model_add_op(model, mics_op_of(MICS_OP_LM_HEAD, in, weight, mics_param_none()));
}

/* Adds a product: each token's numbers times the sigmoid of one number, which `gate` holds.
 *
 * Needs:   in and gate are tensors of the newest unit, gate of width 1.
 * Returns: the tensor that it makes; -1 after a failure.
 */
static inline int32_t mics_op_sigmoid_gate(mics_model *model, int32_t in, int32_t gate)
{
    mics_op op = mics_op_of(MICS_OP_SIGMOID_GATE, in, mics_param_none(), mics_param_none());
    op.in[1] = gate;
    return mics_model_add_op(model, op);
}

/* A mixture of experts. The router gives weights (chosen) of the experts that each token goes to;
 * experts_in multiplies tokens by the weights of those, experts_out does and adds up what a token's
 * experts give, by the router's weights. Both name the router's output.
 *
 * Shapes:  weight: (experts, C) of the router; of others (O, I), the first expert's in a unit of
 *          experts (mics_model_experts).
 * Needs:   1 <= experts.chosen <= experts.count; router: what mics_op_router gave in this unit, of
 *          the same experts. kind: MICS_OP_EXPERTS_IN or MICS_OP_EXPERTS_OUT.
 * Returns: the tensor that it makes; -1 after a failure.
 */
static inline int32_t mics_op_router(mics_model *model, int32_t in, mics_param_ref weight,
                                     mics_experts experts, mics_router_spec router)
{
    mics_op op = mics_op_of(MICS_OP_ROUTER, in, weight, mics_param_none());
    op.experts = experts;
    op.router = router;
    return mics_model_add_op(model, op);
}
static inline int32_t mics_op_experts_swiglu(mics_model *model, int32_t in, mics_experts experts)
{
    mics_op op = mics_op_of(MICS_OP_SWIGLU, in, mics_param_none(), mics_param_none());
    op.experts = experts;
    return mics_model_add_op(model, op);
}
static inline int32_t mics_op_experts(mics_model *model, mics_op_kind kind, int32_t in,
                                      int32_t router, mics_param_ref weight, mics_experts experts)
{
    mics_op op = mics_op_of(kind, in, weight, mics_param_none());
    op.in[1] = router;
    op.experts = experts;
    return mics_model_add_op(model, op);
}

/* Adds rotary position embeddings of q and k: numbers i and dims / 2 + i of a head turn by the
 * angle position * frequencies[i], in the order that transformers' rotate_half has; v passes. The
 * model keeps a copy of the frequencies.
 *
 * Needs:   as mics_op_attention; dims even, 2 <= dims <= heads.dim; frequencies and scale finite.
 * Returns: the tensor that it makes; -1 after a failure.
 */
int32_t mics_op_rotary(mics_model *model, int32_t in, mics_heads heads,
                       const mics_rotary_spec *spec);

/* Ends the newest unit; `out` is the tensor that the next unit reads.
 *
 * Needs:   out is a tensor of the unit; -1 for the last unit, which ends with the loss. Anything
 *          else counts as -1, which mics_model_finish refuses in all other units.
 */
void mics_model_unit_end(mics_model *model, int32_t out);

/* Checks the whole: shapes agree, every parameter is used, exactly one loss ends it. Sets `tied` and `masked`.
 *
 * Returns: MICS_OK or the builder's first failure, logged with unit and op.
 */
mics_status mics_model_finish(mics_model *model);

// ---- changes to a finished model ----

/* Whether mics_model_spread can make one of those ranks: the model has experts, all as many times as
 * ranks, and one mixture a unit.     Needs: experts >= 1. Pure. */
bool mics_model_can_spread(const mics_model *model, int32_t experts);

/* Whether mics_model_spread can make one for so many ranks that share sequences: they divide the query
 * heads of every attention, of which a unit has one, and no expert has a capacity.
 *
 * Needs:   sequence >= 1. Pure.
 */
bool mics_model_can_cut_sequences(const mics_model *model, int32_t sequence);

/* The same model for ranks of which `experts` keep different experts, and `sequence` share each
 * sequence: rows of tokens travel to experts and back; attention is of whole sequences and some of the
 * heads, between two all-to-alls. Tensors are for batches of this size, of which `length` is what one
 * rank has of a sequence. Units and parameters are those of `model`, in the same order.
 *
 * Needs:   a model that mics_model_finish has passed, and that outlives the new one; experts >= 1,
 *          sequence >= 1.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: no experts, or `experts` does not divide them, or
 *          `sequence` not the query heads, with the numbers that would work; MICS_ERR_UNSUPPORTED,
 *          logged; MICS_ERR_MEMORY.
 * Owns:    close with mics_model_close.
 */
mics_status mics_model_spread(const mics_model *model, int32_t experts, int32_t sequence,
                              mics_batch batch, mics_model **model_out);

// An adapter of low rank for a finished model: which linears get one (mics_op LORA), and what else
// trains. Names are matched as PEFT does: "q_proj" is every module whose name is that or ends with
// ".q_proj".
typedef struct mics_lora_spec {
    int64_t rank;         // of each module's
    double alpha;         // of what is added: alpha / rank, or as rank_stabilized says
    bool rank_stabilized; // alpha / sqrt(rank) (rsLoRA: Kalajdzievski, 2023, arXiv:2312.03732)
    double dropout;       // of the adapter's input, in training
    const char *const *targets; // modules that get an adapter
    int32_t target_count;       // 0: "all-linear", all linears but the LM head's
    const char *const *saved;   // modules that train whole (modules_to_save)
    int32_t saved_count;
} mics_lora_spec;

/* Gives a model adapters, and freezes all other parameters but those of spec->saved. Names of the
 * adapters' tensors are those of PEFT's files ("base_model.model." NAME ".lora_A.weight"). A is drawn
 * from normal numbers of the deviation of PEFT's uniform ones, 1 / sqrt(3 inputs), B is 0.
 *
 * Needs:   a model that mics_model_finish has passed, and that was not made by mics_model_spread;
 *          before mics_model_freeze, mics_model_widen_residual.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: rank, alpha or dropout is none, a name matches no module
 *          (with those that there are), a module that is no linear or is part of an expert, or only a
 *          part of a fused parameter is to train whole; MICS_ERR_MEMORY. After an error the model can
 *          only be closed.
 */
mics_status mics_model_add_lora(mics_model *model, const mics_lora_spec *spec);

/* Freezes every parameter none of whose tensors matches one of the patterns ("*" is any text, "?" any
 * character; a parameter of several tensors trains if all of them match, and is an error if only some
 * do), and splits units that have both kinds.
 *
 * Needs:   as mics_model_add_lora.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: a pattern matches no tensor, nothing trains, or part of a
 *          fused parameter; MICS_ERR_MEMORY. After an error the model can only be closed.
 */
mics_status mics_model_freeze(mics_model *model, const char *const *names, int32_t count);

/* Makes the residual stream fp32 in every precision: what passes from unit to unit, and the sums
 * that it is a term of. Other ops read it rounded. Parameters stay as they are.
 *
 * Needs:   a model that mics_model_finish has passed, once, and that was not made by
 *          mics_model_spread.
 * Returns: MICS_OK; MICS_ERR_UNSUPPORTED, logged: a unit ends with something else than a residual
 *          sum; MICS_ERR_MEMORY. After an error the model can only be closed.
 */
mics_status mics_model_widen_residual(mics_model *model);

/* Attention of the whole model from now on looks at segments: a token sees none of another one.
 * Batches then carry them (mics_batch_source.read_segments).
 *
 * Needs:   a model that mics_model_finish has passed; before a schedule of it is opened.
 */
void mics_model_set_segments(mics_model *model);

/* Learned positions of the whole model from now on begin anew with each segment, which is then
 * numbered by the place of its first token in the sequence; below 0: what is of none.
 *
 * Needs:   a model that mics_model_finish has passed.
 */
void mics_model_restart_positions(mics_model *model);

#ifdef __cplusplus
}
#endif
#endif
