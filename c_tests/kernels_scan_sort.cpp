// CUDA C++ kernels that scan, sort, partition and merge.
//
// timeout: 240
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "kernels.h"

static std::vector<int> inclusive(std::vector<int> values) {
  std::partial_sum(values.begin(), values.end(), values.begin());
  return values;
}

static std::vector<int> exclusive(const std::vector<int> &values) {
  std::vector<int> sums(values.size());
  for (std::size_t i = 1; i < values.size(); i++) {
    sums[i] = sums[i - 1] + values[i - 1];
  }
  return sums;
}

static const char *const kBlockScans = R"cuda(
// Hillis and Steele: two buffers, log2(n) steps of n additions.
__global__ void hillis_steele(const int *in, int *out, int count) {
  extern __shared__ int room[];
  int now = 0, before = 1;
  const int i = threadIdx.x, size = blockDim.x;
  room[i] = i < count ? in[i] : 0;
  __syncthreads();
  for (int offset = 1; offset < size; offset *= 2) {
    now = 1 - now;
    before = 1 - now;
    room[now * size + i] = room[before * size + i] + (i >= offset ? room[before * size + i - offset] : 0);
    __syncthreads();
  }
  if (i < count) out[i] = room[now * size + i];
}

// Blelloch: an exclusive scan in place, up and down a tree. The padding avoids conflicts of banks.
#define PADDED(n) ((n) + ((n) >> 5))
__global__ void blelloch(const int *in, int *out, int count, int size) {
  extern __shared__ int room[];
  const int thread = threadIdx.x;
  for (int i = thread; i < size; i += blockDim.x) room[PADDED(i)] = i < count ? in[i] : 0;
  int offset = 1;
  for (int pairs = size >> 1; pairs > 0; pairs >>= 1) {
    __syncthreads();
    if (thread < pairs) {
      const int left = PADDED(offset * (2 * thread + 1) - 1), right = PADDED(offset * (2 * thread + 2) - 1);
      room[right] += room[left];
    }
    offset *= 2;
  }
  if (thread == 0) room[PADDED(size - 1)] = 0;
  for (int pairs = 1; pairs < size; pairs *= 2) {
    offset >>= 1;
    __syncthreads();
    if (thread < pairs) {
      const int left = PADDED(offset * (2 * thread + 1) - 1), right = PADDED(offset * (2 * thread + 2) - 1);
      const int kept = room[left];
      room[left] = room[right];
      room[right] += kept;
    }
  }
  __syncthreads();
  for (int i = thread; i < count; i += blockDim.x) out[i] = room[PADDED(i)];
}

// Inclusive sums of segments as long as a warp; the last warp of the block may be partial.
__global__ void warp_scan(const int *in, int *out, int width) {
  const int thread = threadIdx.x, lane = thread & 31;
  const unsigned mask = blockDim.x - (thread & ~31) >= 32 ? 0xffffffffu : (1u << (blockDim.x & 31)) - 1;
  int value = in[thread];
  for (int offset = 1; offset < width; offset <<= 1) {
    const int other = __shfl_up_sync(mask, value, offset, width);
    if ((lane & (width - 1)) >= offset) value += other;
  }
  out[thread] = value;
}
)cuda";

TEST(scans_of_a_block) {
  const auto values = randoms<int>(999, 1, -1000, 1000);
  const Device<int> in(values), out(999);
  const auto hillis_steele = compiled(kBlockScans, "hillis_steele");
  hillis_steele(Launch(1, 1024).shared_bytes(2 * 1024 * 4), in.get(), out.get(), 999);
  SAME(out.read(), inclusive(values));
  const auto blelloch = compiled(kBlockScans, "blelloch");
  blelloch(Launch(1, 512).shared_bytes((1024 + 32) * 4), in.get(), out.get(), 999, 1024);
  SAME(out.read(), exclusive(values));
}

TEST(scans_of_warps) {
  const auto values = randoms<int>(77, 2, -1000, 1000);
  const auto warp_scan = compiled(kBlockScans, "warp_scan");
  for (const int width : {32, 16, 8, 1}) {
    const Device<int> in(values), out(77);
    std::vector<int> expected = values;
    for (std::size_t i = 0; i < expected.size(); i++) {
      expected[i] += i % static_cast<std::size_t>(width) != 0 ? expected[i - 1] : 0;
    }
    warp_scan(Launch(1, 77), in.get(), out.get(), width);
    SAME(out.read(), expected);
  }
}

