// The entry of a kernel: what the host device calls to run blocks.
#pragma once

#include "execution.h"

#include "checks.h"

namespace plinth_host {
// A value of a parameter, which need not have a default constructor.
template <typename T> union Parameter {
  T value;
  Parameter(const void *bytes) { memcpy(static_cast<void *>(this), bytes, sizeof(T)); }
  Parameter(const Parameter &other) { memcpy(static_cast<void *>(this), &other, sizeof(T)); }
  ~Parameter() {}
};

template <unsigned... I> struct Indices {};
template <unsigned N, unsigned... I> struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <unsigned... I> struct MakeIndices<0, I...> { typedef Indices<I...> type; };

// Runs one block.
static inline void run_block(Block &block) {
  block.time++;
  block.started = block.waiting = 0;
  block.has_waited = false;
  const Fiber *first = new_fiber(block);
  if (first) switch_context(block.home, first->context);
}

template <auto K> struct Entry;

template <typename... P, void (*K)(P...)> struct Entry<K> {
  static constexpr unsigned kSizes[sizeof...(P) + 1] = {unsigned(sizeof(P))..., 0};

  // A fiber: runs threads until none is left that has not started, or one that waited is ready.
  static void run_fiber() {
    Fiber &fiber = self();
    Block &block = *fiber.owner;
    run_with(block, fiber, block.launch->parameters, typename MakeIndices<sizeof...(P)>::type());
    end_fiber(block, fiber);
  }

  // The parameters are copied for each fiber, so that no store of the kernel can change them.
  template <unsigned... I>
  static __attribute__((always_inline)) inline void run_with(Block &block, Fiber &fiber, const void *const *from,
                                                             Indices<I...>) {
    run_copied(block, fiber, Parameter<P>(from[I])...);
  }

  template <typename... Q>
  static __attribute__((always_inline)) inline void run_copied(Block &block, Fiber &fiber, const Q... parameters) {
    const dim3 extent = fiber.block_extent;
    unsigned rank = 0;
    // As long as no thread waits, this is the only fiber.
    if (!block.has_waited) {
      for (unsigned z = 0; z < extent.z; z++) {
        for (unsigned y = 0; y < extent.y; y++) {
          for (unsigned x = 0; x < extent.x; x++) {
            fiber.rank = rank++;
            fiber.thread = make_uint3(x, y, z);
            block.started = rank;
            K(parameters.value...);
            if (__builtin_expect(block.has_waited, 0)) {
              finish_thread(block, fiber.rank);
              goto others;
            }
          }
        }
      }
      return;
    }
  others:
    while (block.ready.is_empty() && block.started < block.threads) {
      fiber.rank = block.started++;
      fiber.thread = block.next_thread;
      if (++block.next_thread.x == extent.x) {
        block.next_thread.x = 0;
        if (++block.next_thread.y == extent.y) {
          block.next_thread.y = 0;
          block.next_thread.z++;
        }
      }
      K(parameters.value...);
      finish_thread(block, fiber.rank);
    }
  }

  static void run(const Launch *launch, unsigned long long first, unsigned long long last) {
    Block block;
    block.launch = launch;
    block.run_fiber = run_fiber;
    block.failed = false;
    block.fibers = block.free_count = 0;
    block.ready.fibers = block.ready.first = block.ready.end = block.ordered[0];
    block.barrier.fibers = block.barrier.end = block.ordered[1];
    block.time = 0;
    for (unsigned &time : block.warp_times) time = 0;
#ifdef PLINTH_HOST_CHECKS
    block.time = last_time;
    shared_memory = static_cast<const SharedMemory *>(launch->shared);
    histories = static_cast<ByteHistory *>(launch->histories);
#endif
    block.threads = launch->block[0] * launch->block[1] * launch->block[2];
    for (unsigned long long at = first; at < last && !block.failed; at++) {
      block.index.x = unsigned(at % launch->grid[0]);
      block.index.y = unsigned(at / launch->grid[0] % launch->grid[1]);
      block.index.z = unsigned(at / launch->grid[0] / launch->grid[1]);
      run_block(block);
    }
#ifdef PLINTH_HOST_CHECKS
    last_time = block.time;
#endif
  }

  static constexpr Kernel kernel(const char *name) { return {kVersion, sizeof...(P), kSizes, name, run, report_fault}; }
};
}  // namespace plinth_host

// Exports a kernel: PLINTH_HOST_EXPORT("scale<float>", scale<float>).
#define PLINTH_HOST_EXPORT(name, ...)                                                              \
  extern "C" __attribute__((visibility("default"))) const plinth_host::Kernel plinth_host_kernel = \
      plinth_host::Entry<&__VA_ARGS__>::kernel(name);
