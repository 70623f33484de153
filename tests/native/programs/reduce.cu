/*! \file reduce.cu
 *  \brief merge_lanes over quads and warps: a merge that does not commute, and a state of five words.
 */
#include <tvm_cascade/reduce.cuh>

#include <cmath>

#include "check.h"

/*! \brief A running maximum, the sum of exponentials about it, and three weighted sums. */
struct Softmax {
  float maximum, sum, weighted[3];
};

struct Rescale {
  __host__ __device__ Softmax operator()(const Softmax& a, const Softmax& b) const {
    float maximum = fmaxf(a.maximum, b.maximum), of_a = expf(a.maximum - maximum), of_b = expf(b.maximum - maximum);
    Softmax merged = {maximum, a.sum * of_a + b.sum * of_b};
    for (int k = 0; k < 3; ++k) merged.weighted[k] = a.weighted[k] * of_a + b.weighted[k] * of_b;
    return merged;
  }
};

template <int Lanes>
__device__ void merge_affine(Affine* states) {
  states[threadIdx.x] = tvm_cascade::merge_lanes<Lanes>(states[threadIdx.x], Compose());
}

extern "C" __global__ void merge_quads(Affine* states) { merge_affine<4>(states); }
extern "C" __global__ void merge_warps(Affine* states) { merge_affine<32>(states); }
extern "C" __global__ void merge_softmax(Softmax* states) {
  states[threadIdx.x] = tvm_cascade::merge_lanes<32>(states[threadIdx.x], Rescale());
}

void check_order(void (*kernel)(Affine*), int lanes) {
  std::vector<Affine> host(64);
  for (int k = 0; k < 64; ++k) host[k] = affine(k);
  OnDevice<Affine> states(host);
  kernel<<<1, 64>>>(states.data);
  std::vector<Affine> found = states.back();
  for (int k = 0; k < 64; ++k) {
    Affine expected = host[k / lanes * lanes];
    for (int j = 1; j < lanes; ++j) expected = Compose()(expected, host[k / lanes * lanes + j]);
    CHECK(found[k] == expected);
  }
}

void check_equal_bits() {
  std::vector<Softmax> host(32);
  double sum = 0;
  for (int k = 0; k < 32; ++k) {
    host[k] = {static_cast<float>((k * 37) % 32), 1.0f + k / 7.0f, {k / 3.0f, 1.0f, -1.0f}};
    sum += host[k].sum * std::exp(static_cast<double>(host[k].maximum - 31));
  }
  OnDevice<Softmax> states(host);
  merge_softmax<<<1, 32>>>(states.data);
  std::vector<Softmax> found = states.back();
  for (const Softmax& state : found) {
    CHECK(memcmp(&state, &found[0], sizeof(state)) == 0);
    CHECK(state.maximum == 31 && std::abs(state.sum - sum) < 1e-5 * sum);
  }
}

int main() {
  check_order(merge_quads, 4);
  check_order(merge_warps, 32);
  check_equal_bits();
}
