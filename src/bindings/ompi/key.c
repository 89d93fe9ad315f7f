/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks on different nodes authenticate each other by a key that rank 0 of the job draws and
 * publishes with its address, when its endpoint is open. The key is as private as the launcher's
 * channel. A WEFT_KEY_FILE takes precedence.
 *
 * The node's service (WEFT_NODE=1) serves only endpoints that open with the key. For it rank 0
 * publishes the key separately, before it opens an endpoint. The other ranks do not meet rank 0 in
 * a fence: a rank without this component, or with another WEFT_NODE, would not enter that fence,
 * but Open MPI's own one, and the launcher would take the two for one. They ask the launcher for
 * the key. It answers when rank 0 has published something. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <opal/mca/pmix/pmix.h>

#include "key.h"

#define EARLY_KEY "weft.btl.key"
#define WAIT_S 30

/* ---- before the endpoint opens ---- */

static bool draw(void *key, size_t len)
{
    ssize_t n;
    do
        n = getrandom(key, len, 0);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)len;
}

/* Publish the key, so that ranks can get it now. If that fails, they get it with the card. */
static void publish(unsigned char *key)
{
    int rc;
    OPAL_MODEX_SEND_STRING(rc, OPAL_PMIX_GLOBAL, EARLY_KEY, key, WEFT_KEY_SIZE);
    if (rc == OPAL_SUCCESS)
        (void)opal_pmix.commit();
}

/* Returns what rank 0 has published, or NULL. Waits until it has, or WAIT_S. */
static opal_value_t *published(void)
{
    const opal_process_name_t first = {.jobid = OPAL_PROC_MY_NAME.jobid, .vpid = 0};
    opal_value_t *value = NULL, *limit = OBJ_NEW(opal_value_t);
    opal_list_t info;
    int rc;
    if (!limit)
        return NULL;
    limit->key = strdup(OPAL_PMIX_TIMEOUT);
    limit->type = OPAL_INT;
    limit->data.integer = WAIT_S;
    OBJ_CONSTRUCT(&info, opal_list_t);
    opal_list_append(&info, &limit->super);
    rc = opal_pmix.get(&first, EARLY_KEY, &info, &value);
    OPAL_LIST_DESTRUCT(&info);
    return rc == OPAL_SUCCESS ? value : NULL;
}

static enum weft_status set(const void *key)
{
    enum weft_status s = weft_ctx_set_key(wbtl.ctx, key, WEFT_KEY_SIZE);
    wbtl.key_set = s == WEFT_OK;
    return s;
}

static enum weft_status take_published(void)
{
    opal_value_t *value = published();
    enum weft_status s = WEFT_EUNREACH;
    if (value && value->type == OPAL_BYTE_OBJECT && value->data.bo.bytes &&
        value->data.bo.size == WEFT_KEY_SIZE) {
        s = set(value->data.bo.bytes);
        explicit_bzero(value->data.bo.bytes, WEFT_KEY_SIZE);
    }
    if (value)
        OBJ_RELEASE(value);
    if (s != WEFT_EUNREACH)
        return s;
    opal_output(0, "btl weft: rank 0 has published no key for the node's service, which this rank "
                   "does not use therefore: give all ranks the same WEFT_NODE and WEFT_KEY_FILE");
    return WEFT_OK;
}

enum weft_status wbtl_key_open(struct wbtl_card *card)
{
    enum weft_status s = WEFT_OK;
    if (wbtl.key_file)
        return WEFT_OK;
    if (OPAL_PROC_MY_NAME.vpid != 0)
        return wbtl.key_early ? take_published() : WEFT_OK;
    card->has_key = draw(card->key, sizeof card->key);
    if (card->has_key)
        s = set(card->key);
    if (wbtl.key_set && wbtl.key_early)
        publish(card->key);
    return s;
}

/* ---- afterwards ---- */

/* Set the key that rank 0 of this job has published, once. Only a thread that drains calls this.
 * Returns OK | EUNREACH (rank 0 has published none) | a failure of weft_ctx_set_key */
static enum weft_status key_set(void)
{
    opal_process_name_t first = {.jobid = OPAL_PROC_MY_NAME.jobid, .vpid = 0};
    struct wbtl_card card;
    enum weft_status s = WEFT_EUNREACH;
    if (wbtl.key_file || wbtl.key_set)
        return WEFT_OK;
    if (wbtl_card_of(&first, &card)) {
        if (card.has_key)
            s = weft_ctx_set_key(wbtl.ctx, card.key, sizeof card.key);
        explicit_bzero(card.key, sizeof card.key);
    }
    wbtl.key_set = s == WEFT_OK;
    return s;
}

void wbtl_key_get(void)
{
    atomic_store(&wbtl.key_due, false);
    (void)key_set(); /* a rank that needs the key asks again, and reports that there is none */
}

enum weft_status wbtl_key_find(const wbtl_peer *peer)
{
    enum weft_status s;
    if (wbtl.key_file)
        return WEFT_OK;
    if (peer->proc->proc_name.jobid != OPAL_PROC_MY_NAME.jobid) {
        opal_output(0,
                    "btl weft: %s is a rank of another job and is reached by a network only: set "
                    "WEFT_KEY_FILE for both jobs",
                    OPAL_NAME_PRINT(peer->proc->proc_name));
        return WEFT_EUNREACH;
    }
    s = key_set();
    if (s != WEFT_OK)
        opal_output(0,
                    "btl weft: rank 0 has no key for other nodes: set WEFT_KEY_FILE for all ranks "
                    "or for none");
    return s;
}
