// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A tokenizer_config.json, behind a NUL a special_tokens_map.json, and behind another one a vocab.txt:
// a tokenizer.json is made of them, which must be one.
#include "fuzz.h"
#include "io/data/tokenizer/bpe.h"
#include "io/data/tokenizer/vocab_txt.h"
#include <stdlib.h>
#include <string.h>

static void check(mics_memory *memory, const mics_vocab_txt_beside *beside, const uint8_t *data,
                  size_t bytes)
{
    mics_json *json = NULL;
    mics_bpe *bpe = NULL;
    char *text = malloc(bytes + 1);
    fuzz_check(text != NULL, "no memory for a text");
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (fuzz_good(mics_vocab_txt_parse(memory, "vocab.txt", text, bytes, beside, &json)) &&
        fuzz_good(mics_bpe_load(memory, json, &bpe)))
        fuzz_check(bpe->vocab >= 1, "a vocabulary without tokens");
    mics_bpe_close(bpe);
    mics_json_close(json);
    free(text);
}

// Whether it is absent or JSON.
static bool take(mics_memory *memory, const uint8_t **data, size_t *bytes, mics_json **json_out)
{
    fuzz_part part = fuzz_take(data, bytes);
    const bool good = part.bytes == 0 ||
                      fuzz_good(mics_json_parse(memory, "beside", part.text, part.bytes, json_out));
    free(part.text);
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mics_memory *memory = fuzz_begin();
    mics_json *settings = NULL, *specials = NULL;
    if (take(memory, &data, &bytes, &settings) && take(memory, &data, &bytes, &specials))
        check(memory, &(mics_vocab_txt_beside){settings, specials}, data, bytes);
    mics_json_close(specials);
    mics_json_close(settings);
    fuzz_end(memory);
    return 0;
}
