/*
 * Conversions of float16, for compilers without the type.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef HALF_H
#define HALF_H

#include <math.h>
#include <stdint.h>

static inline uint16_t half_of(double value) {
  int exponent = 0;
  const double fraction = frexp(fabs(value), &exponent);
  const unsigned sign = value < 0 ? 0x8000 : 0;
  if (exponent < -13 || value == 0) {
    return 0; /* It would be subnormal. */
  }
  return (uint16_t)(sign | (((unsigned)(exponent + 14) << 10) + (unsigned)(fraction * 2048) - 1024));
}

static inline double number_of(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double value = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -value : value;
}

#endif
