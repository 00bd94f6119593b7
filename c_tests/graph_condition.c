/* Conditional nodes. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "graphing.h"

static plinth_graph_t empty_graph(void) {
  plinth_graph_t graph = NULL;
  CHECK_OK(plinth_graph_create_empty(0, &graph));
  return graph;
}

/* Allocates zeroed words of device memory, for conditions and results. */
static uint32_t *words(size_t count) {
  uint32_t *memory = (uint32_t *)device_memory(count * sizeof(uint32_t), 0);
  CHECK_OK(plinth_memset(memory, 0, count * sizeof(uint32_t), NULL));
  finish(NULL);
  return memory;
}

static uint32_t word(const uint32_t *memory) {
  uint32_t value = 0;
  fetch(&value, memory, sizeof value);
  return value;
}

static void set(uint32_t *memory, uint32_t value) { put(memory, &value, sizeof value); }

/* Creates a condition. Skips the test if the driver does not support conditional nodes. */
static plinth_graph_condition_t condition_of(plinth_graph_t graph, uint32_t value) {
  plinth_graph_condition_t condition = 0;
  plinth_status_t status = plinth_graph_condition_create(graph, value, &condition);
  if (status == PLINTH_ERROR_NOT_SUPPORTED) {
    CHECK_MESSAGE("needs a driver of CUDA");
    SKIP("the driver has no conditional nodes");
  }
  CHECK_OK(status);
  return condition;
}

static plinth_graph_node_t fill_word(plinth_graph_t graph, const plinth_graph_node_t *after, size_t count,
                                     uint32_t *memory, uint32_t value) {
  plinth_graph_node_t node = NULL;
  CHECK_OK(plinth_graph_add_fill(graph, after, count, memory, value, 4, 1, &node));
  return node;
}

TEST(a_body_runs_if_the_condition_is_set) {
  plinth_graph_t graph = empty_graph();
  plinth_graph_t body = NULL;
  uint32_t *memory = words(2);
  plinth_graph_condition_t condition = condition_of(graph, 0);
  plinth_graph_node_t setter = NULL;
  plinth_graph_node_t node = NULL;
  uint32_t type = 0;
  CHECK_OK(plinth_graph_add_condition_set(graph, NULL, 0, condition, memory, &setter));
  CHECK_OK(plinth_graph_add_if(graph, &setter, 1, condition, &body, &node));
  fill_word(body, NULL, 0, memory + 1, 11);
  CHECK_OK(plinth_graph_node_type(graph, node, &type));
  CHECK_EQ(type, PLINTH_GRAPH_NODE_CONDITIONAL);
  CHECK_OK(plinth_graph_instantiate(graph));
  CHECK_OK(plinth_graph_replay(graph));
  finish(NULL);
  CHECK_EQ(word(memory + 1), 0);
  set(memory, 1);
  CHECK_OK(plinth_graph_replay(graph));
  finish(NULL);
  CHECK_EQ(word(memory + 1), 11);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_STATUS(plinth_graph_replay(body), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_device_free(memory));
}

