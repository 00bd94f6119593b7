/*!
 * @file plinth_sanitizer.hpp
 * @brief The stream sanitizer in C++17. plinth.hpp includes it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_SANITIZER_HPP
#define PLINTH_SANITIZER_HPP

#include "plinth_callbacks.hpp"
#include "plinth_core.hpp"
#include "plinth_graph.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {

/*! The stream sanitizer: declarations of the program's own accesses, and reports. */
namespace sanitizer {

/*! The sanitizer is off; or findings are stored; or the callback is called as well; or calls fail as well. */
enum class Mode : std::int32_t {
  off = PLINTH_SANITIZER_OFF,
  collect = PLINTH_SANITIZER_COLLECT,
  warn = PLINTH_SANITIZER_WARN,
  error = PLINTH_SANITIZER_ERROR
};

inline Mode mode() { return static_cast<Mode>(detail::output<std::int32_t>(plinth_sanitizer_mode)); }
inline void enable(Mode mode = Mode::warn) { check(plinth_sanitizer_enable(static_cast<std::int32_t>(mode))); }
inline void disable() { check(plinth_sanitizer_disable()); }

/*! Sets a mode for the lifetime of the object, then restores the previous one. Reports are kept. */
class Guard {
 public:
  explicit Guard(Mode during = Mode::collect) : previous_(mode()) {
    plinth::detail::acquire([&] { return plinth_sanitizer_enable(static_cast<std::int32_t>(during)); });
  }
  ~Guard() { static_cast<void>(plinth_sanitizer_enable(static_cast<std::int32_t>(previous_))); }
  Guard(const Guard &) = delete;
  Guard &operator=(const Guard &) = delete;

 private:
  Mode previous_;
};

/* ---- What the program tells ---- */

/*! A range of bytes, and how an operation accesses it. */
using Access = plinth_sanitizer_access_t;

inline Access reads(const void *pointer, std::size_t bytes) noexcept {
  return {sizeof(Access), pointer, bytes, PLINTH_SANITIZER_READ, 0};
}
inline Access writes(const void *pointer, std::size_t bytes) noexcept {
  return {sizeof(Access), pointer, bytes, PLINTH_SANITIZER_WRITE, 0};
}
inline Access reads_and_writes(const void *pointer, std::size_t bytes) noexcept {
  return {sizeof(Access), pointer, bytes, PLINTH_SANITIZER_READ | PLINTH_SANITIZER_WRITE, 0};
}

/*! Declares an access of a kernel that is about to be launched: `access(reads(memory, bytes), stream)`. */
inline void access(const Access &access, StreamView stream = StreamView::current()) {
  check(plinth_sanitizer_access(access.pointer, access.bytes, access.kind, stream.get()));
}
/*! Declares a named operation: `operation("scale", {reads(x, n), writes(y, n)}, stream)`. */
inline void operation(const char *name, std::initializer_list<Access> accesses, StreamView stream = StreamView::current()) {
  check(plinth_sanitizer_operation(name, accesses.begin(), accesses.size(), stream.get()));
}
/*! The same with the accesses in any contiguous container. */
template <class Accesses>
void operation(const char *name, const Accesses &accesses, StreamView stream = StreamView::current()) {
  check(plinth_sanitizer_operation(name, std::data(accesses), std::size(accesses), stream.get()));
}
/*! Declares what a node of an explicitly built graph accesses at each replay. */
inline void graph_operation(GraphView graph, plinth_graph_node_t node, const char *name,
                            std::initializer_list<Access> accesses) {
  check(plinth_sanitizer_graph_operation(graph.get(), node, name, accesses.begin(), accesses.size()));
}
template <class Accesses>
void graph_operation(GraphView graph, plinth_graph_node_t node, const char *name, const Accesses &accesses) {
  check(plinth_sanitizer_graph_operation(graph.get(), node, name, std::data(accesses), std::size(accesses)));
}
/*! Declares an operation that the CPU performs now. */
inline void host_operation(const char *name, std::initializer_list<Access> accesses) {
  check(plinth_sanitizer_host_operation(name, accesses.begin(), accesses.size()));
}
template <class Accesses>
void host_operation(const char *name, const Accesses &accesses) {
  check(plinth_sanitizer_host_operation(name, std::data(accesses), std::size(accesses)));
}
/*! Declares that later work of `stream` waits for the present work of `other`, by a mechanism that the sanitizer
 *  does not observe. */
inline void wait_stream(StreamView stream, StreamView other) {
  check(plinth_sanitizer_wait_stream(stream.get(), other.get()));
}
inline void stream_done(StreamView stream) { check(plinth_sanitizer_stream_done(stream.get())); }

/* ---- What the sanitizer tells ---- */

using Report = plinth_sanitizer_report_t;

/*! The number of stored reports, and of all findings. */
struct Count {
  std::size_t reports;
  std::uint64_t findings;
};

inline Count count() {
  Count found{};
  check(plinth_sanitizer_count(&found.reports, &found.findings));
  return found;
}
/*! Calls `visitor(const Report &)` for each report, in the order in which they were found. An exception that it
 *  throws ends the iteration and is rethrown. */
template <class Visitor>
void each(Visitor &&visitor) {
  using Visit = detail::Visit<std::remove_reference_t<Visitor>>;
  Visit visit(visitor);
  const auto show = [](const plinth_sanitizer_report_t *report, void *context) { Visit::of(context).show(*report); };
  visit.finish(plinth_sanitizer_each(show, &visit));
}
/*! All reports as text. */
inline std::string text() { return detail::text(plinth_sanitizer_text); }
inline std::string json() { return detail::text(plinth_sanitizer_json); }
/*! Discards all reports. */
inline void clear() { check(plinth_sanitizer_clear()); }

/*! Sets the callback for new reports, in the modes warn and error: `function(const Report *)`; an empty function
 *  removes it. It may be called by several threads at once, may call the library, and must not throw. A call that is
 *  in progress when the function is replaced still completes; the function is destroyed afterwards. */
inline void set_callback(std::function<void(const Report *)> function) {
  detail::Listener<const Report *>::set(std::move(function), plinth_sanitizer_set_callback);
}

}  // namespace sanitizer

}  // namespace plinth

#endif

#endif /* PLINTH_SANITIZER_HPP */
