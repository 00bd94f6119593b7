// Runs the threads of a block: one after the other on a fiber, as a loop. A thread that waits keeps its fiber, and another
// fiber goes on with the next thread; so a kernel without barriers is a loop, and no kernel needs more fibers than it has
// threads that wait at the same time. Everything happens in one thread of the host device.
#pragma once

#include <sched.h>
#include <stdio.h>
#include <stdint.h>
#include <string.h>

#include "fiber_state.h"
#include "launch.h"

namespace plinth_host {
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
  // The threads that have not exited.
  unsigned live;
  uint3 index;
  // The fibers that exist, and those that run no thread.
  unsigned fibers;
  unsigned free_count;
  Fiber *free_fibers[kMaxThreads];
  ReadyFibers ready;
  BlockBarrier barrier;
  // The memory of `ready` and `barrier`. take_ready() reads beyond the last fiber.
  Fiber *ordered[2][kOrderedFibers + 8];
  Queue polling;
  Queue active;
  // Threads that wait for a number of threads. There is none with the number 0.
  Queue barriers[kNamedBarriers];
  unsigned barrier_threads[kNamedBarriers];
  Queue warps[kMaxThreads / kLanes];
  unsigned exited[kMaxThreads / kLanes];
  // How many threads wait in `warps`.
  unsigned waiting;
  // Whether a thread has ever waited. Until then all threads before the current one have exited, and `live` and `exited`
  // are not kept.
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

// Leaves the fibers of the block as they are.
[[noreturn]] static inline void leave_block(Block &block) {
  Context abandoned;
  switch_context(abandoned, block.home);
  __builtin_unreachable();
}

// Returns the last part of a path.
static inline const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

// Reports an error of a thread at a place in the source, and ends the block.
[[noreturn]] static __attribute__((noinline, cold)) void fail(Block &block, unsigned code, const uint3 &index,
                                                              const char *place, const char *text) {
  char report[768];
  snprintf(report, sizeof report, "block (%u, %u, %u), thread (%u, %u, %u), %s: %s", block.index.x, block.index.y,
           block.index.z, index.x, index.y, index.z, place, text);
  block.launch->fail(block.launch->context, code, report);
  block.failed = true;
  leave_block(block);
}

[[noreturn]] static __attribute__((noinline, cold)) void fail(Block &block, unsigned code, const uint3 &index, Site site,
                                                              const char *text) {
  char place[160];
  snprintf(place, sizeof place, "%s:%u", base_name(site.file), site.line);
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
  snprintf(text, sizeof text, "illegal address %p", address);
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
  snprintf(text, sizeof text, "divergent %s: thread (%u, %u, %u) waits in %s at %s:%u", one.what, index.x, index.y,
           index.z, other.what, base_name(other.site.file), other.site.line);
  fail(block, kLaunchFailed, index_of(block, one.rank), one.site, text);
}

// Returns the first thread that waits for all threads of the block, or null.
static __attribute__((noinline, cold)) Fiber *first_at_barrier(Block &block) {
  const BlockBarrier &barrier = block.barrier;
  if (!barrier.count()) return nullptr;
  Fiber *first = barrier.fibers[0];
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
    snprintf(text, sizeof text, "%s waits for lanes of the mask 0x%08x that never call it", one->what, one->mask);
  } else {
    snprintf(text, sizeof text, "%s waits for threads that never call it", one->what);
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
  fiber.owner = &block;
  fiber.block_extent = dim3(launch.block[0], launch.block[1], launch.block[2]);
  fiber.grid_extent = dim3(launch.grid[0], launch.grid[1], launch.grid[2]);
  block.fibers++;
  block.free_fibers[block.free_count++] = &fiber;
  return true;
}

// Returns a fiber that will run threads of the block, or null, with the block failed, if there is no memory for it.
static inline Fiber *new_fiber(Block &block) {
  if (__builtin_expect(block.free_count == 0, 0) && !add_fiber(block)) return nullptr;
  Fiber *fiber = block.free_fibers[--block.free_count];
  if (block.free_count > 1) {
    // The state and the stack of a fiber that will run soon.
    const char *later = reinterpret_cast<const char *>(block.free_fibers[block.free_count - 2]);
    for (int line = -3; line < 2; line++) __builtin_prefetch(later + line * 64);
  }
  fiber->block = block.index;
  fiber->context = new_context(reinterpret_cast<char *>(fiber), block.run_fiber);
  return fiber;
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
    block.ready.push(fiber);
  });
}

// Takes the next fiber out of those that are ready, after `self` has run.
static __attribute__((always_inline)) inline Fiber *take_ready(Block &block, Fiber &self) {
  // What the next switches read: the contexts of fibers and, as far from them as here, their stacks.
  const char *later = reinterpret_cast<const char *>(block.ready.first[2]);
  __builtin_prefetch(later);
  __builtin_prefetch(later - (reinterpret_cast<uintptr_t>(&self) - stack_pointer()));
  return block.ready.pop();
}

