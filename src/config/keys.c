// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The keys that are honoured: our own sections, then those of DeepSpeed and SageMaker, with
// DeepSpeed's defaults.
#include "config/keys.h"
#include "config/choices.h"
#include "config/value.h"
#include <assert.h>
#include <string.h>

// As fp32.
#define ELEMS_OF_64_KIB 16384
#define ELEMS_OF_1_MIB 262144
#define BY_PRECISION "auto: as run.precision"
#define IN_FP16 "; only for fp16"

#define FIELD(member) .at = offsetof(config, member), .bytes = sizeof(((config *)0)->member)
#define SHOW(member)                                                                               \
    .show_at = offsetof(config, member), .show_bytes = sizeof(((config *)0)->member)

// What a row of a type has: path and field; range, choices and default, where the type has them;
// then the rest by name, `.help` at least.
#define SECTION(name, ...) .path = (name), .type = KEY_SECTION, __VA_ARGS__
#define OBJECT(name, ...) .path = (name), .type = KEY_OBJECT, __VA_ARGS__
#define TEXT(name, field, ...) .path = (name), .type = KEY_TEXT, FIELD(field), __VA_ARGS__
#define CHOICE(name, field, list, usual, ...)                                                      \
    .path = (name), .type = KEY_CHOICE, FIELD(field), .choices = (list), .text = (usual),          \
    __VA_ARGS__
#define SWITCH(name, field, usual, ...)                                                            \
    .path = (name), .type = KEY_SWITCH, FIELD(field), .high = 1, .value = (usual), __VA_ARGS__
#define NUMBER(name, of, field, from, to, usual, ...)                                              \
    .path = (name), .type = (of), FIELD(field), .low = (from), .high = (to), .value = (usual),     \
    __VA_ARGS__
#define INT(name, ...) NUMBER(name, KEY_INT, __VA_ARGS__)
#define REAL(name, ...) NUMBER(name, KEY_REAL, __VA_ARGS__)
#define BYTES(name, ...) NUMBER(name, KEY_BYTES, __VA_ARGS__)
#define SETTINGS(name, first, number, ...)                                                         \
    .path = (name), .type = KEY_SETTINGS, .flags = KEY_KEPT, FIELD(run.optimizer.settings),        \
    .setting = (first), .count = (number), __VA_ARGS__

// Larger than any real run; what lies beyond is a mistake, and products stay far from overflow.
#define MAX_STEPS 1e12
#define MAX_RANKS 1048576
#define MAX_ELEMS 9.3e18 // of a unit; others write the largest integer for "all"

