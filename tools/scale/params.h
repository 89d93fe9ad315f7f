/* SPDX-License-Identifier: BSD-3-Clause */
/* The parameters of the model of an mlx5 NIC and of the processor that drives it: one table. */
#ifndef WEFT_SCALE_PARAMS_H
#define WEFT_SCALE_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum wf_param {
    WF_P_LOOP,
    WF_P_CALL,
    WF_P_WQE,
    WF_P_WQE_LIST,
    WF_P_COPY,
    WF_P_BLUEFLAME,
    WF_P_DOORBELL,
    WF_P_POLL,
    WF_P_COMPLETION,
    WF_P_BRANCH,
    WF_P_LOCK,
    WF_P_ADD,
    WF_P_LINE,
    WF_P_CROWD,
    WF_P_FIFO,
    WF_P_FOREIGN_POST,
    WF_P_FOREIGN_COMPLETION,
    WF_P_MESSAGE,
    WF_P_COMPLETION_WRITE,
    WF_P_ENGINE,
    WF_P_ROUND_TRIP,
    WF_P_PCIE_READ,
    WF_P_WQES_PER_READ,
    WF_P_RAILS,
    WF_P_RAIL,
    WF_P_PAGE,
    WF_P_PAIR,
    WF_P_ONE_ENGINE,
    WF_P_ADJACENCY,
    WF_P_ADJACENT,
    WF_P_ACTIVE_MOST,
    WF_P_ACROSS,
    WF_P_WINDOW,
    WF_P_FORK_JOIN,
    WF_P_HANDOVER,
    WF_P_RETAKES,
    WF_P_FURTHER,
    WF_P_COUNT
};

/* A row of the table. */
struct wf_param_row {
    const char *name;
    double paper; /* of the paper's machine */
    double here;  /* of a machine without such a NIC: the NIC costs nothing */
    double low, high;
    const char *unit;
    const char *calibrated; /* the number that sets it; NULL: it comes from elsewhere */
    const char *source;
};

struct wf_params {
    double v[WF_P_COUNT];
};

const struct wf_param_row *wf_param_row(enum wf_param p);
/* Returns the parameter of that name, or WF_P_COUNT. */
enum wf_param wf_param_find(const char *name);

/* Sets all parameters: those of the set "paper" or "here". Returns false if there is no such set.
 */
bool wf_params_set(struct wf_params *out, const char *set);
/* Changes the parameters that [file] names, one "name value" a line; "#" begins a comment. Returns
 * false, and writes into [why] the error and the line's number. */
bool wf_params_read(struct wf_params *out, const char *file, char *why, size_t room);
void wf_params_print(const struct wf_params *p, FILE *to);

#endif