static const char *const kLargeScans = R"cuda(
constexpr int kThreads = 128;

__device__ int scan_block(int value, int &sum) {
  __shared__ int warps[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(0xffffffff, value, offset);
    if (lane >= offset) value += other;
  }
  if (lane == 31) warps[warp] = value;
  __syncthreads();
  int before = 0;
  sum = 0;
  for (int i = 0; i < kThreads / 32; i++) {
    if (i < warp) before += warps[i];
    sum += warps[i];
  }
  __syncthreads();
  return value + before;
}

__global__ void scan_blocks(const int *in, int *out, int *sums, int count) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  int sum;
  const int value = scan_block(i < count ? in[i] : 0, sum);
  if (i < count) out[i] = value;
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void scan_sums(int *sums, int count) {
  int carry = 0;
  for (int start = 0; start < count; start += kThreads) {
    const int i = start + threadIdx.x;
    const int mine = i < count ? sums[i] : 0;
    int sum;
    const int value = scan_block(mine, sum);
    if (i < count) sums[i] = carry + value - mine;
    carry += sum;
  }
}

__global__ void add_sums(int *out, const int *sums, int count) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < count) out[i] += sums[blockIdx.x];
}

// Decoupled look-back: one kernel. A block adds the sums of earlier tiles until it finds a tile whose prefix is known.
// A word of state has 0 (nothing), 1 (the tile's sum) or 2 (its inclusive prefix) in its high half. Tiles are numbered
// in the order in which blocks start, so that a block waits for blocks only that have started.
__global__ void look_back(const int *in, int *out, unsigned long long *states, unsigned *next_tile, int count) {
  __shared__ unsigned tile_of_block;
  __shared__ int prefix;
  if (threadIdx.x == 0) tile_of_block = atomicAdd(next_tile, 1u);
  __syncthreads();
  const int tile = tile_of_block, i = tile * kThreads + threadIdx.x;
  int sum;
  const int value = scan_block(i < count ? in[i] : 0, sum);
  if (threadIdx.x == 0) {
    int before = 0;
    if (tile > 0) {
      atomicExch(&states[tile], 1ull << 32 | (unsigned)sum);
      for (int other = tile - 1; other >= 0; other--) {
        unsigned long long state;
        do {
          state = *(volatile unsigned long long *)&states[other];
        } while (state >> 32 == 0);
        before += (int)(unsigned)state;
        if (state >> 32 == 2) break;
      }
    }
    atomicExch(&states[tile], 2ull << 32 | (unsigned)(before + sum));
    prefix = before;
  }
  __syncthreads();
  if (i < count) out[i] = prefix + value;
}
)cuda";

TEST(a_large_scan_by_three_kernels) {
  const std::size_t count = 50021, blocks = blocks_for(count, 128);
  const int size = static_cast<int>(count);
  const auto values = randoms<int>(count, 3, -30000, 30000);
  const Device<int> in(values), out(count), sums(blocks);
  const auto scan_blocks = compiled(kLargeScans, "scan_blocks");
  const auto scan_sums = compiled(kLargeScans, "scan_sums");
  const auto add_sums = compiled(kLargeScans, "add_sums");
  const Launch all(static_cast<std::uint32_t>(blocks), 128);
  scan_blocks(all, in.get(), out.get(), sums.get(), size);
  scan_sums(Launch(1, 128), sums.get(), static_cast<int>(blocks));
  add_sums(all, out.get(), sums.get(), size);
  SAME(out.read(), inclusive(values));
}

TEST(a_large_scan_by_looking_back) {
  const std::size_t count = 50021, blocks = blocks_for(count, 128);
  const auto values = randoms<int>(count, 4, -30000, 30000);
  const Device<int> in(values), out(count);
  const Device<std::uint64_t> states(blocks);
  const Device<unsigned> next_tile(1);
  const auto look_back = compiled(kLargeScans, "look_back");
  const Launch all(static_cast<std::uint32_t>(blocks), 128);
  look_back(all, in.get(), out.get(), states.get(), next_tile.get(), static_cast<int>(count));
  SAME(out.read(), inclusive(values));
}

