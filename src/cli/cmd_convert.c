// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics convert: a checkpoint as Hugging Face safetensors. (The other way is model.init of a run
// file.)
#include "args.h"
#include "cli.h"
#include "mics/run.h"
#include <stdio.h>

static const char about[] =
    "Writes a checkpoint's parameters as Hugging Face safetensors (fp32), with config.json and,\n"
    "where there is one, tokenizer.json. CHECKPOINT is a step's folder, or that of a run (its\n"
    "newest checkpoint is taken). The other way: \"model\": {\"init\": FOLDER} in a run file.";

typedef struct convert_options {
    cli_list arguments;
    int64_t max_shard_bytes;
} convert_options;

static cli_parsed parse(mics_memory *memory, int argc, char **argv, convert_options *options)
{
    const cli_option table[] = {
        {"max-shard-bytes", CLI_INT, "N",
         "several files of at most N bytes each, or one tensor; default: one",
         &options->max_shard_bytes, 1, 0},
    };
    const cli_spec spec = {
        .verb = "convert",
        .arguments = "CHECKPOINT OUTDIR",
        .about = about,
        .options = table,
        .option_count = sizeof table / sizeof table[0],
        .min_arguments = 2,
        .max_arguments = 2,
    };
    return cli_parse(memory, &spec, argc, argv, &options->arguments);
}

static mics_status convert(mics_memory *memory, const convert_options *options)
{
    const char *dir = options->arguments.items[1];
    mics_saved *saved = NULL;
    MICS_TRY(mics_saved_open(memory, options->arguments.items[0], NULL, &saved));
    const mics_status status = mics_saved_export(saved, dir, options->max_shard_bytes);
    const mics_saved_facts facts = mics_saved_facts_get(saved);
    if (status == MICS_OK)
        printf("%s: %lld parameters of %s\n", dir, (long long)mics_model_param_count(facts.model),
               facts.path);
    mics_saved_close(saved);
    return status;
}

int cmd_convert(int argc, char **argv)
{
    mics_memory *memory = NULL;
    convert_options options = {0};
    if (mics_memory_open(&memory) != MICS_OK)
        return CLI_EXIT_FAILED;
    cli_parsed parsed = parse(memory, argc, argv, &options);
    mics_status status = parsed == CLI_PARSED_WRONG ? MICS_ERR_INVALID : MICS_OK;
    if (parsed == CLI_PARSED_RUN)
        status = convert(memory, &options);
    mics_free(memory, options.arguments.items);
    mics_memory_close(memory);
    return cli_exit_status(status, false);
}
