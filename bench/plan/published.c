// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Published throughputs beside what plans say: rows, errors by group, and which of two is faster.
//
// usage: published FILE.jsonl SOURCES.jsonl [--set PATH=VALUE ...] [--rows]
//
// SOURCES.jsonl says what is known of the software behind rows (sources.h), for those that do not say
// it themselves.
//
// --set changes a figure of every row's cluster file, as in accelerator.launch_us=2. --rows prints
// each row. Plans are evaluated at the published sharding and batch: nothing is searched but what a
// row leaves open (Megatron's cut).
//
// Three constants are fitted to such rows: what GEMMs keep of their rate, what memory does, and how
// much nodes vary. To see what they are worth for a training that they were not fitted to, each
// group is also predicted with those that suit the other groups best, of a grid of them.
//
// Links between many nodes are said to be slower than between two: collected medians of all-reduces
// of 256 MB on 1, 2, 4 ... 64 nodes of H100 are 436, 362, 160, 100, 85, 65 and 33 GB/s. So each row
// is also predicted with (n / 2)^-a of the catalogue's bandwidth between n nodes; a = 0.69 is theirs.
#include "base/json.h"
#include "mics/log.h"
#include "plan/cost/cost.h"
#include "plan/search/plan.h"
#include "sources.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 1024, MAX_GROUPS = 64, MAX_SETS = 32, MAX_FILE_BYTES = 1 << 24, NAME_BYTES = 64 };

// Constants of the catalogue, and others to try: shares of the catalogue's GEMM rate, and values.
typedef struct constants {
    double matmul, memory, jitter; // 0: the catalogue's
} constants;

static const constants catalogue = {0, 0, 0};
static const constants tried[] = {
#define TRY(matmul, memory)                                                                        \
    {matmul, memory, 0.01}, {matmul, memory, 0.02},                                                \
    {                                                                                              \
        matmul, memory, 0.03                                                                       \
    }
#define TRY_MATMUL(matmul) TRY(matmul, 0.5), TRY(matmul, 0.6), TRY(matmul, 0.7), TRY(matmul, 0.8)
    TRY_MATMUL(0.92), TRY_MATMUL(0.96), TRY_MATMUL(1.0),
    TRY_MATMUL(1.04), TRY_MATMUL(1.08), TRY_MATMUL(1.12)};

enum { TRIED = sizeof tried / sizeof *tried };

static const double exponents[] = {0, 0.1, 0.2, 0.3, 0.5, 0.69};

enum { EXPONENTS = sizeof exponents / sizeof *exponents };

typedef struct row {
    char id[NAME_BYTES], chip[NAME_BYTES];
    int64_t shape[4]; // layers, hidden size, sequence, vocabulary
    int32_t group;
    int64_t nodes, micro_batch;
    double recompute;
    double measured, predicted;      // tokens/s of a GPU
    double with[TRIED];              // predicted with other constants
    double with_exponent[EXPONENTS]; // predicted with slower links between many nodes
} row;

typedef struct study {
    mics_memory *memory;
    source_rules rules;
    const char *sets[MAX_SETS];
    int32_t set_count;
    bool print_rows;
    row rows[MAX_ROWS];
    int32_t count;
    char groups[MAX_GROUPS][NAME_BYTES];
    int32_t group_count;
} study;

// ---- a row's model and cluster ----

static int64_t number(const mics_json_value *object, const char *key)
{
    return mics_json_int(mics_json_get(object, key));
}

// The text of the object that stands under "cluster" in a line.
static size_t cluster_text(const char *line, const char **text_out)
{
    const char *at = strstr(line, "\"cluster\":");
    size_t bytes = 0;
    int depth = 0;
    *text_out = at = at != NULL ? strchr(at, '{') : "";
    if (at == NULL)
        return 0;
    do {
        depth += at[bytes] == '{' ? 1 : (at[bytes] == '}' ? -1 : 0);
    } while (at[bytes++] != '\0' && depth > 0);
    return bytes;
}

