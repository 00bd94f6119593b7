// The fibers of a block: the threads that they run, what those wait for, and the queues in which they wait.
#pragma once

#include <stddef.h>

#include "fiber.h"
#include "integer_types.h"
#include "vector_types.h"

constexpr int warpSize = 32;

namespace plinth_host {
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kLanes = 32;
constexpr unsigned kNoThread = ~0u;
constexpr unsigned kNamedBarriers = 16;

// A place in the source of a kernel.
struct Site {
  const char *file;
  unsigned line;
  static constexpr Site here(const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return Site{file, line};
  }
  bool operator==(const Site &other) const {
    return line == other.line && (file == other.file || !__builtin_strcmp(file, other.file));
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
  // The next one in Turns or in a queue.
  Fiber *next;
  // The fourth one behind it when it was added to Turns. It may wait elsewhere since then.
  const Fiber *later;
  // The rank of its thread, or kNoThread.
  unsigned rank;
  // Of an operation of a warp; otherwise 0.
  unsigned mask;
  // What a kernel sees of its thread.
  uint3 thread;
  uint3 block;
  dim3 block_extent;
  dim3 grid_extent;
  // What the thread waits for, on a line of its own. Where it waits as `Block::barrier` says, written for reports only.
  alignas(64) const char *what;
  Site site;
  // What all that wait together run, or null.
  WarpOperation operation;
  // What the thread brings to it, or the result of active_mask.
  union {
    Lane *lane;
    void *argument;
    unsigned active;
  };
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

// Does the same for a compiler that keeps it rather than computing it again.
static __attribute__((always_inline)) inline Fiber &known_self() {
  Fiber *fiber = &self();
  asm("" : "+r"(fiber));
  return *fiber;
}

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

// The fibers that take turns: those that have had their turn, then the one that runs, then those that have not. The first
// wait for all threads of the block, or have run their last thread; when all have had their turn, the first one has its
// turn again. So neither a barrier nor the end and the start of a block's threads move anything.
struct Turns {
  Fiber *first = nullptr;
  Fiber *last = nullptr;
  // The one before that which runs, or null.
  Fiber *previous = nullptr;
  // The three before the last.
  Fiber *recent[3] = {};

  // Returns the one that runs, or null if all have had their turn.
  Fiber *current() const { return previous ? previous->next : first; }
  void push(Fiber *fiber) {
    fiber->next = nullptr;
    (last ? last->next : first) = fiber;
    if (recent[0]) recent[0]->later = fiber;
    recent[0] = recent[1];
    recent[1] = recent[2];
    recent[2] = last;
    last = fiber;
  }
  // Takes all out of a queue, in their order.
  void push_all(Queue &queue) {
    if (!queue.first) return;
    (last ? last->next : first) = queue.first;
    last = queue.last;
    queue = {};
  }
  // Takes the one that runs out.
  void remove_current(const Fiber &fiber) {
    (previous ? previous->next : first) = fiber.next;
    if (last == &fiber) last = previous;
  }
};

// What the threads wait for that wait for all threads of the block.
struct BlockBarrier {
  // The place where all wait if they run nothing, for a quick comparison; otherwise nowhere.
  Site usual = {nullptr, 0};
  // Where the first of them waits, and what all will run. `what` is null while no thread waits.
  const char *what = nullptr;
  Site site = {nullptr, 0};
  BlockOperation operation = nullptr;
  // The first thread that waits in another place, or null.
  const Fiber *different = nullptr;
};
}  // namespace plinth_host
