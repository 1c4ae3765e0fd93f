// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Generation: the model's ops on new tokens, with a cache of keys and values. One process.
//
// A step is one token of each sequence, or some tokens of one. Its threads walk the model together.
// An op that divides its work is a stage; so is a run of other ops, whose rows the threads divide:
// a row passes through the whole run in one thread. Each stage waits until the shares of the one
// before are complete; a thread that comes late finds nothing to do and goes on.
#include "base/free.h"
#include "base/shares.h"
#include "base/size.h"
#include "mics/core/engine.h"
#include "mics/log.h"
#include "ops/kernels.h"
#include "team.h"
#include <string.h>

enum {
    // Tokens of a prompt in one step: enough for GEMMs at full speed, while the activations of a
    // wide unit stay some 100 MB.
    PROMPT_ROWS = 256,
    SHARE_ROWS = 16, // of a run of ops that do not divide
    ALIGN_FLOATS = 16,
};

struct mics_decoder {
    mics_memory *memory;
    mics_decoder_spec spec;
    const mics_kernels *kernels;
    mics_team *team;
    int64_t rows;        // of a step, at most
    float *cache;        // by op, then by sequence
    float *tensors[2];   // of units by turns, for a unit reads what the one before made
    int64_t *tensor_at;  // by tensor of all units: floats a row that stand before it
    float *workspaces;   // by thread
    int64_t workspace;   // floats of one
    mics_shares *shares; // of this step, by op of all units; of a run by its first
    int32_t op_count;
    float *logits; // (sequences, vocab)
};

// Where a thread stands in the model.
typedef struct place {
    const mics_unit *unit;
    int32_t index;      // of the unit
    int32_t ops;        // of the units before
    int32_t tensors;    // likewise
    const float *input; // what the unit before made
    int32_t arena;      // of the unit's tensors
} place;

typedef struct step {
    mics_decoder *decoder;
    mics_decoder_feed_spec feed;
    bool wants_logits;
} step;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// ---- sizes ----

size_t mics_decoder_place(const mics_unit *unit, int32_t param, mics_dtype dtype)
{
    size_t at = 0;
    for (int32_t p = 0; p < param; p++) {
        const mics_param *of = &unit->params[p];
        const size_t bytes = mics_dtype_bytes(of->dims > 1 ? dtype : MICS_DTYPE_FP32);
        at += (size_t)mics_size_round_up((int64_t)(bytes * (size_t)of->elems), MICS_ALIGNMENT);
    }
    return at;
}

static mics_op_decode kept_by(const mics_decoder *decoder, const mics_unit *unit, const mics_op *op)
{
    const mics_batch one = {.sequences = 1, .length = 1, .threads = 1};
    const mics_op_shape shape = mics_op_shape_get(decoder->spec.model, unit, op, one);
    const mics_op_def *def = mics_op_def_get(op->kind);
    return def->decode != NULL ? def->decode(&shape, decoder->spec.capacity) : (mics_op_decode){0};
}

// Sizes of the buffers, over all units.
typedef struct decoder_sizes {
    int64_t row, cache, workspace; // floats
    int32_t tensors, ops;
} decoder_sizes;

static decoder_sizes sizes_of(const mics_decoder *decoder)
{
    const mics_model *model = decoder->spec.model;
    decoder_sizes sizes = {0};
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u];
        int64_t row = 0;
        for (int32_t t = 0; t < unit->tensor_count; t++)
            row += mics_size_round_up(unit->tensors[t].width, ALIGN_FLOATS);
        for (int32_t o = 0; o < unit->op_count; o++) {
            const mics_op_decode keeps = kept_by(decoder, unit, &unit->ops[o]);
            sizes.cache += decoder->spec.sequences * keeps.cache;
            sizes.workspace = larger(sizes.workspace, keeps.workspace);
        }
        sizes.row = larger(sizes.row, row);
        sizes.tensors += unit->tensor_count;
        sizes.ops += unit->op_count;
    }
    sizes.workspace = mics_size_round_up(sizes.workspace, ALIGN_FLOATS);
    return sizes;
}

// After this no sum of sizes_of can overflow.
static mics_status check_cache(const mics_decoder_spec *spec)
{
    const double tokens =
        (double)spec->capacity * (double)spec->sequences + PROMPT_ROWS * (double)spec->threads;
    double elems = tokens * (double)spec->model->vocab;
    for (int32_t u = 0; u < spec->model->unit_count; u++) {
        const mics_unit *unit = &spec->model->units[u];
        for (int32_t t = 0; t < unit->tensor_count; t++)
            elems += 2 * tokens * ((double)unit->tensors[t].width + 16);
    }
    if (elems > 0x1p57)
        return mics_fail(MICS_ERR_INVALID,
                         "a cache for %lld sequences of %lld tokens needs about %.3g numbers, "
                         "which is too large",
                         (long long)spec->sequences, (long long)spec->capacity, elems);
    return MICS_OK;
}

