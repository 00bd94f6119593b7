// A 16-bit floating-point type, its vector of two, and all their functions. cuda_fp16.h and cuda_bf16.h include this
// file, each with its own names. The functions are overloads, not templates, so that arguments convert as in CUDA.
//   PLINTH_T, PLINTH_T2, PLINTH_RAW, PLINTH_RAW2   the types; PLINTH_OTHER is the other 16-bit type
//   PLINTH_NAME, PLINTH_NAME2                      the words for them in the names of functions
//   PLINTH_FORMAT                                  exponent and mantissa bits
//   PLINTH_CONVERSIONS, PLINTH_OPERATORS, PLINTH_OPERATORS2   0 if CUDA's macros switch these off
#pragma push_macro("uint")
#pragma push_macro("ushort")
// Parts of the functions' names, which undeclared.h defines.
#undef uint
#undef ushort
#define PLINTH_JOIN_(a, b, c, d) a##b##c##d
#define PLINTH_JOIN(a, b, c, d) PLINTH_JOIN_(a, b, c, d)
#define PLINTH_FN static inline

struct alignas(2) PLINTH_RAW { unsigned short x; };
struct alignas(4) PLINTH_RAW2 { unsigned short x, y; };
struct PLINTH_T;
struct PLINTH_OTHER;
namespace plinth_host {
template <> struct Format<PLINTH_T> {
  enum { PLINTH_FORMAT };
};
}  // namespace plinth_host

#define PLINTH_INTEGERS(X) X(short) X(unsigned short) X(int) X(unsigned int) X(long) X(unsigned long) X(long long) \
  X(unsigned long long)
#define PLINTH_MODES(X, ...)                                                                         \
  X(rn, plinth_host::Rounding::nearest, __VA_ARGS__) X(rz, plinth_host::Rounding::zero, __VA_ARGS__) \
  X(ru, plinth_host::Rounding::up, __VA_ARGS__) X(rd, plinth_host::Rounding::down, __VA_ARGS__)

struct alignas(2) PLINTH_T {
 protected:
  unsigned short __x;

 public:
  PLINTH_T() = default;
  constexpr PLINTH_T(const PLINTH_RAW &raw) : __x(raw.x) {}
  PLINTH_T &operator=(const PLINTH_RAW &raw) { return __x = raw.x, *this; }
  volatile PLINTH_T &operator=(const PLINTH_RAW &raw) volatile { return __x = raw.x, *this; }
  volatile PLINTH_T &operator=(const volatile PLINTH_RAW &raw) volatile { return __x = raw.x, *this; }
  operator PLINTH_RAW() const { return PLINTH_RAW{__x}; }
  operator PLINTH_RAW() const volatile { return PLINTH_RAW{__x}; }
#if PLINTH_CONVERSIONS
  explicit PLINTH_T(const PLINTH_OTHER &value);
  PLINTH_T(const float value) { *this = plinth_host::from_float<PLINTH_T>(value); }
  PLINTH_T(const double value) { *this = plinth_host::from_double<PLINTH_T>(value); }
#define PLINTH_FROM(type)                                                                        \
  PLINTH_T(const type value) {                                                                   \
    *this = plinth_host::from_integer_to_small<PLINTH_T, plinth_host::Rounding::nearest>(value); \
  }
  PLINTH_INTEGERS(PLINTH_FROM)
#undef PLINTH_FROM
  operator float() const { return plinth_host::to_float(*this); }
#define PLINTH_TO(type)                                                                              \
  operator type() const {                                                                            \
    return plinth_host::to_integer<plinth_host::Rounding::zero, type>(plinth_host::to_float(*this)); \
  }
  PLINTH_TO(char) PLINTH_TO(signed char) PLINTH_TO(unsigned char)
  PLINTH_INTEGERS(PLINTH_TO)
#undef PLINTH_TO
  constexpr operator bool() const { return (__x & 0x7fffu) != 0; }
#endif
};
struct alignas(4) PLINTH_T2 {
  PLINTH_T x, y;
  PLINTH_T2() = default;
  constexpr PLINTH_T2(const PLINTH_T &a, const PLINTH_T &b) : x(a), y(b) {}
  constexpr PLINTH_T2(const PLINTH_RAW2 &raw) : x(PLINTH_RAW{raw.x}), y(PLINTH_RAW{raw.y}) {}
  operator PLINTH_RAW2() const {
    return PLINTH_RAW2{static_cast<PLINTH_RAW>(x).x, static_cast<PLINTH_RAW>(y).x};
  }
};

