// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What Linux says of this machine and what it leaves to this process.
//
// Control groups limit from the process's own group up to the root of the mount, and every level
// counts. In a container the group's path may not be visible below the mount; the levels that are
// not are passed over, and the mount's root is the container's own group.
//
// Source: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
#include "device/machine.h"
#include "mics/log.h"
#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, LINE_BYTES = 8192 };

// Extensions that our kernels or the matrix library choose by.
static const char *const extensions[] = {"avx2",     "fma",         "avx512f",     "avx512bw",
                                         "avx512vl", "avx512_vnni", "avx512_bf16", "amx_bf16",
                                         "asimd",    "sve"};

// A control group hierarchy: where it is mounted and what its files are called.
typedef struct hierarchy {
    const char *memory_mount, *cpu_mount;
    const char *limit, *usage, *inactive;
} hierarchy;

static const hierarchy v2 = {"/sys/fs/cgroup", "/sys/fs/cgroup", "memory.max", "memory.current",
                             "inactive_file"};
static const hierarchy v1 = {"/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu", "memory.limit_in_bytes",
                             "memory.usage_in_bytes", "total_inactive_file"};

// ---- files ----

static FILE *open_at(const char *root, const char *folder, const char *group, const char *name)
{
    char path[PATH_BYTES];
    int bytes = snprintf(path, sizeof path, "%s%s%s/%s", root, folder, group, name);
    return bytes > 0 && (size_t)bytes < sizeof path ? fopen(path, "re") : NULL;
}

// Reads up to `count` unsigned numbers with blanks between; returns how many stand there. "max" and
// "-1" are none.
static int parse_numbers(const char *text, uint64_t *numbers_out, int count)
{
    int found = 0;
    for (; found < count; found++) {
        char *end = NULL;
        text += strspn(text, " \t");
        if (!isdigit((unsigned char)*text))
            break;
        errno = 0;
        numbers_out[found] = strtoull(text, &end, 10);
        if (errno != 0)
            break;
        text = end;
    }
    return found;
}

// The number of the line that starts with `name`, as in "MemAvailable:   123 kB".
static bool find_number(FILE *file, const char *name, uint64_t *number_out)
{
    char line[LINE_BYTES];
    size_t bytes = strlen(name);
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, bytes) == 0 && line[bytes] != '\0' &&
            strchr(": \t", line[bytes]) != NULL)
            return parse_numbers(line + bytes + 1, number_out, 1) == 1;
    }
    return false;
}

// Reads the numbers of a control group's file; false unless there are `count`.
static bool read_numbers(const char *root, const char *folder, const char *group, const char *name,
                         uint64_t *numbers_out, int count)
{
    char line[LINE_BYTES];
    FILE *file = open_at(root, folder, group, name);
    if (file == NULL)
        return false;
    bool good =
        fgets(line, sizeof line, file) != NULL && parse_numbers(line, numbers_out, count) == count;
    fclose(file);
    return good;
}

// ---- memory ----

static bool read_meminfo(const char *root, const char *name, size_t *bytes_out)
{
    uint64_t kib = 0;
    FILE *file = open_at(root, "/proc", "", "meminfo");
    bool good = find_number(file, name, &kib) && kib <= SIZE_MAX / 1024;
    if (file != NULL)
        fclose(file);
    if (good)
        *bytes_out = (size_t)kib * 1024;
    return good;
}

static void limit_memory(const char *root, const hierarchy *kind, const char *group,
                         mics_machine *machine)
{
    uint64_t limit = 0, usage = 0, inactive = 0;
    if (!read_numbers(root, kind->memory_mount, group, kind->limit, &limit, 1))
        return;
    if (!read_numbers(root, kind->memory_mount, group, kind->usage, &usage, 1))
        usage = 0;
    FILE *stat = open_at(root, kind->memory_mount, group, "memory.stat");
    if (!find_number(stat, kind->inactive, &inactive))
        inactive = 0; // of the usage, what the kernel gives back when it is asked for
    if (stat != NULL)
        fclose(stat);
    usage = usage > inactive ? usage - inactive : 0;
    uint64_t left = limit > usage ? limit - usage : 0;
    if (limit < machine->memory_total_bytes)
        machine->memory_total_bytes = (size_t)limit;
    if (left < machine->memory_available_bytes)
        machine->memory_available_bytes = (size_t)left;
}

// ---- cores ----

static void limit_cores(const char *root, const hierarchy *kind, const char *group,
                        mics_machine *machine)
{
    uint64_t quota[2] = {0, 0}; // microseconds of CPU time in a period, and the period
    bool limited = false;
    if (kind == &v2)
        limited = read_numbers(root, kind->cpu_mount, group, "cpu.max", quota, 2);
    else
        limited = read_numbers(root, kind->cpu_mount, group, "cpu.cfs_quota_us", quota, 1) &&
                  read_numbers(root, kind->cpu_mount, group, "cpu.cfs_period_us", quota + 1, 1);
    if (!limited || quota[0] == 0 || quota[1] == 0)
        return;
    uint64_t cores = quota[0] / quota[1] + (quota[0] % quota[1] != 0 ? 1 : 0);
    if (cores < (uint64_t)machine->quota_cores)
        machine->quota_cores = (int32_t)cores;
}

