// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A checkpoint's only rank file, of version 1 or 2, under a manifest that fits it: as it is, and
// with a checksum of its header that fits.
#include "checkpoint.h"
#include "fuzz.h"
#include "mics/checkpoint.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { PREFIX_BYTES = 24, HEADER_BYTES_AT = 8, HASH_AT = 16, MANIFEST_BYTES = 1024 };
enum { A_ELEMS = 20, B_ELEMS = 8 }; // of the units that the corpus' files have

static uint64_t u64_at(const uint8_t *data)
{
    uint64_t value;
    memcpy(&value, data, sizeof value);
    return value;
}

// Writes the header's checksum, as far as there is a header.
static void seal(uint8_t *data, size_t bytes)
{
    if (bytes < PREFIX_BYTES)
        return;
    const uint64_t claimed = u64_at(data + HEADER_BYTES_AT), room = bytes - PREFIX_BYTES;
    if (claimed > room)
        return;
    const uint64_t hash = XXH3_64bits(data + PREFIX_BYTES, claimed);
    memcpy(data + HASH_AT, &hash, sizeof hash);
}

static void write_manifest(const uint8_t *data, size_t bytes)
{
    char text[MANIFEST_BYTES];
    const uint64_t step = bytes >= PREFIX_BYTES + 8 ? u64_at(data + PREFIX_BYTES) : 0;
    const uint64_t hash = bytes >= PREFIX_BYTES ? u64_at(data + HASH_AT) : 0;
    const int length = snprintf(
        text, sizeof text,
        "{\"format\": \"mics-checkpoint\", \"version\": 1, \"generation\": 0, \"serial\": 0, "
        "\"step\": %" PRIu64 ", \"samples\": 1, \"seed\": \"0000000000000003\", "
        "\"corpus_hash\": \"f46face766cf997b\", \"tokenizer\": \"bytes\", \"config\": \"{}\", "
        "\"run\": null, \"units\": [{\"name\": \"a\", \"elems\": %d}, {\"name\": \"b\", "
        "\"elems\": %d}], \"files\": [{\"name\": \"rank-00000.mics\", \"bytes\": %zu, "
        "\"xxh3\": \"%016" PRIx64 "\"}],\n",
        step & INT64_MAX, A_ELEMS, B_ELEMS, bytes, hash);
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
    fuzz_write("step/rank-00000.mics", data, bytes);
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
