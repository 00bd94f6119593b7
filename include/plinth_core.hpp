/*!
 * @file plinth_core.hpp
 * @brief plinth for C++17: return values for outputs, exceptions for errors, RAII for resources.
 *
 * A thin, header-only layer over plinth.h. Every function calls the C function of the same name, which is documented
 * there; a status other than PLINTH_OK is thrown as a plinth::Error. Destructors cannot throw: they ignore errors of
 * the release. A stream argument that is left out is the thread's current stream, as in torch.
 *
 * The library calls functions of the program, through which no exception may pass. The wrappers catch what such a
 * function throws, and the next function of this header that can throw throws it in the thread to which it belongs: the
 * thread whose call of the library called the function, or the one that enqueued it for a device. A function that creates,
 * takes or begins something throws it before it does so; if it succeeds, an exception of the meantime is left to a later one.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef PLINTH_CORE_HPP
#define PLINTH_CORE_HPP

#include "plinth.h"
#include "plinth_error.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {

/* ---- The library and its devices ---- */

/*! The kind of device that the process uses. */
enum class DeviceKind : std::int32_t {
  cuda = PLINTH_DEVICE_CUDA,
  host = PLINTH_DEVICE_HOST,
  automatic = PLINTH_DEVICE_AUTO
};

inline void set_device_kind(DeviceKind kind) { check(plinth_set_device_kind(static_cast<std::int32_t>(kind))); }
inline DeviceKind device_kind() {
  return static_cast<DeviceKind>(detail::output<std::int32_t>(plinth_get_device_kind));
}
/*! The CUDA version of the driver, 13000 for 13.0. */
inline std::int32_t driver_version() { return detail::output<std::int32_t>(plinth_driver_version); }
inline void init() { check(plinth_init()); }
inline bool is_available() noexcept { return plinth_is_available(); }
inline bool is_initialized() noexcept { return plinth_is_initialized(); }
inline std::int32_t device_count() { return detail::output<std::int32_t>(plinth_device_count); }
inline std::int32_t current_device() { return detail::output<std::int32_t>(plinth_current_device); }
inline void set_device(std::int32_t device) { check(plinth_set_device(device)); }
inline void synchronize(std::int32_t device = -1) { check(plinth_synchronize(device)); }

/*! The device that owns the memory of a pointer; -1 for host memory. */
inline std::int32_t device_of(const void *pointer) {
  return detail::output<std::int32_t>([&](std::int32_t *device) { return plinth_device_of(pointer, device); });
}

inline std::string device_name(std::int32_t device = -1) {
  std::array<char, 256> name{};
  check(plinth_get_device_name(device, name.data(), name.size()));
  return std::string(name.data());
}

inline plinth_device_properties_t device_properties(std::int32_t device = -1) {
  plinth_device_properties_t properties{};
  properties.struct_size = sizeof properties;
  check(plinth_get_device_properties(device, &properties));
  return properties;
}

/*! Whether the current device computes with bfloat16, or with TF32; false without a device. */
inline bool is_bf16_supported(bool including_emulation = true) {
  return detail::output<bool>([&](bool *out) { return plinth_is_bf16_supported(including_emulation, out); });
}
inline bool is_tf32_supported() { return detail::output<bool>(plinth_is_tf32_supported); }

/*! A compute capability, for example 9.0 of an H200. */
struct Capability {
  std::int32_t major;
  std::int32_t minor;
};

inline Capability device_capability(std::int32_t device = -1) {
  Capability found{};
  check(plinth_get_device_capability(device, &found.major, &found.minor));
  return found;
}

/*! Memory of a device, in bytes. */
struct MemoryInfo {
  std::size_t free_bytes;
  std::size_t total_bytes;
};

inline MemoryInfo mem_get_info(std::int32_t device = -1) {
  MemoryInfo found{};
  check(plinth_mem_get_info(device, &found.free_bytes, &found.total_bytes));
  return found;
}

