// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Finds and opens libmics_cuda.so, which alone is linked with CUDA, and says in one line why GPUs
// cannot be used.
//
// 1. It is looked for once a process, by the first who asks; afterwards `found` is only read.
// 2. A plugin of another build is not used: the structures that both sides share may differ.
#include "device/plugin.h"
#include "base/clock.h"
#include "base/text.h"
#include "mics/core/dtype.h"
#include "mics/log.h"
#include "mics/memory.h"
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char plugin_name[] = "libmics_cuda.so";

typedef void (*any_function)(void);

// What the plugin needs of base. A program that is linked with libmics.a has of it what somebody
// names; modules with a part in the plugin name what that part needs in the file that asks for it.
static const any_function needed_by_plugin[] = {
    (any_function)mics_fail,       (any_function)mics_log,         (any_function)mics_log_demote,
    (any_function)mics_clock_us,   (any_function)mics_alloc,       (any_function)mics_free,
    (any_function)mics_dtype_text, (any_function)mics_status_text,
};

static struct {
    pthread_once_t once;
    mics_cuda_findings findings;
    void *library;
    mics_status (*device_info)(int32_t index, mics_device_info *info_out);
    mics_cuda_link_kind (*link)(int32_t a, int32_t b);
    mics_status (*device_open)(int32_t index, int32_t events, mics_device **device_out);
} found = {.once = PTHREAD_ONCE_INIT};

// ---- opening ----

static void why_not(const char *format, ...) MICS_PRINTF(1, 2);
static void why_not(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    mics_text_vformat(found.findings.why_not, sizeof found.findings.why_not, format, args);
    va_end(args);
}

// Takes an address as the function pointer at `function`, which ISO C has no cast for.
static bool take(const char *name, any_function *function)
{
    void *address = dlsym(found.library, name);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

static void close_library(void)
{
    dlclose(found.library);
    found.library = NULL;
}

// The loader's "libnccl.so.2: cannot open shared object file: ..." names a library that is missing,
// not the plugin.
static void log_loader_error(const char *path)
{
    const char *error = dlerror();
    const char *missing = error != NULL ? strstr(error, ": cannot open shared object file") : NULL;
    const size_t length = missing != NULL ? (size_t)(missing - error) : 0;
    if (length > 0 && length < 128 && strncmp(error, path, strlen(path)) != 0)
        why_not("%s needs %.*s, which is not found; install it, or name its folder in "
                "LD_LIBRARY_PATH",
                path, (int)length, error);
    else
        why_not("%s cannot be opened: %s", path, error != NULL ? error : "no reason was given");
}

// The library that this code is in, if it is in one.
static bool own_library(Dl_info *info_out)
{
    any_function self = (any_function)mics_cuda_find;
    void *address;
    memcpy(&address, &self, sizeof address);
    return dladdr(address, info_out) != 0 && info_out->dli_fname != NULL &&
           strstr(info_out->dli_fname, ".so") != NULL;
}

// The plugin finds libmics among what all see. A program that opens libmics at run time, as Python
// does, sees it alone.
static void show_library(void)
{
    Dl_info info;
    void *library =
        own_library(&info) ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL) : NULL;
    if (library != NULL)
        dlclose(library); // it was there before, and stays
}

static bool open_at(const char *path)
{
    show_library();
    found.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    snprintf(found.findings.plugin_path, sizeof found.findings.plugin_path, "%s", path);
    if (found.library == NULL) {
        log_loader_error(path);
        return false;
    }
    const char *build = dlsym(found.library, "mics_plugin_build");
    if (build != NULL && strcmp(build, MICS_PLUGIN_BUILD) == 0)
        return true;
    if (build != NULL)
        why_not("%s is of mics %.40s, but this is %s; build or install both together", path, build,
                MICS_PLUGIN_BUILD);
    else
        why_not("%s is no plugin of mics; leave MICS_CUDA_PLUGIN out, or name %s there", path,
                plugin_name);
    close_library();
    return false;
}

// Where this code was loaded from: libmics.so, or the program.
static void own_folder(char folder[PATH_MAX])
{
    Dl_info info;
    char path[PATH_MAX] = "";
    if (own_library(&info))
        snprintf(path, sizeof path, "%s", info.dli_fname);
    else if (readlink("/proc/self/exe", path, sizeof path - 1) < 0)
        snprintf(path, sizeof path, "./x");
    snprintf(folder, PATH_MAX, "%s", dirname(path));
}

