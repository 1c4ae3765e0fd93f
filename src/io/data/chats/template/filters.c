// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Filters and tests that need no others.
#include "io/data/chats/template/functions.h"
#include "io/data/chats/template/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool flag(const mics_call *call, int index)
{
    return mics_value_truth(call->arg[index]);
}

static bool given(const mics_call *call, int index)
{
    return call->arg[index].type > MICS_VALUE_NONE;
}

static mics_value self_text(mics_call *call)
{
    return mics_print_str(call->work, call->self);
}

// ---- texts ----

static mics_value string(mics_call *call)
{
    return self_text(call);
}

static mics_value trim(mics_call *call)
{
    return mics_text_strip(self_text(call), call->arg[0], true, true);
}

static mics_value change_case(mics_call *call)
{
    return mics_text_case(call->work, self_text(call), (mics_case)call->function->detail);
}

static mics_value replace(mics_call *call)
{
    const mics_value old = mics_print_str(call->work, call->arg[0]);
    mics_value text = self_text(call);
    text = mics_text_replace(call->work, text, old, mics_print_str(call->work, call->arg[1]),
                             mics_call_int(call, 2, -1));
    return text;
}

static mics_value safe(mics_call *call)
{
    mics_value text = self_text(call);
    text.safe = true;
    return text;
}

static mics_value escape(mics_call *call)
{
    return mics_text_escape(call->work, self_text(call));
}

// An indentation: a text, or a number of blanks.
static mics_value blanks(mics_call *call, int index, int64_t otherwise)
{
    if (mics_is_string(call->arg[index]))
        return call->arg[index];
    return mics_value_compute(call->work, '*', MICS_LITERAL(" "),
                              MICS_INT(mics_call_int(call, index, otherwise)));
}

static mics_value indent(mics_call *call)
{
    const mics_value by = blanks(call, 0, 4), end = MICS_LITERAL("\n");
    const mics_value text = mics_value_compute(call->work, '+', call->self, end);
    const mics_value_list *lines = mics_text_lines(call->work, text).list;
    const size_t mark = call->work->out->bytes;
    for (int64_t i = 0; i < lines->count; i++) {
        mics_work_put(call->work, i > 0 ? "\n" : "");
        if (i > 0 ? lines->items[i].bytes > 0 || flag(call, 2) : flag(call, 1))
            mics_print(call->work, by);
        mics_print(call->work, lines->items[i]);
    }
    return mics_work_cut(call->work, mark);
}

static mics_value tojson(mics_call *call)
{
    const bool pretty = given(call, 1);
    const mics_value absent = {0};
    mics_json_style style = {.ensure_ascii = flag(call, 0),
                             .indent = pretty ? blanks(call, 1, 0) : absent,
                             .comma = pretty ? MICS_LITERAL(",") : MICS_LITERAL(", "),
                             .colon = MICS_LITERAL(": "),
                             .sort_keys = flag(call, 3)};
    if (given(call, 2)) {
        const mics_value_list *both = mics_value_items(call->work, call->arg[2]);
        if (both->count != 2 || !mics_is_string(both->items[0]) || !mics_is_string(both->items[1]))
            mics_work_raise(call->work, MICS_ERR_INVALID, "tojson: separators are two texts");
        style.comma = both->items[0];
        style.colon = both->items[1];
    }
    const size_t mark = call->work->out->bytes;
    mics_print_json(call->work, call->self, &style, 0);
    return mics_work_cut(call->work, mark);
}

// ---- numbers ----

static mics_value length(mics_call *call)
{
    return MICS_INT(mics_value_length(call->work, call->self));
}

// int (detail 0) and float: of what is no number the default.
static mics_value number(mics_call *call)
{
    const bool real = call->function->detail != 0;
    const mics_value self = call->self, zero = real ? MICS_REAL(0) : MICS_INT(0);
    const mics_value otherwise = call->arg[0].type == MICS_VALUE_ABSENT ? zero : call->arg[0];
    char digits[64] = "", *end = digits;
    double number = mics_is_number(self) ? mics_number(self) : 0;
    if (self.type == MICS_VALUE_UNDEFINED)
        mics_value_raise(call->work, "", self);
    if (!real && (self.type == MICS_VALUE_INT || self.type == MICS_VALUE_BOOL))
        return MICS_INT(mics_integer(self));
    if (mics_is_string(self)) {
        const mics_value text = mics_text_strip(self, MICS_NONE, true, true);
        if (text.bytes >= sizeof digits || memchr(text.text, 'x', text.bytes) != NULL)
            return otherwise;
        memcpy(digits, text.text, text.bytes);
        const long long whole = strtoll(digits, &end, 10);
        if (!real && end > digits && *end == '\0' && text.bytes < 19)
            return MICS_INT(whole);
        number = strtod(digits, &end);
    }
    if (!mics_is_number(self) && (end == digits || *end != '\0'))
        return otherwise;
    if (real)
        return MICS_REAL(number);
    return fabs(number) < 9e18 ? MICS_INT((int64_t)number) : otherwise;
}

