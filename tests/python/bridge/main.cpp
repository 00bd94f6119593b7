// Runs the bridge's allocator inside c10's libraries, on plinth's host device: allocation, errors, statistics.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "check.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <cuda_runtime_api.h>

#include <thread>

extern "C" caching::CUDAAllocator* bridge_under_test();

namespace c10::cuda::_internal {
// No header declares this. libtorch_cuda, which is not loaded here, calls it.
C10_CUDA_API void setHasPrimaryContext(bool (*has_context)(DeviceIndex));
}  // namespace c10::cuda::_internal

namespace {

// Memory that the free-memory callback gives back.
std::vector<c10::DataPtr> spare;
int callbacks = 0;

class GiveBack final : public c10::FreeMemoryCallback {
 public:
  bool Execute() override {
    ++callbacks;
    const bool any = !spare.empty();
    spare.clear();
    return any;
  }
};

void test_allocation() {
  auto* allocator = caching::get();
  EXPECT(allocator == bridge_under_test());
  EXPECT(!allocator->initialized());
  EXPECT(contains(message_of([&] { allocator->init(7); }), "PyTorch sees 7 devices, and plinth 2"));
  allocator->init(2);
  EXPECT(allocator->initialized());
  EXPECT(caching::name() == "plinth");
  EXPECT(caching::isEnabled());

  const auto empty = allocator->allocate(0);
  EXPECT(empty.get() == nullptr && empty.device() == c10::Device(c10::kCUDA, 0));
  EXPECT(allocator->raw_alloc(0) == nullptr);

  for (int device = 0; device < 2; ++device) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    const auto before = allocated(device);
    const auto other = allocated(1 - device);
    {
      const auto block = allocator->allocate(1000);
      EXPECT(block.get() != nullptr && block.get() == block.get_context());
      EXPECT(block.device().index() == device);
      EXPECT(block.get_deleter() == allocator->raw_deleter());
      EXPECT(reinterpret_cast<uintptr_t>(block.get()) % 512 == 0);
      EXPECT(allocated(device) == before + 1024);
      EXPECT(allocated(1 - device) == other);
      plinth_pointer_attributes_t attributes = PLINTH_POINTER_ATTRIBUTES_INIT;
      OK(plinth_pointer_attributes(block.get(), &attributes));
      EXPECT(attributes.device == device && attributes.base == block.get());
    }
    EXPECT(allocated(device) == before);
  }

  // Memory belongs to the current stream: another stream does not get it back at once.
  const auto stream = c10::cuda::getStreamFromPool(false, 0);
  OK(plinth_sleep(200000000, stream.stream()));
  void* first = nullptr;
  {
    const c10::cuda::CUDAStreamGuard guard(stream);
    first = allocator->raw_alloc(4096);
    allocator->raw_delete(first);
    void* again = allocator->raw_alloc(4096);
    EXPECT(again == first);
    allocator->raw_delete(again);
  }
  void* elsewhere = allocator->raw_alloc(4096);
  EXPECT(elsewhere != first);
  allocator->raw_delete(elsewhere);
  void* there = allocator->raw_alloc_with_stream(4096, stream.stream());
  EXPECT(there == first);
  allocator->raw_delete(there);
  stream.synchronize();

  allocator->raw_delete(nullptr);
  int not_ours = 0;
  EXPECT(contains(message_of([&] { allocator->raw_delete(&not_ours); }), "invalid device pointer: "));
  EXPECT(contains(message_of<c10::OutOfMemoryError>([&] { allocator->allocate(size_t{1} << 61); }),
                  "Tried to allocate more than 1EB memory"));

  // A clone goes through allocate and copy_data.
  auto block = allocator->allocate(4096);
  std::vector<char> bytes(4096, 'x');
  EXPECT(cudaMemcpy(block.get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice) == cudaSuccess);
  const auto clone = allocator->clone(block.get(), 4096);
  std::vector<char> copied(4096);
  EXPECT(cudaMemcpy(copied.data(), clone.get(), copied.size(), cudaMemcpyDeviceToHost) == cudaSuccess);
  EXPECT(copied == bytes);
}

