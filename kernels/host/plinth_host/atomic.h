// Atomic functions, fences, loads and stores with cache hints, and clocks. Blocks run in several threads of the
// machine, so atomics are the machine's. Their order is relaxed, as on a GPU. The _block and _system forms do the
// same.
//
// A program may wait in a loop for a value that another thread of its block will store. Threads of a block run one at a
// time, so such a loop has to let others run: an atomic that leaves the value as it is calls yield(), and so does every
// 16th load past the cache, fence or reading of a clock.
#pragma once
#include <plinth_host/execution.h>
#include <plinth_host/vector_types.h>

struct __half;
struct __half2;
struct __nv_bfloat16;
struct __nv_bfloat162;

namespace plinth_host {
static thread_local unsigned polls = 0;

// Lets other threads run at every 16th call, so that loops get there, and calls outside of loops cost little.
static inline void poll() {
  if ((++polls & 15u) == 0) yield();
}

template <typename T> struct AtomicValue { typedef T type; };

template <unsigned long size> struct AtomicWord;
template <> struct AtomicWord<1> { typedef unsigned char type; };
template <> struct AtomicWord<2> { typedef unsigned short type; };
template <> struct AtomicWord<4> { typedef unsigned type; };
template <> struct AtomicWord<8> { typedef unsigned long long type; };

__extension__ typedef unsigned __int128 Word16;
template <> struct AtomicWord<16> { typedef Word16 type; };

// Compares and exchanges 16 bytes, and returns what was there. The compilers' own functions for this need a library on
// some machines, and a flag on others. `address` is a multiple of 16.
#if defined(__x86_64__)
static inline Word16 exchange_16_bytes(Word16 *address, Word16 expected, Word16 desired) {
  unsigned long low = static_cast<unsigned long>(expected), high = static_cast<unsigned long>(expected >> 64);
  __asm__ __volatile__("lock cmpxchg16b %2"
                       : "+a"(low), "+d"(high), "+m"(*address)
                       : "b"(static_cast<unsigned long>(desired)), "c"(static_cast<unsigned long>(desired >> 64))
                       : "cc", "memory");
  return Word16(high) << 64 | low;
}
#elif defined(__aarch64__)
// What was read is the value of one moment only if a store to the same place succeeds, so what was found is stored
// again.
static inline Word16 exchange_16_bytes(Word16 *address, Word16 expected, Word16 desired) {
  unsigned long low, high, new_low, new_high;
  unsigned failed;
  __asm__ __volatile__(
      "1: ldaxp %0, %1, %5\n"
      "cmp %0, %6\n"
      "ccmp %1, %7, #0, eq\n"
      "csel %2, %8, %0, eq\n"
      "csel %3, %9, %1, eq\n"
      "stlxp %w4, %2, %3, %5\n"
      "cbnz %w4, 1b"
      : "=&r"(low), "=&r"(high), "=&r"(new_low), "=&r"(new_high), "=&r"(failed), "+Q"(*address)
      : "r"(static_cast<unsigned long>(expected)), "r"(static_cast<unsigned long>(expected >> 64)),
        "r"(static_cast<unsigned long>(desired)), "r"(static_cast<unsigned long>(desired >> 64))
      : "cc", "memory");
  return Word16(high) << 64 | low;
}
#endif

template <typename Word>
inline Word load_word(const Word *address, int order) {
  if constexpr (sizeof(Word) == 16) {
    return exchange_16_bytes(const_cast<Word *>(address), 0, 0);
  } else {
    return __atomic_load_n(address, order);
  }
}

// Compares and exchanges. Sets `expected` to what was there if it differs.
template <typename Word>
inline bool compare_exchange_word(Word *address, Word &expected, Word desired, int success, int failure) {
  if constexpr (sizeof(Word) == 16) {
    const Word found = exchange_16_bytes(address, expected, desired);
    const bool same = found == expected;
    expected = found;
    return same;
  } else {
    return __atomic_compare_exchange_n(address, &expected, desired, false, success, failure);
  }
}

template <typename T>
inline typename AtomicWord<sizeof(T)>::type to_word(const T &value) {
  typename AtomicWord<sizeof(T)>::type word;
  __builtin_memcpy(&word, &value, sizeof word);
  return word;
}

template <typename T, typename Word>
inline T from_word(Word word) {
  // A union, because a type may have no constructor without arguments that does nothing.
  union Storage {
    char bytes[sizeof(T)];
    T value;
    Storage() {}
  } storage;
  __builtin_memcpy(storage.bytes, &word, sizeof word);
  return storage.value;
}

// Replaces a value by `update` of it and returns the value that was there. Bits are compared: a NaN equals itself.
template <int order = __ATOMIC_RELAXED, typename T, typename Update>
inline T atomic_update(T *address, Update update) {
  typedef typename AtomicWord<sizeof(T)>::type __attribute__((may_alias)) Word;
  Word *words = reinterpret_cast<Word *>(address);
  Word before = load_word(words, __ATOMIC_RELAXED), after;
  do {
    after = to_word<T>(update(from_word<T>(before)));
  } while (!compare_exchange_word(words, before, after, order, __ATOMIC_RELAXED));
  if (before == after) yield();
  return from_word<T>(before);
}

template <typename T>
inline T atomic_exchange(T *address, T value) {
  typedef typename AtomicWord<sizeof(T)>::type __attribute__((may_alias)) Word;
  if constexpr (sizeof(T) == 16) {
    return atomic_update(address, [&](const T &) { return value; });
  } else {
    const Word after = to_word(value);
    const Word before = __atomic_exchange_n(reinterpret_cast<Word *>(address), after, __ATOMIC_RELAXED);
    if (before == after) yield();
    return from_word<T>(before);
  }
}

template <typename T>
inline T atomic_compare_exchange(T *address, T expected, T value) {
  typedef typename AtomicWord<sizeof(T)>::type __attribute__((may_alias)) Word;
  Word found = to_word(expected);
  const Word compared = found, desired = to_word(value);
  compare_exchange_word(reinterpret_cast<Word *>(address), found, desired, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  if (found != compared || found == desired) yield();
  return from_word<T>(found);
}

template <typename T>
struct IsAtomic16 {
  static constexpr bool value = sizeof(T) == 16 && __is_trivially_copyable(T);
};
template <typename T, typename Half> struct IsAtomicHalf { static constexpr bool value = false; };
template <typename T> struct IsAtomicHalf<T, T> { static constexpr bool value = true; };
template <bool condition, typename T> struct AtomicIf {};
template <typename T> struct AtomicIf<true, T> { typedef T type; };
}  // namespace plinth_host

#define PLINTH_ATOMIC_FORMS(define, name, ...)                                                                 \
  define(name, __VA_ARGS__) define(name##_block, __VA_ARGS__) define(name##_system, __VA_ARGS__)

// A function whose operation the machine has.
#define PLINTH_ATOMIC_FETCH(name, type, fetch, neutral)                                                        \
  static inline type name(type *address, type value) {                                                         \
    const type before = fetch(address, value, __ATOMIC_RELAXED);                                               \
    if (neutral) plinth_host::yield();                                                                         \
    return before;                                                                                             \
  }
#define PLINTH_ATOMIC_INTEGERS(name, fetch, neutral)                                                           \
  PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_FETCH, name, int, fetch, neutral)                                          \
  PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_FETCH, name, unsigned, fetch, neutral)
