// CUDA C++ kernels on grids, images and particles: convolutions, pooling, stencils, simulations, random numbers.
//
// timeout: 240
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "kernels.h"

#include <plinth_philox.h>

static const char *const kImages = R"cuda(
// A filter of 5 x 5 in constant memory.
__constant__ float filter[5][5] = {
    {1, 4, 6, 4, 1}, {4, 16, 24, 16, 4}, {6, 24, 36, 24, 6}, {4, 16, 24, 16, 4}, {1, 4, 6, 4, 1},
};

__device__ int clamped(int at, int size) { return min(max(at, 0), size - 1); }

__global__ void convolution(const float *in, float *out, int height, int width) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  float sum = 0.0f;
#pragma unroll
  for (int dy = -2; dy <= 2; dy++) {
#pragma unroll
    for (int dx = -2; dx <= 2; dx++) {
      sum += filter[dy + 2][dx + 2] * in[clamped(y + dy, height) * width + clamped(x + dx, width)];
    }
  }
  out[y * width + x] = sum * (1.0f / 256.0f);
}

// Each channel has its own filter. The tile of the input, with a halo of zeros, is in dynamic shared memory.
template <int RADIUS>
__global__ void depthwise(const float *in, const float *filters, float *out, int height, int width) {
  extern __shared__ float tile[];
  const int tile_width = blockDim.x + 2 * RADIUS, tile_height = blockDim.y + 2 * RADIUS;
  const int left = blockIdx.x * blockDim.x - RADIUS, top = blockIdx.y * blockDim.y - RADIUS;
  const float *plane = in + (size_t)blockIdx.z * height * width;
  for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < tile_width * tile_height; i += blockDim.x * blockDim.y) {
    const int x = left + i % tile_width, y = top + i / tile_width;
    tile[i] = x >= 0 && x < width && y >= 0 && y < height ? plane[y * width + x] : 0.0f;
  }
  __syncthreads();
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) {
    constexpr int kSize = 2 * RADIUS + 1;
    float sum = 0.0f;
    for (int dy = 0; dy < kSize; dy++) {
      for (int dx = 0; dx < kSize; dx++) {
        const float weight = filters[(blockIdx.z * kSize + dy) * kSize + dx];
        sum += weight * tile[(threadIdx.y + dy) * tile_width + threadIdx.x + dx];
      }
    }
    out[((size_t)blockIdx.z * height + y) * width + x] = sum;
  }
}

// Windows of 3 x 3 at steps of 2, with a border of 1; the place of the maximum is returned, too.
__global__ void max_pool(const float *in, float *out, int *places, int height, int width, int out_height,
                         int out_width) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x >= out_width) return;
  const float *plane = in + (size_t)blockIdx.z * height * width;
  float most = -__int_as_float(0x7f800000);
  int place = -1;
  for (int row = max(2 * y - 1, 0); row < min(2 * y + 2, height); row++) {
    for (int column = max(2 * x - 1, 0); column < min(2 * x + 2, width); column++) {
      const float value = plane[row * width + column];
      if (value > most || isnan(value)) {
        most = value;
        place = row * width + column;
      }
    }
  }
  const size_t at = ((size_t)blockIdx.z * out_height + y) * out_width + x;
  out[at] = most;
  places[at] = place;
}

__global__ void gray(const uchar4 *in, unsigned char *out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {
    const uchar4 pixel = in[i];
    out[i] = (unsigned char)((pixel.x * 77 + pixel.y * 150 + pixel.z * 29 + 128) >> 8);
  }
}
)cuda";

