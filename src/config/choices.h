// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The words that keys with choices take (keys.c), each list in the order of its enumeration where it
// has one.
#pragma once

#include <stddef.h>

// In the order of mics_run_device, mics_run_precision, mics_run_attention and mics_collectives.
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const precisions[] = {"auto", "fp32", "tf32", "bf16", "fp16", NULL};
static const char *const attentions[] = {"auto", "own", "cudnn", NULL};
static const char *const collectives[] = {"auto", "ring", "two-stage", "ring-gathers", NULL};
static const char *const token_types[] = {"none",  "uint8", "uint16", "uint32", "int8",
                                          "int16", "int32", "int64",  NULL};
static const char *const special_tokens[] = {"plain", "parse", NULL};
static const char *const loss_on[] = {"assistant", "last", "all", "completion", NULL};
static const char *const too_long[] = {"truncate", "drop", "error", NULL}; // as mics_run_too_long
static const char *const objectives[] = {"lm", "dpo", "ipo", NULL}; // as mics_preference_kind
static const char *const residual_dtypes[] = {"same", "fp32", NULL};
static const char *const on_divergence[] = {"rewind", "repair", "stop", NULL};
static const char *const on_spike[] = {"warn", "skip", "stop", NULL};
// In the order of mics_comm_dtype.
static const char *const dtypes[] = {"fp32", "bf16", NULL};
static const char *const params_dtypes[] = {"fp32", "bf16", "delta", NULL};
static const char *const boundary_dtypes[] = {"auto", "fp32", "bf16", "int8", NULL};

static const char *const outers[] = {"nesterov", NULL};
static const char *const outer_dtypes[] = {"fp32", "bf16", "int8", "int4", NULL};

static const char *const optimizers[] = {"Adam", "AdamW", "FusedAdam", "DeepSpeedCPUAdam",
                                         "SGD",  "Lion",  "FusedLion", "DeepSpeedCPULion",
                                         "Muon", NULL};
static const char *const sum_dtypes[] = {"fp32", "bf16", "fp16", NULL};
static const char *const state_dtypes[] = {"fp32", "bf16", "8bit", NULL};
static const char *const rate_adjustments[] = {"original", "match_rms_adamw", NULL};
// In the order of mics_lr_kind, MICS_LR_CONSTANT apart.
static const char *const schedulers[] = {"WarmupLR",
                                         "WarmupDecayLR",
                                         "WarmupCosineLR",
                                         "WSD",
                                         "OneCycle",
                                         "linear",
                                         "cosine",
                                         "cosine_with_restarts",
                                         "cosine_with_min_lr",
                                         "polynomial",
                                         "constant_with_warmup",
                                         "inverse_sqrt",
                                         "warmup_stable_decay",
                                         "constant",
                                         NULL};
// In the order of mics_warmup_kind.
static const char *const warmups[] = {"log", "linear", "cosine", "1-sqrt", NULL};
static const char *const decays[] = {"linear", "cosine", "1-sqrt", NULL};
static const char *const comm_types[] = {"fp32", "bf16", "bfp16", "fp16", NULL};
static const char *const fsdp_strategies[] = {"no_shard",     "shard_grad_op",      "full_shard",
                                              "hybrid_shard", "hybrid_shard_zero2", NULL};
