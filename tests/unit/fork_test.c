/* SPDX-License-Identifier: BSD-3-Clause */
/* A forked child cannot use its parent's objects, and its attempts do not affect the parent. */
#define _GNU_SOURCE
#include "unit.h"

#include <weft/atomic.h>
#include <weft/event.h>
#include <weft/frag.h>
#include <weft/job.h>
#include <weft/mr.h>
#include <weft/msg.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/handle.h"
#include "job/launch.h"

#include <malloc.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#define RW (WEFT_REMOTE_READ | WEFT_REMOTE_WRITE)
#define LAUNCH_NS 1000000000u

/* Endpoint 0 reaches endpoint 1 of its own context, 2 of another, and itself. */
struct family {
    struct weft_ctx *ctx[2];
    struct weft_ep *ep[3];
    struct weft_peer *peer[3];
    struct weft_mr *mr[2];
    struct weft_remote *remote[3];
    int got;
    int downs;
};

static void count_it(const struct weft_am *am)
{
    ++*(int *)am->arg;
}

static void count_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    (void)ep;
    (void)peer;
    ((struct family *)arg)->downs += why == WEFT_ECLOSED ? 1 : 100;
}

static struct weft_peer *peer_to(struct weft_ep *from, struct weft_ep *to)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    struct weft_peer *peer;
    OK(weft_ep_address(to, addr, &len));
    OK(weft_peer_open(from, addr, len, &peer));
    return peer;
}

static int family_open(void **state)
{
    struct family *f = calloc(1, sizeof *f);
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    unsigned char key[WEFT_KEY_MAX];
    const int mr_of[3] = {0, 0, 1};
    params.peer_down = count_down;
    params.arg = f;
    for (int i = 0; i < 2; i++) {
        OK(weft_ctx_open(NULL, &f->ctx[i]));
        OK(weft_mem_alloc(f->ctx[i], 4096, RW, &f->mr[i]));
    }
    for (int i = 0; i < 3; i++) {
        OK(weft_ep_open(f->ctx[i / 2], &params, &f->ep[i]));
        OK(weft_am_register(f->ep[i], 1, count_it, &f->got));
    }
    for (int i = 0; i < 3; i++) {
        size_t len = sizeof key;
        f->peer[i] = peer_to(f->ep[0], f->ep[i]);
        OK(weft_mr_key(f->mr[mr_of[i]], key, &len));
        OK(weft_remote_open(f->peer[i], key, len, &f->remote[i]));
    }
    *state = f;
    return 0;
}

static int family_close(void **state)
{
    struct family *f = *state;
    for (int i = 0; i < 3; i++) {
        if (f->remote[i])
            OK(weft_remote_close(f->remote[i]));
        OK(weft_peer_close(f->peer[i]));
    }
    for (int i = 0; i < 3; i++)
        if (f->ep[i])
            OK(weft_ep_close(f->ep[i]));
    for (int i = 0; i < 2; i++) {
        if (f->mr[i])
            OK(weft_mr_close(f->mr[i]));
        if (f->ctx[i])
            OK(weft_ctx_close(f->ctx[i]));
    }
    free(f);
    return 0;
}

/* All peers reach the right endpoints. */
static void works(struct family *f)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS, v = 0;
    int before = f->got;
    for (int i = 0; i < 3; i++) {
        uint64_t tag = test_now_ns();
        OK(weft_am_request(f->peer[i], 1, NULL, 0, NULL, 0, 0));
        OK(weft_put(f->remote[i], 0, &tag, 8, NULL));
        OK(weft_get(f->remote[i], 0, &v, 8, NULL));
        assert_int_equal(v, tag);
        assert_int_equal(*(uint64_t *)weft_mr_base(f->mr[i == 2]), tag);
    }
    while (f->got != before + 3) {
        for (int i = 0; i < 3; i++)
            assert_true(weft_ep_poll(f->ep[i]) >= 0);
        assert_true(test_now_ns() < end);
    }
    assert_int_equal(f->downs, 0);
}

