/* Forked child processes. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A forked child lacks its parent's threads, so their memory looks leaked to a sanitizer: disable leak detection. */
/* env: ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 */
/* alone: all; forks */
#include "process.h"

static plinth_stream_t stream;
static plinth_event_t event;
static plinth_event_t interprocess_event;
static void *memory;
static void *pinned;

static void use_the_device(void) {
  stream = stream_on(0);
  event = new_event(PLINTH_EVENT_TIMING);
  interprocess_event = new_event(PLINTH_EVENT_INTERPROCESS);
  memory = device_memory(MIB, 0);
  pinned = pinned_memory(MIB);
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_OK(plinth_event_record(interprocess_event, stream));
  CHECK_OK(plinth_memset(memory, 1, MIB, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
}

/* The process can use the device. */
static void expect_a_working_device(void) {
  unsigned char host[KIB] = {0};
  void *own = device_memory(KIB, 0);
  plinth_stream_t own_stream = stream_on(0);
  CHECK_OK(plinth_memset(own, 5, KIB, own_stream));
  CHECK_OK(plinth_memcpy(host, own, KIB, own_stream));
  CHECK_OK(plinth_stream_synchronize(own_stream));
  CHECK_EQ(host[0], 5);
  CHECK_EQ(host[KIB - 1], 5);
  CHECK_OK(plinth_device_free(own));
}

static void expect_no_device(void) {
  CHECK(!plinth_is_initialized());
  CHECK(!plinth_is_available());
}

TEST(a_child_of_an_initialized_parent_has_no_device) {
  use_the_device();
  in_child(expect_no_device);
  CHECK(plinth_is_initialized());
  expect_a_working_device();
}

static void nothing(void *context) { (void)context; }

static void expect_every_call_refused(void) {
  int32_t number = UNTOUCHED;
  int32_t other = UNTOUCHED;
  bool answer = true;
  size_t bytes = UNTOUCHED;
  size_t total = UNTOUCHED;
  char name[256] = "before";
  char *text = NULL;
  void *pointer = UNTOUCHED_POINTER;
  float time = (float)UNTOUCHED;
  uint8_t ipc_handle[PLINTH_IPC_EVENT_HANDLE_SIZE] = {0};
  plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
  plinth_stream_context_t saved;
  plinth_stream_t no_stream = (plinth_stream_t)UNTOUCHED_POINTER;
  plinth_event_t no_event = (plinth_event_t)UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_init(), PLINTH_ERROR_FORKED_CHILD);
  CHECK_MESSAGE("fork");
  CHECK_MESSAGE("exec");
  CHECK_STATUS(plinth_device_count(&number), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_current_device(&number), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_set_device(0), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_exchange_device(0, &number), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_maybe_exchange_device(0, &number), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_device_of(memory, &number), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_exchange_device_of(memory, &number), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_get_device_kind(&number), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_driver_version(&number), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_get_device_name(0, name, sizeof name), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_get_device_capability(0, &number, &other), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_get_device_properties(0, &properties), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_can_device_access_peer(0, 0, &answer), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_enable_peer_access(0, 0), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_disable_peer_access(0, 0), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_synchronize(0), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_mem_get_info(0, &bytes, &total), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_get_arch_list(&text), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_get_gencode_flags(&text), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_stream_create(0, 0, &no_stream), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_stream_from_external(stream, 0, &no_stream), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_current_stream(0, &no_stream), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_default_stream(0, &no_stream), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_set_stream(stream), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_stream_context_enter(stream, &saved), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_stream_query(stream, &answer), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_stream_synchronize(stream), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_stream_wait_stream(stream, NULL), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_stream_priority_range(0, &number, &other), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_stream_priority(stream, &number), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_stream_device(stream, &number), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_stream_is_capturing(stream, &answer), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_is_current_stream_capturing(&answer), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_launch_host_function(stream, nothing, NULL), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_sleep(1, stream), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_event_record(event, stream), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_event_wait(event, stream), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_event_query(event, &answer), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_event_synchronize(event), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_event_elapsed_time(event, event, &time), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_event_ipc_handle(interprocess_event, ipc_handle), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_event_from_ipc_handle(0, ipc_handle, &no_event), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_device_malloc(KIB, 0, &pointer), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_pinned_malloc(KIB, &pointer), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_memcpy(memory, pinned, KIB, stream), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_copy(memory, pinned, KIB, false), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_memset(memory, 1, KIB, stream), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_driver_entry_point("cuInit", &pointer), PLINTH_ERROR_FORKED_CHILD);
  CHECK_MESSAGE("fork");
  CHECK_EQ(number, UNTOUCHED);
  CHECK_EQ(other, UNTOUCHED);
  CHECK(answer);
  CHECK_EQ(bytes, UNTOUCHED);
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  CHECK_SAME(no_stream, UNTOUCHED_POINTER);
  CHECK_SAME(no_event, UNTOUCHED_POINTER);
  CHECK_TEXT(name, "before");
}

TEST(every_call_is_refused_with_a_reason) {
  use_the_device();
  in_child(expect_every_call_refused);
  expect_a_working_device();
}

static void destroy_events(void) {
  plinth_event_t own = new_event(0);
  CHECK(event_done(own));
  CHECK_OK(plinth_event_destroy(own));
  CHECK_OK(plinth_event_destroy(event));
  CHECK_OK(plinth_event_destroy(interprocess_event));
  CHECK_STATUS(plinth_event_destroy(event), PLINTH_ERROR_INVALID_HANDLE);
}

TEST(a_child_can_destroy_its_copies_of_events) {
  use_the_device();
  in_child(destroy_events);
  /* The parent's events still work. */
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_OK(plinth_event_synchronize(event));
  CHECK_OK(plinth_event_destroy(event));
  CHECK_OK(plinth_event_destroy(interprocess_event));
}

static void exit_at_once(void) { exit(0); }

TEST(a_child_can_exit_normally) {
  use_the_device();
  in_child(exit_at_once);
  expect_a_working_device();
}

static void fork_again(void) {
  expect_no_device();
  in_child(expect_no_device);
}

TEST(a_grandchild_has_no_device) {
  use_the_device();
  in_child(fork_again);
}

TEST(a_child_has_no_device_if_the_parent_counted_devices) {
  CHECK(device_count() > 0);
  in_child(expect_no_device);
}

TEST(a_child_of_an_uninitialized_parent_can_use_the_device) {
  in_child(expect_a_working_device);
  CHECK(!plinth_is_initialized());
  in_child(expect_a_working_device);
  expect_a_working_device();
}

TEST(a_parent_may_fork_after_calls_that_do_not_initialize) {
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_WARN));
  plinth_event_t early = new_event(0);
  in_child(expect_a_working_device);
  CHECK_OK(plinth_event_destroy(early));
}