// Conversions.
PLINTH_FN unsigned short PLINTH_JOIN(__, PLINTH_NAME, _as_, ushort)(const PLINTH_T a) {
  return plinth_host::bit_cast<unsigned short>(a);
}
PLINTH_FN short PLINTH_JOIN(__, PLINTH_NAME, _as_, short)(const PLINTH_T a) { return plinth_host::bit_cast<short>(a); }
PLINTH_FN PLINTH_T PLINTH_JOIN(__ushort_as_, PLINTH_NAME, , )(const unsigned short bits) { return PLINTH_RAW{bits}; }
PLINTH_FN PLINTH_T PLINTH_JOIN(__short_as_, PLINTH_NAME, , )(const short bits) {
  return PLINTH_RAW{static_cast<unsigned short>(bits)};
}
PLINTH_FN float PLINTH_JOIN(__, PLINTH_NAME, 2, float)(const PLINTH_T a) { return plinth_host::to_float(a); }
PLINTH_FN PLINTH_T PLINTH_JOIN(__float2, PLINTH_NAME, , )(const float a) {
  return plinth_host::from_float<PLINTH_T>(a);
}
PLINTH_FN PLINTH_T PLINTH_JOIN(__double2, PLINTH_NAME, , )(const double a) {
  return plinth_host::from_double<PLINTH_T>(a);
}
#define PLINTH_INTEGER_MODE(suffix, mode, word, type)                                 \
  PLINTH_FN type PLINTH_JOIN(__, PLINTH_NAME, 2##word##_, suffix)(const PLINTH_T a) { \
    return plinth_host::to_integer<mode, type>(plinth_host::to_float(a));             \
  }                                                                                   \
  PLINTH_FN PLINTH_T PLINTH_JOIN(__##word##2, PLINTH_NAME, _, suffix)(const type a) { \
    return plinth_host::from_integer_to_small<PLINTH_T, mode>(a);                     \
  }
#define PLINTH_FLOAT_MODE(suffix, mode, ...)                                        \
  PLINTH_FN PLINTH_T PLINTH_JOIN(__float2, PLINTH_NAME, _, suffix)(const float a) { \
    return plinth_host::from_double<PLINTH_T, mode>(a);                             \
  }
PLINTH_MODES(PLINTH_FLOAT_MODE, )
PLINTH_MODES(PLINTH_INTEGER_MODE, short, short)
PLINTH_MODES(PLINTH_INTEGER_MODE, ushort, unsigned short)
PLINTH_MODES(PLINTH_INTEGER_MODE, int, int)
PLINTH_MODES(PLINTH_INTEGER_MODE, uint, unsigned int)
PLINTH_MODES(PLINTH_INTEGER_MODE, ll, long long)
PLINTH_MODES(PLINTH_INTEGER_MODE, ull, unsigned long long)
#undef PLINTH_FLOAT_MODE
#undef PLINTH_INTEGER_MODE
PLINTH_FN signed char PLINTH_JOIN(__, PLINTH_NAME, 2, char_rz)(const PLINTH_T a) {
  return plinth_host::to_integer<plinth_host::Rounding::zero, signed char>(plinth_host::to_float(a));
}
PLINTH_FN unsigned char PLINTH_JOIN(__, PLINTH_NAME, 2, uchar_rz)(const PLINTH_T a) {
  return plinth_host::to_integer<plinth_host::Rounding::zero, unsigned char>(plinth_host::to_float(a));
}

