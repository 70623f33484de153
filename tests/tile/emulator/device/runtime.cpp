// What a host program asks of the runtime of CUDA: to make tensor maps, and to launch kernels. A launch runs the blocks
// one after the other, in either order, and those of a cluster together; or all together, where the caller says so. What goes wrong is kept for the caller, and
// nothing runs after it.
#include "async.h"
#include "copy.h"
#include "mma.h"
#include "wgmma.h"

using namespace emulator;

Index3 threadIdx, blockIdx, gridDim;
uint32_t ptx::cluster = 1;
uint64_t ptx::launch_number = 0;

namespace {

std::string failure;

// What a block has of its own, while another of its cluster is the current one.
struct Block {
  SharedMemory shared;
  std::vector<Warp> warps;
  std::vector<int> registers_of_warp;
  NamedBarrier named_barriers[16];
  std::vector<BulkGroups> bulk_groups;
  std::vector<AsyncGroups> async_groups;
  std::vector<WarpGroup> warp_groups;
};

std::vector<std::unique_ptr<Block>> blocks_of_cluster;
int64_t first_block = 0;
bool together = false;
constexpr int kMostNaps = 1000;
int naps = 0;  // of all threads of a launch

// Exchanges the current state with that which is kept for a block.
void exchange(Block& kept) {
  std::swap(shared, kept.shared);
  std::swap(warps, kept.warps);
  std::swap(registers_of_warp, kept.registers_of_warp);
  std::swap(named_barriers, kept.named_barriers);
  std::swap(bulk_groups, kept.bulk_groups);
  std::swap(async_groups, kept.async_groups);
  std::swap(warp_groups, kept.warp_groups);
}

void enter(int block) {
  if (block == scheduler.entered) return;
  exchange(*blocks_of_cluster[scheduler.entered]);
  exchange(*blocks_of_cluster[block]);
  scheduler.entered = block;
  _ptr = shared.memory->all;
  blockIdx = {unsigned(first_block + block), 0, 0};
}

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
  memory_barriers[scheduler.entered].clear();
  bulk_groups.assign(threads, {});
  async_groups.assign(threads, {});
  warp_groups.clear();
  warp_groups.resize(threads / kGroup);
}

void check_end() {
  for (const BulkGroups& groups : bulk_groups) {
    if (!groups.open.empty() || !groups.committed.empty()) fault("the block ended while its stores read shared memory");
  }
  for (const AsyncGroups& groups : async_groups) {
    for (const auto& group : groups.committed) {
      if (!group.empty()) fault("the block ended while its copies were under way");
    }
  }
  for (const WarpGroup& group : warp_groups) {
    if (!group.started.empty()) fault("the block ended while products were under way");
  }
}

// The blocks of one cluster.
void run_blocks(const std::function<void()>& kernel, int64_t start, uint32_t bytes, int threads) {
  first_block = start;
  scheduler.entered = 0;
  blockIdx = {unsigned(start), 0, 0};
  blocks_of_cluster.clear();
  memory_barriers.resize(std::max<size_t>(memory_barriers.size(), ptx::cluster));
  for (uint32_t k = 0; k < ptx::cluster; ++k) blocks_of_cluster.push_back(std::make_unique<Block>());
  _ptr = shared.memory->all;
  scheduler.enter = enter;
  cluster_barrier = {};
  for (uint32_t k = 0; k < ptx::cluster; ++k) {
    scheduler.enter(int(k));
    reset(bytes, threads);
  }
  scheduler.error.clear();
  scheduler.run(kernel, threads, int(ptx::cluster));
  if (!scheduler.error.empty()) throw Fault("block " + std::to_string(start + scheduler.entered) + ", " + scheduler.error);
  for (uint32_t k = 0; k < ptx::cluster; ++k) {
    scheduler.enter(int(k));
    check_end();
  }
}

