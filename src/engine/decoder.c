// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Generation: the model's ops on one token at a time, with a cache of keys and values. One
// sequence, one process.
#include "base/new.h"
#include "mics/engine.h"
#include "mics/log.h"
#include "mics/size.h"
#include <string.h>

struct mics_decoder {
    mics_memory *memory;
    const mics_model *model;
    const float *const *params;
    const mics_kernels *kernels;
    int64_t capacity, length;
    float *cache;       // by op, what its descriptor asks for (mics_op_decode)
    float *tensors;     // of the unit at work, one row each
    int64_t *tensor_at; // by tensor
    float *boundary;    // what passes from unit to unit
    float *scratch;     // workspace
    float *logits;
};

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// Sizes of the buffers, over all units.
typedef struct decoder_sizes {
    int64_t row, cache, scratch, boundary; // floats
    int32_t tensors;
} decoder_sizes;

static const mics_batch one_row = {.sequences = 1, .length = 1, .threads = 1};

static mics_op_decode kept_by(const mics_model *model, const mics_unit *unit, const mics_op *op)
{
    const mics_op_shape shape = mics_op_shape_get(model, unit, op, one_row);
    const mics_op_def *def = mics_op_def_get(op->kind);
    return def->decode != NULL ? def->decode(&shape) : (mics_op_decode){0};
}

static decoder_sizes sizes_of(const mics_model *model, int64_t capacity)
{
    decoder_sizes sizes = {0};
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u];
        int64_t row = 0;
        for (int32_t t = 0; t < unit->tensor_count; t++)
            row += mics_size_round_up(unit->tensors[t].width, 16);
        for (int32_t o = 0; o < unit->op_count; o++) {
            const mics_op_decode keeps = kept_by(model, unit, &unit->ops[o]);
            sizes.cache += capacity * keeps.cache;
            sizes.scratch = most(sizes.scratch, capacity * keeps.workspace);
        }
        sizes.row = most(sizes.row, row);
        sizes.boundary = most(sizes.boundary, unit->tensors[0].width);
        sizes.tensors = unit->tensor_count > sizes.tensors ? unit->tensor_count : sizes.tensors;
    }
    return sizes;
}

// After this no sum of sizes_of can overflow.
static mics_status check_cache(const mics_model *model, int64_t capacity)
{
    double elems = 0;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t t = 0; t < model->units[u].tensor_count; t++)
            elems += 2 * (double)capacity * ((double)model->units[u].tensors[t].width + 16);
    }
    if (elems > 0x1p57)
        return mics_fail(MICS_ERR_INVALID,
                         "a cache for %lld tokens needs about %.3g numbers, which is too large",
                         (long long)capacity, elems);
    return MICS_OK;
}

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

static mics_status open_buffers(mics_decoder *decoder)
{
    MICS_TRY(check_cache(decoder->model, decoder->capacity));
    const decoder_sizes sizes = sizes_of(decoder->model, decoder->capacity);
    mics_memory *memory = decoder->memory;
    MICS_TRY(open_floats(memory, MICS_MEM_ACTIVATIONS, sizes.cache, &decoder->cache));
    MICS_TRY(open_floats(memory, MICS_MEM_ACTIVATIONS, sizes.row, &decoder->tensors));
    MICS_TRY(open_floats(memory, MICS_MEM_ACTIVATIONS, sizes.boundary, &decoder->boundary));
    MICS_TRY(open_floats(memory, MICS_MEM_WORKSPACE, sizes.scratch, &decoder->scratch));
    MICS_TRY(open_floats(memory, MICS_MEM_WORKSPACE, decoder->model->vocab, &decoder->logits));
    MICS_TRY_NEW(memory, MICS_MEM_HOST, sizes.tensors, decoder->tensor_at);
    return MICS_OK;
}

