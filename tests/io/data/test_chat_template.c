// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Chat templates: what jinja2 and transformers make of those of tools/make_template_golden.py, what
// errors say, limits, and memory that runs out.
#include "base/watched.h"
#include "io/data/chats/template/template.h"
#include "test.h"
#include <stdlib.h>

static const mics_json *golden;

static const mics_json_value *load(void)
{
    mics_json *json = NULL;
    ASSERT_OK(mics_json_load(memory, MICS_TEST_DATA "/chat_templates/cases.json", 1 << 20, &json));
    golden = json;
    return mics_json_root(json);
}

static mics_template_input input_of(const mics_json_value *root, const mics_json_value *name,
                                    mics_template_string strings[8])
{
    const mics_json_value *of =
        mics_json_get(mics_json_get(root, "inputs"), mics_json_string(name));
    const mics_json_value *texts = mics_json_get(of, "strings");
    mics_template_input input = {
        .messages = mics_json_get(of, "messages"),
        .tools = mics_json_get(of, "tools"),
        .documents = mics_json_get(of, "documents"),
        .variables = mics_json_get(of, "variables"),
        .strings = strings,
        .add_generation_prompt = mics_json_bool(mics_json_get(of, "add_generation_prompt")),
        .now_s = mics_json_int(mics_json_get(root, "now_s")),
    };
    const char *key = NULL;
    const mics_json_value *text = mics_json_next(texts, &key);
    for (; text != NULL; text = mics_json_next(texts, &key))
        strings[input.string_count++] = (mics_template_string){key, mics_json_string(text)};
    return input;
}

static mics_status compile(const char *text, mics_template **template_out)
{
    return mics_template_compile(memory, "t.jinja", text, strlen(text), NULL, template_out);
}

static void check_text(const mics_json_value *of, const mics_buffer *text,
                       const mics_template_spans *spans)
{
    const mics_json_value *wanted = mics_json_get(of, "text"), *places = mics_json_get(of, "spans");
    const char *template = mics_json_string(mics_json_get(of, "template"));
    const size_t bytes = mics_json_string_bytes(wanted);
    if (text->bytes != bytes + 1 || memcmp(text->data + 1, mics_json_string(wanted), bytes) != 0)
        fail_msg("%s\ngave %.*s\nand not %s", template, (int)text->bytes - 1, text->data + 1,
                 mics_json_string(wanted));
    assert_int_equal(spans->count, mics_json_count(places));
    for (int32_t i = 0; i < mics_json_count(places); i++) {
        const mics_json_value *place = mics_json_element(places, i);
        assert_int_equal(spans->list[i].begin, 1 + mics_json_int(mics_json_element(place, 0)));
        assert_int_equal(spans->list[i].end, 1 + mics_json_int(mics_json_element(place, 1)));
    }
}

// Behind a byte that is there before, so that offsets are those of the buffer.
static void check_case(const mics_json_value *root, const mics_json_value *of)
{
    const mics_json_value *source = mics_json_get(of, "template");
    const bool raises = mics_json_get(of, "error") != NULL;
    mics_template_string strings[8];
    const mics_template_input input = input_of(root, mics_json_get(of, "input"), strings);
    mics_template *template = NULL;
    mics_buffer text = {.memory = memory};
    mics_template_spans spans = {.memory = memory};
    const int errors = seen.errors;
    ASSERT_OK(mics_buffer_append(&text, "^", 1));
    mics_status status = mics_template_compile(memory, "t.jinja", mics_json_string(source),
                                               mics_json_string_bytes(source), NULL, &template);
    if (status == MICS_OK)
        status = mics_template_render(template, &input, &text, &spans);
    if (raises != (status != MICS_OK) || seen.errors != errors + (raises ? 1 : 0))
        fail_msg("%s: %s, but jinja2 %s (%s)", mics_json_string(source), mics_status_name(status),
                 raises ? "raises" : "does not", seen.line);
    if (raises)
        assert_int_equal(text.bytes, 1);
    else
        check_text(of, &text, &spans);
    mics_template_free(template);
    mics_buffer_fini(&text);
    mics_template_spans_fini(&spans);
}

static void test_golden(void **state)
{
    (void)state;
    const mics_json_value *root = load(), *cases = mics_json_get(root, "cases");
    assert_true(mics_json_count(cases) > 200);
    for (int32_t i = 0; i < mics_json_count(cases); i++)
        check_case(root, mics_json_element(cases, i));
    mics_json_close((mics_json *)golden);
}

