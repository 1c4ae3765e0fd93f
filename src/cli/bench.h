// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics bench prints.
#ifndef MICS_CLI_BENCH_H
#define MICS_CLI_BENCH_H

#include "measure/measure.h"

/* What was measured, as tables, and that `file` was written. */
void cli_bench_text(const char *file, const measure_report *report);

/* The same as one JSON object. Returns: MICS_OK; MICS_ERR_MEMORY, before anything is printed. */
mics_status cli_bench_json(mics_memory *memory, const char *file, const measure_report *report);

#endif
