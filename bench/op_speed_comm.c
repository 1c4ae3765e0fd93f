// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Packing into communication dtypes, and back: the rows of op_speed that show it.
#include "op_speed.h"
#include <string.h>

// What collectives send is packed and unpacked by one thread: the one that communicates.
static void copy_alone(const bench *s)
{
    memcpy(s->big[1], s->big[0], (size_t)(s->V * s->C) * sizeof(float));
}

static void pack_bf16(const bench *s)
{
    s->k->pack_bf16(s->packed, s->big[0], s->V * s->C);
}

static void unpack_bf16(const bench *s)
{
    s->k->unpack_bf16(s->big[1], s->packed, s->V * s->C);
}

static void add_bf16(const bench *s)
{
    s->k->add_bf16(s->big[1], s->packed, s->V * s->C);
}

static void pack_int8(const bench *s)
{
    s->k->pack_int8(s->packed, s->big[0], NULL, s->V * s->C);
}

static void pack_int8_keep(const bench *s)
{
    s->k->pack_int8(s->packed, s->big[0], s->big[2], s->V * s->C);
}

static void unpack_int8(const bench *s)
{
    s->k->unpack_int8(s->big[1], s->packed, s->V * s->C);
}

static void add_int8(const bench *s)
{
    s->k->add_int8(s->big[1], s->packed, s->V * s->C);
}

// Bytes: what is read and written once each; a number packed to int8 takes 1 + 4 / 256. Each unpacking
// stands behind the packing whose numbers it reads.
void comm_dtype_rows(const bench *s, totals *t)
{
    const double VC = (double)(s->V * s->C);
    const double packed = (double)mics_comm_dtype_bytes(MICS_COMM_INT8, s->V * s->C);
    row(s, t, "copy (one thread)", 0, copy_alone, NULL, 0, 8 * VC);
    row(s, t, "pack bf16", 0, pack_bf16, NULL, 0, 6 * VC);
    row(s, t, "unpack bf16", 0, unpack_bf16, NULL, 0, 6 * VC);
    row(s, t, "add bf16", 0, add_bf16, NULL, 0, 10 * VC);
    row(s, t, "pack int8", 0, pack_int8, NULL, 0, 4 * VC + packed);
    row(s, t, "pack int8, residual", 0, pack_int8_keep, NULL, 0, 12 * VC + packed);
    row(s, t, "unpack int8", 0, unpack_int8, NULL, 0, 4 * VC + packed);
    row(s, t, "add int8", 0, add_int8, NULL, 0, 8 * VC + packed);
}
