// The entry of a kernel: what the host device calls to run blocks.
#pragma once

#include "execution.h"

#include "checks.h"

namespace plinth_host {
// A value of a parameter, which need not have a default constructor.
template <typename T> union Parameter {
  T value;
  Parameter(const void *bytes) { __builtin_memcpy(static_cast<void *>(this), bytes, sizeof(T)); }
  Parameter(const Parameter &other) { __builtin_memcpy(static_cast<void *>(this), &other, sizeof(T)); }
  ~Parameter() {}
};

template <unsigned... I> struct Indices {};
template <unsigned N, unsigned... I> struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <unsigned... I> struct MakeIndices<0, I...> { typedef Indices<I...> type; };

#ifdef __clang__
// The bound of __launch_bounds__ is the address space of what the kernel returns.
template <typename R> struct LaunchBound;
template <> struct LaunchBound<void> { static constexpr unsigned value = 0; };
template <unsigned N> struct LaunchBound<__attribute__((address_space(N))) void> { static constexpr unsigned value = N; };
template <auto K, typename R> static unsigned max_threads() { return LaunchBound<R>::value; }
#else
// The bound of __launch_bounds__ is the number of instructions before the kernel that do nothing. The section has where they
// begin, for each function that has some.
extern "C" __attribute__((weak, visibility("hidden"))) const char *const __start___patchable_function_entries[];
extern "C" __attribute__((weak, visibility("hidden"))) const char *const __stop___patchable_function_entries[];

template <auto K, typename> static unsigned max_threads() {
#ifdef __x86_64__
  constexpr char kNothing[] = {char(0x90)};
#else
  constexpr char kNothing[] = {0x1f, 0x20, 0x03, char(0xd5)};
#endif
  const char *const kernel = reinterpret_cast<const char *>(K);
  for (const char *const *first = __start___patchable_function_entries; first != __stop___patchable_function_entries; first++) {
    const char *at = *first;
    while (at < kernel && __builtin_memcmp(at, kNothing, sizeof kNothing) == 0) at += sizeof kNothing;
    if (at == kernel) return unsigned((kernel - *first) / long(sizeof kNothing));
  }
  return 0;
}
#endif

// Runs one block.
static inline void run_block(Block &block) {
  block.time++;
  block.started = block.waiting = 0;
  block.has_waited = false;
  block.turns.previous = nullptr;
  block.barrier.what = nullptr;
  block.barrier.usual.file = nullptr;
  switch_context(block.home, next_turn(block));
}

template <auto K> struct Entry;

template <typename R, typename... P, R (*K)(P...)> struct Entry<K> {
  static constexpr unsigned kSizes[sizeof...(P) + 1] = {unsigned(sizeof(P))..., 0};

  // A fiber: runs threads, of one block after the other.
  static void run_fiber() {
    Fiber &fiber = self();
    Block &block = *fiber.owner;
    run_with(block, fiber, block.launch->parameters, typename MakeIndices<sizeof...(P)>::type());
  }

  // The parameters are copied for each fiber, so that no store of the kernel can change them.
  template <unsigned... I>
  static __attribute__((always_inline)) inline void run_with(Block &block, Fiber &fiber, const void *const *from,
                                                             Indices<I...>) {
    run_copied(block, fiber, Parameter<P>(from[I])...);
  }

  template <typename... Q>
  [[noreturn]] static __attribute__((always_inline)) inline void run_copied(Block &block, Fiber &fiber,
                                                                            const Q... parameters) {
    for (;;) {
      if (!block.has_waited) {
        run_threads(block, fiber, parameters...);
      } else if (block.started < block.threads) {
        fiber.rank = block.started++;
        fiber.thread = block.next_thread;
        fiber.block = block.index;
        if (++block.next_thread.x == fiber.block_extent.x) {
          block.next_thread.x = 0;
          if (++block.next_thread.y == fiber.block_extent.y) {
            block.next_thread.y = 0;
            block.next_thread.z++;
          }
        }
        K(parameters.value...);
        finish_thread(block, fiber);
        prefetch_later(fiber);
        switch_to(fiber, leave_thread(block, fiber));
      } else {
        switch_context(fiber.context, remove_fiber(block, fiber));
      }
    }
  }

  // Runs threads until one has waited; until then this is the only fiber that runs.
  template <typename... Q>
  static __attribute__((always_inline)) inline void run_threads(Block &block, Fiber &fiber, const Q &...parameters) {
    const dim3 extent = fiber.block_extent;
    unsigned rank = 0;
    fiber.block = block.index;
    for (unsigned z = 0; z < extent.z; z++) {
      for (unsigned y = 0; y < extent.y; y++) {
        for (unsigned x = 0; x < extent.x; x++) {
          fiber.rank = rank++;
          fiber.thread = make_uint3(x, y, z);
          block.started = rank;
          K(parameters.value...);
          if (__builtin_expect(block.has_waited, 0)) {
            finish_thread(block, fiber);
            return switch_to(fiber, leave_thread(block, fiber));
          }
        }
      }
    }
    fiber.rank = kNoThread;
    switch_context(fiber.context, block.home);
  }

  static void run(const Launch *launch, unsigned long long first, unsigned long long last) {
    Block block;
    block.launch = launch;
    block.run_fiber = run_fiber;
    block.failed = false;
    block.fibers = block.free_count = 0;
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

  static constexpr Kernel kernel(const char *name) {
    return {kVersion, sizeof...(P), kSizes, name, run, max_threads<K, R>, report_fault};
  }
};
}  // namespace plinth_host

// Exports a kernel: PLINTH_HOST_EXPORT("scale<float>", scale<float>).
#define PLINTH_HOST_EXPORT(name, ...)                                                              \
  extern "C" __attribute__((visibility("default"))) const plinth_host::Kernel plinth_host_kernel = \
      plinth_host::Entry<&__VA_ARGS__>::kernel(name);
