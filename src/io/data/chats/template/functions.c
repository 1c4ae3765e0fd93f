// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How a function is found and called; filters that call others; globals.
#include "io/data/chats/template/functions.h"
#include "base/text.h"
#include "io/data/chats/template/text.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

// Bits of what select and its like do.
enum { SELECTS = 1, BY_ATTRIBUTE = 2 };

// Arguments behind a function's name: the function of a kind, called with the rest.
static mics_value call_named(mics_call *call, int kind, int64_t at, mics_value self)
{
    const mics_value_list *all = call->given.list.list;
    const mics_arguments rest = {mics_list(call->work, MICS_VALUE_LIST), call->given.named};
    if (!mics_is_string(all->items[at]))
        mics_value_raise(call->work, "is no name of a filter or test", all->items[at]);
    const mics_function *function = mics_function_need(call->work, kind, all->items[at]);
    for (int64_t i = at + 1; i < all->count; i++)
        mics_list_add(call->work, rest.list, all->items[i]);
    return mics_function_call(call->work, function, self, rest);
}

// Items of what a filter is on: of none, 0 and the like there are none.
static const mics_value_list *items_if_any(mics_call *call)
{
    const mics_value self = call->self;
    return mics_value_items(call->work, mics_value_truth(self) ? self : MICS_LITERAL(""));
}

// select, reject, selectattr, rejectattr.
static mics_value choose(mics_call *call)
{
    const int64_t by = (call->function->detail & BY_ATTRIBUTE) != 0;
    const mics_value chosen = mics_list(call->work, MICS_VALUE_ITERATOR);
    const mics_value_list *items = items_if_any(call), *args = call->given.list.list;
    if (args->count < by)
        mics_work_raise(call->work, MICS_ERR_INVALID, "an attribute to choose by is missing");
    for (int64_t i = 0; i < items->count; i++) {
        mics_value item = items->items[i];
        if (by > 0)
            item = mics_value_path(call->work, item, args->items[0], NULL);
        if (args->count > by)
            item = call_named(call, MICS_IS_TEST, by, item);
        if (mics_value_truth(item) == ((call->function->detail & SELECTS) != 0))
            mics_list_add(call->work, chosen, items->items[i]);
    }
    return chosen;
}

static mics_value map(mics_call *call)
{
    const mics_value mapped = mics_list(call->work, MICS_VALUE_ITERATOR), named = call->given.named;
    const mics_value_list *items = items_if_any(call);
    const mics_value *path = mics_dict_get(call->work, named, MICS_LITERAL("attribute"));
    const mics_value *otherwise = mics_dict_get(call->work, named, MICS_LITERAL("default"));
    if (path == NULL && call->given.list.list->count == 0)
        mics_work_raise(call->work, MICS_ERR_INVALID, "map needs a filter's name or attribute=");
    for (int64_t i = 0; i < items->count; i++) {
        mics_value item = items->items[i];
        item = path != NULL ? mics_value_path(call->work, item, *path, otherwise)
                            : call_named(call, MICS_IS_FILTER, 0, item);
        mics_list_add(call->work, mapped, item);
    }
    return mapped;
}

// ---- globals ----

static mics_value range(mics_call *call)
{
    enum { MAX_RANGE = 100000 }; // as jinja2.sandbox
    const bool one = call->arg[1].type == MICS_VALUE_ABSENT;
    const int64_t end = mics_call_int(call, one ? 0 : 1, 0), step = mics_call_int(call, 2, 1);
    int64_t at = one ? 0 : mics_call_int(call, 0, 0);
    const mics_value items = mics_list(call->work, MICS_VALUE_RANGE);
    bool overflow = false;
    if (step == 0)
        mics_work_raise(call->work, MICS_ERR_INVALID, "range() has a step of 0");
    while (!overflow && (step > 0 ? at < end : at > end)) {
        if (items.list->count == MAX_RANGE)
            mics_work_raise(call->work, MICS_ERR_INVALID, "range() has over %d items", MAX_RANGE);
        mics_list_add(call->work, items, MICS_INT(at));
        overflow = __builtin_add_overflow(at, step, &at);
    }
    return items;
}

