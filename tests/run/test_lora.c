// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Adapters as PEFT trains and saves them, of seven families (tools/make_lora_golden.py): losses from
// PEFT's first values, the adapter that comes out, what it is merged to, and on what base it stands.
#include "base/capture.h"
#include "base/json.h"
#include "mics/run.h"
#include "test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOLDEN MICS_TEST_DATA "/lora/"
#define TOKENS MICS_TEST_DATA "/trainer/tokens.bin"

enum { STEPS = 20, PATH = 1024 };

static const char *const cases[] = {"llama_all",   "llama_rs",  "llama_saved",  "llama_layer",
                                    "qwen2_mlp",   "qwen2_q",   "qwen3_some",   "mistral_all",
                                    "gpt2_all",    "gpt2_attn", "gpt_neox_all", "gpt_neox_qkv",
                                    "mixtral_attn"};
enum { CASES = sizeof cases / sizeof *cases };

static mics_memory *memory;

// ---- a case ----

typedef struct lora_case {
    const char *name;
    mics_json *json;
    char base[PATH], adapter[PATH];
} lora_case;

static lora_case open_case(const char *name)
{
    lora_case of = {.name = name};
    char path[PATH];
    snprintf(path, sizeof path, GOLDEN "%s/case.json", name);
    ASSERT_OK(mics_json_load(memory, path, 1 << 20, &of.json));
    snprintf(of.base, sizeof of.base, GOLDEN "%s",
             mics_json_string(mics_json_at(of.json, "family")));
    snprintf(of.adapter, sizeof of.adapter, GOLDEN "%s/adapter", name);
    return of;
}

static void on_step(void *ctx, const mics_metrics *metrics)
{
    ((double *)ctx)[metrics->step - 1] = metrics->loss;
}

enum { MAX_SETS = 16 };

// A run as the golden's, with more sets; steps 0: all.
static mics_status train(const lora_case *of, const char *out, int32_t ranks,
                         const char *const *more, int64_t steps, double *losses)
{
    static const char *const data[] = {TOKENS};
    static const char *const usual[] = {"run.validation_batches=0", "run.device=cpu",
                                        "run.precision=fp32",       "run.threads=1",
                                        "gradient_clipping=0",      "train_batch_size=8"};
    const char *sets[MAX_SETS];
    char init[PATH + 16];
    int32_t count = 0;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        sets[count++] = usual[i];
    snprintf(init, sizeof init, "adapter.init=%s", of->adapter);
    if (more == NULL)
        sets[count++] = init;
    for (; more != NULL && *more != NULL; more++)
        sets[count++] = *more;
    const mics_run_values values = {.model_config = of->base,
                                    .train = data,
                                    .train_count = 1,
                                    .sequence_length = 16,
                                    .steps = STEPS,
                                    .seed = 11,
                                    .out = out,
                                    .learning_rate = 5e-3,
                                    .sharding = {ranks, ranks, ranks}};
    const mics_job_spec spec = {.memory = memory,
                                .values = &values,
                                .sets = sets,
                                .set_count = count,
                                .ranks = ranks,
                                .nodes = 1,
                                .callbacks = {.ctx = losses, .step = on_step}};
    mics_job *job = NULL;
    mics_status status = mics_job_open(&spec, &job);
    if (status == MICS_OK)
        status = mics_job_train(job, steps);
    if (status == MICS_OK && steps > 0)
        status = mics_job_save(job);
    (void)mics_job_close(job);
    return status;
}

static void check_losses(const lora_case *of, const double *losses, double tolerance)
{
    const mics_json_value *wanted = mics_json_at(of->json, "losses");
    for (int32_t i = 0; i < STEPS; i++) {
        const double loss = mics_json_real(mics_json_element(wanted, i));
        if (!(fabs(losses[i] - loss) <= tolerance))
            fail_msg("%s: step %d: loss %.9g, PEFT has %.9g", of->name, (int)i + 1, losses[i],
                     loss);
    }
}

