// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Sequences over several ranks (sharding.sequence): losses, norms, tokens and figures of routers are
// those of one rank, whatever the mesh, length or kind of data, and across stops and resumes. Memory is
// what the schedule says, to the byte.
#include "base/capture.h"
#include "exact.h"
#include "mics/run.h"
#include "run/settings.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 4, MAX_SETS = 8, BATCH = 8, LENGTH = 16 };

#define SIZES                                                                                      \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"hidden_size\": 16, "                  \
    "\"intermediate_size\": 20, \"max_position_embeddings\": 16, \"vocab_size\": 256"

static const char *const models[][2] = {
    {"llama.json", "{\"model_type\": \"llama\", \"num_key_value_heads\": 2, " SIZES "}"},
    {"gpt2.json", "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 4, \"n_embd\": 16, "
                  "\"n_positions\": 16, \"vocab_size\": 256, \"attn_pdrop\": 0.1, "
                  "\"embd_pdrop\": 0.1, \"resid_pdrop\": 0.1}"},
    {"mixtral.json",
     "{\"model_type\": \"mixtral\", \"num_key_value_heads\": 1, \"num_local_experts\": 4, "
     "\"num_experts_per_tok\": 2, \"router_aux_loss_coef\": 0.2, \"output_router_logits\": true, "
     "\"router_z_loss_coef\": 0.1, " SIZES "}"},
    {"long.json",
     "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
     "\"hidden_size\": 16, \"intermediate_size\": 20, \"max_position_embeddings\": 1024, "
     "\"vocab_size\": 256}"},
    {"bert.json", "{\"model_type\": \"bert\", \"hidden_dropout_prob\": 0.1, "
                  "\"attention_probs_dropout_prob\": 0.1, " SIZES "}"},
};

typedef struct cut_run {
    const char *model, *out, *data;
    int32_t ranks, nodes;
    const char *sets[MAX_SETS];
    int64_t length, until; // steps; 0: to the end
    mics_metrics steps[STEPS + 1];
    double validation[STEPS + 1];
    char lines[CAPTURE_LINES];
} cut_run;

static void on_step(void *ctx, const mics_metrics *metrics)
{
    cut_run *run = ctx;
    run->steps[metrics->step] = *metrics;
}

static void on_validation(void *ctx, int64_t step, double loss)
{
    cut_run *run = ctx;
    run->validation[step] = loss;
}

static mics_status open_job(mics_memory *memory, cut_run *run, mics_job **job_out)
{
    const char *const train[] = {run->data != NULL ? run->data : "text.txt"};
    const char *sets[MAX_SETS + 6] = {"run.threads=1", "run.device=cpu", "run.comm_timeout_s=60",
                                      "train_batch_size=8", "run.validation_batches=2"};
    int32_t count = 5;
    if (strcmp(run->model, "bert.json") == 0)
        sets[count++] = "data.tokenizer=vocab.txt";
    if (run->data != NULL && strcmp(run->data, "chats.jsonl") == 0)
        sets[count++] = "data.chat_template=chat.jinja";
    for (int i = 0; i < MAX_SETS && run->sets[i] != NULL; i++)
        sets[count++] = run->sets[i];
    const mics_run_values values = {.model_config = run->model,
                                    .train = train,
                                    .train_count = 1,
                                    .sequence_length = run->length,
                                    .steps = STEPS,
                                    .seed = 3,
                                    .out = run->out,
                                    .learning_rate = 3e-3};
    const mics_job_spec spec = {
        .memory = memory,
        .values = &values,
        .sets = sets,
        .set_count = count,
        .ranks = run->ranks,
        .nodes = run->nodes,
        .callbacks = {.ctx = run, .step = on_step, .validation = on_validation}};
    return open_told(&spec, run->lines, job_out);
}

