// CUDA C++ as a language: templates, structs, overload sets, variables of a module, shapes of launches, votes, locks,
// phases within a block, bits, local arrays.
//
// timeout: 240
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "kernels.h"

static const char *const kTemplates = R"cuda(
template <typename T>
struct Affine {
  T factor, shift;
  __host__ __device__ T operator()(T x) const { return factor * x + shift; }
};

struct Square {
  template <typename T>
  __device__ T operator()(T x) const { return x * x; }
};

template <typename First, typename Second>
struct Composed {
  First first;
  Second second;
  template <typename T>
  __device__ auto operator()(T x) const -> decltype(second(first(x))) { return second(first(x)); }
};

// A functor by value, a number of elements for each thread, and a type.
template <typename T, int PER_THREAD, typename Function>
__global__ void transform(const T *in, T *out, int count, Function function) {
  T kept[PER_THREAD];
  const int first = (blockIdx.x * blockDim.x + threadIdx.x) * PER_THREAD;
#pragma unroll
  for (int i = 0; i < PER_THREAD; ++i) kept[i] = first + i < count ? function(in[first + i]) : T{};
#pragma unroll
  for (int i = 0; i < PER_THREAD; ++i) {
    if (first + i < count) out[first + i] = kept[i];
  }
}

template <typename... Types>
struct Size;
template <>
struct Size<> {
  static constexpr int value = 0;
};
template <typename First, typename... Rest>
struct Size<First, Rest...> {
  static constexpr int value = sizeof(First) + Size<Rest...>::value;
};

template <bool WIDE>
__global__ void __launch_bounds__(64, 2) sizes(int *out) {
  const auto store = [out](int place, int value) { out[place] = value; };
  if (threadIdx.x == 0) {
    store(0, Size<char, short, int, long long>::value);
    store(1, sizeof(long) == 8 && sizeof(size_t) == 8 && sizeof(wchar_t) == 4);
    store(2, alignof(float4) * 100 + sizeof(float3));
    if constexpr (WIDE) store(3, sizeof(double2)); else store(3, sizeof(char2));
    static_assert(sizeof(void *) == 8, "64 bits");
    static_assert(__is_trivially_copyable(Affine<float>), "an argument");
  }
}
)cuda";

static const char *const kBounds = R"cuda(
enum { WARPS = 3 };
constexpr int twice(int number) { return 2 * number; }
template <typename T, int NUMBER>
struct Product {
  static constexpr int value = sizeof(T) * NUMBER;
};

__global__ void __launch_bounds__(32 * WARPS) of_enumerator(int *out) { atomicAdd(out, 1); }
extern "C" __global__ void __launch_bounds__(twice(32), 2) of_function(int *out) { atomicAdd(out, 1); }
template <int N>
__global__ void __launch_bounds__(N) of_parameter(int *out) { atomicAdd(out, 1); }
template <typename T>
__launch_bounds__(Product<T, 24>::value) __global__ void of_type(int *out) { atomicAdd(out, 1); }
__global__ void unbounded(int *out) { atomicAdd(out, 1); }
)cuda";

TEST(a_launch_keeps_its_bounds) {
  const struct {
    const char *name;
    std::int32_t bound;
  } kernels[] = {{"of_enumerator", 96}, {"of_function", 64}, {"of_parameter<128>", 128}, {"of_type<double>", 192},
                 {"unbounded", 1024}};
  for (const auto &known : kernels) {
    const auto kernel = compiled(kBounds, known.name);
    const Device<int> out(1);
    const std::uint32_t bound = static_cast<std::uint32_t>(known.bound);
    CHECK_EQ(kernel.attributes().max_threads_per_block, known.bound);
    CHECK(kernel.occupancy(known.bound) >= 1);
    // The driver regards what a multiprocessor has, and not the bound.
    CHECK(known.bound == 1024 || kernel.occupancy(known.bound + 1) >= 1);
    THROWS(kernel(Launch(1, bound + 1), out.get()), PLINTH_ERROR_INVALID_VALUE);
    THROWS(kernel(Launch(1, {bound / 2, 3}), out.get()), PLINTH_ERROR_INVALID_VALUE);
    kernel(Launch(1, bound), out.get());
    SAME(out.read(), std::vector<int>{known.bound});
  }
}

