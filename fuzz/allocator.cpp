// Sequences of the caching allocator's calls, decoded from bytes, against a simple model. On the host device.
//
// With clang's -fsanitize=fuzzer and FUZZER defined it is a target of libFuzzer (`make fuzz`). Otherwise it is a program
// that does the same each time: `allocator [--seeds FIRST COUNT] [--seconds MOST] [--save FILE] [--verbose] [FILE...]`
// replays files and then inputs made from numbers. `--save` keeps the input that fails. A failure prints its calls.
//
// What must hold: blocks that are live do not overlap, neither by their addresses nor by what is written to them in the
// order of their streams, held or not; the counters are the model's; what is held stays within limit and device; wrong
// pointers are refused; a failed call leaves everything as it was; the allocator agrees with itself; and in the end
// everything can be had again, and goes back.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <plinth.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr size_t KIB = 1024, MIB = 1024 * KIB, UNIT = 512;
constexpr int DEVICES = 2, STREAMS = 5, POOLS = 4;
constexpr size_t MOST_CALLS = 600, SLOTS = 1 << 14, MOST_LIVE = 200;

bool verbose;
std::vector<std::string> calls;

__attribute__((format(printf, 1, 2))) void note(const char *format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (verbose) {
    fprintf(stderr, "  %s\n", line);
  }
  calls.emplace_back(line);
}

// What the program keeps of an input that fails; libFuzzer has its own way.
const uint8_t *input;
size_t input_bytes;
const char *save_to;
std::string input_name;

[[noreturn]] void fail(int line, const std::string &what) {
  fprintf(stderr, "%s: the calls were:\n", input_name.c_str());
  for (const std::string &call : calls) {
    fprintf(stderr, "  %s\n", call.c_str());
  }
  fprintf(stderr, "fuzz/allocator.cpp:%d: %s\nthe last message is \"%s\"\n", line, what.c_str(), plinth_last_error());
  if (save_to != nullptr) {
    std::ofstream(save_to, std::ios::binary).write(reinterpret_cast<const char *>(input), static_cast<long>(input_bytes));
    fprintf(stderr, "the input is in %s\n", save_to);
  }
  fflush(stderr);
  abort();
}

