/* SPDX-License-Identifier: BSD-3-Clause */
/* fi_trywait(3): 0 if the program may sleep on the descriptor, which is not readable then and
 * becomes so by the next event; -FI_EAGAIN if something is queued, and never for long else. */
#include "sides.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

static char out[8] = "weft", in[8], big[1 << 20];

static const enum fi_threading models[] = {FI_THREAD_DOMAIN, FI_THREAD_COMPLETION, FI_THREAD_SAFE};
enum { MODELS = sizeof models / sizeof *models };

static struct how how_of(unsigned model)
{
    return (struct how){.wait_obj = FI_WAIT_FD, .threading = models[model]};
}

static int trywait(struct side *s)
{
    struct fid *fids[1] = {&s->cq->fid};
    return fi_trywait(s->fabric, fids, 1);
}

static bool readable(struct side *s, int ms)
{
    struct pollfd p = {.events = POLLIN};
    assert_int_equal(fi_control(&s->cq->fid, FI_GETWAIT, &p.fd), 0);
    return poll(&p, 1, ms) == 1;
}

/* Let [s] have nothing to do, as the man page says: read all, then try again. */
static void rest(struct side *s)
{
    uint64_t end = now_ms() + WAIT_MS;
    struct fi_cq_tagged_entry e;
    int rc;
    while ((rc = trywait(s)) == -FI_EAGAIN && now_ms() < end) {
        assert_int_equal(fi_cq_read(s->cq, &e, 1), -FI_EAGAIN);
        turn();
    }
    assert_int_equal(rc, 0);
}

/* [s] may sleep, may so once more, and its descriptor is not readable. Each of the two connections
 * that are being made in other threads may wake [s] twice, at any time: when a side has taken the
 * connection, and when it has room. */
static void rests(struct side *s)
{
    unsigned wakes = 0;
    for (rest(s); trywait(s) != 0 || readable(s, 0); rest(s))
        assert_true(++wakes <= 4);
}

static void connect_both(void)
{
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
    RETRY(fi_tinject(a.ep, out, 8, a.other, 1));
    (void)take(&b);
    rest(&a);
}

/* Fails when: a queue with nothing to read is not one on which the program may sleep, or its
 * descriptor is readable; a message for which there is no receive, a receive without a message, a
 * send without a receive keep it from sleeping; it does not wake by the message that it awaits. */
static void idle_test(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MODELS; i++) {
        const struct how how = how_of(i);
        open_both(&how);
        assert_int_equal(trywait(&b), 0); /* nothing was ever done */
        assert_false(readable(&b, 0));
        connect_both();
        rests(&b);
        RETRY(fi_tinject(a.ep, out, 8, a.other, 2)); /* unexpected */
        RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 3, 0, in));
        RETRY(fi_tsend(b.ep, big, sizeof big, NULL, b.other, 4, big));
        rests(&b);
        RETRY(fi_tinject(a.ep, out, 8, a.other, 3));
        for (uint64_t end = now_ms() + WAIT_MS; !readable(&b, 1) && now_ms() < end;)
            (void)fi_cq_read(a.cq, NULL, 0);
        assert_true(readable(&b, 0));
        assert_ptr_equal(take(&b).op_context, in);
        close_both();
    }
}

/* Fails when: the program may sleep although an entry, an error or a signal is there for it, or may
 * not once it has taken them. */
static void queued_test(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MODELS; i++) {
        const struct how how = how_of(i);
        struct fi_cq_err_entry err = {0};
        open_both(&how);
        connect_both();
        rest(&b);
        RETRY(fi_tsend(b.ep, out, 8, NULL, b.other, 1, out)); /* complete at once, or soon */
        for (uint64_t end = now_ms() + WAIT_MS; trywait(&b) != -FI_EAGAIN && now_ms() < end;)
            turn();
        assert_int_equal(trywait(&b), -FI_EAGAIN);
        assert_int_equal(trywait(&b), -FI_EAGAIN); /* as long as it is there */
        assert_ptr_equal(take(&b).op_context, out);
        rest(&b);
        RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 2, 0, in));
        assert_int_equal(fi_cancel(&b.ep->fid, in), 0);
        assert_int_equal(trywait(&b), -FI_EAGAIN);
        assert_int_equal(fi_cq_readerr(b.cq, &err, 0), 1);
        assert_int_equal(err.err, FI_ECANCELED);
        rest(&b);
        assert_int_equal(fi_cq_signal(b.cq), 0);
        assert_int_equal(trywait(&b), -FI_EAGAIN); /* takes the signal */
        rests(&b);
        close_both();
    }
}

