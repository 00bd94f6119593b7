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
// outputs, where they are; a second step ends it, after which the inputs may change and the outputs are complete. A rank writes
// nothing before each of its blocks knows that all ranks call for the same places.
//
// Values are combined in the order of ranks, so every rank gets the same bits, and the same ones each time.
//
// A waiting thread checks from time to time whether the group has failed: the timeout has passed, the host has aborted it, or
// another rank or block has failed. Then it writes the reason to the report and to the other ranks' windows, and every later
// launch does nothing.
#include "group/number.cuh"
#include "group/window.cuh"

namespace plinth {

// As Mode in crates/driver/src/group.rs.
enum Mode : u32 {
  kGather = 0,
  kAllToAll = 1,
  kBroadcast = 2,
  kBroadcastParts = 3,
  kReduceScatter = 4,
  kAllReduce = 5,
  kAllReduceParts = 6,
  kReduce = 7,
  kReduceParts = 8,
};

// As Collective there.
struct Collective {
  GroupInfo group;
  u64 from;
  u64 to;
  u64 bytes;
  u64 count;
  u32 mode;
  u32 op;
  u32 element;
  u32 root;
  // The places of registered memory: of the input, and of the output. If both are 0, the data goes through slots.
  u64 places[2];
  // This rank's part of each rank's input, and of each rank's output.
  u64 inputs[kRanks];
  u64 outputs[kRanks];

  __device__ __forceinline__ bool is_direct() const { return (places[0] | places[1]) != 0; }
  __device__ __forceinline__ bool is_root() const { return group.rank == root; }
  __device__ __forceinline__ bool to_root() const { return mode == kReduce || mode == kReduceParts; }
  __device__ __forceinline__ bool by_rows() const { return mode == kAllToAll || mode == kReduceScatter; }
  __device__ __forceinline__ bool by_parts() const {
    return mode == kBroadcastParts || mode == kAllReduceParts || mode == kReduceParts;
  }
  // The ranks that get data from this one in the first step, if it is one.
  __device__ __forceinline__ u32 first() const { return to_root() ? root : 0; }
  __device__ __forceinline__ u32 last() const { return to_root() ? root + 1 : group.size; }
};

// As Transfer there.
struct Transfer {
  u64 address;
  u64 bytes;
  u32 peer;
  u32 sends;
  u32 element;
  u32 lanes;
};

// The collective of the launch, for functions that are not inlined: loads through a reference to a parameter of the kernel are
// loads from global memory, which each acquire makes slow again.
__shared__ Collective shared;

// What else is the same in all steps of the launch: its header, its number, and the failure that each rank has written to the
// own window.
struct Call {
  Header header;
  u64 number;
  u32 poison[kRanks];
};

__shared__ Call shared_call;

constexpr u32 kTransfers = 32;

// As Transfers there.
struct Transfers {
  GroupInfo group;
  Transfer transfers[kTransfers];
};

// The units of 16 bytes of a slot that are this block's, of as many as `bytes` make up. `most` are the bytes of the launch's
// largest step: they are what is divided among the blocks.
struct Slice {
  u32 begin;
  u32 end;

