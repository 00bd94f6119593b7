// Operations of a warp and atomics of kernels on the host device, each against a straightforward computation.
//   g++ -std=c++17 -O2 -ffp-contract=off -fno-strict-aliasing -pthread -I../../kernels/host warp.cpp
//   ./a.out
#include "run.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <climits>
#include <cmath>

struct Bytes16 {
  unsigned words[4];
};
struct Bytes3 {
  char bytes[3];
};
struct alignas(16) Pair {
  unsigned long long low, high;
};

// What a lane brings: its number, as a value of the type.
template <typename T> T value_of(unsigned at) { return T(float(at)); }
template <> Bytes16 value_of(unsigned at) { return {{at, at + 1, at + 2, ~at}}; }
template <> Bytes3 value_of(unsigned at) { return {{char(at), char(at + 1), char(~at)}}; }
template <typename T> bool are_equal(T a, T b) { return memcmp(&a, &b, sizeof(T)) == 0; }

constexpr int kOperands = 70;  // -3 to 66
constexpr int kWidths = 6;

template <typename T>
__global__ void shuffle_all(T *out) {
  const unsigned rank = threadIdx.x + blockDim.x * threadIdx.y, threads = blockDim.x * blockDim.y;
  const T mine = value_of<T>(rank);
  for (int at = 0; at < kWidths * kOperands; at++) {
    const int width = 1 << at / kOperands, operand = at % kOperands - 3;
    T *to = out + static_cast<size_t>(at) * 4 * threads + rank;
    to[0 * threads] = __shfl_sync(0xffffffff, mine, operand, width);
    to[1 * threads] = __shfl_up_sync(0xffffffff, mine, unsigned(operand), width);
    to[2 * threads] = __shfl_down_sync(0xffffffff, mine, unsigned(operand), width);
    to[3 * threads] = __shfl_xor_sync(0xffffffff, mine, operand, width);
  }
}

// The lane that CUDA's programming guide names, for operands from 0 to 31.
static int source_of(int kind, int lane, int operand, int width) {
  const int first = lane / width * width;
  int from;
  switch (kind) {
    case 0:
      return first + ((operand % width) + width) % width;
    case 1:
      from = lane - (operand & 31);
      return from < first ? lane : from;
    case 2:
      from = lane + (operand & 31);
      return from >= first + width ? lane : from;
    default:
      from = lane ^ (operand & 31);
      return from >= first + width ? lane : from;
  }
}

template <typename T>
static void test_shuffle(dim3 block) {
  const int threads = int(block.x * block.y);
  std::vector<T> out(size_t(kWidths) * kOperands * 4 * size_t(threads));
  launch<&shuffle_all<T>>(dim3(1), block, out.data());
  for (int at = 0; at < kWidths * kOperands; at++) {
    for (int kind = 0; kind < 4; kind++) {
      for (int rank = 0; rank < threads; rank++) {
        int from = rank / 32 * 32 + source_of(kind, rank % 32, at % kOperands - 3, 1 << at / kOperands);
        if (from >= threads) from = rank;
        CHECK(are_equal(out[size_t((at * 4 + kind) * threads + rank)], value_of<T>(unsigned(from))));
      }
    }
  }
}

__global__ void promote(int *out) {
  const short small = short(-int(threadIdx.x));
  const char letter = char(threadIdx.x);
  out[threadIdx.x] = __shfl_sync(0xffffffff, small, 3) + __shfl_xor_sync(0xffffffff, letter, 1) +
                     __shfl_sync(0xffffffff, threadIdx.x == 5, 5) * 1000;
}

// Branches with their own masks, loops of different lengths, and lanes that have exited.
__global__ void diverge(unsigned *out) {
  const unsigned at = threadIdx.x;
  unsigned result;
  if (at % 2 == 0) {
    result = __ballot_sync(0x55555555, at % 4 == 0) ^ __shfl_sync(0x55555555, at, 30);
  } else {
    result = __ballot_sync(0xaaaaaaaa, at % 3 == 0) ^ __reduce_add_sync(0xaaaaaaaa, at) << 16;
  }
  __syncwarp();
  for (unsigned turn = 0; turn < at; turn++) {
    result += __reduce_add_sync(0xffffffffu << (turn + 1), 1u);
  }
  if (at < 8) {
    __syncwarp(0xff);
    result += 1000;
  } else {
    __syncwarp(0xffffff00);
  }
  out[at] = result;
  if (at >= 20 || at == 3) return;
  out[32 + at] = __ballot_sync(0xffffffff, 1);
  out[64 + at] = __shfl_down_sync(0xffffffff, at, 16);
  out[96 + at] = unsigned(__all_sync(0xffffffff, at != 3) + 2 * __any_sync(0xffffffff, at == 3) +
                          4 * __uni_sync(0xffffffff, at == 3));
  out[128 + at] = __reduce_max_sync(0xffffffff, at);
}

