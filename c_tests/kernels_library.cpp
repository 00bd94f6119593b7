// The library's own kernels: what the host device runs in their place against the sources in kernels/, compiled for the host
// device. Results must be the same, bit for bit; where a NaN is computed, any NaN.
//
// device: host
// timeout: 240
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "kernels_library.h"

namespace {

constexpr std::uint32_t kThreads = 256;
constexpr std::size_t kWords = 508;
constexpr std::uint32_t kChunk = 256;

/* As in kernels/collective.cuh. */
struct Table {
  std::uint32_t count, sources, destinations, chunk, rank, width;
  std::uint16_t operation, is_signed;
  std::uint32_t divisor;
  std::uint64_t words[kWords];
};
static_assert(sizeof(Table) == 4096, "the table is the kernel's parameter");

/* A segment: its length, its addresses, and three words for each dimension. */
struct Segment {
  std::uint64_t length;
  std::vector<std::uint64_t> addresses;
  std::vector<std::int64_t> dimensions;
};

Table table_of(std::size_t sources, std::size_t destinations, std::size_t rank, const std::vector<Segment> &segments,
               std::uint32_t *blocks) {
  Table table = {};
  table.count = static_cast<std::uint32_t>(segments.size());
  table.sources = static_cast<std::uint32_t>(sources);
  table.destinations = static_cast<std::uint32_t>(destinations);
  table.chunk = kChunk;
  table.rank = static_cast<std::uint32_t>(rank);
  std::size_t at = 0;
  std::uint64_t first = 0;
  for (const Segment &segment : segments) {
    table.words[at++] = segment.length | first << 40;
    for (const std::uint64_t address : segment.addresses) {
      table.words[at++] = address;
    }
    for (const std::int64_t word : segment.dimensions) {
      table.words[at++] = static_cast<std::uint64_t>(word);
    }
    first += (segment.length + kChunk - 1) / kChunk;
  }
  CHECK(at <= kWords);
  *blocks = static_cast<std::uint32_t>(first);
  return table;
}

/* Runs both kernels. `make` returns the table that writes to a place in device memory. */
template <class Make>
void run_both(const Pair &pair, std::size_t bytes, Make make, Bytes *own, Bytes *from_source) {
  const Device<unsigned char> first(Bytes(bytes, 0x5A)), second(Bytes(bytes, 0x5A));
  std::uint32_t blocks = 0;
  const Table one = make(reinterpret_cast<std::uint64_t>(first.get()), &blocks);
  pair.own(Launch({blocks}, {kThreads}), one);
  const Table other = make(reinterpret_cast<std::uint64_t>(second.get()), &blocks);
  pair.from_source(Launch({blocks}, {kThreads}), other);
  *own = first.read();
  *from_source = second.read();
}

/* ---- Reductions ---- */

const Reduction kReductions[] = {
    {"f16", 2, true}, {"bf16", 2, true}, {"f32", 4, true},  {"f64", 8, true},   {"b8", 1, false},
    {"b16", 2, false}, {"b32", 4, false}, {"b64", 8, false}, {"bool", 1, false},
    {"e4m3", 1, true}, {"e5m2", 1, true},
};

void reduce(const Reduction &type) {
  constexpr std::size_t kSources = 4, kDestinations = 2;
  const std::size_t lengths[] = {2000, 37};
  const std::size_t stride = 2064 * type.width, total = kDestinations * 2 * stride;
  const std::string file = type.type[0] == 'e' ? "collective_float8.cu" : "collective.cu";
  const Pair pair(std::string("plinth_comm_reduce_") + type.type, file);
  const Device<unsigned char> in(numbers(kSources * 2 * stride / type.width, type, 7));
  const std::uint64_t from = reinterpret_cast<std::uint64_t>(in.get());
  for (std::uint16_t operation = 0; operation <= 4; operation++) {
    for (std::uint16_t is_signed = 0; is_signed <= 1; is_signed++) {
      for (const std::uint32_t divisor : {0u, 3u, 8u}) {
        for (const std::size_t offset : {std::size_t(0), type.width}) {
          for (const std::size_t sources : {std::size_t(1), kSources}) {
            Bytes own, from_source;
            run_both(pair, total, [&](std::uint64_t to, std::uint32_t *blocks) {
              std::vector<Segment> segments;
              for (std::size_t s = 0; s < 2; s++) {
                Segment segment = {lengths[s], {}, {}};
                for (std::size_t i = 0; i < sources; i++) segment.addresses.push_back(from + (2 * i + s) * stride + offset);
                for (std::size_t i = 0; i < kDestinations; i++) segment.addresses.push_back(to + (2 * i + s) * stride);
                segments.push_back(segment);
              }
              Table table = table_of(sources, kDestinations, 0, segments, blocks);
              table.operation = operation;
              table.is_signed = is_signed;
              table.divisor = divisor;
              return table;
            }, &own, &from_source);
            if (!same(own, from_source, type.width, type.is_float)) {
              std::fprintf(stderr, "%s: operation %u, signed %u, divisor %u, %zu sources\n", type.type, operation,
                           is_signed, divisor, sources);
              CHECK(false);
            }
            CHECK(own != Bytes(total, 0x5A));
          }
        }
      }
    }
  }
}

}  // namespace

