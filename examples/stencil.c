/* SPDX-License-Identifier: BSD-3-Clause */
/* Diffusion over a grey picture, its rows shared out over the ranks of a job.
 *
 *     weft run -n 4 -- stencil IN.png OUT.png --steps 500
 *
 * A step replaces each pixel by the mean of its old value (weight 1/2) and its
 * four neighbours' (1/8 each); at the picture's border a pixel is its own
 * missing neighbour. Pixels are integers, 8 bits before the point and 20 after
 * it, so the result does not depend on which rank computed which row: it is the
 * same, bit for bit, on any number of ranks.
 *
 * Each rank has one region that the others can reach:
 *
 *     signal word from above | signal word from below | buffer 0 | buffer 1
 *
 * Buffer t & 1 holds state t: the rank's rows between two halo rows, copies of
 * the neighbours' edge rows. A rank that has computed its edge row of state t puts
 * it into the neighbour's halo row of state t and signals t (weft_put_signal).
 *
 * Why two buffers are enough, and no acknowledgement is needed: A overwrites
 * B's halo row of state t with state t + 2. A computes t + 2 only after it has
 * seen B's signal t + 1. B gives that signal after it has computed its edge row
 * of state t + 1, and that row is the only one that reads this halo row of
 * state t. So B has finished with the row before A may write it; a neighbour is
 * never more than one state ahead. The signal is a release and the wait for it an
 * acquire, so B's reads are complete, not only earlier in the program. */
#include <inttypes.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <weft/job.h>

enum {
    FRACTION = 20,      /* bits after the point: 8 * 255 << 20 still fits 32 bits */
    LEAD = 16,          /* pixels before a row's first, so that it starts a cache line */
    SIGNAL_STRIDE = 64, /* one cache line for each signal word */
};

enum side { ABOVE, BELOW };

/* What every rank must know; rank 0 determines it. */
struct task {
    uint32_t exit_code; /* not 0: there is nothing to do, and rank 0 has printed why */
    uint32_t width, height, steps;
};

struct stencil {
    struct weft_job *job;
    struct weft_ep *ep;
    unsigned rank, size;
    struct task task;
    const char *out_path;
    unsigned char *grey; /* rank 0: the picture, 8 bits a pixel */
    uint32_t *line;      /* rank 0: one row on its way out or in */
    struct weft_mr *mr;
    struct weft_remote **remotes;
    uint64_t checksum;
};

/* ---- layout ---- */

static unsigned first_row(const struct stencil *st, unsigned rank)
{
    return (unsigned)((uint64_t)st->task.height * rank / st->size);
}

static unsigned row_count(const struct stencil *st, unsigned rank)
{
    return first_row(st, rank + 1) - first_row(st, rank);
}

/* Pixels from one row to the next: the row, a pixel to each side, whole lines. */
static size_t row_stride(const struct stencil *st)
{
    return (LEAD + (size_t)st->task.width + 1 + 15) & ~(size_t)15;
}

/* Bytes from the start of [rank]'s region to the first pixel of [row] of
 * buffer [buf]; row 0 and row row_count + 1 are the halo rows. */
static uint64_t row_offset(const struct stencil *st, unsigned rank, unsigned buf, unsigned row)
{
    uint64_t rows = (uint64_t)buf * (row_count(st, rank) + 2) + row;
    return 2 * SIGNAL_STRIDE + (rows * row_stride(st) + LEAD) * sizeof(uint32_t);
}

static size_t region_length(const struct stencil *st)
{
    return row_offset(st, st->rank, 2, 0);
}

static uint32_t *own_row(const struct stencil *st, unsigned buf, unsigned row)
{
    unsigned char *base = weft_mr_base(st->mr);
    return (uint32_t *)(void *)(base + row_offset(st, st->rank, buf, row));
}

/* ---- communication ---- */

static enum weft_status complain(const struct stencil *st, enum weft_status s, const char *what,
                                 unsigned rank)
{
    fprintf(stderr, "stencil: rank %u: %s rank %u: %s\n", st->rank, what, rank,
            weft_status_text(s));
    return s;
}

/* Within a node put and get are complete when they return; otherwise they may
 * complete later. The loss of the peer completes them too. */
static enum weft_status settle(struct stencil *st, enum weft_status s, const struct weft_op *op)
{
    while (s == WEFT_PENDING) {
        weft_ep_poll(st->ep);
        s = (enum weft_status)op->status;
    }
    return s;
}