void test_errors() {
  auto* allocator = caching::get();
  caching::emptyCache();
  const int before = callbacks;
  // Observers cannot be detached, so they outlive this function.
  static size_t seen = 0;
  static size_t seen_total = 0;
  caching::attachOutOfMemoryObserver([](int64_t device, size_t size, size_t total, size_t) {
    EXPECT(device == 0);
    seen = size;
    seen_total = total;
    // An observer may allocate and look at the allocator.
    caching::snapshot();
  });
  // Nothing is spare: the callback runs, frees nothing, and the request fails.
  auto half = allocator->allocate(600 * kMiB);
  const auto text = message_of<c10::OutOfMemoryError>([&] { allocator->allocate(700 * kMiB); });
  EXPECT(callbacks > before);
  EXPECT(seen == 700 * kMiB && seen_total == 1024 * kMiB);
  EXPECT(contains(text, "CUDA out of memory. Tried to allocate 700.00 MiB. GPU 0 has a total capacity of 1.00 GiB of which "));
  EXPECT(contains(text, "600.00 MiB allocated by PyTorch"));
  EXPECT(contains(text, "MiB is free"));
  // The allocator still works, also for what a callback frees.
  spare.push_back(std::move(half));
  const int tried = callbacks;
  auto now = allocator->allocate(700 * kMiB);
  EXPECT(now.get() != nullptr && callbacks > tried && spare.empty());
  EXPECT(caching::getDeviceStats(0).num_ooms == 1);
  now.clear();
  caching::emptyCache();

  caching::setMemoryFraction(0.25, 0);
  EXPECT(caching::getMemoryFraction(0) == 0.25 && caching::getMemoryFraction(1) == 1);
  const auto limited = message_of<c10::OutOfMemoryError>([&] { allocator->allocate(400 * kMiB); });
  EXPECT(contains(limited, "256.00 MiB allowed"));
  EXPECT(seen_total == 256 * kMiB);
  caching::setMemoryFraction(1, 0);
  EXPECT(contains(message_of([] { caching::setMemoryFraction(2, 0); }), "PLINTH_ERROR_INVALID_VALUE"));
  EXPECT(contains(message_of([] { caching::getDeviceStats(9); }), "PLINTH_ERROR_INVALID_DEVICE"));
}

void expect_equal(const c10::CachingAllocator::StatArray& stat, const plinth_memory_stat_by_pool_t& own) {
  const plinth_memory_stat_t* parts[] = {&own.all, &own.small_pool, &own.large_pool};
  for (size_t part = 0; part < 3; ++part) {
    EXPECT(stat[part].current == parts[part]->current);
    EXPECT(stat[part].peak == parts[part]->peak);
    EXPECT(stat[part].allocated == parts[part]->allocated);
    EXPECT(stat[part].freed == parts[part]->freed);
  }
}

void test_statistics() {
  auto* allocator = caching::get();
  std::vector<c10::DataPtr> blocks;
  for (const size_t size : {size_t{100}, size_t{5000}, 3 * kMiB, 30 * kMiB}) blocks.push_back(allocator->allocate(size));
  blocks.erase(blocks.begin() + 1);
  const auto stats = caching::getDeviceStats(0);
  plinth_memory_stats_t own = PLINTH_MEMORY_STATS_INIT;
  OK(plinth_memory_stats(0, &own));
  expect_equal(stats.allocation, own.allocation);
  expect_equal(stats.segment, own.segment);
  expect_equal(stats.active, own.active);
  expect_equal(stats.allocated_bytes, own.allocated_bytes);
  expect_equal(stats.reserved_bytes, own.reserved_bytes);
  expect_equal(stats.active_bytes, own.active_bytes);
  expect_equal(stats.requested_bytes, own.requested_bytes);
  EXPECT(stats.inactive_split[0].current == own.inactive_split.all.current);
  EXPECT(stats.inactive_split_bytes[0].current == own.inactive_split_bytes.all.current);
  EXPECT(stats.num_ooms == own.num_ooms && stats.num_alloc_retries == own.num_alloc_retries);
  EXPECT(stats.num_device_alloc == own.num_device_alloc && stats.num_device_free == own.num_device_free);
  EXPECT(stats.num_sync_all_streams == own.num_sync_all_streams && stats.max_split_size == own.max_split_size);
  EXPECT(stats.allocation[0].current == 3 && stats.requested_bytes[0].current == static_cast<int64_t>(33 * kMiB + 100));

  size_t largest = 1;
  caching::cacheInfo(0, &largest);
  blocks.pop_back();
  size_t after = 1;
  caching::cacheInfo(0, &after);
  EXPECT(after >= 30 * kMiB && after >= largest);
  size_t unset = 0;
  caching::cacheInfo(0, &unset);
  EXPECT(unset >= after && unset > 500 * kMiB);

  size_t expandable = 0;
  for (const auto& size : caching::getExpandableSegmentSizes(0)) expandable += size.total_size;
  const bool fixed = std::getenv("PLINTH_ALLOC_CONF") != nullptr;
  EXPECT(fixed ? expandable == 0 : expandable == static_cast<size_t>(caching::getDeviceStats(0).reserved_bytes[0].current));

  size_t size = 0;
  void* base = caching::getBaseAllocation(blocks.back().get(), &size);
  EXPECT(base <= blocks.back().get() && static_cast<char*>(base) + size >= static_cast<char*>(blocks.back().get()) + 3 * kMiB);
  int not_ours = 0;
  EXPECT(contains(message_of([&] { caching::getBaseAllocation(&not_ours, &size); }), "invalid device pointer"));

  blocks.clear();
  EXPECT(caching::getDeviceStats(0).allocated_bytes[0].peak >= static_cast<int64_t>(33 * kMiB));
  caching::resetPeakStats(0);
  EXPECT(caching::getDeviceStats(0).allocated_bytes[0].peak == caching::getDeviceStats(0).allocated_bytes[0].current);
  EXPECT(caching::getDeviceStats(0).allocation[0].allocated > 0);
  caching::resetAccumulatedStats(0);
  EXPECT(caching::getDeviceStats(0).allocation[0].allocated == 0);
  caching::emptyCache();
  EXPECT(caching::getDeviceStats(0).reserved_bytes[0].current == 0);
  const auto info = allocator->getMemoryInfo(0);
  EXPECT(info.second == 1024 * kMiB && info.first <= info.second);
}

