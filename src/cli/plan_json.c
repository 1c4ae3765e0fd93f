// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics plan --json prints.
#include "base/text.h"
#include "plan.h"
#include <stdio.h>

static void print_real(const char *name, double value, const char *end)
{
    printf("\"%s\": %.9g%s", name, value, end);
}

static void print_ms(const char *name, double us, const char *end)
{
    print_real(name, us * 1e-3, end);
}

static void print_memory(const mics_plan_entry *entry)
{
    printf("\"memory_bytes\": %zu, \"memory\": {", entry->memory.total);
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++) {
        if (tag != MICS_MEM_HOST)
            printf("\"%s\": %zu, ", mics_memory_tag_text((mics_memory_tag)tag),
                   entry->memory.bytes[tag]);
    }
    printf("\"reserve\": %.0f}, \"spare_bytes\": %.0f, ", entry->reserve_bytes, entry->spare_bytes);
}

static void print_times(const mics_plan_entry *entry)
{
    print_ms("step_ms", entry->step_us, ", ");
    print_ms("compute_ms", entry->compute_us, ", ");
    print_ms("update_ms", entry->update_us, ", ");
    print_ms("exposed_comm_ms", entry->exposed_us, ", ");
    print_ms("exposed_param_sync_ms", entry->exposed_param_sync_us, ", ");
    print_ms("exposed_gather_ms", entry->exposed_gather_us, ", ");
    print_ms("exposed_reduce_ms", entry->exposed_reduce_us, ", ");
    print_ms("exposed_second_hop_ms", entry->exposed_second_hop_us, ", ");
    if (entry->choice.experts > 1)
        print_ms("exposed_all_to_all_ms", entry->exposed_all_to_all_us, ", ");
    print_ms("exposed_other_ms", entry->exposed_other_us, ", ");
    print_ms("overhead_ms", entry->overhead_us, ", ");
}

void cli_plan_entry_json(const mics_plan *plan, const mics_plan_entry *entry)
{
    printf("{");
    cli_plan_choice_json(entry);
    printf(", \"fits\": %s, ", entry->fits ? "true" : "false");
    print_memory(entry);
    print_times(entry);
    print_real("tflops_per_gpu", entry->tflops_per_gpu, ", ");
    print_real("hardware_tflops_per_gpu", entry->hardware_tflops_per_gpu, ", ");
    print_real("mfu", entry->mfu, ", ");
    print_real("tokens_per_s", entry->tokens_per_s, ", ");
    if (plan->cluster.usd_per_node_hour > 0)
        print_real("usd_per_gtoken", entry->usd_per_gtoken, ", ");
    else
        printf("\"usd_per_gtoken\": null, ");
    printf("\"sent_intra_bytes\": %lld, \"sent_inter_bytes\": %lld, \"why\": ",
           (long long)entry->sent.intra, (long long)entry->sent.inter);
    mics_text_write_quoted(stdout, entry->why);
    printf("}");
}

static void print_head(const mics_plan *plan, const mics_plan_found *found)
{
    const mics_plan_request request = mics_plan_request_get(plan, 1);
    const int32_t ranks = mics_planner_ranks(found->planner);
    const int32_t nodes = ranks / mics_cluster_ranks_per_node(&plan->cluster);
    printf("{\n  \"model\": {\"config\": ");
    mics_text_write_quoted(stdout, plan->run->model_config);
    printf(", \"parameters\": %lld, \"sequence_length\": %lld, \"precision\": \"%s\", \"math\": "
           "\"%s\", \"trainable\": %s",
           (long long)mics_model_param_count(plan->model), (long long)plan->length,
           mics_precision_text(request.precision), mics_math_text(request.math),
           plan->by_shapes ? "false" : "true");
    if (plan->attention != NULL)
        printf(", \"attention\": \"%s\"", plan->attention);
    else
        printf(", \"attention\": null");
    printf("},\n  \"cluster\": {\"name\": ");
    mics_text_write_quoted(stdout, plan->cluster.name);
    printf(", \"nodes\": %d, \"ranks\": %d, \"memory_bytes\": %.0f, \"left_free_bytes\": %.0f, "
           "\"usd_per_node_hour\": ",
           (int)nodes, (int)ranks, mics_planner_memory_bytes(found->planner), plan->reserve_bytes);
    if (plan->cluster.usd_per_node_hour > 0)
        printf("%.9g},\n", plan->cluster.usd_per_node_hour);
    else
        printf("null},\n");
    printf("  \"global_batch\": %lld,\n  \"choices\": {\"all\": %lld, \"fit\": %lld, "
           "\"simulated\": %lld},\n",
           (long long)mics_plan_request_get(plan, nodes).global_batch,
           (long long)found->result->space, (long long)found->result->fitting,
           (long long)found->result->simulated);
}

static void print_answer(const mics_plan *plan, const mics_plan_found *found,
                         const mics_plan_goal *goal)
{
    if (found->uneven) {
        printf("null");
        return;
    }
    mics_plan_offer offer =
        mics_plan_offer_get(plan, plan->nodes, &found->result->entries[0], goal);
    const mics_plan_entry *faster = mics_plan_faster_baseline(found);
    if (faster != NULL)
        snprintf(offer.faster, sizeof offer.faster, "%s", faster->name);
    cli_plan_offer_json(&offer);
}

static void print_baseline(const mics_plan *plan, const mics_plan_found *found, int baseline)
{
    const bool none =
        found->baselines[baseline].choice.micro_batch == 0; // no cut with given degrees
    if (none || (found->uneven && baseline != MICS_PLAN_MEGATRON))
        printf("null");
    else
        cli_plan_entry_json(plan, &found->baselines[baseline]);
}

void cli_plan_json(const mics_plan *plan, const mics_plan_found *found, const mics_plan_goal *goal)
{
    print_head(plan, found);
    printf("  \"answer\": ");
    print_answer(plan, found, goal);
    printf(",\n  \"plans\": [");
    for (int32_t i = 0; i < found->result->count; i++) {
        printf("%s\n    ", i > 0 ? "," : "");
        cli_plan_entry_json(plan, &found->result->entries[i]);
    }
    printf("\n  ],\n  \"baselines\": {");
    for (int b = 0; b < MICS_PLAN_BASELINES; b++) {
        printf("%s\n    \"%s\": ", b > 0 ? "," : "",
               mics_plan_baseline_text((mics_plan_baseline)b));
        print_baseline(plan, found, b);
    }
    const mics_plan_entry *faster = mics_plan_faster_baseline(found);
    printf("\n  },\n  \"faster_baseline\": ");
    if (faster != NULL)
        printf("\"%s\"", faster->name);
    else
        printf("null");
    printf(",\n  \"run_file\": ");
    if (found->has_file)
        cli_plan_entry_json(plan, &found->file);
    else
        printf("null");
    printf(",\n  \"min_replicas_2\": ");
    if (found->has_twice)
        cli_plan_entry_json(plan, &found->twice);
    else
        printf("null");
    printf(",\n  \"faster_but_too_large\": ");
    if (found->result->has_faster)
        cli_plan_entry_json(plan, &found->result->faster);
    else
        printf("null");
    printf("\n}\n");
}
