// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What attention uses of cuDNN 9's backend interface, under names of our own, so that the plugin is
// built where cuDNN is not; and its functions, found at run time. Values are those of
// cudnn_graph.h, which never change (tests/cuda/cudnn_values.c compares them where it is
// installed).
// Source:  NVIDIA cuDNN 9.19.0, cudnn_graph_v9.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDNN_OK = 0, CUDNN_NO_MEMORY = 4003 };
enum { CUDNN_FLOAT = 0, CUDNN_HALF = 2, CUDNN_INT32 = 4, CUDNN_BF16 = 9, CUDNN_BOOL = 11 };

// Kinds of descriptors.
enum {
    CUDNN_POINTWISE = 0,
    CUDNN_ENGINE = 2,
    CUDNN_CONFIG = 3,
    CUDNN_HEURISTICS = 4,
    CUDNN_PLAN = 5,
    CUDNN_POINTWISE_OP = 13,
    CUDNN_GRAPH = 15,
    CUDNN_PACK = 16,
    CUDNN_TENSOR = 17,
    CUDNN_MATMUL = 18,
    CUDNN_MATMUL_OP = 19,
    CUDNN_REDUCTION = 21,
    CUDNN_REDUCTION_OP = 22,
    CUDNN_RESHAPE_OP = 31
};

// Attributes.
enum {
    CUDNN_POINTWISE_MODE = 0,
    CUDNN_POINTWISE_PRECISION = 1,
    CUDNN_POINTWISE_AXIS = 9,
    CUDNN_HEURISTICS_MODE = 200,
    CUDNN_HEURISTICS_GRAPH = 201,
    CUDNN_HEURISTICS_RESULTS = 202,
    CUDNN_CONFIG_ENGINE = 300,
    CUDNN_CONFIG_WORKSPACE = 303,
    CUDNN_PLAN_HANDLE = 400,
    CUDNN_PLAN_CONFIG = 401,
    CUDNN_PLAN_WORKSPACE = 402,
    CUDNN_POINTWISE_OP_DESC = 750,
    CUDNN_POINTWISE_OP_X = 751,
    CUDNN_POINTWISE_OP_B = 752,
    CUDNN_POINTWISE_OP_Y = 753,
    CUDNN_POINTWISE_OP_T = 758,
    CUDNN_GRAPH_HANDLE = 800,
    CUDNN_GRAPH_OPS = 801,
    CUDNN_TENSOR_ALIGNMENT = 900,
    CUDNN_TENSOR_TYPE = 901,
    CUDNN_TENSOR_DIMS = 902,
    CUDNN_TENSOR_STRIDES = 903,
    CUDNN_TENSOR_UID = 906,
    CUDNN_TENSOR_VIRTUAL = 907,
    CUDNN_TENSOR_BY_VALUE = 908,
    CUDNN_PACK_UIDS = 1000,
    CUDNN_PACK_POINTERS = 1001,
    CUDNN_PACK_WORKSPACE = 1003,
    CUDNN_ENGINE_NOTES = 1303,
    CUDNN_MATMUL_PRECISION = 1500,
    CUDNN_MATMUL_OP_A = 1520,
    CUDNN_MATMUL_OP_B = 1521,
    CUDNN_MATMUL_OP_C = 1522,
    CUDNN_MATMUL_OP_DESC = 1523,
    CUDNN_REDUCTION_MODE = 1600,
    CUDNN_REDUCTION_PRECISION = 1601,
    CUDNN_REDUCTION_OP_X = 1610,
    CUDNN_REDUCTION_OP_Y = 1611,
    CUDNN_REDUCTION_OP_DESC = 1612,
    CUDNN_RESHAPE_OP_X = 2200,
    CUDNN_RESHAPE_OP_Y = 2201
};

// Types of attributes.
enum {
    CUDNN_IS_HANDLE = 0,
    CUDNN_IS_TYPE = 1,
    CUDNN_IS_BOOL = 2,
    CUDNN_IS_INT64 = 3,
    CUDNN_IS_POINTER = 6,
    CUDNN_IS_HEURISTICS_MODE = 8,
    CUDNN_IS_NOTE = 11,
    CUDNN_IS_POINTWISE_MODE = 14,
    CUDNN_IS_DESCRIPTOR = 15,
    CUDNN_IS_REDUCTION_MODE = 18
};

// Modes of pointwise operations and reductions, of heuristics, and a note of an engine.
enum {
    CUDNN_ADD = 0,
    CUDNN_MUL = 1,
    CUDNN_DIV = 6,
    CUDNN_SUB = 9,
    CUDNN_EXP = 13,
    CUDNN_LOG = 15,
    CUDNN_GREATER_EQUAL = 303,
    CUDNN_INDEX = 501,
    CUDNN_SELECT = 601
};
enum { CUDNN_SUM = 0, CUDNN_MAX = 3 };
enum { CUDNN_HEURISTICS_A = 3 };
enum { CUDNN_NOTE_NONDETERMINISTIC = 4 };

typedef void *cudnn_handle;
typedef void *cudnn_descriptor;

// Functions, by their names less "cudnn".
typedef struct cudnn_library {
    size_t (*GetVersion)(void);
    void (*GetLastErrorString)(char *message, size_t bytes);
    int (*Create)(cudnn_handle *handle);
    int (*Destroy)(cudnn_handle handle);
    int (*SetStream)(cudnn_handle handle, void *stream);
    int (*BackendCreateDescriptor)(int kind, cudnn_descriptor *descriptor);
    int (*BackendDestroyDescriptor)(cudnn_descriptor descriptor);
    int (*BackendFinalize)(cudnn_descriptor descriptor);
    int (*BackendSetAttribute)(cudnn_descriptor descriptor, int name, int type, int64_t count,
                               const void *values);
    int (*BackendGetAttribute)(cudnn_descriptor descriptor, int name, int type, int64_t capacity,
                               int64_t *count, void *values);
    int (*BackendExecute)(cudnn_handle handle, cudnn_descriptor plan, cudnn_descriptor pack);
} cudnn_library;

/* cuDNN's functions: those of $MICS_CUDNN_LIBRARY, else of libcudnn.so.9. Looks once a process.
 *
 * Returns: NULL where they cannot be used; cudnn_why_not says why.     Threads: any.
 */
const cudnn_library *cudnn_get(void);
const char *cudnn_why_not(void);

#ifdef __cplusplus
}
#endif
