// Arithmetic and conversions whose name has the rounding mode: __fadd_ru, __double2int_rd, __ll2float_rz.
#pragma once
#include <fenv.h>
#include <math.h>

#include "integer.h"

namespace plinth_host {
enum class Rounding { nearest, zero, up, down };

template <typename T> struct FloatBits { typedef int32_t type; };
template <> struct FloatBits<double> { typedef int64_t type; };

// The next number above, except for NaN and infinity.
template <typename T> inline T next_up(T x) {
  typedef typename FloatBits<T>::type Bits;
  if (x == 0) return bit_cast<T>(Bits{1});
  const Bits bits = bit_cast<Bits>(x);
  return bit_cast<T>(static_cast<Bits>(bits < 0 ? bits - 1 : bits + 1));
}
template <typename T> inline int sign_of(T x) { return (x > 0) - (x < 0); }

// Rounds an exact value, given the nearest number and the sign of the exact value minus that number.
template <Rounding mode, typename T> inline T step(T nearest, int error) {
  if (error > 0 && (mode == Rounding::up || (mode == Rounding::zero && nearest < 0))) return next_up(nearest);
  if (error < 0 && (mode == Rounding::down || (mode == Rounding::zero && nearest > 0))) return -next_up(-nearest);
  return nearest;
}
// Rounds value + error, of which `value` is the nearest double. If `value` is not a float, the exact value lies between
// the same two floats as `value` does; so the error matters only if it is one.
template <Rounding mode> inline float narrow(double value, double error = 0) {
  const float nearest = static_cast<float>(value);
  const int difference = sign_of(value - static_cast<double>(nearest));
  // An overflow to infinity leaves the difference -infinity, and NaN leaves no sign.
  return step<mode>(nearest, difference != 0 ? difference : sign_of(error));
}
// A sum that is exactly zero is negative when rounding down, unless both terms are positive zeros.
template <Rounding mode> inline float narrow_sum(double x, double y) {
  const double sum = x + y, y_part = sum - x, error = (x - (sum - y_part)) + (y - y_part);
  if (mode == Rounding::down && sum == 0) return signbit(x) || signbit(y) ? -0.0f : 0.0f;
  return narrow<mode>(sum, error);
}

// No operation on floats overflows or underflows in double, so the error of the result in double is exact.
template <Rounding mode> inline float add(float x, float y) {
  if constexpr (mode == Rounding::nearest) return x + y;
  return narrow_sum<mode>(x, y);
}
template <Rounding mode> inline float multiply(float x, float y) {
  if constexpr (mode == Rounding::nearest) return x * y;
  return narrow<mode>(static_cast<double>(x) * y);
}
template <Rounding mode> inline float multiply_add(float x, float y, float z) {
  if constexpr (mode == Rounding::nearest) return __builtin_fmaf(x, y, z);
  return narrow_sum<mode>(static_cast<double>(x) * y, z);
}
template <Rounding mode> inline float divide(float x, float y) {
  if constexpr (mode == Rounding::nearest) return x / y;
  const double quotient = static_cast<double>(x) / y, rest = __builtin_fma(-quotient, y, x);
  return narrow<mode>(quotient, y < 0 ? -rest : rest);
}
template <Rounding mode> inline float square_root(float x) {
  if constexpr (mode == Rounding::nearest) return __builtin_sqrtf(x);
  const double root = __builtin_sqrt(x);
  return narrow<mode>(root, __builtin_fma(-root, root, x));
}

// In double the error may underflow, so the processor's rounding mode is set. Volatile objects keep the compiler from
// moving the operation out of the scope.
struct RoundingScope {
  int previous = fegetround();
  explicit RoundingScope(Rounding mode) {
    fesetround(mode == Rounding::up ? FE_UPWARD : mode == Rounding::down ? FE_DOWNWARD : FE_TOWARDZERO);
  }
  ~RoundingScope() { fesetround(previous); }
};
#define PLINTH_ROUNDED(expression)           \
  if constexpr (mode == Rounding::nearest) { \
    return expression;                       \
  } else {                                   \
    const RoundingScope scope(mode);         \
    volatile double rx = x, ry = y, rz = z;  \
    x = rx, y = ry, z = rz;                  \
    volatile double result = expression;     \
    return result;                           \
  }
template <Rounding mode> inline double add(double x, double y, double z = 0) { PLINTH_ROUNDED(x + y) }
template <Rounding mode> inline double multiply(double x, double y, double z = 0) { PLINTH_ROUNDED(x * y) }
template <Rounding mode> inline double divide(double x, double y, double z = 0) { PLINTH_ROUNDED(x / y) }
template <Rounding mode> inline double square_root(double x, double y = 0, double z = 0) {
  PLINTH_ROUNDED(__builtin_sqrt(x))
}
template <Rounding mode> inline double multiply_add(double x, double y, double z) {
  PLINTH_ROUNDED(__builtin_fma(x, y, z))
}
#undef PLINTH_ROUNDED

template <Rounding mode, typename To, typename From> inline To from_integer(From x) {
  const To nearest = static_cast<To>(x);
  const __int128 difference = static_cast<__int128>(x) - static_cast<__int128>(nearest);
  return step<mode>(nearest, (difference > 0) - (difference < 0));
}
template <Rounding mode, typename T> inline T round_to_integral(T x) {
  // Each of them is exact in double, also for a float.
  const double value = x;
  return static_cast<T>(mode == Rounding::nearest ? __builtin_rint(value)
                        : mode == Rounding::zero  ? __builtin_trunc(value)
                        : mode == Rounding::up    ? __builtin_ceil(value)
                                                  : __builtin_floor(value));
}
// Converts as the GPU's instructions do: out of range saturates. NaN is 0 if both types have 32 bits or less, otherwise
// the highest bit of the result alone is set.
template <Rounding mode, typename To, typename From> inline To to_integer(From x) {
  constexpr int bits = 8 * sizeof(To);
  constexpr bool is_signed = static_cast<To>(-1) < To{};
  constexpr To least = is_signed ? static_cast<To>(1ull << (bits - 1)) : To{};
  constexpr To greatest = static_cast<To>(~least);
  if (x != x) return sizeof(From) <= 4 && sizeof(To) <= 4 ? To{} : static_cast<To>(1ull << (bits - 1));
  const From whole = round_to_integral<mode>(x);
  // A power of two, which is exact in From where `greatest` may not be.
  const From limit = static_cast<From>(1ull << (bits - 2)) * (is_signed ? 2 : 4);
  if (whole >= limit) return greatest;
  if (whole <= static_cast<From>(least)) return least;
  return static_cast<To>(whole);
}

// 1/sqrt(x) rounded to nearest. The candidate is off by one at most; the exact value lies above the midpoint m of two
// floats if m*m*x < 1, where m*m has 50 bits and the fused operation keeps the sign.
inline float reciprocal_square_root(float x) {
  const double root = 1.0 / __builtin_sqrt(x);
  const float nearest = static_cast<float>(root);
  if (!(x > 0) || isinf(x)) return nearest;
  const double above = 0.5 * (static_cast<double>(nearest) + next_up(nearest));
  const double below = 0.5 * (static_cast<double>(nearest) - next_up(-nearest));
  if (__builtin_fma(above * above, x, -1.0) < 0) return next_up(nearest);
  if (__builtin_fma(below * below, x, -1.0) > 0) return -next_up(-nearest);
  return nearest;
}
}  // namespace plinth_host

