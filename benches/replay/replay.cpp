// Replays a recorded allocation trace against one allocator, in a process of its own so that held memory counts.
//
//   replay --allocator NAME --library LIB --alloc SYMBOL --free SYMBOL [--limit RATIO] [--csv FILE] [--json] TRACE
//
// The first pass meets an allocator that has nothing; each operation is timed. Then everything is freed and the trace
// comes again: that is the steady state, timed in stretches, so that no clock is in it, and repeated for a median. A
// last pass is not timed and looks at the addresses: blocks must not overlap and must be aligned as the driver's are.
//
// Held memory is what the device says is used, less what was used before the first operation. It is asked, outside of
// the time: after each operation of the first pass that took so long that it may have gone to the driver, where live
// memory is at its peak, and at regular intervals. plinth_max_memory_reserved counts, too, where it is more.
//
// Exit status: 0; 1 for an allocator that ran out of memory or gave wrong memory; 2 for arguments, a trace or a
// library that make no sense. benches/replay/compare.py runs this for many allocators and traces.
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

constexpr size_t INTERVAL = 4096;      // events between two looks at held memory
constexpr double SUSPICIOUS = 20'000;  // ns; no path without the driver takes that long, and few with it take less
constexpr size_t CSV_ROWS = 1000;      // of a pass, about
constexpr size_t ROUNDS = 9;           // of the steady state
constexpr double ROUNDS_TIME = 1e9;    // ns, after which no more of them begin
constexpr uintptr_t ALIGNMENT = 256;   // what cudaMalloc promises

const char usage[] =
    "usage: replay --allocator NAME --library LIB --alloc SYMBOL --free SYMBOL\n"
    "              [--limit RATIO] [--csv FILE] [--json] TRACE\n"
    "  --limit RATIO  lets the allocator hold at most RATIO times the trace's peak of live memory\n"
    "  --csv FILE     live and held memory over time; looks at held memory more often, which costs speed\n"
    "  --json         one JSON object instead of text\n";

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
    if (!result.out_of_memory) look_at_addresses(result);
    std::string broken = allocator_.check();
    if (!broken.empty()) fail(result, broken);
  }

 private:
  void pass(Result &result, int number) {
    Pass pass;
    live_ = 0;
    questions_ = 0;
    allocator_.reset_peak();
    auto before = driver_calls_.now();
    look(number, 0, pass);
    double spent = number == 1 ? timed_each(result, pass) : timed_in_stretches(result, pass);
    look(number, pass.ops, pass);
    pass.ns_per_op = pass.ops ? spent / static_cast<double>(pass.ops) : 0;
    // Freeing what the trace leaves is not in the figures: the recording ended there, not the workload.
    pass.driver_calls = driver_calls_.between(before, driver_calls_.now(), questions_);
    // What is held for a moment only may not be seen; a library that keeps account of it is believed if that is more.
    int64_t reserved = allocator_.max_reserved();
    if (number == 1) result.peak_reserved = reserved;
    pass.peak_held = std::max(pass.peak_held, reserved);
    free_everything(pass.ops);
    allocator_.device->synchronize();
    pass.held_after = held();
    result.passes.push_back(std::move(pass));
  }

  // The second pass again and again: one alone is short, and something else on the machine may be in it.
  void steady(Result &result) {
    std::vector<double> rounds{result.passes[1].ns_per_op};
    auto start = Clock::now();
    while (!csv_ && rounds.size() < ROUNDS && nanoseconds(start, Clock::now()) < ROUNDS_TIME) {
      Pass again;
      live_ = 0;
      double spent = timed_in_stretches(result, again);
      free_everything(again.ops);
      if (result.out_of_memory) return;
      rounds.push_back(spent / static_cast<double>(again.ops));
    }
    result.rounds = rounds.size();
    result.steady_ns = Percentiles(rounds).p50;
    result.steady_least_ns = rounds.front();
    result.steady_most_ns = rounds.back();
  }

  double timed_each(Result &result, Pass &pass) {
    double spent = 0;
    const size_t count = trace_.events.size();
    for (size_t i = 0; i < count; i++) {
      auto start = Clock::now();
      bool enough = step(trace_.events[i], allocator_.alloc, allocator_.free);
      double time = nanoseconds(start, Clock::now());
      spent += time;
      pass.ops++;
      if (time > result.worst_ns) result.worst_ns = time, result.worst_event = i;
      if (!account(result, 1, i, enough)) break;
      if (time > SUSPICIOUS || i % interval_ == 0 || i == trace_.peak_event) look(1, i, pass);
      if (i % INTERVAL == 0) progress_.show(result.trace + ", first pass", i, count);
    }
    return spent;
  }

  double timed_in_stretches(Result &result, Pass &pass) {
    double spent = 0;
    const size_t count = trace_.events.size();
    const size_t stretch = std::min(interval_, INTERVAL);
    for (size_t i = 0; i < count;) {
      size_t end = std::min(count, i + stretch);
      if (i <= trace_.peak_event && trace_.peak_event < end) end = trace_.peak_event + 1;
      size_t begin = i;
      bool enough = true;
      auto start = Clock::now();
      for (; i < end && enough; i++) enough = step(trace_.events[i], allocator_.alloc, allocator_.free);
      spent += nanoseconds(start, Clock::now());
      pass.ops += i - begin;
      for (size_t k = begin; k + 1 < i; k++) account(result, 2, k, true);
      if (!account(result, 2, i - 1, enough)) break;
      look(2, i, pass);
      progress_.show(result.trace + ", second pass", i, count);
    }
    return spent;
  }

  // The loop that is timed. False when the allocation failed.
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

  // Keeps the books after an event. False, and out of memory, if it was an allocation that gave nothing.
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
    questions_++;
    return static_cast<int64_t>(allocator_.device->used()) - static_cast<int64_t>(baseline_);
  }

  void look(int pass_number, size_t event, Pass &pass) {
    int64_t now = held();
    pass.peak_held = std::max(pass.peak_held, now);
    if (csv_)
      std::fprintf(csv_, "%d,%zu,%" PRIu64 ",%" PRId64 ",%" PRId64 "\n", pass_number, event, live_, now,
                   allocator_.reserved());
  }

  // What is left is from the last allocation in each slot, as far as the trace was played.
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

  // The loop of the second pass around functions that do nothing.
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

  void look_at_addresses(Result &result) {
    live_ = 0;
    std::map<uintptr_t, uintptr_t> ranges;  // from and to, of what is live
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
      std::string got = "event " + std::to_string(i) + " got memory that ";
      if (overlaps) fail(result, got + "overlaps a live block");
      if (begin % ALIGNMENT) fail(result, got + "is not aligned to 256 bytes");
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
  uint64_t questions_ = 0;
  // Volatile, or the compiler would see that they do nothing.
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
      if (*end || !(arguments.limit > 0)) refuse(std::string("--limit ") + values[i] + " is no positive number");
    } else if (!arguments.allocator.take(option, values[++i])) {
      refuse("there is no option " + option + "\n" + usage);
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
  // Some libraries' destructors fail once the driver is gone; what they would give back, the system takes.
  _exit(status);
}
