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

static void expect_no_output(void) {
  int32_t number = UNTOUCHED;
  bool answer = true;
  size_t bytes = UNTOUCHED;
  char name[256] = "before";
  void *pointer = UNTOUCHED_POINTER;
  plinth_stream_t no_stream = (plinth_stream_t)UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_init(), PLINTH_ERROR_FORKED_CHILD);
  CHECK_MESSAGE("fork");
  CHECK_MESSAGE("exec");
  CHECK_STATUS(plinth_device_count(&number), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_mem_get_info(0, &bytes, &bytes), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_get_device_name(0, name, sizeof name), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_current_stream(0, &no_stream), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_stream_query(stream, &answer), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_stream_synchronize(stream), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_device_malloc(KIB, 0, &pointer), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_memcpy(memory, pinned, KIB, stream), PLINTH_ERROR_FORKED_CHILD);
  CHECK_MESSAGE("fork");
  CHECK_EQ(number, UNTOUCHED);
  CHECK(answer);
  CHECK_EQ(bytes, UNTOUCHED);
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  CHECK_SAME(no_stream, UNTOUCHED_POINTER);
  CHECK_TEXT(name, "before");
}

TEST(refused_calls_give_a_reason_and_write_no_output) {
  use_the_device();
  in_child(expect_no_output);
  expect_a_working_device();
}

static void destroy_events(void) {
  CHECK_OK(plinth_event_destroy(event));
  CHECK_OK(plinth_event_destroy(interprocess_event));
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

/* What torch.cuda answers before its initialization. */
static void ask_what_needs_no_initialization(void) {
  int32_t number = UNTOUCHED;
  int32_t previous = UNTOUCHED;
  size_t bytes = UNTOUCHED;
  bool capturing = true;
  char *text = NULL;
  plinth_memory_stats_t stats = {.struct_size = sizeof stats};
  CHECK(device_count() > 0);
  CHECK(plinth_is_available());
  CHECK_OK(plinth_get_device_kind(&number));
  CHECK_OK(plinth_driver_version(&number));
  CHECK_OK(plinth_get_arch_list(&text));
  plinth_string_free(text);
  CHECK_OK(plinth_memory_allocated(-1, &bytes));
  CHECK_EQ(bytes, 0);
  CHECK_OK(plinth_max_memory_reserved(device_count() - 1, &bytes));
  CHECK_EQ(bytes, 0);
  CHECK_STATUS(plinth_memory_reserved(device_count(), &bytes), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_OK(plinth_memory_stats(0, &stats));
  CHECK_OK(plinth_reset_peak_memory_stats(0));
  CHECK_OK(plinth_reset_accumulated_memory_stats(0));
  CHECK_OK(plinth_empty_cache());
  CHECK_OK(plinth_ipc_collect());
  CHECK_OK(plinth_is_current_stream_capturing(&capturing));
  CHECK(!capturing);
  CHECK_OK(plinth_exchange_device_of(NULL, &previous));
  CHECK_OK(plinth_manual_seed(7));
  CHECK(!plinth_is_initialized());
}

TEST(a_child_can_use_the_device_if_the_parent_only_asked_about_it) {
  ask_what_needs_no_initialization();
  in_child(expect_a_working_device);
  ask_what_needs_no_initialization();
  in_child(expect_a_working_device);
  /* Such a child initializes the driver for itself only, and its own children have no device. */
  expect_a_working_device();
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
  in_child(expect_no_output);
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

static plinth_green_context_t partition;

static void *set_and_pop(void *context) {
  const int *stopped = (const int *)context;
  while (!__atomic_load_n(stopped, __ATOMIC_SEQ_CST)) {
    CHECK_OK(plinth_green_context_set_context(partition));
    CHECK_OK(plinth_green_context_pop_context(partition));
  }
  return NULL;
}

/* The child ends its thread's use of the green context while its copy of the context may be locked. */
TEST(a_child_can_exit_with_a_green_context_that_other_threads_use) {
  pthread_t threads[3];
  int stopped = 0;
  if (plinth_green_context_create(8, 0, &partition) == PLINTH_ERROR_NOT_SUPPORTED) {
    SKIP("the driver has no green contexts");
  }
  CHECK_OK(plinth_green_context_set_context(partition));
  for (int index = 0; index < 3; index++) {
    CHECK(pthread_create(&threads[index], NULL, set_and_pop, &stopped) == 0);
  }
  for (int round = 0; round < 500; round++) {
    const pid_t child = fork();
    if (child == 0) {
      exit(0);
    }
    expect_child(child, 0);
  }
  __atomic_store_n(&stopped, 1, __ATOMIC_SEQ_CST);
  for (int index = 0; index < 3; index++) {
    CHECK(pthread_join(threads[index], NULL) == 0);
  }
  CHECK_OK(plinth_green_context_pop_context(partition));
  CHECK_OK(plinth_green_context_destroy(partition));
}
