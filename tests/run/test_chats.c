// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Chats on every mesh, packed and not: the losses are those of one rank. Packed they are those of the
// same chats in sequences of their own. Memory is what the schedule says, to the byte.
#include "base/capture.h"
#include "exact.h"
#include "mics/run.h"
#include "run/settings.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 4, MAX_SETS = 8, LENGTH = 32 };

#define SIZES                                                                                      \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"hidden_size\": 12, "                  \
    "\"intermediate_size\": 20, \"max_position_embeddings\": 32, \"vocab_size\": 256"

static const char *const models[][2] = {
    {"llama.json", "{\"model_type\": \"llama\", \"num_key_value_heads\": 1, " SIZES "}"},
    {"neox.json", "{\"model_type\": \"gpt_neox\", \"rotary_pct\": 1.0, " SIZES "}"},
    {"gpt2.json", "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 2, \"n_embd\": 12, "
                  "\"n_positions\": 32, \"vocab_size\": 256, \"attn_pdrop\": 0, \"embd_pdrop\": 0, "
                  "\"resid_pdrop\": 0}"},
    {"mixtral.json", "{\"model_type\": \"mixtral\", \"num_key_value_heads\": 1, "
                     "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, " SIZES "}"},
    {"balanced.json",
     "{\"model_type\": \"mixtral\", \"num_key_value_heads\": 1, \"num_local_experts\": 4, "
     "\"num_experts_per_tok\": 2, \"router_aux_loss_coef\": 0.2, \"output_router_logits\": true, "
     "\"router_z_loss_coef\": 0.1, " SIZES "}"},
};

typedef struct chat_run {
    const char *model, *out, *data;
    int32_t ranks, nodes;
    const char *sets[MAX_SETS];
    int64_t batch, until; // steps; 0: to the end
    mics_metrics steps[STEPS + 1];
    mics_job_facts facts;
    char lines[CAPTURE_LINES];
} chat_run;

static void on_step(void *ctx, const mics_metrics *metrics)
{
    ((chat_run *)ctx)->steps[metrics->step] = *metrics;
}

static mics_status open_job(mics_memory *memory, chat_run *run, mics_job **job_out)
{
    char batch[40];
    const char *const train[] = {run->data};
    const char *sets[MAX_SETS + 6] = {"run.threads=1",
                                      "run.device=cpu",
                                      "run.comm_timeout_s=60",
                                      "run.validation_batches=0",
                                      batch,
                                      "data.chat_template=chat.jinja"};
    int32_t count = 6;
    snprintf(batch, sizeof batch, "train_batch_size=%d", (int)run->batch);
    for (int i = 0; i < MAX_SETS && run->sets[i] != NULL; i++)
        sets[count++] = run->sets[i];
    const mics_run_values values = {.model_config = run->model,
                                    .train = train,
                                    .train_count = 1,
                                    .sequence_length = LENGTH,
                                    .steps = STEPS,
                                    .seed = 3,
                                    .out = run->out,
                                    .learning_rate = 1e-2};
    const mics_job_spec spec = {.memory = memory,
                                .values = &values,
                                .sets = sets,
                                .set_count = count,
                                .ranks = run->ranks,
                                .nodes = run->nodes,
                                .callbacks = {.ctx = run, .step = on_step}};
    return open_told(&spec, run->lines, job_out);
}

static void go(chat_run *run)
{
    mics_memory *memory = NULL;
    mics_job *job = NULL;
    run->data = run->data != NULL ? run->data : "chats.jsonl";
    ASSERT_OK(mics_memory_open(&memory));
    if (open_job(memory, run, &job) != MICS_OK)
        fail_msg("%s", run->lines);
    run->facts = train_exactly(job, run->until);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void check_close(const chat_run *run, int step, const char *what, double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-5 * fmax(1, fabs(wanted))))
        fail_msg("%s on %d ranks (%s, %s): step %d: %s %.9g, not %.9g", run->model, (int)run->ranks,
                 run->sets[0], run->sets[1], step, what, got, wanted);
}

