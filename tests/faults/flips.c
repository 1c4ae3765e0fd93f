// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Flips single bits of the live state of trainings, one a training, at random, and says what became
// of them:
//
//   flips [PER_ROW [SEED]]
//
// Whatever several ranks hold alike must be found, and the training must come to the bits of an
// undisturbed one: else the program fails. So must 95 % of flips in what exists once, if it is hashed
// in each step (run.scrub_every 1). What reaches every replica alike nobody can compare; of
// that the program counts how much finite losses, spikes and running a step again catch
// (run.spike_zscore 6, run.recheck).
#include "base/rng.h"
#include "faults/live.h"
#include <unistd.h>

typedef struct layout {
    const char *name;
    int32_t ranks;
    mics_sharding sharding;
} layout;

// Where masters and moments have replicas, and where they exist once.
static const layout held_often[] = {
    {"ddp of 2", 2, {1, 1, 1}},     {"ddp of 3", 3, {1, 1, 1}},     {"ddp of 4", 4, {1, 1, 1}},
    {"mics(2) of 4", 4, {2, 2, 2}}, {"mics(2) of 8", 8, {2, 2, 2}}, {"1|1|2 of 4", 4, {1, 1, 2}},
};
static const layout held_once[] = {
    {"zero1 of 2", 2, {1, 1, 2}},
    {"zero2 of 4", 4, {1, 4, 4}},
    {"mics+(2) of 4", 4, {2, 2, 4}},
    {"hpz(2) of 4", 4, {2, 4, 4}},
};
// Where gathers make copies.
static const layout gathered[] = {{"mics(2) of 4", 4, {2, 2, 2}}, {"zero3 of 2", 2, {2, 2, 2}}};

typedef struct row {
    const char *name;
    live_kind kind;
    const layout *layouts;
    int32_t layout_count;
    bool must_recover;   // several ranks hold it alike, or it is hashed
    int32_t least_found; // percent
    const char *scrub;   // NULL: none
    int32_t bit;         // 0: any
} row;

#define EACH_STEP "run.scrub_every=1"
#define LAYOUTS(list) (list), (int32_t)(sizeof(list) / sizeof((list)[0]))
static const row rows[] = {
    {"masters, with replicas", LIVE_MASTERS, LAYOUTS(held_often), true, 0, NULL, 0},
    {"moments, with replicas", LIVE_MOMENTS, LAYOUTS(held_often), true, 0, NULL, 0},
    {"gradients after the second hop", LIVE_GRADS, LAYOUTS(held_often), true, 0, NULL, 0},
    {"others' parameters (O > P)", LIVE_PARAMS, LAYOUTS(held_once), true, 0, NULL, 0},
    {"masters that exist once", LIVE_MASTERS, LAYOUTS(held_once), false, 0, NULL, 0},
    {"moments that exist once", LIVE_MOMENTS, LAYOUTS(held_once), false, 0, NULL, 0},
    {"masters that exist once, scrubbed", LIVE_MASTERS, LAYOUTS(held_once), true, 95, EACH_STEP, 0},
    {"moments that exist once, scrubbed", LIVE_MOMENTS, LAYOUTS(held_once), true, 95, EACH_STEP, 0},
    {"gathered parameters", LIVE_GATHERED, LAYOUTS(gathered), false, 0, NULL, 0},
    {"activations", LIVE_ACTIVATIONS, LAYOUTS(held_often), false, 0, NULL, 0},
    {"gradients before the second hop", LIVE_MICRO_GRADS, LAYOUTS(held_often), false, 0, NULL, 0},
    {"bit 30 of masters that exist once", LIVE_MASTERS, LAYOUTS(held_once), false, 90, NULL, 30},
};
enum { ROWS = sizeof rows / sizeof rows[0], STEPS = 36, SHORT = 3, MAX_FLIPS = 4096 };

typedef struct tally {
    int32_t flips;
    int32_t found;     // said by the run: a difference, or a suspicious step
    int32_t machine;   // of them, told from data: replicas, or a second attempt
    int32_t ended;     // of them, the run ended
    int32_t recovered; // found, and the bits of an undisturbed run
    int32_t masked;    // nothing was said, and the same bits
    int32_t silent;    // nothing was said, and other bits
    double worst;      // of these: by how much the last loss differs
} tally;

static live_run run_of(const row *r, const layout *of)
{
    return (live_run){.ranks = of->ranks,
                      .sharding = of->sharding,
                      .steps = STEPS,
                      .sets = {"run.check_replicas_every=5", "run.checkpoint_every=15",
                               "run.spike_zscore=6", "run.recheck=true", r->scrub}};
}

