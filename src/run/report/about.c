// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "about.h"
#include "base/file.h"
#include "mics/core/device.h"
#include "run/job.h"
#include <unistd.h>

static void put_words(mics_text *text, const char *name, const char *value)
{
    mics_text_printf(text, "  \"%s\": ", name);
    mics_text_quoted(text, value);
    mics_text_printf(text, ",\n");
}

static void put_count(mics_text *text, const char *name, int64_t value)
{
    mics_text_printf(text, "  \"%s\": %lld,\n", name, (long long)value);
}

static void put_run(mics_text *text, const mics_job *job, const mics_job_facts *facts)
{
    char name[64];
    put_words(text, "program", "mics " MICS_VERSION);
    put_words(text, "model", job->model->architecture);
    put_count(text, "parameters", mics_model_param_count(job->model));
    put_words(text, "sharding", mics_mesh_name(&job->schedule->spec.mesh, name, sizeof name));
    put_count(text, "ranks", facts->ranks);
    put_count(text, "nodes", facts->nodes);
    put_count(text, "threads", facts->threads);
    put_words(text, "device", facts->device);
    put_words(text, "numbers", facts->numbers);
    if (facts->accelerator)
        put_words(text, "device_name", facts->device_name);
}

static void put_machine(mics_text *text)
{
    char host[256] = "";
    mics_machine machine = {.cores = 0};
    (void)gethostname(host, sizeof host - 1);
    put_words(text, "host", host);
    if (mics_machine_read(&machine) != MICS_OK)
        return;
    put_words(text, "cpu", machine.cpu_name);
    put_count(text, "cores", machine.cores);
    put_count(text, "memory_total_bytes", (int64_t)machine.memory_total_bytes);
}

// By the names of metrics.jsonl, which has what they came to.
static void put_predicted(mics_text *text, const mics_schedule *schedule)
{
    const mics_bytes sent = mics_schedule_all_bytes(schedule, MICS_PHASE_TRAIN);
    mics_text_printf(text,
                     "  \"predicted\": {\"memory_peak_bytes\": %zu, \"sent_intra_bytes\": %lld, "
                     "\"sent_inter_bytes\": %lld}\n",
                     schedule->ledger.total, (long long)sent.intra, (long long)sent.inter);
}

mics_status run_about_write(const mics_job *job)
{
    const mics_job_facts facts = mics_job_facts_get(job);
    mics_text text = {.memory = job->memory};
    mics_text_printf(&text, "{\n");
    put_run(&text, job, &facts);
    put_machine(&text);
    put_predicted(&text, job->schedule);
    mics_text_printf(&text, "}\n");
    mics_status status = mics_text_status(&text);
    if (status == MICS_OK)
        status = mics_file_replace(job->memory, job->run->out, "about.json", text.bytes, text.used);
    mics_text_fini(&text);
    return status;
}
