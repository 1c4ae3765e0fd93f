// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Clusters by name or file.
#include "base/json.h"
#include "base/text.h"
#include "mics/log.h"
#include "plan/offers/planning.h"
#include <string.h>
#include <unistd.h>

enum { CONFIG_MAX_BYTES = 1 << 20 };

static bool is_file(const char *name)
{
    return strchr(name, '/') != NULL || access(name, F_OK) == 0 || mics_text_ends(name, ".json");
}

static mics_status load_cluster(mics_memory *memory, const char *path, mics_cluster *cluster_out)
{
    mics_json *json = NULL;
    MICS_TRY(mics_json_load(memory, path, CONFIG_MAX_BYTES, &json));
    const mics_status status = mics_cluster_parse(json, cluster_out);
    mics_json_close(json);
    return status;
}

mics_status mics_cluster_open(mics_memory *memory, const char *text, mics_cluster *cluster_out,
                              int32_t *nodes_out)
{
    char name[4096];
    int32_t nodes = 0;
    MICS_TRY(mics_cluster_split(text, name, sizeof name, &nodes));
    if (is_file(name))
        MICS_TRY(load_cluster(memory, name, cluster_out));
    else if (strchr(name, ':') != NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "cluster \"%.80s\": behind the colon stands a number of nodes, as in "
                         "p4d.24xlarge:8",
                         text);
    else
        MICS_TRY(mics_cluster_find(name, cluster_out));
    *nodes_out = nodes > 0 ? nodes : cluster_out->nodes;
    return MICS_OK;
}
