// Operations beside blocks, graphs and groups.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "memory.h"

#include <sys/wait.h>

// Fills two blocks with the random numbers of one seed, which must be equal.
inline void make_random_numbers(Worker &worker) {
  int64_t numbers = static_cast<int64_t>(1 + worker.random.below(SAMPLE / 8));
  const size_t bytes = static_cast<size_t>(numbers) * 4;
  const uint64_t seed = worker.random.next() >> 1;
  plinth_generator_t generator = nullptr;
  Block block{};
  settle(worker);
  begin(OP_random_numbers, static_cast<uint64_t>(numbers), seed);
  if (!TRY(plinth_generator_create(0, &generator))) {
    return;
  }
  if (allocate(worker, block, 2 * bytes, 0, 1)) {
    bool complete = true;
    for (size_t half = 0; half < 2; half++) {
      DLTensor tensor{block.memory + half * bytes, {2, 0}, 1, {2, 32, 1}, &numbers, nullptr, 0};
      complete = complete && TRY(plinth_generator_manual_seed(generator, seed)) &&
                 TRY(plinth_uniform(&tensor, 0, 1, generator, streams[0][1]));
    }
    complete = complete && TRY(plinth_memcpy(worker.pinned, block.memory, 2 * bytes, streams[0][1]));
    if (wait_for(streams[0][1], 0) && complete) {
      if (memcmp(worker.pinned, worker.pinned + bytes, bytes) != 0) {
        fail("two fills of %lld numbers from seed %lu differ", static_cast<long long>(numbers),
             static_cast<unsigned long>(seed));
      }
      count(EV_checked_blocks);
    }
    release_memory(block.memory);
  }
  RETRY(plinth_generator_destroy(generator));
}

inline void load_module() {
  static const char PTX[] =
      ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry chaos()\n{\nret;\n}\n";
  plinth_kernel_module_t module = nullptr;
  begin(OP_module);
  if (TRY(plinth_kernel_module_load(PTX, sizeof PTX, 0, &module))) {
    RETRY(plinth_kernel_module_destroy(module));
  }
}

// Ends a stream while a block that was allocated for it is cached, and while other threads work.
inline void end_dedicated_stream(Worker &worker) {
  plinth_stream_t stream = nullptr;
  void *memory = nullptr;
  Block block{nullptr, random_size(worker.random), 0, 0, 0, false, false};
  settle(worker);
  begin(OP_dedicated_stream, block.bytes);
  if (!TRY(plinth_stream_create_dedicated(0, 0, &stream))) {
    return;
  }
  if (TRY(plinth_caching_allocator_alloc(block.bytes, 0, stream, &memory), {PLINTH_ERROR_OUT_OF_MEMORY})) {
    block.memory = static_cast<unsigned char *>(memory);
    write_tag(block, static_cast<uint32_t>(worker.random.next()), stream);
    check_later(worker, block, stream);
    settle(worker);
    release_memory(memory);
  }
  RETRY(plinth_stream_destroy(stream));
}

inline void read_statistics(Worker &worker) {
  begin(OP_statistics);
  plinth_memory_stats_t stats{};
  stats.struct_size = sizeof stats;
  char *text = nullptr;
  switch (worker.random.below(4)) {
    case 0:
      if (TRY(plinth_memory_summary(0, false, &text))) {
        plinth_string_free(text);
      }
      break;
    case 1:
      (void)TRY(plinth_reset_peak_memory_stats(0));
      break;
    default:
      if (TRY(plinth_memory_stats(0, &stats))) {
        CHECK(stats.allocated_bytes.all.current >= 0);
        CHECK(stats.reserved_bytes.all.peak >= 0);
      }
      break;
  }
}

// Writes a snapshot to a file, or to a full disk.
inline void write_snapshot(Worker &worker) {
  const bool full = worker.random.one_in(2);
  const std::string path =
      full ? std::string("/dev/full") : options.folder + "/snapshot-" + std::to_string(life.slot) + ".pickle";
  begin(OP_snapshot, full);
  (void)TRY(plinth_dump_snapshot(path.c_str()), {PLINTH_ERROR_SYSTEM});
  if (!full) {
    unlink(path.c_str());
  }
}

