// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Trainings on two nodes of two ranks, as threads, that keep copies in node memory, and what they leave there.
#pragma once

#include "mics/log.h"
#include "mics/run.h"
#include "test.h"
#include <dirent.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEPS = 8, KEPT = 4, LAST = 5, RANKS = 4, NODES = 2 };

static char work[] = "/dev/shm/test-node-memory-XXXXXX"; // in memory: saves sync often
static mics_memory *memory;
static const char *const texts[] = {"text.txt"};

// A training, and what it comes to.
typedef struct training {
    const char *out;
    mics_sharding sharding;
    int32_t ranks, nodes;
    const char *resume;     // NULL: auto
    const char *set;        // one key more; NULL: none
    int64_t micro_batch;    // 0: 2
    double loss[STEPS + 1]; // by step
    int64_t start_step;
    bool from_memory;
} training;

static inline void on_step(void *ctx, const mics_metrics *metrics)
{
    ((training *)ctx)->loss[metrics->step] = metrics->loss;
}

static inline mics_run_values values_of(const training *self)
{
    return (mics_run_values){.model_config = "model.json",
                             .train = texts,
                             .train_count = 1,
                             .sequence_length = 16,
                             .steps = STEPS,
                             .seed = 3,
                             .out = self->out,
                             .micro_batch = self->micro_batch > 0 ? self->micro_batch : 2,
                             .micro_steps = 2,
                             .learning_rate = 3e-3,
                             .sharding = self->sharding};
}

// Trains to step `until`, and saves there only if that is the run's last.
static inline mics_status try_run(training *self, int64_t until, mics_memory *with)
{
    const char *const sets[] = {"run.threads=1",
                                "run.device=cpu",
                                "run.validation_batches=0",
                                "run.memory_checkpoint_every=2",
                                "run.param_persistence_threshold=0",
                                self->set != NULL ? self->set : "run.log_every=1"};
    const mics_run_values values = values_of(self);
    const mics_job_spec spec = {.memory = with,
                                .values = &values,
                                .sets = sets,
                                .set_count = sizeof sets / sizeof sets[0],
                                .ranks = self->ranks,
                                .nodes = self->nodes,
                                .resume = self->resume,
                                .callbacks = {.ctx = self, .step = on_step}};
    mics_job *job = NULL;
    mics_status status = mics_job_open(&spec, &job);
    if (status != MICS_OK)
        return status;
    const mics_job_facts facts = mics_job_facts_get(job);
    self->start_step = facts.start_step;
    self->from_memory = facts.from_memory;
    if (until > facts.start_step)
        status = mics_job_train(job, until - facts.start_step);
    const mics_status closed = mics_job_close(job);
    return status != MICS_OK ? status : closed;
}

static inline void run(training *self, int64_t until)
{
    ASSERT_OK(try_run(self, until, memory));
}

// ---- what is said ----

// Lines that were logged since listen(), whatever their level.
static struct {
    pthread_mutex_t mutex;
    char text[16384];
} said = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static inline void on_line(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    static const char *const levels[] = {"error", "warning", "info"};
    (void)ctx;
    (void)rank;
    pthread_mutex_lock(&said.mutex);
    const size_t used = strlen(said.text);
    snprintf(said.text + used, sizeof said.text - used, "%s: %s\n", levels[level], line);
    pthread_mutex_unlock(&said.mutex);
}

static inline void listen(void)
{
    said.text[0] = '\0';
    mics_log_set_sink(on_line, NULL);
}

// Fails the test unless that was said, and ends listening.
static inline void assert_said(const char *level, const char *part)
{
    char begin[16];
    bool heard = false;
    mics_log_set_sink(NULL, NULL);
    snprintf(begin, sizeof begin, "%s: ", level);
    for (char *line = said.text; !heard && *line != '\0';) {
        char *end = strchr(line, '\n');
        *end = '\0';
        heard = strncmp(line, begin, strlen(begin)) == 0 && strstr(line, part) != NULL;
        *end = '\n';
        line = end + 1;
    }
    if (!heard)
        fail_msg("no %s that says \"%s\", but: %s", level, part, said.text);
}

// ---- what lies in memory ----

