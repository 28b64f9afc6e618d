// The stored element types: sixteen of one as floats, or one alone.
struct F32 {
  static constexpr int bytes = 64;
  static f32x16 load(const uint8_t* p) { return load16(reinterpret_cast<const float*>(p)); }
  static float one(const uint8_t* p) {
    float f;
    std::memcpy(&f, p, 4);
    return f;
  }
};

template <f32x16 (*Load)(const uint16_t*), float (*One)(uint16_t)>
struct Half {
  static constexpr int bytes = 32;
  static f32x16 load(const uint8_t* p) { return Load(reinterpret_cast<const uint16_t*>(p)); }
  static float one(const uint8_t* p) {
    uint16_t h;
    std::memcpy(&h, p, 2);
    return One(h);
  }
};
using BF16 = Half<load_bf16, bf16_to_f32>;
using F16 = Half<load_f16, f16_to_f32>;
