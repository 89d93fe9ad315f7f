/* SPDX-License-Identifier: BSD-3-Clause */
/* The doorbell registers of mlx5 NICs: which register each queue pair and each thread domain gets.
 *
 * A NIC has a fixed number of UAR pages (user access region). Each page has two registers for
 * messages, its uUARs. A process rings a doorbell or writes a request (BlueFlame) to a uUAR. This
 * file follows the policy of the mlx5 driver in two modes:
 *
 * WF_UAR_CLASSIC:
 *   a context takes 8 static pages, with 16 uUARs;
 *   a queue pair without a domain has one of uUARs 12 to 15 alone; when these are taken, the one of
 *   1 to 11 that has the fewest queue pairs, the lowest of them first;
 *   a thread domain has a free uUAR of the pages for domains, the lowest first; if there is none, a
 *   page is taken, and the domain has its first uUAR.
 *
 * WF_UAR_CURRENT, rdma-core since 2020:
 *   a context takes 1 page that is not cached, for doorbells only;
 *   each of the first 4 queue pairs without a domain has a uUAR alone, 2 of them on a page; each of
 *   the next 6 takes a page, and has the uUAR of these pages with the fewest queue pairs, the
 * oldest first; later ones have such a uUAR and take no page; a thread domain is treated as in the
 * other mode, but a uUAR that was freed is the last one to be given again.
 *
 * With as few uUARs as possible (total 2, low latency 1) a classic context has one page.
 * Sources: "Scalable Communication Endpoints for MPI+Threads Applications", appendix B; Linux,
 * drivers/infiniband/hw/mlx5/qp.c (alloc_bfreg); rdma-core, providers/mlx5/verbs.c.
 *
 * The simulated NICs use this policy (hca_null.c, and the model of a NIC for benchmarks). On real
 * NICs the driver itself follows its policy, and only the counts come from here. */
#ifndef WF_TRANSPORT_RDMA_UAR_H
#define WF_TRANSPORT_RDMA_UAR_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/weft.h>

enum wf_uar_mode { WF_UAR_CLASSIC, WF_UAR_CURRENT };

#define WF_UAR_NIC_PAGES 8192u    /* of a ConnectX-4: a BAR of 32 MiB */
#define WF_UAR_NIC_MAX 65536u     /* limit for the pages of a simulated NIC */
#define WF_UAR_STATIC_MAX 512u    /* limit for the static uUARs of a classic context */
#define WF_UAR_DYNAMIC_PAGES 512u /* of a classic context, for thread domains */
/* Thread domains with a page of their own, of a classic context, as the paper counts them: half of
 * those pages. */
#define WF_UAR_INDEPENDENT 256u

/* The settings of a context. */
struct wf_uar_config {
    enum wf_uar_mode mode;
    uint16_t total;       /* classic: static uUARs, even (MLX5_TOTAL_UUARS) */
    uint16_t low_latency; /* classic: those of one queue pair (MLX5_NUM_LOW_LAT_UUARS) */
    bool blueflame;       /* false: doorbells only (MLX5_SHUT_UP_BF) */
};

/* A NIC's pages. Any thread, without a lock, so that a forked child finds none held. */
struct wf_uar_nic {
    _Atomic uint32_t pages;
    _Atomic uint64_t used[WF_UAR_NIC_MAX / 64]; /* a bit for each page that is taken */
};

enum wf_uuar_kind {
    WF_UUAR_DEDICATED, /* one queue pair, or the queue pairs of one thread domain: no lock */
    WF_UUAR_SHARED,    /* several queue pairs, and a lock */
    WF_UUAR_DOORBELL   /* several queue pairs that ring doorbells only: no lock */
};

/* A uUAR. */
struct wf_uuar {
    uint32_t page; /* of the NIC */
    uint32_t at;   /* of the context: its pages, in the order in which they were taken */
    uint8_t half;  /* 0 or 1, within the page */
    uint8_t kind;  /* enum wf_uuar_kind */
};

struct wf_uar_page;

/* A context's pages. One thread at a time. */
struct wf_uars {
    struct wf_uar_nic *nic;
    struct wf_uar_config config;
    struct wf_uar_page *pages; /* [npages] */
    uint32_t npages, room;
    uint64_t clock; /* when a uUAR became free */
};

/* Makes a NIC with WF_UAR_NIC_PAGES pages, of which none is taken. */
void wf_uar_nic_open(struct wf_uar_nic *nic);
/* Sets how many pages a NIC has, at most WF_UAR_NIC_MAX. A NIC that is all zero has none before.
 * Pages beyond them that are taken stay so. */
void wf_uar_nic_limit(struct wf_uar_nic *nic, uint32_t pages);

/* The driver's default settings; those that the variables MLX5_TOTAL_UUARS, MLX5_NUM_LOW_LAT_UUARS
 * and MLX5_SHUT_UP_BF change. */
struct wf_uar_config wf_uar_config_of(enum wf_uar_mode mode);
struct wf_uar_config wf_uar_config_env(enum wf_uar_mode mode);
/* Returns NULL, or the error in the settings. mlx5 opens no device for the same reasons. */
const char *wf_uar_config_wrong(const struct wf_uar_config *config);

/* Opens a context's pages. Returns OK | EINVAL (wf_uar_config_wrong) | ELIMIT (the NIC has too few
 * pages left) | ENOMEM */
enum weft_status wf_uars_open(struct wf_uars *u, struct wf_uar_nic *nic,
                              const struct wf_uar_config *config);
void wf_uars_close(struct wf_uars *u);

/* Give a thread domain its uUAR, or a queue pair without a domain. [owner] stands for the thread
 * that uses the queue pair. Return OK | ELIMIT (the NIC, or for domains the context, has no page
 * left; in the current mode the driver then refuses a queue pair that would take a page, although
 * it could share one) | ENOMEM. */
enum weft_status wf_uars_td(struct wf_uars *u, struct wf_uuar *out);
void wf_uars_td_free(struct wf_uars *u, const struct wf_uuar *uuar);
/* Sets the owner of a thread domain's uUAR; NULL: nobody uses the domain. */
void wf_uars_td_own(struct wf_uars *u, const struct wf_uuar *uuar, const void *owner);
enum weft_status wf_uars_qp(struct wf_uars *u, const void *owner, struct wf_uuar *out);
void wf_uars_qp_free(struct wf_uars *u, const struct wf_uuar *uuar);
/* A queue pair of a thread domain uses the domain's uUAR, or no longer uses it. */
void wf_uars_td_qp(struct wf_uars *u, const struct wf_uuar *uuar);
void wf_uars_td_qp_free(struct wf_uars *u, const struct wf_uuar *uuar);

/* Returns what [owner] shares with other threads by its uUAR: 1 nothing, 2 the page, 3 the uUAR. */
unsigned wf_uuar_level(const struct wf_uars *u, const struct wf_uuar *uuar, const void *owner);

struct wf_uar_count {
    uint32_t pages;
    uint32_t uuars;  /* two a page */
    uint32_t used;   /* uUARs that a queue pair has */
    uint32_t wasted; /* the others */
};
struct wf_uar_count wf_uars_count(const struct wf_uars *u);

#endif
