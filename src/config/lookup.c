// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Looking keys up, and values that are names.
#include "config/keys.h"
#include "config/value.h"
#include <assert.h>
#include <string.h>

// In the order of mics_comm_dtype.
static const char *const comm_dtypes[] = {"fp32", "bf16", "int8", NULL};

int32_t mics_config_find(const char *path)
{
    const int32_t count = mics_config_key_count();
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(mics_config_key(i)->path, path) == 0)
            return i;
    }
    return -1;
}

const char *mics_config_leaf(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL ? dot + 1 : path;
}

bool mics_config_given(const config *run, const char *path)
{
    int32_t index = mics_config_find(path);
    assert(index >= 0);
    return run->states[index] != KEY_ABSENT && run->states[index] != KEY_FROM_CHECKPOINT;
}

bool mics_config_valued(const config *run, const char *path)
{
    int32_t index = mics_config_find(path);
    assert(index >= 0);
    return run->states[index] == KEY_FROM_FILE || run->states[index] == KEY_FROM_SET;
}

void mics_config_set_origin(config *run, const char *path, const char *origin)
{
    int32_t index = mics_config_find(path);
    assert(index >= 0);
    run->origins[index] = origin;
}

// ---- values that are names ----

static const char *choice_text(const char *path, int index)
{
    return mics_config_key(mics_config_find(path))->choices[index];
}

int mics_config_choice(const char *path, const char *text)
{
    return mics_config_index_of(mics_config_key(mics_config_find(path))->choices, text);
}

const char *mics_config_collectives_text(mics_collectives of)
{
    return choice_text("run.collectives", of);
}

const char *mics_run_attention_text(mics_run_attention attention)
{
    return choice_text("run.attention", attention);
}

const char *mics_run_device_text(mics_run_device device)
{
    return choice_text("run.device", device);
}

const char *mics_run_precision_text(mics_run_precision precision)
{
    return choice_text("run.precision", precision);
}

mics_lr_kind mics_config_lr_kind(const char *scheduler)
{
    if (scheduler == NULL || strcmp(scheduler, "constant") == 0)
        return MICS_LR_CONSTANT;
    return (mics_lr_kind)(MICS_LR_WARMUP + mics_config_choice("scheduler.type", scheduler));
}

mics_comm_dtype mics_config_comm_dtype(const char *text)
{
    return (mics_comm_dtype)mics_config_index_of(comm_dtypes, text);
}

mics_warmup_kind mics_config_warmup_kind(const char *shape)
{
    return (mics_warmup_kind)mics_config_choice("scheduler.params.warmup_type", shape);
}
