// Atomics, fences, loads and clocks of kernels on the host device, with blocks that run in parallel.
//   g++ -std=c++17 -O2 -ffp-contract=off -fno-strict-aliasing -pthread -I../../kernels/host atomic.cpp
//   ./a.out
#include "run.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <climits>
#include <cmath>

constexpr unsigned kBlocks = 64, kThreads = 96, kAll = kBlocks * kThreads;

struct alignas(16) Pair {
  unsigned long long low, high;
};
struct alignas(16) Floats {
  float4 values;
};

template <typename T> struct Integers {
  T add, subtract, least, most, all, any, odd;
};

#define FORMS(statement) \
  statement(); \
  statement(_block); \
  statement(_system);

template <typename T>
__global__ void change_integers(Integers<T> *to) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  const T value = T(at * 2654435761u);
#define CHANGE(form)                              \
  atomicMin##form(&to->least, value);             \
  atomicMax##form(&to->most, value);              \
  atomicAnd##form(&to->all, T(~(T(1) << at % 20))); \
  atomicOr##form(&to->any, T(T(1) << at % 20));   \
  atomicXor##form(&to->odd, value);
  FORMS(CHANGE)
#undef CHANGE
}

template <typename T>
static void test_integers() {
  Integers<T> to = {};
  to.all = T(-1);
  launch<&change_integers<T>>(dim3(kBlocks), dim3(kThreads), &to);
  T least = 0, most = 0, odd = 0;
  for (unsigned at = 0; at < kAll; at++) {
    const T value = T(at * 2654435761u);
    least = value < least ? value : least, most = value > most ? value : most, odd ^= value;
  }
  CHECK(to.least == least && to.most == most && to.odd == odd && to.all == T(~T(0xfffff)) && to.any == T(0xfffff));
}

struct Sums {
  int added, subtracted;
  unsigned plain, plain_subtracted, up, down;
  unsigned long long wide;
  float single;
  double twice;
  float2 two;
  float4 four;
  __half half;
  __half2 halves;
  __nv_bfloat16 brain;
  __nv_bfloat162 brains;
};

__global__ void add_all(Sums *to) {
#define CHANGE(form)                                          \
  atomicAdd##form(&to->added, -3);                            \
  atomicAdd##form(&to->plain, 5u);                            \
  atomicAdd##form(&to->wide, 1ull << 33);                     \
  atomicSub##form(&to->subtracted, -7);                       \
  atomicSub##form(&to->plain_subtracted, 2u);                 \
  atomicInc##form(&to->up, 1000u);                            \
  atomicDec##form(&to->down, 1000u);                          \
  atomicAdd##form(&to->single, 0.5f);                         \
  atomicAdd##form(&to->twice, 0.25);                          \
  atomicAdd##form(&to->two, make_float2(1.0f, 2.0f));         \
  atomicAdd##form(&to->four, make_float4(1.0f, 2.0f, 3.0f, 4.0f));
  FORMS(CHANGE)
#undef CHANGE
  if (threadIdx.x == 0) {
    atomicAdd(&to->half, __half(1.0f));
    atomicAdd(&to->halves, __half2(__half(1.0f), __half(2.0f)));
    atomicAdd(&to->brain, __nv_bfloat16(1.0f));
    atomicAdd(&to->brains, __nv_bfloat162(__nv_bfloat16(1.0f), __nv_bfloat16(2.0f)));
  }
}

static void test_sums() {
  Sums to = {};
  to.half = to.halves.x = to.halves.y = __half(0.0f);
  to.brain = to.brains.x = to.brains.y = __nv_bfloat16(0.0f);
  launch<&add_all>(dim3(kBlocks), dim3(kThreads), &to);
  const int calls = 3 * int(kAll);
  CHECK(to.added == -3 * calls && to.plain == 5u * unsigned(calls) && to.wide == (1ull << 33) * unsigned(calls));
  CHECK(to.subtracted == 7 * calls && to.plain_subtracted == 0u - 2u * unsigned(calls));
  CHECK(to.up == unsigned(calls) % 1001 && to.down == (1001 - unsigned(calls) % 1001) % 1001);
  CHECK(to.single == 0.5f * float(calls) && to.twice == 0.25 * calls);
  CHECK(to.two.x == float(calls) && to.two.y == 2.0f * float(calls));
  CHECK(to.four.x == float(calls) && to.four.y == 2.0f * float(calls));
  CHECK(to.four.z == 3.0f * float(calls) && to.four.w == 4.0f * float(calls));
  CHECK(float(to.half) == kBlocks && float(to.halves.x) == kBlocks && float(to.halves.y) == 2 * kBlocks);
  CHECK(float(to.brain) == kBlocks && float(to.brains.x) == kBlocks && float(to.brains.y) == 2 * kBlocks);
}

