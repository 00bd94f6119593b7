/* pthread_cancel of threads in calls: the call completes, and the thread ends at its own next cancellation point.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_COMMUNICATOR_ENGINE=shared */
/* alone: all; its threads are cancelled */
/* timeout: 240 */
#include "allocating.h"

#include <limits.h>
#include <sys/socket.h>

typedef struct work {
  /* Makes calls that must succeed, unless they time out. */
  void (*calls)(struct work *);
  plinth_stream_t stream;
  uint64_t begun;
  uint64_t ended;
} work;

static char folder[PATH_MAX - 64];
static plinth_stream_t shared_stream;

/* Makes one call of the thread. The harness reads no message here: its own calls are no part of the test. */
#define CALL(own, call, other)                          \
  do {                                                  \
    plinth_status_t made_;                              \
    (own)->begun++;                                     \
    made_ = (call);                                     \
    (own)->ended++;                                     \
    if (made_ != PLINTH_OK && made_ != (other)) {       \
      CHECK_STATUS(made_, PLINTH_OK);                   \
    }                                                   \
  } while (0)

static void *run_work(void *context) {
  work *own = (work *)context;
  while (true) {
    own->calls(own);
    pthread_testcancel();
  }
  return NULL;
}

static uint64_t state = 7;

static void sleep_at_random(long microseconds) {
  struct timespec length = {0, (long)(random_next(&state) % (uint64_t)(microseconds * 1000))};
  nanosleep(&length, NULL);
}

/* Cancels threads that make these calls, `rounds` times, `count` threads at once. `wake` ends the wait of a call. */
static void cancel(void (*calls)(work *), void (*wake)(void), int rounds, int count) {
  static work works[4];
  shared_stream = stream_on(0);
  for (int round = 0; round < rounds; round++) {
    pthread_t threads[4];
    for (int index = 0; index < count; index++) {
      const work begun = {calls, shared_stream, 0, 0};
      works[index] = begun;
      CHECK(pthread_create(&threads[index], NULL, run_work, &works[index]) == 0);
    }
    sleep_at_random(400);
    for (int index = 0; index < count; index++) {
      CHECK(pthread_cancel(threads[index]) == 0);
    }
    if (wake != NULL) {
      sleep_at_random(200);
      wake();
    }
    for (int index = 0; index < count; index++) {
      void *result = NULL;
      CHECK(pthread_join(threads[index], &result) == 0);
      CHECK(result == PTHREAD_CANCELED);
      CHECK_EQ(works[index].begun, works[index].ended);
      CHECK(works[index].begun > 0);
    }
  }
}

/* No lock stayed held: each of these calls takes some. */
static void expect_no_lock_held(void) {
  void *block = NULL;
  char *text = NULL;
  alarm(20);
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_caching_allocator_alloc(4 * MIB, 0, shared_stream, &block));
  CHECK_OK(plinth_caching_allocator_delete(block));
  CHECK_OK(plinth_host_alloc(4 * MIB, &block));
  CHECK_OK(plinth_host_free(block));
  CHECK_OK(plinth_empty_cache());
  CHECK_OK(plinth_host_empty_cache());
  CHECK_OK(plinth_memory_summary(0, false, &text));
  plinth_string_free(text);
  const plinth_event_t event = new_event(0);
  CHECK_OK(plinth_event_record(event, shared_stream));
  CHECK_OK(plinth_event_synchronize(event));
  CHECK_OK(plinth_event_destroy(event));
  expect_sound();
}

/* Requests that grow the cache, share it with other threads, and release it. */
static void allocate(work *own) {
  void *blocks[8];
  for (int index = 0; index < 8; index++) {
    CALL(own, plinth_caching_allocator_alloc(MIB << index % 4, 0, own->stream, &blocks[index]), PLINTH_OK);
  }
  for (int index = 0; index < 8; index++) {
    if (index % 2 == 0) {
      CALL(own, plinth_record_stream(blocks[index], PLINTH_STREAM_DEFAULT_OF(0)), PLINTH_OK);
    }
    CALL(own, plinth_caching_allocator_delete(blocks[index]), PLINTH_OK);
  }
  CALL(own, plinth_empty_cache(), PLINTH_OK);
}

