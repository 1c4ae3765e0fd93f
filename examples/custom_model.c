// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A model that is none of ours: a decoder with RMSNorm and without biases. Four ranks train it
// under mics(2), as threads treated as two nodes. Then it writes some text and is exported. Started
// again after an interruption, it resumes from the newest checkpoint.
//
//   custom_model OUT EXPORT TEXT...     trains on the texts into OUT, exports to the folder EXPORT
#include <mics/builder.h>
#include <mics/run.h>
#include <stdio.h>

static const char description[] =
    "{\"model_type\": \"rms-decoder\", \"layers\": 2, \"hidden\": 64, "
    "\"heads\": 4, \"positions\": 64, \"vocab\": 256}";

// Adds the parameter "UNIT.NAME.weight" to the newest unit: a matrix, or ones where cols is 0.
static mics_param_ref param(mics_model *model, const char *unit, const char *name, int64_t rows,
                            int64_t cols)
{
    char full[MICS_NAME_BYTES];
    const mics_param_spec matrix = {2, {rows, cols}, MICS_INIT_NORMAL, 0.02, true};
    const mics_param_spec ones = {1, {rows}, MICS_INIT_ONES, 0, false};
    snprintf(full, sizeof full, "%s.%s.weight", unit, name);
    return mics_model_add_param(model, full, cols > 0 ? &matrix : &ones);
}

static int32_t norm(mics_model *model, const char *unit, const char *name, int32_t in)
{
    return mics_op_rmsnorm(model, in, param(model, unit, name, model->hidden, 0), 1e-5f);
}

static int32_t linear(mics_model *model, const char *unit, const char *name, int32_t in,
                      int64_t inputs, int64_t outputs)
{
    const mics_param_ref weight = param(model, unit, name, inputs, outputs);
    return mics_op_linear(model, in, weight, mics_param_none(), false);
}

// One unit: what is gathered together. Tensor 0 is the unit's input.
static void layer(mics_model *model, int64_t index, int64_t heads)
{
    const int64_t hidden = model->hidden;
    char unit[32];
    snprintf(unit, sizeof unit, "layer.%lld", (long long)index);
    mics_model_unit(model, unit, hidden);
    int32_t x = norm(model, unit, "norm_1", 0);
    x = linear(model, unit, "attention", x, hidden, 3 * hidden);
    x = mics_op_attention(model, x, (mics_heads){heads, heads, hidden / heads}, 0, 0);
    x = linear(model, unit, "out", x, hidden, hidden);
    const int32_t middle = mics_op_add(model, 0, x);
    x = norm(model, unit, "norm_2", middle);
    x = mics_op_gelu(model, linear(model, unit, "up", x, hidden, 4 * hidden), false);
    x = linear(model, unit, "down", x, 4 * hidden, hidden);
    mics_model_unit_end(model, mics_op_add(model, middle, x));
}

// A builder call that fails makes the later ones do nothing; the library asks once, at the end.
static mics_status build(void *ctx, mics_memory *memory, const mics_json *json,
                         mics_model **model_out)
{
    (void)ctx;
    mics_model_spec spec = {.architecture = "rms-decoder"};
    int64_t layers = 0, heads = 0;
    MICS_TRY(mics_description_int(json, "vocab", &spec.vocab));
    MICS_TRY(mics_description_int(json, "positions", &spec.positions));
    MICS_TRY(mics_description_int(json, "hidden", &spec.hidden));
    MICS_TRY(mics_description_int(json, "layers", &layers));
    MICS_TRY(mics_description_int(json, "heads", &heads));
    MICS_TRY(mics_model_open(memory, &spec, model_out));
    mics_model *model = *model_out;
    mics_model_unit(model, "embed", 0);
    const mics_param_ref tokens = param(model, "embed", "tokens", spec.vocab, spec.hidden);
    const mics_param_ref positions =
        param(model, "embed", "positions", spec.positions, spec.hidden);
    mics_model_unit_end(model, mics_op_embedding(model, tokens, positions));
    for (int64_t i = 0; i < layers; i++)
        layer(model, i, heads);
    mics_model_unit(model, "head", spec.hidden);
    mics_op_lm_head(model, norm(model, "head", "norm", 0), tokens); // tied: the embedding's table
    mics_model_unit_end(model, -1);
    return MICS_OK;
}

static void print_step(void *ctx, const mics_metrics *metrics)
{
    (void)ctx;
    printf("step %lld/%lld  loss %.6f\n", (long long)metrics->step, (long long)metrics->steps,
           metrics->loss);
}

static mics_status use(mics_job *job, const char *export_dir)
{
    static const char prompt[] = "Shall I ";
    const mics_sampling sampling = {.tokens = 120, .temperature = 0.8, .seed = 1};
    MICS_TRY(mics_job_train(job, 0));
    fputs(prompt, stdout);
    MICS_TRY(mics_job_generate(job, prompt, &sampling, stdout));
    putchar('\n');
    return mics_job_export(job, export_dir, NULL);
}

int main(int argc, char **argv)
{
    mics_memory *memory = NULL;
    if (argc < 4) {
        fprintf(stderr, "usage: custom_model OUT EXPORT TEXT...\n");
        return 2;
    }
    if (mics_memory_open(&memory) != MICS_OK)
        return 1;
    const mics_run_values values = {
        .train = (const char *const *)(argv + 3),
        .train_count = argc - 3,
        .steps = 60,
        .seed = 1,
        .out = argv[1],
        .checkpoint_every = 20,
        .micro_batch = 2,
        .micro_steps = 2,
        .learning_rate = 3e-3,
        .sharding = {.params = 2, .grads = 2, .optimizer = 2}, // mics(2), within a node
    };
    const mics_job_spec spec = {.memory = memory,
                                .values = &values,
                                .ranks = 4,
                                .nodes = 2,
                                .builder = {.build = build},
                                .description = description,
                                .callbacks = {.step = print_step}};
    mics_job *job = NULL;
    mics_status status = mics_job_open(&spec, &job);
    if (status == MICS_OK)
        status = use(job, argv[2]);
    const mics_status closed = mics_job_close(job);
    mics_memory_close(memory);
    return status == MICS_OK && closed == MICS_OK ? 0 : 1;
}
