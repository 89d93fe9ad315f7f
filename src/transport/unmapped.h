/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions of peers whose memory is never mapped: their owner checks each access. */
#ifndef WF_TRANSPORT_UNMAPPED_H
#define WF_TRANSPORT_UNMAPPED_H

#include <stdlib.h>

#include "transport/address.h"

/* What remote_map of such a transport does, for a peer whose process has the token [token]. Nothing
 * is mapped and no message is sent. The caller compares a generation word before each access; the
 * word that is allocated here never changes, so the comparison always succeeds. *cookie is to be
 * freed. Returns OK | EKEY (the key is of another process) | ENOMEM */
static inline enum weft_status wf_remote_unmapped(uint64_t token, const struct wf_key *key,
                                                  struct weft_remote *remote, void **cookie)
{
    uint64_t *word;
    if (key->token != token)
        return WEFT_EKEY;
    word = (uint64_t *)malloc(sizeof *word);
    if (!word)
        return WEFT_ENOMEM;
    *word = key->gen;
    remote->length = key->length;
    remote->gen_word = word;
    remote->gen = key->gen;
    remote->access = key->access;
    *cookie = word;
    return WEFT_OK;
}

#endif
