// Checks the intrinsics with a rounding mode, the conversions between floats and integers, and the 16-bit types' fused
// operations, against exact arithmetic. Compile and run:
//   c++ -std=c++17 -O2 -ffp-contract=off -I kernels/host tests/host_kernels/rounding.cpp -o rounding && ./rounding
#include "plinth_host/math.h"

#include <stdio.h>

#include "cuda_fp8.h"
#include "exact.h"

static int failures = 0;
#define CHECK(condition, ...)                                \
  do {                                                       \
    if (!(condition) && ++failures <= 40) {                  \
      printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      printf(__VA_ARGS__);                                   \
      printf("\n");                                          \
    }                                                        \
  } while (0)

static uint64_t state = 0x9e3779b97f4a7c15u;
static uint64_t random_bits() {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}
// Any number: all exponents, short significands, zeros, limits.
static float random_float() {
  static const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, 0x1p-149f, -0x1p-149f, 0x1.fffffep127f, -0x1.fffffep127f,
                                  0x1p-126f};
  uint32_t bits = static_cast<uint32_t>(random_bits());
  if (random_bits() % 16 == 0) return special[random_bits() % 9];
  if (random_bits() % 2) bits = (bits & 0x807fffffu) | (0x3f800000u + ((bits >> 23 & 31) << 23) - (15u << 23));
  if (random_bits() % 2) bits &= ~0u << random_bits() % 24;
  const float value = __uint_as_float(bits);
  return isfinite(value) ? value : random_float();
}
static double random_double() {
  static const double special[] = {0.0, -0.0, 1.0, -1.0, 0x1p-1074, -0x1p-1074, 0x1.fffffffffffffp1023, 0x1p-1022,
                                   0x1p-537};
  uint64_t bits = random_bits();
  if (random_bits() % 16 == 0) return special[random_bits() % 9];
  if (random_bits() % 2) bits = (bits & 0x800fffffffffffffu) | (1008 + (bits >> 52 & 31)) << 52;
  if (random_bits() % 2) bits &= ~0ull << random_bits() % 53;
  const double value = plinth_host::bit_cast<double>(bits);
  return isfinite(value) ? value : random_double();
}
static int64_t random_integer() {
  const int64_t value = static_cast<int64_t>(random_bits() >> random_bits() % 64 & ~0ull << random_bits() % 64);
  return random_bits() % 2 ? value : static_cast<int64_t>(0 - static_cast<uint64_t>(value));
}

#define DIRECTED(check) check(z) check(u) check(d)
static const char *const SHOW = "%a %a %a: %a";