TEST(allocations_complete) {
  cancel(allocate, NULL, some_rounds(2000), 3);
  expect_no_lock_held();
}

static void allocate_pinned(work *own) {
  void *block = NULL;
  CALL(own, plinth_host_alloc(2 * MIB, &block), PLINTH_OK);
  CALL(own, plinth_host_record_stream(block, own->stream), PLINTH_OK);
  CALL(own, plinth_host_free(block), PLINTH_OK);
  CALL(own, plinth_host_empty_cache(), PLINTH_OK);
}

TEST(allocations_of_pinned_memory_complete) {
  cancel(allocate_pinned, NULL, some_rounds(2000), 3);
  expect_no_lock_held();
}

static void use_events(work *own) {
  plinth_event_t event = NULL;
  CALL(own, plinth_event_create(PLINTH_EVENT_BLOCKING, &event), PLINTH_OK);
  CALL(own, plinth_event_record(event, own->stream), PLINTH_OK);
  CALL(own, plinth_event_synchronize(event), PLINTH_OK);
  CALL(own, plinth_stream_synchronize(own->stream), PLINTH_OK);
  CALL(own, plinth_event_destroy(event), PLINTH_OK);
}

TEST(events_complete) {
  cancel(use_events, NULL, some_rounds(2000), 3);
  expect_no_lock_held();
}

static gate *held;

static void open_the_gate(void) { gate_open(held); }

static void wait_for_stream(work *own) {
  CALL(own, plinth_stream_synchronize(own->stream), PLINTH_OK);
  CHECK(gate_is_open(held));
}

/* The wait ends when the work is done, not when the thread is cancelled. */
TEST(waits_for_the_device_complete) {
  for (int round = 0; round < some_rounds(500); round++) {
    pthread_t thread;
    void *result = NULL;
    static work own;
    own.stream = stream_on(0);
    own.calls = wait_for_stream;
    own.begun = own.ended = 0;
    held = gate_shut(own.stream);
    CHECK(pthread_create(&thread, NULL, run_work, &own) == 0);
    sleep_at_random(400);
    CHECK(pthread_cancel(thread) == 0);
    sleep_at_random(400);
    CHECK_EQ(own.ended, 0);
    open_the_gate();
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
    CHECK_EQ(own.begun, 1);
    CHECK_EQ(own.ended, 1);
  }
  shared_stream = stream_on(0);
  expect_no_lock_held();
}

static void make_folder(void) {
  const char *temporary = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/plinth-cancel-XXXXXX", temporary != NULL ? temporary : "/tmp");
  CHECK(mkdtemp(folder) != NULL);
}

static void remove_folder(void) {
  char command[PATH_MAX];
  snprintf(command, sizeof command, "rm -r '%s'", folder);
  CHECK(system(command) == 0);
}

static void write_files(work *own) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%p", folder, (void *)own);
  CALL(own, plinth_dump_snapshot(path), PLINTH_OK);
}

TEST(writes_of_files_complete) {
  make_folder();
  void *block = alloc_on(MIB, 0, NULL);
  cancel(write_files, NULL, some_rounds(1000), 2);
  release(block);
  expect_no_lock_held();
  remove_folder();
}

static void allocate_in_trace(work *own) {
  void *block = NULL;
  for (int index = 0; index < 1000; index++) {
    CALL(own, plinth_caching_allocator_alloc(KIB, 0, own->stream, &block), PLINTH_OK);
    CALL(own, plinth_caching_allocator_delete(block), PLINTH_OK);
  }
}

TEST(traces_of_allocations_complete) {
  char path[PATH_MAX];
  make_folder();
  snprintf(path, sizeof path, "%s/trace", folder);
  CHECK_OK(plinth_trace_start(path));
  cancel(allocate_in_trace, NULL, some_rounds(1000), 2);
  CHECK_OK(plinth_trace_stop());
  expect_no_lock_held();
  remove_folder();
}

static plinth_store_t store;
static int keys;

