// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// safetensors files, one or sharded with model.safetensors.index.json. Headers are checked whole
// before any tensor is read: sizes, overlaps, holes, ends.
#ifndef MICS_SAFETENSORS_H
#define MICS_SAFETENSORS_H

#include "mics/memory.h"
#include "mics/status.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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
} mics_safetensors_entry;

typedef struct mics_safetensors_writer mics_safetensors_writer;

/* Begins DIR/model.safetensors (F32), or several model-0000i-of-0000n.safetensors with an index
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

/* Appends elements of the current tensor, and goes on to the next when it is full. Tensors without
 * elements are passed over. Small appends are gathered into large writes.
 *
 * Shapes:  data: (count).
 * Units:   elements, fp32.
 * Needs:   count >= 0.
 * Returns: MICS_OK; MICS_ERR_INVALID (more than the current tensor lacks); MICS_ERR_IO.
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
