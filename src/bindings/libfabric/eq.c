/* SPDX-License-Identifier: BSD-3-Clause */
/* Event queues: lists of events, each a copy of the bytes that fi_eq_read returns. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "eq.h"
#include "fork.h"

struct event {
    struct event *next;
    uint32_t event;
    size_t len;
    unsigned char bytes[];
};

struct fault {
    struct fault *next;
    struct fi_eq_err_entry e;
};

struct wfi_eq {
    struct fid_eq fid;
    struct wfi_fabric *fabric;
    pthread_mutex_t lock;
    struct event *first, **last;
    struct fault *faults, **faults_last;
    enum fi_wait_obj wait_obj;
    bool can_write;
    unsigned forks; /* wfi_forks when it was opened */
    int fd;         /* an eventfd that is readable while there are events or errors */
    atomic_uint users;
};

struct wfi_eq *wfi_eq_of(struct fid *fid)
{
    return container_of(fid, struct wfi_eq, fid.fid);
}

int wfi_eq_hold(struct wfi_eq **bound, struct fid *fid, const struct wfi_fabric *fabric)
{
    struct wfi_eq *eq = wfi_eq_of(fid);
    if (*bound)
        return -FI_EINVAL;
    if (eq->fabric != fabric) {
        WFI_WARN(EQ, "binding an event queue of another fabric: open it by this one\n");
        return -FI_EINVAL;
    }
    atomic_fetch_add(&eq->users, 1);
    *bound = eq;
    return 0;
}

void wfi_eq_release(struct wfi_eq **bound)
{
    if (*bound)
        atomic_fetch_sub(&(*bound)->users, 1);
    *bound = NULL;
}

/* Make the descriptor readable, or not readable, as the lists are. Under the lock. */
static void eq_signal(struct wfi_eq *eq)
{
    uint64_t n = 1;
    bool some = eq->first || eq->faults;
    ssize_t done = some ? write(eq->fd, &n, sizeof n) : read(eq->fd, &n, sizeof n);
    (void)done; /* it was so already */
}

/* A child has a copy of the list to which nothing comes, and shares the descriptor with its parent.
 * A thread that it does not have may hold the lock. */
static bool is_parents(const struct wfi_eq *eq)
{
    return wfi_is_parents(eq->forks);
}

int wfi_eq_trywait(struct wfi_eq *eq)
{
    bool empty;
    if (eq->wait_obj != FI_WAIT_FD)
        return -FI_EINVAL;
    if (is_parents(eq))
        return -FI_EOPBADSTATE;
    pthread_mutex_lock(&eq->lock);
    empty = !eq->first && !eq->faults;
    pthread_mutex_unlock(&eq->lock);
    return empty ? 0 : -FI_EAGAIN;
}

/* Returns an event with a copy of [bytes], or NULL (logged). */
static struct event *event_new(uint32_t event, const void *bytes, size_t len)
{
    struct event *e = malloc(sizeof *e + len);
    if (!e) {
        WFI_WARN(EQ, "no memory for an event: it is lost, or its call fails\n");
        return NULL;
    }
    e->next = NULL;
    e->event = event;
    e->len = len;
    memcpy(e->bytes, bytes, len);
    return e;
}

/* Append [faults], a list that ends at *faults_last, and [e]. */
static void append(struct wfi_eq *eq, struct fault *faults, struct fault **faults_last,
                   struct event *e)
{
    pthread_mutex_lock(&eq->lock);
    if (faults) {
        *eq->faults_last = faults;
        eq->faults_last = faults_last;
    }
    *eq->last = e;
    eq->last = &e->next;
    eq_signal(eq);
    pthread_mutex_unlock(&eq->lock);
}

static int eq_append(struct wfi_eq *eq, uint32_t event, const void *bytes, size_t len)
{
    struct event *e;
    if (is_parents(eq)) /* its descriptor would wake the parent for no event */
        return -FI_EOPBADSTATE;
    e = event_new(event, bytes, len);
    if (!e)
        return -FI_ENOMEM;
    append(eq, NULL, NULL, e);
    return 0;
}

/* ---- reports ---- */

