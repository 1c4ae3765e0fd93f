// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Parts of mics doctor.
#ifndef MICS_CLI_DOCTOR_H
#define MICS_CLI_DOCTOR_H

/* What there is of GPUs: a few lines of the text, and the value of "gpu". */
void cli_doctor_gpus_text(void);
void cli_doctor_gpus_json(void);

#endif
