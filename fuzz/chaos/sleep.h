// Pools that sleep and wake, with blocks and graphs whose contents are checked; and registrations of memory.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "graphs.h"

#include <fcntl.h>

constexpr int SLEEPERS = 4, SLEEPER_BLOCKS = 6, REGISTRATIONS = 8;

// A pool with a tag. The thread that has taken it uses it alone.
struct Sleeper {
  std::atomic<bool> taken{false};
  bool exists = false, asleep = false;
  uint64_t mapped = 0;  // bytes, while it sleeps
  plinth_pool_id_t pool{};
  std::string tag;
  Block blocks[SLEEPER_BLOCKS]{};
  Graph graph;  // captured into the pool
  // A registration of a block, which may end when the pool is put to sleep.
  plinth_memory_registration_t registration = nullptr;
  bool can_release = false, destroys_itself = false, released = false;
};

inline Sleeper sleepers[SLEEPERS];

// A registration of a block that was freed: the memory stays as it is until the registration is destroyed.
struct Registered {
  std::atomic<bool> taken{false};
  plinth_memory_registration_t registration = nullptr;
  Block block{};
};

inline Registered registered[REGISTRATIONS];

// ---- registrations

// Registers a part of a block, and checks what is known of it.
inline plinth_memory_registration_t register_part(Worker &worker, const Block &block,
                                                  const plinth_memory_registration_options_t *how) {
  plinth_memory_registration_t registration = nullptr;
  const size_t offset = worker.random.below(block.bytes), size = 1 + worker.random.below(block.bytes - offset);
  if (!TRY(plinth_memory_registration_create(block.memory + offset, size, how, &registration))) {
    return nullptr;
  }
  plinth_memory_registration_info_t info = PLINTH_MEMORY_REGISTRATION_INFO_INIT;
  plinth_memory_uses_t uses = PLINTH_MEMORY_USES_INIT;
  RETRY(plinth_memory_registration_info(registration, &info));
  CHECK(info.pointer == block.memory + offset && info.size == size && info.device == block.device);
  CHECK(info.parts >= 1 && info.is_released == 0);
  if (TRY(plinth_memory_uses(block.memory, &uses))) {
    CHECK(uses.block == block.memory && uses.size == block.bytes && uses.registrations >= 1);
  }
  int32_t descriptor = -1;
  size_t start = 0, bytes = 0;
  if (worker.random.one_in(4) && TRY(plinth_memory_registration_dma_buf(registration, &descriptor, &start, &bytes),
                                     {PLINTH_ERROR_IPC_NOT_SHAREABLE, PLINTH_ERROR_NOT_SUPPORTED})) {
    CHECK(start + size <= bytes);
    CHECK(close(descriptor) == 0);
  }
  plinth_memory_part_t part = PLINTH_MEMORY_PART_INIT;
  const auto index = static_cast<uint32_t>(worker.random.below(info.parts));
  if (worker.random.one_in(4) &&
      TRY(plinth_memory_registration_part(registration, index, PLINTH_MEMORY_HANDLE_FILE_DESCRIPTOR, &part),
          {PLINTH_ERROR_IPC_NOT_SHAREABLE, PLINTH_ERROR_NOT_SUPPORTED})) {
    CHECK(close(part.descriptor) == 0);
  }
  return registration;
}

inline void end_registration(Worker &worker, Registered &one) {
  begin(OP_unregister, reinterpret_cast<uint64_t>(one.block.memory), one.block.tag);
  check_later(worker, one.block, streams[one.block.device][one.block.stream]);
  RETRY(plinth_memory_registration_destroy(one.registration));
  one.registration = nullptr;
}

// Registers a block and frees it, or checks such a block and ends its registration.
inline void use_registration(Worker &worker) {
  Registered &one = registered[worker.random.below(REGISTRATIONS)];
  if (one.taken.exchange(true, std::memory_order_acquire)) {
    return;
  }
  if (one.registration != nullptr) {
    end_registration(worker, one);
  } else {
    with_slot(worker, true, [&](Slot &slot) {
      if (slot.block.foreign) {
        return;
      }
      begin(OP_register, reinterpret_cast<uint64_t>(slot.block.memory), slot.block.tag);
      one.registration = register_part(worker, slot.block, nullptr);
      if (one.registration != nullptr) {
        release_memory(slot.block.memory);
        one.block = slot.block;
        slot.live = false;
      }
    });
  }
  one.taken.store(false, std::memory_order_release);
}

