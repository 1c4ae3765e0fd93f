// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How a function is found and called; filters that call others; globals.
#include "io/data/chats/template/functions.h"
#include "io/data/chats/template/print.h"
#include "io/data/chats/template/text.h"
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static mics_value truth_of(mics_call *call, const mics_value *item, int from)
{
    const mics_value_list *args = call->given.list.list;
    mics_arguments rest = {mics_list(call->work, MICS_VALUE_LIST), call->given.named};
    if (args->count <= from)
        return mics_bool(mics_value_truth(*item));
    if (!mics_is_string(args->items[from]))
        mics_work_raise(call->work, MICS_ERR_INVALID, "%s needs a test's name",
                        call->function->name);
    for (int64_t i = from + 1; i < args->count; i++)
        mics_list_add(call->work, rest.list, args->items[i]);
    const mics_function *test = mics_function_find(MICS_IS_TEST, args->items[from]);
    if (test == NULL)
        mics_function_raise_unknown(call->work, MICS_IS_TEST, "test", args->items[from]);
    return mics_function_call(call->work, test, *item, rest);
}

// Items of what a filter is on: of none and the like there are none.
static const mics_value_list *items_if_any(mics_call *call)
{
    static const mics_value_list none = {0};
    return mics_value_truth(call->self) ? mics_call_items(call, call->self) : &none;
}

// select, reject, selectattr, rejectattr.
static mics_value select(mics_call *call)
{
    const bool attribute = strstr(call->function->name, "attr") != NULL;
    const bool wanted = call->function->name[0] == 's';
    const mics_value chosen = mics_list(call->work, MICS_VALUE_ITERATOR);
    const mics_value_list *items = items_if_any(call);
    if (attribute && call->given.list.list->count == 0)
        mics_work_raise(call->work, MICS_ERR_INVALID, "%s needs an attribute",
                        call->function->name);
    for (int64_t i = 0; i < items->count; i++) {
        mics_value item = items->items[i];
        if (attribute)
            item = mics_value_path(call->work, item, call->given.list.list->items[0]);
        if (mics_value_truth(truth_of(call, &item, attribute ? 1 : 0)) == wanted)
            mics_list_add(call->work, chosen, items->items[i]);
    }
    return chosen;
}

static const mics_value *named(mics_call *call, const char *name)
{
    return mics_dict_get(call->work, call->given.named, mics_string(name, strlen(name)));
}

static mics_value map(mics_call *call)
{
    const mics_value mapped = mics_list(call->work, MICS_VALUE_ITERATOR);
    const mics_value_list *items = items_if_any(call);
    const mics_value *path = named(call, "attribute"), *otherwise = named(call, "default");
    mics_arguments rest = {mics_list(call->work, MICS_VALUE_LIST), call->given.named};
    const mics_value_list *args = call->given.list.list;
    const mics_function *filter = NULL;
    if (path == NULL && (args->count == 0 || !mics_is_string(args->items[0])))
        mics_work_raise(call->work, MICS_ERR_INVALID, "map needs a filter's name or attribute=");
    for (int64_t i = 1; i < args->count; i++)
        mics_list_add(call->work, rest.list, args->items[i]);
    if (path == NULL) {
        filter = mics_function_find(MICS_IS_FILTER, args->items[0]);
        if (filter == NULL)
            mics_function_raise_unknown(call->work, MICS_IS_FILTER, "filter", args->items[0]);
    }
    for (int64_t i = 0; i < items->count; i++) {
        mics_value item = items->items[i];
        if (filter != NULL)
            item = mics_function_call(call->work, filter, item, rest);
        else
            item = mics_value_path(call->work, item, *path);
        if (filter == NULL && item.type == MICS_VALUE_UNDEFINED && otherwise != NULL)
            item = *otherwise;
        mics_list_add(call->work, mapped, item);
    }
    return mapped;
}

// ---- globals ----

