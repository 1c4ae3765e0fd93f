// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Token shards on disk. Ours are written in llm.c's format: 256 int32 of header (magic, version, count), then the
// tokens, little-endian. Magic 20240520 with version 1 has uint16 tokens, magic 20240801 with
// version 7 uint32 ones. Beyond 2^31 - 1 tokens the upper half of the count stands in word 3, which
// llm.c leaves 0; its reader then refuses the file, as it must.
// Ours say in words 4 to 6 that a checksum follows ("XXH3"), and that of the tokens, each as a
// uint32; the words are 0 in llm.c's, whose reader does not look at them.
// Source: github.com/karpathy/llm.c, dev/data/data_common.py and llmc/dataloader.h, 2024.
// Two more are read (shard_format.c): Megatron's, whose .bin is tokens alone and has an .idx beside
// it, and files of tokens alone, as nanoGPT's.
#pragma once

#include "base/file.h"
#include "io/data/data.h"
#include "mics/status.h"
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

enum {
    MICS_SHARD_HEADER_WORDS = 256,
    MICS_SHARD_HEADER_BYTES = 4 * MICS_SHARD_HEADER_WORDS,
    MICS_SHARD_VOCAB_U16 = 65536, // the largest vocabulary whose tokens are written as uint16
    MICS_SHARD_BUFFER_BYTES = 1 << 16
};

// What was found out when texts were tokenized, kept in the header from its byte 32 on, where llm.c's
// is 0: so that each run on them can say it.
enum { MICS_SHARD_SPLIT = 8 };
typedef struct mics_shard_notes {
    uint64_t skipped; // bad lines that were passed over
    struct {
        int64_t token;
        uint64_t count; // how often a text names it, and it became plain text; 0: no entry
    } split[MICS_SHARD_SPLIT];
    uint64_t named; // messages of chats whose own text names a special token, which is one then
    uint64_t lossy; // chats of which their text does not say all (mics_chat_is_lossy)
    // Of pairs, those whose prompt ends in other tokens by itself; whose answers are the same.
    uint64_t parted, same;
    uint64_t empty;      // answers without text
    uint64_t references; // pairs with log-probabilities of a reference
} mics_shard_notes;

/* Adds notes to others: of the same tokens, or as long as there is space. */
void mics_shard_notes_add(mics_shard_notes *notes, const mics_shard_notes *more);

// A shard being written, under a name of its own until it is complete.
typedef struct mics_shard_writer {
    char path[PATH_MAX];
    char partial[PATH_MAX];
    mics_file_aside listed; // partial; none when it is kept
    bool kept;              // what was written outlives the process, and another goes on with it
    int file;
    int32_t vocab;
    int32_t token_bytes; // 2 or 4
    int64_t count;
    mics_shard_notes notes; // filled in by whoever writes it
    XXH3_state_t *hash;     // of the tokens
    size_t used;            // of buffer
    unsigned char buffer[MICS_SHARD_BUFFER_BYTES];
} mics_shard_writer;

// The machine's name, in letters that mean nothing in paths and patterns.
typedef struct mics_shard_host {
    char name[65];
} mics_shard_host;

mics_shard_host mics_shard_host_get(void);

/* Begins PATH.<machine>-<16 hexadecimal digits>.partial. End it with mics_shard_finish;
 * the writer must stay where it is until then. */
mics_status mics_shard_create(const char *path, int32_t vocab, mics_shard_writer *writer_out);

// How far a shard has come that was begun, in terms of whoever writes it.
typedef struct mics_shard_mark {
    uint64_t batches; // of its text that are written
    uint64_t texts;   // in these
} mics_shard_mark;

/* The same under PATH.<machine>.begun, which stays when the process dies, and is gone on with up to
 * where it was last marked; else from nothing. *mark_out says where.
 *
 * Needs:   no other process of this machine writes the shard (a lock).
 * Returns: as mics_shard_create.
 */
mics_status mics_shard_go_on(const char *path, int32_t vocab, mics_shard_writer *writer_out,
                             mics_shard_mark *mark_out);

/* Marks what was appended, in PATH.<machine>.begun.at. That is a convenience: what fails is not
 * said, and the shard is begun anew then. Needs a shard of mics_shard_go_on. */
void mics_shard_set_mark(mics_shard_writer *writer, mics_shard_mark mark);

/* Returns MICS_OK; MICS_ERR_INVALID (a token outside [0, vocab)); MICS_ERR_IO. */
mics_status mics_shard_append(mics_shard_writer *writer, const int32_t *tokens, int64_t count);

