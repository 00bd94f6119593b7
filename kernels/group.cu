// Collectives between processes whose devices see each other's memory.
//
// Each rank has a symmetric buffer, its buffer, that all ranks have mapped. A rank sends data by writing it into a slot of the
// receiver's buffer, and then the number of the step into a flag there, with a release in the scope of the system; so every rank
// spins on its own memory. The number of the step is kept in memory and is no argument of the launch, so that a captured launch
// is correct in every replay. It is kept twice: the first block of a launch writes the next one while other blocks may still have
// to read theirs, and each block knows whose turn it is.
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
// buffer, and two counts: of the chunks that have arrived, which the sender publishes, and of those that are consumed, which the
// receiver publishes, so that the sender overwrites nothing that is still to be read. Both ranks also keep the count in their own
// memory, for the next launch. The header goes in packets, and tells what the sender sends before any data is used. A short
// transfer has all of its data in packets, in a ring of their own, with one chunk in each lane: the receiver waits for each
// packet, and nothing is released. The number of a packet is that of the chunk, and is never used again in its lane. Which
// transfers are short depends on their bytes only, so ranks whose bytes differ may wait for different things; all of their
// waits end when the receiver has found that the headers differ. The sender of a large one, a rendezvous, waits for a header of
// the receiver; if that has a place in registered memory, the sender writes the data there instead of into the ring.
//
// Values are combined in the order of ranks, so every rank gets the same bits, and the same ones each time.
//
// A waiting thread checks from time to time whether the group has failed: the timeout has passed, the host has aborted it, or
// another rank or block has failed. Then it writes the reason to the report and to the other ranks' buffers, and every later
// launch does nothing.
#include "group/collective.cuh"

PLINTH_GROUP(copy, plinth::Copy)
PLINTH_GROUP(f16, plinth::Reduction<plinth::F16>)
PLINTH_GROUP(bf16, plinth::Reduction<plinth::Bf16>)
PLINTH_GROUP(f32, plinth::Reduction<plinth::Real<float>>)
PLINTH_GROUP(f64, plinth::Reduction<plinth::Real<double>>)
PLINTH_GROUP(u8, plinth::Reduction<plinth::Integer<plinth::u8, plinth::u32>>)
PLINTH_GROUP(i8, plinth::Reduction<plinth::Integer<plinth::i8, plinth::i32>>)
PLINTH_GROUP(u16, plinth::Reduction<plinth::Integer<plinth::u16, plinth::u32>>)
PLINTH_GROUP(i16, plinth::Reduction<plinth::Integer<plinth::i16, plinth::i32>>)
PLINTH_GROUP(u32, plinth::Reduction<plinth::Integer<plinth::u32, plinth::u32>>)
PLINTH_GROUP(i32, plinth::Reduction<plinth::Integer<plinth::i32, plinth::i32>>)
PLINTH_GROUP(u64, plinth::Reduction<plinth::Integer<plinth::u64, plinth::u64>>)
PLINTH_GROUP(i64, plinth::Reduction<plinth::Integer<plinth::i64, plinth::i64>>)
PLINTH_GROUP(bool, plinth::Reduction<plinth::Bool>)
PLINTH_GROUP(c64, plinth::Reduction<plinth::Complex<float>>)
PLINTH_GROUP(c128, plinth::Reduction<plinth::Complex<double>>)

extern "C" __global__ void __launch_bounds__(plinth::kThreads, 2)
    plinth_group_transfer(const __grid_constant__ plinth::Transfers all) {
  const plinth::Transfer &transfer = all.transfers[blockIdx.y];
  if (blockIdx.x < transfer.lanes) plinth::transfer(all.group, transfer, blockIdx.x);
}
