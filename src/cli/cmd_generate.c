// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics generate: text that continues a prompt.
#include "base/text.h"
#include "base/utf8.h"
#include "cli.h"
#include "io/report/printer.h"
#include "io/report/terminal.h"
#include "mics/log.h"
#include "mics/run.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_SAMPLES = 1024, MAX_THREADS = 4096, FILL_CHOICES = 5 };

typedef struct generate_options {
    const char *prompt, *prompt_file, *fill, *precision, *adapter, *base;
    cli_list stops;
    mics_sampling sampling;
    int64_t seed, samples;
    bool stats, quiet, json;
} generate_options;

// Refuses what means nothing where no text is drawn.
static mics_status check_fill(const cli_call *call)
{
    for (int32_t i = 0; i < call->verb->option_count; i++) {
        const char *name = call->verb->options[i].name;
        if ((call->given >> i & 1) != 0 &&
            !mics_text_is_among(name, "fill|threads|json|quiet|adapter|base"))
            return mics_fail(MICS_ERR_INVALID,
                             "mics generate: --%s means nothing with --fill; leave one out", name);
    }
    return MICS_OK;
}

// What draws, where nothing is drawn.
static void log_undrawn(const cli_call *call)
{
    for (int32_t i = 0; i < call->verb->option_count; i++) {
        const char *name = call->verb->options[i].name;
        if ((call->given >> i & 1) != 0 &&
            mics_text_is_among(name, "top-k|top-p|min-p|seed|samples"))
            mics_log(MICS_LOG_WARNING,
                     "--%s changes nothing at --temperature 0, which takes the likeliest token",
                     name);
    }
}

#define AT(member) offsetof(generate_options, member)
static const cli_option flags[] = {
    {"prompt", CLI_TEXT, "TEXT", "text to continue; default: none", AT(prompt), 0, 0},
    {"prompt-file", CLI_TEXT, "FILE", "the prompt is its text; -: standard input's",
     AT(prompt_file), 0, 0},
    {"fill", CLI_TEXT, "TEXT", "of an encoder: the likeliest tokens for each mask token in TEXT",
     AT(fill), 0, 0},
    {"tokens", CLI_INT, "N", "tokens to write; default 200", AT(sampling.tokens), 0, 0},
    {"temperature", CLI_REAL, "T", "0: always the most likely token; default 0.8",
     AT(sampling.temperature), 0, 0},
    {"top-k", CLI_INT, "K", "draw among the K most likely tokens; 0: all; default 40",
     AT(sampling.top_k), 0, 0},
    {"top-p", CLI_POSITIVE, "P",
     "of these among the likeliest that have this share of probability; default 1: all",
     AT(sampling.top_p), 0, 1},
    {"min-p", CLI_REAL, "P",
     "of these among those with this share of the likeliest's probability; default 0: all",
     AT(sampling.min_p), 0, 1},
    {"repetition-penalty", CLI_POSITIVE, "R",
     "above 1: tokens that the text has become less likely; default 1",
     AT(sampling.repetition_penalty), 0, 0},
    {"stop", CLI_EACH, "TEXT", "ends the text before TEXT; may be given again", AT(stops), 0, 0},
    CLI_ON_ADAPTER(AT(adapter)),
    CLI_BASE(AT(base)),
    {"seed", CLI_INT, "S", "of the drawing; default 1", AT(seed), 0, 0},
    {"samples", CLI_INT, "K",
     "texts, computed together and printed when all have ended; the k-th is that of seed S + k "
     "- 1",
     AT(samples), 1, MAX_SAMPLES},
    {"precision", CLI_TEXT, "fp32|bf16", "of weights in memory; default: as they are stored",
     AT(precision), 0, 0},
    {"threads", CLI_COUNT, "N", "default: all cores that the process may use", AT(sampling.threads),
     1, MAX_THREADS},
    {"stats", CLI_FLAG, NULL, "speed on standard error; by default where that is a terminal",
     AT(stats), 0, 0},
    {"json", CLI_FLAG, NULL, "print one JSON object, with the texts and the speed", AT(json), 0, 0},
    {"quiet", CLI_FLAG, NULL, "show neither progress nor speed", AT(quiet), 0, 0},
    {"special-tokens", CLI_FLAG, NULL,
     "special tokens that the prompt names are taken as such, not as text",
     AT(sampling.special_tokens), 0, 0},
};

