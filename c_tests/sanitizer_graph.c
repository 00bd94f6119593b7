/*
 * Programs with graphs, checked by the stream sanitizer. SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* alone: all; leaves memory */
#include "drawing.h"
#include "driver.h"
#include "graphing.h"
#include "sanitizing.h"

#define SIZE (64 * KIB)

static plinth_stream_t a, b, c;
static unsigned char *memory, *other;

static void begin(void) {
  enable_sanitizer();
  a = on_new_stream(0);
  b = stream_on(0);
  c = stream_on(0);
  memory = alloc_on(SIZE, 0, a);
  other = alloc_on(SIZE, 0, a);
}

static void set(void *pointer, plinth_stream_t stream) { CHECK_OK(plinth_memset(pointer, 7, SIZE, stream)); }

/* Captures a graph that fills `memory` in stream a and `in_branch` in a branch in stream b. */
static plinth_graph_t graph_of_branches(void *in_branch, bool joined) {
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  kernel("root", READ, other, SIZE, a);
  CHECK_OK(plinth_memset(other, 1, 16, a));
  wait_for(b, a);
  set(memory, a);
  if (joined) {
    wait_for(b, a);
  }
  set(in_branch, b);
  wait_for(a, b);
  CHECK_OK(plinth_graph_capture_end(graph));
  return graph;
}

static void replay_twice(plinth_graph_t graph) {
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_graph_replay(graph));
}

static void replay_in(plinth_graph_t graph, plinth_stream_t stream) {
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_replay(graph));
}

TEST(clean_capture_beside_other_work) {
  begin();
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  set(memory, a);
  kernel("sum", READ, memory, SIZE, b); /* The graph does not run yet. */
  CHECK_OK(plinth_graph_capture_end(graph));
  CLEAN();
}

TEST(racy_replay_beside_another_stream) {
  begin();
  plinth_graph_t graph = graph_of_fill(memory, 5, SIZE, a, 0);
  CHECK_OK(plinth_graph_replay(graph));
  kernel("sum", READ, memory, SIZE, b);
  RACE(MISSING_WAIT, memory, SIZE, reads("sum", b), writes("plinth_memset_pattern", a));
}

TEST(clean_replay_between_other_work) {
  begin();
  plinth_graph_t graph = graph_of_fill(memory, 5, SIZE, a, 0);
  set(memory, b);
  wait_for(a, b);
  for (int round = 0; round < 3; round++) {
    CHECK_OK(plinth_graph_replay(graph));
  }
  wait_for(b, a);
  kernel("sum", READ, memory, SIZE, b);
  CLEAN();
}

TEST(racy_replay_before_its_input_is_written) {
  begin();
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  kernel("layer", READ, memory, SIZE, a);
  CHECK_OK(plinth_memset(other, 1, 16, a));
  CHECK_OK(plinth_graph_capture_end(graph));
  set(memory, b);
  CHECK_OK(plinth_graph_replay(graph));
  RACE(MISSING_WAIT, memory, SIZE, reads("layer", a), writes("plinth_memset", b));
}

TEST(racy_branches_of_a_graph) {
  begin();
  plinth_graph_t graph = graph_of_branches(memory, false);
  CLEAN();
  CHECK_OK(plinth_graph_replay(graph));
  read_findings();
  CHECK_EQ(found, 1);
  CHECK_EQ(findings[0].kind, PLINTH_SANITIZER_RACE);
  CHECK_SAME(findings[0].address, memory);
  CHECK_EQ(findings[0].bytes, SIZE);
  CHECK_TEXT(findings[0].name, "plinth_memset");
  CHECK_TEXT(findings[0].previous_name, "plinth_memset");
}

TEST(clean_branches_that_are_ordered) {
  begin();
  plinth_graph_t graph = graph_of_branches(memory, true);
  replay_twice(graph);
  CLEAN();
}

TEST(clean_branches_on_other_memory) {
  begin();
  plinth_graph_t graph = graph_of_branches(other, false);
  replay_twice(graph);
  CLEAN();
}

