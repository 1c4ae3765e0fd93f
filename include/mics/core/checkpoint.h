// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Checkpoints: a folder a step with one file for each rank that holds something, and a manifest
// that is renamed into place last. A folder without a manifest does not count. Reading is by range
// of a unit and by name of a state, so any mesh can read what any other wrote. docs/formats.md
// describes the files.
//
//   DIR/step-00000200/rank-00000.safetensors ...  config.json  tokenizer.json  manifest.json
//   DIR/latest (names the folder that was saved last)
//
// A run has a folder DIR of its own, which all nodes share, and saves one step at a time.
#ifndef MICS_CHECKPOINT_H
#define MICS_CHECKPOINT_H

#include "mics/core/dtype.h"
#include "mics/log.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The state that every shard has: the master parameters. What an optimizer keeps beside them has
// the name that torch.optim gives it: "exp_avg", "exp_avg_sq", "momentum_buffer".
#define MICS_STATE_PARAM "param"

// Of several islands (mics_outer) a unit's states are the parameters that all agreed on, as
// MICS_STATE_PARAM, and the momentum of their outer steps. Each island's own state is a unit of its own,
// with a name that mics_checkpoint_island_unit makes. So who knows nothing of islands reads parameters
// that all agreed on.
#define MICS_STATE_OUTER_MOMENTUM "outer_momentum"

enum { MICS_MAX_SHARD_STATES = 8 };

// One state of a shard.
typedef struct mics_shard_state {
    const char *name; // without dots
    mics_dtype dtype; // MICS_DTYPE_FP32, the only one that checkpoints hold so far
    const void *data; // of every element of the shard; may be NULL when that has none
} mics_shard_state;

// What one rank owns of one unit: elements [begin, end) of the unit's flat buffer, in every state.
typedef struct mics_optimizer_shard {
    const char *unit;    // unit's name
    int64_t unit_elems;  // length of the unit's flat buffer without the mesh's padding
    int64_t begin, end;  // 0 <= begin <= end <= unit_elems
    int32_t state_count; // 1 to MICS_MAX_SHARD_STATES; alike in all shards of a unit, in order too
    mics_shard_state states[MICS_MAX_SHARD_STATES];
    int32_t of_island; // 1 + the island whose own state it is; 0: of all, or there is one
} mics_optimizer_shard;

// Where dynamic loss scaling is (fp16): mics_scaler of the engine.
typedef struct mics_checkpoint_scaler {
    double scale;           // > 0; 0: the run scales no loss
    int64_t steps;          // training steps so far
    int64_t since_overflow; // of them, since the newest that overflowed, that one included
    int64_t skipped;
    int64_t hysteresis;
} mics_checkpoint_scaler;

enum { MICS_CHECKPOINT_LOSSES = 100 };

// The newest losses that a spike is told by, oldest first.
typedef struct mics_checkpoint_losses {
    int32_t count;
    double list[MICS_CHECKPOINT_LOSSES]; // (count), finite
} mics_checkpoint_losses;

// Where the meetings of several islands stand (mics_outer_state), and in which order they come.
typedef struct mics_checkpoint_outer {
    int32_t islands; // 2 or more; 0: there is one, and the rest has no meaning
    int32_t every, fragments, overlap_steps;
    int64_t met;            // the newest training step whose list's meetings are done
    const int64_t *counted; // (windows, islands): tokens that counted since those units met
    int32_t windows;
} mics_checkpoint_outer;

/* Whether parameters are those that all islands agreed on, as nothing has trained since they met. Pure. */
static inline bool mics_checkpoint_is_agreed(const mics_checkpoint_outer *outer)
{
    for (int32_t i = 0; outer->islands > 1 && i < outer->windows * outer->islands; i++) {
        if (outer->counted[i] != 0)
            return false;
    }
    return true;
}

// Ranks that shared one copy of each state.
typedef struct mics_checkpoint_sharding {
    int32_t params, grads, optimizer;
} mics_checkpoint_sharding;

