/*!
 * @file plinth_memory.hpp
 * @brief The caching allocator in C++17: buffers, pools, statistics, history and snapshots. plinth.hpp includes it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_MEMORY_HPP
#define PLINTH_MEMORY_HPP

#include "plinth_callbacks.hpp"
#include "plinth_core.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {

/* ---- Memory of the caching allocator ---- */

/*! Device memory of the caching allocator, freed by the destructor. Movable, not copyable. */
class DeviceBuffer {
 public:
  DeviceBuffer() noexcept = default;
  /*! Allocates for the thread's current stream on the device. */
  explicit DeviceBuffer(std::size_t bytes, std::int32_t device = -1)
      : memory_(alloc(bytes, device, StreamView::current())), size_(bytes) {}
  /*! Allocates for a stream, on its device. Pass the device for the default stream of a device that is not current. */
  DeviceBuffer(std::size_t bytes, StreamView stream, std::int32_t device = -1)
      : memory_(alloc(bytes, device >= 0 ? device : stream.device(), stream)), size_(bytes) {}

  ~DeviceBuffer() { static_cast<void>(plinth_caching_allocator_delete(memory_)); }
  DeviceBuffer(DeviceBuffer &&other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceBuffer &operator=(DeviceBuffer &&other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    return *this;
  }
  DeviceBuffer(const DeviceBuffer &) = delete;
  DeviceBuffer &operator=(const DeviceBuffer &) = delete;

  /*! The address, for access by devices only; NULL if there is no memory. */
  void *get() const noexcept { return memory_; }
  template <class T>
  T *as() const noexcept {
    return static_cast<T *>(memory_);
  }
  /*! The requested size in bytes. */
  std::size_t size() const noexcept { return size_; }

  /*! Records that work in another stream uses the memory. */
  void record_stream(StreamView stream) { check(plinth_record_stream(memory_, stream.get())); }

  /*! Frees the memory now, and throws on errors, after which it is still allocated. */
  void free() {
    detail::acquire([&] { return plinth_caching_allocator_delete(memory_); });
    static_cast<void>(release());
  }
  /*! Releases ownership: the caller frees the memory with plinth_caching_allocator_delete. */
  void *release() noexcept {
    size_ = 0;
    return std::exchange(memory_, nullptr);
  }

 private:
  static void *alloc(std::size_t bytes, std::int32_t device, StreamView stream) {
    // Not detail::output, whose functions would be innermost in the stacks of the history.
    detail::CallbackExceptions::rethrow();
    void *memory = nullptr;
    const plinth_status_t status = plinth_caching_allocator_alloc(bytes, device, stream.get(), &memory);
    if (status != PLINTH_OK) check(status);
    return memory;
  }

  void *memory_ = nullptr;
  std::size_t size_ = 0;
};

inline void empty_cache() { check(plinth_empty_cache()); }

namespace detail {
inline std::size_t bytes_of(plinth_status_t (*call)(std::int32_t, std::size_t *), std::int32_t device) {
  return output<std::size_t>([&](std::size_t *out) { return call(device, out); });
}
}  // namespace detail

/* ---- Limits and settings ---- */

inline void set_per_process_memory_fraction(double fraction, std::int32_t device = -1) {
  check(plinth_set_per_process_memory_fraction(fraction, device));
}
inline double per_process_memory_fraction(std::int32_t device = -1) {
  return detail::output<double>([&](double *out) { return plinth_get_per_process_memory_fraction(device, out); });
}
/*! "key:value,key:value", as in PLINTH_ALLOC_CONF. */
inline void set_allocator_settings(const std::string &settings) {
  check(plinth_set_allocator_settings(settings.c_str()));
}
inline std::string allocator_settings() { return detail::text(plinth_get_allocator_settings); }
inline std::string allocator_backend() { return detail::output<const char *>(plinth_get_allocator_backend); }
inline void caching_allocator_enable(bool enable) { check(plinth_caching_allocator_enable(enable)); }
inline bool caching_allocator_is_enabled() { return detail::output<bool>(plinth_caching_allocator_is_enabled); }

/* ---- Figures ---- */

inline std::size_t memory_allocated(std::int32_t device = -1) {
  return detail::bytes_of(plinth_memory_allocated, device);
}
inline std::size_t max_memory_allocated(std::int32_t device = -1) {
  return detail::bytes_of(plinth_max_memory_allocated, device);
}
inline std::size_t memory_reserved(std::int32_t device = -1) { return detail::bytes_of(plinth_memory_reserved, device); }
inline std::size_t max_memory_reserved(std::int32_t device = -1) {
  return detail::bytes_of(plinth_max_memory_reserved, device);
}
inline void reset_peak_memory_stats(std::int32_t device = -1) { check(plinth_reset_peak_memory_stats(device)); }
inline void reset_accumulated_memory_stats(std::int32_t device = -1) {
  check(plinth_reset_accumulated_memory_stats(device));
}

using MemoryStats = plinth_memory_stats_t;

inline MemoryStats memory_stats(std::int32_t device = -1) {
  return detail::sized_output<MemoryStats>([&](MemoryStats *out) { return plinth_memory_stats(device, out); });
}
/*! The statistics of the memory that was allocated for one stream. */
inline MemoryStats stream_memory_stats(StreamView stream) {
  return detail::sized_output<MemoryStats>(
      [&](MemoryStats *out) { return plinth_stream_memory_stats(stream.get(), out); });
}
/*! Calls `visitor(const char *name, std::int64_t value)` for each value of the statistics. An exception that it
 *  throws ends the iteration and is rethrown. */
template <class Visitor>
void memory_stats_each(Visitor &&visitor, std::int32_t device = -1) {
  using Visit = detail::Visit<std::remove_reference_t<Visitor>>;
  Visit visit(visitor);
  const auto show = [](const char *name, std::int64_t value, void *context) { Visit::of(context).show(name, value); };
  visit.finish(plinth_memory_stats_each(device, show, &visit));
}
inline std::string memory_stats_json(std::int32_t device = -1, bool nested = false) {
  return detail::text([&](char **out) { return plinth_memory_stats_as_json(device, nested, out); });
}
/*! The statistics as a printable table. */
inline std::string memory_summary(std::int32_t device = -1, bool abbreviated = false) {
  return detail::text([&](char **out) { return plinth_memory_summary(device, abbreviated, out); });
}

using PointerAttributes = plinth_pointer_attributes_t;

inline PointerAttributes pointer_attributes(const void *pointer) {
  return detail::sized_output<PointerAttributes>(
      [&](PointerAttributes *out) { return plinth_pointer_attributes(pointer, out); });
}

/* ---- Allocators of the program's own ---- */

/*! An external allocator: two functions of a shared library. The destructor destroys the handle. Movable, not
 *  copyable. */
class PluggableAllocator {
 public:
  PluggableAllocator(const std::string &path, const std::string &alloc, const std::string &free)
      : allocator_(detail::output<plinth_pluggable_allocator_t>([&](plinth_pluggable_allocator_t *out) {
          return plinth_pluggable_allocator_create(path.c_str(), alloc.c_str(), free.c_str(), out);
        })) {}
  ~PluggableAllocator() { static_cast<void>(plinth_pluggable_allocator_destroy(allocator_)); }
  PluggableAllocator(PluggableAllocator &&other) noexcept : allocator_(std::exchange(other.allocator_, nullptr)) {}
  PluggableAllocator &operator=(PluggableAllocator &&other) noexcept {
    std::swap(allocator_, other.allocator_);
    return *this;
  }
  PluggableAllocator(const PluggableAllocator &) = delete;
  PluggableAllocator &operator=(const PluggableAllocator &) = delete;

