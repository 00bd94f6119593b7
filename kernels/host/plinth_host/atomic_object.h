// cuda::atomic and cuda::atomic_ref: those of the standard, with scopes, minima and maxima. Operations that a loop may
// wait with let other threads of the block run: a comparison that fails, and every 16th load.
#pragma once
#include <plinth_host/atomic.h>
#include <plinth_host/thread_scope.h>

#include <plinth_host/standard_begin.h>
#include <stddef.h>
#include <stdint.h>
#include <type_traits>
#include <plinth_host/standard_end.h>

namespace cuda {
namespace std {
enum class memory_order : int {
  relaxed = __ATOMIC_RELAXED,
  consume = __ATOMIC_CONSUME,
  acquire = __ATOMIC_ACQUIRE,
  release = __ATOMIC_RELEASE,
  acq_rel = __ATOMIC_ACQ_REL,
  seq_cst = __ATOMIC_SEQ_CST,
};
constexpr memory_order memory_order_relaxed = memory_order::relaxed;
constexpr memory_order memory_order_consume = memory_order::consume;
constexpr memory_order memory_order_acquire = memory_order::acquire;
constexpr memory_order memory_order_release = memory_order::release;
constexpr memory_order memory_order_acq_rel = memory_order::acq_rel;
constexpr memory_order memory_order_seq_cst = memory_order::seq_cst;
}  // namespace std

using std::memory_order;
using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_consume;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;
}  // namespace cuda

namespace plinth_host {
// The order of a load that belongs to an operation of order `order`.
constexpr int load_order(int order) {
  return order == __ATOMIC_RELEASE ? __ATOMIC_RELAXED : order == __ATOMIC_ACQ_REL ? __ATOMIC_ACQUIRE : order;
}

// The operations of an atomic value. `Self` has a member address().
template <typename Self, typename T>
struct AtomicOperations {
  static_assert(std::is_trivially_copyable<T>::value, "the value of an atomic is trivially copyable");
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16,
                "the value of an atomic has 1, 2, 4, 8 or 16 bytes");

  typedef T value_type;
  typedef ::cuda::memory_order memory_order;
  static constexpr bool is_always_lock_free = true;
  static constexpr bool is_number = std::is_arithmetic<T>::value && !std::is_same<T, bool>::value;
  static constexpr bool is_integer = std::is_integral<T>::value && !std::is_same<T, bool>::value;

  bool is_lock_free() const noexcept { return true; }

  void store(T value, memory_order order = memory_order::seq_cst) const noexcept {
    if constexpr (sizeof(T) == 16) {
      update<__ATOMIC_SEQ_CST>([&](const T &) { return value; });
    } else {
      __atomic_store_n(words(), to_word(value), int(order));
    }
  }
  T load(memory_order order = memory_order::seq_cst) const noexcept {
    poll();
    return from_word<T>(load_word(words(), int(order)));
  }
  T exchange(T value, memory_order order = memory_order::seq_cst) const noexcept {
    if constexpr (sizeof(T) == 16) {
      return update<__ATOMIC_SEQ_CST>([&](const T &) { return value; });
    } else {
      const Word after = to_word(value), before = __atomic_exchange_n(words(), after, int(order));
      if (before == after) yield();
      return from_word<T>(before);
    }
  }
  bool compare_exchange_strong(T &expected, T desired, memory_order success, memory_order failure) const noexcept {
    Word found = to_word(expected);
    if (compare_exchange_word(words(), found, to_word(desired), int(success), int(failure))) return true;
    expected = from_word<T>(found);
    yield();
    return false;
  }
  bool compare_exchange_strong(T &expected, T desired, memory_order order = memory_order::seq_cst) const noexcept {
    return compare_exchange_strong(expected, desired, order, memory_order(load_order(int(order))));
  }
  bool compare_exchange_weak(T &expected, T desired, memory_order success, memory_order failure) const noexcept {
    return compare_exchange_strong(expected, desired, success, failure);
  }
  bool compare_exchange_weak(T &expected, T desired, memory_order order = memory_order::seq_cst) const noexcept {
    return compare_exchange_strong(expected, desired, order);
  }

