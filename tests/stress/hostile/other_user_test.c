/* SPDX-License-Identifier: BSD-3-Clause */
/* A process of another user gets in nowhere. Needs root, to become `nobody`;
 * exit code 77 without.
 *
 * What makes it fail: a socket that is read before SO_PEERCRED was looked at
 * (knock*: tried by accepting everyone); an address that is believed. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/process.h"
#include "enemy.h"

#define NOBODY 65534
#define ROUNDS 30

static struct worker victim, friend;
static struct wf_address address;

static void begin(void)
{
    worker_start(&victim);
    worker_start(&friend);
    worker_pair(&victim, &friend);
    worker_check_pair(&victim, &friend, ROUNDS);
    address = enemy_address(&victim);
}

static void end(void)
{
    worker_check_pair(&victim, &friend, ROUNDS);
    worker_quit_pair(&victim, &friend);
}

static void become_nobody(void)
{
    CHECK(!setgroups(0, NULL) && !setresgid(NOBODY, NOBODY, NOBODY) &&
          !setresuid(NOBODY, NOBODY, NOBODY));
    CHECK(setuid(0) && access("/proc/1/fd", R_OK));
}

/* ---- the socket ---- */

/* Its name is no secret: anyone can read it here. */
static socklen_t find_name(struct sockaddr_un *sa)
{
    char want[64], line[512], *at;
    FILE *f = fopen("/proc/net/unix", "re");
    CHECK(f != NULL);
    snprintf(want, sizeof want, "@weft-%016llx", (unsigned long long)address.process.token[0]);
    *sa = (struct sockaddr_un){.sun_family = AF_UNIX};
    while (fgets(line, sizeof line, f))
        if ((at = strstr(line, want))) {
            at[strcspn(at, "\n")] = 0;
            strcpy(sa->sun_path + 1, at + 1);
            fclose(f);
            return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(at));
        }
    proc_fail(__FILE__, __LINE__, "no socket %s in /proc/net/unix", want);
}

/* Sends a proper hello while the victim is stopped; then it is refused. A socket that is closed
 * with something unread in it resets its peer: unix(7). */
static void knock_main(int sock, void *arg)
{
    struct wf_process_id self = enemy_id(&address);
    struct sockaddr_un sa;
    struct wf_packet p = {.u.greeting.id = self};
    socklen_t len;
    char byte;
    int door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    (void)arg;
    become_nobody();
    len = find_name(&sa);
    CHECK(!connect(door, (struct sockaddr *)&sa, len));
    CHECK(!wf_packet_send(door, &p, WF_PACKET_HELLO, NULL, 0));
    proc_say(sock, "", 1);
    CHECK(recv(door, &byte, 1, 0) < 0 && errno == ECONNRESET);
}

static void knock(void)
{
    struct proc p;
    char byte;
    begin();
    proc_stop(&victim.proc);
    p = proc_start(knock_main, NULL);
    CHECK(proc_hear(p.sock, &byte, 1) == 1);
    proc_continue(&victim.proc);
    proc_join(&p);
    end();
}

/* A thousand times, without a hello, or holding the line. */
static void knock_often_main(int sock, void *arg)
{
    struct sockaddr_un sa;
    socklen_t len = find_name(&sa);
    (void)sock, (void)arg;
    become_nobody();
    for (int i = 0; i < 1000; i++) {
        int door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        char byte;
        CHECK(door >= 0 && !connect(door, (struct sockaddr *)&sa, len));
        CHECK(recv(door, &byte, 1, 0) == 0);
        close(door);
    }
}

static void knock_often(void)
{
    struct proc p;
    unsigned before;
    begin();
    before = worker_fds(&victim);
    p = proc_start(knock_often_main, NULL);
    worker_check_pair(&victim, &friend, ROUNDS);
    proc_join(&p);
    CHECK(worker_fds(&victim) <= before);
    end();
}

/* ---- the kernel's doors ---- */

