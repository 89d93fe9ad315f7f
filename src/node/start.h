/* SPDX-License-Identifier: BSD-3-Clause */
/* The line that a service which starts writes to the process that started it. Any other line is the
 * reason why it did not start. */
#ifndef WF_NODE_START_H
#define WF_NODE_START_H

#define WF_NODE_STARTED "started" /* clients can connect */
#define WF_NODE_TAKEN "taken"     /* another process has the name */

#endif
