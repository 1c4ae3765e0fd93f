// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The descriptors, by kind, and what holds for all of them.
#include "mics/log.h"
#include "ops/common/def.h"

// Of heads, and of a head's numbers: the width that they make cannot overflow.
enum { MAX_HEADS = 1 << 24 };

#define DECLARE(NAME, folder) extern const mics_op_def mics_op_def_##folder;
MICS_OPS(DECLARE)

#define ROW(NAME, folder) [MICS_OP_##NAME] = &mics_op_def_##folder,
static const mics_op_def *const defs[MICS_OP_KINDS] = {MICS_OPS(ROW)};

const mics_op_def *mics_op_def_get(mics_op_kind kind)
{
    return defs[kind];
}

int32_t mics_op_works(const mics_op_shape *shape, const mics_op_pass *pass,
                      mics_op_work works_out[MICS_OP_WORKS])
{
    const mics_op_def *def = mics_op_def_get(shape->op->kind);
    if (def->work != NULL)
        return def->work(shape, pass, works_out);
    const mics_op_cost cost = def->cost(shape);
    const double bytes =
        (pass->backward ? cost.bytes_backward : cost.bytes_forward) * mics_op_separate(def, pass);
    works_out[0] = mics_work_moved(pass->backward ? cost.flops_backward : cost.flops_forward,
                                   bytes * pass->elem_bytes / (double)sizeof(float));
    return 1;
}

bool mics_op_keeps_in(const mics_op_shape *shape, int32_t input)
{
    const mics_op_def *def = mics_op_def_get(shape->op->kind);
    bool wanted = !def->params_read_in;
    for (int32_t p = 0; p < def->params; p++)
        wanted = wanted || (shape->params[p][0] > 0 && !shape->params_fixed[p]);
    return def->backward_reads_in[input] && wanted;
}

// Of so many query heads that divide a rank's and those of a key-value head, each set reads one of
// the latter.
mics_heads mics_sequence_heads(mics_heads heads, int32_t ranks)
{
    const int64_t query = heads.query / ranks;
    int64_t set = query, rest = heads.query / heads.key_value;
    while (rest > 0) { // the greatest common divisor
        const int64_t next = set % rest;
        set = rest;
        rest = next;
    }
    return (mics_heads){query, query / set, heads.dim};
}

mics_op_shape mics_op_shape_cut(const mics_op_shape *shape, int32_t parts, bool by_columns)
{
    mics_op_shape s = *shape;
    switch (mics_op_def_get(s.op->kind)->cut) {
    case MICS_CUT_WEIGHT:
        if (by_columns)
            s.out = mics_larger(s.out / parts, 1);
        else
            s.in[0] = mics_larger(s.in[0] / parts, 1);
        break;
    case MICS_CUT_WIDTH:
        s.in[0] = mics_larger(s.in[0] / parts, 1);
        s.out = mics_larger(s.out / parts, 1);
        s.heads.query = mics_larger(s.heads.query / parts, 1);
        s.heads.key_value = mics_larger(s.heads.key_value / parts, 1);
        break;
    case MICS_CUT_ROWS:
        s.params[0][0] = mics_larger(s.params[0][0] / parts, 1);
        break;
    case MICS_CUT_NONE:
        break;
    }
    return s;
}

mics_status mics_op_check(const mics_op_shape *shape, const char *what, int64_t have, int64_t need)
{
    if (have == need)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID, "unit %s: %s: %s is %lld, not %lld", shape->unit,
                     mics_op_def_get(shape->op->kind)->name, what, (long long)have,
                     (long long)need);
}

mics_status mics_op_check_dropout(const mics_op_shape *shape)
{
    const float dropout = shape->op->dropout;
    if (dropout >= 0 && dropout < 1)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "unit %s: %s: a dropout of %g; a probability from 0 to below 1 works",
                     shape->unit, mics_op_def_get(shape->op->kind)->name, (double)dropout);
}

mics_status mics_op_check_heads(const mics_op_shape *shape)
{
    const mics_heads h = shape->op->heads;
    const bool possible = h.query >= 1 && h.key_value >= 1 && h.dim >= 1 &&
                          h.query % h.key_value == 0 && h.query <= MAX_HEADS && h.dim <= MAX_HEADS;
    if (possible && shape->in[0] == mics_heads_width(h))
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "unit %s: %s: %lld elements are not q, k and v of %lld query heads and %lld "
                     "key-value heads of %lld each",
                     shape->unit, mics_op_def_get(shape->op->kind)->name, (long long)shape->in[0],
                     (long long)h.query, (long long)h.key_value, (long long)h.dim);
}