// Returns a fiber to run while none is ready: a new one. If all threads have started, releases those that wait for what now
// cannot happen.
static __attribute__((noinline)) Fiber *another_fiber(Block &block, Fiber &self) {
  if (block.started < block.threads) {
    Fiber *fiber = new_fiber(block);
    if (!fiber) leave_block(block);
    return fiber;
  }
  if (block.live == 0 || !block.has_waited) leave_block(block);
  if (block.active.first) {
    release_active(block);
    while (block.polling.first) block.ready.push(block.polling.pop());
  } else if (block.polling.first) {
    if (block.launch->has_failed(block.launch->context)) leave_block(block);
    sched_yield();  // for threads of other blocks
    while (block.polling.first) block.ready.push(block.polling.pop());
  } else {
    report_deadlock(block);
  }
  return take_ready(block, self);
}

// Returns the fiber that runs after `self`, which waits or has ended. It may be `self`.
static __attribute__((always_inline)) inline Fiber *next_fiber(Block &block, Fiber &self) {
  return block.ready.is_empty() ? another_fiber(block, self) : take_ready(block, self);
}

// Runs another fiber. Returns when `self` can go on.
static __attribute__((always_inline)) inline void switch_to(Fiber &self, const Fiber *next) {
  if (next != &self) switch_context(self.context, next->context);
}

// Ends a fiber that has run the last of its threads.
[[noreturn]] static __attribute__((always_inline)) inline void end_fiber(Block &block, Fiber &self) {
  block.free_fibers[block.free_count++] = &self;
  switch_context(self.context, next_fiber(block, self)->context);
  __builtin_unreachable();
}

// Begins to keep account of the threads that have exited.
static __attribute__((noinline)) void begin_to_wait(Block &block, unsigned rank) {
  block.has_waited = true;
  block.live = block.threads - rank;
  block.next_thread = index_of(block, block.started);
  for (unsigned warp = 0; warp * kLanes < block.threads; warp++) {
    const unsigned first = warp * kLanes;
    block.exited[warp] = rank <= first ? 0 : rank - first >= kLanes ? ~0u : (1u << (rank - first)) - 1;
  }
}

// Notes what the current thread waits for.
static __attribute__((always_inline)) inline Block &begin_wait(Fiber &fiber, const char *what, Site site) {
  Block &block = *fiber.owner;
  if (__builtin_expect(!block.has_waited, 0)) begin_to_wait(block, fiber.rank);
  fiber.what = what;
  fiber.site = site;
  fiber.mask = 0;
  fiber.operation = nullptr;
  fiber.argument = nullptr;
  return block;
}

// Runs the operation of a complete barrier. The arguments are in the order of the ranks, so that a sum does not depend on
// the order of arrival.
static __attribute__((noinline)) void run_block_operation(const Block &block) {
  void *arguments[kMaxThreads];
  unsigned count = 0;
  for (unsigned rank = 0; rank < block.threads; rank++) arguments[rank] = nullptr;
  for (unsigned at = 0; at < block.barrier.count(); at++) {
    arguments[block.barrier.fibers[at]->rank] = block.barrier.fibers[at]->argument;
  }
  for (unsigned rank = 0; rank < block.threads; rank++) {
    if (arguments[rank]) arguments[count++] = arguments[rank];
  }
  block.barrier.operation(arguments, count);
}

// Completes the barrier of the block, if all threads wait for it. No thread is ready then.
static inline void check_barrier(Block &block) {
  BlockBarrier &barrier = block.barrier;
  if (!barrier.count() || barrier.count() < block.live) return;
  if (barrier.different) report_divergence(block, *first_at_barrier(block), *barrier.different);
  if (barrier.operation) run_block_operation(block);
  block.time++;
  Fiber **empty = block.ready.fibers;
  block.ready.fibers = block.ready.first = barrier.fibers;
  block.ready.end = barrier.end;
  barrier.fibers = barrier.end = empty;
}

