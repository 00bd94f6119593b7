// RMM's pool and arena, for replay and allocator.
#include <sys/types.h>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

namespace {

constexpr size_t ALIGNMENT = 256;
constexpr size_t FIRST_POOL = size_t{1} << 30;

rmm::mr::cuda_memory_resource upstream;

// Created at the first allocation, and never destroyed, because the driver may be unloaded before.
auto &pool() {
  static auto *resource = new rmm::mr::pool_memory_resource(upstream, FIRST_POOL);
  return *resource;
}

auto &arena() {
  static auto *resource = new rmm::mr::arena_memory_resource(upstream);
  return *resource;
}

template <class Resource>
void *allocate(Resource &(*resource)(), ssize_t size, cudaStream_t stream) {
  try {
    return resource().allocate(rmm::cuda_stream_view{stream}, static_cast<size_t>(size), ALIGNMENT);
  } catch (...) {
    return nullptr;
  }
}

template <class Resource>
void deallocate(Resource &(*resource)(), void *pointer, ssize_t size, cudaStream_t stream) {
  resource().deallocate(rmm::cuda_stream_view{stream}, pointer, static_cast<size_t>(size), ALIGNMENT);
}

}  // namespace

extern "C" {
void *rmm_pool_alloc(ssize_t size, int, cudaStream_t stream) { return allocate(pool, size, stream); }
void rmm_pool_free(void *pointer, ssize_t size, int, cudaStream_t stream) { deallocate(pool, pointer, size, stream); }
void *rmm_arena_alloc(ssize_t size, int, cudaStream_t stream) { return allocate(arena, size, stream); }
void rmm_arena_free(void *pointer, ssize_t size, int, cudaStream_t stream) { deallocate(arena, pointer, size, stream); }
}