static void check_float_arithmetic() {
  for (int i = 0; i < 30000; i++) {
    const float a = random_float(), b = i % 8 == 0 ? -a : random_float();
    const float c = i % 16 == 1 && isfinite(a * b) ? -a * b : random_float();
#define CHECK_OPERATION(mode, name, exact, x, y, z)                                                   \
    {                                                                                                 \
      const float result = name;                                                                      \
      CHECK(is_rounded((#mode)[0], result, [&](float r) { return (exact); }), SHOW, x, y, z, result); \
    }
#define CHECK_MODE(m)                                                                                      \
    CHECK_OPERATION(m, __fadd_r##m(a, b), Exact(a).add(b, 1).add(-r, 1).sign(), a, b, 0.0)                 \
    CHECK_OPERATION(m, __fsub_r##m(a, b), Exact(a).add(-b, 1).add(-r, 1).sign(), a, b, 0.0)                \
    CHECK_OPERATION(m, __fmul_r##m(a, b), Exact().add(a, b).add(-r, 1).sign(), a, b, 0.0)                  \
    CHECK_OPERATION(m, __fmaf_r##m(a, b, c), Exact().add(a, b).add(c, 1).add(-r, 1).sign(), a, b, c)       \
    if (b != 0) {                                                                                          \
      CHECK_OPERATION(m, __fdiv_r##m(a, b), Exact(a).add(-r, b).sign() * (b < 0 ? -1 : 1), a, b, 0.0)      \
      CHECK_OPERATION(m, __frcp_r##m(b), Exact(1).add(-r, b).sign() * (b < 0 ? -1 : 1), b, 0.0, 0.0)       \
    }                                                                                                      \
    CHECK_OPERATION(m, __fsqrt_r##m(fabsf(a)), r < 0 ? 1 : Exact(fabsf(a)).add(-r, r).sign(), a, 0.0, 0.0) \
    {                                                                                                      \
      const double wide = i % 2 ? random_double() : static_cast<double>(a) * b;                            \
      CHECK_OPERATION(m, __double2float_r##m(wide), Exact(wide).add(-r, 1).sign(), wide, 0.0, 0.0)         \
    }
    DIRECTED(CHECK_MODE)
#undef CHECK_MODE
#undef CHECK_OPERATION
    CHECK(__float_as_int(__fadd_rn(a, b)) == __float_as_int(a + b), SHOW, a, b, 0.0, a + b);
    CHECK(__float_as_int(__fmaf_rn(a, b, c)) == __float_as_int(fmaf(a, b, c)), SHOW, a, b, c, fmaf(a, b, c));
    // Nearest: between the two midpoints around the result.
    const float x = fabsf(a), root = __frsqrt_rn(x);
    if (x > 0) {
      const double middle = root, below = 0.5 * (middle + nextafterf(root, 0));
      const double above = 0.5 * (middle + nextafterf(root, INFINITY));
      CHECK(Exact(1).add(-below * below, x).sign() > 0, SHOW, x, 0.0, 0.0, root);
      CHECK(Exact(1).add(-above * above, x).sign() < 0, SHOW, x, 0.0, 0.0, root);
    }
  }
  CHECK(isinf(__frsqrt_rn(0.0f)) && __frsqrt_rn(INFINITY) == 0 && isnan(__frsqrt_rn(-1.0f)), "limits");
  const float one = 1.0f, zero = 0.0f;
  CHECK(signbit(__fadd_rd(one, -one)) && !signbit(__fadd_ru(one, -one)) && !signbit(__fadd_rz(one, -one)), "zeros");
  CHECK(!signbit(__fadd_rd(zero, zero)) && signbit(__fadd_rd(zero, -zero)) && signbit(__fadd_ru(-zero, -zero)), "zero");
  CHECK(signbit(__fmaf_rd(2.0f, 3.0f, -6.0f)) && !signbit(__fmaf_rz(2.0f, 3.0f, -6.0f)), "zeros");
  CHECK(isnan(__fadd_ru(INFINITY, -INFINITY)) && isnan(__fmul_rd(0.0f, INFINITY)) && isnan(__fsqrt_ru(-1.0f)), "NaN");
  CHECK(isinf(__fdiv_rz(1.0f, 0.0f)) && __fdiv_rd(1.0f, INFINITY) == 0 && isinf(__fsqrt_rz(INFINITY)), "infinity");
  CHECK(__fmul_rz(3e38f, 3e38f) == 0x1.fffffep127f && isinf(__fmul_ru(3e38f, 3e38f)), "overflow");
}

static void check_double_arithmetic() {
  for (int i = 0; i < 15000; i++) {
    const double a = random_double(), b = i % 8 == 0 ? -a : random_double();
    const double c = i % 16 == 1 && isfinite(a * b) ? -a * b : random_double();
#define CHECK_OPERATION(mode, name, exact, x, y, z)                                                    \
    {                                                                                                  \
      const double result = name;                                                                      \
      CHECK(is_rounded((#mode)[0], result, [&](double r) { return (exact); }), SHOW, x, y, z, result); \
    }
#define CHECK_MODE(m)                                                                                 \
    CHECK_OPERATION(m, __dadd_r##m(a, b), Exact(a).add(b, 1).add(-r, 1).sign(), a, b, 0.0)            \
    CHECK_OPERATION(m, __dsub_r##m(a, b), Exact(a).add(-b, 1).add(-r, 1).sign(), a, b, 0.0)           \
    CHECK_OPERATION(m, __dmul_r##m(a, b), Exact().add(a, b).add(-r, 1).sign(), a, b, 0.0)             \
    CHECK_OPERATION(m, __fma_r##m(a, b, c), Exact().add(a, b).add(c, 1).add(-r, 1).sign(), a, b, c)   \
    if (b != 0) {                                                                                     \
      CHECK_OPERATION(m, __ddiv_r##m(a, b), Exact(a).add(-r, b).sign() * (b < 0 ? -1 : 1), a, b, 0.0) \
      CHECK_OPERATION(m, __drcp_r##m(b), Exact(1).add(-r, b).sign() * (b < 0 ? -1 : 1), b, 0.0, 0.0)  \
    }                                                                                                 \
    CHECK_OPERATION(m, __dsqrt_r##m(fabs(a)), r < 0 ? 1 : Exact(fabs(a)).add(-r, r).sign(), a, 0.0, 0.0)
    DIRECTED(CHECK_MODE)
#undef CHECK_MODE
#undef CHECK_OPERATION
    CHECK(__dmul_rn(a, b) == a * b || isnan(a * b), SHOW, a, b, 0.0, a * b);
  }
  CHECK(fegetround() == FE_TONEAREST, "the rounding mode is restored");
}

static Exact exact_integer(__int128 value) {
  return Exact(static_cast<double>(static_cast<int64_t>(value >> 32))).add(4294967296.0 - 1, static_cast<double>(
      static_cast<int64_t>(value >> 32))).add(static_cast<double>(static_cast<uint32_t>(value)), 1);
}

// Rounds to an integer by shifts; the result is clamped to 100 bits.
static __int128 integer_of(double x, char mode) {
  int exponent;
  if (isinf(x)) return integer_of(x < 0 ? -0x1p100 : 0x1p100, mode);
  const int64_t significand = static_cast<int64_t>(ldexp(frexp(fabs(x), &exponent), 53));
  exponent -= 53;
  if (exponent >= 40) return x < 0 ? -(static_cast<__int128>(1) << 100) : static_cast<__int128>(1) << 100;
  __int128 whole = significand;
  bool up = false;
  if (exponent >= 0) {
    whole <<= exponent;
  } else {
    const int shift = exponent < -60 ? 60 : -exponent;
    const int64_t rest = significand & ((1ll << shift) - 1), half = 1ll << (shift - 1);
    whole >>= shift;
    up = mode == 'n' ? rest > half || (rest == half && (whole & 1)) : rest != 0 && mode == (x < 0 ? 'd' : 'u');
  }
  whole += up;
  return x < 0 ? -whole : whole;
}
template <typename To> static To clamped(double x, char mode, unsigned long long nan_bits) {
  if (isnan(x)) return static_cast<To>(nan_bits);
  const To least = static_cast<To>(-1) < 0 ? static_cast<To>(1ull << (8 * sizeof(To) - 1)) : 0;
  const To greatest = static_cast<To>(~least);
  const __int128 whole = integer_of(x, mode);
  return whole < least ? least : whole > greatest ? greatest : static_cast<To>(whole);
}

static void check_integer_conversions() {
  constexpr unsigned long long HIGH32 = 1ull << 31, HIGH64 = 1ull << 63;
  for (int i = 0; i < 200000; i++) {
    const float f = i == 0 ? NAN : i == 1 ? INFINITY : i == 2 ? -INFINITY : i % 2 ? random_float() :
        __ll2float_rn(random_integer()) + (i & 4 ? 0.5f : 0.0f);
    const double d = i < 3 ? f : i % 2 ? random_double() : static_cast<double>(random_integer()) + (i & 4 ? 0.5 : 0.25);
    const int64_t n = random_integer();
    const uint64_t u = static_cast<uint64_t>(n);
#define CHECK_INTEGERS(from, x, m, nan32)                                        \
    CHECK(from##2int_r##m(x) == clamped<int>(x, (#m)[0], nan32), "%a", x);       \
    CHECK(from##2uint_r##m(x) == clamped<unsigned>(x, (#m)[0], nan32), "%a", x); \
    CHECK(from##2ll_r##m(x) == clamped<long long>(x, (#m)[0], HIGH64), "%a", x); \
    CHECK(from##2ull_r##m(x) == clamped<unsigned long long>(x, (#m)[0], HIGH64), "%a", x);
#define CHECK_MODE(m) CHECK_INTEGERS(__float, f, m, 0) CHECK_INTEGERS(__double, d, m, HIGH32)
    CHECK_MODE(n) DIRECTED(CHECK_MODE)
#undef CHECK_MODE
#undef CHECK_INTEGERS
    if (i % 8) continue;
#define CHECK_FROM(T, name, m, value)                                                                                \
    {                                                                                                                \
      const T result = name##_r##m(value);                                                                           \
      CHECK(is_rounded((#m)[0], result, [&](T r) { return exact_integer(value).add(-r, 1).sign(); }), "%a", result); \
    }
#define CHECK_MODE(m)                                                            \
    CHECK_FROM(float, __ll2float, m, n) CHECK_FROM(float, __ull2float, m, u)     \
    CHECK_FROM(double, __ll2double, m, n) CHECK_FROM(double, __ull2double, m, u) \
    CHECK_FROM(float, __int2float, m, static_cast<int>(n)) CHECK_FROM(float, __uint2float, m, static_cast<unsigned>(n))
    DIRECTED(CHECK_MODE)
#undef CHECK_MODE
#undef CHECK_FROM
  }
}

// The codes of a small format in ascending order of their values are its non-negative numbers.
template <typename Decode> struct Format {
  unsigned count;  // of finite non-negative numbers
  Decode decode;
  // Returns the code of |exact|, of which `residual` compares with its argument. `overflow` is the code past the last.
  template <typename Residual> unsigned round(char mode, bool negative, Residual residual) const {
    unsigned low = 0, high = count;
    while (high - low > 1) {
      const unsigned middle = (low + high) / 2;
      (residual(decode(middle)) >= 0 ? low : high) = middle;
    }
    if (residual(decode(low)) == 0 || mode == 'z' || mode == (negative ? 'u' : 'd')) return low;
    if (mode != 'n') return low + 1;
    const double next = low + 1 < count ? decode(low + 1) : 2 * decode(low) - decode(low - 1);
    const int side = residual(0.5 * (decode(low) + next));
    return side > 0 || (side == 0 && (low & 1)) ? low + 1 : low;
  }
};
template <typename Decode> Format(unsigned, Decode) -> Format<Decode>;
static double decoded(unsigned code, int mantissa, int bias) {
  const int exponent = static_cast<int>(code >> mantissa), fraction = static_cast<int>(code & ((1u << mantissa) - 1));
  if (exponent == 0) return ldexp(fraction, 1 - bias - mantissa);
  return ldexp(fraction + (1 << mantissa), exponent - bias - mantissa);
}

// The functions of a 16-bit type whose names contain that of the type, with the mode as an argument.
#define SMALL_TYPE(Traits, T, T2, NAME, MANTISSA, BIAS, INFINITE)                                       \
  struct Traits {                                                                                       \
    typedef T Type;                                                                                     \
    typedef T2 Pair;                                                                                    \
    static constexpr unsigned infinity = INFINITE;                                                      \
    static double decode(unsigned code) { return decoded(code, MANTISSA, BIAS); }                       \
    static T from_code(unsigned code) { return __ushort_as_##NAME(static_cast<unsigned short>(code)); } \
    static float to_float(T x) { return __##NAME##2float(x); }                                          \
    static T from_double(double x) { return __double2##NAME(x); }                                       \
    static T from_float(float x, char mode) {                                                           \
      return mode == 'n' ? __float2##NAME##_rn(x) : mode == 'z' ? __float2##NAME##_rz(x)                \
           : mode == 'u' ? __float2##NAME##_ru(x) : __float2##NAME##_rd(x);                             \
    }                                                                                                   \
    static T from_integer(long long x, char mode) {                                                     \
      return mode == 'n' ? __ll2##NAME##_rn(x) : mode == 'z' ? __ll2##NAME##_rz(x)                      \
           : mode == 'u' ? __ll2##NAME##_ru(x) : __ll2##NAME##_rd(x);                                   \
    }                                                                                                   \
    static int to_int_rd(T x) { return __##NAME##2int_rd(x); }                                          \
    static short to_short_ru(T x) { return __##NAME##2short_ru(x); }                                    \
    static unsigned char to_uchar_rz(T x) { return __##NAME##2uchar_rz(x); }                            \
    static long long to_ll_rz(T x) { return __##NAME##2ll_rz(x); }                                      \
    static unsigned long long to_ull_rn(T x) { return __##NAME##2ull_rn(x); }                           \
  };
SMALL_TYPE(Half, __half, __half2, half, 10, 15, 0x7c00u)
SMALL_TYPE(Bfloat16, __nv_bfloat16, __nv_bfloat162, bfloat16, 7, 127, 0x7f80u)
template <typename T> unsigned code_of(T x) { return plinth_host::bit_cast<unsigned short>(x); }

template <typename S> void check_small_conversions() {
  typedef typename S::Type T;
  const auto format = Format{S::infinity, S::decode};
  for (unsigned i = 0; i < 0x10000; i++) {
    const T x = S::from_code(i);
    const float value = S::to_float(x);
    const unsigned magnitude = i & 0x7fff;
    if (magnitude >= S::infinity) {
      CHECK(magnitude == S::infinity ? isinf(value) : isnan(value), "%x", i);
      CHECK(code_of(T(value)) == (magnitude == S::infinity ? i : 0x7fff), "%x", i);
      continue;
    }
    CHECK(fabsf(value) == format.decode(magnitude) && signbit(value) == (i > 0x7fff), "%x", i);
    CHECK(code_of(T(value)) == i && code_of(T(static_cast<double>(value))) == i, "%x", i);
    CHECK(code_of(hrint(x)) == code_of(T(rintf(value))) && code_of(htrunc(x)) == code_of(T(truncf(value))), "%x", i);
    CHECK(S::to_int_rd(x) == clamped<int>(value, 'd', 0), "%x", i);
    CHECK(S::to_short_ru(x) == clamped<short>(value, 'u', 0), "%x", i);
    CHECK(S::to_ull_rn(x) == clamped<unsigned long long>(value, 'n', 0), "%x", i);
  }
  for (int i = 0; i < 100000; i++) {
    const double d = i % 2 ? random_double() : static_cast<double>(random_float()) * (i % 4 ? 1.0 : 0.999999999);
    const float f = i % 3 ? random_float() : ldexpf(random_float(), -100);
    const int64_t n = random_integer();
    const auto expected = [&](char mode, double exact) {
      const auto residual = [&](double r) { return plinth_host::sign_of(fabs(exact) - r); };
      return (signbit(exact) ? 0x8000 : 0) | format.round(mode, signbit(exact), residual);
    };
    const auto of_integer = [&](char mode) {
      const __int128 magnitude = n < 0 ? -static_cast<__int128>(n) : n;
      const auto residual = [&](double r) { return exact_integer(magnitude).add(-r, 1).sign(); };
      return (n < 0 ? 0x8000u : 0u) | format.round(mode, n < 0, residual);
    };
    CHECK(code_of(S::from_double(d)) == expected('n', d), "%a", d);
    CHECK(code_of(T(f)) == expected('n', f), "%a", f);
    for (const char *mode = "nzud"; *mode; mode++) {
      CHECK(code_of(S::from_float(f, *mode)) == expected(*mode, f), "%c %a", *mode, f);
      if (i % 8 == 0) {
        CHECK(code_of(S::from_integer(n, *mode)) == of_integer(*mode), "%c %lld", *mode, static_cast<long long>(n));
      }
    }
  }
}

// `compare` returns the sign of the exact result, whose sign is given, minus its argument.
template <typename S, typename Compare>
void expect_small(const char *name, typename S::Type result, int sign, double x, double y, double z, Compare compare) {
  const auto residual = [&](double r) { return compare(sign < 0 ? -r : r) * sign; };
  const unsigned magnitude = sign == 0 ? 0 : Format{S::infinity, S::decode}.round('n', sign < 0, residual);
  // The sign of an exact zero is that of float arithmetic, which this test does not repeat.
  const unsigned wanted = (sign < 0 ? 0x8000u : sign == 0 ? code_of(result) & 0x8000u : 0u) | magnitude;
  CHECK(code_of(result) == wanted, "%s %a %a %a: %04x, not %04x", name, x, y, z, code_of(result), wanted);
}
template <typename S> void check_small_arithmetic() {
  typedef typename S::Type T;
  const auto any = [] {
    return S::from_code(static_cast<unsigned>(random_bits()) & (random_bits() % 4 ? 0xffffu : 0xfff0u));
  };
  for (int i = 0; i < 40000; i++) {
    const T a = any(), b = any();
    T c = any();
    // Cancellation, and a tiny addend beside a product.
    if (i % 4 == 0) c = -__hmul(a, b);
    if (i % 4 == 1) c = S::from_code(code_of(c) & 0x80ff);
    const double x = S::to_float(a), y = S::to_float(b), z = S::to_float(c);
    if (!isfinite(x) || !isfinite(y) || !isfinite(z)) continue;
    const Exact sum = Exact(x).add(y, 1), product = Exact().add(x, y), fused = Exact().add(x, y).add(z, 1);
    const auto against = [](const Exact &exact) {
      return [&exact](double r) { return Exact(exact).add(-r, 1).sign(); };
    };
    expect_small<S>("add", a + b, sum.sign(), x, y, z, against(sum));
    expect_small<S>("multiply", a * b, product.sign(), x, y, z, against(product));
    expect_small<S>("fma", __hfma(a, b, c), fused.sign(), x, y, z, against(fused));
    if (y != 0) {
      const int flip = y < 0 ? -1 : 1;
      const auto quotient = [&](double r) { return Exact(x).add(-r, y).sign() * flip; };
      expect_small<S>("divide", a / b, plinth_host::sign_of(x) * flip, x, y, z, quotient);
    }
    if (x <= 0) continue;
    const auto root = [&](double r) { return Exact(x).add(-r, r).sign(); };
    const auto reciprocal_root = [&](double r) { return Exact(1).add(-r * r, x).sign(); };
    expect_small<S>("sqrt", hsqrt(a), 1, x, y, z, root);
    expect_small<S>("rsqrt", hrsqrt(a), 1, x, y, z, reciprocal_root);
  }
}
template <typename S> void check_small_limits() {
  typedef typename S::Type T;
  typedef typename S::Pair T2;
  const T nan = S::from_code(S::infinity + 1), infinity = S::from_code(S::infinity), one(1), two(2);
  const T zero = S::from_code(0), minus_zero = S::from_code(0x8000);
  CHECK(code_of(__hmax(nan, one)) == code_of(one) && code_of(__hmin(one, nan)) == code_of(one), "NaN");
  CHECK(code_of(__hmin(nan, nan)) == 0x7fff && code_of(__hneg(nan)) == 0x7fff && code_of(__habs(nan)) == 0x7fff, "NaN");
  CHECK(code_of(__hmax_nan(nan, one)) == 0x7fff && code_of(__hmin_nan(one, nan)) == 0x7fff, "NaN");
  CHECK(code_of(__hmin(zero, minus_zero)) == 0x8000 && code_of(__hmax_nan(minus_zero, zero)) == 0, "zeros");
  CHECK(!__heq(nan, nan) && __hequ(nan, nan) && !__hne(nan, one) && __hneu(nan, one), "NaN");
  CHECK(nan != nan && !(nan == nan) && !(nan < one) && zero == minus_zero, "NaN");
  CHECK(__hisnan(nan) && __hisinf(infinity) == 1 && __hisinf(-infinity) == -1 && __hisinf(nan) == 0, "classes");
  CHECK(code_of(__hadd_sat(one, one)) == code_of(one) && code_of(__hsub_sat(one, two)) == 0, "saturation");
  CHECK(code_of(__hmul_sat(nan, one)) == 0 && code_of(__hfma_sat(minus_zero, one, minus_zero)) == 0, "saturation");
  CHECK(code_of(__hfma_relu(one, one, T(-3))) == 0 && code_of(__hfma_relu(nan, one, one)) == 0x7fff, "relu");
  CHECK(static_cast<int>(T(-2.75f)) == -2 && static_cast<bool>(T(0.5f)) && !static_cast<bool>(minus_zero), "casts");
  CHECK(S::to_ll_rz(nan) == INT64_MIN && S::to_int_rd(nan) == 0 && S::to_uchar_rz(T(300)) == 255, "limits");
  T2 pair(one, two);
  pair = __hcmadd(pair, pair, T2(one, one));
  CHECK(pair == T2(T(-2), T(5)) && __hbeq2(pair++, T2(T(-2), T(5))) && pair.x == T(-1), "pairs");
  CHECK(__heq2_mask(T2(one, nan), T2(one, nan)) == 0xffff, "mask");
  CHECK(__hequ2_mask(T2(zero, nan), T2(one, nan)) == 0xffff0000u, "mask");
}
template <typename S> void check_small_type() {
  check_small_conversions<S>();
  check_small_arithmetic<S>();
  check_small_limits<S>();
}

static void check_fp8() {
  static const __nv_fp8_interpretation_t kinds[] = {__NV_E4M3, __NV_E5M2};
  for (const auto kind : kinds) {
    const int mantissa = kind == __NV_E4M3 ? 3 : 2, bias = kind == __NV_E4M3 ? 7 : 15;
    const unsigned count = kind == __NV_E4M3 ? 0x7f : 0x7c;
    const auto format = Format{count, [=](unsigned code) { return decoded(code, mantissa, bias); }};
    for (unsigned i = 0; i < 256; i++) {
      const float value = __half2float(__nv_cvt_fp8_to_halfraw(static_cast<unsigned char>(i), kind));
      if ((i & 0x7f) < count) {
        CHECK(fabsf(value) == format.decode(i & 0x7f) && signbit(value) == (i > 127), "%x", i);
      } else {
        CHECK(i % 128 == 0x7c && kind == __NV_E5M2 ? isinf(value) : isnan(value), "%x", i);
      }
    }
    for (int i = 0; i < 200000; i++) {
      const double x = i % 2 ? random_double() : static_cast<double>(random_float());
      const float f = static_cast<float>(x);
      const unsigned sign = signbit(x) ? 0x80 : 0;
      const auto wanted = [&](double v, bool saturate) {
        const auto residual = [&](double r) { return isinf(v) ? 1 : plinth_host::sign_of(fabs(v) - r); };
        const unsigned code = format.round('n', false, residual);
        return sign | (code == count && saturate ? count - 1 : code);
      };
      CHECK(__nv_cvt_double_to_fp8(x, __NV_SATFINITE, kind) == wanted(x, true), "%a", x);
      CHECK(__nv_cvt_double_to_fp8(x, __NV_NOSAT, kind) == wanted(x, false), "%a", x);
      CHECK(__nv_cvt_float_to_fp8(f, __NV_SATFINITE, kind) == wanted(f, true), "%a", f);
    }
    CHECK(__nv_cvt_float_to_fp8(-NAN, __NV_SATFINITE, kind) == 0x7f, "NaN");
  }
  CHECK(static_cast<float>(__nv_fp8_e4m3(1000.0f)) == 448, "saturation");
  CHECK(static_cast<float>(__nv_fp8_e5m2(-1e9)) == -57344, "saturation");
  CHECK(__nv_fp8_e8m0(3.0f).__x == 129 && __nv_fp8_e8m0(0.0f).__x == 0 && __nv_fp8_e8m0(INFINITY).__x == 254, "e8m0");
  const float4 four = static_cast<float4>(__nv_fp8x4_e4m3(make_float4(1, -2, 0.5f, 3)));
  CHECK(four.x == 1 && four.y == -2 && four.z == 0.5f && four.w == 3, "vector of four");
}

int main() {
  check_float_arithmetic();
  check_double_arithmetic();
  check_integer_conversions();
  check_small_type<Half>();
  check_small_type<Bfloat16>();
  check_fp8();
  printf(failures == 0 ? "rounding: passed\n" : "rounding: %d failures\n", failures);
  return failures != 0;
}
