// Tests of which stacks the history and snapshots have, at each level. The expectations are those of torch's own
// allocator, unless a comment says otherwise.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "check.h"
#include "stacks.h"

#include <algorithm>
#include <set>

namespace {

using caching::TraceEntry;

// Returns all stacks of a snapshot.
std::set<int> stacks_in(const caching::SnapshotInfo& snapshot) {
  std::set<int> result;
  for (const auto& segment : snapshot.segments) {
    result.insert(number_of(segment.context_when_allocated));
    for (const auto& block : segment.blocks) result.insert(number_of(block.context_when_allocated));
  }
  for (const auto& events : snapshot.device_traces) {
    for (const auto& entry : events) result.insert(number_of(entry.context_));
  }
  result.erase(0);
  return result;
}

// Returns the stack of the newest entry with one of two actions.
int newest(TraceEntry::Action action, TraceEntry::Action other) {
  const auto events = trace();
  const auto found = std::find_if(events.rbegin(), events.rend(), [&](const auto& entry) {
    return entry.action_ == action || entry.action_ == other;
  });
  EXPECT(found != events.rend());
  return number_of(found->context_);
}

int newest(TraceEntry::Action action) { return newest(action, action); }

// The levels: which calls a snapshot shows, before and after the cache is emptied. torch shows the same, except for the
// stack of a segment: it loses that when a request takes a part of the segment, as this one does, and keeps it otherwise
// until the segment is freed. Here a segment always has one, at the level `state` while it is in use.
void test_levels() {
  auto* allocator = caching::get();
  for (const std::string level : {"none", "state", "alloc", "all"}) {
    for (const bool busy : {false, true}) {
      caching::emptyCache();
      record(level.c_str(), 1000);
      void* pointer = allocator->raw_alloc(48);
      const int allocation = level == "none" ? 0 : next_stack.load();
      EXPECT(number_of(caching::snapshot().segments.at(0).context_when_allocated) == allocation);
      if (busy) OK(plinth_sleep(20000000, PLINTH_STREAM_DEFAULT_OF(0)));
      allocator->raw_delete(pointer);
      const int free = next_stack;
      // At the level `state` only memory that is in use has a stack.
      std::set<int> expected;
      if (level == "alloc" || level == "all") expected.insert(allocation);
      if (level == "all") expected.insert(free);
      EXPECT(stacks_in(caching::snapshot()) == expected);
      EXPECT(newest(TraceEntry::SEGMENT_ALLOC, TraceEntry::SEGMENT_MAP) == (level == "state" ? 0 : allocation));

      caching::emptyCache();
      const int release = next_stack;
      EXPECT(release == (level == "all" ? free + 1 : free));
      if (level == "all") expected.insert(release);
      EXPECT(stacks_in(caching::snapshot()) == expected);
      // Without a stack of its own, a release has that of the segment.
      const int shown = level == "all" ? release : level == "alloc" ? allocation : 0;
      EXPECT(newest(TraceEntry::SEGMENT_FREE, TraceEntry::SEGMENT_UNMAP) == shown);
      stop();
      OK(plinth_synchronize(0));
    }
  }
}

// Live blocks keep their stacks when the recording ends.
void test_after_the_end() {
  auto* allocator = caching::get();
  caching::emptyCache();
  record("all", 1000);
  void* kept = allocator->raw_alloc(3 * kMiB);
  const int first = next_stack;
  void* freed = allocator->raw_alloc(3 * kMiB);
  EXPECT(next_stack == first + 1);
  stop();
  auto snapshot = caching::snapshot();
  EXPECT(number_of(find(snapshot, kept)->context_when_allocated) == first);
  EXPECT(number_of(find(snapshot, freed)->context_when_allocated) == first + 1);
  EXPECT(snapshot.device_traces.at(0).empty());
  // The next block at an address does not inherit one, whether a history is recorded then or not.
  allocator->raw_delete(freed);
  EXPECT(allocator->raw_alloc(3 * kMiB) == freed);
  EXPECT(find(caching::snapshot(), freed)->context_when_allocated == nullptr);
  record("none", 1000);
  EXPECT(number_of(find(caching::snapshot(), kept)->context_when_allocated) == first);
  allocator->raw_delete(kept);
  EXPECT(allocator->raw_alloc(3 * kMiB) == kept);
  EXPECT(find(caching::snapshot(), kept)->context_when_allocated == nullptr);
  stop();
  allocator->raw_delete(kept);
  allocator->raw_delete(freed);

  // A checkpoint's restore frees blocks without raw_delete.
  const c10::MempoolId_t id{2, 0};
  caching::beginAllocateToPool(0, id, every_stream());
  const auto state = caching::getCheckpointState(0, id);
  record("all", 1000);
  void* undone = allocator->raw_alloc(3 * kMiB);
  stop();
  EXPECT(number_of(find(caching::snapshot(), undone)->context_when_allocated) == next_stack);
  EXPECT(caching::setCheckpointPoolState(0, state).ptrs_freed == std::vector<void*>{undone});
  EXPECT(allocator->raw_alloc(3 * kMiB) == undone);
  EXPECT(find(caching::snapshot(), undone)->context_when_allocated == nullptr);

  // At the level `alloc` its frees have the stacks of the allocations, although it gathers one of its own.
  record("alloc", 1000);
  allocator->raw_delete(undone);
  undone = allocator->raw_alloc(3 * kMiB);
  const int allocation = next_stack;
  EXPECT(caching::setCheckpointPoolState(0, state).ptrs_freed == std::vector<void*>{undone});
  EXPECT(next_stack == allocation + 1);
  EXPECT(newest(TraceEntry::FREE_REQUESTED) == allocation);
  stop();
  caching::endAllocateToPool(0, id);
  caching::releasePool(0, id);
}

// A free that waits for a stream completes in a later call, and has the stack of that call.
void test_deferred_free() {
  auto* allocator = caching::get();
  caching::emptyCache();
  record("all", 1000);
  const auto other = c10::cuda::getStreamFromPool(false, 0);
  auto block = allocator->allocate(4096);
  void* address = block.get();
  const int allocation = next_stack;
  OK(plinth_sleep(50000000, other.stream()));
  caching::recordStream(block, other);
  block.clear();
  const int request = next_stack;
  const auto pending = caching::snapshot();
  const auto* found = find(pending, address);
  EXPECT(found != nullptr && found->active && !found->allocated);
  EXPECT(number_of(found->context_when_allocated) == allocation);
  EXPECT(newest(TraceEntry::FREE_REQUESTED) == request);
  other.synchronize();
  caching::emptyCache();
  EXPECT(next_stack == request + 1 && newest(TraceEntry::FREE_COMPLETED) == next_stack);
  stop();
}

void test_options() {
  auto* allocator = caching::get();
  record("all", 1000);
  caching::recordAnnotation({{"name", "step"}});
  caching::recordHistory(true, gather, 1000, caching::RecordContext::ALL, false, {});
  EXPECT(caching::snapshot().external_annotations.size() == 1);
  caching::recordHistory(true, gather, 1000, caching::RecordContext::ALL, true, {});
  EXPECT(caching::snapshot().external_annotations.empty());

  // The snapshot of a pool has the events of all pools; one without traces has no list of events.
  caching::recordAnnotation({{"name", "step"}});
  const c10::MempoolId_t id{0, 401};
  caching::beginAllocateToPool(0, id, every_stream());
  auto inside = allocator->allocate(kMiB);
  caching::endAllocateToPool(0, id);
  const auto outside = allocator->allocate(kMiB);
  const auto of_pool = caching::snapshot(id);
  EXPECT(of_pool.segments.size() == 1 && of_pool.external_annotations.size() == 1);
  for (const void* pointer : {inside.get(), outside.get()}) {
    const auto& events = of_pool.device_traces.at(0);
    EXPECT(std::any_of(events.begin(), events.end(), [&](const auto& entry) {
      return entry.addr_ == reinterpret_cast<size_t>(pointer) && entry.action_ == TraceEntry::ALLOC;
    }));
  }
  const auto bare = caching::snapshot({0, 0}, false);
  EXPECT(bare.device_traces.empty() && bare.external_annotations.empty());
  inside.clear();
  caching::releasePool(0, id);
  stop();
}

}  // namespace

void test_history_stacks() {
  test_levels();
  test_after_the_end();
  test_deferred_free();
  test_options();
}
