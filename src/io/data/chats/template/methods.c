// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Methods of strings, dicts, lists and loops, and how members of values are found.
#include "io/data/chats/template/functions.h"
#include "io/data/chats/template/print.h"
#include "io/data/chats/template/text.h"
#include <string.h>

// ---- arguments ----

mics_value mics_call_text(mics_call *call, int index)
{
    if (!mics_is_string(call->arg[index]))
        mics_work_raise(call->work, MICS_ERR_INVALID, "%s() needs a str, and not a %s",
                        call->function->name, mics_value_type_text(call->arg[index]));
    return call->arg[index];
}

int64_t mics_call_int(mics_call *call, int index, int64_t otherwise)
{
    const mics_value value = call->arg[index];
    if (value.type == MICS_VALUE_ABSENT || value.type == MICS_VALUE_NONE)
        return otherwise;
    if (value.type != MICS_VALUE_INT && value.type != MICS_VALUE_BOOL)
        mics_work_raise(call->work, MICS_ERR_INVALID, "%s() needs an int, and not a %s",
                        call->function->name, mics_value_type_text(value));
    return mics_integer(value);
}

const mics_value_list *mics_call_items(mics_call *call, mics_value of)
{
    const mics_value_list *items = mics_value_items(call->work, of);
    if (items == NULL)
        mics_work_raise(call->work, MICS_ERR_INVALID, "%s: a %s has no items to go through",
                        call->function->name, mics_value_type_text(of));
    return items;
}

// ---- strings ----

static mics_value strip(mics_call *call)
{
    const char side = call->function->name[0];
    return mics_text_strip(call->self, call->arg[0], side != 'r', side != 'l');
}

static mics_value change_case(mics_call *call)
{
    const char first = call->function->name[0];
    return mics_text_case(call->work, call->self,
                          first == 'u'   ? MICS_CASE_UPPER
                          : first == 'l' ? MICS_CASE_LOWER
                          : first == 'c' ? MICS_CASE_CAPITALIZE
                                         : MICS_CASE_TITLE);
}

static mics_value part_of(mics_value text, size_t begin, size_t end)
{
    text.text += begin;
    text.bytes = end - begin;
    return text;
}

// Words between white space.
static mics_value split_words(mics_call *call, int64_t most)
{
    const mics_value words = mics_list(call->work, MICS_VALUE_LIST);
    mics_value rest = mics_text_strip(call->self, mics_none(), true, false);
    while (rest.bytes > 0) {
        size_t at = 0, length = 0;
        while (
            at < rest.bytes &&
            (most == 0 || (mics_letter(mics_text_code(rest.text + at, rest.bytes - at, &length)) &
                           MICS_LETTER_SPACE) == 0))
            at += most == 0 ? rest.bytes : length;
        mics_value word = part_of(rest, 0, at);
        if (most-- == 0)
            word = mics_text_strip(word, mics_none(), false, true);
        mics_list_add(call->work, words, word);
        rest = mics_text_strip(part_of(rest, at, rest.bytes), mics_none(), true, false);
    }
    return words;
}

static mics_value split(mics_call *call)
{
    int64_t most = mics_call_int(call, 1, -1);
    if (!mics_is_string(call->arg[0]))
        return split_words(call, most);
    const mics_value sign = mics_call_text(call, 0), parts = mics_list(call->work, MICS_VALUE_LIST);
    if (sign.bytes == 0)
        mics_work_raise(call->work, MICS_ERR_INVALID, "split() has an empty separator");
    size_t begin = 0;
    for (; most != 0; most--) {
        const size_t at = mics_text_find(call->self, sign, begin);
        if (at == SIZE_MAX)
            break;
        mics_list_add(call->work, parts, part_of(call->self, begin, at));
        begin = at + sign.bytes;
    }
    mics_list_add(call->work, parts, part_of(call->self, begin, call->self.bytes));
    return parts;
}