// A token that was fed keeps its state whatever follows, so no op may look ahead.
static mics_status check_looks_back(const mics_model *model)
{
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u];
        for (int32_t o = 0; o < unit->op_count; o++) {
            if (unit->ops[o].both_ways)
                return mics_fail(MICS_ERR_UNSUPPORTED,
                                 "unit %s: its attention sees later tokens too, so the model "
                                 "cannot be decoded token by token; run it as an encoder",
                                 unit->name);
        }
    }
    return MICS_OK;
}

// ---- opening ----

static mics_status open_floats(mics_memory *memory, mics_memory_tag tag, int64_t elems,
                               float **floats_out)
{
    size_t bytes = 0;
    void *block = NULL;
    MICS_TRY(mics_size_bytes(elems, sizeof(float), &bytes));
    MICS_TRY(mics_alloc(memory, tag, bytes, &block));
    *floats_out = block;
    return MICS_OK;
}

static void place_tensors(mics_decoder *decoder)
{
    const mics_model *model = decoder->spec.model;
    int64_t *at = decoder->tensor_at;
    for (int32_t u = 0; u < model->unit_count; u++) {
        int64_t end = 0;
        for (int32_t t = 0; t < model->units[u].tensor_count; t++) {
            *at++ = end;
            end += mics_size_round_up(model->units[u].tensors[t].width, ALIGN_FLOATS);
        }
    }
}

static mics_status open_buffers(mics_decoder *decoder)
{
    mics_memory *memory = decoder->memory;
    const mics_decoder_spec *spec = &decoder->spec;
    MICS_TRY(check_cache(spec));
    const decoder_sizes sizes = sizes_of(decoder);
    const int64_t prompt = spec->capacity < PROMPT_ROWS ? spec->capacity : PROMPT_ROWS;
    decoder->rows = larger(prompt, spec->sequences);
    decoder->workspace = sizes.workspace;
    decoder->op_count = sizes.ops;
    MICS_TRY(open_floats(memory, MICS_MEM_ACTIVATIONS, sizes.cache, &decoder->cache));
    for (int i = 0; i < 2; i++)
        MICS_TRY(open_floats(memory, MICS_MEM_ACTIVATIONS, sizes.row * decoder->rows,
                             &decoder->tensors[i]));
    MICS_TRY(open_floats(memory, MICS_MEM_WORKSPACE, sizes.workspace * spec->threads,
                         &decoder->workspaces));
    MICS_TRY(open_floats(memory, MICS_MEM_WORKSPACE, spec->sequences * spec->model->vocab,
                         &decoder->logits));
    MICS_TRY(MICS_NEW(memory, sizes.ops, &decoder->shares));
    MICS_TRY(MICS_NEW(memory, sizes.tensors, &decoder->tensor_at));
    place_tensors(decoder);
    return mics_team_open(memory, spec->threads, &decoder->team);
}

mics_status mics_decoder_open(mics_memory *memory, const mics_decoder_spec *spec,
                              mics_decoder **decoder_out)
{
    if (spec->capacity < 1 || spec->capacity > spec->model->positions)
        return mics_fail(MICS_ERR_INVALID,
                         "%lld tokens are not from 1 to the model's %lld positions",
                         (long long)spec->capacity, (long long)spec->model->positions);
    MICS_TRY(check_looks_back(spec->model));
    mics_decoder *decoder = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &decoder));
    *decoder = (mics_decoder){.memory = memory, .spec = *spec};
    decoder->kernels = spec->kernels != NULL ? spec->kernels : mics_kernels_get(NULL);
    mics_status status = open_buffers(decoder);
    if (status != MICS_OK) {
        mics_decoder_close(decoder);
        return status;
    }
    *decoder_out = decoder;
    return MICS_OK;
}

void mics_decoder_close(mics_decoder *decoder)
{
    if (decoder == NULL)
        return;
    mics_memory *memory = decoder->memory;
    mics_team_close(decoder->team);
    MICS_FREE_ALL(memory, decoder->cache, decoder->tensors[0], decoder->tensors[1],
                  decoder->workspaces, decoder->logits, decoder->shares, decoder->tensor_at,
                  decoder);
}

// ---- a step ----

static const void *param_at(const mics_decoder *decoder, mics_param_ref ref)
{
    const mics_decoder_spec *spec = &decoder->spec;
    if (ref.unit < 0)
        return NULL;
    return (const char *)spec->params[ref.unit] +
           mics_decoder_place(&spec->model->units[ref.unit], ref.param, spec->dtype);
}

