// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Copies in node memory: slot 1 holds a good one, slot 0 the input, a manifest and, behind a NUL, the bytes of its
// first rank file (none: a good one). The good copy is found whatever the other is.
#include "checkpoint.h"
#include "fuzz.h"
#include "io/checkpoint/node.h"
#include <stdlib.h>
#include <string.h>

enum { ELEMS = 4, STEP = 3, FIRST = 2 };

#define ROOT "mics-root"
#define NODE ROOT "/node-0"
#define FUZZED NODE "/slot-0"

static void write_copy(mics_memory *memory, int32_t slot)
{
    const float data[ELEMS] = {1, 2, 3, 4};
    const mics_optimizer_shard shard = {
        .unit = "a",
        .unit_elems = ELEMS,
        .end = ELEMS,
        .state_count = 1,
        .states = {{.name = MICS_STATE_PARAM, .dtype = MICS_DTYPE_FP32, .data = data}}};
    const mics_checkpoint_meta meta = {.step = STEP,
                                       .model_json = "{}",
                                       .tokenizer = "bytes",
                                       .precision = "fp32",
                                       .optimizer = "AdamW",
                                       .sharding = {1, 1, 1},
                                       .layered_micro_steps = 1};
    mics_manifest_unit unit = {"a", ELEMS};
    const bool keeps = true;
    mics_node_file file;
    char *folder = NULL;
    fuzz_check(fuzz_good(mics_node_begin(memory, fuzz_path(ROOT), 0, slot, &folder)), "a slot");
    fuzz_check(fuzz_good(mics_node_write(memory, folder, STEP, 0, 1, &shard, 1, &file)), "a file");
    const mics_node_manifest manifest = {.meta = &meta,
                                         .files = &file,
                                         .file_count = 1,
                                         .units = &unit,
                                         .unit_count = 1,
                                         .slot = slot,
                                         .serial = 1};
    fuzz_check(fuzz_good(mics_node_commit(memory, folder, &manifest, &keeps)), "a manifest");
    mics_free(memory, folder);
}

// The folders go with the target's.
static void set_up(mics_memory *memory)
{
    fuzz_make_dir(ROOT);
    fuzz_make_dir(NODE);
    fuzz_make_dir(FUZZED);
    fuzz_make_dir(NODE "/slot-1");
    write_copy(memory, 1);
}

static bool finds_good_copy(mics_memory *memory, const mics_node_copies *copies)
{
    bool found = false;
    for (int32_t i = 0; i < copies->count; i++) {
        const mics_node_copy *copy = &copies->list[i];
        bool good = false;
        for (int32_t file = 0; file < copy->key.files && file < FIRST; file++)
            fuzz_check(fuzz_good(mics_node_check_file(memory, copy, file, &good)), "a check");
        found = found || (good && copy->key.slot == 1 && copy->key.step == STEP);
    }
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static bool ready;
    mics_memory *memory = fuzz_begin();
    mics_node_copies copies = {0};
    const fuzz_part text = fuzz_take(&data, &bytes);
    const fuzz_part sealed = fuzz_seal_manifest((const uint8_t *)text.text, text.bytes);
    if (!ready)
        set_up(memory);
    ready = true;
    write_copy(memory, 0);
    if (sealed.text != NULL)
        fuzz_write(FUZZED "/manifest.json", sealed.text, sealed.bytes);
    if (bytes > 0)
        fuzz_write(FUZZED "/rank-00000.safetensors", data, bytes);
    fuzz_check(fuzz_good(mics_node_scan(memory, fuzz_path(ROOT), &copies)), "a scan");
    fuzz_check(finds_good_copy(memory, &copies), "the good copy is not found");
    mics_node_copies_fini(memory, &copies);
    free(sealed.text);
    free(text.text);
    fuzz_end(memory);
    return 0;
}
