/*!
 * @file plinth.hpp
 * @brief plinth for C++17: values for outputs, exceptions for errors, objects that give back what they took.
 *
 * A thin layer over plinth.h, in the header only. Every function here makes the calls of its namesakes there, whose
 * comments say what they mean; a status that is not PLINTH_OK becomes a plinth::Error. Destructors cannot throw, and
 * let an error of giving back go by. Where a stream may be left out, the thread's current stream is meant, as in torch.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef PLINTH_HPP
#define PLINTH_HPP

#include "plinth.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace plinth {

/*! What every function here throws: the message of plinth_last_error, with the status and the driver's code. */
class Error : public std::runtime_error {
 public:
  Error(plinth_status_t status, const std::string &message, std::int32_t driver_code)
      : std::runtime_error(message), status_(status), driver_code_(driver_code) {}

  /*! One of the PLINTH_ERROR_ constants. */
  plinth_status_t status() const noexcept { return status_; }
  /*! The status as text, "PLINTH_ERROR_OUT_OF_MEMORY". */
  const char *name() const noexcept { return plinth_status_name(status_); }
  /*! The raw CUresult, or 0 where the driver had no part in it. */
  std::int32_t driver_code() const noexcept { return driver_code_; }

 private:
  plinth_status_t status_;
  std::int32_t driver_code_;
};

/*! Throws what the calling thread's last call left, unless its status is PLINTH_OK. */
inline void check(plinth_status_t status) {
  if (status != PLINTH_OK) throw Error(status, plinth_last_error(), plinth_last_driver_error());
}

namespace detail {
/*! The output of a call as its value. */
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
}  // namespace detail

/* ---- The library and its devices ---- */

/*! Which kind of device the process uses. */
enum class DeviceKind : std::int32_t {
  cuda = PLINTH_DEVICE_CUDA,
  host = PLINTH_DEVICE_HOST,
  automatic = PLINTH_DEVICE_AUTO
};

inline void set_device_kind(DeviceKind kind) { check(plinth_set_device_kind(static_cast<std::int32_t>(kind))); }
inline DeviceKind device_kind() {
  return static_cast<DeviceKind>(detail::output<std::int32_t>(plinth_get_device_kind));
}
inline void init() { check(plinth_init()); }
inline bool is_available() noexcept { return plinth_is_available(); }
inline bool is_initialized() noexcept { return plinth_is_initialized(); }
inline std::int32_t device_count() { return detail::output<std::int32_t>(plinth_device_count); }
inline std::int32_t current_device() { return detail::output<std::int32_t>(plinth_current_device); }
inline void set_device(std::int32_t device) { check(plinth_set_device(device)); }
inline void synchronize(std::int32_t device = -1) { check(plinth_synchronize(device)); }

/*! The device whose memory a pointer is; -1 for host memory. */
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

/*! A compute capability: 9.0 on an H200. */
struct Capability {
  std::int32_t major;
  std::int32_t minor;
};

inline Capability device_capability(std::int32_t device = -1) {
  Capability found{};
  check(plinth_get_device_capability(device, &found.major, &found.minor));
  return found;
}

/*! Bytes of a device's memory. */
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

/*! Makes a device current for as long as it lives. A negative number changes nothing. */
class DeviceGuard {
 public:
  explicit DeviceGuard(std::int32_t device)
      : previous_(detail::output<std::int32_t>([&](std::int32_t *out) { return plinth_exchange_device(device, out); })) {}

  /*! Makes the device current whose memory the pointer is; nothing changes for host memory. */
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

/*! A stream that somebody else keeps: the library, CUDA, or another library. As small as a pointer and as cheap to
 *  copy. It cannot be made from an integer, nor from NULL by accident: the default stream is StreamView{}. */
class StreamView {
 public:
  /*! The default stream of the device that is current when it is used. */
  constexpr StreamView() noexcept = default;
  constexpr StreamView(plinth_stream_t stream) noexcept : stream_(stream) {}
  StreamView(int) = delete;
  StreamView(std::nullptr_t) = delete;

  /*! The handle, for kernel<<<...>>> and for CUDA's libraries. */
  constexpr plinth_stream_t get() const noexcept { return stream_; }
  constexpr operator plinth_stream_t() const noexcept { return stream_; }