/* ---- two queues of an endpoint ---- */

/* Of b, besides its own: an endpoint with queues of its own, and a counter of its sends. */
static struct fid_ep *pair;
static struct fid_cq *tx, *rx;
static struct fid_cntr *sends;
static fi_addr_t to_pair; /* at a */

static void pair_open(enum fi_wait_obj tx_obj)
{
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = tx_obj};
    struct fi_cntr_attr none = {0};
    uint8_t name[64];
    size_t len = sizeof name;
    assert_int_equal(fi_cq_open(b.domain, &attr, &tx, NULL), 0);
    attr.wait_obj = FI_WAIT_FD;
    assert_int_equal(fi_cq_open(b.domain, &attr, &rx, NULL), 0);
    assert_int_equal(fi_cntr_open(b.domain, &none, &sends, NULL), 0);
    assert_int_equal(fi_endpoint(b.domain, b.info, &pair, NULL), 0);
    assert_int_equal(fi_ep_bind(pair, &b.av->fid, 0), 0);
    assert_int_equal(fi_ep_bind(pair, &tx->fid, FI_TRANSMIT), 0);
    assert_int_equal(fi_ep_bind(pair, &rx->fid, FI_RECV), 0);
    assert_int_equal(fi_ep_bind(pair, &sends->fid, FI_SEND), 0);
    assert_int_equal(fi_enable(pair), 0);
    assert_int_equal(fi_getname(&pair->fid, name, &len), 0);
    assert_int_equal(fi_av_insert(a.av, name, 1, &to_pair, 0, NULL), 1);
}

static void pair_close(void)
{
    assert_int_equal(fi_close(&pair->fid), 0);
    assert_int_equal(fi_close(&sends->fid), 0);
    assert_int_equal(fi_close(&rx->fid), 0);
    assert_int_equal(fi_close(&tx->fid), 0);
}

static int trywait_of(struct fid_cq *cq)
{
    struct fid *fids[1] = {&cq->fid};
    return fi_trywait(b.fabric, fids, 1);
}

static bool rx_readable(int ms)
{
    struct pollfd p = {.events = POLLIN};
    assert_int_equal(fi_control(&rx->fid, FI_GETWAIT, &p.fd), 0);
    return poll(&p, 1, ms) == 1;
}

/* Take the entry of one message to the pair, so that there is a connection; then let it rest. */
static void pair_rest(void)
{
    struct fi_cq_tagged_entry e;
    uint64_t end = now_ms() + WAIT_MS;
    ssize_t n;
    assert_int_equal(fi_trecv(pair, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in), 0);
    RETRY(fi_tinject(a.ep, out, 8, to_pair, 1));
    for (; (n = fi_cq_read(rx, &e, 1)) == -FI_EAGAIN && now_ms() < end;)
        turn();
    assert_int_equal(n, 1);
    for (unsigned quiet = 0; quiet < 3 && now_ms() < end; turn()) {
        (void)fi_cq_read(tx, &e, 1);
        quiet = trywait_of(rx) || rx_readable(0) ? 0 : quiet + 1;
    }
}

/* What polls the endpoint after fi_trywait of [rx]. */
enum act { TRY_OTHER, READ_COUNTER, WAIT_COUNTER, READ_OTHER, SEND, ACTS };

static void act_do(enum act act)
{
    struct fi_cq_tagged_entry e;
    switch (act) {
    case TRY_OTHER: (void)trywait_of(tx); break;
    case READ_COUNTER: (void)fi_cntr_read(sends); break;
    case WAIT_COUNTER: assert_int_equal(fi_cntr_wait(sends, 1 << 20, 1), -FI_ETIMEDOUT); break;
    case READ_OTHER: (void)fi_cq_read(tx, &e, 1); break;
    default: (void)fi_tinject(pair, out, 8, b.self, 9); break;
    }
}

/* Fails when: a call that polls the endpoint, as those of its other queue or its counter do, takes
 * what would have woken the program on the descriptor, and completes the receive without waking it;
 * or leaves the endpoint so that a later message does not wake it. */
static void two_queues(enum act act, bool later)
{
    struct fi_cq_tagged_entry e;
    assert_int_equal(fi_trecv(pair, in, 8, NULL, FI_ADDR_UNSPEC, 2, 0, in), 0);
    for (uint64_t end = now_ms() + WAIT_MS; trywait_of(rx) && now_ms() < end;)
        turn();
    if (later)
        act_do(act);
    RETRY(fi_tinject(a.ep, out, 8, to_pair, 2));
    if (!later)
        act_do(act);
    for (uint64_t end = now_ms() + WAIT_MS / 10; !rx_readable(1) && now_ms() < end;)
        (void)fi_cq_read(a.cq, NULL, 0);
    assert_true(rx_readable(0));
    for (uint64_t end = now_ms() + WAIT_MS; fi_cq_read(rx, &e, 1) != 1;)
        assert_true(now_ms() < end);
    assert_ptr_equal(e.op_context, in);
}

