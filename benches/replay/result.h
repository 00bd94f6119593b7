// The results of a replay, and their output as text and as JSON.
#pragma once
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver_calls.h"

namespace replay {

struct Pass {
  size_t ops = 0;
  double ns_per_op = 0;
  int64_t peak_held = 0;   // the largest observed value
  int64_t held_after = 0;  // memory that the allocator caches after every block was freed
  DriverCalls::Counts driver_calls;
};

// The operation of the first pass whose driver calls cost most.
struct CostliestOperation {
  DriverCallCount driver_calls;
  size_t event = 0;
};

struct OutOfMemory {
  int pass;
  size_t event;
  uint64_t live, request;
  std::string message;
};

struct Result {
  std::string allocator, trace, device;
  bool gpu = false;
  size_t events = 0;
  uint32_t streams = 0;
  uint64_t limit = 0;  // 0: none
  uint64_t peak_live = 0;
  int64_t peak_held = 0;      // of the first pass, for the ratio of held to live memory
  int64_t peak_reserved = -1;  // of the first pass, as reported by the library; -1 if it does not report it
  double worst_ns = 0;
  size_t worst_event = 0;
  double clock_ns = 0, loop_ns = 0;
  size_t rounds = 0;  // of the steady state: the second pass, repeated
  // For an operation: the median, the smallest and the largest of the rounds.
  double steady_ns = 0, steady_least_ns = 0, steady_most_ns = 0;
  bool driver_calls_counted = false;
  CostliestOperation costliest;
  std::vector<Pass> passes;
  std::optional<OutOfMemory> out_of_memory;
  size_t failures = 0;
  std::string first_failure;

