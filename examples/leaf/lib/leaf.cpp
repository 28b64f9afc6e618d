// The family's own kernel, as an MLX primitive for the CPU. Built against the runtime that plugin.yaml names; MLX itself is in the
// process already when this library is loaded.
#include <cstdio>
#include <exception>

#include "mlx/allocator.h"
#include "mlx/array.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "mlx/utils.h"

namespace mx = mlx::core;

namespace {

// Element by element, so that a row's result depends on no other row, and in the stored dtype.
template <typename T>
void squared_relu(const T* x, T* out, size_t n) {
  for (size_t i = 0; i < n; i++) {
    float v = static_cast<float>(x[i]);
    v = v > 0 ? v : (v == v ? 0.0f : v);
    out[i] = static_cast<T>(v * v);
  }
}

class SquaredReLU : public mx::UnaryPrimitive {
 public:
  explicit SquaredReLU(mx::Stream stream) : mx::UnaryPrimitive(stream) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    const mx::array& x = inputs[0];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    auto& encoder = mx::cpu::get_command_encoder(stream());
    encoder.set_input_array(x);
    encoder.set_output_array(out);
    encoder.dispatch([x = mx::array::unsafe_weak_copy(x), out = mx::array::unsafe_weak_copy(out)]() mutable {
      switch (x.dtype()) {
        case mx::float32:
          return squared_relu(x.data<float>(), out.data<float>(), x.size());
        case mx::bfloat16:
          return squared_relu(x.data<mx::bfloat16_t>(), out.data<mx::bfloat16_t>(), x.size());
        default:
          return squared_relu(x.data<mx::float16_t>(), out.data<mx::float16_t>(), x.size());
      }
    });
  }

  void eval_gpu(const std::vector<mx::array>&, mx::array&) override { throw std::runtime_error("squared ReLU runs on the CPU"); }

  const char* name() const override { return "LeafSquaredReLU"; }
  bool is_equivalent(const mx::Primitive&) const override { return true; }
};

}  // namespace

// sdk/mlx/extension.h has the type of an operation.
extern "C" __attribute__((visibility("default"))) int leaf_squared_relu(void** out, void* const* in, size_t count, const double*, size_t, void* stream,
                                                                         char* error, size_t room) try {
  const mx::array& x = *static_cast<mx::array*>(in[0]);
  if (count != 1 || (x.dtype() != mx::float32 && x.dtype() != mx::bfloat16 && x.dtype() != mx::float16)) {
    std::snprintf(error, room, "one array of float32, bfloat16 or float16 is due");
    return 1;
  }
  const mx::Stream s = *static_cast<mx::Stream*>(stream);
  const mx::array row_major = mx::contiguous(x, false, s);
  *out = new mx::array(x.shape(), x.dtype(), std::make_shared<SquaredReLU>(s), {row_major});
  return 0;
} catch (const std::exception& e) {
  std::snprintf(error, room, "%s", e.what());
  return 1;
}
