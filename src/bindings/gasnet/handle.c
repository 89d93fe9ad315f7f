/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations under way, as a program sees them: explicit handles, each thread's sets of implicit
 * operations, access regions, gets by value. */
#include <stdlib.h>
#include <string.h>

#include "op.h"

/* ---- explicit handles ---- */

gasnet_handle_t gasnetw_put_nb(gasnet_node_t node, void *dest, const void *src, size_t nbytes,
                               int keep)
{
    struct gasnetw_op *op = gasnetw_op_new();
    gasnetw_op_put(op, node, dest, src, nbytes, keep);
    return gasnetw_op_finish(op);
}

gasnet_handle_t gasnetw_get_nb(void *dest, gasnet_node_t node, const void *src, size_t nbytes)
{
    struct gasnetw_op *op = gasnetw_op_new();
    gasnetw_op_get(op, dest, node, src, nbytes);
    return gasnetw_op_finish(op);
}

void gasnetw_wait_op(gasnet_handle_t handle)
{
    gasnetw_op_drain(handle, 0);
    gasnetw_op_free(handle);
}

static bool take_if_done(gasnet_handle_t *handle)
{
    if (*handle == GASNET_INVALID_HANDLE)
        return true;
    if (gasnetw_op_pending(*handle))
        return false;
    gasnetw_op_free(*handle);
    *handle = GASNET_INVALID_HANDLE;
    return true;
}

int gasnetw_try_op(gasnet_handle_t handle)
{
    if (gasnetw_op_pending(handle))
        (void)gasnetw_turn();
    return take_if_done(&handle) ? GASNET_OK : GASNET_ERR_NOT_READY;
}

void gasnet_wait_syncnb_all(gasnet_handle_t *handles, size_t numhandles)
{
    for (size_t i = 0; i < numhandles; i++) {
        gasnet_wait_syncnb(handles[i]);
        handles[i] = GASNET_INVALID_HANDLE;
    }
}

int gasnet_try_syncnb_all(gasnet_handle_t *handles, size_t numhandles)
{
    bool all = true;
    for (size_t i = 0; i < numhandles; i++)
        all &= take_if_done(&handles[i]);
    if (all)
        return GASNET_OK;
    (void)gasnetw_turn();
    return GASNET_ERR_NOT_READY;
}

/* Is any of the handles complete, or is none of them valid? */
static bool some_done(gasnet_handle_t *handles, size_t numhandles)
{
    size_t valid = 0, done = 0;
    for (size_t i = 0; i < numhandles; i++) {
        if (handles[i] == GASNET_INVALID_HANDLE)
            continue;
        valid++;
        done += take_if_done(&handles[i]);
    }
    return !valid || done;
}

void gasnet_wait_syncnb_some(gasnet_handle_t *handles, size_t numhandles)
{
    struct gasnetw_wait w = {0};
    while (!some_done(handles, numhandles))
        gasnetw_wait_turn(&w);
}

int gasnet_try_syncnb_some(gasnet_handle_t *handles, size_t numhandles)
{
    if (some_done(handles, numhandles))
        return GASNET_OK;
    (void)gasnetw_turn();
    return GASNET_ERR_NOT_READY;
}

/* ---- implicit operations ---- */

/* The two sets of a thread's implicit operations. Each set holds one count for the thread itself.
 * The sets outlive the thread until none of their operations is under way. Then another thread may
 * use them. */
struct nbi {
    struct gasnetw_op gets, puts;
    struct gasnetw_op *region; /* open access region */
    struct nbi *next;
};

static struct {
    pthread_mutex_t lock;
    struct nbi *first;
    pthread_key_t key;
    pthread_once_t once;
} left = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

static _Thread_local struct nbi *nbi_of_thread;

static void nbi_leave(void *arg)
{
    struct nbi *n = arg;
    nbi_of_thread = NULL; /* another destructor may start operations */
    pthread_mutex_lock(&left.lock);
    n->next = left.first;
    left.first = n;
    pthread_mutex_unlock(&left.lock);
}

static void nbi_once(void)
{
    if (pthread_key_create(&left.key, nbi_leave))
        gasnetw_op_no_memory();
}

/* Returns the sets of a thread that has ended, if none of their operations is under way. Returns
 * NULL if there are no such sets. */
