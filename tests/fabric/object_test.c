/* SPDX-License-Identifier: BSD-3-Clause */
/* The objects: fi_fabric(3), fi_domain(3), fi_av(3), fi_eq(3), fi_endpoint(3). */
#include "sides.h"

#include <malloc.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static const struct how plain = {0};

/* Open the fabric and domain of [s] alone. */
static void domain_open(struct side *s)
{
    struct fi_info *h = hints_new(&plain);
    memset(s, 0, sizeof *s);
    assert_int_equal(fi_getinfo(API, NULL, NULL, 0, h, &s->info), 0);
    fi_freeinfo(h);
    assert_int_equal(fi_fabric(s->info->fabric_attr, &s->fabric, NULL), 0);
    assert_int_equal(fi_domain(s->fabric, s->info, &s->domain, NULL), 0);
}

/* ---- address vectors ---- */

static void vector_test(void **state)
{
    uint8_t name[64], got[80], three[192] = {0};
    size_t len = sizeof name;
    fi_addr_t addr[3];
    int errors[3];
    char text[300];
    (void)state;
    open_both(&plain);
    assert_int_equal(a.self, 0);
    assert_int_equal(a.other, 1);
    assert_int_equal(fi_getname(&b.ep->fid, name, &len), 0);
    memset(got, 0xee, sizeof got);
    len = sizeof got;
    assert_int_equal(fi_av_lookup(a.av, a.other, got, &len), 0);
    assert_int_equal(len, 64);
    assert_memory_equal(got, name, 64);
    assert_int_equal(got[64], 0xee);
    len = 10;
    assert_int_equal(fi_av_lookup(a.av, a.other, got, &len), 0);
    assert_int_equal(len, 64);
    assert_int_equal(fi_av_lookup(a.av, 99, got, &len), -FI_EINVAL);
    /* Zeroes and another version of addresses are refused, the rest is inserted. */
    memcpy(three + 64, name, 64);
    memcpy(three + 128, name, 64);
    three[128] ^= 0x40;
    assert_int_equal(fi_av_insert(a.av, three, 3, addr, FI_SYNC_ERR, errors), 1);
    assert_true(errors[0] > 0 && errors[1] == 0 && errors[2] > 0);
    assert_true(addr[0] == FI_ADDR_NOTAVAIL && addr[1] == 2 && addr[2] == FI_ADDR_NOTAVAIL);
    assert_int_equal(fi_av_insert(a.av, three, 1, addr, 0, NULL), 0);
    assert_true(addr[0] == FI_ADDR_NOTAVAIL);
    len = sizeof text;
    assert_non_null(fi_av_straddr(a.av, name, text, &len));
    assert_int_equal(len, strlen(text) + 1);
    len = 5;
    assert_non_null(fi_av_straddr(a.av, name, text, &len));
    assert_true(len > 100 && strlen(text) == 4);
    close_both();
}

