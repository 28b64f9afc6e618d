// The hand-written half of the shim: loading, the error message of the calling thread, and calls that take or give many
// handles at once. shim_gen.h holds the types and one forwarder per function of mlx-c.
#ifndef CLADE_MLX_SHIM_H
#define CLADE_MLX_SHIM_H

#include "shim_gen.h"

// Longest string argument of an op (modes, einsum subscripts), terminator included; it is copied to the C stack.
enum { CX_STRING_MAX = 256 };

// cx_dlopen loads one library by path; NULL leaves the loader's words as the error of this thread.
void *cx_dlopen(const char *path);
// cx_resolve looks up every function of the table, tells which are there, and returns how many required ones are missing.
// Only a complete library becomes the one that is called.
int cx_resolve(void *lib, bool *found);
// cx_install_error_handler replaces mlx-c's own handler, which prints to stdout and exits.
void cx_install_error_handler(void);
// cx_take_error returns the first message on this thread since the last take, or "".
const char *cx_take_error(void);
void cx_set_error(const char *msg);
// cx_zstring copies a Go string; false, with an error set, when it does not fit or holds a percent sign.
bool cx_zstring(char *buf, const char *s, size_t n);

cx_out cx_array_from_data(const uint8_t *data, const int *shape, int dim, mlx_dtype dtype);
cx_out cx_vector_get(void *vec, size_t i);
cx_out cx_retain(void *src);
int cx_vector_free(void *vec);
int cx_free_arrays(void *const *arrays, size_t n);
int cx_eval(void *const *arrays, size_t n, bool async);
int cx_describe(void *array, int *dtype, int *ndim, size_t *nbytes, int64_t *dims, int max);
int cx_row_contiguous(void *array, bool *yes);

#endif