// Vectors from parts and parts of vectors.
PLINTH_FN PLINTH_T2 PLINTH_JOIN(make_, PLINTH_NAME2, , )(const PLINTH_T x, const PLINTH_T y) { return {x, y}; }
PLINTH_FN PLINTH_T2 PLINTH_JOIN(__halves2, PLINTH_NAME2, , )(const PLINTH_T a, const PLINTH_T b) { return {a, b}; }
PLINTH_FN PLINTH_T2 PLINTH_JOIN(__, PLINTH_NAME, 2, PLINTH_NAME2)(const PLINTH_T a) { return {a, a}; }
PLINTH_FN PLINTH_T2 __lowhigh2highlow(const PLINTH_T2 a) { return {a.y, a.x}; }
PLINTH_FN PLINTH_T2 PLINTH_JOIN(__lows2, PLINTH_NAME2, , )(const PLINTH_T2 a, const PLINTH_T2 b) { return {a.x, b.x}; }
PLINTH_FN PLINTH_T2 PLINTH_JOIN(__highs2, PLINTH_NAME2, , )(const PLINTH_T2 a, const PLINTH_T2 b) { return {a.y, b.y}; }
PLINTH_FN PLINTH_T PLINTH_JOIN(__low2, PLINTH_NAME, , )(const PLINTH_T2 a) { return a.x; }
PLINTH_FN PLINTH_T PLINTH_JOIN(__high2, PLINTH_NAME, , )(const PLINTH_T2 a) { return a.y; }
PLINTH_FN PLINTH_T2 PLINTH_JOIN(__low2, PLINTH_NAME2, , )(const PLINTH_T2 a) { return {a.x, a.x}; }
PLINTH_FN PLINTH_T2 PLINTH_JOIN(__high2, PLINTH_NAME2, , )(const PLINTH_T2 a) { return {a.y, a.y}; }
PLINTH_FN float __low2float(const PLINTH_T2 a) { return plinth_host::to_float(a.x); }
PLINTH_FN float __high2float(const PLINTH_T2 a) { return plinth_host::to_float(a.y); }
PLINTH_FN PLINTH_T2 PLINTH_JOIN(__floats2, PLINTH_NAME2, _rn, )(const float a, const float b) {
  return {plinth_host::from_float<PLINTH_T>(a), plinth_host::from_float<PLINTH_T>(b)};
}
PLINTH_FN PLINTH_T2 PLINTH_JOIN(__float2, PLINTH_NAME2, _rn, )(const float a) {
  return PLINTH_JOIN(__floats2, PLINTH_NAME2, _rn, )(a, a);
}
PLINTH_FN PLINTH_T2 PLINTH_JOIN(__float22, PLINTH_NAME2, _rn, )(const float2 a) {
  return PLINTH_JOIN(__floats2, PLINTH_NAME2, _rn, )(a.x, a.y);
}
PLINTH_FN float2 PLINTH_JOIN(__, PLINTH_NAME2, 2, float2)(const PLINTH_T2 a) {
  return {plinth_host::to_float(a.x), plinth_host::to_float(a.y)};
}

// Arithmetic: each function for one number and for two.
#define PLINTH_UNARY(name, name2, expression)                      \
  PLINTH_FN PLINTH_T name(const PLINTH_T a) { return expression; } \
  PLINTH_FN PLINTH_T2 name2(const PLINTH_T2 a) { return {name(a.x), name(a.y)}; }
#define PLINTH_BINARY(name, name2, expression)                                       \
  PLINTH_FN PLINTH_T name(const PLINTH_T a, const PLINTH_T b) { return expression; } \
  PLINTH_FN PLINTH_T2 name2(const PLINTH_T2 a, const PLINTH_T2 b) { return {name(a.x, b.x), name(a.y, b.y)}; }
#define PLINTH_TERNARY(name, name2, expression)                                                        \
  PLINTH_FN PLINTH_T name(const PLINTH_T a, const PLINTH_T b, const PLINTH_T c) { return expression; } \
  PLINTH_FN PLINTH_T2 name2(const PLINTH_T2 a, const PLINTH_T2 b, const PLINTH_T2 c) {                 \
    return {name(a.x, b.x, c.x), name(a.y, b.y, c.y)};                                                 \
  }
PLINTH_BINARY(__hadd, __hadd2, plinth_host::small_add(a, b))
PLINTH_BINARY(__hsub, __hsub2, plinth_host::small_subtract(a, b))
PLINTH_BINARY(__hmul, __hmul2, plinth_host::small_multiply(a, b))
PLINTH_BINARY(__hdiv, __h2div, plinth_host::small_divide(a, b))
PLINTH_TERNARY(__hfma, __hfma2, plinth_host::small_multiply_add(a, b, c))
// The _rn forms forbid contraction, which no form here does.
PLINTH_BINARY(__hadd_rn, __hadd2_rn, plinth_host::small_add(a, b))
PLINTH_BINARY(__hsub_rn, __hsub2_rn, plinth_host::small_subtract(a, b))
PLINTH_BINARY(__hmul_rn, __hmul2_rn, plinth_host::small_multiply(a, b))
PLINTH_BINARY(__hadd_sat, __hadd2_sat, plinth_host::small_saturate(__hadd(a, b)))
PLINTH_BINARY(__hsub_sat, __hsub2_sat, plinth_host::small_saturate(__hsub(a, b)))
PLINTH_BINARY(__hmul_sat, __hmul2_sat, plinth_host::small_saturate(__hmul(a, b)))
PLINTH_TERNARY(__hfma_sat, __hfma2_sat, plinth_host::small_saturate(__hfma(a, b, c)))
PLINTH_TERNARY(__hfma_relu, __hfma2_relu, plinth_host::small_relu(__hfma(a, b, c)))
PLINTH_UNARY(__hneg, __hneg2, plinth_host::with_bits(a, 0xffffu, 0x8000u))
PLINTH_UNARY(__habs, __habs2, plinth_host::with_bits(a, 0x7fffu, 0u))
PLINTH_BINARY(__hmin, __hmin2, plinth_host::small_min(a, b))
PLINTH_BINARY(__hmax, __hmax2, plinth_host::small_max(a, b))
PLINTH_BINARY(__hmin_nan, __hmin2_nan, plinth_host::either_nan(a, b, plinth_host::small_min(a, b)))
PLINTH_BINARY(__hmax_nan, __hmax2_nan, plinth_host::either_nan(a, b, plinth_host::small_max(a, b)))
// a * b + c of complex numbers.
PLINTH_FN PLINTH_T2 __hcmadd(const PLINTH_T2 a, const PLINTH_T2 b, const PLINTH_T2 c) {
  return {__hfma(__hneg(a.y), b.y, __hfma(a.x, b.x, c.x)), __hfma(a.y, b.x, __hfma(a.x, b.y, c.y))};
}

