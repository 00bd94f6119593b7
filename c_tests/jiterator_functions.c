/*
 * CUDA's functions in jiterated functions, on GPUs and on the host device, and the scope of tables and helpers.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "jitting.h"

/* Calls a function with one number of a type, and returns the result. */
static double value_of(const char *code, int kind, double argument) {
  const int64_t one = 1;
  tensor x, out;
  plinth_jit_function_t function = jit(code);
  make(&x, kind, 1, &one, NULL, 0);
  make(&out, kind, 1, &one, NULL, 0);
  upload(&out);  // fetch copies more than the element
  const number argument_value = {argument, 0};
  set(&x, x.first, argument_value);
  upload(&x);
  CHECK_OK(call1(function, &x, &out, NULL));
  fetch(out.host, out.device, out.bytes);
  const double value = get(&out, out.first).re;
  drop(&x);
  drop(&out);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
  return value;
}

static double value_at(const char *expression, int kind, double argument) {
  char code[512];
  snprintf(code, sizeof code, "template <typename T> T f(T x) { return %s; }", expression);
  return value_of(code, kind, argument);
}

/* Computed with 40 digits. float32 cannot represent the argument of the last row. */
static const struct {
  const char *expression;
  double x;
  double value;
} special[] = {
    {"erfinv(x)", 0.5, 0.47693627620446987},      {"erfinv(x)", 0x1p-40, 8.0601869326779526e-13},
    {"erfinv(x)", -0.9375, -1.3171503349861307},  {"erfcinv(x)", 0.125, 1.0847870400692831},
    {"normcdf(x)", -3, 0.0013498980316300945},    {"normcdfinv(x)", 0.9375, 1.5341205443525463},
    {"erfcx(x)", 0.5, 0.61569034419292587},       {"erfcx(x)", 20, 0.028174348741051319},
    {"erfcx(x)", -2, 108.94090438997797},         {"erfcx(x)", 9.5, 0.059064678352563891},
    {"cyl_bessel_i0(x)", 0.5, 1.0634833707413235}, {"cyl_bessel_i0(x)", 30, 781672297823.97749},
    {"cyl_bessel_i1(x)", 3, 3.9533702174026094},  {"rcbrt(x)", 27, 1.0 / 3},
    {"rhypot(x, x)", 1, 0.70710678118654752},     {"sinpi(x)", 2.25, 0.70710678118654752},
    {"cospi(x)", 0.375, 0.38268343236508977},     {"rsqrt(x)", 16, 0.25},
    {"erfcinv(x)", 0x1p-300, 14.307640189514879},
};

TEST(values_of_cuda_functions) {
  const size_t count = sizeof special / sizeof special[0];
  for (size_t index = 0; index < count; index++) {
    for (int kind = index + 1 < count ? F32 : F64; kind <= F64; kind++) {
      const double value = value_at(special[index].expression, kind, special[index].x);
      const double error = fabs(value / special[index].value - 1);
      if (!(error < (kind == F32 ? 2e-6 : 2e-14))) {
        fprintf(stderr, "%s of %g is %.17g\n", special[index].expression, special[index].x, value);
        CHECK(error < 1e-14);
      }
    }
  }
  /* These are exact, which pi times a number would not be. */
  CHECK(value_at("sinpi(x)", F64, 1) == 0);
  CHECK(value_at("cospi(x)", F64, 0.5) == 0);
  CHECK(value_at("sinpi(x)", F32, 1e8) == 0);
  CHECK(value_at("cospi(x)", F64, -3) == -1);
}

TEST(values_of_cuda_conversions_and_bit_functions) {
  static const struct {
    const char *expression;
    double x;
    double value;
  } exact[] = {
      {"T(__float2int_rn(float(x)))", 2.5, 2},
      {"T(__float2int_rd(float(x)))", -2.5, -3},
      {"T(__float2int_ru(float(x)))", -2.5, -2},
      {"T(__double2ll_rz(double(x)))", -2.75, -2},
      {"T(__float2uint_rn(float(x)))", -5, 0},
      {"T(__float2int_rn(float(x)))", 1e20, 2147483647},
      {"T(__float_as_int(float(x)) >> 23)", 2, 128},
      {"T(__int_as_float(0x40400000)) + x", 1, 4},
      {"T(__double_as_longlong(double(x)) >> 52)", 1, 1023},
      {"T(__popc(unsigned(x)))", 255, 8},
      {"T(__clz(int(x)))", 255, 24},
      {"T(__clz(int(x)))", 0, 32},
      {"T(__ffs(int(x)))", 24, 4},
      {"T(__brev(unsigned(x)) >> 28)", 1, 8},
      {"T(__umulhi(unsigned(x), 1u << 31))", 10, 5},
      {"T(__mulhi(int(x), 1 << 30))", -8, -2},
      {"T(__saturatef(float(x)))", 3, 1},
      {"T(__fmaf_rn(float(x), 2.0f, 1.0f))", 3, 7},
      {"T(__frcp_rn(float(x)))", 4, 0.25},
      {"T(fdividef(float(x), 2.0f))", 3, 1.5},
      {"T(max(float(x), 0.5))", -1, 0.5},
      {"T(min(int(x), 3u))", 7, 3},
      {"T(min(float(x), float(NAN)))", 7, 7},
  };
  for (size_t index = 0; index < sizeof exact / sizeof exact[0]; index++) {
    const double value = value_at(exact[index].expression, F64, exact[index].x);
    if (value != exact[index].value) {
      fprintf(stderr, "%s of %g is %.17g\n", exact[index].expression, exact[index].x, value);
      CHECK(value == exact[index].value);
    }
  }
}

/* Functions with tables and helpers of the same name do not conflict. */
#define TABLE(a, b)                                                                                          \
  "template <typename T> T pick(T x) { static const float table[] = {" #a ", " #b "}; return table[int(x)]; }"
#define HELPED(by) "float helper(float x) { return x + " #by "; } template <typename T> T help(T x) { return helper(x); }"

/* A function of the program with the same name. */
float helper(float x);
float helper(float x) { return x + 1000; }

TEST(tables_and_helpers_are_local_to_a_function) {
  CHECK(value_of(TABLE(1, 2), F32, 1) == 2);
  CHECK(value_of(TABLE(10, 20), F32, 1) == 20);
  CHECK(value_of(HELPED(0.5f), F32, 1) == 1.5);
  CHECK(value_of(HELPED(0.25f), F32, 1) == 1.25);
  CHECK(helper(1) == 1001);
  CHECK(value_of("template <typename T> T f(T x) { return x; } static const int later[] = {1};", F32, 3) == 3);
}
