/* SPDX-License-Identifier: BSD-3-Clause */
/* The key by which processes on different nodes authenticate each other. Without WEFT_KEY_FILE it
 * is the authorization key of the domain; otherwise the transport key that Open MPI's launcher made
 * for the job. A rank that no launcher of Open MPI started makes a transport key by itself, from
 * the number of the job, which others can guess: so only a key counts that was in the environment
 * when the process started. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "binding.h"

#define LAUNCHER_KEY "OMPI_MCA_orte_precondition_transports="
#define LAUNCHER_HEX 33 /* two numbers of 16 digits, and a dash between them */
#define ENVIRON_MOST (4u << 20)

/* Returns what /proc/self/environ contains, and sets *len; NULL if it cannot be read. */
static char *read_environ(size_t *len)
{
    int fd = wfi_fd_high(open("/proc/self/environ", O_RDONLY | O_CLOEXEC));
    char *text = NULL, *more;
    size_t n = 0, room = 0;
    ssize_t got = fd < 0 ? -1 : 1;
    while (got > 0 && n < ENVIRON_MOST) {
        if (room - n < 2) {
            more = realloc(text, room += 65536);
            if (!more)
                break;
            text = more;
        }
        got = read(fd, text + n, room - n - 1);
        n += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        close(fd);
    if (text)
        text[n] = 0;
    *len = n;
    return text;
}

static bool is_launcher_key(const char *hex)
{
    for (int i = 0; i < LAUNCHER_HEX; i++)
        if (i == 16 ? hex[i] != '-' : !strchr("0123456789abcdefABCDEF", hex[i]) || !hex[i])
            return false;
    return !hex[LAUNCHER_HEX];
}

/* Copy the launcher's key. Returns false if there is none. */
static bool launcher_key(char key[LAUNCHER_HEX + 1])
{
    size_t len, at = 0;
    char *text = read_environ(&len);
    bool found = false;
    while (text && at < len && !found) {
        const char *row = text + at;
        at += strlen(row) + 1;
        if (strncmp(row, LAUNCHER_KEY, sizeof LAUNCHER_KEY - 1) ||
            !is_launcher_key(row + sizeof LAUNCHER_KEY - 1))
            continue;
        memcpy(key, row + sizeof LAUNCHER_KEY - 1, LAUNCHER_HEX + 1);
        found = true;
    }
    free(text);
    return found;
}

static void key_file_row(void *arg, const char *name, const char *value, const char *dflt,
                         const char *doc)
{
    (void)dflt, (void)doc;
    if (!strcmp(name, "WEFT_KEY_FILE") && *value)
        *(bool *)arg = true;
}

static bool has_key_file(void)
{
    bool has = false;
    weft_config_rows(key_file_row, &has);
    return has;
}

bool wfi_secret_is_given(const struct fi_domain_attr *attr)
{
    char key[LAUNCHER_HEX + 1];
    return has_key_file() || attr->auth_key_size || launcher_key(key);
}

int wfi_secret_set(struct weft_ctx *ctx, const struct fi_domain_attr *attr, bool *some)
{
    char launcher[LAUNCHER_HEX + 1];
    const void *key = attr->auth_key;
    size_t len = attr->auth_key_size;
    enum weft_status s;
    *some = true;
    if (has_key_file())
        return 0;
    if (len && len < WEFT_SECRET_MIN) {
        WFI_WARN(DOMAIN,
                 "the domain's authorization key has %zu bytes: give at least %d random "
                 "bytes, or none\n",
                 len, WEFT_SECRET_MIN);
        return -FI_EINVAL;
    }
    if (!len && launcher_key(launcher)) {
        key = launcher;
        len = LAUNCHER_HEX;
    }
    if (!len) {
        *some = false;
        return 0;
    }
    s = weft_ctx_set_key(ctx, key, len);
    explicit_bzero(launcher, sizeof launcher);
    if (s != WEFT_OK)
        WFI_WARN(DOMAIN, "the key for other nodes was refused: %s\n", weft_status_text(s));
    return s == WEFT_OK ? 0 : -wfi_errno(s);
}
