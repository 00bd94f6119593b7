// A program with kernels of its own on two streams, on the driver's stream-ordered allocator and on plinth.
//
//   nvcc -std=c++17 -arch=native -Iinclude two_streams.cu -Llib -lplinth && ./a.out
//
// A producer stream fills vectors of changing lengths; a consumer stream smooths each of them into a second one and sums
// it. The host frees a vector as soon as both kernels are enqueued, so the allocator decides when its memory may be used
// again: by plinth_record_stream, or with cudaMallocAsync by freeing in the consumer stream. Runs three times: on
// cudaMallocAsync, on plinth, and on plinth with a limit of 1.05 times the memory that was in use at the peak of the second
// run. Exit status 1 if any sum differs by a bit.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <cuda_runtime.h>
#include <plinth.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kSteps = 2000;
constexpr int kThreads = 256;
constexpr std::size_t kLongest = std::size_t{1} << 24;

#define PLINTH(call)                                                        \
  do {                                                                      \
    if ((call) != PLINTH_OK) {                                              \
      std::fprintf(stderr, "%s: %s\n", #call, plinth_last_error());         \
      std::exit(1);                                                         \
    }                                                                       \
  } while (0)

#define CUDA(call)                                                          \
  do {                                                                      \
    const cudaError_t code_ = (call);                                       \
    if (code_ != cudaSuccess) {                                             \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code_));   \
      std::exit(1);                                                         \
    }                                                                       \
  } while (0)

__global__ void produce(float *values, std::size_t count, std::uint32_t seed) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count; i += std::size_t{gridDim.x} * blockDim.x) {
    std::uint32_t bits = static_cast<std::uint32_t>(i) * 2654435761u ^ seed;
    bits ^= bits >> 15;
    bits *= 2246822519u;
    values[i] = static_cast<float>(bits >> 8) * 0x1p-24f;
  }
}

__global__ void smooth(const float *values, float *smoothed, std::size_t count) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count; i += std::size_t{gridDim.x} * blockDim.x) {
    const float before = values[i == 0 ? 0 : i - 1], after = values[i + 1 == count ? i : i + 1];
    smoothed[i] = 0.25f * before + 0.5f * values[i] + 0.25f * after;
  }
}

// One block, each thread in a fixed order: the sum has the same bits every time.
__global__ void sum(const float *values, std::size_t count, double *result) {
  __shared__ double partial[kThreads];
  double own = 0.0;
  for (std::size_t i = threadIdx.x; i < count; i += kThreads) own += values[i];
  partial[threadIdx.x] = own;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *result = partial[0];
}

// How a vector of the producer's stream is allocated, and freed while `consumer` may still read it.
struct Allocator {
  float *(*allocate)(std::size_t count, cudaStream_t stream);
  void (*release)(float *values, cudaStream_t consumer);
};

const Allocator kDriver = {
    [](std::size_t count, cudaStream_t stream) {
      void *pointer = nullptr;
      CUDA(cudaMallocAsync(&pointer, count * sizeof(float), stream));
      return static_cast<float *>(pointer);
    },
    [](float *values, cudaStream_t consumer) { CUDA(cudaFreeAsync(values, consumer)); },
};

const Allocator kPlinth = {
    [](std::size_t count, cudaStream_t stream) {
      void *pointer = nullptr;
      PLINTH(plinth_caching_allocator_alloc(count * sizeof(float), 0, stream, &pointer));
      return static_cast<float *>(pointer);
    },
    [](float *values, cudaStream_t consumer) {
      PLINTH(plinth_record_stream(values, consumer));
      PLINTH(plinth_caching_allocator_delete(values));
    },
};

// A stream of this program that plinth's functions accept.
cudaStream_t create_stream() {
  cudaStream_t stream = nullptr;
  plinth_stream_t registered = nullptr;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  PLINTH(plinth_stream_from_external(stream, 0, &registered));
  return stream;
}

std::vector<double> run(const Allocator &allocator, cudaStream_t producer, cudaStream_t consumer) {
  cudaEvent_t produced;
  CUDA(cudaEventCreateWithFlags(&produced, cudaEventDisableTiming));
  double *sums = nullptr;
  CUDA(cudaMalloc(&sums, kSteps * sizeof(double)));
  std::uint32_t chance = 12345;
  for (int step = 0; step < kSteps; step++) {
    chance = chance * 1664525u + 1013904223u;
    // Lengths of all magnitudes, from one element on.
    const std::size_t count = 1 + (kLongest >> (chance >> 28)) * ((chance >> 8) & 0xffff) / 0x10000;
    float *values = allocator.allocate(count, producer);
    produce<<<528, kThreads, 0, producer>>>(values, count, chance);
    CUDA(cudaEventRecord(produced, producer));
    CUDA(cudaStreamWaitEvent(consumer, produced, 0));
    float *smoothed = allocator.allocate(count, consumer);
    smooth<<<528, kThreads, 0, consumer>>>(values, smoothed, count);
    allocator.release(values, consumer);
    sum<<<1, kThreads, 0, consumer>>>(smoothed, count, sums + step);
    allocator.release(smoothed, consumer);
    CUDA(cudaGetLastError());
  }
  std::vector<double> result(kSteps);
  CUDA(cudaStreamSynchronize(consumer));
  CUDA(cudaMemcpy(result.data(), sums, kSteps * sizeof(double), cudaMemcpyDeviceToHost));
  CUDA(cudaFree(sums));
  CUDA(cudaEventDestroy(produced));
  return result;
}

// Prints a line; returns whether the sums are those expected.
bool judge(const char *name, const std::vector<double> &expected, const std::vector<double> &got) {
  int differing = 0;
  double total = 0.0;
  for (int step = 0; step < kSteps; step++) {
    differing += std::memcmp(&expected[step], &got[step], sizeof(double)) != 0;
    total += got[step];
  }
  std::size_t in_use = 0, held = 0;
  PLINTH(plinth_max_memory_allocated(0, &in_use));
  PLINTH(plinth_max_memory_reserved(0, &held));
  std::printf("%-34s %d sums, total %a, %d differ; at the peak %zu bytes in use, %zu held\n", name, kSteps, total, differing,
              in_use, held);
  return differing == 0;
}

}  // namespace

int main() {
  CUDA(cudaSetDevice(0));
  std::size_t free_bytes = 0, total_bytes = 0, peak = 0;
  CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  cudaStream_t producer = create_stream(), consumer = create_stream();
  const std::vector<double> expected = run(kDriver, producer, consumer);
  bool right = judge("cudaMallocAsync", expected, expected);
  right &= judge("plinth", expected, run(kPlinth, producer, consumer));
  PLINTH(plinth_max_memory_allocated(0, &peak));
  PLINTH(plinth_empty_cache());
  PLINTH(plinth_set_per_process_memory_fraction(1.05 * static_cast<double>(peak) / static_cast<double>(total_bytes), 0));
  PLINTH(plinth_reset_peak_memory_stats(0));
  right &= judge("plinth, 1.05 of its peak at most", expected, run(kPlinth, producer, consumer));
  // The cache may ask the stream of a block whether it is idle, so the streams outlive the blocks.
  PLINTH(plinth_empty_cache());
  CUDA(cudaStreamDestroy(consumer));
  CUDA(cudaStreamDestroy(producer));
  std::printf("%s\n", right ? "all sums are equal bit for bit" : "FAILED");
  return right ? 0 : 1;
}
