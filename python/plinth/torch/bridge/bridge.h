// PyTorch's CUDA allocator on plinth: the class, and what its parts share.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#pragma once

#include "history.h"
#include "pools.h"
#include "sharing.h"
#include "version.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <plinth.h>

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace plinth_torch {

namespace caching = c10::cuda::CUDACachingAllocator;

// Throws c10::Error with plinth's message, unless the status is PLINTH_OK.
void check(plinth_status_t status);

// Warns that something failed where no exception may be thrown: in callbacks of plinth and in destructors. Does not throw,
// although Python can make exceptions of warnings.
void warn(const char* what, const std::exception& error) noexcept;

// Frees memory of the allocator: the deleter of a DataPtr. Warns instead of throwing, because destructors call it.
void delete_memory(void* pointer) noexcept;

// The same for memory that was allocated while the caching allocator was off. recordStream ignores such memory, and
// knows it by the deleter, as in torch.
void delete_uncached(void* pointer) noexcept;

// The implementation of torch's allocator interface. Every method may be called by any thread.
//
// There is one instance, which is never destroyed: tensors may be freed while the process exits.
class Allocator final : public caching::CUDAAllocator {
 public:
  // allocator.cpp
  c10::DataPtr allocate(size_t size) override;
  void* raw_alloc(size_t size) override;
  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override;
  void raw_delete(void* pointer) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* destination, const void* source, size_t count) const override;
  void init(int device_count) override;
  bool initialized() override;
  void enable(bool value) override;
  bool isEnabled() const override;
  void recordStream(const c10::DataPtr& pointer, c10::cuda::CUDAStream stream) override;
  void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override;
  std::string name() override;

  // pools.cpp: Returns the pool of plinth behind one of torch; throws if torch has no such pool.
  plinth_pool_id_t pool_of_torch(c10::DeviceIndex device, c10::MempoolId_t id) { return pools_.of_torch(device, id); }

  // statistics.cpp
  double getMemoryFraction(c10::DeviceIndex device) override;
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override;
  std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex device) override;
  void cacheInfo(c10::DeviceIndex device, size_t* largest) override;
  void* getBaseAllocation(void* pointer, size_t* size) override;
  caching::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;

  // pools.cpp
  void emptyCache(c10::MempoolId_t id) override;
  void beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t id, std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t id) override;
  void releasePool(c10::DeviceIndex device, c10::MempoolId_t id) override;
  int getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t id) override;
  void createOrIncrefPool(c10::DeviceIndex device, c10::MempoolId_t id, std::shared_ptr<caching::CUDAAllocator> allocator)
      PLINTH_OVERRIDE_2_11;
  void setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t id, bool use_on_oom) PLINTH_OVERRIDE_2_11;
  void setNoSplit(c10::DeviceIndex device, c10::MempoolId_t id) override;
  bool checkPoolLiveAllocations(c10::DeviceIndex device, c10::MempoolId_t id, const std::unordered_set<void*>& expected)
      override;
  std::shared_ptr<caching::AllocatorState> getCheckpointState(c10::DeviceIndex device, c10::MempoolId_t id) override;
  caching::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex device, std::shared_ptr<caching::AllocatorState> state)
      override;

  // snapshot.cpp
  caching::SnapshotInfo snapshot(c10::MempoolId_t id, bool include_traces) PLINTH_OVERRIDE_2_11;

  // history.cpp
  bool isHistoryEnabled() override;
  void recordHistory(bool enabled, caching::CreateContextFn recorder, size_t max_entries, caching::RecordContext when,
                     bool clear, const std::vector<std::string>& skip_actions) PLINTH_OVERRIDE_2_11;
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& annotation) override;
  void pushCompileContext(std::string& context) override;
  void popCompileContext() override;
  void setUserMetadata(const std::string& metadata) override;
  std::string getUserMetadata() override;
  void attachAllocatorTraceTracker(caching::AllocatorTraceTracker tracker) override;

  // sharing.cpp
  caching::ShareableHandle shareIpcHandle(void* pointer) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) override;
  cudaError_t memcpyAsync(void* destination, int destination_device, const void* source, int source_device, size_t count,
                          cudaStream_t stream, bool p2p_enabled) override;

  // history.cpp
#if TORCH_VERSION_MINOR >= 12
  // The observers are of requests that torch refuses before the driver is asked, by a setting that plinth does not have.
  void attachOomRejectionObserver(caching::OomRejectionObserver) override {}
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* pointer) override;
#endif
#if TORCH_VERSION_MINOR >= 14
  bool supportsUserMetadata() override { return true; }
  void annotateMemory(const void* pointer, const std::string& metadata) override;
#endif

#ifdef PLINTH_TORCH_2_10
  void createOrIncrefPool(c10::DeviceIndex device, c10::MempoolId_t id, caching::CUDAAllocator* allocator) override {
    // The owner of the pool keeps the allocator.
    createOrIncrefPool(device, id, std::shared_ptr<caching::CUDAAllocator>(allocator, [](auto*) {}));
  }
  void setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t id) override { setUseOnOOM(device, id, true); }
  caching::SnapshotInfo snapshot(c10::MempoolId_t id) override { return snapshot(id, true); }
  void recordHistory(bool enabled, caching::CreateContextFn recorder, size_t max_entries, caching::RecordContext when,
                     bool clear) override {
    recordHistory(enabled, recorder, max_entries, when, clear, {});
  }
#endif

 private:
  void* request(size_t size, c10::DeviceIndex device, cudaStream_t stream);
  void* request_uncached(size_t size, c10::DeviceIndex device);
  [[noreturn]] void fail(size_t size, c10::DeviceIndex device, const std::string& reason);

  friend void delete_memory(void* pointer) noexcept;

  std::mutex mutex_;
  std::vector<caching::OutOfMemoryObserver> observers_;
  std::atomic<int> device_count_{-1};
  // Whether requests go to the driver, and whether the environment says so for the whole process.
  std::atomic<bool> uncached_{false};
  bool always_uncached_ = false;
  Pools pools_;
  History history_{pools_};
  Sharing sharing_;
};

// Returns the instance.
Allocator& instance();

}  // namespace plinth_torch