// ---- control groups ----

typedef void (*limiter)(const char *root, const hierarchy *kind, const char *group,
                        mics_machine *machine);

// Applies the limits of a group and of all above it.
static void limit_upwards(const char *root, const hierarchy *kind, char *group, limiter limit,
                          mics_machine *machine)
{
    for (;;) {
        limit(root, kind, group, machine);
        char *slash = strrchr(group, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

// True when a comma-separated list of controllers has `name`.
static bool has_controller(const char *list, const char *name)
{
    size_t bytes = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',' ? 1 : 0;
        if (strncmp(at, name, bytes) == 0 && (at[bytes] == ',' || at[bytes] == '\0'))
            return true;
    }
    return false;
}

// One line of /proc/self/cgroup: "0::/group" or "4:cpu,cpuacct:/group".
static void limit_by_line(const char *root, char *line, mics_machine *machine)
{
    char *controllers = strchr(line, ':');
    char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL)
        return;
    *controllers++ = '\0';
    *group++ = '\0';
    if (strcmp(group, "/") == 0)
        *group = '\0';
    char copy[LINE_BYTES];
    snprintf(copy, sizeof copy, "%s", group);
    if (*controllers == '\0') {
        limit_upwards(root, &v2, group, limit_memory, machine);
        limit_upwards(root, &v2, copy, limit_cores, machine);
        return;
    }
    if (has_controller(controllers, "memory"))
        limit_upwards(root, &v1, group, limit_memory, machine);
    if (has_controller(controllers, "cpu"))
        limit_upwards(root, &v1, copy, limit_cores, machine);
}

static void limit_by_groups(const char *root, mics_machine *machine)
{
    char line[LINE_BYTES];
    FILE *file = open_at(root, "/proc/self", "", "cgroup");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        limit_by_line(root, line, machine);
    }
    if (file != NULL)
        fclose(file);
}

// ---- CPU ----

// Copies what stands behind "name   : " in a line; false when it is another line.
static bool cpuinfo_value(const char *line, const char *name, const char **value_out)
{
    size_t bytes = strlen(name);
    const char *colon = strchr(line, ':');
    if (colon == NULL || strncmp(line, name, bytes) != 0 || strchr(" \t:", line[bytes]) == NULL)
        return false;
    *value_out = colon[1] == ' ' ? colon + 2 : colon + 1;
    return true;
}

// Lists which extensions stand among the flags, words with spaces between.
static void list_extensions(const char *flags, char *isa, size_t capacity)
{
    size_t used = 0;
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        size_t bytes = strlen(extensions[i]);
        const char *at = strstr(flags, extensions[i]);
        while (at != NULL && ((at != flags && at[-1] != ' ') || strchr(" \n", at[bytes]) == NULL))
            at = strstr(at + 1, extensions[i]); // only a part of another word
        if (at == NULL || used + bytes + 2 > capacity)
            continue;
        used += (size_t)snprintf(isa + used, capacity - used, "%s%s", used == 0 ? "" : " ",
                                 extensions[i]);
    }
}

static void read_cpu(const char *root, mics_machine *machine)
{
    char line[LINE_BYTES];
    const char *value = NULL;
    bool named = false, flagged = false;
    FILE *file = open_at(root, "/proc", "", "cpuinfo");
    snprintf(machine->cpu_name, sizeof machine->cpu_name, "unknown");
    while (file != NULL && !(named && flagged) && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (!named && cpuinfo_value(line, "model name", &value)) {
            snprintf(machine->cpu_name, sizeof machine->cpu_name, "%.*s",
                     (int)sizeof machine->cpu_name - 1, value);
            named = true;
        }
        if (!flagged && (cpuinfo_value(line, "flags", &value) ||     // x86
                         cpuinfo_value(line, "Features", &value))) { // arm64
            list_extensions(value, machine->isa, sizeof machine->isa);
            flagged = true;
        }
    }
    if (file != NULL)
        fclose(file);
}

// ---- all of it ----

mics_status mics_machine_read_at(const char *root, int32_t cores, mics_machine *machine_out)
{
    mics_machine machine = {.quota_cores = INT32_MAX};
    if (!read_meminfo(root, "MemTotal", &machine.memory_total_bytes) ||
        !read_meminfo(root, "MemAvailable", &machine.memory_available_bytes))
        return mics_fail(MICS_ERR_IO,
                         "%s/proc/meminfo does not say how much memory there is; set "
                         "run.memory_limit",
                         root);
    limit_by_groups(root, &machine);
    machine.cores = cores < machine.quota_cores ? cores : machine.quota_cores;
    read_cpu(root, &machine);
    *machine_out = machine;
    return MICS_OK;
}

// Cores that the affinity mask leaves.
static int32_t affinity_cores(void)
{
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0)
        return CPU_COUNT(&mask);
    long online = sysconf(_SC_NPROCESSORS_ONLN); // more than 1024 cores: the mask is too small
    return online > 0 && online < INT32_MAX ? (int32_t)online : 1;
}

mics_status mics_machine_read(mics_machine *machine_out)
{
    return mics_machine_read_at("", affinity_cores(), machine_out);
}
