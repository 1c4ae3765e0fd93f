// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The keys of our own sections: model, data, run and sharding.
#include "config/key_rows.h"

// In the order of mics_run_device, mics_run_precision and mics_collectives.
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const precisions[] = {"auto", "fp32", "tf32", "bf16", "fp16", NULL};
static const char *const collectives[] = {"auto", "ring", "two-stage", "ring-gathers", NULL};
// In the order of mics_comm_dtype.
static const char *const dtypes[] = {"fp32", "bf16", NULL};
static const char *const boundary_dtypes[] = {"fp32", "bf16", "int8", NULL};

static const key rows[] = {
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
     .high = MAX_RANKS * 1024.0,
     .automatic = "auto: the model's positions",
     .help = "tokens of a sequence; 0: the model's positions"},
    // ---- run ----
    {.path = "run", .type = KEY_SECTION, .flags = KEY_REQUIRED, .help = "how long, and where to"},
    {.path = "run.steps",
     .type = KEY_INT,
     .flags = KEY_REQUIRED,
     FIELD(run.steps),
     .low = 1,
     .high = MAX_STEPS,
     .help = "optimizer steps"},
    {.path = "run.seed",
     .type = KEY_INT,
     .flags = KEY_KEPT,
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
     .high = MAX_STEPS,
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
     .high = MAX_STEPS,
     .help = "steps between validations; 0: only before and after"},
    {.path = "run.validation_batches",
     .type = KEY_INT,
     .flags = KEY_KEPT,
     FIELD(run.validation_batches),
     .low = 0,
     .high = 1e9,
     .value = 8,
     .help = "global batches that a validation reads; 0: no validation, nothing held out"},
    {.path = "run.log_every",
     .type = KEY_INT,
     FIELD(run.log_every),
     .low = 0,
     .high = MAX_STEPS,
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
     .high = MAX_STEPS,
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
     .flags = KEY_KEPT,
     FIELD(precision),
     .choices = precisions,
     .text = "auto",
     .help = "dtype of weights and arithmetic; \"bf16\" and \"fp16\" keep fp32 master weights; "
             "\"auto\": bf16 on cuda, fp32 on cpu, which has no other",
     .refusal = "no other precision is built"},
    {.path = "run.device",
     .type = KEY_CHOICE,
     FIELD(device),
     .choices = devices,
     .text = "auto",
     .help = "where it computes; \"auto\": cuda where a GPU can be used, else cpu",
     .refusal = "there are no other devices"},
    {.path = "run.gemm_autotune",
     .type = KEY_SWITCH,
     .flags = KEY_KEPT,
     FIELD(run.gemm_autotune),
     ANY_SWITCH,
     .help = "on cuda: true: each GEMM by the algorithm that is fastest here, kept in "
             "OUT/products.bin; false: by cuBLASLt's first choice"},
    {.path = "run.graphs",
     .type = KEY_SWITCH,
     FIELD(run.graphs),
     ANY_SWITCH,
     .help = "on cuda: the kernels of a unit's forward or backward are launched as one CUDA graph; "
             "same bits"},
    {.path = "run.threads",
     .type = KEY_INT,
     FIELD(run.threads),
     .low = 0,
     .high = 4096,
     .automatic = "auto: its share of the node's cores",
     .help = "CPU threads of a rank; 0: its share of the node's cores"},
    {.path = "run.memory_limit",
     .type = KEY_BYTES,
     FIELD(run.memory_limit_bytes),
     .low = 0,
     .high = 9.2e18,
     .automatic = "auto: what the machine has available",
     .help = "memory that a rank may use; 0: its share of what the machine has available"},
    {.path = "run.prefetch",
     .type = KEY_INT,
     FIELD(prefetch),
     SHOW(run.prefetch),
     .low = 0,
     .high = 1024,
     .value = 1,
     .automatic = "auto: the deepest of 3, 2, 1, 0 whose memory fits",
     .help = "units that are gathered ahead of the one that computes"},
    {.path = "run.layered_micro_steps",
     .type = KEY_INT,
     .flags = KEY_KEPT,
     FIELD(run.layered_micro_steps),
     .low = 1,
     .high = 1024,
     .value = 1,
     .help = "micro-batches in flight (layered accumulation): a unit is gathered once for so many; "
             "takes activations for each"},
    {.path = "run.collectives",
     .type = KEY_CHOICE,
     .flags = KEY_KEPT,
     FIELD(collectives),
     .choices = collectives,
     .text = "auto",
     .help = "algorithm of gathers and reductions; \"auto\": gathers as a short timing finds, "
             "reductions in two stages"},
    {.path = "run.param_persistence_threshold",
     .type = KEY_INT,
     .flags = KEY_KEPT,
     FIELD(run.param_persistence_threshold),
     .low = 0,
     .high = MAX_ELEMS,
     .value = 16384, // 64 KiB of fp32
     .help = "units of fewer elements stay whole on every rank; 0: none"},
    {.path = "run.coalesce_below",
     .type = KEY_INT,
     .flags = KEY_KEPT,
     FIELD(run.coalesce_below),
     .low = 0,
     .high = MAX_ELEMS,
     .value = 262144, // 1 MiB of fp32
     .help = "units of fewer elements share messages of at most so many at the accumulation "
             "boundary; 0: none"},
    {.path = "run.comm_dtype",
     .type = KEY_SECTION,
     .help = "what is sent as fewer bits than it is held in"},
    {.path = "run.comm_dtype.params",
     .type = KEY_CHOICE,
     .flags = KEY_KEPT,
     FIELD(params_dtype),
     .choices = dtypes,
     .text = "fp32",
     .help = "parameters, between nodes; \"bf16\" halves the bytes of gathers, and computes with "
             "parameters of 8 significant bits",
     .refusal = "parameters carry no error feedback, so fewer bits are not built"},
    {.path = "run.comm_dtype.grads",
     .type = KEY_CHOICE,
     .flags = KEY_KEPT,
     FIELD(grads_dtype),
     .choices = dtypes,
     .text = "fp32",
     .help = "gradients in each micro-step, between nodes; \"bf16\" rounds each contribution to 8 "
             "significant bits",
     .refusal = "\"int8\" is for run.comm_dtype.boundary"},
    {.path = "run.comm_dtype.boundary",
     .type = KEY_CHOICE,
     .flags = KEY_KEPT,
     FIELD(boundary_dtype),
     .choices = boundary_dtypes,
     .text = "fp32",
     .help = "gradients at the accumulation boundary, between nodes; \"int8\" sends 3/8 of an "
             "all-reduce's bytes, with error feedback"},
    {.path = "run.comm_dtype.bf16_intra_node",
     .type = KEY_SWITCH,
     .flags = KEY_KEPT,
     FIELD(bf16_intra_node),
     ANY_SWITCH,
     .help = "all three inside nodes: true: as bf16; false: as they are held"},
    {.path = "run.recompute",
     .type = KEY_SWITCH,
     .flags = KEY_KEPT,
     FIELD(run.recompute),
     ANY_SWITCH,
     .help = "activation recomputation: keep only each unit's input, and run its forward again in "
             "backward"},
    {.path = "run.share_params",
     .type = KEY_SWITCH,
     FIELD(run.share_params),
     ANY_SWITCH,
     .value = 1,
     .help = "ranks that share a node's memory share its parameters, where P fits into a node: "
             "gathers then copy nothing (CPU only)"},
    {.path = "run.comm_timeout_s",
     .type = KEY_REAL,
     FIELD(run.comm_timeout_s),
     .low = 0.1,
     .high = 1e6,
     .value = 300,
     .help = "seconds after which a collective that has not ended is an error; where ranks wait "
             "for files, an hour or 12 times as long"},
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
     .high = MAX_RANKS,
     .automatic = "auto: 1",
     .help = "ranks over which the parameters are sharded (P)"},
    {.path = "sharding.grads",
     .type = KEY_INT,
     FIELD(grads),
     SHOW(run.sharding.grads),
     .low = 1,
     .high = MAX_RANKS,
     .automatic = "auto: as sharding.params",
     .help = "ranks over which the gradients are sharded (G)"},
    {.path = "sharding.optimizer",
     .type = KEY_INT,
     FIELD(optimizer_degree),
     SHOW(run.sharding.optimizer),
     .low = 1,
     .high = MAX_RANKS,
     .automatic = "auto: as sharding.grads",
     .help = "ranks over which master weights and moments are sharded (O)"},
};

const key_table mics_config_own_keys = {rows, sizeof rows / sizeof *rows};

mics_collectives mics_config_collectives(const char *text)
{
    return (mics_collectives)mics_config_index_of(collectives, text);
}

const char *mics_config_collectives_text(mics_collectives of)
{
    return collectives[of];
}

mics_comm_dtype mics_config_wire(const char *text)
{
    return (mics_comm_dtype)mics_config_index_of(boundary_dtypes, text);
}

mics_run_device mics_config_device(const char *text)
{
    return (mics_run_device)mics_config_index_of(devices, text);
}

mics_run_precision mics_config_precision(const char *text)
{
    return (mics_run_precision)mics_config_index_of(precisions, text);
}

const char *mics_run_device_text(mics_run_device device)
{
    return devices[device];
}

const char *mics_run_precision_text(mics_run_precision precision)
{
    return precisions[precision];
}
