// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics generate: text that continues a prompt.
#include "cli.h"
#include "mics/run.h"
#include <stdio.h>
#include <string.h>

static const char about[] =
    "Writes the prompt and text that continues it to standard output, token by token.\n"
    "CHECKPOINT is a step's folder, or that of a run (its newest checkpoint is taken), or a "
    "folder\n"
    "with config.json, safetensors and tokenizer.json from Hugging Face.";
static const char notes[] =
    "Text may grow past the positions that training used: when they are full, the newer half of "
    "the\n"
    "text is fed again and generation goes on from that. A longer prompt counts with its end.\n"
    "What the tokenizer's template puts before a text (<s>) stands before the prompt; a token "
    "that\n"
    "the model's eos_token_id names ends the text. The same seed gives the same text.";

typedef struct generate_options {
    const char *prompt;
    mics_sampling sampling;
    int64_t seed;
} generate_options;

static mics_status parse(cli_call *call, generate_options *options)
{
    const cli_option table[] = {
        {"prompt", CLI_TEXT, "TEXT", "text to continue; default: none", &options->prompt, 0, 0},
        {"tokens", CLI_INT, "N", "tokens to write; default 200", &options->sampling.tokens, 0, 0},
        {"temperature", CLI_REAL, "T", "0: always the most likely token; default 0.8",
         &options->sampling.temperature, 0, 0},
        {"top-k", CLI_INT, "K", "draw among the K most likely tokens; 0: all; default 40",
         &options->sampling.top_k, 0, 0},
        {"seed", CLI_INT, "S", "of the drawing; default 1", &options->seed, 0, 0},
        {"special-tokens", CLI_FLAG, NULL,
         "special tokens that the prompt names are taken as such, not as text",
         &options->sampling.special_tokens, 0, 0},
    };
    const cli_spec spec = {
        .verb = "generate",
        .arguments = "CHECKPOINT",
        .about = about,
        .options = table,
        .option_count = sizeof table / sizeof table[0],
        .min_arguments = 1,
        .max_arguments = 1,
        .notes = notes,
    };
    return cli_parse(call, &spec);
}

static mics_status generate(cli_call *call, generate_options *options)
{
    mics_saved *saved = NULL;
    MICS_TRY(mics_saved_open(call->memory, call->arguments.items[0], NULL, &saved));
    mics_status status = mics_saved_load(saved);
    if (status == MICS_OK) {
        call->running = true;
        options->sampling.seed = (uint64_t)options->seed;
        fputs(options->prompt, stdout);
        status = mics_saved_generate(saved, options->prompt, &options->sampling, stdout);
        fputc('\n', stdout);
    }
    mics_saved_close(saved);
    return status;
}

mics_status cmd_generate(cli_call *call)
{
    generate_options options = {
        .prompt = "", .sampling = {.tokens = 200, .temperature = 0.8, .top_k = 40}, .seed = 1};
    MICS_TRY(parse(call, &options));
    return call->helped ? MICS_OK : generate(call, &options);
}
