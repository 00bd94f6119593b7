/* Green contexts: partitions of a device's multiprocessors, and their streams.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: an_old_driver_is_reported; enables fault injection, which comes before everything else */
#include "driver.h"
#include "graphing.h"
#include "partitioning.h"

#include <sched.h>

enum { BYTES = 256 * 1024, STREAMS = 32 };

TEST(a_green_context_has_at_least_the_requested_sms) {
  const int32_t all = multiprocessors(0);
  int32_t device = UNTOUCHED;
  for (int32_t requested = 1; requested <= all; requested = requested * 3 + 1) {
    plinth_green_context_t partition = new_green_context(requested, 0);
    CHECK(sm_count(partition) >= requested && sm_count(partition) <= all);
    CHECK_OK(plinth_green_context_destroy(partition));
  }
  plinth_green_context_t whole = new_green_context(all, -1);
  CHECK_EQ(sm_count(whole), all);
  plinth_green_context_t nearly_whole = new_green_context(all - 1, 0);
  CHECK_EQ(sm_count(nearly_whole), all);
  CHECK_OK(plinth_green_context_device(whole, &device));
  CHECK_EQ(device, 0);
  CHECK_OK(plinth_green_context_destroy(whole));
  CHECK_OK(plinth_green_context_destroy(nearly_whole));
  if (on_host_device()) {
    CHECK_EQ(sm_count(new_green_context(1, 0)), 8);
    CHECK_EQ(sm_count(new_green_context(17, 0)), 24);
  }
}

