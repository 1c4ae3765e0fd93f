// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Filters and tests that need no others.
#include "io/data/chats/template/functions.h"
#include "io/data/chats/template/print.h"
#include "io/data/chats/template/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool flag(const mics_call *call, int index)
{
    return mics_value_truth(call->arg[index]);
}

static bool given(const mics_call *call, int index)
{
    return call->arg[index].type != MICS_VALUE_ABSENT && call->arg[index].type != MICS_VALUE_NONE;
}

static mics_value str(mics_call *call, mics_value value)
{
    return mics_print_str(call->work, value);
}

// ---- texts ----

static mics_value string(mics_call *call)
{
    return str(call, call->self);
}

static mics_value trim(mics_call *call)
{
    return mics_text_strip(str(call, call->self), call->arg[0], true, true);
}

static mics_value change_case(mics_call *call)
{
    const char first = call->function->name[0];
    return mics_text_case(call->work, str(call, call->self),
                          first == 'u'   ? MICS_CASE_UPPER
                          : first == 'l' ? MICS_CASE_LOWER
                          : first == 'c' ? MICS_CASE_CAPITALIZE
                                         : MICS_CASE_WORDS);
}

static mics_value replace(mics_call *call)
{
    return mics_text_replace(call->work, str(call, call->self), str(call, call->arg[0]),
                             str(call, call->arg[1]), mics_call_int(call, 2, -1));
}

static mics_value safe(mics_call *call)
{
    mics_value text = str(call, call->self);
    text.safe = true;
    return text;
}

static mics_value escape(mics_call *call)
{
    return mics_text_escape(call->work, str(call, call->self));
}

static mics_value blanks(mics_call *call, int index, int64_t otherwise)
{
    if (mics_is_string(call->arg[index]))
        return call->arg[index];
    return mics_value_compute(call->work, '*', mics_string(" ", 1),
                              mics_int(mics_call_int(call, index, otherwise)));
}

static mics_value indent(mics_call *call)
{
    const mics_value by = blanks(call, 0, 4), end = mics_string("\n", 1);
    const mics_value text = mics_value_compute(call->work, '+', str(call, call->self), end);
    const mics_value_list *lines = mics_text_lines(call->work, text).list;
    const size_t mark = call->work->out->bytes;
    for (int64_t i = 0; i < lines->count; i++) {
        if (i > 0)
            mics_print(call->work, end);
        if (i > 0 ? lines->items[i].bytes > 0 || flag(call, 2) : flag(call, 1))
            mics_print(call->work, by);
        mics_print(call->work, lines->items[i]);
    }
    return mics_work_cut(call->work, mark);
}

static mics_value tojson(mics_call *call)
{
    mics_json_style style = {.ensure_ascii = flag(call, 0), .pretty = given(call, 1)};
    style.indent = style.pretty ? blanks(call, 1, 0) : mics_none();
    style.comma = style.pretty ? mics_string(",", 1) : mics_string(", ", 2);
    style.colon = mics_string(": ", 2);
    style.sort_keys = flag(call, 3);
    if (given(call, 2)) {
        const mics_value_list *both = mics_call_items(call, call->arg[2]);
        if (both->count != 2 || !mics_is_string(both->items[0]) || !mics_is_string(both->items[1]))
            mics_work_raise(call->work, MICS_ERR_INVALID, "tojson: separators are two texts");
        style.comma = both->items[0];
        style.colon = both->items[1];
    }
    return mics_print_json(call->work, call->self, &style);
}

// ---- numbers ----

static mics_value length(mics_call *call)
{
    const int64_t count = mics_value_length(call->self);
    if (count < 0)
        mics_work_raise(
            call->work, MICS_ERR_INVALID, "a %s has no length%s", mics_value_type_text(call->self),
            call->self.type == MICS_VALUE_ITERATOR ? "; make a list of it by | list" : "");
    return mics_int(count);
}

