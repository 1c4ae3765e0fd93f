// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What libraries are told by the environment, as they have no other way to hear it. The program does
// this first, when it has one thread; a library may not change what others read meanwhile.
//
// GNU's OpenMP spins for 300000 rounds, some 10 ms, where a process has as many cores as threads.
// It does not see other processes: where ranks or other programs want the same cores, each barrier
// then waits until the spinning ends. It reads its settings before main begins, so they are given
// to a second start of the same program.
#include "base/nccl.h"
#include "cli.h"
#include <stdlib.h>

static void set_all(const char *const settings[][2], size_t count)
{
    for (size_t i = 0; i < count; i++)
        (void)setenv(settings[i][0], settings[i][1], 0);
}

// A user's own settings stay.
static void set_defaults(void)
{
    // Ranks that share a GPU, as NCCL 2.30 allows, wait for each other's kernels. CUDA has 8 queues
    // for all streams of a process unless it is told of more, and in one queue a kernel waits for
    // those before it: with fewer queues than streams ranks may wait in a circle. NCCL's manual has
    // NVLS as not compatible with it.
    static const char *const sharing[][2] = {
        {"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
        {"NCCL_NVLS_ENABLE", "0"},
    };
    static const char *const settings[][2] = {
        // Open MPI's polls yield when its launcher was asked for more ranks than cores; see the head
        // of comm/mpi/wait.c for what that does. And they ask each of its connections, where epoll
        // knows which have something: 8 ranks on 2 cores spent 29 % less time in the kernel (4
        // emulated nodes, Open MPI 4.1.4).
        {"OMPI_MCA_mpi_yield_when_idle", "0"},
        {"OMPI_MCA_opal_event_include", "epoll"},
        // From 2.26 on NCCL runs the communicators' kernels in the order in which the host launched
        // them, if it is asked to; the engine's order is the same on all ranks. ncclConfig_t has no
        // field for it.
        {"NCCL_LAUNCH_ORDER_IMPLICIT", "1"},
        // Both bound its buffers (base/nccl.c). PAT, a tree between nodes, would have those of a ring
        // twice for each doubling of the nodes.
        {"NCCL_MAX_P2P_NCHANNELS", "16"},
        {"NCCL_PAT_ENABLE", "0"},
    };
    set_all(settings, sizeof settings / sizeof *settings);
    if (mics_nccl_may_share())
        set_all(sharing, sizeof sharing / sizeof *sharing);
}

#if defined(_OPENMP)
#include <sys/auxv.h>
#include <unistd.h>

// Some 20 us: as long as falling asleep and being woken take.
#define SPIN_ROUNDS "500"

enum { PATH_BYTES = 4096 };

static bool is_said(void)
{
    return getenv("GOMP_SPINCOUNT") != NULL || getenv("OMP_WAIT_POLICY") != NULL;
}

static void bound_spinning(char **argv)
{
    char path[PATH_BYTES];
    // Without a loader below it the program was handed to one, which /proc/self/exe then is.
    if (is_said() || getauxval(AT_BASE) == 0)
        return;
    const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path);
    if (bytes <= 0 || bytes >= PATH_BYTES || setenv("GOMP_SPINCOUNT", SPIN_ROUNDS, 1) != 0)
        return;
    path[bytes] = '\0';
    execv(path, argv); // returns where it fails: then threads spin as long as they do
}

#else

static void bound_spinning(char **argv)
{
    (void)argv;
}

#endif

void cli_prepare_environment(char **argv)
{
    set_defaults();
    bound_spinning(argv);
}