TEST(a_convolution_with_a_constant_filter) {
  const int height = 53, width = 77;
  const int weights[5] = {1, 4, 6, 4, 1};
  const auto in = randoms<float>(height * width, 1, 0, 1);
  std::vector<double> expected;
  for (int y = 0; y < height; y++) {
    for (int x = 0; x < width; x++) {
      double sum = 0;
      for (int dy = -2; dy <= 2; dy++) {
        for (int dx = -2; dx <= 2; dx++) {
          const int row = std::clamp(y + dy, 0, height - 1), column = std::clamp(x + dx, 0, width - 1);
          sum += weights[dy + 2] * weights[dx + 2] * in[row * width + column];
        }
      }
      expected.push_back(sum / 256);
    }
  }
  const Device<float> image(in), out(in.size());
  const auto convolution = compiled(kImages, "convolution");
  convolution(Launch({5, 7}, {16, 8}), image.get(), out.get(), height, width);
  NEAR(out.read(), expected, 1e-6, 0);  // 25 positive terms, whose sum is at most 1
}

TEST(a_convolution_of_each_channel) {
  const int channels = 3, height = 29, width = 45, radius = 2, size = 5;
  const auto in = randoms<float>(channels * height * width, 2, -1, 1);
  const auto filters = randoms<float>(channels * size * size, 3, -1, 1);
  std::vector<double> expected;
  for (int at = 0; at < channels * height * width; at++) {
    const int channel = at / (height * width), y = at / width % height, x = at % width;
    double sum = 0;
    for (int dy = -radius; dy <= radius; dy++) {
      for (int dx = -radius; dx <= radius; dx++) {
        if (y + dy < 0 || y + dy >= height || x + dx < 0 || x + dx >= width) continue;
        sum += double(filters[(channel * size + dy + radius) * size + dx + radius]) * in[at + dy * width + dx];
      }
    }
    expected.push_back(sum);
  }
  const Device<float> image(in), weights(filters), out(in.size());
  const auto depthwise = compiled(kImages, "depthwise<2>");
  const Launch launch = Launch({3, 5, channels}, {16, 6}).shared_bytes((16 + 4) * (6 + 4) * sizeof(float));
  depthwise(launch, image.get(), weights.get(), out.get(), height, width);
  NEAR(out.read(), expected, 4e-6, 0);  // 25 terms below 1
}

TEST(max_pooling_with_places) {
  const int planes = 4, height = 21, width = 34, out_height = 11, out_width = 17;
  auto in = randoms<float>(planes * height * width, 4, -1, 1);
  in[100] = NAN;
  std::vector<float> expected;
  std::vector<int> where;
  for (int at = 0; at < planes * out_height * out_width; at++) {
    const float *const plane = in.data() + at / (out_height * out_width) * height * width;
    const int y = at / out_width % out_height, x = at % out_width;
    float most = -INFINITY;
    int place = -1;
    for (int row = std::max(2 * y - 1, 0); row < std::min(2 * y + 2, height); row++) {
      for (int column = std::max(2 * x - 1, 0); column < std::min(2 * x + 2, width); column++) {
        const float value = plane[row * width + column];
        if (value > most || std::isnan(value)) {
          most = value;
          place = row * width + column;
        }
      }
    }
    expected.push_back(most);
    where.push_back(place);
  }
  const Device<float> image(in), out(expected.size());
  const Device<int> places(where.size());
  const auto pool = compiled(kImages, "max_pool");
  pool(Launch({2, out_height, planes}, 10), image.get(), out.get(), places.get(), height, width, out_height, out_width);
  NEAR(out.read(), expected, 0, 0);
  SAME(places.read(), where);
}

TEST(pixels_become_gray) {
  const auto in = randoms<std::uint8_t>(4 * 5003, 5, 0, 255);
  std::vector<std::uint8_t> expected;
  for (std::size_t i = 0; i < in.size(); i += 4) {
    expected.push_back(static_cast<std::uint8_t>((in[i] * 77 + in[i + 1] * 150 + in[i + 2] * 29 + 128) >> 8));
  }
  const Device<std::uint8_t> image(in), out(expected.size());
  const auto gray = compiled(kImages, "gray");
  gray(Launch(blocks_for(expected.size(), 128), 128), image.get(), out.get(), static_cast<int>(expected.size()));
  SAME(out.read(), expected);
}

