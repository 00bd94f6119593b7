/*!
 * @file plinth_communicator.hpp
 * @brief Communicators, stores and torch.cuda.nccl in C++17. plinth.hpp includes it.
 *
 * Collectives take contiguous tensors, or pointers and a number of elements. A timeout of 0 is the library's default.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_COMMUNICATOR_HPP
#define PLINTH_COMMUNICATOR_HPP

#include "plinth_core.hpp"
#include "plinth_tensor.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {

/*! The unique id of a communicator. */
using UniqueId = std::array<std::uint8_t, PLINTH_UNIQUE_ID_SIZE>;

/*! A reduction operation. */
enum class ReduceOp : std::int32_t {
  sum = PLINTH_REDUCE_SUM,
  product = PLINTH_REDUCE_PRODUCT,
  max = PLINTH_REDUCE_MAX,
  min = PLINTH_REDUCE_MIN,
  average = PLINTH_REDUCE_AVERAGE
};

/*! The implementation that executes collectives: the PLINTH_ENGINE_ constants of communicator.h. */
enum class Engine : std::uint32_t {
  automatic = PLINTH_ENGINE_AUTO,
  nccl = PLINTH_ENGINE_NCCL,
  local = PLINTH_ENGINE_LOCAL,
  shared = PLINTH_ENGINE_SHARED
};

/*! Options of a communicator. */
struct CommunicatorOptions {
  /*! The timeout for waits on other ranks. */
  std::chrono::milliseconds timeout{0};
  Engine engine = Engine::automatic;
  /*! PLINTH_COMMUNICATOR_ flags. */
  std::uint32_t flags = 0;
};

namespace detail {
/*! Converts to milliseconds for the C API; throws if negative. */
inline std::uint64_t milliseconds(std::chrono::milliseconds time) {
  if (time.count() < 0) throw std::invalid_argument("plinth: the timeout must not be negative");
  return static_cast<std::uint64_t>(time.count());
}

inline plinth_communicator_options_t options_of(const CommunicatorOptions &options) {
  return {sizeof(plinth_communicator_options_t), milliseconds(options.timeout),
          static_cast<std::uint32_t>(options.engine), options.flags};
}

/*! The number of groups that the calling thread has open. */
inline std::size_t &open_groups() noexcept {
  static thread_local std::size_t open = 0;
  return open;
}

/*! The number of elements of a tensor; throws if the tensor is not contiguous, or for a shape that no tensor has. */
inline std::size_t dense_count(const DLTensor &tensor) {
  const std::size_t element_bytes = (std::size_t(tensor.dtype.bits) * tensor.dtype.lanes + 7) / 8;
  const auto rank = static_cast<std::size_t>(tensor.ndim < 0 ? 0 : tensor.ndim);
  const std::size_t count = checked_count(tensor.shape, rank, element_bytes == 0 ? 1 : element_bytes);
  if (!is_contiguous(tensor)) throw std::invalid_argument("plinth: the tensor must be contiguous");
  return count;
}

/*! The number of elements of each of `times` parts, where `whole` holds all of them and both tensors have the same
 *  type. */
inline std::size_t part_count(const DLTensor &part, const DLTensor &whole, std::size_t times) {
  const std::size_t count = dense_count(part);
  if (dense_count(whole) != count * times) {
    throw std::invalid_argument("plinth: the numbers of elements of the tensors do not match");
  }
  if (part.dtype.code != whole.dtype.code || part.dtype.bits != whole.dtype.bits ||
      part.dtype.lanes != whole.dtype.lanes) {
    throw std::invalid_argument("plinth: the tensors must have the same type");
  }
  return count;
}
}  // namespace detail

/*! A rank of a communicator, destroyed by the destructor; its work should be complete by then. Movable, not
 *  copyable; default-constructed, it is empty. */
