// CUDA C++ kernels of linear algebra: sums of vectors, products of matrices, transposes, factorizations.
//
// timeout: 240
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "kernels.h"

static const char *const kVectors = R"cuda(
__global__ void add(const float *a, const float *b, float *sum, int count) {
  const int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i < count) {
    sum[i] = a[i] + b[i];
  }
}

__global__ void saxpy(size_t count, float alpha, const float *__restrict__ x, float *__restrict__ y) {
  const size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
    y[i] = fmaf(alpha, x[i], y[i]);
  }
}
)cuda";

// One rounding each: equal to the bit.
TEST(vectors_are_added) {
  const auto add = compiled(kVectors, "add");
  for (const std::size_t count : {1u, 31u, 256u, 1000u, 100003u}) {
    const auto a = randoms<float>(count, 1, -8, 8), b = randoms<float>(count, 2, -1e6f, 1e6f);
    std::vector<float> expected(count);
    for (std::size_t i = 0; i < count; i++) {
      expected[i] = a[i] + b[i];
    }
    const Device<float> left(a), right(b), sum(count);
    add(Launch(blocks_for(count, 256), 256), left.get(), right.get(), sum.get(), static_cast<int>(count));
    SAME(sum.read(), expected);
  }
}

TEST(saxpy_strides_over_the_grid) {
  const std::size_t count = 70001;
  const auto saxpy = compiled(kVectors, "saxpy");
  const auto x = randoms<float>(count, 3, -2, 2), y = randoms<float>(count, 4, -2, 2);
  std::vector<float> expected(count);
  for (std::size_t i = 0; i < count; i++) {
    expected[i] = std::fmaf(-1.7f, x[i], y[i]);
  }
  const Device<float> in(x), out(y);
  saxpy(Launch(7, 192), count, -1.7f, in.get(), out.get());
  SAME(out.read(), expected);
}

static const char *const kProducts = R"cuda(
template <typename T, int TILE>
__global__ void tiled(const T *a, const T *b, T *c, int m, int n, int k) {
  __shared__ T left[TILE][TILE];
  __shared__ T right[TILE][TILE];
  const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  T sum = 0;
  for (int start = 0; start < k; start += TILE) {
    left[threadIdx.y][threadIdx.x] = row < m && start + threadIdx.x < k ? a[row * k + start + threadIdx.x] : T(0);
    right[threadIdx.y][threadIdx.x] =
        column < n && start + threadIdx.y < k ? b[(start + threadIdx.y) * n + column] : T(0);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; i++) {
      sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    }
    __syncthreads();
  }
  if (row < m && column < n) {
    c[row * n + column] = sum;
  }
}

// Each thread computes a column of four elements, which it keeps in registers.
__global__ void register_tiled(const float *a, const float *b, float *c, int m, int n, int k) {
  constexpr int kWide = 32, kPerThread = 4;
  __shared__ float left[kWide][kWide + 1], right[kWide][kWide + 1];
  const int tx = threadIdx.x, ty = threadIdx.y;
  float sums[kPerThread] = {};
  for (int start = 0; start < k; start += kWide) {
    for (int i = 0; i < kPerThread; i++) {
      const int y = ty + i * (kWide / kPerThread);
      const int row = blockIdx.y * kWide + y, column = blockIdx.x * kWide + tx;
      left[y][tx] = row < m && start + tx < k ? a[row * k + start + tx] : 0.0f;
      right[y][tx] = start + y < k && column < n ? b[(start + y) * n + column] : 0.0f;
    }
    __syncthreads();
    for (int j = 0; j < kWide; j++) {
      const float factor = right[j][tx];
      for (int i = 0; i < kPerThread; i++) {
        sums[i] += left[ty + i * (kWide / kPerThread)][j] * factor;
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kPerThread; i++) {
    const int row = blockIdx.y * kWide + ty + i * (kWide / kPerThread), column = blockIdx.x * kWide + tx;
    if (row < m && column < n) {
      c[row * n + column] = sums[i];
    }
  }
}

__global__ void batched(const double *a, const double *b, double *c, int size) {
  const size_t first = (size_t)blockIdx.z * size * size;
  const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= size || column >= size) {
    return;
  }
  double sum = 0;
  for (int i = 0; i < size; i++) {
    sum += a[first + row * size + i] * b[first + i * size + column];
  }
  c[first + row * size + column] = sum;
}

// y = A x, one warp for each row.
__global__ void matrix_vector(const float *a, const float *x, float *y, int rows, int columns) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize;
  const int lane = threadIdx.x % warpSize;
  if (row < rows) {  // the same for all lanes of a warp
    float sum = 0;
    for (int column = lane; column < columns; column += warpSize) {
      sum += a[(size_t)row * columns + column] * x[column];
    }
    for (int offset = warpSize / 2; offset > 0; offset /= 2) {
      sum += __shfl_down_sync(0xffffffffu, sum, offset);
    }
    if (lane == 0) {
      y[row] = sum;
    }
  }
}
)cuda";