static const char *const kStencils = R"cuda(
// One step of Jacobi's method, and the largest change of the step as bits, whose order is that of the numbers.
__global__ void jacobi(const float *now, float *next, int height, int width, unsigned *change) {
  __shared__ float tile[10][34];
  const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
  const int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
  const bool inside = x < width && y < height;
  if (inside) {
    tile[ty][tx] = now[y * width + x];
    if (threadIdx.x == 0 && x > 0) tile[ty][0] = now[y * width + x - 1];
    if (threadIdx.x == 31 && x + 1 < width) tile[ty][33] = now[y * width + x + 1];
    if (threadIdx.y == 0 && y > 0) tile[0][tx] = now[(y - 1) * width + x];
    if (threadIdx.y == 7 && y + 1 < height) tile[9][tx] = now[(y + 1) * width + x];
  }
  __syncthreads();
  if (inside) {
    float value = tile[ty][tx];
    if (x > 0 && x + 1 < width && y > 0 && y + 1 < height) {
      value = 0.25f * ((tile[ty][tx - 1] + tile[ty][tx + 1]) + (tile[ty - 1][tx] + tile[ty + 1][tx]));
      atomicMax(change, __float_as_uint(fabsf(value - tile[ty][tx])));
    }
    next[y * width + x] = value;
  }
}

// Seven points in three dimensions. A thread walks along z with three values in registers.
__global__ void seven_points(const double *in, double *out, int nx, int ny, int nz) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < 1 || x >= nx - 1 || y < 1 || y >= ny - 1) return;
  const int plane = nx * ny;
  int at = y * nx + x;
  double below = in[at], here = in[at + plane];
  for (int z = 1; z < nz - 1; z++) {
    at += plane;
    const double above = in[at + plane];
    out[at] = below + above + in[at - 1] + in[at + 1] + in[at - nx] + in[at + nx] - 6.0 * here;
    below = here;
    here = above;
  }
}

__global__ void life(const unsigned char *now, unsigned char *next, int height, int width) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) {
    int neighbors = 0;
    for (int dy = -1; dy <= 1; ++dy) {
      for (int dx = -1; dx <= 1; ++dx) {
        if (dx != 0 || dy != 0) {
          neighbors += now[(y + dy + height) % height * width + (x + dx + width) % width];
        }
      }
    }
    next[y * width + x] = neighbors == 3 || (neighbors == 2 && now[y * width + x]);
  }
}
)cuda";

// Sums of two and a product with a power of two: equal to the bit, because the order is the same.
TEST(steps_of_jacobi) {
  const int height = 43, width = 101;
  auto now = randoms<float>(height * width, 6, 0, 100);
  const Device<float> first(now), second(now.size());
  const Device<unsigned> changes(9);
  const auto jacobi = compiled(kStencils, "jacobi");
  float *from = first.get(), *to = second.get();
  std::vector<float> largest;
  for (int step = 0; step < 9; step++) {
    jacobi(Launch({4, 6}, {32, 8}), from, to, height, width, changes.get() + step);
    std::swap(from, to);
    auto next = now;
    float most = 0;
    for (int y = 1; y + 1 < height; y++) {
      for (int x = 1; x + 1 < width; x++) {
        const float *const at = &now[y * width + x];
        next[y * width + x] = 0.25f * ((at[-1] + at[1]) + (at[-width] + at[width]));
        most = std::max(most, std::fabs(next[y * width + x] - *at));
      }
    }
    now = next;
    largest.push_back(most);
  }
  SAME(second.read(), now);
  std::vector<unsigned> bits(9);
  std::memcpy(bits.data(), largest.data(), 36);
  SAME(changes.read(), bits);
}