TEST(reductions_of_floats_match_the_source) {
  for (const Reduction &type : kReductions) {
    if (type.is_float) reduce(type);
  }
}

TEST(reductions_of_integers_match_the_source) {
  for (const Reduction &type : kReductions) {
    if (!type.is_float) reduce(type);
  }
}

/* ---- Copies ---- */

TEST(copies_match_the_source) {
  constexpr std::size_t kBytes = 4096;
  const Pair pair("plinth_comm_copy");
  const Bytes data = randoms<unsigned char>(kBytes, 3, 0, 255);
  const Device<unsigned char> in(data);
  const std::uint64_t from = reinterpret_cast<std::uint64_t>(in.get());
  for (const std::size_t source_offset : {0, 1, 4, 8, 15}) {
    for (const std::size_t offset : {0, 1, 2, 4, 15}) {
      for (const std::size_t length : {1, 17, 256, 1003}) {
        Bytes own, from_source;
        run_both(pair, kBytes, [&](std::uint64_t to, std::uint32_t *blocks) {
          const std::vector<Segment> segments = {
              {length, {from + source_offset, to + offset, to + 1024 + source_offset}, {}},
              {7, {from + 2048, to + 2048 + offset, to + 3072}, {}}};
          return table_of(1, 2, 0, segments, blocks);
        }, &own, &from_source);
        CHECK(own == from_source);
        CHECK(std::memcmp(&own[offset], &data[source_offset], length) == 0);
      }
    }
  }
}

TEST(strided_copies_match_the_source) {
  constexpr std::size_t kBytes = 16384;
  const Pair pair("plinth_comm_strided");
  const Device<unsigned char> in(randoms<unsigned char>(kBytes, 4, 0, 255));
  const std::uint64_t from = reinterpret_cast<std::uint64_t>(in.get());
  for (const std::uint32_t width : {1, 2, 4, 8, 16}) {
    Bytes own, from_source;
    run_both(pair, kBytes, [&](std::uint64_t to, std::uint32_t *blocks) {
      const std::int64_t w = width;
      // The fastest dimension backwards.
      const std::vector<Segment> segments = {{30 * 17, {from + 29 * 16, to}, {30, -w, 17 * w, 17, 30 * w, w}}};
      Table table = table_of(1, 1, 2, segments, blocks);
      table.width = width;
      return table;
    }, &own, &from_source);
    CHECK(own == from_source);
    CHECK(own != Bytes(kBytes, 0x5A));
  }
}

/* ---- Conversions ---- */

/* The element types by their number: bytes, and whether an element is one or two floats. */
struct Element {
  std::size_t bytes;
  bool is_float;
};
static const Element kElements[] = {{2, true},  {2, true},  {4, true},  {8, true},  {1, false},
                                    {2, false}, {4, false}, {8, false}, {1, false}, {2, false},
                                    {4, false}, {8, false}, {1, false}, {8, true},  {16, true},
                                    {1, true},  {1, true}};
constexpr std::size_t kElementCount = sizeof kElements / sizeof *kElements;

