/*!
 * \file reduce.cuh
 * \brief Merging the states of neighbouring lanes, for any state and any associative merge.
 *
 * A state is a struct of registers (a maximum and a sum, Welford's triple, a key with its index), and its merge is one
 * function of two states. TIRx shuffles single values; a state crosses here as one.
 */
#ifndef TVM_CASCADE_REDUCE_CUH_
#define TVM_CASCADE_REDUCE_CUH_

namespace tvm_cascade {

/*! \brief The 32-bit words of a state, as registers. */
template <class State>
struct Words {
  static_assert(__is_trivially_copyable(State), "a state is moved word by word");
  static_assert(sizeof(State) % sizeof(unsigned) == 0, "a state is whole 32-bit words; widen its narrow parts");
  static constexpr int kCount = sizeof(State) / sizeof(unsigned);

  unsigned word[kCount];

  __device__ Words() {}
  __device__ explicit Words(const State& state) { memcpy(word, &state, sizeof(State)); }
  __device__ State state() const {
    State found;
    memcpy(&found, word, sizeof(State));
    return found;
  }
};

/*! \brief This thread's lane in its warp. */
__device__ __forceinline__ unsigned lane_id() {
  unsigned lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

/*!
 * \brief condition ? yes : no, as one instruction. Written plainly, nvcc branches on the lane and puts a copy of the
 *   shuffles before it into either side, or puts whole states into local memory and chooses an address.
 */
__device__ __forceinline__ unsigned choose(unsigned condition, unsigned yes, unsigned no) {
  unsigned chosen;
  asm("{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\nselp.b32 %0, %2, %3, p;\n}"
      : "=r"(chosen)
      : "r"(condition), "r"(yes), "r"(no));
  return chosen;
}

/*!
 * \brief The merge of the states of `Lanes` lanes from a multiple of `Lanes` on: 4 is a quad, 32 a warp.
 *
 * \param mine This lane's state.
 * \param merge State(State earlier, State later), associative. It need not commute: states are merged in the order of
 *   their lanes, as a balanced tree.
 * \return The merged state, bit for bit the same in every lane of the group.
 *
 * All 32 lanes of the warp call it.
 */
template <int Lanes, class State, class Merge>
__device__ __forceinline__ State merge_lanes(State mine, Merge merge) {
  static_assert(Lanes >= 1 && Lanes <= 32 && (Lanes & (Lanes - 1)) == 0, "groups of lanes are powers of two");
#pragma unroll
  for (int distance = 1; distance < Lanes; distance *= 2) {
    Words<State> own(mine), earlier, later;
    unsigned second = lane_id() & distance;
#pragma unroll
    for (int k = 0; k < Words<State>::kCount; ++k) {
      unsigned other = __shfl_xor_sync(0xFFFFFFFFu, own.word[k], distance);
      earlier.word[k] = choose(second, other, own.word[k]);
      later.word[k] = choose(second, own.word[k], other);
    }
    // Both lanes of a pair merge in the same order, so that they round alike.
    mine = merge(earlier.state(), later.state());
  }
  return mine;
}

}  // namespace tvm_cascade

#endif  // TVM_CASCADE_REDUCE_CUH_