TEST(functors_are_arguments) {
  struct Affine {
    std::int64_t factor, shift;
  };
  const std::size_t count = 1001;
  const auto values = randoms<std::int64_t>(count, 1, -1000000, 1000000);
  const Device<std::int64_t> in(values), out(count);
  std::vector<std::int64_t> expected;
  const auto affine = compiled(kTemplates, "transform<long long, 3, Affine<long long>>");
  affine(Launch(blocks_for(count, 3 * 64), 64), in.get(), out.get(), 1001, Affine{-7, 11});
  for (const std::int64_t value : values) expected.push_back(-7 * value + 11);
  SAME(out.read(), expected);
  struct Composed {
    Affine first;
    char second;
  };
  const auto composed = compiled(kTemplates, "transform<long long, 4, Composed<Affine<long long>, Square>>");
  composed(Launch(blocks_for(count, 4 * 64), 64), in.get(), out.get(), 1001, Composed{{2, 1}, 0});
  for (std::size_t i = 0; i < count; i++) expected[i] = (2 * values[i] + 1) * (2 * values[i] + 1);
  SAME(out.read(), expected);
}

TEST(types_have_the_sizes_of_cuda) {
  const Device<int> out(4);
  const auto wide = compiled(kTemplates, "sizes<true>");
  wide(Launch(1, 64), out.get());
  SAME(out.read(), (std::vector<int>{15, 1, 1612, 16}));
  const auto narrow = compiled(kTemplates, "sizes<false>");
  narrow(Launch(1, 64), out.get());
  SAME(out.read(), (std::vector<int>{15, 1, 1612, 2}));
}

static const char *const kNames = R"cuda(
namespace outer {
__device__ int weight(int) { return 1; }
__device__ int weight(unsigned) { return 2; }
__device__ int weight(long long) { return 3; }
__device__ int weight(float) { return 4; }
__device__ int weight(double) { return 5; }
__device__ int weight(const int *) { return 6; }

namespace inner {
enum class Color : unsigned char { red = 3, green = 7 };
constexpr int kTable[] = {1, 10, 100, 1000, 10000, 100000};

struct __align__(16) Parameters {
  double scale;
  int limits[3];
  Color color;
  bool enabled;
  short4 steps;
};

__global__ void overloads(int *out, const Parameters parameters) {
  const int results[6] = {weight(1), weight(1u), weight(1ll), weight(1.0f), weight(1.0), weight(out)};
  int sum = 0;
  for (int i = 0; i < 6; i++) sum += results[i] * kTable[i];
  out[0] = sum;
  out[1] = (int)(parameters.scale * parameters.limits[2]);
  out[2] = (int)parameters.color + (parameters.enabled ? 100 : 0);
  out[3] = parameters.steps.x + parameters.steps.y * 10 + parameters.steps.z * 100 + parameters.steps.w * 1000;
}
}  // namespace inner
}  // namespace outer

// Variables of the module: constant, global with an initializer, and a table of structs.
struct Point { int x, y; };
__constant__ Point corners[3] = {{1, 2}, {3, 4}, {5, 6}};
__device__ int calls = 40;
__device__ unsigned char table[300];

__device__ __noinline__ long long factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }

__global__ void variables(long long *out) {
  table[threadIdx.x] = (unsigned char)(threadIdx.x * 7);
  __syncthreads();
  if (threadIdx.x == 0) {
    out[0] = atomicAdd(&calls, 1);
    out[1] = corners[0].x + corners[1].y * 10 + corners[2].x * 100;
    out[2] = factorial(15);
    int sum = 0;
    for (const unsigned char byte : table) sum += byte;
    out[3] = sum;
  }
}

