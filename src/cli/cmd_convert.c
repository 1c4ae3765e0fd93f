// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics convert: a checkpoint as Hugging Face safetensors. (The other way is model.init of a run
// file.)
#include "cli.h"
#include "io/report/printer.h"
#include "mics/log.h"
#include "mics/run.h"
#include <string.h>

typedef struct convert_options {
    mics_export_spec spec;
    const char *dtype;
    bool json, quiet;
    const char *base;
} convert_options;

#define AT(member) offsetof(convert_options, member)
static const cli_option flags[] = {
    {"max-shard-bytes", CLI_INT, "N",
     "several files of at most N bytes each, or one tensor; default: one", AT(spec.max_file_bytes),
     1, 0},
    {"dtype", CLI_TEXT, "fp32|bf16|fp16", "default: fp32", AT(dtype), 0, 0},
    {"merge", CLI_FLAG, NULL, "add the adapter to the weights; default: it alone, as PEFT's folder",
     AT(spec.merge), 0, 0},
    CLI_BASE(AT(base)),
    CELL_JSON(convert_options),
    {"quiet", CLI_FLAG, NULL, "print nothing but errors, and show no progress", AT(quiet), 0, 0},
};

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
    const bool alone = facts.adapter_elems > 0 && !options->spec.merge;
    const int64_t params = alone ? mics_model_trained_count(facts.model)
                                 : mics_model_param_count(facts.model) - facts.adapter_elems;
    printer r = {.json = options->json};
    if (!options->quiet)
        printer_text(&r, "%s: %lld parameters of %s\n", dir, (long long)params, facts.path);
    PRINTER_OBJECT(&r, NULL, cell_words("folder", dir), cell_words("checkpoint", facts.path),
                   cell_int("step", facts.step), cell_int("parameters", params),
                   cell_words("dtype", options->dtype));
}

static mics_status run_convert(cli_call *call)
{
    convert_options options = {.dtype = "fp32"};
    mics_saved *saved = NULL;
    mics_progress *work = NULL;
    MICS_TRY(cli_parse(call, &options));
    MICS_TRY(choose_dtype(&options));
    const char *dir = call->arguments.items[1];
    MICS_TRY(cli_open_saved(call, NULL, options.base, &saved));
    const mics_work_listener listener = cli_work_open(call->memory, options.quiet, &work);
    mics_saved_listen(saved, &listener);
    const mics_status status = mics_saved_export(saved, dir, &options.spec);
    cli_work_close(&work);
    if (status == MICS_OK)
        print_result(dir, saved, &options);
    mics_saved_close(saved);
    return status;
}

const cli_verb cmd_convert = {
    .name = "convert",
    .summary = "makes Hugging Face safetensors from a checkpoint",
    .arguments = "CHECKPOINT OUTDIR",
    .about = "Writes a checkpoint's parameters as Hugging Face safetensors, with "
             "the files that transformers\n"
             "needs to read the same model and tokens. CHECKPOINT is a step's "
             "folder, or that of a run (its\n"
             "newest checkpoint is taken), or a folder from Hugging Face. The other "
             "way: \"model\": {\"init\":\n"
             "FOLDER} in a run file. An adapter becomes a folder as PEFT has it, or with --merge "
             "a whole model;\n"
             "CHECKPOINT may also be such a folder.",
    CLI_OPTIONS(flags),
    .min_arguments = 2,
    .max_arguments = 2,
    .run = run_convert,
    .stopped = "nothing was written",
};
