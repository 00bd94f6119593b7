// CUDA C++ kernels with the rest of the library: tensors as arguments, streams, graphs, several devices, the sanitizer.
//
// timeout: 240
// alone: a_missing_wait_for_a_kernel_is_found; its reports must not have those of others
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "kernels.h"

#include <set>
#include <thread>

namespace sanitizer = plinth::sanitizer;

static const char *const kSource = R"cuda(
template <typename T>
__global__ void scale(T *data, T by, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] *= by;
}

// Each element plus its left neighbor: the barrier is between all reads and all writes of a block.
__global__ void add_neighbors(const int *in, int *out, int count) {
  __shared__ int shared[64];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  shared[threadIdx.x] = i < count ? in[i] : 0;
  __syncthreads();
  if (i < count) {
    const int left = threadIdx.x > 0 ? shared[threadIdx.x - 1] : i > 0 ? in[i - 1] : 0;
    out[i] = shared[threadIdx.x] + left;
  }
}

__device__ unsigned launches = 0;

__global__ void count_launches(unsigned *out) { *out = atomicAdd(&launches, 1u) + 1; }

__global__ void nothing() {}
)cuda";

static std::vector<int> with_neighbors(const std::vector<int> &values) {
  std::vector<int> sums(values.size());
  std::adjacent_difference(values.begin(), values.end(), sums.begin(), std::plus<int>());
  return sums;
}

TEST(tensors_are_arguments) {
  const auto scale = compiled(kSource, "scale<float>");
  plinth::Tensor<float> tensor = plinth::Tensor<float>::from_host({1, 2, 3, 4, 5});
  scale(Launch(1, 32), plinth::reads_and_writes(tensor), 2.5f, 5);
  SAME(tensor.to_host(), (std::vector<float>{2.5f, 5, 7.5f, 10, 12.5f}));
  // The kernel gets the address of the first element, behind the offset.
  DLTensor part = tensor;
  part.byte_offset = 8;
  scale(Launch(1, 32), part, -1.0f, 2);
  SAME(tensor.to_host(), (std::vector<float>{2.5f, 5, -7.5f, -10, 12.5f}));
  // No blocks' worth of elements: nothing is written.
  scale(Launch(3, 32), tensor.dl(), 9.0f, 0);
  SAME(tensor.to_host(), (std::vector<float>{2.5f, 5, -7.5f, -10, 12.5f}));
}

TEST(arguments_are_checked) {
  const auto scale = compiled(kSource, "scale<double>");
  const Device<double> data(std::vector<double>{1, 2, 3});
  if (on_host_device()) {
    // A GPU's driver reports parameters from CUDA 12.4 on; the host device always does.
    THROWS(scale(Launch(1, 32), data.get(), 2.0f, 3), PLINTH_ERROR_INVALID_VALUE);
    CHECK(caught_text().find("argument 1 has 4 bytes, and its parameter 8") != std::string::npos);
    THROWS(scale(Launch(1, 32), data.get(), 2.0), PLINTH_ERROR_INVALID_VALUE);
  }
  THROWS(scale(Launch(1, 1025), data.get(), 2.0, 3), PLINTH_ERROR_INVALID_VALUE);
  scale(Launch(1, 32), data.get(), 2.0, 3);
  SAME(data.read(), (std::vector<double>{2, 4, 6}));
  CHECK(scale.attributes().max_threads_per_block >= 512);
  CHECK(scale.occupancy(128) >= 1);
}

static const char *const kSharedSource = R"cuda(
__device__ int reversed(int value) {
  __shared__ int values[128];
  values[threadIdx.x] = value;
  __syncthreads();
  return values[blockDim.x - 1 - threadIdx.x];
}

__global__ void reverse(int *data) {
  __shared__ int tile[1024];
  extern __shared__ int dynamic[];
  tile[8 * threadIdx.x] = dynamic[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = reversed(tile[8 * threadIdx.x]) + dynamic[threadIdx.x] - data[threadIdx.x];
}

template <int N> __global__ void fill(int *data) {
  __shared__ int tile[N];
  for (int i = threadIdx.x; i < N; i += blockDim.x) tile[i] = i;
  __syncthreads();
  data[threadIdx.x] = tile[N - 1 - threadIdx.x];
}
)cuda";

