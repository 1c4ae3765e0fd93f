// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// From text to tokens to batches: tokenizers, token shards, and an order of samples that is a pure
// function.
#pragma once

#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- tokenizers ----

typedef struct mics_tokenizer mics_tokenizer;

/* Opens "bytes" (token = byte, 256 of them) or a Hugging Face tokenizer.json with a BPE or
 * WordPiece model, BERT's vocab.txt, or a folder with one of these files.
 *
 * Supported: byte-level BPE (GPT-2, Llama 3, Qwen, NeoX) with a token for every byte, and BPE by
 * characters with byte_fallback or unk_token (Llama 2, Mistral); docs/formats.md lists normalizers,
 * pre-tokenizers and decoders. WordPiece as BERT has it. Not supported, and refused: other models,
 * dropout, of BPE prefixes and suffixes of subwords, patterns that look behind. The post-processor
 * is mics_tokenizer_frame's.
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT (file, what and where); MICS_ERR_UNSUPPORTED (what
 *          the file asks for and is not known, by name); MICS_ERR_MEMORY.
 * Owns:    close with mics_tokenizer_close.
 */
mics_status mics_tokenizer_open(mics_memory *memory, const char *name_or_path,
                                mics_tokenizer **tokenizer_out);
void mics_tokenizer_close(mics_tokenizer *tokenizer);

/* The tokenizer.json as it was read at opening, whatever became of the file since; NULL, and 0
 * bytes, for "bytes" and for NULL. Lives as long as the tokenizer; a NUL stands behind it. */
const char *mics_tokenizer_text(const mics_tokenizer *tokenizer, size_t *bytes_out);

/* The next special token that a text names from *at on and before `limit`, with *at behind it then;
 * -1: none. One that another added token takes bytes of is none.
 *
 * Shapes:  text: (bytes).
 * Needs:   *at <= limit <= bytes.
 * Returns: a token, or -1.
 */
int32_t mics_tokenizer_next_special(const mics_tokenizer *tokenizer, const char *text, size_t bytes,
                                    size_t limit, size_t *at);

/* Number of token ids: every id is below it. */
int32_t mics_tokenizer_vocab(const mics_tokenizer *tokenizer);

/* The token that separates documents, or -1: the byte tokenizer uses 0 (a NUL byte), others the
 * first of <|endoftext|>, <|end_of_text|>, </s>, <eos> and [SEP] among their added tokens. */
int32_t mics_tokenizer_separator(const mics_tokenizer *tokenizer);

/* The token that stands for a hidden one, [MASK] or <mask> among the added tokens; -1: none. */
int32_t mics_tokenizer_mask(const mics_tokenizer *tokenizer);

/* Which tokens are added ones that the file marks special.
 *
 * Shapes:  special_out: (mics_tokenizer_vocab).
 */
void mics_tokenizer_specials(const mics_tokenizer *tokenizer, bool *special_out);

/* Text to tokens. Text may hold any bytes; each longest run of bytes that are no UTF-8 is a piece
 * of its own. Added tokens that the file marks special ("<|endoftext|>") are not recognised in the
 * text unless `specials` is not 0 (text from strangers must not become control tokens); other added
 * tokens always are.
 *
 * Shapes:  tokens_out: (count_out).
 * Needs:   `text` has `bytes` bytes.
 * Returns: MICS_OK; MICS_ERR_MEMORY; MICS_ERR_FORMAT (a pattern of the tokenizer that fails on this
 *          text); MICS_ERR_INVALID (a piece over 512 MiB).
 * Owns:    the caller frees *tokens_out with mics_free.     Threads: any, on one tokenizer at once.
 */
mics_status mics_tokenizer_encode(const mics_tokenizer *tokenizer, const char *text, size_t bytes,
                                  int specials, int32_t **tokens_out, int64_t *count_out);

/* Checks that a text is one that people mean for this tokenizer: UTF-8, or for "bytes" any. `name`
 * says whose it is.
 *
 * Needs:   `text` has `bytes` bytes.
 * Returns: MICS_OK; MICS_ERR_FORMAT (the first byte that is none).     Threads: any.
 */
