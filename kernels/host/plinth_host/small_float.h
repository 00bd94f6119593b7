// Conversions between small floating-point formats (half, bfloat16, fp8) and float, double and integers.
#pragma once
#include "rounding.h"
#include "vector_types.h"

namespace plinth_host {
// Specialized for each 16-bit type, with its number of bits: `exponent`, `mantissa`.
template <typename T> struct Format;

// Returns the bits of a finite |value| in a format, rounded as the mode says for the given sign. A result past the
// greatest finite number continues the sequence of bits, as if there were more exponents.
template <int exponent_bits, int mantissa_bits, Rounding mode>
inline unsigned encode_magnitude(double value, bool negative) {
  constexpr int least_exponent = 2 - (1 << (exponent_bits - 1));
  const uint64_t bits = bit_cast<uint64_t>(value) & (~0ull >> 1);
  const int exponent = static_cast<int>(bits >> 52) - 1023;
  // The implicit bit of a subnormal double is wrong, but all of it is far below the last place.
  const uint64_t significand = bits == 0 ? 0 : (bits & ((1ull << 52) - 1)) | 1ull << 52;
  const int below = exponent < least_exponent ? least_exponent - exponent : 0;
  const int shift = 52 - mantissa_bits + (below < mantissa_bits + 2 ? below : mantissa_bits + 2);
  const uint64_t kept = significand >> shift, rest = significand & ((1ull << shift) - 1), half = 1ull << (shift - 1);
  const bool increment = mode == Rounding::nearest ? rest > half || (rest == half && (kept & 1))
                                                   : rest != 0 && mode == (negative ? Rounding::down : Rounding::up);
  // An increment that overflows the significand carries into the exponent.
  const unsigned exponent_field = below != 0 ? 0 : static_cast<unsigned>(exponent - least_exponent);
  return (exponent_field << mantissa_bits) + static_cast<unsigned>(kept) + increment;
}

// Rounds once to a 16-bit type. NaN has all bits set but the sign.
template <typename T, Rounding mode = Rounding::nearest> inline T from_double(double value) {
  constexpr unsigned infinity = ((1u << Format<T>::exponent) - 1) << Format<T>::mantissa;
  const bool negative = signbit(value);
  unsigned bits = infinity;
  if (value != value) return bit_cast<T>(uint16_t{0x7fff});
  if (!isinf(value)) bits = encode_magnitude<Format<T>::exponent, Format<T>::mantissa, mode>(value, negative);
  if (bits > infinity) bits = infinity;
  const bool to_infinity = mode == Rounding::nearest || mode == (negative ? Rounding::down : Rounding::up);
  if (bits == infinity && !to_infinity && !isinf(value)) bits--;
  return bit_cast<T>(static_cast<uint16_t>(bits | (negative ? 0x8000u : 0u)));
}
// The common case of from_double, in fewer steps, and without branches: compilers vectorize it.
template <typename T> inline T from_float(float value) {
  const uint32_t bits = bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  uint32_t result;
  if constexpr (Format<T>::mantissa == 7) {
    result = (magnitude + 0x7fffu + (magnitude >> 16 & 1)) >> 16;
  } else {
    // The last place of the sum is that of subnormal halves.
    const uint32_t subnormal = bit_cast<uint32_t>(bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    result = magnitude < 0x38800000u ? subnormal : normal;
    result = magnitude < 0x47800000u ? result : 0x7c00u;
  }
  result |= bits >> 16 & 0x8000u;
  return bit_cast<T>(static_cast<uint16_t>(magnitude > 0x7f800000u ? 0x7fffu : result));
}
template <typename T> inline float to_float(T value) {
  const uint32_t bits = bit_cast<uint16_t>(value);
  if constexpr (Format<T>::mantissa == 7) return bit_cast<float>(bits << 16);
  const uint32_t magnitude = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
  // The product by 2^112 corrects the exponent, also of subnormals.
  const uint32_t finite = bit_cast<uint32_t>(bit_cast<float>(magnitude) * 0x1p112f);
  const uint32_t result = sign | (magnitude < 0x0f800000u ? finite : 0x7f800000u);
  return bit_cast<float>(magnitude > 0x0f800000u ? 0x7fffffffu : result);
}
// Returns an integer as a double. An inexact one gets its last bit set, so that rounding it is rounding the integer.
template <typename I> inline double sticky_double(I value) {
  const double rounded = from_integer<Rounding::zero, double>(value);
  if (static_cast<__int128>(rounded) == static_cast<__int128>(value)) return rounded;
  return bit_cast<double>(bit_cast<uint64_t>(rounded) | 1);
}
template <typename T, Rounding mode, typename I> inline T from_integer_to_small(I value) {
  return from_double<T, mode>(sticky_double(value));
}

// Operations on 16-bit types, rounded once. Products, quotients and fused operations of bfloat16 may underflow in
// float, so these are computed in double; float has enough bits for everything else.
template <typename T> constexpr bool NEEDS_DOUBLE = Format<T>::mantissa == 7;
template <typename T> inline T small_add(T a, T b) { return from_float<T>(to_float(a) + to_float(b)); }
template <typename T> inline T small_subtract(T a, T b) { return from_float<T>(to_float(a) - to_float(b)); }
template <typename T> inline T small_multiply(T a, T b) {
  if constexpr (NEEDS_DOUBLE<T>) return from_double<T>(static_cast<double>(to_float(a)) * to_float(b));
  return from_float<T>(to_float(a) * to_float(b));
}
template <typename T> inline T small_divide(T a, T b) {
  if constexpr (NEEDS_DOUBLE<T>) return from_double<T>(static_cast<double>(to_float(a)) / to_float(b));
  return from_float<T>(to_float(a) / to_float(b));
}
// The product is exact in double. The sum is rounded to odd: a last bit of 1 stands for everything below it.
template <typename T> inline T small_multiply_add(T a, T b, T c) {
  const double x = static_cast<double>(to_float(a)) * to_float(b), y = to_float(c);
  const double sum = x + y, y_part = sum - x, error = (x - (sum - y_part)) + (y - y_part);
  if ((bit_cast<uint64_t>(sum) & 1) == 0 && (error > 0 || error < 0)) {
    return from_double<T>(error > 0 ? next_up(sum) : -next_up(-sum));
  }
  return from_double<T>(sum);
}
template <typename T> inline bool is_nan(T a) {
  constexpr unsigned infinity = ((1u << Format<T>::exponent) - 1) << Format<T>::mantissa;
  return (bit_cast<uint16_t>(a) & 0x7fffu) > infinity;
}
template <typename T> inline T canonical(T a) { return is_nan(a) ? bit_cast<T>(uint16_t{0x7fff}) : a; }
template <typename T> inline T with_bits(T a, unsigned keep, unsigned flip) {
  return canonical(bit_cast<T>(static_cast<uint16_t>((bit_cast<uint16_t>(a) & keep) ^ flip)));
}
template <typename T> inline T small_min(T a, T b) {
  if (is_nan(a)) return canonical(b);
  if (is_nan(b)) return a;
  return bit_cast<uint32_t>(lesser(to_float(a), to_float(b))) == bit_cast<uint32_t>(to_float(a)) ? a : b;
}
template <typename T> inline T small_max(T a, T b) {
  if (is_nan(a)) return canonical(b);
  if (is_nan(b)) return a;
  return bit_cast<uint32_t>(greater(to_float(a), to_float(b))) == bit_cast<uint32_t>(to_float(a)) ? a : b;
}
template <typename T> inline T either_nan(T a, T b, T otherwise) {
  return is_nan(a) || is_nan(b) ? bit_cast<T>(uint16_t{0x7fff}) : otherwise;
}
// The saturating forms of operations: [0, 1], and NaN is 0.
template <typename T> inline T small_saturate(T a) {
  const float value = to_float(a);
  return value > 0.0f ? (value < 1.0f ? a : from_float<T>(1.0f)) : bit_cast<T>(uint16_t{0});
}
template <typename T> inline T small_relu(T a) {
  return to_float(a) > 0.0f || is_nan(a) ? canonical(a) : bit_cast<T>(uint16_t{0});
}
}  // namespace plinth_host