static void remove_test(void **state)
{
    uint8_t name[64];
    size_t len = sizeof name;
    fi_addr_t addr, more;
    (void)state;
    open_both(&plain);
    RETRY(fi_tinject(a.ep, "1", 1, a.other, 1));
    assert_int_equal(fi_getname(&b.ep->fid, name, &len), 0);
    assert_int_equal(fi_av_remove(a.av, &a.other, 1, 0), 0);
    assert_int_equal(fi_tinject(a.ep, "2", 1, a.other, 1), -FI_EINVAL);
    assert_int_equal(fi_av_remove(a.av, &a.other, 1, 0), -FI_EINVAL);
    /* The lowest unused index, then the next one. */
    assert_int_equal(fi_av_insert(a.av, name, 1, &addr, 0, NULL), 1);
    assert_int_equal(fi_av_insert(a.av, name, 1, &more, 0, NULL), 1);
    assert_true(addr == a.other && more == 2);
    RETRY(fi_tinject(a.ep, "3", 1, more, 1));
    for (int i = 0; i < 2; i++) {
        char in;
        RETRY(fi_trecv(b.ep, &in, 1, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
        take(&b);
        assert_int_equal(in, i ? '3' : '1');
    }
    close_both();
}

#ifndef SANITIZED /* a sanitizer has allocations of its own */
static long page_faults(void)
{
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
    return u.ru_minflt;
}

/* Fails when: closing an endpoint, or a peer whose address another thread has removed, looks at all
 * addresses. The arrays of peers are not in memory but where the endpoint has opened some. */
static void many_peers_test(void **state)
{
    enum { N = 300000, FEW = 200 }; /* a look at all takes 586 pages */
    const struct how how = {.threading = FI_THREAD_COMPLETION};
    uint8_t name[64];
    size_t len = sizeof name;
    fi_addr_t last;
    long before;
    (void)state;
    /* Each array is memory of its own, of small pages. */
    assert_int_equal(mallopt(M_MMAP_THRESHOLD, 65536), 1);
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
    open_both(&how);
    assert_int_equal(fi_getname(&b.ep->fid, name, &len), 0);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(fi_av_insert(a.av, name, 1, &last, 0, NULL), 1);
    RETRY(fi_tinject(a.ep, "1", 1, a.other, 1));
    RETRY(fi_tinject(a.ep, "1", 1, last, 1));
    assert_int_equal(fi_av_remove(a.av, &last, 1, 0), 0);
    before = page_faults();
    RETRY(fi_tinject(a.ep, "1", 1, a.other, 1)); /* closes the peer of [last] */
    assert_in_range(page_faults() - before, 0, FEW);
    assert_int_equal(fi_av_insert(a.av, name, 1, &last, 0, NULL), 1);
    RETRY(fi_tinject(a.ep, "1", 1, last, 1));
    before = page_faults();
    assert_int_equal(fi_close(&a.ep->fid), 0);
    assert_in_range(page_faults() - before, 0, FEW);
    a.ep = NULL;
    close_both();
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
}
#endif

/* Fails when: the source of a message is not the entry that was inserted last for its sender, if
 * that has a lower index than earlier ones, and the vector has grown since. */
static void newest_test(void **state)
{
    const struct how how = {.caps = FI_TAGGED | FI_SOURCE};
    uint8_t name[64];
    size_t len = sizeof name;
    fi_addr_t at, source;
    char in;
    (void)state;
    open_both(&how);
    assert_int_equal(fi_getname(&a.ep->fid, name, &len), 0);
    assert_int_equal(fi_av_insert(b.av, name, 1, &at, 0, NULL), 1);
    assert_int_equal(fi_av_remove(b.av, &b.other, 1, 0), 0);
    assert_int_equal(fi_av_insert(b.av, name, 1, &b.other, 0, NULL), 1);
    assert_true(b.other < at);
    assert_int_equal(fi_getname(&b.ep->fid, name, &len), 0);
    for (unsigned i = 0; i < 300; i++) {
        RETRY(fi_trecv(b.ep, &in, 1, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
        RETRY(fi_tinject(a.ep, "1", 1, a.other, 1));
        take_from(&b, &source);
        assert_true(source == b.other);
        assert_int_equal(fi_av_insert(b.av, name, 1, &at, 0, NULL), 1);
    }
    close_both();
}

/* Many entries, each found again. */
static void large_vector_test(void **state)
{
    enum { N = 100000 };
    uint8_t name[64], got[64];
    size_t len = sizeof name;
    uint64_t begin;
    fi_addr_t addr;
    (void)state;
    open_both(&plain);
    assert_int_equal(fi_getname(&b.ep->fid, name, &len), 0);
    begin = now_ms();
    for (uint32_t i = 0; i < N; i++) {
        memcpy(name + 4, &i, 4); /* of another endpoint */
        assert_int_equal(fi_av_insert(a.av, name, 1, &addr, 0, NULL), 1);
        assert_int_equal(addr, i + 2);
    }
    assert_true(now_ms() - begin < 5000);
    for (uint32_t i = 0; i < N; i += 997) {
        assert_int_equal(fi_av_lookup(a.av, i + 2, got, &len), 0);
        assert_memory_equal(got + 4, &i, 4);
    }
    RETRY(fi_tinject(a.ep, "1", 1, a.other, 1));
    close_both();
}

static void later_test(void **state)
{
    struct fi_av_attr attr = {.type = FI_AV_MAP, .flags = FI_EVENT};
    struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_FD};
    struct fi_eq_entry entry;
    char data[8] = "";
    struct fi_eq_err_entry err = {.err_data = data, .err_data_size = sizeof data};
    uint8_t names[128] = {0};
    size_t len = 64;
    struct fid_eq *eq;
    struct fid_av *av;
    fi_addr_t addr[2];
    uint32_t event;
    (void)state;
    open_both(&plain);
    assert_int_equal(fi_getname(&b.ep->fid, names, &len), 0);
    assert_int_equal(fi_eq_open(a.fabric, &eq_attr, &eq, NULL), 0);
    assert_int_equal(fi_av_open(a.domain, &attr, &av, NULL), 0);
    assert_int_equal(fi_av_insert(av, names, 2, addr, 0, &addr), -FI_ENOEQ);
    assert_int_equal(fi_av_bind(av, &eq->fid, 0), 0);
    assert_int_equal(fi_close(&eq->fid), -FI_EBUSY);
    assert_int_equal(fi_av_insert(av, names, 2, addr, 0, &addr), 0);
    assert_int_equal(fi_eq_read(eq, &event, &entry, sizeof entry, 0), -FI_EAVAIL);
    assert_int_equal(fi_eq_readerr(eq, &err, 0), sizeof err);
    assert_true(err.data == 1 && err.err > 0 && err.context == &addr && err.fid == &av->fid);
    assert_true(err.err_data == data && err.err_data_size == 0); /* there are none */
    assert_int_equal(fi_eq_sread(eq, &event, &entry, sizeof entry, 1000, 0), sizeof entry);
    assert_int_equal(event, FI_AV_COMPLETE);
    assert_true(entry.data == 1 && entry.context == &addr && entry.fid == &av->fid);
    assert_int_equal(fi_close(&av->fid), 0);
    assert_int_equal(fi_close(&eq->fid), 0);
    close_both();
}

/* Fails when: a program of an interface before 1.5 gets a longer entry of an error than it has room
 * for. */
static void old_error_test(void **state)
{
    struct fi_av_attr attr = {.type = FI_AV_MAP, .flags = FI_EVENT};
    struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_FD};
    const struct how how = {.version = FI_VERSION(1, 4)};
    const size_t size = offsetof(struct fi_eq_err_entry, err_data_size);
    struct fi_eq_err_entry err;
    const uint8_t none[64] = {0};
    struct fid_eq *eq;
    struct fid_av *av;
    (void)state;
    side_open(&a, &how);
    assert_int_equal(fi_eq_open(a.fabric, &eq_attr, &eq, NULL), 0);
    assert_int_equal(fi_av_open(a.domain, &attr, &av, NULL), 0);
    assert_int_equal(fi_av_bind(av, &eq->fid, 0), 0);
    assert_int_equal(fi_av_insert(av, none, 1, NULL, 0, &attr), 0);
    memset(&err, 0xee, sizeof err);
    assert_int_equal(fi_eq_readerr(eq, &err, 0), size);
    assert_true(err.err == FI_EINVAL && err.context == &attr && !err.err_data);
    for (size_t i = size; i < sizeof err; i++)
        assert_int_equal(((uint8_t *)&err)[i], 0xee);
    assert_int_equal(fi_close(&av->fid), 0);
    assert_int_equal(fi_close(&eq->fid), 0);
    side_close(&a);
}

#ifndef SANITIZED /* a sanitizer has allocations of its own */
/* Allocations of this thread until there is no memory; 0: there is always some. */
static _Thread_local unsigned until_none;

static bool none_left(void)
{
    bool none = until_none == 1;
    until_none -= until_none > 1;
    return none;
}

/* In place of the C library's, also for the provider. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *malloc(size_t size)
{
    return none_left() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return none_left() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    return none_left() ? NULL : __libc_realloc(p, size);
}

static bool has_entry(struct fid_av *av, fi_addr_t addr)
{
    uint8_t got[64];
    size_t len = sizeof got;
    return !fi_av_lookup(av, addr, got, &len);
}

/* Insert three addresses, the first of which is none, with memory for [allocations] alone. Returns
 * what fi_av_insert returns; if that is -FI_ENOMEM, nothing is inserted and nothing reported. */
static int insert_with(unsigned allocations, struct fid_av *av, struct fid_eq *eq,
                       const uint8_t *names)
{
    fi_addr_t addr[3] = {7, 7, 7};
    int errors[3] = {0}, rc;
    struct fi_eq_entry entry;
    uint32_t event;
    until_none = allocations + 1;
    rc = fi_av_insert(av, names, 3, addr, eq ? 0 : FI_SYNC_ERR, eq ? (void *)addr : errors);
    until_none = 0;
    for (int i = 0; i < 3 && rc == -FI_ENOMEM; i++) {
        assert_true(addr[i] == FI_ADDR_NOTAVAIL && (eq || errors[i] == FI_ENOMEM));
        assert_false(has_entry(av, (fi_addr_t)i));
        if (eq)
            assert_int_equal(fi_eq_read(eq, &event, &entry, sizeof entry, 0), -FI_EAGAIN);
    }
    if (rc != -FI_ENOMEM)
        assert_true(addr[0] == FI_ADDR_NOTAVAIL && addr[1] == 0 && addr[2] == 1);
    return rc;
}

/* The same for a new vector, which reports [later] to a queue, or at once. Returns whether there
 * was memory; then all is reported. */
static bool inserted(unsigned allocations, bool later, const uint8_t *names)
{
    struct fi_av_attr attr = {.type = FI_AV_TABLE, .flags = later ? FI_EVENT : 0};
    struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_FD};
    struct fi_eq_err_entry err = {0};
    struct fi_eq_entry entry;
    struct fid_eq *eq = NULL;
    struct fid_av *av;
    uint32_t event;
    int rc;
    assert_int_equal(fi_av_open(a.domain, &attr, &av, NULL), 0);
    if (later) {
        assert_int_equal(fi_eq_open(a.fabric, &eq_attr, &eq, NULL), 0);
        assert_int_equal(fi_av_bind(av, &eq->fid, 0), 0);
    }
    rc = insert_with(allocations, av, eq, names);
    if (rc != -FI_ENOMEM && later) {
        assert_int_equal(fi_eq_readerr(eq, &err, 0), sizeof err);
        assert_true(err.data == 0 && err.err == FI_EINVAL);
        assert_int_equal(fi_eq_read(eq, &event, &entry, sizeof entry, 0), sizeof entry);
        assert_true(event == FI_AV_COMPLETE && entry.data == 2);
    }
    assert_int_equal(rc, rc == -FI_ENOMEM ? rc : later ? 0 : 2);
    assert_int_equal(fi_close(&av->fid), 0);
    if (later)
        assert_int_equal(fi_close(&eq->fid), 0);
    return rc != -FI_ENOMEM;
}

/* Fails when: an insertion that finds no memory keeps an address, reports something, or leaves
 * something else than FI_ADDR_NOTAVAIL to the program. */
static void no_memory_test(void **state)
{
    uint8_t names[3 * 64] = {0};
    size_t len = 64;
    (void)state;
    open_both(&plain);
    assert_int_equal(fi_getname(&b.ep->fid, names + 64, &len), 0);
    assert_int_equal(fi_getname(&a.ep->fid, names + 128, &len), 0);
    for (int later = 0; later < 2; later++) {
        unsigned needed = 0;
        while (!inserted(needed, later, names))
            assert_in_range(++needed, 1, 20);
        assert_true(needed >= (later ? 5 : 3)); /* the entries; an error and an event */
    }
    close_both();
}

/* Fails when: a registration that cannot be reported registers the region, keeps its key, or gives
 * the program a region. */
static void no_memory_region_test(void **state)
{
    static char buf[64];
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_FD};
    struct fid_mr *const none = (struct fid_mr *)(void *)buf, *mr;
    struct fi_eq_entry entry;
    unsigned refused = 0;
    struct fid_eq *eq;
    uint32_t event;
    int rc;
    (void)state;
    domain_open(&a);
    assert_int_equal(fi_eq_open(a.fabric, &attr, &eq, NULL), 0);
    assert_int_equal(fi_domain_bind(a.domain, &eq->fid, FI_REG_MR), 0);
    /* What Weft allocates once, it has after the first region. */
    assert_int_equal(fi_mr_reg(a.domain, buf, 8, FI_REMOTE_READ, 0, 4, 0, &mr, NULL), 0);
    assert_int_equal(fi_eq_read(eq, &event, &entry, sizeof entry, 0), sizeof entry);
    assert_int_equal(fi_close(&mr->fid), 0);
    do {
        mr = none;
        until_none = refused + 1;
        rc = fi_mr_reg(a.domain, buf, sizeof buf, FI_REMOTE_READ, 0, 5, 0, &mr, &a);
        until_none = 0;
        if (rc) {
            assert_int_equal(rc, -FI_ENOMEM);
            assert_ptr_equal(mr, none);
            assert_int_equal(fi_eq_read(eq, &event, &entry, sizeof entry, 0), -FI_EAGAIN);
            assert_in_range(++refused, 1, 100);
        }
    } while (rc);
    assert_true(refused >= 2); /* the region, and its event */
    assert_int_equal(fi_eq_read(eq, &event, &entry, sizeof entry, 0), sizeof entry);
    assert_true(event == FI_MR_COMPLETE && entry.fid == &mr->fid && entry.context == &a);
    assert_int_equal(fi_close(&mr->fid), 0);
    assert_int_equal(fi_close(&eq->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&a.domain->fid), 0);
    a.domain = NULL;
    assert_int_equal(fi_close(&eq->fid), 0);
    side_close(&a);
}
#endif

