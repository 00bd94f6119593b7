// The life of one process: it sets up, works in threads, is struck, ends its work, and shows that it holds nothing.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "exchange.h"
#include "graphs.h"
#include "groups.h"
#include "others.h"
#include "sleep.h"

#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <execinfo.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>

// What strikes a process. Faults and limits make calls fail; the others must not.
struct Strikes {
  bool faults, limits, signals, cancellations, forks;
};

inline Strikes strikes;
inline std::atomic<bool> life_ends{false}, pause_requested{false};
inline std::atomic<int> running{0}, waiting{0};

// ---- threads

// Makes the calling thread one of the process's threads, until the end of the scope.
class ThreadScope {
 public:
  ThreadScope(int index, uint64_t number) {
    record = &shared->processes[life.slot].threads[index];
    thread_number = number;
    worker_.random = random_of(random_of(options.seed, life.number).next(), number);
    begin(OP_pinned_copy, SAMPLES * SAMPLE);
    void *pinned = nullptr;
    RETRY(plinth_host_alloc(SAMPLES * SAMPLE, &pinned), {PLINTH_ERROR_OUT_OF_MEMORY});
    worker_.pinned = static_cast<unsigned char *>(pinned);
    end();
    record->id.store(static_cast<int32_t>(syscall(SYS_gettid)));
    running.fetch_add(1);
  }

  ~ThreadScope() {
    running.fetch_sub(1);
    record->id.store(0);
    settle(worker_);
    begin(OP_pinned_copy);
    RETRY(plinth_host_free(worker_.pinned));
    end();
    count(EV_threads, thread_number != 0);
  }

  ThreadScope(const ThreadScope &) = delete;
  ThreadScope &operator=(const ThreadScope &) = delete;

  Worker &worker() { return worker_; }

 private:
  Worker worker_;
};

// Between two operations: waits while the main thread checks the allocator, and ends the thread if it was cancelled.
inline void between_operations() {
  end();
  if (pause_requested.load()) {
    waiting.fetch_add(1);
    while (pause_requested.load()) {
      sleep_microseconds(20);
    }
    waiting.fetch_sub(1);
  }
  if (cancellable) {
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
    pthread_testcancel();
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  }
}

inline void operate(Worker &worker) {
  const uint64_t choice = worker.random.below(1060);
  if (choice < 330) {
    allocate_block(worker);
  } else if (choice < 600) {
    release_block(worker);
  } else if (choice < 700) {
    rewrite_block(worker);
  } else if (choice < 780) {
    use_in_other_stream(worker);
  } else if (choice < 800) {
    use_thread_stream(worker);
  } else if (choice < 840) {
    copy_through_pinned_memory(worker);
  } else if (choice < 870) {
    use_pool(worker);
  } else if (choice < 920) {
    use_graph(worker);
  } else if (choice < 930) {
    send_memory(worker);
  } else if (choice < 940) {
    send_hostile_message(worker);
  } else if (choice < 950) {
    import_hostile_bytes(worker);
  } else if (choice < 960) {
    make_random_numbers(worker);
  } else if (choice < 963) {
    load_module();
  } else if (choice < 970) {
    end_dedicated_stream(worker);
  } else if (choice < 980) {
    use_device_memory(worker);
  } else if (choice < 990) {
    read_statistics(worker);
  } else if (choice < 992) {
    write_snapshot(worker);
  } else if (choice < 994) {
    change_settings(worker);
  } else if (choice < 996) {
    begin(OP_empty_cache);
    (void)TRY(plinth_empty_cache());
  } else if (choice < 1000) {
    if (strikes.forks) {
      fork_child(worker);
    }
  } else if (choice < 1004) {
    change_share(worker);
  } else if (choice < 1020) {
    use_registration(worker);
  } else {
    use_sleepers(worker);
  }
}

struct ThreadStart {
  int index;
  uint64_t number;
};

// A thread of operations. It ends after some thousand of them, or when the life ends, or cancelled.
inline void *run_operations(void *context) {
  const ThreadStart start = *static_cast<ThreadStart *>(context);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  ThreadScope scope(start.index, start.number);
  cancellable = strikes.cancellations;
  for (uint64_t left = 100 + scope.worker().random.below(4000); left > 0 && !life_ends; left--) {
    between_operations();
    operate(scope.worker());
  }
  cancellable = false;
  end();
  return nullptr;
}

