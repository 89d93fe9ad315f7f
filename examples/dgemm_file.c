/* SPDX-License-Identifier: BSD-3-Clause */
#define _DEFAULT_SOURCE
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <dgemm_file.h>

enum {
    NPY_HEAD_MAX = 65536, /* a header is a line of some 100 bytes */
    MTX_LINE_MAX = 1024,  /* of the Matrix Market's own description */
    WORD_MAX = 32,
};

struct source {
    const char *path;
    FILE *f;
    uint64_t length; /* bytes */
    uint64_t line;   /* .mtx: of the line read last, from 1 */
};

__attribute__((format(printf, 2, 3))) static int bad(const char *path, const char *fmt, ...)
{
    va_list args;
    fprintf(stderr, "dgemm: %s: ", path);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    return -1;
}

/* Half of the memory: the matrix exists here once and once in tiles. */
int matrix_fits(const char *path, size_t rows, size_t cols)
{
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (!rows || !cols)
        return bad(path, "%zu x %zu is no matrix", rows, cols);
    if (cols <= memory / 2 / sizeof(double) / rows)
        return 0;
    return bad(path, "%zu x %zu numbers do not fit into this machine's memory (%" PRIu64 " MiB)",
               rows, cols, memory >> 20);
}

static int allocate(const char *path, struct matrix *m)
{
    if (matrix_fits(path, m->rows, m->cols))
        return -1;
    m->at = calloc(m->rows * m->cols, sizeof *m->at);
    return m->at ? 0 : bad(path, "no memory for %zu x %zu numbers", m->rows, m->cols);
}

/* ---- .npy ---- */

static uint32_t little_endian(const unsigned char *bytes, unsigned count)
{
    uint32_t value = 0;
    while (count--)
        value = value << 8 | bytes[count];
    return value;
}

/* The text behind 'key': in the header, a Python dictionary. */
static const char *npy_value(const char *head, const char *key)
{
    char quoted[WORD_MAX];
    const char *at;
    snprintf(quoted, sizeof quoted, "'%s'", key);
    at = strstr(head, quoted);
    if (!at)
        return NULL;
    at += strlen(quoted);
    at += strspn(at, " ");
    if (*at++ != ':')
        return NULL;
    return at + strspn(at, " ");
}

/* A dimension, which must be followed by [after]. */
static const char *npy_dimension(const char *at, size_t *out, char after)
{
    char *end;
    if (!isdigit((unsigned char)*at))
        return NULL;
    errno = 0;
    *out = strtoull(at, &end, 10);
    end += strspn(end, " L");
    return errno || *end != after ? NULL : end + 1 + strspn(end + 1, " ");
}

static int npy_shape(const char *path, const char *at, struct matrix *m)
{
    if (!at || *at++ != '(')
        return bad(path, "its header has no shape");
    at = npy_dimension(at + strspn(at, " "), &m->rows, ',');
    if (at && *at == ')')
        return bad(path, "it has one dimension; a matrix has two");
    if (at)
        at = npy_dimension(at, &m->cols, ')');
    return at ? 0 : bad(path, "its shape is not that of a matrix: two dimensions are needed");
}

static int npy_head(const char *path, const char *head, struct matrix *m, int *fortran)
{
    const char *type = npy_value(head, "descr"), *order = npy_value(head, "fortran_order");
    if (!type || !order)
        return bad(path, "its header is damaged: no descr or no fortran_order");
    if (strncmp(type, "'<f8'", 5))
        return bad(path, "its type is %.*s, not '<f8': convert it with astype(\"<f8\")",
                   (int)strcspn(type, ",}\n"), type);
    *fortran = !strncmp(order, "True", 4);
    if (!*fortran && strncmp(order, "False", 5))
        return bad(path, "its header is damaged: fortran_order is neither True nor False");
    return npy_shape(path, npy_value(head, "shape"), m);
}

/* The header as text; the caller frees it. Leaves the file at the data. */
static char *npy_read_head(struct source *src)
{
    unsigned char start[12];
    unsigned width;
    uint32_t len;
    char *head;
    if (fread(start, 1, 8, src->f) != 8) /* the magic number was checked */
        return bad(src->path, "it is cut off in its header"), NULL;
    if (start[6] < 1 || start[6] > 3)
        return bad(src->path, "it is of version %u.%u; 1 to 3 are known", start[6], start[7]), NULL;
    width = start[6] == 1 ? 2 : 4;
    if (fread(start + 8, 1, width, src->f) != width)
        return bad(src->path, "it is cut off in its header"), NULL;
    len = little_endian(start + 8, width);
    if (len > NPY_HEAD_MAX)
        return bad(src->path, "its header claims %" PRIu32 " bytes; that is absurd", len), NULL;
    head = malloc(len + 1u);
    if (!head)
        return bad(src->path, "no memory"), NULL;
    if (fread(head, 1, len, src->f) == len) {
        head[len] = 0;
        return head;
    }
    free(head);
    return bad(src->path, "it is cut off in its header"), NULL;
}