/* Renames the shard into place when `status` is MICS_OK and it holds tokens; else removes it.
 * Returns: `status` if it is an error; MICS_ERR_INVALID (no tokens); MICS_ERR_IO; MICS_OK. */
mics_status mics_shard_finish(mics_shard_writer *writer, mics_status status);

// How tokens lie in a file, little-endian.
typedef enum mics_token_type {
    MICS_TOKEN_U8,
    MICS_TOKEN_I8,
    MICS_TOKEN_I16,
    MICS_TOKEN_U16,
    MICS_TOKEN_I32,
    MICS_TOKEN_U32,
    MICS_TOKEN_I64,
    MICS_TOKEN_TYPES
} mics_token_type;

// What a file is known by while it is read: who it is, how long, and when it was last written, and
// what is said of it (owner, mode, times) was.
typedef struct mics_shard_stamp {
    uint64_t device, inode;
    int64_t bytes, written_ns, changed_ns;
} mics_shard_stamp;

// A shard that is read. What is cut off, or put behind it, after it was opened is an error of the next
// read. Where only its times change, whoever reads has to find out whether its tokens did
// (io/data/recheck.h). A shard that is replaced by rename, as ours are, stays what it was for those
// who have it open.
typedef struct mics_shard {
    char *path;
    int file; // -1: opened for each read, as a process may have some hundreds open at most
    mics_shard_stamp stamp;
    mics_token_type type;
    int32_t token_bytes;
    int64_t begin; // offset of the first token
    int64_t count;
    bool has_hash; // of all tokens, each as a uint32
    uint64_t hash;
} mics_shard;

/* dtype: of a file without a header; NULL: there must be one.
 * Returns MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT (file, offset, what); MICS_ERR_INVALID (no such
 * dtype); MICS_ERR_UNSUPPORTED (tokens of a type that is none); MICS_ERR_MEMORY. Tokens are not
 * looked at. */
mics_status mics_shard_open(mics_memory *memory, const char *path, const char *dtype,
                            mics_shard *shard_out);

/* Offset of a token in the file. */
static inline int64_t mics_shard_offset(const mics_shard *shard, int64_t token)
{
    return shard->begin + token * shard->token_bytes;
}

/* The notes of one of ours; zeroed where it has none. Needs an open file. */
mics_status mics_shard_read_notes(const mics_shard *shard, mics_shard_notes *notes_out);

/* From now on the file is opened for each read, and must still be the same then. */
void mics_shard_let_go(mics_shard *shard);
void mics_shard_close(mics_memory *memory, mics_shard *shard);

/* Reads tokens [begin, begin + count); one that is no int32_t becomes negative. Threads: any.
 * stamp_out: behind the read; other times than the shard's may mean other tokens.
 * Returns: MICS_OK; MICS_ERR_IO: cannot be read, or is another file, or of another length. */
mics_status mics_shard_read(const mics_shard *shard, int64_t begin, int64_t count,
                            int32_t *tokens_out, mics_shard_stamp *stamp_out);

bool mics_shard_same_stamp(const mics_shard_stamp *a, const mics_shard_stamp *b);

/* Reads and hashes all tokens, each as an int32_t, as they are now.
 * ends (optional): set by another thread, it ends that early.   stamp_out: under which they were read.
 * Returns: MICS_OK; as mics_shard_read; MICS_ERR_INTERRUPTED: `ends`; MICS_ERR_MEMORY. */
mics_status mics_shard_hash(const mics_shard *shard, const atomic_bool *ends, uint64_t *hash_out,
                            mics_shard_stamp *stamp_out);

// ---- shard_format.c ----

/* Finds out of which kind an open file is, checks its size, and fills in where its tokens lie.
 * Needs: path, stamp and file are filled in. Returns: as mics_shard_open. */
mics_status mics_shard_read_format(const char *dtype, mics_shard *shard);

/* Widens tokens to int32_t. Those of less bytes may lie at the end of `to`. */
void mics_shard_widen(mics_token_type type, const char *from, int64_t count, int32_t *to);

// llm.c's two kinds: [0] of two bytes a token, [1] of four.
typedef struct mics_shard_kind {
    int32_t magic, version;
    mics_token_type type;
    int32_t token_bytes;
} mics_shard_kind;

enum { MICS_SHARD_HEAD_WORDS = 7 };                  // of the header that mean something
#define MICS_SHARD_HASH_FOLLOWS UINT32_C(0x33485858) // "XXH3"
extern const mics_shard_kind mics_shard_kinds[2];
