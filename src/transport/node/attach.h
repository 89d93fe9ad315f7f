/* SPDX-License-Identifier: BSD-3-Clause */
/* A context's connection to the service of its node: found or started, authenticated, and given an
 * index. */
#ifndef WF_TRANSPORT_NODE_ATTACH_H
#define WF_TRANSPORT_NODE_ATTACH_H

#include <stdint.h>
#include <sys/types.h>

#include "base/fork.h"
#include "base/lock.h"
#include "node/name.h"

struct wf_node_attach_params {
    const uint8_t *key;        /* WF_NODE_KEY bytes */
    const char *name;          /* WEFT_NODE_NAME, expanded (wf_node_name_expand) */
    const char *program;       /* the service's; NULL: the one that was built with this library */
    char **environment;        /* the service's; NULL: wf_config_service_environment */
    struct wf_process_id self; /* of the context */
    struct wf_node_parameters parameters;
    uint32_t held; /* index that the context had from an earlier service, plus 1; 0: none */
    /* If [held] is not 0: incarnation and line of that service, and what it has left, with which a
     * successor is started (packet.h). */
    uint32_t last, line;
    const int *estate;
    int nestate;
    bool membarrier;   /* this process has registered for membarrier(2) */
    uint64_t until_ns; /* wf_now_ns() at which the attempt ends */
    int stop_fd;       /* or when this one is readable; 0: none */
    char *why;         /* NULL: a failure is logged; or 512 bytes, which get the line instead */
};

struct wf_node_link {
    struct wf_fork_item fork; /* a forked child closes its copies */
    int sock;
    int pidfd;   /* of the service: readable when it has ended */
    int page_fd; /* the service's page: wf_shared_map. estate[0] */
    pid_t pid;
    uint32_t index;
    uint32_t incarnation, line;
    int estate[WF_NODE_FDS]; /* of the service, kept for its successor */
    int nestate;
    int received[WF_NODE_FDS]; /* of the packet that wf_node_hear reads */
    int nreceived;
    uint32_t window; /* where memory can be registered with the service's NIC; 0: nowhere */
    struct wf_hca_share share;
    int command_fd;            /* of that NIC, or -1 */
    struct wf_contact contact; /* of the service */
    bool membarrier;           /* both processes have registered for membarrier(2) */
    /* NULL, or takes an answer to RING, UNRING or NODE: wf_node_hear calls it. A descriptor that it
     * takes over it keeps first, and then sets to -1. Returns false if the packet is no answer. */
    bool (*answer)(struct wf_node_link *link, const struct wf_node_packet *packet, int *fds,
                   int nfds);
    void *owner;
};

/* Attach to the service of the job on this node, and start it if there is none. [link] is the
 * caller's, and stays where it is until wf_node_detach; params and what it points to are read
 * during the call only. The index may be another one than the held one. Blocks, at most until
 * params->until_ns.
 *
 * Returns  OK         [link] is attached
 *          EACCESS    another user has the name, or it has another key
 *          EBUSY      the service has other parameters
 *          ELIMIT     all indexes are taken, or the service had no descriptor or memory for 500 ms
 *          EVERSION   the service is of another version
 *          EPROTO     what has the name breaks the protocol
 *          ETIMEDOUT  no service answered in time
 *          ECLOSED    stop_fd is readable
 *          ESYSTEM    a service cannot be started, or a system call failed
 * All but OK are logged, as one warning that says what to change, if params->why is NULL. */
enum weft_status wf_node_attach(const struct wf_node_attach_params *params,
                                struct wf_node_link *link);

/* Take leave of the service, and close the link's descriptors. Never blocks. A link that
 * wf_node_attach did not attach must not be given. */
void wf_node_detach(struct wf_node_link *link);

/* The service has ended, and is to have no successor: close its estate. Calls of other
 * nodes' services are refused then. */
void wf_node_estate_close(struct wf_node_link *link);

/* This process registers nothing with the service's NIC: close the command descriptor, so that the
 * NIC's context ends with the service. */
void wf_node_command_close(struct wf_node_link *link);

/* Read what the service has sent since, and log its lines. Never blocks. To be called when
 * link->sock or link->pidfd is readable.
 *
 * Returns  OK       the service serves
 *          ECLOSED  the service was stopped, and has closed the connection
 *          EPEER    the service's process has ended
 *          EPROTO   the service broke the protocol, or ended the connection for an error of this
 *                   process, which was logged */
enum weft_status wf_node_hear(struct wf_node_link *link);

/* A lock that is held from a call that makes a descriptor until a link has it, while a link's
 * descriptors are closed, and while a service gets its descriptors. A child that is forked
 * meanwhile could not close them, or would close other ones; and a NIC's context, the port and the
 * hold of a service live as long as a process has their descriptors. The lock is taken before a
 * fork. */
WF_LOCK_CLASS(wf_node_taking_class);
void wf_node_taking_begin(void) WF_ACQUIRES(wf_node_taking_class);
void wf_node_taking_end(void) WF_RELEASES(wf_node_taking_class);
/* Close *fd under the lock, if it is none of -1, and set it to -1. */
void wf_node_fd_close(int *fd);

/* spawn.c: start the service, and wait until clients can connect to it, or another process has its
 * name, which is a success, too. With params->held, it is a successor of that service. Blocks, at
 * most until [until_ns], or until params->stop_fd is readable.
 * Returns  OK | ESYSTEM | ETIMEDOUT: [why] has a sentence
 *          ECLOSED  it has ended, or was killed, before it wrote its line
 *          EBUSY    clients of an earlier service live, of which one is to start the successor; not
 *                   if [anew] */
enum weft_status wf_node_spawn(const struct wf_node_attach_params *params, bool anew,
                               char why[512]);

#endif
