// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// FSDP's options as the Trainer and accelerate write them, accelerate's own file, torchtitan's
// degrees, and SageMaker's numbers that have other names here.
//
// Source: accelerate's docs, "FSDP" and "DeepSpeed"; transformers/training_args.py (fsdp);
// torchtitan/config/job_config.py (parallelism).
#include "config/adopt_launch.h"
#include "base/text.h"
#include "config/value.h"
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 256 };

static const char strategy_key[] = "fsdp_sharding_strategy";

static mics_status put_text(config *run, const char *target, const char *said, const char *source,
                            const char *origin)
{
    char text[TEXT_BYTES];
    mics_config_string_text(said, text, sizeof text);
    return mics_adopt_put(run, target, text, source, origin);
}

// Each member of an object; one that is null is as if it were absent.
static mics_status put_members(config *run, const adopted_key *row, const mics_json_value *value,
                               mics_status (*put)(config *run, const char *name,
                                                  const mics_json_value *value))
{
    const char *name = NULL;
    const mics_json_value *member = NULL;
    if (mics_json_type_of(value) != MICS_JSON_OBJECT)
        return mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED, "must be an object");
    while ((member = mics_json_next(value, &name)) != NULL) {
        if (mics_json_type_of(member) != MICS_JSON_NULL)
            MICS_TRY(put(run, name, member));
    }
    return MICS_OK;
}

// ---- sequences ----

static mics_status put_sequence(config *run, const adopted_key *row, const mics_json_value *value)
{
    char text[TEXT_BYTES];
    mics_config_value_text(value, text, sizeof text);
    MICS_TRY(mics_adopt_open_sharding(run));
    return mics_adopt_put(run, "sharding.sequence", text, row->path, row->origin);
}

static mics_status put_sequence_size(config *run, const char *source, const char *origin,
                                     const mics_json_value *value)
{
    const adopted_key row = {.path = source, .origin = origin};
    return put_sequence(run, &row, value);
}

// ---- FSDP ----

// One word of "full_shard auto_wrap offload".
static mics_status put_fsdp_word(config *run, const adopted_key *row, const char *word)
{
    static const char hints[] = "|auto_wrap|offload";
    return mics_text_is_among(word, hints)
               ? MICS_OK
               : put_text(run, row->target, word, row->path, row->origin);
}

static mics_status fail_fsdp(config *run, const adopted_key *row)
{
    return mics_config_refuse(run, row->path, MICS_ERR_FORMAT,
                              "must be true, false, or a text or texts as \"full_shard\"");
}

static mics_status put_fsdp(config *run, const adopted_key *row, const mics_json_value *value)
{
    const char *text = mics_json_string(value);
    char word[TEXT_BYTES];
    if (mics_json_type_of(value) == MICS_JSON_BOOL)
        return mics_json_bool(value) && !mics_adopt_has(run, "fsdp_config")
                   ? put_text(run, row->target, "full_shard", row->path, row->origin)
                   : MICS_OK;
    if (text == NULL && mics_json_type_of(value) != MICS_JSON_ARRAY)
        return fail_fsdp(run, row);
    for (int32_t i = 0; text == NULL && i < mics_json_count(value); i++) {
        const char *element = mics_json_string(mics_json_element(value, i));
        if (element == NULL)
            return fail_fsdp(run, row);
        MICS_TRY(put_fsdp_word(run, row, element));
    }
    while (text != NULL && *text != '\0') {
        const size_t bytes = strcspn(text, " ");
        snprintf(word, sizeof word, "%.*s", (int)(bytes < TEXT_BYTES ? bytes : TEXT_BYTES - 1),
                 text);
        MICS_TRY(put_fsdp_word(run, row, word));
        text += bytes + strspn(text + bytes, " ");
    }
    return MICS_OK;
}

// FSDP 1 has numbers for its strategies, FSDP 2 says whether it reshards.
static const char *strategy_of(const char *name, const mics_json_value *value)
{
    static const char *const numbered[] = {"full_shard", "shard_grad_op", "no_shard",
                                           "hybrid_shard", "hybrid_shard_zero2"};
    int64_t number = 0;
    if (mics_json_string(value) != NULL)
        return mics_json_string(value);
    if (mics_json_type_of(value) == MICS_JSON_BOOL && strcmp(name, "reshard_after_forward") == 0)
        return mics_json_bool(value) ? "full_shard" : "shard_grad_op";
    if (mics_config_value_int(value, &number) && number >= 1 && number <= 5)
        return numbered[number - 1];
    return "unknown";
}

