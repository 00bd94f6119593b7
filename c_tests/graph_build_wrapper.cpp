// plinth_graph_build.hpp: building graphs, their nodes, and conditional nodes.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "graphing.h"
#include "wrapping.h"

#include <algorithm>
#include <functional>
#include <stdexcept>

static_assert(std::is_convertible<plinth::Graph &, plinth::GraphView>::value, "a graph as a view");
static_assert(!std::is_convertible<plinth::Graph, plinth::GraphView>::value, "a view of a temporary graph");
static_assert(!std::is_convertible<plinth_graph_t, plinth::GraphView>::value, "a handle as a view by accident");
static_assert(sizeof(plinth::GraphView) == sizeof(void *), "a view is a pointer");

using Words = std::vector<std::uint32_t>;
using plinth::GraphNode;
using plinth::GraphNodeType;

TEST(nodes_of_all_kinds) {
  Row<std::uint32_t> data(Words(8, 0)), copy(Words(8, 0));
  std::uint32_t *const words = data.memory.as<std::uint32_t>();
  plinth::Graph graph = plinth::empty_graph(0);
  plinth::Event before, recorded;
  before.record();
  int calls = 0;
  auto count = [&calls] { calls++; };
  const GraphNode wait = plinth::add_event_wait(graph, {}, before);
  const GraphNode fill = plinth::add_fill(graph, {wait}, words, 7u, 8);
  const GraphNode join = plinth::add_empty(graph, {});
  plinth::add_dependency(graph, fill, join);
  const GraphNode copied = plinth::add_copy(graph, {join}, copy.memory.get(), words, 32);
  const GraphNode host = plinth::add_host(graph, {copied}, count);
  const GraphNode record = plinth::add_event_record(graph, {host}, recorded);
  plinth::Graph child = plinth::empty_graph(0);
  plinth::add_fill(child, {}, words, 9u, 4);
  const GraphNode child_node = plinth::add_child(graph, {record}, child);
  THROWS(plinth::add_dependency(graph, fill, fill), PLINTH_ERROR_INVALID_VALUE);
  // This dependency exists already; the reverse one would be a cycle.
  THROWS(plinth::add_dependency(graph, join, copied), PLINTH_ERROR_INVALID_VALUE);

  const plinth::GraphNodes all = plinth::nodes(graph);
  CHECK_EQ(all.size(), 7);
  CHECK(std::find(all.begin(), all.end(), copied) != all.end());
  CHECK(plinth::node_type(graph, wait) == GraphNodeType::wait_event);
  CHECK(plinth::node_type(graph, fill) == GraphNodeType::fill);
  CHECK(plinth::node_type(graph, join) == GraphNodeType::empty);
  CHECK(plinth::node_type(graph, copied) == GraphNodeType::copy);
  CHECK(plinth::node_type(graph, host) == GraphNodeType::host);
  CHECK(plinth::node_type(graph, record) == GraphNodeType::event_record);
  CHECK(plinth::node_type(graph, child_node) == GraphNodeType::graph);
  THROWS(plinth::node_kernel(graph, fill), PLINTH_ERROR_INVALID_VALUE);

  graph.instantiate();
  graph.replay();
  recorded.synchronize();
  CHECK(copy.read() == Words(8, 7));
  CHECK(data.read() == Words({9, 9, 9, 9, 7, 7, 7, 7}));
  CHECK_EQ(calls, 1);
  plinth::set_node_enabled(graph, copied, false);
  CHECK(!plinth::node_enabled(graph, copied) && plinth::node_enabled(graph, fill));
  plinth::fill(copy.memory.as<std::uint32_t>(), 1u, 8);
  graph.replay();
  CHECK(copy.read() == Words(8, 1));
  CHECK_EQ(calls, 2);
  THROWS(plinth::set_node_enabled(graph, host, false), PLINTH_ERROR_INVALID_VALUE);
}

TEST(callables_of_any_type_are_called) {
  plinth::Graph graph = plinth::empty_graph(0);
  std::string order;
  std::function<void()> first = [&] { order += "first, "; };
  const auto second = [&] { order += "second"; };
  plinth::add_host(graph, {plinth::add_host(graph, {}, first)}, second);
  graph.instantiate();
  graph.replay();
  plinth::synchronize();
  CHECK(order == "first, second");
}

TEST(nodes_are_timed) {
  Row<std::uint32_t> data(Words(8, 0));
  plinth::Graph graph = plinth::empty_graph(0);
  const GraphNode fill = plinth::add_fill(graph, {}, data.memory.as<std::uint32_t>(), 7u, 8);
  plinth::add_empty(graph, {fill});
  const std::vector<plinth_node_time_t> times = plinth::node_times(graph, 3);
  CHECK(times.size() == 2 && times[0].node == fill && times[0].node_type == PLINTH_GRAPH_NODE_MEMSET);
  CHECK(times[0].microseconds > 0 && times[0].what[0] != '\0');
  CHECK(plinth::time_table(graph, 1).find("fill") != std::string::npos ||
        plinth::time_table(graph, 1).find("memset") != std::string::npos);
  THROWS(plinth::node_times(graph, 0), PLINTH_ERROR_INVALID_VALUE);
}

// Creates a condition. Skips the test if the driver does not support conditional nodes.
static plinth::GraphCondition condition_of(plinth::GraphView graph, std::uint32_t value) {
  try {
    return plinth::make_condition(graph, value);
  } catch (const plinth::Error &error) {
    CHECK_EQ(error.status(), PLINTH_ERROR_NOT_SUPPORTED);
    SKIP("the driver has no conditional nodes");
    throw;
  }
}

