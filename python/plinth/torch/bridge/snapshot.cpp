// Snapshots: the segments and blocks of one moment, and the history.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "bridge.h"

#include <c10/cuda/CUDAAllocatorConfig.h>

#include <map>

namespace plinth_torch {
namespace {

// Collects what plinth passes; nothing here calls back into the allocator.
struct Collected {
  Pools* pools = nullptr;
  c10::MempoolId_t wanted{0, 0};
  std::vector<caching::SegmentInfo> segments;
};

bool collect(const plinth_memory_segment_t* segment, const plinth_memory_block_t* block, void* context) {
  auto& collected = *static_cast<Collected*>(context);
  const c10::MempoolId_t id = collected.pools->of_plinth(segment->pool);
  if ((collected.wanted.first != 0 || collected.wanted.second != 0) && id != collected.wanted) return true;
  if (block == nullptr) {
    caching::SegmentInfo info;
    info.device = static_cast<c10::DeviceIndex>(segment->device);
    info.address = segment->address;
    info.total_size = segment->total_size;
    info.requested_size = segment->requested_size;
    info.allocated_size = segment->allocated_size;
    info.active_size = segment->active_size;
    info.stream = reinterpret_cast<decltype(info.stream)>(segment->stream);
    info.is_large = segment->is_large;
    info.is_expandable = segment->is_expandable;
    info.owner_private_pool_id = id;
    info.blocks.reserve(segment->block_count);
    collected.segments.push_back(std::move(info));
    return true;
  }
  auto& blocks = collected.segments.back().blocks;
  // plinth joins free neighbours when it looks for room; torch's snapshots show them as one.
  if (block->state == PLINTH_BLOCK_INACTIVE && !blocks.empty() && !blocks.back().active) {
    blocks.back().size += block->size;
    return true;
  }
  caching::BlockInfo info;
  info.size = block->size;
  info.requested_size = block->requested_size;
  info.allocated = block->state == PLINTH_BLOCK_ALLOCATED;
  info.active = block->state != PLINTH_BLOCK_INACTIVE;
  blocks.push_back(std::move(info));
  return true;
}

caching::AllocatorConfigInfo settings() {
  using Config = caching::CUDAAllocatorConfig;
  using Common = c10::CachingAllocator::AcceleratorAllocatorConfig;
  char* text = nullptr;
  check(plinth_get_allocator_settings(&text));
  const std::string own(text);
  plinth_string_free(text);
  caching::AllocatorConfigInfo config{};
  config.garbage_collection_threshold = Common::garbage_collection_threshold();
  config.max_split_size = Common::max_split_size();
  config.pinned_num_register_threads = Config::pinned_num_register_threads();
  config.expandable_segments = own.find("expandable_segments:False") == std::string::npos;
  config.release_lock_on_malloc = true;
  config.pinned_use_host_register = Config::pinned_use_cuda_host_register();
  config.graph_capture_record_stream_reuse = Config::graph_capture_record_stream_reuse();
  config.last_allocator_settings = own;
  config.roundup_power2_divisions = Common::roundup_power2_divisions();
#if TORCH_VERSION_MINOR >= 13
  config.max_round_threshold = Common::pinned_max_round_threshold();
  config.max_cached_size = Common::pinned_max_cached_size();
#endif
  return config;
}

}  // namespace

caching::SnapshotInfo Allocator::snapshot(c10::MempoolId_t id, bool include_traces) {
  Collected collected;
  collected.pools = &pools_;
  collected.wanted = id;
  check(plinth_memory_snapshot_each(collect, &collected));

  caching::SnapshotInfo result;
  std::map<c10::DeviceIndex, size_t> active;
  for (auto& segment : collected.segments) {
#ifndef PLINTH_TORCH_2_10
    segment.registration_counter = history_.registration_of(segment.address);
#endif
    const bool in_use = !segment.blocks.empty() && segment.blocks.front().active;
    segment.context_when_allocated = history_.of_segment(segment.address, in_use);
    active[segment.device] += segment.active_size;
    size_t address = segment.address;
    for (auto& block : segment.blocks) {
      if (block.active) block.context_when_allocated = history_.of_block(address);
      address += block.size;
    }
  }
  result.segments = std::move(collected.segments);
  for (int device = 0; device < device_count_.load(std::memory_order_acquire); ++device) {
    const auto index = static_cast<c10::DeviceIndex>(device);
    // A snapshot's own event is in later ones.
    if (include_traces) result.device_traces.push_back(history_.events(index));
    history_.add_snapshot_event(index, active[index], id);
  }
  if (include_traces) result.external_annotations = history_.annotations();
  result.config_metadata = settings();
  return result;
}

}  // namespace plinth_torch
