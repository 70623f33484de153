/*!
 * \file measure.cc
 * \brief What honest measurements need: tvm_cascade.cuda.{flush_l2, time, poison}.
 *
 * Everything runs on the caller's stream, so that it is in order with what the caller launches.
 */
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <cstdint>
#include <vector>

#include "cuda_call.h"

namespace tvm_cascade {
namespace {

namespace ffi = tvm::ffi;

/*! \brief A multiple of the L2 cache that evicts everything, whatever the cache's policy and hashing. */
constexpr size_t kFlushCaches = 4;

/*! \brief The byte of poison: NaN in float64, float32, float16, bfloat16 and float8, and -1 in integers. */
constexpr int kPoison = 0xFF;

size_t FlushBytes(int device) { return kFlushCaches * Attribute(cudaDevAttrL2CacheSize, device); }

void FlushL2(int64_t index) {
  int device = static_cast<int>(index);
  DeviceScope scope(device);
  StreamMemory(FlushBytes(device), CallersStream(device)).Write();
}

/*!
 * \brief time(func, device, runs, warmups, *args): milliseconds of each run of func(*args), after a flush of the L2.
 *
 * Nothing waits for the device before the last run. A flush takes longer than most launches, so that the device is
 * still at it when the function's launches are queued, and the time between two events holds no work of the host.
 */
void Time(ffi::PackedArgs args, ffi::Any* result) {
  constexpr int kFixed = 4;
  auto func = args[0].cast<ffi::Function>();
  int device = args[1].cast<int>(), runs = args[2].cast<int>(), warmups = args[3].cast<int>();
  ffi::PackedArgs inputs = args.Slice(kFixed);
  DeviceScope scope(device);
  cudaStream_t stream = CallersStream(device);
  StreamMemory other_data(FlushBytes(device), stream);
  std::vector<Event> starts(runs), stops(runs);
  auto call = [&] {
    ffi::Any ignored;  // a fresh one each time: what is returned need not outlive the call
    func.CallPacked(inputs, &ignored);
  };
  for (int k = 0; k < warmups; ++k) call();
  for (int k = 0; k < runs; ++k) {
    other_data.Write();
    starts[k].Record(stream);
    call();
    stops[k].Record(stream);
  }
  ffi::Array<double> milliseconds;
  for (int k = 0; k < runs; ++k) {
    stops[k].Wait();
    milliseconds.push_back(stops[k].MillisecondsSince(starts[k]));
  }
  *result = milliseconds;
}

void Poison(ffi::TensorView tensor) {
  if (tensor.device().device_type != kDLCUDA || !tensor.IsContiguous()) {
    TVM_FFI_THROW(ValueError) << "expected a contiguous tensor of a CUDA device";
  }
  int device = tensor.device().device_id;
  DeviceScope scope(device);
  char* first = static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset();
  size_t bytes = ffi::GetDataSize(tensor.numel(), tensor.dtype());
  TVM_CASCADE_CUDA_CALL(cudaMemsetAsync(first, kPoison, bytes, CallersStream(device)));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("tvm_cascade.cuda.flush_l2", FlushL2)
      .def_packed("tvm_cascade.cuda.time", Time)
      .def("tvm_cascade.cuda.poison", Poison);
}

}  // namespace
}  // namespace tvm_cascade
