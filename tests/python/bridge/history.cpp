// Tests of the history, of snapshots and of trackers.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "check.h"
#include "stacks.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace {

using caching::TraceEntry;

std::vector<TraceEntry> of_block(const void* pointer) {
  std::vector<TraceEntry> result;
  for (const auto& entry : trace()) {
    if (entry.addr_ == reinterpret_cast<size_t>(pointer) && entry.action_ <= TraceEntry::FREE_COMPLETED) {
      result.push_back(entry);
    }
  }
  return result;
}

}  // namespace

void test_history() {
  auto* allocator = caching::get();
  caching::emptyCache();
  EXPECT(!caching::isHistoryEnabled());
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                       std::chrono::system_clock::now().time_since_epoch()).count();
  record("all", 1000);
  EXPECT(caching::isHistoryEnabled());
  caching::setUserMetadata("step 3");
  EXPECT(caching::getUserMetadata() == "step 3");
  std::string graph = "graph 0/0";
  caching::pushCompileContext(graph);
  auto block = allocator->allocate(3 * kMiB);
  void* address = block.get();
  caching::popCompileContext();
  caching::setUserMetadata("");
  caching::recordAnnotation({{"name", "forward"}, {"stage", "START"}});
  const int allocation = next_stack;
  auto snapshot = caching::snapshot();
  EXPECT(snapshot.device_traces.size() == 2);
  const auto* live = find(snapshot, address);
  EXPECT(live != nullptr && live->allocated && live->active && live->requested_size == 3 * kMiB);
  EXPECT(number_of(live->context_when_allocated) == allocation);
  EXPECT(snapshot.segments.at(0).registration_counter >= 0);
  EXPECT(number_of(snapshot.segments.at(0).context_when_allocated) == allocation);
  EXPECT(snapshot.external_annotations.size() == 1);
  EXPECT(snapshot.external_annotations[0].metadata_.at("name") == "forward");
  EXPECT(snapshot.external_annotations[0].time_.t_ >= now);
  EXPECT(!snapshot.config_metadata.last_allocator_settings.empty());
  EXPECT(snapshot.config_metadata.expandable_segments == (std::getenv("PLINTH_ALLOC_CONF") == nullptr));
  block.clear();
  const int freed = next_stack;
  EXPECT(freed == allocation + 1);
  auto entries = of_block(address);
  EXPECT(entries.size() == 3);
  EXPECT(entries[0].action_ == TraceEntry::ALLOC && entries[0].size_ == 3 * kMiB && entries[0].device_ == 0);
  EXPECT(number_of(entries[0].context_) == allocation);
  EXPECT(entries[0].compile_context_ == "graph 0/0" && entries[0].user_metadata_ == "step 3");
  EXPECT(entries[0].time_.t_ >= now && entries[0].time_.t_ < now + 60000000);
  EXPECT(entries[1].action_ == TraceEntry::FREE_REQUESTED && number_of(entries[1].context_) == freed);
  EXPECT(entries[1].compile_context_ == "N/A" && entries[1].user_metadata_.empty());
  EXPECT(entries[2].action_ == TraceEntry::FREE_COMPLETED && number_of(entries[2].context_) == freed);
  const auto& events = snapshot.device_traces[0];
  EXPECT(std::any_of(events.begin(), events.end(), [](const auto& entry) {
    return entry.action_ == TraceEntry::SEGMENT_MAP || entry.action_ == TraceEntry::SEGMENT_ALLOC;
  }));
  // The event of a snapshot is in later ones only.
  const auto is_snapshot = [](const auto& entry) { return entry.action_ == TraceEntry::SNAPSHOT; };
  const auto snapshots = std::count_if(events.begin(), events.end(), is_snapshot);
  caching::emptyCache();
  const auto emptied = trace();
  EXPECT(std::count_if(emptied.begin(), emptied.end(), is_snapshot) > snapshots);
  EXPECT(std::any_of(emptied.begin(), emptied.end(), [](const auto& entry) {
    return (entry.action_ == TraceEntry::SEGMENT_UNMAP || entry.action_ == TraceEntry::SEGMENT_FREE) && entry.context_;
  }));

  // Another thread's events have the stacks of that thread, gathered by it.
  std::thread([&] {
    const int before = stacks_here;
    allocator->allocate(1000);
    EXPECT(stacks_here == before + 2);
  }).join();

  // plinth may deliver a thread's events in another thread. They keep the stacks of the thread that caused them.
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        const auto mine = allocator->allocate(5000);
        const int here = last_here;
        const auto state = caching::snapshot({0, 0}, false);
        const auto* found = find(state, mine.get());
        EXPECT(found != nullptr && number_of(found->context_when_allocated) == here);
      }
    });
  }
  for (auto& thread : threads) thread.join();

  // Levels: the stack of an allocation serves its free; stacks of live blocks only.
  record("alloc", 1000);
  auto once = allocator->allocate(2000);
  const int only = next_stack;
  void* once_address = once.get();
  once.clear();
  EXPECT(next_stack == only);
  entries = of_block(once_address);
  EXPECT(entries.size() == 3 && number_of(entries[1].context_) == only && number_of(entries[2].context_) == only);
  record("state", 1000);
  auto stated = allocator->allocate(2000);
  snapshot = caching::snapshot();
  EXPECT(number_of(find(snapshot, stated.get())->context_when_allocated) == next_stack);
  EXPECT(of_block(stated.get()).at(0).context_ == nullptr);
  record("none", 1000);
  const int without = next_stack;
  auto bare = allocator->allocate(2000);
  EXPECT(next_stack == without && of_block(bare.get()).at(0).context_ == nullptr);

  // Limits and skipped actions.
  record("all", 5);
  for (int round = 0; round < 20; ++round) allocator->allocate(1000);
  EXPECT(trace().size() == 5);
  record("all", 1000, {"free_requested", "free_completed"});
  for (int round = 0; round < 3; ++round) allocator->allocate(1000);
  size_t allocations = 0;
  for (const auto& entry : trace()) {
    EXPECT(entry.action_ != TraceEntry::FREE_REQUESTED && entry.action_ != TraceEntry::FREE_COMPLETED);
    allocations += entry.action_ == TraceEntry::ALLOC;
  }
  EXPECT(allocations == 3);
  EXPECT(contains(message_of([] { record("all", 5, {"frees"}); }), "frees"));
  EXPECT(contains(message_of([] {
    caching::recordHistory(true, nullptr, 5, caching::RecordContext::ALL, true, {});
  }), "no function gathers them"));
  // Without clear, earlier entries stay.
  caching::recordHistory(true, gather, 1000, caching::RecordContext::ALL, false, {});
  EXPECT(trace().size() >= 3);