inline bool can_device_access_peer(std::int32_t device, std::int32_t peer) {
  return detail::output<bool>([&](bool *can) { return plinth_can_device_access_peer(device, peer, can); });
}
inline void enable_peer_access(std::int32_t device, std::int32_t peer) {
  check(plinth_enable_peer_access(device, peer));
}
inline void disable_peer_access(std::int32_t device, std::int32_t peer) {
  check(plinth_disable_peer_access(device, peer));
}
inline std::string arch_list() { return detail::text(plinth_get_arch_list); }
inline std::string gencode_flags() { return detail::text(plinth_get_gencode_flags); }

/*! Makes a device current for the lifetime of the object. A negative number changes nothing. */
class DeviceGuard {
 public:
  explicit DeviceGuard(std::int32_t device)
      : previous_(detail::output<std::int32_t>([&](std::int32_t *out) { return plinth_exchange_device(device, out); })) {}

  /*! Makes the device that owns the pointer's memory current; changes nothing for host memory. */
  static DeviceGuard of(const void *pointer) { return DeviceGuard(device_of(pointer)); }

  ~DeviceGuard() {
    std::int32_t ignored = 0;
    static_cast<void>(plinth_maybe_exchange_device(previous_, &ignored));
  }
  DeviceGuard(const DeviceGuard &) = delete;
  DeviceGuard &operator=(const DeviceGuard &) = delete;

  /*! The device that was current before; -1 if nothing was changed. */
  std::int32_t previous() const noexcept { return previous_; }

 private:
  std::int32_t previous_;
};

/* ---- Streams and events ---- */

class Event;

/*! A non-owning view of a stream. It has the size of a pointer and is cheap to copy. It cannot be constructed from
 *  an integer, or from NULL by accident: the default stream is StreamView{}. */
class StreamView {
 public:
  /*! The default stream of the device that a call is about. */
  constexpr StreamView() noexcept = default;
  constexpr StreamView(plinth_stream_t stream) noexcept : stream_(stream) {}
  StreamView(int) = delete;
  StreamView(std::nullptr_t) = delete;

  /*! PLINTH_STREAM_CURRENT: the thread's current stream, at each use, on the device that the call is about. */
  static StreamView current() noexcept { return StreamView(PLINTH_STREAM_CURRENT); }
  /*! PLINTH_STREAM_DEFAULT_OF: the default stream of a device. CUDA does not accept it. */
  static StreamView default_of(std::int32_t device) noexcept { return StreamView(PLINTH_STREAM_DEFAULT_OF(device)); }

  /*! The handle, for kernel<<<...>>>, CUDA's libraries, and comparisons. */
  constexpr plinth_stream_t get() const noexcept { return stream_; }
  constexpr operator plinth_stream_t() const noexcept { return stream_; }

  bool query() const {
    return detail::output<bool>([&](bool *done) { return plinth_stream_query(stream_, done); });
  }
  void synchronize() const { check(plinth_stream_synchronize(stream_)); }
  /*! Makes this stream's later work wait for the present work of `other`. */
  void wait(StreamView other) const { check(plinth_stream_wait_stream(stream_, other.stream_)); }
  /*! Makes this stream's later work wait for the last record of `event`. */
  void wait(const Event &event) const;
  void record(Event &event) const;

  std::int32_t device() const {
    return detail::output<std::int32_t>([&](std::int32_t *out) { return plinth_stream_device(stream_, out); });
  }
  std::int32_t priority() const {
    return detail::output<std::int32_t>([&](std::int32_t *out) { return plinth_stream_priority(stream_, out); });
  }
  std::uint64_t id() const {
    return detail::output<std::uint64_t>([&](std::uint64_t *out) { return plinth_stream_id(stream_, out); });
  }
  bool is_capturing() const {
    return detail::output<bool>([&](bool *out) { return plinth_stream_is_capturing(stream_, out); });
  }
  void sleep(std::uint64_t cycles) const { check(plinth_sleep(cycles, stream_)); }