  void wait(T old, memory_order order = memory_order::seq_cst) const noexcept {
    while (to_word(from_word<T>(load_word(words(), int(order)))) == to_word(old)) yield();
  }
  // Nobody sleeps in wait().
  void notify_one() const noexcept {}
  void notify_all() const noexcept {}

  // A pointer is moved by elements.
  template <typename U = T>
  T fetch_add(std::conditional_t<std::is_pointer<U>::value, ptrdiff_t, U> value,
              memory_order order = memory_order::seq_cst) const noexcept {
    static_assert(is_number || std::is_pointer<T>::value, "numbers and pointers are added to");
    if constexpr (is_integer) {
      const T before = __atomic_fetch_add(address(), value, int(order));
      if (value == 0) yield();
      return before;
    } else {
      return update<__ATOMIC_SEQ_CST>([=](T before) { return before + value; });
    }
  }
  template <typename U = T>
  T fetch_sub(std::conditional_t<std::is_pointer<U>::value, ptrdiff_t, U> value,
              memory_order order = memory_order::seq_cst) const noexcept {
    static_assert(is_number || std::is_pointer<T>::value, "numbers and pointers are subtracted from");
    if constexpr (is_integer) {
      const T before = __atomic_fetch_sub(address(), value, int(order));
      if (value == 0) yield();
      return before;
    } else {
      return update<__ATOMIC_SEQ_CST>([=](T before) { return before - value; });
    }
  }
#define PLINTH_FETCH(name, condition, expression)                                                  \
  T name(T value, memory_order = memory_order::seq_cst) const noexcept {                           \
    static_assert(condition, "the type of the atomic does not have this operation");               \
    return update<__ATOMIC_SEQ_CST>([=](T before) { return static_cast<T>(expression); });         \
  }
  PLINTH_FETCH(fetch_and, is_integer, before & value)
  PLINTH_FETCH(fetch_or, is_integer, before | value)
  PLINTH_FETCH(fetch_xor, is_integer, before ^ value)
  PLINTH_FETCH(fetch_min, is_number, value < before ? value : before)
  PLINTH_FETCH(fetch_max, is_number, before < value ? value : before)
#undef PLINTH_FETCH

  operator T() const noexcept { return load(); }
  T operator++(int) const noexcept { return fetch_add(1); }
  T operator--(int) const noexcept { return fetch_sub(1); }
  T operator++() const noexcept { return static_cast<T>(fetch_add(1) + 1); }
  T operator--() const noexcept { return static_cast<T>(fetch_sub(1) - 1); }
  template <typename U = T>
  T operator+=(std::conditional_t<std::is_pointer<U>::value, ptrdiff_t, U> value) const noexcept {
    return static_cast<T>(fetch_add(value) + value);
  }
  template <typename U = T>
  T operator-=(std::conditional_t<std::is_pointer<U>::value, ptrdiff_t, U> value) const noexcept {
    return static_cast<T>(fetch_sub(value) - value);
  }
  T operator&=(T value) const noexcept { return static_cast<T>(fetch_and(value) & value); }
  T operator|=(T value) const noexcept { return static_cast<T>(fetch_or(value) | value); }
  T operator^=(T value) const noexcept { return static_cast<T>(fetch_xor(value) ^ value); }

 private:
  typedef typename AtomicWord<sizeof(T)>::type __attribute__((may_alias)) Word;
  T *address() const { return static_cast<const Self *>(this)->plinth_address(); }
  Word *words() const { return reinterpret_cast<Word *>(address()); }
  template <int order, typename Update> T update(Update change) const {
    return atomic_update<order>(address(), change);
  }
};
}  // namespace plinth_host

namespace cuda {
template <typename T, thread_scope Scope = thread_scope_system>
struct atomic : plinth_host::AtomicOperations<atomic<T, Scope>, T> {
  typedef plinth_host::AtomicOperations<atomic<T, Scope>, T> operations;

