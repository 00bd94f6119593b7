// CUDA C++ kernels that reduce: sums, extremes, their places, histograms; within a block, a grid, and by atomics.
//
// timeout: 240
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "kernels.h"

static const std::size_t kCount = 100003;

template <class T>
static std::vector<T> total(const std::vector<T> &values) {
  return {std::accumulate(values.begin(), values.end(), T(0))};
}

static const char *const kSums = R"cuda(
// A tree in shared memory. Block sizes are powers of two.
template <typename T>
__global__ void tree(const T *in, T *sums, int count) {
  extern __shared__ unsigned char room[];
  T *shared = reinterpret_cast<T *>(room);
  const unsigned thread = threadIdx.x, i = blockIdx.x * blockDim.x * 2 + thread;
  T mine = i < count ? in[i] : T(0);
  if (i + blockDim.x < count) {
    mine += in[i + blockDim.x];
  }
  shared[thread] = mine;
  __syncthreads();
  for (unsigned step = blockDim.x / 2; step > 0; step >>= 1) {
    if (thread < step) {
      shared[thread] += shared[thread + step];
    }
    __syncthreads();
  }
  if (thread == 0) {
    sums[blockIdx.x] = shared[0];
  }
}

// The last warp of the tree needs __syncwarp, not __syncthreads.
__global__ void tree_with_last_warp(const int *in, int *sum, int count) {
  __shared__ volatile int shared[256];
  int mine = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    mine += in[i];
  }
  shared[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x < 128) shared[threadIdx.x] = mine = mine + shared[threadIdx.x + 128];
  __syncthreads();
  if (threadIdx.x < 64) shared[threadIdx.x] = mine = mine + shared[threadIdx.x + 64];
  __syncthreads();
  if (threadIdx.x < 32) {
    mine += shared[threadIdx.x + 32];
    for (int step = 16; step > 0; step >>= 1) {
      shared[threadIdx.x] = mine;
      __syncwarp();
      const int other = threadIdx.x < step ? shared[threadIdx.x + step] : 0;
      __syncwarp();
      mine += other;
    }
    if (threadIdx.x == 0) atomicAdd(sum, mine);
  }
}

__inline__ __device__ int warp_sum(int value) {
  for (int offset = warpSize / 2; offset > 0; offset /= 2) {
    value += __shfl_down_sync(0xffffffff, value, offset);
  }
  return value;
}

__inline__ __device__ int block_sum(int value) {
  static __shared__ int warps[32];
  const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
  value = warp_sum(value);
  if (lane == 0) warps[warp] = value;
  __syncthreads();
  value = threadIdx.x < (blockDim.x + warpSize - 1) / warpSize ? warps[lane] : 0;
  if (warp == 0) value = warp_sum(value);
  return value;
}

__global__ void shuffles(const int *in, int *out, int count) {
  int sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += blockDim.x * gridDim.x) {
    sum += in[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void shuffles_and_atomic(const int *in, unsigned long long *out, int count) {
  int sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += blockDim.x * gridDim.x) {
    sum += in[i];
  }
  sum = warp_sum(sum);
  if ((threadIdx.x & (warpSize - 1)) == 0) atomicAdd(out, (unsigned long long)(long long)sum);
}

__device__ unsigned finished = 0;

// The block that is done last adds the sums of all blocks, and resets the counter for the next launch.
__global__ void last_block(const int *in, volatile int *sums, int *out, int count) {
  __shared__ bool last;
  int sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += blockDim.x * gridDim.x) {
    sum += in[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = sum;
    __threadfence();
    last = atomicInc(&finished, gridDim.x) == gridDim.x - 1;
  }
  __syncthreads();
  if (last) {
    sum = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) {
      sum += sums[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
      *out = sum;
      finished = 0;
    }
  }
}
)cuda";

