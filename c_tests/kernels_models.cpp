// CUDA C++ kernels of neural networks: softmax, norms, attention, activations, embeddings, losses, an optimizer step.
//
// The references compute in double. The inputs are floats of magnitude about 1, so an ulp of a result is about 1e-7.
//
// timeout: 240
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "kernels.h"

static const char *const kSoftmax = R"cuda(
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <typename Operation>
__device__ float reduce_warp(float value, Operation operation) {
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) value = operation(value, __shfl_xor_sync(0xffffffff, value, mask, 32));
  return value;
}

template <typename Operation>
__device__ float reduce_block(float value, Operation operation, float *room) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  value = reduce_warp(value, operation);
  __syncthreads();  // the room may still be read by an earlier call
  if (lane == 0) room[warp] = value;
  __syncthreads();
  value = room[0];
  for (int i = 1; i < blockDim.x / 32; i++) value = operation(value, room[i]);
  return value;
}

__global__ void softmax_block(const float *in, float *out, int columns) {
  __shared__ float room[32];
  const float *row = in + (size_t)blockIdx.x * columns;
  float most = -1.0f / 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) most = fmaxf(most, row[i]);
  most = reduce_block(most, Max(), room);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(row[i] - most);
  sum = reduce_block(sum, Sum(), room);
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    out[(size_t)blockIdx.x * columns + i] = expf(row[i] - most) / sum;
  }
}

// A row of at most 32 * PER_LANE elements in the registers of a warp.
template <int PER_LANE>
__global__ void softmax_warp(const float *in, float *out, int rows, int columns) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // all lanes of a warp
  float values[PER_LANE];
  float most = -1.0f / 0.0f, sum = 0.0f;
#pragma unroll
  for (int i = 0; i < PER_LANE; i++) {
    const int column = threadIdx.x + 32 * i;
    values[i] = column < columns ? in[row * columns + column] : -1.0f / 0.0f;
    most = fmaxf(most, values[i]);
  }
  most = reduce_warp(most, Max());
#pragma unroll
  for (int i = 0; i < PER_LANE; i++) {
    values[i] = __expf(values[i] - most);
    sum += values[i];
  }
  sum = reduce_warp(sum, Sum());
#pragma unroll
  for (int i = 0; i < PER_LANE; i++) {
    const int column = threadIdx.x + 32 * i;
    if (column < columns) out[row * columns + column] = __fdividef(values[i], sum);
  }
}

// The mean negative logarithm of the probability of the target; targets of -100 do not count.
__global__ void cross_entropy(const float *logits, const long long *targets, float *losses, float *mean, int *counted,
                              int classes) {
  __shared__ float room[32];
  const float *row = logits + (size_t)blockIdx.x * classes;
  float most = -3.4e38f, sum = 0.0f;
  for (int i = threadIdx.x; i < classes; i += blockDim.x) most = fmaxf(most, row[i]);
  most = reduce_block(most, Max(), room);
  for (int i = threadIdx.x; i < classes; i += blockDim.x) sum += expf(row[i] - most);
  sum = reduce_block(sum, Sum(), room);
  if (threadIdx.x == 0) {
    const long long target = targets[blockIdx.x];
    float loss = 0.0f;
    if (target != -100) {
      loss = logf(sum) + most - row[target];
      atomicAdd(mean, loss);
      atomicAdd(counted, 1);
    }
    losses[blockIdx.x] = loss;
  }
}
)cuda";

static std::vector<double> softmax(const std::vector<float> &in, std::size_t columns) {
  std::vector<double> out(in.size());
  for (std::size_t first = 0; first < in.size(); first += columns) {
    double most = -INFINITY, sum = 0;
    for (std::size_t i = 0; i < columns; i++) most = std::max(most, static_cast<double>(in[first + i]));
    for (std::size_t i = 0; i < columns; i++) sum += out[first + i] = std::exp(in[first + i] - most);
    for (std::size_t i = 0; i < columns; i++) out[first + i] /= sum;
  }
  return out;
}

