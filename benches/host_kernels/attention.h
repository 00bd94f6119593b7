// A kernel of 200 lines, for the time to compile one: attention of 16-bit numbers.
#ifndef HOST_KERNELS_ATTENTION_H
#define HOST_KERNELS_ATTENTION_H

namespace sources {

constexpr char kAttention[] = R"(// Attention with a running softmax. A block computes kQueries rows of the output of a
// head; a warp computes one row. Keys and values are read in tiles of kKeys rows, which all warps of the block share.
//
// query, key, value and out: (heads, length, kWidth), contiguous; logarithms: (heads, length).
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <math_constants.h>

namespace cg = cooperative_groups;

constexpr int kWidth = 64;
constexpr int kQueries = 4;
constexpr int kKeys = 32;
constexpr int kLanes = 32;
constexpr int kPairs = kWidth / 2;
// One more pair in each row, so that the lanes of a warp read different banks.
constexpr int kStride = kPairs + 1;

// The configuration of a launch.
struct Shape {
  int heads;
  int length;
  float scale;
  bool is_causal;
};

// A tile of rows in shared memory.
struct Tile {
  half2 rows[kKeys][kStride];

  __device__ half2 at(int row, int pair) const { return rows[row][pair]; }
  __device__ half2 &at(int row, int pair) { return rows[row][pair]; }
};

// A maximum and a sum of exponentials relative to it.
struct Softmax {
  float most;
  float sum;
};

__device__ __forceinline__ Softmax empty_softmax() {
  Softmax empty;
  empty.most = -CUDART_INF_F;
  empty.sum = 0;
  return empty;
}

// Returns the factor for what was summed relative to an earlier maximum.
__device__ __forceinline__ float rescale(float earlier, float later) {
  return earlier == -CUDART_INF_F ? 0.0f : __expf(earlier - later);
}

template <typename Group, typename T, typename Operation>
__device__ __forceinline__ T reduce_lanes(const Group &group, T value, Operation operation) {
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    value = operation(value, group.shfl_xor(value, lanes));
  }
  return value;
}

struct Larger {
  template <typename T> __device__ T operator()(T left, T right) const { return left < right ? right : left; }
};

struct Plus {
  template <typename T> __device__ T operator()(T left, T right) const { return left + right; }
};

// Copies rows of a matrix to a tile. Rows beyond the end become 0.
template <typename Group>
__device__ void load_tile(const Group &block, Tile &tile, const half2 *from, int first, int length) {
  const half2 zero = __float2half2_rn(0.0f);
  for (int at = block.thread_rank(); at < kKeys * kPairs; at += block.size()) {
    const int row = at / kPairs;
    const int pair = at % kPairs;
    const bool exists = first + row < length;
    tile.at(row, pair) = exists ? from[(first + row) * kPairs + pair] : zero;
  }
}

// Returns the product of a query and the row of a tile.
__device__ __forceinline__ float multiply_row(const half2 *query, const Tile &keys, int row) {
  float sum = 0;
#pragma unroll
  for (int pair = 0; pair < kPairs; pair++) {
    const float2 left = __half22float2(query[pair]);
    const float2 right = __half22float2(keys.at(row, pair));
    sum = fmaf(left.x, right.x, sum);
    sum = fmaf(left.y, right.y, sum);
  }
  return sum;
}

// Returns whether a query sees a key.
__device__ __forceinline__ bool is_visible(const Shape &shape, int query, int key) {
  if (key >= shape.length) return false;
  return !shape.is_causal || key <= query;
}

// The output of one row, spread over the lanes of a warp: each lane has one pair of columns.
struct Accumulator {
  float x;
  float y;

  __device__ void scale(float factor) {
    x *= factor;
    y *= factor;
  }
  __device__ void add(float weight, half2 pair) {
    const float2 values = __half22float2(pair);
    x = fmaf(weight, values.x, x);
    y = fmaf(weight, values.y, y);
  }
  __device__ half2 divided_by(float sum) const {
    const float factor = sum == 0 ? 0.0f : __fdividef(1.0f, sum);
    return __floats2half2_rn(x * factor, y * factor);
  }
};

