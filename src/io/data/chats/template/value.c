// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Truth, order and containers as Python has them.
#include "io/data/chats/template/value.h"
#include "io/data/chats/template/text.h"
#include <string.h>

// ---- dicts ----

static bool is_listed(mics_value value)
{
    return value.type >= MICS_VALUE_LIST && value.type <= MICS_VALUE_ITERATOR;
}

static bool is_hashable(mics_value value)
{
    return value.type != MICS_VALUE_LIST && value.type != MICS_VALUE_DICT;
}

static int64_t find_key(mics_work *work, mics_value dict, mics_value key)
{
    const mics_value_list *l = dict.list;
    if (!is_hashable(key))
        mics_work_raise(work, MICS_ERR_INVALID, "a %s cannot be a key", mics_value_type_text(key));
    for (int64_t i = 0; i < l->count; i += 2) {
        if (mics_value_same(work, l->items[i], key))
            return i + 1;
    }
    return -1;
}

const mics_value *mics_dict_get(mics_work *work, mics_value dict, mics_value key)
{
    const int64_t at = find_key(work, dict, key);
    return at >= 0 ? &dict.list->items[at] : NULL;
}

void mics_dict_set(mics_work *work, mics_value dict, mics_value key, mics_value value)
{
    const int64_t at = find_key(work, dict, key);
    if (at >= 0) {
        dict.list->items[at] = value;
        return;
    }
    mics_list_add(work, dict, key);
    mics_list_add(work, dict, value);
}

// Keys of a JSON object are known to differ.
mics_value mics_value_of_json(mics_work *work, const mics_json_value *json)
{
    const mics_json_type type = mics_json_type_of(json);
    if (type == MICS_JSON_BOOL)
        return mics_bool(mics_json_bool(json));
    if (type == MICS_JSON_INT)
        return mics_int(mics_json_int(json));
    if (type == MICS_JSON_REAL)
        return mics_real(mics_json_real(json));
    if (type == MICS_JSON_STRING)
        return mics_string(mics_json_string(json), mics_json_string_bytes(json));
    if (type == MICS_JSON_NULL)
        return mics_none();
    const mics_value list =
        mics_list(work, type == MICS_JSON_ARRAY ? MICS_VALUE_LIST : MICS_VALUE_DICT);
    for (int32_t i = 0; type == MICS_JSON_ARRAY && i < mics_json_count(json); i++)
        mics_list_add(work, list, mics_value_of_json(work, mics_json_element(json, i)));
    const char *key = NULL;
    const mics_json_value *member = mics_json_next(json, &key);
    for (; member != NULL; member = mics_json_next(json, &key)) {
        mics_list_add(work, list, mics_string(key, strlen(key)));
        mics_list_add(work, list, mics_value_of_json(work, member));
    }
    return list;
}

// ---- questions ----

const char *mics_value_type_text(mics_value value)
{
    static const char *const texts[] = {
        "nothing",  "undefined value", "None",  "bool",           "int",       "float", "str",
        "list",     "tuple",           "range", "view of a dict", "generator", "dict",  "namespace",
        "function", "macro",           "loop"};
    return texts[value.type];
}

bool mics_value_truth(mics_value value)
{
    switch (value.type) {
    case MICS_VALUE_ABSENT:
    case MICS_VALUE_UNDEFINED:
    case MICS_VALUE_NONE:
        return false;
    case MICS_VALUE_BOOL:
        return value.truth;
    case MICS_VALUE_INT:
        return value.integer != 0;
    case MICS_VALUE_REAL:
        return value.real != 0;
    case MICS_VALUE_STRING:
        return value.bytes > 0;
    case MICS_VALUE_LIST:
    case MICS_VALUE_TUPLE:
    case MICS_VALUE_RANGE:
    case MICS_VALUE_VIEW:
    case MICS_VALUE_DICT:
        return value.list->count > 0;
    default:
        return true;
    }
}

static bool lists_same(mics_work *work, const mics_value_list *a, const mics_value_list *b)
{
    bool same = a->count == b->count;
    mics_work_enter(work);
    for (int64_t i = 0; same && i < a->count; i++)
        same = mics_value_same(work, a->items[i], b->items[i]);
    work->depth--;
    return same;
}

static bool dicts_same(mics_work *work, mics_value a, mics_value b)
{
    bool same = a.list->count == b.list->count;
    mics_work_enter(work);
    for (int64_t i = 0; same && i < a.list->count; i += 2) {
        const mics_value *other = mics_dict_get(work, b, a.list->items[i]);
        same = other != NULL && mics_value_same(work, a.list->items[i + 1], *other);
    }
    work->depth--;
    return same;
}

