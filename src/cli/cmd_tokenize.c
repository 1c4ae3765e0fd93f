// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics tokenize: a token shard from texts, the same stream that training on them reads.
#include "base/file.h"
#include "cli.h"
#include "io/data/data.h"
#include "io/report/printer.h"
#include <unistd.h>

typedef struct tokenize_options {
    mics_corpus_spec spec;
    const char *tokenizer, *out;
    bool add_special_tokens, json, quiet;
} tokenize_options;

#define AT(member) offsetof(tokenize_options, member)
static const cli_option flags[] = {
    {"tokenizer", CLI_TEXT, "bytes|FILE",
     "\"bytes\" (default), a tokenizer.json or its folder, or BERT's vocab.txt", AT(tokenizer), 0,
     0},
    {"out", CLI_TEXT, "SHARD.bin", "the shard; must not exist", AT(out), 0, 0},
    {"text-field", CLI_TEXT, "NAME",
     "field of JSON Lines, or column of a table, that holds the text; default \"text\"",
     AT(spec.text_field), 0, 0},
    {"special-tokens", CLI_FLAG, NULL,
     "special tokens that the texts name are taken as such, not as text", AT(spec.special_tokens),
     0, 0},
    {"skip-bad-lines", CLI_INT, "N", "pass over so many bad lines at most; default 0",
     AT(spec.skip_bad_lines), 0, 0},
    {"dtype", CLI_TEXT, "TYPE", "of .bin files without a header, as \"uint16\"", AT(spec.dtype), 0,
     0},
    {"threads", CLI_COUNT, "N", "default: all cores that the process may use", AT(spec.threads), 1,
     256},
    {"add-special-tokens", CLI_FLAG, NULL,
     "around each text, what the tokenizer.json's post_processor puts there, and no separator",
     AT(add_special_tokens), 0, 0},
    CELL_JSON(tokenize_options),
    {"quiet", CLI_FLAG, NULL, "print nothing but warnings and errors, and show no progress",
     AT(quiet), 0, 0},
};

static void print_result(const tokenize_options *options, int64_t tokens, int32_t vocab)
{
    printer r = {.json = options->json};
    if (!options->quiet)
        printer_text(&r, "%s: %lld tokens, vocabulary %d\n", options->out, (long long)tokens,
                     (int)vocab);
    PRINTER_OBJECT(&r, NULL, cell_words("shard", options->out), cell_int("tokens", tokens),
                   cell_int("vocabulary", vocab), cell_words("tokenizer", options->tokenizer));
}

static mics_status tokenize(cli_call *call, tokenize_options *options)
{
    mics_tokenizer *tokenizer = NULL;
    mics_corpus *corpus = NULL;
    char *parts = NULL;
    mics_status status = MICS_OK;
    if (access(options->out, F_OK) == 0)
        return mics_fail(MICS_ERR_INVALID, "%s: exists, and is not overwritten; give another --out",
                         options->out);
    MICS_TRY_OUT(cli_fetch(call, MICS_REMOTE_CONFIG, &options->tokenizer));
    for (int32_t i = 0; i < call->arguments.count; i++)
        MICS_TRY_OUT(cli_fetch(call, MICS_REMOTE_FILES, &call->arguments.items[i]));
    MICS_TRY_OUT(mics_tokenizer_open(call->memory, options->tokenizer, &tokenizer));
    if (options->add_special_tokens)
        MICS_TRY_OUT(mics_tokenizer_frame_texts(tokenizer, "--add-special-tokens"));
    int32_t vocab = mics_tokenizer_vocab(tokenizer);
    MICS_TRY_OUT(mics_file_suffixed(call->memory, options->out, ".parts", &parts));
    options->spec.patterns = call->arguments.items;
    options->spec.pattern_count = call->arguments.count;
    options->spec.vocab = vocab;
    options->spec.tokenizer = tokenizer;
    options->spec.cache_dir = parts;
    MICS_TRY_OUT(mics_corpus_open(call->memory, &options->spec, &corpus));
    call->running = true;
    MICS_TRY_OUT(mics_shard_write_corpus(call->memory, options->out, corpus, vocab));
    print_result(options, mics_corpus_tokens(corpus), vocab);
out:
    mics_corpus_close(corpus);
    // What was wrong with one of the files will be mended, or the files be others: only what a
    // signal cuts short is kept.
    if (parts != NULL)
        mics_corpus_remove_cache(parts);
    mics_free(call->memory, parts);
    mics_tokenizer_close(tokenizer);
    return status;
}

static mics_status run_tokenize(cli_call *call)
{
    tokenize_options options = {.tokenizer = "bytes"};
    MICS_TRY(cli_parse(call, &options));
    if (options.out == NULL)
        return mics_fail(MICS_ERR_INVALID, "mics tokenize: --out SHARD.bin is missing");
    cli_log_quiet(options.quiet);
    return tokenize(call, &options);
}

const cli_verb cmd_tokenize = {
    .name = "tokenize",
    .summary = "makes a token shard from text",
    .arguments = "FILES...",
    .about =
        "Makes one token shard (llm.c's .bin format) from texts, in the order given, documents\n"
        "separated by the tokenizer's separator: the stream that a run on these files reads.\n"
        "When it is stopped, the same command resumes from what was done, kept in SHARD.bin.parts.",
    CLI_OPTIONS(flags),
    .min_arguments = 1,
    .max_arguments = INT32_MAX,
    .run = run_tokenize,
    .stopped = "",
};