/* ---- event queues ---- */

static void queue_test(void **state)
{
    struct fi_eq_attr attr = {.size = 3, .flags = FI_WRITE, .wait_obj = FI_WAIT_FD};
    struct fi_eq_entry in = {0}, out;
    struct pollfd p = {.events = POLLIN};
    struct fid_eq *eq;
    uint32_t event = 0;
    uint64_t start;
    int fd = -1;
    (void)state;
    domain_open(&a);
    assert_int_equal(fi_eq_open(a.fabric, &attr, &eq, &a), 0);
    assert_int_equal(fi_control(&eq->fid, FI_GETWAIT, &fd), 0);
    p.fd = fd;
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_int_equal(fi_eq_read(eq, &event, &out, sizeof out, 0), -FI_EAGAIN);
    for (uint64_t i = 0; i < 5; i++) {
        in.data = i;
        assert_int_equal(fi_eq_write(eq, FI_NOTIFY, &in, sizeof in, 0), sizeof in);
    }
    assert_int_equal(poll(&p, 1, 0), 1);
    assert_int_equal(fi_eq_read(eq, &event, &out, 4, 0), -FI_ETOOSMALL);
    /* Peeking takes nothing. */
    assert_int_equal(fi_eq_read(eq, &event, &out, sizeof out, FI_PEEK), sizeof out);
    for (uint64_t i = 0; i < 5; i++) {
        struct fid *fids[] = {&eq->fid};
        assert_int_equal(fi_trywait(a.fabric, fids, 1), -FI_EAGAIN);
        assert_int_equal(fi_eq_sread(eq, &event, &out, sizeof out, -1, 0), sizeof out);
        assert_true(out.data == i && event == FI_NOTIFY);
    }
    assert_int_equal(poll(&p, 1, 0), 0);
    start = now_ms();
    assert_int_equal(fi_eq_sread(eq, &event, &out, sizeof out, 50, 0), -FI_EAGAIN);
    assert_in_range(now_ms() - start, 49, 5000);
    assert_int_equal(fi_close(&a.fabric->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&eq->fid), 0);
    side_close(&a);
}

