// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Frequencies of rotary embeddings (Su et al., 2021, arXiv:2104.09864), as configurations describe
// them. Each step is in fp32 where transformers' is, so that angles are the same.
#include "base/text.h"
#include "model/builders.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 96, TYPE_BYTES = 16 };

// What the configuration says, resolved.
typedef struct rope_config {
    const char *object; // "rope_parameters", "rope_scaling", or NULL where neither is there
    char type[TYPE_BYTES];
    double theta, fraction, factor;
    int64_t original;               // positions of the first training
    double low_factor, high_factor; // llama3
    double attention_factor, mscale, mscale_all_dim, beta_fast, beta_slow; // yarn
    bool truncate;
} rope_config;

// ---- reading ----

static const char *inside(const rope_config *rope, const char *key, char path[KEY_BYTES])
{
    snprintf(path, KEY_BYTES, "%s.%s", rope->object, key);
    return path;
}

static double number(config_reader *reader, const rope_config *rope, const char *key, double min,
                     double max, double fallback)
{
    char path[KEY_BYTES];
    return rope->object == NULL ? fallback
                                : config_real(reader, inside(rope, key, path), min, max, fallback);
}

static bool is_said(config_reader *reader, const rope_config *rope, const char *key)
{
    char path[KEY_BYTES];
    return rope->object != NULL && config_is_said(reader, inside(rope, key, path));
}

static void fail(config_reader *reader, const rope_config *rope, const char *key,
                 mics_status status, const char *what)
{
    char path[KEY_BYTES];
    if (reader->status == MICS_OK)
        reader->status = mics_json_fail(reader->json, inside(rope, key, path), status, "%s", what);
}

static void find_object(config_reader *reader, rope_config *rope)
{
    static const char *const objects[] = {"rope_parameters", "rope_scaling"};
    for (int i = 0; i < 2 && reader->status == MICS_OK; i++) {
        const mics_json_value *value = mics_json_at(reader->json, objects[i]);
        if (mics_json_type_of(value) == MICS_JSON_NULL)
            continue;
        if (mics_json_type_of(value) != MICS_JSON_OBJECT)
            reader->status = mics_json_fail(reader->json, objects[i], MICS_ERR_INVALID,
                                            "must be an object or null, not %s",
                                            mics_json_type_text(mics_json_type_of(value)));
        else if (rope->object != NULL)
            reader->status = mics_json_fail(reader->json, objects[i], MICS_ERR_INVALID,
                                            "stands beside %s; keep one of them", rope->object);
        else
            rope->object = objects[i];
    }
}

// A key that nobody here knows might change the results.
static void check_keys(config_reader *reader, const rope_config *rope)
{
    static const char known[] =
        "rope_type|type|rope_theta|partial_rotary_factor|factor|original_max_position_embeddings|"
        "low_freq_factor|high_freq_factor|beta_fast|beta_slow|mscale|mscale_all_dim|truncate|"
        "attention_factor";
    const char *key = NULL;
    if (rope->object == NULL || reader->status != MICS_OK)
        return;
    const mics_json_value *object = mics_json_at(reader->json, rope->object);
    while (mics_json_next(object, &key) != NULL) {
        if (!mics_text_is_among(key, known)) {
            fail(reader, rope, key, MICS_ERR_UNSUPPORTED,
                 "cannot be honoured: types default, linear, dynamic, yarn and llama3 do not have "
                 "it");
            return;
        }
    }
}

static void read_type(config_reader *reader, rope_config *rope)
{
    static const char types[] = "default|linear|dynamic|yarn|llama3";
    static const char *const keys[] = {"rope_type", "type"};
    char path[KEY_BYTES];
    snprintf(rope->type, sizeof rope->type, "default");
    for (int i = 0; i < 2 && rope->object != NULL; i++) {
        config_require(reader, inside(rope, keys[i], path), types);
        const mics_json_value *value = mics_json_at(reader->json, path);
        if (reader->status != MICS_OK || value == NULL)
            continue;
        snprintf(rope->type, sizeof rope->type, "%s", mics_json_string(value));
        return;
    }
}

static bool is_type(const rope_config *rope, const char *type)
{
    return strcmp(rope->type, type) == 0;
}