static void two_queues_test(void **state)
{
    static const enum fi_wait_obj objects[] = {FI_WAIT_FD, FI_WAIT_NONE};
    (void)state;
    for (unsigned i = 0; i < 2 * (over_network() ? 1 : MODELS); i++) {
        const struct how how = how_of(i / 2);
        open_both(&how);
        pair_open(objects[i % 2]);
        pair_rest();
        for (enum act act = i % 2 ? READ_COUNTER : TRY_OTHER; act < ACTS; act++)
            for (int later = 0; later < 2; later++)
                two_queues(act, later);
        pair_close();
        close_both();
    }
}

/* Fails when: of several objects one with events does not count, or one without a descriptor is
 * taken for one on which a program may sleep. */
static void several_test(void **state)
{
    const struct how how = how_of(2), other = {.wait_obj = FI_WAIT_UNSPEC};
    struct fi_eq_attr attr = {.flags = FI_WRITE, .wait_obj = FI_WAIT_FD},
                      none = {.wait_obj = FI_WAIT_NONE};
    struct fi_eq_entry entry = {0};
    struct fid_eq *eq, *without;
    struct fid *fids[2];
    uint32_t event;
    (void)state;
    open_both(&how);
    assert_int_equal(fi_eq_open(a.fabric, &attr, &eq, NULL), 0);
    assert_int_equal(fi_eq_open(a.fabric, &none, &without, NULL), 0);
    fids[0] = &a.cq->fid;
    fids[1] = &eq->fid;
    assert_int_equal(fi_trywait(a.fabric, fids, 2), 0);
    entry.fid = &a.av->fid;
    assert_true(fi_eq_write(eq, FI_AV_COMPLETE, &entry, sizeof entry, 0) > 0);
    assert_int_equal(fi_trywait(a.fabric, fids, 2), -FI_EAGAIN);
    assert_true(fi_eq_read(eq, &event, &entry, sizeof entry, 0) > 0);
    assert_int_equal(fi_trywait(a.fabric, fids, 2), 0);
    fids[1] = &without->fid;
    assert_int_equal(fi_trywait(a.fabric, fids, 2), -FI_EINVAL);
    fids[1] = &a.av->fid;
    assert_int_equal(fi_trywait(a.fabric, fids, 2), -FI_EINVAL);
    assert_int_equal(fi_close(&without->fid), 0);
    assert_int_equal(fi_close(&eq->fid), 0);
    close_both();
    open_both(&other);
    assert_int_equal(trywait(&a), -FI_EINVAL);
    close_both();
}

/* In a child that was forked, all calls that read a queue or wait for it return an error. */
static bool child_refused(enum fi_wait_obj object)
{
    struct fi_cq_tagged_entry e;
    fi_addr_t source;
    return (object != FI_WAIT_FD || trywait(&a) == -FI_EOPBADSTATE) &&
           fi_cq_read(a.cq, &e, 1) == -FI_EOPBADSTATE &&
           fi_cq_readfrom(a.cq, &e, 1, &source) == -FI_EOPBADSTATE &&
           fi_cq_sread(a.cq, &e, 1, NULL, -1) == -FI_EOPBADSTATE &&
           fi_cq_sread(a.cq, &e, 1, NULL, 1) == -FI_EOPBADSTATE &&
           fi_cq_sreadfrom(a.cq, &e, 1, &source, NULL, -1) == -FI_EOPBADSTATE;
}

/* Fails when: a child that was forked, in which no endpoint works, may sleep, yield or read for
 * ever; or the parent's endpoint does not work any more. */
static void forked_test(void **state)
{
    static const enum fi_wait_obj objects[] = {FI_WAIT_FD, FI_WAIT_UNSPEC, FI_WAIT_YIELD};
    static const enum fi_threading threads[] = {FI_THREAD_DOMAIN, FI_THREAD_SAFE};
    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        struct how how = how_of(2);
        int result = 0;
        pid_t child;
        how.wait_obj = objects[i / 2];
        how.threading = threads[i % 2];
        open_both(&how);
        child = fork();
        assert_true(child >= 0);
        if (!child) {
            alarm(WAIT_MS / 1000);
            _exit(!child_refused(how.wait_obj));
        }
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_int_equal(result, 0);
        RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
        RETRY(fi_tinject(a.ep, out, 8, a.other, 1));
        (void)take(&b);
        close_both();
    }
}