// ---- lists ----

static mics_value list(mics_call *call)
{
    const mics_value_list *items = mics_value_items(call->work, call->self);
    const mics_value made = mics_list(call->work, MICS_VALUE_LIST);
    for (int64_t i = 0; i < items->count; i++)
        mics_list_add(call->work, made, items->items[i]);
    return made;
}

static mics_value first(mics_call *call)
{
    mics_value_list *rest = call->self.list;
    if (call->self.type == MICS_VALUE_ITERATOR && rest->count > 0) {
        rest->count--;
        return *rest->items++;
    }
    const mics_value_list *items = mics_value_items(call->work, call->self);
    return items->count > 0 ? items->items[0] : MICS_UNDEFINED("first item", 10);
}

static mics_value last(mics_call *call)
{
    const int64_t count = mics_value_length(call->work, call->self);
    const mics_value_list *items = mics_value_items(call->work, call->self);
    return count > 0 ? items->items[count - 1] : MICS_UNDEFINED("last item", 9);
}

static mics_value reverse(mics_call *call)
{
    const mics_value_list *items = mics_value_items(call->work, call->self);
    const mics_value reversed = mics_list(call->work, MICS_VALUE_ITERATOR);
    const mics_value back[3] = {MICS_NONE, MICS_NONE, MICS_INT(-1)};
    if (mics_is_string(call->self))
        return mics_value_slice(call->work, call->self, back);
    for (int64_t i = items->count; i-- > 0;)
        mics_list_add(call->work, reversed, items->items[i]);
    return reversed;
}