static void go(cut_run *run)
{
    mics_memory *memory = NULL;
    mics_job *job = NULL;
    run->length = run->length > 0 ? run->length : LENGTH;
    ASSERT_OK(mics_memory_open(&memory));
    if (open_job(memory, run, &job) != MICS_OK)
        fail_msg("%s", run->lines);
    train_exactly(job, run->until);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void check_close(const cut_run *run, int step, const char *what, double got, double wanted,
                        double tolerance)
{
    if (!(fabs(got - wanted) <= tolerance * fmax(1, fabs(wanted))))
        fail_msg("%s, %lld tokens, on %d ranks (%s): step %d: %s %.9g, one rank has %.9g",
                 run->model, (long long)run->length, (int)run->ranks, run->sets[0], step, what, got,
                 wanted);
}

static void check_same(const cut_run *run, const cut_run *one, int from, int to)
{
    for (int step = from; step <= to; step++) {
        const mics_metrics *got = &run->steps[step], *wanted = &one->steps[step];
        check_close(run, step, "loss", got->loss, wanted->loss, 1e-6);
        check_close(run, step, "norm", got->grad_norm, wanted->grad_norm, 1e-5);
        check_close(run, step, "tokens", (double)got->tokens, (double)wanted->tokens, 0);
        assert_int_equal(got->router.any, wanted->router.any);
        check_close(run, step, "entropy", got->router.entropy, wanted->router.entropy, 1e-5);
        check_close(run, step, "fullest", got->router.fullest, wanted->router.fullest, 1e-5);
        check_close(run, step, "balance", got->router.balance, wanted->router.balance, 1e-5);
        if (run->validation[step] != 0)
            check_close(run, step, "validation", run->validation[step], one->validation[step],
                        1e-6);
    }
    assert_true(to < STEPS || run->validation[to] > 0);
}

#define MICRO(n) "train_micro_batch_size_per_gpu=" #n
#define CUT(p, o, s) "sharding={\"params\": " #p ", \"optimizer\": " #o ", \"sequence\": " #s "}"

static const struct {
    int32_t ranks, nodes;
    const char *sets[MAX_SETS];
} meshes[] = {
    {2, 1, {CUT(1, 1, 2), MICRO(2)}},
    {4, 1, {CUT(2, 4, 1), MICRO(2)}},
    {4, 1, {CUT(2, 2, 2), MICRO(4)}},
    {4, 1, {CUT(2, 4, 4), MICRO(4)}},
    {8, 2, {CUT(4, 8, 2), MICRO(1)}},
    {8, 2, {CUT(8, 8, 4), MICRO(2), "run.recompute=true"}},
    {8, 1, {CUT(2, 2, 4), MICRO(1), "run.layered_micro_steps=2"}},
};

static void check_meshes(const char *model, const char *data, int64_t length, const char *set)
{
    char out[96];
    cut_run one = {.model = model,
                   .out = out,
                   .data = data,
                   .ranks = 1,
                   .nodes = 1,
                   .length = length,
                   .sets = {MICRO(2), set}};
    snprintf(out, sizeof out, "one-%s-%s-%d", model, data, (int)length);
    go(&one);
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        cut_run run = one;
        run.ranks = meshes[i].ranks;
        run.nodes = meshes[i].nodes;
        memcpy(run.sets, meshes[i].sets, sizeof run.sets);
        run.sets[3] = set;
        run.sets[2] = run.sets[2] != NULL ? run.sets[2] : "run.prefetch=1";
        snprintf(out, sizeof out, "%s-%s-%d-%zu", model, data, (int)length, i);
        go(&run);
        check_same(&run, &one, 1, STEPS);
    }
}

static void test_llama(void **state)
{
    (void)state;
    check_meshes("llama.json", "text.txt", 16, NULL);
    check_meshes("llama.json", "text.txt", 14, NULL);
}

static void test_gpt2(void **state)
{
    (void)state;
    check_meshes("gpt2.json", "text.txt", 16, NULL);
    check_meshes("gpt2.json", "text.txt", 13, NULL);
}

static void test_mixture(void **state)
{
    (void)state;
    check_meshes("mixtral.json", "text.txt", 16, NULL);
    check_meshes("mixtral.json", "text.txt", 14, NULL);
    cut_run one = {.model = "mixtral.json",
                   .out = "alone",
                   .ranks = 1,
                   .nodes = 1,
                   .length = 14,
                   .sets = {MICRO(2)}};
    cut_run run = {.model = "mixtral.json", // tokens travel to experts, too
                   .out = "spread",
                   .ranks = 8,
                   .nodes = 2,
                   .length = 14,
                   .sets = {MICRO(2), "sharding={\"params\": 4, \"experts\": 2, \"sequence\": 4}"}};
    go(&one);
    go(&run);
    check_same(&run, &one, 1, STEPS);
}

// Which tokens are hidden follows from the row; padding is seen by none.
static void test_bert(void **state)
{
    (void)state;
    check_meshes("bert.json", "text.txt", 16, NULL);
    check_meshes("bert.json", "text.txt", 14, NULL);
}

static void test_chats(void **state)
{
    (void)state;
    check_meshes("llama.json", "chats.jsonl", 16, "data.packing=true");
    check_meshes("llama.json", "chats.jsonl", 15, "data.packing=false");
    check_meshes("gpt2.json", "chats.jsonl", 14, "data.packing=true");
}

// Adapters, whose noise is a row's, and phases of other lengths.
static void test_kinds(void **state)
{
    (void)state;
    check_meshes("llama.json", "text.txt", 12, "adapter={\"r\": 2, \"lora_dropout\": 0.1}");
    check_meshes("gpt2.json", "text.txt", 12,
                 "phases=[{\"steps\": 2, \"data\": {\"sequence_length\": 7}}, {\"steps\": 2, "
                 "\"train_batch_size\": 16}]");
}