mics_status mics_tokenizer_check(const mics_tokenizer *tokenizer, const char *name,
                                 const char *text, size_t bytes);

// What stands around the tokens of a text: "<s>" before it.
typedef struct mics_token_frame {
    const int32_t *before, *after; // the tokenizer's
    int64_t before_count, after_count;
} mics_token_frame;

/* What the tokenizer.json's TemplateProcessing puts around a text; nothing where it has none.
 *
 * Returns: MICS_OK; MICS_ERR_UNSUPPORTED (a post-processor of another kind, named).
 * Threads: any.
 */
mics_status mics_tokenizer_frame(const mics_tokenizer *tokenizer, mics_token_frame *frame_out);

/* From now on texts of a corpus stand in this frame, and no separator before them.
 *
 * asked_by: names the key or option that asks for it, for errors.
 * Returns: MICS_OK; MICS_ERR_INVALID (it puts nothing around a text); MICS_ERR_UNSUPPORTED, as
 *          mics_tokenizer_frame.
 * Threads: one, while nobody else uses the tokenizer.
 */
mics_status mics_tokenizer_frame_texts(mics_tokenizer *tokenizer, const char *asked_by);

/* Tokens to text (any bytes, NUL-terminated besides).
 *
 * Some tokenizers put a space before a text that they encode; it is taken away again.
 * Shapes:  tokens: (count); text_out: (bytes_out) and a NUL.
 * Needs:   count >= 0.
 * Returns: MICS_OK; MICS_ERR_INVALID (a token out of range); MICS_ERR_MEMORY.
 * Owns:    the caller frees *text_out with mics_free.
 */
mics_status mics_tokenizer_decode(const mics_tokenizer *tokenizer, const int32_t *tokens,
                                  int64_t count, char **text_out, size_t *bytes_out);

/* The same for tokens that go on with a text, so that a space before them is theirs: for text that
 * is printed while it is made.
 *
 * Shapes:  tokens: (count); text_out: (bytes_out) and a NUL.
 * Needs:   count >= 0.
 * Returns: as mics_tokenizer_decode.
 * Owns:    the caller frees *text_out with mics_free.
 */
mics_status mics_tokenizer_decode_more(const mics_tokenizer *tokenizer, const int32_t *tokens,
                                       int64_t count, char **text_out, size_t *bytes_out);

/* The token that documents of a corpus begin with: the first of the frame that its texts stand in,
 * or the separator; -1: there is none.
 *
 * Needs:   a tokenizer that is as it is when the corpus is opened (mics_tokenizer_frame_texts).
 */
int32_t mics_tokenizer_document(const mics_tokenizer *tokenizer);

// ---- token shards and corpora ----

/* Writes an llm.c token shard: magic 20240520, version 1 (uint16) when vocab <= 65536, else
 * 20240801, version 7 (uint32). Written aside, fsynced, renamed. Beyond 2^31 - 1 tokens the upper
 * half of the count stands in the header's word 3, and words 4 to 6 hold a checksum of the tokens;
 * llm.c does not know either.
 *
 * Shapes:  tokens: (count).
 * Needs:   count >= 1, 0 <= tokens < vocab.
 * Returns: MICS_OK; MICS_ERR_INVALID (a token outside [0, vocab), no tokens); MICS_ERR_IO.
 */
mics_status mics_shard_write(const char *path, const int32_t *tokens, int64_t count, int32_t vocab);

// One stream of tokens, from one or many shards.
typedef struct mics_corpus mics_corpus;

// How rows of chats become samples of tokens (io/data/chats.h).
typedef struct mics_chats mics_chats;

// A token of a sample as mics_corpus_read gives it: four times the token, and two flags.
enum { MICS_SAMPLE_COUNTS = 1, MICS_SAMPLE_BEGINS = 2, MICS_SAMPLE_SHIFT = 2 };

/* Writes the tokens of a corpus as such a shard, in their order, some at a time.
 *
 * Needs:   the corpus' vocabulary no larger than `vocab`.
 * Returns: as mics_shard_write, mics_corpus_read.
 */
mics_status mics_shard_write_corpus(mics_memory *memory, const char *path,
                                    const mics_corpus *corpus, int32_t vocab);

