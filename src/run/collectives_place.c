// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where times of collectives were measured: hosts, their processors and network cards, the library
// that moves the bytes.
#include "collectives.h"
#include "mics/comm.h"
#include "mics/device.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char network_dir[] = "/sys/class/net";

// What a rank tells the others of its node.
typedef struct record {
    char host[RUN_HOST_BYTES];
    char processor[sizeof((mics_machine *)NULL)->cpu_name];
    int64_t network_mbit;
} record;

// What the system says of one network card; 0 when it is down, or nobody knows.
static int64_t card_mbit(const char *name)
{
    char path[512], text[32] = "";
    if (snprintf(path, sizeof path, "%s/%s/speed", network_dir, name) >= (int)sizeof path)
        return 0;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    const bool there = fgets(text, sizeof text, file) != NULL; // reading fails where it is down
    fclose(file);
    const long long mbit = there ? strtoll(text, NULL, 10) : 0;
    return mbit > 0 ? mbit : 0;
}

// Of the fastest card.
static int64_t network_mbit(void)
{
    int64_t most = 0;
    DIR *dir = opendir(network_dir);
    if (dir == NULL)
        return 0;
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        const int64_t mbit = entry->d_name[0] != '.' && strcmp(entry->d_name, "lo") != 0
                                 ? card_mbit(entry->d_name)
                                 : 0;
        most = mbit > most ? mbit : most;
    }
    closedir(dir);
    return most;
}

static record describe(void)
{
    mics_machine machine;
    record mine = {.network_mbit = network_mbit()};
    if (gethostname(mine.host, sizeof mine.host - 1) != 0 || mine.host[0] == '\0')
        strcpy(mine.host, "unknown");
    if (mics_machine_read(&machine) == MICS_OK)
        memcpy(mine.processor, machine.cpu_name, sizeof mine.processor);
    return mine;
}

// FNV-1a, goes on from `hash`.
static uint64_t hash_on(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return hash_on(hash, text, strlen(text) + 1);
}

// Of the first rank of each node, node by node.
static void sum_up(const record *all, int32_t ranks, int32_t per_node, run_place *place)
{
    uint64_t hosts = 0xcbf29ce484222325u, machines = hosts;
    for (int32_t rank = 0; rank < ranks; rank += per_node) {
        hosts = hash_text(hosts, all[rank].host);
        machines = hash_text(machines, all[rank].processor);
        machines = hash_on(machines, &all[rank].network_mbit, sizeof all[rank].network_mbit);
        if (rank == 0 || all[rank].network_mbit < place->network_mbit)
            place->network_mbit = all[rank].network_mbit;
    }
    snprintf(place->first_host, sizeof place->first_host, "%s", all[0].host);
    snprintf(place->last_host, sizeof place->last_host, "%s", all[ranks - per_node].host);
    snprintf(place->processor, sizeof place->processor, "%s", all[0].processor);
    snprintf(place->hosts, sizeof place->hosts, "%016llx", (unsigned long long)hosts);
    snprintf(place->machines, sizeof place->machines, "%016llx", (unsigned long long)machines);
}

mics_status run_place_find(run_rank *rank, int32_t per_node, run_place *place_out)
{
    mics_comm *comm = rank->comm;
    void *block = NULL;
    const mics_comm_group ring = {
        .group = {.first = 0, .stride = 1, .size = comm->ranks, .index = comm->rank},
        .what = "who is on which host"};
    const bool mpi = rank->world->mpi;
    mics_status status =
        mics_alloc(rank->memory, MICS_MEM_HOST, (size_t)comm->ranks * sizeof(record), &block);
    MICS_TRY_OUT(mics_comm_agree(comm, status));
    record *all = block;
    all[comm->rank] = describe();
    MICS_TRY_OUT(mics_comm_all_gather(comm, &ring, all, sizeof *all));
    *place_out = (run_place){.transport = mpi ? "mpi" : "threads"};
    snprintf(place_out->version, sizeof place_out->version, "%s",
             mpi ? mics_comm_mpi_version() : "");
    sum_up(all, comm->ranks, per_node, place_out);
out:
    mics_free(rank->memory, block);
    return status;
}