TEST(sums_by_trees) {
  const auto ints = randoms<int>(kCount, 1, -20000, 20000);
  const Device<int> in(ints), sums(blocks_for(kCount, 512)), sum(1);
  const auto tree = compiled(kSums, "tree<int>");
  tree(Launch(blocks_for(kCount, 512), 256).shared_bytes(1024), in.get(), sums.get(), static_cast<int>(kCount));
  // The second of two kernels adds what the first left: 196 sums.
  const auto parts = sums.read();
  SAME(total(parts), total(ints));
  tree(Launch(1, 128).shared_bytes(512), sums.get(), sum.get(), static_cast<int>(parts.size()));
  SAME(sum.read(), total(ints));
  const auto doubles = randoms<double>(777, 2, -1, 1);
  const Device<double> values(doubles), out(2);
  const auto double_tree = compiled(kSums, "tree<double>");
  double_tree(Launch(2, 256).shared_bytes(2048), values.get(), out.get(), 777);
  // 777 terms below 1, in another order.
  NEAR(total(out.read()), total(doubles), 1e-13, 0);
  const Device<int> last(1);
  const auto tree_with_last_warp = compiled(kSums, "tree_with_last_warp");
  tree_with_last_warp(Launch(13, 256), in.get(), last.get(), static_cast<int>(kCount));
  SAME(last.read(), total(ints));
}

TEST(sums_by_shuffles) {
  const auto ints = randoms<int>(kCount, 3, -20000, 20000);
  const int count = static_cast<int>(kCount);
  const Device<int> in(ints), sums(40), sum(1);
  const auto shuffles = compiled(kSums, "shuffles");
  shuffles(Launch(40, 224), in.get(), sums.get(), count);
  shuffles(Launch(1, 64), sums.get(), sum.get(), 40);
  SAME(sum.read(), total(ints));
  shuffles(Launch(1, 1024), in.get(), sum.get(), count);
  SAME(sum.read(), total(ints));
  const Device<std::int64_t> wide(1);
  const auto atomic = compiled(kSums, "shuffles_and_atomic");
  atomic(Launch(17, 160), in.get(), wide.get(), count);
  SAME(wide.read(), (std::vector<std::int64_t>{total(ints)[0]}));
}

TEST(the_last_block_adds_the_sums_of_all) {
  const auto ints = randoms<int>(kCount, 4, -20000, 20000);
  const Device<int> in(ints), sums(23), sum(1);
  const auto last_block = compiled(kSums, "last_block");
  // The counter is a variable of the module: each launch leaves it at 0.
  for (int round = 0; round < 3; round++) {
    const int count = static_cast<int>(kCount) - 1000 * round;
    last_block(Launch(23, 96), in.get(), sums.get(), sum.get(), count);
    SAME(sum.read(), total(std::vector<int>(ints.begin(), ints.begin() + count)));
  }
}

static const char *const kExtremes = R"cuda(
struct Best {
  float value;
  int index;
};

__device__ Best better(Best a, Best b) {
  // Of equal values the first one.
  const bool first = a.value > b.value || (a.value == b.value && a.index < b.index);
  return first ? a : b;
}

__global__ void argmax(const float *in, int rows, int columns, int *places) {
  __shared__ Best bests[8];
  const float *row = in + (size_t)blockIdx.x * columns;
  Best best = {__int_as_float(0xff800000), columns};  // minus infinity
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    best = better(best, Best{row[i], i});
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    Best other;
    other.value = __shfl_down_sync(0xffffffff, best.value, offset);
    other.index = __shfl_down_sync(0xffffffff, best.index, offset);
    best = better(best, other);
  }
  if (threadIdx.x % 32 == 0) bests[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < blockDim.x / 32; warp++) {
      best = better(best, bests[warp]);
    }
    places[blockIdx.x] = best.index;
  }
}

// Floats in the order of integers: atomics work on their bits.
__device__ int ordered(float value) {
  const int bits = __float_as_int(value);
  return bits >= 0 ? bits : bits ^ 0x7fffffff;
}

__global__ void extremes(const float *in, int count, int *lowest, int *highest) {
  __shared__ int low, high;
  if (threadIdx.x == 0) {
    low = 0x7fffffff;
    high = -0x7fffffff - 1;
  }
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const int value = ordered(in[i]);
    atomicMin(&low, value);
    atomicMax(&high, value);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicMin(lowest, low);
    atomicMax(highest, high);
  }
}

