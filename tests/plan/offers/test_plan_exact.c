// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Random models, clusters and run files: no row that mics runs beats the answer, which leaves a margin of
// memory wherever anything does; and sweeps have the same answers.
//
// MICS_TEST_PLAN_SEED is the first case's seed, MICS_TEST_PLAN_CASES their number. A failure prints its
// case's seed and files.
#include "plan/offers/planning.h"
#include "plan/search/baseline.h"
#include "test.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CASES = 20 };
#else
enum { CASES = 300 };
#endif
enum { TEXT_BYTES = 1024, CHOICES = 12, TOP = 5 };

static char work[] = "/tmp/mics-exact-XXXXXX";

typedef struct trial {
    uint64_t seed, at; // of the case; state of the numbers
    int nodes, per_node, layers;
    int64_t batch;
    bool gpu;
    double memory_bytes; // of a rank
    char model[TEXT_BYTES], cluster[TEXT_BYTES], run[TEXT_BYTES];
} trial;

// splitmix64.
static uint64_t draw(trial *t)
{
    uint64_t z = t->at += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int draw_int(trial *t, int low, int high)
{
    return low + (int)(draw(t) % (uint64_t)(high - low + 1));
}

static bool draw_one_in(trial *t, int cases)
{
    return draw(t) % (uint64_t)cases == 0;
}

// Evenly between the logarithms of two numbers.
static double draw_between(trial *t, double low, double high)
{
    return low * pow(high / low, (double)(draw(t) >> 11) / 9007199254740992.0);
}

#define DRAW_OF(t, list) list[draw_int(t, 0, (int)(sizeof(list) / sizeof *(list)) - 1)]

// In parts, as a message of cmocka's ends after 1024 bytes.
#define FAIL_CASE(t, format, ...)                                                                  \
    do {                                                                                           \
        print_error("%s\n", (t)->model);                                                           \
        print_error("%s\n", (t)->cluster);                                                         \
        print_error("%s\n", (t)->run);                                                             \
        fail_msg("MICS_TEST_PLAN_SEED=%" PRIu64 " MICS_TEST_PLAN_CASES=1: " format, (t)->seed,     \
                 __VA_ARGS__);                                                                     \
    } while (0)

// ---- what is planned ----

// Its parameters, about.
static double draw_model(trial *t)
{
    const int width = 32 * draw_int(t, 1, 5), vocab = draw_int(t, 100, 2000);
    t->layers = draw_int(t, 1, 8);
    if (draw_one_in(t, 5)) {
        snprintf(
            t->model, sizeof t->model,
            "{\"model_type\": \"mixtral\", \"hidden_size\": %d, \"num_hidden_layers\": %d, "
            "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": %d, "
            "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"vocab_size\": %d, "
            "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5}",
            width, t->layers, 2 * width, vocab);
        return t->layers * 28.0 * width * width + 2.0 * vocab * width;
    }
    snprintf(t->model, sizeof t->model,
             "{\"model_type\": \"gpt2\", \"activation_function\": \"gelu_new\", \"n_embd\": %d, "
             "\"n_head\": 2, \"n_layer\": %d, \"n_positions\": 64, \"vocab_size\": %d, "
             "\"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0}",
             width, t->layers, vocab);
    return t->layers * 12.0 * width * width + (double)vocab * width;
}

// With as much memory as some plans take, and most do not.
static void draw_cluster(trial *t, double params)
{
    static const char *const pipelined[] = {"true", "false"};
    t->nodes = draw_int(t, 1, 4);
    t->per_node = draw_int(t, 1, 4);
    t->memory_bytes = draw_between(t, 30 * params / (t->nodes * t->per_node), 200 * params) + 2e6;
    snprintf(t->cluster, sizeof t->cluster,
             "{\"name\": \"drawn\", \"nodes\": %d, \"pipelined\": %s, \"usd_per_node_hour\": 3.6, "
             "\"accelerator\": {\"memory_gib\": %.9f, \"reserve_gib\": 0, \"tflops_fp32\": %.4f, "
             "\"tflops_bf16\": %.4f, \"memory_gb_per_s\": 100, \"launch_us\": 3, "
             "\"matmul_efficiency\": 0.7, \"host_gb_per_s\": %.4f}, "
             "\"tiers\": {\"node\": {\"fan_out\": %d, \"gb_per_s\": %.4f, \"latency_us\": 4, "
             "\"slowdown\": %.3f}, \"network\": {\"gbit_per_s\": %.4f, \"latency_us\": 20, "
             "\"slowdown\": %.3f}}}",
             t->nodes, DRAW_OF(t, pipelined), t->memory_bytes / (1 << 30), draw_between(t, 1, 4),
             draw_between(t, 4, 20), draw_between(t, 0.1, 30), t->per_node, draw_between(t, 2, 100),
             draw_between(t, 0.01, 0.3), draw_between(t, 2, 200), draw_between(t, 0.01, 0.3));
}

static int draw_degree(trial *t, int below)
{
    const int ranks = t->nodes * t->per_node;
    int degree = below;
    for (int tries = 0; tries < 3; tries++) {
        const int wanted = below * draw_int(t, 1, ranks / below);
        if (ranks % wanted == 0 && (t->per_node % wanted == 0 || wanted % t->per_node == 0))
            degree = wanted;
    }
    return degree;
}

static mics_sharding draw_sharding(trial *t)
{
    mics_sharding s = {draw_degree(t, 1), 0, 0};
    s.grads = draw_degree(t, s.params);
    s.optimizer = draw_degree(t, s.grads);
    return s;
}

static void draw_run(trial *t)
{
    static const char *const recompute[] = {"false", "true", "\"auto\"", "\"mlp\""};
    static const char *const layered[] = {"\"auto\"", "1", "2", "3", "4", "5", "8", "64"};
    static const char *const ways[] = {"auto", "ring", "two-stage", "ring-gathers"};
    static const char *const ahead[] = {"\"auto\"", "0", "1", "2", "5"};
    static const char *const offload[] = {"0", "0", "1", "\"auto\""};
    const int ranks = t->nodes * t->per_node, share = draw_int(t, 1, 24);
    const mics_sharding s = draw_sharding(t);
    char sharding[96] = "\"auto\"", batch[96] = "";
    t->batch = (int64_t)ranks * share - (draw_one_in(t, 4) ? draw_int(t, 0, ranks - 1) : 0);
    t->gpu = !draw_one_in(t, 3);
    if (!draw_one_in(t, 3))
        snprintf(sharding, sizeof sharding, "{\"params\": %d, \"grads\": %d, \"optimizer\": %d}",
                 s.params, s.grads, s.optimizer);
    if (!draw_one_in(t, 3))
        snprintf(batch, sizeof batch, "\"train_micro_batch_size_per_gpu\": %d, ",
                 draw_int(t, 1, share));
    snprintf(t->run, sizeof t->run,
             "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": [\"text.txt\"], "
             "\"sequence_length\": %d}, \"train_batch_size\": %" PRId64 ", %s\"sharding\": %s, "
             "\"run\": {\"steps\": 1, \"out\": \"out\", \"device\": \"%s\", \"precision\": \"%s\", "
             "\"recompute\": %s, \"layered_micro_steps\": %s, \"collectives\": \"%s\", "
             "\"prefetch\": %s, \"offload_activations\": %s, \"coalesce_below\": %d, "
             "\"param_persistence_threshold\": %d}}",
             draw_int(t, 8, 64), t->batch, batch, sharding, t->gpu ? "cuda" : "cpu",
             draw_one_in(t, 2) ? "bf16" : "fp32", DRAW_OF(t, recompute), DRAW_OF(t, layered),
             DRAW_OF(t, ways), DRAW_OF(t, ahead), t->gpu ? DRAW_OF(t, offload) : "0",
             draw_one_in(t, 2) ? 0 : 20000, draw_one_in(t, 2) ? 0 : 2000);
}

static void write_file(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

static trial draw_trial(uint64_t seed)
{
    trial t = {.seed = seed, .at = seed};
    draw_cluster(&t, draw_model(&t));
    draw_run(&t);
    write_file("model.json", t.model);
    write_file("cluster.json", t.cluster);
    write_file("run.json", t.run);
    return t;
}

// Memory that what takes the least just fits into, or nearly.
static void take_little_memory(mics_memory *memory, trial *t)
{
    const mics_plan_spec spec = {.file = "run.json", .cluster = "cluster.json"};
    static const char key[] = "\"memory_gib\": ";
    mics_plan *plan = NULL;
    mics_planner *planner = NULL;
    mics_plan_result *result = NULL;
    char text[TEXT_BYTES];
    ASSERT_OK(mics_plan_open(memory, &spec, &plan));
    mics_plan_request request = mics_plan_request_get(plan, t->nodes);
    request.memory_bytes = 1;
    ASSERT_OK(mics_planner_open(memory, &request, &planner));
    ASSERT_OK(mics_planner_search(planner, NULL, 1, &result));
    const double least = (double)result->nearest.memory.total / (1 - MICS_PLAN_RESERVE);
    const char *value = strstr(t->cluster, key) + sizeof key - 1;
    snprintf(text, sizeof text, "%.*s%.9f%s", (int)(value - t->cluster), t->cluster,
             fmax(least * draw_between(t, 0.995, 1.05) / (1 << 30), 0.001), strchr(value, ','));
    snprintf(t->cluster, sizeof t->cluster, "%s", text);
    write_file("cluster.json", t->cluster);
    mics_plan_result_close(result);
    mics_planner_close(planner);
    mics_plan_close(plan);
}

// ---- what holds ----

static void check_row(const trial *t, const mics_plan *plan, const mics_plan_entry *best,
                      const mics_plan_entry *row, const char *what)
{
    if (row->tight != (row->fits && row->spare_bytes < plan->margin_bytes))
        FAIL_CASE(t, "%s %s has %.0f bytes to spare, of %.0f, and is %stight", what, row->name,
                  row->spare_bytes, plan->margin_bytes, row->tight ? "" : "not ");
    if (!row->runs || !row->fits || (row->tight && best != NULL && !best->tight))
        return;
    if (best == NULL)
        FAIL_CASE(t, "%s %s fits, and there is no answer", what, row->name);
    if (best->tight && !row->tight)
        FAIL_CASE(t, "%s %s leaves a margin, and the answer none", what, row->name);
    if (best->step_us > row->step_us * (1 + 1e-9))
        FAIL_CASE(t, "%s %s takes %.6f us, the answer %s %.6f", what, row->name, row->step_us,
                  best->name, best->step_us);
}

// What anybody may write into a run file, of what is searched.
static void check_choices(trial *t, const mics_plan *plan, const mics_plan_found *found,
                          const mics_plan_entry *best)
{
    const int64_t share = (t->batch - 1) / (t->nodes * t->per_node) + 1;
    for (int i = 0; i < CHOICES; i++) {
        const int way = draw_int(t, 0, 2);
        mics_plan_entry row;
        mics_plan_choice choice = {.sharding = draw_sharding(t),
                                   .micro_batch = draw_int(t, 1, (int)share),
                                   .prefetch = draw_int(t, 0, MICS_PLAN_MAX_PREFETCH),
                                   .layered_micro_steps = 1 << draw_int(t, 0, 3),
                                   .recompute = mics_recompute_all(draw_one_in(t, 2)),
                                   .gather_two_stage = way == 0,
                                   .reduce_two_stage = way < 2,
                                   .boundary_two_stage = way < 2};
        while (share % choice.micro_batch != 0)
            choice.micro_batch--;
        choice.micro_steps = (int32_t)(share / choice.micro_batch);
        choice.early_gathers =
            draw_one_in(t, 2) && mics_planner_gathers_early(found->planner, &choice, false);
        const bool muted = mics_log_mute(true); // not with sums in bf16 over rings
        const mics_status status = mics_planner_evaluate(found->planner, &choice, &row);
        (void)mics_log_mute(muted);
        if (status != MICS_OK && status != MICS_ERR_INVALID)
            ASSERT_OK(status);
        if (status == MICS_OK)
            check_row(t, plan, best, &row, "a choice");
    }
}

static void check_sweeps(trial *t, const mics_plan *plan, const mics_plan_entry *best)
{
    mics_plan_sweep *sweep = NULL;
    char points[16];
    snprintf(points, sizeof points, "nodes=%d", t->nodes);
    ASSERT_OK(mics_plan_sweep_open(plan, points, &sweep));
    if (sweep->points[0].curves[0].step_us != best->step_us)
        FAIL_CASE(t, "the sweep says %.6f us, the plan %.6f", sweep->points[0].curves[0].step_us,
                  best->step_us);
    mics_plan_sweep_close(sweep);
    if (!draw_one_in(t, 4))
        return;
    ASSERT_OK(mics_plan_sweep_open(plan, "P", &sweep));
    double least_us = INFINITY;
    for (int32_t i = 0; i < sweep->point_count; i++) {
        const mics_plan_point *point = &sweep->points[i];
        for (int32_t c = 1; c < sweep->curve_count; c++)
            check_row(t, plan, point->has[0] ? &point->curves[0] : NULL, &point->curves[c],
                      sweep->names[c]);
        const mics_plan_entry *entry = &point->curves[0];
        if (point->has[0] && (best->tight || !entry->tight) && entry->choice.offload_units == 0)
            least_us = fmin(least_us, entry->step_us);
    }
    if (best->choice.offload_units == 0 && least_us != best->step_us)
        FAIL_CASE(t, "of all P the best takes %.6f us, the answer %.6f", least_us, best->step_us);
    mics_plan_sweep_close(sweep);
}

static void check_trial(mics_memory *memory, trial *t, int *answered, int *margins, int *files)
{
    const mics_plan_spec spec = {.file = "run.json", .cluster = "cluster.json"};
    mics_plan *plan = NULL;
    mics_plan_found found = {.planner = NULL};
    if (mics_plan_open(memory, &spec, &plan) != MICS_OK ||
        mics_plan_find(plan, t->nodes, TOP, &found) != MICS_OK)
        FAIL_CASE(t, "%s", "it cannot be planned");
    const mics_plan_result *result = found.result;
    const mics_plan_entry *best = result->count > 0 ? &result->entries[0] : NULL;
    for (int32_t i = 0; i < result->count; i++) {
        assert_true(result->entries[i].fits && result->entries[i].runs);
        check_row(t, plan, best, &result->entries[i], "plan");
    }
    for (int b = 0; b < MICS_PLAN_BASELINES && best != NULL; b++)
        check_row(t, plan, best, &found.baselines[b], "row");
    if (found.has_file)
        check_row(t, plan, best, &found.file, "the run file's");
    check_choices(t, plan, &found, best);
    if (best != NULL && draw_one_in(t, 3))
        check_sweeps(t, plan, best);
    *answered += best != NULL;
    *margins += best != NULL && !best->tight;
    *files += found.has_file && found.file.fits;
    mics_plan_found_close(&found);
    mics_plan_close(plan);
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void test_nothing_beats_the_answer(void **state)
{
    const uint64_t first = number_of("MICS_TEST_PLAN_SEED", 1);
    const uint64_t cases = number_of("MICS_TEST_PLAN_CASES", CASES);
    int answered = 0, margins = 0, files = 0;
    for (uint64_t i = 0; i < cases; i++) {
        trial t = draw_trial(first + i);
        if (draw_one_in(&t, 3))
            take_little_memory(*state, &t);
        check_trial(*state, &t, &answered, &margins, &files);
    }
    print_message("%d of %d cases have an answer, %d with a margin; %d run files fit\n", answered,
                  (int)cases, margins, files);
    if (cases >= 100) { // else it says little
        assert_in_range(answered, cases / 2, cases);
        assert_in_range(margins, answered / 2, answered - 1);
        assert_in_range(files, cases / 5, cases);
    }
}

static int begin(void **state)
{
    mics_memory *memory = NULL;
    if (mkdtemp(work) == NULL || chdir(work) != 0 || mics_memory_open(&memory) != MICS_OK)
        return 1;
    *state = memory;
    return 0;
}

// Nothing is left of what was allocated.
static int end(void **state)
{
    char command[64];
    const int64_t leaks = mics_memory_close(*state);
    snprintf(command, sizeof command, "rm -rf %s", work);
    return system(command) == 0 && leaks == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_beats_the_answer)};
    return cmocka_run_group_tests(tests, begin, end);
}
