// Sending and receiving between two ranks.
#pragma once

#include "launch.cuh"

namespace plinth {

// The chunks of a transfer are distributed over its lanes, round robin. A lane has room for `kEntries` chunks at the receiver,
// which publishes how many it has consumed. An empty transfer has a chunk in each lane too, so that both sides compare headers.
__device__ void transfer(const GroupInfo &group, const Transfer &t, u32 lane) {
  __shared__ u32 broken;
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
  const Header header = {0x40 | static_cast<u64>(t.element) << 16, t.bytes, t.lanes, group.entry};
  const u64 ring = (sends ? other : own) + kStaging + 2ull * group.size * group.slot;
  const u32 from = sends ? group.rank : t.peer;
  u64 offset = static_cast<u64>(lane) * group.entry;
  bool begins = true;
  while (begins || offset < t.bytes) {
    const u64 index = (from * kLanes + lane) * kEntries + number % kEntries;
    uint4 *chunk = reinterpret_cast<uint4 *>(ring + index * group.entry);
    const u64 described = (sends ? other : own) + kRingHeaders + index * 32;
    const u64 bytes = offset < t.bytes ? min(t.bytes - offset, static_cast<u64>(group.entry)) : 0;
    if (threadIdx.x == 0) {
      // The receiver waits for this chunk, the sender for room for it.
      const u64 needed = sends ? (number >= kEntries ? number + 1 - kEntries : 0) : number + 1;
      bool met = await(group, incoming, needed, t.peer);
      if (met && !sends) met = header.compare(group, described, t.peer);
      broken = met ? 0 : 1;
    }
    __syncthreads();
    if (broken != 0) return;
    u8 *memory = reinterpret_cast<u8 *>(t.address) + offset;
    const bool aligned = (reinterpret_cast<u64>(memory) & 15) == 0;
    for (u64 at = 16ull * threadIdx.x; at < bytes; at += 16ull * kThreads) {
      if (sends) {
        chunk[at / 16] = load(memory + at, bytes - at, aligned);
      } else {
        store(memory + at, chunk[at / 16], bytes - at, aligned);
      }
    }
    __syncthreads();
    number += 1;
    if (threadIdx.x == 0) {
      if (sends) header.write(described);
      __threadfence_system();
      publish(outgoing, number);
    }
    begins = false;
    offset += static_cast<u64>(t.lanes) * group.entry;
  }
  if (threadIdx.x == 0) *counter = number;
}

}  // namespace plinth
