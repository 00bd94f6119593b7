// What threads keep across barriers, and that the order in which they arrive does not matter.
//   g++ -std=c++17 -O2 -ffp-contract=off -fno-strict-aliasing -pthread -I../../kernels/host barrier.cpp
//   ./a.out
#include "run.h"

constexpr int kThreads = 1024;
constexpr int kRounds = 20;

// A function without calls, whose variables may lie below the stack pointer.
__device__ __noinline__ static unsigned wait_in_function(unsigned a, unsigned b) {
  const unsigned c = a * 3, d = b * 5, e = a ^ b, f = a + b;
  __syncthreads();
  return c + d + e + f;
}

// Numbers of every kind that the compiler keeps in registers, and more than it has.
__global__ void keep_values(unsigned *wrong, int rounds) {
  const unsigned thread = threadIdx.x;
  unsigned integers[20];
  double numbers[20];
  long double extended = thread + 0.25L;
  for (unsigned at = 0; at < 20; at++) {
    integers[at] = thread * 31 + at;
    numbers[at] = thread + at / 32.0;
  }
  for (int round = 0; round < rounds; round++) {
    __syncthreads();
    for (unsigned at = 0; at < 20; at++) {
      integers[at] += at;
      numbers[at] += 0.5;
    }
    extended += 1;
    __syncthreads();
  }
  bool is_right = extended == static_cast<long double>(thread) + 0.25L + rounds;
  for (unsigned at = 0; at < 20; at++) {
    is_right &= integers[at] == thread * 31 + at + unsigned(rounds) * at;
    is_right &= numbers[at] == thread + at / 32.0 + rounds * 0.5;
  }
  const unsigned other = thread + 7;
  is_right &= wait_in_function(thread, other) == thread * 3 + other * 5 + (thread ^ other) + thread + other;
  if (!is_right) atomicAdd(wrong, 1u);
}

// An array that needs more than the alignment of the stack, whose address a compiler keeps in a register of its own.
__global__ void keep_aligned(unsigned *wrong, int rounds) {
  alignas(128) unsigned values[64];
  for (unsigned at = 0; at < 64; at++) values[at] = threadIdx.x + at;
  volatile unsigned *const address = values;
  unsigned sum = 0;
  for (int round = 0; round < rounds; round++) {
    __syncthreads();
    sum += address[round];
  }
  const bool is_right = reinterpret_cast<uintptr_t>(values) % 128 == 0 &&
                        sum == unsigned(rounds) * threadIdx.x + unsigned(rounds * (rounds - 1) / 2);
  if (!is_right) atomicAdd(wrong, 1u);
}

// Each round, other threads are late, because they wait for their warp or let others run first; threads leave meanwhile.
__global__ void arrive_in_any_order(unsigned *wrong, int rounds) {
  __shared__ unsigned arrived;
  const unsigned thread = threadIdx.x, warp = thread / 32;
  if (thread == 0) arrived = 0;
  __syncthreads();
  for (int round = 0; round < rounds; round++) {
    const unsigned leaving = unsigned(round) * 32;
    if (thread < leaving) return;
    if ((warp + unsigned(round)) % 3 == 0) __syncwarp();
    if ((thread + unsigned(round)) % 7 == 0) __nanosleep(1);
    atomicAdd(&arrived, 1u);
    __syncthreads();
    if (arrived != blockDim.x - leaving) atomicAdd(wrong, 1u);
    __syncthreads();
    if (thread == blockDim.x - 1) arrived = 0;
    // Another operation of the block at a place of its own.
    if (__syncthreads_count(thread % 2) != int(blockDim.x - leaving) / 2) atomicAdd(wrong, 1u);
  }
}

// Many operations of warps without a barrier, so that threads are always ready.
__global__ void never_wait_for_all(unsigned *wrong, int rounds) {
  unsigned sum = 0;
  for (int round = 0; round < rounds * 10; round++) {
    sum += __shfl_xor_sync(0xffffffff, threadIdx.x, 1);
    if ((threadIdx.x / 32 + unsigned(round)) % 5 == 0) __nanosleep(1);
  }
  if (sum != unsigned(rounds) * 10 * (threadIdx.x ^ 1)) atomicAdd(wrong, 1u);
}

