// Replays a recorded allocation trace with one allocator, in its own process, so that all held memory is the allocator's.
//
//   replay --allocator NAME --library LIB --alloc SYMBOL --free SYMBOL [--limit RATIO] [--csv FILE] [--json] TRACE
//
// The first pass starts with an empty cache; each operation is timed. Then everything is freed, and the trace is replayed
// again for the steady state: timed in batches, without clock readings in between, and repeated for a median. A last pass
// is not timed and checks the addresses: blocks must not overlap, and must have the driver's alignment.
//
// Held memory is the device's used memory less that before the first operation. It is queried outside of the timing: after
// each operation of the first pass that is slow enough for a driver call, at the peak of live memory, and at regular
// intervals. If plinth_max_memory_reserved is larger, that is used.
//
// Exit status: 0; 1 if the allocator ran out of memory or returned wrong memory; 2 for invalid arguments, an invalid trace
// or an unusable library. benches/replay/compare.py runs this for many allocators and traces.
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "allocator.h"
#include "clock.h"
#include "driver_calls.h"
#include "progress.h"
#include "result.h"
#include "trace.h"

namespace replay {
namespace {

constexpr size_t INTERVAL = 4096;      // events between two queries of held memory
constexpr double SUSPICIOUS = 20'000;  // ns; operations without a driver call are faster, most with one are slower
constexpr double SLOW = 1000;          // ns; operations with a driver call are slower, also on the host device
constexpr size_t CSV_ROWS = 1000;      // approximate number for a pass
constexpr size_t ROUNDS = 9;           // of the steady state
constexpr double ROUNDS_TIME = 1e9;    // ns, after which no new round begins
constexpr uintptr_t ALIGNMENT = 256;   // guaranteed by cudaMalloc

const char usage[] =
    "usage: replay --allocator NAME --library LIB --alloc SYMBOL --free SYMBOL\n"
    "              [--limit RATIO] [--csv FILE] [--json] TRACE\n"
    "  --limit RATIO  lets the allocator hold at most RATIO times the trace's peak of live memory\n"
    "  --csv FILE     writes live and held memory over time; queries held memory more often, which is slower\n"
    "  --json         prints one JSON object instead of text\n";

void *no_alloc(ssize_t, int, void *) { return reinterpret_cast<void *>(ALIGNMENT); }
void no_free(void *, ssize_t, int, void *) {}

class Replay {
 public:
  Replay(const Allocator &allocator, const Trace &trace, FILE *csv)
      : allocator_(allocator), trace_(trace), csv_(csv), driver_calls_(allocator), blocks_(trace.slots) {
    for (uint32_t i = 0; i < trace.streams; i++) streams_.push_back(allocator.device->stream());
    if (csv_) {
      interval_ = std::max<size_t>(1, trace.events.size() / CSV_ROWS);
      std::fputs("pass,event,live,held,reserved\n", csv_);
    }
    allocator.device->synchronize();
    baseline_ = allocator.device->used();
  }

  void run(Result &result) {
    result.clock_ns = clock_cost().p50;
    result.loop_ns = loop_cost();
    result.driver_calls_counted = driver_calls_.counted();
    pass(result, 1);
    result.peak_held = result.passes[0].peak_held;
    if (!result.out_of_memory) pass(result, 2);
    if (!result.out_of_memory) steady(result);
    if (!result.out_of_memory) check_addresses(result);
    std::string broken = allocator_.check();
    if (!broken.empty()) fail(result, broken);
  }

 private:
  void pass(Result &result, int number) {
    Pass pass;
    live_ = 0;
    queries_ = 0;
    allocator_.reset_peak();
    auto before = driver_calls_.now();
    sample(number, 0, pass);
    double spent = number == 1 ? time_each(result, pass) : time_batches(result, pass);
    sample(number, pass.ops, pass);
    pass.ns_per_op = pass.ops ? spent / static_cast<double>(pass.ops) : 0;
    // Freeing the remaining blocks is not counted, because only the recording ended there, not the workload.
    pass.driver_calls = driver_calls_.between(before, driver_calls_.now(), queries_);
    // The samples may miss a short peak, so the library's own peak is used if it is larger.
    int64_t reserved = allocator_.max_reserved();
    if (number == 1) result.peak_reserved = reserved;
    pass.peak_held = std::max(pass.peak_held, reserved);
    free_everything(pass.ops);
    allocator_.device->synchronize();
    pass.held_after = held();
    result.passes.push_back(std::move(pass));
  }

  // Repeats the second pass, because a single one is short and other activity of the machine may disturb it.
  void steady(Result &result) {
    std::vector<double> rounds{result.passes[1].ns_per_op};
    auto start = Clock::now();
    while (!csv_ && rounds.size() < ROUNDS && nanoseconds(start, Clock::now()) < ROUNDS_TIME) {
      Pass again;
      live_ = 0;
      double spent = time_batches(result, again);
      free_everything(again.ops);
      if (result.out_of_memory) return;
      rounds.push_back(spent / static_cast<double>(again.ops));
    }
    result.rounds = rounds.size();
    result.steady_ns = Percentiles(rounds).p50;
    result.steady_least_ns = rounds.front();
    result.steady_most_ns = rounds.back();
  }

