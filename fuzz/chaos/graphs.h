// Graphs that several threads replay, and whose memory is released and allocated again.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "memory.h"

constexpr int GRAPHS = 6;
constexpr size_t GRAPH_BYTES = 2 * KIB;

// A graph that writes a tag into a block of its pool.
struct Graph {
  std::atomic<bool> taken{false};
  plinth_graph_t graph = nullptr;
  unsigned char *inside = nullptr;
  uint32_t tag = 0;
  bool asleep = false;
};

inline Graph graphs[GRAPHS];

inline void destroy_graph(Graph &graph) {
  begin(OP_destroy_graph, reinterpret_cast<uint64_t>(graph.graph));
  RETRY(plinth_graph_destroy(graph.graph));
  if (graph.inside != nullptr) {
    release_memory(graph.inside);
  }
  graph.graph = nullptr;
  graph.inside = nullptr;
  graph.asleep = false;
}

// Captures a graph, in a pool of its own or in the given one.
inline void capture(Worker &worker, Graph &graph, const plinth_pool_id_t *pool = nullptr) {
  const int32_t mode = worker.random.one_in(2) ? PLINTH_CAPTURE_THREAD_LOCAL : PLINTH_CAPTURE_RELAXED;
  begin(OP_capture, static_cast<uint64_t>(mode));
  plinth_graph_context_t context{};
  if (!TRY(plinth_graph_create(&graph.graph))) {
    graph.graph = nullptr;
    return;
  }
  if (!TRY(plinth_graph_begin(graph.graph, pool, nullptr, mode, &context),
           {has_segments ? PLINTH_ERROR_OUT_OF_MEMORY : PLINTH_OK})) {
    destroy_graph(graph);
    return;
  }
  graph.tag = static_cast<uint32_t>(worker.random.next());
  void *inside = nullptr, *passing = nullptr;
  bool complete = TRY(plinth_caching_allocator_alloc(GRAPH_BYTES, 0, PLINTH_STREAM_CURRENT, &inside),
                      {PLINTH_ERROR_OUT_OF_MEMORY});
  graph.inside = static_cast<unsigned char *>(inside);
  if (complete && TRY(plinth_caching_allocator_alloc(random_size(worker.random), 0, PLINTH_STREAM_CURRENT, &passing),
                      {PLINTH_ERROR_OUT_OF_MEMORY})) {
    (void)TRY(plinth_memset(passing, 1, 16, PLINTH_STREAM_CURRENT));
    release_memory(passing);
  }
  complete = complete && TRY(plinth_memset_pattern(inside, &graph.tag, 4, GRAPH_BYTES, PLINTH_STREAM_CURRENT));
  if (!TRY(plinth_graph_end(&context, complete ? PLINTH_OK : PLINTH_ERROR_OUT_OF_MEMORY), {PLINTH_ERROR_OUT_OF_MEMORY})) {
    destroy_graph(graph);
  }
}

inline void replay(Worker &worker, Graph &graph) {
  const int stream = static_cast<int>(worker.random.below(STREAMS));
  const uint32_t before = ~graph.tag;
  begin(OP_replay, reinterpret_cast<uint64_t>(graph.graph), static_cast<uint64_t>(stream));
  const plinth_stream_t used = named(streams[0][stream], 0);
  if (!TRY(plinth_set_device(0)) || !TRY(plinth_set_stream_of(0, used))) {
    return;
  }
  if (TRY(plinth_memset_pattern(graph.inside, &before, 4, GRAPH_BYTES, used)) && TRY(plinth_graph_replay(graph.graph))) {
    Block block{graph.inside, GRAPH_BYTES, 0, stream, graph.tag, true, false};
    check_later(worker, block, streams[0][stream]);
  }
  // Another thread may replay it in another stream, or end it.
  (void)wait_for(streams[0][stream], 0);
  RETRY(plinth_set_stream_of(0, PLINTH_STREAM_DEFAULT_OF(0)));
}

inline void sleep_and_wake(Graph &graph) {
  begin(OP_sleep_and_wake, reinterpret_cast<uint64_t>(graph.graph), graph.asleep);
  if (graph.asleep) {
    (void)TRY(plinth_graph_wake(graph.graph), {PLINTH_ERROR_OUT_OF_MEMORY});
  } else {
    // Segments have no addresses of their own, so they cannot sleep.
    (void)TRY(plinth_graph_sleep(graph.graph), {PLINTH_ERROR_NOT_SUPPORTED});
  }
  // After an error a part of the memory may be released; then the graph is asleep.
  RETRY(plinth_graph_is_asleep(graph.graph, &graph.asleep));
}

inline void use_graph(Worker &worker) {
  Graph &graph = graphs[worker.random.below(GRAPHS)];
  if (graph.taken.exchange(true, std::memory_order_acquire)) {
    return;
  }
  if (graph.graph == nullptr) {
    capture(worker, graph);
  } else if (worker.random.one_in(20)) {
    destroy_graph(graph);
  } else if (graph.asleep || worker.random.one_in(10)) {
    sleep_and_wake(graph);
  } else {
    replay(worker, graph);
  }
  graph.taken.store(false, std::memory_order_release);
}
