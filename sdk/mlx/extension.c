#include "extension.h"

#include <dlfcn.h>

void *ext_open(const char *path) { return cx_dlopen(path); }

void *ext_find(void *lib, const char *name) {
	void *op = dlsym(lib, name);
	if (op == NULL) cx_set_error(dlerror());
	return op;
}

cx_out ext_call(void *op, void *const *in, size_t count, const double *params, size_t params_count, void *stream) {
	char error[256] = "the operation failed and does not say why";
	void *out = NULL;
	int rc = ((ext_op)op)(&out, in, count, params, params_count, stream, error, sizeof error);
	error[sizeof error - 1] = 0;
	if (rc != 0) cx_set_error(error);
	return (cx_out){out, rc};
}
