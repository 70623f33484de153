/*!
 * \file cluster.cuh
 * \brief Merging the states of the blocks of a cluster through distributed shared memory (sm_90 and later).
 *
 * Every block sends its state to every block of the cluster, itself included, and all merge what came in the order of
 * the blocks' ranks: one exchange, no root, the same bits everywhere. The stores (st.async) carry their own completion
 * to a barrier in the receiver's shared memory, so that nobody waits for a barrier of the whole cluster.
 */
#ifndef TVM_CASCADE_CLUSTER_CUH_
#define TVM_CASCADE_CLUSTER_CUH_

#include "reduce.cuh"

namespace tvm_cascade {

/*! \brief This block's rank in its cluster. */
__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/*! \brief A barrier of all threads of the cluster; shared memory written before is seen after. */
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/*! \brief The address, for the whole cluster, of what lies at `here` in the shared memory of the block of this rank. */
__device__ __forceinline__ unsigned address_in_block(const void* here, unsigned rank) {
  unsigned address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"(static_cast<unsigned>(__cvta_generic_to_shared(here))), "r"(rank));
  return address;
}

/*!
 * \brief Where the states of the blocks of a cluster meet: lies in shared memory, at the same place in every block.
 *
 *     __shared__ ClusterExchange<State, 8> exchange;
 *     if (threadIdx.x == 0) exchange.init();
 *     cluster_sync();                                   // every barrier is there before anyone sends
 *     if (warp == 0) mine = exchange.merge(mine, merge, round);
 *
 * A block may exit after its last merge: it has then received everything that anyone will send it.
 *
 * \tparam State What is merged: whole 32-bit words.
 * \tparam Blocks Blocks of the cluster, 1 to 16.
 */
template <class State, int Blocks>
struct alignas(16) ClusterExchange {
  static_assert(Blocks >= 1 && Blocks <= 16, "a cluster has at most 16 blocks");
  static constexpr int kWords = Words<State>::kCount;
  static constexpr int kSlotWords = (kWords + 3) / 4 * 4;  // slots begin where stores of 16 bytes may

  // Two of each, in turns. Who sends in round k + 2 has every block's state of round k + 1, which each sent after it
  // had read round k.
  unsigned slots[2][Blocks][kSlotWords];
  unsigned long long arrived[2];

  /*! \brief Said by one thread of each block; a barrier of the cluster must follow before the first merge. */
  __device__ void init() {
    for (unsigned long long& barrier : arrived) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(local(&barrier)) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }

  /*!
   * \brief The merge of the states of all blocks. One whole warp of every block calls it, always the same one.
   *
   * \param mine The block's state, in every lane of the warp.
   * \param merge State(State earlier, State later), associative; in the order of ranks.
   * \param round How often the exchange has been used before: 0, 1, 2, ...
   * \return The merged state, bit for bit the same in every lane of every block.
   */
  template <class Merge>
  __device__ State merge(const State& mine, Merge merge, unsigned round) {
    unsigned turn = round & 1, lane = lane_id();
    __syncwarp();  // all lanes have read what came in the round before
    if (lane == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(local(&arrived[turn])),
                   "r"(static_cast<unsigned>(Blocks * sizeof(State)))
                   : "memory");
    }
    __syncwarp();
    if (lane < Blocks) send(mine, lane, turn);
    wait(&arrived[turn], (round >> 1) & 1);
    State merged = received(0, turn);
#pragma unroll
    for (int rank = 1; rank < Blocks; ++rank) merged = merge(merged, received(rank, turn));
    return merged;
  }

 private:
  static __device__ unsigned local(const void* here) { return static_cast<unsigned>(__cvta_generic_to_shared(here)); }

  __device__ State received(int rank, unsigned turn) const {
    State state;
    memcpy(&state, slots[turn][rank], sizeof(State));
    return state;
  }

  __device__ void send(const State& mine, unsigned to, unsigned turn) {
    Words<State> words(mine);
    unsigned slot = address_in_block(slots[turn][cluster_rank()], to);
    unsigned barrier = address_in_block(&arrived[turn], to);
#pragma unroll
    for (int k = 0; k + 4 <= kWords; k += 4) {
      asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                       slot + 4 * k),
                   "r"(words.word[k]), "r"(words.word[k + 1]), "r"(words.word[k + 2]), "r"(words.word[k + 3]),
                   "r"(barrier)
                   : "memory");
    }
#pragma unroll
    for (int k = kWords / 4 * 4; k < kWords; ++k) {
      asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(slot + 4 * k),
                   "r"(words.word[k]), "r"(barrier)
                   : "memory");
    }
  }

  static __device__ void wait(const void* barrier, unsigned parity) {
    unsigned done = 0;
    while (!done) {
      asm volatile(
          "{\n.reg .pred done;\n"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
          "selp.u32 %0, 1, 0, done;\n}"
          : "=r"(done)
          : "r"(local(barrier)), "r"(parity)
          : "memory");
    }
  }
};

}  // namespace tvm_cascade

#endif  // TVM_CASCADE_CLUSTER_CUH_
