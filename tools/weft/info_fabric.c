/* SPDX-License-Identifier: BSD-3-Clause */
/* The line of `weft info` about the libfabric provider: libfabric skips a provider that it cannot
 * load without a word, so this loads it as libfabric does and reports the reason. */
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "info.h"

#define NAME "libweft-fi.so"
#define ROW "%s %-22s "

#ifdef WF_TOOL_FABRIC

/* It is in the build folder before installation, then in libfabric's folder. */
static void provider_find(char *path, size_t room)
{
    char own[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    char *slash;
    own[n < 0 ? 0 : n] = 0;
    slash = strrchr(own, '/');
    if (slash) {
        snprintf(path, room, "%.*s/" WF_TOOL_FABRIC_BUILT "/" NAME, (int)(slash - own), own);
        if (!access(path, R_OK))
            return;
        snprintf(path, room, "%.*s/" WF_TOOL_FABRIC_BESIDE "/" NAME, (int)(slash - own), own);
        if (!access(path, R_OK))
            return;
    }
    snprintf(path, room, "%s/%s", WF_TOOL_FABRIC_DIR, NAME);
}

static void show_loaded(void *libfabric, const char *path)
{
    uint32_t (*version)(void);
    void *symbol = dlsym(libfabric, "fi_version");
    void *provider = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    uint32_t v = 0;
    memcpy(&version, &symbol, sizeof version);
    if (symbol)
        v = version();
    if (provider && dlsym(provider, "fi_prov_ini"))
        printf(ROW "for libfabric %s, with %u.%u here; FI_PROVIDER_PATH=%.*s\n", "   ",
               "libfabric provider", WF_TOOL_FABRIC, v >> 16, v & 0xffff,
               (int)(strrchr(path, '/') - path), path);
    else
        printf(ROW "cannot be loaded: %s\n", "  !", "libfabric provider", dlerror());
}

void wf_info_fabric(void)
{
    char path[2 * PATH_MAX];
    void *libfabric = dlopen("libfabric.so.1", RTLD_NOW | RTLD_GLOBAL);
    provider_find(path, sizeof path);
    if (access(path, R_OK))
        printf(ROW "for libfabric %s, not installed: there is no %s\n", "  !", "libfabric provider",
               WF_TOOL_FABRIC, path);
    else if (!libfabric)
        printf(ROW "for libfabric %s, which is not here: %s\n", "  !", "libfabric provider",
               WF_TOOL_FABRIC, dlerror());
    else
        show_loaded(libfabric, path);
}

#else

void wf_info_fabric(void)
{
    printf(ROW "none (-Dlibfabric=enabled)\n", "   ", "libfabric provider");
}

#endif