#define CHECK(condition) ((condition) ? void() : fail(__LINE__, "CHECK(" #condition ") does not hold"))
#define CHECK_STATUS(call, expected)                                                                     \
  do {                                                                                                   \
    const plinth_status_t status_ = (call);                                                              \
    if (status_ != (expected)) {                                                                         \
      fail(__LINE__, std::string(#call ": ") + plinth_status_name(status_) + " instead of " + #expected); \
    }                                                                                                    \
  } while (0)
#define CHECK_OK(call) CHECK_STATUS(call, PLINTH_OK)
#define CHECK_EQ(actual, expected)                                                                                  \
  do {                                                                                                              \
    const size_t actual_ = (actual), expected_ = (expected);                                                        \
    if (actual_ != expected_) {                                                                                     \
      fail(__LINE__, #actual ": " + std::to_string(actual_) + " instead of " #expected ", " + std::to_string(expected_)); \
    }                                                                                                               \
  } while (0)

// ---- what the calls work on

struct Gate {
  std::atomic<bool> opened{false}, passed{false};
};

struct Block {
  unsigned char *memory;
  size_t bytes;    // as asked for
  size_t charged;  // as counted
  uint32_t word;   // stands at its stamps
  int device, stream, pool;
  std::vector<std::pair<int, int>> uses;  // device and stream
};

// What was freed and may not be given out again while a gate is shut.
struct Quarantine {
  uintptr_t begin, end;
  std::shared_ptr<Gate> gate;
};

struct Pool {
  plinth_pool_id_t id;
  bool known = false, made = false, no_split = false, willing = false;
  int users[DEVICES] = {};
};

struct Route {
  int pool, stream;  // stream -1: the thread's requests; -2: those of captures
};

plinth_stream_t streams[DEVICES][STREAMS];
size_t totals[DEVICES];
uint32_t *slots;

std::vector<Block> live;
std::deque<Quarantine> quarantines;
std::vector<std::pair<std::shared_ptr<Gate>, std::pair<int, int>>> shut;
std::vector<std::shared_ptr<Gate>> opened;
std::vector<uint32_t> expected;  // of the slots
Pool pools[POOLS];
std::vector<Route> routes[DEVICES];
std::vector<std::pair<void *, int>> direct;
std::map<void *, size_t> direct_bytes;
size_t sums[DEVICES], peaks[DEVICES], limits[DEVICES];
bool loose[DEVICES];       // a pool without splits was used, so blocks may be larger than asked for
bool ever_willing;         // requests of the default pool may have gone elsewhere
int callback_frees;        // how many blocks the callback frees, once
int current;
// Whether counters are seldom looked at: a look at them notes a peak, and hides that nobody did.
bool sparse;
uint32_t next_word;
std::vector<void *> stale;

size_t rounded(size_t bytes) { return (bytes + UNIT - 1) / UNIT * UNIT; }
int canonical(int stream) { return stream == 4 ? 0 : stream; }

void use_device(int device) { CHECK_OK(plinth_set_device(device)); }

size_t allocated(int device) {
  size_t bytes = 0;
  CHECK_OK(plinth_memory_allocated(device, &bytes));
  return bytes;
}

size_t reserved(int device) {
  size_t bytes = 0;
  CHECK_OK(plinth_memory_reserved(device, &bytes));
  return bytes;
}

// Segments go back by cuMemFree, which waits for the device: there a gate does not stay shut for ever.
bool segments;

void hold_function(void *context) {
  auto *gate = static_cast<Gate *>(context);
  const auto begin = std::chrono::steady_clock::now();
  while (!gate->opened.load()) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    if (segments && std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(5)) {
      gate->opened.store(true);
    }
  }
  gate->passed.store(true);
}

void open_gates() {
  for (auto &entry : shut) {
    entry.first->opened.store(true);
    opened.push_back(entry.first);
  }
  shut.clear();
}

// Waits for all work, and looks at what it read.
void settle() {
  open_gates();
  for (int device = 0; device < DEVICES; device++) {
    CHECK_OK(plinth_synchronize(device));
  }
  for (auto &gate : opened) {
    while (!gate->passed.load()) {
      std::this_thread::yield();
    }
  }
  opened.clear();
  quarantines.clear();
  for (size_t slot = 0; slot < expected.size(); slot++) {
    if (slots[slot] != expected[slot]) {
      char text[128];
      snprintf(text, sizeof text, "a stamp of block #%u is %u when it is read: somebody else wrote there",
               expected[slot], slots[slot]);
      fail(__LINE__, text);
    }
  }
  expected.clear();
}

// Where a block is written to and read: its ends, and some places between in a large one.
template <typename Body> void at_stamps(const Block &block, Body body) {
  if (block.bytes < 4) {
    return;
  }
  const size_t last = (block.bytes - 4) / 4 * 4;
  body(size_t{0});
  if (last > 0) {
    body(last);
  }
  if (block.bytes > 3 * MIB) {
    for (size_t part = 1; part < 6; part++) {
      body(block.bytes / 6 * part / 4 * 4);
    }
  }
}

void stamp(const Block &block) {
  use_device(block.device);
  at_stamps(block, [&](size_t offset) {
    CHECK_OK(plinth_memset_pattern(block.memory + offset, &block.word, 4, 4, streams[block.device][block.stream]));
  });
  use_device(current);
}

void read_stamps(const Block &block, int stream) {
  if (expected.size() + 8 > SLOTS) {
    settle();
  }
  use_device(block.device);
  at_stamps(block, [&](size_t offset) {
    uint32_t *slot = slots + expected.size();
    *slot = 0;
    expected.push_back(block.word);
    CHECK_OK(plinth_memcpy(slot, block.memory + offset, 4, streams[block.device][stream]));
  });
  use_device(current);
}

// ---- faults

struct Fault {
  unsigned nth = 0;
  int code = 0;
};
Fault next_fault;
const char *tripped, *tripped_before_callback;

// Makes a call with the fault that was asked for; whether it succeeded. A failure must be the fault's.
template <typename Call> plinth_status_t with_fault(Call call) {
  const Fault fault = next_fault;
  next_fault = Fault();
  tripped_before_callback = nullptr;
  if (fault.nth != 0) {
    CHECK_OK(plinth_inject_fault(fault.nth, fault.code));
  }
  const plinth_status_t status = call();
  const std::string message = plinth_last_error();
  tripped = fault.nth == 0 ? nullptr : tripped_before_callback != nullptr ? tripped_before_callback : plinth_tripped_fault();
  if ((status == PLINTH_OK) != message.empty()) {
    fail(__LINE__, std::string(plinth_status_name(status)) + " leaves the message \"" + message + "\"");
  }
  if (fault.nth != 0) {
    CHECK_OK(plinth_inject_fault(0, 0));
  }
  if (status != PLINTH_OK || tripped != nullptr) {
    note("  -> %s%s%s: %.150s", plinth_status_name(status), tripped ? ", after a fault in " : "", tripped ? tripped : "",
         message.c_str());
  }
  return status;
}

void expect_ok_or_fault(int line, plinth_status_t status) {
  const bool excused = tripped != nullptr && (status == PLINTH_ERROR_DRIVER || status == PLINTH_ERROR_OUT_OF_MEMORY);
  if (status != PLINTH_OK && !excused) {
    fail(line, std::string("failed with ") + plinth_status_name(status) + " without a reason");
  }
}

// ---- what must hold at all times

void check_counters() {
  for (int device = 0; device < DEVICES; device++) {
    CHECK_EQ(allocated(device), sums[device]);
    size_t peak = 0;
    CHECK_OK(plinth_max_memory_allocated(device, &peak));
    CHECK_EQ(peak, peaks[device]);
    const size_t held = reserved(device);
    CHECK(held >= sums[device]);
    CHECK(held <= totals[device]);
    CHECK_OK(plinth_max_memory_reserved(device, &peak));
    CHECK(peak >= held);
  }
}

void check_pools() {
  for (int device = 0; device < DEVICES; device++) {
    size_t in_pools[POOLS + 1] = {};
    for (const Block &block : live) {
      if (block.device == device) {
        in_pools[block.pool + 1] += block.charged;
      }
    }
    size_t sum = 0;
    for (int pool = -1; pool < POOLS; pool++) {
      if (pool >= 0 && !pools[pool].known) {
        continue;
      }
      const plinth_pool_id_t id = pool < 0 ? plinth_pool_id_t{0, 0} : pools[pool].id;
      size_t bytes = 0, held = 0;
      CHECK_OK(plinth_mem_pool_memory(id, device, &bytes, &held));
      CHECK(held >= bytes);
      if (!ever_willing) {
        CHECK_EQ(bytes, in_pools[pool + 1]);
      }
      sum += bytes;
      if (pool >= 0) {
        int32_t users = -1;
        const bool exists = pools[pool].made || pools[pool].users[0] + pools[pool].users[1] > 0;
        if (exists) {
          CHECK_OK(plinth_mem_pool_use_count(id, device, &users));
          CHECK_EQ(static_cast<size_t>(users), static_cast<size_t>(pools[pool].users[device] + (pools[pool].made ? 1 : 0)));
        } else {
          CHECK_STATUS(plinth_mem_pool_use_count(id, device, &users), PLINTH_ERROR_INVALID_HANDLE);
        }
      }
    }
    CHECK_EQ(sum, sums[device]);
  }
}

// ---- calls

int pool_of(int device, int stream) {
  for (size_t index = routes[device].size(); index-- > 0;) {
    const Route &route = routes[device][index];
    if (route.stream == -1 || (route.stream >= 0 && canonical(route.stream) == canonical(stream))) {
      return route.pool;
    }
  }
  return -1;
}

void free_block(size_t index) {
  const Block block = live[index];
  read_stamps(block, block.stream);
  live.erase(live.begin() + static_cast<long>(index));
  for (const auto &use : block.uses) {
    for (const auto &entry : shut) {
      if (entry.second == use) {
        const auto begin = reinterpret_cast<uintptr_t>(block.memory);
        quarantines.push_back({begin, begin + block.bytes, entry.first});
      }
    }
  }
  note("delete(#%u)", block.word);
  // A fault in it is not seen by the caller: the mark is made later.
  expect_ok_or_fault(__LINE__, with_fault([&] { return plinth_caching_allocator_delete(block.memory); }));
  sums[block.device] -= block.charged;
  stale.push_back(block.memory);
}

bool free_memory(int32_t device, size_t, void *) {
  // From here on the allocator may wait for the device, and nothing else would let it go on.
  open_gates();
  bool any = false;
  // The fault is meant for the allocator's calls, not for those of this program.
  const char *tripped_by_now = plinth_tripped_fault();
  CHECK_OK(plinth_inject_fault(0, 0));
  while (callback_frees > 0) {
    callback_frees--;
    for (size_t index = 0; index < live.size(); index++) {
      if (live[index].device == device) {
        note("  in the callback:");
        free_block(index);
        any = true;
        break;
      }
    }
  }
  tripped_before_callback = tripped_by_now;
  return any;
}

bool is_live(const void *pointer) {
  return std::any_of(live.begin(), live.end(), [&](const Block &block) { return block.memory == pointer; });
}

// There is no memory for a request only if what lives, and what may be stuck around it, leaves too little. That is two
// handles for each block, which is a lot of this little device: it says something where few blocks live.
void expect_truly_out(size_t bytes, int device, size_t limit) {
  const size_t stuck = 2 * std::clamp(totals[device] / 128, 2 * MIB, 32 * MIB);
  if (segments) {
    return;  // a small block may lie in a segment of any size
  }
  size_t room = totals[device], used = 2 * stuck;
  for (const Pool &pool : pools) {
    if (pool.known) {
      return;
    }
  }
  for (const auto &entry : direct) {
    room -= entry.second == device ? direct_bytes.at(entry.first) : 0;
  }
  room = std::min(room, limit);
  for (const Block &block : live) {
    used += block.device == device ? block.charged + stuck : 0;
  }
  if (bytes <= totals[device] && used + bytes <= room) {
    fail(__LINE__, "there is memory: at most " + std::to_string(used) + " of " + std::to_string(room) + " bytes are in use");
  }
}

void allocate(size_t bytes, int device, int stream, bool by_current) {
  void *const untouched = &current;
  void *pointer = untouched;
  const int number = by_current && current == device ? -1 : device;
  const uint32_t word = ++next_word;
  note("#%u = alloc(%zu, device %d, stream %d)", word, bytes, number, stream);
  const size_t held = reserved(device);
  const int pool = pool_of(device, stream);
  const plinth_status_t status = with_fault(
      [&] { return plinth_caching_allocator_alloc(bytes, number, streams[device][stream], &pointer); });
  if (status != PLINTH_ERROR_OUT_OF_MEMORY) {
    expect_ok_or_fault(__LINE__, status);
  } else if (tripped == nullptr) {
    expect_truly_out(bytes, device, limits[device]);
  }
  const size_t now = reserved(device);
  if (now > std::max(held, limits[device])) {
    fail(__LINE__, "with a limit of " + std::to_string(limits[device]) + " bytes, " + std::to_string(held) + " became " +
                       std::to_string(now));
  }
  if (status != PLINTH_OK || bytes == 0) {
    CHECK(pointer == (status == PLINTH_OK ? nullptr : untouched));
    if (!sparse) {
      CHECK_EQ(allocated(device), sums[device]);
    }
    return;
  }
  CHECK(reinterpret_cast<uintptr_t>(pointer) % UNIT == 0);
  const size_t charged = sparse ? rounded(bytes) : allocated(device) - sums[device];
  if (charged != rounded(bytes) && !(loose[device] && charged > rounded(bytes) && charged <= now)) {
    fail(__LINE__, "a block of " + std::to_string(bytes) + " bytes is counted as " + std::to_string(charged));
  }
  sums[device] += charged;
  peaks[device] = std::max(peaks[device], sums[device]);
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  for (const Block &other : live) {
    const auto there = reinterpret_cast<uintptr_t>(other.memory);
    CHECK(begin + charged <= there || there + other.charged <= begin);
  }
  for (const Quarantine &other : quarantines) {
    if (!other.gate->opened.load() && begin < other.end && other.begin < begin + bytes) {
      fail(__LINE__, "the memory was freed while a stream that uses it is held");
    }
  }
  live.push_back({static_cast<unsigned char *>(pointer), bytes, charged, word, device, stream, pool, {}});
  stamp(live.back());
}

// Reads the input; it is 0 behind its end.
struct Reader {
  const uint8_t *at, *end;
  bool empty() const { return at == end; }
  unsigned byte() { return at < end ? *at++ : 0; }
  size_t word() {
    const unsigned high = byte();
    return high << 8 | byte();
  }
  size_t size() {
    const unsigned kind = byte() % 16;
    const size_t fine = word();
    switch (kind) {
      case 0: return 1 + fine % 64;
      case 1:
      case 2: return 1 + fine % (8 * KIB);
      case 3:
      case 4: return 1 + fine * 16;
      case 5: return MIB - 2 * UNIT + fine % (4 * UNIT);
      case 6: return (1 + fine % 16) * 2 * MIB - fine / 16 % 3 * UNIT;
      case 7:
      case 8: return MIB + fine * 64;
      case 9:
      case 10: return MIB + fine * 160;
      case 11: return 8 * MIB + fine * 512;
      case 12: return 16 * MIB + fine * 1024;
      case 13: return 32 * MIB + fine * 4096;
      case 14: return (fine % 4 + 1) * 128 * MIB;
      default: return fine % 8 == 0 ? 0 : fine % 8 == 1 ? SIZE_MAX - fine : fine % 8 == 2 ? size_t{1} << (fine / 8 % 64) : fine;
    }
  }
};

void wrong_pointer(Reader &in) {
  unsigned char *pointer = nullptr;
  const unsigned kind = in.byte() % 6;
  switch (kind) {
    case 0: pointer = reinterpret_cast<unsigned char *>(&current); break;
    case 1: pointer = reinterpret_cast<unsigned char *>(UINTPTR_MAX - in.byte()); break;
    case 2: pointer = reinterpret_cast<unsigned char *>(uintptr_t{1} + in.byte()); break;
    case 3:
    case 4:
      if (!live.empty()) {
        const Block &block = live[in.byte() % live.size()];
        const size_t offset = kind == 3 ? 1 + in.byte() : in.word() * UNIT;
        pointer = offset < block.charged ? block.memory + offset : nullptr;
      }
      break;
    default:
      if (!stale.empty()) {
        pointer = static_cast<unsigned char *>(stale[in.byte() % stale.size()]);
      }
  }
  if (pointer == nullptr || is_live(pointer)) {
    return;
  }
  note("delete and record_stream of a wrong pointer, kind %u", kind);
  CHECK_STATUS(plinth_caching_allocator_delete(pointer), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_record_stream(pointer, streams[current][0]), PLINTH_ERROR_INVALID_POINTER);
}

void wrong_arguments(Reader &in) {
  void *pointer = nullptr;
  note("alloc with wrong arguments");
  CHECK_STATUS(plinth_caching_allocator_alloc(100, 99, nullptr, &pointer), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_caching_allocator_alloc(100, 0, streams[1][1 + in.byte() % 3], &pointer),
               PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_STATUS(plinth_caching_allocator_alloc(100, 0, nullptr, nullptr), PLINTH_ERROR_NULL_POINTER);
}

void record_stream(Reader &in) {
  if (live.empty()) {
    return;
  }
  Block &block = live[in.byte() % live.size()];
  const unsigned which = in.byte();
  int device = block.device, stream = static_cast<int>(which % STREAMS);
  if (which >= 200) {
    // Another device may not touch it, but whoever says so is believed.
    device = 1 - device;
    stream = 1 + stream % 3;
  }
  note("record_stream(#%u, device %d, stream %d)", block.word, device, stream);
  if (device == block.device && canonical(stream) != canonical(block.stream)) {
    use_device(device);
    CHECK_OK(plinth_stream_wait_stream(streams[device][stream], streams[device][block.stream]));
    use_device(current);
    read_stamps(block, stream);
  }
  use_device(device);
  const plinth_status_t status = with_fault([&] { return plinth_record_stream(block.memory, streams[device][stream]); });
  use_device(current);
  if (status != PLINTH_OK) {
    expect_ok_or_fault(__LINE__, status);
    CHECK_OK(plinth_set_device(device));
    CHECK_OK(plinth_record_stream(block.memory, streams[device][stream]));
    use_device(current);
  }
  if (device != block.device || canonical(stream) != canonical(block.stream)) {
    block.uses.emplace_back(device, stream);
    block.uses.emplace_back(device, canonical(stream));
  }
}

void make_pool(int index, unsigned how) {
  Pool &pool = pools[index];
  if (pool.known) {
    return;
  }
  pool = Pool();
  pool.known = true;
  if (how % 4 == 3) {
    pool.id = {7, static_cast<uint64_t>(index + 1)};
    note("pool %d is {7, %d}", index, index + 1);
    return;
  }
  pool.made = true;
  pool.willing = how & 1;
  pool.no_split = (how & 2) && !sparse;
  note("pool %d = mem_pool_create(%s, %s)", index, pool.willing ? "use_on_oom" : "-", pool.no_split ? "no_split" : "-");
  CHECK_OK(plinth_mem_pool_create(pool.willing, pool.no_split, &pool.id));
  ever_willing |= pool.willing;
}

bool is_routed(int device, int pool) {
  return std::any_of(routes[device].begin(), routes[device].end(), [&](const Route &route) { return route.pool == pool; });
}

void begin_pool(int device, int index, unsigned how, int stream) {
  make_pool(index, how);
  Pool &pool = pools[index];
  const bool routed = is_routed(device, index);
  const unsigned kind = how / 4 % 4;
  Route route{index, kind == 0 ? -2 : kind == 1 ? stream : -1};
  note("begin_allocate_%sto_pool(device %d, stream %d, pool %d)",
       kind == 0 ? "" : kind == 1 ? "current_stream_" : "current_thread_", device, stream, index);
  const plinth_status_t status = with_fault([&] {
    return kind == 0   ? plinth_begin_allocate_to_pool(device, pool.id)
           : kind == 1 ? plinth_begin_allocate_current_stream_to_pool(device, streams[device][stream], pool.id)
                       : plinth_begin_allocate_current_thread_to_pool(device, pool.id);
  });
  if (routed) {
    CHECK(status == PLINTH_ERROR_INVALID_VALUE || (tripped != nullptr && status == PLINTH_ERROR_DRIVER));
    return;
  }
  expect_ok_or_fault(__LINE__, status);
  if (status == PLINTH_OK) {
    routes[device].push_back(route);
    pool.users[device]++;
    // A block of it may later be asked for by requests that go elsewhere, if it is willing.
    for (bool &any : loose) {
      any |= pool.no_split;
    }
  }
}

void end_pool(int device, int index) {
  if (!pools[index].known) {
    return;
  }
  auto &of_device = routes[device];
  const auto found =
      std::find_if(of_device.rbegin(), of_device.rend(), [&](const Route &route) { return route.pool == index; });
  note("end_allocate_to_pool(device %d, pool %d)", device, index);
  const plinth_status_t status = plinth_end_allocate_to_pool(device, pools[index].id);
  CHECK(status == (found == of_device.rend() ? PLINTH_ERROR_INVALID_VALUE : PLINTH_OK));
  if (found != of_device.rend()) {
    of_device.erase(std::next(found).base());
  }
}

void release_pool(int device, int index) {
  Pool &pool = pools[index];
  if (!pool.known) {
    return;
  }
  const bool exists = pool.made || pool.users[0] + pool.users[1] > 0;
  note("release_pool(device %d, pool %d)", device, index);
  const plinth_status_t status = with_fault([&] { return plinth_release_pool(device, pool.id); });
  if (!exists) {
    CHECK(status == PLINTH_ERROR_INVALID_HANDLE);
  } else if (pool.users[device] == 0) {
    CHECK(status == PLINTH_ERROR_INVALID_VALUE);
  } else {
    expect_ok_or_fault(__LINE__, status);
    pool.users[device] -= status == PLINTH_OK;
  }
}

void destroy_pool(int index) {
  Pool &pool = pools[index];
  if (!pool.known) {
    return;
  }
  note("mem_pool_destroy(pool %d)", index);
  const plinth_status_t status = with_fault([&] { return plinth_mem_pool_destroy(pool.id); });
  if (!pool.made) {
    CHECK(status == PLINTH_ERROR_INVALID_HANDLE);
    return;
  }
  expect_ok_or_fault(__LINE__, status);
  pool.made = pool.made && status != PLINTH_OK;
}

void empty_cache() {
  size_t held[DEVICES], in_pools[POOLS][DEVICES] = {}, bytes;
  const auto used = [](const Pool &pool, int device) { return pool.known && (pool.made || pool.users[device] > 0); };
  for (int device = 0; device < DEVICES; device++) {
    held[device] = reserved(device);
    for (int pool = 0; pool < POOLS; pool++) {
      if (used(pools[pool], device)) {
        CHECK_OK(plinth_mem_pool_memory(pools[pool].id, device, &bytes, &in_pools[pool][device]));
      }
    }
  }
  note("empty_cache()");
  expect_ok_or_fault(__LINE__, with_fault([] { return plinth_empty_cache(); }));
  for (int device = 0; device < DEVICES; device++) {
    CHECK(reserved(device) <= held[device]);
    for (int pool = 0; pool < POOLS; pool++) {
      if (used(pools[pool], device)) {
        size_t now = 0;
        CHECK_OK(plinth_mem_pool_memory(pools[pool].id, device, &bytes, &now));
        CHECK_EQ(now, in_pools[pool][device]);
      }
    }
  }
}

void limit(int device, unsigned how) {
  static const size_t choices[] = {8 * MIB, 24 * MIB, 64 * MIB, 100 * MIB, 200 * MIB, SIZE_MAX, SIZE_MAX, 0};
  const size_t bytes = choices[how % 8];
  const double fraction = bytes >= totals[device] ? 1.0 : static_cast<double>(bytes) / static_cast<double>(totals[device]);
  limits[device] = static_cast<size_t>(static_cast<double>(totals[device]) * fraction);
  note("set_per_process_memory_fraction(%g: %zu, device %d)", fraction, limits[device], device);
  CHECK_OK(plinth_set_per_process_memory_fraction(fraction, device));
}

void shut_gate(int device, int stream) {
  if (shut.size() >= 3) {
    return;
  }
  note("hold(device %d, stream %d)", device, stream);
  auto gate = std::make_shared<Gate>();
  use_device(device);
  CHECK_OK(plinth_launch_host_function(streams[device][stream], hold_function, gate.get()));
  use_device(current);
  shut.push_back({gate, {device, stream}});
}

void report(int device) {
  char *text = nullptr;
  CHECK_OK(plinth_memory_summary(device, device == 0, &text));
  CHECK(strlen(text) > 100);
  plinth_string_free(text);
  note("reset_peak_memory_stats(device %d)", device);
  CHECK_OK(plinth_reset_peak_memory_stats(device));
  peaks[device] = sums[device];
}

void hold_directly(Reader &in, int device) {
  if (direct.size() < 2 || in.byte() % 2 == 0) {
    if (direct.size() == 2) {
      return;
    }
    void *memory = nullptr;
    const size_t bytes = (1 + in.byte()) * 2 * MIB;
    note("device_malloc(%zu, device %d)", bytes, device);
    if (plinth_device_malloc(bytes, device, &memory) == PLINTH_OK) {
      direct.emplace_back(memory, device);
      direct_bytes[memory] = bytes;
    }
  } else {
    note("device_free()");
    settle();  // as cuMemFree does
    CHECK_OK(plinth_device_free(direct.back().first));
    direct.pop_back();
  }
}

void one_call(Reader &in) {
  const unsigned code = in.byte();
  const unsigned where = in.byte();
  const int device = where & 1;
  const int stream = static_cast<int>(where / 2 % STREAMS);
  const int pool = static_cast<int>(where / 16 % POOLS);
  if (code < 90) {
    const size_t bytes = in.size();
    if (live.size() < MOST_LIVE) {
      allocate(bytes, device, stream, where & 128);
    }
  } else if (code < 150) {
    if (!live.empty()) {
      free_block(in.byte() % live.size());
    }
  } else if (code < 168) {
    record_stream(in);
  } else if (code < 176) {
    shut_gate(device, stream);
  } else if (code < 182) {
    note("open gates");
    open_gates();
  } else if (code < 186) {
    note("synchronize");
    settle();
  } else if (code < 192) {
    empty_cache();
  } else if (code < 200) {
    limit(device, in.byte());
  } else if (code < 210) {
    begin_pool(device, pool, in.byte(), stream);
  } else if (code < 216) {
    end_pool(device, pool);
  } else if (code < 222) {
    release_pool(device, pool);
  } else if (code < 225) {
    destroy_pool(pool);
  } else if (code < 240) {
    next_fault.nth = 1 + in.byte() % 24;
    next_fault.code = where & 2 ? 2 : 999;
    note("fault %d in driver call %u of:", next_fault.code, next_fault.nth);
  } else if (code < 244) {
    wrong_pointer(in);
  } else if (code < 245) {
    wrong_arguments(in);
  } else if (code < 247) {
    report(device);
  } else if (code < 250) {
    hold_directly(in, device);
  } else if (code < 253) {
    callback_frees = 1 + static_cast<int>(where % 4);
    note("the callback will free %d", callback_frees);
  } else {
    current = device;
    note("set_device(%d)", device);
    use_device(current);
  }
}

void end_everything() {
  note("the end");
  next_fault = Fault();
  callback_frees = 0;
  settle();
  while (!live.empty()) {
    free_block(live.size() - 1);
  }
  for (int device = 0; device < DEVICES; device++) {
    while (!routes[device].empty()) {
      end_pool(device, routes[device].back().pool);
    }
    for (int pool = 0; pool < POOLS; pool++) {
      while (pools[pool].users[device] > 0) {
        release_pool(device, pool);
      }
    }
    limit(device, 5);
  }
  for (int pool = 0; pool < POOLS; pool++) {
    if (pools[pool].made) {
      destroy_pool(pool);
    }
  }
  while (!direct.empty()) {
    CHECK_OK(plinth_device_free(direct.back().first));
    direct.pop_back();
  }
  settle();
  CHECK_OK(plinth_testing_check_allocator());
  check_counters();
  for (int device = 0; device < DEVICES; device++) {
    CHECK_EQ(allocated(device), 0);
  }
  // Whatever is cached where, it is at the disposal of one request.
  void *most = nullptr;
  const size_t bytes = totals[0] / 8 * 7;
  note("alloc(%zu, device 0, stream 1) at the end", bytes);
  CHECK_OK(plinth_caching_allocator_alloc(bytes, 0, streams[0][1], &most));
  CHECK_OK(plinth_caching_allocator_delete(most));
  for (int device = 0; device < DEVICES; device++) {
    CHECK_OK(plinth_reset_peak_memory_stats(device));
  }
  note("empty_cache() at the end");
  CHECK_OK(plinth_empty_cache());
  CHECK_OK(plinth_testing_check_allocator());
  for (int device = 0; device < DEVICES; device++) {
    CHECK_EQ(reserved(device), 0);
    sums[device] = peaks[device] = 0;
    loose[device] = false;
  }
  plinth_host_usage_t usage = PLINTH_HOST_USAGE_INIT;
  CHECK_OK(plinth_host_usage(&usage));
  CHECK_EQ(usage.device_bytes, 0);
  CHECK_EQ(usage.memory_handles, 0);
  CHECK_EQ(usage.mappings, 0);
  for (Pool &pool : pools) {
    pool = Pool();
  }
  ever_willing = false;
  stale.clear();
  current = 0;
  use_device(current);
}

void prepare() {
  static bool prepared = false;
  if (prepared) {
    return;
  }
  prepared = true;
  // Little memory is soon too little. What is set already counts.
  setenv("PLINTH_DEVICE", "host", 0);
  setenv("PLINTH_HOST_DEVICES", "2", 1);
  setenv("PLINTH_HOST_MEMORY", "512MiB", 0);
  const char *configuration = getenv("PLINTH_ALLOC_CONF");
  segments = configuration != nullptr && strstr(configuration, "False") != nullptr;
  CHECK_OK(plinth_enable_fault_injection());
  for (int device = 0; device < DEVICES; device++) {
    size_t available = 0;
    CHECK_OK(plinth_mem_get_info(device, &available, &totals[device]));
    limits[device] = totals[device];
    for (int stream = 1; stream <= 3; stream++) {
      CHECK_OK(plinth_stream_create(device, 0, &streams[device][stream]));
    }
    // The default stream by its other name.
    streams[device][4] = reinterpret_cast<plinth_stream_t>(uintptr_t{1});
  }
  void *memory = nullptr;
  CHECK_OK(plinth_pinned_malloc(SLOTS * sizeof *slots, &memory));
  slots = static_cast<uint32_t *>(memory);
  CHECK_OK(plinth_add_free_memory_callback(free_memory, nullptr));
  use_device(0);
}

void run(const uint8_t *data, size_t size) {
  input = data;
  input_bytes = size;
  prepare();
#ifndef FUZZER
  alarm(60);  // a call that waits for a gate waits for ever; libFuzzer has -timeout
#endif
  calls.clear();
  next_word = 0;
  Reader in{data, data + size};
  sparse = in.byte() & 1;
  for (size_t count = 0; count < MOST_CALLS && !in.empty(); count++) {
    one_call(in);
    if (!sparse) {
      check_counters();
    }
    if (count % (sparse ? 32 : 8) == 7) {
      check_counters();
      check_pools();
      const plinth_status_t sound = plinth_testing_check_allocator();
      if (sound != PLINTH_OK) {
        fail(__LINE__, "the allocator does not agree with itself");
      }
    }
  }
  check_pools();
  end_everything();
#ifndef FUZZER
  alarm(0);
#endif
}

}  // namespace

#ifdef FUZZER

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  run(data, size);
  return 0;
}

#else

namespace {

// Some three hundred calls from a number.
std::vector<uint8_t> made_from(uint64_t seed) {
  std::vector<uint8_t> bytes(200 + seed % 8 * 200);
  for (uint8_t &byte : bytes) {
    uint64_t mixed = seed += UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    byte = static_cast<uint8_t>(mixed >> 56);
  }
  return bytes;
}

void hung(int) {
  // Not for a signal handler, but the process is lost anyway.
  fail(__LINE__, "a call does not return");
}

}  // namespace

#include <csignal>

int main(int argc, char **argv) {
  uint64_t first = 0, count = 0, done = 0;
  double most = 1e9;
  std::vector<std::string> files;
  for (int index = 1; index < argc; index++) {
    const std::string argument = argv[index];
    if (argument == "--verbose") {
      verbose = true;
    } else if (argument == "--seeds" && index + 2 < argc) {
      first = strtoull(argv[++index], nullptr, 10);
      count = strtoull(argv[++index], nullptr, 10);
    } else if (argument == "--seconds" && index + 1 < argc) {
      most = atof(argv[++index]);
    } else if (argument == "--save" && index + 1 < argc) {
      save_to = argv[++index];
    } else if (argument[0] == '-') {
      fprintf(stderr, "usage: %s [--seeds FIRST COUNT] [--seconds MOST] [--save FILE] [--verbose] [FILE...]\n", argv[0]);
      return 2;
    } else {
      files.push_back(argument);
    }
  }
  signal(SIGALRM, hung);
  for (const std::string &name : files) {
    std::ifstream file(name, std::ios::binary);
    if (!file) {
      fprintf(stderr, "%s cannot be read\n", name.c_str());
      return 2;
    }
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    input_name = name;
    run(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
  }
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t seed = first; seed < first + count; seed++, done++) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > most) {
      break;
    }
    const std::vector<uint8_t> bytes = made_from(seed);
    input_name = "seed " + std::to_string(seed);
    if (verbose) {
      fprintf(stderr, "%s\n", input_name.c_str());
    }
    run(bytes.data(), bytes.size());
  }
  printf("%zu files and %llu made inputs: all held\n", files.size(), static_cast<unsigned long long>(done));
  return 0;
}

#endif
