/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "mem/persist.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "mem/maps.h"

/* Functions of libpmem(7). The pointers are NULL if libpmem is not installed; then msync(2) is
 * used. */
static struct {
    int (*is_pmem)(const void *addr, size_t len);
    void (*persist)(const void *addr, size_t len);
} pmem;
static pthread_once_t pmem_once = PTHREAD_ONCE_INIT;

static void pmem_load(void)
{
    void *lib = dlopen("libpmem.so.1", RTLD_NOW | RTLD_LOCAL);
    void *is_pmem = lib ? dlsym(lib, "pmem_is_pmem") : NULL;
    void *persist = lib ? dlsym(lib, "pmem_persist") : NULL;
    if (!is_pmem || !persist) {
        wf_info("no libpmem: regions for persistent memory are made so by msync");
        return;
    }
    *(void **)&pmem.is_pmem = is_pmem; /* POSIX: dlsym returns a function as an object pointer */
    *(void **)&pmem.persist = persist;
}

static bool is_file(const void *addr, size_t len)
{
    uintptr_t at = (uintptr_t)addr, end = at + len;
    int fd = wf_maps_open("/proc/thread-self/maps");
    if (fd < 0)
        return false;
    while (at < end) {
        struct wf_mapping m;
        if (wf_maps_find(fd, at, &m) || m.is_private || m.is_anonymous)
            break;
        at = m.end;
    }
    close(fd);
    return at >= end;
}

enum wf_persist wf_persist_of(const void *addr, size_t len)
{
    pthread_once(&pmem_once, pmem_load);
    if (!is_file(addr, len))
        return WF_PERSIST_NONE;
    return pmem.is_pmem && pmem.is_pmem(addr, len) ? WF_PERSIST_PMEM : WF_PERSIST_SYNC;
}

enum weft_status wf_persist(enum wf_persist how, const void *addr, size_t len)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)addr & ~(page - 1);
    if (how == WF_PERSIST_NONE || !len)
        return WEFT_OK;
    if (how == WF_PERSIST_PMEM) {
        pmem.persist(addr, len);
        return WEFT_OK;
    }
    if (!msync((void *)start, (uintptr_t)addr + len - start, MS_SYNC))
        return WEFT_OK;
    wf_error("what was written to a region for persistent memory may not be: msync: %m");
    return WEFT_ESYSTEM;
}