  /*! Enqueues a callable, which runs when the stream's earlier work is complete. The callable is moved to the heap
   *  and destroyed after its call. In a capture each replay calls it, and it is kept until the process ends. An exception
   *  is thrown later in the thread that called launch(). */
  template <class Function>
  void launch(Function &&function) const {
    using Held = detail::HostFunction<std::decay_t<Function>>;
    auto held = std::make_unique<Held>(Held{std::forward<Function>(function)});
    if (is_capturing()) {
      Held *const captured = held.get();
      detail::keep_forever(std::move(held));
      return detail::acquire([&] { return plinth_launch_host_function(stream_, &Held::call, captured); });
    }
    detail::acquire([&] { return plinth_launch_host_function(stream_, &Held::call_once, held.get()); });
    static_cast<void>(held.release());
  }

 private:
  plinth_stream_t stream_ = nullptr;
};

/*! A stream of a device's pool. The library never destroys it, so this is a view too. */
class Stream : public StreamView {
 public:
  explicit Stream(std::int32_t device = -1, std::int32_t priority = 0)
      : StreamView(detail::output<plinth_stream_t>(
            [&](plinth_stream_t *out) { return plinth_stream_create(device, priority, out); })) {}

  /*! Registers a stream that was created outside of plinth. */
  static StreamView external(void *native, std::int32_t device = -1) {
    return StreamView(detail::output<plinth_stream_t>(
        [&](plinth_stream_t *out) { return plinth_stream_from_external(native, device, out); }));
  }

  /*! The least and the greatest priority; more urgent priorities are lower numbers. */
  static std::pair<std::int32_t, std::int32_t> priority_range(std::int32_t device = -1) {
    std::pair<std::int32_t, std::int32_t> range{};
    check(plinth_stream_priority_range(device, &range.first, &range.second));
    return range;
  }
};

/*! A stream of one owner, which the destructor destroys. Its queued work still runs. Movable, not copyable. */
class DedicatedStream : public StreamView {
 public:
  explicit DedicatedStream(std::int32_t device = -1, std::int32_t priority = 0)
      : StreamView(detail::output<plinth_stream_t>(
            [&](plinth_stream_t *out) { return plinth_stream_create_dedicated(device, priority, out); })) {}
  ~DedicatedStream() { static_cast<void>(plinth_stream_destroy(get())); }
  DedicatedStream(DedicatedStream &&other) noexcept
      : StreamView(std::exchange(static_cast<StreamView &>(other), StreamView())) {}
  DedicatedStream &operator=(DedicatedStream &&other) noexcept {
    std::swap(static_cast<StreamView &>(*this), static_cast<StreamView &>(other));
    return *this;
  }
  DedicatedStream(const DedicatedStream &) = delete;
  DedicatedStream &operator=(const DedicatedStream &) = delete;
};

/*! Hands over the memory of a stream of another library, before that destroys the stream. */
inline void unregister_stream(StreamView stream) { check(plinth_stream_unregister(stream.get())); }

inline StreamView current_stream(std::int32_t device = -1) {
  return StreamView(
      detail::output<plinth_stream_t>([&](plinth_stream_t *out) { return plinth_current_stream(device, out); }));
}
inline StreamView default_stream(std::int32_t device = -1) {
  return StreamView(
      detail::output<plinth_stream_t>([&](plinth_stream_t *out) { return plinth_default_stream(device, out); }));
}
inline void set_stream(StreamView stream) { check(plinth_set_stream(stream.get())); }
/*! Makes a stream current on a device without making the device current. */
inline void set_stream(std::int32_t device, StreamView stream) { check(plinth_set_stream_of(device, stream.get())); }
inline bool is_current_stream_capturing() { return detail::output<bool>(plinth_is_current_stream_capturing); }

/*! Makes a stream and its device current for the lifetime of the object. */
class StreamGuard {
 public:
  explicit StreamGuard(StreamView stream) {
    detail::acquire([&] { return plinth_stream_context_enter(stream.get(), &saved_); });
  }
  ~StreamGuard() { static_cast<void>(plinth_stream_context_exit(&saved_)); }
  StreamGuard(const StreamGuard &) = delete;
  StreamGuard &operator=(const StreamGuard &) = delete;