class Communicator {
 public:
  Communicator() noexcept = default;
  ~Communicator() { static_cast<void>(plinth_communicator_destroy(communicator_)); }
  Communicator(Communicator &&other) noexcept : communicator_(std::exchange(other.communicator_, nullptr)) {}
  Communicator &operator=(Communicator &&other) noexcept {
    std::swap(communicator_, other.communicator_);
    return *this;
  }
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  /*! Joins a communicator as one rank. Every rank makes this call, in its own thread or process. */
  static Communicator init_rank(std::int32_t ranks, const UniqueId &id, std::int32_t rank, std::int32_t device = -1,
                                const CommunicatorOptions &options = {}) {
    const plinth_communicator_options_t given = detail::options_of(options);
    return Communicator(detail::output<plinth_communicator_t>([&](plinth_communicator_t *out) {
      return plinth_communicator_init_rank(ranks, id.data(), rank, device, &given, out);
    }));
  }
  /*! Creates one rank for each device of a list. One thread can use them all, in groups. */
  template <class Devices>
  static std::vector<Communicator> init_all(const Devices &devices, const CommunicatorOptions &options = {}) {
    const plinth_communicator_options_t given = detail::options_of(options);
    const std::size_t count = std::size(devices);
    std::vector<plinth_communicator_t> handles(count);
    std::vector<Communicator> made(count);
    detail::acquire(
        [&] { return plinth_communicator_init_all(std::data(devices), count, &given, handles.data()); });
    for (std::size_t index = 0; index < count; index++) {
      made[index].communicator_ = handles[index];
    }
    return made;
  }
  static std::vector<Communicator> init_all(std::initializer_list<std::int32_t> devices,
                                            const CommunicatorOptions &options = {}) {
    return init_all<std::initializer_list<std::int32_t>>(devices, options);
  }
  /*! Takes ownership of a communicator of the C API. */
  static Communicator adopt(plinth_communicator_t communicator) noexcept { return Communicator(communicator); }

  plinth_communicator_t get() const noexcept { return communicator_; }
  explicit operator bool() const noexcept { return communicator_ != nullptr; }
  /*! Releases ownership: the caller destroys the communicator. */
  plinth_communicator_t release() noexcept { return std::exchange(communicator_, nullptr); }
  /*! Destroys the communicator now, and throws on errors; it is destroyed in any case. */
  void destroy() { check(plinth_communicator_destroy(std::exchange(communicator_, nullptr))); }

  /*! Creates a communicator of the ranks with the same color; empty for color -1. Not allowed in a group. */
  Communicator split(std::int32_t color, std::int32_t key = 0) const {
    if (detail::open_groups() != 0) {
      throw std::logic_error("plinth::Communicator::split: in a group, pass the communicator that its end assigns");
    }
    Communicator part;
    split(color, key, part);
    return part;
  }
  /*! Splits within a group: `part` is assigned when the group ends, and must not be moved before. */
  void split(std::int32_t color, std::int32_t key, Communicator &part) const {
    if (part) throw std::invalid_argument("plinth::Communicator::split: part must be empty");
    detail::acquire([&] { return plinth_communicator_split(communicator_, color, key, &part.communicator_); });
  }

  /*! Creates a communicator of the ranks that are not excluded, which all make this call. Not allowed in a group. With
   *  `abort`, also after an error such as a lost rank, this communicator and its work end first. */
  template <class Ranks>
  Communicator shrink(const Ranks &excluded, bool abort = false) const {
    if (detail::open_groups() != 0) {
      throw std::logic_error("plinth::Communicator::shrink: in a group, pass the communicator that its end assigns");
    }
    Communicator part;
    shrink(excluded, abort, part);
    return part;
  }
  Communicator shrink(std::initializer_list<std::int32_t> excluded, bool abort = false) const {
    return shrink<std::initializer_list<std::int32_t>>(excluded, abort);
  }
  /*! Shrinks within a group: `part` is assigned when the group ends, and must not be moved before. */
  template <class Ranks>
  void shrink(const Ranks &excluded, bool abort, Communicator &part) const {
    if (part) throw std::invalid_argument("plinth::Communicator::shrink: part must be empty");
    const std::uint32_t flags = abort ? PLINTH_SHRINK_ABORT : PLINTH_SHRINK_DEFAULT;
    detail::acquire([&] {
      return plinth_communicator_shrink(communicator_, std::data(excluded), std::size(excluded), flags,
                                        &part.communicator_);
    });
  }