  bool query() const {
    return detail::output<bool>([&](bool *done) { return plinth_stream_query(stream_, done); });
  }
  void synchronize() const { check(plinth_stream_synchronize(stream_)); }
  /*! Lets this stream's later work wait for what `other` has now. */
  void wait(StreamView other) const { check(plinth_stream_wait_stream(stream_, other.stream_)); }
  /*! Lets this stream's later work wait for what `event` recorded last. */
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

  /*! Lets the stream call a function of any kind once its earlier work is done. The function is moved to the heap and
   *  destroyed after its call; it must not throw. */
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

/*! A stream of a device's pool. The library keeps it for ever, so this is a view with another beginning. */
class Stream : public StreamView {
 public:
  explicit Stream(std::int32_t device = -1, std::int32_t priority = 0)
      : StreamView(detail::output<plinth_stream_t>(
            [&](plinth_stream_t *out) { return plinth_stream_create(device, priority, out); })) {}

  /*! Makes a stream known that somebody else made. */
  static StreamView external(void *native, std::int32_t device = -1) {
    return StreamView(detail::output<plinth_stream_t>(
        [&](plinth_stream_t *out) { return plinth_stream_from_external(native, device, out); }));
  }

  /*! The least and the greatest priority; greater ones are lower numbers. */
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

/*! Makes a stream and its device current for as long as it lives. */
class StreamGuard {
 public:
  explicit StreamGuard(StreamView stream) { check(plinth_stream_context_enter(stream.get(), &saved_)); }
  ~StreamGuard() { static_cast<void>(plinth_stream_context_exit(&saved_)); }
  StreamGuard(const StreamGuard &) = delete;
  StreamGuard &operator=(const StreamGuard &) = delete;

 private:
  plinth_stream_context_t saved_{};
};

/*! What an event can do; the values combine with |. */
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

/*! An event, destroyed with its object. Can be moved, not copied. */
class Event {
 public:
  using IpcHandle = std::array<std::uint8_t, PLINTH_IPC_EVENT_HANDLE_SIZE>;

  explicit Event(EventFlags flags = EventFlags::none)
      : event_(detail::output<plinth_event_t>([&](plinth_event_t *out) {
          return plinth_event_create(static_cast<std::uint32_t>(flags), out);
        })) {}

  /*! Opens another process's event. */
  static Event from_ipc_handle(const IpcHandle &handle, std::int32_t device = -1) {
    return Event(detail::output<plinth_event_t>(
        [&](plinth_event_t *out) { return plinth_event_from_ipc_handle(device, handle.data(), out); }));
  }

  /*! Takes over an event that plinth_event_create gave. NULL and integers are refused by the compiler. */
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
  /*! Gives the event away: the caller destroys it. */
  plinth_event_t release() noexcept { return std::exchange(event_, nullptr); }

  void record(StreamView stream = current_stream()) { check(plinth_event_record(event_, stream.get())); }
  void wait(StreamView stream = current_stream()) const { check(plinth_event_wait(event_, stream.get())); }
  bool query() const {
    return detail::output<bool>([&](bool *done) { return plinth_event_query(event_, done); });
  }
  void synchronize() const { check(plinth_event_synchronize(event_)); }
  /*! Milliseconds from this event to `end`. */
  float elapsed_time(const Event &end) const {
    return detail::output<float>([&](float *out) { return plinth_event_elapsed_time(event_, end.event_, out); });
  }
  /*! The device of the first record; -1 before it. */
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

/*! Device memory straight from the driver. The pointer means something to devices only. */
using DeviceMemory = std::unique_ptr<void, detail::DeviceFree>;
/*! Pinned host memory straight from the driver. */
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
/*! As torch's copy_: in the current streams of the devices that own the memory. */
inline void copy(void *destination, const void *source, std::size_t bytes, bool non_blocking = false) {
  check(plinth_copy(destination, source, bytes, non_blocking));
}
inline void memset(void *destination, std::uint8_t value, std::size_t bytes, StreamView stream = current_stream()) {
  check(plinth_memset(destination, value, bytes, stream.get()));
}
/*! Fills `count` values of 1, 2 or 4 bytes. */
template <class T>
void fill(T *destination, const T &value, std::size_t count, StreamView stream = current_stream()) {
  static_assert(std::is_trivially_copyable<T>::value, "a pattern is copied byte by byte");
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4, "a pattern has 1, 2 or 4 bytes");
  check(plinth_memset_pattern(destination, &value, sizeof(T), count * sizeof(T), stream.get()));
}

/* ---- Random numbers ---- */

/*! The state of a generator: seed and offset, as in PyTorch. */
using RngState = std::array<std::uint8_t, PLINTH_RNG_STATE_SIZE>;

inline void manual_seed(std::uint64_t seed) { check(plinth_manual_seed(seed)); }
inline void manual_seed_all(std::uint64_t seed) { check(plinth_manual_seed_all(seed)); }
inline std::uint64_t initial_seed() { return detail::output<std::uint64_t>(plinth_initial_seed); }
inline RngState rng_state(std::int32_t device = -1) {
  RngState state{};
  check(plinth_get_rng_state(device, state.data()));
  return state;
}
inline void set_rng_state(const RngState &state, std::int32_t device = -1) {
  check(plinth_set_rng_state(device, state.data()));
}

/*! A generator that somebody else holds; made of nothing, the default one of the tensor's device. */
class GeneratorView {
 public:
  GeneratorView() noexcept = default;
  explicit GeneratorView(plinth_generator_t generator) noexcept : generator_(generator) {}

