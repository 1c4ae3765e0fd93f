// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Truth, order and containers as Python has them.
#include "io/data/chats/template/value.h"
#include "io/data/chats/template/text.h"
#include <math.h>
#include <string.h>

const char *mics_value_type_text(mics_value value)
{
    static const char *const texts[] = {
        "nothing",  "undefined value", "None",  "bool",      "int",  "float",     "str",
        "list",     "tuple",           "range", "dict view", "dict", "generator", "namespace",
        "function", "macro",           "loop"};
    return texts[value.type];
}

void mics_value_raise(mics_work *work, const char *what, mics_value value)
{
    if (value.type == MICS_VALUE_UNDEFINED)
        mics_work_raise(work, MICS_ERR_INVALID, "'%.*s' is undefined", MICS_SHOWN(value));
    mics_work_raise(work, MICS_ERR_INVALID, "a %s %s%s", mics_value_type_text(value), what,
                    value.type == MICS_VALUE_ITERATOR ? "; make a list of it by | list" : "");
}

// ---- dicts ----

static mics_value *find_key(mics_work *work, mics_value dict, mics_value key)
{
    if (key.type == MICS_VALUE_LIST || key.type == MICS_VALUE_DICT)
        mics_value_raise(work, "cannot be a key", key);
    for (int64_t i = 0; i < dict.list->count; i += 2) {
        if (mics_value_same(work, dict.list->items[i], key))
            return &dict.list->items[i + 1];
    }
    return NULL;
}

const mics_value *mics_dict_get(mics_work *work, mics_value dict, mics_value key)
{
    return find_key(work, dict, key);
}