template <class T>
static std::vector<double> product(const std::vector<T> &a, const std::vector<T> &b, int m, int n, int k) {
  std::vector<double> c(static_cast<std::size_t>(m) * n);
  for (int row = 0; row < m; row++) {
    for (int i = 0; i < k; i++) {
      for (int column = 0; column < n; column++) {
        c[row * n + column] += static_cast<double>(a[row * k + i]) * static_cast<double>(b[i * n + column]);
      }
    }
  }
  return c;
}

// The bounds are k * eps * max |a| * max |b|, times 2: factors are below 1, k is 61.
template <class T>
static void expect_product(const plinth::Kernel &kernel, const Launch &launch, double bound) {
  const int m = 75, n = 83, k = 61;
  const auto a = randoms<T>(m * k, 5, -1, 1), b = randoms<T>(k * n, 6, -1, 1);
  const Device<T> left(a), right(b), out(m * n);
  kernel(launch, left.get(), right.get(), out.get(), m, n, k);
  NEAR(out.read(), product(a, b, m, n, k), bound, 0);
}

TEST(products_of_matrices_by_tiles) {
  expect_product<float>(compiled(kProducts, "tiled<float, 16>"), Launch({6, 5}, {16, 16}), 1.5e-5);
  expect_product<double>(compiled(kProducts, "tiled<double, 8>"), Launch({11, 10}, {8, 8}), 3e-14);
  expect_product<float>(compiled(kProducts, "register_tiled"), Launch({3, 3}, {32, 8}), 1.5e-5);
}

TEST(batched_products) {
  const int size = 19, batches = 7;
  const std::size_t count = static_cast<std::size_t>(size) * size * batches;
  const auto a = randoms<double>(count, 7, -1, 1), b = randoms<double>(count, 8, -1, 1);
  std::vector<double> expected;
  for (int batch = 0; batch < batches; batch++) {
    const auto first = static_cast<std::ptrdiff_t>(batch) * size * size, last = first + size * size;
    const auto c = product<double>({a.begin() + first, a.begin() + last}, {b.begin() + first, b.begin() + last}, size,
                                   size, size);
    expected.insert(expected.end(), c.begin(), c.end());
  }
  const Device<double> left(a), right(b), out(count);
  const auto batched = compiled(kProducts, "batched");
  batched(Launch({3, 5, batches}, {8, 4}), left.get(), right.get(), out.get(), size);
  NEAR(out.read(), expected, 1e-14, 0);
}

TEST(products_of_a_matrix_and_a_vector_by_warps) {
  const int rows = 101, columns = 301;
  const auto a = randoms<float>(rows * columns, 9, -1, 1), x = randoms<float>(columns, 10, -1, 1);
  const Device<float> matrix(a), in(x), out(rows);
  const auto kernel = compiled(kProducts, "matrix_vector");
  kernel(Launch(blocks_for(rows * 32, 128), 128), matrix.get(), in.get(), out.get(), rows, columns);
  // 301 terms below 1, in sums of 10 and a tree of 5 levels.
  NEAR(out.read(), product(a, x, rows, 1, columns), 2e-5, 0);
}