// ---- stops ----

// The run file's batch is not the same number of micro-steps on each.
static void test_resume(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks, nodes;
        const char *set;
    } parts[STEPS] = {
        {4, 1, CUT(2, 4, 1)}, {4, 1, CUT(2, 4, 2)}, {8, 2, CUT(4, 4, 4)}, {2, 1, CUT(2, 2, 2)}};
    cut_run one = {
        .model = "gpt2.json", .out = "never", .ranks = 1, .nodes = 1, .sets = {MICRO(2)}};
    go(&one);
    for (int step = 1; step <= STEPS; step++) {
        cut_run part = {.model = "gpt2.json",
                        .out = "stops",
                        .ranks = parts[step - 1].ranks,
                        .nodes = parts[step - 1].nodes,
                        .sets = {parts[step - 1].set, "run.coalesce_below=0"},
                        .until = step < STEPS};
        go(&part);
        check_same(&part, &one, step, step);
        if (step > 1 && strstr(part.lines, "changed: sharding.sequence") == NULL)
            fail_msg("%s", part.lines);
    }
}

// With the same S the bits are those of a run that never stopped.
static void test_resume_bits(void **state)
{
    (void)state;
    cut_run whole = {.model = "gpt2.json", .out = "bits", .ranks = 4, .nodes = 1};
    cut_run parts[2];
    whole.sets[0] = CUT(2, 4, 4);
    whole.sets[1] = MICRO(2);
    parts[0] = parts[1] = whole;
    parts[0].out = parts[1].out = "bits-parts";
    parts[0].until = 2;
    go(&whole);
    go(&parts[0]);
    go(&parts[1]);
    for (int step = 1; step <= STEPS; step++)
        check_close(&whole, step, "loss", parts[step > 2].steps[step].loss, whole.steps[step].loss,
                    0);
    check_close(&whole, STEPS, "validation", parts[1].validation[STEPS], whole.validation[STEPS],
                0);
}

// ---- what cannot be ----

