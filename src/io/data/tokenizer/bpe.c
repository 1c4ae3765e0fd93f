// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The BPE tokenizer: from a text to added tokens and what lies between them, from there to
// normalized texts, to pieces, to tokens.
//
// A text is searched twice for added tokens, as Hugging Face's library does: before it is
// normalized and afterwards, for those that are marked so. A section is what lies between two added
// tokens (or a text's ends); its beginning is where normalizers and pre-tokenizers prepend.
//
// Text that is not UTF-8: each longest run of bytes that belong to no character is one piece, and
// what stands before and after it is normalized and split apart. Nothing is prepended behind it.
#include "io/data/tokenizer/bpe.h"
#include "base/assert.h"
#include "base/free.h"
#include "base/utf8.h"
#include "io/data/tokenizer/vocab_txt.h"
#include <string.h>
#include <xxhash.h>

enum { MAX_FILE_BYTES = 256 << 20, IDENTITY_VERSION = 3 };

// One of the two searches for added tokens.
typedef struct search {
    const mics_bpe_added_set *set;
    bool word_before; // what precedes the text that is searched next is a character of a word
} search;

// One encoder's work.
typedef struct bpe_work {
    mics_memory *memory;
    const mics_bpe *bpe;
    bool specials;
    mics_bpe_merger *merger;
    mics_normal_work *normal;
    mics_split_work *split;
    mics_token_list *list; // of the feed in progress
    mics_pieces *pieces;   // the same; NULL: tokens are wanted
    search searches[2];
    mics_buffer normalized; // and not searched yet
    bool first;             // nothing of the text has been taken
    bool head;              // nothing of the section has been normalized
    bool split_head;        // nothing since the last added token has been split
    bool open;              // the section's text was not ended where it was last fed
} bpe_work;

// ---- pieces ----

static mics_status take_piece(void *ctx, const char *text, size_t bytes)
{
    bpe_work *work = ctx;
    if (work->pieces != NULL)
        return mics_pieces_add(work->pieces, text, bytes);
    return mics_bpe_merge(work->merger, text, bytes, work->list);
}

// The last place where a text without pre-tokenizers may be cut.
static size_t find_cut(void *ctx, const char *text, size_t bytes)
{
    const bpe_work *work = ctx;
    if (work->bpe->ignore_merges ||
        work->bpe->wordpiece.prefix != NULL) // the whole could be a token
        return 0;
    for (size_t at = bytes; at > 1;) {
        at--;
        if (((unsigned char)text[at] & 0xC0) != 0x80 && mics_bpe_is_cut(work->bpe, text, bytes, at))
            return at;
    }
    return 0;
}

static mics_status split_text(bpe_work *work, const char *text, size_t bytes, bool more)
{
    const mics_split_sink sink = {.piece = take_piece, .cut = find_cut, .ctx = work};
    const mics_split_part part = {
        .text = text, .bytes = bytes, .head = work->split_head, .first = work->first, .more = more};
    MICS_TRY(mics_split_feed(work->split, &part, sink));
    if (bytes > 0)
        work->first = work->split_head = false;
    return MICS_OK;
}

// ---- added tokens ----

// A text while it is searched.
typedef struct scan {
    const char *text;
    size_t bytes;
    size_t limit; // tokens begin before it
    size_t given; // what of the text has been taken
    size_t from;  // where the search goes on
    size_t
        spaces_end; // from where white space was last looked for up to here there is nothing else
} scan;

// An added token in a text, and the text that it takes.
typedef struct found {
    const mics_bpe_added *added;
    size_t begin, end; // with the white space that it takes along
    size_t behind;     // the token itself
} found;

// What a search does with the text before a token (its section ends where not `more`), with `taken`
// bytes taken of it at the end, and with a token.
typedef mics_status take_text(bpe_work *work, const char *text, size_t bytes, bool more,
                              size_t *taken_out);

static bool is_word_at(const mics_bpe *bpe, const char *text, size_t bytes)
{
    size_t length = 0;
    return bytes > 0 && (mics_chars_at(&bpe->chars, text, bytes, &length) & MICS_CHAR_WORD) != 0;
}

static bool is_word_before(const mics_bpe *bpe, const char *text, size_t bytes)
{
    size_t length = 0;
    return (mics_chars_before(&bpe->chars, text, bytes, &length) & MICS_CHAR_WORD) != 0;
}

// Where the white space begins that a text ends with, but not before `from`.
static size_t spaces_before(const mics_bpe *bpe, const char *text, size_t from, size_t bytes)
{
    size_t length = 0;
    while (bytes > from &&
           (mics_chars_before(&bpe->chars, text + from, bytes - from, &length) & MICS_CHAR_SPACE))
        bytes -= length;
    return bytes;
}

