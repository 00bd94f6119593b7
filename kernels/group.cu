// Collectives between processes whose devices see each other's memory.
//
// Each rank has a symmetric buffer, its window, that all ranks have mapped. A rank sends data by writing it into a slot of the
// receiver's window, and then the number of the step into a flag there, with a release in the scope of the system; so every rank
// spins on its own memory. The number of the step is kept in memory and is no argument of the launch, so that a captured launch
// is correct in every replay.
//
// In each step every rank waits for the flags of all others. When the flags of step t are there, no rank reads the data of
// step t - 1 any more; so two slots for each rank, for even and odd steps, are enough. A block waits only for the blocks of its
// own number, because its slice of a slot is the same in all steps of a launch, however short the last one is. A launch with
// another division begins after this one has ended.
//
// Short messages have no steps with flags: they are sent in packets, which hold data and the number of the step, so that no
// fence delays them. Packets have a place of their own for each rank and for even and odd steps. The header of a launch goes in
// packets as well, from the first block of each rank to that of all others; so every launch waits for all ranks, and the rule
// of two slots holds for packets too.
//
// Memory that the ranks have registered is mapped by all of them. A collective on it has no slots: after a first step, in which
// the ranks compare headers and set no flags, each rank reads its part of the others' inputs, and writes its part of their
// outputs, where they are; a last step ends it, after which the inputs may change and the outputs are complete. A rank writes
// nothing before each of its blocks knows that all ranks call for the same places. In a broadcast the root publishes each piece
// that it has written, in a step in which the other ranks publish nothing.
//
// A transfer between two ranks goes through lanes, each of which has a block at both ranks, a ring of chunks in the receiver's
// window, and two counts: of the chunks that have arrived, which the sender publishes, and of those that are consumed, which the
// receiver publishes, so that the sender overwrites nothing that is still to be read. Both ranks also keep the count in their own
// memory, for the next launch. The header goes in packets, and tells what the sender sends before any data is used. A short
// transfer has all of its data in packets, in a ring of their own, with one chunk in each lane: the receiver waits for each
// packet, and nothing is released. The number of a packet is that of the chunk, and is never used again in its lane. Which
// transfers are short depends on their bytes only, so ranks whose bytes differ may wait for different things; all of their
// waits end when the receiver has found that the headers differ.
//
// Values are combined in the order of ranks, so every rank gets the same bits, and the same ones each time.
//
// A waiting thread checks from time to time whether the group has failed: the timeout has passed, the host has aborted it, or
// another rank or block has failed. Then it writes the reason to the report and to the other ranks' windows, and every later
// launch does nothing.
#include "group/chunks.cuh"
#include "group/packets.cuh"
#include "group/registered.cuh"
#include "group/transfer.cuh"

