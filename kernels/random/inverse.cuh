// Distributions whose inverse a uniform number in (0, 1] is put into: exponential, Cauchy, geometric.
#pragma once

#include "fill.cuh"

namespace plinth {

// -ln(u) / lambda. Where u is 1, or so near that the fast logarithm would be 0, half an epsilon stands for -ln(u): the
// distribution has no 0.
//
// arguments: -1 / lambda.
template <class T>
struct Exponential {
  using Element = T;
  using Compute = T;
  Compute factor;

  __device__ __forceinline__ explicit Exponential(const Fill &fill) : factor(argument<Compute>(fill, 0)) {}

  __device__ __forceinline__ T operator()(float u) const {
    constexpr float kHalf = 0x1p-24f;
    return __fmul_rn(factor, u >= 1.0f - kHalf ? -kHalf : fast_log(u));
  }
  __device__ __forceinline__ T operator()(double u) const {
    constexpr double kHalf = 0x1p-53;
    return __dmul_rn(factor, u >= 1.0 - kHalf ? -kHalf : log(u));
  }
};

// median + sigma * tan(pi * (u - 1/2)). The fast tangent is infinite at the ends, so u keeps an epsilon's distance from
// them.
//
// arguments: median, sigma.
template <class T>
struct Cauchy {
  using Element = T;
  using Compute = T;
  Compute median;
  Compute sigma;

  __device__ __forceinline__ explicit Cauchy(const Fill &fill)
      : median(argument<Compute>(fill, 0)), sigma(argument<Compute>(fill, 1)) {}

  __device__ __forceinline__ T operator()(float u) const {
    constexpr float kEpsilon = 0x1p-23f;
    u = u > 1.0f - kEpsilon ? 1.0f - kEpsilon : u;
    u = u < kEpsilon ? kEpsilon : u;
    return __fmaf_rn(sigma, __tanf(__fmul_rn(3.14159265358979323846f, u - 0.5f)), median);
  }
  __device__ __forceinline__ T operator()(double u) const {
    return __fma_rn(sigma, tan(__dmul_rn(3.14159265358979323846, u - 0.5)), median);
  }
};

// How many trials the first success takes: ceil(ln(u) / ln(1 - p)).
//
// arguments: p.
template <class T, class Of = T>
struct Geometric {
  using Element = T;
  using Compute = Of;
  Compute denominator;

  __device__ __forceinline__ explicit Geometric(const Fill &fill) : denominator(of(argument<Compute>(fill, 0))) {}

  __device__ __forceinline__ T operator()(float u) const {
    return static_cast<T>(ceilf(__fdiv_rn(fast_log(u), denominator)));
  }
  __device__ __forceinline__ T operator()(double u) const {
    return static_cast<T>(ceil(__ddiv_rn(log(u), denominator)));
  }

 private:
  static __device__ __forceinline__ float of(float p) { return __logf(1.0f + -p); }
  static __device__ __forceinline__ double of(double p) { return log1p(-p); }
};

}  // namespace plinth