// ---- pools

// The library calls it before it puts the pool to sleep.
inline void release_registration(void *context) {
  auto *sleeper = static_cast<Sleeper *>(context);
  sleeper->released = true;
  if (sleeper->destroys_itself) {
    CHECK(plinth_memory_registration_destroy(sleeper->registration) == PLINTH_OK);
    sleeper->registration = nullptr;
  }
}

inline void unregister(Sleeper &sleeper) {
  RETRY(plinth_memory_registration_destroy(sleeper.registration));
  sleeper.registration = nullptr;
}

inline plinth_sleep_info_t sleep_info(const Sleeper &sleeper) {
  plinth_sleep_info_t info = PLINTH_SLEEP_INFO_INIT;
  RETRY(plinth_memory_sleep_info(sleeper.tag.c_str(), &info));
  CHECK(info.pools == 1 && info.pools_asleep <= 1);
  return info;
}

// Checks a block, unless it sleeps, and frees it, or lets any thread free it, at any time.
inline void end_block(Worker &worker, const Sleeper &sleeper, Block &block) {
  if (!sleeper.asleep) {
    check_later(worker, block, streams[block.device][block.stream]);
  }
  Block given = block;
  given.stamped = false;
  given.foreign = true;
  const bool kept = worker.random.one_in(2) && with_slot(worker, false, [&](Slot &slot) {
    slot.block = given;
    slot.live = true;
  });
  if (!kept) {
    release_memory(block.memory);
  }
  block.memory = nullptr;
}

// Allocates a block in a place that has none, or ends the one that is there.
inline void change_block(Worker &worker, Sleeper &sleeper) {
  Block &block = sleeper.blocks[worker.random.below(SLEEPER_BLOCKS)];
  if (block.memory != nullptr) {
    end_block(worker, sleeper, block);
    return;
  }
  const bool allocated = allocate_in_pool(worker, block, sleeper.pool, random_device(worker), {PLINTH_ERROR_GRAPH_ASLEEP});
  if (allocated && sleeper.asleep) {
    fail("pool %s sleeps, and a request was routed to it", sleeper.tag.c_str());
  }
}

inline void make_pool(Worker &worker, Sleeper &sleeper) {
  begin(OP_make_pool, static_cast<uint64_t>(&sleeper - sleepers));
  if (!TRY(plinth_mem_pool_create(false, worker.random.one_in(4), &sleeper.pool))) {
    return;
  }
  sleeper.exists = true;
  sleeper.tag = "pool " + std::to_string(&sleeper - sleepers);
  RETRY(plinth_mem_pool_set_tag(sleeper.pool, sleeper.tag.c_str()));
  for (uint64_t left = worker.random.below(SLEEPER_BLOCKS); left > 0; left--) {
    change_block(worker, sleeper);
  }
}

// Frees all of a pool, also if it sleeps, before or after the pool itself.
inline void end_pool(Worker &worker, Sleeper &sleeper) {
  begin(OP_end_pool, static_cast<uint64_t>(&sleeper - sleepers), sleeper.asleep);
  const bool pool_first = worker.random.one_in(2);
  if (sleeper.registration != nullptr) {
    unregister(sleeper);
  }
  if (pool_first) {
    RETRY(plinth_mem_pool_destroy(sleeper.pool));
  }
  if (sleeper.graph.graph != nullptr) {
    destroy_graph(sleeper.graph);
  }
  for (Block &block : sleeper.blocks) {
    if (block.memory != nullptr) {
      end_block(worker, sleeper, block);
    }
  }
  if (!pool_first) {
    RETRY(plinth_mem_pool_destroy(sleeper.pool));
  }
  sleeper.exists = sleeper.asleep = false;
}