#define PLINTH_ATOMIC_BITS(name, fetch, neutral)                                                               \
  PLINTH_ATOMIC_INTEGERS(name, fetch, neutral)                                                                 \
  PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_FETCH, name, long long, fetch, neutral)                                    \
  PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_FETCH, name, unsigned long long, fetch, neutral)
PLINTH_ATOMIC_INTEGERS(atomicAdd, __atomic_fetch_add, value == 0)
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_FETCH, atomicAdd, unsigned long long, __atomic_fetch_add, value == 0)
PLINTH_ATOMIC_INTEGERS(atomicSub, __atomic_fetch_sub, value == 0)
PLINTH_ATOMIC_BITS(atomicAnd, __atomic_fetch_and, (before & value) == before)
PLINTH_ATOMIC_BITS(atomicOr, __atomic_fetch_or, (before | value) == before)
PLINTH_ATOMIC_BITS(atomicXor, __atomic_fetch_xor, value == 0)
#undef PLINTH_ATOMIC_BITS
#undef PLINTH_ATOMIC_INTEGERS
#undef PLINTH_ATOMIC_FETCH

// A function whose operation is the expression, of `before` and `value`.
#define PLINTH_ATOMIC_UPDATE(name, type, expression)                                                           \
  static inline type name(type *address, type value) {                                                         \
    return plinth_host::atomic_update(address, [=](type before) -> type { return expression; });               \
  }
