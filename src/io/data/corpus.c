// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A corpus: shards, one behind the other.
//
// Every token is in [0, vocab): input, checked when the corpus is opened and at each read.
//
// Invariant of an open corpus, checked by is_gapless: part p holds tokens [begin[p], begin[p] +
// count) of the stream, begin[0] = 0, without gaps.
#include "base/assert.h"
#include "base/free.h"
#include "base/text.h"
#include "io/data/data.h"
#include "io/data/files.h"
#include "io/data/recheck.h"
#include "io/data/shard.h"
#include "io/data/tokenize.h"
#include "io/data/tokenizer/tokenizer.h"
#include "mics/log.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

// Of how many shards a corpus keeps the files open; the files of others are opened to be read.
enum { MAX_OPEN = 128 };

typedef struct part {
    mics_shard shard;
    char *name; // what the user calls it: a text, or the shard itself
    int64_t begin;
    int64_t counted; // the spec's token
    uint64_t hash;   // of its tokens
    int32_t source;
} part;

struct mics_corpus {
    mics_memory *memory;
    part *parts;
    int64_t count, capacity;
    int64_t tokens;
    int64_t texts; // files that were tokenized
    int32_t vocab;
    uint64_t hash;
    mics_recheck *checks; // of shards that somebody touches
    // Of chats.
    int64_t *begins; // (samples + 1)
    int64_t samples, begins_capacity;
    mics_corpus_share *shares; // (patterns)
    bool speaks;               // a token of the newest sample counts
};

// What opening needs besides the corpus.
typedef struct opening {
    mics_corpus *corpus;
    const mics_corpus_spec *spec;
    XXH3_state_t *hash;
    mics_tokenize_progress progress;
    mics_shard_notes notes;
    int32_t empty; // texts that were left out
    char *first_empty;
} opening;

// ---- the vocabulary ----

// Above all tokens as they lie in the shards.
static int32_t vocab_of(const mics_corpus_spec *spec)
{
    return spec->chats != NULL ? spec->vocab << MICS_SAMPLE_SHIFT : spec->vocab;
}

// Index of the first token that is not in [0, vocab); -1: none.
static int64_t find_foreign(const int32_t *tokens, int64_t count, int32_t vocab)
{
    bool foreign = false;
    for (int64_t i = 0; i < count; i++)
        foreign |= (uint32_t)tokens[i] >= (uint32_t)vocab;
    for (int64_t i = 0; foreign; i++) {
        if ((uint32_t)tokens[i] >= (uint32_t)vocab)
            return i;
    }
    return -1;
}

// Says that token `at` of a part, which is `token`, is none of the model's, and then `why`.
static mics_status is_foreign(const part *of, mics_status status, int64_t at, int32_t token,
                              int32_t vocab, const char *why)
{
    return mics_fail(status,
                     "%s: token %u at index %lld (offset %lld of the shard) is not below the "
                     "model's vocabulary of %d; %s",
                     of->name, (unsigned)token, (long long)at,
                     (long long)mics_shard_offset(&of->shard, at), (int)vocab, why);
}

// ---- one file ----

static mics_status check_hash(const part *of, uint64_t hash)
{
    if (!of->shard.has_hash || of->shard.hash == hash)
        return MICS_OK;
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: its tokens differ from the checksum at offset 16: the file is damaged or "
                     "was edited; restore it (one of a run's cache: remove it, and it is made "
                     "again)",
                     of->shard.path);
}

// Space for a sample and the end.
static mics_status reserve_sample(mics_corpus *corpus)
{
    if (corpus->samples + 1 < corpus->begins_capacity)
        return MICS_OK;
    const int64_t capacity = corpus->begins_capacity == 0 ? 1024 : 2 * corpus->begins_capacity;
    void *block = corpus->begins;
    MICS_TRY(mics_realloc(corpus->memory, MICS_MEM_HOST, (size_t)capacity * sizeof *corpus->begins,
                          &block));
    corpus->begins = block;
    corpus->begins_capacity = capacity;
    return MICS_OK;
}

static int64_t count_token(const int32_t *tokens, int64_t count, int32_t token)
{
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++)
        found += tokens[i] == token;
    return found;
}

