/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that arrive while this node is in gasnet_attach. Nodes that have returned from it send
 * already, and this node polls in its last barrier. The handlers may need what the program sets up
 * after gasnet_attach, and many programs do so without a barrier of their own, since GASNet's nodes
 * seldom poll in there. So the messages are kept until the first poll after gasnet_attach. */
#include <stdlib.h>
#include <string.h>

#include "am.h"
#include "binding.h"

struct early {
    struct early *next;
    struct weft_am am;
    uint32_t args[WEFT_AM_MAX_ARGS];
    unsigned char data[]; /* aligned as malloc aligns */
};
_Static_assert(offsetof(struct early, data) % 16 == 0, "handlers expect aligned payloads");

/* The kept messages, in the order in which they arrived. Only the thread in gasnet_attach appends;
 * the first thread that polls later takes all. */
static struct early *first, **last = &first;
_Atomic bool gasnetw_early;

void gasnetw_early_keep(const struct weft_am *am)
{
    bool in_place = am->handler == AM_LONG; /* the data are where they belong */
    struct early *e = malloc(sizeof *e + (in_place ? 0 : am->len));
    if (!e)
        gasnetw_fatal("out of memory: a message of %u bytes that arrived in gasnet_attach",
                      am->len);
    *e = (struct early){.am = *am};
    if (am->nargs)
        memcpy(e->args, am->args, am->nargs * sizeof *am->args);
    e->am.args = e->args;
    if (!in_place && am->len)
        memcpy(e->data, am->data, am->len);
    if (!in_place)
        e->am.data = e->data;
    e->am.token = NULL;
    e->am.reply_max = 0; /* a reply goes as a message of its own (reply.c) */
    *last = e;
    last = &e->next;
    atomic_store_explicit(&gasnetw_early, true, memory_order_release);
}

void gasnetw_early_run(void)
{
    struct early *e, *next;
    if (!atomic_exchange_explicit(&gasnetw_early, false, memory_order_acq_rel))
        return;
    e = first;
    first = NULL;
    for (; e; e = next) {
        next = e->next;
        gasnetw_am_run(&e->am);
        free(e);
    }
    (void)weft_ep_poll(gasnetw_binding.ep); /* sends the handlers' replies */
}
