/* SPDX-License-Identifier: BSD-3-Clause */
/* The services that the processes of a case start, by the public interface. */
#ifndef TESTS_STRESS_NODE_SERVICES_H
#define TESTS_STRESS_NODE_SERVICES_H

#include <stdbool.h>
#include <sys/types.h>

/* A case begins: services become children of this process, which gets a network of its own if it
 * may. The processes that it starts use the node's service alone, over RDMA devices or TCP. */
void services_begin(bool rdma);
/* The services must end by themselves. */
void services_end(void);

/* Is the process a service that runs? */
bool services_runs(pid_t pid);
/* Wait until there are [count] services, at most 2. */
void services_await(pid_t services[2], unsigned count);

#endif
