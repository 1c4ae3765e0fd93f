// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What NCCL takes of a GPU, and the rates of network cards that it depends on.
#include "base/nccl.h"
#include "base/network.h"
#include "test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static const double gbit = 1e9 / 8;

// ---- network cards ----

static void make_port(const char *sys, const char *card, const char *state, const char *rate)
{
    static const char *const folders[] = {"class", "class/infiniband", NULL, "ports", "ports/1"};
    const char *const lines[][2] = {{"state", state}, {"rate", rate}};
    char path[512];
    for (int i = 0; i < 5; i++) {
        if (folders[i] == NULL)
            snprintf(path, sizeof path, "%s/class/infiniband/%s", sys, card);
        else
            snprintf(path, sizeof path, "%s/%s%s%s%s", sys, i > 2 ? "class/infiniband/" : "",
                     i > 2 ? card : "", i > 2 ? "/" : "", folders[i]);
        mkdir(path, 0700);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/class/infiniband/%s/ports/1/%s", sys, card, lines[i][0]);
        FILE *file = lines[i][1] != NULL ? fopen(path, "w") : NULL;
        if (file == NULL)
            continue;
        fprintf(file, "%s\n", lines[i][1]);
        fclose(file);
    }
}

static void test_rates_of_ports(void **state)
{
    (void)state;
    char sys[] = "/tmp/mics-sys-XXXXXX", command[64];
    assert_non_null(mkdtemp(sys));
    assert_true(mics_network_bytes_per_s(sys) == 0);
    make_port(sys, "mlx5_0", "4: ACTIVE", "400 Gb/sec (4X NDR)");
    make_port(sys, "mlx5_1", "4: ACTIVE", "100 Gb/sec (4X EDR)");
    make_port(sys, "mlx5_2", "1: DOWN", "400 Gb/sec (4X NDR)");
    make_port(sys, "mlx5_3", "4: ACTIVE", "unknown");
    make_port(sys, "mlx5_4", "4: ACTIVE", NULL);
    assert_true(fabs(mics_network_bytes_per_s(sys) / gbit - 500) < 1e-9);
    snprintf(command, sizeof command, "rm -r %s", sys);
    assert_int_equal(system(command), 0);
}

// ---- CTAs ----

static void test_ctas_follow_the_network(void **state)
{
    static const struct {
        double cards, gbits; // a node's
        int32_t inter;
    } cases[] = {{0, 0, 8}, {1, 100, 8}, {4, 100, 8}, {8, 200, 16}, {8, 400, 24}, {8, 800, 24}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const mics_nccl_ctas ctas =
            mics_nccl_choose_ctas(1, cases[i].cards * cases[i].gbits * gbit);
        assert_int_equal(ctas.intra, 24);
        assert_int_equal(ctas.inter, cases[i].inter);
    }
}

// Kernels of all ranks of a GPU fit on the smallest that this is for at once.
static void test_sharers_fit(void **state)
{
    (void)state;
    for (int32_t sharers = 1; sharers <= MICS_NCCL_MAX_SHARERS; sharers++) {
        const mics_nccl_ctas ctas = mics_nccl_choose_ctas(sharers, 3200 * gbit);
        assert_true(sharers * (ctas.intra + ctas.inter) <= 108);
        assert_true(ctas.intra >= 1 && ctas.inter >= 1);
    }
}

static void test_settings_of_nccl_go_first(void **state)
{
    (void)state;
    setenv("NCCL_MAX_CTAS", "12", 1);
    setenv("NCCL_MAX_P2P_NCHANNELS", "4", 1);
    mics_nccl_ctas ctas = mics_nccl_read_ctas(1, 3200 * gbit);
    assert_int_equal(ctas.intra, 12);
    assert_int_equal(ctas.inter, 12);
    assert_int_equal(ctas.messages, 4);
    setenv("NCCL_MAX_CTAS", "many", 1);
    unsetenv("NCCL_MAX_P2P_NCHANNELS");
    ctas = mics_nccl_read_ctas(1, 3200 * gbit);
    assert_int_equal(ctas.intra, 24);
    assert_int_equal(ctas.messages, 16);
    unsetenv("NCCL_MAX_CTAS");
}

// ---- memory, MiB ----

static int mib(mics_nccl_use use)
{
    return (int)(mics_nccl_bytes(&use) >> 20);
}

static void test_memory_of_a_communicator(void **state)
{
    (void)state;
    const mics_nccl_use unused = {.ranks = 8, .ranks_here = 8, .ctas = 24, .message_ctas = 16};
    mics_nccl_use use = unused;
    assert_int_equal(mib(use), 64);
    use.rings = true; // and NVLS: 24 channels with 2 for each of 8 GPUs
    assert_int_equal(mib(use), 64 + 24 * 12 + 24 * 8 * 2);
    use.rings = false;
    use.messages = true; // 16 channels to each of 7
    assert_int_equal(mib(use), 64 + 7 * 16 * 12);
    use.message_ctas = 32; // 24 rounded up to 32
    assert_int_equal(mib(use), 64 + 7 * 32 * 12);
    use = (mics_nccl_use){4, 1, 8, 16, true, false};
    assert_int_equal(mib(use), 64 + 8 * 20);
    use.messages = true;
    assert_int_equal(mib(use), 64 + 8 * 20 + 8 * 4);
}

static void test_reserve_of_a_run(void **state)
{
    const mics_nccl_ctas ctas = mics_nccl_choose_ctas(1, 0);
    (void)state;
    assert_true(mics_nccl_reserve(1, 1, &ctas) == 0);
    const mics_nccl_use node = {8, 8, 24, 16, true, true}, nodes = {32, 1, 8, 16, true, true};
    const size_t one = mics_nccl_reserve(8, 8, &ctas), four = mics_nccl_reserve(32, 8, &ctas);
    assert_true(one == MICS_NCCL_PROCESS_BYTES + mics_nccl_bytes(&node));
    assert_true(four == one + mics_nccl_bytes(&nodes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates_of_ports),
        cmocka_unit_test(test_ctas_follow_the_network),
        cmocka_unit_test(test_sharers_fit),
        cmocka_unit_test(test_settings_of_nccl_go_first),
        cmocka_unit_test(test_memory_of_a_communicator),
        cmocka_unit_test(test_reserve_of_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