// int and float: of what is no number the default.
static mics_value number(mics_call *call)
{
    const bool real = call->function->name[0] == 'f';
    const mics_value self = call->self;
    mics_value otherwise = call->arg[0];
    if (otherwise.type == MICS_VALUE_ABSENT)
        otherwise = real ? mics_real(0) : mics_int(0);
    if (self.type == MICS_VALUE_UNDEFINED)
        mics_value_raise_undefined(call->work, self);
    double number = mics_is_number(self) ? mics_number(self) : 0;
    if (!real && (self.type == MICS_VALUE_INT || self.type == MICS_VALUE_BOOL))
        return mics_int(mics_integer(self));
    if (mics_is_string(self)) {
        char digits[64], *end = NULL;
        const mics_value text = mics_text_strip(self, mics_none(), true, true);
        if (text.bytes == 0 || text.bytes >= sizeof digits || memchr(text.text, 'x', text.bytes))
            return otherwise;
        memcpy(digits, text.text, text.bytes);
        digits[text.bytes] = '\0';
        const long long whole = strtoll(digits, &end, 10);
        if (!real && *end == '\0' && text.bytes < 19)
            return mics_int(whole);
        number = strtod(digits, &end);
        if (*end != '\0')
            return otherwise;
    } else if (!mics_is_number(self)) {
        return otherwise;
    }
    if (real)
        return mics_real(number);
    return fabs(number) < 9e18 ? mics_int((int64_t)number) : otherwise;
}

static mics_value absolute(mics_call *call)
{
    const mics_value self = call->self, zero = mics_int(0);
    const bool below = mics_value_order(call->work, self, zero) < 0;
    return mics_value_compute(call->work, below ? '-' : '+', zero, self);
}

static mics_value rounded(mics_call *call)
{
    const int64_t places = mics_call_int(call, 0, 0);
    const mics_value self = call->self;
    char text[400];
    const bool common = !given(call, 1) || mics_call_text(call, 1).bytes == 6; // "common"
    if (!mics_is_number(self) || places < 0 || places > 20)
        mics_work_raise(call->work, MICS_ERR_INVALID, "round needs a number, and 0 to 20 places");
    if (common && self.type != MICS_VALUE_REAL)
        return mics_int(mics_integer(self));
    if (common) {
        snprintf(text, sizeof text, "%.*f", (int)places, self.real);
        return mics_real(strtod(text, NULL));
    }
    const double scale = pow(10, (double)places), scaled = mics_number(self) * scale;
    return mics_real((call->arg[1].bytes == 4 ? ceil(scaled) : floor(scaled)) / scale);
}

// ---- lists ----

static mics_value list_of(mics_call *call, mics_value_type type, const mics_value_list *items)
{
    const mics_value list = mics_list(call->work, type);
    for (int64_t i = 0; i < items->count; i++)
        mics_list_add(call->work, list, items->items[i]);
    return list;
}

static mics_value list(mics_call *call)
{
    return list_of(call, MICS_VALUE_LIST, mics_call_items(call, call->self));
}

static mics_value first(mics_call *call)
{
    mics_value_list *rest = call->self.list;
    if (call->self.type == MICS_VALUE_ITERATOR && rest->count > 0) {
        rest->count--;
        return *rest->items++;
    }
    const mics_value_list *items = mics_call_items(call, call->self);
    return items->count > 0 ? items->items[0] : mics_undefined("first item", 10);
}

static mics_value last(mics_call *call)
{
    (void)length(call); // a generator has no last item
    const mics_value_list *items = mics_call_items(call, call->self);
    return items->count > 0 ? items->items[items->count - 1] : mics_undefined("last item", 9);
}

static mics_value reverse(mics_call *call)
{
    const bool text = mics_is_string(call->self);
    const mics_value_list *items = mics_call_items(call, call->self);
    const size_t mark = call->work->out->bytes;
    const mics_value reversed = mics_list(call->work, MICS_VALUE_ITERATOR);
    for (int64_t i = items->count; i-- > 0;) {
        if (text)
            mics_print(call->work, items->items[i]);
        else
            mics_list_add(call->work, reversed, items->items[i]);
    }
    return text ? mics_work_cut(call->work, mark) : reversed;
}

// By what an item is compared: itself or its attribute, strings without regard to case.
static mics_value key_of(mics_call *call, mics_value item, int cased, int attribute)
{
    if (given(call, attribute))
        item = mics_value_path(call->work, item, call->arg[attribute]);
    return mics_is_string(item) && !flag(call, cased)
               ? mics_text_case(call->work, item, MICS_CASE_LOWER)
               : item;
}

