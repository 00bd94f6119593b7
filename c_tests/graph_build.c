/* Graphs that are built node by node, and the times of nodes. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "graphing.h"

#define WORDS 1024
#define BYTES (WORDS * sizeof(uint32_t))

static plinth_graph_t empty_graph(void) {
  plinth_graph_t graph = NULL;
  CHECK_OK(plinth_graph_create_empty(0, &graph));
  CHECK(graph != NULL);
  return graph;
}

static plinth_graph_node_t fill_node(plinth_graph_t graph, const plinth_graph_node_t *after, size_t count,
                                     void *memory, uint32_t word) {
  plinth_graph_node_t node = NULL;
  CHECK_OK(plinth_graph_add_fill(graph, after, count, memory, word, 4, WORDS, &node));
  CHECK(node != NULL);
  return node;
}

static uint32_t word_at(const void *memory, size_t index) {
  uint32_t word = 0;
  fetch(&word, (const char *)memory + index * sizeof word, sizeof word);
  return word;
}

static void count_up(void *context) { __atomic_add_fetch((int *)context, 1, __ATOMIC_SEQ_CST); }

TEST(a_graph_is_built_and_replayed) {
  plinth_graph_t graph = empty_graph();
  char *first = device_memory(BYTES, 0);
  char *second = device_memory(BYTES, 0);
  plinth_graph_node_t nodes[4] = {NULL, NULL, NULL, NULL};
  plinth_graph_node_t listed[4] = {NULL, NULL, NULL, NULL};
  size_t count = 0;
  uint32_t type = UNTOUCHED;
  int calls = 0;
  nodes[0] = fill_node(graph, NULL, 0, first, 7);
  CHECK_OK(plinth_graph_add_copy(graph, nodes, 1, second, first, BYTES, &nodes[1]));
  CHECK_OK(plinth_graph_add_empty(graph, &nodes[1], 1, &nodes[2]));
  CHECK_OK(plinth_graph_add_host(graph, &nodes[2], 1, count_up, &calls, &nodes[3]));
  CHECK_OK(plinth_graph_nodes(graph, listed, 4, &count));
  CHECK_EQ(count, 4);
  CHECK_OK(plinth_graph_node_type(graph, nodes[1], &type));
  CHECK_EQ(type, PLINTH_GRAPH_NODE_MEMCPY);
  CHECK_OK(plinth_graph_node_type(graph, nodes[3], &type));
  CHECK_EQ(type, PLINTH_GRAPH_NODE_HOST);
  CHECK_OK(plinth_graph_instantiate(graph));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_graph_replay(graph));
  finish(NULL);
  CHECK_EQ(word_at(second, 0), 7);
  CHECK_EQ(word_at(second, WORDS - 1), 7);
  CHECK_EQ(__atomic_load_n(&calls, __ATOMIC_SEQ_CST), 2);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(first));
  CHECK_OK(plinth_device_free(second));
}

TEST(a_dependency_added_later_orders_two_fills) {
  plinth_graph_t graph = empty_graph();
  char *memory = device_memory(BYTES, 0);
  plinth_graph_node_t last = fill_node(graph, NULL, 0, memory, 2);
  plinth_graph_node_t first = fill_node(graph, NULL, 0, memory, 1);
  CHECK_OK(plinth_graph_add_dependency(graph, first, last));
  CHECK_STATUS(plinth_graph_add_dependency(graph, first, last), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("already");
  CHECK_STATUS(plinth_graph_add_dependency(graph, first, first), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_graph_replay(graph));
  finish(NULL);
  CHECK_EQ(word_at(memory, 5), 2);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
}

TEST(nodes_can_be_added_to_a_kept_capture) {
  plinth_stream_t stream = on_new_stream(0);
  char *memory = device_memory(2 * BYTES, 0);
  plinth_graph_t graph = graph_of_fill(memory, 3, BYTES, stream, PLINTH_GRAPH_KEEP_GRAPH);
  plinth_graph_node_t captured = NULL;
  plinth_graph_node_t added = NULL;
  size_t count = 0;
  CHECK_OK(plinth_graph_nodes(graph, &captured, 1, &count));
  CHECK_EQ(count, 1);
  CHECK_OK(plinth_graph_add_copy(graph, &captured, 1, memory + BYTES, memory, BYTES, &added));
  CHECK_OK(plinth_graph_instantiate(graph));
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  CHECK_EQ(word_at(memory + BYTES, WORDS - 1), 3);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
}

/* Captures plinth_sleep, and returns the parameters of its kernel node. */
static plinth_graph_t graph_of_sleep(plinth_stream_t stream, plinth_graph_kernel_t *kernel) {
  plinth_graph_t graph = new_graph(PLINTH_GRAPH_KEEP_GRAPH);
  plinth_graph_node_t node = NULL;
  size_t count = 0;
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_sleep(1000, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_nodes(graph, &node, 1, &count));
  CHECK_OK(plinth_graph_node_get_kernel(graph, node, kernel));
  CHECK(kernel->function != NULL);
  CHECK_EQ(kernel->grid[0], 1);
  return graph;
}

