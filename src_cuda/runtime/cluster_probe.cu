/*!
 * \file cluster_probe.cu
 * \brief The largest number of clusters that a device can hold at once.
 */
#include "cluster_probe.h"

namespace tvm_cascade {
namespace {

/*! \brief Needs no registers to speak of: only threads and shared memory limit it. */
__global__ void Nothing() {}

}  // namespace

cudaError_t MaxActiveClusters(int cluster_blocks, int shared_bytes, int threads, int* clusters) {
  cudaError_t status = cudaFuncSetAttribute(Nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (status != cudaSuccess) return status;
  // Clusters of more than eight blocks are not portable between devices, and must be asked for.
  status = cudaFuncSetAttribute(Nothing, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute dimension;
  dimension.id = cudaLaunchAttributeClusterDimension;
  dimension.val.clusterDim.x = cluster_blocks;
  dimension.val.clusterDim.y = 1;
  dimension.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(cluster_blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.attrs = &dimension;
  config.numAttrs = 1;
  return cudaOccupancyMaxActiveClusters(clusters, Nothing, &config);
}

}  // namespace tvm_cascade
