/* SPDX-License-Identifier: BSD-3-Clause */
/* Run a program to which system calls are denied, as containers do it.
 *
 *     denied userfaultfd|process_vm PROGRAM ARGS...
 *
 *     process_vm  process_vm_readv and process_vm_writev */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Deny the calls [a] and [b]. */
static int deny(unsigned a, unsigned b)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, a, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, b, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv)
{
    int failed = argc < 3;
    if (!failed && !strcmp(argv[1], "process_vm"))
        failed = deny(SYS_process_vm_readv, SYS_process_vm_writev);
    else if (!failed)
        failed = deny(SYS_userfaultfd, SYS_userfaultfd);
    if (failed) {
        perror("denied");
        return 77;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 1;
}