/* Put this rank's edge row of state [t] into the neighbour's halo row. */
static enum weft_status send_edge(struct stencil *st, enum side side, unsigned t)
{
    unsigned to = side == ABOVE ? st->rank - 1 : st->rank + 1;
    const uint32_t *edge = own_row(st, t & 1, side == ABOVE ? 1 : row_count(st, st->rank));
    uint64_t halo = row_offset(st, to, t & 1, side == ABOVE ? row_count(st, to) + 1 : 0);
    uint64_t word = (side == ABOVE ? BELOW : ABOVE) * SIGNAL_STRIDE;
    struct weft_remote *r = st->remotes[to];
    enum weft_status s;
    struct weft_op op = {0};
    while ((s = weft_put_signal(r, halo, edge, st->task.width * sizeof *edge, r, word, t,
                                WEFT_SIGNAL_SET, &op)) == WEFT_AGAIN)
        weft_ep_wait(st->ep, 1000000000);
    s = settle(st, s, &op);
    return s == WEFT_OK ? s : complain(st, s, "cannot put to", to);
}

/* Wait until the neighbour's edge row of state [t] is in this rank's halo row.
 * Waits while the neighbour lives, however slow it is. */
static enum weft_status wait_halo(struct stencil *st, enum side side, unsigned t)
{
    unsigned from = side == ABOVE ? st->rank - 1 : st->rank + 1;
    const unsigned char *base = weft_mr_base(st->mr);
    const uint64_t *word = (const uint64_t *)(const void *)(base + side * SIGNAL_STRIDE);
    enum weft_status s = weft_word_wait(st->ep, word, t, weft_job_peer(st->job, from), -1);
    return s == WEFT_OK ? s : complain(st, s, "waiting for", from);
}

static enum weft_status barrier(struct stencil *st)
{
    enum weft_status s = weft_job_barrier(st->job);
    if (s != WEFT_OK)
        fprintf(stderr, "stencil: rank %u: barrier: %s\n", st->rank, weft_status_text(s));
    return s;
}

/* ---- computing ---- */

static void relax_row(uint32_t *restrict out, const uint32_t *above, const uint32_t *row,
                      const uint32_t *below, ptrdiff_t width)
{
    for (ptrdiff_t x = 0; x < width; x++)
        out[x] = (above[x] + below[x] + row[x - 1] + row[x + 1] + 4 * row[x] + 4) >> 3;
    out[-1] = out[0];
    out[width] = out[width - 1];
}

static void relax_rows(struct stencil *st, unsigned t, unsigned first, unsigned last)
{
    for (unsigned r = first; r <= last; r++)
        relax_row(own_row(st, (t + 1) & 1, r), own_row(st, t & 1, r - 1), own_row(st, t & 1, r),
                  own_row(st, t & 1, r + 1), st->task.width);
}

/* At the picture's border the halo row is the edge row itself. */
static void mirror_edge(struct stencil *st, enum side side, unsigned t)
{
    unsigned rows = row_count(st, st->rank);
    memcpy(own_row(st, t & 1, side == ABOVE ? 0 : rows + 1),
           own_row(st, t & 1, side == ABOVE ? 1 : rows), st->task.width * sizeof(uint32_t));
}

/* From state [t] to [t + 1]: edge rows first, so that they travel while the
 * rows between them are computed. */
static enum weft_status step(struct stencil *st, unsigned t)
{
    unsigned rows = row_count(st, st->rank);
    int has[] = {[ABOVE] = st->rank > 0, [BELOW] = st->rank + 1 < st->size};
    enum weft_status s = WEFT_OK;
    for (enum side i = ABOVE; i <= BELOW && s == WEFT_OK; i++)
        if (has[i])
            s = wait_halo(st, i, t);
    if (s != WEFT_OK)
        return s;
    relax_rows(st, t, 1, 1);
    relax_rows(st, t, rows, rows);
    for (enum side i = ABOVE; i <= BELOW && s == WEFT_OK; i++) {
        if (has[i])
            s = send_edge(st, i, t + 1);
        else
            mirror_edge(st, i, t + 1);
    }
    relax_rows(st, t, 2, rows - 1);
    return s;
}

/* ---- the picture ---- */

/* Rank 0: one row of the picture as pixels with a fraction, border mirrored. */
static void expand_row(struct stencil *st, unsigned y)
{
    const unsigned char *grey = st->grey + (size_t)y * st->task.width;
    uint32_t *line = st->line + 1;
    for (unsigned x = 0; x < st->task.width; x++)
        line[x] = (uint32_t)grey[x] << FRACTION;
    line[-1] = line[0];
    line[st->task.width] = line[st->task.width - 1];
}