// The difference to the maximum, up to 40, is rounded before expf: a relative error of 2e-6. __expf adds 49 ulp at -40.
TEST(softmax_of_rows) {
  const int rows = 21, columns = 333;
  auto values = randoms<float>(rows * columns, 1, -20, 20);
  values[5] = -INFINITY;
  const Device<float> in(values), out(values.size());
  const auto by_block = compiled(kSoftmax, "softmax_block");
  by_block(Launch(rows, 96), in.get(), out.get(), columns);
  NEAR(out.read(), softmax(values, columns), 1e-30, 4e-6);
  const Device<float> short_out(rows * 111 * 3);
  const auto by_warp = compiled(kSoftmax, "softmax_warp<4>");
  by_warp(Launch(blocks_for(rows * 3, 4), {32, 4}), in.get(), short_out.get(), rows * 3, 111);
  NEAR(short_out.read(), softmax(values, 111), 1e-30, 1.5e-5);
}

TEST(cross_entropy_with_ignored_targets) {
  const int rows = 45, classes = 131;
  const auto logits = randoms<float>(rows * classes, 2, -6, 6);
  auto targets = randoms<std::int64_t>(rows, 3, 0, classes - 1);
  std::vector<double> expected;
  double sum = 0;
  int counted = 0;
  const auto probabilities = softmax(logits, classes);
  for (int row = 0; row < rows; row++) {
    if (row % 7 == 2) targets[row] = -100;
    expected.push_back(targets[row] < 0 ? 0 : -std::log(probabilities[row * classes + targets[row]]));
    sum += expected.back();
    counted += targets[row] >= 0 ? 1 : 0;
  }
  const Device<float> in(logits), losses(rows), mean(1);
  const Device<std::int64_t> places(targets);
  const Device<int> count(1);
  const auto kernel = compiled(kSoftmax, "cross_entropy");
  kernel(Launch(rows, 64), in.get(), places.get(), losses.get(), mean.get(), count.get(), classes);
  NEAR(losses.read(), expected, 5e-6, 0);
  NEAR(mean.read(), std::vector<double>{sum}, 1e-4, 0);  // 39 losses below 16, in any order
  SAME(count.read(), std::vector<int>{counted});
}

static const char *const kNorms = R"cuda(
// Count, mean and the sum of squared differences of a part of the row, merged pairwise.
struct Welford {
  float mean, squares, count;

  __device__ void add(float value) {
    count += 1.0f;
    const float delta = value - mean;
    mean += delta / count;
    squares += delta * (value - mean);
  }
  __device__ void merge(const Welford &other) {
    if (other.count == 0.0f) return;
    const float both = count + other.count, delta = other.mean - mean;
    mean += delta * (other.count / both);
    squares += other.squares + delta * delta * (count * other.count / both);
    count = both;
  }
};

__global__ void layer_norm(const float *in, const float *weight, const float *bias, float *out, int columns,
                           float eps) {
  __shared__ Welford parts[32];
  __shared__ float mean, scale;
  const float *row = in + (size_t)blockIdx.x * columns;
  Welford mine = {0.0f, 0.0f, 0.0f};
  for (int i = threadIdx.x; i < columns; i += blockDim.x) mine.add(row[i]);
  for (int offset = 16; offset > 0; offset /= 2) {
    Welford other;
    other.mean = __shfl_down_sync(~0u, mine.mean, offset);
    other.squares = __shfl_down_sync(~0u, mine.squares, offset);
    other.count = __shfl_down_sync(~0u, mine.count, offset);
    if ((threadIdx.x & 31) + offset < 32) mine.merge(other);
  }
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < blockDim.x / 32; warp++) mine.merge(parts[warp]);
    mean = mine.mean;
    scale = rsqrtf(mine.squares / columns + eps);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    out[(size_t)blockIdx.x * columns + i] = (row[i] - mean) * scale * weight[i] + bias[i];
  }
}

__global__ void rms_norm(float *data, const float *__restrict__ weight, int columns, float eps) {
  extern __shared__ float squares[];
  float *row = data + (size_t)blockIdx.x * columns;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += row[i] * row[i];
  squares[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) squares[threadIdx.x] += squares[threadIdx.x + step];
    __syncthreads();
  }
  const float scale = rsqrtf(squares[0] / (float)columns + eps);
  for (int i = threadIdx.x; i < columns; i += blockDim.x) row[i] = row[i] * scale * weight[i];
}
)cuda";