  plinth_generator_t get() const noexcept { return generator_; }

  std::int32_t device() const {
    return detail::output<std::int32_t>([&](std::int32_t *out) { return plinth_generator_device(generator_, out); });
  }
  void manual_seed(std::uint64_t seed) const { check(plinth_generator_manual_seed(generator_, seed)); }
  /*! Seeds it from the operating system, and returns the seed. */
  std::uint64_t seed() const {
    return detail::output<std::uint64_t>([&](std::uint64_t *out) { return plinth_generator_seed(generator_, out); });
  }
  std::uint64_t initial_seed() const {
    return detail::output<std::uint64_t>(
        [&](std::uint64_t *out) { return plinth_generator_initial_seed(generator_, out); });
  }
  RngState state() const {
    RngState state{};
    check(plinth_generator_get_state(generator_, state.data()));
    return state;
  }
  void set_state(const RngState &state) const {
    check(plinth_generator_set_state(generator_, state.data(), state.size()));
  }
  std::uint64_t offset() const {
    return detail::output<std::uint64_t>(
        [&](std::uint64_t *out) { return plinth_generator_get_offset(generator_, out); });
  }
  void set_offset(std::uint64_t offset) const { check(plinth_generator_set_offset(generator_, offset)); }
  /*! Takes numbers for a kernel; see plinth_generator_philox_state. */
  plinth_philox_state_t philox_state(std::uint64_t increment) const {
    return detail::output<plinth_philox_state_t>(
        [&](plinth_philox_state_t *out) { return plinth_generator_philox_state(generator_, increment, out); });
  }

 protected:
  plinth_generator_t generator_ = nullptr;
};

inline GeneratorView default_generator(std::int32_t device = -1) {
  return GeneratorView(detail::output<plinth_generator_t>(
      [&](plinth_generator_t *out) { return plinth_default_generator(device, out); }));
}

/*! A generator, destroyed with its object. Can be moved; clone() makes another one that goes on from here. */
class Generator : public GeneratorView {
 public:
  explicit Generator(std::int32_t device = -1)
      : GeneratorView(detail::output<plinth_generator_t>(
            [&](plinth_generator_t *out) { return plinth_generator_create(device, out); })) {}

  ~Generator() { static_cast<void>(plinth_generator_destroy(generator_)); }
  Generator(Generator &&other) noexcept : GeneratorView(std::exchange(other.generator_, nullptr)) {}
  Generator &operator=(Generator &&other) noexcept {
    std::swap(generator_, other.generator_);
    return *this;
  }
  Generator(const Generator &) = delete;
  Generator &operator=(const Generator &) = delete;

  Generator clone() const {
    return Generator(detail::output<plinth_generator_t>(
        [&](plinth_generator_t *out) { return plinth_generator_clone(generator_, out); }), Owned());
  }

