// The functions of libcladekernels (native/kernels/include/clade_kernels.h), loaded at run time like mlx-c's. Errors are left
// for cx_take_error.
#ifndef CLADE_KERNELS_SHIM_H
#define CLADE_KERNELS_SHIM_H

#include "shim.h"

enum { CK_ABI = 1, CK_MAX_WEIGHTS = 8, CK_MAX_SEQUENCES = 256, CK_MAX_UPDATES = 8192 };

typedef struct {
	int heads, kv_heads, head_dim;
	int rope_dims;
	bool rope_traditional;
	float rope_scale, rope_mscale;
	float scale;
	int offset, window;
	float norm_eps;
} ck_attention;

typedef struct {
	void *out, *keys, *values;
	int rc;
} ck_three;

// ck_load resolves every function; on failure it names the first that is missing, or the ABI it found.
int ck_load(const char *path);
const char *ck_list(void);
const char *ck_level(void);
const char *ck_levels(void);
int ck_set_level(const char *name);
int ck_threads(void);
int ck_set_threads(int n);
int ck_pin(const int *cpus, int n);
int ck_revision(void);
int ck_places(void);
int ck_place(int node);
size_t ck_weight_bytes(void);

size_t ck_size_dense(int n, int k, int dtype);
size_t ck_size_affine(int n, int k, int bits, int group, int scale);
cx_out ck_new_dense(int n, int k, int dtype);
cx_out ck_new_affine(int n, int k, int bits, int group, int scale);
int ck_set_dense(void *w, int row, int count, const uint8_t *rows);
int ck_set_affine(void *w, int row, int count, const uint8_t *codes, const uint8_t *scales, const uint8_t *biases);
int ck_set_bias(void *w, const float *bias);
int ck_set_int8(void *w, bool on);
size_t ck_size_trellis(int n, int k, int bits, int block, int state, int axis);
cx_out ck_new_trellis(int n, int k, int bits, int block, int state, int axis);
int ck_set_trellis(void *w, int row, int count, const uint8_t *words, const uint8_t *scales);
int ck_free(void *w);

cx_out ck_linear(void *x, void *const *weights, int count, int gate, void *norm, float eps, void *residual, void *stream);
// count is at most CK_MAX_WEIGHTS, changes at most CK_MAX_UPDATES.
typedef struct {
	void *a, *b;
	int part, first, rows;
	float scale;
} ck_update;
bool ck_updates(void);
cx_out ck_linear_updates(void *x, void *const *weights, int count, int gate, void *norm, float eps, void *residual,
                         const ck_update *updates, int changes, void *stream);
cx_out ck_experts(void *x, void *logits, void *gate, void *up, void *down, int experts, int top_k, bool normalize, void *residual,
                  void *stream);
bool ck_mixes(void);
cx_out ck_mixture(void *h, void *norm, float eps, void *router, void *gate, void *up, void *down, int experts, int top_k, bool normalize,
                  void *stream);
cx_out ck_embed(void *ids, void *w, int dtype, void *stream);
ck_three ck_attend(void *qkv, void *keys, void *values, void *inv_freq, void *q_norm, void *k_norm, ck_attention a, void *stream);

// count is at most CK_MAX_SEQUENCES; caches and new_caches have 2 * count.
bool ck_attends_rows(void);
int ck_attend_rows(void **out, void **new_caches, void *qkv, void *const *caches, int count, const int *offsets, const int *rows,
                   void *inv_freq, void *q_norm, void *k_norm, ck_attention a, void *stream);

typedef struct {
	int code, bits, group;
} ck_row_code;

typedef struct {
	int offset, rows;
	ck_row_code keys, values;
	int pairs, written;
	int table, tiles;
} ck_sequence;

// Attention over rows that are keys and values at once: both of a pair are one array. And heads through matrices of their own.
bool ck_attends_latent(void);
int ck_attend_latent(void **out, void **new_caches, void *qkv, void *const *caches, int count, const ck_sequence *sequences,
                     const int *tables, void *inv_freq, ck_attention a, void *stream);
cx_out ck_head_linear(void *x, void *w, int from, void *stream);

// caches and new_caches are handles, as many as the sequences' pairs have.
bool ck_attends_caches(void);
int ck_attend_caches(void **out, void **new_caches, void *qkv, void *const *caches, int count, const ck_sequence *sequences,
                     const int *tables, int keep, void *inv_freq, void *q_norm, void *k_norm, ck_attention a, void *stream);
// ck_attend_caches with bent scores; a softcap of 0 is ck_attend_caches.
bool ck_attends_softcap(void);
int ck_attend_softcap(void **out, void **new_caches, void *qkv, void *const *caches, int count, const ck_sequence *sequences,
                      const int *tables, int keep, void *inv_freq, void *q_norm, void *k_norm, ck_attention a, float softcap, void *stream);

// clade_decoder and clade_decoder_layer by layout: weights and arrays are one pointer each.
typedef struct {
	void *ctx;
} ck_decoder;
typedef struct {
	void *q, *k, *v, *o, *gate, *up, *down, *router;
	int experts, top_k;
	bool normalize;
	void *attention_norm, *mlp_norm, *q_norm, *k_norm;
} ck_decoder_layer;
bool ck_decodes(void);
cx_out ck_decoder_new(const ck_decoder_layer *layers, int count, int gate, float eps);
int ck_decoder_free(void *d);
// caches and new_caches are handles, as many as the sequences' pairs of all layers have.
int ck_decode(void **out, void **new_caches, void *d, void *x, void *const *caches, int count, const ck_sequence *sequences, const int *tables,
              int keep, void *inv_freq, ck_attention a, void *stream);
cx_out ck_cache_pack(void *x, ck_row_code code, void *stream);

typedef struct {
	int key_heads, value_heads, key_dim, value_dim, taps;
	float norm_eps, length_eps;
} ck_delta;

typedef struct {
	int rows;
	bool in_place;
	int kept, count;
} ck_recurrent;

// states and new_states are handles: a pair for each sequence, and one for each of kept and each sequence.
bool ck_recurs(void);
int ck_gated_delta(void **out, void **new_states, void *x, void *const *states, int count, const ck_recurrent *sequences, const int *kept,
                   void *conv, void *a_log, void *dt_bias, void *norm, ck_delta d, void *stream);

typedef struct {
	int first, count;
} ck_span;

// clade_sampling by layout.
typedef struct {
	ck_span bias;
	int bias_value;
	ck_span history;
	float repetition, presence, frequency;
	int repetition_window, presence_window, frequency_window;
	int logprobs;
	ck_span banned;
	int allowed;
	double top_p;
	float least;
	double typical_p;
	float xtc;
	ck_span spared;
	int top_k;
	float temperature;
	uint64_t seed;
	uint32_t choice, position;
} ck_sampling;

// told and logprobs stay NULL where no row asks for log probabilities.
typedef struct {
	void *tokens, *told, *logprobs;
	int rc;
} ck_sampled;

bool ck_samples(void);
ck_sampled ck_sample(void *logits, const ck_sampling *rows, int count, const int32_t *ids, int id_count, const float *values, int value_count,
                     const uint32_t *words, int word_count, void *stream);

#endif
