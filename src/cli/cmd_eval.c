// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics eval: loss and perplexity of a checkpoint on texts.
#include "args.h"
#include "base/text.h"
#include "cli.h"
#include "mics/run.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char about[] =
    "Prints loss and perplexity of a checkpoint on texts or token shards, taken as one stream.\n"
    "CHECKPOINT is a step's folder, or that of a run (its newest checkpoint is taken).";
static const char notes[] =
    "The stream is cut into windows of --sequence tokens; each token is predicted from those "
    "before\n"
    "it in its window, and every token but the first of the stream counts once.";

typedef struct eval_options {
    cli_list arguments, data;
    bool json;
    int64_t sequence; // 0: what the model was trained with
} eval_options;

static cli_parsed parse(mics_memory *memory, int argc, char **argv, eval_options *options)
{
    const cli_option table[] = {
        {"data", CLI_MANY, "FILES...", "texts, or .bin token shards", &options->data, 0, 0},
        {"sequence", CLI_INT, "N", "tokens of a window; default: as in training",
         &options->sequence, 1, 0},
        {"json", CLI_FLAG, NULL, "print one JSON object", &options->json, 0, 0},
    };
    const cli_spec spec = {
        .verb = "eval",
        .arguments = "CHECKPOINT",
        .about = about,
        .options = table,
        .option_count = sizeof table / sizeof table[0],
        .min_arguments = 1,
        .max_arguments = 1,
        .notes = notes,
    };
    cli_parsed parsed = cli_parse(memory, &spec, argc, argv, &options->arguments);
    if (parsed == CLI_PARSED_RUN && options->data.count == 0) {
        mics_fail(MICS_ERR_INVALID, "mics eval: --data FILES is missing");
        return CLI_PARSED_WRONG;
    }
    return parsed;
}

static void print_result(const mics_saved *saved, const mics_evaluation *evaluation, bool json)
{
    const mics_saved_facts facts = mics_saved_facts_get(saved);
    const double loss = evaluation->loss, bits = loss / log(2);
    // Only where a token is a byte.
    const bool bytes = facts.tokenizer != NULL && strcmp(facts.tokenizer, "bytes") == 0;
    if (json) {
        printf("{\"checkpoint\": ");
        mics_text_write_quoted(stdout, facts.path);
        printf(", \"step\": %lld, \"sequence\": %lld, \"tokens\": %lld, "
               "\"loss\": %.9g, \"perplexity\": %.9g",
               (long long)facts.step, (long long)evaluation->sequence,
               (long long)evaluation->tokens, loss, exp(loss));
        if (bytes)
            printf(", \"bits_per_byte\": %.9g", bits);
        printf("}\n");
        return;
    }
    printf("%s, step %lld\n", facts.path, (long long)facts.step);
    printf("loss %.6f, perplexity %.4f", loss, exp(loss));
    if (bytes)
        printf(", %.4f bits per byte", bits);
    printf(" over %lld tokens in windows of %lld\n", (long long)evaluation->tokens,
           (long long)evaluation->sequence);
}

static mics_status run_eval(mics_memory *memory, const eval_options *options, bool *running_out)
{
    mics_saved *saved = NULL;
    mics_evaluation evaluation;
    MICS_TRY(mics_saved_open(memory, options->arguments.items[0], NULL, &saved));
    mics_status status = mics_saved_evaluate(saved, options->data.items, options->data.count,
                                             options->sequence, running_out, &evaluation);
    if (status == MICS_OK)
        print_result(saved, &evaluation, options->json);
    mics_saved_close(saved);
    return status;
}

int cmd_eval(int argc, char **argv)
{
    mics_memory *memory = NULL;
    eval_options options = {0};
    bool running = false;
    if (mics_memory_open(&memory) != MICS_OK)
        return CLI_EXIT_FAILED;
    cli_parsed parsed = parse(memory, argc, argv, &options);
    mics_status status = parsed == CLI_PARSED_WRONG ? MICS_ERR_INVALID : MICS_OK;
    if (parsed == CLI_PARSED_RUN)
        status = run_eval(memory, &options, &running);
    mics_free(memory, options.arguments.items);
    mics_free(memory, options.data.items);
    mics_memory_close(memory);
    return cli_exit_status(status, running);
}
