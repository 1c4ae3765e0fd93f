// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Writes cluster files, by the table that reads them.
#include "base/text.h"
#include "plan/cost/cluster.h"
#include "plan/cost/keys.h"

static void write_curve(mics_text *text, const cost_key *key, const mics_curve *curve)
{
    mics_text_printf(text, "[");
    for (int32_t i = 0; i < curve->count; i++)
        mics_text_printf(text, "%s[%.12g, %.12g]", i == 0 ? "" : ", ", curve->size[i],
                         curve->value[i] / key->unit);
    mics_text_printf(text, "]");
}

static bool is_given(const cost_key *key, const void *field)
{
    switch (key->type) {
    case COST_REAL:
        return *(const double *)field != 0.0;
    case COST_COUNT:
        return *(const int32_t *)field != 0;
    case COST_TEXT:
        return *(const char *)field != '\0';
    case COST_CURVE:
    case COST_RAMP:
        return ((const mics_curve *)field)->count != 0;
    case COST_SWITCH:
        break;
    }
    return true;
}

static void write_value(mics_text *text, const cost_key *key, const void *field)
{
    switch (key->type) {
    case COST_REAL:
        mics_text_printf(text, "%.12g", *(const double *)field / key->unit);
        break;
    case COST_COUNT:
        mics_text_printf(text, "%d", (int)*(const int32_t *)field);
        break;
    case COST_SWITCH:
        mics_text_printf(text, "%s", *(const bool *)field ? "true" : "false");
        break;
    case COST_TEXT:
        mics_text_quoted(text, field);
        break;
    case COST_CURVE:
    case COST_RAMP:
        write_curve(text, key, field);
        break;
    }
}

// The section's keys, one a line; returns how many.
static int32_t write_section(mics_text *text, cost_section section, const void *object,
                             const char *indent)
{
    int32_t count = 0, written = 0;
    const cost_key *keys = cost_keys(section, &count);
    for (int32_t i = 0; i < count; i++) {
        const void *field = (const char *)object + keys[i].at;
        if (keys[i].other || (!keys[i].keep && !is_given(&keys[i], field)))
            continue;
        mics_text_printf(text, "%s\n%s\"%s\": ", written++ == 0 ? "" : ",", indent, keys[i].name);
        write_value(text, &keys[i], field);
    }
    return written;
}

mics_status mics_cluster_text(mics_memory *memory, const mics_cluster *cluster, char **text_out)
{
    mics_cluster whole = *cluster;
    MICS_TRY(mics_cluster_finish(&whole));
    mics_text text = {.memory = memory};
    mics_text_printf(&text, "{");
    write_section(&text, COST_TOP, &whole, "  ");
    mics_text_printf(&text, ",\n  \"accelerator\": {");
    write_section(&text, COST_ACCELERATOR, &whole.accelerator, "    ");
    mics_text_printf(&text, "\n  },\n  \"tiers\": {");
    for (int32_t t = 0; t < whole.tier_count; t++) {
        mics_text_printf(&text, "%s\n    ", t == 0 ? "" : ",");
        mics_text_quoted(&text, whole.tiers[t].name);
        mics_text_printf(&text, ": {");
        write_section(&text, COST_TIER, &whole.tiers[t], "      ");
        mics_text_printf(&text, "\n    }");
    }
    mics_text_printf(&text, "\n  }\n}\n");
    mics_status status = mics_text_status(&text);
    if (status != MICS_OK) {
        mics_text_fini(&text);
        return status;
    }
    *text_out = text.bytes;
    return MICS_OK;
}
