/* SPDX-License-Identifier: BSD-3-Clause */
/* With WEFT_PROGRESS=thread a thread of Weft's receives messages for a rank that makes no progress.
 * It keeps a bounded amount of them, and then the sender has to wait. Rank 0 sends more than that.
 *
 * usage: ompi_copies [nested|locked|puts]
 *           rank 1 makes no progress until nothing leaves rank 0 any more, then gets everything
 *   nested  the same, but the first callback waits for an access to rank 0
 *   locked  the same, but the first callback wants a lock, whose holder waits for such an access
 *   puts    for btl_weft_order=all, without WEFT_PROGRESS: rank 1 makes no progress except in puts,
 *           each of which waits for its end, until rank 0 has sent everything */
#include "side.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum {
    DATA = MCA_BTL_TAG_USR + 1,
    LEN = 12000,
    COUNT = 5500,    /* 66 MB */
    MOST = 40 << 20, /* the bound is 16 MiB; rings and descriptors take room, too */
};

static const char *how;
static unsigned char data[LEN];
static unsigned in_count;
static uint64_t word, one = 1, old; /* the other rank accesses [word] */
static struct side_place place;     /* of the other rank's */
static bool has_ended;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t entered;

static void on_ended(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                     void *local, mca_btl_base_registration_handle_t *h, void *context, void *arg,
                     int status)
{
    (void)btl, (void)peer, (void)local, (void)h, (void)context, (void)arg;
    CHECK(status == OPAL_SUCCESS);
    has_ended = true;
}

static bool is_over(void)
{
    return has_ended;
}

/* Add to the word of the other rank, and wait for the old value. */
static void add(void)
{
    has_ended = false;
    CHECK(side.btl->btl_atomic_fop(side.btl, side.peer, &old, place.address, NULL,
                                   side_handle(&place), MCA_BTL_ATOMIC_ADD, 1, 0, MCA_BTL_NO_ORDER,
                                   on_ended, NULL, NULL) == OPAL_SUCCESS);
    side_until(is_over);
}

static void on_data(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                    mca_btl_base_descriptor_t *des, void *arg)
{
    (void)btl, (void)tag, (void)arg;
    CHECK(des->des_segments->seg_len == LEN);
    if (!in_count && !strcmp(how, "nested"))
        add();
    if (!in_count && !strcmp(how, "locked")) {
        sem_post(&entered);
        pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock);
    }
    in_count++;
}

static bool all_are_here(void)
{
    return in_count == COUNT;
}

static bool all_are_sent(void)
{
    return side_sent == COUNT;
}

static long resident(void)
{
    long pages = 0, all;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%ld %ld", &all, &pages) == 2);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

/* Send as long as messages leave. Returns how many were begun. */
static unsigned send_until_stuck(void)
{
    unsigned n = 0, before = 0;
    double since = MPI_Wtime();
    while (side_sent < COUNT && MPI_Wtime() - since < 0.5) {
        n += n < COUNT && side_try_send(DATA, data, LEN, MCA_BTL_NO_ORDER);
        opal_progress();
        if (side_sent != before)
            since = MPI_Wtime();
        before = side_sent;
    }
    return n;
}

static void send_rest(unsigned n)
{
    while (n++ < COUNT)
        side_send(DATA, data, LEN, MCA_BTL_NO_ORDER);
    side_until(all_are_sent);
}

static void send_all(pid_t other)
{
    unsigned n = send_until_stuck();
    CHECK(!kill(other, SIGUSR1));
    send_rest(n);
}

static void *deliver(void *arg)
{
    side_until(all_are_here);
    return arg;
}

/* Hold the lock that the callback of another thread wants. */
static void receive_locked(void)
{
    struct timespec end;
    pthread_t thread;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    pthread_mutex_lock(&lock);
    CHECK(!sem_init(&entered, 0, 0));
    CHECK(!pthread_create(&thread, NULL, deliver, NULL));
    CHECK(!sem_timedwait(&entered, &end)); /* the callback runs */
    add();
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
}

static void receive_all(const sigset_t *signals)
{
    const struct timespec most = {20, 0};
    const long begin = resident();
    CHECK(sigtimedwait(signals, NULL, &most) == SIGUSR1); /* no progress until then */
    CHECK(resident() - begin < MOST);
    if (!strcmp(how, "locked"))
        receive_locked();
    side_until(all_are_here);
}

static void put(void)
{
    CHECK(side.btl->btl_put(side.btl, side.peer, &one, place.address, NULL, side_handle(&place),
                            sizeof one, 0, MCA_BTL_NO_ORDER, on_ended, NULL, NULL) == OPAL_SUCCESS);
}

/* Put until rank 0 has put the word of this rank. */
static void receive_putting(void)
{
    const double end = MPI_Wtime() + 20;
    while (!__atomic_load_n(&word, __ATOMIC_ACQUIRE)) {
        put();
        CHECK(MPI_Wtime() < end);
    }
    CHECK(!in_count); /* no callback ran */
    side_until(all_are_here);
}

int main(int argc, char **argv)
{
    mca_btl_base_registration_handle_t *h;
    pid_t pid = getpid(), other;
    sigset_t signals;
    bool puts;
    how = argc > 1 ? argv[1] : "";
    puts = !strcmp(how, "puts");
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL); /* in all threads of MPI, too */
    side.threads = strcmp(how, "locked") ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE;
    side_open(&argc, &argv);
    CHECK(side.btl->btl_register(side.btl, DATA, on_data, NULL) == OPAL_SUCCESS);
    side_swap(&pid, &other, sizeof pid);
    h = side_share(&word, sizeof word, MCA_BTL_REG_FLAG_ACCESS_ANY, &place);
    side_go();
    if (!side.rank && puts) {
        send_rest(0);
        put();
    } else if (!side.rank)
        send_all(other);
    else if (puts)
        receive_putting();
    else
        receive_all(&signals);
    side_meet();
    CHECK(side.btl->btl_deregister_mem(side.btl, h) == OPAL_SUCCESS);
    return side_close();
}