  double time_each(Result &result, Pass &pass) {
    double spent = 0;
    const size_t count = trace_.events.size();
    DriverCallCount before = driver_calls_.sum();
    for (size_t i = 0; i < count; i++) {
      auto start = Clock::now();
      bool enough = step(trace_.events[i], allocator_.alloc, allocator_.free);
      double time = nanoseconds(start, Clock::now());
      spent += time;
      pass.ops++;
      if (time > result.worst_ns) result.worst_ns = time, result.worst_event = i;
      // First of all, since it reads the message of an error.
      if (!account(result, 1, i, enough)) break;
      if (time > SLOW) {
        DriverCallCount after = driver_calls_.sum();
        DriverCallCount more{after.calls - before.calls, after.nanoseconds - before.nanoseconds};
        if (more.nanoseconds > result.costliest.driver_calls.nanoseconds) result.costliest = {more, i};
        before = after;
      }
      if (time > SUSPICIOUS || i % interval_ == 0 || i == trace_.peak_event) {
        sample(1, i, pass);
        before = driver_calls_.sum();
      }
      if (i % INTERVAL == 0) progress_.show(result.trace + ", first pass", i, count);
    }
    return spent;
  }

  double time_batches(Result &result, Pass &pass) {
    double spent = 0;
    const size_t count = trace_.events.size();
    const size_t batch = std::min(interval_, INTERVAL);
    for (size_t i = 0; i < count;) {
      size_t end = std::min(count, i + batch);
      if (i <= trace_.peak_event && trace_.peak_event < end) end = trace_.peak_event + 1;
      size_t begin = i;
      bool enough = true;
      auto start = Clock::now();
      for (; i < end && enough; i++) enough = step(trace_.events[i], allocator_.alloc, allocator_.free);
      spent += nanoseconds(start, Clock::now());
      pass.ops += i - begin;
      for (size_t k = begin; k + 1 < i; k++) account(result, 2, k, true);
      if (!account(result, 2, i - 1, enough)) break;
      sample(2, i, pass);
      progress_.show(result.trace + ", second pass", i, count);
    }
    return spent;
  }

  // Performs an event; this is the timed code. Returns false if the allocation failed.
  bool step(const Event &event, AllocFunction alloc, FreeFunction free) {
    void *&block = blocks_[event.slot];
    void *stream = streams_[event.stream];
    if (event.op == ALLOCATE) {
      block = alloc(static_cast<ssize_t>(event.size), 0, stream);
      return block || event.size == 0;
    }
    free(block, static_cast<ssize_t>(event.size), 0, stream);
    block = nullptr;
    return true;
  }

  // Updates the live memory after an event. If its allocation failed, records that memory ran out, and returns false.
  bool account(Result &result, int pass, size_t index, bool succeeded) {
    const Event &event = trace_.events[index];
    if (!succeeded) {
      result.out_of_memory = OutOfMemory{pass, index, live_, event.size, allocator_.last_error()};
      return false;
    }
    if (event.op == FREE) live_ -= event.size;
    else live_ += event.size;
    return true;
  }

  int64_t held() {
    queries_++;
    return static_cast<int64_t>(allocator_.device->used()) - static_cast<int64_t>(baseline_);
  }

  void sample(int pass_number, size_t event, Pass &pass) {
    int64_t now = held();
    pass.peak_held = std::max(pass.peak_held, now);
    if (csv_)
      std::fprintf(csv_, "%d,%zu,%" PRIu64 ",%" PRId64 ",%" PRId64 "\n", pass_number, event, live_, now,
                   allocator_.reserved());
  }

  // Frees the remaining blocks. The block of a slot is that of its last allocation in the replayed part of the trace.
  void free_everything(size_t played) {
    std::vector<const Event *> last(trace_.slots);
    for (size_t i = 0; i < played; i++)
      if (trace_.events[i].op == ALLOCATE) last[trace_.events[i].slot] = &trace_.events[i];
    for (uint32_t slot = 0; slot < trace_.slots; slot++)
      if (blocks_[slot]) {
        allocator_.free(blocks_[slot], static_cast<ssize_t>(last[slot]->size), 0, streams_[last[slot]->stream]);
        blocks_[slot] = nullptr;
      }
  }

  // Measures the loop of the second pass around functions that do nothing.
  double loop_cost() {
    double least = 0;
    for (int round = 0; round < 3; round++) {
      auto start = Clock::now();
      for (const Event &event : trace_.events) step(event, nothing_alloc_, nothing_free_);
      double spent = nanoseconds(start, Clock::now());
      if (round == 0 || spent < least) least = spent;
    }
    std::fill(blocks_.begin(), blocks_.end(), nullptr);
    return least / static_cast<double>(trace_.events.size());
  }

