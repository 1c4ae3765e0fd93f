// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys of DeepSpeed and SageMaker that have no counterpart here. What cannot change results is a
// hint and taken; what would change them may only stand there switched off.
#include "config/keys.h"
#include "config/value.h"
#include <string.h>

#define HINT NULL
#define OFF FOREIGN_OFF
#define ONE FOREIGN_ONE
#define EMPTY FOREIGN_EMPTY

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

// Keys that are treated alike, for the same reason.
typedef struct foreign_group {
    const char *only, *why; // as foreign_key
    const char *const *paths;
} foreign_group;

static const foreign_group groups[] = {
    // ---- optimizer, scheduler ----
    {"true", "the moments are always corrected; use true",
     NAMES("optimizer.params.bias_correction")},
    {OFF, "AMSGrad is not built; use false", NAMES("optimizer.params.amsgrad")},
    {HINT, "there is one AdamW; true needs weight_decay", NAMES("optimizer.params.torch_adam")},
    {HINT, "there is one implementation of each optimizer",
     NAMES("optimizer.params.fused", "optimizer.params.foreach", "optimizer.legacy_fusion",
           "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer")},
    {"[3.4445, -4.775, 2.0315]", "these are Muon's", NAMES("optimizer.params.ns_coefficients")},
    {OFF, "the gradient is added to the momentum whole; use 0",
     NAMES("optimizer.params.dampening")},
    {OFF, "the loss is minimised; use false", NAMES("optimizer.params.maximize")},
    {OFF, "write it as gradient_clipping, at the top", NAMES("optimizer.params.max_grad_norm")},
    {"-1", "where a run goes on stands in its checkpoint; leave it out",
     NAMES("scheduler.params.last_batch_iteration")},
    {"false", "it would change the first moment's decay in every step; use false",
     NAMES("scheduler.params.cycle_momentum")},
    {OFF, "OneCycle rises and falls without stairs; use 0",
     NAMES("scheduler.params.cycle_first_stair_count",
           "scheduler.params.cycle_second_stair_count")},
    {HINT, "it is for cycle_momentum",
     NAMES("scheduler.params.cycle_min_mom", "scheduler.params.cycle_max_mom",
           "scheduler.params.decay_mom_rate")},
    // ---- sharding ----
    {HINT, "a unit is gathered and reduced whole, in one call",
     NAMES("zero_optimization.reduce_bucket_size", "zero_optimization.allgather_bucket_size",
           "zero_optimization.stage3_max_live_parameters",
           "zero_optimization.stage3_max_reuse_distance",
           "zero_optimization.stage3_model_persistence_threshold",
           "zero_optimization.stage3_module_granularity_threshold",
           "zero_optimization.stage3_use_all_reduce_for_fetch_params",
           "zero_optimization.stage3_allgather_sequential", "zero_optimization.reduce_scatter",
           "zero_optimization.allgather_partitions",
           "zero_optimization.use_multi_rank_bucket_allreduce",
           "zero_optimization.max_live_parameters", "zero_optimization.max_reuse_distance",
           "zero_optimization.model_persistence_threshold",
           "zero_optimization.module_granularity_threshold",
           "zero_optimization.use_all_reduce_for_fetch_params", "sdp_reduce_bucket_size",
           "sdp_max_live_parameters", "zero_optimization.allgather_sequential",
           "fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap")},
    {HINT, "run.prefetch counts units",
     NAMES("zero_optimization.stage3_prefetch_bucket_size",
           "zero_optimization.prefetch_bucket_size")},
    {HINT, "a unit is one flat buffer",
     NAMES("zero_optimization.stage3_partition_stream_chunk_size",
           "zero_optimization.contiguous_gradients", "zero_optimization.round_robin_gradients")},
    {HINT, "every checkpoint holds all weights",
     NAMES("zero_optimization.stage3_gather_16bit_weights_on_model_save",
           "zero_optimization.stage3_gather_fp16_weights_on_model_save",
           "zero_optimization.gather_16bit_weights_on_model_save")},
    {HINT, "there is one linear", NAMES("zero_optimization.memory_efficient_linear")},
    {HINT, "the models have no unused parameters",
     NAMES("zero_optimization.ignore_unused_parameters")},
    {HINT, "there are no modules",
     NAMES("zero_optimization.override_module_apply", "zero_optimization.leaf_module")},
    {HINT, "checkpoints hold fp32 weights", NAMES("zero_optimization.load_from_fp32_weights")},
    {HINT, "gradients are reduced by the schedule", NAMES("zero_optimization.grad_hooks")},
    {HINT, "it is for offload",
     NAMES("zero_optimization.save_muon_momentum_buffer_in_memory",
           "zero_optimization.sub_group_size", "zero_optimization.cpu_offload_use_pin_memory",
           "aio")},
    {HINT, "any mesh reads any checkpoint",
     NAMES("zero_optimization.elastic_checkpoint", "elastic_checkpoint")},
    {HINT, "each rank reads its own part",
     NAMES("zero_optimization.pipeline_loading_checkpoint", "low_cpu_mem_usage")},
    {HINT, "there is one stage 1", NAMES("zero_optimization.legacy_stage1")},
    {HINT, "the schedule is made once", NAMES("zero_optimization.log_trace_cache_warnings")},
    {HINT, "the checks are always on", NAMES("zero_optimization.enable_sanity_checks")},
    {HINT, "the state stays in memory, which is checked before the start",
     NAMES("zero_optimization.offload_param", "zero_optimization.offload_optimizer",
           "zero_optimization.cpu_offload", "zero_optimization.cpu_offload_param")},
    {HINT, "what does not fit goes to host memory with run.offload_activations \"auto\"",
     NAMES("offload_activations", "sm_activation_offloading", "activation_loading_horizon",
           "activation_offloading")},
    {OFF,
     "parameters travel as fp32 or bf16; write \"run\": {\"comm_dtype\": {\"params\": \"bf16\"}} "
     "instead",
     NAMES("zero_optimization.zero_quantized_weights")},
    {OFF, "all parameters are trained; use false",
     NAMES("zero_optimization.zero_quantized_nontrainable_weights")},
    {OFF,
     "write \"run\": {\"comm_dtype\": {\"boundary\": \"int8\"}} instead: inter-node, at the "
     "accumulation boundary alone, with error feedback",
     NAMES("zero_optimization.zero_quantized_gradients")},
    {OFF, "run.comm_dtype.boundary \"int8\" has error feedback; leave it out",
     NAMES("zero_optimization.zeropp_loco_param")},
    {OFF, "ZenFlow is not built; leave it out", NAMES("zero_optimization.zenflow")},
    {HINT, "mpirun, srun or --ranks and --nodes say it",
     NAMES("ddp", "ddp_dist_backend", "local_rank", "_n_gpu", "ray_scope", "xpu_backend", "tpu_vm",
           "tpu_num_cores", "ddp_backend", "ddp_timeout", "ddp_find_unused_parameters",
           "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_static_graph", "num_machines",
           "num_processes", "machine_rank", "main_process_ip", "main_process_port",
           "main_training_function", "rdzv_backend", "same_network", "gpu_ids",
           "enable_cpu_affinity", "compute_environment", "downcast_bf16", "tpu_env",
           "tpu_use_cluster", "tpu_use_sudo", "tpu_name", "tpu_zone", "commands", "command_file",
           "mpirun_config")},
    {HINT, "\"sharding\" says what is sharded", NAMES("shard_optimizer_state")},
    {ONE, "only data parallelism is built; use 1",
     NAMES("tensor_parallel_degree", "pipeline_parallel_degree", "partitions")},
    {ONE, "sharding.experts says it; use 1", NAMES("expert_parallel_degree")},
    {OFF, "the batch is that of each rank; use false", NAMES("prescaled_batch")},
    {HINT, "it is for pipelines",
     NAMES("microbatches", "active_microbatches", "auto_partition", "default_partition",
           "load_partition", "memory_weight", "optimize", "skip_tracing")},
    {HINT, "ranks are numbered by their nodes",
     NAMES("placement_strategy", "use_data_before_expert_parallelism")},
    {HINT, "each rank makes its own part", NAMES("delayed_parameter_initialization")},
    {OFF, "FP8 is not built; use false", NAMES("fp8")},
    // ---- precision ----
    {HINT, "gradients are summed in fp32 at once", NAMES("bf16.immediate_grad_update")},
    {HINT, "gradients that are not finite always end the run", NAMES("bf16.check_grad_overflow")},
    {HINT, "inputs are tokens", NAMES("fp16.auto_cast")},
    {OFF, "master weights are fp32; use false",
     NAMES("fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads")},
    {OFF, "write bf16.enabled or fp16.enabled instead", NAMES("amp", "torch_autocast")},
    {HINT, "gradients are averaged once, in fp32, which gives the same mean",
     NAMES("prescale_gradients", "gradient_predivide_factor")},
    {HINT, "gradients are dense, which gives the same sums", NAMES("sparse_gradients")},
    {"\"mean\"", "gradients are averaged; use \"mean\"", NAMES("gradient_allreduce_op")},
    {"true", "steps are counted by the library; use true", NAMES("managed_gradient_accumulation")},
    {OFF, "updated parameters always reach all ranks; use false", NAMES("disable_allgather")},
    // ---- monitors, profilers, checkpoints ----
    {HINT, "metrics.jsonl has each step's times", NAMES("wall_clock_breakdown", "timers")},
    {HINT, "mics explain shows what takes memory", NAMES("memory_breakdown")},
    {HINT, "mics explain shows every resolved key", NAMES("dump_state")},
    {HINT, "metrics.jsonl in run.out has the same numbers",
     NAMES("wandb", "comet", "comet_ml", "mlflow", "clearml", "neptune", "swanlab", "trackio",
           "dvclive", "azure_ml", "codecarbon", "dagshub", "flyte", "tpu_metrics_debug",
           "logging_dir", "logging_strategy", "logging_first_step", "logging_nan_inf_filter",
           "log_level", "log_level_replica", "log_on_each_node", "disable_tqdm", "run_name",
           "project", "include_num_input_tokens_seen", "include_tokens_per_second",
           "skip_memory_metrics", "debug", "trackio_space_id", "trackio_bucket_id",
           "trackio_static_space_id", "plot_loss", "wandb_project", "wandb_entity", "wandb_name")},
    {HINT, "metrics.jsonl has tokens_per_s and mfu", NAMES("flops_profiler")},
    {HINT, "metrics.jsonl has the bytes of each step", NAMES("comms_logger")},
    {HINT, "run.checkpoint_every and run.keep_checkpoints say what is saved",
     NAMES("checkpoint", "save_safetensors", "save_on_each_node", "save_only_model",
           "enable_jit_checkpoint", "restore_callback_states_from_checkpoint")},
    {HINT, "write it as mics_hierarchical_params_gather",
     NAMES("zero_optimization.mics_hierarchial_params_gather")},
    {OFF, "write \"optimizer\": {\"params\": {\"state_dtype\": \"bf16\"}} instead, or use false",
     NAMES("bf16.bf16_optimizer_states", "fp16.fp16_optimizer_states")},
    {HINT, "ranks of a sequence exchange numbers as they are computed",
     NAMES("seq_parallel_communication_data_type")},
    {HINT, "every step has a whole batch; epochs are counted by it", NAMES("dataloader_drop_last")},
    {HINT, "run.checkpoint_every says what is saved", NAMES("nebula", "datastates_ckpt")},
    {HINT, "run.graphs launches a unit's kernels as one CUDA graph", NAMES("graph_harvesting")},
    {HINT, "nothing is compiled at run time", NAMES("compile")},
    // ---- Hugging Face's Trainer and accelerate ----
    {HINT,
     "run.out is not emptied: a run resumes from the newest checkpoint there; another --out begins "
     "anew",
     NAMES("overwrite_output_dir")},
    {OFF, "mics generate writes texts of a run; leave it out", NAMES("do_predict")},
    {OFF, "a resumed run reads on where it was, so that no sample comes twice; use false",
     NAMES("ignore_data_skip")},
    {OFF, "samples are drawn whatever their length; data.packing leaves less padding; use false",
     NAMES("group_by_length")},
    {"\"random\"",
     "samples are drawn by run.seed; data.packing leaves less padding, and the order of a file is "
     "not kept; use \"random\"",
     NAMES("train_sampling_strategy")},
    {HINT, "data is read by the library itself",
     NAMES("dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers",
           "dataloader_prefetch_factor", "dataloader_multiprocessing_context",
           "dataloader_in_order", "remove_unused_columns", "label_names", "length_column_name",
           "dispatch_batches", "dataset_config_name", "dataset_config", "dataset_train_split",
           "dataset_test_split", "dataset_num_proc", "streaming", "preprocessing_num_workers",
           "overwrite_cache", "use_fast_tokenizer", "dataset_streaming", "dataset_dir",
           "dataset_prepared_path", "shuffle_dataset")},
    {OFF, "the batch is that of each rank; divide per_device_train_batch_size by the ranks instead",
     NAMES("split_batches")},
    {HINT, "run.device says where it computes", NAMES("use_mps_device")},
    {HINT, "nothing is uploaded",
     NAMES("push_to_hub", "hub_model_id", "hub_strategy", "hub_token", "hub_private_repo",
           "hub_always_push", "hub_revision", "push_to_hub_model_id", "push_to_hub_organization",
           "push_to_hub_token")},
    {HINT, "run.validate_every and run.validation_batches say what is validated",
     NAMES("eval_on_start", "eval_accumulation_steps", "eval_do_concat_batches",
           "eval_use_gather_object", "per_device_eval_batch_size", "per_gpu_eval_batch_size",
           "prediction_loss_only", "include_for_metrics", "include_inputs_for_metrics",
           "batch_eval_metrics", "use_legacy_prediction_loop", "bf16_full_eval", "fp16_full_eval")},
    {OFF, "validations begin before the first step; leave it out", NAMES("eval_delay")},
    {OFF, "run.validation_batches says how much is validated; leave it out",
     NAMES("max_eval_samples")},
    {HINT, "a unit is recomputed at a time",
     NAMES("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs",
           "gradient_checkpointing_use_reentrant")},
    {HINT, "the kernels are the library's own, and give the same bits each time",
     NAMES("torch_compile", "torch_compile_backend", "torch_compile_mode", "dynamo_config",
           "dynamo_backend", "torchdynamo", "use_liger_kernel", "liger_kernel_config",
           "jit_mode_eval", "use_ipex", "ipex_config", "torch_empty_cache_steps", "use_cache",
           "fp16_backend", "fp16_opt_level", "half_precision_backend", "full_determinism",
           "attn_implementation")},
    {HINT, "memory is checked before the start", NAMES("auto_find_batch_size")},
    {HINT, "the loss is the mean of all tokens that count, of all ranks: as with true",
     NAMES("average_tokens_across_devices")},
    {OFF, "any lower loss counts as better; use 0", NAMES("early_stopping_threshold")},
    // ---- training scripts ----
    {HINT,
     "hf://ORG/NAME@REVISION names what is downloaded, HF_HUB_CACHE and HF_TOKEN say the rest",
     NAMES("cache_dir", "token", "trust_remote_code")},
    {"\"main\"", "write it behind the model's name, as hf://ORG/NAME@REVISION, and leave it out",
     NAMES("model_revision")},
    {"true", "texts keep their line breaks; use true", NAMES("keep_linebreaks")},
    {HINT, "master weights are fp32, as with DeepSpeed and FSDP", NAMES("torch_dtype", "dtype")},
    {"5", "the last twentieth is held out; or give data.validation",
     NAMES("validation_split_percentage")},
    {HINT, "the kernels are the library's own",
     NAMES("flash_attention", "lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")},
    {HINT, "model.config says it", NAMES("model_type")},
    {OFF, "write its values into model.config's file",
     NAMES("config_overrides", "model_init_kwargs")},
    {"0.15", "15 % of the tokens are hidden; use 0.15", NAMES("mlm_probability")},
    {OFF, "samples are cut from one stream of tokens; use false", NAMES("line_by_line")},
    {HINT, "texts are cut from one stream of tokens, and each token of a chat counts once",
     NAMES("pad_to_max_length", "pad_to_multiple_of", "pad_to_sequence_len", "padding_free",
           "packing_strategy", "eval_packing", "eval_sample_packing", "pad_token")},
    {"\"drop\"", "write \"data\": {\"too_long\": \"truncate\"} or \"error\" instead",
     NAMES("excess_length_strategy")},
    {OFF,
     "documents end with the tokenizer's own end; write it into the tokenizer's "
     "tokenizer_config.json, and leave this out",
     NAMES("eos_token")},
    {OFF, "rows are made into tokens here; leave it out", NAMES("dataset_kwargs")},
    {"\"keep_start\"", "chats that are too long lose their end; use \"keep_start\"",
     NAMES("truncation_mode")},
    {OFF,
     "LLaMA-Factory's templates are its own; leave it out: chats are written by the template of "
     "the tokenizer's folder, or by that of data.chat_template",
     NAMES("template")},
    {OFF,
     "it would count the text of all messages, but not what stands around it; leave it out, or "
     "write \"data\": {\"loss_on\": \"all\"}, which counts all tokens",
     NAMES("train_on_inputs")},
    {HINT, "log-probabilities of the reference are computed once, before the first step",
     NAMES("precompute_ref_log_probs", "precompute_ref_batch_size")},
    {OFF, "the reference is what training begins with, and stays so; leave it out",
     NAMES("ref_model", "reference_free", "sync_ref_model", "ref_model_init_kwargs",
           "force_use_ref_model", "model_adapter_name", "ref_adapter_name")},
    {HINT, "it is of a loss, or a reference, that is not built",
     NAMES("ref_model_mixup_alpha", "ref_model_sync_steps", "discopop_tau",
           "f_alpha_divergence_coef")},
    {"\"reverse_kl\"", "other divergences are not built; use \"reverse_kl\"",
     NAMES("f_divergence_type")},
    {OFF, "prompt and answer are cut together, by data.sequence_length; leave it out",
     NAMES("max_prompt_length", "max_completion_length", "max_target_length")},
    {HINT, "what does not count is known without it",
     NAMES("label_pad_token_id", "padding_value", "use_logits_to_keep", "use_num_logits_to_keep")},
    {OFF, "models with an encoder and a decoder are not built; use false",
     NAMES("is_encoder_decoder")},
    {HINT, "run.sample_every writes texts", NAMES("generate_during_eval")},
    {HINT, "it is for quantised weights",
     NAMES("bnb_4bit_quant_type", "bnb_4bit_compute_dtype", "use_bnb_nested_quant")},
    // ---- PEFT ----
    {EMPTY, "of adapters, LoRA's with one rank and alpha for all modules is built; leave it out",
     NAMES("use_dora", "adapter.use_dora", "adapter.rank_pattern", "adapter.alpha_pattern",
           "adapter.layer_replication", "adapter.lora_bias", "adapter.use_qalora",
           "adapter.alora_invocation_tokens", "adapter.arrow_config",
           "adapter.trainable_token_indices", "adapter.target_parameters", "adapter.loftq_config",
           "adapter.eva_config", "adapter.corda_config", "adapter.megatron_config",
           "adapter.lora_ga_config", "adapter.velora_config", "adapter.monteclora_config",
           "adapter.use_bdlora", "adapter.kasa_config")},
    {EMPTY,
     "adapter.target_modules may name layers, as [\"model.layers.0.self_attn.q_proj\"]; leave it "
     "out",
     NAMES("adapter.layers_to_transform", "adapter.layers_pattern")},
    {EMPTY, "adapter.target_modules names what gets one; leave it out",
     NAMES("adapter.exclude_modules")},
    {"\"none\"", "biases stay frozen; use \"none\"", NAMES("adapter.bias")},
    {"\"LORA\"", "of PEFT's adapters LoRA is built; use \"LORA\"", NAMES("adapter.peft_type")},
    {"true", "A begins as PEFT's default does, and B at 0; use true",
     NAMES("adapter.init_lora_weights")},
    {HINT, "it changes no result",
     NAMES("lora_task_type", "adapter.task_type", "adapter.inference_mode",
           "adapter.fan_in_fan_out", "adapter.base_model_name_or_path", "adapter.revision",
           "adapter.auto_mapping", "adapter.peft_version", "adapter.megatron_core",
           "adapter.qalora_group_size", "adapter.runtime_config", "adapter.ensure_weight_tying")},
    {OFF, "all of data.train is read; leave it out", NAMES("max_train_samples", "max_samples")},
    {OFF, "weights are not quantised; leave it out", NAMES("load_in_8bit", "load_in_4bit")},
    {OFF, "it would change the loss; leave it out",
     NAMES("label_smoothing_factor", "neftune_noise_alpha", "use_weighting", "ld_alpha",
           "rpo_alpha", "loss_weights")},
    {OFF, "write its numbers as optimizer.params, such as momentum", NAMES("optim_args")},
    {OFF, "an optimizer updates all parameters; leave it out", NAMES("optim_target_modules")},
    {OFF, "Adafactor is not built; write \"optim\": \"adamw_torch\" instead", NAMES("adafactor")},
    {"-1", "the models keep no states of earlier batches; leave it out", NAMES("past_index")},
    {OFF, "SageMaker's model parallelism is not built; leave it out", NAMES("mp_parameters")},
    {OFF, "write \"fsdp\": \"full_shard\" or zero_optimization.stage instead",
     NAMES("sharded_ddp")},
    {OFF, "it is not built; leave it out",
     NAMES("fp8_config", "megatron_lm_config", "hybrid_engine", "quantize_training",
           "compression_training", "data_efficiency", "curriculum_learning",
           "progressive_layer_drop", "eigenvalue")},
    // ---- other ways of training ----
    {OFF, "it chooses the batch: write train_batch_size; any mesh reads any checkpoint",
     NAMES("elasticity")},
    {OFF, "\"sharding\": \"auto\" chooses the sharding; leave it out", NAMES("autotuning")},
    {OFF, "attention is dense; leave it out", NAMES("sparse_attention")},
    {ONE, "pipelines are not built; leave it out", NAMES("pipeline")},
    {ONE, "tensor parallelism is not built; leave it out", NAMES("tensor_parallel")},
    {OFF, "experts are sharded as all parameters are; leave it out", NAMES("expert_parallel")},
    {OFF, "all weights are trained as they are; leave it out", NAMES("weight_quantization")},
};