inline void change_pool(Worker &worker, Sleeper &sleeper) {
  const uint64_t what = worker.random.below(6);
  Graph &graph = sleeper.graph;
  begin(OP_change_pool, static_cast<uint64_t>(&sleeper - sleepers), what);
  if (what < 2) {
    change_block(worker, sleeper);
  } else if (what == 2) {
    if (sleeper.registration != nullptr) {
      unregister(sleeper);
      return;
    }
    const Block &block = sleeper.blocks[worker.random.below(SLEEPER_BLOCKS)];
    if (block.memory != nullptr && !sleeper.asleep) {
      plinth_memory_registration_options_t how = PLINTH_MEMORY_REGISTRATION_OPTIONS_INIT;
      sleeper.can_release = !worker.random.one_in(3);
      sleeper.destroys_itself = worker.random.one_in(2);
      sleeper.released = false;
      how.release = sleeper.can_release ? release_registration : nullptr;
      how.context = &sleeper;
      sleeper.registration = register_part(worker, block, &how);
    }
  } else if (what == 3) {
    plinth_sleep_options_t backup = PLINTH_SLEEP_OPTIONS_INIT;
    backup.backup = static_cast<plinth_backup_t>(1 + worker.random.below(3));
    (void)(worker.random.one_in(2) ? TRY(plinth_memory_free_backup(sleeper.tag.c_str()), {PLINTH_ERROR_GRAPH_ASLEEP})
                                   : TRY(plinth_memory_alloc_backup(sleeper.tag.c_str(), &backup),
                                         {PLINTH_ERROR_GRAPH_ASLEEP, PLINTH_ERROR_OUT_OF_MEMORY}));
  } else if (graph.graph == nullptr) {
    if (!sleeper.asleep) {
      capture(worker, graph, &sleeper.pool);
    }
  } else if (!sleeper.asleep) {
    replay(worker, graph);
  } else if (TRY(plinth_graph_replay(graph.graph), {PLINTH_ERROR_GRAPH_ASLEEP})) {
    fail("pool %s sleeps, and its graph was replayed", sleeper.tag.c_str());
  }
}

// ---- sleep

// The pools' numbers, as bits, for the history.
inline uint64_t numbers_of(const std::vector<Sleeper *> &pools) {
  uint64_t numbers = 0;
  for (const Sleeper *pool : pools) {
    numbers |= uint64_t{1} << (pool - sleepers);
  }
  return numbers;
}

// The pools' tags in a list; nullptr, now and then, if these are all tags that there are.
inline const char *list_tags(Worker &worker, const std::vector<Sleeper *> &pools, std::string &list) {
  for (const Sleeper *pool : pools) {
    list += (list.empty() ? "" : ",") + pool->tag;
  }
  return pools.size() == SLEEPERS && worker.random.one_in(2) ? nullptr : list.c_str();
}

inline void put_to_sleep(Worker &worker, const std::vector<Sleeper *> &pools) {
  std::string list;
  const char *tags = list_tags(worker, pools, list);
  plinth_sleep_options_t how = PLINTH_SLEEP_OPTIONS_INIT;
  how.backup = static_cast<plinth_backup_t>(worker.random.below(4));
  how.flags = (worker.random.one_in(8) ? PLINTH_SLEEP_NO_WAIT : 0u) |
              (worker.random.one_in(2) ? PLINTH_SLEEP_RELEASE_REGISTRATIONS : 0u);
  how.folder = how.backup == PLINTH_BACKUP_FILE && worker.random.one_in(2) ? options.folder.c_str() : nullptr;
  begin(OP_sleep, numbers_of(pools), static_cast<uint64_t>(how.backup) | static_cast<uint64_t>(how.flags) << 4);
  bool refused = false;
  for (const Sleeper *pool : pools) {
    const bool ends = pool->can_release && (how.flags & PLINTH_SLEEP_RELEASE_REGISTRATIONS) != 0;
    refused = refused || (pool->registration != nullptr && !ends);
  }
  const bool may_refuse = refused || (how.flags & PLINTH_SLEEP_NO_WAIT) != 0;
  const bool slept = TRY(plinth_memory_sleep(tags, &how),
                         {PLINTH_ERROR_OUT_OF_MEMORY, may_refuse ? PLINTH_ERROR_GRAPH_MEMORY_IN_USE : PLINTH_OK,
                          has_segments ? PLINTH_ERROR_NOT_SUPPORTED : PLINTH_OK});
  if (slept && refused) {
    fail("%s sleeps with registered memory", list.c_str());
  }
  for (Sleeper *pool : pools) {
    const plinth_sleep_info_t info = sleep_info(*pool);
    const bool was_asleep = pool->asleep;
    pool->asleep = info.pools_asleep == 1;
    CHECK(pool->asleep || !(slept || was_asleep));
    CHECK(info.mapped_bytes == 0 || !slept);
    // After a failure, a pool may be asleep in part, and the rest is put to sleep by the next call.
    const bool lost = pool->asleep && !(was_asleep && pool->mapped == 0) && how.backup == PLINTH_BACKUP_NONE;
    for (Block &block : pool->blocks) {
      block.stamped = block.stamped && !lost;
    }
    pool->mapped = info.mapped_bytes;
    if (pool->released && pool->registration != nullptr) {
      unregister(*pool);
    }
  }
}