TEST(clean_replays_of_one_pool_in_two_streams) {
  begin();
  plinth_graph_t graph = graph_of_fill(memory, 5, SIZE, a, 0);
  replay_in(graph, a);
  replay_in(graph, b); /* Replays of one pool are ordered. */
  CLEAN();
}

TEST(racy_replays_of_two_pools_in_two_streams) {
  begin();
  plinth_graph_t one = graph_of_fill(memory, 5, SIZE, a, 0);
  plinth_graph_t two = graph_of_fill(memory, 6, SIZE, a, 0);
  replay_in(two, b); /* The first replay in another stream waits for the stream of the capture. */
  wait_for(a, b);
  replay_in(one, a);
  replay_in(two, b);
  RACE(MISSING_WAIT, memory, SIZE, writes("plinth_memset_pattern", b), writes("plinth_memset_pattern", a));
}

TEST(clean_memory_of_the_graphs_pool) {
  begin();
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  unsigned char *own = alloc_on(SIZE, 0, a);
  set(own, a);
  release(own);
  CHECK_OK(plinth_graph_capture_end(graph));
  replay_twice(graph);
  CLEAN();
}

/* Captures a graph that fills memory of its own, frees it, and fills other memory with random numbers. */
static plinth_graph_t graph_with_random_numbers(uint32_t flags) {
  tensor out;
  plinth_graph_t graph = new_graph(flags);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  unsigned char *own = alloc_on(SIZE, 0, a);
  set(own, a);
  release(own);
  CHECK_OK(plinth_uniform(row(&out, memory, F32, SIZE / 4), 0, 1, NULL, a));
  CHECK_OK(plinth_graph_capture_end(graph));
  return graph;
}

TEST(clean_memory_of_a_graph_with_random_numbers) {
  begin();
  plinth_graph_t graph = graph_with_random_numbers(0);
  replay_twice(graph);
  CLEAN();
}

TEST(clean_memory_of_a_graph_that_got_a_node) {
  begin();
  plinth_graph_t graph = graph_with_random_numbers(PLINTH_GRAPH_KEEP_GRAPH);
  plinth_graph_node_t node = NULL;
  CHECK_OK(plinth_graph_add_empty(graph, NULL, 0, &node));
  CHECK_OK(plinth_graph_instantiate(graph));
  replay_twice(graph);
  CLEAN();
}

/* The sanitizer is enabled before or after the graph allocates memory. */
static void replay_graph_from_before(bool is_allocated) {
  a = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  unsigned char *own = is_allocated ? (unsigned char *)alloc_on(SIZE, 0, a) : NULL;
  enable_sanitizer();
  if (!is_allocated) {
    own = (unsigned char *)alloc_on(SIZE, 0, a);
  }
  set(own, a);
  release(own);
  CHECK_OK(plinth_graph_capture_end(graph));
  replay_twice(graph);
  CLEAN();
}

TEST(clean_memory_of_a_capture_from_before) { replay_graph_from_before(true); }
TEST(clean_memory_that_a_capture_from_before_allocates) { replay_graph_from_before(false); }

/* Graphs whose nodes allocate from the driver: a graph gets the addresses of one that is gone and has run. */
TEST(clean_memory_that_the_driver_allocates_for_graphs) {
  CHECK_OK(plinth_set_allocator_settings("backend:cudaMallocAsync"));
  begin();
  unsigned char *last = NULL;
  bool is_same = false;
  for (int round = 0; round < 100 && !is_same; round++) {
    const plinth_stream_t stream = round % 2 == 0 ? a : b;
    plinth_graph_t graph = new_graph(0);
    CHECK_OK(plinth_set_stream(stream));
    CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
    unsigned char *own = (unsigned char *)alloc_on(SIZE, 0, stream);
    set(own, stream);
    release(own);
    CHECK_OK(plinth_graph_capture_end(graph));
    CHECK_OK(plinth_graph_replay(graph));
    sleep_milliseconds(round); /* until it has run, which no call observes */
    CHECK_OK(plinth_graph_destroy(graph));
    is_same = own == last;
    last = own;
  }
  CHECK(is_same || !on_host_device());
  CLEAN();
}

