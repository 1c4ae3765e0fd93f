// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ops as data: what each kind takes, makes, costs and keeps, as one descriptor. Models, schedules,
// simulator and engine ask the descriptor and never name a kind.
//
// Shapes: N = B * T tokens of B sequences; all activations are (N, width), row-major; C channels, I
// inputs, O outputs, V vocabulary, H heads, D head dimension; Q query heads and K key-value heads
// where they may differ.
#ifndef MICS_OP_H
#define MICS_OP_H

#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MICS_OP_INPUTS = 2, MICS_OP_PARAMS = 3, MICS_OP_WORKS = 8 };

// The registry, X(ENUMERATOR, folder): src/ops/<folder>/def.c has the descriptor, and the files
// beside it the kernels. The build reads this list too, so an op is its folder and its line here.
#define MICS_OPS(X)                                                                                \
    X(EMBEDDING, embedding)                                                                        \
    X(LAYERNORM, layernorm)                                                                        \
    X(RMSNORM, rmsnorm)                                                                            \
    X(HEAD_NORM, head_norm)                                                                        \
    X(LINEAR, linear)                                                                              \
    X(LORA, lora)                                                                                  \
    X(GELU, gelu)                                                                                  \
    X(ACTIVATION, activation)                                                                      \
    X(SWIGLU, swiglu)                                                                              \
    X(ROTARY, rotary)                                                                              \
    X(ATTENTION, attention)                                                                        \
    X(ADD, add)                                                                                    \
    X(CAST, cast)                                                                                  \
    X(DROPOUT, dropout)                                                                            \
    X(ROUTER, router)                                                                              \
    X(EXPERTS_IN, experts_in)                                                                      \
    X(EXPERTS_OUT, experts_out)                                                                    \
    X(DISPATCH, dispatch)                                                                          \
    X(ALL_TO_ALL, all_to_all)                                                                      \
    X(EXPERTS_ROWS, experts_rows)                                                                  \
    X(COMBINE, combine)                                                                            \
    X(SIGMOID_GATE, sigmoid_gate)                                                                  \
    X(SEQUENCE_BLOCKS, sequence_blocks)                                                            \
    X(LM_HEAD, lm_head)

#define MICS_OP_KIND_(NAME, folder) MICS_OP_##NAME,
typedef enum mics_op_kind { MICS_OPS(MICS_OP_KIND_) MICS_OP_KINDS } mics_op_kind;
#undef MICS_OP_KIND_

typedef struct mics_param_ref {
    int32_t unit, param; // unit -1: none
} mics_param_ref;

// The heads that q, k, v of a token are made of, side by side in this order: query heads, then as
// many key heads as value heads, of `dim` numbers each. Query head h reads key-value head h /
// (query / key_value).
typedef struct mics_heads {
    int64_t query, key_value, dim; // key_value divides query
} mics_heads;

// Rotary position embeddings (Su et al., 2021, arXiv:2104.09864).
typedef struct mics_rotary_spec {
    int64_t dims;             // of each head that turn, the first ones; even
    const float *frequencies; // (dims / 2), radians a position
    float scale;              // of cosines and sines
} mics_rotary_spec;

// Activations of one input, beside GELU (MICS_OP_GELU).
typedef enum mics_activation {
    MICS_ACTIVATION_RELU,
    MICS_ACTIVATION_SILU, // also called swish
    MICS_ACTIVATIONS
} mics_activation;

// A mixture of experts (Fedus et al., Switch transformers, 2021, arXiv:2101.03961): a router scores
// `count` experts, and each token goes to the `chosen` best. Ops on the rows of tokens at their
// experts have `chosen` rows a token, and say so here. With a capacity an expert takes so many rows
// of a sequence at most: the first choices of all its tokens come first, in the order of tokens,
// then their second choices, and so on (Lepikhin et al., GShard, 2020, arXiv:2006.16668, algorithm
// 1). What it does not take is dropped: that expert adds nothing to the token. So neither ranks nor
// micro-batches change what is dropped. Generation drops nothing.
typedef struct mics_experts {
    int32_t count, chosen; // 0: no experts
    // Of a sequence of T tokens an expert takes factor * T * chosen / count rows, rounded up, at
    // least `min_capacity`. 0: all of them.
    double capacity, eval_capacity; // factors, of training and of evaluation
    int32_t min_capacity;
} mics_experts;

