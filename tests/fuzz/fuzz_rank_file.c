// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A checkpoint's only rank file, under a manifest that fits it: as it is, and with a checksum of its
// header that fits.
#include "checkpoint.h"
#include "fuzz.h"
#include "mics/core/checkpoint.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

// As docs/formats.md has it: the checksum's digits stand at HASH_AT.
#define BEGIN "{\"__metadata__\":{\"format\":\"mics-rank-file\",\"version\":\"3\",\"xxh3\":\""

enum { PREFIX = 8, HASH_AT = PREFIX + sizeof BEGIN - 1, DIGITS = 16, HASHED_AT = HASH_AT + DIGITS };
enum { MANIFEST_BYTES = 1024 };
enum { A_ELEMS = 20, B_ELEMS = 8, STEP = 8 }; // of the units that the corpus' files have

// Writes the header's checksum, as far as there is a header.
static void seal(uint8_t *data, size_t bytes)
{
    uint64_t claimed = 0;
    char digits[DIGITS + 1];
    if (bytes >= PREFIX)
        memcpy(&claimed, data, PREFIX);
    if (bytes < HASHED_AT || claimed > bytes - PREFIX || PREFIX + claimed < HASHED_AT)
        return;
    snprintf(digits, sizeof digits, "%016llx",
             (unsigned long long)XXH3_64bits(data + HASHED_AT, PREFIX + claimed - HASHED_AT));
    memcpy(data + HASH_AT, digits, DIGITS);
}

static void write_manifest(const uint8_t *data, size_t bytes)
{
    char text[MANIFEST_BYTES], digits[DIGITS + 1] = "0000000000000000";
    for (int i = 0; i < DIGITS && bytes >= HASHED_AT; i++) {
        const char digit = (char)data[HASH_AT + i];
        digits[i] = digit != '\0' && strchr("0123456789abcdef", digit) != NULL ? digit : '0';
    }
    const int length = snprintf(
        text, sizeof text,
        "{\"format\": \"mics-checkpoint\", \"version\": 3, \"program\": \"0\", "
        "\"precision\": \"fp32\", \"optimizer\": \"SGD\", \"layered_micro_steps\": 1, "
        "\"sharding\": {\"params\": 1, \"grads\": 1, \"optimizer\": 1}, "
        "\"generation\": 0, \"serial\": 0, "
        "\"step\": %d, \"samples\": 1, \"seed\": \"0000000000000003\", "
        "\"corpus_hash\": \"f46face766cf997b\", \"tokenizer\": \"bytes\", \"config\": \"{}\", "
        "\"run\": null, \"units\": [{\"name\": \"a\", \"elems\": %d}, {\"name\": \"b\", "
        "\"elems\": %d}], \"files\": [{\"name\": \"rank-00000.safetensors\", \"bytes\": %zu, "
        "\"xxh3\": \"%s\"}],\n",
        STEP, A_ELEMS, B_ELEMS, bytes, digits);
    fuzz_check(length > 0 && length < (int)sizeof text, "the manifest's length");
    fuzz_part sealed = fuzz_seal_manifest((const uint8_t *)text, (size_t)length);
    fuzz_write("step/manifest.json", sealed.text, sealed.bytes);
    free(sealed.text);
}

static void open_it(const uint8_t *data, size_t bytes)
{
    static const char *const states[] = {"param", "exp_avg", "momentum_buffer"};
    float elems[A_ELEMS];
    mics_memory *memory = fuzz_begin();
    mics_checkpoint *checkpoint = NULL;
    fuzz_write("step/rank-00000.safetensors", data, bytes);
    write_manifest(data, bytes);
    const bool good = fuzz_good(mics_checkpoint_open(memory, fuzz_path("step"), &checkpoint));
    if (good) {
        for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
            (void)fuzz_good(
                mics_checkpoint_read(checkpoint, "a", A_ELEMS, states[i], 0, A_ELEMS, elems));
            (void)fuzz_good(mics_checkpoint_read(checkpoint, "b", B_ELEMS, states[i], 3, 5, elems));
        }
    }
    fuzz_verify(memory, fuzz_path("step"), good);
    mics_checkpoint_close(checkpoint);
    fuzz_end(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t *sealed = malloc(bytes + 1);
    fuzz_check(sealed != NULL, "no memory for a rank file");
    memcpy(sealed, data, bytes);
    seal(sealed, bytes);
    fuzz_make_dir("step");
    open_it(data, bytes);
    if (memcmp(sealed, data, bytes) != 0)
        open_it(sealed, bytes);
    free(sealed);
    return 0;
}
