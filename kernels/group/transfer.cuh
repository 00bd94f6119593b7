// Sending and receiving between two ranks.
#pragma once

#include "registered.cuh"

namespace plinth {

// Waits for the other rank's header of a transfer, in which only the receiver knows the place. Returns false if it differs, or if
// the group has failed. The receiver reports a difference; the sender waits until it has.
__device__ __noinline__ bool receive_header(const GroupInfo &group, Header header, bool sends, u64 address, u64 number, u32 peer,
                                            u64 &place) {
  u64 words[4];
  if (!wait<true>(group, address, number, peer, words)) return false;
  header.words[3] = place = words[3];
  if (!sends) return header.equals(group, words, peer);
  const bool is_same =
      words[0] == header.words[0] && words[1] == header.words[1] && words[2] == header.words[2];
  return is_same || wait_until(group, peer, [] { return false; });
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
    const u64 own = group.buffers[group.rank];
    const u64 other = group.buffers[t.peer];
    begin = min(t.part * lane, t.bytes);
    end = min(begin + t.part, t.bytes);
    first = *reinterpret_cast<volatile u64 *>(counter());
    incoming = own + (sends ? kConsumed : kArrived) + (t.peer * kLanes + lane) * 8;
    outgoing = other + (sends ? kArrived : kConsumed) + (group.rank * kLanes + lane) * 8;
  }

  __device__ __forceinline__ u64 counter() const {
    return group.buffers[group.rank] + (sends ? kSent : kReceived) + (t.peer * kLanes + lane) * 8;
  }

  // Whether all data goes in packets. All ranks decide by the bytes of the transfer, which the headers have.
  __device__ __forceinline__ bool is_short() const { return t.bytes <= group.short_transfer; }

  // Whether the sender sends before it knows that the receiver is there, as far as the ring has room. Of other transfers, which
  // are a rendezvous, the receiver sends a header too.
  __device__ __forceinline__ bool is_eager() const { return t.bytes <= group.eager_transfer; }

  // The number of its first packets.
  __device__ __forceinline__ u64 packet_number() const { return first + 1; }

  // The number of chunks that are published at once: half a ring, so that the receiver reads while the sender writes.
  __device__ __forceinline__ u64 together() const { return min(t.chunks, static_cast<u64>(kEntries / 2)); }

  __device__ __forceinline__ u32 from() const { return sends ? group.rank : t.peer; }
  __device__ __forceinline__ u64 buffer() const { return group.buffers[sends ? t.peer : group.rank]; }
  __device__ __forceinline__ u64 rings() const { return buffer() + kStaging + 2ull * group.size * group.slot; }

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

  // The address of the sender's header at the receiver.
  __device__ __forceinline__ u64 sender_header() const {
    return buffer() + kRingHeaders + ((from() * kLanes + lane) * kEntries + first % kEntries) * 64;
  }

