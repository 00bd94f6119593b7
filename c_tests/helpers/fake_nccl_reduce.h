/*
 * The reductions of the fake NCCL.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef FAKE_NCCL_REDUCE_H
#define FAKE_NCCL_REDUCE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

__extension__ typedef _Float16 half;

static float from_bfloat(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static uint16_t to_bfloat(float value) {
  uint32_t wide;
  memcpy(&wide, &value, sizeof wide);
  return (uint16_t)((wide + 0x7FFF + (wide >> 16 & 1)) >> 16);
}

/* The value of a magnitude in 8 bits, with `fraction` bits of fraction. */
static float from_float8(unsigned bits, unsigned fraction) {
  const unsigned exponent = bits >> fraction, bias = fraction == 3 ? 7 : 15;
  float value = (float)(bits & ((1u << fraction) - 1)) / (float)(1u << fraction) + (exponent > 0 ? 1.0f : 0.0f);
  for (unsigned at = exponent > 0 ? exponent : 1; at < bias; at++) value /= 2;
  for (unsigned at = bias; at < exponent; at++) value *= 2;
  return value;
}

/* The bits of the largest magnitude that is not greater: tests have sums that are exact, without signs. */
static uint8_t to_float8(float value, unsigned fraction) {
  unsigned bits = 0;
  while (bits < (fraction == 3 ? 0x7Eu : 0x7Bu) && from_float8(bits + 1, fraction) <= value) bits++;
  return (uint8_t)bits;
}

static float from_e4m3(uint8_t bits) { return from_float8(bits, 3); }
static float from_e5m2(uint8_t bits) { return from_float8(bits, 2); }
static uint8_t to_e4m3(float value) { return to_float8(value, 3); }
static uint8_t to_e5m2(float value) { return to_float8(value, 2); }

#define COMBINE(sum, value, op) \
  ((op) == 1 ? (sum) * (value) : (op) == 2 ? ((sum) > (value) ? (sum) : (value)) \
   : (op) == 3 ? ((sum) < (value) ? (sum) : (value)) : (sum) + (value))
#define INPUT(type, rank) ((const type *)(inputs + (size_t)(rank) * stride))
#define REDUCE_AS(type, wide, read, write)                                                    \
  for (size_t index = 0; index < count; index++) {                                            \
    wide sum = read(INPUT(type, 0)[index]);                              \
    for (int rank = 1; rank < ranks; rank++) {                                             \
      const wide value = read(INPUT(type, rank)[index]);                 \
      sum = (wide)COMBINE(sum, value, op);                                                    \
    }                                                                                         \
    ((type *)to)[index] = (type)write(op == 4 ? (wide)(sum / (wide)ranks) : sum);           \
  }                                                                                           \
  break
#define SAME(value) (value)

/* Reduces the inputs of the ranks, in the order of ranks, into `to`. The inputs are `stride` bytes apart. kind and op are
 * NCCL's. */
static void reduce(const unsigned char *inputs, size_t stride, int ranks, void *to, size_t count, int kind, int op) {
  switch (kind) {
    case 0: REDUCE_AS(int8_t, int8_t, SAME, SAME);
    case 1: REDUCE_AS(uint8_t, uint8_t, SAME, SAME);
    case 2: REDUCE_AS(int32_t, int32_t, SAME, SAME);
    case 3: REDUCE_AS(uint32_t, uint32_t, SAME, SAME);
    case 4: REDUCE_AS(int64_t, int64_t, SAME, SAME);
    case 5: REDUCE_AS(uint64_t, uint64_t, SAME, SAME);
    case 6: REDUCE_AS(half, float, SAME, SAME);
    case 7: REDUCE_AS(float, float, SAME, SAME);
    case 8: REDUCE_AS(double, double, SAME, SAME);
    case 10: REDUCE_AS(uint8_t, float, from_e4m3, to_e4m3);
    case 11: REDUCE_AS(uint8_t, float, from_e5m2, to_e5m2);
    default: REDUCE_AS(uint16_t, float, from_bfloat, to_bfloat);
  }
}

#endif
