/* SPDX-License-Identifier: BSD-3-Clause */
/* For compilers without libFuzzer. replay [-runs=N] [-seed=N] [FILE | DIRECTORY]...: the seeds;
 * the files; then N copies of seeds with some bytes changed or the end cut off, or nothing but
 * noise. */
#include "fuzz.h"

#include <dirent.h>
#include <sys/stat.h>

#define ROOM 4096

static uint64_t state;

static uint64_t rnd(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* From the heap, of exactly the size, so that a read past it is one. */
static void run(const uint8_t *buf, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    memcpy(copy, buf, len);
    (void)LLVMFuzzerTestOneInput(copy, len);
    free(copy);
}

/* ---- files ---- */

static void die(const char *path)
{
    perror(path);
    exit(2);
}

static unsigned run_file(const char *path)
{
    static uint8_t buf[1 << 20];
    FILE *f = fopen(path, "rb");
    size_t n;
    if (!f)
        die(path);
    n = fread(buf, 1, sizeof buf, f);
    if (ferror(f))
        die(path);
    fclose(f);
    run(buf, n);
    return 1;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Returns how many files there were. */
static unsigned run_directory(const char *path)
{
    struct dirent **entries;
    int n = scandir(path, &entries, is_visible, alphasort);
    if (n < 0)
        die(path);
    for (int i = 0; i < n; i++) {
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
        run_file(file);
        free(entries[i]);
    }
    free(entries);
    return (unsigned)n;
}

static unsigned run_path(const char *path)
{
    struct stat st;
    unsigned n;
    if (stat(path, &st))
        die(path);
    n = S_ISDIR(st.st_mode) ? run_directory(path) : run_file(path);
    if (!n) {
        fprintf(stderr, "%s: no files\n", path);
        exit(2);
    }
    return n;
}

/* ---- seeds ---- */

static void run_changed(unsigned seeds, int noise)
{
    static uint8_t buf[ROOM];
    size_t len = noise ? 0 : fuzz_seed((unsigned)(rnd() % seeds), buf, ROOM);
    if (!len) {
        len = rnd() % 512;
        for (size_t k = 0; k < len; k++)
            buf[k] = (uint8_t)rnd();
    }
    for (uint64_t changes = rnd() % 6; changes && len; changes--)
        buf[rnd() % len] = rnd() & 1 ? (uint8_t)rnd() : (uint8_t)(rnd() & 1 ? 0xff : 0);
    run(buf, rnd() % 16 ? len : rnd() % (len + 1));
}

static unsigned run_seeds(void)
{
    static uint8_t buf[ROOM];
    unsigned seeds = 0;
    for (size_t n; (n = fuzz_seed(seeds, buf, ROOM)); seeds++)
        run(buf, n);
    return seeds;
}

int main(int argc, char **argv)
{
    unsigned long runs = 20000;
    unsigned seeds = run_seeds(), files = 0;
    state = 1;
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "-runs=", 6))
            runs = strtoul(argv[i] + 6, NULL, 0);
        else if (!strncmp(argv[i], "-seed=", 6))
            state = strtoull(argv[i] + 6, NULL, 0);
        else
            files += run_path(argv[i]);
    }
    for (unsigned long i = 0; i < runs; i++)
        run_changed(seeds, i % 8 == 0 || !seeds);
    printf("%u seeds, %u files, %lu runs\n", seeds, files, runs);
    return seeds == 0;
}
