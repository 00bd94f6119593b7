// Runs the threads of a block: one after the other on a fiber, as a loop. A thread that waits keeps its fiber, and another
// fiber goes on with the next thread; so a kernel without barriers is a loop, and no kernel needs more fibers than it has
// threads that wait at the same time. Everything happens in one thread of the host device.
#pragma once

#include <sched.h>
#include <stdio.h>
#include <stdint.h>
#include <string.h>

#include "fiber.h"
#include "launch.h"
#include "vector_types.h"

constexpr int warpSize = 32;

namespace plinth_host {
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kLanes = 32;
constexpr unsigned kNamedBarriers = 16;

// A place in the source of a kernel.
struct Site {
  const char *file;
  unsigned line;
  static constexpr Site here(const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return Site{file, line};
  }
  bool operator==(const Site &other) const {
    return line == other.line && (file == other.file || !strcmp(file, other.file));
  }
};

// What a lane brings to an operation of its warp. It lies on the lane's own stack.
struct Lane {
  const void *in;
  void *out;
  long argument;
};

typedef void (*WarpOperation)(Lane *const *lanes, unsigned present);
typedef void (*BlockOperation)(void *const *arguments, unsigned count);

// A thread that waits. It lies on the thread's own stack. It has the size of a cache line, because a switch to another
// thread reads it.
struct Waiter {
  void *stack;
  Waiter *next;
  const char *what;
  Site site;
  unsigned rank;
  // Of an operation of a warp; otherwise 0.
  unsigned mask;
  // What all that wait together run, or null.
  union {
    WarpOperation operation;
    BlockOperation block_operation;
  };
  // What the thread brings to it, or the result of active_mask.
  union {
    Lane *lane;
    void *argument;
    unsigned active;
  };
};
static_assert(sizeof(Waiter) == 64, "a thread that waits is visited often");

// A fiber, at the end of its memory, and the thread that it runs.
struct Fiber {
  struct Block *owner;
  unsigned number;
  unsigned rank;
  // What a kernel sees of its thread.
  uint3 thread;
  uint3 block;
  dim3 block_extent;
  dim3 grid_extent;
};
static_assert(sizeof(Fiber) == 64, "fiber_at places it on a cache line");

// Returns the fiber that lies in a memory: at the end of its stack, so that both are in one page. Neighbours lie at
// different offsets; at equal ones they would compete for the same few lines of the processor's cache.
static inline Fiber &fiber_at(char *memory) {
  const uintptr_t color = reinterpret_cast<uintptr_t>(memory) / kFiberBytes % 32;
  return *reinterpret_cast<Fiber *>(memory + kFiberBytes - sizeof(Fiber) - color * 128);
}
static inline Fiber &self() { return fiber_at(fiber_memory()); }

struct Queue {
  Waiter *first = nullptr;
  Waiter *last = nullptr;
  unsigned count = 0;

