// Recording of the history.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "bridge.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace plinth_torch {
namespace {

// torch's text for a thread that compiles nothing.
constexpr const char* kNoCompileContext = "N/A";

thread_local std::vector<std::string> compile_contexts;
thread_local std::string user_metadata;
thread_local bool inside_tracker = false;

uint64_t thread_id() {
  thread_local const auto id = static_cast<uint64_t>(syscall(SYS_gettid));
  return id;
}

int64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

int32_t number_of_action(const std::string& name) {
  for (int32_t action = PLINTH_MEMORY_ACTION_ALLOC; action <= PLINTH_MEMORY_ACTION_OOM; ++action) {
    if (name == plinth_memory_action_name(action)) return action;
  }
#if TORCH_VERSION_MINOR >= 14
  if (name == "annotate") return History::Entry::ANNOTATE;
#endif
  TORCH_CHECK(false, "recording the memory history: there is no action ", name, " to skip");
}

bool is_segment_event(History::Entry::Action action) {
  return action == History::Entry::SEGMENT_ALLOC || action == History::Entry::SEGMENT_MAP;
}

}  // namespace

static_assert(PLINTH_MEMORY_ACTION_ALLOC == History::Entry::ALLOC);
static_assert(PLINTH_MEMORY_ACTION_FREE_REQUESTED == History::Entry::FREE_REQUESTED);
static_assert(PLINTH_MEMORY_ACTION_FREE_COMPLETED == History::Entry::FREE_COMPLETED);
static_assert(PLINTH_MEMORY_ACTION_SEGMENT_ALLOC == History::Entry::SEGMENT_ALLOC);
static_assert(PLINTH_MEMORY_ACTION_SEGMENT_FREE == History::Entry::SEGMENT_FREE);
static_assert(PLINTH_MEMORY_ACTION_SEGMENT_MAP == History::Entry::SEGMENT_MAP);
static_assert(PLINTH_MEMORY_ACTION_SEGMENT_UNMAP == History::Entry::SEGMENT_UNMAP);
static_assert(PLINTH_MEMORY_ACTION_SNAPSHOT == History::Entry::SNAPSHOT);
static_assert(PLINTH_MEMORY_ACTION_OOM == History::Entry::OOM);

CallScope::CallScope(History& history, History::RecordContext level) : history_(history), active_(history.active()) {
  if (C10_LIKELY(!active_)) return;
  call_.info.context = history.gather(level);
  call_.info.compile_context = compile_contexts.empty() ? kNoCompileContext : compile_contexts.back();
  call_.info.metadata = user_metadata;
  call_.begin_us = static_cast<uint64_t>(now_us());
  history_.begin_call(&call_, &previous_);
}

CallScope::~CallScope() {
  if (C10_UNLIKELY(active_)) history_.end_call(previous_);
}

Context History::gather(RecordContext level) {
  if (when_.load(std::memory_order_acquire) < level) return nullptr;
  const auto recorder = recorder_.load(std::memory_order_acquire);
  return recorder == nullptr ? nullptr : recorder();
}

void History::begin_call(Call* call, Call** previous) {
  const std::lock_guard<std::mutex> lock(calls_mutex_);
  Call*& current = calls_[thread_id()];
  *previous = current;
  current = call;
}

void History::end_call(Call* previous) {
  const std::lock_guard<std::mutex> lock(calls_mutex_);
  if (previous != nullptr) {
    calls_[thread_id()] = previous;
  } else {
    calls_.erase(thread_id());
  }
}

void History::wait_for(const Call& call, const void* pointer) const {
  // A tracker's own requests are not recorded. A history that ends meanwhile records nothing more, which the limit covers.
  const auto recorded = [&] {
    return call.recorded.load(std::memory_order_acquire) == reinterpret_cast<uint64_t>(pointer);
  };
  if (inside_tracker || recorded()) return;
  // Without the caching allocator there are no events.
  bool caching = false;
  const char* backend = "";
  plinth_caching_allocator_is_enabled(&caching);
  plinth_get_allocator_backend(&backend);
  if (!caching || std::string(backend) != "native") return;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (!recorded() && active() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
}

void History::record(bool enabled, caching::CreateContextFn recorder, size_t max_entries, RecordContext when, bool clear,
                     const std::vector<std::string>& skip_actions) {
  TORCH_CHECK(when == RecordContext::NEVER || recorder != nullptr || !enabled,
              "recording the memory history: stacks were asked for, and no function gathers them");
  uint32_t skip = 0;
  for (const auto& action : skip_actions) {
    skip |= 1U << number_of_action(action);
  }
  const std::lock_guard<std::mutex> attach_lock(trackers_mutex_);
  if (enabled && !active()) check(plinth_attach_allocator_trace_tracker(on_event, this));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    skip_ = enabled ? skip : 0;
    maximum_ = max_entries;
    annotations_.set_maximum(max_entries);
    if (!enabled || clear) annotations_.clear();
    for (auto& [device, events] : events_) {
      events.set_maximum(max_entries);
      if (!enabled || clear) events.clear();
    }
    // Live blocks keep their stacks, as in torch. Without events it would not be known when a segment ends.
    if (!enabled) segments_.clear();
    keeps_stacks_.store(!enabled && !blocks_.empty(), std::memory_order_relaxed);
  }
  recorder_.store(enabled ? recorder : nullptr, std::memory_order_release);
  when_.store(enabled ? when : RecordContext::NEVER, std::memory_order_release);
  enabled_.store(enabled, std::memory_order_release);
  const bool needed = enabled || has_trackers_.load(std::memory_order_acquire);
  const bool was_active = active_.exchange(needed);
  if (!needed && was_active) check(plinth_detach_allocator_trace_tracker(on_event, this));
}