static plinth_graph_t changed_graph;
static plinth_graph_node_t changed_node;
static plinth_graph_kernel_t changed_kernel;

static void *change_kernel(void *context) {
  (void)context;
  CHECK_OK(plinth_graph_node_set_kernel(changed_graph, changed_node, &changed_kernel));
  return NULL;
}

TEST(a_thread_without_a_context_changes_a_kernel) {
  plinth_stream_t stream = on_new_stream(0);
  changed_kernel = (plinth_graph_kernel_t)PLINTH_GRAPH_KERNEL_INIT;
  plinth_graph_t source = graph_of_sleep(stream, &changed_kernel);
  changed_graph = empty_graph();
  uint64_t cycles = 1000;
  void *parameters[1] = {&cycles};
  changed_kernel.parameters = parameters;
  CHECK_OK(plinth_graph_add_kernel(changed_graph, NULL, 0, &changed_kernel, &changed_node));
  CHECK_OK(plinth_graph_instantiate(changed_graph));
  run_threads(1, change_kernel);
  CHECK_OK(plinth_graph_replay(changed_graph));
  finish(stream);
  CHECK_OK(plinth_graph_destroy(changed_graph));
  CHECK_OK(plinth_graph_destroy(source));
}

TEST(a_kernels_parameters_change_after_instantiation) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_kernel_t kernel = PLINTH_GRAPH_KERNEL_INIT;
  plinth_graph_t source = graph_of_sleep(stream, &kernel);
  plinth_graph_t graph = empty_graph();
  plinth_graph_node_t node = NULL;
  plinth_event_t start = new_event(PLINTH_EVENT_TIMING);
  plinth_event_t end = new_event(PLINTH_EVENT_TIMING);
  uint64_t cycles = 1000;
  void *parameters[1];
  float milliseconds = 0;
  parameters[0] = &cycles;
  kernel.parameters = parameters;
  CHECK_OK(plinth_graph_add_kernel(graph, NULL, 0, &kernel, &node));
  CHECK_STATUS(plinth_graph_node_set_kernel(graph, node, &kernel), PLINTH_ERROR_GRAPH_NOT_CAPTURED);
  CHECK_OK(plinth_graph_instantiate(graph));
  cycles = 100000000;
  CHECK_OK(plinth_graph_node_set_kernel(graph, node, &kernel));
  cycles = 1;
  CHECK_OK(plinth_event_record(start, stream));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_event_record(end, stream));
  finish(stream);
  CHECK_OK(plinth_event_elapsed_time(start, end, &milliseconds));
  CHECK(milliseconds > 20);
  kernel.grid[1] = 0;
  CHECK_STATUS(plinth_graph_node_set_kernel(graph, node, &kernel), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("kernel->grid");
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_graph_destroy(source));
  CHECK_OK(plinth_event_destroy(start));
  CHECK_OK(plinth_event_destroy(end));
}

