// A collective, from the launch to its end, and the macro that makes a kernel for a type.
#pragma once

#include "steps.cuh"
#include "packets.cuh"
#include "registered.cuh"
#include "transfer.cuh"

namespace plinth {

// The numbers of steps and of collectives with which a collective begins whose turn it is.
__device__ __forceinline__ ulonglong2 *counts_of(const GroupInfo &group, u32 turn) {
  return reinterpret_cast<ulonglong2 *>(group.buffers[group.rank] + kCounts) + turn;
}

// The turn of a block's next collective of several blocks.
__device__ __forceinline__ u32 *turn_of(const GroupInfo &group, u32 block) {
  return reinterpret_cast<u32 *>(group.buffers[group.rank] + kTurns + 16 * block);
}

// Writes the numbers for the next launch. No block waits for another: one that has not read the numbers of this launch finds them
// where they were, because the next ones are for the other turn. Each block passes the turn on for itself, and for its share of
// the blocks that the launch does not have.
__device__ __noinline__ void end_call(u64 step) {
  const GroupInfo &group = shared.group;
  const u32 next = gridDim.x == 1 ? shared_call.turn : shared_call.turn ^ 1;
  const u32 block = blockIdx.x + threadIdx.x * gridDim.x;
  if (gridDim.x > 1 && block < kBlocks) *turn_of(group, block) = next;
  if (block == 0) *counts_of(group, next) = make_ulonglong2(step, shared_call.number + 1);
}

// Writes the own data of a chunk of `bytes` bytes to the slots of the other ranks.
__device__ __noinline__ void write_slots(u64 step, u64 offset, u64 bytes, u64 most) {
  const Collective &c = shared;
  const bool copies = c.mode == kBroadcast || c.mode == kBroadcastParts;
  if (c.is_direct() || (copies && !c.is_root())) return;
  const u8 *from = reinterpret_cast<const u8 *>(c.from) + offset;
  if (!c.has_parts()) {
    push(step, from, c.by_rows() ? c.bytes : 0, bytes, most, c.first(), c.last());
    return;
  }
  const u32 size = c.group.size;
  const u64 each = whole_part(bytes, size);
  // Not one push: the last parts may be shorter.
#pragma unroll 1
  for (u32 index = 0; index < size; ++index) {
    const u32 peer = (c.group.rank + 1 + index) % size;
    push(step, from + each * peer, 0, part_bytes(bytes, each, peer), most, peer, peer + 1);
  }
}

// Copies the data of a chunk of `bytes` bytes from the own slots.
__device__ __noinline__ void read_slots(u64 step, u64 offset, u64 bytes, u64 most) {
  const Collective &c = shared;
  if (c.is_direct() || (c.to_root() && !c.is_root())) return;
  u8 *to = reinterpret_cast<u8 *>(c.to) + offset;
  if (c.mode == kBroadcast) {
    pull(step, c.root, to, bytes, most);
    return;
  }
  const u64 each = c.has_parts() ? whole_part(bytes, c.group.size) : 0;
#pragma unroll 1
  for (u32 rank = 0; rank < c.group.size; ++rank) {
    if (c.has_parts()) {
      pull(step, rank, to + each * rank, part_bytes(bytes, each, rank), most);
    } else {
      pull(step, rank, to + rank * c.bytes, bytes, most);
    }
  }
}

template <class Part>
__device__ __forceinline__ void run(const Collective &c) {
  const GroupInfo &group = c.group;
  const u64 buffer = group.buffers[group.rank];
  const u32 failed = load_relaxed(buffer + kFailed);
  // Each load takes half a microsecond, so all are on their way at the same time.
  const u32 turn = __ldcg(turn_of(group, blockIdx.x));
  const ulonglong2 first = __ldcg(counts_of(group, 0));
  const ulonglong2 second = __ldcg(counts_of(group, 1));
  u64 step = turn == 0 ? first.x : second.x;
  const u64 number = turn == 0 ? first.y : second.y;
  // Otherwise this rank would go on without a rank that failed after it had written its parts.
  const u32 peer_failed = threadIdx.x < group.size ? load_relaxed(buffer + kPeerFailed + threadIdx.x * 4) : 0;
  const Header header = {c.mode | c.op << 8 | c.element << 16 | c.root << 24 | static_cast<u64>(gridDim.x) << 32, c.count,
                         c.places[0], c.places[1]};
  if (is_short(c) && failed == 0) send_packets(c, header, step, number);
  // Four threads of a warp, because a warp loads one word of a parameter at a time.
  for (u32 word = threadIdx.x / 8; threadIdx.x % 8 == 0 && word < sizeof(Collective) / 8; word += kThreads / 8) {
    reinterpret_cast<u64 *>(&shared)[word] = reinterpret_cast<const u64 *>(&c)[word];
  }
  if (threadIdx.x < kRanks) shared_call.peer_failed[threadIdx.x] = peer_failed;
  if (threadIdx.x == 0) {
    shared_call.header = header;
    shared_call.number = number;
    shared_call.turn = turn;
    shared_route.unaligned = 0;
  }
  // All threads of the block return, or none: those that went on would not wait for other ranks.
  if (__syncthreads_and(failed == 0) == 0) return;
  const u32 size = group.size;
  const bool has_parts = c.has_parts();
  const bool direct = c.is_direct();
  if (is_short(c)) {
    const bool done = receive_packets<Part>(c, step);
    if (__syncthreads_and(done) != 0) end_call(step + 1);
    return;
  }
  if (!Part::kReduces && direct && c.mode != kAllGather) {
    const u64 end = run_registered(step);
    if (end != 0) end_call(end);
    return;
  }
  const u64 slots = has_parts ? static_cast<u64>(group.slot) * size : group.slot;
  const u64 chunk = direct ? c.bytes : slots;
  // What a slot gets in the first step: no later one has more.
  u64 most = has_parts ? whole_part(min(c.bytes, chunk), size) : min(c.bytes, chunk);
  const bool reduces = Part::kReduces && c.is_direct_reduce();
  u64 offset = 0;
#pragma unroll 1
  do {
    const u64 bytes = min(c.bytes - offset, chunk);
    u64 part = has_parts ? part_bytes(bytes, whole_part(bytes, size), group.rank) : bytes;
    write_slots(step, offset, bytes, most);
    const bool own = reduces ? c.is_root() : !has_parts && c.mode != kAllGather;
    if (!synchronize(step, offset == 0, own ? c.to + offset : 0)) return;
    if (reduces) part = most = direct_reduce_part();
    if (has_parts || (Part::kReduces ? !c.to_root() || c.is_root() : direct)) {
      give<Part>(c, step, part, most, own);
    }
    if (has_parts || direct) {
      step += 1;
      if (!synchronize(step, false, 0)) return;
    }
    if (has_parts || !Part::kReduces) read_slots(step, offset, bytes, most);
    step += 1;
    offset += bytes;
  } while (offset < c.bytes);
  end_call(step);
}

}  // namespace plinth

#define PLINTH_GROUP(name, ...)                                                                    \
  extern "C" __global__ void __launch_bounds__(plinth::kThreads, 2)                                   \
      plinth_group_##name(const __grid_constant__ plinth::Collective collective) {                 \
    plinth::run<__VA_ARGS__>(collective);                                                          \
  }
