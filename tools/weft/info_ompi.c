/* SPDX-License-Identifier: BSD-3-Clause */
/* The line of `weft info` about the component for Open MPI. Open MPI skips a component that it
 * cannot load without a word. This program has none of Open MPI's libraries, so it reports only
 * whether the file is there, and how it is used. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "info.h"

#define NAME "mca_btl_weft.so"
#define ROW "%s %-22s "

#ifdef WF_TOOL_OMPI

/* It is in the build folder before installation, then in a folder beside the library. */
static void folder_find(char *folder, size_t room)
{
    static const char *const beside[] = {WF_TOOL_OMPI_BUILT, WF_TOOL_OMPI_BESIDE};
    char own[PATH_MAX], file[3 * PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    char *slash;
    own[n < 0 ? 0 : n] = 0;
    slash = strrchr(own, '/');
    for (int i = 0; slash && i < 2; i++) {
        snprintf(folder, room, "%.*s/%s", (int)(slash - own), own, beside[i]);
        snprintf(file, sizeof file, "%s/%s", folder, NAME);
        if (!access(file, R_OK))
            return;
    }
    snprintf(folder, room, "%s", WF_TOOL_OMPI_DIR);
}

void wf_info_ompi(void)
{
    char folder[2 * PATH_MAX], file[3 * PATH_MAX];
    folder_find(folder, sizeof folder);
    snprintf(file, sizeof file, "%s/%s", folder, NAME);
    if (access(file, R_OK))
        printf(ROW "for Open MPI %s, not installed: there is no %s\n", "  !", "Open MPI component",
               WF_TOOL_OMPI, file);
    else
        printf(ROW "for Open MPI %s; OMPI_MCA_mca_base_component_path=%s:SYS_DEFAULT\n", "   ",
               "Open MPI component", WF_TOOL_OMPI, folder);
}

#else

void wf_info_ompi(void)
{
    printf(ROW "none (-Dopenmpi=enabled)\n", "   ", "Open MPI component");
}

#endif