/* The sanitizer is enabled before the driver's memory is freed. */
TEST(clean_memory_of_the_driver_in_a_capture_from_before) {
  CHECK_OK(plinth_set_allocator_settings("backend:cudaMallocAsync"));
  replay_graph_from_before(true);
}

TEST(racy_random_numbers_of_a_graph) {
  begin();
  CHECK_OK(plinth_graph_replay(graph_with_random_numbers(0)));
  kernel("sum", READ, memory, SIZE, b);
  RACE(MISSING_WAIT, memory, SIZE, reads("sum", b), writes("plinth_uniform", a));
}

TEST(racy_replay_on_freed_memory) {
  begin();
  plinth_graph_t graph = graph_of_fill(memory, 5, SIZE, a, 0);
  CHECK_OK(plinth_graph_replay(graph));
  CLEAN();
  release(memory);
  CHECK_OK(plinth_graph_replay(graph));
  USE_AFTER_FREE(memory, SIZE, writes("plinth_memset_pattern", a));
}

/* Captures a graph that fills memory, records an event, and fills other memory. */
static plinth_graph_t capture_with_event(plinth_event_t event) {
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  set(memory, a);
  CHECK_OK(plinth_event_record(event, a));
  set(other, a);
  CHECK_OK(plinth_graph_capture_end(graph));
  return graph;
}

/* Replays a graph in a, and reads memory in b after an event that the graph records. */
static void replay_and_read(plinth_graph_t graph, plinth_event_t event, const void *pointer) {
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_event_wait(event, b));
  kernel("sum", READ, pointer, SIZE, b);
}

TEST(clean_event_that_a_graph_records) {
  begin();
  plinth_event_t event = new_event(PLINTH_EVENT_EXTERNAL);
  replay_and_read(capture_with_event(event), event, memory);
  CLEAN();
}

TEST(racy_event_that_a_graph_records_too_early) {
  begin();
  plinth_event_t event = new_event(PLINTH_EVENT_EXTERNAL);
  replay_and_read(capture_with_event(event), event, other);
  RACE(LATER_WAIT, other, SIZE, reads("sum", b), writes("plinth_memset", a));
}

/* ---- graphs that are built from nodes */

static plinth_graph_t build_fill_and_copy(bool ordered) {
  plinth_graph_t graph = NULL;
  plinth_graph_node_t fill = NULL;
  plinth_graph_node_t copy = NULL;
  CHECK_OK(plinth_graph_create_empty(0, &graph));
  CHECK_OK(plinth_graph_add_fill(graph, NULL, 0, memory, 3, 1, SIZE, &fill));
  CHECK_OK(plinth_graph_add_copy(graph, &fill, ordered ? 1 : 0, other, memory, SIZE, &copy));
  CHECK_OK(plinth_graph_instantiate(graph));
  return graph;
}

TEST(racy_nodes_of_a_built_graph) {
  begin();
  plinth_graph_t graph = build_fill_and_copy(false);
  CHECK_OK(plinth_graph_replay(graph));
  read_findings();
  CHECK_EQ(found, 1);
  CHECK_EQ(findings[0].kind, PLINTH_SANITIZER_RACE);
  CHECK_SAME(findings[0].address, memory);
  CHECK_EQ(findings[0].bytes, SIZE);
  /* The driver returns unordered nodes in any order. */
  CHECK_EQ(findings[0].access.kind | findings[0].previous.kind, READ | WRITE);
}

TEST(clean_nodes_of_a_built_graph) {
  begin();
  plinth_graph_t graph = build_fill_and_copy(true);
  replay_twice(graph);
  wait_for(b, a);
  kernel("sum", READ, other, SIZE, b);
  CLEAN();
}

TEST(racy_built_graph_beside_another_stream) {
  begin();
  plinth_graph_t graph = build_fill_and_copy(true);
  set(other, b);
  CHECK_OK(plinth_graph_replay(graph));
  RACE(MISSING_WAIT, other, SIZE, writes("a copy", a), writes("plinth_memset", b));
}

