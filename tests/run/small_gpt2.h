// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A small GPT-2, gpt2.json, and what it reads, text.txt.
#pragma once

#include <stdio.h>

// Writes both into the working directory. Returns 0, or another number.
static inline int write_small_gpt2(void)
{
    FILE *text = fopen("text.txt", "w"), *model = fopen("gpt2.json", "w");
    if (text == NULL || model == NULL)
        return 1;
    for (int i = 0; i < 400; i++)
        (void)fprintf(text, "the lark at break of day, %d times\n", i * i);
    (void)fprintf(model,
                  "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 2, \"n_embd\": 16, "
                  "\"n_positions\": 16, \"vocab_size\": 256, \"attn_pdrop\": 0.0, "
                  "\"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0}");
    return fclose(text) + fclose(model);
}
