// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A file in Prometheus' text format, for the textfile collector of its node exporter: the newest
// step's figures. It is a temporary file that is renamed, as the collector reads at any time.
//
// Source: prometheus.io/docs/instrumenting/exposition_formats.
#include "base/file.h"
#include "base/text.h"
#include "io/report/figures.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

// A label's value: of control characters the format knows the newline alone.
static void put_label(mics_text *text, const char *value)
{
    mics_text_printf(text, "\"");
    for (; *value != '\0'; value++) {
        const unsigned char c = (unsigned char)*value;
        if (c == '"' || c == '\\')
            mics_text_printf(text, "\\%c", c);
        else if (c == '\n')
            mics_text_printf(text, "\\n");
        else
            mics_text_printf(text, "%c", c < 0x20 ? '?' : c);
    }
    mics_text_printf(text, "\"");
}

static void put_sample(mics_text *text, const char *run, const char *name, const char *help,
                       const char *value)
{
    mics_text_printf(text, "# HELP mics_%s %s\n# TYPE mics_%s gauge\nmics_%s{run=", name, help,
                     name, name);
    put_label(text, run);
    mics_text_printf(text, "} %s\n", value);
}

static void put_figure(mics_text *text, const char *run, const metrics_figure *figure)
{
    char digits[32];
    const char *value = isnan(figure->value) ? "NaN" : figure->value > 0 ? "+Inf" : "-Inf";
    if (figure->counted) {
        snprintf(digits, sizeof digits, "%" PRId64, figure->count);
        value = digits;
    } else if (isfinite(figure->value)) {
        value = mics_text_real(figure->value, digits, sizeof digits);
    }
    put_sample(text, run, figure->name, figure->help, value);
}

static mics_status put_file(mics_memory *memory, const char *path, const char *data)
{
    mics_file_aside aside = {0};
    int fd = -1;
    mics_status status = MICS_OK;
    MICS_TRY(mics_file_begin_aside(memory, path, 0, &aside, &fd));
    status = mics_file_write_at(fd, aside.path, data, strlen(data), 0);
    status = mics_file_close_written(fd, aside.path, status);
    if (status == MICS_OK)
        status = mics_file_place(memory, &aside, path);
    mics_file_drop(memory, &aside);
    return status;
}

mics_status mics_prometheus_write(mics_memory *memory, const char *path, const char *run,
                                  const mics_metrics *metrics)
{
    mics_text text = {.memory = memory};
    metrics_figure figures[METRICS_FIGURES];
    char step[24];
    mics_status status = MICS_OK;
    metrics_figures(metrics, figures);
    snprintf(step, sizeof step, "%" PRId64, metrics->step);
    put_sample(&text, run, "step", "steps done", step);
    for (int32_t i = 0; i < METRICS_FIGURES; i++)
        put_figure(&text, run, &figures[i]);
    MICS_TRY_OUT(mics_text_status(&text));
    status = put_file(memory, path, text.bytes);
out:
    mics_text_fini(&text);
    return status;
}
