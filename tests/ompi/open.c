/* SPDX-License-Identifier: BSD-3-Clause */
/* A thread of rank 1 is inside of a callback, and so in Weft's endpoint, while MPI_Finalize runs.
 * The endpoint cannot be closed: MPI_Finalize returns nevertheless, and messages that come
 * afterwards are dropped. */
#include "side.h"

#include <pthread.h>
#include <semaphore.h>
#include <time.h>

enum { DATA = MCA_BTL_TAG_USR + 1, COUNT = 3 };

static sem_t entered, released;
static unsigned in_count;

static void in_time(sem_t *s)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    if (!sem_timedwait(s, &end))
        return;
    fprintf(stderr, "rank %d: still waiting after 20 s\n", side.rank);
    _Exit(1);
}

static void on_data(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                    mca_btl_base_descriptor_t *des, void *arg)
{
    (void)btl, (void)tag, (void)des, (void)arg;
    in_count++;
    sem_post(&entered);
    in_time(&released);
}

static void *receive(void *arg)
{
    while (!in_count)
        (void)side.btl->btl_component->btl_progress();
    return arg;
}

static bool all_are_sent(void)
{
    return side_sent == COUNT;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    side.threads = MPI_THREAD_MULTIPLE;
    side_open(&argc, &argv);
    CHECK(!sem_init(&entered, 0, 0) && !sem_init(&released, 0, 0));
    CHECK(side.btl->btl_register(side.btl, DATA, on_data, NULL) == OPAL_SUCCESS);
    side_go();
    if (!side.rank) {
        for (int i = 0; i < COUNT; i++)
            side_send(DATA, &i, sizeof i, MCA_BTL_NO_ORDER);
        side_until(all_are_sent);
        return MPI_Finalize();
    }
    CHECK(!pthread_create(&thread, NULL, receive, NULL));
    in_time(&entered);
    if (MPI_Finalize() != MPI_SUCCESS)
        return 1;
    sem_post(&released);
    pthread_join(thread, NULL);
    return in_count == 1 && printf("ok\n") > 0 ? 0 : 1;
}