bool mics_value_same(mics_work *work, mics_value a, mics_value b)
{
    mics_work_spend(work, 1);
    if (mics_is_number(a) && mics_is_number(b)) {
        const bool real = a.type == MICS_VALUE_REAL || b.type == MICS_VALUE_REAL;
        return real ? mics_number(a) == mics_number(b) : mics_integer(a) == mics_integer(b);
    }
    if (a.type != b.type)
        return false;
    if (mics_is_string(a))
        return a.bytes == b.bytes && mics_text_begins(a, b);
    if (a.type == MICS_VALUE_DICT)
        return dicts_same(work, a, b);
    if (a.type >= MICS_VALUE_LIST && a.type <= MICS_VALUE_RANGE)
        return lists_same(work, a.list, b.list);
    return a.type == MICS_VALUE_NONE || a.type == MICS_VALUE_UNDEFINED || a.list == b.list;
}

void mics_value_raise_undefined(mics_work *work, mics_value value)
{
    mics_work_raise(work, MICS_ERR_INVALID, "'%.*s' is undefined", (int)(value.bytes % 200),
                    value.bytes > 0 ? value.text : "");
}

static int lists_order(mics_work *work, const mics_value_list *a, const mics_value_list *b)
{
    int order = 0;
    mics_work_enter(work);
    for (int64_t i = 0; order == 0 && i < a->count && i < b->count; i++) {
        if (!mics_value_same(work, a->items[i], b->items[i]))
            order = mics_value_order(work, a->items[i], b->items[i]);
    }
    work->depth--;
    return order != 0 ? order : (a->count > b->count) - (a->count < b->count);
}

int mics_value_order(mics_work *work, mics_value a, mics_value b)
{
    mics_work_spend(work, 1);
    if (mics_is_number(a) && mics_is_number(b)) {
        const bool real = a.type == MICS_VALUE_REAL || b.type == MICS_VALUE_REAL;
        const double x = mics_number(a), y = mics_number(b);
        return real ? (x > y) - (x < y)
                    : (mics_integer(a) > mics_integer(b)) - (mics_integer(a) < mics_integer(b));
    }
    if (mics_is_string(a) && mics_is_string(b)) {
        // The order of UTF-8 is that of code points.
        const size_t bytes = a.bytes < b.bytes ? a.bytes : b.bytes;
        const int order = bytes > 0 ? memcmp(a.text, b.text, bytes) : 0;
        return order != 0 ? order : (a.bytes > b.bytes) - (a.bytes < b.bytes);
    }
    if (a.type == b.type && (a.type == MICS_VALUE_LIST || a.type == MICS_VALUE_TUPLE))
        return lists_order(work, a.list, b.list);
    if (a.type == MICS_VALUE_UNDEFINED || b.type == MICS_VALUE_UNDEFINED)
        mics_value_raise_undefined(work, a.type == MICS_VALUE_UNDEFINED ? a : b);
    mics_work_raise(work, MICS_ERR_INVALID, "a %s and a %s have no order", mics_value_type_text(a),
                    mics_value_type_text(b));
}

// ---- containers ----

bool mics_value_contains(mics_work *work, mics_value container, mics_value item)
{
    if (mics_is_string(container)) {
        if (!mics_is_string(item))
            mics_work_raise(work, MICS_ERR_INVALID, "`in` looks for a %s in a str",
                            mics_value_type_text(item));
        mics_work_spend(work, (int64_t)(container.bytes / 64));
        return mics_text_find(container, item, 0) != SIZE_MAX;
    }
    if (container.type == MICS_VALUE_DICT)
        return mics_dict_get(work, container, item) != NULL;
    const mics_value_list *items = mics_value_items(work, container);
    if (items == NULL)
        mics_work_raise(work, MICS_ERR_INVALID, "`in` looks into a %s, which has no items",
                        mics_value_type_text(container));
    for (int64_t i = 0; i < items->count; i++) {
        if (mics_value_same(work, items->items[i], item))
            return true;
    }
    return false;
}

int64_t mics_value_length(mics_value value)
{
    if (mics_is_string(value))
        return mics_text_count(value.text, value.bytes);
    if (value.type == MICS_VALUE_DICT)
        return value.list->count / 2;
    if (is_listed(value) && value.type != MICS_VALUE_ITERATOR)
        return value.list->count;
    return value.type == MICS_VALUE_UNDEFINED ? 0 : -1;
}

const mics_value_list *mics_value_items(mics_work *work, mics_value value)
{
    if (is_listed(value) && value.type != MICS_VALUE_ITERATOR)
        return value.list;
    const mics_value items = mics_list(work, MICS_VALUE_LIST);
    if (value.type == MICS_VALUE_ITERATOR) {
        *items.list = *value.list;
        *value.list = (mics_value_list){0};
    } else if (value.type == MICS_VALUE_DICT) {
        for (int64_t i = 0; i < value.list->count; i += 2)
            mics_list_add(work, items, value.list->items[i]);
    } else if (mics_is_string(value)) {
        for (size_t at = 0, length = 0; at < value.bytes; at += length) {
            (void)mics_text_code(value.text + at, value.bytes - at, &length);
            mics_list_add(work, items, mics_string(value.text + at, length));
        }
    } else if (value.type != MICS_VALUE_UNDEFINED) {
        return NULL;
    }
    return items.list;
}