static mics_value rsplit(mics_call *call)
{
    int64_t most = mics_call_int(call, 1, -1);
    if (most < 0)
        return split(call);
    const mics_value sign = mics_call_text(call, 0), parts = mics_list(call->work, MICS_VALUE_LIST);
    if (sign.bytes == 0)
        mics_work_raise(call->work, MICS_ERR_INVALID, "rsplit() has an empty separator");
    size_t end = call->self.bytes;
    for (; most > 0; most--) {
        const size_t at = mics_text_find_last(call->self, sign, end);
        if (at == SIZE_MAX)
            break;
        mics_list_add(call->work, parts, part_of(call->self, at + sign.bytes, end));
        end = at;
    }
    mics_list_add(call->work, parts, part_of(call->self, 0, end));
    for (int64_t i = 0, j = parts.list->count - 1; i < j; i++, j--) {
        const mics_value item = parts.list->items[i];
        parts.list->items[i] = parts.list->items[j];
        parts.list->items[j] = item;
    }
    return parts;
}

static mics_value splitlines(mics_call *call)
{
    return mics_text_lines(call->work, call->self);
}

// startswith, endswith: of one text, or any of a tuple.
static mics_value has_affix(mics_call *call)
{
    const mics_value part = call->arg[0];
    const bool head = call->function->name[0] == 's', many = part.type == MICS_VALUE_TUPLE;
    bool has = false;
    for (int64_t i = 0; !has && i < (many ? part.list->count : 1); i++) {
        call->arg[0] = many ? part.list->items[i] : part;
        const mics_value text = mics_call_text(call, 0);
        has = head ? mics_text_begins(call->self, text) : mics_text_has_end(call->self, text);
    }
    return mics_bool(has);
}

static mics_value remove_affix(mics_call *call)
{
    const mics_value part = mics_call_text(call, 0), self = call->self;
    if (strcmp(call->function->name, "removeprefix") == 0)
        return mics_text_begins(self, part) ? part_of(self, part.bytes, self.bytes) : self;
    return mics_text_has_end(self, part) ? part_of(self, 0, self.bytes - part.bytes) : self;
}

static mics_value replace(mics_call *call)
{
    return mics_text_replace(call->work, call->self, mics_call_text(call, 0),
                             mics_call_text(call, 1), mics_call_int(call, 2, -1));
}

// find, rfind, index, rindex.
static mics_value find(mics_call *call)
{
    const bool last = call->function->name[0] == 'r';
    const mics_value needle = mics_call_text(call, 0), self = call->self;
    const size_t at =
        last ? mics_text_find_last(self, needle, self.bytes) : mics_text_find(self, needle, 0);
    if (at == SIZE_MAX && strstr(call->function->name, "index") != NULL)
        mics_work_raise(call->work, MICS_ERR_INVALID, "%s(): the text is not there",
                        call->function->name);
    return mics_int(at == SIZE_MAX ? -1 : mics_text_count(self.text, at));
}

static mics_value count_text(mics_call *call)
{
    const mics_value needle = mics_call_text(call, 0), self = call->self;
    int64_t count = 0;
    if (needle.bytes == 0)
        return mics_int(mics_text_count(self.text, self.bytes) + 1);
    for (size_t at = 0; (at = mics_text_find(self, needle, at)) != SIZE_MAX; at += needle.bytes)
        count++;
    return mics_int(count);
}

static mics_value join(mics_call *call)
{
    const mics_value_list *items = mics_call_items(call, call->arg[0]);
    const size_t mark = call->work->out->bytes;
    for (int64_t i = 0; i < items->count; i++) {
        mics_work_write(call->work, call->self.text, i > 0 ? call->self.bytes : 0);
        call->arg[0] = items->items[i];
        mics_print(call->work, mics_call_text(call, 0));
    }
    return mics_work_cut(call->work, mark);
}

