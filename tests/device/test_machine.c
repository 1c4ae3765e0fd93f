// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cores and memory, from file trees made to look like machines and containers.
#include "base/capture.h"
#include "device/machine.h"
#include "test.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static capture seen;
static char root[] = "/tmp/mics-machine-XXXXXX";

#define MIB (size_t)1048576

// Writes one file of the tree, making its folders.
static void put(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *slash = whole + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

// 1000 MiB, of which 600 are available; 8 cores by affinity.
static mics_machine read_machine(void)
{
    mics_machine machine;
    put("/proc/meminfo", "MemTotal:        1024000 kB\nMemFree:          100 kB\n"
                         "MemAvailable:     614400 kB\nSwapTotal: 0 kB\n");
    ASSERT_OK(mics_machine_read_at(root, 8, &machine));
    return machine;
}

static void test_bare_machine(void **state)
{
    (void)state;
    put("/proc/cpuinfo",
        "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\nflags\t\t: fpu avx avx2 fma avx512f "
        "avx512bw avx512vl avx512_vnni amx_bf16x\n\nprocessor\t: 1\nmodel name\t: Other\n");
    mics_machine machine = read_machine();
    assert_int_equal(machine.cores, 8);
    assert_int_equal(machine.quota_cores, INT32_MAX);
    assert_int_equal(machine.memory_total_bytes, 1000 * MIB);
    assert_int_equal(machine.memory_available_bytes, 600 * MIB);
    assert_string_equal(machine.cpu_name, "Some CPU @ 2.00GHz");
    assert_string_equal(machine.isa, "avx2 fma avx512f avx512bw avx512vl avx512_vnni");
}

static void test_arm(void **state)
{
    (void)state;
    put("/proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd sve\nCPU part\t: 0xd40\n");
    mics_machine machine = read_machine();
    assert_string_equal(machine.cpu_name, "unknown");
    assert_string_equal(machine.isa, "asimd sve");
}

static void test_cgroup_v2(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/outer/inner\n");
    put("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
    put("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/outer/memory.max", "314572800\n");                               // 300 MiB
    put("/sys/fs/cgroup/outer/memory.current", "104857600\n");                           // 100
    put("/sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 52428800\nfile 9\n"); // 50
    put("/sys/fs/cgroup/outer/cpu.max", "250000 100000\n");
    mics_machine machine = read_machine();
    assert_int_equal(machine.memory_total_bytes, 300 * MIB);
    assert_int_equal(machine.memory_available_bytes, 250 * MIB);
    assert_int_equal(machine.cores, 3); // 2.5, rounded up
    assert_int_equal(machine.quota_cores, 3);
    // One core of three by affinity: the quota is still the group's.
    ASSERT_OK(mics_machine_read_at(root, 1, &machine));
    assert_int_equal(machine.cores, 1);
    assert_int_equal(machine.quota_cores, 3);
}

// The group's path as seen from outside; the limits lie at the mount's root.
static void test_container_root(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/not/visible/here\n");
    put("/sys/fs/cgroup/memory.max", "104857600\n");
    put("/sys/fs/cgroup/memory.current", "209715200\n"); // more than the limit: nothing is left
    put("/sys/fs/cgroup/cpu.max", "100000 100000\n");
    mics_machine machine = read_machine();
    assert_int_equal(machine.memory_available_bytes, 0);
    assert_int_equal(machine.cores, 1);
}

static void test_cgroup_v1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n3:cpuset:/\n");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "209715200\n");
    put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "10485760\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    mics_machine machine = read_machine();
    assert_int_equal(machine.memory_total_bytes, 200 * MIB);
    assert_int_equal(machine.memory_available_bytes, 190 * MIB);
    assert_int_equal(machine.cores, 4);
}

static void test_odd_files(void **state)
{
    (void)state;
    static const char *const groups[] = {"",      "\n",    "nonsense\n", "0:\n",
                                         ":::\n", "0::\n", "1:memory\n", "0::/../../etc\n"};
    put("/proc/cpuinfo", "model name\nflags\n: \nmodel name:\nflags:");
    put("/sys/fs/cgroup/memory.max", "-5 lots\n");
    put("/sys/fs/cgroup/cpu.max", "0 0\n");
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        put("/proc/self/cgroup", groups[i]);
        mics_machine machine = read_machine();
        assert_int_equal(machine.cores, 8);
        assert_string_equal(machine.isa, "");
    }
}

static void test_no_meminfo(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "MemTotal: 5 kB\n", "MemTotal: kB\nMemAvailable: x\n",
                                        "MemTotal: 99999999999999999999999 kB\n"};
    mics_machine machine = {.cores = 77};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        put("/proc/meminfo", texts[i]);
        ASSERT_STATUS(MICS_ERR_IO, mics_machine_read_at(root, 8, &machine));
        ASSERT_SAID(&seen, "does not say how much memory there is");
        assert_int_equal(machine.cores, 77);
    }
}

static void test_this_machine(void **state)
{
    (void)state;
    mics_machine machine;
    ASSERT_OK(mics_machine_read(&machine));
    assert_true(machine.cores >= 1);
    assert_true(machine.memory_available_bytes > 0);
    assert_true(machine.memory_available_bytes <= machine.memory_total_bytes);
    assert_true(machine.cpu_name[0] != '\0');
}

// Each test has a tree of its own.
static int setup(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/mics-machine-XXXXXX");
    capture_begin(&seen);
    return mkdtemp(root) != NULL ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    char command[64];
    capture_end();
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command) == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bare_machine, setup, teardown),
        cmocka_unit_test_setup_teardown(test_arm, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cgroup_v2, setup, teardown),
        cmocka_unit_test_setup_teardown(test_container_root, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cgroup_v1, setup, teardown),
        cmocka_unit_test_setup_teardown(test_odd_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_meminfo, setup, teardown),
        cmocka_unit_test_setup_teardown(test_this_machine, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
