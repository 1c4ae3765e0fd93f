// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One .safetensors file: its header, checked whole, and the names that Hugging Face gives files.
#pragma once

#include "base/json.h"
#include "base/text.h"
#include "mics/core/checkpoint.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

#define MICS_SAFETENSORS_SINGLE "model.safetensors"
#define MICS_SAFETENSORS_ADAPTER "adapter_model.safetensors" // PEFT's
#define MICS_SAFETENSORS_INDEX "model.safetensors.index.json"

enum {
    MICS_SAFETENSORS_PREFIX = 8,             // bytes of the header's length
    MICS_SAFETENSORS_MAX_HEADER = 100000000, // bytes, as the reference implementation has it
};

// A dtype of the format.
typedef struct mics_safetensors_dtype {
    const char *name;
    int32_t bits;
    bool readable; // as fp32; by a plain copy where `convert` is NULL
    // Converts elements at any alignment to fp32.
    void (*convert)(const unsigned char *raw, int64_t count, float *data_out);
    // (optional) From fp32, to nearest, ties to even. False: a finite element became infinite.
    bool (*round)(const float *data, int64_t count, uint16_t *raw_out);
} mics_safetensors_dtype;

/* How files hold numbers of a dtype. Returns: never NULL. */
const mics_safetensors_dtype *mics_safetensors_dtype_of(mics_dtype dtype);

typedef struct mics_safetensors_slot {
    mics_tensor_info info;
    const mics_safetensors_dtype *dtype;
    int32_t file;
    int32_t place;  // in the header
    int64_t offset; // from the file's start, in bytes
    int64_t bytes;
} mics_safetensors_slot;

typedef struct mics_safetensors_file {
    char *path;
    int fd;
    int64_t bytes;
    mics_json *header;               // names live in it
    const mics_json_value *metadata; // strings by name; NULL: none
    mics_safetensors_slot *slots;    // as opened: by offset, and they tile the data exactly
    int32_t count;
} mics_safetensors_file;

// Judges a header's text before it is parsed.
typedef mics_status mics_safetensors_check(const char *path, const char *text, size_t bytes);

/* Opens a file and checks its header, first by `check` (optional). `number` becomes the slots'
 * `file`.
 *
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT (file, offset, what); MICS_ERR_MEMORY; as `check`.
 * Owns:    free with mics_safetensors_file_fini.
 */
mics_status mics_safetensors_file_open(mics_memory *memory, const char *path, int32_t number,
                                       mics_safetensors_check *check,
                                       mics_safetensors_file *file_out);

/* Closes a file; one that is all zeros is allowed. */
void mics_safetensors_file_fini(mics_memory *memory, mics_safetensors_file *file);

// ---- headers that are written ----

/* Appends a tensor behind a comma, and moves `offset` past its data. */
void mics_safetensors_write_tensor(mics_text *text, const mics_safetensors_entry *entry,
                                   int64_t *offset);

/* Ends a header: closes the object, pads it with spaces so that data begins at a multiple of
 * `align`, and fills in the length, for which the text begins with MICS_SAFETENSORS_PREFIX bytes.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY; MICS_ERR_INVALID (longer than readers take).
 */
mics_status mics_safetensors_end_header(mics_text *text, const char *path, size_t align);
