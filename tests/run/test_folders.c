// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Folders as Hugging Face has them, in place of a checkpoint: exported again they have the same
// bits; what is wrong in them is one line.
#include "base/capture.h"
#include "base/json.h"
#include "io/checkpoint/scratch.h"
#include "mics/core/checkpoint.h"
#include "mics/run.h"
#include "run/model_files.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static float *read_all(const mics_safetensors *file, const mics_tensor_info *info)
{
    float *data = calloc((size_t)info->elems + 1, sizeof *data);
    assert_non_null(data);
    ASSERT_OK(mics_safetensors_read(file, info->name, 0, info->elems, data));
    return data;
}

// ---- round trips ----

static void compare_tensor(const mics_safetensors *a, const mics_tensor_info *left,
                           const mics_safetensors *b)
{
    const mics_tensor_info *right = mics_safetensors_find(b, left->name);
    if (right == NULL)
        fail_msg("%s is not exported", left->name);
    assert_int_equal(left->dims, right->dims);
    for (int32_t i = 0; i < left->dims; i++)
        assert_int_equal(left->shape[i], right->shape[i]);
    float *here = read_all(a, left), *there = read_all(b, right);
    if (memcmp(here, there, (size_t)left->elems * sizeof(float)) != 0)
        fail_msg("%s has other bits", left->name);
    free(here);
    free(there);
}

// The activation of a folder's configuration, "" where the family has no such key.
static void read_activation(mics_memory *memory, const char *path, char name_out[32])
{
    mics_json *config = NULL;
    ASSERT_OK(mics_json_load(memory, path, 1 << 16, &config));
    const char *name = mics_json_string(mics_json_at(config, "activation_function"));
    snprintf(name_out, 32, "%s", name != NULL ? name : "");
    mics_json_close(config);
}

static void compare_activation(mics_memory *memory, const char *exported, const char *folder)
{
    char path[512], here[32], there[32];
    snprintf(path, sizeof path, "%s/config.json", folder);
    read_activation(memory, path, here);
    read_activation(memory, exported, there);
    assert_string_equal(there, here);
}

static void export(mics_memory *memory, const char *from, const char *to,
                   const mics_export_spec *spec)
{
    mics_saved *saved = NULL;
    ASSERT_OK(mics_saved_open(memory, from, NULL, &saved));
    ASSERT_OK(mics_saved_export(saved, to, spec));
    mics_saved_close(saved);
}

// From the file as transformers wrote it, and back; in several files, too. `like`: a folder of the
// same tensors.
static void check_round_trip(mics_memory *memory, const char *folder, const char *like)
{
    scratch place;
    mics_safetensors *original = NULL, *exported = NULL;
    scratch_make_fast(&place);
    const char *once = scratch_path(&place, "once"), *twice = scratch_path(&place, "twice");
    export(memory, folder, once, NULL);
    export(memory, once, twice, &(mics_export_spec){.max_file_bytes = 9000});
    ASSERT_OK(mics_safetensors_open(memory, like, &original));
    ASSERT_OK(mics_safetensors_open(memory, twice, &exported));
    assert_int_equal(mics_safetensors_count(original), mics_safetensors_count(exported));
    for (int32_t i = 0; i < mics_safetensors_count(original); i++)
        compare_tensor(original, mics_safetensors_at(original, i), exported);
    mics_safetensors_close(original);
    mics_safetensors_close(exported);
    compare_activation(memory, scratch_path(&place, "twice/config.json"), like);
    scratch_remove(&place);
}

