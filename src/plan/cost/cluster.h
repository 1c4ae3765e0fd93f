// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Clusters as data: what a rank computes with, the tree of links between ranks, what a node costs.
//
// A cluster is a plain value: copy it, change a figure, compare. It comes from the catalogue (by
// name), from a cluster file (JSON, docs/clusters.md), or from a program that measures.
//
// The tree. Tiers are counted from the rank outwards. Tier 0 joins `fan_out` ranks, tier 1 joins
// `fan_out` such groups, and so on. Each child has one link, full duplex, into the tier that joins
// it: in tier 0 it is a rank's, in the tier beyond the node it is all network cards of a node
// together, in the one beyond a rack the rack's uplinks. One of the tiers is the node. Inside a
// node every tier has links of its own, so a message loads the links of the tier in which sender
// and receiver meet, alone. Beyond the node messages climb: one that meets in tier t loads the
// links of all tiers from the one beyond the node up to t.
#pragma once

#include "base/json.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MICS_CLUSTER_TIERS = 8,
    MICS_CLUSTER_NAME_BYTES = 64, // with the NUL
    MICS_CLUSTER_NOTE_BYTES = 256,
    MICS_CURVE_POINTS = 32
};

// A figure that depends on a size: points in ascending order of size, straight lines between them
// over the logarithm of the size, constant outside. No points: not given.
typedef struct mics_curve {
    int32_t count;
    double size[MICS_CURVE_POINTS];
    double value[MICS_CURVE_POINTS];
} mics_curve;

// What GEMMs compute in.
typedef enum mics_math {
    MICS_MATH_FP32,
    MICS_MATH_TF32,
    MICS_MATH_BF16,
    MICS_MATH_FP16,
    MICS_MATH_FP8, // of GEMMs alone: all else is bf16
    MICS_MATHS
} mics_math;

// Kernels of attention, in the order in which they came.
typedef enum mics_attention_kernel {
    MICS_ATTENTION_UNFUSED, // scores are written to memory and read again
    MICS_ATTENTION_FLASH1,
    MICS_ATTENTION_FLASH2,
    MICS_ATTENTION_FLASH3,
    MICS_ATTENTION_CUDNN,
    MICS_ATTENTION_KERNELS
} mics_attention_kernel;

// What one rank computes with. Efficiencies are the best that kernels reach alone; of these rates
// whole trainings keep the shares `..._kept`.
typedef struct mics_accelerator {
    char name[MICS_CLUSTER_NAME_BYTES];
    double memory_bytes;
    double
        reserve_bytes; // of it: driver, context, libraries' buffers, fragmentation; -1: not given
    double flops_per_s[MICS_MATHS]; // 0, of fp8 alone: it has none
    double memory_bytes_per_s;      // peak
    // Of the link to host memory, each way, while all of the node copy; and that memory, of the
    // node's. 0: not known.
    double host_bytes_per_s, host_memory_bytes;
    double memory_efficiency;  // share of it that kernels reach which only move memory
    double update_bytes_per_s; // that the optimizer's update reaches, read and written together
    double reduce_bytes_per_s; // at which received data is added; 0: it costs nothing
    double launch_us;          // of one kernel, when the kernel is shorter than that
    // Of CPUs. What a call of an op takes beside its work, as waking threads for it; and what moves at
    // another rate, as all the op's bytes are at most so many. 0: nothing.
    double call_us, cache_bytes, cache_bytes_per_s;
    mics_curve matmul_efficiency;    // share of flops_per_s; by the smallest of M, N, K
    mics_curve attention_efficiency; // share of flops_per_s; by the length of the sequence
    mics_curve attention_kernels[MICS_ATTENTION_KERNELS]; // the same of each kernel, where known
    char attention[16]; // the kernel whose curve attention_efficiency is, if that is not given
    double watts;       // that it may draw
    double matmul_kept, fp8_kept, attention_kept, memory_kept; // 0: all
    // Kernels between GEMMs: "separate", as of PyTorch without torch.compile, or "fused", which move
    // what they must and keep all of their rate; "": not said, memory_kept stands between the two.
    char kernels[16];
    char unsupported[MICS_CLUSTER_NAME_BYTES]; // why mics runs on no such chip; "": it does
    char device[8];                            // that was measured: "cpu" or "cuda"; "": not said
    double failures_per_day;    // of a node, for each of its accelerators; 0: not known
    double step_low, step_high; // of a predicted step fast and slow trainings take; 0: not known
} mics_accelerator;

