// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Added tokens: those that are found in a text before it is split, and how they are found.
#include "io/data/tokenizer/bpe.h"
#include "io/data/tokenizer/bpe_read.h"
#include <stdlib.h>
#include <string.h>

static const char path[] = "added_tokens";

// By their bytes; of equal ones the first in the file comes first.
static int by_bytes(const void *a, const void *b)
{
    const mics_bpe_added *x = a, *y = b;
    const int head = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);
    if (head != 0)
        return head;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1) : x->place - y->place;
}

// Reads what HF calls flags.
static mics_status read_flags(const mics_json *json, const mics_json_value *entry,
                              mics_bpe_added *added)
{
    MICS_TRY(mics_read_bool(json, entry, path, "special", &added->special));
    added->normalized = !added->special;
    MICS_TRY(mics_read_bool(json, entry, path, "normalized", &added->normalized));
    MICS_TRY(mics_read_bool(json, entry, path, "single_word", &added->single_word));
    MICS_TRY(mics_read_bool(json, entry, path, "lstrip", &added->lstrip));
    return mics_read_bool(json, entry, path, "rstrip", &added->rstrip);
}

// Where ids and texts of added tokens go while they are read.
typedef struct reader {
    const mics_json *json;
    mics_bpe *bpe;
    mics_bpe_added *entries; // (count) as the file has them
    int32_t count;
    char *space;     // of the blob, for the next text
    int32_t words;   // of the model
    int32_t highest; // id of an added token so far; -1: none
} reader;

// Refuses an id that Hugging Face's library would not give, which does not read it: it takes that
// of the model's word with this text, else the next free one.
static mics_status check_added(const reader *r, const mics_bpe_added *added)
{
    const mics_json_value *word = mics_json_get(mics_json_at(r->json, "model.vocab"), added->text);
    const int32_t next = r->highest >= r->words ? r->highest + 1 : r->words;
    const int64_t wanted = word != NULL ? mics_json_int(word) : next;
    if (added->token != wanted)
        return mics_json_fail(r->json, path, MICS_ERR_FORMAT,
                              "\"%.60s\" has the id %d, but Hugging Face's library gives it %lld: "
                              "%s",
                              added->text, (int)added->token, (long long)wanted,
                              word != NULL ? "that of model.vocab" : "the next free one");
    if (word == NULL && r->bpe->spans[added->token].bytes != 0)
        return mics_json_fail(r->json, path, MICS_ERR_FORMAT,
                              "\"%.60s\" has the id %d, which another token has in model.vocab",
                              added->text, (int)added->token);
    return MICS_OK;
}

// Puts a token's text into the blob.
static void place(reader *r, mics_bpe_added *added)
{
    mics_bpe *bpe = r->bpe;
    mics_bpe_span *span = &bpe->spans[added->token];
    added->text = memcpy(r->space, added->text, added->bytes);
    // A word of the model stays one when it is not special and stands for the same bytes.
    const bool same = span->bytes == added->bytes &&
                      memcmp(bpe->blob + span->begin, added->text, added->bytes) == 0;
    *span = (mics_bpe_span){.begin = (uint32_t)(r->space - bpe->blob),
                            .bytes = (uint32_t)added->bytes,
                            .word = span->word && same && !added->special};
    r->space += added->bytes;
    r->highest = added->token > r->highest ? added->token : r->highest;
}

// What becomes of a token's text where all texts are normalized.
static mics_status normalize(const mics_bpe *bpe, mics_bpe_added *added)
{
    mics_normal_work *work = NULL;
    mics_buffer text = {.memory = bpe->memory};
    mics_status status = MICS_OK;
    if (!added->normalized || mics_normal_is_empty(bpe->normal))
        return MICS_OK;
    MICS_TRY_OUT(mics_normal_work_open(bpe->normal, &work));
    MICS_TRY_OUT(mics_normal_feed(work, added->text, added->bytes, true, false, &text));
    if (text.bytes != added->bytes || memcmp(text.data, added->text, added->bytes) != 0) {
        added->text = added->own = text.data;
        added->bytes = text.bytes;
        text.data = NULL;
    }
out:
    mics_buffer_fini(&text);
    mics_normal_work_close(work);
    return status;
}

static mics_status take_added(reader *r, mics_bpe_added added)
{
    const char *content = added.text;
    MICS_TRY(check_added(r, &added));
    place(r, &added);
    MICS_TRY(normalize(r->bpe, &added));
    if (added.bytes == 0) {
        mics_free(r->bpe->memory, added.own);
        return mics_json_fail(r->json, path, MICS_ERR_UNSUPPORTED,
                              "\"%.60s\" is normalized to nothing, which is everywhere; "
                              "\"normalized\": false would work",
                              content);
    }
    mics_bpe_added_set *set = &r->bpe->added[added.normalized ? 1 : 0];
    set->items[set->count++] = added;
    return MICS_OK;
}

static bool has_equal_text(const mics_bpe_added *a, const mics_bpe_added *b)
{
    return a->bytes == b->bytes && memcmp(a->text, b->text, a->bytes) == 0;
}

static bool has_equal_flags(const mics_bpe_added *a, const mics_bpe_added *b)
{
    return a->special == b->special && a->normalized == b->normalized &&
           a->single_word == b->single_word && a->lstrip == b->lstrip && a->rstrip == b->rstrip;
}

static int by_place(const void *a, const void *b)
{
    return ((const mics_bpe_added *)a)->place - ((const mics_bpe_added *)b)->place;
}