extern "C" __global__ void plain_name(int *out, bool flag, char letter, short number, unsigned char byte, long wide) {
  *out = flag ? letter * 1000000 + number + byte + (int)(wide >> 40) : -1;
}
)cuda";

TEST(names_in_namespaces_and_overload_sets) {
  struct alignas(16) Parameters {
    double scale;
    std::int32_t limits[3];
    std::uint8_t color;
    bool enabled;
    alignas(8) std::int16_t steps[4];
  };
  const Device<int> out(4);
  const auto overloads = compiled(kNames, "outer::inner::overloads");
  overloads(Launch(1, 1), out.get(), Parameters{2.5, {1, 2, 30}, 7, true, {4, 3, 2, 1}});
  SAME(out.read(), (std::vector<int>{654321, 75, 107, 1234}));
}

TEST(variables_of_a_module) {
  const Device<std::int64_t> out(4);
  const auto variables = compiled(kNames, "variables");
  int sum = 0;
  for (int i = 0; i < 300; i++) sum += i * 7 & 255;
  for (int round = 0; round < 2; round++) {
    variables(Launch(1, 300), out.get());
    SAME(out.read(), (std::vector<std::int64_t>{40 + round, 541, 1307674368000, sum}));
  }
}

TEST(arguments_of_small_types) {
  const Device<int> out(1);
  const auto plain_name = compiled(kNames, "plain_name");
  plain_name(Launch(1, 1), out.get(), true, 'A', std::int16_t{-300}, std::uint8_t{200}, std::int64_t{9} << 40);
  SAME(out.read(), std::vector<int>{65 * 1000000 - 300 + 200 + 9});
}

static const char *const kShapes = R"cuda(
// Where every thread of a launch is, in a table that is written once by each.
__global__ void places(unsigned *out, unsigned *sums) {
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  atomicAdd(&out[block * threads + thread],
            1 + threadIdx.x + (threadIdx.y << 5) + (threadIdx.z << 10) + (blockIdx.x << 15) + (blockIdx.y << 20) +
                (blockIdx.z << 25));
  // Lanes are numbered along x first, across rows.
  const unsigned lanes = threads - thread / 32 * 32 < 32 ? threads % 32 : 32;
  const unsigned mask = lanes == 32 ? 0xffffffff : (1u << lanes) - 1;
  const unsigned first = __shfl_sync(mask, thread, 0);
  if (first != thread / 32 * 32) atomicExch(&sums[0], 1u);
  const int odd = __syncthreads_count(thread & 1);
  const int all = __syncthreads_and(thread < threads), any = __syncthreads_or(thread == threads - 1);
  if (thread == 0) atomicAdd(&sums[1], odd * 4 + (all != 0) * 2 + (any != 0));
}

// All of 1024 threads, in eleven phases: each doubles the part of the array that is filled.
__global__ void __launch_bounds__(1024) phases(int *out) {
  __shared__ int values[1024];
  const int thread = threadIdx.x;
  if (thread == 0) values[0] = 1;
  for (int filled = 1; filled < 1024; filled *= 2) {
    __syncthreads();
    if (thread >= filled && thread < 2 * filled) values[thread] = values[thread - filled] + filled;
  }
  __syncthreads();
  out[blockIdx.x * 1024 + thread] = values[1023 - thread];
}

// Warps of two kinds: one writes an item into a ring of two, the others read it, in phases.
__global__ void producer_consumer(const int *in, int *out, int rounds) {
  __shared__ int ring[2][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = 0;
  if (warp == 0) ring[0][lane] = in[lane] * 3;
  __syncthreads();
  for (int round = 0; round < rounds; round++) {
    if (warp == 0) {
      if (round + 1 < rounds) ring[(round + 1) % 2][lane] = in[(round + 1) * 32 + lane] * 3;
    } else {
      sum += ring[round % 2][(lane + warp) % 32] * warp;
    }
    __syncthreads();
  }
  if (warp > 0) out[(warp - 1) * 32 + lane] = sum;
}
)cuda";

