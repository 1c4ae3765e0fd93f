// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The phases of a run: from the list in the document to the values of the one that it is in.
//
// The list is brought into one form in the document: flat objects, "data.train" and the like, whose
// first says all that any says. So the values of a phase are those of all objects up to its own, one
// after the other, and entering it a second time, or from another phase, gives the same.
#include "base/text.h"
#include "config/keys.h"
#include "config/value.h"
#include <stdio.h>
#include <string.h>

static const char list_key[] = "phases", batch_keys[] = "train_batch_size|"
                                                        "train_micro_batch_size_per_gpu|"
                                                        "gradient_accumulation_steps";

enum { MAX_VALUE_BYTES = 8192 };

// ---- what a phase may say ----

static bool is_of_data(const char *path)
{
    return strncmp(path, "data.", 5) == 0 && strcmp(path, "data.tokenizer") != 0 &&
           mics_config_find(path) >= 0;
}

static bool is_of_phase(const char *path)
{
    return mics_text_is_among(path, batch_keys) || is_of_data(path) ||
           mics_text_is_among(path, "run.seed|scheduler|outer");
}

// What decides which sample has which number.
static bool is_of_order(const char *path)
{
    return is_of_data(path) || strcmp(path, "run.seed") == 0;
}

static mics_status fail_phase(const config *run, int32_t phase, const char *path, const char *what)
{
    return mics_json_fail(run->run.json, list_key, MICS_ERR_INVALID, "phase %d: %s%s%s",
                          (int)phase + 1, path, *path != '\0' ? ": " : "", what);
}

// The key is `path`, or stands in that section.
static bool is_in(const char *own, const char *path)
{
    const size_t bytes = strlen(path);
    return strncmp(own, path, bytes) == 0 && (own[bytes] == '\0' || own[bytes] == '.');
}

static bool was_set(const config *run, const char *path)
{
    const size_t bytes = strlen(path);
    for (int32_t i = 0; i < mics_config_key_count(); i++)
        if (is_in(mics_config_key(i)->path, path) &&
            (run->states[i] == KEY_FROM_SET || run->states[i] == KEY_FROM_SET_AUTO))
            return true;
    for (int32_t i = 0; i < run->set_count; i++)
        if (strncmp(run->sets[i], path, bytes) == 0 && strchr("=.", run->sets[i][bytes]) != NULL)
            return true;
    return false;
}

// ---- the one form of the list ----

static mics_status add_value(const config *run, mics_text *out, int32_t phase, const char *path,
                             const mics_json_value *value)
{
    char text[MAX_VALUE_BYTES];
    if (!mics_config_value_whole(value, text, sizeof text))
        return fail_phase(run, phase, path, "is longer than 8 KiB");
    mics_text_printf(out, ", \"%s\": %s", path, text);
    return MICS_OK;
}

static mics_status add_members(const config *run, mics_text *out, int32_t phase, const char *parent,
                               const mics_json_value *object)
{
    const char *name = NULL;
    const mics_json_value *value = NULL;
    while ((value = mics_json_next(object, &name)) != NULL) {
        char path[CONFIG_PATH_BYTES];
        snprintf(path, sizeof path, "%s%s%s", parent, *parent != '\0' ? "." : "", name);
        if (strcmp(path, "steps") == 0)
            continue;
        if (mics_text_is_among(path, "data|run") && mics_json_type_of(value) == MICS_JSON_OBJECT) {
            MICS_TRY(add_members(run, out, phase, path, value));
            continue;
        }
        if (!is_of_phase(path))
            return fail_phase(run, phase, path,
                              "is no key that a phase changes: those are steps, train_batch_size, "
                              "train_micro_batch_size_per_gpu, gradient_accumulation_steps, "
                              "scheduler, outer, run.seed, and data but for data.tokenizer");
        if (!run->run.keeps_phases && was_set(run, path) && !was_set(run, list_key))
            return fail_phase(run, phase, path,
                              "is set for the whole run, too; leave out that --set, or change the "
                              "phase");
        MICS_TRY(add_value(run, out, phase, path, value));
    }
    return MICS_OK;
}