static enum weft_status put_line(struct stencil *st, unsigned rank, unsigned row)
{
    uint64_t offset = row_offset(st, rank, 0, row) - sizeof *st->line;
    size_t len = (st->task.width + (size_t)2) * sizeof *st->line;
    enum weft_status s;
    struct weft_op op = {0};
    while ((s = weft_put(st->remotes[rank], offset, st->line, len, &op)) == WEFT_AGAIN)
        weft_ep_wait(st->ep, 1000000000);
    s = settle(st, s, &op);
    return s == WEFT_OK ? s : complain(st, s, "cannot put to", rank);
}

/* Rank 0: give every rank its rows of state 0, halo rows included. */
static enum weft_status scatter(struct stencil *st)
{
    unsigned height = st->task.height;
    enum weft_status s = WEFT_OK;
    for (unsigned rank = 0; rank < st->size; rank++) {
        for (unsigned row = 0; row <= row_count(st, rank) + 1 && s == WEFT_OK; row++) {
            unsigned y = first_row(st, rank) + row; /* counted from the row above the picture */
            expand_row(st, y == 0 ? 0 : y > height ? height - 1 : y - 1);
            s = put_line(st, rank, row);
        }
    }
    return s;
}

static enum weft_status get_line(struct stencil *st, unsigned rank, unsigned row)
{
    uint64_t offset = row_offset(st, rank, st->task.steps & 1, row);
    size_t len = st->task.width * sizeof *st->line;
    enum weft_status s;
    struct weft_op op = {0};
    while ((s = weft_get(st->remotes[rank], offset, st->line, len, &op)) == WEFT_AGAIN)
        weft_ep_wait(st->ep, 1000000000);
    s = settle(st, s, &op);
    return s == WEFT_OK ? s : complain(st, s, "cannot get from", rank);
}

/* Rank 0: round a row to 8 bits, and count every bit of it in (FNV-1a, 64 bit:
 * offset basis and prime of the FNV specification, draft-eastlake-fnv). */
static void reduce_row(struct stencil *st, unsigned y)
{
    unsigned char *grey = st->grey + (size_t)y * st->task.width;
    for (unsigned x = 0; x < st->task.width; x++) {
        grey[x] = (unsigned char)((st->line[x] + (1u << (FRACTION - 1))) >> FRACTION);
        for (unsigned shift = 0; shift < 32; shift += 8)
            st->checksum = (st->checksum ^ (st->line[x] >> shift & 0xff)) * 0x100000001b3;
    }
}

/* Rank 0: fetch every rank's rows of the last state. */
static enum weft_status gather(struct stencil *st)
{
    enum weft_status s = WEFT_OK;
    st->checksum = 0xcbf29ce484222325;
    for (unsigned rank = 0; rank < st->size; rank++) {
        for (unsigned row = 1; row <= row_count(st, rank); row++) {
            if ((s = get_line(st, rank, row)) != WEFT_OK)
                return s;
            reduce_row(st, first_row(st, rank) + row - 1);
        }
    }
    return s;
}

/* Rank 0: any PNG becomes 8-bit grey; what is transparent becomes white. */
static int read_picture(struct stencil *st, const char *path)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    png_color white = {255, 255, 255};
    if (!png_image_begin_read_from_file(&image, path))
        return fprintf(stderr, "stencil: cannot read %s: %s\n", path, image.message), 1;
    image.format = PNG_FORMAT_GRAY;
    st->task.width = image.width;
    st->task.height = image.height;
    st->grey = malloc((size_t)image.width * image.height);
    st->line = malloc(((size_t)image.width + 2) * sizeof *st->line);
    if (!st->grey || !st->line) {
        png_image_free(&image);
        return fprintf(stderr, "stencil: %s: no memory for %u x %u pixels\n", path, image.width,
                       image.height),
               1;
    }
    if (!png_image_finish_read(&image, &white, st->grey, 0, NULL))
        return fprintf(stderr, "stencil: cannot read %s: %s\n", path, image.message), 1;
    return 0;
}

static int write_picture(struct stencil *st)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = st->task.width,
                       .height = st->task.height,
                       .format = PNG_FORMAT_GRAY};
    if (!png_image_write_to_file(&image, st->out_path, 0, st->grey, 0, NULL))
        return fprintf(stderr, "stencil: cannot write %s: %s\n", st->out_path, image.message), 1;
    return 0;
}

/* ---- the program ---- */

static int usage(void)
{
    fputs("usage: weft run -n RANKS -- stencil IN.png OUT.png [--steps N]\n", stderr);
    return 2;
}

static int parse_steps(struct stencil *st, const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || n > 1000000000)
        return fprintf(stderr, "stencil: --steps %s: give a number, at most 1000000000\n", text), 2;
    st->task.steps = (uint32_t)n;
    return 0;
}

