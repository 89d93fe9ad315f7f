/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues: entries in a row, whose memory grows, and a list of errors. cq_wait.c has the
 * calls that wait. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "binding.h"

#define CQ_LEAST 256

struct wfi_error {
    struct fi_cq_err_entry e;
    struct wfi_error *next;
    size_t before;   /* entries to be read before it, and after the error before it */
    bool is_overrun; /* wfi_cq.overrun */
    uint8_t data[WFI_ADDR_SIZE];
};

/* ---- formats ---- */

typedef uint64_t word __attribute__((may_alias));

/* Copy the first [size] bytes of an entry, one of the four forms, word by word as they were
 * written: a longer load of what was just written waits until the stores have left the store
 * buffer. */
static inline void entry_copy(void *out, const struct wfi_entry *from, size_t size)
{
    const word *words = (const word *)(const void *)&from->e;
    word *to = out;
#define WORD(i) to[i] = __atomic_load_n(&words[i], __ATOMIC_RELAXED)
    WORD(0);
    if (size >= sizeof(struct fi_cq_msg_entry))
        WORD(1), WORD(2);
    if (size >= sizeof(struct fi_cq_data_entry))
        WORD(3), WORD(4);
    if (size >= sizeof(struct fi_cq_tagged_entry))
        WORD(5);
#undef WORD
}

#define COPY(name, type)                                                                           \
    static void name(void *out, const struct wfi_entry *from, size_t count)                        \
    {                                                                                              \
        type *to = out;                                                                            \
        for (size_t i = 0; i < count; i++)                                                         \
            entry_copy(&to[i], &from[i], sizeof *to);                                              \
    }

/* Each form is the beginning of the next longer one. */
COPY(copy_context, struct fi_cq_entry)
COPY(copy_msg, struct fi_cq_msg_entry)
COPY(copy_data, struct fi_cq_data_entry)
COPY(copy_tagged, struct fi_cq_tagged_entry)

static const struct {
    size_t size;
    void (*copy)(void *out, const struct wfi_entry *from, size_t count);
} formats[] = {
    [FI_CQ_FORMAT_CONTEXT] = {sizeof(struct fi_cq_entry), copy_context},
    [FI_CQ_FORMAT_MSG] = {sizeof(struct fi_cq_msg_entry), copy_msg},
    [FI_CQ_FORMAT_DATA] = {sizeof(struct fi_cq_data_entry), copy_data},
    [FI_CQ_FORMAT_TAGGED] = {sizeof(struct fi_cq_tagged_entry), copy_tagged},
};

/* ---- writing ---- */

/* Append [error], which is zeroed but for its entry and data. Under the lock. */
static void error_append(struct wfi_cq *cq, struct wfi_error *error)
{
    if (cq->errors)
        cq->errors_last->next = error;
    else
        __atomic_store_n(&cq->errors, error, __ATOMIC_RELAXED);
    cq->errors_last = error;
    error->before = (size_t)(cq->tail - cq->head) - cq->nbefore;
    cq->nbefore += error->before;
}

/* Report that a completion or error was lost for lack of memory: by one error, until the program
 * has read it. Under the lock. */
static void lost(struct wfi_cq *cq)
{
    struct wfi_error *error = cq->overrun;
    cq->overrun = NULL;
    if (error) {
        *error = (struct wfi_error){.e = {.err = FI_EOVERRUN, .prov_errno = WEFT_ENOMEM},
                                    .is_overrun = true};
        error_append(cq, error);
    }
}

static struct wfi_entry *memory_new(size_t room)
{
    return aligned_alloc(_Alignof(struct wfi_entry), room * sizeof(struct wfi_entry));
}

/* Move the entries to the beginning of [memory], which is that of [cq] or has room for twice as
 * many. Under the lock. */
static void move(struct wfi_cq *cq, struct wfi_entry *memory)
{
    const size_t n = (size_t)(cq->tail - cq->head);
    memmove(memory, cq->head, n * sizeof *memory);
    __atomic_store_n(&cq->head, memory, __ATOMIC_RELAXED);
    __atomic_store_n(&cq->tail, memory + n, __ATOMIC_RELAXED);
}