// isdigit, isalpha, isalnum, isspace, isupper, islower.
static mics_value is_made_of(mics_call *call)
{
    static const struct {
        const char *name;
        int all, none;
    } tests[] = {{"isdigit", MICS_LETTER_DIGIT, 0},
                 {"isdecimal", MICS_LETTER_DIGIT, 0},
                 {"isalpha", MICS_LETTER_ALPHA, 0},
                 {"isalnum", MICS_LETTER_ALPHA | MICS_LETTER_DIGIT, 0},
                 {"isspace", MICS_LETTER_SPACE, 0},
                 {"isupper", MICS_LETTER_UPPER, MICS_LETTER_LOWER},
                 {"islower", MICS_LETTER_LOWER, MICS_LETTER_UPPER}};
    size_t i = 0;
    while (strcmp(tests[i].name, call->function->name) != 0)
        i++;
    bool some = false, every = true;
    for (size_t at = 0, length = 0; at < call->self.bytes; at += length) {
        const int bits =
            mics_letter(mics_text_code(call->self.text + at, call->self.bytes - at, &length));
        some = some || (bits & tests[i].all) != 0;
        every = every &&
                (tests[i].none != 0 ? (bits & tests[i].none) == 0 : (bits & tests[i].all) != 0);
    }
    return mics_bool(some && every);
}

// ---- dicts, lists, loops ----

static mics_value get(mics_call *call)
{
    const mics_value *found = mics_dict_get(call->work, call->self, call->arg[0]);
    const mics_value otherwise =
        call->arg[1].type == MICS_VALUE_ABSENT ? mics_none() : call->arg[1];
    return found != NULL ? *found : otherwise;
}

// keys, values, items.
static mics_value view(mics_call *call)
{
    const char kind = call->function->name[0];
    const mics_value result = mics_list(call->work, MICS_VALUE_VIEW);
    const mics_value_list *dict = call->self.list;
    result.list->label = kind == 'k' ? "dict_keys" : kind == 'v' ? "dict_values" : "dict_items";
    for (int64_t i = 0; i < dict->count; i += 2) {
        mics_value item = dict->items[kind == 'k' ? i : i + 1];
        if (kind == 'i') {
            item = mics_list(call->work, MICS_VALUE_TUPLE);
            mics_list_add(call->work, item, dict->items[i]);
            mics_list_add(call->work, item, dict->items[i + 1]);
        }
        mics_list_add(call->work, result, item);
    }
    return result;
}

static mics_value copy(mics_call *call)
{
    return call->self;
}

// index and count of lists.
static mics_value look_for(mics_call *call)
{
    int64_t count = 0;
    for (int64_t i = 0; i < call->self.list->count; i++) {
        if (!mics_value_same(call->work, call->self.list->items[i], call->arg[0]))
            continue;
        if (call->function->name[0] == 'i')
            return mics_int(i);
        count++;
    }
    if (call->function->name[0] == 'i')
        mics_work_raise(call->work, MICS_ERR_INVALID, "index(): the item is not in the list");
    return mics_int(count);
}

static mics_value cycle(mics_call *call)
{
    const mics_value_list *values = call->given.list.list;
    if (values->count == 0)
        mics_work_raise(call->work, MICS_ERR_INVALID, "loop.cycle() needs values");
    return values->items[call->self.loop->at % values->count];
}

static mics_value loop_member(const mics_loop *loop, mics_value name)
{
    const int64_t at = loop->at, count = loop->items->count;
    const struct {
        const char *name;
        mics_value value;
    } members[] = {
        {"index", mics_int(at + 1)},
        {"index0", mics_int(at)},
        {"revindex", mics_int(count - at)},
        {"revindex0", mics_int(count - at - 1)},
        {"first", mics_bool(at == 0)},
        {"last", mics_bool(at == count - 1)},
        {"length", mics_int(count)},
        {"depth", mics_int(1)},
        {"depth0", mics_int(0)},
        {"previtem", at > 0 ? loop->items->items[at - 1] : mics_undefined("previtem", 8)},
        {"nextitem", at + 1 < count ? loop->items->items[at + 1] : mics_undefined("nextitem", 8)},
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (strlen(members[i].name) == name.bytes &&
            memcmp(members[i].name, name.text, name.bytes) == 0)
            return members[i].value;
    }
    return (mics_value){0};
}