// Of a key that may stand in the object, beside it or in both; the two may not differ.
static double read_twice(config_reader *reader, const rope_config *rope, const char *key,
                         const char *beside, double min, double max, double fallback)
{
    const double outer = config_real(reader, beside, min, max, fallback);
    const double inner = number(reader, rope, key, min, max, outer);
    if (reader->status == MICS_OK && config_is_said(reader, beside) && fabs(outer - inner) > 0)
        reader->status = mics_json_fail(reader->json, beside, MICS_ERR_INVALID,
                                        "is %g, but %s.%s is %g; which holds? keep one of them",
                                        outer, rope->object, key, inner);
    return inner;
}

// Configurations of a family with keys of its own may repeat them under the common names.
static void check_repeated(config_reader *reader, const char *key, double value)
{
    const double repeated = config_real(reader, key, 0, 1e15, value);
    if (reader->status == MICS_OK && fabs(repeated - value) > 0)
        reader->status = mics_json_fail(reader->json, key, MICS_ERR_UNSUPPORTED,
                                        "only %g can be honoured, which the other keys say, not %g",
                                        value, repeated);
}

static void read_base(config_reader *reader, const rope_keys *keys, rope_config *rope)
{
    static const char fraction[] = "partial_rotary_factor";
    rope->theta = read_twice(reader, rope, "rope_theta", keys->theta, 1, 1e15,
                             keys->default_theta > 0 ? keys->default_theta : 10000);
    check_repeated(reader, "rope_theta", rope->theta);
    if (keys->fraction == NULL) {
        rope->fraction = number(reader, rope, fraction, 0, 1, 1);
        if (rope->fraction < 1)
            fail(reader, rope, fraction, MICS_ERR_UNSUPPORTED,
                 "only 1 can be honoured: all of a head turns in this family");
    } else {
        rope->fraction =
            read_twice(reader, rope, fraction, keys->fraction, 0, 1, keys->default_fraction);
    }
    check_repeated(reader, fraction, rope->fraction);
}

// The positions that the model was first trained with.
static int64_t read_original(config_reader *reader, const rope_config *rope, int64_t positions)
{
    static const char key[] = "original_max_position_embeddings";
    const double original = read_twice(reader, rope, key, key, 1, 0x1p31, (double)positions);
    if (floor(original) < original)
        fail(reader, rope, key, MICS_ERR_INVALID, "must be a whole number of positions");
    return (int64_t)original;
}

static void read_scaling(config_reader *reader, int64_t positions, rope_config *rope)
{
    const bool yarn = is_type(rope, "yarn"), llama3 = is_type(rope, "llama3");
    if (is_type(rope, "default"))
        return;
    if (yarn || llama3)
        rope->original = read_original(reader, rope, positions);
    const double stretched = yarn ? (double)positions / (double)rope->original : 0;
    rope->factor = number(reader, rope, "factor", 1, 1e6, stretched);
    if (!yarn && !is_said(reader, rope, "factor"))
        fail(reader, rope, "factor", MICS_ERR_INVALID, "missing; it must be a number from 1 on");
    if (llama3) {
        rope->low_factor = number(reader, rope, "low_freq_factor", 1e-6, 1e6, 0);
        rope->high_factor = number(reader, rope, "high_freq_factor", 1e-6, 1e6, 0);
        if (!(rope->low_factor > 0))
            fail(reader, rope, "low_freq_factor", MICS_ERR_INVALID, "missing; llama3 needs it");
        if (!(rope->high_factor > rope->low_factor))
            fail(reader, rope, "high_freq_factor", MICS_ERR_INVALID,
                 "must be a number larger than low_freq_factor");
    }
}

static void read_yarn(config_reader *reader, rope_config *rope)
{
    char path[KEY_BYTES];
    if (!is_type(rope, "yarn"))
        return;
    if (!(rope->theta > 1)) // whose logarithm divides
        fail(reader, rope, "rope_theta", MICS_ERR_INVALID, "must be larger than 1 for yarn");
    rope->attention_factor = number(reader, rope, "attention_factor", 0, 1e6, -1);
    rope->mscale = number(reader, rope, "mscale", 0, 1e6, 0);
    rope->mscale_all_dim = number(reader, rope, "mscale_all_dim", 0, 1e6, 0);
    rope->beta_fast = number(reader, rope, "beta_fast", 0, 1e6, 32);
    rope->beta_slow = number(reader, rope, "beta_slow", 0, 1e6, 1);
    rope->beta_fast = rope->beta_fast > 0 ? rope->beta_fast : 32; // 0 counts as absent
    rope->beta_slow = rope->beta_slow > 0 ? rope->beta_slow : 1;
    rope->truncate = config_bool(reader, inside(rope, "truncate", path), true);
}

