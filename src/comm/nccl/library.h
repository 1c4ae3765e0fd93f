// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// NCCL's functions, found at run time, so that the plugin loads where NCCL is missing: one GPU
// needs none.
#pragma once

#include <nccl.h>

// Every function that is used, by its name less "nccl".
#define NCCL_FUNCTIONS(X)                                                                          \
    X(GetVersion)                                                                                  \
    X(GetErrorString)                                                                              \
    X(GetLastError)                                                                                \
    X(GetUniqueId)                                                                                 \
    X(CommInitRankConfig)                                                                          \
    X(CommFinalize)                                                                                \
    X(CommDestroy)                                                                                 \
    X(CommAbort)                                                                                   \
    X(CommGetAsyncError)                                                                           \
    X(CommRegister)                                                                                \
    X(CommDeregister)                                                                              \
    X(GroupStart)                                                                                  \
    X(GroupEnd)                                                                                    \
    X(AllGather)                                                                                   \
    X(ReduceScatter)                                                                               \
    X(AllReduce)                                                                                   \
    X(Send)                                                                                        \
    X(Recv)

typedef struct nccl_library {
#define NCCL_MEMBER(name) __typeof__(&nccl##name) name;
    NCCL_FUNCTIONS(NCCL_MEMBER)
#undef NCCL_MEMBER
    int version; // 22809: 2.28.9
} nccl_library;

/* NCCL's functions. Looks once a process.
 *
 * Returns: NULL when they are not to be had; nccl_why_not says why.     Threads: any.
 */
const nccl_library *nccl_get(void);
const char *nccl_why_not(void);
