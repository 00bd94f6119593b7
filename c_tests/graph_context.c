/* plinth_graph_begin and plinth_graph_end: captures that restore the current stream and device.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "driver.h"
#include "graphing.h"

enum { BYTES = 64 * 1024 };

static plinth_stream_t current(void) {
  plinth_stream_t stream = (plinth_stream_t)UNTOUCHED_POINTER;
  CHECK_OK(plinth_current_stream(-1, &stream));
  return stream;
}

TEST(a_block_captures_and_restores_the_stream) {
  plinth_graph_context_t context;
  plinth_stream_t before = on_new_stream(0);
  plinth_stream_t given_stream = stream_on(0);
  plinth_stream_t own = NULL;
  void *pinned = pinned_memory(BYTES);
  void *memory = alloc_on(BYTES, 0, before);
  finish(before);
  for (int round = 0; round < 4; round++) {
    plinth_graph_t graph = new_graph(0);
    plinth_stream_t requested = round % 2 ? given_stream : NULL;
    CHECK_OK(plinth_graph_begin(graph, NULL, requested, PLINTH_CAPTURE_GLOBAL, &context));
    CHECK(capturing_here());
    if (requested != NULL) {
      CHECK_SAME(current(), given_stream);
    } else {
      CHECK(current() != before && current() != NULL);
      CHECK(own == NULL || own == current());
      own = current();
    }
    fill_words(memory, (uint32_t)round + 1, BYTES, current());
    CHECK_OK(plinth_graph_end(&context, PLINTH_OK));
    CHECK_SAME(current(), before);
    CHECK(!capturing_here());
    CHECK_OK(plinth_graph_replay(graph));
    CHECK(has_words(memory, (uint32_t)round + 1, BYTES, before, pinned));
    CHECK_OK(plinth_graph_destroy(graph));
  }
  release(memory);
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

/* The block of another thread, which begins while this thread captures. */
static void *capture_in_thread(void *context) {
  plinth_graph_context_t block;
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_begin(graph, NULL, NULL, PLINTH_CAPTURE_THREAD_LOCAL, &block));
  fill_words(context, 2, BYTES, current());
  CHECK_OK(plinth_graph_end(&block, PLINTH_OK));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_stream_synchronize(current()));
  CHECK_OK(plinth_graph_destroy(graph));
  return NULL;
}

TEST(the_stream_of_a_block_stays_the_librarys) {
  plinth_graph_t graph = new_graph(0);
  plinth_graph_context_t scope;
  for (int round = 0; round < 2; round++) {
    CHECK_OK(plinth_graph_begin(graph, NULL, NULL, PLINTH_CAPTURE_GLOBAL, &scope));
    plinth_stream_t stream = current_on(0);
    CHECK_OK(plinth_graph_end(&scope, PLINTH_OK));
    CHECK_STATUS(plinth_stream_destroy(stream), PLINTH_ERROR_INVALID_HANDLE);
    CHECK_MESSAGE("the library owns");
    CHECK_STATUS(plinth_stream_unregister(stream), PLINTH_ERROR_INVALID_HANDLE);
    CHECK_OK(plinth_graph_reset(graph));
  }
  CHECK_OK(plinth_graph_destroy(graph));
}

