/* SPDX-License-Identifier: BSD-3-Clause */
/* What sharing a NIC among threads costs: the benchmarks of "Scalable Communication Endpoints for
 * MPI+Threads Applications", on a model of the paper's NIC, on NICs that move nothing, and on real
 * ones; and how near the model comes to the paper's numbers. */
#include "endpoints.h"

#include <string.h>

static int command_params(const struct options *o)
{
    wf_params_print(&o->bench.params, stdout);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(const struct options *o);
} commands[] = {
    {"rate", command_rate},       {"ga", command_ga},
    {"stencil", command_stencil}, {"assign", command_assign},
    {"ledger", command_ledger},   {"figures", command_figures},
    {"verdict", command_verdict}, {"contention", command_contention},
    {"params", command_params},
};

int main(int argc, char **argv)
{
    struct options o;
    if (!options_read(argc, argv, &o))
        return 2;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(o.command, commands[i].name))
            return commands[i].run(&o);
    fprintf(stderr, "endpoints: %s is no command\n", o.command);
    options_usage(stderr);
    return 2;
}
