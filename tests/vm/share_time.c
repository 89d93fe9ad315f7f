/* SPDX-License-Identifier: BSD-3-Clause */
/* How long registering takes in a domain of another process, beside ibv_reg_mr of the same memory
 * in the own process's domain: share_time DEVICE. Processors are emulated, so only the ratios mean
 * something. */
#include "vm/share_node.h"

static const char *device;

#define PAIRS_MOST 401

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, compare);
    return v[n / 2];
}

static double own_us(struct node *n, void *memory, size_t len)
{
    uint64_t begin = test_now_ns();
    struct ibv_mr *mr = ibv_reg_mr(VERBS(n->pd, pd)->pd, memory, len, IBV_ACCESS_LOCAL_WRITE);
    double us = (double)(test_now_ns() - begin) / 1e3;
    CHECK(mr && !ibv_dereg_mr(mr));
    return us;
}

static double shared_us(struct wf_hca_registrar *r, void *memory, size_t len, unsigned who)
{
    struct wf_hca_registration reg;
    uint64_t begin = test_now_ns();
    enum weft_status status =
        r->ops->reg(r, memory, len, share_window(who), WF_HCA_LOCAL_WRITE, &reg);
    double us = (double)(test_now_ns() - begin) / 1e3;
    OK(status);
    OK(r->ops->drop(r, reg.handle));
    return us;
}

/* Registers the same memory in its own domain and in the owner's, in turn. */
static int client_timed(int sock, unsigned who)
{
    static const struct {
        size_t len;
        unsigned pairs;
    } sizes[] = {{PAGE, PAIRS_MOST}, {1u << 20, 201}, {64u << 20, 101}};
    static double own[PAIRS_MOST], shared[PAIRS_MOST], ratio[PAIRS_MOST];
    struct wf_hca_registrar *r = share_adopt(sock);
    struct node n;
    CHECK(r);
    node_open(&n, device);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        char *memory = pages(sizes[s].len, s);
        double of_ratio;
        for (unsigned i = 0; i < sizes[s].pairs; i++) {
            if (i % 2) /* each is first as often as second */
                own[i] = own_us(&n, memory, sizes[s].len);
            shared[i] = shared_us(r, memory, sizes[s].len, who);
            if (!(i % 2))
                own[i] = own_us(&n, memory, sizes[s].len);
            ratio[i] = shared[i] / own[i];
        }
        of_ratio = median(ratio, sizes[s].pairs);
        printf("    %8zu bytes: %9.1f us in the owner's domain, %9.1f us by ibv_reg_mr, ratio %.3f "
               "(medians of %u pairs)\n",
               sizes[s].len, median(shared, sizes[s].pairs), median(own, sizes[s].pairs), of_ratio,
               sizes[s].pairs);
        CHECK(of_ratio < 1.5); /* the aim is 1.10; processors are emulated */
        CHECK(!munmap(memory, sizes[s].len));
    }
    node_close(&n);
    r->ops->close(r);
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    struct share_process p;
    struct node n;
    if (argc != 2) {
        fprintf(stderr, "usage: share_time DEVICE\n");
        return 2;
    }
    device = argv[1];
    CHECK(share_start(&p, client_timed, 5));
    node_open(&n, device);
    share_with(&n, &p);
    CHECK(share_wait(&p) == 0);
    node_close(&n);
    return 0;
}
