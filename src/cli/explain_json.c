// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics explain --json prints.
#include "base/text.h"
#include "explain.h"
#include <stdio.h>
#include <string.h>

static void print_keys(const mics_run *run)
{
    printf("  \"keys\": [");
    for (int32_t i = 0; i < mics_run_row_count(run); i++) {
        mics_run_row row = mics_run_row_at(run, i);
        printf("%s\n    {\"key\": ", i > 0 ? "," : "");
        mics_text_write_quoted(stdout, row.key);
        // As text: long values are cut, and then no JSON.
        printf(", \"value\": ");
        mics_text_write_quoted(stdout, row.value);
        printf(", \"origin\": ");
        mics_text_write_quoted(stdout, row.origin);
        printf("}");
    }
    printf("\n  ],\n");
}

static void print_bytes(const char *name, mics_bytes bytes, const char *end)
{
    printf("\"%s\": {\"intra\": %lld, \"inter\": %lld}%s", name, (long long)bytes.intra,
           (long long)bytes.inter, end);
}

static void print_ledgers(const mics_job *job)
{
    const mics_schedule *schedule = mics_job_schedule(job);
    const mics_memory_ledger *ledger = &schedule->ledger;
    printf("  \"memory_bytes\": {");
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++) {
        if (tag != MICS_MEM_HOST)
            printf("\"%s\": %zu, ", mics_memory_tag_text((mics_memory_tag)tag), ledger->bytes[tag]);
    }
    printf("\"total\": %zu},\n  \"host_copy_bytes\": %zu,\n  \"save_copy_bytes\": %zu,\n  "
           "\"node_memory_bytes\": %zu,\n  \"sent_bytes\": {",
           ledger->total, mics_job_facts_get(job).host_copy_bytes,
           mics_job_facts_get(job).save_copy_bytes, mics_job_facts_get(job).node_memory_bytes);
    for (int i = 0; i < MICS_STEP_KINDS * MICS_STAGES; i++) {
        const mics_step_kind kind = (mics_step_kind)(i / MICS_STAGES);
        const mics_step_stage stage = (mics_step_stage)(i % MICS_STAGES);
        const mics_bytes bytes = mics_schedule_kind_bytes(schedule, MICS_PHASE_TRAIN, kind, stage);
        if (bytes.intra > 0 || bytes.inter > 0)
            print_bytes(mics_step_text(kind, stage), bytes, ", ");
    }
    print_bytes("all", mics_schedule_all_bytes(schedule, MICS_PHASE_TRAIN), "},\n");
}

static void print_operations(const cli_operations *operations)
{
    printf("  \"collectives\": [");
    for (int32_t i = 0; i < operations->count; i++) {
        const cli_operation *row = &operations->rows[i];
        printf("%s\n    {\"kind\": \"%s\", \"algorithm\": \"%s\", \"dtype\": \"%s\", \"group\": "
               "\"%s\", "
               "\"units\": %d, \"min_elems\": %lld, \"max_elems\": %lld}",
               i > 0 ? "," : "", mics_step_text(row->kind, MICS_STAGE_WHOLE), row->algorithm,
               mics_comm_dtype_text(row->dtype), mics_group_text(row->axis, MICS_SCOPE_WHOLE),
               (int)row->units, (long long)row->min_elems, (long long)row->max_elems);
    }
    printf("\n  ],\n  \"whole\": {\"units\": %d, \"elems\": %lld},\n", (int)operations->whole_units,
           (long long)operations->whole_elems);
}

// A member of a collective's step.
static void print_algorithm(const mics_step *step)
{
    if (mics_step_is_comm(step))
        printf("\"algorithm\": \"%s\", ", cli_step_algorithm(step));
}

