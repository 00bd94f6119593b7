// Wrong CUDA C++ kernels. The host device reports each with the kernel's name, the block, the thread and the line. A
// GPU would hang, return wrong numbers, or end the context.
//
// device: host
// timeout: 240
// alone: all; an error of a kernel stays with its process
// env: PLINTH_HOST_CHECKS=1
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "kernels.h"

// PLINTH_HOST_CHECKS, above, makes the compiled kernels check indices, addresses and races of shared memory. All other
// errors are found without it.
static void need_checks() {
  const char *checks = getenv("PLINTH_HOST_CHECKS");
  CHECK(checks != nullptr && std::string(checks) == "1");
}

static void expect_text(const std::string &text, const std::vector<std::string> &parts) {
  for (const std::string &part : parts) {
    if (text.find(part) == std::string::npos) {
      harness_fail(__FILE__, __LINE__, ("the message lacks \"" + part + "\": " + text).c_str());
    }
  }
}

// Compiles a source that must fail, and whose message must have the line and these parts.
static void expect_compile_error(const char *source, const char *name, const std::string &line,
                                 const std::vector<std::string> &parts) {
  THROWS(compiled(source, name), PLINTH_ERROR_COMPILATION_FAILED);
  expect_text(caught_text(), {"kernel.cu:" + line});
  expect_text(caught_text(), parts);
}

// Launches a kernel whose only parameter is an array of integers, and returns the text of the error that the next
// synchronization throws.
static std::string error_of(const char *source, const char *name, const Launch &launch, std::size_t integers = 64) {
  const auto kernel = compiled(source, name);
  const Device<int> memory(integers);
  const plinth::Stream stream;
  kernel(Launch(launch).on(stream), memory.get());
  try {
    stream.synchronize();
  } catch (const plinth::Error &error) {
    return error.what();
  }
  harness_fail(__FILE__, __LINE__, (std::string(name) + " ends without an error").c_str());
  return std::string();
}

static void expect_launch_error(const char *source, const char *name, const Launch &launch, const std::string &line,
                                const std::vector<std::string> &parts) {
  const std::string text = error_of(source, name, launch);
  expect_text(text, {name, "block", "thread", "kernel.cu:" + line});
  expect_text(text, parts);
}

// ---- Errors of the compiler. Line 1 of a source is the one behind R"cuda(.

static const char *const kMisspelt = R"cuda(
__global__ void misspelt(int *out) {
  out[0] = threadldx.x;
}
)cuda";

TEST(a_misspelt_name) { expect_compile_error(kMisspelt, "misspelt", "3", {"threadldx"}); }

static const char *const kAssembly = R"cuda(
__global__ void assembly(unsigned *out) {
  unsigned lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  out[threadIdx.x] = lane;
}
)cuda";

TEST(inline_assembly) { expect_compile_error(kAssembly, "assembly", "4", {"PTX"}); }

static const char *const kTensorCores = R"cuda(#include <mma.h>

__global__ void tensor_cores(float *out) {
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sums;
  nvcuda::wmma::fill_fragment(sums, 0.0f);
  nvcuda::wmma::store_matrix_sync(out, sums, 16, nvcuda::wmma::mem_row_major);
}
)cuda";

TEST(tensor_cores) { expect_compile_error(kTensorCores, "tensor_cores", "1", {"mma.h"}); }

static const char *const kTexture = R"cuda(
__global__ void texture(cudaTextureObject_t image, float *out) {
  out[threadIdx.x] = tex2D<float>(image, threadIdx.x + 0.5f, 0.5f);
}
)cuda";

TEST(a_fetch_of_a_texture) { expect_compile_error(kTexture, "texture", "3", {"tex2D"}); }

static const char *const kNoKernel = R"cuda(
__global__ void present(int *out) { *out = 1; }
)cuda";

TEST(a_kernel_that_the_source_lacks) {
  THROWS(compiled(kNoKernel, "absent"), PLINTH_ERROR_COMPILATION_FAILED);
  expect_text(caught_text(), {"absent"});
}

TEST(no_compiler) {
  CHECK(setenv("PLINTH_CXX", "/nowhere", 1) == 0);
  CHECK(setenv("PLINTH_USE_KERNEL_CACHE", "0", 1) == 0);
  THROWS(compiled(kNoKernel, "present"), PLINTH_ERROR_COMPILER_UNAVAILABLE);
  expect_text(caught_text(), {"PLINTH_CXX", "/nowhere"});
}

// ---- Errors of launches.

static const char *const kBarriers = R"cuda(
__global__ void two_barriers(int *out) {
  if (threadIdx.x < 16) {
    __syncthreads();
  } else {
    out[threadIdx.x] = 1;
    __syncthreads();
  }
}

__global__ void barrier_and_shuffle(int *out) {
  int value = threadIdx.x;
  if (threadIdx.x < 8) {
    value = __shfl_sync(0xffffffff, value, 0);
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = value;
}
)cuda";

