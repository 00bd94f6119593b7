// Measures the cost of one allocator's calls: pairs of an allocation and a free, by size, order and number of threads.
//
//   allocator --allocator NAME --library LIB --alloc SYMBOL --free SYMBOL [--quick] [--rows]
//
// Prints the same table for every allocator; --rows omits its heading, so that benches/replay/compare.py can merge tables.
// The mean is over a loop that does not read the clock, and is the median of several such loops, because other activity of
// the machine may disturb one. Percentiles are of single pairs, each including the cost of reading the clock, which is a
// row of the table. Another row is the loop of the threads' cases around functions that do nothing. Nothing is subtracted.
//
// Exit status: 0; 1 if memory ran out; 2 for invalid arguments or an unusable library.
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <type_traits>

#include "replay/allocator.h"
#include "replay/clock.h"
#include "replay/progress.h"

namespace replay {
namespace {

struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A generator of a few instructions, unlike the standard library's, because the rows with threads include its cost.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}
  uint32_t below(uint32_t bound) {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return static_cast<uint32_t>(((state_ >> 32) * bound) >> 32);
  }

 private:
  uint64_t state_;
};

// The two functions alone, so that functions that do nothing can replace them.
struct Functions {
  AllocFunction alloc;
  FreeFunction free;
  void *allocate(size_t size, void *stream) const {
    void *block = alloc(static_cast<ssize_t>(size), 0, stream);
    if (!block) throw OutOfMemory("out of memory");
    return block;
  }
  void release(void *block, size_t size, void *stream) const { free(block, static_cast<ssize_t>(size), 0, stream); }
};

void *no_alloc(ssize_t, int, void *) { return reinterpret_cast<void *>(256); }
void no_free(void *, ssize_t, int, void *) {}

struct Row {
  double mean = -1, p50 = -1, p99 = -1, p999 = -1, pairs_per_second = -1;  // -1: not measured
};

class Bench {
 public:
  Bench(const Allocator &allocator, bool quick)
      : allocator_(allocator), functions_{allocator.alloc, allocator.free}, scale_(quick ? 10 : 1) {}

  bool run() {
    Percentiles clock = clock_cost();
    print("(the clock alone)", {-1, clock.p50, clock.p99, clock.p999, -1});
    measure_pairs();
    measure_many("1,000 live, last in first out", true);
    measure_many("1,000 live, first in first out", false);
    volatile AllocFunction alloc = no_alloc;
    volatile FreeFunction free = no_free;
    Functions nothing{alloc, free};
    measure("(1 thread, functions that do nothing)",
            [&] { return median_row([&] { return threads(1, false, nothing); }); });
    for (bool shared : {false, true})
      for (unsigned count : {1, 2, 4, 8, 16})
        measure(std::to_string(count) + (count == 1 ? " thread, " : " threads, ") +
                    (shared ? "one shared stream" : count == 1 ? "its own stream" : "a stream each"),
                [&] { return median_row([&] { return threads(count, shared, functions_); }); });
    for (unsigned count : {1, 4})
      measure(count == 1 ? "1 thread allocates, another frees" : "4 threads allocate, 4 others free",
              [&] { return median_row([&] { return across_threads(count); }); });
    return !ran_out_;
  }

 private:
  void measure(const std::string &what, const std::function<Row()> &work) {
    progress_.show(allocator_.name + ": " + what, done_++, CASES);
    try {
      Row row = work();
      print(what, row);
    } catch (const OutOfMemory &) {
      ran_out_ = true;
      progress_.clear();
      std::printf("| %-38s | %-17s | out of memory: %s\n", what.c_str(), allocator_.name.c_str(),
                  allocator_.last_error().c_str());
    }
  }

  void print(const std::string &what, const Row &row) {
    auto number = [](double value, int width, int digits) {
      if (value < 0) std::printf(" %*s |", width, "-");
      else std::printf(" %*.*f |", width, digits, value);
    };
    progress_.clear();
    std::printf("| %-38s | %-17s |", what.c_str(), allocator_.name.c_str());
    number(row.mean, 9, 1), number(row.p50, 8, 0), number(row.p99, 8, 0), number(row.p999, 9, 0);
    number(row.pairs_per_second < 0 ? -1 : row.pairs_per_second / 1e6, 9, 3);
    std::puts("");
    std::fflush(stdout);
  }

