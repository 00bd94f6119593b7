/* Complex numbers in jiterated functions, against C's own, and the functions that a source may use.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_USE_KERNEL_CACHE=0 */
/* timeout: 240 */
#include "jitting.h"

#include <complex.h>

enum { SIDE = 33 };

/* A grid of points around 0, on and off the axes. */
static double complex point(int index) {
  const double re = (index % SIDE - SIDE / 2) * 0.3, im = (index / SIDE - SIDE / 2) * 0.27;
  return re + im * I;
}

static void expect_complex(const char *code, double complex (*model_of)(double complex), double tolerance) {
  const int64_t count = SIDE * SIDE;
  plinth_jit_function_t function = jit(code);
  for (int kind = C64; kind <= C128; kind++) {
    tensor z, out;
    make(&z, kind, 1, &count, NULL, 0);
    make(&out, kind, 1, &count, NULL, 0);
    for (int index = 0; index < count; index++) {
      const number value = {creal(point(index)), cimag(point(index))};
      set(&z, z.first + (size_t)index * bytes_of(kind), value);
    }
    upload(&z);
    CHECK_OK(call1(function, &z, &out, NULL));
    fetch(out.host, out.device, out.bytes);
    for (int index = 0; index < count; index++) {
      const size_t at = (size_t)index * bytes_of(kind);
      const number from = get(&z, z.first + at), found = get(&out, out.first + at);
      const double complex expected = model_of(from.re + from.im * I);
      const double complex difference = found.re + found.im * I - expected;
      const double bound = tolerance * (kind == C64 ? 1e-6 : 1e-14) * (1 + cabs(expected));
      /* On a branch cut both sides are right. Infinite results are not compared. */
      const bool conjugate = cabs(found.re - creal(expected) + (found.im + cimag(expected)) * I) <= bound ||
                            cabs(found.re + creal(expected) + (found.im - cimag(expected)) * I) <= bound;
      const bool on_axis = from.re == 0 || from.im == 0;
      if (isfinite(creal(expected)) && isfinite(cimag(expected)) && !(cabs(difference) <= bound) &&
          !(on_axis && conjugate)) {
        fprintf(stderr, "%s of (%g, %g) is (%g, %g) instead of (%g, %g)\n", code, from.re, from.im, found.re, found.im,
                creal(expected), cimag(expected));
        CHECK(cabs(difference) <= bound);
      }
    }
    drop(&z);
    drop(&out);
  }
  CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
}

#define UNARY(name) "template <typename T> T f(T z) { return " name "; }"

static double complex square(double complex z) { return z * z; }
static double complex reciprocal(double complex z) { return 1 / z; }
static double complex cube_root_of(double complex z) { return cpow(z, 1.0 / 3); }
static double complex log10_of(double complex z) { return clog(z) / log(10); }
static double complex swap_parts(double complex z) { return cimag(z) + creal(z) * I; }
static double complex abs_and_arg(double complex z) { return cabs(z) + carg(z) * I; }
static double complex polynomial(double complex z) { return 2 * z * z - z / 3 + conj(z) * I; }

TEST(operators_of_complex_numbers) {
  expect_complex(UNARY("z * z"), square, 4);
  expect_complex(UNARY("1 / z"), reciprocal, 4);
  expect_complex(UNARY("2 * z * z - z / 3.0 + std::conj(z) * T(0, 1)"), polynomial, 10);
  expect_complex(UNARY("T(z.imag(), std::real(z))"), swap_parts, 1);
  expect_complex(UNARY("T(std::abs(z), arg(z))"), abs_and_arg, 4);
}

TEST(exponentials_of_complex_numbers) {
  expect_complex(UNARY("exp(z)"), cexp, 8);
  expect_complex(UNARY("std::log(z)"), clog, 8);
  expect_complex(UNARY("log10(z)"), log10_of, 8);
  expect_complex(UNARY("std::sqrt(z)"), csqrt, 8);
  expect_complex(UNARY("std::pow(z, T(1.0 / 3))"), cube_root_of, 16);
}

