// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Compiling and rendering: where errors of a template arrive.
#include "io/data/chats/template/template.h"
#include "base/free.h"
#include "io/data/chats/template/tree.h"
#include <locale.h>
#include <string.h>

struct mics_template {
    mics_memory *memory;
    char *name, *text;
    mics_work work; // its arena holds the tree
    const mics_node *body;
    bool has_generation;
};

// Numbers have points and days are English, whatever locale the program has set. The "C" locale is
// glibc's own, which nobody frees.
static locale_t set_plain_locale(void)
{
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

// Functions with setjmp have no variables of their own that change behind it.
static mics_status parse(mics_template *self, size_t bytes)
{
    if (setjmp(self->work.failed) == 0)
        self->body = mics_template_parse(
            &self->work, mics_template_scan(&self->work, self->text, bytes), &self->has_generation);
    return self->work.status;
}

static mics_status compile(mics_template *self, size_t bytes)
{
    mics_buffer out = {.memory = self->memory};
    const locale_t before = set_plain_locale();
    self->work.out = &out;
    const mics_status status = parse(self, bytes);
    (void)uselocale(before);
    mics_buffer_fini(&out);
    return status;
}

mics_status mics_template_compile(mics_memory *memory, const char *name, const char *text,
                                  size_t bytes, const mics_template_limits *limits,
                                  mics_template **template_out)
{
    mics_template *self = NULL;
    mics_status status = MICS_NEW(memory, 1, &self);
    if (status != MICS_OK)
        return status;
    self->memory = memory;
    MICS_TRY_OUT(mics_strdup(memory, name, &self->name));
    MICS_TRY_OUT(MICS_NEW(memory, bytes + 4, &self->text));
    if (bytes > 0)
        memcpy(self->text, text, bytes);
    mics_work_init(&self->work, memory, self->name, limits);
    MICS_TRY_OUT(compile(self, bytes));
    *template_out = self;
    self = NULL;
out:
    mics_template_free(self);
    return status;
}

void mics_template_free(mics_template *self)
{
    if (self == NULL)
        return;
    mics_work_fini(&self->work);
    MICS_FREE_ALL(self->memory, self->text, self->name, self);
}

bool mics_template_has_generation(const mics_template *self)
{
    return self->has_generation;
}

static void set(mics_work *work, mics_value variables, const char *name, mics_value value)
{
    mics_dict_set(work, variables, MICS_STRING(name, strlen(name)), value);
}

static mics_value messages_of(mics_work *work, const mics_template_input *input)
{
    const mics_value list = mics_list(work, MICS_VALUE_LIST);
    const int32_t count = mics_json_count(input->messages) - input->left_out;
    if (input->left_out == 0)
        return mics_value_of_json(work, input->messages);
    for (int32_t i = 0; i < count; i++)
        mics_list_add(work, list, mics_value_of_json(work, mics_json_element(input->messages, i)));
    return list;
}

static mics_value variables_of(mics_work *work, const mics_template_input *input)
{
    const mics_value all = mics_list(work, MICS_VALUE_DICT);
    for (int32_t i = 0; i < input->string_count; i++) {
        const char *text = input->strings[i].text;
        if (text != NULL)
            set(work, all, input->strings[i].name, MICS_STRING(text, strlen(text)));
    }
    if (input->messages != NULL)
        set(work, all, "messages", messages_of(work, input));
    set(work, all, "tools", mics_value_of_json(work, input->tools));
    set(work, all, "documents", mics_value_of_json(work, input->documents));
    set(work, all, "add_generation_prompt", MICS_BOOL(input->add_generation_prompt));
    const char *name = NULL;
    const mics_json_value *more = mics_json_next(input->variables, &name);
    for (; more != NULL; more = mics_json_next(input->variables, &name))
        set(work, all, name, mics_value_of_json(work, more));
    return all;
}

static mics_status run(mics_work *work, const mics_template *self, const mics_template_input *input,
                       mics_template_spans *spans)
{
    if (setjmp(work->failed) == 0)
        mics_template_run(work, self->body, variables_of(work, input), spans);
    return work->status;
}

mics_status mics_template_render(const mics_template *self, const mics_template_input *input,
                                 mics_buffer *text, mics_template_spans *spans)
{
    mics_work work;
    const size_t bytes = text->bytes, count = spans != NULL ? spans->count : 0;
    const locale_t before = set_plain_locale();
    mics_work_init(&work, self->memory, self->name, &input->limits);
    work.out = text;
    work.out_begin = bytes;
    work.now_s = input->now_s;
    work.line = 1;
    work.chat = input->chat;
    const mics_status status = run(&work, self, input, spans);
    if (status != MICS_OK)
        text->bytes = bytes;
    if (status != MICS_OK && spans != NULL)
        spans->count = count;
    (void)uselocale(before);
    mics_work_fini(&work);
    return status;
}

void mics_template_spans_fini(mics_template_spans *spans)
{
    mics_free(spans->memory, spans->list);
    *spans = (mics_template_spans){.memory = spans->memory};
}