typedef struct mics_checkpoint_meta {
    int64_t step;    // optimizer steps done
    int64_t samples; // training samples consumed
    int64_t sample;  // number of the next one in its order; as `samples`, but for runs with phases
    int64_t tokens;  // trained on; in what was read 0: of before it was written
    uint64_t seed;
    uint64_t corpus_hash;
    uint64_t validation_hash; // of texts of their own; 0: not known, or there are none
    uint64_t base_hash;       // of frozen parameters, which are not saved; 0: there are none
    const char *model_json;   // the Hugging Face config.json's text
    const char *tokenizer;    // "bytes", or the path of a tokenizer.json
    // What is saved of that file: see mics_tokenizer_text. NULL reads it at each save, when it may
    // be gone or another. In what was read: NULL.
    const char *tokenizer_text;
    size_t tokenizer_bytes;
    const char *model_files; // texts of the model's folder by name, a JSON object; NULL: none
    const char *run_json;    // the resolved run, for people; may be NULL
    const char *run_id;      // of the run that saved it; NULL or "": none
    mics_checkpoint_scaler scaler;
    mics_checkpoint_losses recent; // none: as at step 0
    mics_checkpoint_outer outer;
    // How the run was resolved.
    const char *precision; // "fp32", "tf32", "bf16", "fp16"
    const char *optimizer; // "AdamW", "SGD", "Lion", "Muon"
    mics_checkpoint_sharding sharding;
    int32_t layered_micro_steps; // micro-steps that run side by side, at most; 1: each by itself
    const char *program;         // version of mics that saved it; saving ignores it
} mics_checkpoint_meta;

typedef struct mics_checkpoint_writer {
    const char *dir; // the run's checkpoints/ folder; made when missing
    int32_t rank;    // rank 0 writes the manifest
    int32_t writers; // ranks 0 .. writers - 1 pass shards
    int32_t keep;    // newest folders kept; 0 keeps all
    // Returns MICS_OK when every rank passed MICS_OK, and otherwise as mics_engine_agree;
    // called by every rank, equally often. NULL in a world of one. Ranks wait in it for the slowest
    // one's files, which may take longer than a collective: see mics_comm_set_timeout.
    mics_status (*agree)(void *ctx, mics_status mine);
    void *agree_ctx;
    mics_work_listener listener; // hears how far this rank's file is written; fsync comes after
} mics_checkpoint_writer;

/* Saves one step. Every rank of the world calls it; ranks from `writers` on pass no shards.
 *
 * When it returns MICS_OK on any rank, files, folder, manifest and `latest` are on disk (fsync),
 * and losing any process cannot lose them. The data goes straight from the shards to the files.
 * The shards of all ranks together must tile every unit exactly, which is checked before the
 * manifest counts. A step that was saved before is replaced by the same one rename: until then the
 * old files stay and count. Older folders beyond `keep` are removed after that, oldest save first;
 * left-overs of failed saves are removed before the first byte is written, since they may be what
 * filled the disk. Nothing else in DIR is touched. When `agree` is given it is called one to three
 * times.
 *
 * Needs:   shards: (count), count >= 0.
 * Returns: MICS_OK; MICS_ERR_IO (path, cause and, when the disk is full, bytes); MICS_ERR_INVALID;
 *          MICS_ERR_UNSUPPORTED (a state that is not fp32); MICS_ERR_FORMAT (shards that do not
 *          tile: which unit and element); MICS_ERR_MEMORY; what agree returned. After a failure the
 *          checkpoints that were there before are still there.        Collective: yes.
 */
mics_status mics_checkpoint_save(mics_memory *memory, const mics_checkpoint_writer *writer,
                                 const mics_checkpoint_meta *meta,
                                 const mics_optimizer_shard *shards, int32_t count);

// ---- saving in parts ----
// For ranks that save while they train, and have no word for one another then. Before the first
// save rank 0 calls mics_checkpoint_clean while the others wait. To save, each rank opens, writes
// and closes. Rank 0 commits between writing and closing, when all ranks have written.

