// Threads of a block, or of the blocks of a cluster, as fibers on one thread of the host. A fiber that waits says for what; the scheduler lets each
// warp go on as far as it can. Where none can, one of the things that hardware does by itself (a copy, a product) is done: as
// late as it may be. Where there is nothing to do either, nobody will ever go on, and the block ends in an error.
//
// Two orders show what a kernel takes for granted: forward, the first thread goes first, and products are done before
// copies, the oldest first; backward, all of that the other way round.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "index.h"

namespace emulator {

constexpr size_t kStack = 512 * 1024;
#ifdef EMULATOR_WARP
constexpr int kWarp = EMULATOR_WARP;
#else
constexpr int kWarp = 32;
#endif
constexpr int kGroup = 128;

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename... A>
[[noreturn]] void fault(const char* format, A... values) {
  char text[1024];
  std::snprintf(text, sizeof text, format, values...);
  throw Fault(text);
}

struct Fiber {
  int index;      // in its block
  int block = 0;  // in its cluster
  bool started = false, done = false;
  std::function<bool()> ready = [] { return true; };
  const char* waiting_for = "";
  int64_t which = 0;  // barrier
  bool looking = false;             // it has done nothing but look at memory
  int64_t cluster_generation = -1;  // of the cluster's barrier at the thread's arrival
  std::unique_ptr<char[]> stack{new char[kStack]};
  jmp_buf resume;
  ucontext_t entry;
  int lane() const { return index % kWarp; }
  int warp() const { return index / kWarp; }
  int group() const { return index / kGroup; }
};

struct Event {  // what hardware does by itself
  int block;    // whose memory it is about
  std::function<void()> happen;
};

struct Scheduler {
  std::vector<Fiber> fibers;
  std::deque<Event> copies, products;
  std::function<void(int)> enter = [](int) {};  // makes the state of a block of the cluster the current one
  int entered = 0;                              // the block whose state that is
  int threads = 0;                              // of a block
  size_t live = 0;                              // fibers that have not ended
  const std::function<void()>* kernel = nullptr;
  Fiber* current = nullptr;
  jmp_buf home;
  ucontext_t home_context;
  std::string error;
  bool backward = false;
  int64_t turn = 0;  // in which every warp may go on once

  void run(const std::function<void()>& body, int threads, int blocks = 1);
  void add(std::deque<Event>& queue, std::function<void()> happen) { queue.push_back({current->block, std::move(happen)}); }
  void wait(std::function<bool()> ready, const char* what, int64_t which = 0);
  void look();   // at memory that others may have written since: once every other warp that can go on has gone on
  void yield();  // once every other lane of the warp that can go on has gone on as far as here
  void end() { std::vector<Fiber>().swap(fibers); }  // of a launch: a library stays loaded, and would keep the stacks

 private:
  void resume(Fiber& fiber);
  bool run_warp(int warp);
  bool complete_one();
  std::string stuck() const;
};

inline Scheduler scheduler;

inline Fiber& self() { return *scheduler.current; }

inline void enter_fiber() {
  Fiber& fiber = self();
  try {
    (*scheduler.kernel)();
  } catch (const Fault& fault) {
    scheduler.error = "thread " + std::to_string(fiber.index) + ": " + fault.what();
  }
  fiber.done = true;
  --scheduler.live;
  _longjmp(scheduler.home, 1);
}

inline void Scheduler::resume(Fiber& fiber) {
  current = &fiber;
  threadIdx.x = unsigned(fiber.index);
  if (_setjmp(home) == 0) {
    if (fiber.started) _longjmp(fiber.resume, 1);
    fiber.started = true;
    getcontext(&fiber.entry);
    fiber.entry.uc_stack.ss_sp = fiber.stack.get();
    fiber.entry.uc_stack.ss_size = kStack;
    fiber.entry.uc_link = nullptr;
    makecontext(&fiber.entry, enter_fiber, 0);
    setcontext(&fiber.entry);
  }
  current = nullptr;
}

inline void Scheduler::wait(std::function<bool()> ready, const char* what, int64_t which) {
  Fiber& fiber = self();
  if (ready()) return;
  fiber.ready = std::move(ready);
  fiber.waiting_for = what;
  fiber.which = which;
  if (_setjmp(fiber.resume) == 0) _longjmp(home, 1);
}

inline void Scheduler::look() {
  Fiber& fiber = self();
  fiber.looking = true;
  fiber.ready = [this, now = turn] { return turn > now; };
  fiber.waiting_for = "memory";
  if (_setjmp(fiber.resume) == 0) _longjmp(home, 1);
}

inline void Scheduler::yield() {
  Fiber& fiber = self();
  fiber.ready = [] { return true; };
  if (_setjmp(fiber.resume) == 0) _longjmp(home, 1);
}

// Whether any of its lanes went on.
inline bool Scheduler::run_warp(int warp) {
  bool any = false;
  enter(fibers[warp * kWarp].block);
  const int lanes = std::min(kWarp, int(fibers.size()) - warp * kWarp);
  for (bool advanced = true; advanced;) {
    advanced = false;
    for (int lane = 0; lane < lanes; ++lane) {
      Fiber& fiber = fibers[warp * kWarp + (backward ? lanes - 1 - lane : lane)];
      if (fiber.done || !fiber.ready()) continue;
      fiber.looking = false;
      resume(fiber);
      advanced = true;
      any = any || !fiber.looking;
      if (!error.empty()) return true;
    }
  }
  return any;
}

inline bool Scheduler::complete_one() {
  auto* queue = products.empty() || (backward && !copies.empty()) ? &copies : &products;
  if (queue->empty()) return false;
  auto event = std::move(backward ? queue->back() : queue->front());
  backward ? queue->pop_back() : queue->pop_front();
  enter(event.block);
  event.happen();
  return true;
}

inline std::string Scheduler::stuck() const {
  std::string text = "deadlock: no thread can go on";
  std::string last;
  for (const Fiber& fiber : fibers) {
    std::string now = std::string(fiber.waiting_for) + " " + std::to_string(fiber.which);
    if (fiber.done || now == last) continue;
    last = now;
    text += "; from thread " + std::to_string(fiber.index) + " of block " + std::to_string(fiber.block) + " on: " + now;
  }
  return text;
}

inline void Scheduler::run(const std::function<void()>& body, int of_block, int blocks) {
  kernel = &body;
  threads = of_block;
  const int all = threads * blocks;
  live = size_t(all);
  if (int(fibers.size()) != all) fibers = std::vector<Fiber>(all);  // stacks serve one cluster after the other
  for (int k = 0; k < all; ++k) {
    fibers[k].index = k % threads;
    fibers[k].block = k / threads;
    fibers[k].started = fibers[k].done = fibers[k].looking = false;
    fibers[k].ready = [] { return true; };
    fibers[k].waiting_for = "";
  }
  copies.clear();
  products.clear();
  try {
    for (bool all_done = false; !all_done && error.empty();) {
      bool advanced = false;
      all_done = true;
      ++turn;
      const int warps = (all + kWarp - 1) / kWarp;
      for (int k = 0; k < warps; ++k) {
        advanced = run_warp(backward ? warps - 1 - k : k) || advanced;
        if (!error.empty()) return;
      }
      bool looking = false;
      for (const Fiber& fiber : fibers) all_done = all_done && fiber.done, looking = looking || fiber.looking;
      if (!advanced && !all_done && !complete_one() && !looking) error = stuck();
    }
    if (error.empty() && !(copies.empty() && products.empty())) error = "the block ended while copies were under way";
  } catch (const Fault& fault) {
    error = fault.what();
  }
}

}  // namespace emulator