  __device__ Slice(u64 bytes, u64 most) {
    const u32 units = static_cast<u32>((bytes + 15) / 16);
    const u32 each = (static_cast<u32>((most + 15) / 16) + gridDim.x - 1) / gridDim.x;
    begin = min(blockIdx.x * each, units);
    end = min(begin + each, units);
  }
};

__device__ __forceinline__ uint4 *slot_of(const GroupInfo &group, u32 at, u64 step, u32 from) {
  const u64 place = kStaging + ((step & 1) * group.size + from) * group.slot;
  return reinterpret_cast<uint4 *>(group.windows[at] + place);
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

// Copies this block's slice of the data of a rank out of the window.
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

// Publishes that this block has written its part of a step, and waits for the others' parts. Returns false if the group has
// failed. In the first step of a call the first block compares the headers, and so do the others if they are to write into the
// memory of other ranks. Sets the route of the part that is combined after this, while the others' flags are on their way.
__device__ __noinline__ bool meet(u64 step, bool begins, u64 to) {
  const GroupInfo &group = shared.group;
  const Header &header = shared_call.header;
  const u64 call = shared_call.number;
  bool met = true;
  __syncthreads();
  if (threadIdx.x < group.size) {
    const u32 peer = threadIdx.x;
    const u32 poison = shared_call.poison[peer];
    const u64 own_flags = group.windows[group.rank] + kFlags;
    const u64 flags = static_cast<u64>(blockIdx.x) * kRanks * 8;
    const bool compares = begins && blockIdx.x == 0;
    if (compares) header.send_to(group, call, peer);
    if (begins && shared.is_direct()) {
      // The inputs were complete before the launch, so what the ranks compare is all that they wait for.
      if (!compares) header.send_digest_to(group, call, peer);
      // The host reads this number to see whether a collective runs.
      if (compares && peer == 0) *reinterpret_cast<volatile u64 *>(own_flags + group.rank * 8) = step + 1;
      set_route(step, to, peer);
      if (poison != 0) fail(group, poison, peer, nullptr, nullptr);
      met = poison == 0 && (compares ? header.matches(group, call, peer) : header.matches_digest(group, call, peer));
    } else {
      // The release covers what the other threads wrote before the barrier.
      publish(group.windows[peer] + kFlags + flags + group.rank * 8, step + 1);
      set_route(step, to, peer);
      if (poison != 0) fail(group, poison, peer, nullptr, nullptr);
      met = poison == 0 && (!compares || header.matches(group, call, peer)) &&
            await(group, own_flags + flags + peer * 8, step + 1, peer);
    }
  }
  return __syncthreads_and(met) != 0;
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

// The bytes of a part of a chunk of `bytes` bytes. The last parts may be shorter.
__device__ __forceinline__ u64 whole_part(u64 bytes, u32 size) { return ((bytes + size - 1) / size + 15) / 16 * 16; }

// The bytes of a rank's part of a chunk of `bytes` bytes.
__device__ __forceinline__ u64 part_bytes(u64 bytes, u64 each, u32 rank) {
  const u64 begin = each * rank;
  return begin >= bytes ? 0 : min(bytes - begin, each);
}

// The address at rank `at` of the packets from a rank. They follow the slots and the rings.
__device__ __forceinline__ u64 packets_of(const GroupInfo &group, u32 at, u64 step, u32 from) {
  const u64 before = group.size * (2ull * group.slot + static_cast<u64>(kLanes * kEntries) * group.entry);
  return group.windows[at] + kStaging + before + ((step & 1) * group.size + from) * (2ull * group.packets);
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
  value = make_uint4(static_cast<u32>(data[0]), static_cast<u32>(data[0] >> 32), static_cast<u32>(data[1]),
                     static_cast<u32>(data[1] >> 32));
  return true;
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
  const u32 first = c.first();
  const u32 last = c.last();
#pragma unroll 1
  for (u32 unit = begin; unit < units; unit += gridDim.x * kThreads) {
    uint4 value = own_unit(c, first, unit);
#pragma unroll 1
    for (u32 peer = first; peer < last; ++peer) {
      if (c.by_rows()) value = own_unit(c, peer, unit);
      if (peer == group.rank) continue;
      const u64 address = packets_of(group, peer, step, group.rank) + 32ull * unit;
      send(address, value.x | static_cast<u64>(value.y) << 32, number);
      send(address + 16, value.z | static_cast<u64>(value.w) << 32, number);
    }
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
  if (!by_parts && !direct && c.bytes <= group.packets) {
    const bool done = run_packets<Part>(c, step);
    if (__syncthreads_and(done) != 0) end_call(step + 1);
    return;
  }
  const u64 slots = by_parts ? static_cast<u64>(group.slot) * size : group.slot;
  const u64 chunk = direct ? c.bytes : slots;
  // What a slot gets in the first step: no later one has more.
  const u64 most = by_parts ? whole_part(min(c.bytes, chunk), size) : min(c.bytes, chunk);
  u64 offset = 0;
#pragma unroll 1
  do {
    const u64 bytes = min(c.bytes - offset, chunk);
    const u64 part = by_parts ? part_bytes(bytes, whole_part(bytes, size), group.rank) : bytes;
    send_chunk(step, offset, bytes, most);
    const bool own = !by_parts && c.mode != kGather;
    if (!meet(step, offset == 0, own ? c.to + offset : 0)) return;
    if (by_parts || direct || (Part::kReduces && (!c.to_root() || c.is_root()))) {
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

extern "C" __global__ void __launch_bounds__(plinth::kThreads)
    plinth_group_transfer(const __grid_constant__ plinth::Transfers all) {
  const plinth::Transfer &transfer = all.transfers[blockIdx.y];
  if (blockIdx.x < transfer.lanes) plinth::transfer(all.group, transfer, blockIdx.x);
}
