/* NVTX ranges and marks: a program sees the same results with and without a tool. What a tool receives is tested in
 * tests/nvtx.rs; under ncu, the last test shows a kernel in its ranges. */
#include "graphing.h"

static int32_t push(const char *message) {
  int32_t depth = UNTOUCHED;
  CHECK_OK(plinth_nvtx_range_push(message, &depth));
  return depth;
}

static int32_t pop(void) {
  int32_t depth = UNTOUCHED;
  CHECK_OK(plinth_nvtx_range_pop(&depth));
  return depth;
}

static bool active(void) {
  bool is_active = false;
  CHECK_OK(plinth_nvtx_is_active(&is_active));
  return is_active;
}

TEST(depths_count_from_zero) {
  CHECK_EQ(push("epoch"), 0);
  CHECK_EQ(push("step"), 1);
  CHECK_EQ(push("forward"), 2);
  CHECK_EQ(pop(), 2);
  CHECK_EQ(push("backward"), 2);
  CHECK_EQ(pop(), 2);
  CHECK_EQ(pop(), 1);
  CHECK_EQ(pop(), 0);
}

TEST(popping_without_a_range_is_an_error) {
  int32_t depth = UNTOUCHED;
  CHECK_STATUS(plinth_nvtx_range_pop(&depth), PLINTH_ERROR_INVALID_VALUE);
  CHECK_EQ(depth, UNTOUCHED);
  CHECK_EQ(push("one"), 0);
  CHECK_EQ(pop(), 0);
  CHECK_STATUS(plinth_nvtx_range_pop(NULL), PLINTH_ERROR_INVALID_VALUE);
}

static void *count_own_depth(void *context) {
  (void)context;
  CHECK_EQ(push("its own"), 0);
  CHECK_EQ(pop(), 0);
  CHECK_STATUS(plinth_nvtx_range_pop(NULL), PLINTH_ERROR_INVALID_VALUE);
  return NULL;
}

TEST(each_thread_counts_its_own_depth) {
  pthread_t thread;
  CHECK_EQ(push("here"), 0);
  CHECK_EQ(push("deeper"), 1);
  CHECK(pthread_create(&thread, NULL, count_own_depth, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_EQ(pop(), 1);
  CHECK_EQ(pop(), 0);
}

static void *end_range(void *context) {
  CHECK_OK(plinth_nvtx_range_end(*(uint64_t *)context));
  return NULL;
}

TEST(a_range_may_end_in_another_thread) {
  pthread_t thread;
  uint64_t ranges[2] = {UNTOUCHED, UNTOUCHED};
  CHECK_OK(plinth_nvtx_range_start("load", &ranges[0]));
  CHECK_OK(plinth_nvtx_range_start("compute", &ranges[1]));
  /* They overlap. They have different ids if a tool is attached. */
  CHECK(active() ? ranges[0] != ranges[1] : ranges[0] == 0 && ranges[1] == 0);
  for (int which = 0; which < 2; which++) {
    CHECK(pthread_create(&thread, NULL, end_range, &ranges[which]) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
}

TEST(arguments_are_checked) {
  uint64_t range = UNTOUCHED;
  plinth_nvtx_domain_t domain = (plinth_nvtx_domain_t)UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_nvtx_mark(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_nvtx_range_push(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_nvtx_range_start(NULL, &range), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_nvtx_range_start("no output", NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_nvtx_domain_create(NULL, &domain), PLINTH_ERROR_NULL_POINTER);
  CHECK_SAME(domain, UNTOUCHED_POINTER);
  CHECK_EQ(range, UNTOUCHED);
  CHECK_STATUS(plinth_nvtx_range_pop(NULL), PLINTH_ERROR_INVALID_VALUE);
}

TEST(domains_count_their_own_depth) {
  int32_t depth = UNTOUCHED;
  plinth_nvtx_domain_t domain = NULL;
  plinth_nvtx_event_t event = PLINTH_NVTX_EVENT_INIT;
  event.message = "solve";
  event.category = 3;
  event.color = 0xFF4080FF;
  event.has_color = true;
  event.payload = 42;
  event.has_payload = true;
  CHECK_OK(plinth_nvtx_domain_create("solver", &domain));
  CHECK_OK(plinth_nvtx_name_category(domain, 3, "inner loops"));
  CHECK_EQ(push("outside"), 0);
  CHECK_OK(plinth_nvtx_domain_range_push(domain, &event, &depth));
  if (active()) {
    CHECK_EQ(depth, 0);
  }
  CHECK_OK(plinth_nvtx_domain_mark(domain, &event));
  CHECK_OK(plinth_nvtx_domain_range_pop(domain, &depth));
  CHECK_EQ(pop(), 0);
  CHECK_OK(plinth_nvtx_domain_destroy(domain));
  CHECK_OK(plinth_nvtx_domain_destroy(NULL));
}

TEST(the_profiler_starts_and_stops) {
  CHECK_OK(plinth_profiler_start());
  CHECK_OK(plinth_profiler_stop());
}

TEST(a_range_of_a_stream_is_part_of_a_captured_graph) {
  plinth_graph_t graph = NULL;
  uint64_t range = UNTOUCHED;
  plinth_stream_t stream = stream_on(0);
  unsigned char *memory = alloc_on(MIB, 0, stream);
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  CHECK_OK(plinth_nvtx_device_range_start("replayed", stream, &range));
  CHECK_OK(plinth_memset(memory, 5, MIB, stream));
  CHECK_OK(plinth_nvtx_device_range_end(range, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  for (int round = 0; round < 3; round++) {
    CHECK_OK(plinth_graph_replay(graph));
  }
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
}

TEST(a_kernel_lies_in_its_ranges) {
  uint64_t range = UNTOUCHED;
  plinth_stream_t stream = stream_on(0);
  int64_t shape = 1 << 20;
  DLTensor numbers;
  memset(&numbers, 0, sizeof numbers);
  numbers.data = alloc_on((size_t)shape * sizeof(float), 0, stream);
  numbers.device.device_type = 2;
  numbers.ndim = 1;
  numbers.dtype.code = 2;
  numbers.dtype.bits = 32;
  numbers.dtype.lanes = 1;
  numbers.shape = &shape;
  CHECK_OK(plinth_nvtx_name_thread("main of the test"));
  CHECK_EQ(push("plinth: initialise weights"), 0);
  CHECK_EQ(push("plinth: first layer"), 1);
  CHECK_OK(plinth_nvtx_device_range_start("on the stream", stream, &range));
  CHECK_OK(plinth_uniform(&numbers, 0.0, 1.0, NULL, stream));
  CHECK_OK(plinth_nvtx_device_range_end(range, stream));
  CHECK_EQ(pop(), 1);
  CHECK_EQ(pop(), 0);
  CHECK_OK(plinth_stream_synchronize(stream));
  release(numbers.data);
}