static void test_divergence() {
  std::vector<unsigned> out(160);
  launch<&diverge>(dim3(1), dim3(32), out.data());
  for (unsigned at = 0; at < 32; at++) {
    unsigned votes = 0, sum = 0;
    for (unsigned lane = at % 2; lane < 32; lane += 2) {
      if (at % 2 == 0 ? lane % 4 == 0 : lane % 3 == 0) votes |= 1u << lane;
      sum += lane;
    }
    unsigned expected = at % 2 == 0 ? votes ^ 30u : votes ^ sum << 16;
    for (unsigned turn = 0; turn < at; turn++) expected += 31 - turn;
    CHECK(out[at] == expected + (at < 8 ? 1000 : 0));
    const bool is_there = at < 20 && at != 3;
    CHECK(out[32 + at] == (is_there ? 0xffff7u : 0u));
    CHECK(out[64 + at] == (!is_there ? 0u : at + 16 < 20 && at != 3 ? at + 16 : at));
    CHECK(out[96 + at] == (is_there ? 1u + 4u : 0u));
    CHECK(out[128 + at] == (is_there ? 19u : 0u));
  }
}

__global__ void vote(int *out) {
  const unsigned at = threadIdx.x + threadIdx.y * blockDim.x;
  out[at * 8 + 0] = __all_sync(0xffffffff, at != 40);
  out[at * 8 + 1] = __any_sync(0xffffffff, at == 40);
  out[at * 8 + 2] = __uni_sync(0xffffffff, at == 40);
  out[at * 8 + 3] = int(__ballot_sync(0xffffffff, int(at % 5) - 1));
  if (at == 7) return;
  out[at * 8 + 4] = __syncthreads_count(at % 3 == 0);
  out[at * 8 + 5] = __syncthreads_and(at != 7) * 2 + __syncthreads_and(at != 8);
  out[at * 8 + 6] = __syncthreads_or(at == 7) * 2 + __syncthreads_or(at == 8);
}

static void test_votes() {
  std::vector<int> out(45 * 8);
  launch<&vote>(dim3(1), dim3(9, 5), out.data());
  int count = 0;
  unsigned ballots[2] = {};
  for (unsigned at = 0; at < 45; at++) {
    count += at % 3 == 0 && at != 7;
    if (at % 5 != 1) ballots[at / 32] |= 1u << at % 32;
  }
  for (unsigned at = 0; at < 45; at++) {
    const int *mine = &out[at * 8];
    CHECK(mine[0] == (at < 32) && mine[1] == (at >= 32) && mine[2] == (at < 32));
    CHECK(unsigned(mine[3]) == ballots[at / 32]);
    CHECK(at == 7 ? mine[4] == 0 : mine[4] == count && mine[5] == 2 && mine[6] == 1);
  }
}

template <typename T>
__global__ void match(const T *values, unsigned *out) {
  const unsigned at = threadIdx.x;
  int same = -1;
  out[at] = __match_any_sync(0xffffffff, values[at]);
  out[64 + at] = __match_all_sync(0xffffffff, values[at], &same);
  out[128 + at] = unsigned(same);
  if (at % 4 == 1) out[192 + at] = __match_all_sync(0x22222222, values[1], &same) + unsigned(same);
}

template <typename T>
static void test_match(const std::vector<T> &some) {
  for (unsigned threads : {32u, 45u}) {
    for (size_t kinds = 1; kinds <= some.size(); kinds++) {
      std::vector<T> values(64);
      for (unsigned at = 0; at < 64; at++) values[at] = some[(at * 7 + at / 5) % kinds];
      std::vector<unsigned> out(256);
      launch<&match<T>>(dim3(1), dim3(threads), static_cast<const T *>(values.data()), out.data());
      for (unsigned at = 0; at < threads; at++) {
        unsigned same = 0, all = 0;
        for (unsigned other = at / 32 * 32; other < threads && other / 32 == at / 32; other++) {
          all |= 1u << other % 32;
          if (are_equal(values[at], values[other])) same |= 1u << other % 32;
        }
        CHECK(out[at] == same && out[64 + at] == (same == all ? all : 0) && out[128 + at] == (same == all));
        CHECK(at % 4 != 1 || out[192 + at] == (all & 0x22222222) + 1);
      }
    }
  }
}

