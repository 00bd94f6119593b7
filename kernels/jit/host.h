// What CUDA has beside the standard's functions, for the machine's own compiler.
#ifndef __CUDACC_RTC__

// As CUDA has them: of two types of one kind, and of floating numbers the one that is a number.
template <typename A, typename B>
using plinth_common = typename std::enable_if<
    std::is_arithmetic<A>::value && std::is_arithmetic<B>::value &&
        std::is_floating_point<A>::value == std::is_floating_point<B>::value,
    typename std::common_type<A, B>::type>::type;
template <typename A, typename B> inline plinth_common<A, B> min(A a, B b) {
  typedef plinth_common<A, B> T;
  if constexpr (std::is_floating_point<T>::value) return std::fmin((T)a, (T)b);
  return (T)b < (T)a ? (T)b : (T)a;
}
template <typename A, typename B> inline plinth_common<A, B> max(A a, B b) {
  typedef plinth_common<A, B> T;
  if constexpr (std::is_floating_point<T>::value) return std::fmax((T)a, (T)b);
  return (T)a < (T)b ? (T)b : (T)a;
}

namespace plinth_host {
template <typename To, typename From> inline To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits are as many as there are");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

constexpr double PI = 3.14159265358979323846, ROOT_PI = 1.77245385090551602730, ROOT_2 = 1.41421356237309504880;

// Young C libraries have the next three families, too, of double alone: see below.
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float rsqrt(float x) { return 1.0f / std::sqrt(x); }
inline float rsqrtf(float x) { return rsqrt(x); }
// x modulo 2 is exact, and what is left of it is brought to where sine and cosine are: zeros are zeros.
inline double sinpi(double x) {
  double r = std::fmod(x, 2.0);
  if (r > 1.0) r -= 2.0;
  if (r < -1.0) r += 2.0;
  if (r > 0.5) r = 1.0 - r;
  if (r < -0.5) r = -1.0 - r;
  return std::sin(PI * r);
}
inline double cospi(double x) {
  double r = std::fabs(std::fmod(x, 2.0));
  if (r > 1.0) r = 2.0 - r;
  return r > 0.25 ? std::sin(PI * (0.5 - r)) : std::cos(PI * r);
}

inline float sinpi(float x) { return (float)sinpi((double)x); }
inline float cospi(float x) { return (float)cospi((double)x); }
inline float sinpif(float x) { return sinpi(x); }
inline float cospif(float x) { return cospi(x); }

// Halley's method from the rational approximation 26.2.22 of Abramowitz and Stegun's handbook: three steps are enough for
// the last place but one.
inline double erfcinv(double y) {
  if (!(y >= 0.0 && y <= 2.0)) return NAN;
  if (y == 0.0 || y == 2.0) return y == 0.0 ? INFINITY : -INFINITY;
  const double tail = y < 1.0 ? y : 2.0 - y;
  const double t = std::sqrt(-2.0 * std::log(tail / 2.0));
  double x = ((t * 0.04481 + 0.99229) * t + 1.0);
  x = (t - (2.30753 + t * 0.27061) / x) / ROOT_2;
  for (int step = 0; step < 3; step++) {
    const double error = std::erfc(x) - tail;
    x += error / (2.0 / ROOT_PI * std::exp(-x * x) - x * error);
  }
  return y < 1.0 ? x : -x;
}
inline double erfinv(double y) {
  // Near 0 the distance to 1 has lost what y has.
  if (!(std::fabs(y) < 0.5)) return y < 0.0 ? -erfcinv(1.0 + y) : erfcinv(1.0 - y);
  double x = y * ROOT_PI / 2.0;
  for (int step = 0; step < 4; step++) {
    const double error = std::erf(x) - y;
    x -= error / (2.0 / ROOT_PI * std::exp(-x * x) + x * error);
  }
  return x;
}
inline double erfcx(double x) {
  if (x < 10.0) return std::exp(x * x) * std::erfc(x);
  // The asymptotic series, whose terms fall until the hundredth here.
  double term = 1.0, sum = 1.0;
  for (int n = 1; n < 20; n++) {
    term *= -(2.0 * n - 1.0) / (2.0 * x * x);
    sum += term;
  }
  return sum / (x * ROOT_PI);
}
inline double normcdf(double x) { return 0.5 * std::erfc(-x / ROOT_2); }
inline double normcdfinv(double p) { return -ROOT_2 * erfcinv(2.0 * p); }
// The series of the modified Bessel functions, whose terms are all of one sign.
inline double bessel_i(int order, double x) {
  const double quarter = x * x / 4.0;
  double term = order == 0 ? 1.0 : x / 2.0, sum = term;
  for (int n = 1; std::fabs(term) > 1e-17 * std::fabs(sum) && std::isfinite(sum); n++) {
    term *= quarter / (n * (n + (double)order));
    sum += term;
  }
  return sum;
}
// As a GPU converts: what is no number is 0, and what is out of reach the nearest that can be.
template <typename To> inline To whole(double value) {
  if (value != value) return 0;
  if (value <= (double)std::numeric_limits<To>::min()) return std::numeric_limits<To>::min();
  if (value >= (double)std::numeric_limits<To>::max()) return std::numeric_limits<To>::max();
  return (To)value;
}
}  // namespace plinth_host