static const key rows[] = {
    // ---- model ----
    {SECTION("model", .flags = KEY_REQUIRED, .help = "what is trained")},
    {TEXT("model.config", run.model_config, .flags = KEY_REQUIRED | KEY_FIXED, .flag = "--model",
          .help = "a Hugging Face config.json, or its folder")},
    {TEXT("model.init", run.model_init, .flags = KEY_TOLD, .text = "random",
          .help = "\"random\", or a folder of safetensors; none: those in model.config's folder")},
    {REAL("model.dropout", dropout, 0, 0, 0, .flags = KEY_TOLD,
          .help = "0 trains without dropout, whatever the model's config says",
          .refusal =
              "dropouts are those of the model's config; leave the key out to train with them")},
    {NUMBER("model.trainable", KEY_TEXTS, trainable, 1, 4096, 0, .flags = KEY_FIXED,
            .help =
                "patterns of the tensors that are trained, as \"model.layers.1?.*\"; all others "
                "are frozen; none: all are trained, or the adapter")},
    // ---- data ----
    {SECTION("data", .flags = KEY_REQUIRED, .help = "what it is trained on")},
    {NUMBER(
        "data.train", KEY_SOURCES, train, 1, 65536, 0, .flags = KEY_REQUIRED | KEY_FIXED,
        .flag = "--data",
        .help =
            "text files, JSON Lines, JSON arrays, .csv and .tsv, all also as .gz or .zst, "
            ".parquet, or .bin token shards: paths, globs or folders; as {\"path\", \"weight\"} a "
            "mixture")},
    {NUMBER("data.validation", KEY_TEXTS, validation, 0, 65536, 0, .flags = KEY_TOLD,
            .help = "the same for validation; none: the last twentieth of data.train is held out")},
    {TEXT("data.tokenizer", run.tokenizer, .flags = KEY_FIXED, .text = "bytes",
          .help = "\"bytes\", or a tokenizer.json or its folder; none: that in the folder of "
                  "model.config or model.init")},
    {TEXT("data.text_field", run.text_field, .flags = KEY_FIXED, .text = "text",
          .help = "field of JSON Lines, or column of .csv, .tsv and .parquet, that holds the "
                  "text")},
    {OBJECT("data.fields", .flags = KEY_FIXED,
            .help = "fields of rows that are called otherwise, as {\"messages\": \"dialog\"}: "
                    "messages, conversations, role, content, tools, prompt, completion, "
                    "chosen, rejected, instruction, input, output; text is data.text_field")},
    {TEXT("data.chat_template", run.chat_template, .flags = KEY_FIXED, .text = "auto",
          .help = "how chats become text: a file of a chat template, or \"chatml\", \"llama3\", "
                  "\"mistral\", \"alpaca\"; \"auto\": that of the tokenizer's folder")},
    {OBJECT("data.template_variables", .flags = KEY_FIXED,
            .help = "what the template sees besides messages and tools, as {\"enable_thinking\": "
                    "false}")},
    {TEXT("data.template_date", run.template_date, .flags = KEY_KEPT, .text = "auto",
          .help = "today's date of a template that asks for it, as 2026-11-27; \"auto\": that of "
                  "the run's first start")},
    {CHOICE("data.loss_on", loss_on, loss_on, "assistant", .flags = KEY_FIXED,
            .help = "tokens of a chat that count: the \"assistant\"'s, or the completion's; of "
                    "these the \"last\" message's; \"all\"; a \"completion\"'s, or all of a chat",
            .refusal = "no others can be told apart")},
    {SWITCH("data.packing", run.packing, false, .flags = KEY_KEPT,
            .automatic = "auto: true for chats",
            .help = "true: chats share sequences as they fill them best, each with positions and "
                    "attention of its own; false: each is padded to data.sequence_length")},
    {CHOICE("data.too_long", too_long, too_long, "truncate", .flags = KEY_KEPT,
            .help = "chats longer than data.sequence_length: \"truncate\" them, \"drop\" them, "
                    "or \"error\"",
            .refusal = "a chat is never split")},
    {INT("data.skip_bad_lines", run.skip_bad_lines, 0, 1e9, 0, .flags = KEY_TOLD,
         .help = "lines and rows of data files that may be bad: passed over, counted and named; 0: "
                 "the first is an error")},
    {CHOICE("data.dtype", run.data_dtype, token_types, "none",
            .help = "tokens of .bin files without a header: \"uint16\" for nanoGPT's; "
                    "\"none\": each .bin is llm.c's, or Megatron's with its .idx")},
    {SWITCH("data.add_special_tokens", run.add_special_tokens, false, .flags = KEY_FIXED,
            .help = "true: the special tokens of the tokenizer.json's post_processor (<s>) around "
                    "each text; false: the separator before it")},
    {CHOICE("data.special_tokens", run.special_tokens, special_tokens, "plain", .flags = KEY_FIXED,
            .help =
                "special tokens that a text names (<|im_start|>): \"plain\" text, or \"parse\": "
                "tokens, in texts that you trust")},
    {SWITCH("data.document_mask", run.document_mask, false, .flags = KEY_KEPT,
            .help =
                "true: attention sees tokens of the same document alone; a document begins with "
                "each separator")},
    {INT("data.sequence_length", run.sequence_length, 0, MAX_RANKS * 1024.0, 0, .flags = KEY_FIXED,
         .automatic = "auto: the model's positions",
         .help = "tokens of a sequence; 0: the model's positions")},
    // ---- objective ----
    {SECTION("objective", .help = "what is made small")},
    {CHOICE("objective.type", objective, objectives, "lm", .flags = KEY_FIXED,
            .help = "\"lm\": cross-entropy of tokens; \"dpo\", \"ipo\": of rows with chosen and "
                    "rejected, how far the first is preferred, beside what training began with",
            .refusal = "no others are built")},
    {REAL("objective.beta", run.preference.beta, 1e-6, 1e6, 0.1, .flags = KEY_TOLD,
          .help = "of \"dpo\" and \"ipo\": how strongly the model is held to what training began "
                  "with")},
    {REAL("objective.label_smoothing", run.preference.label_smoothing, 0, 0.499, 0,
          .flags = KEY_TOLD,
          .help = "of \"dpo\": how often the rejected answer is taken to be the better one")},
    // ---- run ----
    {SECTION("run", .flags = KEY_REQUIRED, .help = "how long, and where to")},
    {INT("run.steps", steps, 1, MAX_STEPS, 0, SHOW(run.steps), .flags = KEY_TOLD,
         .automatic = "auto: by num_train_epochs", .help = "optimizer steps")},
    {INT("run.seed", run.seed, 0, 9.3e18, 1, .flags = KEY_KEPT | KEY_FIXED,
         .help = "of initial weights, the order of samples and dropout")},
    {TEXT("run.out", run.out, .automatic = "auto: runs/ and the run file's name",
          .help = "folder of metrics and checkpoints")},
    {TEXT("run.checkpoint_dir", run.checkpoint_dir, .text = "none",
          .help = "s3://BUCKET/PREFIX that checkpoints are streamed to; \"none\": run.out")},
    {INT("run.checkpoint_every", run.checkpoint_every, 0, MAX_STEPS, 0,
         .help = "steps between checkpoints; 0: only at the end")},
    {INT("run.keep_checkpoints", run.keep_checkpoints, 0, 1e6, 2,
         .help = "newest checkpoints that are kept; 0: all")},
    {INT("run.memory_checkpoint_every", run.memory_checkpoint_every, 0, MAX_STEPS, 0,
         .help = "steps between copies of the state in each node's memory, which outlive the run's "
                 "processes; 0: none")},
    {REAL("run.grace_s", run.grace_s, 0, 1e6, 25,
          .help = "seconds in which a run that is asked to stop has saved and ended; Slurm and "
                  "Kubernetes give 30")},
    {REAL("run.max_hours", run.max_hours, 0, 1e6, 0,
          .help = "hours after which a run saves and stops by itself, for batch queues; 0: none")},
    {INT("run.check_replicas_every", run.check_replicas_every, 0, MAX_STEPS, 100,
         .help = "steps between comparisons of what several ranks hold alike; 0: before saves "
                 "alone")},
    {INT("run.scrub_every", run.scrub_every, -1, MAX_STEPS, -1,
         .help = "steps between hashes of masters and moments that exist once, compared before the "
                 "next update; 0: none; -1: as often as costs 0.5 % of a step")},
    {CHOICE("run.on_divergence", run.on_divergence, on_divergence, "rewind",
            .help = "when replicas differ, or run.scrub_every finds a flip: \"rewind\" to the "
                    "newest state that agreed; \"repair\": take what most hold, where three or "
                    "more do; or \"stop\"")},
    {REAL("run.spike_zscore", run.spike_zscore, 0, 1e6, 0, .flags = KEY_KEPT,
          .help = "standard deviations above the mean of 100 steps from where a loss is a "
                  "spike; 0: never")},
    {CHOICE("run.on_spike", run.on_spike, on_spike, "warn", .flags = KEY_KEPT,
            .help = "at a spike: \"warn\", \"skip\" the step's update, or \"stop\"")},
    {SWITCH("run.recheck", run.recheck, false,
            .help = "true: a step with a spike or a number that is not finite is run again and "
                    "compared, which tells a bad machine from bad data")},
    {REAL("run.straggler_warn", run.straggler_warn, 0, 1, 0.2,
          .help =
              "part of a step, mean of 20, that the others wait for one rank, from where the log "
              "names it; 0: never")},
    {INT("run.validate_every", run.validate_every, 0, MAX_STEPS, 0, .flags = KEY_TOLD,
         .help = "steps between validations; 0: only before and after")},
    {SWITCH("run.keep_best", run.keep_best, false, .flags = KEY_TOLD,
            .help = "true: the checkpoint of the lowest validation loss stays beside the newest, "
                    "named in checkpoints/best; needs run.validate_every")},
    {INT("run.stop_after_no_improvement", run.stop_after_no_improvement, 0, MAX_STEPS, 0,
         .flags = KEY_TOLD,
         .help = "validations in turn without a lower loss after which the run ends, with status "
                 "0; 0: it never does")},
    {INT("run.validation_batches", run.validation_batches, 0, 1e9, 8, .flags = KEY_KEPT,
         .help = "global batches that a validation reads; 0: no validation, nothing held out")},
    {INT("run.log_every", run.log_every, 0, MAX_STEPS, 0,
         .help = "steps between plain progress lines; 0: one every few seconds")},
    {INT("run.sample_every", run.sample_every, 0, MAX_STEPS, 0,
         .help = "steps between texts that the model writes, in the log and in samples.jsonl; each "
                 "such step is saved; 0: none")},
    {TEXT("run.sample_prompt", run.sample_prompt, .text = "\n",
          .help = "what those texts of 64 tokens continue")},
    {TEXT("run.cluster", run.cluster, .text = "none",
          .help = "cluster file, or name in the catalogue, for which \"sharding\": \"auto\" is "
                  "planned; \"none\": for usual links")},
    {INT("run.min_replicas", run.min_replicas, 1, MAX_RANKS, 1,
         .help = "copies of every state that \"sharding\": \"auto\" and mics plan keep at least; "
                 "with 2 masters and moments are compared, with 3 also repaired")},
    {TEXT("run.tensorboard", run.tensorboard, .text = "none",
          .help = "folder of event files for TensorBoard, as runs/demo/tensorboard; \"none\": "
                  "none")},
    {TEXT("run.prometheus", run.prometheus, .text = "none",
          .help = "file of the newest step's figures for the textfile collector of Prometheus' "
                  "node exporter, as /var/lib/node_exporter/mics.prom; \"none\": none")},
    {TEXT("run.csv", run.csv, .text = "none",
          .help = "file of the figures of metrics.jsonl as a table, as runs/demo/metrics.csv; "
                  "\"none\": none")},
    {INT("run.trace_step", run.trace_step, 0, MAX_STEPS, 0,
         .help = "step from which trace.json in run.out shows what every rank did when; 0: none")},
    {INT("run.trace_steps", run.trace_steps, 1, 1000, 1, .help = "how many steps that is")},
    {REAL("run.peak_tflops", run.peak_tflops, 0, 1e6, 0,
          .help = "a rank's peak in TFLOP/s, for mfu in metrics.jsonl; 0: unknown, mfu is null")},
    {CHOICE("run.precision", precision, precisions, "auto", .flags = KEY_KEPT,
            .help = "dtype of weights and arithmetic; \"bf16\" and \"fp16\" keep fp32 master "
                    "weights; \"auto\": bf16 on cuda, fp32 on cpu; CPUs without AVX512_BF16 and "
                    "AMX take fp32 for bf16",
            .refusal = "no other precision is built")},
    {CHOICE("run.residual_dtype", run.residual_dtype, residual_dtypes, "same", .flags = KEY_KEPT,
            .help = "dtype of the residual stream in bf16 and fp16", .refusal = "none is wider")},
    {CHOICE("run.device", device, devices, "auto",
            .help = "where it computes; \"auto\": cuda where a GPU can be used, else cpu",
            .refusal = "there are no other devices")},
    {SWITCH("run.gemm_autotune", run.gemm_autotune, false, .flags = KEY_KEPT,
            .help = "on cuda: true: each GEMM by the algorithm that is fastest here, kept in "
                    "OUT/products.bin; false: by cuBLASLt's first choice")},
    {CHOICE("run.attention", attention, attentions, "own", .flags = KEY_KEPT,
            .help = "on cuda: who computes attention: our own kernels, or cuDNN's (bf16 and fp16, "
                    "heads of at most 128); \"auto\": cuDNN's where they can, else our own",
            .refusal = "no other library is built in")},
    {TEXT("run.cudnn_version", run.cudnn, .text = "any",
          .help = "cuDNN that run.attention needs, as 9.19.0; \"any\": the one that is found, "
                  "9.16.0 or newer")},
    {SWITCH("run.graphs", run.graphs, false,
            .help = "on cuda: the kernels of a unit's forward or backward are launched as one CUDA "
                    "graph; same bits")},
    {INT("run.threads", run.threads, 0, 4096, 0, .automatic = "auto: its share of the node's cores",
         .help = "CPU threads of a rank; 0: its share of the node's cores")},
    {BYTES("run.memory_limit", run.memory_limit_bytes, 0, 9.2e18, 0,
           .automatic = "auto: what the machine has available",
           .help = "memory that a rank may use; 0: its share of what the machine has available")},
    {INT("run.prefetch", prefetch, 0, 1024, 1, SHOW(run.prefetch),
         .automatic = "auto: the deepest of 3, 2, 1, 0 whose memory fits",
         .help = "units that are gathered ahead of the one that computes")},
    {INT("run.layered_micro_steps", layered_micro_steps, 1, 1024, 0, SHOW(run.layered_micro_steps),
         .flags = KEY_KEPT,
         .automatic =
             "auto: 1 on one node, else as many as at most double the state and a micro-batch",
         .help = "micro-batches in flight (layered accumulation): a unit is gathered, and its "
                 "gradients reduced, once for so many; takes activations for each")},
    {SWITCH("run.early_gathers", early_gathers, false, SHOW(run.early_gathers),
            .automatic = "auto: as planned; else where parameter syncs are twice the bytes",
            .help = "replica gathers (sharding.optimizer below the ranks) run beside backward, and "
                    "not beside the next forward; bits are the same")},
    {CHOICE("run.collectives", collectives, collectives, "auto", .flags = KEY_KEPT,
            .help = "algorithm of gathers and reductions; \"auto\": gathers as a short timing "
                    "finds, reductions in two stages")},
    {INT("run.param_persistence_threshold", run.param_persistence_threshold, 0, MAX_ELEMS,
         ELEMS_OF_64_KIB, .flags = KEY_KEPT,
         .help = "units of fewer elements stay whole on every rank; 0: none")},
    {INT("run.coalesce_below", run.coalesce_below, 0, MAX_ELEMS, ELEMS_OF_1_MIB, .flags = KEY_KEPT,
         .help = "units of fewer elements share messages of at most so many at the accumulation "
                 "boundary; 0: none")},
    {SECTION("run.comm_dtype", .help = "what is sent as fewer bits than it is held in")},
    {CHOICE("run.comm_dtype.params", params_dtype, params_dtypes, "fp32", .flags = KEY_KEPT,
            .help = "inter-node parameters; \"bf16\" halves the bytes of gathers, and computes "
                    "with parameters of 8 significant bits; \"delta\", in bf16 on CPUs: parameter "
                    "sync (sharding.optimizer above sharding.params) sends changes, coded without "
                    "loss",
            .refusal = "parameters carry no error feedback, so fewer bits are not built")},
    {CHOICE("run.comm_dtype.grads", grads_dtype, dtypes, "fp32", .flags = KEY_KEPT,
            .help = "inter-node gradients in each micro-step; \"bf16\" rounds each contribution "
                    "to 8 significant bits",
            .refusal = "\"int8\" is for run.comm_dtype.boundary")},
    {CHOICE("run.comm_dtype.boundary", boundary_dtype, boundary_dtypes, "auto", .flags = KEY_KEPT,
            .help = "inter-node gradients at the accumulation boundary; \"int8\" sends 3/8 of "
                    "an all-reduce's bytes, with error feedback; \"auto\": bf16 in bf16 runs on "
                    "CPUs, else fp32")},
    {SWITCH("run.comm_dtype.bf16_intra_node", bf16_intra_node, false, .flags = KEY_KEPT,
            .help = "all three intra-node: true: as bf16; false: as they are held")},
    {.path = "run.recompute",
     .type = KEY_RECOMPUTE,
     FIELD(run.recompute),
     .flags = KEY_KEPT,
     .automatic = "auto: the fastest that fits",
     .help = "activation recomputation: true keeps only each unit's input, and runs its forward "
             "again in backward; a number does so in so many layers, at the end that is faster "
             "(\"first 4\", \"last 4\" say which); \"attention\" and \"mlp\" make again what is "
             "cheap to compute; \"attention+mlp+4\" joins them; \"auto\": as little as fits"},
    {INT("run.offload_activations", run.offload_units, 0, 4096, 0,
         .automatic = "auto: as few as fit",
         .help =
             "on cuda: units whose activations host memory holds between forward and backward; "
             "\"auto\": as few as fit, or in place of a recomputation that is chosen, if faster")},
    {SWITCH("run.share_params", run.share_params, true,
            .help = "ranks that share a node's memory share its parameters, where P fits into a "
                    "node: gathers then copy nothing (CPU only)")},
    {REAL("run.comm_timeout_s", run.comm_timeout_s, 0.1, 1e6, 300,
          .help = "seconds after which a collective that has not ended is an error; where ranks "
                  "wait for files, an hour or 12 times as long")},
    {.path = "phases", .type = KEY_PHASES, .help = "parts of the run, one after the other"},
    // ---- sharding ----
    {SECTION("sharding", .automatic = "auto: the fastest that fits",
             .help = "ranks that share one copy of each state, or \"auto\": the fastest that fits "
                     "and keeps run.min_replicas copies")},
    {INT("sharding.params", params, 1, MAX_RANKS, 0, SHOW(run.sharding.params), .flags = KEY_TOLD,
         .automatic = "auto: 1", .help = "ranks over which the parameters are sharded (P)")},
    {INT("sharding.grads", grads, 1, MAX_RANKS, 0, SHOW(run.sharding.grads), .flags = KEY_TOLD,
         .automatic = "auto: as sharding.params",
         .help = "ranks over which the gradients are sharded (G)")},
    {INT("sharding.optimizer", optimizer_degree, 1, MAX_RANKS, 0, SHOW(run.sharding.optimizer),
         .flags = KEY_TOLD, .automatic = "auto: as sharding.grads",
         .help = "ranks over which master weights and moments are sharded (O)")},
    {INT("sharding.experts", experts, 1, MAX_RANKS, 1, SHOW(run.experts), .flags = KEY_TOLD,
         .help = "of a mixture, ranks that keep different experts, to which tokens travel (E): "
                 "divides sharding.params and the experts; 1: none do")},
    {INT("sharding.sequence", run.sequence, 1, MAX_RANKS, 1, .flags = KEY_TOLD,
         .help = "ranks that each hold a part of the same sequences (S): divides the ranks of a "
                 "node, and sharding.params or the other way round")},
    // ---- batch ----
    {INT("train_batch_size", train_batch, 1, 1e12, 0, SHOW(run.global_batch), .flags = KEY_FIXED,
         .automatic = "auto: micro-batch x micro-steps x data ranks",
         .help = "sequences of a step, of all ranks; of \"dpo\" and \"ipo\" pairs")},
    {INT("train_micro_batch_size_per_gpu", micro_batch, 1, MAX_RANKS, 0, SHOW(run.micro_batch),
         .flags = KEY_TOLD, .automatic = "auto: train_batch_size / (micro-steps x data ranks)",
         .help = "sequences of a micro-step, of one rank; or pairs")},
    {INT("gradient_accumulation_steps", micro_steps, 1, MAX_RANKS, 0, SHOW(run.micro_steps),
         .flags = KEY_TOLD,
         .automatic = "auto: train_batch_size / (micro-batch x data ranks), or 1",
         .help = "micro-steps of a step")},
    {SECTION("data_types", .help = "of what is not said elsewhere")},
    {CHOICE("data_types.grad_accum_dtype", sum_dtype, sum_dtypes, "fp32", .flags = KEY_KEPT,
            .help = "what gradients of micro-steps are added up in: fp32, or with sharding.grads 1 "
                    "run.precision's bf16 or fp16, where each sum is rounded")},
    {REAL("gradient_clipping", run.clip, 0, 1e30, 0, .flags = KEY_KEPT,
          .help = "largest norm of all gradients together; 0: no clipping")},
    // ---- optimizer ----
    {SECTION("optimizer", .help = "AdamW when absent")},
    {CHOICE("optimizer.type", optimizer, optimizers, "AdamW", .flags = KEY_KEPT | KEY_FIXED,
            .help =
                "names with Adam are AdamW, as in DeepSpeed while adam_w_mode is true; those with "
                "Lion are Lion",
            .refusal = "no others are built")},
    {SECTION("optimizer.params", .help = "its numbers")},
    {REAL("optimizer.params.lr", lr, 0, 1e6, 1e-3, .flags = KEY_KEPT,
          .help = "learning rate; the scheduler's peak unless it has warmup_max_lr")},
    {SETTINGS(
        "optimizer.params.betas", "beta1", 2,
        .help =
            "decay of AdamW's two moments; Lion: of the average whose sign is taken, and of the "
            "one that is kept, default [0.9, 0.99]")},
    {SETTINGS("optimizer.params.eps", "eps", 1,
              .help = "AdamW and what Muon leaves to it: added to the root of the second moment")},
    {SETTINGS("optimizer.params.momentum", "momentum", 1,
              .help = "SGD and Muon: decay of the momentum; Muon: default 0.95")},
    {SETTINGS("optimizer.params.nesterov", "nesterov", 1,
              .help = "SGD and Muon: Nesterov's momentum; Muon: default true")},
    {SETTINGS("optimizer.params.ns_steps", "ns_steps", 1,
              .help = "Muon: Newton-Schulz iterations a step")},
    {CHOICE("optimizer.params.adjust_lr_fn", adjust_lr, rate_adjustments, "original",
            .flags = KEY_KEPT,
            .help = "Muon: a matrix's rate is lr times the root of rows / columns, at least 1; or "
                    "times 0.2 and the root of the larger one, which suits rates of AdamW")},
    {REAL("optimizer.params.adam_lr", adam_lr, 0, 1e6, 0, .flags = KEY_KEPT,
          .help =
              "Muon: learning rate of what it leaves to AdamW, which changes as lr does; 0: lr")},
    {CHOICE("optimizer.params.state_dtype", state_dtype, state_dtypes, "fp32", .flags = KEY_KEPT,
            .help = "what AdamW, SGD and Lion hold their states in: fp32; bf16, rounded at random; "
                    "8bit, bitsandbytes' dynamic code in blocks of 256. Checkpoints hold fp32")},
    {REAL("optimizer.params.weight_decay", run.optimizer.weight_decay, 0, 1e3, 0, .flags = KEY_KEPT,
          .help = "weight decay of matrices and embeddings: decoupled, but SGD adds it to the "
                  "gradient, as torch does")},
    {SWITCH("optimizer.params.adam_w_mode", adam_w_mode, true, .flags = KEY_KEPT,
            .help =
                "AdamW: decoupled weight decay; false only without weight decay, where it is the "
                "same")},
    // ---- scheduler ----
    {SECTION("scheduler", .help = "a constant learning rate when absent")},
    {CHOICE("scheduler.type", scheduler, schedulers, NULL, .flags = KEY_TOLD,
            .help = "DeepSpeed's, Hugging Face's by lr_scheduler_type, or WSD: linear warm-up, "
                    "stable, linear decay",
            .refusal = "no others are built")},
    {SECTION("scheduler.params", .help = "its numbers")},
    {REAL("scheduler.params.warmup_min_lr", warmup_min_lr, 0, 1e6, 0,
          .flags = KEY_WARMUP | KEY_DECAY | KEY_TOLD, .automatic = "auto: 0",
          .help = "learning rate where the warm-up starts")},
    {REAL("scheduler.params.warmup_max_lr", warmup_max_lr, 0, 1e6, 0,
          .flags = KEY_WARMUP | KEY_DECAY | KEY_TOLD, .automatic = "auto: optimizer.params.lr",
          .help = "learning rate after the warm-up; goes before optimizer.params.lr")},
    {INT("scheduler.params.warmup_num_steps", warmup_steps, 0, MAX_STEPS, 1000,
         .flags = KEY_KEPT | KEY_WARMED,
         .help =
             "steps of the warm-up; DeepSpeed's need 1, which counts as 2, as there; default 1000, "
             "and 0 for Hugging Face's")},
    {REAL("scheduler.params.warmup_ratio", warmup_ratio, 0, 1, 0, .flags = KEY_WARMED | KEY_OTHERS,
          .help = "warmup_num_steps as a share of run.steps, rounded up, where that is not given")},
    {CHOICE("scheduler.params.warmup_type", warmup_type, warmups, "log",
            .flags = KEY_KEPT | KEY_WARMUP | KEY_DECAY | KEY_COSINE | KEY_STABLE_DECAY,
            .help = "shape of the warm-up; \"log\" is DeepSpeed's alone, \"cosine\" and "
                    "\"1-sqrt\" are for warmup_stable_decay, whose default is \"linear\"")},
    {INT("scheduler.params.total_num_steps", total_steps, 1, MAX_STEPS, 0,
         .flags = KEY_DECAY | KEY_COSINE | KEY_WSD | KEY_TO_THE_END | KEY_TOLD,
         .automatic = "auto: run.steps", .help = "step at which the decay ends")},
    {REAL("scheduler.params.warmup_min_ratio", warmup_min_ratio, 0, 1, 0,
          .flags = KEY_KEPT | KEY_COSINE,
          .help = "share of the learning rate where the warm-up starts")},
    {REAL("scheduler.params.cos_min_ratio", cos_min_ratio, 0, 1, 1e-4,
          .flags = KEY_KEPT | KEY_COSINE,
          .help = "share of the learning rate that is left in the end")},
    {INT("scheduler.params.decay_num_steps", decay_steps, 0, MAX_STEPS, 0,
         .flags = KEY_WSD | KEY_STABLE_DECAY | KEY_TOLD,
         .automatic = "auto: a tenth of total_num_steps",
         .help = "steps of the decay, the last ones of total_num_steps; warmup_stable_decay needs "
                 "them")},
    {INT("scheduler.params.stable_num_steps", stable_steps, 0, MAX_STEPS, 0,
         .flags = KEY_STABLE_DECAY | KEY_TOLD,
         .automatic = "auto: what the others leave of total_num_steps",
         .help = "steps between warm-up and decay")},
    {CHOICE("scheduler.params.decay_type", decay_type, decays, "cosine",
            .flags = KEY_KEPT | KEY_STABLE_DECAY, .help = "shape of the decay")},
    {REAL("scheduler.params.min_ratio", min_ratio, 0, 1, 0,
          .flags = KEY_KEPT | KEY_WSD | KEY_WAVE_MIN | KEY_STABLE_DECAY,
          .help = "share of the learning rate that is left in the end")},
    {REAL("scheduler.params.min_lr", min_lr, 0, 1e6, 0, .flags = KEY_WAVE_MIN | KEY_TOLD,
          .automatic = "auto: min_ratio of the learning rate",
          .help = "the learning rate that is left in the end")},
    {REAL("scheduler.params.num_cycles", cycles, 0, 1e6, 0,
          .flags = KEY_WAVE | KEY_RESTARTS | KEY_WAVE_MIN | KEY_STABLE_DECAY | KEY_TOLD,
          .automatic = "auto: 0.5, and 1 for cosine_with_restarts",
          .help = "waves of the cosine; of cosine_with_restarts half waves")},
    {REAL("scheduler.params.lr_end", lr_end, 0, 1e6, 1e-7, .flags = KEY_KEPT | KEY_POLYNOMIAL,
          .help = "learning rate in the end")},
    {REAL("scheduler.params.power", power, 0, 1e3, 1, .flags = KEY_KEPT | KEY_POLYNOMIAL,
          .help = "of the polynomial")},
    {INT("scheduler.params.timescale", timescale, 1, MAX_STEPS, 0,
         .flags = KEY_INVERSE_SQRT | KEY_TOLD,
         .automatic = "auto: warmup_num_steps, and 10000 where that is 0",
         .help = "steps; after the warm-up the learning rate falls by the root of their count in "
                 "it")},
    {REAL("scheduler.params.cycle_min_lr", cycle_min_lr, 0, 1e6, 0,
          .flags = KEY_ONE_CYCLE | KEY_TOLD,
          .help = "learning rate where the cycle starts and ends")},
    {REAL("scheduler.params.cycle_max_lr", cycle_max_lr, 0, 1e6, 0,
          .flags = KEY_ONE_CYCLE | KEY_TOLD,
          .help = "its peak; OneCycle takes both in place of optimizer.params.lr")},
    {INT("scheduler.params.cycle_first_step_size", cycle_first, 1, MAX_STEPS, 2000,
         .flags = KEY_KEPT | KEY_ONE_CYCLE, .help = "steps up to the peak")},
    {INT("scheduler.params.cycle_second_step_size", cycle_second, 1, MAX_STEPS, 0,
         .flags = KEY_ONE_CYCLE | KEY_TOLD, .automatic = "auto: cycle_first_step_size",
         .help = "steps down from the peak")},
    {INT("scheduler.params.decay_step_size", cycle_decay_steps, 0, MAX_STEPS, 0,
         .flags = KEY_KEPT | KEY_ONE_CYCLE,
         .help = "steps that decay_lr_rate is for; 0: no decay")},
    {REAL("scheduler.params.decay_lr_rate", decay_lr_rate, 0, 1e6, 0,
          .flags = KEY_KEPT | KEY_ONE_CYCLE,
          .help = "after the cycle the rate is cycle_min_lr / (1 + decay_lr_rate x steps / "
                  "decay_step_size)")},
    // ---- local steps ----
    {SECTION("outer", .help =
                          "local steps: islands of ranks train by themselves, and meet every so "
                          "many steps")},
    {INT("outer.every", run.outer.every, 0, 1e6, 0, .flags = KEY_KEPT,
         .help = "steps between two meetings of a unit (H); 0: no local steps")},
    {INT("outer.ranks", outer_ranks, 1, MAX_RANKS, 0, SHOW(run.outer_ranks), .flags = KEY_TOLD,
         .automatic = "auto: those of a node",
         .help = "ranks of an island (R): those of a node, a divisor, or several nodes'")},
    {CHOICE("outer.type", outer_type, outers, "nesterov", .flags = KEY_TOLD,
            .help = "outer optimizer, whose gradient is the mean change since the last meeting",
            .refusal = "no other is built; with outer.momentum 0 it is SGD")},
    {REAL("outer.lr", run.outer_lr, 0, 1e3, 0.7, .flags = KEY_KEPT,
          .help = "its learning rate; 1 without momentum takes the mean itself")},
    {REAL("outer.momentum", run.outer_momentum, 0, 0.9999, 0.9, .flags = KEY_KEPT,
          .help = "its momentum")},
    {INT("outer.fragments", run.outer.fragments, 1, 1e6, 1, .flags = KEY_KEPT,
         .help =
             "parts of the model that meet at different steps of a period; at most outer.every")},
    {INT("outer.overlap_steps", run.outer.overlap_steps, 0, 1e6, 0, .flags = KEY_KEPT,
         .help = "steps over which a fragment's meeting is spread, beside computation; 0: forward "
                 "waits for it; at most outer.every")},
    {CHOICE("outer.dtype", outer_dtype, outer_dtypes, "fp32", .flags = KEY_KEPT,
            .help = "what changes are sent as; below fp32 what rounding lost is sent with the next",
            .refusal = "no other is built")},
    {INT("outer.moments_every", run.outer.moments_every, 0, 1e6, 0, .flags = KEY_KEPT,
         .help = "periods between two means of the optimizer's states; 0: each island keeps its "
                 "own")},
    // ---- adapter, in PEFT's words ----
    {SECTION("adapter", .help =
                            "trains an adapter of low rank (LoRA) in PEFT's words; what it does "
                            "not name is frozen")},
    {INT("adapter.r", run.lora.rank, 1, MICS_LORA_MAX_RANK, 8, .flags = KEY_FIXED,
         .help = "rank of each module's two matrices")},
    {REAL("adapter.lora_alpha", run.lora.alpha, 0, 1e6, 8, .flags = KEY_FIXED,
          .automatic = "auto: 8, and 2 x r where --lora or --set gives r",
          .help = "what they add counts lora_alpha / r times")},
    {REAL("adapter.lora_dropout", run.lora.dropout, 0, 0.99, 0, .flags = KEY_TOLD,
          .help = "share of an adapter's inputs that training drops")},
    {NUMBER("adapter.target_modules", KEY_TEXTS, targets, 1, 4096, 0, .flags = KEY_FIXED,
            .automatic = "auto: all-linear",
            .help =
                "modules that get one, as [\"q_proj\", \"v_proj\"]; \"all-linear\": all linears "
                "but the LM head's")},
    {SWITCH("adapter.use_rslora", run.lora.rank_stabilized, false, .flags = KEY_FIXED,
            .help = "true: it counts lora_alpha / sqrt(r) times")},
    {NUMBER("adapter.modules_to_save", KEY_TEXTS, saved, 0, 4096, 0, .flags = KEY_FIXED,
            .help = "modules that are trained whole, as [\"lm_head\"]")},
    {TEXT("adapter.init", run.adapter_init, .flags = KEY_TOLD, .text = "none",
          .help =
              "a folder as PEFT saves adapters, whose values it begins with; \"none\": such that "
              "it changes nothing at first")},
    // ---- sharding ----
    {SECTION("zero_optimization",
             .help = "the sharding in DeepSpeed's words; not together with \"sharding\"")},
    {INT("zero_optimization.stage", zero_stage, 0, 3, 0, .flags = KEY_TOLD,
         .help = "0: ddp, 1: zero1, 2: zero2, 3: zero3, or by the next two keys")},
    {INT("zero_optimization.mics_shard_size", shard_size, -1, MAX_RANKS, -1, .flags = KEY_TOLD,
         .help = "p of mics(p), with stage 3; -1: off")},
    {SWITCH("zero_optimization.mics_hierarchical_params_gather", hierarchical, false,
            .help = "true: run.collectives \"two-stage\", false: \"ring\", in DeepSpeed's words")},
    {INT("zero_optimization.zero_hpz_partition_size", hpz_size, 0, MAX_RANKS, 1, .flags = KEY_TOLD,
         .help = "p of hpz(p), with stage 3; 0 or 1: off")},
    {SWITCH("zero_optimization.overlap_comm", overlap, true,
            .help = "false: nothing is gathered ahead (run.prefetch 0)")},
    {INT("zero_optimization.stage3_param_persistence_threshold", zero_threshold, 0, MAX_ELEMS, 0,
         .automatic = "auto: run.param_persistence_threshold",
         .help = "as run.param_persistence_threshold, in DeepSpeed's words, but by unit and not by "
                 "parameter")},
    {INT("sharded_data_parallel_degree", sdp_degree, 1, MAX_RANKS, 0, .flags = KEY_TOLD,
         .automatic = "auto: off", .help = "p of mics(p), in SageMaker's words")},
    {SWITCH("sdp_hierarchical_allgather", sdp_hierarchical, false,
            .help = "true: run.collectives \"two-stage\", false: \"ring\", in SageMaker's words")},
    {INT("hybrid_shard_degree", hybrid_degree, 1, MAX_RANKS, 0, .flags = KEY_TOLD,
         .automatic = "auto: off", .help = "p of mics(p), in SageMaker's words")},
    {INT("sdp_param_persistence_threshold", sdp_threshold, 0, MAX_ELEMS, 0,
         .automatic = "auto: run.param_persistence_threshold",
         .help = "as run.param_persistence_threshold, in SageMaker's words, but by unit and not by "
                 "parameter")},
    {CHOICE("fsdp_sharding_strategy", fsdp_strategy, fsdp_strategies, NULL,
            .flags = KEY_OTHERS | KEY_TOLD,
            .help = "in FSDP's words: full_shard: zero3; shard_grad_op: zero2; no_shard: ddp; "
                    "hybrid_shard: mics(p) with a node's ranks as p; hybrid_shard_zero2: that for "
                    "gradients and optimizer",
            .refusal = "FSDP has no others")},
    {INT("data_parallel_shard_degree", shard_degree, -1, MAX_RANKS, 0,
         .flags = KEY_OTHERS | KEY_TOLD, .automatic = "auto: -1",
         .help =
             "p of mics(p), in torchtitan's words; -1: ranks / data_parallel_replicate_degree")},
    {INT("data_parallel_replicate_degree", replicate_degree, 1, MAX_RANKS, 0,
         .flags = KEY_OTHERS | KEY_TOLD, .automatic = "auto: 1",
         .help = "ranks / p of mics(p), in torchtitan's words")},
    // ---- precision ----
    {SECTION("bf16", .help = "bf16 with fp32 masters")},
    {SWITCH("bf16.enabled", bf16, false, .automatic = BY_PRECISION,
            .help = "as run.precision \"bf16\", in DeepSpeed's words")},
    {SECTION("fp16", .help = "fp16 with fp32 masters and loss scaling")},
    {SWITCH("fp16.enabled", fp16, false, .automatic = BY_PRECISION,
            .help = "as run.precision \"fp16\", in DeepSpeed's words")},
    {REAL("fp16.loss_scale", loss_scale, 0, 1e30, 0, .flags = KEY_KEPT,
          .help =
              "factor of the loss; 0: as large as gradients allow, found while training" IN_FP16)},
    {INT("fp16.initial_scale_power", scale_power, 0, 60, 16, .flags = KEY_KEPT,
         .help = "the factor that is found starts at 2 to this power" IN_FP16)},
    {INT("fp16.loss_scale_window", run.loss_scale.window, 1, MAX_STEPS, 1000, .flags = KEY_KEPT,
         .help = "good steps in a row after which the factor doubles" IN_FP16)},
    {INT("fp16.hysteresis", run.loss_scale.hysteresis, 1, 1e6, 2, .flags = KEY_KEPT,
         .help = "steps that overflow before the factor halves; the step itself is left out at "
                 "once" IN_FP16)},
    {REAL("fp16.min_loss_scale", run.loss_scale.least, 1e-30, 1e30, 1, .flags = KEY_KEPT,
          .help =
              "the factor does not go below; a step that overflows there ends the run" IN_FP16)},
    {SWITCH("fp16.consecutive_hysteresis", run.loss_scale.consecutive_hysteresis, false,
            .flags = KEY_KEPT,
            .help = "true: a good step gives hysteresis back, not only a doubling" IN_FP16)},
    // ---- Hugging Face's Trainer ----
    {REAL("num_train_epochs", epochs, 0, 1e6, 0, .flags = KEY_OTHERS,
          .help = "how often the training data is read, where run.steps is not given, or "
                  "in place of the file's by --set: "
                  "ceil(epochs x ceil(sequences / train_batch_size)) steps")},
    // ---- other keys of DeepSpeed ----
    {INT("steps_per_print", steps_per_print, 1, 9.3e18, 0, .automatic = "auto: run.log_every",
         .help = "as run.log_every, in DeepSpeed's words")},
    {CHOICE("communication_data_type", comm_type, comm_types, NULL,
            .help = "gradients everywhere, in DeepSpeed's words: run.comm_dtype.grads and "
                    ".boundary, and intra-node; \"fp16\" leaves them, as more bits change no "
                    "result that fewer would give")},
};
_Static_assert(sizeof rows / sizeof *rows <= CONFIG_MAX_KEYS, "raise CONFIG_MAX_KEYS");

int32_t mics_config_key_count(void)
{
    return sizeof rows / sizeof *rows;
}

const key *mics_config_key(int32_t index)
{
    return &rows[index];
}
