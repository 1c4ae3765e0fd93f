// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What NCCL takes of a GPU.
#include "base/nccl.h"
#include <stdlib.h>

enum { MAX_CHANNELS = 64 }; // of NCCL

// A ring runs in one CTA a channel. NCCL gives the ring through a card of 400 Gb/s up to four
// channels (2.30, src/graph/connect.cc: each ring twice, and twice again with fewer than 16).
#define CTA_BYTES_PER_S 12.5e9
enum { MIN_INTER_CTAS = 8, MAX_INTER_CTAS = 24 };

// Sends and receives use a power of two channels to each peer, and each channel has buffers for each
// peer: 32, which NCCL makes of 24, would take 2.6 GiB with 8 GPUs. The program sets
// NCCL_MAX_P2P_NCHANNELS to it.
enum { MESSAGE_CTAS = 16 };

mics_nccl_ctas mics_nccl_choose_ctas(int32_t sharers, double node_bytes_per_s)
{
    const double wanted = node_bytes_per_s / CTA_BYTES_PER_S;
    if (sharers > 1)
        return (mics_nccl_ctas){.intra = 8, .inter = 4, .messages = MESSAGE_CTAS};
    return (mics_nccl_ctas){.intra = 24,
                            .messages = MESSAGE_CTAS,
                            .inter = wanted >= MAX_INTER_CTAS   ? MAX_INTER_CTAS
                                     : wanted <= MIN_INTER_CTAS ? MIN_INTER_CTAS
                                                                : (int32_t)wanted};
}

// As NCCL reads a number from the environment.
static long long setting(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? strtoll(text, NULL, 0) : 0;
}

bool mics_nccl_may_share(void)
{
    return setting("NCCL_MULTI_RANK_GPU_ENABLE") != 0;
}

static void read_setting(const char *name, int32_t *value)
{
    const long long set = setting(name);
    if (set > 0 && set <= MAX_CHANNELS)
        *value = (int32_t)set;
}

mics_nccl_ctas mics_nccl_read_ctas(int32_t sharers, double node_bytes_per_s)
{
    mics_nccl_ctas ctas = mics_nccl_choose_ctas(sharers, node_bytes_per_s);
    read_setting("NCCL_MAX_CTAS", &ctas.intra);
    read_setting("NCCL_MAX_CTAS", &ctas.inter);
    read_setting("NCCL_MAX_P2P_NCHANNELS", &ctas.messages);
    return ctas;
}

// ---- memory ----
//
// NCCL 2.30, in MiB. A connection receives into buffers of three protocols: 4 (NCCL_BUFFSIZE) + 4.7
// + 0.5, which rounded up to 2 MiB, CUDA's grain, are 10 (src/transport/p2p.cc). On the sender's GPU
// it takes 2 inside a node, and 10 for a network card that reads GPU memory (net.cc). NVLS has 1 for
// each GPU, channel and direction (nvls.cc). Sends between nodes share 2 a channel and direction
// (net.cc). COMMUNICATOR_MIB is for all that is small (assumed).
enum {
    COMMUNICATOR_MIB = 64,
    INTRA_PAIR_MIB = 12, // a connection each way
    INTER_PAIR_MIB = 20,
    NVLS_MIB = 2,
    SHARED_MIB = 4,
};

static int32_t power_of_two(int32_t least)
{
    int32_t power = 1;
    while (power < least)
        power *= 2;
    return power;
}

size_t mics_nccl_bytes(const mics_nccl_use *use)
{
    const bool inter = use->ranks > use->ranks_here;
    const int32_t most = use->ctas < use->message_ctas ? use->ctas : use->message_ctas;
    const size_t here = (size_t)use->ranks_here, ctas = (size_t)use->ctas;
    const size_t channels = (size_t)power_of_two(most);
    size_t mib = COMMUNICATOR_MIB;
    if (use->rings)
        mib += ctas * (size_t)(inter ? INTER_PAIR_MIB : INTRA_PAIR_MIB);
    if (use->rings && !inter && use->ranks > 2)
        mib += ctas * here * NVLS_MIB;
    if (use->messages)
        mib += channels * ((here - 1) * INTRA_PAIR_MIB + (inter ? SHARED_MIB : 0));
    return mib << 20;
}

size_t mics_nccl_reserve(int32_t ranks, int32_t ranks_per_node, const mics_nccl_ctas *ctas)
{
    const int32_t here = ranks < ranks_per_node ? ranks : ranks_per_node;
    const mics_nccl_use node = {here, here, ctas->intra, ctas->messages, true, true};
    const mics_nccl_use nodes = {ranks, 1, ctas->inter, ctas->messages, true, true};
    if (ranks == 1)
        return 0;
    return MICS_NCCL_PROCESS_BYTES + (here > 1 ? mics_nccl_bytes(&node) : 0) +
           (ranks > here ? mics_nccl_bytes(&nodes) : 0);
}