typedef struct mics_corpus_spec {
    const char *const *patterns; // paths, globs or folders
    int32_t pattern_count;
    int32_t vocab; // that tokens must be below
    // For texts; NULL where all files are shards.
    const mics_tokenizer *tokenizer;
    const char *cache_dir;   // of their shards
    const mics_chats *chats; // texts are rows of samples; NULL: they are one stream
    int64_t sequence;        // tokens that a sample has at most
    const char *text_field;  // of JSON Lines and tables; NULL: "text"
    bool special_tokens;     // that the texts name are taken as such
    bool lines;              // each line of plain text is a text, with its end; all must be UTF-8
    int64_t skip_bad_lines;  // at most so many are passed over
    const char *dtype;       // of .bin files without a header: "uint16", ...; NULL: there are none
    int32_t threads;         // that tokenize; 0: one for each core that the process may use
    int32_t counted;         // token that mics_corpus_counted is about
} mics_corpus_spec;

/* Opens files as one stream, in the order given; those of a glob or a folder by the bytes of their
 * paths. Of a folder, with those in it, what is named as texts and shards are (docs/formats.md).
 *
 * A file whose name ends in .bin must be a token shard: llm.c's; Megatron's, with its .idx beside
 * it (the path may leave both endings away); or with `dtype` one without a header, as nanoGPT's.
 * Anything else is tokenized into a shard under `cache_dir` (named by a hash of contents and
 * tokenizer; reused when present): for each text the tokenizer's separator, then the text, without
 * regard to special tokens in it unless `special_tokens`; or the text in its frame
 * (mics_tokenizer_frame_texts). JSON Lines, a JSON array of objects and tables (.csv, .tsv, Parquet) hold
 * several texts (mics_reader_find_content). Where .gz or .zst ends the name, it is unpacked on the
 * way. An empty text is left out with a warning. Special tokens that became plain text, and bad
 * lines that were passed over, are counted and named in a warning.
 * Several threads tokenize; the tokens do not depend on how many. Progress is logged every few
 * seconds. Several processes may open the same corpus at once. When the process is ended meanwhile,
 * the next one goes on from what was done.
 * Every token is read once, to check and hash it, and checked again by each mics_corpus_read. A
 * file that others change meanwhile is an error of that call.
 * Needs:   `spec` is borrowed for the call.
 * Returns: MICS_OK; MICS_ERR_IO (a pattern that matches nothing, an unreadable file);
 *          MICS_ERR_FORMAT (bad magic, version, length: file and offset); MICS_ERR_INVALID (a token
 *          >= vocab: which, where; no tokens at all; a folder without data); MICS_ERR_UNSUPPORTED
 *          (a type of tokens); MICS_ERR_MEMORY.
 * Owns:    close with mics_corpus_close.
 */
mics_status mics_corpus_open(mics_memory *memory, const mics_corpus_spec *spec,
                             mics_corpus **corpus_out);
void mics_corpus_close(mics_corpus *corpus);

/* Removes a cache folder: the shards in it, begun ones too, and the folder if it is empty then. One
 * that is not there is fine. Needs: nobody uses it. */
void mics_corpus_remove_cache(const char *cache_dir);

/* Number of tokens in the stream. */
int64_t mics_corpus_tokens(const mics_corpus *corpus);

/* A hash of all tokens: two corpora with equal hashes hold the same stream. Kept in checkpoints, so
 * that a resume on other data is noticed. */
uint64_t mics_corpus_hash(const mics_corpus *corpus);

// Files with the same tokens: how many, and the first two.
typedef struct mics_corpus_same {
    int64_t files;
    const char *first, *second; // of the corpus, and of the other one
} mics_corpus_same;

/* Files of `other` whose tokens are those of a file of `corpus`; NULL: those that `corpus` has once
 * more. Copies count, whatever their names.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY.
 * Owns:    nothing; the names are the corpora's.
 */
mics_status mics_corpus_find_same(const mics_corpus *corpus, const mics_corpus *other,
                                  mics_corpus_same *same_out);

/* How often the spec's token `counted` stands in what one of its patterns named.
 *
 * Needs:   0 <= pattern < the spec's pattern_count.
 */