  plinth_pluggable_allocator_t get() const noexcept { return allocator_; }
  void set_hooks(const plinth_allocator_hooks_t &hooks) {
    check(plinth_pluggable_allocator_set_hooks(allocator_, &hooks));
  }

 private:
  plinth_pluggable_allocator_t allocator_;
};

inline void change_current_allocator(const PluggableAllocator &allocator) {
  check(plinth_change_current_allocator(allocator.get()));
}

/* ---- Pools ---- */

/*! Options of a pool. */
struct MemPoolOptions {
  /*! Whether requests to the default pool may use the pool's free memory when nothing else is left. */
  bool use_on_oom = false;
  /*! Whether free blocks are never split. */
  bool no_split = false;
  /*! Whether processes of other machines of the same NVLink fabric can import the memory, where the driver permits it. */
  bool fabric = false;
  /*! Whether network adapters can access the memory by its address, where the device supports it. */
  bool gpu_direct_rdma = false;
  /*! Whether the memory is allocated in segments, which have CUDA handles of 64 bytes. */
  bool segments = false;
  /*! Whether each block is in one physical allocation, so that it can be a window of an NCCL communicator. */
  bool nccl_window = false;
};

/*! A separate memory pool, torch.cuda.MemPool, released by the destructor. Movable, not copyable. Memory that is
 *  allocated in it stays valid. Use MemPoolGuard to route requests to it. */
class MemPool {
 public:
  explicit MemPool(const MemPoolOptions &options = {})
      : pool_(detail::output<plinth_pool_id_t>([&](plinth_pool_id_t *out) {
          return plinth_mem_pool_create_with_flags(flags_of(options), out);
        })) {}
  /*! Creates a pool whose memory comes from an external allocator, with the first two options. */
  explicit MemPool(const PluggableAllocator &allocator, const MemPoolOptions &options = {})
      : pool_(detail::output<plinth_pool_id_t>([&](plinth_pool_id_t *out) {
          return plinth_mem_pool_create_with_allocator(allocator.get(), options.use_on_oom, options.no_split, out);
        })) {}
  ~MemPool() { destroy(); }
  MemPool(MemPool &&other) noexcept : pool_(std::exchange(other.pool_, plinth_pool_id_t{0, 0})) {}
  MemPool &operator=(MemPool &&other) noexcept {
    std::swap(pool_, other.pool_);
    return *this;
  }
  MemPool(const MemPool &) = delete;
  MemPool &operator=(const MemPool &) = delete;