 private:
  struct Owned {};
  Generator(plinth_generator_t generator, Owned) noexcept : GeneratorView(generator) {}
};

inline void uniform(DLTensor &tensor, double low = 0.0, double high = 1.0, GeneratorView generator = {},
                    StreamView stream = current_stream()) {
  check(plinth_uniform(&tensor, low, high, generator.get(), stream.get()));
}
inline void normal(DLTensor &tensor, double mean = 0.0, double std = 1.0, GeneratorView generator = {},
                   StreamView stream = current_stream()) {
  check(plinth_normal(&tensor, mean, std, generator.get(), stream.get()));
}
inline void log_normal(DLTensor &tensor, double mean = 1.0, double std = 2.0, GeneratorView generator = {},
                       StreamView stream = current_stream()) {
  check(plinth_log_normal(&tensor, mean, std, generator.get(), stream.get()));
}
inline void exponential(DLTensor &tensor, double lambda = 1.0, GeneratorView generator = {},
                        StreamView stream = current_stream()) {
  check(plinth_exponential(&tensor, lambda, generator.get(), stream.get()));
}
inline void cauchy(DLTensor &tensor, double median = 0.0, double sigma = 1.0, GeneratorView generator = {},
                   StreamView stream = current_stream()) {
  check(plinth_cauchy(&tensor, median, sigma, generator.get(), stream.get()));
}
inline void geometric(DLTensor &tensor, double p, GeneratorView generator = {}, StreamView stream = current_stream()) {
  check(plinth_geometric(&tensor, p, generator.get(), stream.get()));
}
inline void bernoulli(DLTensor &tensor, double p = 0.5, GeneratorView generator = {},
                      StreamView stream = current_stream()) {
  check(plinth_bernoulli(&tensor, p, generator.get(), stream.get()));
}
/*! With a probability for each element. */
inline void bernoulli(DLTensor &tensor, const DLTensor &p, GeneratorView generator = {},
                      StreamView stream = current_stream()) {
  check(plinth_bernoulli_tensor(&tensor, &p, generator.get(), stream.get()));
}
inline void random(DLTensor &tensor, GeneratorView generator = {}, StreamView stream = current_stream()) {
  check(plinth_random(&tensor, generator.get(), stream.get()));
}
/*! Whole numbers of [low, high). */
inline void random_range(DLTensor &tensor, std::int64_t low, std::int64_t high, GeneratorView generator = {},
                         StreamView stream = current_stream()) {
  check(plinth_random_range(&tensor, low, high, generator.get(), stream.get()));
}
/*! Whole numbers from low on. */
inline void random_from(DLTensor &tensor, std::int64_t low, GeneratorView generator = {},
                        StreamView stream = current_stream()) {
  check(plinth_random_from(&tensor, low, generator.get(), stream.get()));
}
inline void randperm(DLTensor &tensor, GeneratorView generator = {}, StreamView stream = current_stream()) {
  check(plinth_randperm(&tensor, generator.get(), stream.get()));
}

/* ---- Graphs ---- */

/*! What a capture forbids while it goes on. */
enum class CaptureMode : std::int32_t {
  global = PLINTH_CAPTURE_GLOBAL,
  thread_local_ = PLINTH_CAPTURE_THREAD_LOCAL,
  relaxed = PLINTH_CAPTURE_RELAXED
};

/*! What happens when a replay would overlap with another of its pool. */
enum class Overlap : std::int32_t { order = PLINTH_GRAPH_OVERLAP_ORDER, refuse = PLINTH_GRAPH_OVERLAP_REFUSE };

/*! A name for a pool that graphs are to share. */
inline plinth_pool_id_t graph_pool_handle() { return detail::output<plinth_pool_id_t>(plinth_graph_pool_handle); }

/*! A graph, destroyed with its object. Can be moved, not copied; clone() makes another. */
class Graph {
 public:
  explicit Graph(bool keep_graph = false)
      : graph_(detail::output<plinth_graph_t>([&](plinth_graph_t *out) {
          return plinth_graph_create_with_options(keep_graph ? PLINTH_GRAPH_KEEP_GRAPH : 0, out);
        })) {}

  /*! Takes over a graph that plinth_graph_create gave. */
  static Graph adopt(plinth_graph_t graph) noexcept { return Graph(graph); }