void mics_dict_set(mics_work *work, mics_value dict, mics_value key, mics_value value)
{
    mics_value *there = find_key(work, dict, key);
    if (there != NULL) {
        *there = value;
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
        return MICS_BOOL(mics_json_bool(json));
    if (type == MICS_JSON_INT)
        return MICS_INT(mics_json_int(json));
    if (type == MICS_JSON_REAL)
        return MICS_REAL(mics_json_real(json));
    if (type == MICS_JSON_STRING)
        return MICS_STRING(mics_json_string(json), mics_json_string_bytes(json));
    if (type == MICS_JSON_NULL)
        return MICS_NONE;
    const bool array = type == MICS_JSON_ARRAY;
    const mics_value list = mics_list(work, array ? MICS_VALUE_LIST : MICS_VALUE_DICT);
    for (int32_t i = 0; array && i < mics_json_count(json); i++)
        mics_list_add(work, list, mics_value_of_json(work, mics_json_element(json, i)));
    const char *key = NULL;
    const mics_json_value *member = mics_json_next(json, &key);
    for (; member != NULL; member = mics_json_next(json, &key)) {
        mics_list_add(work, list, MICS_STRING(key, strlen(key)));
        mics_list_add(work, list, mics_value_of_json(work, member));
    }
    return list;
}

// ---- comparisons ----

bool mics_value_truth(mics_value value)
{
    if (value.type <= MICS_VALUE_NONE)
        return false;
    if (mics_is_number(value))
        return mics_number(value) != 0;
    if (mics_is_string(value))
        return value.bytes > 0;
    return value.type > MICS_VALUE_DICT || value.list->count > 0;
}

// Of lists and dicts.
static bool contents_same(mics_work *work, mics_value a, mics_value b)
{
    const bool dict = a.type == MICS_VALUE_DICT;
    bool same = a.list->count == b.list->count;
    mics_work_enter(work);
    for (int64_t i = 0; same && i < a.list->count; i += dict ? 2 : 1) {
        const mics_value *other = dict ? find_key(work, b, a.list->items[i]) : &b.list->items[i];
        same = other != NULL && mics_value_same(work, a.list->items[dict ? i + 1 : i], *other);
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
    if (mics_is_string(a)) {
        mics_work_spend(work, a.bytes == b.bytes ? (int64_t)(a.bytes / 64) : 0);
        return a.bytes == b.bytes && mics_text_begins(a, b);
    }
    if (a.type >= MICS_VALUE_LIST && a.type <= MICS_VALUE_DICT)
        return contents_same(work, a, b);
    return a.type == MICS_VALUE_NONE || a.type == MICS_VALUE_UNDEFINED || a.list == b.list;
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
    if (mics_is_string(a) && mics_is_string(b)) { // UTF-8 has the order of code points
        const size_t bytes = a.bytes < b.bytes ? a.bytes : b.bytes;
        const int order = bytes > 0 ? memcmp(a.text, b.text, bytes) : 0;
        return order != 0 ? order : (a.bytes > b.bytes) - (a.bytes < b.bytes);
    }
    mics_value_raise(work, "has no order beside what it is compared with",
                     b.type == MICS_VALUE_UNDEFINED ? b : a);
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

// ---- containers ----

static bool has_index(mics_value value)
{
    return value.type >= MICS_VALUE_STRING && value.type <= MICS_VALUE_RANGE;
}

bool mics_value_contains(mics_work *work, mics_value container, mics_value item)
{
    if (container.type == MICS_VALUE_DICT)
        return find_key(work, container, item) != NULL;
    if (mics_is_string(container)) {
        if (!mics_is_string(item))
            mics_value_raise(work, "cannot be looked for in a str", item);
        mics_work_spend(work, (int64_t)(container.bytes / 64));
        return mics_text_find(container, item, 0) != SIZE_MAX;
    }
    const mics_value_list *items = mics_value_items(work, container);
    for (int64_t i = 0; i < items->count; i++) {
        if (mics_value_same(work, items->items[i], item))
            return true;
    }
    return false;
}

int64_t mics_value_length(mics_work *work, mics_value value)
{
    if (value.type == MICS_VALUE_UNDEFINED)
        return 0;
    if (mics_is_string(value))
        return mics_text_count(value);
    if (value.type < MICS_VALUE_LIST || value.type > MICS_VALUE_DICT)
        mics_value_raise(work, "has no length", value);
    return value.type == MICS_VALUE_DICT ? value.list->count / 2 : value.list->count;
}

const mics_value_list *mics_value_items(mics_work *work, mics_value value)
{
    if (value.type >= MICS_VALUE_LIST && value.type <= MICS_VALUE_VIEW)
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
            mics_list_add(work, items, mics_text_part(value, at, at + length));
        }
    } else if (value.type != MICS_VALUE_UNDEFINED) {
        mics_value_raise(work, "has no items to go through", value);
    }
    return items.list;
}

mics_value mics_value_item(mics_work *work, mics_value value, mics_value key)
{
    const mics_value absent = {0};
    if (value.type == MICS_VALUE_UNDEFINED)
        mics_value_raise(work, "", value);
    if (value.type == MICS_VALUE_DICT && key.type != MICS_VALUE_LIST && key.type != value.type) {
        const mics_value *found = find_key(work, value, key);
        return found != NULL ? *found : absent;
    }
    if (!has_index(value) || (key.type != MICS_VALUE_INT && key.type != MICS_VALUE_BOOL))
        return absent;
    const int64_t length = mics_value_length(work, value);
    int64_t index = mics_integer(key);
    if (index >= length || index < -length)
        return absent;
    index += index < 0 ? length : 0;
    if (!mics_is_string(value))
        return value.list->items[index];
    mics_work_spend(work, (int64_t)(value.bytes / 64));
    return mics_text_part(value, mics_text_at(value, index), mics_text_at(value, index + 1));
}

// As Python's PySlice_AdjustIndices: a bound within the sequence, or right outside of it.
static int64_t bound_of(mics_value bound, int64_t length, bool back, int64_t otherwise)
{
    if (bound.type == MICS_VALUE_NONE)
        return otherwise;
    const int64_t at = mics_integer(bound), most = back ? length - 1 : length;
    if (at < 0)
        return at < -length ? (back ? -1 : 0) : at + length;
    return at > most ? most : at;
}

mics_value mics_value_slice(mics_work *work, mics_value value, const mics_value bounds[3])
{
    if (!has_index(value))
        mics_value_raise(work, "has no slices", value);
    for (int i = 0; i < 3; i++) {
        if (bounds[i].type < MICS_VALUE_NONE || bounds[i].type > MICS_VALUE_INT)
            mics_value_raise(work, "cannot bound a slice", bounds[i]);
    }
    const int64_t length = mics_value_length(work, value);
    const int64_t step = bounds[2].type == MICS_VALUE_NONE ? 1 : mics_integer(bounds[2]);
    const bool back = step < 0, text = mics_is_string(value);
    int64_t at = bound_of(bounds[0], length, back, back ? length - 1 : 0);
    const int64_t end = bound_of(bounds[1], length, back, back ? -1 : length);
    if (step == 0)
        mics_value_raise(work, "is cut in steps of 0", value);
    if (text && step == 1) {
        const size_t from = mics_text_at(value, at);
        return mics_text_part(value, from, end > at ? mics_text_at(value, end) : from);
    }
    const mics_value_list *items = mics_value_items(work, value); // of a text its characters
    const mics_value slice = mics_list(work, text ? MICS_VALUE_LIST : value.type);
    const size_t mark = work->out->bytes;
    while (back ? at > end : at < end) {
        if (text)
            mics_work_write(work, items->items[at].text, items->items[at].bytes);
        else
            mics_list_add(work, slice, items->items[at]);
        if (back ? step < end - at : step > end - at)
            break;
        at += step;
    }
    return text ? mics_work_cut(work, mark) : slice;
}

// ---- arithmetic, on integers of 64 bits: beyond them it raises ----

static bool counts(mics_value value)
{
    return value.type == MICS_VALUE_BOOL || value.type == MICS_VALUE_INT;
}

static mics_value compute_integers(mics_work *work, char sign, int64_t a, int64_t b)
{
    int64_t result = 1;
    bool overflow = false;
    if (sign == '+') {
        overflow = __builtin_add_overflow(a, b, &result);
    } else if (sign == '-') {
        overflow = __builtin_sub_overflow(a, b, &result);
    } else if (sign == '*') {
        overflow = __builtin_mul_overflow(a, b, &result);
    } else if (sign == 'p') {
        for (; b > 0 && !overflow; b--) {
            int64_t power = 0;
            mics_work_spend(work, 1);
            overflow = __builtin_mul_overflow(result, a, &power);
            result = power;
        }
    } else if (b == -1) { // the one divisor that can overflow
        overflow = sign == 'f' && a == INT64_MIN;
        result = sign == 'f' && !overflow ? -a : 0;
    } else { // rounded down; a remainder has the sign of what it was divided by
        const bool down = a % b != 0 && (a % b < 0) != (b < 0);
        result = sign == '%' ? a % b + (down ? b : 0) : a / b - (down ? 1 : 0);
    }
    if (overflow)
        mics_work_raise(work, MICS_ERR_UNSUPPORTED, "an integer is beyond 64 bits");
    return MICS_INT(result);
}

static mics_value compute_numbers(mics_work *work, char sign, mics_value a, mics_value b)
{
    const double x = mics_number(a), y = mics_number(b);
    if (y == 0 && strchr("/f%", sign) != NULL)
        mics_work_raise(work, MICS_ERR_INVALID, "a division by zero");
    if (counts(a) && counts(b) && sign != '/' && (sign != 'p' || y >= 0))
        return compute_integers(work, sign, mics_integer(a), mics_integer(b));
    if (sign == '+' || sign == '-')
        return MICS_REAL(sign == '+' ? x + y : x - y);
    if (sign == '*' || sign == '/')
        return MICS_REAL(sign == '*' ? x * y : x / y);
    if (sign == 'p') {
        if (!isfinite(pow(x, y)) && isfinite(x) && isfinite(y))
            mics_work_raise(work, MICS_ERR_INVALID, "a power has no finite value");
        return MICS_REAL(pow(x, y));
    }
    const double rest = fmod(x, y);
    const bool down = rest != 0 && (y < 0) != (rest < 0);
    return MICS_REAL(sign == '%' ? rest + (down ? y : 0) : round((x - rest) / y) - (down ? 1 : 0));
}

// A list or a string some times behind itself.
static mics_value repeat(mics_work *work, mics_value value, int64_t times)
{
    const size_t mark = work->out->bytes;
    if (mics_is_string(value)) {
        for (; times > 0 && value.bytes > 0; times--) {
            mics_work_spend(work, 1);
            mics_work_write(work, value.text, value.bytes);
        }
        mics_value repeated = mics_work_cut(work, mark);
        repeated.safe = value.safe;
        return repeated;
    }
    const mics_value list = mics_list(work, value.type);
    for (; times > 0 && value.list->count > 0; times--) {
        for (int64_t i = 0; i < value.list->count; i++)
            mics_list_add(work, list, value.list->items[i]);
    }
    return list;
}

static mics_value add(mics_work *work, mics_value a, mics_value b)
{
    if (!mics_is_string(a)) {
        const mics_value sum = repeat(work, a, 1);
        for (int64_t i = 0; i < b.list->count; i++)
            mics_list_add(work, sum, b.list->items[i]);
        return sum;
    }
    const bool safe = a.safe || b.safe;
    if (safe) {
        a = mics_text_escape(work, a);
        b = mics_text_escape(work, b);
    }
    const size_t mark = work->out->bytes;
    mics_work_write(work, a.text, a.bytes);
    mics_work_write(work, b.text, b.bytes);
    mics_value sum = mics_work_cut(work, mark);
    sum.safe = safe;
    return sum;
}

mics_value mics_value_compute(mics_work *work, char sign, mics_value a, mics_value b)
{
    const bool a_repeats = a.type >= MICS_VALUE_STRING && a.type <= MICS_VALUE_TUPLE;
    const bool b_repeats = b.type >= MICS_VALUE_STRING && b.type <= MICS_VALUE_TUPLE;
    if (mics_is_number(a) && mics_is_number(b))
        return compute_numbers(work, sign, a, b);
    if (sign == '+' && a_repeats && a.type == b.type)
        return add(work, a, b);
    if (sign == '*' && ((a_repeats && counts(b)) || (counts(a) && b_repeats)))
        return repeat(work, a_repeats ? a : b, mics_integer(a_repeats ? b : a));
    if (sign == '%' && mics_is_string(a))
        mics_work_raise(work, MICS_ERR_UNSUPPORTED,
                        "a string %% values is not known here; join them by ~");
    if (a.type == MICS_VALUE_UNDEFINED || b.type == MICS_VALUE_UNDEFINED)
        mics_value_raise(work, "", a.type == MICS_VALUE_UNDEFINED ? a : b);
    const char text[] = {sign == 'f' ? '/' : sign == 'p' ? '*' : sign, '\0'};
    mics_work_raise(work, MICS_ERR_INVALID, "cannot compute a %s %s%s a %s",
                    mics_value_type_text(a), text, sign == 'f' || sign == 'p' ? text : "",
                    mics_value_type_text(b));
}
