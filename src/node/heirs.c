/* SPDX-License-Identifier: BSD-3-Clause */
/* The clients of the service before, which may still come to this one. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/process.h"
#include "mem/shared.h"
#include "node/node.h"

/* Without clients and heirs, no process is left that knows this service. */
static void awaited_check(struct node_desk *desk)
{
    if (!desk->heirs_awaited)
        desk->idle_limit_ns = WF_NODE_IDLE_MS * 1000000u;
}

/* A process whose end cannot be watched is awaited until no heir may come any more. The page shows
 * it to the next successor, which may come earlier than this client. */
static void heir_add(struct node_desk *desk, uint32_t index, int pid)
{
    struct desk_heir *heir = &desk->heirs[index];
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = heir};
    int fd = wf_pidfd_open(pid);
    if (fd < 0 && errno == ESRCH) {
        wf_node_work_heir(&desk->work, index, NODE_HEIR_GONE);
        return;
    }
    if (fd >= 0 && epoll_ctl(desk->epoll_fd, EPOLL_CTL_ADD, fd, &ev)) {
        close(fd);
        fd = -1;
    }
    *heir = (struct desk_heir){.index = index, .pid = pid, .pidfd = fd};
    desk->heirs_awaited++;
    wf_store_relaxed(&desk->work.page->pids[index], (uint32_t)pid);
    wf_node_work_heir(&desk->work, index, NODE_HEIR_AWAITED);
}

/* Without the page, or memory, the mover takes each index for one that may have an heir. */
void wf_node_heirs_open(struct node_desk *desk, int fd)
{
    struct wf_node_page *page;
    void *map = NULL;
    desk->heirs = calloc(node_indexes(desk), sizeof *desk->heirs);
    if (desk->heirs && wf_shared_map(fd, sizeof *page, 0, &map) == WEFT_OK) {
        page = map;
        for (uint32_t i = 0; i < node_indexes(desk); i++) {
            uint32_t pid = wf_load_relaxed(&page->pids[i]);
            if (pid && pid <= INT32_MAX)
                heir_add(desk, i, (int)pid);
        }
        munmap(map, sizeof *page);
        desk->idle_limit_ns = desk->claims_until_ns - desk->born_ns; /* until these are closed */
        awaited_check(desk);
    }
    close(fd);
}

/* It is awaited no more: it has come, or has ended. */
static void heir_drop(struct node_desk *desk, struct desk_heir *heir)
{
    if (heir->pidfd >= 0)
        close(heir->pidfd); /* which ends its events */
    heir->pidfd = -1;
    heir->dropped = true;
    desk->heirs_awaited--;
}

static void heir_end(struct node_desk *desk, struct desk_heir *heir)
{
    heir_drop(desk, heir);
    awaited_check(desk);
    wf_store_relaxed(&desk->work.page->pids[heir->index], 0);
    wf_node_work_heir(&desk->work, heir->index, NODE_HEIR_GONE);
}

/* Returns the process that is awaited for the index, or NULL. */
static struct desk_heir *heir_find(const struct node_desk *desk, uint32_t index)
{
    struct desk_heir *heir = desk->heirs ? &desk->heirs[index] : NULL;
    return heir && heir->pid && !heir->dropped ? heir : NULL;
}

bool wf_node_heir_is(const struct node_desk *desk, uint32_t index, pid_t pid)
{
    const struct desk_heir *heir = heir_find(desk, index);
    return !heir || heir->pid == pid;
}

void wf_node_heir_come(struct node_desk *desk, uint32_t index)
{
    struct desk_heir *heir = heir_find(desk, index);
    if (heir)
        heir_drop(desk, heir);
    awaited_check(desk);
}

bool wf_node_heir_event(struct node_desk *desk, void *at)
{
    struct desk_heir *heir = at;
    if (!desk->heirs || (uintptr_t)heir < (uintptr_t)desk->heirs ||
        (uintptr_t)heir >= (uintptr_t)(desk->heirs + node_indexes(desk)))
        return false;
    if (!heir->dropped) /* by an earlier event of this round */
        heir_end(desk, heir);
    return true;
}

void wf_node_heirs_close(struct node_desk *desk)
{
    for (uint32_t i = 0; i < node_indexes(desk); i++)
        if (heir_find(desk, i))
            heir_end(desk, &desk->heirs[i]);
    awaited_check(desk); /* also if the page could not be read */
    wf_node_work_settle(&desk->work);
}