  // The address of the receiver's header at the sender.
  __device__ __forceinline__ u64 receiver_header() const {
    const u32 to = sends ? t.peer : group.rank;
    return group.buffers[from()] + kReceiverHeaders + (to * kLanes + lane) * 64;
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
        if (unit < end) store_packets(to + 2 * (unit - begin), values[index], packet_number());
      }
      load_units(at + 2 * kStride, values);
    }
  }

  // Receives the data from packets. The first threads compare a word of the header each, but for the place: if it differs, not
  // all packets of the data may arrive. Returns false if the group has failed.
  __device__ __forceinline__ bool receive_short() const {
    const u64 from = packets();
    const u64 header_at = sender_header() + 16 * threadIdx.x;
    const bool compares = threadIdx.x < 3;
    const Header expected = header();
    const u64 word = threadIdx.x == 0 ? expected.words[0] : threadIdx.x == 1 ? expected.words[1] : expected.words[2];
    u64 at = begin + 16ull * threadIdx.x;
#pragma unroll 1
    do {
      uint4 values[2];
      bool same = true;
      const bool succeeded = wait_until(group, t.peer, [&] {
        bool arrived = true;
#pragma unroll
        for (u32 index = 0; index < 2; ++index) {
          const u64 unit = at + index * kStride;
          if (unit >= end) continue;
          const Packet low = load_packet(from + 2 * (unit - begin));
          const Packet high = load_packet(from + 2 * (unit - begin) + 16);
          values[index] = unpack(low.data, high.data);
          arrived = arrived && low.number == packet_number() && high.number == packet_number();
        }
        if (compares) {
          const Packet packet = load_packet(header_at);
          arrived = arrived && packet.number == packet_number();
          same = packet.number != packet_number() || packet.data == word;
        }
        return arrived || !same;
      });
      if (!succeeded) return false;
      u64 place = 0;
      // Reports how the headers differ.
      if (!same && !receive_header(group, expected, sends, sender_header(), packet_number(), t.peer, place)) return false;
#pragma unroll
      for (u32 index = 0; index < 2; ++index) {
        const u64 unit = at + index * kStride;
        if (unit < end) store(memory(unit), values[index], end - unit, aligned());
      }
      at += 2 * kStride;
    } while (at < end);
    return true;
  }

  // Sends the header when there is room for it and for what is sent first; `published` is how many chunks the peer had consumed.
  // In a rendezvous, waits for the receiver, and sets `direct` to the address of its memory, or to 0 if the data goes through the
  // ring. Returns false if the group has failed.
  __device__ __forceinline__ bool begin_send(u64 published, u64 &direct) const {
    const u64 last = first + (is_eager() ? together() : 1);
    if (last > published + kEntries && !wait(group, incoming, last - kEntries, t.peer)) return false;
    header().send_in_packets(sender_header(), packet_number());
    direct = 0;
    if (is_eager()) return true;
    u64 place = 0;
    if (!receive_header(group, header(), sends, receiver_header(), packet_number(), t.peer, place)) return false;
    direct = find_place(group, place, t.peer);
    if (place == 0 || direct != 0) return true;
    Header unknown = header();
    unknown.words[3] = place;
    fail(group, kMismatch | t.peer << 8, group.rank, unknown.words, unknown.words);
    return false;
  }

  // Waits for the header, and for the first chunks, or for all data if the sender writes to this rank's memory, as `direct` then
  // tells.
  __device__ __forceinline__ bool begin_receive(u64 &direct) const {
    if (!is_eager()) header().send_in_packets(receiver_header(), packet_number());
    u64 place = 0;
    if (!receive_header(group, header(), sends, sender_header(), packet_number(), t.peer, place)) return false;
    direct = t.place;
    return wait(group, incoming, first + (direct != 0 ? t.chunks : together()), t.peer);
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
      store_release(outgoing, count);
    } else {
      *reinterpret_cast<volatile u64 *>(outgoing) = count;
    }
  }
};

// Transfers the data of a lane. Of a short transfer, all of it is sent in packets, in one chunk of each lane. Of a longer one the
// sender publishes how many chunks have arrived. If a rendezvous is to registered memory, the receiver's header has its place, and
// the sender writes there; this counts as all chunks of the lane.
__device__ __forceinline__ void transfer(const GroupInfo &group, const Transfer &t, u32 index) {
  __shared__ u64 direct;
  const u64 own = group.buffers[group.rank];
  const u32 thread = threadIdx.x;
  // Not the thread that publishes, so that it waits while that one releases what the block has written.
  const bool waits = thread == kThreads - 1;
  // None of these loads waits for another one.
  const u32 failed = load_relaxed(own + kFailed);
  const u32 peer_failed = thread < group.size ? load_relaxed(own + kPeerFailed + thread * 4) : 0;
  const Lane lane(group, t, index);
  const u64 published = *reinterpret_cast<volatile u64 *>(lane.incoming);
  uint4 values[2];
  if (lane.is_short() && lane.sends) lane.load_units(lane.begin + 16ull * thread, values);
  if (peer_failed != 0) fail(group, peer_failed, thread, nullptr, nullptr);
  bool succeeded = failed == 0 && peer_failed == 0;
  if (waits && succeeded && lane.sends) {
    succeeded = lane.begin_send(published, direct);
  } else if (waits && succeeded && !lane.is_short()) {
    succeeded = lane.begin_receive(direct);
  }
  if (__syncthreads_and(succeeded) == 0) return;
  const u64 last = lane.first + t.chunks;
  if (lane.is_short() && lane.sends) {
    lane.send_short(values);
  } else if (lane.is_short()) {
    if (__syncthreads_and(lane.receive_short()) == 0) return;
    if (thread == 0) lane.publish_chunks(last);
  } else if (direct != 0) {
    if (lane.sends) {
      copy_range(reinterpret_cast<const u8 *>(t.address), nullptr, 0, direct, lane.begin, lane.end);
      __syncthreads();
    }
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
      const u64 needed = !lane.sends ? chunk + count : chunk + count < kEntries ? 0 : chunk + count - kEntries;
      if (__syncthreads_and(!waits || wait(group, lane.incoming, needed, t.peer)) == 0) return;
    }
  }
  if (thread == 0) *reinterpret_cast<volatile u64 *>(lane.counter()) = last;
}

}  // namespace plinth