void encode(const ptx::Argument* a, int count) {
  const std::string dtype = static_cast<const char*>(a[1].pointer);
  const int element = dtype == "uint8" ? 1 : dtype == "float32" ? 4 : 2;
  Map map{kMagic, int32_t(a[2].integer), static_cast<unsigned char*>(a[3].pointer), {}, {int16_t(element)}, {}, {}, element};
  int rank = map.rank;
  if (rank < 1 || rank > 5 || count != 7 + 4 * rank) fault("a tensor map of rank %d from %d arguments", rank, count);
  const bool known = dtype == "float16" || dtype == "bfloat16" || dtype == "uint8" || dtype == "float32";
  if (!known) fault("the emulator has no tensor maps of %s", dtype.c_str());
  const ptx::Argument *extents = a + 4, *strides = extents + rank, *box = strides + rank - 1, *steps = box + rank;
  const ptx::Argument *interleave = steps + rank, *swizzle = interleave + 1, *fill = interleave + 3;
  for (int d = 0; d < rank; ++d) {
    map.extents[d] = extents[d].integer;
    map.steps[d] = int16_t(steps[d].integer);
    if (map.steps[d] < 1 || map.steps[d] > 8 || (!d && map.steps[d] > 1)) fault("a step of %d elements", map.steps[d]);
    map.box[d] = int16_t((box[d].integer + map.steps[d] - 1) / map.steps[d]);
    if (d) map.strides[d] = strides[d - 1].integer;
    if (map.extents[d] < 1 || box[d].integer < 1 || box[d].integer > 256) fault("a box of %d elements", int(box[d].integer));
    if (d && map.strides[d] % 16) fault("a stride of %d bytes; copies need multiples of 16", int(map.strides[d]));
  }
  if (reinterpret_cast<uintptr_t>(map.data) % 16) fault("a tensor at no multiple of 16 bytes");
  if (swizzle->integer != 3 || map.box[0] * element != 128) fault("the emulator knows boxes of 128 swizzled bytes alone");
  if (interleave->integer || fill->integer) fault("the emulator knows no interleaved boxes, and zeros for what is outside");
  std::memcpy(a[0].pointer, &map, sizeof map);
}

}  // namespace

int ptx::launch(const Launch& launch) {
  kept([&] {
    const std::function<void()> kernel = [&] { launch.kernel(launch.arguments); };
    const Argument* shape = launch.arguments + launch.parameters;
    int count = launch.count - launch.parameters;
    const int threads = launch.threads;
    if (count < 2 || count > 4) fault("%d launch parameters; expected cluster, blocks, threads, shared memory", count);
    ptx::cluster = together ? uint32_t(shape[0].integer) : 1;
    if (count == 4) ptx::cluster = uint32_t((shape++)->integer), --count;
    const int64_t blocks = shape[0].integer;
    const uint32_t bytes = count == 3 ? uint32_t(shape[2].integer) : 0;
    if (shape[1].integer != threads) fault("%d threads for a kernel of %d", int(shape[1].integer), threads);
    if (threads % kGroup) fault("%d threads are no whole number of warp groups", threads);
    if (blocks % ptx::cluster) fault("%d blocks are no whole number of clusters", int(blocks));
    gridDim = {unsigned(blocks), 1, 1};
    ptx::launch_number = launch.number;
    naps = 0;
    for (int64_t first = 0; first < blocks; first += ptx::cluster) {
      const int64_t start = scheduler.backward ? blocks - ptx::cluster - first : first;
      run_blocks(kernel, start, bytes, threads);
    }
  });
  scheduler.end();
  blocks_of_cluster.clear();
  return 0;
}

void ptx::sleep() {
  if (++naps > kMostNaps) fault("a thread waits for ever for what other launches have");
  scheduler.look();
}

uint32_t ptx::look(const void* address) {
  scheduler.look();
  return *static_cast<const uint32_t*>(address);
}

void* ptx::mapped(void* own, uint32_t block) {
  if (block >= cluster) fault("block %u of a cluster of %u", block, cluster);
  if (int(block) == scheduler.entered) return own;
  return blocks_of_cluster[block]->shared.memory->all + (static_cast<unsigned char*>(own) - _ptr);
}

extern "C" {

const char* emulator_failure() { return failure.c_str(); }

void emulator_go(int backward, int all_together) {
  failure.clear();
  scheduler.backward = backward;
  together = all_together;
}

int set_device(void*, const ptx::Argument*, int, ptx::Argument*) __asm__("__tvm_ffi___tvm_set_device");
int set_device(void*, const ptx::Argument*, int, ptx::Argument*) { return 0; }

int encode_tiled(void*, const ptx::Argument*, int, ptx::Argument*)
    __asm__("__tvm_ffi_runtime.cuTensorMapEncodeTiled");
int encode_tiled(void*, const ptx::Argument* arguments, int count, ptx::Argument*) {
  kept([&] { encode(arguments, count); });
  return 0;
}
}