// Adds a tile to the row of a warp.
template <typename Warp>
__device__ void add_tile(const Warp &warp, const Shape &shape, const half2 *query, const Tile &keys, const Tile &values,
                         int row, int first, Softmax &softmax, Accumulator &output) {
  const int key = first + warp.thread_rank();
  float score = -CUDART_INF_F;
  if (is_visible(shape, row, key)) {
    score = shape.scale * multiply_row(query, keys, warp.thread_rank());
  }
  const float most = fmaxf(softmax.most, reduce_lanes(warp, score, Larger()));
  // No key of this tile or of those before it is visible.
  if (most == -CUDART_INF_F) return;
  const float weight = score == -CUDART_INF_F ? 0.0f : __expf(score - most);
  const float factor = rescale(softmax.most, most);
  softmax.sum = softmax.sum * factor + reduce_lanes(warp, weight, Plus());
  softmax.most = most;
  output.scale(factor);
  for (int at = 0; at < kKeys; at++) {
    output.add(warp.shfl(weight, at), values.at(at, warp.thread_rank()));
  }
}

// Counts the rows of the block whose sum is not a finite number.
__device__ void count_failures(const Softmax &softmax, bool exists, unsigned *failures) {
  const bool failed = exists && !(softmax.sum < CUDART_INF_F);
  const int count = __syncthreads_count(failed);
  if (count != 0 && threadIdx.x == 0) {
    atomicAdd(failures, unsigned(count));
  }
}

// Writes the logarithm of the sum of the exponentials of a row, which the backward pass needs.
template <typename Warp>
__device__ void write_logarithm(const Warp &warp, const Softmax &softmax, float *to) {
  if (warp.thread_rank() != 0) return;
  *to = softmax.sum == 0 ? -CUDART_INF_F : softmax.most + __logf(softmax.sum);
}

template <bool kIsChecked>
__global__ void __launch_bounds__(kQueries * kLanes)
attention(const half2 *__restrict__ query, const half2 *__restrict__ key, const half2 *__restrict__ value,
          half2 *__restrict__ out, float *__restrict__ logarithms, Shape shape, unsigned *failures) {
  __shared__ Tile keys;
  __shared__ Tile values;
  __shared__ half2 queries[kQueries][kPairs];

  const cg::thread_block block = cg::this_thread_block();
  const cg::thread_block_tile<kLanes> warp = cg::tiled_partition<kLanes>(block);
  const int index = warp.meta_group_rank();
  const int first_row = blockIdx.x * kQueries;
  const int row = first_row + index;
  const int head = blockIdx.y;
  const bool exists = row < shape.length;
  const long offset = long(head) * shape.length * kPairs;

  queries[index][warp.thread_rank()] =
      exists ? query[offset + long(row) * kPairs + warp.thread_rank()] : __float2half2_rn(0.0f);
  warp.sync();

  Softmax softmax = empty_softmax();
  Accumulator output = {0, 0};
  // A causal block needs no keys behind its last query.
  const int last_row = min(first_row + kQueries, shape.length);
  const int end = shape.is_causal ? last_row : shape.length;
  for (int first = 0; first < end; first += kKeys) {
    load_tile(block, keys, key + offset, first, shape.length);
    load_tile(block, values, value + offset, first, shape.length);
    block.sync();
    add_tile(warp, shape, queries[index], keys, values, row, first, softmax, output);
    block.sync();
  }

  if (exists) {
    out[offset + long(row) * kPairs + warp.thread_rank()] = output.divided_by(softmax.sum);
    write_logarithm(warp, softmax, &logarithms[head * shape.length + row]);
  }
  if (kIsChecked) {
    count_failures(softmax, exists, failures);
  }
}
)";

}  // namespace sources

#endif
