// What every kernel of the jiterator begins with: types of elements, and what a user's function may use beside CUDA's own
// functions. It is compiled by NVRTC without any header, and for the host device by the machine's C++ compiler, with the
// standard's headers and those of kernels/host, which define __CUDACC_RTC__ and PLINTH_HOST.
#define PLINTH_INLINE __device__ __forceinline__
#ifdef __CUDACC_RTC__

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long uintptr_t;
typedef long intptr_t;

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef M_PI
#define M_PI 3.14159265358979323846
#endif

#define PLINTH_UNROLL _Pragma("unroll")
#define PLINTH_ONE_BY_ONE _Pragma("unroll 1")

namespace std {
typedef ::size_t size_t;
typedef decltype(nullptr) nullptr_t;

template <typename T, T V>
struct integral_constant {
  static constexpr T value = V;
  typedef T value_type;
};
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;

template <typename A, typename B> struct is_same : false_type {};
template <typename A> struct is_same<A, A> : true_type {};
template <bool C, typename T = void> struct enable_if {};
template <typename T> struct enable_if<true, T> { typedef T type; };
template <bool C, typename A, typename B> struct conditional { typedef A type; };
template <typename A, typename B> struct conditional<false, A, B> { typedef B type; };
template <typename T> struct remove_reference { typedef T type; };
template <typename T> struct remove_reference<T &> { typedef T type; };
template <typename T> struct remove_reference<T &&> { typedef T type; };
template <typename T> struct remove_cv { typedef T type; };
template <typename T> struct remove_cv<const T> { typedef T type; };
template <typename T> struct remove_cv<volatile T> { typedef T type; };
template <typename T> struct remove_cv<const volatile T> { typedef T type; };
template <typename T> struct is_floating_point : false_type {};
template <> struct is_floating_point<float> : true_type {};
template <> struct is_floating_point<double> : true_type {};
template <typename T> struct is_integral : false_type {};
#define PLINTH_INTEGER(type) template <> struct is_integral<type> : true_type {}
PLINTH_INTEGER(bool);
PLINTH_INTEGER(char);
PLINTH_INTEGER(signed char);
PLINTH_INTEGER(unsigned char);
PLINTH_INTEGER(short);
PLINTH_INTEGER(unsigned short);
PLINTH_INTEGER(int);
PLINTH_INTEGER(unsigned);
PLINTH_INTEGER(long);
PLINTH_INTEGER(unsigned long);
PLINTH_INTEGER(long long);
PLINTH_INTEGER(unsigned long long);
#undef PLINTH_INTEGER
template <typename T>
struct is_arithmetic : integral_constant<bool, is_integral<T>::value || is_floating_point<T>::value> {};
template <typename T, bool = is_arithmetic<T>::value> struct is_signed : false_type {};
template <typename T> struct is_signed<T, true> : integral_constant<bool, (T(-1) < T(0))> {};
template <typename T, bool = is_arithmetic<T>::value> struct is_unsigned : false_type {};
template <typename T> struct is_unsigned<T, true> : integral_constant<bool, !(T(-1) < T(0))> {};
template <typename A, typename B> constexpr bool is_same_v = is_same<A, B>::value;
template <typename T> constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <typename T> constexpr bool is_integral_v = is_integral<T>::value;
template <typename T> constexpr bool is_arithmetic_v = is_arithmetic<T>::value;
template <typename T> constexpr bool is_signed_v = is_signed<T>::value;
template <typename T> constexpr bool is_unsigned_v = is_unsigned<T>::value;
template <bool C, typename T = void> using enable_if_t = typename enable_if<C, T>::type;
template <bool C, typename A, typename B> using conditional_t = typename conditional<C, A, B>::type;
template <typename T> using remove_reference_t = typename remove_reference<T>::type;
template <typename T> using remove_cv_t = typename remove_cv<T>::type;

template <typename T> PLINTH_INLINE constexpr const T &min(const T &a, const T &b) { return b < a ? b : a; }
template <typename T> PLINTH_INLINE constexpr const T &max(const T &a, const T &b) { return a < b ? b : a; }
template <typename T> PLINTH_INLINE constexpr remove_reference_t<T> &&move(T &&value) {
  return static_cast<remove_reference_t<T> &&>(value);
}
template <typename T> PLINTH_INLINE void swap(T &a, T &b) {
  T kept = a;
  a = b;
  b = kept;
}

template <typename T> struct numeric_limits;
template <> struct numeric_limits<float> {
  static constexpr bool is_integer = false, is_signed = true, has_infinity = true;
  static constexpr int digits = 24;
  PLINTH_INLINE static float infinity() { return __int_as_float(0x7f800000); }
  PLINTH_INLINE static float quiet_NaN() { return __int_as_float(0x7fc00000); }
  PLINTH_INLINE static constexpr float max() { return 3.40282346638528859812e+38f; }
  PLINTH_INLINE static constexpr float lowest() { return -3.40282346638528859812e+38f; }
  PLINTH_INLINE static constexpr float min() { return 1.17549435082228750797e-38f; }
  PLINTH_INLINE static constexpr float epsilon() { return 1.1920928955078125e-07f; }
};
template <> struct numeric_limits<double> {
  static constexpr bool is_integer = false, is_signed = true, has_infinity = true;
  static constexpr int digits = 53;
  PLINTH_INLINE static double infinity() { return __longlong_as_double(0x7ff0000000000000LL); }
  PLINTH_INLINE static double quiet_NaN() { return __longlong_as_double(0x7ff8000000000000LL); }
  PLINTH_INLINE static constexpr double max() { return 1.79769313486231570815e+308; }
  PLINTH_INLINE static constexpr double lowest() { return -1.79769313486231570815e+308; }
  PLINTH_INLINE static constexpr double min() { return 2.22507385850720138309e-308; }
  PLINTH_INLINE static constexpr double epsilon() { return 2.22044604925031308085e-16; }
};
#define PLINTH_LIMITS(type)                                                                                     \
  template <> struct numeric_limits<type> {                                                                     \
    typedef type T;                                                                                             \
    static constexpr bool is_integer = true, is_signed = T(-1) < T(0), has_infinity = false;                    \
    static constexpr int digits = sizeof(T) * 8 - (is_signed ? 1 : 0);                                          \
    PLINTH_INLINE static constexpr T max() {                                                                    \
      return is_signed ? T((((T(1) << (digits - 1)) - 1) << 1) + 1) : T(~T(0));                                 \
    }                                                                                                           \
    PLINTH_INLINE static constexpr T min() { return is_signed ? T(-max() - 1) : T(0); }                         \
    PLINTH_INLINE static constexpr T lowest() { return min(); }                                                 \
  }
PLINTH_LIMITS(signed char);
PLINTH_LIMITS(unsigned char);
PLINTH_LIMITS(short);
PLINTH_LIMITS(unsigned short);
PLINTH_LIMITS(int);
PLINTH_LIMITS(unsigned);
PLINTH_LIMITS(long);
PLINTH_LIMITS(unsigned long);
PLINTH_LIMITS(long long);
PLINTH_LIMITS(unsigned long long);
#undef PLINTH_LIMITS

#define PLINTH_REAL(name) using ::name
}  // namespace std

