// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows of chats with templates that tell by blocks what counts, and with others. The first byte
// chooses the template, what counts, and the tokenizer.
#include "fuzz.h"
#include "io/data/chats/chat.h"
#include <stdlib.h>
#include <string.h>

// Turns without generation blocks: the second writes one otherwise once others follow.
#define TURN "'<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n'"
static const char by_prefixes[] =
    "{%- for message in messages %}{{- " TURN " }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";
static const char by_marks[] =
    "{%- if tools %}{{- tools | tojson }}{%- endif %}{%- for message in messages %}"
    "{%- if message.role == 'assistant' and not loop.last and '</think>' in message.content %}"
    "{{- '<|im_start|>assistant\\n' ~ message.content.split('</think>')[-1] | trim ~ "
    "'<|im_end|>\\n' }}"
    "{%- else %}{{- " TURN " }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

static const char config[] = "{\"bos_token\": null, \"eos_token\": \"<|im_end|>\"}";

static mics_memory *kept; // of the tokenizers
static mics_tokenizer *tokenizers[2];

static void close_tokenizers(void)
{
    mics_tokenizer_close(tokenizers[0]);
    mics_tokenizer_close(tokenizers[1]);
    mics_memory_close(kept);
}

static void set_up(void)
{
    fuzz_check(mics_memory_open(&kept) == MICS_OK, "no allocator");
    fuzz_check(mics_tokenizer_open(kept, MICS_TEST_DATA "/chat/qwen2/tokenizer.json",
                                   &tokenizers[0]) == MICS_OK,
               "a tokenizer");
    fuzz_check(mics_tokenizer_open(kept, "bytes", &tokenizers[1]) == MICS_OK, "bytes");
    fuzz_check(atexit(close_tokenizers) == 0, "no atexit");
    fuzz_write("prefixes.jinja", by_prefixes, sizeof by_prefixes - 1);
    fuzz_write("marks.jinja", by_marks, sizeof by_marks - 1);
    fuzz_write("tokenizer_config.json", config, sizeof config - 1);
}

static void check_list(const mics_tokenizer *tokenizer, const mics_chats_spec *spec,
                       const mics_token_list *list)
{
    for (int64_t i = 0; i < list->count; i++) {
        const int32_t token = list->tokens[i] >> MICS_SAMPLE_SHIFT;
        fuzz_check(token >= 0 && token < mics_tokenizer_vocab(tokenizer), "a token's range");
        fuzz_check(((list->tokens[i] & MICS_SAMPLE_BEGINS) != 0) == (i == 0),
                   "a sample begins at its first token");
        fuzz_check(spec->loss_on != MICS_LOSS_ALL || spec->completions ||
                       (list->tokens[i] & MICS_SAMPLE_COUNTS) != 0,
                   "all count");
    }
}

// Twice with one encoder, which must not remember: the second time with the same tokens.
static void encode(mics_memory *memory, const mics_chats_spec *spec, const mics_json_value *row)
{
    mics_chats *chats = NULL;
    mics_encoder encoder = {0};
    mics_token_list lists[2] = {{.memory = memory}, {.memory = memory}};
    bool good[2] = {false, false};
    mics_shard_notes notes = {0};
    fuzz_check(fuzz_good(mics_chats_open(memory, spec, &chats)), "a template");
    fuzz_check(mics_encoder_open(spec->tokenizer, true, &encoder) == MICS_OK, "an encoder");
    for (int turn = 0; turn < 2; turn++) {
        const mics_status status =
            mics_chats_encode(chats, &encoder, "row:1", row, &lists[turn], &notes);
        good[turn] = fuzz_good(status);
        if (good[turn])
            check_list(spec->tokenizer, spec, &lists[turn]);
    }
    fuzz_check(good[0] == good[1], "good once");
    fuzz_check(!good[0] || (lists[0].count == lists[1].count &&
                            (lists[0].count == 0 ||
                             memcmp(lists[0].tokens, lists[1].tokens,
                                    (size_t)lists[0].count * sizeof *lists[0].tokens) == 0)),
               "other tokens");
    mics_token_list_fini(&lists[0]);
    mics_token_list_fini(&lists[1]);
    mics_encoder_fini(&encoder);
    mics_chats_close(chats);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mics_json *json = NULL;
    if (bytes < 2)
        return 0;
    if (kept == NULL)
        set_up();
    const char *const templates[] = {"chatml", fuzz_path("prefixes.jinja"),
                                     fuzz_path("marks.jinja"), "mistral", "alpaca"};
    const size_t template = data[0] % 5, rest = data[0] / 5;
    const mics_chats_spec spec = {.tokenizer = tokenizers[template != 0 && rest % 2],
                                  .folder = fuzz_path(NULL),
                                  .chat_template = templates[template],
                                  .loss_on = (mics_loss_on)(rest / 2 % 3),
                                  .completions = rest / 6 % 2 != 0};
    mics_memory *memory = fuzz_begin();
    if (fuzz_good(mics_json_parse_line(memory, "row:1", (const char *)data + 1, bytes - 1, &json)))
        encode(memory, &spec, mics_json_root(json));
    mics_json_close(json);
    fuzz_end(memory);
    return 0;
}
