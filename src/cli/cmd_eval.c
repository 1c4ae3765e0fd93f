// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics eval: loss and perplexity of a checkpoint on texts.
#include "cli.h"
#include "io/report/printer.h"
#include "mics/run.h"
#include <math.h>
#include <string.h>

typedef struct eval_options {
    mics_evaluation_spec spec;
    cli_list data;
    bool json, quiet;
    const char *adapter, *base;
} eval_options;

#define AT(member) offsetof(eval_options, member)
static const cli_option flags[] = {
    {"data", CLI_MANY, "FILES...", "texts, or .bin token shards", AT(data), 0, 0},
    {"text-field", CLI_TEXT, "NAME",
     "field of JSON Lines, or column of a table, that holds the text; default: as in training, or "
     "\"text\"",
     AT(spec.text_field), 0, 0},
    {"special-tokens", CLI_FLAG, NULL,
     "special tokens that the texts name are taken as such, not as text; default: as in training",
     AT(spec.special_tokens), 0, 0},
    {"sequence", CLI_INT, "N", "tokens of a window; default: as in training", AT(spec.sequence), 1,
     0},
    {"stride", CLI_INT, "N",
     "tokens from one window to the next, for windows that overlap; default: --sequence",
     AT(spec.stride), 1, 0},
    CLI_ON_ADAPTER(AT(adapter)),
    CLI_BASE(AT(base)),
    CELL_JSON(eval_options),
    {"quiet", CLI_FLAG, NULL, "show no progress", AT(quiet), 0, 0},
};

static void print_result(const mics_saved *saved, const mics_evaluation *evaluation, bool json)
{
    const mics_saved_facts facts = mics_saved_facts_get(saved);
    const double loss = evaluation->loss, bits = loss / log(2);
    // Only where a token is a byte.
    const bool bytes = facts.tokenizer != NULL && strcmp(facts.tokenizer, "bytes") == 0;
    printer r = {.json = json, .digits = 9};
    printer_open(&r, NULL, '{', false);
    printer_text(&r, "%s, step %lld\nloss %.6f, perplexity %.4f", facts.path, (long long)facts.step,
                 loss, exp(loss));
    PRINTER_ROW(&r, cell_words("checkpoint", facts.path), cell_int("step", facts.step),
                cell_int("sequence", evaluation->sequence), cell_int("stride", evaluation->stride),
                cell_int("tokens", evaluation->tokens), cell_int("ranks", evaluation->ranks),
                cell_number("loss", loss), cell_number("perplexity", exp(loss)));
    if (bytes) {
        printer_text(&r, ", %.4f bits per byte", bits);
        PRINTER_ROW(&r, cell_number("bits_per_byte", bits));
    }
    printer_text(&r, " over %lld %stokens in windows of %lld", (long long)evaluation->tokens,
                 facts.model->masked ? "hidden " : "", (long long)evaluation->sequence);
    if (evaluation->stride < evaluation->sequence && !facts.model->masked)
        printer_text(&r, ", every %lld", (long long)evaluation->stride);
    if (evaluation->ranks > 1)
        printer_text(&r, ", by %d ranks", (int)evaluation->ranks);
    printer_text(&r, "\n");
    printer_close(&r);
}

// Every process opens the checkpoint; of their errors one is said (mics_saved_evaluate).
static mics_status run_eval(cli_call *call)
{
    eval_options options = {.json = false};
    mics_evaluation_spec *spec = &options.spec;
    mics_saved *saved = NULL;
    mics_evaluation evaluation = {0};
    mics_progress *work = NULL;
    MICS_TRY(cli_parse(call, &options));
    if (options.data.count == 0)
        return mics_fail(MICS_ERR_INVALID, "mics eval: --data FILES is missing");
    const mics_work_listener listener = cli_work_open(call->memory, options.quiet, &work);
    mics_log_hold(mics_job_is_launched());
    spec->files = options.data.items;
    spec->file_count = options.data.count;
    spec->status = cli_open_saved(call, options.adapter, options.base, &saved);
    if (spec->status == MICS_OK)
        mics_saved_listen(saved, &listener);
    const mics_status status = mics_saved_evaluate(saved, spec, &call->running, &evaluation);
    cli_work_close(&work);
    if (status == MICS_OK && evaluation.first)
        print_result(saved, &evaluation, options.json);
    mics_saved_close(saved);
    return status;
}

const cli_verb cmd_eval = {
    .name = "eval",
    .summary = "loss and perplexity of a checkpoint on a text",
    .arguments = "CHECKPOINT",
    .about =
        "Prints loss and perplexity of a checkpoint on texts or token shards, taken as one "
        "stream.\n"
        "CHECKPOINT is a step's folder, or that of a run (its newest checkpoint is taken), or a "
        "folder\n"
        "with config.json, safetensors and tokenizer.json from Hugging Face.",
    CLI_OPTIONS(flags),
    .min_arguments = 1,
    .max_arguments = 1,
    .notes =
        "Under mpirun or srun the ranks share the windows, and the first one prints.\n"
        "The stream is cut into windows of --sequence tokens; each token is predicted from those "
        "before\n"
        "it in its window, and every token but the first of the stream counts once.\n"
        "With --stride windows overlap, and a token counts where most tokens stand before it.",
    .run = run_eval,
    .stopped = "no loss was found",
};