static const char *const kHalfProduct = R"cuda(
#include <cuda_fp16.h>

__global__ void product(const __half *a, const __half *b, __half *c, int m, int n, int k) {
  __shared__ __half left[16][16], right[16][16];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx;
  float sum = 0.0f;
  for (int start = 0; start < k; start += 16) {
    left[ty][tx] = row < m && start + tx < k ? a[row * k + start + tx] : __float2half(0.0f);
    right[ty][tx] = column < n && start + ty < k ? b[(start + ty) * n + column] : __float2half(0.0f);
    __syncthreads();
    for (int i = 0; i < 16; i++) {
      sum += __half2float(left[ty][i]) * __half2float(right[i][tx]);
    }
    __syncthreads();
  }
  if (row < m && column < n) {
    c[row * n + column] = __float2half_rn(sum);
  }
}

// Two elements at a time: y = alpha x + y.
__global__ void axpy2(const __half2 *x, __half2 *y, float alpha, int pairs) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < pairs) {
    y[i] = __hfma2(__float2half2_rn(alpha), x[i], y[i]);
  }
}
)cuda";

static const char *const kBfloatProduct = R"cuda(
#include <cuda_bf16.h>

__global__ void product(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c, int m, int n, int k) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < m && column < n) {
    float sum = 0.0f;
    for (int i = 0; i < k; i++) {
      sum = fmaf(__bfloat162float(a[row * k + i]), __bfloat162float(b[i * n + column]), sum);
    }
    c[row * n + column] = sum;
  }
}
)cuda";

// The bits of numbers in a type of 16 bits, and what such bits stand for.
static std::vector<std::uint16_t> rounded(const std::vector<float> &values, std::uint16_t (*bits_of)(float)) {
  std::vector<std::uint16_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(), bits_of);
  return bits;
}

static std::vector<float> widened(const std::vector<std::uint16_t> &bits, float (*value_of)(std::uint16_t)) {
  std::vector<float> values(bits.size());
  std::transform(bits.begin(), bits.end(), values.begin(), value_of);
  return values;
}

TEST(products_of_half_matrices) {
  need_headers({"cuda_fp16.h"});
  const int m = 37, n = 45, k = 70;
  const auto a = rounded(randoms<float>(m * k, 11, -1, 1), half_bits);
  const auto b = rounded(randoms<float>(k * n, 12, -1, 1), half_bits);
  const Device<std::uint16_t> left(a), right(b), out(m * n);
  const auto kernel = compiled(kHalfProduct, "product");
  kernel(Launch({3, 3}, {16, 16}), left.get(), right.get(), out.get(), m, n, k);
  // Half an ulp of the result, and the error of the sum in float.
  NEAR(widened(out.read(), from_half), product(widened(a, from_half), widened(b, from_half), m, n, k), 2e-5, 0x1p-11);
}

// One rounding: x and y are multiples of 1/256 below 4, so alpha x + y is exact in float.
TEST(pairs_of_halves) {
  need_headers({"cuda_fp16.h"});
  const std::size_t count = 2 * 1237;
  const float alpha = 0.75f;
  std::vector<std::uint16_t> x, y, expected;
  for (const int value : randoms<int>(count, 13, -1024, 1024)) {
    x.push_back(half_bits(static_cast<float>(value) / 256));
  }
  for (const int value : randoms<int>(count, 14, -1024, 1024)) {
    y.push_back(half_bits(static_cast<float>(value) / 256));
    const std::size_t i = y.size() - 1;
    expected.push_back(half_bits(alpha * from_half(x[i]) + from_half(y[i])));
  }
  const Device<std::uint16_t> in(x), out(y);
  const auto axpy = compiled(kHalfProduct, "axpy2");
  axpy(Launch(blocks_for(count / 2, 128), 128), in.get(), out.get(), alpha, static_cast<int>(count / 2));
  SAME(out.read(), expected);
}

