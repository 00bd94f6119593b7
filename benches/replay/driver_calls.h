// Counts of driver calls and their estimated cost on an H200, for libraries that count them. plinth does so on its host
// device, and on a GPU with PLINTH_FAULT_INJECTION=1 (without costs, and slower).
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "allocator.h"

namespace replay {

struct DriverCallCount {
  uint64_t calls = 0, nanoseconds = 0;
};

class DriverCalls {
 public:
  using Counts = std::map<std::string, DriverCallCount>;

  explicit DriverCalls(const Allocator &allocator)
      : count_(find<Query>(allocator.library(), "plinth_driver_call_count")),
        cost_(find<Query>(allocator.library(), "plinth_driver_call_cost")) {
    auto list = find<int32_t (*)(char **)>(allocator.library(), "plinth_driver_calls");
    auto string_free = find<void (*)(char *)>(allocator.library(), "plinth_string_free");
    char *text = nullptr;
    if (!count_ || !cost_ || !list || !string_free || list(&text) != 0) return;
    std::istringstream lines(text);
    string_free(text);
    for (std::string line; std::getline(lines, line);) names_.push_back(line.substr(0, line.find(' ')));
    uint64_t ignored;
    if (names_.empty() || count_(names_[0].c_str(), &ignored) != 0) {
      names_.clear();
      return;
    }
    // The replay program's own query of used memory is a driver call too, and must not be counted as the allocator's. The
    // first query may make additional calls.
    allocator.device->used();
    Counts before = now();
    allocator.device->used();
    query_ = difference(before, now());
  }

  bool counted() const { return !names_.empty(); }

  Counts now() const {
    Counts counts;
    for (const std::string &name : names_) {
      DriverCallCount &entry = counts[name];
      count_(name.c_str(), &entry.calls);
      if (cost_(name.c_str(), &entry.nanoseconds) != 0) entry.nanoseconds = 0;
    }
    return counts;
  }

  // Returns the number and the cost of the calls so far that provide memory and track streams. There are few of them, so
  // that the sum is cheap enough for each slow operation.
  DriverCallCount sum() const {
    DriverCallCount sum;
    for (const char *name : MEMORY_CALLS) {
      DriverCallCount one;
      if (counted() && count_(name, &one.calls) == 0) sum.calls += one.calls;
      if (counted() && cost_(name, &one.nanoseconds) == 0) sum.nanoseconds += one.nanoseconds;
    }
    return sum;
  }

  // Returns the calls between two counts, less those of the replay program's own queries.
  Counts between(const Counts &before, const Counts &after, uint64_t queries) const {
    Counts counts = difference(before, after);
    for (const auto &[name, asked] : query_) {
      auto found = counts.find(name);
      if (found == counts.end()) continue;
      found->second.calls -= std::min(found->second.calls, asked.calls * queries);
      found->second.nanoseconds -= std::min(found->second.nanoseconds, asked.nanoseconds * queries);
      if (found->second.calls == 0) counts.erase(found);
    }
    return counts;
  }

 private:
  using Query = int32_t (*)(const char *, uint64_t *);

  static constexpr const char *MEMORY_CALLS[] = {
      "cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease",
      "cuMemAlloc", "cuMemFree", "cuStreamQuery", "cuStreamWaitEvent", "cuEventRecord", "cuEventQuery"};

  static Counts difference(const Counts &before, const Counts &after) {
    Counts counts;
    for (const auto &[name, entry] : after) {
      const DriverCallCount &old = before.at(name);
      if (entry.calls != old.calls) counts[name] = {entry.calls - old.calls, entry.nanoseconds - old.nanoseconds};
    }
    return counts;
  }

  Query count_, cost_;
  std::vector<std::string> names_;
  Counts query_;
};

}  // namespace replay
