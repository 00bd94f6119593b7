// Measures the library's own kernels on the host device: what it runs in their place, in Rust, and the sources in kernels/,
// compiled for the host device.
//
//   library [--rounds N] [--cpu-time] [--sources FOLDER]
//
// A time is the median of N (11) launches, each with the wait for its end, in microseconds; the two versions take turns.
// --cpu-time measures the processor time of the process. Results are compared, but for those that use the C library's
// functions in one version. FOLDER (kernels) has the sources. Build and run: `make bench`.
#include "../measure.h"

#include <plinth.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;
using Buffer = plinth::DeviceBuffer;

constexpr std::size_t kSizes[] = {1 << 10, 64 << 10, 1 << 20, 16 << 20};
constexpr std::size_t kMost = 16 << 20;
// Those of the simulated model, an H200.
constexpr u32 kProcessors = 132, kMaxBlocks = kProcessors * 8;

std::size_t rounds = 11;
bool is_cpu_time;
std::string sources = "kernels";
unsigned failures;

// As in kernels/collective.cuh.
struct Table {
  u32 count, operands_in, operands_out, chunk, rank, width;
  std::uint16_t operation, is_signed;
  u32 divisor;
  u64 words[508];
};
// As in kernels/random/philox.cuh and fill.cuh.
struct Philox {
  u64 seed, offset, graph_offset;
  u32 captured, reserved;
};
struct Fill {
  Philox philox;
  u64 data;
  u32 numel, lanes, steps, code;
  u64 arguments[4];
};
struct Strided {
  u32 rank, reserved, sizes[25], magics[25], shifts[25], padding;
  std::int64_t strides[25];
};
// As in kernels/permutation.cu.
struct Permutation {
  Philox philox;
  u64 data;
  std::int64_t stride;
  u64 pairs, counters, shuffle_calls;
  u32 n, code, bits, bucket_bits, index_bits, chunks, lanes[8], begins[9], padding;
  u64 calls[8];
};
// As in kernels/group/symmetric_buffer.cuh and launch.cuh.
struct GroupInfo {
  u64 buffers[16], buffer_bytes, report, timeout, eager_transfer;
  u32 rank, size, slot, entry, packets, piece, lanes, broadcast, short_transfer, short_entry;
};
struct Collective {
  GroupInfo group;
  u64 from, to, bytes, count;
  u32 mode, op, element, root;
  u64 places[2], inputs[16], outputs[16], target;
};
struct Transfer {
  u64 address, bytes, part, chunks;
  u32 peer, sends, element, lanes;
  u64 place;
};
struct Transfers {
  GroupInfo group;
  Transfer transfers[32];
};

u32 blocks_for(u64 count, u64 each) { return static_cast<u32>((count + each - 1) / each); }
u64 address(const Buffer &buffer) { return reinterpret_cast<u64>(buffer.get()); }

template <class T> u64 bits(T value) {
  u64 word = 0;
  memcpy(&word, &value, sizeof value);
  return word;
}

// Compiles a kernel from its source. Of the lines that make a kernel each, only that of the kernel is compiled.
plinth::Kernel compile(const std::string &file, const std::string &prefix, const std::string &name) {
  std::ifstream stream(sources + "/" + file);
  if (!stream) {
    fprintf(stderr, "%s/%s is not here: run from the project's folder, or name that of the sources\n", sources.c_str(),
            file.c_str());
    exit(77);
  }
  const bool has_lines = file.rfind("random", 0) == 0 || file.rfind("group", 0) == 0;
  std::string text;
  for (std::string line; std::getline(stream, line); text += line + "\n") {
    if (has_lines && line.rfind("PLINTH_", 0) == 0 && line.find("(" + name + ",") == std::string::npos) line.clear();
  }
  plinth::CompileOptions options;
  options.include_dirs = {sources};
  return plinth::compile_kernel(text, prefix + name, options);
}

// The version in Rust and the compiled one.
struct Versions {
  plinth::KernelModule module{std::string(".version 7.0\n.target sm_75\n.address_size 64\n")};
  plinth::Kernel rust, compiled;
  Versions(const std::string &file, const std::string &name, const std::string &prefix = "")
      : rust(module.kernel(prefix + name)), compiled(compile(file, prefix, name)) {}
};