#else

#include <plinth_host/math.h>
#include <plinth_host/small_float.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <plinth_host/qualifiers.h>

#define PLINTH_UNROLL
#define PLINTH_ONE_BY_ONE

#endif

namespace plinth_jit {
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// float16 and bfloat16, as they lie in memory, and bool, of which every byte but 0 is true.
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct bool8 { unsigned char bits; };

#ifdef PLINTH_HOST
}  // namespace plinth_jit
template <> struct plinth_host::Format<plinth_jit::f16> {
  enum { exponent = 5, mantissa = 10 };
};
template <> struct plinth_host::Format<plinth_jit::bf16> {
  enum { exponent = 8, mantissa = 7 };
};
namespace plinth_jit {
PLINTH_INLINE float read(f16 value) { return plinth_host::to_float(value); }
PLINTH_INLINE float read(bf16 value) { return plinth_host::to_float(value); }
PLINTH_INLINE void write(f16 &place, float number) { place = plinth_host::from_float<f16>(number); }
PLINTH_INLINE void write(bf16 &place, float number) { place = plinth_host::from_float<bf16>(number); }
#else
PLINTH_INLINE float read(f16 value) {
  float number;
  asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(value.bits));
  return number;
}
PLINTH_INLINE float read(bf16 value) { return __uint_as_float((u32)value.bits << 16); }
PLINTH_INLINE void write(f16 &place, float number) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(place.bits) : "f"(number));
}
PLINTH_INLINE void write(bf16 &place, float number) {
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(place.bits) : "f"(number));
#else
  const u32 bits = __float_as_uint(number);
  place.bits = number != number ? 0x7fff : (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}
#endif

PLINTH_INLINE bool read(bool8 value) { return value.bits != 0; }
PLINTH_INLINE void write(bool8 &place, bool value) { place.bits = value ? 1 : 0; }
template <typename S> PLINTH_INLINE S read(S value) { return value; }
template <typename S> PLINTH_INLINE void write(S &place, S value) { place = value; }

// What a user's function computes elements of a type in.
template <typename S> struct compute { typedef S type; };
template <> struct compute<f16> { typedef float type; };
template <> struct compute<bf16> { typedef float type; };
template <> struct compute<bool8> { typedef bool type; };
}  // namespace plinth_jit
