/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/net/connect/hello.h"

#include <sodium.h>
#include <string.h>

#define FLAGS_KNOWN ((uint32_t)WF_NET_ENCRYPT)

static const uint32_t sizes[] = {
    [WF_NET_HELLO] = sizeof(struct wf_net_hello),
    [WF_NET_CHALLENGE] = sizeof(struct wf_net_challenge),
    [WF_NET_PROOF] = sizeof(struct wf_net_proof),
    [WF_NET_REFUSAL] = sizeof(struct wf_net_refusal),
};

enum weft_status wf_net_greeting_parse(const void *bytes, unsigned role, unsigned other,
                                       struct wf_net_greeting *out)
{
    struct wf_net_greeting g;
    memcpy(&g, bytes, sizeof g);
    if (g.magic != WF_NET_MAGIC || !g.version)
        return WEFT_EPROTO;
    /* REFUSAL has the same form in all versions of the protocol, so it can be parsed. Other
     * messages of another version cannot be parsed. */
    if (g.version != WF_NET_VERSION && g.role != WF_NET_REFUSAL) {
        *out = g;
        return WEFT_EVERSION;
    }
    if (!g.role || (g.role != role && g.role != other) || g.zero || g.size != sizes[g.role])
        return WEFT_EPROTO;
    if (g.version == WF_NET_VERSION && (g.flags & ~FLAGS_KNOWN))
        return WEFT_EPROTO;
    *out = g;
    return WEFT_OK;
}

static bool all_zero(const void *bytes, size_t len)
{
    return sodium_is_zero(bytes, len);
}

static bool contact_ok(const struct wf_contact *c)
{
    size_t used = c->count * sizeof c->ip[0];
    return wf_contact_is_valid(c) && c->port && !c->node &&
           all_zero((const uint8_t *)c->ip + used, sizeof c->ip - used);
}

enum weft_status wf_net_hello_parse(const void *bytes, struct wf_net_hello *out)
{
    struct wf_net_hello h;
    enum weft_status status = wf_net_greeting_parse(bytes, WF_NET_HELLO, 0, &h.greeting);
    if (status != WEFT_OK)
        return status;
    memcpy(&h, bytes, sizeof h);
    if (h.lane >= WF_NET_LANES_MAX || !h.gen || h.zero || !contact_ok(&h.contact))
        return WEFT_EPROTO;
    if (!wf_address_is_valid(&h.from))
        return WEFT_EPROTO;
    *out = h;
    return WEFT_OK;
}

enum weft_status wf_net_challenge_parse(const void *bytes, struct wf_net_challenge *out)
{
    struct wf_net_greeting g;
    enum weft_status status = wf_net_greeting_parse(bytes, WF_NET_CHALLENGE, 0, &g);
    if (status == WEFT_OK)
        memcpy(out, bytes, sizeof *out);
    return status;
}

enum weft_status wf_net_proof_parse(const void *bytes, struct wf_net_proof *out)
{
    struct wf_net_greeting g;
    enum weft_status status = wf_net_greeting_parse(bytes, WF_NET_PROOF, 0, &g);
    if (status == WEFT_OK)
        memcpy(out, bytes, sizeof *out);
    return status;
}

enum weft_status wf_net_refusal_parse(const void *bytes, struct wf_net_refusal *out)
{
    struct wf_net_refusal r;
    enum weft_status status = wf_net_greeting_parse(bytes, WF_NET_REFUSAL, 0, &r.greeting);
    if (status != WEFT_OK)
        return status;
    memcpy(&r, bytes, sizeof r);
    if (r.reason < WF_NET_REFUSED_GONE || r.reason > WF_NET_REFUSED_BUSY ||
        (r.now_gen && r.reason != WF_NET_REFUSED_GONE) || !all_zero(r.zero, sizeof r.zero))
        return WEFT_EPROTO;
    if ((r.greeting.version == WF_NET_VERSION) == (r.reason == WF_NET_REFUSED_VERSION))
        return WEFT_EPROTO; /* the reason has to be VERSION exactly if the versions differ */
    *out = r;
    return WEFT_OK;
}

static struct wf_net_greeting greeting(unsigned role, uint32_t flags)
{
    return (struct wf_net_greeting){.magic = WF_NET_MAGIC,
                                    .version = WF_NET_VERSION,
                                    .role = (uint8_t)role,
                                    .size = sizes[role],
                                    .flags = flags};
}

void wf_net_hello_make(const struct wf_dial *dial, uint32_t flags, struct wf_net_hello *out)
{
    *out = (struct wf_net_hello){.greeting = greeting(WF_NET_HELLO, flags),
                                 .lane = dial->lane,
                                 .to_ep = dial->to.ep,
                                 .to_gen = dial->to.ep_gen,
                                 .to_token = {dial->to.process.token[0], dial->to.process.token[1]},
                                 .gen = dial->gen,
                                 .from = dial->from,
                                 .contact = dial->from_contact};
    randombytes_buf(out->nonce, sizeof out->nonce);
}

void wf_net_challenge_make(uint32_t flags, struct wf_net_challenge *out)
{
    *out = (struct wf_net_challenge){.greeting = greeting(WF_NET_CHALLENGE, flags)};
    randombytes_buf(out->nonce, sizeof out->nonce);
}

void wf_net_proof_make(uint32_t flags, struct wf_net_proof *out)
{
    *out = (struct wf_net_proof){.greeting = greeting(WF_NET_PROOF, flags)};
}

void wf_net_refusal_make(uint32_t flags, enum wf_net_refusal_reason reason, uint32_t now_gen,
                         struct wf_net_refusal *out)
{
    *out = (struct wf_net_refusal){
        .greeting = greeting(WF_NET_REFUSAL, flags), .reason = reason, .now_gen = now_gen};
}