// Where the white space ends that begins where the search goes on. It is looked through once,
// though tokens that are white space themselves may lie in it.
static size_t spaces_behind(const mics_bpe *bpe, scan *at)
{
    size_t length = 0, end = at->from > at->spaces_end ? at->from : at->spaces_end;
    while (end < at->bytes &&
           (mics_chars_at(&bpe->chars, at->text + end, at->bytes - end, &length) & MICS_CHAR_SPACE))
        end += length;
    at->spaces_end = end;
    return end;
}

// Whether a token at a place is one: special ones may not be wanted, others not inside a word.
static bool is_wanted(const bpe_work *work, const search *s, const mics_bpe_added *added,
                      const char *text, size_t bytes, size_t at)
{
    const size_t behind = at + added->bytes;
    if (added->special && !work->specials)
        return false;
    if (!added->single_word)
        return true;
    const bool before = at > 0 ? is_word_before(work->bpe, text, at) : s->word_before;
    return !before && !is_word_at(work->bpe, text + behind, bytes - behind);
}

// The first token that is wanted, from where the search stands. What is found and not wanted is
// stepped over, as Hugging Face's library does.
static bool find_added(const bpe_work *work, const search *s, scan *at, found *found_out)
{
    while (at->from < at->limit && s->set->count > 0) {
        const size_t begin = at->from;
        const mics_bpe_added *added =
            mics_bpe_added_at(s->set, at->text + begin, at->bytes - begin);
        at->from += added != NULL ? added->bytes : 1;
        if (added == NULL || !is_wanted(work, s, added, at->text, at->bytes, begin))
            continue;
        found_out->added = added;
        found_out->begin =
            added->lstrip ? spaces_before(work->bpe, at->text, at->given, begin) : begin;
        found_out->behind = at->from;
        found_out->end = added->rstrip ? spaces_behind(work->bpe, at) : at->from;
        // Of white space that the token before took, nothing is left for one that takes it along.
        if (!added->lstrip || found_out->end > at->given)
            return true;
        found_out->added = NULL;
    }
    return false;
}

// Takes the token, and ends what was split before it. One that is found in the raw text ends the
// section as well; one in the normalized text does not.
static mics_status take_token(bpe_work *work, const search *s, const found *token)
{
    const int32_t part = ~token->added->token;
    MICS_TRY(work->pieces != NULL ? mics_token_list_append(&work->pieces->parts, &part, 1)
                                  : mics_token_list_append(work->list, &token->added->token, 1));
    work->first = false;
    work->split_head = true;
    work->head = work->head || s == &work->searches[0];
    return MICS_OK;
}

// Where the text ends that nothing which may follow can change, and that is not taken yet.
static size_t find_end(const bpe_work *work, const search *s, const scan *at, const found *next)
{
    size_t end = next->added != NULL ? next->begin : at->from > at->limit ? at->from : at->limit;
    if (s->set->lstrip)
        end = spaces_before(work->bpe, at->text, at->given < end ? at->given : end, end);
    while (s->set->longest > 0 && end > at->given && ((unsigned char)at->text[end] & 0xC0) == 0x80)
        end--; // to a character's beginning
    return end;
}

// Searches a text for added tokens, and hands over what lies between them and them.
static mics_status take_added(bpe_work *work, search *s, const char *text, size_t bytes, bool more,
                              take_text *take, size_t *consumed_out)
{
    enum { MARGIN = 4 }; // what may follow a token and counts: a character
    const size_t longest = s->set->longest;
    // What may begin a token that ends beyond this text is left for later, and what may go with it.
    const size_t held = more && longest > 0 ? longest + MARGIN : 0;
    scan at = {.text = text, .bytes = bytes, .limit = held < bytes ? bytes - held : 0};
    size_t taken = 0;
    found next = {0};
    while (find_added(work, s, &at, &next)) {
        if (more && next.end + held > bytes && next.end > next.behind)
            break; // more white space may follow
        const size_t before = next.begin > at.given ? next.begin - at.given : 0;
        MICS_TRY(take(work, text + at.given, before, false, &taken));
        MICS_TRY(take_token(work, s, &next));
        at.given = next.end;
        next.added = NULL;
    }
    const size_t end = more ? find_end(work, s, &at, &next) : bytes;
    if (end > at.given || !more) {
        MICS_TRY(take(work, text + at.given, end > at.given ? end - at.given : 0, more, &taken));
        at.given = end > at.given ? at.given + taken : at.given;
    }
    if (at.given > 0)
        s->word_before = is_word_before(work->bpe, text, at.given);
    *consumed_out = at.given;
    return MICS_OK;
}

