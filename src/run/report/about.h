// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "mics/run.h"

/* Writes OUT/about.json, for who looks at the run from elsewhere (io/report/page.h): the machine of
 * rank 0, and what the schedule predicts. Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_MEMORY. */
mics_status run_about_write(const mics_job *job);
