// Tests of pools, of pools with an allocator of their own, and of checkpoints.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "check.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <thread>

namespace {

// An allocator that a program gives to a pool: the driver's memory, counted. Only two methods are used.
std::atomic<int> external_live{0};
std::atomic<int> external_total{0};

void* external_alloc(size_t size) {
  void* pointer = nullptr;
  if (cudaMalloc(&pointer, size) != cudaSuccess) return nullptr;
  ++external_live;
  ++external_total;
  return pointer;
}

// Forwards to the native interface what the test does not use, and counts what the pool requests.
class External final : public caching::CUDAAllocator {
 public:
  c10::DataPtr allocate(size_t) override { TORCH_CHECK(false, "unused"); }
  void* raw_alloc(size_t size) override { return external_alloc(size); }
  void* raw_alloc_with_stream(size_t size, cudaStream_t) override { return external_alloc(size); }
  void raw_delete(void* pointer) override {
    --external_live;
    EXPECT(cudaFree(pointer) == cudaSuccess);
  }
  void copy_data(void*, const void*, size_t) const override {}
  void init(int) override {}
  bool initialized() override { return true; }
  double getMemoryFraction(c10::DeviceIndex) override { return 1; }
  void setMemoryFraction(double, c10::DeviceIndex) override {}
  std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex) override { return {}; }
  void enable(bool) override {}
  bool isEnabled() const override { return true; }
  void cacheInfo(c10::DeviceIndex, size_t*) override {}
  void* getBaseAllocation(void*, size_t*) override { return nullptr; }
  void recordStream(const c10::DataPtr&, c10::cuda::CUDAStream) override {}
  caching::SnapshotInfo snapshot(c10::MempoolId_t, bool) override { return {}; }
  void beginAllocateToPool(c10::DeviceIndex, c10::MempoolId_t, std::function<bool(cudaStream_t)>) override {}
  void endAllocateToPool(c10::DeviceIndex, c10::MempoolId_t) override {}
  void releasePool(c10::DeviceIndex, c10::MempoolId_t) override {}
  caching::ShareableHandle shareIpcHandle(void*) override { return {}; }
  std::shared_ptr<void> getIpcDevPtr(std::string) override { return nullptr; }
  void recordHistory(bool, caching::CreateContextFn, size_t, caching::RecordContext, bool,
                     const std::vector<std::string>&) override {}
  void attachOutOfMemoryObserver(caching::OutOfMemoryObserver) override {}
#if TORCH_VERSION_MINOR >= 12
  void attachOomRejectionObserver(caching::OomRejectionObserver) override {}
#endif
  void attachAllocatorTraceTracker(caching::AllocatorTraceTracker) override {}
  void enablePeerAccess(c10::DeviceIndex, c10::DeviceIndex) override {}
  cudaError_t memcpyAsync(void*, int, const void*, int, size_t, cudaStream_t, bool) override { return cudaSuccess; }
  std::shared_ptr<caching::AllocatorState> getCheckpointState(c10::DeviceIndex, c10::MempoolId_t) override { return {}; }
  caching::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex, std::shared_ptr<caching::AllocatorState>) override {
    return {};
  }
  void emptyCache(c10::MempoolId_t) override {}
  caching::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  std::string name() override { return "external"; }
};

// Returns the pool that a block's segment belongs to in the snapshot.
c10::MempoolId_t pool_of(const void* pointer) {
  const auto address = reinterpret_cast<size_t>(pointer);
  for (const auto& segment : caching::snapshot().segments) {
    if (segment.address <= address && address < segment.address + segment.total_size) return segment.owner_private_pool_id;
  }
  EXPECT(!"the block is in no segment");
  return {};
}

}  // namespace