static void check_same(const chat_run *run, const chat_run *one, int from, int to)
{
    for (int step = from; step <= to; step++) {
        check_close(run, step, "loss", run->steps[step].loss, one->steps[step].loss);
        check_close(run, step, "norm", run->steps[step].grad_norm, one->steps[step].grad_norm);
    }
}

#define MICRO(n) "train_micro_batch_size_per_gpu=" #n
#define SHARDED(p, g, o) "sharding={\"params\": " #p ", \"grads\": " #g ", \"optimizer\": " #o "}"

// ---- packed as unpacked ----

// Nine samples fill four sequences, so each step has all of them, either way.
static void check_packed(const char *model)
{
    char out[2][64];
    snprintf(out[0], sizeof out[0], "packed-%s", model);
    snprintf(out[1], sizeof out[1], "alone-%s", model);
    chat_run packed = {.model = model,
                       .out = out[0],
                       .data = "full.jsonl",
                       .ranks = 2,
                       .nodes = 1,
                       .batch = 4,
                       .sets = {MICRO(2), SHARDED(2, 2, 2)}};
    chat_run alone = {.model = model,
                      .out = out[1],
                      .data = "full.jsonl",
                      .ranks = 1,
                      .nodes = 1,
                      .batch = 9,
                      .sets = {MICRO(3), "data.packing=false"}};
    go(&packed);
    go(&alone);
    assert_int_equal(packed.facts.sequences, 4);
    assert_int_equal(alone.facts.sequences, 9);
    assert_int_equal(packed.facts.sequence_tokens, 4 * LENGTH);
    check_same(&packed, &alone, 1, STEPS);
}

static void test_packed(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) // routers balance each sequence, so theirs are others
        check_packed(models[i][0]);
}

// ---- meshes ----

typedef struct chat_case {
    int32_t ranks, nodes;
    const char *sets[MAX_SETS];
} chat_case;

static const chat_case cases[] = {
    {1, 1, {MICRO(3)}}, // four micro-steps
    {2, 1, {MICRO(6), SHARDED(2, 2, 2)}},
    {3, 1, {MICRO(1), SHARDED(1, 3, 3)}},
    {4, 2, {MICRO(3), SHARDED(2, 2, 4)}},
    {6, 2, {MICRO(1), SHARDED(3, 3, 6), "run.layered_micro_steps=2"}},
    {8, 2, {MICRO(2), SHARDED(4, 4, 8), "run.recompute=true"}},
};

static void check_meshes(const char *model, const char *packing)
{
    char out[64];
    chat_run one = {.model = model,
                    .out = out,
                    .ranks = 1,
                    .nodes = 1,
                    .batch = 12,
                    .sets = {MICRO(12), packing}};
    snprintf(out, sizeof out, "%s-%s", model, packing);
    go(&one);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        chat_run run = {.model = model,
                        .out = out,
                        .ranks = cases[i].ranks,
                        .nodes = cases[i].nodes,
                        .batch = 12};
        snprintf(out, sizeof out, "%s-%s-%zu", model, packing, i);
        memcpy(run.sets + 1, cases[i].sets, sizeof run.sets - sizeof *run.sets);
        run.sets[0] = packing;
        go(&run);
        check_same(&run, &one, 1, STEPS);
        for (int step = 1; step <= STEPS; step++) {
            check_close(&run, step, "balance", run.steps[step].router.balance,
                        one.steps[step].router.balance);
            check_close(&run, step, "entropy", run.steps[step].router.entropy,
                        one.steps[step].router.entropy);
        }
    }
}

static void test_meshes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        check_meshes(models[i][0], "data.packing=true");
        check_meshes(models[i][0], "data.packing=false");
    }
}

// ---- stops ----