  atomic() noexcept = default;
  constexpr atomic(T value) noexcept : value_(value) {}
  atomic(const atomic &) = delete;
  atomic &operator=(const atomic &) = delete;
  atomic &operator=(const atomic &) volatile = delete;
  T operator=(T value) noexcept {
    operations::store(value);
    return value;
  }

 private:
  friend operations;
  T *plinth_address() const { return const_cast<T *>(&value_); }
  alignas(sizeof(T)) T value_;
};

template <typename T, thread_scope Scope = thread_scope_system>
struct atomic_ref : plinth_host::AtomicOperations<atomic_ref<T, Scope>, T> {
  typedef plinth_host::AtomicOperations<atomic_ref<T, Scope>, T> operations;
  static constexpr size_t required_alignment = sizeof(T);

  explicit atomic_ref(T &value) noexcept : address_(&value) {}
  atomic_ref(const atomic_ref &) noexcept = default;
  atomic_ref &operator=(const atomic_ref &) = delete;
  T operator=(T value) const noexcept {
    operations::store(value);
    return value;
  }

 private:
  friend operations;
  T *plinth_address() const { return address_; }
  T *address_;
};

// A flag that is set or not.
template <thread_scope Scope>
struct scoped_atomic_flag {
  scoped_atomic_flag() noexcept = default;
  constexpr scoped_atomic_flag(bool set) noexcept : flag_(set) {}
  scoped_atomic_flag(const scoped_atomic_flag &) = delete;
  scoped_atomic_flag &operator=(const scoped_atomic_flag &) = delete;

  bool test(memory_order order = memory_order_seq_cst) const noexcept { return flag_.load(order); }
  bool test_and_set(memory_order order = memory_order_seq_cst) noexcept { return flag_.exchange(true, order); }
  void clear(memory_order order = memory_order_seq_cst) noexcept { flag_.store(false, order); }
  void wait(bool old, memory_order order = memory_order_seq_cst) const noexcept { flag_.wait(old, order); }
  void notify_one() noexcept {}
  void notify_all() noexcept {}

 private:
  atomic<bool, Scope> flag_ = {false};
};
typedef scoped_atomic_flag<thread_scope_system> atomic_flag;

static inline void atomic_thread_fence(memory_order order, thread_scope = thread_scope_system) noexcept {
  __atomic_thread_fence(int(order));
  plinth_host::poll();
}
static inline void atomic_signal_fence(memory_order order) noexcept { __atomic_signal_fence(int(order)); }

namespace std {
template <typename T> using atomic = ::cuda::atomic<T, thread_scope_system>;
template <typename T> using atomic_ref = ::cuda::atomic_ref<T, thread_scope_system>;
using ::cuda::atomic_flag;
using ::cuda::atomic_signal_fence;
static inline void atomic_thread_fence(memory_order order) noexcept { ::cuda::atomic_thread_fence(order); }

#define PLINTH_ATOMIC_NAMES(name, suffix)                                                          \
  typedef atomic<name> atomic_##suffix;
PLINTH_ATOMIC_NAMES(bool, bool)
PLINTH_ATOMIC_NAMES(char, char)
PLINTH_ATOMIC_NAMES(signed char, schar)
PLINTH_ATOMIC_NAMES(unsigned char, uchar)
PLINTH_ATOMIC_NAMES(short, short)
PLINTH_ATOMIC_NAMES(unsigned short, ushort)
PLINTH_ATOMIC_NAMES(int, int)
PLINTH_ATOMIC_NAMES(unsigned, uint)
PLINTH_ATOMIC_NAMES(long, long)
PLINTH_ATOMIC_NAMES(unsigned long, ulong)
PLINTH_ATOMIC_NAMES(long long, llong)
PLINTH_ATOMIC_NAMES(unsigned long long, ullong)
PLINTH_ATOMIC_NAMES(size_t, size_t)
PLINTH_ATOMIC_NAMES(ptrdiff_t, ptrdiff_t)
#undef PLINTH_ATOMIC_NAMES
}  // namespace std
}  // namespace cuda