  double ratio() const {
    return peak_live ? static_cast<double>(peak_held) / static_cast<double>(peak_live) : 0;
  }
  bool failed() const { return out_of_memory || failures; }
};

inline std::pair<uint64_t, uint64_t> total(const DriverCalls::Counts &counts) {
  std::pair<uint64_t, uint64_t> sum{0, 0};
  for (const auto &[name, count] : counts) sum.first += count.calls, sum.second += count.nanoseconds;
  return sum;
}

inline double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

inline void print_pass(const char *name, const Pass &pass, bool driver_calls_counted) {
  std::printf("  %-24s%.1f ns per operation, %zu operations; at most %.1f MiB held, %.1f MiB afterwards\n", name,
              pass.ns_per_op, pass.ops, mib(pass.peak_held), mib(pass.held_after));
  if (!driver_calls_counted) return;
  auto [calls, cost] = total(pass.driver_calls);
  std::printf("  %-24s%" PRIu64 " driver calls", "", calls);
  double each = static_cast<double>(cost) / static_cast<double>(pass.ops);
  if (cost) std::printf(", on an H200 some %.1f ns per operation", each);
  const char *separator = ": ";
  for (const auto &[call, count] : pass.driver_calls) {
    std::printf("%s%s %" PRIu64, separator, call.c_str(), count.calls);
    separator = ", ";
  }
  std::puts("");
}

inline void print_text(const Result &result) {
  auto row = [](const char *name) { std::printf("  %-24s", name); };
  std::printf("%s, %s: %zu events, %u stream%s, on %s\n", result.trace.c_str(), result.allocator.c_str(), result.events,
              result.streams, result.streams == 1 ? "" : "s", result.device.c_str());
  if (result.limit) row("limit"), std::printf("%.1f MiB\n", mib(static_cast<int64_t>(result.limit)));
  static const char *names[] = {"first pass", "second pass"};
  for (size_t i = 0; i < result.passes.size(); i++)
    print_pass(names[i], result.passes[i], result.driver_calls_counted);
  if (result.rounds) {
    row("steady");
    std::printf("%.1f ns per operation, the median of %zu rounds (%.1f to %.1f)\n", result.steady_ns, result.rounds,
                result.steady_least_ns, result.steady_most_ns);
  }
  row("worst operation");
  std::printf("%.1f us, event %zu of the first pass\n", result.worst_ns / 1e3, result.worst_event);
  if (result.costliest.driver_calls.calls) {
    row("costliest operation");
    std::printf("%" PRIu64 " driver calls, on an H200 some %.1f us, event %zu of the first pass\n", result.costliest.driver_calls.calls,
                static_cast<double>(result.costliest.driver_calls.nanoseconds) / 1e3, result.costliest.event);
  }
  row("peak");
  std::printf("%.1f MiB live, %.1f MiB held, %.4f of live\n", mib(static_cast<int64_t>(result.peak_live)),
              mib(result.peak_held), result.ratio());
  if (result.peak_reserved >= 0)
    row("peak, by the library"), std::printf("%.1f MiB\n", mib(result.peak_reserved));
  row("measurement overhead");
  std::printf("clock %.1f ns (first pass), loop %.1f ns (both)\n", result.clock_ns, result.loop_ns);
  if (const auto &oom = result.out_of_memory) {
    row("OUT OF MEMORY");
    std::printf("pass %d, event %zu: %" PRIu64 " bytes requested, %" PRIu64 " live\n", oom->pass, oom->event,
                oom->request, oom->live);
    if (!oom->message.empty()) row(""), std::printf("%s\n", oom->message.c_str());
  }
  if (result.failures)
    row("FAILURES"), std::printf("%zu; the first: %s\n", result.failures, result.first_failure.c_str());
}

inline std::string quoted(const std::string &text) {
  std::string quoted = "\"";
  for (unsigned char c : text) {
    char escaped[8];
    if (c == '"' || c == '\\') quoted += '\\', quoted += static_cast<char>(c);
    else if (c < 0x20) std::snprintf(escaped, sizeof escaped, "\\u%04x", c), quoted += escaped;
    else quoted += static_cast<char>(c);
  }
  return quoted + '"';
}

// Prints one JSON object, for compare.py.
inline void print_json(const Result &result) {
  std::string json = "{";
  auto key = [&](const char *name) {
    if (json.back() != '{') json += ", ";
    json += quoted(name) + ": ";
  };
  auto text = [&](const char *name, const std::string &value) { key(name), json += quoted(value); };
  auto number = [&](const char *name, auto value) { key(name), json += std::to_string(value); };
  text("allocator", result.allocator);
  text("trace", result.trace);
  text("device", result.device);
  key("gpu"), json += result.gpu ? "true" : "false";
  number("events", result.events);
  number("streams", result.streams);
  number("limit", result.limit);
  number("peak_live", result.peak_live);
  number("peak_held", result.peak_held);
  number("peak_reserved", result.peak_reserved);
  number("worst_ns", result.worst_ns);
  number("worst_event", result.worst_event);
  if (result.driver_calls_counted) {
    number("costliest_calls", result.costliest.driver_calls.calls);
    number("costliest_ns", result.costliest.driver_calls.nanoseconds);
    number("costliest_event", result.costliest.event);
  }
  number("clock_ns", result.clock_ns);
  number("loop_ns", result.loop_ns);
  number("rounds", result.rounds);
  number("steady_ns", result.steady_ns);
  key("passes"), json += "[";
  for (const Pass &pass : result.passes) {
    json += &pass == &result.passes.front() ? "{" : ", {";
    number("ops", pass.ops);
    number("ns_per_op", pass.ns_per_op);
    number("peak_held", pass.peak_held);
    number("held_after", pass.held_after);
    if (result.driver_calls_counted) {
      number("driver_calls", total(pass.driver_calls).first);
      number("driver_ns", total(pass.driver_calls).second);
    }
    json += "}";
  }
  json += "]";
  if (const auto &oom = result.out_of_memory) {
    key("out_of_memory"), json += "{";
    number("pass", oom->pass);
    number("event", oom->event);
    number("live", oom->live);
    number("request", oom->request);
    text("message", oom->message);
    json += "}";
  }
  number("failures", result.failures);
  text("first_failure", result.first_failure);
  std::puts((json + "}").c_str());
}

}  // namespace replay
