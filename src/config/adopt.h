// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files of Hugging Face's Trainer (TrainingArguments), accelerate and torchtitan, and the "auto"
// values that the Trainer fills in DeepSpeed's files: rewritten as our keys in the document itself,
// before it is checked. Errors still speak of the file's own names and lines.
#pragma once

#include "config/keys.h"

// One key of theirs. Where `by` is NULL its value is the target's.
typedef struct adopted_key {
    const char *path;   // in their file
    const char *target; // the key here that gets the value
    const char *origin; // "auto: " and the path
    mics_status (*by)(config *run, const struct adopted_key *row, const mics_json_value *value);
    // (optional) What the file's null stands for; NULL: as if it were absent.
    const char *null;
    // (optional) DeepSpeed's default. Where its configuration leaves the target out, that holds,
    // whatever the argument says. NULL: the argument does.
    const char *deepspeed;
    // (optional) The Trainer's own default, which its dumped files have: nobody asked for that.
    const char *trainer;
} adopted_key;

typedef struct adopted_keys {
    const adopted_key *rows;
    size_t count;
} adopted_keys;

#define ADOPTED(name, to, ...)                                                                     \
    {                                                                                              \
        .path = (name), .target = (to), .origin = "auto: " name, .by = __VA_ARGS__                 \
    }

/* The row of a key of another's files; NULL: there is none. */
const adopted_key *mics_config_adopted(const char *path);

/* Gives `target` a value that stands at `source` in the file. One that was set goes before it; one
 * that the file gives too must be the same. "auto" gives way.
 *
 * `text`:   JSON.     `origin`: static.
 * Returns: MICS_OK, also where it contradicts, which is refused with the rest; MICS_ERR_MEMORY.
 */
mics_status mics_adopt_put(config *run, const char *target, const char *text, const char *source,
                           const char *origin);

/* The same where the file says nothing or "auto"; only_auto: "auto" alone. `origin`: static; the
 * second one's is the Trainer's default. */
mics_status mics_adopt_default_of(config *run, const char *target, const char *text,
                                  const char *origin, bool only_auto);
mics_status mics_adopt_default(config *run, const char *target, const char *text, bool only_auto);

/* Reads a switch at `path`; other than true, false and null it is refused, and *on_out false. */
mics_status mics_adopt_switch(config *run, const char *path, const mics_json_value *value,
                              bool *on_out);

/* A word that is asked for: a text, or "no" for false, which YAML takes a plain `no` for. NULL: neither. */
const char *mics_adopt_word(const mics_json_value *value);
/* True for the text "auto". */
bool mics_adopt_is_auto(const mics_json_value *value);
/* A value of the document; NULL: it is not there. */
static inline const mics_json_value *mics_adopt_at(const config *run, const char *path)
{
    return mics_json_at(run->run.json, path);
}

/* Makes an object of "sharding": "auto", which says the same, for a value that goes into it. */
mics_status mics_adopt_open_sharding(config *run);

/* True when the value is there, and not null. */
bool mics_adopt_has(const config *run, const char *path);
/* True where DeepSpeed's configuration is given beside the arguments, and not empty. */
bool mics_adopt_has_deepspeed(const config *run);
/* The same as mics_adopt_has, and not "auto". */
bool mics_adopt_says(const config *run, const char *path);
