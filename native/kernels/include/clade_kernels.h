/* libcladekernels: the CPU back end that MLX lacks on x86, as MLX primitives behind a C interface.
 *
 * Every function returns 0, or 1 with the text in clade_kernels_error() of the calling thread. Arrays are those of
 * mlx-c; the library is built against the same MLX and lies beside it. Weights are kernel-owned, 64-byte aligned and immutable after
 * their last clade_weight_set; an op keeps the weights it reads alive until it has run.
 *
 * Results are row by row: a row's bits do not depend on the other rows, on the number of threads, or on the dispatch level.
 */
#ifndef CLADE_KERNELS_H
#define CLADE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#pragma GCC visibility push(default)
#endif

#define CLADE_KERNELS_ABI 1

/* mlx-c's mlx_array and mlx_stream by layout: an mlx::core::array* and an mlx::core::Stream*. */
typedef struct clade_array_ {
  void* ctx;
} clade_array;
typedef struct clade_stream_ {
  void* ctx;
} clade_stream;

typedef struct clade_weight_ {
  void* ctx;
} clade_weight;

/* Element formats of a weight as it is given: float rows, or affine codes (bits 2, 3, 4, 5, 6, 8 packed as MLX does). */
enum { CLADE_F32 = 0, CLADE_BF16 = 1, CLADE_F16 = 2 };

/* Raised with every change after which a kernel may give other bits: what was kept of the old ones is not used with the new. */
#define CLADE_KERNELS_REVISION 1

uint32_t clade_kernels_abi(void);
int clade_kernels_revision(void);
const char* clade_kernels_list(void);  /* names, one a line */
const char* clade_kernels_error(void); /* of the calling thread */
const char* clade_kernels_level(void); /* dispatch level in use */
int clade_kernels_set_level(const char* name); /* force down; "" is the best of this machine */
const char* clade_kernels_levels(void);        /* levels this machine can run, best first, one a line */
int clade_kernels_threads(void);
int clade_kernels_set_threads(int threads);
/* The evaluating thread stays on cpus[0] from its next kernel on, worker i on cpus[i + 1]; n = 0 lifts it. */
int clade_kernels_pin(const int* cpus, int n);
/* Where weights made from now on lie: on a memory node, spread over all of them (CLADE_INTERLEAVE), or where they are written
 * first (CLADE_ANYWHERE, as at the start). */
enum { CLADE_ANYWHERE = -1, CLADE_INTERLEAVE = -2 };
int clade_kernels_place(int node);
size_t clade_kernels_weight_bytes(void);       /* held by all live weights */

/* A dense weight [n, k] of dtype, or a quantized one (bits, group) whose scales and biases have dtype `scale`. */
int clade_weight_new_dense(clade_weight* res, int n, int k, int dtype);
int clade_weight_new_affine(clade_weight* res, int n, int k, int bits, int group, int scale);
/* Bytes that such a weight takes; 0 when the shape is refused. Needs no weight: for plans. */
size_t clade_weight_size_dense(int n, int k, int dtype);
size_t clade_weight_size_affine(int n, int k, int bits, int group, int scale);
/* Fills rows [row, row + count) from row-major memory: w in the weight's dtype; or codes as packed words with
 * scales and biases [count, k/group] in the scale dtype. */
int clade_weight_set_dense(clade_weight w, int row, int count, const void* rows);
int clade_weight_set_affine(
    clade_weight w, int row, int count, const uint32_t* codes, const void* scales, const void* biases);
/* bias [n] float, added to every product; NULL removes it. */
int clade_weight_set_bias(clade_weight w, const float* bias);
/* Whether products with a quantized weight round x to 8 bits, a scale for 32 columns at most: |y - exact| is at most the sum over
 * the columns of |w| times 1/254 of the largest |x| that shares the scale, and float32's own error. Off when it is made. Beside
 * "linear-int8" in the list. */
int clade_weight_set_int8(clade_weight w, bool on);
int clade_weight_free(clade_weight w);

/* A trellis-coded weight [n, k] (QTIP, 1MAD): blocks of `block` elements along axis 1 (a row's) or 0 (a column's), each a ring of
 * block * bits bits as little-endian words and a scale. The state of element t is `state` bits of the ring from bit
 * (block - 1 - t) * bits on; its value is (the sum of the bytes of 34038481 state + 76625530) - 510, over 147.800537109375. Beside
 * "trellis" in the list. */
int clade_weight_new_trellis(clade_weight* res, int n, int k, int bits, int block, int state, int axis);
size_t clade_weight_size_trellis(int n, int k, int bits, int block, int state, int axis);
/* Fills rows [row, row + count), of axis 0 whole blocks of them: rings [count, k / block], of axis 0 [count / block, k], and a scale each
 * in the same order. */
