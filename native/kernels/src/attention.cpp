#include "attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "linear.h"
#include "pool.h"

namespace clade {

namespace {

constexpr int kLanes = 16, kTile = kAttentionTile;
// Query rows (positions x heads of a group) that share one decoded key tile.
constexpr int kBlockRows = 48;

enum Slot { kScores = 4, kKeys, kPartial, kQuery, kDecoded = 10 };

// The rotary tables of one call: cos and sin [rows][dims/2]. The layers of a step share them, so the calling thread keeps
// its last ones.
struct Rotary {
  std::vector<float> cos, sin, inv_freq;
  std::vector<int> positions;
  int half = -1;
  float scale = 1;

  static const Rotary& of(const AttentionCall& a, const std::vector<int>& positions, const float* inv_freq) {
    static thread_local Rotary last;
    const int half = a.rope_dims / 2;
    if (last.half == half && last.scale == a.rope_scale && last.positions == positions &&
        std::equal(last.inv_freq.begin(), last.inv_freq.end(), inv_freq))
      return last;
    last.positions = positions;
    last.half = half;
    last.scale = a.rope_scale;
    last.inv_freq.assign(inv_freq, inv_freq + half);
    last.cos.clear();
    last.sin.clear();
    for (int position : positions)
      for (int i = 0; i < half; i++) {
        const float angle = float(position) * a.rope_scale * inv_freq[i];
        last.cos.push_back(std::cos(angle));
        last.sin.push_back(std::sin(angle));
      }
    return last;
  }

  void apply(float* x, int row, bool traditional) const {
    const float* c = cos.data() + size_t(row) * size_t(half);
    const float* s = sin.data() + size_t(row) * size_t(half);
    for (int i = 0; i < half; i++) {
      float* a = traditional ? x + 2 * i : x + i;
      float* b = traditional ? x + 2 * i + 1 : x + i + half;
      const float x1 = *a, x2 = *b;
      *a = x1 * c[i] - x2 * s[i];
      *b = x1 * s[i] + x2 * c[i];
    }
  }
};

// One segment of a call.
struct Run {
  const AttentionCall& a;
  DType dtype;  // of activations
  const AttentionSegment& at;
  int offset, rows;
  float* q;  // [kv_heads][rows][group][head_dim], rotated and scaled
  uint8_t* out;