  ~Graph() { static_cast<void>(plinth_graph_destroy(graph_)); }
  Graph(Graph &&other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  Graph &operator=(Graph &&other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  Graph(const Graph &) = delete;
  Graph &operator=(const Graph &) = delete;

  plinth_graph_t get() const noexcept { return graph_; }
  /*! Gives the graph away: the caller destroys it. */
  plinth_graph_t release() noexcept { return std::exchange(graph_, nullptr); }

  /*! {0, 0} is a pool of the graph's own. GraphCapture is the safer way. */
  void capture_begin(plinth_pool_id_t pool = {0, 0}, CaptureMode mode = CaptureMode::global) {
    check(plinth_graph_capture_begin(graph_, &pool, static_cast<std::int32_t>(mode)));
  }
  void capture_end() { check(plinth_graph_capture_end(graph_)); }
  void instantiate() { check(plinth_graph_instantiate(graph_)); }
  void upload() { check(plinth_graph_upload(graph_)); }
  /*! In the thread's current stream on the graph's device. */
  void replay() { check(plinth_graph_replay(graph_)); }
  void reset() { check(plinth_graph_reset(graph_)); }
  void set_overlap_policy(Overlap policy) {
    check(plinth_graph_set_overlap_policy(graph_, static_cast<std::int32_t>(policy)));
  }
  /*! Before the capture; the device's own needs none of this. */
  void register_generator_state(const GeneratorView &generator) {
    check(plinth_graph_register_generator_state(graph_, generator.get()));
  }

  plinth_pool_id_t pool() const {
    return detail::output<plinth_pool_id_t>([&](plinth_pool_id_t *out) { return plinth_graph_pool(graph_, out); });
  }
  /*! Bytes of the graph's pool. */
  struct Memory {
    std::size_t allocated;
    std::size_t held;
  };
  Memory memory() const {
    Memory found{};
    check(plinth_graph_memory(graph_, &found.allocated, &found.held));
    return found;
  }
  /*! Gives the pool's physical memory back until wake(); its contents are lost. */
  void sleep() { check(plinth_graph_sleep(graph_)); }
  void wake() { check(plinth_graph_wake(graph_)); }
  bool is_asleep() const {
    return detail::output<bool>([&](bool *out) { return plinth_graph_is_asleep(graph_, out); });
  }

  void enable_debug_mode() { check(plinth_graph_enable_debug_mode(graph_)); }
  void debug_dump(const std::string &path) const { check(plinth_graph_debug_dump(graph_, path.c_str())); }
  std::string summary() const {
    return detail::text([&](char **out) { return plinth_graph_summary(graph_, out); });
  }
  /*! The CUgraph of a graph that kept its nodes. */
  void *native() const {
    return detail::output<void *>([&](void **out) { return plinth_graph_native(graph_, out); });
  }
  /*! The CUgraphExec of a graph that is instantiated. */
  void *exec_native() const {
    return detail::output<void *>([&](void **out) { return plinth_graph_exec_native(graph_, out); });
  }
  void update(const Graph &other) { check(plinth_graph_update(graph_, other.graph_)); }
  Graph clone() const {
    return Graph(
        detail::output<plinth_graph_t>([&](plinth_graph_t *out) { return plinth_graph_clone(graph_, out); }));
  }

 private:
  explicit Graph(plinth_graph_t graph) noexcept : graph_(graph) {}

  plinth_graph_t graph_;
};

/*! A capture as a block, torch.cuda.graph: begins with the object and ends with end(), or, where an exception ends the
 *  block, with the object: then the capture is thrown away, and the exception is what the program gets. Either way the
 *  stream and the device that were current are so again. */
class GraphCapture {
 public:
  /*! Without a stream, in one that the library keeps for captures; without a pool, in one of the graph's own. */
  explicit GraphCapture(Graph &graph, plinth_pool_id_t pool = {0, 0}, StreamView stream = {},
                        CaptureMode mode = CaptureMode::global) {
    check(plinth_graph_begin(graph.get(), &pool, stream.get(), static_cast<std::int32_t>(mode), &context_));
    open_ = true;
  }

  /*! Ends the capture. Throws why there is no graph, if there is none. */
  void end() {
    open_ = false;
    check(plinth_graph_end(&context_, PLINTH_OK));
  }

  ~GraphCapture() {
    if (open_) static_cast<void>(plinth_graph_end(&context_, PLINTH_ERROR_CAPTURE_INVALIDATED));
  }
  GraphCapture(const GraphCapture &) = delete;
  GraphCapture &operator=(const GraphCapture &) = delete;

 private:
  plinth_graph_context_t context_{};
  bool open_ = false;
};

/*! Captures what a function does. What it throws is thrown on, and there is no graph then. */
template <class Body>
void capture(Graph &graph, Body &&body, plinth_pool_id_t pool = {0, 0}, StreamView stream = {},
             CaptureMode mode = CaptureMode::global) {
  GraphCapture block(graph, pool, stream, mode);
  std::forward<Body>(body)();
  block.end();
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

#endif /* PLINTH_HPP */
