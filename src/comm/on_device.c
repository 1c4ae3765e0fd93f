// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The transport of collectives on device buffers. Ranks exchange cards of what they have, and all
// choose by the same table.
#include "base/network.h"
#include "internal.h"
#include "mics/core/transport.h"
#include "mics/log.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The first that lets ranks share a GPU, where NCCL_MULTI_RANK_GPU_ENABLE says so.
enum { SHARING_VERSION = 230 };

// A rank's card: its device, NCCL and node.
typedef struct rank_card {
    char device[48];            // mics_device_info.id
    char why_not[128];          // why it has no NCCL; empty: it has
    int32_t version;            // NCCL's: 230 is 2.30
    int32_t may_share;          // NCCL_MULTI_RANK_GPU_ENABLE is set
    double network_bytes_per_s; // of its machine's cards; 0: not known
} rank_card;

// Why not all ranks can use NCCL.
typedef struct verdict {
    bool expected;              // some rank has none, or ranks were to share a GPU: worth a warning
    char why[320];              // empty: all can
    int32_t sharers;            // ranks of the GPU that has most
    double network_bytes_per_s; // of the slowest machine's cards
} verdict;

// Why this process has no NCCL that will do; NULL: it has.
static const char *why_no_nccl(void)
{
    void *symbol = mics_plugin_symbol(MICS_CUDA_COMM_WHY_NOT);
    comm_nccl_why_not why_not = NULL;
    memcpy(&why_not, &symbol, sizeof why_not); // ISO C has no cast for it
    return why_not != NULL ? why_not() : "the plugin was built without it";
}

static void fill_card(const mics_device *device, rank_card *card)
{
    const char *why_not = why_no_nccl();
    mics_device_info info = {.name = ""};
    char *end = NULL;
    device->ops->info(device->ctx, &info);
    snprintf(card->device, sizeof card->device, "%s", info.id);
    snprintf(card->why_not, sizeof card->why_not, "%s", why_not != NULL ? why_not : "");
    const long major = strtol(mics_cuda_find()->nccl, &end, 10);
    if (*end == '.')
        card->version = (int32_t)(100 * major + strtol(end + 1, NULL, 10));
    card->may_share = mics_nccl_may_share();
    card->network_bytes_per_s = mics_network_bytes_per_s(NULL);
}

// How many ranks up to `rank` are on its GPU, and the one before it.
static int32_t count_sharers(const rank_card *cards, int32_t rank, int32_t *before_out)
{
    int32_t sharers = 1;
    for (int32_t other = 0; other < rank; other++) {
        if (strcmp(cards[rank].device, cards[other].device) != 0)
            continue;
        *before_out = other;
        sharers++;
    }
    return sharers;
}

// Whether NCCL takes ranks that share a GPU, and that many: all ranks must let it.
static void judge_sharing(const rank_card *cards, int32_t ranks, verdict *found)
{
    int32_t first = 0, second = 0, refuser = 0;
    for (int32_t rank = 0, before = 0; rank < ranks; rank++) {
        const int32_t sharers = count_sharers(cards, rank, &before);
        if (sharers <= found->sharers)
            continue;
        found->sharers = sharers;
        first = before;
        second = rank;
    }
    while (refuser < ranks && cards[refuser].version >= SHARING_VERSION && cards[refuser].may_share)
        refuser++;
    if (found->sharers > 1 && refuser < ranks)
        snprintf(found->why, sizeof found->why,
                 "ranks %d and %d share GPU %s, which NCCL refuses; 2.30 or newer takes it with "
                 "NCCL_MULTI_RANK_GPU_ENABLE=1 on all ranks, and rank %d has %d.%d%s",
                 (int)first, (int)second, cards[second].device, (int)refuser,
                 (int)cards[refuser].version / 100, (int)cards[refuser].version % 100,
                 cards[refuser].may_share ? "" : " without it");
    else if (found->sharers > MICS_NCCL_MAX_SHARERS)
        snprintf(found->why, sizeof found->why,
                 "%d ranks share GPU %s, and at most %d, whose kernels wait for each other, fit",
                 (int)found->sharers, cards[second].device, MICS_NCCL_MAX_SHARERS);
    found->expected = found->why[0] != '\0' && cards[0].may_share;
}

