/*!
 * @file plinth_graph.hpp
 * @brief Graphs in C++17: captured, and created from functions. plinth_graph_build.hpp is for explicitly built graphs.
 *        plinth.hpp includes both.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_GRAPH_HPP
#define PLINTH_GRAPH_HPP

#include "plinth_core.hpp"
#include "plinth_random.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {

/*! What is forbidden during a capture. */
enum class CaptureMode : std::int32_t {
  global = PLINTH_CAPTURE_GLOBAL,
  thread_local_ = PLINTH_CAPTURE_THREAD_LOCAL,
  relaxed = PLINTH_CAPTURE_RELAXED
};

/*! What happens if a replay would overlap with another replay of its pool. */
enum class Overlap : std::int32_t { order = PLINTH_GRAPH_OVERLAP_ORDER, refuse = PLINTH_GRAPH_OVERLAP_REFUSE };

/*! Creates the id of a pool that several graphs can share. */
inline plinth_pool_id_t graph_pool_handle() { return detail::output<plinth_pool_id_t>(plinth_graph_pool_handle); }

/*! A graph, destroyed by the destructor. Movable, not copyable; clone() creates a copy. */
class Graph {
 public:
  explicit Graph(bool keep_graph = false)
      : graph_(detail::output<plinth_graph_t>(plinth_graph_create)) {
    // This cannot fail: the graph is new, and the flag is defined.
    if (keep_graph) static_cast<void>(plinth_graph_set_flags(graph_, PLINTH_GRAPH_KEEP_GRAPH));
  }

  /*! Takes ownership of a graph of plinth_graph_create. */
  static Graph adopt(plinth_graph_t graph) noexcept { return Graph(graph); }

