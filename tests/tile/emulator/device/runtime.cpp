// What a host program asks of the runtime of CUDA: to make tensor maps, and to launch kernels. A launch runs the blocks
// one after the other, in either order; those of a cluster twice, so that the last time each has what the others left in
// its shared memory: that shows where a state goes, and not whether its reader waits. What goes wrong is kept for the
// caller, and nothing runs after it.
#include "copy.h"
#include "wgmma.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

using namespace emulator;

namespace {

std::string failure;
std::vector<std::vector<unsigned char>> in_memory_of;  // what blocks of the cluster leave to each

template <typename F>
void kept(F action) {
  if (!failure.empty()) return;
  try {
    action();
  } catch (const Fault& fault) {
    failure = fault.what();
  }
}

void reset(uint32_t bytes, int threads) {
  shared.reset(bytes, threads);
  warps.assign(threads / kWarp, {});
  registers_of_warp.assign(threads / kWarp, 0);
  std::fill(std::begin(named_barriers), std::end(named_barriers), NamedBarrier{});
  memory_barriers.clear();
  cluster_barrier = {};
  bulk_groups.assign(threads, {});
  warp_groups.clear();
  warp_groups.resize(threads / kGroup);
}

void check_end() {
  for (const BulkGroups& groups : bulk_groups) {
    if (!groups.open.empty() || !groups.committed.empty()) fault("the block ended while its stores read shared memory");
  }
  for (const WarpGroup& group : warp_groups) {
    if (!group.started.empty()) fault("the block ended while products were under way");
  }
}

// The blocks of one cluster, one after the other, each with what others have left in its shared memory.
void run_blocks(const std::function<void()>& kernel, int64_t start, uint32_t bytes, int threads) {
  for (uint32_t turn = 0; turn < ptx::cluster; ++turn) {
    const uint32_t k = scheduler.backward ? ptx::cluster - 1 - turn : turn;
    ptx::block = {unsigned(start + k), 0, 0};
    reset(bytes, threads);
    std::memcpy(_ptr, in_memory_of[k].data(), bytes);
    scheduler.error.clear();
    scheduler.run(kernel, threads);
    if (!scheduler.error.empty()) throw Fault("block " + std::to_string(start + k) + ", " + scheduler.error);
    check_end();
  }
}

void encode(const ptx::Argument* a, int count) {
  const std::string dtype = static_cast<const char*>(a[1].pointer);
  const int element = dtype == "uint8" ? 1 : 2;
  Map map{kMagic, int32_t(a[2].integer), static_cast<unsigned char*>(a[3].pointer), {}, {element}, {}, element};
  int rank = map.rank;
  if (rank < 1 || rank > 5 || count != 7 + 4 * rank) fault("a tensor map of rank %d from %d arguments", rank, count);
  if (dtype != "float16" && dtype != "bfloat16" && dtype != "uint8") fault("the emulator has no tensor maps of %s", dtype.c_str());
  const ptx::Argument *extents = a + 4, *strides = extents + rank, *box = strides + rank - 1, *steps = box + rank;
  const ptx::Argument *interleave = steps + rank, *swizzle = interleave + 1, *fill = interleave + 3;
  for (int d = 0; d < rank; ++d) {
    map.extents[d] = extents[d].integer;
    map.box[d] = int32_t(box[d].integer);
    if (d) map.strides[d] = strides[d - 1].integer;
    if (map.extents[d] < 1 || map.box[d] < 1 || map.box[d] > 256) fault("a box of %d elements", map.box[d]);
    if (d && map.strides[d] % 16) fault("a stride of %d bytes; copies need multiples of 16", int(map.strides[d]));
    if (steps[d].integer != 1) fault("the emulator has no boxes with steps");
  }
  if (reinterpret_cast<uintptr_t>(map.data) % 16) fault("a tensor at no multiple of 16 bytes");
  if (swizzle->integer != 3 || map.box[0] * element != 128) fault("the emulator knows boxes of 128 swizzled bytes alone");
  if (interleave->integer || fill->integer) fault("the emulator knows no interleaved boxes, and zeros for what is outside");
  std::memcpy(a[0].pointer, &map, sizeof map);
}

}  // namespace

int ptx::launch(const std::function<void()>& kernel, const Argument* shape, int count, int threads) {
  kept([&] {
    if (count < 2 || count > 4) fault("%d launch parameters; expected cluster, blocks, threads, shared memory", count);
    if (count == 4) ptx::cluster = uint32_t((shape++)->integer), --count;
    const int64_t blocks = shape[0].integer;
    const uint32_t bytes = count == 3 ? uint32_t(shape[2].integer) : 0;
    if (shape[1].integer != threads) fault("%d threads for a kernel of %d", int(shape[1].integer), threads);
    if (threads % kGroup) fault("%d threads are no whole number of warp groups", threads);
    if (blocks % ptx::cluster) fault("%d blocks are no whole number of clusters", int(blocks));
    for (int64_t first = 0; first < blocks; first += ptx::cluster) {
      const int64_t start = scheduler.backward ? blocks - ptx::cluster - first : first;
      in_memory_of.assign(ptx::cluster, std::vector<unsigned char>(bytes, 0xff));
      run_blocks(kernel, start, bytes, threads);
      if (ptx::cluster > 1) run_blocks(kernel, start, bytes, threads);  // now what the others left is there
    }
  });
  return 0;
}

void* ptx::mapped(void* own, uint32_t block) {
  if (block >= cluster) fault("block %u of a cluster of %u", block, cluster);
  return in_memory_of[block].data() + (static_cast<unsigned char*>(own) - _ptr);
}

EXPORTED const char* emulator_failure() { return failure.c_str(); }

EXPORTED void emulator_go(int backward) { scheduler.backward = backward; }

EXPORTED int set_device(void*, const ptx::Argument*, int, ptx::Argument*) __asm__("__tvm_ffi___tvm_set_device");
int set_device(void*, const ptx::Argument*, int, ptx::Argument*) { return 0; }

EXPORTED int encode_tiled(void*, const ptx::Argument*, int, ptx::Argument*)
    __asm__("__tvm_ffi_runtime.cuTensorMapEncodeTiled");
int encode_tiled(void*, const ptx::Argument* arguments, int count, ptx::Argument*) {
  kept([&] { encode(arguments, count); });
  return 0;
}