  void check_addresses(Result &result) {
    live_ = 0;
    std::map<uintptr_t, uintptr_t> ranges;  // begin and end of each live block
    for (size_t i = 0; i < trace_.events.size(); i++) {
      const Event &event = trace_.events[i];
      auto begin = reinterpret_cast<uintptr_t>(blocks_[event.slot]);
      if (event.op == FREE) ranges.erase(begin);
      if (!step(event, allocator_.alloc, allocator_.free)) {
        account(result, 3, i, false);
        return free_everything(i);
      }
      account(result, 3, i, true);
      if (event.op == FREE || event.size == 0) continue;
      begin = reinterpret_cast<uintptr_t>(blocks_[event.slot]);
      uintptr_t end = begin + event.size;
      auto next = ranges.lower_bound(begin);
      bool overlaps = (next != ranges.end() && next->first < end) ||
                      (next != ranges.begin() && std::prev(next)->second > begin);
      std::string prefix = "event " + std::to_string(i) + " received memory that ";
      if (overlaps) fail(result, prefix + "overlaps a live block");
      if (begin % ALIGNMENT) fail(result, prefix + "is not aligned to 256 bytes");
      ranges[begin] = end;
    }
    free_everything(trace_.events.size());
  }

  static void fail(Result &result, const std::string &what) {
    if (result.failures++ == 0) result.first_failure = what;
  }

  const Allocator &allocator_;
  const Trace &trace_;
  FILE *csv_;
  DriverCalls driver_calls_;
  std::vector<void *> streams_;
  std::vector<void *> blocks_;  // by slot
  size_t interval_ = INTERVAL;
  size_t baseline_ = 0;
  uint64_t live_ = 0;
  uint64_t queries_ = 0;
  // Volatile, so that the compiler does not remove the calls.
  AllocFunction volatile nothing_alloc_ = no_alloc;
  FreeFunction volatile nothing_free_ = no_free;
  Progress progress_;
};

struct Arguments {
  AllocatorArguments allocator;
  std::string trace, csv;
  double limit = 0;
  bool json = false;
};

[[noreturn]] void refuse(const std::string &why) {
  std::fprintf(stderr, "replay: %s\n", why.c_str());
  std::exit(2);
}

Arguments parse(int count, char **values) {
  Arguments arguments;
  for (int i = 1; i < count; i++) {
    std::string option = values[i];
    if (option == "--json") {
      arguments.json = true;
    } else if (option.rfind("--", 0) != 0) {
      if (!arguments.trace.empty()) refuse("one trace at a time\n" + std::string(usage));
      arguments.trace = option;
    } else if (i + 1 == count) {
      refuse(option + " needs a value\n" + usage);
    } else if (option == "--csv") {
      arguments.csv = values[++i];
    } else if (option == "--limit") {
      char *end;
      arguments.limit = std::strtod(values[++i], &end);
      if (*end || !(arguments.limit > 0)) refuse(std::string("--limit ") + values[i] + " is not a positive number");
    } else if (!arguments.allocator.take(option, values[++i])) {
      refuse("unknown option " + option + "\n" + usage);
    }
  }
  if (!arguments.allocator.complete() || arguments.trace.empty()) refuse(std::string("too few arguments\n") + usage);
  return arguments;
}

std::string base_name(const std::string &path) {
  std::string name = path.substr(path.rfind('/') + 1);
  size_t ending = name.rfind(".trace");
  return ending == std::string::npos ? name : name.substr(0, ending);
}

int run(const Arguments &arguments) {
  Trace trace = read_trace(arguments.trace);
  Allocator allocator(arguments.allocator);
  Result result;
  result.allocator = allocator.name;
  result.trace = base_name(arguments.trace);
  result.device = allocator.device->describe();
  result.gpu = allocator.device->is_gpu();
  result.events = trace.events.size();
  result.streams = trace.streams;
  result.peak_live = trace.peak_live;
  if (arguments.limit > 0) {
    result.limit = static_cast<uint64_t>(arguments.limit * static_cast<double>(trace.peak_live));
    allocator.limit(result.limit);
  }
  FILE *csv = nullptr;
  if (!arguments.csv.empty() && !(csv = std::fopen(arguments.csv.c_str(), "w")))
    throw SetupError(arguments.csv + ": " + std::strerror(errno));
  Replay(allocator, trace, csv).run(result);
  if (csv && std::fclose(csv) != 0) throw SetupError(arguments.csv + ": " + std::strerror(errno));
  if (arguments.json) print_json(result);
  else print_text(result);
  return result.failed() ? 1 : 0;
}

}  // namespace
}  // namespace replay

int main(int count, char **values) {
  int status;
  try {
    status = replay::run(replay::parse(count, values));
  } catch (const std::runtime_error &error) {
    replay::refuse(error.what());
  }
  std::fflush(stdout);
  // Skips destructors, because those of some libraries fail after the driver was unloaded.
  _exit(status);
}
