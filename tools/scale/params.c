/* SPDX-License-Identifier: BSD-3-Clause */
#include "params.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ASSUMED "customary, not looked up"

/* The range of a parameter that is not calibrated is what its sources allow. A calibrated
 * parameter's range is what the calibration searches. */
static const struct wf_param_row rows[WF_P_COUNT] = {
    [WF_P_LOOP] = {"loop", 8, 8, 6, 10, "ns", NULL, "a loop of the benchmark; " ASSUMED},
    [WF_P_CALL] = {"call", 12, 12, 9, 15, "ns", NULL, "entry to ibv_post_send; " ASSUMED},
    [WF_P_WQE] = {"wqe", 52, 52, 39, 65, "ns", NULL, "a request of one call, inline; " ASSUMED},
    [WF_P_WQE_LIST] = {"wqe_list", 30, 30, 22.5, 37.5, "ns", NULL,
                       "a request of a list, inline; " ASSUMED},
    [WF_P_COPY] = {"copy", 6, 6, 4.5, 7.5, "ns", NULL,
                   "less for a request that is not inline; " ASSUMED},
    [WF_P_BLUEFLAME] = {"blueflame", 58, 0, 43.5, 72.5, "ns", NULL,
                        "64 bytes to a write-combining register, and the flush; " ASSUMED},
    [WF_P_DOORBELL] = {"doorbell", 40, 0, 30, 50, "ns", NULL,
                       "8 bytes to a register, and the flush; " ASSUMED},
    [WF_P_POLL] = {"poll", 16, 16, 12, 20, "ns", NULL, "a call of ibv_poll_cq; " ASSUMED},
    [WF_P_COMPLETION] = {"completion", 22, 22, 16.5, 27.5, "ns", NULL,
                         "one completion of a poll; " ASSUMED},
    [WF_P_BRANCH] = {"branch", 1, 1, 0.5, 1.5, "ns", NULL,
                     "a branch on a completion's id; " ASSUMED},
    [WF_P_LOCK] = {"lock", 9.2, 9.2, 0, 40, "ns", "stencil 16x1, domains: 106",
                   "a spin lock that nobody else wants, taken and released"},
    [WF_P_ADD] = {"add", 8.5, 8.5, 7.2, 9.5, "ns", NULL,
                  "a locked add on an own line, 18 to 20 cycles at 2.5 GHz; " ASSUMED},
    [WF_P_LINE] = {"line", 50, 50, 40, 65, "ns", NULL,
                   "a modified line from another core of a Haswell socket: 40.3 to 42.3 ns on a "
                   "Xeon E5-2660 v4 of 10 cores (Memory Latency Checker; Intel's forum, topic "
                   "700477), more on longer rings"},
    [WF_P_CROWD] = {"crowd", 0.1, 0.1, 0.05, 0.15, "lines", NULL,
                    "further cost of handing a lock over, for each further waiter; " ASSUMED},
    [WF_P_FIFO] = {"fifo", 0, 0, 0, 1, "0|1", NULL,
                   "1: the first waiter gets a lock next, 0: any; chosen"},
    [WF_P_FOREIGN_POST] = {"foreign_post", 2, 2, 1, 3, "lines", NULL,
                           "lines of a queue pair that another core used before; the provider's "
                           "source shows 1 to 3. here: an entry, and how many have ended "
                           "(hca_null_queue.c)"},
    [WF_P_FOREIGN_COMPLETION] = {"foreign_completion", 2, 1, 1, 3, "lines", NULL,
                                 "lines of another core's queue pair for one completion: "
                                 "mlx5_parse_cqe (rdma-core, cq.c) writes sq.tail, reads wrid[], 8 "
                                 "of a line, and wqe_head[], 16 of a line: 1.2 to 3"},
    [WF_P_MESSAGE] =
        {"message", 1000.0 / 150, 0, 1000.0 / 165, 1000.0 / 135, "ns", NULL,
         "150 million messages a second: the paper's footnote, from the vendor's table"},
    [WF_P_COMPLETION_WRITE] =
        {"completion_write", 5.7, 0, 4.5, 6.6, "ns", NULL,
         "64 bytes and 26 of headers (Kalia et al., USENIX ATC 2016) at 15.75 GB/s, "
         "PCIe 3.0 x16; computed"},
    [WF_P_ENGINE] = {"engine", 48.1, 0, 5, 200, "ns", "one queue pair of 16 threads: 1/7",
                     "one message in a queue pair's engine"},
    [WF_P_ROUND_TRIP] = {"round_trip", 1700, 0, 1400, 2200, "ns", NULL,
                         "way to the peer and back; " ASSUMED},
    [WF_P_PCIE_READ] = {"pcie_read", 400, 0, 300, 500, "ns", NULL,
                        "latency of a read of memory by the NIC; " ASSUMED},
    [WF_P_WQES_PER_READ] = {"wqes_per_read", 8, 8, 4, 16, "requests", NULL,
                            "512 bytes in a read; " ASSUMED},
    [WF_P_RAILS] = {"rails", 8, 8, 8, 16, "rails", NULL,
                    "of address translation, one for each cache line in turn; assumed"},
    [WF_P_RAIL] = {"rail", 40, 0, 30, 50, "ns", NULL, "one translation in a rail; assumed"},
    [WF_P_PAGE] = {"page", 15.17, 0, 6, 100, "ns", "global array, Shared Dynamic: 65",
                   "a write to a page that another core writes, in the NIC's one engine"},
    [WF_P_PAIR] = {"pair", 113.7, 0, 0, 600, "ns", "global array, Shared Dynamic: 65",
                   "the same, as a wait of the two cores for each other"},
    [WF_P_ONE_ENGINE] = {"one_engine", 1, 1, 0, 1, "0|1", NULL,
                         "1: two cores on a page delay everyone (page), 0: each other (pair); "
                         "chosen"},
    [WF_P_ADJACENCY] = {"adjacency", 19.42, 0, 0, 100, "ns", "global array, Dynamic: 94",
                        "more for BlueFlame beside too many active pages"},
    [WF_P_ADJACENT] = {"adjacent", 16, 16, 16, 16, "pages", NULL, "pages of a block; chosen"},
    [WF_P_ACTIVE_MOST] = {"active_most", 8, 8, 8, 8, "pages", NULL,
                          "pages of a block that may be active without a delay; chosen"},
    [WF_P_ACROSS] = {"across", 0, 0, 0, 1, "0|1", NULL,
                     "1: adjacent by the NIC's numbers, 0: within a context; chosen"},
    [WF_P_WINDOW] = {"window", 2000, 2000, 2000, 2000, "ns", NULL,
                     "a page is active for so long after a write; chosen"},
    [WF_P_FORK_JOIN] = {"fork_join", 8352, 8352, 0, 100000, "ns", "stencil 16x1 over 1x16: 1.4",
                        "fork and join of 16 threads"},
    [WF_P_HANDOVER] = {"handover", 1, 1, 1, 1, "lines", NULL,
                       "until a waiter has a lock that was released; chosen. here: contention "
                       "measures it"},
    [WF_P_RETAKES] = {"retakes", 0, 1, 0, 1, "0|1", NULL,
                      "1: the core that released a lock may take it again before the waiter has "
                      "it, as pthread_spin_lock lets it; chosen"},
    [WF_P_FURTHER] = {"further", 1, 1, 1, 1, "lines", NULL,
                      "a line of a foreign completion, after the first one of a poll: a processor "
                      "can wait for several at a time; chosen. here: contention measures it"},
};