/* Rank 0: read the command line and the picture.
 * Returns the program's exit code, 0 to go on. */
static int prepare(struct stencil *st, int argc, char **argv)
{
    const char *paths[2];
    int n = 0, code;
    st->task.steps = 500;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--steps") && i + 1 < argc) {
            if ((code = parse_steps(st, argv[++i])))
                return code;
        } else if (argv[i][0] == '-' || n == 2) {
            return usage();
        } else {
            paths[n++] = argv[i];
        }
    }
    if (n != 2)
        return usage();
    st->out_path = paths[1];
    if ((code = read_picture(st, paths[0])))
        return code;
    if (st->size > st->task.height)
        return fprintf(stderr, "stencil: %u ranks are too many for %u rows: use at most %u\n",
                       st->size, st->task.height, st->task.height),
               2;
    return 0;
}

/* Send rank 0's task to every rank, and make the regions. */
static enum weft_status share_task(struct stencil *st)
{
    struct task *all = calloc(st->size, sizeof *all);
    st->remotes = calloc(st->size, sizeof(struct weft_remote *));
    enum weft_status s = WEFT_ENOMEM;
    if (all && st->remotes)
        s = weft_job_allgather(st->job, &st->task, sizeof *all, all);
    if (s == WEFT_OK)
        st->task = all[0];
    free(all);
    if (s == WEFT_OK && st->task.exit_code == 0)
        s = weft_job_mem_alloc(st->job, region_length(st), WEFT_REMOTE_READ | WEFT_REMOTE_WRITE,
                               &st->mr, st->remotes);
    if (s != WEFT_OK)
        fprintf(stderr, "stencil: rank %u: cannot start: %s\n", st->rank, weft_status_text(s));
    return s;
}

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Compute all steps. [seconds] is set on success: from the time when every rank
 * could start until every rank had finished. */
static enum weft_status run(struct stencil *st, double *seconds)
{
    enum weft_status s = st->rank == 0 ? scatter(st) : WEFT_OK;
    if (s != WEFT_OK || (s = barrier(st)) != WEFT_OK)
        return s;
    double start = now();
    for (unsigned t = 0; t < st->task.steps; t++)
        if ((s = step(st, t)) != WEFT_OK)
            return s;
    if ((s = barrier(st)) != WEFT_OK)
        return s;
    *seconds = now() - start;
    if (st->rank == 0 && (s = gather(st)) != WEFT_OK)
        return s;
    return barrier(st); /* no rank closes its region before rank 0 has got its rows */
}

static int report(struct stencil *st, double seconds)
{
    double pixels = (double)st->task.width * st->task.height * st->task.steps;
    if (write_picture(st))
        return 1;
    printf("%u x %u pixels, %u steps, %u %s: ", st->task.width, st->task.height, st->task.steps,
           st->size, st->size == 1 ? "rank" : "ranks");
    printf("%.3f s, %.0f million pixels/s, checksum %016" PRIx64 "\n", seconds,
           seconds > 0 ? pixels / seconds * 1e-6 : 0, st->checksum);
    return 0;
}

/* Close and free in reverse order; what was not opened is null. */
static int finish(struct stencil *st, int code)
{
    for (unsigned i = 0; st->mr && i < st->size; i++)
        (void)weft_remote_close(st->remotes[i]);
    if (st->mr)
        (void)weft_mr_close(st->mr);
    free(st->remotes);
    free(st->line);
    free(st->grey);
    enum weft_status s = weft_job_close(st->job);
    if (s != WEFT_OK)
        return fprintf(stderr, "stencil: rank %u: close: %s\n", st->rank, weft_status_text(s)), 1;
    return code;
}

int main(int argc, char **argv)
{
    struct stencil st = {0};
    double seconds;
    enum weft_status s = weft_job_open(NULL, &st.job);
    if (s != WEFT_OK)
        return fprintf(stderr, "stencil: cannot join the job: %s\n", weft_status_text(s)), 1;
    st.ep = weft_job_ep(st.job);
    st.rank = weft_job_rank(st.job);
    st.size = weft_job_size(st.job);
    if (st.rank == 0)
        st.task.exit_code = (uint32_t)prepare(&st, argc, argv);
    if (share_task(&st) != WEFT_OK)
        return 1; /* not a departure: exit without close ends the job */
    if (st.task.exit_code)
        return finish(&st, (int)st.task.exit_code);
    if (run(&st, &seconds) != WEFT_OK)
        return 1;
    return finish(&st, st.rank == 0 ? report(&st, seconds) : 0);
}