static int failed_line;
#define FORKED(call)                                                                               \
    do {                                                                                           \
        if ((int)(call) != WEFT_EFORKED && !failed_line) {                                         \
            failed_line = __LINE__;                                                                \
            fprintf(stderr, "in the child: %s is not EFORKED\n", #call);                           \
        }                                                                                          \
    } while (0)

static void stat_row(void *arg, const char *name, uint64_t value, const char *doc)
{
    (void)arg;
    (void)name;
    (void)value;
    (void)doc;
}

static void child_calls_mem(struct family *f)
{
    unsigned char buf[WEFT_ADDR_MAX] = {0};
    size_t len = sizeof buf;
    struct weft_mr *mr;
    struct weft_remote *r;
    uint64_t v = 666;
    struct iovec one = {&v, 8};
    struct weft_path path;
    FORKED(weft_mr_register(f->ctx[0], &v, 8, WEFT_MEM_HOST, RW, &mr));
    FORKED(weft_mem_alloc(f->ctx[0], 64, RW, &mr));
    FORKED(weft_mr_key(f->mr[0], buf, &len));
    FORKED(weft_mr_close(f->mr[0]));
    for (int i = 0; i < 3; i++) {
        FORKED(weft_remote_open(f->peer[i], buf, 48, &r));
        FORKED(weft_put(f->remote[i], 0, &v, 8, NULL));
        FORKED(weft_get(f->remote[i], 0, &v, 8, NULL));
        FORKED(weft_put_signal(f->remote[i], 0, &v, 8, f->remote[i], 8, 1, 0, NULL));
        FORKED(weft_flush(f->peer[i], NULL));
        FORKED(weft_atomic(f->remote[i], 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &v, NULL));
        FORKED(weft_putv(f->remote[i], 0, &one, 1, NULL));
        FORKED(weft_getv(f->remote[i], 0, &one, 1, NULL));
        FORKED(weft_am_long(f->remote[i], 0, &v, 8, 1, NULL, 0, 0, NULL));
        FORKED(weft_path_of(f->peer[i], WEFT_OP_PUT, f->remote[i], 8, &path));
        FORKED(weft_remote_close(f->remote[i]));
    }
}

/* Every public call on inherited objects. Returns 0 when all return EFORKED. */
static int child_calls(struct family *f)
{
    unsigned char buf[WEFT_ADDR_MAX] = {0};
    size_t len = sizeof buf;
    struct weft_ep *ep;
    struct weft_peer *peer;
    uint64_t v = 666;
    struct iovec one = {&v, 8};
    struct weft_op op = {0};
    struct weft_msg_info info;
    struct weft_msg *msg;
    child_calls_mem(f);
    FORKED(weft_ep_open(f->ctx[0], NULL, &ep));
    FORKED(weft_ep_address(f->ep[0], buf, &len));
    FORKED(weft_ep_poll(f->ep[0]));
    FORKED(weft_ep_wait(f->ep[0], -1));
    FORKED(weft_word_wait(f->ep[0], &v, 0, f->peer[0], -1));
    FORKED(weft_ep_fd(f->ep[0]));
    FORKED(weft_ep_arm(f->ep[0]));
    FORKED(weft_am_register(f->ep[0], 1, count_it, NULL));
    FORKED(weft_peer_open(f->ep[0], buf, 64, &peer));
    FORKED(weft_msg_recv(f->ep[0], NULL, 1, 0, &v, 8, &op));
    FORKED(weft_msg_recvv(f->ep[0], NULL, 1, 0, &one, 1, &op));
    FORKED(weft_msg_probe(f->ep[0], NULL, 1, 0, &info));
    FORKED(weft_msg_claim(f->ep[0], NULL, 1, 0, &info, &msg));
    FORKED(weft_msg_cancel(f->ep[0], &op));
    FORKED(weft_op_wait(f->ep[0], &op, -1));
    for (int i = 0; i < 3; i++) {
        FORKED(weft_msg_send(f->peer[i], 1, &v, 8, NULL));
        FORKED(weft_msg_sendv(f->peer[i], 1, &one, 1, &op));
        FORKED(weft_am_requestv(f->peer[i], 1, NULL, 0, &one, 1, 0));
        FORKED(weft_am_request(f->peer[i], 1, NULL, 0, NULL, 0, 0));
        FORKED(weft_peer_close(f->peer[i]));
        FORKED(weft_ep_close(f->ep[i]));
    }
    FORKED(weft_ctx_close(f->ctx[0]));
    weft_stat_rows(f->ctx[0], stat_row, NULL);
    weft_ctx_set_local_ranks(f->ctx[0], 2);
    return failed_line;
}

/* Runs [child] in a fork; it must return 0. */
static void in_child(int (*child)(struct family *), struct family *f)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        alarm(60);
        _exit(child(f) ? 1 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status)
        fail_msg("the child ended with status 0x%x", (unsigned)status);
}