/* A move of at most half of the entries that fit comes after as many were read, so an entry moves
 * once, on average, or less. Other threads do not spin while this one allocates. They may read,
 * append or grow meanwhile. */
bool wfi_cq_room(struct wfi_cq *cq)
{
    while (wfi_cq_is_full(cq)) {
        const size_t room = (size_t)(cq->end - cq->memory);
        struct wfi_entry *more = NULL, *old = NULL;
        if ((size_t)(cq->tail - cq->head) > room / 2) {
            wfi_unlock(&cq->lock);
            more = memory_new(2 * room);
            wfi_lock(&cq->lock);
        }
        if (more && room == (size_t)(cq->end - cq->memory)) {
            old = cq->memory;
            move(cq, more);
            cq->memory = more;
            cq->end = more + 2 * room;
        } else if (more) {
            old = more; /* another thread was faster */
        } else if (cq->head > cq->memory) {
            move(cq, cq->memory);
        } else if (wfi_cq_is_full(cq)) {
            WFI_WARN(CQ, "no memory for a completion, which is lost: read the completion queue "
                         "more often\n");
            lost(cq);
            return false;
        }
        free(old);
    }
    return true;
}

void wfi_cq_fail(struct wfi_cq *cq, const struct fi_cq_err_entry *e, const void *data, size_t len)
{
    struct wfi_error *error = calloc(1, sizeof *error);
    if (!error)
        WFI_WARN(CQ, "no memory for an error, which is lost: %s\n",
                 weft_status_text((enum weft_status)e->prov_errno));
    if (error) {
        error->e = *e;
        error->e.err_data_size = len;
    }
    if (error && len)
        memcpy(error->data, data, len);
    wfi_lock(&cq->lock);
    if (error)
        error_append(cq, error);
    else
        lost(cq);
    wfi_unlock(&cq->lock);
    if (cq->wakes)
        wfi_cq_wake(cq);
}

enum weft_status wfi_cq_progress(struct wfi_cq *cq)
{
    return wfi_eps_poll(&cq->eps);
}

/* ---- reading ---- */

/* The entries before [head] were read. An empty queue begins anew, so that the next entries are in
 * lines that are in the cache. Under the lock. */
static inline void taken(struct wfi_cq *cq, struct wfi_entry *head)
{
    if (head == cq->tail) {
        head = cq->memory;
        __atomic_store_n(&cq->tail, head, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&cq->head, head, __ATOMIC_RELAXED);
}

/* Take up to [count] entries. Returns their number, 0 if there are none, or -FI_EAVAIL. An error
 * comes in its order: the entries before it may name a buffer that it returns to the program. */
static inline ssize_t take(struct wfi_cq *cq, void *buf, size_t count, fi_addr_t *source)
{
    size_t n;
    wfi_lock(&cq->lock);
    if (WEFT_UNLIKELY(cq->errors && !cq->errors->before)) {
        wfi_unlock(&cq->lock);
        return -FI_EAVAIL;
    }
    n = (size_t)(cq->tail - cq->head);
    if (n > count)
        n = count;
    if (WEFT_UNLIKELY(cq->errors != NULL)) {
        n = n < cq->errors->before ? n : cq->errors->before;
        cq->errors->before -= n;
        cq->nbefore -= n;
    }
    cq->copy(buf, cq->head, n);
    if (source)
        for (size_t i = 0; i < n; i++)
            source[i] = cq->head[i].source;
    taken(cq, cq->head + n);
    wfi_unlock(&cq->lock);
    return (ssize_t)n;
}

/* Is there nothing to read? Without the lock: a poll that is made in vain, or not made, does no
 * harm. */
static inline bool seems_empty(const struct wfi_cq *cq)
{
    return __atomic_load_n(&cq->head, __ATOMIC_RELAXED) ==
               __atomic_load_n(&cq->tail, __ATOMIC_RELAXED) &&
           !__atomic_load_n(&cq->errors, __ATOMIC_RELAXED);
}

static inline ssize_t read_from(struct wfi_cq *cq, void *buf, size_t count, fi_addr_t *source)
{
    enum weft_status s = WEFT_OK;
    ssize_t n;
    if (WEFT_UNLIKELY(wfi_is_parents(cq->lock.forks)))
        return -FI_EOPBADSTATE;
    if (seems_empty(cq))
        s = wfi_cq_progress(cq);
    n = take(cq, buf, count, source);
    return n ? n : WEFT_UNLIKELY(s != WEFT_OK) ? -wfi_errno(s) : -FI_EAGAIN;
}

__attribute__((noinline)) static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
    struct wfi_cq *cq = wfi_cq_of(&fid->fid);
    if (WEFT_UNLIKELY(!count))
        (void)wfi_cq_progress(cq);
    return read_from(cq, buf, count, NULL);
}

