// Graphs by plinth.hpp: capture guards that restore the state also after exceptions.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "graphing.h"

#include <plinth.hpp>

#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

static_assert(!std::is_copy_constructible<plinth::Graph>::value, "a graph copied");
static_assert(std::is_nothrow_move_constructible<plinth::Graph>::value, "a graph moved");
static_assert(!std::is_copy_constructible<plinth::GraphCapture>::value, "a guard copied");

static const std::size_t bytes = 64 * KIB;

TEST(a_guard_captures) {
  const plinth::Stream stream;
  const plinth::StreamGuard guard(stream);
  void *const memory = alloc_on(bytes, 0, stream);
  void *const pinned = pinned_memory(bytes);
  plinth::Graph graph;
  {
    plinth::GraphCapture block(graph);
    CHECK(plinth::is_current_stream_capturing());
    CHECK(plinth::current_stream() != stream);
    fill_words(memory, 4, bytes, plinth::current_stream());
    block.end();
    /* The second end does not restore the stream again. */
    const plinth::Stream later;
    const plinth::StreamGuard inner(later);
    plinth_status_t status = PLINTH_OK;
    try {
      block.end();
    } catch (const plinth::Error &error) {
      status = error.status();
    }
    CHECK_EQ(status, PLINTH_ERROR_INVALID_VALUE);
    CHECK(plinth::current_stream() == later);
  }
  CHECK(plinth::current_stream() == stream);
  graph.replay();
  CHECK(has_words(memory, 4, bytes, stream, pinned));
  graph.reset();
  plinth::capture(graph, [&] { fill_words(memory, 5, bytes, plinth::current_stream()); });
  plinth::Graph moved(std::move(graph));
  CHECK(graph.get() == nullptr);
  moved.replay();
  CHECK(has_words(memory, 5, bytes, stream, pinned));
  moved.reset();
  release(memory);
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

TEST(each_replay_calls_a_captured_function) {
  int calls = 0;
  plinth::Graph graph;
  plinth::capture(graph, [&] {
    // The text is longer than what a string has room for in itself.
    plinth::current_stream().launch([&calls, text = std::string(100, 'x')] { calls += text == std::string(100, 'x'); });
  });
  CHECK_EQ(calls, 0);
  for (int round = 0; round < 3; round++) graph.replay();
  plinth::synchronize();
  CHECK_EQ(calls, 3);
}

TEST(an_exception_of_the_body_is_passed_on) {
  const plinth::Stream stream;
  const plinth::StreamGuard guard(stream);
  plinth::Graph graph;
  bool caught = false;
  try {
    plinth::capture(graph, [&] {
      plinth::current_stream().sleep(1);
      throw std::logic_error("of the body");
    });
  } catch (const std::logic_error &error) {
    caught = std::string(error.what()) == "of the body";
  }
  CHECK(caught);
  CHECK(plinth::current_stream() == stream && !plinth::is_current_stream_capturing());
  caught = false;
  try {
    plinth::capture(graph, [&] {
      plinth::current_stream().sleep(1);
      plinth::current_stream().synchronize();
    });
  } catch (const plinth::Error &error) {
    caught = error.status() == PLINTH_ERROR_CAPTURE_FORBIDS;
    CHECK(std::string(error.what()).find("synchronizing stream") != std::string::npos);
  }
  CHECK(caught);
  CHECK(plinth::current_stream() == stream && !plinth::is_current_stream_capturing());
  plinth::capture(graph, [] {});
  graph.replay();
  graph.reset();
  CHECK(plinth::current_stream() == stream);
  plinth::capture(graph, [&] { plinth::current_stream().sleep(1); });
  graph.replay();
  stream.synchronize();
  expect_nothing_left();
}

TEST(properties_of_a_graph) {
  const plinth::Stream stream;
  const plinth::StreamGuard guard(stream);
  plinth::Graph graph(true);
  const plinth_pool_id_t pool = plinth::graph_pool_handle();
  void *inside = nullptr;
  plinth::capture(
      graph,
      [&] {
        inside = alloc_on(MIB, 0, plinth::current_stream());
        plinth::memset(inside, 1, MIB);
      },
      pool, stream, plinth::CaptureMode::relaxed);
  CHECK_EQ(graph.pool().index, pool.index);
  CHECK_EQ(graph.memory().allocated, MIB);
  CHECK(graph.native() != nullptr);
  graph.instantiate();
  CHECK(graph.exec_native() != nullptr);
  CHECK(graph.summary().find("memset") != std::string::npos);
  graph.set_overlap_policy(plinth::Overlap::refuse);
  plinth::Graph copy = graph.clone();
  copy.upload();
  copy.update(graph);
  copy.replay();
  graph.sleep();
  CHECK(graph.is_asleep() && copy.is_asleep() && graph.memory().held == 0);
  copy.wake();
  graph.replay();
  stream.synchronize();
  release(inside);
}