// Notes where samples begin, and what counts of as much of them as a sequence has.
static mics_status note_samples(const opening *o, const part *of, int64_t at, const int32_t *tokens,
                                int64_t count)
{
    const int64_t sequence = o->spec->sequence;
    mics_corpus *corpus = o->corpus;
    mics_corpus_share *share = &corpus->shares[of->source];
    for (int64_t i = 0; i < count; i++) {
        if ((tokens[i] & MICS_SAMPLE_BEGINS) != 0 || corpus->samples == 0) {
            MICS_TRY(reserve_sample(corpus));
            corpus->begins[corpus->samples++] = of->begin + at + i;
            share->count++;
            share->silent++; // until a token counts
            corpus->speaks = false;
        }
        const int64_t place = of->begin + at + i - corpus->begins[corpus->samples - 1];
        share->tokens += place < sequence;
        if (place > 0 && place < sequence && (tokens[i] & MICS_SAMPLE_COUNTS) != 0) {
            share->counted++; // the first is nobody's target
            share->silent -= !corpus->speaks;
            corpus->speaks = true;
        }
    }
    return MICS_OK;
}

// Reads a shard once, from end to end. `own` is of its tokens alone.
static mics_status check_tokens(const opening *o, part *of, XXH3_state_t *own)
{
    int32_t tokens[16384];
    mics_shard_stamp now;
    const int64_t block = (int64_t)(sizeof tokens / sizeof *tokens);
    for (int64_t at = 0; at < of->shard.count; at += block) {
        const int64_t left = of->shard.count - at, count = left < block ? left : block;
        const size_t bytes = (size_t)count * sizeof *tokens;
        MICS_TRY(mics_shard_read(&of->shard, at, count, tokens, &now));
        const int64_t bad = find_foreign(tokens, count, vocab_of(o->spec));
        if (bad >= 0)
            return is_foreign(of, MICS_ERR_INVALID, at + bad,
                              tokens[bad] >> (o->spec->chats != NULL ? MICS_SAMPLE_SHIFT : 0),
                              o->spec->vocab,
                              "was it made with another tokenizer? See vocab_size in the model's "
                              "config");
        of->counted += count_token(tokens, count, o->spec->counted);
        if (o->spec->chats != NULL)
            MICS_TRY(note_samples(o, of, at, tokens, count));
        (void)XXH3_64bits_update(o->hash, tokens, bytes);
        (void)XXH3_64bits_update(own, tokens, bytes);
    }
    of->hash = XXH3_64bits_digest(own);
    return check_hash(of, of->hash);
}

static mics_status check_shard(const opening *o, part *of)
{
    XXH3_state_t *own = XXH3_createState();
    mics_status status = MICS_OK;
    if (own == NULL || XXH3_64bits_reset(own) != XXH_OK)
        status = mics_fail(MICS_ERR_MEMORY, "no memory for a hash");
    else
        status = check_tokens(o, of, own);
    XXH3_freeState(own);
    return status;
}

static mics_status reserve(mics_corpus *corpus)
{
    if (corpus->count < corpus->capacity)
        return MICS_OK;
    int64_t capacity = corpus->capacity == 0 ? 16 : 2 * corpus->capacity;
    void *block = corpus->parts;
    MICS_TRY(mics_realloc(corpus->memory, MICS_MEM_HOST, (size_t)capacity * sizeof *corpus->parts,
                          &block));
    corpus->parts = block;
    corpus->capacity = capacity;
    return MICS_OK;
}

// What was noted when a text was tokenized, now or for the cache.
static mics_status take_notes(opening *o, const part *of)
{
    mics_shard_notes notes;
    MICS_TRY(mics_shard_read_notes(&of->shard, &notes));
    mics_shard_notes_add(&o->notes, &notes);
    o->progress.skipped = o->notes.skipped;
    if (notes.skipped == 0)
        return MICS_OK;
    mics_log(MICS_LOG_WARNING, "%s: %llu bad lines are passed over", of->name,
             (unsigned long long)notes.skipped);
    if (o->notes.skipped <= (uint64_t)o->spec->skip_bad_lines)
        return MICS_OK;
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: with it %llu bad lines are passed over, but data.skip_bad_lines allows "
                     "%lld; mend the files, or allow more",
                     of->name, (unsigned long long)o->notes.skipped,
                     (long long)o->spec->skip_bad_lines);
}

// `file` is what the user named, `shard_path` where its tokens lie.
static mics_status add_shard(opening *o, const mics_file_name *file, const char *shard_path)
{
    mics_corpus *corpus = o->corpus;
    MICS_TRY(reserve(corpus));
    part *next = &corpus->parts[corpus->count];
    *next = (part){.begin = corpus->tokens, .source = file->pattern};
    MICS_TRY(mics_shard_open(corpus->memory, shard_path, o->spec->dtype, &next->shard));
    corpus->tokens += next->shard.count;
    corpus->count++;
    MICS_TRY(mics_strdup(corpus->memory, file->path, &next->name));
    if (o->spec->chats != NULL && shard_path == file->path)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: is a token shard among chats, and nobody knows which of its tokens "
                         "count; give the chats themselves, or train the shards in a run of their "
                         "own",
                         file->path);
    if (shard_path != file->path)
        MICS_TRY(take_notes(o, next));
    MICS_TRY(check_shard(o, next));
    if (corpus->count > MAX_OPEN)
        mics_shard_let_go(&next->shard);
    return MICS_OK;
}

