// CUDA's integer intrinsics, casts of bits, and min and max of integers.
#pragma once
// The special functions of C++17 take most of the time that libstdc++'s <math.h> takes to compile. A GPU has none of them.
#include <cstddef>
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#include <math.h>

#include "integer_types.h"
#include "vector_types.h"

namespace plinth_host {
template <typename To, typename From> inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast needs types of one size");
  To to;
  __builtin_memcpy(static_cast<void *>(&to), &from, sizeof to);
  return to;
}
}  // namespace plinth_host

// Exactly CUDA's overloads: a call that is ambiguous there is ambiguous here.
#define PLINTH_MIN_MAX(result, first, second)                                                                 \
  static inline constexpr result min(first a, second b) {                                                     \
    return static_cast<result>(b) < static_cast<result>(a) ? static_cast<result>(b) : static_cast<result>(a); \
  }                                                                                                           \
  static inline constexpr result max(first a, second b) {                                                     \
    return static_cast<result>(a) < static_cast<result>(b) ? static_cast<result>(b) : static_cast<result>(a); \
  }
#define PLINTH_MIN_MAX_PAIR(type)                             \
  PLINTH_MIN_MAX(type, type, type)                            \
  PLINTH_MIN_MAX(unsigned type, unsigned type, unsigned type) \
  PLINTH_MIN_MAX(unsigned type, type, unsigned type)          \
  PLINTH_MIN_MAX(unsigned type, unsigned type, type)
PLINTH_MIN_MAX_PAIR(int)
PLINTH_MIN_MAX_PAIR(long)
PLINTH_MIN_MAX_PAIR(long long)
#undef PLINTH_MIN_MAX_PAIR
#undef PLINTH_MIN_MAX
static inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
static inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
static inline long long llmin(long long a, long long b) { return min(a, b); }
static inline long long llmax(long long a, long long b) { return max(a, b); }
static inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
static inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }

static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
static inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
static inline unsigned long long __brevll(unsigned long long x) {
  const unsigned low = __brev(static_cast<unsigned>(x)), high = __brev(static_cast<unsigned>(x >> 32));
  return static_cast<unsigned long long>(low) << 32 | high;
}

// Each nibble of the selector picks one of the eight bytes y:x by its low three bits.
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned pick = selector >> (4 * i) & 7;
    result |= (static_cast<unsigned>(bytes >> (8 * pick)) & 0xff) << (8 * i);
  }
  return result;
}

static inline int __mulhi(int x, int y) { return static_cast<int>(static_cast<int64_t>(x) * y >> 32); }
static inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<uint64_t>(x) * y >> 32);
}
static inline long long __mul64hi(long long x, long long y) {
  return static_cast<long long>(static_cast<__int128>(x) * y >> 64);
}
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
static inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffffu) * (y & 0xffffffu); }
static inline int __mul24(int x, int y) {
  const auto low24 = [](int v) { return static_cast<unsigned>(static_cast<int>(static_cast<unsigned>(v) << 8) >> 8); };
  return static_cast<int>(low24(x) * low24(y));
}
static inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x < y ? y - x : x - y) + z; }
static inline unsigned __sad(int x, int y, unsigned z) {
  const unsigned a = static_cast<unsigned>(x), b = static_cast<unsigned>(y);
  return (x < y ? b - a : a - b) + z;
}
static inline int __hadd(int x, int y) { return static_cast<int>((static_cast<int64_t>(x) + y) >> 1); }
static inline int __rhadd(int x, int y) { return static_cast<int>((static_cast<int64_t>(x) + y + 1) >> 1); }
static inline unsigned __uhadd(unsigned x, unsigned y) {
  return static_cast<unsigned>((static_cast<uint64_t>(x) + y) >> 1);
}
static inline unsigned __urhadd(unsigned x, unsigned y) {
  return static_cast<unsigned>((static_cast<uint64_t>(x) + y + 1) >> 1);
}

// Shifts hi:lo and returns the upper (l) or lower (r) word. The c forms clamp the shift to 32, the others wrap it.
namespace plinth_host {
inline unsigned funnel_left(unsigned lo, unsigned hi, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(hi) << 32 | lo) << shift >> 32);
}
inline unsigned funnel_right(unsigned lo, unsigned hi, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(hi) << 32 | lo) >> shift);
}
}  // namespace plinth_host
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift) {
  return plinth_host::funnel_left(lo, hi, shift & 31);
}
static inline unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned shift) {
  return plinth_host::funnel_left(lo, hi, umin(shift, 32));
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift) {
  return plinth_host::funnel_right(lo, hi, shift & 31);
}
static inline unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned shift) {
  return plinth_host::funnel_right(lo, hi, umin(shift, 32));
}

static inline int __float_as_int(float x) { return plinth_host::bit_cast<int>(x); }
static inline unsigned __float_as_uint(float x) { return plinth_host::bit_cast<unsigned>(x); }
static inline float __int_as_float(int x) { return plinth_host::bit_cast<float>(x); }
static inline float __uint_as_float(unsigned x) { return plinth_host::bit_cast<float>(x); }
static inline long long __double_as_longlong(double x) { return plinth_host::bit_cast<long long>(x); }
static inline double __longlong_as_double(long long x) { return plinth_host::bit_cast<double>(x); }
static inline int __double2hiint(double x) { return static_cast<int>(plinth_host::bit_cast<int64_t>(x) >> 32); }
static inline int __double2loint(double x) { return static_cast<int>(plinth_host::bit_cast<int64_t>(x)); }
static inline double __hiloint2double(int hi, int lo) {
  const uint64_t upper = static_cast<unsigned>(hi);
  return plinth_host::bit_cast<double>(upper << 32 | static_cast<unsigned>(lo));
}

#include "integer_simd.h"
