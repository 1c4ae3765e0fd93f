// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Every key of a run file. Defaults of DeepSpeed's keys are DeepSpeed's.
#include "config/keys.h"
#include <assert.h>
#include <string.h>

#define FIELD(member) .at = offsetof(config, member), .bytes = sizeof(((config *)0)->member)
#define SHOW(member)                                                                               \
    .show_at = offsetof(config, member), .show_bytes = sizeof(((config *)0)->member)
#define ANY_SWITCH .low = 0, .high = 1
#define ONLY_FALSE .low = 0, .high = 0

// Larger than any real run; what lies beyond is a mistake, and products stay far from overflow.
#define MOST_STEPS 1e12
#define MOST_RANKS 1048576
#define MOST_ELEMS 9.3e18 // of a unit; others write the largest integer for "all"

static const char *const optimizers[] = {"Adam", "AdamW", "FusedAdam", NULL};
static const char *const schedulers[] = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "WSD",
                                         NULL};
static const char *const warmups[] = {"log", "linear", NULL};
// In the order of mics_run_device and mics_run_precision.
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const precisions[] = {"auto", "fp32", "tf32", "bf16", "fp16", NULL};
// In the order of mics_collectives.
static const char *const collectives[] = {"auto", "measured", "ring", "two-stage", "library", NULL};
// In the order of mics_wire.
static const char *const wires[] = {"fp32", "bf16", NULL};
static const char *const hop_wires[] = {"fp32", "bf16", "int8", NULL};
static const char *const inside_wires[] = {"auto", "fp32", "bf16", NULL};
static const char *const comm_types[] = {"fp32", "bf16", "bfp16", NULL};

// A tuning hint for another engine's buckets and hooks.
#define HINT_INT(name, why)                                                                        \
    {                                                                                              \
        .path = name, .type = KEY_INT, .flags = KEY_HINT, .low = 0, .high = 9.3e18, .help = why    \
    }
#define HINT_SWITCH(name, why)                                                                     \
    {                                                                                              \
        .path = name, .type = KEY_SWITCH, .flags = KEY_HINT, ANY_SWITCH, .help = why               \
    }
#define NOT_BUILT(name, instead)                                                                   \
    {                                                                                              \
        .path = name, .type = KEY_REFUSED, .help = "must be off", .refusal = instead               \
    }
#define MUST_BE_FALSE(name, instead)                                                               \
    {                                                                                              \
        .path = name, .type = KEY_SWITCH, .flags = KEY_HINT, ONLY_FALSE, .help = "must be false",  \
        .refusal = instead                                                                         \
    }
#define WHOLE_UNITS "hint: no effect here, a unit is gathered and reduced whole, in one call"
#define ONE_BUFFER "hint: no effect here, a unit is one flat buffer"
#define BY_PRECISION "auto: as run.precision"
#define IN_FP16 "; only for fp16"