TEST(clean_child_graph_between_nodes) {
  begin();
  plinth_graph_t child = build_fill_and_copy(true);
  plinth_graph_t graph = NULL;
  plinth_graph_node_t node[3];
  CHECK_OK(plinth_graph_create_empty(0, &graph));
  CHECK_OK(plinth_graph_add_fill(graph, NULL, 0, other, 3, 1, SIZE, &node[0]));
  CHECK_OK(plinth_graph_add_child(graph, &node[0], 1, child, &node[1]));
  CHECK_OK(plinth_graph_add_fill(graph, &node[1], 1, memory, 4, 1, SIZE, &node[2]));
  CHECK_OK(plinth_graph_instantiate(graph));
  CHECK_OK(plinth_graph_replay(graph));
  CLEAN();
}

TEST(racy_child_graph_beside_a_node) {
  begin();
  plinth_graph_t child = build_fill_and_copy(true);
  plinth_graph_t graph = NULL;
  plinth_graph_node_t node[2];
  CHECK_OK(plinth_graph_create_empty(0, &graph));
  CHECK_OK(plinth_graph_add_child(graph, NULL, 0, child, &node[0]));
  CHECK_OK(plinth_graph_add_fill(graph, NULL, 0, other, 4, 1, SIZE, &node[1]));
  CHECK_OK(plinth_graph_instantiate(graph));
  CHECK_OK(plinth_graph_replay(graph));
  read_findings();
  CHECK_EQ(found, 1);
  CHECK_SAME(findings[0].address, other);
  CHECK_EQ(findings[0].bytes, SIZE);
  CHECK_EQ(findings[0].access.kind | findings[0].previous.kind, WRITE);
}

/* A graph that fills memory, records an event, and fills other memory. */
static plinth_graph_t build_with_event(plinth_event_t event) {
  plinth_graph_t graph = NULL;
  plinth_graph_node_t node[3];
  CHECK_OK(plinth_graph_create_empty(0, &graph));
  CHECK_OK(plinth_graph_add_fill(graph, NULL, 0, memory, 3, 1, SIZE, &node[0]));
  CHECK_OK(plinth_graph_add_event_record(graph, &node[0], 1, event, &node[1]));
  CHECK_OK(plinth_graph_add_fill(graph, &node[1], 1, other, 4, 1, SIZE, &node[2]));
  CHECK_OK(plinth_graph_instantiate(graph));
  return graph;
}

TEST(clean_event_that_a_built_graph_records) {
  begin();
  plinth_event_t event = new_event(0);
  replay_and_read(build_with_event(event), event, memory);
  CLEAN();
}

TEST(racy_event_that_a_built_graph_records_too_early) {
  begin();
  plinth_event_t event = new_event(0);
  replay_and_read(build_with_event(event), event, other);
  RACE(LATER_WAIT, other, SIZE, reads("sum", b), writes("a fill", a));
}

/* The same as a node of another graph. */
static plinth_graph_t build_around_event(plinth_event_t event) {
  plinth_graph_t graph = NULL, child = build_with_event(event);
  plinth_graph_node_t node;
  CHECK_OK(plinth_graph_create_empty(0, &graph));
  CHECK_OK(plinth_graph_add_child(graph, NULL, 0, child, &node));
  CHECK_OK(plinth_graph_instantiate(graph));
  return graph;
}

TEST(clean_event_that_a_child_graph_records) {
  begin();
  plinth_event_t event = new_event(0);
  replay_and_read(build_around_event(event), event, memory);
  CLEAN();
}

TEST(racy_event_that_a_child_graph_records_too_early) {
  begin();
  plinth_event_t event = new_event(0);
  replay_and_read(build_around_event(event), event, other);
  RACE(LATER_WAIT, other, SIZE, reads("sum", b), writes("a fill", a));
}

/* Records an event in b, and builds a graph that waits for the event and fills memory. */
static plinth_graph_t build_waiting_for(plinth_event_t event) {
  plinth_graph_t graph = NULL;
  plinth_graph_node_t node[2];
  CHECK_OK(plinth_event_record(event, b));
  CHECK_OK(plinth_graph_create_empty(0, &graph));
  CHECK_OK(plinth_graph_add_event_wait(graph, NULL, 0, event, &node[0]));
  CHECK_OK(plinth_graph_add_fill(graph, &node[0], 1, memory, 3, 1, SIZE, &node[1]));
  CHECK_OK(plinth_graph_instantiate(graph));
  return graph;
}