namespace plinth {

// Counts this block as done. The last one writes the numbers for the next launch; by then every one has read them.
__device__ __noinline__ void end_call(u64 step) {
  const u64 own = shared.group.windows[shared.group.rank];
  if (threadIdx.x != 0) return;
  if (gridDim.x > 1) {
    if (atomicAdd(reinterpret_cast<u32 *>(own + kDone), 1u) != gridDim.x - 1) return;
    *reinterpret_cast<volatile u32 *>(own + kDone) = 0;
  }
  *reinterpret_cast<volatile u64 *>(own + kSteps) = step;
  *reinterpret_cast<volatile u64 *>(own + kCalls) = shared_call.number + 1;
}

// Writes the own data of a chunk of `bytes` bytes to the slots of the other ranks.
__device__ __noinline__ void send_chunk(u64 step, u64 offset, u64 bytes, u64 most) {
  const Collective &c = shared;
  const bool copies = c.mode == kBroadcast || c.mode == kBroadcastParts;
  if (c.is_direct() || (copies && !c.is_root())) return;
  const u8 *from = reinterpret_cast<const u8 *>(c.from) + offset;
  if (!c.by_parts()) {
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
__device__ __noinline__ void receive_chunk(u64 step, u64 offset, u64 bytes, u64 most) {
  const Collective &c = shared;
  if (c.is_direct() || (c.to_root() && !c.is_root())) return;
  u8 *to = reinterpret_cast<u8 *>(c.to) + offset;
  if (c.mode == kBroadcast) {
    pull(step, c.root, to, bytes, most);
    return;
  }
  const u64 each = c.by_parts() ? whole_part(bytes, c.group.size) : 0;
#pragma unroll 1
  for (u32 rank = 0; rank < c.group.size; ++rank) {
    if (c.by_parts()) {
      pull(step, rank, to + each * rank, part_bytes(bytes, each, rank), most);
    } else {
      pull(step, rank, to + rank * c.bytes, bytes, most);
    }
  }
}

template <class Part>
__device__ __forceinline__ void run(const Collective &c) {
  const GroupInfo &group = c.group;
  const u64 window = group.windows[group.rank];
  const u32 failed = peek(window + kFailed);
  u64 step = *reinterpret_cast<volatile u64 *>(window + kSteps);
  const u64 number = *reinterpret_cast<volatile u64 *>(window + kCalls);
  // Otherwise this rank would go on without a rank that failed after it had written its parts.
  const u32 poison = threadIdx.x < group.size ? peek(window + kPoison + threadIdx.x * 4) : 0;
  // Four threads of a warp, because a warp loads one word of a parameter at a time.
  for (u32 word = threadIdx.x / 8; threadIdx.x % 8 == 0 && word < sizeof(Collective) / 8; word += kThreads / 8) {
    reinterpret_cast<u64 *>(&shared)[word] = reinterpret_cast<const u64 *>(&c)[word];
  }
  if (threadIdx.x < kRanks) shared_call.poison[threadIdx.x] = poison;
  if (threadIdx.x == 0) {
    shared_call.header = {c.mode | c.op << 8 | c.element << 16 | c.root << 24 | static_cast<u64>(gridDim.x) << 32, c.count,
                          c.places[0], c.places[1]};
    shared_call.number = number;
    shared_route.unaligned = 0;
  }
  // All threads of the block return, or none: those that went on would not wait for other ranks.
  if (__syncthreads_and(failed == 0) == 0) return;
  const u32 size = group.size;
  const bool by_parts = c.by_parts();
  const bool direct = c.is_direct();
  if (!by_parts && !direct && c.bytes <= (c.mode == kBroadcast ? group.broadcast : group.packets)) {
    const bool done = run_packets<Part>(c, step);
    if (__syncthreads_and(done) != 0) end_call(step + 1);
    return;
  }
  if (!Part::kReduces && direct && c.mode != kGather) {
    const u64 end = run_registered(step);
    if (end != 0) end_call(end);
    return;
  }
  const u64 slots = by_parts ? static_cast<u64>(group.slot) * size : group.slot;
  const u64 chunk = direct ? c.bytes : slots;
  // What a slot gets in the first step: no later one has more.
  u64 most = by_parts ? whole_part(min(c.bytes, chunk), size) : min(c.bytes, chunk);
  const bool reduces = Part::kReduces && c.is_direct_reduce();
  u64 offset = 0;
#pragma unroll 1
  do {
    const u64 bytes = min(c.bytes - offset, chunk);
    u64 part = by_parts ? part_bytes(bytes, whole_part(bytes, size), group.rank) : bytes;
    send_chunk(step, offset, bytes, most);
    const bool own = reduces ? c.is_root() : !by_parts && c.mode != kGather;
    if (!meet(step, offset == 0, own ? c.to + offset : 0)) return;
    if (reduces) part = most = direct_reduce_part();
    if (by_parts || (Part::kReduces ? !c.to_root() || c.is_root() : direct)) {
      give<Part>(c, step, part, most, own);
    }
    if (by_parts || direct) {
      step += 1;
      if (!meet(step, false, 0)) return;
    }
    if (by_parts || !Part::kReduces) receive_chunk(step, offset, bytes, most);
    step += 1;
    offset += bytes;
  } while (offset < c.bytes);
  __syncthreads();
  end_call(step);
}

}  // namespace plinth

#define PLINTH_GROUP(name, ...)                                                                    \
  extern "C" __global__ void __launch_bounds__(plinth::kThreads, 2)                                   \
      plinth_group_##name(const __grid_constant__ plinth::Collective collective) {                 \
    plinth::run<__VA_ARGS__>(collective);                                                          \
  }

PLINTH_GROUP(copy, plinth::Copy)
PLINTH_GROUP(f16, plinth::Reduction<plinth::F16>)
PLINTH_GROUP(bf16, plinth::Reduction<plinth::Bf16>)
PLINTH_GROUP(f32, plinth::Reduction<plinth::Real<float>>)
PLINTH_GROUP(f64, plinth::Reduction<plinth::Real<double>>)
PLINTH_GROUP(u8, plinth::Reduction<plinth::Whole<plinth::u8, plinth::u32>>)
PLINTH_GROUP(i8, plinth::Reduction<plinth::Whole<plinth::i8, plinth::i32>>)
PLINTH_GROUP(u16, plinth::Reduction<plinth::Whole<plinth::u16, plinth::u32>>)
PLINTH_GROUP(i16, plinth::Reduction<plinth::Whole<plinth::i16, plinth::i32>>)
PLINTH_GROUP(u32, plinth::Reduction<plinth::Whole<plinth::u32, plinth::u32>>)
PLINTH_GROUP(i32, plinth::Reduction<plinth::Whole<plinth::i32, plinth::i32>>)
PLINTH_GROUP(u64, plinth::Reduction<plinth::Whole<plinth::u64, plinth::u64>>)
PLINTH_GROUP(i64, plinth::Reduction<plinth::Whole<plinth::i64, plinth::i64>>)
PLINTH_GROUP(bool, plinth::Reduction<plinth::Truth>)
PLINTH_GROUP(c64, plinth::Reduction<plinth::Complex<float>>)
PLINTH_GROUP(c128, plinth::Reduction<plinth::Complex<double>>)

extern "C" __global__ void __launch_bounds__(plinth::kThreads, 2)
    plinth_group_transfer(const __grid_constant__ plinth::Transfers all) {
  const plinth::Transfer &transfer = all.transfers[blockIdx.y];
  if (blockIdx.x < transfer.lanes) plinth::transfer(all.group, transfer, blockIdx.x);
}