inline void *run_receiver(void *context) {
  const ThreadStart start = *static_cast<ThreadStart *>(context);
  ThreadScope scope(start.index, start.number);
  int listening = -1;
  while (listening == -1 && !life_ends) {
    listening = listen_as(life.slot);
    sleep_microseconds(100);
  }
  while (!life_ends) {
    between_operations();
    serve(scope.worker(), listening);
  }
  end();
  unlink(address_of(life.slot).sun_path);
  if (listening != -1) {
    close(listening);
  }
  for (Received &received : held) {
    if (received.memory != nullptr) {
      close_held(received);
    }
  }
  end();
  return nullptr;
}

// Allocates nothing that the allocator's check counts, so it does not pause for it.
inline void *run_groups(void *context) {
  const ThreadStart start = *static_cast<ThreadStart *>(context);
  void *memory = nullptr, *pinned = nullptr;
  record = &shared->processes[life.slot].threads[start.index];
  begin(OP_join_group);
  RETRY(plinth_device_malloc(4 * NUMBERS, life.slot % device_count, &memory), {PLINTH_ERROR_OUT_OF_MEMORY});
  RETRY(plinth_pinned_malloc(4 * NUMBERS, &pinned), {PLINTH_ERROR_OUT_OF_MEMORY});
  end();
  record->id.store(static_cast<int32_t>(syscall(SYS_gettid)));
  while (!life_ends) {
    meet(static_cast<int32_t *>(memory), static_cast<int32_t *>(pinned));
  }
  record->id.store(0);
  begin(OP_join_group);
  RETRY(plinth_synchronize(life.slot % device_count));
  RETRY(plinth_pinned_free(pinned));
  RETRY(plinth_device_free(memory));
  end();
  return nullptr;
}

// ---- strikes

// Allocates if it interrupts a call. The library refuses it, unless the call has not quite begun or is over already.
inline void on_signal(int) {
  const int before = errno;
  void *memory = nullptr;
  count(EV_signals);
  if (in_call) {
    handler_called = true;
    count(EV_signal_allocations);
    const plinth_status_t status = plinth_caching_allocator_alloc(512, 0, nullptr, &memory);
    if (status == PLINTH_ERROR_NOT_SUPPORTED) {
      count(EV_signal_refusals);
    } else if (status == PLINTH_OK) {
      while (plinth_caching_allocator_delete(memory) != PLINTH_OK) {
      }
    } else if (!life.struck && status != PLINTH_ERROR_OUT_OF_MEMORY) {
      fail("an allocation in a signal handler: %s", plinth_status_name(status));
    }
  }
  errno = before;
}

// The resource that is limited at the moment, or -1.
inline std::atomic<int> limited{-1};

// Reports a crash with the addresses on the stack, as offsets in their files, for addr2line.
inline void on_crash(int number) {
  void *frames[40];
  char text[3000] = "";
  const int depth = backtrace(frames, 40);
  size_t length = 0;
  for (int at = 1; at < depth && length < sizeof text - 1; at++) {
    Dl_info info{};
    const bool known = dladdr(frames[at], &info) != 0 && info.dli_fname != nullptr;
    const char *slash = known ? strrchr(info.dli_fname, '/') : nullptr;
    const char *file = slash != nullptr ? slash + 1 : known ? info.dli_fname : "?";
    const auto offset = reinterpret_cast<uintptr_t>(frames[at]) - (known ? reinterpret_cast<uintptr_t>(info.dli_fbase) : 0);
    const int written = snprintf(text + length, sizeof text - length, "\n  %s+0x%zx %s", file, static_cast<size_t>(offset),
                                 known && info.dli_sname != nullptr ? info.dli_sname : "");
    length += static_cast<size_t>(std::max(written, 0));
  }
  fail("signal %d; limited resource %d; stack:%s", number, limited.load(), text);
}

// A sanitizer reports crashes itself.
inline void report_crashes() {
  void *frame = nullptr;
  (void)backtrace(&frame, 1);  // loads what it needs now
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    if (before.sa_handler == SIG_DFL) {
      signal(number, on_crash);
    }
  }
}

inline void strike_with_signal(Random &random) {
  const ThreadRecord &target = shared->processes[life.slot].threads[1 + random.below(MOST_THREADS - 1)];
  const int32_t id = target.id.load();
  if (id != 0) {
    syscall(SYS_tgkill, getpid(), id, SIGUSR1);
  }
}

inline void strike_with_fault(Random &random) {
  // Out of memory, unknown, an error of the system. An illegal address is not among them, so that a real one shows.
  static const int32_t CODES[] = {2, 2, 999, 304};
  count(EV_faults, plinth_tripped_fault() != nullptr);
  (void)TRY(plinth_inject_fault(1 + random.below(60), CODES[random.below(sizeof CODES / sizeof *CODES)]));
}

