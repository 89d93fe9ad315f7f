/* SPDX-License-Identifier: BSD-3-Clause */
/* weft node: the service of a node, and what asks services. They are a program of its own, because
 * the library starts it, too; it has what only the library's sources have. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

#define PROGRAM "weft-node"

/* It is beside this one before installation, then in libexec. */
static void program_find(char *path, size_t room)
{
    char own[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    char *slash;
    own[n < 0 ? 0 : n] = 0;
    slash = strrchr(own, '/');
    if (slash) {
        snprintf(path, room, "%.*s/%s", (int)(slash - own), own, PROGRAM);
        if (!access(path, X_OK))
            return;
    }
    snprintf(path, room, "%s/%s", WF_TOOL_LIBEXEC, PROGRAM);
}

int wf_tool_node(int argc, char **argv)
{
    char path[2 * PATH_MAX];
    (void)argc;
    program_find(path, sizeof path);
    argv[0] = (char[]){PROGRAM};
    execv(path, argv);
    fprintf(stderr, "weft node: cannot run %s: %s\n", path, strerror(errno));
    return 1;
}