  /*! The pool's id, which graphs accept too; {0, 0} after a move. */
  plinth_pool_id_t id() const noexcept { return pool_; }

  /*! The number of bytes that the pool may hold on each device; SIZE_MAX for no budget. */
  void set_budget(std::size_t bytes) { check(plinth_mem_pool_set_budget(pool_, bytes)); }
  std::size_t budget() const {
    return detail::output<std::size_t>([&](std::size_t *out) { return plinth_mem_pool_get_budget(pool_, out); });
  }
  /*! The tag by which memory_sleep and memory_wake find the pool; without a comma. Empty for none. */
  void set_tag(const std::string &tag) { check(plinth_mem_pool_set_tag(pool_, tag.c_str())); }
  std::string tag() const {
    return detail::text([&](char **out) { return plinth_mem_pool_get_tag(pool_, out); });
  }
  void set_use_on_oom(bool use) { check(plinth_mem_pool_set_use_on_oom(pool_, use)); }
  std::int32_t use_count(std::int32_t device = -1) const {
    return detail::output<std::int32_t>(
        [&](std::int32_t *out) { return plinth_mem_pool_use_count(pool_, device, out); });
  }

  /*! Memory of the pool on a device, in bytes. */
  struct Memory {
    std::size_t allocated;
    std::size_t reserved;
  };
  Memory memory(std::int32_t device = -1) const {
    Memory found{};
    check(plinth_mem_pool_memory(pool_, device, &found.allocated, &found.reserved));
    return found;
  }
  MemoryStats stats(std::int32_t device = -1) const {
    return detail::sized_output<MemoryStats>(
        [&](MemoryStats *out) { return plinth_mem_pool_stats(pool_, device, out); });
  }
  /*! A snapshot as JSON, in the format of memory_snapshot(). */
  std::string snapshot(bool include_traces = true) const {
    return detail::text([&](char **out) { return plinth_mem_pool_snapshot(pool_, include_traces, out); });
  }

 private:
  static std::uint32_t flags_of(const MemPoolOptions &options) noexcept {
    return (options.use_on_oom ? PLINTH_MEM_POOL_USE_ON_OOM : 0) | (options.no_split ? PLINTH_MEM_POOL_NO_SPLIT : 0) |
           (options.fabric ? PLINTH_MEM_POOL_FABRIC : 0) |
           (options.gpu_direct_rdma ? PLINTH_MEM_POOL_GPU_DIRECT_RDMA : 0) |
           (options.segments ? PLINTH_MEM_POOL_SEGMENTS : 0) |
           (options.nccl_window ? PLINTH_MEM_POOL_NCCL_WINDOW : 0);
  }
  void destroy() noexcept {
    if (pool_.owner != 0 || pool_.index != 0) static_cast<void>(plinth_mem_pool_destroy(pool_));
  }