/* Column after column in the file. */
static int npy_read_columns(struct source *src, struct matrix *m)
{
    double *column = malloc(m->rows * sizeof *column);
    int code = column ? 0 : bad(src->path, "no memory");
    for (size_t c = 0; !code && c < m->cols; c++) {
        if (fread(column, sizeof *column, m->rows, src->f) != m->rows)
            code = bad(src->path, "it cannot be read to its end");
        for (size_t r = 0; !code && r < m->rows; r++)
            m->at[r * m->cols + c] = column[r];
    }
    free(column);
    return code;
}

static int npy_read(struct source *src, struct matrix *m)
{
    char *head = npy_read_head(src);
    int fortran = 0, code = head ? npy_head(src->path, head, m, &fortran) : -1;
    uint64_t have;
    free(head);
    if (code || matrix_fits(src->path, m->rows, m->cols))
        return -1;
    have = src->length - (uint64_t)ftell(src->f);
    if (have != m->rows * m->cols * sizeof(double))
        return bad(src->path, "%zu x %zu numbers are %zu bytes, but %" PRIu64 " follow its header",
                   m->rows, m->cols, m->rows * m->cols * sizeof(double), have);
    if (allocate(src->path, m))
        return -1;
    if (fortran)
        return npy_read_columns(src, m);
    if (fread(m->at, sizeof(double), m->rows * m->cols, src->f) == m->rows * m->cols)
        return 0;
    return bad(src->path, "it cannot be read to its end");
}

/* ---- .mtx ---- */

struct mtx {
    int coordinate, symmetric, integer;
    uint64_t entries; /* that follow the sizes */
};

/* The next line that is neither empty nor a comment; null at the end, or after printing an error:
 * [*code] distinguishes them. */
static char *mtx_line(struct source *src, char *line, int *code)
{
    while (fgets(line, MTX_LINE_MAX + 2, src->f)) {
        size_t len = strlen(line);
        src->line++;
        if (len > MTX_LINE_MAX && line[len - 1] != '\n') {
            *code =
                bad(src->path, "line %" PRIu64 " is longer than %d bytes", src->line, MTX_LINE_MAX);
            return NULL;
        }
        if (line[0] != '%' && line[strspn(line, " \t\r\n")])
            return line;
    }
    return NULL;
}

static int mtx_banner(struct source *src, struct mtx *mtx)
{
    char line[MTX_LINE_MAX + 2], object[WORD_MAX], format[WORD_MAX], field[WORD_MAX],
        symmetry[WORD_MAX];
    if (!fgets(line, sizeof line, src->f) ||
        sscanf(line, "%%%%%*[Mm]atrix%*[Mm]arket %31s %31s %31s %31s", object, format, field,
               symmetry) != 4)
        return bad(src->path, "its first line is not %%%%MatrixMarket and four words");
    src->line = 1;
    mtx->coordinate = !strcasecmp(format, "coordinate");
    mtx->symmetric = !strcasecmp(symmetry, "symmetric");
    mtx->integer = !strcasecmp(field, "integer");
    if (strcasecmp(object, "matrix"))
        return bad(src->path, "it holds a %s, not a matrix", object);
    if (!mtx->coordinate && strcasecmp(format, "array"))
        return bad(src->path, "its format is %s; array and coordinate are known", format);
    if (!mtx->integer && strcasecmp(field, "real"))
        return bad(src->path, "its numbers are %s; real and integer are known", field);
    if (!mtx->symmetric && strcasecmp(symmetry, "general"))
        return bad(src->path, "it is %s; general and symmetric are known", symmetry);
    return 0;
}

/* A count at *at, which moves on; -1 if there is none. */
static int take_count(char **at, uint64_t *out)
{
    char *end;
    *at += strspn(*at, " \t");
    if (!isdigit((unsigned char)**at))
        return -1;
    errno = 0;
    *out = strtoull(*at, &end, 10);
    *at = end;
    return errno ? -1 : 0;
}

static int take_number(const struct mtx *mtx, char **at, double *out)
{
    char *end;
    errno = 0;
    *out = mtx->integer ? (double)strtoll(*at, &end, 10) : strtod(*at, &end);
    if (end == *at || (mtx->integer && errno))
        return -1;
    *at = end;
    return 0;
}

static int is_end(const char *at)
{
    return !at[strspn(at, " \t\r\n")];
}

static int mtx_sizes(struct source *src, struct mtx *mtx, struct matrix *m)
{
    char line[MTX_LINE_MAX + 2], *at;
    uint64_t rows, cols, shortest, room = src->length;
    int code = 0;
    at = mtx_line(src, line, &code);
    if (!at)
        return code ? code : bad(src->path, "it ends before its sizes");
    if (take_count(&at, &rows) || take_count(&at, &cols) ||
        (mtx->coordinate && take_count(&at, &mtx->entries)) || !is_end(at))
        return bad(src->path, "line %" PRIu64 ": %s sizes are needed", src->line,
                   mtx->coordinate ? "three" : "two");
    m->rows = rows;
    m->cols = cols;
    if (matrix_fits(src->path, m->rows, m->cols))
        return -1;
    if (mtx->symmetric && rows != cols)
        return bad(src->path, "it is symmetric, but %" PRIu64 " x %" PRIu64, rows, cols);
    if (!mtx->coordinate)
        mtx->entries = mtx->symmetric ? rows * (rows + 1) / 2 : rows * cols;
    shortest = mtx->coordinate ? 6 : 2; /* "1 1 1\n", "1\n" */
    if (mtx->entries && mtx->entries - 1 > room / shortest)
        return bad(src->path, "it claims %" PRIu64 " entries, but has only %" PRIu64 " bytes",
                   mtx->entries, room);
    return 0;
}