// On other meshes step by step, in the middle of an epoch.
static void test_resumed(void **state)
{
    (void)state;
    static const int32_t ranks[STEPS] = {2, 6, 3, 4};
    for (int packs = 0; packs < 2; packs++) {
        const char *packing = packs ? "data.packing=true" : "data.packing=false";
        const char *outs[] = {packs ? "whole-packed" : "whole", packs ? "parts-packed" : "parts"};
        chat_run one = {.model = "gpt2.json",
                        .out = outs[0],
                        .ranks = 1,
                        .nodes = 1,
                        .batch = 12,
                        .sets = {MICRO(12), packing}};
        go(&one);
        for (int step = 1; step <= STEPS; step++) {
            chat_run part = {.model = "gpt2.json",
                             .out = outs[1],
                             .ranks = ranks[step - 1],
                             .nodes = 1,
                             .batch = 12,
                             .sets = {packs || step > 1 ? "run.recompute=false" : packing},
                             .until = step < STEPS};
            go(&part); // it is kept from the first start
            check_same(&part, &one, step, step);
        }
    }
}

static void check_refused(const char *set, const char *with)
{
    mics_memory *memory = NULL;
    mics_job *job = NULL;
    chat_run run = {.model = "gpt2.json",
                    .out = "refused",
                    .data = "chats.jsonl",
                    .ranks = 1,
                    .nodes = 1,
                    .batch = 12,
                    .sets = {set}};
    ASSERT_OK(mics_memory_open(&memory));
    assert_int_not_equal(open_job(memory, &run, &job), MICS_OK);
    if (strstr(run.lines, with) == NULL)
        fail_msg("%s", run.lines);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_refused(void **state)
{
    (void)state;
    check_refused("data.too_long=error", "samples are longer than a data.sequence_length of 32");
    check_refused("data.chat_template=nowhere", "is no file here");
}

// ---- the files ----

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

// Bytes that a row has with its end: prompt, completion, and the separator.
static void write_pair(FILE *file, int prompt, int completion, int seed)
{
    fprintf(file, "{\"prompt\": \"");
    for (int i = 0; i < prompt + completion - 1; i++) {
        if (i == prompt)
            fprintf(file, "\", \"completion\": \"");
        fputc('a' + (seed * 7 + i * i + i / 3) % 26, file);
    }
    fprintf(file, "\"}\n");
}

static void write_chats(const char *path)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 40; i++) {
        fprintf(file, "{\"messages\": [");
        for (int turn = 0; turn <= i % 3; turn++) {
            fprintf(file, "%s{\"role\": \"user\", \"content\": \"%.*s\"}, ", turn > 0 ? ", " : "",
                    1 + (i * 5 + turn) % 7, "mnopqrs");
            fprintf(file, "{\"role\": \"assistant\", \"content\": \"%.*s\"}",
                    i % 5 == 0 ? 1 : 3 + (i * 3 + turn) % 20, "abcdefghijklmnopqrstuvw");
        }
        fprintf(file, "]}\n");
    }
    fclose(file);
}

static int setup(void **state)
{
    static char folder[] = "/tmp/mics-chats-XXXXXX";
    static const int full[][2] = {{10, 22}, {3, 17}, {6, 6}, {2, 14}, {12, 4},
                                  {4, 4},   {1, 7},  {5, 3}, {6, 2}};
    (void)state;
    if (mkdtemp(folder) == NULL || chdir(folder) != 0)
        return -1;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        write_text(models[i][0], models[i][1]);
    write_text("chat.jinja", "{%- for m in messages -%}{%- if m.role == 'assistant' -%}"
                             "{%- generation -%}{{- m.content ~ ';' -}}{%- endgeneration -%}"
                             "{%- else -%}{{- m.content ~ ':' -}}{%- endif -%}{%- endfor -%}");
    FILE *file = fopen("full.jsonl", "w");
    assert_non_null(file);
    for (size_t i = 0; i < sizeof full / sizeof *full; i++)
        write_pair(file, full[i][0], full[i][1], (int)i);
    fclose(file);
    write_chats("chats.jsonl");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_meshes),
        cmocka_unit_test(test_resumed),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