static bool is_shard(const char *path)
{
    return mics_text_ends(path, ".bin");
}

static mics_status add_text(opening *o, const mics_file_name *file)
{
    const int64_t bytes = mics_files_bytes(file->path);
    if (o->spec->tokenizer == NULL || o->spec->cache_dir == NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: a text needs a tokenizer and a folder for its tokens; token shards "
                         "end in .bin",
                         file->path);
    char *shard_path = NULL;
    const int64_t before = o->progress.before;
    o->corpus->texts++;
    MICS_TRY(mics_text_shard(o->corpus->memory, o->spec, file->path, &o->progress, &shard_path));
    if (o->progress.before == before) { // it was in the cache
        o->progress.files--;
        o->progress.bytes -= bytes;
    }
    if (shard_path == NULL)
        return o->empty++ == 0 ? mics_strdup(o->corpus->memory, file->path, &o->first_empty)
                               : MICS_OK;
    mics_status status = add_shard(o, file, shard_path);
    mics_free(o->corpus->memory, shard_path);
    return status;
}

static mics_status add_files(opening *o, const mics_files *files)
{
    for (int64_t i = 0; i < files->count; i++) {
        const bool shard = is_shard(files->items[i].path);
        o->progress.files += !shard;
        o->progress.bytes += shard ? 0 : mics_files_bytes(files->items[i].path);
    }
    for (int64_t i = 0; i < files->count; i++) {
        const mics_file_name *file = &files->items[i];
        MICS_TRY(is_shard(file->path) ? add_shard(o, file, file->path) : add_text(o, file));
    }
    return MICS_OK;
}

static mics_status add_patterns(opening *o)
{
    mics_status status = MICS_OK;
    mics_files files = {.memory = o->corpus->memory};
    for (int32_t i = 0; status == MICS_OK && i < o->spec->pattern_count; i++)
        status = mics_files_add(&files, o->spec->patterns[i], i);
    if (status == MICS_OK)
        status = add_files(o, &files);
    mics_files_fini(&files);
    return status;
}

// Names the special tokens that became plain text.
static mics_status log_split(const opening *o)
{
    char named[640] = "";
    size_t used = 0;
    uint64_t all = 0;
    for (int32_t i = 0; i < MICS_SHARD_SPLIT && o->notes.split[i].count > 0; i++) {
        const int32_t token = (int32_t)o->notes.split[i].token;
        char *text = NULL;
        size_t bytes = 0;
        MICS_TRY(mics_tokenizer_decode_more(o->spec->tokenizer, &token, 1, &text, &bytes));
        if (used < sizeof named)
            used += (size_t)snprintf(named + used, sizeof named - used, "%s%.60s (%llu times)",
                                     i == 0 ? "" : ", ", text,
                                     (unsigned long long)o->notes.split[i].count);
        all += o->notes.split[i].count;
        mics_free(o->spec->tokenizer->memory, text);
    }
    if (all > 0)
        mics_log(MICS_LOG_WARNING,
                 "the texts name special tokens %llu times, which are split like plain text: %s; "
                 "\"data.special_tokens\": \"parse\" (--special-tokens) takes them as tokens, in "
                 "texts that you trust",
                 (unsigned long long)all, named);
    return MICS_OK;
}

// ---- the whole ----

static bool is_gapless(const mics_corpus *corpus)
{
    int64_t end = 0;
    for (int64_t p = 0; p < corpus->count; end += corpus->parts[p++].shard.count) {
        if (corpus->parts[p].begin != end)
            return false;
    }
    return end == corpus->tokens;
}

