/* SPDX-License-Identifier: BSD-3-Clause */
/* The provider, which libfabric loads: its variables, and the fabric. */
#include <stdlib.h>
#include <string.h>

#include "binding.h"
#include "fork.h"

extern char **environ;

static const struct {
    const char *name;
    uint32_t bit;
} mr_modes[] = {
    {"raw", FI_MR_RAW},           {"virt_addr", FI_MR_VIRT_ADDR},   {"allocated", FI_MR_ALLOCATED},
    {"prov_key", FI_MR_PROV_KEY}, {"mmu_notify", FI_MR_MMU_NOTIFY}, {"rma_event", FI_MR_RMA_EVENT},
    {"endpoint", FI_MR_ENDPOINT},
};

/* Warn of variables that this provider does not have, as Weft does of its own. */
static void warn_unknown(void)
{
    static const char start[] = "FI_WEFT_";
    for (char **e = environ; e && *e; e++) {
        const int len = (int)strcspn(*e, "=");
        if (!strncmp(*e, start, sizeof start - 1) &&
            strncmp(*e, "FI_WEFT_MR_MODE=", (size_t)len + 1))
            WFI_WARN(CORE, "%.*s is not a variable of this provider: fi_info -e lists them\n", len,
                     *e);
    }
}

static void define_params(void)
{
    (void)fi_param_define(
        &wfi_provider, "mr_mode", FI_PARAM_STRING,
        "Registration modes that fi_getinfo keeps if the program offers them, with commas between "
        "them: raw, virt_addr, allocated, prov_key, mmu_notify, rma_event, endpoint "
        "(default: allocated)");
}

uint32_t wfi_prov_mr_mode(void)
{
    uint32_t bits = FI_MR_ALLOCATED;
    char *value = NULL, *copy, *word, *rest;
    if (fi_param_get_str(&wfi_provider, "mr_mode", &value) || !value || !(copy = strdup(value)))
        return bits;
    for (word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        size_t i = 0, n = sizeof mr_modes / sizeof *mr_modes;
        while (i < n && strcmp(word, mr_modes[i].name))
            i++;
        if (i < n)
            bits |= mr_modes[i].bit;
        else
            WFI_WARN(CORE,
                     "FI_WEFT_MR_MODE has the unknown mode \"%s\", which is ignored: "
                     "fi_info -e lists the modes\n",
                     word);
    }
    free(copy);
    return bits;
}

/* Sizes of Weft's variables. */
struct sizes {
    size_t am_max, msg_eager;
};

static void size_row(void *arg, const char *name, const char *value, const char *dflt,
                     const char *doc)
{
    struct sizes *sizes = arg;
    char *unit;
    size_t n = strtoull(value, &unit, 10);
    (void)dflt, (void)doc;
    n *= *unit == 'K' ? 1024 : *unit == 'M' ? 1024 * 1024 : 1;
    if (!strcmp(name, "WEFT_AM_MAX"))
        sizes->am_max = n;
    if (!strcmp(name, "WEFT_MSG_EAGER"))
        sizes->msg_eager = n;
}

size_t wfi_prov_am_max(void)
{
    struct sizes sizes = {0, 0};
    weft_config_rows(size_row, &sizes);
    return sizes.am_max;
}

size_t wfi_prov_inject(void)
{
    struct sizes sizes = {0, 0};
    weft_config_rows(size_row, &sizes);
    return sizes.am_max < sizes.msg_eager ? sizes.am_max : sizes.msg_eager;
}

/* ---- fabric ---- */

static struct wfi_fabric *fabric_of(struct fid *fid)
{
    return container_of(fid, struct wfi_fabric, fid.fid);
}

static int fabric_close(struct fid *fid)
{
    struct wfi_fabric *f = fabric_of(fid);
    unsigned users = atomic_load(&f->users);
    if (users) {
        WFI_WARN(FABRIC,
                 "fi_close: %u domains or event queues of the fabric are open: close them "
                 "first\n",
                 users);
        return -FI_EBUSY;
    }
    free(f);
    return 0;
}

static int fabric_trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
    (void)fabric;
    for (int i = 0; i < count; i++) {
        int rc;
        switch (fids[i]->fclass) {
        case FI_CLASS_CQ: rc = wfi_cq_trywait(wfi_cq_of(fids[i])); break;
        case FI_CLASS_EQ: rc = wfi_eq_trywait(wfi_eq_of(fids[i])); break;
        default: rc = -FI_EINVAL;
        }
        if (rc)
            return rc;
    }
    return 0;
}

static int fabric_no_passive_ep(struct fid_fabric *fabric, struct fi_info *info,
                                struct fid_pep **pep, void *context)
{
    (void)fabric, (void)info, (void)pep, (void)context;
    return -FI_ENOSYS;
}

static int fabric_no_wait_open(struct fid_fabric *fabric, struct fi_wait_attr *attr,
                               struct fid_wait **waitset)
{
    (void)fabric, (void)attr, (void)waitset;
    return -FI_ENOSYS;
}

static struct fi_ops fabric_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = fabric_close,
    .bind = wfi_no_bind,
    .control = wfi_no_control,
    .ops_open = wfi_no_ops_open,
};

static struct fi_ops_fabric fabric_ops = {
    .size = sizeof(struct fi_ops_fabric),
    .domain = wfi_domain_open,
    .passive_ep = fabric_no_passive_ep,
    .eq_open = wfi_eq_open,
    .wait_open = fabric_no_wait_open,
    .trywait = fabric_trywait,
};

static int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context)
{
    struct wfi_fabric *f;
    if (attr->name && strcmp(attr->name, WFI_NAME))
        return -FI_ENODATA;
    f = calloc(1, sizeof *f);
    if (!f)
        return -FI_ENOMEM;
    f->fid.fid.fclass = FI_CLASS_FABRIC;
    f->fid.fid.context = context;
    f->fid.fid.ops = &fabric_fid_ops;
    f->fid.ops = &fabric_ops;
    f->fid.api_version = attr->api_version;
    *out = &f->fid;
    return 0;
}

/* ---- what libfabric loads ---- */

static void cleanup(void)
{
}

struct fi_provider wfi_provider = {
    .version = FI_VERSION(WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR),
    .name = WFI_NAME,
    .getinfo = wfi_getinfo,
    .fabric = fabric_open,
    .cleanup = cleanup,
};

struct fi_provider *fi_prov_ini(void); /* fi_prov.h has no prototype */

/* libfabric calls this when it has loaded the file. Opens nothing and starts no thread. */
FI_EXT_INI
{
    /* libfabric skips providers of an older interface than programs ask for. The structures have
     * not changed, except that fi_dupinfo of later versions makes longer ones. */
    wfi_provider.fi_version = fi_version();
    define_params();
    warn_unknown();
    wfi_fork_watch();
    return &wfi_provider;
}
