// Operations of a plugin's own library. An operation is a C function of type ext_op: in and out are mlx::core::array*, stream is
// mlx::core::Stream*; it makes *out with new, returns 0, or writes a message into error and returns another number.
#ifndef CLADE_EXTENSION_H
#define CLADE_EXTENSION_H

#include "shim.h"

typedef int (*ext_op)(void **out, void *const *in, size_t count, const double *params, size_t params_count, void *stream, char *error,
                      size_t room);

void *ext_open(const char *path);
// ext_find looks an operation up; NULL leaves the error of this thread.
void *ext_find(void *lib, const char *name);
cx_out ext_call(void *op, void *const *in, size_t count, const double *params, size_t params_count, void *stream);

#endif
