/*!
 * @file plinth_graph_build.hpp
 * @brief Explicitly built graphs in C++17: nodes, and conditions that the device evaluates. plinth.hpp includes it.
 *
 * A graph argument is a Graph, or the GraphView of a conditional node's body.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_GRAPH_BUILD_HPP
#define PLINTH_GRAPH_BUILD_HPP

#include "plinth_core.hpp"
#include "plinth_graph.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {

/*! A node. The `after` arguments list the nodes of the same graph that a new node depends on. */
using GraphNode = plinth_graph_node_t;
using GraphNodes = std::vector<GraphNode>;

/*! The type of a node; CUDA may add more. */
enum class GraphNodeType : std::uint32_t {
  kernel = PLINTH_GRAPH_NODE_KERNEL,
  copy = PLINTH_GRAPH_NODE_MEMCPY,
  fill = PLINTH_GRAPH_NODE_MEMSET,
  host = PLINTH_GRAPH_NODE_HOST,
  graph = PLINTH_GRAPH_NODE_GRAPH,
  empty = PLINTH_GRAPH_NODE_EMPTY,
  wait_event = PLINTH_GRAPH_NODE_WAIT_EVENT,
  event_record = PLINTH_GRAPH_NODE_EVENT_RECORD,
  conditional = PLINTH_GRAPH_NODE_CONDITIONAL
};

/*! Creates a graph without nodes, to be built with the add_ functions. */
inline Graph empty_graph(std::int32_t device = -1) {
  return Graph::adopt(
      detail::output<plinth_graph_t>([&](plinth_graph_t *out) { return plinth_graph_create_empty(device, out); }));
}

/* ---- Nodes ---- */

inline GraphNode add_kernel(GraphView graph, const GraphNodes &after, const plinth_graph_kernel_t &kernel) {
  return detail::output<GraphNode>([&](GraphNode *out) {
    return plinth_graph_add_kernel(graph.get(), after.data(), after.size(), &kernel, out);
  });
}
inline GraphNode add_copy(GraphView graph, const GraphNodes &after, void *destination, const void *source,
                          std::size_t bytes) {
  return detail::output<GraphNode>([&](GraphNode *out) {
    return plinth_graph_add_copy(graph.get(), after.data(), after.size(), destination, source, bytes, out);
  });
}
/*! Fills memory with `count` copies of a value of 1, 2 or 4 bytes. */
template <class T>
GraphNode add_fill(GraphView graph, const GraphNodes &after, T *destination, const T &value, std::size_t count) {
  static_assert(std::is_trivially_copyable<T>::value, "the pattern must be trivially copyable");
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4, "the pattern must have 1, 2 or 4 bytes");
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return detail::output<GraphNode>([&](GraphNode *out) {
    return plinth_graph_add_fill(graph.get(), after.data(), after.size(), destination, bits, sizeof(T), count, out);
  });
}
/*! Adds a host function that is called at each replay. It is not copied: it must stay valid as long as the graph may
 *  run. An exception is thrown by a later call of a function of plinth.hpp, in any thread. */
template <class Function>
GraphNode add_host(GraphView graph, const GraphNodes &after, Function &function) {
  static_assert(!std::is_function<Function>::value, "wrap a plain function in a lambda, and keep that");
  const auto call = [](void *context) noexcept {
    detail::CallbackExceptions::run(detail::any_thread, *static_cast<Function *>(context));
  };
  return detail::output<GraphNode>([&](GraphNode *out) {
    return plinth_graph_add_host(graph.get(), after.data(), after.size(), call,
                                 const_cast<std::remove_const_t<Function> *>(&function), out);
  });
}
inline GraphNode add_child(GraphView graph, const GraphNodes &after, const Graph &child) {
  return detail::output<GraphNode>([&](GraphNode *out) {
    return plinth_graph_add_child(graph.get(), after.data(), after.size(), child.get(), out);
  });
}
inline GraphNode add_empty(GraphView graph, const GraphNodes &after) {
  return detail::output<GraphNode>(
      [&](GraphNode *out) { return plinth_graph_add_empty(graph.get(), after.data(), after.size(), out); });
}
/*! The event must stay valid as long as the graph may run; the same applies to add_event_wait. */
inline GraphNode add_event_record(GraphView graph, const GraphNodes &after, Event &event) {
  return detail::output<GraphNode>([&](GraphNode *out) {
    return plinth_graph_add_event_record(graph.get(), after.data(), after.size(), event.get(), out);
  });
}
inline GraphNode add_event_wait(GraphView graph, const GraphNodes &after, const Event &event) {
  return detail::output<GraphNode>([&](GraphNode *out) {
    return plinth_graph_add_event_wait(graph.get(), after.data(), after.size(), event.get(), out);
  });
}
/*! Makes `to` depend on `from`. */
inline void add_dependency(GraphView graph, GraphNode from, GraphNode to) {
  check(plinth_graph_add_dependency(graph.get(), from, to));
}

/* ---- What there is, and how it is changed ---- */

