#include "kernels_shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct {
	void *ctx;
} weight;

// One row a function: result, name, parameters.
#define CK_FUNCTIONS(F)                                                                                             \
	F(uint32_t, kernels_abi, (void))                                                                                \
	F(const char *, kernels_list, (void))                                                                           \
	F(const char *, kernels_error, (void))                                                                          \
	F(const char *, kernels_level, (void))                                                                          \
	F(const char *, kernels_levels, (void))                                                                         \
	F(int, kernels_set_level, (const char *))                                                                       \
	F(int, kernels_threads, (void))                                                                                 \
	F(int, kernels_set_threads, (int))                                                                              \
	F(int, kernels_pin, (const int *, int))                                                                         \
	F(size_t, kernels_weight_bytes, (void))                                                                         \
	F(size_t, weight_size_dense, (int, int, int))                                                                   \
	F(size_t, weight_size_affine, (int, int, int, int, int))                                                        \
	F(int, weight_new_dense, (weight *, int, int, int))                                                             \
	F(int, weight_new_affine, (weight *, int, int, int, int, int))                                                  \
	F(int, weight_set_dense, (weight, int, int, const void *))                                                      \
	F(int, weight_set_affine, (weight, int, int, const uint32_t *, const void *, const void *))                     \
	F(int, weight_set_bias, (weight, const float *))                                                                \
	F(int, weight_free, (weight))                                                                                   \
	F(int, linear, (mlx_array *, mlx_array, const weight *, int, int, mlx_array, float, mlx_array, mlx_stream))     \
	F(int, embed, (mlx_array *, mlx_array, weight, int, mlx_stream))                                                \
	F(int, attend, (mlx_array *, mlx_array *, mlx_array *, mlx_array, mlx_array, mlx_array, mlx_array, mlx_array,   \
	                mlx_array, const ck_attention *, mlx_stream))

// Kernels that an older library lacks: whoever calls one has found its name in the list.
#define CK_LATER(F)                               \
	F(int, weight_set_int8, (weight, bool))       \
	F(int, decoder_new, (ck_decoder *, const ck_decoder_layer *, int, int, float)) \
	F(int, decoder_free, (ck_decoder))            \
	F(int, decode, (mlx_array *, mlx_array *, ck_decoder, mlx_array, const mlx_array *, int, const ck_sequence *, const int *, int, \
	                mlx_array, const ck_attention *, mlx_stream)) \
	F(size_t, weight_size_trellis, (int, int, int, int, int, int))          \
	F(int, weight_new_trellis, (weight *, int, int, int, int, int, int))    \
	F(int, weight_set_trellis, (weight, int, int, const uint32_t *, const float *)) \
	F(int, kernels_place, (int))                  \
	F(int, linear_updates, (mlx_array *, mlx_array, const weight *, int, int, mlx_array, float, mlx_array, const ck_update *, int, \
	                        mlx_stream))          \
	F(int, experts, (mlx_array *, mlx_array, mlx_array, weight, weight, weight, int, int, bool, mlx_array, mlx_stream))          \
	F(int, mixture, (mlx_array *, mlx_array, mlx_array, float, weight, weight, weight, weight, int, int, bool, mlx_stream)) \
	F(int, kernels_revision, (void))              \
	F(int, attend_rows, (mlx_array *, mlx_array *, mlx_array, const mlx_array *, int, const int *, const int *, mlx_array, mlx_array, \
	                     mlx_array, const ck_attention *, mlx_stream)) \
	F(int, attend_caches, (mlx_array *, mlx_array *, mlx_array, const mlx_array *, int, const ck_sequence *, const int *, int, \
	                       mlx_array, mlx_array, mlx_array, const ck_attention *, mlx_stream)) \
	F(int, attend_softcap, (mlx_array *, mlx_array *, mlx_array, const mlx_array *, int, const ck_sequence *, const int *, int, \
	                        mlx_array, mlx_array, mlx_array, const ck_attention *, float, mlx_stream)) \
	F(int, attend_latent, (mlx_array *, mlx_array *, mlx_array, const mlx_array *, int, const ck_sequence *, const int *, mlx_array, \
	                       const ck_attention *, mlx_stream)) \
	F(int, head_linear, (mlx_array *, mlx_array, mlx_array, int, mlx_stream)) \
	F(int, cache_pack, (mlx_array *, mlx_array, ck_row_code, mlx_stream)) \
	F(int, gated_delta, (mlx_array *, mlx_array *, mlx_array, const mlx_array *, int, const ck_recurrent *, const int *, mlx_array, \
	                     mlx_array, mlx_array, mlx_array, const ck_delta *, mlx_stream)) \
	F(int, sample, (mlx_array *, mlx_array *, mlx_array *, mlx_array, const ck_sampling *, int, const int32_t *, int, const float *, int, \
	                const uint32_t *, int, mlx_stream))