static verdict judge(const rank_card *cards, int32_t ranks)
{
    verdict found = {.network_bytes_per_s = cards[0].network_bytes_per_s};
    judge_sharing(cards, ranks, &found);
    for (int32_t rank = 1; rank < ranks; rank++)
        found.network_bytes_per_s =
            fmin(found.network_bytes_per_s, cards[rank].network_bytes_per_s);
    for (int32_t rank = 0; rank < ranks && found.why[0] == '\0'; rank++) {
        if (cards[rank].why_not[0] == '\0')
            continue;
        found.expected = true;
        snprintf(found.why, sizeof found.why, "rank %d has no NCCL that will do: %s", (int)rank,
                 cards[rank].why_not);
    }
    return found;
}

static mics_status exchange_cards(mics_memory *memory, mics_comm *inner, const mics_device *device,
                                  verdict *found_out)
{
    const mics_comm_group world = {
        .group = {.first = 0, .stride = 1, .size = inner->ranks, .index = inner->rank},
        .what = "what devices ranks have"};
    rank_card *cards = NULL;
    MICS_TRY(MICS_NEW(memory, inner->ranks, &cards));
    fill_card(device, &cards[inner->rank]);
    const mics_status status = mics_comm_all_gather(inner, &world, cards, sizeof(rank_card));
    if (status == MICS_OK)
        *found_out = judge(cards, inner->ranks);
    mics_free(memory, cards);
    return status;
}

// NCCL was asked for. Every rank knows; one says it.
static mics_status refuse(const mics_comm *inner, const verdict *found)
{
    if (inner->rank != 0)
        return MICS_ERR_UNSUPPORTED;
    return mics_fail(MICS_ERR_UNSUPPORTED,
                     "collectives by NCCL: %s; MICS_TRANSPORT_STAGED goes through host memory",
                     found->why);
}

// Groups of one get no communicator: they have nobody to tell anything.
static mics_status open_nccl(mics_memory *memory, mics_comm *inner,
                             const mics_device_comm_spec *spec, const verdict *found,
                             mics_comm **comm_out)
{
    const comm_nccl_terms terms = {
        .ctas = mics_nccl_read_ctas(found->sharers, found->network_bytes_per_s),
        .sharers = found->sharers};
    mics_device_comm_spec several = *spec;
    void *symbol = mics_plugin_symbol(MICS_CUDA_COMM_OPEN);
    comm_nccl_open_take open = NULL;
    memcpy(&open, &symbol, sizeof open);
    mics_comm_group *groups = NULL;
    MICS_TRY(MICS_NEW(memory, spec->group_count, &groups));
    several.groups = groups;
    several.group_count = 0;
    for (int32_t i = 0; i < spec->group_count; i++) {
        if (spec->groups[i].group.size > 1)
            groups[several.group_count++] = spec->groups[i];
    }
    const mics_status status = open(memory, inner, &several, &terms, comm_out);
    mics_free(memory, groups);
    return status;
}

mics_status mics_comm_device_open_take(mics_memory *memory, mics_comm *inner,
                                       const mics_device_comm_spec *spec, mics_comm **comm_out)
{
    verdict found = {.why = ""};
    if (spec->device->is_host) { // its buffers are the inner comm's
        *comm_out = inner;
        return MICS_OK;
    }
    if (spec->piece_bytes < sizeof(float) || spec->piece_bytes % sizeof(float) != 0)
        return mics_fail(MICS_ERR_INVALID, "pieces of %zu bytes hold no whole number of floats",
                         spec->piece_bytes);
    if (spec->group_count < 0)
        return mics_fail(MICS_ERR_INVALID, "collectives by NCCL: %d groups",
                         (int)spec->group_count);
    if (spec->transport != MICS_TRANSPORT_STAGED)
        MICS_TRY(exchange_cards(memory, inner, spec->device, &found));
    const bool possible = found.why[0] == '\0';
    if (spec->transport == MICS_TRANSPORT_NCCL && !possible)
        return refuse(inner, &found);
    if (found.expected && inner->rank == 0 && inner->ranks > 1)
        mics_log(MICS_LOG_WARNING, "collectives go through the host's memory, which is slow: %s",
                 found.why);
    if (spec->transport == MICS_TRANSPORT_STAGED || !possible)
        return comm_staged_open_take(memory, inner, spec->device, spec->piece_bytes, comm_out);
    for (int32_t i = 0; i < spec->group_count; i++)
        MICS_TRY(comm_check_group(inner, &spec->groups[i], NULL, 0));
    return open_nccl(memory, inner, spec, &found, comm_out);
}
