// Kernels that are source text: MLX compiles them for a GPU when they first run, through mlx-c's custom kernels.
#ifndef CLADE_CUSTOM_H
#define CLADE_CUSTOM_H

#include "shim.h"

// custom_new makes a kernel of source; names are zero-terminated, one behind the other. NULL leaves the error of this thread.
void *custom_new(bool metal, const char *name, const char *inputs, int inputs_count, const char *output, const char *header, const char *body);
void custom_free(bool metal, void *kernel);
// custom_apply builds a call: launch is the grid and the group in threads; constants are the kernel's, types first.
cx_out custom_apply(bool metal, void *kernel, void *const *in, size_t count, const int *shape, int dims, mlx_dtype dtype, const int *launch,
                    const char *constants, const int *values, int types, int numbers, void *stream);

#endif
