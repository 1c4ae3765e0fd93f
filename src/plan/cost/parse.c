// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Reads cluster files: each key by its row of the table; errors name file, line and key.
#include "base/json.h"
#include "base/text.h"
#include "plan/cost/catalogue.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 3 * MICS_CLUSTER_NAME_BYTES, LIST_BYTES = 512 };

// What is read where: `prefix` is the path of the section with a dot behind it, or "".
typedef struct place {
    const mics_json *json;
    cost_section section;
    const char *prefix;
    void *object;
} place;

enum { MORE_KEYS = 4 };

static const char *const more_keys[COST_SECTIONS][MORE_KEYS] = {
    [COST_TOP] = {"base", "accelerator", "tiers", "aliases"},
    [COST_ACCELERATOR] = {"base"},
};

static mics_status fail_at(const place *at, const char *name, mics_status status, const char *what)
{
    char path[2 * PATH_BYTES];
    snprintf(path, sizeof path, "%s%s", at->prefix, name);
    return mics_json_fail(at->json, path, status, "%s", what);
}

// ---- values ----

static mics_status take_number(const place *at, const cost_key *key, const mics_json_value *value)
{
    char what[160];
    if (!mics_json_is_number(value)) {
        snprintf(what, sizeof what, "must be a number, not %s",
                 mics_json_type_text(mics_json_type_of(value)));
        return fail_at(at, key->name, MICS_ERR_FORMAT, what);
    }
    double number = mics_json_real(value);
    if (!(number >= key->low && number <= key->high)) {
        mics_text_format(what, sizeof what, "must be %.10g to %.10g, not %.10g", key->low,
                         key->high, number);
        return fail_at(at, key->name, MICS_ERR_INVALID, what);
    }
    if (key->type == COST_COUNT && number != floor(number)) {
        mics_text_format(what, sizeof what, "must be a whole number, not %.10g", number);
        return fail_at(at, key->name, MICS_ERR_INVALID, what);
    }
    char *field = (char *)at->object + key->at;
    if (key->type == COST_COUNT)
        *(int32_t *)(void *)field = (int32_t)number;
    else
        *(double *)(void *)field = number * key->unit;
    return MICS_OK;
}

static mics_status take_text(const place *at, const cost_key *key, const mics_json_value *value)
{
    char what[160];
    if (mics_json_type_of(value) != MICS_JSON_STRING) {
        snprintf(what, sizeof what, "must be a string, not %s",
                 mics_json_type_text(mics_json_type_of(value)));
        return fail_at(at, key->name, MICS_ERR_FORMAT, what);
    }
    size_t bytes = mics_json_string_bytes(value);
    if (bytes >= key->bytes) {
        snprintf(what, sizeof what, "must have at most %zu bytes, not %zu", key->bytes - 1, bytes);
        return fail_at(at, key->name, MICS_ERR_INVALID, what);
    }
    memcpy((char *)at->object + key->at, mics_json_string(value), bytes + 1);
    return MICS_OK;
}

static mics_status take_point(const place *at, const cost_key *key, const mics_json_value *pair,
                              mics_curve *curve)
{
    const mics_json_value *size = mics_json_element(pair, 0), *figure = mics_json_element(pair, 1);
    if (mics_json_count(pair) != 2 || !mics_json_is_number(size) || !mics_json_is_number(figure))
        return fail_at(at, key->name, MICS_ERR_FORMAT,
                       "must hold pairs of numbers, as in [[1024, 0.6], [4096, 0.8]]");
    char what[160];
    double number = mics_json_real(figure);
    if (!(number >= key->low && number <= key->high)) {
        mics_text_format(what, sizeof what, "must have figures of %.10g to %.10g, not %.10g",
                         key->low, key->high, number);
        return fail_at(at, key->name, MICS_ERR_INVALID, what);
    }
    curve->size[curve->count] = mics_json_real(size);
    curve->value[curve->count++] = number * key->unit;
    return MICS_OK;
}