static mics_status open_cluster(const study *s, const mics_json_value *of_row, const char *line,
                                mics_cluster *cluster_out)
{
    const char *text = NULL;
    const size_t bytes = cluster_text(line, &text);
    mics_json *json = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(mics_json_parse(s->memory, "cluster", text, bytes, &json));
    status = sources_set(&s->rules, of_row, json);
    for (int32_t i = 0; status == MICS_OK && i < s->set_count; i++) {
        char path[NAME_BYTES] = "";
        const char *equals = strchr(s->sets[i], '=');
        snprintf(path, sizeof path, "%.*s", (int)(equals - s->sets[i]), s->sets[i]);
        status = mics_json_set(json, path, equals + 1);
    }
    if (status == MICS_OK)
        status = mics_cluster_parse(json, cluster_out);
    mics_json_close(json);
    return status;
}

// ---- a row's plan ----

static mics_sharding sharding_of(const char *name, int32_t ranks)
{
    const int32_t n = ranks;
    if (strcmp(name, "zero1") == 0)
        return (mics_sharding){1, 1, n};
    if (strcmp(name, "zero2") == 0)
        return (mics_sharding){1, n, n};
    if (strncmp(name, "mics", 4) == 0) {
        const int32_t p = (int32_t)strtol(name + 4, NULL, 10);
        return (mics_sharding){p, p, p};
    }
    return (mics_sharding){n, n, n};
}

// Rows that do not say it are of the paper's years.
static mics_megatron_era era_of(int64_t year)
{
    return year == 0 || year == 2021 ? MICS_MEGATRON_2021
                                     : (year == 2023 ? MICS_MEGATRON_2023 : MICS_MEGATRON_NOW);
}

// What it takes at the published batch, recomputed or not.
static mics_status step_us(const study *s, mics_planner *planner, const mics_json_value *line,
                           bool recompute, double *us_out)
{
    const char *name = mics_json_string(mics_json_get(line, "sharding"));
    const mics_json_value *given = mics_json_get(line, "cut");
    mics_plan_entry entry;
    if (strcmp(name, "megatron") == 0) {
        const mics_plan_space space = {
            .recompute_given = true,
            .recompute = mics_recompute_all(recompute),
            .micro_batch = number(line, "batch") == 4 ? 4 : number(line, "micro_batch"),
            .pipeline = {.tensor = (int32_t)number(given, "t"),
                         .stages = (int32_t)number(given, "p"),
                         .chunks = (int32_t)number(given, "v"),
                         .era = era_of(number(given, "era") > 0 ? number(given, "era")
                                                                : sources_era(&s->rules, line))}};
        MICS_TRY(mics_planner_baseline(planner, &space, MICS_PLAN_MEGATRON, &entry));
    } else {
        const mics_plan_choice choice = {.sharding = sharding_of(name, mics_planner_ranks(planner)),
                                         .micro_batch = number(line, "micro_batch"),
                                         .micro_steps = (int32_t)number(line, "accumulation"),
                                         .prefetch = 1,
                                         .recompute = mics_recompute_all(recompute),
                                         .sums_by_ring = true,
                                         .all_reduces = true};
        MICS_TRY(mics_planner_evaluate(planner, &choice, &entry));
    }
    *us_out = entry.step_us;
    return MICS_OK;
}

// A share of the layers recomputed takes that share of the difference.
static mics_status predict(const study *s, mics_planner *planner, const mics_json_value *line,
                           double *us_out)
{
    const double share = mics_json_real(mics_json_get(line, "recompute"));
    double kept = 0, again = 0;
    if (share < 1)
        MICS_TRY(step_us(s, planner, line, false, &kept));
    if (share > 0)
        MICS_TRY(step_us(s, planner, line, true, &again));
    *us_out = (1 - share) * kept + share * again;
    return MICS_OK;
}

static void set_constants(const constants *c, mics_cluster *cluster)
{
    mics_accelerator *device = &cluster->accelerator;
    if (c->matmul == 0)
        return;
    device->matmul_kept *= c->matmul;
    device->attention_kept *= c->matmul;
    device->memory_kept = c->memory;
    cluster->jitter = c->jitter;
}