/* The disabled node is not the last one, because with a disabled last node driver 580 may report completion too early. */
TEST(a_node_is_disabled_and_enabled) {
  plinth_graph_t graph = empty_graph();
  char *memory = device_memory(2 * BYTES, 0);
  plinth_graph_node_t first = fill_node(graph, NULL, 0, memory, 1);
  plinth_graph_node_t second = fill_node(graph, &first, 1, memory, 2);
  plinth_graph_node_t empty = NULL;
  bool enabled = false;
  CHECK_OK(plinth_graph_add_empty(graph, &first, 1, &empty));
  (void)fill_node(graph, &second, 1, memory + BYTES, 3);
  CHECK_OK(plinth_graph_instantiate(graph));
  CHECK_OK(plinth_graph_node_set_enabled(graph, second, false));
  CHECK_OK(plinth_graph_node_get_enabled(graph, first, &enabled));
  CHECK(enabled);
  CHECK_OK(plinth_graph_node_get_enabled(graph, second, &enabled));
  CHECK(!enabled);
  CHECK_OK(plinth_graph_replay(graph));
  finish(NULL);
  CHECK_EQ(word_at(memory + BYTES, 0), 3);
  CHECK_EQ(word_at(memory, 0), 1);
  CHECK_OK(plinth_graph_node_set_enabled(graph, second, true));
  CHECK_OK(plinth_graph_replay(graph));
  finish(NULL);
  CHECK_EQ(word_at(memory, 0), 2);
  CHECK_STATUS(plinth_graph_node_set_enabled(graph, empty, false), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
}

TEST(a_child_outlives_its_graph) {
  plinth_stream_t stream = on_new_stream(0);
  char *memory = device_memory(BYTES, 0);
  plinth_graph_t child = graph_of_fill(memory, 9, BYTES, stream, PLINTH_GRAPH_KEEP_GRAPH);
  plinth_graph_t graph = empty_graph();
  plinth_graph_node_t nodes[2] = {NULL, NULL};
  nodes[0] = fill_node(graph, NULL, 0, memory, 1);
  CHECK_OK(plinth_graph_add_child(graph, nodes, 1, child, &nodes[1]));
  CHECK_OK(plinth_graph_destroy(child));
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  CHECK_EQ(word_at(memory, 1), 9);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
}

TEST(events_in_a_graph_are_recorded_at_each_replay) {
  plinth_graph_t graph = empty_graph();
  char *memory = device_memory(BYTES, 0);
  plinth_event_t event = new_event(PLINTH_EVENT_TIMING);
  plinth_graph_node_t fill = fill_node(graph, NULL, 0, memory, 4);
  plinth_graph_node_t record = NULL;
  plinth_graph_node_t wait = NULL;
  plinth_stream_t other = stream_on(0);
  CHECK_OK(plinth_graph_add_event_record(graph, &fill, 1, event, &record));
  CHECK_OK(plinth_graph_add_event_wait(graph, &record, 1, event, &wait));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_stream_wait_event(other, event));
  CHECK_OK(plinth_stream_synchronize(other));
  CHECK_EQ(word_at(memory, 0), 4);
  finish(NULL);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_event_destroy(event));
  CHECK_OK(plinth_device_free(memory));
}

/* Until the first replay, events of a graph do not show what was recorded with driver events that served before. */
static void expect_no_records(const plinth_event_t *events, plinth_stream_t stream) {
  float milliseconds = (float)UNTOUCHED;
  CHECK(event_done(events[0]));
  CHECK_OK(plinth_event_synchronize(events[1]));
  CHECK_STATUS(plinth_event_elapsed_time(events[0], events[1], &milliseconds), PLINTH_ERROR_EVENT_NOT_RECORDED);
  CHECK(milliseconds == (float)UNTOUCHED);
  CHECK_OK(plinth_event_wait(events[0], stream));
  finish(stream);
}

/* Destroys two events that are recorded and not complete. */
static void destroy_pending_events(plinth_stream_t stream) {
  plinth_event_t events[2];
  for (int index = 0; index < 2; index++) {
    events[index] = new_event(PLINTH_EVENT_TIMING);
    CHECK_OK(plinth_event_record(events[index], stream));
  }
  for (int index = 0; index < 2; index++) {
    CHECK_OK(plinth_event_destroy(events[index]));
  }
}

static void expect_records(plinth_graph_t graph, const plinth_event_t *events) {
  float milliseconds = -1;
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_event_synchronize(events[1]));
  CHECK_OK(plinth_event_elapsed_time(events[0], events[1], &milliseconds));
  CHECK(milliseconds >= 0);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_event_destroy(events[0]));
  CHECK_OK(plinth_event_destroy(events[1]));
}

