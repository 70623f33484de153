/*! \file vector.cu
 *  \brief Vector: every value of every narrow type widens exactly and narrows back to itself; roundings and saturation.
 */
#include <tvm_cascade/vector.cuh>

#include <cmath>

#include "check.h"

using tvm_cascade::Vector;

/*! \brief narrowed = the same type of scale * wide, wide = float32 of source; a thread for each vector. */
template <class Element>
__device__ void convert(const Element* source, float* wide, Element* narrowed, float scale) {
  constexpr int kElements = Vector<Element>::kElements;
  int first = (blockIdx.x * blockDim.x + threadIdx.x) * kElements;
  float values[kElements];
  Vector<Element>::load(source + first).widen(values);
  for (int k = 0; k < kElements; ++k) {
    wide[first + k] = values[k];
    values[k] *= scale;
  }
  Vector<Element>::narrow(values).store(narrowed + first);
}

#define CONVERT(name, Element)                                                                                  \
  extern "C" __global__ void name(const Element* source, float* wide, Element* narrowed, float scale) {          \
    convert<Element>(source, wide, narrowed, scale);                                                            \
  }
CONVERT(convert_half, __half)
CONVERT(convert_bfloat16, __nv_bfloat16)
CONVERT(convert_e4m3, __nv_fp8_e4m3)
CONVERT(convert_e5m2, __nv_fp8_e5m2)

/*! \brief Every bit pattern at scale 1, and at one that rounds and overflows, against the toolkit's own conversions. */
template <class Element, class Bits>
void check(void (*kernel)(const Element*, float*, Element*, float)) {
  constexpr int kCount = 1 << (8 * sizeof(Bits)), kThreads = 16;
  std::vector<Element> all(kCount);
  for (int k = 0; k < kCount; ++k) {
    Bits bits = static_cast<Bits>(k);
    memcpy(&all[k], &bits, sizeof(bits));
  }
  OnDevice<Element> source(all), narrowed(all);
  OnDevice<float> wide{std::vector<float>(kCount)};
  for (float scale : {1.0f, 1.3f}) {
    kernel<<<kCount / Vector<Element>::kElements / kThreads, kThreads>>>(source.data, wide.data, narrowed.data, scale);
    std::vector<float> widened = wide.back();
    std::vector<Element> back = narrowed.back();
    for (int k = 0; k < kCount; ++k) {
      float expected = static_cast<float>(all[k]);
      CHECK(std::isnan(expected) ? std::isnan(widened[k]) : widened[k] == expected);
      Element rounded(expected * scale);
      bool nan = std::isnan(static_cast<float>(rounded));
      CHECK(nan ? std::isnan(static_cast<float>(back[k])) : memcmp(&back[k], &rounded, sizeof(rounded)) == 0);
    }
  }
}

int main() {
  check<__half, unsigned short>(convert_half);
  check<__nv_bfloat16, unsigned short>(convert_bfloat16);
  check<__nv_fp8_e4m3, unsigned char>(convert_e4m3);
  check<__nv_fp8_e5m2, unsigned char>(convert_e5m2);
}
