// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The table of kinds, as bench/plan/published.sh made it.
#include "kinds.h"
#include <string.h>

static const mics_plan_kind kinds[] = {
#include "kinds.inc"
};

// Whether a word of a kind's name ("H100 fp8 data") is `text`, up to a "-".
static bool has_word(const char *name, int32_t word, const char *text)
{
    for (; word > 0; word--)
        name = strchr(name, ' ') + 1;
    const size_t bytes = strcspn(name, " ");
    return strcspn(text, "-") == bytes && strncmp(name, text, bytes) == 0;
}

const mics_plan_kind *kind_find(const mics_plan *plan, bool *same_out)
{
    enum { CHIP = 1, WAY = 2, MATH = 4, ALL = 7 };
    const mics_plan_kind *best = &kinds[0];
    const char *math = plan->math == MICS_MATH_FP8 ? "fp8" : "bf16"; // fp16 is as fast
    const char *chip = plan->cluster.accelerator.name;
    int most = -1;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const mics_plan_kind *kind = &kinds[i];
        // Cards for a PCIe slot draw half the power: other chips in all but the name.
        const bool card = strstr(chip, "-PCIe") != NULL;
        const int alike =
            (has_word(kind->name, 0, chip) && !card ? CHIP : 0) +
            (has_word(kind->name, 1, math) ? MATH : 0) +
            (has_word(kind->name, 2, plan->experts > 0 ? "experts" : "data") ? WAY : 0);
        if (alike > most || (alike == most && kind->rows > best->rows)) {
            most = alike;
            best = kind;
        }
    }
    *same_out = most == ALL;
    return best;
}