/* Fails when: a call in the child does not detect the fork, changes the parent's objects, or
 * reports to the parent's peers that the parent left. */
static void test_all_calls(void **state)
{
    struct family *f = *state;
    works(f);
    for (int i = 0; i < 3; i++) {
        in_child(child_calls, f);
        works(f);
    }
}

/* A message that endpoint 1 has claimed, and its sender. */
struct claim {
    struct weft_msg *msg;
    struct weft_sender *sender;
};

static struct claim claim;

static void no_message(struct weft_msg_many *many, const struct weft_op *message, void *at)
{
    (void)many, (void)message, (void)at;
    failed_line = __LINE__;
}

static void no_call(struct weft_deferred *item)
{
    (void)item;
    failed_line = __LINE__;
}

static void child_calls_msg(struct family *f)
{
    unsigned char buf[WEFT_ADDR_MAX];
    size_t len = sizeof buf;
    struct weft_op op = {0};
    const struct iovec one = {buf, 8};
    const struct weft_msg_head head = {.tag = 3};
    const struct weft_msg_filter filter = {NULL, 3, WEFT_TAG_FULL, 0, 0};
    struct weft_msg_many many = {.received = no_message, .buf = buf, .len = 8, .least = 1};
    struct weft_msg_info info;
    FORKED(weft_msg_post_send(f->peer[0], &head, &one, 1, NULL));
    FORKED(weft_msg_post_recv(f->ep[1], &filter, &one, 1, &op));
    FORKED(weft_msg_recv_many(f->ep[1], &filter, &many));
    FORKED(weft_msg_find(f->ep[1], &filter, &info, NULL));
    FORKED(weft_msg_take(f->ep[1], claim.msg, buf, 8, &op));
    FORKED(weft_msg_drop(f->ep[1], claim.msg));
    FORKED(weft_sender_address(claim.sender, buf, &len));
    FORKED(weft_sender_forget(claim.sender));
    if (weft_sender_peer(claim.sender) || weft_sender_peer_arg(claim.sender))
        failed_line = __LINE__;
}

/* The calls that were made for bindings, on inherited objects. */
static int child_calls_of_bindings(struct family *f)
{
    static struct weft_deferred item = {.fn = no_call};
    struct weft_ep_sharing_info sharing;
    struct sockaddr_in6 name;
    size_t len = sizeof name;
    uint64_t v = 1;
    struct weft_word word = {.word = &v, .value = 1};
    struct weft_op op = {0};
    struct weft_ep *ep;
    struct weft_peer *peer;
    struct weft_remote *r;
    struct weft_counter *counter;
    struct weft_frag *frag;
    unsigned char key[WEFT_KEY_SIZE] = {1}, addr[WEFT_ADDR_MAX] = {0};
    child_calls_msg(f);
    FORKED(weft_ctx_set_key(f->ctx[0], key, sizeof key));
    FORKED(weft_group_open(f->ctx[0], NULL, 1, &ep));
    FORKED(weft_ep_name(f->ep[0], (struct sockaddr *)(void *)&name, &len));
    FORKED(weft_ep_sharing(f->ep[0], &sharing));
    FORKED(weft_ep_defer(f->ep[0], &item));
    FORKED(weft_peer_open_member(f->ep[0], addr, sizeof addr, 0, &peer));
    FORKED(weft_peer_status(f->peer[0]));
    FORKED(weft_peer_sent(f->peer[0]));
    FORKED(weft_words_wait(f->ep[0], &word, 1, 0, NULL, -1));
    FORKED(weft_op_finish(f->ep[0], WEFT_AGAIN, NULL, -1));
    FORKED(weft_op_finish(f->ep[0], WEFT_PENDING, &op, -1));
    FORKED(weft_remote_open_key(f->peer[0], 1, &r));
    FORKED(weft_remote_open_start(f->peer[0], addr, 48, &r, &op));
    FORKED(weft_remote_open_cancel(f->ep[0], &op));
    FORKED(
        weft_atomic_array(f->remote[0], 0, WEFT_DO_SUM, WEFT_KIND_UINT64, 1, &v, NULL, NULL, &op));
    FORKED(weft_order_send(f->peer[0], 1, NULL, 0, NULL, 0, weft_order_none(), NULL));
    FORKED(weft_order_put(f->remote[0], 0, &v, 8, weft_order_none(), NULL, &op));
    FORKED(weft_order_get(f->remote[0], 0, &v, 8, weft_order_none(), NULL, &op));
    FORKED(weft_frag_alloc(f->peer[0], 8, NULL, &frag));
    if (weft_counter_open(&counter) != WEFT_OK)
        return __LINE__;
    FORKED(weft_ep_bind_counter(f->ep[0], counter, WEFT_REMOTE_WRITE));
    return failed_line;
}

