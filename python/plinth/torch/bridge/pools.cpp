// Pools, the requests that go to them, and their checkpoints.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "bridge.h"

#include <c10/cuda/CUDAGuard.h>

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <unordered_map>

namespace plinth_torch {
namespace {

using External = Pools::External;

// The external allocator of the pool that the thread's requests are routed to. plinth calls a pool's allocator in the
// thread of the request, and passes nothing that names the pool.
thread_local External current_external;

// The segments of external allocators, and who allocated them.
struct Segments {
  std::mutex mutex;
  std::unordered_map<void*, External> owners;
};

Segments& segments() {
  static auto* const created = new Segments;
  return *created;
}

std::string describe(c10::DeviceIndex device, c10::MempoolId_t id) {
  return "(" + std::to_string(id.first) + ", " + std::to_string(id.second) + ") of device " + std::to_string(device);
}

}  // namespace

// plinth finds these two by name. An exception of the allocator means that it has no memory.
extern "C" __attribute__((visibility("default"))) void* plinth_torch_external_alloc(size_t size, int device,
                                                                                     cudaStream_t stream) {
  try {
    const External owner = current_external;
    if (!owner) return nullptr;
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    void* pointer = owner->raw_alloc_with_stream(size, stream);
    if (pointer == nullptr) return nullptr;
    Segments& all = segments();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.owners[pointer] = owner;
    return pointer;
  } catch (const std::exception& error) {
    warn("allocating from the allocator of a pool", error);
    return nullptr;
  }
}

extern "C" __attribute__((visibility("default"))) void plinth_torch_external_free(void* pointer, size_t, int device,
                                                                                  cudaStream_t) {
  External owner;
  {
    Segments& all = segments();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.owners.find(pointer);
    if (found == all.owners.end()) return;
    owner = std::move(found->second);
    all.owners.erase(found);
  }
  try {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    owner->raw_delete(pointer);
  } catch (const std::exception& error) {
    warn("freeing to the allocator of a pool", error);
  }
}

std::shared_ptr<Pool> Pools::find(c10::DeviceIndex device, c10::MempoolId_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = pools_.find({device, id});
  return found == pools_.end() ? nullptr : found->second;
}

std::shared_ptr<Pool> Pools::add_reference(c10::DeviceIndex device, c10::MempoolId_t id, External external) {
  TORCH_CHECK(id.first != 0 || id.second != 0, "using a pool: (0, 0) is the default pool, which is always in use");
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& pool = pools_[{device, id}];
  if (!pool) {
    pool = std::make_shared<Pool>();
    pool->device = device;
    pool->id = id;
    pool->external = std::move(external);
  }
  ++pool->use_count;
  return pool;
}

plinth_pool_id_t Pools::ensure(Pool& pool) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pool.created) return pool.plinth;
  if (pool.external) {
    Dl_info self{};
    TORCH_CHECK(dladdr(reinterpret_cast<void*>(&plinth_torch_external_alloc), &self) != 0,
                "creating a pool: the path of the bridge is unknown");
    plinth_pluggable_allocator_t allocator = nullptr;
    check(plinth_pluggable_allocator_create(self.dli_fname, "plinth_torch_external_alloc", "plinth_torch_external_free",
                                            &allocator));
    const plinth_status_t status =
        plinth_mem_pool_create_with_allocator(allocator, pool.use_on_oom, pool.no_split, &pool.plinth);
    const std::string message = plinth_last_error();
    plinth_pluggable_allocator_destroy(allocator);
    TORCH_CHECK(status == PLINTH_OK, message);
  } else {
    check(plinth_mem_pool_create(pool.use_on_oom, pool.no_split, &pool.plinth));
  }
  pool.created = true;
  const std::lock_guard<std::mutex> ids(ids_mutex_);
  ids_[{pool.plinth.owner, pool.plinth.index}] = {pool.device, pool.id};
  return pool.plinth;
}