/* ---- endpoints ---- */

/* An event queue that is bound to an endpoint is in use, though it gets no events. */
static void bound_queue_test(void **state)
{
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_FD};
    struct fid_ep *sep;
    struct fid_eq *eq;
    (void)state;
    domain_open(&a);
    assert_int_equal(fi_eq_open(a.fabric, &attr, &eq, NULL), 0);
    assert_int_equal(fi_endpoint(a.domain, a.info, &a.ep, NULL), 0);
    assert_int_equal(fi_ep_bind(a.ep, &eq->fid, 0), 0);
    assert_int_equal(fi_ep_bind(a.ep, &eq->fid, 0), -FI_EINVAL);
    assert_int_equal(fi_close(&eq->fid), -FI_EBUSY);
    assert_int_equal(fi_scalable_ep(a.domain, a.info, &sep, NULL), 0);
    assert_int_equal(fi_scalable_ep_bind(sep, &eq->fid, 0), 0);
    assert_int_equal(fi_close(&a.ep->fid), 0);
    a.ep = NULL;
    assert_int_equal(fi_close(&eq->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&sep->fid), 0);
    assert_int_equal(fi_close(&eq->fid), 0);
    side_close(&a);
}

/* Objects of another domain, and an event queue of another fabric, are refused, and not in use. */
static void foreign_test(void **state)
{
    struct fi_av_attr vector = {.type = FI_AV_TABLE};
    struct fi_cntr_attr cntr = {0};
    struct fi_cq_attr cq = {0};
    struct fid_cntr *counter;
    struct fid_ep *sep;
    struct fid_eq *eq;
    (void)state;
    domain_open(&a);
    domain_open(&b);
    assert_int_equal(fi_eq_open(b.fabric, NULL, &eq, NULL), 0);
    assert_int_equal(fi_av_open(a.domain, &vector, &a.av, NULL), 0);
    assert_int_equal(fi_av_open(b.domain, &vector, &b.av, NULL), 0);
    assert_int_equal(fi_cq_open(b.domain, &cq, &b.cq, NULL), 0);
    assert_int_equal(fi_cntr_open(b.domain, &cntr, &counter, NULL), 0);
    assert_int_equal(fi_endpoint(a.domain, a.info, &a.ep, NULL), 0);
    assert_int_equal(fi_scalable_ep(a.domain, a.info, &sep, NULL), 0);
    assert_int_equal(fi_ep_bind(a.ep, &eq->fid, 0), -FI_EINVAL);
    assert_int_equal(fi_scalable_ep_bind(sep, &eq->fid, 0), -FI_EINVAL);
    assert_int_equal(fi_domain_bind(a.domain, &eq->fid, 0), -FI_EINVAL);
    assert_int_equal(fi_av_bind(a.av, &eq->fid, 0), -FI_EINVAL);
    assert_int_equal(fi_ep_bind(a.ep, &b.cq->fid, FI_TRANSMIT | FI_RECV), -FI_EINVAL);
    assert_int_equal(fi_ep_bind(a.ep, &counter->fid, FI_SEND), -FI_EINVAL);
    assert_int_equal(fi_ep_bind(a.ep, &b.av->fid, 0), -FI_EINVAL);
    assert_int_equal(fi_scalable_ep_bind(sep, &b.av->fid, 0), -FI_EINVAL);
    assert_int_equal(fi_close(&eq->fid), 0);
    assert_int_equal(fi_close(&counter->fid), 0);
    side_close(&b);
    assert_int_equal(fi_close(&sep->fid), 0);
    side_close(&a);
}

