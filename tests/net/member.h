/* SPDX-License-Identifier: BSD-3-Clause */
/* What the programs share that members.py starts: error messages, and which bytes are right, and
 * finding each other through their standard input and output. */
#ifndef TESTS_NET_MEMBER_H
#define TESTS_NET_MEMBER_H

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <weft/weft.h>

#define SECOND INT64_C(1000000000)

enum { LINE_LONGEST = 1024 }; /* an address and a key are less */

/* MEMBER: which one this process is. */
#define FAIL(...)                                                                                  \
    (fprintf(stderr, "member %u: ", MEMBER), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr),    \
     exit(1))

#define MUST(status, what) /* or print that [what] failed */                                       \
    do {                                                                                           \
        const enum weft_status must_ = (status);                                                   \
        if (must_ != WEFT_OK)                                                                      \
            FAIL("%s: %s", what, weft_status_name(must_));                                         \
    } while (0)

static inline int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The bytes that belong to the number [x]. */
static inline void fill(void *bytes, size_t len, uint64_t x)
{
    for (size_t i = 0; i < len; i += 8) {
        const uint64_t w = mix(x + i);
        memcpy((unsigned char *)bytes + i, &w, len - i < 8 ? len - i : 8);
    }
}

/* Where [bytes] are not those of [x]; [len] if they are. */
static inline size_t differs(const void *bytes, size_t len, uint64_t x)
{
    for (size_t i = 0; i < len; i += 8) {
        const uint64_t w = mix(x + i);
        if (memcmp((const unsigned char *)bytes + i, &w, len - i < 8 ? len - i : 8))
            return i;
    }
    return len;
}

static inline void print_hex(const unsigned char *bytes, size_t len)
{
    putchar(' ');
    for (size_t i = 0; i < len; i++)
        printf("%02x", bytes[i]);
}

/* The first line of output. OK | a status, then nothing was printed */
static inline enum weft_status print_address(struct weft_ep *ep, const struct weft_mr *mr)
{
    unsigned char address[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t address_len = sizeof address, key_len = sizeof key;
    enum weft_status s = weft_ep_address(ep, address, &address_len);
    if (s == WEFT_OK)
        s = weft_mr_key(mr, key, &key_len);
    if (s != WEFT_OK)
        return s;
    printf("address");
    print_hex(address, address_len);
    print_hex(key, key_len);
    putchar('\n');
    return WEFT_OK;
}

/* Read a line without the stream's buffer, so that poll() knows what is left. */
static inline bool line_read(char line[LINE_LONGEST])
{
    size_t n = 0;
    while (n < LINE_LONGEST - 1 && read(0, line + n, 1) == 1)
        if (line[n++] == '\n') {
            line[n - 1] = 0;
            return true;
        }
    return false;
}

static inline bool line_is_there(void)
{
    struct pollfd in = {.fd = 0, .events = POLLIN};
    return poll(&in, 1, 0) > 0;
}

static inline const char *hex_read(const char *text, unsigned char *bytes, size_t room, size_t *len)
{
    unsigned v;
    for (*len = 0; *len < room && *text != ' ' && sscanf(text, "%2x", &v) == 1; text += 2)
        bytes[(*len)++] = (unsigned char)v;
    return text + (*text == ' ');
}

/* Open the member that printed [line], and its region. */
static inline enum weft_status line_open(const char *line, struct weft_ep *ep,
                                         struct weft_peer **peer, struct weft_remote **remote)
{
    unsigned char address[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t address_len, key_len;
    enum weft_status s;
    if (strncmp(line, "address ", 8))
        return WEFT_EINVAL;
    hex_read(hex_read(line + 8, address, sizeof address, &address_len), key, sizeof key, &key_len);
    s = weft_peer_open(ep, address, address_len, peer);
    return s == WEFT_OK ? weft_remote_open(*peer, key, key_len, remote) : s;
}

#endif