TEST(grids_and_blocks_of_three_dimensions) {
  const unsigned grid[3] = {3, 2, 4}, block[3] = {5, 3, 7};
  std::vector<unsigned> expected;
  for (unsigned bz = 0; bz < grid[2]; bz++)
    for (unsigned by = 0; by < grid[1]; by++)
      for (unsigned bx = 0; bx < grid[0]; bx++)
        for (unsigned tz = 0; tz < block[2]; tz++)
          for (unsigned ty = 0; ty < block[1]; ty++)
            for (unsigned tx = 0; tx < block[0]; tx++)
              expected.push_back(1 + tx + (ty << 5) + (tz << 10) + (bx << 15) + (by << 20) + (bz << 25));
  const Device<unsigned> out(expected.size()), sums(2);
  const auto places = compiled(kShapes, "places");
  places(Launch({3, 2, 4}, {5, 3, 7}), out.get(), sums.get());
  SAME(out.read(), expected);
  SAME(sums.read(), (std::vector<unsigned>{0, 24 * (52 * 4 + 3)}));
}

TEST(blocks_of_1024_threads) {
  const Device<int> out(3 * 1024);
  std::vector<int> expected;
  for (int i = 0; i < 3 * 1024; i++) expected.push_back(1024 - i % 1024);
  const auto phases = compiled(kShapes, "phases");
  phases(Launch(3, 1024), out.get());
  SAME(out.read(), expected);
}

TEST(producers_and_consumers_of_a_block) {
  const int rounds = 21, warps = 5;
  const auto values = randoms<int>(rounds * 32, 2, -1000, 1000);
  std::vector<int> expected(warps * 32);
  for (int warp = 1; warp <= warps; warp++) {
    for (int i = 0; i < rounds * 32; i++) {
      expected[(warp - 1) * 32 + i % 32] += values[i / 32 * 32 + (i + warp) % 32] * 3 * warp;
    }
  }
  const Device<int> in(values), out(expected.size());
  const auto producer_consumer = compiled(kShapes, "producer_consumer");
  producer_consumer(Launch(1, 32 * (warps + 1)), in.get(), out.get(), rounds);
  SAME(out.read(), expected);
}

static const char *const kBits = R"cuda(
__global__ void bits(const unsigned *in, unsigned *out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const unsigned x = in[i], y = in[(i + 1) % count];
  const unsigned long long wide = (unsigned long long)x << 32 | y;
  const unsigned results[] = {
      (unsigned)__popc(x), __brev(x), (unsigned)__clz((int)x), (unsigned)__ffs((int)x), __byte_perm(x, y, 0x2705),
      (unsigned)__popcll(wide), (unsigned)__clzll((long long)wide), (unsigned)__ffsll((long long)wide),
      (unsigned)(__brevll(wide) >> 16), __umulhi(x, y), (unsigned)__mulhi((int)x, (int)y),
      (unsigned)__umul64hi(wide, wide + 1), __funnelshift_l(x, y, y), __funnelshift_r(x, y, 7), __usad(x, y, 5),
      (unsigned)__mul24((int)x, (int)y), __uhadd(x, y), (unsigned)min((int)x, (int)y), max(x, y),
      (unsigned)abs((int)(x | 1)),
  };
  for (int j = 0; j < 20; j++) out[i * 20 + j] = results[j];
}

// Votes and matches of warps, the last of which is partial.
__global__ void votes(const int *in, unsigned *out, int count) {
  const int i = threadIdx.x;
  const unsigned mask = __ballot_sync(0xffffffff, i < count);
  if (i < count) {
    const int value = in[i];
    unsigned *mine = out + i * 6;
    int equal;
    mine[0] = __any_sync(mask, value == 3);
    mine[1] = __all_sync(mask, value >= 0);
    mine[2] = __ballot_sync(mask, value & 1);
    mine[3] = __match_any_sync(mask, value);
    mine[4] = __match_all_sync(mask, value / 8, &equal);
    mine[5] = equal;
  }
}
)cuda";