void History::attach(Tracker tracker) {
  const std::lock_guard<std::mutex> lock(trackers_mutex_);
  if (!active()) check(plinth_attach_allocator_trace_tracker(on_event, this));
  {
    const std::lock_guard<std::mutex> entries(mutex_);
    trackers_.push_back(std::move(tracker));
  }
  has_trackers_.store(true, std::memory_order_release);
  active_.store(true, std::memory_order_release);
}

void History::on_event(const plinth_memory_history_entry_t* event, void* context) {
  // plinth's own event of a snapshot names no pool; the bridge records one for each device.
  if (event->action == PLINTH_MEMORY_ACTION_SNAPSHOT) return;
  // plinth delivers events of all threads in one of them, never within a tracker.
  struct Inside {
    Inside() { inside_tracker = true; }
    ~Inside() { inside_tracker = false; }
  } const inside;
  try {
    static_cast<History*>(context)->add(*event);
  } catch (const std::exception& error) {
    warn("recording an event of the memory history", error);
  }
}

void History::add(const plinth_memory_history_entry_t& event) {
  const auto action = static_cast<Entry::Action>(event.action);
  CallInfo call;
  call.compile_context = kNoCompileContext;
  {
    const std::lock_guard<std::mutex> lock(calls_mutex_);
    const auto found = calls_.find(event.thread);
    // The thread may have gone on to another call since.
    if (found != calls_.end() && event.time_us >= found->second->begin_us) call = found->second->info;
  }
  Context context = call.context;
  const RecordContext level = when_.load(std::memory_order_acquire);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (action == Entry::ALLOC) {
      blocks_.erase(event.address);
      if (context) blocks_.emplace(event.address, context);
    } else if (action == Entry::FREE_REQUESTED || action == Entry::FREE_COMPLETED) {
      // A free without a stack of its own has that of the allocation. A call that allocates gathers one at lower levels
      // too; if it frees a block, as the restore of a checkpoint does, the free has that of the block's allocation.
      if (action == Entry::FREE_REQUESTED && level < RecordContext::ALL) context = nullptr;
      const auto found = blocks_.find(event.address);
      if (found != blocks_.end()) {
        if (!context) context = found->second;
        if (action == Entry::FREE_COMPLETED) blocks_.erase(found);
      }
    } else if (is_segment_event(action)) {
      segments_.erase(event.address);
      if (context) segments_.emplace(event.address, context);
    } else if (action == Entry::SEGMENT_FREE || action == Entry::SEGMENT_UNMAP) {
      // A release without a stack of its own has that of the allocation, too.
      const auto found = segments_.find(event.address);
      if (!context && found != segments_.end()) context = found->second;
      const uint64_t end = event.address + event.size;
      segments_.erase(segments_.lower_bound(event.address), segments_.lower_bound(end));
      registrations_.erase(registrations_.lower_bound(event.address), registrations_.lower_bound(end));
    }
    if (is_segment_event(action)) registrations_.emplace(event.address, next_registration_++);
  }
  if (level < RecordContext::ALLOC) context = nullptr;
  deliver(Entry(action, static_cast<c10::DeviceIndex>(event.device), event.address, event.size, event.stream,
                pools_.of_plinth(event.pool), c10::getApproximateTime(), std::move(context),
                std::move(call.compile_context), std::move(call.metadata)),
          static_cast<int64_t>(event.time_us));
  if (action == Entry::ALLOC) {
    const std::lock_guard<std::mutex> lock(calls_mutex_);
    const auto found = calls_.find(event.thread);
    if (found != calls_.end()) found->second->recorded.store(event.address, std::memory_order_release);
  }
}

void History::deliver(Entry entry, int64_t time_us) {
  std::vector<Tracker> trackers;
  std::vector<RecordedEvent> dropped;
  if (has_trackers_.load(std::memory_order_acquire)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    trackers = trackers_;
  }
  for (const auto& tracker : trackers) tracker(entry);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!enabled() || (skip_ & (1U << entry.action_)) != 0) return;
  auto [found, created] = events_.try_emplace(entry.device_);
  if (created) found->second.set_maximum(maximum_);
  found->second.push({std::move(entry), time_us}, dropped);
}

