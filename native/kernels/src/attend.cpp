// The MLX primitives of attention over caches; every argument is checked before one is built.
#include "attend.h"

#include <algorithm>

#include "cache.h"
#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "pool.h"
#include "primitive.h"

namespace clade {
namespace {

class Attend : public Primitive {
 public:
  Attend(mx::Stream s, AttentionCall call, std::vector<Sequence> sequences, bool q_norm, bool k_norm)
      : Primitive(s), call_(call), sequences_(std::move(sequences)), q_norm_(q_norm), k_norm_(k_norm) {}
  const char* name() const override { return "clade_attend"; }
  // in: qkv, [keys, values] of each pair of each sequence, inv_freq, [q_norm], [k_norm]; out: result, [keys, values] of those that
  // are written.
  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outs) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    outs[0].set_data(mx::allocator::malloc(outs[0].nbytes()));
    std::vector<AttentionSegment> segments;
    size_t next = 1, made = 1;
    for (const Sequence& q : sequences_) segments.push_back(segment_of(q, call_.head_dim, in, next, outs, made));
    Contiguous qkv(in[0]);
    std::vector<Contiguous> more;
    for (size_t i = next; i < in.size(); i++) more.emplace_back(in[i]);
    encoder.dispatch([call = call_, dtype = dtype_of(outs[0].dtype()), qkv, more, segments = std::move(segments), qn = q_norm_,
                      kn = k_norm_, y = outs[0].data<uint8_t>()] {
      Pool::get().evaluating();
      call.run(dtype, qkv.read(), segments, reinterpret_cast<const float*>(more[0].read()), qn ? more[1].read() : nullptr,
               kn ? more[qn ? 2 : 1].read() : nullptr, y);
    });
  }

 private:
  AttentionCall call_;
  std::vector<Sequence> sequences_;
  bool q_norm_, k_norm_;
};

class Pack : public Primitive {
 public:
  Pack(mx::Stream s, RowCode code) : Primitive(s), code_(code) {}
  const char* name() const override { return "clade_cache_pack"; }
  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outs) override {
    mx::array& out = outs[0];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    Contiguous x(in[0]);
    mx::cpu::get_command_encoder(stream()).dispatch([code = code_, x, dtype = dtype_of(in[0].dtype()), d = in[0].shape(-1),
                                                     rows = in[0].size() / size_t(in[0].shape(-1)), size = in[0].itemsize(),
                                                     y = out.data<uint8_t>()] {
      const uint8_t* from = x.read();
      const int piece = 64;
      Pool::get().run(int((rows + piece - 1) / piece), [&](int i) {
        std::vector<float> v(static_cast<size_t>(d));
        for (size_t r = size_t(i) * piece; r < std::min(rows, size_t(i + 1) * piece); r++) {
          level().widen(dtype, from + r * size_t(d) * size, size_t(d), v.data());
          pack_row(code, v.data(), d, y + r * code.bytes(d));
        }
      });
    });
  }

 private:
  RowCode code_;
};

// The code of rows in an array, which must have its shape.
RowCode row_code(const clade_row_code& c, const mx::array& a, int head_dim) {
  RowCode code{Code(c.code), DType::f32, c.bits, c.group};
  check_code(code, head_dim);
  if (code.code == Code::dense) code.dtype = dtype_of(a.dtype());
  if (code.code != Code::dense && a.dtype() != mx::uint32) refuse("coded caches must be uint32");
  if (size_t(a.shape(3)) * a.itemsize() != code.bytes(head_dim))
    refuse("rows of " + std::to_string(a.shape(3)) + " elements are not what the code takes");
  return code;
}

}  // namespace

void check_heads(const clade_attention& a) {
  if (a.kv_heads < 1 || a.heads < 1 || a.heads % a.kv_heads) refuse("heads must be a multiple of kv_heads");
  if (a.head_dim < 16 || a.head_dim % 16) refuse("head_dim must be a multiple of 16");
  if (a.rope_dims < 0 || a.rope_dims % 2 || a.rope_dims > a.head_dim) refuse("rope_dims must be even and at most head_dim");
  if (a.window < 0) refuse("offset and window must not be negative");
}