#define PLINTH_REAL_1(name, expression)                                     \
  inline double name(double x) { return expression; }                      \
  inline float name(float x) { return (float)name((double)x); }            \
  inline float name##f(float x) { return (float)name((double)x); }
PLINTH_REAL_1(rcbrt, 1.0 / std::cbrt(x))
PLINTH_REAL_1(erfinv, plinth_host::erfinv(x))
PLINTH_REAL_1(erfcinv, plinth_host::erfcinv(x))
PLINTH_REAL_1(erfcx, plinth_host::erfcx(x))
PLINTH_REAL_1(normcdf, plinth_host::normcdf(x))
PLINTH_REAL_1(normcdfinv, plinth_host::normcdfinv(x))
PLINTH_REAL_1(cyl_bessel_i0, plinth_host::bessel_i(0, x))
PLINTH_REAL_1(cyl_bessel_i1, plinth_host::bessel_i(1, x))
#undef PLINTH_REAL_1
// Not functions of these names: where the C library has one, that would be in their way.
#define rsqrt(...) ::plinth_host::rsqrt(__VA_ARGS__)
#define rsqrtf(...) ::plinth_host::rsqrtf(__VA_ARGS__)
#define sinpi(...) ::plinth_host::sinpi(__VA_ARGS__)
#define sinpif(...) ::plinth_host::sinpif(__VA_ARGS__)
#define cospi(...) ::plinth_host::cospi(__VA_ARGS__)
#define cospif(...) ::plinth_host::cospif(__VA_ARGS__)
inline double rhypot(double x, double y) { return 1.0 / std::hypot(x, y); }
inline float rhypot(float x, float y) { return (float)(1.0 / std::hypot((double)x, (double)y)); }
inline float rhypotf(float x, float y) { return rhypot(x, y); }
inline float fdividef(float x, float y) { return x / y; }
inline void sincospi(double x, double *sine, double *cosine) { *sine = sinpi(x), *cosine = cospi(x); }
inline void sincospif(float x, float *sine, float *cosine) { *sine = sinpi(x), *cosine = cospi(x); }

// The fast ones are no faster here, nor rougher.
inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return (float)std::pow(10.0, (double)x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __log10f(float x) { return std::log10(x); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __tanf(float x) { return std::tan(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return std::fmin(std::fmax(x, 0.0f), 1.0f); }

// Arithmetic that rounds to the nearest, as all does here.
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return (float)(1.0 / std::sqrt((double)x)); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __fma_rn(double x, double y, double z) { return std::fma(x, y, z); }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline double __dsqrt_rn(double x) { return std::sqrt(x); }

#define PLINTH_WHOLE(name, from, to)                                                              \
  inline to name##_rn(from x) { return plinth_host::whole<to>(std::nearbyint((double)x)); }       \
  inline to name##_rz(from x) { return plinth_host::whole<to>(std::trunc((double)x)); }           \
  inline to name##_ru(from x) { return plinth_host::whole<to>(std::ceil((double)x)); }            \
  inline to name##_rd(from x) { return plinth_host::whole<to>(std::floor((double)x)); }
PLINTH_WHOLE(__float2int, float, int)
PLINTH_WHOLE(__float2uint, float, unsigned)
PLINTH_WHOLE(__float2ll, float, long long)
PLINTH_WHOLE(__float2ull, float, unsigned long long)
PLINTH_WHOLE(__double2int, double, int)
PLINTH_WHOLE(__double2uint, double, unsigned)
PLINTH_WHOLE(__double2ll, double, long long)
PLINTH_WHOLE(__double2ull, double, unsigned long long)
#undef PLINTH_WHOLE
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline float __ll2float_rn(long long x) { return (float)x; }
inline double __int2double_rn(int x) { return x; }
inline double __ll2double_rn(long long x) { return (double)x; }
inline float __double2float_rn(double x) { return (float)x; }

inline int __float_as_int(float x) { return plinth_host::bits<int>(x); }
inline unsigned __float_as_uint(float x) { return plinth_host::bits<unsigned>(x); }
inline float __int_as_float(int x) { return plinth_host::bits<float>(x); }
inline float __uint_as_float(unsigned x) { return plinth_host::bits<float>(x); }
inline long long __double_as_longlong(double x) { return plinth_host::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return plinth_host::bits<double>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned turned = 0;
  for (int bit = 0; bit < 32; bit++) turned |= (x >> bit & 1u) << (31 - bit);
  return turned;
}
inline unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
inline int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((unsigned long long)x * y >> 32); }
inline long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)x * y >> 64);
}

#endif