TEST(static_shared_memory_counts) {
  // What another kernel of the source uses does not count, but what a function that the kernel calls uses does.
  const auto reverse = compiled(kSharedSource, "reverse");
  constexpr int kStatic = (1024 + 128) * sizeof(int), kLimit = 48 << 10;
  CHECK_EQ(reverse.attributes().shared_bytes, kStatic);
  CHECK_EQ(reverse.attributes().max_dynamic_shared_bytes, kLimit - kStatic);
  // Both together exceed the limit, which the launch raises.
  const Device<int> data(std::vector<int>{1, 2, 3, 4});
  reverse(Launch(1, 4).shared_bytes(46 << 10), data.get());
  SAME(data.read(), (std::vector<int>{4, 3, 2, 1}));
  const auto largest = compiled(kSharedSource, "fill<12288>");
  CHECK_EQ(largest.attributes().shared_bytes, kLimit);
  CHECK_EQ(largest.attributes().max_dynamic_shared_bytes, 0);
  CHECK(largest.occupancy(32) < compiled(kSharedSource, "fill<16>").occupancy(32));
  largest(Launch(1, 4), data.get());
  SAME(data.read(), (std::vector<int>{12287, 12286, 12285, 12284}));
  THROWS(compiled(kSharedSource, "fill<12289>"), PLINTH_ERROR_COMPILATION_FAILED);
  CHECK(caught_text().find("shared") != std::string::npos);
}

TEST(kernels_without_parameters) {
  const auto nothing = compiled(kSource, "nothing");
  nothing(Launch({70000, 2}, {1, 2}));
  plinth::synchronize();
}

static const char *const kWhere = R"cuda(
// Long enough for the blocks to use all multiprocessors that they may.
__global__ void where(unsigned *multiprocessor) {
  const long long begin = clock64();
  while (clock64() - begin < 200000) {
  }
  asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor[blockIdx.x]));
}
)cuda";

TEST(parts_of_a_split_run_on_multiprocessors_of_their_own) {
  if (on_host_device()) {
    SKIP("the host device has no multiprocessors");
  }
  const auto where = compiled(kWhere, "where");
  const plinth::GreenContext::Split split = plinth::GreenContext::split(32, 2, 0);
  const plinth::GreenContext *const parts[] = {&split.parts[0], &split.parts[1], &split.rest};
  constexpr std::size_t kBlocks = 4000;
  const Device<unsigned> found(3 * kBlocks);
  for (std::size_t part = 0; part < 3; part++) {
    where(Launch(kBlocks, 64).on(parts[part]->stream()), found.get() + part * kBlocks);
  }
  const std::vector<unsigned> numbers = found.read();
  std::set<unsigned> all;
  for (std::size_t part = 0; part < 3; part++) {
    const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(part * kBlocks);
    const std::set<unsigned> own(begin, begin + kBlocks);
    CHECK_EQ(own.size(), parts[part]->num_sms());
    all.insert(own.begin(), own.end());
  }
  CHECK_EQ(all.size(), split.parts[0].num_sms() + split.parts[1].num_sms() + split.rest.num_sms());
}

TEST(kernels_run_in_the_order_of_their_streams) {
  const std::size_t count = 5003;
  const auto values = randoms<int>(count, 1, -100, 100);
  const auto add_neighbors = compiled(kSource, "add_neighbors");
  const plinth::Stream first, second;
  const Device<int> a(values), b(count), c(count), d(count);
  const Launch launch(blocks_for(count, 64), 64);
  gate *const shut = gate_shut(first);
  add_neighbors(Launch(launch).on(first), a.get(), b.get(), 5003);
  add_neighbors(Launch(launch).on(first), b.get(), c.get(), 5003);
  CHECK(stays_undone(first));
  // The other stream waits for the first, which the gate blocks.
  second.wait(first);
  add_neighbors(Launch(launch).on(second), c.get(), d.get(), 5003);
  gate_open(shut);
  second.synchronize();
  SAME(d.read(), with_neighbors(with_neighbors(with_neighbors(values))));
}

