/*!
 * \file last_block.cuh
 * \brief Which block of a grid comes last, so that it can merge what all have left in global memory: a grid-wide merge
 *        in the same launch.
 */
#ifndef TVM_CASCADE_LAST_BLOCK_CUH_
#define TVM_CASCADE_LAST_BLOCK_CUH_

namespace tvm_cascade {
namespace detail {

/*! \brief Lets the compiler believe that others hold this pointer, so that barriers concern what it points to. */
__device__ __forceinline__ void escape(const void* pointer) { asm volatile("" ::"l"(pointer) : "memory"); }

}  // namespace detail

/*!
 * \brief Whether this block is the last of `blocks` to arrive at the counter. All threads of the block call it.
 *
 * \param counter In global memory, zero before the first use. It is zero again once the last block has arrived, so that
 *   the next launch needs no memset. Launches that may overlap need counters of their own.
 * \param blocks How many blocks arrive.
 * \param partials The arrays through which blocks exchange states; the kernel both writes and reads them. They must be
 *   named: TVM declares every parameter __restrict__, which lets the compiler believe that no other block writes them.
 * \return The same in all threads of the block. Where it is true, every thread sees what any thread of any of the
 *   blocks wrote to the partials before its call.
 *
 * Read the partials with ordinary loads: ld.global.nc (__ldg) may give what was there before.
 */
template <class... Partial>
__device__ __forceinline__ bool last_block(unsigned* counter, unsigned blocks, Partial*... partials) {
  static_assert(sizeof...(partials) > 0, "name the arrays that the last block reads");
  (detail::escape(partials), ...);
  bool last = false;
  __syncthreads();  // the writes of all threads of the block come before the fence of the one that arrives
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    __threadfence();                                      // release: they come before the arrival, for all the device
    last = atomicInc(counter, blocks - 1) == blocks - 1;  // the last arrival wraps to zero
    __threadfence();                                      // acquire: reads of the others' partials come after it
  }
  return __syncthreads_or(last) != 0;
}

}  // namespace tvm_cascade

#endif  // TVM_CASCADE_LAST_BLOCK_CUH_