TEST(if_else_runs_one_of_two_bodies) {
  plinth_graph_t graph = empty_graph();
  plinth_graph_t bodies[2] = {NULL, NULL};
  uint32_t *memory = words(2);
  plinth_graph_condition_t condition = condition_of(graph, 0);
  plinth_graph_node_t setter = NULL;
  plinth_graph_node_t node = NULL;
  uint32_t value;
  CHECK_OK(plinth_graph_add_condition_set(graph, NULL, 0, condition, memory, &setter));
  CHECK_OK(plinth_graph_add_if_else(graph, &setter, 1, condition, &bodies[0], &bodies[1], &node));
  fill_word(bodies[0], NULL, 0, memory + 1, 1);
  fill_word(bodies[1], NULL, 0, memory + 1, 2);
  for (value = 0; value < 2; value++) {
    set(memory, value);
    CHECK_OK(plinth_graph_replay(graph));
    finish(NULL);
    CHECK_EQ(word(memory + 1), 2 - value);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
}

TEST(a_switch_runs_the_body_with_its_number) {
  plinth_graph_t graph = empty_graph();
  plinth_graph_t bodies[3] = {NULL, NULL, NULL};
  uint32_t *memory = words(2);
  plinth_graph_condition_t condition = condition_of(graph, 0);
  plinth_graph_node_t setter = NULL;
  plinth_graph_node_t node = NULL;
  uint32_t value;
  CHECK_OK(plinth_graph_add_condition_set(graph, NULL, 0, condition, memory, &setter));
  CHECK_STATUS(plinth_graph_add_switch(graph, &setter, 1, condition, bodies, 0, &node), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_graph_add_switch(graph, &setter, 1, condition, bodies, 3, &node));
  for (value = 0; value < 3; value++) {
    fill_word(bodies[value], NULL, 0, memory + 1, 100 + value);
  }
  for (value = 0; value < 3; value++) {
    set(memory, value);
    CHECK_OK(plinth_graph_replay(graph));
    finish(NULL);
    CHECK_EQ(word(memory + 1), 100 + value);
  }
  set(memory, 7);
  CHECK_OK(plinth_graph_replay(graph));
  finish(NULL);
  CHECK_EQ(word(memory + 1), 102);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
}

/* Each iteration shifts the words by one. The loop continues while the first word is not 0. */
TEST(a_captured_body_runs_while_the_condition_holds) {
  enum { ROUNDS = 5 };
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = empty_graph();
  plinth_graph_t body = NULL;
  uint32_t *memory = words(2 * ROUNDS + 2);
  uint32_t *scratch = NULL;
  uint32_t start[2 * ROUNDS + 2] = {1, 1, 1, 1, 1, 0, 0};
  plinth_graph_condition_t condition = condition_of(graph, 1);
  plinth_graph_node_t node = NULL;
  int replay;
  CHECK_OK(plinth_graph_add_while(graph, NULL, 0, condition, &body, &node));
  CHECK_STATUS(plinth_graph_condition_set_from(condition, memory, stream), PLINTH_ERROR_GRAPH_NOT_CAPTURING);
  CHECK_OK(plinth_graph_capture_begin(body, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_STATUS(plinth_graph_add_empty(body, NULL, 0, &node), PLINTH_ERROR_GRAPH_CAPTURING);
  /* Memory that a body allocates is the graph's. */
  scratch = (uint32_t *)alloc_on(sizeof start, 0, stream);
  CHECK_OK(plinth_memcpy(scratch, memory + 1, ROUNDS * sizeof *memory, stream));
  CHECK_OK(plinth_memcpy(memory, scratch, ROUNDS * sizeof *memory, stream));
  CHECK_OK(plinth_graph_condition_set_from(condition, memory, stream));
  CHECK_OK(plinth_graph_capture_end(body));
  for (replay = 0; replay < 2; replay++) {
    put(memory, start, sizeof start);
    CHECK_OK(plinth_graph_replay(graph));
    finish(stream);
    CHECK_EQ(word(memory), 0);
    CHECK_EQ(word(memory + ROUNDS - 1), 0);
  }
  release(scratch);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
}

TEST(conditions_can_be_nested) {
  plinth_graph_t graph = empty_graph();
  plinth_graph_t outer = NULL;
  plinth_graph_t inner = NULL;
  uint32_t *memory = words(3);
  plinth_graph_condition_t first = condition_of(graph, 0);
  plinth_graph_condition_t second = condition_of(graph, 0);
  plinth_graph_node_t setter = NULL;
  plinth_graph_node_t node = NULL;
  CHECK_OK(plinth_graph_add_condition_set(graph, NULL, 0, first, memory, &setter));
  CHECK_OK(plinth_graph_add_if(graph, &setter, 1, first, &outer, &node));
  CHECK_OK(plinth_graph_add_condition_set(outer, NULL, 0, second, memory + 1, &setter));
  CHECK_OK(plinth_graph_add_if(outer, &setter, 1, second, &inner, &node));
  fill_word(inner, NULL, 0, memory + 2, 5);
  CHECK_OK(plinth_graph_instantiate(graph));
  set(memory + 1, 1);
  CHECK_OK(plinth_graph_replay(graph));
  finish(NULL);
  CHECK_EQ(word(memory + 2), 0);
  set(memory, 1);
  CHECK_OK(plinth_graph_replay(graph));
  finish(NULL);
  CHECK_EQ(word(memory + 2), 5);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_STATUS(plinth_graph_add_empty(inner, NULL, 0, &node), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_device_free(memory));
}

TEST(a_body_is_not_a_graph_of_its_own) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = empty_graph();
  plinth_graph_t body = NULL;
  uint32_t *memory = words(1);
  plinth_graph_condition_t condition = condition_of(graph, 1);
  plinth_graph_node_t node = NULL;
  plinth_graph_node_t other = NULL;
  plinth_graph_t copy = NULL;
  size_t count = 0;
  CHECK_OK(plinth_graph_add_if(graph, NULL, 0, condition, &body, &node));
  CHECK_STATUS(plinth_graph_replay(body), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("body of a conditional node");
  CHECK_STATUS(plinth_graph_instantiate(body), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_graph_reset(body), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_graph_destroy(body), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_graph_add_if(graph, NULL, 0, condition, &copy, &other), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("create one for each node");
  CHECK_STATUS(plinth_graph_add_if(graph, NULL, 0, condition + 1, &copy, &other), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_graph_add_condition_set(graph, NULL, 0, condition, (char *)memory + 1, &other),
               PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_graph_node_times(graph, 1, NULL, 0, &count), PLINTH_ERROR_NOT_SUPPORTED);
  /* Resetting a capture into the body leaves the body usable. */
  CHECK_OK(plinth_graph_capture_begin(body, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_graph_reset(body));
  CHECK(!capturing_here());
  CHECK_OK(plinth_graph_capture_begin(body, NULL, PLINTH_CAPTURE_GLOBAL));
  fill_words(memory, 3, sizeof *memory, stream);
  CHECK_OK(plinth_graph_capture_end(body));
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  CHECK_EQ(word(memory), 3);
  /* The graph can be destroyed during a capture into its body. */
  CHECK_OK(plinth_graph_capture_begin(body, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK(!capturing_here());
  CHECK_OK(plinth_device_free(memory));
}
