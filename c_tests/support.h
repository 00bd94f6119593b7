/*
 * Helpers of all tests: gates that block a stream, waiting with a deadline, threads, and patterns in memory.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef SUPPORT_H
#define SUPPORT_H

#include "harness.h"

#include <pthread.h>
#include <time.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

/* The value of an output before a call that must not write it. */
#define UNTOUCHED 0x5A5A5A5A
#define UNTOUCHED_POINTER ((void *)(uintptr_t)0x5A5A5A5A5A5A5A5A)

/* The timeout of EVENTUALLY: longer than any work of the tests, shorter than the time limit of run.py. */
#define EVENTUALLY_SECONDS 20.0

static inline double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline void sleep_milliseconds(long milliseconds) {
  struct timespec length;
  length.tv_sec = milliseconds / 1000;
  length.tv_nsec = milliseconds % 1000 * 1000000;
  nanosleep(&length, NULL);
}

static inline void sleep_a_little(void) {
  struct timespec length = {0, 50000};
  nanosleep(&length, NULL);
}

/* Waits until a condition holds. Fails after EVENTUALLY_SECONDS. */
#define EVENTUALLY(condition)                                                                     \
  do {                                                                                            \
    const double support_end = seconds_now() + EVENTUALLY_SECONDS;                                  \
    while (!(condition)) {                                                                        \
      if (seconds_now() > support_end) {                                                          \
        harness_fail(__FILE__, __LINE__, "EVENTUALLY(" #condition ") does not hold in time");      \
      }                                                                                           \
      sleep_a_little();                                                                           \
    }                                                                                             \
  } while (0)

/*
 * A gate: a host function that blocks a stream until the test opens the gate. A driver may call all host functions from
 * one thread. So a test must not wait for another host function while a gate is shut; it may wait for copies and fills of
 * other streams.
 *
 * Gates are never freed: the host function may still read an opened gate when the test has ended.
 */
typedef struct gate {
  int opened;
  struct gate *next;
} gate;

static gate *gates;

static inline void gate_function(void *context) {
  while (!__atomic_load_n(&((gate *)context)->opened, __ATOMIC_SEQ_CST)) {
    sleep_a_little();
  }
}

/* Blocks a stream: work submitted from now on does not run until the gate is opened. Call it in the main thread. */
static inline gate *gate_shut(plinth_stream_t stream) {
  gate *shut = (gate *)calloc(1, sizeof(gate));
  CHECK(shut != NULL);
  shut->next = gates;
  gates = shut;
  CHECK_OK(plinth_launch_host_function(stream, gate_function, shut));
  return shut;
}

static inline void gate_open(gate *shut) { __atomic_store_n(&shut->opened, 1, __ATOMIC_SEQ_CST); }

static inline bool gate_is_open(const gate *shut) { return __atomic_load_n(&shut->opened, __ATOMIC_SEQ_CST) != 0; }

static inline void *gate_open_later(void *context) {
  sleep_milliseconds(50);
  gate_open((gate *)context);
  return NULL;
}

/* Opens a gate from another thread after 50 ms, for calls that must wait for it. Join the thread. */
static inline pthread_t gate_open_soon(gate *shut) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, gate_open_later, shut) == 0);
  return thread;
}

static inline bool stream_done(plinth_stream_t stream) {
  bool done = false;
  CHECK_OK(plinth_stream_query(stream, &done));
  return done;
}

static inline bool event_done(plinth_event_t event) {
  bool done = false;
  CHECK_OK(plinth_event_query(event, &done));
  return done;
}

/* Whether a stream has unfinished work for 20 ms. Work that does not wait for its dependencies would finish in that time. */
static inline bool stays_undone(plinth_stream_t stream) {
  int round;
  for (round = 0; round < 20; round++) {
    if (stream_done(stream)) {
      return false;
    }
    sleep_milliseconds(1);
  }
  return true;
}

static inline int32_t device_count(void) {
  int32_t count = 0;
  CHECK_OK(plinth_device_count(&count));
  return count;
}

static inline void need_devices(int32_t count) {
  char reason[64];
  if (device_count() < count) {
    snprintf(reason, sizeof reason, "needs %d devices", (int)count);
    SKIP(reason);
  }
}

/* The calling thread's current device, and its current stream on a device. */
static inline int32_t current_device(void) {
  int32_t device = UNTOUCHED;
  CHECK_OK(plinth_current_device(&device));
  return device;
}

static inline plinth_stream_t current_on(int32_t device) {
  plinth_stream_t stream = (plinth_stream_t)UNTOUCHED_POINTER;
  CHECK_OK(plinth_current_stream(device, &stream));
  return stream;
}

static inline bool on_host_device(void) {
  int32_t kind = -1;
  CHECK_OK(plinth_get_device_kind(&kind));
  return kind == PLINTH_DEVICE_HOST;
}

