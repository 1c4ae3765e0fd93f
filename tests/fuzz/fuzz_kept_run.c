// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// run.json of an older folder: what a run that is resumed keeps of it.
#include "config/config.h"
#include "fuzz.h"
#include <stdlib.h>

// Says little, so that much is kept.
static const char begun[] = "{\"model\": {\"config\": \"" MICS_MODEL_OF_PROGRAM "\"}, "
                            "\"data\": {\"train\": [\"text.txt\"], \"sequence_length\": 16}, "
                            "\"run\": {\"steps\": 8}, \"train_batch_size\": 32}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mics_memory *memory = fuzz_begin();
    mics_run *run = NULL;
    fuzz_part kept = fuzz_take(&data, &bytes);
    fuzz_check(fuzz_good(mics_run_parse(memory, "run.json", begun, NULL, 0, &run)), "the run file");
    if (fuzz_good(mics_run_keep(run, "out/run.json", kept.text))) {
        (void)mics_run_kept_text(run);
        (void)fuzz_good(mics_run_resolve(run, 4, 2));
    }
    mics_run_close(run);
    free(kept.text);
    fuzz_end(memory);
    return 0;
}
