// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Checked sizes.
#include "base/size.h"
#include "base/text.h"
#include "mics/log.h"

mics_status mics_size_mul(int64_t a, int64_t b, int64_t *product_out)
{
    if (a < 0 || b < 0 || (b != 0 && a > INT64_MAX / b))
        return mics_fail(MICS_ERR_INVALID,
                         "%lld x %lld elements is not a size that fits in 63 bits", (long long)a,
                         (long long)b);
    *product_out = a * b;
    return MICS_OK;
}

mics_status mics_size_bytes(int64_t elems, size_t elem_bytes, size_t *bytes_out)
{
    int64_t bytes = 0;
    MICS_TRY(mics_size_mul(elems, (int64_t)elem_bytes, &bytes));
    *bytes_out = (size_t)bytes;
    return MICS_OK;
}

int64_t mics_size_round_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

char *mics_size_text(double bytes, char *text, size_t capacity)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int unit = 0;
    while (bytes >= 1024 && unit < 5) {
        bytes /= 1024;
        unit++;
    }
    int digits = unit == 0 || bytes >= 100 ? 0 : bytes >= 10 ? 1 : 2;
    mics_text_format(text, capacity, "%.*f %s", digits, bytes, units[unit]);
    return text;
}
