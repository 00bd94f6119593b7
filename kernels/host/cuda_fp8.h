// CUDA's 8-bit floating-point types: e4m3, e5m2 and the exponents e8m0, alone and in vectors of two and four.
#pragma once
#include "cuda_bf16.h"
#include "device_types.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
typedef enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;
typedef enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

namespace plinth_host {
// The second of two numbers is in the upper byte.
inline __nv_fp8x2_storage_t join(__nv_fp8_storage_t low, __nv_fp8_storage_t high) {
  return static_cast<__nv_fp8x2_storage_t>(high << 8 | low);
}
inline __nv_fp8_storage_t low(__nv_fp8x2_storage_t x) { return static_cast<__nv_fp8_storage_t>(x); }
inline __nv_fp8_storage_t high(__nv_fp8x2_storage_t x) { return static_cast<__nv_fp8_storage_t>(x >> 8); }
}  // namespace plinth_host

// e4m3 has no infinity: what is out of range becomes NaN or, saturated, the greatest number.
static inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(const double x, const __nv_saturation_t saturate,
                                                        const __nv_fp8_interpretation_t interpretation) {
  using namespace plinth_host;
  const unsigned sign = signbit(x) ? 0x80u : 0u;
  const bool is_e4m3 = interpretation == __NV_E4M3;
  unsigned bits;
  if (x != x) {
    bits = is_e4m3 ? 0x7fu : 0x7eu | (static_cast<unsigned>(bit_cast<unsigned long long>(x) >> 50) & 3u);
  } else {
    bits = is_e4m3 ? encode_magnitude<4, 3, Rounding::nearest>(x, false)
                   : encode_magnitude<5, 2, Rounding::nearest>(x, false);
    const unsigned greatest = is_e4m3 ? 0x7eu : 0x7bu;
    if (bits > greatest) bits = saturate == __NV_SATFINITE ? greatest : greatest + 1;
  }
  return static_cast<__nv_fp8_storage_t>(sign | bits);
}
static inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(const float x, const __nv_saturation_t saturate,
                                                       const __nv_fp8_interpretation_t interpretation) {
  // Unlike a double's, a float's NaN loses its sign.
  return x != x ? 0x7f : __nv_cvt_double_to_fp8(x, saturate, interpretation);
}
static inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(const __half_raw x, const __nv_saturation_t saturate,
                                                         const __nv_fp8_interpretation_t interpretation) {
  return __nv_cvt_float_to_fp8(__half2float(x), saturate, interpretation);
}
static inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(const __nv_bfloat16_raw x,
                                                             const __nv_saturation_t saturate,
                                                             const __nv_fp8_interpretation_t interpretation) {
  return __nv_cvt_float_to_fp8(__bfloat162float(x), saturate, interpretation);
}
static inline __half_raw __nv_cvt_fp8_to_halfraw(const __nv_fp8_storage_t x,
                                                 const __nv_fp8_interpretation_t interpretation) {
  const unsigned magnitude = x & 0x7fu, sign = (x & 0x80u) << 8;
  const bool is_e4m3 = interpretation == __NV_E4M3;
  if (magnitude > (is_e4m3 ? 0x7eu : 0x7cu)) return __half_raw{0x7fff};
  if (!is_e4m3) return __half_raw{static_cast<unsigned short>(x << 8)};
  // The product by 2^8 corrects the exponent, also of subnormals, and is exact.
  const float value = plinth_host::to_float<__half>(__half_raw{static_cast<unsigned short>(magnitude << 7)}) * 256.0f;
  return __half_raw{static_cast<unsigned short>(__half_as_ushort(__float2half(value)) | sign)};
}
static inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(const __nv_fp8x2_storage_t x,
                                                     const __nv_fp8_interpretation_t interpretation) {
  return {__nv_cvt_fp8_to_halfraw(plinth_host::low(x), interpretation).x,
          __nv_cvt_fp8_to_halfraw(plinth_host::high(x), interpretation).x};
}