// Completes the operations of a warp for which all lanes have arrived.
static inline void check_warp(Block &block, unsigned warp) {
  Queue &queue = block.warps[warp];
  for (const Fiber *first = queue.first; first; first = first->next) {
    Lane *lanes[kLanes] = {};
    unsigned present = 0;
    const Fiber *other = nullptr;
    for (const Fiber *fiber = queue.first; fiber; fiber = fiber->next) {
      if (fiber->mask != first->mask) continue;
      if (fiber->operation != first->operation) other = fiber;
      lanes[fiber->rank % kLanes] = fiber->lane;
      present |= 1u << fiber->rank % kLanes;
    }
    if (present != (first->mask & lanes_of(block, warp) & ~block.exited[warp])) continue;
    if (other) report_divergence(block, *first, *other);
    if (first->operation) first->operation(lanes, present);
    block.warp_times[warp]++;
    if (unsigned(__builtin_popcount(present)) == queue.count) {
      block.waiting -= queue.count;
      while (queue.first) block.ready.push(queue.pop());
      return;
    }
    const unsigned mask = first->mask;
    queue.extract([&](const Fiber *fiber) { return fiber->mask == mask; },
                  [&](Fiber *fiber) {
                    block.waiting--;
                    block.ready.push(fiber);
                  });
    return check_warp(block, warp);
  }
}

// Ends the current thread.
static inline void finish_thread(Block &block, unsigned rank) {
  const unsigned warp = rank / kLanes;
  block.exited[warp] |= 1u << rank % kLanes;
  block.live--;
  if (__builtin_expect(block.waiting != 0, 0)) check_warp(block, warp);
  if (__builtin_expect(block.barrier.count() != 0, 0)) check_barrier(block);
}

// Adds the current thread to those that wait for all threads of the block. Returns the fiber that runs next.
static __attribute__((noinline)) Fiber *arrive_at_barrier(BlockOperation operation, void *argument, Site site,
                                                          const char *what) {
  Fiber &fiber = self();
  Block &block = begin_wait(fiber, what, site);
  fiber.block_operation = operation;
  fiber.argument = argument;
  BlockBarrier &barrier = block.barrier;
  if (barrier.count() == 0) {
    barrier.site = site;
    barrier.what = what;
    barrier.operation = operation;
  } else if (!barrier.different && !(operation == barrier.operation && site == barrier.site)) {
    barrier.different = &fiber;
  }
  barrier.push(&fiber);
  check_barrier(block);
  return next_fiber(block, fiber);
}

// Waits for all threads of the block that have not exited.
static __attribute__((always_inline)) inline void block_barrier(Site site = Site::here()) {
  Fiber *found = &self();
  asm("" : "+r"(found));  // so that it is kept rather than computed again
  Fiber &fiber = *found;
  Block &block = *fiber.owner;
  BlockBarrier &barrier = block.barrier;
  // While a thread is ready, this one is not the last that arrives.
  const bool is_usual = !block.ready.is_empty() && barrier.site.line == site.line && barrier.site.file == site.file &&
                        !barrier.operation;
  if (__builtin_expect(is_usual, 1)) {
    barrier.push(&fiber);
    switch_context(fiber.context, take_ready(block, fiber)->context);
  } else {
    switch_to(fiber, arrive_at_barrier(nullptr, nullptr, site, "__syncthreads"));
  }
}

// Runs an operation when all threads of the block that have not exited call this. `arguments` are in the order of the ranks.
static inline void block_operation(BlockOperation operation, void *mine, Site site, const char *what = "__syncthreads") {
  switch_to(self(), arrive_at_barrier(operation, mine, site, what));
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
    while (queue.first) block.ready.push(queue.pop());
  }
  switch_to(fiber, next_fiber(block, fiber));
}

// Runs an operation of a warp when all lanes of `mask` that have not exited call this with the same mask and operation.
static __attribute__((noinline)) void warp_operation(unsigned mask, WarpOperation operation, Lane &mine, Site site,
                                                     const char *what = "an operation of a warp") {
  if (!(mask >> lane() & 1)) trap("the mask of an operation of a warp does not include the caller's lane", site);
  Fiber &fiber = self();
  Block &block = begin_wait(fiber, what, site);
  fiber.mask = mask;
  fiber.operation = operation;
  fiber.lane = &mine;
  const unsigned warp = fiber.rank / kLanes;
  block.warps[warp].push(&fiber);
  block.waiting++;
  const int needed = __builtin_popcount(mask & lanes_of(block, warp) & ~block.exited[warp]);
  if (block.warps[warp].count >= unsigned(needed)) check_warp(block, warp);
  switch_to(fiber, next_fiber(block, fiber));
}

// Returns the lanes of the warp that are at the same place, when all others wait elsewhere or have exited.
static __attribute__((noinline)) unsigned active_mask(Site site = Site::here()) {
  Fiber &fiber = self();
  Block &block = begin_wait(fiber, "__activemask", site);
  block.active.push(&fiber);
  switch_to(fiber, next_fiber(block, fiber));
  return fiber.active;
}

// Lets other threads of the block run, for loops that poll.
static __attribute__((noinline)) void yield() {
  Fiber &fiber = self();
  Block &block = begin_wait(fiber, "a loop", Site{"", 0});
  block.polling.push(&fiber);
  switch_to(fiber, next_fiber(block, fiber));
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