TEST(norms_of_rows) {
  const int rows = 17, columns = 301;
  const auto values = randoms<float>(rows * columns, 4, -1, 3), weight = randoms<float>(columns, 5, 0.5f, 1.5f);
  const auto bias = randoms<float>(columns, 6, -1, 1);
  std::vector<double> layer, rms;
  for (int row = 0; row < rows; row++) {
    const float *const x = values.data() + row * columns;
    double sum = 0, squares = 0, variance = 0;
    for (int i = 0; i < columns; i++) {
      sum += x[i];
      squares += static_cast<double>(x[i]) * x[i];
    }
    const double mean = sum / columns;
    for (int i = 0; i < columns; i++) variance += (x[i] - mean) * (x[i] - mean) / columns;
    for (int i = 0; i < columns; i++) {
      layer.push_back((x[i] - mean) / std::sqrt(variance + 1e-5) * weight[i] + bias[i]);
      rms.push_back(x[i] / std::sqrt(squares / columns + 1e-6) * weight[i]);
    }
  }
  const Device<float> in(values), weights(weight), biases(bias), out(values.size()), in_place(values);
  const auto layer_norm = compiled(kNorms, "layer_norm");
  layer_norm(Launch(rows, 128), in.get(), weights.get(), biases.get(), out.get(), columns, 1e-5f);
  NEAR(out.read(), layer, 4e-6, 0);
  const auto rms_norm = compiled(kNorms, "rms_norm");
  rms_norm(Launch(rows, 64).shared_bytes(256), in_place.get(), weights.get(), columns, 1e-6f);
  NEAR(in_place.read(), rms, 3e-6, 0);
}

static const char *const kAttention = R"cuda(
// One query for each thread; keys and values in tiles of shared memory. The maximum and the sum of the exponentials are
// corrected from tile to tile. grid: (tiles of queries, heads), block: TILE.
template <int TILE, int SIZE, bool CAUSAL>
__global__ void attention(const float *queries, const float *keys, const float *values, float *out, int length,
                          float scale) {
  __shared__ float tile_keys[TILE][SIZE], tile_values[TILE][SIZE];
  const size_t head = (size_t)blockIdx.y * length * SIZE;
  const int query = blockIdx.x * TILE + threadIdx.x;
  float mine[SIZE], sums[SIZE] = {};
  float most = __int_as_float(0xff800000), total = 0.0f;
  for (int i = 0; i < SIZE; i++) mine[i] = query < length ? queries[head + query * SIZE + i] : 0.0f;
  for (int start = 0; start < length; start += TILE) {
    if (CAUSAL && start > (blockIdx.x + 1) * TILE - 1) break;  // the same for the whole block
    for (int i = threadIdx.x; i < TILE * SIZE; i += TILE) {
      const int row = start + i / SIZE;
      tile_keys[i / SIZE][i % SIZE] = row < length ? keys[head + (size_t)start * SIZE + i] : 0.0f;
      tile_values[i / SIZE][i % SIZE] = row < length ? values[head + (size_t)start * SIZE + i] : 0.0f;
    }
    __syncthreads();
    for (int j = 0; j < TILE && start + j < length; j++) {
      if (CAUSAL && start + j > query) break;
      float score = 0.0f;
      for (int i = 0; i < SIZE; i++) score += mine[i] * tile_keys[j][i];
      score *= scale;
      const float now = fmaxf(most, score), keep = expf(most - now), weight = expf(score - now);
      total = total * keep + weight;
      for (int i = 0; i < SIZE; i++) sums[i] = sums[i] * keep + weight * tile_values[j][i];
      most = now;
    }
    __syncthreads();
  }
  if (query < length) {
    for (int i = 0; i < SIZE; i++) out[head + query * SIZE + i] = sums[i] / total;
  }
}
)cuda";

static std::vector<double> attended(const std::vector<float> &q, const std::vector<float> &k,
                                    const std::vector<float> &v, int heads, int length, int size, bool causal) {
  std::vector<double> out(q.size());
  for (int head = 0; head < heads; head++) {
    for (int query = 0; query < length; query++) {
      const std::size_t first = static_cast<std::size_t>(head) * length * size;
      const int end = causal ? query + 1 : length;
      double sum = 0;
      double *const row = out.data() + first + query * size;
      for (int key = 0; key < end; key++) {
        double score = 0;
        for (int i = 0; i < size; i++) score += double(q[first + query * size + i]) * k[first + key * size + i];
        const double weight = std::exp(score / std::sqrt(double(size)));
        sum += weight;
        for (int i = 0; i < size; i++) row[i] += weight * v[first + key * size + i];
      }
      for (int i = 0; i < size; i++) row[i] /= sum;
    }
  }
  return out;
}

