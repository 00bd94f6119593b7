// Bernoulli trials. With one probability for all, u < p is the same as x < threshold for the integer that u is made of,
// because u does not fall as x rises; the launch has found the threshold.
//
// arguments: the threshold, the bits of one. Where the launch says the type, it is an integer of the element's size.
#pragma once

#include "fill.cuh"

namespace plinth {

// `T` is an unsigned integer of the element's size.
template <class T>
struct Bernoulli {
  using Element = T;
  static constexpr u32 kNumbers = 4;
  u32 threshold;
  T one;

  __device__ __forceinline__ explicit Bernoulli(const Fill &fill)
      : threshold(low(fill.arguments[0])), one(static_cast<T>(fill.arguments[1])) {}

  __device__ __forceinline__ void operator()(uint4 numbers, T (&elements)[4]) const {
    elements[0] = numbers.x < threshold ? one : 0;
    elements[1] = numbers.y < threshold ? one : 0;
    elements[2] = numbers.z < threshold ? one : 0;
    elements[3] = numbers.w < threshold ? one : 0;
  }
};

// Of 64-bit floats, which are made of 53 bits.
struct Bernoulli53 {
  using Element = i64;
  static constexpr u32 kNumbers = 2;
  u64 threshold;
  i64 one;

  __device__ __forceinline__ explicit Bernoulli53(const Fill &fill)
      : threshold(fill.arguments[0]), one(static_cast<i64>(fill.arguments[1])) {}

  __device__ __forceinline__ void operator()(uint4 numbers, i64 (&elements)[2]) const {
    elements[0] = bits53(numbers.x, numbers.y) < threshold ? one : 0;
    elements[1] = bits53(numbers.z, numbers.w) < threshold ? one : 0;
  }
};

// A probability for each element. PyTorch gives four neighbouring elements to each subsequence here, of which one call is
// made, and counts u <= p as success.
//
// arguments: the element type of the probabilities, the bits of one, the address of the first probability, the number of
// the first element, where those before it are another launch's.
__device__ __forceinline__ float probability(u64 address, u32 code, i64 place) {
  switch (code) {
    case kF16: return __half2float(reinterpret_cast<const __half *>(address)[place]);
    case kBf16: return __uint_as_float(static_cast<u32>(reinterpret_cast<const u16 *>(address)[place]) << 16);
    case kF64: return static_cast<float>(reinterpret_cast<const double *>(address)[place]);
    default: return reinterpret_cast<const float *>(address)[place];
  }
}

__device__ __forceinline__ double probability64(u64 address, u32 code, i64 place) {
  if (code == kF64) return reinterpret_cast<const double *>(address)[place];
  return probability(address, code, place);
}

template <class T, bool kDouble>
__device__ __forceinline__ void bernoulli_each(const Fill &fill, const Strided &layout, const Strided &probabilities) {
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  const u32 first = thread * 4;
  if (first >= fill.numel) return;
  const Sequence sequence(fill.philox);
  // Beyond 2^32 subsequences, which no device's memory has room for, this would wrap.
  const uint4 numbers = philox(sequence, sequence.first, static_cast<u32>(fill.arguments[3] / 4) + thread);
  u32 left[4] = {numbers.x, numbers.y, numbers.z, numbers.w};
  const u32 code = low(fill.arguments[0]);
#pragma unroll 1
  for (u32 element = first; element < first + 4 && element < fill.numel; ++element) {
    const float u = unit(left[0]);
    left[0] = left[1], left[1] = left[2], left[2] = left[3];
    const i64 place = probabilities.place(element);
    const bool success = kDouble ? u <= probability64(fill.arguments[2], code, place)
                                 : u <= probability(fill.arguments[2], code, place);
    put(fill, layout.place(element), success ? static_cast<T>(fill.arguments[1]) : T(0));
  }
}

}  // namespace plinth

#define PLINTH_EACH(name, ...)                                                                                   \
  extern "C" __global__ void __launch_bounds__(plinth::kThreads)                                                 \
      name(const plinth::Fill fill, const __grid_constant__ plinth::Strided layout,                              \
           const __grid_constant__ plinth::Strided probabilities) {                                              \
    __VA_ARGS__(fill, layout, probabilities);                                                                    \
  }