static mics_status take_curve(const place *at, const cost_key *key, const mics_json_value *value)
{
    mics_curve curve = {0};
    if (key->type == COST_CURVE && mics_json_is_number(value)) {
        double number = mics_json_real(value);
        char what[160];
        if (!(number >= key->low && number <= key->high)) {
            mics_text_format(what, sizeof what, "must be %.10g to %.10g, not %.10g", key->low,
                             key->high, number);
            return fail_at(at, key->name, MICS_ERR_INVALID, what);
        }
        curve = mics_curve_constant(number * key->unit);
    } else {
        int32_t count = mics_json_count(value);
        if (mics_json_type_of(value) != MICS_JSON_ARRAY || count < 1 || count > MICS_CURVE_POINTS)
            return fail_at(at, key->name, MICS_ERR_FORMAT,
                           key->type == COST_CURVE
                               ? "must be a number, or 1 to 32 pairs [size, figure]"
                               : "must be 1 to 32 pairs [bytes, GB/s]");
        for (int32_t i = 0; i < count; i++)
            MICS_TRY(take_point(at, key, mics_json_element(value, i), &curve));
    }
    const char *wrong = cost_curve_wrong(&curve);
    if (wrong != NULL)
        return fail_at(at, key->name, MICS_ERR_INVALID, wrong);
    memcpy((char *)at->object + key->at, &curve, sizeof curve);
    return MICS_OK;
}

static mics_status take_switch(const place *at, const cost_key *key, const mics_json_value *value)
{
    if (mics_json_type_of(value) != MICS_JSON_BOOL)
        return fail_at(at, key->name, MICS_ERR_FORMAT, "must be true or false");
    *((bool *)at->object + key->at) = mics_json_bool(value);
    return MICS_OK;
}

static mics_status take_plain(const place *at, const cost_key *key, const mics_json_value *value)
{
    switch (key->type) {
    case COST_TEXT:
        return take_text(at, key, value);
    case COST_SWITCH:
        return take_switch(at, key, value);
    case COST_CURVE:
    case COST_RAMP:
        return take_curve(at, key, value);
    case COST_REAL:
    case COST_COUNT:
        break;
    }
    return take_number(at, key, value);
}

// The month of a price; without a date none.
static void take_date(const place *at, const char *name, const mics_json_value *value)
{
    const char *date = mics_json_string(mics_json_get(value, "date"));
    for (int i = 0; at->section == COST_TOP && i < MICS_PRICES; i++) {
        if (strcmp(name, mics_price_key((mics_price)i)) == 0)
            snprintf(((mics_cluster *)at->object)->price_dates[i], MICS_PRICE_DATE_BYTES, "%.7s",
                     date != NULL ? date : "");
    }
}

// A figure with its source: {"value": 0.85, "source": "...", "date": "2026-11", "assumed": true}.
// Reads it for what is wrong; only people read sources.
static mics_status check_sourced(const place *at, const mics_json_value *figure)
{
    const char *name = NULL;
    const mics_json_value *value = NULL;
    while ((value = mics_json_next(figure, &name)) != NULL) {
        const mics_json_type type = mics_json_type_of(value);
        const bool text = strcmp(name, "source") == 0 || strcmp(name, "date") == 0;
        if (text && type != MICS_JSON_STRING)
            return fail_at(at, name, MICS_ERR_FORMAT, "must be a string");
        if (strcmp(name, "assumed") == 0 && type != MICS_JSON_BOOL)
            return fail_at(at, name, MICS_ERR_FORMAT, "must be true or false");
        if (!text && strcmp(name, "assumed") != 0 && strcmp(name, "value") != 0)
            return fail_at(at, "value", MICS_ERR_INVALID,
                           "may stand beside source, date and assumed alone");
    }
    if (mics_json_type_of(mics_json_get(figure, "value")) == MICS_JSON_NULL)
        return fail_at(at, "value", MICS_ERR_FORMAT, "is missing");
    return MICS_OK;
}

static mics_status take_value(const place *at, const cost_key *key, const mics_json_value *value)
{
    char prefix[PATH_BYTES];
    take_date(at, key->name, value);
    if (mics_json_type_of(value) != MICS_JSON_OBJECT || key->type == COST_TEXT)
        return take_plain(at, key, value);
    snprintf(prefix, sizeof prefix, "%s%s.", at->prefix, key->name);
    const place figure = {at->json, at->section, prefix, at->object};
    MICS_TRY(check_sourced(&figure, value));
    return take_plain(at, key, mics_json_get(value, "value"));
}