static mics_status put_fsdp_member(config *run, const char *name, const mics_json_value *value)
{
    static const char hints[] =
        "auto_wrap_policy|backward_prefetch|forward_prefetch|backward_prefetch_policy|"
        "cpu_ram_efficient_loading|limit_all_gathers|min_num_params|offload_params|cpu_offload|"
        "state_dict_type|sync_module_states|transformer_layer_cls_to_wrap|use_orig_params|"
        "version|activation_cpu_offload";
    static const char off[] =
        "xla|xla_fsdp_v2|xla_fsdp_grad_ckpt|xla_fsdp_settings|ignored_modules";
    char source[CONFIG_PATH_BYTES];
    mics_text_format(source, sizeof source, "fsdp_config.%s", name);
    name += strncmp(name, "fsdp_", 5) == 0 ? 5 : 0;
    if (mics_text_is_among(name, hints))
        return MICS_OK;
    if (strcmp(name, "sharding_strategy") == 0 || strcmp(name, "reshard_after_forward") == 0)
        return put_text(run, strategy_key, strategy_of(name, value), source, "auto: fsdp_config");
    if (strcmp(name, "activation_checkpointing") == 0) {
        bool on = false;
        MICS_TRY(mics_adopt_switch(run, source, value, &on));
        return on ? mics_adopt_put(run, "run.recompute", "true", source, "auto: fsdp_config")
                  : MICS_OK;
    }
    if (strcmp(name, "mixed_precision_policy") == 0)
        return mics_config_value_off(value)
                   ? MICS_OK
                   : mics_config_refuse(run, source, MICS_ERR_UNSUPPORTED,
                                        "is not read; write mixed_precision, or \"bf16\": true, "
                                        "and leave it out");
    if (mics_text_is_among(name, off))
        return mics_config_value_off(value)
                   ? MICS_OK
                   : mics_config_refuse(run, source, MICS_ERR_UNSUPPORTED, "is not built");
    return mics_config_refuse(run, source, MICS_ERR_INVALID, "is no key of FSDP's that is known");
}

// Empty where FSDP is not asked for, as the Trainer's own files have it.
static mics_status put_fsdp_config(config *run, const adopted_key *row,
                                   const mics_json_value *value)
{
    const mics_json_value *asked = mics_adopt_at(run, "fsdp");
    const bool off = asked != NULL && mics_json_count(asked) == 0 && !mics_json_bool(asked) &&
                     (mics_json_string(asked) == NULL || *mics_json_string(asked) == '\0');
    if (!off)
        MICS_TRY(put_members(run, row, value, put_fsdp_member));
    return !off && mics_json_count(value) > 0 && !mics_adopt_has(run, strategy_key)
               ? put_text(run, strategy_key, "full_shard", row->path, row->origin)
               : MICS_OK;
}

// ---- accelerate ----

static mics_status put_distributed(config *run, const adopted_key *row,
                                   const mics_json_value *value)
{
    static const char others[] = "MEGATRON_LM|XLA|TPU|SDAA";
    const char *text = mics_json_string(value);
    return mics_text_is_among(text, others)
               ? mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                                    "%s is not built; DEEPSPEED, FSDP, MULTI_GPU, MULTI_CPU and NO "
                                    "are",
                                    text)
               : MICS_OK;
}

static mics_status put_mixed(config *run, const adopted_key *row, const mics_json_value *value)
{
    static const char known[] = "no|bf16|fp16"; // by mics_adopt_precision
    const char *text = mics_adopt_word(value);
    return mics_text_is_among(text, known)
               ? MICS_OK
               : mics_config_refuse(run, row->path, MICS_ERR_UNSUPPORTED,
                                    "must be \"no\", \"bf16\" or \"fp16\"");
}