void Pools::begin(c10::DeviceIndex device, c10::MempoolId_t id, Filter filter) {
  {
    const std::shared_lock<std::shared_mutex> lock(routes_mutex_);
    for (const auto& route : routes_) {
      TORCH_CHECK(route.pool->device != device || route.pool->id != id, "beginning to allocate to pool ",
                  describe(device, id), ": this was begun already, and has not ended");
    }
  }
  const bool captures = !filter(c10::cuda::getCurrentCUDAStream(device).stream());
  auto pool = add_reference(device, id, nullptr);
  // The caller may hold the GIL, and a tracker that a destruction calls may wait for it. After this time no destruction is
  // where a capture disturbs it.
  const std::unique_lock<std::shared_timed_mutex> none(destroying_, std::chrono::milliseconds(100));
  const std::lock_guard<std::shared_mutex> lock(routes_mutex_);
  routes_.push_back({std::move(pool), std::move(filter), captures});
  count_routes();
}

void Pools::count_routes() {
  const auto captures = std::count_if(routes_.begin(), routes_.end(), [](const Route& route) { return route.captures; });
  capture_count_.store(static_cast<size_t>(captures), std::memory_order_release);
  route_count_.store(routes_.size(), std::memory_order_release);
}

void Pools::end(c10::DeviceIndex device, c10::MempoolId_t id) {
  {
    const std::lock_guard<std::shared_mutex> lock(routes_mutex_);
    const auto found = std::find_if(routes_.begin(), routes_.end(), [&](const Route& route) {
      return route.pool->device == device && route.pool->id == id;
    });
    TORCH_CHECK(found != routes_.end(), "ending to allocate to pool ", describe(device, id), ": this was not begun");
    routes_.erase(found);
    count_routes();
  }
  destroy_released();
}

void Pools::release(c10::DeviceIndex device, c10::MempoolId_t id) {
  std::shared_ptr<Pool> last;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = pools_.find({device, id});
    TORCH_CHECK(found != pools_.end(), "releasing pool ", describe(device, id), ": it has no references");
    if (--found->second->use_count > 0) return;
    last = std::move(found->second);
    pools_.erase(found);
  }
  if (!last->created) return;
  {
    const std::lock_guard<std::mutex> lock(ids_mutex_);
    released_.push_back(last->plinth);
  }
  destroy_released();
}

void Pools::destroy_released() {
  const std::shared_lock<std::shared_timed_mutex> no_begin(destroying_);
  // plinth waits for the device before it releases the memory of graphs, which would invalidate a capture.
  if (capture_count_.load(std::memory_order_acquire) != 0) return;
  std::vector<plinth_pool_id_t> released;
  {
    const std::lock_guard<std::mutex> lock(ids_mutex_);
    released.swap(released_);
  }
  for (const plinth_pool_id_t pool : released) {
    try {
      check(plinth_mem_pool_destroy(pool));
    } catch (const std::exception& error) {
      // A destructor calls this, for example that of a graph after an error of the device.
      warn("destroying a pool", error);
    }
  }
  size_t allocated = 0;
  size_t reserved = 0;
  const std::lock_guard<std::mutex> lock(ids_mutex_);
  // Ids of released pools stay for as long as they hold memory.
  for (auto entry = ids_.begin(); entry != ids_.end();) {
    const plinth_pool_id_t pool{entry->first.first, entry->first.second};
    const bool gone =
        plinth_mem_pool_memory(pool, entry->second.first, &allocated, &reserved) == PLINTH_ERROR_INVALID_HANDLE;
    entry = gone ? ids_.erase(entry) : std::next(entry);
  }
}

int Pools::use_count(c10::DeviceIndex device, c10::MempoolId_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = pools_.find({device, id});
  return found == pools_.end() ? 0 : found->second->use_count;
}

void Pools::set_use_on_oom(c10::DeviceIndex device, c10::MempoolId_t id, bool use_on_oom) {
  const auto pool = find(device, id);
  TORCH_CHECK(pool, "changing pool ", describe(device, id), ": it does not exist");
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pool->created) check(plinth_mem_pool_set_use_on_oom(pool->plinth, use_on_oom));
  pool->use_on_oom = use_on_oom;
}

void Pools::set_no_split(c10::DeviceIndex device, c10::MempoolId_t id) {
  const auto pool = find(device, id);
  TORCH_CHECK(pool, "changing pool ", describe(device, id), ": it does not exist");
  const std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!pool->created || pool->no_split, "changing pool ", describe(device, id),
              ": whether its blocks are split cannot change after the first allocation");
  pool->no_split = true;
}