  std::int32_t rank() const { return number(plinth_communicator_rank); }
  std::int32_t size() const { return number(plinth_communicator_size); }
  std::int32_t device() const { return number(plinth_communicator_device); }
  Engine engine() const {
    return static_cast<Engine>(detail::output<std::uint32_t>(
        [&](std::uint32_t *out) { return plinth_communicator_engine(communicator_, out); }));
  }
  void set_timeout(std::chrono::milliseconds timeout) {
    check(plinth_communicator_set_timeout(communicator_, detail::milliseconds(timeout)));
  }
  /*! Whether all ranks have joined, and all requested work is enqueued in the streams. */
  bool query() const {
    return detail::output<bool>([&](bool *out) { return plinth_communicator_query(communicator_, out); });
  }
  /*! Waits on the CPU for a stream's work, with a timeout. */
  void wait(StreamView stream = StreamView::current(),
            std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) const {
    check(plinth_communicator_wait(communicator_, detail::milliseconds(timeout), stream.get()));
  }
  /*! Releases the device memory of all ranks and keeps the addresses. Every rank makes this call. */
  void sleep() { check(plinth_communicator_sleep(communicator_)); }
  /*! Allocates the memory again, at the same addresses. Every rank makes this call. */
  void wake() { check(plinth_communicator_wake(communicator_)); }
  /*! Registers memory with all ranks, each of which makes this call: collectives read and write it where it is. */
  void register_memory(void *pointer, std::size_t bytes) const {
    check(plinth_communicator_register(communicator_, pointer, bytes));
  }
  /*! Ends this rank's registration of the memory at a pointer. */
  void deregister_memory(void *pointer) const { check(plinth_communicator_deregister(communicator_, pointer)); }
  /*! Aborts the communicator. May be called while another thread waits in it. */
  void abort() const { check(plinth_communicator_abort(communicator_)); }

  /* With pointers. A stream that is left out is the current stream of the communicator's device. */

  void all_reduce(const void *from, void *to, std::size_t count, DLDataType element, ReduceOp op,
                  StreamView stream = StreamView::current()) const {
    check(plinth_communicator_all_reduce(communicator_, from, to, count, element, number_of(op), stream.get()));
  }
  void reduce(const void *from, void *to, std::size_t count, DLDataType element, ReduceOp op, std::int32_t root,
              StreamView stream = StreamView::current()) const {
    check(plinth_communicator_reduce(communicator_, from, to, count, element, number_of(op), root, stream.get()));
  }
  void broadcast(const void *from, void *to, std::size_t count, DLDataType element, std::int32_t root,
                 StreamView stream = StreamView::current()) const {
    check(plinth_communicator_broadcast(communicator_, from, to, count, element, root, stream.get()));
  }
  void all_gather(const void *from, void *to, std::size_t count, DLDataType element,
                  StreamView stream = StreamView::current()) const {
    check(plinth_communicator_all_gather(communicator_, from, to, count, element, stream.get()));
  }
  void reduce_scatter(const void *from, void *to, std::size_t count, DLDataType element, ReduceOp op,
                      StreamView stream = StreamView::current()) const {
    check(plinth_communicator_reduce_scatter(communicator_, from, to, count, element, number_of(op), stream.get()));
  }
  void all_to_all(const void *from, void *to, std::size_t count, DLDataType element,
                  StreamView stream = StreamView::current()) const {
    check(plinth_communicator_all_to_all(communicator_, from, to, count, element, stream.get()));
  }
  void send(const void *from, std::size_t count, DLDataType element, std::int32_t peer,
            StreamView stream = StreamView::current()) const {
    check(plinth_communicator_send(communicator_, from, count, element, peer, stream.get()));
  }
  void recv(void *to, std::size_t count, DLDataType element, std::int32_t peer,
            StreamView stream = StreamView::current()) const {
    check(plinth_communicator_recv(communicator_, to, count, element, peer, stream.get()));
  }

  /* With tensors. */

  void all_reduce(const DLTensor &from, const DLTensor &to, ReduceOp op = ReduceOp::sum,
                  StreamView stream = StreamView::current()) const {
    const std::size_t count = detail::part_count(from, to, 1);
    all_reduce(first_element(from), first_element(to), count, from.dtype, op, stream);
  }
  /*! `to` is used only at the root, where it may be the same tensor as `from`. */
  void reduce(const DLTensor &from, const DLTensor &to, std::int32_t root, ReduceOp op = ReduceOp::sum,
              StreamView stream = StreamView::current()) const {
    const bool gets = rank() == root;
    const std::size_t count = gets ? detail::part_count(from, to, 1) : detail::dense_count(from);
    reduce(first_element(from), gets ? first_element(to) : nullptr, count, from.dtype, op, root, stream);
  }
  /*! In place: all ranks receive the root's elements. */
  void broadcast(const DLTensor &tensor, std::int32_t root, StreamView stream = StreamView::current()) const {
    void *const place = first_element(tensor);
    broadcast(place, place, detail::dense_count(tensor), tensor.dtype, root, stream);
  }
  /*! `to` has the number of ranks times the elements of `from`. */
  void all_gather(const DLTensor &from, const DLTensor &to, StreamView stream = StreamView::current()) const {
    const std::size_t count = detail::part_count(from, to, ranks());
    all_gather(first_element(from), first_element(to), count, from.dtype, stream);
  }
  /*! `from` has the number of ranks times the elements of `to`. */
  void reduce_scatter(const DLTensor &from, const DLTensor &to, ReduceOp op = ReduceOp::sum,
                      StreamView stream = StreamView::current()) const {
    const std::size_t count = detail::part_count(to, from, ranks());
    reduce_scatter(first_element(from), first_element(to), count, from.dtype, op, stream);
  }
  /*! Both tensors have one part per rank. */
  void all_to_all(const DLTensor &from, const DLTensor &to, StreamView stream = StreamView::current()) const {
    const std::size_t count = detail::part_count(from, to, 1);
    if (count % ranks() != 0) {
      throw std::invalid_argument("plinth::Communicator::all_to_all: count must be a multiple of the ranks");
    }
    all_to_all(first_element(from), first_element(to), count / ranks(), from.dtype, stream);
  }
  void send(const DLTensor &from, std::int32_t peer, StreamView stream = StreamView::current()) const {
    send(first_element(from), detail::dense_count(from), from.dtype, peer, stream);
  }
  void recv(const DLTensor &to, std::int32_t peer, StreamView stream = StreamView::current()) const {
    recv(first_element(to), detail::dense_count(to), to.dtype, peer, stream);
  }

