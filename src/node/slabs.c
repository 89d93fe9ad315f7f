/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory that clients expose to a service without a NIC: the desk checks and maps it, and hands
 * it to the mover, which accesses it (regions.c). */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mem/lent.h"
#include "mem/shared.h"
#include "node/node.h"

/* Bounds of the clients' memory that the service maps; one client may have half of the rest. Page
 * tables of so many bytes take 128 MiB; each mapping counts for vm.max_map_count, 65,530. */
#define BYTES (UINT64_C(64) << 30)
#define SLABS 4096u

struct desk_slab {
    struct wf_list item;         /* in the client's list */
    struct node_job add, remove; /* the mover does them in their order */
    struct node_slab slab;
};

static struct desk_slab *slab_find(const struct desk_client *client, uint64_t id)
{
    wf_list_each(it, &client->slabs)
    {
        struct desk_slab *s = wf_container_of(it, struct desk_slab, item);
        if (s->slab.id == id)
            return s;
    }
    return NULL;
}

static void slab_ask(struct node_desk *desk, struct node_job *job, enum node_job_kind kind)
{
    job->kind = kind;
    desk->jobs++;
    wf_node_work_ask(&desk->work, job);
}

/* Returns the reason to refuse SLAB, as a sentence, or NULL if there is none. */
static const char *slab_wrong(const struct node_desk *desk, const struct desk_client *client,
                              const struct wf_node_slab *s)
{
    if (wf_node_lanes_of(&desk->work.contact) != WF_NODE_TCP)
        return "SLAB comes to a service that has a NIC";
    if (s->id && !client->has_table)
        return "SLAB comes before the region table";
    if (s->id ? slab_find(client, s->id) != NULL : client->has_table)
        return "SLAB comes twice for one slab";
    return NULL;
}

/* Returns why a slab of [size] bytes is not mapped, or NULL: then it is. Peers access it by
 * messages where it is not. */
static const char *slab_not(const struct node_desk *desk, const struct desk_client *client,
                            uint64_t size)
{
    uint64_t room = BYTES - desk->slab_bytes;
    if (client->nslabs >= (SLABS - desk->nslabs + client->nslabs) / 2 || size > room ||
        client->slab_bytes + size > (room + client->slab_bytes) / 2)
        return "the service has mapped as much of its clients' memory as it may";
    if (!wf_foreign_is_allowed())
        return "the system forbids process_vm_readv(2) or process_vm_writev(2)";
    return NULL;
}

static struct desk_slab *slab_new(const struct desk_client *client, const struct wf_node_slab *of,
                                  void *base)
{
    struct desk_slab *s = calloc(1, sizeof *s);
    if (s)
        s->slab = (struct node_slab){.base = base,
                                     .id = of->id,
                                     .size = of->size,
                                     .index = (uint16_t)client->index,
                                     .read_only = of->read_only};
    return s;
}

/* Returns OK | EPROTO (it has not the seals, or the size) | ENOMEM */
static enum weft_status slab_map(struct node_desk *desk, struct desk_client *client,
                                 const struct wf_node_slab *of, int fd)
{
    bool writable = of->id && !of->read_only;
    struct desk_slab *s;
    void *base;
    enum weft_status status = wf_shared_map(fd, of->size, writable, &base);
    if (status != WEFT_OK)
        return status;
    s = slab_new(client, of, base);
    if (!s) {
        munmap(base, of->size);
        return WEFT_ENOMEM;
    }
    (void)madvise(base, of->size, MADV_DONTDUMP); /* they are in the client's */
    wf_list_append(&client->slabs, &s->item);
    client->nslabs++;
    client->slab_bytes += of->size;
    desk->nslabs++;
    desk->slab_bytes += of->size;
    slab_ask(desk, &s->add, NODE_JOB_SLAB);
    return WEFT_OK;
}

void wf_node_slab_read(struct node_desk *desk, struct desk_client *client,
                       const struct wf_node_packet *packet, const int *fds, int nfds)
{
    const struct wf_node_slab *of = &packet->u.slab;
    const char *wrong = slab_wrong(desk, client, of);
    const char *not = wrong       ? wrong
                      : nfds != 1 ? "the service has no descriptor left (ulimit -n)"
                                  : slab_not(desk, client, of->size);
    enum weft_status status = not ? WEFT_ELIMIT : slab_map(desk, client, of, fds[0]);
    wf_seqpacket_drop(fds, WF_NODE_FDS, nfds);
    if (status == WEFT_EPROTO)
        wrong = "SLAB has memory without the seals or the size";
    if (status == WEFT_ENOMEM)
        not = "the service has no memory or address space left";
    if (wrong)
        wf_node_client_fail(desk, client, "%s", wrong);
    else if (status != WEFT_OK)
        wf_info(
            "client %u: %llu KiB of its memory are not mapped: %s; peers access them by messages",
            client->index, (unsigned long long)of->size >> 10, not );
    client->has_table |= !of->id;
}

/* A slab that there was no room for is not known. */
void wf_node_unslab_read(struct node_desk *desk, struct desk_client *client,
                         const struct wf_node_packet *packet)
{
    struct desk_slab *s = slab_find(client, packet->u.slab.id);
    if (!s)
        return;
    wf_list_remove(&s->item);
    client->nslabs--;
    client->slab_bytes -= s->slab.size;
    slab_ask(desk, &s->remove, NODE_JOB_UNSLAB);
}

void wf_node_slabs_end(struct node_desk *desk, struct desk_client *client)
{
    struct wf_list *item;
    while ((item = wf_list_pop(&client->slabs)))
        slab_ask(desk, &wf_container_of(item, struct desk_slab, item)->remove, NODE_JOB_UNSLAB);
    client->nslabs = 0;
    client->slab_bytes = 0;
}

void wf_node_slab_do(struct node_work *work, struct node_job *job)
{
    if (job->kind == NODE_JOB_SLAB)
        wf_node_slab_add(work->mover, &wf_container_of(job, struct desk_slab, add)->slab);
    else
        wf_node_slab_remove(work->mover, &wf_container_of(job, struct desk_slab, remove)->slab);
}

void wf_node_slab_done(struct node_desk *desk, struct node_job *job)
{
    struct desk_slab *s;
    if (job->kind == NODE_JOB_SLAB)
        return;
    s = wf_container_of(job, struct desk_slab, remove);
    munmap(s->slab.base, s->slab.size);
    desk->nslabs--;
    desk->slab_bytes -= s->slab.size;
    free(s);
}
