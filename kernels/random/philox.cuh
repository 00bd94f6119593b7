// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), and where a launch takes its seed
// and offset from.
//
// The counter of call n of subsequence s is (n low, n high, s low, s high), as cuRAND has it. All lanes of a launch make
// the same calls, and subsequences stay below 2^32, so of the first two rounds' four products one depends on neither, one
// on the call alone and two on the lane alone: `Call` and `Lane` hold those, and only eight rounds are left to each
// number.
#pragma once

namespace plinth {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

// As PhiloxState in crates/driver/src/random.rs, which documents the fields.
struct PhiloxState {
  u64 seed;
  u64 offset;
  u64 graph_offset;
  u32 captured;
  u32 reserved;
};

constexpr u32 kMultiplier0 = 0xD2511F53;
constexpr u32 kMultiplier1 = 0xCD9E8D57;
constexpr u32 kWeyl0 = 0x9E3779B9;
constexpr u32 kWeyl1 = 0xBB67AE85;

__device__ __forceinline__ u32 low(u64 value) { return static_cast<u32>(value); }
__device__ __forceinline__ u32 high(u64 value) { return static_cast<u32>(value >> 32); }

// A product's two halves. Written as an instruction, because the compiler makes of `u64 * u64` with a constant a product of
// 64-bit numbers, whose upper half costs an addition of zero each time.
struct Product {
  u32 low;
  u32 high;

  __device__ __forceinline__ Product(u32 a, u32 b) {
#ifdef PLINTH_HOST
    const u64 product = static_cast<u64>(a) * b;
    low = static_cast<u32>(product);
    high = static_cast<u32>(product >> 32);
#else
    asm("{.reg .b64 p; mul.wide.u32 p, %2, %3; mov.b64 {%0, %1}, p;}" : "=r"(low), "=r"(high) : "r"(a), "r"(b));
#endif
  }
};

// The seed as the cipher's key, and the number of the launch's first call.
struct Sequence {
  u32 key0;
  u32 key1;
  u64 first;

  __device__ __forceinline__ explicit Sequence(const PhiloxState &state) {
    u64 seed = state.seed;
    u64 offset = state.offset;
    if (state.captured != 0) {
      seed = *reinterpret_cast<const u64 *>(state.seed);
      offset = *reinterpret_cast<const u64 *>(state.offset) + state.graph_offset;
    }
    key0 = low(seed);
    key1 = high(seed);
    first = offset / 4;
  }
};

// What the first two rounds make of a call's number alone.
struct Call {
  u32 x;
  u32 y;
  u32 z;

  __device__ __forceinline__ Call(const Sequence &sequence, u64 number) {
    const Product first(kMultiplier0, low(number));
    const Product second(kMultiplier1, first.high ^ sequence.key1);
    x = second.high ^ (sequence.key0 + kWeyl0);
    y = second.low;
    z = first.low ^ (sequence.key1 + kWeyl1);
  }
};

// What they make of a subsequence, given the upper half of the call's number.
struct Lane {
  u32 x;
  u32 z;
  u32 w;

  __device__ __forceinline__ Lane() {}

  __device__ __forceinline__ Lane(const Sequence &sequence, u32 subsequence, u32 call_high) {
    const Product first(kMultiplier1, subsequence);
    const Product second(kMultiplier0, first.high ^ call_high ^ sequence.key0);
    x = first.low;
    z = second.high;
    w = second.low;
  }
};

// Neighbouring subsequences, for the calls that a thread makes of them one after the other.
template <u32 kCount>
struct Lanes {
  Lane lanes[kCount];
  u32 call_high;

  __device__ __forceinline__ Lanes(const Sequence &sequence, u32 first, u64 number) { begin(sequence, first, number); }

  // Goes on to a call; what its upper half decides seldom changes.
  __device__ __forceinline__ void follow(const Sequence &sequence, u32 first, u64 number) {
    if (high(number) != call_high) begin(sequence, first, number);
  }

 private:
  __device__ __forceinline__ void begin(const Sequence &sequence, u32 first, u64 number) {
    call_high = high(number);
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) lanes[i] = Lane(sequence, first + i, call_high);
  }
};

// The four numbers of a call of a subsequence.
__device__ __forceinline__ uint4 philox(const Sequence &sequence, const Call &call, const Lane &lane) {
  uint4 c = make_uint4(call.x ^ lane.x, call.y, call.z ^ lane.z, lane.w);
#pragma unroll
  for (u32 round = 2; round < 10; ++round) {
    const Product first(kMultiplier0, c.x);
    const Product second(kMultiplier1, c.z);
    c = make_uint4(second.high ^ c.y ^ (sequence.key0 + round * kWeyl0), second.low,
                   first.high ^ c.w ^ (sequence.key1 + round * kWeyl1), first.low);
  }
  return c;
}

// The same for one number anywhere.
__device__ __forceinline__ uint4 philox(const Sequence &sequence, u64 number, u32 subsequence) {
  return philox(sequence, Call(sequence, number), Lane(sequence, subsequence, high(number)));
}

}  // namespace plinth