// e8m0 has no sign and no zero: x stands for 2^(x - 127), and 255 is NaN. Only the modes towards zero and towards
// positive infinity, of the magnitude, are defined.
static inline __nv_fp8_storage_t __nv_cvt_float_to_e8m0(const float x, const __nv_saturation_t saturate,
                                                        const enum cudaRoundMode rounding) {
  const unsigned bits = __float_as_uint(x) & 0x7fffffffu;
  unsigned result = bits >> 23;
  if (x != x) return 0xff;
  // 2^-127 is subnormal as a float, and exact.
  if (rounding == cudaRoundPosInf && (bits & 0x7fffffu) != 0 && bits > 0x400000u) result++;
  if (saturate == __NV_SATFINITE && result == 0xff) result--;
  return static_cast<__nv_fp8_storage_t>(result);
}
static inline __nv_fp8_storage_t __nv_cvt_double_to_e8m0(const double x, const __nv_saturation_t saturate,
                                                         const enum cudaRoundMode rounding) {
  const float rounded = __double2float_rz(x);
  // The last bit stands for what rounding took away.
  const bool exact = x != x || rounded == x;
  return __nv_cvt_float_to_e8m0(exact ? rounded : __uint_as_float(__float_as_uint(rounded) | 1u), saturate, rounding);
}
static inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_e8m0(const __nv_bfloat16_raw x,
                                                              const __nv_saturation_t saturate,
                                                              const enum cudaRoundMode rounding) {
  return __nv_cvt_float_to_e8m0(__bfloat162float(x), saturate, rounding);
}
static inline __nv_bfloat16_raw __nv_cvt_e8m0_to_bf16raw(const __nv_fp8_storage_t x) {
  const unsigned bits = x == 0xff ? 0x7fffu : x == 0 ? 0x40u : static_cast<unsigned>(x) << 7;
  return __nv_bfloat16_raw{static_cast<unsigned short>(bits)};
}
static inline __nv_bfloat162_raw __nv_cvt_e8m0x2_to_bf162raw(const __nv_fp8x2_storage_t x) {
  return {__nv_cvt_e8m0_to_bf16raw(plinth_host::low(x)).x, __nv_cvt_e8m0_to_bf16raw(plinth_host::high(x)).x};
}

// Conversions of two numbers from those of one. `element` makes the argument of the latter from a member.
#define PLINTH_PAIR(pair, single, vector, element, Mode)                                                       \
  static inline __nv_fp8x2_storage_t pair(const vector x, const __nv_saturation_t saturate, const Mode mode) { \
    return plinth_host::join(single(element{x.x}, saturate, mode), single(element{x.y}, saturate, mode));      \
  }
PLINTH_PAIR(__nv_cvt_double2_to_fp8x2, __nv_cvt_double_to_fp8, double2, double, __nv_fp8_interpretation_t)
PLINTH_PAIR(__nv_cvt_float2_to_fp8x2, __nv_cvt_float_to_fp8, float2, float, __nv_fp8_interpretation_t)
PLINTH_PAIR(__nv_cvt_halfraw2_to_fp8x2, __nv_cvt_halfraw_to_fp8, __half2_raw, __half_raw, __nv_fp8_interpretation_t)
PLINTH_PAIR(__nv_cvt_bfloat16raw2_to_fp8x2, __nv_cvt_bfloat16raw_to_fp8, __nv_bfloat162_raw, __nv_bfloat16_raw,
            __nv_fp8_interpretation_t)
PLINTH_PAIR(__nv_cvt_double2_to_e8m0x2, __nv_cvt_double_to_e8m0, double2, double, enum cudaRoundMode)
PLINTH_PAIR(__nv_cvt_float2_to_e8m0x2, __nv_cvt_float_to_e8m0, float2, float, enum cudaRoundMode)
PLINTH_PAIR(__nv_cvt_bfloat162raw_to_e8m0x2, __nv_cvt_bfloat16raw_to_e8m0, __nv_bfloat162_raw, __nv_bfloat16_raw,
            enum cudaRoundMode)
#undef PLINTH_PAIR