static mics_value sort(mics_call *call)
{
    const mics_value sorted = list(call), keys = mics_list(call->work, MICS_VALUE_LIST);
    for (int64_t i = 0; i < sorted.list->count; i++)
        mics_list_add(call->work, keys, key_of(call, sorted.list->items[i], 1, 2));
    mics_value_sort(call->work, keys.list, sorted.list, flag(call, 0));
    return sorted;
}

static mics_value items(mics_call *call)
{
    const mics_value pairs = mics_list(call->work, MICS_VALUE_ITERATOR);
    const mics_value self = call->self;
    if (self.type != MICS_VALUE_DICT && self.type != MICS_VALUE_UNDEFINED)
        mics_work_raise(call->work, MICS_ERR_INVALID, "%s: needs a dict, and not a %s",
                        call->function->name, mics_value_type_text(self));
    for (int64_t i = 0; self.type == MICS_VALUE_DICT && i < self.list->count; i += 2) {
        const mics_value pair = mics_list(call->work, MICS_VALUE_TUPLE);
        mics_list_add(call->work, pair, self.list->items[i]);
        mics_list_add(call->work, pair, self.list->items[i + 1]);
        mics_list_add(call->work, pairs, pair);
    }
    return pairs;
}

// dictsort(case_sensitive, by, reverse) is a sort of pairs by their first or second item.
static mics_value dictsort(mics_call *call)
{
    if (call->self.type == MICS_VALUE_UNDEFINED)
        mics_value_raise_undefined(call->work, call->self);
    const bool value = given(call, 1) && mics_call_text(call, 1).text[0] == 'v';
    call->self = items(call);
    call->arg[1] = call->arg[0];
    call->arg[0] = call->arg[2];
    call->arg[2] = mics_int(value ? 1 : 0);
    return sort(call);
}

static mics_value unique(mics_call *call)
{
    const mics_value_list *all = mics_call_items(call, call->self);
    const mics_value found = mics_list(call->work, MICS_VALUE_ITERATOR);
    const mics_value keys = mics_list(call->work, MICS_VALUE_LIST);
    for (int64_t i = 0; i < all->count; i++) {
        const mics_value key = key_of(call, all->items[i], 0, 1);
        if (mics_value_contains(call->work, keys, key))
            continue;
        mics_list_add(call->work, keys, key);
        mics_list_add(call->work, found, all->items[i]);
    }
    return found;
}

// min, max.
static mics_value extreme(mics_call *call)
{
    const mics_value_list *all = mics_call_items(call, call->self);
    mics_value best = mics_undefined("item of an empty list", 21), best_key = best;
    for (int64_t i = 0; i < all->count; i++) {
        const mics_value key = key_of(call, all->items[i], 0, 1);
        const int order = i > 0 ? mics_value_order(call->work, key, best_key) : 0;
        if (i > 0 && (call->function->name[1] == 'a' ? order <= 0 : order >= 0))
            continue;
        best = all->items[i];
        best_key = key;
    }
    return best;
}

static mics_value sum(mics_call *call)
{
    const mics_value_list *all = mics_call_items(call, call->self);
    mics_value total = given(call, 1) ? call->arg[1] : mics_int(0);
    for (int64_t i = 0; i < all->count; i++) {
        const mics_value item = all->items[i];
        total = mics_value_compute(call->work, '+', total,
                                   given(call, 0) ? mics_value_path(call->work, item, call->arg[0])
                                                  : item);
    }
    return total;
}

static mics_value join(mics_call *call)
{
    const mics_value_list *all = mics_call_items(call, call->self);
    const size_t mark = call->work->out->bytes;
    for (int64_t i = 0; i < all->count; i++) {
        const mics_value item = all->items[i];
        if (i > 0)
            mics_print(call->work, given(call, 0) ? call->arg[0] : mics_string("", 0));
        mics_print(call->work,
                   given(call, 1) ? mics_value_path(call->work, item, call->arg[1]) : item);
    }
    return mics_work_cut(call->work, mark);
}

static mics_value otherwise(mics_call *call)
{
    const bool missing =
        call->self.type == MICS_VALUE_UNDEFINED || (flag(call, 1) && !mics_value_truth(call->self));
    const mics_value value =
        call->arg[0].type == MICS_VALUE_ABSENT ? mics_string("", 0) : call->arg[0];
    return missing ? value : call->self;
}

