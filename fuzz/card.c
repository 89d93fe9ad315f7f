/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks tell each other about themselves through the launcher, wf_card_parse; and what is
 * told from several cards: wf_members_read, wf_nodes_make.
 *
 * Input: cards, each behind two bytes that say how long it is; AS_SAID: as its own head says,
 * with zeros where the input ends. */
#include "fuzz.h"

#include "base/log.h"
#include "base/util.h"
#include "job/card.h"
#include "job/nodes.h"

#define CARDS 8
#define AS_SAID 0x8000
#define LEN_MAX (4 * WF_CARD_MAX)

/* ---- one card ---- */

/* All of it was taken, and nothing made up. */
static void check_card(const struct wf_card *card, const uint8_t *bytes, size_t len)
{
    uint8_t again[WF_CARD_MAX];
    unsigned cpus = wf_card_mask_count(card->mask, card->mask_len);
    fuzz_touch(card, sizeof *card);
    FUZZ_CHECK(len <= WF_CARD_MAX && card->addr_len && card->addr_len <= WEFT_ADDR_MAX);
    FUZZ_CHECK(card->key_len <= WEFT_KEY_MAX && card->mask_len <= WF_CARD_MASK_MAX);
    FUZZ_CHECK(wf_card_pack(card, again) == len && !memcmp(again, bytes, len));
    FUZZ_CHECK(cpus <= 8u * card->mask_len &&
               cpus == wf_card_mask_count(card->mask, WF_CARD_MASK_MAX));
}

static uint16_t len_said(const struct fuzz_input *in)
{
    static const uint8_t fields[] = {6, 8, 10, 14};
    struct fuzz_input head = *in;
    uint8_t bytes[WF_CARD_HEAD];
    uint32_t len = WF_CARD_HEAD;
    fuzz_take(&head, bytes, sizeof bytes);
    for (unsigned i = 0; i < sizeof fields; i++)
        len += bytes[fields[i]] + 256u * bytes[fields[i] + 1];
    return (uint16_t)WF_MIN(len, (uint32_t)LEN_MAX);
}

static uint16_t take_len(struct fuzz_input *in)
{
    uint16_t len;
    fuzz_take(in, &len, 2);
    return len & AS_SAID ? len_said(in) : (uint16_t)WF_MIN(len, (size_t)(in->end - in->at));
}

/* From a block of exactly its length. */
static bool take_card(struct fuzz_input *in, struct wf_card *card)
{
    static const struct wf_card untouched;
    enum weft_status status;
    uint16_t len = take_len(in);
    uint8_t *bytes = malloc(len + !len);
    FUZZ_CHECK(bytes);
    fuzz_take(in, bytes, len);
    *card = untouched;
    status = wf_card_parse(bytes, len, card);
    if (status == WEFT_OK)
        check_card(card, bytes, len);
    else
        FUZZ_CHECK((status == WEFT_EPROTO || status == WEFT_EVERSION) &&
                   !memcmp(card, &untouched, sizeof *card));
    free(bytes);
    return status == WEFT_OK;
}

/* ---- several ---- */

/* Two of a node, only one of whom uses shared memory? */
static bool is_uneven(const struct wf_member *m, unsigned n)
{
    for (unsigned i = 0; i < n * n; i++) {
        const struct wf_member *a = &m[i / n], *b = &m[i % n];
        if ((a->flags ^ b->flags) & WF_CARD_SHARES && wf_same_node(&a->process, &b->process))
            return true;
    }
    return false;
}