// What the types below differ in. An integer goes through float, as in CUDA, except to e8m0.
namespace plinth_host {
#define PLINTH_FP8_FORMAT(name, interpretation)                                                                      \
  struct name {                                                                                                      \
    static __nv_fp8_storage_t encode(double x) { return __nv_cvt_double_to_fp8(x, __NV_SATFINITE, interpretation); } \
    static __nv_fp8_storage_t encode(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, interpretation); }   \
    template <typename I> static __nv_fp8_storage_t encode_integer(I x) { return encode(static_cast<float>(x)); }    \
    static float decode(__nv_fp8_storage_t x) { return __half2float(__nv_cvt_fp8_to_halfraw(x, interpretation)); }   \
    static bool is_true(__nv_fp8_storage_t x) { return (x & 0x7f) != 0; }                                            \
  };
PLINTH_FP8_FORMAT(e4m3, __NV_E4M3)
PLINTH_FP8_FORMAT(e5m2, __NV_E5M2)
#undef PLINTH_FP8_FORMAT
struct e8m0 {
  static __nv_fp8_storage_t encode(double x) { return __nv_cvt_double_to_e8m0(x, __NV_SATFINITE, cudaRoundPosInf); }
  static __nv_fp8_storage_t encode(float x) { return __nv_cvt_float_to_e8m0(x, __NV_SATFINITE, cudaRoundPosInf); }
  template <typename I> static __nv_fp8_storage_t encode_integer(I x) { return encode(sticky_double(x)); }
  static float decode(__nv_fp8_storage_t x) { return __bfloat162float(__nv_cvt_e8m0_to_bf16raw(x)); }
  static bool is_true(__nv_fp8_storage_t) { return true; }
};
}  // namespace plinth_host

#ifdef __CUDA_NO_FP8_CONVERSIONS__
#define PLINTH_CONVERSIONS(...)
#else
#define PLINTH_CONVERSIONS(...) __VA_ARGS__
#endif
#if defined(__CUDA_NO_FP8_CONVERSIONS__) || defined(__CUDA_NO_FP8_CONVERSION_OPERATORS__)
#define PLINTH_CONVERSION_OPERATORS(...)
#else
#define PLINTH_CONVERSION_OPERATORS(...) __VA_ARGS__
#endif
#define PLINTH_FROM(T, format, type) explicit T(const type x) : __x(format::encode_integer(x)) {}
#define PLINTH_TO(format, type)                                                             \
  explicit operator type() const {                                                          \
    return plinth_host::to_integer<plinth_host::Rounding::zero, type>(format::decode(__x)); \
  }