// Path below the only run's folder there is, or the folder itself.
static inline const char *in_memory(const char *name)
{
    static char paths[4][600];
    static int next;
    char *path = paths[next++ % 4];
    DIR *folder = opendir("shm");
    const struct dirent *entry;
    assert_non_null(folder);
    path[0] = '\0';
    while ((entry = readdir(folder)) != NULL) {
        if (strncmp(entry->d_name, "mics-", 5) != 0)
            continue;
        assert_int_equal(path[0], '\0');
        snprintf(path, sizeof paths[0], "shm/%s/%s", entry->d_name, name);
    }
    closedir(folder);
    return path;
}

static inline bool is_there(const char *path)
{
    return path[0] != '\0' && access(path, F_OK) == 0;
}

static inline void shell(const char *format, const char *a, const char *b)
{
    char command[2000];
    snprintf(command, sizeof command, format, a, b);
    assert_int_equal(system(command), 0);
}

// The slot of the newest copy.
static inline const char *newest_slot(void)
{
    return KEPT / 2 % 2 == 0 ? "slot-1" : "slot-0";
}

static inline const char *slot_file(int node, const char *name)
{
    char below[100];
    snprintf(below, sizeof below, "node-%d/%s/%s", node, newest_slot(), name);
    return in_memory(below);
}

// ---- trainings ----

static inline training make(const char *out, mics_sharding sharding)
{
    return (training){.out = out, .sharding = sharding, .ranks = RANKS, .nodes = NODES};
}

// One that ended after LAST steps, with its newest copy of step KEPT.
static inline training interrupted(const char *out, mics_sharding sharding)
{
    training first = make(out, sharding);
    shell("rm -rf shm/* %s%s", out, "");
    run(&first, LAST);
    assert_int_equal(first.start_step, 0);
    assert_false(first.from_memory);
    assert_true(is_there(slot_file(0, "manifest.json")));
    return first;
}

// Losses from a step on, and the last weights, are those of a run that never stopped, with the same
// `sharding` and key.
static inline void assert_undisturbed(const training *self, int64_t from)
{
    training whole = make("whole", self->sharding);
    whole.ranks = self->ranks;
    whole.nodes = self->nodes;
    whole.set = self->set;
    shell("rm -rf whole%s%s", "", "");
    run(&whole, STEPS);
    for (int64_t step = from + 1; step <= STEPS; step++)
        assert_memory_equal(&whole.loss[step], &self->loss[step], sizeof(double));
    shell("for file in whole/checkpoints/step-*8/rank-*; do cmp $file %s/${file#whole/} || exit 1; "
          "done%s",
          self->out, "");
}

static inline void assert_goes_on(training *self, bool from_memory, int64_t step)
{
    run(self, STEPS);
    assert_int_equal(self->from_memory, from_memory);
    assert_int_equal(self->start_step, step);
    assert_undisturbed(self, step);
    // The state is on disk, so memory is given back.
    assert_string_equal(in_memory(""), "");
}

static const mics_sharding ZERO3 = {4, 4, 4}, MICS2 = {2, 2, 2};

// ---- the folder ----

static inline int set_up(void **state)
{
    (void)state;
    FILE *model, *text;
    if (mkdtemp(work) == NULL || chdir(work) != 0 || mkdir("shm", 0700) != 0 ||
        setenv("MICS_SHM_DIR", "shm", 1) != 0)
        return 1;
    model = fopen("model.json", "w");
    text = fopen("text.txt", "w");
    if (model == NULL || text == NULL)
        return 1;
    fputs("{\"model_type\": \"gpt2\", \"activation_function\": \"gelu_new\", \"n_embd\": 16, "
          "\"n_head\": 2, \"n_layer\": 2, \"n_positions\": 16, \"vocab_size\": 256, "
          "\"layer_norm_epsilon\": 1e-05, \"initializer_range\": 0.02, \"attn_pdrop\": 0.0, "
          "\"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0, \"tie_word_embeddings\": true}\n",
          model);
    for (int i = 0; i < 4000; i++)
        fputc('a' + i * i % 23, text);
    fclose(model);
    fclose(text);
    return mics_memory_open(&memory) == MICS_OK ? 0 : 1;
}

static inline int tear_down(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", work);
    return mics_memory_close(memory) == 0 && system(command) == 0 ? 0 : 1;
}