TEST(attention_with_online_softmax) {
  const int heads = 3, length = 75, size = 24;
  const std::size_t count = static_cast<std::size_t>(heads) * length * size;
  const auto q = randoms<float>(count, 7, -2, 2), k = randoms<float>(count, 8, -2, 2);
  const auto v = randoms<float>(count, 9, -1, 1);
  const Device<float> queries(q), keys(k), values(v), out(count), causal_out(count);
  const float scale = 1 / std::sqrt(static_cast<float>(size));
  const Launch launch({3, heads}, 32);
  const auto all = compiled(kAttention, "attention<32, 24, false>");
  all(launch, queries.get(), keys.get(), values.get(), out.get(), length, scale);
  // Scores of magnitude 20 have an error of 4e-6; so have the weights.
  NEAR(out.read(), attended(q, k, v, heads, length, size, false), 1e-5, 0);
  const auto causal = compiled(kAttention, "attention<32, 24, true>");
  causal(launch, queries.get(), keys.get(), values.get(), causal_out.get(), length, scale);
  NEAR(causal_out.read(), attended(q, k, v, heads, length, size, true), 1e-5, 0);
}

static const char *const kElementwise = R"cuda(
__device__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }
__device__ float gelu_tanh(float x) {
  return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}
__device__ float silu(float x) { return x / (1.0f + expf(-x)); }

// Four elements at a time, the rest one by one.
template <float (*FUNCTION)(float)>
__global__ void vectorized(const float *in, float *out, int count) {
  const int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  for (int i = thread; i < count / 4; i += threads) {
    float4 four = reinterpret_cast<const float4 *>(in)[i];
    four.x = FUNCTION(four.x);
    four.y = FUNCTION(four.y);
    four.z = FUNCTION(four.z);
    four.w = FUNCTION(four.w);
    reinterpret_cast<float4 *>(out)[i] = four;
  }
  for (int i = count / 4 * 4 + thread; i < count; i += threads) out[i] = FUNCTION(in[i]);
}

// x: [tokens][heads][2 * half]; pairs (i, i + half) are rotated by position * base^(-i / half).
__global__ void rotary(float *x, const int *positions, int heads, int half, float base) {
  const int token = blockIdx.x;
  for (int i = threadIdx.x; i < heads * half; i += blockDim.x) {
    const int head = i / half, pair = i % half;
    float sine, cosine;
    sincosf((float)positions[token] * powf(base, -(float)pair / (float)half), &sine, &cosine);
    float *first = x + ((size_t)token * heads + head) * 2 * half + pair;
    const float a = first[0], b = first[half];
    first[0] = a * cosine - b * sine;
    first[half] = b * cosine + a * sine;
  }
}

__global__ void embedding(const long long *indices, const float2 *table, float2 *out, long long rows, int pairs) {
  const long long row = indices[blockIdx.x];
  for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
    // An index outside of the table gives zeros.
    out[(size_t)blockIdx.x * pairs + i] = row >= 0 && row < rows ? table[row * pairs + i] : make_float2(0.0f, 0.0f);
  }
}

struct AdamStep {
  float rate, beta1, beta2, eps, decay;
  int step;
};

__global__ void adam(float *weights, const float *gradients, float *first, float *second, AdamStep step, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float gradient = gradients[i];
  float weight = weights[i] * (1.0f - step.rate * step.decay);
  const float m = first[i] = step.beta1 * first[i] + (1.0f - step.beta1) * gradient;
  const float v = second[i] = step.beta2 * second[i] + (1.0f - step.beta2) * gradient * gradient;
  const float m_hat = m / (1.0f - powf(step.beta1, (float)step.step));
  const float v_hat = v / (1.0f - powf(step.beta2, (float)step.step));
  weights[i] = weight - step.rate * m_hat / (sqrtf(v_hat) + step.eps);
}
)cuda";

static void expect_activation(const char *name, double (*reference)(double)) {
  const std::size_t count = 10003;
  auto values = randoms<float>(count, 10, -9, 9);
  values[0] = 0;
  values[10002] = -88;
  std::vector<double> expected;
  for (const float value : values) expected.push_back(reference(value));
  const Device<float> in(values), out(count);
  const auto kernel = compiled(kElementwise, name);
  kernel(Launch(7, 160), in.get(), out.get(), static_cast<int>(count));
  // 1 + erf and 1 + tanh cancel: an absolute error of some ulp of 1, times |x| / 2.
  NEAR(out.read(), expected, 2e-6, 5e-7);
}

