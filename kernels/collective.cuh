// The table of a launch of collective.cu, what its kernels do with it, and the macro that makes a reduction of a type.
#pragma once

#include <stdint.h>
#ifdef PLINTH_HOST
#include <cuda_fp16.h>
#endif

#include "float8.cuh"

namespace plinth {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i64 = int64_t;

constexpr u32 kThreads = 256;
constexpr u32 kWords = 508;

// As Table in crates/driver/src/collective.rs.
struct Table {
  u32 count;
  u32 sources;
  u32 destinations;
  u32 chunk;
  u32 rank;
  u32 width;      // 0: a strided copy that converts
  u16 operation;  // in such a copy: the element type of the source
  u16 is_signed;  // and that of the destination
  u32 divisor;
  u64 words[kWords];
};

constexpr u32 kSum = 0;
constexpr u32 kProduct = 1;
constexpr u32 kMinimum = 2;
constexpr u32 kMaximum = 3;
// And 4 is a sum that is rounded after every addition.

// The part of a segment that a block processes, in bytes, elements or units.
struct Part {
  const u64 *addresses;
  u64 begin;
  u64 end;
  u64 length;
};

// A segment's first word: 40 bits of its length, and above them the number of its first block.
__device__ __forceinline__ Part part_of_block(const Table &table, u32 segment_words) {
  u32 low = 0;
  u32 high = table.count - 1;
  while (low < high) {
    const u32 middle = (low + high + 1) / 2;
    if (table.words[middle * segment_words] >> 40 <= blockIdx.x) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const u64 *const segment = table.words + low * segment_words;
  const u64 length = segment[0] & ((1ull << 40) - 1);
  const u64 begin = (blockIdx.x - (segment[0] >> 40)) * table.chunk;
  const u64 end = begin + table.chunk;
  return {segment + 1, begin, end < length ? end : length, length};
}

// Copies the bytes [begin, end) of a segment, whose addresses agree in as many last bits as a unit needs. Both are multiples
// of the unit from where the first whole unit is, except at the segment's own ends.
template <class Unit>
__device__ __forceinline__ void copy_units(const u64 *addresses, u32 destinations, u64 begin, u64 end) {
  constexpr u32 kAtOnce = 4;
  const Unit *const from = reinterpret_cast<const Unit *>(addresses[0] + begin);
  const u64 units = (end - begin) / sizeof(Unit);
  for (u64 unit = threadIdx.x; unit < units; unit += kAtOnce * kThreads) {
    Unit values[kAtOnce];
#pragma unroll
    for (u32 i = 0; i < kAtOnce; ++i) {
      if (unit + i * kThreads < units) values[i] = from[unit + i * kThreads];
    }
    for (u32 d = 1; d <= destinations; ++d) {
      Unit *const to = reinterpret_cast<Unit *>(addresses[d] + begin);
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) {
        if (unit + i * kThreads < units) to[unit + i * kThreads] = values[i];
      }
    }
  }
}

__device__ __forceinline__ void copy_bytes(const u64 *addresses, u32 destinations, u64 begin, u64 end) {
  for (u64 at = begin + threadIdx.x; at < end; at += kThreads) {
    const u8 value = *reinterpret_cast<const u8 *>(addresses[0] + at);
    for (u32 d = 1; d <= destinations; ++d) *reinterpret_cast<u8 *>(addresses[d] + at) = value;
  }
}

__device__ __forceinline__ void copy(const Table &table) {
  const Part part = part_of_block(table, 2 + table.destinations);
  const u64 *const addresses = part.addresses;
  // The largest unit by which all addresses are alike.
  u64 differ = 16;
  for (u32 d = 1; d <= table.destinations; ++d) differ |= addresses[0] ^ addresses[d];
  const u64 unit = differ & -differ;
  // Chunks are multiples of all units; where the segment begins between two units, each of its chunks does, and what is
  // before the next unit is the chunk before's.
  const u64 head = -addresses[0] & (unit - 1);
  u64 begin = part.begin + head;
  u64 end = part.end + head;
  if (begin > part.length) begin = part.length;
  if (end > part.length) end = part.length;
  if (part.begin == 0) copy_bytes(addresses, table.destinations, 0, begin);
  const u64 whole = begin + (end - begin) / unit * unit;
  switch (unit) {
    case 16: copy_units<uint4>(addresses, table.destinations, begin, whole); break;
    case 8: copy_units<u64>(addresses, table.destinations, begin, whole); break;
    case 4: copy_units<u32>(addresses, table.destinations, begin, whole); break;
    case 2: copy_units<u16>(addresses, table.destinations, begin, whole); break;
    default: copy_units<u8>(addresses, table.destinations, begin, whole); break;
  }
  copy_bytes(addresses, table.destinations, whole, end);
}

// Calls a function with both addresses of each unit of a strided copy. A segment has less than 2^32 of them.
template <class Body>
__device__ __forceinline__ void for_each_unit(const Table &table, Body body) {
  const Part part = part_of_block(table, 3 + 3 * table.rank);
  const u64 *const dimensions = part.addresses + 2;
  for (u64 index = part.begin + threadIdx.x; index < part.end; index += kThreads) {
    u32 rest = static_cast<u32>(index);
    u64 from = part.addresses[0];
    u64 to = part.addresses[1];
    for (u32 i = 0; i < table.rank; ++i) {
      const u32 extent = static_cast<u32>(dimensions[3 * i]);
      const u32 next = rest / extent;
      const u64 place = rest - next * extent;
      from += place * dimensions[3 * i + 1];
      to += place * dimensions[3 * i + 2];
      rest = next;
    }
    body(from, to);
  }
}

template <class Unit>
__device__ __forceinline__ void copy_strided(const Table &table) {
  for_each_unit(table, [](u64 from, u64 to) { *reinterpret_cast<Unit *>(to) = *reinterpret_cast<const Unit *>(from); });
}

// The types of elements. `Sum` is what they are added up in.
template <class T>
struct Float {
  using Stored = T;
  using Sum = T;
  static __device__ __forceinline__ T load(T value) { return value; }
  static __device__ __forceinline__ T store(T value) { return value; }
  static __device__ __forceinline__ bool less(u32, T left, T right) { return left < right; }
  static __device__ __forceinline__ T divide(u32, T value, u32 divisor) { return value / static_cast<T>(divisor); }
};

struct Half {
  using Stored = u16;
  using Sum = float;
#ifdef PLINTH_HOST
  static __device__ __forceinline__ float load(u16 bits) { return __half2float(__ushort_as_half(bits)); }
  static __device__ __forceinline__ u16 store(float value) { return __half_as_ushort(__float2half(value)); }
#else
  static __device__ __forceinline__ float load(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
  static __device__ __forceinline__ u16 store(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return value != value ? static_cast<u16>(0x7FFF) : bits;
  }
#endif
  static __device__ __forceinline__ bool less(u32, float left, float right) { return left < right; }
  static __device__ __forceinline__ float divide(u32, float value, u32 divisor) { return value / static_cast<float>(divisor); }
};

struct Bfloat {
  using Stored = u16;
  using Sum = float;
  static __device__ __forceinline__ float load(u16 bits) { return __uint_as_float(static_cast<u32>(bits) << 16); }
  static __device__ __forceinline__ u16 store(float value) {
    const u32 bits = __float_as_uint(value);
    const u32 nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return static_cast<u16>(value != value ? 0x7FFF : nearest);
  }
  static __device__ __forceinline__ bool less(u32, float left, float right) { return left < right; }
  static __device__ __forceinline__ float divide(u32, float value, u32 divisor) { return value / static_cast<float>(divisor); }
};

template <class Format>
struct F8 {
  using Stored = u8;
  using Sum = float;
  static __device__ __forceinline__ float load(u8 bits) { return Format::widen(bits); }
  static __device__ __forceinline__ u8 store(float value) { return Format::narrow(value); }
  static __device__ __forceinline__ bool less(u32, float left, float right) { return left < right; }
  static __device__ __forceinline__ float divide(u32, float value, u32 divisor) { return value / static_cast<float>(divisor); }
};

// Sums wrap, small ones when they are stored. The sign of an integer matters to comparisons and divisions only.
template <class T, class Signed, class Wide>
struct Integer {
  using Stored = T;
  using Sum = Wide;
  static __device__ __forceinline__ Sum load(T value) { return value; }
  static __device__ __forceinline__ T store(Sum value) { return static_cast<T>(value); }
  static __device__ __forceinline__ bool less(u32 is_signed, Sum left, Sum right) {
    if (is_signed) return static_cast<Signed>(left) < static_cast<Signed>(right);
    return static_cast<T>(left) < static_cast<T>(right);
  }
  static __device__ __forceinline__ Sum divide(u32 is_signed, Sum value, u32 divisor) {
    if (is_signed) return static_cast<Sum>(static_cast<i64>(static_cast<Signed>(value)) / static_cast<i64>(divisor));
    return static_cast<Sum>(static_cast<u64>(static_cast<T>(value)) / divisor);
  }
};

// A sum is "or", a product "and".
struct Bool {
  using Stored = u8;
  using Sum = u32;
  static __device__ __forceinline__ u32 load(u8 value) { return value != 0; }
  static __device__ __forceinline__ u8 store(u32 value) { return value != 0; }
  static __device__ __forceinline__ bool less(u32, u32 left, u32 right) { return left < right; }
  static __device__ __forceinline__ u32 divide(u32, u32 value, u32) { return value; }
};

// Two elements by one of the rarer operations.
template <class Type>
__device__ __forceinline__ typename Type::Sum combine(const Table &table, typename Type::Sum left, typename Type::Sum right) {
  switch (table.operation) {
    case kProduct: return left * right;
    // A number wins over NaN, and the earlier of two equal ones.
    case kMinimum: return Type::less(table.is_signed, right, left) || left != left ? right : left;
    case kMaximum: return Type::less(table.is_signed, left, right) || left != left ? right : left;
    default: return Type::load(Type::store(left + right));
  }
}

// The element types of a copy that converts, as ElementType in crates/driver/src/element.rs.
enum Type : u32 {
  kF16, kBf16, kF32, kF64, kU8, kU16, kU32, kU64, kI8, kI16, kI32, kI64, kBool, kComplex64, kComplex128, kE4m3, kE5m2,
};

// The value of an element: the kind says which of the others it is. A real number has the imaginary part 0.
enum Kind : u32 { kSingle, kDouble, kSigned, kUnsigned };

struct Value {
  Kind kind;
  float single[2];
  double twice[2];
  i64 integer;
};

template <class T>
__device__ __forceinline__ T read(u64 address) {
  return *reinterpret_cast<const T *>(address);
}

template <class T>
__device__ __forceinline__ void write(u64 address, T value) {
  *reinterpret_cast<T *>(address) = value;
}

__device__ __forceinline__ Value load_value(u32 type, u64 from) {
  Value value{kSigned, {0, 0}, {0, 0}, 0};
  switch (type) {
    case kF16: value.kind = kSingle, value.single[0] = Half::load(read<u16>(from)); break;
    case kBf16: value.kind = kSingle, value.single[0] = Bfloat::load(read<u16>(from)); break;
    case kE4m3: value.kind = kSingle, value.single[0] = E4m3::widen(read<u8>(from)); break;
    case kE5m2: value.kind = kSingle, value.single[0] = E5m2::widen(read<u8>(from)); break;
    case kComplex64: value.single[1] = read<float>(from + 4);  // fallthrough
    case kF32: value.kind = kSingle, value.single[0] = read<float>(from); break;
    case kComplex128: value.twice[1] = read<double>(from + 8);  // fallthrough
    case kF64: value.kind = kDouble, value.twice[0] = read<double>(from); break;
    case kU8: value.integer = read<u8>(from); break;
    case kU16: value.integer = read<u16>(from); break;
    case kU32: value.integer = read<u32>(from); break;
    case kU64: value.kind = kUnsigned, value.integer = read<i64>(from); break;
    case kI8: value.integer = read<int8_t>(from); break;
    case kI16: value.integer = read<int16_t>(from); break;
    case kI32: value.integer = read<int32_t>(from); break;
    case kI64: value.integer = read<i64>(from); break;
    default: value.integer = read<u8>(from) != 0; break;
  }
  return value;
}

// Converts with one instruction; narrower integers are the low bits of wider ones, as in PyTorch.
template <class T>
__device__ __forceinline__ T convert(const Value &value, u32 part = 0) {
  switch (value.kind) {
    case kSingle: return static_cast<T>(value.single[part]);
    case kDouble: return static_cast<T>(value.twice[part]);
    case kSigned: return part == 0 ? static_cast<T>(value.integer) : T(0);
    default: return part == 0 ? static_cast<T>(static_cast<u64>(value.integer)) : T(0);
  }
}

__device__ __forceinline__ bool is_nonzero(const Value &value) {
  switch (value.kind) {
    case kSingle: return value.single[0] != 0 || value.single[1] != 0;
    case kDouble: return value.twice[0] != 0 || value.twice[1] != 0;
    default: return value.integer != 0;
  }
}

__device__ __forceinline__ void store_value(u32 type, u64 to, const Value &value) {
  switch (type) {
    case kF16: write<u16>(to, Half::store(convert<float>(value))); break;
    case kBf16: write<u16>(to, Bfloat::store(convert<float>(value))); break;
    case kE4m3: write<u8>(to, E4m3::narrow(convert<float>(value))); break;
    case kE5m2: write<u8>(to, E5m2::narrow(convert<float>(value))); break;
    case kComplex64: write<float>(to + 4, convert<float>(value, 1));  // fallthrough
    case kF32: write<float>(to, convert<float>(value)); break;
    case kComplex128: write<double>(to + 8, convert<double>(value, 1));  // fallthrough
    case kF64: write<double>(to, convert<double>(value)); break;
    case kU8: write<u8>(to, static_cast<u8>(convert<i64>(value))); break;
    case kU16: write<u16>(to, static_cast<u16>(convert<u32>(value))); break;
    case kU32: write<u32>(to, convert<u32>(value)); break;
    case kU64: write<u64>(to, convert<u64>(value)); break;
    case kI8: write<u8>(to, static_cast<u8>(convert<int32_t>(value))); break;
    case kI16: write<u16>(to, static_cast<u16>(convert<int32_t>(value))); break;
    case kI32: write<int32_t>(to, convert<int32_t>(value)); break;
    case kI64: write<i64>(to, convert<i64>(value)); break;
    default: write<u8>(to, is_nonzero(value)); break;
  }
}

__device__ __forceinline__ void copy_converted(const Table &table) {
  for_each_unit(table, [&table](u64 from, u64 to) { store_value(table.is_signed, to, load_value(table.operation, from)); });
}

template <class Stored, u32 kCount>
struct alignas(sizeof(Stored) * kCount) Packet {
  Stored values[kCount];
};

// The elements [begin, end) of a segment, so many at once. Sums have a loop of their own: several sources are on their way
// at a time.
template <class Type, u32 kCount, bool kIsSum>
__device__ __forceinline__ void reduce_packets(const Table &table, const Part &part, u64 begin, u64 end) {
  using Stored = typename Type::Stored;
  using Unit = Packet<Stored, kCount>;
  for (u64 at = begin + threadIdx.x * kCount; at < end; at += kThreads * kCount) {
    typename Type::Sum sums[kCount];
    const Unit first = *reinterpret_cast<const Unit *>(part.addresses[0] + at * sizeof(Stored));
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) sums[i] = Type::load(first.values[i]);
#pragma unroll(kIsSum && kCount > 1 ? 4 : 1)
    for (u32 source = 1; source < table.sources; ++source) {
      const Unit next = *reinterpret_cast<const Unit *>(part.addresses[source] + at * sizeof(Stored));
#pragma unroll
      for (u32 i = 0; i < kCount; ++i) {
        const typename Type::Sum value = Type::load(next.values[i]);
        sums[i] = kIsSum ? sums[i] + value : combine<Type>(table, sums[i], value);
      }
    }
    if (table.divisor != 0) {
#pragma unroll
      for (u32 i = 0; i < kCount; ++i) sums[i] = Type::divide(table.is_signed, sums[i], table.divisor);
    }
    Unit result;
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) result.values[i] = Type::store(sums[i]);
    for (u32 d = 0; d < table.destinations; ++d) {
      *reinterpret_cast<Unit *>(part.addresses[table.sources + d] + at * sizeof(Stored)) = result;
    }
  }
}