inline size_t address_space() {
  size_t pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == nullptr || fscanf(file, "%zu", &pages) != 1) {
    pages = SIZE_MAX / 8192;
  }
  if (file != nullptr) {
    fclose(file);
  }
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Keeps free memory in the heap of the C library: with little address space, small requests are served, because Rust and the C
// library end the process where they are not. Mappings and large requests fail.
inline void keep_free_heap() {
  // The largest threshold that glibc accepts; blocks below it come from the heap.
  constexpr int THRESHOLD = 32 * 1024 * 1024, BLOCKS_KEPT = 8, BLOCK_KEPT = THRESHOLD / 4;
  CHECK(mallopt(M_ARENA_MAX, 1) == 1);
  CHECK(mallopt(M_MMAP_THRESHOLD, THRESHOLD) == 1);
  CHECK(mallopt(M_TRIM_THRESHOLD, 2 * BLOCKS_KEPT * BLOCK_KEPT) == 1);
  void *kept[BLOCKS_KEPT];
  for (void *&block : kept) {
    block = malloc(BLOCK_KEPT);
    CHECK(block != nullptr);
    memset(block, 1, BLOCK_KEPT);
  }
  for (void *block : kept) {
    free(block);
  }
}

// Leaves the process few descriptors, small files, or little address space, for some milliseconds.
inline void strike_with_limit(Random &random) {
  static const __rlimit_resource_t RESOURCES[] = {RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_AS};
  const __rlimit_resource_t resource = RESOURCES[random.below(3)];
  rlimit before{};
  getrlimit(resource, &before);
  rlimit small = before;
  if (resource == RLIMIT_NOFILE) {
    const int lowest = fcntl(0, F_DUPFD_CLOEXEC, 0);
    if (lowest != -1) {
      close(lowest);
    }
    small.rlim_cur = static_cast<rlim_t>(lowest) + random.below(4);
  } else {
    small.rlim_cur = resource == RLIMIT_FSIZE ? 4096 : address_space() + 16 * MIB;
  }
  if (small.rlim_cur < before.rlim_cur && setrlimit(resource, &small) == 0) {
    limited = static_cast<int>(resource);
    sleep_microseconds(static_cast<int64_t>(random.below(5000)));
    setrlimit(resource, &before);
    limited = -1;
    count(EV_limits);
  }
}

// Stops all threads between their operations, and checks the allocator.
inline void check_allocator() {
  begin(OP_check_allocator);
  pause_requested.store(true);
  while (waiting.load() < running.load()) {
    sleep_microseconds(20);
  }
  (void)TRY(plinth_testing_check_allocator());
  end();
  pause_requested.store(false);
  while (waiting.load() > 0) {
    sleep_microseconds(20);
  }
}

// ---- the end

inline size_t count_entries(const char *folder) {
  size_t entries = 0;
  DIR *opened = opendir(folder);
  CHECK(opened != nullptr);
  while (readdir(opened) != nullptr) {
    entries++;
  }
  closedir(opened);
  return entries;
}

// What the open descriptors are: the names of files, and the kinds of others.
inline std::string list_descriptors() {
  std::string list;
  for (int number = 3; number < 1024; number++) {
    char target[256];
    const std::string path = "/proc/self/fd/" + std::to_string(number);
    const ssize_t length = readlink(path.c_str(), target, sizeof target);
    if (length > 0) {
      list += (list.empty() ? "" : ", ") + std::string(target, static_cast<size_t>(length));
    }
  }
  return list;
}

inline size_t reserved_bytes() {
  size_t sum = 0;
  for (int device = 0; device < device_count; device++) {
    size_t bytes = 0;
    (void)TRY(plinth_memory_reserved(device, &bytes));
    sum += bytes;
  }
  return sum;
}