TEST(operations_on_bits) {
  const std::size_t count = 700;
  auto values = randoms<unsigned>(count, 3, 0, UINT32_MAX);
  const unsigned special[] = {0, 1, 0x80000000, 0xffffffff, 0x7fffffff, 0, 0, 2};
  std::copy(std::begin(special), std::end(special), values.begin());
  std::vector<unsigned> expected;
  const auto reversed = [](std::uint64_t bits, int width) {
    std::uint64_t out = 0;
    for (int i = 0; i < width; i++) out |= (bits >> i & 1) << (width - 1 - i);
    return out;
  };
  for (std::size_t i = 0; i < count; i++) {
    const unsigned x = values[i], y = values[(i + 1) % count];
    const std::uint64_t wide = static_cast<std::uint64_t>(x) << 32 | y, low = y & 0xffffffff;
    const std::uint64_t bytes = static_cast<std::uint64_t>(y) << 32 | x, product = std::uint64_t{x} * y;
    unsigned permuted = 0;
    for (int place = 0; place < 4; place++) {
      permuted |= static_cast<unsigned>(bytes >> (8 * (0x2705 >> (4 * place) & 7)) & 255) << (8 * place);
    }
    const auto signed_product = static_cast<std::int64_t>(static_cast<std::int32_t>(x)) * static_cast<std::int32_t>(y);
    const auto low_24 = [](unsigned bits) { return std::int64_t{static_cast<std::int32_t>(bits << 8) >> 8}; };
    const auto clz = [](std::uint64_t bits) { return bits == 0 ? 64u : unsigned(__builtin_clzll(bits)); };
    // The high half of wide * (wide + 1), by halves; wide + 1 may be 0.
    const std::uint64_t other = wide + 1, a = wide >> 32, b = wide & UINT32_MAX;
    const std::uint64_t c = other >> 32, d = other & UINT32_MAX;
    const std::uint64_t middle = (b * d >> 32) + (a * d & UINT32_MAX) + (b * c & UINT32_MAX);
    const std::uint64_t high = a * c + (a * d >> 32) + (b * c >> 32) + (middle >> 32);
    const std::uint64_t funnel = static_cast<std::uint64_t>(y) << 32 | x;
    const int ix = static_cast<int>(x), iy = static_cast<int>(y), odd = static_cast<int>(x | 1);
    expected.insert(
        expected.end(),
        {unsigned(__builtin_popcount(x)), unsigned(reversed(x, 32)), clz(x) - 32, unsigned(__builtin_ffs(ix)), permuted,
         unsigned(__builtin_popcountll(wide)), clz(wide), unsigned(__builtin_ffsll(static_cast<long long>(wide))),
         unsigned(reversed(wide, 64) >> 16), unsigned(product >> 32), unsigned(signed_product >> 32), unsigned(high),
         unsigned((funnel << (y & 31)) >> 32), unsigned(funnel >> 7), (x > y ? x - y : y - x) + 5,
         unsigned(low_24(x) * low_24(y)), unsigned((std::uint64_t{x} + low) / 2), unsigned(std::min(ix, iy)),
         std::max(x, y), unsigned(odd < 0 ? -static_cast<std::int64_t>(odd) : odd)});
  }
  const Device<unsigned> in(values), out(expected.size());
  const auto bits = compiled(kBits, "bits");
  bits(Launch(blocks_for(count, 64), 64), in.get(), out.get(), static_cast<int>(count));
  SAME(out.read(), expected);
}

TEST(votes_and_matches) {
  const int count = 85;
  auto values = randoms<int>(count, 4, 0, 15);
  std::fill(values.begin() + 32, values.begin() + 64, 9);
  std::vector<unsigned> expected;
  for (int i = 0; i < count; i++) {
    const int first = i / 32 * 32, end = std::min(first + 32, count);
    unsigned any = 0, all = 1, odd = 0, same = 0, equal = 1;
    for (int j = first; j < end; j++) {
      any |= values[j] == 3 ? 1u : 0u;
      all &= values[j] >= 0 ? 1u : 0u;
      odd |= unsigned(values[j] & 1) << (j - first);
      same |= unsigned(values[j] == values[i]) << (j - first);
      equal &= unsigned(values[j] / 8 == values[first] / 8);
    }
    const unsigned mask = end - first == 32 ? UINT32_MAX : (1u << (end - first)) - 1;
    expected.insert(expected.end(), {any, all, odd, same, equal ? mask : 0, equal});
  }
  const Device<int> in(values);
  const Device<unsigned> out(expected.size());
  const auto votes = compiled(kBits, "votes");
  votes(Launch(1, 96), in.get(), out.get(), count);
  SAME(out.read(), expected);
}