// Functions: computed in double and rounded once, which is at least as exact as a GPU.
#define PLINTH_REAL(name, expression)                      \
  PLINTH_FN PLINTH_T h##name(const PLINTH_T a) {           \
    const double x = plinth_host::to_float(a);             \
    return plinth_host::from_double<PLINTH_T>(expression); \
  }                                                        \
  PLINTH_FN PLINTH_T2 h2##name(const PLINTH_T2 a) { return {h##name(a.x), h##name(a.y)}; }
PLINTH_REAL(sqrt, sqrt(x))
PLINTH_REAL(rsqrt, 1.0 / sqrt(x))
PLINTH_REAL(rcp, 1.0 / x)
PLINTH_REAL(exp, exp(x))
PLINTH_REAL(exp2, exp2(x))
PLINTH_REAL(exp10, exp10(x))
PLINTH_REAL(log, log(x))
PLINTH_REAL(log2, log2(x))
PLINTH_REAL(log10, log10(x))
PLINTH_REAL(sin, sin(x))
PLINTH_REAL(cos, cos(x))
PLINTH_REAL(tanh, tanh(x))
PLINTH_REAL(tanh_approx, tanh(x))
PLINTH_REAL(trunc, trunc(x))
PLINTH_REAL(ceil, ceil(x))
PLINTH_REAL(floor, floor(x))
PLINTH_REAL(rint, rint(x))
#undef PLINTH_REAL

// Comparisons. The forms with u are true if an argument is NaN, the others false.
PLINTH_FN bool __hisnan(const PLINTH_T a) { return plinth_host::is_nan(a); }
PLINTH_FN int __hisinf(const PLINTH_T a) {
  const float value = plinth_host::to_float(a);
  return isinf(value) ? (value > 0 ? 1 : -1) : 0;
}
PLINTH_FN PLINTH_T2 __hisnan2(const PLINTH_T2 a) {
  return PLINTH_JOIN(__floats2, PLINTH_NAME2, _rn, )(__hisnan(a.x), __hisnan(a.y));
}
#define PLINTH_COMPARISON(suffix, expression)                                                         \
  PLINTH_FN bool __h##suffix(const PLINTH_T a, const PLINTH_T b) {                                    \
    const float x = plinth_host::to_float(a), y = plinth_host::to_float(b);                           \
    return expression;                                                                                \
  }                                                                                                   \
  PLINTH_FN PLINTH_T2 __h##suffix##2(const PLINTH_T2 a, const PLINTH_T2 b) {                          \
    return PLINTH_JOIN(__floats2, PLINTH_NAME2, _rn, )(__h##suffix(a.x, b.x), __h##suffix(a.y, b.y)); \
  }                                                                                                   \
  PLINTH_FN unsigned __h##suffix##2_mask(const PLINTH_T2 a, const PLINTH_T2 b) {                      \
    return (__h##suffix(a.x, b.x) ? 0xffffu : 0u) | (__h##suffix(a.y, b.y) ? 0xffff0000u : 0u);       \
  }                                                                                                   \
  PLINTH_FN bool __hb##suffix##2(const PLINTH_T2 a, const PLINTH_T2 b) {                              \
    return __h##suffix(a.x, b.x) && __h##suffix(a.y, b.y);                                            \
  }