// Frees everything, and checks that nothing is held. Other processes may hold blocks for some time.
inline void end_life(bool on_host, size_t descriptors) {
  {
    ThreadScope scope(0, 0);
    end_sleepers(scope.worker());
  }
  begin(OP_end_life);
  for (Graph &graph : graphs) {
    if (graph.graph != nullptr) {
      destroy_graph(graph);
    }
  }
  for (Slot &slot : slots) {
    if (slot.live) {
      release_memory(slot.block.memory);
    }
  }
  begin(OP_end_life, 1);
  if (life.shares && life.number % 2 == 0) {
    RETRY(plinth_memory_share_disable(0));
  }
  for (int device = 0; device < device_count; device++) {
    (void)TRY(plinth_synchronize(device));
    (void)TRY(plinth_stream_destroy(streams[device][STREAMS - 1]));
  }
  const int64_t limit = now() + INT64_C(30000000000);
  do {
    (void)TRY(plinth_ipc_collect());
    (void)TRY(plinth_host_empty_cache());
    (void)TRY(plinth_empty_cache());
    sleep_microseconds(1000);
  } while (reserved_bytes() > 0 && now() < limit);
  // The events of the messages of the last blocks are destroyed when no process holds a block any more.
  (void)TRY(plinth_ipc_collect());
  (void)TRY(plinth_testing_check_allocator());
  for (int device = 0; device < device_count; device++) {
    size_t bytes = 0;
    if (TRY(plinth_memory_allocated(device, &bytes)) && bytes != 0) {
      fail("%zu bytes of device %d are allocated at the end", bytes, device);
    }
  }
  if (reserved_bytes() != 0) {
    const std::string dump = "/tmp/chaos-" + std::to_string(options.seed) + ".json";
    (void)TRY(plinth_dump_snapshot(dump.c_str()));
    fail("%zu bytes are reserved at the end, see %s; open: %s", reserved_bytes(), dump.c_str(), list_descriptors().c_str());
  }
  plinth_host_memory_stats_t pinned = PLINTH_HOST_MEMORY_STATS_INIT;
  if (TRY(plinth_host_memory_stats(&pinned)) && pinned.active_bytes.current != 0) {
    fail("%ld bytes of pinned memory are in use at the end", static_cast<long>(pinned.active_bytes.current));
  }
  if (on_host) {
    plinth_host_usage_t usage = PLINTH_HOST_USAGE_INIT;
    (void)TRY(plinth_host_usage(&usage));
    if (usage.memory_handles + usage.mappings + usage.graphs + usage.executable_graphs != 0) {
      fail("the device holds %lu handles, %lu mappings, %lu graphs, %lu executable graphs at the end",
           static_cast<unsigned long>(usage.memory_handles), static_cast<unsigned long>(usage.mappings),
           static_cast<unsigned long>(usage.graphs), static_cast<unsigned long>(usage.executable_graphs));
    }
    if (count_entries("/proc/self/fd") > descriptors) {
      fail("%zu descriptors are open at the end instead of %zu: %s", count_entries("/proc/self/fd") - 3, descriptors - 3,
           list_descriptors().c_str());
    }
  }
  end();
}

// ---- the life

inline void set_environment(Random &random) {
  static const char *const SETTINGS[] = {"expandable_segments:True", "expandable_segments:True",
                                         "expandable_segments:False", "expandable_segments:True,max_split_size_mb:64"};
  setenv("PLINTH_DEVICE", "host", 0);
  // A group's id is created before its engine is named. With NCCL installed it would be one of NCCL.
  setenv("PLINTH_COMMUNICATOR_ENGINE", "shared", 0);
  setenv("PLINTH_HOST_DEVICES", std::to_string(std::max(DEVICES, options.processes)).c_str(), 1);
  setenv("PLINTH_HOST_MEMORY", "256MiB", 1);
  const char *setting = SETTINGS[random.below(4)];
  has_segments = strstr(setting, "False") != nullptr;
  setenv("PLINTH_ALLOC_CONF", setting, 1);
  if (life.shares) {
    setenv("PLINTH_HOST_MEMORY_NAME", name_of_run(), 1);
  }
  setenv("TMPDIR", options.folder.c_str(), 1);
  setenv("PLINTH_FAULT_INJECTION", strikes.faults ? "1" : "0", 1);
  // The work that a killed process has not done stays undone, so a sender that may be killed finishes it first.
  if (options.kill_every > 0 || random.one_in(4)) {
    setenv("PLINTH_IPC", "wait", 1);
  }
}