static void check_nodes(const struct wf_nodes *n, const struct wf_member *members, unsigned me)
{
    FUZZ_CHECK(n->count && n->count <= n->size && n->me == n->of[me]);
    FUZZ_CHECK(!n->first[0] && n->first[n->count] == n->size);
    for (unsigned r = 0; r < n->size; r++) {
        unsigned node = n->of[r], at = n->first[node] + n->place[r];
        FUZZ_CHECK(node < n->count && at < n->first[node + 1] && n->order[at] == r);
        FUZZ_CHECK(!n->place[r] || n->order[at - 1] < r);
        FUZZ_CHECK(!node || wf_nodes_leader(n, node - 1) < wf_nodes_leader(n, node));
        FUZZ_CHECK(wf_nodes_is_mine(n, r) == (node == n->of[me]));
        for (unsigned q = 0; q < r; q++)
            FUZZ_CHECK((n->of[q] == node) == wf_members_are_local(&members[q], &members[r]));
    }
}

static void group(const struct wf_member *members, unsigned size)
{
    bool uneven = is_uneven(members, size);
    for (unsigned me = 0; me < size; me++) {
        struct wf_nodes nodes;
        enum weft_status status = wf_nodes_make(&nodes, members, size, me);
        FUZZ_CHECK(status == (uneven ? WEFT_EINVAL : WEFT_OK));
        if (status)
            continue;
        check_nodes(&nodes, members, me);
        wf_nodes_free(&nodes);
    }
}

static void read_members(const struct wf_card *cards, unsigned size)
{
    struct wf_member members[CARDS];
    enum weft_status status = wf_members_read(members, cards, size);
    FUZZ_CHECK(status == WEFT_OK || status == WEFT_EPROTO || status == WEFT_EVERSION);
    if (status)
        return;
    for (unsigned r = 0; r < size; r++)
        FUZZ_CHECK(members[r].rank == r && members[r].flags == cards[r].flags &&
                   (int32_t)members[r].process.pid > 0);
    group(members, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct wf_card cards[CARDS];
    struct fuzz_input in = {data, data + size};
    unsigned n = 0;
    wf_log_set_level((enum wf_log_level) - 1); /* each refusal says so */
    while (n < CARDS && in.at < in.end)
        n += take_card(&in, &cards[n]);
    if (n)
        read_members(cards, n);
    return 0;
}

/* ---- seeds ---- */

/* Of seed [i], rank [r]: all on one node; on two; different contacts, keys and masks; one that
 * does not share memory; one whose address does not parse. */
static void card_make(unsigned i, unsigned r, struct wf_card *card)
{
    struct wf_address a = {.version = WF_ADDRESS_VERSION, .size = sizeof a, .ep = 1};
    struct wf_contact c = {.port = i == 2 ? 4000 : 0, .count = i == 2, .ip = {{0xfd, [15] = 1}}};
    a.process = (struct wf_process_id){.host = i == 1 ? 1 + r % 2 : 1, .pid = r + 1};
    *card = (struct wf_card){.flags = WF_CARD_SHARES | WF_CARD_MAPS};
    if (i == 3 && r == 1)
        card->flags = 0;
    if (i == 4 && r == 1)
        a.version++;
    c.count = c.port ? 1 : 0;
    card->addr_len = (uint16_t)wf_address_pack(&a, &c, card->addr);
    card->key_len = i == 2 ? sizeof(struct wf_key) : 0;
    card->mask_len = i == 2 ? 1 + r : 1;
    card->mask[card->mask_len - 1] = (uint8_t)(1u << r);
    card->secret_len = r ? 0 : WF_SECRET;
}

size_t fuzz_seed(unsigned i, uint8_t *buf, size_t room)
{
    static struct wf_card card;
    uint8_t bytes[WF_CARD_MAX];
    size_t n = 0;
    for (unsigned r = 0; i < 5 && r < 3; r++) {
        uint16_t len, said;
        card_make(i, r, &card);
        len = (uint16_t)wf_card_pack(&card, bytes);
        said = r == 2 ? AS_SAID : len;
        if (room < n + 2 + len)
            return 0;
        memcpy(buf + n, &said, 2);
        memcpy(buf + n + 2, bytes, len);
        n += 2u + len;
    }
    return n;
}
