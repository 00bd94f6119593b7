/* Sixteen threads that call streams, events and copies concurrently. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* timeout: 120 */
/* alone: concurrent_first_records_create_one_event; enables fault injection, which comes before everything else */
#include "driver.h"
#include "support.h"

enum { THREADS = 16, ROUNDS = 400, EVENTS = 8 };

static plinth_event_t shared_events[THREADS];
static unsigned char *device_memory_of[64];
static unsigned char *pinned_of[THREADS];
static int host_functions;

static void count_call(void *context) { __atomic_add_fetch((int *)context, 1, __ATOMIC_SEQ_CST); }

static void random_step(uint64_t *state, int thread, plinth_event_t *own, int *launched) {
  const int32_t device = (int32_t)(random_next(state) % (uint64_t)device_count());
  plinth_stream_t stream = stream_on(device);
  plinth_event_t *slot = &own[random_next(state) % EVENTS];
  plinth_event_t foreign = shared_events[random_next(state) % THREADS];
  plinth_stream_context_t saved;
  plinth_stream_t current = NULL;
  int32_t number = 0;
  float time = 0;
  unsigned char *memory = device_memory_of[device] + (size_t)thread * KIB;
  switch (random_next(state) % 12) {
    case 0:
      CHECK_OK(plinth_event_destroy(*slot));
      *slot = new_event((uint32_t)(random_next(state) % 4));
      break;
    case 1: {
      int32_t recorded_on = -1;
      CHECK_OK(plinth_event_device(*slot, &recorded_on));
      const plinth_status_t status = plinth_event_record(*slot, stream);
      CHECK_STATUS(status, recorded_on == -1 || recorded_on == device ? PLINTH_OK : PLINTH_ERROR_DEVICE_MISMATCH);
      break;
    }
    case 2:
      CHECK_OK(plinth_event_wait(*slot, stream));
      break;
    case 3:
      (void)event_done(*slot);
      (void)event_done(foreign);
      break;
    case 4:
      CHECK_OK(plinth_event_synchronize(*slot));
      CHECK(event_done(*slot));
      break;
    case 5:
      CHECK_OK(plinth_event_record(foreign, stream_on(0)));
      CHECK_OK(plinth_event_wait(foreign, stream));
      break;
    case 6:
      CHECK_OK(plinth_stream_context_enter(stream, &saved));
      CHECK_OK(plinth_current_stream(-1, &current));
      CHECK_SAME(current, stream);
      CHECK_OK(plinth_current_device(&number));
      CHECK_EQ(number, device);
      CHECK_OK(plinth_stream_context_exit(&saved));
      break;
    case 7:
      CHECK_OK(plinth_set_device(device));
      CHECK_OK(plinth_set_stream(stream));
      break;
    case 8:
      CHECK_OK(plinth_stream_wait_stream(stream, stream_on((device + 1) % device_count())));
      break;
    case 9:
      CHECK_OK(plinth_memset(memory, (uint8_t)thread, KIB, stream));
      CHECK_OK(plinth_memcpy(pinned_of[thread], memory, KIB, stream));
      break;
    case 10:
      CHECK_OK(plinth_launch_host_function(stream, count_call, &host_functions));
      (*launched)++;
      break;
    default: {
      const plinth_status_t status = plinth_event_elapsed_time(own[0], own[1], &time);
      CHECK(status == PLINTH_OK || status == PLINTH_ERROR_EVENT_TIMING_DISABLED ||
            status == PLINTH_ERROR_EVENT_NOT_RECORDED || status == PLINTH_ERROR_EVENT_NOT_COMPLETE ||
            status == PLINTH_ERROR_DEVICE_MISMATCH);
    }
  }
}

static int launched_in_all;

static void *stress(void *context) {
  const int thread = *(int *)context;
  uint64_t state = (uint64_t)thread + 100;
  plinth_event_t own[EVENTS];
  int launched = 0;
  for (int index = 0; index < EVENTS; index++) {
    own[index] = new_event(PLINTH_EVENT_TIMING);
  }
  for (int round = 0; round < ROUNDS; round++) {
    random_step(&state, thread, own, &launched);
  }
  for (int index = 0; index < EVENTS; index++) {
    CHECK_OK(plinth_event_destroy(own[index]));
  }
  __atomic_add_fetch(&launched_in_all, launched, __ATOMIC_SEQ_CST);
  return NULL;
}

static void expect_all_idle(void) {
  for (int32_t device = 0; device < device_count(); device++) {
    CHECK_OK(plinth_synchronize(device));
    for (int index = 0; index < 32; index++) {
      CHECK(stream_done(stream_on(device)));
    }
  }
  CHECK_EQ(host_functions, launched_in_all);
}

