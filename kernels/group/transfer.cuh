// Sending and receiving between two ranks.
#pragma once

#include "registered.cuh"

namespace plinth {

// Waits for the header of a transfer's first chunk. Returns false if it differs, except for the place, which only the sender
// knows, or if the group has failed.
__device__ __noinline__ bool receive_header(const GroupInfo &group, Header header, u64 address, u64 number, u32 peer,
                                            u64 &place) {
  u64 words[4];
  if (!await<true>(group, address, number, peer, words)) return false;
  header.words[3] = place = words[3];
  return header.equals(group, words, peer);
}

// A block's part of a transfer. The chunks of all transfers in a lane are numbered, and the header of a transfer is sent in
// packets with the number of its first chunk. The receiver has room for `kEntries` chunks, and publishes how many it has
// consumed.
struct Lane {
  static constexpr u64 kStride = 16ull * kThreads;

  const GroupInfo &group;
  const Transfer &t;
  // The index of the lane among those of the rank that it comes from.
  u32 lane;
  bool sends;
  // The bytes that go through it.
  u64 begin;
  u64 end;
  // The number of its chunks that earlier launches have transferred.
  u64 first;
  // What the peer publishes, and what this rank does.
  u64 incoming;
  u64 outgoing;

  __device__ __forceinline__ Lane(const GroupInfo &group, const Transfer &t, u32 lane)
      : group(group), t(t), lane(lane), sends(t.sends != 0) {
    const u64 own = group.windows[group.rank];
    const u64 other = group.windows[t.peer];
    begin = min(t.part * lane, t.bytes);
    end = min(begin + t.part, t.bytes);
    first = *reinterpret_cast<volatile u64 *>(counter());
    incoming = own + (sends ? kTaken : kArrived) + (t.peer * kLanes + lane) * 8;
    outgoing = other + (sends ? kArrived : kTaken) + (group.rank * kLanes + lane) * 8;
  }

  __device__ __forceinline__ u64 counter() const {
    return group.windows[group.rank] + (sends ? kSent : kReceived) + (t.peer * kLanes + lane) * 8;
  }

  // Whether all data goes in packets. All ranks decide by the bytes of the transfer, which the headers have.
  __device__ __forceinline__ bool is_short() const { return t.bytes <= group.short_transfer; }

  // The number of its first packets.
  __device__ __forceinline__ u64 number() const { return first + 1; }

  // The number of chunks that are published at once: all that there are if they fit into the ring, otherwise half a ring.
  __device__ __forceinline__ u64 together() const { return t.chunks <= kEntries ? t.chunks : kEntries / 2; }

  __device__ __forceinline__ u32 from() const { return sends ? group.rank : t.peer; }
  __device__ __forceinline__ u64 window() const { return group.windows[sends ? t.peer : group.rank]; }
  __device__ __forceinline__ u64 rings() const { return window() + kStaging + 2ull * group.size * group.slot; }

  // The address of a chunk at the receiver.
  __device__ __forceinline__ u64 chunk_of(u32 entry) const {
    return rings() + static_cast<u64>((from() * group.lanes + lane) * kEntries + entry) * group.entry;
  }

  // The address of the packets of a short transfer at the receiver, where nothing but packets is written: so what an earlier
  // transfer has left there has another number.
  __device__ __forceinline__ u64 packets() const {
    const u32 index = (from() * group.lanes + lane) * kEntries + first % kEntries;
    return rings() + static_cast<u64>(group.size * group.lanes * kEntries) * group.entry + 2ull * index * group.short_entry;
  }

  // The address of the header at the receiver.
  __device__ __forceinline__ u64 described() const {
    return window() + kRingHeaders + ((from() * kLanes + lane) * kEntries + first % kEntries) * 64;
  }

  __device__ __forceinline__ Header header() const {
    return {0x40 | static_cast<u64>(t.element) << 16, t.bytes, t.lanes, t.place};
  }

