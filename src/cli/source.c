// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// --model, --data, --text-field and --tokenizer as sets.
#include "source.h"
#include "base/text.h"
#include <stdio.h>

// Takes what was written as the next set.
static mics_status add_take(cli_sets *sets, mics_text *text)
{
    const mics_status status = mics_text_status(text);
    if (status != MICS_OK) {
        mics_text_fini(text);
        return status;
    }
    sets->made[sets->made_count++] = text->bytes;
    sets->items[sets->count++] = text->bytes;
    return MICS_OK;
}

// In quotes, lest a name such as 12 be taken as a number.
mics_status cli_sets_text(cli_sets *sets, const char *key, const char *said)
{
    mics_text text = {.memory = sets->memory};
    if (said == NULL)
        return MICS_OK;
    mics_text_printf(&text, "%s=", key);
    mics_text_quoted(&text, said);
    return add_take(sets, &text);
}

static mics_status add_data(cli_sets *sets, const cli_list *data)
{
    mics_text text = {.memory = sets->memory};
    if (data->count == 0)
        return MICS_OK;
    mics_text_printf(&text, "data.train=[");
    for (int32_t i = 0; i < data->count; i++) {
        mics_text_printf(&text, "%s", i > 0 ? ", " : "");
        mics_text_quoted(&text, data->items[i]);
    }
    mics_text_printf(&text, "]");
    return add_take(sets, &text);
}

mics_status cli_sets_init(cli_sets *sets, mics_memory *memory, const cli_list *own,
                          const cli_source *source, int32_t more)
{
    void *block = NULL;
    *sets = (cli_sets){.memory = memory};
    const size_t count = (size_t)own->count + (size_t)more + sizeof sets->made / sizeof *sets->made;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, count * sizeof *sets->items, &block));
    sets->items = block;
    for (; sets->count < own->count; sets->count++)
        sets->items[sets->count] = own->items[sets->count];
    MICS_TRY(cli_sets_text(sets, "model.config", source->model));
    MICS_TRY(add_data(sets, &source->data));
    MICS_TRY(cli_sets_text(sets, "data.tokenizer", source->tokenizer));
    return cli_sets_text(sets, "data.text_field", source->text_field);
}

void cli_sets_steps(cli_sets *sets, int64_t steps)
{
    if (sets->items == NULL || steps == 0)
        return;
    snprintf(sets->steps, sizeof sets->steps, "run.steps=%lld", (long long)steps);
    sets->items[sets->count++] = sets->steps;
}

void cli_sets_fini(cli_sets *sets)
{
    for (int32_t i = 0; i < sets->made_count; i++)
        mics_free(sets->memory, sets->made[i]);
    mics_free(sets->memory, sets->items);
    *sets = (cli_sets){0};
}
