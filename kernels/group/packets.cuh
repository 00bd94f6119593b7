// Short messages in packets, without flags.
#pragma once

#include "chunks.cuh"

namespace plinth {

// The address at rank `at` of the packets from a rank. They follow the slots and what transfers have.
__device__ __forceinline__ u64 packets_of(const GroupInfo &group, u32 at, u64 step, u32 from) {
  const u64 ring = group.lanes * kEntries * (group.entry + 2ull * group.short_entry);
  const u64 before = group.size * (2ull * group.slot + ring);
  return group.windows[at] + kStaging + before + ((step & 1) * group.size + from) * (2ull * group.broadcast);
}

// Loads 16 bytes of the own row for a rank.
__device__ __forceinline__ uint4 own_unit(const Collective &c, u32 row, u32 unit) {
  const u64 stride = c.by_rows() ? c.bytes : 0;
  const u64 at = 16ull * unit;
  return load(reinterpret_cast<const u8 *>(c.from + row * stride + at), c.bytes - at, ((c.from | stride) & 15) == 0);
}

// Gets the 16 bytes of a unit of a rank: loads them from the own row, or waits for the packets. Returns false if the group has
// failed.
__device__ __noinline__ bool receive_unit(u64 step, u32 rank, u32 unit, uint4 &value) {
  const Collective &c = shared;
  const GroupInfo &group = c.group;
  if (rank == group.rank) {
    value = own_unit(c, rank, unit);
    return true;
  }
  const u64 address = packets_of(group, group.rank, step, rank) + 32ull * unit;
  u64 data[2];
  if (!await<false>(group, address, step + 1, rank, data)) return false;
  value = value_of(data[0], data[1]);
  return true;
}

// Sends a unit in packets, as one of a rank.
__device__ __forceinline__ void send_unit(u64 step, u32 at, u32 from, u32 unit, const uint4 &value) {
  send_value(packets_of(shared.group, at, step, from) + 32ull * unit, value, step + 1);
}

// Whether the root of a broadcast sends each unit to one other rank, which forwards it to the rest: in more time, but with fewer
// bytes on the root's link.
__device__ __forceinline__ bool is_forwarded(const Collective &c) {
  return c.mode == kBroadcast && c.group.size > 2 && c.bytes > c.group.packets;
}

// The rank that forwards a unit.
__device__ __forceinline__ u32 forwarding_rank(const Collective &c, u32 unit) {
  return (c.root + 1 + unit / kThreads % (c.group.size - 1)) % c.group.size;
}

// Sends the header and the own data in packets.
__device__ __noinline__ void send_packets(u64 step, u32 units) {
  const Collective &c = shared;
  const GroupInfo &group = c.group;
  const u64 number = step + 1;
  const u32 begin = blockIdx.x * kThreads + threadIdx.x;
  if (begin < group.size) shared_call.header.send_to(group, shared_call.number, begin);
  // The host reads this number to see whether a collective runs.
  if (begin == 0) *reinterpret_cast<volatile u64 *>(group.windows[group.rank] + kFlags + group.rank * 8) = number;
  if (c.mode == kBroadcast && !c.is_root()) return;
  u32 first = c.first();
  u32 last = c.last();
#pragma unroll 1
  for (u32 unit = begin; unit < units; unit += gridDim.x * kThreads) {
    uint4 value = own_unit(c, first, unit);
    if (is_forwarded(c)) {
      first = forwarding_rank(c, unit);
      last = first + 1;
    }
#pragma unroll 1
    for (u32 peer = first; peer < last; ++peer) {
      if (c.by_rows()) value = own_unit(c, peer, unit);
      if (peer == group.rank) continue;
      send_unit(step, peer, group.rank, unit, value);
    }
  }
}

// Forwards a unit of a broadcast to the ranks that have it neither from the root nor from here.
__device__ __noinline__ void forward_unit(u64 step, u32 unit, const uint4 &value) {
  const Collective &c = shared;
  if (!is_forwarded(c) || forwarding_rank(c, unit) != c.group.rank) return;
#pragma unroll 1
  for (u32 index = 1; index < c.group.size; ++index) {
    const u32 peer = (c.group.rank + index) % c.group.size;
    if (peer != c.root) send_unit(step, peer, c.root, unit, value);
  }
}

// Runs a collective of one short step with packets. Each thread sends and receives the same units of 16 bytes, each of which is
// two packets. Returns false if the group has failed.
template <class Part>
__device__ __forceinline__ bool run_packets(const Collective &c, u64 step) {
  const GroupInfo &group = c.group;
  u8 *to = reinterpret_cast<u8 *>(c.to);
  const u32 units = static_cast<u32>((c.bytes + 15) / 16);
  const u32 begin = blockIdx.x * kThreads + threadIdx.x;
  send_packets(step, units);
  if (threadIdx.x < group.size && shared_call.poison[threadIdx.x] != 0) {
    fail(shared.group, shared_call.poison[threadIdx.x], threadIdx.x, nullptr, nullptr);
    return false;
  }
  if (begin < group.size && !shared_call.header.matches(shared.group, shared_call.number, begin)) return false;
#pragma unroll 1
  for (u32 index = begin; index < units; index += gridDim.x * kThreads) {
    const auto unit = [&](u32 rank, uint4 &value) { return receive_unit(step, rank, index, value); };
    const u64 at = 16ull * index;
    uint4 value;
    if (Part::kReduces || c.mode == kBroadcast) {
      if (c.mode == kReduce && !c.is_root()) continue;
      if (!Part::combine(c, unit, value)) return false;
      if (!Part::kReduces) forward_unit(step, index, value);
      store(to + at, value, c.bytes - at, ((c.to) & 15) == 0);
    } else {
#pragma unroll 1
      for (u32 rank = 0; rank < group.size; ++rank) {
        if (!unit(rank, value)) return false;
        store(to + rank * c.bytes + at, value, c.bytes - at, ((c.to | c.bytes) & 15) == 0);
      }
    }
  }
  return true;
}

}  // namespace plinth