// Reads what the file says. What it says twice, word for word, counts once.
static mics_status read_entries(reader *r)
{
    const mics_json_value *list = mics_json_at(r->json, path);
    for (int32_t i = 0; i < r->count; i++) {
        const mics_json_value *entry = mics_json_element(list, i);
        const mics_json_value *content = mics_json_get(entry, "content");
        r->entries[i] =
            (mics_bpe_added){.text = mics_json_string(content),
                             .bytes = mics_json_string_bytes(content),
                             .token = (int32_t)mics_json_int(mics_json_get(entry, "id")),
                             .place = i};
        MICS_TRY(read_flags(r->json, entry, &r->entries[i]));
    }
    int32_t kept = 0;
    if (r->count > 0)
        qsort(r->entries, (size_t)r->count, sizeof *r->entries, by_bytes);
    for (int32_t i = 0; i < r->count; i++) {
        const mics_bpe_added *added = &r->entries[i], *last = &r->entries[kept > 0 ? kept - 1 : 0];
        if (kept == 0 || !has_equal_text(last, added))
            r->entries[kept++] = *added;
        else if (last->token != added->token || !has_equal_flags(last, added))
            return mics_json_fail(r->json, path, MICS_ERR_FORMAT,
                                  "\"%.60s\" is there twice, with another id or other flags",
                                  added->text);
    }
    r->count = kept;
    if (kept > 0)
        qsort(r->entries, (size_t)kept, sizeof *r->entries, by_place);
    return MICS_OK;
}

static mics_status index_added(const mics_json *json, mics_bpe_added_set *set)
{
    if (set->count > 0)
        qsort(set->items, (size_t)set->count, sizeof *set->items, by_bytes);
    int32_t at = 0;
    for (int32_t byte = 0; byte < 256; byte++) {
        while (at < set->count && (unsigned char)set->items[at].text[0] < byte)
            at++;
        set->first[byte] = at;
    }
    set->first[256] = set->count;
    for (int32_t i = 0; i < set->count; i++) {
        const mics_bpe_added *added = &set->items[i];
        if (i > 0 && has_equal_text(added - 1, added))
            return mics_json_fail(json, path, MICS_ERR_FORMAT,
                                  "the tokens %d and %d are the same when they are normalized, "
                                  "\"%.*s\"",
                                  (int)added[-1].token, (int)added->token,
                                  (int)(added->bytes < 60 ? added->bytes : 60), added->text);
        set->longest = added->bytes > set->longest ? added->bytes : set->longest;
        set->lstrip = set->lstrip || added->lstrip;
    }
    return MICS_OK;
}

mics_status mics_bpe_load_added(const mics_json *json, mics_bpe *bpe, char *space)
{
    const int32_t count = mics_json_count(mics_json_at(json, path));
    reader r = {.json = json,
                .bpe = bpe,
                .count = count,
                .space = space,
                .words = mics_json_count(mics_json_at(json, "model.vocab")),
                .highest = -1};
    mics_status status = MICS_OK;
    for (int i = 0; i < 2; i++)
        MICS_TRY(MICS_NEW(bpe->memory, count, &bpe->added[i].items));
    MICS_TRY(MICS_NEW(bpe->memory, count, &r.entries));
    MICS_TRY_OUT(read_entries(&r));
    for (int32_t i = 0; i < r.count; i++)
        MICS_TRY_OUT(take_added(&r, r.entries[i]));
    for (int i = 0; i < 2; i++)
        MICS_TRY_OUT(index_added(json, &bpe->added[i]));
out:
    mics_free(bpe->memory, r.entries);
    return status;
}

void mics_bpe_added_fini(mics_bpe *bpe)
{
    for (int i = 0; i < 2; i++) {
        for (int32_t at = 0; at < bpe->added[i].count; at++)
            mics_free(bpe->memory, bpe->added[i].items[at].own);
        mics_free(bpe->memory, bpe->added[i].items);
    }
}

// The first of the tokens [begin, end), which are longer than `depth`, whose byte there is not
// below `byte`.
static int32_t find_byte(const mics_bpe_added *items, int32_t begin, int32_t end, size_t depth,
                         int byte)
{
    while (begin < end) {
        const int32_t middle = begin + (end - begin) / 2;
        if ((unsigned char)items[middle].text[depth] < byte)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

const mics_bpe_added *mics_bpe_added_at(const mics_bpe_added_set *set, const char *text,
                                        size_t bytes)
{
    const mics_bpe_added *found = NULL, *items = set->items;
    const unsigned char first = (unsigned char)text[0];
    int32_t begin = set->first[first], end = set->first[first + 1];
    // [begin, end) are the tokens that begin with `depth` bytes of the text.
    for (size_t depth = 1; begin < end; depth++) {
        if (items[begin].bytes == depth)
            found = &items[begin++];
        if (depth == bytes)
            break;
        const int byte = (unsigned char)text[depth];
        begin = find_byte(items, begin, end, depth, byte);
        end = find_byte(items, begin, end, depth, byte + 1);
    }
    return found;
}

static bool may_begin(const mics_bpe_added_set *set, char letter)
{
    const unsigned char first = (unsigned char)letter;
    return set->first[first] < set->first[first + 1];
}

int32_t mics_bpe_next_special(const mics_bpe *bpe, const char *text, size_t bytes, size_t limit,
                              size_t *at)
{
    while (*at < limit) {
        const mics_bpe_added *added = NULL;
        if (may_begin(&bpe->added[0], text[*at]))
            added = mics_bpe_added_at(&bpe->added[0], text + *at, bytes - *at);
        if (added == NULL && may_begin(&bpe->added[1], text[*at]))
            added = mics_bpe_added_at(&bpe->added[1], text + *at, bytes - *at);
        *at += added != NULL ? added->bytes : 1;
        if (added != NULL && added->special)
            return added->token;
    }
    return -1;
}
