// What one allocator's calls cost: pairs of one allocation and one free, by size, by order, by threads.
//
//   allocator --allocator NAME --library LIB --alloc SYMBOL --free SYMBOL [--quick] [--rows]
//
// One table for one allocator, the same for every one; --rows leaves its heading out, so that tables can be put
// together (benches/replay/compare.py does that). The mean is over a loop without a clock in it, and of several such
// loops the median, since something else on the machine may be in one. Percentiles are of single pairs, each with the
// clock's own cost in it, which is a row of the table; so is the loop of the rows with threads, around functions that
// do nothing. Nothing is subtracted.
//
// Exit status: 0; 1 if memory ran out; 2 for arguments or a library that make no sense.
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

// A few instructions, unlike the standard library's: what it costs is in the rows with threads.
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

// The two functions alone, so that functions which do nothing can take their place.
struct Functions {
  AllocFunction alloc;
  FreeFunction free;
  void *take(size_t size, void *stream) const {
    void *block = alloc(static_cast<ssize_t>(size), 0, stream);
    if (!block) throw OutOfMemory("out of memory");
    return block;
  }
  void give(void *block, size_t size, void *stream) const { free(block, static_cast<ssize_t>(size), 0, stream); }
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
    hot();
    many("1,000 live, last in first out", true);
    many("1,000 live, first in first out", false);
    volatile AllocFunction alloc = no_alloc;
    volatile FreeFunction free = no_free;
    Functions nothing{alloc, free};
    measure("(1 thread, functions that do nothing)",
            [&] { return middle([&] { return threads(1, false, nothing); }); });
    for (bool shared : {false, true})
      for (unsigned count : {1, 2, 4, 8, 16})
        measure(std::to_string(count) + (count == 1 ? " thread, " : " threads, ") +
                    (shared ? "one shared stream" : count == 1 ? "its own stream" : "a stream each"),
                [&] { return middle([&] { return threads(count, shared, functions_); }); });
    for (unsigned count : {1, 4})
      measure(count == 1 ? "1 thread allocates, another frees" : "4 threads allocate, 4 others free",
              [&] { return middle([&] { return across_threads(count); }); });
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

