// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics tokenize: a token shard from texts, the same stream that training on them reads; or a tokenizer
// that is trained on them.
#include "base/file.h"
#include "base/text.h"
#include "cli.h"
#include "io/data/train.h"
#include "io/report/printer.h"
#include <unistd.h>

typedef struct tokenize_options {
    mics_corpus_spec spec;
    const char *tokenizer, *out;
    bool add_special_tokens, json, quiet;
    cli_list specials;
    int64_t min_frequency;
    int32_t train;
} tokenize_options;

#define AT(member) offsetof(tokenize_options, member)
static const cli_option flags[] = {
    {"tokenizer", CLI_TEXT, "bytes|FILE",
     "\"bytes\" (default), a tokenizer.json or its folder, or BERT's vocab.txt", AT(tokenizer), 0,
     0},
    {"out", CLI_TEXT, "SHARD.bin", "the shard, or with --train the tokenizer.json; must not exist",
     AT(out), 0, 0},
    {"train", CLI_COUNT, "N", "train a tokenizer of N tokens: byte-level BPE, GPT-2's pattern",
     AT(train), 256, 1 << 22},
    {"special", CLI_EACH, "TEXT",
     "with --train: a special token, as \"<|endoftext|>\"; may be given again", AT(specials), 0, 0},
    {"min-frequency", CLI_INT, "N",
     "with --train: merge no pair that the texts have less often; default 1", AT(min_frequency), 1,
     0},
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

static mics_status train(cli_call *call, const tokenize_options *options)
{
    mics_progress *shown = NULL;
    mics_train_spec spec = {.corpus = options->spec,
                            .specials = options->specials.items,
                            .special_count = options->specials.count,
                            .min_frequency = options->min_frequency};
    printer r = {.json = options->json};
    int32_t vocab = 0;
    spec.corpus.patterns = call->arguments.items;
    spec.corpus.pattern_count = call->arguments.count;
    spec.corpus.vocab = options->train;
    spec.work = cli_work_open(call->memory, options->quiet, &shown);
    const mics_status status = mics_train(call->memory, &spec, options->out, &vocab);
    cli_work_close(&shown);
    MICS_TRY(status);
    if (spec.special_count == 0)
        mics_log(MICS_LOG_WARNING,
                 "%s: has no special token, so nothing will separate documents; "
                 "--special \"<|endoftext|>\" gives one",
                 options->out);
    if (!options->quiet)
        printer_text(&r, "%s: vocabulary %d\n", options->out, (int)vocab);
    PRINTER_OBJECT(&r, NULL, cell_words("tokenizer", options->out), cell_int("vocabulary", vocab));
    return MICS_OK;
}

// What one of the two ways has no use for.
static mics_status check_given(const cli_call *call, bool trains)
{
    const char *others =
        trains ? "tokenizer|special-tokens|dtype|add-special-tokens" : "special|min-frequency";
    for (int32_t i = 0; i < call->verb->option_count; i++) {
        const char *name = call->verb->options[i].name;
        if ((call->given >> i & 1) != 0 && mics_text_is_among(name, others))
            return mics_fail(MICS_ERR_INVALID, "mics tokenize: --%s goes %s --train", name,
                             trains ? "not with" : "only with");
    }
    return MICS_OK;
}

static mics_status run_tokenize(cli_call *call)
{
    tokenize_options options = {.tokenizer = "bytes", .min_frequency = 1};
    MICS_TRY(cli_parse(call, &options));
    MICS_TRY(check_given(call, options.train > 0));
    if (options.out == NULL)
        return mics_fail(MICS_ERR_INVALID, "mics tokenize: --out %s is missing",
                         options.train > 0 ? "tokenizer.json" : "SHARD.bin");
    if (access(options.out, F_OK) == 0)
        return mics_fail(MICS_ERR_INVALID, "%s: exists, and is not overwritten; give another --out",
                         options.out);
    if (options.train == 0 && !mics_text_ends(options.out, ".bin"))
        return mics_fail(MICS_ERR_INVALID,
                         "%s: token shards are known by names in .bin; give such an --out",
                         options.out);
    cli_log_quiet(options.quiet);
    MICS_TRY(cli_fetch(call, MICS_REMOTE_CONFIG, &options.tokenizer));
    for (int32_t i = 0; i < call->arguments.count; i++)
        MICS_TRY(cli_fetch(call, MICS_REMOTE_FILES, &call->arguments.items[i]));
    return options.train > 0 ? train(call, &options) : tokenize(call, &options);
}

const cli_verb cmd_tokenize = {
    .name = "tokenize",
    .summary = "makes a token shard from text, or a tokenizer",
    .arguments = "FILES...",
    .about =
        "Makes one token shard (llm.c's .bin format) from texts, in the order given, documents\n"
        "separated by the tokenizer's separator: the stream that a run on these files reads.\n"
        "When it is stopped, the same command resumes from what was done, kept in "
        "SHARD.bin.parts.\n"
        "With --train it makes the tokenizer itself, a tokenizer.json, from the texts.",
    CLI_OPTIONS(flags),
    .min_arguments = 1,
    .max_arguments = INT32_MAX,
    .run = run_tokenize,
    .stopped = "",
};
