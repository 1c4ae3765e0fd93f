// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The cases of all ops, on the device of the walker that is linked; with an argument, of one op.
#include "op_walk.h"
#include "ops/activation/cases.h"
#include "ops/add/cases.h"
#include "ops/attention/cases.h"
#include "ops/cast/cases.h"
#include "ops/dropout/cases.h"
#include "ops/embedding/cases.h"
#include "ops/gelu/cases.h"
#include "ops/head_norm/cases.h"
#include "ops/layernorm/cases.h"
#include "ops/linear/cases.h"
#include "ops/lm_head/cases.h"
#include "ops/lora/cases.h"
#include "ops/rmsnorm/cases.h"
#include "ops/rotary/cases.h"
#include "ops/sequence_blocks/cases.h"
#include "ops/sigmoid_gate/cases.h"
#include "ops/swiglu/cases.h"

static void walk(void **state)
{
    op_walk((const mics_op_cases *)*state);
}

#define CASES(op)                                                                                  \
    {                                                                                              \
#op, walk, NULL, NULL, (void *)(uintptr_t)&op##_cases                                      \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASES(activation),     CASES(add),       CASES(cast),         CASES(attention),
        CASES(dropout),        CASES(embedding), CASES(gelu),         CASES(head_norm),
        CASES(layernorm),      CASES(linear),    CASES(lm_head),      CASES(lora),
        CASES(rmsnorm),        CASES(rotary),    CASES(sigmoid_gate), CASES(swiglu),
        CASES(sequence_blocks)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return op_walk_tests(tests);
}
