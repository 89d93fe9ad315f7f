/* SPDX-License-Identifier: BSD-3-Clause */
/* One of two ranks that call the component's module directly, beside the traffic of MPI. */
#ifndef SIDE_H
#define SIDE_H

#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <opal_config.h>

#include <opal/constants.h>
#include <opal/mca/btl/base/base.h>
#include <opal/mca/btl/btl.h>
#include <opal/runtime/opal_progress.h>

struct side {
    int threads; /* what MPI_Init_thread is asked for; MPI_THREAD_SINGLE at first */
    mca_btl_base_module_t *btl;
    struct mca_btl_base_endpoint_t *peer; /* the other rank, added by the test */
    int rank, other;
};
extern struct side side;

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "rank %d: %s:%d: %s\n", side.rank, __FILE__, __LINE__, #cond);         \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)

/* Start MPI, find the module of the component "weft", and add the other rank to it. */
void side_open(int *argc, char ***argv);
/* Returns module number [at] of the component, NULL: there is none. */
mca_btl_base_module_t *side_module(unsigned at);
/* Add [rank] to the module [btl]. Returns its endpoint, NULL: [btl] does not reach it. */
struct mca_btl_base_endpoint_t *side_add(mca_btl_base_module_t *btl, int rank);
void side_remove(mca_btl_base_module_t *btl, int rank, struct mca_btl_base_endpoint_t *peer);
/* Remove the rank and end. Rank 0 prints "ok". */
int side_close(void);
/* Run opal_progress until [is] returns true, at most 20 s. */
void side_until(bool (*is)(void));
/* A barrier; meanwhile the rank makes progress. */
void side_meet(void);
/* Returns at rank 0 when rank 1 has called it. Rank 1 makes no progress after rank 0 returns, until
 * it calls MPI again: so the thread that the test means receives what rank 0 sends then. */
void side_go(void);
/* Send [len] bytes with [tag]. Returns false if there is no descriptor. The callback counts itself
 * in side_sent. */
bool side_try_send(mca_btl_base_tag_t tag, const void *data, size_t len, uint8_t order);
/* The same, but makes progress until there is a descriptor. */
void side_send(mca_btl_base_tag_t tag, const void *data, size_t len, uint8_t order);
extern unsigned side_sent;
/* Hand [mine] to the other rank, and get [theirs] from it. */
void side_swap(const void *mine, void *theirs, size_t len);

/* Memory that the other rank may access. */
struct side_place {
    uint64_t address;
    unsigned char handle[MCA_BTL_REG_HANDLE_MAX_SIZE];
};
static inline mca_btl_base_registration_handle_t *side_handle(struct side_place *p)
{
    return (mca_btl_base_registration_handle_t *)(void *)p->handle;
}
/* Register [len] bytes at [memory] with [flags], and swap places with the other rank. */
mca_btl_base_registration_handle_t *side_share(void *memory, size_t len, uint32_t flags,
                                               struct side_place *theirs);

#endif
