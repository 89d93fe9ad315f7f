/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints that are found by IP address and port: the formats of sockets, fi_av_insertsvc and
 * _insertsym, fi_setname; servers that start late, are killed and start again, or never start. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sides.h"

#define HERE "127.0.0.1"

static const struct how in_any = {.addr_format = FI_SOCKADDR_IN, .node = HERE};
static char service[16];

static struct how in_at(const char *port)
{
    struct how how = in_any;
    how.service = port;
    return how;
}

static uint16_t port_of(struct side *s)
{
    struct sockaddr_in name;
    size_t len = sizeof name;
    assert_int_equal(fi_getname(&s->ep->fid, &name, &len), 0);
    assert_int_equal(len, sizeof name);
    assert_true(name.sin_family == AF_INET && name.sin_port);
    assert_int_equal(name.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    return ntohs(name.sin_port);
}

/* Set [service] to a port that no program has now. */
static void port_free(void)
{
    side_open(&b, &in_any);
    (void)snprintf(service, sizeof service, "%u", port_of(&b));
    side_close(&b);
}

static void pass(struct side *from, struct side *to, fi_addr_t source)
{
    fi_addr_t got = 0;
    char in8[8] = "";
    RETRY(fi_trecv(to->ep, in8, 8, NULL, FI_ADDR_UNSPEC, 3, 0, in8));
    RETRY(fi_tinject(from->ep, "message", 8, from->other, 3));
    assert_ptr_equal(take_from(to, &got).op_context, in8);
    assert_string_equal(in8, "message");
    if (source != FI_ADDR_UNSPEC)
        assert_true(got == source);
}

static void formats_test(void **state)
{
    static const struct {
        uint32_t format;
        const char *node, *text;
        size_t len;
    } all[] = {
        {FI_SOCKADDR_IN, HERE, "fi_sockaddr_in://127.0.0.1:", sizeof(struct sockaddr_in)},
        {FI_SOCKADDR, HERE, "fi_sockaddr_in://127.0.0.1:", sizeof(struct sockaddr_in)},
        {FI_SOCKADDR_IN6, "::1", "fi_sockaddr_in6://[::1]:", sizeof(struct sockaddr_in6)},
        {FI_SOCKADDR, "::1", "fi_sockaddr_in6://[::1]:", sizeof(struct sockaddr_in6)},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        const struct how how = {
            .addr_format = all[i].format, .node = all[i].node, .mr_mode = FI_MR_ALLOCATED};
        uint8_t name[64], got[64];
        size_t len = sizeof name, got_len = sizeof got;
        char text[100], word[8] = "";
        struct fid_mr *mr;
        open_both(&how);
        assert_int_equal(fi_getname(&b.ep->fid, name, &len), 0);
        assert_int_equal(len, all[i].len);
        memset(got, 0xee, sizeof got);
        assert_int_equal(fi_av_lookup(a.av, a.other, got, &got_len), 0);
        assert_int_equal(got_len, len);
        assert_memory_equal(got, name, len);
        assert_int_equal(got[len], 0xee);
        got_len = sizeof text;
        assert_non_null(fi_av_straddr(a.av, name, text, &got_len));
        assert_memory_equal(text, all[i].text, strlen(all[i].text));
        assert_int_equal(got_len, strlen(text) + 1);
        /* A source is known by its name when the endpoint has used the name. */
        pass(&a, &b, FI_ADDR_UNSPEC);
        pass(&b, &a, a.other);
        pass(&a, &b, b.other);
        assert_int_equal(fi_mr_reg(b.domain, word, 8, FI_REMOTE_WRITE, 0, 5, 0, &mr, NULL), 0);
        RETRY(fi_writedata(a.ep, "written", 8, NULL, 9, a.other, 0, 5, word));
        assert_int_equal(take_from(&b, &a.self).data, 9);
        assert_true(a.self == b.other);
        take(&a);
        assert_string_equal(word, "written");
        assert_int_equal(fi_close(&mr->fid), 0);
        close_both();
    }
}

/* The client sends before there is a server; the messages come in their order. */
static void late_test(void **state)
{
    struct how server;
    char got[8], mine[3] = "012";
    ssize_t rc;
    (void)state;
    port_free();
    side_open(&a, &in_any);
    assert_int_equal(fi_av_insertsvc(a.av, HERE, service, &a.other, 0, NULL), 1);
    assert_int_equal(fi_tinject(a.ep, "x", 1, a.other, 1), -FI_EAGAIN);
    rc = fi_trecv(a.ep, got, 8, NULL, a.other, 9, 0, got);
    assert_true(rc == -FI_EAGAIN || !rc);
    for (int i = 0; i < 3; i++)
        RETRY(fi_tsend(a.ep, &mine[i], 1, NULL, a.other, 1, &mine[i]));
    for (uint64_t end = now_ms() + 500; now_ms() < end;)
        assert_int_equal(fi_cq_read(a.cq, NULL, 0), -FI_EAGAIN);
    server = in_at(service);
    side_open(&b, &server);
    for (int i = 0; i < 3; i++) {
        RETRY(fi_trecv(b.ep, got, 1, NULL, FI_ADDR_UNSPEC, 1, 0, got));
        take(&b);
        assert_int_equal(got[0], '0' + i);
        assert_ptr_equal(take(&a).op_context, &mine[i]);
    }
    close_both();
}

/* No server at all: operations end, and the next ones ask anew. */
static void nobody_test(void **state)
{
    struct how server;
    struct fi_cq_err_entry e;
    (void)state;
    port_free();
    side_open(&a, &in_any);
    assert_int_equal(fi_av_insertsvc(a.av, HERE, service, &a.other, 0, NULL), 1);
    RETRY(fi_tsend(a.ep, "x", 1, NULL, a.other, 1, &e));
    e = take_error(&a);
    assert_int_equal(e.err, FI_EHOSTUNREACH);
    server = in_at(service);
    side_open(&b, &server);
    pass(&a, &b, FI_ADDR_UNSPEC);
    close_both();
}

static void in_use_test(void **state)
{
    struct sockaddr_in other = {.sin_family = AF_INET};
    struct how server;
    struct fid_ep *ep;
    (void)state;
    side_open(&a, &in_any);
    (void)snprintf(service, sizeof service, "%u", port_of(&a));
    server = in_at(service);
    memset(&b, 0, sizeof b);
    {
        struct fi_info *h = hints_new(&server), *info;
        struct sockaddr_in *at;
        assert_int_equal(fi_getinfo(API, HERE, service, FI_SOURCE, h, &info), 0);
        assert_int_equal(fi_endpoint(a.domain, info, &ep, NULL), -FI_EADDRINUSE);
        at = info->src_addr;
        assert_int_equal(inet_pton(AF_INET, "203.0.113.9", &at->sin_addr), 1);
        at->sin_port = 0;
        assert_int_equal(fi_endpoint(a.domain, info, &ep, NULL), -FI_EADDRNOTAVAIL);
        /* fi_setname moves an endpoint that is not in use. */
        at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        assert_int_equal(fi_endpoint(a.domain, info, &ep, NULL), 0);
        other.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        other.sin_port = htons(port_of(&a));
        assert_int_equal(fi_setname(&ep->fid, &other, sizeof other), -FI_EADDRINUSE);
        assert_int_equal(fi_setname(&ep->fid, &other, 5), -FI_EINVAL);
        assert_int_equal(fi_close(&a.ep->fid), 0);
        a.ep = ep;
        assert_int_equal(fi_setname(&ep->fid, &other, sizeof other), 0);
        assert_int_equal(port_of(&a), ntohs(other.sin_port));
        assert_int_equal(fi_ep_bind(ep, &a.av->fid, 0), 0);
        assert_int_equal(fi_setname(&ep->fid, &other, sizeof other), -FI_EOPBADSTATE);
        fi_freeinfo(info);
        fi_freeinfo(h);
    }
    side_close(&a);
}

/* ---- a server that is killed ---- */

/* The server: receive messages of tag 1 at a port until it is killed, or an alarm ends it. */
static void serve(int ready, const char *port)
{
    const struct how how = in_at(port);
    struct fi_cq_tagged_entry e;
    char got[8];
    alarm(100);
    side_open(&b, &how);
    if (write(ready, "r", 1) != 1)
        _exit(1);
    while (!fi_trecv(b.ep, got, 8, NULL, FI_ADDR_UNSPEC, 1, 0, got))
        while (fi_cq_read(b.cq, &e, 1) != 1)
            ;
}

/* The server is a program of its own: this one may have threads, which a child does not have. */
static pid_t server_start(void)
{
    int fd[2];
    char ready[16], c;
    pid_t child;
    assert_int_equal(pipe(fd), 0);
    (void)snprintf(ready, sizeof ready, "%d", fd[1]);
    child = fork();
    assert_true(child >= 0);
    if (!child) {
        execl("/proc/self/exe", "server", "serve", ready, service, NULL);
        _exit(1);
    }
    close(fd[1]);
    assert_int_equal(read(fd[0], &c, 1), 1);
    close(fd[0]);
    return child;
}

/* Send at FI_DELIVERY_COMPLETE until one arrives. Returns how many were lost. */
static int deliver(void)
{
    struct iovec iov = {"question", 8};
    struct fi_msg_tagged m = {
        .msg_iov = &iov, .iov_count = 1, .addr = a.other, .tag = 1, .context = &iov};
    int lost = 0;
    for (uint64_t end = now_ms() + 3 * WAIT_MS; now_ms() < end;) {
        struct fi_cq_tagged_entry e;
        struct fi_cq_err_entry err = {0};
        ssize_t n = fi_tsendmsg(a.ep, &m, FI_DELIVERY_COMPLETE | FI_COMPLETION);
        if (n == -FI_EAGAIN) {
            turn();
            continue;
        }
        if (n) { /* the loss, found by this call */
            lost++;
            continue;
        }
        while ((n = fi_cq_read(a.cq, &e, 1)) == -FI_EAGAIN && now_ms() < end)
            ;
        if (n == 1)
            return lost;
        assert_int_equal(n, -FI_EAVAIL);
        assert_int_equal(fi_cq_readerr(a.cq, &err, 0), 1);
        assert_ptr_equal(err.op_context, &iov);
        assert_true(err.err == FI_ECONNRESET || err.err == FI_ESHUTDOWN ||
                    err.err == FI_EHOSTUNREACH);
        lost++;
    }
    fail_msg("no message arrives");
    return lost;
}

static void restarted_test(void **state)
{
    pid_t child;
    (void)state;
    port_free();
    child = server_start();
    side_open(&a, &in_any);
    assert_int_equal(fi_av_insertsvc(a.av, HERE, service, &a.other, 0, NULL), 1);
    assert_int_equal(deliver(), 0);
    for (int i = 0; i < (over_network() ? 1 : 5); i++) {
        struct iovec iov = {"unheard", 8};
        struct fi_msg_tagged m = {
            .msg_iov = &iov, .iov_count = 1, .addr = a.other, .tag = 2, .context = &child};
        struct fi_cq_err_entry e;
        /* What no receive matches is lost with the server. */
        RETRY(fi_tsendmsg(a.ep, &m, FI_MATCH_COMPLETE | FI_COMPLETION));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        e = take_error(&a);
        assert_ptr_equal(e.op_context, &child);
        assert_true(e.err == FI_ECONNRESET || e.err == FI_ESHUTDOWN);
        child = server_start();
        assert_in_range(deliver(), 0, 1);
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    side_close(&a);
}

/* ---- address vectors ---- */

static void symmetric_test(void **state)
{
    struct sockaddr_in got;
    size_t len;
    fi_addr_t addr[4];
    int errors[4];
    (void)state;
    side_open(&a, &in_any);
    assert_int_equal(fi_av_insertsym(a.av, "10.1.1.255", 2, "5000", 2, addr, 0, NULL), 4);
    for (unsigned i = 0; i < 4; i++) {
        len = sizeof got;
        assert_int_equal(fi_av_lookup(a.av, addr[i], &got, &len), 0);
        assert_int_equal(ntohl(got.sin_addr.s_addr), 0x0a0101ff + i / 2);
        assert_int_equal(ntohs(got.sin_port), 5000 + i % 2);
    }
    assert_int_equal(fi_av_insertsym(a.av, "host", 2, "5000", 1, addr, 0, NULL), -FI_EINVAL);
    assert_int_equal(fi_av_insertsym(a.av, HERE, 1, "ssh", 1, addr, 0, NULL), -FI_EINVAL);
    assert_int_equal(fi_av_insertsym(a.av, HERE, 1, "65535", 2, addr, 0, NULL), -FI_EINVAL);
    assert_int_equal(fi_av_insertsym(a.av, HERE, SIZE_MAX / 2, "1", 4, addr, 0, NULL), -FI_EINVAL);
    /* All of the host's addresses are no name; port 0 neither. */
    assert_int_equal(fi_av_insertsym(a.av, "0.0.0.0", 2, "70", 1, addr, FI_SYNC_ERR, errors), 1);
    assert_true(errors[0] > 0 && errors[1] == 0 && addr[0] == FI_ADDR_NOTAVAIL);
    assert_int_equal(fi_av_insertsvc(a.av, HERE, "0", addr, 0, NULL), 0);
    assert_true(addr[0] == FI_ADDR_NOTAVAIL);
    assert_int_equal(fi_av_insertsvc(a.av, NULL, NULL, addr, 0, NULL), -FI_EINVAL);
    assert_int_equal(fi_av_insertsvc(a.av, "fi_sockaddr_in://" HERE ":77", NULL, addr, 0, NULL), 1);
    /* Other families, and one that is removed. */
    got.sin_family = AF_UNIX;
    assert_int_equal(fi_av_insert(a.av, &got, 1, addr, 0, NULL), 0);
    assert_int_equal(fi_av_remove(a.av, &(fi_addr_t){2}, 1, 0), 0);
    len = sizeof got;
    assert_int_equal(fi_av_lookup(a.av, 2, &got, &len), -FI_EINVAL);
    side_close(&a);
}

/* Weft's own format, where names have 64 bytes, too, and every source is known. */
static void own_test(void **state)
{
    struct how server = {.node = HERE};
    struct fi_info *h, *info;
    (void)state;
    port_free();
    server.service = service;
    side_open(&b, &server);
    side_open(&a, &(struct how){0});
    h = hints_new(&server);
    assert_int_equal(fi_getinfo(API, HERE, service, 0, h, &info), 0);
    assert_int_equal(info->dest_addrlen, 64);
    assert_int_equal(fi_av_insert(a.av, info->dest_addr, 1, &a.other, 0, NULL), 1);
    {
        uint8_t name[64];
        size_t len = sizeof name;
        assert_int_equal(fi_getname(&a.ep->fid, name, &len), 0);
        assert_int_equal(fi_av_insert(b.av, name, 1, &b.self, 0, NULL), 1);
        assert_int_equal(fi_av_insert(b.av, name, 1, &b.other, 0, NULL), 1);
    }
    pass(&a, &b, b.other);
    pass(&b, &a, a.other);
    fi_freeinfo(info);
    fi_freeinfo(h);
    close_both();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_test),   cmocka_unit_test(late_test),
        cmocka_unit_test(nobody_test),    cmocka_unit_test(in_use_test),
        cmocka_unit_test(restarted_test), cmocka_unit_test(symmetric_test),
        cmocka_unit_test(own_test),
    };
    setenv("WEFT_CONNECT_TIMEOUT", "3s", 1);
    setenv("WEFT_PEER_TIMEOUT", "2s", 1);
    if (argc == 4 && !strcmp(argv[1], "serve")) {
        serve(atoi(argv[2]), argv[3]);
        return 1;
    }
    model_set(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
