// The kernels of process groups: what the host device runs in their place against kernels/group.cu, compiled for the host
// device. The ranks are streams of this process. Each version runs with buffers of its own: the host device's has no packets
// and other headers. Results must be the same, bit for bit; where a NaN is computed, any NaN.
//
// device: host
// timeout: 240
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "kernels_library.h"

namespace {

constexpr std::uint32_t kRanks = 16, kThreads = 512, kStaging = 460800, kRegistrations = 448512, kTransfers = 32, kEntries = 4;
constexpr std::uint32_t kSlot = 1024, kEntry = 512, kLanes = 3, kPackets = 4096, kBroadcastPackets = 8192, kPiece = 256;
constexpr std::uint32_t kShortTransfer = 768, kShortEntry = kShortTransfer / kLanes;
constexpr std::uint64_t kPlace = 1ull << 40, kEagerTransfer = 4000;

/* As in kernels/group/symmetric_buffer.cuh and launch.cuh. */
struct GroupInfo {
  std::uint64_t buffers[kRanks];
  std::uint64_t buffer_bytes, report, timeout, eager_transfer;
  std::uint32_t rank, size, slot, entry, packets, piece, lanes, broadcast, short_transfer, short_entry;
};
struct ReportPage {
  std::uint32_t stop, word, by, reserved;
  std::uint64_t own[4], other[4];
};
enum Mode : std::uint32_t {
  kAllGather,
  kAllToAll,
  kBroadcast,
  kBroadcastParts,
  kReduceScatter,
  kAllReduce,
  kAllReduceParts,
  kReduce,
  kReduceParts
};
struct Collective {
  GroupInfo group;
  std::uint64_t from, to, bytes, count;
  std::uint32_t mode, op, element, root;
  std::uint64_t places[2], inputs[kRanks], outputs[kRanks], target;
};
struct Transfer {
  std::uint64_t address, bytes, part, chunks;
  std::uint32_t peer, sends, element, lanes;
  std::uint64_t place;
};
struct Transfers {
  GroupInfo group;
  Transfer transfers[kTransfers];
};
constexpr std::uint32_t kTimeout = 1, kMismatch = 4;

/* How the data goes. */
/* The input of an all_to_all is used only if its output is not registered. */
enum Path { kSlots, kInPackets, kRegistered, kRegisteredInput };

/* What a collective does, with rows of so many bytes. Inputs and outputs begin `offset` bytes after a multiple of 256. */
struct Call {
  Mode mode;
  Path path;
  std::uint32_t op, element, root;
  std::size_t bytes, width, offset;
  std::uint32_t blocks;

