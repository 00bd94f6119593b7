// The fibers of a block: the threads that they run, what those wait for, and the queues in which they wait.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "fiber.h"
#include "vector_types.h"

constexpr int warpSize = 32;

namespace plinth_host {
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kLanes = 32;
// The size of an array of fibers that wait. A thread is in one of them at most, so that half of it may be in use.
constexpr unsigned kOrderedFibers = 2 * kMaxThreads;
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

// A fiber, at the end of its memory, and the thread that it runs. The first cache line has what a switch reads.
struct alignas(64) Fiber {
  // Where the fiber goes on, if it does not run.
  Context context;
  struct Block *owner;
  unsigned rank;
  // Of an operation of a warp; otherwise 0.
  unsigned mask;
  // What the thread waits for, and its queue. Not written where block_barrier() is quick: then it waits as
  // `Block::barrier` says.
  Fiber *next;
  const char *what;
  Site site;
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
  // What a kernel sees of its thread.
  uint3 thread;
  uint3 block;
  dim3 block_extent;
  dim3 grid_extent;
};

// Returns the fiber that lies in a memory: at the end of its stack. Neighbours lie at different offsets, in different pages
// and lines; at equal ones they would compete for the same few places in the processor's caches, of data and of addresses.
static inline Fiber &fiber_at(char *memory) {
  constexpr uintptr_t kColors = 32, kDistance = 4096 + 128;
  static_assert(sizeof(Fiber) + (kColors - 1) * kDistance <= kStateBytes, "the state of a thread lies behind its stack");
  // With the higher bits of the number too: as neighbours, fibers that are 32 apart would use the same places otherwise.
  const uintptr_t number = reinterpret_cast<uintptr_t>(memory) / kFiberBytes;
  const uintptr_t color = (number ^ number / kColors) % kColors;
  return *reinterpret_cast<Fiber *>(memory + kFiberBytes - sizeof(Fiber) - color * kDistance);
}
static inline Fiber &self() { return fiber_at(fiber_memory()); }

// Fibers whose threads wait.
struct Queue {
  Fiber *first = nullptr;
  Fiber *last = nullptr;
  unsigned count = 0;

  void push(Fiber *fiber) {
    fiber->next = nullptr;
    (first ? last->next : first) = fiber;
    last = fiber;
    count++;
  }
  Fiber *pop() {
    Fiber *fiber = first;
    first = fiber->next;
    count--;
    return fiber;
  }
  // Takes the fibers that satisfy a condition out of the queue and gives them to `take`, in their order.
  template <typename Condition, typename Take> void extract(Condition condition, Take take) {
    Queue rest;
    while (first) {
      Fiber *fiber = pop();
      if (condition(fiber)) {
        take(fiber);
      } else {
        rest.push(fiber);
      }
    }
    *this = rest;
  }
};

// Fibers in an array: a processor that follows a list from one stack to the next waits for each of them.
struct FiberArray {
  Fiber **fibers;
  Fiber **end;

  unsigned count() const { return unsigned(end - fibers); }
  void push(Fiber *fiber) { *end++ = fiber; }
};

// Fibers whose threads can go on, in the order in which they do.
struct ReadyFibers : FiberArray {
  Fiber **first;

  bool is_empty() const { return first == end; }
  Fiber *pop() { return *first++; }
  void push(Fiber *fiber) {
    if (end == fibers + kOrderedFibers) {
      const size_t count = size_t(end - first);
      memmove(fibers, first, count * sizeof *fibers);
      first = fibers;
      end = fibers + count;
    }
    *end++ = fiber;
  }
};

// The threads that wait for all threads of the block.
struct BlockBarrier : FiberArray {
  // Where the first of them waits, and what all will run. Kept until a thread waits elsewhere.
  Site site = {nullptr, 0};
  const char *what = nullptr;
  BlockOperation operation = nullptr;
  // The first thread that waits in another place, or null.
  const Fiber *different = nullptr;
};
}  // namespace plinth_host