static mics_value range(mics_call *call)
{
    enum { MAX_RANGE = 100000 }; // as jinja2.sandbox
    const bool one = call->arg[1].type == MICS_VALUE_ABSENT;
    const int64_t begin = one ? 0 : mics_call_int(call, 0, 0);
    const int64_t end = mics_call_int(call, one ? 0 : 1, 0), step = mics_call_int(call, 2, 1);
    const mics_value items = mics_list(call->work, MICS_VALUE_RANGE);
    if (step == 0)
        mics_work_raise(call->work, MICS_ERR_INVALID, "range() has a step of 0");
    for (int64_t at = begin; step > 0 ? at < end : at > end;) {
        if (items.list->count == MAX_RANGE)
            mics_work_raise(call->work, MICS_ERR_INVALID, "range() has more than %d items",
                            MAX_RANGE);
        mics_list_add(call->work, items, mics_int(at));
        if (__builtin_add_overflow(at, step, &at))
            break;
    }
    return items;
}

// dict(...), namespace(...): of another dict and of named arguments.
static mics_value dict(mics_call *call)
{
    const bool space = call->function->name[0] == 'n';
    const mics_value made = mics_list(call->work, space ? MICS_VALUE_NAMESPACE : MICS_VALUE_DICT);
    const mics_value_list *from = call->given.list.list;
    if (from->count > 1 || (from->count == 1 && from->items[0].type != MICS_VALUE_DICT))
        mics_work_raise(call->work, MICS_ERR_INVALID, "%s() takes a dict and name=value",
                        call->function->name);
    for (int turn = 0; turn < 2; turn++) {
        const mics_value_list *pairs = turn == 1          ? call->given.named.list
                                       : from->count == 1 ? from->items[0].list
                                                          : NULL;
        for (int64_t i = 0; pairs != NULL && i < pairs->count; i += 2) {
            const mics_value key = pairs->items[i];
            if (space && mics_is_string(key) && mics_text_begins(key, mics_string("_", 1)))
                mics_work_raise(call->work, MICS_ERR_INVALID,
                                "a namespace has no names that begin with _");
            mics_dict_set(call->work, made, key, pairs->items[i + 1]);
        }
    }
    return made;
}

static mics_value raise_exception(mics_call *call)
{
    const mics_value text = mics_print_str(call->work, call->arg[0]);
    mics_work_raise(call->work, MICS_ERR_INVALID, "the template raised: %.*s",
                    text.bytes < 900 ? (int)text.bytes : 900, text.text);
}

static mics_value strftime_now(mics_call *call)
{
    char format[128], text[512];
    const mics_value wanted = mics_call_text(call, 0);
    const time_t now = (time_t)call->work->now_s;
    struct tm utc;
    if (wanted.bytes + 2 > sizeof format || gmtime_r(&now, &utc) == NULL)
        mics_work_raise(call->work, MICS_ERR_INVALID, "strftime_now() has a format too long");
    snprintf(format, sizeof format, "%.*s ", (int)wanted.bytes, wanted.text);
    for (const char *at = strchr(format, '%'); at != NULL; at = strchr(at + 1, '%')) {
        at += at[1] == '-' ? 2 : 1;
        if (*at == '\0' || strchr("aAbBcdDeFGhHIjmMnpSTuUVwWxXyY%", *at) == NULL)
            mics_work_raise(call->work, MICS_ERR_UNSUPPORTED, "strftime_now() knows no %%%c here",
                            *at);
    }
    // The blank at the end tells an empty text from one that is too long.
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const size_t bytes = plain != 0 ? strftime_l(text, sizeof text, format, &utc, plain) : 0;
    freelocale(plain);
    const size_t mark = call->work->out->bytes;
    mics_work_write(call->work, text, bytes > 0 ? bytes - 1 : 0);
    return mics_work_cut(call->work, mark);
}

