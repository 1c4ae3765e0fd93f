// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Finds the model, its batch, and how many layers of it to measure. Layers are alike.
#include "base/size.h"
#include "base/text.h"
#include "config/config.h"
#include "measure/internal.h"
#include "mics/core/ledger.h"
#include "mics/core/schedule.h"
#include "mics/log.h"
#include "model/from_config.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

// BARE_LENGTH is what a model's configuration alone is planned with.
enum { MAX_SEQUENCE = 128, BARE_LENGTH = 4096, MIN_TOKENS = 32, MIN_VOCAB = 1024 };

// A pass of the model may count so many FLOPs for each second that there is.
static const double FLOPS_A_SECOND = 2e9, GPU_FLOPS_A_SECOND = 1e13;
// Of what is available on the machine.
static const double MEMORY_SHARE = 0.5;

// GPT-2's shapes, with fewer tokens to tell apart, as those alone would take all the time.
static const char gpt2[] =
    "{\"model_type\": \"gpt2\", \"activation_function\": \"gelu_new\", \"n_embd\": 768, "
    "\"n_head\": 12, \"n_layer\": 12, \"n_positions\": 1024, \"vocab_size\": 4096, "
    "\"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0}";

// What a run file says of it.
typedef struct wishes {
    bool ignore_dropout;
    int64_t batch, sequence;
    int32_t threads;
} wishes;

// Sizes that the run has for these ranks; where it has none for so few, its micro-batch as it
// stands.
static int64_t micro_batch(mics_run *run, const run_world *world)
{
    static const char key[] = "train_micro_batch_size_per_gpu";
    const bool muted = mics_log_mute(true);
    const mics_status status = mics_run_resolve(run, world->ranks, world->nodes);
    mics_log_mute(muted);
    if (status == MICS_OK)
        return run->micro_batch;
    const mics_json_value *value = mics_json_at(run->json, key);
    const int64_t said = mics_json_type_of(value) == MICS_JSON_INT ? mics_json_int(value) : 1;
    return said > 0 ? said : 1;
}

static mics_status load_config(mics_memory *memory, const char *path, bool ignore_dropout,
                               measure_subject *subject)
{
    if (path != NULL)
        MICS_TRY(mics_json_load(memory, path, MICS_MODEL_CONFIG_MAX_BYTES, &subject->config));
    else
        MICS_TRY(mics_json_parse(memory, "gpt2", gpt2, strlen(gpt2), &subject->config));
    return mics_model_from_config(memory, subject->config, ignore_dropout, &subject->model);
}

// A model's configuration, or its folder, stands for a run of it.
static mics_status open_run(mics_memory *memory, const measure_spec *spec, mics_run **run_out)
{
    mics_json *json = NULL;
    const bool muted = mics_log_mute(true);
    struct stat found;
    const bool bare =
        (stat(spec->run, &found) == 0 && S_ISDIR(found.st_mode)) ||
        (mics_json_load(memory, spec->run, MICS_MODEL_CONFIG_MAX_BYTES, &json) == MICS_OK &&
         mics_run_is_model(json));
    mics_log_mute(muted);
    mics_json_close(json);
    if (!bare)
        return mics_run_load(memory, spec->run, spec->sets, spec->set_count, run_out);
    mics_text text = {.memory = memory};
    mics_text_printf(&text, "{\"model\": {\"config\": ");
    mics_text_quoted(&text, spec->run);
    mics_text_printf(&text, "}, \"data\": {\"train\": [\"none\"]}, \"run\": {\"steps\": 1}, "
                            "\"train_micro_batch_size_per_gpu\": 1}");
    mics_status status = mics_text_status(&text);
    if (status == MICS_OK)
        status =
            mics_run_parse(memory, spec->run, text.bytes, spec->sets, spec->set_count, run_out);
    mics_text_fini(&text);
    return status;
}

static mics_status load_run(mics_memory *memory, const measure_spec *spec, const run_world *world,
                            measure_subject *subject, wishes *wished)
{
    mics_run *run = NULL;
    MICS_TRY(open_run(memory, spec, &run));
    *wished = (wishes){.ignore_dropout = run->ignore_dropout,
                       .batch = micro_batch(run, world),
                       .sequence = run->sequence_length,
                       .threads = run->threads};
    mics_status status = load_config(memory, run->model_config, run->ignore_dropout, subject);
    mics_run_close(run);
    return status;
}

static mics_status set_batch(const measure_spec *spec, const wishes *wished,
                             measure_subject *subject)
{
    const int64_t positions = subject->model->positions;
    const int64_t usual = spec->run != NULL ? BARE_LENGTH : MAX_SEQUENCE;
    int64_t sequence = spec->sequence > 0 ? spec->sequence : wished->sequence;
    if (sequence == 0)
        sequence = positions < usual ? positions : usual;
    subject->batch = (mics_batch){
        .sequences = spec->batch > 0 ? spec->batch : wished->batch,
        .length = sequence,
        .threads = spec->threads > 0 ? spec->threads : wished->threads,
        .accelerator_bytes = subject->gpu ? (int32_t)mics_dtype_bytes(MICS_DTYPE_BF16) : 0};
    if (subject->batch.sequences == 0)
        subject->batch.sequences = 1;
    if (sequence <= positions)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: a sequence of %lld tokens, but the model has %lld positions; at most "
                     "that many work",
                     mics_json_name(subject->config), (long long)sequence, (long long)positions);
}

// ---- layers ----

