// plinth_sanitizer.hpp: operations that the program reports, reports of races, and callbacks.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
// alone: ordered_accesses_are_clean; expects what only a fresh process has

#include "wrapping.h"

#include <array>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

namespace sanitizer = plinth::sanitizer;
using sanitizer::Mode;

static_assert(is_block<sanitizer::Guard>(), "a block");

// One stream writes memory that another stream reads.
struct Race {
  void run() {
    sanitizer::operation("fill", {sanitizer::writes(memory.get(), 4096)}, first);
    sanitizer::operation("sum", {sanitizer::reads(memory.get(), 4096)}, second);
  }

  plinth::Stream first, second;
  plinth::DeviceMemory memory = plinth::device_malloc(4096);
};

TEST(guards_restore_the_mode) {
  CHECK(sanitizer::mode() == Mode::off);
  sanitizer::enable(Mode::collect);
  try {
    const sanitizer::Guard guard(Mode::error);
    CHECK(sanitizer::mode() == Mode::error);
    throw 1;
  } catch (int) {
  }
  CHECK(sanitizer::mode() == Mode::collect);
  sanitizer::disable();
  {
    const sanitizer::Guard guard;
    CHECK(sanitizer::mode() == Mode::collect);
  }
  CHECK(sanitizer::mode() == Mode::off);
  THROWS(sanitizer::enable(static_cast<Mode>(17)), PLINTH_ERROR_INVALID_VALUE);
}

__attribute__((noinline)) static void clear_buffer(plinth::DeviceBuffer &buffer, plinth::StreamView stream) {
  plinth::memset(buffer.get(), 0, buffer.size(), stream);
}

// The innermost functions on both stacks are plinth's own.
TEST(an_error_names_the_function_of_the_program) {
  const plinth::Stream first, second;
  plinth::DeviceBuffer buffer(4096, first);
  const sanitizer::Guard guard(Mode::error);
  clear_buffer(buffer, first);
  THROWS(clear_buffer(buffer, second), PLINTH_ERROR_RACE);
  CHECK(caught_text().find("; the access is in clear_buffer(plinth::DeviceBuffer&, plinth::StreamView) (") !=
        std::string::npos);
  CHECK(caught_text().find("; the earlier access is in clear_buffer(") != std::string::npos);
  CHECK(caught_text().find("sanitizer_wrapper.cpp:") != std::string::npos);
  CHECK(caught_text().find("plinth_core.hpp") == std::string::npos);
  sanitizer::clear();
  first.synchronize();
}

TEST(races_are_reported) {
  Race race;
  const sanitizer::Guard guard;
  race.run();
  CHECK(sanitizer::count().reports == 1 && sanitizer::count().findings == 1);
  int seen = 0;
  sanitizer::each([&](const sanitizer::Report &report) {
    seen++;
    CHECK(report.kind == PLINTH_SANITIZER_RACE && report.missing == PLINTH_SANITIZER_MISSING_WAIT);
    CHECK(report.bytes == 4096 && report.address == reinterpret_cast<std::uintptr_t>(race.memory.get()));
    CHECK_TEXT(report.access->name, "sum");
    CHECK_TEXT(report.previous->name, "fill");
    CHECK(report.access->kind == PLINTH_SANITIZER_READ && report.previous->kind == PLINTH_SANITIZER_WRITE);
    CHECK(report.access->stream == race.second.get() && report.previous->stream == race.first.get());
  });
  CHECK_EQ(seen, 1);
  CHECK(sanitizer::text().find("\"sum\"") != std::string::npos);
  CHECK(sanitizer::json().find("\"kind\": \"race\"") != std::string::npos ||
        sanitizer::json().find("\"kind\":\"race\"") != std::string::npos);
  THROWS_TYPE(sanitizer::each([](const sanitizer::Report &) { throw std::logic_error("enough"); }), std::logic_error);
  sanitizer::clear();
  CHECK(sanitizer::count().reports == 0 && sanitizer::text().empty());
}

TEST(operations_of_graph_nodes_can_be_declared) {
  const sanitizer::Guard guard(sanitizer::Mode::collect);
  const plinth::Stream here, there;
  unsigned char bytes[64] = {0};
  plinth::Graph graph = plinth::empty_graph();
  auto nothing = []() noexcept {};
  const plinth::GraphNode node = plinth::add_host(graph, {}, nothing);
  sanitizer::graph_operation(graph, node, "scale", {sanitizer::writes(bytes, 16)});
  graph.instantiate();
  sanitizer::operation("sum", {sanitizer::reads(bytes + 8, 8)}, there);
  const plinth::StreamGuard current(here);
  graph.replay();
  CHECK_EQ(sanitizer::count().reports, 1);
  CHECK(sanitizer::text().find("scale") != std::string::npos);
  plinth::synchronize();
}

TEST(ordered_accesses_are_clean) {
  Race race;
  const sanitizer::Guard guard;
  sanitizer::access(sanitizer::writes(race.memory.get(), 4096), race.first);
  race.second.wait(race.first);
  sanitizer::access(sanitizer::reads_and_writes(race.memory.get(), 4096), race.second);
  // Report a wait that the sanitizer does not see.
  sanitizer::wait_stream(race.first, race.second);
  sanitizer::access(sanitizer::writes(race.memory.get(), 4096), race.first);
  const plinth::HostMemory pinned = plinth::host_alloc(64);
  const std::array<sanitizer::Access, 2> both{sanitizer::reads(race.memory.get(), 64), sanitizer::writes(pinned.get(), 64)};
  sanitizer::operation("copy", both, race.first);
  sanitizer::stream_done(race.first);
  sanitizer::host_operation("look", {sanitizer::reads(pinned.get(), 64)});
  CHECK_EQ(sanitizer::count().reports, 0);
  sanitizer::operation("copy", both, race.first);
  sanitizer::host_operation("look", std::vector<sanitizer::Access>{sanitizer::reads(pinned.get(), 64)});
  CHECK_EQ(sanitizer::count().reports, 1);
}

TEST(calls_fail_in_error_mode) {
  Race race;
  const sanitizer::Guard guard(Mode::error);
  THROWS(race.run(), PLINTH_ERROR_RACE);
  CHECK(caught_text().find("sum") != std::string::npos);
  // The refused operation was not recorded: after the wait it is correct.
  race.second.wait(race.first);
  sanitizer::operation("sum", {sanitizer::reads(race.memory.get(), 4096)}, race.second);
}

TEST(any_callable_can_be_a_callback) {
  Race race;
  const sanitizer::Guard guard(Mode::warn);
  auto names = std::make_shared<std::vector<std::string>>();
  sanitizer::set_callback([names](const sanitizer::Report *report) { names->push_back(report->access->name); });
  CHECK_EQ(names.use_count(), 2);
  race.run();
  CHECK(*names == std::vector<std::string>{"sum"});
  // A callback that replaces another, and removes itself while it is called.
  int calls = 0;
  auto counter = std::make_shared<int>(5);
  sanitizer::set_callback([&calls, counter](const sanitizer::Report *) {
    sanitizer::set_callback(nullptr);
    calls += *counter;
  });
  CHECK_EQ(names.use_count(), 1);
  sanitizer::clear();
  race.first.wait(race.second);
  race.run();
  CHECK(calls == 5 && names->size() == 1 && counter.use_count() == 1);
  sanitizer::clear();
  race.first.wait(race.second);
  race.run();
  CHECK(calls == 5 && sanitizer::count().reports == 1);
  sanitizer::set_callback({});
}