  plinth_pool_id_t pool_;
};

/*! Which blocks of a pool are allocated on a device, to be restored; the destructor destroys it. Movable, not copyable. It
 *  does not keep the pool or its memory. */
class PoolCheckpoint {
 public:
  explicit PoolCheckpoint(plinth_pool_id_t pool, std::int32_t device = -1)
      : checkpoint_(detail::output<plinth_pool_checkpoint_t>([&](plinth_pool_checkpoint_t *out) {
          return plinth_pool_checkpoint_create(device, pool, out);
        })) {}
  explicit PoolCheckpoint(const MemPool &pool, std::int32_t device = -1) : PoolCheckpoint(pool.id(), device) {}
  ~PoolCheckpoint() { static_cast<void>(plinth_pool_checkpoint_destroy(checkpoint_)); }
  PoolCheckpoint(PoolCheckpoint &&other) noexcept : checkpoint_(std::exchange(other.checkpoint_, nullptr)) {}
  PoolCheckpoint &operator=(PoolCheckpoint &&other) noexcept {
    std::swap(checkpoint_, other.checkpoint_);
    return *this;
  }
  PoolCheckpoint(const PoolCheckpoint &) = delete;
  PoolCheckpoint &operator=(const PoolCheckpoint &) = delete;

  plinth_pool_checkpoint_t get() const noexcept { return checkpoint_; }

  /*! What a restore changed. */
  struct Restored {
    /*! Blocks that are free now. Release their owners (DeviceBuffer::release) without freeing. */
    std::vector<void *> freed;
    /*! Blocks that are allocated again. The caller frees them. */
    std::vector<void *> allocated;
  };
  /*! Frees and allocates blocks so that exactly those of the checkpoint are allocated. Every stale block must be among
   *  those that this frees. If it throws, nothing is changed. */
  Restored restore(const std::vector<void *> &stale = {}) const {
    Call call;
    detail::acquire([&] {
      return plinth_pool_checkpoint_restore(checkpoint_, stale.data(), stale.size(), collect, &call);
    });
    if (call.error) std::rethrow_exception(call.error);
    return std::move(call.restored);
  }

 private:
  struct Call {
    Restored restored;
    std::exception_ptr error;
  };
  static void collect(void *pointer, std::size_t, bool allocated, void *context) noexcept {
    Call &call = *static_cast<Call *>(context);
    try {
      (allocated ? call.restored.allocated : call.restored.freed).push_back(pointer);
    } catch (...) {
      call.error = std::current_exception();
    }
  }

  plinth_pool_checkpoint_t checkpoint_;
};

/*! Returns whether exactly these blocks of a pool are allocated on a device. */
inline bool pool_check_live_allocations(plinth_pool_id_t pool, const std::vector<void *> &pointers,
                                        std::int32_t device = -1) {
  return detail::output<bool>([&](bool *out) {
    return plinth_pool_check_live_allocations(device, pool, pointers.data(), pointers.size(), out);
  });
}

/*! Routes requests to a pool for the lifetime of the object, torch.cuda.use_mem_pool: those of the calling thread,
 *  which must also destroy the object, or those for one stream. The pool may be destroyed first. */
class MemPoolGuard {
 public:
  explicit MemPoolGuard(plinth_pool_id_t pool, std::int32_t device = -1)
      : pool_(pool), device_(device >= 0 ? device : current_device()) {
    detail::acquire([&] { return plinth_begin_allocate_current_thread_to_pool(device_, pool_); });
  }
  explicit MemPoolGuard(const MemPool &pool, std::int32_t device = -1) : MemPoolGuard(pool.id(), device) {}
  MemPoolGuard(plinth_pool_id_t pool, StreamView stream, std::int32_t device = -1)
      : pool_(pool), device_(device >= 0 ? device : stream.device()) {
    detail::acquire([&] { return plinth_begin_allocate_current_stream_to_pool(device_, stream.get(), pool_); });
  }
  MemPoolGuard(const MemPool &pool, StreamView stream, std::int32_t device = -1)
      : MemPoolGuard(pool.id(), stream, device) {}
  ~MemPoolGuard() {
    static_cast<void>(plinth_end_allocate_to_pool(device_, pool_));
    static_cast<void>(plinth_release_pool(device_, pool_));
  }
  MemPoolGuard(const MemPoolGuard &) = delete;
  MemPoolGuard &operator=(const MemPoolGuard &) = delete;

