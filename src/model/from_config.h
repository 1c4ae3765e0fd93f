// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Models of Hugging Face's config.json.
#pragma once

#include "base/json.h"
#include "mics/model.h"

enum { MICS_MODEL_CONFIG_MAX_BYTES = 1 << 20 }; // of a config.json

/* A model of the shapes that any Hugging Face config.json of a decoder or encoder gives: for plans,
 * never to be run. It knows grouped heads, gated layers, experts, windows and latent attention (of
 * the size of its parameters), under the keys that families have for them, also below text_config;
 * biases and rotary embeddings are left out.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: a size is missing, or is none; MICS_ERR_UNSUPPORTED,
 *          logged: no decoder, or its layers have several shapes; MICS_ERR_MEMORY.
 * Owns:    close with mics_model_close.
 */
mics_status mics_model_from_shapes(mics_memory *memory, const mics_json *config,
                                   mics_model **model_out);

/* Whether mics_model_from_shapes does not know the family of a config.json. Writes what it takes it
 * for then: "a decoder with causal attention, gated feed-forward layers of 14336 ..."; else "".
 *
 * Needs:   a config that mics_model_from_shapes takes.          Pure.
 */
bool mics_model_is_guess(const mics_json *config, char *text, size_t capacity);

/* Builds the model that a Hugging Face config.json describes: model_type gpt2, llama, mistral,
 * qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe, gpt_neox, bert or roberta (docs/config.md).
 *
 * Errors name file, line and key. A key that changes the model and cannot be honoured (another
 * activation) is an error. `ignore_dropout` builds the model without its dropouts. An absent
 * dropout key counts as 0.
 * Returns: MICS_OK; MICS_ERR_INVALID; MICS_ERR_UNSUPPORTED (other model_type); MICS_ERR_MEMORY.
 * Owns:    close with mics_model_close.
 */
mics_status mics_model_from_config(mics_memory *memory, const mics_json *config,
                                   bool ignore_dropout, mics_model **model_out);

// What other programs call a family.
typedef struct mics_family {
    const char *model_type; // "gpt2"
    const char *class_name; // of its language model in transformers
    const char *layers_key; // of config.json: number of layers
} mics_family;

/* Finds a family by its model_type, which may be NULL.
 *
 * Returns: whether it is known (family_out untouched if not).
 */
bool mics_model_family(const char *model_type, mics_family *family_out);

/* Whether the eos_token_id of a config.json or generation_config.json is a token's id, a list of
 * such, null or absent.
 *
 * Needs:   an object.
 * Returns: MICS_OK; MICS_ERR_INVALID, naming file, line and key.
 */
mics_status mics_model_check_ends(const mics_json *config);