typedef struct mics_checkpoint_saving mics_checkpoint_saving;

/* Removes files of saves that were never committed.
 *
 * Needs:   no save under way in `dir`, which need not exist.
 * Returns: MICS_OK; MICS_ERR_IO, MICS_ERR_MEMORY. What cannot be removed is a warning.
 */
mics_status mics_checkpoint_clean(mics_memory *memory, const char *dir);

/* Begins to save a step on one rank, in a folder that is made if need be.
 *
 * writer, meta: as mics_checkpoint_save; `keep` and `agree` are not used. What they point to is
 *          borrowed until close.
 * Returns: MICS_OK; MICS_ERR_INVALID; MICS_ERR_IO; MICS_ERR_MEMORY.
 * Owns:    end with mics_checkpoint_save_close.    Threads: one at a time.    Collective: no.
 */
mics_status mics_checkpoint_save_open(mics_memory *memory, const mics_checkpoint_writer *writer,
                                      const mics_checkpoint_meta *meta,
                                      mics_checkpoint_saving **saving_out);

/* Writes this rank's shards. Its file has its name once it is on disk.
 *
 * Needs:   shards: (count), count >= 0; once.
 * Returns: as mics_checkpoint_save.      Threads: one at a time.      Collective: no.
 */
mics_status mics_checkpoint_save_write(mics_checkpoint_saving *saving,
                                       const mics_optimizer_shard *shards, int32_t count);

/* Whether the files of all ranks are on disk. Needs: this rank has written. */
bool mics_checkpoint_save_is_written(mics_checkpoint_saving *saving);

/* Makes the checkpoint count; older ones stay. Nothing to do but on rank 0.
 *
 * Needs:   all ranks have written.
 * Returns: as mics_checkpoint_save.      Threads: one at a time.      Collective: no.
 */
mics_status mics_checkpoint_save_commit(mics_checkpoint_saving *saving);

/* Whether rank 0 has committed it, as the disk tells. Needs: this rank has written. */
bool mics_checkpoint_save_is_committed(const mics_checkpoint_saving *saving);

/* Frees; NULL is allowed. After a failure on any rank it removes this rank's file, and rank 0 what
 * else it finds of the save, unless that was committed.
 */
void mics_checkpoint_save_close(mics_checkpoint_saving *saving, bool failed);

/* Removes the oldest complete checkpoint of a run's folder that is older than that of step `good` and
 * is not the best: for a save that finds no space.
 *
 * Needs:   several ranks may do so at once.
 * Returns: MICS_OK, *step_out untouched where there is none; MICS_ERR_MEMORY, MICS_ERR_IO, logged.
 */
mics_status mics_checkpoint_remove_oldest(mics_memory *memory, const char *dir, int64_t good,
                                          int64_t *step_out);

/* Removes all complete checkpoints but the `keep` saved last, that of `step`, those of later steps,
 * and the one that is named best; 0 keeps all.
 *
 * Needs:   rank 0 alone; no save under way but of later steps.
 * Returns: MICS_OK; MICS_ERR_IO, MICS_ERR_MEMORY. What cannot be removed is a warning.
 */
mics_status mics_checkpoint_prune(mics_memory *memory, const char *dir, int32_t keep, int64_t step);

/* Names the checkpoint of `step` as the best under `dir`, in its file `best`; -1: none is, any more.
 *
 * Needs:   rank 0 alone; step >= -1.
 * Returns: MICS_OK: the name is on disk; MICS_ERR_IO, MICS_ERR_MEMORY.
 */
mics_status mics_checkpoint_name_best(mics_memory *memory, const char *dir, int64_t step);

/* The step that is named best under `dir`; -1: none is.
 *
 * Returns: MICS_OK; MICS_ERR_IO, MICS_ERR_MEMORY (step_out is -1).        Threads: any.
 */
