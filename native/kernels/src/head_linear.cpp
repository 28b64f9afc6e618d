// The MLX primitive of heads that each go through a matrix of their own.
#include <algorithm>

#include "linear.h"
#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "panels.h"
#include "pool.h"
#include "primitive.h"

namespace clade {
namespace {

// Rows that share a head's matrix while it is near.
constexpr int kBlockRows = 48;

struct HeadLinear {
  int heads, width, from, in, out;

  // x [rows, heads * width] of dtype, w [heads, in, out] of matrix, y [rows, heads * out] of dtype.
  void run(DType dtype, DType matrix, const uint8_t* x, const uint8_t* w, int rows, uint8_t* y) const {
    const Level& l = level();
    const size_t size = dtype == DType::f32 ? 4 : 2, element = matrix == DType::f32 ? 4 : 2;
    const Format format = matrix == DType::f32 ? Format::f32 : matrix == DType::bf16 ? Format::bf16 : Format::f16;
    const PanelShape shape{format, Scale::f32, in, 0, int(size_t(out) * element)};
    const int blocks = (rows + kBlockRows - 1) / kBlockRows;
    Pool::get().run(heads * blocks, [&](int i) {
      const int h = i / blocks, first = i % blocks * kBlockRows, n = std::min(kBlockRows, rows - first);
      float* xs = scratch(kRows, size_t(n) * size_t(in));
      float* sums = scratch(kTile, size_t(n) * size_t(out));
      for (int r = 0; r < n; r++)
        l.widen(dtype, x + ((size_t(first + r) * size_t(heads) + size_t(h)) * size_t(width) + size_t(from)) * size, size_t(in),
                xs + size_t(r) * size_t(in));
      const uint8_t* matrix_of = w + size_t(h) * size_t(in) * size_t(out) * element;
      for (int c = 0; c < out;) {
        const int left = (out - c) / kLanes, np = n <= 2 && left >= 4 ? 4 : left >= 2 ? 2 : 1;
        const uint8_t* at[4];
        for (int p = 0; p < np; p++) at[p] = matrix_of + size_t(c + p * kLanes) * element;
        l.tile(shape, at, np, xs, size_t(in), n, sums + c, size_t(out));
        c += np * kLanes;
      }
      for (int r = 0; r < n; r++)
        l.narrow(dtype, sums + size_t(r) * size_t(out), size_t(out),
                 y + (size_t(first + r) * size_t(heads) + size_t(h)) * size_t(out) * size);
    });
  }
};

class Heads : public Primitive {
 public:
  Heads(mx::Stream s, HeadLinear call) : Primitive(s), call_(call) {}
  const char* name() const override { return "clade_head_linear"; }
  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outs) override {
    mx::array& out = outs[0];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    Contiguous x(in[0]), w(in[1]);
    mx::cpu::get_command_encoder(stream()).dispatch([call = call_, x, w, rows = out.shape(1), dtype = dtype_of(in[0].dtype()),
                                                     matrix = dtype_of(in[1].dtype()), y = out.data<uint8_t>()] {
      Pool::get().evaluating();
      if (rows) call.run(dtype, matrix, x.read(), w.read(), rows, y);
    });
  }

 private:
  HeadLinear call_;
};

}  // namespace
}  // namespace clade

using namespace clade;

extern "C" int clade_head_linear(clade_array* res, clade_array x, clade_array w, int from, clade_stream s) {
  return guard("clade_head_linear", [&] {
    const mx::array &rows = array_of(x), &matrix = array_of(w);
    dtype_of(rows.dtype());
    dtype_of(matrix.dtype());
    if (matrix.ndim() != 3 || matrix.shape(0) < 1 || matrix.shape(1) < 1 || matrix.shape(2) < kLanes || matrix.shape(2) % kLanes)
      refuse("w must be [heads, in, out], out a multiple of 16");
    const int heads = matrix.shape(0), in = matrix.shape(1);
    if (rows.ndim() != 3 || rows.shape(0) != 1 || rows.shape(2) % heads) refuse("x must be [1, L, heads * width]");
    const int width = rows.shape(2) / heads;
    if (from < 0 || from > width - in) refuse("columns " + std::to_string(from) + " to " + std::to_string(from + in) + " of heads of " + std::to_string(width));
    const HeadLinear call{heads, width, from, in, matrix.shape(2)};
    give(res, mx::array({1, rows.shape(1), heads * call.out}, rows.dtype(), std::make_shared<Heads>(stream_of(s), call), {rows, matrix}));
  });
}
