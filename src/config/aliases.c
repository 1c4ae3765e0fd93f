// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys that say the same in two ways: one of them decides, and explain shows which.
#include "config/keys.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char collectives_key[] = "run.collectives";
static const char overlap_key[] = "zero_optimization.overlap_comm";

static mics_status fail_contradicts(const config *run, const char *path, const char *value,
                                    const char *other, const char *other_value)
{
    return mics_json_fail(run->run.json, path, MICS_ERR_INVALID,
                          "%s contradicts %s %s; leave one out", value, other, other_value);
}

// Keys of others for run.collectives; "auto" there leaves it to them.
static mics_status join_hierarchical(config *run, const char *path, bool two_stages,
                                     const char *origin)
{
    const char *said = two_stages ? "two-stage" : "ring";
    if (!mics_config_valued(run, path))
        return MICS_OK;
    if (strcmp(run->collectives, "auto") != 0 && strcmp(run->collectives, said) != 0)
        return fail_contradicts(run, path, two_stages ? "true" : "false", collectives_key,
                                run->collectives);
    if (strcmp(run->collectives, "auto") == 0)
        mics_config_set_origin(run, collectives_key, origin);
    run->collectives = said;
    return MICS_OK;
}

static mics_status join_collectives(config *run)
{
    MICS_TRY(join_hierarchical(run, "zero_optimization.mics_hierarchical_params_gather",
                               run->hierarchical,
                               "auto: zero_optimization.mics_hierarchical_params_gather"));
    MICS_TRY(join_hierarchical(run, "sdp_hierarchical_allgather", run->sdp_hierarchical,
                               "auto: sdp_hierarchical_allgather"));
    run->run.collectives = (mics_collectives)mics_config_choice(collectives_key, run->collectives);
    return MICS_OK;
}

void mics_run_resolve_collectives(mics_run *public_run, mics_collectives chosen)
{
    config *run = (config *)public_run; // invariant 1 of keys.h
    run->run.collectives = chosen;
    run->collectives = mics_config_collectives_text(chosen);
    mics_config_set_origin(run, collectives_key, "auto: gathers were timed");
}

static const char type_key[] = "communication_data_type";

// DeepSpeed's one type for one of the two types of gradients.
static mics_status join_dtype(config *run, const char *path, const char **dtype)
{
    const char *type = strcmp(run->comm_type, "bfp16") == 0 ? "bf16" : run->comm_type;
    const bool said = mics_config_given(run, path) && strcmp(*dtype, "auto") != 0;
    if (said && strcmp(*dtype, type) != 0)
        return fail_contradicts(run, type_key, run->comm_type, path, *dtype);
    if (!said)
        mics_config_set_origin(run, path, "auto: communication_data_type");
    *dtype = type;
    return MICS_OK;
}

static mics_status join_dtypes(config *run)
{
    static const char intra_key[] = "run.comm_dtype.bf16_intra_node";
    if (run->comm_type != NULL && strcmp(run->comm_type, "fp16") != 0) {
        MICS_TRY(join_dtype(run, "run.comm_dtype.grads", &run->grads_dtype));
        MICS_TRY(join_dtype(run, "run.comm_dtype.boundary", &run->boundary_dtype));
        if (mics_config_given(run, intra_key) && run->bf16_intra_node &&
            strcmp(run->comm_type, "fp32") == 0)
            return fail_contradicts(run, type_key, run->comm_type, intra_key, "true");
    }
    run->asked_boundary = run->boundary_dtype;
    mics_config_fill_comm_dtypes(run);
    return MICS_OK;
}

// Keys of others for run.param_persistence_threshold.
static mics_status join_threshold(config *run, const char *path, int64_t threshold,
                                  const char *origin)
{
    static const char threshold_key[] = "run.param_persistence_threshold";
    char value[24], other[24];
    if (!mics_config_valued(run, path))
        return MICS_OK;
    const bool said = mics_config_given(run, threshold_key) ||
                      run->origins[mics_config_find(threshold_key)] != NULL;
    if (said && threshold != run->run.param_persistence_threshold) {
        snprintf(value, sizeof value, "%" PRId64, threshold);
        snprintf(other, sizeof other, "%" PRId64, run->run.param_persistence_threshold);
        return fail_contradicts(run, path, value, threshold_key, other);
    }
    if (!said)
        mics_config_set_origin(run, threshold_key, origin);
    run->run.param_persistence_threshold = threshold;
    return MICS_OK;
}

