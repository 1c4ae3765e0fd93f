// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The program's verbs, in the order of its help.
#include "cli.h"
#include <stddef.h>

const cli_verb_entry cli_verbs[] = {
    {"train", "trains a model", cmd_train},
    {"explain", "shows what a run would do: keys, mesh, memory, bytes, schedule", cmd_explain},
    {"plan", "which sharding and batch for a cluster, how fast, at what price", cmd_plan},
    {"generate", "writes text that continues a prompt", cmd_generate},
    {"eval", "loss and perplexity of a checkpoint on a text", cmd_eval},
    {"verify", "every checksum and invariant of a checkpoint, or of all of a run's", cmd_verify},
    {"tokenize", "makes a token shard from text", cmd_tokenize},
    {"convert", "makes Hugging Face safetensors from a checkpoint", cmd_convert},
    {"bench", "measures links and computation for a cluster file", cmd_bench},
    {"doctor", "what this build and this machine can do", cmd_doctor},
    {"completion", "prints a script that completes verbs and flags in a shell", cmd_completion},
    {NULL, NULL, NULL},
};