TEST(impossible_sizes_are_refused) {
  plinth_green_context_t partition = (plinth_green_context_t)UNTOUCHED_POINTER;
  CHECK_OK(plinth_green_context_destroy(new_green_context(8, 0)));
  const int32_t wrong[] = {0, -1, INT32_MIN, multiprocessors(0) + 1, INT32_MAX};
  for (size_t index = 0; index < sizeof wrong / sizeof wrong[0]; index++) {
    CHECK_STATUS(plinth_green_context_create(wrong[index], 0, &partition), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("invalid number of SMs requested for green context");
  }
  CHECK_STATUS(plinth_green_context_create(8, device_count(), &partition), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_green_context_create(8, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK(partition == UNTOUCHED_POINTER);
}

TEST(streams_are_assigned_round_robin) {
  plinth_green_context_t partition = new_green_context(8, 0);
  plinth_stream_t streams[STREAMS];
  for (int index = 0; index < STREAMS; index++) {
    int32_t device = UNTOUCHED;
    streams[index] = stream_of(partition);
    for (int other = 0; other < index; other++) {
      CHECK(streams[other] != streams[index]);
    }
    CHECK_OK(plinth_stream_device(streams[index], &device));
    CHECK_EQ(device, 0);
  }
  for (int index = 0; index < STREAMS; index++) {
    CHECK_SAME(stream_of(partition), streams[index]);
  }
}

/* Checks copies, fills, kernels, events and allocations in a stream. */
static void expect_working_stream(plinth_stream_t stream) {
  static int64_t shape[] = {BYTES / 4};
  const DLDataType type = {2, 32, 1};
  float *numbers = (float *)pinned_memory(BYTES);
  float *expected = (float *)pinned_memory(BYTES);
  int32_t device = UNTOUCHED;
  bool done = false;
  CHECK_OK(plinth_stream_device(stream, &device));
  unsigned char *memory = alloc_on(BYTES, device, stream);
  plinth_event_t event = new_event(PLINTH_EVENT_TIMING);
  fill_words(memory, 77, BYTES, stream);
  CHECK(has_words(memory, 77, BYTES, stream, numbers));
  DLTensor tensor = {memory, {2, device}, 1, type, shape, NULL, 0};
  for (int round = 0; round < 2; round++) {
    plinth_stream_t current = round == 0 ? stream_on(device) : stream;
    CHECK_OK(plinth_set_stream(current));
    CHECK_OK(plinth_manual_seed(5));
    CHECK_OK(plinth_uniform(&tensor, 0, 1, NULL, current));
    CHECK_OK(plinth_memcpy(round == 0 ? expected : numbers, memory, BYTES, current));
    CHECK_OK(plinth_event_record(event, current));
    CHECK_OK(plinth_event_synchronize(event));
  }
  CHECK_EQ(memcmp(numbers, expected, BYTES), 0);
  CHECK_OK(plinth_stream_query(stream, &done));
  CHECK(done);
  plinth_stream_t other = stream_on(device);
  CHECK_OK(plinth_record_stream(memory, other));
  CHECK_OK(plinth_stream_wait_stream(other, stream));
  CHECK_OK(plinth_stream_wait_stream(stream, other));
  CHECK_OK(plinth_stream_wait_event(stream, event));
  release(memory);
  finish(other);
  finish(stream);
  CHECK_OK(plinth_event_destroy(event));
  CHECK_OK(plinth_pinned_free(numbers));
  CHECK_OK(plinth_pinned_free(expected));
  CHECK_OK(plinth_set_stream(NULL));
}

TEST(the_streams_run_work) {
  plinth_green_context_t partition = new_green_context(16, 0);
  expect_working_stream(stream_of(partition));
  expect_working_stream(stream_of(partition));
  CHECK_OK(plinth_green_context_set_context(partition));
  expect_working_stream(current_on(0));
  CHECK_OK(plinth_green_context_pop_context(partition));
  CHECK_OK(plinth_green_context_destroy(partition));
  expect_nothing_left();
}

TEST(a_green_context_of_another_device_uses_that_device) {
  need_devices(2);
  plinth_green_context_t partition = new_green_context(16, 1);
  int32_t device = UNTOUCHED;
  CHECK_OK(plinth_green_context_device(partition, &device));
  CHECK_EQ(device, 1);
  plinth_stream_t stream_of_1 = stream_on(1);
  plinth_stream_t stream_of_0 = stream_on(0);
  CHECK_OK(plinth_set_stream(stream_of_1));
  CHECK_OK(plinth_set_stream(stream_of_0));
  CHECK_OK(plinth_green_context_set_context(partition));
  CHECK_EQ(current_device(), 1);
  CHECK(current_on(1) != stream_of_1);
  CHECK_SAME(current_on(0), stream_of_0);
  expect_working_stream(current_on(1));
  CHECK_OK(plinth_green_context_pop_context(partition));
  CHECK_EQ(current_device(), 0);
  CHECK_SAME(current_on(1), stream_of_1);
  CHECK_SAME(current_on(0), stream_of_0);
}

TEST(pushing_and_popping_orders_the_streams) {
  plinth_green_context_t partition = new_green_context(8, 0);
  void *memory = device_memory(BYTES, 0);
  plinth_stream_t parent = on_new_stream(0);
  gate *shut = gate_shut(parent);
  CHECK_OK(plinth_green_context_set_context(partition));
  plinth_stream_t green = current_on(0);
  CHECK(green != parent && green != NULL);
  CHECK_OK(plinth_memset(memory, 1, BYTES, green));
  CHECK(stays_undone(green));
  gate_open(shut);
  finish(green);
  shut = gate_shut(green);
  CHECK_OK(plinth_green_context_pop_context(partition));
  CHECK_SAME(current_on(0), parent);
  CHECK_OK(plinth_memset(memory, 2, BYTES, parent));
  CHECK(stays_undone(parent));
  gate_open(shut);
  finish(parent);
  CHECK_OK(plinth_device_free(memory));
}

/* The stream that is current when the context is popped need not be the one that pushing it made current. */
TEST(popping_waits_for_the_current_stream) {
  plinth_green_context_t partition = new_green_context(8, 0);
  plinth_stream_t parent = on_new_stream(0);
  CHECK_OK(plinth_green_context_set_context(partition));
  plinth_stream_t second = stream_of(partition);
  CHECK_OK(plinth_set_stream(second));
  gate *shut = gate_shut(second);
  CHECK_OK(plinth_green_context_pop_context(partition));
  CHECK_SAME(current_on(0), parent);
  CHECK(stays_undone(parent));
  gate_open(shut);
  finish(parent);
}

TEST(green_contexts_nest) {
  plinth_green_context_t outer = new_green_context(8, 0);
  plinth_green_context_t inner = new_green_context(16, 0);
  plinth_stream_t before = on_new_stream(0);
  CHECK_OK(plinth_green_context_set_context(outer));
  plinth_stream_t on_outer = current_on(0);
  CHECK_OK(plinth_green_context_set_context(inner));
  plinth_stream_t on_inner = current_on(0);
  CHECK(on_inner != on_outer);
  CHECK_OK(plinth_green_context_set_context(inner));
  CHECK_SAME(current_on(0), on_inner);
  CHECK_STATUS(plinth_green_context_pop_context(outer), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("not the one that this thread has set last");
  CHECK_SAME(current_on(0), on_inner);
  CHECK_OK(plinth_green_context_pop_context(inner));
  CHECK_SAME(current_on(0), on_inner);
  CHECK_OK(plinth_green_context_pop_context(inner));
  CHECK_SAME(current_on(0), on_outer);
  CHECK_STATUS(plinth_green_context_destroy(outer), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("set in a thread");
  CHECK_OK(plinth_green_context_destroy(inner));
  CHECK_OK(plinth_green_context_pop_context(outer));
  CHECK_SAME(current_on(0), before);
  CHECK_STATUS(plinth_green_context_pop_context(outer), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_green_context_destroy(outer));
}

TEST(a_stream_may_be_destroyed_while_a_context_replaces_it) {
  plinth_green_context_t partition = new_green_context(8, 0);
  plinth_stream_t owned = NULL;
  for (int round = 0; round < 2; round++) {
    CHECK_OK(plinth_stream_create_dedicated(0, 0, &owned));
    CHECK_OK(plinth_set_stream(owned));
    CHECK_OK(plinth_green_context_set_context(partition));
    plinth_stream_t green = current_on(0);
    CHECK_OK(plinth_stream_destroy(owned));
    if (round == 1) {
      /* A driver may give it the same handle. */
      CHECK_OK(plinth_stream_create_dedicated(0, 0, &owned));
    }
    CHECK_SAME(current_on(0), green);
    CHECK_OK(plinth_green_context_pop_context(partition));
    CHECK_SAME(current_on(0), NULL);
    CHECK_OK(plinth_synchronize(0));
  }
  CHECK_OK(plinth_stream_destroy(owned));
  CHECK_OK(plinth_green_context_destroy(partition));
}

TEST(the_streams_of_a_context_stay_the_librarys) {
  plinth_green_context_t partition = new_green_context(8, 0);
  plinth_stream_t same = NULL;
  CHECK_OK(plinth_green_context_set_context(partition));
  plinth_stream_t green[2] = {current_on(0), stream_of(partition)};
  CHECK_OK(plinth_green_context_pop_context(partition));
  for (int index = 0; index < 2; index++) {
    CHECK_OK(plinth_stream_from_external(green[index], 0, &same));
    CHECK_SAME(same, green[index]);
    CHECK_STATUS(plinth_stream_unregister(green[index]), PLINTH_ERROR_INVALID_HANDLE);
    CHECK_MESSAGE("the library owns the streams of green contexts");
    CHECK_STATUS(plinth_stream_destroy(green[index]), PLINTH_ERROR_INVALID_HANDLE);
  }
  CHECK_OK(plinth_green_context_set_context(partition));
  CHECK_OK(plinth_green_context_pop_context(partition));
  CHECK_OK(plinth_green_context_destroy(partition));
}

static plinth_green_context_t shared;

static void *push_and_exit(void *context) {
  (void)context;
  CHECK_STATUS(plinth_green_context_pop_context(shared), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_green_context_set_context(shared));
  return NULL;
}

TEST(pushed_contexts_are_per_thread) {
  shared = new_green_context(8, 0);
  plinth_stream_t before = current_on(0);
  CHECK_OK(plinth_green_context_set_context(shared));
  run_threads(4, push_and_exit);
  CHECK_OK(plinth_green_context_pop_context(shared));
  CHECK_SAME(current_on(0), before);
  CHECK_OK(plinth_green_context_destroy(shared));
}

TEST(a_later_context_reuses_the_streams_of_a_destroyed_one) {
  plinth_green_context_t partition = new_green_context(8, 0);
  void *memory = device_memory(BYTES, 0);
  void *pinned = pinned_memory(BYTES);
  plinth_stream_t streams[STREAMS];
  for (int index = 0; index < STREAMS; index++) {
    streams[index] = stream_of(partition);
  }
  gate *shut = gate_shut(streams[3]);
  fill_words(memory, 9, BYTES, streams[3]);
  CHECK_OK(plinth_green_context_destroy(partition));
  CHECK_STATUS(plinth_green_context_destroy(partition), PLINTH_ERROR_INVALID_HANDLE);
  gate_open(shut);
  CHECK(has_words(memory, 9, BYTES, streams[3], pinned));
  plinth_green_context_t other = new_green_context(16, 0);
  plinth_green_context_t again = new_green_context(8, 0);
  CHECK(again != partition);
  const plinth_stream_t first = stream_of(again);
  bool is_reused = false;
  for (int index = 0; index < STREAMS; index++) {
    is_reused = is_reused || streams[index] == first;
    CHECK(stream_of(other) != streams[index]);
  }
  CHECK(is_reused);
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_pinned_free(pinned));
}

TEST(a_capture_continues_in_the_green_context) {
  plinth_green_context_t partition = new_green_context(8, 0);
  void *memory = device_memory(BYTES, 0);
  void *pinned = pinned_memory(BYTES);
  plinth_stream_t parent = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_memset(memory, 0, BYTES, parent));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  CHECK_OK(plinth_green_context_set_context(partition));
  CHECK(capturing_here());
  unsigned char *between = alloc_on(BYTES, 0, current_on(0));
  fill_words(between, 3, BYTES, current_on(0));
  CHECK_OK(plinth_memcpy(memory, between, BYTES, current_on(0)));
  release(between);
  CHECK_OK(plinth_green_context_pop_context(partition));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK(has_words(memory, 0, BYTES, parent, pinned));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK(has_words(memory, 3, BYTES, parent, pinned));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

TEST(a_stream_of_a_green_context_captures_and_replays) {
  plinth_green_context_t partition = new_green_context(8, 0);
  void *memory = device_memory(BYTES, 0);
  void *pinned = pinned_memory(BYTES);
  plinth_stream_t green = stream_of(partition);
  CHECK_OK(plinth_set_stream(green));
  CHECK_OK(plinth_memset(memory, 0, BYTES, green));
  plinth_graph_t graph = graph_of_fill(memory, 4, BYTES, green, 0);
  CHECK(has_words(memory, 0, BYTES, green, pinned));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK(has_words(memory, 4, BYTES, green, pinned));
  CHECK_OK(plinth_memset(memory, 0, BYTES, green));
  finish(green);
  CHECK_OK(plinth_set_stream(stream_on(0)));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK(has_words(memory, 4, BYTES, current_on(0), pinned));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_pinned_free(pinned));
}

TEST(a_green_context_is_created_during_a_capture) {
  CHECK_OK(plinth_green_context_destroy(new_green_context(8, 0)));
  void *memory = device_memory(BYTES, 0);
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  plinth_green_context_t partition = new_green_context(32, 0);
  CHECK(stream_of(partition) != NULL);
  fill_words(memory, 1, BYTES, stream);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
}

static void *create_use_and_destroy(void *context) {
  const int number = *(int *)context;
  void *pinned = pinned_memory(BYTES);
  for (int round = 0; round < 20; round++) {
    plinth_green_context_t partition = new_green_context(8 * (1 + (number + round) % 4), 0);
    CHECK_OK(plinth_green_context_set_context(partition));
    unsigned char *memory = alloc_on(BYTES, 0, current_on(0));
    fill_words(memory, (uint32_t)(number * 100 + round), BYTES, current_on(0));
    CHECK(has_words(memory, (uint32_t)(number * 100 + round), BYTES, current_on(0), pinned));
    release(memory);
    CHECK_OK(plinth_green_context_pop_context(partition));
    CHECK_OK(plinth_green_context_destroy(partition));
  }
  CHECK_OK(plinth_pinned_free(pinned));
  return NULL;
}

TEST(threads_create_and_destroy_green_contexts) {
  CHECK_OK(plinth_green_context_destroy(new_green_context(8, 0)));
  run_threads(8, create_use_and_destroy);
  expect_nothing_left();
}

/* The green context of this round, the round, the last round in which it was destroyed or not, and the status of that. */
static plinth_green_context_t contested;
static int contested_round, finished_round;
static plinth_status_t contested_status;

enum { CONTESTED_ROUNDS = 20000 };

static void *destroy_contested(void *context) {
  for (int round = 1; round <= CONTESTED_ROUNDS; round++) {
    while (__atomic_load_n(&contested_round, __ATOMIC_ACQUIRE) != round) {
      sched_yield();
    }
    for (volatile int delay = 0; delay < round * 37 % 3000; delay++) {
    }
    contested_status = plinth_green_context_destroy(contested);
    __atomic_store_n(&finished_round, round, __ATOMIC_RELEASE);
  }
  return context;
}

/* Either a thread sets the green context, or another one destroys it. */
TEST(a_green_context_that_is_set_is_not_destroyed) {
  pthread_t thread;
  contested = new_green_context(8, 0);
  CHECK_OK(plinth_green_context_destroy(contested));
  CHECK_EQ(pthread_create(&thread, NULL, destroy_contested, NULL), 0);
  for (int round = 1; round <= CONTESTED_ROUNDS; round++) {
    contested = new_green_context(8, 0);
    __atomic_store_n(&contested_round, round, __ATOMIC_RELEASE);
    for (volatile int delay = 0; delay < round * 101 % 2000; delay++) {
    }
    const plinth_status_t status = plinth_green_context_set_context(contested);
    while (__atomic_load_n(&finished_round, __ATOMIC_ACQUIRE) != round) {
      sched_yield();
    }
    CHECK_STATUS(status, contested_status == PLINTH_OK ? PLINTH_ERROR_INVALID_HANDLE : PLINTH_OK);
    if (contested_status != PLINTH_OK) {
      CHECK_EQ(contested_status, PLINTH_ERROR_INVALID_VALUE);
      CHECK_OK(plinth_green_context_pop_context(contested));
      CHECK_OK(plinth_green_context_destroy(contested));
    }
  }
  CHECK_EQ(pthread_join(thread, NULL), 0);
}

TEST(the_native_handles_are_returned) {
  plinth_green_context_t partition = new_green_context(8, 0);
  void *native = UNTOUCHED_POINTER;
  void *context = UNTOUCHED_POINTER;
  CHECK_OK(plinth_green_context_native(partition, &native, &context));
  CHECK(native != NULL && native != UNTOUCHED_POINTER);
  CHECK(context != NULL && context != UNTOUCHED_POINTER);
  void *other = NULL;
  CHECK_OK(plinth_green_context_native(partition, NULL, &other));
  CHECK_SAME(other, context);
  CHECK_OK(plinth_green_context_native(partition, NULL, NULL));
}

/* A program may use the driver's context of a green context, and create streams in it. */
TEST(an_external_stream_of_a_green_context_is_accepted) {
  plinth_green_context_t partition = new_green_context(16, 0);
  void *context = NULL, *before = NULL;
  plinth_stream_t made = NULL, is_reused = NULL;
  DRIVER(driver_context_get, get, "cuCtxGetCurrent");
  DRIVER(driver_context_set, set, "cuCtxSetCurrent");
  DRIVER(driver_stream_create, create, "cuStreamCreateWithPriority");
  DRIVER(driver_stream_destroy, destroy, "cuStreamDestroy");
  CHECK_OK(plinth_set_device(0));
  CHECK_OK(plinth_green_context_native(partition, NULL, &context));
  CHECK_EQ(get(&before), CUDA_SUCCESS);
  CHECK_EQ(set(context), CUDA_SUCCESS);
  CHECK_EQ(create(&made, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  /* plinth's calls switch to the device's primary context and back. */
  CHECK_OK(plinth_stream_from_external(made, 0, &is_reused));
  expect_working_stream(made);
  void *now = NULL;
  CHECK_EQ(set(context), CUDA_SUCCESS);
  CHECK_OK(plinth_synchronize(0));
  CHECK_EQ(get(&now), CUDA_SUCCESS);
  CHECK_SAME(now, context);
  CHECK_EQ(set(before), CUDA_SUCCESS);
  CHECK_OK(plinth_stream_from_external(made, 0, &is_reused));
  expect_working_stream(made);
  if (device_count() > 1) {
    CHECK_STATUS(plinth_stream_from_external(made, 1, &is_reused), PLINTH_ERROR_DEVICE_MISMATCH);
  }
  CHECK_OK(plinth_empty_cache());
  CHECK_EQ(destroy(made), CUDA_SUCCESS);
}

TEST(invalid_handles_are_refused) {
  plinth_green_context_t partition = new_green_context(8, 0);
  plinth_event_t event = new_event(0);
  int32_t number = UNTOUCHED;
  plinth_stream_t stream = (plinth_stream_t)UNTOUCHED_POINTER;
  plinth_green_context_t wrong[] = {(plinth_green_context_t)event, (plinth_green_context_t)&number, partition};
  CHECK_OK(plinth_green_context_destroy(NULL));
  CHECK_OK(plinth_green_context_destroy(partition));
  for (int index = 0; index < 3; index++) {
    CHECK_STATUS(plinth_green_context_destroy(wrong[index]), PLINTH_ERROR_INVALID_HANDLE);
    CHECK_MESSAGE("green context");
    CHECK_STATUS(plinth_green_context_set_context(wrong[index]), PLINTH_ERROR_INVALID_HANDLE);
    CHECK_STATUS(plinth_green_context_pop_context(wrong[index]), PLINTH_ERROR_INVALID_HANDLE);
    CHECK_STATUS(plinth_green_context_stream(wrong[index], &stream), PLINTH_ERROR_INVALID_HANDLE);
    CHECK_STATUS(plinth_green_context_num_sms(wrong[index], &number), PLINTH_ERROR_INVALID_HANDLE);
    CHECK_STATUS(plinth_green_context_device(wrong[index], &number), PLINTH_ERROR_INVALID_HANDLE);
    CHECK_STATUS(plinth_green_context_native(wrong[index], NULL, NULL), PLINTH_ERROR_INVALID_HANDLE);
  }
  CHECK_STATUS(plinth_green_context_set_context(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_green_context_pop_context(NULL), PLINTH_ERROR_NULL_POINTER);
  partition = new_green_context(8, 0);
  CHECK_STATUS(plinth_green_context_stream(partition, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_green_context_num_sms(partition, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_green_context_device(partition, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_EQ(number, UNTOUCHED);
  CHECK(stream == (plinth_stream_t)UNTOUCHED_POINTER);
  CHECK_OK(plinth_event_destroy(event));
}

/* The error of a driver that does not have the functions. */
TEST(an_old_driver_is_reported) {
  plinth_green_context_t partition = (plinth_green_context_t)UNTOUCHED_POINTER;
  const char *calls[] = {"cuDeviceGetDevResource", "cuGreenCtxCreate", "cuGreenCtxStreamCreate"};
  CHECK_OK(plinth_enable_fault_injection());
  CHECK_OK(plinth_green_context_destroy(new_green_context(8, 0)));
  const int32_t sizes[] = {16, 24, 32};
  for (int index = 0; index < 3; index++) {
    const char *tripped = "";
    for (uint64_t nth = 1; strcmp(tripped, calls[index]) != 0; nth++) {
      CHECK(nth < 50);
      CHECK_OK(plinth_inject_fault(nth, 801));
      const plinth_status_t status = plinth_green_context_create(sizes[index], 0, &partition);
      tripped = plinth_tripped_fault();
      CHECK(tripped != NULL);
      if (strcmp(tripped, calls[index]) == 0) {
        CHECK_EQ(status, PLINTH_ERROR_NOT_SUPPORTED);
        CHECK_MESSAGE("too old for green contexts");
        CHECK_MESSAGE(calls[index]);
      }
    }
    CHECK_OK(plinth_inject_fault(0, 0));
  }
  CHECK(partition == UNTOUCHED_POINTER);
}
