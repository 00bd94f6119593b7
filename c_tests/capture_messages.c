/* What the messages of failed captures say about the cause. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "driver.h"
#include "graphing.h"

static void expect_named(plinth_stream_t stream, bool named) {
  char name[128];
  snprintf(name, sizeof name, "stream %#zx of device 0 was not joined", (size_t)stream);
  if (named) {
    CHECK_MESSAGE(name);
  } else {
    CHECK(strstr(plinth_last_error(), name) == NULL);
  }
}

TEST(an_unjoined_stream_is_named) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t joined = stream_on(0);
  plinth_stream_t side = stream_on(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_sleep(1, stream));
  CHECK_OK(plinth_stream_wait_stream(joined, stream));
  CHECK_OK(plinth_stream_wait_stream(side, stream));
  CHECK_OK(plinth_sleep(1, joined));
  CHECK_OK(plinth_sleep(1, side));
  CHECK_OK(plinth_stream_wait_stream(stream, joined));
  CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_GRAPH_UNJOINED);
  expect_named(side, true);
  CHECK(strstr(plinth_last_error(), "plinth_stream_wait_stream") != NULL);
  CHECK_EQ(plinth_last_driver_error(), 904);
  /* The next capture has none. */
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_sleep(1, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_destroy(graph));
}

TEST(a_stream_with_work_after_it_was_joined_is_named) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t side = stream_on(0);
  plinth_event_t event = new_event(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_OK(plinth_event_wait(event, side));
  CHECK_OK(plinth_sleep(1, side));
  CHECK_OK(plinth_event_record(event, side));
  CHECK_OK(plinth_event_wait(event, stream));
  CHECK_OK(plinth_sleep(1, side));
  CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_GRAPH_UNJOINED);
  expect_named(side, true);
  expect_named(stream, false);
  CHECK_OK(plinth_event_destroy(event));
  CHECK_OK(plinth_graph_destroy(graph));
}

TEST(a_broken_capture_names_the_call_that_broke_it) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  void *memory = device_memory(KIB, 0);
  char name[128];
  bool done = false;
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_STATUS(plinth_stream_synchronize(stream), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_STATUS(plinth_memset(memory, 1, KIB, stream), PLINTH_ERROR_CAPTURE_INVALIDATED);
  CHECK_MESSAGE("plinth_stream_synchronize broke it: synchronizing stream");
  CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_CAPTURE_INVALIDATED);
  snprintf(name, sizeof name, "plinth_stream_synchronize broke it: synchronizing stream %#zx", (size_t)stream);
  CHECK_MESSAGE(name);
  CHECK_EQ(plinth_last_driver_error(), 901);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_STATUS(plinth_stream_query(stream, &done), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_CAPTURE_INVALIDATED);
  CHECK_MESSAGE("plinth_stream_query broke it: ");
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
}

/* Begins a capture, checks the message of a call that it forbids, and ends it. */
#define CHECK_FORBIDDEN(call, message)                                                \
  do {                                                                                \
    CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));         \
    CHECK_STATUS((call), PLINTH_ERROR_CAPTURE_FORBIDS);                               \
    CHECK_MESSAGE(message);                                                           \
    CHECK_MESSAGE(capturing);                                                         \
    CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_CAPTURE_INVALIDATED);  \
    CHECK_MESSAGE(capturing);                                                         \
  } while (0)

static void *allocate_in_a_capture(void *context) {
  void *memory = NULL;
  (void)context;
  CHECK_STATUS(plinth_device_malloc(KIB, 0, &memory), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_MESSAGE("(PLINTH_CAPTURE_GLOBAL, begun by another thread); make the call before or after the capture, or begin that "
                "in mode PLINTH_CAPTURE_THREAD_LOCAL");
  return NULL;
}

TEST(a_forbidden_call_names_the_capture_and_the_remedy) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t other = stream_on(0);
  plinth_graph_t graph = new_graph(0);
  plinth_event_t outside = new_event(0);
  plinth_event_t inside = new_event(0);
  void *memory = device_memory(KIB, 0);
  void *more = NULL;
  bool done = false;
  char capturing[128];
  char waiting[128];
  CHECK_OK(plinth_event_record(outside, other));
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_stream_set_name(stream, "step"));
  snprintf(capturing, sizeof capturing, "; stream \"step\" %#zx of device 0 is capturing (PLINTH_CAPTURE_GLOBAL, begun by this "
           "thread); ", (size_t)stream);
  snprintf(waiting, sizeof waiting, "making stream \"step\" %#zx of device 0 wait for an event: ", (size_t)stream);
  CHECK_FORBIDDEN(plinth_device_malloc(KIB, 0, &more), "make the call before or after the capture");
  CHECK_FORBIDDEN(plinth_device_free(memory), "freeing 0x");
  CHECK_FORBIDDEN(plinth_stream_query(stream, &done), "querying stream \"step\"");
  CHECK_FORBIDDEN(plinth_event_query(outside, &done), "querying an event: ");
  CHECK_FORBIDDEN(plinth_event_wait(outside, stream), waiting);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_STATUS(plinth_event_wait(outside, stream), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_MESSAGE("create the event with PLINTH_EVENT_EXTERNAL");
  CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_CAPTURE_INVALIDATED);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_event_record(inside, stream));
  CHECK_STATUS(plinth_event_synchronize(inside), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_MESSAGE("record the event again after the capture");
  CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_CAPTURE_INVALIDATED);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  run_threads(1, allocate_in_a_capture);
  CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_CAPTURE_INVALIDATED);
  CHECK_OK(plinth_stream_set_name(stream, NULL));
  CHECK_OK(plinth_event_destroy(inside));
  CHECK_OK(plinth_event_destroy(outside));
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_graph_destroy(graph));
}

TEST(a_capture_that_was_broken_from_outside_says_so) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  DRIVER(driver_stream_destroy, synchronize, "cuStreamSynchronize"); /* has the type of cuStreamDestroy */
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_STATUS(plinth_stream_synchronize(stream), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_CAPTURE_INVALIDATED);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_EQ(synchronize(stream), 900);
  CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_CAPTURE_INVALIDATED);
  CHECK_MESSAGE("it was broken by a call outside of plinth");
  CHECK_OK(plinth_graph_destroy(graph));
}

TEST(a_copy_that_waits_is_refused_in_a_capture) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  void *memory = device_memory(KIB, 0);
  void *pinned = pinned_memory(KIB);
  void *pageable = pageable_memory(KIB);
  char name[128];
  snprintf(name, sizeof name, "the CPU would wait for stream %#zx of device 0, which is capturing", (size_t)stream);
  memset(pinned, 7, KIB);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_STATUS(plinth_copy(memory, pageable, KIB, false), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_MESSAGE(name);
  CHECK_MESSAGE("pass non_blocking and pinned memory");
  snprintf(name, sizeof name, "the host memory at %#zx is pageable", (size_t)pageable);
  CHECK_MESSAGE(name);
  CHECK_STATUS(plinth_copy(pinned, memory, KIB, false), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_MESSAGE("pass non_blocking");
  CHECK(strstr(plinth_last_error(), "pageable") == NULL);
  CHECK_STATUS(plinth_copy(pinned, pageable, KIB, false), PLINTH_ERROR_CAPTURE_FORBIDS);
  /* Nothing was enqueued, and the capture is valid. */
  CHECK_OK(plinth_copy(memory, pinned, KIB, true));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_copy(pageable, memory, KIB, false));
  CHECK_EQ(((unsigned char *)pageable)[KIB - 1], 7);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_pinned_free(pinned));
  free(pageable);
}
