// Recording of the history with stacks that are numbers.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#pragma once

#include "check.h"

#include <atomic>

// What torch's recorder gathers are Python and C++ frames; here it is a number.
struct Stack final : c10::GatheredContext {
  explicit Stack(int number) : number(number) {}
  int number;
};

inline std::atomic<int> next_stack{0};
inline thread_local int stacks_here = 0;
inline thread_local int last_here = 0;

inline std::shared_ptr<c10::GatheredContext> gather() {
  ++stacks_here;
  last_here = ++next_stack;
  return std::make_shared<Stack>(last_here);
}

inline int number_of(const std::shared_ptr<c10::GatheredContext>& context) {
  const auto stack = std::dynamic_pointer_cast<Stack>(context);
  return stack ? stack->number : 0;
}

inline std::vector<caching::TraceEntry> trace() { return caching::snapshot().device_traces.at(0); }

inline const caching::BlockInfo* find(const caching::SnapshotInfo& snapshot, const void* pointer) {
  for (const auto& segment : snapshot.segments) {
    size_t address = segment.address;
    for (const auto& block : segment.blocks) {
      if (address == reinterpret_cast<size_t>(pointer)) return &block;
      address += block.size;
    }
  }
  return nullptr;
}

inline void record(const char* level, size_t maximum, const std::vector<std::string>& skip = {}) {
  const std::string name = level;
  const auto when = name == "all"     ? caching::RecordContext::ALL
                    : name == "alloc" ? caching::RecordContext::ALLOC
                    : name == "state" ? caching::RecordContext::STATE
                                      : caching::RecordContext::NEVER;
  caching::recordHistory(true, gather, maximum, when, true, skip);
}

inline void stop() { caching::recordHistory(false, nullptr, 1, caching::RecordContext::NEVER, true, {}); }