// By what an item is compared: itself or its attribute, strings without regard to case.
static mics_value key_of(mics_call *call, mics_value item, int cased, int attribute)
{
    if (given(call, attribute))
        item = mics_value_path(call->work, item, call->arg[attribute], NULL);
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
    const mics_value pairs = mics_list(call->work, MICS_VALUE_ITERATOR), self = call->self;
    if (self.type == MICS_VALUE_UNDEFINED)
        return pairs;
    if (self.type != MICS_VALUE_DICT)
        mics_value_raise(call->work, "is no dict, which is needed here", self);
    for (int64_t i = 0; i < self.list->count; i += 2) {
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
    const bool value =
        given(call, 1) && mics_text_begins(mics_call_text(call, 1), MICS_LITERAL("v"));
    if (call->self.type == MICS_VALUE_UNDEFINED)
        mics_value_raise(call->work, "", call->self);
    call->self = items(call);
    call->arg[1] = call->arg[0];
    call->arg[0] = call->arg[2];
    call->arg[2] = MICS_INT(value ? 1 : 0);
    return sort(call);
}

static mics_value unique(mics_call *call)
{
    const mics_value_list *all = mics_value_items(call->work, call->self);
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

// min (detail -1), max (1).
static mics_value extreme(mics_call *call)
{
    const mics_value_list *all = mics_value_items(call->work, call->self);
    mics_value best = MICS_UNDEFINED("item of an empty list", 21), best_key = best;
    for (int64_t i = 0; i < all->count; i++) {
        const mics_value key = key_of(call, all->items[i], 0, 1);
        if (i > 0 && mics_value_order(call->work, key, best_key) * call->function->detail <= 0)
            continue;
        best = all->items[i];
        best_key = key;
    }
    return best;
}

static mics_value join(mics_call *call)
{
    const mics_value_list *all = mics_value_items(call->work, call->self);
    const size_t mark = call->work->out->bytes;
    for (int64_t i = 0; i < all->count; i++) {
        mics_value item = all->items[i];
        if (i > 0 && given(call, 0))
            mics_print(call->work, call->arg[0]);
        if (given(call, 1))
            item = mics_value_path(call->work, item, call->arg[1], NULL);
        mics_print(call->work, item);
    }
    return mics_work_cut(call->work, mark);
}

static mics_value otherwise(mics_call *call)
{
    if (call->self.type != MICS_VALUE_UNDEFINED && (!flag(call, 1) || mics_value_truth(call->self)))
        return call->self;
    return call->arg[0].type == MICS_VALUE_ABSENT ? MICS_LITERAL("") : call->arg[0];
}

// ---- tests ----

#define TYPE(name) (1 << MICS_VALUE_##name)
enum {
    IS_NUMBER = TYPE(BOOL) | TYPE(INT) | TYPE(REAL),
    IS_SEQUENCE =
        TYPE(UNDEFINED) | TYPE(STRING) | TYPE(LIST) | TYPE(TUPLE) | TYPE(RANGE) | TYPE(DICT),
    IS_ITERABLE = IS_SEQUENCE | TYPE(VIEW) | TYPE(ITERATOR) | TYPE(LOOP),
    IS_CALLABLE = TYPE(UNDEFINED) | TYPE(FUNCTION) | TYPE(MACRO) | TYPE(LOOP),
    // Bits of order: below, equal, above.
    IS_LT = 1,
    IS_EQ = 2,
    IS_GT = 4,
};

static mics_value is_type(mics_call *call)
{
    return MICS_BOOL((call->function->detail >> call->self.type & 1) != 0);
}

static mics_value is_truth(mics_call *call)
{
    const bool wanted = call->function->detail != 0;
    return MICS_BOOL(call->self.type == MICS_VALUE_BOOL && call->self.truth == wanted);
}

static mics_value is_ordered(mics_call *call)
{
    const int wanted = call->function->detail;
    if (wanted == IS_EQ || wanted == (IS_LT | IS_GT))
        return MICS_BOOL(mics_value_same(call->work, call->self, call->arg[0]) ==
                         (wanted == IS_EQ));
    const int order = mics_value_order(call->work, call->self, call->arg[0]);
    return MICS_BOOL((wanted & (order < 0 ? IS_LT : order == 0 ? IS_EQ : IS_GT)) != 0);
}

static mics_value is_in(mics_call *call)
{
    return MICS_BOOL(mics_value_contains(call->work, call->arg[0], call->self));
}

// odd and even, of which detail is the remainder; divisibleby.
static mics_value is_multiple(mics_call *call)
{
    const mics_value by = call->arg[0].type == MICS_VALUE_ABSENT ? MICS_INT(2) : call->arg[0];
    return MICS_BOOL(mics_value_same(call->work,
                                     mics_value_compute(call->work, '%', call->self, by),
                                     MICS_INT(call->function->detail)));
}

// lower, upper: letters of the case of `detail`, and none of the other.
static mics_value is_case(mics_call *call)
{
    const mics_value text = self_text(call);
    int seen = 0;
    for (size_t at = 0, length = 0; at < text.bytes; at += length)
        seen |= mics_letter(text.text + at, text.bytes - at, &length);
    return MICS_BOOL((seen & (MICS_LETTER_LOWER | MICS_LETTER_UPPER)) == call->function->detail);
}

const mics_function mics_filters[] = {
    {"capitalize", change_case, MICS_IS_FILTER, 0, "", MICS_CASE_CAPITALIZE},
    {"count", length, MICS_IS_FILTER, 0, "", 0},
    {"d", otherwise, MICS_IS_FILTER, 0, "default_value boolean", 0},
    {"default", otherwise, MICS_IS_FILTER, 0, "default_value boolean", 0},
    {"dictsort", dictsort, MICS_IS_FILTER, 0, "case_sensitive by reverse", 0},
    {"e", escape, MICS_IS_FILTER, 0, "", 0},
    {"escape", escape, MICS_IS_FILTER, 0, "", 0},
    {"first", first, MICS_IS_FILTER, 0, "", 0},
    {"float", number, MICS_IS_FILTER, 0, "default", 1},
    {"indent", indent, MICS_IS_FILTER, 0, "width first blank", 0},
    {"int", number, MICS_IS_FILTER, 0, "default", 0},
    {"items", items, MICS_IS_FILTER, 0, "", 0},
    {"join", join, MICS_IS_FILTER, 0, "d attribute", 0},
    {"last", last, MICS_IS_FILTER, 0, "", 0},
    {"length", length, MICS_IS_FILTER, 0, "", 0},
    {"list", list, MICS_IS_FILTER, 0, "", 0},
    {"lower", change_case, MICS_IS_FILTER, 0, "", MICS_CASE_LOWER},
    {"max", extreme, MICS_IS_FILTER, 0, "case_sensitive attribute", 1},
    {"min", extreme, MICS_IS_FILTER, 0, "case_sensitive attribute", -1},
    {"replace", replace, MICS_IS_FILTER, 2, "old new count", 0},
    {"reverse", reverse, MICS_IS_FILTER, 0, "", 0},
    {"safe", safe, MICS_IS_FILTER, 0, "", 0},
    {"sort", sort, MICS_IS_FILTER, 0, "reverse case_sensitive attribute", 0},
    {"string", string, MICS_IS_FILTER, 0, "", 0},
    {"title", change_case, MICS_IS_FILTER, 0, "", MICS_CASE_WORDS},
    {"tojson", tojson, MICS_IS_FILTER, 0, "ensure_ascii indent separators sort_keys", 0},
    {"trim", trim, MICS_IS_FILTER, 0, "chars", 0},
    {"unique", unique, MICS_IS_FILTER, 0, "case_sensitive attribute", 0},
    {"upper", change_case, MICS_IS_FILTER, 0, "", MICS_CASE_UPPER},
    {"boolean", is_type, MICS_IS_TEST, 0, "", TYPE(BOOL)},
    {"callable", is_type, MICS_IS_TEST, 0, "", IS_CALLABLE},
    {"defined", is_type, MICS_IS_TEST, 0, "", ~TYPE(UNDEFINED)},
    {"divisibleby", is_multiple, MICS_IS_TEST, 1, "num", 0},
    {"eq", is_ordered, MICS_IS_TEST, 1, "other", IS_EQ},
    {"equalto", is_ordered, MICS_IS_TEST, 1, "other", IS_EQ},
    {"even", is_multiple, MICS_IS_TEST, 0, "", 0},
    {"false", is_truth, MICS_IS_TEST, 0, "", 0},
    {"float", is_type, MICS_IS_TEST, 0, "", TYPE(REAL)},
    {"ge", is_ordered, MICS_IS_TEST, 1, "other", IS_GT | IS_EQ},
    {"greaterthan", is_ordered, MICS_IS_TEST, 1, "other", IS_GT},
    {"gt", is_ordered, MICS_IS_TEST, 1, "other", IS_GT},
    {"in", is_in, MICS_IS_TEST, 1, "seq", 0},
    {"integer", is_type, MICS_IS_TEST, 0, "", TYPE(INT)},
    {"iterable", is_type, MICS_IS_TEST, 0, "", IS_ITERABLE},
    {"le", is_ordered, MICS_IS_TEST, 1, "other", IS_LT | IS_EQ},
    {"lessthan", is_ordered, MICS_IS_TEST, 1, "other", IS_LT},
    {"lower", is_case, MICS_IS_TEST, 0, "", MICS_LETTER_LOWER},
    {"lt", is_ordered, MICS_IS_TEST, 1, "other", IS_LT},
    {"mapping", is_type, MICS_IS_TEST, 0, "", TYPE(DICT)},
    {"ne", is_ordered, MICS_IS_TEST, 1, "other", IS_LT | IS_GT},
    {"none", is_type, MICS_IS_TEST, 0, "", TYPE(NONE)},
    {"number", is_type, MICS_IS_TEST, 0, "", IS_NUMBER},
    {"odd", is_multiple, MICS_IS_TEST, 0, "", 1},
    {"sequence", is_type, MICS_IS_TEST, 0, "", IS_SEQUENCE},
    {"string", is_type, MICS_IS_TEST, 0, "", TYPE(STRING)},
    {"true", is_truth, MICS_IS_TEST, 0, "", 1},
    {"undefined", is_type, MICS_IS_TEST, 0, "", TYPE(UNDEFINED)},
    {"upper", is_case, MICS_IS_TEST, 0, "", MICS_LETTER_UPPER},
    {"==", is_ordered, MICS_IS_TEST, 1, "other", IS_EQ},
    {"!=", is_ordered, MICS_IS_TEST, 1, "other", IS_LT | IS_GT},
    {NULL, NULL, 0, 0, NULL, 0},
};
