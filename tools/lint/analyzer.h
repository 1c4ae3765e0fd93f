// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Included before every file when clang-tidy runs. The analyzer sees one file at a time and would
// think that mics_fail may return MICS_OK; this tells it that such functions return what they are
// given. The files that define them are checked without it.
#pragma once

#include "base/json.h"
#include "mics/log.h"

#define mics_fail(status, ...) ((void)(mics_fail)((status), __VA_ARGS__), (status))
#define mics_json_fail(json, key, status, ...)                                                     \
    ((void)(mics_json_fail)((json), (key), (status), __VA_ARGS__), (status))
