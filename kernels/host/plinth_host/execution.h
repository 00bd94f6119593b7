// Runs the threads of a block: one after the other on a fiber, as a loop. A thread that waits keeps its fiber, and another
// fiber goes on with the next thread; so a kernel without barriers is a loop, and no kernel needs more fibers than it has
// threads that wait at the same time. Everything happens in one thread of the host device.
#pragma once

#include <stddef.h>

#include "fiber_state.h"
#include "integer_types.h"
#include "launch.h"

// The functions of the C library that NVRTC declares. The headers call the others as builtins, or under names of their
// own, so that a kernel does not find them.
extern "C" {
int printf(const char *format, ...);
void *memcpy(void *to, const void *from, size_t bytes) noexcept;
void *memset(void *to, int value, size_t bytes) noexcept;
}

namespace plinth_host {
extern "C" int yield_processor() noexcept __asm__("sched_yield");

// The state of the block that a thread of the host device runs.
struct Block {
  const Launch *launch;
  // What a fiber runs: threads that have not started.
  void (*run_fiber)();
  // Where the thread goes on that runs the block, while fibers run.
  Context home;
  unsigned threads;
  unsigned started;
  // The index of the next thread to start, once a thread has waited.
  uint3 next_thread;
  uint3 index;
  // The fibers that exist, and those that run no thread and are not in `turns`.
  unsigned fibers;
  unsigned free_count;
  Fiber *free_fibers[kMaxThreads];
  Turns turns;
  BlockBarrier barrier;
  Queue polling;
  Queue active;
  // Threads that wait for a number of threads. There is none with the number 0.
  Queue barriers[kNamedBarriers];
  unsigned barrier_threads[kNamedBarriers];
  Queue warps[kMaxThreads / kLanes];
  // The lanes of each warp that are in its queue, and those that have exited or do not exist.
  unsigned arrived[kMaxThreads / kLanes];
  unsigned exited[kMaxThreads / kLanes];
  // How many threads wait in queues.
  unsigned waiting;
  // Whether a thread has ever waited. Until then all threads before the current one have exited, and `exited` is not kept.
  bool has_waited;
  bool failed;
  // For checks.h: how many barriers of the block, and how many operations of each warp, were complete so far.
  unsigned time;
  unsigned warp_times[kMaxThreads / kLanes];
};

static inline unsigned thread_rank() { return self().rank; }
static inline unsigned block_threads() { return self().owner->threads; }
static inline unsigned lane() { return self().rank % kLanes; }

// Returns the lanes of a warp that exist.
static inline unsigned lanes_of(const Block &block, unsigned warp) {
  const unsigned rest = block.threads - warp * kLanes;
  return rest >= kLanes ? ~0u : (1u << rest) - 1;
}
static inline unsigned warp_mask() { return lanes_of(*self().owner, self().rank / kLanes); }

// Ends a block that has failed, or whose launch has. Its fibers stay as they are.
[[noreturn]] static inline void leave_block(Block &block) {
  block.failed = true;
  Context abandoned;
  switch_context(abandoned, block.home);
  __builtin_unreachable();
}

// Returns the last part of a path.
static inline const char *base_name(const char *path) {
  const char *slash = __builtin_strrchr(path, '/');
  return slash ? slash + 1 : path;
}

// Reports an error of a thread at a place in the source, and ends the block.
[[noreturn]] static __attribute__((noinline, cold)) void fail(Block &block, unsigned code, const uint3 &index,
                                                              const char *place, const char *text) {
  char report[768];
  __builtin_snprintf(report, sizeof report, "block (%u, %u, %u), thread (%u, %u, %u), %s: %s", block.index.x, block.index.y,
                     block.index.z, index.x, index.y, index.z, place, text);
  block.launch->fail(block.launch->context, code, report);
  leave_block(block);
}

[[noreturn]] static __attribute__((noinline, cold)) void fail(Block &block, unsigned code, const uint3 &index, Site site,
                                                              const char *text) {
  char place[160];
  __builtin_snprintf(place, sizeof place, "%s:%u", base_name(site.file), site.line);
  fail(block, code, index, place, text);
}

// Reports an error of the current thread at an instruction, and ends the block.
[[noreturn]] static __attribute__((noinline, cold)) void fail_at(const void *instruction, unsigned code,
                                                                 const char *text) {
  Block &block = *self().owner;
  char place[160];
  block.launch->locate(block.launch->context, instruction, place, sizeof place);
  fail(block, code, self().thread, place, text);
}

[[noreturn]] static inline __attribute__((cold)) void report_fault(const void *address, const void *instruction,
                                                                  unsigned is_division) {
  if (is_division) fail_at(instruction, kLaunchFailed, "an integer division by zero, or whose result is too large");
  const uintptr_t offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(fiber_memory());
  if (offset < kFiberBytes) fail_at(instruction, kIllegalAddress, "the thread needs more local memory than there is");
  char text[64];
  __builtin_snprintf(text, sizeof text, "illegal address %p", address);
  fail_at(instruction, kIllegalAddress, text);
}

[[noreturn]] static __attribute__((noinline, cold)) void trap(const char *text, Site site, unsigned code = kLaunchFailed) {
  fail(*self().owner, code, self().thread, site, text);
}

static inline uint3 index_of(const Block &block, unsigned rank) {
  const unsigned *extent = block.launch->block;
  return make_uint3(rank % extent[0], rank / extent[0] % extent[1], rank / extent[0] / extent[1]);
}

// Reports that two threads that must do the same do not.
[[noreturn]] static __attribute__((noinline, cold)) void report_divergence(Block &block, const Fiber &one,
                                                                           const Fiber &other) {
  char text[256];
  const uint3 index = index_of(block, other.rank);
  __builtin_snprintf(text, sizeof text, "divergent %s: thread (%u, %u, %u) waits in %s at %s:%u", one.what, index.x, index.y,
                     index.z, other.what, base_name(other.site.file), other.site.line);
  fail(block, kLaunchFailed, index_of(block, one.rank), one.site, text);
}

// Returns the first thread that waits for all threads of the block, or null.
static __attribute__((noinline, cold)) Fiber *first_at_barrier(Block &block) {
  const BlockBarrier &barrier = block.barrier;
  if (!barrier.what) return nullptr;
  Fiber *first = block.turns.first;
  while (first->rank == kNoThread) first = first->next;
  first->what = barrier.what;
  first->site = barrier.site;
  first->mask = 0;
  return first;
}

// Reports that no thread of the block can go on.
[[noreturn]] static __attribute__((noinline, cold)) void report_deadlock(Block &block) {
  const Fiber *one = first_at_barrier(block), *other = one ? block.barrier.different : nullptr;
  const auto see = [&](const Queue &queue) {
    for (Fiber *fiber = queue.first; fiber; fiber = fiber->next) {
      if (!one) {
        one = fiber;
      } else if (!other && (fiber->what != one->what || !(fiber->site == one->site) || fiber->mask != one->mask)) {
        other = fiber;
      }
    }
  };
  for (const Queue &queue : block.barriers) see(queue);
  for (const Queue &queue : block.warps) see(queue);
  if (other) report_divergence(block, *one, *other);
  char text[160];
  if (one->mask) {
    __builtin_snprintf(text, sizeof text, "%s waits for lanes of the mask 0x%08x that never call it", one->what, one->mask);
  } else {
    __builtin_snprintf(text, sizeof text, "%s waits for threads that never call it", one->what);
  }
  fail(block, kLaunchFailed, index_of(block, one->rank), one->site, text);
}

// Adds a fiber to those that run no thread. Fails the block and returns false if there is no memory for it.
static __attribute__((noinline)) bool add_fiber(Block &block) {
  void *memory = block.launch->fiber(block.launch->context, block.fibers);
  if (!memory) {
    block.launch->fail(block.launch->context, kOutOfMemory, "");
    block.failed = true;
    return false;
  }
  Fiber &fiber = fiber_at(static_cast<char *>(memory));
  const Launch &launch = *block.launch;
  fiber.context = new_context(reinterpret_cast<char *>(&fiber), block.run_fiber);
  fiber.owner = &block;
  fiber.later = &fiber;
  fiber.block_extent = dim3(launch.block[0], launch.block[1], launch.block[2]);
  fiber.grid_extent = dim3(launch.grid[0], launch.grid[1], launch.grid[2]);
  block.fibers++;
  block.free_fibers[block.free_count++] = &fiber;
  return true;
}

// Gives a turn to a fiber that runs no thread, and returns its context. Without memory for one, fails the block and returns
// where it was started, for which nothing needs to have run.
static inline const Context &new_fiber(Block &block) {
  if (__builtin_expect(block.free_count == 0, 0) && !add_fiber(block)) return block.home;
  Fiber *fiber = block.free_fibers[--block.free_count];
  if (block.free_count > 1) {
    // The state and the stack of a fiber that will run soon.
    const char *later = reinterpret_cast<const char *>(block.free_fibers[block.free_count - 2]);
    for (int line = -3; line < 2; line++) __builtin_prefetch(later + line * 64);
  }
  block.turns.push(fiber);
  return fiber->context;
}

// Gives a turn to threads that have waited in a queue.
static inline void release(Block &block, Fiber *fiber) {
  block.waiting--;
  block.turns.push(fiber);
}
static inline void release_all(Block &block, Queue &queue) {
  block.waiting -= queue.count;
  block.turns.push_all(queue);
}

// Releases the threads that wait for the lanes that are active now. Called when no thread can go on otherwise.
static inline void release_active(Block &block) {
  const Fiber *first = block.active.first;
  const unsigned warp = first->rank / kLanes;
  const Site site = first->site;
  unsigned mask = 0;
  const auto is_same = [&](const Fiber *fiber) { return fiber->rank / kLanes == warp && fiber->site == site; };
  for (const Fiber *fiber = first; fiber; fiber = fiber->next) {
    if (is_same(fiber)) mask |= 1u << fiber->rank % kLanes;
  }
  block.active.extract(is_same, [&](Fiber *fiber) {
    fiber->active = mask;
    release(block, fiber);
  });
}

// Runs the operation of a complete barrier. The arguments are in the order of the ranks, so that a sum does not depend on
// the order of arrival.
static __attribute__((noinline)) void run_block_operation(const Block &block) {
  void *arguments[kMaxThreads];
  unsigned count = 0;
  for (unsigned rank = 0; rank < block.threads; rank++) arguments[rank] = nullptr;
  for (const Fiber *fiber = block.turns.first; fiber; fiber = fiber->next) {
    if (fiber->rank != kNoThread) arguments[fiber->rank] = fiber->argument;
  }
  for (unsigned rank = 0; rank < block.threads; rank++) {
    if (arguments[rank]) arguments[count++] = arguments[rank];
  }
  block.barrier.operation(arguments, count);
}

// Completes the barrier of the block: all threads wait for it.
static inline void complete_barrier(Block &block) {
  BlockBarrier &barrier = block.barrier;
  if (barrier.different) report_divergence(block, *first_at_barrier(block), *barrier.different);
  if (barrier.operation) run_block_operation(block);
  barrier.what = nullptr;
  barrier.usual.file = nullptr;
  block.time++;
  block.turns.previous = nullptr;
}

// Loads what the switches after the next one read into the processor's cache: the context of a fiber and, as far from it
// as here, its stack.
static __attribute__((always_inline)) inline void prefetch_later(const Fiber &self) {
  const char *later = reinterpret_cast<const char *>(self.later);
  __builtin_prefetch(later);
  __builtin_prefetch(later - (reinterpret_cast<uintptr_t>(&self) - stack_pointer()));
}

// Returns what runs when all fibers have had their turn: a new one. If all threads have started, completes the barrier of
// the block, or releases those that wait for what now cannot happen, or ends the block.
static __attribute__((noinline)) const Context &another(Block &block) {
  if (block.started < block.threads) return new_fiber(block);
  if (block.waiting == 0) {
    if (!block.barrier.what) return block.home;
    complete_barrier(block);
  } else if (block.active.first) {
    release_active(block);
    release_all(block, block.polling);
  } else if (block.polling.first) {
    if (block.launch->has_failed(block.launch->context)) leave_block(block);
    yield_processor();  // for threads of other blocks
    release_all(block, block.polling);
  } else {
    report_deadlock(block);
  }
  return block.turns.current()->context;
}

// Returns what runs after a fiber that is not in `turns` any more.
static inline const Context &next_turn(Block &block) {
  const Fiber *next = block.turns.current();
  return next ? next->context : another(block);
}

// Runs another fiber. Returns when `self` can go on.
static __attribute__((always_inline)) inline void switch_to(Fiber &self, const Context &next) {
  if (&next != &self.context) switch_context(self.context, next);
}

// Begins to keep account of the threads that have exited.
static __attribute__((noinline)) void begin_to_wait(Block &block, unsigned rank) {
  block.has_waited = true;
  block.next_thread = index_of(block, block.started);
  for (unsigned warp = 0; warp * kLanes < block.threads; warp++) {
    const unsigned first = warp * kLanes;
    const unsigned exited = rank <= first ? 0 : rank - first >= kLanes ? ~0u : (1u << (rank - first)) - 1;
    block.exited[warp] = exited | ~lanes_of(block, warp);
    block.arrived[warp] = 0;
  }
}

// Notes what the current thread waits for, in a queue.
static __attribute__((always_inline)) inline Block &begin_wait(Fiber &fiber, const char *what, Site site) {
  Block &block = *fiber.owner;
  if (__builtin_expect(!block.has_waited, 0)) begin_to_wait(block, fiber.rank);
  block.turns.remove_current(fiber);
  block.waiting++;
  fiber.what = what;
  fiber.site = site;
  fiber.mask = 0;
  fiber.operation = nullptr;
  fiber.argument = nullptr;
  return block;
}

// Completes the operations of a warp for which all lanes have arrived.
static inline void check_warp(Block &block, unsigned warp) {
  Queue &queue = block.warps[warp];
  for (const Fiber *first = queue.first; first; first = first->next) {
    Lane *lanes[kLanes];
    unsigned present = 0;
    const Fiber *other = nullptr;
    for (const Fiber *fiber = queue.first; fiber; fiber = fiber->next) {
      if (fiber->mask != first->mask) continue;
      if (fiber->operation != first->operation) other = fiber;
      lanes[fiber->rank % kLanes] = fiber->lane;
      present |= 1u << fiber->rank % kLanes;
    }
    if (present != (first->mask & ~block.exited[warp])) continue;
    if (other) report_divergence(block, *first, *other);
    if (first->operation) first->operation(lanes, present);
    block.warp_times[warp]++;
    block.arrived[warp] &= ~present;
    if (!block.arrived[warp]) return release_all(block, queue);
    const unsigned mask = first->mask;
    queue.extract([&](const Fiber *fiber) { return fiber->mask == mask; }, [&](Fiber *fiber) { release(block, fiber); });
    return check_warp(block, warp);
  }
}

// Takes a fiber that runs no thread out of `turns`, and returns what runs next.
static __attribute__((noinline)) const Context &remove_fiber(Block &block, Fiber &fiber) {
  block.turns.remove_current(fiber);
  block.free_fibers[block.free_count++] = &fiber;
  return next_turn(block);
}

// Notes that the thread of a fiber has exited.
static inline void finish_thread(Block &block, Fiber &fiber) {
  const unsigned warp = fiber.rank / kLanes;
  block.exited[warp] |= 1u << fiber.rank % kLanes;
  fiber.rank = kNoThread;
  if (__builtin_expect(block.waiting != 0, 0)) check_warp(block, warp);
}

// Returns what runs after a fiber whose thread has exited, or its own context if it has to start another thread. It keeps
// its place in `turns` once all threads have started: for the next block.
static __attribute__((always_inline)) inline const Context &leave_thread(Block &block, Fiber &fiber) {
  const Fiber *next = fiber.next;
  if (__builtin_expect(block.started == block.threads, 1)) {
    block.turns.previous = &fiber;
    return next ? next->context : another(block);
  }
  if (!next || next->rank == kNoThread) return fiber.context;
  return remove_fiber(block, fiber);
}

// Notes that the current thread waits for all threads of the block. Returns what runs next.
static __attribute__((noinline)) const Context &arrive_at_barrier(Fiber &fiber, BlockOperation operation, void *argument,
                                                                  Site site, const char *what) {
  Block &block = *fiber.owner;
  BlockBarrier &barrier = block.barrier;
  if (__builtin_expect(!block.has_waited, 0)) begin_to_wait(block, fiber.rank);
  if (!barrier.what) {
    barrier.usual = operation ? Site{nullptr, 0} : site;
    barrier.site = site;
    barrier.what = what;
    barrier.operation = operation;
  } else if (!barrier.different && !(operation == barrier.operation && site == barrier.site)) {
    barrier.different = &fiber;
    fiber.what = what;
    fiber.site = site;
    fiber.mask = 0;
  }
  fiber.argument = argument;
  block.turns.previous = &fiber;
  return fiber.next ? fiber.next->context : another(block);
}

// Waits for all threads of the block that have not exited.
static __attribute__((always_inline)) inline void block_barrier(Site site = Site::here()) {
  Fiber &fiber = known_self();
  const Fiber *next = fiber.next;
  Block &block = *fiber.owner;
  const Site &usual = block.barrier.usual;
  if (__builtin_expect(next && usual.line == site.line && usual.file == site.file, 1)) {
    block.turns.previous = &fiber;
    prefetch_later(fiber);
    switch_context(fiber.context, next->context);
  } else {
    switch_to(fiber, arrive_at_barrier(fiber, nullptr, nullptr, site, "__syncthreads"));
  }
}

// Runs an operation when all threads of the block that have not exited call this. `arguments` are in the order of the ranks.
static inline void block_operation(BlockOperation operation, void *mine, Site site, const char *what = "__syncthreads") {
  Fiber &fiber = known_self();
  switch_to(fiber, arrive_at_barrier(fiber, operation, mine, site, what));
}

// Waits for `threads` threads at the barrier `id`, 1 to 15.
static __attribute__((noinline)) void named_barrier(unsigned id, unsigned threads, Site site) {
  if (id == 0 || id >= kNamedBarriers) trap("there is no such barrier", site);
  Fiber &fiber = self();
  Block &block = begin_wait(fiber, "a named barrier", site);
  block.barrier_threads[id] = threads;
  Queue &queue = block.barriers[id];
  queue.push(&fiber);
  if (queue.count >= threads) {
    block.time++;
    release_all(block, queue);
  }
  switch_to(fiber, next_turn(block));
}

// Adds the current thread to those that wait for lanes of its warp. Returns what runs next.
static __attribute__((noinline)) const Context &arrive_in_warp(Fiber &fiber, unsigned mask, WarpOperation operation,
                                                               Lane &mine, Site site, const char *what) {
  if (!(mask >> fiber.rank % kLanes & 1)) {
    trap("the mask of an operation of a warp does not include the caller's lane", site);
  }
  const Fiber *next = fiber.next;
  Block &block = begin_wait(fiber, what, site);
  fiber.mask = mask;
  fiber.operation = operation;
  fiber.lane = &mine;
  const unsigned warp = fiber.rank / kLanes;
  block.warps[warp].push(&fiber);
  block.arrived[warp] |= 1u << fiber.rank % kLanes;
  if (!(mask & ~block.exited[warp] & ~block.arrived[warp])) check_warp(block, warp);
  return next ? next->context : next_turn(block);
}

// Runs an operation of a warp when all lanes of `mask` that have not exited call this with the same mask and operation.
static __attribute__((always_inline)) inline void warp_operation(unsigned mask, WarpOperation operation, Lane &mine,
                                                                 Site site,
                                                                 const char *what = "an operation of a warp") {
  Fiber &fiber = known_self();
  prefetch_later(fiber);
  switch_to(fiber, arrive_in_warp(fiber, mask, operation, mine, site, what));
}

// Returns the lanes of the warp that are at the same place, when all others wait elsewhere or have exited.
static __attribute__((noinline)) unsigned active_mask(Site site = Site::here()) {
  Fiber &fiber = self();
  Block &block = begin_wait(fiber, "__activemask", site);
  block.active.push(&fiber);
  switch_to(fiber, next_turn(block));
  return fiber.active;
}

// Lets other threads of the block run, for loops that poll.
static __attribute__((noinline)) void yield() {
  Fiber &fiber = self();
  Block &block = begin_wait(fiber, "a loop", Site{"", 0});
  block.polling.push(&fiber);
  switch_to(fiber, next_turn(block));
  block.time++;  // what the loop waits for orders it, as a barrier does
}

// Waits for all threads of the grid.
static inline void grid_barrier(Site site = Site::here()) {
  const Launch *launch = self().owner->launch;
  if (!launch->cooperative) trap("the grid can be waited for in a cooperative launch only", site);
  static const BlockOperation wait_for_others = [](void *const *, unsigned) {
    Block &block = *self().owner;
    if (!block.launch->wait_for_grid(block.launch->context)) leave_block(block);
  };
  static char none;
  block_operation(wait_for_others, &none, site, "the barrier of the grid");
}
}  // namespace plinth_host

#define threadIdx (static_cast<const uint3 &>(plinth_host::self().thread))
#define blockIdx (static_cast<const uint3 &>(plinth_host::self().block))
#define blockDim (static_cast<const dim3 &>(plinth_host::self().block_extent))
#define gridDim (static_cast<const dim3 &>(plinth_host::self().grid_extent))
