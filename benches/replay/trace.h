// Recorded allocation traces: reads, validates and prepares them for replay.
// The format is described in benches/traces/README.md.
#pragma once
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace replay {

// An event in the file, 16 bytes.
struct RecordedEvent {
  uint32_t id;
  uint16_t op;
  uint16_t stream;
  uint64_t size;
};
static_assert(sizeof(RecordedEvent) == 16);

// An event prepared for replay: slots, which are reused, replace ids, and a free has the size and stream of its block, so
// that the timed loop needs no look-ups.
struct Event {
  uint32_t slot;
  uint16_t op;
  uint16_t stream;
  uint64_t size;
};

enum : uint16_t { ALLOCATE = 0, FREE = 1 };

struct Trace {
  std::vector<Event> events;
  uint32_t slots = 0;
  uint32_t streams = 0;
  uint64_t peak_live = 0;
  size_t peak_event = 0;  // the event that reaches the peak first
};

struct TraceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline std::vector<uint8_t> read_file(const std::string &path) {
  std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw TraceError(path + ": " + std::strerror(errno));
  std::vector<uint8_t> bytes;
  uint8_t buffer[1 << 16];
  while (size_t count = std::fread(buffer, 1, sizeof buffer, file.get()))
    bytes.insert(bytes.end(), buffer, buffer + count);
  if (std::ferror(file.get())) throw TraceError(path + ": " + std::strerror(errno));
  return bytes;
}

// The format has no magic number, so only files of known other formats can be rejected.
inline void refuse_other_formats(const std::string &path, const std::vector<uint8_t> &bytes) {
  static const struct {
    const char *magic;
    size_t length;
    const char *advice;
  } known[] = {{"\xfd" "7zXZ", 5, "is compressed by xz; decompress it first, or let compare.py do it"},
               {"\x1f\x8b", 2, "is compressed by gzip; decompress it first"},
               {"\x28\xb5\x2f\xfd", 4, "is compressed by zstd; decompress it first"},
               {"PK\x03\x04", 4, "is a zip archive, not a trace"},
               {"\x7f" "ELF", 4, "is a program, not a trace"}};
  for (const auto &format : known)
    if (bytes.size() >= format.length && std::memcmp(bytes.data(), format.magic, format.length) == 0)
      throw TraceError(path + " " + format.advice);
  if (bytes.empty()) throw TraceError(path + " is empty");
  if (bytes.size() % sizeof(RecordedEvent) != 0)
    throw TraceError(path + " is not a trace, or is truncated: its " + std::to_string(bytes.size()) +
                     " bytes are not a multiple of 16");
}

// Reads a trace. Throws a TraceError that names the first invalid event.
inline Trace read_trace(const std::string &path) {
  std::vector<uint8_t> bytes = read_file(path);
  refuse_other_formats(path, bytes);
  struct Live {
    uint32_t slot;
    uint16_t stream;
    uint64_t size;
  };
  Trace trace;
  std::unordered_map<uint32_t, Live> live;
  std::vector<uint32_t> free_slots;
  uint64_t live_bytes = 0;
  size_t count = bytes.size() / sizeof(RecordedEvent);
  trace.events.reserve(count);
  for (size_t i = 0; i < count; i++) {
    RecordedEvent recorded;
    std::memcpy(&recorded, &bytes[i * sizeof recorded], sizeof recorded);
    auto refuse = [&](const std::string &why) {
      throw TraceError(path + ", event " + std::to_string(i) + ": " + why);
    };
    std::string block = "block " + std::to_string(recorded.id);
    if (recorded.op == ALLOCATE) {
      if (live.count(recorded.id)) refuse(block + " is allocated again without a free in between");
      if (recorded.size > INT64_MAX || live_bytes + recorded.size < live_bytes)
        refuse(block + " has an impossible size: " + std::to_string(recorded.size) + " bytes");
      if (recorded.stream > trace.streams)
        refuse("stream " + std::to_string(recorded.stream) + " is used before stream " +
               std::to_string(trace.streams) + "; streams must be numbered in order of first use");
      if (recorded.stream == trace.streams) trace.streams++;
      uint32_t slot = trace.slots;
      if (free_slots.empty()) {
        trace.slots++;
      } else {
        slot = free_slots.back();
        free_slots.pop_back();
      }
      live[recorded.id] = {slot, recorded.stream, recorded.size};
      live_bytes += recorded.size;
      if (live_bytes > trace.peak_live) {
        trace.peak_live = live_bytes;
        trace.peak_event = i;
      }
      trace.events.push_back({slot, ALLOCATE, recorded.stream, recorded.size});
    } else if (recorded.op == FREE) {
      auto found = live.find(recorded.id);
      if (found == live.end()) refuse(block + " is freed, but is not allocated");
      Live freed = found->second;
      if (recorded.size != 0 && recorded.size != freed.size)
        refuse(block + " is freed with " + std::to_string(recorded.size) + " bytes, but has " +
               std::to_string(freed.size));
      live.erase(found);
      live_bytes -= freed.size;
      free_slots.push_back(freed.slot);
      trace.events.push_back({freed.slot, FREE, freed.stream, freed.size});
    } else {
      refuse("operation " + std::to_string(recorded.op) + " is neither 0 (allocate) nor 1 (free)");
    }
  }
  return trace;
}

}  // namespace replay