TEST(products_of_bfloat16_matrices) {
  need_headers({"cuda_bf16.h"});
  const int m = 29, n = 33, k = 50;
  const auto a = rounded(randoms<float>(m * k, 15, -1, 1), bfloat_bits);
  const auto b = rounded(randoms<float>(k * n, 16, -1, 1), bfloat_bits);
  const Device<std::uint16_t> left(a), right(b);
  const Device<float> out(m * n);
  const auto kernel = compiled(kBfloatProduct, "product");
  kernel(Launch({5, 8}, {8, 4}), left.get(), right.get(), out.get(), m, n, k);
  NEAR(out.read(), product(widened(a, from_bfloat), widened(b, from_bfloat), m, n, k), 1.5e-5, 0);
}

static const char *const kTransposes = R"cuda(
#define TILE 32
#define ROWS 8

// The tile has one more column than it needs: a column's elements lie in different banks.
template <typename T>
__global__ void through_shared(const T *in, T *out, int height, int width) {
  __shared__ T tile[TILE][TILE + 1];
  int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
  for (int j = 0; j < TILE; j += ROWS) {
    if (x < width && y + j < height) {
      tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
    }
  }
  __syncthreads();
  x = blockIdx.y * TILE + threadIdx.x;
  y = blockIdx.x * TILE + threadIdx.y;
  for (int j = 0; j < TILE; j += ROWS) {
    if (x < height && y + j < width) {
      out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
    }
  }
}

__global__ void directly(const short *in, short *out, unsigned height, unsigned width) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) {
    out[x * height + y] = in[y * width + x];
  }
}
)cuda";

template <class T>
static std::vector<T> transposed(const std::vector<T> &in, int height, int width) {
  std::vector<T> out(in.size());
  for (int y = 0; y < height; y++) {
    for (int x = 0; x < width; x++) {
      out[x * height + y] = in[y * width + x];
    }
  }
  return out;
}

TEST(transposes) {
  const int height = 71, width = 135;
  const auto doubles = randoms<double>(height * width, 17, -1, 1);
  const Device<double> in(doubles), out(doubles.size());
  const auto through_shared = compiled(kTransposes, "through_shared<double>");
  through_shared(Launch({5, 3}, {32, 8}), in.get(), out.get(), height, width);
  SAME(out.read(), transposed(doubles, height, width));
  const auto shorts = randoms<std::int16_t>(height * width, 18, -32768, 32767);
  const Device<std::int16_t> from(shorts), to(shorts.size());
  const auto directly = compiled(kTransposes, "directly");
  directly(Launch({9, 15}, {16, 5}), from.get(), to.get(), 71u, 135u);
  SAME(to.read(), transposed(shorts, height, width));
}