static const mics_function others[] = {
    {"map", "*", map, MICS_IS_FILTER, 0},
    {"reject", "*", select, MICS_IS_FILTER, 0},
    {"rejectattr", "*", select, MICS_IS_FILTER, 0},
    {"select", "*", select, MICS_IS_FILTER, 0},
    {"selectattr", "*", select, MICS_IS_FILTER, 0},
    {"dict", "*", dict, MICS_IS_GLOBAL, 0},
    {"namespace", "*", dict, MICS_IS_GLOBAL, 0},
    {"raise_exception", "message", raise_exception, MICS_IS_GLOBAL, 1},
    {"range", "start stop step", range, MICS_IS_GLOBAL, 1},
    {"strftime_now", "format", strftime_now, MICS_IS_GLOBAL, 1},
    {NULL, NULL, NULL, 0, 0},
};

static const mics_function *const parts[] = {mics_filters, mics_tests, others};

// ---- finding and calling ----

const mics_function *mics_function_find(int kind, mics_value name)
{
    const mics_function *found = NULL;
    for (size_t i = 0; found == NULL && i < sizeof parts / sizeof *parts; i++)
        found = mics_function_among(parts[i], kind, name);
    return found;
}

void mics_function_raise_unknown(mics_work *work, int kind, const char *what, mics_value name)
{
    const size_t mark = work->out->bytes;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        for (const mics_function *at = parts[i]; at->name != NULL; at++) {
            if ((at->kinds & kind) == 0)
                continue;
            mics_work_write(work, ", ", work->out->bytes > mark ? 2 : 0);
            mics_work_write(work, at->name, strlen(at->name));
        }
    }
    const mics_value known = mics_work_cut(work, mark);
    mics_work_raise(work, MICS_ERR_UNSUPPORTED, "%s '%.*s' is not known here; known are %.*s", what,
                    (int)(name.bytes % 100), name.text, (int)known.bytes, known.text);
}

// Place of a name in "a b c"; -1: it is not there.
static int place_of(const char *parameters, mics_value name)
{
    for (int place = 0; *parameters != '\0'; place++) {
        const size_t bytes = strcspn(parameters, " ");
        if (bytes == name.bytes && memcmp(parameters, name.text, bytes) == 0)
            return place;
        parameters += bytes + strspn(parameters + bytes, " ");
    }
    return -1;
}

static void bind(mics_call *call)
{
    const mics_function *f = call->function;
    const mics_value_list *list = call->given.list.list, *by_name = call->given.named.list;
    int64_t most = *f->parameters != '\0';
    for (const char *at = f->parameters; *at != '\0'; at++)
        most += *at == ' ';
    if (list->count > most)
        mics_work_raise(call->work, MICS_ERR_INVALID, "%s takes %d arguments here, and not %d",
                        f->name, (int)most, (int)list->count);
    for (int64_t i = 0; i < list->count; i++)
        call->arg[i] = list->items[i];
    for (int64_t i = 0; i < by_name->count; i += 2) {
        const mics_value name = by_name->items[i];
        const int place = place_of(f->parameters, name);
        if (place < 0 || call->arg[place].type != MICS_VALUE_ABSENT)
            mics_work_raise(call->work, MICS_ERR_INVALID, "%s has no argument '%.*s' here", f->name,
                            (int)(name.bytes % 100), name.text);
        call->arg[place] = by_name->items[i + 1];
    }
    for (int i = 0; i < f->needed; i++) {
        if (call->arg[i].type == MICS_VALUE_ABSENT)
            mics_work_raise(call->work, MICS_ERR_INVALID, "%s needs the arguments %s", f->name,
                            f->parameters);
    }
}

mics_value mics_function_call(mics_work *work, const mics_function *function, mics_value self,
                              mics_arguments given)
{
    mics_call call = {.work = work, .function = function, .self = self, .given = given};
    mics_work_spend(work, 1);
    if (*function->parameters != '*')
        bind(&call);
    mics_value result = function->run(&call);
    // Of a safe string most texts are safe again.
    if (self.safe && mics_is_string(result) && strcmp(function->name, "join") != 0 &&
        strcmp(function->name, "replace") != 0)
        result.safe = true;
    return result;
}