/* Elements of a type. Floats are from 0 to below 128, because C++ defines no conversion to an integer that is out of
 * reach. */
static Bytes elements(std::size_t type, std::size_t count) {
  const Element element = kElements[type];
  if (!element.is_float) {
    return randoms<unsigned char>(count * element.bytes, type + 1, 0, 255);
  }
  if (element.bytes == 1) {
    return randoms<unsigned char>(count, type + 1, 0, type == 15 ? 0x6F : 0x57);
  }
  Bytes bytes(count * element.bytes);
  const bool is_double = type == 3 || type == 14;
  const std::size_t width = is_double ? 8 : type == 2 || type == 13 ? 4 : 2;
  const std::vector<double> values = randoms<double>(bytes.size() / width, type + 1, 0.0, 127.9);
  for (std::size_t i = 0; i < values.size(); i++) {
    const double value = i % 5 == 0 ? 0 : values[i];
    const float single = static_cast<float>(value);
    std::uint32_t bits;
    std::memcpy(&bits, &single, sizeof bits);
    const std::uint16_t half = type == 0 ? half_bits(single) : static_cast<std::uint16_t>(bits >> 16);
    const void *element_bytes = &half;
    if (width == 4) element_bytes = &single;
    if (width == 8) element_bytes = &value;
    std::memcpy(&bytes[i * width], element_bytes, width);
  }
  return bytes;
}

TEST(conversions_match_the_source) {
  constexpr std::size_t kCount = 600;
  const Pair pair("plinth_comm_convert");
  for (std::size_t source = 0; source < kElementCount; source++) {
    const Device<unsigned char> in(elements(source, kCount));
    const std::uint64_t from = reinterpret_cast<std::uint64_t>(in.get());
    for (std::size_t target = 0; target < kElementCount; target++) {
      const std::int64_t source_bytes = static_cast<std::int64_t>(kElements[source].bytes);
      const std::int64_t target_bytes = static_cast<std::int64_t>(kElements[target].bytes);
      Bytes own, from_source;
      run_both(pair, kCount * kElements[target].bytes, [&](std::uint64_t to, std::uint32_t *blocks) {
        const std::int64_t count = kCount;
        Table table = table_of(1, 1, 1, {{kCount, {from, to}, {count, source_bytes, target_bytes}}}, blocks);
        table.width = 0;
        table.operation = static_cast<std::uint16_t>(source);
        table.is_signed = static_cast<std::uint16_t>(target);
        return table;
      }, &own, &from_source);
      if (own != from_source) {
        std::fprintf(stderr, "from type %zu to type %zu\n", source, target);
        CHECK(false);
      }
    }
  }
}

/* ---- Random numbers ---- */

/* As in kernels/random/philox.cuh and fill.cuh. */
struct PhiloxState {
  std::uint64_t seed, offset, graph_offset;
  std::uint32_t captured, reserved;
};
struct Fill {
  PhiloxState philox;
  std::uint64_t data;
  std::uint32_t numel, lanes, steps, code;
  std::uint64_t arguments[4];
};
struct Strided {
  std::uint32_t rank, reserved, sizes[25], magics[25], shifts[25], padding;
  std::int64_t strides[25];
};
static const PhiloxState kPhilox = {0x123456789ABCDEF0, 4 * 0xFFFFFFFDull, 0, 0, 0};

static std::uint64_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

