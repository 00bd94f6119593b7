// Fills: which thread makes which elements, and how they are stored.
//
// PyTorch gives subsequence s to thread s of a launch of `lanes` threads. Call c of all of them makes the rows 4c to
// 4c + 3 of the result, a row being `lanes` elements, one from each subsequence (2c and 2c + 1 where a number takes 64
// bits). A thread that made one subsequence could store but one element of a row; here a thread makes several
// neighbouring subsequences, so that it stores 16 bytes of a row at once. The values are the same.
#pragma once

#include <cuda_fp16.h>

#include "philox.cuh"

namespace plinth {

// As Fill in crates/driver/src/random.rs.
struct Fill {
  PhiloxState philox;
  u64 data;
  u32 numel;
  u32 lanes;
  u32 steps;
  u32 code;
  u64 arguments[4];
};

constexpr int kMaxRank = 25;

// As Strided in crates/driver/src/random.rs.
struct Strided {
  u32 rank;
  u32 reserved;
  u32 sizes[kMaxRank];
  u32 magics[kMaxRank];
  u32 shifts[kMaxRank];
  u32 padding;
  i64 strides[kMaxRank];

  // The place of an element, in elements.
  __device__ __forceinline__ i64 place(u32 element) const {
    i64 offset = 0;
#pragma unroll 1
    for (u32 dimension = 0; dimension + 1 < rank; ++dimension) {
      const u32 quotient = (__umulhi(element, magics[dimension]) + element) >> shifts[dimension];
      offset += static_cast<i64>(element - quotient * sizes[dimension]) * strides[dimension];
      element = quotient;
    }
    return rank == 0 ? 0 : offset + static_cast<i64>(element) * strides[rank - 1];
  }
};

// ---- numbers

// In (0, 1], as cuRAND and PyTorch make it.
__device__ __forceinline__ float unit(u32 number) { return __fmaf_rn(__uint2float_rn(number), 0x1p-32f, 0x1p-33f); }

// 53 bits of two numbers, in the way of cuRAND's curand_uniform2_double.
__device__ __forceinline__ u64 bits53(u32 x, u32 y) { return x ^ (static_cast<u64>(y) << 21); }

// An integer below 2^53 as a double: exactly, and without the slow conversion instruction.
__device__ __forceinline__ double exact(u64 bits) {
  const double upper = __hiloint2double(0x45300000, static_cast<int>(high(bits)));  // 2^84 + upper * 2^32
  const double lower = __hiloint2double(0x43300000, static_cast<int>(low(bits)));   // 2^52 + lower
  return __dadd_rn(__dadd_rn(upper, -0x1.00000001p84), lower);
}

__device__ __forceinline__ double unit64(u64 bits) { return __fma_rn(exact(bits), 0x1p-53, 0x1p-54); }

// ---- element types

// As ElementCode in crates/driver/src/random.rs.
enum Code : u32 { kF16, kBf16, kF32, kF64, kU8, kI8, kI16, kI32, kI64 };

__device__ __forceinline__ __half to_half(float value) { return __float2half_rn(value); }

// To the nearest, and of two to the even one; NaN is 0x7fff, as the instruction of newer devices has it.
__device__ __forceinline__ u16 to_bfloat16(float value) {
  const u32 bits = __float_as_uint(value);
  return value != value ? 0x7fff : static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The value that an element of a type would have.
__device__ __forceinline__ float rounded(u32 code, float value) {
  if (code == kF16) return __half2float(to_half(value));
  if (code == kBf16) return __uint_as_float(static_cast<u32>(to_bfloat16(value)) << 16);
  return value;
}

template <class T>
__device__ __forceinline__ void put(const Fill &fill, i64 place, T value) {
  reinterpret_cast<T *>(fill.data)[place] = value;
}

__device__ __forceinline__ void store(const Fill &fill, i64 place, float value) {
  switch (fill.code) {
    case kF16: return put(fill, place, to_half(value));
    case kBf16: return put(fill, place, to_bfloat16(value));
    case kF32: return put(fill, place, value);
    case kU8: return put(fill, place, static_cast<u8>(value));
    case kI8: return put(fill, place, static_cast<signed char>(value));
    case kI16: return put(fill, place, static_cast<short>(value));
    case kI32: return put(fill, place, static_cast<int>(value));
    case kI64: return put(fill, place, static_cast<i64>(value));
    default: return;
  }
}

__device__ __forceinline__ void store(const Fill &fill, i64 place, double value) { put(fill, place, value); }

// An integer: as many of its bits as an element has, or the nearest number; to 16 bits by way of float, as PyTorch does.
__device__ __forceinline__ void store(const Fill &fill, i64 place, i64 value) {
  switch (fill.code) {
    case kF16: return put(fill, place, to_half(static_cast<float>(value)));
    case kBf16: return put(fill, place, to_bfloat16(static_cast<float>(value)));
    case kF32: return put(fill, place, static_cast<float>(value));
    case kF64: return put(fill, place, static_cast<double>(value));
    case kU8:
    case kI8: return put(fill, place, static_cast<u8>(value));
    case kI16: return put(fill, place, static_cast<u16>(value));
    case kI32: return put(fill, place, static_cast<u32>(value));
    case kI64: return put(fill, place, value);
    default: return;
  }
}

// Neighbouring elements that a thread makes of each row: 16 bytes of them, which are stored at once; 8 where that would be 16
// subsequences. (Threads that make 32 bytes store every other 16, which takes twice the time.)
template <class T>
constexpr u32 kWidth = sizeof(T) == 8 ? 2 : sizeof(T) == 4 ? 4 : 8;

template <class T>
struct alignas(sizeof(T) * kWidth<T>) Pack {
  T elements[kWidth<T>];
};

// The threads of a block. Thread x of a row of blocks makes the subsequences kWidth * x and following; block y makes the
// calls y * steps and following.
constexpr u32 kThreads = 128;

// Fills elements that lie side by side, from a multiple of what is stored at once. `Distribution` has a type `Element`,
// `kNumbers` elements a call, and makes the elements of a call from its four numbers:
// `void operator()(uint4, Element (&)[kNumbers]) const`.
template <class Distribution>
__device__ __forceinline__ void fill_dense(const Fill &fill, const Distribution &distribution) {
  using T = typename Distribution::Element;
  constexpr u32 kRows = Distribution::kNumbers;
  constexpr u32 kLanes = kWidth<T>;
  const u32 lane = (blockIdx.x * kThreads + threadIdx.x) * kLanes;
  if (lane >= fill.lanes) return;
  const Sequence sequence(fill.philox);
  T *const data = reinterpret_cast<T *>(fill.data);
  const u32 first = blockIdx.y * fill.steps;
  u64 number = sequence.first + first;
  Lanes<kLanes> neighbours(sequence, lane, number);
  // Elements are fewer than 2^31, and a block's calls begin below them, so this does not wrap; it may pass the end.
  u32 element = first * kRows * fill.lanes + lane;
  for (u32 step = 0; step < fill.steps && element < fill.numel; ++step, ++number) {
    neighbours.follow(sequence, lane, number);
    const Call call(sequence, number);
    Pack<T> rows[kRows];
#pragma unroll
    for (u32 i = 0; i < kLanes; ++i) {
      T elements[kRows];
      distribution(philox(sequence, call, neighbours.lanes[i]), elements);
#pragma unroll
      for (u32 row = 0; row < kRows; ++row) rows[row].elements[i] = elements[row];
    }
    if (element + (kRows - 1) * fill.lanes + kLanes <= fill.numel) {
#pragma unroll
      for (u32 row = 0; row < kRows; ++row) {
        *reinterpret_cast<Pack<T> *>(data + element) = rows[row];
        element += fill.lanes;
      }
    } else {
#pragma unroll
      for (u32 row = 0; row < kRows; ++row) {
#pragma unroll
        for (u32 i = 0; i < kLanes; ++i) {
          if (element + i < fill.numel) data[element + i] = rows[row].elements[i];
        }
        element += fill.lanes;
      }
    }
  }
}

// Fills elements that lie anywhere, of whichever type the launch says. A thread makes one subsequence. `Distribution` makes
// numbers of one type, which `store` turns into elements.
template <class Distribution>
__device__ __forceinline__ void fill_any(const Fill &fill, const Strided &layout, const Distribution &distribution) {
  constexpr u32 kRows = Distribution::kNumbers;
  const u32 lane = blockIdx.x * kThreads + threadIdx.x;
  if (lane >= fill.lanes) return;
  const Sequence sequence(fill.philox);
  const u32 first = blockIdx.y * fill.steps;
  u64 number = sequence.first + first;
  u32 element = first * kRows * fill.lanes + lane;
  for (u32 step = 0; step < fill.steps && element < fill.numel; ++step, ++number) {
    typename Distribution::Element elements[kRows];
    distribution(philox(sequence, number, lane), elements);
#pragma unroll 1
    for (u32 row = 0; row < kRows; ++row) {
      if (element >= fill.numel) break;
      store(fill, layout.place(element), elements[0]);
#pragma unroll
      for (u32 next = 1; next < kRows; ++next) elements[next - 1] = elements[next];
      element += fill.lanes;
    }
  }
}

// ---- distributions

// The elements of a call that are made each from a uniform number: `Function` has the type that it computes in,
// `Compute`, and makes of one such number an `Element`.
template <class Function, class Compute = typename Function::Compute>
struct Uniformly;

template <class Function>
struct Uniformly<Function, float> {
  using Element = typename Function::Element;
  static constexpr u32 kNumbers = 4;
  Function function;

  __device__ __forceinline__ explicit Uniformly(const Fill &fill) : function(fill) {}

  __device__ __forceinline__ void operator()(uint4 numbers, Element (&elements)[4]) const {
    elements[0] = function(unit(numbers.x));
    elements[1] = function(unit(numbers.y));
    elements[2] = function(unit(numbers.z));
    elements[3] = function(unit(numbers.w));
  }
};

template <class Function>
struct Uniformly<Function, double> {
  using Element = typename Function::Element;
  static constexpr u32 kNumbers = 2;
  Function function;

  __device__ __forceinline__ explicit Uniformly(const Fill &fill) : function(fill) {}

  __device__ __forceinline__ void operator()(uint4 numbers, Element (&elements)[2]) const {
    elements[0] = function(unit64(bits53(numbers.x, numbers.y)));
    elements[1] = function(unit64(bits53(numbers.z, numbers.w)));
  }
};

// An argument of a launch in the type that is computed in.
template <class Compute>
__device__ __forceinline__ Compute argument(const Fill &fill, int index);

template <>
__device__ __forceinline__ float argument<float>(const Fill &fill, int index) {
  return __uint_as_float(low(fill.arguments[index]));
}

template <>
__device__ __forceinline__ double argument<double>(const Fill &fill, int index) {
  return __longlong_as_double(static_cast<i64>(fill.arguments[index]));
}

// The natural logarithm of a number in [2^-33, 1] by the fast instruction: the bits of __logf, without its provision for
// subnormal numbers.
__device__ __forceinline__ float fast_log(float value) {
#ifdef PLINTH_HOST
  const float binary = log2f(value);
#else
  float binary;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(binary) : "f"(value));
#endif
  return __fmul_rn(binary, 0x1.62e43p-1f);
}

}  // namespace plinth

// A kernel for elements side by side of one type.
#define PLINTH_DENSE(name, ...)                                                                       \
  extern "C" __global__ void __launch_bounds__(plinth::kThreads) name(const plinth::Fill fill) {      \
    plinth::fill_dense(fill, __VA_ARGS__(fill));                                                      \
  }

// A kernel for elements anywhere, of any type that is computed in the same one.
#define PLINTH_ANY(name, ...)                                                                         \
  extern "C" __global__ void __launch_bounds__(plinth::kThreads)                                      \
      name(const plinth::Fill fill, const __grid_constant__ plinth::Strided layout) {                 \
    plinth::fill_any(fill, layout, __VA_ARGS__(fill));                                                \
  }
