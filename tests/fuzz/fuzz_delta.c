// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A block of changes of numbers: the first two bytes are how many, the rest is the block. Decoded
// twice it gives the same. Read as old and new numbers instead, the rest comes back from its block.
#include "comm/delta/delta.h"
#include "fuzz.h"
#include <stdlib.h>
#include <string.h>

// Of their own size, so that a sanitizer sees one too far.
static void *copy_of(const void *data, size_t bytes)
{
    void *copy = malloc(bytes > 0 ? bytes : 1);
    fuzz_check(copy != NULL, "no memory for a copy");
    if (bytes > 0)
        memcpy(copy, data, bytes);
    return copy;
}

static void check_there_and_back(const uint16_t *old, const uint16_t *now, int64_t elems)
{
    const size_t bound = mics_delta_bound(elems), numbers = (size_t)elems * sizeof *old;
    uint16_t *values = copy_of(old, numbers);
    uint8_t *coded = malloc(bound + 1);
    fuzz_check(coded != NULL, "no memory for a block");
    const size_t bytes = mics_delta_encode(old, now, elems, coded);
    fuzz_check(bytes <= bound && bytes % 8 == 0, "a block of too many bytes");
    uint8_t *copy = copy_of(coded, bytes);
    fuzz_check(mics_delta_decode(values, elems, copy, bytes), "a block does not decode");
    fuzz_check(numbers == 0 || memcmp(values, now, numbers) == 0, "other numbers came back");
    free(values);
    free(coded);
    free(copy);
}

static void check_decode(const uint8_t *data, size_t bytes, int64_t elems)
{
    const size_t numbers = (size_t)elems * sizeof(uint16_t);
    uint8_t *coded = copy_of(data, bytes);
    uint16_t *old = malloc(numbers + 1);
    fuzz_check(old != NULL, "no memory for numbers");
    for (int64_t i = 0; i < elems; i++) // of eight exponents
        old[i] = (uint16_t)(0x3a00 + ((uint32_t)i * 2654435761U >> 22));
    uint16_t *first = copy_of(old, numbers), *second = copy_of(old, numbers);
    const bool good = mics_delta_decode(first, elems, coded, bytes);
    fuzz_check(mics_delta_decode(second, elems, coded, bytes) == good, "it decodes once");
    fuzz_check(numbers == 0 || memcmp(first, second, numbers) == 0, "other numbers, decoded twice");
    if (good)
        check_there_and_back(old, first, elems);
    free(second);
    free(first);
    free(old);
    free(coded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2)
        return 0;
    mics_memory *memory = fuzz_begin();
    const int64_t elems = data[0] | data[1] << 8, pairs = (int64_t)(bytes - 2) / 4;
    check_decode(data + 2, bytes - 2, elems);
    uint16_t *numbers = copy_of(data + 2, bytes - 2);
    check_there_and_back(numbers, numbers + pairs, pairs);
    free(numbers);
    fuzz_end(memory);
    return 0;
}