// ---- keys ----

// Names that no key has, and that would make a mess of an error line.
static bool is_odd(const char *name)
{
    size_t bytes = strlen(name);
    return bytes == 0 || bytes >= MICS_CLUSTER_NAME_BYTES ||
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") !=
               bytes;
}

static mics_status fail_odd(const place *at, const char *what)
{
    char path[PATH_BYTES];
    size_t bytes = strlen(at->prefix);
    snprintf(path, sizeof path, "%s", at->prefix);
    if (bytes > 0)
        path[bytes - 1] = '\0'; // the dot
    return mics_json_fail(at->json, path, MICS_ERR_INVALID,
                          "has %s that is empty, longer than %d bytes, or not made of letters, "
                          "digits, '_' and '-'",
                          what, MICS_CLUSTER_NAME_BYTES - 1);
}

static mics_status fail_unknown(const place *at, const char *name)
{
    enum { MAX_NAMES = 32 };
    const char *names[MAX_NAMES];
    int32_t count = 0, listed = 0;
    const cost_key *keys = cost_keys(at->section, &count);
    for (int32_t i = 0; i < count; i++)
        names[listed++] = keys[i].name;
    for (int32_t i = 0; i < MORE_KEYS && more_keys[at->section][i] != NULL; i++)
        names[listed++] = more_keys[at->section][i];
    char what[LIST_BYTES];
    const char *near = mics_json_nearest(name, names, listed);
    if (near != NULL) {
        snprintf(what, sizeof what, "unknown key; did you mean %s%s?", at->prefix, near);
        return fail_at(at, name, MICS_ERR_INVALID, what);
    }
    size_t used = (size_t)snprintf(what, sizeof what, "unknown key; known here: ");
    for (int32_t i = 0; i < listed && used < sizeof what; i++)
        used +=
            (size_t)snprintf(what + used, sizeof what - used, "%s%s", i == 0 ? "" : ", ", names[i]);
    return fail_at(at, name, MICS_ERR_INVALID, what);
}

static bool is_more(cost_section section, const char *name)
{
    for (int32_t i = 0; i < MORE_KEYS && more_keys[section][i] != NULL; i++) {
        if (strcmp(more_keys[section][i], name) == 0)
            return true;
    }
    return false;
}

// The same figure in two units is one too many.
static mics_status check_twice(const place *at, const mics_json_value *object, const cost_key *key)
{
    int32_t count = 0;
    const cost_key *keys = cost_keys(at->section, &count);
    for (int32_t i = 0; key->other && i < count; i++) {
        if (&keys[i] == key || keys[i].at != key->at ||
            mics_json_type_of(mics_json_get(object, keys[i].name)) == MICS_JSON_NULL)
            continue;
        char what[160];
        snprintf(what, sizeof what, "is given too, as %s; leave one of them out", keys[i].name);
        return fail_at(at, key->name, MICS_ERR_INVALID, what);
    }
    return MICS_OK;
}

// Takes the section's plain keys; the rest of its members are objects of their own.
static mics_status read_keys(const place *at, const mics_json_value *object)
{
    const char *name = NULL;
    const mics_json_value *value = NULL;
    while ((value = mics_json_next(object, &name)) != NULL) {
        if (is_odd(name))
            return fail_odd(at, "a key");
        const cost_key *key = cost_key_find(at->section, name);
        if (key == NULL && !is_more(at->section, name))
            return fail_unknown(at, name);
        if (key == NULL || mics_json_type_of(value) == MICS_JSON_NULL)
            continue; // null: as if it were absent
        MICS_TRY(check_twice(at, object, key));
        MICS_TRY(take_value(at, key, value));
    }
    return MICS_OK;
}

// ---- sections ----

static mics_status read_cluster(const mics_json *json, mics_cluster *cluster_out);

static mics_status read_name(const mics_json *json, const char *path, const mics_json_value *value,
                             bool accelerator, mics_cluster *cluster);