// ---- the prompt ----

// All of a stream, with a NUL behind it. Owns: the caller frees *text_out with free.
static mics_status read_all(FILE *from, const char *name, char **text_out)
{
    size_t capacity = 0;
    errno = 0;
    const ssize_t got = getdelim(text_out, &capacity, '\0', from);
    if (ferror(from) != 0 || (got < 0 && !feof(from)))
        return mics_fail(mics_status_of_errno(errno), "%s: cannot read: %s", name, strerror(errno));
    if (got > 0 && (*text_out)[got - 1] == '\0')
        return mics_fail(MICS_ERR_INVALID, "%s: a prompt is text, and byte %lld is a NUL", name,
                         (long long)got - 1);
    if (got < 0) // it is empty
        (*text_out)[0] = '\0';
    return MICS_OK;
}

// Leaves in options->prompt what the file has. Owns: the caller frees *text_out with free.
static mics_status read_prompt(generate_options *options, char **text_out)
{
    const char *path = options->prompt_file;
    if (path == NULL) {
        options->prompt = options->prompt != NULL ? options->prompt : "";
        return MICS_OK;
    }
    if (options->prompt != NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "mics generate: --prompt contradicts --prompt-file; leave one out");
    const bool input = strcmp(path, "-") == 0;
    FILE *from = input ? stdin : fopen(path, "re");
    if (from == NULL)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot open: %s", path, strerror(errno));
    const mics_status status = read_all(from, input ? "standard input" : path, text_out);
    if (!input)
        fclose(from);
    options->prompt = *text_out;
    return status;
}

static mics_status check_stops(const cli_list *stops)
{
    for (int32_t i = 0; i < stops->count; i++) {
        if (stops->items[i][0] == '\0')
            return mics_fail(MICS_ERR_INVALID, "mics generate: --stop: needs a text");
    }
    return MICS_OK;
}

// ---- texts ----

static mics_status choose_dtype(const char *name, const mics_saved *saved, mics_dtype *dtype_out)
{
    *dtype_out = mics_saved_facts_get(saved).dtype;
    if (name == NULL)
        return MICS_OK;
    for (int dtype = MICS_DTYPE_FP32; dtype <= MICS_DTYPE_BF16; dtype++) {
        *dtype_out = (mics_dtype)dtype;
        if (strcmp(name, mics_dtype_text(*dtype_out)) == 0)
            return MICS_OK;
    }
    return mics_fail(MICS_ERR_INVALID, "mics generate: --precision %s: fp32 and bf16 are known",
                     name);
}

// One text: as it is drawn.
static mics_status write_one(const mics_saved *saved, const generate_options *options,
                             mics_generated *generated_out)
{
    FILE *out = mics_terminal_open();
    fputs(options->prompt, out);
    const mics_status status = mics_saved_generate_many(saved, options->prompt, &options->sampling,
                                                        1, &out, generated_out);
    fputc('\n', out);
    mics_terminal_close(out);
    return status;
}

// A text that is kept until the others are complete.
typedef struct kept_text {
    char *bytes;
    size_t count;
} kept_text;

static mics_status open_texts(kept_text *texts, FILE **outs, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        outs[i] = open_memstream(&texts[i].bytes, &texts[i].count);
        if (outs[i] == NULL)
            return mics_fail(MICS_ERR_MEMORY, "no memory for %d texts", (int)count);
    }
    return MICS_OK;
}