TEST(sixteen_threads_call_at_random) {
  uint64_t events[4];
  CHECK_OK(plinth_init());
  for (int32_t device = 0; device < device_count(); device++) {
    device_memory_of[device] = (unsigned char *)device_memory(THREADS * KIB, device);
    /* Create all streams of the pools, so that a later increase of the count is a leak. */
    for (int index = 0; index < 32; index++) {
      (void)stream_on(device);
    }
  }
  for (int thread = 0; thread < THREADS; thread++) {
    shared_events[thread] = new_event(0);
    pinned_of[thread] = (unsigned char *)pinned_memory(KIB);
    CHECK_OK(plinth_event_record(shared_events[thread], NULL));
  }
  plinth_host_usage_t usage[4];
  for (int repeat = 0; repeat < 4; repeat++) {
    run_threads(THREADS, stress);
    expect_all_idle();
    if (on_host_device()) {
      usage[repeat] = host_usage();
      CHECK_EQ(usage[repeat].streams, usage[0].streams);
      CHECK_EQ(usage[repeat].device_bytes, usage[0].device_bytes);
      CHECK_EQ(usage[repeat].pinned_bytes, usage[0].pinned_bytes);
      CHECK_EQ(usage[repeat].graphs + usage[repeat].executable_graphs, 0);
      /* The pool keeps as many driver events as were ever in use at once: 128 of the threads on each device and of each
         of four kinds, the shared ones, and those of calls that order two streams. */
      events[repeat] = usage[repeat].events;
      CHECK(events[repeat] <= (uint64_t)device_count() * 4 * THREADS * EVENTS + 8 * THREADS);
    }
  }
  for (int thread = 0; thread < THREADS; thread++) {
    CHECK_OK(plinth_event_destroy(shared_events[thread]));
    CHECK_OK(plinth_pinned_free(pinned_of[thread]));
  }
  for (int32_t device = 0; device < device_count(); device++) {
    CHECK_OK(plinth_device_free(device_memory_of[device]));
  }
}

enum { MESSAGES = 200 };

static unsigned char *host_blocks;

/* Each thread copies blocks to a device and back through its own streams, and checks each. */
static void *copy_blocks(void *context) {
  const int thread = *(int *)context;
  const int32_t device = thread % device_count();
  plinth_stream_t out = stream_on(device);
  plinth_stream_t back = stream_on(device);
  plinth_event_t sent = new_event(0);
  unsigned char *host = host_blocks + (size_t)thread * 2 * KIB;
  unsigned char *memory = (unsigned char *)device_memory(KIB, device);
  for (int message = 0; message < MESSAGES; message++) {
    pattern_fill(host, KIB, (unsigned)(thread * 1000 + message));
    CHECK_OK(plinth_memcpy(memory, host, KIB, out));
    CHECK_OK(plinth_event_record(sent, out));
    CHECK_OK(plinth_event_wait(sent, back));
    CHECK_OK(plinth_memcpy(host + KIB, memory, KIB, back));
    CHECK_OK(plinth_stream_synchronize(back));
    CHECK_EQ(pattern_mismatch(host + KIB, KIB, (unsigned)(thread * 1000 + message)), KIB);
  }
  CHECK_OK(plinth_event_destroy(sent));
  CHECK_OK(plinth_device_free(memory));
  return NULL;
}

TEST(sixteen_threads_copy_correctly) {
  host_blocks = (unsigned char *)pinned_memory(THREADS * 2 * KIB);
  run_threads(THREADS, copy_blocks);
  CHECK_OK(plinth_pinned_free(host_blocks));
}

static plinth_event_t shared_event;
static int destroyed;

static void *destroy_contested(void *context) {
  (void)context;
  const plinth_status_t status = plinth_event_destroy(__atomic_load_n(&shared_event, __ATOMIC_SEQ_CST));
  if (status == PLINTH_OK) {
    __atomic_add_fetch(&destroyed, 1, __ATOMIC_SEQ_CST);
  } else {
    CHECK_STATUS(status, PLINTH_ERROR_INVALID_HANDLE);
  }
  return NULL;
}

TEST(an_event_is_destroyed_by_one_of_many_threads) {
  for (int round = 1; round <= 50; round++) {
    shared_event = new_event(0);
    CHECK_OK(plinth_event_record(shared_event, NULL));
    run_threads(8, destroy_contested);
    CHECK_EQ(destroyed, round);
  }
}

static void *record_first(void *context) {
  (void)context;
  CHECK_OK(plinth_event_record(shared_event, stream_on(0)));
  return NULL;
}

TEST(concurrent_first_records_create_one_event) {
  uint64_t created = 0;
  CHECK_OK(plinth_enable_fault_injection());
  for (int round = 0; round < 50; round++) {
    shared_event = new_event(0);
    run_threads(8, record_first);
    CHECK_OK(plinth_event_synchronize(shared_event));
    CHECK_OK(plinth_event_destroy(shared_event));
  }
  CHECK_OK(plinth_driver_call_count("cuEventCreate", &created));
  CHECK_EQ(created, 1);
}