TEST(a_stencil_of_seven_points) {
  const int nx = 37, ny = 22, nz = 13;
  const auto in = randoms<double>(nx * ny * nz, 7, -1, 1);
  std::vector<double> expected(in.size());
  for (int at = 0; at < nx * ny * nz; at++) {
    const int x = at % nx, y = at / nx % ny, z = at / (nx * ny);
    if (x > 0 && x < nx - 1 && y > 0 && y < ny - 1 && z > 0 && z < nz - 1) {
      const double *const i = &in[at];
      expected[at] = i[-nx * ny] + i[nx * ny] + i[-1] + i[1] + i[-nx] + i[nx] - 6 * i[0];
    }
  }
  const Device<double> volume(in), out(in.size());
  const auto kernel = compiled(kStencils, "seven_points");
  kernel(Launch({3, 6}, {16, 4}), volume.get(), out.get(), nx, ny, nz);
  NEAR(out.read(), expected, 4e-15, 0);  // sums below 12, whose last product may be fused
}

TEST(generations_of_life) {
  const int height = 47, width = 90;
  auto now = randoms<std::uint8_t>(height * width, 8, 0, 1);
  const Device<std::uint8_t> first(now), second(now.size());
  const auto life = compiled(kStencils, "life");
  std::uint8_t *from = first.get(), *to = second.get();
  for (int generation = 0; generation < 10; generation++) {
    life(Launch({6, 6}, {15, 8}), from, to, height, width);
    std::swap(from, to);
    auto next = now;
    for (int at = 0; at < height * width; at++) {
      int neighbors = -now[at];
      for (int step = 0; step < 9; step++) {
        const int y = (at / width + step / 3 - 1 + height) % height, x = (at % width + step % 3 - 1 + width) % width;
        neighbors += now[y * width + x];
      }
      next[at] = neighbors == 3 || (neighbors == 2 && now[at] != 0) ? 1 : 0;
    }
    now = next;
  }
  SAME(first.read(), now);
}

static const char *const kParticles = R"cuda(
__global__ void mandelbrot(int *out, int width, int height, int limit) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const double cr = -2.0 + 3.0 * x / width, ci = -1.25 + 2.5 * y / height;
  double zr = 0, zi = 0;
  int steps = 0;
  while (steps < limit) {
    // Without fused products, so that the counts are the same everywhere.
    const double rr = __dmul_rn(zr, zr), ii = __dmul_rn(zi, zi);
    if (__dadd_rn(rr, ii) > 4.0) break;
    zi = __dadd_rn(__dmul_rn(__dadd_rn(zr, zr), zi), ci);
    zr = __dadd_rn(__dsub_rn(rr, ii), cr);
    steps++;
  }
  out[y * width + x] = steps;
}

// Accelerations of all bodies by all bodies, in tiles of positions in shared memory. w is the mass.
__device__ float3 accelerated(float3 sum, float4 here, float4 there) {
  const float3 r = make_float3(there.x - here.x, there.y - here.y, there.z - here.z);
  const float square = r.x * r.x + r.y * r.y + r.z * r.z + 1e-2f;
  const float inverse = rsqrtf(square), factor = there.w * inverse * inverse * inverse;
  sum.x += r.x * factor;
  sum.y += r.y * factor;
  sum.z += r.z * factor;
  return sum;
}

__global__ void gravity(const float4 *bodies, float3 *out, int count) {
  extern __shared__ float4 tile[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 here = i < count ? bodies[i] : make_float4(0, 0, 0, 0);
  float3 sum = {0, 0, 0};
  for (int start = 0; start < count; start += blockDim.x) {
    const int other = start + threadIdx.x;
    tile[threadIdx.x] = other < count ? bodies[other] : make_float4(0, 0, 0, 0);  // no mass
    __syncthreads();
#pragma unroll 4
    for (int j = 0; j < blockDim.x; j++) sum = accelerated(sum, here, tile[j]);
    __syncthreads();
  }
  if (i < count) out[i] = sum;
}

// The nearest of at most 16 centers, and the sums of the points of each center.
__global__ void nearest(const float2 *points, const float2 *centers, int *labels, int *sizes, int count, int k) {
  __shared__ float2 local[16];
  __shared__ int members[16];
  if (threadIdx.x < k) {
    local[threadIdx.x] = centers[threadIdx.x];
    members[threadIdx.x] = 0;
  }
  __syncthreads();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {
    const float2 point = points[i];
    float least = 3.4e38f;
    int label = 0;
    for (int c = 0; c < k; c++) {
      const float dx = point.x - local[c].x, dy = point.y - local[c].y, square = dx * dx + dy * dy;
      if (square < least) {
        least = square;
        label = c;
      }
    }
    labels[i] = label;
    atomicAdd(&members[label], 1);
  }
  __syncthreads();
  if (threadIdx.x < k) atomicAdd(&sizes[threadIdx.x], members[threadIdx.x]);
}
)cuda";

