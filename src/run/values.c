// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A run filled in C becomes the text of a run file, so that both are checked by one table of keys,
// and error lines name the same keys.
#include "run/values.h"
#include "base/text.h"
#include "job.h"
#include <string.h>

typedef struct writer {
    mics_text text;
    const char *section; // that is open; NULL: none
    const char *between; // what stands before the next member
} writer;

// Begins a member of a section, which is opened where it is another one; NULL: of the whole.
static mics_text *begin(writer *self, const char *section, const char *key)
{
    mics_text *text = &self->text;
    if (self->section != NULL && (section == NULL || strcmp(section, self->section) != 0)) {
        mics_text_printf(text, "}");
        self->section = NULL;
        self->between = ",\n";
    }
    if (section != NULL && self->section == NULL) {
        mics_text_printf(text, "%s\"%s\": {", self->between, section);
        self->section = section;
        self->between = "";
    }
    mics_text_printf(text, "%s\"%s\": ", self->between, key);
    self->between = section != NULL ? ", " : ",\n";
    return text;
}

static void write_text(writer *self, const char *section, const char *key, const char *value)
{
    if (value != NULL)
        mics_text_quoted(begin(self, section, key), value);
}

static void write_int(writer *self, const char *section, const char *key, int64_t value)
{
    if (value != 0)
        mics_text_printf(begin(self, section, key), "%lld", (long long)value);
}

static void write_list(writer *self, const char *key, const char *const *values, int32_t count)
{
    mics_text *text = count > 0 ? begin(self, "data", key) : NULL;
    for (int32_t i = 0; i < count; i++) {
        mics_text_printf(text, i == 0 ? "[" : ", ");
        mics_text_quoted(text, values[i]);
    }
    if (count > 0)
        mics_text_printf(text, "]");
}

static void write_values(writer *self, const mics_run_values *values)
{
    const mics_sharding *sharding = &values->sharding;
    char rate[32];
    write_text(self, "model", "config", values->model_config);
    write_text(self, "model", "init", values->model_init);
    write_list(self, "train", values->train, values->train_count);
    write_list(self, "validation", values->validation, values->validation_count);
    write_text(self, "data", "tokenizer", values->tokenizer);
    write_int(self, "data", "sequence_length", values->sequence_length);
    write_int(self, "run", "steps", values->steps);
    write_int(self, "run", "seed", (int64_t)values->seed);
    write_text(self, "run", "out", values->out);
    write_int(self, "run", "checkpoint_every", values->checkpoint_every);
    write_int(self, "sharding", "params", sharding->params);
    write_int(self, "sharding", "grads", sharding->grads);
    write_int(self, "sharding", "optimizer", sharding->optimizer);
    if (sharding->params == 0 && sharding->grads == 0 && sharding->optimizer == 0)
        write_text(self, NULL, "sharding", "auto");
    write_int(self, NULL, "train_micro_batch_size_per_gpu", values->micro_batch);
    write_int(self, NULL, "gradient_accumulation_steps", values->micro_steps);
    if (values->learning_rate > 0)
        mics_text_printf(begin(self, NULL, "optimizer"),
                         "{\"type\": \"AdamW\", \"params\": {\"lr\": %s}}",
                         mics_text_real(values->learning_rate, rate, sizeof rate));
}

mics_status run_values_load(mics_memory *memory, const mics_run_values *values,
                            const char *const *sets, int32_t set_count, mics_run **run_out)
{
    writer self = {.text = {.memory = memory}, .between = ""};
    mics_text_printf(&self.text, "{");
    write_values(&self, values);
    mics_text_printf(&self.text, self.section != NULL ? "}}\n" : "}\n");
    mics_status status = mics_text_status(&self.text);
    if (status == MICS_OK)
        status =
            mics_run_parse(memory, "mics_run_values", self.text.bytes, sets, set_count, run_out);
    mics_text_fini(&self.text);
    return status;
}