// How a router weighs what it has chosen, and what it adds to the objective. The losses are of each
// sequence and layer alone, so neither ranks nor micro-batches change them.
typedef struct mics_router_spec {
    bool normalised; // weights of a token's experts sum to 1, also where one of them is dropped
    // Times count * sum over e of (tokens that chose e / T) * (mean probability of e).
    float balance;
    float z; // times the mean of the squared log of the sum of e^score (Zoph et al., 2022)
    // In training. The router's input is multiplied by uniform noise in 1 - jitter to 1 + jitter
    // (Fedus et al., 2021); and of two experts the second is kept with the probability of twice its
    // share of the two weights (GShard, section 2.2). Noise is of mask `mask`, an element's 16 bits
    // b being 1 + jitter * ((b + 1/2) / 2^15 - 1); a second expert is kept where element 0 of the
    // token's row of mask `mask` + 1 is below 2^16 times that probability.
    float jitter;
    bool random_second;
} mics_router_spec;

// What a router adds up in backward, over the sequences of a micro-batch.
typedef enum mics_router_sum {
    MICS_ROUTER_SEQUENCES, // how many
    MICS_ROUTER_ENTROPY,   // mean of a token's probabilities' entropy, nats
    MICS_ROUTER_FULLEST,   // tokens that chose the fullest expert, relative to the mean expert
    MICS_ROUTER_BALANCE,   // the loss that balances, without its factor
    MICS_ROUTER_DROPPED,   // share of the choices that full experts did not take
    MICS_ROUTER_SUMS
} mics_router_sum;

// An adapter of low rank beside a linear (Hu et al., LoRA, 2021, arXiv:2106.09685): in[0] is what the
// linear makes, in[1] its input x, and slice i of the output is that of in[0] plus
//
//     scale * (drop(x) A_i^T) B_i^T
//
// A (slices * rank, I) has the slices' rows one behind the other, B (O', rank) the rows of all
// outputs of slice 0, then those of slice 1, and so on. Each slice drops numbers of x by masks of its
// own: slice i by mask `mask` + i. What no slice has stays as it is.
enum { MICS_LORA_SLICES = 3 };
typedef struct mics_lora {
    int64_t rank;                                             // of each slice; 0: no adapter
    float scale;                                              // alpha / rank, or alpha / sqrt(rank)
    int32_t slices;                                           // 1 to MICS_LORA_SLICES
    int64_t first[MICS_LORA_SLICES], count[MICS_LORA_SLICES]; // columns of the output, ascending
} mics_lora;

// One op of a unit. Who adds it to a model fills in kind, inputs, parameters and attributes.
typedef struct mics_op {
    mics_op_kind kind;
    int32_t in[MICS_OP_INPUTS]; // tensors of the unit; -1: none
    int32_t out;                // -1: none (the loss)
    int32_t stats;              // fp32, one row a token, kept for backward; -1: none
    mics_param_ref params[MICS_OP_PARAMS];
    // Attributes, of the ops that have them.
    bool weight_out_in; // the weight is stored (O, I), as torch's Linear, and not (I, O)
    bool exact;         // a GELU by erf, and not by tanh
    mics_heads heads;
    // Attention: token i sees j with i - window < j <= i; 0: all j <= i. Both ways: with |i - j| <=
    // window / 2; 0: all.
    int64_t window;
    bool both_ways; // an encoder's
    bool segments;  // and of those only j of its own segment (mics_op_call.segments)
    int32_t rotary; // table of the model (mics_model.rotaries)
    float eps;
    float dropout;        // probability that a number is dropped in training; 0: none
    uint32_t mask;        // number of its first mask; mics_model_add_op numbers them
    mics_experts experts; // params[0] is the first one's weight (mics_op_shape.expert_elems)
    mics_router_spec router;
    int32_t
        routes; // tensor: stats of the router that experts' ops follow; mics_model_add_op finds it
    // Of ops on rows that travel between so many ranks (ops/experts/def.h): `routes` is then the
    // stats of the router, or the tensor of the rows that came. 0: no rows travel.
    int32_t expert_ranks;
    int32_t travel_rows;    // of a token, in all blocks (mics_experts_travel_rows)
    int64_t first_position; // of an embedding: row of positions that a sequence's first token has
    mics_activation activation;
    mics_lora lora;
    bool wide; // its output is fp32 in every precision; an add's inputs too
    // Ranks that share each sequence, of ops that know of them: attention (mics_op_def.whole_sequences),
    // the ops that exchange for it, and a router, whose `routes` are then the sums that came. 0: none.
    int32_t sequence_ranks;
    bool from_blocks; // of SEQUENCE_BLOCKS: back into rows
} mics_op;