/* Fails when: a call that was made for bindings does not detect the fork in the child, or changes
 * the parent's objects. */
static void test_calls_of_bindings(void **state)
{
    struct family *f = *state;
    uint64_t v = 7, end = test_now_ns() + TEST_LIMIT_NS;
    struct weft_msg_info info;
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    OK(weft_msg_send(f->peer[1], 3, &v, sizeof v, NULL));
    while (weft_msg_claim(f->ep[1], NULL, 3, WEFT_TAG_FULL, &info, &claim.msg) != WEFT_OK) {
        assert_true(weft_ep_poll(f->ep[1]) >= 0);
        assert_true(test_now_ns() < end);
    }
    claim.sender = info.sender;
    in_child(child_calls_of_bindings, f);
    OK(weft_sender_address(claim.sender, addr, &len));
    OK(weft_msg_drop(f->ep[1], claim.msg));
    works(f);
}

/* The child may open a context of its own, and send to the parent's endpoint. */
static int child_own_context(struct family *f)
{
    void *state = NULL;
    struct family *mine;
    if (child_calls(f) || family_open(&state))
        return 1;
    mine = state;
    works(mine);
    if (child_calls(f)) /* still the parent's */
        return 2;
    return family_close(&state);
}

/* Fails when: a child cannot open a context, or its parent's objects seem valid once it has. */
static void test_own_context(void **state)
{
    works(*state);
    in_child(child_own_context, *state);
    works(*state);
}

static int grandchild(struct family *f)
{
    void *state = NULL;
    if (family_open(&state))
        return 1;
    works(state);
    in_child(child_calls, state); /* of the child's objects */
    in_child(child_calls, f);     /* and of the first parent's */
    works(state);
    return family_close(&state);
}

/* Fails when: a fork generation comes back two generations later. */
static void test_grandchild(void **state)
{
    works(*state);
    in_child(grandchild, *state);
    works(*state);
}

static void *churn(void *arg)
{
    atomic_bool *stop = arg;
    while (!*stop) {
        struct weft_ctx *ctx;
        struct weft_mr *mr;
        if (weft_ctx_open(NULL, &ctx) != WEFT_OK || weft_mem_alloc(ctx, 64, RW, &mr) != WEFT_OK ||
            weft_mr_close(mr) != WEFT_OK || weft_ctx_close(ctx) != WEFT_OK)
            return arg;
    }
    return NULL;
}

static int child_opens(struct family *f)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    (void)f;
    return weft_ctx_open(NULL, &ctx) || weft_ep_open(ctx, NULL, &ep) || weft_ep_close(ep) ||
           weft_ctx_close(ctx);
}

/* Fails when: a lock that another thread held at the fork stays locked in the child. */
static void test_fork_under_load(void **state)
{
    atomic_bool stop = false;
    pthread_t thread;
    void *bad;
    if (TEST_SANITIZED) /* the locks of its allocator are the ones that stay locked (clang 14) */
        skip();
    assert_int_equal(pthread_create(&thread, NULL, churn, &stop), 0);
    for (int i = 0; i < 50; i++)
        in_child(child_opens, *state);
    stop = true;
    pthread_join(thread, &bad);
    assert_null(bad);
    works(*state);
}