static void slow_links(mics_cluster *cluster, int32_t nodes, double exponent)
{
    for (int32_t t = cluster->node_tier + 1; nodes > 2 && t < cluster->tier_count; t++)
        cluster->tiers[t].efficiency *= pow(nodes / 2.0, -exponent);
}

static mics_status tokens_per_s(const study *s, const mics_plan_request *asked,
                                const mics_json_value *line, const constants *c, double exponent,
                                double *out)
{
    mics_plan_request request = *asked;
    mics_planner *planner = NULL;
    double us = 0;
    set_constants(c, &request.cluster);
    slow_links(&request.cluster, request.nodes, exponent);
    MICS_TRY(mics_planner_open(s->memory, &request, &planner));
    const mics_status status = predict(s, planner, line, &us);
    mics_planner_close(planner);
    *out =
        (double)(request.global_batch * request.length) / (double)number(line, "gpus") / us * 1e6;
    return status;
}

static mics_status plan_row(study *s, const mics_json_value *line, const char *text, row *out)
{
    const mics_json_value *shape = mics_json_get(line, "model");
    const int64_t gpus = number(line, "gpus"), batch = number(line, "batch");
    mics_plan_request request = {.nodes = (int32_t)number(line, "nodes"),
                                 .length = number(shape, "seq"),
                                 .precision = MICS_PRECISION_MIXED,
                                 .math = MICS_MATH_BF16,
                                 .accelerator = true};
    mics_model *model = NULL;
    const int64_t sizes[] = {number(shape, "layers"), number(shape, "hidden"), request.length,
                             number(shape, "vocab")};
    memcpy(out->shape, sizes, sizeof sizes);
    request.global_batch =
        batch > 0 ? batch : gpus * number(line, "micro_batch") * number(line, "accumulation");
    MICS_TRY(open_cluster(s, line, text, &request.cluster));
    MICS_TRY(sources_model(&s->rules, s->memory, line, &model));
    request.model = model;
    mics_status status = tokens_per_s(s, &request, line, &catalogue, 0, &out->predicted);
    for (int i = 0; status == MICS_OK && i < TRIED; i++)
        status = tokens_per_s(s, &request, line, &tried[i], 0, &out->with[i]);
    for (int i = 0; status == MICS_OK && i < EXPONENTS; i++)
        status = tokens_per_s(s, &request, line, &catalogue, exponents[i], &out->with_exponent[i]);
    mics_model_close(model);
    snprintf(out->chip, sizeof out->chip, "%s", request.cluster.accelerator.name);
    return status;
}

// ---- the file ----

static void copy_text(const mics_json_value *line, const char *key, char out[NAME_BYTES])
{
    const char *text = mics_json_string(mics_json_get(line, key));
    snprintf(out, NAME_BYTES, "%s", text != NULL ? text : "");
}

static int32_t group_of(study *s, const char *name)
{
    int32_t g = 0;
    while (g < s->group_count && strcmp(s->groups[g], name) != 0)
        g++;
    if (g == s->group_count && g < MAX_GROUPS)
        memcpy(s->groups[s->group_count++], name, NAME_BYTES);
    return g;
}

static mics_status read_line(study *s, const char *text)
{
    char group[NAME_BYTES];
    mics_json *json = NULL;
    if (s->count == MAX_ROWS)
        return mics_fail(MICS_ERR_INVALID, "more than %d rows", MAX_ROWS);
    MICS_TRY(mics_json_parse(s->memory, "row", text, strlen(text), &json));
    const mics_json_value *line = mics_json_root(json);
    row *r = &s->rows[s->count++];
    copy_text(line, "id", r->id);
    copy_text(line, "group", group);
    r->group = group_of(s, group);
    r->measured = mics_json_real(mics_json_get(line, "tokens_per_s_gpu"));
    r->nodes = number(line, "nodes");
    r->micro_batch = number(line, "micro_batch");
    r->recompute = mics_json_real(mics_json_get(line, "recompute"));
    const mics_status status = plan_row(s, line, text, r);
    if (status != MICS_OK)
        (void)mics_fail(status, "%s cannot be planned", r->id);
    mics_json_close(json);
    return status;
}