// LACKS is the answer of a function that calls one which is not there.
#define LACKS(name)                                                        \
	if (p_##name == NULL) {                                                \
		cx_set_error("the runtime's libcladekernels lacks clade_" #name); \
		return 1;                                                          \
	}

#define CK_POINTER(type, name, args) static type(*p_##name) args;
CK_FUNCTIONS(CK_POINTER)
CK_LATER(CK_POINTER)

int ck_load(const char *path) {
	void *lib = cx_dlopen(path);
	if (lib == NULL) return 1;
#define CK_RESOLVE(type, name, args)                              \
	if ((p_##name = (type(*) args)dlsym(lib, "clade_" #name)) == NULL) { \
		cx_set_error("lacks clade_" #name);                       \
		return 1;                                                 \
	}
	CK_FUNCTIONS(CK_RESOLVE)
#define CK_FIND(type, name, args) p_##name = (type(*) args)dlsym(lib, "clade_" #name);
	CK_LATER(CK_FIND)
	uint32_t abi = p_kernels_abi();
	if (abi != CK_ABI) {
		char msg[96];
		snprintf(msg, sizeof msg, "has kernel ABI %u, this plugin was built for %d", abi, CK_ABI);
		cx_set_error(msg);
		return 1;
	}
	return 0;
}

// failed moves the library's message to where the binding looks for it.
static int failed(int rc) {
	if (rc != 0) cx_set_error(p_kernels_error());
	return rc;
}

const char *ck_list(void) { return p_kernels_list(); }
const char *ck_level(void) { return p_kernels_level(); }
const char *ck_levels(void) { return p_kernels_levels(); }
int ck_set_level(const char *name) { return p_kernels_set_level(name); }
int ck_threads(void) { return p_kernels_threads(); }
int ck_set_threads(int n) { return failed(p_kernels_set_threads(n)); }
int ck_pin(const int *cpus, int n) { return failed(p_kernels_pin(cpus, n)); }
int ck_revision(void) { return p_kernels_revision == NULL ? 0 : p_kernels_revision(); }
int ck_places(void) { return p_kernels_place != NULL; }
int ck_place(int node) {
	LACKS(kernels_place)
	return failed(p_kernels_place(node));
}
size_t ck_weight_bytes(void) { return p_kernels_weight_bytes(); }

static size_t sized(size_t bytes) {
	failed(bytes == 0);
	return bytes;
}
size_t ck_size_dense(int n, int k, int dtype) { return sized(p_weight_size_dense(n, k, dtype)); }
size_t ck_size_affine(int n, int k, int bits, int group, int scale) {
	return sized(p_weight_size_affine(n, k, bits, group, scale));
}

cx_out ck_new_dense(int n, int k, int dtype) {
	weight w = {0};
	int rc = failed(p_weight_new_dense(&w, n, k, dtype));
	return (cx_out){w.ctx, rc};
}
cx_out ck_new_affine(int n, int k, int bits, int group, int scale) {
	weight w = {0};
	int rc = failed(p_weight_new_affine(&w, n, k, bits, group, scale));
	return (cx_out){w.ctx, rc};
}
int ck_set_dense(void *w, int row, int count, const uint8_t *rows) {
	return failed(p_weight_set_dense((weight){w}, row, count, rows));
}
int ck_set_affine(void *w, int row, int count, const uint8_t *codes, const uint8_t *scales, const uint8_t *biases) {
	return failed(p_weight_set_affine((weight){w}, row, count, (const uint32_t *)codes, scales, biases));
}
int ck_set_bias(void *w, const float *bias) { return failed(p_weight_set_bias((weight){w}, bias)); }
int ck_set_int8(void *w, bool on) {
	LACKS(weight_set_int8)
	return failed(p_weight_set_int8((weight){w}, on));
}
static size_t lacks_trellis(void) {
	LACKS(weight_new_trellis)
	return 0;
}
size_t ck_size_trellis(int n, int k, int bits, int block, int state, int axis) {
	return lacks_trellis() ? 0 : sized(p_weight_size_trellis(n, k, bits, block, state, axis));
}
cx_out ck_new_trellis(int n, int k, int bits, int block, int state, int axis) {
	if (lacks_trellis()) return (cx_out){NULL, 1};
	weight w = {0};
	int rc = failed(p_weight_new_trellis(&w, n, k, bits, block, state, axis));
	return (cx_out){w.ctx, rc};
}
int ck_set_trellis(void *w, int row, int count, const uint8_t *words, const uint8_t *scales) {
	LACKS(weight_set_trellis)
	return failed(p_weight_set_trellis((weight){w}, row, count, (const uint32_t *)words, (const float *)scales));
}
int ck_free(void *w) { return p_weight_free((weight){w}); }

cx_out ck_linear(void *x, void *const *weights, int count, int gate, void *norm, float eps, void *residual, void *stream) {
	weight ws[CK_MAX_WEIGHTS];
	for (int i = 0; i < count; i++) ws[i].ctx = weights[i];
	mlx_array res = {0};
	int rc = failed(p_linear(&res, (mlx_array){x}, ws, count, gate, (mlx_array){norm}, eps, (mlx_array){residual}, (mlx_stream){stream}));
	return (cx_out){res.ctx, rc};
}

bool ck_updates(void) { return p_linear_updates != NULL; }
cx_out ck_linear_updates(void *x, void *const *weights, int count, int gate, void *norm, float eps, void *residual,
                         const ck_update *updates, int changes, void *stream) {
	weight ws[CK_MAX_WEIGHTS];
	for (int i = 0; i < count; i++) ws[i].ctx = weights[i];
	mlx_array res = {0};
	if (p_linear_updates == NULL) {
		cx_set_error("the runtime's libcladekernels lacks clade_linear_updates");
		return (cx_out){NULL, 1};
	}
	int rc = failed(p_linear_updates(&res, (mlx_array){x}, ws, count, gate, (mlx_array){norm}, eps, (mlx_array){residual}, updates,
	                                 changes, (mlx_stream){stream}));
	return (cx_out){res.ctx, rc};
}

cx_out ck_experts(void *x, void *logits, void *gate, void *up, void *down, int experts, int top_k, bool normalize, void *residual,
                  void *stream) {
	mlx_array res = {0};
	if (p_experts == NULL) {
		cx_set_error("the runtime's libcladekernels lacks clade_experts");
		return (cx_out){NULL, 1};
	}
	int rc = failed(p_experts(&res, (mlx_array){x}, (mlx_array){logits}, (weight){gate}, (weight){up}, (weight){down}, experts, top_k,
	                          normalize, (mlx_array){residual}, (mlx_stream){stream}));
	return (cx_out){res.ctx, rc};
}

bool ck_mixes(void) { return p_mixture != NULL; }
cx_out ck_mixture(void *h, void *norm, float eps, void *router, void *gate, void *up, void *down, int experts, int top_k, bool normalize,
                  void *stream) {
	mlx_array res = {0};
	if (p_mixture == NULL) {
		cx_set_error("the runtime's libcladekernels lacks clade_mixture");
		return (cx_out){NULL, 1};
	}
	int rc = failed(p_mixture(&res, (mlx_array){h}, (mlx_array){norm}, eps, (weight){router}, (weight){gate}, (weight){up}, (weight){down},
	                          experts, top_k, normalize, (mlx_stream){stream}));
	return (cx_out){res.ctx, rc};
}

cx_out ck_embed(void *ids, void *w, int dtype, void *stream) {
	mlx_array res = {0};
	int rc = failed(p_embed(&res, (mlx_array){ids}, (weight){w}, dtype, (mlx_stream){stream}));
	return (cx_out){res.ctx, rc};
}

ck_three ck_attend(void *qkv, void *keys, void *values, void *inv_freq, void *q_norm, void *k_norm, ck_attention a, void *stream) {
	mlx_array out = {0}, k = {0}, v = {0};
	int rc = failed(p_attend(&out, &k, &v, (mlx_array){qkv}, (mlx_array){keys}, (mlx_array){values}, (mlx_array){inv_freq},
	                         (mlx_array){q_norm}, (mlx_array){k_norm}, &a, (mlx_stream){stream}));
	return (ck_three){out.ctx, k.ctx, v.ctx, rc};
}

bool ck_attends_rows(void) { return p_attend_rows != NULL; }
int ck_attend_rows(void **out, void **new_caches, void *qkv, void *const *caches, int count, const int *offsets, const int *rows,
                   void *inv_freq, void *q_norm, void *k_norm, ck_attention a, void *stream) {
	LACKS(attend_rows)
	mlx_array o = {0}, in[2 * CK_MAX_SEQUENCES], made[2 * CK_MAX_SEQUENCES] = {{0}};
	for (int i = 0; i < 2 * count; i++) in[i].ctx = caches[i];
	int rc = failed(p_attend_rows(&o, made, (mlx_array){qkv}, in, count, offsets, rows, (mlx_array){inv_freq}, (mlx_array){q_norm},
	                              (mlx_array){k_norm}, &a, (mlx_stream){stream}));
	*out = o.ctx;
	for (int i = 0; i < 2 * count; i++) new_caches[i] = made[i].ctx;
	return rc;
}

// An mlx_array is one pointer: an array of handles is an array of them.
_Static_assert(sizeof(mlx_array) == sizeof(void *), "mlx_array is one pointer");

bool ck_attends_caches(void) { return p_attend_caches != NULL && p_cache_pack != NULL; }
int ck_attend_caches(void **out, void **new_caches, void *qkv, void *const *caches, int count, const ck_sequence *sequences,
                     const int *tables, int keep, void *inv_freq, void *q_norm, void *k_norm, ck_attention a, void *stream) {
	LACKS(attend_caches)
	mlx_array o = {0};
	int rc = failed(p_attend_caches(&o, (mlx_array *)new_caches, (mlx_array){qkv}, (const mlx_array *)caches, count, sequences, tables, keep,
	                                (mlx_array){inv_freq}, (mlx_array){q_norm}, (mlx_array){k_norm}, &a, (mlx_stream){stream}));
	*out = o.ctx;
	return rc;
}

bool ck_attends_softcap(void) { return p_attend_softcap != NULL; }
int ck_attend_softcap(void **out, void **new_caches, void *qkv, void *const *caches, int count, const ck_sequence *sequences,
                      const int *tables, int keep, void *inv_freq, void *q_norm, void *k_norm, ck_attention a, float softcap, void *stream) {
	if (softcap == 0) return ck_attend_caches(out, new_caches, qkv, caches, count, sequences, tables, keep, inv_freq, q_norm, k_norm, a, stream);
	LACKS(attend_softcap)
	mlx_array o = {0};
	int rc = failed(p_attend_softcap(&o, (mlx_array *)new_caches, (mlx_array){qkv}, (const mlx_array *)caches, count, sequences, tables, keep,
	                                 (mlx_array){inv_freq}, (mlx_array){q_norm}, (mlx_array){k_norm}, &a, softcap, (mlx_stream){stream}));
	*out = o.ctx;
	return rc;
}

bool ck_attends_latent(void) { return p_attend_latent != NULL && p_head_linear != NULL; }
int ck_attend_latent(void **out, void **new_caches, void *qkv, void *const *caches, int count, const ck_sequence *sequences,
                     const int *tables, void *inv_freq, ck_attention a, void *stream) {
	LACKS(attend_latent)
	mlx_array o = {0};
	int rc = failed(p_attend_latent(&o, (mlx_array *)new_caches, (mlx_array){qkv}, (const mlx_array *)caches, count, sequences, tables,
	                                (mlx_array){inv_freq}, &a, (mlx_stream){stream}));
	*out = o.ctx;
	return rc;
}

cx_out ck_head_linear(void *x, void *w, int from, void *stream) {
	if (p_head_linear == NULL) {
		cx_set_error("the runtime's libcladekernels lacks clade_head_linear");
		return (cx_out){NULL, 1};
	}
	mlx_array res = {0};
	int rc = failed(p_head_linear(&res, (mlx_array){x}, (mlx_array){w}, from, (mlx_stream){stream}));
	return (cx_out){res.ctx, rc};
}

bool ck_decodes(void) { return p_decoder_new != NULL && p_decoder_free != NULL && p_decode != NULL; }
cx_out ck_decoder_new(const ck_decoder_layer *layers, int count, int gate, float eps) {
	ck_decoder d = {0};
	if (!ck_decodes()) {
		cx_set_error("the runtime's libcladekernels lacks clade_decode");
		return (cx_out){NULL, 1};
	}
	int rc = failed(p_decoder_new(&d, layers, count, gate, eps));
	return (cx_out){d.ctx, rc};
}
int ck_decoder_free(void *d) { return p_decoder_free((ck_decoder){d}); }
int ck_decode(void **out, void **new_caches, void *d, void *x, void *const *caches, int count, const ck_sequence *sequences, const int *tables,
              int keep, void *inv_freq, ck_attention a, void *stream) {
	LACKS(decode)
	mlx_array o = {0};
	int rc = failed(p_decode(&o, (mlx_array *)new_caches, (ck_decoder){d}, (mlx_array){x}, (const mlx_array *)caches, count, sequences, tables,
	                         keep, (mlx_array){inv_freq}, &a, (mlx_stream){stream}));
	*out = o.ctx;
	return rc;
}

cx_out ck_cache_pack(void *x, ck_row_code code, void *stream) {
	if (p_cache_pack == NULL) {
		cx_set_error("the runtime's libcladekernels lacks clade_cache_pack");
		return (cx_out){NULL, 1};
	}
	mlx_array res = {0};
	int rc = failed(p_cache_pack(&res, (mlx_array){x}, code, (mlx_stream){stream}));
	return (cx_out){res.ctx, rc};
}

bool ck_recurs(void) { return p_gated_delta != NULL; }
int ck_gated_delta(void **out, void **new_states, void *x, void *const *states, int count, const ck_recurrent *sequences, const int *kept,
                   void *conv, void *a_log, void *dt_bias, void *norm, ck_delta d, void *stream) {
	LACKS(gated_delta)
	mlx_array o = {0};
	int rc = failed(p_gated_delta(&o, (mlx_array *)new_states, (mlx_array){x}, (const mlx_array *)states, count, sequences, kept,
	                              (mlx_array){conv}, (mlx_array){a_log}, (mlx_array){dt_bias}, (mlx_array){norm}, &d, (mlx_stream){stream}));
	*out = o.ctx;
	return rc;
}

bool ck_samples(void) { return p_sample != NULL; }
ck_sampled ck_sample(void *logits, const ck_sampling *rows, int count, const int32_t *ids, int id_count, const float *values, int value_count,
                     const uint32_t *words, int word_count, void *stream) {
	ck_sampled out = {NULL, NULL, NULL, 1};
	if (p_sample == NULL) {
		cx_set_error("the runtime's libcladekernels lacks clade_sample");
		return out;
	}
	mlx_array tokens = {0}, told = {0}, logprobs = {0};
	out.rc = failed(p_sample(&tokens, &told, &logprobs, (mlx_array){logits}, rows, count, ids, id_count, values, value_count, words,
	                         word_count, (mlx_stream){stream}));
	out.tokens = tokens.ctx, out.told = told.ctx, out.logprobs = logprobs.ctx;
	return out;
}
