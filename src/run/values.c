// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A run filled in C becomes the text of a run file, so that both are checked by one table of keys,
// and error lines name the same keys.
#include "base/text.h"
#include "job.h"
#include <stdbool.h>

// A text with sections that are begun when their first key is written.
typedef struct writer {
    mics_text text;
    bool any, any_in_section; // members so far: in the whole, in the open section
} writer;

static void begin_section(writer *self, const char *name)
{
    mics_text_printf(&self->text, "%s\n\"%s\": {", self->any ? "," : "", name);
    self->any = true;
    self->any_in_section = false;
}

static void end_section(writer *self)
{
    mics_text_printf(&self->text, "}");
}

static void write_key(writer *self, const char *key)
{
    mics_text_printf(&self->text, "%s\"%s\": ", self->any_in_section ? ", " : "", key);
    self->any_in_section = true;
}

static void write_text(writer *self, const char *key, const char *value)
{
    if (value == NULL)
        return;
    write_key(self, key);
    mics_text_quoted(&self->text, value);
}

static void write_int(writer *self, const char *key, int64_t value)
{
    if (value == 0)
        return;
    write_key(self, key);
    mics_text_printf(&self->text, "%lld", (long long)value);
}

static void write_list(writer *self, const char *key, const char *const *values, int32_t count)
{
    if (count == 0)
        return;
    write_key(self, key);
    for (int32_t i = 0; i < count; i++) {
        mics_text_printf(&self->text, i == 0 ? "[" : ", ");
        mics_text_quoted(&self->text, values[i]);
    }
    mics_text_printf(&self->text, "]");
}

static void write_sections(writer *self, const mics_run_values *values)
{
    begin_section(self, "model");
    write_text(self, "config", values->model_config);
    write_text(self, "init", values->model_init);
    end_section(self);
    begin_section(self, "data");
    write_list(self, "train", values->train, values->train_count);
    write_list(self, "validation", values->validation, values->validation_count);
    write_text(self, "tokenizer", values->tokenizer);
    write_int(self, "sequence_length", values->sequence_length);
    end_section(self);
    begin_section(self, "run");
    write_int(self, "steps", values->steps);
    write_int(self, "seed", (int64_t)values->seed);
    write_text(self, "out", values->out);
    write_int(self, "checkpoint_every", values->checkpoint_every);
    end_section(self);
}

static void write_optimizer(writer *self, const mics_run_values *values)
{
    char rate[32];
    if (values->learning_rate > 0)
        mics_text_printf(&self->text,
                         ",\n\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": %s}}",
                         mics_text_real(values->learning_rate, rate, sizeof rate));
}

static void write_sharding(writer *self, const mics_sharding *sharding)
{
    if (sharding->params == 0 && sharding->grads == 0 && sharding->optimizer == 0)
        mics_text_printf(&self->text, ",\n\"sharding\": \"auto\"");
    else
        mics_text_printf(&self->text,
                         ",\n\"sharding\": {\"params\": %d, \"grads\": %d, \"optimizer\": %d}",
                         (int)sharding->params, (int)sharding->grads, (int)sharding->optimizer);
}

mics_status run_values_load(mics_memory *memory, const mics_run_values *values,
                            const char *const *sets, int32_t set_count, mics_run **run_out)
{
    writer self = {.text = {.memory = memory}};
    mics_text_printf(&self.text, "{");
    write_sections(&self, values);
    write_optimizer(&self, values);
    if (values->micro_batch > 0)
        mics_text_printf(&self.text, ",\n\"train_micro_batch_size_per_gpu\": %lld",
                         (long long)values->micro_batch);
    if (values->micro_steps > 0)
        mics_text_printf(&self.text, ",\n\"gradient_accumulation_steps\": %lld",
                         (long long)values->micro_steps);
    write_sharding(&self, &values->sharding);
    mics_text_printf(&self.text, "}\n");
    mics_status status = mics_text_status(&self.text);
    if (status == MICS_OK)
        status =
            mics_run_parse(memory, "mics_run_values", self.text.bytes, sets, set_count, run_out);
    mics_text_fini(&self.text);
    return status;
}
