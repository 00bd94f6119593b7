/* Results of calls during a capture, and refused calls. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_SANITIZER=error */
/* alone: a_capture_query_creates_no_context; expects a new process */
/* alone: copies_and_fills_are_nodes_and_run_when_replayed; leaves a graph */
#include "driver.h"
#include "support.h"

static bool is_capturing(plinth_stream_t stream) {
  bool capturing = false;
  CHECK_OK(plinth_stream_is_capturing(stream, &capturing));
  return capturing;
}

static bool is_current_capturing(void) {
  bool capturing = false;
  CHECK_OK(plinth_is_current_stream_capturing(&capturing));
  return capturing;
}

static void destroy_graph(void *graph) {
  DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
  CHECK_EQ(destroy(graph), CUDA_SUCCESS);
}

static void nothing(void *context) { (void)context; }

TEST(is_capturing_is_per_stream) {
  plinth_stream_t stream = stream_on(0);
  plinth_stream_t other = stream_on(0);
  void *graph = NULL;
  CHECK(!is_capturing(stream));
  CHECK(!is_capturing(NULL));
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK(is_capturing(stream));
  CHECK(!is_capturing(other));
  CHECK(!is_capturing(NULL));
  CHECK(!is_current_capturing());
  CHECK_OK(plinth_set_stream(stream));
  CHECK(is_current_capturing());
  CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
  CHECK(!is_capturing(stream));
  CHECK(!is_current_capturing());
  destroy_graph(graph);
}

TEST(a_capture_query_creates_no_context) {
  CHECK(!is_current_capturing());
  CHECK(!has_context(0));
}

