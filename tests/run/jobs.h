// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Jobs of a small model: two ranks as threads in a folder of their own, which becomes the working directory.
#pragma once

#include "mics/run.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 8, RANKS = 2 };

static char work[] = "/tmp/mics-run-XXXXXX";
static mics_memory *memory;

static const char *const texts[] = {"text.txt"};

// Two ranks share a small model's state; the run is the same in each test but for `out`.
static inline mics_run_values values_of(const char *out)
{
    return (mics_run_values){.model_config = "model.json",
                             .train = texts,
                             .train_count = 1,
                             .sequence_length = 16,
                             .steps = STEPS,
                             .seed = 3,
                             .out = out,
                             .micro_batch = 2,
                             .micro_steps = 2,
                             .learning_rate = 3e-3,
                             .sharding = {2, 2, 2}};
}

static const char *const sets[] = {"run.validation_batches=2", "run.threads=1", "run.device=cpu",
                                   "run.comm_timeout_s=60"};

// Nobody listens.
static inline mics_job_spec spec_of(const mics_run_values *values)
{
    return (mics_job_spec){.memory = memory,
                           .values = values,
                           .sets = sets,
                           .set_count = sizeof sets / sizeof sets[0],
                           .ranks = RANKS,
                           .nodes = 1};
}

static inline void write_file(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

static inline void write_model(const char *path, int vocab)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"model_type\": \"gpt2\", \"activation_function\": \"gelu_new\", \"n_embd\": 16, "
             "\"n_head\": 2, \"n_layer\": 2, \"n_positions\": 32, \"vocab_size\": %d, "
             "\"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0}",
             vocab);
    write_file(path, text);
}

static inline int begin(void **state)
{
    char text[4096] = "";
    (void)state;
    for (size_t i = 0; i + 32 < sizeof text; i += 26)
        snprintf(text + i, sizeof text - i, "the lark at break of day%c\n", (char)('a' + i % 26));
    if (mkdtemp(work) == NULL || chdir(work) != 0 || mics_memory_open(&memory) != MICS_OK)
        return 1;
    write_file("text.txt", text);
    write_file("short.txt", "");
    write_model("model.json", 256);
    write_model("large.json", 80000);
    return 0;
}

static inline int end(void **state)
{
    char command[64];
    (void)state;
    const int64_t leaks = mics_memory_close(memory);
    snprintf(command, sizeof command, "rm -rf %s", work);
    return system(command) == 0 && leaks == 0 ? 0 : 1;
}
