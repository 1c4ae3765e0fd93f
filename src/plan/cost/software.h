// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What other systems' training software makes of the same chips, by year.
#pragma once

#include "plan/cost/cluster.h"

// What Megatron does beside cutting the model, as its versions did.
typedef enum mics_megatron_era {
    MICS_MEGATRON_NOW,  // sequence parallelism, sharded optimizer, overlap of all but all-to-alls
    MICS_MEGATRON_2023, // the same, but computation waits for tensor parallelism
    MICS_MEGATRON_2021  // none of it
} mics_megatron_era;

typedef struct mics_software {
    const char *name;
    const char *kernels;             // as mics_accelerator's; "": not said
    mics_attention_kernel attention; // the newest it has
    mics_megatron_era era;
    bool shards_params;     // over replicas, beside tensor and pipeline parallelism: FSDP
    bool half_grads;        // added up in 2 bytes
    bool interleaved_alone; // hides all-to-alls of experts in interleaved pipelines alone
    bool sends_once;        // rows that several experts of a node get go there once
    double recomputed;      // share of layers that it recomputes at least, as its configurations do
    double fp8;             // share of the chip's rate of GEMMs in fp8; 0: all
    // Of experts: what a pass of a layer waits for the host, which reads how many rows each has; time
    // of the most loaded over the mean; share of all-to-alls that other computation hides.
    double routing_us, imbalance, exchange_hidden;
} mics_software;

/* A software by its name.
 *
 * Returns: one of a table; NULL: there is none of the name.      Threads: any.
 */
const mics_software *mics_software_find(const char *name);

/* The names, separated by commas.
 *
 * Needs:   bytes >= 1.
 * Returns: `text`; 256 bytes hold all, fewer their beginning.      Threads: any.
 */
const char *mics_software_names(char *text, size_t bytes);

/* A finished cluster as that software uses it. Of kernels of attention it takes the newest that the
 * chip has rates of, up to its own. "mics" changes nothing.
 *
 * Needs:   one of the table.      Pure but for the cluster.
 */
void mics_software_apply(const mics_software *software, mics_cluster *cluster);