  std::size_t in_rows(std::size_t size) const { return mode == kAllToAll || mode == kReduceScatter ? size : 1; }
  std::size_t out_rows(std::size_t size) const { return mode == kAllGather || mode == kAllToAll ? size : 1; }
  std::size_t in_bytes(std::size_t size) const { return (in_rows(size) * bytes + offset + 255) / 256 * 256 + 256; }
  std::size_t all_bytes(std::size_t size) const { return in_bytes(size) + out_rows(size) * bytes + offset; }
};

std::uint64_t address(const void *pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

std::size_t up_to_16(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

/* The ranks of a group, each with a stream and a buffer. */
class Group {
 public:
  explicit Group(std::uint32_t size) : size_(size), streams_(size), infos_(size) {
    /* Kernels compare counters and packets with numbers of steps, so they are 0; the data of slots and chunks is not compared. */
    const std::size_t chunks_end = kStaging + std::size_t(size) * (2 * kSlot + kLanes * kEntries * kEntry);
    const std::size_t bytes = chunks_end + std::size_t(size) * (2 * kLanes * kEntries * kShortEntry + 4 * kBroadcastPackets);
    std::vector<std::uint64_t> contents(bytes / 8);
    std::fill(contents.begin() + kStaging / 8, contents.begin() + chunks_end / 8, 0x1FFFFFFFF);
    for (std::uint32_t rank = 0; rank < size; rank++) {
      buffers_.emplace_back(new Device<std::uint64_t>(contents));
      reports_.emplace_back(new Device<ReportPage>(1));
    }
    for (std::uint32_t rank = 0; rank < size; rank++) {
      GroupInfo &info = infos_[rank];
      for (std::uint32_t peer = 0; peer < size; peer++) info.buffers[peer] = address(buffers_[peer]->get());
      info.buffer_bytes = bytes;
      info.report = address(reports_[rank]->get());
      info.timeout = 20000000000;
      info.eager_transfer = kEagerTransfer;
      info.rank = rank;
      info.size = size;
      info.slot = kSlot;
      info.entry = kEntry;
      info.piece = kPiece;
      info.lanes = kLanes;
      info.short_transfer = kShortTransfer;
      info.short_entry = kShortEntry;
    }
  }

  std::uint32_t size() const { return size_; }
  GroupInfo &info(std::uint32_t rank) { return infos_[rank]; }
  const plinth::Stream &stream(std::uint32_t rank) const { return streams_[rank]; }
  ReportPage report(std::uint32_t rank) const { return reports_[rank]->read()[0]; }

  /* Registers memory of each rank, with the number 1. */
  void list(const std::vector<std::uint64_t> &memory) {
    std::vector<std::uint64_t> row = {1};
    row.insert(row.end(), memory.begin(), memory.end());
    for (const auto &buffer : buffers_) {
      plinth::copy(buffer->get() + (kRegistrations + 256) / 8, row.data(), row.size() * 8);
    }
    plinth::synchronize(0);
  }

 private:
  std::uint32_t size_;
  std::vector<plinth::Stream> streams_;
  std::vector<GroupInfo> infos_;
  std::vector<std::unique_ptr<Device<std::uint64_t>>> buffers_;
  std::vector<std::unique_ptr<Device<ReportPage>>> reports_;
};

/* Sets the registered memory of a call, as src/collectives/processes/group_registration.rs does. */
void use_registered(const Call &call, const std::vector<std::uint64_t> &memory, std::uint32_t rank, Collective *c) {
  const std::size_t size = memory.size(), bytes = call.bytes;
  const std::uint64_t in = call.offset, out = call.in_bytes(size) + call.offset;
  const auto inputs = [&](std::uint64_t offset) {
    c->places[0] = kPlace | in;
    for (std::size_t peer = 0; peer < size; peer++) c->inputs[peer] = memory[peer] + in + offset;
  };
  const auto outputs = [&](std::uint64_t offset) {
    c->places[1] = kPlace | out;
    for (std::size_t peer = 0; peer < size; peer++) c->outputs[peer] = memory[peer] + out + offset;
  };
  switch (call.mode) {
    case kAllReduceParts: {
      const std::size_t each = up_to_16((bytes + size - 1) / size);
      inputs(rank * each);
      outputs(rank * each);
      break;
    }
    case kAllGather:
      outputs(rank * bytes);
      c->inputs[0] = c->from;
      break;
    case kBroadcastParts: outputs(0); break;
    case kReduceScatter: inputs(rank * bytes); break;
    case kAllToAll:
      if (call.path == kRegistered) {
        outputs(rank * bytes);
      } else {
        inputs(rank * bytes);
      }
      break;
    default: {
      const std::size_t each = up_to_16((bytes + size - 2) / (size - 1)), index = (rank + size - call.root) % size;
      c->target = index > 0 ? each * (index - 1) : size == 2 ? 0 : kPlace | out;
      inputs(index > 0 ? std::min<std::uint64_t>(c->target, bytes) : 0);
    }
  }
}

/* Runs a collective on all ranks. Returns what is then in the memory of each. */
Bytes run(Group &group, const plinth::Kernel &kernel, const Call &call, const std::vector<Bytes> &inputs) {
  const std::uint32_t size = group.size();
  std::vector<std::unique_ptr<Device<unsigned char>>> memory;
  std::vector<std::uint64_t> addresses;
  for (const Bytes &input : inputs) {
    Bytes bytes(call.all_bytes(size), 0x5A);
    std::copy(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(call.in_rows(size) * call.bytes),
              bytes.begin() + static_cast<std::ptrdiff_t>(call.offset));
    memory.emplace_back(new Device<unsigned char>(bytes));
    addresses.push_back(address(memory.back()->get()));
  }
  group.list(addresses);
  for (std::uint32_t rank = 0; rank < size; rank++) {
    Collective c = {};
    c.group = group.info(rank);
    c.group.packets = call.path == kInPackets ? kPackets : 0;
    c.group.broadcast = call.path == kInPackets ? kBroadcastPackets : 0;
    c.from = addresses[rank] + call.offset;
    c.to = addresses[rank] + call.in_bytes(size) + call.offset;
    c.bytes = call.bytes;
    c.count = call.bytes / call.width;
    c.mode = call.mode;
    c.op = call.op;
    c.element = call.element;
    c.root = call.root;
    if (call.path >= kRegistered) use_registered(call, addresses, rank, &c);
    kernel(Launch({call.blocks}, {kThreads}).on(group.stream(rank)), c);
  }
  Bytes all;
  for (std::uint32_t rank = 0; rank < size; rank++) {
    const Bytes bytes = memory[rank]->read();
    all.insert(all.end(), bytes.begin() + static_cast<std::ptrdiff_t>(call.in_bytes(size)), bytes.end());
  }
  for (std::uint32_t rank = 0; rank < size; rank++) CHECK_EQ(group.report(rank).word, 0u);
  return all;
}

const Reduction kTypes[] = {
    {"f16", 2, true},  {"bf16", 2, true},  {"f32", 4, true},   {"f64", 8, true},   {"u8", 1, false},
    {"i8", 1, false},  {"u16", 2, false},  {"i16", 2, false},  {"u32", 4, false},  {"i32", 4, false},
    {"u64", 8, false}, {"i64", 8, false},  {"bool", 1, false}, {"c64", 4, true},   {"c128", 8, true},
    {"e4m3", 1, true}, {"e5m2", 1, true},
};
constexpr std::size_t kFloat8 = 15;

/* Runs a collective by both versions in each way in which it can go. */
void compare(const Pair &pair, Group &own, Group &source, Mode mode, std::uint32_t op, const Reduction &type,
             std::uint32_t element) {
  const std::uint32_t size = own.size();
  const std::size_t width = type.type[0] == 'c' ? 2 * type.width : type.width;
  const bool has_parts = mode == kBroadcastParts || mode == kAllReduceParts || mode == kReduceParts;
  for (const Path path : {kSlots, kInPackets, kRegistered, kRegisteredInput}) {
    if (path == kInPackets && has_parts) continue;
    if (path == kRegisteredInput && mode != kAllToAll) continue;
    if (path == kRegistered && (mode == kBroadcast || mode == kAllReduce || mode == kReduce)) continue;
    const std::size_t most = path == kInPackets ? (mode == kBroadcast ? kBroadcastPackets : kPackets) : 10 * kSlot;
    for (const std::size_t count : {std::size_t(5), most / width - 3}) {
      const std::size_t offset = count == 5 ? 0 : op % 2 * width;
      const Call call = {mode, path, op, element, mode == kAllGather ? 0 : size - 1, count * width, width, offset, 1 + op % 3};
      std::vector<Bytes> inputs;
      for (std::uint32_t rank = 0; rank < size; rank++) {
        inputs.push_back(numbers(call.in_rows(size) * call.bytes / type.width, type, 100 + rank));
      }
      const Bytes one = run(own, pair.own, call, inputs), other = run(source, pair.from_source, call, inputs);
      if (!same(one, other, type.width, type.is_float)) {
        std::fprintf(stderr, "%s: mode %u, path %d, operation %u, %zu elements, %u ranks\n", type.type, mode, path, op,
                     count, size);
        CHECK(false);
      }
      CHECK(one != Bytes(one.size(), 0x5A));
    }
  }
}

/* Compares the reductions of some types, in groups of two and of three ranks. Each type takes some seconds to compile; the
 * fast tier has only the first. */
void reduce(std::size_t first, std::size_t last) {
  const std::size_t end = first + static_cast<std::size_t>(some_rounds(static_cast<int>(last - first)));
  for (std::size_t index = first; index < end; index++) {
    const Pair pair(kTypes[index].type, index < kFloat8 ? "group.cu" : "group_float8.cu", "plinth_group_");
    for (const std::uint32_t size : {2u, 3u}) {
      Group own(size), source(size);
      for (std::uint32_t op = 0; op <= 4; op++) {
        for (const Mode mode : {kReduceScatter, kAllReduce, kAllReduceParts, kReduce, kReduceParts}) {
          compare(pair, own, source, mode, op, kTypes[index], static_cast<std::uint32_t>(index));
        }
      }
    }
  }
}

}  // namespace

TEST(group_reductions_of_floats_match_the_source) { reduce(0, 4); }

TEST(group_reductions_of_bytes_match_the_source) { reduce(4, 8); }

TEST(group_reductions_of_integers_match_the_source) { reduce(8, 12); }

TEST(group_reductions_of_others_match_the_source) { reduce(12, kFloat8); }

TEST(group_reductions_of_float8_match_the_source) { reduce(kFloat8, kFloat8 + 2); }

TEST(group_copies_match_the_source) {
  const Pair pair("copy", "group.cu", "plinth_group_");
  const Reduction bytes = {"bytes", 1, false};
  for (const std::uint32_t size : {2u, 3u}) {
    Group own(size), source(size);
    for (std::uint32_t variant = 0; variant < 3; variant++) {
      for (const Mode mode : {kAllGather, kAllToAll, kBroadcast, kBroadcastParts}) {
        compare(pair, own, source, mode, variant, bytes, 4);
      }
    }
  }
}

/* ---- Transfers ---- */

namespace {

/* As Transfer::of in crates/driver/src/group.rs. */
Transfer transfer_of(std::uint64_t address, std::uint64_t bytes, std::uint32_t peer, bool sends, std::uint64_t place) {
  const std::uint64_t each = bytes <= kShortTransfer ? kShortEntry : kEntry;
  const std::uint64_t lanes = std::min<std::uint64_t>(kLanes, std::max<std::uint64_t>(1, (bytes + each - 1) / each));
  const std::uint64_t part = up_to_16((bytes + lanes - 1) / lanes);
  const std::uint64_t chunks = std::max<std::uint64_t>(1, (part + kEntry - 1) / kEntry);
  return {address, bytes, part, chunks, peer, sends, 4, static_cast<std::uint32_t>(lanes), place};
}

/* Each rank sends to the next one, and receives from the one before. The blocks of a lane wait for those of another rank, in
 * no order, so the source needs a cooperative launch, in which each block has a thread. */
Bytes pass_on(Group &group, const plinth::Kernel &kernel, std::size_t bytes, bool is_registered, bool is_cooperative) {
  const std::uint32_t size = group.size();
  std::vector<std::unique_ptr<Device<unsigned char>>> from, to;
  std::vector<std::uint64_t> addresses;
  /* The address of a receiver is another one than that of its place, so that the test sees which one is written. */
  const bool is_direct = is_registered && bytes > kEagerTransfer;
  const Device<unsigned char> unused(Bytes(bytes + 1, 0x5A));
  for (std::uint32_t rank = 0; rank < size; rank++) {
    from.emplace_back(new Device<unsigned char>(randoms<unsigned char>(bytes + 1, rank + 1, 0, 255)));
    to.emplace_back(new Device<unsigned char>(Bytes(bytes + 1, 0x5A)));
    addresses.push_back(address(to.back()->get()));
  }
  group.list(addresses);
  for (std::uint32_t rank = 0; rank < size; rank++) {
    const std::uint32_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
    Transfers all = {};
    all.group = group.info(rank);
    all.transfers[0] = transfer_of(address(from[rank]->get()), bytes, next, true, 0);
    all.transfers[1] = is_direct ? transfer_of(address(unused.get()), bytes, previous, false, kPlace)
                                 : transfer_of(addresses[rank], bytes, previous, false, 0);
    Launch launch = Launch({all.transfers[0].lanes, 2}, {kThreads}).on(group.stream(rank));
    kernel(is_cooperative ? launch.cooperative() : launch, all);
  }
  Bytes received;
  for (std::uint32_t rank = 0; rank < size; rank++) {
    const Bytes sent = from[(rank + size - 1) % size]->read();
    const Bytes row = to[rank]->read();
    CHECK_EQ(group.report(rank).word, 0u);
    CHECK(std::equal(row.begin(), row.end() - 1, sent.begin()) && row.back() == 0x5A);
    received.insert(received.end(), row.begin(), row.end());
  }
  CHECK(unused.read() == Bytes(bytes + 1, 0x5A));
  return received;
}

}  // namespace

TEST(group_transfers_match_the_source) {
  const Pair pair("transfer", "group.cu", "plinth_group_");
  for (const std::uint32_t size : {2u, 3u}) {
    Group own(size), source(size);
    /* The first one has three chunks in each lane; later ones are eager with several, and a rendezvous with one or more. */
    for (const std::size_t bytes : {3 * kLanes * kEntry, 0u, 1u, 100u, 512u, 768u, 769u, 1537u, 3999u, 4001u, 20000u}) {
      for (const bool is_registered : {false, true}) {
        CHECK(pass_on(own, pair.own, bytes, is_registered, false) ==
              pass_on(source, pair.from_source, bytes, is_registered, true));
      }
    }
  }
}

/* ---- Failures ---- */

namespace {

/* Runs an all-reduce of two ranks with these numbers of elements, or of one rank alone. Returns the report of rank 0. */
ReportPage fail(const plinth::Kernel &kernel, std::vector<std::uint64_t> counts, Path path) {
  Group group(2);
  const Device<float> from(2048), to(2048);
  for (std::uint32_t rank = 0; rank < counts.size(); rank++) {
    Collective c = {};
    c.group = group.info(rank);
    c.group.timeout = counts.size() == 1 ? 50000000 : c.group.timeout;
    c.group.packets = path == kInPackets ? kPackets : 0;
    c.from = address(from.get());
    c.to = address(to.get());
    c.bytes = counts[rank] * 4;
    c.count = counts[rank];
    c.mode = kAllReduce;
    c.element = 2;
    kernel(Launch({1}, {kThreads}).on(group.stream(rank)), c);
  }
  static_cast<void>(to.read());
  if (counts.size() == 2) CHECK_EQ(group.report(1).word & 0xFF, kMismatch);
  return group.report(0);
}

}  // namespace

namespace {

/* Rank 0 sends, and rank 1 receives with another element type, or in memory whose registration is not known. Returns the reports. */
std::array<ReportPage, 2> fail_to_transfer(const plinth::Kernel &kernel, bool is_unknown) {
  Group group(2);
  const Device<unsigned char> from(20000), to(Bytes(20000, 0x5A));
  for (std::uint32_t rank = 0; rank < 2; rank++) {
    Transfers all = {};
    all.group = group.info(rank);
    Transfer &transfer = all.transfers[0];
    transfer = transfer_of(address(rank == 0 ? from.get() : to.get()), 20000, 1 - rank, rank == 0, rank == 0 ? 0 : kPlace);
    if (rank == 1 && !is_unknown) transfer.element = 5;
    kernel(Launch({transfer.lanes}, {kThreads}).on(group.stream(rank)), all);
  }
  CHECK(to.read() == Bytes(20000, 0x5A));
  return {group.report(0), group.report(1)};
}

}  // namespace

TEST(group_transfers_that_do_not_match_fail_as_in_the_source) {
  const Pair pair("transfer", "group.cu", "plinth_group_");
  for (const plinth::Kernel *kernel : {&pair.own, &pair.from_source}) {
    /* The receiver finds that the types differ, and the sender that it does not know the registration. */
    const auto types = fail_to_transfer(*kernel, false), unknown = fail_to_transfer(*kernel, true);
    CHECK_EQ(types[0].word, kMismatch);
    CHECK_EQ(types[0].by, 1u);
    CHECK_EQ(types[1].word, kMismatch);
    CHECK_EQ(types[1].by, 1u);
    CHECK(types[1].own[0] != types[1].other[0]);
    CHECK_EQ(unknown[0].word, kMismatch | 1 << 8);
    CHECK_EQ(unknown[0].by, 0u);
    CHECK_EQ(unknown[1].word & 0xFF, kMismatch);
  }
}

TEST(group_failures_match_the_source) {
  const Pair pair("f32", "group.cu", "plinth_group_");
  for (const Path path : {kSlots, kInPackets}) {
    for (const plinth::Kernel *kernel : {&pair.own, &pair.from_source}) {
      const ReportPage late = fail(*kernel, {100}, path);
      CHECK_EQ(late.word, kTimeout | 1 << 8);
      CHECK_EQ(late.by, 0u);
      const ReportPage mismatch = fail(*kernel, {100, 101}, path);
      // The rank that finds the mismatch second may know of the other's failure only.
      CHECK_EQ(mismatch.word & 0xFF, kMismatch);
    }
  }
}
