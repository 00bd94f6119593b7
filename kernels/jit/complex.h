// Complex numbers, for both compilers: operators and functions as std::complex has them. Products and quotients are computed
// without looking for infinities. The inverse functions are Kahan's ("Branch cuts for complex elementary functions", 1987).
namespace plinth_jit {
template <typename R>
struct complex {
  typedef R value_type;
  R re, im;

  PLINTH_INLINE constexpr complex(R re = R(), R im = R()) : re(re), im(im) {}
  template <typename Q> PLINTH_INLINE constexpr complex(const complex<Q> &other) : re(R(other.re)), im(R(other.im)) {}

  PLINTH_INLINE constexpr R real() const { return re; }
  PLINTH_INLINE constexpr R imag() const { return im; }
  PLINTH_INLINE void real(R value) { re = value; }
  PLINTH_INLINE void imag(R value) { im = value; }

  PLINTH_INLINE friend complex operator+(complex a, complex b) { return complex(a.re + b.re, a.im + b.im); }
  PLINTH_INLINE friend complex operator-(complex a, complex b) { return complex(a.re - b.re, a.im - b.im); }
  PLINTH_INLINE friend complex operator*(complex a, complex b) {
    return complex(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
  }
  // Divided by the larger part first, so that nothing overflows that does not have to (Smith, 1962).
  PLINTH_INLINE friend complex operator/(complex a, complex b) {
    if (::fabs(b.re) >= ::fabs(b.im)) {
      if (b.re == R(0) && b.im == R(0)) {
        return complex(a.re / ::fabs(b.re), a.im / ::fabs(b.re));
      }
      const R ratio = b.im / b.re, scale = R(1) / (b.re + b.im * ratio);
      return complex((a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale);
    }
    const R ratio = b.re / b.im, scale = R(1) / (b.im + b.re * ratio);
    return complex((a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale);
  }
  PLINTH_INLINE friend bool operator==(complex a, complex b) { return a.re == b.re && a.im == b.im; }
  PLINTH_INLINE friend bool operator!=(complex a, complex b) { return !(a == b); }
  PLINTH_INLINE complex operator+() const { return *this; }
  PLINTH_INLINE complex operator-() const { return complex(-re, -im); }
  PLINTH_INLINE complex &operator+=(complex other) { return *this = *this + other; }
  PLINTH_INLINE complex &operator-=(complex other) { return *this = *this - other; }
  PLINTH_INLINE complex &operator*=(complex other) { return *this = *this * other; }
  PLINTH_INLINE complex &operator/=(complex other) { return *this = *this / other; }
};

#define PLINTH_COMPLEX template <typename R> PLINTH_INLINE
PLINTH_COMPLEX R real(complex<R> z) { return z.re; }
PLINTH_COMPLEX R imag(complex<R> z) { return z.im; }
PLINTH_COMPLEX complex<R> conj(complex<R> z) { return complex<R>(z.re, -z.im); }
PLINTH_COMPLEX R norm(complex<R> z) { return z.re * z.re + z.im * z.im; }
PLINTH_COMPLEX R abs(complex<R> z) { return ::hypot(z.re, z.im); }
PLINTH_COMPLEX R arg(complex<R> z) { return ::atan2(z.im, z.re); }
PLINTH_COMPLEX complex<R> polar(R length, R angle) { return complex<R>(length * ::cos(angle), length * ::sin(angle)); }
PLINTH_COMPLEX bool isnan(complex<R> z) { return z.re != z.re || z.im != z.im; }
PLINTH_COMPLEX bool isinf(complex<R> z) { return !isnan(z) && (z.re - z.re != R(0) || z.im - z.im != R(0)); }
PLINTH_COMPLEX bool isfinite(complex<R> z) { return z.re - z.re == R(0) && z.im - z.im == R(0); }

PLINTH_COMPLEX complex<R> exp(complex<R> z) {
  const R length = ::exp(z.re);
  // A real number stays one, also where infinity times nothing is not a number.
  return z.im == R(0) ? complex<R>(length, z.im) : complex<R>(length * ::cos(z.im), length * ::sin(z.im));
}
PLINTH_COMPLEX complex<R> log(complex<R> z) { return complex<R>(::log(abs(z)), arg(z)); }
PLINTH_COMPLEX complex<R> log2(complex<R> z) { return log(z) * complex<R>(R(1.44269504088896340736)); }
PLINTH_COMPLEX complex<R> log10(complex<R> z) { return log(z) * complex<R>(R(0.43429448190325182765)); }
PLINTH_COMPLEX complex<R> sqrt(complex<R> z) {
  if (z.re == R(0) && z.im == R(0)) {
    return complex<R>(R(0), z.im);
  }
  const R root = ::sqrt((::fabs(z.re) + abs(z)) * R(0.5)), other = z.im / (root + root);
  return z.re >= R(0) ? complex<R>(root, other) : complex<R>(::fabs(other), ::copysign(root, z.im));
}
PLINTH_COMPLEX complex<R> pow(complex<R> base, complex<R> exponent) {
  if (base.re == R(0) && base.im == R(0)) {
    return exponent.re == R(0) && exponent.im == R(0) ? complex<R>(R(1)) : complex<R>(R(0));
  }
  return exp(exponent * log(base));
}
PLINTH_COMPLEX complex<R> pow(complex<R> base, R exponent) { return pow(base, complex<R>(exponent)); }
PLINTH_COMPLEX complex<R> pow(R base, complex<R> exponent) { return pow(complex<R>(base), exponent); }
PLINTH_COMPLEX complex<R> sinh(complex<R> z) { return complex<R>(::sinh(z.re) * ::cos(z.im), ::cosh(z.re) * ::sin(z.im)); }
PLINTH_COMPLEX complex<R> cosh(complex<R> z) { return complex<R>(::cosh(z.re) * ::cos(z.im), ::sinh(z.re) * ::sin(z.im)); }
PLINTH_COMPLEX complex<R> tanh(complex<R> z) {
  // Far out it is 1 or -1, and the fraction below infinity by infinity.
  if (::fabs(z.re) > R(20)) {
    return complex<R>(::copysign(R(1), z.re), R(4) * ::sin(z.im) * ::cos(z.im) * ::exp(R(-2) * ::fabs(z.re)));
  }
  const R below = ::sinh(z.re) * ::sinh(z.re) + ::cos(z.im) * ::cos(z.im);
  return complex<R>(::sinh(z.re) * ::cosh(z.re) / below, ::sin(z.im) * ::cos(z.im) / below);
}
PLINTH_COMPLEX complex<R> times_i(complex<R> z) { return complex<R>(-z.im, z.re); }
PLINTH_COMPLEX complex<R> by_i(complex<R> z) { return complex<R>(z.im, -z.re); }
PLINTH_COMPLEX complex<R> sin(complex<R> z) { return by_i(sinh(times_i(z))); }
PLINTH_COMPLEX complex<R> cos(complex<R> z) { return cosh(times_i(z)); }
PLINTH_COMPLEX complex<R> tan(complex<R> z) { return by_i(tanh(times_i(z))); }
PLINTH_COMPLEX complex<R> asin(complex<R> z) {
  const complex<R> less = sqrt(complex<R>(R(1) - z.re, -z.im)), more = sqrt(complex<R>(R(1) + z.re, z.im));
  return complex<R>(::atan2(z.re, (less * more).re), ::asinh((conj(less) * more).im));
}
PLINTH_COMPLEX complex<R> acos(complex<R> z) {
  const complex<R> less = sqrt(complex<R>(R(1) - z.re, -z.im)), more = sqrt(complex<R>(R(1) + z.re, z.im));
  return complex<R>(R(2) * ::atan2(less.re, more.re), ::asinh((conj(more) * less).im));
}
PLINTH_COMPLEX complex<R> atanh(complex<R> z) {
  const R less = R(1) - z.re, square = z.im * z.im;
  return complex<R>(R(0.25) * ::log1p(R(4) * z.re / (less * less + square)),
                    R(0.5) * ::atan2(R(2) * z.im, less * (R(1) + z.re) - square));
}
PLINTH_COMPLEX complex<R> asinh(complex<R> z) { return by_i(asin(times_i(z))); }
PLINTH_COMPLEX complex<R> acosh(complex<R> z) {
  const complex<R> less = sqrt(complex<R>(z.re - R(1), z.im)), more = sqrt(complex<R>(z.re + R(1), z.im));
  return complex<R>(::asinh((conj(less) * more).re), R(2) * ::atan2(less.im, more.re));
}
PLINTH_COMPLEX complex<R> atan(complex<R> z) { return by_i(atanh(times_i(z))); }
#undef PLINTH_COMPLEX
}  // namespace plinth_jit

// A user's function may write std:: before all of them.
namespace std {
#ifndef PLINTH_HOST
#define PLINTH_BOTH(name) \
  using ::name;           \
  using plinth_jit::name
PLINTH_REAL(cbrt);
PLINTH_REAL(ceil);
PLINTH_REAL(copysign);
PLINTH_REAL(erf);
PLINTH_REAL(erfc);
PLINTH_REAL(exp2);
PLINTH_REAL(expm1);
PLINTH_REAL(fabs);
PLINTH_REAL(fdim);
PLINTH_REAL(floor);
PLINTH_REAL(fma);
PLINTH_REAL(fmax);
PLINTH_REAL(fmin);
PLINTH_REAL(fmod);
PLINTH_REAL(frexp);
PLINTH_REAL(hypot);
PLINTH_REAL(ldexp);
PLINTH_REAL(lgamma);
PLINTH_REAL(log1p);
PLINTH_REAL(nearbyint);
PLINTH_REAL(nextafter);
PLINTH_REAL(remainder);
PLINTH_REAL(rint);
PLINTH_REAL(round);
PLINTH_REAL(signbit);
PLINTH_REAL(tgamma);
PLINTH_REAL(trunc);
PLINTH_REAL(atan2);
#undef PLINTH_REAL
#else
#define PLINTH_BOTH(name) using plinth_jit::name
#endif
PLINTH_BOTH(abs);
PLINTH_BOTH(acos);
PLINTH_BOTH(acosh);
PLINTH_BOTH(asin);
PLINTH_BOTH(asinh);
PLINTH_BOTH(atan);
PLINTH_BOTH(atanh);
PLINTH_BOTH(cos);
PLINTH_BOTH(cosh);
PLINTH_BOTH(exp);
PLINTH_BOTH(isfinite);
PLINTH_BOTH(isinf);
PLINTH_BOTH(isnan);
PLINTH_BOTH(log);
PLINTH_BOTH(log10);
PLINTH_BOTH(log2);
PLINTH_BOTH(pow);
PLINTH_BOTH(sin);
PLINTH_BOTH(sinh);
PLINTH_BOTH(sqrt);
PLINTH_BOTH(tan);
PLINTH_BOTH(tanh);
#undef PLINTH_BOTH
#if !defined(PLINTH_HOST) || defined(__GLIBCXX__)
using plinth_jit::arg;
using plinth_jit::complex;
using plinth_jit::conj;
using plinth_jit::imag;
using plinth_jit::norm;
using plinth_jit::polar;
using plinth_jit::real;
#endif
}  // namespace std