static const key keys[] = {
    // ---- model ----
    {.path = "model", .type = KEY_SECTION, .flags = KEY_REQUIRED, .help = "what is trained"},
    {.path = "model.config",
     .type = KEY_TEXT,
     .flags = KEY_REQUIRED,
     FIELD(run.model_config),
     .help = "a Hugging Face config.json"},
    {.path = "model.init",
     .type = KEY_TEXT,
     FIELD(run.model_init),
     .text = "random",
     .help = "\"random\", or a folder of safetensors to start from"},
    {.path = "model.dropout",
     .type = KEY_REAL,
     FIELD(dropout),
     .help = "0 trains without dropout, whatever the model's config says",
     .refusal = "dropout is not built; 0 trains without it"},
    // ---- data ----
    {.path = "data", .type = KEY_SECTION, .flags = KEY_REQUIRED, .help = "what it is trained on"},
    {.path = "data.train",
     .type = KEY_TEXTS,
     .flags = KEY_REQUIRED,
     FIELD(train),
     .low = 1,
     .high = 65536,
     .help = "text files or .bin token shards: paths or globs"},
    {.path = "data.validation",
     .type = KEY_TEXTS,
     FIELD(validation),
     .low = 0,
     .high = 65536,
     .help = "the same for validation; none: the last twentieth of data.train is held out"},
    {.path = "data.tokenizer",
     .type = KEY_TEXT,
     FIELD(run.tokenizer),
     .text = "bytes",
     .help = "\"bytes\", or a Hugging Face tokenizer.json"},
    {.path = "data.sequence_length",
     .type = KEY_INT,
     FIELD(run.sequence_length),
     .low = 0,
     .high = MOST_RANKS * 1024.0,
     .automatic = "auto: the model's positions",
     .help = "tokens of a sequence; 0: the model's positions"},
    // ---- run ----
    {.path = "run", .type = KEY_SECTION, .flags = KEY_REQUIRED, .help = "how long, and where to"},
    {.path = "run.steps",
     .type = KEY_INT,
     .flags = KEY_REQUIRED,
     FIELD(run.steps),
     .low = 1,
     .high = MOST_STEPS,
     .help = "optimizer steps"},
    {.path = "run.seed",
     .type = KEY_INT,
     FIELD(run.seed),
     .low = 0,
     .high = 9.3e18,
     .value = 1,
     .help = "of initial weights and the order of samples"},
    {.path = "run.out",
     .type = KEY_TEXT,
     FIELD(run.out),
     .automatic = "auto: runs/ and the run file's name",
     .help = "folder of metrics and checkpoints"},
    {.path = "run.checkpoint_every",
     .type = KEY_INT,
     FIELD(run.checkpoint_every),
     .low = 0,
     .high = MOST_STEPS,
     .help = "steps between checkpoints; 0: only at the end"},
    {.path = "run.keep_checkpoints",
     .type = KEY_INT,
     FIELD(run.keep_checkpoints),
     .low = 0,
     .high = 1e6,
     .value = 2,
     .help = "newest checkpoints that are kept; 0: all"},
    {.path = "run.validate_every",
     .type = KEY_INT,
     FIELD(run.validate_every),
     .low = 0,
     .high = MOST_STEPS,
     .help = "steps between validations; 0: only before and after"},
    {.path = "run.validation_batches",
     .type = KEY_INT,
     FIELD(run.validation_batches),
     .low = 0,
     .high = 1e9,
     .value = 8,
     .help = "global batches that a validation reads; 0: no validation, nothing held out"},
    {.path = "run.log_every",
     .type = KEY_INT,
     FIELD(run.log_every),
     .low = 0,
     .high = MOST_STEPS,
     .help = "steps between plain progress lines; 0: one every few seconds"},
    {.path = "run.cluster",
     .type = KEY_TEXT,
     FIELD(run.cluster),
     .text = "none",
     .help = "cluster file, or name in the catalogue, for which \"sharding\": \"auto\" is planned; "
             "\"none\": the smallest mics(p) that fits"},
    {.path = "run.trace_step",
     .type = KEY_INT,
     FIELD(run.trace_step),
     .low = 0,
     .high = MOST_STEPS,
     .help = "step from which trace.json in run.out shows what every rank did when; 0: none"},
    {.path = "run.trace_steps",
     .type = KEY_INT,
     FIELD(run.trace_steps),
     .low = 1,
     .high = 1000,
     .value = 1,
     .help = "how many steps that is"},
    {.path = "run.peak_tflops",
     .type = KEY_REAL,
     FIELD(run.peak_tflops),
     .low = 0,
     .high = 1e6,
     .help = "a rank's peak in TFLOP/s, for mfu in metrics.jsonl; 0: unknown, mfu is null"},
    {.path = "run.precision",
     .type = KEY_CHOICE,
     FIELD(precision),
     .choices = precisions,
     .text = "auto",
     .help = "numbers of weights and arithmetic; \"bf16\", \"fp16\" keep fp32 masters; \"auto\": "
             "bf16 on cuda, fp32 on cpu, which has no other",
     .refusal = "other numbers are not built"},
    {.path = "run.device",
     .type = KEY_CHOICE,
     FIELD(device),
     .choices = devices,
     .text = "auto",
     .help = "where it computes; \"auto\": cuda where a GPU can be used, else cpu",
     .refusal = "there are no other devices"},
    {.path = "run.time_products",
     .type = KEY_SWITCH,
     FIELD(run.time_products),
     ANY_SWITCH,
     .help = "on cuda: matrix products by the algorithm that is fastest here, kept in "
             "OUT/products.bin; false: by the one that cuBLASLt names first"},
    {.path = "run.graphs",
     .type = KEY_SWITCH,
     FIELD(run.graphs),
     ANY_SWITCH,
     .help =
         "on cuda: the kernels of a unit's forward or backward are launched as one CUDA graph; the "
         "same bits, and less time where kernels are short"},
    {.path = "run.threads",
     .type = KEY_INT,
     FIELD(run.threads),
     .low = 0,
     .high = 4096,
     .automatic = "auto: its share of the node's cores",
     .help = "threads of a rank; 0: its cores, and an equal part of those that it shares with "
             "other ranks"},
    {.path = "run.memory_limit",
     .type = KEY_BYTES,
     FIELD(run.memory_limit_bytes),
     .low = 0,
     .high = 9.2e18,
     .automatic = "auto: what the machine has available",
     .help = "memory a rank may use, in bytes or as \"8GiB\"; 0: what the machine has"},
    {.path = "run.prefetch",
     .type = KEY_INT,
     FIELD(prefetch),
     SHOW(run.prefetch),
     .low = 0,
     .high = 1024,
     .value = 1,
     .automatic = "auto: the deepest of 3, 2, 1, 0 whose memory fits",
     .help = "units gathered ahead of the one that computes"},
    {.path = "run.breadth",
     .type = KEY_INT,
     FIELD(run.breadth),
     .low = 1,
     .high = 1024,
     .value = 1,
     .help = "at most so many micro-steps run side by side, unit by unit, in turns as even as can "
             "be: a unit is gathered once for them, and the second hop has all their backwards to "
             "run beside; takes activations for each"},
    {.path = "run.collectives",
     .type = KEY_CHOICE,
     FIELD(collectives),
     .choices = collectives,
     .text = "auto",
     .help =
         "how gathers and reductions run; \"auto\": gathers as measured (the MPI library's only "
         "inside nodes), reductions in two stages"},
    {.path = "run.whole_below",
     .type = KEY_INT,
     FIELD(run.whole_below),
     .low = 0,
     .high = MOST_ELEMS,
     .value = 16384, // 64 KiB of fp32
     .help = "units of fewer elements stay whole on every rank, as latency costs more than their "
             "bytes; 0: none"},
    {.path = "run.join_below",
     .type = KEY_INT,
     FIELD(run.join_below),
     .low = 0,
     .high = MOST_ELEMS,
     .value = 262144, // 1 MiB of fp32
     .help = "units of fewer elements share messages of at most so many in what is sent once a "
             "step: publication and second hop; 0: none"},
    {.path = "run.wire",
     .type = KEY_SECTION,
     .help = "numbers as they travel; memory and sums are fp32 whatever it says"},
    {.path = "run.wire.gather",
     .type = KEY_CHOICE,
     FIELD(gather_wire),
     .choices = wires,
     .text = "fp32",
     .help = "of parameters; \"bf16\" halves the bytes of gathers, and computes with parameters "
             "of 8 significant bits where P > 1",
     .refusal = "parameters carry no error feedback, so fewer bits are not built"},
    {.path = "run.wire.gather_inside",
     .type = KEY_CHOICE,
     FIELD(gather_inside),
     .choices = inside_wires,
     .text = "auto",
     .help = "the same inside nodes, where run.wire.gather then says what travels between them; "
             "\"auto\": as run.wire.gather",
     .refusal = "parameters carry no error feedback, so fewer bits are not built"},
    {.path = "run.wire.reduce",
     .type = KEY_CHOICE,
     FIELD(reduce_wire),
     .choices = wires,
     .text = "fp32",
     .help = "of gradients inside the gradient group; \"bf16\" halves the bytes, and rounds each "
             "contribution to 8 significant bits in each stage",
     .refusal = "\"int8\" is for run.wire.second_hop"},
    {.path = "run.wire.reduce_inside",
     .type = KEY_CHOICE,
     FIELD(reduce_inside),
     .choices = inside_wires,
     .text = "auto",
     .help = "the same inside nodes, where run.wire.reduce then says what travels between them; "
             "\"auto\": as run.wire.reduce",
     .refusal = "\"int8\" is for run.wire.second_hop"},
    {.path = "run.wire.second_hop",
     .type = KEY_CHOICE,
     FIELD(second_hop_wire),
     .choices = hop_wires,
     .text = "fp32",
     .help = "of gradients at the accumulation boundary; \"int8\" takes 3/8 of an all-reduce's "
             "bytes (its sums go back as bf16), feeds back "
             "what it rounds off, and takes memory for that like the gradients'"},
    {.path = "run.wire.second_hop_inside",
     .type = KEY_CHOICE,
     FIELD(second_hop_inside),
     .choices = inside_wires,
     .text = "auto",
     .help = "the same inside nodes, where run.wire.second_hop then says what travels between "
             "them; \"auto\": as run.wire.second_hop, but fp32 for \"int8\" on several nodes",
     .refusal = "\"int8\" is for the links between nodes"},
    {.path = "run.recompute",
     .type = KEY_SWITCH,
     FIELD(run.recompute),
     ANY_SWITCH,
     .help = "keep only each unit's input and run its forward again in backward"},
    {.path = "run.share_params",
     .type = KEY_SWITCH,
     FIELD(run.share_params),
     ANY_SWITCH,
     .value = 1,
     .help = "ranks on processors of a node, where the partition group lies in one, keep its "
             "parameters in memory that all of them see: gathers then copy nothing"},
    {.path = "run.comm_timeout_s",
     .type = KEY_REAL,
     FIELD(run.comm_timeout_s),
     .low = 0.1,
     .high = 1e6,
     .value = 300,
     .help = "seconds after which a collective that has not ended is an error"},
    {.path = "run.files_timeout_s",
     .type = KEY_REAL,
     FIELD(run.files_timeout_s),
     .low = 0.1,
     .high = 1e6,
     .value = 3600,
     .help = "the same where ranks wait for one that reads or writes files, as in a save"},
    // ---- batch ----
    {.path = "train_batch_size",
     .type = KEY_INT,
     FIELD(train_batch),
     SHOW(run.global_batch),
     .low = 1,
     .high = 1e12,
     .automatic = "auto: micro-batch x micro-steps x ranks",
     .help = "sequences of a step, of all ranks"},
    {.path = "train_micro_batch_size_per_gpu",
     .type = KEY_INT,
     FIELD(micro_batch),
     SHOW(run.micro_batch),
     .low = 1,
     .high = MOST_RANKS,
     .automatic = "auto: train_batch_size / (micro-steps x ranks)",
     .help = "sequences of a micro-step, of one rank"},
    {.path = "gradient_accumulation_steps",
     .type = KEY_INT,
     FIELD(micro_steps),
     SHOW(run.micro_steps),
     .low = 1,
     .high = MOST_RANKS,
     .automatic = "auto: train_batch_size / (micro-batch x ranks), or 1",
     .help = "micro-steps of a step"},
    {.path = "gradient_clipping",
     .type = KEY_REAL,
     FIELD(run.clip),
     .low = 0,
     .high = 1e30,
     .help = "largest norm of all gradients together; 0: no clipping"},
    // ---- optimizer ----
    {.path = "optimizer", .type = KEY_SECTION, .help = "AdamW when absent"},
    {.path = "optimizer.type",
     .type = KEY_CHOICE,
     FIELD(optimizer),
     .choices = optimizers,
     .text = "AdamW",
     .help = "all are AdamW, as in DeepSpeed while adam_w_mode is true",
     .refusal = "only AdamW is built"},
    {.path = "optimizer.params", .type = KEY_SECTION, .help = "its numbers"},
    {.path = "optimizer.params.lr",
     .type = KEY_REAL,
     FIELD(lr),
     .low = 0,
     .high = 1e6,
     .value = 1e-3,
     .help = "learning rate; the scheduler's peak unless it has warmup_max_lr"},
    {.path = "optimizer.params.betas",
     .type = KEY_BETAS,
     FIELD(betas),
     .low = 0,
     .high = 0.9999999,
     .help = "decay of the two moments; default [0.9, 0.999]"},
    {.path = "optimizer.params.eps",
     .type = KEY_REAL,
     FIELD(eps),
     .low = 1e-30,
     .high = 1,
     .value = 1e-8,
     .help = "added to the root of the second moment"},
    {.path = "optimizer.params.weight_decay",
     .type = KEY_REAL,
     FIELD(run.optimizer.weight_decay),
     .low = 0,
     .high = 1e3,
     .help = "decoupled weight decay, of matrices and embeddings"},
    {.path = "optimizer.params.adam_w_mode",
     .type = KEY_SWITCH,
     FIELD(adam_w_mode),
     ANY_SWITCH,
     .value = 1,
     .help = "decoupled weight decay; false only without weight decay, where it is the same"},
    {.path = "optimizer.params.bias_correction",
     .type = KEY_SWITCH,
     .flags = KEY_HINT,
     .low = 1,
     .high = 1,
     .help = "must be true",
     .refusal = "the moments are always corrected; use true"},
    MUST_BE_FALSE("optimizer.params.amsgrad", "AMSGrad is not built; use false"),
    HINT_SWITCH("optimizer.params.torch_adam", "hint: no effect here, there is one AdamW"),
    HINT_SWITCH("optimizer.params.fused", "hint: no effect here, there is one AdamW"),
    NOT_BUILT("optimizer.params.max_grad_norm", "write it as gradient_clipping, at the top"),
    HINT_SWITCH("optimizer.legacy_fusion", "hint: no effect here, there is one AdamW"),
    // ---- scheduler ----
    {.path = "scheduler", .type = KEY_SECTION, .help = "a constant learning rate when absent"},
    {.path = "scheduler.type",
     .type = KEY_CHOICE,
     FIELD(scheduler),
     .choices = schedulers,
     .help = "DeepSpeed's three, and WSD: linear warm-up, stable, linear decay",
     .refusal = "only these four are built"},
    {.path = "scheduler.params", .type = KEY_SECTION, .help = "its numbers"},
    {.path = "scheduler.params.warmup_min_lr",
     .type = KEY_REAL,
     .flags = KEY_WARMUP | KEY_DECAY,
     FIELD(warmup_min_lr),
     .low = 0,
     .high = 1e6,
     .automatic = "auto: 0",
     .help = "learning rate where the warm-up starts"},
    {.path = "scheduler.params.warmup_max_lr",
     .type = KEY_REAL,
     .flags = KEY_WARMUP | KEY_DECAY,
     FIELD(warmup_max_lr),
     .low = 0,
     .high = 1e6,
     .automatic = "auto: optimizer.params.lr",
     .help = "learning rate after the warm-up; goes before optimizer.params.lr"},
    {.path = "scheduler.params.warmup_num_steps",
     .type = KEY_INT,
     .flags = KEY_SCHEDULERS,
     FIELD(warmup_steps),
     .low = 0,
     .high = MOST_STEPS,
     .value = 1000,
     .help =
         "steps of the warm-up; 0 only for WSD, and 1 counts as 2 for the others, as in DeepSpeed"},
    {.path = "scheduler.params.warmup_type",
     .type = KEY_CHOICE,
     .flags = KEY_WARMUP | KEY_DECAY | KEY_COSINE,
     FIELD(warmup_type),
     .choices = warmups,
     .text = "log",
     .help = "shape of the warm-up"},
    {.path = "scheduler.params.total_num_steps",
     .type = KEY_INT,
     .flags = KEY_DECAY | KEY_COSINE | KEY_WSD,
     FIELD(total_steps),
     .low = 1,
     .high = MOST_STEPS,
     .automatic = "auto: run.steps",
     .help = "step at which the decay ends"},
    {.path = "scheduler.params.warmup_min_ratio",
     .type = KEY_REAL,
     .flags = KEY_COSINE,
     FIELD(warmup_min_ratio),
     .low = 0,
     .high = 1,
     .help = "share of the learning rate where the warm-up starts"},
    {.path = "scheduler.params.cos_min_ratio",
     .type = KEY_REAL,
     .flags = KEY_COSINE,
     FIELD(cos_min_ratio),
     .low = 0,
     .high = 1,
     .value = 1e-4,
     .help = "share of the learning rate that is left in the end"},
    {.path = "scheduler.params.decay_num_steps",
     .type = KEY_INT,
     .flags = KEY_WSD,
     FIELD(decay_steps),
     .low = 0,
     .high = MOST_STEPS,
     .automatic = "auto: a tenth of total_num_steps",
     .help = "steps of the decay, the last ones of total_num_steps"},
    {.path = "scheduler.params.min_ratio",
     .type = KEY_REAL,
     .flags = KEY_WSD,
     FIELD(min_ratio),
     .low = 0,
     .high = 1,
     .help = "share of the learning rate that is left in the end"},
    {.path = "scheduler.params.last_batch_iteration",
     .type = KEY_INT,
     .flags = KEY_HINT,
     .low = -1,
     .high = -1,
     .help = "must be -1",
     .refusal = "where a run goes on stands in its checkpoint; leave it out"},
    // ---- sharding ----
    {.path = "sharding",
     .type = KEY_SECTION,
     .automatic = "auto: the smallest mics(p) whose memory fits",
     .help =
         "ranks that share one copy of each state, or \"auto\": the smallest mics(p) that fits"},
    {.path = "sharding.params",
     .type = KEY_INT,
     FIELD(params),
     SHOW(run.sharding.params),
     .low = 1,
     .high = MOST_RANKS,
     .automatic = "auto: 1",
     .help = "ranks over which the parameters are sharded (P)"},
    {.path = "sharding.grads",
     .type = KEY_INT,
     FIELD(grads),
     SHOW(run.sharding.grads),
     .low = 1,
     .high = MOST_RANKS,
     .automatic = "auto: as sharding.params",
     .help = "ranks over which the gradients are sharded (G)"},
    {.path = "sharding.optimizer",
     .type = KEY_INT,
     FIELD(optimizer_degree),
     SHOW(run.sharding.optimizer),
     .low = 1,
     .high = MOST_RANKS,
     .automatic = "auto: as sharding.grads",
     .help = "ranks over which master weights and moments are sharded (O)"},
    {.path = "zero_optimization",
     .type = KEY_SECTION,
     .help = "the sharding in DeepSpeed's words; not together with \"sharding\""},
    {.path = "zero_optimization.stage",
     .type = KEY_INT,
     FIELD(zero_stage),
     .low = 0,
     .high = 3,
     .help = "0: ddp, 1: zero1, 2: zero2, 3: zero3, or by the next two keys"},
    {.path = "zero_optimization.mics_shard_size",
     .type = KEY_INT,
     FIELD(shard_size),
     .low = -1,
     .high = MOST_RANKS,
     .value = -1,
     .help = "p of mics(p), with stage 3; -1: off"},
    {.path = "zero_optimization.mics_hierarchical_params_gather",
     .type = KEY_SWITCH,
     FIELD(hierarchical),
     ANY_SWITCH,
     .help = "true: run.collectives \"two-stage\", false: \"ring\", in DeepSpeed's words"},
    {.path = "zero_optimization.zero_hpz_partition_size",
     .type = KEY_INT,
     FIELD(hpz_size),
     .low = 0,
     .high = MOST_RANKS,
     .value = 1,
     .help = "p of hpz(p), with stage 3; 0 or 1: off"},
    {.path = "zero_optimization.overlap_comm",
     .type = KEY_SWITCH,
     FIELD(overlap),
     ANY_SWITCH,
     .value = 1,
     .help = "false: nothing is gathered ahead (run.prefetch 0)"},
    HINT_INT("zero_optimization.reduce_bucket_size", WHOLE_UNITS),
    HINT_INT("zero_optimization.allgather_bucket_size", WHOLE_UNITS),
    HINT_INT("zero_optimization.stage3_prefetch_bucket_size",
             "hint: no effect here, run.prefetch counts units"),
    HINT_INT("zero_optimization.stage3_max_live_parameters", WHOLE_UNITS),
    HINT_INT("zero_optimization.stage3_max_reuse_distance", WHOLE_UNITS),
    {.path = "zero_optimization.stage3_param_persistence_threshold",
     .type = KEY_INT,
     FIELD(zero_threshold),
     .low = 0,
     .high = MOST_ELEMS,
     .automatic = "auto: run.whole_below",
     .help = "as run.whole_below, in DeepSpeed's words, but by unit and not by parameter"},
    HINT_INT("zero_optimization.stage3_model_persistence_threshold", WHOLE_UNITS),
    HINT_INT("zero_optimization.stage3_module_granularity_threshold", WHOLE_UNITS),
    HINT_INT("zero_optimization.stage3_partition_stream_chunk_size", ONE_BUFFER),
    HINT_SWITCH("zero_optimization.stage3_use_all_reduce_for_fetch_params", WHOLE_UNITS),
    HINT_SWITCH("zero_optimization.stage3_allgather_sequential", WHOLE_UNITS),
    HINT_SWITCH("zero_optimization.stage3_gather_16bit_weights_on_model_save",
                "hint: no effect here, every checkpoint holds all weights"),
    HINT_SWITCH("zero_optimization.stage3_gather_fp16_weights_on_model_save",
                "hint: no effect here, every checkpoint holds all weights"),
    HINT_SWITCH("zero_optimization.contiguous_gradients", ONE_BUFFER),
    HINT_SWITCH("zero_optimization.reduce_scatter", WHOLE_UNITS),
    HINT_SWITCH("zero_optimization.allgather_partitions", WHOLE_UNITS),
    HINT_SWITCH("zero_optimization.use_multi_rank_bucket_allreduce", WHOLE_UNITS),
    HINT_SWITCH("zero_optimization.round_robin_gradients", ONE_BUFFER),
    HINT_SWITCH("zero_optimization.memory_efficient_linear",
                "hint: no effect here, there is one linear"),
    HINT_SWITCH("zero_optimization.ignore_unused_parameters",
                "hint: no effect here, the models have no unused parameters"),
    HINT_SWITCH("zero_optimization.override_module_apply", "hint: no effect here, no modules"),
    HINT_SWITCH("zero_optimization.load_from_fp32_weights",
                "hint: no effect here, weights are fp32"),
    HINT_SWITCH("zero_optimization.log_trace_cache_warnings",
                "hint: no effect here, the schedule is made once"),
    HINT_SWITCH("zero_optimization.enable_sanity_checks",
                "hint: no effect here, the checks are always on"),
    HINT_INT("zero_optimization.sub_group_size", "hint: no effect here, only for offload"),
    NOT_BUILT("zero_optimization.offload_param",
              "offload is not built; shard over more ranks, or set run.recompute"),
    NOT_BUILT("zero_optimization.offload_optimizer",
              "offload is not built; shard the optimizer state over more ranks"),
    NOT_BUILT("zero_optimization.cpu_offload", "offload is not built; use false"),
    NOT_BUILT("zero_optimization.cpu_offload_param", "offload is not built; use false"),
    NOT_BUILT("zero_optimization.cpu_offload_use_pin_memory", "offload is not built; use false"),
    NOT_BUILT(
        "zero_optimization.zero_quantized_weights",
        "parameters travel as fp32 or bf16; write \"run\": {\"wire\": {\"gather\": \"bf16\"}} "
        "instead"),
    NOT_BUILT("zero_optimization.zero_quantized_nontrainable_weights",
              "all parameters are trained; use false"),
    NOT_BUILT(
        "zero_optimization.zero_quantized_gradients",
        "write \"run\": {\"wire\": {\"second_hop\": \"int8\"}} instead: blocks of 256, on the "
        "second hop alone, with error feedback"),
    NOT_BUILT("zero_optimization.zeropp_loco_param",
              "run.wire.second_hop \"int8\" has error feedback; leave it out"),
    NOT_BUILT("zero_optimization.elastic_checkpoint",
              "any mesh reads any checkpoint without it; use false"),
    NOT_BUILT("zero_optimization.legacy_stage1", "there is one stage 1; use false"),
    NOT_BUILT("zero_optimization.pipeline_loading_checkpoint", "use false"),
    NOT_BUILT("zero_optimization.leaf_module", "the models have no modules; leave it out"),
    NOT_BUILT("zero_optimization.zenflow", "ZenFlow is not built; leave it out"),
    {.path = "sharded_data_parallel_degree",
     .type = KEY_INT,
     FIELD(sdp_degree),
     .low = 1,
     .high = MOST_RANKS,
     .automatic = "auto: off",
     .help = "p of mics(p), in SageMaker's words"},
    {.path = "sdp_hierarchical_allgather",
     .type = KEY_SWITCH,
     FIELD(sdp_hierarchical),
     ANY_SWITCH,
     .help = "true: run.collectives \"two-stage\", false: \"ring\", in SageMaker's words"},
    {.path = "hybrid_shard_degree",
     .type = KEY_INT,
     FIELD(hybrid_degree),
     .low = 1,
     .high = MOST_RANKS,
     .automatic = "auto: off",
     .help = "p of mics(p), in SageMaker's words"},
    HINT_INT("sdp_reduce_bucket_size", WHOLE_UNITS),
    {.path = "sdp_param_persistence_threshold",
     .type = KEY_INT,
     FIELD(sdp_threshold),
     .low = 0,
     .high = MOST_ELEMS,
     .automatic = "auto: run.whole_below",
     .help = "as run.whole_below, in SageMaker's words, but by unit and not by parameter"},
    HINT_INT("sdp_max_live_parameters", WHOLE_UNITS),
    NOT_BUILT("sdp_gradient_clipping", "write it as gradient_clipping"),
    // ---- precision ----
    {.path = "bf16", .type = KEY_SECTION, .help = "bf16 with fp32 masters"},
    {.path = "bf16.enabled",
     .type = KEY_SWITCH,
     FIELD(bf16),
     ANY_SWITCH,
     .automatic = BY_PRECISION,
     .help = "as run.precision \"bf16\", in DeepSpeed's words"},
    HINT_SWITCH("bf16.immediate_grad_update",
                "hint: no effect here, gradients are summed in fp32 at once"),
    HINT_SWITCH("bf16.check_grad_overflow",
                "hint: no effect here, gradients that are not finite always end the run"),
    {.path = "fp16", .type = KEY_SECTION, .help = "fp16 with fp32 masters and loss scaling"},
    {.path = "fp16.enabled",
     .type = KEY_SWITCH,
     FIELD(fp16),
     ANY_SWITCH,
     .automatic = BY_PRECISION,
     .help = "as run.precision \"fp16\", in DeepSpeed's words"},
    {.path = "fp16.loss_scale",
     .type = KEY_REAL,
     FIELD(loss_scale),
     .low = 0,
     .high = 1e30,
     .help = "factor of the loss; 0: as large as gradients allow, found while training" IN_FP16},
    {.path = "fp16.initial_scale_power",
     .type = KEY_INT,
     FIELD(scale_power),
     .low = 0,
     .high = 60,
     .value = 16,
     .help = "the factor that is found starts at 2 to this power" IN_FP16},
    {.path = "fp16.loss_scale_window",
     .type = KEY_INT,
     FIELD(run.loss_scale.window),
     .low = 1,
     .high = MOST_STEPS,
     .value = 1000,
     .help = "good steps in a row after which the factor doubles" IN_FP16},
    {.path = "fp16.hysteresis",
     .type = KEY_INT,
     FIELD(run.loss_scale.hysteresis),
     .low = 1,
     .high = 1e6,
     .value = 2,
     .help = "steps that overflow before the factor halves; the step itself is left out at "
             "once" IN_FP16},
    {.path = "fp16.min_loss_scale",
     .type = KEY_REAL,
     FIELD(run.loss_scale.least),
     .low = 1e-30,
     .high = 1e30,
     .value = 1,
     .help = "the factor does not go below; a step that overflows there ends the run" IN_FP16},
    {.path = "fp16.consecutive_hysteresis",
     .type = KEY_SWITCH,
     FIELD(run.loss_scale.consecutive_hysteresis),
     ANY_SWITCH,
     .help = "true: a good step gives hysteresis back, not only a doubling" IN_FP16},
    HINT_SWITCH("fp16.auto_cast", "hint: no effect here, inputs are tokens"),
    MUST_BE_FALSE("fp16.fp16_master_weights_and_grads", "masters are fp32; use false"),
    // ---- other keys of DeepSpeed ----
    {.path = "steps_per_print",
     .type = KEY_INT,
     FIELD(steps_per_print),
     .low = 1,
     .high = 9.3e18,
     .automatic = "auto: run.log_every",
     .help = "as run.log_every, in DeepSpeed's words"},
    HINT_SWITCH("zero_allow_untested_optimizer", "hint: no effect here, there is one AdamW"),
    HINT_SWITCH("zero_force_ds_cpu_optimizer", "hint: no effect here, there is one AdamW"),
    HINT_SWITCH("wall_clock_breakdown",
                "hint: no effect here, metrics.jsonl has each step's times"),
    HINT_SWITCH("memory_breakdown", "hint: no effect here, mics explain shows what takes memory"),
    HINT_SWITCH("dump_state", "hint: no effect here, mics explain shows every resolved key"),
    MUST_BE_FALSE("prescale_gradients", "gradients are averaged once, in fp32; use false"),
    MUST_BE_FALSE("sparse_gradients", "gradients are dense; use false"),
    MUST_BE_FALSE("disable_allgather", "use false"),
    {.path = "gradient_predivide_factor",
     .type = KEY_REAL,
     .flags = KEY_HINT,
     .low = 1,
     .high = 1,
     .help = "must be 1",
     .refusal = "gradients are averaged once, in fp32; use 1"},
    {.path = "communication_data_type",
     .type = KEY_CHOICE,
     FIELD(comm_type),
     .choices = comm_types,
     .help = "run.wire.reduce and run.wire.second_hop in DeepSpeed's words",
     .refusal = "fp16 would need loss scaling; use \"bf16\", which has fp32's range"},
    NOT_BUILT("activation_checkpointing", "write \"run\": {\"recompute\": true} instead"),
    NOT_BUILT("amp", "write bf16.enabled or fp16.enabled instead"),
    NOT_BUILT("torch_autocast", "write bf16.enabled or fp16.enabled instead"),
    NOT_BUILT("data_types", "gradients are accumulated in fp32; leave it out"),
    NOT_BUILT("tensorboard", "metrics.jsonl in run.out has the same numbers; leave it out"),
    NOT_BUILT("wandb", "metrics.jsonl in run.out has the same numbers; leave it out"),
    NOT_BUILT("comet", "metrics.jsonl in run.out has the same numbers; leave it out"),
    NOT_BUILT("csv_monitor", "metrics.jsonl in run.out has the same numbers; leave it out"),
    NOT_BUILT("flops_profiler", "metrics.jsonl has tokens_per_s and mfu; leave it out"),
    NOT_BUILT("comms_logger", "metrics.jsonl has the bytes of each step; leave it out"),
    NOT_BUILT("timers", "metrics.jsonl has each step's times; leave it out"),
    NOT_BUILT("aio", "offload is not built; leave it out"),
    NOT_BUILT("checkpoint", "write run.checkpoint_every and run.keep_checkpoints instead"),
    NOT_BUILT("elasticity", "any mesh reads any checkpoint without it; leave it out"),
    NOT_BUILT("autotuning", "\"sharding\": \"auto\" chooses the sharding; leave it out"),
    NOT_BUILT("sparse_attention", "attention is dense; leave it out"),
    NOT_BUILT("pipeline", "pipelines are not built; leave it out"),
    NOT_BUILT("tensor_parallel", "tensor parallelism is not built; leave it out"),
    NOT_BUILT("hybrid_engine", "it is not built; leave it out"),
    NOT_BUILT("compression_training", "it is not built; leave it out"),
    NOT_BUILT("data_efficiency", "it is not built; leave it out"),
    NOT_BUILT("curriculum_learning", "it is not built; leave it out"),
    NOT_BUILT("progressive_layer_drop", "it is not built; leave it out"),
    NOT_BUILT("eigenvalue", "it is not built; leave it out"),
    NOT_BUILT("compile", "nothing is compiled at run time; leave it out"),
};