static mics_status put_deepspeed_member(config *run, const char *name, const mics_json_value *value)
{
    static const struct {
        const char *name, *target;
    } known[] = {{"zero_stage", "zero_optimization.stage"},
                 {"offload_optimizer_device", "zero_optimization.offload_optimizer.device"},
                 {"offload_param_device", "zero_optimization.offload_param.device"},
                 {"gradient_accumulation_steps", "gradient_accumulation_steps"},
                 {"gradient_clipping", "gradient_clipping"}};
    static const char hints[] =
        "deepspeed_config_file|offload_optimizer_nvme_path|offload_param_nvme_path|"
        "zero3_init_flag|zero3_save_16bit_model|deepspeed_multinode_launcher|deepspeed_hostfile|"
        "deepspeed_inclusion_filter|deepspeed_exclusion_filter|deepspeed_moe_layer_cls_names";
    char source[CONFIG_PATH_BYTES], text[TEXT_BYTES];
    mics_text_format(source, sizeof source, "deepspeed_config.%s", name);
    mics_config_value_text(value, text, sizeof text);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name) == 0)
            return mics_adopt_put(run, known[i].target, text, source, "auto: deepspeed_config");
    }
    return mics_text_is_among(name, hints)
               ? MICS_OK
               : mics_config_refuse(run, source, MICS_ERR_INVALID,
                                    "is no key of accelerate's that is known");
}

static mics_status put_deepspeed_config(config *run, const adopted_key *row,
                                        const mics_json_value *value)
{
    return put_members(run, row, value, put_deepspeed_member);
}

static mics_status put_accelerator_member(config *run, const char *name,
                                          const mics_json_value *value)
{
    static const char hints[] =
        "dispatch_batches|even_batches|use_seedable_sampler|non_blocking|use_configured_state";
    char source[CONFIG_PATH_BYTES];
    mics_text_format(source, sizeof source, "accelerator_config.%s", name);
    const mics_json_value *steps = mics_json_get(value, "num_steps");
    if (mics_text_is_among(name, hints))
        return MICS_OK;
    if (strcmp(name, "split_batches") == 0) {
        bool on = false;
        MICS_TRY(mics_adopt_switch(run, source, value, &on));
        return on ? mics_config_refuse(run, source, MICS_ERR_UNSUPPORTED,
                                       "must be false: the batch is that of each rank; divide "
                                       "per_device_train_batch_size by the ranks instead")
                  : MICS_OK;
    }
    if (strcmp(name, "gradient_accumulation_kwargs") == 0)
        return mics_json_type_of(steps) == MICS_JSON_NULL
                   ? MICS_OK
                   : mics_config_refuse(run, source, MICS_ERR_UNSUPPORTED,
                                        "must be without num_steps; write "
                                        "gradient_accumulation_steps, at the top");
    return mics_config_refuse(run, source, MICS_ERR_INVALID,
                              "is no key of accelerate's that is known");
}

static mics_status put_accelerator(config *run, const adopted_key *row,
                                   const mics_json_value *value)
{
    return put_members(run, row, value, put_accelerator_member);
}

// Of accelerate 1.1 on; a size that it leaves out is 1.
static mics_status put_size(config *run, const char *name, const mics_json_value *value)
{
    static const char ones[] = "tp_size|ep_size";
    static const char hints[] =
        "cp_comm_strategy|cp_backend|cp_handler|tp_handler|sp_backend|sp_handler|device_mesh";
    static const char prefix[] = "parallelism_config_";
    char source[CONFIG_PATH_BYTES], text[TEXT_BYTES];
    mics_text_format(source, sizeof source, "parallelism_config.%s", name);
    mics_config_value_text(value, text, sizeof text);
    name += strncmp(name, prefix, sizeof prefix - 1) == 0 ? sizeof prefix - 1 : 0;
    const bool one = mics_json_real(value) == 1.0;
    if (strcmp(name, "dp_shard_size") == 0)
        return one ? MICS_OK
                   : mics_adopt_put(run, "data_parallel_shard_degree", text, source,
                                    "auto: parallelism_config");
    if (strcmp(name, "dp_replicate_size") == 0)
        return one ? MICS_OK
                   : mics_adopt_put(run, "data_parallel_replicate_degree", text, source,
                                    "auto: parallelism_config");
    if (mics_text_is_among(name, "cp_size|sp_size"))
        return one ? MICS_OK : put_sequence_size(run, source, "auto: parallelism_config", value);
    if (mics_text_is_among(name, ones))
        return one ? MICS_OK
                   : mics_config_refuse(run, source, MICS_ERR_UNSUPPORTED,
                                        "must be 1, not %s; only data parallelism is built", text);
    return mics_text_is_among(name, hints)
               ? MICS_OK
               : mics_config_refuse(run, source, MICS_ERR_INVALID,
                                    "is no key of accelerate's that is known");
}

