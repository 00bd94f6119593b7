// Numbers that ranks combine: what each type is computed in, and what its operations are.
#pragma once

#include "../float8.cuh"
#include "symmetric_buffer.cuh"

#ifdef PLINTH_HOST
#include <cuda_fp16.h>
#endif

namespace plinth {

// As ReduceOp in src/collectives/devices/mod.rs.
enum Op : u32 { kSum = 0, kProduct = 1, kMinimum = 2, kMaximum = 3, kAverage = 4 };

// A number, if one of them is none; of equal ones the first.
template <class T>
__device__ __forceinline__ T least(T first, T second) {
  return second < first || first != first ? second : first;
}

template <class T>
__device__ __forceinline__ T greatest(T first, T second) {
  return second > first || first != first ? second : first;
}

__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float subtract(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ double subtract(double a, double b) { return __dsub_rn(a, b); }
__device__ __forceinline__ float multiply(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double multiply(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float quotient(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ double quotient(double a, double b) { return __ddiv_rn(a, b); }

template <class T>
struct Real {
  using Raw = T;
  using Wide = T;
  static __device__ __forceinline__ T widen(T raw) { return raw; }
  static __device__ __forceinline__ T narrow(T wide) { return wide; }
  static __device__ __forceinline__ T sum(T a, T b) { return add(a, b); }
  static __device__ __forceinline__ T product(T a, T b) { return multiply(a, b); }
  static __device__ __forceinline__ T minimum(T a, T b) { return least(a, b); }
  static __device__ __forceinline__ T maximum(T a, T b) { return greatest(a, b); }
  static __device__ __forceinline__ T divide(T a, u32 n) { return quotient(a, static_cast<T>(n)); }
};

// Computed in float, and rounded once.
struct F16 : Real<float> {
  using Raw = u16;
#ifdef PLINTH_HOST
  static __device__ __forceinline__ float widen(u16 raw) { return __half2float(__ushort_as_half(raw)); }
  static __device__ __forceinline__ u16 narrow(float wide) { return __half_as_ushort(__float2half(wide)); }
#else
  static __device__ __forceinline__ float widen(u16 raw) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(raw));
    return wide;
  }
  static __device__ __forceinline__ u16 narrow(float wide) {
    u16 raw;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(raw) : "f"(wide));
    return raw;
  }
#endif
};

struct Bf16 : Real<float> {
  using Raw = u16;
  static __device__ __forceinline__ float widen(u16 raw) { return __uint_as_float(static_cast<u32>(raw) << 16); }
  // Without the instruction, which older devices lack.
  static __device__ __forceinline__ u16 narrow(float wide) {
    const u32 bits = __float_as_uint(wide);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;
    return static_cast<u16>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
  }
};

template <class Format>
struct F8 : Real<float> {
  using Raw = u8;
  static __device__ __forceinline__ float widen(u8 raw) { return Format::widen(raw); }
  static __device__ __forceinline__ u8 narrow(float wide) { return Format::narrow(wide); }
};

// Integer numbers wrap, so they may be computed in wider ones.
template <class T, class Computed>
struct Integer {
  using Raw = T;
  using Wide = Computed;
  static __device__ __forceinline__ Wide widen(T raw) { return raw; }
  static __device__ __forceinline__ T narrow(Wide wide) { return static_cast<T>(wide); }
  static __device__ __forceinline__ Wide sum(Wide a, Wide b) {
    return static_cast<T>(static_cast<u64>(a) + static_cast<u64>(b));
  }
  static __device__ __forceinline__ Wide product(Wide a, Wide b) {
    return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b));
  }
  static __device__ __forceinline__ Wide minimum(Wide a, Wide b) { return b < a ? b : a; }
  static __device__ __forceinline__ Wide maximum(Wide a, Wide b) { return b > a ? b : a; }
  static __device__ __forceinline__ Wide divide(Wide a, u32 n) { return a / static_cast<Wide>(n); }
};

// A sum is whether any is, a product whether all are.
struct Bool {
  using Raw = u8;
  using Wide = u32;
  static __device__ __forceinline__ u32 widen(u8 raw) { return raw != 0; }
  static __device__ __forceinline__ u8 narrow(u32 wide) { return static_cast<u8>(wide); }
  static __device__ __forceinline__ u32 sum(u32 a, u32 b) { return a | b; }
  static __device__ __forceinline__ u32 product(u32 a, u32 b) { return a & b; }
  static __device__ __forceinline__ u32 minimum(u32 a, u32 b) { return a & b; }
  static __device__ __forceinline__ u32 maximum(u32 a, u32 b) { return a | b; }
  static __device__ __forceinline__ u32 divide(u32 a, u32) { return a; }
};

template <class T>
struct Pair {
  T real;
  T imaginary;
};

// There is no order among them.
template <class T>
struct Complex {
  using Raw = Pair<T>;
  using Wide = Pair<T>;
  static __device__ __forceinline__ Wide widen(Raw raw) { return raw; }
  static __device__ __forceinline__ Raw narrow(Wide wide) { return wide; }
  static __device__ __forceinline__ Wide sum(Wide a, Wide b) {
    return {add(a.real, b.real), add(a.imaginary, b.imaginary)};
  }
  static __device__ __forceinline__ Wide product(Wide a, Wide b) {
    return {subtract(multiply(a.real, b.real), multiply(a.imaginary, b.imaginary)),
            add(multiply(a.real, b.imaginary), multiply(a.imaginary, b.real))};
  }
  static __device__ __forceinline__ Wide minimum(Wide a, Wide) { return a; }
  static __device__ __forceinline__ Wide maximum(Wide a, Wide) { return a; }
  static __device__ __forceinline__ Wide divide(Wide a, u32 n) {
    return {quotient(a.real, static_cast<T>(n)), quotient(a.imaginary, static_cast<T>(n))};
  }
};

// The numbers of 16 bytes.
template <class Number>
struct Values {
  using Raw = typename Number::Raw;
  static constexpr u32 kCount = 16 / sizeof(Raw);
  typename Number::Wide wide[kCount];

  union Unit {
    uint4 unit;
    Raw raw[kCount];
    __device__ Unit() {}
  };

  __device__ __forceinline__ explicit Values(uint4 unit) {
    Unit both;
    both.unit = unit;
#pragma unroll
    for (u32 index = 0; index < kCount; ++index) wide[index] = Number::widen(both.raw[index]);
  }

  __device__ __forceinline__ uint4 pack() const {
    Unit both;
#pragma unroll
    for (u32 index = 0; index < kCount; ++index) both.raw[index] = Number::narrow(wide[index]);
    return both.unit;
  }

  __device__ __forceinline__ void take(const Values &other, u32 op) {
    switch (op) {
      case kProduct:
#pragma unroll
        for (u32 index = 0; index < kCount; ++index) wide[index] = Number::product(wide[index], other.wide[index]);
        break;
      case kMinimum:
#pragma unroll
        for (u32 index = 0; index < kCount; ++index) wide[index] = Number::minimum(wide[index], other.wide[index]);
        break;
      case kMaximum:
#pragma unroll
        for (u32 index = 0; index < kCount; ++index) wide[index] = Number::maximum(wide[index], other.wide[index]);
        break;
      default:
#pragma unroll
        for (u32 index = 0; index < kCount; ++index) wide[index] = Number::sum(wide[index], other.wide[index]);
    }
  }

  __device__ __forceinline__ void divide(u32 n) {
#pragma unroll
    for (u32 index = 0; index < kCount; ++index) wide[index] = Number::divide(wide[index], n);
  }
};

}  // namespace plinth