/* Of the 2^16 values that a number's random bits may have, how many drop it: a probability is
 * rounded to a multiple of 2^-16.
 *
 * Needs:   0 <= probability < 1.     Units: values; at most 2^16 - 1.
 */
static inline uint32_t mics_dropout_threshold(float probability)
{
    const uint32_t rounded = (uint32_t)(probability * 65536.0F + 0.5F);
    return rounded < 65535 ? rounded : 65535;
}

/* What the others are multiplied by, so that the mean stays: 1 / (1 - the rounded probability).
 *
 * Needs:   0 <= probability < 1.     Units: none.
 */
static inline float mics_dropout_scale(float probability)
{
    return 65536.0F / (float)(65536 - mics_dropout_threshold(probability));
}

// What a micro-batch's dropout masks are drawn from, on the device where kernels run. The 16 random
// bits of element e of a row are number e % 8, from the low end, of the Philox4x32-10 block (Salmon
// et al., SC11) of this key and the counter
//
//     { e / 8, token, mask, sequence }
//
// `token` is the row's number in its sequence, `mask` the op's (mics_op.mask, plus the query head
// in attention, whose rows are of keys), `sequence` that of the row's sequence in the step's global
// batch. So a mask is a function of the run's seed, the step and the data's place: the same on any
// mesh, in micro-batches of any size, and made anew wherever it is needed.
typedef struct mics_dropout_draw {
    uint32_t key[2];   // of the step: mics_rng_bits(seed, stream, step), the low half first
    uint32_t sequence; // number of the micro-batch's first
} mics_dropout_draw;

// An op with all sizes that follow from where it stands.
typedef struct mics_op_shape {
    const mics_op *op;
    const char *unit;                // its name, for errors
    int64_t B, T, N;                 // 0 while a model is built
    int64_t in[MICS_OP_INPUTS], out; // widths; 0 where there is none
    int64_t params[MICS_OP_PARAMS]
                  [2]; // as stored; 0 where there is none, (elements, 0) for a vector
    // No gradient is wanted: of a frozen parameter, or of an input that no trained one leads to. Costs
    // are without them, and kernels find NULL in their place.
    bool params_fixed[MICS_OP_PARAMS], in_fixed[MICS_OP_INPUTS];
    int64_t routes;       // width of the tensor op->routes of rows that travel; 0: they do not
    int64_t expert_elems; // from an expert's params[0] to the next one's; 0: they are not experts'
    mics_heads heads;
    const mics_rotary_spec *rotary; // NULL: the model has none of that number
    int64_t vocab, positions;       // of the model
    int32_t threads;                // of the rank
    int32_t accelerator_bytes;      // of a number there, 4 or 2; 0: on the CPU
    bool cpu_bf16;                  // on the CPU, by mics_kernels.bf16
    bool library; // on an accelerator: by a library's, where mics_op_def.library_lacks allows
} mics_op_shape;

typedef struct mics_op_cost {
    double flops_forward, flops_backward;          // multiply and add count as 2
    double bytes_forward, bytes_backward;          // memory touched in fp32, each operand once
    int64_t workspace_forward, workspace_backward; // floats
    int64_t chunk_rows; // of logits, held at a time; 0: the op makes none
} mics_op_cost;