static bool open_beside(void)
{
    static const char *const places[] = {"", "/../lib", "/../lib64", "/../" MICS_LIBDIR};
    char folder[PATH_MAX], path[PATH_MAX + 64];
    own_folder(folder);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s%s/%s", folder, places[i], plugin_name);
        if (access(path, R_OK) == 0)
            return open_at(path);
    }
    if (open_at(plugin_name)) // the loader's path
        return true;
    if (strstr(found.findings.why_not, "cannot be opened") != NULL) {
        found.findings.plugin_path[0] = '\0';
        why_not("%s is not in %s, in ../lib of it or in the loader's path; build mics where nvcc "
                "is, or name it in MICS_CUDA_PLUGIN",
                plugin_name, folder);
    }
    return false;
}

static bool open_library(void)
{
    const char *asked = getenv("MICS_CUDA_PLUGIN");
    if (asked != NULL && strcmp(asked, "none") == 0) {
        why_not("MICS_CUDA_PLUGIN is \"none\"");
        return false;
    }
    if (asked == NULL || *asked == '\0')
        return open_beside();
    if (access(asked, R_OK) == 0)
        return open_at(asked);
    why_not("%s, which MICS_CUDA_PLUGIN names, is not there", asked);
    return false;
}

static bool take_functions(void)
{
    void (*find)(mics_cuda_findings * findings) = NULL;
    const char *(*nccl_version)(void) = NULL; // comm's part of the plugin
    // Objects of the same size and representation, which POSIX promises for functions.
    const bool all = take("mics_plugin_find", (any_function *)(void *)&find) &&
                     take("mics_plugin_device_info", (any_function *)(void *)&found.device_info) &&
                     take("mics_plugin_link", (any_function *)(void *)&found.link) &&
                     take("mics_plugin_device_open", (any_function *)(void *)&found.device_open) &&
                     take("mics_cuda_comm_version", (any_function *)(void *)&nccl_version);
    if (!all)
        return false;
    find(&found.findings);
    snprintf(found.findings.nccl, sizeof found.findings.nccl, "%s", nccl_version());
    return true;
}

static void look(void)
{
    const bool whole = needed_by_plugin[0] != NULL;
    if (!whole || !open_library())
        return;
    if (take_functions()) {
        found.findings.plugin = true;
        return;
    }
    why_not("%s lacks functions that it should have; build it again", found.findings.plugin_path);
    close_library();
}

// ---- asking ----

const mics_cuda_findings *mics_cuda_find(void)
{
    pthread_once(&found.once, look);
    return &found.findings;
}

mics_status mics_cuda_device_info(int32_t index, mics_device_info *info_out)
{
    if (!mics_cuda_find()->plugin)
        return MICS_ERR_UNSUPPORTED;
    return found.device_info(index, info_out);
}

mics_cuda_link_kind mics_cuda_link(int32_t a, int32_t b)
{
    return mics_cuda_find()->plugin ? found.link(a, b) : MICS_CUDA_LINK_HOST;
}

mics_status mics_device_cuda_open(int32_t index, int32_t events, mics_device **device_out)
{
    const mics_cuda_findings *findings = mics_cuda_find();
    if (findings->devices == 0)
        return mics_fail(MICS_ERR_UNSUPPORTED, "no GPU can be used: %s", findings->why_not);
    if (index < 0 || index >= findings->devices)
        return mics_fail(MICS_ERR_UNSUPPORTED, "there is no GPU %d: this process sees %d",
                         (int)index, (int)findings->devices);
    return found.device_open(index, events, device_out);
}

void *mics_plugin_symbol(const char *name)
{
    return mics_cuda_find()->plugin ? dlsym(found.library, name) : NULL;
}

const char *mics_cuda_find_cudnn(const char **why_not_out)
{
    const char *(*version)(const char **why_not_out) = NULL; // attention's part of the plugin
    if (!mics_cuda_find()->plugin ||
        !take("mics_cuda_attention_version", (any_function *)(void *)&version)) {
        *why_not_out = "the plugin of GPUs is missing, or has no part for it";
        return "";
    }
    return version(why_not_out);
}