int wfi_report_init(struct wfi_report *r, struct wfi_eq *eq, struct fid *fid, void *context)
{
    const struct fi_eq_entry entry = {fid, context, 0};
    if (is_parents(eq))
        return -FI_EOPBADSTATE;
    *r = (struct wfi_report){.eq = eq, .fid = fid, .context = context};
    r->end = event_new(0, &entry, sizeof entry);
    r->faults_last = &r->faults;
    return r->end ? 0 : -FI_ENOMEM;
}

int wfi_report_error(struct wfi_report *r, uint64_t data, int err)
{
    struct fault *f = calloc(1, sizeof *f);
    if (!f) {
        WFI_WARN(EQ, "no memory for an error: its call fails\n");
        return -FI_ENOMEM;
    }
    f->e.fid = r->fid;
    f->e.context = r->context;
    f->e.data = data;
    f->e.err = err;
    f->e.prov_errno = err;
    *r->faults_last = f;
    r->faults_last = &f->next;
    return 0;
}

void wfi_report_post(struct wfi_report *r, uint32_t event, uint64_t data)
{
    const struct fi_eq_entry entry = {r->fid, r->context, data};
    r->end->event = event;
    memcpy(r->end->bytes, &entry, sizeof entry);
    append(r->eq, r->faults, r->faults_last, r->end);
}

static void faults_free(struct fault *first)
{
    while (first) {
        struct fault *f = first;
        first = f->next;
        free(f);
    }
}

void wfi_report_free(struct wfi_report *r)
{
    faults_free(r->faults);
    free(r->end);
}

/* ---- calls ---- */

static ssize_t eq_read(struct fid_eq *fid, uint32_t *event, void *buf, size_t len, uint64_t flags)
{
    struct wfi_eq *eq = wfi_eq_of(&fid->fid);
    struct event *e;
    ssize_t rc = -FI_EAGAIN;
    if (flags & ~(uint64_t)FI_PEEK)
        return -FI_EBADFLAGS;
    if (is_parents(eq))
        return -FI_EOPBADSTATE;
    pthread_mutex_lock(&eq->lock);
    e = eq->first;
    if (eq->faults) {
        rc = -FI_EAVAIL;
    } else if (e && len < e->len) {
        rc = -FI_ETOOSMALL;
    } else if (e) {
        *event = e->event;
        memcpy(buf, e->bytes, e->len);
        rc = (ssize_t)e->len;
        if (!(flags & FI_PEEK)) {
            eq->first = e->next;
            if (!eq->first)
                eq->last = &eq->first;
            free(e);
            eq_signal(eq);
        }
    }
    pthread_mutex_unlock(&eq->lock);
    return rc;
}

/* No error has data: a program's buffer for them stays the program's, and gets 0 bytes. Entries of
 * interfaces before 1.5 have no buffer, and end before its size. */
static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *buf, uint64_t flags)
{
    struct wfi_eq *eq = wfi_eq_of(&fid->fid);
    const bool sized = FI_VERSION_GE(eq->fabric->fid.api_version, FI_VERSION(1, 5));
    const size_t size = sized ? sizeof *buf : offsetof(struct fi_eq_err_entry, err_data_size);
    void *data = sized && buf->err_data_size ? buf->err_data : NULL;
    struct fault *f;
    if (flags & ~(uint64_t)FI_PEEK)
        return -FI_EBADFLAGS;
    if (is_parents(eq))
        return -FI_EOPBADSTATE;
    pthread_mutex_lock(&eq->lock);
    f = eq->faults;
    if (f) {
        memcpy(buf, &f->e, size);
        buf->err_data = data;
    }
    if (f && !(flags & FI_PEEK)) {
        eq->faults = f->next;
        if (!eq->faults)
            eq->faults_last = &eq->faults;
        eq_signal(eq);
    }
    pthread_mutex_unlock(&eq->lock);
    if (f && !(flags & FI_PEEK))
        free(f);
    return f ? (ssize_t)size : -FI_EAGAIN;
}

static ssize_t eq_write(struct fid_eq *fid, uint32_t event, const void *buf, size_t len,
                        uint64_t flags)
{
    struct wfi_eq *eq = wfi_eq_of(&fid->fid);
    int rc;
    if (flags)
        return -FI_EBADFLAGS;
    if (!eq->can_write || !buf)
        return -FI_EINVAL;
    rc = eq_append(eq, event, buf, len);
    return rc ? rc : (ssize_t)len;
}