  void push(Waiter *waiter) {
    waiter->next = nullptr;
    (first ? last->next : first) = waiter;
    last = waiter;
    count++;
  }
  Waiter *pop() {
    Waiter *waiter = first;
    first = waiter->next;
    count--;
    return waiter;
  }
  // Moves all waiters of another queue to the end of this one.
  void take_all(Queue &other) {
    if (!other.first) return;
    (first ? last->next : first) = other.first;
    last = other.last;
    count += other.count;
    other.first = nullptr;
    other.count = 0;
  }
  // Takes the waiters that satisfy a condition out of the queue and gives them to `take`, in their order.
  template <typename Condition, typename Take> void extract(Condition condition, Take take) {
    Queue rest;
    while (first) {
      Waiter *waiter = pop();
      if (condition(waiter)) {
        take(waiter);
      } else {
        rest.push(waiter);
      }
    }
    *this = rest;
  }
};

// The state of the block that a thread of the host device runs.
struct Block {
  const Launch *launch;
  // Runs threads that have not started, in a fiber.
  void (*run_threads)(Block &block, struct Fiber &fiber);
  // The stack of the thread that runs the block, while fibers run.
  void *home;
  unsigned threads;
  unsigned started;
  // The threads that have not exited.
  unsigned live;
  uint3 index;
  // Fibers that run no thread, and the number of those that were used so far.
  unsigned short free_fibers[kMaxThreads];
  unsigned free_count;
  unsigned fibers;
  Queue ready;
  Queue polling;
  Queue active;
  Queue barriers[kNamedBarriers];
  // The first thread that waits for all threads of the block in another place than the first one, or null.
  const Waiter *different;
  unsigned barrier_threads[kNamedBarriers];
  Queue warps[kMaxThreads / kLanes];
  unsigned exited[kMaxThreads / kLanes];
  // Whether a thread waits in `barriers` or `warps`, so that the end of another may be what it waits for.
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
  void *abandoned;
  plinth_host_switch(&abandoned, block.home);
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
[[noreturn]] static __attribute__((noinline, cold)) void report_divergence(Block &block, const Waiter &one,
                                                                           const Waiter &other) {
  char text[256];
  const uint3 index = index_of(block, other.rank);
  snprintf(text, sizeof text, "divergent %s: thread (%u, %u, %u) waits in %s at %s:%u", one.what, index.x, index.y,
           index.z, other.what, base_name(other.site.file), other.site.line);
  fail(block, kLaunchFailed, index_of(block, one.rank), one.site, text);
}

// Reports that no thread of the block can go on.
[[noreturn]] static __attribute__((noinline, cold)) void report_deadlock(Block &block) {
  Waiter *one = nullptr, *other = nullptr;
  const auto see = [&](const Queue &queue) {
    for (Waiter *waiter = queue.first; waiter; waiter = waiter->next) {
      if (!one) {
        one = waiter;
      } else if (!other && (waiter->what != one->what || !(waiter->site == one->site) || waiter->mask != one->mask)) {
        other = waiter;
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

static void run_fiber();

// Returns the stack pointer of a fiber that will run threads of the block. Ends the block if there is no memory for it.
static inline void *prepare_fiber(Block &block, unsigned number) {
  void *memory = block.launch->fiber(block.launch->context, number);
  if (!memory) {
    block.launch->fail(block.launch->context, kOutOfMemory, "");
    block.failed = true;
    return block.home;
  }
  Fiber &fiber = fiber_at(static_cast<char *>(memory));
  fiber.owner = &block;
  fiber.number = number;
  fiber.block = block.index;
  fiber.block_extent = dim3(block.launch->block[0], block.launch->block[1], block.launch->block[2]);
  fiber.grid_extent = dim3(block.launch->grid[0], block.launch->grid[1], block.launch->grid[2]);
  return new_fiber(reinterpret_cast<char *>(&fiber), run_fiber);
}

// Releases the threads that wait for the lanes that are active now. Called when no thread can go on otherwise.
static inline void release_active(Block &block) {
  const Waiter *first = block.active.first;
  const unsigned warp = first->rank / kLanes;
  const Site site = first->site;
  unsigned mask = 0;
  const auto is_same = [&](const Waiter *waiter) { return waiter->rank / kLanes == warp && waiter->site == site; };
  for (const Waiter *waiter = first; waiter; waiter = waiter->next) {
    if (is_same(waiter)) mask |= 1u << waiter->rank % kLanes;
  }
  block.active.extract(is_same, [&](Waiter *waiter) {
    waiter->active = mask;
    block.ready.push(waiter);
  });
}

// Runs the first thread that is ready. `from` receives the stack of `self`, or of a fiber that has nothing more to do.
// Returns when `self` can go on.
static __attribute__((always_inline)) inline void run_ready(Block &block, void **from, const Waiter *self) {
  Waiter *waiter = block.ready.pop();
  // What the next switch reads: the registers below the next waiter, the waiter, and the stack above it.
  const char *next = reinterpret_cast<const char *>(block.ready.first);
  __builtin_prefetch(next - 64);
  __builtin_prefetch(next);
  __builtin_prefetch(next + 64);
  __builtin_prefetch(next + 128);
  if (waiter != self) plinth_host_switch(from, waiter->stack);
}

// The same if no thread is ready: starts another one, or releases those that wait for what now cannot happen.
static __attribute__((noinline)) void run_another(Block &block, void **from, const Waiter *self = nullptr) {
  if (!block.ready.first) {
    if (block.started < block.threads) {
      unsigned fiber;
      if (block.free_count) {
        fiber = block.free_fibers[--block.free_count];
      } else {
        fiber = block.fibers++;
      }
      return plinth_host_switch(from, prepare_fiber(block, fiber));
    }
    if (block.live == 0 || !block.has_waited) return plinth_host_switch(from, block.home);
    if (block.active.first) {
      release_active(block);
      while (block.polling.first) block.ready.push(block.polling.pop());
    } else if (block.polling.first) {
      if (block.launch->has_failed(block.launch->context)) leave_block(block);
      sched_yield();  // for threads of other blocks
      block.ready = block.polling;
      block.polling = Queue();
    } else {
      report_deadlock(block);
    }
  }
  run_ready(block, from, self);
}

// Lets other threads run until this one, which is in a queue, is ready.
static __attribute__((always_inline)) inline void suspend(Block &block, Waiter &waiter) {
  if (__builtin_expect(block.ready.first != nullptr, 1)) return run_ready(block, &waiter.stack, &waiter);
  run_another(block, &waiter.stack, &waiter);
}

// Begins to keep account of the threads that have exited.
static __attribute__((noinline)) void begin_to_wait(Block &block, unsigned rank) {
  block.has_waited = true;
  block.live = block.threads - rank;
  for (unsigned warp = 0; warp * kLanes < block.threads; warp++) {
    const unsigned first = warp * kLanes;
    block.exited[warp] = rank <= first ? 0 : rank - first >= kLanes ? ~0u : (1u << (rank - first)) - 1;
  }
}

static __attribute__((always_inline)) inline Block &prepare_waiter(Waiter &waiter, const char *what, Site site) {
  const Fiber &fiber = self();
  Block &block = *fiber.owner;
  if (__builtin_expect(!block.has_waited, 0)) begin_to_wait(block, fiber.rank);
  waiter.what = what;
  waiter.site = site;
  waiter.rank = fiber.rank;
  waiter.mask = 0;
  waiter.operation = nullptr;
  waiter.argument = nullptr;
  return block;
}

// Runs the operation of a complete barrier. The arguments are in the order of the ranks, so that a sum does not depend on
// the order of arrival.
static __attribute__((noinline)) void run_block_operation(Block &block, const Waiter *first) {
  void *arguments[kMaxThreads];
  unsigned count = 0;
  for (unsigned rank = 0; rank < block.threads; rank++) arguments[rank] = nullptr;
  for (const Waiter *waiter = first; waiter; waiter = waiter->next) arguments[waiter->rank] = waiter->argument;
  for (unsigned rank = 0; rank < block.threads; rank++) {
    if (arguments[rank]) arguments[count++] = arguments[rank];
  }
  first->block_operation(arguments, count);
}

// Completes a barrier, if all threads have arrived that it is for.
static inline void check_barrier(Block &block, unsigned id) {
  Queue &queue = block.barriers[id];
  if (!queue.first || queue.count < (id ? block.barrier_threads[id] : block.live)) return;
  if (id == 0 && block.different) report_divergence(block, *queue.first, *block.different);
  if (queue.first->block_operation) run_block_operation(block, queue.first);
  block.time++;
  block.waiting -= queue.count;
  block.ready.take_all(queue);
}

// Completes the operations of a warp for which all lanes have arrived.
static inline void check_warp(Block &block, unsigned warp) {
  Queue &queue = block.warps[warp];
  for (const Waiter *first = queue.first; first; first = first->next) {
    Lane *lanes[kLanes] = {};
    unsigned present = 0;
    const Waiter *other = nullptr;
    for (const Waiter *waiter = queue.first; waiter; waiter = waiter->next) {
      if (waiter->mask != first->mask) continue;
      if (waiter->operation != first->operation) other = waiter;
      lanes[waiter->rank % kLanes] = waiter->lane;
      present |= 1u << waiter->rank % kLanes;
    }
    if (present != (first->mask & lanes_of(block, warp) & ~block.exited[warp])) continue;
    if (other) report_divergence(block, *first, *other);
    if (first->operation) first->operation(lanes, present);
    block.warp_times[warp]++;
    if (unsigned(__builtin_popcount(present)) == queue.count) {
      block.waiting -= queue.count;
      return block.ready.take_all(queue);
    }
    const unsigned mask = first->mask;
    queue.extract([&](const Waiter *waiter) { return waiter->mask == mask; },
                  [&](Waiter *waiter) {
                    block.waiting--;
                    block.ready.push(waiter);
                  });
    return check_warp(block, warp);
  }
}

// Ends the current thread.
static inline void finish_thread(Block &block, unsigned rank) {
  const unsigned warp = rank / kLanes;
  block.exited[warp] |= 1u << rank % kLanes;
  block.live--;
  if (__builtin_expect(block.waiting != 0, 0)) {
    check_warp(block, warp);
    if (block.live) check_barrier(block, 0);
  }
}

static __attribute__((always_inline)) inline void wait_in_block(Block &block, unsigned id, Waiter &waiter) {
  // Compared on arrival, while both are in the processor's cache.
  if (id == 0 && !block.different) {
    const Waiter *first = block.barriers[0].first;
    const bool is_same = !first || (waiter.block_operation == first->block_operation && waiter.site == first->site);
    if (__builtin_expect(!is_same, 0)) block.different = &waiter;
  }
  block.barriers[id].push(&waiter);
  block.waiting++;
  check_barrier(block, id);
  suspend(block, waiter);
}

static __attribute__((noinline)) void block_barrier(Site site = Site::here()) {
  Waiter waiter;
  Block &block = prepare_waiter(waiter, "__syncthreads", site);
  wait_in_block(block, 0, waiter);
}

// Runs an operation when all threads of the block that have not exited call this. `arguments` are in the order of the ranks.
static __attribute__((noinline)) void block_operation(BlockOperation operation, void *mine, Site site,
                                                      const char *what = "__syncthreads") {
  Waiter waiter;
  Block &block = prepare_waiter(waiter, what, site);
  waiter.block_operation = operation;
  waiter.argument = mine;
  wait_in_block(block, 0, waiter);
}

// Waits for `threads` threads at the barrier `id`, 1 to 15.
static __attribute__((noinline)) void named_barrier(unsigned id, unsigned threads, Site site) {
  if (id == 0 || id >= kNamedBarriers) trap("there is no such barrier", site);
  Waiter waiter;
  Block &block = prepare_waiter(waiter, "a named barrier", site);
  block.barrier_threads[id] = threads;
  wait_in_block(block, id, waiter);
}

// Runs an operation of a warp when all lanes of `mask` that have not exited call this with the same mask and operation.
static __attribute__((noinline)) void warp_operation(unsigned mask, WarpOperation operation, Lane &mine, Site site,
                                                     const char *what = "an operation of a warp") {
  if (!(mask >> lane() & 1)) trap("the mask of an operation of a warp does not include the caller's lane", site);
  Waiter waiter;
  Block &block = prepare_waiter(waiter, what, site);
  waiter.mask = mask;
  waiter.operation = operation;
  waiter.lane = &mine;
  block.warps[waiter.rank / kLanes].push(&waiter);
  block.waiting++;
  const unsigned warp = waiter.rank / kLanes;
  const int needed = __builtin_popcount(mask & lanes_of(block, warp) & ~block.exited[warp]);
  if (block.warps[warp].count >= unsigned(needed)) check_warp(block, warp);
  suspend(block, waiter);
}

// Returns the lanes of the warp that are at the same place, when all others wait elsewhere or have exited.
static __attribute__((noinline)) unsigned active_mask(Site site = Site::here()) {
  Waiter waiter;
  Block &block = prepare_waiter(waiter, "__activemask", site);
  block.active.push(&waiter);
  suspend(block, waiter);
  return waiter.active;
}

// Lets other threads of the block run, for loops that poll.
static __attribute__((noinline)) void yield() {
  Waiter waiter;
  Block &block = prepare_waiter(waiter, "a loop", Site{"", 0});
  block.polling.push(&waiter);
  suspend(block, waiter);
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