__device__ static unsigned mix(unsigned a, unsigned b, unsigned c) {
  unsigned bits = (a * 0x9e3779b1u) ^ (b * 0x85ebca77u) ^ (c * 0xc2b2ae3du);
  bits = (bits ^ (bits >> 15)) * 0x2c1b3c6du;
  return bits ^ (bits >> 13);
}

// Returns before which round a thread leaves: one of four blocks loses its threads early, one before they ever wait.
__device__ static unsigned last_round(unsigned block, unsigned thread, unsigned rounds) {
  if (block % 4 == 0) return rounds;
  if (block % 4 == 3) return 0;
  return mix(block, thread, 1) % (block % 4 == 1 ? rounds * 2 : 4);
}

// Blocks that one after the other use the same fibers, and wait in all ways or not at all, for threads that leave at any time.
__global__ void wait_in_all_ways(unsigned *wrong, unsigned *ended, unsigned rounds) {
  __shared__ unsigned values[1024];
  const unsigned block = blockIdx.x, thread = threadIdx.x, lanes = thread / 32 * 32;
  const unsigned end = last_round(block, thread, rounds);
  const auto count_alive = [&](unsigned first, unsigned last, unsigned round) {
    unsigned bits = 0, count = 0;
    for (unsigned at = first; at < last && at < blockDim.x; at++) {
      if (last_round(block, at, rounds) <= round) continue;
      count++;
      bits |= 1u << (at % 32);
    }
    return last - first == 32 ? bits : count;
  };
  unsigned errors = 0;
  for (unsigned round = 0; round < rounds; round++) {
    if (round >= end) break;
    if (mix(block, thread, round + 100) % 5 == 0) __nanosleep(1);
    switch (mix(block, 7, round) % 5) {
      case 0:
        values[thread] = thread + round;
        __syncthreads();
        for (unsigned at = thread % 8; at < blockDim.x; at += 8) {
          if (last_round(block, at, rounds) > round) errors += values[at] != at + round;
        }
        __syncthreads();
        break;
      case 1:
        errors += unsigned(__syncthreads_count(1)) != count_alive(0, blockDim.x, round);
        break;
      case 2:
        errors += __ballot_sync(0xffffffff, 1) != count_alive(lanes, lanes + 32, round);
        break;
      case 3: {
        const unsigned half = thread % 32 < 16 ? 0xffffu : 0xffff0000u;
        errors += __ballot_sync(half, 1) != (count_alive(lanes, lanes + 32, round) & half);
        break;
      }
      default:
        if (thread / 32 % 2 == 0) __syncwarp();
    }
  }
  if (errors != 0) atomicAdd(wrong, errors);
  atomicAdd(&ended[block], 1u);
}

// The threads of one half wait at one line, those of the other at another, behind a barrier at which all have waited.
__global__ void diverge() {
  for (int round = 0; round < 3; round++) __syncthreads();
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

// Both operations are in one line.
__global__ void diverge_in_line() {
  for (int round = 0; round < 3; round++) {
    if (round == 2 && threadIdx.x == 40) __syncthreads_count(1); else __syncthreads();
  }
}

static bool contains(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

int main() {
  unsigned wrong = 0;
  for (unsigned threads : {1u, 32u, 96u, 1000u, 1024u}) {
    launch<keep_values>(6, threads, &wrong, kRounds);
    launch<keep_aligned>(6, threads, &wrong, kRounds);
  }
  launch<arrive_in_any_order>(6, kThreads, &wrong, kRounds);
  launch<never_wait_for_all>(6, kThreads, &wrong, kRounds);
  for (unsigned threads : {1u, 33u, 100u, 1000u}) {
    unsigned ended[48] = {};
    launch<wait_in_all_ways>(48, threads, &wrong, &ended[0], 12u);
    for (unsigned count : ended) CHECK(count == threads);
  }
  CHECK(wrong == 0);
  for (const std::string &error : {run_kernel<diverge>(false, 1, 64), run_kernel<diverge_in_line>(false, 1, 64)}) {
    CHECK(contains(error, "thread (0, 0, 0)") && contains(error, "divergent __syncthreads: thread ("));
    if (failures) printf("%s\n", error.c_str());
  }
  return finish("barrier");
}