plinth_pool_id_t Pools::of_torch(c10::DeviceIndex device, c10::MempoolId_t id) {
  const auto pool = find(device, id);
  TORCH_CHECK(pool, "Could not find pool of id ", describe(device, id), ": it was never used, or was released");
  return ensure(*pool);
}

c10::MempoolId_t Pools::of_plinth(plinth_pool_id_t pool) {
  const std::lock_guard<std::mutex> lock(ids_mutex_);
  const auto found = ids_.find({pool.owner, pool.index});
  if (found != ids_.end()) return found->second.second;
  // Torch counts the ids of its pools up, as plinth does, but not so far.
  constexpr uint64_t kNotOfTorch = uint64_t{1} << 63;
  return pool.owner == 0 && pool.index == 0 ? c10::MempoolId_t{0, 0} : c10::MempoolId_t{pool.owner | kNotOfTorch, pool.index};
}

std::vector<std::pair<c10::MempoolId_t, plinth_pool_id_t>> Pools::on(c10::DeviceIndex device) {
  std::vector<std::pair<c10::MempoolId_t, plinth_pool_id_t>> result;
  const std::lock_guard<std::mutex> lock(ids_mutex_);
  for (const auto& [plinth, torch] : ids_) {
    if (torch.first == device) result.push_back({torch.second, {plinth.first, plinth.second}});
  }
  return result;
}

bool Pools::is_left(c10::MempoolId_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::lock_guard<std::mutex> ids(ids_mutex_);
  return std::any_of(ids_.begin(), ids_.end(), [&](const auto& entry) {
    if (entry.second.second != id || pools_.count(entry.second) != 0) return false;
    size_t allocated = 0;
    size_t reserved = 0;
    return plinth_mem_pool_memory({entry.first.first, entry.first.second}, entry.second.first, &allocated, &reserved) ==
               PLINTH_OK &&
           reserved > 0;
  });
}

size_t Pools::allocated(c10::DeviceIndex device) {
  size_t sum = 0;
  const std::lock_guard<std::mutex> lock(ids_mutex_);
  for (const auto& [pool, torch] : ids_) {
    size_t allocated = 0;
    size_t reserved = 0;
    if (torch.first == device &&
        plinth_mem_pool_memory({pool.first, pool.second}, device, &allocated, &reserved) == PLINTH_OK) {
      sum += allocated;
    }
  }
  return sum;
}

std::shared_ptr<Pool> Pools::select_routed(c10::DeviceIndex device, cudaStream_t stream) {
  const std::shared_lock<std::shared_mutex> lock(routes_mutex_);
  for (auto route = routes_.rbegin(); route != routes_.rend(); ++route) {
    if (route->pool->device == device && route->filter(stream)) return route->pool;
  }
  return nullptr;
}

PoolRoute::PoolRoute(Pools& pools, std::shared_ptr<Pool> pool) : pool_(std::move(pool)) {
  if (!pool_) return;
  const plinth_pool_id_t id = pools.ensure(*pool_);
  previous_external_ = current_external;
  pool_->route.lock();
  if (pool_->depth++ == 0) {
    const plinth_status_t status = plinth_begin_allocate_current_thread_to_pool(pool_->device, id);
    if (status != PLINTH_OK) {
      const std::string message = plinth_last_error();
      --pool_->depth;
      pool_->route.unlock();
      TORCH_CHECK(false, message);
    }
  }
  current_external = pool_->external;
}

PoolRoute::~PoolRoute() {
  if (!pool_) return;
  current_external = std::move(previous_external_);
  if (--pool_->depth == 0) {
    plinth_end_allocate_to_pool(pool_->device, pool_->plinth);
    plinth_release_pool(pool_->device, pool_->plinth);
  }
  pool_->route.unlock();
}

void Allocator::emptyCache(c10::MempoolId_t id) {
  const CallScope call(history_, caching::RecordContext::ALL);
  // The memory of a pool in use stays, and that of a released pool is freed with its last block. What is left then waits
  // for a stream, and is freed with the rest of the cache.
  if ((id.first == 0 && id.second == 0) || pools_.is_left(id)) check(plinth_empty_cache());
}