static uint64_t draw(uint64_t seed, uint64_t row_index, int32_t flip_index, uint64_t what)
{
    return mics_rng_bits(seed, row_index * MAX_FLIPS + (uint64_t)flip_index, what) >> 8;
}

static live_flip flip_of(const row *r, const layout *of, uint64_t seed, int32_t index)
{
    const uint64_t at = (uint64_t)(r - rows);
    return (live_flip){.kind = r->kind,
                       .rank = (int32_t)(draw(seed, at, index, 1) % (uint64_t)of->ranks),
                       .after = (int64_t)(1 + draw(seed, at, index, 2) % (STEPS - 1)),
                       .unit = (int32_t)(draw(seed, at, index, 3) % 3),
                       .elem = (int64_t)(draw(seed, at, index, 4) % (1 << 20)),
                       .bit = r->bit > 0 ? r->bit : (int32_t)(draw(seed, at, index, 5) % 32)};
}

static void count(const live_run *run, const live_run *undisturbed, tally *t)
{
    const bool said = run->warnings + run->errors > 0, same = live_same(run, undisturbed, 1);
    const double off = fabs(run->losses[STEPS] - undisturbed->losses[STEPS]);
    t->flips++;
    t->found += said;
    t->ended += run->status == MICS_ERR_NUMERIC;
    t->machine += strstr(run->warning, "is to blame") != NULL ||
                  strstr(run->warning, "goes back") != NULL ||
                  strstr(run->warning, "is run again") != NULL;
    t->recovered += said && same;
    t->masked += !said && same;
    t->silent += !said && !same;
    if (!said && off > t->worst)
        t->worst = off;
}

// Returns whether all went as it has to.
static bool run_row(const row *r, int32_t flips, uint64_t seed, tally *t)
{
    bool good = true;
    for (int32_t l = 0; l < r->layout_count; l++) {
        const layout *of = &r->layouts[l];
        live_run undisturbed = run_of(r, of);
        live_go(&undisturbed, false);
        good = good && undisturbed.status == MICS_OK && undisturbed.warnings == 0;
        for (int32_t i = l; i < flips; i += r->layout_count) {
            live_run run = run_of(r, of);
            run.flip = flip_of(r, of, seed, i);
            live_go(&run, false);
            count(&run, &undisturbed, t);
            const bool as_it_must = run.status == MICS_OK && live_same(&run, &undisturbed, 1);
            const bool may = run.status == MICS_OK || run.status == MICS_ERR_NUMERIC;
            if (r->must_recover ? as_it_must : may)
                continue;
            printf("FAILED: %s, %s, rank %d after step %d, unit %d, element %lld, bit %d: %s, %s\n",
                   r->name, of->name, (int)run.flip.rank, (int)run.flip.after, (int)run.flip.unit,
                   (long long)run.flip.elem, (int)run.flip.bit, mics_status_name(run.status),
                   run.errors > 0 ? run.error : run.warning);
            good = false;
        }
    }
    return good;
}

static bool run_all(int32_t flips, uint64_t seed)
{
    bool good = true;
    printf("%-34s %6s %6s %8s %6s %10s %7s %7s  %s\n", "one bit of", "flips", "found", "machine",
           "ended", "recovered", "masked", "silent", "worst loss of these");
    for (int i = 0; i < ROWS; i++) {
        tally t = {0};
        good = run_row(&rows[i], flips, seed, &t) && good;
        good = good && 100 * t.found >= rows[i].least_found * t.flips;
        printf("%-34s %6d %6d %8d %6d %10d %7d %7d  %.3g\n", rows[i].name, (int)t.flips,
               (int)t.found, (int)t.machine, (int)t.ended, (int)t.recovered, (int)t.masked,
               (int)t.silent, t.worst);
        fflush(stdout);
    }
    return good;
}

int main(int argc, char **argv)
{
    // Checkpoints are on disk thousands of times otherwise.
    char work[] = "/dev/shm/mics-flips-XXXXXX", elsewhere[] = "/tmp/mics-flips-XXXXXX";
    char command[64];
    const int flips = argc > 1 ? atoi(argv[1]) : SHORT;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    char *dir = mkdtemp(work) != NULL ? work : mkdtemp(elsewhere);
    if (dir == NULL || chdir(dir) != 0 || live_prepare() != 0 || flips < 1 || flips > MAX_FLIPS)
        return 2;
    const bool good = run_all(flips, seed);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return chdir("/") == 0 && system(command) == 0 && good ? 0 : 1;
}
