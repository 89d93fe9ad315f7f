/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the node's service share: clients, and a look at a service from outside. */
#ifndef NEAR_H
#define NEAR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "stress/kill/proc.h"
#include "transport/node/attach.h"

extern const char *near_program; /* weft-node */

/* A case begins: services that its processes start become its children when their starters end. */
void near_begin(void);
/* A case ends: all processes must end, with exit code 0, and the service of [key] leave no socket.
 */
void near_end(const uint8_t key[WF_NODE_KEY]);
/* The case has a network namespace of its own, and so all services that it can find. */
extern bool near_alone;

/* A client of the job whose key consists of [key] bytes, with PROC_WAIT_MS to attach. */
struct wf_node_attach_params near_client(const uint8_t key[WF_NODE_KEY]);
/* Attach, or fail the test. */
void near_attach(const uint8_t key[WF_NODE_KEY], struct wf_node_link *link);
/* Wait until the service has sent something, or ended. */
enum weft_status near_hear(struct wf_node_link *link);
/* Wait until the process has ended, and reap it. Returns its wait status. */
int near_reap(pid_t pid);
/* Stop the service. Returns when all its threads have stopped. */
void near_stop(pid_t pid);

/* Connect to the service of [key] as a program of its own would. */
int near_connect(const uint8_t key[WF_NODE_KEY]);
/* Bind its name, in its place. Returns a socket that does not listen yet. */
int near_bind(const uint8_t key[WF_NODE_KEY]);
/* Receive a packet. Returns its type; 0 at the end of the connection. */
unsigned near_receive(int sock, struct wf_node_packet *p);
/* In place of a service that listens on [fd]: accept a client, and take its proof of [key]. Returns
 * the connection. */
int near_accept(int fd, const uint8_t key[WF_NODE_KEY]);
/* An endpoint's rings, by hand. */
enum { NEAR_RING = 256 << 10 };
struct near_ring {
    struct wf_node_submit *submit;
    struct wf_node_event *event;
    struct wf_node_page *page;
    int bell;
    uint32_t tail; /* the test's count of the entries that it has posted */
};
/* Give the service of [key] the rings of an endpoint of its client [link]. */
struct near_ring near_ring_give(const uint8_t key[WF_NODE_KEY], struct wf_node_link *link);
void near_ring_drop(struct near_ring *r);
/* A HELLO that is right in all its fields. */
struct wf_node_packet near_hello(enum wf_node_role role);
/* How many clients the service has, from its list. */
unsigned near_clients(const uint8_t key[WF_NODE_KEY]);

/* Fork in another thread. Called at a point of a build with hooks, by a thread that may make forks
 * wait: returns when the child is there, or after 100 ms. The child's exit code is what [child]
 * returns, and must be 0. */
void near_fork_beside(int (*child)(void));
/* Wait for the child. Returns false if there was none. */
bool near_fork_join(void);

/* Begin to collect the output of standard error, and return it: a string, valid until the next
 * call. */
void near_stderr_begin(void);
const char *near_stderr_end(void);

#endif