// ---- sections ----

static mics_status take_split(bpe_work *work, const char *text, size_t bytes, bool more,
                              size_t *taken_out)
{
    *taken_out = bytes;
    return split_text(work, text, bytes, more);
}

// Normalizes valid UTF-8 and searches it again. Not `more`: it ends here, before a token or before
// bytes that are no UTF-8.
static mics_status take_valid(bpe_work *work, const char *text, size_t bytes, bool more)
{
    const mics_bpe *bpe = work->bpe;
    work->open = more;
    if (mics_normal_is_empty(bpe->normal) && bpe->added[1].count == 0)
        return split_text(work, text, bytes, more);
    mics_buffer *normalized = &work->normalized;
    if (work->head)
        work->searches[1].word_before = false;
    MICS_TRY(
        mics_normal_feed(work->normal, text, bytes, work->head && bytes > 0, more, normalized));
    work->head = work->head && bytes == 0;
    size_t consumed = 0;
    MICS_TRY(take_added(work, &work->searches[1], normalized->bytes > 0 ? normalized->data : "",
                        normalized->bytes, more, take_split, &consumed));
    mics_buffer_drop(normalized, consumed);
    return MICS_OK;
}

static mics_status end_valid(bpe_work *work)
{
    return work->open ? take_valid(work, "", 0, false) : MICS_OK;
}

// Bytes from the head of a text that belong to no character; whole = false when the text ends
// within or behind them, so that what follows could change it.
static size_t invalid_run(const char *text, size_t bytes, bool *whole_out)
{
    size_t at = 0;
    *whole_out = false;
    while (at < bytes) {
        int32_t length = mics_utf8_char(text + at, bytes - at);
        if (length > 0) {
            *whole_out = true;
            break;
        }
        at++;
    }
    return at;
}

static mics_status take_section(bpe_work *work, const char *text, size_t bytes, bool more,
                                size_t *taken_out)
{
    size_t at = 0;
    while (at < bytes) {
        size_t run = mics_utf8_valid(text + at, bytes - at);
        bool open = at + run == bytes || mics_utf8_char(text + at + run, bytes - at - run) < 0;
        if (run > 0)
            MICS_TRY(take_valid(work, text + at, run, more && open));
        at += run;
        if (at == bytes)
            break;
        bool whole = false;
        run = invalid_run(text + at, bytes - at, &whole);
        if (more && !whole)
            break;
        MICS_TRY(end_valid(work));
        MICS_TRY(take_piece(work, text + at, run));
        work->first = work->head = work->split_head = false;
        at += run;
    }
    *taken_out = at;
    return more ? MICS_OK : end_valid(work);
}

static mics_status bpe_feed(mics_encoder *encoder, const char *text, size_t bytes, bool more,
                            mics_token_list *list, size_t *consumed_out)
{
    bpe_work *work = encoder->work;
    work->list = list;
    work->pieces = encoder->pieces;
    work->specials = encoder->specials;
    return take_added(work, &work->searches[0], text, bytes, more, take_section, consumed_out);
}

static mics_status bpe_merge_pieces(mics_encoder *encoder, const mics_pieces *pieces,
                                    mics_token_list *list)
{
    bpe_work *work = encoder->work;
    const char *at = pieces->text.data;
    for (int64_t i = 0; i < pieces->parts.count; i++) {
        const int32_t part = pieces->parts.tokens[i], token = ~part;
        if (part < 0) {
            MICS_TRY(mics_token_list_append(list, &token, 1));
            continue;
        }
        MICS_TRY(mics_bpe_merge(work->merger, at, (size_t)part, list));
        at += part;
    }
    return MICS_OK;
}

// ---- the table ----

static void bpe_work_close(void *ctx)
{
    bpe_work *work = ctx;
    mics_split_work_close(work->split);
    mics_normal_work_close(work->normal);
    mics_bpe_merger_close(work->merger);
    mics_buffer_fini(&work->normalized);
    mics_free(work->memory, work);
}

// What belongs to one text.
static mics_status begin_text(bpe_work *work)
{
    work->searches[0] = (search){.set = &work->bpe->added[0]};
    work->searches[1] = (search){.set = &work->bpe->added[1]};
    work->normalized.bytes = 0;
    work->first = work->head = work->split_head = true;
    work->open = false;
    MICS_TRY(mics_normal_work_open(work->bpe->normal, &work->normal));
    return mics_split_work_open(work->bpe->split, &work->split);
}