  // Frees a block and allocates the same size at once, which is the most common sequence in a steady state.
  void measure_pairs() {
    static const std::pair<const char *, size_t> sizes[] = {
        {"512 B", 512},     {"4 KiB", 4 << 10},   {"64 KiB", 64 << 10},
        {"1 MiB", 1 << 20}, {"2 MiB", 2 << 20},   {"8 MiB", 8 << 20},
        {"32 MiB", 32 << 20}, {"64 MiB", 64 << 20}, {"256 MiB", 256 << 20},
    };
    void *stream = allocator_.device->stream();
    for (const auto &[name, size] : sizes)
      measure(std::string("a pair of ") + name, [&, size = size] {
        auto pair = [&] { functions_.release(functions_.allocate(size, stream), size, stream); };
        const int count = 20000 / scale_;
        for (int i = 0; i < 200; i++) pair();
        std::vector<double> means = rounds([&] {
          auto start = Clock::now();
          for (int i = 0; i < count; i++) pair();
          return nanoseconds(start, Clock::now()) / count;
        });
        std::vector<double> times(static_cast<size_t>(count));
        for (double &time : times) {
          auto begin = Clock::now();
          pair();
          time = nanoseconds(begin, Clock::now());
        }
        Percentiles percentiles(times);
        return Row{Percentiles(means).p50, percentiles.p50, percentiles.p99, percentiles.p999, -1};
      });
  }

  // Many live blocks of many sizes. Reports the median of the rounds after the first few, which start with an empty cache.
  void measure_many(const char *what, bool last_in_first_out) {
    measure(what, [&] {
      constexpr size_t blocks = 1000;
      constexpr int rounds = 33, warm = 4;
      void *stream = allocator_.device->stream();
      auto size = [](size_t i) { return 512 + (i % 64) * 1024; };
      std::vector<void *> live(blocks);
      std::vector<double> times;
      for (int round = 0; round < rounds; round++) {
        auto start = Clock::now();
        for (size_t i = 0; i < blocks; i++) live[i] = functions_.allocate(size(i), stream);
        for (size_t i = 0; i < blocks; i++) {
          size_t k = last_in_first_out ? blocks - 1 - i : i;
          functions_.release(live[k], size(k), stream);
        }
        if (round >= warm) times.push_back(nanoseconds(start, Clock::now()) / blocks);
      }
      return Row{Percentiles(times).p50, -1, -1, -1, -1};
    });
  }

  // Runs `body(number, wait)` in threads; `wait` returns in all of them at once. Returns the time from then to the end of
  // the last thread. Rethrows a thread's exception after all threads ended.
  double run_threads(unsigned count, const std::function<void(unsigned, const std::function<void()> &)> &body) {
    std::atomic<unsigned> ready{0};
    std::atomic<bool> go{false};
    std::vector<Clock::time_point> ends(count);
    std::vector<std::exception_ptr> thrown(count);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < count; i++)
      threads.emplace_back([&, i] {
        bool waited = false;
        auto wait = [&] {
          waited = true;
          ready++;
          while (!go) std::this_thread::yield();
        };
        try {
          allocator_.device->enter_thread();
          body(i, wait);
        } catch (...) {
          thrown[i] = std::current_exception();
        }
        ends[i] = Clock::now();
        if (!waited) wait();  // it failed before the common start, and the others still wait for that
      });
    while (ready < count) std::this_thread::yield();
    auto start = Clock::now();
    go = true;
    for (std::thread &thread : threads) thread.join();
    for (const std::exception_ptr &exception : thrown)
      if (exception) std::rethrow_exception(exception);
    return nanoseconds(start, *std::max_element(ends.begin(), ends.end()));
  }

  // Each thread keeps 64 blocks live; in each step it frees a random one and allocates another.
  Row threads(unsigned count, bool shared, const Functions &functions) {
    constexpr uint32_t blocks = 64, size_classes = 12;
    const int steps = 20000 / scale_;
    std::vector<void *> streams;
    for (unsigned i = 0; i < count; i++) streams.push_back(i && shared ? streams[0] : allocator_.device->stream());
    // Outside of the threads, so that the blocks can be freed after a failure, and freeing is not timed.
    struct Block {
      void *pointer = nullptr;
      size_t size = 0;
    };
    std::vector<std::array<Block, blocks>> live(count);
    auto free_all = [&] {
      for (unsigned i = 0; i < count; i++)
        for (Block &block : live[i])
          if (block.pointer) functions.release(block.pointer, block.size, streams[i]);
    };
    double time;
    try {
      time = run_threads(count, [&](unsigned number, const std::function<void()> &wait) {
        void *stream = streams[number];
        Random random(number + 1);
        auto replace = [&](Block &block) {
          if (block.pointer) functions.release(block.pointer, block.size, stream);
          block.pointer = nullptr;
          block.size = size_t{512} << random.below(size_classes);
          block.pointer = functions.allocate(block.size, stream);
        };
        for (Block &block : live[number]) replace(block);
        for (int i = 0; i < steps / 4; i++) replace(live[number][random.below(blocks)]);
        wait();
        for (int i = 0; i < steps; i++) replace(live[number][random.below(blocks)]);
      });
    } catch (...) {
      free_all();
      throw;
    }
    free_all();
    return {time / steps, -1, -1, -1, static_cast<double>(steps) * count / time * 1e9};
  }

