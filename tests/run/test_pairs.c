// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Pairs of answers as TRL's DPOTrainer trains them: its tokens, losses, rewards and validations
// (tools/make_dpo_golden.py), on every mesh; and what becomes of the reference when a run stops.
#include "base/capture.h"
#include "base/json.h"
#include "mics/run.h"
#include "run/settings.h"
#include "test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEPS = 20, LENGTH = 96, MAX_SETS = 16, METRICS = 7 };

static const char *const families[] = {"llama", "qwen3"};
static mics_memory *memory;

static mics_json *load(const char *family, const char *name)
{
    char path[2048];
    mics_json *json = NULL;
    snprintf(path, sizeof path, "%s/dpo/%s/%s.json", MICS_TEST_DATA, family, name);
    ASSERT_OK(mics_json_load(memory, path, 1 << 24, &json));
    return json;
}

// ---- runs ----

typedef struct pair_run {
    const char *family, *kind, *out; // kind: of the data
    int32_t ranks, nodes;
    const char *sets[MAX_SETS];
    int64_t until; // 0: to the end
    mics_metrics steps[STEPS + 1];
    char lines[CAPTURE_LINES];
} pair_run;

static void on_step(void *ctx, const mics_metrics *metrics)
{
    ((pair_run *)ctx)->steps[metrics->step] = *metrics;
}

static mics_status open_job(pair_run *run, bool sizes, mics_job **job_out)
{
    char model[1024], data[1024], held[1024];
    const char *sets[MAX_SETS + 8] = {"run.device=cpu",        "run.precision=fp32",
                                      "run.threads=1",         held,
                                      "gradient_clipping=1.0", "run.comm_timeout_s=60"};
    int32_t count = 6;
    const char *const train[] = {data};
    snprintf(model, sizeof model, "%s/chat/%s", MICS_TEST_DATA, run->family);
    if (strchr(run->kind, '.') != NULL) // a path
        snprintf(data, sizeof data, "%s", run->kind);
    else
        snprintf(data, sizeof data, "%s/dpo/%s.jsonl", MICS_TEST_DATA, run->kind);
    snprintf(held, sizeof held, "data.validation=[\"%s/dpo/held.jsonl\"]", MICS_TEST_DATA);
    for (int i = 0; i < MAX_SETS && run->sets[i] != NULL; i++)
        sets[count++] = run->sets[i];
    const mics_run_values values = {.model_config = model,
                                    .train = train,
                                    .train_count = 1,
                                    .sequence_length = LENGTH,
                                    .steps = STEPS,
                                    .seed = 11,
                                    .out = run->out,
                                    .learning_rate = 1e-3};
    const mics_job_spec spec = {.memory = memory,
                                .values = &values,
                                .sets = sets,
                                .set_count = count,
                                .ranks = run->ranks,
                                .nodes = run->nodes,
                                .callbacks = {.ctx = run, .step = on_step}};
    run->lines[0] = '\0';
    mics_log_set_sink(capture_lines, run->lines);
    const mics_status status =
        sizes ? mics_job_size(&spec, job_out) : mics_job_open(&spec, job_out);
    mics_log_set_sink(NULL, NULL);
    return status;
}

static void go(pair_run *run)
{
    mics_job *job = NULL;
    if (open_job(run, false, &job) != MICS_OK)
        fail_msg("%s", run->lines);
    ASSERT_OK(mics_job_train(job, run->until));
    const mics_memory_ledger *ledger = &mics_job_schedule(job)->ledger;
    const mics_job_facts facts = mics_job_facts_get(job);
    for (int tag = 0; tag < MICS_MEM_HOST; tag++)
        assert_int_equal(facts.peak_bytes[tag], ledger->bytes[tag]);
    if (run->until > 0)
        ASSERT_OK(mics_job_save(job));
    ASSERT_OK(mics_job_close(job));
}

// ---- tokens ----

typedef struct looking {
    const mics_json *wanted;
    int32_t sample;
} looking;

static void check_sample(void *ctx, const mics_job_sample *sample)
{
    static const char *const sides[] = {"chosen", "rejected"};
    looking *at = ctx;
    const mics_json_value *row = mics_json_element(mics_json_root(at->wanted), at->sample / 2);
    const mics_json_value *ids = mics_json_get(row, sides[at->sample % 2]);
    const int64_t begin = mics_json_int(mics_json_get(row, "begin"));
    assert_non_null(strstr(sample->name, sides[at->sample++ % 2]));
    assert_int_equal(sample->count < LENGTH ? sample->count : LENGTH, mics_json_count(ids));
    for (int32_t i = 0; i < mics_json_count(ids); i++) {
        assert_int_equal(sample->tokens[i], mics_json_int(mics_json_element(ids, i)));
        assert_int_equal(sample->counts[i], i >= begin);
    }
}

