// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics convert: a checkpoint as Hugging Face safetensors. (The other way is model.init of a run
// file.)
#include "cli.h"
#include "mics/log.h"
#include "mics/run.h"
#include "printer.h"
#include "signals.h"
#include "work.h"
#include <string.h>

static const char about[] = "Writes a checkpoint's parameters as Hugging Face safetensors, with "
                            "the files that transformers\n"
                            "needs to read the same model and tokens. CHECKPOINT is a step's "
                            "folder, or that of a run (its\n"
                            "newest checkpoint is taken), or a folder from Hugging Face. The other "
                            "way: \"model\": {\"init\":\n"
                            "FOLDER} in a run file.";

typedef struct convert_options {
    mics_export_spec spec;
    const char *dtype;
    bool json, quiet;
} convert_options;

static mics_status parse(cli_call *call, convert_options *options)
{
    const cli_option table[] = {
        {"max-shard-bytes", CLI_INT, "N",
         "several files of at most N bytes each, or one tensor; default: one",
         &options->spec.max_file_bytes, 1, 0},
        {"dtype", CLI_TEXT, "fp32|bf16|fp16", "default: fp32", &options->dtype, 0, 0},
        {"json", CLI_FLAG, NULL, "print one JSON object", &options->json, 0, 0},
        {"quiet", CLI_FLAG, NULL, "print nothing but errors, and show no progress", &options->quiet,
         0, 0},
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
    return cli_parse(call, &spec);
}

static mics_status choose_dtype(convert_options *options)
{
    for (int dtype = 0; dtype < MICS_DTYPES; dtype++) {
        options->spec.dtype = (mics_dtype)dtype;
        if (strcmp(options->dtype, mics_dtype_text(options->spec.dtype)) == 0)
            return MICS_OK;
    }
    return mics_fail(MICS_ERR_INVALID, "--dtype %s: fp32, bf16 and fp16 are known", options->dtype);
}

static void print_result(const char *dir, const mics_saved *saved, const convert_options *options)
{
    const mics_saved_facts facts = mics_saved_facts_get(saved);
    const int64_t params = mics_model_param_count(facts.model);
    cli_report r = {.json = options->json};
    if (!options->quiet)
        cli_print(&r, "%s: %lld parameters of %s\n", dir, (long long)params, facts.path);
    CLI_OBJECT(&r, NULL, cli_words("folder", dir), cli_words("checkpoint", facts.path),
               cli_int("step", facts.step), cli_int("parameters", params),
               cli_words("dtype", options->dtype));
}

static mics_status convert(cli_call *call, const convert_options *options)
{
    const char *dir = call->arguments.items[1];
    mics_saved *saved = NULL;
    cli_work work;
    MICS_TRY(mics_saved_open(call->memory, call->arguments.items[0], NULL, &saved));
    const mics_work_listener listener = cli_work_open(call->memory, options->quiet, &work);
    mics_saved_listen(saved, &listener);
    const mics_status status = mics_saved_export(saved, dir, &options->spec);
    cli_work_close(&work);
    if (status == MICS_OK)
        print_result(dir, saved, options);
    mics_saved_close(saved);
    return status;
}

mics_status cmd_convert(cli_call *call)
{
    convert_options options = {.dtype = "fp32"};
    MICS_TRY(parse(call, &options));
    if (call->helped)
        return MICS_OK;
    MICS_TRY(choose_dtype(&options));
    cli_signals_word("nothing was written");
    MICS_TRY(cli_signals_start()); // so that a signal leaves no half a file
    return convert(call, &options);
}
