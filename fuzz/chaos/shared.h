// What the processes of the chaos program share: counters, the history of each thread, and the first failure.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <plinth.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <pthread.h>
#include <string>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vector>

constexpr size_t KIB = 1024, MIB = 1024 * KIB;
constexpr int MOST_PROCESSES = 16, MOST_THREADS = 12, HISTORY = 512;

// The operations of the threads. Each has a counter and appears in the history.
#define OPERATIONS(X)      \
  X(allocate)              \
  X(release)               \
  X(rewrite)               \
  X(use_in_other_stream)   \
  X(thread_stream)         \
  X(pinned_copy)           \
  X(pool)                  \
  X(capture)               \
  X(replay)                \
  X(sleep_and_wake)        \
  X(destroy_graph)         \
  X(make_pool)             \
  X(change_pool)           \
  X(sleep)                 \
  X(wake)                  \
  X(end_pool)              \
  X(register)              \
  X(unregister)            \
  X(send_memory)           \
  X(receive_memory)        \
  X(close_memory)          \
  X(hostile_message)       \
  X(hostile_import)        \
  X(random_numbers)        \
  X(module)                \
  X(dedicated_stream)      \
  X(device_memory)         \
  X(statistics)            \
  X(snapshot)              \
  X(settings)              \
  X(share)                 \
  X(empty_cache)           \
  X(fork_child)            \
  X(join_group)            \
  X(collective)            \
  X(split_group)           \
  X(shrink_group)          \
  X(settle)                \
  X(check_allocator)       \
  X(end_life)

// What else is counted.
#define EVENTS(X)                                              \
  X(checked_blocks, "contents checked")                        \
  X(checked_restored, "of them restored from a backup")        \
  X(checked_collectives, "results of collectives checked")     \
  X(refused, "calls that failed as they may")                  \
  X(faults, "driver calls that failed by injection")           \
  X(signals, "signals delivered")                              \
  X(signal_allocations, "allocations in signal handlers")      \
  X(signal_refusals, "of them refused")                        \
  X(threads, "threads ended")                                  \
  X(cancellations, "of them cancelled")                        \
  X(limits, "limits of descriptors, file size, address space") \
  X(pauses, "processes paused")                                \
  X(kills, "processes killed")                                 \
  X(lives, "processes ended by themselves, holding nothing")

enum Operation {
#define X(name) OP_##name,
  OPERATIONS(X)
#undef X
  OPERATION_COUNT
};

enum Event {
#define X(name, text) EV_##name,
  EVENTS(X)
#undef X
  EVENT_COUNT
};

constexpr const char *OPERATION_NAMES[] = {
#define X(name) #name,
    OPERATIONS(X)
#undef X
};

constexpr const char *EVENT_TEXTS[] = {
#define X(name, text) text,
    EVENTS(X)
#undef X
};

// One operation in the history of a thread.
struct Step {
  uint64_t order;  // over all processes; 0 for no step
  uint64_t thread;
  uint64_t first, second;
  int32_t operation, status;
};

struct ThreadRecord {
  std::atomic<int64_t> busy_since;  // nanoseconds; 0 between operations
  std::atomic<uint32_t> steps;
  std::atomic<int32_t> id;  // of the kernel; 0 without a thread
  Step history[HISTORY];
};

struct ProcessRecord {
  std::atomic<uint64_t> life;
  std::atomic<int32_t> ending;
  ThreadRecord threads[MOST_THREADS];
};

struct Shared {
  std::atomic<uint64_t> operations[OPERATION_COUNT], events[EVENT_COUNT];
  std::atomic<uint64_t> order, session;
  std::atomic<int32_t> ending, failed;
  int32_t failed_process;
  uint64_t failed_life;
  char failure[4096];
  ProcessRecord processes[MOST_PROCESSES];
};

// The options of the run.
struct Options {
  uint64_t seed = 0, life = 0;
  double seconds = 20, kill_every = 0.1;
  int processes = 3, threads = 4;
  bool verbose = false;
  std::string without;  // the strikes to leave out
  std::string folder;
};

inline Shared *shared;
inline Options options;

inline bool is_left_out(const char *strike) { return options.without.find(strike) != std::string::npos; }

inline void count(Event event, uint64_t by = 1) { shared->events[event].fetch_add(by, std::memory_order_relaxed); }

inline int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

inline void sleep_microseconds(int64_t microseconds) {
  const timespec time{microseconds / 1000000, microseconds % 1000000 * 1000};
  nanosleep(&time, nullptr);
}

// A deterministic generator (splitmix64).
struct Random {
  uint64_t state;

  uint64_t next() {
    uint64_t mixed = state += UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ (mixed >> 31);
  }

  // A number below `end`.
  uint64_t below(uint64_t end) { return next() % end; }
  bool one_in(uint64_t count) { return below(count) == 0; }
};

inline Random random_of(uint64_t one, uint64_t other) {
  Random mixed{one * UINT64_C(0xD1B54A32D192ED03) + other};
  return Random{mixed.next()};
}

// ---- the process and the thread

// A process of the run, from its start until it ends or is killed.
struct Life {
  int slot = 0;
  uint64_t number = 0;
  // Whether faults, limits or signals strike it. If not, every call must succeed that has no reason to fail.
  bool struck = false;
  // Whether the processes of the run share the devices' memory, so that any call may find too little: in every other run.
  bool shares = false;
};

