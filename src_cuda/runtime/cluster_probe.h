/*!
 * \file cluster_probe.h
 * \brief The largest number of clusters that a device can hold at once.
 */
#ifndef TVM_CASCADE_RUNTIME_CLUSTER_PROBE_H_
#define TVM_CASCADE_RUNTIME_CLUSTER_PROBE_H_

#include <cuda_runtime.h>

namespace tvm_cascade {

/*!
 * \brief How many clusters of a kernel without registers the current device holds at once.
 * \param cluster_blocks Blocks of a cluster.
 * \param shared_bytes Dynamic shared memory of a block.
 * \param threads Threads of a block.
 * \param clusters Gets the number.
 */
cudaError_t MaxActiveClusters(int cluster_blocks, int shared_bytes, int threads, int* clusters);

}  // namespace tvm_cascade

#endif  // TVM_CASCADE_RUNTIME_CLUSTER_PROBE_H_