inline bool set_up() {
  int32_t count_of_devices = 0, kind = 0;
  begin(OP_end_life, 0);
  CHECK(TRY(plinth_device_count(&count_of_devices)));
  CHECK(TRY(plinth_get_device_kind(&kind)));
  device_count = std::min<int>(count_of_devices, DEVICES);
  for (int device = 0; device < device_count; device++) {
    for (int stream = 1; stream < STREAMS; stream++) {
      CHECK(stream == STREAMS - 1 ? TRY(plinth_stream_create_dedicated(device, 0, &streams[device][stream]))
                                  : TRY(plinth_stream_create(device, 0, &streams[device][stream])));
    }
    if (kind == PLINTH_DEVICE_CUDA) {
      CHECK(TRY(plinth_set_per_process_memory_fraction(0.01, device)));
    }
    if (life.shares) {
      CHECK(share_device(device, 0, 0));
    }
  }
  // What the first use of memory and of sharing opens stays open.
  for (int device = 0; device < device_count; device++) {
    void *memory = nullptr;
    plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
    // Processes that share a device may hold all of it for a moment.
    RETRY(plinth_caching_allocator_alloc(1, device, nullptr, &memory));
    if (TRY(plinth_ipc_export(memory, &message), {PLINTH_ERROR_IPC_NOT_SHAREABLE, PLINTH_ERROR_NOT_SUPPORTED})) {
      CHECK(TRY(plinth_ipc_export_free(&message)));
    }
    CHECK(TRY(plinth_caching_allocator_delete(memory)));
  }
  end();
  const bool on_host = kind == PLINTH_DEVICE_HOST;
  group_limit = on_host ? 400 : 4000;
  return on_host;
}

// Runs a life, and ends the process.
[[noreturn]] inline void live(int slot, uint64_t number) {
  Random random = random_of(options.seed, number);
  life = Life{slot, number, false, options.seed % 2 != 0};
  record = &shared->processes[slot].threads[0];
  const bool calm = random.one_in(4);
  const auto with = [&](const char *strike) { return random.one_in(2) && !is_left_out(strike); };
  strikes.faults = with("faults") && !calm;
  strikes.limits = with("limits") && !calm;
  strikes.signals = with("signals");
  strikes.cancellations = with("cancellations");
  strikes.forks = with("forks");
  struct sigaction action {};
  action.sa_handler = on_signal;  // without SA_RESTART
  sigaction(SIGUSR1, &action, nullptr);
  signal(SIGXFSZ, SIG_IGN);
  report_crashes();
  if (!is_left_out("limits")) {
    keep_free_heap();
  }
  set_environment(random);
  const bool on_host = set_up();
  // The descriptors that the run has opened so far, and one for the listing.
  const size_t descriptors = count_entries("/proc/self/fd");
  life.struck = strikes.faults || strikes.limits;

  pthread_t threads[MOST_THREADS];
  ThreadStart starts[MOST_THREADS];
  uint64_t numbers = 1;
  const int receiver = options.threads + 1, groups = options.threads + 2;
  const auto start = [&](int index, void *(*body)(void *)) {
    starts[index] = ThreadStart{index, numbers++};
    while (pthread_create(&threads[index], nullptr, body, &starts[index]) != 0) {
      sleep_microseconds(1000);
    }
  };
  for (int index = 1; index <= options.threads; index++) {
    start(index, run_operations);
  }
  start(receiver, run_receiver);
  // On GPUs each rank needs one of its own.
  const bool meets = options.processes > 1 && (on_host || options.processes <= device_count);
  if (meets) {
    start(groups, run_groups);
  }
  const int64_t last = now() + static_cast<int64_t>((5 + random.below(300)) * 10000000);
  while (now() < last && !shared->ending && shared->failed == 0) {
    sleep_microseconds(static_cast<int64_t>(random.below(400)));
    for (int index = 1; index <= options.threads; index++) {
      if (pthread_tryjoin_np(threads[index], nullptr) == 0) {
        start(index, run_operations);
      }
    }
    if (strikes.signals) {
      strike_with_signal(random);
    }
    if (strikes.faults && random.one_in(4)) {
      strike_with_fault(random);
    }
    if (strikes.limits && random.one_in(50)) {
      strike_with_limit(random);
    }
    if (strikes.cancellations && random.one_in(50)) {
      pthread_cancel(threads[1 + random.below(static_cast<uint64_t>(options.threads))]);
      count(EV_cancellations);
    }
    if (random.one_in(200)) {
      check_allocator();
    }
  }
  life_ends = true;
  for (int index = 1; index <= (meets ? groups : receiver); index++) {
    pthread_join(threads[index], nullptr);
  }
  if (strikes.faults) {
    (void)TRY(plinth_inject_fault(0, 0));
  }
  // Errors of work that a limit struck are reported by the next wait.
  begin(OP_end_life);
  for (int device = 0; device < device_count; device++) {
    (void)TRY(plinth_synchronize(device));
  }
  life.struck = false;
  end_life(on_host, descriptors);
  count(EV_lives);
  exit(0);
}