PLINTH_COMPARISON(eq, x == y)
PLINTH_COMPARISON(ne, x < y || x > y)
PLINTH_COMPARISON(le, x <= y)
PLINTH_COMPARISON(ge, x >= y)
PLINTH_COMPARISON(lt, x < y)
PLINTH_COMPARISON(gt, x > y)
PLINTH_COMPARISON(equ, !(x < y || x > y))
PLINTH_COMPARISON(neu, x != y)
PLINTH_COMPARISON(leu, !(x > y))
PLINTH_COMPARISON(geu, !(x < y))
PLINTH_COMPARISON(ltu, !(x >= y))
PLINTH_COMPARISON(gtu, !(x <= y))
#undef PLINTH_COMPARISON

#define PLINTH_OPERATOR(T, symbol, function)                                     \
  PLINTH_FN T operator symbol(const T &a, const T &b) { return function(a, b); } \
  PLINTH_FN T &operator symbol##=(T &a, const T &b) { return a = function(a, b); }
#define PLINTH_INCREMENT(T, symbol, function, one)                    \
  PLINTH_FN T &operator symbol(T &a) { return a = function(a, one); } \
  PLINTH_FN T operator symbol(T &a, const int) {                      \
    const T old = a;                                                  \
    a = function(a, one);                                             \
    return old;                                                       \
  }
#define PLINTH_TEST(T, symbol, function) \
  PLINTH_FN bool operator symbol(const T &a, const T &b) { return function(a, b); }
#if PLINTH_OPERATORS
PLINTH_OPERATOR(PLINTH_T, +, __hadd)
PLINTH_OPERATOR(PLINTH_T, -, __hsub)
PLINTH_OPERATOR(PLINTH_T, *, __hmul)
PLINTH_OPERATOR(PLINTH_T, /, __hdiv)
PLINTH_INCREMENT(PLINTH_T, ++, __hadd, plinth_host::from_float<PLINTH_T>(1.0f))
PLINTH_INCREMENT(PLINTH_T, --, __hsub, plinth_host::from_float<PLINTH_T>(1.0f))
PLINTH_FN PLINTH_T operator+(const PLINTH_T &a) { return a; }
PLINTH_FN PLINTH_T operator-(const PLINTH_T &a) { return __hneg(a); }
PLINTH_TEST(PLINTH_T, ==, __heq)
PLINTH_TEST(PLINTH_T, !=, __hneu)
PLINTH_TEST(PLINTH_T, <, __hlt)
PLINTH_TEST(PLINTH_T, >, __hgt)
PLINTH_TEST(PLINTH_T, <=, __hle)
PLINTH_TEST(PLINTH_T, >=, __hge)
#endif
// Two vectors are equal, or one is less, if that holds of both their numbers.
#if PLINTH_OPERATORS2
PLINTH_OPERATOR(PLINTH_T2, +, __hadd2)
PLINTH_OPERATOR(PLINTH_T2, -, __hsub2)
PLINTH_OPERATOR(PLINTH_T2, *, __hmul2)
PLINTH_OPERATOR(PLINTH_T2, /, __h2div)
PLINTH_INCREMENT(PLINTH_T2, ++, __hadd2, (PLINTH_JOIN(__float2, PLINTH_NAME2, _rn, )(1.0f)))
PLINTH_INCREMENT(PLINTH_T2, --, __hsub2, (PLINTH_JOIN(__float2, PLINTH_NAME2, _rn, )(1.0f)))
PLINTH_FN PLINTH_T2 operator+(const PLINTH_T2 &a) { return a; }
PLINTH_FN PLINTH_T2 operator-(const PLINTH_T2 &a) { return __hneg2(a); }
PLINTH_TEST(PLINTH_T2, ==, __hbeq2)
PLINTH_TEST(PLINTH_T2, !=, __hbneu2)
PLINTH_TEST(PLINTH_T2, <, __hblt2)
PLINTH_TEST(PLINTH_T2, >, __hbgt2)
PLINTH_TEST(PLINTH_T2, <=, __hble2)
PLINTH_TEST(PLINTH_T2, >=, __hbge2)
#endif

#undef PLINTH_TEST
#undef PLINTH_INCREMENT
#undef PLINTH_OPERATOR
#undef PLINTH_TERNARY
#undef PLINTH_BINARY
#undef PLINTH_UNARY
#undef PLINTH_MODES
#undef PLINTH_INTEGERS
#undef PLINTH_FN
#undef PLINTH_JOIN
#undef PLINTH_JOIN_
#undef PLINTH_OPERATORS2
#undef PLINTH_OPERATORS
#undef PLINTH_CONVERSIONS
#undef PLINTH_FORMAT
#undef PLINTH_NAME2
#undef PLINTH_NAME
#undef PLINTH_OTHER
#undef PLINTH_RAW2
#undef PLINTH_RAW
#undef PLINTH_T2
#undef PLINTH_T
#pragma pop_macro("ushort")
#pragma pop_macro("uint")