inline void change_settings(Worker &worker) {
  static const char *const TEXTS[] = {"garbage_collection_threshold:0.6", "garbage_collection_threshold:0.9",
                                      "max_split_size_mb:64", "roundup_power2_divisions:4", "roundup_power2_divisions:0"};
  const uint64_t index = worker.random.below(sizeof TEXTS / sizeof *TEXTS);
  begin(OP_settings, index);
  (void)TRY(plinth_set_allocator_settings(TEXTS[index]));
  (void)TRY(plinth_set_per_process_memory_fraction(worker.random.one_in(2) ? 0.5 : 1.0, 0));
}

// ---- devices that the processes of the run share

inline const char *name_of_run() { return options.folder.c_str() + options.folder.rfind('/') + 1; }

inline bool share_device(int device, size_t budget, size_t least) {
  plinth_memory_share_options_t how = PLINTH_MEMORY_SHARE_OPTIONS_INIT;
  how.budget = budget;
  how.floor = least;
  how.name = name_of_run();
  return TRY(plinth_memory_share_enable(device, &how));
}

inline void change_share(Worker &worker) {
  if (!life.shares) {
    return;
  }
  const int device = random_device(worker);
  begin(OP_share, static_cast<uint64_t>(device));
  if (worker.random.one_in(4)) {
    RETRY(plinth_memory_share_disable(device));
  }
  // The file of the sharing is removed by its last process, so none stays away.
  while (!share_device(device, worker.random.one_in(2) ? 0 : (64 + worker.random.below(128)) * MIB,
                       worker.random.below(64) * MIB)) {
  }
  plinth_memory_share_info_t info = PLINTH_MEMORY_SHARE_INFO_INIT;
  if (TRY(plinth_memory_share_info(device, &info))) {
    CHECK(info.processes <= MOST_PROCESSES && info.floor < 64 * MIB);
  }
}

// ---- forks

// What a forked child may do while other threads of its parent held any lock.
inline void run_forked_child(plinth_event_t event, void *memory) {
  void *none = nullptr;
  char *text = nullptr;
  alarm(20);
  const bool good = plinth_caching_allocator_delete(memory) == PLINTH_OK && plinth_event_destroy(event) == PLINTH_OK &&
                    plinth_version() != 0 && strcmp(plinth_last_error(), "") == 0 &&
                    plinth_caching_allocator_alloc(512, 0, nullptr, &none) == PLINTH_ERROR_FORKED_CHILD &&
                    strstr(plinth_last_error(), "fork") != nullptr && plinth_empty_cache() == PLINTH_ERROR_FORKED_CHILD &&
                    plinth_synchronize(0) == PLINTH_ERROR_FORKED_CHILD &&
                    plinth_memory_summary(0, false, &text) == PLINTH_ERROR_FORKED_CHILD &&
                    plinth_event_create(0, &event) == PLINTH_ERROR_FORKED_CHILD &&
                    plinth_set_device(0) == PLINTH_ERROR_FORKED_CHILD && plinth_host_free(nullptr) == PLINTH_OK;
  _exit(good ? 0 : 1);
}

inline void fork_child(Worker &worker) {
  plinth_event_t event = nullptr;
  Block block{};
  begin(OP_fork_child);
  if (!TRY(plinth_event_create(0, &event))) {
    return;
  }
  if (allocate(worker, block, random_size(worker.random), 0, 0)) {
    const pid_t child = fork();
    if (child == 0) {
      run_forked_child(event, block.memory);
    }
    // Without a child, the system has no process left for it.
    if (child > 0) {
      int status = 0;
      while (waitpid(child, &status, 0) == -1 && errno == EINTR) {
      }
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail("a forked child ended with status %#x", static_cast<unsigned>(status));
      }
    }
    release_memory(block.memory);
  }
  RETRY(plinth_event_destroy(event));
}
