/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: weft_msg_take freed a claimed message and returned ENOMEM, after which a program
 * may use the message again: its last parts would never come, because there was no memory for
 * another message of its sender. A receive that could not open a connection to the sender of a kept
 * message for lack of descriptors freed the message, and its sender's operation never ended.
 *
 * Fails when: a claimed message is freed although weft_msg_take returns ENOMEM, or cannot be
 * dropped then; or a message is gone after a receive or weft_msg_take has returned ESYSTEM, or its
 * send does not complete. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <unistd.h>
#include <weft/msg.h>

#include "core/msg_recv.h"
#include "late.h"

enum { PARTS_LEN = 100000, OTHER_LEN = 8, LONG_LEN = 2000000 };
#define FULL WEFT_TAG_FULL

/* The size of the allocation that fails in this thread, once; and whether [watched] was freed. */
static _Thread_local size_t refused;
static const void *watched;
static bool is_freed;

extern void *__real_malloc(size_t size);
extern void __real_free(void *p);
void *__wrap_malloc(size_t size);
void __wrap_free(void *p);

void *__wrap_malloc(size_t size)
{
    if (!refused || size != refused)
        return __real_malloc(size);
    refused = 0;
    return NULL;
}

void __wrap_free(void *p)
{
    is_freed |= p && p == watched;
    __real_free(p);
}

static void take_no_memory(void)
{
    static unsigned char out[PARTS_LEN], in[PARTS_LEN];
    static struct side s;
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    struct weft_op sent = {0}, op = {0};
    struct weft_peer *peer[2];
    struct weft_msg_info info;
    struct weft_ep *sender;
    struct weft_msg *msg;
    side_open(&s);
    CHECK_STATUS(weft_ep_address(s.ep, address, &len), WEFT_OK);
    CHECK_STATUS(weft_ep_open(s.ctx, NULL, &sender), WEFT_OK);
    for (int i = 0; i < 2; i++)
        CHECK_STATUS(weft_peer_open(sender, address, len, &peer[i]), WEFT_OK);
    CHECK_STATUS(weft_msg_send(peer[0], 1, out, PARTS_LEN, &sent), WEFT_PENDING);
    UNTIL(s.ep, weft_msg_claim(s.ep, NULL, 1, FULL, &info, &msg) == WEFT_OK);
    CHECK(msg->parts); /* the sender does not poll */
    watched = msg;
    refused = sizeof *msg + WF_KEPT_BRIEF;
    CHECK_STATUS(weft_msg_send(peer[1], 2, out, OTHER_LEN, NULL), WEFT_OK);
    UNTIL(s.ep, msg->lost);
    for (int i = 0; i < 2; i++)
        CHECK_STATUS(weft_msg_take(s.ep, msg, in, PARTS_LEN, &op), WEFT_ENOMEM);
    CHECK(!is_freed);
    CHECK_STATUS(weft_ep_close(s.ep), WEFT_EBUSY);
    CHECK_STATUS(weft_msg_drop(s.ep, msg), WEFT_OK);
    CHECK(is_freed);
    CHECK_STATUS(weft_ep_close(s.ep), WEFT_OK);
}

static void send_long(int sock, void *arg)
{
    static unsigned char out[LONG_LEN];
    struct weft_op op = {0};
    static struct side s;
    (void)arg;
    side_open(&s);
    side_hear(&s, sock);
    memset(out, 7, sizeof out);
    CHECK_STATUS(weft_msg_send(s.peer, 1, out, LONG_LEN, &op), WEFT_PENDING);
    UNTIL(s.ep, op.status != WEFT_PENDING);
    CHECK_STATUS(op.status, WEFT_OK);
}

/* Let this process open no more descriptors. Returns the limit that it had. */
static rlim_t files_limit(void)
{
    struct rlimit limit;
    rlim_t before, used = 0;
    struct dirent *d;
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir);
    while ((d = readdir(dir)))
        used = WF_MAX(used, strtoul(d->d_name, NULL, 10));
    closedir(dir);
    CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
    before = limit.rlim_cur;
    for (int fd = 0; fd < (int)used; fd++)
        CHECK(fcntl(fd, F_GETFD) >= 0 || dup2(2, fd) == fd);
    limit.rlim_cur = used;
    CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
    return before;
}

static void files_allow(rlim_t files)
{
    struct rlimit limit;
    CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = files;
    CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
}

/* This process has no peer for the sender: to answer it, the endpoint opens one. [claims]: the
 * message is claimed first. */
static void receive(struct side *s, bool claims)
{
    static unsigned char in[LONG_LEN];
    struct weft_msg_info info;
    struct weft_msg *msg = NULL;
    struct weft_op op = {0};
    enum weft_status status;
    rlim_t files;
    UNTIL(s->ep, weft_msg_probe(s->ep, NULL, 1, FULL, &info) == WEFT_OK);
    if (claims)
        CHECK_STATUS(weft_msg_claim(s->ep, NULL, 1, FULL, &info, &msg), WEFT_OK);
    files = files_limit();
    for (int i = 0; i < 2; i++) {
        status = claims ? weft_msg_take(s->ep, msg, in, LONG_LEN, &op)
                        : weft_msg_recv(s->ep, NULL, 1, FULL, in, LONG_LEN, &op);
        CHECK_STATUS(status, WEFT_ESYSTEM);
    }
    files_allow(files);
    status = claims ? weft_msg_take(s->ep, msg, in, LONG_LEN, &op)
                    : weft_msg_recv(s->ep, NULL, 1, FULL, in, LONG_LEN, &op);
    CHECK(status == WEFT_OK || status == WEFT_PENDING);
    UNTIL(s->ep, op.status != WEFT_PENDING);
    CHECK_STATUS(op.status, WEFT_OK);
    CHECK(op.len == LONG_LEN && in[0] == 7 && in[LONG_LEN - 1] == 7);
}

static void no_files(bool claims)
{
    static struct side s;
    struct proc child = proc_start(send_long, NULL);
    side_open(&s);
    side_say(&s, child.sock);
    receive(&s, claims);
    UNTIL(s.ep, !s.ep->reqs.used); /* the report to the sender has left */
    proc_join(&child);
}

static void recv_no_files(void)
{
    no_files(false);
}

static void take_no_files(void)
{
    no_files(true);
}

int main(void)
{
    side_transport("shm");
    setenv("WEFT_MSG_EAGER", "128K", 1);
    setenv("WEFT_SHM_PAYLOAD", "64K", 1); /* the message in parts does not fit into the ring */
    setenv("WEFT_MSG_MEASURE", "0", 1);
    return proc_case("take_no_memory", take_no_memory) + proc_case("recv_no_files", recv_no_files) +
           proc_case("take_no_files", take_no_files);
}