static std::uint64_t bits_of(double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Fills elements of a width in bytes by both versions of a kernel. `rows` are the elements that a call makes; `code` is the
 * number of the element type for a kernel of any type, which writes every second element. */
static void fill_both(const std::string &name, std::uint32_t width, std::uint32_t rows, std::vector<std::uint64_t> arguments,
                      int code = -1) {
  constexpr std::uint32_t kLanes = 1024, kFillThreads = 128;
  const bool is_dense = code < 0;
  const std::uint32_t neighbours = !is_dense ? 1 : width == 8 ? 2 : width == 4 ? 4 : 8;
  const Pair pair(name, name.find("f16") != std::string::npos ? "random_half.cu" : "random.cu");
  for (const std::uint32_t numel : {1u, 1000u, 10007u}) {
    const std::size_t bytes = std::size_t(2) * numel * width + 16;
    const Device<unsigned char> own(Bytes(bytes, 0x5A)), from_source(Bytes(bytes, 0x5A));
    Fill fill = {kPhilox, 0, numel, kLanes, 2, static_cast<std::uint32_t>(std::max(code, 0)), {}};
    std::copy(arguments.begin(), arguments.end(), fill.arguments);
    Strided layout = {};
    layout.rank = 1;
    layout.sizes[0] = numel;
    layout.strides[0] = 2;
    const Launch launch({blocks_for(kLanes, kFillThreads * neighbours), blocks_for(numel, fill.steps * rows * kLanes)},
                        {kFillThreads});
    const auto run = [&](const plinth::Kernel &kernel, const Device<unsigned char> &to) {
      fill.data = reinterpret_cast<std::uint64_t>(to.get());
      if (is_dense) {
        kernel(launch, fill);
      } else {
        kernel(launch, fill, layout);
      }
    };
    run(pair.own, own);
    run(pair.from_source, from_source);
    const Bytes result = own.read();
    CHECK(result != Bytes(bytes, 0x5A));
    if (result != from_source.read()) {
      std::fprintf(stderr, "%s, type %d, %u elements\n", name.c_str(), code, numel);
      CHECK(false);
    }
  }
}

TEST(random_uniforms_match_the_source) {
  fill_both("plinth_standard_uniform_f32", 4, 4, {bits_of(0.0f), bits_of(1.0f), bits_of(1.0f)});
  fill_both("plinth_uniform_f32", 4, 4, {bits_of(-2.5f), bits_of(7.25f), bits_of(4.75f)});
  for (const std::string type : {"f16", "bf16"}) {
    fill_both("plinth_standard_uniform_" + type, 2, 4, {bits_of(0.0f), bits_of(1.0f), bits_of(1.0f)});
    fill_both("plinth_uniform_" + type, 2, 4, {bits_of(-2.5f), bits_of(7.25f), bits_of(4.75f)});
  }
  fill_both("plinth_uniform_f64", 8, 2, {bits_of(-2.5), bits_of(7.25), bits_of(4.75)});
  for (const int code : {0, 1, 2}) {
    fill_both("plinth_uniform_any", code == 2 ? 4 : 2, 4, {bits_of(-2.5f), bits_of(7.25f), bits_of(4.75f)}, code);
  }
  fill_both("plinth_uniform_any_f64", 8, 2, {bits_of(-2.5), bits_of(7.25), bits_of(4.75)}, 3);
}

TEST(random_integers_match_the_source) {
  const std::uint64_t base = static_cast<std::uint64_t>(-40), wide = 0x123456789AB;
  const std::vector<std::uint64_t> odd = {77, base, 0xFFFFFFFFull / 77, 0}, power = {64, base, 1u << 26, 63};
  const std::vector<std::uint64_t> wide_odd = {wide, base, ~0ull / wide, 0};
  for (const auto &[type, width] : {std::make_pair("b8", 1u), {"b16", 2u}, {"b32", 4u}, {"b64", 8u}}) {
    fill_both(std::string("plinth_integers_") + type, width, 4, odd);
    fill_both(std::string("plinth_integers_") + type, width, 4, power);
  }
  fill_both("plinth_integers64_b32", 4, 2, wide_odd);
  fill_both("plinth_integers64_b64", 8, 2, wide_odd);
  const std::uint32_t widths[] = {2, 2, 4, 8, 1, 1, 2, 4, 8};
  for (int code = 0; code < 9; code++) {
    fill_both("plinth_integers_any", widths[code], 4, odd, code);
  }
  for (const int code : {0, 3, 8}) {
    fill_both("plinth_integers64_any", widths[code], 2, wide_odd, code);
  }
}

TEST(random_trials_match_the_source) {
  for (const auto &[type, width] : {std::make_pair("b8", 1u), {"b16", 2u}, {"b32", 4u}, {"b64", 8u}}) {
    fill_both(std::string("plinth_bernoulli_") + type, width, 4, {0x60000000, 0x0123456789ABCDEF});
  }
  fill_both("plinth_bernoulli_f64", 8, 2, {0x123456789ABCD, bits_of(1.0)});
  fill_both("plinth_bernoulli_any", 1, 4, {0x60000000, 1}, 4);
  fill_both("plinth_bernoulli_any", 8, 4, {0x60000000, 1}, 8);
  fill_both("plinth_bernoulli_any_f64", 8, 2, {0x123456789ABCD, 1}, 8);
}

/* ---- Permutations ---- */

/* As in kernels/permutation.cu. */
struct Permutation {
  PhiloxState philox;
  std::uint64_t data;
  std::int64_t stride;
  std::uint64_t pairs, counters, shuffle_calls;
  std::uint32_t n, code, bits, bucket_bits, index_bits, chunks, lanes[8], begins[9], padding;
  std::uint64_t calls[8];
};

/* Compares permutations of 64-bit indices with keys of `bits` bits, which are in `chunks` chunks. */
static void permute_both(std::uint32_t n, std::uint32_t bits, std::uint32_t bucket_bits, std::uint32_t chunks) {
  constexpr std::uint32_t kLanes = 1536, kKeyThreads = 1024, kSorters = 256, kBinBytes = 2048 * 4;
  constexpr std::uint32_t kInt64 = 8;
  const bool is_small = bucket_bits == 0;
  const Device<std::int64_t> own(n), from_source(n);
  const Device<std::uint64_t> pairs(n);
  const Device<std::uint32_t> counters((std::size_t(1) << bucket_bits) + 1);
  Permutation permutation = {};
  permutation.philox = kPhilox;
  permutation.stride = 1;
  permutation.pairs = reinterpret_cast<std::uint64_t>(pairs.get());
  permutation.counters = reinterpret_cast<std::uint64_t>(counters.get());
  permutation.shuffle_calls = 100000;
  permutation.n = n;
  permutation.code = kInt64;
  permutation.bits = bits;
  permutation.bucket_bits = bucket_bits;
  while (1u << permutation.index_bits < n || permutation.index_bits == 0) permutation.index_bits++;
  permutation.chunks = chunks;
  for (std::uint32_t chunk = 0; chunk < chunks; chunk++) {
    permutation.lanes[chunk] = kLanes - 256 * chunk;
    permutation.begins[chunk + 1] = chunk + 1 == chunks ? n : (chunk + 1) * (n / chunks);
    permutation.calls[chunk] = 1000 * chunk;
  }
  const Pair last(is_small ? "plinth_permutation_small" : "plinth_permutation_sort", "permutation.cu");
  const Launch buckets = Launch(1u << bucket_bits, kSorters).shared_bytes(kBinBytes);
  permutation.data = reinterpret_cast<std::uint64_t>(own.get());
  last.own(buckets, permutation);
  permutation.data = reinterpret_cast<std::uint64_t>(from_source.get());
  if (!is_small) {
    const std::uint32_t calls = 3, down = blocks_for(n, calls * 2 * (kLanes - 256 * (chunks - 1)));
    const Launch keys = Launch({blocks_for(kLanes, kKeyThreads), down}, kKeyThreads).shared_bytes(4u << bucket_bits);
    Pair::compile("permutation.cu", "plinth_permutation_count")(keys, permutation, calls);
    Pair::compile("permutation.cu", "plinth_permutation_deal")(keys, permutation, calls);
  }
  last.from_source(buckets, permutation);
  const std::vector<std::int64_t> result = own.read();
  SAME(from_source.read(), result);
  std::vector<std::int64_t> sorted = result;
  std::sort(sorted.begin(), sorted.end());
  SAME(sorted, ascending<std::int64_t>(n));
}

TEST(small_permutations_match_the_source) {
  permute_both(1, 3, 0, 1);
  permute_both(1000, 23, 0, 1);
  permute_both(2496, 64, 0, 3);
  // Keys of which many are equal.
  permute_both(2000, 7, 0, 1);
}

TEST(large_permutations_match_the_source) {
  permute_both(20000, 31, 4, 1);
  permute_both(9000, 63, 3, 2);
  permute_both(9000, 10, 3, 1);
}
