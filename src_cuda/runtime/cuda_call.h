/*!
 * \file cuda_call.h
 * \brief CUDA calls whose failures are tvm-ffi errors that name the call, and the owners of what CUDA hands out.
 *
 * The CUDA runtime is linked statically; it opens the driver (libcuda.so.1) at the first call. So this library loads on
 * a machine without a driver, where every call gives cudaErrorInsufficientDriver.
 */
#ifndef TVM_CASCADE_RUNTIME_CUDA_CALL_H_
#define TVM_CASCADE_RUNTIME_CUDA_CALL_H_

#include <cuda_runtime.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <cstddef>

/*! \brief Makes a CUDA call; throws an error of kind TvmCascadeCudaError where it fails. */
#define TVM_CASCADE_CUDA_CALL(call)                                                                             \
  do {                                                                                                          \
    cudaError_t status = (call);                                                                                \
    if (status != cudaSuccess) {                                                                                \
      (void)cudaGetLastError(); /* or the next check of a launch would report this failure again */             \
      TVM_FFI_THROW(TvmCascadeCudaError) << #call << ": " << cudaGetErrorName(status) << " (" << int(status)    \
                                         << "), " << cudaGetErrorString(status);                                \
    }                                                                                                           \
  } while (0)

namespace tvm_cascade {

/*! \brief Makes a device current for a scope. */
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    TVM_CASCADE_CUDA_CALL(cudaGetDevice(&previous_));
    TVM_CASCADE_CUDA_CALL(cudaSetDevice(device));
  }
  ~DeviceScope() { (void)cudaSetDevice(previous_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int previous_ = 0;
};

/*! \brief Memory of the current device, allocated and freed in the order of a stream. */
class StreamMemory {
 public:
  StreamMemory(size_t bytes, cudaStream_t stream) : bytes_(bytes), stream_(stream) {
    TVM_CASCADE_CUDA_CALL(cudaMallocAsync(&data_, bytes, stream));
  }
  ~StreamMemory() { (void)cudaFreeAsync(data_, stream_); }
  StreamMemory(const StreamMemory&) = delete;
  StreamMemory& operator=(const StreamMemory&) = delete;

  /*! \brief Writes every byte. */
  void Write() { TVM_CASCADE_CUDA_CALL(cudaMemsetAsync(data_, 0, bytes_, stream_)); }

 private:
  void* data_ = nullptr;
  size_t bytes_;
  cudaStream_t stream_;
};

/*! \brief A point in a stream whose time can be read. */
class Event {
 public:
  Event() { TVM_CASCADE_CUDA_CALL(cudaEventCreate(&event_)); }
  ~Event() {
    if (event_ != nullptr) (void)cudaEventDestroy(event_);
  }
  Event(Event&& other) noexcept : event_(other.event_) { other.event_ = nullptr; }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void Record(cudaStream_t stream) { TVM_CASCADE_CUDA_CALL(cudaEventRecord(event_, stream)); }
  void Wait() { TVM_CASCADE_CUDA_CALL(cudaEventSynchronize(event_)); }

  /*! \brief Milliseconds from an earlier event to this one; both have happened. */
  double MillisecondsSince(const Event& start) const {
    float milliseconds = 0;
    TVM_CASCADE_CUDA_CALL(cudaEventElapsedTime(&milliseconds, start.event_, event_));
    return milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/*! \brief The caller's stream: torch's current one where torch tensors were passed, else what the environment set. */
inline cudaStream_t CallersStream(int device) {
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, device));
}

/*! \brief A device attribute. */
inline int Attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  TVM_CASCADE_CUDA_CALL(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

}  // namespace tvm_cascade

#endif  // TVM_CASCADE_RUNTIME_CUDA_CALL_H_
