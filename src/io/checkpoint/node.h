// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A run's state in the memory of a node: files in a tmpfs, which outlive the processes that wrote
// them. Two slots are written in turn, so that the newest copy is whole while the next is made.
//
//   BASE/mics-UID-ID/node-0/slot-0/rank-00003.safetensors ...  manifest.json  (tokenizer.json)
//                           slot-1/...
//
// A slot is a checkpoint folder (mics/checkpoint.h) from which rank files may be missing: other
// nodes keep those. Its manifest lists all of them; a slot without one does not count. BASE is
// MICS_SHM_DIR, or /dev/shm; ID is the run's, drawn at random.
//
// mics-UID-ID is a folder of this user with mode 0700: all in it is this user's own, and no path
// through it is another user's link.
#pragma once

#include "io/checkpoint/manifest.h"
#include "io/checkpoint/rank_file.h"
#include "mics/core/checkpoint.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    MICS_NODE_ID_BYTES = 33, // 32 hexadecimal digits and a NUL
    MICS_NODE_SLOTS = 2,
    MICS_NODE_MAX_FILES = 1 << 16 // of a copy
};

// ---- the run's folder ----

/* The folder that tmpfs files lie in: MICS_SHM_DIR, or /dev/shm. */
const char *mics_node_base(void);

/* Draws an ID. Returns: MICS_OK; MICS_ERR_IO. */
mics_status mics_node_draw_id(char id_out[MICS_NODE_ID_BYTES]);

/* Whether a text is an ID. */
bool mics_node_is_id(const char *text);

/* The folder of a run in this node's memory; it need not be there.
 *
 * Owns:    the caller frees *root_out with mics_free.
 */
mics_status mics_node_root(mics_memory *memory, const char *id, char **root_out);

/* Whether the folder is there, and is ours: MICS_ERR_INVALID, logged, when it is a link or another
 * user's, or others may enter it. */
mics_status mics_node_check_root(const char *root, bool *there_out);

/* Makes the folder, or finds it. Returns: as mics_node_check_root; MICS_ERR_IO. */
mics_status mics_node_make_root(const char *root);

/* The folder of a slot, which need not be there. The caller frees *slot_out with mics_free. */
mics_status mics_node_slot(mics_memory *memory, const char *root, int32_t node, int32_t slot,
                           char **slot_out);

/* Removes the folders node-N of `root` from number `first` on, and all resume-*. Failures are
 * warnings. */
void mics_node_remove_from(const char *root, int32_t first);

/* Removes a folder with all that is in it; links are not followed. What is not there is no failure,
 * what cannot be removed is a warning. */
void mics_node_remove(const char *path);

/* Memory that the files of `root` take, and what its file system has free (of BASE, where `root` is
 * NULL or not there). Returns: MICS_OK; MICS_ERR_IO. */
mics_status mics_node_space(const char *root, int64_t *used_out, int64_t *free_out);

// ---- writing ----

// A rank file, as manifests list it.
typedef struct mics_node_file {
    int64_t bytes;
    uint64_t hash; // of its header
} mics_node_file;

/* Makes a slot's folder ready for a new copy: what lies there counts no more. Any rank of a node may
 * call it, once the node's other slot counts.
 *
 * slot_out: its path, which the caller frees with mics_free.
 */
mics_status mics_node_begin(mics_memory *memory, const char *root, int32_t node, int32_t slot,
                            char **slot_out);

/* Writes shards as rank file `file` of `files`, over an older one if there is one.
 *
 * Returns: MICS_OK; MICS_ERR_IO (no room, how much it needs); as mics_rank_file_check.
 */
mics_status mics_node_write(mics_memory *memory, const char *slot, int64_t step, int32_t file,
                            int32_t files, const mics_optimizer_shard *shards, int32_t count,
                            mics_node_file *file_out);

/* Opens rank file `file` of a slot, to be filled with what another node sends, or read. */
mics_status mics_node_open_file(mics_memory *memory, const char *slot, int32_t file, bool writing,
                                int *fd_out, char **path_out);

// What a manifest says.
typedef struct mics_node_manifest {
    const mics_checkpoint_meta *meta;
    const mics_node_file *files; // (file_count)
    int32_t file_count;
    mics_manifest_unit *units; // by name; only read
    int32_t unit_count;
    int32_t slot;
    int64_t serial; // of two copies of one run, the one with the higher serial is newer
} mics_node_manifest;

/* Lets a slot count: removes what it holds of older copies (`keeps`: whether this node keeps a
 * file), and writes its manifest. */
mics_status mics_node_commit(mics_memory *memory, const char *slot,
                             const mics_node_manifest *manifest, const bool *keeps);

// ---- finding ----

// What tells copies apart; the same on all nodes that have parts of one.
typedef struct mics_node_key {
    int64_t serial, step;
    uint64_t hash; // of the manifest's text
    int32_t slot;
    int32_t files; // 0: no copy
} mics_node_key;

// A slot that counts.
typedef struct mics_node_copy {
    mics_node_key key;
    char *folder;
    mics_manifest manifest;
} mics_node_copy;

typedef struct mics_node_copies {
    mics_node_copy *list; // newest first
    int32_t count;
} mics_node_copies;

/* < 0: `a` is the newer copy; 0: they are one. */
int mics_node_compare(const mics_node_key *a, const mics_node_key *b);

/* Finds the slots under `root` that count. Damaged ones are passed over with a warning; a root that
 * is not there has none.
 *
 * Returns: MICS_OK; as mics_node_check_root; MICS_ERR_IO; MICS_ERR_MEMORY.
 * Owns:    free with mics_node_copies_fini.
 */
mics_status mics_node_scan(mics_memory *memory, const char *root, mics_node_copies *copies_out);
void mics_node_copies_fini(mics_memory *memory, mics_node_copies *copies);

/* Whether a copy has a rank file, complete and undamaged: its data are read and hashed.
 *
 * good_out: false also where it is missing; a damaged one is a warning.
 * Returns: MICS_OK; MICS_ERR_MEMORY.
 */
mics_status mics_node_check_file(mics_memory *memory, const mics_node_copy *copy, int32_t file,
                                 bool *good_out);

// ---- putting a checkpoint together ----

/* Reads the first bytes of a rank file, with its header.
 *
 * Owns:    the caller frees *head_out with mics_free.
 */
mics_status mics_node_read_head(mics_memory *memory, const char *slot, int32_t file,
                                unsigned char **head_out, int64_t *bytes_out);

/* Bytes of the head that begins at `at`, of which `left` are there: 0 when they are none. */
int64_t mics_node_head_bytes(const unsigned char *at, int64_t left);

/* Makes a rank file of `bytes` that has a head and no data yet, which takes no memory; to read data
 * that never came is MICS_ERR_FORMAT. */
mics_status mics_node_write_stub(mics_memory *memory, const char *folder, int32_t file,
                                 const unsigned char *head, int64_t head_bytes, int64_t bytes);

/* Calls `visit` for each shard of a rank file. bytes_out: the file's.
 * Returns: as mics_rank_file_load. */
mics_status mics_node_visit(mics_memory *memory, const char *folder, int32_t file,
                            void (*visit)(void *ctx, int32_t file, const mics_rank_shard *shard),
                            void *ctx, int64_t *bytes_out);

/* Gives a rank file of a slot a second name in a folder of the same root. */
mics_status mics_node_link(mics_memory *memory, const char *slot, int32_t file, const char *folder);
