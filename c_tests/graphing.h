/*
 * Helpers of the graph tests: creating graphs, and reading their memory.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef GRAPHING_H
#define GRAPHING_H

#include "allocating.h"

static inline plinth_graph_t new_graph(uint32_t flags) {
  plinth_graph_t graph = NULL;
  CHECK_OK(plinth_graph_create(&graph));
  CHECK(graph != NULL);
  CHECK_OK(plinth_graph_set_flags(graph, flags));
  return graph;
}

/* Creates a stream of a device and makes it current: a capture needs a stream other than the default one. */
static inline plinth_stream_t on_new_stream(int32_t device) {
  plinth_stream_t stream = stream_on(device);
  CHECK_OK(plinth_set_stream(stream));
  return stream;
}

static inline plinth_pool_id_t pool_of_graph(plinth_graph_t graph) {
  plinth_pool_id_t pool = {0, 0};
  CHECK_OK(plinth_graph_pool(graph, &pool));
  return pool;
}

static inline plinth_pool_id_t shared_pool(void) {
  plinth_pool_id_t pool = {0, 0};
  CHECK_OK(plinth_graph_pool_handle(&pool));
  return pool;
}

static inline size_t graph_allocated(plinth_graph_t graph) {
  size_t allocated_bytes = UNTOUCHED;
  size_t held = UNTOUCHED;
  CHECK_OK(plinth_graph_memory(graph, &allocated_bytes, &held));
  return allocated_bytes;
}

static inline size_t graph_held(plinth_graph_t graph) {
  size_t allocated_bytes = UNTOUCHED;
  size_t held = UNTOUCHED;
  CHECK_OK(plinth_graph_memory(graph, &allocated_bytes, &held));
  return held;
}

static inline bool capturing_here(void) {
  bool capturing = false;
  CHECK_OK(plinth_is_current_stream_capturing(&capturing));
  return capturing;
}

/* Captures a graph, in the current stream, that fills memory with a word. */
static inline plinth_graph_t graph_of_fill(void *memory, uint32_t word, size_t bytes, plinth_stream_t stream,
                                           uint32_t flags) {
  plinth_graph_t graph = new_graph(flags);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  fill_words(memory, word, bytes, stream);
  CHECK_OK(plinth_graph_capture_end(graph));
  return graph;
}

static inline void finish(plinth_stream_t stream) { CHECK_OK(plinth_stream_synchronize(stream)); }

#endif
