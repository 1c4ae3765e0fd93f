// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Models, clusters and planners for tests of planning.
#pragma once

#include "base/json.h"
#include "mics/log.h"
#include "model/from_config.h"
#include "plan/search/plan.h"
#include "test.h"
#include <stdio.h>
#include <string.h>

typedef struct fixture {
    mics_memory *memory;
    mics_model *model;
    mics_planner *planner;
    mics_plan_request request;
    int experts;  // of a layer; 0: none
    int sequence; // ranks that share each sequence; 0: 1
    int offload;  // units whose activations host memory may hold, at most
} fixture;

static inline mics_model *plan_model(mics_memory *memory, int layers, int heads, int width,
                                     int positions, int vocab)
{
    char text[256];
    mics_json *json = NULL;
    mics_model *model = NULL;
    const int length =
        snprintf(text, sizeof text,
                 "{\"model_type\": \"gpt2\", \"n_layer\": %d, \"n_head\": %d, \"n_embd\": %d, "
                 "\"n_positions\": %d, \"vocab_size\": %d}",
                 layers, heads, width, positions, vocab);
    ASSERT_OK(mics_json_parse(memory, "model", text, (size_t)length, &json));
    ASSERT_OK(mics_model_from_config(memory, json, false, &model));
    mics_json_close(json);
    return model;
}

// Of `experts` a layer, 2 a token.
static inline void take_mixture_of(fixture *f, int layers, int width, int experts)
{
    char text[512];
    mics_json *json = NULL;
    const int length = snprintf(
        text, sizeof text,
        "{\"model_type\": \"mixtral\", \"hidden_size\": %d, \"num_hidden_layers\": %d, "
        "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": %d, "
        "\"num_local_experts\": %d, \"num_experts_per_tok\": 2, \"vocab_size\": 300, "
        "\"max_position_embeddings\": %d, \"rms_norm_eps\": 1e-5}",
        width, layers, 3 * width / 2, experts, 64 * width);
    mics_model_close(f->model);
    ASSERT_OK(mics_json_parse(f->memory, "model", text, (size_t)length, &json));
    ASSERT_OK(mics_model_from_config(f->memory, json, false, &f->model));
    mics_json_close(json);
    f->request.model = f->model;
    f->experts = experts;
}

static inline void take_mixture(fixture *f, int experts)
{
    take_mixture_of(f, 3, 64, experts);
}

// A machine of `per_node` ranks whose links and kernels are slow enough for everything to matter.
static inline mics_cluster plan_cluster(mics_memory *memory, int per_node, const char *more)
{
    char text[1024];
    mics_json *json = NULL;
    mics_cluster cluster;
    const int length = snprintf(
        text, sizeof text,
        "{\"name\": \"small\", %s, \"usd_per_node_hour\": 3.6, "
        "\"accelerator\": {\"memory_gib\": 16, \"reserve_gib\": 1, \"tflops_fp32\": 2, "
        "\"tflops_bf16\": 8, \"memory_gb_per_s\": 100, \"launch_us\": 3, \"matmul_efficiency\": "
        "0.7},"
        "\"tiers\": {\"node\": {\"fan_out\": %d, \"gb_per_s\": 20, \"latency_us\": 4, "
        "\"slowdown\": 0.1},"
        "\"network\": {\"gbit_per_s\": 20, \"latency_us\": 20, \"slowdown\": 0.05}}}",
        *more != '\0' ? more : "\"pipelined\": true, \"rings\": 2", per_node);
    ASSERT_OK(mics_json_parse(memory, "cluster", text, (size_t)length, &json));
    ASSERT_OK(mics_cluster_parse(json, &cluster));
    mics_json_close(json);
    return cluster;
}

static inline void open_plans(fixture *f, int nodes, int per_node, int64_t batch)
{
    *f = (fixture){0};
    ASSERT_OK(mics_memory_open(&f->memory));
    f->model = plan_model(f->memory, 5, 4, 128, 64, 1000);
    f->request = (mics_plan_request){.model = f->model,
                                     .cluster = plan_cluster(f->memory, per_node, ""),
                                     .nodes = nodes,
                                     .length = 64,
                                     .global_batch = batch,
                                     .precision = MICS_PRECISION_MIXED,
                                     .math = MICS_MATH_BF16,
                                     .param_persistence_threshold = 1024};
}

static inline void close_plans(fixture *f)
{
    mics_planner_close(f->planner);
    mics_model_close(f->model);
    assert_int_equal(mics_memory_close(f->memory), 0);
}

static inline void drop_line(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    (void)ctx;
    (void)level;
    (void)rank;
    (void)line;
}

static inline void assert_close(double value, double expected, double share, const char *what)
{
    const double gap = value > expected ? value - expected : expected - value;
    if (!(gap <= share * (expected > 0 ? expected : -expected) + 1e-9))
        fail_msg("%s: %.12g, expected %.12g within %g", what, value, expected, share);
}
