// Statistics, limits and questions about blocks.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "bridge.h"

#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>

namespace plinth_torch {
namespace {

c10::CachingAllocator::Stat convert(const plinth_memory_stat_t& stat) {
  c10::CachingAllocator::Stat result;
  result.current = stat.current;
  result.peak = stat.peak;
  result.allocated = stat.allocated;
  result.freed = stat.freed;
  return result;
}

c10::CachingAllocator::StatArray convert(const plinth_memory_stat_by_pool_t& stat) {
  return {convert(stat.all), convert(stat.small_pool), convert(stat.large_pool)};
}

}  // namespace

caching::DeviceStats Allocator::getDeviceStats(c10::DeviceIndex device) {
  plinth_memory_stats_t stats = PLINTH_MEMORY_STATS_INIT;
  check(plinth_memory_stats(device, &stats));
  caching::DeviceStats result;
  result.allocation = convert(stats.allocation);
  result.segment = convert(stats.segment);
  result.active = convert(stats.active);
  result.inactive_split = convert(stats.inactive_split);
  result.allocated_bytes = convert(stats.allocated_bytes);
  result.reserved_bytes = convert(stats.reserved_bytes);
  result.active_bytes = convert(stats.active_bytes);
  result.inactive_split_bytes = convert(stats.inactive_split_bytes);
  result.requested_bytes = convert(stats.requested_bytes);
  result.oversize_allocations = convert(stats.oversize_allocations);
  result.oversize_segments = convert(stats.oversize_segments);
  result.num_alloc_retries = stats.num_alloc_retries;
  result.num_ooms = stats.num_ooms;
  result.max_split_size = stats.max_split_size;
  result.num_sync_all_streams = stats.num_sync_all_streams;
  result.num_device_alloc = stats.num_device_alloc;
  result.num_device_free = stats.num_device_free;
#if TORCH_VERSION_MINOR >= 13
  for (const auto& [id, pool] : pools_.on(device)) {
    plinth_memory_stats_t of_pool = PLINTH_MEMORY_STATS_INIT;
    // A pool may end meanwhile.
    if (plinth_mem_pool_stats(pool, device, &of_pool) != PLINTH_OK) continue;
    result.reserved_bytes_by_private_pools[id] = convert(of_pool.reserved_bytes);
  }
#endif
  return result;
}

void Allocator::resetAccumulatedStats(c10::DeviceIndex device) { check(plinth_reset_accumulated_memory_stats(device)); }

void Allocator::resetPeakStats(c10::DeviceIndex device) { check(plinth_reset_peak_memory_stats(device)); }

double Allocator::getMemoryFraction(c10::DeviceIndex device) {
  double fraction = 1;
  check(plinth_get_per_process_memory_fraction(device, &fraction));
  return fraction;
}

void Allocator::setMemoryFraction(double fraction, c10::DeviceIndex device) {
  check(plinth_set_per_process_memory_fraction(fraction, device));
}

std::vector<caching::StreamSegmentSize> Allocator::getExpandableSegmentSizes(c10::DeviceIndex device) {
  struct Sizes {
    c10::DeviceIndex device;
    std::map<std::pair<uint64_t, bool>, size_t> bytes;
  } sizes{device, {}};
  const auto visit = [](const plinth_memory_segment_t* segment, const plinth_memory_block_t* block, void* context) {
    auto& found = *static_cast<Sizes*>(context);
    if (block == nullptr && segment->is_expandable && segment->device == found.device) {
      found.bytes[{segment->stream, !segment->is_large}] += segment->total_size;
    }
    return true;
  };
  check(plinth_memory_snapshot_each(visit, &sizes));
  std::vector<caching::StreamSegmentSize> result;
  for (const auto& [key, bytes] : sizes.bytes) {
    result.emplace_back(reinterpret_cast<cudaStream_t>(key.first), key.second, bytes);
  }
  return result;
}

void Allocator::cacheInfo(c10::DeviceIndex device, size_t* largest) {
  struct Largest {
    c10::DeviceIndex device;
    size_t bytes;
  } found{device, *largest};
  if (found.bytes == 0) {
    // A request without an estimate: memory that the device has free can be allocated, too.
    size_t total = 0;
    check(plinth_mem_get_info(device, &found.bytes, &total));
  }
  const auto visit = [](const plinth_memory_segment_t* segment, const plinth_memory_block_t* block, void* context) {
    auto& state = *static_cast<Largest*>(context);
    if (block != nullptr && segment->device == state.device && block->state == PLINTH_BLOCK_INACTIVE) {
      state.bytes = std::max<size_t>(state.bytes, block->size);
    }
    return true;
  };
  check(plinth_memory_snapshot_each(visit, &found));
  *largest = found.bytes;
}

void* Allocator::getBaseAllocation(void* pointer, size_t* size) {
  plinth_pointer_attributes_t attributes = PLINTH_POINTER_ATTRIBUTES_INIT;
  check(plinth_pointer_attributes(pointer, &attributes));
  TORCH_CHECK(attributes.owner == PLINTH_OWNER_CACHING_ALLOCATOR && attributes.base != nullptr,
              "invalid device pointer: ", pointer, ": it is not in an allocated block");
  if (size != nullptr) *size = attributes.range_size;
  return attributes.range_base;
}

}  // namespace plinth_torch
