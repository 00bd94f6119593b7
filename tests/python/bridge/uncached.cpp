// Tests of requests while the caching allocator is off.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "check.h"
#include "stacks.h"

#include <cuda_runtime_api.h>

namespace {

size_t free_bytes() {
  size_t bytes = 0;
  size_t total = 0;
  OK(plinth_mem_get_info(0, &bytes, &total));
  return bytes;
}

// Returns the statistics that requests and segments of a device change.
std::vector<int64_t> counters() {
  const auto stats = caching::getDeviceStats(0);
  std::vector<int64_t> result;
  for (const auto* stat : {&stats.allocation, &stats.segment, &stats.active, &stats.allocated_bytes, &stats.reserved_bytes,
                           &stats.requested_bytes}) {
    for (const auto& part : *stat) {
      result.insert(result.end(), {part.current, part.peak, part.allocated, part.freed});
    }
  }
  result.insert(result.end(), {stats.num_device_alloc, stats.num_device_free, stats.num_ooms});
  return result;
}

// Requests, uses and frees memory of the driver.
void exercise() {
  auto* allocator = caching::get();
  const auto before = counters();
  const size_t free_before = free_bytes();
  EXPECT(allocator->raw_alloc(0) == nullptr && allocator->allocate(0).get() == nullptr);
  void* raw = allocator->raw_alloc_with_stream(kMiB, nullptr);
  EXPECT(raw != nullptr && reinterpret_cast<uintptr_t>(raw) % 256 == 0);
  auto block = allocator->allocate(3 * kMiB);
  EXPECT(block.get() != nullptr && block.get_deleter() == allocator->raw_deleter());
  std::vector<char> bytes(3 * kMiB, 'u');
  EXPECT(cudaMemcpy(block.get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice) == cudaSuccess);
  const auto clone = allocator->clone(block.get(), bytes.size());
  std::vector<char> copied(bytes.size());
  EXPECT(cudaMemcpy(copied.data(), clone.get(), copied.size(), cudaMemcpyDeviceToHost) == cudaSuccess);
  EXPECT(copied == bytes);
  EXPECT(free_bytes() + 7 * kMiB <= free_before);
  EXPECT(counters() == before);
  // A free waits for all work of the device, so streams need not be recorded.
  caching::recordStream(block, c10::cuda::getStreamFromPool(false, 0));
  size_t size = 0;
  EXPECT(contains(message_of([&] { caching::getBaseAllocation(raw, &size); }), "invalid device pointer"));
  EXPECT(find(caching::snapshot(), raw) == nullptr);

  allocator->raw_delete(raw);
  EXPECT(contains(message_of([&] { allocator->raw_delete(raw); }), "invalid device pointer: "));
  block.clear();
  // Each free returns the memory to the driver.
  for (int round = 0; round < 3; ++round) EXPECT(allocator->allocate(600 * kMiB).get() != nullptr);
  const auto text = message_of<c10::OutOfMemoryError>([&] { allocator->allocate(2000 * kMiB); });
  EXPECT(contains(text, "CUDA out of memory. Tried to allocate 1.95 GiB with the caching allocator off."));
  EXPECT(counters() == before);
}

}  // namespace

void test_uncached() {
  auto* allocator = caching::get();
  caching::emptyCache();
  const auto deleter = allocator->raw_deleter();
  auto cached = allocator->allocate(5000);
  record("all", 1000);
  caching::enable(false);
  EXPECT(!caching::isEnabled() && allocator->raw_deleter() != deleter);
  const size_t empty = free_bytes();
  exercise();
  EXPECT(free_bytes() == empty);
  // The history has none of it, and pools are not used.
  for (const auto& entry : trace()) EXPECT(entry.action_ == caching::TraceEntry::SNAPSHOT);
  const c10::MempoolId_t id{0, 301};
  caching::beginAllocateToPool(0, id, every_stream());
  allocator->allocate(kMiB);
  caching::endAllocateToPool(0, id);
  EXPECT(caching::snapshot(id).segments.empty());
  caching::releasePool(0, id);
  stop();

  // Memory is freed in the way in which it was allocated, whatever holds when it is freed.
  const size_t count = allocated(0);
  cached.clear();
  EXPECT(allocated(0) == count - 5120);
  void* raw = allocator->raw_alloc(kMiB);
  auto block = allocator->allocate(kMiB);
  caching::enable(true);
  EXPECT(caching::isEnabled() && allocator->raw_deleter() == deleter);
  EXPECT(block.get_deleter() != deleter);
  allocator->raw_delete(raw);
  block.clear();
  EXPECT(free_bytes() == empty);

  const auto requested = caching::getDeviceStats(0).requested_bytes[0].allocated;
  allocator->allocate(kMiB);
  EXPECT(caching::getDeviceStats(0).requested_bytes[0].allocated == requested + static_cast<int64_t>(kMiB));
  caching::emptyCache();
}

// With PYTORCH_NO_CUDA_MEMORY_CACHING=1 the caching allocator stays off.
void test_always_uncached() {
  auto* allocator = caching::get();
  allocator->init(2);
  exercise();
  caching::enable(true);
  exercise();
  EXPECT(allocated(0) == 0);
}
