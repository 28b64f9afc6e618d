#include "custom.h"

#include <string.h>

static mlx_vector_string strings(const char *names, int count) {
	mlx_vector_string v = cx_mlx_vector_string_new();
	for (int i = 0; v.ctx != NULL && i < count; i++, names += strlen(names) + 1) {
		if (cx_mlx_vector_string_append_value(v, names) != 0) {
			cx_mlx_vector_string_free(v);
			return (mlx_vector_string){NULL};
		}
	}
	return v;
}

void *custom_new(bool metal, const char *name, const char *inputs, int inputs_count, const char *output, const char *header, const char *body) {
	void *kernel = NULL;
	mlx_vector_string in = strings(inputs, inputs_count), out = strings(output, 1);
	if (in.ctx != NULL && out.ctx != NULL) {
		kernel = metal ? cx_mlx_fast_metal_kernel_new(name, in, out, body, header, true, false).ctx
		               : cx_mlx_fast_cuda_kernel_new(name, in, out, body, header, true, 0).ctx;
	}
	if (in.ctx != NULL) cx_mlx_vector_string_free(in);
	if (out.ctx != NULL) cx_mlx_vector_string_free(out);
	return kernel;
}

void custom_free(bool metal, void *kernel) {
	if (metal) cx_mlx_fast_metal_kernel_free((mlx_fast_metal_kernel){kernel});
	else cx_mlx_fast_cuda_kernel_free((mlx_fast_cuda_kernel){kernel});
}

// APPLY is one text for two interfaces that differ in their names.
#define APPLY(kind)                                                                                                              \
	static int apply_##kind(mlx_vector_array *out, void *kernel, mlx_vector_array in, const int *shape, int dims, mlx_dtype dtype, \
	                        const int *launch, const char *constants, const int *values, int types, int numbers, mlx_stream s) {   \
		mlx_fast_##kind##_kernel_config c = cx_mlx_fast_##kind##_kernel_config_new();                                              \
		if (c.ctx == NULL) return 1;                                                                                               \
		int rc = cx_mlx_fast_##kind##_kernel_config_add_output_arg(c, shape, dims, dtype);                                         \
		if (rc == 0) rc = cx_mlx_fast_##kind##_kernel_config_set_grid(c, launch[0], launch[1], launch[2]);                         \
		if (rc == 0) rc = cx_mlx_fast_##kind##_kernel_config_set_thread_group(c, launch[3], launch[4], launch[5]);                 \
		for (int i = 0; rc == 0 && i < types + numbers; i++, constants += strlen(constants) + 1) {                                 \
			rc = i < types ? cx_mlx_fast_##kind##_kernel_config_add_template_arg_dtype(c, constants, (mlx_dtype)values[i])         \
			               : cx_mlx_fast_##kind##_kernel_config_add_template_arg_int(c, constants, values[i]);                     \
		}                                                                                                                          \
		if (rc == 0) rc = cx_mlx_fast_##kind##_kernel_apply(out, (mlx_fast_##kind##_kernel){kernel}, in, c, s);                    \
		cx_mlx_fast_##kind##_kernel_config_free(c);                                                                                \
		return rc;                                                                                                                 \
	}

APPLY(cuda)
APPLY(metal)

cx_out custom_apply(bool metal, void *kernel, void *const *in, size_t count, const int *shape, int dims, mlx_dtype dtype, const int *launch,
                    const char *constants, const int *values, int types, int numbers, void *stream) {
	cx_out one = {NULL, 1};
	mlx_vector_array inputs = cx_mlx_vector_array_new_data((const mlx_array *)in, count), out = cx_mlx_vector_array_new();
	if (inputs.ctx != NULL && out.ctx != NULL) {
		int rc = (metal ? apply_metal : apply_cuda)(&out, kernel, inputs, shape, dims, dtype, launch, constants, values, types, numbers,
		                                            (mlx_stream){stream});
		if (rc == 0) one = cx_vector_get(out.ctx, 0);
	}
	if (inputs.ctx != NULL && cx_mlx_vector_array_free(inputs) != 0) one.rc = 1;
	if (out.ctx != NULL && cx_mlx_vector_array_free(out) != 0) one.rc = 1;
	return one;
}