// What each function returns, and its corner cases, in one thread.
__global__ void check_results(unsigned *wrong) {
#define EXPECT(call, result, type, start, after)                \
  {                                                             \
    type value = start;                                         \
    const type before = call;                                   \
    if (!(before == (result)) || !(value == (after))) ++*wrong; \
  }
  EXPECT(atomicAdd(&value, 1), INT_MAX, int, INT_MAX, INT_MIN)
  EXPECT(atomicSub(&value, 1), INT_MIN, int, INT_MIN, INT_MAX)
  EXPECT(atomicMin(&value, INT_MIN), 5, int, 5, INT_MIN)
  EXPECT(atomicMax(&value, -1), -1, int, -1, -1)
  EXPECT(atomicMax(&value, -1ll), LLONG_MIN, long long, LLONG_MIN, -1)
  EXPECT(atomicMin(&value, 3ull), ULLONG_MAX, unsigned long long, ULLONG_MAX, 3)
  EXPECT(atomicInc(&value, 7u), 7u, unsigned, 7u, 0u)
  EXPECT(atomicInc(&value, 7u), 9u, unsigned, 9u, 0u)
  EXPECT(atomicInc(&value, 7u), 6u, unsigned, 6u, 7u)
  EXPECT(atomicInc(&value, 0u), 0u, unsigned, 0u, 0u)
  EXPECT(atomicDec(&value, 7u), 0u, unsigned, 0u, 7u)
  EXPECT(atomicDec(&value, 7u), 8u, unsigned, 8u, 7u)
  EXPECT(atomicDec(&value, 7u), 7u, unsigned, 7u, 6u)
  EXPECT(atomicExch(&value, 2), 1, int, 1, 2)
  EXPECT(atomicExch(&value, 2u), 2u, unsigned, 2u, 2u)
  EXPECT(atomicExch(&value, 2ull), 1ull << 40, unsigned long long, 1ull << 40, 2)
  EXPECT(atomicExch(&value, 2.5f), -0.0f, float, -0.0f, 2.5f)
  EXPECT(atomicCAS(&value, 1, 2), 1, int, 1, 2)
  EXPECT(atomicCAS(&value, 3, 2), 1, int, 1, 1)
  EXPECT(atomicCAS(&value, 1u, 2u), 1u, unsigned, 1u, 2u)
  EXPECT(atomicCAS(&value, 1ull, 2ull), 1ull, unsigned long long, 1ull, 2ull)
  EXPECT(atomicCAS(&value, (unsigned short)1, (unsigned short)2), 1, unsigned short, 1, 2)
  EXPECT(atomicAdd(&value, -1.0f), 0.5f, float, 0.5f, -0.5f)
  EXPECT(atomicAdd(&value, 1e-310), 1e-310, double, 1e-310, 2e-310)
#undef EXPECT
  float number = NAN;
  atomicAdd(&number, 1.0f);
  atomicAdd(&number, -INFINITY);
  if (!isnan(number)) ++*wrong;
  Pair pair = {1, 2};
  const Pair first = atomicCAS(&pair, Pair{1, 3}, Pair{7, 7}), second = atomicCAS(&pair, Pair{1, 2}, Pair{3, 4});
  const Pair third = atomicExch(&pair, Pair{5, 6});
  if (first.high != 2 || second.low != 1 || third.low != 3 || third.high != 4 || pair.low != 5 || pair.high != 6) {
    ++*wrong;
  }
  const Floats floats = {make_float4(1, 2, 3, 4)};
  Floats other = {make_float4(0, 0, 0, 0)};
  if (atomicExch(&other, floats).values.x != 0 || other.values.w != 4) ++*wrong;
  // Loads and stores with hints.
  double to = 0;
  __stwb(&to, __ldg(&number) != number ? 1 : 2);
  if (__ldca(&to) != 1) ++*wrong;
  __stcg(&to, 3);
  if (__ldcg(&to) + __ldcs(&to) + __ldlu(&to) + __ldcv(&to) != 12) ++*wrong;
  __stcs(&other.values, make_float4(4, 3, 2, 1));
  __stwt(&to, __ldg(&other.values).x);
  if (to != 4) ++*wrong;
  const long long start = clock64();
  const clock_t small = clock();
  while (clock64() - start < 1000000) {
  }
  if (clock() - small < 900000 || clock64() < start) ++*wrong;
  __prof_trigger(1);
  __builtin_assume(to == 4);
  __assume(true);
}