#define PLINTH_TO_INTEGERS(from, type, suffix, mode)                                                         \
  static inline int from##2int_##suffix(type x) { return plinth_host::to_integer<mode, int>(x); }            \
  static inline unsigned from##2uint_##suffix(type x) { return plinth_host::to_integer<mode, unsigned>(x); } \
  static inline long long from##2ll_##suffix(type x) { return plinth_host::to_integer<mode, long long>(x); } \
  static inline unsigned long long from##2ull_##suffix(type x) {                                             \
    return plinth_host::to_integer<mode, unsigned long long>(x);                                             \
  }
#define PLINTH_PAIRWISE(name, scalar) \
  static inline float2 name(float2 x, float2 y) { return {scalar(x.x, y.x), scalar(x.y, y.y)}; }
#define PLINTH_MODE(suffix, mode)                                                                                      \
  static inline float __fadd_##suffix(float x, float y) { return plinth_host::add<mode>(x, y); }                       \
  static inline float __fsub_##suffix(float x, float y) { return plinth_host::add<mode>(x, -y); }                      \
  static inline float __fmul_##suffix(float x, float y) { return plinth_host::multiply<mode>(x, y); }                  \
  static inline float __fdiv_##suffix(float x, float y) { return plinth_host::divide<mode>(x, y); }                    \
  static inline float __frcp_##suffix(float x) { return plinth_host::divide<mode>(1.0f, x); }                          \
  static inline float __fsqrt_##suffix(float x) { return plinth_host::square_root<mode>(x); }                          \
  static inline float __fmaf_##suffix(float x, float y, float z) { return plinth_host::multiply_add<mode>(x, y, z); }  \
  static inline float __fmaf_ieee_##suffix(float x, float y, float z) { return __fmaf_##suffix(x, y, z); }             \
  PLINTH_PAIRWISE(__fadd2_##suffix, __fadd_##suffix)                                                                   \
  PLINTH_PAIRWISE(__fmul2_##suffix, __fmul_##suffix)                                                                   \
  static inline float2 __ffma2_##suffix(float2 x, float2 y, float2 z) {                                                \
    return {__fmaf_##suffix(x.x, y.x, z.x), __fmaf_##suffix(x.y, y.y, z.y)};                                           \
  }                                                                                                                    \
  static inline double __dadd_##suffix(double x, double y) { return plinth_host::add<mode>(x, y); }                    \
  static inline double __dsub_##suffix(double x, double y) { return plinth_host::add<mode>(x, -y); }                   \
  static inline double __dmul_##suffix(double x, double y) { return plinth_host::multiply<mode>(x, y); }               \
  static inline double __ddiv_##suffix(double x, double y) { return plinth_host::divide<mode>(x, y); }                 \
  static inline double __drcp_##suffix(double x) { return plinth_host::divide<mode>(1.0, x); }                         \
  static inline double __dsqrt_##suffix(double x) { return plinth_host::square_root<mode>(x); }                        \
  static inline double __fma_##suffix(double x, double y, double z) {                                                  \
    return plinth_host::multiply_add<mode>(x, y, z);                                                                   \
  }                                                                                                                    \
  PLINTH_TO_INTEGERS(__float, float, suffix, mode)                                                                     \
  PLINTH_TO_INTEGERS(__double, double, suffix, mode)                                                                   \
  static inline float __int2float_##suffix(int x) { return plinth_host::from_integer<mode, float>(x); }                \
  static inline float __uint2float_##suffix(unsigned x) { return plinth_host::from_integer<mode, float>(x); }          \
  static inline float __ll2float_##suffix(long long x) { return plinth_host::from_integer<mode, float>(x); }           \
  static inline float __ull2float_##suffix(unsigned long long x) { return plinth_host::from_integer<mode, float>(x); } \
  static inline double __ll2double_##suffix(long long x) { return plinth_host::from_integer<mode, double>(x); }        \
  static inline double __ull2double_##suffix(unsigned long long x) {                                                   \
    return plinth_host::from_integer<mode, double>(x);                                                                 \
  }                                                                                                                    \
  static inline float __double2float_##suffix(double x) { return plinth_host::narrow<mode>(x); }
PLINTH_MODE(rn, plinth_host::Rounding::nearest)
PLINTH_MODE(rz, plinth_host::Rounding::zero)
PLINTH_MODE(ru, plinth_host::Rounding::up)
PLINTH_MODE(rd, plinth_host::Rounding::down)
#undef PLINTH_MODE
#undef PLINTH_PAIRWISE
#undef PLINTH_TO_INTEGERS
static inline double __int2double_rn(int x) { return x; }
static inline double __uint2double_rn(unsigned x) { return x; }
static inline float __frsqrt_rn(float x) { return plinth_host::reciprocal_square_root(x); }
