// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The cluster file of mics bench: read, merged with what was measured, written whole.
#include "base/file.h"
#include "base/json.h"
#include "measure/internal.h"
#include "mics/log.h"
#include "plan/cost/cluster.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILE_BYTES = 1 << 20, PATH_BYTES = 4096 };

// A rank without others in its node sends nothing there; the tier must have a rate all the same.
static const double NO_TRAFFIC_BYTES_PER_S = 1e10;

// What a cluster file takes; below, the machine was busy with something else.
static const double MIN_MEMORY_SHARE = 1e-3;

// The folder that a path is in, and its name there.
static mics_status split(const char *path, char folder[PATH_BYTES], const char **name_out)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    const size_t bytes = slash == NULL ? 0 : (size_t)(slash - path);
    if (!mics_file_plain_name(name) || bytes >= PATH_BYTES)
        return mics_fail(MICS_ERR_INVALID, "--out %.80s: is no file's name", path);
    memcpy(folder, path, bytes);
    folder[bytes] = '\0';
    if (slash == path)
        snprintf(folder, PATH_BYTES, "/");
    else if (slash == NULL)
        snprintf(folder, PATH_BYTES, ".");
    *name_out = name;
    return MICS_OK;
}

void measure_file_begin(int32_t per_node, const char *path, mics_cluster *cluster_out)
{
    const char *slash = strrchr(path, '/');
    mics_cluster_init(cluster_out);
    snprintf(cluster_out->name, sizeof cluster_out->name, "%s", slash != NULL ? slash + 1 : path);
    char *dot = strrchr(cluster_out->name, '.');
    if (dot != NULL && dot != cluster_out->name)
        *dot = '\0';
    cluster_out->tier_count = 1;
    mics_tier *node = &cluster_out->tiers[0];
    strcpy(node->name, "node");
    node->fan_out = per_node;
    node->bytes_per_s = NO_TRAFFIC_BYTES_PER_S;
}

static mics_status check(const char *path, const mics_cluster *cluster, const measure_place *place)
{
    const bool gpu = place->gpu;
    const int32_t per_node = place->per_node, described = mics_cluster_ranks_per_node(cluster);
    const mics_accelerator *of = &cluster->accelerator;
    if (mics_accelerator_is_gpu(of) != gpu)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: describes %s%s%s, and these ranks compute on %s; give another --out "
                         "or --cluster, or --device %s",
                         path, gpu ? "CPUs" : "GPUs", of->name[0] != '\0' ? ", " : "", of->name,
                         gpu ? "GPUs" : "CPUs", gpu ? "cpu" : "cuda");
    if (cluster->node_tier + 1 == MICS_CLUSTER_TIERS)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: has %d tiers in its node, which leaves none for the network; give "
                         "another --out",
                         path, MICS_CLUSTER_TIERS);
    if (described == per_node)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: describes nodes of %d rank%s, and these have %d; give another --out or "
                     "--cluster, or --ranks and --nodes as there",
                     path, (int)described, described == 1 ? "" : "s", (int)per_node);
}

static mics_status read_cluster(mics_memory *memory, const char *path, mics_cluster *cluster)
{
    mics_json *json = NULL;
    mics_status status = mics_json_load(memory, path, MAX_FILE_BYTES, &json);
    if (status == MICS_OK)
        status = mics_cluster_parse(json, cluster);
    if (status != MICS_OK)
        mics_log_add("mend or remove it, or give another --out or --cluster");
    mics_json_close(json);
    return status;
}

// Begins as the machine that was named, under the file's own name.
static mics_status open_offer(mics_memory *memory, const measure_spec *spec,
                              const measure_place *place, mics_cluster *cluster)
{
    mics_cluster named;
    if (access(spec->offer, F_OK) == 0)
        MICS_TRY(read_cluster(memory, spec->offer, cluster));
    else
        MICS_TRY(mics_cluster_find(spec->offer, cluster));
    MICS_TRY(check(spec->offer, cluster, place));
    measure_file_begin(place->per_node, spec->out, &named);
    snprintf(cluster->note, sizeof cluster->note, "%s as %.60s, not measured",
             place->nodes > 1 ? "prices" : "network and prices", cluster->name);
    memcpy(cluster->name, named.name, sizeof named.name);
    return MICS_OK;
}

mics_status measure_file_open(mics_memory *memory, const measure_spec *spec,
                              const measure_place *place, bool *there_out,
                              mics_cluster *cluster_out)
{
    char folder[PATH_BYTES];
    const char *name = NULL, *path = spec->out;
    MICS_TRY(split(path, folder, &name));
    if (access(folder, W_OK | X_OK) != 0)
        return mics_fail(mics_status_of_errno(errno), "%s: %s; give an --out that can be written",
                         folder, strerror(errno));
    *there_out = access(path, F_OK) == 0;
    if (spec->offer != NULL)
        return open_offer(memory, spec, place, cluster_out);
    if (!*there_out) {
        measure_file_begin(place->per_node, path, cluster_out);
        return MICS_OK;
    }
    MICS_TRY(read_cluster(memory, path, cluster_out));
    return check(path, cluster_out, place);
}

// ---- merging ----

