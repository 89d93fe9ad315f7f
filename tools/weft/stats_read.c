/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "stats_read.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/stats_page.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* linux/fcntl.h, Linux 5.1 */
#endif

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE)
#define GENERATIONS 4 /* from weft run down to its ranks, and a few more */
#define TRIES 1000    /* reads of a segment whose endpoints are opened and closed meanwhile */

/* ---- about a process ---- */

/* The value of [name] in the environment that [pid] was started with. */
static bool environment(pid_t pid, const char *name, char *value, size_t room)
{
    char path[64], *line = NULL;
    size_t size = 0, n = strlen(name);
    bool found = false;
    FILE *f;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    f = fopen(path, "re");
    while (f && !found && getdelim(&line, &size, 0, f) > 0)
        if (!strncmp(line, name, n) && line[n] == '=') {
            snprintf(value, room, "%s", line + n + 1);
            found = true;
        }
    free(line);
    if (f)
        fclose(f);
    return found;
}

/* The id of [pid] in its own pid namespace: the last one of "NSpid:", proc(5). */
static uint64_t inner_pid(pid_t pid)
{
    char path[64], line[256], *last;
    uint64_t inner = (uint64_t)pid;
    FILE *f;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "NSpid:", 6) && (last = strrchr(line, '\t')))
            inner = strtoull(last, NULL, 10);
    if (f)
        fclose(f);
    return inner;
}

int wf_stats_rank_of(pid_t pid)
{
    char rank[32], job[8];
    return environment(pid, "PMIX_NAMESPACE", job, sizeof job) &&
                   environment(pid, "PMIX_RANK", rank, sizeof rank)
               ? atoi(rank)
               : -1;
}

static void describe(pid_t pid, struct wf_process_stats *out)
{
    char path[64];
    FILE *f;
    memset(out, 0, sizeof *out);
    out->pid = pid;
    out->rank = wf_stats_rank_of(pid);
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    f = fopen(path, "re");
    if (f && fgets(out->command, sizeof out->command, f))
        out->command[strcspn(out->command, "\n")] = 0;
    if (f)
        fclose(f);
    (void)environment(pid, "PMIX_NAMESPACE", out->job, sizeof out->job);
}

/* The job of [pid], or of its first descendant that has one: between weft run and its ranks there
 * is another process. */
static bool job_below(pid_t pid, char *job, size_t room, int depth)
{
    char path[64];
    int child;
    bool found = environment(pid, "PMIX_NAMESPACE", job, room);
    FILE *f = NULL;
    if (!found && depth > 0) {
        snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
        f = fopen(path, "re");
    }
    while (f && !found && fscanf(f, "%d", &child) == 1)
        found = job_below(child, job, room, depth - 1);
    if (f)
        fclose(f);
    return found;
}

bool wf_stats_job_of(pid_t pid, char *job, size_t room)
{
    return job_below(pid, job, room, GENERATIONS);
}

/* ---- a segment ---- */

struct segment {
    const struct wf_stats_head *head;
    size_t size;
    uint32_t counters, slot_size, slots; /* read once, checked */
};

static uint64_t relaxed(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static uint64_t acquire(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Copy the names; false: there is not one for each counter. */
static bool take_names(const struct segment *s, struct wf_process_stats *out)
{
    const char *at = out->names, *end = out->names + WF_STATS_NAMES;
    memcpy(out->names, s->head->names, WF_STATS_NAMES);
    for (uint32_t i = 0; i < s->counters; i++) {
        size_t n = strnlen(at, (size_t)(end - at));
        if (n == 0 || at + n == end)
            return false;
        at += n + 1;
    }
    return true;
}

/* Check seals and size first: a file that can shrink could kill this process by SIGBUS. */
static bool segment_map(int fd, struct segment *s)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    void *p;
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) || st.st_size < WF_STATS_HEAD)
        return false;
    s->size = (size_t)st.st_size;
    p = mmap(NULL, s->size, PROT_READ, MAP_SHARED, fd, 0);
    s->head = p;
    return p != MAP_FAILED;
}

/* "stats page": pairs with the release store of the magic number (src/core/stats.c). */
static bool segment_check(struct segment *s)
{
    const struct wf_stats_head *h = s->head;
    if (acquire(&h->magic) != WF_STATS_MAGIC || h->layout != WF_STATS_LAYOUT)
        return false;
    s->counters = __atomic_load_n(&h->counters, __ATOMIC_RELAXED);
    s->slot_size = __atomic_load_n(&h->slot_size, __ATOMIC_RELAXED);
    s->slots = __atomic_load_n(&h->slots, __ATOMIC_RELAXED);
    return s->counters && s->counters <= WF_STATS_COUNTERS_MAX && s->slots &&
           s->slot_size % 8 == 0 && s->slot_size >= (1 + s->counters) * sizeof(uint64_t) &&
           s->slot_size <= 1u << 20 && s->slots <= WF_STATS_SLOTS &&
           s->size >= WF_STATS_HEAD + (uint64_t)s->slots * s->slot_size;
}

