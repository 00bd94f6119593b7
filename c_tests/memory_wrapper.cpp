// plinth_memory.hpp: buffers, pools, observers, statistics, history and snapshots, released also after exceptions.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
// alone: settings_and_limits; changes the allocator's settings

#include "wrapping.h"

#include <atomic>
#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <thread>

static_assert(owns<plinth::DeviceBuffer>(), "a buffer");
static_assert(owns<plinth::MemPool>(), "a pool");
static_assert(owns<plinth::PluggableAllocator>(), "an allocator");
static_assert(owns<plinth::PoolCheckpoint>(), "a checkpoint");
static_assert(is_block<plinth::MemPoolGuard>(), "a block");
static_assert(is_block<plinth::OutOfMemoryObserver>(), "a block");
static_assert(is_block<plinth::MemoryAnnotation>(), "a block");
static_assert(!std::is_constructible<plinth::DeviceBuffer, std::size_t, std::nullptr_t>::value, "no stream");
static_assert(!std::is_convertible<std::size_t, plinth::DeviceBuffer>::value, "a number as a buffer");

TEST(buffers_are_moved_and_freed) {
  {
    plinth::DeviceBuffer first(1000);
    CHECK_EQ(first.size(), 1000);
    CHECK_EQ(plinth::memory_allocated(), 1024);
    void *const address = first.get();
    plinth::DeviceBuffer moved(std::move(first));
    CHECK(first.get() == nullptr && first.size() == 0);
    CHECK(moved.as<char>() == address);
    move_to_itself(moved);
    CHECK(moved.get() == address && moved.size() == 1000);
    plinth::DeviceBuffer json_path(5000);
    json_path = std::move(moved);
    CHECK(json_path.get() == address);
    plinth::DeviceBuffer none;
    CHECK(none.get() == nullptr);
    json_path.free();
    CHECK(json_path.get() == nullptr && json_path.size() == 0);
    json_path.free();
    CHECK_EQ(plinth::memory_allocated(), rounded(5000));
    void *const released = moved.release();
    CHECK(moved.get() == nullptr);
    release(released);
  }
  CHECK_EQ(plinth::memory_allocated(), 0);
  CHECK(plinth::max_memory_allocated() >= 1024 + rounded(5000));
  THROWS(plinth::DeviceBuffer(static_cast<std::size_t>(1) << 60), PLINTH_ERROR_OUT_OF_MEMORY);
  expect_nothing_left();
}

