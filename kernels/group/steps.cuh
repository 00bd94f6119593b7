// Steps with flags: a chunk goes through slots, or from input to output of registered memory, and is combined on the way.
#pragma once

#include "launch.cuh"
#include "number.cuh"

namespace plinth {

// The bytes of a part of a chunk of `bytes` bytes. The last parts may be shorter.
__device__ __forceinline__ u64 whole_part(u64 bytes, u32 size) { return ((bytes + size - 1) / size + 15) / 16 * 16; }

// The bytes of a rank's part of a chunk of `bytes` bytes.
__device__ __forceinline__ u64 part_bytes(u64 bytes, u64 each, u32 rank) {
  const u64 begin = each * rank;
  return begin >= bytes ? 0 : min(bytes - begin, each);
}

// Copies this block's slice of `bytes` bytes, four units of a thread at a time.
__device__ __noinline__ void copy_slice(const u8 *from, u8 *to, u64 bytes, u64 most) {
  const Slice slice(bytes, most);
  const bool reads_aligned = (reinterpret_cast<u64>(from) & 15) == 0;
  const bool writes_aligned = (reinterpret_cast<u64>(to) & 15) == 0;
  const u32 whole = max(slice.begin, min(slice.end, static_cast<u32>(bytes / 16)));
  const u32 end = reads_aligned && writes_aligned ? whole : slice.begin;
#pragma unroll 1
  for (u32 base = slice.begin + threadIdx.x; base < end; base += 4 * kThreads) {
    uint4 values[4];
#pragma unroll
    for (u32 index = 0; index < 4; ++index) {
      const u32 unit = base + index * kThreads;
      values[index] = unit < end ? reinterpret_cast<const uint4 *>(from)[unit] : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (u32 index = 0; index < 4; ++index) {
      const u32 unit = base + index * kThreads;
      if (unit < end) reinterpret_cast<uint4 *>(to)[unit] = values[index];
    }
  }
#pragma unroll 1
  for (u32 unit = end + threadIdx.x; unit < slice.end; unit += kThreads) {
    const u64 at = 16ull * unit;
    store(to + at, load(from + at, bytes - at, reads_aligned), bytes - at, writes_aligned);
  }
}

// Writes this block's slice of `bytes` bytes from `from + rank * stride` to the ranks from `first` to `last`. Each rank begins
// with its successor, so that not all write to one.
__device__ __noinline__ void push(u64 step, const u8 *from, u64 stride, u64 bytes, u64 most, u32 first, u32 last) {
  const GroupInfo &group = shared.group;
  const u32 ranks = last - first;
  u32 peer = group.rank + 1;
  if (peer < first || peer >= last) peer = first;
  if (stride != 0 || ranks == 1) {
#pragma unroll 1
    for (u32 index = 0; index < ranks; ++index) {
      copy_slice(from + peer * stride, reinterpret_cast<u8 *>(slot_of(group, peer, step, group.rank)), bytes, most);
      if (++peer == last) peer = first;
    }
    return;
  }
  const Slice slice(bytes, most);
  const bool aligned = (reinterpret_cast<u64>(from) & 15) == 0;
  for (u32 unit = slice.begin + threadIdx.x; unit < slice.end; unit += kThreads) {
    const uint4 value = load(from + 16ull * unit, bytes - 16ull * unit, aligned);
    u32 to = peer;
    for (u32 index = 0; index < ranks; ++index) {
      slot_of(group, to, step, group.rank)[unit] = value;
      if (++to == last) to = first;
    }
  }
}

// Copies this block's slice of the data of a rank out of the buffer.
__device__ __forceinline__ void pull(u64 step, u32 rank, u8 *to, u64 bytes, u64 most) {
  copy_slice(reinterpret_cast<const u8 *>(slot_of(shared.group, shared.group.rank, step, rank)), to, bytes, most);
}

// Where the own part comes from at each rank, and where it goes to.
struct Route {
  u64 sources[kRanks];
  u64 targets[kRanks];
  // The last step, plus 1, for which an address is not a multiple of 16.
  u64 unaligned;
};

__shared__ Route shared_route;

// Sets the route of the own part at a rank. It goes to `to`, if that is an address.
__device__ __noinline__ void set_route(u64 step, u64 to, u32 rank) {
  const Collective &c = shared;
  const GroupInfo &group = c.group;
  const u64 slot = reinterpret_cast<u64>(slot_of(group, group.rank, step, rank));
  const u64 next_slot = reinterpret_cast<u64>(slot_of(group, rank, step + 1, group.rank));
  const u64 source = c.is_direct() ? c.inputs[rank] : slot;
  const u64 output = c.is_direct() ? c.outputs[rank] : next_slot;
  const u64 target = to != 0 ? to : output;
  shared_route.sources[rank] = source;
  shared_route.targets[rank] = target;
  if (((source | target) & 15) != 0) shared_route.unaligned = step + 1;
}

// Returns the address of the packet with the place of the root's output, for this block.
__device__ __forceinline__ u64 target_place(u64 buffer, u64 call) {
  return buffer + kTargets + ((call & 1) * kBlocks + blockIdx.x) * 16;
}

// Waits for the place of the root's output, and sets the route of the own part to it. Returns false if there is no such place,
// or if the group has failed.
__device__ __noinline__ bool receive_target(u64 step) {
  const Collective &c = shared;
  const GroupInfo &group = c.group;
  u64 place[1];
  if (!wait<true>(group, target_place(group.buffers[group.rank], shared_call.number), shared_call.number + 1, c.root, place)) {
    return false;
  }
  u64 target = find_place(group, place[0], c.root);
  if (target == 0 && place[0] != 0) {
    fail(group, kMismatch | c.root << 8, group.rank, shared_call.header.words, shared_call.header.words);
    return false;
  }
  if (target != 0) target += c.target;
  shared_route.targets[c.root] = target;
  if ((target & 15) != 0) shared_route.unaligned = step + 1;
  return true;
}

// Returns the bytes of the part that this rank combines in a reduce on registered memory. The root combines nothing if the others
// write to its output, or else all of the row.
__device__ __noinline__ u64 direct_reduce_part() {
  const Collective &c = shared;
  if (c.is_root()) return c.target == 0 ? c.bytes : 0;
  if (shared_route.targets[c.root] == 0) return 0;
  return min(c.bytes - min(c.target, c.bytes), whole_part(c.bytes, c.group.size - 1));
}

// Publishes that this block has written its part of a step, and waits for the others' parts. Returns false if the group has
// failed. In the first step of a call the first block compares the headers, and the others digests of them if the call uses
// registered memory. Sets the route of the part that is combined after this, while the others' flags are on their way.
__device__ __noinline__ bool synchronize(u64 step, bool begins, u64 to) {
  const GroupInfo &group = shared.group;
  const Header &header = shared_call.header;
  const u64 call = shared_call.number;
  bool succeeded = true;
  __syncthreads();
  if (threadIdx.x < group.size) {
    const u32 peer = threadIdx.x;
    const u32 peer_failed = shared_call.peer_failed[peer];
    const u64 own_flags = group.buffers[group.rank] + kFlags;
    const u64 flags = static_cast<u64>(blockIdx.x) * kRanks * 8;
    const bool compares = begins && blockIdx.x == 0;
    if (compares) header.send_to(group, call, peer);
    if (begins && shared.is_direct()) {
      // The inputs were complete before the launch, so what the ranks compare is all that they wait for.
      if (!compares) header.send_digest_to(group, call, peer);
      // The host reads this number to see whether a collective runs.
      if (compares && peer == 0) *reinterpret_cast<volatile u64 *>(own_flags + group.rank * 8) = step + 1;
      const bool reduces = shared.is_direct_reduce();
      if (reduces && shared.is_root()) store_packet(target_place(group.buffers[peer], call), shared.target, call + 1);
      set_route(step, to, peer);
      if (peer_failed != 0) fail(group, peer_failed, peer, nullptr, nullptr);
      succeeded = peer_failed == 0 && (compares ? header.matches(group, call, peer) : header.matches_digest(group, call, peer));
      if (reduces && !shared.is_root() && peer == shared.root) succeeded = succeeded && receive_target(step);
    } else {
      // The release covers what the other threads wrote before the barrier.
      store_release(group.buffers[peer] + kFlags + flags + group.rank * 8, step + 1);
      set_route(step, to, peer);
      if (peer_failed != 0) fail(group, peer_failed, peer, nullptr, nullptr);
      succeeded = peer_failed == 0 && (!compares || header.matches(group, call, peer)) &&
            wait(group, own_flags + flags + peer * 8, step + 1, peer);
    }
  }
  return __syncthreads_and(succeeded) != 0;
}

// Takes the first of four values that were loaded, and moves the others up.
__device__ __forceinline__ uint4 take_first(uint4 *next) {
  const uint4 first = next[0];
  next[0] = next[1];
  next[1] = next[2];
  next[2] = next[3];
  return first;
}

// What a rank's part is made of: a copy of the root's.
struct Copy {
  static constexpr bool kReduces = false;
  template <class Unit>
  static __device__ __forceinline__ bool combine(const Collective &c, Unit unit, uint4 &part) {
    return unit(c.root, part);
  }
  // The number of ranks whose units are loaded at a time, as a power of two.
  static __device__ __forceinline__ u32 shift(const Collective &) { return 0; }
  static __device__ __forceinline__ u32 source(const Collective &c, u32) { return c.root; }
  template <class Fetch>
  static __device__ __forceinline__ uint4 combine_loaded(const Collective &, uint4 *next, Fetch) {
    return take_first(next);
  }
};

// The values of all ranks.
template <class Number>
struct Reduction {
  static constexpr bool kReduces = true;
  // `unit` waits for the 16 bytes of a rank. Returns false if the group has failed.
  template <class Unit>
  static __device__ __forceinline__ bool combine(const Collective &c, Unit unit, uint4 &part) {
    uint4 value;
    if (!unit(0, value)) return false;
    Values<Number> sum(value);
#pragma unroll 1
    for (u32 rank = 1; rank < c.group.size; ++rank) {
      if (!unit(rank, value)) return false;
      sum.take(Values<Number>(value), c.op);
    }
    if (c.op == kAverage) sum.divide(c.group.size);
    part = sum.pack();
    return true;
  }
  static __device__ __forceinline__ u32 shift(const Collective &c) { return c.group.size > 2 ? 2 : c.group.size - 1; }
  static __device__ __forceinline__ u32 source(const Collective &, u32 rank) { return rank; }
  // `next` has the units of the first four ranks, or of as many as there are; `fetch` loads those of the following four.
  template <class Fetch>
  static __device__ __forceinline__ uint4 combine_loaded(const Collective &c, uint4 *next, Fetch fetch) {
    Values<Number> sum(take_first(next));
#pragma unroll 1
    for (u32 rank = 1; rank < c.group.size; ++rank) {
      if (rank % 4 == 0) fetch(rank);
      sum.take(Values<Number>(take_first(next)), c.op);
    }
    if (c.op == kAverage) sum.divide(c.group.size);
    return sum.pack();
  }
};

// Combines the own part of `bytes` bytes, and writes it to the own memory, or to the ranks that get data: into their outputs,
// or into their slots of the next step.
template <class Part>
__device__ __forceinline__ void give(const Collective &c, u64 step, u64 bytes, u64 most, bool own) {
  const u64 *sources = shared_route.sources;
  const u64 *targets = shared_route.targets;
  const GroupInfo &group = c.group;
  const Slice slice(bytes, most);
  const u32 thread = threadIdx.x;
  const u32 first = own ? 0 : c.first();
  const u32 last = own ? 1 : c.last();
  const bool aligned = shared_route.unaligned != step + 1;
  u32 start = group.rank + 1;
  if (start < first || start >= last) start = first;
  const u32 end = aligned ? max(slice.begin, min(slice.end, static_cast<u32>(bytes / 16))) : slice.begin;
  // A load from another device takes microseconds, so each thread has four on their way: of four ranks, or of two units of two
  // ranks, or of four units of one.
  const u32 shift = Part::shift(c);
  const u32 together = kThreads * (4u >> shift);
  const auto fetch = [&](u32 unit, u32 rank, uint4 *next) {
#pragma unroll
    for (u32 index = 0; index < 4; ++index) {
      const u32 of = rank + (index & ((1u << shift) - 1));
      const u32 at = unit + (index >> shift) * kThreads;
      // The zeros are not used; without them the registers keep the values of the iteration before.
      next[index] = of < group.size && at < end ? __ldcg(reinterpret_cast<const uint4 *>(sources[Part::source(c, of)]) + at)
                                                : make_uint4(0, 0, 0, 0);
    }
  };
#pragma unroll 1
  for (u32 base = slice.begin + thread; base < end; base += together) {
    uint4 next[4];
    fetch(base, 0, next);
#pragma unroll 1
    for (u32 unit = base; unit < min(base + together, end); unit += kThreads) {
      const uint4 value = Part::combine_loaded(c, next, [&](u32 rank) { fetch(unit, rank, next); });
      u32 peer = start;
#pragma unroll 1
      for (u32 index = first; index < last; ++index) {
        reinterpret_cast<uint4 *>(targets[peer])[unit] = value;
        if (++peer == last) peer = first;
      }
    }
  }
  // The rest: the last unit if it is not whole, and everything if an address is not a multiple of 16.
#pragma unroll 1
  for (u32 unit = end + thread; unit < slice.end; unit += kThreads) {
    const u64 at = 16ull * unit;
    uint4 value;
    Part::combine(c, [&](u32 rank, uint4 &loaded) {
      loaded = load_slowly(reinterpret_cast<const u8 *>(sources[rank] + at), bytes - at);
      return true;
    }, value);
#pragma unroll 1
    for (u32 peer = first; peer < last; ++peer) {
      store_slowly(reinterpret_cast<u8 *>(targets[peer] + at), value, bytes - at);
    }
  }
}

}  // namespace plinth