static bool has_index(mics_value value)
{
    return mics_is_string(value) ||
           (value.type >= MICS_VALUE_LIST && value.type <= MICS_VALUE_RANGE);
}

// The item at an index that is there.
static mics_value at_index(mics_value value, int64_t index)
{
    if (!mics_is_string(value))
        return value.list->items[index];
    const size_t at = mics_text_at(value.text, value.bytes, index);
    size_t length = 0;
    (void)mics_text_code(value.text + at, value.bytes - at, &length);
    value.text += at;
    value.bytes = length;
    return value;
}

mics_value mics_value_item(mics_work *work, mics_value value, mics_value key)
{
    if (value.type == MICS_VALUE_DICT && is_hashable(key)) {
        const mics_value *found = mics_dict_get(work, value, key);
        return found != NULL ? *found : (mics_value){0};
    }
    if (!has_index(value) || (key.type != MICS_VALUE_INT && key.type != MICS_VALUE_BOOL))
        return (mics_value){0};
    const int64_t length = mics_value_length(value), index = mics_integer(key);
    mics_work_spend(work, mics_is_string(value) ? (int64_t)(value.bytes / 64) : 1);
    if (index >= length || index < -length)
        return (mics_value){0};
    return at_index(value, index < 0 ? index + length : index);
}

// As Python's PySlice_AdjustIndices: a bound within the sequence, or right outside of it.
static int64_t bound_of(mics_value bound, int64_t length, bool back, int64_t otherwise)
{
    if (bound.type == MICS_VALUE_NONE)
        return otherwise;
    int64_t at = mics_integer(bound);
    if (at < 0)
        return at < -length ? (back ? -1 : 0) : at + length;
    const int64_t most = back ? length - 1 : length;
    return at > most ? most : at;
}

mics_value mics_value_slice(mics_work *work, mics_value value, const mics_value bounds[3])
{
    for (int i = 0; i < 3; i++) {
        const mics_value_type type = bounds[i].type;
        if (!has_index(value) ||
            (type != MICS_VALUE_NONE && type != MICS_VALUE_INT && type != MICS_VALUE_BOOL))
            mics_work_raise(work, MICS_ERR_INVALID, "a %s has no slice from a %s",
                            mics_value_type_text(value), mics_value_type_text(bounds[i]));
    }
    const int64_t length = mics_value_length(value);
    const int64_t step = bounds[2].type == MICS_VALUE_NONE ? 1 : mics_integer(bounds[2]);
    if (step == 0)
        mics_work_raise(work, MICS_ERR_INVALID, "a slice's step is 0");
    const bool back = step < 0;
    int64_t at = bound_of(bounds[0], length, back, back ? length - 1 : 0);
    const int64_t end = bound_of(bounds[1], length, back, back ? -1 : length);
    if (mics_is_string(value) && step == 1) {
        const size_t from = mics_text_at(value.text, value.bytes, at);
        const size_t to = end > at ? mics_text_at(value.text, value.bytes, end) : from;
        value.text += from;
        value.bytes = to - from;
        return value;
    }
    // Of a string the characters are taken one by one.
    const mics_value_list *items = mics_value_items(work, value);
    const mics_value slice = mics_list(work, mics_is_string(value) ? MICS_VALUE_LIST : value.type);
    while (back ? at > end : at < end) {
        mics_list_add(work, slice, items->items[at]);
        if (back ? step < end - at : step > end - at)
            break;
        at += step;
    }
    if (!mics_is_string(value))
        return slice;
    const size_t mark = work->out->bytes;
    for (int64_t i = 0; i < slice.list->count; i++)
        mics_work_write(work, slice.list->items[i].text, slice.list->items[i].bytes);
    return mics_work_cut(work, mark);
}

// Each item goes behind those that are not beyond it.
void mics_value_sort(mics_work *work, const mics_value_list *keys, mics_value_list *items,
                     bool reverse)
{
    for (int64_t i = 1; i < items->count; i++) {
        const mics_value key = keys->items[i], item = items->items[i];
        int64_t low = 0, high = i;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            const int order = mics_value_order(work, key, keys->items[middle]);
            if (reverse ? order > 0 : order < 0)
                high = middle;
            else
                low = middle + 1;
        }
        const size_t bytes = (size_t)(i - low) * sizeof item;
        memmove(&keys->items[low + 1], &keys->items[low], bytes);
        memmove(&items->items[low + 1], &items->items[low], bytes);
        keys->items[low] = key;
        items->items[low] = item;
    }
}