mx::array checked_frequencies(clade_array inv_freq, const clade_attention& a) {
  if (!a.rope_dims) return mx::array(0.0f);
  const mx::array& f = array_of(inv_freq);
  if (f.ndim() != 1 || f.shape(0) != a.rope_dims / 2 || f.dtype() != mx::float32) refuse("inv_freq must be float32 [rope_dims/2]");
  return f;
}

AttentionCall attention_call(const clade_attention& a, int keep, float softcap) {
  return {a.heads,      a.kv_heads,    a.head_dim, a.rope_dims, a.rope_traditional,
          a.rope_scale, a.rope_mscale, a.scale,    a.window,    keep, a.norm_eps, softcap};
}

Sequence read_sequence(const clade_sequence& q, const clade_array* caches, const int* table, const clade_attention& a, int keep) {
  if (q.offset < 0 || q.rows < 0) refuse("offset and window must not be negative");
  if (q.pairs < 1 || q.written < 0 || q.written > q.pairs) refuse(std::to_string(q.pairs) + " pairs of caches");
  Sequence out{q.offset, q.rows, {}, {}, q.pairs, q.written, {}};
  for (int p = 0; p < q.pairs; p++) {
    const mx::array &k = array_of(caches[2 * p]), &v = array_of(caches[2 * p + 1]);
    for (const mx::array* c : {&k, &v})
      if (c->ndim() != 4 || c->shape(0) != 1 || c->shape(1) != a.kv_heads || c->shape(2) != k.shape(2))
        refuse("the caches must be [1, kv_heads, capacity, ..]");
    const RowCode kc = row_code(q.keys, k, a.head_dim), vc = row_code(q.values, v, a.head_dim);
    if (p && (kc.dtype != out.keys.dtype || vc.dtype != out.values.dtype)) refuse("the caches of a sequence must have one dtype");
    out.keys = kc;
    out.values = vc;
  }
  const int64_t end = int64_t(q.offset) + q.rows;
  if (q.tiles < (end + kAttentionTile - 1) / kAttentionTile) refuse("the table has " + std::to_string(q.tiles) + " tiles for " + std::to_string(end) + " positions");
  const int64_t seen = a.window > 0 ? std::max<int64_t>(0, int64_t(q.offset) - a.window + 1) / kAttentionTile : 0;
  for (int64_t i = 0; i < q.tiles; i++) {
    const int pair = table[2 * i], row = table[2 * i + 1];
    const bool needed = i * kAttentionTile < end && (i >= seen || (i == 0 && keep > 0));
    if (pair < 0 && !needed) {
      out.tiles.emplace_back(-1, 0);
      continue;
    }
    const int64_t rows = std::min<int64_t>(kAttentionTile, end - i * kAttentionTile);
    if (pair < 0 || pair >= q.pairs || row < 0 || row + std::max<int64_t>(rows, 0) > array_of(caches[2 * pair]).shape(2))
      refuse("the cache holds too few positions: tile " + std::to_string(i) + " would end behind it");
    if (i * kAttentionTile + kAttentionTile > q.offset && rows > 0 && q.rows > 0 && pair < q.written) refuse("a tile that is written is not given back");
    out.tiles.emplace_back(pair, row);
  }
  return out;
}

AttentionSegment segment_of(const Sequence& q, int head_dim, const std::vector<mx::array>& in, size_t& next, std::vector<mx::array>& outs,
                            size_t& made) {
  for (size_t i = next; i < next + 2 * size_t(q.pairs); i++) {
    if (!in[i].flags().row_contiguous) throw std::runtime_error("clade_attend: the caches must be contiguous");
    // In place, whoever else holds the buffer: tasks of a stream run in order, and the caller owns its caches alone. MLX's
    // own donation test would copy the cache on every step that is issued before the last one has finished.
    if (i >= next + 2 * size_t(q.written)) outs[made++].copy_shared_buffer(in[i]);
  }
  AttentionSegment segment{q.offset, q.rows, q.keys, q.values, {}};
  for (auto [pair, row] : q.tiles) {
    if (pair < 0) {
      segment.tiles.push_back({nullptr, nullptr, 0});
      continue;
    }
    const mx::array &k = in[next + 2 * size_t(pair)], &v = in[next + 2 * size_t(pair) + 1];
    auto at = [&](const mx::array& a, const RowCode& code) {
      return const_cast<uint8_t*>(a.data<uint8_t>()) + size_t(row) * code.bytes(head_dim);
    };
    segment.tiles.push_back({at(k, q.keys), at(v, q.values), k.shape(2)});
  }
  next += 2 * size_t(q.pairs);
  return segment;
}