static void enable_test(void **state)
{
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq = {0};
    struct fi_cntr_attr cntr = {0};
    struct fid_cntr *counter;
    uint8_t name[64] = {0};
    size_t len = 10;
    char x;
    (void)state;
    domain_open(&a);
    assert_int_equal(fi_endpoint(a.domain, a.info, &a.ep, NULL), 0);
    /* The name is there, whole or in part. */
    assert_int_equal(fi_getname(&a.ep->fid, name, &len), -FI_ETOOSMALL);
    assert_int_equal(len, 64);
    assert_int_equal(fi_getname(&a.ep->fid, name, &len), 0);
    assert_true(name[0] && len == 64);
    /* Posted before the endpoint is enabled. */
    assert_int_equal(fi_trecv(a.ep, &x, 1, NULL, FI_ADDR_UNSPEC, 0, 0, NULL), -FI_EOPBADSTATE);
    assert_int_equal(fi_inject(a.ep, &x, 1, 0), -FI_EOPBADSTATE);
    assert_int_equal(fi_read(a.ep, &x, 1, NULL, 0, 0, 0, NULL), -FI_EOPBADSTATE);
    assert_int_equal(fi_enable(a.ep), -FI_ENOAV);
    assert_int_equal(fi_av_open(a.domain, &av, &a.av, NULL), 0);
    assert_int_equal(fi_cq_open(a.domain, &cq, &a.cq, NULL), 0);
    assert_int_equal(fi_cntr_open(a.domain, &cntr, &counter, NULL), 0);
    assert_int_equal(fi_ep_bind(a.ep, &a.av->fid, FI_RECV), -FI_EBADFLAGS);
    assert_int_equal(fi_ep_bind(a.ep, &a.av->fid, 0), 0);
    assert_int_equal(fi_ep_bind(a.ep, &a.av->fid, 0), -FI_EINVAL);
    assert_int_equal(fi_enable(a.ep), -FI_ENOCQ);
    assert_int_equal(fi_ep_bind(a.ep, &a.cq->fid, 0), -FI_EINVAL);
    assert_int_equal(fi_ep_bind(a.ep, &a.cq->fid, FI_PEEK), -FI_EBADFLAGS);
    assert_int_equal(fi_ep_bind(a.ep, &a.cq->fid, FI_TRANSMIT), 0);
    assert_int_equal(fi_ep_bind(a.ep, &a.cq->fid, FI_TRANSMIT), -FI_EINVAL);
    assert_int_equal(fi_enable(a.ep), -FI_ENOCQ);
    assert_int_equal(fi_ep_bind(a.ep, &counter->fid, FI_REMOTE_WRITE), -FI_ENOSYS);
    assert_int_equal(fi_ep_bind(a.ep, &counter->fid, FI_RECV), 0);
    assert_int_equal(fi_enable(a.ep), 0);
    assert_int_equal(fi_ep_bind(a.ep, &a.cq->fid, FI_RECV), -FI_EOPBADSTATE);
    /* What is in use cannot be closed. */
    assert_int_equal(fi_close(&a.cq->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&a.av->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&counter->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&a.domain->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&a.fabric->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&a.ep->fid), 0);
    a.ep = NULL;
    assert_int_equal(fi_close(&counter->fid), 0);
    side_close(&a);
}