 private:
  plinth_stream_context_t saved_{};
};

/*! Flags of an event; combine them with |. */
enum class EventFlags : std::uint32_t {
  none = 0,
  timing = PLINTH_EVENT_TIMING,
  blocking = PLINTH_EVENT_BLOCKING,
  interprocess = PLINTH_EVENT_INTERPROCESS,
  external = PLINTH_EVENT_EXTERNAL
};
constexpr EventFlags operator|(EventFlags left, EventFlags right) noexcept {
  return static_cast<EventFlags>(static_cast<std::uint32_t>(left) | static_cast<std::uint32_t>(right));
}

/*! An event, destroyed by the destructor. Movable, not copyable. */
class Event {
 public:
  using IpcHandle = std::array<std::uint8_t, PLINTH_IPC_EVENT_HANDLE_SIZE>;

  explicit Event(EventFlags flags = EventFlags::none)
      : event_(detail::output<plinth_event_t>([&](plinth_event_t *out) {
          return plinth_event_create(static_cast<std::uint32_t>(flags), out);
        })) {}

  /*! Opens an event of another process. */
  static Event from_ipc_handle(const IpcHandle &handle, std::int32_t device = -1) {
    return Event(detail::output<plinth_event_t>(
        [&](plinth_event_t *out) { return plinth_event_from_ipc_handle(device, handle.data(), out); }));
  }

  /*! Takes ownership of an event of plinth_event_create. */
  static Event adopt(plinth_event_t event) noexcept { return Event(event); }