// The first phase says as well what others change and it does not, as the run file has it.
static mics_status complete_first(const config *run, mics_text *out, const mics_json_value *list)
{
    const mics_json_value *first = mics_json_element(list, 0);
    for (int32_t i = 0; i < mics_config_key_count(); i++) {
        const char *path = mics_config_key(i)->path;
        bool others = false;
        for (int32_t p = 1; p < mics_json_count(list) && is_of_phase(path); p++) {
            const mics_json_value *object = mics_json_element(list, p);
            others = others || mics_json_get(object, path) != NULL ||
                     (mics_text_is_among(path, batch_keys) &&
                      mics_json_get(object, "train_batch_size") != NULL);
        }
        if (others && mics_json_get(first, path) == NULL)
            MICS_TRY(add_value(run, out, 0, path, mics_json_at(run->run.json, path)));
    }
    return MICS_OK;
}

static mics_status write_phase(const config *run, mics_text *out, const mics_json_value *list,
                               int32_t phase, bool last, bool completes)
{
    const mics_json_value *object = mics_json_element(list, phase);
    const mics_json_value *given = mics_json_get(object, "steps");
    const bool open = mics_json_type_of(given) == MICS_JSON_NULL || run->run.keeps_phases;
    const mics_json_value *steps = open && last ? NULL : given;
    int64_t number = 0;
    if (mics_json_type_of(object) != MICS_JSON_OBJECT)
        return fail_phase(run, phase, "", "must be an object, as {\"steps\": 100}");
    if (!(steps == NULL && last) &&
        (!mics_config_value_int(steps, &number) || number < 1 || number >= MICS_STEPS_UNKNOWN))
        return fail_phase(
            run, phase, "steps",
            "must be a number from 1 to 1e12; the last phase alone may leave it out, and "
            "lasts up to run.steps then");
    mics_text_printf(out, "%s{\"steps\": ", phase > 0 ? ", " : "[");
    if (steps != NULL)
        mics_text_printf(out, "%lld", (long long)number);
    else
        mics_text_printf(out, "null");
    MICS_TRY(add_members(run, out, phase, "", object));
    if (completes && phase == 0)
        MICS_TRY(complete_first(run, out, list));
    mics_text_printf(out, "%s", last ? "}]" : "}");
    return MICS_OK;
}

static mics_status write_list(config *run, const mics_json_value *list, int32_t count,
                              bool completes)
{
    mics_text out = {.memory = run->memory};
    mics_status status = MICS_OK;
    for (int32_t i = 0; status == MICS_OK && i < count; i++)
        status = write_phase(run, &out, list, i, i + 1 == count, completes);
    if (status == MICS_OK)
        status = mics_text_status(&out);
    if (status == MICS_OK)
        status = mics_json_set_from(run->run.json, list_key, out.bytes, list_key);
    mics_free(run->memory, run->phases_text);
    run->run.phases_text = run->phases_text = out.bytes;
    return status;
}

// ---- the phase that the run is in ----

static bool gives(const mics_json_value *phase, const char *path)
{
    return mics_json_get(phase, path) != NULL;
}

static mics_status enter(config *run, const mics_json_value *phase, int32_t index)
{
    const char *path = NULL;
    const mics_json_value *value = NULL;
    mics_json *json = run->run.json;
    char text[MAX_VALUE_BYTES], source[CONFIG_PATH_BYTES];
    run->run.phase_orders = false;
    while ((value = mics_json_next(phase, &path)) != NULL) {
        if (strcmp(path, "steps") == 0 || (run->run.keeps_phases && was_set(run, path)))
            continue;
        run->run.phase_orders =
            run->run.phase_orders ||
            (is_of_order(path) && !mics_json_is_same(value, mics_json_at(json, path)));
        for (int32_t i = 0; i < mics_config_key_count(); i++) // null leaves none behind
            if (is_in(mics_config_key(i)->path, path))
                run->states[i] = KEY_ABSENT;
        mics_text_format(source, sizeof source, "phases.%d.%s", (int)index + 1, path);
        MICS_TRY(mics_json_set_from(json, path, mics_config_value_text(value, text, sizeof text),
                                    source));
    }
    // Micro-steps follow the batch.
    if (index > 0 && gives(phase, "train_batch_size") &&
        !gives(phase, "train_micro_batch_size_per_gpu") &&
        !gives(phase, "gradient_accumulation_steps") &&
        !(run->run.keeps_phases && was_set(run, "gradient_accumulation_steps")))
        MICS_TRY(mics_json_set_from(json, "gradient_accumulation_steps", "null", list_key));
    return MICS_OK;
}

