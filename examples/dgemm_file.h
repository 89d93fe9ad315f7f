/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrices in files, for dgemm.c.
 *
 * Read: NumPy .npy (versions 1 to 3; '<f8', two dimensions, either order) and
 * Matrix Market .mtx (array and coordinate, real and integer, general and
 * symmetric). Written: .npy.
 *
 * A file is not trusted: sizes are compared with the file's length and with
 * this machine's memory before anything is allocated for them. */
#ifndef DGEMM_FILE_H
#define DGEMM_FILE_H

#include <stddef.h>
#include <stdio.h>

struct matrix {
    size_t rows, cols;
    double *at; /* [rows][cols] */
};

/* Does a matrix of [rows] x [cols] fit this machine's memory? Prints an error if
 * it does not. */
int matrix_fits(const char *path, size_t rows, size_t cols);

/* Returns 0, or -1 after printing the file's error; on success the caller frees
 * [at]. */
int matrix_read(const char *path, struct matrix *m);

/* Begin a file of [rows] x [cols], which the caller writes row after row. */
FILE *matrix_create(const char *path, size_t rows, size_t cols);
/* End it. Returns 0, or -1 after printing why; then there is no file. */
int matrix_finish(const char *path, FILE *f);

#endif
