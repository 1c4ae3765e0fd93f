// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Going back under an MPI launcher: a bit flips in one process, and all go back to a copy in node memory,
// also where one node's part is damaged and comes from another, or to the disk. Each rank ends with the
// bits that it has in a run where nothing flips.
#include "faults/live.h"
#include <sys/stat.h>
#include <unistd.h>

enum { STEPS = 12 };

// By the launcher; each has its own word for it.
static int rank_here(void)
{
    const char *text = getenv("OMPI_COMM_WORLD_RANK");
    if (text == NULL)
        text = getenv("PMI_RANK");
    return text != NULL ? atoi(text) : 0;
}

static live_run run_of(const char *out, const char *command)
{
    return (live_run){.nodes = 2,
                      .sharding = {2, 2, 2},
                      .steps = STEPS,
                      .out = out,
                      .command = command,
                      .sets = {"run.check_replicas_every=3", "run.checkpoint_every=5",
                               "run.memory_checkpoint_every=2"},
                      .flip = {.rank = 2, .after = 7, .elem = 3, .bit = 19}};
}

// What this rank came to, for the script to compare.
static int write_result(const live_run *run, const char *name, int rank)
{
    char path[64];
    snprintf(path, sizeof path, "%s.rank-%d", name, rank);
    FILE *out = fopen(path, "w");
    if (out == NULL)
        return 1;
    fprintf(out, "step %d, digest %016llx\n", (int)run->step, (unsigned long long)run->digest);
    for (int step = 1; step <= STEPS && rank == 0; step++)
        fprintf(out, "loss %d %a\n", step, run->losses[step]);
    return fclose(out);
}

// A case, and what rank 3 does where the bit flips.
static const struct {
    const char *name, *command, *expected;
    live_kind kind;
} cases[] = {
    {"undisturbed", NULL, "", LIVE_NONE},
    {"whole", NULL, "goes back to step 6 (in node memory)", LIVE_MASTERS},
    {"damaged",
     "for f in shm-1/mics-*/*/slot-0/rank-*; do printf damage | dd of=$f bs=1 seek=9000 "
     "conv=notrunc "
     "2>dd-err; done",
     "goes back to step 6 (in node memory)", LIVE_MASTERS},
    {"lost", "rm -r shm-*/mics-*", "goes back to step 5 (lost/checkpoints/", LIVE_MASTERS},
};

// Arguments: a folder to work in, the same for all, and a case; or "prepare", to make it ready.
// Each node has a tmpfs of its own in it.
int main(int count, char **arguments)
{
    char shm[16];
    const int rank = rank_here();
    if (count != 3 || chdir(arguments[1]) != 0)
        return 2;
    if (strcmp(arguments[2], "prepare") == 0)
        return live_prepare() != 0 || mkdir("shm-0", 0700) != 0 || mkdir("shm-1", 0700) != 0;
    snprintf(shm, sizeof shm, "shm-%d", rank / 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(arguments[2], cases[i].name) != 0 || setenv("MICS_SHM_DIR", shm, 1) != 0)
            continue;
        live_run run = run_of(cases[i].name, rank == 3 ? cases[i].command : NULL);
        run.flip.kind = cases[i].kind;
        live_go(&run, true);
        if (run.status == MICS_OK && (rank != 0 || strstr(run.warning, cases[i].expected) != NULL))
            return write_result(&run, cases[i].name, rank);
        fprintf(stderr, "%s, rank %d: %s; \"%s\" lacks \"%s\"\n", cases[i].name, rank,
                mics_status_name(run.status), run.warning, cases[i].expected);
        return 1;
    }
    return 2;
}
