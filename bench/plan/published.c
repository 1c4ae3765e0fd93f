// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Published throughputs beside what plans say: errors by kind of run, with constants that other
// sources chose, and which of two is faster.
//
// usage: published CONFIGS SOURCES.jsonl [--rows] [--table] [--set PATH=VALUE ...] FILE.jsonl ...
//
// Plans are evaluated at the published sharding and batch: nothing is searched but what a row leaves
// open. A row's kind is its chip, its precision and what its ranks share beside data.
//
// Two constants are fitted to rows of all kinds: what GEMMs keep of their rate, and what memory does.
// To see what they are worth for a training that they were not fitted to, each source is also
// predicted with those, of a grid, that suit the other sources best.
#include "mics/log.h"
#include "rows.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 128, FEW_ROWS = 3 };

typedef struct names {
    const char *items[MAX_NAMES];
    int32_t count;
} names;

// What rows are grouped by.
typedef const char *(*name_of)(const row *r);

static const char *kind_of(const row *r)
{
    return r->kind;
}

static const char *software_of(const row *r)
{
    return r->software;
}

static const char *source_of(const row *r)
{
    return r->source;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static names names_of(const rows *all, name_of by)
{
    names list = {.count = 0};
    for (int32_t i = 0; i < all->count; i++) {
        const char *name = by(&all->items[i]);
        int32_t at = 0;
        while (at < list.count && strcmp(list.items[at], name) != 0)
            at++;
        if (at == list.count && at < MAX_NAMES)
            list.items[list.count++] = name;
    }
    qsort(list.items, (size_t)list.count, sizeof *list.items, compare_names);
    return list;
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

// With which of the tried constants; below 0 the catalogue's.
static double ratio_with(const row *r, int32_t with)
{
    return r->measured / (with < 0 ? r->predicted : r->with[with]);
}

// Of the rows of a name, or where `others` of all but these; without a name of all.
static figures figures_of(const rows *all, name_of by, const char *name, bool others, int32_t with)
{
    static double ratios[MAX_ROWS], errors[MAX_ROWS];
    figures f = {0};
    for (int32_t i = 0; i < all->count; i++) {
        const row *r = &all->items[i];
        const double ratio = ratio_with(r, with);
        if (name != NULL && (strcmp(by(r), name) == 0) == others)
            continue;
        ratios[f.rows] = ratio;
        errors[f.rows++] = fabs(ratio - 1);
        f.slow += ratio > 1;
    }
    f.ratio = quantile(ratios, f.rows, 0.5);
    f.error = quantile(errors, f.rows, 0.5);
    f.high_error = quantile(errors, f.rows, 0.9);
    return f;
}

// ---- printing ----

static void print_figures(const char *name, const figures *f)
{
    printf("| %s | %d | %.2f | %.1f %% | %.1f %% | %d, %d |\n", name, (int)f->rows, f->ratio,
           100 * f->error, 100 * f->high_error, (int)f->slow, (int)(f->rows - f->slow));
}

static void print_by(const rows *all, name_of by, const char *what)
{
    const names list = names_of(all, by);
    printf("\n| %s | rows | time, predicted / measured, median | error, median | 90th percentile | "
           "too slow, too fast |\n|---|---|---|---|---|---|\n",
           what);
    for (int32_t n = 0; n < list.count; n++) {
        const figures f = figures_of(all, by, list.items[n], false, -1);
        print_figures(list.items[n], &f);
    }
    const figures f = figures_of(all, by, NULL, false, -1);
    print_figures("all", &f);
}

// What the library knows of its own error (src/plan/offers/kinds.inc), worst kinds too.
static void print_table(const rows *all)
{
    const names list = names_of(all, kind_of);
    printf("// SPDX-FileCopyrightText: The mics authors\n// SPDX-License-Identifier: Apache-2.0\n"
           "// Made by bench/plan/published.sh --table.\n");
    for (int32_t n = 0; n < list.count; n++) {
        const figures f = figures_of(all, kind_of, list.items[n], false, -1);
        printf("{\"%s\", %d, %.2f, %.2f, %.2f},\n", list.items[n], (int)f.rows, f.ratio, f.error,
               f.high_error);
    }
}

static void print_rows(const rows *all)
{
    printf("| row | kind | software | measured | predicted | time, predicted / measured |\n"
           "|---|---|---|---|---|---|\n");
    for (int32_t i = 0; i < all->count; i++) {
        const row *r = &all->items[i];
        printf("| %s | %s | %s | %.4g | %.4g | %.3f |\n", r->id, r->kind, r->software, r->measured,
               r->predicted, ratio_with(r, -1));
    }
}

// ---- other sources' constants ----

static int32_t best_without(const rows *all, const char *source)
{
    double least = INFINITY;
    int32_t best = 0;
    for (int32_t c = 0; c < TRIED; c++) {
        const figures f = figures_of(all, source_of, source, true, c);
        if (f.error < least) {
            least = f.error;
            best = c;
        }
    }
    return best;
}

static void print_others(const rows *all)
{
    const names list = names_of(all, source_of);
    static double errors[MAX_ROWS], medians[MAX_NAMES];
    int32_t count = 0;
    printf("\n| source | rows | constants from all others: GEMMs, memory | predicted / measured, "
           "median | error, median |\n|---|---|---|---|---|\n");
    for (int32_t n = 0; n < list.count; n++) {
        const int32_t best = best_without(all, list.items[n]);
        const figures f = figures_of(all, source_of, list.items[n], false, best);
        medians[n] = f.error;
        for (int32_t i = 0; i < all->count; i++) {
            if (strcmp(all->items[i].source, list.items[n]) == 0)
                errors[count++] = fabs(ratio_with(&all->items[i], best) - 1);
        }
        printf("| %s | %d | %.2f, %.2f | %.2f | %.1f %% |\n", list.items[n], (int)f.rows,
               tried[best].matmul, tried[best].memory, f.ratio, 100 * f.error);
    }
    printf("\nEach source with the constants of the others: median error of rows %.1f %%, of "
           "sources %.1f %%.\n",
           100 * quantile(errors, count, 0.5), 100 * quantile(medians, list.count, 0.5));
}

// ---- order ----

// Pairs of a group that differ by over 3 %.
static void print_order(const rows *all)
{
    int32_t pairs = 0, right = 0;
    for (int32_t i = 0; i < all->count; i++) {
        for (int32_t j = 0; j < i; j++) {
            const row *a = &all->items[i], *b = &all->items[j];
            if (strcmp(a->group, b->group) != 0 || fabs(a->measured / b->measured - 1) < 0.03)
                continue;
            pairs++;
            right += (a->measured > b->measured) == (a->predicted > b->predicted);
        }
    }
    printf("\nOrder within groups: %d of %d pairs (%.1f %%).\n", (int)right, (int)pairs,
           100.0 * right / (pairs > 0 ? pairs : 1));
}

// One model on two chips: what the second is worth of the first, measured and planned.
static void print_chips(const rows *all)
{
    printf("\n| two chips | rows | speed, measured | predicted | error |\n|---|---|---|---|---|\n");
    for (int32_t i = 0; i < all->count; i++) {
        for (int32_t j = 0; j < all->count; j++) {
            const row *a = &all->items[i], *b = &all->items[j];
            const double measured = b->measured / a->measured;
            const double predicted = b->predicted / a->predicted;
            if (strcmp(a->software, b->software) == 0 && strcmp(a->chip, b->chip) != 0 &&
                measured > 1 && memcmp(a->shape, b->shape, sizeof a->shape) == 0)
                printf("| %s over %s | %s, %s | %.2f | %.2f | %+.0f %% |\n", b->chip, a->chip,
                       b->id, a->id, measured, predicted, 100 * (predicted / measured - 1));
        }
    }
}

int main(int argc, char **argv)
{
    static rows all;
    bool each = false, table = false;
    const char *files[MAX_SETS];
    int32_t file_count = 0;
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "--rows") == 0) {
            each = true;
        } else if (strcmp(argv[i], "--table") == 0) {
            table = true;
        } else if (strcmp(argv[i], "--set") == 0 && i + 1 < argc && all.set_count < MAX_SETS &&
                   strchr(argv[i + 1], '=') != NULL) {
            all.sets[all.set_count++] = argv[++i];
        } else if (argv[i][0] != '-' && file_count < MAX_SETS) {
            files[file_count++] = argv[i];
        } else {
            fprintf(stderr, "published: %s is not known\n", argv[i]);
            return 2;
        }
    }
    if (argc < 3 || file_count == 0 || mics_memory_open(&all.memory) != MICS_OK)
        return 2;
    all.configs = argv[1];
    all.fits = !table;
    mics_status status = sources_open(all.memory, argv[2], &all.rules);
    for (int32_t i = 0; status == MICS_OK && i < file_count; i++)
        status = rows_read(&all, files[i]);
    if (status == MICS_OK && table) {
        print_table(&all);
    } else if (status == MICS_OK) {
        if (each)
            print_rows(&all);
        print_by(&all, kind_of, "kind");
        print_by(&all, software_of, "software");
        print_others(&all);
        print_chips(&all);
        print_order(&all);
    }
    sources_close(&all.rules);
    mics_memory_close(all.memory);
    return status == MICS_OK ? 0 : 1;
}
