// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where a piece of characters may be cut.
//
// Llama 2 does not split its texts: a whole book is one piece. But a token reaches over a place
// between characters a and b only if some merge joins what ends in a with what begins with b. The
// pairs (a, b) of all merges are the joints; anywhere else a piece may be cut, and merging on one
// side knows nothing of the other. Words are then short, and repeat.
#include "base/utf8.h"
#include "io/data/tokenizer/bpe.h"

// A joint's key is never 0.
static uint64_t joint_key(uint32_t left, uint32_t right)
{
    return ((uint64_t)left << 21 | right) + 1;
}

static uint64_t joint_slot(const mics_bpe *bpe, uint64_t key)
{
    const uint64_t mixed = key * 0x9E3779B97F4A7C15u; // as in bpe_merges.c
    uint64_t slot = (mixed ^ mixed >> 32) & bpe->joint_mask;
    while (bpe->joints[slot] != 0 && bpe->joints[slot] != key)
        slot = (slot + 1) & bpe->joint_mask;
    return slot;
}

// Where the last character of a text begins.
static size_t last_char(const char *text, size_t bytes)
{
    size_t at = bytes - 1;
    while (at > 0 && bytes - at < 4 && ((unsigned char)text[at] & 0xC0) == 0x80)
        at--;
    return at;
}

mics_status mics_bpe_load_joints(mics_bpe *bpe)
{
    size_t slots = 1024, count = 0;
    for (uint64_t i = 0; i <= bpe->pair_mask; i++)
        count += bpe->pairs[i].merged >= 0;
    if (bpe->byte_level)
        return MICS_OK;
    while (slots < 2 * count)
        slots *= 2;
    MICS_TRY(MICS_NEW(bpe->memory, slots, &bpe->joints));
    bpe->joint_mask = slots - 1;
    for (uint64_t i = 0; i <= bpe->pair_mask; i++) {
        const mics_bpe_pair *pair = &bpe->pairs[i];
        if (pair->merged < 0)
            continue;
        const mics_bpe_span *left = &bpe->spans[pair->left], *right = &bpe->spans[pair->right];
        const char *begin = bpe->blob + left->begin, *next = bpe->blob + right->begin;
        const size_t last = last_char(begin, left->bytes);
        const int32_t left_length = mics_utf8_char(begin + last, left->bytes - last);
        const int32_t right_length = mics_utf8_char(next, right->bytes);
        // What stands for other characters than its own joins where its spelling does not say.
        if (pair->left == bpe->unknown || pair->right == bpe->unknown ||
            (bpe->has_bytes && (mics_bpe_byte_of(begin, left->bytes) >= 0 ||
                                mics_bpe_byte_of(next, right->bytes) >= 0))) {
            mics_free(bpe->memory, bpe->joints);
            bpe->joints = NULL;
            return MICS_OK;
        }
        const uint64_t key = joint_key(mics_utf8_code(begin + last, left_length),
                                       mics_utf8_code(next, right_length));
        bpe->joints[joint_slot(bpe, key)] = key;
    }
    return MICS_OK;
}

bool mics_bpe_is_cut(const mics_bpe *bpe, const char *text, size_t bytes, size_t at)
{
    if (bpe->joints == NULL)
        return false;
    const size_t last = last_char(text, at);
    const int32_t left = mics_utf8_char(text + last, at - last);
    const int32_t right = mics_utf8_char(text + at, bytes - at);
    if (left <= 0 || right <= 0 || (size_t)left != at - last)
        return false;
    if (!bpe->has_bytes) {
        // A character that is no token may be left out, or be one unknown token with the next.
        const bool knows_left = mics_bpe_find_word(bpe, text + last, (size_t)left) >= 0;
        const bool knows_right = mics_bpe_find_word(bpe, text + at, (size_t)right) >= 0;
        if (bpe->unknown < 0 ? !knows_left || !knows_right
                             : bpe->fuse_unknown && !knows_left && !knows_right)
            return false;
    }
    const uint64_t key =
        joint_key(mics_utf8_code(text + last, left), mics_utf8_code(text + at, right));
    return bpe->joints[joint_slot(bpe, key)] == 0;
}