inline Life life;

// Whether memory has fixed addresses in this life (expandable_segments:False): it cannot sleep, and what is free in it
// cannot be combined, so at the limit of the process even a small request may fail.
inline bool has_segments;

// The calling thread's entry in the records. Thread 0 is the main thread of a process.
inline thread_local ThreadRecord *record;
inline thread_local Step *step;
inline thread_local uint64_t thread_number;

// Ends the process. The first failure of the run is kept; the supervisor reports it.
[[noreturn]] __attribute__((format(printf, 1, 2))) inline void fail(const char *format, ...) {
  int32_t none = 0;
  if (shared->failed.compare_exchange_strong(none, 1)) {
    va_list arguments;
    va_start(arguments, format);
    const int written = vsnprintf(shared->failure, sizeof shared->failure, format, arguments);
    va_end(arguments);
    const size_t end = std::min(static_cast<size_t>(std::max(written, 0)), sizeof shared->failure - 1);
    const char *settings = getenv("PLINTH_ALLOC_CONF");
    snprintf(shared->failure + end, sizeof shared->failure - end, " [%s; %s]", settings == nullptr ? "" : settings,
             life.struck ? "struck" : "not struck");
    shared->failed_process = life.slot;
    shared->failed_life = life.number;
    shared->failed.store(2);
  }
  _exit(1);
}

#define CHECK(condition) ((condition) ? void() : fail("%s:%d: CHECK(%s) does not hold", __FILE__, __LINE__, #condition))

// Adds an operation to the thread's history.
inline void begin(Operation operation, uint64_t first = 0, uint64_t second = 0) {
  step = &record->history[record->steps.fetch_add(1, std::memory_order_relaxed) % HISTORY];
  *step = Step{shared->order.fetch_add(1, std::memory_order_relaxed) + 1, thread_number, first, second, operation, 0};
  record->busy_since.store(now(), std::memory_order_relaxed);
  shared->operations[operation].fetch_add(1, std::memory_order_relaxed);
}

// Continues an operation after another one within it.
inline void resume(const Step &outer) {
  step = &record->history[record->steps.fetch_add(1, std::memory_order_relaxed) % HISTORY];
  *step = outer;
}

inline void end() { record->busy_since.store(0, std::memory_order_relaxed); }

// Whether a call may fail with a status in a process that faults strike. The others show a defect, or a wrong argument.
inline bool is_excused(plinth_status_t status) {
  switch (status) {
    case PLINTH_ERROR_INVALID_VALUE:
    case PLINTH_ERROR_NULL_POINTER:
    case PLINTH_ERROR_INVALID_DEVICE:
    case PLINTH_ERROR_INVALID_HANDLE:
    case PLINTH_ERROR_INVALID_POINTER:
    case PLINTH_ERROR_FORKED_CHILD:
    case PLINTH_ERROR_SHUTTING_DOWN:
    case PLINTH_ERROR_DEVICE_MISMATCH:
    case PLINTH_ERROR_PANIC:
    case PLINTH_ERROR_MEMORY_CORRUPTED:
    case PLINTH_ERROR_RANK_MISMATCH:
    case PLINTH_ERROR_RACE:
    case PLINTH_ERROR_ILLEGAL_ADDRESS:
    case PLINTH_ERROR_LAUNCH_FAILED:
      return false;
    default:
      return true;
  }
}

// Whether the thread is in a call of TRY, and whether a signal handler has made calls since it began.
inline thread_local volatile bool in_call, handler_called;

// Whether a call succeeded. It may fail with the given statuses; because another thread captures; and, in a struck
// process, with any excused status.
inline bool succeeded(plinth_status_t status, const char *call, std::initializer_list<plinth_status_t> allowed = {}) {
  const char *message = plinth_last_error();
  // A call of a signal handler after the call has replaced its message.
  if (!handler_called && (status == PLINTH_OK) != (message[0] == '\0')) {
    fail("%s: %s leaves the message \"%s\"", call, plinth_status_name(status), message);
  }
  if (status == PLINTH_OK) {
    return true;
  }
  step->status = status;
  const bool is_allowed = status == PLINTH_ERROR_CAPTURE_FORBIDS || (life.struck && is_excused(status)) ||
                          (life.shares && status == PLINTH_ERROR_OUT_OF_MEMORY) ||
                          std::find(allowed.begin(), allowed.end(), status) != allowed.end();
  if (!is_allowed) {
    fail("%s: %s: %s (driver code %d)", call, plinth_status_name(status), message, plinth_last_driver_error());
  }
  count(EV_refused);
  return false;
}

inline thread_local bool cancellable;

// Makes a call, which signals may interrupt, and which may be cancelled: the library must complete it, and the thread ends
// between its operations.
template <typename Call>
bool call_library(Call call, const char *text, std::initializer_list<plinth_status_t> allowed = {}) {
  if (cancellable) {
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
  }
  handler_called = false;
  in_call = true;
  const plinth_status_t status = call();
  in_call = false;
  if (cancellable) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  }
  return succeeded(status, text, allowed);
}

#define TRY(call, ...) call_library([&] { return call; }, #call, ##__VA_ARGS__)

// Makes a call until it succeeds: a fault or a limit may strike it, and it then has no effect.
#define RETRY(call, ...)                   \
  do {                                     \
  } while (!TRY(call, ##__VA_ARGS__))