TEST(threads_at_two_barriers) {
  const std::string text = error_of(kBarriers, "two_barriers", Launch(1, 64));
  // Both lines, because either may be the wrong one.
  expect_text(text, {"two_barriers", "block", "thread", "kernel.cu:4", "kernel.cu:7", "__syncthreads"});
}

// The shuffle waits for lanes at the barrier, and the barrier for lanes at the shuffle.
TEST(some_threads_wait_elsewhere) {
  const std::string text = error_of(kBarriers, "barrier_and_shuffle", Launch(1, 64));
  expect_text(text, {"barrier_and_shuffle", "block", "thread", "kernel.cu:14", "kernel.cu:16"});
}

static const char *const kMasks = R"cuda(
__global__ void not_in_mask(int *out) {
  out[threadIdx.x] = __shfl_sync(0x0000ffff, threadIdx.x, 0);
}

__global__ void not_in_mask_of_barrier(int *out) {
  if (threadIdx.x < 8) {
    __syncwarp(0x7f);
  }
  out[threadIdx.x] = 1;
}

__global__ void two_shuffles(int *out) {
  int value = threadIdx.x;
  if (threadIdx.x % 2 == 0) {
    value = __shfl_sync(0xffffffff, value, 0);
  } else {
    value = __shfl_up_sync(0xffffffff, value, 1);
  }
  out[threadIdx.x] = value;
}
)cuda";

TEST(a_lane_outside_of_its_mask) {
  expect_launch_error(kMasks, "not_in_mask", Launch(1, 32), "3", {"mask"});
}

TEST(a_lane_outside_of_the_mask_of_a_barrier) {
  expect_launch_error(kMasks, "not_in_mask_of_barrier", Launch(1, 32), "8", {"mask"});
}

TEST(lanes_of_a_mask_at_two_shuffles) {
  const std::string text = error_of(kMasks, "two_shuffles", Launch(1, 32));
  expect_text(text, {"two_shuffles", "block", "thread", "kernel.cu:16", "kernel.cu:18"});
}

static const char *const kWaits = R"cuda(
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// A whole block waits for the grid, which the launch does not make cooperative.
__global__ void waits_for_grid(int *out) {
  out[threadIdx.x] = 1;
  cg::this_grid().sync();
  out[threadIdx.x] = 2;
}

// The lanes wait for a lane that waits for the block.
__global__ void waits_for_each_other(int *out) {
  if (threadIdx.x == 0) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  out[threadIdx.x] = 1;
}

// The whole block waits at a barrier for more threads than it has.
__global__ void never_completed(int *out) {
  out[threadIdx.x] = 1;
  __barrier_sync_count(1, 96);
  out[threadIdx.x] = 2;
}
)cuda";

TEST(a_wait_for_the_grid_without_a_cooperative_launch) {
  expect_launch_error(kWaits, "waits_for_grid", Launch(2, 32), "9", {"cooperative"});
}

TEST(threads_that_wait_for_each_other) {
  const std::string text = error_of(kWaits, "waits_for_each_other", Launch(1, 32));
  expect_text(text, {"waits_for_each_other", "block", "thread", "kernel.cu:16", "kernel.cu:18"});
}

TEST(a_barrier_that_nobody_completes) {
  expect_launch_error(kWaits, "never_completed", Launch(1, 64), "26", {});
}

static const char *const kEnds = R"cuda(
__global__ void fails(int *out) {
  out[threadIdx.x] = 1;
  assert(threadIdx.x + 1 < blockDim.x && "the last thread");
}

__global__ void traps(int *out) {
  if (blockIdx.x == 1 && threadIdx.x == 5) {
    __trap();
  }
  out[threadIdx.x] = 1;
}
)cuda";

TEST(an_assertion_that_does_not_hold) {
  expect_launch_error(kEnds, "fails", Launch(1, 32), "4", {"threadIdx.x + 1 < blockDim.x", "31"});
}

TEST(a_trap) { expect_launch_error(kEnds, "traps", Launch(3, 32), "9", {"5"}); }

// ---- Errors that the checks find.

static const char *const kMemory = R"cuda(
__global__ void shared_index(int *out) {
  __shared__ int values[32];
  values[threadIdx.x + 1] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
}

__global__ void shared_race(int *out) {
  __shared__ int values[64];
  values[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = values[63 - threadIdx.x];
}

__global__ void global_index(int *out) {
  out[threadIdx.x + (1u << 30)] = 1;
}

__global__ void null_pointer(int *out) {
  int *nothing = out[0] == 0 ? nullptr : out;
  nothing[threadIdx.x] = 1;
}
)cuda";

TEST(an_index_outside_of_a_shared_array) {
  need_checks();
  expect_launch_error(kMemory, "shared_index", Launch(1, 32), "4", {"31"});
}

TEST(a_race_on_shared_memory) {
  need_checks();
  const std::string text = error_of(kMemory, "shared_race", Launch(1, 64));
  expect_text(text, {"shared_race", "block", "thread", "kernel.cu:11", "kernel.cu:12"});
}

