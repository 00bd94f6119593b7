/* Copies that convert to and from floats of 8 bits, on a device and on the CPU. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "support.h"

#include <math.h>

static const struct {
  DLDataType type;
  int fraction, bias;
  /* The bits of the first magnitude that is no finite number, and whether that is infinity. */
  unsigned not_finite;
  bool has_infinity;
} float8[] = {{{10, 8, 1}, 3, 7, 0x7F, false}, {{12, 8, 1}, 2, 15, 0x7C, true}};

/* The value of bits; NaN for what is no number. */
static float value_of_float8(int format, unsigned bits) {
  const unsigned magnitude = bits & 0x7F, fraction = magnitude & ((1u << float8[format].fraction) - 1);
  const int exponent = (int)(magnitude >> float8[format].fraction);
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  if (magnitude >= float8[format].not_finite) {
    return magnitude == float8[format].not_finite && float8[format].has_infinity ? sign * INFINITY : NAN;
  }
  const float ones = (float)fraction + (exponent > 0 ? (float)(1u << float8[format].fraction) : 0.0f);
  return sign * ldexpf(ones, (exponent > 0 ? exponent : 1) - float8[format].bias - float8[format].fraction);
}

/* The bits of the nearest value; of two, those that are even. */
static unsigned bits_of_float8(int format, float value) {
  const unsigned sign = signbit(value) ? 0x80 : 0, none = float8[format].not_finite;
  const float magnitude = fabsf(value);
  /* What would follow the largest number: a power of two, or the NaN as a number. */
  const float next = float8[format].has_infinity ? 65536.0f : 480.0f;
  unsigned above = 0;
  if (isnan(value)) return 0x7F;
  while (above < none && value_of_float8(format, above) < magnitude) above++;
  if (above == 0) return sign;
  const float high = above == none ? next : value_of_float8(format, above), low = value_of_float8(format, above - 1);
  if (magnitude >= next) return sign | none;
  const float down = magnitude - low, up = high - magnitude;
  return sign | (down < up || (down == up && (above - 1) % 2 == 0) ? above - 1 : above);
}

enum { FLOAT8_NUMBERS = 4096 };

/* All bits, and numbers around all values, with both signs, ties, what is too large and what is no number. */
TEST(float8_is_widened_exactly_and_narrowed_to_the_nearest) {
  static const float others[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-30f, -1e30f, 464, 464.01f, 480, 61440, 61439.9f};
  enum { OTHERS = sizeof others / sizeof others[0] };
  float *numbers = pageable_memory(FLOAT8_NUMBERS * sizeof(float)), *wide = pageable_memory(256 * sizeof(float));
  unsigned char *narrow = pageable_memory(FLOAT8_NUMBERS), *all = pageable_memory(256);
  for (int format = 0; format < 2; format++) {
    for (int index = 0; index < FLOAT8_NUMBERS; index++) {
      const unsigned bits = (unsigned)index / 16;
      const float value = value_of_float8(format, bits), after = value_of_float8(format, bits + 1);
      const float part = (float)(index % 16) / 15.0f;
      numbers[index] = index % 16 == 8 ? (value + after) / 2 : value + (after - value) * part;
    }
    memcpy(numbers, others, sizeof others);
    for (int on_device = 0; on_device < 2; on_device++) {
      const DLDevice cpu = {1, 0}, device = {2, 0};
      float *from = on_device ? device_memory(FLOAT8_NUMBERS * sizeof(float), 0) : numbers;
      unsigned char *to = on_device ? device_memory(FLOAT8_NUMBERS, 0) : narrow;
      int64_t count[] = {FLOAT8_NUMBERS}, few[] = {256};
      const DLTensor source = {from, on_device ? device : cpu, 1, {2, 32, 1}, count, NULL, 0};
      const DLTensor target = {to, on_device ? device : cpu, 1, float8[format].type, count, NULL, 0};
      if (on_device) put(from, numbers, FLOAT8_NUMBERS * sizeof(float));
      CHECK_OK(plinth_copy_tensor(&target, &source, false));
      if (on_device) fetch(narrow, to, FLOAT8_NUMBERS);
      for (int index = 0; index < FLOAT8_NUMBERS; index++) {
        CHECK_EQ(narrow[index], bits_of_float8(format, numbers[index]));
      }
      for (int bits = 0; bits < 256; bits++) {
        all[bits] = (unsigned char)bits;
      }
      if (on_device) put(to, all, 256);
      const DLTensor bytes = {on_device ? to : all, on_device ? device : cpu, 1, float8[format].type, few, NULL, 0};
      const DLTensor floats = {on_device ? from : wide, on_device ? device : cpu, 1, {2, 32, 1}, few, NULL, 0};
      CHECK_OK(plinth_copy_tensor(&floats, &bytes, false));
      if (on_device) fetch(wide, from, 256 * sizeof(float));
      for (unsigned bits = 0; bits < 256; bits++) {
        const float expected = value_of_float8(format, bits);
        CHECK(isnan(expected) ? isnan(wide[bits]) : memcmp(&wide[bits], &expected, sizeof expected) == 0);
      }
    }
  }
  free(numbers);
  free(wide);
  free(narrow);
  free(all);
}