/* Events that a graph records one after the other have no record before its first replay. */
static void expect_records_by_nodes(plinth_graph_t graph, const plinth_event_t *events, plinth_stream_t stream,
                                    const gate *held) {
  plinth_graph_node_t node = NULL;
  CHECK_OK(plinth_graph_add_event_record(graph, NULL, 0, events[0], &node));
  CHECK_OK(plinth_graph_add_event_record(graph, &node, 1, events[1], &node));
  expect_no_records(events, stream);
  expect_held(held);
  expect_records(graph, events);
}

TEST(events_of_a_graph_have_no_record_before_its_first_replay) {
  plinth_stream_t busy = stream_on(0);
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t built = empty_graph();
  plinth_graph_t captured = new_graph(0);
  plinth_event_t events[2];
  gate *held = hold(busy);
  destroy_pending_events(busy);
  events[0] = new_event(PLINTH_EVENT_TIMING);
  events[1] = new_event(PLINTH_EVENT_TIMING);
  expect_records_by_nodes(built, events, stream, held);
  destroy_pending_events(busy);
  CHECK_OK(plinth_graph_capture_begin(captured, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  for (int index = 0; index < 2; index++) {
    events[index] = new_event(PLINTH_EVENT_TIMING | PLINTH_EVENT_EXTERNAL);
    CHECK_OK(plinth_event_record(events[index], stream));
  }
  CHECK_OK(plinth_graph_capture_end(captured));
  expect_no_records(events, stream);
  expect_held(held);
  expect_records(captured, events);
  gate_open(held);
  CHECK_OK(plinth_synchronize(0));
}

TEST(events_of_a_graph_whose_first_record_was_refused_have_no_record) {
  plinth_stream_t busy = stream_on(0);
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t broken = new_graph(0);
  plinth_graph_t built = empty_graph();
  plinth_event_t events[2];
  gate *held = hold(busy);
  destroy_pending_events(busy);
  CHECK_OK(plinth_graph_capture_begin(broken, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  CHECK_STATUS(plinth_stream_synchronize(stream), PLINTH_ERROR_CAPTURE_FORBIDS);
  for (int index = 0; index < 2; index++) {
    events[index] = new_event(PLINTH_EVENT_TIMING);
    CHECK_STATUS(plinth_event_record(events[index], stream), PLINTH_ERROR_CAPTURE_INVALIDATED);
  }
  CHECK_STATUS(plinth_graph_capture_end(broken), PLINTH_ERROR_CAPTURE_INVALIDATED);
  expect_records_by_nodes(built, events, stream, held);
  gate_open(held);
  CHECK_OK(plinth_graph_destroy(broken));
  CHECK_OK(plinth_synchronize(0));
}

TEST(a_graph_does_not_wait_for_an_event_that_was_never_recorded) {
  plinth_stream_t busy = stream_on(0);
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = empty_graph();
  plinth_graph_node_t node = NULL;
  gate *held = hold(busy);
  destroy_pending_events(busy);
  plinth_event_t event = new_event(PLINTH_EVENT_TIMING);
  CHECK_OK(plinth_graph_add_event_wait(graph, NULL, 0, event, &node));
  CHECK(event_done(event));
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  expect_held(held);
  CHECK_OK(plinth_event_record(event, busy));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK(stays_undone(stream));
  gate_open(held);
  finish(stream);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_event_destroy(event));
}

TEST(invalid_nodes_and_arguments_are_errors) {
  plinth_graph_t graph = empty_graph();
  plinth_graph_t other = empty_graph();
  plinth_graph_t fresh = new_graph(PLINTH_GRAPH_KEEP_GRAPH);
  char *memory = device_memory(BYTES, 0);
  char pageable[4];
  plinth_graph_node_t node = fill_node(graph, NULL, 0, memory, 1);
  plinth_graph_node_t twice[2];
  plinth_graph_node_t out = (plinth_graph_node_t)UNTOUCHED_POINTER;
  plinth_graph_node_t invalid = (plinth_graph_node_t)(uintptr_t)0x1234567;
  twice[0] = node;
  twice[1] = node;
  CHECK_STATUS(plinth_graph_add_empty(other, &node, 1, &out), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_MESSAGE("is not a node of this graph");
  CHECK_STATUS(plinth_graph_add_empty(graph, &invalid, 1, &out), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_MESSAGE("dependencies[0]");
  CHECK_STATUS(plinth_graph_add_empty(graph, twice, 2, &out), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_graph_add_empty(graph, NULL, 1, &out), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_graph_add_empty(fresh, NULL, 0, &out), PLINTH_ERROR_GRAPH_NOT_CAPTURED);
  CHECK_STATUS(plinth_graph_add_fill(graph, NULL, 0, memory, 1, 3, 1, &out), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("element_size is 3");
  CHECK_STATUS(plinth_graph_add_fill(graph, NULL, 0, memory + 1, 1, 4, 1, &out), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_graph_add_fill(graph, NULL, 0, memory, 1, 4, SIZE_MAX, &out), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_graph_add_fill(graph, NULL, 0, pageable, 1, 4, 1, &out), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("adding a fill to a graph: the memory at ");
  CHECK_MESSAGE(" is host memory that is not pinned");
  if (on_host_device()) {
    CHECK_STATUS(plinth_graph_add_copy(graph, NULL, 0, memory, memory, 2 * BYTES, &out), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("lie past its end");
  }
  CHECK_STATUS(plinth_graph_add_copy(graph, NULL, 0, memory, NULL, 4, &out), PLINTH_ERROR_NULL_POINTER);
  CHECK_MESSAGE("source");
  CHECK_STATUS(plinth_graph_add_copy(graph, NULL, 0, memory, memory, 0, &out), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_graph_add_host(graph, NULL, 0, NULL, NULL, &out), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_graph_add_kernel(graph, NULL, 0, NULL, &out), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_graph_add_child(graph, NULL, 0, fresh, &out), PLINTH_ERROR_GRAPH_NOT_CAPTURED);
  CHECK_SAME(out, UNTOUCHED_POINTER);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_graph_destroy(other));
  CHECK_OK(plinth_graph_destroy(fresh));
  CHECK_OK(plinth_device_free(memory));
}

TEST(a_cycle_cannot_be_instantiated) {
  plinth_graph_t graph = empty_graph();
  plinth_graph_node_t first = NULL;
  plinth_graph_node_t second = NULL;
  CHECK_OK(plinth_graph_add_empty(graph, NULL, 0, &first));
  CHECK_OK(plinth_graph_add_empty(graph, &first, 1, &second));
  CHECK_OK(plinth_graph_add_dependency(graph, second, first));
  CHECK(plinth_graph_instantiate(graph) != PLINTH_OK);
  CHECK_OK(plinth_graph_destroy(graph));
}

TEST(each_node_is_timed) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(PLINTH_GRAPH_KEEP_GRAPH);
  char *memory = device_memory(BYTES, 0);
  plinth_node_time_t times[3] = {PLINTH_NODE_TIME_INIT};
  size_t count = 0;
  char *text = NULL;
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  fill_words(memory, 5, BYTES, stream);
  CHECK_OK(plinth_sleep(40000000, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_node_times(graph, 3, times, 3, &count));
  CHECK_EQ(count, 2);
  CHECK_EQ(times[0].node_type, PLINTH_GRAPH_NODE_MEMSET);
  CHECK_EQ(times[1].node_type, PLINTH_GRAPH_NODE_KERNEL);
  CHECK(strstr(times[1].what, "plinth_sleep") != NULL);
  /* 40 million cycles are some 20 ms. */
  CHECK(times[1].microseconds > 5000 && times[1].microseconds < 1e6);
  CHECK(times[0].microseconds >= 0 && times[0].microseconds < times[1].microseconds);
  CHECK_EQ(word_at(memory, 0), 5);
  CHECK_OK(plinth_graph_time_table(graph, 1, &text));
  CHECK(strstr(text, "plinth_sleep") != NULL && strstr(text, "2 nodes") != NULL);
  plinth_string_free(text);
  CHECK_STATUS(plinth_graph_node_times(graph, 0, NULL, 0, &count), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
}