// ---- files ----

// Each tensor of `wanted` is in `found`, and almost the same; both are files or folders.
static void check_tensors(const char *name, const char *wanted, const char *found, bool all,
                          double tolerance)
{
    mics_safetensors *files[2] = {NULL};
    static float values[2][1 << 16];
    ASSERT_OK(mics_safetensors_open(memory, wanted, &files[0]));
    ASSERT_OK(mics_safetensors_open(memory, found, &files[1]));
    if (all)
        assert_int_equal(mics_safetensors_count(files[0]), mics_safetensors_count(files[1]));
    for (int32_t i = 0; i < mics_safetensors_count(files[0]); i++) {
        const mics_tensor_info *info = mics_safetensors_at(files[0], i);
        const mics_tensor_info *other = mics_safetensors_find(files[1], info->name);
        if (other == NULL && strcmp(info->name, "lm_head.weight") == 0)
            continue; // tied, and written twice by the other one
        if (other == NULL)
            fail_msg("%s: no tensor %s", name, info->name);
        assert_int_equal(info->elems, other->elems);
        ASSERT_OK(mics_safetensors_read(files[0], info->name, 0, info->elems, values[0]));
        ASSERT_OK(mics_safetensors_read(files[1], info->name, 0, info->elems, values[1]));
        for (int64_t e = 0; e < info->elems; e++)
            if (!(fabs((double)values[0][e] - (double)values[1][e]) <= tolerance))
                fail_msg("%s: %s: element %lld is %.9g and not %.9g", name, info->name,
                         (long long)e, (double)values[1][e], (double)values[0][e]);
    }
    mics_safetensors_close(files[0]);
    mics_safetensors_close(files[1]);
}

static void export_of(const char *from, const char *base, const char *dir, bool merge)
{
    const mics_export_spec spec = {.dtype = MICS_DTYPE_FP32, .merge = merge};
    mics_saved *saved = NULL;
    ASSERT_OK(base != NULL ? mics_saved_open_adapter(memory, from, base, &saved)
                           : mics_saved_open(memory, from, NULL, &saved));
    ASSERT_OK(mics_saved_export(saved, dir, &spec));
    mics_saved_close(saved);
}

static double loss_of(const char *path, const char *base)
{
    static const char *const files[] = {TOKENS};
    const mics_evaluation_spec spec = {.files = files, .file_count = 1, .sequence = 16};
    mics_saved *saved = NULL;
    mics_evaluation evaluation = {0};
    ASSERT_OK(base != NULL ? mics_saved_open_adapter(memory, path, base, &saved)
                           : mics_saved_open(memory, path, NULL, &saved));
    ASSERT_OK(mics_saved_evaluate(saved, &spec, NULL, &evaluation));
    mics_saved_close(saved);
    return evaluation.loss;
}

// ---- tests ----

static void test_merges(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        lora_case of = open_case(cases[i]);
        char wanted[2 * PATH], path[2 * PATH], dir[PATH];
        snprintf(dir, sizeof dir, "merged-%s", of.name);
        export_of(of.adapter, of.base, dir, true);
        snprintf(wanted, sizeof wanted, GOLDEN "%s/merged.safetensors", of.name);
        check_tensors(of.name, wanted, dir, false, 1e-6);
        assert_float_equal(loss_of(dir, NULL), loss_of(of.adapter, of.base), 1e-6);
        snprintf(dir, sizeof dir, "same-%s", of.name);
        export_of(of.adapter, of.base, dir, false);
        snprintf(wanted, sizeof wanted, "%s/adapter_model.safetensors", of.adapter);
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
        check_tensors(of.name, wanted, path, true, 0);
        mics_json_close(of.json);
    }
}