// ---- members ----

#define CHANGES "a method that is not allowed: it changes what a chat holds"

const mics_function mics_methods[] = {
    {"strip", "chars", strip, MICS_IS_OF_STRING, 0},
    {"lstrip", "chars", strip, MICS_IS_OF_STRING, 0},
    {"rstrip", "chars", strip, MICS_IS_OF_STRING, 0},
    {"upper", "", change_case, MICS_IS_OF_STRING, 0},
    {"lower", "", change_case, MICS_IS_OF_STRING, 0},
    {"capitalize", "", change_case, MICS_IS_OF_STRING, 0},
    {"title", "", change_case, MICS_IS_OF_STRING, 0},
    {"split", "sep maxsplit", split, MICS_IS_OF_STRING, 0},
    {"rsplit", "sep maxsplit", rsplit, MICS_IS_OF_STRING, 0},
    {"splitlines", "", splitlines, MICS_IS_OF_STRING, 0},
    {"startswith", "prefix", has_affix, MICS_IS_OF_STRING, 1},
    {"endswith", "suffix", has_affix, MICS_IS_OF_STRING, 1},
    {"removeprefix", "prefix", remove_affix, MICS_IS_OF_STRING, 1},
    {"removesuffix", "suffix", remove_affix, MICS_IS_OF_STRING, 1},
    {"replace", "old new count", replace, MICS_IS_OF_STRING, 2},
    {"find", "sub", find, MICS_IS_OF_STRING, 1},
    {"rfind", "sub", find, MICS_IS_OF_STRING, 1},
    {"index", "sub", find, MICS_IS_OF_STRING, 1},
    {"rindex", "sub", find, MICS_IS_OF_STRING, 1},
    {"count", "sub", count_text, MICS_IS_OF_STRING, 1},
    {"join", "iterable", join, MICS_IS_OF_STRING, 1},
    {"isdigit", "", is_made_of, MICS_IS_OF_STRING, 0},
    {"isdecimal", "", is_made_of, MICS_IS_OF_STRING, 0},
    {"isalpha", "", is_made_of, MICS_IS_OF_STRING, 0},
    {"isalnum", "", is_made_of, MICS_IS_OF_STRING, 0},
    {"isspace", "", is_made_of, MICS_IS_OF_STRING, 0},
    {"isupper", "", is_made_of, MICS_IS_OF_STRING, 0},
    {"islower", "", is_made_of, MICS_IS_OF_STRING, 0},
    {"get", "key default", get, MICS_IS_OF_DICT, 1},
    {"keys", "", view, MICS_IS_OF_DICT, 0},
    {"values", "", view, MICS_IS_OF_DICT, 0},
    {"items", "", view, MICS_IS_OF_DICT, 0},
    {"copy", "", copy, MICS_IS_OF_DICT | MICS_IS_OF_LIST, 0},
    {"index", "value", look_for, MICS_IS_OF_LIST, 1},
    {"count", "value", look_for, MICS_IS_OF_LIST, 1},
    {"cycle", "*", cycle, MICS_IS_OF_LOOP, 0},
    {"append", CHANGES, NULL, MICS_IS_OF_LIST, 0},
    {"extend", CHANGES, NULL, MICS_IS_OF_LIST, 0},
    {"insert", CHANGES, NULL, MICS_IS_OF_LIST, 0},
    {"remove", CHANGES, NULL, MICS_IS_OF_LIST, 0},
    {"reverse", CHANGES, NULL, MICS_IS_OF_LIST, 0},
    {"sort", CHANGES, NULL, MICS_IS_OF_LIST, 0},
    {"pop", CHANGES, NULL, MICS_IS_OF_LIST | MICS_IS_OF_DICT, 0},
    {"clear", CHANGES, NULL, MICS_IS_OF_LIST | MICS_IS_OF_DICT, 0},
    {"popitem", CHANGES, NULL, MICS_IS_OF_DICT, 0},
    {"setdefault", CHANGES, NULL, MICS_IS_OF_DICT, 0},
    {"update", CHANGES, NULL, MICS_IS_OF_DICT, 0},
    {NULL, NULL, NULL, 0, 0},
};