  int group() const { return a.heads / a.kv_heads; }
  size_t size() const { return dtype == DType::f32 ? 4 : 2; }
  int begin(int pos) const { return a.window > 0 ? std::max(0, pos - a.window + 1) : 0; }
  // Row i of tile t, of keys or of values.
  uint8_t* key(int h, int t, int i) const {
    const AttentionTile& tile = at.tiles[size_t(t)];
    return tile.keys + (size_t(h) * size_t(tile.capacity) + size_t(i)) * at.keys.bytes(a.head_dim);
  }
  uint8_t* value(int h, int t, int i) const {
    const AttentionTile& tile = at.tiles[size_t(t)];
    return tile.values + (size_t(h) * size_t(tile.capacity) + size_t(i)) * at.values.bytes(a.head_dim);
  }
  // The tiles that rows from row0 on, n of them, see: the first one for what is kept, and those from `first` to `last`.
  struct Tiles {
    bool kept;
    int first, last;
    int count() const { return last - first + kept; }
    int at(int i) const { return kept ? (i ? first + i - 1 : 0) : first + i; }
  };
  Tiles tiles(int row0, int n) const {
    const int first = begin(offset + row0) / kTile;
    return {a.keep > 0 && first > 0, first, (offset + row0 + n + kTile - 1) / kTile};
  }
};

// What a step of the graph would leave of n values: rounded to the dtype.
void round_to(DType dtype, float* v, int n) {
  if (dtype == DType::f32) return;
  uint16_t h[256];
  for (int i = 0; i < n; i += 256) {
    const size_t c = size_t(std::min(256, n - i));
    level().narrow(dtype, v + i, c, h);
    level().widen(dtype, h, c, v + i);
  }
}

// Norms, scales and rotates one head vector, rounding where the graph's ops would.
void prepare_head(const Run& r, float* v, const float* norm, const Rotary* rope, int row) {
  const int d = r.a.head_dim;
  if (norm) norm_row(r.dtype, v, norm, r.a.norm_eps, d, v);
  if (!rope) return;
  if (r.a.rope_mscale != 1.0f) {
    level().scale_mul(v, r.a.rope_mscale, nullptr, r.a.rope_dims, v);
    round_to(r.dtype, v, r.a.rope_dims);
  }
  rope->apply(v, row, r.a.rope_traditional);
  round_to(r.dtype, v, r.a.rope_dims);
}

// Panels [from, to) of sixteen keys each of a tile, as floats: k-major in kt.
void load_keys(const Run& r, int h, int t, int from, int to, int count, float* kt) {
  const Level& l = level();
  const int d = r.a.head_dim;
  const RowCode& code = r.at.keys;
  for (int p = from; p < to; p++) {
    const int rows = std::min(kLanes, count - p * kLanes);
    const uint8_t* row = r.key(h, t, p * kLanes);
    float* panel = kt + size_t(p) * kLanes * size_t(d);
    if (code.code == Code::dense) {
      l.transpose(code.dtype, row, size_t(d), rows, d, panel);
      continue;
    }
    float* decoded = scratch(kDecoded, size_t(kLanes) * size_t(d));
    l.unpack(code, row, code.bytes(d), rows, d, decoded);
    l.transpose(DType::f32, decoded, size_t(d), rows, d, panel);
  }
}

// Rows [row0, row0 + n) of kv head h against tile t: writes m, l and the unnormalised sum of each to part.
// part is [n * group][2 + head_dim].
void reduce_tile(const Run& r, int h, int row0, int n, int t, float* partial) {
  const Level& l = level();
  const int d = r.a.head_dim, g = r.group(), lines = n * g;
  const int first = t * kTile, last = std::min(first + kTile, r.offset + row0 + n);
  const int kept = t == 0 ? r.a.keep : 0;
  const int count = last - first, panels = (count + kLanes - 1) / kLanes;
  const int seen = kept ? 0 : std::clamp(r.begin(r.offset + row0) - first, 0, count) / kLanes * kLanes;

  float* kt = scratch(kKeys, size_t(kTile) * size_t(d));
  float* s = scratch(kScores, size_t(lines) * kTile);
  load_keys(r, h, t, seen / kLanes, panels, count, kt);
  const float* q = r.q + (size_t(h) * size_t(r.rows) + size_t(row0)) * size_t(g) * size_t(d);
  const PanelShape ks{Format::f32, Scale::f32, d, 0, 64};
  for (int p = seen / kLanes; p < panels;) {
    const int np = lines <= 2 && panels - p >= 4 ? 4 : panels - p >= 2 ? 2 : 1;
    const uint8_t* at[4];
    for (int i = 0; i < np; i++) at[i] = reinterpret_cast<const uint8_t*>(kt + size_t(p + i) * kLanes * size_t(d));
    l.tile(ks, at, np, q, size_t(d), lines, s + p * kLanes, kTile);
    p += np;
  }

  const size_t ldp = size_t(d) + 2;
  for (int i = 0; i < lines; i++) {
    const int pos = r.offset + row0 + i / g;
    const int b = std::clamp(r.begin(pos) - first, 0, count), e = std::clamp(pos + 1 - first, 0, count);
    float* si = s + size_t(i) * kTile;
    float* out = partial + size_t(i) * ldp;
    if (r.a.softcap > 0) l.bend(si + seen, r.a.softcap, panels * kLanes - seen);
    std::fill(si + std::min(kept, b), si + b, -INFINITY);
    if (b >= e && !std::min(kept, e)) {
      out[0] = -INFINITY;
      out[1] = 0;
      std::fill(si, si + panels * kLanes, 0.0f);
      continue;
    }
    out[0] = l.max_of(si, e);
    out[1] = l.exp_sum(si, out[0], e, si);
    std::fill(si + (e + kLanes - 1) / kLanes * kLanes, si + panels * kLanes, 0.0f);
  }

  const RowCode& code = r.at.values;
  const uint8_t* v = r.value(h, t, seen);
  PanelShape vs{Format::f32, Scale::f32, count - seen, 0, d * 4};
  if (code.code == Code::dense) {
    vs.format = code.dtype == DType::f32 ? Format::f32 : code.dtype == DType::bf16 ? Format::bf16 : Format::f16;
    vs.stride = int(code.bytes(d));
  } else {
    float* decoded = scratch(kDecoded, size_t(kTile) * size_t(d));
    l.unpack(code, v, code.bytes(d), count - seen, d, decoded);
    v = reinterpret_cast<const uint8_t*>(decoded);
  }
  const size_t size = size_t(vs.stride) / size_t(d);
  for (int c = 0; c < d;) {
    const int np = lines <= 2 && d - c >= 64 ? 4 : d - c >= 32 ? 2 : 1;
    const uint8_t* at[4];
    for (int i = 0; i < np; i++) at[i] = v + size_t(c + i * kLanes) * size;
    l.tile(vs, at, np, s + seen, kTile, lines, partial + 2 + c, ldp);
    c += np * kLanes;
  }
}

// acc [lines][2 + d] becomes acc merged with part, the tile that follows it.
void merge(float* acc, const float* partial, int lines, int d) {
  const size_t ld = size_t(d) + 2;
  for (int i = 0; i < lines; i++) {
    float* a = acc + size_t(i) * ld;
    const float* p = partial + size_t(i) * ld;
    if (p[1] == 0) continue;
    if (a[1] == 0) {
      std::memcpy(a, p, ld * 4);
      continue;
    }
    const float m = std::max(a[0], p[0]);
    const float fa = std::exp(a[0] - m), fp = std::exp(p[0] - m);
    a[1] = a[1] * fa + p[1] * fp;
    a[0] = m;
    level().scale_add(a + 2, fa, p + 2, fp, d);
  }
}

void finish(const Run& r, int h, int row0, int n, float* acc) {
  const int d = r.a.head_dim, g = r.group();
  for (int i = 0; i < n * g; i++) {
    float* a = acc + size_t(i) * (size_t(d) + 2);
    level().scale_mul(a + 2, 1.0f / a[1], nullptr, d, a + 2);
    if (r.at.values.rotated()) unrotate(a + 2, d);
    const size_t at = (size_t(row0 + i / g) * size_t(r.a.heads) + size_t(h * g + i % g)) * size_t(d) * r.size();
    level().narrow(r.dtype, a + 2, size_t(d), r.out + at);
  }
}

// Segments of few rows: the tiles of all their heads are divided over the threads, then merged in order.
void attend_by_tiles(const std::vector<const Run*>& runs) {
  struct Unit {
    const Run* run;
    int head;
    Run::Tiles tiles;
    float* partial;  // of its first tile
  };
  std::vector<Unit> units;           // a head of a segment
  std::vector<std::pair<int, int>> pieces;  // unit, tile
  size_t floats = 0;
  auto line = [](const Run& r) { return size_t(r.rows * r.group()) * (size_t(r.a.head_dim) + 2); };
  for (const Run* r : runs) {
    const Run::Tiles tiles = r->tiles(0, r->rows);
    for (int h = 0; h < r->a.kv_heads; h++) {
      for (int t = 0; t < tiles.count(); t++) pieces.emplace_back(int(units.size()), t);
      units.push_back({r, h, tiles, nullptr});
      floats += size_t(tiles.count()) * line(*r);
    }
  }
  float* at = scratch(kPartial, floats);
  for (Unit& u : units) {
    u.partial = at;
    at += size_t(u.tiles.count()) * line(*u.run);
  }
  Pool::get().run(int(pieces.size()), [&](int i) {
    const Unit& u = units[size_t(pieces[size_t(i)].first)];
    const int t = pieces[size_t(i)].second;
    reduce_tile(*u.run, u.head, 0, u.run->rows, u.tiles.at(t), u.partial + size_t(t) * line(*u.run));
  });
  for (const Unit& u : units) {
    const Run& r = *u.run;
    for (int t = 1; t < u.tiles.count(); t++) merge(u.partial, u.partial + size_t(t) * line(r), r.rows * r.group(), r.a.head_dim);
    finish(r, u.head, 0, r.rows, u.partial);
  }
}

// Many rows: blocks of rows are divided over the threads, the longest first.
void attend_by_rows(const Run& r) {
  const int d = r.a.head_dim, g = r.group(), step = std::max(1, kBlockRows / g);
  const int blocks = (r.rows + step - 1) / step;
  const size_t ld = size_t(step) * size_t(g) * (size_t(d) + 2);
  Pool::get().run(r.a.kv_heads * blocks, [&](int u) {
    const int h = u % r.a.kv_heads, row0 = (blocks - 1 - u / r.a.kv_heads) * step, n = std::min(step, r.rows - row0);
    const Run::Tiles tiles = r.tiles(row0, n);
    float* acc = scratch(kPartial, 2 * ld);
    reduce_tile(r, h, row0, n, tiles.at(0), acc);
    for (int t = 1; t < tiles.count(); t++) {
      reduce_tile(r, h, row0, n, tiles.at(t), acc + ld);
      merge(acc, acc + ld, n * g, d);
    }
    finish(r, h, row0, n, acc);
  });
}

}  // namespace

void AttentionCall::run(DType dtype, const void* qkv, const std::vector<AttentionSegment>& segments, const float* inv_freq,
                        const void* q_norm, const void* k_norm, void* out) const {
  const Level& l = level();
  const int d = head_dim, g = heads / kv_heads;
  const size_t size = dtype == DType::f32 ? 4 : 2, line = size_t(heads) * size_t(d);
  std::vector<int> positions;
  std::vector<size_t> of;  // the segment of a row
  for (size_t i = 0; i < segments.size(); i++)
    for (int r = 0; r < segments[i].rows; r++) {
      positions.push_back(segments[i].offset + r);
      of.push_back(i);
    }
  const int rows = int(positions.size());
  if (rows == 0) return;
  float* q = scratch(kQuery, size_t(rows) * line);
  std::vector<Run> runs;
  std::vector<int> firsts;
  int first = 0;
  for (const AttentionSegment& s : segments) {
    runs.push_back({*this, dtype, s, s.offset, s.rows, q + size_t(first) * line,
                    static_cast<uint8_t*>(out) + size_t(first) * line * size});
    firsts.push_back(first);
    first += s.rows;
  }
  const Rotary& rope = Rotary::of(*this, positions, inv_freq);
  std::vector<float> qn, kn;
  if (q_norm) l.widen(dtype, q_norm, size_t(d), (qn.resize(size_t(d)), qn.data()));
  if (k_norm) l.widen(dtype, k_norm, size_t(d), (kn.resize(size_t(d)), kn.data()));

  const int given = heads + (latent ? 1 : 2) * kv_heads;
  const size_t width = size_t(given) * size_t(d);
  auto prepare = [&](int row) {
    const Run& r = runs[of[size_t(row)]];
    const int own = row - firsts[of[size_t(row)]], position = positions[size_t(row)];
    const uint8_t* x = static_cast<const uint8_t*>(qkv) + size_t(row) * width * size;
    const int tile = position / kTile, in_tile = position % kTile;
    std::vector<float> v(static_cast<size_t>(d));
    for (int h = 0; h < given; h++, x += size_t(d) * size) {
      if (h >= heads + kv_heads) {
        uint8_t* row = r.value(h - heads - kv_heads, tile, in_tile);
        if (r.at.values.code == Code::dense && r.at.values.dtype == dtype) {
          std::memcpy(row, x, size_t(d) * size);
          continue;
        }
        l.widen(dtype, x, size_t(d), v.data());
        pack_row(r.at.values, v.data(), d, row);
        continue;
      }
      const bool query = h < heads;
      float* dst = query ? r.q + ((size_t(h / g) * size_t(r.rows) + size_t(own)) * size_t(g) + size_t(h % g)) * size_t(d)
                         : v.data();
      l.widen(dtype, x, size_t(d), dst);
      const auto& norm = query ? qn : kn;
      prepare_head(r, dst, norm.empty() ? nullptr : norm.data(), rope_dims ? &rope : nullptr, row);
      if (!query) {
        pack_row(r.at.keys, dst, d, r.key(h - heads, tile, in_tile));
        continue;
      }
      l.scale_mul(dst, scale, nullptr, d, dst);
      if (r.at.keys.rotated()) rotate(dst, d);
    }
  };
  if (rows < 8) {
    for (int row = 0; row < rows; row++) prepare(row);
  } else {
    const int piece = piece_of(rows, 1);
    Pool::get().run((rows + piece - 1) / piece, [&](int i) {
      for (int row = i * piece; row < std::min(rows, (i + 1) * piece); row++) prepare(row);
    });
  }
  std::vector<const Run*> few;
  for (const Run& r : runs) {
    if (r.rows == 0) continue;
    if (r.rows < 8)
      few.push_back(&r);
    else
      attend_by_rows(r);
  }
  if (!few.empty()) attend_by_tiles(few);
}

}  // namespace clade
