// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// From tokens back to text: the decoders of a tokenizer.json.
//
// All of them but what trims a text's ends treat every token on its own, so the text of each token
// is made once. Bytes that are no UTF-8 stay bytes (Hugging Face's library writes U+FFFD), so what
// was encoded comes back.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The texts of all tokens.
typedef struct mics_bpe_texts {
    char *blob;    // NULL: those that they are encoded from
    size_t *begin; // (vocab + 1) where each begins in the blob
} mics_bpe_texts;

typedef struct mics_bpe_decoder {
    mics_bpe_texts texts;
    mics_bpe_texts head; // of a text's first token, where Metaspace drops what stands for spaces
    char strip[5];       // a character, NUL-terminated: up to `left` of it are taken from the
    int64_t left, right; // beginning of a text, up to `right` from its end
} mics_bpe_decoder;

struct mics_bpe;

/* The text of a token, written to `to` unless that is NULL; `head`: no token precedes it. Returns
 * its bytes. */
size_t mics_bpe_decode(const struct mics_bpe *bpe, int32_t token, bool head, char *to);

/* Takes from both ends what the file wants to be taken: what is left begins at *begin_out. */
void mics_bpe_trim(const mics_bpe_decoder *decoder, const char *text, size_t *bytes,
                   size_t *begin_out);