TEST(calls_of_a_child_are_refused_while_the_parents_streams_are_busy) {
  use_the_device();
  gate *held = gate_shut(stream);
  in_child(expect_every_call_refused);
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(stream));
}

static int forks_done;

static void *make_calls(void *context) {
  (void)context;
  plinth_stream_t own_stream = stream_on(0);
  plinth_event_t own = new_event(0);
  while (!__atomic_load_n(&forks_done, __ATOMIC_SEQ_CST)) {
    CHECK_OK(plinth_event_record(own, own_stream));
    CHECK_OK(plinth_event_synchronize(own));
    plinth_event_t next = new_event(0);
    CHECK_OK(plinth_event_destroy(own));
    own = next;
  }
  CHECK_OK(plinth_event_destroy(own));
  return NULL;
}

static void expect_errors_only(void) {
  expect_no_device();
  CHECK_STATUS(plinth_stream_synchronize(stream), PLINTH_ERROR_FORKED_CHILD);
}

TEST(fork_while_other_threads_make_calls) {
  pthread_t threads[4];
  use_the_device();
  for (int index = 0; index < 4; index++) {
    CHECK(pthread_create(&threads[index], NULL, make_calls, NULL) == 0);
  }
  for (int round = 0; round < 20; round++) {
    in_child(expect_errors_only);
  }
  __atomic_store_n(&forks_done, 1, __ATOMIC_SEQ_CST);
  for (int index = 0; index < 4; index++) {
    CHECK(pthread_join(threads[index], NULL) == 0);
  }
}