static mics_status read_rows(study *s, const char *path)
{
    static char text[MAX_FILE_BYTES];
    FILE *file = fopen(path, "r");
    mics_status status = MICS_OK;
    if (file == NULL)
        return mics_fail(MICS_ERR_IO, "%s cannot be read", path);
    while (status == MICS_OK && fgets(text, sizeof text, file) != NULL) {
        if (text[0] == '{')
            status = read_line(s, text);
    }
    fclose(file);
    return status;
}

// ---- figures ----

static int compare_reals(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *values, int32_t count, double share)
{
    if (count == 0)
        return 0;
    qsort(values, (size_t)count, sizeof *values, compare_reals);
    const double at = share * (count - 1);
    const int32_t low = (int32_t)at, high = low + 1 < count ? low + 1 : low;
    return values[low] + (at - low) * (values[high] - values[low]);
}

typedef struct figures {
    int32_t rows, slow;              // predicted slower than measured
    double ratio, error, high_error; // medians, and the 90th percentile of errors
} figures;

// With which of the tried constants, or behind them of the exponents: below 0 the catalogue's.
static double predicted_with(const row *r, int32_t with)
{
    if (with < 0)
        return r->predicted;
    return with < TRIED ? r->with[with] : r->with_exponent[with - TRIED];
}

static double ratio_with(const row *r, int32_t with)
{
    return r->measured / predicted_with(r, with);
}

// Of a group; below 0 of all.
static figures figures_of(const study *s, int32_t group, int32_t with)
{
    static double ratios[MAX_ROWS], errors[MAX_ROWS];
    figures f = {0};
    for (int32_t i = 0; i < s->count; i++) {
        const double of_row = ratio_with(&s->rows[i], with);
        if (group >= 0 && s->rows[i].group != group)
            continue;
        ratios[f.rows] = of_row;
        errors[f.rows++] = fabs(of_row - 1);
        f.slow += of_row > 1;
    }
    f.ratio = quantile(ratios, f.rows, 0.5);
    f.error = quantile(errors, f.rows, 0.5);
    f.high_error = quantile(errors, f.rows, 0.9);
    return f;
}

// Of constants [begin, end) those with the smallest mean over the other groups of their median
// errors.
static int32_t best_without(const study *s, int32_t group, int32_t begin, int32_t end)
{
    double least = 0;
    int32_t best = -1;
    for (int32_t c = begin; c < end; c++) {
        double sum = 0;
        for (int32_t g = 0; g < s->group_count; g++)
            sum += g == group ? 0 : figures_of(s, g, c).error;
        if (best < 0 || sum < least) {
            least = sum;
            best = c;
        }
    }
    return best;
}

// ---- printing ----

static void print_figures(const char *name, const figures *f)
{
    printf("| %s | %d | %.2f | %.1f %% | %.1f %% | %.0f %% |\n", name, (int)f->rows, f->ratio,
           100 * f->error, 100 * f->high_error, 100.0 * f->slow / (f->rows > 0 ? f->rows : 1));
}

// Pairs of a group that differ by over 3 %, and the share that is put in the right order.
static double share_in_order(const study *s, int32_t with, int32_t *pairs_out)
{
    int32_t pairs = 0, right = 0;
    for (int32_t i = 0; i < s->count; i++) {
        for (int32_t j = 0; j < i; j++) {
            const row *a = &s->rows[i], *b = &s->rows[j];
            if (a->group != b->group || fabs(a->measured / b->measured - 1) < 0.03)
                continue;
            pairs++;
            right +=
                (a->measured > b->measured) == (predicted_with(a, with) > predicted_with(b, with));
        }
    }
    *pairs_out = pairs;
    return pairs > 0 ? (double)right / pairs : 1;
}

