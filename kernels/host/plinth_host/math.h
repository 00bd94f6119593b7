// CUDA's mathematical functions beyond those of the C library, and the fast intrinsics.
#pragma once
// The C++ library's <math.h> overloads the standard functions for float, in :: and in std.
#include <math.h>

#include "integer.h"
#include "rounding.h"

namespace plinth_host {
constexpr double PI = 3.14159265358979323846, HALF_ROOT_PI = 0.88622692545275801365;
// The square root of 1/2, as the nearest double and what that lacks.
constexpr double ROOT_HALF = 0.70710678118654752440, ROOT_HALF_REST = -4.8336466567264564e-17;

// Reduces |x| modulo 2, which is exact, and then takes sine or cosine, whichever has an argument up to pi/4.
inline double sinpi(double x) {
  const double whole = fmod(fabs(x), 2.0), r = whole > 1.0 ? whole - 1.0 : whole;
  const double s = r < 0.25 ? sin(PI * r) : r <= 0.75 ? cos(PI * (0.5 - r)) : sin(PI * (1.0 - r));
  return copysign(1.0, x) * (whole > 1.0 ? -s : s);
}
inline double cospi(double x) {
  const double whole = fmod(fabs(x), 2.0), r = whole > 1.0 ? 2.0 - whole : whole;
  return r < 0.25 ? cos(PI * r) : r <= 0.75 ? sin(PI * (0.5 - r)) : -cos(PI * (1.0 - r));
}
// One step of Newton's method, with the exact error of x*y, removes the error of the two roundings.
inline double rsqrt(double x) {
  const double y = 1.0 / sqrt(x);
  if (!(x > 0.0) || isinf(x)) return y;
  const double product = x * y, rest = fma(x, y, -product);
  return fma(0.5 * y, fma(-product, y, 1.0) - rest * y, y);
}
inline double rcbrt(double x) {
  const double y = 1.0 / cbrt(x);
  if (y == 0.0 || !isfinite(y)) return y;
  return y + y * (1.0 - x * y * y * y) / 3.0;
}

// exp(x*x) * erfc(x)
inline double erfcx(double x) {
  if (x < 10.0) {
    const double square = x * x, rest = fma(x, x, -square);
    const double e = exp(square);
    return isinf(e) ? e : e * erfc(x) * (1.0 + rest);
  }
  // The asymptotic series: its terms decrease up to the hundredth.
  double term = 1.0, sum = 1.0;
  for (int n = 1; n < 20; n++) {
    term *= -(n - 0.5) / (x * x);
    sum += term;
  }
  return sum / x * (0.5 / HALF_ROOT_PI);
}
inline double erfcinv(double y);
inline double erfinv(double y) {
  // 1 - |y| is exact from 0.5 on.
  if (!(fabs(y) < 0.5)) return copysign(erfcinv(1.0 - fabs(y)), y);
  // Halley's method.
  double x = y * HALF_ROOT_PI;
  for (int i = 0; i < 4; i++) {
    const double error = (erf(x) - y) * exp(x * x) * HALF_ROOT_PI;
    x -= error / (1.0 + x * error);
  }
  return x;
}
inline double erfcinv(double y) {
  if (!(y >= 0.0 && y <= 2.0)) return NAN;
  if (y == 0.0) return INFINITY;
  if (y > 0.5) return y <= 1.5 ? erfinv(1.0 - y) : -erfcinv(2.0 - y);
  // Newton's method for log(erfc(x)), which neither underflows nor is far from a parabola. It begins at approximation
  // 26.2.23 of Abramowitz and Stegun's handbook, whose error is below 5e-4.
  const double logarithm = log(y), t = sqrt(-2.0 * (logarithm - 0.69314718055994530942));
  const double above = 2.515517 + t * (0.802853 + t * 0.010328);
  const double below = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308));
  double x = (t - above / below) * ROOT_HALF;
  for (int i = 0; i < 3; i++) {
    const double scaled = erfcx(x);
    x += ((log(scaled) - logarithm) - x * x) * scaled * HALF_ROOT_PI;
  }
  return x;
}
inline double normcdf(double x) {
  // Beyond these limits the result is 0 or 1.
  if (x < -39.0) return 0.0;
  if (x > 39.0) return 1.0;
  // The rounding of -x/sqrt(2) matters in the tail, so its error is a second argument of erfc.
  const double scaled = -x * ROOT_HALF, rest = fma(-x, ROOT_HALF, -scaled) - x * ROOT_HALF_REST;
  return 0.5 * (erfc(scaled) - rest * exp(-scaled * scaled) / HALF_ROOT_PI);
}
inline double normcdfinv(double p) {
  // 1 - 2p is exact in the middle, 2p everywhere.
  const double x = p > 0.25 && p < 0.75 ? erfinv(1.0 - 2.0 * p) : erfcinv(2.0 * p);
  return 0.0 - x / ROOT_HALF;
}
// The modified Bessel functions of the first kind and of order 0 or 1: the power series, whose terms have one sign, and
// the asymptotic series.
inline double bessel_i(int order, double x) {
  const double a = fabs(x);
  double term = 1.0, sum = 1.0;
  if (a <= 20.0) {
    for (int n = 1; term > 1e-17 * sum; n++) sum += term *= a * a / 4.0 / (n * static_cast<double>(n + order));
    return order == 0 ? sum + 0.0 * x : x / 2.0 * sum;
  }
  if (isnan(x) || isinf(x)) return order == 0 ? a : x;
  for (int n = 1; n < 60 && fabs(term) > 1e-17; n++) {
    term *= ((2 * n - 1) * (2 * n - 1) - 4.0 * order) / (8.0 * n * a);
    sum += term;
  }
  // exp(a) may overflow where the result does not.
  const double e = exp(0.5 * a), value = e / sqrt(2.0 * PI * a) * sum * e;
  return order == 1 && x < 0.0 ? -value : value;
}
// Scales by a power of two, so that no square overflows, nor the greatest one underflows.
inline double norm(int count, const double *values, bool reciprocal) {
  double greatest = 0.0;
  bool is_nan = false;
  for (int i = 0; i < count; i++) {
    if (isinf(values[i])) return reciprocal ? 0.0 : INFINITY;
    is_nan = is_nan || isnan(values[i]);
    greatest = fmax(greatest, fabs(values[i]));
  }
  if (is_nan) return NAN;
  if (greatest == 0.0) return reciprocal ? INFINITY : 0.0;
  const int exponent = ilogb(greatest);
  double sum = 0.0, rest = 0.0;
  for (int i = 0; i < count; i++) {
    const double value = ldexp(values[i], -exponent), square = value * value;
    const double next = sum + square;
    rest += fma(value, value, -square) + (sum > square ? (sum - next) + square : (square - next) + sum);
    sum = next;
  }
  return reciprocal ? ldexp(rsqrt(sum + rest), -exponent) : ldexp(sqrt(sum + rest), exponent);
}
inline float norm(int count, const float *values, bool reciprocal) {
  double sum = 0.0;
  bool is_infinite = false;
  for (int i = 0; i < count; i++) {
    is_infinite = is_infinite || isinf(values[i]);
    sum += static_cast<double>(values[i]) * values[i];
  }
  if (is_infinite) sum = INFINITY;
  return static_cast<float>(reciprocal ? rsqrt(sum) : sqrt(sum));
}
// As a GPU has them: the one that is a number, and -0 is less than +0.
template <typename T> inline T lesser(T a, T b) {
  if (a != a) return b;
  return b != b || a < b || (a == b && signbit(a)) ? a : b;
}
template <typename T> inline T greater(T a, T b) {
  if (a != a) return b;
  return b != b || b < a || (a == b && signbit(b)) ? a : b;
}
}  // namespace plinth_host

