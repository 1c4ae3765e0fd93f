// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The registry of ops, X(ENUMERATOR, folder): src/ops/<folder>/def.c defines mics_op_def_<folder>, cpu.c and what is
// in CUDA the kernels. The build reads this list too, so an op is its folder and its line here.
#ifndef MICS_OP_LIST_H
#define MICS_OP_LIST_H

#define MICS_OPS(X)                                                                                \
    X(EMBEDDING, embedding)                                                                        \
    X(LAYERNORM, layernorm)                                                                        \
    X(LINEAR, linear)                                                                              \
    X(GELU, gelu)                                                                                  \
    X(ATTENTION, attention)                                                                        \
    X(ADD, add)                                                                                    \
    X(LM_HEAD, lm_head)

#endif