static void take_tier(const measure_tier *measured, mics_tier *tier)
{
    const mics_curve *ramp = &measured->ramp;
    tier->bytes_per_s = measured->link_bytes_per_s;
    tier->efficiency = 1;
    tier->rank_bytes_per_s = ramp->value[ramp->count - 1];
    tier->latency_us = measured->latency_us;
    tier->half_bytes = 0;
    tier->ramp = *ramp;
    tier->reduce_ramp = measured->reduce_ramp;
    tier->beside_us = measured->beside_us;
    tier->beside_us_per_byte = measured->beside_us_per_byte;
    tier->slowdown = fmin(measured->slowdown, 10);
    tier->core_us_per_byte = measured->core_us_per_byte;
}

// The tier just beyond the node; a new one where the file has none.
static mics_tier *inter_tier(mics_cluster *cluster)
{
    const int32_t at = cluster->node_tier + 1;
    if (at < cluster->tier_count)
        return &cluster->tiers[at];
    cluster->tier_count = at + 1;
    cluster->tiers[at] = (mics_tier){.efficiency = 1};
    strcpy(cluster->tiers[at].name, "network");
    return &cluster->tiers[at];
}

void measure_file_take_links(const measure_place *place, const measure_links *links,
                             mics_cluster *cluster)
{
    if (links->intra.ramp.count > 0)
        take_tier(&links->intra, &cluster->tiers[cluster->node_tier]);
    if (links->inter.ramp.count > 0)
        take_tier(&links->inter, inter_tier(cluster));
    if (links->reduce_bytes_per_s > 0)
        cluster->accelerator.reduce_bytes_per_s = links->reduce_bytes_per_s;
    cluster->cores = place->shared ? place->cores : 0;
    if (links->inter.ramp.count == 0 && cluster->node_tier + 1 < cluster->tier_count)
        return; // how collectives cross the network stays as it is
    cluster->rings = 1;
    cluster->pipelined = place->gpu && strcmp(place->transport, "nccl") == 0;
}

// Those are what training keeps, and say what it takes.
static void forget_ratings(mics_accelerator *chip)
{
    chip->watts = 0;
    chip->matmul_kept = chip->fp8_kept = chip->attention_kept = chip->memory_kept = 0;
    chip->step_low = chip->step_high = 0;
    chip->kernels[0] = chip->attention[0] = '\0';
    memset(chip->attention_kernels, 0, sizeof chip->attention_kernels);
}

void measure_file_take_compute(const measure_place *place, const measure_compute *compute,
                               mics_cluster *cluster)
{
    mics_accelerator *to = &cluster->accelerator;
    const double stream = fmax(compute->stream_bytes_per_s, compute->elementwise_bytes_per_s);
    forget_ratings(to);
    snprintf(to->name, sizeof to->name, "%s", compute->cpu_name);
    snprintf(to->device, sizeof to->device, place->gpu ? "cuda" : "cpu");
    to->memory_bytes = compute->memory_bytes;
    to->reserve_bytes = -1;
    for (int math = 0; math < MICS_MATH_FP8; math++)
        to->flops_per_s[math] = compute->flops_per_s;
    if (compute->bf16_flops_per_s > 0)
        to->flops_per_s[MICS_MATH_BF16] = compute->bf16_flops_per_s;
    for (int math = 0; math < MICS_MATHS; math++) {
        if (place->gpu)
            to->flops_per_s[math] = compute->gpu_flops_per_s[math];
    }
    if (compute->host_bytes_per_s > 0)
        cluster->host_bytes_per_s = compute->host_bytes_per_s;
    to->memory_bytes_per_s = stream;
    to->memory_efficiency = fmax(compute->elementwise_bytes_per_s / stream, MIN_MEMORY_SHARE);
    to->update_bytes_per_s = compute->update_bytes_per_s;
    to->launch_us = compute->launch_us;
    to->matmul_efficiency = compute->matmul_efficiency;
    to->attention_efficiency = compute->attention_efficiency;
    cluster->step_overhead_us = compute->step_overhead_us;
    cluster->cores = place->shared ? place->cores : 0;
}

// The note is a list "links: ...; computation: ...", perhaps behind somebody's own words.
void measure_file_note(mics_cluster *cluster, const char *section, const char *words)
{
    char title[32];
    snprintf(title, sizeof title, "%s: ", section);
    char *begin = strstr(cluster->note, title);
    if (begin != NULL) {
        char *end = strstr(begin, "; ");
        if (end != NULL)
            memmove(begin, end + 2, strlen(end + 2) + 1);
        else
            *begin = '\0';
    }
    size_t used = strlen(cluster->note);
    while (used > 0 && strchr("; ", cluster->note[used - 1]) != NULL)
        cluster->note[--used] = '\0';
    // Somebody's words give way where both do not fit: what was measured must be said.
    const size_t needed = strlen(title) + strlen(words) + 3, holds = sizeof cluster->note;
    const size_t stays = used + needed <= holds ? used : (needed < holds ? holds - needed : 0);
    snprintf(cluster->note + stays, sizeof cluster->note - stays, "%s%s%s", stays > 0 ? "; " : "",
             title, words);
}

mics_status measure_file_write(mics_memory *memory, const char *path, const mics_cluster *cluster)
{
    char folder[PATH_BYTES], *text = NULL;
    const char *name = NULL;
    MICS_TRY(split(path, folder, &name));
    MICS_TRY(mics_cluster_text(memory, cluster, &text));
    mics_file_sweep_dead_of(path);
    mics_status status = mics_file_replace(memory, folder, name, text, strlen(text));
    if (status == MICS_OK)
        status = mics_file_sync_dir(folder);
    mics_free(memory, text);
    return status;
}
