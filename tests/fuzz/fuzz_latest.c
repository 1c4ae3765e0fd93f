// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The file `latest` of a folder with one checkpoint: that one is found, whatever `latest` says.
#include "checkpoint.h"
#include "fuzz.h"
#include "mics/core/checkpoint.h"
#include <string.h>

enum { ELEMS = 4 };

static void set_up(mics_memory *memory)
{
    const float data[ELEMS] = {1, 2, 3, 4};
    const mics_optimizer_shard shard = {
        .unit = "a",
        .unit_elems = ELEMS,
        .end = ELEMS,
        .state_count = 1,
        .states = {{.name = MICS_STATE_PARAM, .dtype = MICS_DTYPE_FP32, .data = data}}};
    const mics_checkpoint_writer writer = {.dir = fuzz_path(NULL), .writers = 1};
    const mics_checkpoint_meta meta = {.step = 3,
                                       .model_json = "{}",
                                       .tokenizer = "bytes",
                                       .precision = "fp32",
                                       .optimizer = "AdamW",
                                       .sharding = {1, 1, 1},
                                       .layered_micro_steps = 1};
    fuzz_make_dir("step-00000003");
    fuzz_check(fuzz_good(mics_checkpoint_save(memory, &writer, &meta, &shard, 1)), "a save");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static bool ready;
    mics_memory *memory = fuzz_begin();
    char *path = NULL;
    if (!ready)
        set_up(memory);
    ready = true;
    fuzz_write("latest", data, bytes);
    fuzz_check(fuzz_good(mics_checkpoint_latest(memory, fuzz_path(NULL), &path)), "a failure");
    fuzz_check(path != NULL && strcmp(path, fuzz_path("step-00000003")) == 0, "another folder");
    mics_free(memory, path);
    fuzz_end(memory);
    return 0;
}
