// Sending and receiving between two ranks.
#pragma once

#include "registered.cuh"

namespace plinth {

// The chunks of a transfer are distributed over its lanes, round robin. A lane has room for `kEntries` chunks at the receiver,
// which publishes how many it has consumed. If what is sent is in registered memory, a lane has only the header of its first
// chunk, and the receiver copies from where the memory is. An empty transfer has a chunk too, so that both sides compare headers.
__device__ void transfer(const GroupInfo &group, const Transfer &t, u32 lane) {
  __shared__ u32 broken;
  __shared__ u64 source;
  const u64 own = group.windows[group.rank];
  const u64 other = group.windows[t.peer];
  const bool sends = t.sends != 0;
  const u32 poison = threadIdx.x < group.size ? peek(own + kPoison + threadIdx.x * 4) : 0;
  if (poison != 0) fail(group, poison, threadIdx.x, nullptr, nullptr);
  __syncthreads();
  if (__syncthreads_and(peek(own + kFailed) == 0) == 0) return;
  volatile u64 *counter = reinterpret_cast<volatile u64 *>(own + (sends ? kSent : kReceived)) + t.peer * kLanes + lane;
  u64 number = *counter;
  const u64 incoming = own + (sends ? kTaken : kArrived) + (t.peer * kLanes + lane) * 8;
  const u64 outgoing = other + (sends ? kArrived : kTaken) + (group.rank * kLanes + lane) * 8;
  Header header = {0x40 | static_cast<u64>(t.element) << 16, t.bytes, t.lanes, t.place};
  const u64 ring = (sends ? other : own) + kStaging + 2ull * group.size * group.slot;
  const u32 from = sends ? group.rank : t.peer;
  const u64 stride = static_cast<u64>(t.lanes) * group.entry;
  u64 offset = static_cast<u64>(lane) * group.entry;
  bool begins = true;
  while (begins || offset < t.bytes) {
    const u32 entry = number % kEntries;
    const u64 described = (sends ? other : own) + kRingHeaders + ((from * kLanes + lane) * kEntries + entry) * 32;
    if (threadIdx.x == 0) {
      // The receiver waits for this chunk, the sender for room for it.
      const u64 needed = sends ? (number >= kEntries ? number + 1 - kEntries : 0) : number + 1;
      bool met = await(group, incoming, needed, t.peer);
      if (met && !sends) {
        // Only the sender knows the place.
        header.words[3] = reinterpret_cast<volatile u64 *>(described)[3];
        met = header.compare(group, described, t.peer);
      }
      if (met && begins) {
        source = sends ? t.place : find_place(group, header.words[3], t.peer);
        if (source == 0 && header.words[3] != 0) {
          fail(group, kMismatch | t.peer << 8, group.rank, header.words, header.words);
          met = false;
        }
      }
      broken = met ? 0 : 1;
    }
    __syncthreads();
    if (broken != 0) return;
    u64 chunks = 1;
    if (source != 0) {
      // What is sent is read where it is, and counts as all chunks of the lane.
      if (offset < t.bytes) chunks = (t.bytes - offset + stride - 1) / stride;
      const u64 each = (t.bytes + 16ull * t.lanes - 1) / (16ull * t.lanes) * 16;
      const u64 end = min(t.bytes, each * (lane + 1));
      if (!sends) copy_range(reinterpret_cast<const u8 *>(source), nullptr, 0, t.address, min(each * lane, end), end);
    } else {
      const u64 index = (from * group.lanes + lane) * kEntries + entry;
      const u64 chunk = ring + index * group.entry;
      const u64 memory = t.address + offset;
      const u64 bytes = offset < t.bytes ? min(t.bytes - offset, static_cast<u64>(group.entry)) : 0;
      copy_range(reinterpret_cast<const u8 *>(sends ? memory : chunk), nullptr, 0, sends ? chunk : memory, 0, bytes);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      if (sends) header.write(described);
      __threadfence_system();
      publish(outgoing, number + (sends ? 1 : chunks));
      if (sends && source != 0) broken = await(group, incoming, number + chunks, t.peer) ? 0 : 1;
    }
    number += chunks;
    begins = false;
    offset += chunks * stride;
  }
  if (threadIdx.x == 0 && broken == 0) *counter = number;
}

}  // namespace plinth
