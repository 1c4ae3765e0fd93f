// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "mics/core/device.h"
#include "mics/core/ledger.h"
#include "run/job.h"

static void put_words(mics_text *text, const char *name, const char *value)
{
    mics_text_printf(text, "  \"%s\": ", name);
    mics_text_quoted(text, value);
    mics_text_printf(text, ",\n");
}

static void put_run(mics_text *text, const mics_job *job, const mics_job_facts *facts)
{
    char name[64];
    put_words(text, "model", job->model->architecture);
    put_words(text, "sharding", mics_mesh_name(&job->schedule->spec.mesh, name, sizeof name));
    mics_text_printf(text, "  \"parameters\": %lld,\n  \"ranks\": %d,\n  \"nodes\": %d,\n",
                     (long long)mics_model_param_count(job->model), (int)facts->ranks,
                     (int)facts->nodes);
    put_words(text, "device", facts->accelerator ? facts->device_name : facts->device);
    put_words(text, "numbers", facts->numbers);
}

static void put_machine(mics_text *text)
{
    mics_machine machine;
    if (mics_machine_read(&machine) != MICS_OK)
        return;
    put_words(text, "cpu", machine.cpu_name);
    mics_text_printf(text, "  \"cores\": %d,\n  \"memory_total_bytes\": %zu,\n", (int)machine.cores,
                     machine.memory_total_bytes);
}

// By the names of metrics.jsonl, which has what they came to.
static void put_predicted(mics_text *text, const mics_schedule *schedule)
{
    const mics_bytes sent = mics_schedule_all_bytes(schedule, MICS_PHASE_TRAIN);
    mics_text_printf(text,
                     "  \"predicted\": {\"memory_peak_bytes\": %zu, \"sent_intra_bytes\": %lld, "
                     "\"sent_inter_bytes\": %lld}\n}\n",
                     schedule->ledger.total, (long long)sent.intra, (long long)sent.inter);
}

mics_status run_job_write_about(const mics_job *job)
{
    const mics_job_facts facts = mics_job_facts_get(job);
    mics_text text = {.memory = job->memory};
    mics_text_printf(&text, "{\n  \"program\": \"mics %s\",\n", MICS_VERSION);
    put_run(&text, job, &facts);
    put_machine(&text);
    put_predicted(&text, job->schedule);
    mics_status status = mics_text_status(&text);
    if (status == MICS_OK)
        status = mics_file_replace(job->memory, job->run->out, "about.json", text.bytes, text.used);
    mics_text_fini(&text);
    return status;
}
