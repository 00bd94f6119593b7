// Exact arithmetic for the tests of rounding: a fixed-point number that holds any sum and product of doubles.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

class Exact {
 public:
  Exact() { memset(limbs, 0, sizeof limbs); }
  Exact(double x) : Exact() { add(x, 1.0); }

  // Adds x * y, or x * y * z whose significands fit in 126 bits together.
  Exact &add(double x, double y, double z = 1.0) {
    int ex, ey, ez;
    const __int128 sx = split(x, &ex), sy = split(y, &ey), sz = split(z, &ez);
    __int128 product = sx * sy * sz;
    const bool negative = product < 0;
    unsigned __int128 rest = static_cast<unsigned __int128>(product);
    if (negative) rest = -rest;
    const int bit = ex + ey + ez + ORIGIN;
    uint64_t shifted[3];
    const int shift = bit % 64;
    shifted[0] = static_cast<uint64_t>(rest << shift);
    shifted[1] = static_cast<uint64_t>(rest >> 64 << shift) | (shift ? static_cast<uint64_t>(rest) >> (64 - shift) : 0);
    shifted[2] = shift ? static_cast<uint64_t>(rest >> 64) >> (64 - shift) : 0;
    unsigned carry = 0;
    for (int i = bit / 64, part = 0; i < LIMBS; i++, part++) {
      const uint64_t operand = part < 3 ? shifted[part] : 0;
      if (part >= 3 && carry == 0) break;
      if (negative) {
        const uint64_t before = limbs[i], middle = before - operand;
        limbs[i] = middle - carry;
        carry = (before < operand) || (middle < carry);
      } else {
        const uint64_t middle = limbs[i] + operand;
        limbs[i] = middle + carry;
        carry = (middle < operand) || (limbs[i] < middle);
      }
    }
    return *this;
  }
  int sign() const {
    if (limbs[LIMBS - 1] >> 63) return -1;
    for (int i = 0; i < LIMBS; i++) {
      if (limbs[i] != 0) return 1;
    }
    return 0;
  }

 private:
  // Room for 2^-2300 (products of subnormals) to 2^2500.
  static constexpr int ORIGIN = 2300, LIMBS = 75;
  uint64_t limbs[LIMBS];

  // Returns an odd significand or 0, so that short numbers have short products.
  static __int128 split(double x, int *exponent) {
    *exponent = 0;
    if (x == 0) return 0;
    int64_t significand = static_cast<int64_t>(ldexp(frexp(x, exponent), 53));
    *exponent -= 53;
    while ((significand & 1) == 0) significand /= 2, ++*exponent;
    return significand;
  }
};

// How a correctly rounded result relates to its neighbours. `residual` returns the sign of the exact value minus its
// argument; infinities stand for what is beyond the finite numbers.
template <typename T, typename Residual> bool is_rounded(char mode, T result, Residual residual) {
  const T infinity = static_cast<T>(INFINITY);
  const auto sign = [&](T x) { return isinf(x) ? (x > 0 ? -1 : 1) : residual(x); };
  if (mode == 'z') mode = residual(T(0)) >= 0 ? 'd' : 'u';
  if (mode == 'd') return sign(result) >= 0 && sign(nextafter(result, infinity)) < 0;
  return sign(result) <= 0 && sign(nextafter(result, -infinity)) > 0;
}
