/* The exit of a process: exit handlers, threads and pending work. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A forked child lacks its parent's threads, so their memory looks leaked to a sanitizer: disable leak detection. */
/* env: ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 */
/* alone: all; ends its process */
#include "process.h"

static plinth_stream_t stream;
static plinth_event_t event;
static void *memory;

static void use_the_device(void) {
  stream = stream_on(0);
  event = new_event(PLINTH_EVENT_INTERPROCESS);
  memory = device_memory(MIB, 0);
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_OK(plinth_memset(memory, 1, MIB, stream));
}

/* A call during exit may succeed or be refused with PLINTH_ERROR_SHUTTING_DOWN. */
static void expect_success_or_shutdown(plinth_status_t status) {
  if (status != PLINTH_OK) {
    CHECK_STATUS(status, PLINTH_ERROR_SHUTTING_DOWN);
  }
}

static void call_everything(void) {
  bool done = false;
  int32_t number = 0;
  void *pointer = NULL;
  plinth_stream_t new_stream = NULL;
  expect_success_or_shutdown(plinth_current_device(&number));
  expect_success_or_shutdown(plinth_set_device(0));
  expect_success_or_shutdown(plinth_stream_create(0, 0, &new_stream));
  expect_success_or_shutdown(plinth_stream_query(stream, &done));
  expect_success_or_shutdown(plinth_event_record(event, stream));
  expect_success_or_shutdown(plinth_event_query(event, &done));
  expect_success_or_shutdown(plinth_stream_synchronize(stream));
  expect_success_or_shutdown(plinth_memset(memory, 1, KIB, stream));
  expect_success_or_shutdown(plinth_device_malloc(KIB, 0, &pointer));
  expect_success_or_shutdown(plinth_device_free(memory));
  expect_success_or_shutdown(plinth_event_destroy(event));
  expect_success_or_shutdown(plinth_synchronize(0));
  (void)plinth_is_available();
  (void)plinth_is_initialized();
  (void)plinth_last_error();
}

/* Registered before the library's exit handler, so it runs after it: the library must not call the driver any more. */
static void expect_shutting_down(void) {
  bool done = true;
  void *pointer = UNTOUCHED_POINTER;
  CHECK(!plinth_is_initialized());
  CHECK(!plinth_is_available());
  CHECK_STATUS(plinth_init(), PLINTH_ERROR_SHUTTING_DOWN);
  CHECK_STATUS(plinth_stream_query(stream, &done), PLINTH_ERROR_SHUTTING_DOWN);
  CHECK_MESSAGE("exit");
  CHECK_STATUS(plinth_device_malloc(KIB, 0, &pointer), PLINTH_ERROR_SHUTTING_DOWN);
  CHECK_STATUS(plinth_event_record(event, stream), PLINTH_ERROR_SHUTTING_DOWN);
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  CHECK(done);
  CHECK_OK(plinth_event_destroy(event));
}

static void exit_with_an_early_handler(void) {
  CHECK(atexit(expect_shutting_down) == 0);
  use_the_device();
  exit(7);
}

TEST(calls_are_refused_in_an_exit_handler_registered_before_the_first_use) {
  expect_child(start_child(exit_with_an_early_handler), 7);
}

static void exit_with_a_late_handler(void) {
  use_the_device();
  CHECK(atexit(call_everything) == 0);
  exit(7);
}

TEST(an_exit_handler_registered_after_the_first_use_may_make_calls) {
  expect_child(start_child(exit_with_a_late_handler), 7);
}

/* Runs after all exit handlers, when the library's thread-local memory may be freed. */
static int destructor_calls;

__attribute__((destructor)) static void call_in_destructor(void) {
  if (destructor_calls) {
    call_everything();
  }
}

static void exit_with_a_destructor(void) {
  destructor_calls = 1;
  use_the_device();
  exit(7);
}

TEST(a_destructor_may_make_calls) { expect_child(start_child(exit_with_a_destructor), 7); }

static void use_the_device_in_handler(void) {
  use_the_device();
  call_everything();
}

static void use_the_device_first_at_exit(void) {
  CHECK(atexit(use_the_device_in_handler) == 0);
  exit(7);
}

TEST(the_first_use_may_be_at_exit) { expect_child(start_child(use_the_device_first_at_exit), 7); }

static void *call_forever(void *context) {
  (void)context;
  for (;;) {
    bool done = false;
    plinth_event_t own = NULL;
    expect_success_or_shutdown(plinth_event_create(0, &own));
    expect_success_or_shutdown(plinth_event_record(own, stream));
    expect_success_or_shutdown(plinth_event_query(own, &done));
    expect_success_or_shutdown(plinth_event_wait(own, stream));
    expect_success_or_shutdown(plinth_event_destroy(own));
    expect_success_or_shutdown(plinth_memset(memory, 1, KIB, stream));
  }
  return NULL;
}