#define PLINTH_FP8(T, T2, T4, format)                                                                         \
  struct T {                                                                                                  \
    __nv_fp8_storage_t __x;                                                                                   \
    T() = default;                                                                                            \
    PLINTH_CONVERSIONS(                                                                                       \
      explicit T(const __half x) : __x(format::encode(__half2float(x))) {}                                    \
      explicit T(const __nv_bfloat16 x) : __x(format::encode(__bfloat162float(x))) {}                         \
      explicit T(const float x) : __x(format::encode(x)) {}                                                   \
      explicit T(const double x) : __x(format::encode(x)) {}                                                  \
      PLINTH_FROM(T, format, short) PLINTH_FROM(T, format, unsigned short)                                    \
      PLINTH_FROM(T, format, int) PLINTH_FROM(T, format, unsigned int)                                        \
      PLINTH_FROM(T, format, long) PLINTH_FROM(T, format, unsigned long)                                      \
      PLINTH_FROM(T, format, long long) PLINTH_FROM(T, format, unsigned long long))                           \
    PLINTH_CONVERSION_OPERATORS(                                                                              \
      explicit operator float() const { return format::decode(__x); }                                         \
      explicit operator double() const { return format::decode(__x); }                                        \
      explicit operator __half() const { return __float2half(format::decode(__x)); }                          \
      explicit operator __nv_bfloat16() const { return __float2bfloat16(format::decode(__x)); }               \
      explicit operator bool() const { return format::is_true(__x); }                                         \
      PLINTH_TO(format, char) PLINTH_TO(format, signed char) PLINTH_TO(format, unsigned char)                 \
      PLINTH_TO(format, short) PLINTH_TO(format, unsigned short)                                              \
      PLINTH_TO(format, int) PLINTH_TO(format, unsigned int)                                                  \
      PLINTH_TO(format, long) PLINTH_TO(format, unsigned long)                                                \
      PLINTH_TO(format, long long) PLINTH_TO(format, unsigned long long))                                     \
  };                                                                                                          \
  struct alignas(2) T2 {                                                                                      \
    __nv_fp8x2_storage_t __x;                                                                                 \
    T2() = default;                                                                                           \
    PLINTH_CONVERSIONS(                                                                                       \
      explicit T2(const __half2 v) : T2(__half22float2(v)) {}                                                 \
      explicit T2(const __nv_bfloat162 v) : T2(__bfloat1622float2(v)) {}                                      \
      explicit T2(const float2 v) : __x(plinth_host::join(format::encode(v.x), format::encode(v.y))) {}       \
      explicit T2(const double2 v) : __x(plinth_host::join(format::encode(v.x), format::encode(v.y))) {})     \
    PLINTH_CONVERSION_OPERATORS(                                                                              \
      explicit operator float2() const {                                                                      \
        return {format::decode(plinth_host::low(__x)), format::decode(plinth_host::high(__x))};               \
      }                                                                                                       \
      explicit operator __half2() const { return __float22half2_rn(static_cast<float2>(*this)); }             \
      explicit operator __nv_bfloat162() const { return __float22bfloat162_rn(static_cast<float2>(*this)); }) \
  };                                                                                                          \
  struct alignas(4) T4 {                                                                                      \
    __nv_fp8x4_storage_t __x;                                                                                 \
    T4() = default;                                                                                           \
    PLINTH_CONVERSIONS(                                                                                       \
      explicit T4(const __half2 lo, const __half2 hi) : T4(T2(lo), T2(hi)) {}                                 \
      explicit T4(const __nv_bfloat162 lo, const __nv_bfloat162 hi) : T4(T2(lo), T2(hi)) {}                   \
      explicit T4(const float4 v) : T4(T2(make_float2(v.x, v.y)), T2(make_float2(v.z, v.w))) {}               \
      explicit T4(const double4 v) : T4(T2(make_double2(v.x, v.y)), T2(make_double2(v.z, v.w))) {})           \
    PLINTH_CONVERSION_OPERATORS(                                                                              \
      explicit operator float4() const {                                                                      \
        T2 lo;                                                                                                \
        T2 hi;                                                                                                \
        lo.__x = static_cast<__nv_fp8x2_storage_t>(__x);                                                      \
        hi.__x = static_cast<__nv_fp8x2_storage_t>(__x >> 16);                                                \
        const float2 a = static_cast<float2>(lo);                                                             \
        const float2 b = static_cast<float2>(hi);                                                             \
        return {a.x, a.y, b.x, b.y};                                                                          \
      })                                                                                                      \
                                                                                                              \
   private:                                                                                                   \
    T4(const T2 lo, const T2 hi) : __x(static_cast<__nv_fp8x4_storage_t>(hi.__x) << 16 | lo.__x) {}           \
  };
PLINTH_FP8(__nv_fp8_e4m3, __nv_fp8x2_e4m3, __nv_fp8x4_e4m3, plinth_host::e4m3)
PLINTH_FP8(__nv_fp8_e5m2, __nv_fp8x2_e5m2, __nv_fp8x4_e5m2, plinth_host::e5m2)
PLINTH_FP8(__nv_fp8_e8m0, __nv_fp8x2_e8m0, __nv_fp8x4_e8m0, plinth_host::e8m0)
#undef PLINTH_FP8
#undef PLINTH_TO
#undef PLINTH_FROM
#undef PLINTH_CONVERSION_OPERATORS
#undef PLINTH_CONVERSIONS