static const char *const kSorts = R"cuda(
// Sorts a block's keys by their bits, lowest first: for each bit a stable partition by ballots.
__global__ void by_bits(unsigned *keys, int bits) {
  __shared__ unsigned sorted[256];
  __shared__ int zeros_of_warp[8];
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  unsigned key = keys[blockIdx.x * blockDim.x + thread];
  for (int bit = 0; bit < bits; bit++) {
    const bool one = key >> bit & 1;
    const unsigned ones = __ballot_sync(0xffffffff, one);
    const unsigned below = (1u << lane) - 1;
    if (lane == 0) zeros_of_warp[warp] = __popc(~ones);
    __syncthreads();
    int zeros_before = 0, zeros = 0;
    for (int i = 0; i < 8; i++) {
      if (i < warp) zeros_before += zeros_of_warp[i];
      zeros += zeros_of_warp[i];
    }
    const int zero_place = zeros_before + __popc(~ones & below);
    const int one_place = zeros + (warp * 32 - zeros_before) + __popc(ones & below);
    sorted[one ? one_place : zero_place] = key;
    __syncthreads();
    key = sorted[thread];
  }
  keys[blockIdx.x * blockDim.x + thread] = key;
}

// One pass of a radix sort with 16 digits over the grid: counts, scans them, and scatters stably.
__global__ void count_digits(const unsigned *keys, unsigned *counts, int count, int shift) {
  __shared__ unsigned local[16];
  if (threadIdx.x < 16) local[threadIdx.x] = 0;
  __syncthreads();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) atomicAdd(&local[keys[i] >> shift & 15], 1u);
  __syncthreads();
  if (threadIdx.x < 16) counts[threadIdx.x * gridDim.x + blockIdx.x] = local[threadIdx.x];
}

__global__ void scan_digits(unsigned *counts, int count) {
  unsigned carry = 0;
  for (int start = 0; start < count; start += 32) {
    const int i = start + threadIdx.x;
    const unsigned mine = i < count ? counts[i] : 0;
    unsigned sum = mine;
    for (int offset = 1; offset < 32; offset <<= 1) {
      const unsigned other = __shfl_up_sync(0xffffffff, sum, offset);
      if (threadIdx.x >= offset) sum += other;
    }
    if (i < count) counts[i] = carry + sum - mine;
    carry += __shfl_sync(0xffffffff, sum, 31);
  }
}

__global__ void scatter(const unsigned *keys, unsigned *out, const unsigned *starts, int count, int shift) {
  __shared__ unsigned of_warp[8][16];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int at = threadIdx.x; at < 8 * 16; at += blockDim.x) of_warp[at / 16][at % 16] = 0;
  __syncthreads();
  const unsigned key = i < count ? keys[i] : 0;
  const unsigned digit = i < count ? key >> shift & 15 : 16;  // threads behind the end have a digit of their own
  const unsigned same = __match_any_sync(0xffffffff, digit);
  const unsigned rank = __popc(same & ((1u << lane) - 1));
  if (digit < 16 && rank == 0) of_warp[warp][digit] = __popc(same);
  __syncthreads();
  if (i < count) {
    unsigned place = starts[digit * gridDim.x + blockIdx.x] + rank;
    for (int before = 0; before < warp; before++) place += of_warp[before][digit];
    out[place] = key;
  }
}

template <typename T>
__device__ void exchange(T &low, T &high, bool up) {
  if ((low > high) == up) {
    const T kept = low;
    low = high;
    high = kept;
  }
}

template <typename T, int SIZE>
__global__ void bitonic(T *data, int count, T most) {
  __shared__ T shared[SIZE];
  for (int i = threadIdx.x; i < SIZE; i += blockDim.x) shared[i] = i < count ? data[i] : most;
  for (int size = 2; size <= SIZE; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      const int thread = threadIdx.x, low = 2 * thread - (thread & (stride - 1));
      exchange(shared[low], shared[low + stride], (low & size) == 0);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) data[i] = shared[i];
}

