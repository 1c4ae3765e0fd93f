// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The resolved run (run.json, and what checkpoints hold) is a run file: whatever the first file
// said, its text parses, loads again, and resolves to the same.
#include "config/run_file.h"
#include "run/job.h"
#include "run/run_json.h"

static char *text_of(const char *text)
{
    char *resolved = NULL;
    mics_run *run = load_good(text);
    ASSERT_OK(mics_run_resolve_device(run, NULL, NULL));
    ASSERT_OK(mics_run_resolve(run, 4, 2));
    ASSERT_OK(run_run_text(memory, run, &resolved));
    mics_run_close(run);
    return resolved;
}

static bool same_dtypes(mics_comm_dtypes a, mics_comm_dtypes b)
{
    return a.intra == b.intra && a.inter == b.inter;
}

// What a run is, beside its text.
static void check_same(const char *text, const char *again)
{
    mics_run *runs[2] = {load_good(text), load_good(again)};
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(mics_run_resolve_device(runs[i], NULL, NULL));
        ASSERT_OK(mics_run_resolve(runs[i], 4, 2));
    }
    const mics_run *a = runs[0], *b = runs[1];
    if (a->prefetch != b->prefetch || a->collectives != b->collectives || a->device != b->device ||
        a->precision != b->precision ||
        memcmp(&a->loss_scale, &b->loss_scale, sizeof a->loss_scale) != 0 ||
        !same_dtypes(a->params_dtype, b->params_dtype) ||
        !same_dtypes(a->grads_dtype, b->grads_dtype) ||
        !same_dtypes(a->boundary_dtype, b->boundary_dtype) ||
        a->coalesce_below != b->coalesce_below ||
        a->param_persistence_threshold != b->param_persistence_threshold ||
        a->global_batch != b->global_batch ||
        memcmp(&a->sharding, &b->sharding, sizeof a->sharding) != 0)
        fail_msg("%s became another run: %s", text, again);
    mics_run_close(runs[0]);
    mics_run_close(runs[1]);
}

static void check_again(const char *text)
{
    char *once = text_of(text);
    check_same(text, once);
    mics_json *json = NULL;
    if (mics_json_parse(memory, "resolved", once, strlen(once), &json) != MICS_OK)
        fail_msg("%s became %s: %s", text, once, seen.line);
    mics_json_close(json);
    char *twice = text_of(once);
    assert_string_equal(twice, once);
    mics_free(memory, once);
    mics_free(memory, twice);
}

static void test_resolved_runs_load_again(void **state)
{
    (void)state;
    static const char *const members[] = {
        "\"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": false}",
        "\"bf16\": {\"enabled\": false}",
        "\"fp16\": {\"enabled\": true, \"loss_scale\": 0, \"initial_scale_power\": 8}",
        "\"flops_profiler\": {\"enabled\": false}",
        "\"flops_profiler\": {\"enabled\": false, \"profile_step\": 1, \"module_depth\": -1, "
        "\"top_modules\": 1, \"detailed\": true, \"output_file\": \"a \\\"file\\\" \\u0007\", "
        "\"more\": \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
        "\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 2, \"offload_optimizer\": "
        "{\"device\": \"none\", \"pin_memory\": true}, \"offload_param\": {\"device\": \"none\"}}",
        "\"activation_checkpointing\": {\"partition_activations\": false, \"cpu_checkpointing\": "
        "false, \"contiguous_memory_optimization\": false, \"number_checkpoints\": null, "
        "\"synchronize_checkpoint_boundary\": false, \"profile\": false}",
        "\"wandb\": {}, \"aio\": [], \"timers\": null, \"amp\": [false, {\"a\": 0}]",
        "\"steps_per_print\": 10, \"zero_optimization\": {\"overlap_comm\": false}",
        "\"steps_per_print\": \"auto\", \"sharding\": \"auto\"",
        "\"sharding\": {\"params\": 2, \"grads\": 4}",
        "\"sharded_data_parallel_degree\": 2, \"sdp_hierarchical_allgather\": true",
        "\"sharded_data_parallel_degree\": 2, \"sdp_hierarchical_allgather\": false",
        "\"zero_optimization\": {\"stage\": 3, \"mics_hierarchical_params_gather\": true}",
        "\"communication_data_type\": \"bfp16\"",
        "\"zero_optimization\": {\"overlap_comm\": true}",
        "\"zero_optimization\": {\"stage\": 3, \"overlap_comm\": false}",
        "\"zero_optimization\": {\"stage\": 2, \"overlap_comm\": true}",
        "\"zero_optimization\": {\"stage3_param_persistence_threshold\": 1e5}",
        "\"zero_optimization\": {\"stage3_param_persistence_threshold\": \"auto\"}",
        "\"sdp_param_persistence_threshold\": 0",
        "\"sharded_data_parallel_degree\": \"auto\"",
        "\"hybrid_shard_degree\": 4",
        "\"fp16\": {\"enabled\": \"auto\", \"loss_scale\": 0}, \"bf16\": {\"enabled\": false}",
        "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_max_lr\": \"auto\", "
        "\"warmup_min_lr\": \"auto\", \"total_num_steps\": \"auto\"}}",
        "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.9, 0.95]}}",
        "\"gradient_accumulation_steps\": \"auto\"",
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        char text[1024];
        snprintf(text, sizeof text, "{%s, \"train_micro_batch_size_per_gpu\": 4, %s}", RUN_BASE,
                 members[i]);
        if (strstr(members[i], "gradient_accumulation_steps") != NULL)
            snprintf(text, sizeof text, "{%s, \"train_batch_size\": 16, %s}", RUN_BASE, members[i]);
        check_again(text);
    }
    check_again(RUN_PLAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_resolved_runs_load_again, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
