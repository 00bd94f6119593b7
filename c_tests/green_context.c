/* Green contexts: parts of a device's multiprocessors, and their streams. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: a_driver_without_them_is_named; enables fault injection, which comes before everything else */
#include "driver.h"
#include "graphing.h"

enum { BYTES = 256 * 1024, STREAMS = 32 };

static int32_t multiprocessors(int32_t device) {
  plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
  CHECK_OK(plinth_get_device_properties(device, &properties));
  return properties.multi_processor_count;
}

/* A green context; where the driver has none, the test is skipped. */
static plinth_green_context_t new_part(int32_t wanted, int32_t device) {
  plinth_green_context_t made = (plinth_green_context_t)UNTOUCHED_POINTER;
  const plinth_status_t status = plinth_green_context_create(wanted, device, &made);
  if (status == PLINTH_ERROR_NOT_SUPPORTED) {
    CHECK_MESSAGE("green context");
    SKIP("the driver has no green contexts");
  }
  CHECK_OK(status);
  CHECK(made != NULL && made != UNTOUCHED_POINTER);
  return made;
}

static int32_t size_of_part(plinth_green_context_t part) {
  int32_t count = UNTOUCHED;
  CHECK_OK(plinth_green_context_num_sms(part, &count));
  return count;
}

static plinth_stream_t stream_of(plinth_green_context_t part) {
  plinth_stream_t stream = (plinth_stream_t)UNTOUCHED_POINTER;
  CHECK_OK(plinth_green_context_stream(part, &stream));
  return stream;
}

TEST(a_part_has_at_least_what_was_asked_for) {
  const int32_t all = multiprocessors(0);
  int32_t device = UNTOUCHED;
  for (int32_t wanted = 1; wanted <= all; wanted = wanted * 3 + 1) {
    plinth_green_context_t part = new_part(wanted, 0);
    CHECK(size_of_part(part) >= wanted && size_of_part(part) <= all);
    CHECK_OK(plinth_green_context_destroy(part));
  }
  plinth_green_context_t whole = new_part(all, -1);
  CHECK_EQ(size_of_part(whole), all);
  plinth_green_context_t nearly_whole = new_part(all - 1, 0);
  CHECK_EQ(size_of_part(nearly_whole), all);
  CHECK_OK(plinth_green_context_device(whole, &device));
  CHECK_EQ(device, 0);
  CHECK_OK(plinth_green_context_destroy(whole));
  CHECK_OK(plinth_green_context_destroy(nearly_whole));
  if (on_host_device()) {
    CHECK_EQ(size_of_part(new_part(1, 0)), 8);
    CHECK_EQ(size_of_part(new_part(17, 0)), 24);
  }
}

