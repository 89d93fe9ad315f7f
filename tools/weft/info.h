/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of `weft info`. */
#ifndef WEFT_INFO_H
#define WEFT_INFO_H

/* `weft info --stats`: the counters of running processes; argv[0] is "info".
 * Returns the exit code. */
int wf_info_stats(int argc, char **argv);

/* `weft info --resources`: what RDMA takes for so many peers; argv[0] is "info". Returns the exit
 * code. */
int wf_info_resources(int argc, char **argv);

/* Print the line about the libfabric provider. */
void wf_info_fabric(void);
/* Print the line about the component for Open MPI. */
void wf_info_ompi(void);

#endif