int clade_weight_set_trellis(clade_weight w, int row, int count, const uint32_t* words, const float* scales);

enum { CLADE_GATE_NONE = 0, CLADE_GATE_SILU = 1, CLADE_GATE_GELU_TANH = 2 };

/* y = concat_i(norm(x) W_i^T + b_i) [..., sum n_i], or gate(norm(x) W_0^T) * (norm(x) W_1^T); then + residual.
 * norm_weight: [k] array, or an empty one for none. residual: an array of the result's shape, or empty. */
int clade_linear(
    clade_array* res,
    clade_array x,
    const clade_weight* weights,
    int count,
    int gate,
    clade_array norm_weight,
    float norm_eps,
    clade_array residual,
    clade_stream s);

/* A low-rank change of the products with weight `part` in the rows [first, first + rows) of x: + scale * b (a x), with dense weights
 * a [r, k] and b [n, r]; before gate and residual, in float32. */
typedef struct clade_update_ {
  clade_weight a, b;
  int part, first, rows;
  float scale;
} clade_update;

/* clade_linear with `changes` updates, added in their order; ranges may overlap. A row that none touches has the bits that it has
 * without any. Beside "linear-updates" in the list. */
int clade_linear_updates(
    clade_array* res,
    clade_array x,
    const clade_weight* weights,
    int count,
    int gate,
    clade_array norm_weight,
    float norm_eps,
    clade_array residual,
    const clade_update* updates,
    int changes,
    clade_stream s);

/* A mixture of experts: softmax of logits [..., experts] in float32, the top_k likeliest of each row (of equals those with the higher
 * number, as MLX's argpartition has it), their probabilities made to sum to 1 where normalize says so, and of each
 * down_e(silu(gate_e x) * up_e x) times its probability; then + residual. gate, up [experts * width, k] and down [experts * k, width]
 * hold every expert's rows one after another; k and width are multiples of 16. Weights that round x do not here. Beside "experts" in
 * the list. */
int clade_experts(
    clade_array* res,
    clade_array x,
    clade_array logits,
    clade_weight gate,
    clade_weight up,
    clade_weight down,
    int experts,
    int top_k,
    bool normalize,
    clade_array residual,
    clade_stream s);

/* h and clade_experts of x = norm(h), whose logits are x through the router [experts, k]: one operation with the bits of a norm as
 * clade_linear has it, clade_linear and clade_experts. Beside "mixture" in the list. */
int clade_mixture(
    clade_array* res,
    clade_array h,
    clade_array norm,
    float norm_eps,
    clade_weight router,
    clade_weight gate,
    clade_weight up,
    clade_weight down,
    int experts,
    int top_k,
    bool normalize,
    clade_stream s);

/* Rows of a weight as [..., k] of dtype, by int32/uint32 ids. */
int clade_embed(clade_array* res, clade_array ids, clade_weight w, int dtype, clade_stream s);

typedef struct clade_attention_ {
  int heads, kv_heads, head_dim;
  int rope_dims;         /* 0: no rotary embedding */
  bool rope_traditional; /* pairs (2i, 2i+1), else (i, i + dims/2) */
  float rope_scale;      /* of positions */
  float rope_mscale;     /* of the rotating channels, before they rotate */
  float scale;           /* of q.k */
  int offset;            /* absolute position of the first row */
  int window;            /* keys seen by a query, itself included; 0: all */
  float norm_eps;        /* of the per-head norms, when their weights are given */
} clade_attention;

/* One step of attention over a plain cache.
 * qkv [1, L, (heads + 2 kv_heads) * head_dim]; keys, values [1, kv_heads, capacity, head_dim] with capacity >= offset + L;
 * inv_freq [rope_dims/2] float32; q_norm, k_norm [head_dim] or empty.
 * out [1, L, heads * head_dim]; new_keys, new_values: the caches with positions offset .. offset + L - 1 written in place:
 * they share the memory of keys and values, which the caller owns alone and does not use again. */
int clade_attend(
    clade_array* out,
    clade_array* new_keys,
    clade_array* new_values,
    clade_array qkv,
    clade_array keys,
    clade_array values,
    clade_array inv_freq,
    clade_array q_norm,
    clade_array k_norm,
    const clade_attention* a,
    clade_stream s);

/* The same for several sequences whose rows lie one after another along L, each with a cache of its own: caches and new_caches
 * [2 count] are keys and values in turn, offsets and rows [count]; a->offset is not read. No two share a cache. Beside
 * "attend-rows" in the list. */
int clade_attend_rows(
    clade_array* out,
    clade_array* new_caches,
    clade_array qkv,
    const clade_array* caches,
    int count,
    const int* offsets,
    const int* rows,
    clade_array inv_freq,
    clade_array q_norm,
    clade_array k_norm,
    const clade_attention* a,
    clade_stream s);