/* Calls of capabilities that the endpoint does not have. */
static void lacking_test(void **state)
{
    const struct how tagged = {.caps = FI_TAGGED};
    char x;
    (void)state;
    open_both(&tagged);
    assert_int_equal(fi_send(a.ep, &x, 1, NULL, a.other, NULL), -FI_EOPNOTSUPP);
    assert_int_equal(fi_write(a.ep, &x, 1, NULL, a.other, 0, 0, NULL), -FI_EOPNOTSUPP);
    assert_int_equal(fi_atomicvalid(a.ep, FI_UINT64, FI_SUM, NULL), -FI_EOPNOTSUPP);
    RETRY(fi_tinject(a.ep, &x, 1, a.other, 0));
    close_both();
}

static void options_test(void **state)
{
    size_t value = 5, len = sizeof value;
    int small = 0;
    (void)state;
    open_both(&plain);
    assert_int_equal(fi_getopt(&a.ep->fid, FI_OPT_ENDPOINT, 12345, &value, &len), -FI_ENOPROTOOPT);
    assert_int_equal(fi_setopt(&a.ep->fid, FI_OPT_ENDPOINT, 12345, &value, len), -FI_ENOPROTOOPT);
    assert_int_equal(fi_setopt(&a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &small, 4),
                     -FI_EINVAL);
    len = 2;
    assert_int_equal(fi_getopt(&a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &len),
                     -FI_ETOOSMALL);
    assert_int_equal(len, sizeof value);
    close_both();
}

/* The default flags that an endpoint has can be set again, and FI_MULTI_RECV is for untagged
 * receives. */
static void flags_test(void **state)
{
    const struct how how = {.caps = FI_RMA}, many = {.rx_flags = FI_MULTI_RECV};
    uint64_t flags = FI_TRANSMIT;
    char in[8];
    const struct iovec iov[2] = {{in, 4}, {in + 4, 4}};
    (void)state;
    open_both(&how);
    assert_int_equal(fi_control(&a.ep->fid, FI_GETOPSFLAG, &flags), 0);
    assert_int_equal(flags, FI_DELIVERY_COMPLETE);
    flags |= FI_TRANSMIT;
    assert_int_equal(fi_control(&a.ep->fid, FI_SETOPSFLAG, &flags), 0);
    assert_int_equal(a.info->tx_attr->caps & FI_REMOTE_WRITE, 0);
    close_both();
    open_both(&many);
    assert_int_equal(fi_trecvv(b.ep, iov, NULL, 2, FI_ADDR_UNSPEC, 1, 0, in), 0);
    close_both();
}

/* Closing with receives, sends and accesses under way. */
static void close_busy_test(void **state)
{
    static char buf[1 << 20];
    struct iovec iov = {buf, sizeof buf};
    struct fi_msg m = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
    (void)state;
    for (int i = 0; i < 3; i++) {
        open_both(&plain);
        for (int n = 0; n < 100; n++)
            RETRY(fi_trecv(b.ep, buf, 8, NULL, b.other, 77, 0, buf));
        RETRY(fi_recvmsg(b.ep, &m, FI_MULTI_RECV));
        for (int n = 0; n < 10; n++) {
            RETRY(fi_tsend(a.ep, buf, sizeof buf, NULL, a.other, 1, buf));
            RETRY(fi_read(a.ep, buf, 64, NULL, a.other, 0, 5, buf));
        }
        if (i == 1)
            turn();
        if (i == 2) {
            side_close(&b);
            side_close(&a);
        }
        close_both();
    }
}

