/* SPDX-License-Identifier: BSD-3-Clause */
/* Each rank publishes a card as another release of the component does, which no rank of this
 * release can read, or a card of another release of Weft. Two ranks exchange messages. The program
 * is exported to the libraries that it loads, so its weft_ctx_open is in place of Weft's: the
 * component calls it before it publishes the card. Rank 0 prints "ok".
 *
 * usage: ompi_card format|length|address
 *   format   the card begins with another number
 *   length   the card is shorter
 *   address  the address in it begins with another number */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <opal_config.h>

#include <opal/mca/pmix/pmix.h>

#include <dlfcn.h>
#include <weft/weft.h>

enum { ADDRESS = 8 }; /* its place in the card */

static bool is_length;
static int changed, place;
static opal_pmix_base_module_put_fn_t put;

static int put_changed(opal_pmix_scope_t scope, opal_value_t *value)
{
    if (strstr(value->key, "btl.weft") && value->type == OPAL_BYTE_OBJECT) {
        if (is_length)
            value->data.bo.size -= 4;
        else
            value->data.bo.bytes[place] ^= 1;
        changed++;
    }
    return put(scope, value);
}

enum weft_status weft_ctx_open(const struct weft_ctx_params *params, struct weft_ctx **out)
{
    static __typeof__(&weft_ctx_open) real;
    void *weft = dlopen("libweft.so.0", RTLD_NOW | RTLD_NOLOAD);
    opal_pmix_base_module_t *pmix = dlsym(RTLD_DEFAULT, "opal_pmix");
    *(void **)&real = weft ? dlsym(weft, "weft_ctx_open") : NULL;
    if (pmix && !put) {
        put = pmix->put;
        pmix->put = put_changed;
    }
    return real ? real(params, out) : WEFT_ESYSTEM;
}

int main(int argc, char **argv)
{
    static char in[100000], out[100000];
    int rank;
    is_length = argc > 1 && !strcmp(argv[1], "length");
    place = argc > 1 && !strcmp(argv[1], "address") ? ADDRESS : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    memset(out, 'a' + rank, sizeof out);
    for (int len = 1; len <= (int)sizeof out; len *= 10)
        MPI_Sendrecv(out, len, MPI_CHAR, !rank, 1, in, len, MPI_CHAR, !rank, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    memset(out, 'a' + !rank, sizeof out);
    if (changed != 1 || memcmp(in, out, sizeof in)) {
        fprintf(stderr, "rank %d: %d cards were changed\n", rank, changed);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (!rank && printf("ok\n") < 0)
        return 1;
    return MPI_Finalize();
}