static const char *const kLocks = R"cuda(
// A critical section of the leaders of blocks: reads and writes that are not atomic, between two fences.
__global__ void with_lock(int *lock, volatile long long *state, int rounds) {
  for (int round = 0; round < rounds; round++) {
    if (threadIdx.x == 0) {
      while (atomicCAS(lock, 0, 1) != 0) {
        __nanosleep(50);
      }
      __threadfence();
      const long long before = state[0];
      state[1] = state[1] + before % 7;
      state[0] = before + 1;
      __threadfence();
      atomicExch(lock, 0);
    }
    __syncthreads();
  }
}

// A multiplication that no instruction has, by compare and swap.
__device__ double atomic_multiply(double *place, double by) {
  unsigned long long *bits = reinterpret_cast<unsigned long long *>(place), before = *bits, assumed;
  do {
    assumed = before;
    before = atomicCAS(bits, assumed, __double_as_longlong(__longlong_as_double(assumed) * by));
  } while (assumed != before);
  return __longlong_as_double(before);
}

__global__ void atomics(int *ints, unsigned *words, double *product, unsigned long long *wide) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&ints[0], i);
  atomicSub(&ints[1], i);
  atomicMin(&ints[2], -i);
  atomicMax(&ints[3], i);
  atomicAnd(&words[0], ~(1u << i % 32 & 0xff00));
  atomicOr(&words[1], 1u << i % 32 & 0x00ff);
  atomicXor(&words[2], 1u << i % 31);
  atomicInc(&words[3], 6u);
  atomicDec(&words[4], 6u);
  atomicMax(wide, (unsigned long long)i << 33);
  if (i < 20) atomic_multiply(product, i % 2 ? 2.0 : 4.0);
}
)cuda";

TEST(a_lock_of_blocks) {
  const int blocks = 12, rounds = 30;
  std::int64_t sum = 0;
  for (int i = 0; i < blocks * rounds; i++) sum += i % 7;
  const Device<int> lock(1);
  const Device<std::int64_t> state(2);
  const auto with_lock = compiled(kLocks, "with_lock");
  with_lock(Launch(blocks, 64), lock.get(), state.get(), rounds);
  SAME(state.read(), (std::vector<std::int64_t>{blocks * rounds, sum}));
}

TEST(atomics_of_every_operation) {
  const int threads = 930;
  unsigned parity = 0;
  for (int i = 0; i < threads; i++) parity ^= 1u << i % 31;
  const Device<int> ints(std::vector<int>{5, 5, 5, 5});
  const Device<unsigned> words(std::vector<unsigned>{UINT32_MAX, 0, 0, 0, 0});
  const Device<double> product(std::vector<double>{1});
  const Device<std::uint64_t> wide(1);
  const auto atomics = compiled(kLocks, "atomics");
  atomics(Launch(10, 93), ints.get(), words.get(), product.get(), wide.get());
  const int sum = threads * (threads - 1) / 2;
  SAME(ints.read(), (std::vector<int>{5 + sum, 5 - sum, -929, 929}));
  // atomicInc and atomicDec count modulo 7.
  SAME(words.read(), (std::vector<unsigned>{0xffff00ff, 0xff, parity, threads % 7, (7 - threads % 7) % 7}));
  SAME(product.read(), std::vector<double>{0x1p30});
  SAME(wide.read(), std::vector<std::uint64_t>{std::uint64_t{929} << 33});
}
