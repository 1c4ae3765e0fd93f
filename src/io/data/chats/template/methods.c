// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Methods of strings, dicts, lists and loops, and how members of values are found.
#include "io/data/chats/template/functions.h"
#include "io/data/chats/template/text.h"
#include <string.h>

mics_value mics_call_text(mics_call *call, int index)
{
    if (!mics_is_string(call->arg[index]))
        mics_value_raise(call->work, "is no str, which is needed here", call->arg[index]);
    return call->arg[index];
}

int64_t mics_call_int(mics_call *call, int index, int64_t otherwise)
{
    const mics_value value = call->arg[index];
    if (value.type == MICS_VALUE_ABSENT || value.type == MICS_VALUE_NONE)
        return otherwise;
    if (value.type != MICS_VALUE_INT && value.type != MICS_VALUE_BOOL)
        mics_value_raise(call->work, "is no int, which is needed here", value);
    return mics_integer(value);
}

// ---- strings ----

enum { LEFT = 1, RIGHT = 2 };

static mics_value strip(mics_call *call)
{
    const int sides = call->function->detail;
    return mics_text_strip(call->self, call->arg[0], (sides & LEFT) != 0, (sides & RIGHT) != 0);
}

static mics_value change_case(mics_call *call)
{
    return mics_text_case(call->work, call->self, (mics_case)call->function->detail);
}

// The next place to split at or behind `from`: a separator, or white space; *end_out: behind it.
static size_t find_split(mics_call *call, size_t from, size_t *end_out)
{
    const mics_value self = call->self;
    size_t at = from, length = 0;
    if (mics_is_string(call->arg[0])) {
        at = mics_text_find(self, call->arg[0], from);
        *end_out = at + call->arg[0].bytes;
        return at;
    }
    while (at < self.bytes &&
           (mics_letter(self.text + at, self.bytes - at, &length) & MICS_LETTER_SPACE) == 0)
        at += length;
    *end_out = self.bytes -
               mics_text_strip(mics_text_part(self, at, self.bytes), MICS_NONE, true, false).bytes;
    return at < self.bytes ? at : SIZE_MAX;
}

static mics_value split(mics_call *call)
{
    const bool spaces = !mics_is_string(call->arg[0]);
    const mics_value parts = mics_list(call->work, MICS_VALUE_LIST);
    size_t begin = 0, end = 0;
    if (spaces && call->arg[0].type > MICS_VALUE_NONE)
        (void)mics_call_text(call, 0);
    if (!spaces && call->arg[0].bytes == 0)
        mics_work_raise(call->work, MICS_ERR_INVALID, "split() has an empty separator");
    if (spaces)
        call->self = mics_text_strip(call->self, MICS_NONE, true, false);
    for (int64_t most = mics_call_int(call, 1, -1); most != 0; most--) {
        const size_t at = find_split(call, begin, &end);
        if (at == SIZE_MAX)
            break;
        mics_list_add(call->work, parts, mics_text_part(call->self, begin, at));
        begin = end;
    }
    if (!spaces || begin < call->self.bytes)
        mics_list_add(call->work, parts, mics_text_part(call->self, begin, call->self.bytes));
    return parts;
}

// The parts that are beyond `maxsplit` from the right stay one.
static mics_value rsplit(mics_call *call)
{
    const int64_t most = mics_call_int(call, 1, -1);
    const mics_value self = call->self, text = mics_call_text(call, 0);
    call->arg[1] = MICS_NONE;
    const mics_value parts = split(call), kept = mics_list(call->work, MICS_VALUE_LIST);
    const int64_t merged = most < 0 ? 0 : parts.list->count - 1 - most;
    for (int64_t i = merged > 0 ? merged : 0; i < parts.list->count; i++) {
        const mics_value part = parts.list->items[i];
        const size_t end = (size_t)(part.text - self.text) + part.bytes;
        mics_list_add(call->work, kept, i == merged ? mics_text_part(self, 0, end) : part);
    }
    return text.bytes > 0 ? kept : parts;
}

static mics_value splitlines(mics_call *call)
{
    return mics_text_lines(call->work, call->self);
}

// startswith, endswith: of one text, or any of a tuple.
static mics_value has_affix(mics_call *call)
{
    const mics_value part = call->arg[0];
    const bool many = part.type == MICS_VALUE_TUPLE;
    bool has = false;
    for (int64_t i = 0; !has && i < (many ? part.list->count : 1); i++) {
        call->arg[0] = many ? part.list->items[i] : part;
        const mics_value text = mics_call_text(call, 0);
        has = call->function->detail == LEFT ? mics_text_begins(call->self, text)
                                             : mics_text_has_end(call->self, text);
    }
    return MICS_BOOL(has);
}