// What a pass of an op consists of, for a clock.
typedef enum mics_op_work_kind {
    MICS_WORK_GEMM,      // (m, k) x (k, n)
    MICS_WORK_ATTENTION, // m: length of a sequence; n, k: head dimension
    MICS_WORK_MEMORY     // moves bytes
} mics_op_work_kind;

typedef struct mics_op_work {
    mics_op_work_kind kind;
    int64_t m, n, k;
    double flops, bytes; // GEMM: they follow from m, n and k
    int64_t times;
} mics_op_work;

// Which pass.
typedef struct mics_op_pass {
    bool backward;
    bool input_gradient;         // backward: it is wanted
    bool zeroed[MICS_OP_PARAMS]; // backward: this parameter's gradient is cleared first
    bool keeps_logits;  // the loss keeps all logits from forward to backward, as other programs do
    bool separate;      // kernels are separate: mics_op_def.separate_forward, separate_backward
    int32_t elem_bytes; // of parameters and activations
} mics_op_pass;

// How tensor parallelism cuts an op (Narayanan et al., SC21, arXiv:2104.04473), for comparison with
// it.
typedef enum mics_op_cut {
    MICS_CUT_NONE,   // each rank runs all of it
    MICS_CUT_WEIGHT, // a unit's such ops by turns: by columns of the weight, then by rows
    MICS_CUT_WIDTH,  // its input is cut, by heads where it has heads, and so is its output
    MICS_CUT_ROWS    // by rows of its table
} mics_op_cut;

// What generation keeps for an op, floats.
typedef struct mics_op_decode {
    int64_t cache;     // of a sequence
    int64_t blocks;    // that the cache has, each as large and of all tokens in their order
    int64_t workspace; // of a thread, while it computes
} mics_op_decode;

typedef struct mics_op_def {
    const char *name;
    int32_t inputs;                     // of in[]
    int32_t params;                     // of params[]
    int32_t params_needed;              // those after may be none
    int32_t param_dims[MICS_OP_PARAMS]; // 1 or 2

    bool loss; // makes each token's loss and no tensor; its backward does forward's work too
    bool backward_reads_in[MICS_OP_INPUTS]; // these inputs' values are saved for backward
    bool params_read_in;                    // they are read for gradients of parameters alone
    bool backward_reads_out;                // and its output's
    bool backward_reads_params; // and the parameters' values, which must be gathered then
    bool backward_in_place;     // the input's gradient may lie where the output's was
    bool backward_adds;         // the kernel can add to the input's gradient
    bool backward_passes;       // the output's gradient is that of each input: no kernel runs
    bool reads_segments;        // where mics_op.segments says so
    bool whole_sequences;    // of mics_op.sequence_ranks S: it has S T tokens and 1 / S of widths
    bool restarts_positions; // it reads segments for positions (mics_model_restart_positions)
    bool backward_second;    // the second input has a gradient of its own, never added to
    bool travels;            // a collective, among ranks of mics_op.expert_ranks or sequence_ranks
    bool multiplies;         // by the GEMM library, which may pick its algorithms on a first run
    // What PyTorch's separate kernels of it move, in times of what one kernel moves; 0: the same,
    // as it has one kernel there too. Of the logits: of what makes losses of them.
    double separate_forward, separate_backward;
    mics_op_cut cut;

    /* Checks widths and parameters; gives the widths of the output (0: none) and of stats.
     *
     * Returns: MICS_OK; MICS_ERR_INVALID, logged (mics_op_check). */
    mics_status (*make)(const mics_op_shape *shape, int64_t *out_out, int64_t *stats_out);

    /* Cost of both passes.
     * Source:  Narayanan et al., SC21, appendix, op by op (causal attention counts the half that it
     *          computes). */
    mics_op_cost (*cost)(const mics_op_shape *shape);

    /* (optional) What a pass consists of, in order; by default its FLOPs and bytes as one move of
     * memory.
     *
     * Returns: how many of works_out, at most MICS_OP_WORKS, were written. */
    int32_t (*work)(const mics_op_shape *shape, const mics_op_pass *pass, mics_op_work *works_out);

    /* (optional) FLOPs a token that model FLOPs utilisation counts, forward and backward; by
     * default 0.
     * Source:  Chowdhery et al., PaLM, 2022, arXiv:2204.02311, appendix B, halved for the causal
     *          mask. */
    double (*model_flops)(const mics_op_shape *shape);

    /* (optional) What keeps a library's kernels from computing it where mics_op_shape.library asks
     * for them, and what would work: "attention has dropout; set it to 0". By default no library has
     * any.
     *
     * Returns: NULL where nothing does. */
    const char *(*library_lacks)(const mics_op_shape *shape);

    /* (optional) What it keeps in generation of sequences of at most `capacity` tokens; by default
     * nothing. */
    mics_op_decode (*decode)(const mics_op_shape *shape, int64_t capacity);
} mics_op_def;