// Steps of all phases: their own sum, or run.steps where the last one leaves that open.
static mics_status fill_steps(config *run, const mics_json_value *list)
{
    const int32_t count = mics_json_count(list);
    const mics_json_value *given = mics_json_at(run->run.json, "run.steps");
    const bool open =
        mics_json_int(mics_json_get(mics_json_element(list, count - 1), "steps")) == 0;
    int64_t sum = 0, steps = 0;
    char text[32];
    for (int32_t i = 0; i < count; i++)
        sum += mics_json_int(mics_json_get(mics_json_element(list, i), "steps"));
    if (mics_json_type_of(given) != MICS_JSON_NULL && !mics_config_value_int(given, &steps))
        return MICS_OK; // mics_config_check says it better
    if (!open && steps != 0 && steps != sum)
        return mics_json_fail(run->run.json, "run.steps", MICS_ERR_INVALID,
                              "is %lld, but phases have %lld steps together; leave it out, or the "
                              "steps of the last phase",
                              (long long)steps, (long long)sum);
    if (open && steps <= sum && run->run.keeps_phases)
        return mics_json_fail(run->run.json, "run.steps", MICS_ERR_INVALID,
                              "is %lld, and the run has %lld steps already, behind which what was "
                              "changed would hold; raise it, or use another --out",
                              (long long)steps, (long long)sum);
    if (open && steps <= sum)
        return mics_json_fail(run->run.json, "run.steps", MICS_ERR_INVALID,
                              "must be more than %lld, the steps of the phases before the last, "
                              "which has none",
                              (long long)sum);
    mics_text_format(text, sizeof text, "%lld", (long long)sum);
    return steps != 0 ? MICS_OK : mics_json_set_from(run->run.json, "run.steps", text, list_key);
}

// All of the run file's; of a checkpoint's those that had begun.
static int32_t count_entered(const config *run, const mics_json_value *list)
{
    int32_t count = 1;
    int64_t end = mics_json_int(mics_json_get(mics_json_element(list, 0), "steps"));
    if (list == mics_json_at(run->run.json, list_key))
        return mics_json_count(list);
    for (; count < mics_json_count(list) && end < run->step; count++)
        end += mics_json_int(mics_json_get(mics_json_element(list, count), "steps"));
    return count;
}

mics_status mics_config_enter_phase(config *run)
{
    const mics_json_value *own = mics_json_at(run->run.json, list_key);
    mics_run *public_run = &run->run;
    int64_t begin = 0;
    public_run->phase = public_run->phase_count = 0;
    public_run->phase_begin = public_run->phase_end = 0;
    public_run->lr_begin = public_run->lr_end = 0;
    if (mics_json_type_of(own) == MICS_JSON_NULL && run->kept != NULL) {
        own = mics_json_at(run->kept, list_key);
        own = mics_json_type_of(own) == MICS_JSON_ARRAY ? own : NULL;
        public_run->keeps_phases = own != NULL;
    }
    if (mics_json_type_of(own) == MICS_JSON_NULL)
        return MICS_OK;
    if (public_run->keeps_phases)
        run->states[mics_config_find(list_key)] = KEY_FROM_CHECKPOINT;
    if (mics_json_type_of(own) != MICS_JSON_ARRAY || mics_json_count(own) < 1 ||
        mics_json_count(own) > MICS_MAX_PHASES)
        return mics_json_fail(public_run->json, list_key, MICS_ERR_INVALID,
                              "must be an array of 1 to %d objects, as [{\"steps\": 100}, "
                              "{\"steps\": 50, \"train_batch_size\": 32}]",
                              MICS_MAX_PHASES);
    MICS_TRY(write_list(run, own, count_entered(run, own), false)); // flat names
    const mics_json_value *list = mics_json_at(public_run->json, list_key);
    if (mics_json_type_of(list) != MICS_JSON_ARRAY) // it did not parse
        return mics_json_fail(public_run->json, list_key, MICS_ERR_INVALID,
                              "a phase says a key twice, as \"run.seed\" and in \"run\"");
    MICS_TRY(write_list(run, list, mics_json_count(list), true));
    list = mics_json_at(public_run->json, list_key);
    MICS_TRY(fill_steps(run, list));
    public_run->phase_count = mics_json_count(list);
    for (int32_t i = 0; i < public_run->phase_count; i++) {
        const mics_json_value *phase = mics_json_element(list, i);
        const bool entered = begin <= run->step, schedules = i > 0 && gives(phase, "scheduler");
        if (entered) {
            MICS_TRY(enter(run, phase, i));
            public_run->phase = i;
            public_run->phase_begin = begin;
        }
        if (schedules && entered)
            public_run->lr_begin = begin;
        if (!entered && public_run->phase_end == 0)
            public_run->phase_end = begin;
        if (schedules && !entered && public_run->lr_end == 0)
            public_run->lr_end = begin;
        begin += mics_json_int(mics_json_get(phase, "steps"));
    }
    return MICS_OK;
}