// Reads an accelerator's keys, behind those of its base; `prefix` as in a place.
static mics_status read_accelerator_keys(const mics_json *json, const char *prefix,
                                         const mics_json_value *keys, mics_cluster *cluster)
{
    const mics_json_value *base = mics_json_get(keys, "base");
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%sbase", prefix);
    if (mics_json_type_of(base) != MICS_JSON_NULL)
        MICS_TRY(read_name(json, path, base, true, cluster));
    const place at = {json, COST_ACCELERATOR, prefix, &cluster->accelerator};
    return read_keys(&at, keys);
}

// Reads an entry of the catalogue into `cluster`, without finishing it, so that a file can change
// figures before the rest follows from them: a machine, or its accelerator alone.
static mics_status read_entry(const catalogue_file *file, bool accelerator, mics_cluster *cluster)
{
    mics_memory *memory = NULL;
    mics_json *json = NULL;
    mics_cluster fresh; // of another accelerator nothing stays
    mics_cluster_init(&fresh);
    MICS_TRY(mics_memory_open(&memory));
    mics_status status =
        mics_json_parse(memory, file->names[0], (const char *)file->text, file->bytes, &json);
    if (accelerator)
        cluster->accelerator = fresh.accelerator;
    if (status == MICS_OK && accelerator)
        status = read_accelerator_keys(json, "", mics_json_root(json), cluster);
    else if (status == MICS_OK)
        status = read_cluster(json, cluster);
    if (status == MICS_OK && !accelerator)
        snprintf(cluster->note, sizeof cluster->note, "catalogue");
    mics_json_close(json);
    mics_memory_close(memory);
    return status;
}

// Takes the machine, or the accelerator, called `value` from the catalogue.
static mics_status read_name(const mics_json *json, const char *path, const mics_json_value *value,
                             bool accelerator, mics_cluster *cluster)
{
    if (mics_json_type_of(value) != MICS_JSON_STRING)
        return mics_json_fail(json, path, MICS_ERR_FORMAT, "must be a string, not %s",
                              mics_json_type_text(mics_json_type_of(value)));
    char text[LIST_BYTES];
    const char *name = mics_json_string(value);
    const catalogue_file *file = catalogue_find(accelerator, name);
    if (file != NULL)
        return read_entry(file, accelerator, cluster);
    return mics_json_fail(json, path, MICS_ERR_INVALID, "unknown %s %s",
                          accelerator ? "accelerator" : "cluster",
                          catalogue_suggest(accelerator, name, text, sizeof text));
}

static mics_status read_accelerator(const mics_json *json, const mics_json_value *value,
                                    mics_cluster *cluster)
{
    mics_json_type type = mics_json_type_of(value);
    if (type == MICS_JSON_NULL)
        return MICS_OK;
    if (type == MICS_JSON_STRING)
        return read_name(json, "accelerator", value, true, cluster);
    if (type != MICS_JSON_OBJECT)
        return mics_json_fail(json, "accelerator", MICS_ERR_FORMAT,
                              "must be an object, or the name of an accelerator, not %s",
                              mics_json_type_text(type));
    return read_accelerator_keys(json, "accelerator.", value, cluster);
}

// The tier of that name, or the next new one; NULL when there are too many.
static mics_tier *tier_of(mics_cluster *cluster, const char *name)
{
    for (int32_t t = 0; t < cluster->tier_count; t++) {
        if (strcmp(cluster->tiers[t].name, name) == 0)
            return &cluster->tiers[t];
    }
    if (cluster->tier_count == MICS_CLUSTER_TIERS)
        return NULL;
    mics_tier *tier = &cluster->tiers[cluster->tier_count++];
    snprintf(tier->name, sizeof tier->name, "%s", name);
    return tier;
}

