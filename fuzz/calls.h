// The calls that bytes are decoded into, each with checks of its results.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "model.h"

namespace {

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

std::vector<std::pair<uintptr_t, uintptr_t>>::iterator place_of(uintptr_t address) {
  return std::lower_bound(places.begin(), places.end(), std::make_pair(address, uintptr_t{0}));
}

void free_block(size_t index) {
  const Block block = std::move(live[index]);
  read_stamps(block, block.stream);
  if (is_long) {
    std::swap(live[index], live.back());
    live.pop_back();
    places.erase(place_of(reinterpret_cast<uintptr_t>(block.memory)));
  } else {
    live.erase(live.begin() + static_cast<long>(index));
  }
  for (const auto &use : block.uses) {
    for (const auto &entry : closed) {
      if (entry.second == use) {
        const auto begin = reinterpret_cast<uintptr_t>(block.memory);
        quarantines.push_back({begin, begin + block.bytes, entry.first});
      }
    }
  }
  note_call("delete(#%u)", block.word);
  // The caller does not see a fault in it: the event is recorded later.
  expect_ok_or_fault(__LINE__, with_fault([&] { return plinth_caching_allocator_delete(block.memory); }));
  sums[block.device] -= block.charged;
  if (stale.size() < MOST_STALE) {
    stale.push_back(block.memory);
  } else {
    stale[block.word % MOST_STALE] = block.memory;
  }
}

bool free_memory(int32_t device, size_t, void *) {
  // From here on the allocator may wait for the device, and only this can unblock the streams.
  open_gates();
  bool any = false;
  // Injected faults must hit the allocator's calls only, not this program's.
  const char *tripped_so_far = plinth_tripped_fault();
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
  tripped_before_callback = tripped_so_far;
  return any;
}

bool is_live(const void *pointer) {
  return std::any_of(live.begin(), live.end(), [&](const Block &block) { return block.memory == pointer; });
}

// A request may run out of memory only if the live blocks and the unreleasable memory around them leave too little. That
// is up to two handles for each block, a large part of this small device, so the check is effective with few live blocks.
void expect_truly_out(size_t bytes, int device, size_t limit) {
  const size_t unreleasable = 2 * std::clamp(totals[device] / 128, 2 * MIB, 32 * MIB);
  if (segments) {
    return;  // a small block may lie in a segment of any size
  }
  size_t room = totals[device], used = 2 * unreleasable;
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
    used += block.device == device ? block.charged + unreleasable : 0;
  }
  if (bytes <= totals[device] && used + bytes <= room) {
    fail(__LINE__, "a request failed although at most " + std::to_string(used) + " of " + std::to_string(room) +
                       " bytes are in use");
  }
}

