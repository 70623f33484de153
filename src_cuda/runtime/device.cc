/*!
 * \file device.cc
 * \brief What a device is: tvm_cascade.cuda.{device_count, device_properties, max_active_clusters}.
 */
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <string>

#include "cluster_probe.h"
#include "cuda_call.h"

namespace tvm_cascade {
namespace {

namespace ffi = tvm::ffi;

int64_t DeviceCount() {
  int count = 0;
  TVM_CASCADE_CUDA_CALL(cudaGetDeviceCount(&count));
  return count;
}

/*! \brief The compiler's name of the architecture: from 9.0 on with the suffix that admits its own instructions. */
std::string Architecture(int major, int minor) {
  return "sm_" + std::to_string(major) + std::to_string(minor) + (major >= 9 ? "a" : "");
}

ffi::Map<ffi::String, ffi::Any> DeviceProperties(int64_t index) {
  int device = static_cast<int>(index), driver = 0, runtime = 0;
  cudaDeviceProp properties;
  TVM_CASCADE_CUDA_CALL(cudaGetDeviceProperties(&properties, device));
  TVM_CASCADE_CUDA_CALL(cudaDriverGetVersion(&driver));
  TVM_CASCADE_CUDA_CALL(cudaRuntimeGetVersion(&runtime));
  ffi::Map<ffi::String, ffi::Any> found;
  auto put = [&](const char* name, int64_t value) { found.Set(name, value); };
  found.Set("name", ffi::String(properties.name));
  found.Set("arch", ffi::String(Architecture(properties.major, properties.minor)));
  put("multiprocessors", properties.multiProcessorCount);
  put("l2_bytes", properties.l2CacheSize);
  put("shared_bytes_per_block", static_cast<int64_t>(properties.sharedMemPerBlockOptin));
  put("shared_bytes_per_multiprocessor", static_cast<int64_t>(properties.sharedMemPerMultiprocessor));
  put("global_bytes", static_cast<int64_t>(properties.totalGlobalMem));
  put("memory_clock_khz", Attribute(cudaDevAttrMemoryClockRate, device));
  put("memory_bus_bits", Attribute(cudaDevAttrGlobalMemoryBusWidth, device));
  put("clock_khz", Attribute(cudaDevAttrClockRate, device));
  put("driver_version", driver);
  put("runtime_version", runtime);
  return found;
}

int64_t ActiveClusters(int64_t device, int64_t cluster_blocks, int64_t shared_bytes, int64_t threads) {
  DeviceScope scope(static_cast<int>(device));
  int clusters = 0;
  TVM_CASCADE_CUDA_CALL(MaxActiveClusters(static_cast<int>(cluster_blocks), static_cast<int>(shared_bytes),
                                          static_cast<int>(threads), &clusters));
  return clusters;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("tvm_cascade.cuda.device_count", DeviceCount)
      .def("tvm_cascade.cuda.device_properties", DeviceProperties)
      .def("tvm_cascade.cuda.max_active_clusters", ActiveClusters);
}

}  // namespace
}  // namespace tvm_cascade
