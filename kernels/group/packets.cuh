// Short messages in packets, without flags.
#pragma once

#include "steps.cuh"

namespace plinth {

// The threads of a block that send and receive data, if it fits into one unit of each. With more threads a block sends later: an
// all_reduce of 8 KiB takes 3.6 us in four blocks, and took 4.4 in one.
constexpr u32 kPacketThreads = 128;

// The rank whose header this thread sends and compares, or a larger number.
__device__ __forceinline__ u32 header_peer() { return blockIdx.x == 0 ? kThreads - 1 - threadIdx.x : ~0u; }

// This thread's units of a row, of 16 bytes: every one of `step`, from `first` to `end`.
struct Units {
  u32 first;
  u32 end;
  u32 step;

  // The last warp, which has headers in the first block, has data only if all threads have.
  __device__ __forceinline__ Units(const Collective &c) : end(static_cast<u32>((c.bytes + 15) / 16)) {
    const u32 some = kPacketThreads * gridDim.x;
    const u32 threads = end <= some ? kPacketThreads : end <= 2 * some ? 2 * kPacketThreads : kThreads;
    first = threadIdx.x < threads ? blockIdx.x * threads + threadIdx.x : end;
    step = gridDim.x * threads;
  }
};

// The address at rank `at` of the packets from a rank. They follow the slots and what transfers have.
__device__ __forceinline__ u64 packets_of(const GroupInfo &group, u32 at, u64 step, u32 from) {
  const u64 ring = group.lanes * kEntries * (group.entry + 2ull * group.short_entry);
  const u64 before = group.size * (2ull * group.slot + ring);
  return group.buffers[at] + kStaging + before + ((step & 1) * group.size + from) * (2ull * group.broadcast);
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
  if (!wait<false>(group, address, step + 1, rank, data)) return false;
  value = unpack(data[0], data[1]);
  return true;
}

// Sends a unit in packets, as one of a rank.
__device__ __forceinline__ void send_unit(const GroupInfo &group, u64 step, u32 at, u32 from, u32 unit, const uint4 &value) {
  store_packets(packets_of(group, at, step, from) + 32ull * unit, value, step + 1);
}

// Whether the root of a broadcast sends each unit to one other rank, which forwards it to the rest: in more time, but with fewer
// bytes on the root's link.
__device__ __forceinline__ bool is_forwarded(const Collective &c) {
  return c.mode == kBroadcast && c.group.size > 2 && c.bytes > c.group.packets;
}

// The rank that forwards a unit.
__device__ __forceinline__ u32 forwarding_rank(const Collective &c, u32 unit) {
  return (c.root + 1 + unit / kPacketThreads % (c.group.size - 1)) % c.group.size;
}

// Whether a collective has one short step, with packets.
__device__ __forceinline__ bool is_short(const Collective &c) {
  return !c.has_parts() && !c.is_direct() && c.bytes <= (c.mode == kBroadcast ? c.group.broadcast : c.group.packets);
}

// Sends the header and the own data in packets. It needs nothing that the threads of the block share, because a launch is as long
// as it takes until this is on its way.
__device__ __forceinline__ void send_packets(const Collective &c, const Header &header, u64 step, u64 call) {
  const GroupInfo &group = c.group;
  const u32 header_to = header_peer();
  if (header_to < group.size) header.send_to(group, call, header_to);
  // The host reads this number to see whether a collective runs.
  if (header_to == 0) *reinterpret_cast<volatile u64 *>(group.buffers[group.rank] + kFlags + group.rank * 8) = step + 1;
  if (c.mode == kBroadcast && !c.is_root()) return;
  u32 first = c.first();
  u32 last = c.last();
  const Units units(c);
#pragma unroll 1
  for (u32 unit = units.first; unit < units.end; unit += units.step) {
    uint4 value = own_unit(c, first, unit);
    if (is_forwarded(c)) {
      first = forwarding_rank(c, unit);
      last = first + 1;
    }
#pragma unroll 1
    for (u32 peer = first; peer < last; ++peer) {
      if (c.by_rows()) value = own_unit(c, peer, unit);
      if (peer != group.rank) send_unit(group, step, peer, group.rank, unit, value);
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
    if (peer != c.root) send_unit(c.group, step, peer, c.root, unit, value);
  }
}

// Ends a collective of one short step, whose packets are sent. Each thread receives the units of 16 bytes that it has sent, each of
// which is two packets. Returns false if the group has failed.
template <class Part>
__device__ __forceinline__ bool receive_packets(const Collective &c, u64 step) {
  const GroupInfo &group = c.group;
  u8 *to = reinterpret_cast<u8 *>(c.to);
  const Units units(c);
  if (threadIdx.x < group.size && shared_call.peer_failed[threadIdx.x] != 0) {
    fail(shared.group, shared_call.peer_failed[threadIdx.x], threadIdx.x, nullptr, nullptr);
    return false;
  }
  const u32 peer = header_peer();
  if (peer < group.size && !shared_call.header.matches(shared.group, shared_call.number, peer)) return false;
#pragma unroll 1
  for (u32 index = units.first; index < units.end; index += units.step) {
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