const mics_function mics_filters[] = {
    {"abs", "", absolute, MICS_IS_FILTER, 0},
    {"capitalize", "", change_case, MICS_IS_FILTER, 0},
    {"count", "", length, MICS_IS_FILTER, 0},
    {"d", "default_value boolean", otherwise, MICS_IS_FILTER, 0},
    {"default", "default_value boolean", otherwise, MICS_IS_FILTER, 0},
    {"dictsort", "case_sensitive by reverse", dictsort, MICS_IS_FILTER, 0},
    {"e", "", escape, MICS_IS_FILTER, 0},
    {"escape", "", escape, MICS_IS_FILTER, 0},
    {"first", "", first, MICS_IS_FILTER, 0},
    {"float", "default", number, MICS_IS_FILTER, 0},
    {"indent", "width first blank", indent, MICS_IS_FILTER, 0},
    {"int", "default", number, MICS_IS_FILTER, 0},
    {"items", "", items, MICS_IS_FILTER, 0},
    {"join", "d attribute", join, MICS_IS_FILTER, 0},
    {"last", "", last, MICS_IS_FILTER, 0},
    {"length", "", length, MICS_IS_FILTER, 0},
    {"list", "", list, MICS_IS_FILTER, 0},
    {"lower", "", change_case, MICS_IS_FILTER, 0},
    {"max", "case_sensitive attribute", extreme, MICS_IS_FILTER, 0},
    {"min", "case_sensitive attribute", extreme, MICS_IS_FILTER, 0},
    {"replace", "old new count", replace, MICS_IS_FILTER, 2},
    {"reverse", "", reverse, MICS_IS_FILTER, 0},
    {"round", "precision method", rounded, MICS_IS_FILTER, 0},
    {"safe", "", safe, MICS_IS_FILTER, 0},
    {"sort", "reverse case_sensitive attribute", sort, MICS_IS_FILTER, 0},
    {"string", "", string, MICS_IS_FILTER, 0},
    {"sum", "attribute start", sum, MICS_IS_FILTER, 0},
    {"title", "", change_case, MICS_IS_FILTER, 0},
    {"tojson", "ensure_ascii indent separators sort_keys", tojson, MICS_IS_FILTER, 0},
    {"trim", "chars", trim, MICS_IS_FILTER, 0},
    {"unique", "case_sensitive attribute", unique, MICS_IS_FILTER, 0},
    {"upper", "", change_case, MICS_IS_FILTER, 0},
    {NULL, NULL, NULL, 0, 0},
};

// ---- tests ----

static mics_value is_type(mics_call *call)
{
    static const struct {
        const char *name;
        int types;
    } rows[] = {
#define TYPE(name) 1 << MICS_VALUE_##name
        {"boolean", TYPE(BOOL)},
        {"callable", TYPE(UNDEFINED) | TYPE(FUNCTION) | TYPE(MACRO) | TYPE(LOOP)},
        {"defined", ~(TYPE(UNDEFINED))},
        {"float", TYPE(REAL)},
        {"integer", TYPE(INT)},
        {"iterable", TYPE(UNDEFINED) | TYPE(STRING) | TYPE(LIST) | TYPE(TUPLE) | TYPE(RANGE) |
                         TYPE(VIEW) | TYPE(ITERATOR) | TYPE(DICT) | TYPE(LOOP)},
        {"mapping", TYPE(DICT)},
        {"none", TYPE(NONE)},
        {"number", TYPE(BOOL) | TYPE(INT) | TYPE(REAL)},
        {"sequence",
         TYPE(UNDEFINED) | TYPE(STRING) | TYPE(LIST) | TYPE(TUPLE) | TYPE(RANGE) | TYPE(DICT)},
        {"string", TYPE(STRING)},
        {"undefined", TYPE(UNDEFINED)},
#undef TYPE
    };
    size_t i = 0;
    while (strcmp(rows[i].name, call->function->name) != 0)
        i++;
    return mics_bool((rows[i].types >> call->self.type & 1) != 0);
}

