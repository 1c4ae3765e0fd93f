// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A .safetensors file. Every tensor is read, in two parts and whole.
#include "fuzz.h"
#include "mics/core/checkpoint.h"
#include <stdlib.h>
#include <string.h>

static void read_tensor(const mics_safetensors *reader, const mics_tensor_info *info, size_t bytes)
{
    fuzz_check(info->elems >= 0 && (uint64_t)info->elems <= bytes, "more elements than bytes");
    const size_t elems = (size_t)info->elems;
    float *whole = calloc(elems + 1, sizeof *whole), *parts = calloc(elems + 1, sizeof *parts);
    fuzz_check(whole != NULL && parts != NULL, "no memory for a tensor");
    const int64_t half = info->elems / 2;
    if (fuzz_good(mics_safetensors_read(reader, info->name, 0, info->elems, whole))) {
        fuzz_check(fuzz_good(mics_safetensors_read(reader, info->name, half, info->elems - half,
                                                   parts + half)),
                   "its second half");
        fuzz_check(fuzz_good(mics_safetensors_read(reader, info->name, 0, half, parts)),
                   "its first half");
        fuzz_check(memcmp(whole, parts, elems * sizeof *whole) == 0, "other bits in parts");
    }
    fuzz_check(!fuzz_good(mics_safetensors_read(reader, info->name, half, info->elems + 1, whole)),
               "an element beyond the end");
    free(whole);
    free(parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mics_memory *memory = fuzz_begin();
    mics_safetensors *reader = NULL;
    if (fuzz_good(mics_safetensors_open(memory, fuzz_memory_file(data, bytes), &reader))) {
        for (int32_t i = 0; i < mics_safetensors_count(reader); i++) {
            const mics_tensor_info *info = mics_safetensors_at(reader, i);
            fuzz_check(mics_safetensors_find(reader, info->name) != NULL, "a name is not found");
            read_tensor(reader, info, bytes);
        }
    }
    mics_safetensors_close(reader);
    fuzz_end(memory);
    return 0;
}
