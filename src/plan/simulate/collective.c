// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What collectives of a schedule take: the exchanges, then the compressing and adding that their
// thread does beside them.
#include "plan/simulate/internal.h"
#include "schedule/rules.h"
#include <math.h>

static mics_collective asked(const mics_schedule *schedule, const mics_cluster *cluster,
                             mics_collective_kind kind, mics_group group, double block_bytes)
{
    const double threads =
        (double)mics_mesh_world(&schedule->spec.mesh) * schedule->spec.batch.threads;
    return (mics_collective){.kind = kind,
                             .group = group,
                             .block_bytes = block_bytes,
                             .crowd = cluster->cores > 0 ? threads / cluster->cores : 1};
}

static mics_cost_use price(const mics_schedule *schedule, const mics_cluster *cluster,
                           mics_collective_kind kind, mics_group group, double block_bytes)
{
    const mics_collective one = asked(schedule, cluster, kind, group, block_bytes);
    return mics_cost_collective(cluster, mics_mesh_world(&schedule->spec.mesh), &one);
}

static mics_cost_use times(mics_cost_use use, double count)
{
    use.us *= count;
    use.beside_us *= count;
    use.latency_us *= count;
    use.core_us *= count;
    for (int t = 0; t < MICS_CLUSTER_TIERS; t++) {
        use.bytes[t] *= count;
        use.busy_us[t] *= count;
    }
    return use;
}

// Sums of numbers that travel as they are held are made in chunks.
static mics_cost_use direct_use(const mics_schedule *schedule, const mics_cluster *cluster,
                                mics_group group, const mics_step *step)
{
    const bool whole = !mics_step_sums(step) || step->dtype.sent != step->dtype.held;
    const int64_t elems = step->block_elems;
    const int64_t chunk = whole ? elems : mics_schedule_sum_chunk(&schedule->spec, elems);
    const double chunks = chunk < elems ? ceil((double)elems / (double)chunk) : 1;
    const mics_collective one =
        asked(schedule, cluster, MICS_COLLECTIVE_SEND, group, (double)step->block_bytes / chunks);
    return times(mics_cost_direct(cluster, mics_mesh_world(&schedule->spec.mesh), &one), chunks);
}

// ---- what the thread does beside ----

// Bytes that it reads and writes. Compressing reads fp32 and writes what is sent, decompressing the
// other way round, adding reads the sum too. A gather copies the rank's own shard into the slot,
// compressed or not, and a micro-step's sum is added to the accumulator.
static double local_bytes(const mics_schedule *schedule, const mics_step *step, mics_group group)
{
    const double elems = (double)step->block_elems, others = group.size - 1;
    const double sent = (double)step->block_bytes; // of a block
    const double whole = sizeof(float) * elems;
    const double held = schedule->spec.precision == MICS_PRECISION_MIXED ? 2 : 4;
    const bool compressed = step->dtype.sent != step->dtype.held;
    const bool gather = step->kind == MICS_STEP_GATHER, last = step->stage != MICS_STAGE_INTER;
    double bytes = 0;
    if (compressed && mics_step_sums(step))
        bytes += others * (whole + sent) + others * (sent + 2 * whole);
    if (compressed && !gather && !mics_step_sums(step))
        bytes += group.size * (whole + sent);
    if (compressed && gather && !last &&
        schedule->spec.params_dtype.intra == MICS_COMM_FP32) // decompresses the node's share
        bytes += group.size * (whole + sent);
    if (compressed && gather && last) // decompresses the unit
        bytes += (sizeof(float) + 2) * (double)schedule->padded_elems[step->unit];
    if (gather && step->stage != MICS_STAGE_INTRA)
        bytes += held * elems + sent; // its shard into the slot; nothing where they are shared
    if (step->member_count > 0) // into the message and out of it: a gather's own block, all else
        bytes += 2 * whole * (1 + group.size);
    if (step->kind == MICS_STEP_REDUCE && step->stage != MICS_STAGE_INTRA)
        bytes += (schedule->spec.micro_steps > 1 ? 2 : 1) * whole + held * elems;
    return bytes;
}

static void add_local(const mics_cluster *cluster, double bytes, mics_cost_use *use)
{
    if (bytes == 0)
        return;
    const mics_cost_op op = {.kind = MICS_COST_ELEMENTWISE, .math = MICS_MATH_FP32, .bytes = bytes};
    const double us = mics_cost_op_us(cluster, &op, NULL);
    use->us += us;
    use->beside_us += us;
    use->core_us += us;
}