static void print_json(const mics_saved *saved, const kept_text *texts,
                       const generate_options *options, const mics_generated *generated)
{
    const mics_saved_facts facts = mics_saved_facts_get(saved);
    printer r = {.json = true, .digits = 9};
    printer_open(&r, NULL, '{', false);
    PRINTER_ROW(
        &r, cell_words("checkpoint", facts.path), cell_int("step", facts.step),
        cell_words("prompt", options->prompt), cell_int("prompt_tokens", generated->prompt_tokens),
        cell_int("tokens", generated->tokens), cell_number("first_token_s", generated->first_s),
        cell_number("other_tokens_s", generated->rest_s));
    printer_open(&r, "texts", '[', false);
    for (int32_t i = 0; i < options->samples; i++)
        PRINTER_OBJECT(&r, NULL, cell_int("seed", (int64_t)((uint64_t)options->seed + (uint64_t)i)),
                       cell_bytes("text", texts[i].bytes, texts[i].count));
    printer_close(&r);
    printer_close(&r);
}

// Several: one after the other, each under its seed.
static void print_texts(const kept_text *texts, const generate_options *options)
{
    FILE *out = mics_terminal_open();
    for (int32_t i = 0; i < options->samples; i++) {
        fprintf(out, "%s---- seed %llu ----\n%s", i > 0 ? "\n" : "",
                (unsigned long long)options->seed + (unsigned)i, options->prompt);
        fwrite(texts[i].bytes, 1, texts[i].count, out);
        fputc('\n', out);
    }
    mics_terminal_close(out);
}

static mics_status write_many(mics_memory *memory, const mics_saved *saved,
                              const generate_options *options, mics_generated *generated_out)
{
    const int32_t count = (int32_t)options->samples;
    mics_status status = MICS_OK;
    FILE **outs = NULL;
    kept_text *texts = NULL;
    MICS_TRY_OUT(MICS_NEW(memory, count, &outs));
    MICS_TRY_OUT(MICS_NEW(memory, count, &texts));
    MICS_TRY_OUT(open_texts(texts, outs, count));
    MICS_TRY_OUT(mics_saved_generate_many(saved, options->prompt, &options->sampling, count, outs,
                                          generated_out));
out:
    for (int32_t i = 0; texts != NULL && i < count; i++) {
        if (outs[i] != NULL)
            fclose(outs[i]); // which completes the text
    }
    if (status == MICS_OK && texts != NULL && options->json)
        print_json(saved, texts, options, generated_out);
    else if (status == MICS_OK && texts != NULL)
        print_texts(texts, options);
    for (int32_t i = 0; texts != NULL && i < count; i++)
        free(texts[i].bytes);
    mics_free(memory, outs);
    mics_free(memory, texts);
    return status;
}

// ---- the verb ----

static void print_stats(const mics_generated *generated, int64_t samples)
{
    const double rest = (double)(generated->tokens - samples);
    fflush(stdout);
    fprintf(stderr, "prompt of %lld tokens; first token after %.3f s",
            (long long)generated->prompt_tokens, generated->first_s);
    if (rest > 0)
        fprintf(stderr, "; %.1f tokens/s", rest / generated->rest_s);
    fputc('\n', stderr);
}

static mics_status write_texts(cli_call *call, mics_saved *saved, generate_options *options)
{
    mics_dtype dtype;
    mics_generated generated = {0};
    mics_progress *work = NULL;
    MICS_TRY(choose_dtype(options->precision, saved, &dtype));
    const mics_work_listener listener = cli_work_open(call->memory, options->quiet, &work);
    mics_saved_listen(saved, &listener);
    const mics_status loaded = mics_saved_load(saved, dtype);
    cli_work_close(&work);
    MICS_TRY(loaded);
    mics_saved_listen(saved, &(mics_work_listener){0});
    call->running = true;
    options->sampling.seed = (uint64_t)options->seed;
    options->sampling.stops = options->stops.items;
    options->sampling.stop_count = options->stops.count;
    MICS_TRY(options->samples == 1 && !options->json
                 ? write_one(saved, options, &generated)
                 : write_many(call->memory, saved, options, &generated));
    if (!options->quiet && (options->stats || isatty(STDERR_FILENO)) && generated.tokens > 0)
        print_stats(&generated, options->samples);
    return MICS_OK;
}

// ---- filling in ----