TEST(the_mandelbrot_set) {
  const int width = 121, height = 67, limit = 150;
  std::vector<int> expected;
  for (int at = 0; at < width * height; at++) {
    const double cr = -2.0 + 3.0 * (at % width) / width, ci = -1.25 + 2.5 * (at / width) / height;
    volatile double zr = 0, zi = 0;
    int steps = 0;
    while (steps < limit) {
      const volatile double rr = zr * zr, ii = zi * zi;
      if (rr + ii > 4) break;
      const volatile double twice = zr + zr, product = twice * zi, difference = rr - ii;
      zi = product + ci;
      zr = difference + cr;
      steps++;
    }
    expected.push_back(steps);
  }
  const Device<int> out(expected.size());
  const auto mandelbrot = compiled(kParticles, "mandelbrot");
  mandelbrot(Launch({8, 9}, {16, 8}), out.get(), width, height, limit);
  SAME(out.read(), expected);
}

TEST(gravity_of_many_bodies) {
  const std::size_t count = 333;
  auto bodies = randoms<float>(4 * count, 9, -1, 1);
  std::vector<double> expected;
  for (std::size_t i = 0; i < count; i++) {
    bodies[4 * i + 3] = 0.5f + 0.5f * std::fabs(bodies[4 * i + 3]);
  }
  for (std::size_t i = 0; i < count; i++) {
    double sum[3] = {};
    for (std::size_t j = 0; j < count; j++) {
      double r[3], square = 1e-2;
      for (int axis = 0; axis < 3; axis++) {
        r[axis] = double(bodies[4 * j + axis]) - bodies[4 * i + axis];
        square += r[axis] * r[axis];
      }
      for (int axis = 0; axis < 3; axis++) sum[axis] += r[axis] * bodies[4 * j + 3] / (square * std::sqrt(square));
    }
    expected.insert(expected.end(), sum, sum + 3);
  }
  const Device<float> in(bodies), out(3 * count);
  const auto gravity = compiled(kParticles, "gravity");
  gravity(Launch(blocks_for(count, 64), 64).shared_bytes(64 * 16), in.get(), out.get(), static_cast<int>(count));
  // The terms of a sum have magnitudes of up to 40, and together about 600: some ulp of 600.
  NEAR(out.read(), expected, 5e-4, 0);
}

TEST(points_find_the_nearest_center) {
  const std::size_t count = 4001, k = 13;
  // Small integers: distances are exact.
  const auto coordinates = randoms<int>(2 * count, 10, -500, 500), places = randoms<int>(2 * k, 11, -500, 500);
  const std::vector<float> points(coordinates.begin(), coordinates.end()), centers(places.begin(), places.end());
  std::vector<int> labels, sizes(k);
  for (std::size_t i = 0; i < count; i++) {
    int least = INT32_MAX, label = 0;
    for (std::size_t c = 0; c < k; c++) {
      const int dx = coordinates[2 * i] - places[2 * c], dy = coordinates[2 * i + 1] - places[2 * c + 1];
      if (dx * dx + dy * dy < least) {
        least = dx * dx + dy * dy;
        label = static_cast<int>(c);
      }
    }
    labels.push_back(label);
    sizes[label]++;
  }
  const Device<float> in(points), means(centers);
  const Device<int> out(count), members(k);
  const auto nearest = compiled(kParticles, "nearest");
  nearest(Launch(blocks_for(count, 96), 96), in.get(), means.get(), out.get(), members.get(), static_cast<int>(count),
          static_cast<int>(k));
  SAME(out.read(), labels);
  SAME(members.read(), sizes);
}