static void print_order(const study *s)
{
    int32_t pairs = 0;
    const double share = share_in_order(s, -1, &pairs);
    printf("\nOrdering within groups: %.0f of %d pairs (%.1f %%).\n", share * pairs, (int)pairs,
           100 * share);
}

// One training on fewer and on more nodes: what it keeps of its speed, predicted over measured;
// median. Returns how many such pairs there are.
static int32_t speed_kept(const study *s, int32_t with, double *median_out, double *high_out)
{
    static double ratios[MAX_ROWS * 8], errors[MAX_ROWS * 8];
    int32_t count = 0;
    for (int32_t i = 0; i < s->count; i++) {
        for (int32_t j = 0; j < s->count && count < MAX_ROWS * 8; j++) {
            const row *a = &s->rows[i], *b = &s->rows[j];
            if (a->group != b->group || a->nodes >= b->nodes || a->micro_batch != b->micro_batch ||
                a->recompute != b->recompute || strcmp(a->chip, b->chip) != 0 ||
                memcmp(a->shape, b->shape, sizeof a->shape) != 0)
                continue;
            ratios[count] = ratio_with(a, with) / ratio_with(b, with);
            errors[count] = fabs(ratios[count] - 1);
            count++;
        }
    }
    *median_out = quantile(ratios, count, 0.5);
    *high_out = quantile(errors, count, 0.9);
    return count;
}

// What slower links between many nodes would do to errors, and which exponent the groups choose for
// each other.
static void print_exponents(const study *s)
{
    double kept = 0, kept_error = 0, medians[MAX_GROUPS];
    const int32_t count = speed_kept(s, -1, &kept, &kept_error);
    printf("\n| bandwidth between n nodes | error, median | 90th percentile | median over groups | "
           "pairs in order | speed kept on more nodes, predicted / measured (%d pairs) | error, "
           "90th percentile |\n|---|---|---|---|---|---|---|\n",
           (int)count);
    for (int32_t i = 0; i < EXPONENTS; i++) {
        const int32_t with = TRIED + i;
        int32_t pairs = 0;
        const figures all = figures_of(s, -1, with);
        const double share = share_in_order(s, with, &pairs);
        speed_kept(s, with, &kept, &kept_error);
        for (int32_t g = 0; g < s->group_count; g++)
            medians[g] = figures_of(s, g, with).error;
        printf("| (n / 2)^-%.2f | %.1f %% | %.1f %% | %.1f %% | %.1f %% | %.3f | %.1f %% |\n",
               exponents[i], 100 * all.error, 100 * all.high_error,
               100 * quantile(medians, s->group_count, 0.5), 100 * share, kept, 100 * kept_error);
    }
    printf("\nExponent that suits all other groups best:");
    for (int32_t g = 0; g < s->group_count; g++)
        printf("%s %s %.2f", g > 0 ? "," : "", s->groups[g],
               exponents[best_without(s, g, TRIED, TRIED + EXPONENTS) - TRIED]);
    printf(".\n");
}

// One model of one group on two chips: what the second is worth of the first, measured and planned.
static void print_chips(const study *s)
{
    printf("\n| two chips | rows | speed, measured | predicted | error |\n|---|---|---|---|---|\n");
    for (int32_t i = 0; i < s->count; i++) {
        for (int32_t j = 0; j < s->count; j++) {
            const row *a = &s->rows[i], *b = &s->rows[j];
            const double measured = b->measured / a->measured;
            const double predicted = b->predicted / a->predicted;
            if (a->group == b->group && strcmp(a->chip, b->chip) != 0 && measured > 1 &&
                memcmp(a->shape, b->shape, sizeof a->shape) == 0)
                printf("| %s over %s | %s, %s | %.2f | %.2f | %+.0f %% |\n", b->chip, a->chip,
                       b->id, a->id, measured, predicted, 100 * (predicted / measured - 1));
        }
    }
}