TEST(clean_graph_that_waits_for_an_event) {
  begin();
  plinth_event_t event = new_event(0);
  plinth_graph_t graph = build_waiting_for(event);
  set(memory, b);
  CHECK_OK(plinth_event_record(event, b));
  CHECK_OK(plinth_graph_replay(graph));
  CLEAN();
}

TEST(racy_graph_that_waits_for_an_old_event) {
  begin();
  plinth_graph_t graph = build_waiting_for(new_event(0));
  set(memory, b);
  CHECK_OK(plinth_graph_replay(graph));
  RACE(MISSING_WAIT, memory, SIZE, writes("a fill", a), writes("plinth_memset", b));
}

TEST(clean_capture_by_driver_calls) {
  begin();
  void *native = NULL;
  DRIVER(driver_begin_capture, begin_capture, "cuStreamBeginCapture");
  DRIVER(driver_end_capture, end_capture, "cuStreamEndCapture");
  set(memory, a);
  CHECK_EQ(begin_capture(b, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  set(memory, b); /* The capture runs nothing, and the library does not know of its graph. */
  CHECK_EQ(end_capture(b, &native), CUDA_SUCCESS);
  set(memory, a);
  CLEAN();
}

TEST(clean_graph_that_was_updated) {
  begin();
  plinth_graph_t graph = graph_of_fill(memory, 5, SIZE, a, PLINTH_GRAPH_KEEP_GRAPH);
  plinth_graph_t changed = graph_of_fill(other, 5, SIZE, a, PLINTH_GRAPH_KEEP_GRAPH);
  CHECK_OK(plinth_graph_instantiate(graph));
  CHECK_OK(plinth_graph_update(graph, changed));
  CHECK_OK(plinth_graph_replay(graph));
  kernel("sum", READ, memory, SIZE, b); /* The updated graph does not write here. */
  CLEAN();
  kernel("sum", READ, other, SIZE, b);
  RACE(MISSING_WAIT, other, SIZE, reads("sum", b), writes("plinth_memset_pattern", a));
}

/* CUDA orders all launches of an executable graph, also those before an update. */
TEST(clean_built_graph_that_was_updated_between_replays_in_two_streams) {
  plinth_graph_node_t node;
  plinth_graph_t graphs[2];
  begin();
  for (int index = 0; index < 2; index++) {
    CHECK_OK(plinth_graph_create_empty(0, &graphs[index]));
    CHECK_OK(plinth_graph_add_fill(graphs[index], NULL, 0, memory, 3 + index, 1, SIZE, &node));
    CHECK_OK(plinth_graph_instantiate(graphs[index]));
  }
  replay_in(graphs[0], a);
  CHECK_OK(plinth_graph_update(graphs[0], graphs[1]));
  replay_in(graphs[0], b);
  CLEAN();
}

TEST(racy_destroyed_graph_that_still_runs) {
  begin();
  plinth_graph_t graph = graph_of_fill(memory, 5, SIZE, a, 0);
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_graph_destroy(graph));
  kernel("sum", READ, memory, SIZE, b);
  RACE(MISSING_WAIT, memory, SIZE, reads("sum", b), writes("plinth_memset_pattern", a));
}

/* An event that is recorded in a capture by the driver's own calls is recorded at the replays. */
TEST(racy_event_of_a_capture_by_the_driver) {
  void *graph = NULL;
  begin();
  plinth_event_t event = new_event(PLINTH_EVENT_EXTERNAL);
  CHECK_OK(plinth_memset(memory, 7, SIZE, a));
  begin_capture(a, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_OK(plinth_event_record(event, a));
  CHECK_EQ(end_capture(a, &graph), CUDA_SUCCESS);
  CHECK_OK(plinth_event_wait(event, b));
  CHECK_OK(plinth_memset(memory, 8, SIZE, b));
  RACE(MISSING_WAIT, memory, SIZE, writes("plinth_memset", b), writes("plinth_memset", a));
  DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
  CHECK_EQ(destroy(graph), CUDA_SUCCESS);
  CHECK_OK(plinth_event_destroy(event));
}