/* Copy up to [count] entries, of which there are some, from a queue that nothing locks. */
__attribute__((noinline)) static ssize_t read_several(struct wfi_cq *cq, void *buf, size_t count)
{
    size_t n = (size_t)(cq->tail - cq->head);
    n = n < count ? n : count;
    cq->copy(buf, cq->head, n);
    taken(cq, cq->head + n);
    return (ssize_t)n;
}

/* The short way of queues that nothing locks. [size] is that of an entry, a constant. */
static inline ssize_t read_short(struct fid_cq *fid, void *buf, size_t count, size_t size)
{
    struct wfi_cq *cq = wfi_cq_of(&fid->fid);
    struct wfi_entry *head = cq->head;
    int events = 0;
    if (head == cq->tail && !WEFT_UNLIKELY(!cq->only)) {
        events = weft_ep_poll(cq->only); /* as wfi_ep_progress, which has no more to do */
        head = cq->head;
    }
    if (WEFT_UNLIKELY(cq->errors || !count))
        return cq_read(fid, buf, count);
    if (!WEFT_UNLIKELY(head + 1 != cq->tail)) {
        entry_copy(buf, head, size);
        cq->head = cq->tail = cq->memory; /* as taken */
        return 1;
    }
    if (head != cq->tail)
        return read_several(cq, buf, count);
    if (WEFT_UNLIKELY(!cq->only))
        return cq_read(fid, buf, count);
    return WEFT_UNLIKELY(events < 0) ? -wfi_errno((enum weft_status)events) : -FI_EAGAIN;
}

#define READ(name, type)                                                                           \
    static ssize_t name(struct fid_cq *fid, void *buf, size_t count)                               \
    {                                                                                              \
        return read_short(fid, buf, count, sizeof(type));                                          \
    }

READ(read_context, struct fi_cq_entry)
READ(read_msg, struct fi_cq_msg_entry)
READ(read_data, struct fi_cq_data_entry)
READ(read_tagged, struct fi_cq_tagged_entry)

ssize_t wfi_cq_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source)
{
    struct wfi_cq *cq = wfi_cq_of(&fid->fid);
    if (WEFT_UNLIKELY(!count))
        (void)wfi_cq_progress(cq);
    return read_from(cq, buf, count, source);
}

/* Returns how many bytes of its entries a program gets that was written for [version] of the
 * interface: since 1.5 they have the size of the data besides. Since 1.20 a member follows, which
 * fi_cq_readerr sets before the call: it has a meaning only with keys of address vectors. */
static size_t error_size(uint32_t version)
{
    const size_t before_size = offsetof(struct fi_cq_err_entry, err_data_size);
    return FI_VERSION_GE(version, FI_VERSION(1, 5)) ? before_size + sizeof(size_t) : before_size;
}

/* Copy [error] to the program's [buf]. Returns the record that is to be freed, or NULL: the data of
 * [error] stay here until other errors with data were read, if the program has no buffer for them.
 * Programs for interfaces before 1.5 have no buffer. Under the lock. */