// From an expert's weight to the next one's, as the decoder has them.
static int64_t expert_elems_of(const mics_decoder *decoder, const mics_op *op)
{
    const mics_unit *units = decoder->spec.model->units;
    const mics_dtype dtype = decoder->spec.dtype;
    const int32_t unit = op->params[0].unit;
    if (unit < 0 || units[unit].experts == 0)
        return 0;
    return (
        int64_t)(mics_decoder_place(&units[unit], mics_unit_expert_params(&units[unit]), dtype) /
                 mics_dtype_bytes(dtype));
}

// Row `row` of a tensor of the unit.
static float *row_of(const mics_decoder *decoder, const place *at, int32_t tensor, int64_t row)
{
    if (tensor < 0)
        return NULL;
    return decoder->tensors[at->arena] + decoder->tensor_at[at->tensors + tensor] * decoder->rows +
           row * at->unit->tensors[tensor].width;
}

static const float *input_of(const mics_decoder *decoder, const place *at, int32_t tensor,
                             int64_t row)
{
    return tensor == 0 ? at->input + row * at->unit->tensors[0].width
                       : row_of(decoder, at, tensor, row);
}

// Rows [row, row + rows) of the step through an op.
static void run_op(const step *s, const place *at, const mics_op *op, mics_op_call call,
                   int64_t row, int64_t rows)
{
    const mics_decoder *decoder = s->decoder;
    const mics_op_kernels *kernels = decoder->kernels->ops[op->kind];
    const bool prompt = s->feed.count > 1;
    const mics_batch batch = {
        .sequences = prompt ? 1 : rows, .length = prompt ? rows : 1, .threads = 1};
    call.shape = mics_op_shape_get(decoder->spec.model, at->unit, op, batch);
    call.out = row_of(decoder, at, op->out, row);
    call.stats = row_of(decoder, at, op->stats, row);
    call.routes = row_of(decoder, at, op->routes, row);
    call.tokens = s->feed.tokens + row;
    call.weights = decoder->spec.dtype;
    call.position = s->feed.position + (prompt ? row : 0);
    call.capacity = decoder->spec.capacity;
    call.token_logits = decoder->logits;
    for (int i = 0; i < MICS_OP_INPUTS; i++)
        call.in[i] = input_of(decoder, at, op->in[i], row);
    for (int p = 0; p < MICS_OP_PARAMS; p++)
        call.params[p] = param_at(decoder, op->params[p]);
    call.shape.expert_elems = expert_elems_of(decoder, op);
    (kernels->decode != NULL ? kernels->decode : kernels->forward)(&call);
}

static bool divides(const mics_decoder *decoder, const mics_op *op)
{
    return decoder->kernels->ops[op->kind]->decode_divides;
}

// The ops from `first` on whose rows are independent.
static int32_t end_of_run(const mics_decoder *decoder, const mics_unit *unit, int32_t first)
{
    int32_t end = first;
    while (end < unit->op_count && !divides(decoder, &unit->ops[end]))
        end++;
    return end;
}

static void run_rows(const step *s, const place *at, const mics_exec *exec, int32_t first,
                     int32_t end)
{
    const int64_t rows = s->feed.sequences * s->feed.count;
    mics_shares *shares = &s->decoder->shares[at->ops + first];
    const int64_t total = (rows + SHARE_ROWS - 1) / SHARE_ROWS;
    for (int64_t share = -1; mics_share_next(shares, total, &share);) {
        const int64_t row = share * SHARE_ROWS,
                      count = rows - row < SHARE_ROWS ? rows - row : SHARE_ROWS;
        for (int32_t o = first; o < end; o++)
            run_op(s, at, &at->unit->ops[o], (mics_op_call){.at = exec}, row, count);
    }
}

// *cache: where the cache of the unit's next op begins.
static void run_unit(const step *s, const place *at, const mics_exec *exec, float **cache)
{
    mics_decoder *decoder = s->decoder;
    const mics_unit *unit = at->unit;
    for (int32_t o = 0; o < unit->op_count;) {
        const mics_op *op = &unit->ops[o];
        const int64_t kept = kept_by(decoder, unit, op).cache;
        mics_shares *shares = &decoder->shares[at->ops + o];
        if (!divides(decoder, op)) {
            const int32_t end = end_of_run(decoder, unit, o);
            run_rows(s, at, exec, o, end);
            o = end;
        } else {
            const mics_op_call call = {
                .at = exec, .cache = *cache + s->feed.first * kept, .shares = shares};
            if (s->wants_logits || !mics_op_def_get(op->kind)->loss)
                run_op(s, at, op, call, 0, s->feed.sequences * s->feed.count);
            o++;
        }
        *cache += decoder->spec.sequences * kept;
        mics_team_await(decoder->team, shares);
    }
}

