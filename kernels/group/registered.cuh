// Collectives on registered memory that combine nothing: broadcast and all_to_all; all_gather is in collective.cuh.
#pragma once

#include "steps.cuh"

namespace plinth {

// Copies the bytes from `begin` to `end` of a row to the same bytes of `count` rows, and of `extra` if that is an address, four
// units of a thread at a time. `begin` is a multiple of 16.
__device__ __noinline__ void copy_range(const u8 *from, const u64 *targets, u32 count, u64 extra, u64 begin, u64 end) {
  u64 bits = reinterpret_cast<u64>(from) | extra;
  for (u32 index = 0; index < count; ++index) bits |= targets[index];
  const u64 whole = (bits & 15) == 0 ? begin + (end - begin) / 16 * 16 : begin;
  const u32 rows = count + (extra != 0 ? 1 : 0);
  const u64 stride = 16ull * kThreads;
#pragma unroll 1
  for (u64 base = begin + 16ull * threadIdx.x; base < whole; base += 4 * stride) {
    uint4 values[4];
#pragma unroll
    for (u32 index = 0; index < 4; ++index) {
      const u64 at = base + index * stride;
      // Other ranks may have written them during this launch.
      values[index] = at < whole ? __ldcg(reinterpret_cast<const uint4 *>(from + at)) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll 1
    for (u32 row = 0; row < rows; ++row) {
      u8 *to = reinterpret_cast<u8 *>(row < count ? targets[row] : extra);
#pragma unroll
      for (u32 index = 0; index < 4; ++index) {
        const u64 at = base + index * stride;
        if (at < whole) *reinterpret_cast<uint4 *>(to + at) = values[index];
      }
    }
  }
#pragma unroll 1
  for (u64 at = whole + 16ull * threadIdx.x; at < end; at += stride) {
    const uint4 value = load_slowly(from + at, end - at);
#pragma unroll 1
    for (u32 row = 0; row < rows; ++row) {
      store_slowly(reinterpret_cast<u8 *>(row < count ? targets[row] : extra) + at, value, end - at);
    }
  }
}

// Copies the root's row into the outputs of all ranks. The root writes a part of it to each other rank, which forwards it to the
// rest; so each link carries the row about once. The root publishes every piece of a block's slice, so that it is forwarded while
// the next is on its way. Returns the step after those of the pieces, or 0 if the group has failed.
__device__ __forceinline__ u64 broadcast_registered(u64 step) {
  const Collective &c = shared;
  const GroupInfo &group = c.group;
  const u32 receivers = group.size - 1;
  // The other ranks in the order in which this one writes to them. Those that forward do not write to the root.
  u64 *targets = shared_route.targets;
  __syncthreads();
  if (threadIdx.x < group.size && threadIdx.x != group.rank) {
    const u32 root = (c.root + group.size - group.rank) % group.size;
    const u32 distance = (threadIdx.x + group.size - group.rank) % group.size;
    if (distance != root) targets[distance - (root != 0 && distance > root ? 2 : 1)] = c.outputs[threadIdx.x];
  }
  __syncthreads();
  const u64 each = whole_part(c.bytes, receivers);
  const u64 slice = (each + 16ull * gridDim.x - 1) / (16ull * gridDim.x) * 16;
  const u64 piece = receivers > 1 ? group.piece : slice;
  const u64 flags = kFlags + static_cast<u64>(blockIdx.x) * kRanks * 8;
  // The number of this rank's part; the root's successor has the first.
  const u32 own = (group.rank + group.size - c.root + receivers) % group.size;
#pragma unroll 1
  for (u64 offset = 0; offset < slice; offset += piece, ++step) {
    if (!c.is_root() && receivers > 1) {
      const bool succeeded = threadIdx.x != 0 || wait(group, group.buffers[group.rank] + flags + c.root * 8, step + 1, c.root);
      if (__syncthreads_and(succeeded) == 0) return 0;
    }
#pragma unroll 1
    for (u32 index = 0; index < receivers; ++index) {
      if (!c.is_root() && (index != own || receivers == 1)) continue;
      const u64 first = each * index;
      const u64 last = min(first + each, c.bytes);
      const u64 start = first + slice * blockIdx.x;
      const u64 begin = start + offset;
      const u64 end = min(min(begin + piece, start + slice), last);
      if (begin >= end) continue;
      if (c.is_root()) {
        copy_range(reinterpret_cast<const u8 *>(c.from), targets + index, 1, c.to == c.from ? 0 : c.to, begin, end);
      } else {
        copy_range(reinterpret_cast<const u8 *>(c.to), targets, receivers - 1, 0, begin, end);
      }
    }
    if (c.is_root() && receivers > 1) {
      __syncthreads();
      if (threadIdx.x < group.size && threadIdx.x != group.rank) {
        store_release(group.buffers[threadIdx.x] + flags + group.rank * 8, step + 1);
      }
    }
  }
  return step;
}

// Copies the rows of an all_to_all: into the outputs of the other ranks, which is faster than to read their inputs, as it does if
// the outputs are not registered. A block takes a piece of each row before the next piece, so that the own row is copied while the
// others are on their way.
__device__ __forceinline__ void exchange_registered() {
  const Collective &c = shared;
  const bool writes = c.places[1] != 0;
  const u64 slice = (c.bytes + 16ull * gridDim.x - 1) / (16ull * gridDim.x) * 16;
  const u64 end = min(slice * (blockIdx.x + 1), c.bytes);
#pragma unroll 1
  for (u64 begin = slice * blockIdx.x; begin < end; begin += c.group.piece) {
#pragma unroll 1
    for (u32 index = 1; index <= c.group.size; ++index) {
      const u32 peer = (c.group.rank + index) % c.group.size;
      const u64 from = writes ? c.from + peer * c.bytes : c.inputs[peer];
      const u64 to = writes ? c.outputs[peer] : c.to + peer * c.bytes;
      copy_range(reinterpret_cast<const u8 *>(from), nullptr, 0, to, begin, min(begin + c.group.piece, end));
    }
  }
}

// Runs a broadcast or an all_to_all. Returns the number of steps of all collectives so far, or 0 if the group has failed.
__device__ __noinline__ u64 run_registered(u64 step) {
  if (!synchronize(step, true, 0)) return 0;
  step += 1;
  if (shared.mode == kAllToAll) {
    exchange_registered();
  } else {
    step = broadcast_registered(step);
  }
  return step != 0 && synchronize(step, false, 0) ? step + 1 : 0;
}

}  // namespace plinth
