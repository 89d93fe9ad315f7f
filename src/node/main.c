/* SPDX-License-Identifier: BSD-3-Clause */
/* The program weft-node: the service, and what asks services. `weft node` runs it, and the library
 * starts it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "node/node.h"

#define USAGE 2 /* exit code of a command line that was not understood */

static const char text[] =
    "usage: weft node --list [--json]\n"
    "       weft node --stop JOB\n"
    "\n"
    "A node service carries the network traffic of all processes of one job and user on a node.\n"
    "The library starts it, by this program without an option, and gives it the job's key by a\n"
    "pipe; it ends one second after its last client. By hand there is nothing to start.\n"
    "\n"
    "options:\n"
    "  --list    list this user's services on this node, and their clients\n"
    "  --json    as JSON\n"
    "  --stop    end the service of a job now: JOB is what --list shows, or its first digits\n"
    "  --help    print this\n";

static bool has_key(void)
{
    struct stat st;
    return !fstat(STDIN_FILENO, &st) && S_ISFIFO(st.st_mode);
}

int main(int argc, char **argv)
{
    const char *option = argc > 1 ? argv[1] : "";
    if (argc == 1 && has_key())
        return wf_node_start();
    if (argc == 2 && (!strcmp(option, "--help") || !strcmp(option, "-h"))) {
        fputs(text, stdout);
        return 0;
    }
    if (!strcmp(option, "--list") && (argc == 2 || (argc == 3 && !strcmp(argv[2], "--json"))))
        return wf_node_list(argc == 3);
    if (!strcmp(option, "--stop") && argc == 3)
        return wf_node_stop(argv[2]);
    if (argc == 1)
        fputs("weft node: no job's key in a pipe as standard input, so there is no service to "
              "start\n\n",
              stderr);
    else
        fprintf(stderr, "weft node: %s is not understood here\n\n", argv[argc - 1]);
    fputs(text, stderr);
    return USAGE;
}