// Replays a graph whose condition is the first word, and returns the words afterwards.
static Words replay_with(plinth::Graph &graph, Row<std::uint32_t> &data, const Words &words) {
  plinth::copy(data.memory.get(), words.data(), 4 * words.size());
  graph.replay();
  return data.read();
}

TEST(if_runs_its_body_on_a_condition) {
  Row<std::uint32_t> data(Words(3, 0));
  std::uint32_t *const words = data.memory.as<std::uint32_t>();
  plinth::Graph graph = plinth::empty_graph(0);
  const plinth::GraphCondition condition = condition_of(graph, 0);
  const GraphNode set = plinth::add_condition_set(graph, {}, condition, words);
  const plinth::ConditionalNode node = plinth::add_if(graph, {set}, condition);
  CHECK(plinth::node_type(graph, node.node) == GraphNodeType::conditional);
  plinth::add_fill(node.body, {}, words + 1, 11u, 1);
  // A capture can fill a body, too. A capture that ends with an exception leaves the body unchanged.
  const plinth::Stream stream;
  THROWS_TYPE(plinth::capture(node.body, [] {
    plinth::current_stream().sleep(1);
    throw std::logic_error("of the body");
  }), std::logic_error);
  plinth::capture(node.body, [&] { plinth::fill(words + 2, 12u, 1); });
  THROWS(plinth::add_if(graph, {}, condition), PLINTH_ERROR_INVALID_VALUE);
  graph.instantiate();
  CHECK(replay_with(graph, data, {0, 1, 2}) == Words({0, 1, 2}));
  CHECK(replay_with(graph, data, {5, 1, 2}) == Words({5, 11, 12}));
}

TEST(if_else_and_switch_run_the_selected_body) {
  Row<std::uint32_t> data(Words(2, 0));
  std::uint32_t *const words = data.memory.as<std::uint32_t>();
  plinth::Graph if_else = plinth::empty_graph(0);
  plinth::GraphCondition condition = condition_of(if_else, 0);
  try {
    const plinth::IfElseNode node =
        plinth::add_if_else(if_else, {plinth::add_condition_set(if_else, {}, condition, words)}, condition);
    plinth::add_fill(node.then_body, {}, words + 1, 21u, 1);
    plinth::add_fill(node.else_body, {}, words + 1, 22u, 1);
  } catch (const plinth::Error &error) {
    CHECK_EQ(error.status(), PLINTH_ERROR_NOT_SUPPORTED);
    SKIP("the driver has no else and switch bodies");
  }
  if_else.instantiate();
  CHECK(replay_with(if_else, data, {1, 0}) == Words({1, 21}));
  CHECK(replay_with(if_else, data, {0, 0}) == Words({0, 22}));
  plinth::Graph select = plinth::empty_graph(0);
  condition = condition_of(select, 0);
  const plinth::SwitchNode node =
      plinth::add_switch(select, {plinth::add_condition_set(select, {}, condition, words)}, condition, 3);
  CHECK_EQ(node.bodies.size(), 3);
  for (std::uint32_t index = 0; index < 3; index++) plinth::add_fill(node.bodies[index], {}, words + 1, 30 + index, 1);
  select.instantiate();
  CHECK(replay_with(select, data, {2, 0}) == Words({2, 32}));
  CHECK(replay_with(select, data, {0, 0}) == Words({0, 30}));
  CHECK(replay_with(select, data, {3, 0}) == Words({3, 0}));
}

TEST(while_repeats_its_body) {
  Row<std::uint32_t> flags(Words(5, 0)), moved(Words(5, 0));
  plinth::Graph graph = plinth::empty_graph(0);
  const plinth::GraphCondition condition = condition_of(graph, 1);
  const plinth::ConditionalNode loop = plinth::add_while(graph, {}, condition);
  const auto step = plinth::add_copy(loop.body, {}, moved.memory.get(), flags.memory.as<char>() + 4, 16);
  const auto back = plinth::add_copy(loop.body, {step}, flags.memory.get(), moved.memory.get(), 16);
  plinth::add_condition_set(loop.body, {back}, condition, flags.memory.get());
  graph.instantiate();
  CHECK(replay_with(graph, flags, {1, 1, 1, 0, 8}) == Words({0, 8, 8, 8, 8}));
}

TEST(captures_can_set_conditions) {
  Row<std::uint32_t> data(Words(2, 0));
  std::uint32_t *const words = data.memory.as<std::uint32_t>();
  const plinth::Stream stream;
  const plinth::StreamGuard guard(stream);
  plinth::Graph graph(true);
  plinth::capture(graph, [&] { plinth::fill(words + 1, 1u, 1); });
  const plinth::GraphCondition condition = condition_of(graph, 1);
  const plinth::ConditionalNode loop = plinth::add_while(graph, plinth::nodes(graph), condition);
  plinth::capture(loop.body, [&] {
    plinth::fill(words + 1, 5u, 1);
    plinth::condition_set_from(condition, words);
  });
  graph.instantiate();
  CHECK(replay_with(graph, data, {0, 0}) == Words({0, 5}));
  THROWS(plinth::condition_set_from(condition, words), PLINTH_ERROR_GRAPH_NOT_CAPTURING);
}