TEST(activations_by_four_elements) {
  expect_activation("vectorized<gelu>", [](double x) { return 0.5 * x * std::erfc(-x * 0.70710678118654752); });
  expect_activation("vectorized<gelu_tanh>", [](double x) {
    return 0.5 * x * (1 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
  });
  expect_activation("vectorized<silu>", [](double x) { return x / (1 + std::exp(-x)); });
}

TEST(rotary_embedding) {
  const int tokens = 19, heads = 3, half = 20;
  const auto x = randoms<float>(tokens * heads * 2 * half, 11, -1, 1);
  const auto positions = randoms<int>(tokens, 12, 0, 100);
  std::vector<double> expected(x.begin(), x.end());
  for (int token = 0; token < tokens; token++) {
    for (int i = 0; i < heads * half; i++) {
      const std::size_t at = (static_cast<std::size_t>(token) * heads + i / half) * 2 * half + i % half;
      const double angle = positions[token] * std::pow(10000.0, -static_cast<double>(i % half) / half);
      expected[at] = x[at] * std::cos(angle) - x[at + half] * std::sin(angle);
      expected[at + half] = x[at + half] * std::cos(angle) + x[at] * std::sin(angle);
    }
  }
  const Device<float> memory(x);
  const Device<int> places(positions);
  const auto rotary = compiled(kElementwise, "rotary");
  rotary(Launch(tokens, 48), memory.get(), places.get(), heads, half, 10000.0f);
  // Angles up to 100 have an error of some ulp of 100: the power's, and that of the product.
  NEAR(memory.read(), expected, 4e-5, 0);
}

TEST(embeddings_by_64_bit_indices) {
  const int rows = 50, pairs = 33, count = 81;
  const auto table = randoms<float>(rows * pairs * 2, 13, -1, 1);
  auto indices = randoms<std::int64_t>(count, 14, 0, rows - 1);
  indices[3] = -1;
  indices[4] = std::int64_t{1} << 32;  // 0, if only its low half is looked at
  std::vector<float> expected;
  for (const std::int64_t row : indices) {
    for (int i = 0; i < 2 * pairs; i++) expected.push_back(row >= 0 && row < rows ? table[row * 2 * pairs + i] : 0);
  }
  const Device<std::int64_t> places(indices);
  const Device<float> rows_of_table(table), out(expected.size());
  const auto embedding = compiled(kElementwise, "embedding");
  embedding(Launch(count, 32), places.get(), rows_of_table.get(), out.get(), std::int64_t{rows}, pairs);
  SAME(out.read(), expected);
}

TEST(steps_of_adam) {
  struct AdamStep {
    float rate, beta1, beta2, eps, decay;
    std::int32_t step;
  } settings{1e-2f, 0.9f, 0.999f, 1e-8f, 0.1f, 0};
  const std::size_t count = 1501;
  const auto start = randoms<float>(count, 15, -1, 1);
  const Device<float> weights(start), first(count), second(count);
  std::vector<double> expected(start.begin(), start.end()), m(count), v(count);
  const auto adam = compiled(kElementwise, "adam");
  for (settings.step = 1; settings.step <= 3; settings.step++) {
    const auto gradient = randoms<float>(count, 16 + settings.step, -1, 1);
    const Device<float> gradients(gradient);
    adam(Launch(blocks_for(count, 256), 256), weights.get(), gradients.get(), first.get(), second.get(), settings,
         static_cast<int>(count));
    plinth::synchronize();
    const double beta1 = settings.beta1, beta2 = settings.beta2, rate = settings.rate;
    for (std::size_t i = 0; i < count; i++) {
      m[i] = beta1 * m[i] + (1 - beta1) * gradient[i];
      v[i] = beta2 * v[i] + (1 - beta2) * gradient[i] * gradient[i];
      const double m_hat = m[i] / (1 - std::pow(beta1, settings.step));
      const double v_hat = v[i] / (1 - std::pow(beta2, settings.step));
      expected[i] = expected[i] * (1 - rate * settings.decay) - rate * m_hat / (std::sqrt(v_hat) + settings.eps);
    }
  }
  // 1 - beta2^step is about 1e-3, with an error of some ulp of 1, of which the square root halves the effect: a step
  // of 1e-2 has an error of at most 1e-6, and there are three.
  NEAR(weights.read(), expected, 4e-6, 0);
}