 private:
  plinth_pool_id_t pool_;
  std::int32_t device_;
};

/* ---- Out of memory ---- */

namespace detail {
using OutOfMemory = Callbacks<void, std::int32_t, std::size_t, std::size_t, std::size_t>;
using FreeMemory = Callbacks<bool, std::int32_t, std::size_t>;
using TraceTracker = Callbacks<void, const plinth_memory_history_entry_t *>;
}  // namespace detail

/*! Observes requests that fail because memory ran out, for the lifetime of the object: `function(device, requested,
 *  total, free)`. It may be called by several threads at once. */
class OutOfMemoryObserver {
 public:
  explicit OutOfMemoryObserver(detail::OutOfMemory::Function function) : held_(std::move(function)) {
    detail::acquire([&] { return plinth_attach_out_of_memory_observer(&detail::OutOfMemory::call, held_.context()); });
  }
  ~OutOfMemoryObserver() {
    static_cast<void>(plinth_detach_out_of_memory_observer(&detail::OutOfMemory::call, held_.context()));
  }
  OutOfMemoryObserver(const OutOfMemoryObserver &) = delete;
  OutOfMemoryObserver &operator=(const OutOfMemoryObserver &) = delete;

 private:
  detail::OutOfMemory held_;
};

/*! Frees memory that the program can spare, for the lifetime of the object: `function(device, size)` returns whether
 *  it freed anything. It may be called by several threads at once. */
class FreeMemoryCallback {
 public:
  explicit FreeMemoryCallback(detail::FreeMemory::Function function) : held_(std::move(function)) {
    detail::acquire([&] { return plinth_add_free_memory_callback(&detail::FreeMemory::call, held_.context()); });
  }
  ~FreeMemoryCallback() {
    static_cast<void>(plinth_remove_free_memory_callback(&detail::FreeMemory::call, held_.context()));
  }
  FreeMemoryCallback(const FreeMemoryCallback &) = delete;
  FreeMemoryCallback &operator=(const FreeMemoryCallback &) = delete;

 private:
  detail::FreeMemory held_;
};

/* ---- History and snapshots ---- */

using MemoryHistoryOptions = plinth_memory_history_options_t;

/*! torch's defaults: every event with a stack trace, without a limit. */
inline MemoryHistoryOptions memory_history_options() noexcept { return PLINTH_MEMORY_HISTORY_OPTIONS_INIT; }

inline void record_memory_history(const MemoryHistoryOptions &options = memory_history_options()) {
  check(plinth_record_memory_history(&options));
}
/*! Stops recording, and discards the history. */
inline void stop_memory_history() {
  MemoryHistoryOptions options = memory_history_options();
  options.enabled = PLINTH_MEMORY_HISTORY_OFF;
  record_memory_history(options);
}
inline bool memory_history_is_enabled() { return detail::output<bool>(plinth_memory_history_is_enabled); }

/*! Calls `visitor(const plinth_memory_history_entry_t &)` for each entry, the oldest first. An exception that it
 *  throws ends the iteration and is rethrown; the same applies to the visitors below. */
template <class Visitor>
void memory_history_each(Visitor &&visitor, std::int32_t device = -1) {
  using Visit = detail::Visit<std::remove_reference_t<Visitor>>;
  Visit visit(visitor);
  const auto show = [](const plinth_memory_history_entry_t *entry, void *context) { Visit::of(context).show(*entry); };
  visit.finish(plinth_memory_history_each(device, show, &visit));
}
/*! Calls `visitor(const char *name, const char *file, std::uint32_t line)` for each function, the innermost first. */
template <class Visitor>
void memory_stack_each(std::uint32_t stack, Visitor &&visitor) {
  using Visit = detail::Visit<std::remove_reference_t<Visitor>>;
  Visit visit(visitor);
  const auto show = [](const char *name, const char *file, std::uint32_t line, void *context) {
    Visit::of(context).show(name, file, line);
  };
  visit.finish(plinth_memory_stack_each(stack, show, &visit));
}
/*! Calls `visitor(std::int32_t device, std::uint64_t time_us, const char *name, bool begin)` for each annotation. */
template <class Visitor>
void memory_annotations_each(Visitor &&visitor) {
  using Visit = detail::Visit<std::remove_reference_t<Visitor>>;
  Visit visit(visitor);
  const auto show = [](std::int32_t device, std::uint64_t time_us, const char *name, bool begin, void *context) {
    Visit::of(context).show(device, time_us, name, begin);
  };
  visit.finish(plinth_memory_annotations_each(show, &visit));
}
inline const char *memory_action_name(std::int32_t action) noexcept { return plinth_memory_action_name(action); }
inline void set_memory_metadata(const std::string &text) { check(plinth_set_memory_metadata(text.c_str())); }
inline std::string memory_metadata() { return detail::text(plinth_get_memory_metadata); }

/*! Records a named phase of the program in the history: its begin, and with the destructor its end. */
class MemoryAnnotation {
 public:
  explicit MemoryAnnotation(std::string name) : name_(std::move(name)) {
    detail::acquire([&] { return plinth_memory_annotation_begin(name_.c_str()); });
  }
  ~MemoryAnnotation() { static_cast<void>(plinth_memory_annotation_end(name_.c_str())); }
  MemoryAnnotation(const MemoryAnnotation &) = delete;
  MemoryAnnotation &operator=(const MemoryAnnotation &) = delete;