static const char *const kRandom = R"cuda(
#include "plinth_philox.cuh"

__global__ void pi(plinth_philox_state_t state, int rounds, unsigned long long *inside) {
  plinth_philox_engine_t engine = plinth_philox_engine_of_thread(state);
  unsigned mine = 0;
  for (int round = 0; round < rounds; round++) {
    const float4 u = plinth_philox_uniform4(&engine);
    // The comparison must not depend on fused products.
    mine += __fadd_rn(__fmul_rn(u.x, u.x), __fmul_rn(u.y, u.y)) <= 1.0f;
    mine += __fadd_rn(__fmul_rn(u.z, u.z), __fmul_rn(u.w, u.w)) <= 1.0f;
  }
  for (int offset = 16; offset > 0; offset /= 2) mine += __shfl_down_sync(0xffffffff, mine, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(inside, (unsigned long long)mine);
}

// Walks on a lattice: two bits of random numbers for each step.
__global__ void walk(plinth_philox_state_t state, int2 *ends, int walks, int steps) {
  const unsigned thread = (unsigned)plinth_philox_thread();
  if (thread >= walks) return;
  plinth_philox_engine_t engine = plinth_philox_engine_of_thread(state);
  int2 place = make_int2(0, 0);
  unsigned word = 0;
  for (int step = 0; step < steps; step++) {
    if (step % 16 == 0) word = plinth_philox_next(&engine);
    switch (word & 3) {
      case 0: place.x++; break;
      case 1: place.x--; break;
      case 2: place.y++; break;
      default: place.y--;
    }
    word >>= 2;
  }
  ends[thread] = place;
}
)cuda";

static const plinth_philox_state_t kState = {42, 8, 0, 0, 0};

// The header's numbers are equal to the bit, as is a fraction: a product and a sum that may be fused. A pair that lies
// within an ulp of the circle may count on one side only.
TEST(pi_by_random_points) {
  const int threads = 256, rounds = 50;
  unsigned inside = 0, near = 0;
  for (int thread = 0; thread < threads; thread++) {
    plinth_philox_engine_t engine;
    plinth_philox_init(&engine, kState.seed, static_cast<std::uint64_t>(thread), kState.offset);
    for (int pair = 0; pair < 2 * rounds; pair++) {
      const double x = plinth_philox_uniform(plinth_philox_next(&engine));
      const double y = plinth_philox_uniform(plinth_philox_next(&engine));
      inside += x * x + y * y <= 1 ? 1 : 0;
      near += std::fabs(x * x + y * y - 1) < 6e-7 ? 1 : 0;
    }
  }
  const Device<std::uint64_t> out(1);
  const auto pi = compiled_with(kRandom, "pi", {}, {include_folder()});
  pi(Launch(4, 64), kState, rounds, out.get());
  NEAR(out.read(), std::vector<unsigned>{inside}, near, 0);
  CHECK(std::fabs(4.0 * static_cast<double>(out.read()[0]) / (2 * threads * rounds) - 3.1416) < 0.05);
}

TEST(random_walks) {
  const int walks = 203, steps = 100;
  std::vector<int> expected;
  for (int walk = 0; walk < walks; walk++) {
    plinth_philox_engine_t engine;
    plinth_philox_init(&engine, kState.seed, static_cast<std::uint64_t>(walk), kState.offset);
    int place[2] = {0, 0};
    unsigned word = 0;
    for (int step = 0; step < steps; step++, word >>= 2) {
      if (step % 16 == 0) word = plinth_philox_next(&engine);
      place[word >> 1 & 1] += word & 1 ? -1 : 1;
    }
    expected.insert(expected.end(), place, place + 2);
  }
  const Device<int> ends(expected.size());
  const auto walk = compiled_with(kRandom, "walk", {}, {include_folder()});
  walk(Launch(4, 64), kState, ends.get(), walks, steps);
  SAME(ends.read(), expected);
}
