/*! \file cluster.cu
 *  \brief ClusterExchange: merges in the order of ranks, over many rounds, for states with and without 16-byte parts.
 */
#include <tvm_cascade/cluster.cuh>

#include "check.h"

/*! \brief Five words: one store of 16 bytes and one of four. */
struct Padded {
  Affine map;
  unsigned same[3];
};

struct ComposePadded {
  __host__ __device__ Padded operator()(const Padded& a, const Padded& b) const {
    return {Compose()(a.map, b.map), {a.same[0] + b.same[0], a.same[1] + b.same[1], a.same[2] + b.same[2]}};
  }
};

__host__ __device__ inline Padded start(unsigned block, unsigned round) {
  unsigned k = block + 31 * round;
  return {{2 * k * 2654435761u + 1, k * k + 7}, {block, 1, round}};
}

constexpr unsigned kRounds = 9;

/*! \brief results[block, round, lane]. */
template <int Blocks>
__device__ void exchange_rounds(Padded* results) {
  __shared__ tvm_cascade::ClusterExchange<Padded, Blocks> exchange;
  if (threadIdx.x == 0) exchange.init();
  tvm_cascade::cluster_sync();
  if (threadIdx.x >= 32) return;
  for (unsigned round = 0; round < kRounds; ++round) {
    Padded merged = exchange.merge(start(blockIdx.x, round), ComposePadded(), round);
    results[(blockIdx.x * kRounds + round) * 32 + threadIdx.x] = merged;
  }
}

extern "C" __global__ void __cluster_dims__(2) exchange_2(Padded* results) { exchange_rounds<2>(results); }
extern "C" __global__ void __cluster_dims__(8) exchange_8(Padded* results) { exchange_rounds<8>(results); }

void check(void (*kernel)(Padded*), unsigned blocks) {
  constexpr unsigned kClusters = 40;
  OnDevice<Padded> results{std::vector<Padded>(kClusters * blocks * kRounds * 32)};
  kernel<<<kClusters * blocks, 64>>>(results.data);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  std::vector<Padded> found = results.back();
  for (unsigned at = 0; at < found.size(); ++at) {
    unsigned first = at / 32 / kRounds / blocks * blocks, round = at / 32 % kRounds;
    Padded expected = start(first, round);
    for (unsigned rank = 1; rank < blocks; ++rank) expected = ComposePadded()(expected, start(first + rank, round));
    CHECK(memcmp(&found[at], &expected, sizeof(expected)) == 0);
  }
}

int main() {
  check(exchange_2, 2);
  check(exchange_8, 8);
}
