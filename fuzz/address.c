/* SPDX-License-Identifier: BSD-3-Clause */
/* wf_address_parse and wf_key_parse: bytes that applications pass on for us. */
#include "fuzz.h"

#include "transport/address.h"

size_t fuzz_seed(unsigned i, uint8_t *buf, size_t room)
{
    struct wf_address a = {.version = WF_ADDRESS_VERSION, .size = sizeof a, .process = {.pid = 7}};
    struct wf_key k = {.version = WF_KEY_VERSION,
                       .size = sizeof k,
                       .offset = 64,
                       .length = 64,
                       .gen = 1,
                       .nic_at = 1 << 21,
                       .nic_key = {5, 0, 7}};
    struct wf_contact c = {.port = 4000, .count = 1, .ip = {{[10] = 0xff, [11] = 0xff, [12] = 10}}};
    k.check = wf_key_check(&k);
    if (i > 2 || room < WF_ADDRESS_BYTES)
        return 0;
    if (i == 2)
        return wf_address_pack(&a, &c, buf);
    if (!i)
        return wf_address_pack(&a, &(struct wf_contact){0}, buf);
    memcpy(buf, &k, sizeof k);
    return sizeof k;
}

static void check_key(const struct wf_key *k, size_t size)
{
    fuzz_touch(k, sizeof *k);
    FUZZ_CHECK(size >= sizeof *k && k->length && k->offset + k->length >= k->length &&
               k->first + k->length >= k->length && k->flags <= WF_KEY_FLAGS && (k->gen & 1) &&
               k->nic_at + k->length >= k->length && (wf_key_has_nic(k) || !k->nic_at));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_address a;
    struct wf_contact c;
    struct wf_key k, sealed;
    uint8_t again[WF_ADDRESS_BYTES];
    if (wf_address_parse(data, size, &a, &c) == WEFT_OK) {
        fuzz_touch(&a, sizeof a);
        fuzz_touch(&c, sizeof c);
        FUZZ_CHECK(c.count <= WF_CONTACT_IPS && wf_contact_is_some(&c) == !!c.count);
        FUZZ_CHECK(size >= sizeof again && wf_address_is_valid(&a));
        FUZZ_CHECK(wf_address_pack(&a, &c, again) == sizeof again);
        FUZZ_CHECK(!memcmp(again, data, sizeof again));
    }
    if (wf_key_parse(data, size, &k) == WEFT_OK)
        check_key(&k, size);
    if (size >= sizeof k) { /* what the sum refuses has other fields to be checked */
        memcpy(&sealed, data, sizeof sealed);
        sealed.check = wf_key_check(&sealed);
        if (wf_key_parse(&sealed, sizeof sealed, &k) == WEFT_OK)
            check_key(&k, sizeof sealed);
    }
    return 0;
}