// ---- steps ----

// A replica scatter, or the replica gather behind it, where both are one all-reduce: of a ring each
// is half, so of a faster pair of trees too.
static mics_cost_use all_reduce_half(const mics_schedule *schedule, const mics_cluster *cluster,
                                     mics_group group, double block_bytes, mics_cost_use ring)
{
    const mics_cost_use both = price(schedule, cluster, MICS_COLLECTIVE_ALL_REDUCE, group,
                                     block_bytes),
                        trees = price(schedule, cluster, MICS_COLLECTIVE_ALL_REDUCE_TREE, group,
                                      block_bytes);
    return trees.us < both.us ? times(trees, 0.5) : ring;
}

static bool is_all_reduce(const mics_schedule *schedule, const mics_step *step)
{
    return schedule->spec.all_reduces && step->algorithm == MICS_ALGORITHM_RING &&
           (step->kind == MICS_STEP_REPLICA_SCATTER || step->kind == MICS_STEP_REPLICA_GATHER) &&
           step->stage != MICS_STAGE_INTRA;
}

// Coded changes of bf16 numbers. Bits of each: the entropy of an Adam step at a rate of 3e-4 on trained
// weights, some 2, and what a coder adds (assumed; bench/cloud/delta.sh counts them). Bytes of numbers
// that a core codes or decodes in a second: the least that is asked of the coder.
static const double DELTA_BITS = 3, DELTA_BYTES_PER_S = 0.5e9;

double mics_simulate_delta_bytes(int64_t elems)
{
    return (double)elems * DELTA_BITS / 8;
}

// What coding one block, or decoding those of the others, adds to its step.
static void add_coding(const mics_step *step, mics_group group, mics_cost_use *use)
{
    const mics_step *sync = step->kind == MICS_STEP_SIZES ? step + 1 : step;
    const double blocks = step->kind == MICS_STEP_SIZES ? 1 : group.size - 1;
    if (!sync->coded)
        return;
    const double us = blocks * 2 * (double)sync->block_elems / DELTA_BYTES_PER_S * 1e6;
    use->us += us;
    use->beside_us += us;
    use->core_us += us;
}

static mics_cost_use exchanges_use(const mics_schedule *schedule, const mics_cluster *cluster,
                                   const mics_step *step, mics_group group, bool trees)
{
    const double block_bytes =
        step->coded ? mics_simulate_delta_bytes(step->block_elems) : (double)step->block_bytes;
    if (step->algorithm == MICS_ALGORITHM_DOUBLING || step->algorithm == MICS_ALGORITHM_SHARED)
        return price(schedule, cluster, MICS_COLLECTIVE_ALL_GATHER_DOUBLING, group, block_bytes);
    if (step->algorithm == MICS_ALGORITHM_DIRECT)
        return direct_use(schedule, cluster, group, step);
    const mics_cost_use ring =
        price(schedule, cluster,
              mics_step_sums(step) ? MICS_COLLECTIVE_REDUCE_SCATTER : MICS_COLLECTIVE_ALL_GATHER,
              group, block_bytes);
    return trees && is_all_reduce(schedule, step)
               ? all_reduce_half(schedule, cluster, group, block_bytes, ring)
               : ring;
}

// A copy to or from host memory, on a link that no collective uses. Of accelerators that nothing is
// known of: PCIe gen4 with 16 lanes, shared a little; 10 us from one copy to the next (assumed).
double mics_simulate_copy_us(const mics_cluster *cluster, double bytes)
{
    const double rates[] = {20e9, cluster->accelerator.host_bytes_per_s, cluster->host_bytes_per_s};
    return 10 + bytes / rates[rates[2] > 0 ? 2 : rates[1] > 0] * 1e6;
}

static mics_cost_use copy_use(const mics_cluster *cluster, const mics_step *step)
{
    const double us = mics_simulate_copy_us(cluster, (double)step->block_bytes);
    return (mics_cost_use){.us = us, .beside_us = us, .tier = -1};
}

mics_cost_use collective_use(const mics_schedule *schedule, const mics_cluster *cluster,
                             const mics_simulate_options *options, const mics_step *step)
{
    if (mics_step_is_copy(step))
        return copy_use(cluster, step);
    const mics_group group =
        mics_mesh_group(&schedule->spec.mesh, step->axis, mics_step_scope(step), 0);
    mics_cost_use use = exchanges_use(schedule, cluster, step, group, options->trees);
    add_local(cluster, local_bytes(schedule, step, group), &use);
    add_coding(step, group, &use);
    return use;
}