/* How a row of a cache lies in memory: floats of the array's dtype, or 32-bit words as docs/kv.md has them (arrays of uint32). */
enum { CLADE_ROW_DENSE = 0, CLADE_ROW_AFFINE = 1, CLADE_ROW_TURBO = 2 };
typedef struct clade_row_code_ {
  int code;  /* one of the above */
  int bits;  /* affine: 2, 3, 4, 5, 6 or 8; turbo: 2, 3, 4, 5 or 8 */
  int group; /* affine: columns that share scale and bias, a multiple of 32 that divides head_dim */
} clade_row_code;

/* One sequence among those of clade_attend_caches. Its cache is `pairs` arrays of keys and of values, [1, kv_heads, n, words] with
 * any n; tiles of 256 positions lie in them one whole tile after another, where the table says: for tile i the pair and the first
 * row, at table[2 i] and table[2 i + 1], -1 for a tile that nobody sees. */
typedef struct clade_sequence_ {
  int offset, rows; /* absolute position of the first row */
  clade_row_code keys, values;
  int pairs;
  int written;      /* pairs from here on are written: they come back in new_caches, the others are not given back */
  int table, tiles; /* where its table begins in `tables`, and its tiles: up to the last row's */
} clade_sequence;

/* clade_attend_rows over caches that are coded or not in one piece; keep is how many first positions every query sees beside its
 * window. caches: keys and values in turn, of all sequences one after another; new_caches: of those written. Beside
 * "attend-caches" in the list. */
int clade_attend_caches(
    clade_array* out,
    clade_array* new_caches,
    clade_array qkv,
    const clade_array* caches,
    int count,
    const clade_sequence* sequences,
    const int* tables,
    int keep,
    clade_array inv_freq,
    clade_array q_norm,
    clade_array k_norm,
    const clade_attention* a,
    clade_stream s);

/* clade_attend_caches whose scores become softcap * tanh(score / softcap) before they are masked; 0 leaves them. Beside
 * "attend-softcap" in the list. */
int clade_attend_softcap(
    clade_array* out,
    clade_array* new_caches,
    clade_array qkv,
    const clade_array* caches,
    int count,
    const clade_sequence* sequences,
    const int* tables,
    int keep,
    clade_array inv_freq,
    clade_array q_norm,
    clade_array k_norm,
    const clade_attention* a,
    float softcap,
    clade_stream s);

/* clade_attend_caches over rows that are keys and values at once, without norms of heads: qkv [1, L, (heads + kv_heads) * head_dim] has
 * no values; of each pair of caches and new_caches both are one array, which is written once. Beside "attend-latent" in the list. */
int clade_attend_latent(
    clade_array* out,
    clade_array* new_caches,
    clade_array qkv,
    const clade_array* caches,
    int count,
    const clade_sequence* sequences,
    const int* tables,
    clade_array inv_freq,
    const clade_attention* a,
    clade_stream s);

/* Each head of x [1, L, heads * width] through a matrix of its own: columns [from, from + in) of the head times w [heads, in, out], of
 * a float dtype, as [1, L, heads * out] of x's dtype; out is a multiple of 16. Sums are float32, over columns in order. Beside
 * "head-linear" in the list. */
int clade_head_linear(clade_array* res, clade_array x, clade_array w, int from, clade_stream s);

/* The layers of a decoder, for steps of a few rows: of each
 *   h = h + W_o attention(norm(h) through W_q, W_k and W_v), then h = h + W_down (gate(norm(h) W_gate) * norm(h) W_up)
 * or a mixture in place of the latter. q_norm and k_norm [head_dim] or empty; all norms have the dtype of h. Weights are kept, norms copied. Beside "decoder" in the list. */
typedef struct clade_decoder_ {
  void* ctx;
} clade_decoder;
typedef struct clade_decoder_layer_ {
  clade_weight q, k, v, o, gate, up, down;
  clade_weight router; /* of a mixture, whose experts gate, up and down then are as in clade_mixture; or empty */
  int experts, top_k;
  bool normalize;
  clade_array attention_norm, mlp_norm, q_norm, k_norm;
} clade_decoder_layer;
int clade_decoder_new(clade_decoder* res, const clade_decoder_layer* layers, int count, int gate, float norm_eps);
int clade_decoder_free(clade_decoder d); /* a step that has been built keeps what it reads */

/* One step: x [1, L, hidden], at most 8 rows, through all layers as one operation with the bits of clade_linear,
 * clade_attend_caches and clade_mixture. `count` sequences, described for each layer in turn, as their caches and tables are; new_caches: of those
 * written, in the same order. Every layer attends as a says. */