static void wait_for_store(work *own) {
  char name[32], value[8];
  size_t bytes = 0;
  snprintf(name, sizeof name, "present %d", __atomic_fetch_add(&keys, 1, __ATOMIC_RELAXED));
  CALL(own, plinth_store_set(store, name, "value", 5), PLINTH_OK);
  CALL(own, plinth_store_get(store, name, 1000, value, sizeof value, &bytes), PLINTH_OK);
  CALL(own, plinth_store_get(store, "absent", 2, value, sizeof value, &bytes), PLINTH_ERROR_TIMED_OUT);
}

TEST(waits_for_a_store_complete) {
  make_folder();
  CHECK_OK(plinth_store_create(folder, &store));
  cancel(wait_for_store, NULL, some_rounds(1000), 2);
  CHECK_OK(plinth_store_destroy(store));
  expect_no_lock_held();
  remove_folder();
}

static void wait_for_ranks(work *own) {
  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  plinth_communicator_t communicator = NULL;
  plinth_communicator_options_t options = PLINTH_COMMUNICATOR_OPTIONS_INIT;
  options.timeout_milliseconds = 5;
  CALL(own, plinth_nccl_unique_id(id), PLINTH_OK);
  CALL(own, plinth_communicator_init_rank(2, id, (int32_t)(own->ended / 2 % 2), 0, &options, &communicator),
       PLINTH_ERROR_TIMED_OUT);
}

TEST(waits_for_ranks_complete) {
  cancel(wait_for_ranks, NULL, some_rounds(300), 2);
  expect_no_lock_held();
}

static int sockets[2];

static void close_the_socket(void) { close(sockets[1]); }

static void receive(work *own) {
  plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
  CALL(own, plinth_ipc_receive(sockets[0], -1, &memory), PLINTH_ERROR_IPC_PEER_GONE);
}

TEST(waits_for_messages_complete) {
  for (int round = 0; round < some_rounds(1000); round++) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    cancel(receive, close_the_socket, 1, 1);
    close(sockets[0]);
  }
  expect_no_lock_held();
}

static void sample(work *own) {
  plinth_telemetry_sampler_t sampler = NULL;
  CALL(own, plinth_telemetry_sampler_create(0, 1, 16, &sampler), PLINTH_OK);
  CALL(own, plinth_telemetry_sampler_destroy(sampler), PLINTH_OK);
}

TEST(starts_and_ends_of_threads_complete) {
  cancel(sample, NULL, some_rounds(1000), 2);
  expect_no_lock_held();
}

static void *initialize(void *context) {
  (void)context;
  CHECK_OK(plinth_init());
  while (true) {
    pthread_testcancel();
  }
  return NULL;
}

/* The library reads its settings and loads the driver in the first call. */
TEST(the_initialization_completes) {
  pthread_t thread;
  void *result = NULL;
  CHECK(pthread_create(&thread, NULL, initialize, NULL) == 0);
  CHECK(pthread_cancel(thread) == 0);
  CHECK(pthread_join(thread, &result) == 0);
  CHECK(result == PTHREAD_CANCELED);
  CHECK_OK(plinth_init());
}

static void cancel_in_callback(void *context, bool disabled) {
  int previous = -1;
  CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &previous) == 0);
  CHECK_EQ(previous, disabled ? PTHREAD_CANCEL_DISABLE : PTHREAD_CANCEL_ENABLE);
  CHECK(pthread_setcancelstate(previous, NULL) == 0);
  (void)context;
}

static void on_annotation(int32_t device, uint64_t time_us, const char *name, bool begin, void *context) {
  (void)device;
  (void)time_us;
  (void)name;
  (void)begin;
  cancel_in_callback(context, true);
}

/* A callback cannot be cancelled, and the state of the thread is restored after the call. */
TEST(callbacks_run_with_cancellation_disabled) {
  CHECK_OK(plinth_memory_annotation_begin("part"));
  cancel_in_callback(NULL, false);
  CHECK_OK(plinth_memory_annotations_each(on_annotation, NULL));
  cancel_in_callback(NULL, false);
  CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
  CHECK_OK(plinth_synchronize(0));
  cancel_in_callback(NULL, true);
  CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
}
