// Integer intrinsics whose arguments are vectors in a 32-bit word: dot products, CUDA's SIMD video functions, and the
// functions for dynamic programming (DPX). Included by integer.h.
#pragma once

namespace plinth_host {
template <int bits, bool is_signed> struct LaneType;
template <> struct LaneType<8, true> { typedef int8_t type; };
template <> struct LaneType<8, false> { typedef uint8_t type; };
template <> struct LaneType<16, true> { typedef int16_t type; };
template <> struct LaneType<16, false> { typedef uint16_t type; };

template <typename T> inline T vector_lane(unsigned word, unsigned index) {
  return static_cast<T>(word >> (8 * sizeof(T) * index));
}
// Applies `operation` to the lanes of its arguments, as 32-bit integers; the low bits of each result are its lane.
template <typename T, typename Operation, typename... Words>
inline unsigned map_lanes(Operation operation, Words... words) {
  unsigned result = 0;
  for (unsigned i = 0; i < 4 / sizeof(T); i++) {
    const unsigned lane = static_cast<unsigned>(operation(static_cast<int>(vector_lane<T>(words, i))...));
    result |= (lane & (0xffffffffu >> (32 - 8 * sizeof(T)))) << (8 * sizeof(T) * i);
  }
  return result;
}
template <typename T> inline int saturate_lane(int value) {
  const int least = static_cast<T>(-1) < T() ? -(1 << (8 * sizeof(T) - 1)) : 0;
  const int greatest = least + (1 << (8 * sizeof(T))) - 1;
  return value < least ? least : value > greatest ? greatest : value;
}
template <typename T> inline unsigned sum_absolute_differences(unsigned a, unsigned b) {
  unsigned sum = 0;
  for (unsigned i = 0; i < 4 / sizeof(T); i++) {
    const int difference = vector_lane<T>(a, i) - vector_lane<T>(b, i);
    sum += static_cast<unsigned>(difference < 0 ? -difference : difference);
  }
  return sum;
}
// Sums of products wrap, so they are computed without sign.
template <typename A, typename B>
inline unsigned dot(unsigned a, unsigned b, unsigned c, unsigned first_of_b, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    c += static_cast<unsigned>(vector_lane<A>(a, i)) * static_cast<unsigned>(vector_lane<B>(b, first_of_b + i));
  }
  return c;
}
}  // namespace plinth_host

// Overloads for words and for vectors, signed and unsigned.
#define PLINTH_DOT(name, a_lane, b_lane, a_vector, b_vector, result, first_of_b, count)                             \
  static inline result name(result a, result b, result c) {                                                         \
    return static_cast<result>(plinth_host::dot<a_lane, b_lane>(static_cast<unsigned>(a), static_cast<unsigned>(b), \
                                                                static_cast<unsigned>(c), first_of_b, count));      \
  }                                                                                                                 \
  static inline result name(a_vector a, b_vector b, result c) {                                                     \
    return name(plinth_host::bit_cast<result>(a), plinth_host::bit_cast<result>(b), c);                             \
  }
PLINTH_DOT(__dp4a, int8_t, int8_t, char4, char4, int, 0, 4)
PLINTH_DOT(__dp4a, uint8_t, uint8_t, uchar4, uchar4, unsigned, 0, 4)
PLINTH_DOT(__dp2a_lo, int16_t, int8_t, short2, char4, int, 0, 2)
PLINTH_DOT(__dp2a_lo, uint16_t, uint8_t, ushort2, uchar4, unsigned, 0, 2)
PLINTH_DOT(__dp2a_hi, int16_t, int8_t, short2, char4, int, 2, 2)
PLINTH_DOT(__dp2a_hi, uint16_t, uint8_t, ushort2, uchar4, unsigned, 2, 2)
#undef PLINTH_DOT

// In these macros `type` is the lane's type, and a, b are the values of one lane.
#define PLINTH_LANES_1(name, count, is_signed, expression)                    \
  static inline unsigned name##count(unsigned x) {                            \
    typedef plinth_host::LaneType<32 / count, is_signed>::type type;          \
    return plinth_host::map_lanes<type>([](int a) { return expression; }, x); \
  }
#define PLINTH_LANES_2(name, count, is_signed, expression)                              \
  static inline unsigned name##count(unsigned x, unsigned y) {                          \
    typedef plinth_host::LaneType<32 / count, is_signed>::type type;                    \
    return plinth_host::map_lanes<type>([](int a, int b) { return expression; }, x, y); \
  }