static void print_others(const study *s)
{
    double medians[MAX_GROUPS];
    printf("\n| group | constants from all others: GEMMs, memory, jitter | predicted / measured, "
           "median | error, median |\n|---|---|---|---|\n");
    for (int32_t g = 0; g < s->group_count; g++) {
        const int32_t best = best_without(s, g, 0, TRIED);
        const figures f = figures_of(s, g, best);
        medians[g] = f.error;
        printf("| %s | %.2f, %.2f, %.2f | %.2f | %.1f %% |\n", s->groups[g], tried[best].matmul,
               tried[best].memory, tried[best].jitter, f.ratio, 100 * f.error);
    }
    printf("\nMedian over groups, each with the constants of the others: %.1f %%.\n",
           100 * quantile(medians, s->group_count, 0.5));
}

// An all-reduce of 256 MB and of 4 GB on p5.48xlarge by one ring, in GB/s of bus bandwidth, beside
// the medians that are published of the first.
static mics_status print_all_reduces(void)
{
    static const double medians[] = {436, 362, 160, 100, 85, 65, 33}, bytes[] = {256e6, 4e9};
    mics_cluster cluster;
    MICS_TRY(mics_cluster_find("p5.48xlarge", &cluster));
    printf("\n| nodes | all-reduce of 256 MB, median, GB/s | by a ring of p5.48xlarge | 4 GB "
           "|\n|---|---|---|---|\n");
    for (int i = 0; i < 7; i++) {
        const int32_t ranks = 8 << i;
        printf("| %d | %.0f |", 1 << i, medians[i]);
        for (int b = 0; b < 2; b++) {
            const mics_collective ring = {.kind = MICS_COLLECTIVE_ALL_REDUCE,
                                          .group = {.stride = 1, .size = ranks},
                                          .block_bytes = bytes[b] / ranks,
                                          .crowd = 1};
            const double us = mics_cost_collective(&cluster, ranks, &ring).us;
            printf(" %.0f |", 2e-3 * (ranks - 1) / ranks * bytes[b] / us);
        }
        printf("\n");
    }
    return MICS_OK;
}

static mics_status print_study(const study *s)
{
    double medians[MAX_GROUPS];
    if (s->print_rows) {
        printf("| row | chip | measured | predicted | time, predicted / measured |\n"
               "|---|---|---|---|---|\n");
        for (int32_t i = 0; i < s->count; i++) {
            const row *r = &s->rows[i];
            printf("| %s | %s | %.4g | %.4g | %.3f |\n", r->id, r->chip, r->measured, r->predicted,
                   ratio_with(r, -1));
        }
        printf("\n");
    }
    printf("| group | rows | predicted / measured, median | error, median | 90th percentile | too "
           "slow |\n|---|---|---|---|---|---|\n");
    for (int32_t g = 0; g < s->group_count; g++) {
        const figures f = figures_of(s, g, -1);
        medians[g] = f.error;
        print_figures(s->groups[g], &f);
    }
    const figures all = figures_of(s, -1, -1);
    print_figures("all", &all);
    printf("\nMedian over groups of each group's median: %.1f %%.\n",
           100 * quantile(medians, s->group_count, 0.5));
    print_others(s);
    print_exponents(s);
    MICS_TRY(print_all_reduces());
    print_chips(s);
    print_order(s);
    return MICS_OK;
}

int main(int argc, char **argv)
{
    static study s;
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "--rows") == 0) {
            s.print_rows = true;
        } else if (strcmp(argv[i], "--set") == 0 && i + 1 < argc && s.set_count < MAX_SETS &&
                   strchr(argv[i + 1], '=') != NULL) {
            s.sets[s.set_count++] = argv[++i];
        } else {
            fprintf(stderr, "published: %s is not known\n", argv[i]);
            return 2;
        }
    }
    if (argc < 3 || mics_memory_open(&s.memory) != MICS_OK)
        return 2;
    mics_status status = sources_open(s.memory, argv[2], &s.rules);
    if (status == MICS_OK)
        status = read_rows(&s, argv[1]);
    if (status == MICS_OK)
        status = print_study(&s);
    sources_close(&s.rules);
    mics_memory_close(s.memory);
    return status == MICS_OK ? 0 : 1;
}