static mics_value remove_affix(mics_call *call)
{
    const bool has = mics_value_truth(has_affix(call)), left = call->function->detail == LEFT;
    const size_t cut = has ? call->arg[0].bytes : 0, bytes = call->self.bytes;
    return mics_text_part(call->self, left ? cut : 0, left ? bytes : bytes - cut);
}

static mics_value replace(mics_call *call)
{
    return mics_text_replace(call->work, call->self, mics_call_text(call, 0),
                             mics_call_text(call, 1), mics_call_int(call, 2, -1));
}

// find, rfind, count: the first place, the last place, the number of places.
enum { FIND, RFIND, COUNT };

static mics_value find(mics_call *call)
{
    const mics_value needle = mics_call_text(call, 0), self = call->self;
    const int what = call->function->detail;
    size_t found = SIZE_MAX, step = what == COUNT && needle.bytes > 0 ? needle.bytes : 1;
    int64_t count = 0;
    if (what == COUNT && needle.bytes == 0)
        return MICS_INT(mics_text_count(self) + 1);
    for (size_t at = 0; (at = mics_text_find(self, needle, at)) != SIZE_MAX; at += step) {
        mics_work_spend(call->work, 1);
        found = at;
        count++;
        if (what == FIND)
            break;
    }
    if (what == COUNT)
        return MICS_INT(count);
    return MICS_INT(found == SIZE_MAX ? -1 : mics_text_count(mics_text_part(self, 0, found)));
}

static mics_value join(mics_call *call)
{
    const mics_value_list *items = mics_value_items(call->work, call->arg[0]);
    const size_t mark = call->work->out->bytes;
    for (int64_t i = 0; i < items->count; i++) {
        mics_work_write(call->work, call->self.text, i > 0 ? call->self.bytes : 0);
        call->arg[0] = items->items[i];
        mics_print(call->work, mics_call_text(call, 0));
    }
    return mics_work_cut(call->work, mark);
}

// isdigit, isalpha, ...: whether all characters, and one at least, have a bit of `detail`.
static mics_value is_made_of(mics_call *call)
{
    const mics_value self = call->self;
    size_t at = 0, length = 0;
    while (at < self.bytes &&
           (mics_letter(self.text + at, self.bytes - at, &length) & call->function->detail) != 0)
        at += length;
    return MICS_BOOL(at > 0 && at == self.bytes);
}

// format: {} and {0} and {name} alone.
static mics_value format(mics_call *call)
{
    mics_work *work = call->work;
    const size_t mark = work->out->bytes;
    const mics_value self = call->self;
    int64_t next = 0;
    for (size_t at = 0; at < self.bytes; at++) {
        const char c = self.text[at];
        const bool twice = at + 1 < self.bytes && self.text[at + 1] == c;
        if ((c != '{' && c != '}') || twice) {
            mics_work_write(work, &c, 1);
            at += (c == '{' || c == '}') && twice;
            continue;
        }
        const size_t end = mics_text_find(self, MICS_LITERAL("}"), at);
        const mics_value name = mics_text_part(self, at + 1, end == SIZE_MAX ? at + 1 : end);
        const mics_value *found = mics_dict_get(work, call->given.named, name);
        if (name.bytes == 1 && *name.text >= '0' && *name.text <= '9')
            next = *name.text - '0';
        if (name.bytes <= 1 && found == NULL && next < call->given.list.list->count)
            found = &call->given.list.list->items[next++];
        if (c == '}' || end == SIZE_MAX || found == NULL)
            mics_work_raise(work, MICS_ERR_UNSUPPORTED, "format() knows no {%.*s} here",
                            MICS_SHOWN(name));
        mics_print(work, *found);
        at = end;
    }
    return mics_work_cut(work, mark);
}

// ---- dicts, lists, loops ----

static mics_value get(mics_call *call)
{
    const mics_value *found = mics_dict_get(call->work, call->self, call->arg[0]);
    return found != NULL                            ? *found
           : call->arg[1].type != MICS_VALUE_ABSENT ? call->arg[1]
                                                    : MICS_NONE;
}

enum { KEYS, VALUES, ITEMS };