TEST(threads_capture_at_the_same_time) {
  plinth_graph_context_t block;
  pthread_t thread;
  void *pinned = pinned_memory(BYTES);
  plinth_stream_t stream = on_new_stream(0);
  void *memory = alloc_on(BYTES, 0, stream);
  void *other = alloc_on(BYTES, 0, stream);
  plinth_graph_t graph = new_graph(0);
  finish(stream);
  for (int round = 0; round < 3; round++) {
    CHECK_OK(plinth_graph_begin(graph, NULL, NULL, PLINTH_CAPTURE_THREAD_LOCAL, &block));
    CHECK(pthread_create(&thread, NULL, capture_in_thread, other) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    fill_words(memory, 1, BYTES, current());
    CHECK_OK(plinth_graph_end(&block, PLINTH_OK));
    CHECK_OK(plinth_graph_replay(graph));
    CHECK(has_words(memory, 1, BYTES, stream, pinned));
    CHECK(has_words(other, 2, BYTES, stream, pinned));
    CHECK_OK(plinth_graph_reset(graph));
  }
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
  release(other);
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

static int waits_end;

static void *wait_for_the_device(void *context) {
  uint64_t *waits = (uint64_t *)context;
  while (!__atomic_load_n(&waits_end, __ATOMIC_SEQ_CST)) {
    const plinth_status_t status = plinth_synchronize(0);
    CHECK(status == PLINTH_OK || status == PLINTH_ERROR_CAPTURE_FORBIDS);
    *waits += status == PLINTH_OK;
    CHECK_OK(plinth_empty_cache());
  }
  return NULL;
}

TEST(waits_of_another_thread_leave_captures_valid) {
  plinth_graph_context_t block;
  pthread_t thread;
  uint64_t waits = 0;
  plinth_stream_t stream = on_new_stream(0);
  void *memory = alloc_on(BYTES, 0, stream);
  plinth_graph_t graph = new_graph(0);
  finish(stream);
  waits_end = 0;
  CHECK(pthread_create(&thread, NULL, wait_for_the_device, &waits) == 0);
  for (int round = 0; round < some_rounds(2000); round++) {
    CHECK_OK(plinth_graph_begin(graph, NULL, NULL, PLINTH_CAPTURE_THREAD_LOCAL, &block));
    CHECK_OK(plinth_memset(memory, 1, BYTES, PLINTH_STREAM_CURRENT));
    CHECK_OK(plinth_graph_end(&block, PLINTH_OK));
    CHECK_OK(plinth_graph_reset(graph));
  }
  __atomic_store_n(&waits_end, 1, __ATOMIC_SEQ_CST);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(waits > 0);
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
  expect_nothing_left();
}

TEST(a_block_on_another_device_restores_the_device) {
  plinth_graph_context_t context;
  int32_t device = -1;
  need_devices(2);
  plinth_stream_t before = on_new_stream(0);
  plinth_stream_t stream_of_1 = stream_on(1);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_begin(graph, NULL, stream_of_1, PLINTH_CAPTURE_GLOBAL, &context));
  CHECK_OK(plinth_current_device(&device));
  CHECK_EQ(device, 1);
  CHECK_OK(plinth_sleep(1, stream_of_1));
  CHECK_OK(plinth_graph_end(&context, PLINTH_OK));
  CHECK_OK(plinth_current_device(&device));
  CHECK_EQ(device, 0);
  CHECK_SAME(current(), before);
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_synchronize(1));
  /* The library's capture stream is on the current device. */
  plinth_graph_t other = new_graph(0);
  CHECK_OK(plinth_set_device(1));
  CHECK_OK(plinth_graph_begin(other, NULL, NULL, PLINTH_CAPTURE_GLOBAL, &context));
  CHECK_OK(plinth_stream_device(current(), &device));
  CHECK_EQ(device, 1);
  CHECK_OK(plinth_sleep(1, current()));
  CHECK_OK(plinth_graph_end(&context, PLINTH_OK));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_graph_destroy(other));
  expect_nothing_left();
}

