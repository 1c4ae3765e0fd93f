// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "run/rows.h"
#include "io/data/chats.h"
#include "mics/log.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static bool is_auto(const char *text)
{
    return strcmp(text, "auto") == 0;
}

// Midnight of a date as 2026-11-27, in seconds since 1970, UTC; -1: it is none.
static int64_t parse_date(const char *text)
{
    struct tm date = {0};
    const char *end = strptime(text, "%Y-%m-%d", &date);
    return end != NULL && *end == '\0' ? (int64_t)timegm(&date) : -1;
}

static void name_fields(const mics_run *run, mics_chats_spec *spec)
{
    spec->pairs = run->preference.kind != MICS_PREFERENCE_NONE;
    const mics_json_value *fields = mics_json_at(run->json, "data.fields");
    for (int i = 0; i < MICS_FIELDS; i++)
        spec->fields[i] =
            mics_json_string(mics_json_get(fields, mics_chat_field_text((mics_chat_field)i)));
}

// By the first row.
typedef struct looking {
    const mics_chats_spec *spec;
    mics_chat_kind *kind;
} looking;

static mics_status settle_date(mics_run *run)
{
    if (!is_auto(run->template_date)) {
        if (parse_date(run->template_date) >= 0)
            return MICS_OK;
        return mics_json_fail(run->json, "data.template_date", MICS_ERR_INVALID,
                              "\"%s\" is no date, as 2026-11-27", run->template_date);
    }
    const time_t now = time(NULL);
    struct tm date;
    if (gmtime_r(&now, &date) == NULL ||
        strftime(run->today, sizeof run->today, "%Y-%m-%d", &date) == 0)
        return mics_fail(MICS_ERR_INVALID, "the system's clock gives no date; set "
                                           "data.template_date");
    run->template_date = run->today;
    return MICS_OK;
}

static mics_status look_at(void *ctx, mics_row *row)
{
    looking *at = ctx;
    *at->kind = mics_chats_kind(at->spec, row->value);
    row->last = true;
    return MICS_OK;
}

mics_chat_columns run_rows_columns(const mics_run *run)
{
    mics_chats_spec spec = {0};
    name_fields(run, &spec);
    return mics_chats_columns(&spec);
}

// *known_out: there is such a row, or none.
static mics_status find_kind(mics_memory *memory, const mics_run *run, mics_chat_kind *kind_out,
                             bool *known_out)
{
    mics_chats_spec spec = {0};
    *kind_out = MICS_CHAT_NONE;
    *known_out = true;
    if (!run->text_field_open)
        return MICS_OK;
    const bool muted = mics_log_mute(true);
    name_fields(run, &spec);
    looking at = {&spec, kind_out};
    const mics_chat_columns columns = mics_chats_columns(&spec);
    const mics_rows_spec rows = {run->train, run->train_count, columns.names, run->skip_bad_lines};
    const mics_status status = mics_rows_walk(memory, &rows, look_at, &at);
    mics_log_mute(muted);
    *known_out = status == MICS_OK;
    if (status != MICS_OK || (*kind_out == MICS_CHAT_ALPACA && run->alpaca_as_texts))
        *kind_out = MICS_CHAT_NONE;
    return status == MICS_ERR_MEMORY ? status : MICS_OK;
}

// An objective of pairs has rows of such, and rows of pairs have one.
static mics_status check_objective(const mics_run *run, mics_chat_kind kind)
{
    const bool pairs = run->preference.kind != MICS_PREFERENCE_NONE;
    if (pairs == (kind == MICS_CHAT_ANSWERS))
        return MICS_OK;
    if (pairs)
        return mics_json_fail(
            run->json, "objective.type", MICS_ERR_INVALID,
            "needs rows with \"chosen\" and \"rejected\", and the first of %s has "
            "not both; data.fields names fields that are called otherwise, "
            "and \"lm\" trains on other rows",
            run->train[0]);
    return mics_json_fail(run->json, "data.train", MICS_ERR_INVALID,
                          "%s has pairs of answers, \"chosen\" and \"rejected\"; \"objective\": "
                          "{\"type\": \"dpo\"} trains on them, or \"ipo\"",
                          run->train[0]);
}

