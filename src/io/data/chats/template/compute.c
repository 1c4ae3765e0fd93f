// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Arithmetic as Python does it, on integers of 64 bits: beyond them it raises.
#include "io/data/chats/template/text.h"
#include "io/data/chats/template/value.h"
#include <math.h>
#include <string.h>

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
