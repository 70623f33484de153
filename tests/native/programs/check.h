/*! \file check.h
 *  \brief What the programs share: each runs kernels of one header, checks them on the host, and exits with 1 if wrong.
 */
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      std::fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                           \
    }                                                                         \
  } while (0)

/*! \brief Host data on the device, for one launch. */
template <class T>
struct OnDevice {
  T* data = nullptr;
  size_t count;

  explicit OnDevice(const std::vector<T>& host) : count(host.size()) {
    CHECK(cudaMalloc(&data, count * sizeof(T)) == cudaSuccess);
    CHECK(cudaMemcpy(data, host.data(), count * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  ~OnDevice() { cudaFree(data); }
  std::vector<T> back() const {
    std::vector<T> host(count);
    CHECK(cudaMemcpy(host.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
    return host;
  }
};

/*! \brief x -> slope * x + offset modulo 2^32: its composition is exact, associative, and does not commute. */
struct Affine {
  unsigned slope, offset;
};

struct Compose {
  __host__ __device__ Affine operator()(Affine first, Affine second) const {
    return {second.slope * first.slope, second.slope * first.offset + second.offset};
  }
};

inline bool operator==(Affine a, Affine b) { return a.slope == b.slope && a.offset == b.offset; }

/*! \brief The k-th of some affine maps that differ. */
inline Affine affine(unsigned k) { return {2 * k * 2654435761u + 1, k * k + 7}; }
