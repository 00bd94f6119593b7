/*
 * Explicit graph construction: a graph is built node by node, and the device decides how often a part of it runs.
 *
 *   gcc 03-graph.c -lplinth && PLINTH_DEVICE=host ./a.out
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#include <plinth.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                     \
  do {                                                                  \
    if ((call) != PLINTH_OK) {                                          \
      fprintf(stderr, "%s: %s\n", #call, plinth_last_error());          \
      exit(1);                                                          \
    }                                                                   \
  } while (0)

enum { COUNT = 1024, ROUNDS = 4 };

int main(void) {
  plinth_graph_t graph;
  plinth_graph_t body;
  plinth_graph_node_t fill;
  plinth_graph_node_t copy;
  plinth_graph_node_t loop;
  plinth_graph_node_t step;
  plinth_graph_node_t set;
  plinth_graph_condition_t condition;
  plinth_status_t status;
  uint32_t countdown[ROUNDS + 1] = {1, 1, 1, 0, 0};
  uint32_t result = 0;
  uint32_t *data;
  uint32_t *other;
  uint32_t *flags;
  char *table;
  CHECK(plinth_device_malloc(COUNT * sizeof *data, -1, (void **)&data));
  CHECK(plinth_device_malloc(COUNT * sizeof *other, -1, (void **)&other));
  CHECK(plinth_device_malloc(sizeof countdown, -1, (void **)&flags));

  /* 1. Two nodes; the second depends on the first. */
  CHECK(plinth_graph_create_empty(-1, &graph));
  CHECK(plinth_graph_add_fill(graph, NULL, 0, data, 42, sizeof *data, COUNT, &fill));
  CHECK(plinth_graph_add_copy(graph, &fill, 1, other, data, COUNT * sizeof *data, &copy));
  CHECK(plinth_graph_instantiate(graph));
  CHECK(plinth_graph_replay(graph));
  CHECK(plinth_memcpy(&result, other + COUNT - 1, sizeof result, NULL));
  CHECK(plinth_synchronize(-1));
  printf("the last word is %u\n", (unsigned)result);

  /* 2. A table of the nodes' times. Measuring runs them. */
  CHECK(plinth_graph_time_table(graph, 5, &table));
  fputs(table, stdout);
  plinth_string_free(table);
  CHECK(plinth_graph_destroy(graph));

  /* 3. A loop that the device ends: each round shifts the flags down by one, until the first one is 0. */
  CHECK(plinth_graph_create_empty(-1, &graph));
  status = plinth_graph_condition_create(graph, 1, &condition);
  if (status == PLINTH_ERROR_NOT_SUPPORTED) {
    printf("loops are not supported: %s\n", plinth_last_error());
  } else {
    CHECK(status);
    CHECK(plinth_graph_add_while(graph, NULL, 0, condition, &body, &loop));
    CHECK(plinth_graph_add_copy(body, NULL, 0, other, flags + 1, ROUNDS * sizeof *flags, &step));
    CHECK(plinth_graph_add_copy(body, &step, 1, flags, other, ROUNDS * sizeof *flags, &step));
    CHECK(plinth_graph_add_condition_set(body, &step, 1, condition, flags, &set));
    CHECK(plinth_memcpy(flags, countdown, sizeof countdown, NULL));
    CHECK(plinth_graph_replay(graph));
    CHECK(plinth_memcpy(&result, flags, sizeof result, NULL));
    CHECK(plinth_synchronize(-1));
    printf("the loop ended with %u\n", (unsigned)result);
  }
  CHECK(plinth_graph_destroy(graph));
  CHECK(plinth_device_free(data));
  CHECK(plinth_device_free(other));
  CHECK(plinth_device_free(flags));
  return 0;
}