// At one rank and two, and the adapter after it.
static void test_losses(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        lora_case of = open_case(cases[i]);
        double losses[STEPS];
        char out[PATH], dir[PATH], wanted[2 * PATH], path[2 * PATH];
        for (int32_t ranks = 1; ranks <= 2; ranks++) {
            snprintf(out, sizeof out, "%s-%d", of.name, (int)ranks);
            ASSERT_OK(train(&of, out, ranks, NULL, 0, losses));
            check_losses(&of, losses, 1e-4);
        }
        snprintf(dir, sizeof dir, "%s-2/adapter-00000020", of.name);
        snprintf(wanted, sizeof wanted, GOLDEN "%s/final.safetensors", of.name);
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
        check_tensors(of.name, wanted, path, true, 1e-4);
        assert_float_equal(loss_of(out, NULL), loss_of(dir, of.base), 0);
        mics_json_close(of.json);
    }
}

static void copy_folder(const char *from, const char *to)
{
    char command[2 * PATH + 32];
    snprintf(command, sizeof command, "cp -r '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

// Stopped and gone on with, on another number of ranks. A folder that another attempt at the last step
// left there is written anew.
static void test_resumes(void **state)
{
    lora_case of = open_case("llama_saved");
    double losses[STEPS];
    (void)state;
    ASSERT_OK(train(&of, "resumed", 2, NULL, 7, losses));
    copy_folder(of.adapter, "resumed/adapter-00000020");
    ASSERT_OK(train(&of, "resumed", 1, NULL, 0, losses));
    check_losses(&of, losses, 1e-4);
    check_tensors(of.name, GOLDEN "llama_saved/final.safetensors",
                  "resumed/adapter-00000020/adapter_model.safetensors", true, 1e-4);
    mics_json_close(of.json);
}

// Without first values nothing is changed at first.
static void test_begins_at_nothing(void **state)
{
    static const char *const sets[] = {"adapter.r=4", NULL};
    lora_case of = open_case("llama_all");
    double losses[STEPS];
    capture seen;
    (void)state;
    capture_begin(&seen);
    ASSERT_OK(train(&of, "fresh", 1, sets, 0, losses));
    capture_end();
    assert_non_null(strstr(seen.info, "adapter: r 4, lora_alpha 8, target_modules "
                                      "[\"all-linear\"]: trains 3712 of "));
    assert_true(losses[STEPS - 1] < losses[0]);
    export_of("fresh", NULL, "fresh-adapter", false);
    of.adapter[0] = '\0';
    snprintf(of.adapter, sizeof of.adapter, "fresh-adapter");
    capture_begin(&seen);
    ASSERT_OK(train(&of, "further", 1, NULL, 1, losses)); // PEFT's own targets, by name
    capture_end();
    assert_null(strstr(seen.info, "is an adapter of"));
    snprintf(of.adapter, sizeof of.adapter, GOLDEN "llama_all/adapter");
    capture_begin(&seen);
    ASSERT_OK(train(&of, "elsewhere", 1, NULL, 1, losses));
    capture_end();
    assert_non_null(strstr(seen.info, "is an adapter of llama; here it is on "));
    mics_json_close(of.json);
}

// A checkpoint says where its base was.
static void test_base_moves(void **state)
{
    static const char *const sets[] = {"adapter.r=2", "adapter.lora_dropout=0.25",
                                       "adapter.modules_to_save=[\"lm_head\"]", NULL};
    lora_case of = open_case("llama_all");
    mics_saved *saved = NULL;
    mics_json *config = NULL;
    double losses[STEPS];
    capture seen;
    (void)state;
    copy_folder(of.base, "here");
    snprintf(of.base, sizeof of.base, "here");
    ASSERT_OK(train(&of, "moves", 1, sets, 0, losses));
    const double loss = loss_of("moves", NULL);
    assert_int_equal(rename("here", "there"), 0);
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_IO, mics_saved_open(memory, "moves", NULL, &saved));
    ASSERT_SAID(&seen, "--base FOLDER says where that is now");
    assert_float_equal(loss_of("moves", "there"), loss, 0);
    assert_float_equal(loss_of("moves/adapter-00000020", "there"), loss, 0);
    ASSERT_OK(
        mics_json_load(memory, "moves/adapter-00000020/adapter_config.json", 1 << 20, &config));
    assert_true(mics_json_real(mics_json_at(config, "lora_dropout")) == 0.25);
    mics_json_close(config);
    mics_json_close(of.json);
}

// ---- what is refused ----

static void check_refused(const lora_case *of, const char *const *sets, const char *said)
{
    capture seen;
    double losses[STEPS];
    capture_begin(&seen);
    assert_int_not_equal(train(of, "refused", 1, sets, 0, losses), MICS_OK);
    ASSERT_SAID(&seen, said);
}

static void test_refuses(void **state)
{
    char init[PATH + 16];
    lora_case of = open_case("llama_all"), mixtral = open_case("mixtral_attn");
    (void)state;
    snprintf(init, sizeof init, "adapter.init=%s", of.adapter);
    check_refused(&of, (const char *const[]){init, "adapter.r=5", NULL}, "adapter.r");
    check_refused(&of, (const char *const[]){init, "adapter.target_modules=[\"q_proj\"]", NULL},
                  "adapter.target_modules");
    check_refused(&of, (const char *const[]){"adapter.r=4", "adapter.use_dora=true", NULL},
                  "adapter.use_dora");
    // 0 is a layer, and a token.
    check_refused(&of, (const char *const[]){"adapter.r=4", "adapter.layers_to_transform=0", NULL},
                  "adapter.target_modules may name layers");
    check_refused(&of,
                  (const char *const[]){"adapter.r=4", "adapter.layers_to_transform=[0]", NULL},
                  "adapter.layers_to_transform");
    check_refused(&of,
                  (const char *const[]){"adapter.r=4", "adapter.trainable_token_indices=[0]", NULL},
                  "adapter.trainable_token_indices");
    check_refused(&of, (const char *const[]){"adapter.target_modules=.*_proj", NULL},
                  "is a regular expression to PEFT");
    check_refused(&of, (const char *const[]){"adapter.r=4", "model.trainable=[\"*\"]", NULL},
                  "model.trainable");
    check_refused(&of, (const char *const[]){"adapter.target_modules=[\"c_attn\"]", NULL},
                  "c_attn");
    check_refused(&mixtral, (const char *const[]){"adapter.r=4", NULL}, "is an expert's");
    snprintf(init, sizeof init, "adapter.init=%s", mixtral.adapter);
    lora_case gpt2 = open_case("gpt2_all");
    check_refused(&gpt2, (const char *const[]){init, NULL}, "_proj");
    check_refused(&gpt2, (const char *const[]){"adapter.init=nowhere", NULL},
                  "holds no adapter_config.json");
    mics_json_close(gpt2.json);
    mics_json_close(of.json);
    mics_json_close(mixtral.json);
}

// A folder of PEFT's with one thing changed by a shell command.
static void check_folder(const lora_case *of, const char *command, mics_status status,
                         const char *said)
{
    mics_saved *saved = NULL;
    char line[PATH];
    capture seen;
    copy_folder(of->adapter, "changed");
    snprintf(line, sizeof line, "chmod -R u+w changed && cd changed && %s", command);
    assert_int_equal(system(line), 0);
    capture_begin(&seen);
    ASSERT_STATUS(status, mics_saved_open_adapter(memory, "changed", of->base, &saved));
    ASSERT_SAID(&seen, said);
    assert_int_equal(system("rm -r changed"), 0);
}

static void test_refuses_folders(void **state)
{
    lora_case of = open_case("llama_all");
    (void)state;
    check_folder(&of, "sed -i 's/\"r\": \\([0-9]*\\)/\"r\": \\1.5/' adapter_config.json",
                 MICS_ERR_INVALID, "r: must be a whole number");
    check_folder(&of,
                 "sed -i 's/\"use_rslora\": false/\"use_rslora\": \"yes\"/' adapter_config.json",
                 MICS_ERR_FORMAT, "use_rslora: must be true or false");
    check_folder(
        &of, "sed -i 's/\"lora_dropout\": [0-9.]*/\"lora_dropout\": \"x\"/' adapter_config.json",
        MICS_ERR_FORMAT, "lora_dropout: must be a number");
    check_folder(&of,
                 "sed -i 's/\"init_lora_weights\": true/\"init_lora_weights\": \"pissa\"/' "
                 "adapter_config.json",
                 MICS_ERR_UNSUPPORTED, "init_lora_weights: \"pissa\" cannot be honoured");
    check_folder(&of,
                 "sed -i 's/\"layers_to_transform\": null/\"layers_to_transform\": [0]/' "
                 "adapter_config.json",
                 MICS_ERR_UNSUPPORTED, "layers_to_transform: [0] cannot be honoured");
    check_folder(&of, "rm adapter_model.safetensors", MICS_ERR_IO, "adapter_model.bin");
    // How values began does not matter to values that are read.
    mics_saved *saved = NULL;
    copy_folder(of.adapter, "gaussian");
    assert_int_equal(system("chmod -R u+w gaussian && sed -i "
                            "'s/\"init_lora_weights\": true/\"init_lora_weights\": \"gaussian\"/' "
                            "gaussian/adapter_config.json && grep -q gaussian gaussian/*.json"),
                     0);
    ASSERT_OK(mics_saved_open_adapter(memory, "gaussian", of.base, &saved));
    mics_saved_close(saved);
    mics_json_close(of.json);
}

// Drawn weights are in no folder: an adapter on them is good for nothing alone, and on no others.
static void test_random_bases(void **state)
{
    static const char *const sets[] = {"adapter.r=4", "model.init=random", NULL};
    const mics_export_spec split = {.dtype = MICS_DTYPE_FP32, .max_file_bytes = 1024};
    lora_case of = open_case("llama_all");
    mics_saved *saved = NULL;
    double losses[STEPS];
    capture seen;
    (void)state;
    capture_begin(&seen);
    ASSERT_OK(train(&of, "drawn", 1, sets, 0, losses));
    capture_end();
    assert_non_null(strstr(seen.info, "; the others stay random"));
    assert_int_equal(seen.warnings, 1); // that the adapter alone is good for nothing
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_saved_open_adapter(memory, "drawn", of.base, &saved));
    ASSERT_SAID(&seen, "was trained on random weights");
    ASSERT_OK(mics_saved_open(memory, "drawn", NULL, &saved));
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_saved_export(saved, "split", &split));
    ASSERT_SAID(&seen, "--max-shard-bytes");
    mics_saved_close(saved);
    mics_json_close(of.json);
}

static void test_refuses_other_bases(void **state)
{
    lora_case of = open_case("llama_all");
    mics_saved *saved = NULL;
    capture seen;
    (void)state;
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_IO, mics_saved_open(memory, of.adapter, NULL, &saved));
    ASSERT_SAID(&seen, "--base FOLDER says where that is");
    ASSERT_STATUS(MICS_ERR_INVALID,
                  mics_saved_open_adapter(memory, of.base, GOLDEN "gpt2", &saved));
    ASSERT_STATUS(MICS_ERR_INVALID,
                  mics_saved_open_adapter(memory, of.adapter, GOLDEN "gpt2", &saved));
    mics_json_close(of.json);
}

static int setup(void **state)
{
    static char folder[] = "/tmp/mics-lora-XXXXXX";
    (void)state;
    return mkdtemp(folder) == NULL || chdir(folder) != 0 || mics_memory_open(&memory) != MICS_OK;
}

static int teardown(void **state)
{
    (void)state;
    return mics_memory_close(memory) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_resumes),
        cmocka_unit_test(test_begins_at_nothing),
        cmocka_unit_test(test_base_moves),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_refuses_folders),
        cmocka_unit_test(test_random_bases),
        cmocka_unit_test(test_refuses_other_bases),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