foreign_key mics_config_foreign(int32_t index)
{
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        for (const char *const *path = groups[i].paths; *path != NULL; path++) {
            if (index-- == 0)
                return (foreign_key){*path, groups[i].only, groups[i].why};
        }
    }
    return (foreign_key){0};
}

mics_run_foreign_row mics_run_foreign(int32_t index)
{
    const foreign_key row = mics_config_foreign(index);
    return (mics_run_foreign_row){row.path, row.only != NULL ? row.only : "any", row.why};
}

bool mics_config_foreign_allows(int32_t index, const mics_json_value *value)
{
    const foreign_key row = mics_config_foreign(index);
    char text[VALUE_TEXT_BYTES];
    if (row.only == NULL)
        return true;
    if (strcmp(row.only, FOREIGN_ONE) == 0)
        return mics_config_value_one(value);
    if (strcmp(row.only, FOREIGN_EMPTY) == 0)
        return mics_config_value_off(value) && !mics_json_is_number(value) &&
               mics_json_count(value) == 0;
    return strcmp(row.only, FOREIGN_OFF) == 0
               ? mics_config_value_off(value)
               : strcmp(mics_config_value_text(value, text, sizeof text), row.only) == 0;
}

int32_t mics_config_find_foreign(const char *path)
{
    int32_t index = 0;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        for (const char *const *known = groups[i].paths; *known != NULL; known++, index++) {
            if (strcmp(*known, path) == 0)
                return index;
        }
    }
    return -1;
}