__global__ void reduce_all(const int *values, unsigned mask, int *out) {
  const unsigned at = threadIdx.x;
  if (!(mask >> at % 32 & 1)) return;
  const int mine = values[at];
  const unsigned plain = unsigned(mine);
  int *to = out + at * 9;
  to[0] = __reduce_add_sync(mask, mine);
  to[1] = __reduce_min_sync(mask, mine);
  to[2] = __reduce_max_sync(mask, mine);
  to[3] = int(__reduce_add_sync(mask, plain));
  to[4] = int(__reduce_min_sync(mask, plain));
  to[5] = int(__reduce_max_sync(mask, plain));
  to[6] = int(__reduce_and_sync(mask, plain));
  to[7] = int(__reduce_or_sync(mask, plain));
  to[8] = int(__reduce_xor_sync(mask, plain));
}

static void test_reductions() {
  srand(7);
  for (unsigned mask : {0xffffffffu, 0x0000ffffu, 0x80000001u, 0x00400000u, 0x5a5a1234u}) {
    std::vector<int> values(75), out(75 * 9);
    for (int &value : values) value = rand() % 5 == 0 ? (rand() % 2 ? INT_MIN : INT_MAX) : int(unsigned(rand()) * 5u);
    launch<&reduce_all>(dim3(1), dim3(75), static_cast<const int *>(values.data()), mask, out.data());
    for (unsigned at = 0; at < 75; at++) {
      if (!(mask >> at % 32 & 1)) continue;
      unsigned sum = 0, low = UINT_MAX, high = 0, all = UINT_MAX, any = 0, odd = 0;
      int least = INT_MAX, most = INT_MIN;
      for (unsigned other = at / 32 * 32; other < 75 && other / 32 == at / 32; other++) {
        if (!(mask >> other % 32 & 1)) continue;
        const unsigned value = unsigned(values[other]);
        sum += value, all &= value, any |= value, odd ^= value;
        low = std::min(low, value), high = std::max(high, value);
        least = std::min(least, int(value)), most = std::max(most, int(value));
      }
      const int expected[] = {int(sum), least, most, int(sum), int(low), int(high), int(all), int(any), int(odd)};
      CHECK(memcmp(&out[at * 9], expected, sizeof expected) == 0);
    }
  }
}

__global__ void find_active(unsigned *out) {
  const unsigned at = threadIdx.x;
  out[at] = __activemask();
  if (at % 3 == 0) {
    out[64 + at] = __activemask();
  } else {
    out[64 + at] = __activemask();
  }
  __shared__ int values[64];
  values[at] = int(at);
  __syncwarp();
  out[128 + at] = unsigned(values[at ^ 1]);
  __syncwarp();
  values[at] = -1;
  __barrier_sync(0);
  if (at < 32) __barrier_sync_count(3, 32);
  __barrier_sync(5);
  out[192 + at] = unsigned(values[63 - at]);
}

__global__ void count_bits(unsigned *wrong) {
  const unsigned masks[] = {0, 1, 0x80000000, 0xffffffff, 0x00f0f00f, 0x12345678};
  for (unsigned mask : masks) {
    for (unsigned base = 0; base < 32; base++) {
      for (int offset = -33; offset <= 33; offset++) {
        unsigned expected = 0xffffffff;
        int left = offset;
        for (int at = int(base); at >= 0 && at < 32; at += offset < 0 ? -1 : 1) {
          const bool is_set = mask >> at & 1;
          if (offset == 0 && !is_set) break;
          if (is_set && (offset == 0 || (left += offset < 0 ? 1 : -1) == 0)) {
            expected = unsigned(at);
            break;
          }
        }
        if (__fns(mask, base, offset) != expected) ++*wrong;
      }
    }
  }
}

static void test_rest() {
  std::vector<unsigned> out(256);
  launch<&find_active>(dim3(1), dim3(64), out.data());
  for (unsigned at = 0; at < 64; at++) {
    unsigned thirds = 0;
    for (unsigned lane = 0; lane < 32; lane++) {
      if (((at / 32 * 32 + lane) % 3 == 0) == (at % 3 == 0)) thirds |= 1u << lane;
    }
    CHECK(out[at] == 0xffffffff);
    CHECK(out[64 + at] == thirds);
    CHECK(out[128 + at] == (at ^ 1));
    CHECK(out[192 + at] == UINT_MAX);
  }
  unsigned wrong = 0;
  launch<&count_bits>(dim3(1), dim3(1), &wrong);
  CHECK(wrong == 0);
  int promoted[32];
  launch<&promote>(dim3(1), dim3(32), promoted);
  for (int at = 0; at < 32; at++) CHECK(promoted[at] == -3 + (at ^ 1) + 1000);
}