const struct wf_param_row *wf_param_row(enum wf_param p)
{
    return &rows[p];
}

enum wf_param wf_param_find(const char *name)
{
    unsigned i = 0;
    while (i < WF_P_COUNT && strcmp(rows[i].name, name) != 0)
        i++;
    return (enum wf_param)i;
}

bool wf_params_set(struct wf_params *out, const char *set)
{
    bool here = !strcmp(set, "here");
    if (!here && strcmp(set, "paper") != 0)
        return false;
    for (unsigned i = 0; i < WF_P_COUNT; i++)
        out->v[i] = here ? rows[i].here : rows[i].paper;
    return true;
}

/* ---- files ---- */

/* Returns NULL, or the error in the value. */
static const char *value_parse(const char *text, double *out)
{
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    while (isspace((unsigned char)*end))
        end++;
    if (end == text || *end)
        return "is not a number";
    if (errno || !isfinite(*out))
        return "is out of range";
    return *out < 0 ? "is negative" : NULL;
}

/* Values that the model divides by or counts with. */
static const char *value_wrong(enum wf_param p, double value)
{
    bool is_switch = !strcmp(rows[p].unit, "0|1");
    if (is_switch && value != 0 && value != 1)
        return "must be 0 or 1";
    if ((p == WF_P_RAILS || p == WF_P_WQES_PER_READ) && value < 1)
        return "must be at least 1";
    if ((p == WF_P_RAILS || p == WF_P_ADJACENT) && value > 64)
        return "must be at most 64";
    return NULL;
}

/* Reads a line without its comment. Returns NULL, or the error. */
static const char *line_read(struct wf_params *out, char *line, char **name)
{
    char *save = NULL, *value;
    const char *wrong;
    enum wf_param p;
    double number;
    *name = strtok_r(line, " \t\r\n=", &save);
    if (!*name)
        return NULL;
    p = wf_param_find(*name);
    if (p == WF_P_COUNT)
        return "is no parameter (`endpoints params` lists them)";
    value = strtok_r(NULL, "\r\n", &save);
    if (!value)
        return "has no value";
    wrong = value_parse(value, &number);
    if (!wrong)
        wrong = value_wrong(p, number);
    if (!wrong)
        out->v[p] = number;
    return wrong;
}

bool wf_params_read(struct wf_params *out, const char *file, char *why, size_t room)
{
    char line[256], *name = NULL;
    const char *wrong = NULL;
    unsigned number = 0;
    FILE *from = fopen(file, "r");
    if (!from) {
        snprintf(why, room, "%s: %s", file, strerror(errno));
        return false;
    }
    while (!wrong && fgets(line, sizeof line, from)) {
        number++;
        line[strcspn(line, "#")] = 0;
        wrong = line_read(out, line, &name);
    }
    if (wrong)
        snprintf(why, room, "%s:%u: %s %s", file, number, name, wrong);
    fclose(from);
    return !wrong;
}

void wf_params_print(const struct wf_params *p, FILE *to)
{
    fprintf(to, "# %-18s %10s  %-15s %-8s %-34s %s\n", "name", "value", "range", "unit",
            "calibrated by", "source");
    for (unsigned i = 0; i < WF_P_COUNT; i++) {
        char range[32];
        snprintf(range, sizeof range, "%.4g-%.4g", rows[i].low, rows[i].high);
        fprintf(to, "%-20s %10.6g  # %-13s %-8s %-34s %s\n", rows[i].name, p->v[i], range,
                rows[i].unit, rows[i].calibrated ? rows[i].calibrated : "elsewhere",
                rows[i].source);
    }
}