#if TORCH_VERSION_MINOR >= 14
  // Metadata of a block that is allocated already, with a stack of its own.
  EXPECT(caching::supportsUserMetadata());
  record("all", 1000);
  c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool();
  void* streamed = caching::raw_alloc_with_stream(3 * kMiB, side.stream());
  const int stack_of_allocation = next_stack;
  EXPECT(number_of(caching::getContextForPointer(streamed)) == stack_of_allocation);
  caching::annotateMemory(streamed, "saved for backward");
  const auto annotated = trace().back();
  EXPECT(annotated.action_ == TraceEntry::ANNOTATE && annotated.user_metadata_ == "saved for backward");
  EXPECT(annotated.addr_ == reinterpret_cast<size_t>(streamed) && annotated.size_ == 3 * kMiB && annotated.device_ == 0);
  EXPECT(annotated.stream_ == side.stream() && number_of(annotated.context_) == stack_of_allocation + 1);
  const auto inside = static_cast<char*>(streamed) + 512;
  EXPECT(contains(message_of([&] { caching::annotateMemory(inside, "x"); }), "not the beginning of a live allocation"));
  EXPECT(caching::getContextForPointer(inside) == nullptr);
  caching::raw_delete(streamed);
  EXPECT(contains(message_of([&] { caching::annotateMemory(streamed, "x"); }), "not the beginning of a live allocation"));
  record("all", 1000, {"annotate"});
  caching::annotateMemory(bare.get(), "skipped");
  EXPECT(trace().empty() || trace().back().action_ != TraceEntry::ANNOTATE);
#endif

  // An allocation that fails is an event with the free memory.
  message_of<c10::OutOfMemoryError>([&] { allocator->allocate(3000 * kMiB); });
  const auto failed = trace();
  EXPECT(std::any_of(failed.begin(), failed.end(), [](const auto& entry) {
    return entry.action_ == TraceEntry::OOM && entry.size_ >= 3000 * kMiB && entry.addr_ <= 1024 * kMiB && entry.context_;
  }));

  stop();
  EXPECT(!caching::isHistoryEnabled());
  EXPECT(trace().empty());
  const int silent = next_stack;
  allocator->allocate(1000);
  EXPECT(next_stack == silent);
  caching::recordAnnotation({{"name", "ignored"}});
  EXPECT(caching::snapshot().external_annotations.empty());
}

void test_trackers() {
  auto* allocator = caching::get();
  caching::emptyCache();
  static std::vector<TraceEntry> seen;
  caching::attachAllocatorTraceTracker([](const TraceEntry& entry) { seen.push_back(entry); });
  auto block = allocator->allocate(3 * kMiB);
  void* address = block.get();
  block.clear();
  caching::emptyCache();
  std::vector<TraceEntry::Action> actions;
  for (const auto& entry : seen) {
    EXPECT(entry.device_ == 0);
    actions.push_back(entry.action_);
  }
  const auto at = [&](TraceEntry::Action action) { return std::find(actions.begin(), actions.end(), action); };
  const bool fixed = std::getenv("PLINTH_ALLOC_CONF") != nullptr;
  const auto segment = at(fixed ? TraceEntry::SEGMENT_ALLOC : TraceEntry::SEGMENT_MAP);
  const auto end = at(fixed ? TraceEntry::SEGMENT_FREE : TraceEntry::SEGMENT_UNMAP);
  EXPECT(segment < at(TraceEntry::ALLOC) && at(TraceEntry::ALLOC) < at(TraceEntry::FREE_REQUESTED));
  EXPECT(at(TraceEntry::FREE_REQUESTED) < at(TraceEntry::FREE_COMPLETED) && at(TraceEntry::FREE_COMPLETED) < end);
  EXPECT(end != actions.end());
  EXPECT(seen[static_cast<size_t>(at(TraceEntry::ALLOC) - actions.begin())].addr_ == reinterpret_cast<size_t>(address));
  // A tracker works without a history and while one is recorded, whatever that skips.
  record("all", 10, {"alloc"});
  const size_t before = seen.size();
  allocator->allocate(1000);
  EXPECT(seen.size() >= before + 3);
  stop();
  EXPECT(!caching::isHistoryEnabled());
  const size_t still = seen.size();
  allocator->allocate(1000);
  EXPECT(seen.size() == still + 3);
}