  ~Graph() { static_cast<void>(plinth_graph_destroy(graph_)); }
  Graph(Graph &&other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  Graph &operator=(Graph &&other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  Graph(const Graph &) = delete;
  Graph &operator=(const Graph &) = delete;

  plinth_graph_t get() const noexcept { return graph_; }
  /*! Releases ownership: the caller destroys the graph. */
  plinth_graph_t release() noexcept { return std::exchange(graph_, nullptr); }

  /*! A pool of {0, 0} stands for a private pool of the graph. Prefer GraphCapture. */
  void capture_begin(plinth_pool_id_t pool = {0, 0}, CaptureMode mode = CaptureMode::global) {
    detail::acquire([&] { return plinth_graph_capture_begin(graph_, &pool, static_cast<std::int32_t>(mode)); });
  }
  void capture_end() { check(plinth_graph_capture_end(graph_)); }
  void instantiate() { check(plinth_graph_instantiate(graph_)); }
  void upload() { check(plinth_graph_upload(graph_)); }
  /*! Replays the graph in the thread's current stream on the graph's device. */
  void replay() { check(plinth_graph_replay(graph_)); }
  void reset() { check(plinth_graph_reset(graph_)); }
  void set_overlap_policy(Overlap policy) {
    check(plinth_graph_set_overlap_policy(graph_, static_cast<std::int32_t>(policy)));
  }
  /*! Registers a generator, before the capture; the device's default generator needs no registration. */
  void register_generator_state(const GeneratorView &generator) {
    check(plinth_graph_register_generator_state(graph_, generator.get()));
  }

  plinth_pool_id_t pool() const {
    return detail::output<plinth_pool_id_t>([&](plinth_pool_id_t *out) { return plinth_graph_pool(graph_, out); });
  }
  /*! Memory of the graph's pool, in bytes. */
  struct Memory {
    std::size_t allocated;
    std::size_t held;
  };
  Memory memory() const {
    Memory found{};
    check(plinth_graph_memory(graph_, &found.allocated, &found.held));
    return found;
  }
  /*! Releases the pool's physical memory until wake(); its contents are lost. */
  void sleep() { check(plinth_graph_sleep(graph_)); }
  void wake() { check(plinth_graph_wake(graph_)); }
  bool is_asleep() const {
    return detail::output<bool>([&](bool *out) { return plinth_graph_is_asleep(graph_, out); });
  }

  void enable_debug_mode() { check(plinth_graph_enable_debug_mode(graph_)); }
  void debug_dump(const std::string &path) const { check(plinth_graph_debug_dump(graph_, path.c_str())); }
  std::string summary() const {
    return detail::text([&](char **out) { return plinth_graph_summary(graph_, out); });
  }
  /*! The CUgraph; the graph must have kept its nodes. */
  void *native() const {
    return detail::output<void *>([&](void **out) { return plinth_graph_native(graph_, out); });
  }
  /*! The CUgraphExec; the graph must be instantiated. */
  void *exec_native() const {
    return detail::output<void *>([&](void **out) { return plinth_graph_exec_native(graph_, out); });
  }
  void update(const Graph &other) { check(plinth_graph_update(graph_, other.graph_)); }
  /*! Updates the executable graph from a CUgraph. */
  void update_native(void *native) { check(plinth_graph_update_native(graph_, native)); }
  Graph clone() const {
    return Graph(
        detail::output<plinth_graph_t>([&](plinth_graph_t *out) { return plinth_graph_clone(graph_, out); }));
  }

 private:
  explicit Graph(plinth_graph_t graph) noexcept : graph_(graph) {}

  plinth_graph_t graph_;
};

/*! A non-owning view of a graph: a Graph, or the body of a conditional node, which belongs to the enclosing graph. */
class GraphView {
 public:
  GraphView(const Graph &graph) noexcept : graph_(graph.get()) {}
  GraphView(const Graph &&) = delete;
  explicit constexpr GraphView(plinth_graph_t graph) noexcept : graph_(graph) {}

  constexpr plinth_graph_t get() const noexcept { return graph_; }

 private:
  plinth_graph_t graph_;
};

/*! A capture as a scope, as torch.cuda.graph. It begins with the constructor and ends with end(). If an exception
 *  leaves the scope, the destructor discards the capture. In both cases the previous stream and device are restored. */
class GraphCapture {
 public:
  /*! Without a stream, uses a stream that the library keeps for captures; without a pool, a private pool of the
   *  graph. */
  explicit GraphCapture(GraphView graph, plinth_pool_id_t pool = {0, 0}, StreamView stream = {},
                        CaptureMode mode = CaptureMode::global) {
    detail::acquire([&] {
      return plinth_graph_begin(graph.get(), &pool, stream.get(), static_cast<std::int32_t>(mode), &context_);
    });
    open_ = true;
  }

  /*! Ends the capture. Throws if it failed. */
  void end() {
    detail::end_once(open_, "plinth::GraphCapture::end: the capture has ended");
    check(plinth_graph_end(&context_, PLINTH_OK));
  }

  ~GraphCapture() {
    if (open_) static_cast<void>(plinth_graph_end(&context_, PLINTH_ERROR_CAPTURE_INVALIDATED));
  }
  GraphCapture(const GraphCapture &) = delete;
  GraphCapture &operator=(const GraphCapture &) = delete;

 private:
  plinth_graph_context_t context_{};
  bool open_ = false;
};

/*! Captures the work of a function. An exception of the function discards the capture and is rethrown. */
template <class Body>
void capture(GraphView graph, Body &&body, plinth_pool_id_t pool = {0, 0}, StreamView stream = {},
             CaptureMode mode = CaptureMode::global) {
  GraphCapture block(graph, pool, stream, mode);
  std::forward<Body>(body)();
  block.end();
}

/* ---- Graphed callables ---- */

/*! A captured function of the program, destroyed by the destructor. Movable, not copyable. */
class GraphedCallable {
 public:
  /*! Takes ownership of a callable of plinth_make_graphed_callables. */
  explicit GraphedCallable(plinth_graphed_callable_t callable) noexcept : callable_(callable) {}
  ~GraphedCallable() { static_cast<void>(plinth_graphed_callable_destroy(callable_)); }
  GraphedCallable(GraphedCallable &&other) noexcept : callable_(std::exchange(other.callable_, nullptr)) {}
  GraphedCallable &operator=(GraphedCallable &&other) noexcept {
    std::swap(callable_, other.callable_);
    return *this;
  }
  plinth_graphed_callable_t get() const noexcept { return callable_; }
  /*! `outputs` has as many tensors as were described at creation. */
  void operator()(const std::vector<DLTensor> &inputs, std::vector<DLTensor> &outputs) {
    check(plinth_graphed_callable_call(callable_, inputs.data(), inputs.size(), outputs.data(), outputs.size()));
  }
  void backward(const std::vector<DLTensor> &output_gradients, std::vector<DLTensor> &input_gradients) {
    check(plinth_graphed_callable_backward(callable_, output_gradients.data(), output_gradients.size(),
                                           input_gradients.data(), input_gradients.size()));
  }
  plinth_pool_id_t pool() const {
    return detail::output<plinth_pool_id_t>(
        [&](plinth_pool_id_t *out) { return plinth_graphed_callable_pool(callable_, out); });
  }
  void reset() { check(plinth_graphed_callable_reset(callable_)); }

 private:
  plinth_graphed_callable_t callable_;
};

inline std::vector<GraphedCallable> make_graphed_callables(const std::vector<plinth_callable_t> &callables,
                                                           const plinth_pool_id_t &pool = {0, 0},
                                                           std::uint32_t warmup_count = PLINTH_CALLABLE_WARMUPS) {
  std::vector<plinth_graphed_callable_t> handles(callables.size());
  std::vector<GraphedCallable> made;
  made.reserve(callables.size());
  detail::acquire([&] {
    return plinth_make_graphed_callables(callables.data(), callables.size(), &pool, warmup_count, handles.data());
  });
  for (plinth_graphed_callable_t handle : handles) {
    made.emplace_back(handle);
  }
  return made;
}

}  // namespace plinth

#endif

#endif /* PLINTH_GRAPH_HPP */