#define PLINTH_COMPARE(count, relation, suffix, is_signed, operation)                \
  PLINTH_LANES_2(__vcmp##relation##suffix, count, is_signed, a operation b ? -1 : 0) \
  PLINTH_LANES_2(__vset##relation##suffix, count, is_signed, a operation b ? 1 : 0)
#define PLINTH_SIMD(count)                                                                              \
  PLINTH_LANES_1(__vabs, count, true, a < 0 ? -a : a)                                                   \
  PLINTH_LANES_1(__vabsss, count, true, plinth_host::saturate_lane<type>(a < 0 ? -a : a))               \
  PLINTH_LANES_1(__vneg, count, true, -a)                                                               \
  PLINTH_LANES_1(__vnegss, count, true, plinth_host::saturate_lane<type>(-a))                           \
  PLINTH_LANES_2(__vadd, count, false, a + b)                                                           \
  PLINTH_LANES_2(__vaddss, count, true, plinth_host::saturate_lane<type>(a + b))                        \
  PLINTH_LANES_2(__vaddus, count, false, plinth_host::saturate_lane<type>(a + b))                       \
  PLINTH_LANES_2(__vsub, count, false, a - b)                                                           \
  PLINTH_LANES_2(__vsubss, count, true, plinth_host::saturate_lane<type>(a - b))                        \
  PLINTH_LANES_2(__vsubus, count, false, plinth_host::saturate_lane<type>(a - b))                       \
  /* The signed average rounds halves away from zero. */                                                \
  PLINTH_LANES_2(__vavgs, count, true, (a + b + (a + b >= 0)) >> 1)                                     \
  PLINTH_LANES_2(__vavgu, count, false, (a + b + 1) >> 1)                                               \
  PLINTH_LANES_2(__vhaddu, count, false, (a + b) >> 1)                                                  \
  PLINTH_LANES_2(__vabsdiffs, count, true, a < b ? b - a : a - b)                                       \
  PLINTH_LANES_2(__vabsdiffu, count, false, a < b ? b - a : a - b)                                      \
  PLINTH_LANES_2(__vmaxs, count, true, a < b ? b : a)                                                   \
  PLINTH_LANES_2(__vmaxu, count, false, a < b ? b : a)                                                  \
  PLINTH_LANES_2(__vmins, count, true, b < a ? b : a)                                                   \
  PLINTH_LANES_2(__vminu, count, false, b < a ? b : a)                                                  \
  PLINTH_COMPARE(count, eq, , false, ==)                                                                \
  PLINTH_COMPARE(count, ne, , false, !=)                                                                \
  PLINTH_COMPARE(count, ge, s, true, >=)                                                                \
  PLINTH_COMPARE(count, ge, u, false, >=)                                                               \
  PLINTH_COMPARE(count, gt, s, true, >)                                                                 \
  PLINTH_COMPARE(count, gt, u, false, >)                                                                \
  PLINTH_COMPARE(count, le, s, true, <=)                                                                \
  PLINTH_COMPARE(count, le, u, false, <=)                                                               \
  PLINTH_COMPARE(count, lt, s, true, <)                                                                 \
  PLINTH_COMPARE(count, lt, u, false, <)                                                                \
  static inline unsigned __vsads##count(unsigned a, unsigned b) {                                       \
    return plinth_host::sum_absolute_differences<plinth_host::LaneType<32 / count, true>::type>(a, b);  \
  }                                                                                                     \
  static inline unsigned __vsadu##count(unsigned a, unsigned b) {                                       \
    return plinth_host::sum_absolute_differences<plinth_host::LaneType<32 / count, false>::type>(a, b); \
  }
PLINTH_SIMD(2)
PLINTH_SIMD(4)
#undef PLINTH_SIMD
#undef PLINTH_COMPARE
#undef PLINTH_LANES_2
#undef PLINTH_LANES_1

