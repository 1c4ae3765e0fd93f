// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A run file, and behind NULs what --set says; resolved for one of several meshes, listed as
// `mics explain` does, and its learning rates.
#include "config/config.h"
#include "fuzz.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SETS = 4 };

static const int32_t meshes[][2] = {{1, 1}, {4, 2}, {6, 3}, {64, 8}, {12, 1}}; // ranks, nodes

static void look_at(const mics_run *run)
{
    for (int32_t i = 0; i < mics_run_row_count(run); i++) {
        const mics_run_row row = mics_run_row_at(run, i);
        fuzz_check(row.key != NULL && row.origin != NULL, "a row without a key or an origin");
        fuzz_check(memchr(row.value, 0, sizeof row.value) != NULL, "a value without an end");
    }
    for (int64_t step = 1; step < 40; step++)
        fuzz_check(isfinite(mics_lr_at(&run->lr, step)), "a learning rate that is not finite");
    fuzz_check(isfinite(mics_lr_at(&run->lr, run->steps)), "the last learning rate");
}

static void resolve(mics_run *run, const int32_t mesh[2])
{
    if (!fuzz_good(mics_run_resolve(run, mesh[0], mesh[1])))
        return;
    const mics_sharding *s = &run->sharding;
    fuzz_check(run->micro_batch > 0 && run->micro_steps > 0, "an empty batch");
    fuzz_check(run->micro_batch * run->micro_steps * mesh[0] == run->global_batch, "the batch");
    fuzz_check(s->params >= 1 && s->grads % s->params == 0 && s->optimizer % s->grads == 0 &&
                   mesh[0] % s->optimizer == 0,
               "the degrees of the sharding");
    if (!fuzz_good(mics_run_resolve_device(run, NULL, NULL)))
        return;
    (void)fuzz_good(mics_run_check_comm_dtypes(run, mesh[0], mesh[1]));
    look_at(run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mics_memory *memory = fuzz_begin();
    mics_run *run = NULL;
    const int32_t *mesh = meshes[bytes % (sizeof meshes / sizeof *meshes)];
    fuzz_part text = fuzz_take(&data, &bytes);
    fuzz_part parts[SETS] = {{0}};
    const char *sets[SETS];
    int32_t set_count = 0;
    for (; set_count < SETS && bytes > 0; set_count++) {
        parts[set_count] = fuzz_take(&data, &bytes);
        sets[set_count] = parts[set_count].text;
    }
    if (fuzz_good(mics_run_parse(memory, "run.json", text.text, sets, set_count, &run)))
        resolve(run, mesh);
    mics_run_close(run);
    for (int32_t i = 0; i < set_count; i++)
        free(parts[i].text);
    free(text.text);
    fuzz_end(memory);
    return 0;
}