namespace {

bool same(const clade_row_code& a, const clade_row_code& b) { return a.code == b.code && a.bits == b.bits && a.group == b.group; }

// Attention over caches, of any kind.
int attend(clade_array* out, clade_array* new_caches, clade_array qkv, const clade_array* caches, int count,
           const clade_sequence* sequences, const int* tables, int keep, clade_array inv_freq, clade_array q_norm,
           clade_array k_norm, const clade_attention* a, float softcap, bool latent, clade_stream s) {
  return guard("clade_attend", [&] {
    if (!(softcap >= 0) || softcap > 1e30f) refuse("a softcap must be positive, or 0 for none");
    const mx::array& x = array_of(qkv);
    dtype_of(x.dtype());
    check_heads(*a);
    if (x.ndim() != 3 || x.shape(0) != 1 || x.shape(2) != (a->heads + (latent ? 1 : 2) * a->kv_heads) * a->head_dim)
      refuse(latent ? "qkv must be [1, L, (heads + kv_heads) * head_dim]" : "qkv must be [1, L, (heads + 2 kv_heads) * head_dim]");
    if (count < 1) refuse("no sequence");
    if (keep < 0 || keep > kAttentionTile) refuse("the first " + std::to_string(keep) + " positions cannot be kept");
    std::vector<mx::array> inputs{x};
    std::vector<mx::Shape> shapes{{1, x.shape(1), a->heads * a->head_dim}};
    std::vector<mx::Dtype> dtypes{x.dtype()};
    std::vector<Sequence> read_in;
    int64_t total = 0;
    for (int i = 0; i < count; i++) {
      const clade_sequence& q = sequences[i];
      read_in.push_back(read_sequence(q, caches, tables + q.table, *a, keep));
      for (int p = 0; latent && p < q.pairs; p++)
        if (array_of(caches[2 * p]).id() != array_of(caches[2 * p + 1]).id()) refuse("a latent's keys and values must be one array");
      if (latent && !same(q.keys, q.values)) refuse("a latent's keys and values must have one code");
      for (int p = 0; p < 2 * q.pairs; p++) {
        inputs.push_back(array_of(caches[p]));
        if (p < 2 * q.written) continue;
        shapes.push_back(inputs.back().shape());
        dtypes.push_back(inputs.back().dtype());
      }
      caches += 2 * q.pairs;
      total += q.rows;
    }
    if (total != x.shape(1)) refuse("qkv has " + std::to_string(x.shape(1)) + " rows, the sequences " + std::to_string(total));
    inputs.push_back(checked_frequencies(inv_freq, *a));
    for (clade_array n : {q_norm, k_norm}) {
      if (!n.ctx) continue;
      const mx::array& w = array_of(n);
      if (w.ndim() != 1 || w.shape(0) != a->head_dim || w.dtype() != x.dtype()) refuse("a head norm does not fit");
      inputs.push_back(w);
    }
    AttentionCall call = attention_call(*a, keep, softcap);
    call.latent = latent;
    auto outs = mx::array::make_arrays(shapes, dtypes, std::make_shared<Attend>(stream_of(s), call, std::move(read_in), q_norm.ctx, k_norm.ctx), inputs);
    give(out, outs[0]);
    for (size_t i = 1; i < outs.size(); i++) give(&new_caches[i - 1], outs[i]);
  });
}

}  // namespace
}  // namespace clade

using namespace clade;

