// The fuzzer's state, the simple model that the allocator is compared with, and the invariants.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "fuzzing.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <thread>

namespace {

constexpr size_t UNIT = 512;
constexpr int DEVICES = 2, STREAMS = 5, POOLS = 4;
constexpr size_t MOST_CALLS = 600, SLOTS = 1 << 14, MOST_LIVE = 200, MOST_STALE = 1024;

// ---- state

struct Gate {
  std::atomic<bool> opened{false}, passed{false};
};

struct Block {
  unsigned char *memory;
  size_t bytes;    // as requested
  size_t charged;  // as counted by the allocator
  uint32_t word;   // written at its stamps
  int device, stream, pool;
  std::vector<std::pair<int, int>> uses;  // device and stream
};

// Freed memory that must not be reused while a gate is closed.
struct Quarantine {
  uintptr_t begin, end;
  std::shared_ptr<Gate> gate;
};

struct Pool {
  plinth_pool_id_t id;
  bool known = false, created = false, for_graphs = false, no_split = false, use_on_oom = false;
  int users[DEVICES] = {};
};

struct Route {
  int pool, stream;  // stream -1: the requests of the thread; -2: those of captures
};

plinth_stream_t streams[DEVICES][STREAMS];
size_t totals[DEVICES];
uint32_t *slots;

std::vector<Block> live;
std::deque<Quarantine> quarantines;
std::vector<std::pair<std::shared_ptr<Gate>, std::pair<int, int>>> closed;
std::vector<std::shared_ptr<Gate>> opened;
std::vector<uint32_t> expected;  // of the slots
Pool pools[POOLS];
std::vector<Route> routes[DEVICES];
std::vector<std::pair<void *, int>> direct;
std::map<void *, size_t> direct_bytes;
size_t sums[DEVICES], peaks[DEVICES], limits[DEVICES];
bool may_exceed[DEVICES];  // a pool without splits was used, so blocks may be larger than requested
bool used_on_oom;          // requests of the default pool may have been served by a pool with use_on_oom
int callback_frees;        // how many blocks the callback frees, once
int current;
// Whether counters are read seldom: reading them updates the peaks, and hides a missing update elsewhere.
bool sparse;
uint32_t next_word;
std::vector<void *> stale;

// A long run: most calls allocate and free small blocks, and contents and counters are checked now and then.
bool is_long;
uint64_t calls_made;
// How many calls are between two calls of other kinds, and between two checks, on average.
uint64_t rare_interval, check_interval;
// After which call the next check comes.
uint64_t next_check;
// In a long run, one in so many blocks has its contents checked.
constexpr uint32_t STAMPED = 64;
// Where the live blocks of a long run are, sorted.
std::vector<std::pair<uintptr_t, uintptr_t>> places;

// In a long run, how many blocks are freed after a request that found no memory.
size_t frees_due;
// Whether a request of the device has found no memory lately.
bool is_short[DEVICES];

bool is_check_due() { return !is_long || calls_made >= next_check; }

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

// Whether segments are not expandable. They are released with cuMemFree, which waits for the device, so then a gate opens
// after a time limit.
bool segments;

void wait_for_gate(void *context) {
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
  for (auto &entry : closed) {
    entry.first->opened.store(true);
    opened.push_back(entry.first);
  }
  closed.clear();
}

// Waits for all work, and checks the values that it read.
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
      snprintf(text, sizeof text, "a stamp of block #%u reads as %u: its memory was overwritten",
               expected[slot], slots[slot]);
      fail(__LINE__, text);
    }
  }
  expected.clear();
}

// Whether a block's contents are checked.
bool has_stamps(const Block &block) { return block.bytes >= 4 && (!is_long || block.word % STAMPED == 0); }

// Calls `body` with the offsets at which a block is written and read: its ends, and some offsets between in a large one.
template <typename Body> void at_stamps(const Block &block, Body body) {
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
  if (!has_stamps(block)) {
    return;
  }
  use_device(block.device);
  at_stamps(block, [&](size_t offset) {
    CHECK_OK(plinth_memset_pattern(block.memory + offset, &block.word, 4, 4, streams[block.device][block.stream]));
  });
  use_device(current);
}

void read_stamps(const Block &block, int stream) {
  if (!has_stamps(block)) {
    return;
  }
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

// Makes a call with the requested fault, and returns its status. Records whether the fault was hit.
template <typename Call> plinth_status_t with_fault(Call call) {
  const Fault fault = next_fault;
  next_fault = Fault();
  tripped_before_callback = nullptr;
  calls_made++;
  if (fault.nth != 0) {
    CHECK_OK(plinth_inject_fault(fault.nth, fault.code));
  }
  const plinth_status_t status = call();
  const char *const message = plinth_last_error();
  tripped = fault.nth == 0 ? nullptr : tripped_before_callback != nullptr ? tripped_before_callback : plinth_tripped_fault();
  if ((status == PLINTH_OK) != (message[0] == '\0')) {
    fail(__LINE__, std::string(plinth_status_name(status)) + " leaves the message \"" + message + "\"");
  }
  if (status != PLINTH_OK || tripped != nullptr) {
    note("  -> %s%s%s: %.150s", plinth_status_name(status), tripped ? ", after a fault in " : "", tripped ? tripped : "",
         message);
  }
  if (fault.nth != 0) {
    CHECK_OK(plinth_inject_fault(0, 0));
  }
  return status;
}

void expect_ok_or_fault(int line, plinth_status_t status) {
  const bool excused = tripped != nullptr && (status == PLINTH_ERROR_DRIVER || status == PLINTH_ERROR_OUT_OF_MEMORY);
  if (status != PLINTH_OK && !excused) {
    fail(line, std::string("failed with ") + plinth_status_name(status) + " without an injected fault");
  }
}

// ---- invariants

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
      // A destroyed pool is known as long as it has memory.
      const bool gone = pool >= 0 && !pools[pool].created && !pools[pool].for_graphs && in_pools[pool + 1] == 0;
      const plinth_status_t status = plinth_mem_pool_memory(id, device, &bytes, &held);
      if (!gone || status != PLINTH_ERROR_INVALID_HANDLE) {
        CHECK_OK(status);
      }
      CHECK(held >= bytes);
      if (!used_on_oom) {
        CHECK_EQ(bytes, in_pools[pool + 1]);
      }
      sum += bytes;
      if (pool >= 0) {
        int32_t users = -1;
        const bool exists = pools[pool].created || pools[pool].for_graphs || pools[pool].users[0] + pools[pool].users[1] > 0;
        if (exists) {
          CHECK_OK(plinth_mem_pool_use_count(id, device, &users));
          CHECK_EQ(static_cast<size_t>(users), static_cast<size_t>(pools[pool].users[device] + (pools[pool].created ? 1 : 0)));
        } else {
          CHECK_STATUS(plinth_mem_pool_use_count(id, device, &users), PLINTH_ERROR_INVALID_HANDLE);
        }
      }
    }
    CHECK_EQ(sum, sums[device]);
  }
}

}  // namespace
