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

namespace plinth {

/*! What the sanitizer is told, and what it tells. */
namespace sanitizer {

/*! What becomes of what is found: nothing is looked for; it is kept; the callback is told; calls fail, too. */
enum class Mode : std::int32_t {
  off = PLINTH_SANITIZER_OFF,
  collect = PLINTH_SANITIZER_COLLECT,
  warn = PLINTH_SANITIZER_WARN,
  error = PLINTH_SANITIZER_ERROR
};

inline Mode mode() { return static_cast<Mode>(detail::output<std::int32_t>(plinth_sanitizer_mode)); }
inline void enable(Mode mode = Mode::warn) { check(plinth_sanitizer_enable(static_cast<std::int32_t>(mode))); }
inline void disable() { check(plinth_sanitizer_disable()); }

/*! A mode for as long as it lives; then the one that was before. Reports stay. */
class Guard {
 public:
  explicit Guard(Mode during = Mode::collect) : previous_(mode()) { enable(during); }
  ~Guard() { static_cast<void>(plinth_sanitizer_enable(static_cast<std::int32_t>(previous_))); }
  Guard(const Guard &) = delete;
  Guard &operator=(const Guard &) = delete;

 private:
  Mode previous_;
};

/* ---- What the program tells ---- */

/*! What an operation does to some bytes. */
using Access = plinth_sanitizer_access_t;

inline Access reads(const void *pointer, std::size_t bytes) noexcept {
  return {pointer, bytes, PLINTH_SANITIZER_READ, 0};
}
inline Access writes(const void *pointer, std::size_t bytes) noexcept {
  return {pointer, bytes, PLINTH_SANITIZER_WRITE, 0};
}
inline Access reads_and_writes(const void *pointer, std::size_t bytes) noexcept {
  return {pointer, bytes, PLINTH_SANITIZER_READ | PLINTH_SANITIZER_WRITE, 0};
}

/*! Tells of a kernel that is about to be launched: `access(reads(memory, bytes), stream)`. */
inline void access(const Access &access, StreamView stream = current_stream()) {
  check(plinth_sanitizer_access(access.pointer, access.bytes, access.kind, stream.get()));
}
/*! `operation("scale", {reads(x, n), writes(y, n)}, stream)`. */
inline void operation(const char *name, std::initializer_list<Access> accesses, StreamView stream = current_stream()) {
  check(plinth_sanitizer_operation(name, accesses.begin(), accesses.size(), stream.get()));
}
/*! With the accesses in any container. */
template <class Accesses>
void operation(const char *name, const Accesses &accesses, StreamView stream = current_stream()) {
  check(plinth_sanitizer_operation(name, std::data(accesses), std::size(accesses), stream.get()));
}
/*! Tells what a node of a graph that was built does at each replay. */
inline void graph_operation(GraphView graph, plinth_graph_node_t node, const char *name,
                            std::initializer_list<Access> accesses) {
  check(plinth_sanitizer_graph_operation(graph.get(), node, name, accesses.begin(), accesses.size()));
}
template <class Accesses>
void graph_operation(GraphView graph, plinth_graph_node_t node, const char *name, const Accesses &accesses) {
  check(plinth_sanitizer_graph_operation(graph.get(), node, name, std::data(accesses), std::size(accesses)));
}
/*! Tells of work that the CPU does now. */
inline void host_operation(const char *name, std::initializer_list<Access> accesses) {
  check(plinth_sanitizer_host_operation(name, accesses.begin(), accesses.size()));
}
template <class Accesses>
void host_operation(const char *name, const Accesses &accesses) {
  check(plinth_sanitizer_host_operation(name, std::data(accesses), std::size(accesses)));
}
/*! Later work of `stream` waits for what `other` has, by something that the sanitizer does not see. */
inline void wait_stream(StreamView stream, StreamView other) {
  check(plinth_sanitizer_wait_stream(stream.get(), other.get()));
}
inline void stream_done(StreamView stream) { check(plinth_sanitizer_stream_done(stream.get())); }

/* ---- What the sanitizer tells ---- */

using Report = plinth_sanitizer_report_t;

/*! Reports that there are to read, and how often anything was found. */
struct Count {
  std::size_t reports;
  std::uint64_t findings;
};

inline Count count() {
  Count found{};
  check(plinth_sanitizer_count(&found.reports, &found.findings));
  return found;
}
/*! Calls `visitor(const Report &)` for each, in the order in which they were found. What it throws ends the visit. */
template <class Visitor>
void each(Visitor &&visitor) {
  using Visit = detail::Visit<std::remove_reference_t<Visitor>>;
  Visit visit(visitor);
  const auto show = [](const plinth_sanitizer_report_t *report, void *context) { Visit::of(context).show(*report); };
  visit.finish(plinth_sanitizer_each(show, &visit));
}
/*! All reports, in words. */
inline std::string text() { return detail::text(plinth_sanitizer_text); }
inline std::string json() { return detail::text(plinth_sanitizer_json); }
/*! Forgets all reports. */
inline void clear() { check(plinth_sanitizer_clear()); }

/*! Sets who is told of new reports, in the modes warn and error: `function(const Report *)`, in place of who was told
 *  before; an empty function is nobody. It may be called by several threads at once, may call the library, and must not
 *  throw. A call that is under way when it is replaced still ends: the function is destroyed after that. */
inline void set_callback(std::function<void(const Report *)> function) {
  detail::Listener<const Report *>::set(std::move(function), plinth_sanitizer_set_callback);
}

}  // namespace sanitizer

}  // namespace plinth

#endif /* PLINTH_SANITIZER_HPP */