// ---- errors ----

static const struct {
    const char *text;
    mics_status status;
    const char *said;
} refused[] = {
    {"a\n\n{{ 'x' | foo }}", MICS_ERR_UNSUPPORTED,
     "t.jinja:3: filter 'foo' is not known here; known are capitalize, "},
    {"{{ 1 is foo }}", MICS_ERR_UNSUPPORTED, "test 'foo' is not known here; known are boolean, "},
    {"{% include 'x' %}", MICS_ERR_UNSUPPORTED,
     "t.jinja:1: the statement 'include' is not known here; known are if, "},
    {"{% extends 'x' %}", MICS_ERR_UNSUPPORTED, "'extends' is not known here"},
    {"{% for x in y recursive %}{% endfor %}", MICS_ERR_UNSUPPORTED, "a recursive loop"},
    {"{% macro f() %}{{ varargs }}{% endmacro %}", MICS_ERR_UNSUPPORTED, "varargs and kwargs"},
    {"{% if x %}", MICS_ERR_FORMAT, "elif|else|endif is expected here, and not the template's end"},
    {"\n{{ 1 + }}", MICS_ERR_FORMAT, "t.jinja:2: a value is expected here, and not }}"},
    {"{{ 'x", MICS_ERR_FORMAT, "a string has no end"},
    {"{{ 99999999999999999999 }}", MICS_ERR_FORMAT, "the number 99999999999999999999"},
    {"{% set a.b.c = 1 %}", MICS_ERR_FORMAT, "is expected here, and not ."},
    {"\n{{ raise_exception('two\nlines') }}", MICS_ERR_INVALID,
     "t.jinja:2: the template raised: two lines"},
    {"{% if true %}\n{{ messages[0].x.y }}{% endif %}", MICS_ERR_INVALID,
     "t.jinja:2: 'messages' is"},
    {"{{ [1].append(2) }}", MICS_ERR_INVALID, "it changes what a chat holds"},
    {"{{ joiner(',') }}", MICS_ERR_INVALID, "'joiner' is undefined"},
    {"{{ 'a'.strip(b=1) }}", MICS_ERR_INVALID, "strip has no argument 'b' here"},
    {"{{ 'a'.split('a', 1, 2) }}", MICS_ERR_INVALID, "split takes 2 arguments here, and not 3"},
    {"{{ '%s' % 'x' }}", MICS_ERR_UNSUPPORTED, "a string % values is not known here"},
    {"{{ 9223372036854775807 + 1 }}", MICS_ERR_UNSUPPORTED, "an integer is beyond 64 bits"},
    {"{{ [1] | map('string') }}", MICS_ERR_INVALID, "a generator has no text; make a list"},
    {"{{ range }}", MICS_ERR_INVALID, "a function has no text"},
    {"{{ strftime_now('%Q') }}", MICS_ERR_UNSUPPORTED, "strftime_now() knows no %Q here"},
    {"{{ '\\ufb01' | upper }}", MICS_ERR_UNSUPPORTED, "U+FB01 has no simple upper case here"},
    {"{% set x %}{% generation %}a{% endgeneration %}{% endset %}", MICS_ERR_UNSUPPORTED,
     "where its text goes is not known"},
};

static void test_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const mics_template_input input = {0};
        mics_template *template = NULL;
        mics_buffer text = {.memory = memory};
        mics_template_spans spans = {.memory = memory};
        const int errors = seen.errors;
        mics_status status = compile(refused[i].text, &template);
        if (status == MICS_OK)
            status = mics_template_render(template, &input, &text, &spans);
        if (status != refused[i].status || seen.errors != errors + 1 ||
            strstr(seen.line, refused[i].said) == NULL)
            fail_msg("%s: %s: %s", refused[i].text, mics_status_name(status), seen.line);
        mics_template_free(template);
        mics_buffer_fini(&text);
        mics_template_spans_fini(&spans);
    }
}

// ---- limits ----

static void check_limit(const char *source, mics_template_limits limits, const char *said)
{
    const mics_template_input input = {.limits = limits};
    mics_template *template = NULL;
    mics_buffer text = {.memory = memory};
    mics_status status = mics_template_compile(memory, "t.jinja", source, strlen(source),
                                               limits.depth < 200 ? &limits : NULL, &template);
    if (status == MICS_OK)
        status = mics_template_render(template, &input, &text, NULL);
    assert_int_equal(status, said != NULL ? MICS_ERR_INVALID : MICS_OK);
    if (said != NULL && strstr(seen.line, said) == NULL)
        fail_msg("%s: %s", source, seen.line);
    mics_template_free(template);
    mics_buffer_fini(&text);
}

