/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: the token, which a stranger on the network has to know, was a socket's name,
 * which all users of the host can read in /proc/net/unix. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

int main(void)
{
    unsigned char address[WEFT_ADDR_MAX];
    char line[512], half[2][17];
    size_t len = sizeof address;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    uint64_t token[2]; /* docs/protocol.md, "Addresses" */
    unsigned names = 0;
    FILE *f = fopen("/proc/net/unix", "re");
    if (!f) {
        puts("/proc/net/unix cannot be read here");
        return 77;
    }
    fclose(f);
    if (weft_ctx_open(NULL, &ctx) || weft_ep_open(ctx, NULL, &ep) ||
        weft_ep_address(ep, address, &len))
        return 2;
    memcpy(token, address + 16, sizeof token);
    for (int i = 0; i < 2; i++)
        snprintf(half[i], sizeof half[i], "%016" PRIx64, token[i]);
    f = fopen("/proc/net/unix", "re");
    while (f && fgets(line, sizeof line, f)) {
        names += strstr(line, half[0]) != NULL;
        if (strstr(line, half[1])) {
            printf("the whole token can be read: %s", line);
            return 1;
        }
    }
    if (f)
        fclose(f);
    if (!names) {
        puts("the socket is not there: this test looks for the wrong name");
        return 1;
    }
    return weft_ep_close(ep) || weft_ctx_close(ctx);
}