// Two halves of a pair that always agree, changed by all blocks.
__global__ void change_pairs(Pair *pair, unsigned *torn) {
  for (int turn = 0; turn < 20; turn++) {
    Pair before = {0, 0};
    for (;;) {
      const Pair found = atomicCAS(pair, before, Pair{before.low + 1, ~(before.low + 1) + 1});
      if (found.low + found.high != 0) atomicAdd(torn, 1u);
      if (found.low == before.low && found.high == before.high) break;
      before = found;
    }
  }
}

// Locks, with all functions that programs take them with, by the threads of a block and of others.
__global__ void lock(int *locks, int *counts) {
  while (atomicCAS(locks, 0, 1) != 0) {
  }
  __threadfence();
  counts[0]++;
  __threadfence();
  atomicExch(locks, 0);
  while (atomicExch(locks + 1, 1) != 0) __nanosleep(20);
  counts[1]++;
  __threadfence();
  atomicExch(locks + 1, 0);
}

// Waits of each kind, for a thread of the block that runs later.
__global__ void poll(int *flags, unsigned *sum) {
  const unsigned at = threadIdx.x, last = blockDim.x - 1;
  int *flag = flags + blockIdx.x;
  if (at == last) {
    __threadfence();
    atomicExch(flag, 1);
  } else if (at % 8 == 0) {
    while (atomicAdd(flag, 0) == 0) {
    }
  } else if (at % 8 == 1) {
    while (atomicOr(flag, 0) == 0) {
    }
  } else if (at % 8 == 2) {
    while (__ldcg(flag) == 0) {
    }
  } else if (at % 8 == 3) {
    while (*static_cast<volatile int *>(flag) == 0) __threadfence_block();
  } else if (at % 8 == 4) {
    while (atomicMax(flag, 0) == 0) {
    }
  } else if (at % 8 == 5) {
    while (__ldcv(flag) == 0) {
    }
  } else if (at % 8 == 6) {
    while (*static_cast<volatile int *>(flag) == 0) clock64();
  } else {
    while (atomicCAS(flag, 1, 1) == 0) __nanosleep(100);
  }
  atomicAdd(sum, 1u);
}

// The sum of all blocks before, where each block waits for the one before it.
__global__ void look_back(unsigned *sums, unsigned *out) {
  __shared__ unsigned before;
  if (threadIdx.x == 0) {
    unsigned found = 1;
    if (blockIdx.x != 0) {
      while ((found = *static_cast<volatile unsigned *>(sums + blockIdx.x - 1)) == 0) __threadfence();
    }
    before = found;
    __threadfence();
    atomicExch(sums + blockIdx.x, found + blockIdx.x);
  }
  __syncthreads();
  if (threadIdx.x == blockDim.x - 1) out[blockIdx.x] = before;
}

int main() {
  test_integers<int>();
  test_integers<unsigned>();
  test_integers<long long>();
  test_integers<unsigned long long>();
  test_sums();
  unsigned wrong = 0;
  launch<&check_results>(dim3(1), dim3(1), &wrong);
  CHECK(wrong == 0);

  Pair pair = {0, 0};
  unsigned torn = 0;
  launch<&change_pairs>(dim3(kBlocks), dim3(kThreads), &pair, &torn);
  CHECK(torn == 0 && pair.low == 20 * kAll && pair.low + pair.high == 0);

  int locks[2] = {}, counts[2] = {};
  launch<&lock>(dim3(kBlocks), dim3(kThreads), &locks[0], &counts[0]);
  CHECK(counts[0] == int(kAll) && counts[1] == int(kAll) && locks[0] == 0 && locks[1] == 0);

  std::vector<int> flags(kBlocks);
  unsigned sum = 0;
  launch<&poll>(dim3(kBlocks), dim3(kThreads), flags.data(), &sum);
  CHECK(sum == kAll);

  std::vector<unsigned> sums(kBlocks), out(kBlocks);
  launch<&look_back>(dim3(kBlocks), dim3(kThreads), sums.data(), out.data());
  for (unsigned at = 1; at < kBlocks; at++) CHECK(out[at] == 1 + at * (at - 1) / 2);
  return finish("atomic");
}
