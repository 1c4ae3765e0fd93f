// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What stands before a prompt, what ends a text, and ids that the model does not have: on a folder
// as Hugging Face has it, with a tokenizer of a few letters.
#include "base/capture.h"
#include "io/checkpoint/scratch.h"
#include "mics/run.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEMPLATE                                                                                   \
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", "        \
    "\"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], "           \
    "\"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [1], \"tokens\": [\"<s>\"]}}}"

typedef struct folder {
    mics_memory *memory;
    scratch place;
    capture seen;
} folder;

// The decoder of a vocabulary of 97, with letters for its ids from 3 on.
static void write_tokenizer(const folder *f, const char *post_processor, int letters)
{
    char text[8192];
    int used = snprintf(
        text, sizeof text,
        "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", \"special\": "
        "true}], \"normalizer\": null, \"pre_tokenizer\": null, \"post_processor\": %s, "
        "\"decoder\": null, \"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"merges\": "
        "[], \"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"</s>\": 2",
        post_processor);
    for (int i = 0; i < letters; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, ", \"%s%c\": %d",
                         i < 52 ? "" : "\xc3",
                         i < 26   ? 'a' + i
                         : i < 52 ? 'A' + i - 26
                                  : 0x80 + i - 52,
                         i + 3);
    used += snprintf(text + used, sizeof text - (size_t)used, "}}}");
    file_write(scratch_path(&f->place, "tokenizer.json"), text, (size_t)used);
}

static int setup(void **state)
{
    static folder f;
    static const char *const names[] = {"config.json", "model.safetensors"};
    f = (folder){0};
    scratch_make_fast(&f.place);
    for (int i = 0; i < 2; i++) {
        char from[512];
        snprintf(from, sizeof from, MICS_TEST_DATA "/llama_grouped/%s", names[i]);
        if (symlink(from, scratch_path(&f.place, names[i])) != 0)
            return 1;
    }
    write_tokenizer(&f, "null", 94);
    capture_begin(&f.seen);
    *state = &f;
    return mics_memory_open(&f.memory) == MICS_OK ? 0 : 1;
}

static int teardown(void **state)
{
    folder *f = *state;
    capture_end();
    scratch_remove(&f->place);
    return mics_memory_close(f->memory) == 0 ? 0 : 1;
}

static mics_status generate(const folder *f, const char *prompt, bool special_tokens,
                            int64_t tokens, char **text_out)
{
    mics_saved *saved = NULL;
    size_t bytes = 0;
    const mics_sampling sampling = {
        .tokens = tokens, .temperature = 1, .seed = 2, .special_tokens = special_tokens};
    MICS_TRY(mics_saved_open(f->memory, f->place.dir, NULL, &saved));
    FILE *out = open_memstream(text_out, &bytes);
    assert_non_null(out);
    mics_status status = mics_saved_load(saved, mics_saved_facts_get(saved).dtype);
    if (status == MICS_OK)
        status = mics_saved_generate(saved, prompt, &sampling, out);
    assert_int_equal(fclose(out), 0);
    mics_saved_close(saved);
    return status;
}

static char *text_of(const folder *f, const char *prompt, bool special_tokens, int64_t tokens)
{
    char *text = NULL;
    ASSERT_OK(generate(f, prompt, special_tokens, tokens, &text));
    return text;
}

// Beyond the model's 48 positions too, where the newer half of a text is fed again.
static void test_template_is_before_the_prompt(void **state)
{
    folder *f = *state;
    enum { TOKENS = 100 };
    static const char *const prompts[] = {"ab", ""};
    for (int i = 0; i < 2; i++) {
        char asked[16];
        snprintf(asked, sizeof asked, "<s>%s", prompts[i]);
        write_tokenizer(f, "null", 94);
        char *bare = text_of(f, prompts[i], false, TOKENS);
        char *written = text_of(f, asked, true, 40);
        char *as_text = text_of(f, asked, false, 40);
        write_tokenizer(f, TEMPLATE, 94);
        char *framed = text_of(f, prompts[i], false, TOKENS);
        assert_string_not_equal(framed, bare);
        assert_memory_equal(framed, written, strlen(written));
        assert_string_not_equal(as_text, written);
        free(bare);
        free(written);
        free(as_text);
        free(framed);
    }
}

// A text ends before the first token of eos_token_id: generation_config.json's, or config.json's.
static void test_ends(void **state)
{
    folder *f = *state;
    char *whole = text_of(f, "lark", false, 12), line[64];
    assert_true(strlen(whole) >= 12);
    // The first plain letter that is not of "<unk>" or "<s>" stands for an end.
    const char *end = strpbrk(whole, "abcdefghijlmopqrtvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    assert_non_null(end);
    const int id = *end >= 'a' ? *end - 'a' + 3 : *end - 'A' + 29;
    static const char *const forms[] = {"{\"eos_token_id\": %d}\n",
                                        "{\"eos_token_id\": [96, %d]}\n"};
    for (int form = 0; form < 2; form++) {
        snprintf(line, sizeof line, forms[form], id);
        file_write(scratch_path(&f->place, "generation_config.json"), line, strlen(line));
        char *ended = text_of(f, "lark", false, 12);
        assert_int_equal(strlen(ended), end - whole);
        free(ended);
    }
    free(whole);
    static const char bad[] = "{\"eos_token_id\": \"</s>\"}";
    char *none = NULL;
    file_write(scratch_path(&f->place, "generation_config.json"), bad, sizeof bad - 1);
    ASSERT_STATUS(MICS_ERR_INVALID, generate(f, "lark", false, 1, &none));
    ASSERT_SAID(&f->seen, "generation_config.json:1: eos_token_id: is neither");
    file_write(scratch_path(&f->place, "generation_config.json"), "[2]", 3);
    ASSERT_STATUS(MICS_ERR_FORMAT, generate(f, "lark", false, 1, &none));
    ASSERT_SAID(&f->seen, "generation_config.json: must be an object");
}

static void test_other_tokenizers(void **state)
{
    folder *f = *state;
    char *none = NULL;
    write_tokenizer(f, "null", 94 + 1);
    ASSERT_STATUS(MICS_ERR_INVALID, generate(f, "a\xc3\xaa", false, 1, &none));
    ASSERT_SAID(&f->seen, "makes token 97 of the prompt, but the model's vocab_size is 97");
    free(none);
    none = NULL;
    write_tokenizer(f, "{\"type\": \"OtherProcessing\", \"sep\": [\"a\", 3], \"cls\": [\"b\", 4]}",
                    94);
    ASSERT_STATUS(MICS_ERR_UNSUPPORTED, generate(f, "a", false, 1, &none));
    ASSERT_SAID(&f->seen, "post_processor: \"OtherProcessing\" is not supported");
    free(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_template_is_before_the_prompt, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_tokenizers, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
