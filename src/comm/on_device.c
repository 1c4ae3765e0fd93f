// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which way collectives on a device's buffers travel. Ranks tell each other what they have, and all
// choose by the same table.
#include "internal.h"
#include "mics/log.h"
#include <stdio.h>
#include <string.h>

// What a rank tells of itself.
typedef struct rank_card {
    char device[48]; // mics_device_info.id
    int32_t nccl;    // 1: the plugin and NCCL are there
} rank_card;

static void fill_card(const mics_device *device, rank_card *card)
{
    mics_device_info info = {.name = ""};
    device->ops->info(device->ctx, &info);
    snprintf(card->device, sizeof card->device, "%s", info.id);
    card->nccl =
        mics_cuda_find()->nccl[0] != '\0' && mics_plugin_symbol(MICS_CUDA_COMM_OPEN) != NULL;
}

// Why NCCL is not to be had, on any rank; an empty text when it is.
static void judge(const rank_card *cards, int32_t ranks, char *why, size_t capacity)
{
    why[0] = '\0';
    for (int32_t rank = 0; rank < ranks; rank++) {
        if (!cards[rank].nccl) {
            snprintf(why, capacity, "rank %d has no NCCL (see `mics doctor` there)", (int)rank);
            return;
        }
        for (int32_t other = 0; other < rank; other++) {
            if (strcmp(cards[rank].device, cards[other].device) == 0) {
                snprintf(why, capacity, "ranks %d and %d share GPU %s, which NCCL refuses",
                         (int)other, (int)rank, cards[rank].device);
                return;
            }
        }
    }
}

static mics_status exchange_cards(mics_memory *memory, mics_comm *inner, const mics_device *device,
                                  char *why, size_t capacity)
{
    const mics_ring world = {
        .group = {.first = 0, .stride = 1, .size = inner->ranks, .index = inner->rank},
        .what = "what devices ranks have"};
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, (size_t)inner->ranks * sizeof(rank_card), &block));
    rank_card *cards = block;
    fill_card(device, &cards[inner->rank]);
    const mics_status status = mics_comm_all_gather(inner, &world, cards, sizeof(rank_card));
    if (status == MICS_OK)
        judge(cards, inner->ranks, why, capacity);
    mics_free(memory, cards);
    return status;
}

mics_status mics_comm_device_open_take(mics_memory *memory, mics_comm *inner,
                                       const mics_device_comm_spec *spec, mics_comm **comm_out)
{
    char why[160] = "";
    if (spec->device->is_host) { // its buffers are the inner comm's
        *comm_out = inner;
        return MICS_OK;
    }
    if (spec->piece_bytes < sizeof(float) || spec->piece_bytes % sizeof(float) != 0)
        return mics_fail(MICS_ERR_INVALID, "pieces of %zu bytes hold no whole number of floats",
                         spec->piece_bytes);
    if (spec->transport != MICS_TRANSPORT_STAGED)
        MICS_TRY(exchange_cards(memory, inner, spec->device, why, sizeof why));
    if (spec->transport == MICS_TRANSPORT_NCCL && why[0] != '\0')
        return inner->rank != 0 ? MICS_ERR_UNSUPPORTED
                                : mics_fail(MICS_ERR_UNSUPPORTED,
                                            "run.transport \"nccl\": %s; \"staged\" goes through "
                                            "host memory",
                                            why);
    if (spec->transport == MICS_TRANSPORT_STAGED || why[0] != '\0')
        return comm_staged_open_take(memory, inner, spec->device, spec->piece_bytes, comm_out);
    for (int32_t i = 0; i < spec->ring_count; i++)
        MICS_TRY(comm_check_ring(inner, &spec->rings[i], NULL, 0));
    void *symbol = mics_plugin_symbol(MICS_CUDA_COMM_OPEN);
    comm_nccl_open_take open = NULL;
    memcpy(&open, &symbol, sizeof open);
    return open(memory, inner, spec, comm_out);
}