static void test_tokens(void **state)
{
    static const char *const kinds[] = {"prompts", "implicit", "texts", "plain"};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof kinds / sizeof *kinds; i++) {
        pair_run run = {.family = families[i % 2],
                        .kind = kinds[i / 2],
                        .out = "sized",
                        .ranks = 1,
                        .nodes = 1,
                        .sets = {"objective.type=dpo", "train_batch_size=4"}};
        mics_job *job = NULL;
        mics_json *wanted = load(run.family, run.kind);
        looking at = {.wanted = wanted};
        ASSERT_OK(open_job(&run, true, &job));
        ASSERT_OK(mics_job_samples(job, 1000, check_sample, &at));
        assert_int_equal(at.sample, 2 * mics_json_count(mics_json_root(wanted)));
        ASSERT_OK(mics_job_close(job));
        mics_json_close(wanted);
    }
}

// ---- losses ----

#define MICRO(n) "train_micro_batch_size_per_gpu=" #n
#define SHARDED(p, g, o) "sharding={\"params\": " #p ", \"grads\": " #g ", \"optimizer\": " #o "}"

static const struct {
    int32_t ranks, nodes;
    const char *micro, *sharding;
} meshes[] = {
    {1, 1, MICRO(2), SHARDED(1, 1, 1)}, // two micro-steps
    {2, 1, MICRO(1), SHARDED(2, 2, 2)}, // two
    {4, 2, MICRO(1), SHARDED(2, 2, 4)},
    {3, 1, MICRO(1), SHARDED(1, 3, 3)}, // two pairs of the six are beyond the batch
};

static const struct {
    const char *name, *sets[4];
} cases[] = {
    {"dpo", {"objective.type=dpo", "objective.beta=0.3"}},
    {"ipo", {"objective.type=ipo", "objective.beta=0.5"}},
    {"smooth", {"objective.type=dpo", "objective.beta=0.3", "objective.label_smoothing=0.1"}},
    {"lora", {"objective.type=dpo", "objective.beta=0.3"}},       // the reference is the base
    {"lora_tuned", {"objective.type=dpo", "objective.beta=0.3"}}, // and the adapter it begins with
};

static void check_close(const pair_run *run, int64_t step, int metric, double got, double wanted)
{
    static const char *const names[METRICS] = {
        "loss", "chosen", "rejected", "accuracies", "margins", "logps/chosen", "logps/rejected"};
    const double tolerance = metric == 0 ? 1e-4 : 1e-4 * fmax(1, fabs(wanted));
    if (!(fabs(got - wanted) <= tolerance))
        fail_msg("%s, %s on %d ranks: step %d: %s %.9g, TRL has %.9g", run->family, run->out,
                 (int)run->ranks, (int)step, names[metric], got, wanted);
}

// Where a policy is its own reference, rounding alone says which margin is above 0: it depends on the
// CPU's kernels.
static bool is_undecided(const mics_json_value *row, int metric)
{
    enum { ACCURACIES = 3, MARGINS = 4 };
    return metric == ACCURACIES && fabs(mics_json_real(mics_json_element(row, MARGINS))) < 1e-6;
}

static void check_steps(const pair_run *run, const mics_json *wanted)
{
    for (int64_t step = 1; step <= STEPS; step++) {
        const mics_json_value *row =
            mics_json_element(mics_json_at(wanted, "steps"), (int32_t)step - 1);
        const mics_preference_metrics *of = &run->steps[step].preference;
        const double got[METRICS] = {
            run->steps[step].loss,     of->chosen,       of->rejected,      of->accuracies,
            of->chosen - of->rejected, of->logps_chosen, of->logps_rejected};
        for (int i = 0; i < METRICS; i++) {
            if (!is_undecided(row, i))
                check_close(run, step, i, got[i], mics_json_real(mics_json_element(row, i)));
        }
    }
}