// Uses a pool that has been woken, at once, and then checks its contents.
inline void use_restored(Worker &worker, Sleeper &pool, bool asynchronous) {
  for (const Block &block : pool.blocks) {
    count(EV_checked_restored, block.memory != nullptr && block.stamped);
  }
  if (asynchronous) {
    for (Block &block : pool.blocks) {
      // Copies to freed blocks may be in progress: they must not be used again before.
      if (block.memory != nullptr && worker.random.one_in(4)) {
        release_memory(block.memory);
        block.memory = nullptr;
      }
      if (block.memory == nullptr && worker.random.one_in(2)) {
        allocate_in_pool(worker, block, pool.pool, random_device(worker));
      }
    }
    for (int device = 0; device < device_count; device++) {
      for (plinth_stream_t stream : streams[device]) {
        RETRY(plinth_memory_wake_wait(pool.tag.c_str(), named(stream, device)));
      }
    }
  }
  for (Block &block : pool.blocks) {
    if (block.memory != nullptr) {
      plinth_stream_t stream = streams[block.device][block.stream];
      check_later(worker, block, stream);
      write_tag(block, static_cast<uint32_t>(worker.random.next()), stream);
    }
  }
}

inline void wake(Worker &worker, const std::vector<Sleeper *> &pools) {
  std::string list;
  const char *tags = list_tags(worker, pools, list);
  const bool asynchronous = worker.random.one_in(2);
  begin(OP_wake, numbers_of(pools), asynchronous);
  const bool woke = asynchronous ? TRY(plinth_memory_wake_async(tags), {PLINTH_ERROR_OUT_OF_MEMORY})
                                 : TRY(plinth_memory_wake(tags), {PLINTH_ERROR_OUT_OF_MEMORY});
  for (Sleeper *pool : pools) {
    const bool was_asleep = pool->asleep;
    const plinth_sleep_info_t info = sleep_info(*pool);
    pool->asleep = info.pools_asleep == 1;
    CHECK(was_asleep ? !(woke && pool->asleep) : !pool->asleep);
    CHECK(pool->asleep ? info.mapped_bytes == pool->mapped : info.asleep_bytes == 0);
    if (was_asleep && !pool->asleep) {
      use_restored(worker, *pool, asynchronous);
    }
  }
}

// Takes one pool, or all that nobody else has taken, beginning anywhere.
inline std::vector<Sleeper *> take_pools(Worker &worker) {
  std::vector<Sleeper *> pools;
  const uint64_t first = worker.random.below(SLEEPERS), most = worker.random.one_in(3) ? SLEEPERS : 1;
  for (uint64_t index = first; index < first + most; index++) {
    Sleeper &sleeper = sleepers[index % SLEEPERS];
    if (!sleeper.taken.exchange(true, std::memory_order_acquire)) {
      pools.push_back(&sleeper);
    }
  }
  return pools;
}

inline void use_sleepers(Worker &worker) {
  const std::vector<Sleeper *> taken = take_pools(worker);
  std::vector<Sleeper *> pools;
  for (Sleeper *sleeper : taken) {
    if (!sleeper->exists) {
      make_pool(worker, *sleeper);
    } else {
      pools.push_back(sleeper);
    }
  }
  if (!pools.empty()) {
    Sleeper &one = *pools[0];
    if (worker.random.one_in(20)) {
      end_pool(worker, one);
    } else if (worker.random.one_in(2)) {
      change_pool(worker, one);
    } else if (one.asleep && !worker.random.one_in(8)) {
      wake(worker, pools);
    } else {
      put_to_sleep(worker, pools);
    }
  }
  for (Sleeper *sleeper : taken) {
    sleeper->taken.store(false, std::memory_order_release);
  }
}

// At the end of a life no other thread is left.
inline void end_sleepers(Worker &worker) {
  for (Sleeper &sleeper : sleepers) {
    if (sleeper.exists) {
      end_pool(worker, sleeper);
    }
  }
  for (Registered &one : registered) {
    if (one.registration != nullptr) {
      end_registration(worker, one);
    }
  }
}