  ~Event() { static_cast<void>(plinth_event_destroy(event_)); }
  Event(Event &&other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event &operator=(Event &&other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;

  plinth_event_t get() const noexcept { return event_; }
  /*! Releases ownership: the caller destroys the event. */
  plinth_event_t release() noexcept { return std::exchange(event_, nullptr); }

  void record(StreamView stream = StreamView::current()) { check(plinth_event_record(event_, stream.get())); }
  void wait(StreamView stream = StreamView::current()) const { check(plinth_event_wait(event_, stream.get())); }
  bool query() const {
    return detail::output<bool>([&](bool *done) { return plinth_event_query(event_, done); });
  }
  void synchronize() const { check(plinth_event_synchronize(event_)); }
  /*! The time from this event to `end`, in milliseconds. */
  float elapsed_time(const Event &end) const {
    return detail::output<float>([&](float *out) { return plinth_event_elapsed_time(event_, end.event_, out); });
  }
  /*! The device of the first record; -1 before the first record. */
  std::int32_t device() const {
    return detail::output<std::int32_t>([&](std::int32_t *out) { return plinth_event_device(event_, out); });
  }
  /*! The CUevent; NULL before the first record. */
  void *native() const {
    return detail::output<void *>([&](void **out) { return plinth_event_native(event_, out); });
  }
  IpcHandle ipc_handle() const {
    IpcHandle handle{};
    check(plinth_event_ipc_handle(event_, handle.data()));
    return handle;
  }

 private:
  explicit Event(plinth_event_t event) noexcept : event_(event) {}

  plinth_event_t event_;
};

inline void StreamView::wait(const Event &event) const { check(plinth_stream_wait_event(stream_, event.get())); }
inline void StreamView::record(Event &event) const { check(plinth_event_record(event.get(), stream_)); }

/* ---- Memory ---- */

namespace detail {
struct DeviceFree {
  void operator()(void *memory) const noexcept { static_cast<void>(plinth_device_free(memory)); }
};
struct PinnedFree {
  void operator()(void *memory) const noexcept { static_cast<void>(plinth_pinned_free(memory)); }
};
}  // namespace detail

/*! Device memory from the driver, not cached. Only devices can dereference the pointer. */
using DeviceMemory = std::unique_ptr<void, detail::DeviceFree>;
/*! Pinned host memory from the driver, not cached. */
using PinnedMemory = std::unique_ptr<void, detail::PinnedFree>;

inline DeviceMemory device_malloc(std::size_t size, std::int32_t device = -1) {
  return DeviceMemory(
      detail::output<void *>([&](void **out) { return plinth_device_malloc(size, device, out); }));
}
inline PinnedMemory pinned_malloc(std::size_t size) {
  return PinnedMemory(detail::output<void *>([&](void **out) { return plinth_pinned_malloc(size, out); }));
}

inline void memcpy(void *destination, const void *source, std::size_t bytes, StreamView stream = StreamView::current()) {
  check(plinth_memcpy(destination, source, bytes, stream.get()));
}
/*! Copies as torch's copy_ does: in the current streams of the devices that own the memory. */
inline void copy(void *destination, const void *source, std::size_t bytes, bool non_blocking = false) {
  check(plinth_copy(destination, source, bytes, non_blocking));
}
/*! Copies `height` rows of `width` bytes, which begin a pitch apart. */
inline void memcpy_2d(void *destination, std::size_t destination_pitch, const void *source, std::size_t source_pitch,
                      std::size_t width, std::size_t height, StreamView stream = StreamView::current()) {
  check(plinth_memcpy_2d(destination, destination_pitch, source, source_pitch, width, height, stream.get()));
}
/*! Copies the elements of a tensor, as torch's copy_ does: they are broadcast and converted. */
inline void copy_tensor(const DLTensor &destination, const DLTensor &source, bool non_blocking = false) {
  check(plinth_copy_tensor(&destination, &source, non_blocking));
}
inline void memset(void *destination, std::uint8_t value, std::size_t bytes, StreamView stream = StreamView::current()) {
  check(plinth_memset(destination, value, bytes, stream.get()));
}
/*! Fills memory with `count` copies of a value of 1, 2 or 4 bytes. */
template <class T>
void fill(T *destination, const T &value, std::size_t count, StreamView stream = StreamView::current()) {
  static_assert(std::is_trivially_copyable<T>::value, "the pattern must be trivially copyable");
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4, "the pattern must have 1, 2 or 4 bytes");
  if (count > SIZE_MAX / sizeof(T)) throw std::invalid_argument("plinth::fill: there are more bytes than addresses");
  check(plinth_memset_pattern(destination, &value, sizeof(T), count * sizeof(T), stream.get()));
}

/* ---- The sync debug mode ---- */

/*! What happens when a call would make the CPU wait for the device. */
enum class SyncDebugMode : std::int32_t {
  standard = PLINTH_SYNC_DEBUG_DEFAULT,
  warn = PLINTH_SYNC_DEBUG_WARN,
  error = PLINTH_SYNC_DEBUG_ERROR
};
/*! Throws the Error of a cudaError_t, unless it is cudaSuccess. */
inline void check_error(std::int32_t code) { check(plinth_check_error(code)); }

/*! A function of the driver, with the type that cuda.h declares: `driver_entry_point<decltype(&cuMemAlloc)>("cuMemAlloc")`. */
template <class Function>
Function driver_entry_point(const char *name) {
  static_assert(std::is_pointer<Function>::value, "the type must be a pointer to a function");
  return reinterpret_cast<Function>(
      detail::output<void *>([&](void **out) { return plinth_driver_entry_point(name, out); }));
}
/*! The same as of a CUDA version, such as 12000, with cuGetProcAddress's flags. */
template <class Function>
Function driver_entry_point(const char *name, std::int32_t cuda_version, std::uint64_t flags = 0) {
  static_assert(std::is_pointer<Function>::value, "the type must be a pointer to a function");
  return reinterpret_cast<Function>(detail::output<void *>(
      [&](void **out) { return plinth_driver_entry_point_by_version(name, cuda_version, flags, out); }));
}

inline void set_sync_debug_mode(SyncDebugMode mode) {
  check(plinth_set_sync_debug_mode(static_cast<std::int32_t>(mode)));
}
inline SyncDebugMode sync_debug_mode() {
  return static_cast<SyncDebugMode>(detail::output<std::int32_t>(plinth_get_sync_debug_mode));
}

}  // namespace plinth

#endif

#endif /* PLINTH_CORE_HPP */
