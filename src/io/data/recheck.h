// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Shards that somebody touches while a corpus is read: their times change, and perhaps their tokens.
// A thread hashes such a file again, while the reads of it wait. Where that takes longer than other
// ranks should be kept waiting for, reads go on, and the next ones wait again.
#pragma once

#include "io/data/shard.h"
#include "mics/memory.h"

typedef struct mics_recheck mics_recheck;

/* Opens the checks of a corpus of so many shards; it starts no thread.
 * Returns: MICS_OK; MICS_ERR_MEMORY.     Owns: close with mics_recheck_close. */
mics_status mics_recheck_open(mics_memory *memory, int64_t shards, mics_recheck **checks_out);

/* Ends a check that runs, and frees. NULL is allowed. */
void mics_recheck_close(mics_recheck *self);

/* Whether shard `index`, which has the stamp `now` and had another, has the tokens that `hash` is of.
 *
 * known_out: whether that is certain, so that what is read under that stamp is right.
 * Returns:   MICS_OK; MICS_ERR_IO: it has others, or cannot be read, logged.     Threads: any. */
mics_status mics_recheck_shard(mics_recheck *self, int64_t index, const mics_shard *shard,
                               const mics_shard_stamp *now, uint64_t hash, bool *known_out);
