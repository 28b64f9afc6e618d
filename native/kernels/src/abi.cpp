// The C interface to weights and settings; primitives.cpp has the rest.
#include <algorithm>
#include <string>

#include "clade_kernels.h"
#include "error.h"
#include "placement.h"
#include "pool.h"
#include "weight.h"
#include "weight_handle.h"

using namespace clade;

namespace {

void check_rows(const Weight& w, int row, int count) {
  if (row < 0 || count < 0 || row > w.n - count)
    refuse("rows " + std::to_string(row) + " to " + std::to_string(row + count) + " of " + std::to_string(w.n));
}

}  // namespace

std::string& clade::last_error() {
  thread_local std::string message;
  return message;
}

extern "C" {

uint32_t clade_kernels_abi(void) { return CLADE_KERNELS_ABI; }
const char* clade_kernels_list(void) { return "linear\nembed\nattend\nlinear-int8\nattend-rows\nlinear-updates\nattend-caches\nsample\nexperts\nattend-softcap\ntrellis\ndecoder\ngated-delta\nattend-latent\nhead-linear\nmixture\n"; }
int clade_kernels_revision(void) { return CLADE_KERNELS_REVISION; }
const char* clade_kernels_error(void) { return last_error().c_str(); }
int clade_kernels_threads(void) { return Pool::get().threads(); }
int clade_kernels_set_threads(int threads) {
  return guard("clade_kernels_set_threads", [&] {
    if (threads < 1 || threads > 1024) refuse(std::to_string(threads) + " threads are refused");
    Pool::get().set_threads(threads);
  });
}
int clade_kernels_pin(const int* cpus, int n) {
  return guard("clade_kernels_pin", [&] {
    if (n < 0 || n > 1024) refuse(std::to_string(n) + " processors are refused");
    Pool::get().pin(cpus, n);
  });
}
int clade_kernels_place(int node) {
  return guard("clade_kernels_place", [&] { place_weights(node); });
}
size_t clade_kernels_weight_bytes(void) { return live_weight_bytes().load(); }

size_t clade_weight_size_dense(int n, int k, int dtype) {
  size_t bytes = 0;
  guard("clade_weight_size_dense", [&] { bytes = Weight::size(n, dense_shape(n, k, dtype)); });
  return bytes;
}
size_t clade_weight_size_affine(int n, int k, int bits, int group, int scale) {
  size_t bytes = 0;
  guard("clade_weight_size_affine", [&] { bytes = Weight::size(n, affine_shape(n, k, bits, group, scale)); });
  return bytes;
}
int clade_weight_new_dense(clade_weight* res, int n, int k, int dtype) {
  return guard("clade_weight_new_dense", [&] {
    res->ctx = new std::shared_ptr<Weight>(std::make_shared<Weight>(n, k, dense_shape(n, k, dtype), 0));
  });
}
int clade_weight_new_affine(clade_weight* res, int n, int k, int bits, int group, int scale) {
  return guard("clade_weight_new_affine", [&] {
    res->ctx = new std::shared_ptr<Weight>(std::make_shared<Weight>(n, k, affine_shape(n, k, bits, group, scale), bits));
  });
}
int clade_weight_set_dense(clade_weight w, int row, int count, const void* rows) {
  return guard("clade_weight_set_dense", [&] {
    Weight& x = *weight_of(w);
    check_rows(x, row, count);
    if (x.bits) refuse("the weight is quantized");
    x.set_dense(row, count, rows);
  });
}
int clade_weight_set_affine(clade_weight w, int row, int count, const uint32_t* codes, const void* scales,
                            const void* biases) {
  return guard("clade_weight_set_affine", [&] {
    Weight& x = *weight_of(w);
    check_rows(x, row, count);
    if (!x.bits || x.shape.format == Format::trellis) refuse("the weight has no affine codes");
    x.set_affine(row, count, codes, scales, biases);
  });
}
int clade_weight_set_bias(clade_weight w, const float* bias) {
  return guard("clade_weight_set_bias", [&] {
    Weight& x = *weight_of(w);
    x.bias.clear();
    if (!bias) return;
    x.bias.assign(size_t(x.panels()) * 16, 0.0f);
    std::copy(bias, bias + x.n, x.bias.begin());
  });
}
int clade_weight_set_int8(clade_weight w, bool on) {
  return guard("clade_weight_set_int8", [&] {
    Weight& x = *weight_of(w);
    if (on && !x.bits) refuse("the weight is dense");
    if (on && x.shape.format == Format::trellis) refuse("the weight is a trellis");
    x.int8 = on;
  });
}
int clade_weight_free(clade_weight w) {
  delete static_cast<std::shared_ptr<Weight>*>(w.ctx);
  return 0;
}

}  // extern "C"
