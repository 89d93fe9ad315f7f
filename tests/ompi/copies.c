/* SPDX-License-Identifier: BSD-3-Clause */
/* With WEFT_PROGRESS=thread a thread of Weft's receives messages for a rank that makes no progress.
 * It keeps a bounded amount of them, and then the sender has to wait. Rank 0 sends more than that,
 * until nothing leaves any more. Then rank 1 makes progress, and gets everything. */
#include "side.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

enum {
    DATA = MCA_BTL_TAG_USR + 1,
    LEN = 12000,
    COUNT = 5500,    /* 66 MB */
    MOST = 40 << 20, /* the bound is 16 MiB; rings and descriptors take room, too */
};

static unsigned char data[LEN];
static unsigned in_count;

static void on_data(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                    mca_btl_base_descriptor_t *des, void *arg)
{
    (void)btl, (void)tag, (void)arg;
    CHECK(des->des_segments->seg_len == LEN);
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

static void send_all(pid_t other)
{
    unsigned n = send_until_stuck();
    CHECK(!kill(other, SIGUSR1));
    while (n++ < COUNT)
        side_send(DATA, data, LEN, MCA_BTL_NO_ORDER);
    side_until(all_are_sent);
}

static void receive_all(const sigset_t *signals)
{
    const struct timespec most = {20, 0};
    const long begin = resident();
    CHECK(sigtimedwait(signals, NULL, &most) == SIGUSR1); /* no progress until then */
    CHECK(resident() - begin < MOST);
    side_until(all_are_here);
}

int main(int argc, char **argv)
{
    pid_t pid = getpid(), other;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL); /* in all threads of MPI, too */
    side_open(&argc, &argv);
    CHECK(side.btl->btl_register(side.btl, DATA, on_data, NULL) == OPAL_SUCCESS);
    side_swap(&pid, &other, sizeof pid);
    side_meet();
    if (side.rank)
        receive_all(&signals);
    else
        send_all(other);
    return side_close();
}