static inline void need_host_device(void) {
  if (!on_host_device()) {
    SKIP("is about the host device");
  }
}

static inline plinth_stream_t stream_on(int32_t device) {
  plinth_stream_t stream = NULL;
  CHECK_OK(plinth_stream_create(device, 0, &stream));
  return stream;
}

static inline plinth_event_t new_event(uint32_t flags) {
  plinth_event_t event = NULL;
  CHECK_OK(plinth_event_create(flags, &event));
  CHECK(event != NULL);
  return event;
}

static inline void *device_memory(size_t bytes, int32_t device) {
  void *pointer = NULL;
  CHECK_OK(plinth_device_malloc(bytes, device, &pointer));
  CHECK(pointer != NULL);
  return pointer;
}

static inline void *pinned_memory(size_t bytes) {
  void *pointer = NULL;
  CHECK_OK(plinth_pinned_malloc(bytes, &pointer));
  CHECK(pointer != NULL);
  return pointer;
}

static inline void *pageable_memory(size_t bytes) {
  void *pointer = malloc(bytes);
  CHECK(pointer != NULL);
  return pointer;
}

/* Bytes that depend on index and seed, without a period, so that a copy to the wrong offset is found. */
static inline unsigned char pattern_byte(size_t index, unsigned seed) {
  uint64_t mixed = (index + 1) * UINT64_C(0x9E3779B97F4A7C15) + seed * UINT64_C(0xD1B54A32D192ED03);
  return (unsigned char)(mixed >> 56);
}

static inline void pattern_fill(void *memory, size_t bytes, unsigned seed) {
  unsigned char *out = (unsigned char *)memory;
  size_t index;
  for (index = 0; index < bytes; index++) {
    out[index] = pattern_byte(index, seed);
  }
}

/* Returns the index of the first wrong byte, or `bytes` if there is none. */
static inline size_t pattern_mismatch(const void *memory, size_t bytes, unsigned seed) {
  const unsigned char *in = (const unsigned char *)memory;
  size_t index;
  for (index = 0; index < bytes && in[index] == pattern_byte(index, seed); index++) {
  }
  return index;
}

/* Waits for the default stream of the device that owns memory; of the current device, for host memory. */
static inline void wait_for_default_stream_of(const void *memory) {
  int32_t device = -1;
  CHECK_OK(plinth_device_of(memory, &device));
  CHECK_OK(plinth_stream_synchronize(PLINTH_STREAM_DEFAULT_OF(device)));
}

/* Copies bytes from any memory to host memory, and waits. */
static inline void fetch(void *host, const void *from, size_t bytes) {
  CHECK_OK(plinth_memcpy(host, from, bytes, NULL));
  wait_for_default_stream_of(from);
}

/* Copies bytes of host memory to any memory, and waits. */
static inline void put(void *to, const void *host, size_t bytes) {
  CHECK_OK(plinth_memcpy(to, host, bytes, NULL));
  wait_for_default_stream_of(to);
}

/* Runs a function in `count` threads, and joins them. Each gets a pointer to its index. */
static inline void run_threads(int count, void *(*function)(void *)) {
  pthread_t threads[64];
  static int numbers[64];
  int index;
  CHECK(count <= 64);
  for (index = 0; index < count; index++) {
    numbers[index] = index;
    CHECK(pthread_create(&threads[index], NULL, function, &numbers[index]) == 0);
  }
  for (index = 0; index < count; index++) {
    CHECK(pthread_join(threads[index], NULL) == 0);
  }
}

/* Returns how often a test repeats: `many` times, or a tenth of that with PLINTH_TEST_ROUNDS=few (the fast tier). */
static inline int some_rounds(int many) {
  const char *chosen = getenv("PLINTH_TEST_ROUNDS");
  if (chosen == NULL) {
    return many;
  }
  CHECK_TEXT(chosen, "few");
  return many < 10 ? 1 : many / 10;
}

/* A deterministic generator (splitmix64), so that every run of a test is the same. */
static inline uint64_t random_next(uint64_t *state) {
  uint64_t mixed = *state += UINT64_C(0x9E3779B97F4A7C15);
  mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
  return mixed ^ (mixed >> 31);
}

/* Returns how many pages of memory the process occupies. */
static inline long resident_pages(void) {
  long total = 0;
  long resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file != NULL);
  CHECK_EQ(fscanf(file, "%ld %ld", &total, &resident), 2);
  fclose(file);
  return resident;
}

static inline plinth_host_usage_t host_usage(void) {
  plinth_host_usage_t usage = PLINTH_HOST_USAGE_INIT;
  CHECK_OK(plinth_host_usage(&usage));
  return usage;
}

#endif
