// What a launch is to do, and what its threads know of it.
#pragma once

#include "symmetric_buffer.cuh"

namespace plinth {

// As Mode in crates/driver/src/group.rs.
enum Mode : u32 {
  kAllGather = 0,
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
  // What this rank reads of each rank's input, and writes of each rank's output. In a broadcast, the whole row.
  u64 inputs[kRanks];
  u64 outputs[kRanks];
  // In a reduce, at the root: the place of its output, if the others write to it, or 0. At the others: the offset of their part.
  u64 target;

  __device__ __forceinline__ bool is_direct() const { return (places[0] | places[1]) != 0; }
  __device__ __forceinline__ bool is_root() const { return group.rank == root; }
  __device__ __forceinline__ bool to_root() const { return mode == kReduce || mode == kReduceParts; }
  __device__ __forceinline__ bool is_direct_reduce() const { return is_direct() && mode == kReduceParts; }
  __device__ __forceinline__ bool by_rows() const { return mode == kAllToAll || mode == kReduceScatter; }
  __device__ __forceinline__ bool has_parts() const {
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
  // The bytes of each lane, a multiple of 16, of which the last lanes may have less; and its chunks.
  u64 part;
  u64 chunks;
  u32 peer;
  u32 sends;
  u32 element;
  u32 lanes;
  // At the receiver of a rendezvous: the place of its memory, if the sender writes to it; else 0.
  u64 place;
};

// The collective of the launch, for functions that are not inlined: loads through a reference to a parameter of the kernel are
// loads from global memory, which each acquire makes slow again.
__shared__ Collective shared;

// What else is the same in all steps of the launch: its header, its number, its turn, and the failure that each rank has written
// to the own buffer.
struct Call {
  Header header;
  u64 number;
  u32 turn;
  u32 peer_failed[kRanks];
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
  return reinterpret_cast<uint4 *>(group.buffers[at] + place);
}

}  // namespace plinth