template <class Type>
__device__ __forceinline__ void reduce(const Table &table) {
  constexpr u32 kCount = 16 / sizeof(typename Type::Stored);
  const u32 all = table.sources + table.destinations;
  const Part part = part_of_block(table, 1 + all);
  u64 bits = 0;
  for (u32 i = 0; i < all; ++i) bits |= part.addresses[i];
  // Chunks are multiples of a packet.
  const u64 whole = bits % 16 == 0 ? part.begin + (part.end - part.begin) / kCount * kCount : part.begin;
  if (table.operation == kSum) {
    reduce_packets<Type, kCount, true>(table, part, part.begin, whole);
    reduce_packets<Type, 1, true>(table, part, whole, part.end);
  } else {
    // By fours at most, for there is more to each.
    constexpr u32 kFew = kCount < 4 ? kCount : 4;
    reduce_packets<Type, kFew, false>(table, part, part.begin, whole);
    reduce_packets<Type, 1, false>(table, part, whole, part.end);
  }
}

}  // namespace plinth

#define PLINTH_REDUCE(name, ...)                                                                         \
  extern "C" __global__ void __launch_bounds__(plinth::kThreads)                                         \
      plinth_comm_reduce_##name(const __grid_constant__ plinth::Table table) {                           \
    plinth::reduce<__VA_ARGS__>(table);                                                                  \
  }
