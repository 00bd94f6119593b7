// Random permutations: PyTorch's, which sorts the indices by a random key each.
//
// An element's key is `bits` bits of the number that PyTorch's random_ over a whole integer type would give it, with so many
// bits that few keys are equal; equal ones keep the order of their indices, and then each island of them is shuffled. A
// radix sort reads and writes all keys and indices once for every eight bits. Here the keys, being random, are dealt by
// their upper bits into buckets that fit into shared memory, which are sorted there by the rest: each pair is written once
// and read once. Keys are made where they are needed, once to count the buckets and once to deal them.
#include "random/fill.cuh"

namespace plinth {

constexpr u32 kChunks = 8;
constexpr u32 kCapacity = 2496;  // pairs that fit into shared memory; on average a bucket has at most 2048
constexpr u32 kBins = 2048;
constexpr u32 kSorters = 256;
constexpr u32 kDealers = 1024;
constexpr u32 kDealt = 8;        // pairs of a thread that are dealt at once
constexpr u32 kSharedBits = 13;  // as many buckets can be counted in shared memory

// As Permutation in crates/driver/src/random.rs.
struct Permutation {
  PhiloxState philox;
  u64 data;
  i64 stride;
  u64 pairs;     // of u64: n of them
  u64 counters;  // of u32, 0 before the launches: the end of each bucket, then the blocks that have counted
  u64 shuffle_calls;
  u32 n;
  u32 code;
  u32 bits;
  u32 bucket_bits;
  u32 index_bits;
  u32 chunks;
  u32 lanes[kChunks];
  u32 begins[kChunks + 1];
  u32 padding;
  u64 calls[kChunks];
};

__device__ __forceinline__ u64 lower(u64 value, u32 bits) { return bits == 64 ? value : value & ((1ull << bits) - 1); }

// The key of a 64-bit number: up to 32 bits are made of a remainder by 2^32 - 1, more of one by 2^64 - 1.
__device__ __forceinline__ u64 key_of(const Permutation &p, u32 upper, u32 lower_half) {
  const u64 number = static_cast<u64>(upper) << 32 | lower_half;
  const u64 rest = p.bits <= 32 ? number % 0xFFFFFFFFull : number == ~0ull ? 0 : number;
  return lower(rest, p.bits);
}

// The key of an index, made anew.
__device__ __noinline__ u64 key_at(const Permutation &p, const Sequence &sequence, u32 index) {
  u32 chunk = 0;
  while (chunk + 1 < p.chunks && index >= p.begins[chunk + 1]) ++chunk;
  const u32 element = index - p.begins[chunk];
  const u32 row = element / p.lanes[chunk];
  const u64 number = sequence.first + p.calls[chunk] + row / 2;
  const uint4 numbers = philox(sequence, number, element % p.lanes[chunk]);
  return row % 2 == 0 ? key_of(p, numbers.x, numbers.y) : key_of(p, numbers.z, numbers.w);
}

// A pair in a bucket: the bits of the key that the bucket does not imply, above the index. Where both are more than 64 bits, the
// key's last ones are left out.
__device__ __forceinline__ u32 rest_bits(const Permutation &p) { return p.bits - p.bucket_bits; }
__device__ __forceinline__ u32 dropped_bits(const Permutation &p) {
  const u32 needed = rest_bits(p) + p.index_bits;
  return needed > 64 ? needed - 64 : 0;
}

__device__ __forceinline__ u64 pair_of(const Permutation &p, u64 key, u32 index) {
  return lower(key, rest_bits(p)) >> dropped_bits(p) << p.index_bits | index;
}

__device__ __forceinline__ u32 index_of(const Permutation &p, u64 pair) { return static_cast<u32>(lower(pair, p.index_bits)); }

__device__ __forceinline__ bool precedes(const Permutation &p, const Sequence &sequence, u64 left, u64 right) {
  if (dropped_bits(p) == 0 || left >> p.index_bits != right >> p.index_bits) return left < right;
  const u64 left_key = key_at(p, sequence, index_of(p, left));
  const u64 right_key = key_at(p, sequence, index_of(p, right));
  return left_key != right_key ? left_key < right_key : left < right;
}

__device__ __forceinline__ bool same_key(const Permutation &p, const Sequence &sequence, u64 left, u64 right) {
  if (left >> p.index_bits != right >> p.index_bits) return false;
  return dropped_bits(p) == 0 || key_at(p, sequence, index_of(p, left)) == key_at(p, sequence, index_of(p, right));
}

// Makes counters the sums of those before them, by one block.
template <u32 kBlock>
__device__ void scan(u32 *counters, u32 count) {
  __shared__ u32 sums[kBlock];
  const u32 each = (count + kBlock - 1) / kBlock;
  const u32 first = threadIdx.x * each;
  u32 sum = 0;
  for (u32 i = first; i < first + each && i < count; ++i) sum += counters[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (u32 distance = 1; distance < kBlock; distance *= 2) {
    const u32 before = threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
    __syncthreads();
  }
  u32 running = sums[threadIdx.x] - sum;
  for (u32 i = first; i < first + each && i < count; ++i) {
    const u32 own = counters[i];
    counters[i] = running;
    running += own;
  }
  __syncthreads();
}

// Sorts a bucket's pairs, of which each thread has its own, into shared memory: by 11 bits into bins, which hold about one
// pair each, and then every bin.
constexpr u32 kOwn = (kCapacity + kSorters - 1) / kSorters;

__device__ void sort(const Permutation &p, const Sequence &sequence, const u64 (&own)[kOwn], u64 *out, u32 *bins,
                     u32 count) {
  const u32 rest = rest_bits(p) - dropped_bits(p);
  const u32 shift = p.index_bits + (rest > 11 ? rest - 11 : 0);
  for (u32 i = threadIdx.x; i < kBins; i += kSorters) bins[i] = 0;
  __syncthreads();
#pragma unroll
  for (u32 i = 0; i < kOwn; ++i) {
    if (i * kSorters + threadIdx.x < count) atomicAdd(&bins[own[i] >> shift], 1u);
  }
  __syncthreads();
  scan<kSorters>(bins, kBins);
  // A bin's counter is its first place, and runs on to the next one's as it is filled.
#pragma unroll
  for (u32 i = 0; i < kOwn; ++i) {
    if (i * kSorters + threadIdx.x < count) out[atomicAdd(&bins[own[i] >> shift], 1u)] = own[i];
  }
  __syncthreads();
  for (u32 bin = threadIdx.x; bin < kBins; bin += kSorters) {
    const u32 begin = bin == 0 ? 0 : bins[bin - 1];
    for (u32 i = begin + 1; i < bins[bin]; ++i) {
      const u64 pair = out[i];
      u32 place = i;
      for (; place > begin && precedes(p, sequence, pair, out[place - 1]); --place) out[place] = out[place - 1];
      out[place] = pair;
    }
  }
  __syncthreads();
}

// Sorts a bucket that is too large for that, in place, by exchanging neighbours. One bucket of some 10^22 is that large.
__device__ void sort_slowly(const Permutation &p, const Sequence &sequence, u64 *pairs, u32 count) {
  for (u32 pass = 0; pass < count; ++pass) {
    for (u32 i = threadIdx.x * 2 + pass % 2; i + 1 < count; i += kSorters * 2) {
      const u64 left = pairs[i], right = pairs[i + 1];
      if (precedes(p, sequence, right, left)) pairs[i] = right, pairs[i + 1] = left;
    }
    __syncthreads();
  }
}

// Number `count` of a subsequence from a call on.
__device__ __forceinline__ u32 number_at(const Sequence &sequence, u64 call, u32 subsequence, u32 count) {
  const uint4 numbers = philox(sequence, call + count / 4, subsequence);
  const u32 which = count % 4;
  return which == 0 ? numbers.x : which == 1 ? numbers.y : which == 2 ? numbers.z : numbers.w;
}

// Shuffles islands of equal keys, which lie within a bucket, and writes the indices: `first` is the place of the first pair.
__device__ void write(const Permutation &p, const Sequence &sequence, u64 *sorted, u32 count, u32 first) {
  for (u32 i = threadIdx.x; i + 1 < count; i += kSorters) {
    if (!same_key(p, sequence, sorted[i], sorted[i + 1])) continue;
    if (i > 0 && same_key(p, sequence, sorted[i - 1], sorted[i])) continue;
    u32 size = 2;
    while (i + size < count && same_key(p, sequence, sorted[i], sorted[i + size])) ++size;
    // Others may look at these pairs meanwhile to see whether they begin an island; in that all of them are alike.
    for (u32 last = size - 1, used = 0; last > 0; --last, ++used) {
      const u32 other = number_at(sequence, sequence.first + p.shuffle_calls, first + i, used) % (last + 1);
      const u64 moved = sorted[i + last];
      sorted[i + last] = sorted[i + other];
      sorted[i + other] = moved;
    }
  }
  __syncthreads();
  Fill fill;
  fill.data = p.data;
  fill.code = p.code;
  for (u32 i = threadIdx.x; i < count; i += kSorters) {
    store(fill, static_cast<i64>(first + i) * p.stride, static_cast<i64>(index_of(p, sorted[i])));
  }
}

// Calls `body` with each key and index of a thread. Block x makes kThreads subsequences, block y `calls` calls of them.
template <class Body>
__device__ __forceinline__ void each_key(const Permutation &p, const Sequence &sequence, u32 calls, const Body &body) {
  for (u32 chunk = 0; chunk < p.chunks; ++chunk) {
    const u32 lanes = p.lanes[chunk];
    const u32 lane = blockIdx.x * blockDim.x + threadIdx.x;
    if (lane >= lanes) continue;
    const u32 end = p.begins[chunk + 1];
    u32 index = p.begins[chunk] + blockIdx.y * calls * 2 * lanes + lane;
    u64 number = sequence.first + p.calls[chunk] + blockIdx.y * calls;
    for (u32 call = 0; call < calls && index < end; ++call, ++number) {
      const uint4 numbers = philox(sequence, number, lane);
      body(key_of(p, numbers.x, numbers.y), index);
      index += lanes;
      if (index < end) body(key_of(p, numbers.z, numbers.w), index);
      index += lanes;
    }
  }
}

__device__ __forceinline__ u32 bucket_of(const Permutation &p, u64 key) { return static_cast<u32>(key >> rest_bits(p)); }

}  // namespace plinth

using namespace plinth;

// Counts the keys of each bucket, where they are not too many in shared memory first; the block that is the last to do so
// turns the counts into places.
extern "C" __global__ void __launch_bounds__(1024)
    plinth_permutation_count(const __grid_constant__ Permutation p, u32 calls) {
  extern __shared__ u32 counts[];
  __shared__ bool is_last;
  const Sequence sequence(p.philox);
  u32 *const counters = reinterpret_cast<u32 *>(p.counters);
  const u32 buckets = 1u << p.bucket_bits;
  const bool shared = p.bucket_bits <= kSharedBits;
  u32 *const near = shared ? counts : counters;
  for (u32 i = threadIdx.x; shared && i < buckets; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  each_key(p, sequence, calls, [&](u64 key, u32) { atomicAdd(&near[bucket_of(p, key)], 1u); });
  __syncthreads();
  for (u32 i = threadIdx.x; shared && i < buckets; i += blockDim.x) {
    if (counts[i] != 0) atomicAdd(&counters[i], counts[i]);
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(&counters[buckets], 1u) + 1 == gridDim.x * gridDim.y;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  scan<1024>(counters, buckets);
}

// Deals the pairs: each goes to the next place of its bucket, whose counter so runs on to the bucket's end. A block deals
// some of each thread's at once, and takes places for all that it has for a bucket together, where the buckets are not too
// many for that; then every pair for itself.
extern "C" __global__ void __launch_bounds__(kDealers)
    plinth_permutation_deal(const __grid_constant__ Permutation p, u32 calls) {
  extern __shared__ u32 counts[];
  const Sequence sequence(p.philox);
  u32 *const counters = reinterpret_cast<u32 *>(p.counters);
  u64 *const pairs = reinterpret_cast<u64 *>(p.pairs);
  const u32 buckets = 1u << p.bucket_bits;
  const bool shared = p.bucket_bits <= kSharedBits;
  for (u32 chunk = 0; chunk < p.chunks; ++chunk) {
    const u32 lanes = p.lanes[chunk];
    const u32 lane = blockIdx.x * kDealers + threadIdx.x;
    const u32 begin = p.begins[chunk], end = p.begins[chunk + 1];
    const u32 first = blockIdx.y * calls;
    for (u32 call = first; call < first + calls && begin + call * 2 * lanes < end; call += kDealt / 2) {
      u64 keys[kDealt];
      u32 places[kDealt];
      if (shared) {
        for (u32 i = threadIdx.x; i < buckets; i += kDealers) counts[i] = 0;
        __syncthreads();
      }
#pragma unroll
      for (u32 i = 0; i < kDealt; i += 2) {
        const uint4 numbers = philox(sequence, sequence.first + p.calls[chunk] + call + i / 2, lane);
        keys[i] = key_of(p, numbers.x, numbers.y);
        keys[i + 1] = key_of(p, numbers.z, numbers.w);
      }
      // What is no element: of lanes and of calls that are not the block's, and past the end.
      const auto index = [&](u32 i) { return begin + (call * 2 + i) * lanes + lane; };
      const auto is_own = [&](u32 i) { return lane < lanes && call + i / 2 < first + calls && index(i) < end; };
      u32 *const near = shared ? counts : counters;
#pragma unroll
      for (u32 i = 0; i < kDealt; ++i) {
        if (is_own(i)) places[i] = atomicAdd(&near[bucket_of(p, keys[i])], 1u);
      }
      if (shared) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < buckets; i += kDealers) {
          if (counts[i] != 0) counts[i] = atomicAdd(&counters[i], counts[i]);
        }
        __syncthreads();
      }
#pragma unroll
      for (u32 i = 0; i < kDealt; ++i) {
        if (!is_own(i)) continue;
        const u32 place = places[i] + (shared ? counts[bucket_of(p, keys[i])] : 0);
        pairs[place] = pair_of(p, keys[i], index(i));
      }
      if (shared) __syncthreads();
    }
  }
}

// Sorts a bucket with each block.
extern "C" __global__ void __launch_bounds__(kSorters) plinth_permutation_sort(const __grid_constant__ Permutation p) {
  __shared__ u64 out[kCapacity];
  extern __shared__ u32 bins[];
  const Sequence sequence(p.philox);
  const u32 *const ends = reinterpret_cast<const u32 *>(p.counters);
  const u32 first = blockIdx.x == 0 ? 0 : ends[blockIdx.x - 1];
  const u32 count = ends[blockIdx.x] - first;
  u64 *sorted = reinterpret_cast<u64 *>(p.pairs) + first;
  if (count <= kCapacity) {
    u64 own[kOwn];
#pragma unroll
    for (u32 i = 0; i < kOwn; ++i) {
      if (i * kSorters + threadIdx.x < count) own[i] = sorted[i * kSorters + threadIdx.x];
    }
    sort(p, sequence, own, out, bins, count);
    sorted = out;
  } else {
    sort_slowly(p, sequence, sorted, count);
  }
  write(p, sequence, sorted, count, first);
}

// The whole of it where one bucket is enough, by one block.
extern "C" __global__ void __launch_bounds__(kSorters) plinth_permutation_small(const __grid_constant__ Permutation p) {
  __shared__ u64 out[kCapacity];
  extern __shared__ u32 bins[];
  const Sequence sequence(p.philox);
  u64 own[kOwn];
#pragma unroll
  for (u32 i = 0; i < kOwn; ++i) {
    const u32 index = i * kSorters + threadIdx.x;
    if (index < p.n) own[i] = pair_of(p, key_at(p, sequence, index), index);
  }
  sort(p, sequence, own, out, bins, p.n);
  write(p, sequence, out, p.n, 0);
}
