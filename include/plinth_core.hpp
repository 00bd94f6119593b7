/*!
 * @file plinth_core.hpp
 * @brief plinth for C++17: return values for outputs, exceptions for errors, RAII for resources.
 *
 * A thin, header-only layer over plinth.h. Every function calls the C function of the same name, which is documented
 * there; a status other than PLINTH_OK is thrown as a plinth::Error. Destructors cannot throw: they ignore errors of
 * the release. A stream argument that is left out is the thread's current stream, as in torch.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef PLINTH_CORE_HPP
#define PLINTH_CORE_HPP

#include "plinth.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace plinth {

/*! The exception that every function here throws: the message of plinth_last_error, with the status and the driver's
 *  error code. */
class Error : public std::runtime_error {
 public:
  Error(plinth_status_t status, const std::string &message, std::int32_t driver_code)
      : std::runtime_error(message), status_(status), driver_code_(driver_code) {}

  /*! One of the PLINTH_ERROR_ constants. */
  plinth_status_t status() const noexcept { return status_; }
  /*! The status as text, for example "PLINTH_ERROR_OUT_OF_MEMORY". */
  const char *name() const noexcept { return plinth_status_name(status_); }
  /*! The CUresult, or 0 if the error did not come from the driver. */
  std::int32_t driver_code() const noexcept { return driver_code_; }

 private:
  plinth_status_t status_;
  std::int32_t driver_code_;
};

/*! Throws the error of the calling thread's last call, unless its status is PLINTH_OK. */
inline void check(plinth_status_t status) {
  if (status != PLINTH_OK) throw Error(status, plinth_last_error(), plinth_last_driver_error());
}

namespace detail {
/*! Calls a C function with one output, and returns the output. */
template <class T, class Call>
T output(Call &&call) {
  T value{};
  check(std::forward<Call>(call)(&value));
  return value;
}

struct StringFree {
  void operator()(char *text) const noexcept { plinth_string_free(text); }
};

template <class Call>
std::string text(Call &&call) {
  std::unique_ptr<char, StringFree> owned(output<char *>(std::forward<Call>(call)));
  return std::string(owned.get());
}

/*! Returns the output struct of a call, after setting its struct_size. */
template <class Struct, class Call>
Struct sized_output(Call &&call) {
  Struct out{};
  out.struct_size = sizeof out;
  check(std::forward<Call>(call)(&out));
  return out;
}
/*! Wraps a function of the program that the library calls during an iteration. Exceptions must not pass through the
 *  library: an exception of the function is stored, the function is not called again, and finish() rethrows it. */
template <class Function>
class Visit {
 public:
  explicit Visit(Function &function) noexcept : function_(function) {}

  static Visit &of(void *context) noexcept { return *static_cast<Visit *>(context); }

  /*! Returns whether the function was called and returned normally. */
  template <class... Arguments>
  bool show(const Arguments &...arguments) noexcept {
    if (thrown_) return false;
    try {
      function_(arguments...);
      return true;
    } catch (...) {
      thrown_ = std::current_exception();
      return false;
    }
  }

  void finish(plinth_status_t status) const {
    if (thrown_) std::rethrow_exception(thrown_);
    check(status);
  }

 private:
  Function &function_;
  std::exception_ptr thrown_;
};
}  // namespace detail

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
  /*! The default stream of the device that is current at the time of use. */
  constexpr StreamView() noexcept = default;
  constexpr StreamView(plinth_stream_t stream) noexcept : stream_(stream) {}
  StreamView(int) = delete;
  StreamView(std::nullptr_t) = delete;

  /*! The handle, for kernel<<<...>>> and CUDA's libraries. */
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
   *  and destroyed after its call; it must not throw. */
  template <class Function>
  void launch(Function &&function) const {
    using Held = std::decay_t<Function>;
    auto held = std::make_unique<Held>(std::forward<Function>(function));
    check(plinth_launch_host_function(stream_, &StreamView::run<Held>, held.get()));
    static_cast<void>(held.release());
  }

  friend bool operator==(StreamView left, StreamView right) noexcept { return left.stream_ == right.stream_; }
  friend bool operator!=(StreamView left, StreamView right) noexcept { return left.stream_ != right.stream_; }

 private:
  template <class Held>
  static void run(void *context) noexcept {
    std::unique_ptr<Held> held(static_cast<Held *>(context));
    (*held)();
  }

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

inline StreamView current_stream(std::int32_t device = -1) {
  return StreamView(
      detail::output<plinth_stream_t>([&](plinth_stream_t *out) { return plinth_current_stream(device, out); }));
}
inline StreamView default_stream(std::int32_t device = -1) {
  return StreamView(
      detail::output<plinth_stream_t>([&](plinth_stream_t *out) { return plinth_default_stream(device, out); }));
}
inline void set_stream(StreamView stream) { check(plinth_set_stream(stream.get())); }
inline bool is_current_stream_capturing() { return detail::output<bool>(plinth_is_current_stream_capturing); }

/*! Makes a stream and its device current for the lifetime of the object. */
class StreamGuard {
 public:
  explicit StreamGuard(StreamView stream) { check(plinth_stream_context_enter(stream.get(), &saved_)); }
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

  /*! Takes ownership of an event of plinth_event_create. NULL and integers do not compile. */
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

  void record(StreamView stream = current_stream()) { check(plinth_event_record(event_, stream.get())); }
  void wait(StreamView stream = current_stream()) const { check(plinth_event_wait(event_, stream.get())); }
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

inline void memcpy(void *destination, const void *source, std::size_t bytes, StreamView stream = current_stream()) {
  check(plinth_memcpy(destination, source, bytes, stream.get()));
}
/*! Copies as torch's copy_ does: in the current streams of the devices that own the memory. */
inline void copy(void *destination, const void *source, std::size_t bytes, bool non_blocking = false) {
  check(plinth_copy(destination, source, bytes, non_blocking));
}
inline void memset(void *destination, std::uint8_t value, std::size_t bytes, StreamView stream = current_stream()) {
  check(plinth_memset(destination, value, bytes, stream.get()));
}
/*! Fills memory with `count` copies of a value of 1, 2 or 4 bytes. */
template <class T>
void fill(T *destination, const T &value, std::size_t count, StreamView stream = current_stream()) {
  static_assert(std::is_trivially_copyable<T>::value, "the pattern must be trivially copyable");
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4, "the pattern must have 1, 2 or 4 bytes");
  check(plinth_memset_pattern(destination, &value, sizeof(T), count * sizeof(T), stream.get()));
}

/* ---- The sync debug mode ---- */

/*! What happens when a call would make the CPU wait for the device. */
enum class SyncDebugMode : std::int32_t {
  standard = PLINTH_SYNC_DEBUG_DEFAULT,
  warn = PLINTH_SYNC_DEBUG_WARN,
  error = PLINTH_SYNC_DEBUG_ERROR
};
inline void set_sync_debug_mode(SyncDebugMode mode) {
  check(plinth_set_sync_debug_mode(static_cast<std::int32_t>(mode)));
}
inline SyncDebugMode sync_debug_mode() {
  return static_cast<SyncDebugMode>(detail::output<std::int32_t>(plinth_get_sync_debug_mode));
}

}  // namespace plinth

#endif /* PLINTH_CORE_HPP */