void test_pools() {
  auto* allocator = caching::get();
  const c10::MempoolId_t outer{0, 101};
  const c10::MempoolId_t inner{0, 102};
  const c10::MempoolId_t none{0, 0};

  caching::createOrIncrefPool(0, outer);
  EXPECT(caching::getPoolUseCount(0, outer) == 1 && caching::getPoolUseCount(1, outer) == 0);
  caching::beginAllocateToPool(0, outer, every_stream());
  EXPECT(caching::getPoolUseCount(0, outer) == 2);
  EXPECT(contains(message_of([&] { caching::beginAllocateToPool(0, outer, every_stream()); }), "begun already"));
  auto first = allocator->allocate(3 * kMiB);
  EXPECT(pool_of(first.get()) == outer);
  // The filter decides, not the thread: here, only requests of this thread match.
  caching::createOrIncrefPool(0, inner);
  const auto self = std::this_thread::get_id();
  caching::beginAllocateToPool(0, inner, [self](cudaStream_t) { return std::this_thread::get_id() == self; });
  auto second = allocator->allocate(3 * kMiB);
  EXPECT(pool_of(second.get()) == inner);
  std::thread([&] {
    const auto third = allocator->allocate(3 * kMiB);
    EXPECT(pool_of(third.get()) == outer);
  }).join();
  {
    // Another device has pools of its own.
    const c10::cuda::CUDAGuard guard(1);
    const auto elsewhere = allocator->allocate(3 * kMiB);
    EXPECT(pool_of(elsewhere.get()) == none);
  }
  caching::endAllocateToPool(0, inner);
  caching::releasePool(0, inner);
  caching::endAllocateToPool(0, outer);
  EXPECT(contains(message_of([&] { caching::endAllocateToPool(0, outer); }), "was not begun"));
  caching::releasePool(0, outer);
  const auto outside = allocator->allocate(3 * kMiB);
  EXPECT(pool_of(outside.get()) == none);
  // A filter that looks at the stream.
  const auto stream = c10::cuda::getStreamFromPool(false, 0);
  caching::beginAllocateToPool(0, outer, [&](cudaStream_t used) { return used == stream.stream(); });
  void* routed = allocator->raw_alloc_with_stream(kMiB, stream.stream());
  EXPECT(pool_of(routed) == outer);
  const auto unrouted = allocator->allocate(kMiB);
  EXPECT(pool_of(unrouted.get()) == none);
  allocator->raw_delete(routed);
  caching::endAllocateToPool(0, outer);
  caching::releasePool(0, outer);

  // The snapshot of one pool.
  const auto snapshot = caching::snapshot(outer);
  EXPECT(!snapshot.segments.empty());
  for (const auto& segment : snapshot.segments) EXPECT(segment.owner_private_pool_id == outer);

  // The memory of a pool in use stays; that of a released one goes with its last block.
  const auto held = [](c10::MempoolId_t id) {
    size_t bytes = 0;
    for (const auto& segment : caching::snapshot(id, false).segments) bytes += segment.total_size;
    return bytes;
  };
  first.clear();
  caching::emptyCache();
  caching::emptyCache(outer);
  EXPECT(held(outer) > 0);
  caching::releasePool(0, outer);
  EXPECT(caching::getPoolUseCount(0, outer) == 0);
  caching::emptyCache(outer);
  EXPECT(held(outer) == 0);
  EXPECT(contains(message_of([&] { caching::releasePool(0, outer); }), "no references"));
  caching::releasePool(0, inner);
  EXPECT(pool_of(second.get()) == inner);
  second.clear();
  caching::emptyCache(inner);
  EXPECT(held(inner) == 0);

  // While the requests of a capture go to a pool, which no stream's are before it begins, a pool that is released is destroyed
  // later; while others do, at once.
  for (const bool captures : {true, false}) {
    const c10::MempoolId_t early{0, captures ? 40ULL : 42ULL};
    const c10::MempoolId_t open{0, captures ? 41ULL : 43ULL};
    caching::beginAllocateToPool(0, early, every_stream());
    allocator->raw_delete(allocator->raw_alloc(kMiB));
    caching::endAllocateToPool(0, early);
    caching::beginAllocateToPool(0, open, [captures](cudaStream_t) { return !captures; });
    caching::releasePool(0, early);
    caching::emptyCache(early);
    EXPECT((held(early) > 0) == captures);
    caching::endAllocateToPool(0, open);
    EXPECT(held(early) == 0);
    caching::releasePool(0, open);
  }

  // use_on_oom: requests outside may use the pool's free memory.
  for (const bool use_on_oom : {false, true}) {
    const c10::MempoolId_t id{0, use_on_oom ? 104ULL : 103ULL};
    caching::createOrIncrefPool(0, id);
    caching::setUseOnOOM(0, id, use_on_oom);
    caching::beginAllocateToPool(0, id, every_stream());
    allocator->allocate(700 * kMiB);
    caching::endAllocateToPool(0, id);
    if (use_on_oom) {
      EXPECT(allocator->allocate(500 * kMiB).get() != nullptr);
    } else {
      message_of<c10::OutOfMemoryError>([&] { allocator->allocate(500 * kMiB); });
    }
    caching::releasePool(0, id);
    caching::releasePool(0, id);
    caching::emptyCache();
  }

  // no_split: a small request does not take a part of a large free block.
  const c10::MempoolId_t whole{0, 105};
  caching::createOrIncrefPool(0, whole);
  caching::setNoSplit(0, whole);
  caching::beginAllocateToPool(0, whole, every_stream());
  allocator->allocate(30 * kMiB);
  const auto small = allocator->allocate(3 * kMiB);
#if TORCH_VERSION_MINOR >= 13
  const auto& reserved = caching::getDeviceStats(0).reserved_bytes_by_private_pools.at(whole)[0];
  EXPECT(reserved.current >= static_cast<int64_t>(3 * kMiB) && reserved.peak >= reserved.current);
  EXPECT(reserved.current <= caching::getDeviceStats(0).reserved_bytes[0].current);
  EXPECT(caching::getDeviceStats(1).reserved_bytes_by_private_pools.count(whole) == 0);
#endif
  for (const auto& segment : caching::snapshot(whole).segments) {
    for (const auto& block : segment.blocks) EXPECT(!block.allocated || block.size >= 3 * kMiB);
  }
  plinth_memory_stats_t stats = PLINTH_MEMORY_STATS_INIT;
  OK(plinth_memory_stats(0, &stats));
  caching::endAllocateToPool(0, whole);
  caching::releasePool(0, whole);
  caching::releasePool(0, whole);
  const c10::MempoolId_t late{0, 106};
  caching::createOrIncrefPool(0, late);
  caching::beginAllocateToPool(0, late, every_stream());
  allocator->allocate(kMiB);
  EXPECT(contains(message_of([&] { caching::setNoSplit(0, late); }), "after the first allocation"));
  caching::endAllocateToPool(0, late);
  caching::releasePool(0, late);
  caching::releasePool(0, late);
  EXPECT(contains(message_of([&] { caching::setUseOnOOM(0, late, true); }), "does not exist"));
  EXPECT(contains(message_of([&] { caching::createOrIncrefPool(0, none); }), "default pool"));

  // Several threads allocate to one pool.
  const c10::MempoolId_t busy{0, 107};
  caching::beginAllocateToPool(0, busy, every_stream());
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) EXPECT(allocator->allocate(5000).get() != nullptr);
    });
  }
  for (auto& thread : threads) thread.join();
  caching::endAllocateToPool(0, busy);
  caching::releasePool(0, busy);
}

