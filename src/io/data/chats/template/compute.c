// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Arithmetic as Python does it, on integers of 64 bits: beyond them it raises.
#include "io/data/chats/template/text.h"
#include "io/data/chats/template/value.h"
#include <math.h>

static _Noreturn void raise_operands(mics_work *work, char sign, mics_value a, mics_value b)
{
    if (a.type == MICS_VALUE_UNDEFINED || b.type == MICS_VALUE_UNDEFINED)
        mics_value_raise_undefined(work, a.type == MICS_VALUE_UNDEFINED ? a : b);
    const char text[] = {sign == 'f' ? '/' : sign == 'p' ? '*' : sign, '\0'};
    mics_work_raise(work, MICS_ERR_INVALID, "cannot compute a %s %s%s a %s",
                    mics_value_type_text(a), text, sign == 'f' || sign == 'p' ? text : "",
                    mics_value_type_text(b));
}

static mics_value exact(mics_work *work, bool overflow, int64_t result)
{
    if (overflow)
        mics_work_raise(work, MICS_ERR_UNSUPPORTED, "an integer is beyond 64 bits");
    return mics_int(result);
}

static mics_value power(mics_work *work, int64_t base, int64_t exponent)
{
    int64_t result = 1;
    bool overflow = false;
    if ((base == 0 || base == 1) && exponent > 0)
        return mics_int(base);
    for (; exponent > 0 && !overflow; exponent--) {
        mics_work_spend(work, 1);
        overflow = __builtin_mul_overflow(result, base, &result);
    }
    return exact(work, overflow, result);
}

// Python rounds quotients down, and a remainder has the sign of what it was divided by.
static mics_value divide(mics_work *work, char sign, int64_t a, int64_t b)
{
    if (b == -1) {
        int64_t negated = 0;
        const bool overflow = __builtin_sub_overflow((int64_t)0, a, &negated);
        return sign == '%' ? mics_int(0) : exact(work, overflow, negated);
    }
    const bool down = a % b != 0 && (a % b < 0) != (b < 0);
    return mics_int(sign == '%' ? a % b + (down ? b : 0) : a / b - (down ? 1 : 0));
}

static mics_value compute_reals(mics_work *work, char sign, double a, double b)
{
    if (sign == '+' || sign == '-' || sign == '*')
        return mics_real(sign == '+' ? a + b : sign == '-' ? a - b : a * b);
    if (sign == '/')
        return mics_real(a / b);
    if (sign == 'p') {
        if (!isfinite(pow(a, b)) && isfinite(a) && isfinite(b))
            mics_work_raise(work, MICS_ERR_INVALID, "a power has no finite value");
        return mics_real(pow(a, b));
    }
    double remainder = fmod(a, b);
    double quotient = (a - remainder) / b;
    if (remainder != 0 && (b < 0) != (remainder < 0)) {
        remainder += b;
        quotient -= 1;
    }
    return mics_real(sign == '%' ? remainder : floor(quotient + 0.5));
}

static mics_value compute_numbers(mics_work *work, char sign, mics_value a, mics_value b)
{
    const bool real = a.type == MICS_VALUE_REAL || b.type == MICS_VALUE_REAL;
    const int64_t x = real ? 0 : mics_integer(a), y = real ? 0 : mics_integer(b);
    int64_t result = 0;
    if ((sign == '/' || sign == 'f' || sign == '%') && mics_number(b) == 0)
        mics_work_raise(work, MICS_ERR_INVALID, "a division by zero");
    if (real || sign == '/' || (sign == 'p' && y < 0))
        return compute_reals(work, sign, mics_number(a), mics_number(b));
    bool overflow = false;
    if (sign == '+')
        overflow = __builtin_add_overflow(x, y, &result);
    else if (sign == '-')
        overflow = __builtin_sub_overflow(x, y, &result);
    else if (sign == '*')
        overflow = __builtin_mul_overflow(x, y, &result);
    else
        return sign == 'p' ? power(work, x, y) : divide(work, sign, x, y);
    return exact(work, overflow, result);
}

static mics_value add_strings(mics_work *work, mics_value a, mics_value b)
{
    const bool safe = a.safe || b.safe;
    if (safe) {
        a = mics_text_escape(work, a);
        b = mics_text_escape(work, b);
    }
    mics_value sum = mics_text_concat(work, a, b);
    sum.safe = safe;
    return sum;
}

static mics_value repeat(mics_work *work, mics_value value, int64_t times)
{
    if (mics_is_string(value)) {
        const size_t mark = work->out->bytes;
        for (int64_t i = 0; i < times && value.bytes > 0; i++) {
            mics_work_spend(work, 1);
            mics_work_write(work, value.text, value.bytes);
        }
        mics_value repeated = mics_work_cut(work, mark);
        repeated.safe = value.safe;
        return repeated;
    }
    const mics_value list = mics_list(work, value.type);
    for (int64_t i = 0; i < times && value.list->count > 0; i++) {
        for (int64_t j = 0; j < value.list->count; j++)
            mics_list_add(work, list, value.list->items[j]);
    }
    return list;
}

static bool is_sequence(mics_value value)
{
    return value.type == MICS_VALUE_LIST || value.type == MICS_VALUE_TUPLE;
}

static bool counts(mics_value value)
{
    return value.type == MICS_VALUE_BOOL || value.type == MICS_VALUE_INT;
}

mics_value mics_value_compute(mics_work *work, char sign, mics_value a, mics_value b)
{
    if (mics_is_number(a) && mics_is_number(b))
        return compute_numbers(work, sign, a, b);
    if (sign == '+' && mics_is_string(a) && mics_is_string(b))
        return add_strings(work, a, b);
    if (sign == '+' && is_sequence(a) && a.type == b.type) {
        const mics_value sum = repeat(work, a, 1);
        for (int64_t i = 0; i < b.list->count; i++)
            mics_list_add(work, sum, b.list->items[i]);
        return sum;
    }
    if (sign == '*' && (mics_is_string(a) || is_sequence(a)) && counts(b))
        return repeat(work, a, mics_integer(b));
    if (sign == '*' && counts(a) && (mics_is_string(b) || is_sequence(b)))
        return repeat(work, b, mics_integer(a));
    if (sign == '%' && mics_is_string(a))
        mics_work_raise(work, MICS_ERR_UNSUPPORTED,
                        "a string %% values is not known here; join them by ~");
    raise_operands(work, sign, a, b);
}