static void log_rows(const mics_shard_notes *notes, uint64_t crlf)
{
    const struct {
        uint64_t count;
        const char *says;
    } rows[] = {
        {notes->named, "messages name special tokens in their own text, which are tokens there as "
                       "in transformers; take them out of the data if strangers wrote them"},
        {notes->lossy, "chats have what their tokens lack: a \"system\" beside messages, "
                       "\"chat_template_kwargs\", or tools, calls or parts of messages that the "
                       "template does not write; mics explain --samples shows them"},
        {notes->parted, "prompts end in other tokens by themselves than before an answer, which "
                        "begins where they part; a prompt that ends where a token does is best"},
        {notes->same, "pairs have the same answer twice, and teach nothing"},
        {notes->empty, "answers are empty: of these at most what ends an answer is learned"},
        {notes->references, "pairs have \"ref_chosen_logps\" or \"ref_rejected_logps\", which are "
                            "not used: the model as this run begins is the reference"},
        {crlf, "texts have lines that end in CR LF, and the CRs are tokens; dos2unix removes them"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].count > 0)
            mics_log(MICS_LOG_WARNING, "%llu %s", (unsigned long long)rows[i].count, rows[i].says);
    }
}

// Where the samples of each pattern begin among all. Needs: some sample.
static void number_samples(const opening *o)
{
    mics_corpus *corpus = o->corpus;
    int64_t first = 0;
    corpus->begins[corpus->samples] = corpus->tokens;
    for (int32_t i = 0; i < o->spec->pattern_count; i++) {
        corpus->shares[i].first = first;
        first += corpus->shares[i].count;
    }
}

mics_status mics_corpus_open(mics_memory *memory, const mics_corpus_spec *spec,
                             mics_corpus **corpus_out)
{
    mics_status status = MICS_OK;
    opening o = {.spec = spec};
    MICS_TRY(MICS_NEW(memory, 1, &o.corpus));
    o.corpus->memory = memory;
    o.corpus->vocab = vocab_of(spec);
    if (spec->chats != NULL)
        MICS_TRY_OUT(MICS_NEW(memory, spec->pattern_count, &o.corpus->shares));
    o.hash = XXH3_createState();
    if (o.hash == NULL || XXH3_64bits_reset(o.hash) != XXH_OK) {
        status = mics_fail(MICS_ERR_MEMORY, "no memory for a hash");
        goto out;
    }
    MICS_TRY_OUT(add_patterns(&o));
    if (o.corpus->tokens == 0) {
        status = mics_fail(MICS_ERR_INVALID, "no tokens in %s%s; give a text that is not empty",
                           spec->pattern_count > 0 ? spec->patterns[0] : "an empty list of files",
                           spec->pattern_count > 1 ? " and what follows it" : "");
        goto out;
    }
    if (o.empty == 1)
        mics_log(MICS_LOG_WARNING, "%s: is empty", o.first_empty);
    else if (o.empty > 1)
        mics_log(MICS_LOG_WARNING, "%s and %d more: are empty", o.first_empty, (int)o.empty - 1);
    MICS_TRY_OUT(log_split(&o));
    MICS_TRY_OUT(mics_recheck_open(memory, o.corpus->count, &o.corpus->checks));
    o.corpus->hash = XXH3_64bits_digest(o.hash);
    if (spec->chats != NULL)
        number_samples(&o);
    log_rows(&o.notes, o.progress.crlf);
    MICS_ASSERT(is_gapless(o.corpus));
    *corpus_out = o.corpus;
    o.corpus = NULL;
out:
    mics_free(memory, o.first_empty);
    XXH3_freeState(o.hash);
    mics_corpus_close(o.corpus);
    return status;
}

void mics_corpus_close(mics_corpus *corpus)
{
    if (corpus == NULL)
        return;
    mics_recheck_close(corpus->checks);
    for (int64_t i = 0; i < corpus->count; i++) {
        mics_shard_close(corpus->memory, &corpus->parts[i].shard);
        mics_free(corpus->memory, corpus->parts[i].name);
    }
    MICS_FREE_ALL(corpus->memory, corpus->parts, corpus->begins, corpus->shares, corpus);
}

int64_t mics_corpus_tokens(const mics_corpus *corpus)
{
    return corpus->tokens;
}

uint64_t mics_corpus_hash(const mics_corpus *corpus)
{
    return corpus->hash;
}

typedef struct part_ref {
    const part *part;
} part_ref;

static int by_hash(const void *a, const void *b)
{
    const part *x = ((const part_ref *)a)->part, *y = ((const part_ref *)b)->part;
    return (x->hash > y->hash) - (x->hash < y->hash);
}

static bool is_same(const part *a, const part *b)
{
    return a->hash == b->hash && a->shard.count == b->shard.count && a->shard.count > 0;
}