static mics_value is_truth(mics_call *call)
{
    const bool wanted = call->function->name[0] == 't';
    return mics_bool(call->self.type == MICS_VALUE_BOOL && call->self.truth == wanted);
}

static mics_value is_same(mics_call *call)
{
    const char first = call->function->name[0];
    return mics_bool(mics_value_same(call->work, call->self, call->arg[0]) ==
                     (first != 'n' && first != '!'));
}

static mics_value is_ordered(mics_call *call)
{
    const char *name = call->function->name; // lt, le, gt, ge, lessthan, greaterthan
    const int order = mics_value_order(call->work, call->self, call->arg[0]);
    const bool same = order == 0 && name[1] == 'e' && name[2] == '\0';
    return mics_bool(same || (name[0] == 'l' ? order < 0 : order > 0));
}

static mics_value is_in(mics_call *call)
{
    return mics_bool(mics_value_contains(call->work, call->arg[0], call->self));
}

// odd, even, divisibleby.
static mics_value is_multiple(mics_call *call)
{
    const bool any = call->function->name[0] == 'd';
    const mics_value rest =
        mics_value_compute(call->work, '%', call->self, any ? call->arg[0] : mics_int(2));
    return mics_bool(
        mics_value_same(call->work, rest, mics_int(call->function->name[0] == 'o' ? 1 : 0)));
}

// lower, upper.
static mics_value is_case(mics_call *call)
{
    const mics_case to = call->function->name[0] == 'l' ? MICS_CASE_LOWER : MICS_CASE_UPPER;
    const mics_value text = str(call, call->self);
    int seen = 0;
    for (size_t at = 0, length = 0; at < text.bytes; at += length)
        seen |= mics_letter(mics_text_code(text.text + at, text.bytes - at, &length));
    return mics_bool((seen & (MICS_LETTER_LOWER | MICS_LETTER_UPPER)) ==
                     (to == MICS_CASE_LOWER ? MICS_LETTER_LOWER : MICS_LETTER_UPPER));
}

const mics_function mics_tests[] = {
    {"!=", "other", is_same, MICS_IS_TEST, 1},
    {"==", "other", is_same, MICS_IS_TEST, 1},
    {"boolean", "", is_type, MICS_IS_TEST, 0},
    {"callable", "", is_type, MICS_IS_TEST, 0},
    {"defined", "", is_type, MICS_IS_TEST, 0},
    {"divisibleby", "num", is_multiple, MICS_IS_TEST, 1},
    {"eq", "other", is_same, MICS_IS_TEST, 1},
    {"equalto", "other", is_same, MICS_IS_TEST, 1},
    {"even", "", is_multiple, MICS_IS_TEST, 0},
    {"false", "", is_truth, MICS_IS_TEST, 0},
    {"float", "", is_type, MICS_IS_TEST, 0},
    {"ge", "other", is_ordered, MICS_IS_TEST, 1},
    {"greaterthan", "other", is_ordered, MICS_IS_TEST, 1},
    {"gt", "other", is_ordered, MICS_IS_TEST, 1},
    {"in", "seq", is_in, MICS_IS_TEST, 1},
    {"integer", "", is_type, MICS_IS_TEST, 0},
    {"iterable", "", is_type, MICS_IS_TEST, 0},
    {"le", "other", is_ordered, MICS_IS_TEST, 1},
    {"lessthan", "other", is_ordered, MICS_IS_TEST, 1},
    {"lower", "", is_case, MICS_IS_TEST, 0},
    {"lt", "other", is_ordered, MICS_IS_TEST, 1},
    {"mapping", "", is_type, MICS_IS_TEST, 0},
    {"ne", "other", is_same, MICS_IS_TEST, 1},
    {"none", "", is_type, MICS_IS_TEST, 0},
    {"number", "", is_type, MICS_IS_TEST, 0},
    {"odd", "", is_multiple, MICS_IS_TEST, 0},
    {"sequence", "", is_type, MICS_IS_TEST, 0},
    {"string", "", is_type, MICS_IS_TEST, 0},
    {"true", "", is_truth, MICS_IS_TEST, 0},
    {"undefined", "", is_type, MICS_IS_TEST, 0},
    {"upper", "", is_case, MICS_IS_TEST, 0},
    {NULL, NULL, NULL, 0, 0},
};
