// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Added tokens: those that are found in a text before it is split, and how they are found.
#include "io/data/bpe.h"
#include "io/data/bpe_read.h"
#include <stdlib.h>
#include <string.h>

static const char path[] = "added_tokens";

static int by_first_byte_then_longest(const void *a, const void *b)
{
    const mics_bpe_added *x = a, *y = b;
    int first = (unsigned char)x->text[0] - (unsigned char)y->text[0];
    if (first != 0)
        return first;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return memcmp(x->text, y->text, x->bytes);
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

// Refuses an added token whose id and text the model gives to two different words.
static mics_status check_added(const mics_json *json, const mics_bpe *bpe,
                               const mics_bpe_added *added, const mics_json_value *word)
{
    bool taken = bpe->spans[added->token].bytes != 0;
    if (word != NULL ? mics_json_int(word) != added->token : taken)
        return mics_json_fail(json, path, MICS_ERR_FORMAT,
                              "\"%.60s\" has the id %d, which contradicts model.vocab or another "
                              "added token",
                              added->text, (int)added->token);
    return MICS_OK;
}

// Puts a token's text into the blob, at *space.
static void place(mics_bpe *bpe, mics_bpe_added *added, char **space)
{
    mics_bpe_span *span = &bpe->spans[added->token];
    added->text = memcpy(*space, added->text, added->bytes);
    // A word of the model stays one when it is not special and stands for the same bytes.
    const bool same = span->bytes == added->bytes &&
                      memcmp(bpe->blob + span->begin, added->text, added->bytes) == 0;
    *span = (mics_bpe_span){.begin = (uint32_t)(*space - bpe->blob),
                            .bytes = (uint32_t)added->bytes,
                            .word = span->word && same && !added->special};
    *space += added->bytes;
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

static mics_status read_added(const mics_json *json, mics_bpe *bpe, const mics_json_value *entry,
                              char **space)
{
    const mics_json_value *content = mics_json_get(entry, "content");
    const char *text = mics_json_string(content);
    mics_bpe_added added = {.text = text,
                            .bytes = mics_json_string_bytes(content),
                            .token = (int32_t)mics_json_int(mics_json_get(entry, "id"))};
    MICS_TRY(read_flags(json, entry, &added));
    MICS_TRY(
        check_added(json, bpe, &added, mics_json_get(mics_json_at(json, "model.vocab"), text)));
    place(bpe, &added, space);
    MICS_TRY(normalize(bpe, &added));
    mics_bpe_added_set *set = &bpe->added[added.normalized ? 1 : 0];
    if (added.bytes > 0) { // a text that is normalized to nothing is nowhere
        set->items[set->count++] = added;
        return MICS_OK;
    }
    mics_free(bpe->memory, added.own);
    return MICS_OK;
}

static mics_status index_added(const mics_json *json, mics_bpe_added_set *set)
{
    if (set->count > 0)
        qsort(set->items, (size_t)set->count, sizeof *set->items, by_first_byte_then_longest);
    int32_t at = 0;
    for (int32_t byte = 0; byte < 256; byte++) {
        while (at < set->count && (unsigned char)set->items[at].text[0] < byte)
            at++;
        set->first[byte] = at;
    }
    set->first[256] = set->count;
    for (int32_t i = 0; i < set->count; i++) {
        const mics_bpe_added *added = &set->items[i];
        if (i > 0 && by_first_byte_then_longest(added - 1, added) == 0)
            return mics_json_fail(json, path, MICS_ERR_FORMAT, "\"%.*s\" is there twice",
                                  (int)(added->bytes < 60 ? added->bytes : 60), added->text);
        set->longest = added->bytes > set->longest ? added->bytes : set->longest;
        set->lstrip = set->lstrip || added->lstrip;
    }
    return MICS_OK;
}

mics_status mics_bpe_load_added(const mics_json *json, mics_bpe *bpe, char *space)
{
    const mics_json_value *list = mics_json_at(json, path);
    const int32_t count = mics_json_count(list);
    for (int i = 0; i < 2; i++)
        MICS_TRY(MICS_NEW(bpe->memory, count, &bpe->added[i].items));
    for (int32_t i = 0; i < count; i++)
        MICS_TRY(read_added(json, bpe, mics_json_element(list, i), &space));
    MICS_TRY(index_added(json, &bpe->added[0]));
    return index_added(json, &bpe->added[1]);
}

void mics_bpe_added_fini(mics_bpe *bpe)
{
    for (int i = 0; i < 2; i++) {
        for (int32_t at = 0; at < bpe->added[i].count; at++)
            mics_free(bpe->memory, bpe->added[i].items[at].own);
        mics_free(bpe->memory, bpe->added[i].items);
    }
}

const mics_bpe_added *mics_bpe_added_at(const mics_bpe_added_set *set, const char *text,
                                        size_t bytes)
{
    const unsigned char first = (unsigned char)text[0];
    for (int32_t i = set->first[first]; i < set->first[first + 1]; i++) {
        const mics_bpe_added *added = &set->items[i]; // the longest come first
        if (added->bytes <= bytes && memcmp(added->text, text, added->bytes) == 0)
            return added;
    }
    return NULL;
}
