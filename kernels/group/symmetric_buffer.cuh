// The buffers of a group's ranks: their layout, and how ranks wait for each other.
#pragma once

namespace plinth {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;
using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;

// As in crates/driver/src/group.rs.
constexpr u32 kRanks = 16;
constexpr u32 kBlocks = 128;
constexpr u32 kThreads = 512;
constexpr u32 kLanes = 64;
constexpr u32 kEntries = 4;
constexpr u32 kRegistrationRows = 32;
constexpr u32 kRegistrationRowBytes = 256;
constexpr u32 kPlaceBits = 40;
constexpr u32 kFailed = 0;
constexpr u32 kReporting = 4;
constexpr u32 kPolled = 8;
constexpr u32 kCounts = 128;
constexpr u32 kPeerFailed = 1024;
constexpr u32 kTurns = 2048;
constexpr u32 kSent = 4096;
constexpr u32 kReceived = 12288;
constexpr u32 kArrived = 20480;
constexpr u32 kConsumed = 28672;
constexpr u32 kFlags = 36864;
constexpr u32 kRingHeaders = 53248;
constexpr u32 kReceiverHeaders = 315392;
constexpr u32 kHeaders = 380928;
constexpr u32 kDigests = 382976;
constexpr u32 kRegistrations = 448512;
constexpr u32 kTargets = 456704;
constexpr u32 kStaging = 460800;

// As GroupInfo there.
struct GroupInfo {
  u64 buffers[kRanks];
  u64 buffer_bytes;
  u64 report;
  u64 timeout;
  u64 eager_transfer;
  u32 rank;
  u32 size;
  u32 slot;
  u32 entry;
  u32 packets;
  u32 piece;
  u32 lanes;
  u32 broadcast;
  u32 short_transfer;
  u32 short_entry;
};

// As ReportPage there.
struct ReportPage {
  u32 stop;
  u32 word;
  u32 by;
  u32 reserved;
  u64 own[4];
  u64 other[4];
};

// As Reason there.
constexpr u32 kTimeout = 1;
constexpr u32 kMismatch = 4;

// The nanoseconds between two reads of the host's memory by the threads of a launch.
constexpr u64 kPollInterval = 100000;

// Eight bytes of data, and a number that tells whether they have arrived. A packet is written and read as a whole, so a rank
// that finds the number needs no fence before it uses the data.
struct Packet {
  u64 data;
  u64 number;
};

#ifdef PLINTH_HOST
// The loads let the other threads of the block run, as a loop that waits must.
__device__ __forceinline__ void store_release(u64 address, u64 value) {
  __atomic_store_n(reinterpret_cast<u64 *>(address), value, __ATOMIC_RELEASE);
}

__device__ __forceinline__ u64 load_acquire(u64 address) {
  plinth_host::poll();
  return __atomic_load_n(reinterpret_cast<const u64 *>(address), __ATOMIC_ACQUIRE);
}

__device__ __forceinline__ u32 load_relaxed(u64 address) {
  plinth_host::poll();
  return __atomic_load_n(reinterpret_cast<const u32 *>(address), __ATOMIC_RELAXED);
}

// The number is written last and read first, so a packet with the number has its data.
__device__ __forceinline__ void store_packet(u64 address, u64 data, u64 number) {
  __atomic_store_n(reinterpret_cast<u64 *>(address), data, __ATOMIC_RELAXED);
  store_release(address + 8, number);
}

__device__ __forceinline__ Packet load_packet(u64 address) {
  const u64 number = load_acquire(address + 8);
  return {__atomic_load_n(reinterpret_cast<const u64 *>(address), __ATOMIC_RELAXED), number};
}

__device__ __forceinline__ Packet load_packet_acquire(u64 address) { return load_packet(address); }

__device__ __forceinline__ u64 nanoseconds() { return clock64(); }
#else
__device__ __forceinline__ void store_release(u64 address, u64 value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

__device__ __forceinline__ u64 load_acquire(u64 address) {
  u64 value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

__device__ __forceinline__ u32 load_relaxed(u64 address) {
  u32 value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

__device__ __forceinline__ void store_packet(u64 address, u64 data, u64 number) {
  asm volatile("{ .reg .b128 packet; mov.b128 packet, {%1, %2}; st.relaxed.sys.global.b128 [%0], packet; }" ::"l"(address),
               "l"(data), "l"(number)
               : "memory");
}

__device__ __forceinline__ Packet load_packet(u64 address) {
  Packet packet;
  asm volatile("{ .reg .b128 packet; ld.relaxed.sys.global.b128 packet, [%2]; mov.b128 {%0, %1}, packet; }"
               : "=l"(packet.data), "=l"(packet.number)
               : "l"(address)
               : "memory");
  return packet;
}

// As above, and loads that follow find what other devices had in memory before.
__device__ __forceinline__ Packet load_packet_acquire(u64 address) {
  Packet packet;
  asm volatile("{ .reg .b128 packet; ld.acquire.sys.global.b128 packet, [%2]; mov.b128 {%0, %1}, packet; }"
               : "=l"(packet.data), "=l"(packet.number)
               : "l"(address)
               : "memory");
  return packet;
}

__device__ __forceinline__ u64 nanoseconds() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
#endif

// Sends 16 bytes in two packets.
__device__ __forceinline__ void store_packets(u64 address, const uint4 &value, u64 number) {
  store_packet(address, value.x | static_cast<u64>(value.y) << 32, number);
  store_packet(address + 16, value.z | static_cast<u64>(value.w) << 32, number);
}

// Returns the 16 bytes of two packets.
__device__ __forceinline__ uint4 unpack(u64 low, u64 high) {
  return make_uint4(static_cast<u32>(low), static_cast<u32>(low >> 32), static_cast<u32>(high), static_cast<u32>(high >> 32));
}

// Marks the group as failed. The first caller reports the reason and writes it to the other ranks' buffers. No caller returns
// before the report is complete: its launch may end next, and the host then takes the absence of a report for success.
__device__ __noinline__ void fail(const GroupInfo &group, u32 word, u32 by, const u64 *own, const u64 *other) {
  const u64 buffer = group.buffers[group.rank];
  if (load_relaxed(buffer + kFailed) != 0) return;
  if (atomicCAS(reinterpret_cast<u32 *>(buffer + kReporting), 0u, word) != 0) {
    while (load_relaxed(buffer + kFailed) == 0) {
    }
    return;
  }
  volatile ReportPage *report = reinterpret_cast<volatile ReportPage *>(group.report);
  report->by = by;
  for (u32 index = 0; index < 4 && own != nullptr; ++index) {
    report->own[index] = own[index];
    report->other[index] = other[index];
  }
  __threadfence_system();
  report->word = word;
  __threadfence_system();
  *reinterpret_cast<volatile u32 *>(buffer + kFailed) = word;
  for (u32 peer = 0; peer < group.size; ++peer) {
    if (peer == group.rank) continue;
    *reinterpret_cast<volatile u32 *>(group.buffers[peer] + kPeerFailed + group.rank * 4) = word;
  }
  __threadfence_system();
}

// Returns the word with which the host stops the group, or 0. A read of the host's memory takes about a microsecond, and those
// of all warps of a device wait for each other. So one thread reads it at a time, and not often.
__device__ __forceinline__ u32 poll_host(const GroupInfo &group, u64 now) {
  u64 *polled = reinterpret_cast<u64 *>(group.buffers[group.rank] + kPolled);
  const u64 last = *reinterpret_cast<volatile u64 *>(polled);
  if (now - last < kPollInterval || atomicCAS(polled, last, now) != last) return 0;
  return load_relaxed(group.report);
}

// Returns whether a wait for `peer` since `start` must end because the group has failed.
__device__ __noinline__ bool should_stop(const GroupInfo &group, u64 start, u32 peer) {
  const u64 buffer = group.buffers[group.rank];
  if (load_relaxed(buffer + kFailed) != 0) return true;
  for (u32 rank = 0; rank < group.size; ++rank) {
    const u32 word = load_relaxed(buffer + kPeerFailed + rank * 4);
    if (word != 0) {
      fail(group, word, rank, nullptr, nullptr);
      return true;
    }
  }
  const u64 now = nanoseconds();
  u32 word = now - start > kPollInterval ? poll_host(group, now) : 0;
  if (word == 0 && group.timeout != 0 && now - start > group.timeout) word = kTimeout | peer << 8;
  if (word == 0) return false;
  fail(group, word, group.rank, nullptr, nullptr);
  return true;
}

// Waits until `arrived` returns true for what `peer` writes. Returns false if the group has failed.
template <class Arrived>
__device__ __forceinline__ bool wait_until(const GroupInfo &group, u32 peer, Arrived arrived) {
  u64 start = 0;
  for (u32 spin = 1; !arrived(); ++spin) {
    if (spin % 64 != 0) continue;
    if (start == 0) start = nanoseconds();
    if (should_stop(group, start, peer)) return false;
  }
  return true;
}

// Waits until a number that `peer` writes is at least `value`.
__device__ __forceinline__ bool wait(const GroupInfo &group, u64 address, u64 value, u32 peer) {
  return wait_until(group, peer, [&] { return load_acquire(address) >= value; });
}

// Waits for as many packets of a number from `peer` as there are in `data`, and loads all of them at a time.
template <bool kAcquires, u32 kPackets>
__device__ __forceinline__ bool wait(const GroupInfo &group, u64 address, u64 number, u32 peer, u64 (&data)[kPackets]) {
  return wait_until(group, peer, [&] {
    bool arrived = true;
#pragma unroll
    for (u32 index = 0; index < kPackets; ++index) {
      const u64 at = address + index * 16;
      const Packet packet = kAcquires && index == kPackets - 1 ? load_packet_acquire(at) : load_packet(at);
      data[index] = packet.data;
      arrived = arrived && packet.number == number;
    }
    return arrived;
  });
}

// Returns the address in this process of a place in the registered memory of a rank, or 0 if there is none.
__device__ __forceinline__ u64 find_place(const GroupInfo &group, u64 place, u32 rank) {
  const u64 number = place >> kPlaceBits;
  const volatile u64 *row = reinterpret_cast<const volatile u64 *>(group.buffers[group.rank] + kRegistrations +
                                                                   number % kRegistrationRows * kRegistrationRowBytes);
  if (number == 0 || row[0] != number) return 0;
  return row[1 + rank] + (place & ((1ull << kPlaceBits) - 1));
}

// Describes a launch, so that ranks detect that their calls do not match.
struct Header {
  u64 words[4];

  // Sends the words in packets.
  __device__ __forceinline__ void send_in_packets(u64 address, u64 number) const {
#pragma unroll
    for (u32 index = 0; index < 4; ++index) store_packet(address + index * 16, words[index], number);
  }

  // Sends the words in packets to the place of this rank in the headers of `peer`.
  __device__ __forceinline__ void send_to(const GroupInfo &group, u64 call, u32 peer) const {
    send_in_packets(place(group.buffers[peer], call, group.rank), call + 1);
  }

  // Waits for the header of `peer`. Returns false if it differs, or if the group has failed.
  __device__ __noinline__ bool matches(const GroupInfo &group, u64 call, u32 peer) const {
    const u64 address = place(group.buffers[group.rank], call, peer);
    u64 other[4];
    return wait<true>(group, address, call + 1, peer, other) && equals(group, other, peer);
  }

  // Sends a digest of the words for this block.
  __device__ __noinline__ void send_digest_to(const GroupInfo &group, u64 call, u32 peer) const {
    store_packet(digest_place(group.buffers[peer], call, group.rank), digest(), call + 1);
  }

  // Waits for the digest of the same block of `peer`. Returns false if it differs, which the first block reports, or if the
  // group has failed.
  __device__ __noinline__ bool matches_digest(const GroupInfo &group, u64 call, u32 peer) const {
    u64 other[1];
    return wait<true>(group, digest_place(group.buffers[group.rank], call, peer), call + 1, peer, other) &&
           other[0] == digest();
  }

  // Returns whether the header of `peer` is the same. If it differs, the group fails.
  __device__ __forceinline__ bool equals(const GroupInfo &group, const u64 *other, u32 peer) const {
    bool same = true;
    for (u32 index = 0; index < 4; ++index) same = same && other[index] == words[index];
    if (!same) fail(group, kMismatch | peer << 8, group.rank, words, other);
    return same;
  }

 private:
  static __device__ __forceinline__ u64 digest_place(u64 buffer, u64 call, u32 from) {
    return buffer + kDigests + (((call & 1) * kBlocks + blockIdx.x) * kRanks + from) * 16;
  }

  __device__ __forceinline__ u64 digest() const {
    u64 sum = 0;
#pragma unroll
    for (u32 index = 0; index < 4; ++index) sum = (sum ^ words[index]) * 0x9E3779B97F4A7C15ull;
    return sum;
  }

  static __device__ __forceinline__ u64 place(u64 buffer, u64 call, u32 from) {
    return buffer + kHeaders + ((call & 1) * kRanks + from) * 64;
  }
};

__device__ __noinline__ uint4 load_slowly(const u8 *from, u64 left) {
  u32 words[4] = {0, 0, 0, 0};
  if (left >= 16 && (reinterpret_cast<u64>(from) & 3) == 0) {
    const u32 *aligned = reinterpret_cast<const u32 *>(from);
    return make_uint4(aligned[0], aligned[1], aligned[2], aligned[3]);
  }
#pragma unroll
  for (u32 index = 0; index < 16; ++index) {
    if (index < left) words[index / 4] |= static_cast<u32>(from[index]) << (index % 4 * 8);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// Loads 16 bytes, or as many as are left.
__device__ __forceinline__ uint4 load(const u8 *from, u64 left, bool aligned) {
  if (aligned && left >= 16) return *reinterpret_cast<const uint4 *>(from);
  return load_slowly(from, left);
}

__device__ __noinline__ void store_slowly(u8 *to, uint4 value, u64 left) {
  const u32 words[4] = {value.x, value.y, value.z, value.w};
  if (left >= 16 && (reinterpret_cast<u64>(to) & 3) == 0) {
#pragma unroll
    for (u32 index = 0; index < 4; ++index) reinterpret_cast<u32 *>(to)[index] = words[index];
    return;
  }
#pragma unroll
  for (u32 index = 0; index < 16; ++index) {
    if (index < left) to[index] = static_cast<u8>(words[index / 4] >> (index % 4 * 8));
  }
}

__device__ __forceinline__ void store(u8 *to, uint4 value, u64 left, bool aligned) {
  if (aligned && left >= 16) {
    *reinterpret_cast<uint4 *>(to) = value;
  } else {
    store_slowly(to, value, left);
  }
}

}  // namespace plinth