/* ---- a thread is in the middle of a call at the fork ---- */

static sem_t inside, forked;
static _Thread_local int calls_until_inside; /* 0: the thread does not stay */

/* Called by a thread that is to stay in the middle of a call: it goes on after the fork. */
static void stay(void)
{
    struct timespec until;
    if (!calls_until_inside || --calls_until_inside)
        return;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    (void)sem_post(&inside);
    (void)sem_timedwait(&forked, &until);
}

pid_t __real_getpid(void);
pid_t __wrap_getpid(void);
pid_t __wrap_getpid(void)
{
    stay();
    return __real_getpid();
}

size_t __real_malloc_usable_size(void *p);
size_t __wrap_malloc_usable_size(void *p);
size_t __wrap_malloc_usable_size(void *p)
{
    stay();
    return __real_malloc_usable_size(p);
}

static atomic_bool broadcasts_inside; /* by whichever thread: the one that calls libpmix */

int __real_pthread_cond_broadcast(pthread_cond_t *c);
int __wrap_pthread_cond_broadcast(pthread_cond_t *c);
int __wrap_pthread_cond_broadcast(pthread_cond_t *c)
{
    if (atomic_exchange(&broadcasts_inside, false)) {
        calls_until_inside = 1;
        stay();
    }
    return __real_pthread_cond_broadcast(c);
}

static void *handle_free(void *arg)
{
    calls_until_inside = 2; /* the second call is under the lock */
    return wf_handle_free(malloc(64)) ? NULL : arg;
}

static void *job_open_close(void *arg)
{
    struct weft_job *job;
    calls_until_inside = 1;
    return weft_job_open(NULL, &job) || weft_job_close(job) ? arg : NULL;
}

/* Without a launcher: the result does not matter. */
static void *launcher_call(void *arg)
{
    struct wf_launch launch;
    (void)arg;
    atomic_store(&broadcasts_inside, true);
    if (wf_launch_open(&launch, wf_now_ns() + LAUNCH_NS) == WEFT_OK)
        wf_launch_close(&launch, LAUNCH_NS);
    return NULL;
}

/* Returns 0 if [call] succeeds in a child that was forked while [call] was under way in another
 * thread, and in that thread. The child ends by a signal if it waits for the thread. */
static int call_in_child_of(void *(*call)(void *))
{
    struct timespec until;
    pthread_t thread;
    int status = 0;
    void *bad = NULL;
    pid_t pid;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    if (sem_init(&inside, 0, 0) || sem_init(&forked, 0, 0) ||
        pthread_create(&thread, NULL, call, &status) || sem_timedwait(&inside, &until))
        return 1;
    pid = fork();
    if (!pid) {
        alarm(10);
        (void)sem_post(&forked); /* the child's: [call] does not stay there */
        _exit(call(&status) ? 1 : 0);
    }
    (void)sem_post(&forked);
    if (pthread_join(thread, &bad) || bad || pid < 0 || waitpid(pid, &status, 0) != pid)
        return 2;
    return status;
}

static int handles_child(struct family *f)
{
    (void)f;
    wf_handles_keep();
    return call_in_child_of(handle_free);
}

static int jobs_child(struct family *f)
{
    (void)f;
    return call_in_child_of(job_open_close);
}

static int launcher_child(struct family *f)
{
    (void)f;
    return call_in_child_of(launcher_call);
}

/* Fails when: a forked child waits for the lock under which calls of libpmix end, which another
 * thread of its parent held. */
static void test_fork_in_launcher_call(void **state)
{
    if (!TEST_PMIX)
        skip();
    in_child(launcher_child, *state);
}

/* Fails when: a forked child waits for the lock of closed objects that are kept
 * (WEFT_DEBUG=handles), which another thread of its parent held. */
static void test_fork_in_handle_free(void **state)
{
    in_child(handles_child, *state);
}

/* Fails when: a forked child waits for a thread of its parent that is opening a job. */
static void test_fork_in_job_open(void **state)
{
    in_child(jobs_child, *state);
}

