/* SPDX-License-Identifier: BSD-3-Clause */
/* Sets Weft's variables from GASNet's, before Weft reads them. A variable of Weft that the user has
 * set stays as it is. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "binding.h"

#define MEDIUM 4096u
#define MEDIUM_MIN 512u
/* limits of Weft's variables, weft(3): */
#define AM_MAX_MOST 32704u
#define TCP_SEND_LEAST 65536u
#define TCP_SEND_MOST 16777216u
#define RAILS_MOST 4

static void set_if_free(const char *name, const char *text)
{
    if (!gasnet_getenv(name))
        (void)setenv(name, text, 1);
}

static void set_number(const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    set_if_free(name, text);
}

/* Returns the number of bytes that [text] says to Weft: digits, then K, M, G or T, then B or iB.
 * Returns 0 if [text] is no such number, or far too long for a message. */
static uint64_t bytes_of(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 0), unit = (uint64_t)gasnetw_env_unit(*end);
    if (unit)
        end++;
    if (!isdigit((unsigned char)*text) || value > UINT32_MAX)
        return 0;
    return *end && strcasecmp(end, "B") && strcasecmp(end, "iB") ? 0 : value * (unit ? unit : 1);
}

/* Set how many bytes may be in flight to one node: through shared memory, and on each connection of
 * a network. GASNet's variables count the longest Mediums, or bytes. Weft needs room for four
 * Mediums, and GASNet allows 2 to 64: other values are adjusted. */
static void set_payload(void)
{
    uint64_t space = gasnetw_env_size("GASNET_NETWORKDEPTH_SPACE", 0), size = 4096, want,
             depth = (uint64_t)gasnetw_env_number("GASNET_PSHM_NETWORK_DEPTH", 0),
             one = MEDIUM + AM_OVERHEAD;
    if (!depth && !space)
        return;
    want = depth ? depth * one : space;
    if (want < 4 * one || want > 64 * one) {
        if (gasnetw_env_speaks())
            fprintf(stderr,
                    "WARNING: GASNET_%s is adjusted: room for 4 to 64 Mediums is possible\n",
                    depth ? "PSHM_NETWORK_DEPTH" : "NETWORKDEPTH_SPACE");
        want = want < 4 * one ? 4 * one : 64 * one;
    }
    while (size < want)
        size *= 2;
    set_number("WEFT_SHM_PAYLOAD", size);
    for (size = TCP_SEND_LEAST; size < space;)
        size *= 2;
    if (space) {
        set_number("WEFT_TCP_SEND", size > TCP_SEND_MOST ? TCP_SEND_MOST : size);
        set_number("WEFT_TCP_SEND_MAX", 0); /* it is a limit */
    }
}

static void set_pinned(void)
{
    uint64_t bytes = gasnetw_env_size("GASNET_PHYSMEM_MAX", gasnetw_memory_of_node());
    if (!bytes)
        bytes = gasnetw_env_size("GASNET_PHYSMEM_PINNABLE_RATIO", gasnetw_memory_of_node());
    if (bytes)
        set_number("WEFT_PINNED", bytes);
}

struct ranged {
    const char *name, *weft;
    uint64_t least, most;
};

/* Returns the value of a variable of the conduit. A value out of its range is adjusted, and
 * reported. Returns 0 if the variable is not set, or is no number. */
static uint64_t in_range(const struct ranged *row)
{
    const char *text = gasnet_getenv(row->name);
    char *end;
    double value;
    uint64_t fit;
    if (!text || !*text)
        return 0;
    value = strtod(text, &end);
    if (end == text || !gasnetw_env_scale(end, &value) || !(value >= 0)) {
        gasnetw_env_complain(row->name, text, "a number such as 64 or 4K");
        return 0;
    }
    fit = value < (double)row->least  ? row->least
          : value > (double)row->most ? row->most
                                      : (uint64_t)value;
    if ((value < (double)row->least || value > (double)row->most) && gasnetw_env_speaks())
        fprintf(stderr,
                "WARNING: %s=%s is adjusted to %" PRIu64 ": %" PRIu64 " to %" PRIu64
                " are possible\n",
                row->name, text, fit, row->least, row->most);
    return fit;
}

static const struct ranged numbers[] = {
    {"GASNET_GNI_BOUNCE_SIZE", "WEFT_RDMA_COPY_POOL", 65536, 1073741824},
    {"GASNET_GNI_NUM_PD", "WEFT_RDMA_DESCRIPTORS", 32, 65536},
    {"GASNET_GNI_MEMREG", "WEFT_MR_CACHE_COUNT", 16, UINT32_MAX},
};

/* The conduit has two limits for puts, and two for gets. Up to the first the CPU drives the
 * transfer, up to the second the bytes pass through a bounce buffer. Weft has one: up to it the CPU
 * copies the bytes to memory that stays registered, or into the request. */
static const struct {
    struct ranged fma, bounce;
} copies[] = {
    {{"GASNET_GNI_PUT_FMA_RDMA_CUTOVER", "WEFT_RDMA_PUT_COPY", 1, 16384},
     {"GASNET_GNI_PUT_BOUNCE_REGISTER_CUTOVER", "WEFT_RDMA_PUT_COPY", 4096, 32768}},
    {{"GASNET_GNI_GET_FMA_RDMA_CUTOVER", "WEFT_RDMA_GET_COPY", 1, 16384},
     {"GASNET_GNI_GET_BOUNCE_REGISTER_CUTOVER", "WEFT_RDMA_GET_COPY", 4096, 32768}},
};
#define BOUNCE_DEFAULT 4096u