static mics_status join_thresholds(config *run)
{
    MICS_TRY(join_threshold(run, "zero_optimization.stage3_param_persistence_threshold",
                            run->zero_threshold,
                            "auto: zero_optimization.stage3_param_persistence_threshold"));
    MICS_TRY(join_threshold(run, "sdp_param_persistence_threshold", run->sdp_threshold,
                            "auto: sdp_param_persistence_threshold"));
    run->zero_threshold = run->sdp_threshold = run->run.param_persistence_threshold;
    return MICS_OK;
}

static mics_status join_log(config *run)
{
    static const char print_key[] = "steps_per_print", log_key[] = "run.log_every";
    if (mics_config_valued(run, print_key)) {
        if (mics_config_given(run, log_key))
            return mics_json_fail(run->run.json, print_key, MICS_ERR_INVALID,
                                  "says the same as run.log_every; leave one out");
        run->run.log_every = run->steps_per_print;
        mics_config_set_origin(run, log_key, "auto: steps_per_print");
    }
    run->steps_per_print = run->run.log_every;
    return MICS_OK;
}

static mics_status join_prefetch(config *run)
{
    static const char prefetch_key[] = "run.prefetch";
    const bool said = mics_config_valued(run, prefetch_key);
    const bool overlap_said = mics_config_valued(run, overlap_key);
    char depth[16];
    snprintf(depth, sizeof depth, "%d", (int)run->prefetch);
    if (said && overlap_said && run->overlap != (run->prefetch > 0))
        return fail_contradicts(run, overlap_key, run->overlap ? "true" : "false", prefetch_key,
                                depth);
    if (!said && overlap_said && !run->overlap) {
        run->prefetch = 0;
        mics_config_set_origin(run, prefetch_key, "auto: zero_optimization.overlap_comm is false");
    }
    run->run.prefetch = run->prefetch;
    run->run.prefetch_auto = !said && !(overlap_said && !run->overlap);
    return MICS_OK;
}

void mics_run_resolve_layered(mics_run *public_run, int32_t number, const char *why)
{
    config *run = (config *)public_run; // invariant 1 of keys.h
    run->run.layered_micro_steps = number;
    mics_config_set_origin(run, "run.layered_micro_steps", why);
}

static int32_t kept_layered(const config *run)
{
    const int32_t index = mics_config_find("run.layered_micro_steps");
    return run->states[index] == KEY_FROM_CHECKPOINT ? run->layered_micro_steps : 0;
}

// Names of fields by their roles; data.text_field is the text's.
static mics_status check_fields(const config *run, const mics_json_value *fields)
{
    static const char *const names[] = {
        "messages", "conversations", "role",        "content", "tools",  "prompt", "completion",
        "chosen",   "rejected",      "instruction", "input",   "output", "text"};
    const int32_t count = sizeof names / sizeof *names;
    const char *name = NULL;
    const mics_json_value *value = NULL;
    while ((value = mics_json_next(fields, &name)) != NULL) {
        const char *nearest = mics_json_nearest(name, names, count);
        if (nearest == NULL || strcmp(nearest, name) != 0)
            return mics_json_fail(run->run.json, "data.fields", MICS_ERR_INVALID,
                                  "\"%.60s\" is no field that rows have%s%s%s", name,
                                  nearest != NULL ? "; did you mean \"" : "",
                                  nearest != NULL ? nearest : "", nearest != NULL ? "\"?" : "");
        if (mics_json_type_of(value) != MICS_JSON_STRING || mics_json_string(value)[0] == '\0')
            return mics_json_fail(run->run.json, "data.fields", MICS_ERR_FORMAT,
                                  "\"%.60s\" must be the name of a field, as in {\"%.60s\": "
                                  "\"dialog\"}",
                                  name, name);
    }
    return MICS_OK;
}