  // A single-producer, single-consumer ring buffer.
  struct Ring {
    static constexpr size_t capacity = 256;
    std::atomic<void *> blocks[capacity] = {};
  };

  // As in a pipeline, some threads free the blocks that others allocate. Each pair of threads has its own stream.
  Row across_threads(unsigned count) {
    const size_t steps = 20000 / static_cast<size_t>(scale_);
    constexpr uint32_t size_classes = 12;
    auto size = [](size_t i) { return size_t{512} << (i * 7 % size_classes); };
    std::vector<Ring> rings(count);
    std::vector<void *> streams;
    for (unsigned i = 0; i < count; i++) streams.push_back(allocator_.device->stream());
    std::atomic<bool> failed{false};
    double time = run_threads(2 * count, [&](unsigned number, const std::function<void()> &wait) {
      Ring &ring = rings[number / 2];
      void *stream = streams[number / 2];
      bool allocates = number % 2 == 0;
      wait();
      for (size_t i = 0; i < steps; i++) {
        std::atomic<void *> &slot = ring.blocks[i % Ring::capacity];
        void *block = slot.load(std::memory_order_acquire);
        while ((block == nullptr) != allocates) {
          if (failed) return;
          std::this_thread::yield();
          block = slot.load(std::memory_order_acquire);
        }
        if (allocates) {
          try {
            slot.store(functions_.allocate(size(i), stream), std::memory_order_release);
          } catch (...) {
            failed = true;
            throw;
          }
        } else {
          slot.store(nullptr, std::memory_order_release);
          functions_.release(block, size(i), stream);
        }
      }
    });
    return {time / static_cast<double>(steps), -1, -1, -1, static_cast<double>(steps) * count / time * 1e9};
  }

  // Returns the results of up to nine rounds; no round begins after half a second.
  template <class Work>
  static std::vector<std::invoke_result_t<Work>> rounds(const Work &work) {
    constexpr size_t max_rounds = 9;
    constexpr double max_ns = 5e8;
    std::vector<std::invoke_result_t<Work>> results;
    auto start = Clock::now();
    while (results.empty() || (results.size() < max_rounds && nanoseconds(start, Clock::now()) < max_ns))
      results.push_back(work());
    return results;
  }

  static Row median_row(const std::function<Row()> &work) {
    std::vector<Row> rows = rounds(work);
    std::sort(rows.begin(), rows.end(), [](const Row &a, const Row &b) { return a.mean < b.mean; });
    return rows[rows.size() / 2];
  }

  static constexpr size_t CASES = 24;
  const Allocator &allocator_;
  Functions functions_;
  int scale_;
  size_t done_ = 0;
  bool ran_out_ = false;
  Progress progress_;
};

int run(int count, char **values) {
  AllocatorArguments arguments;
  bool quick = false, rows = false;
  for (int i = 1; i < count; i++) {
    std::string option = values[i];
    if (option == "--quick") quick = true;
    else if (option == "--rows") rows = true;
    else if (i + 1 == count || !arguments.take(option, values[++i]))
      throw SetupError("unknown option, or option without a value: " + option);
  }
  if (!arguments.complete())
    throw SetupError("usage: allocator --allocator NAME --library LIB --alloc SYMBOL --free SYMBOL [--quick] [--rows]");
  Allocator allocator(arguments);
  if (!rows)
    std::printf("%s on %s, %u processors\n\n"
                "| %-38s | %-17s | mean, ns  | p50, ns  | p99, ns  | p99.9, ns | Mpairs/s  |\n"
                "|---|---|---|---|---|---|---|\n",
                allocator.name.c_str(), allocator.device->describe().c_str(), std::thread::hardware_concurrency(),
                "case", "allocator");
  return Bench(allocator, quick).run() ? 0 : 1;
}

}  // namespace
}  // namespace replay

int main(int count, char **values) {
  int status = 2;
  try {
    status = replay::run(count, values);
  } catch (const std::runtime_error &error) {
    std::fprintf(stderr, "allocator: %s\n", error.what());
  }
  std::fflush(stdout);
  // As in replay.cpp: the destructors of some libraries fail.
  _exit(status);
}