// dict(...), namespace(...), of which detail is the type: of another dict and of named arguments.
static mics_value dict(mics_call *call)
{
    const mics_value made = mics_list(call->work, (mics_value_type)call->function->detail);
    const mics_value_list *from = call->given.list.list;
    if (from->count > 1 || (from->count == 1 && from->items[0].type != MICS_VALUE_DICT))
        mics_work_raise(call->work, MICS_ERR_INVALID, "%s() takes a dict and name=value",
                        call->function->name);
    mics_list_add(call->work, call->given.list, call->given.named);
    for (int64_t turn = 0; turn < from->count; turn++) {
        const mics_value_list *pairs = from->items[turn].list;
        for (int64_t i = 0; i < pairs->count; i += 2) {
            const mics_value key = pairs->items[i];
            if (made.type == MICS_VALUE_NAMESPACE && mics_is_string(key) &&
                mics_text_begins(key, MICS_LITERAL("_")))
                mics_value_raise(call->work, "of a namespace cannot begin with _", key);
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
    char form[128], text[512];
    const mics_value wanted = mics_call_text(call, 0);
    const time_t now = (time_t)call->work->now_s;
    struct tm utc;
    if (wanted.bytes + 2 > sizeof form || gmtime_r(&now, &utc) == NULL)
        mics_work_raise(call->work, MICS_ERR_INVALID, "strftime_now() has a format too long");
    // The blank at the end tells an empty text from one that is too long.
    snprintf(form, sizeof form, "%.*s ", (int)wanted.bytes, wanted.text);
    for (const char *at = strchr(form, '%'); at != NULL; at = strchr(at + 1, '%')) {
        at += at[1] == '-' ? 2 : 1;
        if (*at == '\0' || strchr("aAbBcdDeFGhHIjmMnpSTuUVwWxXyY%", *at) == NULL)
            mics_work_raise(call->work, MICS_ERR_UNSUPPORTED, "strftime_now() knows no %%%c here",
                            *at);
    }
    const size_t bytes = strftime(text, sizeof text, form, &utc);
    const size_t mark = call->work->out->bytes;
    mics_work_write(call->work, text, bytes > 0 ? bytes - 1 : 0);
    return mics_work_cut(call->work, mark);
}

static const mics_function others[] = {
    {"map", map, MICS_IS_FILTER, 0, "*", 0},
    {"reject", choose, MICS_IS_FILTER, 0, "*", 0},
    {"rejectattr", choose, MICS_IS_FILTER, 0, "*", BY_ATTRIBUTE},
    {"select", choose, MICS_IS_FILTER, 0, "*", SELECTS},
    {"selectattr", choose, MICS_IS_FILTER, 0, "*", SELECTS | BY_ATTRIBUTE},
    {"dict", dict, MICS_IS_GLOBAL, 0, "*", MICS_VALUE_DICT},
    {"namespace", dict, MICS_IS_GLOBAL, 0, "*", MICS_VALUE_NAMESPACE},
    {"raise_exception", raise_exception, MICS_IS_GLOBAL, 1, "message", 0},
    {"range", range, MICS_IS_GLOBAL, 1, "start stop step", 0},
    {"strftime_now", strftime_now, MICS_IS_GLOBAL, 1, "format", 0},
    {NULL, NULL, 0, 0, NULL, 0},
};

// ---- finding and calling ----

const mics_function *mics_function_find(int kind, mics_value name)
{
    const mics_function *found = mics_function_among(mics_filters, kind, name);
    return found != NULL ? found : mics_function_among(others, kind, name);
}

const mics_function *mics_function_need(mics_work *work, int kind, mics_value name)
{
    const mics_function *found = mics_function_find(kind, name);
    const size_t mark = work->out->bytes;
    if (found != NULL)
        return found;
    for (int part = 0; part < 2; part++) {
        for (const mics_function *at = part == 0 ? mics_filters : others; at->name != NULL; at++) {
            if ((at->kinds & kind) == 0)
                continue;
            mics_work_put(work, work->out->bytes > mark ? ", " : "");
            mics_work_put(work, at->name);
        }
    }
    const mics_value known = mics_work_cut(work, mark);
    mics_work_raise(work, MICS_ERR_UNSUPPORTED, "%s '%.*s' is not known here; known are %.*s",
                    kind == MICS_IS_FILTER ? "filter" : "test", MICS_SHOWN(name), (int)known.bytes,
                    known.text);
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
    const mics_value_list *list = call->given.list.list, *named = call->given.named.list;
    int64_t most = *f->parameters != '\0';
    for (const char *at = f->parameters; *at != '\0'; at++)
        most += *at == ' ';
    if (list->count > most)
        mics_work_raise(call->work, MICS_ERR_INVALID, "%s takes %d arguments here, and not %d",
                        f->name, (int)most, (int)list->count);
    for (int64_t i = 0; i < list->count; i++)
        call->arg[i] = list->items[i];
    for (int64_t i = 0; i < named->count; i += 2) {
        const int place = place_of(f->parameters, named->items[i]);
        if (place < 0 || call->arg[place].type != MICS_VALUE_ABSENT)
            mics_work_raise(call->work, MICS_ERR_INVALID, "%s has no argument '%.*s' here", f->name,
                            MICS_SHOWN(named->items[i]));
        call->arg[place] = named->items[i + 1];
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
    static const char *const plain = "join|replace|tojson"; // safe texts give others that are not
    mics_call call = {.work = work, .function = function, .self = self, .given = given};
    mics_work_spend(work, 1 + (mics_is_string(self) ? (int64_t)(self.bytes / 64) : 0));
    if (*function->parameters != '*')
        bind(&call);
    mics_value result = function->run(&call);
    if (self.safe && mics_is_string(result) && !mics_text_is_among(function->name, plain))
        result.safe = true;
    // cppcheck-suppress returnDanglingLifetime; a value is copied, and never points to its call
    return result;
}