/* The descriptor of a kind.
 *
 * Needs:   a valid kind.     Returns: never NULL.     Owns: nothing; static.
 */
const mics_op_def *mics_op_def_get(mics_op_kind kind);

/* What a pass consists of, by the descriptor or its default.
 *
 * Returns: how many of works_out were written.
 */
int32_t mics_op_works(const mics_op_shape *shape, const mics_op_pass *pass,
                      mics_op_work works_out[MICS_OP_WORKS]);

/* Whether an input's values are saved for backward: not where they are read for gradients of
 * parameters alone, all of which are frozen.
 *
 * Needs:   0 <= input < MICS_OP_INPUTS.
 */
bool mics_op_keeps_in(const mics_op_shape *shape, int32_t input);

/* The shape that each of `parts` tensor-parallel ranks has of an op; `by_columns` is for those cut
 * by their weight.
 *
 * Needs:   parts >= 1. A size below `parts` becomes 1.
 */
mics_op_shape mics_op_shape_cut(const mics_op_shape *shape, int32_t parts, bool by_columns);

/* Rows that one expert takes at most of a sequence of `length` tokens: its capacity, or all tokens.
 *
 * Needs:   experts.count >= 1, length >= 1.
 */
int64_t mics_experts_capacity(mics_experts experts, int64_t length, bool training);

/* Rows of a token for which a tensor of rows that travel between so many ranks has room, over all
 * its blocks: so many that a block holds what a sequence of `length` tokens can have for the experts
 * of one rank, in training and in evaluation. A block has B * length * rows / ranks of them.
 *
 * Needs:   ranks >= 1 divides experts.count, length >= 1.
 * Returns: from 1 to ranks * chosen; ranks divides length times that.
 */
int32_t mics_experts_travel_rows(mics_experts experts, int32_t ranks, int64_t length);

/* Elements of q, k and v side by side. */
static inline int64_t mics_heads_width(mics_heads heads)
{
    return (heads.query + 2 * heads.key_value) * heads.dim;
}

/* The heads of one of `ranks` ranks that share sequences. Ranks that read the same key-value head have
 * a copy each; where a rank's query heads begin amid those of one, it is several for that rank.
 *
 * Needs:   ranks >= 1 divides heads.query.     Pure.
 */
mics_heads mics_sequence_heads(mics_heads heads, int32_t ranks);

/* For descriptors: that an op's first input holds q, k and v of its heads.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged with unit and op.
 */
mics_status mics_op_check_heads(const mics_op_shape *shape);

/* For descriptors: that an op's probability of dropout is one.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged with unit and op: it is not from 0 to below 1.
 */
mics_status mics_op_check_dropout(const mics_op_shape *shape);

/* For descriptors: that `what` of an op, which is `have`, is `need`.
 *
 * Needs:   nothing of the sizes; any two are compared.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged with unit and op.
 */
mics_status mics_op_check(const mics_op_shape *shape, const char *what, int64_t have, int64_t need);

#ifdef __cplusplus
}
#endif
#endif
