// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include <string.h>

static bool is_nested(const mics_json_value *value)
{
    const mics_json_type type = mics_json_type_of(value);
    return type == MICS_JSON_ARRAY || type == MICS_JSON_OBJECT;
}

static bool same_plain(const mics_json_value *a, const mics_json_value *b)
{
    mics_json_type type = mics_json_type_of(a);
    bool number = type == MICS_JSON_INT || type == MICS_JSON_REAL;
    mics_json_type other = mics_json_type_of(b);
    if (number && (other == MICS_JSON_INT || other == MICS_JSON_REAL)) {
        double difference = mics_json_real(a) - mics_json_real(b);
        return !(difference < 0) && !(difference > 0);
    }
    if (type != other)
        return false;
    switch (type) {
    case MICS_JSON_BOOL:
        return mics_json_bool(a) == mics_json_bool(b);
    case MICS_JSON_STRING:
        return strcmp(mics_json_string(a), mics_json_string(b)) == 0;
    default: // null
        return true;
    }
}

// Values nest no deeper than mics_json_parse lets them.
// NOLINTNEXTLINE(misc-no-recursion)
bool mics_json_is_same(const mics_json_value *a, const mics_json_value *b)
{
    const char *key = NULL;
    const mics_json_value *member;
    if (a == NULL || b == NULL)
        return a == b;
    if (!is_nested(a) || mics_json_type_of(a) != mics_json_type_of(b))
        return same_plain(a, b);
    bool same = mics_json_count(a) == mics_json_count(b);
    if (mics_json_type_of(a) == MICS_JSON_ARRAY) {
        for (int32_t i = 0; same && i < mics_json_count(a); i++)
            same = mics_json_is_same(mics_json_element(a, i), mics_json_element(b, i));
        return same;
    }
    while (same && (member = mics_json_next(a, &key)) != NULL)
        same = mics_json_is_same(member, mics_json_get(b, key));
    return same;
}
