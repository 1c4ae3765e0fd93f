// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a run trains of its model: an adapter, or the tensors of model.trainable.
#include "config/keys.h"
#include "mics/builder.h"
#include "mics/log.h"
#include <stdio.h>
#include <string.h>

static const char rank_key[] = "adapter.r", alpha_key[] = "adapter.lora_alpha",
                  targets_key[] = "adapter.target_modules";

static bool is_all_linear(const text_list *list)
{
    return list->count == 0 ||
           (list->count == 1 && strcmp(list->texts[0], MICS_PEFT_ALL_LINEAR) == 0);
}

mics_status mics_config_fill_adapter(config *run)
{
    mics_lora_spec *lora = &run->run.lora;
    run->run.trainable = run->trainable.texts;
    run->run.trainable_count = run->trainable.count;
    if (!mics_config_given(run, "adapter")) {
        *lora = (mics_lora_spec){0};
        return MICS_OK;
    }
    if (run->trainable.count > 0)
        return mics_json_fail(run->run.json, "model.trainable", MICS_ERR_INVALID,
                              "is not for a run with an \"adapter\", which says what is trained "
                              "beside it: adapter.modules_to_save");
    const bool all = is_all_linear(&run->targets), // one text is a regular expression to PEFT
        text = mics_json_type_of(mics_json_at(run->run.json, targets_key)) == MICS_JSON_STRING;
    if (text && !all)
        return mics_peft_refuse_pattern(run->run.json, targets_key);
    if (!mics_config_valued(run, alpha_key) &&
        run->states[mics_config_find(rank_key)] == KEY_FROM_SET) {
        lora->alpha = 2.0 * (double)lora->rank;
        mics_config_set_origin(run, alpha_key, "auto: 2 x adapter.r");
    }
    lora->target_count = all ? 0 : run->targets.count;
    lora->saved_count = run->saved.count;
    lora->saved = run->saved.texts;
    if (run->targets.count == 0) {
        MICS_TRY(MICS_NEW(run->memory, 1, &run->targets.texts));
        run->targets.texts[run->targets.count++] = MICS_PEFT_ALL_LINEAR;
    }
    lora->targets = run->targets.texts;
    return MICS_OK;
}

mics_status mics_run_adapt(const mics_run *run, mics_model *model)
{
    if (run->lora.rank > 0)
        return mics_model_add_lora(model, &run->lora);
    return run->trainable_count > 0 ? mics_model_freeze(model, run->trainable, run->trainable_count)
                                    : MICS_OK;
}

void mics_run_log_adapter(const mics_run *run, const mics_model *model)
{
    const mics_lora_spec *lora = &run->lora;
    char what[256] = "model.trainable", targets[VALUE_TEXT_BYTES];
    if (lora->rank == 0 && run->trainable_count == 0)
        return;
    if (lora->rank > 0) {
        mics_config_field_text((const config *)run, // invariant 1 of keys.h
                               mics_config_key(mics_config_find(targets_key)), targets,
                               sizeof targets);
        snprintf(what, sizeof what, "adapter: r %lld, lora_alpha %g, target_modules %s",
                 (long long)lora->rank, lora->alpha, targets);
    }
    mics_log(MICS_LOG_INFO, "%s: trains %lld of %lld parameters%s", what,
             (long long)mics_model_trained_count(model), (long long)mics_model_param_count(model),
             strcmp(run->model_init, "random") == 0 ? "; the others stay random" : "");
    const char *base = ((const config *)run)->adapter_base; // invariant 1 of keys.h
    if (*base != '\0' && strcmp(base, run->model_init) != 0)
        mics_log(MICS_LOG_INFO, "%s: is an adapter of %s; here it is on %s", run->adapter_init,
                 base, run->model_init);
}