// A block that another stream uses is not reused until that stream has passed the free.
void test_record_stream() {
  auto* allocator = caching::get();
  const auto other = c10::cuda::getStreamFromPool(false, 0);
  auto block = allocator->allocate(2 * kMiB);
  void* address = block.get();
  OK(plinth_sleep(400000000, other.stream()));
  caching::recordStream(block, other);
  block.clear();
  EXPECT(caching::getDeviceStats(0).allocation[0].current == 0 && caching::getDeviceStats(0).active[0].current == 1);
  auto second = allocator->allocate(2 * kMiB);
  EXPECT(second.get() != address);
  other.synchronize();
  caching::emptyCache();
  EXPECT(caching::getDeviceStats(0).active[0].current == 1);
  const auto third = allocator->allocate(2 * kMiB);
  // The default stream of the other device is named by its device.
  caching::recordStream(third, c10::cuda::getDefaultCUDAStream(1));
  // Memory of others is ignored, as torch does.
  int not_ours = 0;
  const c10::DataPtr foreign(&not_ours, c10::Device(c10::kCUDA, 0));
  caching::recordStream(foreign, other);
  caching::recordStream(c10::DataPtr(), other);
}

void test_devices() {
  caching::enablePeerAccess(0, 1);
  caching::enablePeerAccess(1, 0);
  auto* allocator = caching::get();
  const auto first = allocator->allocate(4096);
  const c10::cuda::CUDAGuard guard(1);
  const auto second = allocator->allocate(4096);
  std::vector<char> bytes(4096, 'p');
  EXPECT(cudaMemcpy(first.get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice) == cudaSuccess);
  for (const bool peer : {true, false}) {
    OK(plinth_memset(second.get(), 0, 4096, nullptr));
    EXPECT(caching::memcpyAsync(second.get(), 1, first.get(), 0, 4096, nullptr, peer) == cudaSuccess);
    std::vector<char> copied(4096);
    EXPECT(cudaMemcpy(copied.data(), second.get(), 4096, cudaMemcpyDeviceToHost) == cudaSuccess);
    EXPECT(copied == bytes);
  }
  EXPECT(contains(message_of([] { caching::enablePeerAccess(0, 5); }), "PLINTH_ERROR_INVALID_DEVICE"));
}

// The profiler's view of memory.
struct Profiler final : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t size, size_t total, size_t, c10::Device device) override {
    EXPECT(device.index() == 0);
    sizes.push_back(size);
    totals.push_back(total);
  }
  void reportOutOfMemory(int64_t size, size_t, size_t, c10::Device) override { failed = size; }
  bool memoryProfilingEnabled() const override { return true; }
  std::vector<int64_t> sizes;
  std::vector<size_t> totals;
  int64_t failed = 0;
};

void test_profiler() {
  auto profiler = std::make_shared<Profiler>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, profiler);
  const size_t before = allocated(0);
  caching::get()->allocate(1000);
  EXPECT((profiler->sizes == std::vector<int64_t>{1024, -1024}));
  EXPECT((profiler->totals == std::vector<size_t>{before + 1024, before}));
  message_of<c10::OutOfMemoryError>([] { caching::get()->allocate(2000 * kMiB); });
  EXPECT(profiler->failed == static_cast<int64_t>(2000 * kMiB));
}

void test_threads() {
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([number] {
      for (int round = 0; round < 2000; ++round) {
        auto block = caching::get()->allocate(static_cast<size_t>(1 + (round * 7919 + number) % 100000));
        EXPECT(block.get() != nullptr);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace

namespace c10 {
REGISTER_FREE_MEMORY_CALLBACK("give_back", GiveBack)
}  // namespace c10

int main(int count, char** arguments) {
  caching::allocator.store(bridge_under_test());
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  if (count == 3 && std::strcmp(arguments[1], "receive") == 0) return receive_memory(std::atoi(arguments[2]));
  if (count == 2 && std::strcmp(arguments[1], "uncached") == 0) {
    test_always_uncached();
    return 0;
  }
  const std::pair<const char*, std::function<void()>> tests[] = {
      {"allocation", test_allocation},       {"statistics", test_statistics}, {"errors", test_errors},
      {"record_stream", test_record_stream}, {"devices", test_devices},       {"profiler", test_profiler},
      {"pools", test_pools},                 {"external pool", test_external_pool},
      {"checkpoints", test_checkpoints},     {"uncached", test_uncached},     {"history", test_history},
      {"history stacks", test_history_stacks},                                {"trackers", test_trackers},
      {"threads", test_threads},             {"sharing", [&] { test_sharing(arguments[0]); }},
      {"gpu_trace", test_gpu_trace},
  };
  for (const auto& [name, test] : tests) {
    test();
    std::printf("ok: %s\n", name);
    std::fflush(stdout);
  }
  for (int device = 0; device < 2; ++device) EXPECT(allocated(device) == 0);
}