enum { KEY_COUNT = sizeof keys / sizeof *keys };
_Static_assert((int)KEY_COUNT <= (int)CONFIG_KEY_LIMIT, "raise CONFIG_KEY_LIMIT");

const key *mics_config_keys(int32_t *count_out)
{
    *count_out = KEY_COUNT;
    return keys;
}

int32_t mics_config_find(const char *path)
{
    for (int32_t i = 0; i < KEY_COUNT; i++) {
        if (strcmp(keys[i].path, path) == 0)
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
    return run->states[index] != KEY_ABSENT;
}

bool mics_config_valued(const config *run, const char *path)
{
    int32_t index = mics_config_find(path);
    assert(index >= 0);
    return run->states[index] == KEY_FROM_FILE || run->states[index] == KEY_FROM_SET;
}

mics_lr_kind mics_config_lr_kind(const char *scheduler)
{
    for (int i = 0; scheduler != NULL && schedulers[i] != NULL; i++) {
        if (strcmp(schedulers[i], scheduler) == 0)
            return (mics_lr_kind)(MICS_LR_WARMUP + i);
    }
    return MICS_LR_CONSTANT;
}

// Where a text stands in a list of choices, which it was taken from.
static int index_of(const char *const *choices, const char *text)
{
    int at = 0;
    while (choices[at] != NULL && strcmp(choices[at], text) != 0)
        at++;
    assert(choices[at] != NULL);
    return at;
}

mics_collectives mics_config_collectives(const char *text)
{
    return (mics_collectives)index_of(collectives, text);
}

mics_wire mics_config_wire(const char *text)
{
    return (mics_wire)index_of(hop_wires, text);
}

mics_run_device mics_config_device(const char *text)
{
    return (mics_run_device)index_of(devices, text);
}

mics_run_precision mics_config_precision(const char *text)
{
    return (mics_run_precision)index_of(precisions, text);
}

const char *mics_run_device_text(mics_run_device device)
{
    return devices[device];
}

const char *mics_run_precision_text(mics_run_precision precision)
{
    return precisions[precision];
}