#define PLINTH_ATOMIC_ORDERED(name, expression)                                                                \
  PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_UPDATE, name, int, expression)                                             \
  PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_UPDATE, name, unsigned, expression)                                        \
  PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_UPDATE, name, long long, expression)                                       \
  PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_UPDATE, name, unsigned long long, expression)
PLINTH_ATOMIC_ORDERED(atomicMin, value < before ? value : before)
PLINTH_ATOMIC_ORDERED(atomicMax, before < value ? value : before)
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_UPDATE, atomicInc, unsigned, before >= value ? 0u : before + 1u)
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_UPDATE, atomicDec, unsigned, before == 0u || before > value ? value : before - 1u)
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_UPDATE, atomicAdd, float, before + value)
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_UPDATE, atomicAdd, double, before + value)
#undef PLINTH_ATOMIC_ORDERED
// Names of dependent functions are looked up where a kernel uses them, when the header of the type was included.
#define PLINTH_ATOMIC_HALF(name, half, add)                                                                    \
  template <typename T>                                                                                        \
  inline typename plinth_host::AtomicIf<plinth_host::IsAtomicHalf<T, half>::value, T>::type name(              \
      T *address, const typename plinth_host::AtomicValue<T>::type value) {                                    \
    return plinth_host::atomic_update(address, [&](const T &before) -> T { return add(before, value); });      \
  }
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_HALF, atomicAdd, __half, __hadd)
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_HALF, atomicAdd, __half2, __hadd2)
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_HALF, atomicAdd, __nv_bfloat16, __hadd)
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_HALF, atomicAdd, __nv_bfloat162, __hadd2)
#undef PLINTH_ATOMIC_HALF
#undef PLINTH_ATOMIC_UPDATE

// Each component is an atomic of its own, as on a GPU.
#define PLINTH_ATOMIC_VECTORS(name, ...)                                                                       \
  static inline float2 name(float2 *address, float2 value) {                                                   \
    float2 before;                                                                                             \
    before.x = atomicAdd(&address->x, value.x);                                                                \
    before.y = atomicAdd(&address->y, value.y);                                                                \
    return before;                                                                                             \
  }                                                                                                            \
  static inline float4 name(float4 *address, float4 value) {                                                   \
    float4 before;                                                                                             \
    before.x = atomicAdd(&address->x, value.x);                                                                \
    before.y = atomicAdd(&address->y, value.y);                                                                \
    before.z = atomicAdd(&address->z, value.z);                                                                \
    before.w = atomicAdd(&address->w, value.w);                                                                \
    return before;                                                                                             \
  }
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_VECTORS, atomicAdd, )
#undef PLINTH_ATOMIC_VECTORS

#define PLINTH_ATOMIC_EXCHANGE(name, type)                                                                     \
  static inline type name(type *address, type value) { return plinth_host::atomic_exchange(address, value); }
