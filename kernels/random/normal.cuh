// Normal numbers by Box and Muller ("A note on the generation of random normal deviates", 1958), as cuRAND pairs the
// numbers: a radius from the first of a pair, an angle from the second; the sine comes before the cosine.
//
// arguments: mean, standard deviation; in the type that is computed in.
#pragma once

#include "fill.cuh"

namespace plinth {

// The correctly rounded square root of 0 or of a number far from the ends of the range: an estimate, and one step of
// Newton's method with the exact remainder. sqrtf does the same behind a test for such ends.
__device__ __forceinline__ float plain_sqrt(float value) {
#ifdef PLINTH_HOST
  const float inverse = rsqrtf(fmaxf(value, 0x1p-60f));
#else
  float inverse;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(fmaxf(value, 0x1p-60f)));
#endif
  const float root = __fmul_rn(value, inverse);
  const float remainder = __fmaf_rn(-root, root, value);
  return __fmaf_rn(remainder, __fmul_rn(inverse, 0.5f), root);
}

// The natural logarithm of a number in [2^-33, 1], every bit as CUDA's logf has it, without the tests for what is not such
// a number: the number is 2^e * (1 + f) with f in [-1/3, 1/3), and ln(1 + f) is the polynomial that logf takes.
__device__ __forceinline__ float unit_log(float value) {
  const int bits = __float_as_int(value);
  const int exponent = (bits - 0x3f2aaaab) & static_cast<int>(0xff800000);  // e * 2^23, with 2/3 rounded to 1/2
  const float f = __int_as_float(bits - exponent) - 1.0f;
  float series = __fmaf_rn(-0x1.0aa04ep-3f, f, 0x1.2073ecp-3f);
  series = __fmaf_rn(series, f, -0x1.f19b98p-4f);
  series = __fmaf_rn(series, f, 0x1.1e52aap-3f);
  series = __fmaf_rn(series, f, -0x1.55b172p-3f);
  series = __fmaf_rn(series, f, 0x1.99da16p-3f);
  series = __fmaf_rn(series, f, -0x1.fffe44p-3f);
  series = __fmaf_rn(series, f, 0x1.5554fp-2f);
  series = __fmaf_rn(series, f, -0.5f);
  return __fmaf_rn(static_cast<float>(exponent), 0x1.62e43p-24f, __fmaf_rn(__fmul_rn(f, series), f, f));
}

// With `kPlus`, 0 is added to both, so that they are never -0.
template <bool kPlus>
__device__ __forceinline__ void box_muller(u32 first, u32 second, float &sine, float &cosine) {
  constexpr float kTurn = 0x1p-32f * 6.2831855f;
  const float u = unit(first);
  const float angle = __fmaf_rn(__uint2float_rn(second), kTurn, kTurn / 2);
  const float radius = plain_sqrt(-2.0f * unit_log(u));
  sine = kPlus ? __fmaf_rn(radius, __sinf(angle), 0.0f) : __fmul_rn(radius, __sinf(angle));
  cosine = kPlus ? __fmaf_rn(radius, __cosf(angle), 0.0f) : __fmul_rn(radius, __cosf(angle));
}

__device__ __forceinline__ void box_muller(u64 first, u64 second, double &sine, double &cosine) {
  const double u = unit64(first);
  const double angle = __fma_rn(exact(second), 0x1p-52, 0x1p-53);  // in units of pi
  const double radius = sqrt(-2.0 * log(u));
  sincospi(angle, &sine, &cosine);
  sine *= radius;
  cosine *= radius;
}

// The elements of a call that are made each from a normal number.
template <class Function, class Compute = typename Function::Compute>
struct Normally;

template <class Function>
struct Normally<Function, float> {
  using Element = typename Function::Element;
  static constexpr u32 kNumbers = 4;
  Function function;

  __device__ __forceinline__ explicit Normally(const Fill &fill) : function(fill) {}

  __device__ __forceinline__ void operator()(uint4 numbers, Element (&elements)[4]) const {
    float sine, cosine;
    box_muller<Function::kStandard>(numbers.x, numbers.y, sine, cosine);
    elements[0] = function(sine);
    elements[1] = function(cosine);
    box_muller<Function::kStandard>(numbers.z, numbers.w, sine, cosine);
    elements[2] = function(sine);
    elements[3] = function(cosine);
  }
};

template <class Function>
struct Normally<Function, double> {
  using Element = typename Function::Element;
  static constexpr u32 kNumbers = 2;
  Function function;

  __device__ __forceinline__ explicit Normally(const Fill &fill) : function(fill) {}

  __device__ __forceinline__ void operator()(uint4 numbers, Element (&elements)[2]) const {
    double sine, cosine;
    box_muller(bits53(numbers.x, numbers.y), bits53(numbers.z, numbers.w), sine, cosine);
    elements[0] = function(sine);
    elements[1] = function(cosine);
  }
};

template <class T>
struct Normal {
  using Element = T;
  using Compute = T;
  static constexpr bool kStandard = false;
  Compute mean;
  Compute deviation;

  __device__ __forceinline__ explicit Normal(const Fill &fill)
      : mean(argument<Compute>(fill, 0)), deviation(argument<Compute>(fill, 1)) {}

  __device__ __forceinline__ T operator()(Compute number) const {
    return fma(number, deviation, mean);
  }
};

// With a mean of 0 and a deviation of 1, where number * deviation + mean is the number, but for its sign if that is 0.
struct StandardNormal {
  using Element = float;
  using Compute = float;
  static constexpr bool kStandard = true;

  __device__ __forceinline__ explicit StandardNormal(const Fill &) {}
  __device__ __forceinline__ float operator()(float number) const { return number; }
};

// e to the power of a normal number.
template <class T>
struct LogNormal {
  using Element = T;
  using Compute = T;
  static constexpr bool kStandard = false;
  Normal<Compute> normal;

  __device__ __forceinline__ explicit LogNormal(const Fill &fill) : normal(fill) {}

  __device__ __forceinline__ T operator()(Compute number) const { return power(normal(number)); }

 private:
  static __device__ __forceinline__ float power(float value) { return __expf(value); }
  static __device__ __forceinline__ double power(double value) { return exp(value); }
};

}  // namespace plinth
