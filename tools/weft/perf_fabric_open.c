/* SPDX-License-Identifier: BSD-3-Clause */
/* The two sides of weft-perf-libfabric: the connection between them, their endpoints and regions.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "perf_fabric.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NAME_MAX_BYTES 256

void need(const char *what, long result)
{
    if (result >= 0)
        return;
    fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-result));
    exit(1);
}

/* ---- exchanging addresses ---- */

static void failed(const char *what)
{
    perror(what);
    exit(1);
}

static int control_listen(int fd, const struct addrinfo *at)
{
    int one = 1, peer;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
        bind(fd, at->ai_addr, at->ai_addrlen) || listen(fd, 1))
        failed("listening");
    peer = accept(fd, NULL, NULL);
    close(fd);
    return peer;
}

int control_open(const char *port, bool calls, const char *address)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *at;
    int fd, bad = getaddrinfo(address, port, &hints, &at);
    if (bad) {
        fprintf(stderr, "%s: %s\n", address, gai_strerror(bad));
        exit(1);
    }
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || (calls && connect(fd, at->ai_addr, at->ai_addrlen)))
        failed("connecting");
    if (!calls)
        fd = control_listen(fd, at);
    if (fd < 0)
        failed("accepting");
    freeaddrinfo(at);
    return fd;
}

/* This side's address, as text. */
static const char *control_own(const struct pair *p)
{
    static char text[INET_ADDRSTRLEN];
    struct sockaddr_in own;
    socklen_t len = sizeof own;
    if (getsockname(p->control, (struct sockaddr *)&own, &len) ||
        !inet_ntop(AF_INET, &own.sin_addr, text, sizeof text))
        failed("own address");
    return text;
}

void exchange(const struct pair *p, const void *mine, void *theirs, size_t len)
{
    if (send(p->control, mine, len, MSG_NOSIGNAL) != (ssize_t)len ||
        recv(p->control, theirs, len, MSG_WAITALL) != (ssize_t)len) {
        fprintf(stderr, "the other side is gone\n");
        exit(1);
    }
}

/* The open endpoint of the provider shm, or NULL. */
static struct fid_ep *open_shm;

/* Called at the exit of a side that has failed: the provider removes the endpoint's file in
 * /dev/shm only when the endpoint is closed, or by a signal. */
static void exit_close(void)
{
    if (open_shm)
        (void)fi_close(&open_shm->fid);
}

static void close_at_exit(struct fid_ep *ep)
{
    static bool registered;
    open_shm = ep;
    if (!registered)
        registered = !atexit(exit_close);
}

void fabric_open(struct pair *p, const char *provider)
{
    struct fi_info *hints = fi_allocinfo();
    bool named = strcmp(provider, "shm") && strcmp(provider, "weft");
    const size_t least = p->size;                     /* left of a buffer of FI_MULTI_RECV */
    const char *node = named ? control_own(p) : NULL; /* of endpoints by an IP address */
    struct fi_cq_attr cq = {.format = p->kind->many ? FI_CQ_FORMAT_MSG : FI_CQ_FORMAT_CONTEXT,
                            .size = 4 * WINDOW};
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = p->kind->caps;
    hints->mode = FI_CONTEXT;
    if (p->kind->caps & FI_RMA)
        hints->domain_attr->mr_mode =
            FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = strdup(provider);
    need("fi_getinfo",
         fi_getinfo(FI_VERSION(1, 14), node, NULL, node ? FI_SOURCE : 0, hints, &p->info));
    fi_freeinfo(hints);
    need("fi_fabric", fi_fabric(p->info->fabric_attr, &p->fabric, NULL));
    need("fi_domain", fi_domain(p->fabric, p->info, &p->domain, NULL));
    need("fi_cq_open", fi_cq_open(p->domain, &cq, &p->cq, NULL));
    need("fi_av_open", fi_av_open(p->domain, &av, &p->av, NULL));
    need("fi_endpoint", fi_endpoint(p->domain, p->info, &p->ep, NULL));
    if (!strcmp(provider, "shm"))
        close_at_exit(p->ep);
    need("fi_ep_bind", fi_ep_bind(p->ep, &p->av->fid, 0));
    need("fi_ep_bind", fi_ep_bind(p->ep, &p->cq->fid, FI_SEND | FI_RECV));
    need("fi_enable", fi_enable(p->ep));
    /* Debian's provider shm takes the option of an enabled endpoint alone. */
    if (p->kind->many)
        need("fi_setopt",
             fi_setopt(&p->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
}

void fabric_meet(struct pair *p)
{
    unsigned char mine[NAME_MAX_BYTES] = {0}, theirs[NAME_MAX_BYTES];
    size_t len = sizeof mine;
    need("fi_getname", fi_getname(&p->ep->fid, mine, &len));
    exchange(p, mine, theirs, sizeof mine);
    if (fi_av_insert(p->av, theirs, 1, &p->peer, 0, NULL) != 1)
        need("fi_av_insert", -FI_EINVAL);
}

void region_meet(struct pair *p)
{
    struct fid_mr **in = &p->regions[0], **out = &p->regions[1];
    const size_t len = (p->size + PAGE - 1) / PAGE * PAGE; /* as they are allocated */
    struct place own;
    need("fi_mr_reg",
         fi_mr_reg(p->domain, p->in, len, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, in, NULL));
    need("fi_mr_reg", fi_mr_reg(p->domain, p->out, len, FI_READ | FI_WRITE, 0, 2, 0, out, NULL));
    own.at = p->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)p->in : 0;
    own.key = fi_mr_key(*in);
    p->desc = fi_mr_desc(*out);
    exchange(p, &own, &p->far, sizeof own);
}

static void object_close(struct fid *object)
{
    if (object)
        need("fi_close", fi_close(object));
}

/* Close all, each after what uses it: the provider for shared memory removes its file only then. */
void fabric_close(struct pair *p)
{
    open_shm = NULL;
    object_close(&p->ep->fid);
    for (unsigned i = 0; i < 2; i++)
        object_close(p->regions[i] ? &p->regions[i]->fid : NULL);
    object_close(&p->av->fid);
    object_close(&p->cq->fid);
    object_close(&p->domain->fid);
    object_close(&p->fabric->fid);
    fi_freeinfo(p->info);
}