static void break_in_main(int sock, void *arg)
{
    pid_t pid = victim.proc.pid;
    char path[64], byte = 1;
    struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)&victim, 1};
    int pidfd = wf_pidfd_open(pid);
    (void)sock, (void)arg;
    become_nobody();
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    CHECK(!opendir(path) && errno == EACCES);
    for (int fd = 0; fd < 64; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
        CHECK(open(path, O_RDWR | O_CLOEXEC) < 0 && open(path, O_RDONLY | O_CLOEXEC) < 0);
        CHECK(syscall(SYS_pidfd_getfd, pidfd, fd, 0) < 0);
    }
    snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
    CHECK(open(path, O_RDONLY | O_CLOEXEC) < 0);
    CHECK(process_vm_writev(pid, &here, 1, &there, 1, 0) < 0 && errno == EPERM);
    CHECK(process_vm_readv(pid, &here, 1, &there, 1, 0) < 0 && errno == EPERM);
    CHECK(kill(pid, 0) < 0 && errno == EPERM);
}

static void break_in(void)
{
    struct proc p;
    begin();
    p = proc_start(break_in_main, NULL);
    proc_join(&p);
    end();
}

/* ---- the library's doors ---- */

static void forge_main(int sock, void *arg)
{
    const struct wf_contact none = {0};
    struct wf_address forged = address;
    unsigned char bytes[WF_ADDRESS_BYTES];
    struct weft_remote *r;
    struct weft_peer *peer;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    (void)sock, (void)arg;
    become_nobody();
    CHECK_STATUS(weft_ctx_open(NULL, &ctx), WEFT_OK);
    CHECK_STATUS(weft_ep_open(ctx, NULL, &ep), WEFT_OK);
    wf_address_pack(&address, &none, bytes);
    CHECK_STATUS(weft_peer_open(ep, bytes, sizeof bytes, &peer), WEFT_EUNREACH);
    forged.process.user = wf_user_id(); /* an address that claims the victim's user */
    wf_address_pack(&forged, &none, bytes);
    CHECK_STATUS(weft_peer_open(ep, bytes, sizeof bytes, &peer), WEFT_OK);
    CHECK_STATUS(weft_remote_open(peer, victim.offer.key, victim.offer.key_len, &r), WEFT_EUNREACH);
    CHECK_STATUS(weft_am_request(peer, WORKER_AM_WORK, NULL, 0, NULL, 0, 0), WEFT_EUNREACH);
}

static void forge(void)
{
    struct proc p;
    begin();
    p = proc_start(forge_main, NULL);
    proc_join(&p);
    end();
}

/* It listens, and gives itself out as root's. */
static void lure_main(int sock, void *arg)
{
    struct wf_process_id self = enemy_id(&address);
    struct wf_packet p;
    int fds[WF_PACKET_FDS], nfds, listener, door;
    (void)arg;
    become_nobody();
    listener = enemy_listen(&self);
    proc_say(sock, &self, sizeof self);
    door = enemy_accept(listener);
    CHECK(!enemy_hear(door, &p, fds, &nfds)); /* it left without a word */
    proc_say(sock, "", 1);
}

static void lure(void)
{
    struct worker_offer bait;
    struct wf_address a;
    struct wf_key key;
    struct proc p;
    char byte;
    begin();
    p = proc_start(lure_main, NULL);
    a = address;
    CHECK(proc_hear(p.sock, &a.process, sizeof a.process) == sizeof a.process);
    bait = victim.offer;
    bait.address_len = wf_address_pack(&a, &(struct wf_contact){0}, bait.address);
    memcpy(&key, bait.key, sizeof key);
    key.token = a.process.token[0];
    key.check = wf_key_check(&key);
    memcpy(bait.key, &key, sizeof key);
    CHECK_STATUS(worker_order(&victim, WORKER_SECOND, &bait).second_remote, WEFT_EUNREACH);
    CHECK(proc_hear(p.sock, &byte, 1) == 1);
    proc_join(&p);
    end();
}

int main(void)
{
    int failed = 0;
    if (geteuid()) {
        puts("needs root, to become another user");
        return 77;
    }
    failed += proc_case("knock", knock);
    failed += proc_case("knock_often", knock_often);
    failed += proc_case("break_in", break_in);
    failed += proc_case("forge", forge);
    failed += proc_case("lure", lure);
    return failed ? 1 : 0;
}