static mics_value view(mics_call *call)
{
    static const char *const labels[] = {"dict_keys", "dict_values", "dict_items"};
    const int what = call->function->detail;
    const mics_value result = mics_list(call->work, MICS_VALUE_VIEW);
    result.list->label = labels[what];
    for (int64_t i = 0; i < call->self.list->count; i += 2) {
        const mics_value *pair = &call->self.list->items[i];
        mics_value item = pair[what == KEYS ? 0 : 1];
        if (what == ITEMS) {
            item = mics_list(call->work, MICS_VALUE_TUPLE);
            mics_list_add(call->work, item, pair[0]);
            mics_list_add(call->work, item, pair[1]);
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
        const bool same = mics_value_same(call->work, call->self.list->items[i], call->arg[0]);
        if (same && call->function->detail == FIND)
            return MICS_INT(i);
        count += same;
    }
    if (call->function->detail == FIND)
        mics_work_raise(call->work, MICS_ERR_INVALID, "index(): the item is not in the list");
    return MICS_INT(count);
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
        mics_value name, value;
    } members[] = {
        {MICS_LITERAL("index"), MICS_INT(at + 1)},
        {MICS_LITERAL("index0"), MICS_INT(at)},
        {MICS_LITERAL("revindex"), MICS_INT(count - at)},
        {MICS_LITERAL("revindex0"), MICS_INT(count - at - 1)},
        {MICS_LITERAL("first"), MICS_BOOL(at == 0)},
        {MICS_LITERAL("last"), MICS_BOOL(at == count - 1)},
        {MICS_LITERAL("length"), MICS_INT(count)},
        {MICS_LITERAL("depth"), MICS_INT(1)},
        {MICS_LITERAL("depth0"), MICS_INT(0)},
        {MICS_LITERAL("previtem"),
         at > 0 ? loop->items->items[at - 1] : MICS_UNDEFINED("previtem", 8)},
        {MICS_LITERAL("nextitem"),
         at + 1 < count ? loop->items->items[at + 1] : MICS_UNDEFINED("nextitem", 8)},
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (members[i].name.bytes == name.bytes && mics_text_begins(members[i].name, name))
            return members[i].value;
    }
    return (mics_value){0};
}

// ---- members ----

#define REFUSED "a method that is not allowed: it changes what a chat holds"

const mics_function mics_methods[] = {
    {"strip", strip, MICS_IS_OF_STRING, 0, "chars", LEFT | RIGHT},
    {"lstrip", strip, MICS_IS_OF_STRING, 0, "chars", LEFT},
    {"rstrip", strip, MICS_IS_OF_STRING, 0, "chars", RIGHT},
    {"upper", change_case, MICS_IS_OF_STRING, 0, "", MICS_CASE_UPPER},
    {"lower", change_case, MICS_IS_OF_STRING, 0, "", MICS_CASE_LOWER},
    {"capitalize", change_case, MICS_IS_OF_STRING, 0, "", MICS_CASE_CAPITALIZE},
    {"title", change_case, MICS_IS_OF_STRING, 0, "", MICS_CASE_TITLE},
    {"split", split, MICS_IS_OF_STRING, 0, "sep maxsplit", 0},
    {"rsplit", rsplit, MICS_IS_OF_STRING, 1, "sep maxsplit", 0},
    {"splitlines", splitlines, MICS_IS_OF_STRING, 0, "", 0},
    {"startswith", has_affix, MICS_IS_OF_STRING, 1, "prefix", LEFT},
    {"endswith", has_affix, MICS_IS_OF_STRING, 1, "suffix", RIGHT},
    {"removeprefix", remove_affix, MICS_IS_OF_STRING, 1, "prefix", LEFT},
    {"removesuffix", remove_affix, MICS_IS_OF_STRING, 1, "suffix", RIGHT},
    {"replace", replace, MICS_IS_OF_STRING, 2, "old new count", 0},
    {"find", find, MICS_IS_OF_STRING, 1, "sub", FIND},
    {"rfind", find, MICS_IS_OF_STRING, 1, "sub", RFIND},
    {"count", find, MICS_IS_OF_STRING, 1, "sub", COUNT},
    {"join", join, MICS_IS_OF_STRING, 1, "iterable", 0},
    {"format", format, MICS_IS_OF_STRING, 0, "*", 0},
    {"isdigit", is_made_of, MICS_IS_OF_STRING, 0, "", MICS_LETTER_DIGIT},
    {"isalpha", is_made_of, MICS_IS_OF_STRING, 0, "", MICS_LETTER_ALPHA},
    {"isalnum", is_made_of, MICS_IS_OF_STRING, 0, "", MICS_LETTER_ALPHA | MICS_LETTER_DIGIT},
    {"isspace", is_made_of, MICS_IS_OF_STRING, 0, "", MICS_LETTER_SPACE},
    {"get", get, MICS_IS_OF_DICT, 1, "key default", 0},
    {"keys", view, MICS_IS_OF_DICT, 0, "", KEYS},
    {"values", view, MICS_IS_OF_DICT, 0, "", VALUES},
    {"items", view, MICS_IS_OF_DICT, 0, "", ITEMS},
    {"copy", copy, MICS_IS_OF_DICT | MICS_IS_OF_LIST, 0, "", 0},
    {"index", look_for, MICS_IS_OF_LIST, 1, "value", FIND},
    {"count", look_for, MICS_IS_OF_LIST, 1, "value", COUNT},
    {"cycle", cycle, MICS_IS_OF_LOOP, 0, "*", 0},
    {"append", NULL, MICS_IS_OF_LIST, 0, REFUSED, 0},
    {"extend", NULL, MICS_IS_OF_LIST, 0, REFUSED, 0},
    {"insert", NULL, MICS_IS_OF_LIST, 0, REFUSED, 0},
    {"remove", NULL, MICS_IS_OF_LIST, 0, REFUSED, 0},
    {"reverse", NULL, MICS_IS_OF_LIST, 0, REFUSED, 0},
    {"sort", NULL, MICS_IS_OF_LIST, 0, REFUSED, 0},
    {"pop", NULL, MICS_IS_OF_LIST | MICS_IS_OF_DICT, 0, REFUSED, 0},
    {"clear", NULL, MICS_IS_OF_LIST | MICS_IS_OF_DICT, 0, REFUSED, 0},
    {"popitem", NULL, MICS_IS_OF_DICT, 0, REFUSED, 0},
    {"setdefault", NULL, MICS_IS_OF_DICT, 0, REFUSED, 0},
    {"update", NULL, MICS_IS_OF_DICT, 0, REFUSED, 0},
    {NULL, NULL, 0, 0, NULL, 0},
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
    static const int kinds[MICS_VALUE_LOOP + 1] = {[MICS_VALUE_STRING] = MICS_IS_OF_STRING,
                                                   [MICS_VALUE_DICT] = MICS_IS_OF_DICT,
                                                   [MICS_VALUE_LIST] = MICS_IS_OF_LIST,
                                                   [MICS_VALUE_LOOP] = MICS_IS_OF_LOOP};
    const mics_function *method = mics_function_among(mics_methods, kinds[value.type], name);
    if (method == NULL)
        return (mics_value){0};
    if (method->run == NULL)
        return MICS_UNDEFINED(method->parameters, strlen(method->parameters));
    mics_bound *bound = mics_work_alloc(work, sizeof *bound);
    *bound = (mics_bound){.function = method, .self = value};
    return (mics_value){.type = MICS_VALUE_FUNCTION, .bound = bound};
}

