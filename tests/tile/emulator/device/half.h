// 16-bit floats: float32 rounded to nearest, ties to even; NaNs stay NaNs.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

struct Bfloat16 {
  static float widen(uint16_t bits) { return float_of(uint32_t{bits} << 16); }
  static uint16_t narrow(float value) {
    uint32_t bits = bits_of(value);
    if (std::isnan(value)) return 0x7fff;
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

struct Float16 {
  static float widen(uint16_t bits) {
    uint32_t magnitude = bits & 0x7fff;
    float size = magnitude < 0x7c00 ? float_of(magnitude << 13) * 0x1p112f  // exact, subnormal numbers too
                                    : float_of(magnitude << 13 | 0x7f800000);
    return bits & 0x8000 ? -size : size;
  }
  static uint16_t narrow(float value) {
    uint32_t bits = bits_of(value), sign = (bits >> 16) & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return 0x7fff;
    if (size >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and more
    if (size < 0x38800000) {                                             // subnormal: in steps of 2^-24
      return static_cast<uint16_t>(sign | uint32_t(std::nearbyint(std::ldexp(float_of(size), 24))));
    }
    return static_cast<uint16_t>(sign | ((size - 0x38000000 + 0xfff + ((size >> 13) & 1)) >> 13));
  }
};

template <typename Format>
struct Half {
  uint16_t bits = 0;
  Half() = default;
  Half(float value) : bits(Format::narrow(value)) {}
  operator float() const { return Format::widen(bits); }
};

template <typename Format>
bool __hgt(Half<Format> a, Half<Format> b) {
  return float(a) > float(b);
}
template <typename Format>
bool __hlt(Half<Format> a, Half<Format> b) {
  return float(a) < float(b);
}

// Arithmetic and functions of 16-bit floats: rounded at each operation.
#define HALF_OPERATION(name, value)                        \
  template <typename Format>                               \
  Half<Format> name(Half<Format> a, Half<Format> b) {      \
    float x = a, y = b;                                    \
    return Half<Format>(float(value));                     \
  }
HALF_OPERATION(operator+, x + y)
HALF_OPERATION(operator-, x - y)
HALF_OPERATION(operator*, x * y)
HALF_OPERATION(operator/, x / y)
HALF_OPERATION(max, std::fmax(x, y))
HALF_OPERATION(min, std::fmin(x, y))
#undef HALF_OPERATION
#define HALF_FUNCTION(name, value)     \
  template <typename Format>           \
  Half<Format> name(Half<Format> a) {  \
    float x = a;                       \
    return Half<Format>(float(value)); \
  }
HALF_FUNCTION(hexp, std::exp(x))
HALF_FUNCTION(hexp2, std::exp2(x))
HALF_FUNCTION(hlog, std::log(x))
HALF_FUNCTION(hlog2, std::log2(x))
HALF_FUNCTION(hsqrt, std::sqrt(x))
HALF_FUNCTION(hrsqrt, 1 / std::sqrt(x))
HALF_FUNCTION(htanh, std::tanh(x))
HALF_FUNCTION(hsin, std::sin(x))
HALF_FUNCTION(hcos, std::cos(x))
HALF_FUNCTION(htan, std::tan(x))
HALF_FUNCTION(hatan, std::atan(x))
HALF_FUNCTION(herf, std::erf(x))
HALF_FUNCTION(__habs, std::fabs(x))
#undef HALF_FUNCTION