TEST(a_buffer_that_cannot_be_freed_keeps_its_memory) {
  plinth::caching_allocator_enable(false);
  plinth::DeviceBuffer buffer(1000);
  void *const address = buffer.get();
  plinth::set_sync_debug_mode(plinth::SyncDebugMode::error);
  THROWS(buffer.free(), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK(buffer.get() == address && buffer.size() == 1000);
  plinth::set_sync_debug_mode(plinth::SyncDebugMode::standard);
  buffer.free();
  CHECK(buffer.get() == nullptr && buffer.size() == 0);
  plinth::caching_allocator_enable(true);
  expect_nothing_left();
}

TEST(checkpoints_restore_the_blocks_of_a_pool) {
  const plinth::MemPool pool;
  plinth::DeviceBuffer kept, dropped;
  {
    const plinth::MemPoolGuard guard(pool);
    kept = plinth::DeviceBuffer(5000);
    dropped = plinth::DeviceBuffer(7000);
  }
  const plinth::PoolCheckpoint checkpoint(pool);
  CHECK(plinth::pool_check_live_allocations(pool.id(), {dropped.get(), kept.get()}));
  void *const address = dropped.get();
  dropped.free();
  plinth::DeviceBuffer stale;
  {
    const plinth::MemPoolGuard guard(pool);
    stale = plinth::DeviceBuffer(9000);
    THROWS(checkpoint.restore(), PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
  }
  THROWS(checkpoint.restore({kept.get()}), PLINTH_ERROR_INVALID_POINTER);
  const plinth::PoolCheckpoint::Restored restored = checkpoint.restore({stale.get()});
  CHECK(restored.freed == std::vector<void *>{stale.release()});
  CHECK(restored.allocated == std::vector<void *>{address});
  CHECK(plinth::pool_check_live_allocations(pool.id(), {address, kept.get()}));
  CHECK(!plinth::pool_check_live_allocations(pool.id(), {}));
  release(address);
  kept.free();
  THROWS(plinth::PoolCheckpoint(plinth_pool_id_t{0, 0}), PLINTH_ERROR_INVALID_VALUE);
  expect_sound();
}

TEST(tagged_pools_sleep_and_wake) {
  plinth::MemPool pool;
  CHECK(pool.tag().empty());
  pool.set_tag("weights");
  THROWS(pool.set_tag("weights,kv"), PLINTH_ERROR_INVALID_VALUE);
  THROWS(pool.set_tag("\xff"), PLINTH_ERROR_INVALID_VALUE);
  CHECK_TEXT(pool.tag().c_str(), "weights");
  plinth::DeviceBuffer weights;
  {
    const plinth::MemPoolGuard guard(pool);
    weights = plinth::DeviceBuffer(4 * MIB);
  }
  const plinth::Stream stream;
  plinth::memset(weights.get(), 42, weights.size(), stream);
  const plinth::SleepOptions options{plinth::Backup::pinned, false};
  stream.synchronize();
  plinth::memory_alloc_backup("weights", options);
  plinth::memory_sleep("weights", {plinth::Backup::pinned});
  CHECK_EQ(plinth::memory_sleep_info().pools_asleep, 1);
  CHECK_EQ(pool.memory().reserved, 0);
  THROWS(plinth::memory_free_backup(), PLINTH_ERROR_GRAPH_ASLEEP);
  THROWS(plinth::memory_wake("kv"), PLINTH_ERROR_INVALID_VALUE);
  THROWS(plinth::memory_sleep({}, {plinth::Backup::pinned, true, "/tmp"}), PLINTH_ERROR_INVALID_VALUE);
  plinth::memory_wake_async("weights");
  plinth::memory_wake_wait("weights", stream);
  unsigned char last = 0;
  plinth::memcpy(&last, weights.as<unsigned char>() + 4 * MIB - 1, 1, stream);
  stream.synchronize();
  CHECK_EQ(last, 42);
  plinth::memory_wake();
  plinth::memory_free_backup();
  CHECK_EQ(plinth::memory_sleep_info("weights").backup_bytes, 0);
}

TEST(a_device_is_shared) {
  const std::string name = "wrapper-" + std::to_string(getpid());
  CHECK_EQ(plinth::memory_share_info().processes, 0);
  plinth::memory_share_enable({64 * MIB, 16 * MIB, name});
  const plinth::MemoryShareInfo info = plinth::memory_share_info(0);
  CHECK(info.processes == 1 && info.budget == 64 * MIB && info.floor == 16 * MIB);
  THROWS(plinth::DeviceBuffer(100 * MIB), PLINTH_ERROR_OUT_OF_MEMORY);
  THROWS(plinth::memory_share_enable({1, 2, name}), PLINTH_ERROR_INVALID_VALUE);
  plinth::memory_share_disable();
  CHECK_EQ(plinth::memory_share_info().processes, 0);
}

TEST(memory_is_registered) {
  plinth::MemPool pool({false, false, false, true});
  pool.set_tag("registered");
  plinth::DeviceBuffer buffer;
  {
    const plinth::MemPoolGuard guard(pool);
    buffer = plinth::DeviceBuffer(4 * MIB);
  }
  const plinth::MemoryUses uses(buffer.get());
  CHECK(uses.supports(plinth::MemoryUse::ipc) && uses.supports(plinth::MemoryUse::dma_buf));
  CHECK(uses.supports(plinth::MemoryUse::gpu_direct_rdma));
  CHECK(!uses.supports(plinth::MemoryUse::fabric) && !uses.reason(plinth::MemoryUse::fabric).empty());
  int released = 0;
  plinth::MemoryRegistration first(buffer.get(), 4 * MIB, "adapter", [&] { released++; });
  plinth::MemoryRegistration registration = std::move(first);
  CHECK(first.get() == nullptr);
  const plinth::DmaBuf exported = registration.dma_buf();
  CHECK(exported.size >= 4 * MIB && exported.offset == 0);
  CHECK_EQ(close(exported.descriptor), 0);
  const plinth_memory_part_t part = registration.part(0);
  CHECK(part.size >= 2 * MIB && close(part.descriptor) == 0);
  THROWS(plinth::memory_sleep("registered"), PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
  plinth::SleepOptions options;
  options.release_registrations = true;
  plinth::memory_sleep("registered", options);
  CHECK_EQ(released, 1);
  CHECK_EQ(registration.info().is_released, 1);
  plinth::memory_wake("registered");
  THROWS(plinth::MemoryRegistration(buffer.get(), 5 * MIB), PLINTH_ERROR_INVALID_VALUE);
  /* A release may destroy the registration that it belongs to, and throw. */
  std::unique_ptr<plinth::MemoryRegistration> own;
  const std::string text(100, 'x');
  own = std::make_unique<plinth::MemoryRegistration>(buffer.get(), 4 * MIB, "own", [&, copy = text] {
    own.reset();
    throw std::logic_error(copy);
  });
  std::string thrown;
  try {
    plinth::memory_sleep("registered", options);
  } catch (const std::logic_error &error) {
    thrown = error.what();
  }
  CHECK(thrown == text && own == nullptr && registration.info().is_released == 1);
}

TEST(buffers_belong_to_a_stream) {
  const std::int32_t last = plinth::device_count() - 1;
  const plinth::Stream stream(last), json_path(last);
  const std::int64_t before = plinth::stream_memory_stats(stream).allocation.all.allocated;
  void *address = nullptr;
  {
    plinth::DeviceBuffer buffer(4096, stream);
    address = buffer.get();
    CHECK_EQ(plinth::device_of(address), last);
    gate *const shut = gate_shut(json_path.get());
    buffer.record_stream(json_path);
    buffer.free();
    const plinth::DeviceBuffer next(4096, stream);
    CHECK(next.get() != address);
    gate_open(shut);
  }
  json_path.synchronize();
  CHECK_EQ(plinth::stream_memory_stats(stream).allocation.all.allocated, before + 2);
  CHECK_EQ(plinth::memory_allocated(last), 0);
  expect_nothing_left();
}

TEST(stats_are_values) {
  plinth::reset_accumulated_memory_stats();
  plinth::reset_peak_memory_stats();
  const plinth::DeviceBuffer small(700), large(3 * MIB);
  const plinth::MemoryStats stats = plinth::memory_stats();
  CHECK_EQ(stats.allocation.all.current, 2);
  CHECK_EQ(stats.allocated_bytes.all.current, 1024 + 3 * MIB);
  CHECK_EQ(stats.requested_bytes.small_pool.current, 700);
  CHECK_EQ(plinth::memory_reserved(), stats.reserved_bytes.all.current);
  CHECK_EQ(plinth::max_memory_reserved(), stats.reserved_bytes.all.peak);
  std::int64_t allocated_bytes = -1;
  int count = 0;
  plinth::memory_stats_each([&](const std::string &name, std::int64_t value) {
    count++;
    if (name == "allocated_bytes.all.current") allocated_bytes = value;
  });
  CHECK_EQ(allocated_bytes, 1024 + 3 * MIB);
  CHECK_EQ(count, 122);
  CHECK(plinth::memory_stats_json().find("\"allocation.all.current\": 2") != std::string::npos);
  CHECK(plinth::memory_stats_json(-1, true).find("\"allocation\": {") != std::string::npos);
  CHECK(plinth::memory_summary().find("Allocated memory") != std::string::npos);
  CHECK(plinth::memory_summary(-1, true).size() < plinth::memory_summary().size());
  const plinth::PointerAttributes known = plinth::pointer_attributes(large.as<char>() + 5);
  CHECK(known.kind == PLINTH_MEMORY_DEVICE && known.owner == PLINTH_OWNER_CACHING_ALLOCATOR);
  CHECK(known.base == large.get());
  THROWS(plinth::memory_stats(1000), PLINTH_ERROR_INVALID_DEVICE);
}

// An exception in a visitor ends the iteration and reaches the caller, although the library's C functions are between them.
TEST(visitors_may_throw) {
  int seen = 0;
  THROWS_TYPE(plinth::memory_stats_each([&](const char *, std::int64_t) {
    if (++seen == 3) throw std::logic_error("enough");
  }), std::logic_error);
  CHECK_EQ(seen, 3);
  const plinth::DeviceBuffer buffer(100);
  seen = 0;
  THROWS_TYPE(plinth::memory_snapshot_each([&](const plinth_memory_segment_t &, const plinth_memory_block_t *) {
    seen++;
    throw std::logic_error("enough");
  }), std::logic_error);
  CHECK_EQ(seen, 1);
}

TEST(settings_and_limits) {
  plinth::set_allocator_settings("garbage_collection_threshold:0.5");
  CHECK(plinth::allocator_settings().find("garbage_collection_threshold:0.5") != std::string::npos);
  THROWS(plinth::set_allocator_settings("nonsense:1"), PLINTH_ERROR_INVALID_VALUE);
  CHECK(plinth::allocator_backend() == "native");
  CHECK(plinth::caching_allocator_is_enabled());
  plinth::set_per_process_memory_fraction(0.25);
  CHECK(plinth::per_process_memory_fraction() == 0.25);
  plinth::set_per_process_memory_fraction(1.0);
}

TEST(a_guard_allocates_from_its_pool) {
  plinth::MemPool pool;
  CHECK_EQ(pool.use_count(), 1);
  plinth::DeviceBuffer outside(MIB), inside;
  {
    const plinth::MemPoolGuard block(pool);
    CHECK_EQ(pool.use_count(), 2);
    inside = plinth::DeviceBuffer(MIB);
    std::thread([] { CHECK(plinth::memory_allocated() == 2 * MIB); }).join();
  }
  CHECK_EQ(pool.use_count(), 1);
  CHECK_EQ(pool.memory().allocated, MIB);
  CHECK(pool.memory().reserved >= MIB);
  CHECK_EQ(pool.stats().allocation.all.current, 1);
  CHECK(pool.snapshot(false).find("\"segments\"") != std::string::npos);
  CHECK_EQ(plinth::pointer_attributes(inside.get()).pool.index, pool.id().index);
  CHECK_EQ(plinth::pointer_attributes(outside.get()).pool.index, 0);
  const plinth::DeviceBuffer after(MIB);
  CHECK_EQ(pool.memory().allocated, MIB);
}

TEST(a_guard_of_a_stream_affects_only_that_stream) {
  const plinth::MemPool pool;
  const plinth::Stream stream;
  const plinth::MemPoolGuard block(pool, stream);
  const plinth::DeviceBuffer inside(MIB, stream), outside(MIB);
  CHECK_EQ(pool.memory().allocated, MIB);
  CHECK_EQ(plinth::pointer_attributes(inside.get()).pool.index, pool.id().index);
}

TEST(a_guard_ends_with_an_exception) {
  const plinth::MemPool pool;
  try {
    const plinth::MemPoolGuard block(pool);
    THROWS(plinth::MemPoolGuard(pool), PLINTH_ERROR_INVALID_VALUE);
    throw 1;
  } catch (int) {
  }
  CHECK_EQ(pool.use_count(), 1);
  const plinth::DeviceBuffer buffer(MIB);
  CHECK_EQ(pool.memory().allocated, 0);
}

TEST(pools_are_moved_and_destroyed) {
  plinth_pool_id_t id = {0, 0};
  {
    plinth::MemPool pool(plinth::MemPoolOptions{true, false});
    id = pool.id();
    plinth::MemPool moved(std::move(pool));
    CHECK(pool.id().index == 0 && moved.id().index == id.index);
    move_to_itself(moved);
    CHECK_EQ(moved.id().index, id.index);
    CHECK_EQ(moved.budget(), SIZE_MAX);
    moved.set_budget(4 * MIB);
    CHECK_EQ(moved.budget(), 4 * MIB);
    moved.set_use_on_oom(false);
    const plinth::MemPoolGuard block(moved);
    const plinth::DeviceBuffer fits(2 * MIB);
    THROWS(plinth::DeviceBuffer(8 * MIB), PLINTH_ERROR_OUT_OF_MEMORY);
    CHECK(caught_text().find("budget") != std::string::npos);
  }
  CHECK_STATUS(plinth_mem_pool_destroy(id), PLINTH_ERROR_INVALID_HANDLE);
  // The guard and the allocated memory outlive the pool.
  plinth::DeviceBuffer last;
  {
    auto pool = std::make_unique<plinth::MemPool>();
    const plinth::MemPoolGuard block(*pool);
    last = plinth::DeviceBuffer(MIB);
    pool.reset();
  }
  plinth::memset(last.get(), 1, MIB);
  plinth::synchronize();
  last.free();
  expect_nothing_left();
}

TEST(observers_are_called_and_can_free) {
  limit_memory(64 * MIB, 0);
  int observer_calls = 0, callback_calls = 0;
  std::size_t requested_bytes = 0;
  plinth::DeviceBuffer spare(40 * MIB);
  {
    const plinth::OutOfMemoryObserver observer([&](std::int32_t device, std::size_t bytes, std::size_t total, std::size_t) {
      CHECK(device == 0 && total > 0);
      observer_calls++;
      requested_bytes = bytes;
    });
    THROWS(plinth::DeviceBuffer(100 * MIB), PLINTH_ERROR_OUT_OF_MEMORY);
    CHECK(observer_calls == 1 && requested_bytes >= 100 * MIB);
    const plinth::FreeMemoryCallback callback([&](std::int32_t, std::size_t) {
      callback_calls++;
      const bool any = spare.get() != nullptr;
      spare.free();
      return any;
    });
    const plinth::DeviceBuffer now(50 * MIB);
    CHECK(callback_calls == 1 && observer_calls == 1);
  }
  THROWS(plinth::DeviceBuffer(100 * MIB), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK(observer_calls == 1 && callback_calls == 1);
  // They are removed from the library; the first one of each kind had the number 1.
  void *const first = reinterpret_cast<void *>(std::uintptr_t{1});
  CHECK_STATUS(plinth_detach_out_of_memory_observer(&plinth::detail::OutOfMemory::call, first), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_remove_free_memory_callback(&plinth::detail::FreeMemory::call, first), PLINTH_ERROR_INVALID_VALUE);
  lift_limit(0);
  expect_nothing_left();
}

// A function object lives until its calls have returned, even if it is removed meanwhile.
TEST(observers_may_be_removed_while_they_are_called) {
  static std::unique_ptr<plinth::AllocatorTraceTracker> tracker;
  auto kept = std::make_shared<int>(17);
  const std::weak_ptr<int> watched = kept;
  static int seen;
  tracker = std::make_unique<plinth::AllocatorTraceTracker>([kept = std::move(kept)](const plinth_memory_history_entry_t *) {
    tracker.reset();
    seen += *kept;
  });
  {
    const plinth::DeviceBuffer first(MIB);
    const plinth::DeviceBuffer second(MIB);
  }
  CHECK_EQ(seen, 17);
  CHECK(watched.expired());
  void *const first = reinterpret_cast<void *>(std::uintptr_t{1});
  CHECK_STATUS(plinth_detach_allocator_trace_tracker(&plinth::detail::TraceTracker::call, first),
               PLINTH_ERROR_INVALID_VALUE);
}

TEST(observers_are_added_and_removed_while_threads_allocate) {
  std::vector<std::thread> threads;
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> seen{0};
  for (int thread = 0; thread < 3; thread++) {
    threads.emplace_back([&] {
      while (!done) const plinth::DeviceBuffer buffer(1000);
    });
  }
  for (int round = 0; round < 200 || seen == 0; round++) {
    auto kept = std::make_shared<std::uint64_t>(1);
    const plinth::AllocatorTraceTracker tracker(
        [&seen, kept = std::move(kept)](const plinth_memory_history_entry_t *) { seen += *kept; });
    std::this_thread::yield();
  }
  done = true;
  for (std::thread &thread : threads) thread.join();
  CHECK(seen > 0);
  expect_nothing_left();
}

TEST(histories_are_iterated) {
  plinth::MemoryHistoryOptions options = plinth::memory_history_options();
  CHECK(options.enabled == PLINTH_MEMORY_HISTORY_ALL && options.context == PLINTH_MEMORY_CONTEXT_ALL);
  options.record_annotations = 1;
  plinth::record_memory_history(options);
  CHECK(plinth::memory_history_is_enabled());
  plinth::set_memory_metadata("a test");
  CHECK(plinth::memory_metadata() == "a test");
  try {
    const plinth::MemoryAnnotation annotation("step 1");
    const plinth::DeviceBuffer buffer(3000);
    throw 1;
  } catch (int) {
  }
  std::vector<std::string> actions;
  std::uint32_t stack = 0;
  plinth::memory_history_each([&](const plinth_memory_history_entry_t &entry) {
    if (entry.action == PLINTH_MEMORY_ACTION_ALLOC) {
      CHECK(entry.size == 3000 && std::string(entry.metadata) == "a test");
      stack = entry.stack;
    }
    actions.push_back(plinth::memory_action_name(entry.action));
  });
  CHECK(actions.size() >= 3 && (actions.front() == "segment_alloc" || actions.front() == "segment_map"));
  CHECK(actions.back() == "free_completed");
  bool has_this_function = false;
  plinth::memory_stack_each(stack, [&](const std::string &name, const std::string &, std::uint32_t) {
    has_this_function = has_this_function || name.find("histories_are_iterated") != std::string::npos;
  });
  CHECK(has_this_function);
  std::string annotations;
  plinth::memory_annotations_each([&](std::int32_t, std::uint64_t, const char *name, bool begin) {
    annotations += std::string(name) + (begin ? " begins; " : " ends; ");
  });
  CHECK(annotations == "step 1 begins; step 1 ends; ");
  plinth::stop_memory_history();
  CHECK(!plinth::memory_history_is_enabled());
}

TEST(snapshots_are_written_and_iterated) {
  char folder[] = "/tmp/plinth-test-XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  const std::string html_path = std::string(folder) + "/memory.html", json_path = std::string(folder) + "/memory.json";
  const plinth::DeviceBuffer buffer(5 * MIB);
  plinth::dump_snapshot(html_path);
  plinth::dump_snapshot(json_path);
  std::stringstream html, json;
  html << std::ifstream(html_path).rdbuf();
  json << std::ifstream(json_path).rdbuf();
  CHECK(html.str().find("<html") != std::string::npos || html.str().find("<!DOCTYPE html>") != std::string::npos);
  CHECK(json.str()[0] == '{' && json.str().find("\"segments\"") != std::string::npos);
  CHECK(plinth::memory_snapshot(false).find("\"segments\"") != std::string::npos);
  bool found = false;
  plinth::memory_snapshot_each([&](const plinth_memory_segment_t &, const plinth_memory_block_t *block) {
    found = found || (block != nullptr && block->address == reinterpret_cast<std::uintptr_t>(buffer.get()) &&
                      block->state == PLINTH_BLOCK_ALLOCATED && block->requested_size == 5 * MIB);
  });
  CHECK(found);
  THROWS(plinth::dump_snapshot(std::string(folder) + "/nowhere/x.html"), PLINTH_ERROR_SYSTEM);
  plinth::trace_start(json_path);
  { const plinth::DeviceBuffer traced(MIB); }
  plinth::trace_stop();
  THROWS(plinth::trace_stop(), PLINTH_ERROR_INVALID_VALUE);
  CHECK(unlink(html_path.c_str()) == 0 && unlink(json_path.c_str()) == 0 && rmdir(folder) == 0);
}

TEST(streams_and_memory_have_names) {
  const plinth::Stream stream;
  const plinth::DeviceBuffer buffer(1024);
  plinth::set_stream_name(stream, "copies");
  plinth::set_memory_name(buffer.get(), "weights");
  CHECK(plinth::stream_name(stream) == "copies");
  CHECK(plinth::memory_name(buffer.get()) == "weights");
  plinth::set_stream_name(stream, "");
  CHECK(plinth::stream_name(stream).empty());
}