static void set_copies(void)
{
    for (size_t i = 0; i < sizeof copies / sizeof copies[0]; i++) {
        uint64_t fma = in_range(&copies[i].fma), bounce = in_range(&copies[i].bounce);
        if (!bounce && fma > BOUNCE_DEFAULT)
            bounce = BOUNCE_DEFAULT;
        if (bounce)
            set_number(copies[i].bounce.weft, fma > bounce ? fma : bounce);
    }
}

/* The conduit lets its NIC reorder accesses to memory by default ("default" is an older word for
 * that): its NIC reports the end of a put only when the bytes are in memory. With verbs the end of
 * a put does not show that, and a later put could become visible before it. So the order is strict
 * here unless the user asks for "relaxed". */
static void set_order(void)
{
    static const char *const words[] = {"relaxed", "default", "strict", "none"};
    const char *name = "GASNET_GNI_MEM_CONSISTENCY", *text = gasnet_getenv(name);
    size_t i = 0;
    while (text && *text && i < 4 && strcasecmp(text, words[i]) != 0)
        i++;
    if (i == 4)
        gasnetw_env_complain(name, text, "strict, relaxed or none");
    if (text && *text && i < 2)
        set_if_free("WEFT_RDMA_ORDER", "relaxed");
}

/* Give Weft the values of the conduit's variables for transfers by the NICs. */
static void set_rdma(void)
{
    const char *channels = gasnet_getenv("GASNET_GNI_BTE_MULTI_CHANNEL");
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        uint64_t value = in_range(&numbers[i]);
        if (value)
            set_number(numbers[i].weft, value);
    }
    set_copies();
    set_order();
    if (!gasnetw_env_yes("GASNET_USE_UDREG", true))
        set_if_free("WEFT_MR_CACHE_COUNT", "0");
    if (channels && *channels)
        set_number("WEFT_RDMA_RAILS",
                   gasnetw_env_yes("GASNET_GNI_BTE_MULTI_CHANNEL", true) ? RAILS_MOST : 1);
}

/* GASNet names algorithms. Those by active messages have the conduit's one leader of each node. */
static void set_barrier(void)
{
    static const char *const leaders[] = {"AMDISSEM", "AMCENTRAL"};
    static const char *const ranks[] = {"RDMADISSEM", "GNIDISSEM", "DISSEM", "DEFAULT"};
    const char *text = gasnet_getenv("GASNET_BARRIER");
    if (!text || !*text)
        return;
    for (size_t i = 0; i < sizeof leaders / sizeof leaders[0]; i++)
        if (!strcasecmp(text, leaders[i])) {
            set_if_free("WEFT_BARRIER", "leaders");
            return;
        }
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++)
        if (!strcasecmp(text, ranks[i]))
            return;
    gasnetw_env_complain("GASNET_BARRIER", text, "RDMADISSEM, DISSEM, AMDISSEM or AMCENTRAL");
}

/* Node-mates are reached as other nodes are: by all transports but shared memory. */
static void part_mates(void)
{
    char text[256], *end = text, *word, *rest = NULL;
    const char *have = gasnet_getenv("WEFT_TRANSPORTS");
    snprintf(text, sizeof text, "%s", have && *have ? have : "loop,shm,node,rdma,tcp");
    have = strdup(text);
    if (!have)
        return;
    for (word = strtok_r((char *)(uintptr_t)have, ",", &rest); word;
         word = strtok_r(NULL, ",", &rest))
        if (strcmp(word, "shm") != 0)
            end += snprintf(end, sizeof text - (size_t)(end - text), "%s%s", end == text ? "" : ",",
                            word);
    free((void *)(uintptr_t)have);
    if (end != text)
        (void)setenv("WEFT_TRANSPORTS", text, 1);
}

/* Set the longest Medium. GASNet promises at least 512 bytes. Weft would refuse to start with a
 * WEFT_AM_MAX beyond its own limits. */
static void set_medium(void)
{
    const char *text = gasnet_getenv("WEFT_AM_MAX");
    uint64_t bytes = text ? bytes_of(text) : 0;
    if (text && (bytes < MEDIUM_MIN + AM_OVERHEAD || bytes > AM_MAX_MOST)) {
        if (*text)
            gasnetw_env_complain(
                "WEFT_AM_MAX", text,
                "640 to 32704 bytes, such as 4160 or 8K (640: a Medium of 512 bytes)");
        (void)unsetenv("WEFT_AM_MAX");
    }
    set_number("WEFT_AM_MAX", MEDIUM + AM_OVERHEAD);
}

/* Take the defaults of this build (the Meson option "defaults") for GASNet's variables. */
static void set_built(void)
{
#ifdef WF_DEFAULTS
    char words[] = WF_DEFAULTS, *rest = NULL;
    for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(w, '=');
        if (strncmp(w, "GASNET_", 7) || !value)
            continue;
        *value++ = '\0';
        set_if_free(w, value);
    }
#endif
}

void gasnetw_env_before(void)
{
    set_built();
    set_medium();
    set_payload();
    set_pinned();
    set_rdma();
    set_barrier();
    if (gasnetw_env_number("GASNET_SUPERNODE_MAXSIZE", 0) == 1)
        part_mates();
}