// ---- frequencies ----

static void default_frequencies(const rope_config *config, model_rope *out)
{
    for (int64_t i = 0; i < out->dims / 2; i++)
        out->frequencies[i] = 1.0f / powf((float)config->theta, (float)(2 * i) / (float)out->dims);
}

// Grattafiori et al., The Llama 3 herd of models, 2024, arXiv:2407.21783: long waves are stretched
// by the factor, short ones are not, and those between a little.
static void stretch_llama3(const rope_config *config, model_rope *out)
{
    const float factor = (float)config->factor, old = (float)config->original;
    const float low = (float)config->low_factor;
    const float span = (float)(config->high_factor - config->low_factor);
    const float longest = (float)((double)config->original / config->low_factor);
    const float shortest = (float)((double)config->original / config->high_factor);
    for (int64_t i = 0; i < out->dims / 2; i++) {
        const float frequency = out->frequencies[i], wave = (float)(2 * M_PI) / frequency;
        const float smooth = (old / wave - low) / span;
        if (wave > longest)
            out->frequencies[i] = frequency / factor;
        else if (!(wave < shortest))
            out->frequencies[i] = (1 - smooth) * frequency / factor + smooth * frequency;
    }
}

// The dimension that turns so often within the original positions.
static double yarn_dimension(const rope_config *config, int64_t dims, double turns)
{
    return (double)dims * log((double)config->original / (turns * 2 * M_PI)) /
           (2 * log(config->theta));
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

// Peng et al., YaRN, 2023, arXiv:2309.00071: dimensions that turn often keep their frequency, those
// that turn seldom are stretched, with a ramp between.
static void stretch_yarn(const rope_config *config, model_rope *out)
{
    double low = yarn_dimension(config, out->dims, config->beta_fast);
    double high = yarn_dimension(config, out->dims, config->beta_slow);
    if (config->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)out->dims - 1);
    if (!(fabs(high - low) > 0))
        high += 0.001;
    for (int64_t i = 0; i < out->dims / 2; i++) {
        const float wave =
            powf((float)config->theta, (float)(2 * i) / (float)out->dims); // over 2 pi
        const float ramp = ((float)i - (float)low) / (float)(high - low);
        const float kept = 1 - fminf(fmaxf(ramp, 0), 1);
        out->frequencies[i] =
            1.0f / ((float)config->factor * wave) * (1 - kept) + 1.0f / wave * kept;
    }
    double scale = config->attention_factor;
    if (scale < 0 && config->mscale > 0 && config->mscale_all_dim > 0)
        scale = yarn_scale(config->factor, config->mscale) /
                yarn_scale(config->factor, config->mscale_all_dim);
    else if (scale < 0)
        scale = yarn_scale(config->factor, 1);
    out->scale = (float)scale;
}

// "dynamic" stretches only beyond max_position_embeddings, which no sequence exceeds here.
static void compute(const rope_config *config, model_rope *out)
{
    out->scale = 1;
    default_frequencies(config, out);
    if (is_type(config, "linear")) {
        for (int64_t i = 0; i < out->dims / 2; i++)
            out->frequencies[i] /= (float)config->factor;
    }
    if (is_type(config, "llama3"))
        stretch_llama3(config, out);
    if (is_type(config, "yarn"))
        stretch_yarn(config, out);
}

void config_rope(config_reader *reader, const rope_keys *keys, int64_t head_dim, int64_t positions,
                 model_rope *rope_out)
{
    rope_config config = {.object = NULL};
    if (reader->status != MICS_OK)
        return;
    find_object(reader, &config);
    check_keys(reader, &config);
    read_type(reader, &config);
    read_base(reader, keys, &config);
    read_scaling(reader, positions, &config);
    read_yarn(reader, &config);
    rope_out->dims = (int64_t)((double)head_dim * config.fraction);
    if (reader->status == MICS_OK && (rope_out->dims < 2 || rope_out->dims % 2 != 0))
        reader->status = mics_json_fail(
            reader->json, keys->fraction, MICS_ERR_UNSUPPORTED,
            "%g of %lld elements of a head is %lld, but an even number from 2 on turns",
            config.fraction, (long long)head_dim, (long long)rope_out->dims);
    if (reader->status == MICS_OK)
        compute(&config, rope_out);
}