// The reductions of whole warps in one instruction, for compute capability 8.0 and later.
__global__ void warp_reductions(const unsigned *in, unsigned *out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned mask = __ballot_sync(0xffffffff, i < count);
  if (i < count) {
    const unsigned value = in[i];
    const unsigned sum = __reduce_add_sync(mask, value), least = __reduce_min_sync(mask, value);
    const unsigned most = __reduce_max_sync(mask, value), both = __reduce_and_sync(mask, value);
    const unsigned either = __reduce_or_sync(mask, value), odd = __reduce_xor_sync(mask, value);
    const int smallest = __reduce_min_sync(mask, (int)value);
    if ((threadIdx.x & 31) == 0) {
      unsigned *place = out + i / 32 * 7;
      place[0] = sum;
      place[1] = least;
      place[2] = most;
      place[3] = both;
      place[4] = either;
      place[5] = odd;
      place[6] = (unsigned)smallest;
    }
  }
}
)cuda";

TEST(places_of_the_largest_elements) {
  const int rows = 37, columns = 413;
  auto values = randoms<float>(rows * columns, 5, -100, 100);
  std::vector<int> expected;
  for (int row = 0; row < rows; row++) {
    float *const first = values.data() + row * columns;
    if (row % 4 == 0) {
      std::fill(first, first + columns, -2.5f);  // all equal: the first one
    } else if (row % 4 == 1) {
      first[columns - 1] = INFINITY;
      first[columns / 2] = INFINITY;
    }
    expected.push_back(static_cast<int>(std::max_element(first, first + columns) - first));
  }
  const Device<float> in(values);
  const Device<int> places(rows);
  const auto argmax = compiled(kExtremes, "argmax");
  argmax(Launch(rows, 128), in.get(), rows, columns, places.get());
  SAME(places.read(), expected);
}

TEST(extremes_by_atomics_on_bits) {
  const auto values = randoms<float>(kCount, 6, -3e7f, 2e7f);
  const auto order = [](float value) {
    std::int32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits >= 0 ? bits : bits ^ 0x7fffffff;
  };
  const Device<float> in(values);
  const Device<int> low(std::vector<int>{INT32_MAX}), high(std::vector<int>{INT32_MIN});
  const auto extremes = compiled(kExtremes, "extremes");
  extremes(Launch(9, 250), in.get(), static_cast<int>(kCount), low.get(), high.get());
  SAME(low.read(), (std::vector<int>{order(*std::min_element(values.begin(), values.end()))}));
  SAME(high.read(), (std::vector<int>{order(*std::max_element(values.begin(), values.end()))}));
}

TEST(reductions_of_a_warp) {
  if (!on_host_device() && plinth::device_capability().major < 8) {
    SKIP("needs compute capability 8.0");
  }
  const std::size_t count = 1003;
  const auto values = randoms<unsigned>(count, 7, 0, UINT32_MAX);
  std::vector<unsigned> expected;
  for (std::size_t first = 0; first < count; first += 32) {
    unsigned sum = 0, least = UINT32_MAX, most = 0, both = UINT32_MAX, either = 0, odd = 0;
    int smallest = INT32_MAX;
    for (std::size_t i = first; i < std::min(first + 32, count); i++) {
      sum += values[i];
      least = std::min(least, values[i]);
      most = std::max(most, values[i]);
      both &= values[i];
      either |= values[i];
      odd ^= values[i];
      smallest = std::min(smallest, static_cast<int>(values[i]));
    }
    expected.insert(expected.end(), {sum, least, most, both, either, odd, static_cast<unsigned>(smallest)});
  }
  const Device<unsigned> in(values), out(expected.size());
  const auto kernel = compiled(kExtremes, "warp_reductions");
  kernel(Launch(4, 256), in.get(), out.get(), static_cast<int>(count));
  SAME(out.read(), expected);
}