void test_external_pool() {
  auto* allocator = caching::get();
  const c10::MempoolId_t id{0, 201};
  const auto external = std::make_shared<External>();
  caching::createOrIncrefPool(0, id, external);
  caching::beginAllocateToPool(0, id, every_stream());
  auto block = allocator->allocate(5 * kMiB);
  caching::endAllocateToPool(0, id);
  EXPECT(external_live == 1 && external_total == 1);
  EXPECT(pool_of(block.get()) == id);
  const auto ordinary = allocator->allocate(5 * kMiB);
  EXPECT(external_total == 1);
  caching::releasePool(0, id);
  block.clear();
  caching::releasePool(0, id);
  caching::emptyCache(id);
  EXPECT(external_live == 0);
  EXPECT(external.use_count() == 1);
}

extern "C" const char* plinth_torch_pool(int device, uint64_t owner, uint64_t index, plinth_pool_id_t* pool);

void test_checkpoints() {
  auto* allocator = caching::get();
  const c10::MempoolId_t id{1, 0};
  plinth_pool_id_t pool{};
  EXPECT(contains(plinth_torch_pool(0, 1, 0, &pool), "Could not find pool"));
  EXPECT(contains(message_of([&] { caching::getCheckpointState(0, id); }), "Could not find pool"));
  caching::beginAllocateToPool(0, id, every_stream());
  auto kept = allocator->allocate(3 * kMiB);
  auto freed = allocator->allocate(2 * kMiB);
  OK(plinth_memset(kept.get(), 7, 3 * kMiB, nullptr));
  OK(plinth_memset(freed.get(), 9, 2 * kMiB, nullptr));
  OK(plinth_synchronize(0));
  caching::endAllocateToPool(0, id);
  void* kept_address = kept.get();
  void* freed_address = freed.get();
  EXPECT(caching::checkPoolLiveAllocations(0, id, {kept_address, freed_address}));
  EXPECT(!caching::checkPoolLiveAllocations(0, id, {kept_address}));
  const auto state = caching::getCheckpointState(0, id);
  EXPECT(plinth_torch_pool(0, 1, 0, &pool) == nullptr);
  size_t live = 0, held = 0;
  OK(plinth_mem_pool_memory(pool, 0, &live, &held));
  EXPECT(live == 5 * kMiB);

  // Afterwards one block is freed and another is made. The restore undoes both.
  freed.clear();
  caching::beginAllocateToPool(0, id, every_stream());
  auto late = allocator->allocate(4 * kMiB);
  caching::endAllocateToPool(0, id);
  void* late_address = late.get();
  auto delta = caching::setCheckpointPoolState(0, state);
  EXPECT(delta.ptrs_freed == std::vector<void*>{late_address});
  late.release_context();
  EXPECT(delta.dataptrs_allocd.size() == 1);
  EXPECT(delta.dataptrs_allocd[0].get() == freed_address);
  EXPECT(delta.dataptrs_allocd[0].get_deleter() == allocator->raw_deleter());
  EXPECT(caching::checkPoolLiveAllocations(0, id, {kept_address, freed_address}));
  // The contents are those that the memory had.
  char bytes[2] = {};
  EXPECT(cudaMemcpy(&bytes[0], kept_address, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
  EXPECT(cudaMemcpy(&bytes[1], freed_address, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
  EXPECT(bytes[0] == 7 && bytes[1] == 9);
  delta.dataptrs_allocd.clear();
  EXPECT(caching::checkPoolLiveAllocations(0, id, {kept_address}));
  // As cudagraph trees do: restore, keep the raw addresses, free by address.
  auto again = caching::setCheckpointPoolState(0, state);
  EXPECT(again.ptrs_freed.empty() && again.dataptrs_allocd.size() == 1);
  again.dataptrs_allocd[0].release_context();
  allocator->raw_delete(freed_address);
  EXPECT(contains(message_of([&] { caching::setCheckpointPoolState(1, state); }), "it is of device 0"));
  EXPECT(contains(message_of([&] { caching::setCheckpointPoolState(0, std::make_shared<caching::AllocatorState>()); }),
                  "not made by this allocator"));
  kept.clear();
  caching::releasePool(0, id);
  caching::releasePool(0, id);
  EXPECT(caching::getPoolUseCount(0, id) == 0);
}