TEST(circular_functions_of_complex_numbers) {
  expect_complex(UNARY("sin(z)"), csin, 8);
  expect_complex(UNARY("std::cos(z)"), ccos, 8);
  expect_complex(UNARY("tan(z)"), ctan, 64);
  expect_complex(UNARY("std::asin(z)"), casin, 32);
  expect_complex(UNARY("acos(z)"), cacos, 32);
  expect_complex(UNARY("atan(z)"), catan, 32);
}

TEST(hyperbolic_functions_of_complex_numbers) {
  expect_complex(UNARY("sinh(z)"), csinh, 8);
  expect_complex(UNARY("cosh(z)"), ccosh, 8);
  expect_complex(UNARY("std::tanh(z)"), ctanh, 64);
  expect_complex(UNARY("asinh(z)"), casinh, 32);
  expect_complex(UNARY("acosh(z)"), cacosh, 32);
  expect_complex(UNARY("std::atanh(z)"), catanh, 32);
}

TEST(complex_scalars) {
  const plinth_jit_scalar_t turn = {sizeof turn, "turn", PLINTH_JIT_COMPLEX, 0, 0, 0, 1};
  const int64_t count = 10;
  const DLTensor *inputs[1];
  DLTensor *outputs[1];
  plinth_jit_function_t function = NULL;
  tensor z;
  CHECK_OK(plinth_jiterator_create_jit_fn("template <typename T> T f(T z, T turn) { return z * turn; }", &turn, 1, &function));
  make_row(&z, C64, count, 1);
  inputs[0] = &z.dl;
  outputs[0] = &z.dl;
  const number before = get(&z, z.first);
  CHECK_OK(plinth_jiterator_call(function, inputs, 1, outputs, 1, NULL, 0, NULL));
  fetch(z.host, z.device, z.bytes);
  const number after = get(&z, z.first);
  CHECK(after.re == -before.im);
  CHECK(after.im == before.re);
  drop(&z);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
}

/* Functions of the C++ standard and of CUDA, which need no header. */
TEST(functions_need_no_header) {
  static const char *const codes[] = {
      "std::exp(x) + exp2(x) + std::expm1(x) + log1p(x) + std::log2(x) + cbrt(x) + rsqrt(x + T(1))",
      "std::fmax(x, T(2)) + fminf(x, 2) + max(x, T(3)) + std::min(x, T(3)) + std::fma(x, x, x) + fmod(x, T(2))",
      "erf(x) + std::erfc(x) + lgamma(x) + std::tgamma(x) + std::hypot(x, T(1)) + atan2(x, T(1)) + sinpi(x) + cospi(x)",
      "std::floor(x) + ceil(x) + std::trunc(x) + std::round(x) + rint(x) + std::copysign(x, T(-1)) + nextafter(x, T(9))",
      "isnan(x) || std::isinf(x) ? T(0) : std::isfinite(x) ? T(signbit(x)) : T(1)",
      "std::numeric_limits<T>::infinity() > x && x != T(NAN) ? std::numeric_limits<T>::max() : T(INFINITY)",
      "std::is_same<T, float>::value ? T(1) : T(std::is_floating_point<T>::value)",
      "x * T(M_PI) + T(__expf((float)x)) + T(std::numeric_limits<int64_t>::max() > 0) + T(sizeof(uint8_t) + sizeof(int16_t))",
  };
  for (size_t index = 0; index < sizeof codes / sizeof codes[0]; index++) {
    char code[512];
    const int64_t count = 64;
    tensor x, out;
    snprintf(code, sizeof code, "template <typename T> T f(T x) { return %s; }", codes[index]);
    plinth_jit_function_t function = jit(code);
    for (int kind = F32; kind <= F64; kind++) {
      make_row(&x, kind, count, 1);
      make(&out, kind, 1, &count, NULL, 0);
      CHECK_OK(call1(function, &x, &out, NULL));
      CHECK_OK(plinth_stream_synchronize(NULL));
      drop(&x);
      drop(&out);
    }
    CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
  }
}