TEST(threads_of_the_program_launch_one_kernel) {
  const auto scale = compiled(kSource, "scale<int>");
  const std::size_t count = 2000;
  std::vector<std::thread> threads;
  for (int number = 0; number < 6; number++) {
    threads.emplace_back([&, number] {
      const plinth::Stream stream;
      const plinth::StreamGuard guard(stream);
      const auto values = randoms<int>(count, 10 + number, -9, 9);
      auto expected = values;
      for (int &value : expected) value *= 3 * 3 * 3 * 3;
      const Device<int> data(values);
      for (int round = 0; round < 4; round++) {
        scale(Launch(blocks_for(count, 96), 96), data.get(), 3, static_cast<int>(count));
      }
      SAME(data.read(), expected);
    });
  }
  for (std::thread &thread : threads) {
    thread.join();
  }
}

TEST(a_captured_kernel_is_replayed) {
  const std::size_t count = 3001;
  const auto values = randoms<int>(count, 2, -100, 100), others = randoms<int>(count, 3, -100, 100);
  const auto add_neighbors = compiled(kSource, "add_neighbors"), scale = compiled(kSource, "scale<int>");
  const plinth::Stream stream;
  const plinth::StreamGuard guard(stream);
  const Device<int> in(values), out(count);
  plinth::Graph graph(true);
  plinth::capture(graph, [&] {
    int by = 5;
    add_neighbors(Launch(blocks_for(count, 64), 64), in.get(), out.get(), static_cast<int>(count));
    scale(Launch(blocks_for(count, 64), 64), out.get(), by, static_cast<int>(count));
    by = 7;  // the argument was copied
  });
  CHECK_EQ(plinth::nodes(graph).size(), 2);
  for (const plinth::GraphNode node : plinth::nodes(graph)) {
    const plinth_graph_kernel_t launch = plinth::node_kernel(graph, node);
    CHECK(plinth::node_type(graph, node) == plinth::GraphNodeType::kernel);
    CHECK(launch.grid[0] == blocks_for(count, 64) && launch.block[0] == 64);
  }
  SAME(out.read(), std::vector<int>(count));
  graph.instantiate();
  for (const std::vector<int> &content : {values, others}) {
    plinth::copy(in.get(), content.data(), in.bytes());
    graph.replay();
    auto expected = with_neighbors(content);
    for (int &value : expected) value *= 5;
    SAME(out.read(), expected);
  }
}

// Each device has its own module: its own variables.
TEST(a_kernel_runs_on_two_devices) {
  need_devices(2);
  const auto values = randoms<int>(777, 4, -100, 100);
  auto expected = values;
  for (int &value : expected) value *= 11;
  for (const std::int32_t device : {0, 1, 0}) {
    const plinth::DeviceGuard guard(device);
    const auto scale = compiled(kSource, "scale<int>", device);
    const Device<int> data(values, device);
    scale(Launch(blocks_for(777, 128), 128), data.get(), 11, 777);
    SAME(data.read(), expected);
  }
  const auto on_first = compiled(kSource, "count_launches", 0), on_second = compiled(kSource, "count_launches", 1);
  const Device<unsigned> first(1, 0), second(1, 1);
  for (unsigned round = 1; round <= 3; round++) {
    on_first(Launch(1, 1).on(plinth::default_stream(0)), first.get());
    SAME(first.read(), std::vector<unsigned>{round});
  }
  on_second(Launch(1, 1).on(plinth::default_stream(1)), second.get());
  SAME(second.read(), std::vector<unsigned>{1});
  const plinth::DeviceGuard guard(0);
  const plinth::Stream of_first;
  THROWS(on_second(Launch(1, 1).on(of_first), second.get()), PLINTH_ERROR_DEVICE_MISMATCH);
}