extern "C" {

int clade_attend(clade_array* out, clade_array* new_keys, clade_array* new_values, clade_array qkv, clade_array keys,
                 clade_array values, clade_array inv_freq, clade_array q_norm, clade_array k_norm, const clade_attention* a,
                 clade_stream s) {
  const clade_array in[] = {keys, values};
  clade_array caches[2] = {*new_keys, *new_values};
  const int rows = qkv.ctx && static_cast<mx::array*>(qkv.ctx)->ndim() == 3 ? static_cast<mx::array*>(qkv.ctx)->shape(1) : 0;
  const int rc = clade_attend_rows(out, caches, qkv, in, 1, &a->offset, &rows, inv_freq, q_norm, k_norm, a, s);
  *new_keys = caches[0];
  *new_values = caches[1];
  return rc;
}

int clade_attend_rows(clade_array* out, clade_array* new_caches, clade_array qkv, const clade_array* caches, int count,
                      const int* offsets, const int* rows, clade_array inv_freq, clade_array q_norm, clade_array k_norm,
                      const clade_attention* a, clade_stream s) {
  std::vector<clade_sequence> sequences;
  std::vector<int> tables;
  const int rc = guard("clade_attend", [&] {
    const mx::Dtype dtype = array_of(qkv).dtype();
    for (int i = 0; i < count; i++) {
      for (int j : {2 * i, 2 * i + 1})
        if (array_of(caches[j]).dtype() != dtype) refuse("qkv and the caches must have one dtype");
      if (offsets[i] < 0 || rows[i] < 0) refuse("offset and window must not be negative");
      const int tiles = int((int64_t(offsets[i]) + rows[i] + kAttentionTile - 1) / kAttentionTile);
      sequences.push_back({offsets[i], rows[i], {}, {}, 1, 0, int(tables.size()), tiles});
      for (int t = 0; t < tiles; t++) {
        tables.push_back(0);
        tables.push_back(t * kAttentionTile);
      }
    }
  });
  if (rc) return rc;
  return clade_attend_caches(out, new_caches, qkv, caches, count, sequences.data(), tables.data(), 0, inv_freq, q_norm, k_norm, a, s);
}

int clade_attend_caches(clade_array* out, clade_array* new_caches, clade_array qkv, const clade_array* caches, int count,
                        const clade_sequence* sequences, const int* tables, int keep, clade_array inv_freq, clade_array q_norm,
                        clade_array k_norm, const clade_attention* a, clade_stream s) {
  return clade_attend_softcap(out, new_caches, qkv, caches, count, sequences, tables, keep, inv_freq, q_norm, k_norm, a, 0, s);
}

int clade_attend_softcap(clade_array* out, clade_array* new_caches, clade_array qkv, const clade_array* caches, int count,
                         const clade_sequence* sequences, const int* tables, int keep, clade_array inv_freq, clade_array q_norm,
                         clade_array k_norm, const clade_attention* a, float softcap, clade_stream s) {
  return attend(out, new_caches, qkv, caches, count, sequences, tables, keep, inv_freq, q_norm, k_norm, a, softcap, false, s);
}

int clade_attend_latent(clade_array* out, clade_array* new_caches, clade_array qkv, const clade_array* caches, int count,
                        const clade_sequence* sequences, const int* tables, clade_array inv_freq, const clade_attention* a,
                        clade_stream s) {
  return attend(out, new_caches, qkv, caches, count, sequences, tables, 0, inv_freq, {}, {}, a, 0, true, s);
}

int clade_cache_pack(clade_array* res, clade_array x, clade_row_code c, clade_stream s) {
  return guard("clade_cache_pack", [&] {
    const mx::array& in = array_of(x);
    dtype_of(in.dtype());
    if (in.ndim() != 4) refuse("x must be [1, heads, n, head_dim]");
    const RowCode code{Code(c.code), DType::f32, c.bits, c.group};
    if (code.code == Code::dense) refuse("a dense row needs no packing");
    check_code(code, in.shape(3));
    mx::Shape shape = in.shape();
    shape.back() = int(code.bytes(in.shape(3)) / 4);
    give(res, mx::array(std::move(shape), mx::uint32, std::make_shared<Pack>(stream_of(s), code), {in}));
  });
}

}  // extern "C"