static int mtx_entry(struct source *src, const struct mtx *mtx, const struct matrix *m,
                     uint64_t row, uint64_t col, char *at)
{
    double value;
    if (mtx->coordinate && (take_count(&at, &row) || take_count(&at, &col)))
        return bad(src->path, "line %" PRIu64 ": row, column and number are needed", src->line);
    if (take_number(mtx, &at, &value) || !is_end(at))
        return bad(src->path, "line %" PRIu64 ": that is no %s number", src->line,
                   mtx->integer ? "integer" : "real");
    if (row < 1 || row > m->rows || col < 1 || col > m->cols)
        return bad(src->path,
                   "line %" PRIu64 ": row %" PRIu64 ", column %" PRIu64 " is outside of %zu x %zu",
                   src->line, row, col, m->rows, m->cols);
    if (mtx->symmetric && row < col)
        return bad(src->path, "line %" PRIu64 ": above the diagonal of a symmetric matrix",
                   src->line);
    m->at[(row - 1) * m->cols + col - 1] += value; /* entries of one place add up */
    if (mtx->symmetric && row != col)
        m->at[(col - 1) * m->cols + row - 1] += value;
    return 0;
}

/* Array entries come column by column, of a symmetric one from the diagonal on. */
static int mtx_entries(struct source *src, const struct mtx *mtx, const struct matrix *m)
{
    char line[MTX_LINE_MAX + 2];
    uint64_t row = 1, col = 1;
    int code = 0;
    for (uint64_t i = 0; i < mtx->entries; i++) {
        char *at = mtx_line(src, line, &code);
        if (!at)
            return code ? code
                        : bad(src->path, "it ends after %" PRIu64 " of %" PRIu64 " entries", i,
                              mtx->entries);
        if (mtx_entry(src, mtx, m, row, col, at))
            return -1;
        if (++row > m->rows) {
            col++;
            row = mtx->symmetric ? col : 1;
        }
    }
    if (mtx_line(src, line, &code))
        return bad(src->path, "line %" PRIu64 ": more than the %" PRIu64 " entries it claims",
                   src->line, mtx->entries);
    return code;
}

static int mtx_read(struct source *src, struct matrix *m)
{
    struct mtx mtx = {0};
    if (mtx_banner(src, &mtx) || mtx_sizes(src, &mtx, m) || allocate(src->path, m))
        return -1;
    return mtx_entries(src, &mtx, m);
}

/* ---- either ---- */

static int read_any(struct source *src, struct matrix *m)
{
    char start[6] = {0};
    size_t n = fread(start, 1, sizeof start, src->f);
    rewind(src->f);
    if (n == sizeof start && !memcmp(start, "\x93NUMPY", 6))
        return npy_read(src, m);
    if (n > 2 && start[0] == '%' && start[1] == '%')
        return mtx_read(src, m);
    return bad(src->path, "it is neither .npy (NumPy) nor .mtx (Matrix Market)");
}

int matrix_read(const char *path, struct matrix *m)
{
    struct source src = {.path = path, .f = fopen(path, "rbe")};
    struct stat st;
    int code;
    *m = (struct matrix){0};
    if (!src.f)
        return bad(path, "%s", strerror(errno));
    if (fstat(fileno(src.f), &st) || !S_ISREG(st.st_mode)) {
        fclose(src.f);
        return bad(path, "it is not a file");
    }
    src.length = (uint64_t)st.st_size;
    code = read_any(&src, m);
    fclose(src.f);
    if (code) {
        free(m->at);
        m->at = NULL;
    }
    return code;
}

/* The data begin at a multiple of 64 bytes: the format's own advice. */
FILE *matrix_create(const char *path, size_t rows, size_t cols)
{
    unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    char head[256];
    size_t len = (size_t)snprintf(head, sizeof head,
                                  "{'descr': '<f8', 'fortran_order': False, 'shape': (%zu, %zu), }",
                                  rows, cols);
    FILE *f = fopen(path, "wbe");
    if (!f)
        return bad(path, "%s", strerror(errno)), NULL;
    while ((sizeof start + len + 1) % 64)
        head[len++] = ' ';
    head[len++] = '\n';
    start[8] = (unsigned char)len;
    fwrite(start, 1, sizeof start, f);
    fwrite(head, 1, len, f); /* errors stay with the stream: see matrix_finish */
    return f;
}

int matrix_finish(const char *path, FILE *f)
{
    int failed = ferror(f);
    if (!fclose(f) && !failed)
        return 0;
    bad(path, "cannot be written: %s", strerror(errno));
    unlink(path);
    return -1;
}