// Another program's file has been read before anyone knew that its data are chats, or are not.
static mics_status check_program(const mics_run *run, mics_chat_kind kind)
{
    const char *strategy = mics_json_string(mics_json_at(run->json, "packing_strategy"));
    const char *key = run->messages_key;
    const bool chats =
        kind == MICS_CHAT_MESSAGES ||
        kind == MICS_CHAT_ANSWERS || // LLaMA-Factory makes such of Alpaca's, axolotl not
        (kind == MICS_CHAT_ALPACA && key != NULL && strcmp(key, "datasets") != 0);
    if (key != NULL && !chats)
        return mics_json_fail(run->json, key, MICS_ERR_INVALID,
                              "is for chats of messages, and %s has none; leave the key out, or "
                              "name the field of the messages in data.fields",
                              run->train[0]);
    if (kind == MICS_CHAT_NONE)
        return MICS_OK;
    if (run->packing && strategy != NULL && strcmp(strategy, "bfd") != 0)
        return mics_json_fail(run->json, "packing_strategy", MICS_ERR_UNSUPPORTED,
                              "must be \"bfd\", not \"%s\": a chat is never split", strategy);
    return MICS_OK;
}

mics_status run_rows_settle(mics_memory *memory, mics_run *run)
{
    mics_chat_kind kind = MICS_CHAT_NONE;
    bool known = true;
    MICS_TRY(find_kind(memory, run, &kind, &known));
    const bool unpacked = !run->packing && !run->packing_open && !run->packing_kept &&
                          !run->packing_default; // as rows of chats may be
    const bool pairs = run->preference.kind != MICS_PREFERENCE_NONE;
    if (known)
        MICS_TRY(check_objective(run, kind));
    run->rows =
        kind != MICS_CHAT_NONE || (!known && (unpacked || run->messages_key != NULL || pairs));
    if (run->rows) {
        run->packing = (run->packing || run->packing_open) && !pairs;
        run->document_mask = false; // samples stay apart anyway
    }
    if (known)
        MICS_TRY(check_program(run, kind));
    if (run->rows)
        return settle_date(run);
    if (known && unpacked)
        return mics_json_fail(run->json, "data.packing", MICS_ERR_INVALID,
                              "false is for rows of chats, and %s has texts: samples are cut from "
                              "one stream of tokens; leave the key out",
                              run->train[0]);
    run->packing = false;
    return MICS_OK;
}

mics_status run_rows_open(mics_memory *memory, const mics_run *run, const mics_tokenizer *tokenizer,
                          mics_chats **chats_out)
{
    static const mics_loss_on on[] = {MICS_LOSS_ASSISTANT, MICS_LOSS_LAST, MICS_LOSS_ALL,
                                      MICS_LOSS_ALL};
    char folder[PATH_MAX];
    const char *slash = strrchr(run->tokenizer, '/');
    const bool bytes = strcmp(run->tokenizer, "bytes") == 0;
    *chats_out = NULL;
    if (!run->rows)
        return MICS_OK;
    snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - run->tokenizer) : 1,
             slash != NULL ? run->tokenizer : ".");
    mics_chats_spec spec = {.tokenizer = tokenizer,
                            .folder = bytes ? NULL : folder,
                            .chat_template =
                                is_auto(run->chat_template) ? NULL : run->chat_template,
                            .variables = mics_json_at(run->json, "data.template_variables"),
                            .date_s = parse_date(run->template_date),
                            .loss_on = on[run->loss_on],
                            .completions = run->loss_on == MICS_RUN_LOSS_COMPLETION};
    name_fields(run, &spec);
    MICS_TRY(mics_chats_open(memory, &spec, chats_out));
    return MICS_OK;
}