static void run_step(void *ctx, int32_t thread)
{
    const step *s = ctx;
    const mics_decoder *decoder = s->decoder;
    const mics_model *model = decoder->spec.model;
    const mics_exec exec = {.threads = 1,
                            .workspace = decoder->workspaces + thread * decoder->workspace};
    place at = {.input = decoder->tensors[1]}; // the first unit's has no width
    float *cache = decoder->cache;
    mics_op_set_threads(1);
    for (; at.index < model->unit_count; at.index++) {
        at.unit = &model->units[at.index];
        run_unit(s, &at, &exec, &cache);
        if (mics_unit_computes(at.unit) && at.unit->out != 0) { // else its input passes through it
            at.input = row_of(decoder, &at, at.unit->out, 0);
            at.arena = 1 - at.arena;
        }
        at.ops += at.unit->op_count;
        at.tensors += at.unit->tensor_count;
    }
}

static void run_team(mics_decoder *decoder, mics_decoder_feed_spec feed, bool wants_logits)
{
    step now = {.decoder = decoder, .feed = feed, .wants_logits = wants_logits};
    const int32_t threads = mics_op_threads();
    memset(decoder->shares, 0, (size_t)decoder->op_count * sizeof *decoder->shares);
    mics_team_run(decoder->team, run_step, &now);
    mics_op_set_threads(threads);
}

// ---- feeding ----

static mics_status check_feed(const mics_decoder_spec *spec, const mics_decoder_feed_spec *feed)
{
    for (int64_t i = 0; i < feed->sequences * feed->count; i++) {
        if (feed->tokens[i] < 0 || feed->tokens[i] >= spec->model->vocab)
            return mics_fail(MICS_ERR_INVALID, "token %d is not below the vocabulary's %lld",
                             (int)feed->tokens[i], (long long)spec->model->vocab);
    }
    if (feed->position < 0 || feed->count < 1 || feed->count > spec->capacity - feed->position)
        return mics_fail(MICS_ERR_INVALID,
                         "%lld tokens from position %lld on: the decoder holds %lld tokens and no "
                         "more",
                         (long long)feed->count, (long long)feed->position,
                         (long long)spec->capacity);
    if (feed->first < 0 || feed->sequences < 1 || feed->sequences > spec->sequences - feed->first ||
        (feed->sequences > 1 && feed->count > 1))
        return mics_fail(MICS_ERR_INVALID,
                         "%lld tokens of each of %lld sequences from %lld on: the decoder has %lld "
                         "sequences; feed several tokens to one",
                         (long long)feed->count, (long long)feed->sequences, (long long)feed->first,
                         (long long)spec->sequences);
    return MICS_OK;
}

mics_status mics_decoder_feed(mics_decoder *decoder, const mics_decoder_feed_spec *feed,
                              const float **logits_out)
{
    MICS_TRY(check_feed(&decoder->spec, feed));
    mics_decoder_feed_spec part = *feed;
    for (int64_t left = feed->count; left > 0; left -= part.count) {
        part.count = left < PROMPT_ROWS ? left : PROMPT_ROWS;
        run_team(decoder, part, part.count == left);
        part.tokens += part.count;
        part.position += part.count;
    }
    *logits_out = decoder->logits;
    return MICS_OK;
}

// One op's cache of the first sequence: the first tokens of each block.
static void spread(float *cache, mics_op_decode keeps, int64_t sequences, int64_t capacity,
                   int64_t tokens)
{
    const int64_t block = keeps.cache / keeps.blocks;
    const size_t bytes = (size_t)(block / capacity * tokens) * sizeof *cache;
    for (int64_t s = 1; s < sequences; s++)
        for (int64_t at = 0; at < keeps.cache; at += block)
            memcpy(cache + s * keeps.cache + at, cache + at, bytes);
}

void mics_decoder_spread(mics_decoder *decoder, int64_t tokens)
{
    const mics_decoder_spec *spec = &decoder->spec;
    const mics_model *model = spec->model;
    float *cache = decoder->cache;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t o = 0; o < model->units[u].op_count; o++) {
            const mics_op_decode keeps =
                kept_by(decoder, &model->units[u], &model->units[u].ops[o]);
            if (keeps.cache > 0)
                spread(cache, keeps, spec->sequences, spec->capacity, tokens);
            cache += spec->sequences * keeps.cache;
        }
    }
}