// Batcher: merges of odd and even elements. Every exchange puts the smaller element first.
__global__ void odd_even_merge(long long *data, int count) {
  constexpr int kSize = 512;
  __shared__ long long shared[kSize];
  const int thread = threadIdx.x;
  for (int i = thread; i < kSize; i += blockDim.x) shared[i] = i < count ? data[i] : 0x7fffffffffffffffLL;
  for (int size = 2; size <= kSize; size <<= 1) {
    int stride = size / 2;
    const int offset = thread & (stride - 1);
    __syncthreads();
    const int first = 2 * thread - offset;
    exchange(shared[first], shared[first + stride], true);
    for (stride >>= 1; stride > 0; stride >>= 1) {
      __syncthreads();
      const int place = 2 * thread - (thread & (stride - 1));
      if (offset >= stride) exchange(shared[place - stride], shared[place], true);
    }
  }
  __syncthreads();
  for (int i = thread; i < count; i += blockDim.x) data[i] = shared[i];
}

// Merges two sorted sequences: the place of an element is its index plus its rank in the other sequence.
__global__ void merge(const float *a, int a_count, const float *b, int b_count, float *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a_count + b_count) return;
  const bool of_a = i < a_count;
  const float *other = of_a ? b : a;
  const float value = of_a ? a[i] : b[i - a_count];
  int low = 0, high = of_a ? b_count : a_count;
  while (low < high) {
    const int middle = (low + high) / 2;
    const bool before = of_a ? other[middle] < value : other[middle] <= value;
    if (before) low = middle + 1; else high = middle;
  }
  out[(of_a ? i : i - a_count) + low] = value;
}
)cuda";

template <class T>
static std::vector<T> sorted(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  return values;
}

TEST(blocks_sort_by_bits_with_ballots) {
  const std::size_t blocks = 6, size = 256;
  auto keys = randoms<unsigned>(blocks * size, 5, 0, (1u << 17) - 1);
  const Device<unsigned> memory(keys);
  const auto by_bits = compiled(kSorts, "by_bits");
  by_bits(Launch(blocks, size), memory.get(), 17);
  for (std::size_t block = 0; block < blocks; block++) {
    const auto first = keys.begin() + static_cast<std::ptrdiff_t>(block * size);
    std::sort(first, first + size);
  }
  SAME(memory.read(), keys);
}

TEST(a_radix_sort_over_the_grid) {
  const std::size_t count = 10007;
  const int size = static_cast<int>(count);
  const auto keys = randoms<unsigned>(count, 6, 0, UINT32_MAX);
  const std::uint32_t blocks = blocks_for(count, 256);
  const Device<unsigned> first(keys), second(count), counts(16 * blocks);
  const auto count_digits = compiled(kSorts, "count_digits");
  const auto scan_digits = compiled(kSorts, "scan_digits");
  const auto scatter = compiled(kSorts, "scatter");
  unsigned *from = first.get(), *to = second.get();
  for (int shift = 0; shift < 32; shift += 4) {
    count_digits(Launch(blocks, 256), from, counts.get(), size, shift);
    scan_digits(Launch(1, 32), counts.get(), static_cast<int>(16 * blocks));
    scatter(Launch(blocks, 256), from, to, counts.get(), size, shift);
    std::swap(from, to);
  }
  SAME(first.read(), sorted(keys));
}

TEST(sorting_networks) {
  const auto floats = randoms<float>(1000, 7, -50, 50);
  const Device<float> float_memory(floats);
  const auto bitonic = compiled(kSorts, "bitonic<float, 1024>");
  bitonic(Launch(1, 512), float_memory.get(), 1000, std::numeric_limits<float>::infinity());
  SAME(float_memory.read(), sorted(floats));
  const auto bytes = randoms<std::uint8_t>(61, 8, 0, 255);
  const Device<std::uint8_t> byte_memory(bytes);
  const auto byte_bitonic = compiled(kSorts, "bitonic<unsigned char, 64>");
  byte_bitonic(Launch(1, 32), byte_memory.get(), 61, std::uint8_t{255});
  SAME(byte_memory.read(), sorted(bytes));
  const auto longs = randoms<std::int64_t>(499, 9, INT64_MIN / 2, INT64_MAX / 2);
  const Device<std::int64_t> long_memory(longs);
  const auto odd_even_merge = compiled(kSorts, "odd_even_merge");
  odd_even_merge(Launch(1, 256), long_memory.get(), 499);
  SAME(long_memory.read(), sorted(longs));
}