static const char *const kGroups = R"cuda(
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

__global__ void by_tiles(const int *in, int *out, int count) {
  const cg::thread_block block = cg::this_thread_block();
  const cg::thread_block_tile<16> tile = cg::tiled_partition<16>(block);
  int sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    sum += in[i];
  }
  sum = cg::reduce(tile, sum, cg::plus<int>());
  if (tile.thread_rank() == 0) {
    atomicAdd(out, sum);
  }
  block.sync();
}

// Every function with the group as an argument: it works for a tile of any size.
template <typename Group>
__device__ int largest(Group group, int value) {
  for (int offset = group.size() / 2; offset > 0; offset /= 2) {
    value = max(value, group.shfl_down(value, offset));
  }
  return group.shfl(value, 0);
}

__global__ void largest_of_tiles(const int *in, int *warps, int *fours) {
  const auto block = cg::this_thread_block();
  const auto warp = cg::tiled_partition<32>(block);
  const auto four = cg::tiled_partition<4>(warp);
  const int i = blockIdx.x * block.size() + block.thread_rank();
  warps[i] = largest(warp, in[i]);
  fours[i] = largest(four, in[i]);
}
)cuda";

static const char *const kGrid = R"cuda(
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// Sums of blocks, then their sum, then every element as a fraction of it.
__global__ void normalize(float *data, double *sums, int count) {
  extern __shared__ double room[];
  const cg::grid_group grid = cg::this_grid();
  const cg::thread_block block = cg::this_thread_block();
  double mine = 0;
  for (unsigned long long i = grid.thread_rank(); i < count; i += grid.size()) {
    mine += data[i];
  }
  room[block.thread_rank()] = mine;
  block.sync();
  if (block.thread_rank() == 0) {
    double sum = 0;
    for (unsigned i = 0; i < block.size(); i++) sum += room[i];
    sums[blockIdx.x] = sum;
  }
  grid.sync();
  double sum = 0;
  for (unsigned i = 0; i < gridDim.x; i++) sum += sums[i];
  for (unsigned long long i = grid.thread_rank(); i < count; i += grid.size()) {
    data[i] = (float)(data[i] / sum);
  }
  grid.sync();
  if (grid.thread_rank() == 0) sums[0] = sum;
}
)cuda";

TEST(sums_by_cooperative_groups) {
  need_headers({"cooperative_groups.h", "cooperative_groups/reduce.h"});
  const auto ints = randoms<int>(kCount, 8, -20000, 20000);
  const Device<int> in(ints), sum(1), warps(512), fours(512);
  const auto by_tiles = compiled(kGroups, "by_tiles");
  by_tiles(Launch(11, 128), in.get(), sum.get(), static_cast<int>(kCount));
  SAME(sum.read(), total(ints));
  const auto largest_of_tiles = compiled(kGroups, "largest_of_tiles");
  largest_of_tiles(Launch(2, 256), in.get(), warps.get(), fours.get());
  std::vector<int> by_32, by_4;
  for (int i = 0; i < 512; i++) {
    by_32.push_back(*std::max_element(ints.begin() + i / 32 * 32, ints.begin() + i / 32 * 32 + 32));
    by_4.push_back(*std::max_element(ints.begin() + i / 4 * 4, ints.begin() + i / 4 * 4 + 4));
  }
  SAME(warps.read(), by_32);
  SAME(fours.read(), by_4);
}

TEST(a_grid_waits_for_all_of_its_blocks) {
  need_headers({"cooperative_groups.h"});
  const std::size_t count = 20011;
  const auto values = randoms<float>(count, 9, 0.5f, 2);
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  std::vector<double> expected;
  for (const float value : values) {
    expected.push_back(value / sum);
  }
  const Device<float> data(values);
  const Device<double> sums(16);
  const auto normalize = compiled(kGrid, "normalize");
  const Launch launch = Launch(16, 96).shared_bytes(96 * sizeof(double)).cooperative();
  normalize(launch, data.get(), sums.get(), static_cast<int>(count));
  // One rounding to float; the order of the sum in double has no effect on it.
  NEAR(data.read(), expected, 0, 0x1p-23);
  NEAR(std::vector<double>{sums.read()[0]}, std::vector<double>{sum}, 0, 1e-12);
}