/* Of a: an event queue, a queue without endpoints, and the counter of a test. */
static struct fid_eq *eq;
static struct fid_cq *bare;
static struct fid_cntr *cntr;

static bool child_refused_bare(void)
{
    struct fi_cq_tagged_entry e;
    struct fi_eq_entry event = {0};
    struct fi_eq_err_entry error = {0};
    struct fid *fids[] = {&eq->fid};
    uint32_t type;
    return fi_eq_read(eq, &type, &event, sizeof event, 0) == -FI_EOPBADSTATE &&
           fi_eq_sread(eq, &type, &event, sizeof event, -1, 0) == -FI_EOPBADSTATE &&
           fi_eq_sread(eq, &type, &event, sizeof event, 1, 0) == -FI_EOPBADSTATE &&
           fi_eq_readerr(eq, &error, 0) == -FI_EOPBADSTATE &&
           fi_eq_write(eq, FI_NOTIFY, &event, sizeof event, 0) == -FI_EOPBADSTATE &&
           fi_trywait(a.fabric, fids, 1) == -FI_EOPBADSTATE &&
           fi_cq_read(bare, &e, 1) == -FI_EOPBADSTATE &&
           fi_cq_sread(bare, &e, 1, NULL, -1) == -FI_EOPBADSTATE &&
           fi_cq_sread(bare, &e, 1, NULL, 1) == -FI_EOPBADSTATE;
}

static bool child_refused_cntr(void)
{
    return fi_cntr_wait(cntr, 1, -1) == -FI_EOPBADSTATE &&
           fi_cntr_wait(cntr, 1, 1) == -FI_EOPBADSTATE;
}

static void in_child(bool (*refused)(void))
{
    int result = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        alarm(WAIT_MS / 1000);
        _exit(!refused());
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
}

static struct fid_ep *second_ep(void)
{
    struct fid_ep *ep;
    assert_int_equal(fi_endpoint(a.domain, a.info, &ep, NULL), 0);
    assert_int_equal(fi_ep_bind(ep, &a.av->fid, 0), 0);
    assert_int_equal(fi_ep_bind(ep, &a.cq->fid, FI_TRANSMIT | FI_RECV), 0);
    assert_int_equal(fi_ep_bind(ep, &a.cntr[1]->fid, FI_RECV), 0);
    assert_int_equal(fi_enable(ep), 0);
    return ep;
}

/* Fails when: a forked child may wait for ever at an event queue, at a queue without endpoints or
 * for a counter, or takes its parent's event. */
static void forked_bare_test(void **state)
{
    struct fi_eq_attr eq_attr = {.flags = FI_WRITE, .wait_obj = FI_WAIT_FD};
    struct fi_cntr_attr cntr_attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fi_eq_entry event = {0};
    uint32_t type = 0;
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct how how = how_of(2);
        struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED,
                                     .wait_obj = i / 2 ? FI_WAIT_YIELD : FI_WAIT_UNSPEC};
        struct fid_ep *second;
        how.threading = i % 2 ? FI_THREAD_SAFE : FI_THREAD_DOMAIN;
        how.counters = true;
        open_both(&how);
        assert_int_equal(fi_eq_open(a.fabric, &eq_attr, &eq, NULL), 0);
        assert_int_equal(fi_cq_open(a.domain, &cq_attr, &bare, NULL), 0);
        in_child(child_refused_bare);
        assert_true(fi_eq_write(eq, FI_NOTIFY, &event, sizeof event, 0) > 0);
        in_child(child_refused_bare);
        assert_true(fi_eq_read(eq, &type, &event, sizeof event, 0) > 0);
        assert_int_equal(type, FI_NOTIFY);
        assert_int_equal(fi_cntr_open(a.domain, &cntr_attr, &cntr, NULL), 0);
        in_child(child_refused_cntr);
        assert_int_equal(fi_close(&cntr->fid), 0);
        cntr = a.cntr[1];
        in_child(child_refused_cntr);
        second = second_ep();
        in_child(child_refused_cntr);
        assert_int_equal(fi_close(&second->fid), 0);
        assert_int_equal(fi_close(&bare->fid), 0);
        assert_int_equal(fi_close(&eq->fid), 0);
        close_both();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_test),       cmocka_unit_test(queued_test),
        cmocka_unit_test(two_queues_test), cmocka_unit_test(several_test),
        cmocka_unit_test(forked_test),     cmocka_unit_test(forked_bare_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
