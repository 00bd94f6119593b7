// Runs kernels as the host device does: blocks in several threads, each block's threads in fibers.
#pragma once
#include <sys/mman.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <plinth_host/qualifiers.h>

#include <plinth_host/warp.h>
#include <plinth_host/atomic.h>
#include <plinth_host/entry.h>

static int failures = 0;

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      failures++;                                                             \
      if (failures < 40) printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                         \
  } while (0)

// One launch: the first error that a block reported, and the barrier of a cooperative launch.
struct Run {
  std::mutex mutex;
  std::condition_variable changed;
  std::string error;
  std::atomic<unsigned> failed{0};
  unsigned blocks = 0, waiting = 0, round = 0;
};

// One thread that runs blocks.
struct Worker {
  Run *run;
  std::vector<void *> fibers;

  ~Worker() {
    for (void *fiber : fibers) munmap(fiber, plinth_host::kFiberBytes);
  }
  static void *fiber(void *context, unsigned index) {
    std::vector<void *> &fibers = static_cast<Worker *>(context)->fibers;
    while (fibers.size() <= index) {
      const size_t size = plinth_host::kFiberBytes;
      char *memory = static_cast<char *>(
          mmap(nullptr, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
      if (memory == MAP_FAILED) return nullptr;
      char *aligned = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(memory) + size - 1) & ~(size - 1));
      if (aligned != memory) munmap(memory, static_cast<size_t>(aligned - memory));
      munmap(aligned + size, static_cast<size_t>(memory + 2 * size - (aligned + size)));
      fibers.push_back(aligned);
    }
    return fibers[index];
  }
  static void fail(void *context, unsigned, const char *text) {
    Run &run = *static_cast<Worker *>(context)->run;
    std::lock_guard<std::mutex> lock(run.mutex);
    if (run.failed++ == 0) run.error = text ? text : "out of memory";
    run.changed.notify_all();
  }
  static unsigned has_failed(void *context) { return static_cast<Worker *>(context)->run->failed; }
  static unsigned wait_for_grid(void *context) {
    Run &run = *static_cast<Worker *>(context)->run;
    std::unique_lock<std::mutex> lock(run.mutex);
    const unsigned round = run.round;
    if (++run.waiting == run.blocks) {
      run.waiting = 0;
      run.round++;
      run.changed.notify_all();
    }
    run.changed.wait(lock, [&] { return run.round != round || run.failed != 0; });
    return run.failed == 0;
  }
};

// Runs a kernel and returns its error, or an empty string.
template <auto Kernel, typename... Arguments>
std::string run_kernel(bool cooperative, dim3 grid, dim3 block, Arguments... values) {
  const void *parameters[sizeof...(Arguments) + 1] = {&values..., nullptr};
  Run run;
  run.blocks = grid.x * grid.y * grid.z;
  std::atomic<unsigned> next{0};
  const auto work = [&] {
    Worker worker{&run, {}};
    plinth_host::Launch launch = {};
    const unsigned extents[] = {grid.x, grid.y, grid.z, block.x, block.y, block.z};
    memcpy(launch.grid, extents, sizeof launch.grid);
    memcpy(launch.block, extents + 3, sizeof launch.block);
    launch.cooperative = cooperative;
    launch.parameters = parameters;
    launch.context = &worker;
    launch.fiber = Worker::fiber;
    launch.fail = Worker::fail;
    launch.has_failed = Worker::has_failed;
    launch.wait_for_grid = Worker::wait_for_grid;
    const unsigned part = cooperative ? 1 : (run.blocks + 7) / 8;
    for (unsigned at; run.failed == 0 && (at = next.fetch_add(part)) < run.blocks;) {
      plinth_host::Entry<Kernel>::run(&launch, at, at + part < run.blocks ? at + part : run.blocks);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned at = 0; at < (cooperative ? run.blocks : 4); at++) threads.emplace_back(work);
  for (std::thread &thread : threads) thread.join();
  return run.error;
}

template <auto Kernel, typename... Arguments>
void launch(dim3 grid, dim3 block, Arguments... values) {
  const std::string error = run_kernel<Kernel>(false, grid, block, values...);
  if (!error.empty()) printf("%s\n", error.c_str());
  CHECK(error.empty());
}

static inline int finish(const char *name) {
  printf("%s: %s\n", name, failures == 0 ? "ok" : "failed");
  return failures != 0;
}
