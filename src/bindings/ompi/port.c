/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports: endpoints of the process, and the threads that poll them.
 *
 * One thread at a time polls a port; others return at once. The kernel may take the processor from
 * the thread that polls. Then the threads of this process, which look for messages without end,
 * find none until that thread runs again. With four threads of two ranks on two cores, a round of
 * the test ompi_threads took 100 ms for this reason. So a thread that finds another in its way
 * again and again gives its processor up. */
#include <sched.h>

#include "binding.h"

#define PATIENCE 64 /* refused polls, some microseconds: a poll without events takes 50 ns */

static _Thread_local unsigned refused[2]; /* polls in a row: of the first port, of the own */
static _Thread_local unsigned next_other;
static _Thread_local unsigned mine; /* 1 + the port of this thread; 0: none yet */

unsigned wbtl_port_of_thread(void)
{
    static atomic_uint threads;
    if (wbtl.nports == 1)
        return 0;
    if (!mine)
        mine = 1 + atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed);
    return (mine - 1) % wbtl.nports;
}

/* Another thread polls [port], or this one does. */
static int poll_refused(const struct wbtl_port *port, unsigned *count)
{
    if (atomic_load_explicit(&port->poller, memory_order_relaxed) == wbtl_self())
        return -1;
    if (++*count >= PATIENCE) {
        *count = 0;
        sched_yield();
    }
    return 0;
}

/* [poller] guards nothing: the endpoint has its own lock. */
static int poll_counted(struct wbtl_port *port, unsigned *count)
{
    uintptr_t none = 0;
    int n;
    if (atomic_load_explicit(&port->poller, memory_order_relaxed) ||
        !atomic_compare_exchange_strong_explicit(&port->poller, &none, wbtl_self(),
                                                 memory_order_relaxed, memory_order_relaxed))
        return poll_refused(port, count);
    *count = 0;
    n = weft_ep_poll(port->ep);
    atomic_store_explicit(&port->poller, 0, memory_order_relaxed);
    return n;
}

int wbtl_port_poll(struct wbtl_port *port)
{
    return wbtl.threads ? poll_counted(port, &refused[0]) : weft_ep_poll(port->ep);
}

/* Accesses of a thread that has left MPI, or ended, may be awaited by another thread. So each
 * thread also polls one of the other ports in a turn without events. */
__attribute__((noinline)) static int others_poll(void)
{
    const unsigned own = wbtl_port_of_thread();
    unsigned other, none = 0;
    int n = own ? poll_counted(&wbtl.ports[own], &refused[1]) : 0;
    if (!n) {
        other = 1 + next_other++ % (wbtl.nports - 1);
        n = poll_counted(&wbtl.ports[other], &none);
    }
    return n < 0 ? 0 : n;
}

int wbtl_ports_poll(void)
{
    const int n = wbtl_port_poll(&wbtl.ports[0]);
    if (OPAL_LIKELY(wbtl.nports == 1) || n < 0)
        return n;
    return n + others_poll();
}
