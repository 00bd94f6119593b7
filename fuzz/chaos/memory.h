// Blocks with known contents, and the operations on them.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "shared.h"

constexpr int DEVICES = 2, STREAMS = 5, BLOCKS = 96;
// The largest size of a copy that checks contents.
constexpr size_t SAMPLE = 4 * KIB;
constexpr int SAMPLES = 16;

inline int device_count = 1;
inline plinth_stream_t streams[DEVICES][STREAMS];  // 0 is the default stream; the last one is dedicated

struct Block {
  unsigned char *memory;
  size_t bytes;
  int device, stream;
  uint32_t tag;
  bool stamped;  // whether its contents are known
  bool foreign;  // whether it belongs to a stream that no other thread can name: another thread may only free it
};

// A place for a block that all threads of the process use. The thread that has taken it uses it alone.
struct Slot {
  std::atomic<bool> taken{false};
  bool live = false;
  Block block{};
};

inline Slot slots[BLOCKS];

// What one thread uses for its checks.
struct Worker {
  Random random{0};
  unsigned char *pinned = nullptr;

  // A copy of a part of a block whose words must have a value once its stream has come so far.
  struct Sample {
    plinth_stream_t stream;
    int device;
    uint32_t tag;
    size_t bytes;
  };
  Sample samples[SAMPLES];
  int sampled = 0;
};

inline size_t random_size(Random &random) {
  const uint64_t octave = random.one_in(8) ? 12 + random.below(10) : 4 + random.below(11);
  return (size_t{1} << octave) + random.below(size_t{1} << octave);
}

inline int random_device(Worker &worker) {
  return static_cast<int>(worker.random.below(static_cast<uint64_t>(device_count)));
}

// ---- contents

// Calls `part(offset, bytes)` for the parts of a block that are written and checked: all of a small one, else its ends.
template <typename Part> bool for_parts(size_t bytes, Part part) {
  bytes = bytes / 4 * 4;
  if (bytes <= SAMPLE) {
    return bytes == 0 || part(size_t{0}, bytes);
  }
  return part(size_t{0}, SAMPLE / 2) && part(bytes - SAMPLE / 2, SAMPLE / 2);
}

inline void write_tag(Block &block, uint32_t tag, plinth_stream_t stream) {
  block.tag = tag;
  block.stamped = for_parts(block.bytes, [&](size_t offset, size_t bytes) {
    return TRY(plinth_memset_pattern(block.memory + offset, &tag, sizeof tag, bytes, stream));
  });
}

// Returns a stream by a name that says which device it belongs to, also if it is a default stream.
inline plinth_stream_t named(plinth_stream_t stream, int device) {
  return stream == nullptr ? PLINTH_STREAM_DEFAULT_OF(device) : stream;
}

// Synchronizes a stream. A struck process tries again; returns whether all work is done.
inline bool wait_for(plinth_stream_t stream, int device) {
  for (int attempt = 0; attempt < 8; attempt++) {
    if (TRY(plinth_stream_synchronize(named(stream, device)))) {
      return true;
    }
  }
  return false;
}

// Waits for the thread's samples, and checks them: between two operations, or within one.
inline void settle(Worker &worker) {
  const bool is_within = record->busy_since.load(std::memory_order_relaxed) != 0;
  const Step outer = is_within ? *step : Step{};
  begin(OP_settle, static_cast<uint64_t>(worker.sampled));
  for (int index = 0; index < worker.sampled; index++) {
    const Worker::Sample &sample = worker.samples[index];
    if (!wait_for(sample.stream, sample.device)) {
      continue;
    }
    for (size_t offset = 0; offset < sample.bytes; offset += 4) {
      uint32_t word = 0;
      memcpy(&word, worker.pinned + static_cast<size_t>(index) * SAMPLE + offset, sizeof word);
      if (word != sample.tag) {
        fail("a block's word at byte %zu of %zu is %#x instead of %#x: its memory was overwritten", offset, sample.bytes,
             word, sample.tag);
      }
    }
    count(EV_checked_blocks);
  }
  worker.sampled = 0;
  if (is_within) {
    resume(outer);
  } else {
    end();
  }
}