// In metrics.jsonl, by TRL's names.
static void check_validations(const pair_run *run, const mics_json *wanted)
{
    char path[256], line[4096], name[64];
    int32_t found = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run->out);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        mics_json *json = NULL;
        if (strstr(line, "validation_loss") == NULL)
            continue;
        const mics_json_value *row = mics_json_element(mics_json_at(wanted, "eval"), found++);
        ASSERT_OK(mics_json_parse(memory, path, line, strlen(line), &json));
        for (int i = 0; i < METRICS; i++) {
            const char *of =
                mics_json_string(mics_json_element(mics_json_at(wanted, "metrics"), i));
            snprintf(name, sizeof name, i == 0 ? "validation_loss" : "eval_%s", of);
            check_close(run, found, i, mics_json_real(mics_json_get(mics_json_root(json), name)),
                        mics_json_real(mics_json_element(row, i)));
        }
        mics_json_close(json);
    }
    fclose(file);
    assert_int_equal(found, 2);
}

static void check_case(size_t at, const char *family, size_t mesh)
{
    char out[64], adapter[1024];
    pair_run run = {.family = family,
                    .kind = "prompts",
                    .out = out,
                    .ranks = meshes[mesh].ranks,
                    .nodes = meshes[mesh].nodes,
                    .sets = {"train_batch_size=4", "run.validation_batches=2", meshes[mesh].micro,
                             meshes[mesh].sharding}};
    mics_json *wanted = load(family, cases[at].name);
    snprintf(out, sizeof out, "%s-%s-%zu", cases[at].name, family, mesh);
    snprintf(adapter, sizeof adapter, "adapter.init=%s/dpo/%s/%s", MICS_TEST_DATA, family,
             cases[at].name);
    memcpy(run.sets + 4, cases[at].sets, sizeof cases[at].sets);
    if (strncmp(cases[at].name, "lora", 4) == 0)
        run.sets[6] = adapter;
    go(&run);
    check_steps(&run, wanted);
    check_validations(&run, wanted);
    mics_json_close(wanted);
}

static void test_losses(void **state)
{
    (void)state;
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        for (size_t mesh = 0; mesh < sizeof meshes / sizeof *meshes; mesh++)
            check_case(at, families[(at + mesh) % 2], mesh);
    }
}

// ---- stops ----

static pair_run parts(const char *out, int32_t ranks)
{
    return (pair_run){.family = "llama",
                      .kind = "prompts",
                      .out = out,
                      .ranks = ranks,
                      .nodes = 1,
                      .sets = {"objective.type=dpo", "objective.beta=0.3", "train_batch_size=4",
                               "run.validation_batches=2"}};
}

// The reference is that of the start, whether it is read again or is lost, on another mesh.
static void test_stopped(void **state)
{
    (void)state;
    mics_json *wanted = load("llama", "dpo");
    struct stat first, then;
    pair_run run = parts("stopped", 1);
    run.until = 5;
    go(&run);
    assert_int_equal(stat("stopped/references", &first), 0);
    pair_run again = parts("stopped", 2);
    memcpy(again.steps, run.steps, sizeof run.steps);
    again.until = 11;
    go(&again);
    assert_int_equal(stat("stopped/references", &then), 0);
    assert_int_equal(then.st_ino, first.st_ino); // it was not written again
    assert_int_equal(unlink("stopped/references"), 0);
    pair_run last = parts("stopped", 4);
    memcpy(last.steps, again.steps, sizeof last.steps);
    go(&last);
    check_steps(&last, wanted);
    mics_json_close(wanted);
}

static void damage(const char *path, long offset)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, offset, offset < 0 ? SEEK_END : SEEK_SET), 0);
    assert_int_equal(fputc('?', file), '?');
    assert_int_equal(fclose(file), 0);
}

static void test_other_references(void **state)
{
    static const struct {
        long offset; // in the header: data, weights; the values
        const char *said;
    } places[] = {{8, "is of other data"}, {16, "is of other"}, {60, "or damaged"}};
    (void)state;
    mics_json *wanted = load("llama", "dpo");
    pair_run run = parts("others", 1);
    go(&run);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        assert_int_equal(system("rm -r others/checkpoints others/metrics.jsonl"), 0);
        damage("others/references", places[i].offset);
        run = parts("others", 1);
        go(&run);
        if (strstr(run.lines, places[i].said) == NULL)
            fail_msg("%s", run.lines);
        check_steps(&run, wanted);
    }
    mics_json_close(wanted);
}