static const char *const kFactorizations = R"cuda(
// In place, one matrix for each block, one row for each thread: the lower triangle becomes L of A = L L^T.
__global__ void cholesky(double *matrices, int size) {
  extern __shared__ double a[];
  double *matrix = matrices + (size_t)blockIdx.x * size * size;
  const int row = threadIdx.x;
  for (int i = threadIdx.x; i < size * size; i += blockDim.x) {
    a[i] = matrix[i];
  }
  __syncthreads();
  for (int k = 0; k < size; k++) {
    if (row == k) {
      a[k * size + k] = sqrt(a[k * size + k]);
    }
    __syncthreads();
    if (row > k && row < size) {
      a[row * size + k] /= a[k * size + k];
    }
    __syncthreads();
    if (row > k && row < size) {
      for (int column = k + 1; column <= row; column++) {
        a[row * size + column] -= a[row * size + k] * a[column * size + k];
      }
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < size * size; i += blockDim.x) {
    matrix[i] = i % size <= i / size ? a[i] : 0.0;
  }
}

// Solves A x = b by elimination with row pivots. The pivot's row is found by one warp.
template <int SIZE>
__global__ void solve(const float *matrices, const float *right, float *solutions) {
  __shared__ float a[SIZE][SIZE + 1];
  __shared__ int pivot;
  const int row = threadIdx.x;
  if (row < SIZE) {
    for (int column = 0; column < SIZE; column++) {
      a[row][column] = matrices[(blockIdx.x * SIZE + row) * SIZE + column];
    }
    a[row][SIZE] = right[blockIdx.x * SIZE + row];
  }
  __syncthreads();
  for (int k = 0; k < SIZE; k++) {
    if (threadIdx.x < 32) {
      float best = row >= k && row < SIZE ? fabsf(a[row][k]) : -1.0f;
      int where = row;
      for (int offset = 16; offset > 0; offset >>= 1) {
        const float other = __shfl_xor_sync(0xffffffff, best, offset);
        const int there = __shfl_xor_sync(0xffffffff, where, offset);
        if (other > best || (other == best && there < where)) {
          best = other;
          where = there;
        }
      }
      if (threadIdx.x == 0) pivot = where;
    }
    __syncthreads();
    for (int column = threadIdx.x; column <= SIZE; column += blockDim.x) {
      const float kept = a[k][column];
      a[k][column] = a[pivot][column];
      a[pivot][column] = kept;
    }
    __syncthreads();
    if (row != k && row < SIZE) {
      const float factor = a[row][k] / a[k][k];
      for (int column = k; column <= SIZE; column++) {
        a[row][column] -= factor * a[k][column];
      }
    }
    __syncthreads();
  }
  if (row < SIZE) {
    solutions[blockIdx.x * SIZE + row] = a[row][SIZE] / a[row][row];
  }
}
)cuda";

TEST(cholesky_factors_of_a_batch) {
  const int size = 21, batches = 5;
  std::vector<double> matrices, expected;
  for (int batch = 0; batch < batches; batch++) {
    // L with a large diagonal, and A = L L^T.
    auto lower = randoms<double>(size * size, 20 + batch, -1, 1);
    for (int row = 0; row < size; row++) {
      lower[row * size + row] = 3 + std::fabs(lower[row * size + row]);
      std::fill(lower.begin() + row * size + row + 1, lower.begin() + (row + 1) * size, 0.0);
    }
    const auto square = product(lower, transposed(lower, size, size), size, size, size);
    matrices.insert(matrices.end(), square.begin(), square.end());
    expected.insert(expected.end(), lower.begin(), lower.end());
  }
  const Device<double> memory(matrices);
  const auto cholesky = compiled(kFactorizations, "cholesky");
  cholesky(Launch(batches, 32).shared_bytes(size * size * sizeof(double)), memory.get(), size);
  // The condition number of A is below 10^3.
  NEAR(memory.read(), expected, 1e-11, 0);
}

TEST(systems_of_equations_of_a_batch) {
  const int size = 17, batches = 9;
  std::vector<float> matrices, right;
  std::vector<float> expected = randoms<float>(size * batches, 31, -4, 4);
  for (int batch = 0; batch < batches; batch++) {
    auto matrix = randoms<float>(size * size, 40 + batch, -1, 1);
    for (int row = 0; row < size; row++) {
      // The largest element of a column is not on the diagonal, so that rows are exchanged.
      matrix[row * size + (row * 5 + batch) % size] += 12;
    }
    const std::vector<float> x(expected.begin() + batch * size, expected.begin() + (batch + 1) * size);
    for (const double value : product(matrix, x, size, 1, size)) {
      right.push_back(static_cast<float>(value));
    }
    matrices.insert(matrices.end(), matrix.begin(), matrix.end());
  }
  const Device<float> a(matrices), b(right), x(right.size());
  const auto solve = compiled(kFactorizations, "solve<17>");
  solve(Launch(batches, 64), a.get(), b.get(), x.get());
  // The matrices are near a permutation of 12 I; 2e-5 is some 40 ulp of the right side.
  NEAR(x.read(), expected, 2e-5, 0);
}