int64_t mics_corpus_counted(const mics_corpus *corpus, int32_t pattern);

/* How many of its files were texts. */
int64_t mics_corpus_texts(const mics_corpus *corpus);

/* Samples of a corpus of chats; 0 of others. */
int64_t mics_corpus_samples(const mics_corpus *corpus);

/* Where each sample begins in the stream, and behind them the stream's end.
 *
 * Shapes:  (mics_corpus_samples + 1), as long as the corpus is open.
 * Returns: NULL where there are no samples. */
const int64_t *mics_corpus_begins(const mics_corpus *corpus);

/* The samples of one of the spec's patterns: `count` from `first` on. As cut to the spec's `sequence`
 * they have `tokens` tokens, of which `counted` count; of `silent` samples none does. Needs: 0 <= pattern < the spec's pattern_count. */
typedef struct mics_corpus_share {
    int64_t first, count, tokens, counted, silent;
} mics_corpus_share;
mics_corpus_share mics_corpus_share_get(const mics_corpus *corpus, int32_t pattern);

/* What one of the spec's patterns named: `tokens` tokens of the stream from `begin` on, without
 * gaps; 0 tokens where all its texts were empty.
 *
 * Needs:   0 <= pattern < the spec's pattern_count.
 */
void mics_corpus_source(const mics_corpus *corpus, int32_t pattern, int64_t *begin_out,
                        int64_t *tokens_out);

/* Reads tokens [begin, begin + count), and sees that each is in [0, vocab), as it was at opening.
 *
 * Shapes:  tokens_out: (count).
 * Needs:   the range inside the corpus.
 * Returns: MICS_OK; MICS_ERR_IO: a file cannot be read, or was changed or cut since the corpus was
 *          opened (which file, where; tokens_out is of no use then).   Threads: any.
 */
mics_status mics_corpus_read(const mics_corpus *corpus, int64_t begin, int64_t count,
                             int32_t *tokens_out);

// ---- order of samples ----

/* Windows of `sequence` + 1 tokens (inputs and their successors) that do not share an input:
 * (tokens - 1) / sequence, rounded down.
 *
 * Needs:   tokens >= 1, sequence >= 1.
 */
int64_t mics_sample_count(int64_t tokens, int64_t sequence);

/* First token of training sample number `sample` (counted from 0 over the whole run: step * global
 * batch + index in the batch). Each epoch visits every window once, in an order of its own.
 *
 * A pure function: no mesh, no state. Needs windows >= 1.
 */
int64_t mics_sample_begin(uint64_t seed, int64_t windows, int64_t sequence, int64_t sample);

/* Which of `count` samples sample number `sample` is, counted from 0 over all epochs: each epoch
 * visits every one once, in an order of its own and of a mixture's part (else 0).
 *
 * A pure function. Needs count >= 1. */
int64_t mics_sample_index(uint64_t seed, int32_t part, int64_t count, int64_t sample);

// ---- mixtures ----

// One of several ranges of windows that are drawn from by their weights.
typedef struct mics_mixture_part {
    int64_t begin;   // first token
    int64_t windows; // of it; >= 1
    double weight;   // above 0, finite; relative to the others'
} mics_mixture_part;

typedef struct mics_mixture_sample {
    int32_t part;
    int64_t index; // counted from 0 among the part's samples
} mics_mixture_sample;

/* Which part training sample number `sample` is of. Of any number of samples from the first on, each
 * part has its share, but for `count` samples at most. The seed says in which order.
 *
 * A pure function. Shapes: parts: (count). Needs: count >= 1, 0 <= sample < 2^48. */
mics_mixture_sample mics_mixture_find(uint64_t seed, const mics_mixture_part *parts, int32_t count,
                                      int64_t sample);

/* First token of training sample number `sample` of a mixture. Each epoch of a part visits its
 * windows once, in an order of its own, whatever the other parts do.
 *
 * A pure function. Needs: as mics_mixture_find; sequence >= 1. */
int64_t mics_mixture_begin(uint64_t seed, const mics_mixture_part *parts, int32_t count,
                           int64_t sequence, int64_t sample);