static mics_status bpe_work_reset(void *ctx)
{
    bpe_work *work = ctx;
    mics_split_work_close(work->split);
    mics_normal_work_close(work->normal);
    work->split = NULL;
    work->normal = NULL;
    return begin_text(work);
}

static mics_status bpe_work_open(const mics_tokenizer *tokenizer, void **work_out)
{
    const mics_bpe *bpe = tokenizer->ctx;
    bpe_work *work = NULL;
    MICS_TRY(MICS_NEW(bpe->memory, 1, &work));
    *work = (bpe_work){.memory = bpe->memory, .bpe = bpe, .normalized = {.memory = bpe->memory}};
    mics_status status = mics_bpe_merger_open(bpe, &work->merger);
    if (status == MICS_OK)
        status = begin_text(work);
    if (status != MICS_OK) {
        bpe_work_close(work);
        return status;
    }
    *work_out = work;
    return MICS_OK;
}

static size_t bpe_text(const mics_tokenizer *tokenizer, int32_t token, bool head, char *to)
{
    return mics_bpe_decode(tokenizer->ctx, token, head, to);
}

static void bpe_trim(const mics_tokenizer *tokenizer, const char *text, size_t *bytes,
                     size_t *begin_out)
{
    const mics_bpe *bpe = tokenizer->ctx;
    mics_bpe_trim(&bpe->decoder, text, bytes, begin_out);
}

static void bpe_close(void *ctx)
{
    mics_bpe_close(ctx);
}

static void bpe_mark_specials(const mics_tokenizer *tokenizer, bool *special_out)
{
    const mics_bpe *bpe = tokenizer->ctx;
    for (int set = 0; set < 2; set++) {
        for (int32_t i = 0; i < bpe->added[set].count; i++) {
            const mics_bpe_added *added = &bpe->added[set].items[i];
            special_out[added->token] = special_out[added->token] || added->special;
        }
    }
}

static int32_t bpe_next_special(const mics_tokenizer *tokenizer, const char *text, size_t bytes,
                                size_t limit, size_t *at)
{
    return mics_bpe_next_special(tokenizer->ctx, text, bytes, limit, at);
}

static const mics_tokenizer_ops bpe_ops = {
    .name = "BPE",
    .feed = bpe_feed,
    .merge = bpe_merge_pieces,
    .text = bpe_text,
    .trim = bpe_trim,
    .next_special = bpe_next_special,
    .mark_specials = bpe_mark_specials,
    .work_open = bpe_work_open,
    .work_reset = bpe_work_reset,
    .work_close = bpe_work_close,
    .close = bpe_close,
};

// ---- loading ----

void mics_bpe_close(mics_bpe *bpe)
{
    if (bpe == NULL)
        return;
    mics_split_close(bpe->split);
    mics_normal_close(bpe->normal);
    mics_bpe_added_fini(bpe);
    mics_chars_fini(&bpe->chars);
    MICS_FREE_ALL(bpe->memory, bpe->blob, bpe->spans, bpe->pairs, bpe->joints, bpe->words,
                  bpe->word_lengths, bpe->wordpiece.prefix, bpe->decoder.texts.blob,
                  bpe->decoder.texts.begin, bpe->decoder.head.blob, bpe->decoder.head.begin, bpe);
}

static bool is_id(const mics_bpe *bpe, int32_t token)
{
    return token >= 0 && token < bpe->vocab;
}

static bool is_merge(const mics_bpe *bpe, const mics_bpe_pair *pair)
{
    if (!is_id(bpe, pair->left) || !is_id(bpe, pair->right) || !is_id(bpe, pair->merged))
        return false;
    const mics_bpe_span *left = &bpe->spans[pair->left], *right = &bpe->spans[pair->right],
                        *merged = &bpe->spans[pair->merged];
    const char *text = bpe->blob + merged->begin;
    return merged->bytes == left->bytes + right->bytes &&
           memcmp(text, bpe->blob + left->begin, left->bytes) == 0 &&
           memcmp(text + left->bytes, bpe->blob + right->begin, right->bytes) == 0;
}

static bool is_consistent(const mics_bpe *bpe)
{
    bool holds = bpe->unknown < bpe->vocab;
    for (int byte = 0; byte < 256; byte++)
        holds = holds && bpe->byte_token[byte] < bpe->vocab &&
                (!bpe->byte_level || bpe->byte_token[byte] >= 0);
    for (uint64_t i = 0; holds && i <= bpe->word_mask; i++)
        holds = bpe->words[i] < bpe->vocab;
    for (uint64_t i = 0; holds && bpe->pairs != NULL && i <= bpe->pair_mask; i++)
        holds = bpe->pairs[i].merged < 0 || is_merge(bpe, &bpe->pairs[i]);
    for (int set = 0; set < 2; set++) {
        for (int32_t i = 0; holds && i < bpe->added[set].count; i++)
            holds = is_id(bpe, bpe->added[set].items[i].token);
    }
    return holds;
}