  // A block is freed and the same size comes at once: what a program in its steady state does most.
  void hot() {
    static const std::pair<const char *, size_t> sizes[] = {
        {"512 B", 512},     {"4 KiB", 4 << 10},   {"64 KiB", 64 << 10},
        {"1 MiB", 1 << 20}, {"2 MiB", 2 << 20},   {"8 MiB", 8 << 20},
        {"32 MiB", 32 << 20}, {"64 MiB", 64 << 20}, {"256 MiB", 256 << 20},
    };
    void *stream = allocator_.device->stream();
    for (const auto &[name, size] : sizes)
      measure(std::string("a pair of ") + name, [&, size = size] {
        auto pair = [&] { functions_.give(functions_.take(size, stream), size, stream); };
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

  // Many blocks of many sizes at once; the median of the rounds, of which the first few meet an empty cache.
  void many(const char *what, bool last_in_first_out) {
    measure(what, [&] {
      constexpr size_t blocks = 1000;
      constexpr int rounds = 33, warm = 4;
      void *stream = allocator_.device->stream();
      auto size = [](size_t i) { return 512 + (i % 64) * 1024; };
      std::vector<void *> live(blocks);
      std::vector<double> times;
      for (int round = 0; round < rounds; round++) {
        auto start = Clock::now();
        for (size_t i = 0; i < blocks; i++) live[i] = functions_.take(size(i), stream);
        for (size_t i = 0; i < blocks; i++) {
          size_t k = last_in_first_out ? blocks - 1 - i : i;
          functions_.give(live[k], size(k), stream);
        }
        if (round >= warm) times.push_back(nanoseconds(start, Clock::now()) / blocks);
      }
      return Row{Percentiles(times).p50, -1, -1, -1, -1};
    });
  }

  // Runs `body(number, wait)` in threads; `wait` returns in all of them at once. The time from then to the last one's
  // end. What a thread throws is thrown here when all have ended.
  double together(unsigned count, const std::function<void(unsigned, const std::function<void()> &)> &body) {
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
        if (!waited) wait();  // it failed before the start, for which the others wait
      });
    while (ready < count) std::this_thread::yield();
    auto start = Clock::now();
    go = true;
    for (std::thread &thread : threads) thread.join();
    for (const std::exception_ptr &exception : thrown)
      if (exception) std::rethrow_exception(exception);
    return nanoseconds(start, *std::max_element(ends.begin(), ends.end()));
  }

  // Each thread keeps 64 blocks live, frees one of them by chance and allocates another.
  Row threads(unsigned count, bool shared, const Functions &functions) {
    constexpr uint32_t blocks = 64, size_classes = 12;
    const int steps = 20000 / scale_;
    std::vector<void *> streams;
    for (unsigned i = 0; i < count; i++) streams.push_back(i && shared ? streams[0] : allocator_.device->stream());
    // Beside the threads, so that what is left when one fails can be freed, and freeing is not in the time.
    struct Block {
      void *pointer = nullptr;
      size_t size = 0;
    };
    std::vector<std::array<Block, blocks>> live(count);
    auto give_all = [&] {
      for (unsigned i = 0; i < count; i++)
        for (Block &block : live[i])
          if (block.pointer) functions.give(block.pointer, block.size, streams[i]);
    };
    double time;
    try {
      time = together(count, [&](unsigned number, const std::function<void()> &wait) {
        void *stream = streams[number];
        Random random(number + 1);
        auto renew = [&](Block &block) {
          if (block.pointer) functions.give(block.pointer, block.size, stream);
          block.pointer = nullptr;
          block.size = size_t{512} << random.below(size_classes);
          block.pointer = functions.take(block.size, stream);
        };
        for (Block &block : live[number]) renew(block);
        for (int i = 0; i < steps / 4; i++) renew(live[number][random.below(blocks)]);
        wait();
        for (int i = 0; i < steps; i++) renew(live[number][random.below(blocks)]);
      });
    } catch (...) {
      give_all();
      throw;
    }
    give_all();
    return {time / steps, -1, -1, -1, static_cast<double>(steps) * count / time * 1e9};
  }

  // A ring from one thread to one other.
  struct Ring {
    static constexpr size_t places = 256;
    std::atomic<void *> blocks[places] = {};
  };

  // As in a pipeline: what some threads allocate, others free. On a stream for each pair of them.
  Row across_threads(unsigned count) {
    const size_t steps = 20000 / static_cast<size_t>(scale_);
    constexpr uint32_t size_classes = 12;
    auto size = [](size_t i) { return size_t{512} << (i * 7 % size_classes); };
    std::vector<Ring> rings(count);
    std::vector<void *> streams;
    for (unsigned i = 0; i < count; i++) streams.push_back(allocator_.device->stream());
    std::atomic<bool> failed{false};
    double time = together(2 * count, [&](unsigned number, const std::function<void()> &wait) {
      Ring &ring = rings[number / 2];
      void *stream = streams[number / 2];
      bool allocates = number % 2 == 0;
      wait();
      for (size_t i = 0; i < steps; i++) {
        std::atomic<void *> &place = ring.blocks[i % Ring::places];
        void *block = place.load(std::memory_order_acquire);
        while ((block == nullptr) != allocates) {
          if (failed) return;
          std::this_thread::yield();
          block = place.load(std::memory_order_acquire);
        }
        if (allocates) {
          try {
            place.store(functions_.take(size(i), stream), std::memory_order_release);
          } catch (...) {
            failed = true;
            throw;
          }
        } else {
          place.store(nullptr, std::memory_order_release);
          functions_.give(block, size(i), stream);
        }
      }
    });
    return {time / static_cast<double>(steps), -1, -1, -1, static_cast<double>(steps) * count / time * 1e9};
  }

  // What came of up to nine rounds, of which none begins when half a second is gone.
  template <class Work>
  static std::vector<std::invoke_result_t<Work>> rounds(const Work &work) {
    constexpr size_t most = 9;
    constexpr double enough = 5e8;
    std::vector<std::invoke_result_t<Work>> results;
    auto start = Clock::now();
    while (results.empty() || (results.size() < most && nanoseconds(start, Clock::now()) < enough))
      results.push_back(work());
    return results;
  }

  static Row middle(const std::function<Row()> &work) {
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
      throw SetupError("cannot make sense of " + option);
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
  // As in replay.cpp: not every library can be destroyed.
  _exit(status);
}