static void test_limits(void **state)
{
    (void)state;
    const char *loop = "{% for i in range(1000) %}{{ i }}{% endfor %}";
    const char *grow = "{% set n = namespace(s='x') %}{% for i in range(40) %}"
                       "{% set n.s = n.s + n.s %}{% endfor %}";
    const char *deep = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
    const char *nest = "{% set n = namespace(l=[]) %}{% for i in range(3000) %}"
                       "{% set n.l = [n.l] %}{% endfor %}{{ n.l }}";
    const mics_template_limits none = {.depth = 1000};
    check_limit(loop, none, NULL);
    check_limit(loop, (mics_template_limits){.steps = 1000, .depth = 1000}, "the limit of steps");
    check_limit(loop, (mics_template_limits){.output_bytes = 2889, .depth = 1000},
                "writes more than 2889 bytes, the limit of output");
    check_limit(loop, (mics_template_limits){.output_bytes = 2890, .depth = 1000}, NULL);
    check_limit(grow, (mics_template_limits){.memory_bytes = 1 << 20, .depth = 1000},
                "the limit of memory");
    check_limit(grow, none, "the limit of output");
    check_limit(deep, none, "the limit of depth");
    check_limit(nest, none, "the limit of depth");
    check_limit("{{ 'xxxxxxxxxxxxxxxx' * 99999999 }}", none, "the limit of output");
    check_limit("{{ ((((((((((1)))))))))) }}", (mics_template_limits){.depth = 12}, "of depth");
}

// What is long, and not nested by brackets, is nested as a tree all the same.
static void test_long(void **state)
{
    (void)state;
    static const struct {
        const char *head, *part, *tail, *said;
    } parts[] = {{"{{ 1", " < 2", " }}", "the limit of depth"},
                 {"{{ 1", " + 2", " }}", "the limit of depth"},
                 {"{{ 'a'", ".strip()", " }}", "the limit of depth"},
                 {"{{ 'a'", "|trim", " }}", "the limit of depth"},
                 {"{{ ", "not ", "1 }}", "the limit of depth"},
                 {"{{ ", "-", "1 }}", "the limit of depth"},
                 {"{{ ", "[", "1 }}", "brackets in each other"},
                 {"{% if x %}", "{% elif x %}", "{% endif %}", "the limit of depth"},
                 {"", "{% if x %}", "", "the limit of depth"},
                 {"{{ 'a'", " 'b'", " }}", NULL},
                 {"{{ [1", ", 1", "] | length }}", NULL}};
    enum { TIMES = 20000 };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const size_t bytes = strlen(parts[i].part);
        char *text = malloc(TIMES * bytes + 64);
        assert_non_null(text);
        size_t used = (size_t)sprintf(text, "%s", parts[i].head);
        for (int n = 0; n < TIMES; n++, used += bytes)
            memcpy(text + used, parts[i].part, bytes);
        strcpy(text + used, parts[i].tail);
        check_limit(text, (mics_template_limits){.depth = 1000}, parts[i].said);
        free(text);
    }
}

// Every allocation fails once; what was made until then is given back.
static void test_memory(void **state)
{
    (void)state;
    const char *source = "{% macro f(a) %}{{ a | upper }}{% endmacro %}{% for i in range(900) %}"
                         "{% generation %}{{ f('x' ~ i) }}{% endgeneration %}{% endfor %}";
    mics_status status = MICS_ERR_MEMORY;
    for (int64_t n = 1; status != MICS_OK; n++) {
        const mics_template_input input = {0};
        mics_template *template = NULL;
        mics_buffer text = {.memory = memory};
        mics_template_spans spans = {.memory = memory};
        mics_memory_fail_after(memory, n);
        status = compile(source, &template);
        if (status == MICS_OK) {
            assert_true(mics_template_has_generation(template));
            status = mics_template_render(template, &input, &text, &spans);
        }
        assert_true(status == MICS_OK || (status == MICS_ERR_MEMORY && text.bytes == 0));
        assert_int_equal(spans.count, status == MICS_OK ? 900 : 0);
        mics_memory_fail_after(memory, 0);
        mics_template_free(template);
        mics_buffer_fini(&text);
        mics_template_spans_fini(&spans);
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_setup_teardown(test_golden, setup, teardown),
        cmocka_unit_test_setup_teardown(test_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
