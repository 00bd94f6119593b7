/*!
 * @file plinth_host_memory.hpp
 * @brief Pinned and managed memory in C++17, also for containers. plinth.hpp includes it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_HOST_MEMORY_HPP
#define PLINTH_HOST_MEMORY_HPP

#include "plinth_core.hpp"
#include "plinth_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {

namespace detail {
struct HostFree {
  void operator()(void *memory) const noexcept { static_cast<void>(plinth_host_free(memory)); }
};
struct ManagedFree {
  void operator()(void *memory) const noexcept { static_cast<void>(plinth_managed_free(memory)); }
};
}  // namespace detail

/*! Pinned host memory from the cache. */
using HostMemory = std::unique_ptr<void, detail::HostFree>;
/*! Managed memory, which the host and every device access by the same address. */
using ManagedMemory = std::unique_ptr<void, detail::ManagedFree>;

inline HostMemory host_alloc(std::size_t size) {
  return HostMemory(detail::output<void *>([&](void **out) { return plinth_host_alloc(size, out); }));
}
inline ManagedMemory managed_malloc(std::size_t size, std::int32_t device = -1) {
  return ManagedMemory(detail::output<void *>([&](void **out) { return plinth_managed_malloc(size, device, out); }));
}
/*! Records that the program's own work in a stream uses the memory. The library's copies and fills record their
 *  streams themselves. */
inline void host_record_stream(const void *pointer, StreamView stream = StreamView::current()) {
  check(plinth_host_record_stream(pointer, stream.get()));
}
inline void host_empty_cache() { check(plinth_host_empty_cache()); }
inline bool is_pinned(const void *pointer) {
  return detail::output<bool>([&](bool *out) { return plinth_is_pinned(pointer, out); });
}

/*! A standard allocator over plinth_host_alloc, for containers whose copies are asynchronous. Memory may be
 *  deallocated at any time, for example when a container grows: it is not reused while streams still use it. Throws
 *  Error if memory runs out. */
template <class T>
class PinnedAllocator {
 public:
  using value_type = T;
  using is_always_equal = std::true_type;
  static_assert(alignof(T) <= 64, "plinth_host_alloc aligns to 64 bytes");

  PinnedAllocator() noexcept = default;
  template <class U>
  PinnedAllocator(const PinnedAllocator<U> &) noexcept {}

  T *allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T *>(host_alloc(count * sizeof(T)).release());
  }
  void deallocate(T *memory, std::size_t) noexcept { static_cast<void>(plinth_host_free(memory)); }
};

template <class T, class U>
bool operator==(const PinnedAllocator<T> &, const PinnedAllocator<U> &) noexcept {
  return true;
}
template <class T, class U>
bool operator!=(const PinnedAllocator<T> &, const PinnedAllocator<U> &) noexcept {
  return false;
}

template <class T>
using PinnedVector = std::vector<T, PinnedAllocator<T>>;

/*! Pins memory of the program for the lifetime of the object. Movable, not copyable. */
class HostRegistration {
 public:
  HostRegistration(void *pointer, std::size_t bytes, std::uint32_t flags = PLINTH_HOST_REGISTER_PORTABLE)
      : pointer_(pointer) {
    detail::acquire([&] { return plinth_host_register(pointer, bytes, flags); });
  }
  ~HostRegistration() { static_cast<void>(plinth_host_unregister(pointer_)); }
  HostRegistration(HostRegistration &&other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  HostRegistration &operator=(HostRegistration &&other) noexcept {
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  HostRegistration(const HostRegistration &) = delete;
  HostRegistration &operator=(const HostRegistration &) = delete;

  void *get() const noexcept { return pointer_; }
  /*! Unpins the memory now, and throws on errors, after which it is still pinned. */
  void unregister() {
    detail::acquire([&] { return plinth_host_unregister(pointer_); });
    pointer_ = nullptr;
  }

 private:
  void *pointer_;
};

/* ---- Figures ---- */

using HostMemoryStats = plinth_host_memory_stats_t;

inline HostMemoryStats host_memory_stats() {
  return detail::sized_output<HostMemoryStats>(plinth_host_memory_stats);
}
/*! Calls `visitor(const char *key, std::uint64_t value)` for each value of the statistics. An exception that it
 *  throws ends the iteration and is rethrown. */
template <class Visitor>
void host_memory_stats_each(Visitor &&visitor) {
  using Visit = detail::Visit<std::remove_reference_t<Visitor>>;
  Visit visit(visitor);
  const auto show = [](const char *key, std::uint64_t value, void *context) { Visit::of(context).show(key, value); };
  visit.finish(plinth_host_memory_stats_each(show, &visit));
}
inline std::string host_memory_stats_as_json(bool nested = false) {
  return detail::text([&](char **out) { return plinth_host_memory_stats_as_json(nested, out); });
}
inline void reset_peak_host_memory_stats() { check(plinth_reset_peak_host_memory_stats()); }
inline void reset_accumulated_host_memory_stats() { check(plinth_reset_accumulated_host_memory_stats()); }

}  // namespace plinth

#endif

#endif /* PLINTH_HOST_MEMORY_HPP */