mics_status measure_schedule_open(mics_memory *memory, const measure_subject *subject,
                                  mics_dtype dtype, int32_t micro_steps,
                                  mics_schedule **schedule_out)
{
    mics_schedule_spec spec = {.model = subject->model,
                               .batch = subject->batch,
                               .micro_steps = micro_steps,
                               .prefetch = 1,
                               .accelerator = subject->gpu,
                               .precision = dtype == MICS_DTYPE_FP32 ? MICS_PRECISION_FP32
                                                                     : MICS_PRECISION_MIXED};
    if (spec.batch.threads == 0)
        spec.batch.threads = 1;
    MICS_TRY(mics_mesh_init(1, 1, (mics_sharding){1, 1, 1}, &spec.mesh));
    return mics_schedule_open(memory, &spec, schedule_out);
}

static int64_t tokens_of(const measure_subject *subject)
{
    return subject->batch.sequences * subject->batch.length;
}

// What training it takes of one rank alone.
static mics_status weigh(mics_memory *memory, const measure_subject *subject, size_t *bytes_out,
                         double *flops_out)
{
    mics_schedule *schedule = NULL;
    MICS_TRY(measure_schedule_open(memory, subject,
                                   subject->gpu ? MICS_DTYPE_BF16 : MICS_DTYPE_FP32, 1, &schedule));
    *bytes_out = schedule->ledger.total;
    *flops_out = mics_schedule_flops(schedule, MICS_PHASE_TRAIN);
    mics_schedule_close(schedule);
    return MICS_OK;
}

static mics_status set_int(mics_json *config, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return mics_json_set(config, key, text);
}

// Under the key that the family has for them, and its alias. A list of what each layer is would be too long then.
static mics_status cut_to(mics_memory *memory, int64_t layers, int64_t vocab, bool ignore_dropout,
                          measure_subject *subject)
{
    static const char alias[] = "num_hidden_layers";
    mics_family family = {.layers_key = alias};
    mics_model_family(subject->model->architecture, &family);
    MICS_TRY(set_int(subject->config, family.layers_key, layers));
    if (vocab < subject->model->vocab)
        MICS_TRY(set_int(subject->config, "vocab_size", vocab));
    if (mics_json_at(subject->config, alias) != NULL)
        MICS_TRY(set_int(subject->config, alias, layers));
    if (mics_json_at(subject->config, "layer_types") != NULL)
        MICS_TRY(mics_json_set(subject->config, "layer_types", "null"));
    mics_model_close(subject->model);
    subject->model = NULL;
    return mics_model_from_config(memory, subject->config, ignore_dropout, &subject->model);
}

// Whole sequences first.
static void halve_batch(mics_batch *batch)
{
    if (batch->sequences > 1)
        batch->sequences /= 2;
    else
        batch->length /= 2;
}

// Layers are alike, so fewer will do; then fewer tokens where passes would take too long, and a
// smaller vocabulary where its tables take the memory.
static mics_status cut(mics_memory *memory, const measure_spec *spec, const run_world *world,
                       bool ignore_dropout, measure_subject *subject)
{
    const double pace = subject->gpu ? GPU_FLOPS_A_SECOND : FLOPS_A_SECOND;
    mics_machine machine;
    size_t bytes = 0;
    double flops = 0;
    MICS_TRY(mics_machine_read(&machine));
    const size_t budget = subject->gpu
                              ? measure_gpu_budget(world)
                              : (size_t)((double)machine.memory_available_bytes * MEMORY_SHARE) /
                                    (size_t)world->ranks_here;
    int64_t layers = mics_model_computing_units(subject->model) - 2; // all but embedding and head
    MICS_TRY(weigh(memory, subject, &bytes, &flops));
    for (;;) {
        const bool slow = flops > pace * spec->seconds, large = bytes > budget;
        int64_t vocab = subject->model->vocab;
        if (layers > 1 && (slow || large))
            layers /= 2;
        else if (large && vocab >= 2 * MIN_VOCAB)
            vocab /= 2;
        else if ((slow || large) && tokens_of(subject) >= 2 * MIN_TOKENS)
            halve_batch(&subject->batch);
        else
            break;
        MICS_TRY(cut_to(memory, layers, vocab, ignore_dropout, subject));
        MICS_TRY(weigh(memory, subject, &bytes, &flops));
    }
    if (bytes <= budget)
        return MICS_OK;
    char needed[32], there[32];
    return mics_fail(MICS_ERR_MEMORY,
                     "%s: one layer takes %s of a rank, and %s may be taken for it; use fewer "
                     "ranks on the machine",
                     mics_json_name(subject->config),
                     mics_size_text((double)bytes, needed, sizeof needed),
                     mics_size_text((double)budget, there, sizeof there));
}

mics_status measure_subject_device(mics_memory *memory, const measure_spec *spec,
                                   mics_run_device *device_out)
{
    mics_run *run = NULL;
    *device_out = spec->device;
    if (spec->has_device || spec->run == NULL)
        return MICS_OK;
    MICS_TRY(open_run(memory, spec, &run));
    *device_out = run->device;
    mics_run_close(run);
    return MICS_OK;
}

mics_status measure_subject_open(mics_memory *memory, const measure_spec *spec,
                                 const run_world *world, bool gpu, measure_subject *subject)
{
    wishes wished = {.batch = 0};
    subject->gpu = gpu;
    if (spec->run != NULL)
        MICS_TRY(load_run(memory, spec, world, subject, &wished));
    else
        MICS_TRY(load_config(memory, spec->config, true, subject));
    MICS_TRY(set_batch(spec, &wished, subject));
    return cut(memory, spec, world, spec->run == NULL || wished.ignore_dropout, subject);
}

void measure_subject_close(measure_subject *subject)
{
    mics_model_close(subject->model);
    mics_json_close(subject->config);
    *subject = (measure_subject){.model = NULL};
}