/* The call reports the error of the body, not the error that the failed capture causes. */
TEST(a_block_that_fails_reports_its_own_error) {
  plinth_graph_context_t context;
  plinth_stream_t before = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  void *pointer = NULL;
  char message[1024];
  for (int which = 0; which < 3; which++) {
    plinth_status_t status = PLINTH_OK;
    CHECK_OK(plinth_graph_begin(graph, NULL, NULL, PLINTH_CAPTURE_GLOBAL, &context));
    void *memory = alloc_on(MIB, 0, current());
    CHECK_OK(plinth_memset(memory, 1, MIB, current()));
    if (which == 0) {
      status = plinth_caching_allocator_alloc((size_t)1 << 60, 0, current(), &pointer);
      CHECK_EQ(status, PLINTH_ERROR_OUT_OF_MEMORY);
    } else if (which == 1) {
      status = plinth_stream_synchronize(current());
      CHECK_EQ(status, PLINTH_ERROR_CAPTURE_FORBIDS);
    } else {
      status = PLINTH_ERROR_INVALID_VALUE; /* an error of the program: no call of the library failed */
    }
    snprintf(message, sizeof message, "%s", plinth_last_error());
    const int32_t code = plinth_last_driver_error();
    CHECK_STATUS(plinth_graph_end(&context, status), status);
    CHECK_TEXT(plinth_last_error(), which == 2 ? "the body of the capture failed with PLINTH_ERROR_INVALID_VALUE" : message);
    CHECK_EQ(plinth_last_driver_error(), code);
    CHECK_SAME(current(), before);
    CHECK(!capturing_here());
    expect_sound();
    release(memory);
    CHECK_STATUS(plinth_graph_replay(graph), PLINTH_ERROR_GRAPH_NOT_CAPTURED);
    expect_nothing_left();
  }
  CHECK_OK(plinth_graph_begin(graph, NULL, NULL, PLINTH_CAPTURE_GLOBAL, &context));
  CHECK_OK(plinth_graph_end(&context, PLINTH_OK)); /* an empty graph is valid */
  CHECK_SAME(current(), before);
  CHECK_OK(plinth_graph_destroy(graph));
}

/* A message belongs to the call that failed: a block that fails for another reason does not get it. */
TEST(a_block_does_not_take_the_message_of_another_error) {
  plinth_graph_context_t context;
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_begin(graph, NULL, NULL, PLINTH_CAPTURE_GLOBAL, &context));
  CHECK_STATUS(plinth_set_device(9), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_graph_end(&context, PLINTH_ERROR_OUT_OF_MEMORY), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_TEXT(plinth_last_error(), "the body of the capture failed with PLINTH_ERROR_OUT_OF_MEMORY");
  CHECK_EQ(plinth_last_driver_error(), 0);
  CHECK_OK(plinth_graph_destroy(graph));
}

TEST(a_second_capture_describes_the_attempt_once) {
  plinth_graph_t graph = new_graph(0);
  plinth_stream_t stream = on_new_stream(0);
  void *memory = device_memory(64, 0);
  plinth_graph_context_t context;
  CHECK_OK(plinth_graph_begin(graph, NULL, NULL, PLINTH_CAPTURE_GLOBAL, &context));
  CHECK_OK(plinth_memset(memory, 1, 64, current()));
  CHECK_STATUS(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL), PLINTH_ERROR_GRAPH_CAPTURING);
  CHECK_TEXT(plinth_last_error(), "beginning a capture: the graph is being captured");
  CHECK_OK(plinth_graph_end(&context, PLINTH_OK));
  CHECK_SAME(current(), stream);
  CHECK_STATUS(plinth_graph_begin(graph, NULL, NULL, PLINTH_CAPTURE_GLOBAL, &context), PLINTH_ERROR_GRAPH_CAPTURED);
  CHECK_TEXT(plinth_last_error(),
             "beginning a capture: the graph already owns a capture; call plinth_graph_reset, or create another graph");
  CHECK_OK(plinth_graph_destroy(graph));
}

TEST(a_block_that_cannot_begin_changes_nothing) {
  plinth_graph_context_t context;
  plinth_stream_t before = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  const plinth_pool_id_t wrong = {3, 4};
  CHECK_STATUS(plinth_graph_begin(graph, &wrong, NULL, PLINTH_CAPTURE_GLOBAL, &context), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_graph_begin(graph, NULL, NULL, 17, &context), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_graph_begin(graph, NULL, NULL, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_graph_begin(graph, NULL, (plinth_stream_t)&graph, 0, &context), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_SAME(current(), before);
  CHECK(!capturing_here());
  CHECK_STATUS(plinth_graph_end(NULL, PLINTH_OK), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK_STATUS(plinth_graph_begin(graph, NULL, NULL, 0, &context), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  CHECK_OK(plinth_graph_destroy(graph));
}
