/* SPDX-License-Identifier: BSD-3-Clause */
/* Small pieces of a transfer, packed into active messages (vis_am.c). */
#ifndef GASNETW_VIS_H
#define GASNETW_VIS_H

#include "op.h"

struct gasnetw_piece {
    uint64_t addr, len;
};
_Static_assert(sizeof(struct gasnetw_piece) == 16, "wire structure");

/* A transfer, and the message that is being filled with its pieces. */
struct gasnetw_vis {
    bool put;
    gasnet_node_t node;           /* the other side */
    struct gasnetw_op *op;        /* counts its messages */
    size_t longest;               /* length of a message */
    char *out;                    /* [longest]; null: none yet */
    size_t used, wanted;          /* bytes filled; bytes that it asks for */
    struct gasnetw_piece *pieces; /* get: where the data go */
    size_t count;
};

/* Begin the message of [t]. The caller has set the other members of [t]. */
void gasnetw_vis_begin(struct gasnetw_vis *t);
/* Add a piece whose addresses have been checked. May send the message. The caller may change the
 * source of a put on return. */
void gasnetw_vis_pack(struct gasnetw_vis *t, char *dst, char *src, size_t len);
/* Send the rest. */
void gasnetw_vis_end(struct gasnetw_vis *t);

#endif