int clade_decode(
    clade_array* out,
    clade_array* new_caches,
    clade_decoder d,
    clade_array x,
    const clade_array* caches,
    int count,
    const clade_sequence* sequences,
    const int* tables,
    int keep,
    clade_array inv_freq,
    const clade_attention* a,
    clade_stream s);

/* Rows x [1, heads, n, head_dim], of a float dtype, as coded rows [1, heads, n, words]: what clade_attend_caches writes of them. */
int clade_cache_pack(clade_array* res, clade_array x, clade_row_code code, clade_stream s);

/* A gated delta network behind its projections, with its state; the last members are epsilons of the norm of the result and beside the
 * squared length of a query or key. */
typedef struct clade_delta_ {
  int key_heads, value_heads; /* value head h has the queries and keys of key head h / (value_heads / key_heads) */
  int key_dim, value_dim;
  int taps;                   /* of the convolution, the row's own included */
  float norm_eps, length_eps;
} clade_delta;

/* One sequence among those of clade_gated_delta. */
typedef struct clade_recurrent_ {
  int rows;
  bool in_place;   /* the state's memory is written: the caller owns it alone and does not use it again */
  int kept, count; /* where the rows behind which its states are given back too begin in `kept`; ascending, within the sequence */
} clade_recurrent;

/* Of rows x [1, L, width], those of all sequences one after another: queries, keys and values, 2 key_heads * key_dim + value_heads *
 * value_dim = channels of them; z, value_heads * value_dim; b and a, value_heads each: head by head
 *   q, k, v = silu(convolution with conv [taps, channels]), q and k divided by their length, q by sqrt(key_dim) too
 *   S = S exp(-exp(a_log) softplus(a + dt_bias)), then S + k (sigmoid(b) (v - k S)), S [key_dim, value_dim]
 *   out = norm(q S) silu(z) [1, L, value_heads * value_dim]
 * in float32, rounded to x's dtype at the end. states [2 count]: of each sequence the last taps - 1 inputs of the convolution
 * [1, taps - 1, channels] of x's dtype and S [1, value_heads, key_dim, value_dim] float32; new_states: such pairs behind each row of
 * `kept` and behind the last, sequence by sequence. a_log and dt_bias [value_heads] have any float dtype, conv and norm [value_dim] x's.
 * A row's bits depend on the rows of its sequence before it, not on how they were cut. Beside "gated-delta" in the list. */
int clade_gated_delta(
    clade_array* out,
    clade_array* new_states,
    clade_array x,
    const clade_array* states,
    int count,
    const clade_recurrent* sequences,
    const int* kept,
    clade_array conv,
    clade_array a_log,
    clade_array dt_bias,
    clade_array norm,
    const clade_delta* d,
    clade_stream s);

/* A part of the ids given to clade_sample. */
typedef struct clade_span_ {
  int first, count;
} clade_span;

/* How a row's token is picked; the members are in the order in which they are applied. */
typedef struct clade_sampling_ {
  clade_span bias;                        /* ids, to whose scores values[bias_value ..] are added */
  int bias_value;
  clade_span history;                     /* ids, oldest first */
  float repetition, presence, frequency;  /* 1, 0, 0: none. The first divides positive scores of seen ids and multiplies others */
  int repetition_window, presence_window, frequency_window; /* last ids of the history; 0: all */
  int logprobs;                           /* alternatives told, of the scores as they are here; -1: no log probability at all */
  clade_span banned;                      /* ids that may not come */
  int allowed;                            /* where in words the bits of ids that may come begin, (vocab + 31) / 32 of them; -1: all */
  double top_p;                           /* outside (0, 1): none */
  float least;                            /* log of min_p, -infinity: none */
  double typical_p;                       /* outside (0, 1): none */
  float xtc;                              /* threshold where XTC strikes, else negative */
  clade_span spared;                      /* ids that XTC leaves */
  int top_k;                              /* 0: none */
  float temperature;                      /* 0: the likeliest, of equal ones the lowest id */
  uint64_t seed;                          /* of the noise: argmax(scores / temperature - log(-log(u))), u a function of seed, */
  uint32_t choice, position;              /* choice, position and id */
} clade_sampling;

/* A token for each row of logits [count, vocab] float32: tokens int32 [count]. Where rows ask for log probabilities, told int32 and
 * logprobs float32 [count, 1 + the most alternatives]: the token's and then the alternatives', likeliest first, ids -1 where there are
 * no more. ids, values and words are what the rows' parts lie in. "sample" in the list. */
int clade_sample(
    clade_array* tokens,
    clade_array* told,
    clade_array* logprobs,
    clade_array logits,
    const clade_sampling* rows,
    int count,
    const int32_t* ids,
    int id_count,
    const float* values,
    int value_count,
    const uint32_t* words,
    int word_count,
    clade_stream s);

#ifdef __cplusplus
#pragma GCC visibility pop
}
#endif
#endif