TEST(a_capturing_stream_cannot_be_synchronized_or_queried) {
  plinth_stream_t stream = stream_on(0);
  bool done = true;
  void *graph = NULL;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_STATUS(plinth_stream_synchronize(stream), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK(plinth_last_driver_error() != 0);
  CHECK(end_capture(stream, &graph) != CUDA_SUCCESS);
  CHECK(!is_capturing(stream));
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_STATUS(plinth_stream_query(stream, &done), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK(done);
  (void)end_capture(stream, &graph);
  CHECK(stream_done(stream));
}

TEST(a_device_with_a_capturing_stream_cannot_be_synchronized) {
  plinth_stream_t stream = stream_on(0);
  void *graph = NULL;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_STATUS(plinth_synchronize(0), PLINTH_ERROR_CAPTURE_FORBIDS);
  (void)end_capture(stream, &graph);
  CHECK_OK(plinth_synchronize(0));
}

TEST(a_global_capture_forbids_allocation) {
  plinth_stream_t stream = stream_on(0);
  void *memory = device_memory(KIB, 0);
  void *pointer = UNTOUCHED_POINTER;
  void *graph = NULL;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK_STATUS(plinth_device_malloc(KIB, 0, &pointer), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  (void)end_capture(stream, &graph);
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK_STATUS(plinth_device_free(memory), PLINTH_ERROR_CAPTURE_FORBIDS);
  (void)end_capture(stream, &graph);
  CHECK_OK(plinth_device_free(memory));
}

TEST(a_relaxed_capture_permits_allocation) {
  plinth_stream_t stream = stream_on(0);
  void *graph = NULL;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  void *memory = device_memory(KIB, 0);
  CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
  destroy_graph(graph);
  CHECK_OK(plinth_device_free(memory));
}

TEST(a_captured_event_cannot_be_synchronized_or_queried) {
  plinth_stream_t stream = stream_on(0);
  plinth_event_t event = new_event(0);
  bool done = true;
  void *graph = NULL;
  CHECK_OK(plinth_event_record(event, stream));
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_STATUS(plinth_event_query(event, &done), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK(done);
  /* The query invalidated the capture. The event is invalid until it is recorded again. */
  CHECK_STATUS(plinth_event_synchronize(event), PLINTH_ERROR_INVALID_VALUE);
  CHECK(end_capture(stream, &graph) != CUDA_SUCCESS);
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_STATUS(plinth_event_synchronize(event), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK(end_capture(stream, &graph) != CUDA_SUCCESS);
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_OK(plinth_event_synchronize(event));
  CHECK_OK(plinth_event_destroy(event));
}

static size_t node_count(void *graph) {
  size_t count = 0;
  DRIVER(driver_graph_nodes, nodes, "cuGraphGetNodes");
  CHECK_EQ(nodes(graph, NULL, &count), CUDA_SUCCESS);
  return count;
}

static unsigned only_node_type(void *graph) {
  void *node = NULL;
  size_t count = 1;
  unsigned type = UNTOUCHED;
  DRIVER(driver_graph_nodes, nodes, "cuGraphGetNodes");
  DRIVER(driver_node_type, node_type, "cuGraphNodeGetType");
  CHECK_EQ(node_count(graph), 1);
  CHECK_EQ(nodes(graph, &node, &count), CUDA_SUCCESS);
  CHECK_EQ(node_type(node, &type), CUDA_SUCCESS);
  return type;
}

TEST(recording_an_event_adds_no_node) {
  plinth_stream_t stream = stream_on(0);
  plinth_event_t event = new_event(0);
  void *graph = NULL;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_OK(plinth_event_wait(event, stream));
  CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
  CHECK_EQ(node_count(graph), 0);
  destroy_graph(graph);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(recording_an_external_event_adds_a_node) {
  plinth_stream_t stream = stream_on(0);
  plinth_event_t event = new_event(PLINTH_EVENT_EXTERNAL);
  void *graph = NULL;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
  CHECK_EQ(only_node_type(graph), CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  destroy_graph(graph);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(waiting_for_an_external_event_adds_a_node) {
  plinth_stream_t stream = stream_on(0);
  plinth_event_t event = new_event(PLINTH_EVENT_EXTERNAL);
  void *graph = NULL;
  CHECK_OK(plinth_event_record(event, stream));
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_OK(plinth_event_wait(event, stream));
  CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
  CHECK_EQ(only_node_type(graph), CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  destroy_graph(graph);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(waiting_for_an_external_event_before_its_first_record_adds_a_node) {
  plinth_stream_t stream = stream_on(0);
  plinth_stream_t busy = stream_on(0);
  plinth_event_t event = new_event(PLINTH_EVENT_EXTERNAL);
  void *graph = NULL;
  void *executable = NULL;
  DRIVER(driver_graph_instantiate, instantiate, "cuGraphInstantiateWithFlags");
  DRIVER(driver_graph_launch, launch, "cuGraphLaunch");
  DRIVER(driver_graph_destroy, destroy_executable, "cuGraphExecDestroy");
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_OK(plinth_event_wait(event, stream));
  CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
  CHECK_EQ(only_node_type(graph), CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  CHECK(event_done(event));
  CHECK_EQ(instantiate(&executable, graph, 0), CUDA_SUCCESS);
  CHECK_EQ(launch(executable, stream), CUDA_SUCCESS);
  CHECK_OK(plinth_stream_synchronize(stream));
  gate *held = gate_shut(busy);
  CHECK_OK(plinth_event_record(event, busy));
  CHECK_EQ(launch(executable, stream), CUDA_SUCCESS);
  CHECK(stays_undone(stream));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_EQ(destroy_executable(executable), CUDA_SUCCESS);
  destroy_graph(graph);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(a_replay_records_an_external_event) {
  plinth_stream_t stream = stream_on(0);
  plinth_event_t event = new_event(PLINTH_EVENT_EXTERNAL);
  void *graph = NULL;
  void *executable = NULL;
  DRIVER(driver_graph_instantiate, instantiate, "cuGraphInstantiateWithFlags");
  DRIVER(driver_graph_launch, launch, "cuGraphLaunch");
  DRIVER(driver_graph_destroy, destroy_executable, "cuGraphExecDestroy");
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
  CHECK_EQ(instantiate(&executable, graph, 0), CUDA_SUCCESS);
  CHECK_EQ(launch(executable, stream), CUDA_SUCCESS);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK(event_done(event));
  gate *held = gate_shut(stream);
  CHECK_EQ(launch(executable, stream), CUDA_SUCCESS);
  sleep_milliseconds(20);
  CHECK(!event_done(event));
  gate_open(held);
  EVENTUALLY(event_done(event));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_EQ(destroy_executable(executable), CUDA_SUCCESS);
  destroy_graph(graph);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(the_external_flag_changes_nothing_outside_a_capture) {
  plinth_stream_t stream = stream_on(0);
  plinth_stream_t waiting = stream_on(0);
  plinth_event_t event = new_event(PLINTH_EVENT_EXTERNAL);
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_OK(plinth_event_wait(event, waiting));
  CHECK(!event_done(event));
  CHECK(stays_undone(waiting));
  gate_open(held);
  CHECK_OK(plinth_event_synchronize(event));
  CHECK_OK(plinth_stream_synchronize(waiting));
  CHECK_OK(plinth_event_destroy(event));
}

TEST(a_host_function_adds_a_node) {
  plinth_stream_t stream = stream_on(0);
  void *graph = NULL;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_OK(plinth_launch_host_function(stream, nothing, NULL));
  CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
  CHECK_EQ(node_count(graph), 1);
  destroy_graph(graph);
}

TEST(copies_and_fills_are_nodes_and_run_when_replayed) {
  plinth_stream_t stream = stream_on(0);
  unsigned char *pinned = (unsigned char *)pinned_memory(KIB);
  unsigned char *memory = (unsigned char *)device_memory(KIB, 0);
  void *graph = NULL;
  void *executable = NULL;
  DRIVER(driver_graph_instantiate, instantiate, "cuGraphInstantiateWithFlags");
  DRIVER(driver_graph_launch, launch, "cuGraphLaunch");
  memset(pinned, 0, KIB);
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_OK(plinth_memset(memory, 0x11, KIB, stream));
  CHECK_OK(plinth_memcpy(pinned, memory, KIB, stream));
  CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
  CHECK_EQ(node_count(graph), 2);
  CHECK_EQ(pinned[0], 0);
  CHECK_EQ(instantiate(&executable, graph, 0), CUDA_SUCCESS);
  CHECK_EQ(launch(executable, stream), CUDA_SUCCESS);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_EQ(pinned[0], 0x11);
  CHECK_EQ(pinned[KIB - 1], 0x11);
  destroy_graph(graph);
  CHECK_OK(plinth_pinned_free(pinned));
  CHECK_OK(plinth_device_free(memory));
}
