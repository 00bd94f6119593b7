// Integers below a divisor, on a base: x mod divisor + base. That is not quite uniform, the less so the nearer the divisor
// comes to 2^32; PyTorch takes 64 bits from 2^28 on.
//
// arguments: the divisor, where 0 stands for 2^64; the base; the reciprocal 2^32 / divisor rounded down (2^64 / divisor for
// 64 bits), at most all ones; if the divisor is a power of two above 1, the mask of the remainder, else 0.
#pragma once

#include "fill.cuh"

namespace plinth {

// The estimate of the quotient, from a reciprocal that was rounded down, is right or one too small.
__device__ __forceinline__ u32 remainder(u32 number, u32 divisor, u32 reciprocal) {
  const u32 rest = number - __umulhi(number, reciprocal) * divisor;
  return min(rest, rest - divisor);
}

__device__ __forceinline__ u64 remainder(u64 number, u64 divisor, u64 reciprocal) {
  const u64 rest = number - __umul64hi(number, reciprocal) * divisor;
  return rest >= divisor ? rest - divisor : rest;
}

// `T` has the element's size, or is i64 for elements of any type.
template <class T>
struct Integers {
  using Element = T;
  static constexpr u32 kNumbers = 4;
  u32 divisor;
  u32 reciprocal;
  u32 mask;
  i64 base;

  __device__ __forceinline__ explicit Integers(const Fill &fill)
      : divisor(low(fill.arguments[0])),
        reciprocal(low(fill.arguments[2])),
        mask(low(fill.arguments[3])),
        base(static_cast<i64>(fill.arguments[1])) {}

  __device__ __forceinline__ void operator()(uint4 numbers, T (&elements)[4]) const {
    elements[0] = of(numbers.x);
    elements[1] = of(numbers.y);
    elements[2] = of(numbers.z);
    elements[3] = of(numbers.w);
  }

 private:
  __device__ __forceinline__ T of(u32 number) const {
    const u32 rest = mask != 0 ? number & mask : remainder(number, divisor, reciprocal);
    return static_cast<T>(static_cast<T>(rest) + static_cast<T>(base));
  }
};

template <class T>
struct Integers64 {
  using Element = T;
  static constexpr u32 kNumbers = 2;
  u64 divisor;
  u64 reciprocal;
  u64 mask;
  u64 base;

  __device__ __forceinline__ explicit Integers64(const Fill &fill)
      : divisor(fill.arguments[0]),
        reciprocal(fill.arguments[2]),
        mask(fill.arguments[3]),
        base(fill.arguments[1]) {}

  __device__ __forceinline__ void operator()(uint4 numbers, T (&elements)[2]) const {
    elements[0] = of(numbers.x, numbers.y);
    elements[1] = of(numbers.z, numbers.w);
  }

 private:
  __device__ __forceinline__ T of(u32 upper, u32 lower) const {
    const u64 number = static_cast<u64>(upper) << 32 | lower;
    return static_cast<T>((mask != 0 ? number & mask : remainder(number, divisor, reciprocal)) + base);
  }
};

}  // namespace plinth
