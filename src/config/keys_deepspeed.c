// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The keys of DeepSpeed and SageMaker that are honoured, with DeepSpeed's defaults.
#include "config/key_rows.h"
#include "config/value.h"
#include <string.h>

static const char *const optimizers[] = {"Adam", "AdamW", "FusedAdam", NULL};
// In the order of mics_lr_kind, MICS_LR_CONSTANT apart.
static const char *const schedulers[] = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "WSD",
                                         NULL};
static const char *const warmups[] = {"log", "linear", NULL};
static const char *const comm_types[] = {"fp32", "bf16", "bfp16", NULL};

#define BY_PRECISION "auto: as run.precision"
#define IN_FP16 "; only for fp16"

static const key rows[] = {
    // ---- batch ----
    INT("train_batch_size", train_batch, 1, 1e12, 0, SHOW(run.global_batch),
        .automatic = "auto: micro-batch x micro-steps x ranks",
        .help = "sequences of a step, of all ranks"),
    INT("train_micro_batch_size_per_gpu", micro_batch, 1, MAX_RANKS, 0, SHOW(run.micro_batch),
        .automatic = "auto: train_batch_size / (micro-steps x ranks)",
        .help = "sequences of a micro-step, of one rank"),
    INT("gradient_accumulation_steps", micro_steps, 1, MAX_RANKS, 0, SHOW(run.micro_steps),
        .automatic = "auto: train_batch_size / (micro-batch x ranks), or 1",
        .help = "micro-steps of a step"),
    REAL("gradient_clipping", run.clip, 0, 1e30, 0, .flags = KEY_KEPT,
         .help = "largest norm of all gradients together; 0: no clipping"),
    // ---- optimizer ----
    SECTION("optimizer", .help = "AdamW when absent"),
    CHOICE("optimizer.type", optimizer, optimizers, "AdamW", .flags = KEY_KEPT,
           .help = "all are AdamW, as in DeepSpeed while adam_w_mode is true",
           .refusal = "only AdamW is built"),
    SECTION("optimizer.params", .help = "its numbers"),
    REAL("optimizer.params.lr", lr, 0, 1e6, 1e-3, .flags = KEY_KEPT,
         .help = "learning rate; the scheduler's peak unless it has warmup_max_lr"),
    {.path = "optimizer.params.betas",
     .type = KEY_BETAS,
     FIELD(betas),
     .flags = KEY_KEPT,
     .low = 0,
     .high = 0.9999999,
     .help = "decay of the two moments; default [0.9, 0.999]"},
    REAL("optimizer.params.eps", eps, 1e-30, 1, 1e-8, .flags = KEY_KEPT,
         .help = "added to the root of the second moment"),
    REAL("optimizer.params.weight_decay", run.optimizer.weight_decay, 0, 1e3, 0, .flags = KEY_KEPT,
         .help = "decoupled weight decay, of matrices and embeddings"),
    SWITCH("optimizer.params.adam_w_mode", adam_w_mode, true, .flags = KEY_KEPT,
           .help = "decoupled weight decay; false only without weight decay, where it is the same"),
    // ---- scheduler ----
    SECTION("scheduler", .help = "a constant learning rate when absent"),
    CHOICE("scheduler.type", scheduler, schedulers, NULL,
           .help = "DeepSpeed's three, and WSD: linear warm-up, stable, linear decay",
           .refusal = "only these four are built"),
    SECTION("scheduler.params", .help = "its numbers"),
    REAL("scheduler.params.warmup_min_lr", warmup_min_lr, 0, 1e6, 0,
         .flags = KEY_WARMUP | KEY_DECAY, .automatic = "auto: 0",
         .help = "learning rate where the warm-up starts"),
    REAL("scheduler.params.warmup_max_lr", warmup_max_lr, 0, 1e6, 0,
         .flags = KEY_WARMUP | KEY_DECAY, .automatic = "auto: optimizer.params.lr",
         .help = "learning rate after the warm-up; goes before optimizer.params.lr"),
    INT("scheduler.params.warmup_num_steps", warmup_steps, 0, MAX_STEPS, 1000,
        .flags = KEY_KEPT | KEY_SCHEDULERS,
        .help = "steps of the warm-up; 0 only for WSD, and 1 counts as 2 for the others, as in "
                "DeepSpeed"),
    CHOICE("scheduler.params.warmup_type", warmup_type, warmups, "log",
           .flags = KEY_KEPT | KEY_WARMUP | KEY_DECAY | KEY_COSINE, .help = "shape of the warm-up"),
    INT("scheduler.params.total_num_steps", total_steps, 1, MAX_STEPS, 0,
        .flags = KEY_DECAY | KEY_COSINE | KEY_WSD, .automatic = "auto: run.steps",
        .help = "step at which the decay ends"),
    REAL("scheduler.params.warmup_min_ratio", warmup_min_ratio, 0, 1, 0,
         .flags = KEY_KEPT | KEY_COSINE,
         .help = "share of the learning rate where the warm-up starts"),
    REAL("scheduler.params.cos_min_ratio", cos_min_ratio, 0, 1, 1e-4,
         .flags = KEY_KEPT | KEY_COSINE,
         .help = "share of the learning rate that is left in the end"),
    INT("scheduler.params.decay_num_steps", decay_steps, 0, MAX_STEPS, 0, .flags = KEY_WSD,
        .automatic = "auto: a tenth of total_num_steps",
        .help = "steps of the decay, the last ones of total_num_steps"),
    REAL("scheduler.params.min_ratio", min_ratio, 0, 1, 0, .flags = KEY_KEPT | KEY_WSD,
         .help = "share of the learning rate that is left in the end"),
    // ---- sharding ----
    SECTION("zero_optimization",
            .help = "the sharding in DeepSpeed's words; not together with \"sharding\""),
    INT("zero_optimization.stage", zero_stage, 0, 3, 0,
        .help = "0: ddp, 1: zero1, 2: zero2, 3: zero3, or by the next two keys"),
    INT("zero_optimization.mics_shard_size", shard_size, -1, MAX_RANKS, -1,
        .help = "p of mics(p), with stage 3; -1: off"),
    SWITCH("zero_optimization.mics_hierarchical_params_gather", hierarchical, false,
           .help = "true: run.collectives \"two-stage\", false: \"ring\", in DeepSpeed's words"),
    INT("zero_optimization.zero_hpz_partition_size", hpz_size, 0, MAX_RANKS, 1,
        .help = "p of hpz(p), with stage 3; 0 or 1: off"),
    SWITCH("zero_optimization.overlap_comm", overlap, true,
           .help = "false: nothing is gathered ahead (run.prefetch 0)"),
    INT("zero_optimization.stage3_param_persistence_threshold", zero_threshold, 0, MAX_ELEMS, 0,
        .automatic = "auto: run.param_persistence_threshold",
        .help = "as run.param_persistence_threshold, in DeepSpeed's words, but by unit and not by "
                "parameter"),
    INT("sharded_data_parallel_degree", sdp_degree, 1, MAX_RANKS, 0, .automatic = "auto: off",
        .help = "p of mics(p), in SageMaker's words"),
    SWITCH("sdp_hierarchical_allgather", sdp_hierarchical, false,
           .help = "true: run.collectives \"two-stage\", false: \"ring\", in SageMaker's words"),
    INT("hybrid_shard_degree", hybrid_degree, 1, MAX_RANKS, 0, .automatic = "auto: off",
        .help = "p of mics(p), in SageMaker's words"),
    INT("sdp_param_persistence_threshold", sdp_threshold, 0, MAX_ELEMS, 0,
        .automatic = "auto: run.param_persistence_threshold",
        .help = "as run.param_persistence_threshold, in SageMaker's words, but by unit and not by "
                "parameter"),
    // ---- precision ----
    SECTION("bf16", .help = "bf16 with fp32 masters"),
    SWITCH("bf16.enabled", bf16, false, .automatic = BY_PRECISION,
           .help = "as run.precision \"bf16\", in DeepSpeed's words"),
    SECTION("fp16", .help = "fp16 with fp32 masters and loss scaling"),
    SWITCH("fp16.enabled", fp16, false, .automatic = BY_PRECISION,
           .help = "as run.precision \"fp16\", in DeepSpeed's words"),
    REAL("fp16.loss_scale", loss_scale, 0, 1e30, 0, .flags = KEY_KEPT,
         .help =
             "factor of the loss; 0: as large as gradients allow, found while training" IN_FP16),
    INT("fp16.initial_scale_power", scale_power, 0, 60, 16, .flags = KEY_KEPT,
        .help = "the factor that is found starts at 2 to this power" IN_FP16),
    INT("fp16.loss_scale_window", run.loss_scale.window, 1, MAX_STEPS, 1000, .flags = KEY_KEPT,
        .help = "good steps in a row after which the factor doubles" IN_FP16),
    INT("fp16.hysteresis", run.loss_scale.hysteresis, 1, 1e6, 2, .flags = KEY_KEPT,
        .help = "steps that overflow before the factor halves; the step itself is left out at "
                "once" IN_FP16),
    REAL("fp16.min_loss_scale", run.loss_scale.least, 1e-30, 1e30, 1, .flags = KEY_KEPT,
         .help = "the factor does not go below; a step that overflows there ends the run" IN_FP16),
    SWITCH("fp16.consecutive_hysteresis", run.loss_scale.consecutive_hysteresis, false,
           .flags = KEY_KEPT,
           .help = "true: a good step gives hysteresis back, not only a doubling" IN_FP16),
    // ---- other keys of DeepSpeed ----
    INT("steps_per_print", steps_per_print, 1, 9.3e18, 0, .automatic = "auto: run.log_every",
        .help = "as run.log_every, in DeepSpeed's words"),
    CHOICE("communication_data_type", comm_type, comm_types, NULL,
           .help = "gradients everywhere, in DeepSpeed's words: run.comm_dtype.grads and "
                   ".boundary, and intra-node",
           .refusal = "fp16 would need loss scaling; use \"bf16\", which has fp32's range"),
};

const key_table mics_config_deepspeed_keys = {rows, sizeof rows / sizeof *rows};

mics_lr_kind mics_config_lr_kind(const char *scheduler)
{
    if (scheduler == NULL)
        return MICS_LR_CONSTANT;
    return (mics_lr_kind)(MICS_LR_WARMUP + mics_config_index_of(schedulers, scheduler));
}