// DPX. Sums wrap in their lane before they are compared; the relu forms return at least 0.
namespace plinth_host {
inline int wrapping_add(int a, int b) { return static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)); }
inline int relu(int a) { return a < 0 ? 0 : a; }
template <typename T> inline unsigned relu_lanes(unsigned x) {
  return map_lanes<T>([](int a) { return relu(a); }, x);
}
// Sets the predicates of the two lanes to whether the first argument is the result.
template <typename T, typename Operation>
inline unsigned select_lanes(unsigned x, unsigned y, bool *high, bool *low, Operation first_wins) {
  *low = first_wins(vector_lane<T>(x, 0), vector_lane<T>(y, 0));
  *high = first_wins(vector_lane<T>(x, 1), vector_lane<T>(y, 1));
  return ((*low ? x : y) & 0xffffu) | ((*high ? x : y) & 0xffff0000u);
}
}  // namespace plinth_host

#define PLINTH_DPX(which, relation)                                                                                 \
  static inline int __vi##which##3_s32(int a, int b, int c) { return which(which(a, b), c); }                       \
  static inline unsigned __vi##which##3_u32(unsigned a, unsigned b, unsigned c) { return which(which(a, b), c); }   \
  static inline int __viadd##which##_s32(int a, int b, int c) { return which(plinth_host::wrapping_add(a, b), c); } \
  static inline unsigned __viadd##which##_u32(unsigned a, unsigned b, unsigned c) { return which(a + b, c); }       \
  static inline unsigned __vi##which##3_s16x2(unsigned a, unsigned b, unsigned c) {                                 \
    return __v##which##s2(__v##which##s2(a, b), c);                                                                 \
  }                                                                                                                 \
  static inline unsigned __vi##which##3_u16x2(unsigned a, unsigned b, unsigned c) {                                 \
    return __v##which##u2(__v##which##u2(a, b), c);                                                                 \
  }                                                                                                                 \
  static inline unsigned __viadd##which##_s16x2(unsigned a, unsigned b, unsigned c) {                               \
    return __v##which##s2(__vadd2(a, b), c);                                                                        \
  }                                                                                                                 \
  static inline unsigned __viadd##which##_u16x2(unsigned a, unsigned b, unsigned c) {                               \
    return __v##which##u2(__vadd2(a, b), c);                                                                        \
  }                                                                                                                 \
  static inline int __vi##which##_s32_relu(int a, int b) { return plinth_host::relu(which(a, b)); }                 \
  static inline int __vi##which##3_s32_relu(int a, int b, int c) {                                                  \
    return plinth_host::relu(__vi##which##3_s32(a, b, c));                                                          \
  }                                                                                                                 \
  static inline int __viadd##which##_s32_relu(int a, int b, int c) {                                                \
    return plinth_host::relu(__viadd##which##_s32(a, b, c));                                                        \
  }                                                                                                                 \
  static inline unsigned __vi##which##_s16x2_relu(unsigned a, unsigned b) {                                         \
    return plinth_host::relu_lanes<int16_t>(__v##which##s2(a, b));                                                  \
  }                                                                                                                 \
  static inline unsigned __vi##which##3_s16x2_relu(unsigned a, unsigned b, unsigned c) {                            \
    return plinth_host::relu_lanes<int16_t>(__vi##which##3_s16x2(a, b, c));                                         \
  }                                                                                                                 \
  static inline unsigned __viadd##which##_s16x2_relu(unsigned a, unsigned b, unsigned c) {                          \
    return plinth_host::relu_lanes<int16_t>(__viadd##which##_s16x2(a, b, c));                                       \
  }                                                                                                                 \
  static inline int __vib##which##_s32(int a, int b, bool *predicate) {                                             \
    return (*predicate = a relation b) ? a : b;                                                                     \
  }                                                                                                                 \
  static inline unsigned __vib##which##_u32(unsigned a, unsigned b, bool *predicate) {                              \
    return (*predicate = a relation b) ? a : b;                                                                     \
  }                                                                                                                 \
  static inline unsigned __vib##which##_s16x2(unsigned a, unsigned b, bool *high, bool *low) {                      \
    return plinth_host::select_lanes<int16_t>(a, b, high, low, [](int x, int y) { return x relation y; });          \
  }                                                                                                                 \
  static inline unsigned __vib##which##_u16x2(unsigned a, unsigned b, bool *high, bool *low) {                      \
    return plinth_host::select_lanes<uint16_t>(a, b, high, low, [](int x, int y) { return x relation y; });         \
  }
PLINTH_DPX(max, >=)
PLINTH_DPX(min, <=)
#undef PLINTH_DPX
