// Floating point in 8 bits, as in crates/driver/src/float8.rs: torch's float8_e4m3fn, which has no infinity, and float8_e5m2.
#pragma once

#ifdef PLINTH_HOST
#include <cuda_fp16.h>
#endif

namespace plinth {

template <unsigned kFraction, unsigned kBias, bool kHasInfinity>
struct Float8 {
  static constexpr unsigned kShift = 23 - kFraction;
  // The smallest bits of a magnitude that is no finite number.
  static constexpr unsigned kNotFinite = kHasInfinity ? 0x7C : 0x7F;
  // The bits of floats: the smallest one that is too large even if it is rounded, the smallest normal number, and one whose last
  // place has the value of a subnormal number's.
  static constexpr unsigned kOverflow = kHasInfinity ? (127 + 16) << 23 : 1087 << 20;
  static constexpr unsigned kSmallestNormal = (128 - kBias) << 23;
  static constexpr unsigned kPlace = (151 - kBias - kFraction) << 23;

  // By way of a half, whose conversion the hardware has: its exponent has the same bias in one format, and is 8 larger in the other.
  static __device__ __forceinline__ float widen(unsigned char raw) {
    const unsigned magnitude = raw & 0x7F;
    const unsigned half = magnitude << (kHasInfinity ? 8 : 7) | (raw & 0x80u) << 8;
    float value;
#ifdef PLINTH_HOST
    value = __half2float(__ushort_as_half(static_cast<unsigned short>(half)));
#else
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<unsigned short>(half)));
#endif
    if (kHasInfinity) return value;
    return magnitude == kNotFinite ? __uint_as_float(0x7FFFFFFFu) : __fmul_rn(value, 256.0f);
  }

  // The nearest number, of two the even one. What is too large becomes infinity, or NaN if there is none. Not inlined: kernels
  // with 16 numbers for each thread would be several times as large.
  static __device__ __noinline__ unsigned char narrow(float value) {
    const unsigned all = __float_as_uint(value), magnitude = all & 0x7FFFFFFFu;
    const unsigned half = (1u << (kShift - 1)) - 1 + (magnitude >> kShift & 1);
    const unsigned normal = (magnitude + half - ((127 - kBias) << 23)) >> kShift;
    const unsigned subnormal = __float_as_uint(__fadd_rn(__uint_as_float(magnitude), __uint_as_float(kPlace))) - kPlace;
    unsigned bits = magnitude < kSmallestNormal ? subnormal : normal;
    if (magnitude >= kOverflow) bits = kNotFinite;
    return static_cast<unsigned char>(magnitude > 0x7F800000u ? 0x7F : bits | (all >> 24 & 0x80));
  }
};

using E4m3 = Float8<3, 7, false>;
using E5m2 = Float8<2, 15, true>;

}  // namespace plinth
