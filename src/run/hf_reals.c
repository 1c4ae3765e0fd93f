// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Real numbers of a config.json. transformers 5 checks types: where a class says float, an integer
// ("rope_theta": 10000) or a text is an error, also in keys that nothing here reads.
// Source: transformers 5.0, configuration_*.py of the families here, and RopeParameters.
#include "mics/log.h"
#include "run/hf_metadata.h"
#include <string.h>

static const char *const reals[] = {
    "attention_dropout",
    "attention_factor",
    "attention_probs_dropout_prob",
    "attn_pdrop",
    "beta_fast",
    "beta_slow",
    "embd_pdrop",
    "factor",
    "hidden_dropout",
    "hidden_dropout_prob",
    "high_freq_factor",
    "initializer_range",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "low_freq_factor",
    "mscale",
    "mscale_all_dim",
    "partial_rotary_factor",
    "resid_pdrop",
    "rms_norm_eps",
    "rope_theta",
    "rotary_emb_base",
    "rotary_pct",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "summary_first_dropout",
};

bool run_hf_metadata_is_real(const char *key)
{
    bool is = false;
    for (size_t i = 0; key != NULL && i < sizeof reals / sizeof *reals; i++)
        is = is || strcmp(key, reals[i]) == 0;
    return is;
}

static mics_status check_member(const char *file, const mics_json_value *object, const char *key)
{
    const mics_json_value *value = mics_json_get(object, key);
    if (mics_json_type_of(value) == MICS_JSON_NULL || mics_json_is_number(value))
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: \"%s\" is %s, but must be a number: transformers would not load what is "
                     "exported of this run; correct it, or leave it out",
                     file, key, mics_json_type_text(mics_json_type_of(value)));
}

mics_status run_hf_metadata_check_reals(const mics_json *config)
{
    enum { OBJECTS = 3 };
    const mics_json_value *const objects[OBJECTS] = {mics_json_root(config),
                                                     mics_json_at(config, "rope_scaling"),
                                                     mics_json_at(config, "rope_parameters")};
    for (int i = 0; i < OBJECTS; i++) {
        for (size_t key = 0; key < sizeof reals / sizeof *reals; key++)
            MICS_TRY(check_member(mics_json_name(config), objects[i], reals[key]));
    }
    return MICS_OK;
}