// What the run began with is what counts, and others are not mixed with it.
static void test_changed_weights(void **state)
{
    struct stat first, then;
    (void)state;
    assert_int_equal(system("cp -rL " MICS_TEST_DATA "/chat/llama changed-model"), 0);
    mics_json *wanted = load("llama", "dpo");
    pair_run run = parts("changed", 1);
    run.sets[4] = "model.init=changed-model";
    run.until = 5;
    go(&run);
    assert_int_equal(stat("changed/references", &first), 0);
    damage("changed-model/model.safetensors", -98);
    pair_run again = run;
    again.until = 0;
    go(&again);
    check_steps(&again, wanted);
    assert_int_equal(stat("changed/references", &then), 0);
    assert_int_equal(then.st_ino, first.st_ino);
    mics_json_close(wanted);
    pair_run few = parts("few", 1);
    few.sets[4] = "run.steps=1";
    go(&few);
    mics_job *job = NULL;
    few.sets[4] = "model.init=changed-model";
    mics_status status = open_job(&few, false, &job);
    mics_log_set_sink(capture_lines, few.lines);
    status = status == MICS_OK ? mics_job_train(job, 0) : status;
    mics_log_set_sink(NULL, NULL);
    if (status != MICS_ERR_INVALID || strstr(few.lines, "is of other weights") == NULL)
        fail_msg("%s", few.lines);
    if (job != NULL)
        (void)mics_job_close(job);
}

// ---- what is refused ----

static void check_refused(const char *family, const char *data, const char *const *sets,
                          const char *with)
{
    pair_run run = {.family = family,
                    .kind = data,
                    .out = "refused",
                    .ranks = 1,
                    .nodes = 1,
                    .sets = {"train_batch_size=4"}};
    mics_job *job = NULL;
    for (int i = 0; i < 3 && sets[i] != NULL; i++)
        run.sets[1 + i] = sets[i];
    const mics_status status = open_job(&run, false, &job);
    if (status == MICS_OK || strstr(run.lines, with) == NULL)
        fail_msg("%s: %s", with, run.lines);
    if (job != NULL)
        (void)mics_job_close(job);
}

static void write_row(const char *path, const char *row)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n%s\n", row);
    assert_int_equal(fclose(file), 0);
}

static void test_refused(void **state)
{
    static const char *const dpo[] = {"objective.type=dpo", NULL}, *const none[] = {NULL};
    static const char *const all[] = {"objective.type=dpo", "data.loss_on=all", NULL};
    static const char *const packs[] = {"objective.type=dpo", "data.packing=true", NULL};
    static const char *const beta[] = {"objective.beta=0.2", NULL};
    static const char *const smooth[] = {"objective.type=ipo", "objective.label_smoothing=0.1",
                                         NULL};
    static const char *const field[] = {"objective.type=dpo", "data.text_field=text", NULL};
    static const char *const length[] = {"objective.type=dpo", "data.sequence_length=8", NULL};
    static const char *const rows[][2] = {
        {"{\"prompt\": \"a\", \"chosen\": \"b\"}", "line 2: has no \"chosen\" and \"rejected\""},
        {"{\"chosen\": \"b\", \"rejected\": [\"c\"]}", "line 2: \"chosen\" and \"rejected\" are "
                                                       "neither two texts"},
        {"{\"prompt\": \"a\", \"chosen\": [{\"role\": \"assistant\", \"content\": \"b\"}], "
         "\"rejected\": [{\"role\": \"assistant\", \"content\": \"c\"}]}",
         "line 2: \"chosen\" and \"rejected\" answer no common messages"},
        {"{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"chosen\": [{\"role\": "
         "\"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}], "
         "\"rejected\": [{\"role\": \"assistant\", \"content\": \"c\"}]}",
         "line 2: \"chosen\" begins with the prompt's messages again"},
        {"{\"chosen\": \"b\", \"rejected\": \"c\"}", "line 2: no token stands before the answers"},
    };
    (void)state;
    check_refused("llama", "prompts", none, "\"objective\": {\"type\": \"dpo\"} trains on them");
    check_refused("llama", "prompts", all, "data.loss_on: is of chats");
    check_refused("llama", "prompts", packs, "data.packing: the two answers");
    check_refused("llama", "prompts", beta, "objective.beta: is of pairs");
    check_refused("llama", "prompts", smooth, "objective.label_smoothing: is of \"dpo\"");
    check_refused("llama", "prompts", field, "needs rows with \"chosen\" and \"rejected\"");
    check_refused("llama", "prompts", length, "no answer of its 24 pairs begins in the first 8");
    check_refused("llama", MICS_TEST_DATA "/chat/chats.jsonl", dpo, "needs rows with");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_row("row.jsonl", rows[i][0]);
        check_refused("qwen3", "./row.jsonl", dpo, rows[i][1]); // which puts nothing before a text
    }
}

