/* SPDX-License-Identifier: BSD-3-Clause */
#include "end.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void end_must(const char *what, long rc)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "process %d: %s: %s\n", (int)getpid(), what, fi_strerror((int)-rc));
    _exit(1);
}

static void info_open(struct end *e, const struct end_how *how)
{
    struct fi_info *h = fi_allocinfo();
    uint64_t flags = how->node || how->service ? FI_SOURCE : 0;
    h->caps = how->caps;
    h->addr_format = flags ? FI_SOCKADDR_IN : FI_FORMAT_UNSPEC;
    h->ep_attr->type = FI_EP_RDM;
    h->fabric_attr->prov_name = strdup("weft");
    h->domain_attr->threading = how->threading;
    h->domain_attr->data_progress = how->progress;
    h->domain_attr->auth_key_size = 32; /* by it the processes trust each other over TCP */
    h->domain_attr->auth_key = calloc(1, 32);
    MUST(fi_getinfo(FI_VERSION(1, 17), how->node, how->service, flags, h, &e->info));
    fi_freeinfo(h);
}

static void counters_open(struct end *e)
{
    static const uint64_t ways[END_CNTRS] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE};
    for (int i = 0; i < END_CNTRS; i++) {
        struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
        MUST(fi_cntr_open(e->domain, &attr, &e->cntr[i], NULL));
        MUST(fi_ep_bind(e->ep, &e->cntr[i]->fid, ways[i]));
    }
}

void end_open(struct end *e, const struct end_how *how)
{
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq = {.format = how->format, .wait_obj = how->wait_obj};
    const uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
    memset(e, 0, sizeof *e);
    info_open(e, how);
    MUST(fi_fabric(e->info->fabric_attr, &e->fabric, NULL));
    MUST(fi_domain(e->fabric, e->info, &e->domain, NULL));
    MUST(fi_av_open(e->domain, &av, &e->av, NULL));
    MUST(fi_cq_open(e->domain, &cq, &e->cq, NULL));
    if (how->region)
        MUST(fi_mr_reg(e->domain, how->region, how->region_len, access, 0, END_MR_KEY, 0, &e->mr,
                       NULL));
    MUST(fi_endpoint(e->domain, e->info, &e->ep, NULL));
    MUST(fi_ep_bind(e->ep, &e->av->fid, 0));
    MUST(fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV));
    if (how->counters)
        counters_open(e);
    MUST(fi_enable(e->ep));
}

void end_close(struct end *e)
{
    MUST(fi_close(&e->ep->fid));
    if (e->mr)
        MUST(fi_close(&e->mr->fid));
    for (int i = 0; i < END_CNTRS; i++)
        if (e->cntr[i])
            MUST(fi_close(&e->cntr[i]->fid));
    MUST(fi_close(&e->cq->fid));
    MUST(fi_close(&e->av->fid));
    MUST(fi_close(&e->domain->fid));
    MUST(fi_close(&e->fabric->fid));
    fi_freeinfo(e->info);
    memset(e, 0, sizeof *e);
}

void end_name(struct end *e, uint8_t name[END_NAME])
{
    size_t len = END_NAME;
    MUST(fi_getname(&e->ep->fid, name, &len));
}

fi_addr_t end_insert(struct end *e, const void *name)
{
    fi_addr_t addr = FI_ADDR_NOTAVAIL;
    MUST(fi_av_insert(e->av, name, 1, &addr, 0, NULL) == 1 ? 0 : -FI_EINVAL);
    return addr;
}
