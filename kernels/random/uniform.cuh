// Uniform numbers: low + u * (high - low), for u in (0, 1]; what comes out as `high` becomes `low`.
//
// arguments: low, high - low, high; in the type that is computed in.
#pragma once

#include "fill.cuh"

namespace plinth {

template <class T>
struct Uniform {
  using Element = T;
  using Compute = T;
  T from;
  T range;
  T to;

  __device__ __forceinline__ explicit Uniform(const Fill &fill)
      : from(argument<T>(fill, 0)), range(argument<T>(fill, 1)), to(argument<T>(fill, 2)) {}

  __device__ __forceinline__ T operator()(T u) const {
    const T value = fma(u, range, from);
    return value == to ? from : value;
  }
};

// The same in [0, 1), where low + u * (high - low) is u.
struct StandardUniform {
  using Element = float;
  using Compute = float;

  __device__ __forceinline__ explicit StandardUniform(const Fill &) {}
  __device__ __forceinline__ float operator()(float u) const { return u == 1.0f ? 0.0f : u; }
};

// The same where the element's type decides what is `high`.
struct RoundedUniform {
  using Element = float;
  using Compute = float;
  float from;
  float range;
  float to;
  u32 code;

  __device__ __forceinline__ explicit RoundedUniform(const Fill &fill)
      : from(argument<float>(fill, 0)), range(argument<float>(fill, 1)), to(argument<float>(fill, 2)), code(fill.code) {}

  __device__ __forceinline__ float operator()(float u) const {
    const float value = rounded(code, __fmaf_rn(u, range, from));
    return value == to ? from : value;
  }
};

}  // namespace plinth