static mics_status read_tier(const mics_json *json, const char *name, const mics_json_value *value,
                             mics_cluster *cluster)
{
    char prefix[PATH_BYTES];
    snprintf(prefix, sizeof prefix, "tiers.%s", name);
    if (mics_json_type_of(value) != MICS_JSON_OBJECT)
        return mics_json_fail(json, prefix, MICS_ERR_FORMAT, "must be an object, not %s",
                              mics_json_type_text(mics_json_type_of(value)));
    mics_tier *tier = tier_of(cluster, name);
    if (tier == NULL)
        return mics_json_fail(json, "tiers", MICS_ERR_INVALID, "must have at most %d tiers",
                              MICS_CLUSTER_TIERS);
    snprintf(prefix, sizeof prefix, "tiers.%s.", name);
    const place at = {json, COST_TIER, prefix, tier};
    double before = tier->bytes_per_s;
    MICS_TRY(read_keys(&at, value));
    // A new line rate without a rank's own is not held back by that of the base.
    bool own = mics_json_get(value, "rank_gb_per_s") != NULL ||
               mics_json_get(value, "rank_gbit_per_s") != NULL;
    if (tier->bytes_per_s != before && !own)
        tier->rank_bytes_per_s = 0.0;
    return MICS_OK;
}

static mics_status read_tiers(const mics_json *json, const mics_json_value *tiers,
                              mics_cluster *cluster)
{
    mics_json_type type = mics_json_type_of(tiers);
    if (type == MICS_JSON_NULL)
        return MICS_OK;
    if (type != MICS_JSON_OBJECT)
        return mics_json_fail(json, "tiers", MICS_ERR_FORMAT,
                              "must be an object of tiers by name, not %s",
                              mics_json_type_text(type));
    const char *name = NULL;
    const mics_json_value *value = NULL;
    while ((value = mics_json_next(tiers, &name)) != NULL) {
        const place at = {json, COST_TIER, "tiers.", NULL};
        if (is_odd(name))
            return fail_odd(&at, "a name");
        MICS_TRY(read_tier(json, name, value, cluster));
    }
    return MICS_OK;
}

// A price, but for one of spot nodes, stands in the place of all of the base's.
static void drop_prices(const mics_json_value *root, mics_cluster *cluster)
{
    bool own = false;
    for (int i = 0; i < MICS_PRICE_SPOT; i++)
        own = own || mics_json_type_of(mics_json_get(root, mics_price_key((mics_price)i))) !=
                         MICS_JSON_NULL;
    if (!own)
        return;
    memset(cluster->prices, 0, sizeof cluster->prices);
    memset(cluster->price_dates, 0, sizeof cluster->price_dates);
}

static mics_status read_cluster(const mics_json *json, mics_cluster *cluster_out)
{
    const mics_json_value *root = mics_json_root(json);
    mics_cluster cluster;
    mics_cluster_init(&cluster);
    if (mics_json_type_of(root) != MICS_JSON_OBJECT)
        return mics_json_fail(json, NULL, MICS_ERR_FORMAT, "must be a JSON object, not %s",
                              mics_json_type_text(mics_json_type_of(root)));
    const mics_json_value *base = mics_json_get(root, "base");
    if (mics_json_type_of(base) != MICS_JSON_NULL)
        MICS_TRY(read_name(json, "base", base, false, &cluster));
    drop_prices(root, &cluster);
    const place at = {json, COST_TOP, "", &cluster};
    MICS_TRY(read_keys(&at, root));
    MICS_TRY(read_accelerator(json, mics_json_get(root, "accelerator"), &cluster));
    MICS_TRY(read_tiers(json, mics_json_get(root, "tiers"), &cluster));
    if (cluster.name[0] == '\0')
        snprintf(cluster.name, sizeof cluster.name, "%s", mics_json_name(json));
    *cluster_out = cluster;
    return MICS_OK;
}

// ---- from outside ----

mics_status mics_cluster_parse(const mics_json *json, mics_cluster *cluster_out)
{
    mics_cluster cluster;
    MICS_TRY(read_cluster(json, &cluster));
    MICS_TRY(cost_finish(json, &cluster));
    *cluster_out = cluster;
    return MICS_OK;
}

mics_status mics_cluster_find(const char *name, mics_cluster *cluster_out)
{
    const catalogue_file *file = catalogue_find(false, name);
    mics_cluster cluster;
    char text[LIST_BYTES];
    if (file == NULL)
        return mics_fail(MICS_ERR_INVALID, "unknown cluster %s",
                         catalogue_suggest(false, name, text, sizeof text));
    MICS_TRY(read_entry(file, false, &cluster));
    MICS_TRY(mics_cluster_finish(&cluster));
    *cluster_out = cluster;
    return MICS_OK;
}