static const char *const kSparse = R"cuda(
__global__ void csr_scalar(const int *starts, const int *columns, const double *values, const double *x, double *y,
                           int rows) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows) {
    double sum = 0.0;
    for (int i = starts[row]; i < starts[row + 1]; i++) {
      sum += values[i] * __ldg(&x[columns[i]]);
    }
    y[row] = sum;
  }
}

__device__ __forceinline__ double warp_sum(double value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffff, value, offset);
  }
  return value;
}

__global__ void csr_warp(const int *starts, const int *columns, const double *values, const double *x, double *y,
                         int rows) {
  const int lane = threadIdx.x & 31, warps = gridDim.x * blockDim.x / 32;
  for (int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32; row < rows; row += warps) {
    double sum = 0.0;
    for (int i = starts[row] + lane; i < starts[row + 1]; i += 32) {
      sum += values[i] * x[columns[i]];
    }
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
  }
}

__global__ void coo(const int *rows, const int *columns, const float *values, const float *x, float *y, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {
    atomicAdd(&y[rows[i]], values[i] * x[columns[i]]);
  }
}
)cuda";

struct Sparse {
  std::vector<int> starts{0}, rows, columns;
  std::vector<double> values, x, expected;
};

// Small integers as values: every order of the sums is exact. A tenth of the rows is empty.
static Sparse sparse_matrix(int rows, int columns) {
  Sparse made;
  const auto lengths = randoms<int>(rows, 51, 0, 90);
  std::uint64_t state = 52;
  for (const int value : randoms<int>(columns, 53, -9, 9)) {
    made.x.push_back(value);
  }
  for (int row = 0; row < rows; row++) {
    double sum = 0;
    for (int i = 0; i < (row % 10 == 3 ? 0 : lengths[row]); i++) {
      const int column = static_cast<int>(random_next(&state) % columns);
      const double value = static_cast<double>(random_next(&state) % 19) - 9;
      made.rows.push_back(row);
      made.columns.push_back(column);
      made.values.push_back(value);
      sum += value * made.x[column];
    }
    made.expected.push_back(sum);
    made.starts.push_back(static_cast<int>(made.columns.size()));
  }
  return made;
}

TEST(sparse_products) {
  const int rows = 517, columns = 203;
  const Sparse matrix = sparse_matrix(rows, columns);
  const Device<int> starts(matrix.starts), indices(matrix.columns), places(matrix.rows);
  const Device<double> values(matrix.values), x(matrix.x), scalar(rows), warp(rows);
  const auto csr_scalar = compiled(kSparse, "csr_scalar");
  const auto csr_warp = compiled(kSparse, "csr_warp");
  const Launch by_rows(blocks_for(rows, 100), 100);
  csr_scalar(by_rows, starts.get(), indices.get(), values.get(), x.get(), scalar.get(), rows);
  SAME(scalar.read(), matrix.expected);
  csr_warp(Launch(11, 96), starts.get(), indices.get(), values.get(), x.get(), warp.get(), rows);
  SAME(warp.read(), matrix.expected);
  const auto coo = compiled(kSparse, "coo");
  const std::vector<float> few(matrix.values.begin(), matrix.values.end());
  const std::vector<float> short_x(matrix.x.begin(), matrix.x.end());
  const int count = static_cast<int>(few.size());
  const Device<float> elements(few), in(short_x), out(rows);
  const Launch by_elements(blocks_for(few.size(), 256), 256);
  coo(by_elements, places.get(), indices.get(), elements.get(), in.get(), out.get(), count);
  NEAR(out.read(), matrix.expected, 0, 0);
}