static struct wfi_error *error_copy(struct wfi_cq *cq, struct wfi_error *error,
                                    struct fi_cq_err_entry *buf)
{
    const uint32_t version = cq->domain->fabric->fid.api_version;
    const bool sized = FI_VERSION_GE(version, FI_VERSION(1, 5));
    const size_t room = sized && buf->err_data ? buf->err_data_size : 0;
    struct fi_cq_err_entry e = error->e;
    e.err_data = sized ? buf->err_data : NULL;
    if (e.err_data_size && room) {
        e.err_data_size = e.err_data_size < room ? e.err_data_size : room;
        memcpy(e.err_data, error->data, e.err_data_size);
    } else if (e.err_data_size) {
        struct wfi_error **shown = &cq->shown[cq->nshown++ % WFI_SHOWN], *old = *shown;
        e.err_data = error->data;
        *shown = error;
        error = old;
    }
    memcpy(buf, &e, error_size(version));
    return error;
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *buf, uint64_t flags)
{
    struct wfi_cq *cq = wfi_cq_of(&fid->fid);
    struct wfi_error *error;
    (void)flags;
    if (wfi_is_parents(cq->lock.forks))
        return -FI_EOPBADSTATE;
    if (!__atomic_load_n(&cq->errors, __ATOMIC_RELAXED))
        (void)wfi_cq_progress(cq);
    wfi_lock(&cq->lock);
    error = cq->errors;
    if (!error) {
        wfi_unlock(&cq->lock);
        return -FI_EAGAIN;
    }
    __atomic_store_n(&cq->errors, error->next, __ATOMIC_RELAXED);
    if (error->next) /* the program may ask for it before its turn */
        error->next->before += error->before;
    else
        cq->nbefore = 0;
    error = error_copy(cq, error, buf);
    if (error && error->is_overrun) {
        cq->overrun = error;
        error = NULL;
    }
    wfi_unlock(&cq->lock);
    free(error);
    return 1;
}

static const char *cq_strerror(struct fid_cq *fid, int prov_errno, const void *err_data, char *buf,
                               size_t len)
{
    (void)fid, (void)err_data;
    return wfi_strerror(prov_errno, buf, len);
}

/* ---- open and close ---- */

static bool has_descriptor(const struct wfi_cq *cq)
{
    return cq && cq->wait_obj == FI_WAIT_FD;
}

/* Each poll of an endpoint has to arm it again for the descriptor of either queue. */
void wfi_cq_short_set(struct wfi_cq *cq)
{
    const struct wfi_ep *ep = cq->eps.n == 1 ? cq->eps.all[0] : NULL;
    if (!cq->lock.on)
        cq->only = ep && !has_descriptor(ep->tx_cq) && !has_descriptor(ep->rx_cq) ? ep->wep : NULL;
}

int wfi_cq_add_ep(struct wfi_cq *cq, struct wfi_ep *ep)
{
    int rc = wfi_eps_add(&cq->eps, ep);
    if (rc)
        return rc;
    rc = wfi_cq_wait_add(cq, ep);
    if (rc)
        wfi_eps_remove(&cq->eps, ep); /* it was not there: a second add does not fail */
    return rc;
}

void wfi_cq_remove_ep(struct wfi_cq *cq, struct wfi_ep *ep)
{
    wfi_eps_remove(&cq->eps, ep);
    wfi_cq_wait_remove(cq, ep);
    wfi_cq_short_set(cq);
}

static void cq_free(struct wfi_cq *cq)
{
    free(cq->overrun);
    free(cq->memory);
    free(cq);
}

static int cq_close(struct fid *fid)
{
    struct wfi_cq *cq = wfi_cq_of(fid);
    if (atomic_load(&cq->users)) {
        WFI_WARN(CQ, "fi_close: %u endpoints report to the completion queue: close them first\n",
                 atomic_load(&cq->users));
        return -FI_EBUSY;
    }
    while (cq->errors) {
        struct wfi_error *error = cq->errors;
        cq->errors = error->next;
        free(error);
    }
    wfi_cq_wait_close(cq);
    atomic_fetch_sub(&cq->domain->users, 1);
    for (size_t i = 0; i < WFI_SHOWN; i++)
        free(cq->shown[i]);
    wfi_eps_fini(&cq->eps);
    cq_free(cq);
    return 0;
}

static int cq_control(struct fid *fid, int command, void *arg)
{
    struct wfi_cq *cq = wfi_cq_of(fid);
    switch (command) {
    case FI_GETWAIT:
        if (cq->wait_obj != FI_WAIT_FD)
            return -FI_ENODATA;
        *(int *)arg = cq->wait_fd;
        return 0;
    case FI_GETWAITOBJ: *(enum fi_wait_obj *)arg = cq->wait_obj; return 0;
    default: return -FI_ENOSYS;
    }
}

static struct fi_ops cq_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = cq_close,
    .bind = wfi_no_bind,
    .control = cq_control,
    .ops_open = wfi_no_ops_open,
};