  __device__ __forceinline__ u8 *memory(u64 at) const { return reinterpret_cast<u8 *>(t.address) + at; }
  __device__ __forceinline__ bool aligned() const { return (t.address & 15) == 0; }

  // Loads the two units of this thread at an offset and a stride behind it.
  __device__ __forceinline__ void load_units(u64 at, uint4 (&values)[2]) const {
#pragma unroll
    for (u32 index = 0; index < 2; ++index) {
      const u64 unit = at + index * kStride;
      if (unit < end) values[index] = load(memory(unit), end - unit, aligned());
    }
  }

  // Sends the data in packets. The first units are loaded already.
  __device__ __forceinline__ void send_short(uint4 (&values)[2]) const {
    const u64 to = packets();
#pragma unroll 1
    for (u64 at = begin + 16ull * threadIdx.x; at < end; at += 2 * kStride) {
#pragma unroll
      for (u32 index = 0; index < 2; ++index) {
        const u64 unit = at + index * kStride;
        if (unit < end) send_value(to + 2 * (unit - begin), values[index], number());
      }
      load_units(at + 2 * kStride, values);
    }
  }

  // Receives the data from packets. The first threads compare a word of the header each, but for the place: if it differs, not
  // all packets of the data may arrive. Returns false if the group has failed.
  __device__ __forceinline__ bool receive_short() const {
    const u64 from = packets();
    const u64 header_at = described() + 16 * threadIdx.x;
    const bool compares = threadIdx.x < 3;
    const Header expected = header();
    const u64 word = threadIdx.x == 0 ? expected.words[0] : threadIdx.x == 1 ? expected.words[1] : expected.words[2];
    u64 at = begin + 16ull * threadIdx.x;
#pragma unroll 1
    do {
      uint4 values[2];
      bool same = true;
      const bool met = wait_until(group, t.peer, [&] {
        bool arrived = true;
#pragma unroll
        for (u32 index = 0; index < 2; ++index) {
          const u64 unit = at + index * kStride;
          if (unit >= end) continue;
          const Packet low = receive(from + 2 * (unit - begin));
          const Packet high = receive(from + 2 * (unit - begin) + 16);
          values[index] = value_of(low.data, high.data);
          arrived = arrived && low.number == number() && high.number == number();
        }
        if (compares) {
          const Packet packet = receive(header_at);
          arrived = arrived && packet.number == number();
          same = packet.number != number() || packet.data == word;
        }
        return arrived || !same;
      });
      if (!met) return false;
      u64 place = 0;
      // Reports how the headers differ.
      if (!same && !receive_header(group, expected, described(), number(), t.peer, place)) return false;
#pragma unroll
      for (u32 index = 0; index < 2; ++index) {
        const u64 unit = at + index * kStride;
        if (unit < end) store(memory(unit), values[index], end - unit, aligned());
      }
      at += 2 * kStride;
    } while (at < end);
    return true;
  }

  // Waits for room for what is sent first. `published` is how many chunks the peer had consumed. Returns false if the group has
  // failed.
  __device__ __forceinline__ bool await_room(u64 published) const {
    const u64 last = first + (t.place != 0 ? 1 : together());
    return last <= published + kEntries || await(group, incoming, last - kEntries, t.peer);
  }

  // Waits for the header, and for the first chunks unless `source` is where the receiver reads the data.
  __device__ __forceinline__ bool begin_receive(u64 &source) const {
    u64 place = 0;
    if (!receive_header(group, header(), described(), number(), t.peer, place)) return false;
    source = find_place(group, place, t.peer);
    if (place == 0) return await(group, incoming, first + together(), t.peer);
    if (source != 0) return true;
    Header unknown = header();
    unknown.words[3] = place;
    fail(group, kMismatch | t.peer << 8, group.rank, unknown.words, unknown.words);
    return false;
  }

