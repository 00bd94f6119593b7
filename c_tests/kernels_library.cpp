// The library's own kernels: what the host device runs in their place against kernels/collective.cu, compiled for the host
// device. Results must be the same, bit for bit; where a NaN is computed, any NaN.
//
// device: host
// timeout: 240
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "kernels.h"

#include <fstream>
#include <sstream>

namespace {

constexpr std::uint32_t kThreads = 256;
constexpr std::size_t kWords = 508;
constexpr std::uint32_t kChunk = 256;

/* As in kernels/collective.cu. */
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

/* Returns the text of kernels/collective.cu. Skips the test if the program runs without the sources. */
std::string source() {
  const std::string here = __FILE__;
  const std::size_t slash = here.rfind('/');
  const std::string beside = (slash == std::string::npos ? std::string(".") : here.substr(0, slash)) + "/../kernels";
  for (const std::string &folder : {beside, std::string("kernels")}) {
    std::ifstream file(folder + "/collective.cu");
    if (file) {
      std::stringstream text;
      text << file.rdbuf();
      return text.str();
    }
  }
  SKIP("kernels/collective.cu is not here");
  return std::string();
}

/* The host device's own version of a kernel and the compiled one. */
struct Pair {
  plinth::KernelModule module;
  plinth::Kernel own, from_source;

  explicit Pair(const std::string &name)
      : module(std::string(".version 7.0\n.target sm_75\n.address_size 64\n")),
        own(module.kernel(name)),
        from_source(compiled(source(), name)) {}
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

using Bytes = std::vector<unsigned char>;

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

template <class T>
bool is_nan_at(const Bytes &bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value != value;
}

/* Whether both have the same bits. All NaNs of float and double are alike: compilers may exchange the terms of a sum. */
bool same(const Bytes &one, const Bytes &other, std::size_t width, bool is_float) {
  if (!is_float || width < 4) {
    return one == other;
  }
  for (std::size_t at = 0; at + width <= one.size(); at += width) {
    const bool equal = std::memcmp(&one[at], &other[at], width) == 0;
    const bool nans = width == 4 ? is_nan_at<float>(one, at) && is_nan_at<float>(other, at)
                                 : is_nan_at<double>(one, at) && is_nan_at<double>(other, at);
    if (!equal && !nans) {
      return false;
    }
  }
  return true;
}

struct Reduction {
  const char *type;
  std::size_t width;
  bool is_float;
};
const Reduction kReductions[] = {
    {"f16", 2, true}, {"bf16", 2, true}, {"f32", 4, true},  {"f64", 8, true},   {"b8", 1, false},
    {"b16", 2, false}, {"b32", 4, false}, {"b64", 8, false}, {"bool", 1, false},
};

/* Bytes of numbers: all patterns of bits, and, for every second element, neighbours of 1 so that sums are rounded. */
Bytes numbers(std::size_t count, const Reduction &type, std::uint64_t seed) {
  Bytes bytes = randoms<unsigned char>(count * type.width, seed, 0, 255);
  for (std::size_t i = 0; i < count && type.is_float; i += 2) {
    const std::size_t high = (i + 1) * type.width - 1;
    bytes[high] = static_cast<unsigned char>((bytes[high] & 0x80) | (type.type[0] == 'f' && type.width == 2 ? 0x3C : 0x3F));
  }
  return bytes;
}

void reduce(const Reduction &type) {
  constexpr std::size_t kSources = 4, kDestinations = 2;
  const std::size_t lengths[] = {2000, 37};
  const std::size_t stride = 2064 * type.width, total = kDestinations * 2 * stride;
  const Pair pair(std::string("plinth_comm_reduce_") + type.type);
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
                                    {4, false}, {8, false}, {1, false}, {8, true},  {16, true}};
constexpr std::size_t kElementCount = sizeof kElements / sizeof *kElements;

/* Elements of a type. Floats are from 0 to below 128, because C++ defines no conversion to an integer that is out of
 * reach. */
static Bytes elements(std::size_t type, std::size_t count) {
  const Element element = kElements[type];
  if (!element.is_float) {
    return randoms<unsigned char>(count * element.bytes, type + 1, 0, 255);
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
