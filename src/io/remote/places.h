// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where files are kept, and what the environment says of them.
#pragma once

#include "io/remote/download.h"

/* A variable of the environment, or `otherwise` where it is not set or empty. */
const char *remote_env(const char *name, const char *otherwise);

/* Whether HF_HUB_OFFLINE says that nobody is to be asked. */
bool remote_is_offline(void);

/* huggingface_hub's cache; and our own, of what is of no hub.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: nobody says where it is.
 */
mics_status remote_cache_of_hub(char path[REMOTE_PATH_BYTES]);
mics_status remote_cache_of_mics(char path[REMOTE_PATH_BYTES]);

/* "Authorization: Bearer ..." by HF_TOKEN, or the file that `hf auth login` leaves; "": no token. */
void remote_hub_token(char *header, size_t capacity);
