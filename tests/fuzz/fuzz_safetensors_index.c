// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// model.safetensors.index.json beside two files that are good.
#include "fuzz.h"
#include "mics/core/checkpoint.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMS_MAX = 1 << 20 };

static void set_up(void)
{
    static const char *const names[] = {"model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors"};
    char from[64];
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "safetensors/sharded/%s", names[i]);
        fuzz_part file = fuzz_data(from);
        fuzz_write(names[i], file.text, file.bytes);
        free(file.text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static bool ready;
    static float elems[ELEMS_MAX];
    if (!ready)
        set_up();
    ready = true;
    mics_memory *memory = fuzz_begin();
    mics_safetensors *reader = NULL;
    fuzz_write("model.safetensors.index.json", data, bytes);
    if (fuzz_good(mics_safetensors_open(memory, fuzz_path(NULL), &reader))) {
        for (int32_t i = 0; i < mics_safetensors_count(reader); i++) {
            const mics_tensor_info *info = mics_safetensors_at(reader, i);
            fuzz_check(info->elems <= ELEMS_MAX, "more elements than the files have");
            (void)fuzz_good(mics_safetensors_read(reader, info->name, 0, info->elems, elems));
        }
    }
    mics_safetensors_close(reader);
    fuzz_end(memory);
    return 0;
}