const mics_function *mics_function_among(const mics_function *part, int kind, mics_value name)
{
    for (; part->name != NULL; part++) {
        if ((part->kinds & kind) != 0 && strlen(part->name) == name.bytes &&
            memcmp(part->name, name.text, name.bytes) == 0)
            return part;
    }
    return NULL;
}

static mics_value method_of(mics_work *work, mics_value value, mics_value name)
{
    const int kind = mics_is_string(value)           ? MICS_IS_OF_STRING
                     : value.type == MICS_VALUE_DICT ? MICS_IS_OF_DICT
                     : value.type == MICS_VALUE_LOOP ? MICS_IS_OF_LOOP
                     : value.type >= MICS_VALUE_LIST && value.type <= MICS_VALUE_RANGE
                         ? MICS_IS_OF_LIST
                         : 0;
    const mics_function *method = mics_function_among(mics_methods, kind, name);
    if (method == NULL)
        return (mics_value){0};
    if (method->run == NULL)
        return mics_undefined(method->parameters, strlen(method->parameters));
    mics_bound *bound = mics_work_alloc(work, sizeof *bound);
    *bound = (mics_bound){.function = method, .self = value};
    return (mics_value){.type = MICS_VALUE_FUNCTION, .bound = bound};
}

mics_value mics_value_member(mics_work *work, mics_value value, mics_value name, bool attribute)
{
    mics_value found = {0};
    mics_work_spend(work, 1);
    if (value.type == MICS_VALUE_UNDEFINED)
        mics_value_raise_undefined(work, value);
    if (value.type == MICS_VALUE_NAMESPACE) {
        const mics_value *set = mics_dict_get(work, value, name);
        return set != NULL ? *set : mics_undefined(name.text, name.bytes);
    }
    if (!attribute)
        found = mics_value_item(work, value, name);
    if (found.type == MICS_VALUE_ABSENT)
        found = method_of(work, value, name);
    if (found.type == MICS_VALUE_ABSENT && value.type == MICS_VALUE_LOOP)
        found = loop_member(value.loop, name);
    if (found.type == MICS_VALUE_ABSENT && attribute)
        found = mics_value_item(work, value, name);
    return found.type != MICS_VALUE_ABSENT ? found : mics_undefined(name.text, name.bytes);
}

mics_value mics_value_path(mics_work *work, mics_value value, mics_value path)
{
    if (!mics_is_string(path)) {
        value = mics_value_item(work, value, path);
        return value.type != MICS_VALUE_ABSENT ? value : mics_undefined("item", 4);
    }
    for (size_t begin = 0, end = 0; begin <= path.bytes; begin = end + 1) {
        end = mics_text_find(path, mics_string(".", 1), begin);
        end = end == SIZE_MAX ? path.bytes : end;
        const mics_value name = part_of(path, begin, end);
        int64_t index = 0;
        size_t digits = 0;
        for (; digits < name.bytes && name.text[digits] >= '0' && name.text[digits] <= '9' &&
               digits < 9;
             digits++)
            index = 10 * index + (name.text[digits] - '0');
        if (digits < name.bytes || digits == 0) {
            value = mics_value_member(work, value, name, false);
            continue;
        }
        value = mics_value_item(work, value, mics_int(index));
        if (value.type == MICS_VALUE_ABSENT)
            value = mics_undefined(name.text, name.bytes);
    }
    return value;
}