/* Fails when: peers do not notice that a context closes, because a forked child has copies of its
 * sockets. */
static void test_child_holds_sockets(void **state)
{
    struct family *f = *state;
    uint64_t end = test_now_ns() + 10000000000u;
    int hold[2], status;
    enum weft_status put;
    pid_t pid;
    assert_int_equal(pipe(hold), 0); /* no message yet: only sockets connect the two */
    pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        char c;
        close(hold[1]);
        alarm(60);
        _exit(read(hold[0], &c, 1) != 0); /* until the parent closes the pipe */
    }
    close(hold[0]);
    OK(weft_ep_close(f->ep[2]));
    OK(weft_mr_close(f->mr[1]));
    OK(weft_ctx_close(f->ctx[1]));
    f->ep[2] = NULL;
    f->mr[1] = NULL;
    f->ctx[1] = NULL;
    while (f->downs != 1 && test_now_ns() < end)
        assert_true(weft_ep_poll(f->ep[0]) >= 0);
    put = weft_put(f->remote[2], 0, "", 1, NULL);
    close(hold[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(f->downs, 1);
    assert_int_equal(put, WEFT_ECLOSED);
}

/* ---- handlers ---- */

static struct wf_fork_item handled[4];
static char calls[64]; /* handlers in the order in which they ran: item 0 is a, A or 0 */

static void call_note(char what)
{
    calls[strlen(calls)] = what;
}

static void note_prepare(struct wf_fork_item *item)
{
    call_note((char)('a' + (item - handled)));
}

static void note_parent(struct wf_fork_item *item)
{
    call_note((char)('A' + (item - handled)));
}

static void note_child(struct wf_fork_item *item)
{
    call_note((char)('0' + (item - handled)));
}

static const struct wf_fork_ops upper = {.level = WF_FORK_TRANSPORT,
                                         .prepare = note_prepare,
                                         .parent = note_parent,
                                         .child = note_child};
static const struct wf_fork_ops lower = {.level = WF_FORK_MEM,
                                         .stays = true,
                                         .prepare = note_prepare,
                                         .parent = note_parent,
                                         .child = note_child};
static const struct wf_fork_ops empty = {.level = WF_FORK_MEM};

static int grandchild_handlers(struct family *f)
{
    (void)f;
    return strcmp(calls, "d3"); /* its parent's objects are not its own */
}

static int child_handlers(struct family *f)
{
    if (strcmp(calls, "bad301"))
        return 1;
    memset(calls, 0, sizeof calls);
    in_child(grandchild_handlers, f);
    return strcmp(calls, "dD");
}

/* Fails when: handlers run in an order other than that of the locks, not at all, twice, or in a
 * child for objects of its parent. */
static void test_handlers(void **state)
{
    wf_fork_join(&handled[0], &upper);
    wf_fork_join(&handled[1], &upper);
    wf_fork_join(&handled[2], &empty);
    wf_fork_join(&handled[3], &lower);
    wf_fork_join(&handled[0], &upper);
    in_child(child_handlers, *state);
    assert_string_equal(calls, "badDAB");
    memset(calls, 0, sizeof calls);
    for (int i = 1; i < 4; i++)
        wf_fork_leave(&handled[i]);
    wf_fork_join(&handled[1], &upper); /* once more, after it has left */
    in_child(child_opens, *state);
    assert_string_equal(calls, "baAB");
    for (int i = 0; i < 2; i++)
        wf_fork_leave(&handled[i]);
    memset(calls, 0, sizeof calls);
    in_child(child_opens, *state);
    assert_string_equal(calls, "");
}

#define T(f) cmocka_unit_test_setup_teardown(f, family_open, family_close)
int main(void)
{
    const struct CMUnitTest tests[] = {T(test_all_calls),           T(test_calls_of_bindings),
                                       T(test_own_context),         T(test_grandchild),
                                       T(test_fork_under_load),     T(test_fork_in_handle_free),
                                       T(test_fork_in_job_open),    T(test_fork_in_launcher_call),
                                       T(test_child_holds_sockets), T(test_handlers)};
    return cmocka_run_group_tests_name("fork", tests, NULL, NULL);
}
