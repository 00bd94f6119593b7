// The history of the allocator with the stacks that torch gathers.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#pragma once

#include "version.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <plinth.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace plinth_torch {

class Pools;

using Context = std::shared_ptr<c10::GatheredContext>;

// The newest entries, up to a maximum.
template <typename Entry>
class Ring {
 public:
  // Sets the maximum, which is at least 1, and discards what exceeds it.
  void set_maximum(size_t maximum) {
    maximum_ = maximum == 0 ? 1 : maximum;
    while (entries_.size() > maximum_) entries_.pop_front();
  }
  void clear() { entries_.clear(); }
  // Appends an entry; returns the one that it replaces in `dropped`, so that the caller destroys it without a lock.
  void push(Entry entry, std::vector<Entry>& dropped) {
    if (entries_.size() >= maximum_) {
      dropped.push_back(std::move(entries_.front()));
      entries_.pop_front();
    }
    entries_.push_back(std::move(entry));
  }
  std::vector<Entry> all() const { return {entries_.begin(), entries_.end()}; }

 private:
  std::deque<Entry> entries_;
  size_t maximum_ = 1;
};

// An event, and its time in microseconds since 1970.
struct RecordedEvent {
  c10::cuda::CUDACachingAllocator::TraceEntry entry;
  int64_t time_us;
};

// What the events of a call are recorded with, whichever thread delivers them.
struct CallInfo {
  Context context;
  std::string compile_context;
  std::string metadata;
};

// A call in progress.
struct Call {
  CallInfo info;
  uint64_t begin_us = 0;
  std::atomic<uint64_t> recorded{0};  // the address of the last allocation that was recorded
};

// The history: plinth delivers the events to a tracker, which adds the stacks that the call gathered before it took any
// lock.
class History {
 public:
  using Entry = c10::cuda::CUDACachingAllocator::TraceEntry;
  using Tracker = c10::cuda::CUDACachingAllocator::AllocatorTraceTracker;
  using RecordContext = c10::cuda::CUDACachingAllocator::RecordContext;

  explicit History(Pools& pools) : pools_(pools) {}

  bool enabled() const { return enabled_.load(std::memory_order_acquire); }
  // Whether events are delivered: a history is recorded, or a tracker is attached.
  bool active() const { return active_.load(std::memory_order_acquire); }

  void record(bool enabled, c10::cuda::CUDACachingAllocator::CreateContextFn recorder, size_t max_entries,
              RecordContext when, bool clear, const std::vector<std::string>& skip_actions);
  void attach(Tracker tracker);
  void annotate(const std::vector<std::pair<std::string, std::string>>& annotation);
  // Records metadata of a live block.
  void annotate_block(const plinth_pointer_attributes_t& block, const std::string& metadata);
  // Records that a snapshot was taken.
  void add_snapshot_event(c10::DeviceIndex device, size_t active_bytes, c10::MempoolId_t id);

  std::vector<Entry> events(c10::DeviceIndex device);
  std::vector<AnnotationEntry> annotations();
  // Returns the stack of the allocation of a live block; NULL if none was recorded.
  Context of_block(uint64_t address);
  // Returns the stack of the allocation for which a segment was created; NULL if none was recorded. Below the level
  // ALLOC only memory in use has a stack: `in_use` says whether the segment's first block is.
  Context of_segment(uint64_t address, bool in_use);
  // Whether live blocks have stacks although no events are delivered any more.
  bool keeps_stacks() const { return keeps_stacks_.load(std::memory_order_relaxed); }
  // Forgets the stack of a block before it is freed, if no event will do so.
  void forget(const void* pointer);
  // Returns a number that grows with each new segment, and stays while the segment exists.
  int32_t registration_of(uint64_t address);

  // Gathers a stack, if stacks are recorded at this level. Takes the GIL, so the caller holds no lock.
  Context gather(RecordContext level);

  void begin_call(Call* call, Call** previous);
  void end_call(Call* previous);
  // Waits until the allocation of a call is recorded: another thread may be delivering its event.
  void wait_for(const Call& call, const void* pointer) const;

 private:
  static void on_event(const plinth_memory_history_entry_t* event, void* context);
  void add(const plinth_memory_history_entry_t& event);
  void deliver(Entry entry, int64_t time_us);

  Pools& pools_;
  std::atomic<bool> enabled_{false};
  std::atomic<bool> active_{false};
  std::atomic<bool> keeps_stacks_{false};
  std::atomic<RecordContext> when_{RecordContext::NEVER};
  std::atomic<c10::cuda::CUDACachingAllocator::CreateContextFn> recorder_{nullptr};

  std::mutex calls_mutex_;
  std::unordered_map<uint64_t, Call*> calls_;

  std::mutex mutex_;
  uint32_t skip_ = 0;
  size_t maximum_ = 1;
  std::map<c10::DeviceIndex, Ring<RecordedEvent>> events_;
  Ring<AnnotationEntry> annotations_;
  std::unordered_map<uint64_t, Context> blocks_;
  std::map<uint64_t, Context> segments_;
  std::map<uint64_t, int32_t> registrations_;
  int32_t next_registration_ = 0;

  std::mutex trackers_mutex_;
  std::vector<Tracker> trackers_;
  std::atomic<bool> has_trackers_{false};
};

// Gathers what the events of a call are recorded with, for the duration of the call. Does nothing if no events are
// delivered. Calls may be nested, as a callback may allocate.
class CallScope {
 public:
  CallScope(History& history, History::RecordContext level);
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

  // Ends an allocation: afterwards its stack is found by its address.
  void allocated(const void* pointer) const {
    if (C10_UNLIKELY(active_)) history_.wait_for(call_, pointer);
  }

 private:
  History& history_;
  bool active_;
  Call call_;
  Call* previous_ = nullptr;
};

}  // namespace plinth_torch