static void print_steps(const mics_schedule *schedule)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    printf("  \"steps\": [");
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        int32_t count = 0;
        (void)mics_schedule_members(schedule, step, &count);
        printf("%s\n    {\"stream\": \"%s\", \"kind\": \"%s\", \"unit\": %d, \"units\": %d, "
               "\"micro_step\": %d, "
               "\"block_bytes\": %zu, \"dtype\": \"%s\", ",
               i > 0 ? "," : "", mics_stream_text(step->stream),
               mics_step_text(step->kind, step->stage), (int)step->unit, (int)count,
               (int)step->micro_step, step->block_bytes, mics_comm_dtype_text(step->dtype.sent));
        print_algorithm(step);
        printf("\"flops\": %.0f, \"wait\": [%d, %d, %d]}", step->flops,
               (int)step->wait[MICS_STREAM_COMPUTE], (int)step->wait[MICS_STREAM_INTRA],
               (int)step->wait[MICS_STREAM_INTER]);
    }
    printf("\n  ]\n");
}

static void print_device(const mics_job *job)
{
    const mics_job_facts facts = mics_job_facts_get(job);
    printf("  \"device\": {\"name\": \"%s\", \"precision\": \"%s\", \"why\": ", facts.device,
           mics_run_precision_text(mics_job_run(job)->precision));
    mics_text_write_quoted(stdout, facts.device_why);
    printf("},\n");
}

static void print_replicas(const mics_job *job)
{
    const mics_replicas replicas = mics_mesh_replicas(&mics_job_schedule(job)->spec.mesh);
    printf("  \"replicas\": {\"params\": %d, \"grads\": %d, \"optimizer\": %d, "
           "\"compares_params\": %s, \"compares_optimizer\": %s, \"every\": %lld},\n",
           (int)replicas.params, (int)replicas.grads, (int)replicas.optimizer,
           replicas.compares_params ? "true" : "false",
           replicas.compares_optimizer ? "true" : "false",
           (long long)mics_job_run(job)->check_replicas_every);
}

// `why` and what follows only of what "auto" chose.
static void print_layered(const mics_job *job)
{
    const mics_layered_choice layered = mics_job_facts_get(job).layered;
    const mics_schedule *schedule = mics_job_schedule(job);
    printf("  \"layered\": {\"micro_steps\": %d, \"of\": %d",
           (int)schedule->spec.layered_micro_steps, (int)schedule->spec.micro_steps);
    if (layered.automatic) {
        printf(", \"why\": ");
        mics_text_write_quoted(stdout, layered.why);
        printf(", \"sent_inter_bytes\": %lld, \"sent_inter_bytes_of_one\": %lld, "
               "\"more_memory_bytes\": %zu, \"each_bytes\": %zu, \"state_bytes\": %zu",
               (long long)layered.inter_bytes, (long long)layered.inter_bytes_of_one,
               layered.more_bytes, layered.each_bytes, layered.state_bytes);
    }
    printf("},\n");
}

mics_status cli_explain_json(mics_memory *memory, const mics_job *job)
{
    cli_operations operations;
    MICS_TRY(cli_operations_list(memory, mics_job_schedule(job), &operations));
    const mics_mesh *mesh = &mics_job_schedule(job)->spec.mesh;
    char name[64];
    printf("{\n");
    print_keys(mics_job_run(job));
    printf("  \"mesh\": {\"ranks\": %d, \"ranks_per_node\": %d, \"params\": %d, \"grads\": %d, "
           "\"optimizer\": %d, \"name\": \"%s\"},\n",
           (int)mesh->ranks, (int)mesh->ranks_per_node, (int)mesh->sharding.params,
           (int)mesh->sharding.grads, (int)mesh->sharding.optimizer,
           mics_mesh_name(mesh, name, sizeof name));
    print_replicas(job);
    print_device(job);
    printf("  \"parameters\": %lld,\n", (long long)mics_model_param_count(mics_job_model(job)));
    print_ledgers(job);
    print_operations(&operations);
    print_layered(job);
    print_steps(mics_job_schedule(job));
    printf("}\n");
    return MICS_OK;
}