mics_status mics_checkpoint_best(mics_memory *memory, const char *dir, int64_t *step_out);

// ---- reading ----

typedef struct mics_checkpoint mics_checkpoint;

/* Finds the newest complete checkpoint under `dir` (a run's checkpoints/ folder): the one that
 * `latest` names; when that is missing or not complete, the one saved last among all, with a
 * warning. Complete: a valid manifest, and its files with their lengths.
 *
 * Owns:    the caller frees *path_out with mics_free.
 * Returns: MICS_OK with its folder, or *path_out = NULL when nothing was ever saved there;
 *          MICS_ERR_FORMAT when there are checkpoints and none is complete: a new run in their
 *          place would be a loss; MICS_ERR_IO; MICS_ERR_MEMORY.
 */
mics_status mics_checkpoint_latest(mics_memory *memory, const char *dir, char **path_out);

/* Finds the newest complete checkpoint under `dir` that is of none of the steps `but`.
 *
 * Shapes:  but: (but_count).
 * Needs:   but_count >= 0.
 * Owns:    the caller frees *path_out with mics_free; NULL: there is none.
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_MEMORY.
 */
mics_status mics_checkpoint_other(mics_memory *memory, const char *dir, const int64_t *but,
                                  int32_t but_count, char **path_out);

/* Lists the steps under `dir` that have a manifest, whatever it says: complete ones first, then
 * newest first.
 *
 * Shapes:  *steps_out: (*count_out).
 * Owns:    the caller frees *steps_out with mics_free.
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_MEMORY.
 */
mics_status mics_checkpoint_steps(mics_memory *memory, const char *dir, int64_t **steps_out,
                                  int32_t *count_out);

/* Marks a checkpoint folder as one that a resumed run passed over, by a file that says why; `why`
 * NULL removes the mark. It counts as a way back no more when older ones are removed, and is still
 * read and checked like others.
 *
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_MEMORY.
 */
mics_status mics_checkpoint_mark(mics_memory *memory, const char *path, const char *why);

/* Takes back the checkpoint of a step: its manifest is gone from the disk on return, so no start
 * counts it, and the next save or mics_checkpoint_clean removes the rest. One that is not there is
 * no error.
 *
 * Needs:   no save of that step under way.
 * Returns: MICS_OK; MICS_ERR_IO, MICS_ERR_MEMORY: it may still count.
 */
mics_status mics_checkpoint_withdraw(mics_memory *memory, const char *dir, int64_t step);

/* Opens a checkpoint folder and checks manifest, sizes and headers before anything is read.
 *
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT (file, offset, what; or another version,
 *          and the program that wrote it); MICS_ERR_MEMORY.
 * Owns:    close with mics_checkpoint_close.
 */
mics_status mics_checkpoint_open(mics_memory *memory, const char *path,
                                 mics_checkpoint **checkpoint_out);
void mics_checkpoint_close(mics_checkpoint *checkpoint);

/* What was saved with it; texts live as long as the checkpoint. `tokenizer` is "bytes" or a path
 * that exists.
 *
 * Returns: never NULL.
 */
const mics_checkpoint_meta *mics_checkpoint_meta_get(const mics_checkpoint *checkpoint);

/* The name under which a checkpoint of several islands has an island's own state of a unit: "h.0@1".
 *
 * Needs:   island >= 0.
 * Returns: MICS_OK; MICS_ERR_MEMORY.
 * Owns:    the caller frees *name_out with mics_free.
 */
mics_status mics_checkpoint_island_unit(mics_memory *memory, const char *unit, int32_t island,
                                        char **name_out);

/* The island whose own state has a unit of this name; -1: of all. Pure. */
int32_t mics_checkpoint_unit_island(const char *name);