#define CQ_OPS(read_function)                                                                      \
    {                                                                                              \
        .size = sizeof(struct fi_ops_cq), .read = (read_function), .readfrom = wfi_cq_readfrom,    \
        .readerr = cq_readerr, .sread = wfi_cq_sread, .sreadfrom = wfi_cq_sreadfrom,               \
        .signal = wfi_cq_signal, .strerror = cq_strerror                                           \
    }

static struct fi_ops_cq locked_ops = CQ_OPS(cq_read);
static struct fi_ops_cq short_ops[] = {
    [FI_CQ_FORMAT_CONTEXT] = CQ_OPS(read_context),
    [FI_CQ_FORMAT_MSG] = CQ_OPS(read_msg),
    [FI_CQ_FORMAT_DATA] = CQ_OPS(read_data),
    [FI_CQ_FORMAT_TAGGED] = CQ_OPS(read_tagged),
};

void wfi_cq_share(struct wfi_cq *cq)
{
    cq->lock.on = true;
    cq->wakes = cq->epoll_fd >= 0; /* as wfi_cq_wait_open */
    cq->only = NULL;
    cq->fid.ops = &locked_ops;
    wfi_eps_share(&cq->eps);
}

/* Allocate a queue with room for [size] entries, rounded up to a power of 2. */
static struct wfi_cq *cq_new(size_t size)
{
    struct wfi_cq *cq = calloc(1, sizeof *cq);
    size_t room = CQ_LEAST; /* a power of 2 */
    while (room < size && room < (size_t)1 << 24)
        room *= 2;
    if (!cq)
        return NULL;
    cq->memory = cq->head = cq->tail = memory_new(room);
    cq->overrun = calloc(1, sizeof *cq->overrun);
    if (cq->memory && cq->overrun) {
        cq->end = cq->memory + room;
        return cq;
    }
    cq_free(cq);
    return NULL;
}

int wfi_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **out,
                void *context)
{
    const struct fi_cq_attr dflt = {0}, *a = attr ? attr : &dflt;
    struct wfi_domain *d = wfi_domain_of(domain);
    enum fi_cq_format format = a->format;
    struct wfi_cq *cq;
    int rc;
    if (a->format >= sizeof formats / sizeof *formats || a->wait_cond > FI_CQ_COND_THRESHOLD)
        return -FI_EINVAL;
    if (a->flags & ~(uint64_t)FI_AFFINITY)
        return -FI_EBADFLAGS;
    if (wfi_domain_refuses(d))
        return -FI_EOPBADSTATE;
    if (a->wait_obj != FI_WAIT_NONE && a->wait_obj != FI_WAIT_UNSPEC && a->wait_obj != FI_WAIT_FD &&
        a->wait_obj != FI_WAIT_YIELD) {
        WFI_WARN(CQ, "fi_cq_open: wait objects are FI_WAIT_NONE, _UNSPEC, _FD and _YIELD\n");
        return -FI_ENOSYS;
    }
    /* The shortest form, as of other providers: a program that asks for none may have no room for
     * more. */
    if (format == FI_CQ_FORMAT_UNSPEC)
        format = FI_CQ_FORMAT_CONTEXT;
    cq = cq_new(a->size);
    if (!cq)
        return -FI_ENOMEM;
    wfi_brief_init(&cq->lock, d->locked);
    wfi_eps_init(&cq->eps, d->locked);
    cq->domain = d;
    cq->entry_size = formats[format].size;
    cq->copy = formats[format].copy;
    cq->wait_obj = a->wait_obj;
    cq->wait_cond = a->wait_cond;
    rc = wfi_cq_wait_open(cq);
    if (rc) {
        wfi_eps_fini(&cq->eps);
        cq_free(cq);
        return rc;
    }
    cq->fid.fid.fclass = FI_CLASS_CQ;
    cq->fid.fid.context = context;
    cq->fid.fid.ops = &cq_fid_ops;
    cq->fid.ops = d->locked ? &locked_ops : &short_ops[format];
    if (attr && attr->format != format)
        attr->format = format;
    atomic_fetch_add(&d->users, 1);
    *out = &cq->fid;
    return 0;
}