  // Copies chunks from or to the ring, from an offset of the data on, which it moves.
  __device__ __forceinline__ void copy_chunks(u64 chunk, u64 next, u64 &at) const {
#pragma unroll 1
    while (chunk < next) {
      const u32 entry = chunk % kEntries;
      const u64 count = min(next - chunk, static_cast<u64>(kEntries - entry));
      const u64 bytes = min(count * group.entry, end - at);
      const u64 from = sends ? t.address + at : chunk_of(entry);
      const u64 to = sends ? chunk_of(entry) : t.address + at;
      copy_range(reinterpret_cast<const u8 *>(from), nullptr, 0, to, 0, bytes);
      chunk += count;
      at += bytes;
    }
  }

  // Publishes that chunks have arrived, or are consumed, after a barrier of the block. A release covers what the other threads
  // wrote before the barrier. What is consumed needs none: a thread reaches the barrier only when its loads have returned,
  // because it has waited for what they load, or has stored it.
  __device__ __forceinline__ void publish_chunks(u64 count) const {
    if (sends) {
      publish(outgoing, count);
    } else {
      *reinterpret_cast<volatile u64 *>(outgoing) = count;
    }
  }
};

// Transfers the data of a lane. Of a short transfer, all of it is sent in packets, in one chunk of each lane. Of a longer one the
// sender publishes how many chunks have arrived. If what is sent is in registered memory, the header has its place, and the
// receiver copies from where the memory is; this counts as all chunks of the lane.
__device__ __forceinline__ void transfer(const GroupInfo &group, const Transfer &t, u32 index) {
  __shared__ u64 source;
  const u64 own = group.windows[group.rank];
  const u32 thread = threadIdx.x;
  // Not the thread that publishes, so that it waits while that one releases what the block has written.
  const bool waits = thread == kThreads - 1;
  // None of these loads waits for another one.
  const u32 failed = peek(own + kFailed);
  const u32 poison = thread < group.size ? peek(own + kPoison + thread * 4) : 0;
  const Lane lane(group, t, index);
  const u64 published = *reinterpret_cast<volatile u64 *>(lane.incoming);
  uint4 values[2];
  if (lane.is_short() && lane.sends) lane.load_units(lane.begin + 16ull * thread, values);
  if (poison != 0) fail(group, poison, thread, nullptr, nullptr);
  bool met = failed == 0 && poison == 0;
  if (waits && met && lane.sends) {
    source = t.place;
    met = lane.await_room(published);
  } else if (waits && met && !lane.is_short()) {
    met = lane.begin_receive(source);
  }
  if (__syncthreads_and(met) == 0) return;
  const u64 last = lane.first + t.chunks;
  // By a thread that often has no data.
  if (waits && lane.sends) lane.header().send_in_packets(lane.described(), lane.number());
  if (lane.is_short() && lane.sends) {
    lane.send_short(values);
  } else if (lane.is_short()) {
    if (__syncthreads_and(lane.receive_short()) == 0) return;
    if (thread == 0) lane.publish_chunks(last);
  } else if (source != 0 && lane.sends) {
    if (__syncthreads_and(!waits || await(group, lane.incoming, last, t.peer)) == 0) return;
  } else if (source != 0) {
    copy_range(reinterpret_cast<const u8 *>(source), nullptr, 0, t.address, lane.begin, lane.end);
    __syncthreads();
    if (thread == 0) lane.publish_chunks(last);
  } else {
    u64 at = lane.begin;
    u64 count = lane.together();
#pragma unroll 1
    for (u64 chunk = lane.first;;) {
      lane.copy_chunks(chunk, chunk + count, at);
      chunk += count;
      __syncthreads();
      if (thread == 0) lane.publish_chunks(chunk);
      if (chunk == last) break;
      count = min(count, last - chunk);
      // If not all chunks are published at once, there are more than the ring has room for: the difference is not negative.
      const u64 needed = lane.sends ? chunk + count - kEntries : chunk + count;
      if (__syncthreads_and(!waits || await(group, lane.incoming, needed, t.peer)) == 0) return;
    }
  }
  if (thread == 0) *reinterpret_cast<volatile u64 *>(lane.counter()) = last;
}

}  // namespace plinth