mics_status mics_bpe_load(mics_memory *memory, const mics_json *json, mics_bpe **bpe_out)
{
    mics_bpe *bpe = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &bpe));
    bpe->memory = bpe->chars.memory = memory;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_chars_init(memory, &bpe->chars));
    MICS_TRY_OUT(mics_normal_open(memory, &bpe->chars, &bpe->normal));
    MICS_TRY_OUT(mics_split_open(memory, &bpe->chars, &bpe->split));
    MICS_TRY_OUT(mics_bpe_load_model(json, bpe));
    MICS_TRY_OUT(mics_bpe_load_normalizer(json, bpe));
    MICS_TRY_OUT(mics_bpe_load_pre_tokenizer(json, bpe));
    MICS_TRY_OUT(mics_bpe_load_tokens(json, bpe));
    if (bpe->wordpiece.prefix == NULL) {
        MICS_TRY_OUT(mics_bpe_load_merges(json, bpe));
        MICS_TRY_OUT(mics_bpe_load_joints(bpe));
    }
    MICS_TRY_OUT(mics_bpe_load_decoder(json, bpe));
    MICS_ASSERT(is_consistent(bpe));
    *bpe_out = bpe;
    bpe = NULL;
out:
    mics_bpe_close(bpe);
    return status;
}

// The added token that goes by the first of these names; -1: none.
static int32_t find_named(const mics_json *json, const char *const *names, size_t count)
{
    const mics_json_value *added = mics_json_at(json, "added_tokens");
    for (size_t i = 0; i < count; i++) {
        for (int32_t at = 0; at < mics_json_count(added); at++) {
            const mics_json_value *entry = mics_json_element(added, at);
            if (strcmp(mics_json_string(mics_json_get(entry, "content")), names[i]) == 0)
                return (int32_t)mics_json_int(mics_json_get(entry, "id"));
        }
    }
    return -1;
}

// The token that models set between documents.
static int32_t find_separator(const mics_json *json)
{
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>",
                                        "</s>",          "<eos>",
                                        "[SEP]",         "<\uff5cend\u2581of\u2581sentence\uff5c>"};
    return find_named(json, names, sizeof names / sizeof *names);
}

static int32_t find_mask(const mics_json *json)
{
    static const char *const names[] = {"[MASK]", "<mask>"};
    return find_named(json, names, sizeof names / sizeof *names);
}

static mics_status load_file(mics_memory *memory, const char *path, mics_json **json_out)
{
    return mics_vocab_txt_is(path) ? mics_vocab_txt_load(memory, path, MAX_FILE_BYTES, json_out)
                                   : mics_json_load(memory, path, MAX_FILE_BYTES, json_out);
}

mics_status mics_bpe_open(mics_memory *memory, const char *path, mics_tokenizer *tokenizer_out)
{
    mics_json *json = NULL;
    mics_bpe *bpe = NULL;
    char *text = NULL, *refused = NULL;
    mics_token_list frame = {.memory = memory};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(load_file(memory, path, &json));
    MICS_TRY_OUT(mics_strdup(memory, mics_json_text(json), &text)); // JSON holds no NUL
    MICS_TRY_OUT(mics_bpe_load(memory, json, &bpe));
    MICS_TRY_OUT(mics_bpe_load_template(memory, json, bpe->vocab, &frame, &refused));
    // Other versions of Unicode split and normalize otherwise, and a separator may not be known to
    // every version of this file.
    const uint64_t identity = XXH3_64bits_withSeed(text, strlen(text), IDENTITY_VERSION);
    const int32_t separator = find_separator(json);
    const uint64_t beside[] = {mics_chars_version(), (uint64_t)(int64_t)separator};
    *tokenizer_out = (mics_tokenizer){
        .ops = &bpe_ops,
        .ctx = bpe,
        .vocab = bpe->vocab,
        .separator = separator,
        .mask = find_mask(json),
        .identity = XXH3_64bits_withSeed(beside, sizeof beside, identity),
        .file_text = text,
        .frame = frame,
        .frame_refused = refused,
    };
    text = refused = NULL;
    frame.tokens = NULL;
    bpe = NULL;
out:
    mics_free(memory, text);
    mics_free(memory, refused);
    mics_token_list_fini(&frame);
    mics_bpe_close(bpe);
    mics_json_close(json);
    return status;
}
