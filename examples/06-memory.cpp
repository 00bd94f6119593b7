// Inspects memory: the caching allocator's statistics, its segments, its history, and the stacks of requests.
//
//   g++ -std=c++17 -g 06-memory.cpp -lplinth && PLINTH_DEVICE=host ./a.out memory.html
//
// With a path, the last step writes an HTML page there, for any browser; with a name that ends in .pickle, a snapshot for
// https://pytorch.org/memory_viz.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <plinth.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kMiB = 1u << 20;

void print_usage(const char *when) {
  std::printf("%-34s %5.1f MiB in use, %5.1f MiB held\n", when, static_cast<double>(plinth::memory_allocated()) / kMiB,
              static_cast<double>(plinth::memory_reserved()) / kMiB);
}

// The memory requests of a training step: activations are allocated, and freed in reverse order.
void step(int number) {
  const plinth::MemoryAnnotation annotation("step " + std::to_string(number));
  std::vector<plinth::DeviceBuffer> activations;
  for (std::size_t layer = 1; layer <= 4; layer++) activations.emplace_back(layer * 3 * kMiB);
  while (!activations.empty()) activations.pop_back();
}

void run(const char *path) {
  // 1. From here on each request is recorded, with the stack of the caller.
  plinth::MemoryHistoryOptions options = plinth::memory_history_options();
  options.record_annotations = 1;
  plinth::record_memory_history(options);

  plinth::DeviceBuffer weights(20 * kMiB);
  print_usage("with the weights");
  step(1);
  print_usage("after a step");
  const plinth::MemoryStats before = plinth::memory_stats();
  step(2);
  std::printf("the second step made %lld requests and %lld driver allocations\n",
              static_cast<long long>(plinth::memory_stats().allocation.all.allocated - before.allocation.all.allocated),
              static_cast<long long>(plinth::memory_stats().num_device_alloc - before.num_device_alloc));

  // 2. A pool is separate memory, here with a budget.
  plinth::MemPool pool;
  pool.set_budget(16 * kMiB);
  try {
    const plinth::MemPoolGuard guard(pool);
    const plinth::DeviceBuffer fits(8 * kMiB);
    std::printf("the pool has %.1f MiB in use\n", static_cast<double>(pool.memory().allocated) / kMiB);
    const plinth::DeviceBuffer beyond(32 * kMiB);
  } catch (const plinth::Error &error) {
    // The guard was destroyed, and the block was freed.
    std::printf("%s: %.60s...\n", error.name(), error.what());
  }

  // 3. The segments and their blocks; plinth::memory_summary() returns a table.
  int segments = 0, blocks = 0;
  plinth::memory_snapshot_each([&](const plinth_memory_segment_t &, const plinth_memory_block_t *block) {
    (block == nullptr ? segments : blocks)++;
  });
  std::printf("%d segments with %d blocks\n", segments, blocks);

  // 4. The history, and the stack of the largest request, the innermost function first.
  std::size_t entries = 0;
  plinth_memory_history_entry_t largest{};
  plinth::memory_history_each([&](const plinth_memory_history_entry_t &entry) {
    entries++;
    if (entry.action == PLINTH_MEMORY_ACTION_ALLOC && entry.size > largest.size) largest = entry;
  });
  std::printf("%zu entries in the history; the largest request, of %.1f MiB, came from\n", entries,
              static_cast<double>(largest.size) / kMiB);
  int shown = 0;
  plinth::memory_stack_each(largest.stack, [&](const char *name, const char *, std::uint32_t) {
    if (shown++ < 4) std::printf("  %.100s\n", name);
  });

  // 5. A snapshot for viewing.
  plinth::dump_snapshot(path);

  weights.free();
  plinth::empty_cache();
  print_usage("with only the pool's cache");
}

}  // namespace

int main(int argc, char **argv) try {
  if (argc > 1) {
    run(argv[1]);
    std::printf("see %s\n", argv[1]);
    return 0;
  }
  char path[] = "/tmp/plinth-memory-XXXXXX.html";
  const int file = mkstemps(path, 5);
  if (file < 0) return 1;
  run(path);
  std::remove(path);
  return 0;
} catch (const plinth::Error &error) {
  std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
  return 1;
}
