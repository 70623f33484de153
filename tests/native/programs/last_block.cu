/*! \file last_block.cu
 *  \brief last_block: exactly one block of each launch merges, it sees what all threads wrote, and the counter resets;
 *         nothing read before is taken for what is there after, although pointers are __restrict__, as TVM's are.
 */
#include <tvm_cascade/last_block.cuh>

#include "check.h"

/*! \brief The sum of launch + index over all threads, by partials in global memory. */
extern "C" __global__ void sum_in_one_launch(unsigned* __restrict__ partials, unsigned* __restrict__ counter,
                                             unsigned* __restrict__ total, unsigned* __restrict__ elected,
                                             unsigned launch) {
  unsigned threads = gridDim.x * blockDim.x, mine = blockIdx.x * blockDim.x + threadIdx.x;
  partials[mine] = launch + mine;
  if (!tvm_cascade::last_block(counter, gridDim.x, partials)) return;
  unsigned sum = 0;
#pragma unroll 1
  for (unsigned k = threadIdx.x; k < threads; k += blockDim.x) sum += partials[k];
  atomicAdd(total, sum);
  if (threadIdx.x == 0) atomicAdd(elected, 1);
}

/*! \brief after = what the grid's last block wrote, before = what any block found there earlier. */
extern "C" __global__ void read_again(unsigned* __restrict__ partials, unsigned* __restrict__ counter,
                                      unsigned* __restrict__ before, unsigned* __restrict__ after) {
  unsigned there = partials[gridDim.x - 1];
  if (threadIdx.x == 0) partials[blockIdx.x] = blockIdx.x + 1;
  if (!tvm_cascade::last_block(counter, gridDim.x, partials)) return;
  if (threadIdx.x == 0) *after = partials[gridDim.x - 1];
  if (threadIdx.x == 0) *before = there;
}

void check_sums(unsigned blocks) {
  constexpr unsigned kThreads = 96, kLaunches = 200;
  unsigned threads = blocks * kThreads;
  OnDevice<unsigned> partials{std::vector<unsigned>(threads)}, counter{std::vector<unsigned>(1)};
  OnDevice<unsigned> totals{std::vector<unsigned>(kLaunches)}, elected{std::vector<unsigned>(kLaunches)};
  for (unsigned launch = 0; launch < kLaunches; ++launch) {
    sum_in_one_launch<<<blocks, kThreads>>>(partials.data, counter.data, totals.data + launch, elected.data + launch,
                                            launch);
  }
  std::vector<unsigned> found = totals.back(), elections = elected.back();
  unsigned indices = static_cast<unsigned>(static_cast<unsigned long long>(threads) * (threads - 1) / 2);
  for (unsigned launch = 0; launch < kLaunches; ++launch) {
    CHECK(elections[launch] == 1);
    CHECK(found[launch] == indices + launch * threads);
  }
  CHECK(counter.back()[0] == 0);
}

void check_reads(unsigned blocks) {
  OnDevice<unsigned> partials{std::vector<unsigned>(blocks)}, counter{std::vector<unsigned>(1)};
  OnDevice<unsigned> before{std::vector<unsigned>(1)}, after{std::vector<unsigned>(1)};
  read_again<<<blocks, 64>>>(partials.data, counter.data, before.data, after.data);
  CHECK(after.back()[0] == blocks);
}

int main() {
  for (unsigned blocks : {1u, 7u, 132u, 1000u}) {
    check_sums(blocks);
    check_reads(blocks);
  }
}
