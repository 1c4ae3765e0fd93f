// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The keys of our own sections: model, data, run and sharding.
#include "config/key_rows.h"
#include "config/value.h"

// In the order of mics_run_device, mics_run_precision and mics_collectives.
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const precisions[] = {"auto", "fp32", "tf32", "bf16", "fp16", NULL};
static const char *const collectives[] = {"auto", "measured", "ring", "two-stage", "library", NULL};
// In the order of mics_comm_dtype.
static const char *const dtypes[] = {"fp32", "bf16", NULL};
static const char *const boundary_dtypes[] = {"fp32", "bf16", "int8", NULL};

// As fp32.
#define ELEMS_OF_64_KIB 16384
#define ELEMS_OF_1_MIB 262144

static const key rows[] = {
    // ---- model ----
    SECTION("model", .flags = KEY_REQUIRED, .help = "what is trained"),
    TEXT("model.config", run.model_config, .flags = KEY_REQUIRED,
         .help = "a Hugging Face config.json"),
    TEXT("model.init", run.model_init, .text = "random",
         .help = "\"random\", or a folder of safetensors to start from"),
    REAL("model.dropout", dropout, 0, 0, 0,
         .help = "0 trains without dropout, whatever the model's config says",
         .refusal = "dropout is not built; 0 trains without it"),
    // ---- data ----
    SECTION("data", .flags = KEY_REQUIRED, .help = "what it is trained on"),
    NUMBER("data.train", KEY_TEXTS, train, 1, 65536, 0, .flags = KEY_REQUIRED,
           .help = "text files or .bin token shards: paths or globs"),
    NUMBER("data.validation", KEY_TEXTS, validation, 0, 65536, 0,
           .help = "the same for validation; none: the last twentieth of data.train is held out"),
    TEXT("data.tokenizer", run.tokenizer, .text = "bytes",
         .help = "\"bytes\", or a Hugging Face tokenizer.json"),
    INT("data.sequence_length", run.sequence_length, 0, MAX_RANKS * 1024.0, 0,
        .automatic = "auto: the model's positions",
        .help = "tokens of a sequence; 0: the model's positions"),
    // ---- run ----
    SECTION("run", .flags = KEY_REQUIRED, .help = "how long, and where to"),
    INT("run.steps", run.steps, 1, MAX_STEPS, 0, .flags = KEY_REQUIRED, .help = "optimizer steps"),
    INT("run.seed", run.seed, 0, 9.3e18, 1, .flags = KEY_KEPT,
        .help = "of initial weights and the order of samples"),
    TEXT("run.out", run.out, .automatic = "auto: runs/ and the run file's name",
         .help = "folder of metrics and checkpoints"),
    INT("run.checkpoint_every", run.checkpoint_every, 0, MAX_STEPS, 0,
        .help = "steps between checkpoints; 0: only at the end"),
    INT("run.keep_checkpoints", run.keep_checkpoints, 0, 1e6, 2,
        .help = "newest checkpoints that are kept; 0: all"),
    INT("run.validate_every", run.validate_every, 0, MAX_STEPS, 0,
        .help = "steps between validations; 0: only before and after"),
    INT("run.validation_batches", run.validation_batches, 0, 1e9, 8, .flags = KEY_KEPT,
        .help = "global batches that a validation reads; 0: no validation, nothing held out"),
    INT("run.log_every", run.log_every, 0, MAX_STEPS, 0,
        .help = "steps between plain progress lines; 0: one every few seconds"),
    TEXT("run.cluster", run.cluster, .text = "none",
         .help = "cluster file, or name in the catalogue, for which \"sharding\": \"auto\" is "
                 "planned; \"none\": the smallest mics(p) that fits"),
    INT("run.trace_step", run.trace_step, 0, MAX_STEPS, 0,
        .help = "step from which trace.json in run.out shows what every rank did when; 0: none"),
    INT("run.trace_steps", run.trace_steps, 1, 1000, 1, .help = "how many steps that is"),
    REAL("run.peak_tflops", run.peak_tflops, 0, 1e6, 0,
         .help = "a rank's peak in TFLOP/s, for mfu in metrics.jsonl; 0: unknown, mfu is null"),
    CHOICE("run.precision", precision, precisions, "auto", .flags = KEY_KEPT,
           .help = "dtype of weights and arithmetic; \"bf16\" and \"fp16\" keep fp32 master "
                   "weights; \"auto\": bf16 on cuda, fp32 on cpu, which has no other",
           .refusal = "no other precision is built"),
    CHOICE("run.device", device, devices, "auto",
           .help = "where it computes; \"auto\": cuda where a GPU can be used, else cpu",
           .refusal = "there are no other devices"),
    SWITCH("run.gemm_autotune", run.gemm_autotune, false, .flags = KEY_KEPT,
           .help = "on cuda: true: each GEMM by the algorithm that is fastest here, kept in "
                   "OUT/products.bin; false: by cuBLASLt's first choice"),
    SWITCH("run.graphs", run.graphs, false,
           .help = "on cuda: the kernels of a unit's forward or backward are launched as one CUDA "
                   "graph; same bits"),
    INT("run.threads", run.threads, 0, 4096, 0, .automatic = "auto: its share of the node's cores",
        .help = "CPU threads of a rank; 0: its share of the node's cores"),
    BYTES("run.memory_limit", run.memory_limit_bytes, 0, 9.2e18, 0,
          .automatic = "auto: what the machine has available",
          .help = "memory that a rank may use; 0: its share of what the machine has available"),
    INT("run.prefetch", prefetch, 0, 1024, 1, SHOW(run.prefetch),
        .automatic = "auto: the deepest of 3, 2, 1, 0 whose memory fits",
        .help = "units that are gathered ahead of the one that computes"),
    INT("run.layered_micro_steps", run.layered_micro_steps, 1, 1024, 1, .flags = KEY_KEPT,
        .help = "micro-batches in flight (layered accumulation): a unit is gathered once for so "
                "many; takes activations for each"),
    CHOICE("run.collectives", collectives, collectives, "auto", .flags = KEY_KEPT,
           .help = "algorithm of gathers and reductions; \"auto\": gathers as measured, reductions "
                   "in two stages"),
    INT("run.param_persistence_threshold", run.param_persistence_threshold, 0, MAX_ELEMS,
        ELEMS_OF_64_KIB, .flags = KEY_KEPT,
        .help = "units of fewer elements stay whole on every rank; 0: none"),
    INT("run.coalesce_below", run.coalesce_below, 0, MAX_ELEMS, ELEMS_OF_1_MIB, .flags = KEY_KEPT,
        .help = "units of fewer elements share messages of at most so many at the accumulation "
                "boundary; 0: none"),
    SECTION("run.comm_dtype", .help = "what is sent as fewer bits than it is held in"),
    CHOICE("run.comm_dtype.params", params_dtype, dtypes, "fp32", .flags = KEY_KEPT,
           .help = "parameters, inter-node; \"bf16\" halves the bytes of gathers, and computes "
                   "with parameters of 8 significant bits",
           .refusal = "parameters carry no error feedback, so fewer bits are not built"),
    CHOICE("run.comm_dtype.grads", grads_dtype, dtypes, "fp32", .flags = KEY_KEPT,
           .help = "gradients in each micro-step, inter-node; \"bf16\" rounds each contribution "
                   "to 8 significant bits",
           .refusal = "\"int8\" is for run.comm_dtype.boundary"),
    CHOICE("run.comm_dtype.boundary", boundary_dtype, boundary_dtypes, "fp32", .flags = KEY_KEPT,
           .help = "gradients at the accumulation boundary, inter-node; \"int8\" sends 3/8 of "
                   "an all-reduce's bytes, with error feedback"),
    SWITCH("run.comm_dtype.bf16_intra_node", bf16_intra_node, false, .flags = KEY_KEPT,
           .help = "all three intra-node: true: as bf16; false: as they are held"),
    SWITCH("run.recompute", run.recompute, false, .flags = KEY_KEPT,
           .help = "activation recomputation: keep only each unit's input, and run its forward "
                   "again in backward"),
    SWITCH("run.share_params", run.share_params, true,
           .help = "ranks that share a node's memory share its parameters, where P fits into a "
                   "node: gathers then copy nothing (CPU only)"),
    REAL("run.comm_timeout_s", run.comm_timeout_s, 0.1, 1e6, 300,
         .help = "seconds after which a collective that has not ended is an error; where ranks "
                 "wait for files, an hour or 12 times as long"),
    // ---- sharding ----
    SECTION(
        "sharding", .automatic = "auto: the smallest mics(p) whose memory fits",
        .help =
            "ranks that share one copy of each state, or \"auto\": the smallest mics(p) that fits"),
    INT("sharding.params", params, 1, MAX_RANKS, 0, SHOW(run.sharding.params),
        .automatic = "auto: 1", .help = "ranks over which the parameters are sharded (P)"),
    INT("sharding.grads", grads, 1, MAX_RANKS, 0, SHOW(run.sharding.grads),
        .automatic = "auto: as sharding.params",
        .help = "ranks over which the gradients are sharded (G)"),
    INT("sharding.optimizer", optimizer_degree, 1, MAX_RANKS, 0, SHOW(run.sharding.optimizer),
        .automatic = "auto: as sharding.grads",
        .help = "ranks over which master weights and moments are sharded (O)"),
};

const key_table mics_config_own_keys = {rows, sizeof rows / sizeof *rows};

mics_collectives mics_config_collectives(const char *text)
{
    return (mics_collectives)mics_config_index_of(collectives, text);
}

mics_comm_dtype mics_config_comm_dtype(const char *text)
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