static struct nbi *nbi_reuse(void)
{
    struct nbi *n, **at;
    pthread_mutex_lock(&left.lock);
    for (at = &left.first; (n = *at); at = &n->next)
        if (gasnetw_op_pending(&n->gets) == 1 && gasnetw_op_pending(&n->puts) == 1)
            break;
    if (n)
        *at = n->next;
    pthread_mutex_unlock(&left.lock);
    return n;
}

__attribute__((noinline)) static struct nbi *nbi_make(void)
{
    struct nbi *n;
    pthread_once(&left.once, nbi_once);
    n = nbi_reuse();
    if (!n)
        n = malloc(sizeof *n);
    if (!n)
        gasnetw_op_no_memory();
    memset(n, 0, sizeof *n);
    atomic_init(&n->gets.pending, 1);
    atomic_init(&n->puts.pending, 1);
    if (pthread_setspecific(left.key, n))
        gasnetw_op_no_memory();
    return nbi_of_thread = n;
}

static struct nbi *nbi(void)
{
    return nbi_of_thread ? nbi_of_thread : nbi_make();
}

struct gasnetw_op *gasnetw_nbi_puts(void)
{
    struct nbi *n = nbi();
    return n->region ? n->region : &n->puts;
}

struct gasnetw_op *gasnetw_nbi_gets(void)
{
    struct nbi *n = nbi();
    return n->region ? n->region : &n->gets;
}

void gasnetw_put_nbi(gasnet_node_t node, void *dest, const void *src, size_t nbytes, int keep)
{
    gasnetw_op_put(gasnetw_nbi_puts(), node, dest, src, nbytes, keep);
}

void gasnetw_get_nbi(void *dest, gasnet_node_t node, const void *src, size_t nbytes)
{
    gasnetw_op_get(gasnetw_nbi_gets(), dest, node, src, nbytes);
}

static struct nbi *nbi_to_sync(void)
{
    struct nbi *n = nbi();
    if (n->region)
        gasnetw_fatal("gasnet_wait_syncnbi or gasnet_try_syncnbi inside an access region: end the "
                      "region and wait for its handle");
    return n;
}

void gasnetw_wait_nbi(int which)
{
    struct nbi *n = nbi_to_sync();
    if (which & 1)
        gasnetw_op_drain(&n->gets, 1);
    if (which & 2)
        gasnetw_op_drain(&n->puts, 1);
}

int gasnetw_try_nbi(int which)
{
    struct nbi *n = nbi_to_sync();
    bool done = (!(which & 1) || gasnetw_op_pending(&n->gets) == 1) &&
                (!(which & 2) || gasnetw_op_pending(&n->puts) == 1);
    if (done)
        return GASNET_OK;
    (void)gasnetw_turn();
    return GASNET_ERR_NOT_READY;
}

void gasnet_begin_nbi_accessregion(void)
{
    struct nbi *n = nbi();
    if (n->region)
        gasnetw_fatal("gasnet_begin_nbi_accessregion inside an access region: they do not nest");
    n->region = gasnetw_op_new();
}

gasnet_handle_t gasnet_end_nbi_accessregion(void)
{
    struct nbi *n = nbi();
    struct gasnetw_op *op = n->region;
    if (!op)
        gasnetw_fatal("gasnet_end_nbi_accessregion without gasnet_begin_nbi_accessregion");
    n->region = NULL;
    return gasnetw_op_finish(op);
}

/* ---- by value ---- */

struct gasnetw_valget {
    gasnet_handle_t handle;
    gasnet_register_value_t value;
};

gasnet_valget_handle_t gasnet_get_nb_val(gasnet_node_t node, void *src, size_t nbytes)
{
    struct gasnetw_valget *v = calloc(1, sizeof *v);
    if (!v)
        gasnetw_op_no_memory();
    if (!nbytes || nbytes > sizeof v->value)
        gasnetw_fatal("gasnet_get_nb_val of %zu bytes: 1 to %zu are possible", nbytes,
                      sizeof v->value);
    v->handle = gasnetw_get_nb(&v->value, node, src, nbytes);
    return v;
}

gasnet_register_value_t gasnet_wait_syncnb_valget(gasnet_valget_handle_t handle)
{
    gasnet_register_value_t value;
    gasnet_wait_syncnb(handle->handle);
    value = handle->value;
    free(handle);
    return value;
}
