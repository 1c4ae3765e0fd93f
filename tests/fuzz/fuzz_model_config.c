// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A Hugging Face config.json, to the model that it describes, and to one of its shapes.
#include "base/json.h"
#include "fuzz.h"
#include "mics/model.h"
#include "model/from_config.h"
#include <math.h>

static void look_at(const mics_model *model)
{
    int64_t elems = 0;
    fuzz_check(model->unit_count > 0, "a model without units");
    for (int32_t unit = 0; unit < model->unit_count; unit++) {
        fuzz_check(model->units[unit].elems > 0, "a unit without elements");
        fuzz_check(!__builtin_add_overflow(elems, model->units[unit].elems, &elems), "its size");
    }
    const double flops = mics_model_flops_per_token(model, model->positions);
    fuzz_check(isfinite(flops) && flops > 0, "its work");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mics_memory *memory = fuzz_begin();
    mics_json *json = NULL;
    mics_model *model = NULL, *shapes = NULL;
    const bool read =
        fuzz_good(mics_json_parse(memory, "config.json", (const char *)data, bytes, &json));
    if (read && fuzz_good(mics_model_from_config(memory, json, bytes % 2 == 0, &model)))
        look_at(model);
    if (read && fuzz_good(mics_model_from_shapes(memory, json, &shapes)))
        look_at(shapes);
    mics_model_close(model);
    mics_model_close(shapes);
    mics_json_close(json);
    fuzz_end(memory);
    return 0;
}