// Copies a block's parts to pinned memory in its stream, to be checked later.
inline void check_later(Worker &worker, const Block &block, plinth_stream_t stream) {
  if (!block.stamped) {
    return;
  }
  for_parts(block.bytes, [&](size_t offset, size_t bytes) {
    if (worker.sampled == SAMPLES) {
      settle(worker);
    }
    unsigned char *to = worker.pinned + static_cast<size_t>(worker.sampled) * SAMPLE;
    if (TRY(plinth_memcpy(to, block.memory + offset, bytes, stream))) {
      worker.samples[worker.sampled++] = Worker::Sample{stream, block.device, block.tag, bytes};
    }
    return true;
  });
}

// ---- allocation

inline bool allocate(Worker &worker, Block &block, size_t bytes, int device, int stream) {
  block = Block{nullptr, bytes, device, stream, 0, false, false};
  void *memory = nullptr;
  if (!TRY(plinth_caching_allocator_alloc(bytes, device, streams[device][stream], &memory),
           {PLINTH_ERROR_OUT_OF_MEMORY})) {
    return false;
  }
  block.memory = static_cast<unsigned char *>(memory);
  write_tag(block, static_cast<uint32_t>(worker.random.next()), streams[device][stream]);
  return true;
}

// Frees memory. A fault may strike the free, which then has no effect: it is repeated.
inline void release_memory(void *memory) {
  RETRY(plinth_caching_allocator_delete(memory));
}

// Runs an operation on a random block, or with an empty slot. Returns false if other threads use those that it tried.
template <typename Body> bool with_slot(Worker &worker, bool live, Body body) {
  for (int attempt = 0; attempt < 8; attempt++) {
    Slot &slot = slots[worker.random.below(BLOCKS)];
    if (slot.taken.exchange(true, std::memory_order_acquire)) {
      continue;
    }
    const bool fits = slot.live == live;
    if (fits) {
      body(slot);
    }
    slot.taken.store(false, std::memory_order_release);
    if (fits) {
      return true;
    }
  }
  return false;
}

inline void allocate_block(Worker &worker) {
  with_slot(worker, false, [&](Slot &slot) {
    const int device = random_device(worker);
    const int stream = static_cast<int>(worker.random.below(STREAMS));
    const size_t bytes = random_size(worker.random);
    begin(OP_allocate, bytes, static_cast<uint64_t>(device * 16 + stream));
    slot.live = allocate(worker, slot.block, bytes, device, stream);
  });
}

inline void release_block(Worker &worker) {
  with_slot(worker, true, [&](Slot &slot) {
    begin(OP_release, reinterpret_cast<uint64_t>(slot.block.memory), slot.block.tag);
    check_later(worker, slot.block, streams[slot.block.device][slot.block.stream]);
    release_memory(slot.block.memory);
    slot.live = false;
  });
}

inline void rewrite_block(Worker &worker) {
  with_slot(worker, true, [&](Slot &slot) {
    if (slot.block.foreign) {
      return;
    }
    begin(OP_rewrite, reinterpret_cast<uint64_t>(slot.block.memory), slot.block.tag);
    plinth_stream_t stream = streams[slot.block.device][slot.block.stream];
    check_later(worker, slot.block, stream);
    write_tag(slot.block, static_cast<uint32_t>(worker.random.next()), stream);
  });
}

// Makes one stream wait for another. If that fails, the host waits.
inline bool order(plinth_stream_t waiting, plinth_stream_t first, int device) {
  return TRY(plinth_stream_wait_stream(named(waiting, device), named(first, device))) || wait_for(first, device);
}

inline void use_in_other_stream(Worker &worker) {
  with_slot(worker, true, [&](Slot &slot) {
    Block &block = slot.block;
    if (block.foreign) {
      return;
    }
    const int other = static_cast<int>(worker.random.below(STREAMS));
    plinth_stream_t own = streams[block.device][block.stream], used = streams[block.device][other];
    begin(OP_use_in_other_stream, reinterpret_cast<uint64_t>(block.memory), static_cast<uint64_t>(other));
    if (!order(used, own, block.device)) {
      return;
    }
    check_later(worker, block, used);
    write_tag(block, static_cast<uint32_t>(worker.random.next()), used);
    check_later(worker, block, used);
    if (worker.random.one_in(2) && TRY(plinth_record_stream(block.memory, named(used, block.device)))) {
      // The allocator must keep the block until the other stream is done.
      release_memory(block.memory);
      slot.live = false;
    } else if (!order(own, used, block.device)) {
      // Nobody knows when the other stream is done: the block cannot be used again before the device is.
      RETRY(plinth_synchronize(block.device));
    }
  });
}