 private:
  explicit Communicator(plinth_communicator_t communicator) noexcept : communicator_(communicator) {}

  static std::int32_t number_of(ReduceOp op) noexcept { return static_cast<std::int32_t>(op); }
  std::int32_t number(plinth_status_t (*call)(plinth_communicator_t, std::int32_t *)) const {
    return detail::output<std::int32_t>([&](std::int32_t *out) { return call(communicator_, out); });
  }
  std::size_t ranks() const { return static_cast<std::size_t>(size()); }

  plinth_communicator_t communicator_ = nullptr;
};

/*! A group, as ncclGroupStart and ncclGroupEnd: the collectives that the thread requests during the object's
 *  lifetime are issued together by end(). If the destructor runs without it, as after an exception, it discards them,
 *  see plinth_communicator_group_cancel. */
class CommunicatorGroup {
 public:
  CommunicatorGroup() {
    detail::acquire(plinth_communicator_group_start);
    detail::open_groups()++;
  }
  void end() {
    detail::end_once(open_, "plinth::CommunicatorGroup::end: the group has ended");
    detail::open_groups()--;
    check(plinth_communicator_group_end());
  }
  ~CommunicatorGroup() {
    if (!open_) return;
    detail::open_groups()--;
    static_cast<void>(plinth_communicator_group_cancel());
  }
  CommunicatorGroup(const CommunicatorGroup &) = delete;
  CommunicatorGroup &operator=(const CommunicatorGroup &) = delete;

 private:
  bool open_ = true;
};

/*! A key-value store for processes, in a folder, closed by the destructor. Movable, not copyable. */
class Store {
 public:
  using Time = std::chrono::milliseconds;

  /*! The address is the absolute path of a folder that all processes can access. */
  explicit Store(const std::string &address)
      : store_(detail::output<plinth_store_t>(
            [&](plinth_store_t *out) { return plinth_store_create(address.c_str(), out); })) {}
  ~Store() { static_cast<void>(plinth_store_destroy(store_)); }
  Store(Store &&other) noexcept : store_(std::exchange(other.store_, nullptr)) {}
  Store &operator=(Store &&other) noexcept {
    std::swap(store_, other.store_);
    return *this;
  }
  Store(const Store &) = delete;
  Store &operator=(const Store &) = delete;

  plinth_store_t get() const noexcept { return store_; }
  /*! The value may contain any bytes. A key can be set once. */
  void set(const std::string &name, const std::string &value) {
    check(plinth_store_set(store_, name.c_str(), value.data(), value.size()));
  }
  /*! Waits until the key is set. */
  std::string get(const std::string &name, Time timeout = Time(0)) const {
    std::string value(256, '\0');
    for (;;) {
      std::size_t bytes = 0;
      const plinth_status_t status =
          plinth_store_get(store_, name.c_str(), detail::milliseconds(timeout), &value[0], value.size(), &bytes);
      const bool room = bytes <= value.size();
      if (status != PLINTH_ERROR_INVALID_VALUE || room) check(status);
      value.resize(bytes);
      if (room) return value;
    }
  }
  void barrier(const std::string &name, std::int32_t ranks, Time timeout = Time(0)) {
    check(plinth_store_barrier(store_, name.c_str(), ranks, detail::milliseconds(timeout)));
  }
  /*! Distributes one unique id to all ranks. Call Communicator::init_rank next. */
  UniqueId unique_id(const std::string &name, std::int32_t rank, std::int32_t ranks, Time timeout = Time(0)) {
    UniqueId id{};
    check(plinth_store_unique_id(store_, name.c_str(), rank, ranks, detail::milliseconds(timeout), id.data()));
    return id;
  }