static const char *const kHistograms = R"cuda(
__global__ void global_atomics(const unsigned char *in, unsigned *bins, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) atomicAdd(&bins[in[i]], 1u);
}

__global__ void shared_atomics(const unsigned char *in, unsigned *bins, int count) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    atomicAdd(&local[in[i]], 1u);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) {
    if (local[i] != 0) atomicAdd(&bins[i], local[i]);
  }
}

// A private histogram of 64 one-byte counters for each thread, as in sorting of small keys.
__global__ void privatized(const unsigned *in, unsigned *bins, int count) {
  extern __shared__ unsigned char counters[];  // [64][blockDim.x]
  for (int bin = 0; bin < 64; bin++) counters[bin * blockDim.x + threadIdx.x] = 0;
  const int first = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
  for (int i = first; i < first + 8 && i < count; i++) {
    const uchar4 keys = reinterpret_cast<const uchar4 *>(in)[i];
    counters[(keys.x >> 2) * blockDim.x + threadIdx.x]++;
    counters[(keys.y >> 2) * blockDim.x + threadIdx.x]++;
    counters[(keys.z >> 2) * blockDim.x + threadIdx.x]++;
    counters[(keys.w >> 2) * blockDim.x + threadIdx.x]++;
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < 64; bin += blockDim.x) {
    unsigned sum = 0;
    for (int thread = 0; thread < blockDim.x; thread++) sum += counters[bin * blockDim.x + thread];
    atomicAdd(&bins[bin], sum);
  }
}
)cuda";

TEST(histograms) {
  std::vector<std::uint8_t> bytes = randoms<std::uint8_t>(60004, 10, 0, 255);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    bytes[i] = static_cast<std::uint8_t>(bytes[i] & 7);  // some bins are full
  }
  std::vector<unsigned> expected(256), coarse(64);
  for (const std::uint8_t byte : bytes) {
    expected[byte]++;
    coarse[byte >> 2]++;
  }
  const int count = static_cast<int>(bytes.size());
  const Device<std::uint8_t> in(bytes);
  const Device<unsigned> by_global(256), by_shared(256), by_private(64);
  const auto global_atomics = compiled(kHistograms, "global_atomics");
  const auto shared_atomics = compiled(kHistograms, "shared_atomics");
  const auto privatized = compiled(kHistograms, "privatized");
  global_atomics(Launch(blocks_for(bytes.size(), 512), 512), in.get(), by_global.get(), count);
  shared_atomics(Launch(12, 192), in.get(), by_shared.get(), count);
  const std::uint32_t blocks = blocks_for(bytes.size() / 4, 8 * 96);
  privatized(Launch(blocks, 96).shared_bytes(64 * 96), in.get(), by_private.get(), count / 4);
  SAME(by_global.read(), expected);
  SAME(by_shared.read(), expected);
  SAME(by_private.read(), coarse);
}

static const char *const kIntegral = R"cuda(
__device__ double curve(double x) { return 4.0 / (1.0 + x * x); }

__global__ void midpoints(double *out, long long steps) {
  const double width = 1.0 / (double)steps;
  double sum = 0.0;
  const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, stride = (long long)gridDim.x * blockDim.x;
  for (long long i = first; i < steps; i += stride) {
    sum += curve(((double)i + 0.5) * width);
  }
  atomicAdd(out, sum * width);
}
)cuda";

TEST(an_integral_by_atomics_in_double) {
  const Device<double> out(1);
  const auto midpoints = compiled(kIntegral, "midpoints");
  midpoints(Launch(16, 80), out.get(), std::int64_t{200001});
  // The rule's error is 1 / (12 n^2) = 2e-12, and rounding adds less.
  NEAR(out.read(), std::vector<double>{3.14159265358979323846}, 4e-12, 0);
}