static ssize_t eq_sread(struct fid_eq *fid, uint32_t *event, void *buf, size_t len, int timeout,
                        uint64_t flags)
{
    struct wfi_eq *eq = wfi_eq_of(&fid->fid);
    int64_t end = wfi_now_ns() + timeout * INT64_C(1000000), left;
    ssize_t rc;
    if (eq->wait_obj == FI_WAIT_NONE)
        return -FI_EINVAL;
    while ((rc = eq_read(fid, event, buf, len, flags)) == -FI_EAGAIN) {
        struct pollfd p = {.fd = eq->fd, .events = POLLIN};
        left = end - wfi_now_ns();
        if (timeout >= 0 && left <= 0)
            break;
        if (poll(&p, 1, timeout < 0 ? -1 : (int)((left + 999999) / 1000000)) < 0 && errno == EINTR)
            return -FI_EINTR;
    }
    return rc;
}

static const char *eq_strerror(struct fid_eq *fid, int prov_errno, const void *err_data, char *buf,
                               size_t len)
{
    const char *text = fi_strerror(prov_errno);
    (void)fid, (void)err_data;
    if (!buf || !len)
        return text;
    strncpy(buf, text, len - 1);
    buf[len - 1] = 0;
    return buf;
}

static int eq_close(struct fid *fid)
{
    struct wfi_eq *eq = wfi_eq_of(fid);
    if (atomic_load(&eq->users)) {
        WFI_WARN(EQ,
                 "fi_close: %u domains, address vectors or endpoints report to the event "
                 "queue: close them first\n",
                 atomic_load(&eq->users));
        return -FI_EBUSY;
    }
    while (eq->first) {
        struct event *e = eq->first;
        eq->first = e->next;
        free(e);
    }
    faults_free(eq->faults);
    close(eq->fd);
    pthread_mutex_destroy(&eq->lock);
    atomic_fetch_sub(&eq->fabric->users, 1);
    free(eq);
    return 0;
}

static int eq_control(struct fid *fid, int command, void *arg)
{
    struct wfi_eq *eq = wfi_eq_of(fid);
    switch (command) {
    case FI_GETWAIT:
        if (eq->wait_obj != FI_WAIT_FD)
            return -FI_ENODATA;
        *(int *)arg = eq->fd;
        return 0;
    case FI_GETWAITOBJ: *(enum fi_wait_obj *)arg = eq->wait_obj; return 0;
    default: return -FI_ENOSYS;
    }
}

static struct fi_ops eq_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = eq_close,
    .bind = wfi_no_bind,
    .control = eq_control,
    .ops_open = wfi_no_ops_open,
};

static struct fi_ops_eq eq_ops = {
    .size = sizeof(struct fi_ops_eq),
    .read = eq_read,
    .readerr = eq_readerr,
    .write = eq_write,
    .sread = eq_sread,
    .strerror = eq_strerror,
};

static bool wait_obj_is_known(enum fi_wait_obj w)
{
    return w == FI_WAIT_NONE || w == FI_WAIT_UNSPEC || w == FI_WAIT_FD || w == FI_WAIT_YIELD;
}

int wfi_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **out,
                void *context)
{
    const struct fi_eq_attr dflt = {.wait_obj = FI_WAIT_UNSPEC}, *a = attr ? attr : &dflt;
    struct wfi_eq *eq;
    if (!wait_obj_is_known(a->wait_obj))
        return -FI_ENOSYS;
    if (a->flags & ~(uint64_t)(FI_WRITE | FI_AFFINITY))
        return -FI_EBADFLAGS;
    eq = calloc(1, sizeof *eq);
    if (!eq)
        return -FI_ENOMEM;
    eq->fd = wfi_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (eq->fd < 0) {
        free(eq);
        return -FI_EMFILE;
    }
    pthread_mutex_init(&eq->lock, NULL);
    eq->forks = wfi_forks();
    eq->last = &eq->first;
    eq->faults_last = &eq->faults;
    eq->wait_obj = a->wait_obj;
    eq->can_write = a->flags & FI_WRITE;
    eq->fabric = container_of(fabric, struct wfi_fabric, fid);
    atomic_fetch_add(&eq->fabric->users, 1);
    eq->fid.fid.fclass = FI_CLASS_EQ;
    eq->fid.fid.context = context;
    eq->fid.fid.ops = &eq_fid_ops;
    eq->fid.ops = &eq_ops;
    *out = &eq->fid;
    return 0;
}