void History::add_snapshot_event(c10::DeviceIndex device, size_t active_bytes, c10::MempoolId_t id) {
  if (!active()) return;
  const std::string compile = compile_contexts.empty() ? kNoCompileContext : compile_contexts.back();
  deliver(Entry(Entry::SNAPSHOT, device, 0, active_bytes, nullptr, id, c10::getApproximateTime(), nullptr, compile,
                user_metadata),
          now_us());
}

std::vector<History::Entry> History::events(c10::DeviceIndex device) {
  std::vector<RecordedEvent> recorded;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = events_.find(device);
    if (found != events_.end()) recorded = found->second.all();
  }
  std::vector<Entry> result;
  for (auto& event : recorded) {
    event.entry.time_.t_ = event.time_us;
    result.push_back(std::move(event.entry));
  }
  return result;
}

void History::annotate(const std::vector<std::pair<std::string, std::string>>& annotation) {
  if (!enabled()) return;
  c10::DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  AnnotationEntry entry(device, 0);
  entry.time_.t_ = now_us();
  for (const auto& [name, value] : annotation) entry.recordUserMetadata(name, value);
  std::vector<AnnotationEntry> dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  annotations_.push(std::move(entry), dropped);
}

#if TORCH_VERSION_MINOR >= 14
void History::annotate_block(const plinth_pointer_attributes_t& block, const std::string& metadata) {
  Context context = gather(RecordContext::ALLOC);
  struct Search {
    uint64_t address;
    void* stream;
  } search{reinterpret_cast<uint64_t>(block.base), nullptr};
  const auto visit = [](const plinth_memory_segment_t* segment, const plinth_memory_block_t*, void* context) {
    auto& wanted = *static_cast<Search*>(context);
    if (wanted.address - segment->address >= segment->total_size) return true;
    wanted.stream = reinterpret_cast<void*>(segment->stream);
    return false;
  };
  check(plinth_memory_snapshot_each(visit, &search));
  const std::string compile = compile_contexts.empty() ? kNoCompileContext : compile_contexts.back();
  deliver(Entry(Entry::ANNOTATE, static_cast<c10::DeviceIndex>(block.device), search.address, block.size, search.stream,
                pools_.of_plinth(block.pool), c10::getApproximateTime(), std::move(context), compile, metadata),
          now_us());
}
#endif

std::vector<AnnotationEntry> History::annotations() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return annotations_.all();
}

Context History::of_block(uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(address);
  return found == blocks_.end() ? nullptr : found->second;
}

Context History::of_segment(uint64_t address, bool in_use) {
  if (!in_use && when_.load(std::memory_order_acquire) < RecordContext::ALLOC) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = segments_.find(address);
  return found == segments_.end() ? nullptr : found->second;
}

void History::forget(const void* pointer) {
  if (active()) return;
  Context dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<uint64_t>(pointer));
  if (found == blocks_.end()) return;
  dropped = std::move(found->second);
  blocks_.erase(found);
  if (blocks_.empty()) keeps_stacks_.store(false, std::memory_order_relaxed);
}

int32_t History::registration_of(uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [found, created] = registrations_.emplace(address, next_registration_);
  if (created) ++next_registration_;
  return found->second;
}

bool Allocator::isHistoryEnabled() { return history_.enabled(); }

void Allocator::recordHistory(bool enabled, caching::CreateContextFn recorder, size_t max_entries,
                              caching::RecordContext when, bool clear, const std::vector<std::string>& skip_actions) {
  history_.record(enabled, recorder, max_entries, when, clear, skip_actions);
}

void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>>& annotation) {
  history_.annotate(annotation);
}

void Allocator::pushCompileContext(std::string& context) {
  if (history_.enabled()) compile_contexts.push_back(context);
}

void Allocator::popCompileContext() {
  if (!compile_contexts.empty()) compile_contexts.pop_back();
}

void Allocator::setUserMetadata(const std::string& metadata) {
  user_metadata = metadata;
  check(plinth_set_memory_metadata(metadata.c_str()));
}

std::string Allocator::getUserMetadata() { return user_metadata; }

#if TORCH_VERSION_MINOR >= 12
std::shared_ptr<c10::GatheredContext> Allocator::getContextForPointer(const void* pointer) {
  return history_.of_block(reinterpret_cast<uint64_t>(pointer));
}
#endif

#if TORCH_VERSION_MINOR >= 14
void Allocator::annotateMemory(const void* pointer, const std::string& metadata) {
  if (!history_.enabled()) return;
  plinth_pointer_attributes_t block = PLINTH_POINTER_ATTRIBUTES_INIT;
  check(plinth_pointer_attributes(const_cast<void*>(pointer), &block));
  TORCH_CHECK(block.owner == PLINTH_OWNER_CACHING_ALLOCATOR && block.base == pointer, "annotating memory: ", pointer,
              " is not the beginning of a live allocation");
  history_.annotate_block(block, metadata);
}
#endif

void Allocator::attachAllocatorTraceTracker(caching::AllocatorTraceTracker tracker) { history_.attach(std::move(tracker)); }

}  // namespace plinth_torch
