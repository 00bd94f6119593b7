// Elements of 16 bits, side by side. Their kernels are compiled for compute_80, which rounds two numbers to such elements in
// one instruction; older devices fill them by the kernels for any type.
//
// A thread makes eight neighbouring subsequences, two after two, for two neighbouring elements share a register.
#pragma once

#include "inverse.cuh"
#include "normal.cuh"
#include "uniform.cuh"

#ifdef PLINTH_HOST
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace plinth {

#ifdef PLINTH_HOST
struct F16 {
  static __device__ __forceinline__ u32 pack(float first, float second) {
    return __half_as_ushort(__float2half(first)) | static_cast<u32>(__half_as_ushort(__float2half(second))) << 16;
  }
};

struct Bf16 {
  static __device__ __forceinline__ u32 pack(float first, float second) {
    return __bfloat16_as_ushort(__float2bfloat16(first)) |
           static_cast<u32>(__bfloat16_as_ushort(__float2bfloat16(second))) << 16;
  }
};
#else
struct F16 {
  static __device__ __forceinline__ u32 pack(float first, float second) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
  }
};

struct Bf16 {
  static __device__ __forceinline__ u32 pack(float first, float second) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
  }
};
#endif

// What `Distribution` makes in float, rounded.
template <class Format, class Distribution>
struct Half : Distribution {
  using Distribution::Distribution;

  __device__ __forceinline__ u32 pack(float first, float second) const { return Format::pack(first, second); }
};

// Here it is the rounded number that is compared with `high`. Both formats are compared as f16: bits that are equal are
// equal numbers there, too, but for NaN and for the two zeros, and a launch whose `high` has such bits is not made by
// this kernel, but for an f16's zeros, which are to be equal. `kStandard` is for low 0 and high 1.
template <class Format, bool kStandard>
struct HalfUniform {
  using Element = float;
  using Compute = float;
  float from;
  float range;
  u32 from2;
  u32 to2;

  __device__ __forceinline__ explicit HalfUniform(const Fill &fill)
      : from(argument<float>(fill, 0)),
        range(argument<float>(fill, 1)),
        from2(Format::pack(from, from)),
        to2(Format::pack(argument<float>(fill, 2), argument<float>(fill, 2))) {}

  __device__ __forceinline__ float operator()(float u) const { return kStandard ? u : __fmaf_rn(u, range, from); }
};

template <class Format, bool kStandard>
struct Half<Format, Uniformly<HalfUniform<Format, kStandard>>> : Uniformly<HalfUniform<Format, kStandard>> {
  using Base = Uniformly<HalfUniform<Format, kStandard>>;
  using Base::Base;

  __device__ __forceinline__ u32 pack(float first, float second) const {
    const u32 both = Format::pack(first, second);
    const u32 is_to = __heq2_mask(__half2(as_half(both)), __half2(as_half(this->function.to2)));
    return (both & ~is_to) | (this->function.from2 & is_to);
  }

 private:
  static __device__ __forceinline__ __half2_raw as_half(u32 bits) {
    return {static_cast<u16>(bits), static_cast<u16>(bits >> 16)};
  }
};

template <class Distribution>
__device__ __forceinline__ void fill_half(const Fill &fill, const Distribution &distribution) {
  constexpr u32 kRows = 4;
  constexpr u32 kLanes = 8;
  const u32 lane = (blockIdx.x * kThreads + threadIdx.x) * kLanes;
  if (lane >= fill.lanes) return;
  const Sequence sequence(fill.philox);
  u16 *const data = reinterpret_cast<u16 *>(fill.data);
  const u32 first = blockIdx.y * fill.steps;
  u64 number = sequence.first + first;
  Lanes<kLanes> neighbours(sequence, lane, number);
  u32 element = first * kRows * fill.lanes + lane;  // does not wrap: see fill_dense
  for (u32 step = 0; step < fill.steps && element < fill.numel; ++step, ++number) {
    neighbours.follow(sequence, lane, number);
    const Call call(sequence, number);
    u32 rows[kRows][kLanes / 2];
#pragma unroll
    for (u32 i = 0; i < kLanes; i += 2) {
      float left[kRows], right[kRows];
      distribution(philox(sequence, call, neighbours.lanes[i]), left);
      distribution(philox(sequence, call, neighbours.lanes[i + 1]), right);
#pragma unroll
      for (u32 row = 0; row < kRows; ++row) rows[row][i / 2] = distribution.pack(left[row], right[row]);
    }
#pragma unroll
    for (u32 row = 0; row < kRows; ++row, element += fill.lanes) {
      if (element + kLanes <= fill.numel) {
        *reinterpret_cast<uint4 *>(data + element) = make_uint4(rows[row][0], rows[row][1], rows[row][2], rows[row][3]);
      } else if (element < fill.numel) {
        // The end of the last row.
        u32 words[kLanes / 2] = {rows[row][0], rows[row][1], rows[row][2], rows[row][3]};
#pragma unroll 1
        for (u32 i = element; i < fill.numel; ++i) {
          data[i] = static_cast<u16>(words[0]);
          words[0] = __byte_perm(words[0], words[1], 0x5432);
          words[1] = __byte_perm(words[1], words[2], 0x5432);
          words[2] = __byte_perm(words[2], words[3], 0x5432);
          words[3] >>= 16;
        }
      }
    }
  }
}

}  // namespace plinth

#define PLINTH_HALF(name, ...)                                                                        \
  extern "C" __global__ void __launch_bounds__(plinth::kThreads) name(const plinth::Fill fill) {      \
    plinth::fill_half(fill, plinth::Half<__VA_ARGS__>(fill));                                         \
  }