// Joins `fan_out` children. Figures are of one child's link and one way.
typedef struct mics_tier {
    char name[MICS_CLUSTER_NAME_BYTES];
    int32_t fan_out;         // 0, only in the outermost: as many as there are
    double bytes_per_s;      // line rate
    double efficiency;       // share of the line rate that long messages reach
    double rank_bytes_per_s; // line rate at which one rank moves messages over a link: its own card
    double latency_us;       // of a message that meets here
    double half_bytes;       // a message of this size takes, without latency, twice its bytes' time
    mics_curve ramp;         // or measured: message bytes -> bytes/s of one rank, latency included
    mics_curve reduce_ramp;  // the same of what is added where it arrives; none: ramp, then the sum
    // Beside computation, by the threads a core that compute: what a message takes longer, because
    // who sends and receives waits for a core, and what each of its bytes does.
    mics_curve beside_us;
    mics_curve beside_us_per_byte;
    double slowdown;         // computation beside traffic of this tier takes 1 + slowdown times
    double core_us_per_byte; // that a core of the sender and receiver together works for a byte
} mics_tier;

// What a node and hour cost, by how it is rented.
typedef enum mics_price {
    MICS_PRICE_ON_DEMAND,
    MICS_PRICE_RESERVED,
    MICS_PRICE_MARKETPLACE, // of hosts that are not the seller's own
    MICS_PRICE_SPOT,        // may be taken away
    MICS_PRICES
} mics_price;

enum { MICS_PRICE_DATE_BYTES = 8 };

typedef struct mics_cluster {
    char name[MICS_CLUSTER_NAME_BYTES];
    char note[MICS_CLUSTER_NOTE_BYTES]; // where the figures come from
    int32_t nodes;                      // 0: not said
    int32_t cores;              // that all ranks together run on (emulation); 0: each has its own
    int32_t rings;              // a collective of several ranks a node uses so many at once
    bool pipelined;             // ring steps overlap: a step's latency counts once along the ring
    double collective_us;       // of starting a collective
    double step_overhead_us;    // of an optimizer step, neither computation nor communication
    double prices[MICS_PRICES]; // USD a node and hour; 0: unknown
    char price_dates[MICS_PRICES][MICS_PRICE_DATE_BYTES]; // "2026-11"; "": not said
    double usd_per_node_hour;                             // which of them counts: of plans; 0: none
    double jitter; // share of its time by which a node's computation varies
    // What goes wrong, and what becomes of it; 0: not known.
    double failures_per_node_day;
    double restart_s;                // from a failure until ranks begin to read a checkpoint
    double checkpoint_bytes_per_s;   // that a node writes to the disk of checkpoints, and reads
    double host_bytes_per_s;         // at which a rank copies its state to its node's memory
    double preemptions_per_node_day; // of spot nodes
    double preemption_notice_s;      // 0: none is given
    mics_accelerator accelerator;
    mics_tier tiers[MICS_CLUSTER_TIERS];
    int32_t tier_count; // 1 to MICS_CLUSTER_TIERS
    int32_t node_tier;  // which of them is the node: the one called "node", else 0
} mics_cluster;

/* A curve's value at a size.
 *
 * Units:   size and value: the curve's.
 * Needs:   size > 0.
 * Returns: `otherwise` when the curve has no points.      Threads: any.      Pure.
 */
double mics_curve_at(const mics_curve *curve, double size, double otherwise);

/* A curve of one point: the same everywhere.
 *
 * Units:   value: the curve's.
 * Needs:   nothing; any number.
 */
mics_curve mics_curve_constant(double value);

/* Whether it is a GPU: as it was measured, else by its rates. All GPUs are fast in fp16; CPUs are not,
 * even where they are in bf16.   Pure. */
bool mics_accelerator_is_gpu(const mics_accelerator *accelerator);

/* Whether an accelerator's kernels are said to be `what`: "separate" or "fused". Pure. */
bool mics_kernels_are(const mics_accelerator *accelerator, const char *what);

/* "unfused", "flash1", "flash2", "flash3", "cudnn"; never NULL. */
const char *mics_attention_kernel_text(mics_attention_kernel kernel);

/* "fp32", "tf32", "bf16", "fp16", "fp8"; never NULL. */
const char *mics_math_text(mics_math math);