mics_value mics_value_member(mics_work *work, mics_value value, mics_value name, bool attribute)
{
    mics_value found = {0};
    mics_work_spend(work, 1);
    if (value.type == MICS_VALUE_NAMESPACE) {
        const mics_value *set = mics_dict_get(work, value, name);
        return set != NULL ? *set : MICS_UNDEFINED(name.text, name.bytes);
    }
    if (!attribute || value.type == MICS_VALUE_UNDEFINED)
        found = mics_value_item(work, value, name);
    if (found.type == MICS_VALUE_ABSENT)
        found = method_of(work, value, name);
    if (found.type == MICS_VALUE_ABSENT && value.type == MICS_VALUE_LOOP)
        found = loop_member(value.loop, name);
    if (found.type == MICS_VALUE_ABSENT && attribute)
        found = mics_value_item(work, value, name);
    return found.type != MICS_VALUE_ABSENT ? found : MICS_UNDEFINED(name.text, name.bytes);
}

mics_value mics_value_path(mics_work *work, mics_value value, mics_value path,
                           const mics_value *otherwise)
{
    const mics_value whole = mics_print_str(work, path);
    for (size_t begin = 0, end = 0; begin <= whole.bytes; begin = end + 1) {
        end = mics_text_find(whole, MICS_LITERAL("."), begin);
        end = end == SIZE_MAX ? whole.bytes : end;
        const mics_value name = mics_text_part(whole, begin, end);
        int64_t index = 0;
        size_t digits = 0;
        for (; digits < name.bytes && digits < 9 && strchr("0123456789", name.text[digits]);
             digits++)
            index = 10 * index + (name.text[digits] - '0');
        if (digits < name.bytes || digits == 0)
            value = mics_value_member(work, value, name, false);
        else
            value = mics_value_item(work, value, MICS_INT(index));
        if (value.type == MICS_VALUE_ABSENT)
            value = MICS_UNDEFINED(name.text, name.bytes);
        if (value.type == MICS_VALUE_UNDEFINED && otherwise != NULL)
            value = *otherwise;
    }
    return value;
}