double clock_ns() {
  if (!is_cpu_time) return now_ns();
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

double median(std::vector<double> &times) {
  qsort(times.data(), times.size(), sizeof(double), ascending);
  return times[times.size() / 2];
}

// Measures a kernel at each size. `make` prepares a version, 0 or 1, for a size, and returns its launch. What it writes is
// at the start of `out`.
using Make = std::function<std::function<void()>(std::size_t bytes, int version)>;
void row(const char *name, const Buffer &out, bool is_exact, const Make &make) {
  printf("| %s |", name);
  for (const std::size_t bytes : kSizes) {
    std::vector<double> times[2];
    std::vector<char> results[2];
    const std::function<void()> launches[] = {make(bytes, 0), make(bytes, 1)};
    for (int version : {0, 1}) {
      MUST(plinth_memset(out.get(), 0x5A, kMost, nullptr));
      MUST(plinth_stream_synchronize(nullptr));
      launches[version]();
      results[version].resize(bytes);
      plinth::copy(results[version].data(), out.get(), bytes);
    }
    if (is_exact && results[0] != results[1]) {
      fprintf(stderr, "%s: the versions have different results for %zu bytes\n", name, bytes);
      failures++;
    }
    for (std::size_t round = 0; round < rounds; round++) {
      for (int version : {0, 1}) {
        const double start = clock_ns();
        launches[version]();
        times[version].push_back((clock_ns() - start) / 1e3);
      }
    }
    const double rust = median(times[0]), compiled = median(times[1]);
    printf(" %.0f / %.0f = %.2f |", compiled, rust, compiled / rust);
    fflush(stdout);
  }
  printf("\n");
}

// Runs a kernel to its end.
template <class... Arguments>
void run(const plinth::Kernel &kernel, const plinth::Launch &launch, const Arguments &...arguments) {
  kernel(launch, arguments...);
  MUST(plinth_stream_synchronize(nullptr));
}

struct Memory {
  Buffer in{4 * kMost}, out{kMost + 4096}, more{2 * kMost};
  Memory() {
    std::vector<float> values(kMost);
    u32 state = 1;
    for (float &value : values) state = state * 1664525 + 1013904223, value = static_cast<float>(state >> 8) / (1 << 24);
    plinth::copy(in.get(), values.data(), 4 * kMost);
  }
};

// ---- Collectives between the devices of a process ----

u64 chunk_of(u64 bytes) { return bytes < 1 << 20 ? 4 << 10 : bytes < 16 << 20 ? 16 << 10 : 64 << 10; }

void collectives(const Memory &m) {
  const auto measure = [&](const char *title, const char *kernel, const std::function<u64(std::size_t, Table &)> &fill) {
    const auto versions = std::make_shared<Versions>("collective.cu", kernel);
    row(title, m.out, true, [&, versions](std::size_t bytes, int version) {
      Table table = {};
      table.count = table.operands_in = table.operands_out = 1;
      const u64 units = fill(bytes, table);
      table.words[0] = units;
      return std::function<void()>([&, versions, version, table, units] {
        run(version ? versions->compiled : versions->rust, plinth::Launch({blocks_for(units, table.chunk)}, {256}), table);
      });
    });
  };
  measure("comm_copy", "plinth_comm_copy", [&](std::size_t bytes, Table &table) -> u64 {
    table.chunk = bytes < 1 << 20 ? 4 << 10 : blocks_for(blocks_for(bytes, kProcessors), 4 << 10) * (4 << 10);
    table.words[1] = address(m.in);
    table.words[2] = address(m.out);
    return bytes;
  });
  // A matrix of 32 rows, transposed; and another with its type.
  for (const bool converts : {false, true}) {
    measure(converts ? "comm_convert, float32 to float16" : "comm_strided, float32",
            converts ? "plinth_comm_convert" : "plinth_comm_strided", [&, converts](std::size_t bytes, Table &table) -> u64 {
              const u64 width = converts ? 2 : 4, units = bytes / width, columns = units / 32;
              table.rank = 2;
              table.width = converts ? 0 : 4;
              table.operation = 2;
              table.is_signed = 0;
              table.chunk = static_cast<u32>(chunk_of(bytes) / width);
              const u64 words[] = {address(m.in), address(m.out), 32, 4 * columns, width, columns, 4, 32 * width};
              std::copy(std::begin(words), std::end(words), table.words + 1);
              return units;
            });
  }
  for (const bool is_half : {false, true}) {
    measure(is_half ? "comm_reduce_f16, 4 sources" : "comm_reduce_f32, 4 sources",
            is_half ? "plinth_comm_reduce_f16" : "plinth_comm_reduce_f32", [&, is_half](std::size_t bytes, Table &table) -> u64 {
              table.operands_in = 4;
              const u64 width = is_half ? 2 : 4;
              table.chunk = static_cast<u32>(chunk_of(bytes) / width);
              for (u64 source = 0; source < 4; source++) table.words[1 + source] = address(m.in) + source * bytes;
              table.words[5] = address(m.out);
              return bytes / width;
            });
  }
}

// ---- Random numbers ----

u32 lanes_of(u64 numel) { return static_cast<u32>(std::min<u64>(kMaxBlocks, blocks_for(numel, 256)) * 256); }

struct Distribution {
  const char *file, *name;
  u32 width, neighbours, rows, most_steps;
  std::vector<u64> arguments;
  bool is_exact;
};

void random_numbers(const Memory &m) {
  const std::vector<u64> unit = {bits(0.0f), bits(1.0f), bits(1.0f)};
  const std::vector<u64> below_77 = {77, 0, 0xFFFFFFFFull / 77, 0};
  const Distribution distributions[] = {
      {"random.cu", "plinth_standard_uniform_f32", 4, 4, 4, 5, unit, true},
      {"random.cu", "plinth_uniform_f64", 8, 2, 2, 31, {bits(0.0), bits(1.0), bits(1.0)}, true},
      {"random.cu", "plinth_uniform_any", 4, 1, 4, 8, unit, true},
      {"random.cu", "plinth_normal_f32", 4, 4, 4, 5, {bits(0.0f), bits(1.0f)}, false},
      {"random.cu", "plinth_exponential_f32", 4, 4, 4, 5, {bits(1.0f)}, false},
      {"random.cu", "plinth_bernoulli_b8", 1, 8, 4, 16, {0x60000000, 0x0123456789ABCDEF}, true},
      {"random.cu", "plinth_integers_b64", 8, 2, 4, 5, below_77, true},
      {"random_half.cu", "plinth_uniform_f16", 2, 8, 4, 16, unit, true},
      {"random_half.cu", "plinth_normal_f16", 2, 8, 4, 16, {bits(0.0f), bits(1.0f)}, false},
  };
  for (const Distribution &d : distributions) {
    const auto versions = std::make_shared<Versions>(d.file, d.name);
    row(d.name + strlen("plinth_"), m.out, d.is_exact, [&, versions](std::size_t bytes, int version) {
      Fill fill = {{42, 0, 0, 0, 0}, address(m.out), static_cast<u32>(bytes / d.width), 0, 0, 2, {}};
      fill.lanes = lanes_of(fill.numel);
      std::copy(d.arguments.begin(), d.arguments.end(), fill.arguments);
      const u32 calls = blocks_for(fill.numel, u64(fill.lanes) * d.rows), across = blocks_for(fill.lanes, 128 * d.neighbours);
      fill.steps = std::min(std::max(calls * across / (kProcessors * 32), 1u), d.most_steps);
      Strided layout = {};
      layout.rank = 1;
      layout.sizes[0] = fill.numel;
      layout.strides[0] = 1;
      const plinth::Launch launch({across, blocks_for(calls, fill.steps)}, {128});
      const plinth::Kernel &kernel = version ? versions->compiled : versions->rust;
      return std::function<void()>([&kernel, versions, launch, fill, layout, dense = d.neighbours > 1] {
        if (dense) {
          run(kernel, launch, fill);
        } else {
          run(kernel, launch, fill, layout);
        }
      });
    });
  }
}

void permutations(const Memory &m) {
  const char *const names[] = {"plinth_permutation_small", "plinth_permutation_count", "plinth_permutation_deal",
                               "plinth_permutation_sort"};
  std::vector<std::shared_ptr<Versions>> kernels;
  for (const char *name : names) kernels.push_back(std::make_shared<Versions>("permutation.cu", name));
  row("permutation, int64", m.out, true, [&](std::size_t bytes, int version) {
    Permutation p = {};
    p.n = static_cast<u32>(bytes / 8);
    const double n = p.n;
    // PyTorch's number of bits, as src/ops/random/permutation.rs has it.
    while (n + (6 * n * n + 1) / 1.2643261879 > std::pow(2.0, p.bits)) p.bits++;
    const bool is_small = p.n <= 2496;
    while (!is_small && (1u << p.bucket_bits) < blocks_for(p.n, 2048)) p.bucket_bits++;
    while ((1u << p.index_bits) < p.n || p.index_bits == 0) p.index_bits++;
    p.philox = {42, 0, 0, 0, 0};
    p.data = address(m.out);
    p.stride = 1;
    p.pairs = address(m.more);
    p.counters = p.pairs + u64(p.n) * 8;
    p.code = 8;
    p.chunks = 1;
    p.lanes[0] = lanes_of(p.n);
    p.begins[1] = p.n;
    p.shuffle_calls = blocks_for(p.n, u64(p.lanes[0]) * 2);
    const u32 calls = static_cast<u32>(p.shuffle_calls), across = blocks_for(p.lanes[0], 1024);
    const u32 each = blocks_for(calls, std::min(std::max(kProcessors * 2 / across, 1u), calls));
    const u32 buckets = 1u << p.bucket_bits;
    const plinth::Launch keys = plinth::Launch({across, blocks_for(calls, each)}, {1024}).shared_bytes(buckets * 4);
    const plinth::Launch sort = plinth::Launch({buckets}, {256}).shared_bytes(2048 * 4);
    return std::function<void()>([&, p, is_small, version, keys, sort, each, buckets] {
      const auto kernel = [&](int index) -> const plinth::Kernel & {
        return version ? kernels[index]->compiled : kernels[index]->rust;
      };
      if (is_small) return run(kernel(0), sort, p);
      MUST(plinth_memset(reinterpret_cast<void *>(p.counters), 0, (buckets + 1) * 4, nullptr));
      kernel(1)(keys, p, each);
      kernel(2)(keys, p, each);
      run(kernel(3), sort, p);
    });
  });
}

// ---- Collectives between processes: here two streams of this one ----

class Group {
 public:
  static constexpr u32 kRanks = 2, kSlot = 4 << 20, kPackets = 256 << 10, kLanes = 16, kEntry = 16 << 10;
  static constexpr std::size_t kBufferBytes = 458752 + kRanks * (2 * kSlot + kLanes * 4 * 3 * kEntry + 4 * kPackets);

  Group() {
    for (u32 rank = 0; rank < kRanks; rank++) {
      buffers_.emplace_back(kBufferBytes);
      MUST(plinth_memset(buffers_[rank].get(), 0, kBufferBytes, nullptr));
      MUST(plinth_pinned_malloc(4096, &reports_[rank]));
      memset(reports_[rank], 0, 4096);
    }
    MUST(plinth_stream_synchronize(nullptr));
  }
  GroupInfo info(u32 rank) const {
    GroupInfo info = {};
    for (u32 peer = 0; peer < kRanks; peer++) info.buffers[peer] = address(buffers_[peer]);
    info.buffer_bytes = kBufferBytes;
    info.report = reinterpret_cast<u64>(reports_[rank]);
    info.timeout = 20000000000;
    info.eager_transfer = 1 << 20;
    info.rank = rank;
    info.size = kRanks;
    info.slot = kSlot;
    info.entry = kEntry;
    info.packets = info.broadcast = kPackets;
    info.piece = 32 << 10;
    info.lanes = kLanes;
    info.short_transfer = kPackets;
    info.short_entry = kEntry;
    return info;
  }
  void wait() const {
    for (u32 rank = 0; rank < kRanks; rank++) MUST(plinth_stream_synchronize(streams_[rank].get()));
    for (const void *report : reports_) failures += static_cast<const u32 *>(report)[1] != 0;
  }
  plinth::StreamView stream(u32 rank) const { return streams_[rank]; }

 private:
  std::vector<Buffer> buffers_;
  void *reports_[kRanks];
  plinth::Stream streams_[kRanks];
};

void groups(const Memory &m) {
  const Group own[2];
  // The output of rank 0 is compared.
  const auto output = [&](u32 rank) { return rank == 0 ? address(m.out) : address(m.more); };
  struct Case {
    const char *title, *kernel;
    u32 element, mode, width;
    bool is_registered;
  };
  const Case cases[] = {
      {"group_f32, all_reduce", "f32", 2, 5, 4, false},
      {"group_bf16, all_reduce", "bf16", 1, 5, 2, false},
      {"group_f32, all_reduce, registered", "f32", 2, 6, 4, true},
      {"group_copy, broadcast", "copy", 4, 2, 1, false},
  };
  for (const Case &c : cases) {
    const auto versions = std::make_shared<Versions>("group.cu", c.kernel, "plinth_group_");
    row(c.title, m.out, true, [&, versions](std::size_t bytes, int version) {
      Collective calls[2];
      u32 mode = c.mode;
      // As src/collectives/processes/tuning.rs.
      if (bytes > 4 << 20 && mode == 5) mode = 6;
      if (bytes > Group::kPackets && mode == 2) mode = 3;
      const bool has_parts = mode == 3 || mode == 6;
      const u64 part = has_parts ? bytes / 2 : bytes;
      const u32 blocks = std::min(blocks_for(std::min<u64>(part, Group::kSlot), 8 << 10), 64u);
      for (u32 rank = 0; rank < 2; rank++) {
        Collective &call = calls[rank] = {};
        call.group = own[version].info(rank);
        call.from = address(m.in) + rank * bytes;
        call.to = output(rank);
        call.bytes = bytes;
        call.count = bytes / c.width;
        call.mode = mode;
        call.element = c.element;
        for (u32 peer = 0; c.is_registered && peer < 2; peer++) {
          call.places[0] = call.places[1] = 1ull << 40;
          call.inputs[peer] = address(m.in) + peer * bytes + rank * part;
          call.outputs[peer] = output(peer) + rank * part;
        }
      }
      return std::function<void()>([&, versions, version, calls = std::vector<Collective>(calls, calls + 2), blocks] {
        for (u32 rank = 0; rank < 2; rank++) {
          (version ? versions->compiled : versions->rust)(plinth::Launch({blocks}, {512}).on(own[version].stream(rank)),
                                                          calls[rank]);
        }
        own[version].wait();
      });
    });
  }
  const auto versions = std::make_shared<Versions>("group.cu", "transfer", "plinth_group_");
  row("group_transfer", m.out, true, [&](std::size_t bytes, int version) {
    // As Transfer::of in crates/driver/src/group.rs.
    const u32 lanes = std::min(blocks_for(bytes, bytes <= Group::kPackets ? 16 * 512 : Group::kEntry), Group::kLanes);
    const u64 part = (bytes / lanes + 15) / 16 * 16;
    const u64 chunks = std::max(blocks_for(part, Group::kEntry), 1u);
    return std::function<void()>([&, version, bytes, part, chunks, lanes] {
      for (u32 rank = 0; rank < 2; rank++) {
        Transfers all = {};
        all.group = own[version].info(rank);
        all.transfers[0] = {rank == 0 ? address(m.out) : address(m.in), bytes, part, chunks, 1 - rank, rank, 4, lanes, 0};
        // The blocks of a lane wait for those of the other rank.
        plinth::Launch launch = plinth::Launch({lanes, 1}, {512}).on(own[version].stream(rank));
        (version ? versions->compiled : versions->rust)(version ? launch.cooperative() : launch, all);
      }
      own[version].wait();
    });
  });
}

}  // namespace

int main(int count, char **arguments) {
  for (int at = 1; at < count; at++) {
    const std::string argument = arguments[at];
    if (argument == "--cpu-time") {
      is_cpu_time = true;
    } else if (argument == "--rounds" && at + 1 < count) {
      rounds = std::max(1, atoi(arguments[++at]));
    } else if (argument == "--sources" && at + 1 < count) {
      sources = arguments[++at];
    } else {
      fprintf(stderr, "usage: library [--rounds N] [--cpu-time] [--sources FOLDER]\n");
      return 2;
    }
  }
  setenv("PLINTH_DEVICE", "host", 1);
  const Memory memory;
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = -1;
  printf("Load %.1f; medians of %zu%s; compiled / Rust, us.\n\n", load, rounds, is_cpu_time ? ", processor time" : "");
  printf("| kernel | 1 KiB | 64 KiB | 1 MiB | 16 MiB |\n|---|---|---|---|---|\n");
  collectives(memory);
  random_numbers(memory);
  permutations(memory);
  groups(memory);
  if (failures > 0) fprintf(stderr, "%u results differ, or groups failed\n", failures);
  return failures > 0;
}