#define PLINTH_ATOMIC_COMPARE(name, type)                                                                      \
  static inline type name(type *address, type compare, type value) {                                           \
    return plinth_host::atomic_compare_exchange(address, compare, value);                                      \
  }
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_EXCHANGE, atomicExch, int)
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_EXCHANGE, atomicExch, unsigned)
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_EXCHANGE, atomicExch, unsigned long long)
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_EXCHANGE, atomicExch, float)
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_COMPARE, atomicCAS, unsigned short)
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_COMPARE, atomicCAS, int)
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_COMPARE, atomicCAS, unsigned)
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_COMPARE, atomicCAS, unsigned long long)
#undef PLINTH_ATOMIC_COMPARE
#undef PLINTH_ATOMIC_EXCHANGE

#define PLINTH_ATOMIC_16(name, parameters, call)                                                               \
  template <typename T>                                                                                        \
  inline typename plinth_host::AtomicIf<plinth_host::IsAtomic16<T>::value, T>::type name parameters {          \
    static_assert(alignof(T) >= 16, "an atomic of 16 bytes needs a type that is aligned to 16 bytes");         \
    return plinth_host::call;                                                                                  \
  }
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_16, atomicExch, (T *address, T value), atomic_exchange(address, value))
PLINTH_ATOMIC_FORMS(PLINTH_ATOMIC_16, atomicCAS, (T *address, T compare, T value),
                    atomic_compare_exchange(address, compare, value))
#undef PLINTH_ATOMIC_16
#undef PLINTH_ATOMIC_FORMS

static inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  plinth_host::poll();
}
static inline void __threadfence_block() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  plinth_host::poll();
}
static inline void __threadfence_system() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  plinth_host::poll();
}

// The cache is the machine's. A loop may wait with a load that bypasses a GPU's first cache; the compiler must not
// move it out of the loop.
#define PLINTH_LOAD(name, prepare)                                                                             \
  template <typename T>                                                                                        \
  inline T name(const T *address) {                                                                            \
    prepare;                                                                                                   \
    return *address;                                                                                           \
  }
#define PLINTH_STORE(name)                                                                                     \
  template <typename T>                                                                                        \
  inline void name(T *address, typename plinth_host::AtomicValue<T>::type value) {                             \
    *address = value;                                                                                          \
    __atomic_signal_fence(__ATOMIC_SEQ_CST);                                                                   \
  }
PLINTH_LOAD(__ldg, )
PLINTH_LOAD(__ldca, )
PLINTH_LOAD(__ldcs, )
PLINTH_LOAD(__ldlu, )
PLINTH_LOAD(__ldcg, (plinth_host::poll(), __atomic_signal_fence(__ATOMIC_SEQ_CST)))
PLINTH_LOAD(__ldcv, (plinth_host::poll(), __atomic_signal_fence(__ATOMIC_SEQ_CST)))
PLINTH_STORE(__stwb)
PLINTH_STORE(__stcg)
PLINTH_STORE(__stcs)
PLINTH_STORE(__stwt)
#undef PLINTH_STORE
#undef PLINTH_LOAD

// The clock counts nanoseconds, as that of a GPU with 1 GHz would. It never runs backward and is the same for all
// blocks.
namespace plinth_host {
struct Time {
  long seconds, nanoseconds;
};
extern "C" int read_clock(int number, Time *time) noexcept __asm__("clock_gettime");
}  // namespace plinth_host

static inline long long clock64() {
  constexpr int kMonotonic = 1;
  plinth_host::Time now;
  plinth_host::read_clock(kMonotonic, &now);
  plinth_host::poll();
  return now.seconds * 1000000000LL + now.nanoseconds;
}

// The C library has a function with the same name and type, which counts the time of the process. Kernels get another.
extern "C" clock_t clock() noexcept __asm__("plinth_host_clock");
extern "C" inline __attribute__((used)) clock_t clock() noexcept { return clock64(); }

static inline void __trap(plinth_host::Site site = plinth_host::Site::here()) {
  plinth_host::trap("__trap() was called", site);
}
static inline void __brkpt(plinth_host::Site site = plinth_host::Site::here()) {
  plinth_host::trap("__brkpt() was called", site);
}
static inline void __prof_trigger(int) {}

static inline void __assume(bool) {}
#if !defined(__clang__)
static inline void __builtin_assume(bool) {}
#endif
