// What the MLX primitives share: reading the C interface's arguments, and arrays as rows.
#pragma once
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "clade_kernels.h"
#include "error.h"
#include "level.h"
#include "mlx/array.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "mlx/utils.h"

namespace mx = mlx::core;

namespace clade {

inline DType dtype_of(mx::Dtype d) {
  if (d == mx::float32) return DType::f32;
  if (d == mx::bfloat16) return DType::bf16;
  if (d == mx::float16) return DType::f16;
  refuse("dtype must be float32, bfloat16 or float16");
}

inline mx::Dtype mlx_dtype_of(int d) {
  switch (d) {
    case CLADE_F32:
      return mx::float32;
    case CLADE_BF16:
      return mx::bfloat16;
    case CLADE_F16:
      return mx::float16;
  }
  refuse("dtype " + std::to_string(d) + " is unknown");
}

inline const mx::array& array_of(clade_array a) {
  if (!a.ctx) refuse("an array is missing");
  return *static_cast<mx::array*>(a.ctx);
}

inline mx::Stream stream_of(clade_stream s) {
  if (!s.ctx) refuse("a stream is missing");
  return *static_cast<mx::Stream*>(s.ctx);
}

inline void give(clade_array* res, mx::array a) {
  if (res->ctx)
    *static_cast<mx::array*>(res->ctx) = std::move(a);
  else
    res->ctx = new mx::array(std::move(a));
}

// Row-major data of an evaluated array, copied element by element when it has other strides.
class Contiguous {
 public:
  explicit Contiguous(const mx::array& a) : array_(a) {
    if (a.flags().row_contiguous) {
      data_ = a.data<uint8_t>();
      return;
    }
    copy_ = std::make_shared<std::vector<uint8_t>>();
    copy_->resize(a.nbytes());
    data_ = copy_->data();
  }
  // Called on the stream's thread, when the input is there.
  const uint8_t* read() const {
    if (copy_) {
      const size_t size = array_.itemsize();
      for (size_t i = 0; i < array_.size(); i++) {
        size_t rest = i, at = 0;
        for (int d = int(array_.ndim()) - 1; d >= 0; d--) {
          at += rest % size_t(array_.shape(d)) * size_t(array_.strides(d));
          rest /= size_t(array_.shape(d));
        }
        std::memcpy(copy_->data() + i * size, array_.data<uint8_t>() + at * size, size);
      }
    }
    return data_;
  }

 private:
  mx::array array_;
  const uint8_t* data_;
  std::shared_ptr<std::vector<uint8_t>> copy_;
};

class Primitive : public mx::Primitive {
 public:
  using mx::Primitive::Primitive;
  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error(std::string(name()) + ": runs on the CPU only");
  }
};

}  // namespace clade
