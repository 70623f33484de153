// A kernel for AMD GPUs on the CPU: what its LLVM IR calls, by the definitions of the instruction set, and its launch.
//
// Lanes of a wave run in lockstep: none passes an exchange, a barrier or an access of volatile LDS before the others
// that execute it have come there. LDS starts as NaN. Blocks run one after the other; the order of threads is the
// scheduler's, forward or backward, so that a result which hangs on it shows.
#include <cstdint>
#include <cstring>

#include "fiber.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

using namespace emulator;

namespace {

struct Extents {
  int64_t x = 1, y = 1, z = 1;
  int64_t all() const { return x * y * z; }
};

struct Wave {
  int lanes = 0;
  int64_t arrived = 0;  // lanes at exchanges so far, of all of them together
  int64_t exchanges[kWarp] = {};
  uint64_t places[2] = {};  // two in turn, so that those of one exchange are read while the next fills
  uint32_t values[2][kWarp] = {};
};

Extents grid, block, at;
std::vector<Wave> waves;
int64_t at_barrier = 0, barriers = 0, opened = 0;
std::string failure;

}  // namespace

Index3 threadIdx;

extern "C" {

extern char __start_lds[] __attribute__((weak)), __stop_lds[] __attribute__((weak));

int32_t amdgcn_workitem_id_x() { return int32_t(threadIdx.x % block.x); }
int32_t amdgcn_workitem_id_y() { return int32_t(threadIdx.x / block.x % block.y); }
int32_t amdgcn_workitem_id_z() { return int32_t(threadIdx.x / (block.x * block.y)); }
int32_t amdgcn_workgroup_id_x() { return int32_t(at.x); }
int32_t amdgcn_workgroup_id_y() { return int32_t(at.y); }
int32_t amdgcn_workgroup_id_z() { return int32_t(at.z); }

// v_mbcnt: bits of the mask that belong to lower lanes, in either half of the wave.
int32_t amdgcn_mbcnt_lo(uint32_t mask, int32_t before) {
  const int lane = self().lane();
  return before + __builtin_popcount(lane >= 32 ? mask : mask & ((1u << lane) - 1));
}

int32_t amdgcn_mbcnt_hi(uint32_t mask, int32_t before) {
  const int lane = self().lane();
  return before + (lane < 32 ? 0 : __builtin_popcount(mask & ((1u << (lane - 32)) - 1)));
}

// ds_bpermute_b32: the value of the lane that the address names, in bytes of four a lane, wrapped around the wave.
// A lane that is not there gives 0.
uint32_t amdgcn_ds_bpermute(uint32_t address, uint32_t value) {
  Wave& wave = waves[self().warp()];
  const int lane = self().lane();
  const int64_t turn = wave.exchanges[lane]++;
  const uint64_t place = reinterpret_cast<uint64_t>(__builtin_return_address(0));
  if (wave.arrived == turn * wave.lanes) wave.places[turn & 1] = place;
  if (wave.places[turn & 1] != place) fault("lanes of a wave part: they exchange at different places of the program");
  wave.values[turn & 1][lane] = value;
  ++wave.arrived;
  scheduler.wait([&wave, turn] { return wave.arrived >= (turn + 1) * wave.lanes; }, "ds_bpermute", self().warp());
  const int from = int(address / 4 % kWarp);
  return from < wave.lanes ? wave.values[turn & 1][from] : 0;
}

// It opens in the scheduler's next turn, so that the first wave is the first behind it, and not the last to arrive.
void amdgcn_s_barrier() {
  const int64_t own = barriers;
  if (++at_barrier == block.all()) {
    at_barrier = 0;
    ++barriers;
    opened = scheduler.turn;
  }
  scheduler.wait([own] { return barriers > own && scheduler.turn > opened; }, "s_barrier");
}

// Before an access of LDS that the program says is volatile: lanes make it together.
void lockstep() { scheduler.yield(); }
}

static void run_block(const std::function<void()>& kernel) {
  std::memset(__start_lds, 0xff, size_t(__stop_lds - __start_lds));
  const int threads = int(block.all());
  waves.assign((threads + kWarp - 1) / kWarp, {});
  for (size_t k = 0; k < waves.size(); ++k) waves[k].lanes = std::min(kWarp, threads - int(k) * kWarp);
  at_barrier = barriers = 0;
  scheduler.error.clear();
  scheduler.run(kernel, threads);
  if (!scheduler.error.empty()) {
    fault("block %d, %d, %d: %s", int(at.x), int(at.y), int(at.z), scheduler.error.c_str());
  }
}

int launch(const std::function<void()>& kernel, const int64_t extents[6]) {
  if (!failure.empty()) return 0;
  grid = {extents[0], extents[1], extents[2]};
  block = {extents[3], extents[4], extents[5]};
  try {
    const int64_t blocks = grid.all();
    for (int64_t k = 0; k < blocks; ++k) {
      const int64_t index = scheduler.backward ? blocks - 1 - k : k;
      at = {index % grid.x, index / grid.x % grid.y, index / (grid.x * grid.y)};
      run_block(kernel);
    }
  } catch (const Fault& fault) {
    failure = fault.what();
  }
  scheduler.end();
  return 0;
}

EXPORTED const char* emulator_failure() { return failure.c_str(); }

EXPORTED void emulator_go(int backward) {
  failure.clear();
  scheduler.backward = backward;
}