/* "on-demand", "reserved", "marketplace", "spot"; and as a key of cluster files. Never NULL. */
const char *mics_price_text(mics_price price);
const char *mics_price_key(mics_price price);

/* Fills a cluster with the defaults of docs/clusters.md: for programs that measure and write a
 * file. Names, tiers, memory, FLOP/s and memory bandwidth are left 0, and must be given.
 *
 * Owns:    nothing: a cluster is a plain value.
 */
void mics_cluster_init(mics_cluster *cluster_out);

/* Derives what was left out (0; the reserve: -1): the reserve, other precisions, the update's
 * bandwidth, a rank's rate, the node's tier; then checks every figure. Parsing does both.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, one line with the cluster's name, the key of cluster files,
 *          and what would work (the cluster is then partly filled).
 */
mics_status mics_cluster_finish(mics_cluster *cluster);

/* Ranks of a node: the fan-outs multiplied, up to the node's tier.
 *
 * Needs:   a finished cluster.
 */
int32_t mics_cluster_ranks_per_node(const mics_cluster *cluster);

/* Ranks that one child of a tier holds: 1 for tier 0, those of a node for the tier beyond it. Needs
 * 0 <= tier < tier_count. */
int64_t mics_cluster_child_ranks(const mics_cluster *cluster, int32_t tier);

/* A cluster as a training on `nodes` of its nodes sees it: everybody waits for the slowest node, so
 * computation keeps less. What is returned has no jitter left, so a second call changes nothing.
 *
 * Of n normal times the largest is about sqrt(2 ln n) deviations above the mean.
 * Needs:   a finished cluster; nodes >= 1.
 * Source:  Cramer, Mathematical methods of statistics, 1946, section 28.6.
 */
mics_cluster mics_cluster_on_nodes(const mics_cluster *cluster, int32_t nodes);

/* The ranks of `nodes` nodes.
 *
 * Needs:   a finished cluster; nodes >= 1.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: fewer than 1, or more than the tree can hold
 *          (ranks_out untouched).
 */
mics_status mics_cluster_ranks(const mics_cluster *cluster, int32_t nodes, int32_t *ranks_out);

// ---- files ----

/* Reads a cluster file's document; docs/clusters.md has its keys.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT or MICS_ERR_INVALID, one line with file, line, key and what
 *          would work (cluster_out untouched).
 * Owns:    nothing of the document.
 */
mics_status mics_cluster_parse(const mics_json *json, mics_cluster *cluster_out);

/* A cluster as the text of a cluster file. Figures have 12 digits: reading it gives the same
 * cluster but for that, and writing that again the same text.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID (as mics_cluster_finish would say); MICS_ERR_MEMORY.
 * Owns:    the caller frees *text_out with mics_free.
 */
mics_status mics_cluster_text(mics_memory *memory, const mics_cluster *cluster, char **text_out);

/* Splits "p4d.24xlarge:8" or "cluster.json:8" at the last colon that is followed by digits alone.
 *
 * nodes_out is 0 when no number is given.
 * Needs:   `text` ends in a NUL; capacity >= 1, the bytes of name_out.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: no name, a name of `capacity` bytes or more, or a
 *          number that is not 1 to 1048576 (outputs untouched).
 * Owns:    nothing; name_out is copied.
 */
mics_status mics_cluster_split(const char *text, char *name_out, size_t capacity,
                               int32_t *nodes_out);

// ---- the catalogue ----

/* A cluster of the catalogue by name, without regard to case; also by the other names that
 * docs/clusters.md lists.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, one line with the nearest names (cluster_out untouched).
 * Threads: any.
 */
mics_status mics_cluster_find(const char *name, mics_cluster *cluster_out);

/* Entries of the catalogue, in its order.      Threads: any. */
int32_t mics_catalogue_count(void);

/* An entry's name.
 *
 * Needs:   0 <= entry < mics_catalogue_count().
 * Returns: text of the library's; never NULL.      Threads: any.
 */
const char *mics_catalogue_name(int32_t entry);

/* An entry as the text of a cluster file, in which each figure has a source and a date; "assumed"
 * says that it is not published for this machine, but taken from a like one or estimated.
 *
 * Needs:   0 <= entry < mics_catalogue_count().
 * Returns: text of the library's, NUL-terminated; never NULL.      Threads: any.
 */
const char *mics_catalogue_text(int32_t entry);