void Allocator::beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t id,
                                    std::function<bool(cudaStream_t)> filter) {
  pools_.begin(device, id, std::move(filter));
}

void Allocator::endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t id) { pools_.end(device, id); }

void Allocator::releasePool(c10::DeviceIndex device, c10::MempoolId_t id) {
  const CallScope call(history_, caching::RecordContext::ALL);
  pools_.release(device, id);
}

int Allocator::getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t id) { return pools_.use_count(device, id); }

void Allocator::createOrIncrefPool(c10::DeviceIndex device, c10::MempoolId_t id,
                                   std::shared_ptr<caching::CUDAAllocator> allocator) {
  pools_.add_reference(device, id, std::move(allocator));
}

void Allocator::setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t id, bool use_on_oom) {
  pools_.set_use_on_oom(device, id, use_on_oom);
}

void Allocator::setNoSplit(c10::DeviceIndex device, c10::MempoolId_t id) { pools_.set_no_split(device, id); }

bool Allocator::checkPoolLiveAllocations(c10::DeviceIndex device, c10::MempoolId_t id,
                                         const std::unordered_set<void*>& expected) {
  const std::vector<void*> pointers(expected.begin(), expected.end());
  bool equal = false;
  check(plinth_pool_check_live_allocations(device, pools_.of_torch(device, id), pointers.data(), pointers.size(), &equal));
  return equal;
}

namespace {

struct Checkpoint final : caching::AllocatorState {
  ~Checkpoint() override { plinth_pool_checkpoint_destroy(handle); }
  plinth_pool_checkpoint_t handle = nullptr;
  c10::DeviceIndex device = 0;
};

}  // namespace

std::shared_ptr<caching::AllocatorState> Allocator::getCheckpointState(c10::DeviceIndex device, c10::MempoolId_t id) {
  auto state = std::make_shared<Checkpoint>();
  state->device = device;
  check(plinth_pool_checkpoint_create(device, pools_.of_torch(device, id), &state->handle));
  return state;
}

caching::CheckpointDelta Allocator::setCheckpointPoolState(c10::DeviceIndex device,
                                                           std::shared_ptr<caching::AllocatorState> state) {
  const auto checkpoint = std::dynamic_pointer_cast<Checkpoint>(state);
  TORCH_CHECK(checkpoint, "restoring a checkpoint: it was not made by this allocator");
  TORCH_CHECK(checkpoint->device == device, "restoring a checkpoint: it is of device ",
              static_cast<int>(checkpoint->device), ", not ", static_cast<int>(device));
  const CallScope call(history_, caching::RecordContext::STATE);
  struct Delta {
    caching::CheckpointDelta delta;
    c10::Device device;
  } result{{}, c10::Device(c10::DeviceType::CUDA, device)};
  const auto changed = [](void* pointer, size_t, bool allocated, void* context) {
    auto& [delta, of] = *static_cast<Delta*>(context);
    if (allocated) {
      delta.dataptrs_allocd.emplace_back(pointer, pointer, &delete_memory, of);
    } else {
      delta.ptrs_freed.push_back(pointer);
    }
  };
  check(plinth_pool_checkpoint_restore(checkpoint->handle, nullptr, 0, changed, &result));
  for (void* pointer : result.delta.ptrs_freed) {
    history_.forget(pointer);
    sharing_.on_free(pointer);
  }
  return std::move(result.delta);
}

}  // namespace plinth_torch

// Finds the pool of plinth behind a pool of torch. Returns NULL, or a message, which is valid until the thread's next call.
extern "C" __attribute__((visibility("default"))) const char* plinth_torch_pool(int device, uint64_t owner, uint64_t index,
                                                                                plinth_pool_id_t* pool) {
  static thread_local std::string failure;
  try {
    *pool = plinth_torch::instance().pool_of_torch(static_cast<c10::DeviceIndex>(device), {owner, index});
    return nullptr;
  } catch (const c10::Error& error) {
    failure = error.what_without_backtrace();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  return failure.c_str();
}
