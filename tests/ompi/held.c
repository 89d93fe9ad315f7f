/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_THREAD_MULTIPLE: a callback in one thread of rank 1, inside of Weft's handler, wants a lock.
 * Another thread holds the lock and calls the module: each call returns while the callback waits.
 * With btl_weft_order=all, a put that cannot begin is given back. Rank 0 prints "ok". */
#include "side.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { DATA = MCA_BTL_TAG_USR + 1, LAST = MCA_BTL_TAG_USR + 2, DEADLINE = 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t entered;
static atomic_uint in_count, last_count, ended, begun;
static uint64_t word, one = 1, old[3];
static struct side_place place;

static void on_data(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                    mca_btl_base_descriptor_t *des, void *arg)
{
    (void)btl, (void)tag, (void)des, (void)arg;
    sem_post(&entered);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    in_count++;
}

static void on_last(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                    mca_btl_base_descriptor_t *des, void *arg)
{
    (void)btl, (void)tag, (void)des, (void)arg;
    last_count++;
}

static bool is_here(void)
{
    return in_count;
}

static bool are_all_here(void)
{
    return last_count == 2;
}

static void *progress(void *arg)
{
    side_until(is_here);
    return arg;
}

static void on_ended(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                     void *local, mca_btl_base_registration_handle_t *h, void *context, void *data,
                     int status)
{
    CHECK(btl == side.btl && peer == side.peer && status == OPAL_SUCCESS);
    ended++;
    (void)local, (void)h, (void)context, (void)data;
}

static bool all_have_ended(void)
{
    return ended == begun;
}

static int put(void)
{
    int rc = side.btl->btl_put(side.btl, side.peer, &one, place.address, NULL, side_handle(&place),
                               8, 0, MCA_BTL_NO_ORDER, on_ended, NULL, NULL);
    begun += rc == OPAL_SUCCESS;
    return rc;
}

static void accesses(void)
{
    CHECK(side.btl->btl_get(side.btl, side.peer, &old[0], place.address, NULL, side_handle(&place),
                            8, 0, MCA_BTL_NO_ORDER, on_ended, NULL, NULL) == OPAL_SUCCESS);
    CHECK(side.btl->btl_atomic_fop(side.btl, side.peer, &old[1], place.address, NULL,
                                   side_handle(&place), MCA_BTL_ATOMIC_ADD, 0, 0, MCA_BTL_NO_ORDER,
                                   on_ended, NULL, NULL) == OPAL_SUCCESS);
    begun += 2;
}

static void memory(void)
{
    static unsigned char bytes[10000];
    for (uint32_t flags = 0; flags < 2; flags++) {
        mca_btl_base_registration_handle_t *h = side.btl->btl_register_mem(
            side.btl, MCA_BTL_ENDPOINT_ANY, bytes, sizeof bytes,
            flags ? MCA_BTL_REG_FLAG_ACCESS_ANY : MCA_BTL_REG_FLAG_REMOTE_READ);
        CHECK(h);
        CHECK(side.btl->btl_deregister_mem(side.btl, h) == OPAL_SUCCESS);
    }
}

/* Call everything while the lock is held. */
static void call_all(bool is_waited)
{
    mca_btl_base_descriptor_t *des;
    CHECK(side.btl->btl_sendi(side.btl, side.peer, NULL, &one, sizeof one, 0, MCA_BTL_NO_ORDER, 0,
                              LAST, &des) != OPAL_SUCCESS);
    CHECK(des && side.btl->btl_free(side.btl, des) == OPAL_SUCCESS);
    side_send(LAST, &one, sizeof one, MCA_BTL_NO_ORDER);
    accesses();
    memory();
    CHECK(put() == (is_waited ? OPAL_ERR_OUT_OF_RESOURCE : OPAL_SUCCESS));
    side_send(LAST, &one, sizeof one, MCA_BTL_NO_ORDER);
}

static void receive(bool is_waited)
{
    struct timespec end;
    pthread_t thread;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += DEADLINE;
    alarm(DEADLINE); /* ends a call that does not return */
    pthread_mutex_lock(&lock);
    CHECK(!sem_init(&entered, 0, 0));
    CHECK(!pthread_create(&thread, NULL, progress, NULL));
    CHECK(!sem_timedwait(&entered, &end)); /* the callback runs */
    call_all(is_waited);
    CHECK(!in_count);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    while (is_waited && put() != OPAL_SUCCESS)
        opal_progress();
    side_until(all_have_ended);
    alarm(0);
}

int main(int argc, char **argv)
{
    mca_btl_base_registration_handle_t *h;
    const bool is_waited = argc > 1; /* by puts: btl_weft_order=all */
    side.threads = MPI_THREAD_MULTIPLE;
    side_open(&argc, &argv);
    CHECK(side.btl->btl_register(side.btl, DATA, on_data, NULL) == OPAL_SUCCESS);
    CHECK(side.btl->btl_register(side.btl, LAST, on_last, NULL) == OPAL_SUCCESS);
    h = side_share(&word, sizeof word, MCA_BTL_REG_FLAG_ACCESS_ANY, &place);
    side_go();
    if (side.rank)
        receive(is_waited);
    else {
        side_send(DATA, &one, sizeof one, MCA_BTL_NO_ORDER);
        side_until(are_all_here);
    }
    side_meet();
    CHECK(side.rank || word == 1);
    CHECK(side.btl->btl_deregister_mem(side.btl, h) == OPAL_SUCCESS);
    return side_close();
}