TEST(sizes_that_the_device_does_not_have_are_refused) {
  plinth_green_context_t part = (plinth_green_context_t)UNTOUCHED_POINTER;
  CHECK_OK(plinth_green_context_destroy(new_part(8, 0)));
  const int32_t wrong[] = {0, -1, INT32_MIN, multiprocessors(0) + 1, INT32_MAX};
  for (size_t index = 0; index < sizeof wrong / sizeof wrong[0]; index++) {
    CHECK_STATUS(plinth_green_context_create(wrong[index], 0, &part), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("invalid number of SMs requested for green context");
  }
  CHECK_STATUS(plinth_green_context_create(8, device_count(), &part), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_green_context_create(8, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK(part == UNTOUCHED_POINTER);
}

TEST(streams_are_handed_out_in_turn) {
  plinth_green_context_t part = new_part(8, 0);
  plinth_stream_t streams[STREAMS];
  for (int index = 0; index < STREAMS; index++) {
    int32_t device = UNTOUCHED;
    streams[index] = stream_of(part);
    for (int other = 0; other < index; other++) {
      CHECK(streams[other] != streams[index]);
    }
    CHECK_OK(plinth_stream_device(streams[index], &device));
    CHECK_EQ(device, 0);
  }
  for (int index = 0; index < STREAMS; index++) {
    CHECK_SAME(stream_of(part), streams[index]);
  }
}

/* Copies, fills, kernels, events and memory of the allocator's in a stream, and what they come to. */
static void expect_a_working_stream(plinth_stream_t stream) {
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
    plinth_stream_t where = round == 0 ? stream_on(device) : stream;
    CHECK_OK(plinth_set_stream(where));
    CHECK_OK(plinth_manual_seed(5));
    CHECK_OK(plinth_uniform(&tensor, 0, 1, NULL, where));
    CHECK_OK(plinth_memcpy(round == 0 ? expected : numbers, memory, BYTES, where));
    CHECK_OK(plinth_event_record(event, where));
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

TEST(work_in_the_streams_is_done) {
  plinth_green_context_t part = new_part(16, 0);
  expect_a_working_stream(stream_of(part));
  expect_a_working_stream(stream_of(part));
  CHECK_OK(plinth_green_context_set_context(part));
  expect_a_working_stream(current_on(0));
  CHECK_OK(plinth_green_context_pop_context(part));
  CHECK_OK(plinth_green_context_destroy(part));
  expect_nothing_left();
}

TEST(a_part_of_another_device_is_of_that) {
  need_devices(2);
  plinth_green_context_t part = new_part(16, 1);
  int32_t device = UNTOUCHED;
  CHECK_OK(plinth_green_context_device(part, &device));
  CHECK_EQ(device, 1);
  plinth_stream_t there = stream_on(1);
  plinth_stream_t here = stream_on(0);
  CHECK_OK(plinth_set_stream(there));
  CHECK_OK(plinth_set_stream(here));
  CHECK_OK(plinth_green_context_set_context(part));
  CHECK_EQ(current_device(), 1);
  CHECK(current_on(1) != there);
  CHECK_SAME(current_on(0), here);
  expect_a_working_stream(current_on(1));
  CHECK_OK(plinth_green_context_pop_context(part));
  CHECK_EQ(current_device(), 0);
  CHECK_SAME(current_on(1), there);
  CHECK_SAME(current_on(0), here);
}

TEST(the_streams_are_ordered_at_both_ends) {
  plinth_green_context_t part = new_part(8, 0);
  void *memory = device_memory(BYTES, 0);
  plinth_stream_t parent = on_new_stream(0);
  gate *shut = gate_shut(parent);
  CHECK_OK(plinth_green_context_set_context(part));
  plinth_stream_t green = current_on(0);
  CHECK(green != parent && green != NULL);
  CHECK_OK(plinth_memset(memory, 1, BYTES, green));
  CHECK(stays_undone(green));
  gate_open(shut);
  finish(green);
  shut = gate_shut(green);
  CHECK_OK(plinth_green_context_pop_context(part));
  CHECK_SAME(current_on(0), parent);
  CHECK_OK(plinth_memset(memory, 2, BYTES, parent));
  CHECK(stays_undone(parent));
  gate_open(shut);
  finish(parent);
  CHECK_OK(plinth_device_free(memory));
}

/* What is current on the green context at the end need not be its first stream. */
TEST(popping_waits_for_the_stream_that_is_current_then) {
  plinth_green_context_t part = new_part(8, 0);
  plinth_stream_t parent = on_new_stream(0);
  CHECK_OK(plinth_green_context_set_context(part));
  plinth_stream_t second = stream_of(part);
  CHECK_OK(plinth_set_stream(second));
  gate *shut = gate_shut(second);
  CHECK_OK(plinth_green_context_pop_context(part));
  CHECK_SAME(current_on(0), parent);
  CHECK(stays_undone(parent));
  gate_open(shut);
  finish(parent);
}

TEST(green_contexts_nest) {
  plinth_green_context_t outer = new_part(8, 0);
  plinth_green_context_t inner = new_part(16, 0);
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

static plinth_green_context_t shared;

static void *set_and_end(void *context) {
  (void)context;
  CHECK_STATUS(plinth_green_context_pop_context(shared), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_green_context_set_context(shared));
  return NULL;
}

TEST(what_is_set_is_a_threads_own_and_ends_with_it) {
  shared = new_part(8, 0);
  plinth_stream_t before = current_on(0);
  CHECK_OK(plinth_green_context_set_context(shared));
  run_threads(4, set_and_end);
  CHECK_OK(plinth_green_context_pop_context(shared));
  CHECK_SAME(current_on(0), before);
  CHECK_OK(plinth_green_context_destroy(shared));
}

TEST(destroying_keeps_the_streams_for_the_next) {
  plinth_green_context_t part = new_part(8, 0);
  void *memory = device_memory(BYTES, 0);
  void *pinned = pinned_memory(BYTES);
  plinth_stream_t streams[STREAMS];
  for (int index = 0; index < STREAMS; index++) {
    streams[index] = stream_of(part);
  }
  gate *shut = gate_shut(streams[3]);
  fill_words(memory, 9, BYTES, streams[3]);
  CHECK_OK(plinth_green_context_destroy(part));
  CHECK_STATUS(plinth_green_context_destroy(part), PLINTH_ERROR_INVALID_HANDLE);
  gate_open(shut);
  CHECK(has_words(memory, 9, BYTES, streams[3], pinned));
  plinth_green_context_t other = new_part(16, 0);
  plinth_green_context_t again = new_part(8, 0);
  CHECK(again != part);
  const plinth_stream_t first = stream_of(again);
  bool known = false;
  for (int index = 0; index < STREAMS; index++) {
    known = known || streams[index] == first;
    CHECK(stream_of(other) != streams[index]);
  }
  CHECK(known);
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_pinned_free(pinned));
}

TEST(a_capture_goes_over_to_the_part_and_back) {
  plinth_green_context_t part = new_part(8, 0);
  void *memory = device_memory(BYTES, 0);
  void *pinned = pinned_memory(BYTES);
  plinth_stream_t parent = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_memset(memory, 0, BYTES, parent));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  CHECK_OK(plinth_green_context_set_context(part));
  CHECK(capturing_here());
  unsigned char *between = alloc_on(BYTES, 0, current_on(0));
  fill_words(between, 3, BYTES, current_on(0));
  CHECK_OK(plinth_memcpy(memory, between, BYTES, current_on(0)));
  release(between);
  CHECK_OK(plinth_green_context_pop_context(part));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK(has_words(memory, 0, BYTES, parent, pinned));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK(has_words(memory, 3, BYTES, parent, pinned));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

TEST(a_stream_of_a_part_captures_and_replays) {
  plinth_green_context_t part = new_part(8, 0);
  void *memory = device_memory(BYTES, 0);
  void *pinned = pinned_memory(BYTES);
  plinth_stream_t green = stream_of(part);
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

TEST(a_part_is_made_while_a_stream_captures) {
  CHECK_OK(plinth_green_context_destroy(new_part(8, 0)));
  void *memory = device_memory(BYTES, 0);
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  plinth_green_context_t part = new_part(32, 0);
  CHECK(stream_of(part) != NULL);
  fill_words(memory, 1, BYTES, stream);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
}

static void *make_use_and_destroy(void *context) {
  const int number = *(int *)context;
  void *pinned = pinned_memory(BYTES);
  for (int round = 0; round < 20; round++) {
    plinth_green_context_t part = new_part(8 * (1 + (number + round) % 4), 0);
    CHECK_OK(plinth_green_context_set_context(part));
    unsigned char *memory = alloc_on(BYTES, 0, current_on(0));
    fill_words(memory, (uint32_t)(number * 100 + round), BYTES, current_on(0));
    CHECK(has_words(memory, (uint32_t)(number * 100 + round), BYTES, current_on(0), pinned));
    release(memory);
    CHECK_OK(plinth_green_context_pop_context(part));
    CHECK_OK(plinth_green_context_destroy(part));
  }
  CHECK_OK(plinth_pinned_free(pinned));
  return NULL;
}

TEST(threads_make_and_destroy_them_at_once) {
  CHECK_OK(plinth_green_context_destroy(new_part(8, 0)));
  run_threads(8, make_use_and_destroy);
  expect_nothing_left();
}

TEST(the_drivers_own_is_told) {
  plinth_green_context_t part = new_part(8, 0);
  void *native = UNTOUCHED_POINTER;
  void *context = UNTOUCHED_POINTER;
  CHECK_OK(plinth_green_context_native(part, &native, &context));
  CHECK(native != NULL && native != UNTOUCHED_POINTER);
  CHECK(context != NULL && context != UNTOUCHED_POINTER);
  void *other = NULL;
  CHECK_OK(plinth_green_context_native(part, NULL, &other));
  CHECK_SAME(other, context);
  CHECK_OK(plinth_green_context_native(part, NULL, NULL));
}

/* A program may work in the driver's context of a part, and make streams of its own there. */
TEST(a_stream_that_a_program_made_in_the_part_is_taken) {
  plinth_green_context_t part = new_part(16, 0);
  void *context = NULL, *before = NULL;
  plinth_stream_t made = NULL, known = NULL;
  DRIVER(driver_context_get, get, "cuCtxGetCurrent");
  DRIVER(driver_context_set, set, "cuCtxSetCurrent");
  DRIVER(driver_stream_create, create, "cuStreamCreateWithPriority");
  DRIVER(driver_stream_destroy, destroy, "cuStreamDestroy");
  CHECK_OK(plinth_set_device(0));
  CHECK_OK(plinth_green_context_native(part, NULL, &context));
  CHECK_EQ(get(&before), CUDA_SUCCESS);
  CHECK_EQ(set(context), CUDA_SUCCESS);
  CHECK_EQ(create(&made, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  /* plinth's own calls go to the device's own context and come back. */
  CHECK_OK(plinth_stream_from_external(made, 0, &known));
  expect_a_working_stream(made);
  void *now = NULL;
  CHECK_EQ(set(context), CUDA_SUCCESS);
  CHECK_OK(plinth_synchronize(0));
  CHECK_EQ(get(&now), CUDA_SUCCESS);
  CHECK_SAME(now, context);
  CHECK_EQ(set(before), CUDA_SUCCESS);
  CHECK_OK(plinth_stream_from_external(made, 0, &known));
  expect_a_working_stream(made);
  if (device_count() > 1) {
    CHECK_STATUS(plinth_stream_from_external(made, 1, &known), PLINTH_ERROR_DEVICE_MISMATCH);
  }
  CHECK_OK(plinth_empty_cache());
  CHECK_EQ(destroy(made), CUDA_SUCCESS);
}

TEST(wrong_handles_are_noticed) {
  plinth_green_context_t part = new_part(8, 0);
  plinth_event_t event = new_event(0);
  int32_t number = UNTOUCHED;
  plinth_stream_t stream = (plinth_stream_t)UNTOUCHED_POINTER;
  plinth_green_context_t wrong[] = {(plinth_green_context_t)event, (plinth_green_context_t)&number, part};
  CHECK_OK(plinth_green_context_destroy(NULL));
  CHECK_OK(plinth_green_context_destroy(part));
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
  part = new_part(8, 0);
  CHECK_STATUS(plinth_green_context_stream(part, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_green_context_num_sms(part, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_green_context_device(part, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_EQ(number, UNTOUCHED);
  CHECK(stream == (plinth_stream_t)UNTOUCHED_POINTER);
  CHECK_OK(plinth_event_destroy(event));
}

/* What a driver without the calls answers. */
TEST(a_driver_without_them_is_named) {
  plinth_green_context_t part = (plinth_green_context_t)UNTOUCHED_POINTER;
  const char *calls[] = {"cuDeviceGetDevResource", "cuGreenCtxCreate", "cuGreenCtxStreamCreate"};
  CHECK_OK(plinth_enable_fault_injection());
  CHECK_OK(plinth_green_context_destroy(new_part(8, 0)));
  const int32_t sizes[] = {16, 24, 32};
  for (int index = 0; index < 3; index++) {
    const char *tripped = "";
    for (uint64_t nth = 1; strcmp(tripped, calls[index]) != 0; nth++) {
      CHECK(nth < 50);
      CHECK_OK(plinth_inject_fault(nth, 801));
      const plinth_status_t status = plinth_green_context_create(sizes[index], 0, &part);
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
  CHECK(part == UNTOUCHED_POINTER);
}