mics_status mics_corpus_find_same(const mics_corpus *corpus, const mics_corpus *other,
                                  mics_corpus_same *same_out)
{
    part_ref *all = NULL;
    mics_corpus_same same = {.files = 0};
    MICS_TRY(MICS_NEW(corpus->memory, corpus->count, &all));
    for (int64_t i = 0; i < corpus->count; i++)
        all[i].part = &corpus->parts[i];
    qsort(all, (size_t)corpus->count, sizeof(part_ref), by_hash);
    for (int64_t i = 0; i < (other != NULL ? other->count : corpus->count - 1); i++) {
        const part_ref of = {other != NULL ? &other->parts[i] : all[i + 1].part};
        const part_ref *found =
            other != NULL ? bsearch(&of, all, (size_t)corpus->count, sizeof(part_ref), by_hash)
                          : &all[i];
        if (found != NULL && is_same(of.part, found->part) && same.files++ == 0) {
            same.first = found->part->name;
            same.second = of.part->name;
        }
    }
    mics_free(corpus->memory, all);
    *same_out = same;
    return MICS_OK;
}

int64_t mics_corpus_counted(const mics_corpus *corpus, int32_t pattern)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < corpus->count; i++)
        counted += corpus->parts[i].source == pattern ? corpus->parts[i].counted : 0;
    return counted;
}

int64_t mics_corpus_samples(const mics_corpus *corpus)
{
    return corpus->samples;
}

const int64_t *mics_corpus_begins(const mics_corpus *corpus)
{
    return corpus->begins;
}

mics_corpus_share mics_corpus_share_get(const mics_corpus *corpus, int32_t pattern)
{
    return corpus->shares[pattern];
}

int64_t mics_corpus_texts(const mics_corpus *corpus)
{
    return corpus->texts;
}

void mics_corpus_source(const mics_corpus *corpus, int32_t pattern, int64_t *begin_out,
                        int64_t *tokens_out)
{
    int64_t at = 0;
    while (at < corpus->count && corpus->parts[at].source < pattern)
        at++;
    *begin_out = at < corpus->count ? corpus->parts[at].begin : corpus->tokens;
    *tokens_out = 0;
    for (; at < corpus->count && corpus->parts[at].source == pattern; at++)
        *tokens_out += corpus->parts[at].shard.count;
}

// The part that holds token `at`: the last that begins at or before it.
static const part *find_part(const mics_corpus *corpus, int64_t at)
{
    int64_t low = 0, high = corpus->count;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (corpus->parts[middle].begin <= at)
            low = middle;
        else
            high = middle;
    }
    return &corpus->parts[low];
}

// Once more where the file's times have changed: what it holds now may have been written behind the
// first read.
static mics_status read_part(const mics_corpus *corpus, const part *from, int64_t first,
                             int64_t count, int32_t *tokens_out)
{
    mics_shard_stamp known = from->shard.stamp, now;
    for (;;) {
        bool certain = false;
        MICS_TRY(mics_shard_read(&from->shard, first, count, tokens_out, &now));
        if (mics_shard_same_stamp(&now, &known))
            return MICS_OK;
        MICS_TRY(mics_recheck_shard(corpus->checks, from - corpus->parts, &from->shard, &now,
                                    from->hash, &certain));
        if (!certain)
            return MICS_OK;
        known = now;
    }
}

mics_status mics_corpus_read(const mics_corpus *corpus, int64_t begin, int64_t count,
                             int32_t *tokens_out)
{
    while (count > 0) {
        const part *here = find_part(corpus, begin);
        int64_t first = begin - here->begin;
        int64_t take = here->shard.count - first < count ? here->shard.count - first : count;
        MICS_TRY(read_part(corpus, here, first, take, tokens_out));
        const int64_t bad = find_foreign(tokens_out, take, corpus->vocab);
        if (bad >= 0)
            return is_foreign(here, MICS_ERR_IO, first + bad, tokens_out[bad], corpus->vocab,
                              "it was when the run began: the file was changed, or is read wrongly "
                              "now; restore it, and start again");
        begin += take;
        count -= take;
        tokens_out += take;
    }
    return MICS_OK;
}

mics_status mics_shard_write_corpus(mics_memory *memory, const char *path,
                                    const mics_corpus *corpus, int32_t vocab)
{
    int32_t tokens[16384];
    const int64_t block = (int64_t)(sizeof tokens / sizeof *tokens);
    mics_shard_writer *writer = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &writer));
    mics_status status = mics_shard_create(path, vocab, writer);
    for (int64_t at = 0; status == MICS_OK && at < corpus->tokens; at += block) {
        const int64_t left = corpus->tokens - at, count = left < block ? left : block;
        status = mics_corpus_read(corpus, at, count, tokens);
        if (status == MICS_OK)
            status = mics_shard_append(writer, tokens, count);
    }
    status = mics_shard_finish(writer, status);
    mics_free(memory, writer);
    return status;
}