bool mics_run_phase_gives(const mics_run *run, const char *path)
{
    const mics_json_value *phase = mics_json_element(mics_json_at(run->json, list_key), run->phase);
    const char *own = NULL;
    bool found = gives(phase, "train_batch_size") && mics_text_is_among(path, batch_keys);
    while (mics_json_next(phase, &own) != NULL)
        found = found || is_in(own, path) || is_in(path, own);
    return found;
}

void mics_run_enter(mics_run *public_run, int64_t step)
{
    ((config *)public_run)->step = step; // invariant 1 of keys.h
}

// ---- a phase that --set begins ----

// As it is taken, since a text may stand for an array of one.
static bool is_other(const config *run, const key *row, const mics_json_value *before)
{
    char texts[2][MAX_VALUE_BYTES];
    if (row->type == KEY_OBJECT)
        return !mics_json_is_same(mics_json_at(run->run.json, row->path), before);
    mics_config_field_text(run, row, texts[0], sizeof texts[0]);
    mics_config_value_text(before, texts[1], sizeof texts[1]);
    return strcmp(texts[0], texts[1]) != 0 &&
           !mics_json_is_same(mics_json_at(run->run.json, row->path), before);
}

bool mics_run_sets_other(const mics_run *public_run, const mics_json *stored, const char *path)
{
    const config *run = (const config *)public_run; // invariant 1 of keys.h
    bool found = false;
    for (int32_t i = 0; i < mics_config_key_count(); i++) {
        const key *row = mics_config_key(i);
        if ((row->flags & KEY_OTHERS) != 0 &&
            mics_config_given(run, "scheduler.params.warmup_num_steps"))
            continue; // warmup_ratio
        found = found ||
                ((row->bytes > 0 || row->type == KEY_OBJECT) && is_in(row->path, path) &&
                 was_set(run, row->path) && is_other(run, row, mics_json_at(stored, row->path)));
    }
    return found && (run->run.keeps_phases || run->run.phase_count == 0);
}

// The values that a document has for `paths`.
static mics_status add_paths(const config *run, mics_text *out, const mics_json *from,
                             const mics_json_value *but, const char *const *paths, int32_t count)
{
    for (int32_t i = 0; i < mics_config_key_count(); i++) {
        const char *path = mics_config_key(i)->path;
        bool listed = false;
        for (int32_t p = 0; p < count; p++)
            listed = listed || strcmp(paths[p], path) == 0 ||
                     (strcmp(paths[p], "data") == 0 && is_of_data(path) && was_set(run, path));
        if (listed && is_of_phase(path) && mics_json_get(but, path) == NULL)
            MICS_TRY(add_value(run, out, run->run.phase, path, mics_json_at(from, path)));
    }
    return MICS_OK;
}

mics_status mics_run_begin_phase(mics_run *public_run, int64_t step, const mics_json *stored,
                                 const char *const *paths, int32_t count)
{
    config *run = (config *)public_run; // invariant 1 of keys.h
    const mics_json_value *list = mics_json_at(run->run.json, list_key);
    mics_text out = {.memory = run->memory};
    mics_status status = MICS_OK;
    for (int32_t i = 0; i <= run->run.phase && status == MICS_OK; i++) {
        const mics_json_value *phase = mics_json_element(list, i);
        const bool ends = i == run->run.phase;
        const int64_t steps =
            ends ? step - run->run.phase_begin : mics_json_int(mics_json_get(phase, "steps"));
        mics_text_printf(&out, "%s{\"steps\": %lld", i > 0 ? ", " : "[", (long long)steps);
        status = add_members(run, &out, i, "", phase);
        if (status == MICS_OK && i == 0)
            status = add_paths(run, &out, stored, phase, paths, count);
        mics_text_printf(&out, "}");
    }
    mics_text_printf(&out, ", {\"steps\": null");
    if (status == MICS_OK)
        status = add_paths(run, &out, run->run.json, NULL, paths, count);
    mics_text_printf(&out, "}]");
    run->run.keeps_phases = true;
    run->step = step;
    if (status == MICS_OK)
        status = mics_text_status(&out);
    if (status == MICS_OK)
        status = mics_json_set_from(run->run.json, list_key, out.bytes, list_key);
    mics_text_fini(&out);
    MICS_TRY(status);
    MICS_TRY(mics_config_enter_phase(run));
    return mics_config_fill_optimizer(run);
}
