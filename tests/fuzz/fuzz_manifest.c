// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A checkpoint's manifest beside rank files that are good. It is tried as it is,
// and with a checksum that fits, since no mutation would pass that.
#include "checkpoint.h"
#include "fuzz.h"
#include "mics/core/checkpoint.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES = 4, UNIT_ELEMS = 2720 };

// From the golden checkpoint: 4 rank files.
static void set_up(void)
{
    char from[96], to[48];
    fuzz_make_dir("step-00000008");
    for (int i = 0; i < FILES; i++) {
        snprintf(to, sizeof to, "step-00000008/rank-0000%d.safetensors", i);
        snprintf(from, sizeof from, "checkpoint/%s", to);
        fuzz_part file = fuzz_data(from);
        fuzz_write(to, file.text, file.bytes);
        free(file.text);
    }
    fuzz_write("latest", "step-00000008\n", strlen("step-00000008\n"));
}

static void read_all(const mics_checkpoint *checkpoint)
{
    static float elems[UNIT_ELEMS];
    static const char *const states[] = {"param", "exp_avg", "exp_avg_sq", "momentum_buffer"};
    const mics_checkpoint_meta *meta = mics_checkpoint_meta_get(checkpoint);
    fuzz_check(meta->model_json != NULL && meta->tokenizer != NULL, "a text is missing");
    for (int i = 0; i < 4; i++)
        (void)fuzz_good(
            mics_checkpoint_read(checkpoint, "embed", UNIT_ELEMS, states[i], 0, UNIT_ELEMS, elems));
}

static void open_it(const char *text, size_t bytes)
{
    mics_memory *memory = fuzz_begin();
    mics_checkpoint *checkpoint = NULL;
    char *newest = NULL;
    fuzz_write("step-00000008/manifest.json", text, bytes);
    const bool good =
        fuzz_good(mics_checkpoint_open(memory, fuzz_path("step-00000008"), &checkpoint));
    if (good)
        read_all(checkpoint);
    fuzz_verify(memory, fuzz_path("step-00000008"), good);
    const bool found = fuzz_good(mics_checkpoint_latest(memory, fuzz_path(NULL), &newest));
    fuzz_check(!good || (found && newest != NULL), "a good checkpoint that is not found");
    mics_free(memory, newest);
    mics_checkpoint_close(checkpoint);
    fuzz_end(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static bool ready;
    if (!ready)
        set_up();
    ready = true;
    open_it((const char *)data, bytes);
    fuzz_part sealed = fuzz_seal_manifest(data, bytes);
    if (sealed.text != NULL)
        open_it(sealed.text, sealed.bytes);
    free(sealed.text);
    return 0;
}