TEST(a_missing_wait_for_a_kernel_is_found) {
  const auto scale = compiled(kSource, "scale<float>");
  const auto add = compiled(kSource, "add_neighbors");
  const plinth::Stream first, second;
  Row<int> in(std::vector<int>(200, 1)), out(std::vector<int>(200, 0));
  Row<float> numbers(std::vector<float>(200, 1));
  const sanitizer::Guard guard(sanitizer::Mode::collect);
  // Two kernels in two streams that read the same memory, and write others: no race.
  scale(Launch(2, 128).on(first), plinth::reads_and_writes(numbers.tensor), 2.0f, 200);
  add(Launch(4, 64).on(second), plinth::reads(in.tensor), plinth::writes(out.tensor), 200);
  CHECK_EQ(sanitizer::count().reports, 0);
  // The first stream reads what the second may still write.
  add(Launch(4, 64).on(first), plinth::reads(out.tensor), plinth::writes(in.tensor), 200);
  CHECK(sanitizer::count().reports >= 1);
  bool found = false;
  sanitizer::each([&](const sanitizer::Report &report) {
    if (report.address == reinterpret_cast<std::uintptr_t>(out.memory.get())) {
      found = true;
      CHECK(report.kind == PLINTH_SANITIZER_RACE && report.missing == PLINTH_SANITIZER_MISSING_WAIT);
      CHECK(std::string(report.access->name).find("add_neighbors") != std::string::npos);
      CHECK(std::string(report.previous->name).find("add_neighbors") != std::string::npos);
    }
  });
  CHECK(found);
  sanitizer::clear();
  // With the wait there is none.
  second.wait(first);
  add(Launch(4, 64).on(second), plinth::reads(in.tensor), plinth::writes(out.tensor), 200);
  first.wait(second);
  scale(Launch(2, 128).on(second), plinth::reads_and_writes(numbers.tensor), 2.0f, 200);
  CHECK_EQ(sanitizer::count().reports, 0);
  plinth::synchronize();
}

// ---- Variables of modules, which the program reads and writes.

static const char *const kVariables = R"cuda(
__constant__ float weights[4];
static __constant__ int unused_here[2] = {1, 2};
__device__ int counter = 100;
namespace inner {
__device__ long long total;
}

__global__ void weigh(float *values, int count) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count) return;
  values[at] *= weights[at % 4];
  atomicAdd(&counter, 1);
  atomicAdd(reinterpret_cast<unsigned long long *>(&inner::total), 2ull);
}
)cuda";

TEST(a_program_reads_and_writes_variables) {
  const auto weigh = compiled(kVariables, "weigh");
  const auto other = compiled(std::string(kVariables) + "// another module", "weigh");
  const plinth::Symbol weights = weigh.symbol("weights"), counter = weigh.symbol("counter");
  const plinth::Symbol total = weigh.symbol("_ZN5inner5totalE");
  CHECK(weights.bytes == 4 * sizeof(float) && counter.bytes == sizeof(int) && total.bytes == sizeof(long long));
  CHECK(other.symbol("weights").address != weights.address);
  const plinth::Stream stream;
  std::vector<float> values(1000, 1), expected(1000);
  const Device<float> memory(values);
  for (const float factor : {2.0f, -3.0f}) {
    const float table[4] = {factor, factor + 1, factor + 2, factor + 3};
    const plinth::PinnedMemory pinned = plinth::pinned_malloc(sizeof table);
    std::memcpy(pinned.get(), table, sizeof table);
    CHECK_OK(plinth_memcpy(weights.address, pinned.get(), sizeof table, stream.get()));
    weigh(Launch(8, 128).on(stream), memory.get(), 1000);
    stream.synchronize();
    for (std::size_t at = 0; at < values.size(); at++) values[at] *= table[at % 4];
    SAME(memory.read(), values);
  }
  int counted = 0;
  long long summed = 0;
  plinth::copy(&counted, counter.address, sizeof counted);
  plinth::copy(&summed, total.address, sizeof summed);
  CHECK_EQ(counted, 2100);
  CHECK_EQ(summed, 4000);
  // The other module's are untouched.
  plinth::copy(&counted, other.symbol("counter").address, sizeof counted);
  CHECK_EQ(counted, 100);
  plinth_pointer_attributes_t attributes = PLINTH_POINTER_ATTRIBUTES_INIT;
  CHECK_OK(plinth_pointer_attributes(counter.address, &attributes));
  CHECK(attributes.kind == PLINTH_MEMORY_DEVICE && attributes.device == 0);
  THROWS(weigh.symbol("nothing"), PLINTH_ERROR_INVALID_VALUE);
  CHECK(caught_text().find("nothing") != std::string::npos);
}