static mics_status put_sizes(config *run, const adopted_key *row, const mics_json_value *value)
{
    if (mics_json_type_of(value) == MICS_JSON_OBJECT && mics_json_count(value) == 0)
        return MICS_OK;
    MICS_TRY(put_members(run, row, value, put_size));
    return mics_adopt_has(run, "data_parallel_replicate_degree")
               ? mics_adopt_default(run, row->target, "1", false)
               : MICS_OK;
}

// ---- torchtitan ----

// Of pipelines, tensors, contexts and experts, whose degrees are 1.
static const char titan_hints[] =
    "enable_compiled_autograd|disable_loss_parallel|enable_async_tensor_parallel|"
    "enable_sequence_parallel|module_fqns_per_model_part|"
    "pipeline_parallel_first_stage_less_layers|pipeline_parallel_last_stage_less_layers|"
    "pipeline_parallel_layers_per_stage|pipeline_parallel_schedule|"
    "pipeline_parallel_schedule_csv|pipeline_parallel_microbatch_size|"
    "pipeline_parallel_microbatches|pipeline_parallel_split_points|"
    "pipeline_parallel_expert_parallel_overlap|context_parallel_rotate_method|"
    "context_parallel_load_balancer|expert_parallel_comm_backend";

static mics_status put_degree(config *run, const char *name, const mics_json_value *value)
{
    static const char degrees[] = "data_parallel_shard_degree|data_parallel_replicate_degree";
    static const char ones[] =
        "tensor_parallel_degree|pipeline_parallel_degree|expert_parallel_degree|"
        "expert_tensor_parallel_degree";
    char source[CONFIG_PATH_BYTES], text[TEXT_BYTES];
    mics_text_format(source, sizeof source, "parallelism.%s", name);
    mics_config_value_text(value, text, sizeof text);
    if (mics_text_is_among(name, degrees))
        return mics_adopt_put(run, name, text, source, "auto: parallelism");
    if (strcmp(name, "context_parallel_degree") == 0)
        return mics_json_real(value) == 1.0
                   ? MICS_OK
                   : put_sequence_size(run, source, "auto: parallelism", value);
    if (mics_text_is_among(name, ones))
        return mics_json_real(value) == 1.0
                   ? MICS_OK
                   : mics_config_refuse(run, source, MICS_ERR_UNSUPPORTED,
                                        "must be 1, not %s; only data parallelism is built", text);
    if (strcmp(name, "fsdp_reshard_after_forward") == 0)
        return strcmp(text, "\"default\"") == 0 || strcmp(text, "\"always\"") == 0
                   ? MICS_OK
                   : mics_config_refuse(run, source, MICS_ERR_UNSUPPORTED,
                                        "must be \"default\" or \"always\"; \"never\" is "
                                        "\"sharding\": {\"params\": 1, \"grads\": P} here");
    return mics_text_is_among(name, titan_hints)
               ? MICS_OK
               : mics_config_refuse(run, source, MICS_ERR_INVALID,
                                    "is no key of torchtitan's that is known");
}

static mics_status put_parallelism(config *run, const adopted_key *row,
                                   const mics_json_value *value)
{
    return put_members(run, row, value, put_degree);
}

static const adopted_key rows[] = {
    // SageMaker's model parallelism
    ADOPTED("sdp_gradient_clipping", "gradient_clipping", NULL),
    ADOPTED("random_seed", "run.seed", NULL),
    // DeepSpeed, SageMaker, axolotl
    ADOPTED("sequence_parallel_size", "sharding.sequence", put_sequence),
    ADOPTED("context_parallel_degree", "sharding.sequence", put_sequence),
    ADOPTED("context_parallel_size", "sharding.sequence", put_sequence),
    ADOPTED("sequence_parallel_degree", "sharding.sequence", put_sequence),
    // the Trainer, accelerate, torchtitan
    ADOPTED("fsdp", "fsdp_sharding_strategy", put_fsdp),
    ADOPTED("fsdp_config", "fsdp_sharding_strategy", put_fsdp_config),
    ADOPTED("mixed_precision", "run.precision", put_mixed),
    ADOPTED("distributed_type", "sharding", put_distributed),
    ADOPTED("deepspeed_config", "zero_optimization", put_deepspeed_config),
    ADOPTED("accelerator_config", "train_batch_size", put_accelerator),
    ADOPTED("parallelism_config", "data_parallel_shard_degree", put_sizes),
    ADOPTED("parallelism", "data_parallel_shard_degree", put_parallelism),
};

const adopted_keys mics_adopt_launch = {rows, sizeof rows / sizeof *rows};