// These are `inline` and noexcept, not static: newer C libraries declare some of the names, which then keep C linkage.
// The float forms compute in double and round once.
#define PLINTH_FUNCTION(name, function, function_for_float)               \
  inline double name(double x) noexcept { return plinth_host::function; } \
  inline float name##f(float a) noexcept {                                \
    const double x = a;                                                   \
    return static_cast<float>(function_for_float);                        \
  }                                                                       \
  inline float name(float x) noexcept { return name##f(x); }
#define PLINTH_SAME_FUNCTION(name, function) PLINTH_FUNCTION(name, function, plinth_host::function)
PLINTH_FUNCTION(rsqrt, rsqrt(x), 1.0 / sqrt(x))
PLINTH_FUNCTION(rcbrt, rcbrt(x), 1.0 / cbrt(x))
PLINTH_FUNCTION(normcdf, normcdf(x), 0.5 * erfc(-x * plinth_host::ROOT_HALF))
PLINTH_SAME_FUNCTION(sinpi, sinpi(x))
PLINTH_SAME_FUNCTION(cospi, cospi(x))
PLINTH_SAME_FUNCTION(erfinv, erfinv(x))
PLINTH_SAME_FUNCTION(erfcinv, erfcinv(x))
PLINTH_SAME_FUNCTION(erfcx, erfcx(x))
PLINTH_SAME_FUNCTION(normcdfinv, normcdfinv(x))
PLINTH_SAME_FUNCTION(cyl_bessel_i0, bessel_i(0, x))
PLINTH_SAME_FUNCTION(cyl_bessel_i1, bessel_i(1, x))
#undef PLINTH_SAME_FUNCTION
#undef PLINTH_FUNCTION

#define PLINTH_NORM(name, parameters_double, parameters_float, reciprocal, count, ...) \
  inline double name parameters_double noexcept {                                      \
    const double values[] = {__VA_ARGS__};                                             \
    return plinth_host::norm(count, values, reciprocal);                               \
  }                                                                                    \
  inline float name##f parameters_float noexcept {                                     \
    const float values[] = {__VA_ARGS__};                                              \
    return plinth_host::norm(count, values, reciprocal);                               \
  }                                                                                    \
  inline float name parameters_float noexcept { return name##f(__VA_ARGS__); }
PLINTH_NORM(rhypot, (double a, double b), (float a, float b), true, 2, a, b)
PLINTH_NORM(norm3d, (double a, double b, double c), (float a, float b, float c), false, 3, a, b, c)
PLINTH_NORM(rnorm3d, (double a, double b, double c), (float a, float b, float c), true, 3, a, b, c)
PLINTH_NORM(norm4d, (double a, double b, double c, double d), (float a, float b, float c, float d), false, 4,
            a, b, c, d)
PLINTH_NORM(rnorm4d, (double a, double b, double c, double d), (float a, float b, float c, float d), true, 4,
            a, b, c, d)
#undef PLINTH_NORM
inline double norm(int count, const double *values) noexcept { return plinth_host::norm(count, values, false); }
inline double rnorm(int count, const double *values) noexcept { return plinth_host::norm(count, values, true); }
inline float normf(int count, const float *values) noexcept { return plinth_host::norm(count, values, false); }
inline float rnormf(int count, const float *values) noexcept { return plinth_host::norm(count, values, true); }

inline void sincospi(double x, double *sine, double *cosine) noexcept { *sine = sinpi(x), *cosine = cospi(x); }
inline void sincospif(float x, float *sine, float *cosine) noexcept { *sine = sinpif(x), *cosine = cospif(x); }
inline void sincospi(float x, float *sine, float *cosine) noexcept { sincospif(x, sine, cosine); }
inline double fdivide(double x, double y) noexcept { return x / y; }
inline float fdividef(float x, float y) noexcept { return x / y; }
inline float fdivide(float x, float y) noexcept { return x / y; }

// The C library has these for double, and for float with an f at the end of the name. They must not be defined from
// others: compilers replace a call of both sin and cos by sincos, and pow(10, x) by exp10.
inline void sincos(float x, float *sine, float *cosine) noexcept { sincosf(x, sine, cosine); }
inline float exp10(float x) noexcept { return exp10f(x); }
inline float j0(float x) noexcept { return static_cast<float>(j0(static_cast<double>(x))); }
inline float j1(float x) noexcept { return static_cast<float>(j1(static_cast<double>(x))); }
inline float jn(int n, float x) noexcept { return static_cast<float>(jn(n, static_cast<double>(x))); }
inline float y0(float x) noexcept { return static_cast<float>(y0(static_cast<double>(x))); }
inline float y1(float x) noexcept { return static_cast<float>(y1(static_cast<double>(x))); }
inline float yn(int n, float x) noexcept { return static_cast<float>(yn(n, static_cast<double>(x))); }

static inline float min(float a, float b) { return plinth_host::lesser(a, b); }
static inline float max(float a, float b) { return plinth_host::greater(a, b); }
#define PLINTH_MIN_MAX(first, second)                                                       \
  static inline double min(first a, second b) { return plinth_host::lesser<double>(a, b); } \
  static inline double max(first a, second b) { return plinth_host::greater<double>(a, b); }
PLINTH_MIN_MAX(double, double)
PLINTH_MIN_MAX(float, double)
PLINTH_MIN_MAX(double, float)
#undef PLINTH_MIN_MAX

// The fast intrinsics. A GPU approximates, to a few units in the last place or a documented absolute error; here each
// is computed in double and rounded once. __powf keeps the domain of CUDA's definition, exp2(y * log2(x)), which is NaN
// for x < 0.
#define PLINTH_FAST(name, expression)      \
  inline float name(float a) noexcept {    \
    const double x = a;                    \
    return static_cast<float>(expression); \
  }
PLINTH_FAST(__sinf, sin(x))
PLINTH_FAST(__cosf, cos(x))
PLINTH_FAST(__tanf, tan(x))
PLINTH_FAST(__tanhf, tanh(x))
PLINTH_FAST(__expf, exp(x))
PLINTH_FAST(__exp10f, exp10(x))
PLINTH_FAST(__logf, log(x))
PLINTH_FAST(__log2f, log2(x))
PLINTH_FAST(__log10f, log10(x))
#undef PLINTH_FAST
inline void __sincosf(float x, float *sine, float *cosine) noexcept { *sine = __sinf(x), *cosine = __cosf(x); }
inline float __powf(float x, float y) noexcept {
  return static_cast<float>(exp2(y * log2(static_cast<double>(x))));
}
inline float __fdividef(float x, float y) noexcept { return x / y; }
inline float __saturatef(float x) noexcept { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
