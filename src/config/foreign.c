// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys of DeepSpeed and SageMaker that have no counterpart here. What cannot change results is a
// hint and taken; what would change them may only stand there switched off.
#include "config/keys.h"
#include <string.h>

#define HINT NULL
#define OFF FOREIGN_OFF

#define WHOLE_UNITS "a unit is gathered and reduced whole, in one call"
#define ONE_BUFFER "a unit is one flat buffer"
#define ONE_ADAMW "there is one AdamW"
#define ALL_WEIGHTS "every checkpoint holds all weights"
#define IN_METRICS "metrics.jsonl in run.out has the same numbers"
#define NO_OFFLOAD "offload is not built; shard over more ranks, or set run.recompute"
#define NOT_BUILT "it is not built; leave it out"

static const foreign_key rows[] = {
    // ---- optimizer, scheduler ----
    {"optimizer.params.bias_correction", "true", "the moments are always corrected; use true"},
    {"optimizer.params.amsgrad", OFF, "AMSGrad is not built; use false"},
    {"optimizer.params.torch_adam", HINT, ONE_ADAMW},
    {"optimizer.params.fused", HINT, ONE_ADAMW},
    {"optimizer.params.max_grad_norm", OFF, "write it as gradient_clipping, at the top"},
    {"optimizer.legacy_fusion", HINT, ONE_ADAMW},
    {"zero_allow_untested_optimizer", HINT, ONE_ADAMW},
    {"zero_force_ds_cpu_optimizer", HINT, ONE_ADAMW},
    {"scheduler.params.last_batch_iteration", "-1",
     "where a run goes on stands in its checkpoint; leave it out"},
    // ---- sharding ----
    {"zero_optimization.reduce_bucket_size", HINT, WHOLE_UNITS},
    {"zero_optimization.allgather_bucket_size", HINT, WHOLE_UNITS},
    {"zero_optimization.stage3_prefetch_bucket_size", HINT, "run.prefetch counts units"},
    {"zero_optimization.stage3_max_live_parameters", HINT, WHOLE_UNITS},
    {"zero_optimization.stage3_max_reuse_distance", HINT, WHOLE_UNITS},
    {"zero_optimization.stage3_model_persistence_threshold", HINT, WHOLE_UNITS},
    {"zero_optimization.stage3_module_granularity_threshold", HINT, WHOLE_UNITS},
    {"zero_optimization.stage3_partition_stream_chunk_size", HINT, ONE_BUFFER},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", HINT, WHOLE_UNITS},
    {"zero_optimization.stage3_allgather_sequential", HINT, WHOLE_UNITS},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", HINT, ALL_WEIGHTS},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", HINT, ALL_WEIGHTS},
    {"zero_optimization.contiguous_gradients", HINT, ONE_BUFFER},
    {"zero_optimization.reduce_scatter", HINT, WHOLE_UNITS},
    {"zero_optimization.allgather_partitions", HINT, WHOLE_UNITS},
    {"zero_optimization.use_multi_rank_bucket_allreduce", HINT, WHOLE_UNITS},
    {"zero_optimization.round_robin_gradients", HINT, ONE_BUFFER},
    {"zero_optimization.memory_efficient_linear", HINT, "there is one linear"},
    {"zero_optimization.ignore_unused_parameters", HINT, "the models have no unused parameters"},
    {"zero_optimization.override_module_apply", HINT, "there are no modules"},
    {"zero_optimization.leaf_module", HINT, "there are no modules"},
    {"zero_optimization.load_from_fp32_weights", HINT, "checkpoints hold fp32 weights"},
    {"zero_optimization.elastic_checkpoint", HINT, "any mesh reads any checkpoint"},
    {"zero_optimization.pipeline_loading_checkpoint", HINT, "each rank reads its own part"},
    {"zero_optimization.legacy_stage1", HINT, "there is one stage 1"},
    {"zero_optimization.log_trace_cache_warnings", HINT, "the schedule is made once"},
    {"zero_optimization.enable_sanity_checks", HINT, "the checks are always on"},
    {"zero_optimization.sub_group_size", HINT, "it is for offload"},
    {"zero_optimization.cpu_offload_use_pin_memory", HINT, "it is for offload"},
    {"zero_optimization.offload_param", OFF, NO_OFFLOAD},
    {"zero_optimization.offload_optimizer", OFF, NO_OFFLOAD},
    {"zero_optimization.cpu_offload", OFF, NO_OFFLOAD},
    {"zero_optimization.cpu_offload_param", OFF, NO_OFFLOAD},
    {"zero_optimization.zero_quantized_weights", OFF,
     "parameters travel as fp32 or bf16; write \"run\": {\"comm_dtype\": {\"params\": "
     "\"bf16\"}} instead"},
    {"zero_optimization.zero_quantized_nontrainable_weights", OFF,
     "all parameters are trained; use false"},
    {"zero_optimization.zero_quantized_gradients", OFF,
     "write \"run\": {\"comm_dtype\": {\"boundary\": \"int8\"}} instead: inter-node, at the "
     "accumulation boundary alone, with error feedback"},
    {"zero_optimization.zeropp_loco_param", OFF,
     "run.comm_dtype.boundary \"int8\" has error feedback; leave it out"},
    {"zero_optimization.zenflow", OFF, "ZenFlow is not built; leave it out"},
    {"sdp_reduce_bucket_size", HINT, WHOLE_UNITS},
    {"sdp_max_live_parameters", HINT, WHOLE_UNITS},
    {"sdp_gradient_clipping", OFF, "write it as gradient_clipping"},
    // ---- precision ----
    {"bf16.immediate_grad_update", HINT, "gradients are summed in fp32 at once"},
    {"bf16.check_grad_overflow", HINT, "gradients that are not finite always end the run"},
    {"fp16.auto_cast", HINT, "inputs are tokens"},
    {"fp16.fp16_master_weights_and_grads", OFF, "master weights are fp32; use false"},
    {"amp", OFF, "write bf16.enabled or fp16.enabled instead"},
    {"torch_autocast", OFF, "write bf16.enabled or fp16.enabled instead"},
    {"data_types", OFF, "gradients are accumulated in fp32; leave it out"},
    {"prescale_gradients", OFF, "gradients are averaged once, in fp32; use false"},
    {"gradient_predivide_factor", "1", "gradients are averaged once, in fp32; use 1"},
    {"sparse_gradients", OFF, "gradients are dense; use false"},
    {"disable_allgather", OFF, "updated parameters always reach all ranks; use false"},
    // ---- monitors, profilers, checkpoints ----
    {"wall_clock_breakdown", HINT, "metrics.jsonl has each step's times"},
    {"timers", HINT, "metrics.jsonl has each step's times"},
    {"memory_breakdown", HINT, "mics explain shows what takes memory"},
    {"dump_state", HINT, "mics explain shows every resolved key"},
    {"tensorboard", HINT, "run.tensorboard names a folder for event files"},
    {"wandb", HINT, IN_METRICS},
    {"comet", HINT, IN_METRICS},
    {"csv_monitor", HINT, IN_METRICS},
    {"flops_profiler", HINT, "metrics.jsonl has tokens_per_s and mfu"},
    {"comms_logger", HINT, "metrics.jsonl has the bytes of each step"},
    {"checkpoint", HINT, "run.checkpoint_every and run.keep_checkpoints say what is saved"},
    {"activation_checkpointing", HINT, "run.recompute says whether activations are recomputed"},
    {"aio", HINT, "it is for offload"},
    {"compile", HINT, "nothing is compiled at run time"},
    // ---- other ways of training ----
    {"elasticity", OFF, "it chooses the batch; any mesh reads any checkpoint without it"},
    {"autotuning", OFF, "\"sharding\": \"auto\" chooses the sharding; leave it out"},
    {"sparse_attention", OFF, "attention is dense; leave it out"},
    {"pipeline", OFF, "pipelines are not built; leave it out"},
    {"tensor_parallel", OFF, "tensor parallelism is not built; leave it out"},
    {"hybrid_engine", OFF, NOT_BUILT},
    {"compression_training", OFF, NOT_BUILT},
    {"data_efficiency", OFF, NOT_BUILT},
    {"curriculum_learning", OFF, NOT_BUILT},
    {"progressive_layer_drop", OFF, NOT_BUILT},
    {"eigenvalue", OFF, NOT_BUILT},
};

_Static_assert(sizeof rows / sizeof *rows <= CONFIG_MAX_FOREIGN, "raise CONFIG_MAX_FOREIGN");

const foreign_key *mics_config_foreign(int32_t *count_out)
{
    *count_out = sizeof rows / sizeof *rows;
    return rows;
}

int32_t mics_config_find_foreign(const char *path)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].path, path) == 0)
            return (int32_t)i;
    }
    return -1;
}
