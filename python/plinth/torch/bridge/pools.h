// The pools of torch as pools of plinth.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <plinth.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace plinth_torch {

// A pool of torch on one device. The plinth pool is created when it is first needed, because setNoSplit comes after
// torch has created its pool, and plinth takes that property at creation only.
struct Pool {
  c10::DeviceIndex device = 0;
  c10::MempoolId_t id{0, 0};
  int use_count = 0;
  bool use_on_oom = false;
  bool no_split = false;
  std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator> external;
  bool created = false;
  plinth_pool_id_t plinth{0, 0};

  // Held by the thread whose requests plinth routes to the pool: plinth routes a pool for one thread at a time.
  std::recursive_mutex route;
  int depth = 0;  // of requests that the thread nests: a callback may allocate
};

// The pools of all devices, and the filters of the requests that go to them.
class Pools {
 public:
  using Filter = std::function<bool(cudaStream_t)>;
  using External = std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator>;

  // Adds a reference to a pool, which is created with an external allocator, or none, if it does not exist.
  std::shared_ptr<Pool> add_reference(c10::DeviceIndex device, c10::MempoolId_t id, External external);
  void begin(c10::DeviceIndex device, c10::MempoolId_t id, Filter filter);
  void end(c10::DeviceIndex device, c10::MempoolId_t id);
  void release(c10::DeviceIndex device, c10::MempoolId_t id);
  int use_count(c10::DeviceIndex device, c10::MempoolId_t id);
  void set_use_on_oom(c10::DeviceIndex device, c10::MempoolId_t id, bool use_on_oom);
  void set_no_split(c10::DeviceIndex device, c10::MempoolId_t id);

  // Returns the pool of plinth; throws if torch has no such pool.
  plinth_pool_id_t of_torch(c10::DeviceIndex device, c10::MempoolId_t id);
  // Returns torch's id of a pool of plinth: {0, 0} for the default pool, and one that torch has for no pool if the program made it.
  c10::MempoolId_t of_plinth(plinth_pool_id_t pool);
  // Returns the pools of a device by torch's ids, also released ones that hold memory.
  std::vector<std::pair<c10::MempoolId_t, plinth_pool_id_t>> on(c10::DeviceIndex device);
  // Returns whether a released pool still holds memory.
  bool is_left(c10::MempoolId_t id);
  // Returns the bytes that are allocated in pools on a device.
  size_t allocated(c10::DeviceIndex device);

  // Returns the pool whose filter accepts a stream, the one that was begun last; NULL for the default pool.
  std::shared_ptr<Pool> select(c10::DeviceIndex device, cudaStream_t stream) {
    return route_count_.load(std::memory_order_acquire) == 0 ? nullptr : select_routed(device, stream);
  }
  // Creates the pool of plinth, if it does not exist.
  plinth_pool_id_t ensure(Pool& pool);

 private:
  struct Route {
    std::shared_ptr<Pool> pool;
    Filter filter;
    // Whether it is of a capture. That of a CUDAGraph begins before the capture, and accepts only capturing streams.
    bool captures;
  };

  // Destroys the pools that were released, unless a graph is captured; the end of the last capture does it then.
  void destroy_released();
  // Counts the routes again, after one was added or removed.
  void count_routes();
  std::shared_ptr<Pool> select_routed(c10::DeviceIndex device, cudaStream_t stream);
  std::shared_ptr<Pool> find(c10::DeviceIndex device, c10::MempoolId_t id);

  std::mutex mutex_;
  std::map<std::pair<c10::DeviceIndex, c10::MempoolId_t>, std::shared_ptr<Pool>> pools_;
  std::shared_mutex routes_mutex_;
  std::vector<Route> routes_;
  std::atomic<size_t> route_count_{0};
  std::atomic<size_t> capture_count_{0};
  // Held shared while pools are destroyed, exclusively while requests begin to go to one.
  std::shared_timed_mutex destroying_;
  // By index of the plinth pool: torch's id, also of released pools that hold memory.
  std::mutex ids_mutex_;
  std::map<std::pair<uint64_t, uint64_t>, std::pair<c10::DeviceIndex, c10::MempoolId_t>> ids_;
  // The plinth pools that are to be destroyed.
  std::vector<plinth_pool_id_t> released_;
};

// Routes the calling thread's requests on a device to a pool during its lifetime; does nothing for NULL.
class PoolRoute {
 public:
  PoolRoute(Pools& pools, std::shared_ptr<Pool> pool);
  ~PoolRoute();
  PoolRoute(const PoolRoute&) = delete;
  PoolRoute& operator=(const PoolRoute&) = delete;

 private:
  std::shared_ptr<Pool> pool_;
  std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator> previous_external_;
};

}  // namespace plinth_torch