/* Reads elements [begin, end) of a state of a unit, checking the checksum of every chunk that it
 * touches.
 *
 * Shapes:  data_out: (end - begin).
 * Units:   elements, fp32.
 * Needs:   begin <= end <= unit_elems; unit_elems as the caller's model has it.
 * Returns: MICS_OK; MICS_ERR_INVALID (no such unit, or of another length: both said; no such state:
 *          those that it has are said); MICS_ERR_FORMAT (a checksum differs: file and offset);
 *          MICS_ERR_IO; MICS_ERR_MEMORY.
 * Threads: any, one checkpoint in several threads at once.
 */
mics_status mics_checkpoint_read(const mics_checkpoint *checkpoint, const char *unit,
                                 int64_t unit_elems, const char *state, int64_t begin, int64_t end,
                                 float *data_out);

/* Checks that elements [begin, end) of a state, as they were read, are finite and no larger than
 * training makes them: 1e6 of parameters, 1e12 of moments.
 *
 * Shapes:  data: (end - begin).
 * Units:   elements.
 * Needs:   what mics_checkpoint_read of the same range needs, and gave.
 * Returns: MICS_OK; MICS_ERR_NUMERIC: one is not so (file, offset, unit, state, element).
 * Threads: any.
 */
mics_status mics_checkpoint_check_numbers(const mics_checkpoint *checkpoint, const char *unit,
                                          const char *state, int64_t begin, int64_t end,
                                          const float *data);

// Who is told what a verification finds.
typedef struct mics_verify_listener {
    void (*problem)(void *ctx, const char *line); // what is wrong, and where
    // (optional) Bytes of a file that were read, after each MiB.
    void (*progress)(void *ctx, const char *path, int64_t done, int64_t bytes);
    void *ctx;
} mics_verify_listener;

typedef struct mics_checkpoint_verified {
    int64_t step; // -1: the manifest does not say
    int32_t files;
    int64_t bytes;    // read
    int64_t problems; // told
} mics_checkpoint_verified;

// The largest parameter of each unit.
enum { MICS_MAX_LARGEST = 4096 };
typedef struct mics_checkpoint_largest {
    int32_t units; // as many as the manifest lists, in its order; 0: nothing is known
    float of[MICS_MAX_LARGEST];
} mics_checkpoint_largest;

/* Reads every byte of a checkpoint folder: manifest, tokenizer and config, headers, checksums of
 * the data, and that units are tiled and numbers finite and no larger than they can be. Each problem is told, and the next file is
 * looked at; only a damaged manifest ends it.
 *
 * Units:   bytes.
 * largest: (optional) in: of an older checkpoint of the same run; no parameter is 1000 times that,
 *          and above 1. Out: of this one, if it is good.
 * Needs:   listener->problem.
 * Owns:    found_out holds no memory; listener is borrowed for the call.
 * Returns: MICS_OK, whatever was found; MICS_ERR_MEMORY, logged. Drops what mics_log_hold keeps
 * back.
 */
mics_status mics_checkpoint_verify(mics_memory *memory, const char *path,
                                   const mics_verify_listener *listener,
                                   mics_checkpoint_largest *largest,
                                   mics_checkpoint_verified *found_out);

// ---- safetensors ----
// safetensors files, one or sharded with model.safetensors.index.json. Headers are checked whole
// before any tensor is read: sizes, overlaps, holes, ends.

enum { MICS_SAFETENSORS_DIMS = 8 };

typedef struct mics_tensor_info {
    const char *name;  // lives as long as the reader
    const char *dtype; // "F32", "BF16", "F16", ...
    int32_t dims;
    int64_t shape[MICS_SAFETENSORS_DIMS];
    int64_t elems;
} mics_tensor_info;

typedef struct mics_safetensors mics_safetensors;

/* Opens a .safetensors file, an index (its name ends in .json), or a folder that holds either
 * (index first). Of the files of an index, the tensors that it lists are seen.
 *
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT (file, offset, what); MICS_ERR_MEMORY.
 * Owns:    close with mics_safetensors_close.
 */
mics_status mics_safetensors_open(mics_memory *memory, const char *path,
                                  mics_safetensors **reader_out);