mics_status mics_decoder_open(mics_memory *memory, const mics_model *model,
                              const float *const *params, const mics_kernels *kernels,
                              int64_t capacity, mics_decoder **decoder_out)
{
    if (capacity < 1 || capacity > model->positions)
        return mics_fail(MICS_ERR_INVALID,
                         "%lld tokens are not from 1 to the model's %lld positions",
                         (long long)capacity, (long long)model->positions);
    mics_decoder *decoder = NULL;
    MICS_TRY_NEW(memory, MICS_MEM_HOST, 1, decoder);
    *decoder =
        (mics_decoder){.memory = memory, .model = model, .params = params, .capacity = capacity};
    decoder->kernels = kernels != NULL ? kernels : mics_kernels_get(NULL);
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
    mics_free(memory, decoder->cache);
    mics_free(memory, decoder->tensors);
    mics_free(memory, decoder->boundary);
    mics_free(memory, decoder->scratch);
    mics_free(memory, decoder->logits);
    mics_free(memory, decoder->tensor_at);
    mics_free(memory, decoder);
}

void mics_decoder_reset(mics_decoder *decoder)
{
    decoder->length = 0;
}

static const float *param_at(const mics_decoder *decoder, mics_param_ref ref)
{
    return ref.unit < 0 ? NULL
                        : decoder->params[ref.unit] + mics_model_param(decoder->model, ref)->offset;
}

static float *row_of(const mics_decoder *decoder, int32_t tensor)
{
    return tensor < 0 ? NULL : decoder->tensors + decoder->tensor_at[tensor];
}

static void run_op(mics_decoder *decoder, const mics_unit *unit, const mics_op *op, int32_t token,
                   float **cache)
{
    const mics_op_kernels *kernels = decoder->kernels->ops[op->kind];
    const mics_exec at = {.threads = 1, .workspace = decoder->scratch};
    mics_op_call call = {.at = &at,
                         .shape = mics_op_shape_get(decoder->model, unit, op, one_row),
                         .out = row_of(decoder, op->out),
                         .stats = row_of(decoder, op->stats),
                         .tokens = &token,
                         .cache = *cache,
                         .logits = decoder->logits,
                         .position = decoder->length,
                         .capacity = decoder->capacity};
    for (int i = 0; i < MICS_OP_INPUTS; i++)
        call.in[i] = row_of(decoder, op->in[i]);
    for (int p = 0; p < MICS_OP_PARAMS; p++)
        call.params[p] = param_at(decoder, op->params[p]);
    (kernels->decode != NULL ? kernels->decode : kernels->forward)(&call);
    *cache += decoder->capacity * kept_by(decoder->model, unit, op).cache;
}

static void run_unit(mics_decoder *decoder, const mics_unit *unit, int32_t token, float **cache)
{
    int64_t end = 0;
    for (int32_t t = 0; t < unit->tensor_count; t++) {
        decoder->tensor_at[t] = end;
        end += mics_size_round_up(unit->tensors[t].width, 16);
    }
    memcpy(row_of(decoder, 0), decoder->boundary, (size_t)unit->tensors[0].width * sizeof(float));
    for (int32_t o = 0; o < unit->op_count; o++)
        run_op(decoder, unit, &unit->ops[o], token, cache);
    if (unit->out >= 0)
        memcpy(decoder->boundary, row_of(decoder, unit->out),
               (size_t)unit->tensors[unit->out].width * sizeof(float));
}

mics_status mics_decoder_feed(mics_decoder *decoder, int32_t token, const float **logits_out)
{
    if (token < 0 || token >= decoder->model->vocab)
        return mics_fail(MICS_ERR_INVALID, "token %d is not below the vocabulary's %lld",
                         (int)token, (long long)decoder->model->vocab);
    if (decoder->length >= decoder->capacity)
        return mics_fail(MICS_ERR_INVALID, "the decoder holds %lld tokens and no more",
                         (long long)decoder->capacity);
    float *cache = decoder->cache;
    for (int32_t u = 0; u < decoder->model->unit_count; u++)
        run_unit(decoder, &decoder->model->units[u], token, &cache);
    decoder->length++;
    *logits_out = decoder->logits;
    return MICS_OK;
}