// Uses the default stream of the thread, which ends with the thread. Another thread may free the block.
inline void use_thread_stream(Worker &worker) {
  const plinth_stream_t per_thread = reinterpret_cast<plinth_stream_t>(uintptr_t{2});
  Block block{nullptr, random_size(worker.random), 0, 0, 0, false, false};
  void *memory = nullptr;
  begin(OP_thread_stream, block.bytes);
  RETRY(plinth_set_device(0));
  if (!TRY(plinth_caching_allocator_alloc(block.bytes, 0, per_thread, &memory), {PLINTH_ERROR_OUT_OF_MEMORY})) {
    return;
  }
  block.memory = static_cast<unsigned char *>(memory);
  write_tag(block, static_cast<uint32_t>(worker.random.next()), per_thread);
  check_later(worker, block, per_thread);
  settle(worker);
  if (worker.random.one_in(4)) {
    block.stamped = false;
    block.foreign = true;
    const bool kept = with_slot(worker, false, [&](Slot &slot) {
      slot.block = block;
      slot.live = true;
    });
    if (kept) {
      return;
    }
  }
  release_memory(memory);
}

// ---- other memory

inline void copy_through_pinned_memory(Worker &worker) {
  const size_t words = 1 + worker.random.below(SAMPLE / 4);
  void *pinned = nullptr;
  begin(OP_pinned_copy, words);
  if (!TRY(plinth_host_alloc(words * 4, &pinned), {PLINTH_ERROR_OUT_OF_MEMORY})) {
    return;
  }
  Block block{};
  const int stream = static_cast<int>(worker.random.below(STREAMS));
  if (allocate(worker, block, words * 4, 0, stream)) {
    block.tag = static_cast<uint32_t>(worker.random.next());
    for (size_t word = 0; word < words; word++) {
      memcpy(static_cast<unsigned char *>(pinned) + 4 * word, &block.tag, 4);
    }
    block.stamped = TRY(plinth_memcpy(block.memory, pinned, words * 4, streams[0][stream]));
    check_later(worker, block, streams[0][stream]);
    release_memory(block.memory);
  }
  // The copy may still read it: the library must not reuse it earlier.
  RETRY(plinth_host_free(pinned));
}

// Allocates a block of a pool on a device. The pool may refuse requests with the given statuses.
inline bool allocate_in_pool(Worker &worker, Block &block, plinth_pool_id_t pool, int device,
                             std::initializer_list<plinth_status_t> allowed = {}) {
  if (!call_library([&] { return plinth_begin_allocate_current_thread_to_pool(device, pool); },
                    "plinth_begin_allocate_current_thread_to_pool", allowed)) {
    return false;
  }
  const int stream = static_cast<int>(worker.random.below(STREAMS));
  const bool allocated = allocate(worker, block, random_size(worker.random), device, stream);
  RETRY(plinth_end_allocate_to_pool(device, pool));
  RETRY(plinth_release_pool(device, pool));
  return allocated;
}

inline void use_pool(Worker &worker) {
  plinth_pool_id_t pool{};
  Block block{};
  begin(OP_pool);
  if (!TRY(plinth_mem_pool_create(worker.random.one_in(2), worker.random.one_in(4), &pool))) {
    return;
  }
  if (allocate_in_pool(worker, block, pool, 0)) {
    check_later(worker, block, streams[0][block.stream]);
    // The pool may end before its block.
    const bool kept = worker.random.one_in(2) && with_slot(worker, false, [&](Slot &slot) {
      slot.block = block;
      slot.live = true;
    });
    if (!kept) {
      release_memory(block.memory);
    }
  }
  RETRY(plinth_mem_pool_destroy(pool));
}

inline void use_device_memory(Worker &worker) {
  Block block{nullptr, random_size(worker.random), 0, 0, 0, false, false};
  void *memory = nullptr;
  begin(OP_device_memory, block.bytes);
  if (!TRY(plinth_device_malloc(block.bytes, 0, &memory), {PLINTH_ERROR_OUT_OF_MEMORY})) {
    return;
  }
  block.memory = static_cast<unsigned char *>(memory);
  write_tag(block, static_cast<uint32_t>(worker.random.next()), streams[0][1]);
  check_later(worker, block, streams[0][1]);
  settle(worker);
  RETRY(plinth_device_free(memory));
}