// Bounds of launches, at each place of a declaration and as each kind of constant.
enum { kFew = 3 };
constexpr unsigned twice(unsigned number) { return number * 2; }
template <typename T, unsigned number> struct Product {
  static constexpr unsigned value = sizeof(T) * number;
  static __global__ void __launch_bounds__(value + 1) member(int *) {}
};
__global__ void unbounded(int *) {}
__global__ void __launch_bounds__(kFew * 32, 2) of_enumerator(int *) {}
__launch_bounds__(twice(30)) __global__ void of_function(int *out) { *out = 1; }
extern "C" __global__ __launch_bounds__(1024, 1, 1) void largest(int *out);
extern "C" __global__ __launch_bounds__(1024, 1, 1) void largest(int *out) { *out = 2; }
template <int threads> __global__ void __launch_bounds__(threads) of_parameter(int *out) { *out = threads; }
template <typename T> static __global__ void __launch_bounds__(Product<T, 24>::value, 2) of_type(T *out) { *out = T(); }

static void test_bounds() {
  CHECK(plinth_host::Entry<&unbounded>::kernel("").max_threads() == 0);
  CHECK(plinth_host::Entry<&of_enumerator>::kernel("").max_threads() == 96);
  CHECK(plinth_host::Entry<&of_function>::kernel("").max_threads() == 60);
  CHECK(plinth_host::Entry<&largest>::kernel("").max_threads() == 1024);
  CHECK(plinth_host::Entry<&of_parameter<1>>::kernel("").max_threads() == 1);
  CHECK(plinth_host::Entry<&of_parameter<256>>::kernel("").max_threads() == 256);
  CHECK(plinth_host::Entry<&of_type<double>>::kernel("").max_threads() == 192);
  CHECK((plinth_host::Entry<&Product<short, 50>::member>::kernel("").max_threads()) == 101);
  int out = 0;
  launch<&of_parameter<256>>(dim3(1), dim3(256), &out);
  CHECK(out == 256);
}

__global__ void use_wrong_mask() { __ballot_sync(2u << threadIdx.x % 16, 1); }
__global__ void stop() {
  if (threadIdx.x == 3) __trap();
}
__global__ void never_arrive() {
  if (threadIdx.x < 16) {
    __shfl_sync(0xffffffff, 1, 0);
  } else {
    __shfl_up_sync(0xffffffff, 1, 1);
  }
}

static void test_errors() {
  const auto contains = [](const std::string &text, const char *part) {
    if (text.find(part) == std::string::npos) printf("%s\n", text.c_str());
    return text.find(part) != std::string::npos;
  };
  CHECK(contains(run_kernel<&use_wrong_mask>(false, dim3(1), dim3(32)), "does not include"));
  CHECK(contains(run_kernel<&stop>(false, dim3(2), dim3(32)), "__trap()"));
  CHECK(contains(run_kernel<&never_arrive>(false, dim3(1), dim3(32)), "__shfl_up_sync"));
}

int main() {
  for (dim3 block : {dim3(32), dim3(45), dim3(8, 8)}) {
    test_shuffle<int>(block);
    test_shuffle<unsigned>(block);
    test_shuffle<long>(block);
    test_shuffle<unsigned long>(block);
    test_shuffle<long long>(block);
    test_shuffle<unsigned long long>(block);
    test_shuffle<float>(block);
    test_shuffle<double>(block);
    test_shuffle<__half>(block);
    test_shuffle<__nv_bfloat16>(block);
    test_shuffle<Bytes16>(block);
    test_shuffle<Bytes3>(block);
  }
  test_divergence();
  test_votes();
  test_match<int>({1, -1, INT_MIN});
  test_match<unsigned>({0, 1, UINT_MAX});
  test_match<long>({1, 1l << 40, -1});
  test_match<unsigned long>({1, 1ul << 63});
  test_match<long long>({0, 1ll << 32, LLONG_MIN});
  test_match<unsigned long long>({0, 1ull << 32});
  test_match<float>({0.0f, -0.0f, NAN, INFINITY});
  test_match<double>({-0.0, 0.0, double(NAN), 1e-320});
  test_reductions();
  test_rest();
  test_bounds();
  test_errors();
  return finish("warp");
}