TEST(two_sorted_sequences_are_merged) {
  auto both = randoms<float>(1500, 10, 0, 40);
  for (float &value : both) {
    value = std::floor(value);  // many are equal
  }
  const auto a = sorted(std::vector<float>(both.begin(), both.begin() + 611));
  const auto b = sorted(std::vector<float>(both.begin() + 611, both.end()));
  const Device<float> left(a), right(b), out(both.size());
  const auto merge = compiled(kSorts, "merge");
  merge(Launch(blocks_for(both.size(), 64), 64), left.get(), static_cast<int>(a.size()), right.get(),
        static_cast<int>(b.size()), out.get());
  SAME(out.read(), sorted(both));
}

static const char *const kCompactions = R"cuda(
__device__ bool wanted(int value) { return value % 3 == 0 || value > 900; }

// Aggregated by the threads that happen to be in the branch: one atomic for them all.
__global__ void by_active_mask(const int *in, int *out, int *kept, int count) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const int value = in[i];
    if (wanted(value)) {
      const unsigned mask = __activemask(), lane = threadIdx.x & 31;
      const int leader = __ffs(mask) - 1;
      int place = 0;
      if (lane == leader) place = atomicAdd(kept, __popc(mask));
      place = __shfl_sync(mask, place, leader) + __popc(mask & ((1u << lane) - 1));
      out[place] = value;
    }
  }
}

// The block's elements stay in order and the blocks are in order of their places in `starts`.
__global__ void by_ballot(const int *in, int *out, int *counts, const int *starts, int count) {
  __shared__ int warps[32];
  const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int value = i < count ? in[i] : 0;
  const bool keep = i < count && wanted(value);
  const unsigned kept = __ballot_sync(0xffffffff, keep);
  if (lane == 0) warps[warp] = __popc(kept);
  const int total = __syncthreads_count(keep);
  if (starts == nullptr) {  // the first pass counts
    if (threadIdx.x == 0) counts[blockIdx.x] = total;
    return;
  }
  int place = starts[blockIdx.x] + __popc(kept & ((1u << lane) - 1));
  for (int before = 0; before < warp; before++) place += warps[before];
  if (keep) out[place] = value;
}
)cuda";

static const char *const kCoalescedGroup = R"cuda(
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

__device__ int aggregated_increment(int *counter) {
  const cg::coalesced_group active = cg::coalesced_threads();
  int first = 0;
  if (active.thread_rank() == 0) first = atomicAdd(counter, (int)active.size());
  return active.shfl(first, 0) + active.thread_rank();
}

__global__ void filter(const int *in, int *out, int *kept, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count && (in[i] & 5) == 4) {
    out[aggregated_increment(kept)] = in[i];
  }
}
)cuda";

TEST(compactions) {
  const std::size_t count = 30011;
  const int size = static_cast<int>(count);
  const auto values = randoms<int>(count, 11, 0, 1000);
  std::vector<int> expected;
  std::copy_if(values.begin(), values.end(), std::back_inserter(expected), [](int v) { return v % 3 == 0 || v > 900; });
  const std::uint32_t blocks = blocks_for(count, 224);
  const Device<int> in(values), unordered(expected.size()), ordered(expected.size()), kept(1), counts(blocks);
  const auto by_active_mask = compiled(kCompactions, "by_active_mask");
  by_active_mask(Launch(13, 100), in.get(), unordered.get(), kept.get(), size);
  SAME(kept.read(), std::vector<int>{static_cast<int>(expected.size())});
  SAME(sorted(unordered.read()), sorted(expected));
  const auto by_ballot = compiled(kCompactions, "by_ballot");
  const Launch all(blocks, 224);
  by_ballot(all, in.get(), ordered.get(), counts.get(), nullptr, size);
  const Device<int> starts(exclusive(counts.read()));
  by_ballot(all, in.get(), ordered.get(), counts.get(), starts.get(), size);
  SAME(ordered.read(), expected);
}

TEST(compactions_by_coalesced_groups) {
  need_headers({"cooperative_groups.h"});
  const std::size_t count = 30011;
  const auto values = randoms<int>(count, 12, 0, 1000);
  std::vector<int> expected;
  std::copy_if(values.begin(), values.end(), std::back_inserter(expected), [](int v) { return (v & 5) == 4; });
  const Device<int> in(values), out(expected.size()), kept(1);
  const auto filter = compiled(kCoalescedGroup, "filter");
  filter(Launch(blocks_for(count, 160), 160), in.get(), out.get(), kept.get(), static_cast<int>(count));
  SAME(kept.read(), std::vector<int>{static_cast<int>(expected.size())});
  SAME(sorted(out.read()), sorted(expected));
}