static void test_same_bits(void **state)
{
    (void)state;
    static const char *const folders[] = {"gpt2",         "gpt2_untied",       "gpt2_gelu",
                                          "gpt2_relu",    "gpt2_silu",         "llama_grouped",
                                          "llama_single", "mistral_full",      "qwen2_layers",
                                          "qwen3_single", "gpt_neox_parallel", "qwen2_moe_shared"};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++) {
        char path[512];
        snprintf(path, sizeof path, MICS_TEST_DATA "/%s", folders[f]);
        check_round_trip(memory, path, path);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// bf16 rounds once: what was exported is exported again with the same bits.
static void test_rounded(void **state)
{
    (void)state;
    static const mics_export_spec bf16 = {.dtype = MICS_DTYPE_BF16};
    mics_memory *memory = NULL;
    mics_safetensors *file = NULL;
    mics_json *config = NULL;
    scratch place;
    ASSERT_OK(mics_memory_open(&memory));
    scratch_make_fast(&place);
    const char *folder = scratch_path(&place, "bf16");
    export(memory, MICS_TEST_DATA "/gpt_neox_parallel", folder, &bf16);
    check_round_trip(memory, folder, folder);
    ASSERT_OK(mics_safetensors_open(memory, folder, &file));
    for (int32_t i = 0; i < mics_safetensors_count(file); i++)
        assert_string_equal(mics_safetensors_at(file, i)->dtype, "BF16");
    mics_safetensors_close(file);
    ASSERT_OK(mics_json_load(memory, scratch_path(&place, "bf16/config.json"), 1 << 16, &config));
    assert_string_equal(mics_json_string(mics_json_at(config, "torch_dtype")), "bfloat16");
    assert_int_equal(mics_json_int(mics_json_at(config, "hidden_size")), 36);
    assert_int_equal(mics_json_type_of(mics_json_at(config, "rope_parameters.rope_theta")),
                     MICS_JSON_REAL);
    mics_json_close(config);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- tokenizers ----

// A folder with a model of tests/golden, and a tokenizer of tests/golden/tokenizers in which one
// text is another (NULL: none is).
static void make_folder(const scratch *place, const char *model, const char *tokenizer,
                        const char *text, const char *other)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    static char read[1 << 18];
    char path[512];
    for (int n = 0; n < 2; n++) {
        snprintf(path, sizeof path, MICS_TEST_DATA "/%s/%s", model, names[n]);
        assert_int_equal(symlink(path, scratch_path(place, names[n])), 0);
    }
    snprintf(path, sizeof path, MICS_TEST_DATA "/tokenizers/%s.json", tokenizer);
    FILE *in = fopen(path, "rb"), *out = fopen(scratch_path(place, "tokenizer.json"), "wb");
    assert_non_null(in);
    assert_non_null(out);
    const size_t bytes = fread(read, 1, sizeof read - 1, in);
    read[bytes] = '\0';
    const char *at = text != NULL ? strstr(read, text) : read;
    assert_non_null(at);
    fprintf(out, "%.*s%s%s", (int)(at - read), read, text != NULL ? other : "",
            at + (text != NULL ? strlen(text) : 0));
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

// An export of qwen2 warns of a tokenizer that transformers would not take as it is.
static void test_qwen2_tokenizers(void **state)
{
    (void)state;
    static const struct {
        const char *model, *tokenizer;
        int warnings;
        const char *text, *other;
    } cases[] = {
        {"qwen2_layers", "qwen2", 0, NULL, NULL},
        {"qwen2_layers", "llama3", 1, NULL, NULL},
        {"qwen2_layers", "gpt2", 1, NULL, NULL},
        {"qwen3_single", "llama3", 0, NULL, NULL},
        {"qwen2_layers", "qwen2", 1, "{\"type\":\"NFC\"}", "null"},
        {"qwen2_layers", "qwen2", 1, "{\"type\":\"NFC\"}", "{\"type\":\"NFKC\"}"},
        {"qwen2_layers", "qwen2", 1, "\"Isolated\"", "\"Removed\""},
        {"qwen2_layers", "qwen2", 1, "\"add_prefix_space\":false", "\"add_prefix_space\":true"},
        {"qwen2_layers", "qwen2", 1, "\"ignore_merges\":false", "\"ignore_merges\":true"},
        {"qwen2_layers", "qwen2", 1, "{\"type\":\"ByteLevel\"",
         "{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":\"ByteLevel\""},
        {"qwen3_single", "qwen2", 0, "{\"type\":\"NFC\"}", "null"},
    };
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scratch place;
        capture seen;
        scratch_make_fast(&place);
        make_folder(&place, cases[i].model, cases[i].tokenizer, cases[i].text, cases[i].other);
        capture_begin(&seen);
        export(memory, place.dir, scratch_path(&place, "out"), NULL);
        capture_end();
        if (seen.warnings != cases[i].warnings)
            fail_msg("case %zu: %d warnings, expected %d", i, seen.warnings, cases[i].warnings);
        scratch_remove(&place);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

static bool has_text(const mics_json *json, const char *key, const char *text)
{
    const char *string = mics_json_string(mics_json_at(json, key));
    return string != NULL && strcmp(string, text) == 0;
}

// Exports keep what a folder says of its tokenizer, but for its class.
static void test_tokenizer_config(void **state)
{
    (void)state;
    static const char own[] =
        "{\"tokenizer_class\": \"LlamaTokenizer\", \"chat_template\": \"{{ x }}\", \"auto_map\": "
        "{\"AutoTokenizer\": [\"a.B\", null]}, \"unk_token\": \"<unk>\", \"model_max_length\": 7}";
    static const char *const models[] = {"qwen2_layers", "qwen3_single"};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < 4; i++) {
        const bool qwen2 = i % 2 == 0, there = i < 2;
        scratch place;
        mics_json *config = NULL;
        scratch_make_fast(&place);
        make_folder(&place, models[i % 2], "qwen2", NULL, NULL);
        if (there) {
            file_write(scratch_path(&place, "tokenizer_config.json"), own, sizeof own - 1);
            file_write(scratch_path(&place, "chat_template.jinja"), "{{ y }}", 7);
        }
        export(memory, place.dir, scratch_path(&place, "out"), NULL);
        ASSERT_OK(mics_json_load(memory, scratch_path(&place, "out/tokenizer_config.json"), 1 << 16,
                                 &config));
        assert_true(has_text(config, "tokenizer_class", "PreTrainedTokenizerFast"));
        assert_int_equal(has_text(config, "chat_template", "{{ x }}"), there);
        assert_int_equal(has_text(config, "unk_token", "<unk>"), there);
        assert_int_equal(mics_json_count(mics_json_at(config, "auto_map")), 0);
        assert_int_equal(mics_json_int(mics_json_at(config, "model_max_length")) == 7, there);
        assert_int_equal(mics_json_at(config, "pad_token") != NULL, qwen2);
        assert_int_equal(file_exists(scratch_path(&place, "out/chat_template.jinja")), there);
        mics_json_close(config);
        scratch_remove(&place);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// What transformers puts around a text, and the tokenizer.json does not, is said.
static void test_switches(void **state)
{
    (void)state;
    static const struct {
        const char *tokenizer, *config;
        int warnings;
    } cases[] = {
        {"qwen2", "{\"add_bos_token\": true, \"add_eos_token\": true}", 2},
        {"qwen2", "{\"add_bos_token\": true}", 1},
        {"qwen2", "{\"add_bos_token\": false, \"add_eos_token\": null}", 0},
        {"qwen2", "{\"add_bos_token\": tru", 0},
        {"qwen2", "[]", 0},
        {"llama2", "{\"add_bos_token\": true, \"add_eos_token\": false}", 0},
    };
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mics_saved *saved = NULL;
        scratch place;
        capture seen;
        scratch_make_fast(&place);
        make_folder(&place, "qwen3_single", cases[i].tokenizer, NULL, NULL);
        file_write(scratch_path(&place, "tokenizer_config.json"), cases[i].config,
                   strlen(cases[i].config));
        capture_begin(&seen);
        ASSERT_OK(mics_saved_open(memory, place.dir, NULL, &saved));
        capture_end();
        if (seen.warnings != cases[i].warnings)
            fail_msg("case %zu: %d warnings, expected %d", i, seen.warnings, cases[i].warnings);
        mics_saved_close(saved);
        scratch_remove(&place);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_bad_tokenizer_config(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_saved *saved = NULL;
    capture seen;
    scratch place;
    ASSERT_OK(mics_memory_open(&memory));
    scratch_make_fast(&place);
    make_folder(&place, "qwen3_single", "qwen2", NULL, NULL);
    file_write(scratch_path(&place, "tokenizer_config.json"), "[]", 2);
    ASSERT_OK(mics_saved_open(memory, place.dir, NULL, &saved));
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_FORMAT, mics_saved_export(saved, scratch_path(&place, "out"), NULL));
    capture_end();
    ASSERT_SAID(&seen, "tokenizer_config.json: must be an object");
    mics_saved_close(saved);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

// A checkpoint names the files that an export writes, so no other names are taken.
static void test_kept_names(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        mics_status status;
    } cases[] = {
        {NULL, MICS_OK},
        {"{\"chat_template.jinja\": \"{{ x }}\", \"additional_chat_templates/a.jinja\": \"\"}",
         MICS_OK},
        {"{\"../tokenizer_config.json\": \"\"}", MICS_ERR_FORMAT},
        {"{\"model.safetensors\": \"\"}", MICS_ERR_FORMAT},
        {"{\"additional_chat_templates/../a.jinja\": \"\"}", MICS_ERR_FORMAT},
        {"{\"additional_chat_templates/a.py\": \"\"}", MICS_ERR_FORMAT},
        {"{\"chat_template.jinja\": 1}", MICS_ERR_FORMAT},
        {"[]", MICS_ERR_FORMAT},
    };
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mics_json *files = NULL;
        capture seen;
        capture_begin(&seen);
        const mics_status status =
            run_model_files_parse(memory, "a checkpoint", cases[i].text, &files);
        capture_end();
        if (status != cases[i].status)
            fail_msg("case %zu: %s", i, mics_status_text(status));
        mics_json_close(files);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- what is wrong ----

// How a copy of a golden folder, such as llama_single, whose head is tied, differs.
typedef struct change {
    const char *leave_out; // a tensor
    const char *add;       // another, with the rows of the embeddings
    float plus;            // to the first element of what is added
    const char *said;      // NULL: it is good
} change;

static void copy_file(const char *from, const char *to)
{
    static char text[1 << 16];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    const size_t bytes = fread(text, 1, sizeof text, in);
    assert_true(bytes < sizeof text && fwrite(text, 1, bytes, out) == bytes);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static void copy_changed(mics_memory *memory, const char *source, const change *how, const char *to)
{
    static const char embeddings[] = "model.embed_tokens.weight";
    mics_safetensors *from = NULL;
    mics_safetensors_writer *writer = NULL;
    mics_safetensors_entry entries[64];
    const mics_tensor_info *infos[64];
    int32_t count = 0;
    ASSERT_OK(mics_safetensors_open(memory, source, &from));
    for (int32_t i = 0; i <= mics_safetensors_count(from); i++) {
        const bool added = i == mics_safetensors_count(from);
        const mics_tensor_info *info =
            added ? mics_safetensors_find(from, embeddings) : mics_safetensors_at(from, i);
        if (added ? how->add == NULL
                  : how->leave_out != NULL && strcmp(info->name, how->leave_out) == 0)
            continue;
        entries[count] =
            (mics_safetensors_entry){.name = added ? how->add : info->name, .dims = info->dims};
        memcpy(entries[count].shape, info->shape, sizeof info->shape);
        infos[count++] = info;
    }
    ASSERT_OK(mics_safetensors_create(memory, to, entries, count, 0, &writer));
    for (int32_t i = 0; i < count; i++) {
        float *data = read_all(from, infos[i]);
        data[0] += entries[i].name == how->add ? how->plus : 0;
        ASSERT_OK(mics_safetensors_append(writer, data, infos[i]->elems));
        free(data);
    }
    ASSERT_OK(mics_safetensors_finish(writer, MICS_OK));
    mics_safetensors_close(from);
}

static void check_changes(const char *golden, const char *source, const change *changes,
                          size_t count)
{
    char config[256];
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (size_t i = 0; i < count; i++) {
        scratch place;
        mics_saved *saved = NULL;
        capture seen;
        scratch_make_fast(&place);
        const char *folder = scratch_path(&place, "m");
        copy_changed(memory, source, &changes[i], folder);
        snprintf(config, sizeof config, MICS_TEST_DATA "/%s/config.json", golden);
        copy_file(config, scratch_path(&place, "m/config.json"));
        capture_begin(&seen);
        const mics_status status = mics_saved_open(memory, folder, NULL, &saved);
        capture_end();
        if (changes[i].said != NULL) {
            ASSERT_STATUS(MICS_ERR_INVALID, status);
            ASSERT_SAID(&seen, changes[i].said);
        } else {
            ASSERT_OK(status);
        }
        mics_saved_close(saved);
        scratch_remove(&place);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_tensors(void **state)
{
    (void)state;
    static const change changes[] = {
        {NULL, NULL, 0, NULL},
        {NULL, "lm_head.weight", 0, NULL},
        {NULL, "lm_head.weight", 1e-3f, "tensor \"lm_head.weight\" is not \"model.embed_tokens"},
        {NULL, "model.layers.0.self_attn.rotary_emb.inv_freq", 0, NULL},
        {NULL, "model.layers.2.mlp.up_proj.weight", 0,
         "tensor \"model.layers.2.mlp.up_proj.weight\" belongs to no parameter"},
        {NULL, "embed_tokens.weight", 0,
         "tensors \"model.embed_tokens.weight\" and \"embed_tokens.weight\" are one of"},
        {"model.embed_tokens.weight", "embed_tokens.weight", 0, NULL},
        {"model.layers.1.self_attn.k_proj.weight", NULL, 0,
         "tensor \"model.layers.1.self_attn.k_proj.weight\" is missing"},
        {"model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.k_proj.weight", 0,
         "is [97, 30], but the model's config says [10, 30]"},
    };
    check_changes("llama_single", MICS_TEST_DATA "/llama_single", changes,
                  sizeof changes / sizeof changes[0]);
}

// Exports have the tensors of the folders that the stacked files were made from.
static void test_stacked_bits(void **state)
{
    (void)state;
    static const char *const folders[] = {"mixtral_small", "qwen3_moe_layers"};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++) {
        char like[256], config[512], file[256];
        scratch place;
        scratch_make_fast(&place);
        const char *folder = scratch_path(&place, "m");
        snprintf(like, sizeof like, MICS_TEST_DATA "/%s", folders[f]);
        snprintf(config, sizeof config, "%s/config.json", like);
        snprintf(file, sizeof file, MICS_TEST_DATA "/stacked/%s.safetensors", folders[f]);
        copy_changed(memory, file, &(change){0}, folder);
        copy_file(config, scratch_path(&place, "m/config.json"));
        check_round_trip(memory, folder, like);
        scratch_remove(&place);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// Experts of a layer as one tensor.
static void test_stacked_tensors(void **state)
{
    (void)state;
    static const change changes[] = {
        {NULL, NULL, 0, NULL},
        {NULL, "layers.1.mlp.experts.down_proj", 0, "are one of the model's; which holds?"},
        {NULL, "model.layers.1.block_sparse_moe.gate.weight", 0, "are one of the model's"},
        {NULL, "model.layers.0.block_sparse_moe.experts.4.w3.weight", 0,
         "w3.weight\" is a part of \"model.layers.0.mlp.experts.gate_up_proj\""},
        {"model.layers.0.mlp.experts.down_proj", NULL, 0,
         "tensor \"model.layers.0.block_sparse_moe.experts.0.w2.weight\" is missing"},
        {"model.layers.0.mlp.experts.down_proj", "model.layers.0.mlp.experts.down_proj", 0,
         "is [97, 24], but the model's config says [5, 24, 13]"},
    };
    check_changes("mixtral_small", MICS_TEST_DATA "/stacked/mixtral_small.safetensors", changes,
                  sizeof changes / sizeof changes[0]);
}

// A weight that fp16 cannot hold: the line names its tensor, and no folder is left.
static void test_too_large(void **state)
{
    (void)state;
    static const char name[] = "model.embed_tokens.weight";
    static const mics_export_spec fp16 = {.dtype = MICS_DTYPE_FP16};
    mics_memory *memory = NULL;
    mics_saved *saved = NULL;
    capture seen;
    scratch place;
    ASSERT_OK(mics_memory_open(&memory));
    scratch_make_fast(&place);
    copy_changed(memory, MICS_TEST_DATA "/llama_single", &(change){name, name, 1e6f, NULL},
                 scratch_path(&place, "m"));
    copy_file(MICS_TEST_DATA "/llama_single/config.json", scratch_path(&place, "m/config.json"));
    ASSERT_OK(mics_saved_open(memory, scratch_path(&place, "m"), NULL, &saved));
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_saved_export(saved, scratch_path(&place, "out"), &fp16));
    capture_end();
    ASSERT_SAID(&seen, "tensor \"model.embed_tokens.weight\" is too large for F16; write bf16 or");
    assert_false(file_exists(scratch_path(&place, "out")));
    mics_saved_close(saved);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Pickles are refused with the command that converts them; without a tokenizer.json there is no
// text.
static void test_files(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_saved *saved = NULL;
    scratch place;
    capture seen;
    ASSERT_OK(mics_memory_open(&memory));
    scratch_make_fast(&place);
    file_write(scratch_path(&place, "pytorch_model.bin"), "x", 1);
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_UNSUPPORTED, mics_saved_open(memory, place.dir, NULL, &saved));
    ASSERT_SAID(&seen, "save_pretrained");
    ASSERT_OK(mics_saved_open(memory, MICS_TEST_DATA "/llama_single", NULL, &saved));
    assert_null(mics_saved_facts_get(saved).tokenizer);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_saved_load(saved, MICS_DTYPE_FP32));
    ASSERT_SAID(&seen, "holds no tokenizer.json");
    capture_end();
    mics_saved_close(saved);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Every allocation may fail: nothing is left.
static void test_allocations(void **state)
{
    (void)state;
    mics_status status = MICS_ERR_MEMORY;
    for (int64_t n = 1; status != MICS_OK; n += n < 100 ? 1 : 7) {
        mics_memory *memory = NULL;
        mics_saved *saved = NULL;
        capture seen;
        scratch place;
        scratch_make_fast(&place);
        ASSERT_OK(mics_memory_open(&memory));
        capture_begin(&seen);
        mics_memory_fail_after(memory, n);
        status = mics_saved_open(memory, MICS_TEST_DATA "/llama_single", NULL, &saved);
        if (status == MICS_OK)
            status = mics_saved_export(saved, scratch_path(&place, "out"), NULL);
        mics_memory_fail_after(memory, 0);
        capture_end();
        mics_saved_close(saved);
        assert_int_equal(mics_memory_close(memory), 0);
        assert_true(status == MICS_OK || status == MICS_ERR_MEMORY);
        assert_int_equal(access(scratch_path(&place, "out"), F_OK), status == MICS_OK ? 0 : -1);
        scratch_remove(&place);
    }
}

// Nor of an export that copies what a folder says of its tokenizer.
static void test_tokenizer_allocations(void **state)
{
    (void)state;
    static const char own[] = "{\"auto_map\": {}, \"chat_template\": \"{{ x }}\"}";
    mics_status status = MICS_ERR_MEMORY;
    scratch place;
    scratch_make_fast(&place);
    make_folder(&place, "qwen2_layers", "qwen2", NULL, NULL);
    file_write(scratch_path(&place, "tokenizer_config.json"), own, sizeof own - 1);
    file_write(scratch_path(&place, "chat_template.jinja"), "{{ y }}", 7);
    for (int64_t n = 1; status != MICS_OK; n++) {
        mics_memory *memory = NULL;
        mics_saved *saved = NULL;
        capture seen;
        scratch out;
        scratch_make_fast(&out);
        ASSERT_OK(mics_memory_open(&memory));
        ASSERT_OK(mics_saved_open(memory, place.dir, NULL, &saved));
        capture_begin(&seen);
        mics_memory_fail_after(memory, n);
        status = mics_saved_export(saved, scratch_path(&out, "out"), NULL);
        mics_memory_fail_after(memory, 0);
        capture_end();
        mics_saved_close(saved);
        assert_int_equal(mics_memory_close(memory), 0);
        assert_true(status == MICS_OK || status == MICS_ERR_MEMORY);
        assert_int_equal(access(scratch_path(&out, "out"), F_OK), status == MICS_OK ? 0 : -1);
        scratch_remove(&out);
    }
    scratch_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),        cmocka_unit_test(test_rounded),
        cmocka_unit_test(test_tensors),          cmocka_unit_test(test_stacked_bits),
        cmocka_unit_test(test_stacked_tensors),  cmocka_unit_test(test_files),
        cmocka_unit_test(test_allocations),      cmocka_unit_test(test_qwen2_tokenizers),
        cmocka_unit_test(test_tokenizer_config), cmocka_unit_test(test_bad_tokenizer_config),
        cmocka_unit_test(test_kept_names),       cmocka_unit_test(test_switches),
        cmocka_unit_test(test_too_large),        cmocka_unit_test(test_tokenizer_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