static void check_refused(cut_run run, const char *with)
{
    mics_memory *memory = NULL;
    mics_job *job = NULL;
    run.out = "refused";
    run.length = run.length > 0 ? run.length : LENGTH;
    ASSERT_OK(mics_memory_open(&memory));
    assert_int_not_equal(open_job(memory, &run, &job), MICS_OK);
    if (strstr(run.lines, with) == NULL)
        fail_msg("not \"%s\": %s", with, run.lines);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_refused(void **state)
{
    (void)state;
    cut_run run = {.model = "llama.json", .ranks = 6, .nodes = 2, .sets = {CUT(1, 1, 2)}};
    check_refused(run, "sharding.sequence: 2 must divide the ranks of a node, 3, and divide params "
                       "(P) = 1 or be a multiple of it; these would work: 1, 3");
    run = (cut_run){.model = "llama.json", .ranks = 12, .nodes = 1, .sets = {CUT(4, 4, 6)}};
    check_refused(run, "these would work: 1, 2, 4, 12");
    run = (cut_run){.model = "llama.json", .ranks = 3, .nodes = 1, .sets = {CUT(1, 1, 3)}};
    run.length = 15;
    check_refused(run, "heads");
    run = (cut_run){.model = "llama.json", .ranks = 4, .nodes = 1, .sets = {CUT(1, 1, 4)}};
    run.length = 15; // and 16 positions
    run.sets[1] = "gradient_accumulation_steps=3";
    run.sets[2] = MICRO(2);
    check_refused(run, "micro_batch_size_per_gpu 2 x gradient_accumulation_steps 3 x 1 data ranks "
                       "(ranks / sharding.sequence) = 6");
    run = (cut_run){.model = "llama.json", .ranks = 2, .nodes = 1, .data = "pairs.jsonl"};
    run.sets[0] = CUT(1, 1, 2);
    run.sets[1] = "objective.type=dpo";
    check_refused(run,
                  "sharding.sequence: is 2, but both answers of a pair stay on one rank; use 1");
}

// Padding needs positions of the model.
static void test_positions(void **state)
{
    (void)state;
    static const char odd[] = "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, "
                              "\"num_attention_heads\": 4, \"hidden_size\": 16, "
                              "\"intermediate_size\": 20, \"max_position_embeddings\": 15, "
                              "\"vocab_size\": 256}";
    FILE *file = fopen("odd.json", "w");
    assert_non_null(file);
    fputs(odd, file);
    fclose(file);
    const cut_run run = {
        .model = "odd.json", .ranks = 4, .nodes = 1, .length = 15, .sets = {CUT(1, 1, 4)}};
    check_refused(run,
                  "15 tokens are padded to a multiple of sharding.sequence 4, and odd.json has "
                  "15 positions; 12 works");
}

static int64_t bytes_of(const char *cut, const char *steps)
{
    mics_memory *memory = NULL;
    mics_job *job = NULL;
    const char *const sets[] = {
        cut, steps, MICRO(1), "run.recompute=true", "run.device=cpu", "run.threads=1"};
    const char *const train[] = {"text.txt"};
    const mics_run_values values = {.model_config = "long.json",
                                    .train = train,
                                    .train_count = 1,
                                    .sequence_length = 1024,
                                    .steps = 1,
                                    .out = "sized",
                                    .learning_rate = 3e-3};
    const mics_job_spec spec = {
        .memory = NULL, .values = &values, .sets = sets, .set_count = 6, .ranks = 4, .nodes = 1};
    mics_job_spec with = spec;
    ASSERT_OK(mics_memory_open(&memory));
    with.memory = memory;
    ASSERT_OK(mics_job_size(&with, &job));
    const int64_t bytes = (int64_t)mics_job_schedule(job)->ledger.total;
    ASSERT_OK(mics_job_close(job));
    assert_int_equal(mics_memory_close(memory), 0);
    return bytes;
}

// A sequence that does not fit: the error names the fewest ranks that share it so that it does.
static void test_suggested(void **state)
{
    (void)state;
    char limit[48];
    const int64_t two = bytes_of(CUT(4, 4, 2), "gradient_accumulation_steps=4");
    const int64_t four = bytes_of(CUT(4, 4, 4), "gradient_accumulation_steps=8");
    assert_true(bytes_of(CUT(4, 4, 1), "gradient_accumulation_steps=2") > two && two > four);
    cut_run run = {.model = "long.json", .ranks = 4, .nodes = 1, .length = 1024};
    run.sets[0] = CUT(4, 4, 1);
    run.sets[1] = MICRO(1);
    run.sets[2] = "run.recompute=true";
    run.sets[3] = limit;
    snprintf(limit, sizeof limit, "run.memory_limit=%lld", (long long)two);
    check_refused(run, "sharding.sequence 2 with gradient_accumulation_steps 4 (");
    snprintf(limit, sizeof limit, "run.memory_limit=%lld", (long long)two - 1);
    check_refused(run, "sharding.sequence 4 with gradient_accumulation_steps 8 (");
    run.sets[0] = CUT(4, 4, 2); // and the same of a run that cuts them already
    snprintf(limit, sizeof limit, "run.memory_limit=%lld", (long long)four);
    run.sets[4] = "gradient_accumulation_steps=4";
    check_refused(run, "sharding.sequence 4 with gradient_accumulation_steps 8 (");
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void write_vocab(void)
{
    FILE *file = fopen("vocab.txt", "w");
    assert_non_null(file);
    fputs("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", file);
    for (int c = 'a'; c <= 'z'; c++)
        fprintf(file, "%c\n##%c\n", c, c);
    fclose(file);
}

static void write_chats(void)
{
    FILE *file = fopen("chats.jsonl", "w");
    assert_non_null(file);
    for (int i = 0; i < 60; i++)
        fprintf(file,
                "{\"messages\": [{\"role\": \"user\", \"content\": \"%.*s\"}, {\"role\": "
                "\"assistant\", \"content\": \"%.*s\"}]}\n",
                1 + i % 3, "xyz", 1 + i % 5, "abcde");
    fclose(file);
}

static int setup(void **state)
{
    static char folder[] = "/tmp/mics-sequences-XXXXXX";
    char text[2048];
    (void)state;
    if (mkdtemp(folder) == NULL || chdir(folder) != 0)
        return -1;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        write_text(models[i][0], models[i][1]);
    for (size_t i = 0; i < sizeof text - 1; i++)
        text[i] = i % 6 == 5 ? ' ' : (char)('a' + (i * i + i / 7) % 26);
    text[sizeof text - 1] = '\0';
    write_text("text.txt", text);
    write_text("chat.jinja", "{%- for m in messages -%}{%- if m.role == 'assistant' -%}"
                             "{%- generation -%}{{- m.content ~ ';' -}}{%- endgeneration -%}"
                             "{%- else -%}{{- m.content ~ ':' -}}{%- endif -%}{%- endfor -%}");
    write_vocab();
    write_chats();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),     cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_mixture),   cmocka_unit_test(test_bert),
        cmocka_unit_test(test_chats),     cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_resume),    cmocka_unit_test(test_resume_bits),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_positions),
        cmocka_unit_test(test_suggested),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
