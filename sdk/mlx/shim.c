#include "shim.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

// mlx-c calls its one process-wide handler on the thread that made the call, so the message belongs to the thread.
static _Thread_local char last_error[2048];
static _Thread_local char taken_error[sizeof last_error];

void cx_set_error(const char *msg) {
	if (last_error[0] != '\0') return; // the first message is the cause
	strncpy(last_error, msg, sizeof last_error - 1);
	last_error[sizeof last_error - 1] = '\0';
}

static void on_error(const char *msg, void *data) {
	(void)data;
	cx_set_error(msg);
}

void cx_install_error_handler(void) { cx_mlx_set_error_handler(on_error, NULL, NULL); }

const char *cx_take_error(void) {
	memcpy(taken_error, last_error, sizeof last_error);
	last_error[0] = '\0';
	return taken_error;
}

void *cx_dlopen(const char *path) {
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (lib == NULL) cx_set_error(dlerror());
	return lib;
}

bool cx_zstring(char *buf, const char *s, size_t n) {
	if (n >= CX_STRING_MAX) {
		cx_set_error("string argument is longer than 255 bytes");
		return false;
	}
	// MLX may quote the argument in a message, and mlx-c passes messages to printf as the format.
	if (n > 0 && memchr(s, '%', n) != NULL) {
		cx_set_error("string argument holds a percent sign");
		return false;
	}
	if (n > 0) memcpy(buf, s, n);
	buf[n] = '\0';
	return true;
}

cx_out cx_array_from_data(const uint8_t *data, const int *shape, int dim, mlx_dtype dtype) {
	mlx_array a = cx_mlx_array_new_data(data, shape, dim, dtype);
	return (cx_out){a.ctx, a.ctx == NULL};
}

cx_out cx_vector_get(void *vec, size_t i) {
	mlx_array a = {0};
	int rc = cx_mlx_vector_array_get(&a, (mlx_vector_array){vec}, i);
	return (cx_out){a.ctx, rc};
}

cx_out cx_retain(void *src) {
	mlx_array a = {0};
	int rc = cx_mlx_array_set(&a, (mlx_array){src});
	return (cx_out){a.ctx, rc};
}

int cx_vector_free(void *vec) { return cx_mlx_vector_array_free((mlx_vector_array){vec}); }

int cx_free_arrays(void *const *arrays, size_t n) {
	int rc = 0;
	for (size_t i = 0; i < n; i++) {
		if (cx_mlx_array_free((mlx_array){arrays[i]}) != 0) rc = 1;
	}
	return rc;
}

int cx_eval(void *const *arrays, size_t n, bool async) {
	mlx_vector_array v = cx_mlx_vector_array_new_data((const mlx_array *)arrays, n);
	if (v.ctx == NULL) return 1;
	int rc = async ? cx_mlx_async_eval(v) : cx_mlx_eval(v);
	if (cx_mlx_vector_array_free(v) != 0) rc = 1;
	return rc;
}

int cx_describe(void *array, int *dtype, int *ndim, size_t *nbytes, int64_t *dims, int max) {
	mlx_array a = {array};
	size_t n = cx_mlx_array_ndim(a);
	*dtype = cx_mlx_array_dtype(a);
	*ndim = (int)n;
	*nbytes = cx_mlx_array_nbytes(a);
	if (n > (size_t)max) {
		cx_set_error("array has more dimensions than this binding reads");
		return 1;
	}
	const int *shape = cx_mlx_array_shape(a);
	if (n > 0 && shape == NULL) return 1;
	for (size_t i = 0; i < n; i++) dims[i] = shape[i];
	return 0;
}

int cx_row_contiguous(void *array, bool *yes) { return cx__mlx_array_is_row_contiguous(yes, (mlx_array){array}); }
