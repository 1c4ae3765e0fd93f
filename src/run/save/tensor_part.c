// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "tensor_part.h"

mics_range run_part_in(const mics_param *param, const mics_param_part *part, mics_range range)
{
    const int64_t row_elems = mics_param_row_elems(param);
    const int64_t at = param->offset + part->row * row_elems;
    const int64_t end = at + part->rows * row_elems;
    if (range.begin < at)
        range.begin = at;
    if (range.end > end)
        range.end = end;
    return range;
}

mics_status run_part_read(const mics_param *param, const mics_param_part *part,
                          const mics_safetensors *reader, const char *name, mics_range range,
                          float *data_out)
{
    const mics_range in = run_part_in(param, part, range);
    if (in.begin >= in.end)
        return MICS_OK;
    return mics_safetensors_read(reader, name, run_part_elem(param, part, in.begin),
                                 in.end - in.begin, data_out + (in.begin - range.begin));
}