inline GraphNodes nodes(GraphView graph) {
  GraphNodes found;
  std::size_t count = 0;
  check(plinth_graph_nodes(graph.get(), nullptr, 0, &count));
  found.resize(count);
  check(plinth_graph_nodes(graph.get(), found.data(), found.size(), &count));
  return found;
}
inline GraphNodeType node_type(GraphView graph, GraphNode node) {
  return static_cast<GraphNodeType>(detail::output<std::uint32_t>(
      [&](std::uint32_t *out) { return plinth_graph_node_type(graph.get(), node, out); }));
}
/*! The launch parameters of a kernel node. They belong to the graph. */
inline plinth_graph_kernel_t node_kernel(GraphView graph, GraphNode node) {
  return detail::sized_output<plinth_graph_kernel_t>(
      [&](plinth_graph_kernel_t *out) { return plinth_graph_node_get_kernel(graph.get(), node, out); });
}
/*! Changes the executable graph, for all following replays; so does set_node_enabled. */
inline void set_kernel(GraphView graph, GraphNode node, const plinth_graph_kernel_t &kernel) {
  check(plinth_graph_node_set_kernel(graph.get(), node, &kernel));
}
inline void set_node_enabled(GraphView graph, GraphNode node, bool enabled) {
  check(plinth_graph_node_set_enabled(graph.get(), node, enabled));
}
inline bool node_enabled(GraphView graph, GraphNode node) {
  return detail::output<bool>([&](bool *out) { return plinth_graph_node_get_enabled(graph.get(), node, out); });
}
/*! Measures the times of a graph's nodes; see plinth_graph_node_times. */
inline std::vector<plinth_node_time_t> node_times(GraphView graph, std::uint32_t repeats = 10) {
  // Allocates one element per node: a call for the count alone would measure too.
  std::vector<plinth_node_time_t> times(nodes(graph).size(), PLINTH_NODE_TIME_INIT);
  std::size_t count = 0;
  check(plinth_graph_node_times(graph.get(), repeats, times.data(), times.size(), &count));
  times.resize(count < times.size() ? count : times.size());
  return times;
}
/*! Measures the times of a graph's nodes, and returns them as a table. */
inline std::string time_table(GraphView graph, std::uint32_t repeats = 10) {
  return detail::text([&](char **out) { return plinth_graph_time_table(graph.get(), repeats, out); });
}

/* ---- Conditions ---- */

/*! The condition of a conditional node; pass it to kernels as a cudaGraphConditionalHandle. */
using GraphCondition = plinth_graph_condition_t;

/*! A conditional node, and its body. */
struct ConditionalNode {
  GraphNode node;
  GraphView body;
};
struct IfElseNode {
  GraphNode node;
  GraphView then_body;
  GraphView else_body;
};
struct SwitchNode {
  GraphNode node;
  std::vector<GraphView> bodies;
};

inline GraphCondition make_condition(GraphView graph, std::uint32_t default_value = 0) {
  return detail::output<GraphCondition>(
      [&](GraphCondition *out) { return plinth_graph_condition_create(graph.get(), default_value, out); });
}
/*! Fill the body with the add_ functions, or with GraphCapture; the same applies to add_while and add_switch. */
inline ConditionalNode add_if(GraphView graph, const GraphNodes &after, GraphCondition condition) {
  plinth_graph_t body = nullptr;
  GraphNode node = nullptr;
  detail::acquire([&] {
    return plinth_graph_add_if(graph.get(), after.data(), after.size(), condition, &body, &node);
  });
  return {node, GraphView(body)};
}
inline IfElseNode add_if_else(GraphView graph, const GraphNodes &after, GraphCondition condition) {
  plinth_graph_t then_body = nullptr;
  plinth_graph_t else_body = nullptr;
  GraphNode node = nullptr;
  detail::acquire([&] {
    return plinth_graph_add_if_else(graph.get(), after.data(), after.size(), condition, &then_body, &else_body, &node);
  });
  return {node, GraphView(then_body), GraphView(else_body)};
}
/*! The body is repeated while the condition is not 0. */
inline ConditionalNode add_while(GraphView graph, const GraphNodes &after, GraphCondition condition) {
  plinth_graph_t body = nullptr;
  GraphNode node = nullptr;
  detail::acquire([&] {
    return plinth_graph_add_while(graph.get(), after.data(), after.size(), condition, &body, &node);
  });
  return {node, GraphView(body)};
}
/*! Executes the body whose index equals the condition. */
inline SwitchNode add_switch(GraphView graph, const GraphNodes &after, GraphCondition condition, std::size_t count) {
  std::vector<plinth_graph_t> bodies(count);
  GraphNode node = nullptr;
  detail::acquire([&] {
    return plinth_graph_add_switch(graph.get(), after.data(), after.size(), condition, bodies.data(), count, &node);
  });
  return {node, std::vector<GraphView>(bodies.begin(), bodies.end())};
}
/*! Sets a condition to the 32-bit value that is in device memory when the node runs. */
inline GraphNode add_condition_set(GraphView graph, const GraphNodes &after, GraphCondition condition,
                                   const void *value) {
  return detail::output<GraphNode>([&](GraphNode *out) {
    return plinth_graph_add_condition_set(graph.get(), after.data(), after.size(), condition, value, out);
  });
}
/*! Sets a condition from device memory, in a capturing stream. */
inline void condition_set_from(GraphCondition condition, const void *value, StreamView stream = StreamView::current()) {
  check(plinth_graph_condition_set_from(condition, value, stream.get()));
}

}  // namespace plinth

#endif

#endif /* PLINTH_GRAPH_BUILD_HPP */
