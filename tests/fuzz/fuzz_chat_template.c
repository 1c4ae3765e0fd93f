// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A chat template, and behind a NUL a chat for it: an object with messages and other variables.
#include "fuzz.h"
#include "io/data/chats/template/template.h"
#include <stdlib.h>
#include <string.h>

static const mics_template_limits limits = {
    .steps = 300000, .memory_bytes = 16 << 20, .output_bytes = 4 << 20, .depth = 500};

static void render(mics_memory *memory, const mics_template *template, const mics_json *chat)
{
    const mics_template_string strings[] = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    const mics_template_input input = {.messages = mics_json_at(chat, "messages"),
                                       .tools = mics_json_at(chat, "tools"),
                                       .variables = mics_json_root(chat),
                                       .strings = strings,
                                       .string_count = 2,
                                       .add_generation_prompt = true,
                                       .limits = limits};
    mics_buffer text = {.memory = memory};
    mics_template_spans spans = {.memory = memory};
    size_t end = 0;
    if (fuzz_good(mics_template_render(template, &input, &text, &spans))) {
        fuzz_check(text.bytes <= limits.output_bytes, "a text beyond its limit");
        for (size_t i = 0; i < spans.count; i++) {
            fuzz_check(spans.list[i].begin >= end && spans.list[i].begin < spans.list[i].end,
                       "spans that are not in order");
            end = spans.list[i].end;
        }
        fuzz_check(end <= text.bytes, "a span beyond the text");
        fuzz_check(spans.count == 0 || mics_template_has_generation(template),
                   "spans of no generation block");
    } else {
        fuzz_check(text.bytes == 0 && spans.count == 0, "a text in spite of an error");
    }
    mics_template_spans_fini(&spans);
    mics_buffer_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mics_memory *memory = fuzz_begin();
    mics_template *template = NULL;
    mics_json *chat = NULL;
    const fuzz_part text = fuzz_take(&data, &bytes);
    const char *json = bytes > 0 ? (const char *)data : "{\"messages\": []}";
    if (fuzz_good(
            mics_template_compile(memory, "input", text.text, text.bytes, &limits, &template)) &&
        fuzz_good(mics_json_parse(memory, "chat", json, bytes > 0 ? bytes : strlen(json), &chat)))
        render(memory, template, chat);
    mics_json_close(chat);
    mics_template_free(template);
    free(text.text);
    fuzz_end(memory);
    return 0;
}
