// CUDA's vector types, with CUDA's alignments, and dim3.
#pragma once

// All of them are aggregates, as in CUDA: `float4 v = {1, 2, 3, 4}` works, and a variable without initializer has
// undefined contents. Vectors of three have the alignment of their element, so that sizeof(float3) is 12.
#define PLINTH_VECTOR(name, type, align2, align4)      \
  struct alignas(type) name##1 { type x; };            \
  struct alignas(align2) name##2 { type x, y; };       \
  struct alignas(type) name##3 { type x, y, z; };      \
  struct alignas(align4) name##4 { type x, y, z, w; }; \
  PLINTH_MAKE_VECTORS(name, type)
#define PLINTH_MAKE_VECTORS(name, type)                                                        \
  static inline constexpr name##1 make_##name##1(type x) { return {x}; }                       \
  static inline constexpr name##2 make_##name##2(type x, type y) { return {x, y}; }            \
  static inline constexpr name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
  static inline constexpr name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
// The vectors of four 8-byte elements also exist with the alignment in their name.
#define PLINTH_ALIGNED_VECTOR(name, type, bytes)                                                         \
  struct alignas(bytes) name##4_##bytes##a { type x, y, z, w; };                                         \
  static inline constexpr name##4_##bytes##a make_##name##4_##bytes##a(type x, type y, type z, type w) { \
    return {x, y, z, w};                                                                                 \
  }

PLINTH_VECTOR(char, signed char, 2, 4)
PLINTH_VECTOR(uchar, unsigned char, 2, 4)
PLINTH_VECTOR(short, short, 4, 8)
PLINTH_VECTOR(ushort, unsigned short, 4, 8)
PLINTH_VECTOR(int, int, 8, 16)
PLINTH_VECTOR(uint, unsigned int, 8, 16)
PLINTH_VECTOR(long, long, 2 * sizeof(long), 16)
PLINTH_VECTOR(ulong, unsigned long, 2 * sizeof(long), 16)
PLINTH_VECTOR(longlong, long long, 16, 16)
PLINTH_VECTOR(ulonglong, unsigned long long, 16, 16)
PLINTH_VECTOR(float, float, 8, 16)
PLINTH_VECTOR(double, double, 16, 16)
PLINTH_ALIGNED_VECTOR(long, long, 16)
PLINTH_ALIGNED_VECTOR(long, long, 32)
PLINTH_ALIGNED_VECTOR(ulong, unsigned long, 16)
PLINTH_ALIGNED_VECTOR(ulong, unsigned long, 32)
PLINTH_ALIGNED_VECTOR(longlong, long long, 16)
PLINTH_ALIGNED_VECTOR(longlong, long long, 32)
PLINTH_ALIGNED_VECTOR(ulonglong, unsigned long long, 16)
PLINTH_ALIGNED_VECTOR(ulonglong, unsigned long long, 32)
PLINTH_ALIGNED_VECTOR(double, double, 16)
PLINTH_ALIGNED_VECTOR(double, double, 32)
#undef PLINTH_ALIGNED_VECTOR
#undef PLINTH_MAKE_VECTORS
#undef PLINTH_VECTOR

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