static unsigned sum_once(const struct segment *s, uint64_t sum[WF_STATS_COUNTERS_MAX])
{
    const unsigned char *slots = (const unsigned char *)s->head + WF_STATS_HEAD;
    uint64_t used = acquire(&s->head->used);
    unsigned endpoints = 0;
    memset(sum, 0, WF_STATS_COUNTERS_MAX * sizeof *sum);
    for (uint64_t i = 0; i < used && i < s->slots; i++) {
        const struct wf_stats_slot *slot = (const void *)(slots + i * s->slot_size);
        if (i && !acquire(&slot->endpoint)) /* "stats slot" */
            continue;
        endpoints += i > 0;
        for (uint32_t k = 0; k < s->counters; k++)
            sum[k] += relaxed(&slot->counters[k]);
    }
    return endpoints;
}

/* Sum again until no endpoint was closed meanwhile, at most TRIES times. */
static unsigned sum_steadily(const struct segment *s, uint64_t sum[WF_STATS_COUNTERS_MAX])
{
    uint64_t before, after;
    unsigned endpoints;
    int tries = 0;
    do {
        before = acquire(&s->head->changes);
        endpoints = sum_once(s, sum);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        after = relaxed(&s->head->changes);
    } while ((before != after || before & 1) && ++tries < TRIES);
    return endpoints;
}

/* Add the counters of the segment [fd]. */
static enum wf_stats_found segment_add(int fd, struct wf_process_stats *out)
{
    struct segment s = {0};
    uint64_t sum[WF_STATS_COUNTERS_MAX];
    enum wf_stats_found found = WF_STATS_FOREIGN;
    if (!segment_map(fd, &s))
        return WF_STATS_FOREIGN;
    if (segment_check(&s) && (!out->contexts || s.counters == out->counters) &&
        take_names(&s, out)) {
        found = s.head->pid == inner_pid(out->pid) ? WF_STATS_FOUND : WF_STATS_NONE;
        snprintf(out->version, sizeof out->version, "%.*s", (int)sizeof s.head->version - 1,
                 s.head->version);
    }
    if (found == WF_STATS_FOUND) {
        out->counters = s.counters;
        out->contexts++;
        out->endpoints += sum_steadily(&s, sum);
        for (uint32_t k = 0; k < s.counters; k++)
            out->value[k] += sum[k];
    }
    munmap((void *)(uintptr_t)s.head, s.size);
    return found;
}

/* ---- a process ---- */

/* Is this entry of /proc/PID/fd a segment of counters? */
static bool is_segment(int dir, const char *name)
{
    static const char want[] = "/memfd:" WF_STATS_NAME;
    char target[64];
    ssize_t n = readlinkat(dir, name, target, sizeof target - 1);
    if (n < (ssize_t)sizeof want - 1)
        return false;
    target[n] = 0;
    return !strncmp(target, want, sizeof want - 1) &&
           (target[sizeof want - 1] == 0 || target[sizeof want - 1] == ' ');
}

static enum wf_stats_found worse(enum wf_stats_found have, enum wf_stats_found next)
{
    return have == WF_STATS_FOUND || next == WF_STATS_NONE ? have : next;
}

enum wf_stats_found wf_stats_of(pid_t pid, struct wf_process_stats *out)
{
    enum wf_stats_found found = WF_STATS_NONE;
    char path[64];
    struct dirent *d;
    DIR *dir;
    describe(pid, out);
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    if (!dir)
        return errno == EACCES || (kill(pid, 0) && errno == EPERM) ? WF_STATS_DENIED
                                                                   : WF_STATS_GONE;
    while ((d = readdir(dir))) {
        int fd;
        if (!is_segment(dirfd(dir), d->d_name))
            continue;
        fd = openat(dirfd(dir), d->d_name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0) {
            found = worse(found, segment_add(fd, out));
            close(fd);
        } else
            found = worse(found, WF_STATS_DENIED);
    }
    closedir(dir);
    return found;
}

static int by_pid(const void *a, const void *b)
{
    return *(const pid_t *)a < *(const pid_t *)b ? -1 : 1;
}

int wf_stats_each(void (*each)(pid_t pid, void *arg), void *arg)
{
    DIR *proc = opendir("/proc");
    struct dirent *d;
    pid_t *pids = NULL;
    size_t n = 0;
    if (!proc)
        return -1;
    while ((d = readdir(proc))) {
        pid_t *more = n % 1024 ? pids : realloc(pids, (n + 1024) * sizeof *pids);
        if (!more)
            break;
        pids = more;
        pids[n] = atoi(d->d_name);
        n += pids[n] > 0;
    }
    closedir(proc);
    if (n)
        qsort(pids, n, sizeof *pids, by_pid);
    for (size_t i = 0; i < n; i++)
        each(pids[i], arg);
    free(pids);
    return 0;
}
