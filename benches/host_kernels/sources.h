// The kernels of host_kernels.cpp, in CUDA C++. Blocks have kThreads threads unless a comment states otherwise.
#ifndef HOST_KERNELS_SOURCES_H
#define HOST_KERNELS_SOURCES_H

namespace sources {

constexpr char kEmpty[] = R"(
__global__ void empty() {}
)";

constexpr char kAdd[] = R"(
__global__ void add(const float *x, const float *y, float *out, int count) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) out[at] = x[at] + y[at];
}
)";

constexpr char kSaxpy[] = R"(
__global__ void saxpy(float factor, const float *x, const float *y, float *out, int count) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) out[at] = factor * x[at] + y[at];
}
)";

// The approximation of GELU by a sigmoid.
constexpr char kGelu[] = R"(
__global__ void gelu(const float *x, float *out, int count) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) out[at] = x[at] / (1.0f + expf(-1.702f * x[at]));
}
)";

// Blocks of 16 by 16 threads; one thread for each element of the product.
constexpr char kProduct[] = R"(
__global__ void product(const float *a, const float *b, float *out, int side) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= side || column >= side) return;
  float sum = 0;
  for (int at = 0; at < side; at++) sum += a[row * side + at] * b[at * side + column];
  out[row * side + column] = sum;
}
)";

// Blocks of 32 by 8 threads.
constexpr char kStencil[] = R"(
__global__ void stencil(const float *in, float *out, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const int at = y * width + x;
  if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
    out[at] = in[at];
  } else {
    out[at] = 0.5f * in[at] + 0.125f * (in[at - 1] + in[at + 1] + in[at - width] + in[at + width]);
  }
}
)";

// Blocks of 16 by 16 threads.
constexpr char kMandelbrot[] = R"(
__global__ void mandelbrot(int *out, int side, int limit) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= side || y >= side) return;
  const float real = 3.0f * x / side - 2.25f, imaginary = 3.0f * y / side - 1.5f;
  float a = 0, b = 0;
  int steps = 0;
  while (steps < limit && a * a + b * b < 4) {
    const float next = a * a - b * b + real;
    b = 2 * a * b + imaginary;
    a = next;
    steps++;
  }
  out[y * side + x] = steps;
}
)";

constexpr char kReduction[] = R"(
__global__ void reduction(const float *in, float *out) {
  __shared__ float sums[256];
  const unsigned thread = threadIdx.x;
  sums[thread] = in[blockIdx.x * blockDim.x + thread];
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (thread < half) sums[thread] += sums[thread + half];
    __syncthreads();
  }
  if (thread == 0) out[blockIdx.x] = sums[0];
}
)";

// Blocks of 16 by 16 threads.
constexpr char kTiledProduct[] = R"(
__global__ void tiled_product(const float *a, const float *b, float *out, int side) {
  __shared__ float left[16][16], right[16][16];
  const int x = threadIdx.x, y = threadIdx.y;
  const int column = blockIdx.x * 16 + x, row = blockIdx.y * 16 + y;
  float sum = 0;
  for (int tile = 0; tile < side; tile += 16) {
    left[y][x] = a[row * side + tile + x];
    right[y][x] = b[(tile + y) * side + column];
    __syncthreads();
    for (int at = 0; at < 16; at++) sum += left[y][at] * right[at][x];
    __syncthreads();
  }
  out[row * side + column] = sum;
}
)";

// The inclusive sums of each block's part, by Hillis and Steele's method.
constexpr char kScan[] = R"(
__global__ void scan(const float *in, float *out) {
  __shared__ float sums[2][256];
  const int thread = threadIdx.x, at = blockIdx.x * blockDim.x + thread;
  int from = 0;
  sums[0][thread] = in[at];
  __syncthreads();
  for (int distance = 1; distance < blockDim.x; distance *= 2) {
    const float other = thread >= distance ? sums[from][thread - distance] : 0;
    sums[1 - from][thread] = sums[from][thread] + other;
    from = 1 - from;
    __syncthreads();
  }
  out[at] = sums[from][thread];
}
)";

// A warp for each row of 256 numbers.
constexpr char kSoftmax[] = R"(
__global__ void softmax(const float *in, float *out, int rows) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float values[8], most = __int_as_float(0xff800000), sum = 0;
  for (int at = 0; at < 8; at++) {
    values[at] = in[row * 256 + at * 32 + lane];
    most = fmaxf(most, values[at]);
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, lanes));
  for (int at = 0; at < 8; at++) {
    values[at] = expf(values[at] - most);
    sum += values[at];
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffff, sum, lanes);
  for (int at = 0; at < 8; at++) out[row * 256 + at * 32 + lane] = values[at] / sum;
}
)";

// 256 bins. Each thread counts several numbers.
constexpr char kHistogram[] = R"(
__global__ void histogram(const unsigned char *in, unsigned *out, int count) {
  __shared__ unsigned bins[256];
  bins[threadIdx.x] = 0;
  __syncthreads();
  const int step = gridDim.x * blockDim.x;
  for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += step) atomicAdd(&bins[in[at]], 1u);
  __syncthreads();
  if (bins[threadIdx.x] != 0) atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}
)";

// A cooperative launch. `partial` has one number for each block.
constexpr char kGridReduction[] = R"(
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void grid_reduction(const float *in, float *partial, float *out, int count) {
  __shared__ float sums[256];
  const cg::grid_group grid = cg::this_grid();
  const unsigned thread = threadIdx.x;
  float sum = 0;
  for (unsigned at = grid.thread_rank(); at < count; at += grid.size()) sum += in[at];
  sums[thread] = sum;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (thread < half) sums[thread] += sums[thread + half];
    __syncthreads();
  }
  if (thread == 0) partial[blockIdx.x] = sums[0];
  grid.sync();
  if (grid.thread_rank() == 0) {
    float total = 0;
    for (unsigned block = 0; block < gridDim.x; block++) total += partial[block];
    *out = total;
  }
}
)";

// The cost of one barrier and of one shuffle.
constexpr char kBarriers[] = R"(
__global__ void barriers(int count) {
  for (int at = 0; at < count; at++) __syncthreads();
}
)";
constexpr char kShuffles[] = R"(
__global__ void shuffles(float *out, int count) {
  float value = threadIdx.x;
  for (int at = 0; at < count; at++) value = __shfl_xor_sync(0xffffffff, value, 1 + at % 16);
  if (value < 0) *out = value;
}
)";
constexpr char kWarpBarriers[] = R"(
__global__ void warp_barriers(int count) {
  for (int at = 0; at < count; at++) __syncwarp();
}
)";

}  // namespace sources

#endif