/* What a closed endpoint had under way is not reported, and its queue serves another endpoint. */
static void close_quiet_test(void **state)
{
    static char buf[1 << 20];
    const struct how how = {.wait_obj = FI_WAIT_FD};
    struct fi_cq_tagged_entry e;
    struct fid_ep *more;
    (void)state;
    open_both(&how);
    assert_int_equal(fi_endpoint(b.domain, b.info, &more, NULL), 0);
    assert_int_equal(fi_ep_bind(more, &b.av->fid, 0), 0);
    assert_int_equal(fi_ep_bind(more, &b.cq->fid, FI_TRANSMIT | FI_RECV), 0);
    assert_int_equal(fi_enable(more), 0);
    RETRY(fi_trecv(more, buf, 8, NULL, FI_ADDR_UNSPEC, 1, 0, buf));
    RETRY(fi_trecv(more, buf, 8, NULL, b.other, 1, 0, buf));
    RETRY(fi_tsend(more, buf, sizeof buf, NULL, b.other, 1, buf));
    RETRY(fi_read(more, buf, 8, NULL, b.other, 0, 5, buf));
    assert_int_equal(fi_close(&more->fid), 0);
    assert_int_equal(fi_cq_read(b.cq, &e, 1), -FI_EAGAIN);
    RETRY(fi_trecv(b.ep, buf, 8, NULL, FI_ADDR_UNSPEC, 2, 0, buf));
    RETRY(fi_tinject(a.ep, "x", 1, a.other, 2));
    assert_ptr_equal(take(&b).op_context, buf);
    close_both();
}