static void print_choices(printer *r, const mics_fill_choice *choices, int32_t masks)
{
    printer_open(r, NULL, '{', false);
    printer_open(r, "masks", '[', false);
    for (int32_t mask = 0; mask < masks; mask++) {
        printer_open(r, NULL, '[', false);
        if (masks > 1)
            printer_text(r, "%smask %d\n", mask > 0 ? "\n" : "", (int)(mask + 1));
        for (int32_t i = 0; i < FILL_CHOICES; i++) {
            const mics_fill_choice *of = &choices[mask * FILL_CHOICES + i];
            printer_text(r, "%8.4f  %s\n", of->probability, of->text);
            PRINTER_OBJECT(r, NULL, cell_int("token", of->token),
                           cell_number("probability", of->probability),
                           cell_words("text", of->text));
        }
        printer_close(r);
    }
    printer_close(r);
    printer_close(r);
}

static mics_status fill(cli_call *call, const generate_options *options)
{
    mics_saved *saved = NULL;
    mics_fill_choice *choices = NULL;
    int32_t masks = 0;
    mics_status status = cli_open_saved(call, options->adapter, options->base, &saved);
    if (status == MICS_OK)
        status = mics_saved_fill(saved, options->fill, FILL_CHOICES, options->sampling.threads,
                                 &choices, &masks);
    printer r = {.json = options->json, .digits = 9};
    if (status == MICS_OK)
        print_choices(&r, choices, masks);
    mics_free(call->memory, choices);
    mics_saved_close(saved);
    return status;
}

// Before it is written.
static mics_status check_prompt(const mics_saved *saved, const char *prompt)
{
    const char *tokenizer = mics_saved_facts_get(saved).tokenizer;
    const size_t bytes = strlen(prompt), valid = mics_utf8_valid(prompt, bytes);
    return valid == bytes || tokenizer == NULL || strcmp(tokenizer, "bytes") == 0
               ? MICS_OK
               : mics_fail(MICS_ERR_INVALID, "the prompt: its byte %zu, 0x%02x, is no UTF-8",
                           valid + 1, (unsigned)(unsigned char)prompt[valid]);
}

static mics_status generate(cli_call *call, generate_options *options)
{
    mics_saved *saved = NULL;
    char *prompt = NULL;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(check_stops(&options->stops));
    MICS_TRY_OUT(read_prompt(options, &prompt));
    MICS_TRY_OUT(cli_open_saved(call, options->adapter, options->base, &saved));
    MICS_TRY_OUT(check_prompt(saved, options->prompt));
    status = write_texts(call, saved, options);
out:
    mics_saved_close(saved);
    free(prompt);
    return status;
}

static mics_status run_generate(cli_call *call)
{
    generate_options options = {
        .sampling = {.tokens = 200, .temperature = 0.8, .top_k = 40}, .seed = 1, .samples = 1};
    MICS_TRY(cli_parse(call, &options));
    if (options.fill == NULL && options.sampling.temperature == 0)
        log_undrawn(call);
    if (options.fill == NULL)
        return generate(call, &options);
    MICS_TRY(check_fill(call));
    return fill(call, &options);
}

const cli_verb cmd_generate = {
    .name = "generate",
    .summary = "writes text that continues a prompt",
    .arguments = "CHECKPOINT",
    .about =
        "Writes the prompt and text that continues it to standard output, token by token.\n"
        "CHECKPOINT is a step's folder, or that of a run (its newest checkpoint is taken), or a "
        "folder\n"
        "with config.json, safetensors and tokenizer.json from Hugging Face.",
    CLI_OPTIONS(flags),
    .min_arguments = 1,
    .max_arguments = 1,
    .notes =
        "Text may grow past the positions that training used: when they are full, the newer half "
        "of "
        "the\n"
        "text is fed again and generation goes on from that. A longer prompt counts with its end.\n"
        "What the tokenizer's template puts before a text (<s>) stands before the prompt; a token "
        "that\n"
        "the model's eos_token_id names ends the text. The same seed gives the same text.\n"
        "An encoder (BERT, RoBERTa) continues no text; --fill shows what it expects for [MASK] or "
        "<mask>.",
    .run = run_generate,
    .stopped = "the text is not complete",
};