// One pair is left.
static void test_skipped(void **state)
{
    mics_job *job = NULL;
    pair_run run = {.family = "llama",
                    .kind = "./row.jsonl",
                    .out = "skipped",
                    .ranks = 1,
                    .nodes = 1,
                    .sets = {"train_batch_size=4", "objective.type=dpo", "data.skip_bad_lines=1",
                             "run.validation_batches=0"}};
    (void)state;
    write_row("row.jsonl", "{\"chosen\": \"b\"}");
    ASSERT_OK(open_job(&run, false, &job));
    assert_int_equal(mics_job_facts_get(job).samples, 1);
    assert_int_equal(mics_job_facts_get(job).sequences, 2);
    assert_non_null(strstr(run.lines, "1 bad lines are passed over"));
    ASSERT_OK(mics_job_close(job));
}

// What is otherwise than TRL has it.
static void test_said(void **state)
{
    static const char *const lines[] = {"training on pairs draws dropout",
                                        "1 chats have what their tokens lack"};
    mics_job *job = NULL;
    pair_run run = {.family = "qwen3",
                    .kind = "./row.jsonl",
                    .out = "said",
                    .ranks = 1,
                    .nodes = 1,
                    .sets = {"train_batch_size=4", "objective.type=dpo", "adapter.r=4",
                             "adapter.lora_dropout=0.1", "run.validation_batches=0"}};
    (void)state;
    write_row("row.jsonl",
              "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"chosen\": [{\"role\": "
              "\"assistant\", \"content\": \"b\"}], \"rejected\": [{\"role\": \"assistant\", "
              "\"content\": \"c\"}], \"chat_template_kwargs\": {\"enable_thinking\": false}}");
    ASSERT_OK(open_job(&run, false, &job));
    for (size_t i = 0; i < 2; i++) {
        if (strstr(run.lines, lines[i]) == NULL)
            fail_msg("no \"%s\": %s", lines[i], run.lines);
    }
    ASSERT_OK(mics_job_close(job));
}

// Each pair is looked for once, however often it is read.
static void test_many_steps(void **state)
{
    mics_job *job = NULL;
    pair_run run = parts("many", 1);
    (void)state;
    run.sets[4] = "run.steps=1000000000000";
    ASSERT_OK(open_job(&run, false, &job));
    ASSERT_OK(mics_job_close(job));
}

// Of a pair either answer may be too long.
static void test_too_long(void **state)
{
    (void)state;
    pair_run run = {.family = "llama",
                    .kind = "prompts",
                    .out = "long",
                    .ranks = 1,
                    .nodes = 1,
                    .sets = {"train_batch_size=4", "objective.type=dpo", "data.too_long=drop",
                             "run.validation_batches=0", "data.sequence_length=88"}};
    mics_job *job = NULL;
    mics_json *wanted = load("llama", "prompts");
    int32_t longer = 0, cut = 0;
    for (int32_t i = 0; i < mics_json_count(mics_json_root(wanted)); i++) {
        const mics_json_value *row = mics_json_element(mics_json_root(wanted), i);
        const bool chosen = mics_json_count(mics_json_get(row, "chosen")) > 88;
        const bool rejected = mics_json_count(mics_json_get(row, "rejected")) > 88;
        longer += chosen || rejected;
        cut += chosen && !rejected;
    }
    assert_in_range(cut, 1, longer - 1);
    ASSERT_OK(open_job(&run, false, &job));
    assert_int_equal(mics_job_facts_get(job).left_out, longer);
    assert_int_equal(mics_job_facts_get(job).samples, 24 - longer);
    ASSERT_OK(mics_job_close(job));
    mics_json_close(wanted);
}

static int setup(void **state)
{
    static char folder[] = "/tmp/mics-pairs-XXXXXX";
    (void)state;
    return mkdtemp(folder) == NULL || chdir(folder) != 0 || mics_memory_open(&memory) != MICS_OK;
}

static int teardown(void **state)
{
    (void)state;
    return mics_memory_close(memory) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),          cmocka_unit_test(test_losses),
        cmocka_unit_test(test_stopped),         cmocka_unit_test(test_other_references),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_skipped),
        cmocka_unit_test(test_too_long),        cmocka_unit_test(test_said),
        cmocka_unit_test(test_changed_weights), cmocka_unit_test(test_many_steps),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
