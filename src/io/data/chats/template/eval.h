// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Running a template's tree.
#pragma once

#include "io/data/chats/template/tree.h"

/* Runs a template's statements: `variables` is a dict; what generation blocks write is added to
 * `spans`, unless NULL. */
void mics_template_run(mics_work *work, const mics_node *body, mics_value variables,
                       mics_template_spans *spans);