 private:
  plinth_store_t store_;
};

/*! The functions of torch.cuda.nccl: collectives over tensors on the devices of this process, in any contiguous
 *  container. Streams and communicators are one per tensor; NULL means the same as in C. */
namespace nccl {

/*! A version of NCCL, for example 2.28.3. */
struct Version {
  std::int32_t major;
  std::int32_t minor;
  std::int32_t patch;
};

inline Version version() {
  Version found{};
  check(plinth_nccl_version(&found.major, &found.minor, &found.patch));
  return found;
}
/*! NCCL's own report of the running job; 0 is the default timeout. */
inline std::string report(std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) {
  return plinth::detail::text([&](char **out) { return plinth_nccl_report(plinth::detail::milliseconds(timeout), out); });
}
/*! Whether NCCL is available. The functions here work without it. */
inline bool is_available() {
  return plinth::detail::output<bool>([](bool *out) { return plinth_nccl_is_available(nullptr, 0, out); });
}
/*! Whether the functions here support these tensors. */
template <class Tensors>
bool is_available(const Tensors &tensors) {
  return plinth::detail::output<bool>(
      [&](bool *out) { return plinth_nccl_is_available(std::data(tensors), std::size(tensors), out); });
}
inline UniqueId unique_id() {
  UniqueId id{};
  check(plinth_nccl_unique_id(id.data()));
  return id;
}

namespace detail {
inline void same_length(std::size_t inputs, std::size_t outputs) {
  if (inputs != outputs) throw std::invalid_argument("plinth::nccl: pass one output for each input");
}
}  // namespace detail

/*! In place. */
template <class Tensors>
void all_reduce(const Tensors &tensors, ReduceOp op = ReduceOp::sum, const plinth_stream_t *streams = nullptr,
                const plinth_communicator_t *communicators = nullptr) {
  check(plinth_nccl_all_reduce(std::data(tensors), nullptr, std::size(tensors), static_cast<std::int32_t>(op), streams,
                               communicators));
}
template <class Inputs, class Outputs, class = decltype(std::data(std::declval<const Outputs &>()))>
void all_reduce(const Inputs &inputs, const Outputs &outputs, ReduceOp op = ReduceOp::sum,
                const plinth_stream_t *streams = nullptr, const plinth_communicator_t *communicators = nullptr) {
  detail::same_length(std::size(inputs), std::size(outputs));
  check(plinth_nccl_all_reduce(std::data(inputs), std::data(outputs), std::size(inputs), static_cast<std::int32_t>(op),
                               streams, communicators));
}
/*! `root` is the index of the input whose device gets the result. */
template <class Inputs>
void reduce(const Inputs &inputs, const DLTensor &output, std::int32_t root = 0, ReduceOp op = ReduceOp::sum,
            const plinth_stream_t *streams = nullptr, const plinth_communicator_t *communicators = nullptr) {
  check(plinth_nccl_reduce(std::data(inputs), &output, std::size(inputs), root, static_cast<std::int32_t>(op), streams,
                           communicators));
}
template <class Tensors>
void broadcast(const Tensors &tensors, std::int32_t root = 0, const plinth_stream_t *streams = nullptr,
               const plinth_communicator_t *communicators = nullptr) {
  check(plinth_nccl_broadcast(std::data(tensors), std::size(tensors), root, streams, communicators));
}
template <class Inputs, class Outputs>
void all_gather(const Inputs &inputs, const Outputs &outputs, const plinth_stream_t *streams = nullptr,
                const plinth_communicator_t *communicators = nullptr) {
  detail::same_length(std::size(inputs), std::size(outputs));
  check(plinth_nccl_all_gather(std::data(inputs), std::data(outputs), std::size(inputs), streams, communicators));
}
template <class Inputs, class Outputs>
void reduce_scatter(const Inputs &inputs, const Outputs &outputs, ReduceOp op = ReduceOp::sum,
                    const plinth_stream_t *streams = nullptr, const plinth_communicator_t *communicators = nullptr) {
  detail::same_length(std::size(inputs), std::size(outputs));
  check(plinth_nccl_reduce_scatter(std::data(inputs), std::data(outputs), std::size(inputs),
                                   static_cast<std::int32_t>(op), streams, communicators));
}

}  // namespace nccl

}  // namespace plinth

#endif

#endif /* PLINTH_COMMUNICATOR_HPP */