void mics_safetensors_close(mics_safetensors *reader);

/* Number of tensors that are seen. */
int32_t mics_safetensors_count(const mics_safetensors *reader);

/* A tensor by its number, in ascending order of names.
 *
 * Needs:   0 <= index < mics_safetensors_count().
 * Returns: never NULL; it lives as long as the reader.
 */
const mics_tensor_info *mics_safetensors_at(const mics_safetensors *reader, int32_t index);

/* The tensor called `name`, or NULL. */
const mics_tensor_info *mics_safetensors_find(const mics_safetensors *reader, const char *name);

/* Reads elements [begin, begin + count) of a tensor in row-major order, as fp32 (from F32, F16,
 * BF16 or F64).
 *
 * Shapes:  data_out: (count).
 * Units:   elements.
 * Needs:   begin >= 0, count >= 0; else MICS_ERR_INVALID.
 * Returns: MICS_OK; MICS_ERR_INVALID (no such tensor or range); MICS_ERR_UNSUPPORTED (dtype);
 * MICS_ERR_IO. Threads: any, one reader in several threads at once.
 */
mics_status mics_safetensors_read(const mics_safetensors *reader, const char *name, int64_t begin,
                                  int64_t count, float *data_out);

// A tensor to be written; its elements come later, in order.
typedef struct mics_safetensors_entry {
    const char *name;
    int32_t dims;
    int64_t shape[MICS_SAFETENSORS_DIMS];
    mics_dtype dtype; // in the file; 0: fp32
} mics_safetensors_entry;

typedef struct mics_safetensors_writer mics_safetensors_writer;

/* Begins DIR/model.safetensors, or several model-0000i-of-0000n.safetensors with an index
 * when the data exceeds max_shard_bytes (0: never). Files are written aside and renamed by finish.
 * An existing model in DIR is refused; DIR is made when missing. Headers carry the metadata that
 * other readers ask for ({"format": "pt"}).
 *
 * Shapes:  entries: (count).
 * Needs:   count >= 1, max_shard_bytes >= 0.
 * Returns: MICS_OK; MICS_ERR_INVALID; MICS_ERR_IO; MICS_ERR_MEMORY.
 * Owns:    end with mics_safetensors_finish, in success and failure.
 */
mics_status mics_safetensors_create(mics_memory *memory, const char *dir,
                                    const mics_safetensors_entry *entries, int32_t count,
                                    int64_t max_shard_bytes, mics_safetensors_writer **writer_out);

/* The same in one file, DIR/adapter_model.safetensors, as PEFT has adapters.
 *
 * Shapes:  entries: (count).
 * Needs:   count >= 1.
 * Returns: as mics_safetensors_create.
 * Owns:    end with mics_safetensors_finish, in success and failure.
 */
mics_status mics_safetensors_create_adapter(mics_memory *memory, const char *dir,
                                            const mics_safetensors_entry *entries, int32_t count,
                                            mics_safetensors_writer **writer_out);

/* Appends elements of the current tensor, and goes on to the next when it is full. Tensors without
 * elements are passed over. Small appends are gathered into large writes. Elements of bf16 and fp16
 * are rounded to the nearest, ties to even.
 *
 * Shapes:  data: (count).
 * Units:   elements, fp32.
 * Needs:   count >= 0.
 * Returns: MICS_OK; MICS_ERR_INVALID (more than the current tensor lacks, or a finite element that
 *          is too large for the tensor's dtype); MICS_ERR_IO.
 */
mics_status mics_safetensors_append(mics_safetensors_writer *writer, const float *data,
                                    int64_t count);

/* Completes and renames the files when `status` is MICS_OK and everything was appended, else
 * removes them; frees.
 *
 * Returns: `status` if it is an error; MICS_ERR_INVALID (elements missing); MICS_ERR_IO; MICS_OK.
 */
mics_status mics_safetensors_finish(mics_safetensors_writer *writer, mics_status status);

#ifdef __cplusplus
}
#endif
#endif