static mics_status join_fields(config *run)
{
    static const char fields_key[] = "data.fields.text", field_key[] = "data.text_field";
    const bool said = mics_config_given(run, field_key);
    const mics_json_value *fields = mics_json_at(run->run.json, "data.fields");
    const char *text = mics_json_string(mics_json_get(fields, "text"));
    MICS_TRY(check_fields(run, fields));
    if (text == NULL)
        return MICS_OK;
    if (said && strcmp(text, run->run.text_field) != 0)
        return fail_contradicts(run, fields_key, text, field_key, run->run.text_field);
    if (!said)
        mics_config_set_origin(run, field_key, "auto: data.fields.text");
    run->run.text_field = text;
    run->run.text_field_open = false;
    return MICS_OK;
}

// TRL's dataset_text_field is of texts, whatever the data turn out to be.
static bool names_texts_alone(const config *run)
{
    char source[CONFIG_PATH_BYTES];
    return strcmp(mics_json_source(run->run.json, "data.text_field", source, sizeof source),
                  "dataset_text_field") == 0;
}

// What a pair has no use for may stand in a file as it is by default: resolved files have all keys.
static mics_status join_objective(config *run)
{
    static const char beta_key[] = "objective.beta", smoothing_key[] = "objective.label_smoothing",
                      loss_key[] = "data.loss_on", packing_key[] = "data.packing";
    static const double BETA = 0.1;
    const mics_json *json = run->run.json;
    mics_preference *preference = &run->run.preference;
    preference->kind = (mics_preference_kind)mics_config_choice("objective.type", run->objective);
    const bool pairs = preference->kind != MICS_PREFERENCE_NONE;
    const bool usual = preference->beta == BETA;
    if (!pairs && (!usual || preference->label_smoothing != 0))
        return mics_json_fail(json, usual ? smoothing_key : beta_key, MICS_ERR_INVALID,
                              "is of pairs of answers, and objective.type is \"lm\"; write "
                              "\"type\": \"dpo\" beside it, or leave it out");
    if (preference->kind == MICS_PREFERENCE_IPO && preference->label_smoothing != 0)
        return mics_json_fail(json, smoothing_key, MICS_ERR_UNSUPPORTED,
                              "is of \"dpo\", and objective.type is \"ipo\"; leave it out");
    if (pairs && run->run.loss_on != MICS_RUN_LOSS_ASSISTANT)
        return mics_json_fail(json, loss_key, MICS_ERR_INVALID,
                              "is of chats, and objective.type is \"%s\": of a pair the tokens of "
                              "the answers count; leave it out",
                              run->objective);
    if (pairs && run->run.packing)
        return mics_json_fail(json, packing_key, MICS_ERR_UNSUPPORTED,
                              "the two answers of a pair have sequences of their own "
                              "(objective.type \"%s\"); use false, or leave it out",
                              run->objective);
    return MICS_OK;
}

mics_status mics_config_join_aliases(config *run)
{
    run->run.text_field_open = !mics_config_given(run, "data.text_field") || names_texts_alone(run);
    MICS_TRY(join_fields(run));
    run->run.loss_on = (mics_run_loss_on)mics_config_choice("data.loss_on", run->loss_on);
    run->run.too_long = (mics_run_too_long)mics_config_choice("data.too_long", run->too_long);
    run->run.packing_kept = run->states[mics_config_find("data.packing")] == KEY_FROM_CHECKPOINT;
    run->run.packing_open = !mics_config_valued(run, "data.packing") && !run->run.packing_kept;
    MICS_TRY(join_objective(run));
    MICS_TRY(join_log(run));
    MICS_TRY(join_collectives(run));
    MICS_TRY(join_dtypes(run));
    MICS_TRY(join_thresholds(run));
    run->run.layered_micro_steps = run->layered_micro_steps;
    run->run.layered_kept = kept_layered(run);
    run->run.layered_auto = run->layered_micro_steps == 0 || run->run.layered_kept > 0;
    return join_prefetch(run);
}