 private:
  std::string name_;
};

/*! Receives every event that a history would record, for the lifetime of the object: `function(const
 *  plinth_memory_history_entry_t *)`. It must not throw. */
class AllocatorTraceTracker {
 public:
  explicit AllocatorTraceTracker(detail::TraceTracker::Function function) : held_(std::move(function)) {
    detail::acquire([&] { return plinth_attach_allocator_trace_tracker(&detail::TraceTracker::call, held_.context()); });
  }
  ~AllocatorTraceTracker() {
    static_cast<void>(plinth_detach_allocator_trace_tracker(&detail::TraceTracker::call, held_.context()));
  }
  AllocatorTraceTracker(const AllocatorTraceTracker &) = delete;
  AllocatorTraceTracker &operator=(const AllocatorTraceTracker &) = delete;

 private:
  detail::TraceTracker held_;
};

/*! Writes a snapshot; the end of the path selects the format. */
inline void dump_snapshot(const std::string &path) { check(plinth_dump_snapshot(path.c_str())); }
/*! A snapshot as JSON. */
inline std::string memory_snapshot(bool include_traces = true) {
  return detail::text([&](char **out) { return plinth_memory_snapshot(include_traces, out); });
}
/*! Calls `visitor(const plinth_memory_segment_t &, const plinth_memory_block_t *)`. The block is NULL in a first
 *  call for each segment, before its blocks. */
template <class Visitor>
void memory_snapshot_each(Visitor &&visitor) {
  using Visit = detail::Visit<std::remove_reference_t<Visitor>>;
  Visit visit(visitor);
  const auto show = [](const plinth_memory_segment_t *segment, const plinth_memory_block_t *block, void *context) {
    return Visit::of(context).show(*segment, block);
  };
  visit.finish(plinth_memory_snapshot_each(show, &visit));
}
inline void trace_start(const std::string &path) { check(plinth_trace_start(path.c_str())); }
inline void trace_stop() { check(plinth_trace_stop()); }

/*! Names the live block that contains an address, until the block is freed; an empty name removes it. */
inline void set_memory_name(const void *pointer, const std::string &name) {
  check(plinth_memory_set_name(pointer, name.c_str()));
}
/*! The name of the live block that contains an address; empty if it has none. */
inline std::string memory_name(const void *pointer) {
  return detail::text([pointer](char **name) { return plinth_memory_get_name(pointer, name); });
}
/*! Names a stream in messages, reports, snapshots and profilers; an empty name removes it. */
inline void set_stream_name(StreamView stream, const std::string &name) {
  check(plinth_stream_set_name(stream.get(), name.c_str()));
}
/*! The name of a stream; empty if it has none. */
inline std::string stream_name(StreamView stream) {
  return detail::text([stream](char **name) { return plinth_stream_get_name(stream.get(), name); });
}

}  // namespace plinth

#endif

#endif /* PLINTH_MEMORY_HPP */
