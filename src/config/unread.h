// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files of programs that are not read: named, with what would work.
#pragma once

#include "base/json.h"

/* Refuses a document with keys that a program which is not read has, and no file here.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT, one line that names the program. */
mics_status mics_config_check_program(const mics_json *json);

/* The same of a file by its name's ending: Python, a shell script, TOML. */
mics_status mics_config_check_script(mics_memory *memory, const char *path);