/* An endpoint with counters alone counts, and has nowhere to report. */
static void counters_test(void **state)
{
    const struct how how = {.counters = true,
                            .no_queue = true,
                            .caps = FI_MSG | FI_TAGGED | FI_RMA | FI_SOURCE | FI_SOURCE_ERR};
    static char buf[8], many[64];
    struct iovec iov = {buf, sizeof buf}, room = {many, sizeof many};
    struct fi_msg_tagged peek = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 9};
    struct fi_msg multi = {.msg_iov = &room, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
    struct fid_mr *mr;
    (void)state;
    open_both(&how);
    assert_int_equal(fi_mr_reg(b.domain, buf, 8, FI_REMOTE_WRITE, 0, 5, 0, &mr, NULL), 0);
    RETRY(fi_trecv(b.ep, buf, 8, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
    RETRY(fi_tsend(a.ep, buf, 8, NULL, a.other, 1, NULL));
    counted(&b, 1, 1);
    counted(&a, 0, 1);
    RETRY(fi_write(a.ep, buf, 8, NULL, a.other, 0, 5, NULL));
    counted(&a, 3, 1);
    RETRY(fi_recvmsg(b.ep, &multi, FI_MULTI_RECV | FI_COMPLETION));
    RETRY(fi_send(a.ep, buf, 8, NULL, a.other, NULL));
    counted(&b, 1, 2);
    assert_int_equal(fi_trecvmsg(b.ep, &peek, FI_PEEK | FI_COMPLETION), -FI_ENOMSG);
    /* The sender is not in the vector any more. */
    assert_int_equal(fi_av_remove(b.av, &b.other, 1, 0), 0);
    RETRY(fi_trecv(b.ep, buf, 8, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
    RETRY(fi_tsend(a.ep, buf, 8, NULL, a.other, 1, NULL));
    counted(&b, 1, 3);
    assert_int_equal(fi_close(&mr->fid), 0);
    close_both();
}

/* FI_MR_ENDPOINT (FI_WEFT_MR_MODE, which main sets): a bound region outlives its endpoint. */
static void bound_region_test(void **state)
{
    const struct how how = {.mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED};
    static char buf[8];
    struct fid_mr *mr;
    (void)state;
    open_both(&how);
    assert_true(b.info->domain_attr->mr_mode & FI_MR_ENDPOINT);
    assert_int_equal(fi_mr_reg(b.domain, buf, 8, FI_REMOTE_WRITE, 0, 5, 0, &mr, NULL), 0);
    assert_int_equal(fi_mr_bind(mr, &b.ep->fid, 0), 0);
    assert_int_equal(fi_mr_enable(mr), 0);
    RETRY(fi_write(a.ep, "1234567", 8, NULL, a.other, 0, fi_mr_key(mr), buf));
    assert_ptr_equal(take(&a).op_context, buf);
    assert_string_equal(buf, "1234567");
    assert_int_equal(fi_close(&mr->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&b.ep->fid), 0);
    b.ep = NULL;
    assert_int_equal(fi_close(&mr->fid), 0);
    close_both();
}

/* fi_tx_size_left and fi_rx_size_left, which the headers call deprecated. */
static ssize_t tx_left(struct fid_ep *ep)
{
    return ep->ops->tx_size_left(ep);
}

static ssize_t rx_left(struct fid_ep *ep)
{
    return ep->ops->rx_size_left(ep);
}

/* The sizes give the number of operations; the calls return how many are left. */
static void sizes_test(void **state)
{
    enum { N = 20000 };
    const struct how how = {.bind_flags = FI_SELECTIVE_COMPLETION};
    static char buf[8], many[64];
    struct iovec iov = {buf, 8}, room = {many, sizeof many};
    struct fi_msg_tagged m = {.msg_iov = &iov, .iov_count = 1, .tag = 2};
    struct fi_msg multi = {.msg_iov = &room, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
    ssize_t tx, rx;
    (void)state;
    open_both(&how);
    m.addr = a.other;
    tx = tx_left(a.ep);
    rx = rx_left(b.ep);
    assert_true(tx >= N && rx >= N);
    assert_true((size_t)tx >= a.info->tx_attr->size && (size_t)rx >= b.info->rx_attr->size);
    for (int i = 0; i < N; i++) {
        assert_int_equal(fi_trecv(b.ep, buf, 8, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
        assert_int_equal(fi_tsendmsg(a.ep, &m, FI_MATCH_COMPLETE), 0);
    }
    assert_int_equal(fi_recvmsg(b.ep, &multi, FI_MULTI_RECV), 0);
    assert_int_equal(rx_left(b.ep), rx - N - 1);
    assert_int_equal(tx_left(a.ep), tx - N);
    assert_int_equal(tx_left(b.ep), tx);
    for (int i = 0; i < N; i++) {
        RETRY(fi_trecv(b.ep, buf, 8, NULL, FI_ADDR_UNSPEC, 2, 0, NULL));
        RETRY(fi_tinject(a.ep, buf, 8, a.other, 1));
    }
    for (uint64_t end = now_ms() + WAIT_MS; now_ms() < end;) {
        turn();
        if (tx_left(a.ep) == tx && rx_left(b.ep) == rx - 1)
            break;
    }
    assert_int_equal(tx_left(a.ep), tx);
    assert_int_equal(rx_left(b.ep), rx - 1);
    close_both();
}

/* ---- shared transmit contexts ---- */

static void stx_test(void **state)
{
    size_t value = 5, len = sizeof value;
    struct fid_stx *stx;
    (void)state;
    domain_open(&a);
    assert_int_equal(fi_stx_context(a.domain, NULL, &stx, NULL), 0);
    assert_int_equal(fi_endpoint(a.domain, a.info, &a.ep, NULL), 0);
    assert_int_equal(fi_ep_bind(a.ep, &stx->fid, 0), 0);
    assert_int_equal(fi_close(&stx->fid), -FI_EBUSY);
    /* It has no operations and no options: these calls do not reach those of the endpoint. */
    assert_int_equal(fi_cancel(&stx->fid, &stx), -FI_ENOENT);
    assert_int_equal(fi_setopt(&stx->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, len),
                     -FI_ENOPROTOOPT);
    assert_int_equal(fi_getopt(&stx->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &len),
                     -FI_ENOPROTOOPT);
    assert_int_equal(fi_close(&a.ep->fid), 0);
    a.ep = NULL;
    assert_int_equal(fi_close(&stx->fid), 0);
    side_close(&a);
}

static void absent_test(void **state)
{
    struct fi_cq_attr cq = {.wait_obj = FI_WAIT_MUTEX_COND};
    struct fi_poll_attr poll_attr = {0};
    struct fi_wait_attr wait_attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fid_poll *set;
    struct fid_wait *wait;
    struct fid_cq *queue;
    struct fid_pep *pep;
    struct fid_ep *ep;
    (void)state;
    domain_open(&a);
    assert_int_equal(fi_cq_open(a.domain, &cq, &queue, NULL), -FI_ENOSYS);
    assert_int_equal(fi_poll_open(a.domain, &poll_attr, &set), -FI_ENOSYS);
    assert_int_equal(fi_wait_open(a.fabric, &wait_attr, &wait), -FI_ENOSYS);
    assert_int_equal(fi_passive_ep(a.fabric, a.info, &pep, NULL), -FI_ENOSYS);
    assert_int_equal(fi_srx_context(a.domain, NULL, &ep, NULL), -FI_ENOSYS);
    side_close(&a);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
#ifndef SANITIZED
        cmocka_unit_test(many_peers_test), /* the first: no memory was freed yet */
#endif
        cmocka_unit_test(vector_test),       cmocka_unit_test(remove_test),
        cmocka_unit_test(large_vector_test), cmocka_unit_test(later_test),
        cmocka_unit_test(queue_test),        cmocka_unit_test(enable_test),
        cmocka_unit_test(lacking_test),      cmocka_unit_test(options_test),
        cmocka_unit_test(flags_test),        cmocka_unit_test(close_busy_test),
        cmocka_unit_test(close_quiet_test),  cmocka_unit_test(counters_test),
        cmocka_unit_test(bound_region_test), cmocka_unit_test(stx_test),
        cmocka_unit_test(sizes_test),        cmocka_unit_test(absent_test),
        cmocka_unit_test(bound_queue_test),  cmocka_unit_test(foreign_test),
        cmocka_unit_test(newest_test),       cmocka_unit_test(old_error_test),
#ifndef SANITIZED
        cmocka_unit_test(no_memory_test),    cmocka_unit_test(no_memory_region_test),
#endif
    };
    setenv("FI_WEFT_MR_MODE", "endpoint", 1);
    model_set(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