TEST(an_address_outside_of_the_memory) {
  need_checks();
  expect_launch_error(kMemory, "global_index", Launch(1, 32), "16", {"address"});
}

TEST(an_address_of_nothing) {
  need_checks();
  expect_launch_error(kMemory, "null_pointer", Launch(1, 32), "21", {"address"});
}

static const char *const kLimits = R"cuda(
#include <cooperative_groups.h>
__global__ void large_frame(int *out) {
  int room[400000];
  for (int i = 0; i < 400000; i++) room[i] = out[i % 32] + i;
  for (int i = 0; i < 400000; i++) out[i % 32] += room[(i * 7) % 400000];
}

__global__ void divides(int *out) {
  out[threadIdx.x] = 7 / out[threadIdx.x];
}

__global__ void leaves_the_grid(int *out) {
  if (blockIdx.x == 1) return;
  cooperative_groups::this_grid().sync();
  out[threadIdx.x] = 1;
}
)cuda";

TEST(too_much_local_memory) {
  need_checks();
  expect_text(error_of(kLimits, "large_frame", Launch(1, 1)), {"large_frame", "block", "thread", "local memory"});
}

TEST(a_division_by_zero) {
  need_checks();
  expect_launch_error(kLimits, "divides", Launch(1, 32), "10", {"division by zero"});
}

TEST(a_block_that_ends_while_others_wait_for_it) {
  const std::string text = error_of(kLimits, "leaves_the_grid", Launch(3, 32).cooperative());
  expect_text(text, {"leaves_the_grid", "blocks that have ended"});
}

// ---- Kernels that are right, whose order the checks must see.

static const char *const kOrdered = R"cuda(
#include <cooperative_groups.h>
#include <cuda/barrier>

// Blocks of one processor use the same memory one after the other.
__global__ void blocks(int *out) {
  __shared__ int values[64];
  values[(threadIdx.x + blockIdx.x) % 64] = int(threadIdx.x);
  __syncthreads();
  atomicAdd(&out[threadIdx.x], values[threadIdx.x]);
}

__global__ void scans(int *out) {
  __shared__ int values[64];
  const int lane = threadIdx.x % 32;
  values[threadIdx.x] = 1;
  __syncwarp();
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = lane >= distance ? values[threadIdx.x - distance] : 0;
    __syncwarp();
    values[threadIdx.x] += other;
    __syncwarp();
  }
  out[threadIdx.x] = values[threadIdx.x];
}

__global__ void barriers(int *out) {
  __shared__ int values[64];
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  if (threadIdx.x == 0) init(&barrier, 64);
  __syncthreads();
  values[threadIdx.x] = int(threadIdx.x);
  __barrier_sync_count(1, 64);
  const int next = values[(threadIdx.x + 1) % 64];
  barrier.arrive_and_wait();
  values[threadIdx.x] = next;
  barrier.arrive_and_wait();
  out[threadIdx.x] = values[(threadIdx.x + 1) % 64];
}

// A thread asks for the active lanes while it waits for another.
__global__ void polls(int *out) {
  volatile int *flag = out;
  if (threadIdx.x == 0) {
    while (flag[32] == 0) flag[33] = int(__activemask() & 1);
  } else {
    __nanosleep(10);
    flag[32] = 1;
  }
  out[threadIdx.x] = 1;
}
)cuda";

TEST(order_of_blocks_warps_and_barriers) {
  need_checks();
  const Device<int> memory(64);
  compiled(kOrdered, "blocks")(Launch(40, 64), memory.get());
  long sum = 0;
  for (const int value : memory.read()) sum += value;
  CHECK_EQ(sum, 40 * 63 * 64 / 2);
  compiled(kOrdered, "scans")(Launch(1, 64), memory.get());
  auto expected = ascending<int>(64);
  for (int &value : expected) value = value % 32 + 1;
  SAME(memory.read(), expected);
  compiled(kOrdered, "barriers")(Launch(1, 64), memory.get());
  expected = ascending<int>(64);
  for (int &value : expected) value = (value + 2) % 64;
  SAME(memory.read(), expected);
}

TEST(a_thread_that_polls_is_not_starved) {
  const Device<int> memory(64);
  compiled(kOrdered, "polls")(Launch(1, 2), memory.get());
  CHECK_EQ(memory.read()[32], 1);
}

// An error does not hide that earlier launches are right.
static const char *const kRight = R"cuda(
__global__ void right(int *out) { out[threadIdx.x] = threadIdx.x; }
)cuda";

TEST(the_error_is_that_of_its_launch) {
  const auto right = compiled(kRight, "right");
  const Device<int> memory(32);
  right(Launch(1, 32), memory.get());
  SAME(memory.read(), ascending<int>(32));
  expect_launch_error(kEnds, "traps", Launch(3, 32), "9", {"5"});
}