static void exit_while_threads_call(void) {
  pthread_t thread;
  use_the_device();
  for (int index = 0; index < 8; index++) {
    CHECK(pthread_create(&thread, NULL, call_forever, NULL) == 0);
  }
  sleep_milliseconds(30);
  exit(7);
}

TEST(threads_may_make_calls_while_the_process_exits) {
  for (int round = 0; round < 5; round++) {
    expect_child(start_child(exit_while_threads_call), 7);
  }
}

/* A GPU's driver waits at exit for a running host function. A child queries the device, since the parent must not use it. */
static void exit_with_the_kind(void) { _exit(on_host_device() ? 0 : 1); }

static void need_host_device_in_child(void) {
  int status = 0;
  const pid_t child = start_child(exit_with_the_kind);
  CHECK_EQ(waitpid(child, &status, 0), child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    SKIP("is about the host device");
  }
}

static void *wait_for_stream(void *context) {
  (void)context;
  expect_success_or_shutdown(plinth_stream_synchronize(stream));
  return NULL;
}

static void exit_while_a_thread_waits(void) {
  pthread_t thread;
  use_the_device();
  (void)gate_shut(stream);
  CHECK(pthread_create(&thread, NULL, wait_for_stream, NULL) == 0);
  sleep_milliseconds(30);
  exit(7);
}

TEST(a_process_exits_while_a_thread_waits_for_a_stream) {
  need_host_device_in_child();
  expect_child(start_child(exit_while_a_thread_waits), 7);
}

static void exit_with_work(void) {
  use_the_device();
  for (int index = 0; index < 16; index++) {
    CHECK_OK(plinth_memset(memory, 1, MIB, stream_on(0)));
  }
  (void)gate_shut(stream);
  CHECK_OK(plinth_memset(memory, 1, MIB, stream));
  exit(7);
}

TEST(a_process_exits_with_blocked_work) {
  need_host_device_in_child();
  expect_child(start_child(exit_with_work), 7);
}

static void exit_without_a_device(void) {
  plinth_event_t early = new_event(0);
  (void)early;
  exit(7);
}

TEST(a_process_exits_without_having_used_a_device) { expect_child(start_child(exit_without_a_device), 7); }

static char trace_path[] = "/tmp/plinth-exit-XXXXXX";

static void exit_with_a_trace(void) {
  void *first = NULL;
  void *second = NULL;
  CHECK_OK(plinth_trace_start(trace_path));
  CHECK_OK(plinth_caching_allocator_alloc(KIB, 0, NULL, &first));
  CHECK_OK(plinth_caching_allocator_alloc(3 * KIB, 0, NULL, &second));
  CHECK_OK(plinth_caching_allocator_delete(first));
  exit(7);
}

TEST(a_trace_that_was_not_stopped_ends_with_the_process) {
  /* Little-endian: number, 0 for an allocation or 1 for a free, stream, bytes. */
  static const unsigned char expected[3][16] = {
      {0, 0, 0, 0, 0, 0, 0, 0, 0, 4}, {1, 0, 0, 0, 0, 0, 0, 0, 0, 12}, {0, 0, 0, 0, 1, 0, 0, 0, 0, 4}};
  unsigned char events[4][16];
  const int file = mkstemp(trace_path);
  CHECK(file >= 0);
  expect_child(start_child(exit_with_a_trace), 7);
  CHECK_EQ(read(file, events, sizeof events), sizeof expected);
  CHECK(memcmp(events, expected, sizeof expected) == 0);
  close(file);
  CHECK_EQ(unlink(trace_path), 0);
}

static pthread_key_t key;

/* The thread-local message may be freed by now, but the status is returned. */
static void call_at_thread_end(void *context) {
  (void)context;
  bool done = false;
  CHECK_OK(plinth_stream_query(stream, &done));
  CHECK_EQ(plinth_set_sync_debug_mode(99), PLINTH_ERROR_INVALID_VALUE);
  CHECK(plinth_last_error() != NULL);
}

static void *end_with_a_call(void *context) {
  pthread_setspecific(key, context);
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_STATUS(plinth_set_sync_debug_mode(98), PLINTH_ERROR_INVALID_VALUE);
  return NULL;
}

TEST(a_thread_may_make_calls_while_it_exits) {
  use_the_device();
  CHECK(pthread_key_create(&key, call_at_thread_end) == 0);
  run_threads(8, end_with_a_call);
  CHECK_OK(plinth_stream_synchronize(stream));
}