void allocate(size_t bytes, int device, int stream, bool by_current) {
  void *const untouched = &current;
  void *pointer = untouched;
  const int number = by_current && current == device ? -1 : device;
  const uint32_t word = ++next_word;
  note_call("#%u = alloc(%zu, device %d, stream %d)", word, bytes, number, stream);
  const bool is_checked = is_check_due();
  const size_t held = is_checked ? reserved(device) : 0;
  const int pool = pool_of(device, stream);
  const plinth_status_t status = with_fault(
      [&] { return plinth_caching_allocator_alloc(bytes, number, streams[device][stream], &pointer); });
  if (status == PLINTH_ERROR_OUT_OF_MEMORY && is_long) {
    frees_due = live.size() / 2;
    is_short[device] = true;
  }
  if (status != PLINTH_ERROR_OUT_OF_MEMORY) {
    expect_ok_or_fault(__LINE__, status);
  } else if (tripped == nullptr) {
    expect_truly_out(bytes, device, limits[device]);
  }
  const size_t now = is_checked ? reserved(device) : totals[device];
  if (is_checked && now > std::max(held, limits[device])) {
    fail(__LINE__, "with a limit of " + std::to_string(limits[device]) + " bytes, held memory grew from " +
                       std::to_string(held) + " to " + std::to_string(now));
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
  if (charged != rounded(bytes) && !(may_exceed[device] && charged > rounded(bytes) && charged <= now)) {
    fail(__LINE__, "a block of " + std::to_string(bytes) + " bytes is counted as " + std::to_string(charged));
  }
  sums[device] += charged;
  peaks[device] = std::max(peaks[device], sums[device]);
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  if (is_long) {
    const auto next = place_of(begin);
    CHECK(next == places.end() || begin + charged <= next->first);
    CHECK(next == places.begin() || std::prev(next)->second <= begin);
    places.insert(next, {begin, begin + charged});
  } else {
    for (const Block &other : live) {
      const auto other_begin = reinterpret_cast<uintptr_t>(other.memory);
      CHECK(begin + charged <= other_begin || other_begin + other.charged <= begin);
    }
  }
  for (const Quarantine &other : quarantines) {
    if (!other.gate->opened.load() && begin < other.end && other.begin < begin + bytes) {
      fail(__LINE__, "the memory was reused while a stream that uses it is blocked");
    }
  }
  live.push_back({static_cast<unsigned char *>(pointer), bytes, charged, word, device, stream, pool, {}});
  stamp(live.back());
}

// Reads the input as the allocator's sizes.
struct Reader : Bytes {
  size_t size() {
    const unsigned choice = byte();
    // In a long run, the blocks that are live at once need not fit only just.
    const unsigned kind = is_long && choice >= 16 ? choice % 5 : choice % 16;
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

void call_with_invalid_pointer(Reader &in) {
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
  note("delete and record_stream of an invalid pointer, kind %u", kind);
  CHECK_STATUS(plinth_caching_allocator_delete(pointer), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_record_stream(pointer, streams[current][0]), PLINTH_ERROR_INVALID_POINTER);
}

void call_with_invalid_arguments(Reader &in) {
  void *pointer = nullptr;
  note("alloc with invalid arguments");
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
    // A use by a stream of another device is recorded too, without a check whether that device can access the memory.
    device = 1 - device;
    stream = 1 + stream % 3;
  }
  note_call("record_stream(#%u, device %d, stream %d)", block.word, device, stream);
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
    note("pool %d = graph_pool_handle()", index);
    CHECK_OK(plinth_graph_pool_handle(&pool.id));
    pool.for_graphs = true;
    return;
  }
  pool.created = true;
  pool.use_on_oom = how & 1;
  pool.no_split = (how & 2) && !sparse;
  note("pool %d = mem_pool_create(%s, %s)", index, pool.use_on_oom ? "use_on_oom" : "-", pool.no_split ? "no_split" : "-");
  CHECK_OK(plinth_mem_pool_create(pool.use_on_oom, pool.no_split, &pool.id));
  used_on_oom |= pool.use_on_oom;
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
  if (!pool.created && !pool.for_graphs) {
    // It was destroyed.
    CHECK(status == PLINTH_ERROR_INVALID_HANDLE || (tripped != nullptr && status == PLINTH_ERROR_DRIVER));
    return;
  }
  if (routed) {
    CHECK(status == PLINTH_ERROR_INVALID_VALUE || (tripped != nullptr && status == PLINTH_ERROR_DRIVER));
    return;
  }
  expect_ok_or_fault(__LINE__, status);
  if (status == PLINTH_OK) {
    routes[device].push_back(route);
    pool.users[device]++;
    // With use_on_oom, requests of other pools may get its blocks later.
    for (bool &any : may_exceed) {
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
  note("release_pool(device %d, pool %d)", device, index);
  const plinth_status_t status = with_fault([&] { return plinth_release_pool(device, pool.id); });
  if (pool.users[device] == 0) {
    // It may exist without users, on this device or on another one, or not at all.
    CHECK(status == PLINTH_ERROR_INVALID_VALUE || status == PLINTH_ERROR_INVALID_HANDLE);
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
  if (!pool.created) {
    CHECK(status == PLINTH_ERROR_INVALID_HANDLE);
    return;
  }
  expect_ok_or_fault(__LINE__, status);
  pool.created = pool.created && status != PLINTH_OK;
}

void empty_cache() {
  size_t held[DEVICES], in_pools[POOLS][DEVICES] = {}, bytes;
  const auto used = [](const Pool &pool, int device) { return pool.known && (pool.created || pool.users[device] > 0); };
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

void block_stream(int device, int stream) {
  if (closed.size() >= 3) {
    return;
  }
  note("block(device %d, stream %d)", device, stream);
  auto gate = std::make_shared<Gate>();
  use_device(device);
  CHECK_OK(plinth_launch_host_function(streams[device][stream], wait_for_gate, gate.get()));
  use_device(current);
  closed.push_back({gate, {device, stream}});
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

void free_directly() {
  note("device_free()");
  settle();  // cuMemFree waits for the device
  CHECK_OK(plinth_device_free(direct.back().first));
  direct.pop_back();
}

void allocate_directly(Reader &in, int device) {
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
    free_directly();
  }
}

// Ends what leaves a device little memory.
void relieve(int device) {
  is_short[device] = false;
  limit(device, 5);
  while (!direct.empty()) {
    free_directly();
  }
}

void one_call(Reader &in) {
  unsigned code = in.byte();
  if (is_long && frees_due > 0) {
    frees_due--;
    code = 90;
  } else if (is_long && (is_short[0] || is_short[1]) && in.byte() % 4 == 0) {
    relieve(is_short[0] ? 0 : 1);
    return;
  } else if (is_long && in.word() % rare_interval != 0) {
    // An allocation or a free, as long as both are possible.
    code = (code & 1) != 0 && live.size() < MOST_LIVE ? 0 : 90;
  }
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
    block_stream(device, stream);
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
    call_with_invalid_pointer(in);
  } else if (code < 245) {
    call_with_invalid_arguments(in);
  } else if (code < 247) {
    report(device);
  } else if (code < 250) {
    allocate_directly(in, device);
  } else if (code < 253) {
    callback_frees = 1 + static_cast<int>(where % 4);
    note("the callback will free %d", callback_frees);
  } else {
    current = device;
    note("set_device(%d)", device);
    use_device(current);
  }
}

}  // namespace
